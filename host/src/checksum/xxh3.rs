//! XXH3-64 of a block of 4 KiB, with vectors as wide as the processor has them; the library has those of the compiler's
//! baseline only.
//!
//! Eight sums of 64 bits take in stripes of 64 bytes, each with another part of the secret; after 16 stripes they are mixed.
//! The last stripe has a part of its own.
//!
//! Source: Y. Collet, the specification of the algorithm, `doc/xxhash_spec.md` of xxHash 0.8, "XXH3 Algorithm Description".

use braid_core::units::BLOCK;

use super::Block;

const STRIPE: usize = 64;
/// Stripes from one mixing to the next.
const STRIPES: usize = (SECRET.len() - STRIPE) / 8;

const PRIME32: [u64; 3] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d];
const PRIME64: [u64; 5] =
    [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x85eb_ca77_c2b2_ae63, 0x27d4_eb2f_1656_67c5];
const BEGIN: [u64; 8] =
    [PRIME32[2], PRIME64[0], PRIME64[1], PRIME64[2], PRIME64[3], PRIME32[1], PRIME64[4], PRIME32[0]];

/// The default secret.
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d,
    0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0,
    0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0,
    0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b,
    0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac,
    0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51,
    0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34,
    0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49,
    0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8,
    0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b,
    0x40, 0x7e,
];

/// 64 bits of the secret from this byte on.
const fn secret(at: usize) -> u64 {
    let mut bytes = [0; 8];
    let mut i = 0;
    while i < 8 {
        bytes[i] = SECRET[at + i];
        i += 1;
    }
    u64::from_le_bytes(bytes)
}

/// The eight words of the secret from this byte on.
const fn words(at: usize) -> [u64; 8] {
    let mut words = [0; 8];
    let mut i = 0;
    while i < 8 {
        words[i] = secret(at + 8 * i);
        i += 1;
    }
    words
}

/// For each stripe up to the next mixing.
const KEYS: [[u64; 8]; STRIPES] = {
    let mut keys = [[0; 8]; STRIPES];
    let mut i = 0;
    while i < STRIPES {
        keys[i] = words(8 * i);
        i += 1;
    }
    keys
};
const MIX: [u64; 8] = words(SECRET.len() - STRIPE);
const LAST: [u64; 8] = words(SECRET.len() - STRIPE - 7);

/// What eight sums come to.
fn merge(sums: &[u64; 8]) -> u64 {
    let mut sum = BLOCK.wrapping_mul(PRIME64[0]);
    for i in 0..4 {
        let (a, b) = (sums[2 * i] ^ secret(11 + 16 * i), sums[2 * i + 1] ^ secret(19 + 16 * i));
        let product = u128::from(a) * u128::from(b);
        sum = sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
    }
    sum = (sum ^ sum >> 37).wrapping_mul(0x1656_6791_9e37_79f9);
    sum ^ sum >> 32
}

/// One body for vectors of one width: what it is called, what it needs, the vector, how many lanes, and the instructions by
/// the part of their name that differs.
macro_rules! wide {
    ($name:ident, $features:literal, $vector:ty, $lanes:literal, $load:ident, $store:ident, $xor:ident, $add:ident,
     $multiply:ident, $swap:ident, $right:ident, $left:ident, $all:ident) => {
        #[target_feature(enable = $features)]
        fn $name(block: &Block) -> u64 {
            use std::arch::x86_64::{$add, $all, $left, $load, $multiply, $right, $store, $swap, $xor};
            const VECTORS: usize = 8 / $lanes;
            let load = |words: &[u8]| {
                let words = &words[..8 * $lanes];
                // SAFETY: the slice has the bytes that are read, at any alignment.
                unsafe { $load(words.as_ptr().cast()) }
            };
            let of_words = |words: &[u64; 8], i: usize| {
                let words = &words[$lanes * i..][..$lanes];
                // SAFETY: as above.
                unsafe { $load(words.as_ptr().cast()) }
            };
            let mut sums: [$vector; VECTORS] = std::array::from_fn(|i| of_words(&BEGIN, i));
            let prime = $all(PRIME32[0] as i64);
            let take_in = |sums: &mut [$vector; VECTORS], stripe: &[u8; STRIPE], key: &[u64; 8]| {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let words = load(&stripe[8 * $lanes * i..]);
                    let keyed = $xor(words, of_words(key, i));
                    let product = $multiply(keyed, $right::<32>(keyed));
                    // The words of a pair change places.
                    *sum = $add($add(*sum, product), $swap::<0x4e>(words));
                }
            };
            let (stripes, _) = block.as_chunks::<STRIPE>();
            let (last, before) = stripes.split_last().expect("a block has many");
            let (rounds, rest) = before.as_chunks::<STRIPES>();
            for round in rounds {
                for (stripe, key) in round.iter().zip(&KEYS) {
                    take_in(&mut sums, stripe, key);
                }
                for (i, sum) in sums.iter_mut().enumerate() {
                    let mixed = $xor($xor(*sum, $right::<47>(*sum)), of_words(&MIX, i));
                    let high = $multiply($right::<32>(mixed), prime);
                    *sum = $add($multiply(mixed, prime), $left::<32>(high));
                }
            }
            for (stripe, key) in rest.iter().zip(&KEYS) {
                take_in(&mut sums, stripe, key);
            }
            take_in(&mut sums, last, &LAST);
            let mut found = [0; 8];
            for (sum, place) in sums.into_iter().zip(found.chunks_exact_mut($lanes)) {
                // SAFETY: the place has as many words as the vector, at any alignment.
                unsafe { $store(place.as_mut_ptr().cast(), sum) }
            }
            merge(&found)
        }
    };
}

wide!(
    with_256_bits,
    "avx2",
    std::arch::x86_64::__m256i,
    4,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_xor_si256,
    _mm256_add_epi64,
    _mm256_mul_epu32,
    _mm256_shuffle_epi32,
    _mm256_srli_epi64,
    _mm256_slli_epi64,
    _mm256_set1_epi64x
);
wide!(
    with_512_bits,
    "avx512f",
    std::arch::x86_64::__m512i,
    8,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_xor_si512,
    _mm512_add_epi64,
    _mm512_mul_epu32,
    _mm512_shuffle_epi32,
    _mm512_srli_epi64,
    _mm512_slli_epi64,
    _mm512_set1_epi64
);

/// The sum of a block; None when this processor has no such vectors.
pub(super) fn of_block(block: &Block) -> Option<u64> {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has what it is compiled for.
        return Some(unsafe { with_512_bits(block) });
    }
    // SAFETY: as above.
    is_x86_feature_detected!("avx2").then(|| unsafe { with_256_bits(block) })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Every way that this processor knows gives the same.
    pub(in super::super) fn agree(block: &Block, sum: u64) {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: it was just asked.
            assert_eq!(unsafe { with_256_bits(block) }, sum, "256 bits");
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: it was just asked.
            assert_eq!(unsafe { with_512_bits(block) }, sum, "512 bits");
        }
    }
}
