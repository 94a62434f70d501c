//! The queue of one member: a scheduler, what it sent, and what there is to tell about it.
//!
//! ```text
//!   admit ----> scheduler ----> leaving ----> dispatch     a flush has no place and nobody to wait for: it bypasses
//!                   ^                            |
//!                   '--------- complete <--------'
//! ```
//!
//! Schedulers are exchanged while the pool runs: what waits moves over, and what is in flight counts against the new
//! one's limits from the beginning. Which place those commands have is not handed over: a budget that holds runs begins
//! with those that continue what the new scheduler sent.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::blk_mq;
use super::blocked::Obstacle;
use super::braid::BraidQueue;
use super::budget::{Auto, Budget, BusyThreshold, Wait};
use super::class::Class;
use super::config::{BudgetName, Config, Overrides, SchedulerName};
use super::io::Io;
use super::limits::Dirty;
use super::merge::{Rules, Variant};
use super::stats::QueueStats;
use super::waiting::{Command, Leaving, Waiting};
use super::zfs::VdevQueue;
use crate::report::QueueReport;
use crate::request::DeviceOp;
use crate::slab::Slab;
use crate::units::{Instant, IoId};

/// One command that leaves.
pub(crate) struct Departure {
    /// Its first I/O; the others follow by [`Io::next`].
    pub(crate) head: IoId,
    /// What it does.
    pub(crate) op: DeviceOp,
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes, gaps included.
    pub(crate) len: u64,
    /// I/Os.
    pub(crate) members: u64,
}

#[derive(Clone)]
pub(crate) struct DeviceQueue {
    config: Config,
    scheduler: Scheduler,
    /// Sent and not completed, flushes left out.
    in_flight: u32,
    dirty: Option<Dirty>,
    bypassing: Vec<IoId>,
    leaving: Leaving,
    /// How many batches ended.
    batches: u64,
    /// The engine has it on its list for the end of the batch.
    pub(crate) is_touched: bool,
    /// What is set for it means nothing in this version.
    pub(crate) is_on_defaults: bool,
    pub(crate) stats: QueueStats,
}

#[derive(Clone)]
enum Scheduler {
    Braid(Box<BraidQueue>),
    Zfs(Box<VdevQueue>),
    BlkMq {
        queue: Box<blk_mq::Queue>,
        /// I/Os of the present batch are in the plug.
        plugged: bool,
    },
}

impl Scheduler {
    fn new(config: &Config) -> Scheduler {
        match config.scheduler {
            SchedulerName::Braid => {
                Scheduler::Braid(Box::new(BraidQueue::new(config.limits.clone(), rules(config), budget(config))))
            }
            SchedulerName::Zfs(_) => Scheduler::Zfs(Box::new(VdevQueue::new(config.limits.clone()))),
            SchedulerName::BlkMq(which) => {
                Scheduler::BlkMq { queue: Box::new(blk_mq::Queue::new(config.blk_mq(which))), plugged: false }
            }
        }
    }

    /// Takes over other settings of the same rules; false if they are of others.
    fn configure(&mut self, now: Instant, before: &Config, config: &Config, leaving: &mut Leaving) -> bool {
        match (self, config.scheduler) {
            (Scheduler::Braid(queue), SchedulerName::Braid) => {
                queue.configure(config.limits.clone());
                queue.set_rules(rules(config));
                // What `auto` has learned stays as long as nobody touches it.
                if (before.budget, before.budget_wait) != (config.budget, config.budget_wait) {
                    queue.set_budget(budget(config));
                }
            }
            (Scheduler::Zfs(queue), SchedulerName::Zfs(_)) => {
                queue.configure(config.limits.clone());
                // What the old rules kept for ever would wait for an arrival that may never come.
                queue.turn(now, leaving);
            }
            (Scheduler::BlkMq { queue, .. }, SchedulerName::BlkMq(which)) => {
                queue.switch(now, config.blk_mq(which), leaving);
            }
            _ => return false,
        }
        true
    }

    /// Begins while so many commands of each class, sent by another one, are on the device.
    fn take_over(&mut self, now: Instant, active: [u32; Class::COUNT]) {
        match self {
            Scheduler::Braid(queue) => queue.take_over(now, active),
            Scheduler::Zfs(queue) => queue.take_over(now, active),
            Scheduler::BlkMq { queue, .. } => queue.take_over(active.iter().sum()),
        }
    }

    fn arrive(&mut self, now: Instant, io: Waiting, leaving: &mut Leaving) {
        match self {
            Scheduler::Braid(queue) => queue.arrive(io),
            Scheduler::Zfs(queue) => queue.arrive(now, io, leaving),
            Scheduler::BlkMq { queue, plugged } => {
                *plugged = true;
                queue.arrive(now, io, true, leaving);
            }
        }
    }

