//! The OpenZFS device queue: classes with a minimum and a maximum, and background work that others pay for.
//!
//! ```text
//!   arrive --> line --> select: which class --> order: which I/O --> aggregate: which neighbours --> one command
//!                          ^                                                                            |
//!                          +-- credit, active counts <------------------- complete <-------------------+
//! ```
//!
//! Restated from the published behaviour (OpenZFS `vdev_queue.c` at pull request 11166 and after; see
//! [`limits`](super::limits) for the generations) and compared with a slow twin over random histories.
//!
//! **Promises.** Every I/O that arrives leaves once: as a member of a command, through [`take_dropped`] or through
//! [`take_all`]. Active counts are commands started less commands completed. Credit moves at the four events that
//! [`credit`] lists and nowhere else.
//!
//! **Who drives.** Under the published generations an arrival starts *at most one* command (perhaps another's), and a
//! completion as many as may go. Under `braid` neither starts any: [`turn`] does, at the end of a batch, so that
//! neighbours within it can join. A caller that turns after every batch need not know the difference.
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
//! **The floor.** Credit makes background work depend on interactive completions: a request that hangs in the device
//! would stop it for good. With `background_floor` set, one background command may go after that time without any,
//! whatever the classes say; only `max_active` still holds. It is measured from the last one started, or from when
//! the first of those that wait came. Off in the published generations.
//!
//! [`take_dropped`]: VdevQueue::take_dropped
//! [`take_all`]: VdevQueue::take_all
//! [`turn`]: VdevQueue::turn
//! [`last_offset`]: VdevQueue::last_offset

mod aggregate;
mod credit;
mod line;
mod select;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;

use alloc::vec::Vec;

use super::class::Class;
use super::limits::{Dirty, QueueSettings};
use super::waiting::{Command, Leaving, Waiting};
use crate::request::DeviceOp;
use crate::units::{Instant, IoId};
use credit::Credit;
use line::Line;
use select::BACKGROUND;

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
pub struct VdevQueue {
    settings: QueueSettings,
    line: Line,
    /// Commands by class.
    active: [u32; Class::COUNT],
    active_total: u32,
    credit: Credit,
    /// Where the scan for minimums stopped; the number of classes when it found nobody.
    last_class: usize,
    last_offset: u64,
    /// What dirty bytes make of the maximum of asynchronous writes.
    async_write_max: u32,
    dirty: Option<Dirty>,
    /// When the last background command started, or the first of those that wait came.
    floor_from: Instant,
    last_floor_class: usize,
    dropped: Vec<Waiting>,
    stats: [ClassStats; Class::COUNT],
}

impl VdevQueue {
    /// An idle queue.
    #[must_use]
    pub fn new(settings: QueueSettings) -> Self {
        VdevQueue {
            line: Line::new(settings.lba_order()),
            active: [0; Class::COUNT],
            active_total: 0,
            credit: Credit::default(),
            last_class: 0,
            last_offset: 0,
            async_write_max: settings.async_write_max(None),
            dirty: None,
            floor_from: Instant(0),
            last_floor_class: Class::COUNT - 1,
            dropped: Vec::new(),
            stats: [ClassStats::default(); Class::COUNT],
            settings,
        }
    }

    // ---- what happens ----------------------------------------------------------------------------------------------

    /// An I/O joins the queue; under the published generations at most one command leaves, perhaps another one.
    ///
    /// A class that its operation cannot have is put right first: other reads and writes count as asynchronous, and a
    /// discard as trim.
    pub fn arrive(&mut self, now: Instant, io: Waiting, out: &mut Leaving) {
        let io = Waiting { class: fitting_class(io.op, io.class), ..io };
        self.background_waits(now, io.class);
        self.line.insert(io);
        if !self.settings.generation().batches() {
            self.start_one(now, out);
        }
    }

    /// A command came back, well or not; `class` is [`Command::class`]. Under the published generations everything
    /// that may go leaves.
    pub fn complete(&mut self, now: Instant, class: Class, out: &mut Leaving) {
        let active = &mut self.active[class.index()];
        assert!(*active > 0, "a completion of class {} without a command in flight", class.name());
        *active -= 1;
        self.active_total -= 1;
        self.credit.completed(class.is_interactive(), self.settings.nia_credit());
        if !self.settings.generation().batches() {
            self.turn(now, out);
        }
    }

