//! A disk that rotates.
//!
//! ```text
//!                 .--> cache: read ahead, read before, written before --> done
//!   command --> queue                                             room for a write --> done, destaged later
//!                 '--> head: the next of a stream; who has waited too long; the nearest --> seek, turn, transfer --> done
//! ```
//!
//! * Positioning: a seek curve (`platter.rs`), the angle of the platter at that very moment, transfer by zone.
//! * Queue: of the `queue_depth` oldest commands the head takes the one it can begin with soonest.
//! * Streams: after each read the head reads on, up to `read_ahead_kib`, until something else needs it. A read that goes on
//!   where the last one ended makes a stream, and then nothing else gets the head before the read-ahead is full: so even
//!   a reader at depth 1, whose next command has not arrived yet, passes over a random read, again and again.
//!   What is read ahead grows with the stream, as adaptive read look-ahead does: `stream_ahead_percent` of what it has read
//!   without a break. So a stream that nobody disturbed for long is left late.
//!   The bound is `pass_over_ms` (or `pass_over_count` commands, if that is not 0): then who has waited longest is next.
//!   It is the behaviour behind the waits of 2 to 4 s of random reads beside a scrub, published for ZFS.
//! * Write cache: a write is answered when it is in the cache, and destaged nearest first when no read waits. Who finds the
//!   cache full waits; then, and before a flush, destaging and reads share the head. What comes behind a flush waits for it.
//!
//! Left out: settling errors and retries, head switches apart from seeks, thermal recalibration, spare sectors,
//! shingled zones, power states. Firmware differs a lot in all of what the queue does; this is one that is easy to state.

mod ahead;
mod platter;

use std::collections::VecDeque;

use braid_core::request::DeviceOp;

use super::dirty::Dirty;
use super::numbers::{SECOND, numbers};
use super::stage::kib;
use super::{Command, Done};
use ahead::{Ahead, Segments};
use platter::Platter;

const MS: u64 = 1_000_000;
/// Most that is destaged in one go, in bytes: a read must not wait behind a whole cache.
const DESTAGE_MAX: u64 = 2 << 20;

numbers! {
    /// Numbers of a disk.
    Hdd {
        /// Turns per minute
        rpm: 1000..=30_000,
        /// Seek to the next track, in ns
        track_to_track_ns: 0..=SECOND,
        /// Average seek to read, in ns
        average_seek_ns: 0..=SECOND,
        /// Seek over all tracks, in ns
        full_stroke_ns: 0..=SECOND,
        /// Added to a seek before a write, in ns
        write_settle_ns: 0..=SECOND,
        /// Sustained transfer of the outermost zone, in KiB/s
        outer_kib_per_s: 1..=100_000_000,
        /// Sustained transfer of the innermost zone, in KiB/s
        inner_kib_per_s: 1..=100_000_000,
        /// Any command, beside the work of the head, in ns
        command_ns: 0..=SECOND,
        /// A KiB between cache and host, in ns
        link_kib_ns: 0..=SECOND,
        /// Commands among which the head chooses; 1 takes them as they come
        queue_depth: 1..=4096,
        /// How long a command may be passed over by others, in ms
        pass_over_ms: 0..=600_000,
        /// How many commands of streams may pass over one; 0 = only the time counts
        pass_over_count: 0..=1 << 40,
        /// KiB that are read ahead
        read_ahead_kib: 0..=1 << 20,
        /// Of what a stream has read without a break, so many percent are read ahead, if that is more
        stream_ahead_percent: 0..=1000,
        /// Most KiB of that
        stream_ahead_kib: 0..=1 << 20,
        /// Ranges read earlier that are remembered
        segments: 0..=4096,
        /// KiB of each of them
        segment_kib: 0..=1 << 20,
        /// KiB that may be written and not destaged; 0 = no write cache
        write_cache_kib: 0..=1 << 30,
        /// A flush with nothing to destage, in ns
        flush_ns: 0..=10 * SECOND,
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    arrived: u64,
    command: Command,
    /// Commands of streams that went before it.
    passes: u64,
}

impl Waiting {
    fn end(&self) -> u64 {
        self.command.offset + self.command.len
    }
}

/// What the head does next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// A command, by its place in the queue.
    Command(usize),
    /// A dirty range, by its start.
    Destage(u64),
}

