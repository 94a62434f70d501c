//! I/Os that touch nothing else: nobody to join, no run to continue, so that no table has to know them.
//!
//! ```text
//!   arrives [12K..16K)        line: [64K..68K) [256K..260K) ..     filters: what may begin, what may end here
//!           begins at 12K --> does anything end there? --.
//!           ends at 16K ----> does anything begin there? +--> no, nearly always: it joins the line
//!                                                        '--> perhaps: the line is looked through
//! ```
//!
//! Most I/Os of a random load wait for nothing but the end of their batch. Two bits for each answer what the tables of
//! places would answer with a dozen memory accesses. A filter that says yes for nothing costs a walk over the line,
//! which is why the line is bounded; one that has seen many I/Os come and go is made anew from those that are there.

use alloc::collections::VecDeque;

use crate::queue::places::hash;
use crate::queue::waiting::Waiting;

/// Longest line. Whoever comes then waits in the tables.
const ROOM: usize = 256;

/// A line up to this is looked through without a filter.
const SHORT: usize = 4;

/// I/Os noted in a filter before it is made anew; below a sixteenth of its bits.
const NOTED_MAX: usize = 2 * ROOM;

/// Of each filter.
const BITS: usize = 8192;
const _: () = assert!(NOTED_MAX * 16 <= BITS && NOTED_MAX > ROOM);

/// One of them, with its number in the order of creation.
#[derive(Clone, Copy)]
pub(super) struct Single {
    pub(super) io: Waiting,
    pub(super) seq: u64,
}

impl Single {
    /// When it arrived, and the order of creation.
    pub(super) fn age(&self) -> (u64, u64, u64) {
        (self.io.arrived.0, 0, self.seq)
    }
}

/// A line by arrival.
#[derive(Default)]
pub(super) struct Loose {
    line: VecDeque<Single>,
    starts: Filter,
    ends: Filter,
    /// I/Os in the filters, also of those that left; 0 while the line is short.
    noted: usize,
}

/// One bit for each place somebody was at, others share it.
struct Filter([u64; BITS / 64]);

impl Loose {
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// There is room, and it would be the last by arrival.
    pub(super) fn takes(&self, io: &Waiting) -> bool {
        self.line.len() < ROOM && self.line.back().is_none_or(|last| last.io.arrived <= io.arrived)
    }

    /// The oldest.
    pub(super) fn first(&self) -> Option<&Single> {
        self.line.front()
    }

    /// One more, that touches nobody here.
    #[inline]
    pub(super) fn push(&mut self, single: Single) {
        self.line.push_back(single);
        if self.line.len() <= SHORT {
            self.noted = 0;
        } else if self.noted == 0 || self.noted >= NOTED_MAX {
            self.note_anew();
        } else {
            self.noted += 1;
            note(&mut self.starts, &mut self.ends, &single.io);
        }
    }

    fn note_anew(&mut self) {
        (self.starts, self.ends) = Default::default();
        self.noted = self.line.len();
        for Single { io, .. } in &self.line {
            note(&mut self.starts, &mut self.ends, io);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Single> {
        self.line.pop_front()
    }

    /// Takes out somebody who ends at `offset` or begins at `end`.
    #[inline]
    pub(super) fn remove_beside(&mut self, offset: u64, end: u64) -> Option<Single> {
        let is_there = match self.line.len() {
            0 => false,
            1..=SHORT => true,
            _ => self.ends.may_have(offset) || self.starts.may_have(end),
        };
        if is_there { self.look_for(offset, end) } else { None }
    }

    fn look_for(&mut self, offset: u64, end: u64) -> Option<Single> {
        let at = self.line.iter().position(|there| there.io.offset == end || there.io.end() == offset)?;
        self.line.remove(at)
    }
}

fn note(starts: &mut Filter, ends: &mut Filter, io: &Waiting) {
    starts.note(io.offset);
    ends.note(io.end());
}

impl Default for Filter {
    fn default() -> Self {
        Filter([0; BITS / 64])
    }
}

impl Filter {
    fn note(&mut self, place: u64) {
        let bit = hash(place, BITS.trailing_zeros());
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn may_have(&self, place: u64) -> bool {
        let bit = hash(place, BITS.trailing_zeros());
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::testing::{Rng, read};
    use alloc::vec::Vec;

    /// Comings and goings beside a plain list, in lines short and full.
    #[test]
    fn it_equals_a_list() {
        let (mut found, mut longest) = (0, 0);
        for seed in 1..100 {
            let mut rng = Rng::new(seed);
            let (mut loose, mut list) = (Loose::default(), Vec::<u64>::new());
            let (busy, blocks) = (rng.below(2 * ROOM as u64), 1 + rng.below(40_000));
            for id in 0..2000 {
                let io = read(id, rng.below(blocks) * 4096, 4096);
                while let Some(single) = loose.remove_beside(io.offset, io.end()) {
                    let at = list.iter().position(|&place| place == single.io.offset).expect("it was there");
                    assert_eq!(list.remove(at).abs_diff(io.offset), 4096, "seed {seed}: it is beside");
                    found += 1;
                }
                assert!(list.iter().all(|place| place.abs_diff(io.offset) != 4096), "seed {seed}: nobody is missed");
                assert_eq!(loose.takes(&io), list.len() < ROOM, "seed {seed}");
                if list.len() as u64 <= rng.below(busy + 1) && loose.takes(&io) {
                    loose.push(Single { io, seq: id.into() });
                    list.push(io.offset);
                } else if !list.is_empty() {
                    assert_eq!(loose.pop().map(|single| single.io.offset), Some(list.remove(0)), "seed {seed}");
                }
                assert_eq!(loose.is_empty(), list.is_empty());
                longest = longest.max(list.len());
            }
        }
        assert!(found > 1000 && longest == ROOM, "{found} {longest}");
    }
}
