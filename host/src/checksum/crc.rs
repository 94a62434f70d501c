//! CRC-32C of a block of 4 KiB by carry-less multiplication of 512 bits at once.
//!
//! ```text
//!   4 KiB = 16 turns of four streams of 64 bytes        a turn: each stream, moved 256 bytes on, plus what stands there
//!   four streams -> one -> four lanes of 16 bytes -> one      the same over 64, and over 48, 32 and 16 bytes
//!   the last 16 bytes                                         the processor's instruction for CRC-32C
//! ```
//!
//! To *move a value on* by n bits is to multiply it by x^n modulo the polynomial: the remainder stays the same. Bits are
//! reflected, as everywhere in CRC-32C, and the product of two reflected values comes out one bit short: so the factor is
//! x^(n-1). The high half of 128 bits has 64 bits more to go than the low half. Four streams, since each multiplication takes
//! longer than it keeps the unit busy.
//!
//! Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_xor_si128,
    _mm512_castsi512_si128, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_set_epi64,
    _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::Block;

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The factor that moves 64 bits on by so many bits.
const fn factor(bits: u32) -> i64 {
    let (mut power, mut left) = (1u32 << 31, bits - 1);
    while left > 0 {
        power = (power >> 1) ^ if power & 1 == 1 { POLYNOMIAL } else { 0 };
        left -= 1;
    }
    ((power as u64) << 32) as i64
}

/// The factors for the first and the second half of 128 bits, for a move by so many bits.
const fn factors(bits: u32) -> [i64; 2] {
    [factor(bits + 64), factor(bits)]
}

const TURN: [i64; 2] = factors(4 * 512);
const STREAM: [i64; 2] = factors(512);
const LANES: [[i64; 2]; 3] = [factors(384), factors(256), factors(128)];

/// Whether this processor can.
pub(super) fn is_there() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

#[target_feature(enable = "avx512f")]
fn load(block: &Block, at: usize) -> __m512i {
    let part = &block[at..at + 64];
    // SAFETY: the slice has the 64 bytes that are read, at any alignment.
    unsafe { _mm512_loadu_si512(part.as_ptr().cast()) }
}

/// `value`, moved on by what `factors` are for, plus `next`.
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq")]
fn fold(value: __m512i, factors: __m512i, next: __m512i) -> __m512i {
    let first = _mm512_clmulepi64_epi128(value, factors, 0x00);
    let second = _mm512_clmulepi64_epi128(value, factors, 0x11);
    // The sum of the three.
    _mm512_ternarylogic_epi64(first, second, next, 0x96)
}

#[target_feature(enable = "avx512f")]
fn in_all_lanes([first, second]: [i64; 2]) -> __m512i {
    _mm512_set_epi64(second, first, second, first, second, first, second, first)
}

/// The sum of a block.
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
pub(super) fn of_block(block: &Block) -> u32 {
    let mut streams = [load(block, 0), load(block, 64), load(block, 128), load(block, 192)];
    // It begins with ones.
    streams[0] = _mm512_xor_si512(streams[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1)));
    let turn = in_all_lanes(TURN);
    for at in (256..block.len()).step_by(256) {
        for (i, stream) in streams.iter_mut().enumerate() {
            *stream = fold(*stream, turn, load(block, at + 64 * i));
        }
    }
    let next = in_all_lanes(STREAM);
    let one = streams[1..].iter().fold(streams[0], |sum, stream| fold(sum, next, *stream));
    let [[a, b], [c, d], [e, f]] = LANES;
    // The last lane is where all go.
    let lanes = fold(one, _mm512_set_epi64(0, 0, f, e, d, c, b, a), _mm512_zextsi128_si512(last_lane(one)));
    let halves = _mm_xor_si128(
        _mm_xor_si128(_mm512_castsi512_si128(lanes), _mm512_extracti32x4_epi32::<1>(lanes)),
        _mm512_extracti32x4_epi32::<2>(lanes),
    );
    let sum = _mm_crc32_u64(0, _mm_cvtsi128_si64(halves) as u64);
    !(_mm_crc32_u64(sum, _mm_extract_epi64::<1>(halves) as u64) as u32)
}

#[target_feature(enable = "avx512f")]
fn last_lane(value: __m512i) -> __m128i {
    _mm512_extracti32x4_epi32::<3>(value)
}
