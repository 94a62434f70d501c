//! Pages: the rooms of a checkpoint, in the system chunks behind the log.
//!
//! An address is `chunk id << 24 | page within the chunk`; 0 is nowhere, since chunk ids begin at 1.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::PAGE;
use super::codec::{Malformed, Reader, Writer, crc32c, crc32c_without};
use crate::chunk::Chunk;
use crate::units::{BLOCKS_PER_UNIT, ChunkId, Uuid};
use crate::volume::block_mask;

const MAGIC: u32 = u32::from_le_bytes(*b"BRpg");
const HEADER: usize = 32;
/// Bytes of content in a page.
pub(crate) const PAYLOAD: usize = PAGE as usize - HEADER;

/// Runs that a page of them holds.
pub(crate) const RUNS_PER_PAGE: usize = PAYLOAD / 12;

/// Address of a page.
pub(crate) type Page = u64;

pub(crate) fn address(chunk: ChunkId, page: u64) -> Page {
    u64::from(chunk.0) << 24 | page
}

/// Chunk and byte within it.
pub(crate) fn locate(page: Page) -> (ChunkId, u64) {
    (ChunkId((page >> 24) as u32), (page & 0xff_ffff) * PAGE)
}

/// The bytes of a page; its address is sealed in, so a page that was written to the wrong place is found.
pub(crate) fn seal(pool: Uuid, page: Page, payload: &[u8]) -> Vec<u8> {
    let mut w = Writer::with_room(PAGE as usize);
    w.u32(MAGIC).u32(0).uuid(pool).u64(page).raw(payload);
    let mut bytes = w.bytes;
    assert!(bytes.len() <= PAGE as usize);
    bytes.resize(PAGE as usize, 0);
    let crc = crc32c(&bytes);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The checksum that seals a page.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    bytes.get(4..8).and_then(|crc| crc.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The content of a page (with the zeros behind it), if this is that page of this pool.
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub(crate) fn open(bytes: &[u8], pool: Uuid, page: Page) -> Result<&[u8], Malformed> {
    let mut r = Reader::new(bytes);
    if bytes.len() != PAGE as usize || r.u32()? != MAGIC {
        return Err(Malformed);
    }
    let crc = r.u32()?;
    if crc32c_without(bytes, 4) != crc || r.uuid()? != pool || r.u64()? != page {
        return Err(Malformed);
    }
    content(bytes)
}

/// The content of a page that was opened before.
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub(crate) fn content(bytes: &[u8]) -> Result<&[u8], Malformed> {
    bytes.get(HEADER..).ok_or(Malformed)
}

/// Which pages are taken.
#[derive(Clone, Default)]
pub(crate) struct PageSpace {
    chunks: BTreeMap<ChunkId, Taken>,
    free: u64,
    total: u64,
}

#[derive(Clone)]
struct Taken {
    bits: Vec<u64>,
    /// Words below are full.
    cursor: usize,
    /// No page is taken from here any more; it counts for nothing.
    is_shut: bool,
    /// Blocks of a ring at its head, whose content the log knows.
    log_blocks: u64,
    /// Pages behind the log.
    pages: u64,
}

impl Taken {
    fn free(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_zeros())).sum()
    }
}

impl PageSpace {
    /// Adds the pages of a system chunk, without the first `log_blocks`.
    pub(crate) fn add(&mut self, chunk: &Chunk, log_blocks: u64) {
        let pages = (chunk.length / PAGE).min(1 << 24);
        let mut bits = vec![0u64; (pages as usize).div_ceil(64)];
        for page in (0..log_blocks).chain(pages..bits.len() as u64 * 64) {
            bits[page as usize / 64] |= 1 << (page % 64);
        }
        let pages = pages - log_blocks.min(pages);
        self.free += pages;
        self.total += pages;
        self.chunks.insert(chunk.id, Taken { bits, cursor: 0, is_shut: false, log_blocks, pages });
    }

