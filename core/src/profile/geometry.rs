//! Where a byte of a chunk stands. Mirrors are one group of columns, striped profiles several; parity turns by one column
//! with every row.
//!
//! ```text
//! chunk offset      element = offset / 64 KiB
//!                   group   = element mod groups      -> columns [group * copies, + copies)
//!                   row     = element  /  groups      -> byte row * 64 KiB + offset mod 64 KiB of each
//! ```
//!
//! raid0 has groups of one column, raid10 of two. Source: Linux `fs/btrfs/volumes.c`, the mapping of a logical
//! address to its stripes.
//!
//! With parity the group is a *member* of its row. Members 0.. are the data strips in order of address, then come P
//! and Q; where they stand is the left-symmetric layout of Linux md, `drivers/md/raid5.c`:
//!
//! ```text
//!          raid5, 4 columns      raid6, 5 columns
//!  row     c0  c1  c2  c3        c0  c1  c2  c3  c4          P stands in column  n - 1 - row mod n,
//!   0      D0  D1  D2  P         Q   D0  D1  D2  P           Q, if there is one, in the next,
//!   1      D4  D5  P   D3        D3  D4  D5  P   Q           and member m in column P + parities + m, all mod n
//! ```
//!
//! With one parity the content goes on in the next column across rows too: n strips of it keep n devices busy.

use super::Profile;
use crate::units::STRIP;

const STRIP_SHIFT: u32 = STRIP.trailing_zeros();
const _: () = assert!(STRIP.is_power_of_two());

/// Most columns of a chunk with parity: a loss costs a read of all others, and sets of members fit a word.
const PARITY_COLUMNS_MAX: usize = 64;

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
/// device. Parity profiles name the one column of the data strip. A piece is never empty unless `len` is 0, so loops
/// end. Fewer columns than the profile wants give as many copies as there are, with parity none; columns beyond the
/// last whole group stay unused.
pub fn slice(profile: Profile, columns: usize, offset: u64, len: u64) -> Slice {
    let facts = profile.facts();
    let copies = facts.copies.min(columns);
    if !facts.striped {
        return Slice { first: 0, copies, offset, len };
    }
    let groups = data_stripes(profile, columns) as u64;
    if groups == 0 {
        return Slice { first: 0, copies: 0, offset, len };
    }
    let within = offset & (STRIP - 1);
    let (row, group) = divide(offset >> STRIP_SHIFT, groups);
    let first = match facts.parity {
        0 => group as usize * facts.copies,
        _ => column_of(profile, columns, row, group as usize),
    };
    Slice { first, copies, offset: row << STRIP_SHIFT | within, len: len.min(STRIP - within) }
}

/// The byte of the chunk that stands at `offset` of the columns from `first` on: [`slice()`] backwards. `None` where
/// that is parity.
pub fn content_offset(profile: Profile, columns: usize, first: usize, offset: u64) -> Option<u64> {
    let facts = profile.facts();
    if !facts.striped {
        return Some(offset);
    }
    let (row, groups) = (offset >> STRIP_SHIFT, data_stripes(profile, columns));
    let group = match facts.parity {
        0 => first / facts.copies.max(1),
        _ => Some(member_of(profile, columns, row, first)).filter(|&member| member < groups)?,
    };
    Some((row * groups as u64 + group as u64) << STRIP_SHIFT | offset & (STRIP - 1))
}

/// The column of a member of a row of strips: data strips are members 0.. in order of their content, then comes P, then Q.
/// Profiles without parity don't turn: a member is a column.
pub fn column_of(profile: Profile, columns: usize, row: u64, member: usize) -> usize {
    match first_data(profile, columns, row) {
        Some(first) => add(first, member, columns),
        None => member,
    }
}

/// The member of a row of strips that stands in a column: [`column_of`] backwards.
pub fn member_of(profile: Profile, columns: usize, row: u64, column: usize) -> usize {
    match first_data(profile, columns, row) {
        Some(first) => add(columns - first, column, columns),
        None => column,
    }
}

/// Columns' worth of volume bytes in a chunk: its length is this many stripes. At least 1 for profiles that carry
/// data, unless there are no columns for anything but parity.
pub fn data_stripes(profile: Profile, columns: usize) -> usize {
    match profile {
        Profile::Single | Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => 1,
        Profile::Raid0 => columns.max(1),
        Profile::Raid10 => (columns / 2).max(1),
        Profile::Raid5 => columns.saturating_sub(1),
        Profile::Raid6 => columns.saturating_sub(2),
    }
}

/// Most columns of a chunk, 0 = as many as there are: 64 with parity. How many devices a profile takes is another
/// question, see [`Facts::devs_max`](super::Facts::devs_max).
pub fn columns_max(profile: Profile) -> usize {
    if profile.facts().parity > 0 { PARITY_COLUMNS_MAX } else { 0 }
}

/// The column of a row's first data strip; none if the profile doesn't turn.
fn first_data(profile: Profile, columns: usize, row: u64) -> Option<usize> {
    let parity = profile.facts().parity;
    if parity == 0 || columns == 0 {
        return None;
    }
    let p = columns - 1 - divide(row, columns as u64).1 as usize;
    Some(add(p, parity, columns))
}

