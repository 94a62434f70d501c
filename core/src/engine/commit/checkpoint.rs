//! Checkpoints: an image of everything to free pages, a flush, superblocks that name it.
//!
//! The first one of an opening may begin with a claim: see [`super::opening`].

use alloc::vec::Vec;

use super::opening::Claim;
use super::{Commit, Copies, Departing, Engine, Waiter};
use crate::ChunkType;
use crate::chunk::Chunk;
use crate::engine::Slip;
use crate::engine::intent::Mark;
use crate::meta::image::{self, Image};
use crate::meta::journal::Lsn;
use crate::meta::pages::{self, Page};
use crate::meta::superblock::{Age, ROOT_RUNS_MAX};
use crate::meta::{Bytes, PAGE, Superblock};
use crate::queue::Owner;
use crate::queue::limits::Dirty;
use crate::regions::Region;
use crate::request::IoError;
use crate::scrub::State;
use crate::units::{DeviceId, Instant};

/// Leaves that may change before a checkpoint is due: bounds the work of one.
const DIRTY_LEAVES_MAX: u64 = 4096;

#[derive(Clone)]
pub(super) struct Checkpoint {
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
    pub(super) system: Vec<Chunk>,
    pub(super) stale: Vec<Page>,
    /// System chunks that it leaves.
    pub(super) leaves: Option<Departing>,
    pub(super) claim: Option<Claim>,
    pub(super) step: Step,
    /// Its pages, until a flush covers them.
    writes: Vec<(Page, Bytes)>,
    /// When all of them are written once more, because they may be gone with the cache of the only member that had them, or because a
    /// flush failed where content is that nobody else has.
    pub(super) again: Option<Instant>,
    /// How often they were.
    tries: u32,
    /// Regions that the image says are clean, since their sums were at home.
    cleaned: Vec<(Region, Mark)>,
    /// Pages of sums are gone with the cache of the only member that had them: the image is taken anew.
    lost_sums: bool,
    /// Number of its flush.
    flush: u64,
    /// It has asked for a flush of the log.
    waits_for_log: bool,
    pub(super) copies: Copies,
    pub(super) failed: bool,
    waiters: Vec<Waiter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A round of it.
    Claim(u8),
    Pages,
    Flush,
    Superblocks,
}

/// How often the pages of a checkpoint are written again, each time a pause later than the last.
const AGAIN_MAX: u32 = 4;
const PAUSE_NS: u64 = 1_000_000_000;

impl Engine {
    /// How urgent a checkpoint's pages are, which are the asynchronous writes there are; `None` while there are none.
    ///
    /// What has to be written before writers are made to wait is here the log: it takes records until its ring is full,
    /// and a checkpoint is what frees it. So its blocks in use are the dirty bytes, and the ring is the limit.
    pub(in crate::engine) fn dirty(&self) -> Option<Dirty> {
        let commit = &self.commit;
        let checkpoint = commit.checkpoint.as_ref()?;
        let sync_waits =
            commit.opening || commit.starved || !checkpoint.waiters.is_empty() || !commit.checkpoint_waiters.is_empty();
        let (bytes, limit) = (self.journal.blocks_used() * PAGE, self.journal.blocks() * PAGE);
        Some(Dirty { bytes, limit, sync_waits })
    }

    pub(in crate::engine) fn join_checkpoint(&mut self, waiter: Waiter) {
        self.commit.checkpoint_waiters.push(waiter);
    }

    /// Pages that no volume of now refers to.
    pub(in crate::engine) fn orphan_pages(&mut self, pages: Vec<Page>) {
        self.commit.orphans.extend(pages);
    }

    /// A checkpoint is due for room in the log.
    pub(in crate::engine) fn is_log_full(&self) -> bool {
        self.journal.blocks_used() > self.journal.blocks() / 2
    }

    /// What the log says may be on no member: the only one that had it lost its cache. A checkpoint is due, and until it counts nothing is
    /// claimed.
    pub fn is_log_in_doubt(&self) -> bool {
        self.commit.doubt.is_some()
    }

