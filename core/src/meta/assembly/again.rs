//! The stripe journal read back: changes of rows that may not be in place, in the order in which they were made.
//!
//! A power cut may have left the last groups on one copy only. They count: before anything of them goes in place again, the
//! other copies get them too, since a row that is being written has to be in the journal whoever is lost next. And one that is
//! only on a member that is not there must not turn up later: see [`Replay::may_know_more`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Assembly, MetaRead, Stop};
use crate::meta::Bytes;
use crate::meta::ring::{self, RingBlock, UNITS_MAX};
use crate::pool::Pool;
use crate::profile::parity::Lanes;
use crate::profile::{data_stripes, slice};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, ChunkId, DeviceId, UNIT};
use crate::volume::INTERNAL;

/// A block of a member of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowBlock {
    pub(crate) chunk: ChunkId,
    pub(crate) row: u32,
    pub(crate) member: u8,
    pub(crate) lane: u8,
}

/// A word of the journal about a row, whose blocks stand in what was read.
struct Replayed<'a> {
    chunk: ChunkId,
    row: u32,
    word: Word<'a>,
}

/// What is said of it.
enum Word<'a> {
    /// Nothing before this counts.
    Void,
    /// These lanes of a member changed and are not here, since it was not there: what was said of them before is no more.
    Missed(u8, Lanes),
    /// What a member has in a lane: it goes in place again.
    Block(u8, u8, &'a [u8]),
}

/// What the journal says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    /// What rows in use are to hold, by place.
    pub(crate) blocks: Vec<(RowBlock, Bytes)>,
    /// What copies of the journal lack of that.
    pub(crate) lacking: Vec<Lacking>,
    /// A copy is on a member that is not there: it may have groups that no other one has. They are void once the first
    /// checkpoint counts; until then nobody may see that they were not there.
    pub(crate) may_know_more: bool,
}

/// A part of a group that is to be on this copy as well; within one unit.
#[derive(Clone, Debug)]
pub(crate) struct Lacking {
    pub(crate) device: DeviceId,
    /// On the device.
    pub(crate) offset: u64,
    /// In the journal.
    pub(crate) at: u64,
    pub(crate) bytes: Bytes,
}

/// Units of one copy of the journal that count and are there.
type Copy = Vec<Option<MetaRead>>;

/// A group as it was found.
struct Group<'a> {
    /// Its blocks of the journal.
    place: Range<usize>,
    /// Copies that have it, one at least.
    on: Vec<usize>,
    words: Vec<Replayed<'a>>,
}

/// What stands where nothing can be read.
static NOTHING: RingBlock = [0; BLOCK as usize];

