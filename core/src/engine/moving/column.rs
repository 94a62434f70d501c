//! A member's part of a chunk on its way to another member: the chunk stays what it is, one of its columns goes.
//!
//! ```text
//!   begin   an extent of the new member is set aside     in memory only: after a crash the chunk is as it was
//!   copy    unit by unit, from any good copy             who writes meanwhile writes to both; nobody reads the new one
//!   settle  a flush of all that was copied
//!   swap    one record: the column is there now
//!   free    the old extent                               once that is stable, and nobody looks at it any more
//! ```
//!
//! One chunk at a time. Strips of rows go row by row instead, in `rows/column.rs`. A unit is read without its lock, and written
//! under it. What cannot go like this (no extent over there is long enough, the new member fails) is left to [`super::unit`], which finds
//! each unit a place of its own. What becomes of a block without a readable copy is said in [`super::lose`].

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;

use super::settle::Settled;
use super::unit::{Begun, Target};
use super::{Engine, Home, Round, TRIES, Table, Turn, Walk};
use crate::ChunkType;
use crate::chunk::{Chunk, Shift};
use crate::device::Used;
use crate::engine::Slip;
use crate::job::Task;
use crate::meta::journal::Lsn;
use crate::meta::record::Record;
use crate::profile::slice;
use crate::units::{ChunkId, DeviceId, UNIT};

/// How long a column of which something could not be read waits for its next try: an error of a device may pass.
const PAUSE_NS: u64 = 5_000_000_000;

/// The column that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shifting {
    pub(super) chunk: ChunkId,
    /// Every unit was tried.
    is_whole: bool,
    /// Something did not arrive over there.
    pub(super) has_failed: bool,
    /// Units of it that the job counts as moved.
    counted: u64,
    /// Units, or rows, of which nobody has everything.
    unreadable: u64,
    pub(super) settled: Settled,
}

/// What is known of a column that did not go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unfit {
    /// How often it was tried.
    pub(super) tries: u32,
    /// Units, or rows, that could not be read at the last try.
    pub(super) unreadable: u64,
}

impl Engine {
    /// Who leaves, and who gets what it has.
    pub(in crate::engine) fn heir(&self) -> Option<(DeviceId, DeviceId)> {
        match self.pool.job.as_ref()?.task {
            Task::Replace { device, by } => Some((device, by)),
            _ => None,
        }
    }

    /// Columns go to a member that is up to date: where a region of it is stale, its column would be no copy.
    pub(super) fn waits_for_heir(&self) -> bool {
        self.heir().is_some_and(|(_, new)| self.is_being_caught_up(new))
    }

    /// A column of this chunk is to go, and was not tried too often.
    fn can_shift(&self, c: &Chunk) -> bool {
        c.shunned
            && c.kind != ChunkType::System
            && !c.closing
            && !c.is_empty()
            && self.moving.unfit.get(&c.id).is_none_or(|unfit| unfit.tries < TRIES)
    }

    /// If this column does not go now, its units go one by one.
    pub(in crate::engine) fn is_last_try(&self, chunk: ChunkId) -> bool {
        self.moving.unfit.get(&chunk).is_some_and(|unfit| unfit.tries + 1 >= TRIES)
    }

    /// A column did not go, and is to be tried another time.
    pub(super) fn is_column_tried_again(&self) -> bool {
        self.moving.unfit.keys().any(|&id| self.pool.chunk(id).is_some_and(|c| self.can_shift(c)))
    }

    /// Begins with the next chunk of which a column can go as it is; says whether there was one.
    pub(super) fn begin_shift(&mut self) -> bool {
        let Some((old, new)) = self.heir().filter(|(_, new)| !self.pool.stale.contains_key(new)) else { return false };
        let can_go = |c: &&Chunk| self.can_shift(c);
        let next = self.pool.chunks().filter(can_go).find_map(|c| Some((c.id, self.pool.shift_of(c, old, new)?)));
        let Some((id, shift)) = next else { return false };
        let chunk = self.pool.chunk_mut(id).expect("just seen");
        chunk.shift = Some(shift);
        let (len, units) = (chunk.stripe, chunk.length / UNIT);
        self.hold_extent(shift, Used { len, chunk: id });
        self.moving.shift = Some(Shifting {
            chunk: id,
            is_whole: false,
            has_failed: false,
            counted: 0,
            unreadable: 0,
            settled: Settled::No,
        });
        let has_rows = self.has_rows(id);
        if has_rows {
            self.rewind_column();
            if !self.is_last_try(id) {
                return true;
            }
        }
        let table = Table { chunk: id, owners: vec![Home::default(); units as usize] };
        self.moving.round = Some(Round { tables: VecDeque::from([table]), walk: Some(Walk::of_all()), at: 0 });
        true
    }