/// One disk at work.
#[derive(Clone, Debug)]
pub(super) struct State {
    m: Hdd,
    size: u64,
    platter: Platter,
    /// In order of arrival.
    queue: VecDeque<Waiting>,
    ahead: Ahead,
    segments: Segments,
    dirty: Dirty,
    /// The head is given away until then; read-ahead doesn't count.
    busy_until: u64,
    /// What was in the cache is on the platter by then.
    destaged_at: u64,
    wake: Option<u64>,
}

impl State {
    pub(super) fn new(m: Hdd, size: u64) -> State {
        State {
            m,
            size,
            platter: Platter::new(&m, size),
            queue: VecDeque::new(),
            ahead: Ahead { start: 0, offset: 0, time: 0, limit: 0, is_stream: false },
            segments: Segments::default(),
            dirty: Dirty::default(),
            busy_until: 0,
            destaged_at: 0,
            wake: None,
        }
    }

    pub(super) fn arrive(&mut self, now: u64, command: &Command, factor: u64, done: &mut Done) {
        self.queue.push_back(Waiting { arrived: now, command: *command, passes: 0 });
        self.decide(now, factor, done);
    }

    pub(super) fn next_decision(&self) -> Option<u64> {
        self.wake
    }

    pub(super) fn decide(&mut self, now: u64, factor: u64, done: &mut Done) {
        self.serve_from_cache(now, factor, done);
        while now >= self.busy_until {
            self.wake = None;
            if !self.move_head(now, factor, done) {
                return;
            }
            self.serve_from_cache(now, factor, done);
        }
        let has_work = !self.queue.is_empty() || !self.dirty.is_empty();
        self.wake = has_work.then_some(self.busy_until);
    }

    /// Answers what needs no head.
    fn serve_from_cache(&mut self, now: u64, factor: u64, done: &mut Done) {
        let (mut i, mut seen) = (0, 0);
        while i < self.queue.len() && seen < self.m.queue_depth {
            let waiting = self.queue[i];
            let Command { id, op, offset, len } = waiting.command;
            let from_cache = match op {
                DeviceOp::Read => self.is_cached(now, offset, waiting.end()).then_some(now),
                DeviceOp::Write { fua: false } if self.m.write_cache_kib > 0 => self.cache(&waiting, i).then_some(now),
                DeviceOp::Discard => Some(now),
                DeviceOp::Flush if self.dirty.is_empty() => Some(now.max(self.destaged_at) + factor * self.m.flush_ns),
                DeviceOp::Write { .. } | DeviceOp::WriteZeroes | DeviceOp::Flush => None,
            };
            if let Some(at) = from_cache {
                let payload = if op == DeviceOp::Discard { 0 } else { kib(len) * self.m.link_kib_ns };
                done.at(at + factor * (self.m.command_ns + payload), id);
                self.queue.remove(i);
                self.refill(now, op, offset + len);
            } else {
                (i, seen) = (i + 1, seen + 1);
            }
        }
    }

    /// Reads on when a reader has used up half of what was read ahead for it.
    fn refill(&mut self, now: u64, op: DeviceOp, end: u64) {
        let limit = self.read_ahead_from(self.ahead.start, end);
        let used = end + (limit - end) / 2 > self.ahead.limit;
        let is_ours = (self.ahead.start..=self.ahead.limit).contains(&end);
        if op == DeviceOp::Read && now >= self.busy_until && is_ours && used {
            self.ahead.extend(&self.platter, now, limit);
        }
    }

    /// The range that was just read and is still held.
    fn just_read(&self, now: u64) -> (u64, u64) {
        let head = self.ahead.head(&self.platter, now);
        let kept = self.m.segment_kib.max(self.m.read_ahead_kib).max(self.m.stream_ahead_kib);
        let behind = head.saturating_sub(kept * 1024);
        (self.ahead.start.max(behind), head)
    }

    fn is_cached(&self, now: u64, start: u64, end: u64) -> bool {
        let (from, head) = self.just_read(now);
        let just_read = from <= start && end <= head;
        just_read || self.segments.holds(start, end) || self.dirty.holds(start, end)
    }

