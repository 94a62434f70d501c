//! The published path of a request through blk-mq, for one device with one hardware queue and one submitter.
//!
//! ```text
//!               submitter sleeps                                            residual (not mergeable)
//!                     |  no tag                                               |  ^
//!   arrive --> merge? --> request --> plug --> software queue or scheduler -->|  | no tag, no room,
//!               |  ^                  finish        |    budget asked here    v  | no budget
//!               '--'                    or full     '--------------------> send --> driver --> complete
//!            nothing new                                refused: it stays, and stays mergeable
//! ```
//!
//! Source: Linux of about 5.1, the kernel of the rbd posting, restated in the specification, sections 5.1 to 5.7. What
//! differs from there:
//!
//! * One list stands for the lists of all CPUs, so that "round-robin over the CPUs" is first in, first out.
//! * While the submitter sleeps for a tag, everything after it waits outside, in order, and finds nobody to merge
//!   with. With several submitters only the sleeping one would wait.
//! * "Asynchronously" is [`Queue::wake_at`] being now: the caller ends its batch with [`Queue::tick`].
//! * A full plug is inserted and the queue is run. The kernel without scheduler first tries to issue its requests one
//!   by one; both send them in order.
//! * The stage below the budget (`driver`) takes what it is given unless it was told a limit
//!   ([`Queue::set_driver_room`]).
//!
//! Whether a completion runs the queue is [`Rerun`]. The budget was made for SCSI, whose driver runs the queue itself
//! when a command comes back; the rbd patch only counts, and what is left is a flag that a run sets when it finds a
//! residual. So after a refusal that left the residual empty, what completes makes room and nobody takes it: the driver
//! runs dry until somebody submits what cannot merge, or for the 3 ms of the timer. That is where the posted runs with a
//! budget have their merges from, and why these bring less than they could. [`Rerun::Restart`] replays it; the default
//! is what the budget was meant to do.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | configuration, submission, tags, the way in and out |
//! | `plug.rs` | what a submitter holds back until its batch ends |
//! | `software.rs` | the list without scheduler |
//! | `deadline.rs` | the scheduler `mq-deadline` |
//! | `dispatch.rs` | running the hardware queue: residual, budget, tags, the busy flag |

mod deadline;
mod dispatch;
mod plug;
mod software;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::budget::{BusyThreshold, RERUN_NS};
use super::chains::{ChainId, Chains};
use super::merge::{Bounds, Fit, Rules, Shape, Variant};
use super::waiting::{Leaving, Waiting};
use crate::request::DeviceOp;
use crate::units::{Instant, MIB};
use deadline::Deadline;
use dispatch::Busy;
use plug::Plug;
use software::Software;

pub use plug::{PLUG_REQUESTS, PLUG_REQUESTS_BEFORE_5_16};

/// Commands in flight where nobody said otherwise: the default of rbd.
pub const QUEUE_DEPTH_DEFAULT: u32 = 128;

/// What requests pass on their way to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// A list. A request has its driver tag from the beginning.
    #[default]
    None,
    /// Device order in batches, with a deadline for each request. Tags are taken at dispatch, so that more requests
    /// may wait than the driver takes.
    Deadline,
}

/// When a completion sends what the budget has held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rerun {
    /// Always, as SCSI drivers do; the timer is the safety net.
    #[default]
    Completion,
    /// If a run has found something in the residual since the last one (the kernel's flag `SCHED_RESTART`); else what is
    /// held waits for the timer. What the posted patch did to rbd.
    Restart,
}

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Config {
    /// What requests pass.
    pub scheduler: Scheduler,
    /// Driver tags: commands in flight, at least 1.
    pub queue_depth: u32,
    /// Requests that exist, in flight included, at least 1; `None` for the kernel's rule, see
    /// [`nr_requests`](Config::nr_requests).
    pub nr_requests: Option<u32>,
    /// The budget; threshold 0 for none.
    pub budget: BusyThreshold,
    /// When a completion sends what was held.
    pub rerun: Rerun,
    /// What one command may be.
    pub bounds: Bounds,
    /// Whose merge test.
    pub variant: Variant,
    /// Requests in a plug when it is full.
    pub plug_requests: usize,
    /// After how long a refused queue asks again, in nanoseconds.
    pub rerun_ns: u64,
}

