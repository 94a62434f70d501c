//! Sums and digests of stamps. A stamp stands for a sector that repeats its eight bytes, and arithmetic on bytes keeps that
//! so: the sum of two such sectors is the sector of the sum of their stamps.

use braid_core::combine::{Addend, Combine};
use braid_core::gf;
use braid_core::meta::codec::crc32c;
use braid_core::units::BufRange;

use crate::disk::{Block, SECTORS};

/// Each byte of a stamp times a factor.
pub(crate) fn times(stamp: u64, factor: u8) -> u64 {
    match factor {
        0 => 0,
        1 => stamp,
        _ => u64::from_le_bytes(stamp.to_le_bytes().map(|byte| gf::mul(byte, factor))),
    }
}

/// What a sum of memory comes to, for each that is to be made: where it goes, and its stamps.
pub(crate) fn combine(what: &Combine, mut memory: impl FnMut(BufRange) -> Vec<u64>) -> Vec<(BufRange, Vec<u64>)> {
    let addends: Vec<(Vec<u64>, [u8; 2])> =
        what.addends.iter().map(|&Addend { from, times }| (memory(from), times)).collect();
    let mut made = Vec::new();
    for (target, to) in what.to.into_iter().enumerate() {
        let Some(to) = to else { continue };
        let mut sum = vec![0; memory(to).len()];
        for (stamps, factors) in &addends {
            assert_eq!(stamps.len(), sum.len(), "{what:?} has ranges of different lengths");
            sum.iter_mut().zip(stamps).for_each(|(sum, &stamp)| *sum ^= times(stamp, factors[target]));
        }
        made.push((to, sum));
    }
    made
}

/// The crc32c of what stamps stand for.
pub(crate) fn digest(stamps: &[u64]) -> u32 {
    let blocks = stamps.as_chunks::<SECTORS>().0.iter();
    let bytes: Vec<u8> = blocks.flat_map(|block| Block::Stamps(*block).bytes()).collect();
    crc32c(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::units::BufId;

    #[test]
    fn what_is_lost_is_made_from_the_others() {
        let data: Vec<u64> = (0..4).map(|i| 0x0123_4567_89ab_cdef_u64.rotate_left(i * 7)).collect();
        let at = |i: u32| BufRange { buf: BufId(i), offset: 0, len: 512 };
        let factors = |i: u32| [1, gf::pow2(i as usize)];
        let addends = (0..4).map(|i| Addend { from: at(i), times: factors(i) }).collect();
        let parity = combine(&Combine { to: [Some(at(4)), Some(at(5))], addends }, |range| {
            vec![*data.get(range.buf.0 as usize).unwrap_or(&0)]
        });
        let (p, q) = (parity[0].1[0], parity[1].1[0]);
        // Member 2, from P and from Q.
        assert_eq!(p ^ data[0] ^ data[1] ^ data[3], data[2]);
        let rest = [0, 1, 3].iter().fold(q, |rest, &i| rest ^ times(data[i], gf::pow2(i)));
        assert_eq!(times(rest, gf::inverse(gf::pow2(2))), data[2]);
    }
}
