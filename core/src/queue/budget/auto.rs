//! A budget that finds its own depth.
//!
//! It holds back only what extends a run, so that it may be far tighter than what the device can do in parallel: a
//! request that is alone goes out at once, whatever the depth. Held requests grow; on a device whose price is per
//! request, fewer and larger ones carry more.
//!
//! ```text
//!   bytes/s                 too loose: the device is full of small requests
//!      |      .-''-._
//!      |    .'       '-._          climb:  Base    measure at the limit
//!      |   /             '-._              Down    halve while that gains a 16th, or two halvings a 32nd
//!      |  /                                Up      double while that loses less than a 32nd
//!      | /  too tight: it idles            Rest    keep it, then begin again
//!      '------------------------> limit
//! ```
//!
//! Down asks for a gain and Up does not, so that waiting is never chosen where it does not pay: a client that is
//! slower than the device finds itself without limit. Throughput is bytes over the time in which something was in
//! flight, so pauses of the client don't count.
//!
//! Source: the rule is the specification's, section 5.8b; the search is plain hill climbing on powers of two.

use super::Verdict;
use crate::units::Instant;

/// How long a request may be held where the device's class doesn't say 0.
pub const WAIT_NS_DEFAULT: u64 = 300_000;

/// Where the search begins, and its upper end: nothing is held.
const LIMIT_MAX: u32 = 1024;

/// A sample is this many turns of the device's line, so that one request that holds most of the client's bytes moves
/// the result by less than a [`GAIN`].
const TURNS: u32 = 16;

/// Shortest sample, in commands.
const COMMANDS_MIN: u32 = 32;

/// Shortest sample, in time: several arrivals of completions even where the host collects them in batches.
const BUSY_NS_MIN: u64 = 2_000_000;

/// Down is taken for a gain of one part in so many.
const GAIN: u128 = 16;

/// Two halvings are taken for less: what is so even is no accident.
const GAIN_OF_TWO: u128 = 32;

/// Up is taken for a loss below one part in so many.
const LOSS: u128 = 32;

/// Samples between two searches, at first and at most: it doubles while searches change nothing. Two of a search's
/// samples are at other limits than the best, so that in the long run they are one in 64.
const REST_MIN: u32 = 16;
const REST_MAX: u32 = 128;

/// Samples of rest before a changed load may end it early.
const REST_FLOOR: u32 = 4;

/// How it decides stands at the top of `queue/budget/auto.rs`.
#[derive(Clone, Debug)]
pub struct Auto {
    wait_ns: u64,
    /// Commands in flight from which a run waits.
    limit: u32,
    phase: Phase,
    /// How long the next rest is.
    rest: u32,

    in_flight: u32,
    /// When the last command left or came back.
    last: Instant,
    /// Completions still to pass before counting: they were decided under another limit.
    settle: u32,
    sample: Sample,
}

/// Where the search is. `from` and `base` are the best limit so far and what it carried.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Base,
    /// `second`: one halving neither gained enough nor lost, as where a curve is nearly flat; this is another one.
    Down {
        from: u32,
        base: Rate,
        moved: bool,
        second: bool,
    },
    Up {
        from: u32,
        base: Rate,
        moved: bool,
    },
    Rest {
        base: Rate,
        done: u32,
        strayed: bool,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    rate: Rate,
    commands: u32,
    /// Most in flight.
    peak: u32,
    /// Something extended a run while the device was busy.
    runs: bool,
    /// Something was held.
    held: bool,
}

/// Bytes in so many busy nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    bytes: u64,
    ns: u64,
}

impl Rate {
    /// `self >= other * (1 + add / of)`, for negative `add` too.
    fn at_least(self, other: Rate, add: i8, of: u128) -> bool {
        let factor = of.saturating_add_signed(add.into());
        u128::from(self.bytes) * u128::from(other.ns) * of >= u128::from(other.bytes) * u128::from(self.ns) * factor
    }
}

/// The bound of the extra wait for a device nobody set it for: 0 on flash, where 300 us are the time of several
/// requests and nothing is ever held, [`WAIT_NS_DEFAULT`] on disks and behind networks.
#[must_use]
pub fn wait_ns_of(class: &str, rotational: bool) -> u64 {
    match class {
        "nvme" | "ssd" => 0,
        "hdd" | "net" => WAIT_NS_DEFAULT,
        _ if rotational => WAIT_NS_DEFAULT,
        _ => 0,
    }
}

impl Auto {
    /// A budget that holds nothing longer than `wait_ns`; with 0 it holds nothing.
    #[must_use]
    pub fn new(wait_ns: u64) -> Auto {
        Auto {
            wait_ns,
            limit: LIMIT_MAX,
            phase: Phase::Base,
            rest: REST_MIN,
            in_flight: 0,
            last: Instant::default(),
            settle: 0,
            sample: Sample::default(),
        }
    }

    /// One that begins elsewhere, for tests of decisions at that limit.
    #[cfg(test)]
    pub(in crate::queue) fn with_limit(wait_ns: u64, limit: u32) -> Auto {
        Auto { limit, ..Auto::new(wait_ns) }
    }

