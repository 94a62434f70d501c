//! Blocks that nothing decides are read again: a cable, a controller or memory may have given something else than what stands there.
//!
//! A block in doubt whose copies differ would become what the first of them says, for good; and one that no copy has as its checksum
//! says would be an error. So each of its copies is read until it says the same twice in a row. Mostly it does at once, after a write that
//! was cut short or where something rotted.

use super::judge::{Known, Winner};
use super::parities::BY_PARITY;
use super::{COPIES_MAX, Engine, MADE, Mend, blocks, range, runs};
use crate::engine::Slip;
use crate::request::{Copy, DeviceOp, Output};
use crate::units::{BLOCK, BufId, UNIT};

/// Times that blocks are read again at most.
pub(in crate::engine) const REREADS_MAX: u8 = 8;

/// How far it is with that.
#[derive(Clone, Copy, Default)]
pub(in crate::engine) struct Again {
    /// How often.
    rereads: u8,
    /// By copy: what was read before.
    pub(super) before: [Option<BufId>; COPIES_MAX],
    /// Blocks that were read again the last time.
    lanes: u16,
    /// By copy: blocks that were the same twice in a row.
    steady: [u16; COPIES_MAX],
}

impl Mend {
    /// Blocks that would be lost or not decided, or that were in doubt and would be what one copy alone says, while some copy of them may
    /// say something else the next time.
    fn guessed(&self) -> u16 {
        let is_guessed = |&block: &u64| match self.winner(block) {
            Winner::Lost | Winner::Nobody => true,
            Winner::Copy(_) if self.right(block).unwrap_or(0) != 0 || self.known(block) == Known::Nothing => false,
            Winner::Copy(copy) => {
                let groups = self.groups(block);
                let alike = groups.iter().filter(|&group| *group == groups[copy]).count();
                alike == 1 && (self.differs(block) || self.sums.slot.is_some())
            }
        };
        let may_change = |block: &u64| {
            (0..COPIES_MAX).any(|copy| self.has(copy, *block) && self.again.steady[copy] >> block & 1 == 0)
        };
        blocks(self.mask).filter(is_guessed).filter(may_change).fold(0, |bits, block| bits | 1 << block)
    }

    /// As if nobody had looked at these blocks.
    fn forget(&mut self, lanes: u16) {
        let Mend { bad, gone, unlike, sums, again, .. } = self;
        let all = bad.iter_mut().chain(gone).chain(unlike.iter_mut().flatten());
        all.chain(&mut sums.wrong).chain(&mut again.steady).for_each(|bits| *bits &= !lanes);
        // What was made by one parity is not read: it is asked for anew, or nothing.
        if self.is_of_row() {
            let were_asked = BY_PARITY.into_iter().filter(|&copy| self.scratch[copy].is_some());
            were_asked.for_each(|copy| self.gone[copy] |= lanes);
        }
        (self.otherwise, self.parities) = Default::default();
    }

    /// Runs of blocks of each copy that are to be compared with what was read before.
    pub(super) fn reread(&self) -> impl Iterator<Item = (usize, (u64, u64))> {
        let has_before = |copy: &usize| self.again.before[*copy].is_some();
        let of_copy =
            |copy: usize| runs(self.again.lanes & !self.bad[copy] & !self.gone[copy]).map(move |run| (copy, run));
        (0..COPIES_MAX).filter(has_before).flat_map(of_copy)
    }

    /// Blocks of a copy are what they were before.
    pub(super) fn note_steady(&mut self, copy: usize, lanes: u16) {
        self.again.steady[copy] |= lanes;
    }
}

impl Engine {
    /// Reads what is guessed again; false where that is not called for.
    pub(super) fn read_mend_again(&mut self, id: u32) -> bool {
        let mend = &self.mends[id];
        let lanes = mend.guessed();
        if lanes == 0 || mend.again.rereads == REREADS_MAX || self.slips(Slip::ReadOnce) {
            return false;
        }
        let mend = &mut self.mends[id];
        (mend.again.rereads, mend.again.lanes) = (mend.again.rereads + 1, lanes);
        mend.forget(lanes);
        let (columns, scratch, is_row) = (mend.columns, mend.scratch, mend.is_of_row());
        let is_asked = |&copy: &usize| columns[copy].is_some() || copy == MADE && is_row;
        for copy in (0..COPIES_MAX).filter(is_asked) {
            let Some(buf) = scratch[copy] else { continue };
            let before = self.mends[id].again.before[copy].unwrap_or_else(|| self.scratch_of(UNIT));
            self.mends[id].again.before[copy] = Some(before);
            for (first, count) in runs(lanes) {
                let of = |buf| range(buf, first * BLOCK, count * BLOCK);
                self.outputs.push_back(Output::Copy(Copy::Move { from: of(buf), to: of(before) }));
                if let Some(column) = columns[copy] {
                    self.issue_mend(id, DeviceOp::Read, column, (first, count), buf);
                }
            }
        }
        if is_row {
            self.ask_row(id, MADE, None, lanes);
        }
        true
    }
}
