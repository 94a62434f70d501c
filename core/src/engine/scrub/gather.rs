//! From maps to tables: who owns the units of the chunks of a round.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::rows::scratch_of_row;
use super::{Engine, Home, Lane, Round, Table};
use crate::ChunkType;
use crate::chunk::Column;
use crate::engine::owners::Walk;
use crate::engine::rows::is_journal;
use crate::profile::data_stripes;
use crate::scrub::{PIECE_MAX, Place, ROUND_MAX, WINDOW, memory_of};
use crate::units::{ChunkId, DeviceId, STRIP, UNIT, round_down};
use crate::volume::INTERNAL;

/// Where the walk through the maps is.
#[derive(Clone)]
pub(super) struct Cursor {
    walk: Walk,
    /// Lane and place in it of each chunk of the round.
    seats: BTreeMap<ChunkId, (usize, usize)>,
}

impl Engine {
    /// Chooses the chunks of the next round: of each lane those that come next, in turn, up to a bound of memory. False
    /// when none is left.
    pub(super) fn begin_round(&mut self) -> bool {
        let scrub = &self.pool.scrub;
        let mut left: BTreeMap<DeviceId, Vec<(u64, ChunkId, u32)>> = BTreeMap::new();
        let mut copies = 1;
        for chunk in self.pool.chunks().filter(|c| c.id.0 < scrub.end && !c.closing) {
            // What is spread over many members is one lane, whichever of them comes first in a chunk: lanes side by side would
            // have each of them seek.
            let is_spread = data_stripes(chunk.profile, chunk.columns.len()) > 1;
            let lead = match is_spread {
                true => chunk.columns.iter().min_by_key(|column| column.device),
                false => chunk.columns.first(),
            };
            let Some(&Column { device: lead, offset: start }) = lead else { continue };
            let units = (chunk.length / UNIT) as u32;
            if scrub.places.get(&lead).is_none_or(|&place| place < Place { start, unit: units }) {
                left.entry(lead).or_default().push((start, chunk.id, units));
                copies = copies.max(chunk.profile.facts().copies as u64);
            }
        }
        if left.is_empty() {
            return false;
        }
        // Ids are in order of allocation, which is that of places only until the first chunk comes back.
        left.values_mut().for_each(|chunks| chunks.sort_unstable());
        let mut left: BTreeMap<DeviceId, VecDeque<_>> = left.into_iter().map(|(id, list)| (id, list.into())).collect();
        let new = |&device: &DeviceId| Lane {
            device,
            tables: VecDeque::new(),
            at: 0,
            out: VecDeque::new(),
            window: WINDOW,
            end: None,
        };
        let mut lanes: Vec<Lane> = left.keys().map(new).collect();
        let mut seats = BTreeMap::new();
        let (mut room, mut maps, mut widest) = (ROUND_MAX, false, UNIT);
        while room > 0 && left.values().any(|chunks| !chunks.is_empty()) {
            for ((i, lane), chunks) in lanes.iter_mut().enumerate().zip(left.values_mut()) {
                let Some((start, chunk, units)) = chunks.pop_front().filter(|_| room > 0) else { continue };
                if lane.tables.is_empty() {
                    let place = scrub.places.get(&lane.device).filter(|place| place.start == start);
                    lane.at = place.map_or(0, |place| place.unit);
                }
                room = room.saturating_sub(u64::from(units));
                seats.insert(chunk, (i, lane.tables.len()));
                let c = self.pool.chunk(chunk);
                let is_system = c.is_none_or(|c| c.kind == ChunkType::System);
                // A piece of a chunk with strips is spread over all of them.
                let strips = c.map_or(1, |c| data_stripes(c.profile, c.columns.len()));
                lane.window = lane.window.max(WINDOW * strips.max(1));
                maps |= !is_system;
                if let Some(c) = c.filter(|c| c.rows() > 0) {
                    widest = widest.max(scratch_of_row(c) * STRIP);
                }
                let owners = if is_system { Vec::new() } else { vec![Home::default(); units as usize] };
                lane.tables.push_back(Table { chunk, start, units, owners });
            }
        }
        let memory = self.pool.properties.scrub_memory.unwrap_or_else(|| memory_of(self.pool.devices().count()));
        let share = memory / (copies * (lanes.len() * WINDOW) as u64);
        // A piece is a row at least.
        let piece_max = round_down(share, UNIT).clamp(UNIT, PIECE_MAX).max(widest);
        if piece_max != self.scrub.piece_max {
            self.drop_spare();
            self.scrub.piece_max = piece_max;
        }
        let pieces_max = (memory / (copies * piece_max)).max(1) as usize;
        let gather = maps.then_some(Cursor { walk: Walk::default(), seats });
        self.scrub.round = Some(Round { lanes, gather, pieces_max, turn: 0 });
        true
    }

    /// Walks on through the maps, for a bounded time.
    pub(super) fn gather(&mut self) {
        let Engine { pool, scrub: work, .. } = self;
        let Some(Round { lanes, gather, .. }) = &mut work.round else { return };
        let Some(cursor) = gather else { return };
        let Cursor { walk, seats } = cursor;
        let mut seat: Option<(ChunkId, Option<(usize, usize)>)> = None;
        let is_over = walk.go_on(
            pool,
            |chunk| seats.contains_key(&chunk),
            |id, unit, home| {
                let place = match seat {
                    Some((chunk, place)) if chunk == id => place,
                    _ => seats.get(&id).copied(),
                };
                seat = Some((id, place));
                let table = place.and_then(|(lane, at)| lanes.get_mut(lane)?.tables.get_mut(at));
                // Copies of the stripe journal differ after a crash, and are of use to an opening only, which checks them.
                let is_journal = home.get().is_some_and(|(volume, at)| volume == INTERNAL && is_journal(at));
                if let Some(owner) = table.and_then(|t| t.owners.get_mut(unit as usize)).filter(|_| !is_journal) {
                    *owner = home;
                }
            },
        );
        if is_over {
            *gather = None;
        }
    }

    /// Units of a system chunk that have a page.
    pub(super) fn pages_in(&self, chunk: ChunkId) -> u64 {
        let units = self.pool.chunk(chunk).map_or(0, |c| c.length / UNIT);
        (0..units as u32).filter(|&unit| self.commit.pages_of(chunk, unit) != 0).count() as u64
    }
}
