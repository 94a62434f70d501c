//! What has to become of each block, from where its copies are and what is done to them, and from nothing the engine says.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use braid_core::regions::{ROWS, row_unit};
use braid_core::units::{BLOCK, ChunkId, DeviceId, UNIT, VolumeId};
use braid_core::{ChunkType, Pool};

use super::case::{Case, Hit, Kind};
use super::phase::Phase;
use super::{REWRITTEN, place};
use crate::world::World;

/// What has to become of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// A copy is out of reach of every fault: it is read, always.
    Served,
    /// Whether it is read depends on what was mended between the faults; wrong it never is.
    Open,
    /// Every copy was gone before anybody could do something about it: it cannot be read.
    Lost,
}

/// What has to become of a pool.
pub(super) struct Expectation {
    /// Of every block that was written before.
    pub(super) blocks: BTreeMap<u64, Fate>,
    /// Blocks that faults of blocks are about, by member: one that is written over in the phase, one that is not.
    pub(super) targets: BTreeMap<u32, Vec<u64>>,
    /// Nobody notices anything, and all is well afterwards.
    pub(super) is_within: bool,
}

fn targets(world: &World, volume: VolumeId, pieces: &[Range<u64>], device: u32) -> Vec<u64> {
    let is_on = |&at: &u64| world.places(volume, at).iter().any(|(d, _)| d.0 == device);
    let first = |half: u64| pieces.iter().skip(half as usize).step_by(2).flat_map(blocks).find(is_on);
    [first(REWRITTEN), first(1 - REWRITTEN)].into_iter().flatten().collect()
}

fn blocks(piece: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    piece.clone().step_by(BLOCK as usize)
}

/// Blocks of a row that are made of each other: one of each member.
#[derive(PartialEq, Eq)]
struct Lane {
    chunk: ChunkId,
    row: u32,
    block: u64,
}

impl Lane {
    fn at(pool: &Pool, volume: VolumeId, at: u64) -> Option<Lane> {
        let entry = pool.volume(volume)?.map.get(at / UNIT);
        let chunk = pool.chunk(entry.chunk())?;
        let (row, _) = chunk.row_of(entry.unit())?;
        Some(Lane { chunk: chunk.id, row, block: at % UNIT / BLOCK })
    }

    /// Its members that may have missed something of it.
    fn behind(&self, pool: &Pool) -> BTreeSet<DeviceId> {
        let columns = pool.chunk(self.chunk).expect("it has rows").columns.iter();
        let unit = row_unit(self.chunk, self.row);
        columns.map(|c| c.device).filter(|&device| pool.is_unit_stale(device, ROWS, unit)).collect()
    }
}

impl Expectation {
    /// Of a pool that is prepared, before the first fault.
    pub(super) fn of(world: &World, volume: VolumeId, case: &Case) -> Expectation {
        let pieces = case.phase.pieces(case.layout);
        let targets: BTreeMap<u32, Vec<u64>> =
            case.hits.iter().map(|hit| (hit.device, targets(world, volume, &pieces, hit.device))).collect();
        let pool = world.engine().pool();
        // What the first member had may stand anywhere by then: on the one that replaces it or, where that fails, on another.
        // So may, of stripes, the rest of its chunk.
        let moves = |device: DeviceId| {
            let facts = case.layout.profile.facts();
            device.0 == 1 || facts.copies == 1 && facts.parity == 0
        };
        let is_on = |hit: &Hit, device: DeviceId| {
            hit.device == device.0 || case.phase == Phase::Replace && hit.moment > 0 && moves(device)
        };
        let mut fates = BTreeMap::new();
        for at in pieces.iter().flat_map(blocks) {
            let copies = world.places(volume, at);
            let is_rewritten = case.phase == Phase::Write && at / place(1) % 2 == REWRITTEN;
            let stays = |hit: &Hit| match hit.kind {
                Kind::Missing => true,
                Kind::ReadError | Kind::BitFlip => !is_rewritten,
                Kind::WriteError | Kind::Torn | Kind::StaleReturn | Kind::CacheLost | Kind::GivenUp => false,
            };
            if let Some(lane) = Lane::at(pool, volume, at) {
                let is_in_lane = |&target: &u64| Lane::at(pool, volume, target).as_ref() == Some(&lane);
                let strikes = |hit: &&Hit| !hit.kind.is_of_blocks() || targets[&hit.device].iter().any(is_in_lane);
                let with = |hits: &mut dyn Iterator<Item = &Hit>| {
                    let mut all = lane.behind(pool);
                    all.extend(hits.map(|hit| DeviceId(hit.device)));
                    all
                };
                let struck = with(&mut case.hits.iter().filter(strikes));
                let gone = with(&mut case.hits.iter().filter(strikes).filter(|hit| hit.moment == 0 && stays(hit)));
                let (own, parity) = (copies[0].0, case.layout.profile.facts().parity);
                // Where nobody writes, what is lost beside a block is nothing to it.
                let rests = matches!(case.phase, Phase::Read | Phase::Scrub);
                // A block may go bad before its request is over and its checksum known: then what others missed may be made of it.
                let writes = matches!(case.phase, Phase::Write | Phase::Rows);
                let is_unsaid = |hit: &Hit| hit.kind == Kind::BitFlip && hit.moment > 0 && writes;
                let fate = match () {
                    () if struck.len() > 1 && case.hits.iter().filter(strikes).any(is_unsaid) => Fate::Open,
                    () if struck.len() <= parity || rests && !struck.contains(&own) => Fate::Served,
                    () if rests && gone.len() > parity && gone.contains(&own) => Fate::Lost,
                    () => Fate::Open,
                };
                fates.insert(at, fate);
                continue;
            }
            // Of two copies on one member the first is struck.
            let is_first = |i: usize| copies[..i].iter().all(|(d, _)| *d != copies[i].0);
            let strikes = |hit: &Hit, i: usize| {
                let is_struck = || is_first(i) && targets[&hit.device].contains(&at);
                is_on(hit, copies[i].0) && (!hit.kind.is_of_blocks() || is_struck())
            };
            let is_behind = |i: usize| pool.is_unit_stale(copies[i].0, volume, at / UNIT);
            let is_good = |i: &usize| !is_behind(*i) && !case.hits.iter().any(|hit| strikes(hit, *i));
            let is_gone =
                |i: usize| is_behind(i) || case.hits.iter().any(|h| h.moment == 0 && stays(h) && strikes(h, i));
            let fate = match (0..copies.len()).find(is_good) {
                Some(_) => Fate::Served,
                None if (0..copies.len()).all(is_gone) => Fate::Lost,
                None => Fate::Open,
            };
            fates.insert(at, fate);
        }
        // Without its records a pool can promise nothing, though it may serve.
        let system = world.chunks(ChunkType::System);
        let is_struck = |device: DeviceId| case.hits.iter().any(|h| !h.kind.is_of_blocks() && is_on(h, device));
        let records_stand = system.iter().all(|(_, members)| members.iter().any(|&device| !is_struck(device)));
        if !records_stand {
            fates.values_mut().filter(|fate| **fate == Fate::Served).for_each(|fate| *fate = Fate::Open);
        }
        // Nor may it go on working with less than it does without, whose blocks ever those are.
        let lost: BTreeSet<u32> = case.hits.iter().filter(|h| !h.kind.is_of_blocks()).map(|h| h.device).collect();
        let parity = case.layout.profile.facts().parity;
        let is_too_much = parity > 0 && lost.len() > parity;
        let is_within = !is_too_much && fates.values().all(|&fate| fate == Fate::Served);
        Expectation { blocks: fates, targets, is_within }
    }
}
