//! Groups of records on their way to all copies of the log, and who waits for them.

use alloc::vec::Vec;

use super::{Engine, Round, Waiter};
use crate::chunk::Column;
use crate::engine::Slip;
use crate::meta::journal::{Lsn, Run};
use crate::meta::{Bytes, PAGE};
use crate::queue::{Io, Owner};
use crate::request::IoError;

impl Engine {
    pub(in crate::engine) fn wait_written(&mut self, lsn: Lsn, id: u32) {
        self.commit.written_waiters.push_back((lsn, id));
    }

    pub(super) fn drive_log(&mut self) {
        if self.commit.dead {
            return self.give_up();
        }
        if self.commit.opening || self.commit.is_ring_moving() {
            return;
        }
        // What is written while devices are being flushed is not covered by that, yet stands before the claim in the
        // ring: one lost block would hide the claim. So it is forced.
        let (claim, forced) = match self.commit.round {
            Round::Claim(lsn) => (Some(lsn), true),
            Round::Devices(..) => (None, true),
            _ => (None, self.has_marks_under_way()),
        };
        for Run { block, bytes } in self.journal.take_group(claim) {
            let bytes = Bytes::new(bytes);
            let columns = self.log_places();
            self.commit.log_columns.clear();
            for column in columns {
                if self.pool.is_online(column.device) {
                    self.commit.log_copies.pending += 1;
                    self.commit.log_columns.push(column);
                    let at = column.offset + block * PAGE;
                    self.issue_record(Owner::Log, column.device, at, bytes.clone(), forced);
                }
            }
        }
        if self.journal.is_busy() && self.commit.log_copies.pending == 0 {
            self.commit.dead = true;
            self.give_up();
        }
    }

    /// Wherever the log is read from by whoever opens the pool now or after the checkpoint that comes.
    fn log_places(&self) -> Vec<Column> {
        let id = self.commit.log_chunk();
        let columns = &self.pool.chunk(id).expect("the log has a chunk").columns;
        columns.iter().copied().chain(self.commit.old_columns(id)).collect()
    }

    pub(in crate::engine) fn log_copy_done(&mut self, io: &Io, result: Result<(), IoError>) {
        self.commit.log_copies.pending -= 1;
        if let Err(error) = result {
            // One copy has to have all of it: a group that wraps around goes out in two parts.
            let stripe = self.pool.chunk(self.commit.log_chunk()).expect("the log has a chunk").stripe;
            let is_there = |c: &Column| c.device == io.device && (c.offset..c.offset + stripe).contains(&io.offset);
            self.commit.log_columns.retain(|column| !is_there(column));
            if error != IoError::Gone {
                // Until the next checkpoint the other copies stand alone: it comes at once.
                self.lacks_records(io.device, error);
                self.ask_for_records();
            }
        }
        if self.commit.log_copies.pending > 0 {
            return;
        }
        self.retire_left();
        if self.commit.log_columns.is_empty() {
            self.commit.dead = true;
            return;
        }
        self.counters.log_blocks += 1;
        self.journal.group_written();
        self.log_moved();
    }

    /// No checkpoint of now refers to these columns.
    pub(in crate::engine) fn leave_columns(&mut self, columns: impl IntoIterator<Item = Column>) {
        self.commit.left.extend(columns);
        self.retire_left();
    }

    /// Columns that no checkpoint of now refers to are free as soon as no group is on its way to them.
    fn retire_left(&mut self) {
        if self.commit.log_copies.pending == 0 {
            let left = core::mem::take(&mut self.commit.left);
            left.into_iter().for_each(|column| self.retire_extent(column));
        }
    }

    /// A member failed, and a power cut could make it forgotten.
    pub(in crate::engine) fn is_failure_unsaid(&self) -> bool {
        self.commit.failure_lsn > self.journal.stable() && !self.slips(Slip::AnswerBeforeFailure)
    }

    /// Wakes who waited for what the log says now.
    pub(super) fn log_moved(&mut self) {
        self.marks_written();
        self.notes_written();
        while let Some(&(lsn, id)) = self.commit.written_waiters.front()
            && lsn < self.journal.written()
        {
            self.commit.written_waiters.pop_front();
            match self.is_failure_unsaid() {
                true => self.wait_stable(self.commit.failure_lsn - 1, Waiter::Request(id)),
                false => self.reply(id),
            }
        }
        while let Some(&(lsn, _)) = self.commit.stable_waiters.front()
            && lsn < self.journal.stable()
        {
            let (_, waiter) = self.commit.stable_waiters.pop_front().expect("just seen");
            self.wake(waiter, true);
        }
    }

    /// Nothing can be promised any more: everyone who waits for a promise hears so.
    pub(super) fn give_up(&mut self) {
        // First: what they come to wait for is given up with the rest.
        self.release_parked();
        let commit = &mut self.commit;
        let mut all: Vec<Waiter> = core::mem::take(&mut commit.round_waiters);
        all.append(&mut commit.next_waiters);
        all.append(&mut commit.checkpoint_waiters);
        all.extend(core::mem::take(&mut self.space.starved).into_iter().map(Waiter::Starved));
        all.extend(core::mem::take(&mut commit.written_waiters).into_iter().map(|(_, id)| Waiter::Request(id)));
        all.extend(core::mem::take(&mut commit.stable_waiters).into_iter().map(|(_, waiter)| waiter));
        commit.round = Round::Idle;
        self.give_up_rows();
        all.extend(self.give_up_marks().into_iter().map(Waiter::Request));
        for waiter in all {
            self.wake(waiter, false);
        }
    }
}