    /// Bytes of the sample that is being taken.
    #[cfg(test)]
    pub(in crate::queue) fn sampled_bytes(&self) -> u64 {
        self.sample.rate.bytes
    }

    /// The bound of the extra wait, in nanoseconds; what is held already keeps its own.
    pub fn set_wait_ns(&mut self, wait_ns: u64) {
        self.wait_ns = wait_ns;
    }

    /// The bound of the extra wait, in nanoseconds.
    #[must_use]
    pub fn wait_ns(&self) -> u64 {
        self.wait_ns
    }

    /// Commands in flight from which a run waits, as found so far.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Commands it was told of that have not come back.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn may_go(&mut self, now: Instant, depth: u32, extends_run: bool, oldest: Instant) -> Verdict {
        if !extends_run || depth == 0 || self.wait_ns == 0 {
            return Verdict::Go;
        }
        self.sample.runs = true;
        let until = oldest + self.wait_ns;
        if depth < self.limit || until <= now {
            return Verdict::Go;
        }
        self.sample.held = true;
        Verdict::Hold { until }
    }

    /// What is in flight was decided by somebody else: it counts, but tells nothing.
    pub(super) fn take_over(&mut self, now: Instant, in_flight: u32) {
        (self.in_flight, self.settle, self.last) = (in_flight, in_flight, now);
        self.begin_sample();
    }

    pub(super) fn issued(&mut self, now: Instant) {
        self.pass(now);
        self.in_flight += 1;
        self.sample.peak = self.sample.peak.max(self.in_flight);
    }

    pub(super) fn completed(&mut self, now: Instant, bytes: u64) {
        self.pass(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.settle > 0 {
            self.settle -= 1;
            self.begin_sample();
            return;
        }
        self.sample.rate.bytes = self.sample.rate.bytes.saturating_add(bytes);
        self.sample.commands += 1;
        if self.is_enough() {
            self.step();
            self.begin_sample();
        }
    }

    /// Counts the time up to `now` if something was in flight.
    fn pass(&mut self, now: Instant) {
        if self.in_flight > 0 {
            self.sample.rate.ns = self.sample.rate.ns.saturating_add(now.since(self.last));
        }
        self.last = self.last.max(now);
    }

    fn begin_sample(&mut self) {
        self.sample = Sample { peak: self.in_flight, ..Sample::default() };
    }

    fn is_enough(&self) -> bool {
        let Sample { rate, commands, peak, .. } = self.sample;
        let enough = COMMANDS_MIN + TURNS * peak.min(self.limit);
        if commands >= enough && rate.ns >= BUSY_NS_MIN {
            return true;
        }
        // A trial that costs a quarter of the throughput is seen earlier.
        match self.phase {
            Phase::Down { base, .. } | Phase::Up { base, .. } => {
                commands >= enough / 4 && rate.ns >= BUSY_NS_MIN && !rate.at_least(base, -1, 4)
            }
            Phase::Base | Phase::Rest { .. } => false,
        }
    }

    fn step(&mut self) {
        let Sample { rate, peak, runs, held, .. } = self.sample;
        if !runs {
            // Nothing to learn from. A trial is not judged by another load than the one it began with.
            if let Phase::Down { from, .. } | Phase::Up { from, .. } = self.phase {
                self.try_limit(from, Phase::Base);
            }
            return;
        }
        match self.phase {
            Phase::Base => {
                // A limit that was never reached is the same as none; the search starts from the depth that was.
                let (from, down) = if held { (self.limit, self.limit / 2) } else { (LIMIT_MAX, peak / 2) };
                match down {
                    0 => self.try_up(from, rate, false),
                    _ => self.try_limit(down, Phase::Down { from, base: rate, moved: false, second: false }),
                }
            }
            Phase::Down { base, second, .. } if rate.at_least(base, 1, if second { GAIN_OF_TWO } else { GAIN }) => {
                let from = self.limit;
                match from {
                    1 => self.rest(from, rate, true),
                    _ => self.try_limit(from / 2, Phase::Down { from, base: rate, moved: true, second: false }),
                }
            }
            Phase::Down { from, base, moved, second: false } if self.limit > 1 && rate.at_least(base, -1, LOSS) => {
                self.try_limit(self.limit / 2, Phase::Down { from, base, moved, second: true });
            }
            Phase::Down { from, base, moved: true, .. } => self.rest(from, base, true),
            Phase::Down { from, base, moved: false, .. } => self.try_up(from, base, false),
            Phase::Up { base, .. } if rate.at_least(base, -1, LOSS) => {
                // The better of the two stays the measure, or small losses would add up on the way.
                let base = if rate.at_least(base, 0, 1) { rate } else { base };
                match held {
                    true => self.try_up(self.limit, base, true),
                    false => self.rest(LIMIT_MAX, base, true),
                }
            }
            Phase::Up { from, base, moved } => self.rest(from, base, moved),
            Phase::Rest { base, done, strayed } => {
                let strays = !rate.at_least(base, -1, 4) || rate.at_least(base, 1, 4);
                let changed = strays && strayed && done >= REST_FLOOR;
                if changed {
                    self.rest = REST_MIN;
                }
                self.phase = match changed || done + 1 >= self.rest {
                    true => Phase::Base,
                    false => Phase::Rest { base, done: done + 1, strayed: strays },
                };
            }
        }
    }

    fn try_up(&mut self, from: u32, base: Rate, moved: bool) {
        match from < LIMIT_MAX {
            true => self.try_limit((from * 2).min(LIMIT_MAX), Phase::Up { from, base, moved }),
            false => self.rest(from, base, moved),
        }
    }

    fn rest(&mut self, limit: u32, base: Rate, moved: bool) {
        self.rest = if moved { REST_MIN } else { (self.rest * 2).min(REST_MAX) };
        self.try_limit(limit, Phase::Rest { base, done: 0, strayed: false });
    }

    fn try_limit(&mut self, limit: u32, phase: Phase) {
        if limit != self.limit {
            self.settle = self.in_flight + limit.min(self.sample.peak);
            self.limit = limit;
        }
        self.phase = phase;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Instant = Instant(1_000_000_000);

    #[test]
    fn only_what_extends_a_run_waits_and_never_longer_than_the_bound() {
        let hold = Verdict::Hold { until: T + 300_000 };
        // limit, wait, depth, extends a run, waiting for
        let rows = [
            ("alone", 1, 300_000, 64, false, 0, Verdict::Go),
            ("device idle", 1, 300_000, 0, true, 0, Verdict::Go),
            ("below the limit", 4, 300_000, 3, true, 0, Verdict::Go),
            ("at the limit", 4, 300_000, 4, true, 0, hold),
            ("nearly at the bound", 4, 300_000, 9, true, 299_999, Verdict::Hold { until: T + 1 }),
            ("at the bound", 4, 300_000, 9, true, 300_000, Verdict::Go),
            ("flash", 1, 0, 64, true, 0, Verdict::Go),
        ];
        for (name, limit, wait_ns, depth, extends, age, expected) in rows {
            let mut auto = Auto { limit, ..Auto::new(wait_ns) };
            assert_eq!(auto.may_go(T, depth, extends, T - age), expected, "{name}");
        }
    }

    #[test]
    fn the_bound_by_class() {
        let rows = [("nvme", false, 0), ("ssd", false, 0), ("ssd", true, 0), ("hdd", true, 300_000)];
        let more = [("net", false, 300_000), ("tape", true, 300_000), ("optane", false, 0)];
        for (class, rotational, expected) in rows.into_iter().chain(more) {
            assert_eq!(wait_ns_of(class, rotational), expected, "{class} {rotational}");
        }
    }

    /// Plays a device whose throughput is `curve(limit)` for a client that always fills the limit up to `depth`.
    fn climb(auto: &mut Auto, start: Instant, samples: u32, depth: u32, curve: impl Fn(u32) -> u64) -> Instant {
        let mut now = start;
        for _ in 0..samples * (COMMANDS_MIN + TURNS * depth) {
            while auto.in_flight < depth && auto.may_go(now, auto.in_flight, true, now) == Verdict::Go {
                auto.issued(now);
            }
            now = now + 100_000;
            let bytes = curve(auto.in_flight);
            auto.completed(now, bytes);
        }
        now
    }

    #[test]
    fn it_climbs_to_the_top_of_any_curve_with_one_top() {
        for top in [1, 2, 4, 8, 16, 32, 64, 128] {
            let mut auto = Auto::new(300_000);
            let curve = |depth: u32| 1_000_000 * u64::from(depth.min(top)) / u64::from(depth.max(top));
            climb(&mut auto, T, 12, 128, curve);
            let settled = match auto.phase {
                Phase::Down { from, .. } | Phase::Up { from, .. } => from,
                Phase::Base | Phase::Rest { .. } => auto.limit,
            };
            assert_eq!(settled.min(128), top);
        }
    }

    #[test]
    fn it_follows_when_the_top_moves_and_stays_loose_where_nothing_is_gained() {
        let peaked = |top: u32| move |d: u32| 1_000_000 * u64::from(d.min(top)) / u64::from(d.max(top));
        let mut auto = Auto::new(300_000);
        let now = climb(&mut auto, T, 12, 128, peaked(4));
        assert!(matches!(auto.phase, Phase::Rest { .. }) && auto.limit == 4, "{auto:?}");
        let now = climb(&mut auto, now, 12, 128, peaked(32));
        assert!(matches!(auto.phase, Phase::Rest { .. }) && auto.limit == 32, "{auto:?}");
        climb(&mut auto, now, 40, 128, |_| 1_000_000);
        assert!(auto.limit >= 64, "equal throughput everywhere: {auto:?}");
    }

    /// A price per command beside one per byte: each halving gains less than the one before, 6.7 % to 32, 3.5 % to 16.
    #[test]
    fn where_a_curve_is_nearly_flat_two_halvings_count_together() {
        let mut auto = Auto::new(300_000);
        climb(&mut auto, T, 20, 128, |depth| 1_000_000_000 / u64::from(1_000 + 5 * depth));
        assert!(matches!(auto.phase, Phase::Rest { .. }) && auto.limit == 8, "{auto:?}");
    }
}
