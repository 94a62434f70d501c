//! Checksums of content: which there are, and the pages they are kept in.
//!
//! ```text
//!   page, 4 KiB      eight sectors of 512 bytes, each for itself: a torn page has old sectors and new ones, and both are whole
//!
//!   sector    0  crc32c of bytes 4..512
//!             4  chunk                      8  first unit of the sector
//!            12  kind: 1 crc32c, 2 xxh3    13  zeros
//!            16  generation: raised whenever the page is written; of two copies the higher one counts
//!            24  pool
//!            40  zeros
//!            64  sums by unit and block: crc32c 7 units of 16 x 4 bytes, xxh3 3 units of 16 x 8 bytes
//! ```
//!
//! A sum of 0 means that there is none; a block whose sum is 0 by nature has 1. So one wrong block in 2^31 passes for right
//! with crc32c where others do in 2^32.
//!
//! The engine decides what is summed, verified and written, and never sees a byte of it; whoever has the bytes uses the
//! functions here. They take the crc32c to use, which hosts have faster than [`crc32c`](crate::meta::codec::crc32c).

use crate::units::{BLOCK, BLOCKS_PER_UNIT, ChunkId, UNIT, Uuid};

/// Bytes of a sector.
pub const SECTOR: usize = 512;
/// Sectors of a page.
pub const SECTORS: u32 = (BLOCK as usize / SECTOR) as u32;
const SUMS_AT: usize = 64;

/// What content is summed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Checksum {
    /// Not at all.
    #[default]
    None,
    /// CRC-32C (Castagnoli), 4 bytes a block.
    Crc32c,
    /// XXH3-64, 8 bytes a block.
    Xxh3,
}

impl Checksum {
    /// All, in the order of the documentation.
    pub const ALL: [Checksum; 3] = [Checksum::None, Checksum::Crc32c, Checksum::Xxh3];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Checksum::None => "none",
            Checksum::Crc32c => "crc32c",
            Checksum::Xxh3 => "xxh3",
        }
    }

    /// Back from the word.
    pub fn parse(word: &str) -> Option<Checksum> {
        Checksum::ALL.into_iter().find(|kind| kind.name() == word)
    }

    /// Whether there is one.
    pub fn is_on(self) -> bool {
        self != Checksum::None
    }

    /// Quotient and remainder by units of a page, without a division: each kind has a number of its own, known beforehand.
    pub(crate) fn page_of(self, unit: u32) -> (u32, u32) {
        const CRC32C: u32 = Checksum::Crc32c.units_per_page();
        const XXH3: u32 = Checksum::Xxh3.units_per_page();
        match self {
            Checksum::Xxh3 => (unit / XXH3, unit % XXH3),
            Checksum::Crc32c | Checksum::None => (unit / CRC32C, unit % CRC32C),
        }
    }

    /// Bytes of one sum.
    const fn width(self) -> usize {
        match self {
            Checksum::Xxh3 => 8,
            _ => 4,
        }
    }

    /// Units of a chunk that a sector has the sums of.
    pub const fn units_per_sector(self) -> u32 {
        ((SECTOR - SUMS_AT) / (self.width() * BLOCKS_PER_UNIT as usize)) as u32
    }

    /// Units of a chunk that a page has the sums of.
    pub const fn units_per_page(self) -> u32 {
        self.units_per_sector() * SECTORS
    }

    /// Pages for a chunk of so many bytes.
    pub const fn pages_for(self, length: u64) -> u32 {
        match self {
            Checksum::None => 0,
            _ => (length / UNIT).div_ceil(self.units_per_page() as u64) as u32,
        }
    }
}

const _: () = assert!(Checksum::Crc32c.units_per_page() == 56 && Checksum::Xxh3.units_per_page() == 24);

/// Which page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageName {
    /// The pool.
    pub pool: Uuid,
    /// What its sums are.
    pub kind: Checksum,
    /// The chunk.
    pub chunk: ChunkId,
    /// Which page of the chunk.
    pub index: u32,
}

