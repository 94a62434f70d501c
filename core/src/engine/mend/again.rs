//! Blocks that nothing decides are read once more: a cable, a controller or memory may have given something else than what stands there.
//!
//! A block in doubt whose copies differ would become what the first of them says, for good; and one that no copy has as its checksum
//! says would be an error. Mostly they are the same again, after a write that was cut short or where something rotted, and are judged then.

use super::judge::{Known, majority};
use super::parities::BY_PARITY;
use super::{COPIES_MAX, Engine, MADE, Mend, blocks, runs};
use crate::engine::Slip;
use crate::request::DeviceOp;

/// Times that blocks of a unit are read again at most.
const REREADS_MAX: u8 = 2;

impl Mend {
    /// Blocks that would be lost, or that were in doubt and would be decided by the order of their copies.
    fn guessed(&self) -> u16 {
        let is_guessed = |&block: &u64| match (self.known(block), self.right(block)) {
            (_, Some(right)) if right != 0 => false,
            (Known::Nothing, right) => right.is_some() && (0..COPIES_MAX).any(|copy| self.has(copy, block)),
            (Known::Dirty, _) => self.differs(block) && majority(&self.groups(block)).is_none(),
            (Known::DirtyStrip, _) => self.differs(block) && self.agreed_by_parities(block).is_none(),
        };
        blocks(self.mask).filter(is_guessed).fold(0, |bits, block| bits | 1 << block)
    }

    /// As if nobody had looked at these blocks.
    fn forget(&mut self, lanes: u16) {
        let Mend { bad, gone, unlike, sums, .. } = self;
        let all = bad.iter_mut().chain(gone).chain(unlike.iter_mut().flatten()).chain(&mut sums.wrong);
        all.for_each(|bits| *bits &= !lanes);
        // What was made by one parity is not read: it is asked for anew, or nothing.
        if self.is_of_row() {
            let were_asked = BY_PARITY.into_iter().filter(|&copy| self.scratch[copy].is_some());
            were_asked.for_each(|copy| self.gone[copy] |= lanes);
        }
        (self.otherwise, self.parities) = Default::default();
    }
}

impl Engine {
    /// Reads what is guessed again; false where that is not called for.
    pub(super) fn read_mend_again(&mut self, id: u32) -> bool {
        let mend = &self.mends[id];
        let lanes = mend.guessed();
        if lanes == 0 || mend.rereads == REREADS_MAX || self.slips(Slip::ReadOnce) {
            return false;
        }
        let mend = &mut self.mends[id];
        mend.rereads += 1;
        mend.forget(lanes);
        let (columns, scratch, is_row) = (mend.columns, mend.scratch, mend.is_of_row());
        for (column, buf) in columns.into_iter().zip(scratch).filter_map(|(column, buf)| column.zip(buf)) {
            for run in runs(lanes) {
                self.issue_mend(id, DeviceOp::Read, column, run, buf);
            }
        }
        if is_row {
            self.ask_row(id, MADE, None, lanes);
        }
        true
    }
}
