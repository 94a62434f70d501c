//! What is where: a multimap from places on a device to numbers.
//!
//! Two queries are all that joining needs, "what begins here" and "what ends here", and they come several times for
//! each I/O. An ordered map answers them in some thirty ns each; this table does in a few, and allocates nothing once
//! it has grown.
//!
//! Open addressing with linear probing, at most half full, multiplicative hashing (Knuth, The Art of Computer
//! Programming 3, section 6.4: algorithm L, and algorithm R for removal without tombstones). Whoever chooses places
//! that collide gets a walk over no more than what waits or is in flight.

use alloc::vec;
use alloc::vec::Vec;

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

const SMALLEST: usize = 16;

/// Marks a slot without an entry; no table of this crate has so many places.
const NOBODY: u32 = u32::MAX;

/// A multimap: a place may have many numbers, and the same one many times.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// None, or a power of two.
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    place: u64,
    number: u32,
}

const EMPTY: Slot = Slot { place: 0, number: NOBODY };

impl Places {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One more entry; `number` is less than `u32::MAX`.
    pub(super) fn insert(&mut self, place: u64, number: u32) {
        if (self.len + 1) * 2 > self.slots.len() {
            let larger = (self.slots.len() * 2).max(SMALLEST);
            let old = core::mem::replace(&mut self.slots, vec![EMPTY; larger]);
            old.into_iter().filter(|slot| slot.number != NOBODY).for_each(|slot| self.put(slot));
        }
        self.put(Slot { place, number });
        self.len += 1;
    }

    /// One entry less; false when there is none like it.
    pub(super) fn remove(&mut self, place: u64, number: u32) -> bool {
        let Some(mut at) = self.walk(place).find(|&at| {
            let slot = self.slots[at];
            slot.place == place && slot.number == number
        }) else {
            return false;
        };
        self.len -= 1;
        let mask = self.slots.len() - 1;
        let mut next = at;
        loop {
            self.slots[at] = EMPTY;
            // Who comes later in the same walk moves up, unless that were before the start of its own.
            loop {
                next = (next + 1) & mask;
                let slot = self.slots[next];
                if slot.number == NOBODY {
                    return true;
                }
                let home = self.home(slot.place);
                if next.wrapping_sub(home) & mask >= next.wrapping_sub(at) & mask {
                    self.slots[at] = slot;
                    at = next;
                    break;
                }
            }
        }
    }

    /// All numbers at a place.
    pub(super) fn at(&self, place: u64) -> impl Iterator<Item = u32> {
        self.walk(place).map(|at| self.slots[at]).filter(move |slot| slot.place == place).map(|slot| slot.number)
    }

    pub(super) fn clear(&mut self) {
        self.slots.fill(EMPTY);
        self.len = 0;
    }

    fn put(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(slot.place);
        while self.slots[at].number != NOBODY {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    /// The slots in use from a place's own on, up to the first empty one.
    fn walk(&self, place: u64) -> impl Iterator<Item = usize> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut next = if self.len == 0 { None } else { Some(self.home(place)) };
        core::iter::from_fn(move || {
            let at = next.filter(|&at| self.slots[at].number != NOBODY)?;
            next = Some((at + 1) & mask);
            Some(at)
        })
    }

    /// The table has at least two slots.
    fn home(&self, place: u64) -> usize {
        hash(place, self.slots.len().trailing_zeros())
    }
}

/// A place as a number of so many bits, 1 to 63: the upper bits of the product.
pub(super) fn hash(place: u64, bits: u32) -> usize {
    (place.wrapping_mul(GOLDEN) >> (64 - bits)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::testing::Rng;

    #[test]
    fn it_equals_a_list() {
        let mut longest = 0;
        for seed in 1..200 {
            let mut rng = Rng::new(seed);
            let (mut table, mut list) = (Places::default(), Vec::<(u64, u32)>::new());
            // Few places, blocks in a row, or places with one home in a small table.
            let (stride, places) = [(4096, 20), (4096, 1 << 30), (1 << 60, 16)][rng.below(3) as usize];
            let busy = rng.below(300);
            for _ in 0..2000 {
                let (place, number) = (rng.below(places) * stride, rng.below(3) as u32);
                if list.len() as u64 <= rng.below(busy + 1) {
                    table.insert(place, number);
                    list.push((place, number));
                } else {
                    let (place, number) = match rng.chance(4) {
                        true => (place, number),
                        false => list[rng.below(list.len() as u64) as usize],
                    };
                    let at = list.iter().position(|&entry| entry == (place, number));
                    assert_eq!(table.remove(place, number), at.is_some(), "seed {seed}");
                    at.map(|at| list.swap_remove(at));
                }
                if rng.chance(500) {
                    table.clear();
                    list.clear();
                }
                let mut found: Vec<u32> = table.at(place).collect();
                let mut expected: Vec<u32> =
                    list.iter().filter(|entry| entry.0 == place).map(|entry| entry.1).collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "seed {seed}");
                assert_eq!(table.is_empty(), list.is_empty());
                longest = longest.max(list.len());
            }
        }
        assert!(longest > 100, "it grows: {longest}");
    }
}