impl PageName {
    fn first_unit(&self, sector: u32) -> u32 {
        (self.index * SECTORS + sector) * self.kind.units_per_sector()
    }
}

/// A page's bytes.
pub type Page = [u8; BLOCK as usize];

/// A sum as it is kept: never 0.
pub fn kept(kind: Checksum, sum: u64) -> u64 {
    let sum = if kind == Checksum::Crc32c { sum & 0xffff_ffff } else { sum };
    sum.max(1)
}

/// At which byte of a page the sum of a block is: `slot` counts the blocks of the page's units.
fn place(kind: Checksum, slot: u32) -> usize {
    const CRC32C: u32 = Checksum::Crc32c.units_per_sector() * BLOCKS_PER_UNIT as u32;
    const XXH3: u32 = Checksum::Xxh3.units_per_sector() * BLOCKS_PER_UNIT as u32;
    // As with `page_of`: this is looked up for every block that is read.
    let (sector, within) = match kind {
        Checksum::Xxh3 => (slot / XXH3, slot % XXH3),
        Checksum::Crc32c | Checksum::None => (slot / CRC32C, slot % CRC32C),
    };
    sector as usize * SECTOR + SUMS_AT + within as usize * kind.width()
}

/// The sum of a block; 0 = none.
pub fn get(page: &Page, kind: Checksum, slot: u32) -> u64 {
    let sum = &page[place(kind, slot)..];
    // Of a width that is known beforehand: it is looked up for every block that is read.
    match kind {
        Checksum::Xxh3 => sum.first_chunk().map_or(0, |sum| u64::from_le_bytes(*sum)),
        Checksum::Crc32c | Checksum::None => sum.first_chunk().map_or(0, |sum| u32::from_le_bytes(*sum).into()),
    }
}

/// Puts in the sum of a block, as it is kept; 0 = none.
pub fn set(page: &mut Page, kind: Checksum, slot: u32, sum: u64) {
    let at = place(kind, slot);
    page[at..at + kind.width()].copy_from_slice(&sum.to_le_bytes()[..kind.width()]);
}

/// Which of so many blocks, sixteen at most, have no sum: one bit each.
pub fn unsummed(page: &Page, kind: Checksum, first: u16, count: u16) -> u16 {
    (0..count).fold(0, |none, i| none | u16::from(get(page, kind, u32::from(first + i)) == 0) << i)
}

