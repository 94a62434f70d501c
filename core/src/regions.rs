//! Regions: pieces of 4 MiB of a volume, in sets. What is remembered of a volume more coarsely than by unit is remembered
//! by region: where a write may be under way, and which writes a member missed.
//!
//! ```text
//!   volume   | region 0 | region 1 | ...              a region: 64 units of the volume's map
//!   word     64 regions, 256 MiB: one bit each, and one record of the log
//! ```

use alloc::collections::{BTreeMap, BTreeSet};

use crate::units::{ChunkId, MIB, UNIT, VolumeId};

/// Bytes of a region.
pub const REGION: u64 = 4 * MIB;
/// Units in a region.
pub const UNITS: u64 = REGION / UNIT;
/// Words of a volume are below: what the largest volume has.
pub const WORDS_MAX: u32 = (crate::volume::VOLUME_MAX / REGION / 64) as u32;

const _: () = assert!(UNITS == 64, "the units of a region are bits of a word");

/// A region of a volume, by number.
pub type Region = (VolumeId, u64);

/// What members missed of rows of chunks with parity is kept as of a volume of its own, whose units are rows: a member has one
/// strip in each. No volume has this id.
pub const ROWS: VolumeId = VolumeId(crate::meta::record::VOLUME_IDS_MAX - 1);
/// Ids of chunks with parity are below: more rows would be behind the end of the largest volume.
pub(crate) const ROWS_CHUNKS_MAX: u32 = 1 << 20;

/// The unit of [`ROWS`] that a row is.
pub fn row_unit(chunk: ChunkId, row: u32) -> u64 {
    u64::from(chunk.0) << 18 | u64::from(row)
}

/// Backwards.
pub(crate) fn row_of_unit(unit: u64) -> (ChunkId, u32) {
    (ChunkId((unit >> 18) as u32), (unit & ((1 << 18) - 1)) as u32)
}

/// The region of [`ROWS`] that a row is in.
pub fn of_row(chunk: ChunkId, row: u32) -> Region {
    of_unit(ROWS, row_unit(chunk, row))
}

/// The regions of all rows of a chunk.
pub(crate) fn of_rows(chunk: ChunkId) -> core::ops::Range<u64> {
    row_unit(chunk, 0) / UNITS..row_unit(ChunkId(chunk.0 + 1), 0) / UNITS
}

/// The regions that `[start, end)` of a volume touches.
pub(crate) fn touched(volume: VolumeId, start: u64, end: u64) -> impl Iterator<Item = Region> {
    (start / REGION..end.div_ceil(REGION)).map(move |region| (volume, region))
}

/// The units of one region that are in `[start, end)` of its volume: one bit each.
pub(crate) fn units_in((_, region): Region, start: u64, end: u64) -> u64 {
    let first = (start / UNIT).max(region * UNITS) - region * UNITS;
    let past = end.div_ceil(UNIT).min((region + 1) * UNITS).saturating_sub(region * UNITS);
    match past.checked_sub(first) {
        None | Some(0) => 0,
        Some(n) => u64::MAX >> (UNITS - n) << first,
    }
}

/// The region that a unit is in.
pub fn of_unit(volume: VolumeId, unit: u64) -> Region {
    (volume, unit / UNITS)
}

/// A set of regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// By volume and word; never a word of zeros.
    words: BTreeMap<(VolumeId, u32), u64>,
    len: usize,
}

