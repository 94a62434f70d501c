//! A leaf of a map: where the 256 units of 16 MiB are, and where the last checkpoint put that.

use alloc::boxed::Box;

use super::{ALL_BLOCKS, Entry, LEAF};
use crate::units::ChunkId;

/// A leaf: 256 entries, or one line when they follow each other.
#[derive(Clone)]
pub(super) enum Leaf {
    /// Entry `i` is unit `first + i` of the chunk with all blocks written: what a sequential writer leaves.
    Line { chunk: ChunkId, first: u32 },
    /// Anything else.
    Table(Box<[Entry; LEAF]>),
}

impl Leaf {
    pub(super) fn get(&self, i: usize) -> Entry {
        match self {
            Leaf::Line { chunk, first } => Entry::new(*chunk, first + i as u32, ALL_BLOCKS),
            Leaf::Table(table) => table[i],
        }
    }
}

/// A leaf with what the checkpoint needs to know of it.
#[derive(Clone, Default)]
pub(crate) struct Slot {
    pub(super) leaf: Option<Leaf>,
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
            // As it stands in its page. A checkpoint asks this of all leaves, and most are in no cache.
            Some(Leaf::Table(_)) if self.page != 0 && !self.dirty => Shape::Table,
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
    pub(super) fn fold(&mut self) {
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
