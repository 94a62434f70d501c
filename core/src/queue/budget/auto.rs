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
//! A request that waits as long as a command takes there costs a run about one command's time, whatever the device;
//! with a fixed bound a limit has no effect where commands take a multiple of it.
//!
//! Source: the rule is the specification's, section 5.8b; the search is plain hill climbing on powers of two.

use super::Verdict;
use crate::units::Instant;

/// How long a request may be held where commands are quick, and before anything is known of them.
pub const WAIT_NS_MIN: u64 = 300_000;

/// Longest time that anything may be held.
pub const WAIT_NS_MAX: u64 = 100_000_000;

/// The bound of the extra wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nanoseconds; with 0 nothing is ever held.
    Fixed(u64),
    /// As long as a command takes on the device at present, [`WAIT_NS_MIN`] to [`WAIT_NS_MAX`].
    Auto,
}

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
    wait: Wait,
    /// What a command took from its start to its end, on average of the last sample.
    command_ns: u64,
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
    /// Time of all commands together.
    commands_ns: u64,
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

impl Wait {
    /// The bound for a device nobody set it for: 0 on flash, where [`WAIT_NS_MIN`] is the time of several requests.
    #[must_use]
    pub fn of_class(class: &str, rotational: bool) -> Wait {
        match class {
            "nvme" | "ssd" => Wait::Fixed(0),
            "hdd" | "net" => Wait::Auto,
            _ if rotational => Wait::Auto,
            _ => Wait::Fixed(0),
        }
    }

    /// Nanoseconds at least.
    #[must_use]
    pub fn least_ns(self) -> u64 {
        match self {
            Wait::Fixed(ns) => ns,
            Wait::Auto => WAIT_NS_MIN,
        }
    }
}

impl Auto {
    /// A budget that holds nothing longer than `wait`.
    #[must_use]
    pub fn new(wait: Wait) -> Auto {
        Auto {
            wait,
            command_ns: 0,
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
    pub(in crate::queue) fn with_limit(wait: Wait, limit: u32) -> Auto {
        Auto { limit, ..Auto::new(wait) }
    }

    /// Bytes of the sample that is being taken.
    #[cfg(test)]
    pub(in crate::queue) fn sampled_bytes(&self) -> u64 {
        self.sample.rate.bytes
    }

    /// The bound of the extra wait, in nanoseconds, as it is now.
    #[must_use]
    pub fn wait_ns(&self) -> u64 {
        match self.wait {
            Wait::Fixed(ns) => ns,
            Wait::Auto => self.command_ns.clamp(WAIT_NS_MIN, WAIT_NS_MAX),
        }
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
        let wait_ns = self.wait_ns();
        if !extends_run || depth == 0 || wait_ns == 0 {
            return Verdict::Go;
        }
        self.sample.runs = true;
        let until = oldest + wait_ns;
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
            let (sample, ns) = (&mut self.sample, now.since(self.last));
            sample.rate.ns = sample.rate.ns.saturating_add(ns);
            sample.commands_ns = sample.commands_ns.saturating_add(ns.saturating_mul(self.in_flight.into()));
        }
        self.last = self.last.max(now);
    }

    fn begin_sample(&mut self) {
        self.sample = Sample { peak: self.in_flight, ..Sample::default() };
    }

    fn is_enough(&self) -> bool {
        let Sample { rate, commands, peak, runs, .. } = self.sample;
        let enough = COMMANDS_MIN + TURNS * peak.min(self.limit);
        if commands >= enough && rate.ns >= BUSY_NS_MIN {
            return true;
        }
        // A trial that costs a quarter of the throughput is seen earlier, and so is one that gains half of it.
        commands >= enough / 4
            && rate.ns >= BUSY_NS_MIN
            && match self.phase {
                Phase::Down { base, .. } => !rate.at_least(base, -1, 4) || runs && rate.at_least(base, 1, 2),
                Phase::Up { base, .. } => !rate.at_least(base, -1, 4),
                Phase::Base | Phase::Rest { .. } => false,
            }
    }

    fn step(&mut self) {
        let Sample { rate, commands, commands_ns, peak, runs, held } = self.sample;
        self.command_ns = commands_ns / u64::from(commands.max(1));
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
            let mut auto = Auto { limit, ..Auto::new(Wait::Fixed(wait_ns)) };
            assert_eq!(auto.may_go(T, depth, extends, T - age), expected, "{name}");
        }
    }

    #[test]
    fn the_bound_by_class() {
        let off = Wait::Fixed(0);
        let rows = [("nvme", false, off), ("ssd", false, off), ("ssd", true, off), ("hdd", true, Wait::Auto)];
        let more = [("net", false, Wait::Auto), ("tape", true, Wait::Auto), ("optane", false, off)];
        for (class, rotational, expected) in rows.into_iter().chain(more) {
            assert_eq!(Wait::of_class(class, rotational), expected, "{class} {rotational}");
        }
    }

    #[test]
    fn a_run_waits_as_long_as_a_command_takes() {
        // Between two completions, commands in flight all the time, the bound.
        let rows = [
            ("a command of 100 us", 100_000, 1, WAIT_NS_MIN),
            ("4 at a time, 2 ms each", 500_000, 4, 2_000_000),
            ("64 at a time, 9.6 ms each", 150_000, 64, 9_600_000),
            ("a device that hangs", 50_000_000, 16, WAIT_NS_MAX),
        ];
        for (name, gap_ns, in_flight, expected) in rows {
            let (mut auto, mut now) = (Auto::new(Wait::Auto), T);
            assert_eq!(auto.wait_ns(), WAIT_NS_MIN, "nothing is known yet");
            (0..in_flight).for_each(|_| auto.issued(now));
            for _ in 0..COMMANDS_MIN + TURNS * in_flight {
                now = now + gap_ns;
                auto.completed(now, 4096);
                auto.issued(now);
            }
            assert_eq!(auto.wait_ns(), expected, "{name}");
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
            let mut auto = Auto::new(Wait::Fixed(300_000));
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
        let mut auto = Auto::new(Wait::Fixed(300_000));
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
        let mut auto = Auto::new(Wait::Fixed(300_000));
        climb(&mut auto, T, 20, 128, |depth| 1_000_000_000 / u64::from(1_000 + 5 * depth));
        assert!(matches!(auto.phase, Phase::Rest { .. }) && auto.limit == 8, "{auto:?}");
    }
}
