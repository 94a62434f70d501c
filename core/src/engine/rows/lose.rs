//! Lanes of a row that nothing can be made of any more, while a column of it goes to another member: what stood there is given up,
//! and zeros take its place.
//!
//! ```text
//!   plan      too much of a lane is unreadable              every member was asked, or leaves and is not here
//!   copy      the other lanes of the strip
//!   stable    the record that says what is lost             before anything is written over
//!   forget    its checksums
//!   zeros     to all data that cannot be read               a sector that takes none either ends it here
//!   change    the same with parity, by way of the journal   the row is whole again
//! ```
//!
//! All in one turn of the row, so nobody writes there between the look and the zeros.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::work::{Member, Step, Trust, What, Work, part_of};
use super::{ALL, Engine, Lanes, Part, RowId, Writer};
use crate::engine::mend::runs;
use crate::engine::sums::{Need, Put, locate};
use crate::engine::{Slip, Waiter};
use crate::profile::parity::{Lost, Row, plan_read};
use crate::request::DeviceOp;
use crate::units::{DeviceId, STRIP};
use crate::volume::block_mask;

impl Work {
    /// Lanes that were given up, of any member.
    pub(super) fn lost_lanes(&self) -> Lanes {
        self.lost.iter().fold(0, |all, lanes| all | lanes)
    }
}

impl Engine {
    /// The strip that is copied cannot be made: gives up what cannot be known any more, if that may be.
    pub(super) fn give_up_lanes(&mut self, id: u32, member: usize) -> bool {
        let work = &self.rows.works[id];
        let (chunk, row) = work.row;
        if !self.is_last_try(chunk) || self.rows.torn.contains_key(&work.row) || self.is_row_left((chunk, row)) {
            return false;
        }
        let work = &self.rows.works[id];
        let known = work.lost_lanes();
        let good: Vec<Lanes> = work.members.iter().map(|m| m.readable()).collect();
        let counted = alloc::vec![ALL; work.data];
        let mut wanted = alloc::vec![0; work.members.len()];
        wanted[member] = ALL & !good[member] & !known;
        let parity = work.members.len() - work.data;
        let all = Row { data: work.data, parity, counted: &counted, good: &good };
        let Err(Lost { lanes }) = plan_read(&all, &wanted) else { return false };
        let was_asked = |m: &Member| match m.is_good {
            true => !self.was_away(m.column.device, work.roster),
            false => !self.may_have(m.column.device) && !self.is_up_to_date(m.column.device, work.row),
        };
        if !work.members.iter().all(|m| m.readable() & lanes == lanes || was_asked(m)) {
            return false;
        }
        let mut lost = work.lost.clone();
        lost.resize(work.data, 0);
        let mut owners = Vec::new();
        for (member, good) in good.iter().enumerate().take(work.data) {
            let here = lanes & !good;
            lost[member] |= here;
            if here != 0 {
                match self.owner_in_rows(chunk, work.place(member)) {
                    Some(owner) => owners.extend(owner.map(|owner| (owner, here))),
                    None => return false,
                }
            }
        }
        let blocks_of = |lane: u32| lost.iter().filter(|lanes| **lanes >> lane & 1 == 1).count() + parity;
        let all = lost.iter().fold(0, |all, lanes| all | lanes);
        let blocks: usize = (0..Lanes::BITS).filter(|lane| all >> lane & 1 == 1).map(blocks_of).sum();
        // A row that loses more than was seen first counts once.
        let may_go_on = known != 0 || self.may_give_up(chunk, owners.len() as u64);
        if blocks as u64 > self.rows.ring.entry_max() || !may_go_on {
            return false;
        }
        if known == 0 {
            self.count_given_up(chunk);
        }
        for ((volume, unit), lanes) in owners {
            if self.is_summed(volume) {
                self.mark_moved(volume, unit);
            }
            self.give_up_blocks(volume, unit, lanes);
        }
        self.rows.works[id].lost = lost;
        true
    }

    /// The rest of the strip is over there.
    pub(super) fn copy_written(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        if work.lost.is_empty() || work.error.is_some() {
            return self.end_work(id);
        }
        work.step = Step::Note;
        if self.slips(Slip::LostNotSaid) {
            return self.lanes_given_up(id, true);
        }
        self.wait_stable(self.journal.appended() - 1, Waiter::Lost(id));
    }

