//! Strips that are counted on although their checksums say something else, since nothing could be made of the row otherwise. After a crash
//! content may be newer than its checksum; but it may also have been misread, and parity of that would have it come back later. So they are
//! read until they say the same twice in a row, as in [mends](crate::engine::mend).

use alloc::vec::Vec;

use super::work::{Step, Strip, What, Work, row_tag};
use super::{ALL, Engine, Lanes};
use crate::engine::Slip;
use crate::engine::mend::{REREADS_MAX, blocks};
use crate::request::{Copy, DeviceOp, Output};

/// How far it is with that.
#[derive(Clone, Default)]
pub(super) struct Again {
    /// How often.
    rereads: u8,
    /// What was read before: member, memory, lanes.
    pub(super) before: Vec<(usize, Strip, Lanes)>,
}

impl Work {
    /// By member, lanes that nothing speaks for and that may say something else the next time: parity among them, where it is.
    fn believed(&self, is_parity: bool) -> Vec<(usize, Lanes)> {
        let believed = |&(member, lanes): &(usize, Lanes)| {
            let m = &self.members[member];
            let unsaid = if member >= self.data && is_parity { ALL } else { m.doubtful | m.unsure };
            (member, lanes & m.asked & !m.bad & unsaid & !m.steady)
        };
        self.plan.reads.iter().map(believed).filter(|(_, lanes)| *lanes != 0).collect()
    }
}

impl Engine {
    /// Reads what is believed again; false where that is not called for.
    pub(super) fn read_believed_again(&mut self, id: u32) -> bool {
        let work = &self.rows.works[id];
        let (row, rereads, is_change) = (work.row, work.again.rereads, matches!(work.what, What::Change(_)));
        if rereads == REREADS_MAX || self.slips(Slip::ReadOnce) {
            return false;
        }
        // Parity has no checksum, and what is made of a strip in doubt is not held to one.
        let is_parity = is_change && self.sums.is_on() && self.is_row_left(row);
        let believed = self.rows.works[id].believed(is_parity);
        if believed.is_empty() {
            return false;
        }
        let work = &mut self.rows.works[id];
        (work.step, work.pending, work.again.rereads) = (Step::Read, 1, rereads + 1);
        for (_, strip, _) in core::mem::take(&mut work.again.before) {
            self.outputs.push_back(Output::Copy(Copy::Drop(strip.buf)));
        }
        for (member, lanes) in believed {
            let before = self.strip_for(id, lanes);
            let work = &mut self.rows.works[id];
            work.again.before.push((member, before, lanes));
            let m = &work.members[member];
            let (column, old) = (m.column, m.old.expect("it was read"));
            for lane in blocks(lanes) {
                let (from, to) = (old.range(lane, 1), before.range(lane, 1));
                self.outputs.push_back(Output::Copy(Copy::Move { from, to }));
                self.issue_strip(id, (member, lane), DeviceOp::Read, (column, 0), from, false);
            }
        }
        self.count_work_down(id);
        true
    }

    /// What was read again is compared with what it was before.
    pub(super) fn compare_believed(&mut self, id: u32) {
        for i in 0..self.rows.works[id].again.before.len() {
            let work = &mut self.rows.works[id];
            let (member, before, lanes) = work.again.before[i];
            let m = &work.members[member];
            let (lanes, old) = (lanes & !m.bad & !m.steady, m.old.expect("it was read"));
            for lane in blocks(lanes) {
                self.rows.works[id].pending += 1;
                let tag = row_tag(id, member, lane);
                let (a, b) = (old.range(lane, 1), before.range(lane, 1));
                self.outputs.push_back(Output::Compare { tag, a, b });
            }
        }
    }
}
