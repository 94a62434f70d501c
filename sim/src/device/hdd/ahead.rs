//! What the disk has read: the segment that the head is filling now, and a few of earlier.
//!
//! ```text
//!   start          head now           limit
//!     |=============>- - - - - - - - - -|        cached | will be, if nothing else takes the head
//! ```

use std::collections::VecDeque;

use super::platter::Platter;

/// Reading ahead: the head is above `offset` at `time` and goes on to `limit`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) start: u64,
    pub(super) offset: u64,
    pub(super) time: u64,
    pub(super) limit: u64,
    /// The last read went on where one before it had ended.
    pub(super) is_stream: bool,
}

impl Ahead {
    /// Where the head is.
    pub(super) fn head(&self, platter: &Platter, now: u64) -> u64 {
        (self.offset + platter.bytes_in(self.offset, now.saturating_sub(self.time))).min(self.limit)
    }

    /// When everything before `end`, which is not beyond the limit, is in the cache.
    pub(super) fn there(&self, platter: &Platter, end: u64) -> u64 {
        self.time + platter.transfer_ns(self.offset, end.saturating_sub(self.offset))
    }

    /// When it has read all it wanted.
    pub(super) fn full_at(&self, platter: &Platter) -> u64 {
        self.there(platter, self.limit)
    }

    /// Goes on to another limit. A head that had stopped waits until the place comes round again.
    pub(super) fn extend(&mut self, platter: &Platter, now: u64, limit: u64) {
        if limit <= self.limit {
            return;
        }
        if self.full_at(platter) < now {
            (self.offset, self.time) = (self.limit, now + platter.wait_ns(now, self.limit));
        }
        self.limit = limit;
    }
}

/// Ranges read earlier, the latest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Segments(VecDeque<(u64, u64)>);

impl Segments {
    /// Keeps the end of a range, at most `bytes` of it, and at most `count` ranges.
    pub(super) fn keep(&mut self, start: u64, end: u64, bytes: u64, count: u64) {
        let start = start.max(end.saturating_sub(bytes));
        self.0.retain(|&(_, other)| other < start || other > end);
        self.0.push_front((start, end));
        self.0.truncate(count as usize);
    }

    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        self.0.iter().any(|&(a, b)| a <= start && end <= b)
    }

    /// Whether a read that begins here goes on where one ended.
    pub(super) fn continues(&self, start: u64) -> bool {
        self.0.iter().any(|&(_, end)| end == start)
    }

    /// What is written is not what was read.
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        self.0.retain(|&(a, b)| b <= start || end <= a);
    }
}