    /// It is on stable media what is lost: sums of it go.
    pub(in crate::engine) fn lanes_given_up(&mut self, id: u32, fine: bool) {
        if !fine {
            return self.fail_work(id);
        }
        let work = &mut self.rows.works[id];
        (work.step, work.pending) = (Step::Forget, 1);
        let (chunk, members) = (work.row.0, 0..work.data);
        for member in members {
            let work = &mut self.rows.works[id];
            let place = work.place(member);
            if work.lost[member] != 0 && self.has_sums_in_row(chunk, place) {
                self.rows.works[id].pending += 1;
                let (index, first) = locate(self.sums.kind(), u64::from(place) * STRIP);
                self.with_page(chunk, index, Need::Forget { work: id, member: member as u8, first });
            }
        }
        self.count_work_down(id);
    }

    /// The page with the sums of a strip is in memory.
    pub(in crate::engine) fn forget_sums(&mut self, id: u32, member: u8, first: u16, slot: u32) {
        let work = &self.rows.works[id];
        let (chunk, place) = (work.row.0, work.place(member.into()));
        for (lane, count) in runs(work.lost[usize::from(member)]) {
            self.put_sums(Put::Nothing(count as u16), slot, first + lane as u16);
        }
        if let Some(Some((volume, unit))) = self.owner_in_rows(chunk, place) {
            self.note_sums_changed(volume, unit);
        }
        self.count_work_down(id);
    }

    /// It cannot be had: what it says is wrong for as long as nobody writes there. The record of what is lost has an opening look.
    pub(in crate::engine) fn sums_not_forgotten(&mut self, id: u32) {
        self.count_work_down(id);
    }

    /// Nobody says anything about the lost lanes any more: zeros go there, first by themselves. What cannot be written either must not
    /// come into the journal, which would have to put it in place.
    pub(super) fn zero_lost_lanes(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        (work.step, work.pending) = (Step::Zero, 1);
        let lost = work.lost.clone();
        for (member, lanes) in lost.into_iter().enumerate() {
            let m = &self.rows.works[id].members[member];
            let (column, is_here) = (m.column, m.is_good && self.pool.is_online(m.column.device));
            for (first, count) in runs(lanes).filter(|_| is_here) {
                let zeros = part_of(self.zeros(id), 0, count);
                self.issue_strip(id, (member, first), DeviceOp::Write { fua: false }, (column, 0), zeros, false);
            }
        }
        self.count_work_down(id);
    }

    /// They are there, or not. Now the same with parity.
    pub(super) fn lanes_zeroed(&mut self, id: u32) {
        let work = &self.rows.works[id];
        let is_away = |m: &Member| m.is_good && self.was_away(m.column.device, work.roster);
        if work.members.iter().any(|m| m.failed.is_some() || is_away(m)) {
            return self.fail_work(id);
        }
        let (lost, row) = (work.lost.clone(), work.row);
        if work.judgement.found_something() {
            self.check_row(row);
        }
        let parts = lost.into_iter().enumerate().flat_map(|(member, lanes)| {
            runs(lanes).map(move |(first, count)| {
                let lanes = block_mask(first, first + count);
                let (member, first) = (member as u8, first as u8);
                Part { writer: Writer::Nobody, member, first, lanes, buf: None, no_merge: false }
            })
        });
        self.turn_work_into(id, What::Change(parts.collect()));
        self.note_change(id);
    }

    /// The replacement is over. A power cut between the zeros and the change left parity of what stood there before: a column may have
    /// been made of one parity then, and the other one says something else.
    pub(in crate::engine) fn check_rows_of_lost(&mut self) {
        let units = self.pool.volumes().flat_map(|v| v.map.lost_in(0, u64::MAX).map(|(unit, _)| (v.id, unit)));
        let rows: BTreeSet<RowId> = units.filter_map(|(volume, unit)| self.row_at(volume, unit)).collect();
        rows.into_iter().for_each(|row| self.check_row(row));
    }

    fn is_up_to_date(&self, device: DeviceId, row: RowId) -> bool {
        self.pool.is_online(device) && !self.is_row_stale(device, row)
    }
}

impl Member {
    /// Lanes that can be read, right or wrong.
    fn readable(&self) -> Lanes {
        self.good(Trust::Reads)
    }
}
