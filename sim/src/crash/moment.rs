//! The disks at some moment of a [tape](super::tape), and what of it is decided.
//!
//! ```text
//!   base     what stands on stable media
//!   open     writes in the order in which they were sent; a power cut takes or leaves each, sector by sector
//! ```
//!
//! Two writes of one block are never under way at once, so a later one in `open` is the later one on the disk. A flush moves
//! what had ended when it was sent into `base`, a forced write goes there by itself when it ends; what an earlier write
//! had in those blocks does not matter any more.
//!
//! States that are alike are told by their *fingerprints*: a number for each disk to which each block adds what it holds. Of different
//! ones two have the same with a chance of one in 2^64.

use std::rc::Rc;

use super::promise::Known;
use super::tape::{Cell, Mark, Tape};
use crate::disk::{Block, SECTORS, ZERO};

/// A write that is not decided.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// While it is under way.
    id: Option<u32>,
    pub(crate) disk: usize,
    forced: bool,
    /// It has ended, as the so-many-th.
    ended: Option<u64>,
    pub(crate) blocks: Vec<(u32, Cell)>,
}

/// Why a cut is worth while here: what the step before changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing that a power cut could tell.
    Nothing,
    /// One more write may be there: the last open one.
    More,
    /// Fewer states are possible, or more is known.
    Less,
}

/// See the module.
pub(crate) struct Moment<'t> {
    tape: &'t Tape,
    /// Marks that have happened.
    pub(crate) at: usize,
    /// By disk, block by block.
    pub(crate) disks: Vec<Vec<Cell>>,
    pub(crate) open: Vec<Open>,
    pub(crate) known: Rc<Known>,
    /// Disks that are out of reach.
    pub(crate) gone: Vec<usize>,
    flushes: Vec<(u32, usize, u64)>,
    ended: u64,
    /// Torn blocks of the present state, and what stands for what they hold.
    torn: Vec<(Block, u64)>,
    /// By disk: what tells its content from that of others.
    fingerprints: Vec<u64>,
    undo: Vec<(usize, u32, Cell)>,
}

impl<'t> Moment<'t> {
    /// Before everything.
    pub(crate) fn first(tape: &'t Tape) -> Moment<'t> {
        Moment {
            tape,
            at: 0,
            disks: tape.base.clone(),
            open: Vec::new(),
            known: tape.first.clone(),
            gone: Vec::new(),
            flushes: Vec::new(),
            ended: 0,
            torn: Vec::new(),
            fingerprints: vec![0; tape.base.len()],
            undo: Vec::new(),
        }
    }

    /// What it is a moment of.
    pub(crate) fn tape(&self) -> &'t Tape {
        self.tape
    }

    /// Goes one mark on; nothing at the end.
    pub(crate) fn advance(&mut self) -> Option<Step> {
        let mark = self.tape.marks.get(self.at)?;
        self.at += 1;
        Some(match mark {
            Mark::Sent { id, disk, forced, blocks } => self.sent(*id, *disk, *forced, blocks),
            Mark::Flushing { id, disk } => {
                self.flushes.push((*id, *disk, self.ended));
                Step::Nothing
            }
            Mark::Ended { id } => self.has_ended(*id),
            Mark::Failed { id } => {
                self.flushes.retain(|flush| flush.0 != *id);
                self.open.iter_mut().filter(|o| o.id == Some(*id)).for_each(|o| o.id = None);
                Step::Nothing
            }
            Mark::Learnt { known, tells } => {
                self.known = known.clone();
                if *tells { Step::Less } else { Step::Nothing }
            }
            Mark::Gone { disk } => {
                self.gone.push(*disk);
                Step::Nothing
            }
        })
    }

    fn sent(&mut self, id: u32, disk: usize, forced: bool, blocks: &[(u32, Cell)]) -> Step {
        let Moment { open, disks, .. } = self;
        // Zeros where there are zeros change nothing.
        let matters = |&&(block, cell): &&(u32, Cell)| {
            let is_open = || open.iter().any(|o| o.disk == disk && o.blocks.iter().any(|(b, _)| *b == block));
            cell != 0 || disks[disk][block as usize] != 0 || is_open()
        };
        let blocks: Vec<_> = blocks.iter().filter(matters).copied().collect();
        if blocks.is_empty() {
            return Step::Nothing;
        }
        open.push(Open { id: Some(id), disk, forced, ended: None, blocks });
        Step::More
    }

