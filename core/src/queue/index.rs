//! Waiting requests by where they end and where they begin: neighbours are found, not looked for.
//!
//! Linux keeps a hash of ends and a red-black tree of starts. Two ordered maps cost a few comparisons more, keep their
//! first node when they are empty, and give device order for nothing.

use alloc::collections::BTreeMap;

use super::chains::{Chain, ChainId};

/// Requests of one direction (or of one operation: whoever keeps it decides).
#[derive(Clone, Default)]
pub(super) struct Index {
    /// Position, then order of creation: several requests may begin at one place.
    starts: BTreeMap<(u64, u64), ChainId>,
    ends: BTreeMap<(u64, u64), ChainId>,
}

impl Index {
    pub(super) fn insert(&mut self, id: ChainId, chain: &Chain) {
        self.starts.insert((chain.shape.offset, chain.seq), id);
        self.ends.insert((chain.shape.end(), chain.seq), id);
    }

    /// Must be asked before the request changes.
    pub(super) fn remove(&mut self, chain: &Chain) {
        self.starts.remove(&(chain.shape.offset, chain.seq));
        self.ends.remove(&(chain.shape.end(), chain.seq));
    }

    /// The youngest request that ends at `offset`.
    pub(super) fn ending_at(&self, offset: u64) -> Option<ChainId> {
        self.ends.range((offset, 0)..=(offset, u64::MAX)).next_back().map(|(_, &id)| id)
    }

    /// The youngest request that begins at `offset`.
    pub(super) fn starting_at(&self, offset: u64) -> Option<ChainId> {
        self.starts.range((offset, 0)..=(offset, u64::MAX)).next_back().map(|(_, &id)| id)
    }

    /// The first request at or behind `offset`.
    pub(super) fn first_from(&self, offset: u64) -> Option<ChainId> {
        self.starts.range((offset, 0)..).next().map(|(_, &id)| id)
    }

    pub(super) fn clear(&mut self) {
        self.starts.clear();
        self.ends.clear();
    }
}