impl Default for Config {
    /// The defaults of rbd: depth 128, objects of 4 MiB, no budget.
    fn default() -> Config {
        Config {
            scheduler: Scheduler::None,
            queue_depth: QUEUE_DEPTH_DEFAULT,
            nr_requests: None,
            budget: BusyThreshold::default(),
            rerun: Rerun::default(),
            bounds: Bounds { max_bytes: 4 * MIB, max_segments: u32::from(u16::MAX), boundary: 4 * MIB },
            variant: Variant::BlkMq,
            plug_requests: PLUG_REQUESTS,
            rerun_ns: RERUN_NS,
        }
    }
}

impl Config {
    /// Requests that may exist: without scheduler the driver's tags, with one twice as many, up to 256.
    #[must_use]
    pub fn nr_requests(&self) -> u32 {
        let depth = self.queue_depth.max(1);
        match (self.scheduler, self.nr_requests) {
            (Scheduler::None, Some(set)) => set.clamp(1, depth),
            (Scheduler::None, None) => depth,
            (Scheduler::Deadline, Some(set)) => set.max(1),
            (Scheduler::Deadline, None) => 2 * depth.min(128),
        }
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// I/Os that joined a request of the plug, at either end.
    pub merged_plug: u64,
    /// I/Os appended to a waiting request.
    pub merged_back: u64,
    /// I/Os put before a waiting request.
    pub merged_front: u64,
    /// Waiting requests that became one after one of them had grown.
    pub joined: u64,
    /// Commands that left.
    pub dispatched: u64,
    /// Times the budget said no.
    pub refused_budget: u64,
    /// Times no driver tag was free.
    pub refused_tag: u64,
    /// Times the driver had no room.
    pub refused_driver: u64,
    /// Times the 3 ms timer ran the queue.
    pub reruns: u64,
    /// I/Os whose submitter slept for a tag.
    pub slept: u64,
}

/// The queue of one device. See the [module](self).
#[derive(Clone)]
pub struct Queue {
    config: Config,
    chains: Chains,
    plug: Plug,
    stage: Stage,
    /// Taken off the stage and refused: sent first, merged never.
    residual: VecDeque<ChainId>,
    /// What the submitter will do when it wakes.
    outside: VecDeque<Outside>,
    in_flight: u32,
    driver_room: u32,
    busy: Busy,
    /// A run has found a residual: the next completion runs the queue, whatever [`Rerun`] says.
    restart: bool,
    run_at: Option<Run>,
    counters: Counters,
}

#[derive(Clone)]
enum Stage {
    None(Software),
    Deadline(Deadline),
}

/// What a sleeping submitter has yet to do.
#[derive(Clone, Copy)]
enum Outside {
    Io {
        io: Waiting,
        in_plug: bool,
        /// It found nobody to merge with before it fell asleep, and does not try again.
        tried: bool,
    },
    FinishPlug,
}

/// A run of the queue that is due.
#[derive(Clone, Copy)]
struct Run {
    at: Instant,
    /// The safety net, not "asynchronously".
    timer: bool,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(config: Config) -> Queue {
        Queue {
            stage: Stage::new(config.scheduler),
            config,
            chains: Chains::default(),
            plug: Plug::default(),
            residual: VecDeque::new(),
            outside: VecDeque::new(),
            in_flight: 0,
            driver_room: u32::MAX,
            busy: Busy::default(),
            restart: false,
            run_at: None,
            counters: Counters::default(),
        }
    }

