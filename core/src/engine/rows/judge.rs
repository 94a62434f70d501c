//! Strips that were made for a member are compared with their checksums before they are written: parity has none, so what was made of
//! it may be wrong. Then the lanes in question are made once more without each of the others in turn, until their checksums agree.
//!
//! ```text
//!   made of all --> as its checksum says? -- yes --> written
//!                           no: without the next one, if the rest is enough
//!                               none left: what the member itself holds --> as its checksum says? -- yes --> it stays
//!                                                                no: written as made of all, and reads say so
//! ```
//!
//! A member often holds more than what is noted says, since regions count as missed whole: what agrees with a checksum that is
//! of what is there now is right, whoever holds it.

use alloc::vec::Vec;

use super::work::{Member, Step, Trust, What};
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
    /// It is read what the members themselves have that strips were made for.
    pub(super) asks_heirs: bool,
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
            return match self.asks_heirs(id) {
                true => self.read_work(id),
                false => self.write_judged(id),
            };
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

    /// Nothing that the others make is as checksums say: then it is looked at what the members have for whom it is made.
    fn asks_heirs(&mut self, id: u32) -> bool {
        let work = &mut self.rows.works[id];
        let wrong = work.judgement.wrong;
        if wrong == 0 || !work.judgement.is_over || !matches!(work.what, What::Rebuild) || work.trust == Trust::Reads {
            return false;
        }
        let is_asked = |(_, m): &(usize, &Member)| m.made & wrong != 0 && m.new.is_some();
        let heirs = work.members[..work.data].iter().enumerate().filter(is_asked);
        let reads: Vec<(usize, Lanes)> = heirs.map(|(member, m)| (member, m.made & wrong)).collect();
        work.judgement.asks_heirs = !reads.is_empty();
        work.plan = Plan { reads, ..Plan::default() };
        work.judgement.asks_heirs
    }

    /// What members have is read, and checksums had their say: what is right stays as it is, the rest is written as it was made.
    pub(super) fn keep_what_heirs_have(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        let asked: Vec<(usize, Lanes)> = work.plan.reads.clone();
        for (member, lanes) in asked {
            let m = &mut work.members[member];
            let is_told = if m.has_own_sums { lanes & m.asked & !m.bad & !m.doubtful } else { 0 };
            m.made &= !is_told;
        }
        self.write_judged(id);
    }

    /// Strips are as good as they get.
    fn write_judged(&mut self, id: u32) {
        match self.rows.works[id].what {
            What::Copy => self.write_copy(id),
            _ => self.write_made(id),
        }
    }
}
