//! Regions: pieces of 4 MiB of a volume, in sets. What is remembered of a volume more coarsely than by unit is remembered
//! by region: where a write may be under way, and which writes a member missed.
//!
//! ```text
//!   volume   | region 0 | region 1 | ...              a region: 64 units of the volume's map
//!   word     64 regions, 256 MiB: one bit each, and one record of the log
//! ```

use alloc::collections::BTreeMap;

use crate::units::{MIB, UNIT, VolumeId};

/// Bytes of a region.
pub const REGION: u64 = 4 * MIB;
/// Units in a region.
pub const UNITS: u64 = REGION / UNIT;
/// Words of a volume are below: what the largest volume has.
pub const WORDS_MAX: u32 = (crate::volume::VOLUME_MAX / REGION / 64) as u32;

const _: () = assert!(UNITS == 64, "the units of a region are bits of a word");

/// A region of a volume, by number.
pub type Region = (VolumeId, u64);

/// The regions that `[start, end)` of a volume touches.
pub(crate) fn touched(volume: VolumeId, start: u64, end: u64) -> impl Iterator<Item = Region> {
    (start / REGION..end.div_ceil(REGION)).map(move |region| (volume, region))
}

/// The region that a unit is in.
pub(crate) fn of_unit(volume: VolumeId, unit: u64) -> Region {
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
            let set = (0..64).filter(move |bit| bits >> bit & 1 == 1);
            set.map(move |bit| (volume, u64::from(word) * 64 + bit))
        };
        self.words().flat_map(bits)
    }

    /// Words with a bit set, in order: what records hold.
    pub(crate) fn words(&self) -> impl Iterator<Item = ((VolumeId, u32), u64)> {
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
        let is_new = !self.contains(region);
        let at = word_of(region);
        self.set_word(at, self.word(at) | 1 << (region.1 % 64));
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

    /// Forgets those of a volume.
    pub(crate) fn remove_volume(&mut self, volume: VolumeId) {
        let gone: alloc::vec::Vec<_> = self.words.range((volume, 0)..=(volume, u32::MAX)).map(|(&at, _)| at).collect();
        gone.into_iter().for_each(|at| self.set_word(at, 0));
    }
}

/// The word that a region is in.
pub(crate) fn word_of((volume, region): Region) -> (VolumeId, u32) {
    (volume, (region / 64) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
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

    use std::vec::Vec;
}
