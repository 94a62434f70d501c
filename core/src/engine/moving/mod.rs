//! Content on its way from one place to another, and members that come and go.
//!
//! ```text
//!   sources   chunks that a job empties: nothing new goes there while there is room elsewhere
//!   gather    maps --> tables of owners, for chunks of 64 GiB at most                        (as a scrub does)
//!   move      table --> units in order of place, some at a time: read, written elsewhere, flushed, one record each
//!   again     until every source is empty; then the pool's own records leave by a checkpoint
//!   end       a member that leaves is in no record any more, and its superblock is cleared
//! ```
//!
//! Every step leaves the pool as good as before: until its record is stable, a unit is where it was, and its old place is
//! used again no sooner than after a discard. So a job goes on after a crash with what is left, and can be paused or
//! canceled at any moment.

mod column;
mod command;
mod copies;
mod homing;
mod join;
mod lose;
mod part;
mod settle;
mod sources;
mod spares;
mod sums;
mod system;
mod unit;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::meter::Meter;
use super::owners::{Home, TURN, Walk};
use super::scrub::Turn;
use super::{Engine, Waiter};
use crate::chunk::Column;
use crate::job::{COPIES_MAX, Job, MOVES_MAX};
use crate::meta::journal::Lsn;
use crate::meta::record::Record;
use crate::scrub::State;
use crate::slab::Slab;
use crate::units::{ChunkId, DeviceId, Instant, VolumeId};
use unit::{Begun, Move};

/// Tokens of the range lock from here on, up to a scrub's, are a job's: a unit each.
pub(super) const TOKENS: u32 = 1 << 30;
/// How long a pass that found nothing to move waits for the next one.
const PATIENCE_NS: u64 = 100_000_000;
/// How often a column is tried before its units go one by one, which need room that others were promised; and one of the pool's
/// own records before the job pauses.
const TRIES: u32 = 3;

/// The running part of a job; what lasts is [`Job`].
#[derive(Clone, Default)]
pub(super) struct Work {
    moves: Slab<Move>,
    settling: settle::Settling,
    /// Units that are read and written without their lock: who changes one meanwhile says so.
    loose: BTreeMap<(VolumeId, u64), u32>,
    /// Moves whose record is on its way to the log.
    logged: VecDeque<(Lsn, u32)>,
    round: Option<Round>,
    pass: Pass,
    /// The column that is on its way.
    shift: Option<column::Shifting>,
    /// The record of the last one that arrived.
    shifted: Option<Lsn>,
    /// Units that are copied into it once more: some copy of them was written since.
    again: BTreeSet<(VolumeId, u64)>,
    /// How often a member may have lost what it got.
    losses: u64,
    /// Chunks of which a column did not go as it is.
    unfit: BTreeMap<ChunkId, column::Unfit>,
    /// Room for columns of the pool's own records, where a member is replaced.
    kept: Vec<(ChunkId, Column)>,
    /// How often they came back since the member that was to get them did not.
    swaps_failed: u32,
    /// Units that could not be read.
    lost: BTreeSet<(ChunkId, u32)>,
    /// By chunk, units or rows of which blocks were given up as lost.
    given_up: BTreeMap<ChunkId, u64>,
    /// Who owns what is in the rows of which a column goes, where that may have to be given up.
    owners: Option<Table>,
    meter: Meter,
    /// A unit found no place, when this was so.
    starved: Option<(Lsn, Lsn, usize)>,
    not_before: Option<Instant>,
    /// A member that is to be replaced, and the one that joins for that.
    promised: Option<(DeviceId, DeviceId)>,
    /// The pool's own records, or the member, are on their way out.
    leaving: Option<part::Leaving>,
    homing: homing::Homing,
    spares: spares::Spares,
    /// The pool closes.
    closing: bool,
}

/// Chunks whose owners are known, in order.
#[derive(Clone)]
struct Round {
    tables: VecDeque<Table>,
    /// Where gathering is; None when it is done.
    walk: Option<Walk>,
    /// Next unit of the first table.
    at: u32,
}

#[derive(Clone)]
struct Table {
    chunk: ChunkId,
    owners: Vec<Home>,
}

/// Once through what there is to move.
#[derive(Clone, Default)]
struct Pass {
    moved: u64,
    failed: u64,
    /// What it gave up comes free when this is stable.
    ended: Option<Lsn>,
}

impl Work {
    /// A unit waits for room that has to come free.
    pub(super) fn is_starved(&self) -> bool {
        self.starved.is_some()
    }

    /// Somebody has the lock of this range now, and may change it: what was read of it without does not count.
    pub(super) fn note_change(&mut self, volume: VolumeId, start: u64, end: u64) {
        use crate::units::UNIT;
        if self.loose.is_empty() {
            return;
        }
        let range = (volume, start / UNIT)..(volume, end.div_ceil(UNIT));
        for (_, &id) in self.loose.range(range) {
            self.moves[id].is_stale = true;
        }
    }

    /// The same for a unit that a scrub writes anew, in the turn of its row and without its lock.
    pub(super) fn note_repair(&mut self, unit: (ChunkId, u32)) {
        for &id in self.loose.values() {
            self.moves[id].is_stale |= self.moves[id].from == unit;
        }
    }
}

impl Engine {
    fn is_moving(&self) -> bool {
        let runs = self.pool.job.as_ref().is_some_and(|job| job.state == State::Running);
        runs && !self.moving.closing && !self.commit.is_closed()
    }

