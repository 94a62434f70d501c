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

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Engine, Waiter};
use crate::ChunkType;
use crate::chunk::Chunk;
use crate::device::DeviceState;
use crate::meta::image::{self, Image};
use crate::meta::journal::{Lsn, Run};
use crate::meta::pages::{self, Page, PageSpace};
use crate::meta::superblock::{ROOT_RUNS_MAX, SYSTEM_CHUNKS_MAX};
use crate::meta::{PAGE, Superblock};
use crate::queue::{Io, Owner};
use crate::request::{DeviceOp, IoError};
use crate::units::{BLOCKS_PER_UNIT, ChunkId, DeviceId, Instant};
use crate::volume::{LEAF_SPAN, block_mask};

/// Leaves that may change before a checkpoint is due: bounds the work of one.
const DIRTY_LEAVES_MAX: u64 = 4096;
/// Leaves that pages are made for ahead of time, at least.
const LEAVES_AHEAD: u64 = 64;

/// The moment of a refusal: room that comes free is logged, or was given up by a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Refusal {
    appended: Lsn,
    checkpoints: u64,
    is_checkpointing: bool,
}

pub(super) struct Commit {
    superblock: Superblock,
    pages: PageSpace,
    root: Vec<Page>,
    /// The checkpoint that ends the log of the run before is not durable yet: nothing may be logged, and no space
    /// handed out or discarded. A power cut would bring back maps that still refer to it.
    opening: bool,
    /// The log cannot be written any more: nothing can be promised.
    dead: bool,
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
    log_columns: Vec<usize>,
    round: Round,
    round_failed: bool,
    round_waiters: Vec<Waiter>,
    next_waiters: Vec<Waiter>,
    written_waiters: VecDeque<(Lsn, u32)>,
    pub(super) stable_waiters: VecDeque<(Lsn, Waiter)>,
    /// Records below say which members failed; no write is answered before they are stable.
    pub(super) failure_lsn: Lsn,
    checkpoint: Option<Checkpoint>,
    /// Pages of volumes that are gone since the last checkpoint.
    orphans: Vec<Page>,
    /// For the next checkpoint that begins.
    checkpoint_waiters: Vec<Waiter>,
    /// Writes that no round covers yet.
    pub(super) unflushed: bool,
    /// Since when there are writes or records that no round covers.
    unstable_since: Option<Instant>,
}

/// Copies of something under way.
#[derive(Default)]
struct Copies {
    pending: u32,
    written: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Idle,
    /// Records below are on their way to the log.
    Log(Lsn),
    /// Devices are being flushed.
    Devices(Lsn, u32),
    /// The log is being told that data behind records below is stable.
    Claim(Lsn),
}

struct Checkpoint {
    first_lsn: Lsn,
    log_seq: u64,
    /// Pages of the root, and those that list them.
    root: Vec<Page>,
    /// What the superblock says of where the root is.
    place: Vec<(Page, u32)>,
    is_listed: bool,
    root_len: u32,
    root_crc: u32,
    /// The system chunks that the root knows; one made meanwhile is for the next superblock.
    system: Vec<Chunk>,
    stale: Vec<Page>,
    step: Step,
    copies: Copies,
    failed: bool,
    waiters: Vec<Waiter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Pages,
    Flush,
    Superblocks,
}