    /// Nobody else gets this extent.
    pub(super) fn hold_extent(&mut self, Shift { to, .. }: Shift, used: Used) {
        if let Some(device) = self.pool.device_mut(to.device) {
            device.used.insert(to.offset, used);
        }
        self.pool.members_changed();
    }

    /// A unit of the chunk under way, if a part of it is in the column.
    pub(super) fn begin_copy(&mut self, chunk: ChunkId, unit: u32, home: Home) -> Begun {
        let Some((volume, at)) = home.get().filter(|_| !self.slips(Slip::ColumnBeforeCopy)) else {
            return Begun::Elsewhere;
        };
        let entry = self.entry(volume, at);
        // What is on its way already was asked for before that began.
        let is_here = (entry.chunk(), entry.unit()) == (chunk, unit) && !self.moving.loose.contains_key(&(volume, at));
        let Some(c) = self.pool.chunk(chunk).filter(|_| is_here) else {
            return Begun::Elsewhere;
        };
        let part = slice(c.profile, c.columns.len(), u64::from(unit) * UNIT, UNIT);
        if !c.shift.is_some_and(|shift| (part.first..part.first + part.copies).contains(&shift.column)) {
            return Begun::Elsewhere;
        }
        self.start_move(volume, at, (chunk, unit), Target::Column);
        Begun::Moves
    }

    /// Goes on with a column of strips, which are copied in the order of rows, and ends with all of them.
    pub(super) fn go_on_with_shift(&mut self) -> Turn {
        let Some(Shifting { chunk, is_whole, has_failed, .. }) = self.moving.shift else { return Turn::Nothing };
        // The try before the last one is to say how much cannot be read.
        let tries = self.moving.unfit.get(&chunk).map_or(0, |unfit| unfit.tries);
        let goes_on = !has_failed || tries + 2 == TRIES;
        if !is_whole && goes_on && self.has_rows(chunk) {
            if let Some(turn) = self.copy_column(chunk) {
                return turn;
            }
            self.shift_tried();
        }
        self.end_shift()
    }

    /// What a row holds is over there.
    pub(in crate::engine) fn count_row_moved(&mut self, chunk: ChunkId, row: u32) {
        let units = self.pool.chunk(chunk).map_or(0, |c| c.units_in_row(row));
        self.column_copied();
        self.count_shifted(units.into());
    }

    /// The same of units, as long as the column arrives.
    pub(super) fn count_shifted(&mut self, units: u64) {
        if let Some(shifting) = &mut self.moving.shift {
            shifting.counted += units;
        }
        self.count_moved(units);
    }

    /// Every unit of the chunk was tried.
    pub(super) fn shift_tried(&mut self) {
        if let Some(shifting) = &mut self.moving.shift {
            shifting.is_whole = true;
        }
    }

    /// Something could not be read, or did not arrive over there.
    pub(in crate::engine) fn shift_failed(&mut self, chunk: ChunkId) {
        if let Some(shifting) = self.moving.shift.as_mut().filter(|shifting| shifting.chunk == chunk) {
            shifting.has_failed = true;
        }
    }

    /// The same of what nobody has any more.
    pub(in crate::engine) fn shift_unreadable(&mut self, chunk: ChunkId) {
        self.shift_failed(chunk);
        if let Some(shifting) = self.moving.shift.as_mut().filter(|shifting| shifting.chunk == chunk) {
            shifting.unreadable += 1;
        }
    }

