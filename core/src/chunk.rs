//! A chunk: the allocation unit of pool space, with one profile and its columns on devices.
//!
//! Volume content is handed out of a chunk in units of 64 KiB. Which units are taken is a bitmap in memory only: the
//! volumes' maps are the record, and the bitmap is made from them when the pool is opened. Units are looked for in
//! *regions* of 256 (16 MiB, one leaf of a volume's map), so that what is near in a volume stays near on the devices
//! however it was written.

use alloc::vec;
use alloc::vec::Vec;

use crate::ChunkType;
use crate::profile::{Profile, data_stripes, slice};
use crate::units::{ChunkId, DeviceId, UNIT};

/// Units in one region: as many as a leaf of a volume's map has entries.
pub const REGION: u32 = 256;

/// Largest chunk a map entry can address: 2^18 units, 16 GiB.
pub const CHUNK_MAX: u64 = UNIT << 18;

/// Most columns of one chunk: its record must fit one block of the log.
pub const COLUMNS_MAX: usize = 506;

const WORDS_PER_REGION: usize = (REGION / 64) as usize;

/// The part of a chunk on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The device.
    pub device: DeviceId,
    /// First byte on it.
    pub offset: u64,
}

/// A column on its way to another place: writes go to both, reads do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Which of the chunk's columns.
    pub column: usize,
    /// Where it will be.
    pub to: Column,
}

/// One chunk.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Id within the pool, never 0, never reused.
    pub id: ChunkId,
    /// What it holds.
    pub kind: ChunkType,
    /// How it is spread.
    pub profile: Profile,
    /// Bytes of each column.
    pub stripe: u64,
    /// Bytes of volume content.
    pub length: u64,
    /// Columns in stripe order.
    pub columns: Vec<Column>,
    /// It went to a tier that its type does not prefer.
    pub spilled: bool,
    /// No unit is handed out any more: the chunk is about to go.
    pub closing: bool,
    /// It is being emptied: units are handed out only where there are no others.
    pub shunned: bool,
    /// One of its columns is on its way.
    pub shift: Option<Shift>,
    /// One bit a unit, set = taken.
    taken: Vec<u64>,
    free: u32,
    /// Regions below hold no free unit.
    first_free_region: u32,
    /// Data strips of a row, of a profile with parity; 0 of others.
    width: u32,
    /// Rows whose parity counts: one bit each.
    live: Vec<u64>,
    /// Units in rows that hold what is kept without checksums: one bit each; no word before the first of them.
    unsummed: Vec<u64>,
}

impl Chunk {
    /// A chunk without any unit taken.
    pub fn new(
        id: ChunkId,
        kind: ChunkType,
        profile: Profile,
        stripe: u64,
        length: u64,
        columns: Vec<Column>,
        spilled: bool,
    ) -> Chunk {
        assert!(id.0 != 0 && length <= CHUNK_MAX && columns.len() <= COLUMNS_MAX);
        let units = (length / UNIT) as u32;
        let width = if profile.facts().parity > 0 { data_stripes(profile, columns.len()) as u32 } else { 0 };
        let rows = units.checked_div(width).unwrap_or(0);
        let words = (units as usize).div_ceil(64);
        let mut taken = vec![0; words];
        if !units.is_multiple_of(64) {
            // Units past the end count as taken, so that no search needs to know the end.
            taken[words - 1] = u64::MAX << (units % 64);
        }
        Chunk {
            id,
            kind,
            profile,
            stripe,
            length,
            columns,
            spilled,
            closing: false,
            shunned: false,
            shift: None,
            taken,
            free: units,
            first_free_region: 0,
            width,
            live: vec![0; rows.div_ceil(64) as usize],
            unsummed: Vec::new(),
        }
    }

    /// A member has a column of it.
    pub fn is_on(&self, device: DeviceId) -> bool {
        self.columns.iter().any(|column| column.device == device)
    }

    /// Units that can be handed out.
    pub fn free_units(&self) -> u32 {
        if self.closing { 0 } else { self.free }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.length / UNIT * UNIT - u64::from(self.free) * UNIT
    }

    /// Nothing is in use.
    pub fn is_empty(&self) -> bool {
        u64::from(self.free) == self.length / UNIT
    }

    /// A unit is in use, or is no unit of this chunk.
    pub(crate) fn is_taken(&self, unit: u32) -> bool {
        self.taken.get(unit as usize / 64).is_none_or(|word| word >> (unit % 64) & 1 == 1)
    }

