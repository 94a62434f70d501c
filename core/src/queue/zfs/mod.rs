//! The OpenZFS device queue: classes with a minimum and a maximum, and background work that others pay for.
//!
//! ```text
//!   arrive --> line --> selection: which class --> order: which I/O --> aggregate: which neighbours --> one command
//!                          ^                                                                               |
//!                          +-- credit, active counts <-------------------- complete <----------------------+
//! ```
//!
//! Restated from the published behaviour (OpenZFS `vdev_queue.c` at pull request 11166 and after; see
//! [`limits`](super::limits) for the generations) and compared with a slow twin over random histories.
//!
//! **Promises.** Every I/O that arrives leaves once: as a member of a command, through [`take_dropped`] or through
//! [`take_all`]. Active counts are commands started less commands completed. Which class goes, and what it has to do
//! with credit, is decided in `queue/selection.rs`.
//!
//! **Who drives.** An arrival starts *at most one* command (perhaps another's), and a completion as many as may go.
//! braid's own queue, which lets a batch meet first, is [`braid`](super::braid); its settings work here too, but for
//! aggregates above [`AGGREGATE_MAX`](super::limits::AGGREGATE_MAX).
//!
//! **What it counts where.** A command counts against the class of the I/O that was chosen, whoever rides along; limits
//! and credit see commands. Statistics see members, each under its own class.
//!
//! **Readings.** FIFO is by time of arrival, then by order of arrival; equal places go by order of arrival. I/Os that
//! overlap are never joined. A class change keeps the time of arrival and starts nothing. Commands without data
//! (flush, discard, zeroes) join nobody, and a flush, which has no place, leaves [`last_offset`] where it was. An
//! optional I/O with nothing needed before it never starts a command, not even when it was the chosen one; it is
//! dropped. One number is ours: a command has at most `max_segments` buffers.
//!
//! [`take_dropped`]: VdevQueue::take_dropped
//! [`take_all`]: VdevQueue::take_all
//! [`last_offset`]: VdevQueue::last_offset

mod aggregate;
mod line;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;

use alloc::vec::Vec;

use super::blocked::{Blocked, Obstacle};
use super::class::Class;
use super::limits::{Dirty, QueueSettings};
use super::selection::Selection;
use super::waiting::{Command, Leaving, Waiting};
use crate::request::DeviceOp;
use crate::units::{Instant, IoId};
use line::Line;

/// What one class has and had, by I/O and not by command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Waiting now.
    pub queued: u32,
    /// On the device now; see [`VdevQueue::retired`].
    pub active: u32,
    /// Sent so far.
    pub ios: u64,
    /// Bytes of those.
    pub bytes: u64,
}

/// The queue of one device.
#[derive(Clone)]
pub struct VdevQueue {
    selection: Selection,
    line: Line,
    blocked: Blocked,
    last_offset: u64,
    dropped: Vec<Waiting>,
    stats: [ClassStats; Class::COUNT],
}

impl VdevQueue {
    /// An idle queue.
    #[must_use]
    pub fn new(settings: QueueSettings) -> Self {
        VdevQueue {
            line: Line::new(settings.lba_order()),
            selection: Selection::new(settings),
            blocked: Blocked::default(),
            last_offset: 0,
            dropped: Vec::new(),
            stats: [ClassStats::default(); Class::COUNT],
        }
    }

    // ---- what happens ----------------------------------------------------------------------------------------------

    /// An I/O joins the queue; at most one command leaves, perhaps another one.
    ///
    /// A class that its operation cannot have is put right first: other reads and writes count as asynchronous, and a
    /// discard as trim.
    pub fn arrive(&mut self, now: Instant, io: Waiting, out: &mut Leaving) {
        let io = Waiting { class: io.class.fitting(io.op), ..io };
        self.selection.arrived(now, self.line.classes(), io.class);
        self.line.insert(io);
        self.start_one(now, out);
    }

    /// A command came back, well or not; `class` is [`Command::class`]. Everything that may go leaves.
    pub fn complete(&mut self, now: Instant, class: Class, out: &mut Leaving) {
        self.selection.completed(class);
        self.turn(now, out);
    }

    /// Everything that may go leaves: after a change of rules, or at the moment of [`wake_at`](Self::wake_at).
    pub fn turn(&mut self, now: Instant, out: &mut Leaving) {
        while self.start_one(now, out) {}
    }

    /// The caller's batch is over: whoever waits now is kept by something. For reports alone.
    pub(super) fn settle(&mut self, now: Instant) {
        let VdevQueue { selection, line, blocked, .. } = self;
        blocked.settle(now, line.classes(), |class| selection.obstacle(class));
    }

    /// How long somebody of a class was kept at the end of a batch, by what: until `now`.
    pub(super) fn blocked(&self, now: Instant) -> impl Iterator<Item = (Class, Obstacle, u64)> {
        self.blocked.times(now)
    }

