//! What checksums say about a unit that is being mended, and what becomes of them.
//!
//! All copies are in memory; the page of the unit's sums joins them there and is asked about every copy. Where the copy that
//! wins has another sum, or none is kept, the sum follows it.

use super::judge::Winner;
use super::{COPIES_MAX, Engine, Mend, blocks, range, runs};
use crate::engine::lost::Asked;
use crate::engine::sums::{MEND_TAG, Need, Put, locate, memory};
use crate::request::{Event, Output, PageWork};
use crate::units::{BLOCK, UNIT};

/// In place of a copy in a tag: which blocks have no sum.
const UNSUMMED: u64 = COPIES_MAX as u64;

/// Names a question about blocks of a copy, from this one on.
fn tag(id: u32, copy: u64, first: u64) -> u64 {
    MEND_TAG | u64::from(id) << 16 | copy << 8 | first
}

/// What the sums of a unit say.
#[derive(Clone, Default)]
pub(in crate::engine) struct Sums {
    /// The page, which stays in memory until the unit is judged.
    pub(super) slot: Option<u32>,
    /// Place of the unit's first sum in it.
    pub(super) base: u16,
    /// Blocks without a sum.
    unsummed: u16,
    /// By copy: blocks that are not what their sums say.
    pub(super) wrong: [u16; COPIES_MAX],
}

impl Sums {
    pub(super) fn wrong_of(&self, copy: usize) -> u16 {
        self.wrong[copy]
    }
}

impl Mend {
    /// Copies that are what the block's sum says, one bit each; None where nothing is known of it.
    pub(in crate::engine) fn right(&self, block: u64) -> Option<u8> {
        let is_summed = self.sums.slot.is_some() && self.sums.unsummed >> block & 1 == 0;
        let is_right = |copy: &usize| self.has(*copy, block) && self.sums.wrong[*copy] >> block & 1 == 0;
        is_summed.then(|| (0..COPIES_MAX).filter(is_right).fold(0, |bits, copy| bits | 1 << copy))
    }

    /// Blocks of a copy that were read and are not what their sums say.
    pub(in crate::engine) fn wrong(&self, copy: usize) -> u16 {
        blocks(self.mask & self.sums.wrong[copy] & !self.sums.unsummed)
            .filter(|&block| self.has(copy, block))
            .fold(0, |bits, block| bits | 1 << block)
    }

    /// Whether some copy is not there to be asked.
    fn asked(&self) -> Asked {
        let is_unread = |(column, scratch): (&Option<_>, &Option<_>)| column.is_some() && scratch.is_none();
        let lacks_copies = self.stale != 0
            || self.gone.iter().any(|&gone| gone != 0)
            || self.columns.iter().zip(&self.scratch).any(is_unread);
        if lacks_copies { Asked::Here } else { Asked::All }
    }
}

impl Engine {
    /// The copies are compared with each other; now with their sums, where there are some.
    pub(super) fn verify_mend(&mut self, id: u32) {
        let mend = &self.mends[id];
        if mend.parities.are_asked() {
            return self.verify_parities(id);
        }
        if let Some(slot) = mend.sums.slot {
            return self.verify_copies(id, slot, 1);
        }
        let Some((chunk, place)) = mend.place.filter(|_| mend.volume().is_some_and(|v| self.is_summed(v))) else {
            return self.judge_mend(id);
        };
        let (index, base) = locate(self.sums.kind(), u64::from(place) * UNIT);
        self.mends[id].sums.base = base;
        self.with_page(chunk, index, Need::Mend(id));
    }

    /// The page is in memory.
    pub(in crate::engine) fn mend_page_ready(&mut self, id: u32, slot: u32) {
        let (kind, page) = (self.sums.kind(), memory(slot, 0));
        self.pin_page(slot);
        let mend = &mut self.mends[id];
        mend.sums.slot = Some(slot);
        let mut asked = 0;
        for (first, count) in runs(mend.mask) {
            asked += 1;
            let (tag, first) = (tag(id, UNSUMMED, first), mend.sums.base + first as u16);
            self.outputs.push_back(Output::Page(PageWork::Unsummed { tag, kind, page, first, count: count as u16 }));
        }
        self.verify_copies(id, slot, asked + 1);
    }

    /// All that was read, or made, is compared with the sums. So many answers are to come besides, and one of them is this call's own.
    fn verify_copies(&mut self, id: u32, slot: u32, pending: u32) {
        let mend = &mut self.mends[id];
        mend.pending = pending;
        let mask = mend.mask;
        (0..COPIES_MAX).for_each(|copy| self.verify_copy(id, copy, slot, mask));
        self.mend_answered(id);
    }

