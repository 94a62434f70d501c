//! Log groups, flushes and checkpoints: what makes an answer true after a crash.
//!
//! ```text
//!   first write     data --> entry in the map, record in the log --> group written --> reply
//!   flush           log written --> devices flushed --> claim in the log (forced) --> reply
//!   checkpoint      pages written --> devices flushed --> superblocks (forced) --> log and old pages free
//! ```
//!
//! A flush is a *round*: who asks while one is under way joins the next. A round covers everything that was answered
//! before it began, whoever asked for it; so a flush on one connection covers the writes of all others.

mod checkpoint;
mod log;
mod opening;
mod reserve;
mod round;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use self::checkpoint::Checkpoint;
pub(super) use self::opening::Claim;
use self::reserve::Refusal;
use self::round::Round;
use super::{Engine, Waiter};
use crate::chunk::Chunk;
use crate::chunk::Column;
use crate::meta::Superblock;
use crate::meta::journal::Lsn;
use crate::meta::pages::{Page, PageSpace};
use crate::meta::superblock::SLOTS;
use crate::request::{Event, Output, Request};
use crate::units::{BLOCKS_PER_UNIT, ChunkId, DeviceId, Instant, VolumeId};

#[derive(Clone)]
pub(super) struct Commit {
    superblock: Superblock,
    pages: PageSpace,
    root: Vec<Page>,
    /// What the first checkpoint begins with, where members are missing or behind.
    claim: Option<Claim>,
    /// Requests that wait for the first checkpoint, if they have to.
    parked: Option<Vec<Request>>,
    /// The checkpoint that ends the log of the run before is not durable yet: nothing may be logged, and no space
    /// handed out or discarded. A power cut would bring back maps that still refer to it.
    opening: bool,
    /// The log cannot be written any more: nothing can be promised.
    dead: bool,
    /// That was said.
    is_death_told: bool,
    /// A first write waits for pages that the next checkpoint sets free.
    starved: bool,
    /// The last checkpoint could not be built.
    stuck: bool,
    /// Leaves that may come to be before the reserve of pages is counted again: see [`Engine::make_page_room`].
    leaf_budget: u64,
    /// When the reserve was last found to have no room for another leaf.
    refused: Option<Refusal>,
    /// How often the reserve was counted.
    pub(super) reserve_counts: u64,
    /// Leaves to write at the next checkpoint, as of record `counted`.
    dirty_leaves: u64,
    counted: Lsn,
    log_copies: Copies,
    /// Columns of the log that got all of the group on its way so far.
    log_columns: Vec<Column>,
    /// Columns of system chunks that nothing refers to any more.
    left: Vec<Column>,
    round: Round,
    /// Number of its flush.
    round_flush: u64,
    round_failed: bool,
    round_waiters: Vec<Waiter>,
    next_waiters: Vec<Waiter>,
    written_waiters: VecDeque<(Lsn, u32)>,
    pub(super) stable_waiters: VecDeque<(Lsn, Waiter)>,
    /// Records below say which members failed; no write is answered before they are stable.
    pub(super) failure_lsn: Lsn,
    /// Records below say what members lost with their caches.
    pub(super) loss_lsn: Lsn,
    checkpoint: Option<Checkpoint>,
    /// Pages of volumes that are gone since the last checkpoint.
    orphans: Vec<Page>,
    /// System chunks that the next checkpoint leaves.
    leaves: Option<Departing>,
    /// For the next checkpoint that begins.
    checkpoint_waiters: Vec<Waiter>,
    /// So many checkpoints are to come that write anew what stands somewhere.
    renews: u8,
    /// Volumes of which something was lost, with the cache of a member or with the records of the run before, and whose next flush
    /// hears of it.
    pub(super) owed: BTreeSet<VolumeId>,
    /// Blocks of the log before this one may be gone with the cache of the only member that had them: nothing is claimed until a
    /// checkpoint counts that needs none of them.
    doubt: Option<u64>,
    /// Writes that no round covers yet.
    pub(super) unflushed: bool,
    /// Members that something was written to which no flush covers, and some that a flush covered since.
    pub(super) dirty: BTreeSet<DeviceId>,
    /// Since when there are writes or records that no round covers.
    unstable_since: Option<Instant>,
}