    fn has_ended(&mut self, id: u32) -> Step {
        if let Some(at) = self.flushes.iter().position(|flush| flush.0 == id) {
            let (_, disk, mark) = self.flushes.swap_remove(at);
            return self.settle(|o| o.disk == disk && o.ended.is_some_and(|ended| ended < mark));
        }
        let Some(at) = self.open.iter().position(|o| o.id == Some(id)) else { return Step::Nothing };
        let open = &mut self.open[at];
        (open.id, open.ended) = (None, Some(self.ended));
        self.ended += 1;
        if !open.forced {
            return Step::Nothing;
        }
        let mut i = 0;
        self.settle(|_| {
            i += 1;
            i == at + 1
        })
    }

    /// These are on stable media now.
    fn settle(&mut self, mut is_safe: impl FnMut(&Open) -> bool) -> Step {
        let mut rest: Vec<Open> = Vec::with_capacity(self.open.len());
        let mut step = Step::Nothing;
        for open in std::mem::take(&mut self.open) {
            if !is_safe(&open) {
                rest.push(open);
                continue;
            }
            step = Step::Less;
            for earlier in rest.iter_mut().filter(|o| o.disk == open.disk) {
                earlier.blocks.retain(|(block, _)| !open.blocks.iter().any(|(b, _)| b == block));
            }
            for &(block, cell) in &open.blocks {
                self.put(open.disk, block, cell);
            }
        }
        rest.retain(|o| !o.blocks.is_empty());
        self.open = rest;
        step
    }

    /// What a cell holds.
    pub(crate) fn block(&self, cell: Cell) -> &Block {
        let cells = self.tape.cells.len();
        match cell as usize {
            0 => &ZERO,
            at if at < cells => &self.tape.cells[at],
            at => &self.torn[at - cells].0,
        }
    }

    /// What stands for the content of a cell, in every state of this tape.
    pub(crate) fn name(&self, cell: Cell) -> u64 {
        match (cell as usize).checked_sub(self.tape.cells.len()) {
            None => cell.into(),
            Some(torn) => self.torn[torn].1,
        }
    }

    /// What tells this state from every other one of this tape, with these disks there.
    pub(crate) fn fingerprint(&self, present: &[bool]) -> u64 {
        let of = |(&fingerprint, &here): (&u64, &bool)| if here { fingerprint } else { u64::MAX };
        self.fingerprints.iter().zip(present).map(of).fold(0, mix)
    }

    /// From now on a block is this; what it was.
    fn put(&mut self, disk: usize, block: u32, cell: Cell) -> Cell {
        let before = self.disks[disk][block as usize];
        let part = |cell| mix(block.into(), self.name(cell));
        let change = part(before) ^ part(cell);
        self.fingerprints[disk] ^= change;
        self.disks[disk][block as usize] = cell;
        before
    }

    /// The cell means the same for every state of this tape.
    pub(crate) fn is_lasting(&self, cell: Cell) -> bool {
        (cell as usize) < self.tape.cells.len()
    }

    /// An open write arrives: `takes` says which sectors of it, counted from its beginning; none asks for all.
    pub(crate) fn arrive(&mut self, which: usize, mut takes: Option<&mut dyn FnMut(usize) -> bool>) {
        let disk = self.open[which].disk;
        for i in 0..self.open[which].blocks.len() {
            let (block, cell) = self.open[which].blocks[i];
            let new = match &mut takes {
                None => cell,
                Some(takes) => {
                    let taken = (0..SECTORS).filter(|sector| takes(i * SECTORS + sector));
                    match taken.fold(0u8, |bits, sector| bits | 1 << sector) {
                        0 => continue,
                        u8::MAX => cell,
                        taken => self.tear(self.disks[disk][block as usize], cell, taken),
                    }
                }
            };
            let before = self.put(disk, block, new);
            self.undo.push((disk, block, before));
        }
    }

    /// A block with these sectors of the new one.
    fn tear(&mut self, old: Cell, new: Cell, taken: u8) -> Cell {
        let mut sector = 0..SECTORS;
        let torn = self.block(old).torn(self.block(new), || sector.next().is_some_and(|at| taken >> at & 1 == 1));
        let name = [new.into(), taken.into()].into_iter().fold(self.name(old), mix);
        self.torn.push((torn, name));
        (self.tape.cells.len() + self.torn.len() - 1) as Cell
    }

    /// As before the first [`arrive`](Self::arrive).
    pub(crate) fn take_back(&mut self) {
        while let Some((disk, block, cell)) = self.undo.pop() {
            self.put(disk, block, cell);
        }
        self.torn.clear();
    }
}

/// One number of two, such that others give another one (the finalizer of MurmurHash3).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b;
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        x = (x ^ x >> 33).wrapping_mul(factor);
    }
    x ^ x >> 33
}
