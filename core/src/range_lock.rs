//! No two writers in one range.
//!
//! ```text
//!   volume 1   |----- 7 held -----|          |-- 9 held --|
//!                        |--- 8 parked ---|
//!                                     |-- 10 parked: behind 8, though nobody holds it --|
//! ```
//!
//! Two overlapping writes in flight could land in different order on different mirrors and leave them unequal for
//! good. Here the second one waits.
//!
//! Promises:
//! - ranges held at the same time never overlap;
//! - among overlapping ranges, arrival order: a newcomer never overtakes a parked range it overlaps, so nobody starves;
//! - every parked range is granted once all that stood before it and overlapped it are released.
//!
//! Volumes do not know of each other. The uncontended grant is one look to the left in an ordered map; only when
//! something is parked does anyone walk the line.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::units::VolumeId;

/// Ranges being written, and those that wait for them.
#[derive(Clone, Debug, Default)]
pub struct RangeLock {
    /// Never overlapping within a volume: the one that starts last below a point is the only one that can cover it.
    held: BTreeMap<(VolumeId, u64), Held>,
    /// In arrival order.
    parked: Vec<Range>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    end: u64,
    token: u32,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    volume: VolumeId,
    start: u64,
    end: u64,
    token: u32,
}

impl Range {
    fn overlaps(&self, other: &Range) -> bool {
        self.volume == other.volume && self.start < other.end && other.start < self.end
    }
}

impl RangeLock {
    /// Nothing held.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for bytes `start..end`. True: granted. False: parked; a later [`release`](Self::release) names `token`.
    ///
    /// Tokens are the caller's and are only compared on release. A token that asks for what it already holds waits for
    /// itself. An empty range conflicts with nothing and is granted without being remembered.
    pub fn acquire(&mut self, volume: VolumeId, start: u64, end: u64, token: u32) -> bool {
        if start >= end {
            return true;
        }
        let range = Range { volume, start, end, token };
        let granted = self.is_free(&range) && !self.parked.iter().any(|earlier| earlier.overlaps(&range));
        if granted {
            self.hold(range);
        } else {
            self.parked.push(range);
        }
        granted
    }

    /// Gives back what `token` holds and appends to `granted`, in arrival order, the tokens that hold theirs from now on.
    ///
    /// A range that is not held by `token` exactly so changes nothing.
    pub fn release(&mut self, volume: VolumeId, start: u64, end: u64, token: u32, granted: &mut Vec<u32>) {
        let ours = self.held.get(&(volume, start)).is_some_and(|held| held.end == end && held.token == token);
        if !ours {
            return;
        }
        self.held.remove(&(volume, start));
        if self.parked.is_empty() {
            return;
        }
        // Only those that overlap the released range can gain: a grant below turns "parked in front" into "held", which
        // frees nobody. What stays parked is moved up, so `parked[..kept]` is always "the earlier ones".
        let released = Range { volume, start, end, token };
        let mut kept = 0;
        for i in 0..self.parked.len() {
            let range = self.parked[i];
            let may_go = range.overlaps(&released)
                && self.is_free(&range)
                && !self.parked[..kept].iter().any(|earlier| earlier.overlaps(&range));
            if may_go {
                self.hold(range);
                granted.push(range.token);
            } else {
                self.parked[kept] = range;
                kept += 1;
            }
        }
        self.parked.truncate(kept);
    }

    /// Whether anyone but `token` holds a part of `start..end`.
    pub fn overlaps_other(&self, volume: VolumeId, start: u64, end: u64, token: u32) -> bool {
        self.is_held_by(volume, start, end, |held| held != token)
    }

    /// Whether a part of `start..end` is held with such a token.
    pub fn is_held_by(&self, volume: VolumeId, start: u64, end: u64, is_meant: impl Fn(u32) -> bool) -> bool {
        let below = self.held.range((volume, 0)..(volume, end)).rev();
        below.take_while(|(_, held)| held.end > start).any(|(_, held)| is_meant(held.token))
    }

    /// How many ranges are held.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// How many ranges wait.
    pub fn parked_count(&self) -> usize {
        self.parked.len()
    }

    fn is_free(&self, range: &Range) -> bool {
        let below = self.held.range((range.volume, 0)..(range.volume, range.end)).next_back();
        below.is_none_or(|(_, held)| held.end <= range.start)
    }

