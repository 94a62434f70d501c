//! Where the next chunk goes: which devices, and where on each.
//!
//! ```text
//!  rank        each member gets a rank for this kind of chunk, or none (rank.rs; the only part that modes differ in)
//!  gather      members with a rank and a useful hole become candidates
//!  order       rank first, then the hole, then all free space, then the id
//!  widen       whole ranks from the first, until the profile has enough devices
//!  count       down to the profile's increment and maximum
//!  stripe      the shortest chosen hole, cut so that the chunk keeps to its limit (size.rs)
//! ```
//!
//! Stock btrfs is the case where all ranks are equal; `ssd_metadata`, the allocation hints and braid's own tiers are
//! three ways to rank. Sources: Linux `fs/btrfs/volumes.c` (`gather_device_info`, `decide_stripe_size`), the
//! `ssd_metadata` postings of April 2020 (v1, v3), the `allocation_hint` posting of March 2022.
//!
//! Promises: never a stripe longer than its hole; the same pool gives the same answer, ties go to the lower device
//! id; a pool of 10,000 members costs one sort. Left to others: which members may be written to at all (pass only
//! those), marking the space as used, and remembering what a chunk holds.

mod holes;
mod index;
mod rank;
mod select;
mod size;
mod writable;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

pub use holes::{FIRST_USABLE, Hole, holes};
pub(crate) use index::Index;
pub use writable::{Sums, writable};

use crate::ChunkType;
use crate::profile::Profile;
use crate::units::{DeviceId, GIB, MIB};
use select::{Job, Shortest};

/// What a chunk will hold, as far as placement cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Volume content.
    Data,
    /// Volume content that counts as metadata.
    Metadata,
    /// The pool's own records; placed like metadata.
    System,
    /// Data and metadata together.
    Mixed,
}

impl From<ChunkType> for Kind {
    fn from(kind: ChunkType) -> Kind {
        match kind {
            ChunkType::Data => Kind::Data,
            ChunkType::Metadata => Kind::Metadata,
            ChunkType::System => Kind::System,
        }
    }
}

/// When a device is used, by kind of chunk: the lowest tier first, [`Tiers::NEVER`] not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tiers {
    /// For data.
    pub data: u8,
    /// For metadata and system.
    pub metadata: u8,
}

impl Tiers {
    /// The tier of a device that never takes chunks of that kind.
    pub const NEVER: u8 = u8::MAX;
}

/// The device property of the `allocation_hint` posting; its numbers are those of sysfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hint {
    /// Data if there is room elsewhere for the rest; metadata as a fallback.
    #[default]
    DataPreferred = 0,
    /// Metadata; data as a fallback.
    MetadataPreferred = 1,
    /// Never data.
    MetadataOnly = 2,
    /// Never metadata.
    DataOnly = 3,
    /// No new chunks: the device drains. Not in the posting; from the tree of kakra.
    None = 4,
}

impl Hint {
    /// All, by number.
    pub const ALL: [Hint; 5] =
        [Hint::DataPreferred, Hint::MetadataPreferred, Hint::MetadataOnly, Hint::DataOnly, Hint::None];

    /// The published name.
    pub fn name(self) -> &'static str {
        match self {
            Hint::DataPreferred => "DATA_PREFERRED",
            Hint::MetadataPreferred => "METADATA_PREFERRED",
            Hint::MetadataOnly => "METADATA_ONLY",
            Hint::DataOnly => "DATA_ONLY",
            Hint::None => "NONE",
        }
    }

    /// The hint of that name or number; `-` may stand for `_`, and case does not matter.
    pub fn parse(text: &str) -> Option<Hint> {
        let letter = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
        Hint::ALL
            .into_iter()
            .find(|&hint| text.as_bytes() == [b'0' + hint as u8] || hint.name().bytes().eq(text.bytes().map(letter)))
    }
}

/// Whose rules place a chunk. All but [`Mode::Tiers`] are faithful to a published algorithm, defects included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// btrfs as it is: most space first.
    Stock,
    /// `ssd_metadata` v1: wants one preferred device more than needed before it leaves the others out.
    SsdMetadataV1,
    /// `ssd_metadata` v2 and v3: metadata on non-rotational, data on rotational devices, all or nothing.
    SsdMetadata,
    /// The hints of March 2022; sorted by space again after the choice, which may push out the preferred device.
    AllocationHint,
    /// braid's own: one tier per device and kind, lowest first, never sorted again.
    Tiers {
        /// Refuse a chunk that would spill, instead of using the next tier.
        strict: bool,
    },
}

impl Default for Mode {
    fn default() -> Self {
        Mode::Tiers { strict: false }
    }
}

impl Mode {
    /// All, without the strict variant.
    pub const ALL: [Mode; 5] =
        [Mode::Stock, Mode::SsdMetadataV1, Mode::SsdMetadata, Mode::AllocationHint, Mode::Tiers { strict: false }];

