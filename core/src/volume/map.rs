//! The map of a volume: from its blocks to runs of them that are alike.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::leaf::{Leaf, Slot};
use super::leaves::Leaves;
use super::{ALL_BLOCKS, Entry, LEAF};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, ChunkId, UNIT};

/// A run of a volume's blocks that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Never written: reads as zeros.
    Hole {
        /// Bytes.
        len: u64,
    },
    /// Contiguous in one chunk.
    Mapped {
        /// The chunk.
        chunk: ChunkId,
        /// First byte within it.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// No copy has it any more: cannot be read.
    Lost {
        /// Bytes.
        len: u64,
    },
}

impl Extent {
    /// Bytes.
    pub fn len(self) -> u64 {
        match self {
            Extent::Hole { len } | Extent::Mapped { len, .. } | Extent::Lost { len } => len,
        }
    }

    /// Never: an extent has at least one block.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The map of a volume.
#[derive(Clone, Default)]
pub struct Map {
    table: Leaves,
    /// Leaves to write at the next checkpoint.
    pub(crate) dirty: Vec<u64>,
    /// Leaves with at least one entry.
    leaves: u64,
    /// Blocks by unit that are lost; none of them is written.
    lost: BTreeMap<u64, u16>,
}

impl Map {
    pub(crate) fn slot_mut(&mut self, leaf: u64) -> &mut Slot {
        self.table.get_or_insert(leaf)
    }

    /// Leaves with at least one entry, reserved ones included.
    pub(crate) fn leaves(&self) -> u64 {
        self.leaves
    }

    /// The unit's leaf has an entry.
    pub(crate) fn has_leaf(&self, unit: u64) -> bool {
        self.table.get(unit / LEAF as u64).is_some_and(|slot| slot.leaf.is_some())
    }

    /// The entry of a unit of the volume.
    pub fn get(&self, unit: u64) -> Entry {
        let slot = self.table.get(unit / LEAF as u64);
        slot.and_then(|s| s.leaf.as_ref()).map_or(Entry::NONE, |leaf| leaf.get(unit as usize % LEAF))
    }

    /// Changes an entry and remembers to write its leaf. What is written is not lost any more.
    pub fn set(&mut self, unit: u64, entry: Entry) {
        self.set_lost(unit, self.lost(unit) & !entry.written());
        let leaf = unit / LEAF as u64;
        let slot = self.slot_mut(leaf);
        let newly_dirty = !core::mem::replace(&mut slot.dirty, true);
        let was_there = slot.leaf.is_some();
        let at = unit as usize % LEAF;
        let table = match slot.leaf.take() {
            Some(Leaf::Table(table)) => table,
            Some(line @ Leaf::Line { .. }) => Box::new(core::array::from_fn(|i| line.get(i))),
            None => Box::new([Entry::NONE; LEAF]),
        };
        let table = slot.leaf.insert(Leaf::Table(table));
        if let Leaf::Table(table) = table {
            table[at] = entry;
        }
        // Only the entry that completes a leaf can make it a line; sequential writers end with the last one.
        if entry.written() == ALL_BLOCKS && (at == LEAF - 1 || at == 0) {
            slot.fold();
        } else if !entry.is_mapped() && slot.entries().all(|e| !e.is_mapped()) {
            slot.leaf = None;
        }
        let is_there = slot.leaf.is_some();
        self.leaves = self.leaves + u64::from(is_there) - u64::from(was_there);
        if newly_dirty {
            self.dirty.push(leaf);
        }
    }

    /// Blocks of a unit that are lost.
    pub fn lost(&self, unit: u64) -> u16 {
        if self.lost.is_empty() { 0 } else { self.lost.get(&unit).copied().unwrap_or(0) }
    }

    /// Units with lost blocks from this one on and before `end`, and which these are.
    pub fn lost_in(&self, unit: u64, end: u64) -> impl Iterator<Item = (u64, u16)> + '_ {
        self.lost.range(unit..end.max(unit)).map(|(&unit, &blocks)| (unit, blocks))
    }

