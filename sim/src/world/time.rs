//! The clock: what is due next happens, and nothing passes in between.

use std::cmp::Reverse;

use braid_core::request::Input;
use braid_core::units::IoId;

use super::World;
use crate::checker::hold;

impl World {
    /// Hands the batch to the engine, drains it, and goes on to the next thing that happens; false when nothing will
    /// ever happen by itself.
    pub fn step(&mut self) -> bool {
        if !self.batch.is_empty() {
            self.drain();
            return true;
        }
        let due = self.heap.peek().map(|Reverse((at, ..))| *at);
        let due = due.into_iter().chain(self.held.iter().map(|&(at, _)| at)).min();
        let at = match (due, self.wake) {
            (None, None) => return false,
            (Some(at), None) | (None, Some(at)) => at,
            (Some(a), Some(b)) => a.min(b),
        };
        self.now = self.now.max(at);
        self.steps += 1;
        // What completes within a moment is one batch, as from a ring.
        let window = self.now + if !self.exact && self.rng.percent(20) { 200_000 } else { 0 };
        let mut any = self.release_held(window);
        while !(any && self.exact)
            && let Some(&Reverse((at, _, disk))) = self.heap.peek()
            && at <= window
        {
            self.now = self.now.max(at);
            any = true;
            if self.look(disk) && self.exact {
                break;
            }
        }
        if !any {
            self.input(Input::Tick);
        }
        self.drain();
        true
    }

    /// What a stuck device kept for itself until now completes; says whether there was any.
    fn release_held(&mut self, window: u64) -> bool {
        let mut any = false;
        while !(any && self.exact)
            && let Some(i) = self.held.iter().position(|&(at, _)| at <= window)
        {
            let (at, id) = self.held.swap_remove(i);
            self.now = self.now.max(at);
            self.complete(IoId(id));
            any = true;
        }
        any
    }

    /// Until `done` says so; false when everything is quiet before that.
    pub fn run_until(&mut self, mut done: impl FnMut(&World) -> bool) -> bool {
        for _ in 0..50_000_000u64 {
            if self.batch.is_empty() && done(self) {
                return true;
            }
            if !self.step() {
                return false;
            }
        }
        hold!(Drain, false, "no end in sight at {} ns", self.now);
        false
    }

    /// Until nothing happens any more, deadlines included.
    pub fn run_until_quiet(&mut self) {
        self.run_until(|_| false);
    }

    /// Until all requests are answered.
    pub fn run_until_answered(&mut self) {
        self.run_until(|w| w.asked.is_empty());
        hold!(Drain, self.asked.is_empty(), "quiet, but {}", self.unanswered());
    }
}
