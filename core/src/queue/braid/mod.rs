//! braid's own queue: classes, joining and budget in one.
//!
//! ```text
//!                 +--> lane of sync_read    free | runs --+
//!   arrive -------+--> lane of sync_write   free | runs --+--> turn:  which class     selection
//!     (joins)     +--> ...                                |           which request   the older of the two heads
//!                 +--> lane of rebuild      free | runs --+           may it go       budget, runs only
//! ```
//!
//! **The door.** Any number of [`arrive`](BraidQueue::arrive), [`complete`](BraidQueue::complete) and changes of rules,
//! then one [`turn`](BraidQueue::turn). What came between two turns meets before anything of it leaves.
//!
//! **Classes.** The choice is that of OpenZFS (`queue/selection.rs`): minimum in turn, maximum by priority,
//! background by credit, and a floor under it. A class takes part as long as somebody of it may go: one that has
//! nothing but runs that the budget holds is passed over, and neither its turn nor credit is spent.
//!
//! **Joins stay within a class**, unlike in OpenZFS, where neighbours of any class ride along for free. A client's read
//! never waits in a scrub's request for the scrub's turn, and a scrub's read never makes a client's command longer. It
//! costs little: where both want the same place at the same time, one command more. For the same reason only a
//! command of its own class in flight makes a request a run.
//!
//! **Background work in short commands.** What a client sends in one batch it waits for together; nobody waits for the
//! end of a scrub's window. Joined into one command all of it would come back at once and leave the device idle, and
//! who arrives meanwhile would wait for all of it. Such a command has at most
//! [`background_aggregation_limit`](QueueSettings::background_aggregation_limit).
//!
//! **Order.** Classes that somebody waits for go by arrival. The others go by place within slots of 0.54 s, as in
//! OpenZFS since 2.2: a scrub submits in that order anyway, but pages of a checkpoint and write-back come as they come,
//! and on a disk each step back costs a seek. Whoever extends a run goes by arrival in every class, since it is held
//! for a time.
//!
//! **Gaps.** A read that leaves takes along the reads of its class that lie no further than
//! [`read_gap_limit`](QueueSettings::read_gap_limit) from it or from each other. What is between is read for nothing, and
//! counts against the limits of the command, as one segment each. Nobody is held for that: a run is what touches.
//! `write_gap_limit` says nothing here, and an optional I/O is done as any other.
//!
//! **Limits of a command** are the lesser of what the device takes ([`Rules`]) and what the settings say.
//!
//! **Promises.** Every I/O that arrives leaves once: as a member of a command or through
//! [`take_all`](BraidQueue::take_all). Once the tables have grown, nothing is allocated but nodes of ordered maps.
//! An I/O of a client that touches nothing is in none of them.

mod edges;
mod gaps;
mod lane;
mod loose;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use super::blocked::{Blocked, Obstacle};
use super::budget::{Budget, Verdict};
use super::class::Class;
use super::limits::{Dirty, LbaOrder, QueueSettings};
use super::merge::Rules;
use super::selection::{Mask, Selection, bits};
use super::waiting::{Leaving, Waiting};
use crate::request::DeviceOp;
use crate::units::Instant;
use lane::Lane;

/// What happened so far.
///
/// Those of the second half say why somebody waits, and count classes: one each at the end of a turn that leaves
/// somebody of that class behind for that reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// I/Os appended to a waiting request.
    pub merged_back: u64,
    /// I/Os put before a waiting request.
    pub merged_front: u64,
    /// Waiting requests that became one when the gap between them closed.
    pub joined: u64,
    /// Gaps between reads that left together.
    pub bridged: u64,
    /// Commands that left.
    pub dispatched: u64,
    /// Commands of those that the floor under background work let go.
    pub floor: u64,

    /// The budget said "hold" to its runs, or, when it knows no runs, to everybody (counted once).
    pub held: u64,
    /// `max_active` commands were on the device.
    pub depth_reached: u64,
    /// The class had its maximum.
    pub class_reached: u64,
    /// It was background work without credit.
    pub no_credit: u64,
    /// It was background work too soon after the last client.
    pub nia_delay: u64,
    /// It was asynchronous writes, and the ramp gave them no more.
    pub dirty_ramp: u64,
}

/// The queue of one device. See the [module](self).
#[derive(Clone)]
pub struct BraidQueue {
    selection: Selection,
    rules: Rules,
    budget: Budget,
    /// For classes that somebody waits for, and for background work.
    how: [How; 2],
    lanes: [Lane; Class::COUNT],
    /// I/Os by class.
    queued: [u32; Class::COUNT],
    /// One bit for each class that has some.
    waiting: Mask,
    last_offset: u64,
    /// The latest moment it was told.
    now: Instant,
    wake_at: Option<Instant>,
    blocked: Blocked,
    counters: Counters,
}

/// What lanes have to know.
#[derive(Clone)]
struct How {
    /// Limits of device and settings.
    rules: Rules,
    order: LbaOrder,
    /// Bytes between reads that leave together.
    read_gap: u64,
    /// The budget asks what is a run.
    tracks: bool,
}

