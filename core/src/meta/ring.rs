//! Groups of the stripe journal: what is about to be written over in rows of parity, in full, before it goes in place.
//!
//! ```text
//!   ring     blocks of the first units of the volume of the pool's own, mirrored like metadata
//!   group    | head, one block | blocks of entry 0 | blocks of entry 1 | ...        one forced write
//!   entry    row of a chunk; by member the lanes that change, lowest first; crc32c of these blocks
//!            without a member: what is said of the row before this is void
//! ```
//!
//! Groups follow each other by number; one that finds no room at the end of the ring begins at its front. A group counts
//! when it is of the epoch of the superblock and all its checksums are right.

use alloc::vec::Vec;

use super::codec::{Malformed, Reader, Writer, crc32c_of, crc32c_without};
use crate::profile::parity::Lanes;
use crate::units::{BLOCK, ChunkId, Uuid};

const MAGIC: u32 = 0x6752_7262;
const CRC_AT: usize = 4;

/// Most units of the ring: 16 MiB.
pub(crate) const UNITS_MAX: u64 = 256;

/// Entries of a head take no more bytes than this.
pub(crate) const ENTRIES_MAX: usize = BLOCK as usize - 44;

/// What a head says of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) chunk: ChunkId,
    pub(crate) row: u32,
    /// Member and its lanes.
    pub(crate) members: Vec<(u8, Lanes)>,
    /// Of its blocks.
    pub(crate) crc: u32,
}

impl Entry {
    /// Bytes in a head.
    pub(crate) fn len(members: usize) -> usize {
        13 + 3 * members
    }

    /// Blocks behind the head.
    pub(crate) fn blocks(&self) -> u64 {
        self.members.iter().map(|(_, lanes)| u64::from(lanes.count_ones())).sum()
    }
}

/// The first block of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) pool: Uuid,
    pub(crate) epoch: u32,
    pub(crate) seq: u64,
    pub(crate) entries: Vec<Entry>,
}

impl Head {
    /// Blocks of the group, with the head.
    pub(crate) fn blocks(&self) -> u64 {
        1 + self.entries.iter().map(Entry::blocks).sum::<u64>()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer { bytes: Vec::with_capacity(BLOCK as usize) };
        w.u32(MAGIC).u32(0).uuid(self.pool).u32(self.epoch).u64(self.seq).u16(self.entries.len() as u16);
        for entry in &self.entries {
            w.u32(entry.chunk.0).u32(entry.row).u32(entry.crc).u8(entry.members.len() as u8);
            for &(member, lanes) in &entry.members {
                w.u8(member).u16(lanes);
            }
        }
        let mut bytes = w.bytes;
        assert!(bytes.len() <= BLOCK as usize, "a head has no more entries than fit");
        bytes.resize(BLOCK as usize, 0);
        let crc = crc32c_without(&bytes, CRC_AT);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What a block says, if it is a head.
    #[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    pub(crate) fn decode(block: &[u8]) -> Result<Head, Malformed> {
        let mut r = Reader::new(block);
        if r.u32()? != MAGIC || block.len() as u64 != BLOCK || r.u32()? != crc32c_without(block, CRC_AT) {
            return Err(Malformed);
        }
        let (pool, epoch, seq, count) = (r.uuid()?, r.u32()?, r.u64()?, r.u16()?);
        let mut entries = Vec::new();
        for _ in 0..count {
            let (chunk, row, crc) = (ChunkId(r.u32()?), r.u32()?, r.u32()?);
            let mut members = Vec::new();
            for _ in 0..r.u8()? {
                members.push((r.u8()?, r.u16()?));
            }
            entries.push(Entry { chunk, row, members, crc });
        }
        Ok(Head { pool, epoch, seq, entries })
    }
}

/// A block that a group has for a member of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Again<'a> {
    pub(crate) chunk: ChunkId,
    pub(crate) row: u32,
    pub(crate) member: u8,
    pub(crate) lane: u8,
    pub(crate) bytes: &'a [u8],
}