    /// Everything that may go leaves: the end of a batch, or the moment of [`wake_at`](Self::wake_at).
    pub fn turn(&mut self, now: Instant, out: &mut Leaving) {
        while self.start_one(now, out) {}
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
        let nobody = self.line.classes() & BACKGROUND == 0;
        let found = self.line.change_class(id, |io| fitting_class(io.op, class));
        if nobody && found.is_some_and(|class| !class.is_interactive()) {
            self.floor_from = self.floor_from.max(now);
        }
        found.is_some()
    }

    /// The device is gone: everything that waits, oldest first. What is active still completes.
    pub fn take_all(&mut self) -> Vec<Waiting> {
        self.line.take_all().into_iter().map(|entry| entry.io).collect()
    }

    /// Optional I/Os that found nobody to bridge: done, without anything to do. To be asked after each of the calls
    /// above.
    pub fn take_dropped(&mut self) -> impl Iterator<Item = Waiting> + '_ {
        self.dropped.drain(..)
    }

    /// Other rules, from now on; what waits and what is active stays.
    pub fn configure(&mut self, settings: QueueSettings) {
        if settings.lba_order() != self.settings.lba_order() {
            self.line.reorder(settings.lba_order());
        }
        self.settings = settings;
        self.set_dirty(self.dirty);
    }

    /// How much the pool has to write; `None` when nobody knows.
    pub fn set_dirty(&mut self, dirty: Option<Dirty>) {
        self.dirty = dirty;
        self.async_write_max = self.settings.async_write_max(dirty);
    }

    // ---- what there is ---------------------------------------------------------------------------------------------

    /// Its rules.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// When to [`turn`](Self::turn) although nothing happened, if ever: the floor under background work.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        // At the cap, a completion comes first.
        if self.active_total >= self.settings.max_active() { None } else { self.floor_at() }
    }

    /// Commands of a class on the device.
    #[must_use]
    pub fn active(&self, class: Class) -> u32 {
        self.active[class.index()]
    }

    /// Commands on the device: the load that the `zfs` read policy compares.
    #[must_use]
    pub fn active_total(&self) -> u32 {
        self.active_total
    }

    /// Interactive commands on the device.
    #[must_use]
    pub fn active_interactive(&self) -> u32 {
        self.credit.interactive()
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
        self.credit.value()
    }

    /// What a class has and had.
    #[must_use]
    pub fn stats(&self, class: Class) -> ClassStats {
        ClassStats { queued: self.line.queued(class), ..self.stats[class.index()] }
    }

    // ---- how it is done --------------------------------------------------------------------------------------------

    /// Sends the next command; false when none may go.
    fn start_one(&mut self, now: Instant, out: &mut Leaving) -> bool {
        while let Some(class) = self.choose(now) {
            let start = out.members.len();
            match self.line.next(class, self.last_offset) {
                Err(alone) if alone.io.optional => {
                    self.dropped.push(alone.io);
                    continue;
                }
                Err(alone) => out.members.push(alone.io),
                Ok(chosen) => match aggregate::run_around(&self.line, &self.settings, &chosen) {
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
        self.active[class.index()] += 1;
        self.active_total += 1;
        self.credit.started(class.is_interactive());
        if !class.is_interactive() {
            self.floor_from = now;
        }
        out.commands.push(Command { class, offset, len: end - offset, members: start..out.members.len() });
    }

    /// The floor counts from when background work has something to wait for.
    fn background_waits(&mut self, now: Instant, class: Class) {
        if !class.is_interactive() && self.line.classes() & BACKGROUND == 0 {
            self.floor_from = self.floor_from.max(now);
        }
    }
}

fn fitting_class(op: DeviceOp, class: Class) -> Class {
    use Class::{AsyncRead, AsyncWrite, Initializing, Rebuild, Removal, Scrub, SyncRead, SyncWrite, Trim};
    match (op, class) {
        (DeviceOp::Read, SyncRead | AsyncRead | Scrub | Removal | Initializing | Rebuild) => class,
        (DeviceOp::Read, _) => AsyncRead,
        (DeviceOp::Write { .. } | DeviceOp::WriteZeroes, SyncWrite | AsyncWrite | Removal | Initializing | Rebuild) => {
            class
        }
        (DeviceOp::Write { .. } | DeviceOp::WriteZeroes, _) => AsyncWrite,
        (DeviceOp::Discard, _) => Trim,
        (DeviceOp::Flush, _) => class,
    }
}