impl Assembly {
    /// The last groups of the journal, as far back as each follows the one before.
    ///
    /// Each copy of the journal is read by itself: a group that is whole on one of them counts. Copies of members that missed
    /// something of it, or failed, are left out, since what stands there may be older than what follows it. Units may be on
    /// other members each: what a copy has not, or cannot read, is taken from another one, since what counts was written to all
    /// that are there.
    pub(super) fn replay<'a>(&'a self, pool: &Pool) -> Result<Replay, Stop> {
        let Some(volume) = pool.volume(INTERNAL) else { return Ok(Replay::default()) };
        let mut may_know_more = false;
        let mut copies: Vec<Copy> = Vec::new();
        for unit in 0..UNITS_MAX {
            let entry = volume.map.get(unit);
            let Some(c) = pool.chunk(entry.chunk()).filter(|_| entry.is_mapped()) else { break };
            let part = slice(c.profile, c.columns.len(), u64::from(entry.unit()) * UNIT, UNIT);
            let columns = c.columns.get(part.first..part.first + part.copies).unwrap_or_default();
            for (copy, column) in columns.iter().enumerate() {
                let (is_here, counts) =
                    (self.present.contains_key(&column.device), pool.may_have_unit(column.device, INTERNAL, unit));
                may_know_more |= counts && !is_here;
                let read = MetaRead { device: column.device, offset: column.offset + part.offset, len: UNIT };
                if copies.len() <= copy {
                    copies.push(Vec::new());
                }
                let units = copies.get_mut(copy).ok_or(Stop::because("its journal has too many copies"))?;
                units.resize(unit as usize, None);
                units.push((is_here && counts).then_some(read));
            }
        }
        let missing: Vec<MetaRead> =
            copies.iter().flatten().flatten().filter(|read| !self.have.contains_key(read)).copied().collect();
        if !missing.is_empty() {
            return Err(Stop::Need(missing));
        }
        let mut groups: BTreeMap<u64, Group<'_>> = BTreeMap::new();
        let rings: Vec<Vec<&RingBlock>> = (0..copies.len()).map(|copy| self.copy_of_ring(&copies, copy)).collect();
        // By their first block: copies are mostly alike, and to compare them is less work than to check each.
        let mut known: BTreeMap<usize, u64> = BTreeMap::new();
        for (copy, ring) in rings.iter().enumerate() {
            let mut at = 0;
            while let Some(behind) = ring.get(at..).filter(|behind| !behind.is_empty()) {
                if let Some(group) = known.get(&at).and_then(|seq| groups.get_mut(seq))
                    && group.first_of(&rings) == ring.get(group.place.clone())
                {
                    group.on.push(copy);
                    at = group.place.end;
                    continue;
                }
                let Some((head, blocks)) = ring::open(behind, self.superblock.pool, self.superblock.epoch) else {
                    at += 1;
                    continue;
                };
                let block = |a: ring::Again<'a>| {
                    let ring::Again { chunk, row, member, lane, bytes } = a;
                    Replayed { chunk, row, word: Word::Block(member, lane, bytes) }
                };
                let words = head.entries.iter().flat_map(|entry| words_beside(pool, entry));
                let end = at + head.blocks() as usize;
                // Of a number that stands at two places the first counts.
                let group = groups.entry(head.seq).or_insert_with(|| {
                    known.insert(at, head.seq);
                    let words = words.chain(blocks.into_iter().map(block)).collect();
                    Group { place: at..end, on: Vec::new(), words }
                });
                group.on.push(copy);
                at = end;
            }
        }
        let mut next = None;
        let mut last: Vec<Group<'_>> = Vec::new();
        while let Some((seq, group)) = groups.pop_last() {
            if next.is_some_and(|next| next != seq + 1) {
                break;
            }
            next = Some(seq);
            last.push(group);
        }
        last.reverse();
        // One that a later one was written over, on some copy, was covered by a flush before: it stays where it is left.
        let mut lacking = Vec::new();
        let mut later: Vec<&Range<usize>> = Vec::new();
        for group in last.iter().rev() {
            let here = &group.place;
            if !later.iter().any(|other| other.start < here.end && here.start < other.end) {
                lacking.extend(group.lacking(&copies, &rings, |read| self.unit_of_ring(read).is_none()));
            }
            later.push(here);
        }
        let blocks = what_counts(pool, last.into_iter().flat_map(|group| group.words));
        // Void groups alone need not be on every copy.
        Ok(Replay { lacking: if blocks.is_empty() { Vec::new() } else { lacking }, blocks, may_know_more })
    }

    /// One copy, and others where it cannot be read; zeros where none can.
    fn copy_of_ring(&self, copies: &[Copy], copy: usize) -> Vec<&RingBlock> {
        let read = |copy: &Copy, unit: usize| copy.get(unit)?.and_then(|read| self.unit_of_ring(&read));
        let mut blocks = Vec::new();
        for unit in 0..copies.iter().map(Vec::len).max().unwrap_or(0) {
            let own = copies.get(copy).and_then(|copy| read(copy, unit));
            let held = own.or_else(|| copies.iter().find_map(|copy| read(copy, unit))).unwrap_or_default();
            blocks.extend(held.iter().chain(core::iter::repeat(&NOTHING)).take(BLOCKS_PER_UNIT as usize));
        }
        blocks
    }

    fn unit_of_ring(&self, read: &MetaRead) -> Option<&[RingBlock]> {
        let bytes = self.have.get(read)?.result.as_ref().ok()?;
        Some(bytes.as_chunks().0)
    }
}