impl Commit {
    pub(super) fn new(superblock: Superblock, pages: PageSpace, root: Vec<Page>) -> Commit {
        Commit {
            superblock,
            pages,
            root,
            opening: true,
            dead: false,
            starved: false,
            stuck: false,
            leaf_budget: 0,
            refused: None,
            reserve_counts: 0,
            dirty_leaves: 0,
            counted: 0,
            log_copies: Copies::default(),
            log_columns: Vec::new(),
            round: Round::Idle,
            round_failed: false,
            round_waiters: Vec::new(),
            next_waiters: Vec::new(),
            written_waiters: VecDeque::new(),
            stable_waiters: VecDeque::new(),
            failure_lsn: 0,
            checkpoint: None,
            orphans: Vec::new(),
            checkpoint_waiters: Vec::new(),
            unflushed: false,
            unstable_since: None,
        }
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

    pub(super) fn generation(&self) -> u64 {
        self.superblock.generation
    }

    /// Pages of sixteen that a checkpoint wrote: one bit each. The ring of the log is none of them.
    pub(super) fn pages_of(&self, chunk: ChunkId, unit: u32) -> u16 {
        let first = u64::from(unit) * BLOCKS_PER_UNIT;
        let is_log = self.superblock.system.first().is_some_and(|c| c.id == chunk);
        let log = if is_log { u64::from(self.superblock.log_blocks).saturating_sub(first) } else { 0 };
        self.pages.taken(chunk, first) & !block_mask(0, log.min(BLOCKS_PER_UNIT))
    }

    /// Pages are being written at this moment.
    pub(super) fn is_writing_pages(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Pages that are free once what is under way is durable.
    fn pages_to_come(&self) -> u64 {
        self.pages.free() + self.checkpoint.as_ref().map_or(0, |c| c.stale.len() as u64)
    }
}

impl Engine {
    pub(super) fn join_flush(&mut self, waiter: Waiter) {
        self.commit.next_waiters.push(waiter);
    }

    pub(super) fn wait_written(&mut self, lsn: Lsn, id: u32) {
        self.commit.written_waiters.push_back((lsn, id));
    }

    /// Pages that no volume of now refers to.
    pub(super) fn orphan_pages(&mut self, pages: Vec<Page>) {
        self.commit.orphans.extend(pages);
    }

    pub(super) fn join_checkpoint(&mut self, waiter: Waiter) {
        self.commit.checkpoint_waiters.push(waiter);
    }

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
            if before == self.commit_state() {
                break;
            }
        }
        let is_unstable = self.journal.stable() < self.journal.appended() || self.commit.unflushed;
        self.commit.unstable_since = match self.commit.unstable_since {
            _ if !is_unstable || self.commit.dead => None,
            None => Some(self.now),
            since => since,
        };
    }

    /// When writes and records that nobody asked to flush are flushed all the same.
    pub(super) fn commit_deadline(&self) -> Option<Instant> {
        if self.commit.round != Round::Idle || self.commit.opening {
            // It is being done, or will be as soon as that is possible.
            return None;
        }
        let interval_ns = self.pool.properties.commit_interval_ms * 1_000_000;
        self.commit.unstable_since.map(|since| since + interval_ns)
    }

    // ---- log ------------------------------------------------------------------------------------------------------

    fn drive_log(&mut self) {
        if self.commit.dead {
            return self.give_up();
        }
        if self.commit.opening {
            return;
        }
        // What is written while devices are being flushed is not covered by that, yet stands before the claim in the
        // ring: one lost block would hide the claim. So it is forced.
        let (claim, forced) = match self.commit.round {
            Round::Claim(lsn) => (Some(lsn), true),
            Round::Devices(..) => (None, true),
            _ => (None, false),
        };
        for Run { block, bytes } in self.journal.take_group(claim) {
            let bytes: Arc<[u8]> = bytes.into();
            let columns =
                self.pool.chunk(self.commit.superblock.system[0].id).expect("the log has a chunk").columns.clone();
            self.commit.log_columns.clear();
            for (i, column) in columns.into_iter().enumerate() {
                if self.pool.is_online(column.device) {
                    self.commit.log_copies.pending += 1;
                    self.commit.log_columns.push(i);
                    let at = column.offset + block * PAGE;
                    self.issue_record(Owner::Log, column.device, at, bytes.clone(), forced);
                } else {
                    // Its log ends here; the other copies say more.
                    self.set_aside(column.device, IoError::Gone);
                }
            }
        }
        if self.journal.is_busy() && self.commit.log_copies.pending == 0 {
            self.commit.dead = true;
            self.give_up();
        }
    }

    pub(super) fn log_copy_done(&mut self, io: &Io, result: Result<(), IoError>) {
        self.commit.log_copies.pending -= 1;
        if let Err(error) = result {
            // One copy has to have all of it: a group that wraps around goes out in two parts.
            let log = self.pool.chunk(self.commit.superblock.system[0].id).expect("the log has a chunk");
            let column = log
                .columns
                .iter()
                .position(|c| c.device == io.device && (c.offset..c.offset + log.stripe).contains(&io.offset));
            self.commit.log_columns.retain(|&i| Some(i) != column);
            if self.spares(io.device) {
                self.fail_device(io.device, error);
            }
        }
        if self.commit.log_copies.pending > 0 {
            return;
        }
        if self.commit.log_columns.is_empty() {
            self.commit.dead = true;
            return;
        }
        self.counters.log_blocks += 1;
        self.journal.group_written();
        self.log_moved();
    }

