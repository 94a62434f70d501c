//! What a device queue tells of itself: by class and by stage of an I/O's life.
//!
//! ```text
//!   admitted ------ queue ------> dispatched ------ device ------> completed
//!       '--------------------------- total -----------------------------'
//! ```
//!
//! Everything counts I/Os as they were before merging, each under its own class, except the sizes of commands. A
//! class that rides along in another one's command is seen here as what it is.

use alloc::boxed::Box;

use super::class::Class;

/// Buckets of a histogram: the last holds everything above 2^37 (ns: 137 s; bytes: 128 GiB).
pub const BUCKETS: usize = 39;

/// Counts by powers of two: bucket `i` holds values in (2^(i-1), 2^i], bucket 0 holds 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// How many fell in each bucket.
    pub counts: [u64; BUCKETS],
    /// Sum of all values, for the mean.
    pub sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::EMPTY
    }
}

impl Histogram {
    /// Without any value.
    pub const EMPTY: Histogram = Histogram { counts: [0; BUCKETS], sum: 0 };

    /// The bucket of a value.
    #[must_use]
    pub const fn bucket_of(value: u64) -> usize {
        if value <= 1 {
            return 0;
        }
        let bucket = 64 - (value - 1).leading_zeros() as usize;
        if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
    }

    /// The largest value of a bucket.
    #[must_use]
    pub const fn upper_bound(bucket: usize) -> u64 {
        1 << bucket
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.counts[Histogram::bucket_of(value)] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// How many values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Mean of the values; 0 without any.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count()).unwrap_or(0)
    }

    /// Upper bound of the bucket below which `permille` of the values lie; 0 without any.
    #[must_use]
    pub fn quantile(&self, permille: u64) -> u64 {
        let wanted = (self.count() * permille).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Histogram::upper_bound(bucket);
            }
        }
        0
    }

    /// Adds another one's values.
    pub fn add(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// What one class of one device has and had since the pool was opened.
///
/// An I/O changes a dozen of its numbers, and with thousands of devices none of them is in a cache of the processor. So those that
/// change each time stand together, and so do the buckets of histograms that usually grow together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct ClassStats {
    /// I/Os that wait in the queue now.
    pub queued: u32,
    /// I/Os on the device now.
    pub active: u32,
    /// Commands on the device now that count against this class.
    pub commands: u32,
    /// Most of those at once.
    pub peak: u32,
    /// I/Os that left for the device.
    pub left: u64,
    /// I/Os completed.
    pub ios: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Sums of [`Time`], in ns.
    time_sums: [u64; 3],
    /// And of [`Size`], in bytes.
    size_sums: [u64; 2],
    /// Those that left and were still there when the batch they came in was over: something made them wait.
    pub waited: u64,
    /// Sum of the times in the queue of those, in ns.
    pub waited_ns: u64,
    /// Histograms of [`Time`], side by side.
    times: [[u64; 3]; BUCKETS],
    /// And of [`Size`].
    sizes: [[u64; 2]; BUCKETS],
}

/// A stage of an I/O's life.
#[derive(Clone, Copy)]
enum Time {
    Queue,
    Device,
    Total,
}

/// Of I/Os before they merge, and of commands.
#[derive(Clone, Copy)]
enum Size {
    Before,
    After,
}

impl ClassStats {
    /// Of a class without I/Os.
    const NONE: ClassStats = ClassStats {
        queued: 0,
        active: 0,
        commands: 0,
        peak: 0,
        left: 0,
        ios: 0,
        bytes: 0,
        time_sums: [0; 3],
        size_sums: [0; 2],
        waited: 0,
        waited_ns: 0,
        times: [[0; 3]; BUCKETS],
        sizes: [[0; 2]; BUCKETS],
    };

    /// ns from admission to dispatch.
    #[must_use]
    pub fn queue_ns(&self) -> Histogram {
        self.times_of(Time::Queue)
    }

    /// ns from dispatch to completion.
    #[must_use]
    pub fn device_ns(&self) -> Histogram {
        self.times_of(Time::Device)
    }

    /// ns from admission to completion.
    #[must_use]
    pub fn total_ns(&self) -> Histogram {
        self.times_of(Time::Total)
    }

    /// Bytes of I/Os before merging.
    #[must_use]
    pub fn size_before(&self) -> Histogram {
        self.sizes_of(Size::Before)
    }

    /// Bytes of commands that count against this class.
    #[must_use]
    pub fn size_after(&self) -> Histogram {
        self.sizes_of(Size::After)
    }

    fn times_of(&self, time: Time) -> Histogram {
        column(&self.times, &self.time_sums, time as usize)
    }

    fn sizes_of(&self, size: Size) -> Histogram {
        column(&self.sizes, &self.size_sums, size as usize)
    }

    fn record_time(&mut self, time: Time, ns: u64) {
        record(&mut self.times, &mut self.time_sums, time as usize, ns);
    }

    fn record_size(&mut self, size: Size, bytes: u64) {
        record(&mut self.sizes, &mut self.size_sums, size as usize, bytes);
    }
}

/// One of several histograms that lie side by side.
fn column<const N: usize>(buckets: &[[u64; N]; BUCKETS], sums: &[u64; N], which: usize) -> Histogram {
    Histogram { counts: buckets.map(|bucket| bucket[which]), sum: sums[which] }
}

/// As [`Histogram::record`], in one of them.
fn record<const N: usize>(buckets: &mut [[u64; N]; BUCKETS], sums: &mut [u64; N], which: usize, value: u64) {
    buckets[Histogram::bucket_of(value)][which] += 1;
    sums[which] = sums[which].saturating_add(value);
}

