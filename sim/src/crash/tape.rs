//! What happened in a run, as far as a power cut can tell: what was sent to disks and what of it ended, and what was known
//! to whom at that moment.
//!
//! ```text
//!   Sent 3   Sent 4   Ended 3   Flushing 5   Learnt   Ended 4   Ended 5   ...
//!        '--- a cut between any two of them ---'
//! ```
//!
//! Content lies in *cells*, one for each block that was ever written, so that a state of a disk is an array of numbers. Cell
//! 0 is what stands where nobody wrote. A command that failed may have arrived all the same, and no flush covers it.

use std::rc::Rc;

use braid_core::request::{DeviceOp, Dispatch};

use super::mistake::Mistake;
use super::promise::{Books, Entry, Known};
use crate::disk::{BLOCK, Block, Content, Disk, ZERO};
use crate::oracle::Oracle;

/// Names content.
pub(crate) type Cell = u32;

/// One thing that happened.
#[derive(Clone, Debug)]
pub(crate) enum Mark {
    /// A write, zeroes or a discard left for a disk: block and what it will be.
    Sent {
        id: u32,
        disk: usize,
        forced: bool,
        blocks: Vec<(u32, Cell)>,
    },
    Flushing {
        id: u32,
        disk: usize,
    },
    Ended {
        id: u32,
    },
    /// It may have arrived, or not, or in part.
    Failed {
        id: u32,
    },
    /// What is known from now on; `tells` unless it is only that more was asked.
    Learnt {
        known: Rc<Known>,
        tells: bool,
    },
    /// A disk is out of reach from now on.
    Gone {
        disk: usize,
    },
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Tape {
    pub(crate) cells: Vec<Block>,
    /// By disk, block by block: what stood there when the run began.
    pub(crate) base: Vec<Vec<Cell>>,
    pub(crate) marks: Vec<Mark>,
    /// What was known then.
    pub(crate) first: Rc<Known>,
    /// What operators asked.
    pub(crate) books: Books,
    pub(crate) mistake: Option<Mistake>,
    /// The boot of the run.
    pub(crate) boot: u8,
    /// Something was asked since the last [`Mark::Learnt`].
    is_behind: bool,
    gone: Vec<bool>,
    /// Of the world that was recorded, at its end.
    pub(crate) hash: u64,
}

impl Tape {
    /// Nothing happened yet to these disks.
    pub(crate) fn new(disks: &[Disk], first: Rc<Known>, boot: u8, mistake: Option<Mistake>) -> Tape {
        let mut cells = vec![ZERO];
        let mut base = Vec::new();
        for disk in disks {
            let mut blocks = vec![0; (disk.size / BLOCK) as usize];
            for (at, block) in disk.blocks() {
                blocks[at as usize] = cells.len() as Cell;
                cells.push(block.clone());
            }
            base.push(blocks);
        }
        let (gone, books) = (vec![false; disks.len()], first.books.clone());
        Tape { cells, base, marks: Vec::new(), first, books, mistake, boot, is_behind: false, gone, hash: 0 }
    }

    /// A client asked for a change; `answer` is what the oracle hears when that is answered.
    pub(crate) fn asked(&mut self, oracle: &Oracle, answer: impl FnOnce(&mut Oracle)) {
        self.is_behind = true;
        if self.mistake == Some(Mistake::AnswerAtOnce) {
            let mut deceived = oracle.clone();
            answer(&mut deceived);
            self.answered(&deceived);
        }
    }

    /// An operator asked for a change.
    pub(crate) fn ordered(&mut self, tag: u64, entry: Entry, value: Option<u64>) {
        self.books.begin(tag, entry, value);
        self.is_behind = true;
    }

    /// Something was answered for good.
    pub(crate) fn answered(&mut self, oracle: &Oracle) {
        self.learn(oracle, true);
    }

    fn learn(&mut self, oracle: &Oracle, tells: bool) {
        self.is_behind = false;
        self.marks.push(Mark::Learnt { known: Rc::new(Known::of(oracle, &self.books)), tells });
    }

    /// A command leaves.
    pub(crate) fn sent(&mut self, dispatch: Dispatch, content: &Content, oracle: &Oracle) {
        let Dispatch { id, device, op, offset, len } = dispatch;
        let disk = device.index() - 1;
        let at = (offset / BLOCK) as u32;
        let forced = op == DeviceOp::Write { fua: true } && self.mistake != Some(Mistake::FuaNotPassedOn);
        let blocks = match op {
            DeviceOp::Read => return,
            DeviceOp::Flush => {
                let is_lost = match self.mistake {
                    Some(Mistake::FlushNotPassedOn) => true,
                    Some(Mistake::FlushOfOneMember) => disk > 0,
                    _ => false,
                };
                if !is_lost {
                    self.marks.push(Mark::Flushing { id: id.0, disk });
                }
                return;
            }
            DeviceOp::Write { fua: false }
                if self.mistake == Some(Mistake::CopyNotWritten) && disk + 1 == self.base.len() =>
            {
                return;
            }
            DeviceOp::Write { .. } => {
                let first = self.cells.len() as Cell;
                self.cells.extend(content.blocks().iter().cloned());
                (at..).zip(first..self.cells.len() as Cell).collect()
            }
            DeviceOp::Discard | DeviceOp::WriteZeroes => {
                (at..at + (len / BLOCK) as u32).map(|block| (block, 0)).collect()
            }
        };
        if self.is_behind {
            self.learn(oracle, false);
        }
        self.marks.push(Mark::Sent { id: id.0, disk, forced, blocks });
    }

    /// A command is over.
    pub(crate) fn ended(&mut self, dispatch: Dispatch, is_fine: bool) {
        let id = dispatch.id.0;
        match dispatch.op {
            DeviceOp::Read => {}
            _ if is_fine => self.marks.push(Mark::Ended { id }),
            _ => self.marks.push(Mark::Failed { id }),
        }
    }

    /// A disk is out of reach.
    pub(crate) fn gone(&mut self, disk: usize) {
        if !std::mem::replace(&mut self.gone[disk], true) {
            self.marks.push(Mark::Gone { disk });
        }
    }
}
