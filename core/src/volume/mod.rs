//! A volume and its map: which unit of which chunk holds each 64 KiB, and which blocks of it were ever written.
//!
//! ```text
//!   volume offset   | directory (8 GiB) | leaf (16 MiB) | entry (64 KiB) | block (4 KiB) |
//!
//!   entry, 64 bits  | chunk 30 | unit 18 | written blocks 16 |
//! ```
//!
//! An entry with a place but no written block is a *reservation*: a first write is on its way there. A block is a
//! hole until its bit is set, and the bit is set only after the data arrived; so a reader never sees what an earlier
//! owner of the space left behind. A block that no copy had any more when its member left is known as *lost*: not written,
//! and not a hole either, until it is written or discarded.

mod leaf;
mod leaves;
mod map;

use alloc::string::String;

use crate::chunk::REGION;
use crate::control::VolumeClass;
use crate::report::VolumeCounters;
use crate::units::{BLOCK, BLOCKS_PER_UNIT, ChunkId, UNIT, VolumeId};

pub(crate) use leaf::Shape;
pub use map::{Extent, Map};

/// Entries of a leaf.
pub const LEAF: usize = REGION as usize;
/// Bytes of a volume that one leaf maps.
pub const LEAF_SPAN: u64 = LEAF as u64 * UNIT;

/// Largest volume: 8 EiB would overflow no arithmetic, but nothing above 16 PiB was ever tried.
pub const VOLUME_MAX: u64 = 1 << 54;
/// Smallest volume.
pub const VOLUME_MIN: u64 = BLOCK;
/// Most volumes of a pool.
pub const VOLUMES_MAX: usize = 65_536;

/// The volume that holds the pages of checksums, in a pool that has them; clients' have higher ids.
pub const INTERNAL: VolumeId = VolumeId(0);
/// What it is called where names are told.
pub const INTERNAL_NAME: &str = "checksums";

/// Where one unit of a volume is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry(u64);

/// All blocks of a unit.
pub const ALL_BLOCKS: u16 = u16::MAX;

impl Entry {
    /// Nothing is mapped.
    pub const NONE: Entry = Entry(0);

    /// A place with these blocks written.
    pub fn new(chunk: ChunkId, unit: u32, written: u16) -> Entry {
        debug_assert!(chunk.0 != 0 && chunk.0 < 1 << 30 && unit < 1 << 18);
        Entry(u64::from(chunk.0) << 34 | u64::from(unit) << 16 | u64::from(written))
    }
    /// From disk; any value is an entry, its place must be checked by the caller.
    pub fn from_bits(bits: u64) -> Entry {
        Entry(bits)
    }
    /// For disk.
    pub fn bits(self) -> u64 {
        self.0
    }
    /// Whether it has a place.
    pub fn is_mapped(self) -> bool {
        self.0 != 0
    }
    /// The chunk.
    pub fn chunk(self) -> ChunkId {
        ChunkId((self.0 >> 34) as u32)
    }
    /// The unit within the chunk.
    pub fn unit(self) -> u32 {
        (self.0 >> 16) as u32 & 0x3ffff
    }
    /// One bit a block.
    pub fn written(self) -> u16 {
        self.0 as u16
    }
    /// The same place with these blocks written.
    pub fn with_written(self, written: u16) -> Entry {
        Entry(self.0 & !0xffff | u64::from(written))
    }
}

impl core::fmt::Debug for Entry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.is_mapped() {
            write!(f, "chunk {} unit {} written {:04x}", self.chunk(), self.unit(), self.written())
        } else {
            f.write_str("none")
        }
    }
}

/// Bits of the blocks `first..last` of a unit.
pub fn block_mask(first: u64, last: u64) -> u16 {
    debug_assert!(first <= last && last <= BLOCKS_PER_UNIT);
    (((1u32 << last) - 1) & !((1u32 << first) - 1)) as u16
}

/// One volume.
#[derive(Clone)]
pub struct Volume {
    /// Id within the pool, never reused.
    pub id: VolumeId,
    /// Name within the pool.
    pub name: String,
    /// Bytes, a multiple of `BLOCK`.
    pub size: u64,
    /// What its writes count as.
    pub class: VolumeClass,
    /// What is written gets checksums, in a pool that has them.
    pub checksum: bool,
    /// Where everything is.
    pub map: Map,
    /// Units mapped by type of chunk: data, metadata.
    pub mapped_units: [u64; 2],
    /// What clients asked of it, since open.
    pub counters: VolumeCounters,
}

impl Volume {
    /// It is the pool's own and no client's.
    pub fn is_internal(&self) -> bool {
        self.id == INTERNAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_masks() {
        let rows = [(0, 16, 0xffff), (0, 1, 1), (15, 16, 0x8000), (4, 8, 0xf0), (3, 3, 0)];
        for (first, last, mask) in rows {
            assert_eq!(block_mask(first, last), mask, "{first}..{last}");
        }
    }
}