    /// Batches that left somebody of a class behind for this, each class counted.
    pub(super) fn kept(&self, obstacle: Obstacle) -> u64 {
        self.blocked.turns(obstacle)
    }

    /// A member of a completed command is done; `class` is its own, as in [`Leaving::members`]. For
    /// [`ClassStats::active`] alone.
    pub fn retired(&mut self, class: Class) {
        let active = &mut self.stats[class.index()].active;
        *active = active.saturating_sub(1);
    }

    /// Somebody else waits for a queued I/O now; false when it is not waiting (any more). Starts nothing. Looks through
    /// the whole line.
    pub fn change_class(&mut self, now: Instant, id: IoId, class: Class) -> bool {
        let waiting = self.line.classes();
        let found = self.line.change_class(id, |io| class.fitting(io.op));
        if let Some(class) = found {
            self.selection.arrived(now, waiting, class);
        }
        found.is_some()
    }

    /// The device is gone: everything that waits, oldest first. What is active still completes.
    pub fn take_all(&mut self) -> Vec<Waiting> {
        self.line.take_all().into_iter().map(|entry| entry.io).collect()
    }

    /// Begins while so many commands of each class, sent by another scheduler, are on the device: they count, and
    /// [`complete`](Self::complete) here.
    pub fn take_over(&mut self, now: Instant, active: [u32; Class::COUNT]) {
        self.selection.take_over(now, active);
    }

    /// Optional I/Os that found nobody to bridge: done, without anything to do. To be asked after each of the calls
    /// above.
    pub fn take_dropped(&mut self) -> impl Iterator<Item = Waiting> + '_ {
        self.dropped.drain(..)
    }

    /// Other rules, from now on; what waits and what is active stays.
    pub fn configure(&mut self, settings: QueueSettings) {
        if settings.lba_order() != self.settings().lba_order() {
            self.line.reorder(settings.lba_order());
        }
        self.selection.configure(settings);
    }

    /// How much the pool has to write; `None` when nobody knows.
    pub fn set_dirty(&mut self, dirty: Option<Dirty>) {
        self.selection.set_dirty(dirty);
    }

    // ---- what there is ---------------------------------------------------------------------------------------------

    /// Its rules.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        self.selection.settings()
    }

    /// When to [`turn`](Self::turn) although nothing happened, if ever: the floor under background work.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.selection.wake_at(self.line.classes())
    }

    /// Commands of a class on the device.
    #[must_use]
    pub fn active(&self, class: Class) -> u32 {
        self.selection.active(class)
    }

    /// Commands on the device: the load that the `zfs` read policy compares.
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
        self.line.queued(class)
    }

    /// Nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.line.classes() == 0
    }

    /// End of the command that left last; 0 before the first.
    #[must_use]
    pub fn last_offset(&self) -> u64 {
        self.last_offset
    }

    /// Background commands that are paid for, or background completions since somebody waited.
    #[must_use]
    pub fn credit(&self) -> u64 {
        self.selection.credit()
    }

    /// What a class has and had.
    #[must_use]
    pub fn stats(&self, class: Class) -> ClassStats {
        ClassStats { queued: self.line.queued(class), ..self.stats[class.index()] }
    }

    // ---- how it is done --------------------------------------------------------------------------------------------

    /// Sends the next command; false when none may go.
    fn start_one(&mut self, now: Instant, out: &mut Leaving) -> bool {
        while let Some(class) = self.selection.choose(now, self.line.classes()) {
            let start = out.members.len();
            match self.line.next(class, self.last_offset) {
                Err(alone) if alone.io.optional => {
                    self.dropped.push(alone.io);
                    continue;
                }
                Err(alone) => out.members.push(alone.io),
                Ok(chosen) => match aggregate::run_around(&self.line, self.settings(), &chosen) {
                    Some(run) => {
                        if run.bridges {
                            self.line.need_after(run.direction, run.last);
                        }
                        self.line.take_run(run.direction, run.first, run.last, &mut out.members);
                    }
                    None => {
                        self.line.take(&chosen);
                        // Needed or not: alone it has nothing to write.
                        if chosen.io.optional {
                            self.dropped.push(chosen.io);
                            continue;
                        }
                        out.members.push(chosen.io);
                    }
                },
            }
            self.started(now, class, start, out);
            return true;
        }
        false
    }

    fn started(&mut self, now: Instant, class: Class, start: usize, out: &mut Leaving) {
        let members = &out.members[start..];
        let (Some(first), Some(last)) = (members.first(), members.last()) else { return };
        let (offset, end) = (first.offset, last.end());
        if first.op != DeviceOp::Flush {
            self.last_offset = end;
        }
        for member in members {
            let stats = &mut self.stats[member.class.index()];
            stats.active += 1;
            stats.ios += 1;
            stats.bytes += member.len;
        }
        self.selection.started(now, class);
        out.commands.push(Command { class, offset, len: end - offset, members: start..out.members.len() });
    }
}
