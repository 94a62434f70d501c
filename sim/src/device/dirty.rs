//! The write cache: ranges answered that are not on the platter yet. Neighbours become one.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    /// First byte, end.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Dirty {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((&at, &other)) = self.ranges.range(..=end).next_back()
            && other >= start
        {
            self.ranges.remove(&at);
            self.bytes -= other - at;
            (start, end) = (start.min(at), end.max(other));
        }
        self.bytes += end - start;
        self.ranges.insert(start, end);
    }

    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        self.ranges.range(..=start).next_back().is_some_and(|(_, &other)| end <= other)
    }

    /// Starts of ranges to choose from: so many on either side of a place.
    pub(super) fn near(&self, place: u64, count: usize) -> impl Iterator<Item = u64> {
        let below = self.ranges.range(..place).rev().take(count);
        self.ranges.range(place..).take(count).chain(below).map(|(&at, _)| at)
    }

    /// The first range that starts there or later.
    pub(super) fn at_or_after(&self, place: u64) -> Option<u64> {
        self.ranges.range(place..).next().map(|(&at, _)| at)
    }

    /// Takes at most `most` bytes off the start of a range; where they end.
    pub(super) fn take(&mut self, start: u64, most: u64) -> u64 {
        let Some(whole) = self.ranges.remove(&start) else { return start };
        let end = whole.min(start + most);
        if end < whole {
            self.ranges.insert(end, whole);
        }
        self.bytes -= end - start;
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_and_are_counted_once() {
        let mut dirty = Dirty::default();
        for (start, end) in [(0, 10), (20, 30), (50, 60), (5, 22)] {
            dirty.add(start, end);
        }
        assert_eq!((dirty.bytes(), dirty.ranges.len()), (40, 2));
        assert!(dirty.holds(3, 29) && !dirty.holds(29, 31));
        assert_eq!(dirty.take(0, 12), 12);
        assert_eq!(dirty.near(55, 4).collect::<Vec<_>>(), [50, 12]);
        assert_eq!(dirty.take(12, 100), 30);
        assert_eq!(dirty.take(50, 100), 60);
        assert!(dirty.is_empty() && dirty.bytes() == 0);
    }
}
