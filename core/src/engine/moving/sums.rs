//! Checksums of units on their way.
//!
//! What is read is compared with its sums, and counts only if it is what they say: what no copy holds any more stays where it is.
//! At its new place a unit has its sums before the map names that, and its region is marked as for a first write.
//!
//! Units of the volume of pages are copied out of memory, under their range lock: of each sector memory has the best that there is
//! on any copy, and what it says is newer than what any of them does. One of them at a time, so that the pages it waits for find room
//! among those that wait for its lock.

use alloc::vec::Vec;

use super::unit::{Begun, Target};
use super::{ChunkId, Engine, Home};
use crate::ChunkType;
use crate::engine::mend::{blocks, runs};
use crate::engine::rows::Writer;
use crate::engine::scrub::range;
use crate::engine::sums::{Need, Put, SUMS_VOLUME, locate, whose};
use crate::queue::{CopySet, Io};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, UNIT, VolumeId};
use crate::volume::Entry;

impl Engine {
    /// Another unit has to come first: of pages one goes at a time, and only so many regions are marked.
    pub(super) fn is_out_of_turn(&self, home: Home) -> bool {
        let Some((volume, at)) = home.get() else { return false };
        let has_pages = volume == SUMS_VOLUME && self.moving.moves.iter().any(|m| m.volume == SUMS_VOLUME);
        has_pages || !self.has_mark_room(volume, at)
    }

    /// What is in a chunk besides its own sums, which go with it.
    pub(super) fn units_of_others(&self, chunk: ChunkId) -> u64 {
        self.pool.chunk(chunk).map_or(0, |c| c.used() / UNIT).saturating_sub(self.own_sum_units(chunk))
    }

    /// Whether a unit that is to go elsewhere needs no copy: sums of the chunk itself, or a place that is only set aside.
    pub(super) fn goes_by_itself(&mut self, volume: VolumeId, at: u64, from: (ChunkId, u32)) -> Option<Begun> {
        if volume != SUMS_VOLUME {
            return None;
        }
        if whose(at) == from.0 {
            return Some(Begun::Elsewhere);
        }
        let old = self.entry(volume, at);
        if (old.chunk(), old.unit()) != from || old.written() != 0 {
            return None;
        }
        if self.locks.overlaps_other(volume, at * UNIT, (at + 1) * UNIT, super::TOKENS) {
            // It is being written for the first time, and goes with the next pass.
            return Some(Begun::Elsewhere);
        }
        if self.is_starved_still() {
            return Some(Begun::NoRoom);
        }
        let Some((chunk, unit)) = self.find_good_place(volume, at, ChunkType::Metadata, false) else {
            return Some(Begun::NoRoom);
        };
        self.moving.starved = None;
        if let Some(v) = self.pool.volume_mut(volume) {
            v.map.set(at, Entry::new(chunk, unit, 0));
        }
        self.retire_units([old]);
        self.moving.pass.moved += 1;
        Some(Begun::Elsewhere)
    }

    /// A run of blocks was read and compared; where it is wrong, another copy is asked.
    pub(in crate::engine) fn move_compared(&mut self, id: u32, io: &Io, wrong: Vec<(u32, u16)>) {
        let m = &self.moving.moves[id];
        let (volume, at) = (m.volume, m.at);
        // What somebody writes at this moment is read again under the lock.
        if m.is_locked || !m.is_stale {
            // What came may be newer than its sums.
            self.moving.moves[id].is_unsure |= !wrong.is_empty() && self.resync.doubts(volume, at);
            for (within, bad) in wrong {
                self.want_unit(volume, at);
                for (first, count) in runs(bad) {
                    let skip = u64::from(within) + first * BLOCK;
                    let set = CopySet { offset: io.set.offset + skip, ..io.set };
                    self.read_run(id, set, range(io.buf.buf, u64::from(io.buf.offset) + skip, count * BLOCK));
                }
            }
        }
        self.count_move_down(id);
    }

    /// Its sums cannot be had.
    pub(in crate::engine) fn move_not_compared(&mut self, id: u32) {
        let m = &mut self.moving.moves[id];
        (m.lost, m.is_unsure) = (m.mask, true);
    }

    /// The lock is ours and the data is at its new place: its sums follow, then the map.
    pub(super) fn sum_move(&mut self, id: u32) {
        let m = &self.moving.moves[id];
        match m.to {
            Target::Unit(chunk, unit) if self.is_summed(m.volume) => {
                let (index, _) = locate(self.sums.kind(), u64::from(unit) * UNIT);
                self.with_page(chunk, index, Need::Moved(id));
            }
            _ => self.log_move(id),
        }
    }

    /// The page of the new place is in memory.
    pub(in crate::engine) fn put_moved_sums(&mut self, id: u32, slot: u32) {
        let m = &self.moving.moves[id];
        let Target::Unit(chunk, unit) = m.to else { unreachable!("a column takes its sums along") };
        let (volume, at, mask, buf) = (m.volume, m.at, m.mask, m.buf.expect("it was read"));
        let (_, base) = locate(self.sums.kind(), u64::from(unit) * UNIT);
        for (first, count) in runs(mask) {
            self.put_sums(Put::Data(range(buf, first * BLOCK, count * BLOCK)), slot, base + first as u16);
        }
        self.sums.lags_no_more(chunk, unit, Writer::Move(id));
        self.mark_moved(volume, at);
        self.log_move(id);
    }

    /// The written pages of a unit of them, as they are in memory.
    pub(super) fn read_move_pages(&mut self, id: u32) {
        let (at, mask) = (self.moving.moves[id].at, self.moving.moves[id].mask);
        for block in blocks(mask) {
            self.moving.moves[id].pending += 1;
            self.with_page_at(at * BLOCKS_PER_UNIT + block, Need::MovedPage { id, block });
        }
    }

    /// One of them is held.
    pub(in crate::engine) fn take_page_along(&mut self, id: u32, block: u64, slot: u32) {
        self.hold_page(slot);
        self.moving.moves[id].pages.push((block, slot));
        self.count_move_down(id);
    }
}