    /// Takes a write into the cache, unless there is no room or a flush before it.
    fn cache(&mut self, waiting: &Waiting, i: usize) -> bool {
        let behind_flush = self.queue.iter().take(i).any(|w| w.command.op == DeviceOp::Flush);
        // What is larger than the cache goes in when that is empty: it would wait for ever.
        let has_room =
            self.dirty.is_empty() || self.dirty.bytes() + waiting.command.len <= self.m.write_cache_kib * 1024;
        if behind_flush || !has_room {
            return false;
        }
        self.dirty.add(waiting.command.offset, waiting.end());
        self.forget(waiting.command.offset, waiting.end());
        true
    }

    /// What was read there is no longer what stands there.
    fn forget(&mut self, start: u64, end: u64) {
        self.segments.forget(start, end);
        if start < self.ahead.limit && self.ahead.start < end {
            self.ahead.start = self.ahead.limit;
        }
    }

    // ---- the head ---------------------------------------------------------------------------------------------------

    /// Gives the head something to do; false when there is nothing, or not yet.
    fn move_head(&mut self, now: u64, factor: u64, done: &mut Done) -> bool {
        if let Some(next) = self.overdue(now) {
            self.begin(now, next, factor, done);
        } else if let Some(i) = self.next_of_stream(now) {
            self.read_on(now, i, factor, done);
        } else if let Some(next) = self.nearest(now) {
            if let Some(until) = self.stream_holds_until(now) {
                self.wake = Some(until);
                return false;
            }
            self.begin(now, next, factor, done);
        } else {
            return false;
        }
        true
    }

    /// The command that was passed over for too long, or what it waits for.
    fn overdue(&self, now: u64) -> Option<Next> {
        let oldest = self.queue.front()?;
        let too_often = self.m.pass_over_count > 0 && oldest.passes >= self.m.pass_over_count;
        if now < self.deadline(oldest) && !too_often {
            return None;
        }
        if self.needs_head(oldest) { Some(Next::Command(0)) } else { self.nearest_dirty(now).map(|(_, next)| next) }
    }

    fn deadline(&self, waiting: &Waiting) -> u64 {
        waiting.arrived + self.m.pass_over_ms * MS
    }

    fn needs_head(&self, waiting: &Waiting) -> bool {
        match waiting.command.op {
            DeviceOp::Read | DeviceOp::WriteZeroes | DeviceOp::Write { fua: true } => true,
            DeviceOp::Write { fua: false } => self.m.write_cache_kib == 0,
            DeviceOp::Flush | DeviceOp::Discard => false,
        }
    }

    fn choices(&self) -> impl Iterator<Item = (usize, &Waiting)> {
        self.queue.iter().take(self.m.queue_depth as usize).enumerate().filter(|(_, w)| self.needs_head(w))
    }

    /// A read that the head comes to by itself.
    fn next_of_stream(&self, now: u64) -> Option<usize> {
        let Ahead { limit, is_stream, .. } = self.ahead;
        let (start, _) = self.just_read(now);
        let moves = is_stream || self.ahead.full_at(&self.platter) >= now;
        let is_next = |w: &Waiting| {
            let at = w.command.offset;
            w.command.op == DeviceOp::Read && start <= at && (at < limit || at == limit && moves)
        };
        self.choices().filter(|(_, w)| is_next(w)).min_by_key(|(_, w)| w.end()).map(|(i, _)| i)
    }

    /// A stream's read-ahead is not broken off before it is full, or somebody's time has come.
    fn stream_holds_until(&self, now: u64) -> Option<u64> {
        let full_at = self.ahead.full_at(&self.platter);
        let oldest = self.queue.front().map_or(u64::MAX, |w| self.deadline(w));
        (self.ahead.is_stream && now < full_at).then_some(full_at.min(oldest)).filter(|&until| until > now)
    }

    fn read_on(&mut self, now: u64, i: usize, factor: u64, done: &mut Done) {
        let Some(waiting) = self.queue.remove(i) else { return };
        self.queue.iter_mut().take(i).for_each(|passed| passed.passes += 1);
        let end = waiting.end();
        let goes_on = waiting.command.offset >= self.ahead.offset;
        let is_stream = self.ahead.is_stream || goes_on;
        self.ahead.extend(&self.platter, now, end);
        let there = self.ahead.there(&self.platter, end).max(now);
        self.busy_until = now + factor * (there - now);
        let limit = self.ahead.limit.max(self.read_ahead_from(self.ahead.start, end));
        self.ahead = Ahead { offset: end, time: self.busy_until, limit, is_stream, ..self.ahead };
        done.at(self.busy_until + factor * self.m.command_ns, waiting.command.id);
    }