    /// Wakes who waited for what the log says now.
    fn log_moved(&mut self) {
        while let Some(&(lsn, id)) = self.commit.written_waiters.front()
            && lsn < self.journal.written()
        {
            self.commit.written_waiters.pop_front();
            match self.commit.failure_lsn > self.journal.stable() {
                true => self.wait_stable(self.commit.failure_lsn - 1, Waiter::Request(id)),
                false => self.reply(id),
            }
        }
        while let Some(&(lsn, _)) = self.commit.stable_waiters.front()
            && lsn < self.journal.stable()
        {
            let (_, waiter) = self.commit.stable_waiters.pop_front().expect("just seen");
            self.wake(waiter, true);
        }
    }

    /// Nothing can be promised any more: everyone who waits for a promise hears so.
    fn give_up(&mut self) {
        let commit = &mut self.commit;
        let mut all: Vec<Waiter> = core::mem::take(&mut commit.round_waiters);
        all.append(&mut commit.next_waiters);
        all.append(&mut commit.checkpoint_waiters);
        all.extend(core::mem::take(&mut self.space.starved).into_iter().map(Waiter::Starved));
        all.extend(core::mem::take(&mut commit.written_waiters).into_iter().map(|(_, id)| Waiter::Request(id)));
        all.extend(core::mem::take(&mut commit.stable_waiters).into_iter().map(|(_, waiter)| waiter));
        commit.round = Round::Idle;
        for waiter in all {
            self.wake(waiter, false);
        }
    }

    // ---- flush ----------------------------------------------------------------------------------------------------

    fn drive_round(&mut self) {
        loop {
            match self.commit.round {
                _ if self.commit.dead || self.commit.opening => return,
                Round::Idle => {
                    let overdue = self.commit_deadline().is_some_and(|at| self.now >= at);
                    let wanted = !self.commit.next_waiters.is_empty()
                        || !self.commit.stable_waiters.is_empty()
                        || !self.space.starved.is_empty() && self.space.waits_for(self.journal.stable());
                    if !wanted && !overdue {
                        return;
                    }
                    self.commit.unstable_since = None;
                    self.commit.round_failed = false;
                    self.commit.round_waiters = core::mem::take(&mut self.commit.next_waiters);
                    self.commit.round = Round::Log(self.journal.appended());
                }
                Round::Log(lsn) => {
                    if self.journal.written() < lsn || self.journal.is_busy() {
                        return;
                    }
                    let pending = self.flush_devices(Owner::Flush);
                    self.commit.round = Round::Devices(lsn, pending);
                }
                Round::Devices(_, 1..) => return,
                Round::Devices(_, 0) if self.commit.round_failed => self.round_failed(),
                Round::Devices(lsn, 0) => self.commit.round = Round::Claim(lsn),
                Round::Claim(lsn) => {
                    if self.journal.stable() < lsn {
                        return;
                    }
                    // A member failed meanwhile: what its failure spares is told only when the failure is durable.
                    if self.commit.failure_lsn > self.journal.stable() {
                        self.commit.round = Round::Log(self.journal.appended());
                        continue;
                    }
                    self.commit.round = Round::Idle;
                    let fine = !self.commit.round_failed;
                    for waiter in core::mem::take(&mut self.commit.round_waiters) {
                        self.wake(waiter, fine);
                    }
                    self.log_moved();
                }
            }
        }
    }

    /// A flush failed where no other copy stands in: nothing is claimed, and everyone who asked hears of it. What
    /// nobody asked for is tried again after an interval.
    fn round_failed(&mut self) {
        self.commit.round = Round::Idle;
        self.commit.unflushed = true;
        self.commit.unstable_since = Some(self.now);
        let mut all = core::mem::take(&mut self.commit.round_waiters);
        all.extend(core::mem::take(&mut self.commit.stable_waiters).into_iter().map(|(_, waiter)| waiter));
        all.extend(core::mem::take(&mut self.space.starved).into_iter().map(Waiter::Starved));
        for waiter in all {
            self.wake(waiter, false);
        }
    }

