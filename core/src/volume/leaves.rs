//! The leaves of a map by their numbers.
//!
//! ```text
//!   areas of 4 TiB | directories of 8 GiB, those that have a leaf | leaves of 16 MiB, those that exist
//! ```
//!
//! A volume may be large and nearly empty, with a leaf here and there. A leaf that is not there takes a bit at most, and a
//! checkpoint, which asks every leaf where it is, passes those by words.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::leaf::Slot;
use crate::packed::{Packed, WIDTH};

type Directory = Packed<Slot>;
type Area = Packed<Directory>;

/// Leaves of an area.
const AREA: usize = WIDTH * WIDTH;

/// See the file.
#[derive(Clone, Default)]
pub(super) struct Leaves {
    /// As many as the highest leaf wants: 4,096 in the largest volume.
    areas: Vec<Option<Box<Area>>>,
}

impl Leaves {
    fn directory(&self, leaf: usize) -> Option<&Directory> {
        self.areas.get(leaf / AREA)?.as_ref()?.get(leaf % AREA / WIDTH)
    }

    pub(super) fn get(&self, leaf: u64) -> Option<&Slot> {
        let leaf = usize::try_from(leaf).ok()?;
        self.directory(leaf)?.get(leaf % WIDTH)
    }

    pub(super) fn get_or_insert(&mut self, leaf: u64) -> &mut Slot {
        let leaf = leaf as usize;
        if self.areas.len() <= leaf / AREA {
            self.areas.resize_with(leaf / AREA + 1, || None);
        }
        let area = self.areas[leaf / AREA].get_or_insert_default();
        let directory = area.get_or_insert_with(leaf % AREA / WIDTH, Directory::default);
        directory.get_or_insert_with(leaf % WIDTH, Slot::default)
    }

    /// How many leaves from this one on are absent, as far as that is to be seen at a glance; None: all of them.
    pub(super) fn absent_from(&self, leaf: u64) -> Option<u64> {
        let leaf = usize::try_from(leaf).ok()?;
        let absent = match self.areas.get(leaf / AREA)? {
            None => AREA - leaf % AREA,
            Some(area) => match area.get(leaf % AREA / WIDTH) {
                None => area.absent_from(leaf % AREA / WIDTH) * WIDTH - leaf % WIDTH,
                Some(directory) => match directory.get(leaf % WIDTH) {
                    None => directory.absent_from(leaf % WIDTH),
                    Some(slot) => usize::from(slot.leaf.is_none()),
                },
            },
        };
        Some(absent as u64)
    }

    /// In order, from this one on.
    pub(super) fn iter_from(&self, leaf: u64) -> impl Iterator<Item = (u64, &Slot)> {
        let first = leaf as usize;
        let areas = self.areas.iter().enumerate().skip(first / AREA);
        let directories =
            areas.filter_map(|(i, area)| Some((i * AREA, area.as_ref()?))).flat_map(move |(base, area)| {
                let from = first.saturating_sub(base) / WIDTH;
                area.entries_from(from).map(move |(i, directory)| (base + i * WIDTH, directory))
            });
        directories.flat_map(move |(base, directory)| {
            let from = first.saturating_sub(base);
            directory.entries_from(from).map(move |(i, slot)| ((base + i) as u64, slot))
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Slot)> {
        let areas = self.areas.iter_mut().enumerate();
        let directories = areas
            .filter_map(|(i, area)| Some((i * AREA, area.as_mut()?)))
            .flat_map(|(base, area)| area.entries_mut().map(move |(i, directory)| (base + i * WIDTH, directory)));
        directories
            .flat_map(|(base, directory)| directory.entries_mut().map(move |(i, slot)| ((base + i) as u64, slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{LEAF_SPAN, VOLUME_MAX};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A few directories with much in them, the border of two areas, and the last of the largest volume.
    fn leaf() -> impl Strategy<Value = u64> {
        let (last, border) = (VOLUME_MAX / LEAF_SPAN, AREA as u64);
        prop_oneof![0u64..200, 450u64..1100, border - 600..border + 600, 3 * border..3 * border + 5, last - 3..last]
    }

    proptest! {
        #[test]
        fn it_is_a_map_by_number(inserted in prop::collection::vec(leaf(), 0..300), asked in prop::collection::vec(leaf(), 20)) {
            let (mut leaves, mut twin) = (Leaves::default(), BTreeMap::new());
            for (page, leaf) in (1..).zip(&inserted) {
                leaves.get_or_insert(*leaf).page = page;
                twin.insert(*leaf, page);
            }
            for &leaf in inserted.iter().chain(&asked) {
                prop_assert_eq!(leaves.get(leaf).map(|slot| slot.page), twin.get(&leaf).copied());
                let rest = leaves.iter_from(leaf).map(|(leaf, slot)| (leaf, slot.page));
                prop_assert!(rest.eq(twin.range(leaf..).map(|(leaf, page)| (*leaf, *page))), "from {}", leaf);
                let next = twin.range(leaf..).next().map(|(next, _)| next - leaf);
                match leaves.absent_from(leaf) {
                    None => prop_assert_eq!(next, None),
                    // A slot without a leaf is passed alone.
                    Some(absent) if next == Some(0) => prop_assert_eq!(absent, 1),
                    Some(absent) => prop_assert!(absent > 0 && next.is_none_or(|next| absent <= next)),
                }
            }
            prop_assert!(leaves.iter_mut().map(|(leaf, slot)| (leaf, slot.page)).eq(twin));
        }
    }
}
