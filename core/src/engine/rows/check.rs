//! Parity under a scrub: when all that volumes hold was read, each live row is read whole and its parity made once more. What is
//! not alike is written anew, where checksums find nothing wrong with the data, and two parities neither. A mend has it looked at
//! too, where it leaves a strip as it is that the others of its row would make otherwise.
//!
//! A row is read under its lock, which a client that writes there may wait for, so its reads are not of the class of the scrub: one
//! that settings hold back would hold that client back. It is rows that are held back, before they begin: see [`Engine::rows_at_once`].

use alloc::collections::BTreeSet;

use super::work::{Step, TAG, What, Work};
use super::{ALL, Engine, Other, RowId};
use crate::chunk::Chunk;
use crate::engine::mend::runs;
use crate::engine::scrub::Turn;
use crate::profile::parity::plan_read;
use crate::queue::class::Class;
use crate::queue::limits::QueueSettings;
use crate::request::{Event, Output};
use crate::scrub::{MEMORY, Place, State};
use crate::units::{BLOCK, ChunkId, DeviceId, STRIP};

/// Rows that there is always memory for.
const IN_MEMORY_MIN: u32 = 4;
/// Whose place it is, among those of members, where a scrub is with rows.
const ROWS_PLACE: DeviceId = DeviceId(0);
/// Rows that one turn passes over.
const TURN: u32 = 4096;
/// Rows that wait to be looked at until all their members are there; what is beyond is found by a scrub.
const DEFERRED_MAX: usize = 4096;

/// Who has a row looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looker {
    Scrub,
    /// It found that a strip stays as it is although the others of its row make something else.
    Mend,
}

/// How far a scrub is with rows.
#[derive(Clone, Default)]
pub(super) struct Checks {
    next: Option<RowId>,
    active: BTreeSet<RowId>,
    /// Rows that were passed since a client was seen at work.
    calm: u32,
    /// As many as the memory of a scrub has room for, where it is now.
    in_memory: u32,
    /// A mend wants them looked at, and somebody was not there, or behind.
    deferred: BTreeSet<RowId>,
}

impl Checks {
    /// Rows that wait to be looked at until all their members are there.
    pub(super) fn deferred(&self) -> usize {
        self.deferred.len()
    }
}

fn strips_of(chunk: &Chunk) -> u64 {
    chunk.columns.len() as u64
}

impl Engine {
    /// A scrub begins, or ended: rows come behind what volumes hold, from the first one on.
    pub(in crate::engine) fn rewind_rows(&mut self) {
        self.rows.checks.next = None;
        // What a canceled one has under way is none of this one's.
        self.rows.checks.active.clear();
        self.pool.scrub.places.remove(&ROWS_PLACE);
    }

    /// What a scrub has to read of a chunk's rows, which it does behind the content of volumes.
    pub(in crate::engine) fn bytes_of_rows(chunk: &Chunk) -> u64 {
        chunk.live_rows() * strips_of(chunk) * STRIP
    }

    /// Rows that a scrub may have under way: each is a command on each of its members, so as many as the class of a scrub may have
    /// there, and its least while clients are at work: until `nia_delay` rows were passed without one.
    fn rows_at_once(&mut self) -> usize {
        if self.requests.len() > 0 {
            self.rows.checks.calm = 0;
        }
        let Checks { next, calm, .. } = self.rows.checks;
        let columns = next.and_then(|(chunk, _)| self.pool.chunk(chunk)).map_or(&[][..], |chunk| &chunk.columns);
        let limits = columns.iter().filter_map(|column| Some(self.queues.get(column.device)?.limits()));
        let of = |limits: &QueueSettings| match (limits.class(Class::Scrub), calm < limits.nia_delay()) {
            (class, true) => class.min,
            (class, false) => class.max,
        };
        let allowed = limits.map(of).min();
        allowed.unwrap_or(1).clamp(1, self.rows.checks.in_memory.max(IN_MEMORY_MIN)) as usize
    }

