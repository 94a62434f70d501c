//! What spilled goes back to the tier it prefers, by itself, when there is room.
//!
//! ```text
//!   something came free, a member came        a look is due, some seconds later
//!   look      room on preferred tiers grew by a chunk, or by what spilled, since the last return ended    if not: until next time
//!   return    a job like others, behind every other one; any other one takes its place
//!   end       nothing spilled is left, or no room: as much as is left now is not worth another one
//! ```
//!
//! So it never goes in circles: what moves goes to a place that did not spill, and what finds none is left alone until
//! there is more room than it found none in.

use super::{Engine, Job};
use crate::ChunkType;
use crate::chunk::Chunk;
use crate::job::Task;
use crate::request::{Event, Output};
use crate::units::{Instant, MIB};

/// What came free is looked at this much later, with all that came free meanwhile.
const LOOK_NS: u64 = 5_000_000_000;
/// Room that is worth a job, in bytes, where more than that spilled and it is no chunk of its own: a walk through all maps is
/// not for one unit.
const ROOM_MIN: u64 = 16 * MIB;

/// Types of content.
const KINDS: [ChunkType; 2] = [ChunkType::Data, ChunkType::Metadata];

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Homing {
    look_at: Option<Instant>,
    /// Room by type that was no use to the last return.
    useless: [u64; 2],
}

impl Engine {
    /// Room may have come to be where something that spilled would rather be.
    pub(in crate::engine) fn note_room(&mut self) {
        if self.pool.totals().spilled > 0 && self.pool.properties.return_spilled {
            self.moving.homing.look_at.get_or_insert(self.now + LOOK_NS);
        }
    }

    /// Whoever waits for the end of a job sees that before the next one begins by itself.
    pub(super) fn look_for_returns_later(&mut self) {
        self.moving.homing.look_at = None;
        self.note_room();
    }

    /// When it is time to look whether it did.
    pub(in crate::engine) fn homing_deadline(&self) -> Option<Instant> {
        self.moving.homing.look_at.filter(|_| self.may_return())
    }

    fn may_return(&self) -> bool {
        let is_busy = self.pool.job.as_ref().is_some_and(Job::is_open);
        !is_busy && !self.moving.closing && !self.commit.is_closed() && !self.commit.is_dead()
    }

    /// Begins a return when it is worth it.
    pub(super) fn begin_return(&mut self) {
        if self.moving.homing.look_at.is_none_or(|at| self.now < at) || !self.may_return() {
            return;
        }
        self.moving.homing.look_at = None;
        let room = KINDS.map(|kind| self.preferred_room(kind));
        let useless = &mut self.moving.homing.useless;
        KINDS.iter().for_each(|&kind| useless[kind as usize] = useless[kind as usize].min(room[kind as usize]));
        let useless = *useless;
        let next = KINDS.map(|kind| self.preferred_chunk(kind));
        let is_worth_it = |&kind: &ChunkType| {
            let content: u64 = self.pool.chunks().filter(|c| c.kind == kind && c.spilled).map(Chunk::used).sum();
            let least = content.min(ROOM_MIN).min(next[kind as usize].unwrap_or(u64::MAX));
            content > 0 && room[kind as usize] - useless[kind as usize] >= least
        };
        let is_due = self.pool.properties.return_spilled && KINDS.iter().any(is_worth_it);
        if is_due && self.start_job(Task::Return).is_ok() {
            self.outputs.push_back(Output::Event(Event::ReturnStarted));
        }
    }

    /// Bytes that fit where this type prefers to be: in chunks that are there, and in the next one.
    fn preferred_room(&mut self, kind: ChunkType) -> u64 {
        let is_whole = |c: &&Chunk| c.columns.iter().all(|column| self.pool.is_online(column.device));
        let open = self.pool.chunks().filter(|c| c.kind == kind && !c.spilled && !c.closing).filter(is_whole);
        let free: u64 = open.map(|c| c.length - c.used()).sum();
        free + self.preferred_chunk(kind).unwrap_or(0)
    }

    /// Bytes of the next chunk, if that does not spill.
    fn preferred_chunk(&mut self, kind: ChunkType) -> Option<u64> {
        self.pool.next_chunk(kind).filter(|next| !next.spilled).map(|next| next.length)
    }

    /// A return ended, one way or the other: as much room as there is now is not worth another one.
    pub(super) fn note_return_ended(&mut self) {
        if self.pool.job.as_ref().is_some_and(|job| job.task == Task::Return && !job.is_open()) {
            self.moving.homing.useless = KINDS.map(|kind| self.preferred_room(kind));
        }
    }

    /// The last job is one that nobody asked for.
    pub(super) fn is_only_return(&self) -> bool {
        self.pool.job.as_ref().is_some_and(|job| job.task == Task::Return)
    }

    /// The property was changed: a return that runs is for nobody any more, or there may be one to begin.
    pub(in crate::engine) fn returns_changed(&mut self) {
        let runs = self.pool.job.as_ref().is_some_and(|job| job.task == Task::Return && job.is_open());
        match self.pool.properties.return_spilled {
            true => {
                self.moving.homing.useless = [0; 2];
                self.note_room();
            }
            false if runs => _ = self.cancel_running(),
            false => {}
        }
    }
}