    /// A member lost what it got since the last flush, and the note of that is not in the log yet: a process that ends now leaves a member
    /// that nobody knows is behind.
    pub fn is_loss_unsaid(&self) -> bool {
        self.commit.loss_lsn > self.journal.written()
    }

    /// Something may be gone that clients were answered, and no flush has told them: where another engine goes on for them, it has to.
    pub fn owes_a_loss(&self) -> bool {
        self.is_log_in_doubt() || self.is_loss_unsaid() || !self.commit.owed.is_empty()
    }

    pub(super) fn drive_checkpoint(&mut self) {
        let Some(checkpoint) = &self.commit.checkpoint else {
            if self.commit.dead || self.is_replaying() {
                return;
            }
            // Maps change only with a record.
            if self.commit.counted != self.journal.appended() {
                self.commit.counted = self.journal.appended();
                self.commit.dirty_leaves = self.pool.volumes().map(|v| v.map.dirty.len() as u64).sum();
            }
            let due = self.is_log_full()
                || self.commit.dirty_leaves > DIRTY_LEAVES_MAX
                || self.commit.starved
                || self.commit.doubt.is_some()
                || self.commit.leaves.is_some()
                || !self.commit.checkpoint_waiters.is_empty()
                // Not beside the scrub that found it, which would have to look again at every page that moves.
                || self.commit.renews > 0 && self.pool.scrub.state != State::Running
                || self.is_cleaning_due()
                || self.is_catching_up_due();
            // A ring moves between two groups.
            let moves_ring = self.commit.leaves.as_ref().is_some_and(|leaves| leaves.ring.is_some());
            if due && !(moves_ring && self.journal.is_busy()) && !self.waits_for_sums() {
                self.start_checkpoint();
            }
            return;
        };
        if checkpoint.copies.pending > 0 {
            return;
        }
        match checkpoint.step {
            _ if checkpoint.failed || self.commit.dead => self.abandon_checkpoint(),
            Step::Pages | Step::Flush if checkpoint.again.is_some() => {
                if checkpoint.again.is_some_and(|at| at <= self.now) {
                    self.write_image();
                }
            }
            Step::Claim(0) if checkpoint.copies.written == 0 => self.write_image(),
            Step::Claim(round) => self.claim(round + 1),
            Step::Pages => {
                let pending = self.flush_devices(Owner::CheckpointFlush);
                let flush = self.flush_begins();
                let checkpoint = self.commit.checkpoint.as_mut().expect("just seen");
                checkpoint.step = Step::Flush;
                checkpoint.copies.pending = pending;
                checkpoint.flush = flush;
                if pending == 0 {
                    self.drive_checkpoint();
                }
            }
            // Not before its own pages are there, which the next image refers to.
            Step::Flush if checkpoint.lost_sums => self.retake_image(),
            // A member lost what the image takes for flushed: that has to be known before the image counts, by the log or, while
            // that is not written, by another image.
            Step::Flush if self.commit.failure_lsn > checkpoint.first_lsn.max(self.journal.stable()) => {
                self.wait_for_failure();
            }
            Step::Flush if self.columns_stay(checkpoint.leaves.as_ref()) => self.retake_in_place(),
            Step::Flush => {
                let flush = self.commit.checkpoint.as_ref().expect("just seen").flush;
                self.flush_ended(flush);
                self.write_superblocks();
            }
            Step::Superblocks if checkpoint.copies.written == 0 => self.abandon_checkpoint(),
            Step::Superblocks => self.finish_checkpoint(),
        }
    }