    fn hold(&mut self, range: Range) {
        let before = self.held.insert((range.volume, range.start), Held { end: range.end, token: range.token });
        debug_assert!(before.is_none(), "a range was granted twice");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const V1: VolumeId = VolumeId(1);
    const V2: VolumeId = VolumeId(2);

    #[test]
    fn the_drawing() {
        let mut lock = RangeLock::new();
        let mut granted = vec![];
        assert!(lock.acquire(V1, 0, 20, 7));
        assert!(!lock.acquire(V1, 10, 28, 8));
        assert!(lock.acquire(V1, 29, 42, 9));
        assert!(!lock.acquire(V1, 24, 29, 10), "nobody holds it, but 8 came first");
        assert!(lock.acquire(V2, 0, 20, 11), "volumes do not know of each other");
        lock.release(V1, 29, 42, 9, &mut granted);
        assert_eq!(granted, []);
        lock.release(V1, 0, 20, 7, &mut granted);
        assert_eq!(granted, [8]);
        lock.release(V1, 10, 28, 8, &mut granted);
        assert_eq!(granted, [8, 10]);
        lock.release(V1, 24, 29, 10, &mut granted);
        lock.release(V2, 0, 20, 11, &mut granted);
        assert_eq!((lock.held_count(), lock.parked_count()), (0, 0));
    }

    #[test]
    fn one_release_can_grant_several() {
        let mut lock = RangeLock::new();
        let mut granted = vec![];
        assert!(lock.acquire(V1, 0, 100, 1));
        for (start, end, token) in [(0, 10, 2), (50, 60, 3), (5, 55, 4), (90, 100, 5)] {
            assert!(!lock.acquire(V1, start, end, token));
        }
        lock.release(V1, 0, 100, 1, &mut granted);
        assert_eq!(granted, [2, 3, 5]);
    }

    #[test]
    fn odd_input_changes_nothing() {
        let mut lock = RangeLock::new();
        let mut granted = vec![];
        assert!(lock.acquire(V1, 5, 5, 1) && lock.acquire(V1, 9, 3, 2) && lock.acquire(V1, 0, u64::MAX, 3));
        assert!(!lock.acquire(V1, u64::MAX - 1, u64::MAX, 4));
        for (start, end, token) in [(5, 5, 1), (9, 3, 2), (0, u64::MAX, 9), (0, 7, 3), (1, 2, 3)] {
            lock.release(V1, start, end, token, &mut granted);
        }
        assert_eq!((granted.len(), lock.held_count(), lock.parked_count()), (0, 1, 1));
    }

    /// The obvious twin: one line in arrival order; whoever overlaps nobody in front of it holds its range.
    #[derive(Default)]
    struct Line(Vec<(Range, bool)>);

    impl Line {
        fn acquire(&mut self, range: Range) -> bool {
            self.0.push((range, false));
            self.grant().contains(&range.token)
        }

        fn release(&mut self, token: u32) -> Vec<u32> {
            self.0.retain(|(range, _)| range.token != token);
            self.grant()
        }

        fn grant(&mut self) -> Vec<u32> {
            let mut granted = vec![];
            for i in 0..self.0.len() {
                let range = self.0[i].0;
                if !self.0[i].1 && !self.0[..i].iter().any(|(earlier, _)| earlier.overlaps(&range)) {
                    self.0[i].1 = true;
                    granted.push(range.token);
                }
            }
            granted
        }

        fn holders(&self) -> Vec<Range> {
            self.0.iter().filter(|(_, holds)| *holds).map(|(range, _)| *range).collect()
        }
    }

    proptest! {
        #[test]
        fn grants_as_the_obvious_line_does(
            steps in prop::collection::vec((0u32..3, 1u32..3, 0u64..24, 1u64..9, any::<prop::sample::Index>()), 1..120),
        ) {
            let (mut lock, mut line, mut granted) = (RangeLock::new(), Line::default(), vec![]);
            for (token, (step, volume, start, len, which)) in steps.iter().enumerate() {
                let holders = line.holders();
                if *step == 0 && !holders.is_empty() {
                    let out = holders[which.index(holders.len())];
                    granted.clear();
                    lock.release(out.volume, out.start, out.end, out.token, &mut granted);
                    prop_assert_eq!(&granted, &line.release(out.token));
                } else {
                    let (volume, token) = (VolumeId(*volume), token as u32);
                    let expected = line.acquire(Range { volume, start: *start, end: start + len, token });
                    prop_assert_eq!(lock.acquire(volume, *start, start + len, token), expected);
                }
                let holders = line.holders();
                prop_assert_eq!(lock.held_count(), holders.len());
                for (i, a) in holders.iter().enumerate() {
                    prop_assert!(!holders[..i].iter().any(|b| a.overlaps(b)), "two writers in one range");
                }
            }
            // No lost waiter: releasing whoever holds empties the line.
            while let Some(out) = line.holders().first().copied() {
                granted.clear();
                lock.release(out.volume, out.start, out.end, out.token, &mut granted);
                prop_assert_eq!(&granted, &line.release(out.token));
            }
            prop_assert_eq!((lock.held_count(), lock.parked_count(), line.0.len()), (0, 0, 0));
        }
    }
}
