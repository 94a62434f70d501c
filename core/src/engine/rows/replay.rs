//! What an opening found in the stripe journal goes in place again, before the first checkpoint: once that counts, the
//! journal of the run before is never looked at any more. Requests wait meanwhile.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Engine, RowId};
use crate::chunk::Column;
use crate::meta::assembly::Replayed;
use crate::profile::{column_of, data_stripes};
use crate::queue::{CopySet, Io, Owner};
use crate::request::{DeviceOp, IoError, Request};
use crate::units::{BLOCK, STRIP};

/// Blocks on their way at once.
const ACTIVE_MAX: u32 = 256;

#[derive(Default)]
pub(super) struct Replay {
    left: Vec<(RowId, u8, u8, Arc<[u8]>)>,
    pending: u32,
    is_on: bool,
    /// Requests that came meanwhile.
    parked: Vec<Request>,
}

impl Replay {
    pub(super) fn is_under_way(&self) -> bool {
        self.is_on
    }
}

impl Engine {
    /// Begins with the opening; true when there is something to write again, and then the first checkpoint comes after that.
    pub(in crate::engine) fn replay(&mut self, found: Vec<Replayed>) -> bool {
        // Of a block that is in several groups the last counts.
        let mut blocks: BTreeMap<(RowId, u8, u8), Arc<[u8]>> = BTreeMap::new();
        for Replayed { chunk, row, block } in found {
            match block {
                Some((member, lane, bytes)) => drop(blocks.insert(((chunk, row), member, lane), bytes)),
                None => blocks.retain(|(other, ..), _| *other != (chunk, row)),
            }
        }
        let is_live = |row: &RowId| self.pool.chunk(row.0).is_some_and(|c| c.is_live(row.1));
        let left: Vec<_> = blocks
            .into_iter()
            .filter(|((row, ..), _)| is_live(row))
            .map(|((row, member, lane), bytes)| (row, member, lane, bytes))
            .collect();
        let rows: alloc::collections::BTreeSet<RowId> = left.iter().map(|(row, ..)| *row).collect();
        rows.into_iter().for_each(|row| self.note_row_unflushed(row));
        self.rows.replay = Replay { is_on: !left.is_empty(), left, ..Replay::default() };
        self.replay_on();
        self.rows.replay.is_on = self.rows.replay.pending > 0;
        self.rows.replay.is_on
    }

    /// Whether requests have to wait until what was found in the journal is in place.
    pub(in crate::engine) fn is_replaying(&self) -> bool {
        self.rows.replay.is_on
    }

    pub(in crate::engine) fn park_request(&mut self, request: Request) {
        self.rows.replay.parked.push(request);
    }

    fn replay_on(&mut self) {
        while self.rows.replay.pending < ACTIVE_MAX
            && let Some((row, member, lane, bytes)) = self.rows.replay.left.pop()
        {
            let Some(c) = self.pool.chunk(row.0) else { continue };
            let n = c.columns.len();
            if usize::from(member) >= data_stripes(c.profile, n) + c.profile.facts().parity {
                continue;
            }
            let Column { device, offset } = c.columns[column_of(c.profile, n, row.1.into(), member.into())];
            if !self.pool.is_online(device) {
                // Who is not there has missed what nothing had flushed.
                self.miss_row(device, row, IoError::Gone);
                continue;
            }
            self.rows.replay.pending += 1;
            let offset = offset + u64::from(row.1) * STRIP + u64::from(lane) * BLOCK;
            let set = CopySet { chunk: row.0, offset: u64::from(row.1) * STRIP, ..CopySet::default() };
            let io = Io::new(Owner::Replay, DeviceOp::Write { fua: false }, device, offset, BLOCK, self.now);
            self.issue(Io { record: Some(bytes), set, ..io });
        }
    }

    pub(in crate::engine) fn replayed(&mut self, io: &Io, result: Result<(), IoError>) {
        self.rows.replay.pending -= 1;
        if let Err(error) = result {
            let row = (io.set.chunk, (io.set.offset / STRIP) as u32);
            if !self.miss_row(io.device, row, error) {
                // A row that is neither old nor new: nothing may be written on top of that.
                self.commit.kill();
            }
        }
        self.replay_on();
        if self.rows.replay.pending == 0 {
            self.rows.replay.is_on = false;
            self.start_checkpoint();
            for request in core::mem::take(&mut self.rows.replay.parked) {
                self.submit(request);
            }
        }
    }
}
