//! How much of a device each class may have: the knobs of the queues with classes, [`zfs`](super::zfs) and
//! [`braid`](super::braid), and their defaults.
//!
//! | generation | what it is |
//! |---|---|
//! | `zfs-before` | OpenZFS before pull request 11166: minimum, then maximum, by priority; nobody is held back |
//! | `zfs-pr11166` | that pull request (2020-11-24): background work by credit, minimums in turn |
//! | `zfs-2.0.1` | what became of it: a minimum of 0 stalls nobody, and order within a class is by slots of half a second |
//! | `braid` | the same, with depth for fast devices, joins of whatever waits, and a floor under background work |
//!
//! The numbers of the first three are those of `module/zfs/vdev_queue.c` at the parent of 6f5aac3ca0, at 6f5aac3ca0, and
//! of its successors. The last of the three carries the name under which users met it first; two of its details came
//! later (slots with 2.2, the restart of the scan for minimums after a scan that found nothing), and where they differ
//! from 2.0.1 to the letter, `lba_order=offset` brings the older rule back.
//!
//! **`braid`, where it differs.** Published limits are made for disks; a flash device wants more in flight than ten of
//! a kind. There, interactive classes may fill the device (256, what a pool keeps in flight on a member), with minimums
//! that hold the door open for each other. On rotating devices they may have 32, what the drive's own queue (NCQ) takes
//! and sorts better than we do, since it knows where its head is; what is beyond waits here, where its class is known,
//! and not in the kernel, where it is not. A command may have 32 MiB on every device, the largest request of a client:
//! what came together in one batch is waited for together, so that cutting it helps nobody who sent it and costs a
//! command for each cut. Whoever minds what comes behind it sets `aggregation_limit` down. How far gaps between reads are
//! bridged goes by the class of the device ([`read_gap_of`]); nothing is written to bridge any.

mod names;
#[cfg(test)]
mod tests;

use super::class::Class;
use crate::units::{KIB, MIB};

pub use names::NAMES;
pub(super) use names::{parse_bytes, parse_ns, show_bytes, show_ns};

/// Most I/Os that any limit may allow: what one NVMe queue can hold.
pub const ACTIVE_MAX: u32 = 65_536;
/// Most that `nia_delay` and `nia_credit` may be; above a few dozen they mean "never" and "always".
pub const NIA_MAX: u32 = 1_000_000;
/// Largest aggregate of the published generations whatever the settings say: the largest block of the source.
pub const AGGREGATE_MAX: u64 = 16 * MIB;
/// The same of `braid`: the largest request of a client.
pub const AGGREGATE_MAX_BRAID: u64 = 32 * MIB;
/// Longest joined command of background work under `braid` on a rotating device: 2 to 4 ms of it. With 1 MiB, as
/// published, a scrub beside random reads is a quarter faster and the longest of them wait twice as long.
pub const BACKGROUND_ROTATING: u64 = 512 * KIB;
/// The same on others: what the published generations join there.
pub const BACKGROUND_NON_ROTATING: u64 = 128 * KIB;
/// Longest gap between reads that `braid` bridges behind a network. A command has a price there, and so has each byte: of
/// the modelled clusters one gains up to 32 KiB, one up to 64, and one of 85 MB/s up to 8. With 16, reads of 1 to 50 % of
/// all blocks in order of place, 32 at once, lose 1 % at most and gain up to 3.2 times (`docs/decisions.md`).
pub const READ_GAP_NETWORK: u64 = 16 * KIB;
/// The same on a rotating device. The drive reads ahead, so that alone it is as quick without; beside random reads, up
/// to 8 KiB who reads half of all blocks is no slower, and the others read up to five times as much, since the head has
/// fewer commands in order to stay for. From 16 on the one pays for the others.
pub const READ_GAP_ROTATING: u64 = 8 * KIB;
/// Longest `background_floor`: an hour.
pub const FLOOR_NS_MAX: u64 = 3_600_000_000_000;
/// Most buffers that one command may be allowed: what one readv takes on Linux.
pub const SEGMENTS_MAX: u32 = 1024;
/// Buffers of one command, gaps included. Never reached at the published defaults but by optional I/Os, which the
/// source lets past its limit.
const SEGMENTS_DEFAULT: u32 = 512;

/// Whose rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Generation {
    /// braid's own.
    #[default]
    Braid,
    /// What became of the pull request.
    V2_0_1,
    /// The pull request.
    Pr11166,
    /// Before it.
    Before,
}

/// Which I/O of a class ordered by place goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LbaOrder {
    /// The first at or after the end of the last command, else the lowest: an elevator that may starve whoever is
    /// behind it. Until 2.2.
    Offset,
    /// The same among those that arrived in the same 2^29 ns (0.54 s), oldest slot first. Since 2.2.
    Slot,
}

/// What one class may have active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassLimits {
    /// Given in turn to every class that waits, before anyone gets more.
    pub min: u32,
    /// Given by priority.
    pub max: u32,
}

