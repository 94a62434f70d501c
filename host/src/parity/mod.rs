//! Sums of buffers over GF(2^8): what makes P and Q, and what they make up for.
//!
//! ```text
//!  combine([P, Q], [(D0, [1, 1]), (D1, [1, 2]), (D2, [1, 4])])      P = D0 + D1 + D2,  Q = D0 + 2 D1 + 4 D2
//! ```
//!
//! One pass over the sources makes up to two targets, 64 bytes of each at a time, which stay in registers until all
//! sources have been added. Four ways to multiply, the best of which is chosen once:
//!
//! | kernel | a product is |
//! |---|---|
//! | gfni | one instruction: a matrix over bits, so the field is ours to say |
//! | avx2 | two table look-ups of half a byte each, 32 bytes at once |
//! | portable | doublings of eight bytes in a word, which compilers turn into whatever vectors there are |
//! | table | a look-up a byte: the slow, obvious one, and what odd ends of buffers get |
//!
//! Generation of P and Q has factors 1 and 2^i in order. There no product is needed, Q is doubled before each source is
//! added, from the last one down (Horner). Source: H. P. Anvin, "The mathematics of RAID-6"; look-up of halves: J. S.
//! Plank et al., "Screaming fast Galois field arithmetic using Intel SIMD instructions".

mod portable;
mod tables;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

use braid_core::gf;

/// A source, and its factor for each target.
pub type Addend<'a> = (&'a [u8], [u8; 2]);

/// Bytes of each target that are made at a time.
const STEP: usize = 64;
/// Most addends of which the factors are compared; more are just multiplied.
const LADDER_MAX: usize = 64;

/// A way to multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// A byte at a time.
    Table,
    /// Words.
    Portable,
    /// `x86_64` with AVX2.
    Avx2,
    /// `x86_64` with AVX2 and GFNI.
    Gfni,
}

impl Kernel {
    /// All, slowest first.
    pub const ALL: [Kernel; 4] = [Kernel::Table, Kernel::Portable, Kernel::Avx2, Kernel::Gfni];

    /// As tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Table => "table",
            Kernel::Portable => "portable",
            Kernel::Avx2 => "avx2",
            Kernel::Gfni => "gfni",
        }
    }

    /// Whether this processor can.
    pub fn is_here(self) -> bool {
        match self {
            Kernel::Table | Kernel::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Kernel::Gfni => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"),
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Avx2 | Kernel::Gfni => false,
        }
    }

    /// The fastest that this processor can.
    pub fn best() -> Kernel {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Kernel::ALL.into_iter().rev().find(|kernel| kernel.is_here()).unwrap_or(Kernel::Table))
    }
}

