//! Commands on their way to a disk: how long they take, what they leave behind, how they end.

use std::cmp::Reverse;

use braid_core::request::{DeviceOp, Dispatch, Input, IoError, Segment};
use braid_core::units::IoId;

use super::{Running, World, mix};
use crate::device;
use crate::disk::SECTOR;

impl World {
    pub(super) fn issue(&mut self, dispatch: Dispatch) {
        let Dispatch { id, device, op, offset, len } = dispatch;
        let kind = match op {
            DeviceOp::Read => 1,
            DeviceOp::Write { fua } => 2 + u64::from(fua),
            DeviceOp::Flush => 4,
            DeviceOp::Discard => 5,
            DeviceOp::WriteZeroes => 6,
        };
        [u64::from(id.0), u64::from(device.0), kind, offset, len].iter().for_each(|&n| mix(&mut self.hash, n));
        let i = device.index() - 1;
        let (content, sent) = match self.keeps_payload {
            true => self.check(dispatch),
            false => (self.records_of(dispatch), None),
        };
        if self.keep_dispatched {
            self.dispatched.push(dispatch);
        }
        let fails = if self.faults.is_absent(device.0, self.now) {
            Some(IoError::Gone)
        } else {
            self.faults.strike(device.0, op, offset, len, &mut self.rng)
        };
        self.loads[i].begins(self.now);
        self.slow_down(i);
        let timing = &mut self.disks[i].timing;
        match self.instant {
            true => timing.at_once(self.now, id.0),
            false => timing.arrive(self.now, device::Command { id: id.0, op, offset, len }),
        }
        self.schedule(i);
        let running = Running { dispatch, sent, content, mark: self.disks[i].mark(), fails };
        assert!(self.running.insert(id.0, running).is_none(), "I/O {id} is under way already");
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
        let Running { dispatch, sent, content, mark, mut fails } = self.running.remove(&id.0).expect("it is under way");
        let Dispatch { device, op, offset, len, .. } = dispatch;
        let i = device.index() - 1;
        self.loads[i].ends(self.now);
        if self.faults.is_absent(device.0, self.now) {
            fails = Some(IoError::Gone);
        }
        if let Some(sent) = &sent {
            let again = sent.members > 1 && matches!(fails, Some(IoError::Media | IoError::NoSpace));
            self.watches[i].complete(sent, again);
        }
        if !self.keeps_payload {
            return self.complete_bare(dispatch, &content, fails);
        }
        let engine = self.engine.as_ref().expect("the engine is up");
        let percent = if fails.is_some() { *self.rng.pick(&[0, 50, 100]) } else { 100 };
        let Self { disks, rng, .. } = self;
        let mut takes = || percent == 100 || rng.percent(percent);
        match op {
            DeviceOp::Read if fails.is_none() => {
                let mut at = offset;
                let mut segments = Vec::new();
                for segment in engine.segments(id) {
                    at += match segment {
                        Segment::Payload(range) => {
                            segments.push((at, range));
                            u64::from(range.len)
                        }
                        Segment::Gap(len) => len,
                        Segment::Record(_) => panic!("a read into a record"),
                    };
                }
                for (at, range) in segments {
                    let mut stamps = vec![0; (u64::from(range.len) / SECTOR) as usize];
                    self.disks[i].read_stamps(at, &mut stamps);
                    self.memory(range).copy_from_slice(&stamps);
                }
            }
            DeviceOp::Read => {}
            DeviceOp::Write { fua } => {
                for segment in engine.segments(id) {
                    if let Segment::Payload(range) = segment {
                        assert!(self.buffers.contains_key(&range.buf.0), "the memory of {dispatch:?} is gone");
                    }
                }
                disks[i].write(offset, &content, fua && fails.is_none(), &mut takes);
            }
            DeviceOp::Flush if fails.is_none() => disks[i].flushed(mark),
            DeviceOp::Flush => {}
            DeviceOp::Discard => disks[i].discard(offset, len, rng),
            DeviceOp::WriteZeroes => disks[i].write_zeroes(offset, len, &mut takes),
        }
        self.input(Input::Complete { id, result: fails.map_or(Ok(()), Err) });
    }
}
