//! Rows of strips in chunks with parity: what is written to one is written together with its parity, and what a member
//! cannot give is made from the others.
//!
//! ```text
//!   change   parts that clients write to one row --> gathered --> what is missing for new parity is read, and verified
//!            row is new:  all of it, zeros where nobody writes, in place                          no strip was of use before
//!            row is live: what changes and its parity to the journal, forced --> in place         a torn row is written again
//!   reconstruction   lanes of one member, made from the others, for a read, a mend or a move
//!   restore  lanes of one strip, as a mend found them right, over what was wrong
//!   rebuild  the strips of members that missed something, made from the others and written there
//!   copy     the strip of a column that goes to another member
//! ```
//!
//! A row is *live* as long as some unit in it holds content; then every block of it counts in parity, written by a volume
//! or not. So nothing has to be remembered about rows: the maps say which are live. The first write makes a row live, and
//! writes all of it.
//!
//! One thing at a time is done to a row; what comes meanwhile waits, and is done together. Lanes are the blocks of a
//! strip, one bit each, in the order of the strip: the same lane of all members is a stripe of its own.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | who wants what of which row; whose turn it is |
//! | `work.rs` | what is being done to a row; memory; reads, and what checksums say of them |
//! | `again.rs` | strips that are counted on against their checksums, read once more |
//! | `gather.rs` | how long what is written waits for its neighbours |
//! | `change.rs` | what is written, and its parity |
//! | `rebuild.rs` | strips made from others: reconstructions, rebuilds |
//! | `restore.rs` | what a mend found right, written |
//! | `check.rs` | parity in doubt, for a scrub or a mend |
//! | `judge.rs` | what was made for a member, compared with its checksums before it is written |
//! | `suspect.rs` | whose strip is wrong, where only the parities can tell |
//! | `column.rs` | a column on its way to another member |
//! | `lose.rs` | lanes of its rows that nothing can be made of any more |
//! | `missed.rs` | what members miss of rows |
//! | `ring.rs` | the stripe journal: groups on their way |
//! | `room.rs` | where it is |
//! | `replay.rs` | what an opening found in it is written again |

mod again;
mod change;
mod check;
mod column;
mod gather;
mod judge;
mod lose;
mod missed;
mod rebuild;
mod replay;
mod restore;
mod ring;
mod room;
mod suspect;
mod work;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::Engine;
use crate::meta::journal::Lsn;
use crate::profile::parity::Lanes;
use crate::queue::CopySet;
use crate::regions::{ROWS, row_unit};
use crate::slab::Slab;
use crate::units::{BLOCK, BLOCKS_PER_UNIT, BufRange, ChunkId, Instant, STRIP, UNIT, VolumeId};
use check::Looker;
use rebuild::Reconstruction;
pub(super) use rebuild::Who;
use restore::Restore;
pub(super) use restore::Restored;
pub(super) use ring::TOKEN as RING_TOKEN;
pub(super) use room::is_journal;
pub(super) use work::TAG;
use work::Work;

/// A row of a chunk.
pub(super) type RowId = (ChunkId, u32);

/// All lanes of a strip.
const ALL: Lanes = Lanes::MAX;
const _: () = assert!(STRIP == BLOCKS_PER_UNIT * BLOCK && BLOCKS_PER_UNIT == Lanes::BITS as u64);

/// Memory for strips at once; one row may always be under way.
const MEMORY_MAX: u64 = 64 << 20;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Rows {
    lines: BTreeMap<RowId, Line>,
    /// Rows that somebody wants something of and nobody works at, each once.
    ready: VecDeque<RowId>,
    gathering: gather::Gathering,
    works: Slab<Work>,
    /// Bytes of strips that works may have in memory.
    memory: u64,
    /// Rows of which nothing can be made until an opening has put them right; by data member, the lanes that it may bring
    /// another content of.
    torn: BTreeMap<RowId, Vec<Lanes>>,
    /// Works that wait until the log has this record.
    noted: VecDeque<(Lsn, u32)>,
    ring: ring::Ring,
    checks: check::Checks,
    copies: column::Copies,
    replay: replay::Replay,
}

/// What is wanted of a row.
#[derive(Clone, Default)]
struct Line {
    parts: Vec<Part>,
    /// When the first of them came; `None` for what had its turn and could not be done at once.
    since: Option<Instant>,
    /// They wait for more.
    gathers_until: Option<Instant>,
    others: VecDeque<Other>,
    is_worked_at: bool,
    is_ready: bool,
    /// What is being done to the row changes its last block: a stream goes on in the next one.
    leads_on: bool,
}

/// A part of a strip that is written.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) writer: Writer,
    /// Data member.
    member: u8,
    /// First lane.
    first: u8,
    lanes: Lanes,
    /// Zeros without one.
    buf: Option<BufRange>,
    no_merge: bool,
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Writer {
    Request(u32),
    Move(u32),
    /// Nobody: zeros, where nothing can be known any more.
    Nobody,
}

#[derive(Clone)]
enum Other {
    Reconstruction(Reconstruction),
    Restore(Restore),
    Rebuild,
    Check(Looker),
    Copy,
}

impl Rows {
    /// Something more is wanted of a row.
    fn want(&mut self, row: RowId, add: impl FnOnce(&mut Line)) {
        let line = self.lines.entry(row).or_default();
        add(line);
        if !line.is_worked_at && !core::mem::replace(&mut line.is_ready, true) {
            self.ready.push_back(row);
        }
    }