    /// Goes on with rows; None when there is none left.
    pub(in crate::engine) fn scrub_rows(&mut self) -> Option<Turn> {
        if self.rows.checks.active.len() >= self.rows_at_once() {
            return Some(Turn::Nothing);
        }
        let resumed = || {
            let place = self.pool.scrub.places.get(&ROWS_PLACE)?;
            Some((ChunkId((place.start / STRIP) as u32), place.unit))
        };
        let (first, mut at) = self.rows.checks.next.or_else(resumed).unwrap_or_default();
        let mut spent = 0;
        let mut found = None;
        for chunk in self.pool.chunks() {
            let is_wanted = chunk.id >= first && chunk.id.0 < self.pool.scrub.end && chunk.rows() > 0 && !chunk.closing;
            if !is_wanted {
                continue;
            }
            at = if chunk.id == first { at } else { 0 };
            let left = chunk.rows().saturating_sub(at).min(TURN - spent);
            if let Some(row) = (at..at + left).find(|&row| chunk.is_live(row)) {
                // Strips of data, and parity as it is and as it should be.
                let strips = strips_of(chunk) + chunk.profile.facts().parity as u64;
                self.rows.checks.in_memory = (MEMORY / (strips * STRIP)) as u32;
                found = Some((chunk.id, row));
                break;
            }
            spent += left;
            if spent >= TURN {
                self.rows.checks.next = Some((chunk.id, at + left));
                return Some(Turn::Later);
            }
        }
        match found {
            Some((chunk, row)) => {
                self.rows.checks.next = Some((chunk, row + 1));
                self.rows.checks.active.insert((chunk, row));
                self.want_of_row((chunk, row), Other::Check(Looker::Scrub));
                // Without a member rows end at once, and clients are not to wait for all of them.
                let is_read = self.rows.checks.active.contains(&(chunk, row));
                Some(if is_read { Turn::Moved } else { Turn::Later })
            }
            // The end is kept in mind until the scrub ends, as superblocks come behind.
            None => {
                self.rows.checks.next = Some((ChunkId(u32::MAX), 0));
                (!self.rows.checks.active.is_empty()).then_some(Turn::Nothing)
            }
        }
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
                    let tag = TAG | u64::from(id) << 16 | (member as u64) << 8 | lane;
                    let (a, b) = (old.range(lane, 1), new.range(lane, 1));
                    self.outputs.push_back(Output::Compare { tag, a, b });
                }
            }
        }
        self.count_work_down(id);
    }

    /// One lane of parity was compared with what it should be, or would be.
    pub(in crate::engine) fn row_compared(&mut self, tag: u64, equal: bool) {
        let (id, member, lane) = (((tag & !TAG) >> 16) as u32, (tag >> 8 & 0xff) as usize, tag & 0xff);
        let work = &mut self.rows.works[id];
        let m = &mut work.members[member];
        match work.step {
            // What it would be explains this lane, or does not.
            Step::Try => m.made &= !(u16::from(!equal) << lane),
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

    /// A scrub is done with a row.
    fn passed_row(&mut self, work: &Work) {
        let checks = &mut self.rows.checks;
        if !checks.active.remove(&work.row) {
            return;
        }
        checks.calm = checks.calm.saturating_add(1);
        let (chunk, row) = checks.active.first().copied().or(checks.next).unwrap_or_default();
        let bytes = work.members.len() as u64 * STRIP;
        let parity = (work.members.len() - work.data) as u64 * STRIP;
        let scrub = &mut self.pool.scrub;
        if !matches!(scrub.state, State::Running | State::Paused) {
            return;
        }
        scrub.done = scrub.done.saturating_add(bytes);
        scrub.places.insert(ROWS_PLACE, Place { start: u64::from(chunk.0.min(scrub.end)) * STRIP, unit: row });
        // What is there of data was read before.
        if work.members.iter().any(|m| !m.is_good) {
            scrub.unread = scrub.unread.saturating_add(parity);
        }
        self.note_scrub();
    }

    /// A row was looked at.
    pub(super) fn checked(&mut self, by: Looker, work: &Work) {
        let by_scrub = by == Looker::Scrub;
        if by_scrub {
            self.passed_row(work);
        }
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
            if let Some(member) = self.pool.device_mut(device) {
                member.counters.repaired += count;
            }
            for (first, count) in runs(m.made) {
                let ((chunk, row), len, device_offset) = (work.row, count * BLOCK, at + first * BLOCK);
                let is_data = member < work.data;
                let event = Event::RowRepaired { chunk, row, is_data, len, device, device_offset };
                match by {
                    Looker::Scrub => self.tell_place(event),
                    Looker::Mend => self.outputs.push_back(Output::Event(event)),
                }
            }
        }
    }
}