    /// What decides where a chunk goes, in a few words.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Mode::Stock => "the most free space first, whatever the device",
            Mode::SsdMetadataV1 | Mode::SsdMetadata => {
                "metadata on what does not rotate, data on what does, where that is enough"
            }
            Mode::AllocationHint => "by the allocation_hint of each device, DATA_PREFERRED unless it is set",
            Mode::Tiers { strict: false } => {
                "the lowest tier first, the next where that has too few members or no room"
            }
            Mode::Tiers { strict: true } => "the lowest tier only; where that has too few members or no room, no chunk",
        }
    }

    /// Tiers decide, and nothing else.
    #[must_use]
    pub fn goes_by_tiers(self) -> bool {
        matches!(self, Mode::Tiers { .. })
    }

    /// As operators write it. `strict` is a setting of its own and not part of the name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Stock => "stock",
            Mode::SsdMetadataV1 => "ssd-metadata-v1",
            Mode::SsdMetadata => "ssd-metadata",
            Mode::AllocationHint => "allocation-hint",
            Mode::Tiers { .. } => "tiers",
        }
    }

    /// The mode of that name; `tiers` is not strict.
    pub fn parse(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// Which kernel's chunk sizes and smallest device counts hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Era {
    /// Linux 5.6, which `ssd_metadata` was written against: raid0 needs 2 devices and raid10 needs 4.
    V5_6,
    /// Linux 5.15 and later: raid0 needs 1 and raid10 needs 2.
    #[default]
    Current,
}

/// How chunks are placed. The default is braid's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whose algorithm.
    pub mode: Mode,
    /// Whose sizes and device counts.
    pub era: Era,
    /// Most bytes of a data chunk. Larger means fewer chunks to keep, and empty ones that come back later.
    pub data_chunk_size: u64,
    /// Most bytes of a metadata chunk; `None` = 1 GiB above 50 GiB of pool, else 256 MiB.
    pub metadata_chunk_size: Option<u64>,
    /// Most bytes of a system chunk; `None` = 32 MiB, or 64 MiB in the era of 5.6.
    pub system_chunk_size: Option<u64>,
    /// In [`Mode::Tiers`] a hole shorter than this is passed over while any other answer exists: a nearly full
    /// tier would yield many tiny chunks before it spills. Small pools and full pools go down to 1 MiB.
    pub min_useful_stripe: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            mode: Mode::default(),
            era: Era::default(),
            data_chunk_size: 10 * GIB,
            metadata_chunk_size: None,
            system_chunk_size: None,
            min_useful_stripe: 16 * MIB,
        }
    }
}

/// A device that may take new chunks.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Id.
    pub id: DeviceId,
    /// Usable bytes, free or not.
    pub size: u64,
    /// What the `ssd_metadata` modes look at.
    pub rotational: bool,
    /// What [`Mode::Tiers`] looks at.
    pub tiers: Tiers,
    /// What [`Mode::AllocationHint`] looks at.
    pub hint: Hint,
    /// Bytes in chunks.
    pub allocated: u64,
    /// Free extents in address order, as [`holes`] makes them.
    pub holes: &'a [Hole],
}

/// A chunk to be: nothing is taken yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of one column.
    pub stripe: u64,
    /// Bytes of volume data.
    pub length: u64,
    /// Device and first byte there, in column order. The two columns of `dup` follow one another on one device.
    pub columns: Vec<(DeviceId, u64)>,
    /// A column stands on a later tier than it would in the same pool with all space free.
    pub spilled: bool,
}

/// No chunk can be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace {
    /// Devices that qualified: allowed for this kind and with a useful hole; when strict, on a tier that it prefers.
    pub qualified: usize,
    /// Devices that the profile needs.
    pub needed: usize,
    /// Longest hole of any device allowed for this kind, in bytes.
    pub largest_hole: u64,
}

impl fmt::Display for NoSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoSpace { qualified, needed, largest_hole } = self;
        write!(f, "{qualified} of {needed} needed devices have room (largest hole {} MiB)", largest_hole / MIB)
    }
}

/// The next chunk of this profile and kind; what braid writes to disk.
///
/// In a faithful mode it is the source's choice of devices, but the stripe is the shortest of the chosen holes. The
/// sources take the *last* chosen hole for the shortest, which holds only while the order is by space.
pub fn plan(rules: &Rules, profile: Profile, kind: Kind, members: &[Member<'_>]) -> Result<Plan, NoSpace> {
    Job::new(rules, profile, kind, members).plan(members, Shortest::OfAll)
}

/// What the source algorithm computes, with its known trap: under `ssd_metadata` a stripe may be longer than a
/// chosen hole. For comparison with published results; never for a disk. In [`Mode::Tiers`] the same as [`plan`].
pub fn faithful_plan(rules: &Rules, profile: Profile, kind: Kind, members: &[Member<'_>]) -> Result<Plan, NoSpace> {
    let shortest = if rank::is_own(rules.mode) { Shortest::OfAll } else { Shortest::Last };
    Job::new(rules, profile, kind, members).plan(members, shortest)
}
