//! Commands on their way to a disk: how long they take, what they leave behind, how they end.

use std::cmp::Reverse;

use braid_core::device::RESERVED;
use braid_core::meta::superblock::{SLOTS, Superblock};
use braid_core::request::{DeviceOp, Dispatch, Input, IoError, Segment};
use braid_core::units::{BLOCK, BufRange, DeviceId, IoId};

use super::{Running, World, mix};
use crate::checker::hold;
use crate::device;
use crate::disk::{Block, Content, SECTOR};
use crate::fault::{Strike, Trouble};
use crate::pages::is_page;
use crate::sabotage::Sabotage;

impl World {
    pub(super) fn issue(&mut self, dispatch: Dispatch) {
        let dispatch = self.bent(dispatch);
        let Dispatch { id, device, op, offset, len } = dispatch;
        let kind = match op {
            DeviceOp::Read => 1,
            DeviceOp::Write { fua } => 2 + u64::from(fua),
            DeviceOp::Flush => 4,
            DeviceOp::Discard => 5,
            DeviceOp::WriteZeroes => 6,
        };
        [u64::from(id.0), u64::from(device.0), kind, offset, len].iter().for_each(|&n| mix(&mut self.hash, n));
        hold!(Completion, !self.running.contains_key(&id.0), "I/O {id} is under way already");
        if op == DeviceOp::Read {
            self.note_spoilt_read(device, offset, len);
        }
        let i = device.index() - 1;
        let (content, sent) = match self.keeps_payload {
            true => self.check(dispatch),
            false => (self.records_of(dispatch), None),
        };
        if let Some(tape) = &mut self.tape {
            tape.sent(dispatch, &content, &self.oracle);
        }
        if self.keep_dispatched {
            self.dispatched.push(dispatch);
        }
        let strike = self.strike(dispatch);
        self.loads[i].begins(self.now);
        self.slow_down(i);
        let timing = &mut self.disks[i].timing;
        match self.instant {
            true => timing.at_once(self.now, id.0),
            false => timing.arrive(self.now, device::Command { id: id.0, op, offset, len }),
        }
        self.schedule(i);
        let running = Running { dispatch, sent, content, mark: self.disks[i].mark(), strike };
        self.running.insert(id.0, running);
        if self.sabotage == Some(Sabotage::IssueTwice) {
            self.sabotage = None;
            self.issue(dispatch);
        }
    }

    /// What will become of a command that leaves now.
    fn strike(&mut self, Dispatch { device, op, offset, len, .. }: Dispatch) -> Option<Strike> {
        self.ripen(device.0);
        let disk = &self.disks[device.index() - 1];
        if self.faults.is_absent(device.0, self.now) {
            return Some(Strike::Fails(IoError::Gone));
        }
        if op == DeviceOp::Read && !disk.is_readable(offset, len) {
            return Some(Strike::Fails(IoError::Media));
        }
        self.faults.strike(device.0, op, (offset, len), disk.size, &mut self.rng)
    }

    /// Latent sectors whose time has come cannot be read from now on.
    fn ripen(&mut self, device: u32) {
        let Self { faults, disks, now, rng, .. } = self;
        let mut flipped = Vec::new();
        faults.0.retain(|fault| match fault.trouble {
            Trouble::Latent { since, from, to } if fault.device == device && since <= *now => {
                disks[device as usize - 1].spoil(from, to);
                false
            }
            Trouble::Flipped { since, from, to, per_mille } if fault.device == device && since <= *now => {
                flipped.extend(disks[device as usize - 1].flip(from, to, per_mille, rng));
                false
            }
            _ => true,
        });
        self.flipped.extend(flipped.iter().map(|&block| ((device, block), self.now)));
        self.spoil(flipped.into_iter().map(|block| (device, block)).collect());
    }

    fn slow_down(&mut self, disk: usize) {
        let factor = self.faults.factor(disk as u32 + 1, self.now);
        self.disks[disk].timing.set_factor(factor);
    }

    /// To look at a disk when something happens there.
    fn schedule(&mut self, disk: usize) {
        let Some(at) = self.disks[disk].timing.next_event() else { return };
        let at = at + if self.exact { 0 } else { self.rng.below(2_000) };
        if self.disks[disk].look_at.is_none_or(|planned| at < planned) {
            self.disks[disk].look_at = Some(at);
            self.order += 1;
            self.heap.push(Reverse((at, self.order, disk)));
        }
    }

    /// Takes one completion of a disk whose moment has come, if there is one.
    pub(super) fn look(&mut self, disk: usize) -> bool {
        self.disks[disk].look_at = None;
        self.slow_down(disk);
        let done = self.disks[disk].timing.complete(self.now);
        self.schedule(disk);
        while let Some(&Reverse((at, _, disk))) = self.heap.peek()
            && self.disks[disk].look_at != Some(at)
        {
            self.heap.pop();
        }
        done.inspect(|&id| self.complete(IoId(id))).is_some()
    }

