//! Reads every copy of everything and compares: a client of the device queues, in class scrub.
//!
//! ```text
//!   gather   maps  --->  table of a chunk: unit -> who owns it           a round: chunks of 64 GiB at most
//!   issue    table --->  pieces of up to 1 MiB, all copies at once       in order of place, a few a lane
//!   compare  copies in memory, unit by unit
//!   again    only what differs, or could not be read: a mend of the unit; what differs then is told, and put right
//!            where that is known
//! ```
//!
//! Of chunks with parity pieces are [rows], and parity is compared with what the data makes in the same look.
//!
//! Gathering and issuing take turns, as in OpenZFS since 0.8 (its sequential scrub): maps are walked in order of
//! volumes, disks are read in order of place. The first look takes no lock, so it may see a write on one copy and not
//! yet on the other; the second look sees none.
//!
//! A *lane* is the chunks that begin on one device (those with strips: the ones whose lowest it is), in order of their place on it. Other copies of them are read in the
//! same turn, wherever they are: where the allocator placed both in one order, as it does in a pool that grows, they come
//! in order too. Lanes go forward side by side, so that every device has something to do; each has its [`Place`], and
//! places are what a restart needs.
//!
//! The pool's own pages are units of system chunks: which pages count is known from the last checkpoint. The ring of the
//! log is left out: it is rewritten all the time, and whoever reads it checks each copy. Superblocks come [last](slots).

mod again;
mod command;
mod gather;
mod look;
mod rows;
mod slots;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Engine;
use super::mend::{COPIES_MAX, runs};
use super::meter::Meter;
use super::owners::{Home, TURN};
use crate::meta::record::Record;
use crate::request::{Copy, Event, Output};
use crate::scrub::{Place, Scrub, State, TOLD_MAX};
use crate::slab::Slab;
use crate::units::{BLOCK, BufId, BufRange, ChunkId, DeviceId, UNIT};

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// It waits for something, or there is nothing to do.
    Nothing,
    /// There is more to do, after clients had theirs.
    Later,
    /// There is something to dispatch or to put out.
    Moved,
}

/// The running part of a scrub; what lasts is [`crate::scrub::Scrub`].
#[derive(Clone, Default)]
pub(super) struct Work {
    round: Option<Round>,
    pieces: Slab<Piece>,
    /// Scratch of `piece_max` bytes each, to be used again.
    spare: Vec<BufId>,
    piece_max: u64,
    meter: Meter,
    told: u32,
    /// Pieces whose copies are in memory.
    ready: VecDeque<u32>,
    /// One was compared since clients had their turn.
    compared: bool,
    /// What is under way belongs to a scrub that was ended.
    ended: bool,
    /// The pool closes.
    closing: bool,
    /// Pieces whose second look at the pool's pages waits until none are being written.
    wait_pages: Vec<u32>,
    slots: slots::Slots,
}

#[derive(Clone)]
struct Round {
    lanes: Vec<Lane>,
    /// Where gathering is; None when it is done.
    gather: Option<gather::Cursor>,
    /// Pieces under way at most, all lanes together.
    pieces_max: usize,
    /// The lane that is asked first.
    turn: usize,
}

#[derive(Clone)]
struct Lane {
    device: DeviceId,
    tables: VecDeque<Table>,
    /// Next unit of the first table.
    at: u32,
    /// Pieces under way, in order, and how many of them there are at most.
    out: VecDeque<u32>,
    window: usize,
    /// End of the table that was worked off last.
    end: Option<Place>,
}

/// Who owns the units of a chunk; nothing for system chunks, whose pages are known otherwise.
#[derive(Clone)]
struct Table {
    chunk: ChunkId,
    /// Where it begins on the lane's device.
    start: u64,
    units: u32,
    owners: Vec<Home>,
}