/// What a checkpoint leaves behind.
#[derive(Clone, Default)]
pub(super) struct Departing {
    /// System chunks.
    pub(super) chunks: Vec<ChunkId>,
    /// Where the ring of the log will be, with its blocks, when it is in one of them.
    pub(super) ring: Option<(ChunkId, u32)>,
    /// Columns of system chunks that stay and have them elsewhere now. Until the checkpoint counts, these do.
    pub(super) columns: Vec<(ChunkId, Column)>,
}

/// Copies of something under way.
#[derive(Clone, Default)]
struct Copies {
    pending: u32,
    written: u32,
}

impl Commit {
    pub(super) fn new(superblock: Superblock, claim: Option<Claim>, pages: PageSpace, root: Vec<Page>) -> Commit {
        Commit {
            superblock,
            pages,
            root,
            claim,
            parked: None,
            opening: true,
            dead: false,
            is_death_told: false,
            starved: false,
            stuck: false,
            leaf_budget: 0,
            refused: None,
            reserve_counts: 0,
            dirty_leaves: 0,
            counted: 0,
            log_copies: Copies::default(),
            log_columns: Vec::new(),
            left: Vec::new(),
            round: Round::Idle,
            round_flush: 0,
            round_failed: false,
            round_waiters: Vec::new(),
            next_waiters: Vec::new(),
            written_waiters: VecDeque::new(),
            stable_waiters: VecDeque::new(),
            failure_lsn: 0,
            loss_lsn: 0,
            checkpoint: None,
            orphans: Vec::new(),
            leaves: None,
            checkpoint_waiters: Vec::new(),
            renews: 0,
            owed: BTreeSet::new(),
            doubt: None,
            unflushed: false,
            dirty: BTreeSet::new(),
            unstable_since: None,
        }
    }

    /// The last opening that a member took part in is one of ours.
    pub(super) fn knows(&self, member: &Superblock) -> bool {
        member.pool == self.superblock.pool && self.superblock.descends_from(member)
    }

    /// No space is handed out at present.
    pub(super) fn is_closed(&self) -> bool {
        self.dead || self.opening
    }

    /// What the log of the run before says may not be on stable media yet.
    pub(super) fn is_opening(&self) -> bool {
        self.opening
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// One is under way or due, and room comes to be at its end.
    pub(super) fn is_checkpointing(&self) -> bool {
        self.starved || self.opening && self.checkpoint.is_some()
    }

    /// The run that the superblock names, or will.
    pub(super) fn epoch(&self) -> u32 {
        self.superblock.epoch
    }

    /// Nothing can be promised any more.
    pub(super) fn kill(&mut self) {
        self.dead = true;
    }

    pub(super) fn generation(&self) -> u64 {
        self.superblock.generation
    }

    /// Pages of sixteen that a checkpoint wrote: one bit each. The ring of the log is none of them.
    pub(super) fn pages_of(&self, chunk: ChunkId, unit: u32) -> u16 {
        self.pages.taken(chunk, u64::from(unit) * BLOCKS_PER_UNIT)
    }

    /// The chunk with the ring of the log.
    pub(super) fn log_chunk(&self) -> ChunkId {
        self.superblock.system[0].id
    }

    /// A new system chunk, whose first blocks are for a log.
    pub(super) fn add_pages(&mut self, chunk: &Chunk, log_blocks: u64) {
        self.pages.add(chunk, log_blocks);
    }

    /// No page is taken from this chunk any more.
    pub(super) fn shut_pages(&mut self, chunk: ChunkId) {
        self.pages.shut(chunk);
    }

    /// The same, undone.
    pub(super) fn reopen_pages(&mut self, chunk: ChunkId) {
        self.pages.reopen(chunk);
    }

    /// A system chunk without any page goes.
    pub(super) fn remove_pages(&mut self, chunk: ChunkId) {
        self.pages.remove(chunk);
    }

    /// There are so many pages in all, and so many free.
    pub(super) fn has_pages(&self, total: u64, free: u64) -> bool {
        self.pages.total() >= total && self.pages.free() >= free
    }

    /// The next checkpoint is due, and leaves these system chunks.
    pub(super) fn leave(&mut self, departing: Departing) {
        self.leaves = Some(departing);
    }

    /// Columns of a system chunk that count until a checkpoint says where they are now.
    fn old_columns(&self, id: ChunkId) -> impl Iterator<Item = Column> {
        let departing = self.leaves.iter().chain(self.checkpoint.iter().flat_map(|checkpoint| &checkpoint.leaves));
        departing
            .flat_map(|departing| &departing.columns)
            .filter(move |(chunk, _)| *chunk == id)
            .map(|(_, column)| *column)
    }

    /// The ring of the log moves with the checkpoint under way: until that is durable nobody could say where a block is.
    fn is_ring_moving(&self) -> bool {
        let departing = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.leaves.as_ref());
        departing.is_some_and(|departing| departing.ring.is_some())
    }