    /// Asks every device with unflushed writes to flush; how many that are.
    fn flush_devices(&mut self, owner: Owner) -> u32 {
        // A member that went away with unflushed writes may come back without them.
        let gone = self.pool.devices().filter(|d| d.state == DeviceState::Missing && d.is_dirty());
        let gone: Vec<DeviceId> = gone.map(|d| d.id).collect();
        let mut all = true;
        for device in gone {
            match self.spares(device) {
                true => self.fail_device(device, IoError::Gone),
                false => all = false,
            }
        }
        // There is no way back for it in this run, and one log speaks for all members.
        self.commit.dead |= !all;
        if owner == Owner::Flush {
            self.commit.unflushed = false;
        }
        let online = self.pool.devices().filter(|d| self.pool.is_online(d.id) && d.is_dirty());
        let dirty: Vec<(DeviceId, u64)> = online.map(|d| (d.id, d.written)).collect();
        for &(device, written) in &dirty {
            self.issue_simple(owner, device, DeviceOp::Flush, written, 0);
        }
        dirty.len() as u32
    }

    pub(super) fn device_flushed(&mut self, io: &Io, result: Result<(), IoError>) {
        let covered = io.offset;
        let mut lost = false;
        match result {
            Ok(()) => {
                let device = self.pool.device_mut(io.device).expect("I/Os go to members");
                device.flushed = device.flushed.max(covered);
            }
            Err(error) if self.spares(io.device) => self.fail_device(io.device, error),
            Err(_) => lost = true,
        }
        if io.owner == Owner::Flush {
            self.commit.round_failed |= lost;
            match &mut self.commit.round {
                Round::Devices(_, pending) => *pending -= 1,
                Round::Idle if self.commit.dead => {}
                round => unreachable!("a flush came back in {round:?}"),
            }
        } else if let Some(checkpoint) = &mut self.commit.checkpoint {
            checkpoint.failed |= lost;
            checkpoint.copies.pending -= 1;
        }
    }

    /// Whether everything in the pool has a copy elsewhere.
    pub(super) fn spares(&self, device: DeviceId) -> bool {
        let survives = |chunk: &Chunk| {
            let copies = chunk.profile.facts().copies.max(1);
            let other = |c: &crate::chunk::Column| c.device != device && self.pool.is_online(c.device);
            chunk.columns.chunks(copies).all(|set| set.iter().all(|c| c.device != device) || set.iter().any(other))
        };
        self.pool.chunks().all(survives)
    }

    // ---- checkpoint -----------------------------------------------------------------------------------------------

    fn drive_checkpoint(&mut self) {
        let Some(checkpoint) = &self.commit.checkpoint else {
            if self.commit.dead {
                return;
            }
            // Maps change only with a record.
            if self.commit.counted != self.journal.appended() {
                self.commit.counted = self.journal.appended();
                self.commit.dirty_leaves = self.pool.volumes().map(|v| v.map.dirty.len() as u64).sum();
            }
            let due = self.journal.blocks_used() > self.journal.blocks() / 2
                || self.commit.dirty_leaves > DIRTY_LEAVES_MAX
                || self.commit.starved
                || !self.commit.checkpoint_waiters.is_empty();
            if due {
                self.start_checkpoint();
            }
            return;
        };
        if checkpoint.copies.pending > 0 {
            return;
        }
        match checkpoint.step {
            _ if checkpoint.failed || self.commit.dead => self.abandon_checkpoint(),
            Step::Pages => {
                let pending = self.flush_devices(Owner::CheckpointFlush);
                let checkpoint = self.commit.checkpoint.as_mut().expect("just seen");
                checkpoint.step = Step::Flush;
                checkpoint.copies.pending = pending;
                if pending == 0 {
                    self.drive_checkpoint();
                }
            }
            Step::Flush => self.write_superblocks(),
            Step::Superblocks if checkpoint.copies.written == 0 => self.abandon_checkpoint(),
            Step::Superblocks => self.finish_checkpoint(),
        }
    }