    /// Nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.works.len() == 0 && self.lines.is_empty() && self.ring.is_idle() && self.replay.is_done()
    }
}

/// Bits of `len` bytes at `offset` of a strip.
fn lanes(offset: u64, len: u64) -> Lanes {
    let first = offset % STRIP / BLOCK;
    crate::volume::block_mask(first, first + len.div_ceil(BLOCK))
}

impl Engine {
    /// Whether a chunk has rows.
    pub(super) fn has_rows(&self, chunk: ChunkId) -> bool {
        self.pool.chunk(chunk).is_some_and(|c| c.rows() > 0)
    }

    /// A part of a strip is to be written; [`Engine::row_written`] tells the writer. `offset` is that within the chunk.
    pub(super) fn write_row(&mut self, writer: Writer, chunk: ChunkId, offset: u64, len: u64, buf: Option<BufRange>) {
        let (row, member) = self.strip_at(chunk, offset);
        let lanes = lanes(offset, len);
        let no_merge = matches!(writer, Writer::Request(id) if self.requests[id].request.no_merge);
        let part = Part { writer, member, first: lanes.trailing_zeros() as u8, lanes, buf, no_merge };
        let now = self.now;
        self.rows.want(row, |line| {
            line.since.get_or_insert(now);
            line.parts.push(part);
        });
    }

    /// Row and data member of a byte of a chunk with rows.
    pub(super) fn strip_at(&self, chunk: ChunkId, byte: u64) -> (RowId, u8) {
        let c = self.pool.chunk(chunk).expect("maps refer to chunks that exist");
        let (row, member) = c.row_of((byte / STRIP) as u32).expect("a chunk with rows");
        ((chunk, row), member as u8)
    }

    fn want_of_row(&mut self, row: RowId, other: Other) {
        self.rows.want(row, |line| line.others.push_back(other));
    }

    /// The batch has ended: rows that somebody wants something of and nobody works at get what they wait for, the journal goes on.
    /// Says whether there was something to do.
    pub(super) fn rows_turn(&mut self) -> bool {
        if self.rows.lines.is_empty() && self.rows.ring.is_idle() {
            return false;
        }
        self.end_gathering();
        let mut any = false;
        for _ in 0..self.rows.ready.len() {
            if self.rows.memory >= MEMORY_MAX && self.rows.works.len() > 0 {
                break;
            }
            let Some(row) = self.rows.ready.pop_front() else { break };
            if self.rows.copies.held == Some(row.0) && !self.is_closing() {
                self.rows.ready.push_back(row);
                continue;
            }
            if self.gathers(row) {
                continue;
            }
            self.work_at(row);
            any = true;
        }
        any | self.drive_ring()
    }

    /// Takes what waits longest: all parts together, or one other thing.
    fn work_at(&mut self, row: RowId) {
        let line = self.rows.lines.get_mut(&row).expect("a row that is ready has a line");
        (line.is_ready, line.is_worked_at) = (false, true);
        match line.others.pop_front() {
            Some(Other::Reconstruction(ask)) => self.begin_reconstruction(row, ask),
            Some(Other::Restore(ask)) => self.begin_restore(row, ask),
            Some(Other::Rebuild) => self.begin_rebuild(row),
            Some(Other::Check(by)) => self.begin_check(row, by),
            Some(Other::Copy) => self.begin_copy_of(row),
            None => {
                let parts = self.take_parts(row);
                self.begin_change(row, parts);
            }
        }
    }

    /// The work at a row is over: what came meanwhile is next.
    fn leave_row(&mut self, row: RowId) {
        let line = self.rows.lines.get_mut(&row).expect("it was worked at");
        line.is_worked_at = false;
        let led_on = core::mem::take(&mut line.leads_on);
        match line.parts.is_empty() && line.others.is_empty() {
            true => drop(self.rows.lines.remove(&row)),
            false => self.rows.want(row, |_| ()),
        }
        if led_on {
            self.shorten_gathering(row);
        }
    }

    /// The unit of which members may have missed something of a piece, which is at `at` of the volume: that of its row, where
    /// there are rows.
    pub(super) fn unit_of_piece(&self, set: &CopySet, volume: VolumeId, at: u64) -> (VolumeId, u64) {
        match self.has_rows(set.chunk) {
            true => (ROWS, row_unit(set.chunk, (set.offset / STRIP) as u32)),
            false => (volume, at / UNIT),
        }
    }

    /// What rows wait for, in words: for tests and for a developer's log.
    pub(super) fn rows_state(&self) -> alloc::string::String {
        let Rows { lines, ready, works, noted, .. } = &self.rows;
        let (lines, ready, noted, ring) = (lines.len(), ready.len(), noted.len(), self.rows.ring.state());
        let deferred = self.rows.checks.deferred();
        alloc::format!(
            "{lines} rows, {ready} of them ready, {} works, {noted} wait for a note, {deferred} for members; {ring}",
            works.len()
        )
    }

    /// Everything that waits for something of a row or for the journal hears that it will not come.
    pub(super) fn give_up_rows(&mut self) {
        for (_, id) in core::mem::take(&mut self.rows.noted) {
            self.note_torn(id);
            self.fail_work(id);
        }
        self.give_up_ring();
    }
}
