//! A column on its way to another member: its strips are copied row by row, and whoever writes to one meanwhile writes there too.
//!
//! Each row is copied in its turn, so nobody writes to it while that goes on: what is written before is copied, and what comes
//! after goes to both places. The column changes places when no row of the chunk is worked at; until then new works wait.
//! A strip that its member does not have is made from the others, so a member that is gone is replaced the same way.

use super::work::{Step, What, Work};
use super::{ALL, Engine, Other, RowId};
use crate::chunk::Column;
use crate::engine::Slip;
use crate::engine::mend::runs;
use crate::engine::scrub::Turn;
use crate::engine::sums::BESIDE;
use crate::profile::column_of;
use crate::profile::parity::plan_read;
use crate::request::{DeviceOp, IoError};
use crate::units::{BufRange, ChunkId, STRIP};

/// Rows that are copied at once; fewer while clients want something.
const ACTIVE_MAX: u32 = 8;
const ACTIVE_BUSY: u32 = 2;
/// Rows that one turn passes over.
const TURN: u32 = 4096;

/// How far the copy of a column is.
#[derive(Clone, Default)]
pub(super) struct Copies {
    next: u32,
    active: u32,
    /// Its rows are about to have the column elsewhere: none is worked at anew.
    pub(super) held: Option<ChunkId>,
}

impl Engine {
    /// A column of this chunk is to be copied, from the first row on.
    pub(in crate::engine) fn rewind_column(&mut self) {
        self.rows.copies.next = 0;
    }

    /// Goes on copying the column of a chunk that is on its way. None when every row was tried.
    pub(in crate::engine) fn copy_column(&mut self, id: ChunkId) -> Option<Turn> {
        let max = if self.requests.len() > 0 { ACTIVE_BUSY } else { ACTIVE_MAX };
        let Copies { next, active, .. } = self.rows.copies;
        if active >= max {
            return Some(Turn::Nothing);
        }
        let chunk = self.pool.chunk(id).expect("a chunk on its way does not go");
        let end = chunk.rows().min(next.saturating_add(TURN));
        // One that is not live yet may be on its way to it, by somebody who began before the column did.
        let is_wanted = |row| chunk.is_live(row) || self.rows.lines.contains_key(&(id, row));
        let found = (next..end).find(|&row| is_wanted(row) && !self.slips(Slip::ColumnBeforeCopy));
        let is_over = end == chunk.rows();
        self.rows.copies.next = found.map_or(end, |row| row + 1);
        match found {
            Some(row) => {
                self.rows.copies.active += 1;
                self.want_of_row((id, row), Other::Copy);
                Some(Turn::Moved)
            }
            None if !is_over => Some(Turn::Later),
            None if active > 0 => Some(Turn::Nothing),
            None => None,
        }
    }

    /// Strips are being copied.
    pub(in crate::engine) fn is_copying_column(&self) -> bool {
        self.rows.copies.active > 0
    }

    /// Whether the column of a chunk may change places: nobody works at its rows. Until then nobody begins to.
    pub(in crate::engine) fn hold_rows(&mut self, chunk: ChunkId) -> bool {
        self.rows.copies.held = Some(chunk);
        !self.rows.lines.range((chunk, 0)..=(chunk, u32::MAX)).any(|(_, line)| line.is_worked_at)
    }

    /// It has, or will not.
    pub(in crate::engine) fn release_rows(&mut self) {
        self.rows.copies.held = None;
    }

    /// Where a strip goes besides, while its column is on its way.
    pub(super) fn beside(&self, id: u32, member: usize) -> Option<Column> {
        let (chunk, row) = self.rows.works[id].row;
        let c = self.pool.chunk(self.shifting().filter(|&shifting| shifting == chunk)?)?;
        let shift = c.shift?;
        let is_meant = shift.column == column_of(c.profile, c.columns.len(), row.into(), member);
        is_meant.then(|| Column { offset: shift.to.offset + u64::from(row) * STRIP, ..shift.to })
    }

    /// Lanes of a strip go in place, and to where its column is on its way.
    pub(super) fn write_strip(&mut self, id: u32, member: usize, lane: u64, buf: BufRange, no_merge: bool) {
        let m = &mut self.rows.works[id].members[member];
        let column = m.column;
        match self.pool.is_online(column.device) {
            true => self.issue_strip(id, (member, lane), DeviceOp::Write { fua: false }, (column, 0), buf, no_merge),
            false => m.failed = Some(IoError::Gone),
        }
        self.write_beside(id, member, lane, buf, no_merge);
    }

    /// The same, only to where its column is on its way.
    pub(super) fn write_beside(&mut self, id: u32, member: usize, lane: u64, buf: BufRange, no_merge: bool) {
        let Some(to) = self.beside(id, member) else { return };
        if self.slips(Slip::ColumnMissesWrites) && !matches!(self.rows.works[id].what, What::Copy) {
            return;
        }
        match self.pool.is_online(to.device) {
            true => self.issue_strip(id, (member, lane), DeviceOp::Write { fua: false }, (to, BESIDE), buf, no_merge),
            false => self.shift_failed(self.rows.works[id].row.0),
        }
    }

    pub(super) fn begin_copy_of(&mut self, row: RowId) {
        let id = self.start_work(row, What::Copy);
        let is_wanted = self.pool.chunk(row.0).is_some_and(|c| c.is_live(row.1) && c.shift.is_some());
        match is_wanted {
            false => self.end_work(id),
            true if self.plan_copy(id) => self.read_work(id),
            true => self.fail_work(id),
        }
    }

    /// The member whose strip is copied.
    fn member_on_its_way(&self, id: u32) -> Option<usize> {
        (0..self.rows.works[id].members.len()).find(|&member| self.beside(id, member).is_some())
    }

    /// What the member has is read from it, and the rest is made.
    pub(super) fn plan_copy(&mut self, id: u32) -> bool {
        let Some(member) = self.member_on_its_way(id) else { return false };
        self.plan_copy_of(id, member) || self.give_up_lanes(id, member) && self.plan_copy_of(id, member)
    }

    fn plan_copy_of(&mut self, id: u32, member: usize) -> bool {
        let work = &self.rows.works[id];
        let (members, left_out) = (work.members.len(), work.lost_lanes());
        self.plan_made(id, |row, left| {
            let (own, mut wanted) = (row.good[member] & !left_out, alloc::vec![0; members]);
            wanted[member] = !own & left & !left_out;
            let mut plan = plan_read(row, &wanted).ok()?;
            if own != 0 {
                plan.reads.push((member, own));
            }
            Some(plan)
        })
    }

    /// All that can be had is in memory.
    pub(super) fn write_copy(&mut self, id: u32) {
        let Some(member) = self.member_on_its_way(id) else { return self.end_work(id) };
        let work = &mut self.rows.works[id];
        (work.step, work.pending) = (Step::Write, 1);
        let m = &work.members[member];
        let wanted = ALL & !work.lost_lanes();
        for (lanes, strip) in [(wanted & !m.made, m.old), (wanted & m.made, m.new)] {
            let Some(strip) = strip else { continue };
            for (first, count) in runs(lanes) {
                self.write_beside(id, member, first, strip.range(first, count), false);
            }
        }
        self.count_work_down(id);
    }

    /// A row of the column is over there, or not: then its units go one by one.
    pub(super) fn row_copied(&mut self, work: &Work) {
        self.rows.copies.active -= 1;
        let (chunk, row) = work.row;
        if work.judgement.found_something() {
            self.check_row(work.row);
        }
        match work.error {
            None => self.count_row_moved(chunk, row),
            Some(_) => self.shift_unreadable(chunk),
        }
    }
}
