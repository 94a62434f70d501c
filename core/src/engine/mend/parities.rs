//! A block that a crash may have cut short, whose checksum agrees with nothing: the strip itself has one content, the others of its row
//! make another. Where two parities make the same of it, each by itself, the row is whole with that content, so it is an old or a new
//! state of the block, and what the strip has is neither: that changed silently. With one parity nothing can tell, and the strip stays.

use super::{Engine, MADE, Mend, blocks};
use crate::engine::Slip;

/// In place of copies: what is made by P and not Q, and by Q and not P.
pub(super) const BY_PARITY: [usize; 2] = [2, 3];

/// How far it is with that.
#[derive(Clone, Copy, Default)]
pub(in crate::engine) struct Parities {
    /// It was asked for, if there was something to ask.
    was_tried: bool,
    /// Blocks that are made by each of them.
    lanes: u16,
}

impl Parities {
    /// Two more copies, so to say; all others were compared before.
    pub(super) fn are_asked(&self) -> bool {
        self.lanes != 0
    }
}

impl Mend {
    /// Blocks in doubt that nothing speaks for, and of which the strip and the others of its row have different contents.
    fn undecided(&self) -> u16 {
        let is_undecided =
            |&block: &u64| self.has(0, block) && self.has(MADE, block) && self.right(block).unwrap_or(0) == 0;
        blocks(self.mask & self.doubts & self.unlike[0][MADE])
            .filter(is_undecided)
            .fold(0, |bits, block| bits | 1 << block)
    }

    /// What stands for what both parities make of the block, if that is the same.
    pub(super) fn agreed_by_parities(&self, block: u64) -> Option<usize> {
        let [p, q] = BY_PARITY;
        (self.has(p, block) && self.has(q, block) && self.unlike[p][q] >> block & 1 == 0).then_some(p)
    }
}

impl Engine {
    /// Has what is undecided made by each parity alone; false where there is nothing to ask, or it was asked.
    pub(super) fn ask_parities(&mut self, id: u32) -> bool {
        let mend = &self.mends[id];
        if mend.doubts == 0 || mend.parities.was_tried {
            return false;
        }
        let Some((members, _)) = self.row_with_two_parities(mend) else { return false };
        let lanes = mend.undecided();
        self.mends[id].parities.was_tried = true;
        if lanes == 0 || self.slips(Slip::ParitiesNotAsked) {
            return false;
        }
        self.mends[id].parities.lanes = lanes;
        // Without Q, then without P. Blocks that they decided before stay.
        for (copy, other) in BY_PARITY.into_iter().zip([members - 1, members - 2]) {
            let mend = &mut self.mends[id];
            let lacked = if mend.scratch[copy].is_some() { mend.gone[copy] } else { u16::MAX };
            mend.gone[copy] = lacked & !lanes;
            self.ask_row(id, copy, Some(other), lanes);
        }
        true
    }

    /// What they make is compared with everything else; now with the sums.
    pub(super) fn verify_parities(&mut self, id: u32) {
        let Some(slot) = self.mends[id].sums.slot else { return self.judge_mend(id) };
        let mend = &mut self.mends[id];
        mend.pending = 1;
        let lanes = mend.parities.lanes;
        BY_PARITY.into_iter().for_each(|copy| self.verify_copy(id, copy, slot, lanes));
        self.mend_answered(id);
    }
}
