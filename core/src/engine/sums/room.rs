//! Room for pages: reserved when a chunk comes to be, given back when it goes.
//!
//! Reservations are in memory only, like those of clients, and are made anew at an opening. They fit then, since what else
//! is in metadata chunks stood beside them before; where each one is may change, as long as nothing was written there.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{CHUNKS_MAX, Engine, SUMS_VOLUME, home};
use crate::ChunkType;
use crate::meta::record::Record;
use crate::pool::Pool;
use crate::units::{BLOCKS_PER_UNIT, ChunkId, UNIT};
use crate::volume::Entry;

impl Engine {
    /// Units of the volume of pages that belong to a chunk.
    fn sum_units(&self, chunk: ChunkId) -> core::ops::Range<u64> {
        let length = self.pool.chunk(chunk).map_or(0, |c| c.length);
        let pages = u64::from(self.sums.kind.pages_for(length));
        let first = home(chunk, 0) / UNIT;
        first..first + pages.div_ceil(BLOCKS_PER_UNIT)
    }

    /// How many units the sums of a chunk take.
    pub(in crate::engine) fn sum_units_wanted(&self, chunk: ChunkId) -> u64 {
        if self.sums.is_on() { self.sum_units(chunk).count() as u64 } else { 0 }
    }

    /// The opening: every chunk has room for its sums again.
    pub(in crate::engine) fn reserve_all_sums(&mut self) {
        if !self.sums.is_on() {
            return;
        }
        // Metadata first: they hold their own.
        for kind in [ChunkType::Metadata, ChunkType::Data] {
            let chunks: Vec<ChunkId> = self.pool.chunks().filter(|c| c.kind == kind).map(|c| c.id).collect();
            for chunk in chunks {
                // Where a foreign hand left no room, pages get theirs when they are written, or never: then nothing is
                // verified there after the next opening.
                self.reserve_sums(chunk);
            }
        }
    }

    /// Reserves room for the sums of a chunk; false, and nothing is reserved, when there is none.
    pub(in crate::engine) fn reserve_sums(&mut self, chunk: ChunkId) -> bool {
        if !self.sums.is_on() {
            return true;
        }
        if chunk.0 >= CHUNKS_MAX {
            return false;
        }
        let units = self.sum_units(chunk);
        let is_data = self.pool.chunk(chunk).is_some_and(|c| c.kind == ChunkType::Data);
        let wanted = units.clone().filter(|&unit| !self.entry(SUMS_VOLUME, unit).is_mapped()).count() as u64;
        if is_data && !self.has_metadata_room(wanted, true) {
            return false;
        }
        for unit in units.clone() {
            if !self.entry(SUMS_VOLUME, unit).is_mapped() && !self.reserve_sum_unit(chunk, unit) {
                for unit in units.start..unit {
                    self.take_back_sum_unit(chunk, unit);
                }
                return false;
            }
        }
        true
    }

    /// Whether so many units of metadata are free, or would be with more chunks; `any` counts those too that are only for who finds no
    /// other place. None of these is made: a write that waits until one that was made in vain is gone again finds the same,
    /// and waits for ever.
    pub(in crate::engine) fn has_metadata_room(&mut self, units: u64, any: bool) -> bool {
        let mut room = self.space.free_units(&self.pool, ChunkType::Metadata, any);
        let mut tried = Vec::new();
        while room < units {
            let whole = self.pool.next_chunk(ChunkType::Metadata);
            let degraded = |pool: &mut Pool| pool.next_degraded_chunk(ChunkType::Metadata).filter(|_| any);
            let Some(chunk) = whole.or_else(|| degraded(&mut self.pool)) else { break };
            let (id, length) = (chunk.id, chunk.length);
            self.pool.apply(Record::ChunkAdd(Box::new(chunk))).expect("a planned chunk fits");
            room += (length / UNIT).saturating_sub(self.sum_units_wanted(id));
            tried.push(id);
        }
        tried.into_iter().rev().for_each(|id| self.untry_chunk(id));
        room >= units
    }

    fn reserve_sum_unit(&mut self, chunk: ChunkId, unit: u64) -> bool {
        let is_new = self.pool.volume(SUMS_VOLUME).is_some_and(|v| !v.map.has_leaf(unit));
        if is_new && !self.commit.is_opening() && !self.has_page_room() {
            return false;
        }
        let Some((at, place)) = self.find_sum_place(chunk, unit) else { return false };
        self.take_page_room(u64::from(is_new));
        let Some(volume) = self.pool.volume_mut(SUMS_VOLUME) else { return false };
        volume.map.set(unit, Entry::new(at, place, 0));
        volume.mapped_units[ChunkType::Metadata as usize] += 1;
        true
    }

