//! Any device behind a write-back cache on flash, as bcache makes it of a disk: what placement is compared with.
//!
//! ```text
//!   write  --> flash --> done; dirty until it is written back       forced: a block of journal and a flush of flash follow
//!   read   --> flash --> done
//!   flush  --> block of journal --> flush of flash --.
//!          '-> flush of the device, if flushes are   |--> done with both
//!              passed on, and something was written  |
//!              back since its last ------------------'
//!   more than `dirty_kib` dirty --> ranges in order of place --> device, some at a time
//! ```
//!
//! A drive whose cache is clean answers a flush at once: so flushes cost the device nothing until writing back begins.
//!
//! Left out: misses (the cache is warm and holds all that a run touches), long runs that go past the cache, the index of
//! what is where and its collection of garbage, a rate of writing back that swings. Dirty data below the mark stays.

use std::collections::BTreeMap;

use braid_core::request::DeviceOp;

use super::dirty::Dirty;
use super::{Command, Done, State as Device};

/// A block of the journal.
const JOURNAL: u64 = 4096;
/// Ranges on their way back at once.
const BACK_AT_ONCE: usize = 8;
/// Most bytes of one of them.
const BACK_MAX: u64 = 512 << 10;

/// What an inner command is there for.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Payload that is not safe before the journal says so.
    Payload(u32),
    /// A block of journal, for whom.
    Journal(u32),
    /// A flush of either, for whom.
    Flush(u32),
    /// Nobody waits.
    Back,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    front: Box<Device>,
    back: Box<Device>,
    dirty_max: u64,
    passes_flushes: bool,
    inner: Done,
    steps: BTreeMap<u32, Step>,
    next_id: u32,
    /// Flushes that a command still waits for.
    flushes: BTreeMap<u32, u32>,
    dirty: Dirty,
    /// Where writing back goes on.
    sweep: u64,
    going_back: usize,
    back_unflushed: bool,
    /// Where the next block of journal goes.
    journal: u64,
}

impl State {
    pub(super) fn new(front: Device, back: Device, dirty_max: u64, passes_flushes: bool) -> State {
        State {
            front: Box::new(front),
            back: Box::new(back),
            dirty_max,
            passes_flushes,
            inner: Done::default(),
            steps: BTreeMap::new(),
            next_id: 0,
            flushes: BTreeMap::new(),
            dirty: Dirty::default(),
            sweep: 0,
            going_back: 0,
            back_unflushed: false,
            journal: 0,
        }
    }

    pub(super) fn arrive(&mut self, now: u64, command: &Command, factor: u64, done: &mut Done) {
        let Command { id, op, offset, len } = *command;
        match op {
            DeviceOp::Read | DeviceOp::Discard => self.front.arrive(now, command, factor, done),
            DeviceOp::Write { .. } | DeviceOp::WriteZeroes => {
                self.dirty.add(offset, offset + len);
                if op == (DeviceOp::Write { fua: true }) {
                    self.flushes.insert(id, 1);
                    self.send_front(now, DeviceOp::Write { fua: false }, (offset, len), Step::Payload(id), factor);
                } else {
                    self.front.arrive(now, command, factor, done);
                }
                self.write_back(now, factor);
            }
            DeviceOp::Flush => {
                let passes = self.passes_flushes && std::mem::take(&mut self.back_unflushed);
                self.flushes.insert(id, 1 + u32::from(passes));
                self.write_journal(now, id, factor);
                if passes {
                    self.send_back(now, DeviceOp::Flush, (0, 0), Step::Flush(id), factor);
                }
            }
        }
    }

    pub(super) fn next_decision(&self) -> Option<u64> {
        [self.inner.next(), self.back.next_decision()].into_iter().flatten().min()
    }

    pub(super) fn decide(&mut self, now: u64, factor: u64, done: &mut Done) {
        if self.back.next_decision().is_some_and(|at| at <= now) {
            self.back.decide(now, factor, &mut self.inner);
        }
        while let Some((at, inner)) = self.inner.take(now) {
            match self.steps.remove(&inner).expect("every inner command has a purpose") {
                Step::Payload(id) => self.write_journal(at, id, factor),
                Step::Journal(id) => self.send_front(at, DeviceOp::Flush, (0, 0), Step::Flush(id), factor),
                Step::Flush(id) => self.flushed(at, id, done),
                Step::Back => {
                    self.going_back -= 1;
                    self.back_unflushed = true;
                    self.write_back(at, factor);
                }
            }
        }
    }

