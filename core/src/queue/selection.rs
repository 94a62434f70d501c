//! Which class goes next: the published rules, for every queue that has classes.
//!
//! ```text
//!   floor     background waits, none of it is active or was started for `background_floor`: it goes
//!   minimum   everyone in turn, from the class after the last one, up to the effective minimum
//!   maximum   by priority, up to the effective maximum
//! ```
//!
//! Interactive classes have their plain minimum and maximum. A background class has:
//!
//! | | nobody waits | somebody waits |
//! |---|---|---|
//! | minimum | its own | its own, or the credit if that is less |
//! | maximum | its own; until `nia_delay` completions only its minimum | its minimum, or the credit if that is less |
//!
//! The first scan of a fresh queue for minimums starts at the second class. That looks odd and is kept: it is what the
//! published rules do.
//!
//! What waits belongs to the queue, which hands in one bit for each class that has somebody who may go. What is active
//! is counted here, in commands.
//!
//! **The floor.** Credit makes background work depend on interactive completions: a request that hangs in the device
//! would stop it for good. With `background_floor` set, one background command may go after that time without any,
//! whatever the classes say; only `max_active` still holds. It is measured from the last one started, or from when
//! the first of those that wait came. Off in the published generations.

mod credit;

use super::blocked::Obstacle;
use super::class::Class;
use super::limits::{Dirty, QueueSettings};
use crate::units::Instant;
use credit::Credit;

/// One bit for each class, by [`Class::index`].
pub(super) type Mask = u16;

/// The classes that credit holds back.
pub(super) const BACKGROUND: Mask = {
    let (mut mask, mut i) = (0, 0);
    while i < Class::COUNT {
        if !Class::ALL[i].is_interactive() {
            mask |= 1 << i;
        }
        i += 1;
    }
    mask
};

/// The pointer behind the last class: the next scan starts at the first.
const BEHIND_LAST: usize = Class::COUNT;

/// Rules and counts of one device.
#[derive(Clone)]
pub(super) struct Selection {
    settings: QueueSettings,
    /// Commands by class.
    active: [u32; Class::COUNT],
    active_total: u32,
    credit: Credit,
    /// Where the scan for minimums stopped; the number of classes when it found nobody.
    last_class: usize,
    /// What dirty bytes make of the maximum of asynchronous writes.
    async_write_max: u32,
    dirty: Option<Dirty>,
    /// When the last background command started, or the first of those that wait came.
    floor_from: Instant,
    last_floor_class: usize,
    floors: u64,
}

impl Selection {
    /// An idle device.
    pub(super) fn new(settings: QueueSettings) -> Self {
        Selection {
            active: [0; Class::COUNT],
            active_total: 0,
            credit: Credit::default(),
            last_class: 0,
            async_write_max: settings.async_write_max(None),
            dirty: None,
            floor_from: Instant(0),
            last_floor_class: Class::COUNT - 1,
            floors: 0,
            settings,
        }
    }

    /// Other rules from now on; what is active stays.
    pub(super) fn configure(&mut self, settings: QueueSettings) {
        self.settings = settings;
        self.set_dirty(self.dirty);
    }

    /// How much the pool has to write; `None` when nobody knows.
    pub(super) fn set_dirty(&mut self, dirty: Option<Dirty>) {
        self.dirty = dirty;
        self.async_write_max = self.settings.async_write_max(dirty);
    }

    /// Begins while so many commands of each class, chosen by somebody else, are on the device. Credit begins as if they
    /// had just started, those that somebody waits for first.
    pub(super) fn take_over(&mut self, now: Instant, active: [u32; Class::COUNT]) {
        for class in bits(!BACKGROUND).chain(bits(BACKGROUND)) {
            (0..active[class.index()]).for_each(|_| self.started(now, class));
        }
    }

    // ---- what happens ----------------------------------------------------------------------------------------------

    /// Somebody of this class joins those that wait; `waiting` is before that. The floor counts from when background
    /// work has something to wait for.
    #[inline]
    pub(super) fn arrived(&mut self, now: Instant, waiting: Mask, class: Class) {
        if !class.is_interactive() && waiting & BACKGROUND == 0 {
            self.floor_from = self.floor_from.max(now);
        }
    }

    /// The class among those waiting that may send one more now; moves the pointer of the scan for minimums.
    pub(super) fn choose(&mut self, now: Instant, waiting: Mask) -> Option<Class> {
        if waiting == 0 || self.is_full() {
            return None;
        }
        if self.floor_at(waiting).is_some_and(|at| now >= at) {
            let (after, upto) = split(waiting & BACKGROUND, self.last_floor_class + 1);
            let class = after.chain(upto).next()?;
            self.last_floor_class = class.index();
            self.floors += 1;
            return Some(class);
        }
        let generation = self.settings.generation();
        let start =
            if !generation.holds_back() || self.last_class >= BEHIND_LAST - 1 { 0 } else { self.last_class + 1 };
        let (after, upto) = split(waiting, start);
        let below_minimum = after.chain(upto).find(|&class| self.active(class) < self.minimum(class));
        let found = below_minimum.or_else(|| bits(waiting).find(|&class| self.active(class) < self.maximum(class)));
        match found {
            Some(class) => self.last_class = class.index(),
            None if generation.restarts_scan() => self.last_class = BEHIND_LAST,
            None => {}
        }
        found
    }