    /// Where reading ahead ends for who has read from `start` to `end`.
    fn read_ahead_from(&self, start: u64, end: u64) -> u64 {
        let m = &self.m;
        let earned = (end.saturating_sub(start) / 100 * m.stream_ahead_percent).min(m.stream_ahead_kib * 1024);
        (end + earned.max(m.read_ahead_kib * 1024)).min(self.size).max(end)
    }

    /// What the head could begin with soonest. Destaging takes part when somebody waits for it, or nobody for anything.
    fn nearest(&self, now: u64) -> Option<Next> {
        let cost = |w: &Waiting| self.positioning(now, w.command.offset, w.command.op != DeviceOp::Read);
        let firsts = self.choices().filter(|(_, w)| !self.follows(w));
        let command = firsts.map(|(i, w)| (cost(w), Next::Command(i))).min_by_key(|(ns, _)| *ns);
        let wanted = self.queue.iter().any(|w| !self.needs_head(w));
        let dirty = if command.is_none() || wanted { self.nearest_dirty(now) } else { None };
        command.into_iter().chain(dirty).min_by_key(|(ns, _)| *ns).map(|(_, next)| next)
    }

    /// It goes on where another one ends, and so comes after that: begun in its middle, a stream would leave its
    /// beginning behind.
    fn follows(&self, waiting: &Waiting) -> bool {
        let Command { op, offset, .. } = waiting.command;
        self.choices().any(|(_, other)| other.command.op == op && other.end() == offset)
    }

    fn nearest_dirty(&self, now: u64) -> Option<(u64, Next)> {
        let head = self.ahead.head(&self.platter, now);
        let near = self.dirty.near(head, self.m.queue_depth as usize);
        near.map(|start| (self.positioning(now, start, true), Next::Destage(start))).min_by_key(|(ns, _)| *ns)
    }

    /// From now until the head is above a place, in ns.
    fn positioning(&self, now: u64, offset: u64, is_write: bool) -> u64 {
        let head = self.ahead.head(&self.platter, now);
        let seek = self.platter.seek_ns(head, offset);
        let settle = if is_write && head != offset { self.m.write_settle_ns } else { 0 };
        seek + settle + self.platter.wait_ns(now + seek + settle, offset)
    }

    fn begin(&mut self, now: u64, next: Next, factor: u64, done: &mut Done) {
        match next {
            Next::Destage(start) => {
                let end = self.dirty.take(start, DESTAGE_MAX);
                self.go(now, start, end, false, factor);
                self.destaged_at = self.busy_until;
            }
            Next::Command(i) => {
                let Some(waiting) = self.queue.remove(i) else { return };
                let is_read = waiting.command.op == DeviceOp::Read;
                self.go(now, waiting.command.offset, waiting.end(), is_read, factor);
                done.at(self.busy_until + factor * self.m.command_ns, waiting.command.id);
            }
        }
    }

    /// Moves the head over a range.
    fn go(&mut self, now: u64, start: u64, end: u64, is_read: bool, factor: u64) {
        let head = self.ahead.head(&self.platter, now);
        let ns = self.positioning(now, start, !is_read) + self.platter.transfer_ns(start, end - start);
        self.busy_until = now + factor * ns;
        if head > self.ahead.start {
            self.segments.keep(self.ahead.start, head, self.m.segment_kib * 1024, self.m.segments);
        }
        let is_stream = is_read && (head == start || self.segments.continues(start));
        let limit = if is_read { self.read_ahead_from(start, end) } else { end };
        let from = if is_read { start } else { end };
        self.ahead = Ahead { start: from, offset: end, time: self.busy_until, limit, is_stream };
        if !is_read {
            self.segments.forget(start, end);
        }
    }

    pub(super) fn settle(&mut self) {
        let m = self.m;
        *self = State::new(m, self.size);
    }
}
