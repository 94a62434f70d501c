//! What was published for btrfs, bit for bit.
//!
//! Two loops look for the lowest average read wait; they part ways at a zero average, which stands for "no sample", for
//! "accounting is off", and for an average below one nanosecond:
//!
//! ```text
//!   averages         [1 ms, 0, 50 ms, 20 ms]
//!   2021: est = 0;   take when est == 0 or est > avg   -> 3: the zero is taken, and whatever follows replaces it
//!   2024: est = max; take when est > avg               -> 1: the zero wins
//! ```
//!
//! The averages never age, so a device that was slow once is never read again, and one that became slow keeps winning
//! until its lifetime average says so. That is the starvation that [`latency`](super::latency) mends.

/// What a zero average means to a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroAverage {
    /// 2021: taken, but replaced by whatever follows.
    ResetsScan,
    /// 2024 and later: better than everything else.
    Wins,
}

/// Average read wait: zero without samples, and zero when it is below one nanosecond.
pub fn average(ns: u64, ios: u64) -> u64 {
    if ios == 0 || ns < ios { 0 } else { ns / ios }
}

/// Position of the lowest average as the posting of that year found it; 0 of nothing.
pub fn lowest_average(averages: impl Iterator<Item = u64>, zero: ZeroAverage) -> usize {
    let mut best = match zero {
        ZeroAverage::ResetsScan => 0,
        ZeroAverage::Wins => u64::MAX,
    };
    let mut position = 0;
    for (i, average) in averages.enumerate() {
        let empty = zero == ZeroAverage::ResetsScan && best == 0;
        if empty || best > average {
            (best, position) = (average, i);
        }
    }
    position
}

/// The variant of the first RFC (October 2020), soon dropped: every ten requests in flight count the average once more.
/// Takes `(average, in flight)`; a zero cost resets the scan as in 2021.
///
/// Its running best was a signed 32-bit number. From 2^31 ns on it compares as a huge unsigned one, so that any later
/// candidate replaces it; that is our reading, and it is kept.
pub fn latency_inflight(candidates: impl Iterator<Item = (u64, u32)>) -> usize {
    let mut best: i32 = 0;
    let mut position = 0;
    for (i, (average, in_flight)) in candidates.enumerate() {
        let cost = average.wrapping_add(average.wrapping_mul(u64::from(in_flight / 10)));
        if best == 0 || best as u64 > cost {
            (best, position) = (cost as i32, i);
        }
    }
    position
}

/// The last step of every published policy: the preferred of `n` copies if it is there, else the first in stripe order
/// that is. In a first round whoever is to be avoided (the source of a running replacement) does not count as there.
/// When nobody is there the preferred one comes back, and reading it fails.
pub fn tolerate(n: usize, preferred: usize, present: impl Fn(usize) -> bool, avoid: impl Fn(usize) -> bool) -> usize {
    for avoiding in [true, false] {
        let usable = |i: &usize| present(*i) && !(avoiding && avoid(*i));
        if let Some(found) = core::iter::once(preferred).chain(0..n).find(usable) {
            return found;
        }
    }
    preferred
}