    /// How often in a row the class that was just chosen among these, and started, would be chosen again: nobody else is
    /// waiting, and nothing but a count stands between a client and the device. 0 when that would have to be asked.
    pub(super) fn again(&self, waiting: Mask, class: Class) -> u32 {
        if waiting != 1 << class.index() || !class.is_interactive() {
            return 0;
        }
        let most = self.minimum(class).max(self.maximum(class));
        most.saturating_sub(self.active(class)).min(self.settings.max_active().saturating_sub(self.active_total))
    }

    /// A command of the class that was chosen is on the device.
    pub(super) fn started(&mut self, now: Instant, class: Class) {
        self.started_several(now, class, 1);
    }

    /// So many commands of the class that was chosen are on the device, at least one; more than one as
    /// [`again`](Self::again) says.
    pub(super) fn started_several(&mut self, now: Instant, class: Class, commands: u32) {
        self.active[class.index()] += commands;
        self.active_total += commands;
        self.credit.started(class.is_interactive(), commands);
        if !class.is_interactive() {
            self.floor_from = now;
        }
    }

    /// It came back, well or not. Panics when there was none.
    pub(super) fn completed(&mut self, class: Class) {
        let active = &mut self.active[class.index()];
        assert!(*active > 0, "a completion of class {} without a command in flight", class.name());
        *active -= 1;
        self.active_total -= 1;
        self.credit.completed(class.is_interactive(), self.settings.nia_credit());
    }

    // ---- what there is ---------------------------------------------------------------------------------------------

    pub(super) fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// When a choice may turn out otherwise although nothing happened: the floor under background work.
    pub(super) fn wake_at(&self, waiting: Mask) -> Option<Instant> {
        // At the cap, a completion comes first.
        if self.is_full() { None } else { self.floor_at(waiting) }
    }

    /// Why somebody of this class was not chosen.
    pub(super) fn obstacle(&self, class: Class) -> Obstacle {
        let has_less = self.active(class) < self.settings.class(class).max;
        if self.is_full() {
            Obstacle::Depth
        } else if has_less && class == Class::AsyncWrite {
            Obstacle::Ramp
        } else if has_less && !class.is_interactive() {
            if self.credit.interactive() > 0 { Obstacle::Credit } else { Obstacle::Delay }
        } else {
            Obstacle::Maximum
        }
    }

    /// `max_active` commands are on the device.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.active_total >= self.settings.max_active()
    }

    #[inline]
    pub(super) fn active(&self, class: Class) -> u32 {
        self.active[class.index()]
    }

    #[inline]
    pub(super) fn active_total(&self) -> u32 {
        self.active_total
    }

    pub(super) fn active_interactive(&self) -> u32 {
        self.credit.interactive()
    }

    pub(super) fn credit(&self) -> u64 {
        self.credit.value()
    }

    /// Choices that the floor made.
    pub(super) fn floors(&self) -> u64 {
        self.floors
    }

    #[cfg(test)]
    pub(super) fn last_class(&self) -> usize {
        self.last_class
    }

    // ---- how it is done --------------------------------------------------------------------------------------------

    fn minimum(&self, class: Class) -> u32 {
        let min = self.settings.class(class).min;
        let held_back = !class.is_interactive() && self.settings.generation().holds_back();
        if held_back && self.credit.interactive() > 0 { self.at_most_credit(min) } else { min }
    }

    fn maximum(&self, class: Class) -> u32 {
        let (limits, generation) = (self.settings.class(class), self.settings.generation());
        if class == Class::AsyncWrite {
            return self.async_write_max;
        }
        if class.is_interactive() || !generation.holds_back() {
            return limits.max;
        }
        if self.credit.interactive() > 0 {
            self.at_most_credit(limits.min)
        } else if self.credit.value() < u64::from(self.settings.nia_delay()) {
            if generation.mends_minimum_zero() { limits.min.max(1) } else { limits.min }
        } else {
            limits.max
        }
    }

    fn at_most_credit(&self, min: u32) -> u32 {
        self.credit.value().min(u64::from(min)) as u32
    }

    /// When the floor lets a background command go, whatever its credit.
    fn floor_at(&self, waiting: Mask) -> Option<Instant> {
        let floor_ns = self.settings.background_floor_ns();
        let held = waiting & BACKGROUND != 0 && self.active_total == self.credit.interactive();
        (floor_ns > 0 && held).then_some(self.floor_from + floor_ns)
    }
}

/// The classes of a mask from `start` on, and those below it.
fn split(mask: Mask, start: usize) -> (impl Iterator<Item = Class>, impl Iterator<Item = Class>) {
    let low = (1 << start) - 1;
    (bits(mask & !low), bits(mask & low))
}

/// The classes of a mask, by priority.
pub(super) fn bits(mut mask: Mask) -> impl Iterator<Item = Class> {
    core::iter::from_fn(move || {
        let class = *Class::ALL.get(mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(class)
    })
}
