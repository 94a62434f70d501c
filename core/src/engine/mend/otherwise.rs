//! What the others of a row make is not what the checksum says, and neither is what stands there: one of the others is wrong, and nothing
//! says which, since parity has no checksums. With two parities the block is made once more without each of them in turn, until its
//! checksum agrees.

use super::{Engine, MADE, Mend, blocks};
use crate::engine::Slip;

/// How far it is with that.
#[derive(Clone, Copy, Default)]
pub(in crate::engine) struct Otherwise {
    /// Who is left out.
    without: Option<u8>,
    /// Blocks that are being made without that member.
    lanes: u16,
}

impl Mend {
    /// Blocks that nothing so far has as their checksums say, though something was made, and that should be as these say.
    fn made_wrong(&self) -> u16 {
        let is_wrong = |&block: &u64| self.right(block) == Some(0) && self.has(MADE, block);
        blocks(self.mask & !self.doubts).filter(is_wrong).fold(0, |bits, block| bits | 1 << block)
    }
}

impl Engine {
    /// Goes on with the next member that may be the wrong one; false where there is nothing to try.
    pub(super) fn try_otherwise(&mut self, id: u32) -> bool {
        let mend = &self.mends[id];
        let Some((members, own)) = self.row_with_two_parities(mend) else { return false };
        let lanes = mend.made_wrong();
        let after = mend.otherwise.without.map_or(0, |last| last + 1);
        let next = (after..members).find(|&member| member != own);
        let Some(without) = next.filter(|_| lanes != 0 && !self.slips(Slip::OthersBelieved)) else { return false };
        let mend = &mut self.mends[id];
        mend.otherwise = Otherwise { without: Some(without), lanes };
        // What it comes to is not what stands there, or that would be right.
        mend.unlike[0][MADE] |= lanes;
        mend.sums.wrong[MADE] &= !lanes;
        self.ask_row(id, MADE, Some(without), lanes);
        true
    }

    /// These blocks are made without that member, or cannot be; false where nobody is left out yet.
    pub(super) fn made_otherwise(&mut self, id: u32, lanes: u16, fine: bool) -> bool {
        let mend = &mut self.mends[id];
        if mend.otherwise.without.is_none() {
            return false;
        }
        if !fine {
            mend.sums.wrong[MADE] |= lanes;
        }
        mend.pending -= 1;
        if mend.pending == 0 {
            self.verify_otherwise(id);
        }
        true
    }

    /// The page of the unit's sums is still in memory.
    fn verify_otherwise(&mut self, id: u32) {
        self.pass_by_losers(id);
        let mend = &mut self.mends[id];
        mend.pending = 1;
        let (slot, lanes) = (mend.sums.slot.expect("it is pinned"), mend.otherwise.lanes & !mend.sums.wrong[MADE]);
        self.verify_copy(id, MADE, slot, lanes);
        self.mend_answered(id);
    }
}
