//! The published stripe arithmetic: the device-mapper `striped` target and its merge callback.
//!
//! braid's own chunks are laid out by [`crate::profile`]; this is the older relative, kept exact so that its
//! published numbers can be replayed. Everything here is in sectors of 512 bytes unless a name says bytes.
//!
//! ```text
//!   o = sector - begin    k = o / chunk    r = o mod chunk
//!   stripe k mod n,  sector base + (k / n) * chunk + r
//! ```
//!
//! Sources: Linux `drivers/md/dm-stripe.c` and, for the merge callback (2.6.39 to 4.2), `dm_merge_bvec` in
//! `drivers/md/dm.c`. Error counting and the opening of devices are the host's business.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;

/// One leg of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The device, as the constructor names it.
    pub device: String,
    /// First sector used on it.
    pub base: u64,
}

/// A striped target: sectors `[begin, begin + len)` dealt to devices in chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    begin: u64,
    len: u64,
    chunk: u64,
    stripes: Vec<Stripe>,
}

/// Why a target cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The number of stripes is 0, missing or no number.
    Stripes,
    /// The chunk size is 0, missing or no number.
    Chunk,
    /// The length is not a multiple of the number of stripes.
    Length,
    /// A stripe's length is not a multiple of the chunk.
    StripeLength,
    /// Not exactly two words (device, first sector) for each stripe.
    Arguments,
    /// A first sector is no number, or the stripe would pass the end of all sector numbers.
    Start,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Invalid::Stripes => "the number of stripes must be a number from 1",
            Invalid::Chunk => "the chunk size must be a number of sectors from 1",
            Invalid::Length => "the target length is not divisible by the number of stripes",
            Invalid::StripeLength => "the length of a stripe is not divisible by the chunk size",
            Invalid::Arguments => "each stripe needs a device and a first sector, and nothing may follow",
            Invalid::Start => "the first sector of a stripe is not valid",
        })
    }
}

/// What the target tells those above it, in bytes; 0 = unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Smallest I/O that is worth it: one chunk.
    pub io_min: u64,
    /// Best I/O: one chunk on every device.
    pub io_opt: u64,
    /// No I/O crosses a multiple of this.
    pub boundary: u64,
}

impl Target {
    /// A target over `stripes`, nothing set up unless all checks pass.
    pub fn new(begin: u64, len: u64, chunk: u64, stripes: Vec<Stripe>) -> Result<Target, Invalid> {
        let n = stripes.len() as u64;
        if n == 0 {
            return Err(Invalid::Stripes);
        }
        if chunk == 0 {
            return Err(Invalid::Chunk);
        }
        if !len.is_multiple_of(n) {
            return Err(Invalid::Length);
        }
        if !(len / n).is_multiple_of(chunk) {
            return Err(Invalid::StripeLength);
        }
        let fits = |stripe: &Stripe| stripe.base.checked_add(len / n).is_some();
        if begin.checked_add(len).is_none() || !stripes.iter().all(fits) {
            return Err(Invalid::Start);
        }
        Ok(Target { begin, len, chunk, stripes })
    }