/// A run of units of one chunk on its way; of one with parity, of whole rows.
#[derive(Clone)]
struct Piece {
    lane: usize,
    chunk: ChunkId,
    /// Where the chunk begins on the lane's device.
    start: u64,
    first: u32,
    units: Vec<Unit>,
    /// First byte within the chunk, and bytes.
    from: u64,
    len: u64,
    /// What counts as passed when it is done.
    bytes: u64,
    /// Of [`super::space`], while its reads are under way.
    epoch: Option<u64>,
    scratch: [Option<BufId>; COPIES_MAX],
    pending: u32,
    stage: Stage,
    /// One bit a unit that needs a second look.
    doubts: u64,
    again: Option<again::Again>,
    rows: Option<rows::Rows>,
}

impl Piece {
    /// Whole units of a chunk from one on, about to be read.
    fn new(lane: usize, table: &Table, first: u32, units: Vec<Unit>) -> Piece {
        Piece {
            lane,
            chunk: table.chunk,
            start: table.start,
            first,
            from: u64::from(first) * UNIT,
            len: units.len() as u64 * UNIT,
            units,
            bytes: 0,
            epoch: None,
            scratch: [None; COPIES_MAX],
            pending: 0,
            stage: Stage::Reading,
            doubts: 0,
            again: None,
            rows: None,
        }
    }

    /// From the first written block to the last one.
    fn trimmed(mut self) -> Piece {
        let before = self.units.first().map_or(0, |unit| unit.mask.trailing_zeros());
        let behind = self.units.last().map_or(0, |unit| unit.mask.leading_zeros());
        self.from += u64::from(before) * BLOCK;
        self.len -= u64::from(before + behind) * BLOCK;
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    Comparing,
    Again,
    Done,
}

#[derive(Clone)]
struct Unit {
    home: Home,
    /// Blocks to compare.
    mask: u16,
    /// Copies that could not be read, that were not there: one bit each.
    bad: u8,
    gone: u8,
}

pub(super) fn range(buf: BufId, offset: u64, len: u64) -> BufRange {
    BufRange { buf, offset: offset as u32, len: len as u32 }
}

impl Work {
    /// Something of a chunk is being read.
    pub(super) fn reads(&self, chunk: ChunkId) -> bool {
        self.pieces.iter().any(|piece| piece.chunk == chunk && piece.epoch.is_some())
    }

    /// What is under way belongs to a scrub that was ended.
    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }
}

impl Engine {
    /// The pool closes: nothing new of its own is begun.
    pub(super) fn is_closing(&self) -> bool {
        self.scrub.closing
    }

    fn is_scrubbing(&self) -> bool {
        let work = &self.scrub;
        self.pool.scrub.state == State::Running && !work.closing && !work.ended && !self.commit.is_closed()
    }

    /// Goes on with the scrub, a little; called when everything else has been done.
    pub(super) fn scrub_turn(&mut self) -> Turn {
        if !self.scrub.ready.is_empty() && core::mem::replace(&mut self.scrub.compared, true) {
            self.scrub.compared = false;
            return Turn::Later;
        }
        if let Some(id) = self.scrub.ready.pop_front() {
            self.compare_piece(id);
            return Turn::Moved;
        }
        let work = &self.scrub;
        if work.pieces.len() == 0 && (work.ended || !self.is_scrubbing()) {
            let is_held = work.round.is_some() || !work.spare.is_empty();
            self.scrub.ended = false;
            if is_held {
                self.scrub.round = None;
                self.drop_spare();
                return Turn::Moved;
            }
        }
        if !self.scrub.wait_pages.is_empty() && !self.commit.is_writing_pages() {
            for piece in core::mem::take(&mut self.scrub.wait_pages) {
                self.look_again(piece);
            }
            return Turn::Moved;
        }
        if !self.is_scrubbing() {
            return Turn::Nothing;
        }
        self.scrub.meter.run(self.now);
        match self.scrub.round.as_ref().map(|round| round.gather.is_some()) {
            None => {
                if self.begin_round() {
                    return Turn::Moved;
                }
                if let Some(turn) = self.scrub_slots() {
                    return turn;
                }
                self.finish_scrub();
                Turn::Moved
            }
            Some(true) => {
                self.gather();
                Turn::Later
            }
            Some(false) => {
                let appended = self.journal.appended();
                let turn = self.issue_pieces();
                if self.journal.appended() == appended { turn } else { Turn::Moved }
            }
        }
    }

