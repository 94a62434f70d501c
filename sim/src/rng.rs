//! xoshiro256++ by Blackman and Vigna (public domain), seeded by splitmix64: a seed means the same for ever.

/// A generator.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Rng {
        let mut x = seed;
        Rng(std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `n`; 0 of nothing.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `[low, high]`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An exponential drawing with this mean, in whole numbers: von Neumann's comparisons (1951) instead of a logarithm.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        if mean == 0 {
            return 0;
        }
        let mut whole = 0;
        loop {
            let first = self.next_u64();
            let (mut last, mut falling) = (first, 1u32);
            while let Some(next) = Some(self.next_u64()).filter(|next| *next < last) {
                (last, falling) = (next, falling + 1);
            }
            if falling % 2 == 1 {
                return whole * mean + ((u128::from(first) * u128::from(mean)) >> 64) as u64;
            }
            whole += 1;
        }
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponential_has_its_mean_and_no_memory() {
        let mut rng = Rng::new(1);
        let drawn: Vec<u64> = (0..100_000).map(|_| rng.exponential(1000)).collect();
        let mean = drawn.iter().sum::<u64>() / drawn.len() as u64;
        assert!((985..=1015).contains(&mean), "{mean}");
        // e^-1, e^-2, e^-3 of them are left.
        for (at, left) in [(1000, 36_788), (2000, 13_534), (3000, 4_979)] {
            let beyond = drawn.iter().filter(|ns| **ns >= at).count();
            assert!(beyond.abs_diff(left) < 500, "{beyond} beyond {at}");
        }
        assert_eq!(rng.exponential(0), 0);
    }

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut rng = Rng::new(0);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [5987356902031041503, 7051070477665621255, 6633766593972829180]);
    }
}
