//! A volume and its map: which unit of which chunk holds each 64 KiB, and which blocks of it were ever written.
//!
//! ```text
//!   volume offset   | directory (8 GiB) | leaf (16 MiB) | entry (64 KiB) | block (4 KiB) |
//!
//!   entry, 64 bits  | chunk 30 | unit 18 | written blocks 16 |
//! ```
//!
//! An entry with a place but no written block is a *reservation*: a first write is on its way there. A block is a
//! hole until its bit is set, and the bit is set only after the data arrived; so a reader never sees what an earlier
//! owner of the space left behind. A block that no copy had any more when its member left is known as *lost*: not written,
//! and not a hole either, until it is written or discarded.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::chunk::REGION;
use crate::control::VolumeClass;
use crate::report::VolumeCounters;
use crate::sparse::Sparse;
use crate::units::{BLOCK, BLOCKS_PER_UNIT, ChunkId, UNIT, VolumeId};

/// Entries of a leaf.
pub const LEAF: usize = REGION as usize;
/// Bytes of a volume that one leaf maps.
pub const LEAF_SPAN: u64 = LEAF as u64 * UNIT;
const DIRECTORY: usize = 512;
/// Directories of one row of the table of them: 8 TiB. So one byte far out in the largest volume costs 48 KiB of rows, and
/// not 48 MiB of a table of all directories.
const ROW: usize = 1024;

/// Largest volume: 8 EiB would overflow no arithmetic, but nothing above 16 PiB was ever tried.
pub const VOLUME_MAX: u64 = 1 << 54;
/// Smallest volume.
pub const VOLUME_MIN: u64 = BLOCK;
/// Most volumes of a pool.
pub const VOLUMES_MAX: usize = 65_536;

/// The volume that holds the pages of checksums, in a pool that has them; clients' have higher ids.
pub const INTERNAL: VolumeId = VolumeId(0);
/// What it is called where names are told.
pub const INTERNAL_NAME: &str = "checksums";

/// Where one unit of a volume is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry(u64);

/// All blocks of a unit.
pub const ALL_BLOCKS: u16 = u16::MAX;

impl Entry {
    /// Nothing is mapped.
    pub const NONE: Entry = Entry(0);

    /// A place with these blocks written.
    pub fn new(chunk: ChunkId, unit: u32, written: u16) -> Entry {
        debug_assert!(chunk.0 != 0 && chunk.0 < 1 << 30 && unit < 1 << 18);
        Entry(u64::from(chunk.0) << 34 | u64::from(unit) << 16 | u64::from(written))
    }
    /// From disk; any value is an entry, its place must be checked by the caller.
    pub fn from_bits(bits: u64) -> Entry {
        Entry(bits)
    }
    /// For disk.
    pub fn bits(self) -> u64 {
        self.0
    }
    /// Whether it has a place.
    pub fn is_mapped(self) -> bool {
        self.0 != 0
    }
    /// The chunk.
    pub fn chunk(self) -> ChunkId {
        ChunkId((self.0 >> 34) as u32)
    }
    /// The unit within the chunk.
    pub fn unit(self) -> u32 {
        (self.0 >> 16) as u32 & 0x3ffff
    }
    /// One bit a block.
    pub fn written(self) -> u16 {
        self.0 as u16
    }
    /// The same place with these blocks written.
    pub fn with_written(self, written: u16) -> Entry {
        Entry(self.0 & !0xffff | u64::from(written))
    }
}

impl core::fmt::Debug for Entry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.is_mapped() {
            write!(f, "chunk {} unit {} written {:04x}", self.chunk(), self.unit(), self.written())
        } else {
            f.write_str("none")
        }
    }
}

/// Bits of the blocks `first..last` of a unit.
pub fn block_mask(first: u64, last: u64) -> u16 {
    debug_assert!(first <= last && last <= BLOCKS_PER_UNIT);
    (((1u32 << last) - 1) & !((1u32 << first) - 1)) as u16
}

/// A leaf: 256 entries, or one line when they follow each other.
#[derive(Clone)]
enum Leaf {
    /// Entry `i` is unit `first + i` of the chunk with all blocks written: what a sequential writer leaves.
    Line { chunk: ChunkId, first: u32 },
    /// Anything else.
    Table(Box<[Entry; LEAF]>),
}

