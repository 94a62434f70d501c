//! Sums of buffers over GF(2^8): how the engine has parity made, and what it makes up for, without seeing a byte.

use alloc::vec::Vec;

use crate::units::BufRange;

/// Up to two ranges of memory become sums of others, each byte a product with a factor of [`crate::gf`].
///
/// All ranges have one length, a multiple of `BLOCK`; no target overlaps with anything else, and pages of checksums take
/// no part. Which sums, [`crate::profile::parity`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combine {
    /// What is made; one at least.
    pub to: [Option<BufRange>; 2],
    /// What is added. Nothing to add makes zeros; what a target held before doesn't count.
    pub addends: Vec<Addend>,
}

/// One term of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addend {
    /// Where it is.
    pub from: BufRange,
    /// Its factor for each target; 0 = no part of it.
    pub times: [u8; 2],
}

impl Combine {
    /// Whether lengths agree and no target overlaps with anything else: whoever carries it out relies on that.
    pub fn is_sound(&self) -> bool {
        let [first, second] = self.to;
        let Some(some) = first.or(second) else { return false };
        let all = || self.addends.iter().map(|addend| addend.from);
        let apart = |to: BufRange| all().all(|from| !overlap(from, to));
        let same = all().chain(second).all(|range| range.len == some.len);
        let both = first.zip(second).is_some_and(|(a, b)| overlap(a, b));
        same && !both && first.into_iter().chain(second).all(apart)
    }
}

fn overlap(a: BufRange, b: BufRange) -> bool {
    let end = |range: BufRange| u64::from(range.offset) + u64::from(range.len);
    a.buf == b.buf && u64::from(a.offset) < end(b) && u64::from(b.offset) < end(a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BufId;

    #[test]
    fn overlaps_and_lengths() {
        let at = |buf: u32, offset: u32, len: u32| BufRange { buf: BufId(buf), offset, len };
        let sound = |first, second, from: &[BufRange]| {
            let addends = from.iter().map(|&from| Addend { from, times: [1, 2] }).collect();
            Combine { to: [first, second], addends }.is_sound()
        };
        let (a, b) = (at(1, 0, 4096), at(1, 4096, 4096));
        assert!(sound(Some(a), Some(b), &[at(1, 8192, 4096), at(2, 0, 4096)]));
        assert!(sound(Some(a), None, &[]) && sound(None, Some(a), &[b, b]));
        assert!(!sound(None, None, &[a]), "nothing to make");
        assert!(!sound(Some(a), Some(a), &[]) && !sound(Some(a), None, &[a]) && !sound(None, Some(a), &[b, a]));
        assert!(!sound(Some(a), Some(at(2, 0, 8192)), &[]) && !sound(Some(a), None, &[at(2, 0, 8192)]));
        assert!(!sound(Some(at(1, 4095, 4096)), None, &[b]) && !sound(Some(b), None, &[at(1, 8191, 4096)]));
        assert!(!sound(Some(at(1, u32::MAX, 4096)), None, &[at(1, u32::MAX - 1, 4096)]));
    }
}
