//! What an opening found in the stripe journal goes in place again, before the first checkpoint: once that counts, the
//! journal of the run before is never looked at any more. Requests wait until then, if anything is to be put in place.
//!
//! ```text
//!   groups that some copy of the journal lacks --> written there, forced --> all in place --> the first checkpoint
//! ```

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Engine, Lanes, RowId};
use crate::chunk::Column;
use crate::engine::Slip;
use crate::engine::sums::SUMS_VOLUME;
use crate::meta::Bytes;
use crate::meta::assembly::{self, Lacking, RowBlock};
use crate::profile::{column_of, data_stripes};
use crate::queue::{CopySet, Io, Owner};
use crate::request::{DeviceOp, IoError};
use crate::units::{BLOCK, STRIP};

/// Blocks on their way at once.
const ACTIVE_MAX: u32 = 256;

#[derive(Clone, Default)]
pub(super) struct Replay {
    lacking: Vec<Lacking>,
    left: Vec<(RowBlock, Bytes)>,
    /// What the journal has of each row, by data member.
    changed: BTreeMap<RowId, Vec<Lanes>>,
    pending: u32,
    step: Step,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Done,
    /// Copies of the journal get what they lack.
    Journal,
    Rows,
}

impl Replay {
    pub(super) fn is_done(&self) -> bool {
        self.step == Step::Done
    }
}

impl Engine {
    /// Begins with the opening; true when there is something to write again, and then the first checkpoint comes after that.
    pub(in crate::engine) fn replay(&mut self, found: assembly::Replay) -> bool {
        let assembly::Replay { blocks: left, mut lacking, may_know_more } = found;
        let mut changed: BTreeMap<RowId, Vec<Lanes>> = BTreeMap::new();
        for &(RowBlock { chunk, row, member, lane }, _) in &left {
            let data = self.pool.chunk(chunk).map_or(0, |chunk| chunk.row_units() as usize);
            let members = changed.entry((chunk, row)).or_insert_with(|| alloc::vec![0; data]);
            members.get_mut(usize::from(member)).into_iter().for_each(|lanes| *lanes |= 1 << lane);
        }
        changed.keys().for_each(|&row| self.note_row_unflushed(row));
        if self.slips(Slip::JournalNotCompleted) {
            lacking.clear();
        }
        if may_know_more || !left.is_empty() {
            self.park_requests();
        }
        self.rows.replay = Replay { lacking, left, changed, step: Step::Journal, ..Replay::default() };
        self.replay_on();
        self.is_replaying()
    }

    /// Whether something that was found in the journal is not in place yet.
    pub(in crate::engine) fn is_replaying(&self) -> bool {
        !self.rows.replay.is_done()
    }

    /// Goes on as far as it goes without waiting.
    fn replay_on(&mut self) {
        if self.rows.replay.step == Step::Journal {
            self.complete_journal();
            if self.rows.replay.pending > 0 {
                return;
            }
            self.rows.replay.step = Step::Rows;
        }
        self.replay_rows();
        if self.rows.replay.pending == 0 {
            self.rows.replay.step = Step::Done;
            self.rows.replay.changed.clear();
        }
    }

    fn complete_journal(&mut self) {
        while self.rows.replay.pending < ACTIVE_MAX
            && let Some(Lacking { device, offset, at, bytes }) = self.rows.replay.lacking.pop()
        {
            self.rows.replay.pending += 1;
            let set = CopySet { offset: at, ..CopySet::default() };
            let io =
                Io::new(Owner::Replay, DeviceOp::Write { fua: true }, device, offset, bytes.len() as u64, self.now);
            self.issue(Io { record: Some(bytes), set, ..io });
        }
    }

    fn replay_rows(&mut self) {
        while self.rows.replay.pending < ACTIVE_MAX
            && let Some((RowBlock { chunk, row, member, lane }, bytes)) = self.rows.replay.left.pop()
        {
            let Some(c) = self.pool.chunk(chunk) else { continue };
            let n = c.columns.len();
            if usize::from(member) >= data_stripes(c.profile, n) + c.profile.facts().parity {
                continue;
            }
            let Column { device, offset } = c.columns[column_of(c.profile, n, row.into(), member.into())];
            if !self.pool.is_online(device) {
                // Who is not there has missed what nothing had flushed.
                self.miss_row(device, (chunk, row), IoError::Gone);
                continue;
            }
            self.rows.replay.pending += 1;
            let offset = offset + u64::from(row) * STRIP + u64::from(lane) * BLOCK;
            let set = CopySet { chunk, offset: u64::from(row) * STRIP, ..CopySet::default() };
            let io = Io::new(Owner::Replay, DeviceOp::Write { fua: false }, device, offset, BLOCK, self.now);
            self.issue(Io { record: Some(bytes), set, ..io });
        }
    }

    pub(in crate::engine) fn replayed(&mut self, io: &Io, result: Result<(), IoError>) {
        self.rows.replay.pending -= 1;
        if let (Err(error), Step::Journal) = (result, self.rows.replay.step) {
            let (start, end) = (io.set.offset, io.set.offset + io.len);
            if !self.miss(io.device, SUMS_VOLUME, (start, end), error) {
                self.commit.kill();
            }
        } else if let Err(error) = result {
            let row = (io.set.chunk, (io.set.offset / STRIP) as u32);
            if !self.miss_row(io.device, row, error) {
                // A row that is neither old nor new: nothing may be written on top of that, nor made of it. Strips that did not change
                // can be read where they are.
                let changed = self.rows.replay.changed.get(&row).cloned().unwrap_or_default();
                self.rows.torn.insert(row, changed);
                self.commit.kill();
            }
        }
        self.replay_on();
        if !self.is_replaying() {
            self.start_checkpoint();
        }
    }
}
