//! Running the hardware queue.
//!
//! | | budget refused | driver tag or room refused |
//! |---|---|---|
//! | scheduler, or one by one from the list | nothing was taken: it stays, mergeable | goes to the residual |
//! | the whole list at once | goes to the residual | goes to the residual |
//!
//! Requests are taken and sent one at a time, as in 5.1. Later kernels take up to `nr_requests` from a scheduler first
//! (one while it is busy) and then send them, which differs only when the driver refuses one in the middle.

use super::{Queue, Run, Stage};
use crate::queue::chains::ChainId;
use crate::queue::waiting::Leaving;
use crate::units::Instant;

/// A smoothed "the driver refused lately": 0 for not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Busy(u32);

impl Busy {
    /// One round ended: with a refusal or without.
    pub(super) fn update(&mut self, refused: bool) {
        self.0 = (7 * self.0 + if refused { 16 } else { 0 }) / 8;
    }

    pub(super) fn is_set(self) -> bool {
        self.0 > 0
    }

    #[cfg(test)]
    pub(super) fn value(self) -> u32 {
        self.0
    }
}

impl Queue {
    /// Sends what may be sent.
    pub(super) fn run(&mut self, now: Instant, leaving: &mut Leaving) {
        let had_residual = !self.residual.is_empty();
        if had_residual {
            self.restart = true;
            if !self.send_residual(now, leaving) {
                return;
            }
        }
        let all_at_once = match &mut self.stage {
            Stage::None(software) if !had_residual && !self.busy.is_set() => {
                self.residual.extend(software.drain());
                true
            }
            _ => false,
        };
        if all_at_once {
            self.send_residual(now, leaving);
        } else {
            self.send_stage(now, leaving);
        }
        if !self.has_waiting() {
            self.run_at = None;
        }
    }

    /// Something is behind the plug. What is outside or plugged waits for its submitter, not for a run.
    pub(super) fn has_waiting(&self) -> bool {
        let staged = match &self.stage {
            Stage::None(software) => software.len() > 0,
            Stage::Deadline(deadline) => deadline.len() > 0,
        };
        staged || !self.residual.is_empty()
    }

    /// Runs the queue at the end of the batch.
    pub(super) fn run_soon(&mut self, now: Instant) {
        self.run_at = Some(Run { at: now, timer: false });
    }

    fn run_later(&mut self, now: Instant) {
        let at = now + self.config.rerun_ns;
        if self.run_at.is_none_or(|run| run.at > at) {
            self.run_at = Some(Run { at, timer: true });
        }
    }

    /// Sends the list of what cannot merge any more; false if something was refused and is still there.
    fn send_residual(&mut self, now: Instant, leaving: &mut Leaving) -> bool {
        if self.residual.is_empty() {
            return true;
        }
        while let Some(&id) = self.residual.front() {
            if !self.send(now, id, leaving) {
                self.refused_after_dequeue(now);
                return false;
            }
            self.residual.pop_front();
        }
        self.update_busy(false);
        true
    }

    /// Takes requests off the stage one by one. The budget is asked first: refused, a request stays where it can grow.
    fn send_stage(&mut self, now: Instant, leaving: &mut Leaving) {
        loop {
            if !self.config.budget.get() {
                self.counters.refused_budget += 1;
                self.run_later(now);
                return;
            }
            let next = match &mut self.stage {
                Stage::None(software) => software.pop(),
                Stage::Deadline(deadline) => deadline.pop(now, &self.chains),
            };
            let Some(id) = next else {
                self.config.budget.put();
                return;
            };
            if !self.send_granted(id, leaving) {
                self.residual.push_back(id);
                self.refused_after_dequeue(now);
                return;
            }
            self.update_busy(false);
        }
    }

    /// Asks for everything a request needs, in the order budget, tag, driver, and sends it.
    pub(super) fn send(&mut self, now: Instant, id: ChainId, leaving: &mut Leaving) -> bool {
        if !self.config.budget.get() {
            self.counters.refused_budget += 1;
            self.run_later(now);
            return false;
        }
        self.send_granted(id, leaving)
    }

    /// Sends a request that has its budget, or gives the budget back.
    fn send_granted(&mut self, id: ChainId, leaving: &mut Leaving) -> bool {
        // Without scheduler a request has had its tag from the beginning, and this never happens.
        if self.in_flight >= self.config.queue_depth.max(1) {
            self.counters.refused_tag += 1;
            self.config.budget.put();
            return false;
        }
        if self.in_flight >= self.driver_room {
            self.counters.refused_driver += 1;
            self.config.budget.put();
            return false;
        }
        self.in_flight += 1;
        self.counters.dispatched += 1;
        self.chains.leave(id, leaving);
        true
    }

    /// The head of the residual was refused: somebody has to try again.
    fn refused_after_dequeue(&mut self, now: Instant) {
        self.update_busy(true);
        if self.restart {
            self.run_later(now);
        } else {
            self.run_soon(now);
        }
    }

    /// With a scheduler it stays 0, as in the older kernels.
    fn update_busy(&mut self, refused: bool) {
        if matches!(self.stage, Stage::None(_)) {
            self.busy.update(refused);
        }
    }
}