    /// Blocks that were read of a copy, or made in its place, are compared with the sums.
    pub(super) fn verify_copy(&mut self, id: u32, copy: usize, slot: u32, blocks: u16) {
        let (kind, page) = (self.sums.kind(), memory(slot, 0));
        let mend = &mut self.mends[id];
        let Some(buf) = mend.scratch[copy] else { return };
        for (first, count) in runs(blocks & !mend.bad[copy] & !mend.gone[copy]) {
            mend.pending += 1;
            let data = range(buf, first * BLOCK, count * BLOCK);
            let tag = tag(id, copy as u64, first);
            let first = mend.sums.base + first as u16;
            self.outputs.push_back(Output::Page(PageWork::Verify { tag, kind, data, page, first }));
        }
    }

    /// The page cannot be had: nothing is known but the copies.
    pub(in crate::engine) fn mend_page_refused(&mut self, id: u32) {
        self.mends[id].lacks_sums = true;
        self.judge_mend(id);
    }

    /// An answer about one copy, or about the page.
    pub(in crate::engine) fn mend_verified(&mut self, tag: u64, bad: u16) {
        let id = ((tag & !MEND_TAG) >> 16) as u32;
        let (copy, first) = ((tag >> 8 & 0xff) as usize, tag & 0xff);
        let sums = &mut self.mends[id].sums;
        match sums.wrong.get_mut(copy) {
            Some(wrong) => *wrong |= bad << first,
            None => sums.unsummed |= bad << first,
        }
        self.mend_answered(id);
    }

    pub(super) fn mend_answered(&mut self, id: u32) {
        let mend = &mut self.mends[id];
        mend.pending -= 1;
        if mend.pending == 0 && !self.try_otherwise(id) {
            self.judge_mend(id);
        }
    }

    /// Sums follow the winners that have others or none, what is wrong is counted and what is lost is noted.
    pub(super) fn settle_sums(&mut self, id: u32) {
        let Some(slot) = self.mends[id].sums.slot else { return self.note_unreadable(id) };
        let mask = self.mends[id].mask;
        let agreed = self.mends[id].agreed() & !self.mends[id].sums.unsummed;
        let (mut good, mut lost) = (agreed, self.mends[id].unread());
        for block in blocks(mask & !agreed) {
            let mend = &self.mends[id];
            match mend.winner(block) {
                Winner::Copy(copy) => {
                    good |= 1 << block;
                    if mend.right(block).is_none_or(|right| right == 0) {
                        let data = range(mend.scratch[copy].expect("it was read"), block * BLOCK, BLOCK);
                        let first = mend.sums.base + block as u16;
                        self.put_sums(Put::Data(data), slot, first);
                    }
                }
                Winner::Lost => lost |= 1 << block,
                Winner::Nobody => {}
            }
        }
        let mend = &self.mends[id];
        let (volume, unit) = mend.target.home().expect("only units of volumes have sums");
        let (doubts, unread) = (mend.doubts, mend.unread());
        if mend.place.is_some_and(|(chunk, _)| self.has_rows(chunk)) {
            // What a client wrote there once may have come in place, and its sums not.
            for (first, count) in runs(doubts & !self.entry(volume, unit).written()) {
                let first = self.mends[id].sums.base + first as u16;
                self.put_sums(Put::Nothing(count as u16), slot, first);
            }
        }
        self.count_wrong_copies(id);
        self.note_lost(volume, unit, good, lost, self.mends[id].asked());
        self.note_sums_changed(volume, unit);
        if doubts & !unread != 0 && !self.commit.is_opening() {
            self.pass_page_by_absent(slot);
        }
        self.unpin_page(slot);
    }

    /// Without sums nothing is wrong that can be read.
    fn note_unreadable(&mut self, id: u32) {
        let mend = &self.mends[id];
        let Some((volume, unit)) = mend.target.home() else { return };
        let (unread, asked) = (mend.unread(), mend.asked());
        // Where there are sums that cannot be had, what can be read may be wrong.
        let good = if self.is_summed(volume) { 0 } else { mend.mask & !unread };
        self.note_lost(volume, unit, good, unread, asked);
    }

    /// Copies that differ because writes were cut short are no errors.
    fn count_wrong_copies(&mut self, id: u32) {
        let mend = &self.mends[id];
        let (target, base, at) = (mend.volume(), mend.base(), mend.offset);
        let Some(volume) = target else { return };
        let copies: [_; COPIES_MAX] =
            core::array::from_fn(|copy| mend.columns[copy].map(|c| (c, mend.wrong(copy) & !mend.doubts)));
        let (name, by_scrub) = (self.volume_name(target), matches!(mend.cause, super::Cause::Scrub(_)));
        for (column, wrong) in copies.into_iter().flatten() {
            self.count_wrong(column.device, wrong.count_ones().into());
            for (first, count) in runs(wrong) {
                let (device, device_offset) = (column.device, column.offset + at + first * BLOCK);
                let (offset, len, name) = (base + first * BLOCK, count * BLOCK, name.clone());
                let event = Event::BadCopy { volume, name, offset, len, device, device_offset };
                match by_scrub {
                    true => self.tell_place(event),
                    false => self.outputs.push_back(Output::Event(event)),
                }
            }
        }
    }
}
