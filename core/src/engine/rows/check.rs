//! Parity that is in doubt: the row is read whole, under its lock, and its parity made once more. What is not alike is written anew,
//! where checksums find nothing wrong with the data, and two parities neither. A [scrub](super::super::scrub) has it done, and a mend,
//! where it leaves a strip as it is that the others of its row would make otherwise.

use alloc::collections::BTreeSet;

use super::work::{Step, TAG, What, Work, row_tag};
use super::{ALL, Engine, Other, RowId};
use crate::engine::mend::runs;
use crate::profile::parity::plan_read;
use crate::request::{Event, Output};
use crate::units::BLOCK;

/// Rows that wait to be looked at until all their members are there; what is beyond is found by a scrub.
const DEFERRED_MAX: usize = 4096;

/// Who has a row looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looker {
    /// In this piece of its parity is not what the data makes, or could not be read.
    Scrub(u32),
    /// It found that a strip stays as it is although the others of its row make something else.
    Mend,
}

/// Looks that have to wait.
#[derive(Clone, Default)]
pub(super) struct Checks {
    /// A mend wants them looked at, and somebody was not there, or behind.
    deferred: BTreeSet<RowId>,
}

impl Checks {
    /// Rows that wait to be looked at until all their members are there.
    pub(super) fn deferred(&self) -> usize {
        self.deferred.len()
    }
}

impl Engine {
    /// A scrub doubts this row of a piece.
    pub(in crate::engine) fn look_at_row(&mut self, row: RowId, piece: u32) {
        self.want_of_row(row, Other::Check(Looker::Scrub(piece)));
    }

    /// A strip stays as it is, and the others of the row make something else: whoever made it of them would lose it.
    pub(in crate::engine) fn check_row(&mut self, row: RowId) {
        self.want_of_row(row, Other::Check(Looker::Mend));
    }

    pub(super) fn begin_check(&mut self, row: RowId, by: Looker) {
        let id = self.start_work(row, What::Check(by));
        match self.plan_check(id) {
            true => self.read_work(id),
            // Somebody is not there, or behind: a scrub goes on, what a mend has found is kept.
            false => {
                if by == Looker::Mend && self.rows.checks.deferred.len() < DEFERRED_MAX {
                    self.rows.checks.deferred.insert(row);
                }
                self.end_work(id);
            }
        }
    }

    /// A member is whole again: rows that could not be looked at without it are now.
    pub(in crate::engine) fn check_deferred_rows(&mut self) {
        for row in core::mem::take(&mut self.rows.checks.deferred) {
            if self.pool.chunk(row.0).is_some_and(|chunk| chunk.is_live(row.1)) {
                self.check_row(row);
            }
        }
    }

    /// All of it is read, and parity made from the data.
    fn plan_check(&mut self, id: u32) -> bool {
        let work = &self.rows.works[id];
        let chunk = self.pool.chunk(work.row.0).expect("a row is in a chunk");
        if !chunk.is_live(work.row.1) || !work.members.iter().all(|m| m.is_good) {
            return false;
        }
        let (data, all) = (work.data, work.members.len());
        let mut wanted = alloc::vec![0; all];
        wanted[data..].fill(ALL);
        let fits = self.plan_work(id, |row| plan_read(row, &wanted).ok());
        if fits {
            self.rows.works[id].plan.reads.extend((data..all).map(|member| (member, ALL)));
        }
        fits
    }

