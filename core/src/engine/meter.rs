//! How fast long work goes, for how long it ran, and when its place is written down again.

use alloc::collections::VecDeque;

use crate::scrub::SAVE_NS;
use crate::units::Instant;

/// The moving window of the rate.
const WINDOW_NS: u64 = 60_000_000_000;
/// How often it is sampled.
const SAMPLE_NS: u64 = 1_000_000_000;

/// Of one scrub, or of one job.
#[derive(Clone, Default)]
pub(super) struct Meter {
    /// Since when it has been running, as far as that is not written down.
    since: Option<Instant>,
    saved: Instant,
    samples: VecDeque<(Instant, u64)>,
}

impl Meter {
    /// It begins, or goes on after a pause.
    pub(super) fn begin(&mut self) {
        self.since = None;
        self.samples.clear();
    }

    /// It runs.
    pub(super) fn run(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// It does not run any more.
    pub(super) fn rest(&mut self) {
        self.since = None;
    }

    /// So much is done.
    pub(super) fn note(&mut self, now: Instant, done: u64) {
        if self.samples.back().is_some_and(|&(at, _)| now.since(at) < SAMPLE_NS) {
            return;
        }
        self.samples.push_back((now, done));
        // One sample stays that is older than the window: the rate is that of the whole window.
        while self.samples.get(1).is_some_and(|&(at, _)| now.since(at) > WINDOW_NS) {
            self.samples.pop_front();
        }
    }

    pub(super) fn is_save_due(&self, now: Instant) -> bool {
        now.since(self.saved) >= SAVE_NS
    }

    /// It is written down now; for how many ms it ran since that was done last.
    pub(super) fn save(&mut self, now: Instant) -> u64 {
        self.saved = now;
        let ms = self.ran_ms(now);
        if let Some(since) = &mut self.since {
            *since = *since + ms * 1_000_000;
        }
        ms
    }

    /// For how many ms it has run since it was written down.
    pub(super) fn ran_ms(&self, now: Instant) -> u64 {
        self.since.map_or(0, |since| now.since(since) / 1_000_000)
    }

    /// Bytes a second over the last minute; 0 when not known yet.
    pub(super) fn rate(&self, now: Instant, done: u64) -> u64 {
        let Some(&(at, before)) = self.samples.front() else { return 0 };
        let ms = now.since(at) / 1_000_000;
        done.saturating_sub(before).saturating_mul(1000).checked_div(ms).unwrap_or(0)
    }
}
