//! Flushes: a round writes the log, flushes devices and says in the log what is stable now.

use alloc::vec::Vec;

use crate::ChunkType;
use crate::chunk::{Chunk, Column};
use crate::device::Device;
use crate::engine::{Active, Engine, Slip, Waiter};
use crate::meta::journal::Lsn;
use crate::queue::{Io, Owner};
use crate::regions::Region;
use crate::request::{DeviceOp, IoError, Op, Request};
use crate::units::{DeviceId, Instant, VolumeId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    Idle,
    /// Records below are on their way to the log.
    Log(Lsn),
    /// Devices are being flushed.
    Devices(Lsn, u32),
    /// The log is being told that data behind records below is stable.
    Claim(Lsn),
}

impl Engine {
    pub(in crate::engine) fn join_flush(&mut self, waiter: Waiter) {
        self.commit.next_waiters.push(waiter);
    }

    /// When writes and records that nobody asked to flush are flushed all the same.
    pub(in crate::engine) fn commit_deadline(&self) -> Option<Instant> {
        if self.commit.round != Round::Idle || self.commit.opening || self.commit.doubt.is_some() {
            // It is being done, or will be as soon as that is possible.
            return None;
        }
        let interval_ns = self.pool.properties.commit_interval_ms * 1_000_000;
        self.commit.unstable_since.map(|since| since + interval_ns)
    }