    fn set_dirty(&mut self, now: Instant, dirty: Option<Dirty>, leaving: &mut Leaving) {
        match self {
            Scheduler::Braid(queue) => queue.set_dirty(dirty),
            Scheduler::Zfs(queue) => {
                queue.set_dirty(dirty);
                queue.turn(now, leaving);
            }
            Scheduler::BlkMq { .. } => {}
        }
    }

    fn take_all(&mut self, out: &mut Vec<Waiting>) {
        match self {
            Scheduler::Braid(queue) => queue.take_all(out),
            Scheduler::Zfs(queue) => out.append(&mut queue.take_all()),
            Scheduler::BlkMq { queue, plugged } => {
                *plugged = false;
                queue.take_all(out);
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Scheduler::Braid(queue) => queue.wake_at(),
            Scheduler::Zfs(queue) => queue.wake_at(),
            Scheduler::BlkMq { queue, .. } => queue.wake_at(),
        }
    }
}

fn rules(config: &Config) -> Rules {
    Rules { bounds: config.bounds(), variant: Variant::Braid }
}

/// Without a wait nothing is ever held, and then there is nothing to measure.
fn budget(config: &Config) -> Budget {
    match config.budget {
        BudgetName::Auto if config.budget_wait != Wait::Fixed(0) => Budget::Auto(Auto::new(config.budget_wait)),
        BudgetName::Off | BudgetName::Auto => Budget::Off,
        BudgetName::Fixed(n) => {
            Budget::Fixed(BusyThreshold::new(i32::try_from(n).unwrap_or(i32::MAX)).unwrap_or_default())
        }
    }
}

impl DeviceQueue {
    pub(crate) fn new(config: Config) -> DeviceQueue {
        DeviceQueue {
            scheduler: Scheduler::new(&config),
            config,
            in_flight: 0,
            dirty: None,
            bypassing: Vec::new(),
            leaving: Leaving::default(),
            batches: 0,
            is_touched: false,
            is_on_defaults: false,
            stats: QueueStats::default(),
        }
    }

    /// Other rules from now on. What waits is looked at anew at the end of the batch.
    pub(crate) fn configure(&mut self, now: Instant, config: Config) {
        if config == self.config {
            return;
        }
        let before = core::mem::replace(&mut self.config, config);
        if !self.scheduler.configure(now, &before, &self.config, &mut self.leaving) {
            for io in self.unload(now) {
                self.scheduler.arrive(now, io, &mut self.leaving);
            }
        }
    }

    /// How much the pool has to write. What waits is looked at anew at the end of the batch.
    pub(crate) fn set_dirty(&mut self, now: Instant, dirty: Option<Dirty>) {
        self.dirty = dirty;
        self.scheduler.set_dirty(now, dirty, &mut self.leaving);
    }

    /// Everything that has not left, oldest first; the scheduler begins anew.
    fn unload(&mut self, now: Instant) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        self.scheduler.take_all(&mut waiting);
        // Commands that arrivals and completions made since the last dispatch.
        waiting.append(&mut self.leaving.members);
        self.leaving.clear();
        self.scheduler = Scheduler::new(&self.config);
        self.scheduler.take_over(now, self.stats.commands());
        self.scheduler.set_dirty(now, self.dirty, &mut self.leaving);
        waiting.sort_by_key(|io| io.arrived);
        waiting
    }

    /// An I/O joins the queue; a [`dispatch`](Self::dispatch) has to follow before the engine rests.
    pub(crate) fn admit(&mut self, now: Instant, id: IoId, io: &mut Io) {
        if io.op == DeviceOp::Flush {
            self.bypassing.push(id);
            return;
        }
        io.batch = self.batches;
        match io.alone {
            true => self.stats.returned(io.class),
            false => self.stats.admitted(io.class, io.len),
        }
        self.scheduler.arrive(now, io.waiting(id), &mut self.leaving);
    }

    /// The end of a batch: hands out the commands that leave now.
    pub(crate) fn dispatch(&mut self, now: Instant, ios: &mut Slab<Io>, mut leave: impl FnMut(Departure)) {
        let DeviceQueue { scheduler, leaving, .. } = self;
        match scheduler {
            Scheduler::Braid(queue) => queue.turn(now, leaving),
            // Arrivals and completions have done their part; what is due by time alone has not.
            Scheduler::Zfs(queue) => {
                if queue.wake_at().is_some_and(|at| at <= now) {
                    queue.turn(now, leaving);
                }
                queue.settle(now);
            }
            Scheduler::BlkMq { queue, plugged } => {
                if core::mem::take(plugged) {
                    queue.finish_plug(now, leaving);
                }
                if queue.wake_at().is_some_and(|at| at <= now) {
                    queue.tick(now, leaving);
                }
            }
        }
        for id in self.bypassing.drain(..) {
            let Io { op, offset, len, .. } = ios[id.0];
            leave(Departure { head: id, op, offset, len, members: 1 });
        }
        for Command { class, offset, len, members } in self.leaving.commands.drain(..) {
            let members = self.leaving.members.get(members).unwrap_or_default();
            let mut next = None;
            for member in members.iter().rev() {
                let io = &mut ios[member.id.0];
                io.next = next.replace(member.id);
                io.dispatched = now;
                match io.alone {
                    true => self.stats.dispatched_again(io.class),
                    false => self.stats.dispatched(io.class, now.since(io.admitted), io.batch != self.batches),
                }
            }
            let Some(first) = next else { continue };
            let head = &mut ios[first.0];
            head.charged = class;
            self.stats.command_left(class, len);
            self.in_flight += 1;
            leave(Departure { head: first, op: head.op, offset, len, members: members.len() as u64 });
        }
        self.leaving.clear();
        self.batches += 1;
    }

