//! Whether one more command may go to the device now, or should wait for neighbours.
//!
//! | budget | lets go | source |
//! |---|---|---|
//! | [`Budget::Off`] | everything | |
//! | [`Budget::Fixed`] | up to N in flight | the rbd patch `busy_threshold`, see [`busy_threshold`](BusyThreshold) |
//! | [`Budget::Auto`] | everything but what extends a run, and that up to a depth it finds by itself | own, see [`Auto`] |
//!
//! Refusing makes sense only before a request leaves the queue, where it can still grow. Who uses a budget:
//!
//! ```text
//!   may_go(now, depth, extends_run, oldest) -> Go           issued(now), the command leaves
//!                                           -> Hold{until}  ask again at the next completion or at `until`
//!   completed(now, bytes)                   once for each command issued, however it ended
//! ```

mod auto;
mod busy_threshold;
#[cfg(test)]
mod model;
mod neighbours;

pub use auto::{Auto, WAIT_NS_MAX, WAIT_NS_MIN, Wait};
pub use busy_threshold::{BusyThreshold, NegativeThreshold};
pub use neighbours::Neighbours;

use crate::units::Instant;

/// After how long a refused queue asks again when no completion made it ask earlier; the published 3 ms.
pub const RERUN_NS: u64 = 3_000_000;

/// How many commands the device may have, and which of them the limit is for.
#[derive(Clone, Debug)]
pub enum Budget {
    /// No limit but the device's depth.
    Off,
    /// The published limit: it knows no runs and holds everything alike.
    Fixed(BusyThreshold),
    /// braid's own.
    Auto(Auto),
}

/// What a budget says of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may leave.
    Go,
    /// It stays where it is and can be joined.
    Hold {
        /// When to ask again if no completion comes first.
        until: Instant,
    },
}

impl Budget {
    /// Asks for a command, and takes nothing.
    ///
    /// `depth` is how many commands the device has in flight. `extends_run` says that the command follows or precedes
    /// something queued or in flight in the same direction ([`Neighbours`]) and can still grow. `oldest` is when
    /// the oldest of its I/Os joined the queue.
    pub fn may_go(&mut self, now: Instant, depth: u32, extends_run: bool, oldest: Instant) -> Verdict {
        match self {
            Budget::Off => Verdict::Go,
            Budget::Fixed(threshold) if threshold.would_grant() => Verdict::Go,
            Budget::Fixed(_) => Verdict::Hold { until: now + RERUN_NS },
            Budget::Auto(auto) => auto.may_go(now, depth, extends_run, oldest),
        }
    }

    /// A command left for the device, after [`Verdict::Go`].
    #[inline]
    pub fn issued(&mut self, now: Instant) {
        match self {
            Budget::Off => {}
            Budget::Fixed(threshold) => {
                let granted = threshold.get();
                debug_assert!(granted, "issued without asking");
            }
            Budget::Auto(auto) => auto.issued(now),
        }
    }

    /// Begins while `in_flight` commands, which nobody asked it for, are on the device: from now on they count.
    pub fn take_over(&mut self, now: Instant, in_flight: u32) {
        match self {
            Budget::Off => {}
            Budget::Fixed(threshold) => threshold.set_counter(in_flight),
            Budget::Auto(auto) => auto.take_over(now, in_flight),
        }
    }

    /// It may hold a run, so that somebody has to know what is one.
    #[must_use]
    pub fn looks_at_runs(&self) -> bool {
        matches!(self, Budget::Auto(auto) if auto.wait_ns() > 0)
    }

    /// It never holds anything, and need not be asked.
    #[must_use]
    pub fn is_off(&self) -> bool {
        matches!(self, Budget::Off)
    }

    /// A command came back, with success or not.
    #[inline]
    pub fn completed(&mut self, now: Instant, bytes: u64) {
        match self {
            Budget::Off => {}
            Budget::Fixed(threshold) => threshold.put_completed(),
            Budget::Auto(auto) => auto.completed(now, bytes),
        }
    }
}