    /// From now on no page is taken from this chunk.
    pub(crate) fn shut(&mut self, chunk: ChunkId) {
        let Some(taken) = self.chunks.get_mut(&chunk).filter(|t| !t.is_shut) else { return };
        taken.is_shut = true;
        self.free -= taken.free();
        self.total -= taken.pages;
    }

    /// Pages may be taken from it again.
    pub(crate) fn reopen(&mut self, chunk: ChunkId) {
        let Some(taken) = self.chunks.get_mut(&chunk).filter(|t| t.is_shut) else { return };
        taken.is_shut = false;
        self.free += taken.free();
        self.total += taken.pages;
    }

    /// A chunk that was shut goes, with whatever page was taken.
    pub(crate) fn remove(&mut self, chunk: ChunkId) {
        self.shut(chunk);
        self.chunks.remove(&chunk);
    }

    /// Pages that can be taken.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Pages there are.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Which of sixteen blocks of a chunk are pages that are taken: one bit each from block `first` on, which is a multiple
    /// of 16. Blocks of a ring are none, before it is in use, while it is and after.
    pub(crate) fn taken(&self, chunk: ChunkId, first: u64) -> u16 {
        let Some(taken) = self.chunks.get(&chunk) else { return 0 };
        let bits = taken.bits.get((first / 64) as usize).map_or(0, |word| (word >> (first % 64)) as u16);
        bits & !block_mask(0, taken.log_blocks.saturating_sub(first).min(BLOCKS_PER_UNIT))
    }

    /// Takes a page.
    pub(crate) fn take(&mut self) -> Option<Page> {
        for (&chunk, taken) in self.chunks.iter_mut().filter(|(_, taken)| !taken.is_shut) {
            let word = (taken.cursor..taken.bits.len()).find(|&i| taken.bits[i] != u64::MAX);
            taken.cursor = word.unwrap_or(taken.bits.len());
            if let Some(word) = word {
                let bit = taken.bits[word].trailing_ones();
                taken.bits[word] |= 1 << bit;
                self.free -= 1;
                return Some(address(chunk, word as u64 * 64 + u64::from(bit)));
            }
        }
        None
    }

    /// Takes so many pages in as few runs as it can easily find.
    pub(crate) fn take_many(&mut self, count: usize) -> Option<Vec<Page>> {
        let mut pages = Vec::with_capacity(count);
        let mut run = count;
        while pages.len() < count {
            match self.take_run(run.min(count - pages.len()) as u64) {
                Some(first) => pages.extend((first..).take(run.min(count - pages.len()))),
                None if run > 1 => run = run.div_ceil(2),
                None => {
                    pages.into_iter().for_each(|page| self.give_back(page));
                    return None;
                }
            }
        }
        Some(pages)
    }

    /// Takes the first run of so many free pages.
    fn take_run(&mut self, count: u64) -> Option<Page> {
        let free = |taken: &Taken, page: u64| taken.bits[(page / 64) as usize] >> (page % 64) & 1 == 0;
        let found = self.chunks.iter().filter(|(_, taken)| !taken.is_shut).find_map(|(&chunk, taken)| {
            let mut run = 0;
            let mut page = taken.cursor as u64 * 64;
            while page < taken.bits.len() as u64 * 64 {
                if taken.bits[(page / 64) as usize] == u64::MAX {
                    (run, page) = (0, (page / 64 + 1) * 64);
                    continue;
                }
                run = if free(taken, page) { run + 1 } else { 0 };
                page += 1;
                if run == count {
                    return Some(address(chunk, page - count));
                }
            }
            None
        })?;
        (found..).take(count as usize).for_each(|page| assert!(self.take_at(page)));
        Some(found)
    }

