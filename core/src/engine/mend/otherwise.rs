//! What the others of a row make is not what the checksum says, and neither is what stands there: one of the others is wrong, and nothing
//! says which, since parity has no checksums. With two parities the block is made once more without each of them in turn, until its
//! checksum agrees.

use super::judge::Known;
use super::{Engine, MADE, Mend, blocks, range};
use crate::engine::Slip;
use crate::engine::rows::Who;
use crate::engine::sums::{MEND_TAG, memory};
use crate::request::{Output, PageWork};
use crate::units::{BLOCK, UNIT};

/// How far it is with that.
#[derive(Clone, Copy, Default)]
pub(in crate::engine) struct Otherwise {
    /// Who is left out.
    without: Option<u8>,
    /// Blocks that are being made without that member.
    lanes: u16,
}

impl Mend {
    /// Blocks that nothing so far has as their checksums say, though something was made.
    fn made_wrong(&self) -> u16 {
        let is_wrong = |&block: &u64| self.right(block) == Some(0) && self.has(MADE, block);
        blocks(self.mask).filter(is_wrong).fold(0, |bits, block| bits | 1 << block)
    }
}

impl Engine {
    /// Goes on with the next member that may be the wrong one; false where there is nothing to try.
    pub(super) fn try_otherwise(&mut self, id: u32) -> bool {
        let mend = &self.mends[id];
        let Some((chunk, unit)) = mend.place.filter(|_| mend.known == Known::Nothing) else { return false };
        let Some(c) = self.pool.chunk(chunk).filter(|c| c.rows() > 0 && c.profile.facts().parity > 1) else {
            return false;
        };
        let (byte, members, lanes) = (u64::from(unit) * UNIT, c.columns.len() as u8, mend.made_wrong());
        let own = self.strip_at(chunk, byte).1;
        let after = mend.otherwise.without.map_or(0, |last| last + 1);
        let next = (after..members).find(|&member| member != own);
        let Some(without) = next.filter(|_| lanes != 0 && !self.slips(Slip::OthersBelieved)) else { return false };
        let mend = &mut self.mends[id];
        mend.otherwise = Otherwise { without: Some(without), lanes };
        // What it comes to is not what stands there, or that would be right.
        mend.unlike[0][MADE] |= lanes;
        mend.sums.wrong[MADE] &= !lanes;
        mend.pending = 1;
        let (first, end) = (u64::from(lanes.trailing_zeros()), u64::from(16 - lanes.leading_zeros()));
        let buf = mend.scratch[MADE].expect("something was made");
        let who = Who::Mend { id, copy: MADE as u8, is_urgent: mend.cause.is_urgent() };
        let to = range(buf, first * BLOCK, (end - first) * BLOCK);
        self.reconstruct_without(Some(without), who, chunk, byte, lanes, to);
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
        let kind = self.sums.kind();
        let mend = &mut self.mends[id];
        mend.pending = 1;
        let (slot, buf) = (mend.sums.slot.expect("it is pinned"), mend.scratch[MADE].expect("something was made"));
        for (first, count) in super::runs(mend.otherwise.lanes & !mend.sums.wrong[MADE]) {
            mend.pending += 1;
            let tag = MEND_TAG | u64::from(id) << 16 | (MADE as u64) << 8 | first;
            let (data, first) = (range(buf, first * BLOCK, count * BLOCK), mend.sums.base + first as u16);
            let page = memory(slot, 0);
            self.outputs.push_back(Output::Page(PageWork::Verify { tag, kind, data, page, first }));
        }
        self.mend_answered(id);
    }
}