    /// A lane has come so far; what is passed counts, and the round may be over.
    fn lane_moved(&mut self, lane: usize) {
        let Engine { scrub: work, pool, .. } = self;
        let Some(round) = &mut work.round else { return };
        let lane = &mut round.lanes[lane];
        while let Some(&id) = lane.out.front()
            && work.pieces[id].stage == Stage::Done
        {
            lane.out.pop_front();
            let piece = work.pieces.remove(id);
            if !work.ended {
                pool.scrub.done = pool.scrub.done.saturating_add(piece.bytes);
                let place = Place { start: piece.start, unit: piece.first + piece.units.len() as u32 };
                pool.scrub.places.insert(lane.device, place);
            }
        }
        if work.ended {
            return;
        }
        if lane.out.is_empty()
            && lane.tables.is_empty()
            && let Some(end) = lane.end
        {
            pool.scrub.places.insert(lane.device, end);
        }
        if round.lanes.iter().all(|lane| lane.out.is_empty() && lane.tables.is_empty()) {
            work.round = None;
        }
        self.note_scrub();
    }

    /// It came further; now and then that is written down.
    pub(super) fn note_scrub(&mut self) {
        self.scrub.meter.note(self.now, self.pool.scrub.done);
        if self.scrub.meter.is_save_due(self.now) && self.pool.scrub.state == State::Running {
            self.save_scrub();
        }
    }

    /// Writes down where it is; the number of the record.
    fn save_scrub(&mut self) -> crate::meta::journal::Lsn {
        let ran_ms = self.scrub.meter.save(self.now);
        self.pool.scrub.ran_ms = self.pool.scrub.ran_ms.saturating_add(ran_ms);
        self.journal.append(&Record::Scrub(self.pool.scrub.clone().into()))
    }

    /// Everything was read.
    fn finish_scrub(&mut self) {
        let ended = self.unix_now();
        let scrub = &mut self.pool.scrub;
        (scrub.state, scrub.ended, scrub.total) = (State::Finished, ended, scrub.done);
        scrub.places.clear();
        let Scrub { differences, read_errors, unread, undecided, repaired, .. } = *scrub;
        self.save_scrub();
        self.scrub.meter.rest();
        // What is damaged there was told, and what rots from now on in what is never written again would be found too late.
        self.commit.renew_superblocks();
        self.outputs.push_back(Output::Event(Event::ScrubFinished {
            differences,
            read_errors,
            unread,
            undecided,
            repaired,
        }));
    }

    /// Seconds since 1970; 0 when nobody told.
    pub(super) fn unix_now(&self) -> u64 {
        let (at, unix_s) = self.wall;
        if unix_s == 0 { 0 } else { unix_s.saturating_add(self.now.since(at) / 1_000_000_000) }
    }

    fn drop_spare(&mut self) {
        for buf in core::mem::take(&mut self.scrub.spare) {
            self.outputs.push_back(Output::Copy(Copy::Drop(buf)));
        }
    }

    /// Tells, unless it has told a lot already.
    pub(super) fn tell_place(&mut self, event: Event) {
        self.scrub.told = self.scrub.told.saturating_add(1);
        match self.scrub.told {
            n if n <= TOLD_MAX => self.outputs.push_back(Output::Event(event)),
            n if n == TOLD_MAX + 1 => self.outputs.push_back(Output::Event(Event::ScrubTellsNoMore)),
            _ => {}
        }
    }
}
