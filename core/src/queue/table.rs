//! Rows of the decision table of the vdev queue that the published queue and ours have to give alike, and the words they
//! are told in.

use alloc::vec;
use alloc::vec::Vec;

use super::class::Class::{
    self, AsyncRead, AsyncWrite, Initializing, Rebuild, Removal, Scrub, SyncRead, SyncWrite, Trim,
};
use super::limits::{Generation, QueueSettings};
use super::testing::read;
use super::waiting::{Leaving, Waiting};
use crate::request::DeviceOp;
use crate::units::{Instant, KIB, MIB};

const LEN: u64 = 4 * KIB;

/// What the rows ask of a scheduler.
pub(super) trait Scheduler: Sized {
    fn with(settings: QueueSettings) -> Self;
    /// One more waits, and nothing starts yet.
    fn wait(&mut self, now: Instant, io: Waiting);
    /// One arrives, and what may start does.
    fn arrive(&mut self, now: Instant, io: Waiting, out: &mut Leaving);
    /// Loops until nothing may start.
    fn turn(&mut self, now: Instant, out: &mut Leaving);
    /// A command of these ends, and what may start does.
    fn complete(&mut self, now: Instant, done: (Class, DeviceOp, u64, u64), out: &mut Leaving);
    fn active(&self, class: Class) -> u32;
    /// Interactive commands active, and credit.
    fn credit(&self) -> (u32, u64);
}

/// A queue and a row's words for it. All I/Os are far from each other.
pub(super) struct Row<Q> {
    pub(super) queue: Q,
    pub(super) now: Instant,
    pub(super) next: u32,
    /// On the device: class, operation, place and length.
    pub(super) flying: Vec<(Class, DeviceOp, u64, u64)>,
}

impl<Q: Scheduler> Row<Q> {
    pub(super) fn new(generation: Generation, settings: &[(&str, &str)]) -> Self {
        let mut all = QueueSettings::new(generation, true);
        settings.iter().for_each(|(name, value)| all.set(name, value).expect(name));
        Row { queue: Q::with(all), now: Instant(0), next: 0, flying: vec![] }
    }

    pub(super) fn published() -> Self {
        Row::new(Generation::V2_0_1, &[])
    }

    pub(super) fn io(&mut self, class: Class) -> Waiting {
        self.next += 1;
        let op = match class {
            SyncWrite | AsyncWrite | Initializing => DeviceOp::Write { fua: false },
            Trim => DeviceOp::Discard,
            _ => DeviceOp::Read,
        };
        let place = u64::from(self.next) * 100 * MIB;
        Waiting { class, op, arrived: self.now, ..read(self.next, place, LEN) }
    }

    /// So many wait, and nothing starts yet.
    pub(super) fn wait(&mut self, class: Class, n: u32) {
        for _ in 0..n {
            let io = self.io(class);
            self.queue.wait(self.now, io);
        }
    }

    /// Something happens; the classes of what starts.
    pub(super) fn classes(&mut self, act: impl FnOnce(&mut Q, Instant, &mut Leaving)) -> Vec<Class> {
        let mut out = Leaving::default();
        act(&mut self.queue, self.now, &mut out);
        let started = out.commands.iter().zip(&out.members);
        self.flying.extend(started.map(|(command, io)| (command.class, io.op, io.offset, io.len)));
        out.commands.iter().map(|command| command.class).collect()
    }

    /// A turn; the classes of what starts.
    pub(super) fn issue(&mut self) -> Vec<Class> {
        self.classes(Q::turn)
    }

    /// One arrives; the classes of what starts.
    pub(super) fn arrive(&mut self, class: Class) -> Vec<Class> {
        let io = self.io(class);
        self.classes(|queue, now, out| queue.arrive(now, io, out))
    }

    pub(super) fn complete(&mut self, class: Class) -> Vec<Class> {
        let at = self.flying.iter().position(|flying| flying.0 == class).expect("one is active");
        let done = self.flying.remove(at);
        self.classes(|queue, now, out| queue.complete(now, done, out))
    }

    /// Interactive commands active, and credit.
    pub(super) fn credit(&self) -> (u32, u64) {
        self.queue.credit()
    }

    fn active(&self, class: Class) -> u32 {
        self.queue.active(class)
    }

    /// Three scrub commands active on a device that was idle for long, and more of them waiting.
    pub(super) fn scrubbing() -> Self {
        let mut row = Row::published();
        row.wait(Scrub, 30);
        row.issue();
        (0..5).for_each(|_| drop(row.complete(Scrub)));
        assert_eq!((row.active(Scrub), row.credit()), (3, (0, 5)));
        row
    }

    /// 3.1: a scrub on an idle device speeds up.
    pub(super) fn row_3_1() {
        let mut row = Self::published();
        row.wait(Scrub, 20);
        assert_eq!(row.issue(), [Scrub]);
        let mut counts = vec![];
        for i in 1..=7 {
            assert_eq!(row.active(Scrub), if i <= 5 { 1 } else { 3 });
            counts.push(row.complete(Scrub).len());
        }
        assert_eq!(counts, [1, 1, 1, 1, 3, 1, 1]);
    }

    /// 3.2: an interactive one stops it.
    pub(super) fn row_3_2() {
        let mut row = Self::scrubbing();
        assert_eq!(row.arrive(SyncRead), [SyncRead]);
        assert_eq!(row.credit(), (1, 1));
        assert_eq!([row.complete(Scrub).len(), row.complete(Scrub).len(), row.complete(Scrub).len()], [0, 0, 1]);
        assert_eq!(row.credit(), (1, 0));
        assert_eq!(row.complete(SyncRead), []);
        assert_eq!((row.credit(), row.active(Scrub)), ((0, 0), 1));
    }

    /// 3.3: credit is spent; what comes next is blocked.
    pub(super) fn row_3_3() -> Self {
        let mut row = Self::published();
        assert_eq!([row.arrive(Scrub), row.arrive(SyncRead), row.arrive(SyncRead)], [[Scrub], [SyncRead], [SyncRead]]);
        row.wait(Scrub, 30);
        assert_eq!((row.credit(), row.active(Scrub)), ((2, 1), 1));
        assert_eq!(row.complete(Scrub), [Scrub]);
        assert_eq!(row.credit(), (2, 0));
        assert_eq!(row.complete(SyncRead), []);
        assert_eq!(row.credit(), (1, 5));
        for left in [4, 3, 2, 1, 0] {
            assert_eq!(row.complete(Scrub), [Scrub]);
            assert_eq!(row.credit(), (1, left));
        }
        row
    }

    /// 3.6: the first scan starts at the second class.
    pub(super) fn row_3_6() -> Self {
        let mut row = Self::new(Generation::V2_0_1, &[("max_active", "5")]);
        Class::ALL.into_iter().for_each(|class| row.wait(class, 50));
        assert_eq!(row.issue(), [SyncWrite, AsyncRead, AsyncWrite, Scrub, Trim]);
        assert_eq!(row.credit().1, 0);
        assert_eq!([Removal, Initializing, Rebuild].map(|class| row.active(class)), [0; 3]);
        row
    }

    /// 3.8: trim is interactive.
    pub(super) fn row_3_8() {
        let mut row = Self::published();
        row.wait(Scrub, 10);
        row.wait(Trim, 1);
        assert_eq!(row.issue(), [Scrub, Trim]);
        assert_eq!(row.credit(), (1, 1));
        assert_eq!(row.issue(), []);
    }
}
