//! What a scrub asks of checksums: is each copy of a unit what they say, has every block one, and are the pages themselves whole?
//! What is not gets the scrub's second look.

use super::cache::memory;
use super::{Engine, Need, SCRUB_TAG, locate, name_of};
use crate::engine::mend::{blocks, runs};
use crate::request::{Output, PageWork};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, BufId, BufRange, ChunkId, UNIT};

/// The unit of a piece that a page is needed for, and where its copies begin in their memory.
#[derive(Clone)]
pub(in crate::engine) struct Part {
    pub(in crate::engine) piece: u32,
    pub(in crate::engine) unit: u32,
    /// The unit within its chunk.
    pub(in crate::engine) place: u32,
    pub(in crate::engine) mask: u16,
    /// First byte of the unit's copies, and which memory they are in.
    pub(in crate::engine) at: i64,
    pub(in crate::engine) copies: [Option<BufId>; 4],
}

impl Engine {
    /// All copies of a unit are in memory: they are compared with the checksums, once those are there too. The answers come to
    /// [`scrub_verified`](Engine::scrub_verified).
    pub(in crate::engine) fn scrub_sums(&mut self, chunk: ChunkId, part: Part) {
        let (index, _) = locate(self.sums.kind, u64::from(part.place) * UNIT);
        self.with_page(chunk, index, Need::Scrub(part));
    }

    /// Pages of a unit of their volume: those that are not in memory are loaded, which puts right what is wrong on a copy.
    pub(in crate::engine) fn scrub_pages(&mut self, piece: u32, unit: u64, mask: u16) -> u32 {
        let mut asked = 0;
        for block in blocks(mask) {
            let (chunk, index) = name_of(unit * BLOCKS_PER_UNIT + block);
            if self.sums.ready(chunk, index).is_none() {
                asked += 1;
                self.with_page(chunk, index, Need::Loaded(piece));
            }
        }
        asked
    }

    /// Copies of a unit of pages are not alike: what is in memory is written once more.
    pub(in crate::engine) fn rewrite_pages(&mut self, unit: u64) {
        for page in unit * BLOCKS_PER_UNIT..(unit + 1) * BLOCKS_PER_UNIT {
            let (chunk, index) = name_of(page);
            if let Some(slot) = self.sums.ready(chunk, index) {
                self.dirty_page(slot);
            }
        }
        self.write_pages();
    }

    pub(super) fn scrub_page_ready(&mut self, part: Part, slot: u32) {
        let Part { piece, unit, place, mask, at, copies } = part;
        let (kind, page) = (self.sums.kind, memory(slot, 0));
        let (_, base) = locate(kind, u64::from(place) * UNIT);
        let tag = SCRUB_TAG | u64::from(piece) << 16 | u64::from(unit);
        let mut asked = 0;
        for (first, count) in runs(mask) {
            let place = base + first as u16;
            asked += 1;
            let work = PageWork::Unsummed { tag, kind, page, first: place, count: count as u16 };
            self.outputs.push_back(Output::Page(work));
            for buf in copies.into_iter().flatten() {
                asked += 1;
                let data = part_of(buf, at, first, count);
                self.outputs.push_back(Output::Page(PageWork::Verify { tag, kind, data, page, first: place }));
            }
        }
        self.scrub_asks(piece, asked);
    }
}

fn part_of(buf: BufId, at: i64, first: u64, count: u64) -> BufRange {
    BufRange { buf, offset: (at + (first * BLOCK) as i64) as u32, len: (count * BLOCK) as u32 }
}