/// What the pool has to write before writers are made to wait: moves the maximum of asynchronous writes. In the source
/// that is what is in memory; here it is the log, which a checkpoint frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirty {
    /// Bytes.
    pub bytes: u64,
    /// Bytes at which writers are made to wait.
    pub limit: u64,
    /// Somebody waits for all of it.
    pub sync_waits: bool,
}

/// The knobs of one device's queue. Changed by name with [`set`](Self::set), which keeps them consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    generation: Generation,
    rotating: bool,
    classes: [ClassLimits; Class::COUNT],
    max_active: u32,
    nia_delay: u32,
    nia_credit: u32,
    async_write_min_dirty_percent: u8,
    async_write_max_dirty_percent: u8,
    aggregation_limit: u64,
    aggregation_limit_non_rotating: u64,
    read_gap_limit: u64,
    read_gap_default: u64,
    write_gap_limit: u64,
    max_segments: u32,
    lba_order: LbaOrder,
    background_floor_ns: u64,
}

/// How far apart reads may be that `braid` makes one, for a device nobody set it for. On flash not at all: it has as many
/// commands as it wants, and a gap takes the time of as many bytes that somebody asked for.
#[must_use]
pub fn read_gap_of(class: &str, rotating: bool) -> u64 {
    match class {
        "net" => READ_GAP_NETWORK,
        "hdd" => READ_GAP_ROTATING,
        "nvme" | "ssd" => 0,
        _ if rotating => READ_GAP_ROTATING,
        _ => 0,
    }
}

impl Generation {
    /// All, newest first.
    pub const ALL: [Generation; 4] = [Generation::Braid, Generation::V2_0_1, Generation::Pr11166, Generation::Before];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Generation::Braid => "braid",
            Generation::V2_0_1 => "zfs-2.0.1",
            Generation::Pr11166 => "zfs-pr11166",
            Generation::Before => "zfs-before",
        }
    }

    /// The generation of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Generation> {
        Generation::ALL.into_iter().find(|generation| generation.name() == word)
    }

    /// Background work is held back while somebody waits, and minimums are given in turn.
    #[must_use]
    pub const fn holds_back(self) -> bool {
        !matches!(self, Generation::Before)
    }

    /// On an idle device one of a class goes even when its minimum is 0 (December 2020).
    #[must_use]
    pub const fn mends_minimum_zero(self) -> bool {
        matches!(self, Generation::V2_0_1 | Generation::Braid)
    }

    /// Bound of the aggregation limits.
    #[must_use]
    pub const fn aggregate_max(self) -> u64 {
        if matches!(self, Generation::Braid) { AGGREGATE_MAX_BRAID } else { AGGREGATE_MAX }
    }

    /// A scan that finds nobody makes the next one for minimums start at the first class.
    #[must_use]
    pub const fn restarts_scan(self) -> bool {
        matches!(self, Generation::V2_0_1 | Generation::Braid)
    }
}

const fn limits(rows: [(u32, u32); Class::COUNT]) -> [ClassLimits; Class::COUNT] {
    let mut limits = [ClassLimits { min: 0, max: 1 }; Class::COUNT];
    let mut i = 0;
    while i < Class::COUNT {
        limits[i] = ClassLimits { min: rows[i].0, max: rows[i].1 };
        i += 1;
    }
    limits
}

//                                        read      write     read    write   scrub   removal init    trim    rebuild
//                                        sync      sync      async   async
const BEFORE: [ClassLimits; 9] = limits([(10, 10), (10, 10), (1, 3), (2, 10), (1, 2), (1, 2), (1, 1), (1, 2), (1, 3)]);
const PUBLISHED: [ClassLimits; 9] =
    limits([(10, 10), (10, 10), (1, 3), (2, 10), (1, 3), (1, 2), (1, 1), (1, 2), (1, 3)]);
const DISK: [ClassLimits; 9] = limits([(10, 32), (10, 32), (1, 3), (2, 10), (1, 3), (1, 2), (1, 1), (1, 2), (1, 3)]);
const FLASH: [ClassLimits; 9] =
    limits([(64, 256), (64, 256), (4, 32), (4, 64), (1, 3), (1, 2), (1, 1), (1, 8), (1, 3)]);

/// Commands in flight on a member under `braid`: what the pool's queue always allowed.
const BRAID_MAX_ACTIVE: u32 = 256;

const fn sum_of_minimums(limits: &[ClassLimits; Class::COUNT]) -> u32 {
    let (mut sum, mut i) = (0, 0);
    while i < Class::COUNT {
        sum += limits[i].min;
        i += 1;
    }
    sum
}
const _: () = assert!(sum_of_minimums(&DISK) <= BRAID_MAX_ACTIVE && sum_of_minimums(&FLASH) <= BRAID_MAX_ACTIVE);

impl QueueSettings {
    /// The defaults of a generation for a device that seeks or does not.
    #[must_use]
    pub fn new(generation: Generation, rotating: bool) -> Self {
        QueueSettings::of_class(generation, rotating, "")
    }

