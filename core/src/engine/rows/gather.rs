//! How long what is written to a part of a row waits for its neighbours.
//!
//! Each change of a row that holds something costs reads for new parity and a place in a group of the journal, however
//! little changes, and while it is under way nobody else can be at the row. A stream brings the rest of the row a moment
//! later, and one that keeps so many requests under way brings it when some of those before are answered. As with commands
//! that may grow, the members' `budget_wait` says whether to wait, and how long.
//!
//! ```text
//!   parts of a row --> all of it, or up to its end ------------------------------------> its turn
//!                  --> no other request is under way, that could bring more -----------> its turn
//!                  --> goes on from a change of the row before's end --> it is over --.
//!                  --> otherwise ----------------------------------------------------+--> `budget_wait` more, its turn
//! ```

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{ALL, Engine, Line, Part, RowId, Writer};
use crate::chunk::Chunk;
use crate::units::{BLOCKS_PER_UNIT, Instant};

/// Rows that wait for neighbours of what is written, by the end of their wait.
pub(super) type Gathering = BTreeSet<(Instant, RowId)>;

/// Longest wait, whatever becomes of the row before.
const WAIT_NS_MAX: u64 = 100_000_000;

impl Line {
    /// Whether parts cover a row of so many data members, or reach its last block: a stream goes on in another row then.
    fn is_complete(&self, data: u64) -> bool {
        let blocks: u64 = self.parts.iter().map(|part| u64::from(part.lanes.count_ones())).sum();
        blocks == data * BLOCKS_PER_UNIT || self.ends_row(data)
    }

    fn ends_row(&self, data: u64) -> bool {
        self.parts.iter().any(|part| u64::from(part.member) == data - 1 && part.lanes & !(ALL >> 1) != 0)
    }

    /// Requests that have parts here; those of one follow each other.
    fn requests(&self) -> usize {
        let writers = self.parts.chunk_by(|a, b| a.writer == b.writer).map(|parts| parts[0].writer);
        writers.filter(|writer| matches!(writer, Writer::Request(_))).count()
    }

    fn begins_with_row(&self) -> bool {
        self.parts.iter().any(|part| part.member == 0 && part.first == 0)
    }
}

impl Engine {
    /// Whether a row that is ready waits on. It is ready again when that ends, or when more comes.
    pub(super) fn gathers(&mut self, row: RowId) -> bool {
        let line = &self.rows.lines[&row];
        let Some(since) = line.since.filter(|_| line.others.is_empty()) else { return false };
        let is_alone = self.requests.len() <= line.requests();
        let Some(chunk) = self.pool.chunk(row.0).filter(|_| !is_alone) else { return false };
        let wait = self.gather_ns(chunk);
        if wait == 0 || line.is_complete(chunk.row_units().into()) {
            return false;
        }
        let longest = if line.begins_with_row() && self.leads_to(row, chunk) { WAIT_NS_MAX } else { wait };
        let until = line.gathers_until.unwrap_or(since + longest);
        if until <= self.now {
            return false;
        }
        self.rows.gathering.insert((until, row));
        let line = self.rows.lines.get_mut(&row).expect("just seen");
        (line.is_ready, line.gathers_until) = (false, Some(until));
        true
    }

    /// That of the member that waits longest, of those that are there.
    fn gather_ns(&self, chunk: &Chunk) -> u64 {
        let there = chunk.columns.iter().map(|column| column.device).filter(|&device| self.pool.is_online(device));
        let queues = there.filter_map(|device| self.queues.get(device));
        queues.map(|queue| queue.wait_ns()).max().unwrap_or(0)
    }

    /// Whether a change of the row before reaches its end, one under way or one whose turn comes.
    fn leads_to(&self, (id, row): RowId, chunk: &Chunk) -> bool {
        let before = row.checked_sub(1).and_then(|before| self.rows.lines.get(&(id, before)));
        before.is_some_and(|line| line.leads_on || line.ends_row(chunk.row_units().into()))
    }

    /// What changed the end of a row is over: who wrote there goes on in the next one soon, or not at all.
    pub(super) fn shorten_gathering(&mut self, (chunk, row): RowId) {
        let next = (chunk, row + 1);
        let Some(until) = self.rows.lines.get(&next).and_then(|line| line.gathers_until) else { return };
        let soon = self.now + self.pool.chunk(chunk).map_or(0, |chunk| self.gather_ns(chunk));
        if soon < until {
            self.rows.gathering.remove(&(until, next));
            self.rows.gathering.insert((soon, next));
            self.rows.lines.get_mut(&next).expect("just seen").gathers_until = Some(soon);
        }
    }

    /// The turn of what was gathered.
    pub(super) fn take_parts(&mut self, row: RowId) -> Vec<Part> {
        let data = self.pool.chunk(row.0).map_or(1, |chunk| chunk.row_units().into());
        let line = self.rows.lines.get_mut(&row).expect("a row that is ready has a line");
        (line.since, line.leads_on) = (None, line.ends_row(data));
        if let Some(until) = line.gathers_until.take() {
            self.rows.gathering.remove(&(until, row));
        }
        core::mem::take(&mut line.parts)
    }

    /// Rows that waited long enough are ready.
    pub(super) fn end_gathering(&mut self) {
        while let Some(&(until, row)) = self.rows.gathering.first()
            && until <= self.now
        {
            self.rows.gathering.pop_first();
            self.rows.want(row, |_| ());
        }
    }

    /// When the next of them is.
    pub(in crate::engine) fn gathering_deadline(&self) -> Option<Instant> {
        self.rows.gathering.first().map(|&(until, _)| until)
    }
}
