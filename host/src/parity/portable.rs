//! Eight bytes in a word. Compilers make vectors of the steps, whatever the processor has.

use super::{Gaps, STEP, Work};

/// One step of a buffer.
type Words = [u64; STEP / 8];

/// Makes targets of whole steps.
pub(super) fn sum<const N: usize>(mut to: [&mut [u8]; N], work: &Work<'_, '_, N>) {
    for at in (0..to[0].len()).step_by(STEP) {
        let made = match work.gaps {
            Some(gaps) => ladder(work, gaps, at),
            None => products(work, at),
        };
        for (to, made) in to.iter_mut().zip(made) {
            for (to, made) in to[at..at + STEP].chunks_exact_mut(8).zip(made) {
                to.copy_from_slice(&made.to_le_bytes());
            }
        }
    }
}

fn products<const N: usize>(work: &Work<'_, '_, N>, at: usize) -> [Words; N] {
    let mut sums = [[0; STEP / 8]; N];
    for (from, times) in work.addends {
        let mut words = load(from, at);
        let mut left = work.which.map(|which| times[which]);
        loop {
            for (sum, left) in sums.iter_mut().zip(&mut left) {
                if *left & 1 == 1 {
                    add(sum, &words);
                }
                *left >>= 1;
            }
            if left.iter().all(|&left| left == 0) {
                break;
            }
            double(&mut words);
        }
    }
    sums
}

fn ladder<const N: usize>(work: &Work<'_, '_, N>, gaps: &Gaps, at: usize) -> [Words; N] {
    let mut sums = [[0; STEP / 8]; N];
    for (i, (from, _)) in work.addends.iter().enumerate().rev() {
        let words = load(from, at);
        sums.iter_mut().for_each(|sum| add(sum, &words));
        for _ in 0..gaps.0[i] {
            double(&mut sums[N - 1]);
        }
    }
    sums
}

fn load(from: &[u8], at: usize) -> Words {
    let mut words = [0; STEP / 8];
    for (word, bytes) in words.iter_mut().zip(from[at..at + STEP].as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

fn add(sum: &mut Words, words: &Words) {
    sum.iter_mut().zip(words).for_each(|(sum, word)| *sum ^= word);
}

/// Times two, in each byte: one place up, and what falls off comes back as the modulus.
fn double(words: &mut Words) {
    for word in words {
        let carry = *word >> 7 & 0x0101_0101_0101_0101;
        *word = (*word & 0x7f7f_7f7f_7f7f_7f7f) << 1 ^ carry.wrapping_mul(0x1d);
    }
}
