//! What the queue of one member may send, counted from outside.
//!
//! ```text
//!   per command   depth, class, size, buffers, boundary, gaps      against the settings in force
//!   per batch     what the queue says it has on the device         against what was sent
//!                 somebody waits and nothing is on the device      somebody has to be woken
//!   when quiet    nothing waits, nothing is active                 sums against what completed
//! ```
//!
//! Settings change under load. What left in the batch of the change may go by either; what an earlier scheduler sent counts
//! against the next one too; and what was joined under other bounds stays joined, so that sizes are looked at again once
//! nobody waited at the end of a batch. I/Os of a command that failed may go again, each by itself.

use braid_core::Engine;
use braid_core::queue::class::Class;
use braid_core::queue::config::{BudgetName, Config, SchedulerName};
use braid_core::queue::stats::ClassStats;
use braid_core::request::{DeviceOp, Dispatch};
use braid_core::units::DeviceId;

use crate::checker::hold;

/// A command as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// What.
    pub dispatch: Dispatch,
    /// Whom it counts against.
    pub class: Class,
    /// I/Os.
    pub members: u64,
    /// What lies between them.
    pub gaps: Gaps,
}

/// What a command reads for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps {
    /// How many.
    pub count: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Bytes of the longest.
    pub longest: u64,
}

