//! Sums of what was written: put in when the data is on its copies, before the map and the log follow.

use super::{Engine, Need, Put, locate};
use crate::chunk::Chunk;
use crate::engine::data::{edges, envelope, interior};
use crate::engine::rows::Writer;
use crate::engine::{Active, Phase};
use crate::request::{Op, Output, PageWork};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, BufRange, ChunkId, UNIT, VolumeId, round_down};

impl Engine {
    /// The pages of a range that is being written are loaded meanwhile.
    pub(in crate::engine) fn fetch_pages(&mut self, volume: VolumeId, start: u64, end: u64) {
        if !self.is_summed(volume) {
            return;
        }
        for unit in start / UNIT..end.div_ceil(UNIT) {
            let entry = self.entry(volume, unit);
            if entry.is_mapped() {
                let (index, _) = locate(self.sums.kind, u64::from(entry.unit()) * UNIT);
                self.fetch_page(entry.chunk(), index);
            }
        }
    }

    /// All copies of a change are back: their sums come next, then [`data_done`](Engine::data_done).
    pub(in crate::engine) fn sum_change(&mut self, id: u32) {
        let Active { request, scratch, .. } = &self.requests[id];
        let (request, scratch) = (*request, *scratch);
        let volume = request.volume;
        let active = &mut self.requests[id];
        // One more than there are, until all were asked for.
        (active.phase, active.pending) = (Phase::Sums, 1);
        match request.op {
            Op::Write { .. } => {
                let (start, end) = envelope(&request);
                let data = BufRange { buf: request.buf, offset: 0, len: (end - start) as u32 };
                self.sum_range(id, volume, (start, end), Some(data));
            }
            Op::WriteZeroes { no_hole, .. } => {
                for (block, scratch) in edges(&request).into_iter().zip(scratch) {
                    let (Some(block), Some(buf)) = (block, scratch) else { continue };
                    let data = BufRange { buf, offset: 0, len: BLOCK as u32 };
                    self.sum_range(id, volume, (block, block + BLOCK), Some(data));
                }
                if no_hole {
                    self.sum_range(id, volume, interior(&request), None);
                }
            }
            Op::Read | Op::Flush | Op::Discard => {}
        }
        self.count_down(id);
    }

    /// Puts in the sums of a range of a volume that was written from `data`, or with zeros.
    fn sum_range(&mut self, id: u32, volume: VolumeId, (start, end): (u64, u64), data: Option<BufRange>) {
        let mut at = start;
        while at < end {
            let next = (round_down(at, UNIT) + UNIT).min(end);
            let entry = self.entry(volume, at / UNIT);
            let what = match data {
                Some(data) => {
                    Put::Data(BufRange { offset: data.offset + (at - start) as u32, len: (next - at) as u32, ..data })
                }
                None => Put::Zeros(((next - at) / BLOCK) as u16),
            };
            // The volume may have been destroyed meanwhile.
            if entry.is_mapped() {
                let (index, first) = locate(self.sums.kind, u64::from(entry.unit()) * UNIT + at % UNIT);
                self.requests[id].pending += 1;
                self.with_page(entry.chunk(), index, Need::Put { request: id, what, first });
            }
            at = next;
        }
    }

    /// The page is in memory.
    pub(in crate::engine) fn put_sums(&mut self, what: Put, slot: u32, first: u16) {
        let count = match what {
            Put::Data(data) => (u64::from(data.len) / BLOCK) as u16,
            Put::Zeros(count) | Put::Nothing(count) => count,
        };
        self.init_sums(slot, first, count);
        let (kind, page) = (self.sums.kind, super::cache::memory(slot, 0));
        self.outputs.push_back(Output::Page(match what {
            Put::Data(data) => PageWork::Sum { kind, data, page, first },
            Put::Zeros(count) => PageWork::SumZeros { kind, page, first, count },
            Put::Nothing(count) => PageWork::Clear { kind, page, first, count },
        }));
        self.dirty_page(slot);
    }

    /// A unit of a volume gets this place. In a row its sums are those of what was there before, or of what a crash left.
    pub(in crate::engine) fn place_taken(&mut self, volume: VolumeId, chunk: ChunkId, place: u32) {
        if !self.is_summed(volume) {
            return self.place_unsummed(chunk, place);
        }
        let Some(c) = self.pool.chunk(chunk) else { return };
        let Some((row, _)) = c.row_of(place) else { return };
        self.sums.uninitialized.insert((chunk, place), if c.is_live(row) { Put::Nothing } else { Put::Zeros });
    }

    /// What is written there from now on gets no sums.
    pub(in crate::engine) fn place_unsummed(&mut self, chunk: ChunkId, place: u32) {
        if let Some(c) = self.pool.chunk_mut(chunk).filter(|_| self.sums.is_on()) {
            c.set_unsummed(place);
        }
    }

    /// Whether the sums of a place in a row are of what is there. Of others they may be: nobody wrote there since, or somebody who
    /// has none.
    pub(in crate::engine) fn has_own_sums(&self, chunk: ChunkId, place: u32) -> bool {
        self.has_sums_in_row(chunk, place) && !self.sums.is_lagging(chunk, place)
    }

    /// Whether there are sums of a place in a row, of what is there or of what was there just now.
    pub(in crate::engine) fn has_sums_in_row(&self, chunk: ChunkId, place: u32) -> bool {
        let is_summed = |c: &Chunk| c.is_taken(place) && !c.is_unsummed(place);
        self.sums.is_on()
            && self.pool.chunk(chunk).is_some_and(is_summed)
            && !self.sums.uninitialized.contains_key(&(chunk, place))
    }

    /// Of which place a sum is.
    fn place_of_sum(&self, slot: u32, first: u16) -> (ChunkId, u32) {
        let (chunk, index) = self.sums.page(slot);
        (chunk, index * self.sums.kind.units_per_page() + u32::from(first) / BLOCKS_PER_UNIT as u32)
    }

    /// A request is answered, and its sums are in; or nobody knows what it wrote.
    pub(in crate::engine) fn sums_followed(&mut self, id: u32, Active { request, error, .. }: &Active) {
        if self.sums.lagging.is_empty() {
            return;
        }
        let (start, end) = envelope(request);
        for unit in start / UNIT..end.div_ceil(UNIT) {
            let entry = self.entry(request.volume, unit);
            self.sums.lags_no_more(entry.chunk(), entry.unit(), Writer::Request(id));
        }
        if error.is_some() || self.pool.volume(request.volume).is_none() {
            // Its places may be nobody's by now.
            self.sums.lagging.retain(|(.., of)| *of != Writer::Request(id));
        }
    }

    /// Before the first sums are put into a place, so many of them, all of it gets some.
    pub(super) fn init_sums(&mut self, slot: u32, first: u16, count: u16) {
        if self.sums.uninitialized.is_empty() {
            return;
        }
        let units = first / BLOCKS_PER_UNIT as u16;
        let (chunk, place) = self.place_of_sum(slot, first);
        let with = self.sums.uninitialized.remove(&(chunk, place));
        if let Some(with) = with.filter(|_| count < BLOCKS_PER_UNIT as u16) {
            self.put_sums(with(BLOCKS_PER_UNIT as u16), slot, units * BLOCKS_PER_UNIT as u16);
        }
    }
}