/// A block of the ring.
pub(crate) type RingBlock = [u8; BLOCK as usize];

/// The group that begins with this block, if all of it is there and right; `blocks` are those from the head on.
pub(crate) fn open<'a>(blocks: &[&'a RingBlock], pool: Uuid, epoch: u32) -> Option<(Head, Vec<Again<'a>>)> {
    let (&first, mut rest) = blocks.split_first()?;
    let head = Head::decode(first).ok().filter(|head| head.pool == pool && head.epoch == epoch)?;
    let mut again = Vec::new();
    for entry in &head.entries {
        let (ours, behind) = rest.split_at_checked(entry.blocks() as usize)?;
        if crc32c_of(ours.iter().map(|block| block.as_slice())) != entry.crc {
            return None;
        }
        let lanes = entry.members.iter().flat_map(|&(member, lanes)| {
            (0..16u8).filter(move |lane| lanes >> lane & 1 == 1).map(move |lane| (member, lane))
        });
        for ((member, lane), &bytes) in lanes.zip(ours) {
            again.push(Again { chunk: entry.chunk, row: entry.row, member, lane, bytes });
        }
        rest = behind;
    }
    Some((head, again))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::codec::crc32c;
    use std::vec;

    fn blocks(bytes: &[u8]) -> Vec<&RingBlock> {
        bytes.as_chunks().0.iter().collect()
    }

    fn group() -> (Head, Vec<u8>) {
        let payload: Vec<u8> = (0..5 * BLOCK).map(|i| (i / 7 % 251) as u8).collect();
        let (first, second) = payload.split_at(3 * BLOCK as usize);
        let entries = vec![
            Entry { chunk: ChunkId(7), row: 9, members: vec![(0, 0b11), (4, 0b1)], crc: crc32c(first) },
            Entry { chunk: ChunkId(8), row: 0, members: vec![(2, 0x8001)], crc: crc32c(second) },
        ];
        let head = Head { pool: Uuid([3; 16]), epoch: 5, seq: 77, entries };
        let mut bytes = head.encode();
        bytes.extend(payload);
        (head, bytes)
    }

    #[test]
    fn a_group_is_read_back_block_by_block() {
        let (head, bytes) = group();
        let (found, again) = open(&blocks(&bytes), head.pool, 5).expect("it is whole");
        assert_eq!((found.blocks(), &found), (6, &head));
        let places: Vec<_> = again.iter().map(|a| (a.chunk.0, a.row, a.member, a.lane)).collect();
        assert_eq!(places, [(7, 9, 0, 0), (7, 9, 0, 1), (7, 9, 4, 0), (8, 0, 2, 0), (8, 0, 2, 15)]);
        assert!(again.iter().zip(bytes.chunks(BLOCK as usize).skip(1)).all(|(a, block)| a.bytes == block));
        assert_eq!(open(&blocks(&bytes), head.pool, 4), None, "of another epoch");
        assert_eq!(open(&blocks(&bytes), Uuid([4; 16]), 5), None, "of another pool");
    }

    #[test]
    fn whatever_is_not_as_it_was_written_is_no_group() {
        let (head, bytes) = group();
        for at in (0..bytes.len()).step_by(13) {
            let mut bent = bytes.clone();
            bent[at] ^= 1 << (at % 8);
            assert_eq!(open(&blocks(&bent), head.pool, 5), None, "byte {at}");
        }
        for len in 0..6 {
            assert_eq!(open(&blocks(&bytes)[..len], head.pool, 5), None, "{len} blocks");
        }
    }

    #[test]
    fn a_head_holds_as_many_entries_as_is_said() {
        let members: Vec<(u8, Lanes)> = (0..66).map(|m| (m, 1)).collect();
        let entry = Entry { chunk: ChunkId(1), row: 1, members, crc: 0 };
        let count = ENTRIES_MAX / Entry::len(66);
        let head = Head { pool: Uuid([0; 16]), epoch: 0, seq: 0, entries: vec![entry; count] };
        assert_eq!(Head::decode(&head.encode()), Ok(head));
    }
}
