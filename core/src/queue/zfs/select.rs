//! Which class goes next.
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

use super::VdevQueue;
use crate::queue::class::Class;
use crate::units::Instant;

/// One bit for each class that credit holds back.
pub(super) const BACKGROUND: u16 = {
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

impl VdevQueue {
    /// The class that may send one more now; moves the pointer of the scan for minimums.
    pub(super) fn choose(&mut self, now: Instant) -> Option<Class> {
        let waiting = self.line.classes();
        if waiting == 0 || self.active_total() >= self.settings.max_active() {
            return None;
        }
        if self.floor_at().is_some_and(|at| now >= at) {
            let (after, upto) = split(waiting & BACKGROUND, self.last_floor_class + 1);
            let class = after.chain(upto).next()?;
            self.last_floor_class = class.index();
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
    pub(super) fn floor_at(&self) -> Option<Instant> {
        let floor_ns = self.settings.background_floor_ns();
        let held = self.line.classes() & BACKGROUND != 0 && self.active_total() == self.credit.interactive();
        (floor_ns > 0 && held).then_some(self.floor_from + floor_ns)
    }
}

/// The classes of a mask from `start` on, and those below it.
fn split(mask: u16, start: usize) -> (impl Iterator<Item = Class>, impl Iterator<Item = Class>) {
    let low = (1 << start) - 1;
    (bits(mask & !low), bits(mask & low))
}

fn bits(mut mask: u16) -> impl Iterator<Item = Class> {
    core::iter::from_fn(move || {
        let class = *Class::ALL.get(mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(class)
    })
}