impl Regions {
    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this one is there.
    pub fn contains(&self, (volume, region): Region) -> bool {
        self.word((volume, (region / 64) as u32)) >> (region % 64) & 1 == 1
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = Region> {
        let bits = |((volume, word), bits): ((VolumeId, u32), u64)| {
            bits_of(bits).map(move |bit| (volume, u64::from(word) * 64 + bit))
        };
        self.words().flat_map(bits)
    }

    /// Words with a bit set, in order: what records hold.
    pub(crate) fn words(&self) -> impl ExactSizeIterator<Item = ((VolumeId, u32), u64)> {
        self.words.iter().map(|(&at, &bits)| (at, bits))
    }

    /// The word of a region.
    pub(crate) fn word(&self, at: (VolumeId, u32)) -> u64 {
        self.words.get(&at).copied().unwrap_or(0)
    }

    /// This word is so from now on.
    pub(crate) fn set_word(&mut self, at: (VolumeId, u32), bits: u64) {
        let old = if bits == 0 { self.words.remove(&at) } else { self.words.insert(at, bits) };
        self.len = self.len + bits.count_ones() as usize - old.unwrap_or(0).count_ones() as usize;
    }

    /// Adds one; false when it was there.
    pub(crate) fn insert(&mut self, region: Region) -> bool {
        let word = self.words.entry(word_of(region)).or_default();
        let bit = 1 << (region.1 % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.len += usize::from(is_new);
        is_new
    }

    /// Adds them.
    pub(crate) fn extend(&mut self, regions: impl IntoIterator<Item = Region>) {
        for region in regions {
            self.insert(region);
        }
    }

    /// Takes one out; false when it was not there.
    pub(crate) fn remove(&mut self, region: Region) -> bool {
        let was_there = self.contains(region);
        let at = word_of(region);
        self.set_word(at, self.word(at) & !(1 << (region.1 % 64)));
        was_there
    }

    /// Keeps those that this says.
    pub(crate) fn retain(&mut self, keeps: impl Fn(Region) -> bool) {
        let gone: alloc::vec::Vec<Region> = self.iter().filter(|&region| !keeps(region)).collect();
        gone.into_iter().for_each(|region| {
            self.remove(region);
        });
    }

    /// Takes out the words that lie within these regions of a volume.
    pub(crate) fn remove_within(&mut self, volume: VolumeId, regions: core::ops::Range<u64>) {
        let words = (volume, (regions.start / 64) as u32)..(volume, (regions.end / 64) as u32);
        let gone: alloc::vec::Vec<_> = self.words.range(words).map(|(&at, _)| at).collect();
        gone.into_iter().for_each(|at| self.set_word(at, 0));
    }

    /// Forgets those of a volume.
    pub(crate) fn remove_volume(&mut self, volume: VolumeId) {
        let gone: alloc::vec::Vec<_> = self.words.range((volume, 0)..=(volume, u32::MAX)).map(|(&at, _)| at).collect();
        gone.into_iter().for_each(|at| self.set_word(at, 0));
    }
}

/// What a member missed: regions, and of a region perhaps not all units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    regions: Regions,
    /// Units of such regions that the member did not miss, one bit each: nothing else has what it has of them. Never a word of
    /// zeros.
    kept: BTreeMap<Region, u64>,
}

impl Missed {
    /// How many regions.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Nothing.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Whether something of this region was missed.
    pub fn contains(&self, region: Region) -> bool {
        self.regions.contains(region)
    }

    /// Units of a region that were missed, one bit each.
    pub fn units(&self, region: Region) -> u64 {
        if self.contains(region) { !self.kept.get(&region).copied().unwrap_or(0) } else { 0 }
    }

    /// All regions, in order.
    pub fn iter(&self) -> impl Iterator<Item = Region> {
        self.regions.iter()
    }

    /// Regions with units that were not missed, in order: what records hold.
    pub(crate) fn kept(&self) -> impl ExactSizeIterator<Item = (Region, u64)> {
        self.kept.iter().map(|(&region, &bits)| (region, bits))
    }

    /// Words with a bit set, in order: what records hold.
    pub(crate) fn words(&self) -> impl ExactSizeIterator<Item = ((VolumeId, u32), u64)> {
        self.regions.words()
    }

    /// The word of a region.
    pub(crate) fn word(&self, at: (VolumeId, u32)) -> u64 {
        self.regions.word(at)
    }

