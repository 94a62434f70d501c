//! Geometry of every profile that carries data: mirrors are one group of columns, striped profiles several.
//!
//! ```text
//! chunk offset      element = offset / 64 KiB
//!                   group   = element mod groups      -> columns [group * copies, + copies)
//!                   row     = element  /  groups      -> byte row * 64 KiB + offset mod 64 KiB of each
//! ```
//!
//! raid0 has groups of one column, raid10 of two. Source: Linux `fs/btrfs/volumes.c`, the mapping of a logical
//! address to its stripes.

use super::Profile;
use crate::units::STRIP;

const STRIP_SHIFT: u32 = STRIP.trailing_zeros();
const _: () = assert!(STRIP.is_power_of_two());

/// One piece of a chunk: the same bytes at the same offset of each column in `first .. first + copies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// First column of the candidate set.
    pub first: usize,
    /// Columns that hold the piece.
    pub copies: usize,
    /// First byte within each of these columns.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The first piece of `[offset, offset + len)` of a chunk with so many columns; the caller loops for the rest.
///
/// Striped profiles end a piece with its strip, mirrors never cut. Columns of `dup` are the two halves on its one
/// device. A piece is never empty unless `len` is 0, so loops end. Fewer columns than the profile wants give as
/// many copies as there are; columns beyond the last whole group stay unused. Parity profiles carry no data: they
/// are answered with no copies.
pub fn slice(profile: Profile, columns: usize, offset: u64, len: u64) -> Slice {
    let facts = profile.facts();
    if facts.parity > 0 {
        return Slice { first: 0, copies: 0, offset, len };
    }
    let copies = facts.copies.min(columns);
    if !facts.striped {
        return Slice { first: 0, copies, offset, len };
    }
    let within = offset & (STRIP - 1);
    let (row, group) = divide(offset >> STRIP_SHIFT, data_stripes(profile, columns) as u64);
    Slice {
        first: group as usize * facts.copies,
        copies,
        offset: row << STRIP_SHIFT | within,
        len: len.min(STRIP - within),
    }
}

/// The byte of the chunk that stands at `offset` of the columns from `first` on: [`slice()`] backwards.
pub fn content_offset(profile: Profile, columns: usize, first: usize, offset: u64) -> u64 {
    let facts = profile.facts();
    if !facts.striped {
        return offset;
    }
    let group = (first / facts.copies.max(1)) as u64;
    ((offset >> STRIP_SHIFT) * data_stripes(profile, columns) as u64 + group) << STRIP_SHIFT | offset & (STRIP - 1)
}

/// Columns' worth of volume bytes in a chunk: its length is this many stripes. At least 1 for profiles that carry
/// data.
pub fn data_stripes(profile: Profile, columns: usize) -> usize {
    match profile {
        Profile::Single | Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => 1,
        Profile::Raid0 => columns.max(1),
        Profile::Raid10 => (columns / 2).max(1),
        Profile::Raid5 => columns.saturating_sub(1),
        Profile::Raid6 => columns.saturating_sub(2),
    }
}