fn u32_at(sector: &[u8], at: usize) -> u32 {
    sector.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn generation(sector: &[u8]) -> u64 {
    sector.get(16..24).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Makes a page ready to be written: every sector says who it is, with the next generation.
pub fn seal(page: &mut Page, name: &PageName, crc: impl Fn(&[u8]) -> u32) {
    let next = page.chunks_exact(SECTOR).map(generation).max().unwrap_or(0).saturating_add(1);
    for (i, sector) in page.chunks_exact_mut(SECTOR).enumerate() {
        sector[..SUMS_AT].fill(0);
        sector[4..8].copy_from_slice(&name.chunk.0.to_le_bytes());
        sector[8..12].copy_from_slice(&name.first_unit(i as u32).to_le_bytes());
        sector[12] = name.kind as u8;
        sector[16..24].copy_from_slice(&next.to_le_bytes());
        sector[24..40].copy_from_slice(&name.pool.0);
        let sum = crc(&sector[4..]);
        sector[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Whether a sector is what it should be, whole.
fn is_whole(sector: &[u8], i: u32, name: &PageName, crc: &impl Fn(&[u8]) -> u32) -> bool {
    u32_at(sector, 0) == crc(&sector[4..])
        && u32_at(sector, 4) == name.chunk.0
        && u32_at(sector, 8) == name.first_unit(i)
        && sector[12] == name.kind as u8
        && sector[24..40] == name.pool.0
}

/// Looks at a page that was read, and takes what is better in another copy of it: sectors that are not whole here, or of a
/// later generation there. Bits 0 to 7 of the answer: sectors that are whole in neither copy; bits 8 to 15: sectors in which
/// the copies are not alike, or one is not whole.
pub fn merge(page: &mut Page, other: Option<&Page>, name: &PageName, crc: impl Fn(&[u8]) -> u32) -> u16 {
    let mut answer = 0;
    for i in 0..SECTORS {
        let range = i as usize * SECTOR..(i as usize + 1) * SECTOR;
        let whole = is_whole(&page[range.clone()], i, name, &crc);
        let there = other.map(|other| &other[range.clone()]);
        let other = there.filter(|sector| is_whole(sector, i, name, &crc));
        let here = generation(&page[range.clone()]);
        match other {
            Some(sector) if !whole || generation(sector) > here => {
                page[range].copy_from_slice(sector);
                answer |= 1 << (8 + i);
            }
            Some(sector) if generation(sector) < here => answer |= 1 << (8 + i),
            Some(_) => {}
            None if whole => answer |= u16::from(there.is_some()) << (8 + i),
            None => answer |= 0x101 << i,
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::codec::crc32c;

    const NAME: PageName = PageName { pool: Uuid([7; 16]), kind: Checksum::Crc32c, chunk: ChunkId(3), index: 2 };

    fn page(name: &PageName, generation: u64) -> Page {
        let mut page = [0; BLOCK as usize];
        for slot in 0..name.kind.units_per_page() * 16 {
            set(&mut page, name.kind, slot, u64::from(slot) + 1);
        }
        (0..generation).for_each(|_| seal(&mut page, name, crc32c));
        page
    }

    #[test]
    fn sums_stay_where_they_were_put() {
        for kind in [Checksum::Crc32c, Checksum::Xxh3] {
            let page = page(&PageName { kind, ..NAME }, 2);
            for slot in 0..kind.units_per_page() * 16 {
                assert_eq!(get(&page, kind, slot), u64::from(slot) + 1, "{kind:?}");
            }
        }
    }

    /// Every bit counts, and so does the name.
    #[test]
    fn a_sector_is_whole_or_it_is_not() {
        let good = page(&NAME, 1);
        assert_eq!(merge(&mut good.clone(), None, &NAME, crc32c), 0);
        for bit in (0..BLOCK as usize * 8).step_by(37) {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(merge(&mut bad, None, &NAME, crc32c), 0x101 << (bit / 8 / SECTOR), "bit {bit}");
        }
        for other in [
            PageName { pool: Uuid([8; 16]), ..NAME },
            PageName { kind: Checksum::Xxh3, ..NAME },
            PageName { chunk: ChunkId(4), ..NAME },
            PageName { index: 1, ..NAME },
        ] {
            assert_eq!(merge(&mut good.clone(), None, &other, crc32c), 0xffff, "{other:?}");
        }
        assert_eq!(merge(&mut [0; BLOCK as usize], None, &NAME, crc32c), 0xffff);
    }

    #[test]
    fn the_later_and_the_whole_sector_counts() {
        let (old, new) = (page(&NAME, 1), page(&NAME, 2));
        let torn = |a: &Page, b: &Page| {
            let mut both = *a;
            both[..3 * SECTOR].copy_from_slice(&b[..3 * SECTOR]);
            both
        };
        // here | there | answer | what it is afterwards
        for (here, there, answer, after) in [
            (old, new, 0xff00, new),
            (new, old, 0xff00, new),
            (new, new, 0, new),
            (torn(&new, &old), new, 0x0700, new),
            (torn(&new, &[0; BLOCK as usize]), old, 0xff00, torn(&new, &old)),
            (
                torn(&new, &[0; BLOCK as usize]),
                torn(&old, &[0; BLOCK as usize]),
                0xff07,
                torn(&new, &[0; BLOCK as usize]),
            ),
        ] {
            let mut page = here;
            assert_eq!(merge(&mut page, Some(&there), &NAME, crc32c), answer);
            assert!(page == after);
        }
    }
}
