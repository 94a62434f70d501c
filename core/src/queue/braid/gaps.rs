//! Reads that wait near others: where they are, and which of them leave together.
//!
//! ```text
//!   waits       [4K)    [4K)[4K)      [4K)                     [4K)      of one class, in order of place
//!   is chosen           '------'
//!   leaves      [4K)....[4K)[4K)......[4K)   at most read_gap_limit ^    too far away: stays
//! ```
//!
//! Gaps are looked for when a request leaves and not when one arrives. Until then a neighbour may come that closes the
//! gap, and what waits has none, so that joining need not know of them. First downwards, then upwards, as in the
//! [`zfs`](crate::queue::zfs) queue: a command that is full is the lower part of what lies together. The walk ends at the
//! first that does not fit.

use alloc::collections::BTreeMap;

use super::lane::Lane;
use super::{Counters, How};
use crate::queue::chains::{Chain, ChainId};
use crate::queue::merge::Shape;
use crate::queue::waiting::Waiting;
use crate::request::DeviceOp;

/// Reads that may join others, by place and order of creation; nobody while gaps are not bridged.
#[derive(Clone, Default)]
pub(super) struct ByPlace(BTreeMap<(u64, u64), ChainId>);

impl ByPlace {
    pub(super) fn insert(&mut self, id: ChainId, chain: &Chain) {
        self.0.insert((chain.shape.offset, chain.seq), id);
    }

    /// Must be told before the request changes.
    pub(super) fn remove(&mut self, chain: &Chain) {
        self.0.remove(&(chain.shape.offset, chain.seq));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Those that begin before a place, nearest first.
    fn below(&self, offset: u64) -> impl Iterator<Item = ChainId> {
        self.0.range(..(offset, 0)).rev().map(|(_, &id)| id)
    }

    /// The first that begins at a place or behind it.
    fn from(&self, offset: u64) -> Option<ChainId> {
        self.0.range((offset, 0)..).next().map(|(_, &id)| id)
    }
}

impl Lane {
    /// Who leaves takes along what is near, in device order; the name of all of them. It is in no table any more.
    pub(super) fn bridge(&mut self, how: &How, mut id: ChainId, counters: &mut Counters) -> ChainId {
        let Shape { op, offset, .. } = self.chains.get(id).shape;
        if op != DeviceOp::Read {
            return id;
        }
        while let Some(below) = self.fits_below(how, id) {
            self.unplace(how, below);
            self.chains.join(below, id);
            counters.bridged += 1;
            id = below;
        }
        // Where its last part begins: others may read what parts before that read, too.
        let mut top = offset;
        while let Some(above) = self.fits_above(how, id, top) {
            top = self.chains.get(above).shape.offset;
            self.unplace(how, above);
            self.chains.join(id, above);
            counters.bridged += 1;
        }
        id
    }

    /// It is a read, and something in the tables is so near that one might take the other along.
    #[inline(never)]
    pub(super) fn has_near(&self, how: &How, io: &Waiting) -> bool {
        let shape = |id: ChainId| self.chains.get(id).shape;
        let (from, to) = (io.offset.saturating_sub(how.read_gap), io.end().saturating_add(how.read_gap));
        // Of those that begin at one place any may end near.
        let mut below = self.by_place.below(io.offset).map(shape).peekable();
        let place = below.peek().map(|last| last.offset);
        let is_below = below.take_while(|s| Some(s.offset) == place).any(|s| s.end() >= from);
        let is_near = is_below || self.by_place.from(io.end()).is_some_and(|id| shape(id).offset <= to);
        is_near && how.is_bridged(&Shape::from(io))
    }

    fn fits_below(&self, how: &How, id: ChainId) -> Option<ChainId> {
        let shape = &self.chains.get(id).shape;
        let fits = |below: &ChainId| how.rules.bridges(&self.chains.get(*below).shape, shape, how.read_gap);
        self.by_place.below(shape.offset).next().filter(fits)
    }

    fn fits_above(&self, how: &How, id: ChainId, top: u64) -> Option<ChainId> {
        let shape = &self.chains.get(id).shape;
        let fits = |above: &ChainId| how.rules.bridges(shape, &self.chains.get(*above).shape, how.read_gap);
        self.by_place.from(top + 1).filter(fits)
    }
}
