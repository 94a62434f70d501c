//! Where the stripe journal is: the first units of the volume of the pool's own, in chunks of metadata. It is there before
//! the first chunk with rows.

use alloc::vec::Vec;

use super::Engine;
use crate::ChunkType;
use crate::control::VolumeClass;
use crate::engine::sums::SUMS_VOLUME;
use crate::meta::record::Record;
use crate::meta::ring::UNITS_MAX;
use crate::units::{BLOCKS_PER_UNIT, UNIT};
use crate::volume::{ALL_BLOCKS, Entry, INTERNAL_NAME, LEAF, VOLUME_MAX};

/// Units of it: the 4,096th part of the members, 1 MiB to 16 MiB.
const UNITS: core::ops::RangeInclusive<u64> = 16..=UNITS_MAX;
/// Units below are those of no chunk's sums, since no chunk has the number 0.
pub(in crate::engine) const UNITS_END: u64 = 1024;
const _: () = assert!(*UNITS.end() <= UNITS_END && *UNITS.end() <= LEAF as u64);

/// Whether a unit of the volume of the pool's own is one of the journal, and no page of checksums.
pub(in crate::engine) fn is_journal(unit: u64) -> bool {
    unit < UNITS_END
}

impl Engine {
    /// The opening: how large it is.
    pub(in crate::engine) fn adopt_ring(&mut self) {
        let is_there = |unit: &u64| self.entry(SUMS_VOLUME, *unit).is_mapped();
        let units = (0..*UNITS.end()).take_while(is_there).count() as u64;
        self.rows.ring.blocks = units * BLOCKS_PER_UNIT;
        // A group that a power cut tore may be on one copy and not on the other.
        (0..units).for_each(|unit| self.doubt_unit(SUMS_VOLUME, unit));
    }

    /// Makes it, if there is none; false when there is no room.
    pub(in crate::engine) fn make_ring(&mut self) -> bool {
        if self.rows.ring.blocks > 0 {
            return true;
        }
        if self.pool.volume(SUMS_VOLUME).is_none() {
            let (name, size, class) = (INTERNAL_NAME.into(), VOLUME_MAX, VolumeClass::Metadata);
            let record = Record::Volume { id: SUMS_VOLUME, name, size, class, checksum: false };
            self.journal.append(&record);
            self.pool.apply(record).expect("its number is nobody else's");
        }
        let bytes: u64 = self.pool.devices().map(|d| d.size).sum();
        let units = (bytes / 4096 / UNIT).clamp(*UNITS.start(), *UNITS.end());
        let is_new = self.pool.volume(SUMS_VOLUME).is_some_and(|v| !v.map.has_leaf(0));
        if is_new && !self.has_page_room() || !self.has_metadata_room(units, false) {
            return false;
        }
        let mut places = Vec::new();
        for _ in 0..units {
            let Some(place) = self.find_ring_place() else {
                places.into_iter().for_each(|(chunk, unit)| self.give_back(chunk, unit));
                return false;
            };
            places.push(place);
        }
        self.take_page_room(u64::from(is_new));
        for (unit, (chunk, place)) in (0..).zip(places) {
            let entry = Entry::new(chunk, place, ALL_BLOCKS);
            let record = Record::Map { volume: SUMS_VOLUME, unit, count: 1, entry };
            let lsn = self.journal.append(&record);
            self.pool.apply(record).expect("its place was free");
            if let Some(volume) = self.pool.volume_mut(SUMS_VOLUME) {
                volume.mapped_units[ChunkType::Metadata as usize] += 1;
            }
            self.rows.ring.moved = Some(lsn);
        }
        self.rows.ring.blocks = units * BLOCKS_PER_UNIT;
        true
    }

    fn find_ring_place(&mut self) -> Option<(crate::units::ChunkId, u32)> {
        let kind = ChunkType::Metadata;
        self.take_from_open(kind, true, |c| c.take_any())
            .or_else(|| {
                self.open_chunk(kind)?;
                self.take_from_open(kind, true, |c| c.take_any())
            })
            .or_else(|| self.take_from_open(kind, false, |c| c.take_any()))
    }

    /// A unit of it is somewhere else as soon as this record is stable.
    pub(in crate::engine) fn ring_moved(&mut self, lsn: crate::meta::journal::Lsn) {
        self.rows.ring.moved = Some(lsn);
    }
}