    pub(super) fn settle(&mut self) {
        self.front.settle();
        self.back.settle();
        self.inner.heap.clear();
        self.steps.clear();
        self.flushes.clear();
        self.going_back = 0;
    }

    fn flushed(&mut self, now: u64, id: u32, done: &mut Done) {
        let left = self.flushes.get_mut(&id).expect("somebody waits for it");
        *left -= 1;
        if *left == 0 {
            self.flushes.remove(&id);
            done.at(now, id);
        }
    }

    fn write_journal(&mut self, now: u64, id: u32, factor: u64) {
        self.journal += JOURNAL;
        let place = (self.journal, JOURNAL);
        self.send_front(now, DeviceOp::Write { fua: false }, place, Step::Journal(id), factor);
    }

    /// The next ranges by place, once round and on, while there is more than there may be.
    fn write_back(&mut self, now: u64, factor: u64) {
        while self.dirty.bytes() > self.dirty_max && self.going_back < BACK_AT_ONCE {
            let start = self.dirty.at_or_after(self.sweep).or(self.dirty.at_or_after(0)).expect("something is dirty");
            let end = self.dirty.take(start, BACK_MAX);
            self.sweep = end;
            self.going_back += 1;
            let write = DeviceOp::Write { fua: false };
            self.send_back(now, write, (start, end - start), Step::Back, factor);
        }
    }

    fn send_front(&mut self, now: u64, op: DeviceOp, (offset, len): (u64, u64), step: Step, factor: u64) {
        let id = self.step(step);
        self.front.arrive(now, &Command { id, op, offset, len }, factor, &mut self.inner);
    }

    fn send_back(&mut self, now: u64, op: DeviceOp, (offset, len): (u64, u64), step: Step, factor: u64) {
        let id = self.step(step);
        self.back.arrive(now, &Command { id, op, offset, len }, factor, &mut self.inner);
    }

    fn step(&mut self, step: Step) -> u32 {
        self.next_id = self.next_id.wrapping_add(1);
        self.steps.insert(self.next_id, step);
        self.next_id
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::{Cache, Model, Timing};

    const MS: u64 = 1_000_000;

    /// When each command is done that arrives after the one before.
    fn times(passes_flushes: bool, dirty_kib: u64, ops: &[DeviceOp]) -> Vec<u64> {
        let model = |name| Model::shipped(name).expect("it comes with the crate");
        let cache = Cache { model: Arc::new(model("sata-ssd")), dirty_kib, passes_flushes };
        let mut timing = Timing::new(&model("hdd").behind(cache), 1 << 37, 1);
        let (mut now, mut times) = (0, Vec::new());
        for (id, &op) in ops.iter().enumerate() {
            let began = now;
            let (id, offset) = (id as u32, (id as u64) << 30);
            timing.arrive(now, Command { id, op, offset, len: if op == DeviceOp::Flush { 0 } else { 4096 } });
            loop {
                now = timing.next_event().expect("it is not done yet").max(now);
                if timing.complete(now) == Some(id) {
                    break;
                }
            }
            times.push(now - began);
        }
        times
    }

    const WRITE: DeviceOp = DeviceOp::Write { fua: false };
    const FORCED: DeviceOp = DeviceOp::Write { fua: true };

    #[test]
    fn a_clean_disk_is_never_waited_for() {
        let times = times(true, 1 << 20, &[WRITE, DeviceOp::Flush, FORCED, DeviceOp::Read]);
        assert!(times[0] < MS && times[3] < MS, "{times:?}");
        // A flush of this flash takes a millisecond; what is forced pays for one as well.
        assert!((MS..2 * MS).contains(&times[1]) && (MS..2 * MS).contains(&times[2]), "{times:?}");
    }

    #[test]
    fn flushes_wait_for_what_is_written_back_only_where_they_are_passed_on() {
        let ops = [WRITE, WRITE, WRITE, DeviceOp::Flush, WRITE, DeviceOp::Flush];
        let [passed, kept] = [true, false].map(|passes| times(passes, 4, &ops)[5]);
        assert!(passed > 8 * MS && kept < 2 * MS, "{passed} {kept}");
    }
}