    pub(super) fn drive_round(&mut self) {
        if self.commit.doubt.is_none() && !self.commit.dead && self.only_receivers_have_records() {
            self.doubt_log();
        }
        loop {
            match self.commit.round {
                _ if self.commit.dead || self.commit.opening => return,
                // What it would cover may be gone from the log.
                Round::Idle | Round::Devices(_, 0) if self.commit.doubt.is_some() && !self.commit.round_failed => {
                    return;
                }
                Round::Idle => {
                    let overdue = self.commit_deadline().is_some_and(|at| self.now >= at);
                    let wanted = !self.commit.next_waiters.is_empty()
                        || !self.commit.stable_waiters.is_empty()
                        || (!self.space.starved.is_empty() || self.moving.is_starved())
                            && self.space.waits_for(self.journal.stable());
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
                    self.commit.round_flush = self.flush_begins();
                    self.commit.round = Round::Devices(lsn, pending);
                }
                Round::Devices(_, 1..) => return,
                Round::Devices(_, 0) if self.commit.round_failed => self.round_failed(),
                // What a member lost of this is said before all of it is called stable: blocks of one group may arrive apart.
                Round::Devices(_, 0) if self.commit.failure_lsn > self.journal.written() => return,
                Round::Devices(lsn, 0) => {
                    self.flush_ended(self.commit.round_flush);
                    self.commit.round = Round::Claim(lsn);
                }
                Round::Claim(lsn) => {
                    if self.journal.stable() < lsn {
                        return;
                    }
                    // A member failed meanwhile: what its failure spares is told only when the failure is durable.
                    if self.is_failure_unsaid() {
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
        (self.commit.round, self.commit.round_failed) = (Round::Idle, false);
        self.commit.unflushed = true;
        self.commit.unstable_since = Some(self.now);
        let mut all = core::mem::take(&mut self.commit.round_waiters);
        all.extend(core::mem::take(&mut self.commit.stable_waiters).into_iter().map(|(_, waiter)| waiter));
        all.extend(core::mem::take(&mut self.space.starved).into_iter().map(Waiter::Starved));
        for waiter in all {
            self.wake(waiter, false);
        }
    }

    /// A member that is needed lost what it got of these regions since the last flush. Whoever waits for that flush hears of it; if it
    /// is nobody, the next who asks does, once for each volume, or he would take for stable what is gone.
    pub(in crate::engine) fn owe_error(&mut self, lost: &[Region]) {
        // What belongs to no volume alone may be anybody's.
        let is_shared = lost.iter().any(|&(volume, _)| self.pool.volume(volume).is_none());
        let is_hit = |volume: &VolumeId| is_shared || lost.iter().any(|(of, _)| of == volume);
        let hit: Vec<VolumeId> = self.pool.volumes().map(|v| v.id).filter(is_hit).collect();
        self.doubt_writes(&hit);
        self.commit.owed.extend(hit);
    }

    /// Writes that are to be stable when they are answered, by a flush that is still to come, hear of it themselves: that flush covers
    /// what is left of them.
    fn doubt_writes(&mut self, hit: &[VolumeId]) {
        if self.slips(Slip::UnstableAnswered) {
            return;
        }
        let is_unstable = |active: &Active| active.trouble.as_ref().is_some_and(|trouble| trouble.is_unstable);
        // What a flush has covered already is stable.
        let is_covered = matches!(self.commit.round, Round::Claim(_));
        let covered = self.commit.round_waiters.iter().filter_map(|waiter| match waiter {
            Waiter::Request(id) if is_covered && !is_unstable(&self.requests[*id]) => Some(*id),
            _ => None,
        });
        let covered: Vec<u32> = covered.collect();
        for active in self.requests.iter_mut() {
            let Request { op, volume, .. } = active.request;
            let is_to_be_stable = matches!(op, Op::Write { fua: true } | Op::WriteZeroes { fua: true, .. });
            if is_to_be_stable && !active.forced && hit.contains(&volume) {
                active.trouble.get_or_insert_default().is_unstable = true;
            }
        }
        for id in covered {
            self.requests[id].trouble.iter_mut().for_each(|trouble| trouble.is_unstable = false);
        }
    }

    /// Whether a request that is about to be answered is a flush of a volume that something was lost of.
    pub(in crate::engine) fn is_owed_error(&mut self, id: u32) -> bool {
        let Request { op, volume, .. } = self.requests[id].request;
        op == Op::Flush && self.commit.owed.remove(&volume)
    }

    /// Asks every device with unflushed writes to flush; how many that are.
    pub(super) fn flush_devices(&mut self, owner: Owner) -> u32 {
        let Engine { pool, commit, .. } = self;
        commit.dirty.retain(|&id| pool.device(id).is_some_and(Device::is_dirty));
        // Whoever went away has nothing to flush: what may have gone with its cache is noted, or told. One that failed is left out, and
        // stays on the list, since it may be in use again.
        let dirty = commit.dirty.iter().filter_map(|&id| pool.device(id)).filter(|d| d.state.is_used());
        let dirty: Vec<(DeviceId, u64)> = dirty.map(|d| (d.id, d.written)).collect();
        if owner == Owner::Flush {
            self.commit.unflushed = false;
        }
        let slip = if owner == Owner::Flush { Slip::ClaimBeforeFlush } else { Slip::SuperblockBeforeFlush };
        if self.slips(slip) {
            for &(id, written) in &dirty {
                self.pool.device_mut(id).expect("it is dirty").flushed = written;
            }
            return 0;
        }
        for &(device, written) in &dirty {
            self.issue_simple(owner, device, DeviceOp::Flush, written, 0);
        }
        dirty.len() as u32
    }

    pub(in crate::engine) fn device_flushed(&mut self, io: &Io, result: Result<(), IoError>) {
        let covered = io.offset;
        let mut lost = false;
        match (self.pool.device_mut(io.device), result) {
            // It has left meanwhile, and nothing of it counts any more.
            (None, _) => {}
            (Some(device), Ok(())) => device.flushed = device.flushed.max(covered),
            // It may have lost anything since the last flush: what others hold as well is caught up.
            (_, Err(error)) if error != IoError::Gone => lost = self.cache_lost(io.device, error),
            // It went, and what it had is noted, unless something is nowhere else.
            (_, Err(_)) => lost = self.pool.device(io.device).is_some_and(Device::is_dirty) && !self.spares(io.device),
        }
        if io.owner == Owner::Flush {
            self.commit.round_failed |= lost;
            match &mut self.commit.round {
                Round::Devices(_, pending) => *pending -= 1,
                Round::Idle if self.commit.dead => {}
                round => unreachable!("a flush came back in {round:?}"),
            }
        } else if let Some(checkpoint) = &mut self.commit.checkpoint {
            checkpoint.failed |= lost && result == Err(IoError::Gone);
            checkpoint.copies.pending -= 1;
            if lost {
                self.covered_lost();
            }
        }
    }

    /// A member in use was connected anew, by its own medium: as after a flush of it that failed.
    pub(in crate::engine) fn connected_anew(&mut self, device: DeviceId) {
        if self.cache_lost(device, IoError::Gone) {
            self.covered_lost();
        }
    }

    /// What a member got since the last flush may be gone; whether some of it is nowhere else.
    fn cache_lost(&mut self, device: DeviceId, error: IoError) -> bool {
        let (has_copy, will_have) = (self.has_records_besides(device), self.spares_system(device));
        let lost = !self.lose_unflushed(device, error);
        match (has_copy, will_have) {
            (true, _) => self.copy_of_records_lost(device, !lost),
            (false, true) => {
                self.doubt_log();
                self.copy_of_records_lost(device, !lost);
            }
            (false, false) => self.doubt_records(),
        }
        lost
    }

    /// Something is gone that is nowhere else, and that was no flush of the log.
    pub(in crate::engine) fn covered_lost(&mut self) {
        // What is being flushed for others may have gone with it.
        self.commit.round_failed |= matches!(self.commit.round, Round::Devices(_, 1..));
        // First writes among it would be there after a power cut by the map, and by the disk what stood in their places before.
        self.write_again();
    }

    /// A member lost what it got of the pool's own records, and others have it: it gets all of them again, at once where it lost
    /// nothing that is nowhere else.
    fn copy_of_records_lost(&mut self, device: DeviceId, at_once: bool) {
        let has_records = self.pool.chunks_on(device).any(|chunk| chunk.kind == ChunkType::System);
        if has_records || at_once {
            self.is_to_get_records(device);
        }
        if at_once {
            self.ask_for_records();
        }
    }

    /// Whether everything in the pool has a copy elsewhere.
    pub(in crate::engine) fn spares(&self, device: DeviceId) -> bool {
        let mut behind = self.may_be_found_behind();
        behind.all(|other| self.is_no_help(other, device)) && self.spares_chunks(device, |_| true)
    }

    /// Whether it will, as soon as a checkpoint says what others have caught up with.
    pub(in crate::engine) fn spares_soon(&self, device: DeviceId) -> bool {
        self.pool.stale.keys().all(|&other| self.is_no_help(other, device)) && self.spares_chunks(device, |_| true)
    }

    fn is_no_help(&self, other: DeviceId, device: DeviceId) -> bool {
        other == device || !self.pool.is_online(other)
    }

    /// Whether the pool's own records have a copy elsewhere.
    pub(in crate::engine) fn spares_system(&self, device: DeviceId) -> bool {
        self.spares_chunks(device, |chunk| chunk.kind == ChunkType::System)
    }

    /// Whether such columns have all of the pool's own records that the checkpoint under way is to stand for.
    pub(in crate::engine) fn have_records(&self, counts: impl Fn(&Column) -> bool) -> bool {
        let system = self.commit.checkpoint.iter().flat_map(|checkpoint| &checkpoint.system);
        system.filter_map(|chunk| self.pool.chunk(chunk.id)).all(|chunk| self.has_copies(chunk, |_| true, &counts))
    }

    fn spares_chunks(&self, device: DeviceId, which: impl Fn(&Chunk) -> bool) -> bool {
        let is_other = |c: &Column| c.device != device;
        let survives = |chunk: &Chunk| match chunk.rows() {
            0 => self.has_copies(chunk, |set| !set.iter().all(is_other), is_other),
            _ => chunk.rows_survive(|c| c.device == device || !self.pool.is_online(c.device)),
        };
        self.pool.chunks_on(device).filter(|chunk| which(chunk)).all(survives)
    }

    /// Whether in each set of copies of a chunk that matters there is a member that counts, and has it.
    fn has_copies(&self, chunk: &Chunk, matters: impl Fn(&[Column]) -> bool, counts: impl Fn(&Column) -> bool) -> bool {
        let copies = chunk.profile.facts().copies.max(1);
        let is_there = |c: &Column| counts(c) && self.pool.is_online(c.device);
        // A member that is behind in the pool's own records is no copy of them.
        let has_it =
            |c: &Column| is_there(c) && (chunk.kind != ChunkType::System || !self.lacks(c.device, chunk, 0, None));
        let mut sets = chunk.columns.chunks(copies).filter(|set| matters(set));
        sets.all(|set| set.iter().any(has_it)) || self.commit.old_columns(chunk.id).any(|c| is_there(&c))
    }
}