    /// Takes this very unit if it is free.
    pub fn take(&mut self, unit: u32) -> bool {
        if self.closing || self.is_taken(unit) {
            return false;
        }
        self.taken[unit as usize / 64] |= 1 << (unit % 64);
        self.free -= 1;
        true
    }

    /// First unit of a region that is wholly free.
    pub fn empty_region(&mut self) -> Option<u32> {
        if self.free_units() < REGION {
            return None;
        }
        self.skip_full_regions();
        let first = self.first_free_region as usize;
        let regions = self.taken.chunks_exact(WORDS_PER_REGION).enumerate().skip(first);
        regions.filter(|(_, words)| words.iter().all(|&w| w == 0)).map(|(i, _)| i as u32 * REGION).next()
    }

    /// Takes the first free unit there is.
    pub fn take_any(&mut self) -> Option<u32> {
        if self.free_units() == 0 {
            return None;
        }
        self.skip_full_regions();
        let first = self.first_free_region as usize * WORDS_PER_REGION;
        let word = (first..self.taken.len()).find(|&i| self.taken[i] != u64::MAX)?;
        let unit = word as u32 * 64 + self.taken[word].trailing_ones();
        self.take(unit).then_some(unit)
    }

    fn skip_full_regions(&mut self) {
        let full = |words: &[u64]| words.iter().all(|&w| w == u64::MAX);
        let regions = self.taken.chunks(WORDS_PER_REGION).skip(self.first_free_region as usize);
        self.first_free_region += regions.take_while(|words| full(words)).count() as u32;
    }

    /// Where a range of the chunk begins on each column that has a part in it, in stripe order: all copies of mirrors,
    /// and of striped profiles every column, from where it goes on strip by strip.
    pub fn places(&self, offset: u64, len: u64) -> Vec<Column> {
        let mut places: Vec<Column> = Vec::new();
        let (mut at, end) = (offset, offset.saturating_add(len).min(self.length));
        while at < end && places.len() < self.columns.len() {
            let piece = slice(self.profile, self.columns.len(), at, end - at);
            let copies = self.columns.iter().skip(piece.first).take(piece.copies);
            let before = places.len();
            places.extend(copies.map(|c| Column { device: c.device, offset: c.offset + piece.offset }));
            if piece.len == 0 || places.len() == before {
                break;
            }
            at += piece.len;
        }
        places
    }

    /// Rows of strips, of a profile with parity; 0 of others.
    pub fn rows(&self) -> u32 {
        ((self.length / UNIT) as u32).checked_div(self.width).unwrap_or(0)
    }

    /// Units of a row: as many as there are data members; 0 without rows.
    pub fn row_units(&self) -> u32 {
        self.width
    }

    /// Row and data member of a unit, of a profile with parity.
    pub fn row_of(&self, unit: u32) -> Option<(u32, usize)> {
        (self.width > 0).then(|| (unit / self.width, (unit % self.width) as usize))
    }

    /// Units of a row that are in use.
    pub fn units_in_row(&self, row: u32) -> u32 {
        (row * self.width..(row + 1) * self.width).filter(|&unit| self.is_taken(unit)).count() as u32
    }

    /// Of rows: what is left without the columns that are lost is enough to make the others.
    pub fn rows_survive(&self, is_lost: impl Fn(&Column) -> bool) -> bool {
        self.rows_survive_without(self.columns.iter().filter(|column| is_lost(column)).count())
    }

    /// The same without so many of them.
    pub fn rows_survive_without(&self, columns: usize) -> bool {
        columns <= self.profile.facts().parity
    }