/// What an entry says but for its blocks. All data that changes is in it, also that of members that were not there; parity
/// of those is not.
fn words_beside<'a>(pool: &Pool, entry: &ring::Entry) -> Vec<Replayed<'a>> {
    let &ring::Entry { chunk, row, ref members, .. } = entry;
    let say = |word| Replayed { chunk, row, word };
    let Some(c) = pool.chunk(chunk).filter(|_| !members.is_empty()) else { return [say(Word::Void)].into() };
    let data = data_stripes(c.profile, c.columns.len()) as u8;
    let lanes_of = |which: &dyn Fn(u8) -> bool| {
        members.iter().filter(|(member, _)| which(*member)).fold(0, |all, (_, lanes)| all | lanes)
    };
    let changed: Lanes = lanes_of(&|member| member < data);
    let parity = (0..c.profile.facts().parity as u8).filter_map(|i| data.checked_add(i));
    parity.map(|member| say(Word::Missed(member, changed & !lanes_of(&|other| other == member)))).collect()
}

/// Of a block that is in several groups the last counts, unless something later says that it does not.
fn what_counts<'a>(pool: &Pool, words: impl Iterator<Item = Replayed<'a>>) -> Vec<(RowBlock, Bytes)> {
    let mut blocks: BTreeMap<RowBlock, &[u8]> = BTreeMap::new();
    for Replayed { chunk, row, word } in words {
        match word {
            Word::Block(member, lane, bytes) => {
                blocks.insert(RowBlock { chunk, row, member, lane }, bytes);
            }
            Word::Missed(member, lanes) => {
                for lane in (0..16).filter(|lane| lanes >> lane & 1 == 1) {
                    blocks.remove(&RowBlock { chunk, row, member, lane });
                }
            }
            Word::Void => blocks.retain(|at, _| (at.chunk, at.row) != (chunk, row)),
        }
    }
    let is_live = |at: &RowBlock| pool.chunk(at.chunk).is_some_and(|c| c.is_live(at.row));
    blocks.into_iter().filter(|(at, _)| is_live(at)).map(|(at, bytes)| (at, Bytes::new(bytes.to_vec()))).collect()
}

impl Group<'_> {
    /// Its blocks, from the first copy that has it.
    fn first_of<'a, 'b>(&self, rings: &'b [Vec<&'a RingBlock>]) -> Option<&'b [&'a RingBlock]> {
        rings.get(*self.on.first()?)?.get(self.place.clone())
    }

    /// What has to be written for every copy that counts to have it; `failed` are units that could not be read.
    fn lacking(&self, copies: &[Copy], rings: &[Vec<&RingBlock>], failed: impl Fn(&MetaRead) -> bool) -> Vec<Lacking> {
        let blocks = self.first_of(rings).unwrap_or_default();
        let mut lacking = Vec::new();
        for (copy, units) in copies.iter().enumerate() {
            let is_on = self.on.contains(&copy);
            let mut at = self.place.start;
            while at < self.place.end {
                let (unit, within) = (at / BLOCKS_PER_UNIT as usize, at as u64 % BLOCKS_PER_UNIT * BLOCK);
                let end = ((unit + 1) * BLOCKS_PER_UNIT as usize).min(self.place.end);
                if let (Some(Some(unit)), Some(part)) =
                    (units.get(unit), blocks.get(at - self.place.start..end - self.place.start))
                    && (!is_on || failed(unit))
                {
                    let mut bytes = Vec::with_capacity(part.len() * BLOCK as usize);
                    part.iter().for_each(|block| bytes.extend_from_slice(*block));
                    let (offset, at) = (unit.offset + within, at as u64 * BLOCK);
                    lacking.push(Lacking { device: unit.device, offset, at, bytes: bytes.into() });
                }
                at = end;
            }
        }
        lacking
    }
}

const _: () = assert!(UNIT == BLOCKS_PER_UNIT * BLOCK);
