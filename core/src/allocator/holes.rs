//! Free extents of a device.

use alloc::vec::Vec;

use crate::units::{MIB, STRIP, round_down};

/// No chunk begins before this byte of a device: partition tables, boot loaders and superblocks live there.
pub const FIRST_USABLE: u64 = MIB;

/// A free extent of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hole {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Free extents of a device of `size` bytes with the used extents `(offset, len)`, sorted by offset.
///
/// Whole strips only. Nothing before [`FIRST_USABLE`]; used extents may overlap or pass the end.
pub fn holes(size: u64, used: &[(u64, u64)]) -> Vec<Hole> {
    let mut free = Vec::new();
    let mut at = FIRST_USABLE;
    for &(offset, len) in used.iter().chain([&(size, 0)]) {
        let start = at.checked_next_multiple_of(STRIP).unwrap_or(u64::MAX);
        let end = round_down(offset.min(size), STRIP);
        if start < end {
            free.push(Hole { offset: start, len: end - start });
        }
        at = at.max(offset.saturating_add(len));
    }
    free
}

/// The first hole that has `want` bytes, cut to it; else the longest, the first of equals.
pub(super) fn best(holes: &[Hole], want: u64) -> Option<Hole> {
    let mut longest: Option<Hole> = None;
    for hole in holes {
        if hole.len >= want {
            return Some(Hole { offset: hole.offset, len: want });
        }
        if longest.is_none_or(|known| hole.len > known.len) {
            longest = Some(*hole);
        }
    }
    longest
}

/// Takes `len` bytes from the front of the hole at `offset`, as far as it reaches.
pub(super) fn take(holes: &mut Vec<Hole>, offset: u64, len: u64) {
    if let Ok(at) = holes.binary_search_by_key(&offset, |hole| hole.offset) {
        let taken = len.min(holes[at].len);
        holes[at] = Hole { offset: offset + taken, len: holes[at].len - taken };
        if holes[at].len == 0 {
            holes.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::KIB;

    #[test]
    fn holes_are_what_used_extents_leave() {
        // (size MiB, used MiB) -> free MiB
        type Extents = &'static [(u64, u64)];
        let rows: [(u64, Extents, Extents); 8] = [
            (64, &[], &[(1, 63)]),
            (64, &[(1, 63)], &[]),
            (64, &[(0, 4), (10, 2)], &[(4, 6), (12, 52)]),
            (64, &[(4, 8), (6, 2), (11, 9)], &[(1, 3), (20, 44)]),
            (64, &[(60, 100)], &[(1, 59)]),
            (64, &[(100, 1)], &[(1, 63)]),
            (1, &[], &[]),
            (0, &[], &[]),
        ];
        for (size, used, free) in rows {
            let used: Vec<_> = used.iter().map(|&(o, l)| (o * MIB, l * MIB)).collect();
            let free: Vec<_> = free.iter().map(|&(o, l)| Hole { offset: o * MIB, len: l * MIB }).collect();
            assert_eq!(holes(size * MIB, &used), free, "{size} MiB, {used:?}");
        }
        let ragged = holes(2 * MIB + 5, &[(MIB, 1)]);
        assert_eq!(ragged, [Hole { offset: MIB + 64 * KIB, len: MIB - 64 * KIB }]);
        assert_eq!(holes(u64::MAX, &[(MIB, u64::MAX)]), []);
    }

    #[test]
    fn the_first_that_fits_else_the_longest() {
        let hole = |offset, len| Hole { offset, len };
        let free = [hole(10, 3), hole(20, 5), hole(30, 5)];
        assert_eq!(best(&free, 2), Some(hole(10, 2)));
        assert_eq!(best(&free, 4), Some(hole(20, 4)));
        assert_eq!(best(&free, 9), Some(hole(20, 5)));
        assert_eq!(best(&[], 9), None);
    }
}
