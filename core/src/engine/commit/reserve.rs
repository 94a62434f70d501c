//! The reserve of pages: a pool can always write down all of its maps once more.

use crate::ChunkType;
use crate::engine::Engine;
use crate::meta::image;
use crate::meta::journal::Lsn;
use crate::meta::superblock::SYSTEM_CHUNKS_MAX;
use crate::volume::LEAF_SPAN;

/// Leaves that pages are made for ahead of time, at least.
const LEAVES_AHEAD: u64 = 64;

/// The moment of a refusal: room that comes free is logged, or was given up by a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    appended: Lsn,
    checkpoints: u64,
    is_checkpointing: bool,
}

impl Engine {
    /// Whether one more leaf, or volume, keeps the reserve whole.
    pub(in crate::engine) fn has_page_room(&mut self) -> bool {
        if self.commit.leaf_budget == 0 && self.commit.refused != Some(self.this_moment()) {
            self.make_page_room(0);
            // To count takes a walk over all volumes and chunks: too much for each write that a full pool refuses.
            self.commit.refused = (self.commit.leaf_budget == 0).then(|| self.this_moment());
        }
        self.commit.leaf_budget > 0
    }

    fn this_moment(&self) -> Refusal {
        let (appended, checkpoints) = (self.journal.appended(), self.counters.checkpoints);
        Refusal { appended, checkpoints, is_checkpointing: self.commit.is_checkpointing() }
    }

    pub(in crate::engine) fn take_page_room(&mut self, leaves: u64) {
        self.commit.leaf_budget = self.commit.leaf_budget.saturating_sub(leaves);
    }

    /// Keeps the reserve: a pool that cannot write down its maps is lost, so there are always pages to write *all* of
    /// it once more, every leaf in a page of its own, beside what the last checkpoint wrote.
    ///
    /// ```text
    ///   pages in all >= 2 * image      pages free (after the checkpoint under way) >= image      image = leaves + root
    /// ```
    ///
    /// The first holds after every checkpoint, the second at its beginning; so nothing but a new leaf has to be refused,
    /// and flushes, rewrites, discards and the end of a volume work on a pool that is full to the last unit. System
    /// chunks are made before space for content: for every leaf that the chunks there are (and `more` bytes of one
    /// to come) would fill densely, and for a quarter more leaves than there are.
    pub(in crate::engine) fn make_page_room(&mut self, more: u64) {
        self.commit.refused = None;
        self.commit.reserve_counts += 1;
        let leaves: u64 = self.pool.volumes().map(|v| v.map.leaves()).sum();
        let dense = (self.pool.totals().content + more).div_ceil(LEAF_SPAN);
        let wanted = dense.max(leaves + leaves / 4 + LEAVES_AHEAD);
        while self.commit.pages.total() < 2 * image::pages_for(&self.pool, wanted)
            && self.pool.totals().system_chunks < SYSTEM_CHUNKS_MAX as u64
        {
            let whole = self.open_chunk(ChunkType::System);
            let Some(id) = whole.or_else(|| self.open_degraded_chunk(ChunkType::System)) else { break };
            self.commit.pages.add(self.pool.chunk(id).expect("just made"), 0);
        }
        let room = |pages| image::leaves_in(&self.pool, pages).saturating_sub(leaves);
        let (in_all, to_come) = (room(self.commit.pages.total() / 2), room(self.commit.pages_to_come()));
        self.commit.leaf_budget = in_all.min(to_come);
        // Pages of volumes that went come free with the next checkpoint.
        self.commit.starved |= in_all > 0 && to_come == 0 && !self.commit.stuck;
    }
}