    /// An I/O is submitted; `in_plug` says that [`finish_plug`](Self::finish_plug) will follow.
    pub fn arrive(&mut self, now: Instant, io: Waiting, in_plug: bool, leaving: &mut Leaving) {
        let asleep = !self.outside.is_empty();
        if asleep || !self.submit(now, io, in_plug, false, leaving) {
            self.outside.push_back(Outside::Io { io, in_plug, tried: !asleep });
            self.counters.slept += u64::from(!asleep);
        }
    }

    /// The submitter's batch ends.
    pub fn finish_plug(&mut self, now: Instant, leaving: &mut Leaving) {
        if self.outside.is_empty() {
            self.flush_plug(now, leaving);
        } else {
            self.outside.push_back(Outside::FinishPlug);
        }
    }

    /// A command came back, with success or not, or failed on its way out. What the driver has becomes less, the
    /// submitter may wake.
    pub fn complete(&mut self, now: Instant, leaving: &mut Leaving) {
        self.in_flight = self.in_flight.checked_sub(1).expect("a command completes once");
        self.config.budget.put_completed();
        let marked = core::mem::take(&mut self.restart);
        let runs = match self.config.rerun {
            Rerun::Completion => true,
            // An asynchronous run is due anyway, and before this in a kernel.
            Rerun::Restart => marked || self.run_at.is_some_and(|run| !run.timer),
        };
        if runs && self.has_waiting() {
            self.run(now, leaving);
        }
        self.wake_submitter(now, leaving);
    }

    /// The moment of [`wake_at`](Self::wake_at) has come.
    pub fn tick(&mut self, now: Instant, leaving: &mut Leaving) {
        if let Some(run) = self.run_at.filter(|run| run.at <= now) {
            self.run_at = None;
            self.counters.reruns += u64::from(run.timer);
            self.run(now, leaving);
            self.wake_submitter(now, leaving);
        }
    }

    /// When to call [`tick`](Self::tick), if ever. A moment that has passed means: at the end of this batch.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.run_at.map(|run| run.at)
    }

    /// The device is gone: everything that has not left, in no order that means anything. Commands in flight still
    /// have to [`complete`](Self::complete).
    pub fn take_all(&mut self, out: &mut Vec<Waiting>) {
        let Queue { chains, plug, stage, residual, outside, run_at, .. } = self;
        let mut take = |id| {
            chains.take(id, out);
        };
        residual.drain(..).for_each(&mut take);
        match stage {
            Stage::None(software) => software.drain().for_each(&mut take),
            Stage::Deadline(deadline) => deadline.drain(&mut take),
        }
        plug.drain().for_each(&mut take);
        out.extend(outside.drain(..).filter_map(|next| match next {
            Outside::Io { io, .. } => Some(io),
            Outside::FinishPlug => None,
        }));
        *run_at = None;
    }

    /// Other settings from now on. What waits is submitted anew; what is in flight counts against the new budget.
    pub fn switch(&mut self, now: Instant, config: Config, leaving: &mut Leaving) {
        let mut waiting = Vec::new();
        self.take_all(&mut waiting);
        self.stage = Stage::new(config.scheduler);
        self.config = config;
        self.config.budget.set_counter(self.in_flight);
        self.busy = Busy::default();
        waiting.sort_by_key(|io| io.arrived);
        for io in waiting {
            self.arrive(now, io, false, leaving);
        }
    }

    /// Begins while so many commands, sent by another scheduler, are in the driver: they hold tags and budget, and
    /// [`complete`](Self::complete) here.
    pub fn take_over(&mut self, in_flight: u32) {
        self.in_flight = in_flight;
        self.config.budget.set_counter(in_flight);
    }

    /// Commands that left and have not completed.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Nothing waits, inside or outside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chains.len() == 0 && self.outside.is_empty()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The settings, with the budget's present counter.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How many commands the stage below takes before it says "no resources"; no limit at first.
    pub fn set_driver_room(&mut self, commands: u32) {
        self.driver_room = commands;
    }

    // ---- submission -----------------------------------------------------------------------------------------------