impl Leaf {
    fn get(&self, i: usize) -> Entry {
        match self {
            Leaf::Line { chunk, first } => Entry::new(*chunk, first + i as u32, ALL_BLOCKS),
            Leaf::Table(table) => table[i],
        }
    }
}

/// A leaf with what the checkpoint needs to know of it.
#[derive(Clone, Default)]
pub(crate) struct Slot {
    leaf: Option<Leaf>,
    /// Where the last checkpoint put it; 0 = nowhere.
    pub(crate) page: u64,
    /// Checksum of that page.
    pub(crate) crc: u32,
    /// It changed since the last checkpoint.
    pub(crate) dirty: bool,
}

/// How a leaf is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Empty,
    Line { chunk: ChunkId, first: u32 },
    Table,
}

impl Slot {
    /// What there is to write; a reservation counts as nothing.
    pub(crate) fn shape(&self) -> Shape {
        match &self.leaf {
            None => Shape::Empty,
            Some(Leaf::Line { chunk, first }) => Shape::Line { chunk: *chunk, first: *first },
            Some(Leaf::Table(table)) => match table.iter().any(|e| e.written() != 0) {
                true => Shape::Table,
                false => Shape::Empty,
            },
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..LEAF).map(|i| self.leaf.as_ref().map_or(Entry::NONE, |leaf| leaf.get(i)))
    }

    /// A full table in one line becomes a [`Leaf::Line`]: 16 bytes in place of 2 KiB.
    fn fold(&mut self) {
        let Some(Leaf::Table(table)) = &self.leaf else { return };
        let head = table[0];
        if !head.is_mapped() || head.unit() as usize + LEAF > 1 << 18 {
            return;
        }
        let line = Leaf::Line { chunk: head.chunk(), first: head.unit() };
        if (0..LEAF).all(|i| table[i] == line.get(i)) {
            self.leaf = Some(line);
        }
    }
}

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
    /// Each as long as its highest leaf wants.
    directories: Sparse<Vec<Slot>, ROW>,
    /// Leaves to write at the next checkpoint.
    pub(crate) dirty: Vec<u64>,
    /// Leaves with at least one entry.
    leaves: u64,
    /// Blocks by unit that are lost; none of them is written.
    lost: BTreeMap<u64, u16>,
}

impl Map {
    fn slot(&self, leaf: u64) -> Option<&Slot> {
        let directory = self.directories.get(usize::try_from(leaf).ok()? / DIRECTORY)?;
        directory.get(leaf as usize % DIRECTORY)
    }

    pub(crate) fn slot_mut(&mut self, leaf: u64) -> &mut Slot {
        let directory = self.directories.get_or_insert_with(leaf as usize / DIRECTORY, Vec::new);
        let at = leaf as usize % DIRECTORY;
        if directory.len() <= at {
            directory.resize_with(at + 1, Slot::default);
        }
        &mut directory[at]
    }

    /// Leaves with at least one entry, reserved ones included.
    pub(crate) fn leaves(&self) -> u64 {
        self.leaves
    }

    /// The unit's leaf has an entry.
    pub(crate) fn has_leaf(&self, unit: u64) -> bool {
        self.slot(unit / LEAF as u64).is_some_and(|slot| slot.leaf.is_some())
    }

    /// The entry of a unit of the volume.
    pub fn get(&self, unit: u64) -> Entry {
        let slot = self.slot(unit / LEAF as u64);
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
        let Map { directories, dirty, .. } = self;
        for (i, directory) in directories.entries_mut() {
            for (j, slot) in directory.iter_mut().enumerate() {
                if has(slot.page) && !core::mem::replace(&mut slot.dirty, true) {
                    dirty.push((i * DIRECTORY + j) as u64);
                }
            }
        }
    }

