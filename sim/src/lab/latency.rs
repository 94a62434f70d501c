//! Latencies of a run: a histogram that is exact to 1.6 %, and how they went over time.
//!
//! ```text
//!   value   below 128 its own bucket; above, 64 buckets a power of two
//!   time    up to 512 buckets of equal length; when they are full, two become one
//! ```

use braid_core::queue::stats;

const SUB: u32 = 6;

/// Counts of values in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    counts: Vec<u64>,
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// The largest.
    pub max_ns: u64,
}

fn bucket_of(ns: u64) -> usize {
    let power = (63 - (ns | 1).leading_zeros()).saturating_sub(SUB);
    ((u64::from(power) << SUB) + (ns >> power)) as usize
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let power = (bucket >> SUB).saturating_sub(1);
    ((bucket - (power << SUB) + 1) << power) - 1
}

impl Latency {
    /// Counts one.
    pub fn record(&mut self, ns: u64) {
        let bucket = bucket_of(ns);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds another one's.
    pub fn add(&mut self, other: &Latency) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Mean; 0 of none.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0)
    }

    /// So many of a thousand were answered within this; 0 of none.
    pub fn quantile_ns(&self, permille: u64) -> u64 {
        let wanted = (u128::from(self.count) * u128::from(permille)).div_ceil(1000) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return upper(bucket).min(self.max_ns);
            }
        }
        0
    }

    /// By powers of two: bucket `i` holds what is in (2^(i-1), 2^i] times the unit, as the published tables count. What is
    /// nearer to an edge than the histogram is exact may be on the other side of it.
    pub fn powers_of_two(&self, unit_ns: u64) -> Vec<u64> {
        let mut powers = vec![0; stats::BUCKETS];
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let below = if bucket == 0 { 0 } else { upper(bucket - 1) };
            let middle = below + (upper(bucket) - below).div_ceil(2);
            powers[stats::Histogram::bucket_of(middle.div_ceil(unit_ns.max(1)))] += count;
        }
        powers
    }
}

/// What was answered in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Answers.
    pub ios: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Sum of their latencies.
    pub sum_ns: u64,
    /// The largest.
    pub max_ns: u64,
}

/// Moments of a run, from its beginning on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Length of each.
    pub step_ns: u64,
    /// In order.
    pub moments: Vec<Moment>,
}

/// Most moments of a timeline.
const MOMENTS_MAX: usize = 512;

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline { step_ns: 1_000_000, moments: Vec::new() }
    }
}

impl Timeline {
    /// Counts an answer so long after the beginning.
    pub fn record(&mut self, at_ns: u64, bytes: u64, ns: u64) {
        while at_ns / self.step_ns >= MOMENTS_MAX as u64 {
            self.halve();
        }
        let i = (at_ns / self.step_ns) as usize;
        if i >= self.moments.len() {
            self.moments.resize(i + 1, Moment::default());
        }
        self.moments[i].add(&Moment { ios: 1, bytes, sum_ns: ns, max_ns: ns });
    }

    fn halve(&mut self) {
        self.step_ns *= 2;
        let both = |pair: &[Moment]| {
            let mut sum = pair[0];
            pair[1..].iter().for_each(|other| sum.add(other));
            sum
        };
        self.moments = self.moments.chunks(2).map(both).collect();
    }
}

impl Moment {
    fn add(&mut self, other: &Moment) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_that_ends_at_most_one_part_in_64_above() {
        for power in 0..63 {
            for value in [1u64 << power, (1 << power) + 1, (1 << power) * 3 / 2, (2 << power) - 1] {
                let edge = upper(bucket_of(value));
                assert!(edge >= value && edge - value <= value / 64, "{value} in a bucket up to {edge}");
                assert!(bucket_of(edge) == bucket_of(value) && bucket_of(edge + 1) == bucket_of(value) + 1, "{value}");
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut latency = Latency::default();
        (1..=1000).for_each(|i| latency.record(i * 1000));
        for (permille, exact) in [(500, 500_000), (990, 990_000), (999, 999_000)] {
            let told = latency.quantile_ns(permille);
            assert!(told >= exact && told - exact <= exact / 64, "{permille}: {told}");
        }
        assert_eq!((latency.quantile_ns(1000), latency.max_ns, latency.mean_ns()), (1_000_000, 1_000_000, 500_500));
        let mut latency = Latency::default();
        [900, 1_900, 2_100, 3_900, 4_100].iter().for_each(|&ns| latency.record(ns));
        assert_eq!(latency.powers_of_two(1000)[..4], [1, 1, 2, 1]);
        assert_eq!(Latency::default().quantile_ns(500), 0);
    }

    #[test]
    fn a_timeline_keeps_every_answer_and_never_grows_beyond_its_bound() {
        let mut timeline = Timeline::default();
        (0..100_000u64).for_each(|i| timeline.record(i * 1_000_000, 1, i));
        assert!(timeline.moments.len() <= MOMENTS_MAX);
        assert_eq!(timeline.moments.iter().map(|m| m.ios).sum::<u64>(), 100_000);
        assert_eq!(timeline.moments.iter().map(|m| m.max_ns).max(), Some(99_999));
        assert_eq!(timeline.step_ns, 256_000_000);
    }
}