    /// Lost blocks from this one on and before `end`, in order.
    pub fn lost_blocks(&self, first: u64, end: u64) -> impl Iterator<Item = u64> + '_ {
        let units = self.lost_in(first / BLOCKS_PER_UNIT, end.div_ceil(BLOCKS_PER_UNIT));
        let blocks = units.flat_map(|(unit, lost)| {
            let bits = (0..BLOCKS_PER_UNIT).filter(move |bit| lost >> bit & 1 == 1);
            bits.map(move |bit| unit * BLOCKS_PER_UNIT + bit)
        });
        blocks.filter(move |block| (first..end).contains(block))
    }

    /// How many units have lost blocks.
    pub fn lost_units(&self) -> usize {
        self.lost.len()
    }

    /// Makes these, and no others, the lost blocks of a unit. None of them may be written.
    pub(crate) fn set_lost(&mut self, unit: u64, blocks: u16) {
        if blocks == 0 {
            if !self.lost.is_empty() {
                self.lost.remove(&unit);
            }
        } else {
            self.lost.insert(unit, blocks);
        }
    }

    /// Has the next checkpoint write every leaf that has a page.
    pub(crate) fn touch_tables(&mut self) {
        self.touch_pages(|page| page != 0);
    }

    /// Has the next checkpoint write every leaf with such a page.
    pub(crate) fn touch_pages(&mut self, has: impl Fn(u64) -> bool) {
        for (leaf, slot) in self.table.iter_mut() {
            if has(slot.page) && !core::mem::replace(&mut slot.dirty, true) {
                self.dirty.push(leaf);
            }
        }
    }

    /// Leaves that changed and need a page, at most.
    pub(crate) fn dirty_tables(&self) -> u64 {
        let has_table = |&&leaf: &&u64| self.table.get(leaf).is_some_and(|s| matches!(s.leaf, Some(Leaf::Table(_))));
        self.dirty.iter().filter(has_table).count() as u64
    }

    /// From a checkpoint: a leaf in one line.
    pub(crate) fn load_line(&mut self, leaf: u64, chunk: ChunkId, first: u32) {
        let before = self.slot_mut(leaf).leaf.replace(Leaf::Line { chunk, first });
        self.leaves += u64::from(before.is_none());
    }

    /// From a checkpoint: a leaf and its page.
    pub(crate) fn load_table(&mut self, leaf: u64, page: u64, crc: u32, entries: Box<[Entry; LEAF]>) {
        let slot = self.slot_mut(leaf);
        let before = slot.leaf.replace(Leaf::Table(entries));
        (slot.page, slot.crc) = (page, crc);
        self.leaves += u64::from(before.is_none());
    }

    /// The first run of alike blocks in `[offset, offset + len)`; both are multiples of `BLOCK`, `len` is not 0.
    pub fn first(&self, offset: u64, len: u64) -> Extent {
        match self.first_place(offset, len) {
            Extent::Hole { len } if !self.lost.is_empty() => self.first_lost(offset, len),
            extent => extent,
        }
    }

    /// What there is of a run that is not written: a hole up to where something is lost, or what is lost.
    fn first_lost(&self, offset: u64, len: u64) -> Extent {
        let (first, end) = (offset / BLOCK, (offset + len) / BLOCK);
        let mut lost = self.lost_blocks(first, end);
        match lost.next() {
            None => Extent::Hole { len },
            Some(block) if block == first => {
                let more = (first + 1..end).zip(lost).take_while(|(next, block)| next == block).count() as u64;
                Extent::Lost { len: (1 + more) * BLOCK }
            }
            Some(block) => Extent::Hole { len: (block - first) * BLOCK },
        }
    }

    /// The same of what is written and what is not.
    fn first_place(&self, offset: u64, len: u64) -> Extent {
        let (mut unit, mut block) = (offset / UNIT, (offset % UNIT / BLOCK) as u32);
        let head = self.get(unit);
        let blocks_wanted = len / BLOCK;
        let mut blocks = 0;
        if head.written() >> block & 1 == 0 {
            loop {
                let written = self.get(unit).written() >> block;
                let here = u64::from(written.trailing_zeros()).min(BLOCKS_PER_UNIT - u64::from(block));
                blocks += here;
                if blocks >= blocks_wanted || here < BLOCKS_PER_UNIT - u64::from(block) {
                    return Extent::Hole { len: blocks.min(blocks_wanted) * BLOCK };
                }
                unit = self.next_unit_with_leaf(unit, &mut blocks, blocks_wanted);
                block = 0;
            }
        }
        let chunk = head.chunk();
        let start = u64::from(head.unit()) * UNIT + u64::from(block) * BLOCK;
        let mut entry = head;
        loop {
            let here = u64::from((entry.written() >> block).trailing_ones());
            blocks += here;
            let whole = here == BLOCKS_PER_UNIT - u64::from(block);
            if blocks >= blocks_wanted || !whole {
                break;
            }
            unit += 1;
            block = 0;
            let next = self.get(unit);
            if next.chunk() != chunk || next.unit() != entry.unit() + 1 || next.written() & 1 == 0 {
                break;
            }
            entry = next;
        }
        Extent::Mapped { chunk, offset: start, len: blocks.min(blocks_wanted) * BLOCK }
    }

    /// The unit after `unit`, or past whole absent leaves: holes of TiBs must not be walked unit by unit.
    fn next_unit_with_leaf(&self, unit: u64, blocks: &mut u64, wanted: u64) -> u64 {
        let mut next = unit + 1;
        while *blocks < wanted && next.is_multiple_of(LEAF as u64) {
            let Some(absent) = self.table.absent_from(next / LEAF as u64) else {
                *blocks = wanted;
                return next;
            };
            if absent == 0 {
                break;
            }
            *blocks += absent * LEAF as u64 * BLOCKS_PER_UNIT;
            next += absent * LEAF as u64;
        }
        next
    }

    /// First unit at or after `unit` and before `end` that is mapped.
    pub fn next_mapped(&self, mut unit: u64, end: u64) -> Option<u64> {
        while unit < end {
            let leaf = unit / LEAF as u64;
            match self.table.absent_from(leaf)? {
                0 if self.get(unit).is_mapped() => return Some(unit),
                0 => unit += 1,
                absent => unit = (leaf + absent) * LEAF as u64,
            }
        }
        None
    }

    /// All slots of leaves, in order: those that exist, and those that did.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (u64, &Slot)> {
        self.table.iter_from(0)
    }

    /// The first leaf at or after this one that exists.
    pub(crate) fn leaf_from(&self, leaf: u64) -> Option<(u64, &Slot)> {
        self.table.iter_from(leaf).find(|(_, slot)| slot.leaf.is_some())
    }

    /// All mapped entries with their units, in order.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Entry)> {
        let leaves = self.slots().filter(|(_, slot)| slot.leaf.is_some());
        leaves.flat_map(|(leaf, slot)| {
            let base = leaf * LEAF as u64;
            slot.entries().enumerate().map(move |(i, e)| (base + i as u64, e)).filter(|(_, e)| e.is_mapped())
        })
    }

    /// A mapped neighbour in the same leaf, nearest first: where a first write would like to be next to.
    pub fn anchor(&self, unit: u64) -> Option<(u64, Entry)> {
        let base = unit / LEAF as u64 * LEAF as u64;
        self.table.get(unit / LEAF as u64)?.leaf.as_ref()?;
        let near =
            |u: u64| (u >= base && u < base + LEAF as u64).then(|| (u, self.get(u))).filter(|(_, e)| e.is_mapped());
        (1..LEAF as u64).find_map(|d| unit.checked_sub(d).and_then(near).or_else(|| near(unit + d)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::LEAF_SPAN;
    use super::super::VOLUME_MAX;
    use super::*;
    use crate::volume::leaf::Shape;
    use proptest::prelude::*;

    #[test]
    fn a_leaf_written_in_order_folds_into_a_line_and_unfolds_again() {
        let mut map = Map::default();
        for i in 0..LEAF as u64 {
            map.set(i, Entry::new(ChunkId(3), 512 + i as u32, ALL_BLOCKS));
        }
        assert_eq!(map.table.get(0).unwrap().shape(), Shape::Line { chunk: ChunkId(3), first: 512 });
        let all = Extent::Mapped { chunk: ChunkId(3), offset: 512 * UNIT, len: LEAF_SPAN };
        assert_eq!(map.first(0, LEAF_SPAN), all);
        map.set(7, Entry::new(ChunkId(3), 519, 1));
        assert_eq!(map.table.get(0).unwrap().shape(), Shape::Table);
        assert_eq!(map.get(8), Entry::new(ChunkId(3), 520, ALL_BLOCKS));
        assert_eq!(map.dirty, [0]);
    }

    #[test]
    fn a_huge_hole_is_one_extent_found_at_once() {
        let mut map = Map::default();
        assert_eq!(map.first(0, VOLUME_MAX), Extent::Hole { len: VOLUME_MAX });
        map.set(1 << 30, Entry::new(ChunkId(1), 0, 2));
        assert_eq!(map.first(BLOCK, VOLUME_MAX / 2), Extent::Hole { len: (1 << 46) });
    }

    proptest! {
        /// The twin: a map from block to (chunk, byte), looked at block by block.
        #[test]
        fn extents_are_what_the_blocks_say(
            units in prop::collection::vec((0u64..600, 1u32..3, 0u32..40, any::<u16>()), 0..60),
            lost in prop::collection::vec((0u64..600, any::<u16>()), 0..20),
            from in 0u64..9600, blocks in 1u64..3000,
        ) {
            let mut map = Map::default();
            let mut twin = std::collections::BTreeMap::new();
            let mut lost_twin = std::collections::BTreeSet::new();
            for (unit, blocks) in lost {
                map.set_lost(unit, blocks);
                for b in 0..16u64 {
                    match blocks >> b & 1 {
                        1 => lost_twin.insert(unit * 16 + b),
                        _ => lost_twin.remove(&(unit * 16 + b)),
                    };
                }
            }
            // What is written afterwards is not lost any more, even if it is discarded then.
            let mut rewritten = std::collections::BTreeSet::new();
            for (unit, chunk, place, written) in units {
                map.set(unit, Entry::new(ChunkId(chunk), place, written));
                for b in 0..16u64 {
                    if written >> b & 1 == 1 {
                        rewritten.insert(unit * 16 + b);
                    }
                    match written >> b & 1 {
                        1 => twin.insert(unit * 16 + b, (chunk, u64::from(place) * UNIT + b * BLOCK)),
                        _ => twin.remove(&(unit * 16 + b)),
                    };
                }
            }
            lost_twin.retain(|block| !rewritten.contains(block));
            let extent = map.first(from * BLOCK, blocks * BLOCK);
            let run = match twin.get(&from) {
                None => (from..from + blocks)
                    .take_while(|b| !twin.contains_key(b) && lost_twin.contains(b) == lost_twin.contains(&from))
                    .count() as u64,
                Some(&(chunk, at)) => (0..blocks)
                    .take_while(|i| twin.get(&(from + i)) == Some(&(chunk, at + i * BLOCK)))
                    .count() as u64,
            };
            let expected = match twin.get(&from) {
                None if lost_twin.contains(&from) => Extent::Lost { len: run * BLOCK },
                None => Extent::Hole { len: run * BLOCK },
                Some(&(chunk, offset)) => Extent::Mapped { chunk: ChunkId(chunk), offset, len: run * BLOCK },
            };
            prop_assert_eq!(extent, expected);
        }
    }
}