    /// Takes the image of this moment and begins to write it.
    pub(in crate::engine) fn start_checkpoint(&mut self) {
        self.make_page_room(0);
        if self.slips(Slip::PagesReusedEarly) {
            let Commit { pages, root, .. } = &mut self.commit;
            root.drain(..).for_each(|page| pages.give_back(page));
        }
        if self.slips(Slip::LogReusedEarly) {
            self.journal.checkpointed(0, self.journal.next_seq());
        }
        let cleaned = self.clean_regions();
        self.clear_caught_up();
        self.hand_out_records();
        let Commit { pages: space, root, .. } = &mut self.commit;
        let Some(image) = image::build(&mut self.pool, space, root) else {
            self.soil_regions(cleaned);
            return self.no_page_room();
        };
        // Those of this image; who changes from now on comes with a record, which makes them be counted again.
        (self.commit.dirty_leaves, self.commit.renews) = (0, self.commit.renews.saturating_sub(1));
        let place = image.place();
        if place.len() > ROOT_RUNS_MAX {
            // More than 43,264 runs, and the pages that list them as scattered as they.
            return self.abandon_checkpoint();
        }
        let is_listed = image.is_listed();
        let Image { writes, mut root, mut list, root_len, root_crc, mut stale } = image;
        root.append(&mut list);
        stale.append(&mut self.commit.orphans);
        let system = self.pool.chunks().filter(|c| c.kind == ChunkType::System && !c.closing).cloned().collect();
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
            leaves: self.commit.leaves.take(),
            claim: self.commit.claim.take().filter(|_| !self.slips(Slip::OpeningNotClaimed)),
            step: Step::Pages,
            writes: writes.into_iter().map(|(page, bytes)| (page, Bytes::new(bytes))).collect(),
            again: None,
            tries: 0,
            cleaned,
            lost_sums: false,
            flush: 0,
            waits_for_log: false,
            copies: Copies::default(),
            failed: false,
            waiters: core::mem::take(&mut self.commit.checkpoint_waiters),
        });
        // Before its pages arrive: a published queue decides then.
        self.post_dirty();
        self.claim(0);
    }

    pub(super) fn write_image(&mut self) {
        let checkpoint = self.commit.checkpoint.as_mut().expect("under way");
        (checkpoint.step, checkpoint.copies, checkpoint.again) = (Step::Pages, Copies::default(), None);
        for (page, bytes) in checkpoint.writes.clone() {
            let (chunk, offset) = pages::locate(page);
            let columns = self.pool.chunk(chunk).expect("pages are in system chunks").columns.iter();
            let here: Vec<_> = columns.filter(|c| self.pool.is_online(c.device)).copied().collect();
            let checkpoint = self.commit.checkpoint.as_mut().expect("just made");
            checkpoint.copies.pending += here.len() as u32;
            // Superblocks elsewhere must not name what is nowhere.
            checkpoint.failed |= here.is_empty();
            for column in here {
                self.issue_record(Owner::Page, column.device, column.offset + offset, bytes.clone(), false);
            }
        }
    }

    /// The only member that has all of the pool's own records lost what it got since the last flush. What is in memory is written
    /// anew: pages where they are, and the log by a checkpoint that does not need it. A member that goes on losing it is no place
    /// for a promise.
    pub(super) fn doubt_records(&mut self) {
        if self.slips(Slip::LossNotDoubted) {
            return;
        }
        self.doubt_log();
        self.write_again();
    }

    /// What a checkpoint takes for flushed is not, or may be nowhere: pages and flush come once more before it counts.
    pub(super) fn write_again(&mut self) {
        let Some(checkpoint) = &mut self.commit.checkpoint else { return };
        if matches!(checkpoint.step, Step::Pages | Step::Flush) && checkpoint.again.is_none() {
            checkpoint.again = Some(self.now + PAUSE_NS * u64::from(checkpoint.tries));
            checkpoint.tries += 1;
            checkpoint.failed |= checkpoint.tries > AGAIN_MAX;
        }
    }

    /// Pages of sums may be on no member. An image whose flush is still to come may call regions clean because of them: they are
    /// marked again, and another image has them so.
    pub(in crate::engine) fn doubt_image(&mut self) {
        if let Some(checkpoint) = self.commit.checkpoint.as_mut().filter(|c| c.step != Step::Superblocks) {
            checkpoint.lost_sums = true;
            let cleaned = core::mem::take(&mut checkpoint.cleaned);
            self.soil_regions(cleaned);
        }
    }

    /// What the log says up to now may be on no member: nothing is claimed until a checkpoint counts that does not need it.
    pub(super) fn doubt_log(&mut self) {
        self.commit.doubt = Some(self.journal.next_seq());
    }

    /// When pages are written again.
    pub(in crate::engine) fn checkpoint_deadline(&self) -> Option<Instant> {
        self.commit.checkpoint.as_ref().filter(|c| c.copies.pending == 0)?.again
    }

    /// Writes another image on top of the one that nothing refers to.
    fn retake_image(&mut self) {
        let before = self.commit.checkpoint.take().expect("under way");
        self.commit.root = before.root;
        self.commit.leaves = before.leaves;
        self.start_checkpoint();
        if let Some(checkpoint) = &mut self.commit.checkpoint {
            checkpoint.stale.extend(before.stale);
            checkpoint.waiters.extend(before.waiters);
            checkpoint.cleaned.extend(before.cleaned);
            checkpoint.tries = before.tries;
        } else {
            self.commit.checkpoint_waiters.extend(before.waiters);
        }
    }

    /// A member that was to get columns of the pool's own records has not got all: the image that counts has them where they were.
    fn retake_in_place(&mut self) {
        let checkpoint = self.commit.checkpoint.as_mut().expect("under way");
        let Departing { columns, .. } = checkpoint.leaves.take().expect("just seen");
        self.take_columns_back(columns);
        self.retake_image();
    }

    /// The superblocks wait for a round that makes the note stable. A ring without room for it, one that is in doubt, and one that
    /// is not written yet or moves with this very checkpoint, leave it to the image.
    fn wait_for_failure(&mut self) {
        let is_unwritable = self.commit.opening || self.commit.is_ring_moving() || self.commit.doubt.is_some();
        let checkpoint = self.commit.checkpoint.as_mut().expect("under way");
        if is_unwritable || self.journal.blocks_used() == self.journal.blocks() {
            self.retake_image();
        } else if !core::mem::replace(&mut checkpoint.waits_for_log, true) {
            self.commit.stable_waiters.push_back((self.commit.failure_lsn - 1, Waiter::Checkpoint));
        }
    }

    pub(in crate::engine) fn page_copy_done(&mut self, device: DeviceId, result: Result<(), IoError>) {
        let spared = result.is_ok() || self.spares_system(device);
        if let (Err(error), true) = (result, spared) {
            self.records_not_written(device, error);
        }
        let checkpoint = self.commit.checkpoint.as_mut().expect("its pages are under way");
        checkpoint.copies.pending -= 1;
        checkpoint.failed |= !spared;
    }

    /// A page or superblock did not arrive on a member, and others have it.
    fn records_not_written(&mut self, device: DeviceId, error: IoError) {
        if error != IoError::Gone {
            self.lacks_records(device, error);
        }
    }

    fn write_superblocks(&mut self) {
        let checkpoint = self.commit.checkpoint.as_mut().expect("under way");
        checkpoint.step = Step::Superblocks;
        checkpoint.writes.clear();
        let raised = u64::from(!self.slips(Slip::GenerationNotRaised));
        let checkpoint = self.commit.checkpoint.as_ref().expect("under way");
        let sb = &mut self.commit.superblock;
        sb.generation += raised;
        sb.image += 1;
        sb.name.clone_from(&self.pool.name);
        (sb.first_lsn, sb.log_seq) = (checkpoint.first_lsn, checkpoint.log_seq);
        (sb.root, sb.root_is_listed) = (checkpoint.place.clone(), checkpoint.is_listed);
        (sb.root_len, sb.root_crc) = (checkpoint.root_len, checkpoint.root_crc);
        if let Some(Departing { ring: Some((chunk, blocks)), .. }) = checkpoint.leaves {
            sb.log_blocks = blocks;
            sb.system[0] = checkpoint.system.iter().find(|c| c.id == chunk).expect("the new ring has a chunk").clone();
        }
        let log = sb.system[0].id;
        let (ring, others): (Vec<&Chunk>, Vec<&Chunk>) = checkpoint.system.iter().partition(|c| c.id == log);
        sb.system = ring.into_iter().chain(others).cloned().collect();
        sb.clean = self.requests.len() == 0;
        sb.without = self.pool.away();
        sb.lagging = self.pool.lagging(sb.image);
        let (superblock, generation) = (sb.clone(), sb.generation);
        self.issue_superblocks(superblock, |_| Some(generation));
    }

    /// To members that are to get one, of this generation.
    pub(super) fn issue_superblocks(&mut self, mut sb: Superblock, generation: impl Fn(DeviceId) -> Option<u64>) {
        let members: Vec<_> =
            self.pool.devices().filter(|d| d.has_superblock()).map(|d| (d.id, d.uuid, d.size)).collect();
        for (id, uuid, size) in members {
            let Some(generation) = generation(id) else { continue };
            sb.generation = generation;
            (sb.device, sb.device_uuid, sb.device_size) = (id, uuid, size);
            let (slot, bytes) = (sb.slot(), sb.encode());
            let checkpoint = self.commit.checkpoint.as_mut().expect("under way");
            checkpoint.copies.pending += 1;
            self.issue_record(Owner::Superblock, id, slot, Bytes::new(bytes), true);
        }
    }

    pub(in crate::engine) fn superblock_done(&mut self, device: DeviceId, result: Result<(), IoError>) {
        if let Err(error) = result
            && self.spares_system(device)
        {
            self.records_not_written(device, error);
        }
        let checkpoint = self.commit.checkpoint.as_mut().expect("its superblocks are under way");
        checkpoint.copies.pending -= 1;
        checkpoint.copies.written += u32::from(result.is_ok());
        let superblock = &self.commit.superblock;
        let written = match (checkpoint.step, &checkpoint.claim) {
            (Step::Claim(round), Some(claim)) => claim.age(device, round),
            _ => Some(superblock.age()),
        };
        if let (Ok(()), Some(written), Some(member)) = (result, written, self.pool.device_mut(device)) {
            let Age { generation, image } = &mut member.age;
            (*generation, *image) = (written.generation.max(*generation), written.image.max(*image));
        }
    }

    fn finish_checkpoint(&mut self) {
        let checkpoint = self.commit.checkpoint.take().expect("under way");
        for page in checkpoint.stale {
            self.commit.pages.give_back(page);
        }
        self.commit.root = checkpoint.root;
        if core::mem::take(&mut self.commit.opening) {
            self.close_empty_chunks();
            self.release_parked();
        }
        self.counters.checkpoints += 1;
        self.caught_up_is_said();
        (self.commit.starved, self.commit.stuck) = (false, false);
        self.commit.doubt = self.commit.doubt.filter(|&seq| checkpoint.log_seq < seq);
        self.space.room = true;
        self.intent.has_room = true;
        self.journal.checkpointed(checkpoint.first_lsn, checkpoint.log_seq);
        if let Some(Departing { chunks, ring, columns }) = checkpoint.leaves {
            self.leave_columns(columns.into_iter().map(|(_, column)| column));
            if let Some((_, blocks)) = ring {
                self.journal.set_blocks(blocks.into());
            }
            chunks.iter().for_each(|&chunk| self.commit.pages.remove(chunk));
            self.system_left(chunks);
        }
        for waiter in checkpoint.waiters {
            self.wake(waiter, true);
        }
        self.log_moved();
    }

    /// The reserve is gone, as in a pool that a foreign hand made: who waits for a checkpoint hears so. While the log has
    /// room the pool goes on, and what is given up may make the next image smaller.
    fn no_page_room(&mut self) {
        (self.commit.starved, self.commit.stuck) = (false, true);
        // Without its first checkpoint a pool can log nothing, without room in the log neither, and in doubt nothing that holds.
        self.commit.dead |= self.commit.opening || self.commit.doubt.is_some();
        self.commit.dead |= self.journal.blocks_used() == self.journal.blocks();
        if self.commit.dead {
            self.release_parked();
        }
        if let Some(leaves) = self.commit.leaves.take() {
            self.system_stays(leaves);
        }
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