    /// Takes this very page; false when there is none or it is taken.
    pub(crate) fn take_at(&mut self, page: Page) -> bool {
        let (chunk, byte) = locate(page);
        let (word, bit) = ((byte / PAGE / 64) as usize, byte / PAGE % 64);
        let Some(bits) = self.chunks.get_mut(&chunk).and_then(|t| t.bits.get_mut(word)) else { return false };
        let was_free = *bits >> bit & 1 == 0;
        *bits |= 1 << bit;
        self.free -= u64::from(was_free);
        was_free
    }

    /// Gives a page back.
    pub(crate) fn give_back(&mut self, page: Page) {
        let (chunk, byte) = locate(page);
        let (word, bit) = ((byte / PAGE / 64) as usize, byte / PAGE % 64);
        // Its chunk may be gone.
        let Some(taken) = self.chunks.get_mut(&chunk) else { return };
        assert!(taken.bits[word] >> bit & 1 == 1, "page {page:x} is free");
        taken.bits[word] &= !(1 << bit);
        taken.cursor = taken.cursor.min(word);
        self.free += u64::from(!taken.is_shut);
    }
}

/// Joins addresses that follow each other: how a superblock lists the root.
pub(crate) fn runs(pages: &[Page]) -> Vec<(Page, u32)> {
    let mut runs: Vec<(Page, u32)> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some((first, count)) if *first + u64::from(*count) == page => *count += 1,
            _ => runs.push((page, 1)),
        }
    }
    runs
}

/// The content of a page of runs; no run has no page, so zeros end it.
pub(crate) fn encode_runs(runs: &[(Page, u32)]) -> Vec<u8> {
    let mut w = Writer::default();
    for &(first, count) in runs {
        w.u64(first).u32(count);
    }
    w.bytes
}

/// The runs of such a page.
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub(crate) fn decode_runs(payload: &[u8]) -> Result<Vec<(Page, u32)>, Malformed> {
    let mut r = Reader::new(payload);
    let mut runs = Vec::new();
    for _ in 0..RUNS_PER_PAGE {
        match (r.u64()?, r.u32()?) {
            (_, 0) => break,
            run => runs.push(run),
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChunkType;
    use crate::profile::Profile;

    fn system(id: u32, pages: u64) -> Chunk {
        let len = pages * PAGE;
        Chunk::new(ChunkId(id), ChunkType::System, Profile::Single, len, len, Vec::new(), false)
    }

    #[test]
    fn every_page_behind_the_log_is_taken_once() {
        let mut space = PageSpace::default();
        space.add(&system(1, 160), 48);
        space.add(&system(4, 32), 0);
        assert_eq!(space.free(), 144);
        let mut pages = Vec::new();
        while let Some(page) = space.take() {
            pages.push(page);
        }
        assert_eq!((pages.len(), space.free()), (144, 0));
        assert_eq!(runs(&pages), [(address(ChunkId(1), 48), 112), (address(ChunkId(4), 0), 32)]);
        space.give_back(pages[3]);
        assert!(space.take_at(pages[3]) && !space.take_at(pages[3]) && !space.take_at(address(ChunkId(9), 0)));
    }

    #[test]
    fn blocks_of_a_ring_are_no_pages() {
        let mut space = PageSpace::default();
        space.add(&system(1, 32), 20);
        space.add(&system(4, 32), 20);
        assert!(space.take_at(address(ChunkId(4), 21)));
        for (chunk, behind) in [(1, 0), (4, 0b10_0000)] {
            assert_eq!([0, 16, 64].map(|first| space.taken(ChunkId(chunk), first)), [0, behind, 0]);
        }
        assert_eq!(space.taken(ChunkId(9), 0), 0);
    }

    #[test]
    fn a_page_in_the_wrong_place_or_with_a_flipped_bit_is_none() {
        let pool = Uuid([5; 16]);
        let good = seal(pool, 77, b"leaf");
        assert!(open(&good, pool, 77).is_ok_and(|p| p.starts_with(b"leaf")));
        assert!(open(&good, pool, 78).is_err() && open(&good, Uuid([6; 16]), 77).is_err());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&bad, pool, 77).is_err(), "bit {bit}");
        }
    }
}