    /// Takes the image of this moment and begins to write it.
    pub(super) fn start_checkpoint(&mut self) {
        self.make_page_room(0);
        let Commit { pages: space, root, .. } = &mut self.commit;
        let Some(image) = image::build(&mut self.pool, space, root) else {
            return self.no_page_room();
        };
        let place = image.place();
        if place.len() > ROOT_RUNS_MAX {
            // More than 43,264 runs, and the pages that list them as scattered as they.
            return self.abandon_checkpoint();
        }
        let is_listed = image.is_listed();
        let Image { writes, mut root, mut list, root_len, root_crc, mut stale } = image;
        root.append(&mut list);
        stale.append(&mut self.commit.orphans);
        let system = self.pool.chunks().filter(|c| c.kind == ChunkType::System).cloned().collect();
        self.commit.checkpoint = Some(Checkpoint {
            first_lsn: self.journal.appended(),
            log_seq: self.journal.next_seq(),
            root,
            place,
            is_listed,
            root_len,
            root_crc,
            system,
            stale,
            step: Step::Pages,
            copies: Copies::default(),
            failed: false,
            waiters: core::mem::take(&mut self.commit.checkpoint_waiters),
        });
        for (page, bytes) in writes {
            let bytes: Arc<[u8]> = bytes.into();
            let (chunk, offset) = pages::locate(page);
            let columns = self.pool.chunk(chunk).expect("pages are in system chunks").columns.clone();
            for column in columns.into_iter().filter(|c| self.pool.is_online(c.device)).collect::<Vec<_>>() {
                let checkpoint = self.commit.checkpoint.as_mut().expect("just made");
                checkpoint.copies.pending += 1;
                self.issue_record(Owner::Page, column.device, column.offset + offset, bytes.clone(), false);
            }
        }
    }

    /// Whether one more leaf, or volume, keeps the reserve whole.
    pub(super) fn has_page_room(&mut self) -> bool {
        if self.commit.leaf_budget == 0 && self.commit.refused != Some(self.this_moment()) {
            self.make_page_room(0);
            // To count takes a walk over all volumes and chunks: too much for each write that a full pool refuses.
            self.commit.refused = (self.commit.leaf_budget == 0).then(|| self.this_moment());
        }
        self.commit.leaf_budget > 0
    }

    fn this_moment(&self) -> Refusal {
        let (appended, checkpoints) = (self.journal.appended(), self.counters.checkpoints);
        Refusal { appended, checkpoints, is_checkpointing: self.commit.is_checkpointing() }
    }

    pub(super) fn take_page_room(&mut self, leaves: u64) {
        self.commit.leaf_budget = self.commit.leaf_budget.saturating_sub(leaves);
    }

    /// Keeps the reserve: a pool that cannot write down its maps is lost, so there are always pages to write *all* of
    /// it once more, every leaf in a page of its own, beside what the last checkpoint wrote.
    ///
    /// ```text
    ///   pages in all >= 2 * image      pages free (after the checkpoint under way) >= image      image = leaves + root
    /// ```
    ///
    /// The first holds after every checkpoint, the second at its beginning; so nothing but a new leaf has to be refused,
    /// and flushes, rewrites, discards and the end of a volume work on a pool that is full to the last unit. System
    /// chunks are made before space for content: for every leaf that the chunks there are (and `more` bytes of one
    /// to come) would fill densely, and for a quarter more leaves than there are.
    pub(super) fn make_page_room(&mut self, more: u64) {
        self.commit.refused = None;
        self.commit.reserve_counts += 1;
        let leaves: u64 = self.pool.volumes().map(|v| v.map.leaves()).sum();
        let chunks = self.pool.chunks().filter(|c| c.kind != ChunkType::System);
        let dense = (chunks.map(|c| c.length).sum::<u64>() + more).div_ceil(LEAF_SPAN);
        let wanted = dense.max(leaves + leaves / 4 + LEAVES_AHEAD);
        let mut system = self.pool.chunks().filter(|c| c.kind == ChunkType::System).count();
        while self.commit.pages.total() < 2 * image::pages_for(&self.pool, wanted) && system < SYSTEM_CHUNKS_MAX {
            let Some(id) = self.open_chunk(ChunkType::System) else { break };
            self.commit.pages.add(self.pool.chunk(id).expect("just made"), 0);
            system += 1;
        }
        let room = |pages| image::leaves_in(&self.pool, pages).saturating_sub(leaves);
        let (in_all, to_come) = (room(self.commit.pages.total() / 2), room(self.commit.pages_to_come()));
        self.commit.leaf_budget = in_all.min(to_come);
        // Pages of volumes that went come free with the next checkpoint.
        self.commit.starved |= in_all > 0 && to_come == 0 && !self.commit.stuck;
    }

