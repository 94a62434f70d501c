//! A table of up to 512 things by number, of which those that are there stand side by side: one that is not takes a bit, and
//! 64 of those are passed at once.

use alloc::vec::Vec;

/// Numbers of one table.
pub(crate) const WIDTH: usize = 512;
const WORDS: usize = WIDTH / 64;

/// See the file.
#[derive(Clone)]
pub(crate) struct Packed<T> {
    /// Numbers below are all there, each at its own place: most of what was written in sequence is found without counting.
    whole: usize,
    /// Which are there, one bit each.
    present: [u64; WORDS],
    /// How many are there in the words before.
    before: [u16; WORDS],
    /// In order.
    things: Vec<T>,
}

impl<T> Default for Packed<T> {
    fn default() -> Self {
        Packed { whole: 0, present: [0; WORDS], before: [0; WORDS], things: Vec::new() }
    }
}

impl<T> Packed<T> {
    /// Where it is, or would be.
    fn place(&self, number: usize) -> Result<usize, usize> {
        if number < self.whole {
            return Ok(number);
        }
        let (word, bit) = (number / 64, 1u64 << (number % 64));
        let place = usize::from(self.before[word]) + (self.present[word] & (bit - 1)).count_ones() as usize;
        if self.present[word] & bit != 0 { Ok(place) } else { Err(place) }
    }

    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        self.things.get(self.place(number).ok()?)
    }

    pub(crate) fn get_or_insert_with(&mut self, number: usize, make: impl FnOnce() -> T) -> &mut T {
        let place = self.place(number).unwrap_or_else(|place| {
            self.things.insert(place, make());
            self.present[number / 64] |= 1 << (number % 64);
            self.before[number / 64 + 1..].iter_mut().for_each(|before| *before += 1);
            if number == self.whole {
                let first_gap = self.present.iter().position(|word| *word != u64::MAX);
                self.whole = first_gap.map_or(WIDTH, |word| word * 64 + self.present[word].trailing_ones() as usize);
            }
            place
        });
        &mut self.things[place]
    }

    /// How many numbers from this one on are known at a glance not to be there: no more than a word of them.
    pub(crate) fn absent_from(&self, number: usize) -> usize {
        let bit = number % 64;
        let zeros = (self.present[number / 64] >> bit).trailing_zeros() as usize;
        zeros.min(64 - bit)
    }

    /// In order, with their numbers, from this one on.
    pub(crate) fn entries_from(&self, first: usize) -> impl Iterator<Item = (usize, &T)> {
        let place = self.place(first).unwrap_or_else(|place| place);
        numbers(&self.present, first).zip(&self.things[place..])
    }

    /// All, with their numbers.
    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        numbers(&self.present, 0).zip(&mut self.things)
    }
}

/// The bits that are set, from this one on.
fn numbers(present: &[u64; WORDS], first: usize) -> impl Iterator<Item = usize> {
    let (mut word, mut rest) = (first / 64, present[first / 64] & u64::MAX << (first % 64));
    core::iter::from_fn(move || {
        while rest == 0 {
            word += 1;
            rest = *present.get(word)?;
        }
        let number = word * 64 + rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map_by_number(inserted in prop::collection::vec(0..WIDTH, 0..600)) {
            let (mut table, mut twin) = (Packed::default(), BTreeMap::new());
            for (i, number) in inserted.into_iter().enumerate() {
                *table.get_or_insert_with(number, || 0) += i;
                *twin.entry(number).or_insert(0) += i;
            }
            for number in 0..WIDTH {
                prop_assert_eq!(table.get(number), twin.get(&number));
                prop_assert!(table.entries_from(number).eq(twin.range(number..).map(|(n, i)| (*n, i))), "from {}", number);
                let next = twin.range(number..).next().map_or(WIDTH, |(next, _)| *next);
                let absent = table.absent_from(number);
                prop_assert!(absent <= next - number && (absent > 0 || next == number), "{} at {}", absent, number);
            }
            table.entries_mut().for_each(|(number, i)| *i += number);
            twin.iter_mut().for_each(|(number, i)| *i += number);
            prop_assert!(table.entries_from(0).eq(twin.iter().map(|(number, i)| (*number, i))));
        }
    }
}
