//! A request at the door: admitted or refused on its way in, answered and counted on its way out.

use super::{Active, Engine, Phase, Waiter, data, mend, moving, rows, sums};
use crate::request::{Copy, NO_BUF, Op, Output, Reply, Request, RequestError};
use crate::units::VolumeId;

/// Most requests in flight in one pool; more are answered with `Busy`. Exports keep well below it.
pub const REQUESTS_MAX: usize = 65_536;

impl Engine {
    pub(super) fn submit(&mut self, request: Request) {
        if self.park_request(request) {
            return;
        }
        match self.admit(&request) {
            Ok(()) => {}
            Err(error) => {
                self.counters.errors += 1;
                self.outputs.push_back(Output::Reply(Reply { tag: request.tag, result: Err(error), hole: false }));
                return;
            }
        }
        let epoch = self.space.enter();
        let active = Active {
            request,
            pending: 0,
            phase: Phase::Data,
            error: None,
            trouble: None,
            epoch,
            forced: false,
            intends: false,
            roster: self.roster,
            hole: false,
            scratch: [None; 2],
            arrived: self.now,
            waits_since: self.now,
        };
        let id = self.requests.insert(active);
        match request.op {
            Op::Read => self.start_read(id),
            Op::Flush => {
                self.requests[id].phase = Phase::Commit;
                self.join_flush(Waiter::Request(id));
            }
            _ => {
                let (start, end) = data::envelope(&request);
                if self.locks.acquire(request.volume, start, end, id) {
                    self.start_change(id);
                } else {
                    // Parked, it has not looked at any place yet.
                    self.space.leave(epoch);
                    self.requests[id].phase = Phase::Parked;
                }
            }
        }
    }

    /// The client's mistakes are answered here; behind it they would be ours.
    fn admit(&mut self, request: &Request) -> Result<(), RequestError> {
        let volume = self.pool.volume(request.volume).filter(|v| !v.is_internal()).ok_or(RequestError::NoVolume)?;
        let end = request.offset.checked_add(request.len).ok_or(RequestError::OutOfRange)?;
        if end > volume.size {
            return Err(RequestError::OutOfRange);
        }
        if request.len == 0 && request.op != Op::Flush {
            return Err(RequestError::Invalid);
        }
        let has_payload = matches!(request.op, Op::Read | Op::Write { .. });
        if has_payload && (request.buf == NO_BUF || request.len > u64::from(u32::MAX) / 2) {
            return Err(RequestError::Invalid);
        }
        if self.requests.len() + self.parked() >= REQUESTS_MAX {
            self.counters.busy += 1;
            return Err(RequestError::Busy);
        }
        let c = &mut self.counters;
        match request.op {
            Op::Read => (c.reads, c.read_bytes) = (c.reads + 1, c.read_bytes + request.len),
            Op::Write { .. } => (c.writes, c.write_bytes) = (c.writes + 1, c.write_bytes + request.len),
            Op::Flush => c.flushes += 1,
            Op::Discard | Op::WriteZeroes { .. } => c.discards += 1,
        }
        Ok(())
    }

    /// Answers a request and lets go of what it held.
    pub(super) fn reply(&mut self, id: u32) {
        let Active { request, error, .. } = &self.requests[id];
        match (request.op, error) {
            (Op::Read | Op::Flush, _) | (Op::Write { .. }, None) => {}
            (_, error) => self.drop_reservations(id, error.is_some()),
        }
        let active = self.requests.remove(id);
        self.stop_writing(&active);
        let Request { tag, op, volume, .. } = active.request;
        let result = active.error.map_or(Ok(()), Err);
        self.count_answer(&active);
        for scratch in active.scratch.into_iter().flatten() {
            self.outputs.push_back(Output::Copy(Copy::Drop(scratch)));
        }
        self.outputs.push_back(Output::Reply(Reply { tag, result, hole: active.hole }));
        if !active.trouble.as_ref().is_some_and(|trouble| trouble.rests) {
            self.space.leave(active.epoch);
        }
        if !matches!(op, Op::Read | Op::Flush) {
            self.sums_followed(id, &active);
            let (start, end) = data::envelope(&active.request);
            self.unlock(volume, start, end, id);
        }
    }

    /// Lets go of a range, and whoever waited for it goes on.
    pub(super) fn unlock(&mut self, volume: VolumeId, start: u64, end: u64, token: u32) {
        let mut granted = core::mem::take(&mut self.granted);
        self.locks.release(volume, start, end, token, &mut granted);
        for next in granted.drain(..) {
            if next >= mend::TOKENS {
                self.mend_granted(next);
                continue;
            }
            if next >= moving::TOKENS {
                self.move_granted(next);
                continue;
            }
            if next == rows::RING_TOKEN {
                self.write_group();
                continue;
            }
            if next >= sums::PAGE_TOKENS {
                self.write_page(next & !sums::PAGE_TOKENS);
                continue;
            }
            self.counters.parked.add(self.now.since(self.requests[next].waits_since));
            self.requests[next].epoch = self.space.enter();
            self.start_change(next);
        }
        self.granted = granted;
    }

    fn count_answer(&mut self, active: &Active) {
        let Active { request, phase, error, arrived, waits_since, .. } = active;
        let c = &mut self.counters;
        c.errors += u64::from(error.is_some());
        c.no_space += u64::from(*error == Some(RequestError::NoSpace));
        let waited = self.now.since(*waits_since);
        match (phase, request.op) {
            // An overwrite in place has nothing to log, and is answered at once.
            (Phase::Commit, _) if waited == 0 => {}
            (Phase::Commit, Op::Flush | Op::Write { fua: true } | Op::WriteZeroes { fua: true, .. }) => {
                c.flush.add(waited);
            }
            (Phase::Commit, _) => c.log.add(waited),
            _ => {}
        }
        let took = self.now.since(*arrived);
        match request.op {
            Op::Read => c.read_ns += took,
            Op::Write { .. } => c.write_ns += took,
            _ => {}
        }
        let Some(volume) = self.pool.volume_mut(request.volume) else { return };
        let c = &mut volume.counters;
        match request.op {
            Op::Read => {
                (c.reads, c.read_bytes, c.read_ns) = (c.reads + 1, c.read_bytes + request.len, c.read_ns + took);
            }
            Op::Write { .. } => {
                (c.writes, c.write_bytes, c.write_ns) = (c.writes + 1, c.write_bytes + request.len, c.write_ns + took);
            }
            Op::Flush => c.flushes += 1,
            Op::Discard | Op::WriteZeroes { .. } => c.discards += 1,
        }
    }
}