impl Default for ClassStats {
    fn default() -> Self {
        ClassStats::NONE
    }
}

/// Of all classes. One that no I/O was of takes no memory: it is 1.6 KiB, times nine classes, times ten thousand members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// By [`Class::index`].
    classes: [Option<Box<ClassStats>>; Class::COUNT],
}

/// What a class has that no I/O was of.
static NONE: ClassStats = ClassStats::NONE;

/// Apart, and so not in the way of every other I/O.
#[cold]
#[inline(never)]
fn first_of_a_class() -> Box<ClassStats> {
    Box::default()
}

impl QueueStats {
    /// What a class has and had.
    #[must_use]
    pub fn class(&self, class: Class) -> &ClassStats {
        self.classes[class.index()].as_deref().unwrap_or(&NONE)
    }

    /// All classes and what they have and had.
    pub fn all(&self) -> impl Iterator<Item = (Class, &ClassStats)> {
        Class::ALL.into_iter().map(|class| (class, self.class(class)))
    }

    fn class_mut(&mut self, class: Class) -> &mut ClassStats {
        self.classes[class.index()].get_or_insert_with(first_of_a_class)
    }

    /// An I/O joined the queue.
    pub fn admitted(&mut self, class: Class, len: u64) {
        let stats = self.class_mut(class);
        stats.queued += 1;
        stats.record_size(Size::Before, len);
    }

    /// It left, as a part of a command; `stayed` if a batch ended since it came.
    pub fn dispatched(&mut self, class: Class, waited_ns: u64, stayed: bool) {
        let stats = self.class_mut(class);
        stats.queued -= 1;
        stats.active += 1;
        stats.left += 1;
        stats.record_time(Time::Queue, waited_ns);
        if stayed {
            stats.waited += 1;
            stats.waited_ns = stats.waited_ns.saturating_add(waited_ns);
        }
    }

    /// Its command failed for reasons that may be another member's: it waits again, by itself. Nothing that only grows
    /// counts it twice: its wait is that of the first time, its times on the device and in all those of the last.
    pub fn returned(&mut self, class: Class) {
        let stats = self.class_mut(class);
        stats.active -= 1;
        stats.queued += 1;
    }

    /// It left again.
    pub fn dispatched_again(&mut self, class: Class) {
        let stats = self.class_mut(class);
        stats.queued -= 1;
        stats.active += 1;
    }

    /// A command left.
    pub fn command_left(&mut self, class: Class, len: u64) {
        let stats = self.class_mut(class);
        stats.commands += 1;
        stats.peak = stats.peak.max(stats.commands);
        stats.record_size(Size::After, len);
    }

    /// A command came back.
    pub fn command_done(&mut self, class: Class) {
        self.class_mut(class).commands -= 1;
    }

    /// Commands on the device, by class.
    #[must_use]
    pub fn commands(&self) -> [u32; Class::COUNT] {
        Class::ALL.map(|class| self.class(class).commands)
    }

    /// An I/O of a command came back.
    pub fn completed(&mut self, class: Class, len: u64, device_ns: u64, total_ns: u64) {
        let stats = self.class_mut(class);
        stats.active -= 1;
        stats.ios += 1;
        stats.bytes += len;
        stats.record_time(Time::Device, device_ns);
        stats.record_time(Time::Total, total_ns);
    }

    /// An I/O left the queue without ever going to the device.
    pub fn withdrawn(&mut self, class: Class) {
        self.class_mut(class).queued -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_lies_between_powers_of_two() {
        for (value, bucket) in
            [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (4096, 12), (4097, 13), (1 << 38, 38), (u64::MAX, 38)]
        {
            assert_eq!(Histogram::bucket_of(value), bucket, "{value}");
        }
        for bucket in 1..BUCKETS - 1 {
            let bound = Histogram::upper_bound(bucket);
            assert_eq!((Histogram::bucket_of(bound), Histogram::bucket_of(bound + 1)), (bucket, bucket + 1));
        }
    }

    #[test]
    fn quantiles_and_mean() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(990), histogram.mean()), (0, 0));
        for _ in 0..99 {
            histogram.record(100);
        }
        histogram.record(1_000_000);
        assert_eq!((histogram.quantile(500), histogram.quantile(990), histogram.quantile(991)), (128, 128, 1 << 20));
        assert_eq!(histogram.mean(), 10_099);
    }

    #[test]
    fn an_io_is_counted_once_in_each_stage() {
        let mut stats = QueueStats::default();
        stats.admitted(Class::Scrub, 4096);
        stats.admitted(Class::SyncRead, 4096);
        stats.dispatched(Class::Scrub, 10, true);
        stats.dispatched(Class::SyncRead, 10, false);
        stats.command_left(Class::SyncRead, 8192);
        stats.command_done(Class::SyncRead);
        stats.completed(Class::Scrub, 4096, 90, 100);
        stats.completed(Class::SyncRead, 4096, 90, 100);
        let [scrub, read] = [Class::Scrub, Class::SyncRead].map(|class| *stats.class(class));
        assert_eq!((scrub.queued, scrub.active, scrub.ios, scrub.bytes, scrub.commands), (0, 0, 1, 4096, 0));
        assert_eq!((scrub.waited, scrub.waited_ns, read.waited, read.left), (1, 10, 0, 1));
        assert_eq!((read.size_after().count(), scrub.size_after().count()), (1, 0), "a command counts for one class");
        assert_eq!((read.peak, scrub.peak), (1, 0));
        assert_eq!((scrub.queue_ns().sum, scrub.device_ns().sum, scrub.total_ns().sum), (10, 90, 100));
    }
}
