//! Which strip is wrong, when a scrub finds that neither P nor Q is what the data makes: two parities can tell, if it is one alone.
//!
//! ```text
//!   data member m as P and the other data have it --> Q made with that --> as Q is? --> its checksum, if it has one, agrees?
//!        no: the next m; none at all: parity is written anew                                yes: it is written over what was wrong
//! ```
//!
//! An error in one member shows in Q times a factor that is its own, so no other one explains the same two sums.

use super::work::{Step, Strip, row_tag};
use super::{Engine, Lanes};
use crate::combine::{Addend, Combine};
use crate::engine::mend::{blocks, runs};
use crate::gf;
use crate::request::Output;

/// Data members are tried one after the other.
#[derive(Clone)]
pub(super) struct Hunt {
    /// The one that is tried.
    member: usize,
    /// What is still to be explained.
    lanes: Lanes,
    /// Q as it would be.
    pub(super) q: Strip,
    /// Memory of the one tried before.
    pub(super) spare: Option<Strip>,
}

impl Engine {
    /// Parity was compared with what it should be: where both parities are wrong, it may be the data.
    pub(super) fn parity_compared(&mut self, id: u32) {
        let work = &self.rows.works[id];
        let lanes = match &work.members[work.data..] {
            [p, q] => p.made & q.made & !p.bad & !q.bad,
            _ => 0,
        };
        if lanes == 0 {
            return self.write_checked(id);
        }
        let q = self.strip_for(id, lanes);
        self.rows.works[id].hunt = Some(Hunt { member: 0, lanes, q, spare: None });
        self.try_member(id);
    }

    fn try_member(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        let hunt = work.hunt.as_mut().expect("somebody is looked for");
        let (tried, lanes, q, spare) = (hunt.member, hunt.lanes, hunt.q, hunt.spare.take());
        if tried == work.data || lanes == 0 {
            hunt.spare = spare;
            return self.write_checked(id);
        }
        let right = spare.unwrap_or_else(|| self.strip_for(id, lanes));
        let work = &mut self.rows.works[id];
        (work.step, work.pending) = (Step::Try, 1);
        (work.members[tried].new, work.members[tried].made) = (Some(right), lanes);
        let old = |member: usize| work.members[member].old.expect("a check reads all of a row");
        let others = || (0..work.data).filter(|&member| member != tried);
        for (first, count) in runs(lanes) {
            let term = |member: usize, of_q: u8| Addend { from: old(member).range(first, count), times: [1, of_q] };
            let data = others().map(|other| term(other, gf::pow2(other) ^ gf::pow2(tried)));
            let addends = data.chain([term(work.data, gf::pow2(tried))]).collect();
            let to = [Some(right.range(first, count)), Some(q.range(first, count))];
            self.outputs.push_back(Output::Combine(Combine { to, addends }));
        }
        for lane in blocks(lanes) {
            self.rows.works[id].pending += 1;
            let work = &self.rows.works[id];
            let tag = row_tag(id, tried, lane);
            let (a, b) = (q.range(lane, 1), work.members[work.data + 1].old.expect("just used").range(lane, 1));
            self.outputs.push_back(Output::Compare { tag, a, b });
        }
        self.count_work_down(id);
    }

    /// What this member would have to be explains the lanes that are left of `made`.
    pub(super) fn member_tried(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        let hunt = work.hunt.as_mut().expect("somebody is looked for");
        let tried = hunt.member;
        let m = &mut work.members[tried];
        if m.made == 0 {
            (hunt.spare, hunt.member) = (m.new.take(), tried + 1);
            return self.try_member(id);
        }
        let has_own_sums = m.has_own_sums;
        (work.step, work.pending) = (Step::Believe, 1);
        if has_own_sums {
            self.compare_strip(id, tried);
        }
        self.count_work_down(id);
    }

    /// Checksums had their say: what they call wrong is not it, and it is parity that is.
    pub(super) fn member_believed(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        let hunt = work.hunt.as_mut().expect("somebody is looked for");
        let m = &mut work.members[hunt.member];
        hunt.lanes &= !m.made;
        m.made &= !m.wrong();
        m.doubtful = 0;
        let right = m.made;
        if right == 0 {
            hunt.spare = m.new.take();
        }
        hunt.member += 1;
        work.members[work.data..].iter_mut().for_each(|parity| parity.made &= !right);
        self.try_member(id);
    }
}