    /// The command that began with `head` came back, with success or not; it was `len` bytes, of which `wanted` were its
    /// members'.
    pub(crate) fn complete(&mut self, now: Instant, head: &Io, len: u64, wanted: u64) {
        if head.op == DeviceOp::Flush {
            return;
        }
        let Io { charged: class, op, offset, .. } = *head;
        self.in_flight -= 1;
        self.stats.command_done(class);
        match &mut self.scheduler {
            Scheduler::Braid(queue) => queue.complete(now, class, op, offset, len, wanted),
            Scheduler::Zfs(queue) => queue.complete(now, class, &mut self.leaving),
            Scheduler::BlkMq { queue, .. } => queue.complete(now, &mut self.leaving),
        }
    }

    /// One I/O of a command came back.
    pub(crate) fn member_done(&mut self, now: Instant, io: &Io) {
        if io.op != DeviceOp::Flush {
            self.stats.completed(io.class, io.len, now.since(io.dispatched), now.since(io.admitted));
        }
    }

    /// The device is gone: everything that has not left.
    pub(crate) fn take_waiting(&mut self, now: Instant, ios: &Slab<Io>) -> Vec<IoId> {
        let mut ids: Vec<IoId> = self.unload(now).into_iter().map(|io| io.id).collect();
        for id in &ids {
            self.stats.withdrawn(ios[id.0].class);
        }
        ids.append(&mut self.bypassing);
        ids
    }

    /// For `iostat`, `why`, `get` and metrics.
    pub(crate) fn report(&self, now: Instant, pool: &Overrides, device: &Overrides) -> QueueReport {
        let reasons = match &self.scheduler {
            Scheduler::Braid(queue) => {
                let c = queue.counters();
                [("merged_back", c.merged_back), ("merged_front", c.merged_front), ("joined", c.joined)]
                    .into_iter()
                    .chain([("bridged", c.bridged)])
                    .chain([("dispatched", c.dispatched), ("background_floor", c.floor)])
                    .chain([("held_by_budget", c.held), ("depth_reached", c.depth_reached)])
                    .chain([("class_reached", c.class_reached), ("no_credit", c.no_credit)])
                    .chain([("nia_delay", c.nia_delay), ("dirty_ramp", c.dirty_ramp)])
                    .collect()
            }
            Scheduler::Zfs(queue) => {
                let own = Obstacle::ALL.into_iter().filter(|why| *why != Obstacle::Budget);
                own.map(|why| (why.name(), queue.kept(why))).collect()
            }
            Scheduler::BlkMq { queue, .. } => {
                let c = queue.counters();
                [("merged_plug", c.merged_plug), ("merged_back", c.merged_back), ("merged_front", c.merged_front)]
                    .into_iter()
                    .chain([("joined", c.joined), ("dispatched", c.dispatched), ("refused_budget", c.refused_budget)])
                    .chain([("refused_tag", c.refused_tag), ("timer_reruns", c.reruns), ("submitter_slept", c.slept)])
                    .collect()
            }
        };
        let left_behind = match &self.scheduler {
            Scheduler::Braid(queue) => queue.blocked(now).collect(),
            Scheduler::Zfs(queue) => queue.blocked(now).collect(),
            Scheduler::BlkMq { .. } => Vec::new(),
        };
        let left_behind = left_behind.into_iter().map(|(class, why, ns)| (class, why.name(), ns)).collect();
        // What was set and means nothing is not where these values are from.
        let (none, on_defaults) = (Overrides::new(), self.is_on_defaults);
        let (pool, device) = if on_defaults { (&none, &none) } else { (pool, device) };
        QueueReport { settings: self.config.list(pool, device), stats: self.stats.clone(), reasons, left_behind }
    }

    /// How long something may wait so that it grows.
    pub(crate) fn wait_ns(&self) -> u64 {
        if self.config.budget == BudgetName::Auto { self.config.budget_wait.least_ns() } else { 0 }
    }

    /// Commands on the device.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// When a [`dispatch`](Self::dispatch) is due although nothing happened, if ever.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.scheduler.wake_at()
    }
}