/// Whom the budget holds in this turn. It only grows: commands do not come back during a turn.
#[derive(Default)]
struct Held {
    /// Classes whose runs stay.
    runs: Mask,
    until: Option<Instant>,
}

impl BraidQueue {
    /// An empty queue of an idle device.
    #[must_use]
    pub fn new(settings: QueueSettings, rules: Rules, budget: Budget) -> BraidQueue {
        let how = How::both(&settings, rules, &budget);
        BraidQueue {
            lanes: Class::ALL.map(|class| Lane::new(&how[side(class)], class.is_fifo())),
            how,
            selection: Selection::new(settings),
            rules,
            budget,
            queued: [0; Class::COUNT],
            waiting: 0,
            last_offset: 0,
            now: Instant(0),
            wake_at: None,
            blocked: Blocked::default(),
            counters: Counters::default(),
        }
    }

    // ---- what happens ----------------------------------------------------------------------------------------------

    /// An I/O joins the queue. A class that its operation cannot have is put right first
    /// ([`Class::fitting`]); the members of commands carry that.
    pub fn arrive(&mut self, mut io: Waiting) {
        let class = io.class.fitting(io.op);
        io.class = class;
        self.selection.arrived(io.arrived, self.waiting, class);
        self.waiting |= bit(class);
        self.queued[class.index()] += 1;
        self.lanes[class.index()].arrive(&self.how[side(class)], &io, &mut self.counters);
    }

    /// Everything that may go leaves.
    pub fn turn(&mut self, now: Instant, leaving: &mut Leaving) {
        self.now = self.now.max(now);
        let mut held = Held::default();
        let open = loop {
            let open = self.open(now, &mut held);
            let Some(class) = self.selection.choose(now, open) else { break open };
            self.leave(now, class, held.runs & bit(class) == 0, leaving);
            // A batch of one client's: nothing but the first is asked about.
            if self.budget.is_off() {
                self.leave_loose(now, class, self.selection.again(open, class), leaving);
            }
        };
        let BraidQueue { blocked, selection, waiting, .. } = self;
        blocked.settle(now, *waiting, |class| match open & bit(class) {
            0 => Obstacle::Budget,
            _ => selection.obstacle(class),
        });
        // Of those that the budget holds the floor could let nobody go.
        self.wake_at = earlier(held.until, self.selection.wake_at(open));
    }

    /// The command `[offset, offset + len)` came back, with success or not; `wanted` is its length without gaps, `class`
    /// is [`Command::class`](super::waiting::Command::class). A [`turn`](Self::turn) follows. Panics when no command of
    /// that class is in flight.
    pub fn complete(&mut self, now: Instant, class: Class, op: DeviceOp, offset: u64, len: u64, wanted: u64) {
        self.now = self.now.max(now);
        self.selection.completed(class);
        self.budget.completed(now, wanted);
        self.lanes[class.index()].completed(&self.how[side(class)], op, offset, len);
    }

    /// The device is gone: everything that has not left, oldest first. Commands in flight still have to
    /// [`complete`](Self::complete).
    pub fn take_all(&mut self, out: &mut Vec<Waiting>) {
        let start = out.len();
        self.lanes.iter_mut().for_each(|lane| lane.take_all(out));
        out[start..].sort_by_key(|io| io.arrived);
        self.queued = [0; Class::COUNT];
        self.waiting = 0;
        self.wake_at = None;
    }

    /// Begins while so many commands of each class, sent by another scheduler, are on the device: they count, and
    /// [`complete`](Self::complete) here. Nobody is held for continuing them.
    pub fn take_over(&mut self, now: Instant, active: [u32; Class::COUNT]) {
        self.now = self.now.max(now);
        self.selection.take_over(now, active);
        self.budget.take_over(now, self.active_total());
    }

    // ---- rules, each followed by a turn ----------------------------------------------------------------------------

    /// Other limits and pace from now on; what is active stays, and what is joined stays joined.
    pub fn configure(&mut self, settings: QueueSettings) {
        self.selection.configure(settings);
        self.sort_anew();
    }

