//! Holds back what a disk has done until its model would have done it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use braid_core::request::{DeviceOp, IoError};

use super::Job;
use crate::backend::pace::Pace;

type Result = std::result::Result<(), IoError>;

/// A command of which one half is done.
enum Half {
    Model,
    Disk(Job, Result),
}

/// One paced disk.
pub(super) struct Pacer {
    pace: Box<dyn Pace>,
    began: Instant,
    next: u32,
    halves: HashMap<u32, Half>,
}

impl Pacer {
    pub(super) fn new(pace: Box<dyn Pace>) -> Pacer {
        Pacer { pace, began: Instant::now(), next: 0, halves: HashMap::new() }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A command arrives now; its number here.
    pub(super) fn arrive(&mut self, op: DeviceOp, offset: u64, len: u64) -> u32 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.pace.arrive(self.now_ns(), id, op, offset, len);
        id
    }

    /// The disk has done it: kept, unless the model has too.
    pub(super) fn disk_done(&mut self, job: Job, result: Result, out: &mut Vec<(Job, Result)>) {
        match self.halves.remove(&job.paced) {
            Some(_) => out.push((job, result)),
            None => drop(self.halves.insert(job.paced, Half::Disk(job, result))),
        }
    }

    /// What the model has done by now, as far as the disk has too.
    pub(super) fn due(&mut self, out: &mut Vec<(Job, Result)>) {
        let now = self.now_ns();
        while let Some(id) = self.pace.done(now) {
            match self.halves.remove(&id) {
                Some(Half::Disk(job, result)) => out.push((job, result)),
                _ => drop(self.halves.insert(id, Half::Model)),
            }
        }
    }

    /// When to look again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.pace.next_ns().and_then(|ns| self.began.checked_add(Duration::from_nanos(ns)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::buffers::Buffers;
    use crate::reactor::{Choice, Event, Reactor, Seg};
    use crate::{backend, reactor};

    /// One at a time, each the same time.
    #[derive(Debug, Default)]
    struct Steady {
        each_ns: u64,
        free_ns: u64,
        queue: VecDeque<(u64, u32)>,
    }

    impl Pace for Steady {
        fn arrive(&mut self, now_ns: u64, id: u32, _: DeviceOp, _: u64, _: u64) {
            self.free_ns = self.free_ns.max(now_ns) + self.each_ns;
            self.queue.push_back((self.free_ns, id));
        }

        fn next_ns(&self) -> Option<u64> {
            self.queue.front().map(|(at, _)| *at)
        }

        fn done(&mut self, now_ns: u64) -> Option<u32> {
            self.queue.pop_front_if(|(at, _)| *at <= now_ns).map(|(_, id)| id)
        }
    }

    /// Content is that of the file, each command is answered once, and none before its time; on a disk whose own time
    /// is shorter and on one that is held up longer than the model would.
    #[test]
    fn commands_are_answered_when_model_and_disk_have_done_them() {
        let uring = Reactor::new(Choice::Uring, &Buffers::new(0, 0).unwrap()).is_ok();
        for (choice, fault_ms) in [(Choice::Threads, 0), (Choice::Threads, 40), (Choice::Uring, 0)] {
            if choice == Choice::Uring && !uring {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            let spec = backend::DiskSpec::Path(dir.path().join("a.img"));
            let options = backend::OpenOptions { create_size: Some(1 << 20), direct: false, ..Default::default() };
            let (mut disk, _) = backend::open(&spec, options).unwrap();
            disk.pace = Some(Box::new(Steady { each_ns: 3_000_000, ..Steady::default() }));
            if fault_ms > 0 {
                disk.set_fault(backend::Fault::DelayMs(fault_ms));
            }
            let mut reactor = Reactor::new(choice, &Buffers::new(0, 0).unwrap()).unwrap();
            let disk = reactor.add_disk(disk);
            let mut memory: Vec<Vec<u8>> = (0..8).map(|i| vec![i + 1; 4096]).collect();
            for op in [DeviceOp::Write { fua: false }, DeviceOp::Read] {
                let began = Instant::now();
                for (i, block) in memory.iter_mut().enumerate() {
                    if op == DeviceOp::Read {
                        block.fill(0);
                    }
                    let segs = [Seg { ptr: block.as_mut_ptr(), len: 4096 }];
                    // SAFETY: the memory lives as long as the reactor, and is looked at when all are answered.
                    unsafe { reactor.submit(disk, i as u64, op, 4096 * i as u64, 4096, &segs) };
                }
                let mut answered = Vec::new();
                while answered.len() < 8 {
                    let mut events = Vec::new();
                    reactor.wait(&mut events, Some(Duration::from_secs(20)));
                    assert!(!events.is_empty(), "{answered:?} and no more");
                    let least = (answered.len() + events.len()) as u32 * Duration::from_millis(3);
                    assert!(began.elapsed() >= least, "{answered:?} {events:?} after {:?}", began.elapsed());
                    assert!(began.elapsed() >= Duration::from_millis(fault_ms.into()), "{events:?}");
                    for event in events {
                        let reactor::Event::Disk { token, result: Ok(()) } = event else { panic!("{event:?}") };
                        answered.push(token);
                    }
                }
                answered.sort_unstable();
                assert_eq!(answered, [0, 1, 2, 3, 4, 5, 6, 7]);
            }
            assert!(memory.iter().zip(1..).all(|(block, i)| block.iter().all(|b| *b == i)));
            let mut events: Vec<Event> = Vec::new();
            reactor.wait(&mut events, Some(Duration::from_millis(10)));
            assert_eq!(events, [], "each is answered once");
        }
    }
}