    /// A target from the words of the constructor: `<stripes> <chunk> (<device> <first sector>)*`.
    pub fn parse(begin: u64, len: u64, args: &str) -> Result<Target, Invalid> {
        let words: Vec<&str> = args.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).filter(|&value| value > 0);
        let n = number(0).ok_or(Invalid::Stripes)?;
        let chunk = number(1).ok_or(Invalid::Chunk)?;
        if n.checked_mul(2) != Some(words.len() as u64 - 2) {
            return Err(Invalid::Arguments);
        }
        let stripe = |pair: &[&str]| {
            let base = pair[1].parse().map_err(|_| Invalid::Start)?;
            Ok(Stripe { device: pair[0].to_string(), base })
        };
        Target::new(begin, len, chunk, words[2..].chunks_exact(2).map(stripe).collect::<Result<_, _>>()?)
    }

    /// The legs, in order.
    pub fn stripes(&self) -> &[Stripe] {
        &self.stripes
    }

    /// Where a sector stands: the stripe and the sector on its device. `None` outside the target.
    pub fn map(&self, sector: u64) -> Option<(usize, u64)> {
        let (stripe, row, rest) = self.locate(self.inside(sector)?);
        Some((stripe, self.stripes[stripe].base + row * self.chunk + rest))
    }

    /// Longest I/O from this sector: to the end of its chunk, 0 outside the target.
    pub fn max_io(&self, sector: u64) -> u64 {
        self.inside(sector).map_or(0, |offset| self.chunk - divide(offset, self.chunk).1)
    }

    /// What the target advertises. A product that overflows becomes 0, unknown, and never a small wrong number.
    pub fn limits(&self) -> Limits {
        let io_min = self.chunk.checked_mul(SECTOR).unwrap_or(0);
        let io_opt = io_min.checked_mul(self.stripes.len() as u64).unwrap_or(0);
        Limits { io_min, io_opt, boundary: io_min }
    }

    /// The devices that a flush goes to: each once. No sector is translated.
    pub fn flush(&self) -> Range<usize> {
        0..self.stripes.len()
    }

    /// For each stripe the one contiguous run (first sector on its device, length) that `[start, start + len)`
    /// covers; `None` = nothing, completed with success at once. Also for write-zeroes and secure erase.
    pub fn discard(&self, start: u64, len: u64) -> Vec<Option<(u64, u64)>> {
        let clip = |sector: u64| sector.saturating_sub(self.begin).min(self.len);
        let (from, to) = (clip(start), clip(start.saturating_add(len)));
        self.flush()
            .map(|stripe| {
                let (first, end) = (self.edge(from, stripe), self.edge(to, stripe));
                (first < end).then(|| (self.stripes[stripe].base + first, end - first))
            })
            .collect()
    }

    /// How many sectors of `stripe` lie before `offset`: in its own chunk exactly so many, else whole chunks, one
    /// more for the stripes that this row has already passed.
    fn edge(&self, offset: u64, stripe: usize) -> u64 {
        let (at, row, rest) = self.locate(offset);
        row * self.chunk
            + match at.cmp(&stripe) {
                core::cmp::Ordering::Equal => rest,
                core::cmp::Ordering::Greater => self.chunk,
                core::cmp::Ordering::Less => 0,
            }
    }

    /// Stripe, row and sector within the chunk.
    fn locate(&self, offset: u64) -> (usize, u64, u64) {
        let (chunk, rest) = divide(offset, self.chunk);
        let (row, stripe) = divide(chunk, self.stripes.len() as u64);
        (stripe as usize, row, rest)
    }

    fn inside(&self, sector: u64) -> Option<u64> {
        sector.checked_sub(self.begin).filter(|&offset| offset < self.len)
    }
}

/// Shift and mask for powers of two; the results are the same.
fn divide(value: u64, by: u64) -> (u64, u64) {
    if by.is_power_of_two() { (value >> by.trailing_zeros(), value & (by - 1)) } else { (value / by, value % by) }
}

/// How often each routine ran: the columns of the published table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// I/Os mapped; a flush counts once for each stripe.
    pub map_calls: u64,
    /// Sectors translated, for mapping and for merge questions alike.
    pub sector_calls: u64,
    /// Questions that reached the target's merge callback.
    pub merge_calls: u64,
}

/// An I/O that grows page by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growing {
    /// First sector.
    pub sector: u64,
    /// Bytes so far.
    pub bytes: u64,
}

/// An underlying queue's own merge function: how many bytes it accepts at a sector of that stripe's device.
pub type MergeFn<'a> = &'a dyn Fn(usize, u64) -> u64;

/// What stands around the target when an I/O grows.
#[derive(Clone, Copy)]
pub struct Stack<'a> {
    /// Largest I/O of the stacked queue, in sectors.
    pub queue_max: u64,
    /// Bytes of a page.
    pub page: u64,
    /// The target has the merge callback (since 2.6.39).
    pub callback: bool,
    /// The underlying queues have a merge function of their own, as every stacked device does.
    pub below: Option<MergeFn<'a>>,
}