    pub(super) fn page_copy_done(&mut self, device: DeviceId, result: Result<(), IoError>) {
        let spared = result.is_ok() || self.spares(device);
        if let (Err(error), true) = (result, spared) {
            self.fail_device(device, error);
        }
        let checkpoint = self.commit.checkpoint.as_mut().expect("its pages are under way");
        checkpoint.copies.pending -= 1;
        checkpoint.failed |= !spared;
    }

    fn write_superblocks(&mut self) {
        let checkpoint = self.commit.checkpoint.as_mut().expect("under way");
        checkpoint.step = Step::Superblocks;
        let sb = &mut self.commit.superblock;
        sb.generation += 1;
        sb.name.clone_from(&self.pool.name);
        (sb.first_lsn, sb.log_seq) = (checkpoint.first_lsn, checkpoint.log_seq);
        (sb.root, sb.root_is_listed) = (checkpoint.place.clone(), checkpoint.is_listed);
        (sb.root_len, sb.root_crc) = (checkpoint.root_len, checkpoint.root_crc);
        let log = sb.system[0].id;
        sb.system.truncate(1);
        sb.system.extend(checkpoint.system.iter().filter(|c| c.id != log).cloned());
        sb.clean = self.requests.len() == 0;
        let members: Vec<_> =
            self.pool.devices().filter(|d| self.pool.is_online(d.id)).map(|d| (d.id, d.uuid, d.size)).collect();
        for (id, uuid, size) in members {
            let sb = &mut self.commit.superblock;
            (sb.device, sb.device_uuid, sb.device_size) = (id, uuid, size);
            let (slot, bytes) = (sb.slot(), sb.encode());
            let checkpoint = self.commit.checkpoint.as_mut().expect("under way");
            checkpoint.copies.pending += 1;
            self.issue_record(Owner::Superblock, id, slot, bytes.into(), true);
        }
    }

    pub(super) fn superblock_done(&mut self, device: DeviceId, result: Result<(), IoError>) {
        if let Err(error) = result
            && self.spares(device)
        {
            self.fail_device(device, error);
        }
        let checkpoint = self.commit.checkpoint.as_mut().expect("its superblocks are under way");
        checkpoint.copies.pending -= 1;
        checkpoint.copies.written += u32::from(result.is_ok());
    }

    fn finish_checkpoint(&mut self) {
        let checkpoint = self.commit.checkpoint.take().expect("under way");
        for page in checkpoint.stale {
            self.commit.pages.give_back(page);
        }
        self.commit.root = checkpoint.root;
        if core::mem::take(&mut self.commit.opening) {
            self.close_empty_chunks();
        }
        self.counters.checkpoints += 1;
        (self.commit.starved, self.commit.stuck) = (false, false);
        self.space.room = true;
        self.journal.checkpointed(checkpoint.first_lsn, checkpoint.log_seq);
        for waiter in checkpoint.waiters {
            self.wake(waiter, true);
        }
        self.log_moved();
    }

    /// The reserve is gone, as in a pool that a foreign hand made: who waits for a checkpoint hears so. While the log has
    /// room the pool goes on, and what is given up may make the next image smaller.
    fn no_page_room(&mut self) {
        (self.commit.starved, self.commit.stuck) = (false, true);
        // Without its first checkpoint a pool can log nothing, and without room in the log neither.
        self.commit.dead |= self.commit.opening || self.journal.blocks_used() == self.journal.blocks();
        for waiter in core::mem::take(&mut self.commit.checkpoint_waiters) {
            self.wake(waiter, false);
        }
    }

    /// The image is not complete: the one before counts on, and with the log it says the same. Without room to log,
    /// that is the end.
    fn abandon_checkpoint(&mut self) {
        if let Some(checkpoint) = self.commit.checkpoint.take() {
            self.commit.checkpoint_waiters.extend(checkpoint.waiters);
        }
        self.commit.dead = true;
        self.give_up();
    }
}