    /// Another device's limits from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        self.sort_anew();
    }

    /// Another budget from now on; what is in flight counts against it. If the one before did not look at runs, the
    /// first to be held are those that continue what leaves from now on.
    pub fn set_budget(&mut self, mut budget: Budget) {
        budget.take_over(self.now, self.active_total());
        self.budget = budget;
        self.sort_anew();
    }

    /// How much the pool has to write, which moves the maximum of asynchronous writes; `None` when nobody knows.
    pub fn set_dirty(&mut self, dirty: Option<Dirty>) {
        self.selection.set_dirty(dirty);
    }

    // ---- what there is ---------------------------------------------------------------------------------------------

    /// When to [`turn`](Self::turn) if nothing happens before, as of the last turn: what the budget holds, or the floor
    /// under background work.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Its limits and pace.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        self.selection.settings()
    }

    /// The budget as it is.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Commands of a class on the device.
    #[must_use]
    pub fn active(&self, class: Class) -> u32 {
        self.selection.active(class)
    }

    /// Commands on the device.
    #[must_use]
    pub fn active_total(&self) -> u32 {
        self.selection.active_total()
    }

    /// Interactive commands on the device.
    #[must_use]
    pub fn active_interactive(&self) -> u32 {
        self.selection.active_interactive()
    }

    /// I/Os of a class that wait.
    #[must_use]
    pub fn queued(&self, class: Class) -> u32 {
        self.queued[class.index()]
    }

    /// Nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// End of the command that left last, flushes aside; 0 before the first.
    #[must_use]
    pub fn last_offset(&self) -> u64 {
        self.last_offset
    }

    /// Background commands that are paid for, or background completions since somebody waited.
    #[must_use]
    pub fn credit(&self) -> u64 {
        self.selection.credit()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            floor: self.selection.floors(),
            depth_reached: self.blocked.turns(Obstacle::Depth),
            class_reached: self.blocked.turns(Obstacle::Maximum),
            no_credit: self.blocked.turns(Obstacle::Credit),
            nia_delay: self.blocked.turns(Obstacle::Delay),
            dirty_ramp: self.blocked.turns(Obstacle::Ramp),
            ..self.counters
        }
    }

    /// How long somebody of a class was left behind, by what: until `now`.
    pub(super) fn blocked(&self, now: Instant) -> impl Iterator<Item = (Class, Obstacle, u64)> {
        self.blocked.times(now)
    }

    // ---- how it is done --------------------------------------------------------------------------------------------

    /// The classes that have somebody whom the budget lets go.
    fn open(&mut self, now: Instant, held: &mut Held) -> Mask {
        // At the depth of the device it is not asked: a completion comes first.
        if self.waiting == 0 || self.selection.is_full() {
            return self.waiting;
        }
        let depth = self.selection.active_total();
        if let Verdict::Hold { until } = self.budget.may_go(now, depth, false, now) {
            self.counters.held += 1;
            held.until = earlier(held.until, Some(until));
            return 0;
        }
        if !self.budget.looks_at_runs() {
            return self.waiting;
        }
        let mut open = self.waiting;
        for class in bits(self.waiting) {
            let lane = &self.lanes[class.index()];
            if held.runs & bit(class) == 0
                && let Some(arrived) = lane.oldest_run()
                && let Verdict::Hold { until } = self.budget.may_go(now, depth, true, arrived)
            {
                // All runs of the class are asked the same but for their age, and this was the oldest.
                self.counters.held += 1;
                held.runs |= bit(class);
                held.until = earlier(held.until, Some(until));
            }
            if held.runs & bit(class) != 0 && !lane.has_free() {
                open &= !bit(class);
            }
        }
        open
    }

    fn leave(&mut self, now: Instant, class: Class, runs_go: bool, leaving: &mut Leaving) {
        let how = &self.how[side(class)];
        self.lanes[class.index()].leave(how, self.last_offset, runs_go, leaving, &mut self.counters);
        let Some(command) = leaving.commands.last() else { return };
        let members = command.members.len() as u32;
        if leaving.members[command.members.start].op != DeviceOp::Flush {
            self.last_offset = command.offset.saturating_add(command.len);
        }
        self.left(now, class, 1, members);
        self.budget.issued(now);
    }

    /// The next of a class that has nothing but loose ones, up to so many. Nobody is held.
    fn leave_loose(&mut self, now: Instant, class: Class, most: u32, leaving: &mut Leaving) {
        let lane = &mut self.lanes[class.index()];
        let mut commands = 0;
        while commands < most
            && let Some(io) = lane.leave_loose()
        {
            leaving.push_single(io);
            if io.op != DeviceOp::Flush {
                self.last_offset = io.end();
            }
            commands += 1;
        }
        if commands > 0 {
            self.left(now, class, commands, commands);
        }
    }

    fn left(&mut self, now: Instant, class: Class, commands: u32, members: u32) {
        let queued = &mut self.queued[class.index()];
        *queued -= members;
        if *queued == 0 {
            self.waiting &= !bit(class);
        }
        self.selection.started_several(now, class, commands);
        self.counters.dispatched += u64::from(commands);
    }

    fn sort_anew(&mut self) {
        self.how = How::both(self.selection.settings(), self.rules, &self.budget);
        for class in Class::ALL {
            self.lanes[class.index()].sort_anew(&self.how[side(class)]);
        }
    }
}

impl How {
    /// By [`side`].
    fn both(settings: &QueueSettings, rules: Rules, budget: &Budget) -> [How; 2] {
        [settings.aggregation_limit(), settings.background_aggregation_limit()].map(|max_bytes| {
            let mut rules = rules;
            let bounds = &mut rules.bounds;
            bounds.max_bytes = bounds.max_bytes.min(max_bytes);
            bounds.max_segments = bounds.max_segments.min(settings.max_segments());
            let (order, read_gap) = (settings.lba_order(), settings.read_gap_limit());
            How { rules, order, read_gap, tracks: budget.looks_at_runs() }
        })
    }
}

const fn side(class: Class) -> usize {
    if class.is_interactive() { 0 } else { 1 }
}

const fn bit(class: Class) -> Mask {
    1 << class.index()
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        _ => a.or(b),
    }
}