impl Stack<'_> {
    /// Largest I/O that the stacked queue takes, in sectors: a single page when an underlying merge function could
    /// not be asked. That was the limit the callback removed.
    pub fn max_sectors(&self) -> u64 {
        if !self.callback && self.below.is_some() { self.page / SECTOR } else { self.queue_max }
    }
}

/// A target in use, with its counters.
#[derive(Clone, Debug)]
pub struct Counted<'a> {
    /// The target.
    pub target: &'a Target,
    /// What it did so far.
    pub counters: Counters,
}

impl<'a> Counted<'a> {
    /// Nothing counted yet.
    pub fn new(target: &'a Target) -> Self {
        Counted { target, counters: Counters::default() }
    }

    /// Maps an I/O that starts at `sector`.
    pub fn map(&mut self, sector: u64) -> Option<(usize, u64)> {
        self.counters.map_calls += 1;
        self.translate(sector)
    }

    /// Maps a flush: the devices it goes to.
    pub fn flush(&mut self) -> Range<usize> {
        self.counters.map_calls += self.target.stripes.len() as u64;
        self.target.flush()
    }

    /// How many more bytes the I/O may take; a page is added if it is not longer than the answer.
    ///
    /// The first page always goes in, even over the end of a chunk: splitting repairs it later.
    pub fn merge(&mut self, io: Growing, page_len: u64, stack: &Stack<'_>) -> u64 {
        let room = self.target.max_io(io.sector).min(stack.queue_max).saturating_mul(SECTOR).saturating_sub(io.bytes);
        let accepted = match (room, stack.callback, stack.below) {
            (0, ..) | (_, false, Some(_)) => 0,
            (_, false, None) => room,
            (_, true, below) => self.callback(io.sector, room, below),
        };
        if io.bytes == 0 { accepted.max(page_len) } else { accepted }
    }

    /// The target's merge callback: what the underlying device says, translated to its sectors.
    fn callback(&mut self, sector: u64, room: u64, below: Option<MergeFn<'_>>) -> u64 {
        self.counters.merge_calls += 1;
        match (self.translate(sector), below) {
            (Some((stripe, at)), Some(below)) => room.min(below(stripe, at)),
            _ => room,
        }
    }

    fn translate(&mut self, sector: u64) -> Option<(usize, u64)> {
        self.counters.sector_calls += 1;
        self.target.map(sector)
    }
}

/// Direct I/O from the begin of the target as the published test did it: `passes` times over `bytes` in records of
/// `record` bytes, each grown page by page and sent when a page is refused or the record ends, then a flush.
///
/// Record and total are whole pages; a partial page at an end is left out.
pub fn replay(target: &Target, passes: u32, bytes: u64, record: u64, stack: &Stack<'_>) -> Counters {
    let mut counted = Counted::new(target);
    if stack.page < SECTOR || record < stack.page {
        return counted.counters;
    }
    for _ in 0..passes {
        let mut at = 0;
        while at < bytes {
            let end = at.saturating_add(record).min(bytes);
            while end - at >= stack.page {
                at += grow(&mut counted, at, end, stack);
            }
            at = end;
        }
        counted.flush();
    }
    counted.counters
}