/// Quotient and remainder, without a division for the usual widths 1, 2, 4, 8.
fn divide(value: u64, by: u64) -> (u64, u64) {
    if by.is_power_of_two() { (value >> by.trailing_zeros(), value & (by - 1)) } else { (value / by, value % by) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BLOCK, KIB};
    use std::collections::BTreeMap;
    use std::vec::Vec;

    const BLOCKS_PER_STRIP: u64 = STRIP / BLOCK;

    /// The twin: fill a chunk block by block, the way one deals cards, and note where each block went.
    fn deal(profile: Profile, columns: usize, blocks: u64) -> Vec<Vec<(usize, u64)>> {
        let copies = profile.facts().copies.min(columns);
        let groups: Vec<Vec<usize>> = match profile.facts().striped {
            false => Vec::from([(0..copies).collect()]),
            true => (0..columns).collect::<Vec<_>>().chunks_exact(copies).map(|c| c.to_vec()).collect(),
        };
        let mut fill = BTreeMap::<usize, u64>::new();
        let (mut group, mut dealt) = (0, 0);
        (0..blocks)
            .map(|_| {
                if dealt == BLOCKS_PER_STRIP {
                    (group, dealt) = ((group + 1) % groups.len(), 0);
                }
                dealt += 1;
                groups[group]
                    .iter()
                    .map(|&column| {
                        let next = fill.entry(column).or_default();
                        *next += 1;
                        (column, *next - 1)
                    })
                    .collect()
            })
            .collect()
    }

    fn data_profiles() -> impl Iterator<Item = Profile> {
        Profile::ALL.into_iter().filter(|p| p.carries_data())
    }

    #[test]
    fn every_block_stands_where_the_twin_put_it() {
        for profile in data_profiles() {
            for columns in 1..=6 {
                let blocks = 3 * columns as u64 * BLOCKS_PER_STRIP;
                let twin = deal(profile, columns, blocks);
                let mut taken = BTreeMap::new();
                for block in 0..blocks {
                    let s = slice(profile, columns, block * BLOCK, BLOCK);
                    let ours: Vec<_> = (s.first..s.first + s.copies).map(|c| (c, s.offset / BLOCK)).collect();
                    assert_eq!(ours, twin[block as usize], "{profile:?} {columns} columns, block {block}");
                    assert_eq!(s.copies, profile.facts().copies.min(columns));
                    assert_eq!(content_offset(profile, columns, s.first, s.offset), block * BLOCK);
                    for place in ours {
                        assert!(place.0 < columns);
                        assert_eq!(taken.insert(place, block), None, "{profile:?} {columns}: {place:?} used twice");
                    }
                }
                // Round trip: the chunk of `blocks` blocks needs exactly blocks / data_stripes of each used column.
                let deepest = taken.keys().map(|&(_, b)| b + 1).max().unwrap();
                assert_eq!(
                    deepest,
                    blocks
                        .div_ceil(data_stripes(profile, columns) as u64)
                        .next_multiple_of(if profile.facts().striped { BLOCKS_PER_STRIP } else { 1 })
                );
            }
        }
    }

    #[test]
    fn pieces_tile_the_range() {
        for profile in data_profiles() {
            for columns in 1..=6 {
                let blocks = 2 * columns as u64 * BLOCKS_PER_STRIP;
                let twin = deal(profile, columns, blocks);
                for start in 0..blocks {
                    for end in start + 1..=blocks {
                        let mut at = start;
                        while at < end {
                            let s = slice(profile, columns, at * BLOCK, (end - at) * BLOCK);
                            let last = at + s.len / BLOCK - 1;
                            assert!(s.len > 0 && s.len.is_multiple_of(BLOCK) && last < end);
                            // First and last block of a piece suffice: the twin's columns are contiguous within it.
                            for (block, place) in [(at, s.offset), (last, s.offset + s.len - BLOCK)] {
                                assert_eq!(twin[block as usize][0], (s.first, place / BLOCK), "{profile:?} {columns}");
                            }
                            if last + 1 < end {
                                assert!(profile.facts().striped, "mirrors never cut");
                                assert!((last + 1).is_multiple_of(BLOCKS_PER_STRIP), "cut at a strip end only");
                            }
                            at = last + 1;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn worked_examples() {
        // (profile, columns, offset KiB, len KiB) -> (first, copies, offset KiB, len KiB)
        let rows = [
            (Profile::Raid10, 4, 32, 96, (0, 2, 32, 32)),
            (Profile::Raid10, 4, 64, 64, (2, 2, 0, 64)),
            (Profile::Raid10, 4, 192, 64, (2, 2, 64, 64)),
            (Profile::Raid0, 3, 200, 8, (0, 1, 72, 8)),
            (Profile::Raid0, 1, 60, 100, (0, 1, 60, 4)),
            (Profile::Raid1, 2, 60, 1000, (0, 2, 60, 1000)),
            (Profile::Raid1c4, 4, 0, 64, (0, 4, 0, 64)),
            (Profile::Dup, 2, 4, 4, (0, 2, 4, 4)),
            (Profile::Single, 1, 4, 100, (0, 1, 4, 100)),
            (Profile::Raid5, 3, 4, 100, (0, 0, 4, 100)),
        ];
        for (profile, columns, offset, len, (first, copies, at, piece)) in rows {
            let expected = Slice { first, copies, offset: at * KIB, len: piece * KIB };
            assert_eq!(slice(profile, columns, offset * KIB, len * KIB), expected, "{profile:?} {offset}K+{len}K");
        }
    }

    #[test]
    fn odd_input_is_answered() {
        for profile in Profile::ALL {
            for columns in [0, 1, usize::MAX] {
                for offset in [0, 1, STRIP - 1, u64::MAX] {
                    for len in [0, 1, u64::MAX] {
                        let s = slice(profile, columns, offset, len);
                        assert!(s.len <= len && (s.len > 0 || len == 0), "{profile:?} {columns} {offset} {len}");
                    }
                }
                let _ = data_stripes(profile, columns);
            }
        }
    }
}