    /// Parity of a row counts: every block of it stands for what is on its devices, written by a volume or not. Of other
    /// rows nothing is known.
    pub fn is_live(&self, row: u32) -> bool {
        self.live.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// How many are.
    pub fn live_rows(&self) -> u64 {
        self.live.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// All of a row is written, with parity.
    pub(crate) fn make_live(&mut self, row: u32) {
        if let Some(word) = self.live.get_mut(row as usize / 64) {
            *word |= 1 << (row % 64);
        }
    }

    /// What is there belongs to a volume without checksums. Only of rows is that kept: a strip is made with others, whosever
    /// they are.
    pub(crate) fn set_unsummed(&mut self, unit: u32) {
        if self.width == 0 {
            return;
        }
        if self.unsummed.is_empty() {
            self.unsummed = vec![0; self.taken.len()];
        }
        self.unsummed[unit as usize / 64] |= 1 << (unit % 64);
    }

    /// Whatever checksums say of this place is of what was there before.
    pub(crate) fn is_unsummed(&self, unit: u32) -> bool {
        self.unsummed.get(unit as usize / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// Gives a unit back. A row without any unit in use is nothing any more.
    pub fn give_back(&mut self, unit: u32) {
        assert!(self.is_taken(unit) && u64::from(unit) < self.length / UNIT, "chunk {}: unit {unit} is free", self.id);
        self.taken[unit as usize / 64] &= !(1 << (unit % 64));
        if let Some(word) = self.unsummed.get_mut(unit as usize / 64) {
            *word &= !(1 << (unit % 64));
        }
        self.free += 1;
        self.first_free_region = self.first_free_region.min(unit / REGION);
        if let Some((row, _)) = self.row_of(unit)
            && !(row * self.width..(row + 1) * self.width).any(|unit| self.is_taken(unit))
            && let Some(word) = self.live.get_mut(row as usize / 64)
        {
            *word &= !(1 << (row % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn chunk(units: u64) -> Chunk {
        Chunk::new(ChunkId(1), ChunkType::Data, Profile::Single, units * UNIT, units * UNIT, Vec::new(), false)
    }

    #[test]
    fn every_unit_is_handed_out_once_whatever_the_length() {
        for units in [1, 63, 64, 65, 255, 256, 257, 700] {
            let mut c = chunk(units);
            let mut seen = BTreeSet::new();
            while let Some(unit) = c.take_any() {
                assert!(u64::from(unit) < units && seen.insert(unit));
            }
            assert_eq!(seen.len() as u64, units);
            assert_eq!((c.free_units(), c.used()), (0, units * UNIT));
            c.give_back(0);
            assert_eq!(c.take_any(), Some(0));
        }
    }

    #[test]
    fn a_region_is_offered_only_while_it_is_wholly_free() {
        let mut c = chunk(600);
        assert_eq!(c.empty_region(), Some(0));
        assert!(c.take(3) && !c.take(3));
        assert_eq!(c.empty_region(), Some(256));
        assert!(c.take(256));
        assert_eq!(c.empty_region(), None, "the last 88 units are no region");
        c.give_back(3);
        assert_eq!(c.empty_region(), Some(0));
        assert!(!c.take(600));
    }

    #[test]
    fn places_are_where_reads_and_writes_go() {
        use crate::units::STRIP;
        let column = |device: u32| Column { device: DeviceId(device), offset: u64::from(device) << 30 };
        let places = |profile, columns: u32, offset, len| -> Vec<(u32, u64)> {
            let (stripe, length) = (256 * UNIT, 256 * UNIT);
            let columns = (1..=columns).map(column).collect();
            let c = Chunk::new(ChunkId(1), ChunkType::Data, profile, stripe, length, columns, false);
            c.places(offset, len).into_iter().map(|p| (p.device.0, p.offset - (u64::from(p.device.0) << 30))).collect()
        };
        for (profile, columns, offset, len, there) in [
            (Profile::Single, 1, 4096, 8192, vec![(1, 4096)]),
            (Profile::Raid1, 2, 5 * STRIP, 9 * STRIP, vec![(1, 5 * STRIP), (2, 5 * STRIP)]),
            // Strip 5 is the third of column 2, strip 6 the fourth of column 1.
            (Profile::Raid0, 2, 5 * STRIP + 4096, STRIP, vec![(2, 2 * STRIP + 4096), (1, 3 * STRIP)]),
            (Profile::Raid0, 2, 5 * STRIP, 4096, vec![(2, 2 * STRIP)]),
            (Profile::Raid10, 4, 5 * STRIP, 4096, vec![(3, 2 * STRIP), (4, 2 * STRIP)]),
            (Profile::Raid5, 3, 0, 4096, vec![(1, 0)]),
            (Profile::Raid6, 4, 2 * STRIP, 2 * STRIP, vec![(1, STRIP), (2, STRIP)]),
            (Profile::Single, 1, 1 << 40, 4096, vec![]),
        ] {
            assert_eq!(places(profile, columns, offset, len), there, "{profile:?} {offset}");
        }
    }

    #[test]
    fn a_closing_chunk_hands_out_nothing() {
        let mut c = chunk(300);
        c.closing = true;
        assert_eq!((c.take(0), c.take_any(), c.empty_region()), (false, None, None));
    }
}