    /// Regions of a word were missed too. Of those that were before it says nothing.
    pub(crate) fn add_word(&mut self, at: (VolumeId, u32), bits: u64) {
        self.regions.set_word(at, self.regions.word(at) | bits);
    }

    /// A region was missed but for these units; of one that was before, no more is kept than was.
    pub(crate) fn add_but(&mut self, region: Region, kept: u64) {
        let kept = kept & !self.units(region);
        self.regions.insert(region);
        match kept {
            0 => drop(self.kept.remove(&region)),
            _ => drop(self.kept.insert(region, kept)),
        }
    }

    /// Takes units of a region out: those of them that were missed.
    pub(crate) fn remove(&mut self, region: Region, gone: u64) -> u64 {
        let missed = self.units(region);
        match missed & !gone {
            0 => {
                self.regions.remove(region);
                self.kept.remove(&region);
            }
            left if left != missed => drop(self.kept.insert(region, !left)),
            _ => {}
        }
        missed & gone
    }

    /// Takes out the words that lie within these regions of a volume.
    pub(crate) fn remove_within(&mut self, volume: VolumeId, regions: core::ops::Range<u64>) {
        self.kept.retain(|(v, region), _| *v != volume || !regions.contains(region));
        self.regions.remove_within(volume, regions);
    }

    /// Forgets those of a volume.
    pub(crate) fn remove_volume(&mut self, volume: VolumeId) {
        self.kept.retain(|(v, _), _| *v != volume);
        self.regions.remove_volume(volume);
    }
}

/// A set of units that work is left for, in order of their volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Units {
    /// By region; never a word of zeros.
    words: BTreeMap<Region, u64>,
}

impl Units {
    /// None.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many regions have one.
    pub(crate) fn regions(&self) -> usize {
        self.words.len()
    }

    /// Whether a region has one.
    pub(crate) fn touches(&self, region: Region) -> bool {
        self.words.contains_key(&region)
    }

    /// Whether this one is there.
    pub(crate) fn contains(&self, volume: VolumeId, unit: u64) -> bool {
        self.words.get(&of_unit(volume, unit)).is_some_and(|bits| bits >> (unit % UNITS) & 1 == 1)
    }

    /// Adds one.
    pub(crate) fn insert(&mut self, volume: VolumeId, unit: u64) {
        *self.words.entry(of_unit(volume, unit)).or_default() |= 1 << (unit % UNITS);
    }

    /// Adds units of a region, one bit each.
    pub(crate) fn insert_bits(&mut self, region: Region, bits: u64) {
        if bits != 0 {
            *self.words.entry(region).or_default() |= bits;
        }
    }

    /// Adds all units of the regions that have one.
    pub(crate) fn fill(&mut self) {
        self.words.values_mut().for_each(|bits| *bits = u64::MAX);
    }

    /// Those of a region, one bit each.
    pub(crate) fn bits(&self, region: Region) -> u64 {
        self.words.get(&region).copied().unwrap_or(0)
    }

    /// Takes one out; true when it was the last of its region.
    pub(crate) fn remove(&mut self, volume: VolumeId, unit: u64) -> bool {
        self.remove_bits(of_unit(volume, unit), 1 << (unit % UNITS))
    }

    /// Takes some of a region out; true when the last ones were among them.
    pub(crate) fn remove_bits(&mut self, region: Region, gone: u64) -> bool {
        let Some(bits) = self.words.get_mut(&region) else { return false };
        *bits &= !gone;
        let is_last = *bits == 0;
        if is_last {
            self.words.remove(&region);
        }
        is_last
    }

    /// Takes a region out.
    pub(crate) fn remove_region(&mut self, region: Region) {
        self.words.remove(&region);
    }

    /// Forgets those of a volume.
    pub(crate) fn remove_volume(&mut self, volume: VolumeId) {
        self.words.retain(|(v, _), _| *v != volume);
    }