    /// All is in memory that can be had.
    pub(super) fn check_parity_of(&mut self, id: u32) {
        let work = &self.rows.works[id];
        // What is wrong with data has been put right before, or will be, if that is possible.
        // Nor is what its sums are about to follow told from what changed since it was written: parity may know better.
        let passed_by = (0..work.data).fold(0, |lanes, member| {
            let (m, is_lagging) = (&work.members[member], self.sums.is_lagging(work.row.0, work.place(member)));
            lanes | m.bad | if is_lagging { m.doubtful } else { m.wrong() }
        });
        if passed_by == ALL {
            return self.end_work(id);
        }
        for member in self.rows.works[id].data..self.rows.works[id].members.len() {
            let strip = self.strip_for(id, ALL);
            self.rows.works[id].members[member].new = Some(strip);
        }
        self.make_strips(id, |engine, member, lane, count| {
            engine.rows.works[id].members[member].new.expect("just made").range(lane, count)
        });
        let work = &mut self.rows.works[id];
        (work.step, work.pending) = (Step::Compare, 1);
        for member in work.data..work.members.len() {
            let m = &mut work.members[member];
            m.made = m.bad & !passed_by;
            let (Some(old), Some(new)) = (m.old, m.new) else { continue };
            for (first, count) in runs(!m.bad & !passed_by) {
                for lane in first..first + count {
                    work.pending += 1;
                    let tag = row_tag(id, member, lane);
                    let (a, b) = (old.range(lane, 1), new.range(lane, 1));
                    self.outputs.push_back(Output::Compare { tag, a, b });
                }
            }
        }
        self.count_work_down(id);
    }

    /// One lane of parity was compared with what it should be, or would be; or of a strip with what was read before.
    pub(in crate::engine) fn row_compared(&mut self, tag: u64, equal: bool) {
        let (id, member, lane) = (((tag & !TAG) >> 16) as u32, (tag >> 8 & 0xff) as usize, tag & 0xff);
        let work = &mut self.rows.works[id];
        let m = &mut work.members[member];
        match work.step {
            // What it would be explains this lane, or does not.
            Step::Try => m.made &= !(u16::from(!equal) << lane),
            Step::Verify => m.steady |= u16::from(equal) << lane,
            _ => m.made |= u16::from(!equal) << lane,
        }
        self.count_work_down(id);
    }

    /// What is not as it should be is written anew.
    pub(super) fn write_checked(&mut self, id: u32) {
        let work = &self.rows.works[id];
        let is_repaired = |&member: &usize| work.members[member].new.is_some() && work.members[member].made != 0;
        for member in (0..work.data).filter(is_repaired) {
            self.moving.note_repair((work.row.0, work.place(member)));
        }
        self.write_made(id);
    }

    /// What was made of each member's strip goes to its place.
    pub(super) fn write_made(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        (work.step, work.pending) = (Step::Write, 1);
        for member in 0..self.rows.works[id].members.len() {
            let m = &self.rows.works[id].members[member];
            let (Some(strip), made) = (m.new, m.made) else { continue };
            for (first, count) in runs(made) {
                self.write_strip(id, member, first, strip.range(first, count), false);
            }
        }
        self.count_work_down(id);
    }

    /// A row was looked at.
    pub(super) fn checked(&mut self, by: Looker, work: &Work) {
        let by_scrub = matches!(by, Looker::Scrub(_)) && !self.scrub.is_ended();
        let wrong = work.members.iter().enumerate().filter(|(_, m)| m.made != 0 && m.new.is_some());
        for (member, m) in wrong {
            let count = u64::from(m.made.count_ones());
            let repaired = if m.failed.is_none() { count } else { 0 };
            if by_scrub {
                let scrub = &mut self.pool.scrub;
                scrub.differences = scrub.differences.saturating_add(count);
                scrub.repaired = scrub.repaired.saturating_add(repaired);
            }
            if repaired == 0 {
                continue;
            }
            let (device, at) = (m.column.device, m.column.offset);
            // Where all that it is made of is what checksums say it is parity that changed.
            let is_summed = || work.members[..work.data].iter().all(|m| m.has_own_sums);
            if by_scrub && member >= work.data && is_summed() && !self.doubts_row(work.row) {
                self.count_wrong(device, u64::from((m.made & !m.bad).count_ones()));
            }
            if let Some(member) = self.pool.device_mut(device) {
                member.counters.repaired += count;
            }
            for (first, count) in runs(m.made) {
                let ((chunk, row), len, device_offset) = (work.row, count * BLOCK, at + first * BLOCK);
                let is_data = member < work.data;
                let event = Event::RowRepaired { chunk, row, is_data, len, device, device_offset };
                match by {
                    Looker::Scrub(_) => self.tell_place(event),
                    Looker::Mend => self.outputs.push_back(Output::Event(event)),
                }
            }
        }
        if let Looker::Scrub(piece) = by {
            self.row_looked_at(piece, work.members.iter().any(|m| m.asked != 0));
        }
    }
}
