//! How long classes were kept waiting, and by what.
//!
//! ```text
//!   turn        turn             turn        turn
//!    |-- depth --|---- budget ----|           |-- depth ...      one class: what the last turn left behind counts
//!                                                                until the next one
//! ```
//!
//! A class is kept as long as somebody of it waits, however many they are: the times of a class add up to those during
//! which anybody of it was left behind, and never to more than there were.

use super::class::Class;
use super::selection::{Mask, bits};
use crate::units::Instant;

/// What keeps a class that has somebody waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The budget holds those that wait, so that they join.
    Budget,
    /// `max_active` commands are on the device.
    Depth,
    /// The class has its maximum.
    Maximum,
    /// It is background work without credit: somebody else waits.
    Credit,
    /// It is background work that nobody is in the way of any more, but not for long enough: `nia_delay`.
    Delay,
    /// Asynchronous writes have what the ramp gives them, and less than their maximum: they are not urgent.
    Ramp,
}

impl Obstacle {
    /// All of them.
    pub(super) const ALL: [Obstacle; 6] =
        [Obstacle::Budget, Obstacle::Depth, Obstacle::Maximum, Obstacle::Credit, Obstacle::Delay, Obstacle::Ramp];

    /// The name in reports and metrics.
    #[must_use]
    pub(super) const fn name(self) -> &'static str {
        match self {
            Obstacle::Budget => "held_by_budget",
            Obstacle::Depth => "depth_reached",
            Obstacle::Maximum => "class_reached",
            Obstacle::Credit => "no_credit",
            Obstacle::Delay => "nia_delay",
            Obstacle::Ramp => "dirty_ramp",
        }
    }
}

/// By [`Obstacle::ALL`].
type Row = [u64; Obstacle::ALL.len()];

/// The account of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocked {
    /// Up to here it is booked.
    at: Instant,
    /// Classes that are kept now, and what keeps each.
    kept: Mask,
    by: [u8; Class::COUNT],
    ns: [Row; Class::COUNT],
    turns: Row,
}

impl Blocked {
    /// A turn is over, and left somebody of these classes behind.
    pub(super) fn settle(&mut self, now: Instant, left: Mask, obstacle: impl Fn(Class) -> Obstacle) {
        if self.kept | left == 0 {
            return;
        }
        self.pass(now);
        self.kept = left;
        for class in bits(left) {
            let obstacle = obstacle(class) as u8;
            self.by[class.index()] = obstacle;
            self.turns[usize::from(obstacle)] += 1;
        }
    }

    /// Turns that left somebody of a class behind for this, each class counted.
    pub(super) fn turns(&self, obstacle: Obstacle) -> u64 {
        self.turns[obstacle as usize]
    }

    /// What there is to tell until `now`: class, obstacle, ns.
    pub(super) fn times(&self, now: Instant) -> impl Iterator<Item = (Class, Obstacle, u64)> {
        let mut until = self.clone();
        until.pass(now);
        let rows = Class::ALL.into_iter().zip(until.ns);
        rows.flat_map(|(class, row)| Obstacle::ALL.into_iter().zip(row).map(move |(why, ns)| (class, why, ns)))
            .filter(|(_, _, ns)| *ns > 0)
    }

    fn pass(&mut self, now: Instant) {
        let ns = now.since(self.at);
        self.at = self.at.max(now);
        for class in bits(self.kept) {
            let sum = &mut self.ns[class.index()][usize::from(self.by[class.index()])];
            *sum = sum.saturating_add(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn time_goes_to_what_kept_the_class_until_the_next_turn() {
        let (read, scrub) = (1 << Class::SyncRead.index(), 1 << Class::Scrub.index());
        let mut blocked = Blocked::default();
        let by = |why| move |class| if class == Class::Scrub { Obstacle::Credit } else { why };
        blocked.settle(Instant(1000), 0, by(Obstacle::Depth));
        blocked.settle(Instant(2000), read | scrub, by(Obstacle::Depth));
        blocked.settle(Instant(2300), read | scrub, by(Obstacle::Budget));
        blocked.settle(Instant(2350), scrub, by(Obstacle::Budget));
        blocked.settle(Instant(2400), 0, by(Obstacle::Budget));
        blocked.settle(Instant(9000), read, by(Obstacle::Depth));
        let times: Vec<_> = blocked.times(Instant(9007)).collect();
        let expected = [
            (Class::SyncRead, Obstacle::Budget, 50),
            (Class::SyncRead, Obstacle::Depth, 307),
            (Class::Scrub, Obstacle::Credit, 400),
        ];
        assert_eq!(times, expected);
        assert_eq!(Obstacle::ALL.map(|why| blocked.turns(why)), [1, 2, 0, 3, 0, 0]);
    }
}
