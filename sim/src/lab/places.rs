//! Where the next request of a thread is, and how long.
//!
//! A random job that touches each block once walks a permutation: a Feistel network of four rounds over the smallest even
//! power of two that holds all blocks, walked on where it leaves the range (cycle walking, Black and Rogaway 2002). It
//! needs no memory, whatever the size of the volume.

use braid_core::request::Content;

use super::job::{Access, Direction, Job};
use crate::rng::Rng;

/// One request to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// What.
    pub(super) direction: Direction,
    /// First byte.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) len: u64,
    /// Writes with force unit access.
    pub(super) fua: bool,
    /// What it says it is.
    pub(super) content: Content,
}

/// The places of one thread.
#[derive(Clone, Debug)]
pub(super) struct Places {
    first: u64,
    end: u64,
    /// Where the last read and the last change ended.
    at: [u64; 2],
    /// Requests of the present run.
    run: u64,
    order: Option<Order>,
}

impl Places {
    /// The places of thread number so and so, in a volume of so many bytes.
    pub(super) fn new(job: &Job, thread: u64, volume: u64, rng: &mut Rng) -> Places {
        let (first, end) = job.region(thread, volume);
        let one_size =
            job.sizes.iter().all(|sizes| (sizes.min(), sizes.max()) == (job.sizes[0].min(), job.sizes[0].min()));
        let walks = job.access == Access::Random && job.each_once && one_size;
        let blocks = (end - first) / job.sizes[0].min();
        Places { first, end, at: [first; 2], run: 0, order: walks.then(|| Order::new(blocks, rng.next_u64())) }
    }

    /// The next request.
    pub(super) fn next(&mut self, job: &Job, rng: &mut Rng) -> Ask {
        let reads = job.reads == 100 || job.reads > 0 && rng.percent(job.reads);
        let side = usize::from(!reads);
        let direction = if reads { Direction::Read } else { job.changes };
        let len = draw_len(job, side, rng);
        let goes_on = match job.access {
            Access::Sequential => true,
            Access::Random => self.run > 0 && self.run < job.run,
        };
        self.run = if goes_on { self.run + 1 } else { 1 };
        let offset = match goes_on && self.at[side] + len <= self.end {
            true => self.at[side],
            false if job.access == Access::Sequential => self.first,
            false => self.anywhere(job, len, rng),
        };
        self.at[side] = offset + len;
        Ask { direction, offset, len, fua: job.fua, content: job.content }
    }

    fn anywhere(&mut self, job: &Job, len: u64, rng: &mut Rng) -> u64 {
        let step = job.sizes.iter().map(|sizes| sizes.min()).min().expect("two sides");
        let place = match &mut self.order {
            Some(order) => order.next(rng),
            None => rng.below((self.end - self.first - len) / step + 1),
        };
        self.first + place * step
    }
}

fn draw_len(job: &Job, side: usize, rng: &mut Rng) -> u64 {
    let ranges = &job.sizes[side].0;
    let mut die = if ranges.len() == 1 { 0 } else { rng.below(100) };
    let fits = |range: &&super::job::SizeRange| match die < range.percent {
        true => true,
        false => {
            die -= range.percent;
            false
        }
    };
    let range = ranges.iter().find(fits).expect("shares add up to 100");
    match range.min == range.max {
        true => range.min,
        false => rng.between(1, range.max / range.min) * range.min,
    }
}

/// All numbers below `n`, each once, in an order that a key decides; then again in another.
#[derive(Clone, Debug)]
struct Order {
    n: u64,
    half_bits: u32,
    key: u64,
    next: u64,
}

impl Order {
    fn new(n: u64, key: u64) -> Order {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        Order { n, half_bits: bits.div_ceil(2).max(1), key, next: 0 }
    }

    fn next(&mut self, rng: &mut Rng) -> u64 {
        if self.next == self.n {
            (self.key, self.next) = (rng.next_u64(), 0);
        }
        let mut place = self.permuted(self.next);
        while place >= self.n {
            place = self.permuted(place);
        }
        self.next += 1;
        place
    }

    fn permuted(&self, i: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (i >> self.half_bits, i & mask);
        for round in 0..4 {
            let mixed = (right ^ self.key.rotate_left(round * 16)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (left, right) = (right, left ^ (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32 & mask);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_number_once_and_another_order_after_that() {
        let mut rng = Rng::new(7);
        for n in [1, 2, 3, 7, 8000, 65536] {
            let mut order = Order::new(n, 99);
            let mut lap = || -> Vec<u64> { (0..n).map(|_| order.next(&mut rng)).collect() };
            let (first, second) = (lap(), lap());
            for one in [&first, &second] {
                let mut sorted = one.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..n).collect::<Vec<_>>());
            }
            assert!(n < 8 || first != second && first != (0..n).collect::<Vec<_>>(), "{n}");
        }
    }

    #[test]
    fn shares_of_sizes_and_directions_are_kept() {
        use super::super::job::{SizeRange, Sizes};
        let split = Sizes(vec![
            SizeRange { min: 4096, max: 4096, percent: 90 },
            SizeRange { min: 65536, max: 65536, percent: 10 },
        ]);
        let job = Job { access: Access::Random, reads: 70, sizes: [split.clone(), split], ..Job::default() };
        let mut rng = Rng::new(1);
        let mut places = Places::new(&job, 0, 1 << 30, &mut rng);
        let asks: Vec<Ask> = (0..10_000).map(|_| places.next(&job, &mut rng)).collect();
        let reads = asks.iter().filter(|a| a.direction == Direction::Read).count();
        let large = asks.iter().filter(|a| a.len == 65536).count();
        assert!((6_800..7_200).contains(&reads) && (850..1_150).contains(&large), "{reads} {large}");
        assert!(asks.iter().all(|a| a.offset.is_multiple_of(4096) && a.offset + a.len <= 1 << 30));
    }
}