    /// Sums of metadata stand in the same chunk, so that no two chunks keep each other; those of data next to each other.
    fn find_sum_place(&mut self, chunk: ChunkId, unit: u64) -> Option<(ChunkId, u32)> {
        if let Some(c) = self.pool.chunk_mut(chunk).filter(|c| c.kind == ChunkType::Metadata)
            && let Some(place) = c.take_any()
        {
            return Some((chunk, place));
        }
        let before = self.entry(SUMS_VOLUME, unit.wrapping_sub(1));
        if before.is_mapped()
            && let Some(c) = self.pool.chunk_mut(before.chunk())
            && !c.shunned
            && c.take(before.unit() + 1)
        {
            return Some((before.chunk(), before.unit() + 1));
        }
        let is_data = self.pool.chunk(chunk).is_some_and(|c| c.kind == ChunkType::Data);
        // What is set aside where nothing is to stay goes elsewhere without a copy: better than a chunk more.
        self.take_from_open(ChunkType::Metadata, true, |c| c.take_any())
            .or_else(|| self.take_from_shunned(ChunkType::Metadata))
            .or_else(|| {
                if !is_data {
                    return None;
                }
                self.open_chunk(ChunkType::Metadata)?;
                self.take_from_open(ChunkType::Metadata, true, |c| c.take_any())
            })
            .or_else(|| self.take_from_open(ChunkType::Metadata, false, |c| c.take_any()))
            .or_else(|| {
                if !is_data {
                    return None;
                }
                self.open_degraded_chunk(ChunkType::Metadata)?;
                self.take_from_open(ChunkType::Metadata, false, |c| c.take_any())
            })
    }

    /// A page that has no home yet gets one, if that is possible.
    pub(super) fn reserve_page(&mut self, chunk: ChunkId, index: u32) -> bool {
        !self.commit.is_closed() && self.reserve_sum_unit(chunk, home(chunk, index) / UNIT)
    }

    /// What was set aside for a chunk is not any more; what is in the chunk itself goes with it. Nobody has seen the place since, so it
    /// is free at once: as one that waits to come free it would look like room to come to the very writer that found none.
    fn take_back_sum_unit(&mut self, chunk: ChunkId, unit: u64) {
        let entry = self.entry(SUMS_VOLUME, unit);
        if entry.is_mapped() && entry.written() == 0 {
            self.clear_sum_unit(unit, entry);
            match self.pool.chunk_mut(chunk).filter(|_| entry.chunk() == chunk) {
                Some(chunk) => chunk.give_back(entry.unit()),
                None => self.give_back(entry.chunk(), entry.unit()),
            }
        }
    }

    fn clear_sum_unit(&mut self, unit: u64, entry: Entry) {
        if let Some(volume) = self.pool.volume_mut(SUMS_VOLUME) {
            volume.map.set(unit, Entry::NONE);
        }
        self.uncount_unit(SUMS_VOLUME, entry);
    }

    fn give_up_sum_unit(&mut self, unit: u64) {
        let entry = self.entry(SUMS_VOLUME, unit);
        if !entry.is_mapped() {
            return;
        }
        self.clear_sum_unit(unit, entry);
        if entry.written() != 0 {
            self.journal.append(&Record::Map { volume: SUMS_VOLUME, unit, count: 1, entry: Entry::NONE });
        }
        self.retire_units([entry]);
    }

    /// Units of a chunk that hold its own sums: all that is left in one that is otherwise empty.
    pub(in crate::engine) fn own_sum_units(&self, chunk: ChunkId) -> u64 {
        if !self.sums.is_on() {
            return 0;
        }
        self.sum_units(chunk).filter(|&unit| self.entry(SUMS_VOLUME, unit).chunk() == chunk).count() as u64
    }

    /// Nobody but its own sums is in a chunk.
    pub(in crate::engine) fn is_spare(&self, chunk: ChunkId) -> bool {
        let Some(c) = self.pool.chunk(chunk).filter(|_| !self.rows_in(chunk)) else { return false };
        let own_max = self.sum_units(chunk).count() as u64 * UNIT;
        let is_own = c.kind == ChunkType::Metadata && self.sums.is_on() && c.used() <= own_max;
        c.is_empty() || is_own && c.used() == self.own_sum_units(chunk) * UNIT
    }

    /// A chunk is about to go: pages of it are forgotten, and its own units are nobody's. False while one is on its way.
    pub(in crate::engine) fn let_sums_go(&mut self, chunk: ChunkId) -> bool {
        if !self.sums.is_on() {
            return true;
        }
        let slots: Vec<u32> = (0..self.sums.pages.ids_end())
            .filter(|&s| self.sums.pages.get(s).is_some_and(|p| p.chunk == chunk))
            .collect();
        // What is its own comes free at once, and not as late as what volumes give up: nobody may be looking at it.
        let is_looked_at = self.scrub.reads(chunk) || self.mends_in(chunk);
        if is_looked_at || slots.iter().any(|&slot| !self.sums.pages[slot].is_at_rest()) {
            return false;
        }
        slots.into_iter().for_each(|slot| self.forget_page(slot));
        self.sums.places.take(chunk.index());
        for unit in self.sum_units(chunk) {
            let entry = self.entry(SUMS_VOLUME, unit);
            if entry.is_mapped() && entry.chunk() == chunk {
                // Its place goes with the chunk.
                self.clear_sum_unit(unit, entry);
                self.journal.append(&Record::Map { volume: SUMS_VOLUME, unit, count: 1, entry: Entry::NONE });
                self.pool.chunk_mut(chunk).expect("it is there").give_back(entry.unit());
            } else {
                self.give_up_sum_unit(unit);
            }
        }
        true
    }
}