    fn rules(&self) -> Rules {
        Rules { bounds: self.config.bounds, variant: self.config.variant }
    }

    /// Takes an I/O in; false if there was no tag for it.
    fn submit(&mut self, now: Instant, io: Waiting, in_plug: bool, tried: bool, leaving: &mut Leaving) -> bool {
        if !tried && self.merge(&io, in_plug) {
            return true;
        }
        if !self.has_tag() {
            // Before the submitter sleeps it runs the queue, and what it has plugged goes.
            self.run(now, leaving);
            self.flush_plug(now, leaving);
            if !self.has_tag() {
                return false;
            }
        }
        let id = self.chains.start(io);
        if self.bypasses(io.op) {
            self.residual.push_back(id);
            self.run(now, leaving);
        } else if in_plug {
            if self.plug.is_full(&self.chains, self.config.plug_requests) {
                self.flush_plug(now, leaving);
            }
            self.plug.push(id);
        } else if matches!(self.stage, Stage::Deadline(_)) || self.busy.is_set() {
            self.insert(now, id);
            self.run_soon(now);
        } else if !self.send(now, id, leaving) {
            self.insert(now, id);
            self.run(now, leaving);
        }
        true
    }

    /// Flushes, and writes to stable media where they cannot join anything, go past plug and scheduler.
    fn bypasses(&self, op: DeviceOp) -> bool {
        match op {
            DeviceOp::Flush => true,
            DeviceOp::Write { fua: true } => self.config.variant == Variant::BlkMq,
            _ => false,
        }
    }

    fn merge(&mut self, io: &Waiting, in_plug: bool) -> bool {
        let rules = self.rules();
        if !rules.joinable(&Shape::from(io)) {
            return false;
        }
        if in_plug && self.plug.merge(&mut self.chains, &rules, io) {
            self.counters.merged_plug += 1;
            return true;
        }
        let fit = match &mut self.stage {
            Stage::None(software) => software.merge(&mut self.chains, &rules, io),
            Stage::Deadline(deadline) => {
                let (fit, joined) = deadline.merge(&mut self.chains, &rules, io);
                self.counters.joined += u64::from(joined);
                fit
            }
        };
        match fit {
            Fit::Back => self.counters.merged_back += 1,
            Fit::Front => self.counters.merged_front += 1,
            Fit::Apart | Fit::Full => return false,
        }
        true
    }

    /// Whether one more request may exist. A command in flight still holds what it was allocated with.
    fn has_tag(&self) -> bool {
        self.chains.len() + (self.in_flight as usize) < self.config.nr_requests() as usize
    }

    fn insert(&mut self, now: Instant, id: ChainId) {
        let rules = self.rules();
        match &mut self.stage {
            Stage::None(software) => software.push(id),
            Stage::Deadline(deadline) => self.counters.joined += deadline.insert(now, &mut self.chains, &rules, id),
        }
    }

    fn flush_plug(&mut self, now: Instant, leaving: &mut Leaving) {
        if self.plug.is_empty() {
            return;
        }
        while let Some(id) = self.plug.pop() {
            self.insert(now, id);
        }
        self.run(now, leaving);
    }

    /// Goes on with what the submitter had in hand, as far as there are tags.
    fn wake_submitter(&mut self, now: Instant, leaving: &mut Leaving) {
        while let Some(next) = self.outside.pop_front() {
            match next {
                Outside::FinishPlug => self.flush_plug(now, leaving),
                Outside::Io { io, in_plug, tried } => {
                    if !self.submit(now, io, in_plug, tried, leaving) {
                        self.outside.push_front(Outside::Io { io, in_plug, tried: true });
                        self.counters.slept += u64::from(!tried);
                        return;
                    }
                }
            }
        }
    }
}

impl Stage {
    fn new(scheduler: Scheduler) -> Stage {
        match scheduler {
            Scheduler::None => Stage::None(Software::default()),
            Scheduler::Deadline => Stage::Deadline(Deadline::default()),
        }
    }
}