    /// The same for a device of this class.
    #[must_use]
    pub fn of_class(generation: Generation, rotating: bool, class: &str) -> Self {
        let braid = matches!(generation, Generation::Braid);
        let read_gap = if braid { read_gap_of(class, rotating) } else { 32 * KIB };
        QueueSettings {
            generation,
            rotating,
            classes: match generation {
                Generation::Before => BEFORE,
                Generation::Pr11166 | Generation::V2_0_1 => PUBLISHED,
                Generation::Braid if rotating => DISK,
                Generation::Braid => FLASH,
            },
            max_active: if braid { BRAID_MAX_ACTIVE } else { 1000 },
            nia_delay: 5,
            nia_credit: 5,
            async_write_min_dirty_percent: 30,
            async_write_max_dirty_percent: 60,
            aggregation_limit: if braid { AGGREGATE_MAX_BRAID } else { MIB },
            aggregation_limit_non_rotating: if braid { AGGREGATE_MAX_BRAID } else { 128 * KIB },
            read_gap_limit: read_gap,
            read_gap_default: read_gap,
            write_gap_limit: 4 * KIB,
            max_segments: SEGMENTS_DEFAULT,
            lba_order: match generation {
                Generation::Before | Generation::Pr11166 => LbaOrder::Offset,
                Generation::V2_0_1 | Generation::Braid => LbaOrder::Slot,
            },
            background_floor_ns: if braid { 100_000_000 } else { 0 },
        }
    }

    /// What it was before anything was set.
    fn fresh(&self) -> Self {
        let read_gap = self.read_gap_default;
        let fresh = QueueSettings::new(self.generation, self.rotating);
        QueueSettings { read_gap_limit: read_gap, read_gap_default: read_gap, ..fresh }
    }

    /// Whose rules.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The device seeks.
    #[must_use]
    pub const fn rotating(&self) -> bool {
        self.rotating
    }

    /// What a class may have active, before credit and dirty bytes have their say.
    #[must_use]
    pub const fn class(&self, class: Class) -> ClassLimits {
        self.classes[class.index()]
    }

    /// Commands that all classes together may have active.
    #[must_use]
    pub const fn max_active(&self) -> u32 {
        self.max_active
    }

    /// Background completions on a device that is otherwise idle, before its classes get more than their minimum.
    #[must_use]
    pub const fn nia_delay(&self) -> u32 {
        self.nia_delay
    }

    /// Background commands that may start for each interactive completion while others are outstanding.
    #[must_use]
    pub const fn nia_credit(&self) -> u32 {
        self.nia_credit
    }

    /// Bytes of one aggregate on this device; 0 joins nothing.
    #[must_use]
    pub fn aggregation_limit(&self) -> u64 {
        let limit = if self.rotating { self.aggregation_limit } else { self.aggregation_limit_non_rotating };
        limit.min(self.generation.aggregate_max())
    }

    /// The same for background work in [`braid`](super::braid).
    #[must_use]
    pub fn background_aggregation_limit(&self) -> u64 {
        self.aggregation_limit().min(if self.rotating { BACKGROUND_ROTATING } else { BACKGROUND_NON_ROTATING })
    }

    /// Bytes between two reads that are read for nothing to make them one.
    #[must_use]
    pub const fn read_gap_limit(&self) -> u64 {
        self.read_gap_limit
    }

    /// Bytes of optional writes that may bridge two others.
    #[must_use]
    pub const fn write_gap_limit(&self) -> u64 {
        self.write_gap_limit
    }

    /// Buffers of one command, gaps included.
    #[must_use]
    pub const fn max_segments(&self) -> u32 {
        self.max_segments
    }

    /// Order within the classes that go by place.
    #[must_use]
    pub const fn lba_order(&self) -> LbaOrder {
        self.lba_order
    }

    /// After so many ns without a background command one may go whatever the credit; 0 = never.
    #[must_use]
    pub const fn background_floor_ns(&self) -> u64 {
        self.background_floor_ns
    }

    /// The maximum of asynchronous writes at so many dirty bytes.
    ///
    /// ```text
    ///   max |                ________
    ///       |              /|
    ///       |            /  |
    ///   min |__________/    |
    ///       +---------|-----|--------> dirty bytes, percent of the limit
    ///                30    60
    /// ```
    ///
    /// Without knowledge of the pool, or when somebody waits for all of it, the maximum. Integer arithmetic as in the
    /// source: it rounds down. One thing is ours: with a minimum of 0 it is 1 at least, since what nobody waits for
    /// has to end, too.
    #[must_use]
    pub fn async_write_max(&self, dirty: Option<Dirty>) -> u32 {
        let ClassLimits { min, max } = self.class(Class::AsyncWrite);
        let Some(Dirty { bytes, limit, sync_waits: false }) = dirty else { return max };
        let at = |percent: u8| u128::from(limit) * u128::from(percent) / 100;
        let (low, high) = (at(self.async_write_min_dirty_percent), at(self.async_write_max_dirty_percent));
        let bytes = u128::from(bytes);
        let ramp = if bytes >= high {
            max
        } else if bytes < low {
            min
        } else {
            ((bytes - low) * u128::from(max - min) / (high - low)) as u32 + min
        };
        ramp.max(1)
    }
}