    /// All.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (VolumeId, u64)> {
        let of = |(&(volume, region), &bits)| bits_of(bits).map(move |bit| (volume, region * UNITS + bit));
        self.words.iter().flat_map(of)
    }

    /// The first that is none of these.
    pub(crate) fn first_besides(&self, active: &BTreeSet<(VolumeId, u64)>) -> Option<(VolumeId, u64)> {
        self.iter().find(|unit| !active.contains(unit))
    }
}

/// The bits of a word that are set, in order.
pub(crate) fn bits_of(mut bits: u64) -> impl Iterator<Item = u64> {
    core::iter::from_fn(move || {
        let bit = u64::from(bits.trailing_zeros());
        let is_there = bits != 0;
        bits &= bits.wrapping_sub(1);
        is_there.then_some(bit)
    })
}

/// The word that a region is in.
pub(crate) fn word_of((volume, region): Region) -> (VolumeId, u32) {
    (volume, (region / 64) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        /// The twin: a plain set.
        #[test]
        fn units_by_region_are_a_set(steps in prop::collection::vec((0u32..9, 1u32..3, 0u64..200), 1..200)) {
            let (mut set, mut twin) = (Units::default(), BTreeSet::new());
            let mut active = BTreeSet::new();
            for (step, volume, unit) in steps {
                let volume = VolumeId(volume);
                let region = of_unit(volume, unit);
                let all = |region: Region| (0..UNITS).map(move |bit| (region.0, region.1 * UNITS + bit));
                let is_in = |&(v, unit): &(VolumeId, u64)| of_unit(v, unit) == region;
                match step {
                    0 => {
                        set.remove_volume(volume);
                        twin.retain(|(v, _)| *v != volume);
                    }
                    1 => {
                        let bits = unit.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        set.insert_bits(region, bits);
                        twin.extend(all(region).filter(|at| bits >> (at.1 % UNITS) & 1 == 1));
                    }
                    2 => {
                        set.remove_region(region);
                        twin.retain(|unit| !is_in(unit));
                    }
                    3 => {
                        set.fill();
                        let touched: BTreeSet<Region> = twin.iter().map(|&(v, unit)| of_unit(v, unit)).collect();
                        twin.extend(touched.into_iter().flat_map(all));
                    }
                    4 => {
                        let gone = unit.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        let goes = |at: &(VolumeId, u64)| is_in(at) && gone >> (at.1 % UNITS) & 1 == 1;
                        let was_there = twin.iter().any(is_in);
                        twin.retain(|at| !goes(at));
                        prop_assert_eq!(set.remove_bits(region, gone), was_there && !twin.iter().any(is_in));
                    }
                    5 | 6 => {
                        let was_there = twin.iter().any(is_in);
                        twin.remove(&(volume, unit));
                        prop_assert_eq!(set.remove(volume, unit), was_there && !twin.iter().any(is_in));
                        active.insert((volume, unit));
                    }
                    _ => {
                        set.insert(volume, unit);
                        twin.insert((volume, unit));
                    }
                }
                prop_assert_eq!(set.contains(volume, unit), twin.contains(&(volume, unit)));
                let bits = twin.iter().filter(|at| is_in(at)).fold(0, |bits, at| bits | 1 << (at.1 % UNITS));
                prop_assert_eq!(set.bits(region), bits);
                prop_assert_eq!(set.touches(region), twin.iter().any(is_in));
                prop_assert_eq!(set.is_empty(), twin.is_empty());
                let regions: BTreeSet<Region> = twin.iter().map(|&(v, unit)| of_unit(v, unit)).collect();
                prop_assert_eq!(set.regions(), regions.len());
                prop_assert_eq!(set.first_besides(&active), twin.difference(&active).next().copied());
            }
        }

        /// The twin: a plain set of units, and one of regions.
        #[test]
        fn what_was_missed_is_a_set_of_units(steps in prop::collection::vec((0u32..8, 1u32..3, 0u64..200, any::<u64>()), 1..100)) {
            let (mut missed, mut regions, mut units) = (Missed::default(), BTreeSet::new(), BTreeSet::new());
            for (step, volume, number, bits) in steps {
                let region = (VolumeId(volume), number);
                let bit = |bit: u64| (region, bit);
                match step {
                    0 => {
                        missed.remove_volume(region.0);
                        regions.retain(|(volume, _)| *volume != region.0);
                        units.retain(|((volume, _), _)| *volume != region.0);
                    }
                    1 => {
                        let gone = if number % 2 == 0 { u64::MAX } else { bits };
                        let goes = |b: &u64| gone >> b & 1 == 1 && units.remove(&bit(*b));
                        let was = (0..UNITS).filter(goes).fold(0, |bits, b| bits | 1 << b);
                        if !units.iter().any(|(r, _)| *r == region) {
                            regions.remove(&region);
                        }
                        prop_assert_eq!(missed.remove(region, gone), was);
                    }
                    2 => {
                        missed.remove_within(region.0, 64..128);
                        let goes = |(volume, number): Region| volume == region.0 && (64..128).contains(&number);
                        regions.retain(|&r| !goes(r));
                        units.retain(|&(r, _)| !goes(r));
                    }
                    3 | 4 => {
                        missed.add_word(word_of(region), 1 << (number % 64));
                        if regions.insert(region) {
                            units.extend((0..UNITS).map(bit));
                        }
                    }
                    _ => {
                        missed.add_but(region, bits);
                        regions.insert(region);
                        units.extend((0..UNITS).filter(|b| bits >> b & 1 == 0).map(bit));
                    }
                }
                let bits = (0..UNITS).filter(|&b| units.contains(&bit(b))).fold(0, |bits, b| bits | 1 << b);
                prop_assert_eq!((missed.contains(region), missed.units(region)), (regions.contains(&region), bits));
                prop_assert_eq!((missed.len(), missed.is_empty()), (regions.len(), regions.is_empty()));
            }
            // As records say it, and read again.
            let mut again = Missed::default();
            missed.kept().for_each(|(region, kept)| again.add_but(region, kept));
            missed.words().for_each(|(at, bits)| again.add_word(at, bits));
            prop_assert_eq!(&again, &missed);
            prop_assert_eq!(missed.iter().collect::<Vec<_>>(), regions.into_iter().collect::<Vec<_>>());
        }

        /// The twin: unit by unit.
        #[test]
        fn units_of_a_range_by_region(region in 0u64..3, start in 0..4 * REGION, len in 0..2 * REGION) {
            let is_in = |bit: &u64| {
                let unit = region * UNITS + bit;
                len > 0 && unit * UNIT < start + len && (unit + 1) * UNIT > start
            };
            let bits = (0..UNITS).filter(is_in).fold(0, |bits, bit| bits | 1 << bit);
            if len > 0 {
                prop_assert_eq!(units_in((VolumeId(1), region), start, start + len), bits);
            }
        }

        /// The twin: a plain set.
        #[test]
        fn a_set_of_bits_is_a_set(steps in prop::collection::vec((0u32..8, 1u32..3, 0u64..200), 1..200)) {
            let (mut set, mut twin) = (Regions::default(), BTreeSet::new());
            for (step, volume, region) in steps {
                let region = (VolumeId(volume), region);
                match step {
                    0 => {
                        set.remove_volume(region.0);
                        twin.retain(|(volume, _)| *volume != region.0);
                    }
                    1..=3 => prop_assert_eq!(set.remove(region), twin.remove(&region)),
                    _ => prop_assert_eq!(set.insert(region), twin.insert(region)),
                }
                prop_assert_eq!(set.contains(region), twin.contains(&region));
                prop_assert_eq!((set.len(), set.is_empty()), (twin.len(), twin.is_empty()));
            }
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), twin.into_iter().collect::<Vec<_>>());
        }
    }
}
