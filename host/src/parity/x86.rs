//! AVX2, with and without GFNI.

use std::arch::x86_64::*;

use super::{Addend, Gaps, STEP, Work, tables};

/// Addends in one pass; further ones are added to what is there.
const GROUP: usize = 16;

const _: () = assert!(STEP == 2 * size_of::<__m256i>());

/// Makes targets of whole steps.
pub(super) fn sum_avx2<const N: usize>(to: [&mut [u8]; N], work: &Work<'_, '_, N>) {
    debug_assert!(is_x86_feature_detected!("avx2"));
    // SAFETY: the kernel is used only where AVX2 was found.
    unsafe {
        match work.gaps {
            Some(gaps) => ladder(to, work.addends, gaps),
            None => in_groups(to, work, |to, group, first| halves(to, work.which, group, first)),
        }
    }
}

/// Makes targets of whole steps.
pub(super) fn sum_gfni<const N: usize>(to: [&mut [u8]; N], work: &Work<'_, '_, N>) {
    debug_assert!(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"));
    // SAFETY: the kernel is used only where AVX2 and GFNI were found. A product is as cheap as a doubling, so gaps are
    // not looked at.
    in_groups(to, work, |to, group, first| unsafe { matrices(to, work.which, group, first) });
}

/// Group by group; the first one doesn't look at what targets held.
fn in_groups<const N: usize>(
    mut to: [&mut [u8]; N],
    work: &Work<'_, '_, N>,
    pass: impl Fn([&mut [u8]; N], &[Addend<'_>], bool),
) {
    if work.addends.is_empty() {
        return to.iter_mut().for_each(|to| to.fill(0));
    }
    for (i, group) in work.addends.chunks(GROUP).enumerate() {
        pass(to.each_mut().map(|to| &mut **to), group, i == 0);
    }
}

/// 32 bytes from `at`.
///
/// # Safety
///
/// They lie within `from`.
#[target_feature(enable = "avx2")]
unsafe fn load(from: &[u8], at: usize) -> __m256i {
    debug_assert!(at + 32 <= from.len());
    // SAFETY: as the caller promises; the load may be unaligned.
    unsafe { _mm256_loadu_si256(from.as_ptr().add(at).cast()) }
}

/// 32 bytes to `at`.
///
/// # Safety
///
/// They lie within `to`.
#[target_feature(enable = "avx2")]
unsafe fn store(to: &mut [u8], at: usize, value: __m256i) {
    debug_assert!(at + 32 <= to.len());
    // SAFETY: as the caller promises; the store may be unaligned.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().add(at).cast(), value) }
}

/// Times two, in each byte: one place up, and where the highest bit fell off, the modulus.
#[target_feature(enable = "avx2")]
fn double(x: __m256i) -> __m256i {
    let fell = _mm256_cmpgt_epi8(_mm256_setzero_si256(), x);
    _mm256_xor_si256(_mm256_add_epi8(x, x), _mm256_and_si256(fell, _mm256_set1_epi8(0x1d)))
}

/// The plain sum, and the one with powers of two in order.
#[target_feature(enable = "avx2")]
fn ladder<const N: usize>(to: [&mut [u8]; N], addends: &[Addend<'_>], gaps: &Gaps) {
    let len = to[0].len();
    assert!(N == 2 && to[N - 1].len() == len && addends.iter().all(|(from, _)| from.len() >= len));
    for at in (0..len / STEP * STEP).step_by(STEP) {
        let zero = _mm256_setzero_si256();
        let (mut p, mut q) = ([zero; 2], [zero; 2]);
        for (i, (from, _)) in addends.iter().enumerate().rev() {
            for half in 0..2 {
                // SAFETY: a whole step begins at `at`, and lengths were compared above.
                let x = unsafe { load(from, at + 32 * half) };
                p[half] = _mm256_xor_si256(p[half], x);
                q[half] = _mm256_xor_si256(q[half], x);
            }
            for _ in 0..gaps.0[i] {
                q = [double(q[0]), double(q[1])];
            }
        }
        for half in 0..2 {
            // SAFETY: as above.
            unsafe {
                store(to[0], at + 32 * half, p[half]);
                store(to[N - 1], at + 32 * half, q[half]);
            }
        }
    }
}

/// What a factor asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Product {
    Nothing,
    Itself,
    Other,
}

impl Product {
    fn with(factor: u8) -> Product {
        match factor {
            0 => Product::Nothing,
            1 => Product::Itself,
            _ => Product::Other,
        }
    }
}

/// What the targets begin with: nothing, or what earlier groups left there.
///
/// # Safety
///
/// A whole step of each target begins at `at`.
#[target_feature(enable = "avx2")]
unsafe fn begin<const N: usize>(to: &[&mut [u8]; N], at: usize, is_first: bool) -> [[__m256i; 2]; N] {
    let mut sums = [[_mm256_setzero_si256(); 2]; N];
    if !is_first {
        for (sum, to) in sums.iter_mut().zip(to) {
            // SAFETY: as the caller promises.
            *sum = unsafe { [load(to, at), load(to, at + 32)] };
        }
    }
    sums
}

/// Puts sums where they belong.
///
/// # Safety
///
/// A whole step of each target begins at `at`.
#[target_feature(enable = "avx2")]
unsafe fn end<const N: usize>(to: &mut [&mut [u8]; N], at: usize, sums: [[__m256i; 2]; N]) {
    for (to, [low, high]) in to.iter_mut().zip(sums) {
        // SAFETY: as the caller promises.
        unsafe {
            store(to, at, low);
            store(to, at + 32, high);
        }
    }
}

/// Products by two look-ups of half a byte.
#[target_feature(enable = "avx2")]
fn halves<const N: usize>(mut to: [&mut [u8]; N], which: [usize; N], addends: &[Addend<'_>], is_first: bool) {
    let len = to[0].len();
    assert!(to.iter().all(|to| to.len() == len) && addends.iter().all(|(from, _)| from.len() >= len));
    let mut kinds = [[Product::Nothing; N]; GROUP];
    let mut looked_up = [[[_mm256_setzero_si256(); 2]; N]; GROUP];
    for (i, (_, times)) in addends.iter().enumerate() {
        for (target, which) in which.into_iter().enumerate() {
            kinds[i][target] = Product::with(times[which]);
            for (half, table) in tables::halves(times[which]).iter().enumerate() {
                // SAFETY: a table has 16 bytes, and the load may be unaligned.
                let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
                looked_up[i][target][half] = _mm256_broadcastsi128_si256(table);
            }
        }
    }
    let mask = _mm256_set1_epi8(0x0f);
    for at in (0..len / STEP * STEP).step_by(STEP) {
        // SAFETY: a whole step begins at `at`, and lengths were compared above.
        let mut sums = unsafe { begin(&to, at, is_first) };
        for (i, (from, _)) in addends.iter().enumerate() {
            // SAFETY: as for the sums.
            let x = unsafe { [load(from, at), load(from, at + 32)] };
            for half in 0..2 {
                let low = _mm256_and_si256(x[half], mask);
                let high = _mm256_and_si256(_mm256_srli_epi64::<4>(x[half]), mask);
                for target in 0..N {
                    let product = match kinds[i][target] {
                        Product::Nothing => continue,
                        Product::Itself => x[half],
                        Product::Other => {
                            let [of_low, of_high] = looked_up[i][target];
                            _mm256_xor_si256(_mm256_shuffle_epi8(of_low, low), _mm256_shuffle_epi8(of_high, high))
                        }
                    };
                    sums[target][half] = _mm256_xor_si256(sums[target][half], product);
                }
            }
        }
        // SAFETY: as for the sums.
        unsafe { end(&mut to, at, sums) };
    }
}

/// Products by matrices over bits.
#[target_feature(enable = "avx2,gfni")]
fn matrices<const N: usize>(mut to: [&mut [u8]; N], which: [usize; N], addends: &[Addend<'_>], is_first: bool) {
    let len = to[0].len();
    assert!(to.iter().all(|to| to.len() == len) && addends.iter().all(|(from, _)| from.len() >= len));
    let mut kinds = [[Product::Nothing; N]; GROUP];
    let mut factors = [[_mm256_setzero_si256(); N]; GROUP];
    for (i, (_, times)) in addends.iter().enumerate() {
        for (target, which) in which.into_iter().enumerate() {
            kinds[i][target] = Product::with(times[which]);
            factors[i][target] = _mm256_set1_epi64x(tables::matrix(times[which]) as i64);
        }
    }
    for at in (0..len / STEP * STEP).step_by(STEP) {
        // SAFETY: a whole step begins at `at`, and lengths were compared above.
        let mut sums = unsafe { begin(&to, at, is_first) };
        for (i, (from, _)) in addends.iter().enumerate() {
            // SAFETY: as for the sums.
            let x = unsafe { [load(from, at), load(from, at + 32)] };
            for target in 0..N {
                for half in 0..2 {
                    let product = match kinds[i][target] {
                        Product::Nothing => continue,
                        Product::Itself => x[half],
                        Product::Other => _mm256_gf2p8affine_epi64_epi8::<0>(x[half], factors[i][target]),
                    };
                    sums[target][half] = _mm256_xor_si256(sums[target][half], product);
                }
            }
        }
        // SAFETY: as for the sums.
        unsafe { end(&mut to, at, sums) };
    }
}
