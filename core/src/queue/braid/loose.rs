//! I/Os that touch nothing else: nobody to join, no run to continue, so that no table has to know them. Where gaps are
//! bridged, reads that are near no other.
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

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::queue::places::hash;
use crate::queue::waiting::Waiting;
use crate::request::DeviceOp;

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
#[derive(Clone, Default)]
pub(super) struct Loose {
    line: VecDeque<Single>,
    /// Not before a line was long for the first time: most classes of most queues never are.
    touching: Option<Box<Touching>>,
    /// I/Os in the filters, also of those that left; 0 while the line is short.
    noted: usize,
    /// Where gaps are bridged.
    near: Option<Box<Near>>,
}

/// Who may touch.
#[derive(Clone, Default)]
struct Touching {
    starts: Filter,
    ends: Filter,
}

/// Who may be near, by cells of four gaps or somewhat more: whoever is no further from a place lies in its cell or in
/// that of the farthest in question, and most of the time that is one and the same.
#[derive(Clone)]
struct Near {
    gap: u64,
    /// log2 of a cell's bytes.
    cell: u32,
    cells: Filter,
}

/// One bit for each place somebody was at, others share it.
#[derive(Clone)]
struct Filter([u64; BITS / 64]);

impl Loose {
    /// An empty line of reads that are further apart than so many bytes; 0 asks nothing of them.
    pub(super) fn new(gap: u64) -> Loose {
        let cell = u64::BITS - gap.saturating_mul(4).leading_zeros();
        let near = (gap > 0).then(|| Box::new(Near { gap, cell, cells: Filter::default() }));
        Loose { near, ..Loose::default() }
    }

    pub(super) fn gap(&self) -> u64 {
        self.near.as_ref().map_or(0, |near| near.gap)
    }

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
            self.touching.iter_mut().for_each(|touching| touching.note(&single.io));
            self.near.iter_mut().for_each(|near| near.note(&single.io));
        }
    }

    fn note_anew(&mut self) {
        let touching = self.touching.get_or_insert_default();
        **touching = Touching::default();
        self.near.iter_mut().for_each(|near| near.cells = Filter::default());
        self.noted = self.line.len();
        for Single { io, .. } in &self.line {
            touching.note(io);
            self.near.iter_mut().for_each(|near| near.note(io));
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
            _ => self.touching.as_ref().is_some_and(|touching| touching.may_have(offset, end)),
        };
        if is_there { self.look_for(offset, end) } else { None }
    }

    fn look_for(&mut self, offset: u64, end: u64) -> Option<Single> {
        let at = self.line.iter().position(|there| there.io.offset == end || there.io.end() == offset)?;
        self.line.remove(at)
    }

    /// A read may end before `offset` or begin behind `end`, no further from there than the gap.
    #[inline]
    pub(super) fn may_have_near(&self, offset: u64, end: u64) -> bool {
        let short = self.line.len() <= SHORT;
        self.near.as_ref().is_some_and(|near| !self.line.is_empty() && (short || near.may_have(offset, end)))
    }

    /// Takes out one that does.
    pub(super) fn remove_near(&mut self, offset: u64, end: u64) -> Option<Single> {
        let near = self.near.as_ref()?;
        let at = self.line.iter().position(|there| near.has(&there.io, offset, end))?;
        self.line.remove(at)
    }
}

impl Near {
    fn note(&mut self, io: &Waiting) {
        self.cells.note(io.offset >> self.cell);
        self.cells.note(io.end() >> self.cell);
    }

    fn may_have(&self, offset: u64, end: u64) -> bool {
        let in_order = [offset.saturating_sub(self.gap), offset, end, end.saturating_add(self.gap)];
        let [from, first, last, to] = in_order.map(|place| place >> self.cell);
        let has = |cell| self.cells.may_have(cell);
        has(from) || first != from && has(first) || last != first && has(last) || to != last && has(to)
    }

    fn has(&self, there: &Waiting, offset: u64, end: u64) -> bool {
        let apart = offset.checked_sub(there.end()).or(there.offset.checked_sub(end));
        there.op == DeviceOp::Read && apart.is_some_and(|apart| apart <= self.gap)
    }
}

impl Touching {
    fn note(&mut self, io: &Waiting) {
        self.starts.note(io.offset);
        self.ends.note(io.end());
    }

    fn may_have(&self, offset: u64, end: u64) -> bool {
        self.ends.may_have(offset) || self.starts.may_have(end)
    }
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
        let (mut found, mut longest) = ([0; 2], 0);
        for seed in 1..100 {
            let mut rng = Rng::new(seed);
            let gap = [0, 4096, 5000, 1 << 20][rng.below(4) as usize];
            let (mut loose, mut list) = (Loose::new(gap), Vec::<Waiting>::new());
            let (busy, blocks) = (rng.below(2 * ROOM as u64), 1 + rng.below(40_000) * (1 + gap / 4096));
            for id in 0..2000 {
                let io = read(id, rng.below(blocks) * 4096, 4096);
                let op = if rng.chance(4) { DeviceOp::Write { fua: false } } else { DeviceOp::Read };
                let io = Waiting { op, ..io };
                let apart = |there: &Waiting| there.offset.abs_diff(io.offset).checked_sub(4096);
                let touches = |there: &Waiting| apart(there) == Some(0);
                let near = |there: &Waiting| {
                    gap > 0 && there.op == DeviceOp::Read && apart(there).is_some_and(|apart| apart <= gap)
                };
                let take = |single: Single, list: &mut Vec<Waiting>| {
                    let at = list.iter().position(|there| there.id == single.io.id).expect("it was there");
                    list.remove(at)
                };
                while let Some(single) = loose.remove_beside(io.offset, io.end()) {
                    assert!(touches(&take(single, &mut list)), "seed {seed}: it is beside");
                    found[0] += 1;
                }
                assert!(!list.iter().any(touches), "seed {seed}: nobody is missed");
                while let Some(single) = loose.remove_near(io.offset, io.end()) {
                    assert!(near(&take(single, &mut list)), "seed {seed}: it is near");
                    found[1] += 1;
                }
                assert!(!list.iter().any(near), "seed {seed}: nobody near is missed");
                assert_eq!(loose.takes(&io), list.len() < ROOM, "seed {seed}");
                if list.len() as u64 <= rng.below(busy + 1) && loose.takes(&io) {
                    loose.push(Single { io, seq: id.into() });
                    list.push(io);
                } else if !list.is_empty() {
                    assert_eq!(loose.pop().map(|single| single.io), Some(list.remove(0)), "seed {seed}");
                }
                assert_eq!(loose.is_empty(), list.is_empty());
                longest = longest.max(list.len());
            }
        }
        assert!(found[0] > 1000 && found[1] > 1000 && longest == ROOM, "{found:?} {longest}");
    }
}
