//! Strips that were made for a member are compared with their checksums before they are written: parity has none, so what was made of
//! it may be wrong. Then the lanes in question are made once more without each of the others in turn, until their checksums agree.
//!
//! ```text
//!   made of all --> as its checksum says? -- yes --> written
//!                           no: without the next one, if the rest is enough        none left: written as made of all, and reads say so
//! ```

use super::work::{Step, Trust, What};
use super::{ALL, Engine, Lanes};
use crate::engine::Slip;
use crate::profile::parity::{Plan, Row};

/// How far that is.
#[derive(Clone, Copy, Default)]
pub(super) struct Judgement {
    /// Lanes that were not as their checksums say when all others made them.
    wrong: Lanes,
    /// Who is left out.
    pub(super) without: Option<usize>,
    /// All were left out in turn.
    is_over: bool,
}

impl Judgement {
    /// Lanes that are still to be made.
    fn left(&self) -> Lanes {
        if self.wrong == 0 { ALL } else { self.wrong }
    }

    /// Somebody in the row is wrong.
    pub(super) fn found_something(&self) -> bool {
        self.wrong != 0
    }
}

impl Engine {
    /// Strips are made as the plan says, in memory of their own.
    pub(super) fn make_and_judge(&mut self, id: u32) {
        for make in self.rows.works[id].plan.makes.clone() {
            for member in make.to.into_iter().flatten() {
                if self.rows.works[id].members[member].new.is_none() {
                    let strip = self.strip_for(id, ALL);
                    self.rows.works[id].members[member].new = Some(strip);
                }
                self.rows.works[id].members[member].made |= make.lanes;
            }
        }
        self.make_strips(id, |engine, member, lane, count| {
            engine.rows.works[id].members[member].new.expect("just made").range(lane, count)
        });
        let work = &mut self.rows.works[id];
        (work.step, work.pending) = (Step::Believe, 1);
        let is_told = self.sums.is_on() && work.trust != Trust::Reads && !work.judgement.is_over;
        if is_told && !self.slips(Slip::MadeBelieved) {
            for member in 0..self.rows.works[id].data {
                if self.rows.works[id].members[member].made != 0 {
                    self.compare_strip(id, member);
                }
            }
        }
        self.count_work_down(id);
    }

    /// Checksums had their say about what was made.
    pub(super) fn strips_judged(&mut self, id: u32) {
        let work = &self.rows.works[id];
        let is_told = |member: &usize| {
            let m = &work.members[*member];
            m.made & m.wrong() != 0 && !self.doubts_place(work.row.0, work.place(*member))
        };
        let members = (0..work.data).filter(is_told).map(|member| &work.members[member]);
        let wrong = members.fold(0, |lanes, m| lanes | m.made & m.wrong());
        let work = &mut self.rows.works[id];
        // Of a strip that was read, what could not be counted on was made.
        work.members[..work.data].iter_mut().filter(|m| m.made != 0).for_each(|m| m.doubtful = m.made);
        if wrong == 0 || work.judgement.is_over {
            return self.write_judged(id);
        }
        work.judgement.wrong = wrong;
        self.leave_out_next(id);
        self.plan_again(id);
    }

    /// The next one of the others is left out, or in the end nobody; false where that was tried, or nobody is suspected.
    fn leave_out_next(&mut self, id: u32) -> bool {
        let work = &mut self.rows.works[id];
        let Judgement { wrong, without, is_over, .. } = work.judgement;
        if wrong == 0 || is_over {
            return false;
        }
        // Who agrees with a checksum of its own is not the one.
        let is_suspect = |&member: &usize| {
            let m = &work.members[member];
            m.is_good && m.made == 0 && !(m.has_own_sums && m.doubtful == 0 && wrong & !m.asked == 0)
        };
        let next = (without.map_or(0, |last| last + 1)..work.members.len()).find(is_suspect);
        (work.judgement.without, work.judgement.is_over) = (next, next.is_none());
        true
    }

    /// Plans what is to be made of lanes that are left, of all others or without the one that is left out.
    pub(super) fn plan_made(&mut self, id: u32, ask: impl Fn(&Row<'_>, Lanes) -> Option<Plan>) -> bool {
        loop {
            let left = self.rows.works[id].judgement.left();
            let fits = self.plan_work(id, |row| ask(row, left));
            if fits || !self.leave_out_next(id) {
                return fits;
            }
        }
    }

    /// Strips are as good as they get.
    fn write_judged(&mut self, id: u32) {
        match self.rows.works[id].what {
            What::Copy => self.write_copy(id),
            _ => self.write_made(id),
        }
    }
}