    pub(super) fn complete(&mut self, id: IoId) {
        let device = self.running.get(&id.0).expect("it is under way").dispatch.device;
        if let Some(until) = self.faults.stuck_until(device.0, self.now) {
            if until != u64::MAX {
                self.held.push((until, id.0));
            }
            return;
        }
        if self.sabotage == Some(Sabotage::LoseCompletion) && id.0 % 8 == 7 {
            return;
        }
        let Running { dispatch, sent, content, mark, mut strike } = self.running.remove(&id.0).expect("just seen");
        let i = device.index() - 1;
        self.loads[i].ends(self.now);
        if self.faults.is_absent(device.0, self.now) {
            strike = Some(Strike::Fails(IoError::Gone));
        }
        let mut result = match strike {
            None | Some(Strike::LandsAt(_) | Strike::Vanishes | Strike::Misreads) => Ok(()),
            Some(Strike::Fails(error)) => Err(error),
            Some(Strike::Tears | Strike::Forgets) => Err(IoError::Media),
        };
        let is_fine = result.is_ok();
        if let Some(tape) = &mut self.tape {
            if strike == Some(Strike::Fails(IoError::Gone)) {
                tape.gone(i);
            }
            tape.ended(dispatch, is_fine);
        }
        if self.sabotage == Some(Sabotage::ForgetFailure) && matches!(dispatch.op, DeviceOp::Write { .. }) {
            result = Ok(());
        }
        if let Some(sent) = sent.filter(|_| self.sabotage != Some(Sabotage::Miscount)) {
            let again = sent.members > 1 && matches!(result, Err(IoError::Media | IoError::NoSpace));
            self.watches[i].complete(&sent, again);
        }
        if !self.keeps_payload {
            return self.complete_bare(dispatch, &content, result.err());
        }
        self.leave(dispatch, &content, mark, strike);
        self.note_outcome(dispatch, is_fine);
        let input = match result {
            Ok(()) => self.read_done(id),
            Err(_) => Input::Complete { id, result },
        };
        self.input(input);
        if self.sabotage == Some(Sabotage::CompleteTwice) {
            self.input(Input::Complete { id, result });
        }
    }

    /// What a command that is over leaves on the disk, or in memory.
    fn leave(&mut self, dispatch: Dispatch, content: &Content, mark: u64, strike: Option<Strike>) {
        let Dispatch { id, device, op, offset, len } = dispatch;
        let i = device.index() - 1;
        let is_fine = strike.is_none_or(Strike::is_silent);
        let percent = match strike {
            None | Some(Strike::LandsAt(_) | Strike::Vanishes | Strike::Misreads) => 100,
            Some(Strike::Tears) => 50,
            Some(Strike::Fails(_) | Strike::Forgets) => *self.rng.pick(&[0, 50, 100]),
        };
        if is_fine && SLOTS.contains(&offset) && op == (DeviceOp::Write { fua: true }) {
            self.note_superblock(device, offset, content);
        }
        match (op, strike) {
            (DeviceOp::Write { .. }, Some(Strike::LandsAt(lands))) => {
                return self.misdirect(device, (offset, Some(lands), len), content);
            }
            (DeviceOp::Write { .. }, Some(Strike::Vanishes)) => {
                return self.misdirect(device, (offset, None, len), content);
            }
            _ => {}
        }
        if matches!(op, DeviceOp::Write { .. }) {
            self.check_memory(dispatch);
        }
        if is_fine && matches!(op, DeviceOp::Write { .. } | DeviceOp::WriteZeroes) {
            self.note_unspoilt(device, offset, len);
        }
        let Self { disks, rng, .. } = self;
        let mut takes = || percent == 100 || rng.percent(percent);
        match op {
            DeviceOp::Read if is_fine => {
                self.fill(id, i, offset);
                if strike == Some(Strike::Misreads) {
                    self.misread(id, offset);
                }
            }
            DeviceOp::Read => {}
            DeviceOp::Write { fua } => disks[i].write(offset, content, fua && is_fine, &mut takes),
            DeviceOp::Flush if is_fine => disks[i].flushed(mark),
            DeviceOp::Flush if strike == Some(Strike::Forgets) => {
                disks[i].lose_cache(rng);
                self.cache_lost.insert(device.0, self.now);
                if self.may_lose_caches {
                    self.oracle.cache_lost();
                }
            }
            DeviceOp::Flush => {}
            DeviceOp::Discard => disks[i].discard(offset, len, rng),
            DeviceOp::WriteZeroes => disks[i].write_zeroes(offset, len, &mut takes),
        }
    }