    /// A checkpoint that leaves system chunks is due, and waits at most for a group of the log.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaves.is_some()
    }

    /// Some pages are damaged where they are.
    pub(super) fn renew_pages(&mut self) {
        self.renews = self.renews.max(1);
    }

    /// Both slots of the superblocks are to be written anew: each checkpoint writes the one that the last one did not.
    pub(super) fn renew_superblocks(&mut self) {
        self.renews = SLOTS.len() as u8;
    }

    /// Pages are being written at this moment.
    pub(super) fn is_writing_pages(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// For whoever looks for what does not go on.
    pub(super) fn state(&self) -> alloc::string::String {
        let Commit { round, round_waiters, next_waiters, stable_waiters, doubt, dead, failure_lsn, .. } = self;
        let waiters = (round_waiters.len(), next_waiters.len(), stable_waiters.len());
        let checkpoint = self.checkpoint.as_ref().map(|c| (c.step, c.copies.pending, c.again));
        alloc::format!(
            "flush {round:?} with waiters {waiters:?}, checkpoint {checkpoint:?}, log in doubt {doubt:?}, failure at {failure_lsn}, \
             dead {dead}"
        )
    }

    /// Pages that are free once what is under way is durable.
    fn pages_to_come(&self) -> u64 {
        self.pages.free() + self.checkpoint.as_ref().map_or(0, |c| c.stale.len() as u64)
    }
}

impl Engine {
    /// Whatever moves when something moves.
    fn commit_state(&self) -> (u64, Lsn, Round, usize, u64, bool) {
        let (journal, commit) = (&self.journal, &self.commit);
        let (written, is_fed) = (journal.written(), self.space.starved.is_empty());
        let seq = journal.next_seq();
        (seq, journal.stable() + written, commit.round, self.ios.len(), self.counters.checkpoints, is_fed)
    }

    /// Moves everything here as far as it goes without waiting.
    pub(super) fn drive_commit(&mut self) {
        loop {
            let before = self.commit_state();
            // The round first: a flush begins while no group of the log is on its way, so it covers all before it.
            self.drive_round();
            self.drive_log();
            self.drive_checkpoint();
            self.reclaim();
            self.retry_full();
            if before == self.commit_state() {
                break;
            }
        }
        if self.commit.dead && !core::mem::replace(&mut self.commit.is_death_told, true) {
            self.outputs.push_back(Output::Event(Event::Suspended));
        }
        let is_unstable = self.journal.stable() < self.journal.appended() || self.commit.unflushed;
        self.commit.unstable_since = match self.commit.unstable_since {
            _ if !is_unstable || self.commit.dead => None,
            None => Some(self.now),
            since => since,
        };
    }
}