/// Grows one I/O from byte `at`, maps it, and says how long it became.
fn grow(counted: &mut Counted<'_>, at: u64, end: u64, stack: &Stack<'_>) -> u64 {
    let mut io = Growing { sector: counted.target.begin.saturating_add(at / SECTOR), bytes: 0 };
    while end - at - io.bytes >= stack.page && counted.merge(io, stack.page, stack) >= stack.page {
        io.bytes += stack.page;
    }
    counted.map(io.sector);
    io.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::{format, vec};

    fn target(begin: u64, len: u64, chunk: u64, bases: &[u64]) -> Target {
        let stripe = |(i, &base): (usize, &u64)| Stripe { device: format!("d{i}"), base };
        Target::new(begin, len, chunk, bases.iter().enumerate().map(stripe).collect()).unwrap()
    }

    const PLAIN: Stack<'static> = Stack { queue_max: 2048, page: 4096, callback: true, below: None };

    fn ask(stack: &Stack<'_>, sector: u64, bytes: u64) -> (u64, u64) {
        let target = target(0, 4096, 128, &[0, 0]);
        let mut counted = Counted::new(&target);
        (counted.merge(Growing { sector, bytes }, 4096, stack), counted.counters.merge_calls)
    }

    #[test]
    fn v4_01_and_02_sectors() {
        let t = target(0, 512, 128, &[0, 0]);
        let mapped = [0, 127, 128, 255, 256, 383].map(|s| t.map(s).unwrap());
        assert_eq!(mapped, [(0, 0), (0, 127), (1, 0), (1, 127), (0, 128), (0, 255)]);

        let t = target(1000, 720, 24, &[2048, 4096, 0]);
        let mapped = [1000, 1023, 1024, 1071, 1072, 1100].map(|s| t.map(s).unwrap());
        assert_eq!(mapped, [(0, 2048), (0, 2071), (1, 4096), (2, 23), (0, 2072), (1, 4124)]);
        assert_eq!([999, 1720].map(|s| t.map(s)), [None, None]);
        assert_eq!([1000, 1023, 1024, 999].map(|s| t.max_io(s)), [24, 1, 24, 0]);
    }

    #[test]
    fn v4_03_refused_constructions() {
        let rows = [
            (1000, "3 4 a 0 b 0 c 0", Invalid::Length),
            (300, "3 64 a 0 b 0 c 0", Invalid::StripeLength),
            (300, "0 64", Invalid::Stripes),
            (512, "2 128 a 0 b", Invalid::Arguments),
            (512, "2 128 a 0 b 0 c", Invalid::Arguments),
            (512, "2 0 a 0 b 0", Invalid::Chunk),
            (512, "2", Invalid::Chunk),
            (512, "", Invalid::Stripes),
            (512, "-2 128 a 0 b 0", Invalid::Stripes),
            (512, "2 128 a 0 b x", Invalid::Start),
            (512, "2 128 a 0 b 18446744073709551615", Invalid::Start),
            (512, "18446744073709551615 128 a 0", Invalid::Arguments),
        ];
        for (len, args, why) in rows {
            assert_eq!(Target::parse(0, len, args), Err(why), "{len} {args}");
        }
        let good = Target::parse(0, 512, "2 128 d0 7 d1 0").unwrap();
        assert_eq!(good, target(0, 512, 128, &[7, 0]));
    }

    #[test]
    fn v4_04_to_06_discards() {
        assert_eq!(target(0, 1024, 128, &[0, 0]).discard(64, 256), [Some((64, 128)), Some((0, 128))]);
        assert_eq!(target(0, 1024, 128, &[0; 4]).discard(0, 128), [Some((0, 128)), None, None, None]);
        let thirds = [Some((100, 188)), Some((0, 256)), Some((0, 256))];
        assert_eq!(target(0, 1152, 128, &[0; 3]).discard(100, 700), thirds);
    }

    #[test]
    fn v4_07_and_08_merge_over_plain_disks() {
        // (sector, bytes so far) -> (accepted, did the target have to answer)
        let rows = [
            ((0, 0), (65536, 1)),
            ((0, 61440), (4096, 1)),
            ((0, 65536), (0, 0)),
            ((120, 0), (4096, 1)),
            ((124, 0), (4096, 1)),
            ((8, 4096), (57344, 1)),
        ];
        for ((sector, bytes), expected) in rows {
            assert_eq!(ask(&PLAIN, sector, bytes), expected, "sector {sector}, {bytes} bytes");
        }
    }

    #[test]
    fn v4_09_merge_asks_below_with_the_translated_sector() {
        let below = |stripe: usize, sector: u64| if (stripe, sector) == (1, 8) { 8192 } else { 12288 };
        let stack = Stack { below: Some(&below), ..PLAIN };
        assert_eq!(ask(&stack, 136, 0), (8192, 1));
        assert_eq!(ask(&stack, 0, 0), (12288, 1));
    }

    #[test]
    fn v4_10_without_the_callback_one_page_is_all() {
        let below = |_: usize, _: u64| 65536;
        let stack = Stack { callback: false, below: Some(&below), ..PLAIN };
        assert_eq!((ask(&stack, 0, 0), ask(&stack, 0, 4096)), ((4096, 0), (0, 0)));
        assert_eq!(stack.max_sectors(), 8);
        assert_eq!(PLAIN.max_sectors(), 2048);
        assert_eq!(Stack { callback: false, ..PLAIN }.max_sectors(), 2048);
    }

    /// `003_dm_stripe_map_calls.csv`: record KiB, sector calls, map calls, merge calls.
    const PUBLISHED: [(u64, u64, u64, u64); 7] = [
        (4, 2097152, 1048592, 1048576),
        (8, 1572864, 524304, 1048576),
        (16, 1310720, 262160, 1048576),
        (32, 1179648, 131088, 1048576),
        (64, 1114112, 65552, 1048576),
        (128, 1114112, 65552, 1048576),
        (256, 1114112, 65552, 1048576),
    ];

    #[test]
    fn v4_11_the_published_counts() {
        let bytes = 2048 << 20;
        let target = target(0, bytes / SECTOR, 128, &[0; 8]);
        for (record_kib, sector_calls, map_calls, merge_calls) in PUBLISHED {
            let expected = Counters { map_calls, sector_calls, merge_calls };
            assert_eq!(replay(&target, 2, bytes, record_kib << 10, &PLAIN), expected, "record {record_kib} KiB");
        }
    }

    #[test]
    fn v4_12_flush() {
        let target = target(0, 1024, 128, &[0; 8]);
        let mut counted = Counted::new(&target);
        assert_eq!(counted.flush().count(), 8);
        assert_eq!(counted.counters, Counters { map_calls: 8, ..Counters::default() });
    }

    #[test]
    fn limits_are_unknown_rather_than_wrong() {
        let kib64 = Limits { io_min: 65536, io_opt: 524288, boundary: 65536 };
        assert_eq!(target(0, 1024, 128, &[0; 8]).limits(), kib64);
        let huge = 1 << 54;
        assert_eq!(
            target(0, 4 * huge, huge, &[0; 4]).limits(),
            Limits { io_min: 1 << 63, io_opt: 0, boundary: 1 << 63 }
        );
        assert_eq!(target(0, 4 * huge, 4 * huge, &[0]).limits().io_min, 0);
    }

    /// The twin deals sectors one by one.
    #[test]
    fn map_and_discard_agree_with_dealing_sectors() {
        for chunk in 1..=4 {
            for n in 1..=4 {
                let (begin, len) = (5, 3 * chunk * n as u64);
                let bases: Vec<u64> = (0..n).map(|i| 100 * i as u64).collect();
                let t = target(begin, len, chunk, &bases);
                let mut fill = bases.clone();
                let twin: Vec<(usize, u64)> = (0..len)
                    .map(|o| {
                        let stripe = (o / chunk) as usize % n;
                        fill[stripe] += 1;
                        (stripe, fill[stripe] - 1)
                    })
                    .collect();
                for o in 0..len {
                    assert_eq!(t.map(begin + o), Some(twin[o as usize]), "chunk {chunk}, {n} stripes, {o}");
                }
                // One sector beyond each end: clipped.
                for start in begin - 1..=begin + len + 1 {
                    for end in start..=begin + len + 1 {
                        let mut expected = vec![BTreeSet::new(); n];
                        for sector in start.max(begin)..end.min(begin + len) {
                            let (stripe, at) = twin[(sector - begin) as usize];
                            expected[stripe].insert(at);
                        }
                        let ours: Vec<BTreeSet<u64>> = t
                            .discard(start, end - start)
                            .into_iter()
                            .map(|run| run.map_or(BTreeSet::new(), |(first, len)| (first..first + len).collect()))
                            .collect();
                        assert_eq!(ours, expected, "chunk {chunk}, {n} stripes, [{start}, {end})");
                    }
                }
            }
        }
    }
}