/// The sum of two columns, behind the last one the first again.
fn add(a: usize, b: usize, columns: usize) -> usize {
    let (a, b) = (a % columns, b % columns);
    if b < columns - a { a + b } else { b - (columns - a) }
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
        Profile::ALL.into_iter().filter(|p| p.facts().parity == 0)
    }

    fn parity_profiles() -> impl Iterator<Item = (Profile, usize)> {
        let widths = |p: Profile| (p.facts().devs_min..=9).map(move |columns| (p, columns));
        Profile::ALL.into_iter().filter(|p| p.facts().parity > 0).flat_map(widths)
    }

    /// The twin of parity: what stands in each column of a row, laid down as one deals cards. P goes one place to the
    /// left each row, Q lies behind it, and content goes on from there round the table.
    fn lay(columns: usize, parity: usize, rows: usize) -> Vec<Vec<usize>> {
        let (mut table, mut p) = (Vec::new(), columns - 1);
        for _ in 0..rows {
            let mut row = std::vec![usize::MAX; columns];
            let mut at = p;
            let data = columns - parity;
            for member in (data..columns).chain(0..data) {
                row[at] = member;
                at = if at + 1 == columns { 0 } else { at + 1 };
            }
            table.push(row);
            p = if p == 0 { columns - 1 } else { p - 1 };
        }
        table
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
                    assert_eq!(content_offset(profile, columns, s.first, s.offset), Some(block * BLOCK));
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
    fn rows_of_parity_are_laid_as_the_twin_lays_them() {
        for (profile, columns) in parity_profiles() {
            let data = data_stripes(profile, columns);
            for (r, row) in lay(columns, profile.facts().parity, 3 * columns).into_iter().enumerate() {
                for (column, &member) in row.iter().enumerate() {
                    assert_eq!(member_of(profile, columns, r as u64, column), member, "{profile:?} {columns} row {r}");
                    assert_eq!(column_of(profile, columns, r as u64, member), column, "{profile:?} {columns} row {r}");
                    for within in [0, 4096, STRIP - 1] {
                        let (at, byte) = (r as u64 * STRIP + within, (r * data + member) as u64 * STRIP + within);
                        let content = content_offset(profile, columns, column, at);
                        assert_eq!(content, (member < data).then_some(byte), "{profile:?} {columns} row {r}");
                        if member < data {
                            let piece = Slice { first: column, copies: 1, offset: at, len: STRIP - within };
                            assert_eq!(slice(profile, columns, byte, 2 * STRIP), piece, "{profile:?} {columns}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn rows_of_parity_are_those_of_md() {
        // As `mdadm --layout=left-symmetric` lays them, by hand: strips of content by number, P and Q.
        //   raid5, 3 devices   raid5, 5 devices     raid6, 4 devices   raid6, 5 devices
        //    0  1  P            0  1  2  3  P        Q  0  1  P         Q  0  1  2  P
        //    3  P  2            5  6  7  P  4        2  3  P  Q         3  4  5  P  Q
        //    P  4  5           10 11  P  8  9        5  P  Q  4         7  8  P  Q  6
        //    6  7  P           15  P 12 13 14        P  Q  6  7        11  P  Q  9 10
        //                       P 16 17 18 19                           P  Q 12 13 14
        let (p, q) = (-1, -2);
        let tables: [(Profile, &[&[i64]]); 4] = [
            (Profile::Raid5, &[&[0, 1, p], &[3, p, 2], &[p, 4, 5], &[6, 7, p]]),
            (
                Profile::Raid5,
                &[&[0, 1, 2, 3, p], &[5, 6, 7, p, 4], &[10, 11, p, 8, 9], &[15, p, 12, 13, 14], &[p, 16, 17, 18, 19]],
            ),
            (Profile::Raid6, &[&[q, 0, 1, p], &[2, 3, p, q], &[5, p, q, 4], &[p, q, 6, 7]]),
            (
                Profile::Raid6,
                &[&[q, 0, 1, 2, p], &[3, 4, 5, p, q], &[7, 8, p, q, 6], &[11, p, q, 9, 10], &[p, q, 12, 13, 14]],
            ),
        ];
        for (profile, rows) in tables {
            let columns = rows[0].len();
            for (r, row) in rows.iter().enumerate() {
                for (column, &there) in row.iter().enumerate() {
                    let content = content_offset(profile, columns, column, r as u64 * STRIP);
                    assert_eq!(
                        content,
                        u64::try_from(there).ok().map(|strip| strip * STRIP),
                        "{profile:?} {columns} row {r}"
                    );
                    let member = member_of(profile, columns, r as u64, column);
                    let data = data_stripes(profile, columns);
                    assert_eq!((member == data, member == data + 1), (there == p, there == q));
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
            (Profile::Raid5, 3, 4, 100, (0, 1, 4, 60)),
            (Profile::Raid5, 3, 128, 64, (2, 1, 64, 64)),
            (Profile::Raid6, 4, 64, 8, (2, 1, 0, 8)),
            (Profile::Raid5, 1, 4, 100, (0, 0, 4, 100)),
        ];
        for (profile, columns, offset, len, (first, copies, at, piece)) in rows {
            let expected = Slice { first, copies, offset: at * KIB, len: piece * KIB };
            assert_eq!(slice(profile, columns, offset * KIB, len * KIB), expected, "{profile:?} {offset}K+{len}K");
        }
    }

    #[test]
    fn odd_input_is_answered() {
        for profile in Profile::ALL {
            for columns in [0, 1, 2, usize::MAX] {
                for row in [0, 1, u64::MAX] {
                    for member in [0, 1, 63, usize::MAX] {
                        let column = column_of(profile, columns, row, member);
                        let back = member_of(profile, columns, row, column);
                        assert!(member >= columns || back == member, "{profile:?} {columns} {row} {member}");
                    }
                }
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