/// Each target becomes the sum of all sources times their factor for it; without sources, zeros. What a target held
/// doesn't count.
///
/// All have one length, which may be any; so may alignments. Panics when lengths differ.
pub fn combine(to: [Option<&mut [u8]>; 2], addends: &[Addend<'_>]) {
    combine_with(Kernel::best(), to, addends);
}

/// The same with a kernel of one's choice; one that isn't here is replaced by the best.
pub fn combine_with(kernel: Kernel, to: [Option<&mut [u8]>; 2], addends: &[Addend<'_>]) {
    let kernel = if kernel.is_here() { kernel } else { Kernel::best() };
    match to {
        [Some(a), Some(b)] => run(kernel, [a, b], [0, 1], addends),
        [Some(a), None] => run(kernel, [a], [0], addends),
        [None, Some(b)] => run(kernel, [b], [1], addends),
        [None, None] => {}
    }
}

/// `which`: the factors of each target.
fn run<const N: usize>(kernel: Kernel, to: [&mut [u8]; N], which: [usize; N], addends: &[Addend<'_>]) {
    let len = to[0].len();
    assert!(to.iter().all(|to| to.len() == len), "targets differ in length");
    assert!(addends.iter().all(|(from, _)| from.len() == len), "a source has another length than its target");
    let whole = if kernel == Kernel::Table { 0 } else { len / STEP * STEP };
    let mut ends = to.map(|to| to.split_at_mut(whole));
    let gaps = Gaps::of(which, addends);
    let work = Work { which, addends, gaps: gaps.as_ref() };
    let to = ends.each_mut().map(|end| &mut *end.0);
    if whole > 0 {
        match kernel {
            Kernel::Table => {}
            Kernel::Portable => portable::sum(to, &work),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => x86::sum_avx2(to, &work),
            #[cfg(target_arch = "x86_64")]
            Kernel::Gfni => x86::sum_gfni(to, &work),
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Avx2 | Kernel::Gfni => portable::sum(to, &work),
        }
    }
    for (end, which) in ends.iter_mut().zip(which) {
        by_table(end.1, whole, which, addends);
    }
}

/// What a kernel gets beside its targets. Sources are at least as long as targets, which are whole steps.
struct Work<'a, 'b, const N: usize> {
    which: [usize; N],
    addends: &'b [Addend<'a>],
    gaps: Option<&'b Gaps>,
}

/// The twin of all kernels, and the end of buffers that is no whole step: sources from `skip` on.
fn by_table(to: &mut [u8], skip: usize, which: usize, addends: &[Addend<'_>]) {
    to.fill(0);
    for (from, times) in addends {
        let table = tables::products(times[which]);
        to.iter_mut().zip(&from[skip..]).for_each(|(to, &from)| *to ^= table[usize::from(from)]);
    }
}

/// Doublings before each source is added, from the last one down.
struct Gaps([u8; LADDER_MAX]);

impl Gaps {
    /// If the first target is a plain sum and the factors of the second are powers of two that don't fall. Doublings in all
    /// are at most twice the sources: past that, products are cheaper.
    fn of<const N: usize>(which: [usize; N], addends: &[Addend<'_>]) -> Option<Gaps> {
        if N != 2 || addends.len() > LADDER_MAX {
            return None;
        }
        let (mut gaps, mut last) = (Gaps([0; LADDER_MAX]), 0);
        for (i, (_, times)) in addends.iter().enumerate() {
            let power = gf::log2(times[which[N - 1]]).filter(|_| times[which[0]] == 1)?;
            gaps.0[i] = power.checked_sub(last)? as u8;
            last = power;
        }
        (last <= 2 * addends.len()).then_some(gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % n
        }

        fn bytes(&mut self, len: usize) -> Vec<u8> {
            (0..len).map(|_| self.below(256) as u8).collect()
        }
    }

    /// The twin's twin: byte by byte, with the arithmetic of the core.
    fn by_hand(which: usize, len: usize, addends: &[Addend<'_>]) -> Vec<u8> {
        (0..len).map(|i| addends.iter().fold(0, |sum, (from, times)| sum ^ gf::mul(from[i], times[which]))).collect()
    }

    /// All kernels, all sets of targets, in memory that is not aligned; what stands around it stays.
    fn check(dice: &mut Dice, len: usize, times: &[[u8; 2]]) {
        let sources: Vec<(usize, Vec<u8>)> = times
            .iter()
            .map(|_| {
                let skip = dice.below(40);
                (skip, dice.bytes(skip + len))
            })
            .collect();
        let addends: Vec<Addend<'_>> =
            sources.iter().zip(times).map(|((skip, bytes), times)| (&bytes[*skip..], *times)).collect();
        let expected = [0, 1].map(|which| by_hand(which, len, &addends));
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_here()) {
            for wanted in [[true, true], [true, false], [false, true], [false, false]] {
                let (before, after) = (dice.below(70), dice.below(70));
                let mut memory = [0, 1].map(|_| dice.bytes(before + len + after));
                let old = memory.clone();
                let mut which = 0;
                let to = memory.each_mut().map(|memory| {
                    which += 1;
                    wanted[which - 1].then_some(&mut memory[before..before + len])
                });
                combine_with(kernel, to, &addends);
                for which in 0..2 {
                    let made = &memory[which][before..before + len];
                    let right = if wanted[which] { &expected[which][..] } else { &old[which][before..before + len] };
                    assert!(made == right, "{} {len} bytes, {times:?}, {wanted:?}", kernel.name());
                    let outside = |m: &[u8]| [&m[..before], &m[before + len..]].concat();
                    assert_eq!(outside(&memory[which]), outside(&old[which]), "{} wrote elsewhere", kernel.name());
                }
            }
        }
    }

    #[test]
    fn every_factor_and_every_byte() {
        let all: Vec<u8> = (0..=255).collect();
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_here()) {
            for factor in 0..=255 {
                let mut made = [vec![7; 256], vec![7; 256]];
                let [a, b] = &mut made;
                combine_with(kernel, [Some(a), Some(b)], &[(&all, [factor, 255 - factor])]);
                for (made, factor) in made.iter().zip([factor, 255 - factor]) {
                    let right: Vec<u8> = all.iter().map(|&byte| gf::mul(byte, factor)).collect();
                    assert_eq!(*made, right, "{} times {factor}", kernel.name());
                }
            }
        }
    }

    #[test]
    fn kernels_agree_on_odd_lengths_places_and_factors() {
        let dice = &mut Dice(5);
        for round in 0..600 {
            let len = if round < 200 { round } else { dice.below(1500) };
            let times: Vec<[u8; 2]> = (0..dice.below(if round % 50 == 0 { 80 } else { 7 }))
                .map(|_| [0, 1].map(|_| odd_factor(dice)))
                .collect();
            check(dice, len, &times);
        }
    }

    fn odd_factor(dice: &mut Dice) -> u8 {
        match dice.below(4) {
            0 => 0,
            1 => 1,
            _ => dice.below(256) as u8,
        }
    }

    #[test]
    fn powers_in_order_are_doubled_and_others_are_not() {
        let dice = &mut Dice(6);
        let generate = |n: usize| (0..n).map(|i| [1, gf::pow2(i)]).collect::<Vec<_>>();
        for n in [1, 2, 4, 8, 16, 62, 64, 65, 70] {
            let len = 64 * dice.below(20) + dice.below(64);
            check(dice, len, &generate(n));
        }
        // What was and what will be of one member, gaps, a late beginning, too wide gaps, a fall, and not a sum.
        let lists: [(&[[u8; 2]], bool); 8] = [
            (&[[1, 1], [1, 2], [1, 4]], true),
            (&[[1, 1], [1, 1], [1, 4], [1, 16]], true),
            (&[[1, 4], [1, 8]], true),
            (&[[1, 8], [1, 128]], false),
            (&[[1, 2], [1, 1]], false),
            (&[[1, 1], [2, 2]], false),
            (&[[1, 1], [1, 0]], false),
            (&[], true),
        ];
        for (times, doubled) in lists {
            let addends: Vec<Addend<'_>> = times.iter().map(|times| (&[][..], *times)).collect();
            assert_eq!(Gaps::of([0, 1], &addends).is_some(), doubled, "{times:?}");
            check(dice, 777, times);
        }
    }

    #[test]
    fn nothing_is_zeros() {
        let mut made = [1; 100];
        combine([None, Some(&mut made)], &[]);
        assert_eq!(made, [0; 100]);
    }

    #[test]
    #[should_panic(expected = "another length")]
    fn lengths_are_compared() {
        combine([Some(&mut [0; 100]), None], &[(&[0; 99], [1, 1])]);
    }

    /// P and Q of Linux `lib/raid6` for a column of bytes, by hand: D = 01 02 03, Q = 01 + 2*02 + 4*03.
    #[test]
    fn worked_example() {
        let (mut p, mut q) = ([0; 200], [0; 200]);
        let addends: [Addend<'_>; 3] = [(&[1; 200], [1, 1]), (&[2; 200], [1, 2]), (&[0x80; 200], [1, 4])];
        combine([Some(&mut p), Some(&mut q)], &addends);
        // 2 * 0x80 = 0x100 + 0x11d = 0x1d, and twice that is 0x3a.
        assert_eq!((p, q), ([1 ^ 2 ^ 0x80; 200], [1 ^ 4 ^ 0x3a; 200]));
    }
}