    /// Leaves that changed and need a page, at most.
    pub(crate) fn dirty_tables(&self) -> u64 {
        let has_table = |&&leaf: &&u64| self.slot(leaf).is_some_and(|s| matches!(s.leaf, Some(Leaf::Table(_))));
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
            let leaf = next / LEAF as u64;
            let directory = usize::try_from(leaf).map_or(usize::MAX, |l| l / DIRECTORY);
            let absent = match self.directories.get(directory) {
                None if directory >= self.directories.end() => {
                    *blocks = wanted;
                    return next;
                }
                None => DIRECTORY as u64 - leaf % DIRECTORY as u64,
                Some(d) if d.get(leaf as usize % DIRECTORY).is_none_or(|slot| slot.leaf.is_none()) => 1,
                Some(_) => break,
            };
            *blocks += absent * LEAF as u64 * BLOCKS_PER_UNIT;
            next += absent * LEAF as u64;
        }
        next
    }

    /// First unit at or after `unit` and before `end` that is mapped.
    pub fn next_mapped(&self, mut unit: u64, end: u64) -> Option<u64> {
        while unit < end {
            let directory = usize::try_from(unit / LEAF as u64).ok()? / DIRECTORY;
            if self.directories.get(directory).is_none() {
                if directory >= self.directories.end() {
                    return None;
                }
                unit = (directory as u64 + 1) * (DIRECTORY * LEAF) as u64;
                continue;
            }
            let slot = self.slot(unit / LEAF as u64);
            if slot.is_none_or(|s| s.leaf.is_none()) {
                unit = (unit / LEAF as u64 + 1) * LEAF as u64;
            } else if self.get(unit).is_mapped() {
                return Some(unit);
            } else {
                unit += 1;
            }
        }
        None
    }

    /// All leaves that exist, in order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (u64, &Slot)> {
        self.slots_from(0)
    }

    /// The first leaf at or after this one that exists.
    pub(crate) fn leaf_from(&self, leaf: u64) -> Option<(u64, &Slot)> {
        let first = usize::try_from(leaf).ok()? / DIRECTORY;
        self.slots_from(first).skip_while(|&(at, _)| at < leaf).find(|(_, slot)| slot.leaf.is_some())
    }

    /// The leaves of this directory and of those behind it.
    fn slots_from(&self, directory: usize) -> impl Iterator<Item = (u64, &Slot)> {
        let directories = self.directories.entries_from(directory);
        directories.flat_map(|(i, d)| d.iter().enumerate().map(move |(j, slot)| ((i * DIRECTORY + j) as u64, slot)))
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
        self.slot(unit / LEAF as u64)?.leaf.as_ref()?;
        let near =
            |u: u64| (u >= base && u < base + LEAF as u64).then(|| (u, self.get(u))).filter(|(_, e)| e.is_mapped());
        (1..LEAF as u64).find_map(|d| unit.checked_sub(d).and_then(near).or_else(|| near(unit + d)))
    }
}

/// One volume.
#[derive(Clone)]
pub struct Volume {
    /// Id within the pool, never reused.
    pub id: VolumeId,
    /// Name within the pool.
    pub name: String,
    /// Bytes, a multiple of `BLOCK`.
    pub size: u64,
    /// What its writes count as.
    pub class: VolumeClass,
    /// What is written gets checksums, in a pool that has them.
    pub checksum: bool,
    /// Where everything is.
    pub map: Map,
    /// Units mapped by type of chunk: data, metadata.
    pub mapped_units: [u64; 2],
    /// What clients asked of it, since open.
    pub counters: VolumeCounters,
}

impl Volume {
    /// It is the pool's own and no client's.
    pub fn is_internal(&self) -> bool {
        self.id == INTERNAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn block_masks() {
        let rows = [(0, 16, 0xffff), (0, 1, 1), (15, 16, 0x8000), (4, 8, 0xf0), (3, 3, 0)];
        for (first, last, mask) in rows {
            assert_eq!(block_mask(first, last), mask, "{first}..{last}");
        }
    }

    #[test]
    fn a_leaf_written_in_order_folds_into_a_line_and_unfolds_again() {
        let mut map = Map::default();
        for i in 0..LEAF as u64 {
            map.set(i, Entry::new(ChunkId(3), 512 + i as u32, ALL_BLOCKS));
        }
        assert_eq!(map.slot(0).unwrap().shape(), Shape::Line { chunk: ChunkId(3), first: 512 });
        let all = Extent::Mapped { chunk: ChunkId(3), offset: 512 * UNIT, len: LEAF_SPAN };
        assert_eq!(map.first(0, LEAF_SPAN), all);
        map.set(7, Entry::new(ChunkId(3), 519, 1));
        assert_eq!(map.slot(0).unwrap().shape(), Shape::Table);
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