impl Gaps {
    /// One more.
    pub fn add(&mut self, len: u64) {
        let Gaps { count, bytes, longest } = *self;
        *self = Gaps { count: count + 1, bytes: bytes + len, longest: longest.max(len) };
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Watch {
    device: DeviceId,
    config: Config,
    /// What was in force since the beginning of the batch: a command may have been sent under any of it.
    before: Vec<Config>,
    /// Joined commands may still be of other bounds.
    mixed: bool,
    /// Commands on the device.
    own: [u32; Class::COUNT],
    sent: u64,
    members_sent: u64,
    /// Of commands that failed and are repeated in parts.
    members_returned: u64,
    members_done: u64,
    bytes_done: u64,
}

impl Watch {
    /// An idle device.
    pub fn new(device: DeviceId, config: Config) -> Watch {
        Watch {
            device,
            before: Vec::new(),
            config,
            mixed: false,
            own: [0; Class::COUNT],
            sent: 0,
            members_sent: 0,
            members_returned: 0,
            members_done: 0,
            bytes_done: 0,
        }
    }

    /// Expects one command at a time, whatever the settings say.
    pub fn expect_one(&mut self) {
        self.config.budget = BudgetName::Fixed(1);
        self.before.clear();
    }

    /// Other settings, maybe.
    pub fn configure(&mut self, config: Config) {
        if config == self.config {
            return;
        }
        self.mixed = true;
        self.before.push(std::mem::replace(&mut self.config, config));
    }

    /// A command leaves; panics when it may not.
    pub fn send(&mut self, dispatch: Dispatch, class: Class, members: u64, gaps: Gaps) -> Sent {
        let sent = Sent { dispatch, class, members, gaps };
        if dispatch.op == DeviceOp::Flush {
            return sent;
        }
        hold!(Limits, class == class.fitting(dispatch.op), "{class:?}, a class that {dispatch:?} cannot have");
        let (own, all) = (self.own[class.index()], self.own.iter().sum::<u32>());
        let before = |of: fn(&Config, Class) -> u32| self.before.iter().map(move |config| of(config, class)).max();
        let most = |of: fn(&Config, Class) -> u32| before(of).unwrap_or(0).max(of(&self.config, class));
        hold!(Limits, all < most(depth), "{all} are on the device: {dispatch:?}; {:?}", self.config);
        hold!(Limits, own < most(class_max), "{own} of {class:?} are on the device: {dispatch:?}; {:?}", self.config);
        if members > 1 && !self.mixed {
            self.check_bounds(&sent);
        }
        self.own[class.index()] += 1;
        self.sent += 1;
        self.members_sent += members;
        sent
    }

    fn check_bounds(&self, sent: &Sent) {
        let Sent { dispatch, members, gaps, .. } = *sent;
        let Config { limits, .. } = &self.config;
        let why = || format!("{members} I/Os in {dispatch:?}; {:?}", self.config);
        let (bytes, segments, boundary, gap) = match self.config.scheduler {
            SchedulerName::Braid => {
                let bytes = self.config.max_request.min(limits.aggregation_limit());
                (bytes, limits.max_segments(), self.config.boundary, limits.read_gap_limit())
            }
            SchedulerName::Zfs(_) => (limits.aggregation_limit(), limits.max_segments(), 0, limits.read_gap_limit()),
            SchedulerName::BlkMq(_) => {
                let bounds = self.config.bounds();
                (bounds.max_bytes, bounds.max_segments, bounds.boundary, 0)
            }
        };
        hold!(Limits, dispatch.len <= bytes && members + gaps.count <= segments.into(), "{gaps:?}: {}", why());
        let gaps_fit = gaps.longest <= gap && (gaps.count == 0 || dispatch.op == DeviceOp::Read);
        hold!(Limits, gaps_fit, "{gaps:?}: {}", why());
        let last = dispatch.offset + dispatch.len - 1;
        let is_inside = boundary == 0 || dispatch.offset / boundary == last / boundary;
        hold!(Limits, is_inside, "over a boundary: {}", why());
    }

    /// It came back; `again` says that its I/Os go again, each by itself.
    pub fn complete(&mut self, sent: &Sent, again: bool) {
        if sent.dispatch.op == DeviceOp::Flush {
            return;
        }
        self.own[sent.class.index()] -= 1;
        if again {
            self.members_returned += sent.members;
            return;
        }
        self.members_done += sent.members;
        self.bytes_done += sent.dispatch.len - sent.gaps.bytes;
    }

    /// The engine rests; `wakes` says that it asked to be woken.
    pub fn rest(&mut self, engine: &Engine, wakes: bool) {
        self.before.clear();
        let Some(stats) = engine.queue_stats(self.device) else { return self.is_unused() };
        let sum = |of: fn(&ClassStats) -> u32| stats.all().map(|(_, c)| of(c)).sum::<u32>();
        let (queued, active, commands) = (sum(|c| c.queued), sum(|c| c.active), sum(|c| c.commands));
        let here = self.own.iter().sum::<u32>();
        hold!(
            Budget,
            commands == here,
            "the queue counts {commands} commands on device {}, there are {here}",
            self.device
        );
        let there = self.members_sent - self.members_done - self.members_returned;
        hold!(
            Budget,
            u64::from(active) == there,
            "the queue counts {active} I/Os on device {}, there are {there}",
            self.device
        );
        hold!(
            Drain,
            queued == 0 || here > 0 || wakes,
            "device {} is idle, and {queued} wait: {:?}",
            self.device,
            self.config
        );
        self.mixed &= queued > 0;
    }

    /// A device that the engine did not take has no queue.
    fn is_unused(&self) {
        hold!(Budget, self.members_sent == 0, "device {} is no member and gets commands", self.device);
    }

    /// All is quiet.
    pub fn check_quiet(&self, engine: &Engine) {
        let device = self.device;
        let Some(stats) = engine.queue_stats(device) else { return self.is_unused() };
        for (class, c) in stats.all() {
            let left = (c.queued, c.active, c.commands);
            hold!(Drain, left == (0, 0, 0), "{left:?} of {class:?} are left at device {device}");
            let counted = (c.device_ns().count(), c.total_ns().count());
            hold!(
                Drain,
                counted == (c.ios, c.ios),
                "{counted:?} times of {} I/Os, {class:?} of device {device}",
                c.ios
            );
            // What was withdrawn when the device vanished never left, or left once and did not come to its second way.
            let waited = (c.size_before().count(), c.queue_ns().count());
            hold!(
                Drain,
                waited.0 >= waited.1 && waited.1 >= c.ios,
                "{waited:?} waits of {} I/Os, {class:?} of device {device}",
                c.ios
            );
        }
        let sum = |of: fn(&ClassStats) -> u64| stats.all().map(|(_, c)| of(c)).sum::<u64>();
        let counted = (sum(|c| c.ios), sum(|c| c.bytes), sum(|c| c.size_after().count()));
        let seen = (self.members_done, self.bytes_done, self.sent);
        hold!(
            Drain,
            counted == seen,
            "device {device} counts {counted:?} I/Os, bytes and commands; seen were {seen:?}"
        );
        let again = sum(|c| c.left) - self.members_done;
        hold!(
            Drain,
            again <= self.members_returned,
            "{again} I/Os left device {device} a second time, {} came back to go again",
            self.members_returned
        );
        let here = self.own.iter().sum::<u32>();
        hold!(Drain, here == 0, "{here} commands never came back from device {device}");
    }
}

/// Commands on the device, flushes aside.
fn depth(config: &Config, _: Class) -> u32 {
    let depth = match config.scheduler {
        SchedulerName::Braid | SchedulerName::Zfs(_) => config.limits.max_active(),
        SchedulerName::BlkMq(which) => config.queue_depth.min(config.blk_mq(which).nr_requests()),
    };
    match config.budget {
        BudgetName::Fixed(n) => depth.min(n),
        BudgetName::Off | BudgetName::Auto => depth,
    }
}

fn class_max(config: &Config, class: Class) -> u32 {
    match config.scheduler {
        SchedulerName::Braid | SchedulerName::Zfs(_) => config.limits.class(class).max,
        SchedulerName::BlkMq(_) => u32::MAX,
    }
}