    /// The job is canceled, and so is the column under way. The next job marks what it moves when it begins: it would not see a column
    /// that arrives after that, at a member perhaps that is to leave.
    pub(super) fn cancel_shift(&mut self) {
        let arrives = self.slips(Slip::OldColumnArrives);
        self.moving.shift.iter_mut().for_each(|shifting| shifting.has_failed |= !arrives);
    }

    /// Nothing of it is under way any more: the column changes places, or all stays as it was.
    pub(super) fn end_shift(&mut self) -> Turn {
        let Some(Shifting { chunk: id, is_whole, has_failed, counted, unreadable, .. }) = self.moving.shift else {
            return Turn::Nothing;
        };
        let goes = is_whole && !has_failed && !self.commit.is_dead();
        if goes
            && self.is_calm()
            && !self.slips(Slip::CopyNotFlushed)
            && let Some(turn) = self.settle_column()
        {
            return turn;
        }
        let is_over = match self.has_rows(id) {
            // Whoever works at a row knows its columns from the beginning.
            true => !self.is_copying_column() && (!is_whole || has_failed || self.hold_rows(id)),
            // A mend may be about to write the column that would go.
            false => !self.mends_in(id),
        };
        if self.moving.moves.len() > 0 || !is_over {
            return Turn::Nothing;
        }
        self.release_rows();
        if is_whole && !has_failed && !self.moving.again.is_empty() && self.is_moving() {
            self.moving.round = Some(Round { tables: VecDeque::new(), walk: None, at: 0 });
            return Turn::Later;
        }
        (self.moving.shift, self.moving.again, self.moving.owners) = (None, BTreeSet::new(), None);
        let chunk = self.pool.chunk_mut(id).expect("a chunk on its way does not go");
        let (shift, stripe) = (chunk.shift.take().expect("it is on its way"), chunk.stripe);
        let old = chunk.columns[shift.column];
        let is_good = self.pool.is_online(shift.to.device) && !self.pool.stale.contains_key(&shift.to.device);
        if !is_whole || has_failed || self.commit.is_dead() || !is_good {
            if is_whole || has_failed {
                let unfit = self.moving.unfit.entry(id).or_default();
                // The last try may end at the first one.
                *unfit = Unfit { tries: unfit.tries + 1, unreadable: unreadable.max(unfit.unreadable) };
                let is_tried_again = unfit.tries < TRIES;
                if unreadable > 0 && is_tried_again {
                    self.moving.not_before = Some(self.now + PAUSE_NS);
                }
            }
            self.retire_extent(shift.to);
            if let Some(job) = self.job_mut() {
                job.done = job.done.saturating_sub(counted * UNIT);
            }
            return Turn::Moved;
        }
        let record = Record::Column { chunk: id, column: shift.column as u16, to: shift.to };
        self.moving.shifted = Some(self.journal.append(&record));
        self.pool.apply(record).expect("its extent was held");
        // A power cut may bring the old column back.
        self.hold_extent(Shift { to: old, ..shift }, Used { len: stripe, chunk: id });
        self.retire_extent(old);
        self.source_shifted(id, old.device);
        Turn::Moved
    }

    /// What changes goes to where a column is now. Its answer waits until that is in the log: an opening after a crash of the process
    /// would take the place that it had before, which has none of it.
    pub(in crate::engine) fn shift_to_be_written(&self) -> Option<Lsn> {
        self.moving.shifted.filter(|lsn| *lsn >= self.journal.written() && !self.slips(Slip::ShiftNotAwaited))
    }

    /// Nothing is copied into it, or is to be.
    fn is_calm(&self) -> bool {
        self.moving.moves.len() == 0 && self.moving.again.is_empty() && !self.is_copying_column()
    }

    /// It holds nothing of the member that leaves any more, or another column's turn comes.
    fn source_shifted(&mut self, id: ChunkId, device: DeviceId) {
        let chunk = self.pool.chunk_mut(id).expect("it was just changed");
        if chunk.is_on(device) {
            return;
        }
        chunk.shunned = false;
        let job = self.pool.job.as_mut().expect("columns go for a job");
        job.chunks = job.chunks.saturating_add(1);
        self.find_open_chunks();
    }
}