    /// A superblock is written, as the disk says.
    fn note_superblock(&mut self, device: DeviceId, slot: u64, content: &Content) {
        let bytes: Vec<u8> = content.blocks().iter().flat_map(Block::bytes).collect();
        if let Ok(superblock) = Superblock::decode(&bytes) {
            self.superblocks_written.insert((device.0, slot), superblock.generation);
        }
    }

    /// The memory of a write is there until it ends.
    fn check_memory(&self, dispatch: Dispatch) {
        for segment in self.engine().segments(dispatch.id) {
            if let Segment::Payload(range) = segment {
                let is_there = self.buffers.contains_key(&range.buf.0) || self.pages.get(range.buf).is_some();
                hold!(Completion, is_there, "the memory of {dispatch:?} is gone");
            }
        }
    }

    /// The memory that a read fills, and from where on the device.
    pub(super) fn read_into(&self, id: IoId, offset: u64) -> Vec<(u64, BufRange)> {
        let mut at = offset;
        let mut segments = Vec::new();
        for segment in self.engine().segments(id) {
            at += match segment {
                Segment::Payload(range) => {
                    segments.push((at, range));
                    u64::from(range.len)
                }
                Segment::Gap(len) => len,
                Segment::Record(_) => panic!("a read into a record"),
            };
        }
        segments
    }

    /// Another bit in what a read has filled.
    fn misread(&mut self, id: IoId, offset: u64) {
        let segments = self.read_into(id, offset);
        let &(_, range) = self.rng.pick(&segments);
        if is_page(range.buf) {
            let at = self.rng.below(BLOCK) as usize;
            self.pages.page(range.buf)[at] ^= 1 << self.rng.below(8);
            return;
        }
        let sector = self.rng.below(u64::from(range.len) / SECTOR) as usize;
        let bit = 1 << self.rng.below(64);
        self.memory(range)[sector] ^= bit;
    }

    /// Fills the memory of a read from the disk.
    fn fill(&mut self, id: IoId, disk: usize, offset: u64) {
        // Superblocks are where they are: what a scrub says of them would be noticed first.
        let is_elsewhere = self.sabotage == Some(Sabotage::ReadElsewhere) && offset >= RESERVED;
        let shift = if is_elsewhere { BLOCK } else { 0 };
        for (at, range) in self.read_into(id, offset) {
            if is_page(range.buf) {
                let bytes = self.disks[disk].read_bytes(at + shift, BLOCK);
                self.pages.page(range.buf).copy_from_slice(&bytes);
                continue;
            }
            let mut stamps = vec![0; (u64::from(range.len) / SECTOR) as usize];
            self.disks[disk].read_stamps(at + shift, &mut stamps);
            if at.is_multiple_of(BLOCK) {
                for (block, stamps) in ((at + shift) / BLOCK..).zip(stamps.as_chunks().0) {
                    self.records.note(stamps, || self.disks[disk].block(block));
                }
            }
            self.memory(range).copy_from_slice(&stamps);
        }
    }

    /// Remembers which blocks did not get what was written to them.
    fn note_outcome(&mut self, Dispatch { device, op, offset, len, .. }: Dispatch, is_fine: bool) {
        if !matches!(op, DeviceOp::Write { .. } | DeviceOp::WriteZeroes) {
            return;
        }
        for block in offset / BLOCK..(offset + len) / BLOCK {
            let place = (device.0, block);
            if !is_fine {
                self.failed.insert(place);
            } else if !self.failed.is_empty() || !self.stale.is_empty() {
                self.failed.remove(&place);
                self.stale.remove(&place);
            }
        }
    }

    /// The command as a wrong engine would send it.
    fn bent(&self, mut dispatch: Dispatch) -> Dispatch {
        let is_write = matches!(dispatch.op, DeviceOp::Write { .. });
        match self.sabotage {
            Some(Sabotage::Overlap) if is_write => {
                let others = self.running.values().map(|r| r.dispatch);
                let mut there =
                    others.filter(|o| o.device == dispatch.device && matches!(o.op, DeviceOp::Write { .. }));
                dispatch.offset = there.next().map_or(dispatch.offset, |other| other.offset);
            }
            Some(Sabotage::ReadAbsent) if dispatch.op == DeviceOp::Read => {
                let pool = self.engine().pool();
                let absent = pool.devices().find(|d| !pool.is_online(d.id));
                dispatch.device = absent.map_or(dispatch.device, |d| d.id);
            }
            Some(Sabotage::Misplace) if is_write && dispatch.offset >= RESERVED => {
                dispatch.offset = BLOCK;
            }
            _ => {}
        }
        dispatch
    }
}