    /// The job that runs; there is one whenever something moves.
    fn job_mut(&mut self) -> Option<&mut Job> {
        self.pool.job.as_mut()
    }

    /// When a job wants to go on although nothing happened.
    pub(super) fn moving_wake(&self) -> Option<Instant> {
        self.moving.not_before.filter(|_| self.is_moving())
    }

    /// Goes on with the job, a little; called when everything else has been done.
    pub(super) fn moving_turn(&mut self) -> Turn {
        let state = |engine: &Engine| (engine.ios.len(), engine.outputs.len(), engine.journal.appended());
        let before = state(self);
        let turn = self.move_on();
        if before == state(self) { turn } else { Turn::Moved }
    }

    fn move_on(&mut self) -> Turn {
        if self.finish_logged() || self.flush_copies() {
            return Turn::Moved;
        }
        self.use_spare();
        self.begin_return();
        if !self.is_moving() {
            if self.moving.moves.len() == 0 {
                self.moving.round = None;
            }
            return if self.moving.closing { Turn::Nothing } else { self.end_shift() };
        }
        self.moving.meter.run(self.now);
        if self.moving.not_before.is_some_and(|at| self.now < at) {
            return Turn::Nothing;
        }
        self.moving.not_before = None;
        match self.moving.round.as_ref().map(|round| round.walk.is_some()) {
            None => self.next_pass(),
            Some(true) => {
                self.gather_sources();
                Turn::Later
            }
            Some(false) => self.issue_moves(),
        }
    }

    /// Begins as many moves as may be under way.
    fn issue_moves(&mut self) -> Turn {
        let mut spent = 0;
        let is_full = |work: &Work| {
            let waiting = work.settling.len();
            waiting >= COPIES_MAX || work.moves.len() - waiting >= MOVES_MAX
        };
        while !is_full(&self.moving) && spent < TURN {
            let Some((chunk, unit, home)) = self.next_unit(&mut spent).or_else(|| self.next_again()) else { break };
            if home.get().is_some_and(|(volume, at)| self.resync.is_left(volume, at)) {
                // It is mended first.
                self.hold_unit(unit, home);
                return Turn::Nothing;
            }
            if self.is_out_of_turn(home) {
                self.hold_unit(unit, home);
                return Turn::Nothing;
            }
            let begun = match self.moving.shift {
                Some(_) => self.begin_copy(chunk, unit, home),
                None => self.begin_move(chunk, unit, home),
            };
            match begun {
                Begun::Moves | Begun::Elsewhere => {}
                Begun::NoRoom => {
                    self.hold_unit(unit, home);
                    return self.wait_for_room();
                }
            }
        }
        let is_over = self.moving.round.as_ref().is_none_or(|round| round.tables.is_empty());
        if is_over && self.moving.again.is_empty() && self.moving.moves.len() == 0 {
            self.moving.round = None;
            match self.moving.shift {
                Some(_) => self.shift_tried(),
                None => self.moving.pass.ended = Some(self.journal.appended()),
            }
            return Turn::Moved;
        }
        if spent >= TURN { Turn::Later } else { Turn::Nothing }
    }

    /// The unit that came last comes again.
    fn hold_unit(&mut self, unit: u32, home: Home) {
        match &mut self.moving.round {
            Some(round) if !round.tables.is_empty() => round.at = unit,
            _ => self.moving.again.extend(home.get()),
        }
    }

    /// The next unit of the round that has an owner.
    fn next_unit(&mut self, spent: &mut u64) -> Option<(ChunkId, u32, Home)> {
        let round = self.moving.round.as_mut()?;
        loop {
            let table = round.tables.front()?;
            let rest = table.owners.iter().enumerate().skip(round.at as usize);
            let (unit, home) = match rest.take((TURN - *spent) as usize).find(|(_, home)| home.get().is_some()) {
                Some((unit, home)) => (unit as u32, *home),
                None if (table.owners.len() as u64) <= u64::from(round.at) + (TURN - *spent) => {
                    *spent += (table.owners.len() as u64).saturating_sub(round.at.into());
                    round.tables.pop_front();
                    round.at = 0;
                    continue;
                }
                None => {
                    round.at += (TURN - *spent) as u32;
                    *spent = TURN;
                    return None;
                }
            };
            *spent += u64::from(unit - round.at) + 1;
            round.at = unit + 1;
            return Some((table.chunk, unit, home));
        }
    }

    /// What has to change before a unit that found no place may find one.
    fn moment(&self) -> (Lsn, Lsn, usize) {
        (self.journal.stable(), self.journal.appended(), self.ios.len())
    }

    /// A unit found no place, and nothing happened since.
    fn is_starved_still(&self) -> bool {
        self.moving.starved == Some(self.moment())
    }

    /// A unit found no place: the job waits if room is about to come free, and else is paused.
    fn wait_for_room(&mut self) -> Turn {
        let moment = self.moment();
        let is_hopeful = self.moving.moves.len() > 0
            || self.commit.is_checkpointing()
            || self.space.is_waiting()
            || self.close_spare_chunks();
        self.moving.starved = Some(moment);
        if !is_hopeful {
            self.stop_for_want_of_room();
            return Turn::Moved;
        }
        Turn::Nothing
    }

    /// Writes down how far it is; the number of the record.
    fn save_job(&mut self) -> Lsn {
        let ran_ms = self.moving.meter.save(self.now);
        let job = self.pool.job.as_mut().expect("there is a job");
        job.ran_ms = job.ran_ms.saturating_add(ran_ms);
        let record = Record::Job(job.clone().into());
        self.journal.append(&record)
    }
}
