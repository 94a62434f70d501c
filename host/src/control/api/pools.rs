//! Pools: made, found, opened, closed, and how they are.

use super::DeviceStatus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Make a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Name; checked.
    pub name: String,
    /// Members, in id order.
    #[serde(default)]
    pub devices: Vec<NewDevice>,
    /// Sparse files to make and to use as further members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<NewFiles>,
    /// Profile of data; the service chooses by the number of devices when absent (raid1 from two, else single).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<ProfileSpec>,
    /// Profile of metadata, and of braid's own records; by the number of devices when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ProfileSpec>,
    /// Allocation mode: one of [`MODES`](crate::control::check::MODES); `tiers` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Fail rather than spill to a tier that is not preferred.
    #[serde(default)]
    pub strict: bool,
    /// Further pool properties, as for `set`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Use devices that carry a known file system or a foreign pool; never one that is in use.
    #[serde(default)]
    pub force: bool,
}

/// A member to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewDevice {
    /// Absolute path, or `ram:SIZE`, `null:SIZE`.
    pub path: String,
    /// Device class; guessed from the device when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Tier (0-255, 255 = never) by chunk type: `data`, `metadata`, `system`. What is absent follows from the class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tiers: BTreeMap<String, u8>,
}

/// Files to be made as members: `disk0.img` and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewFiles {
    /// How many.
    pub count: u32,
    /// Bytes each.
    pub size_bytes: u64,
    /// Absolute path of the folder they go to; made if missing.
    pub directory: String,
}

/// `raid1`, `raid6@hdd`, `raid1@ssd,hdd`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// One of [`PROFILES`](crate::control::check::PROFILES).
    pub profile: String,
    /// Device classes it is meant for, in order of preference; empty = any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
}

impl std::fmt::Display for ProfileSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.profile)?;
        if !self.classes.is_empty() {
            write!(f, "@{}", self.classes.join(","))?;
        }
        Ok(())
    }
}

/// Forget a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyPool {
    /// Which.
    pub pool: String,
    /// Even while volumes are shared.
    #[serde(default)]
    pub force: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Close a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportPool {
    /// Which.
    pub pool: String,
    /// Even while volumes are shared.
    #[serde(default)]
    pub force: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Find pools, and open them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportPools {
    /// Names or uuids to open. Empty and not `all`: only look.
    #[serde(default)]
    pub names: Vec<String>,
    /// Open everything that is found complete enough.
    #[serde(default)]
    pub all: bool,
    /// Folders to search; with no device named either, the service searches its usual places.
    #[serde(default)]
    pub directories: Vec<String>,
    /// Devices to search.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Open under this name; only with one name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rename: Option<String>,
    /// Open although devices are missing, or it looks open elsewhere.
    #[serde(default)]
    pub force: bool,
    /// Only look.
    #[serde(default)]
    pub dry_run: bool,
}

/// A pool found on devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundPool {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: String,
    /// Whether it can be (or is) opened.
    pub state: PoolState,
    /// It is open now because of this request.
    pub imported: bool,
    /// Where its members are.
    pub devices: Vec<FoundDevice>,
    /// Members that were not found.
    pub missing: u32,
    /// Why not, or what to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A member found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDevice {
    /// Its id in the pool.
    pub id: u32,
    /// Where.
    pub path: String,
}

/// How a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// Everything is there.
    Online,
    /// Serving, with less redundancy than asked for.
    Degraded,
    /// Its records can be written nowhere any more: reads go on, changes fail until it is cleared.
    Suspended,
    /// Some content cannot be read or written.
    Unavailable,
}

impl PoolState {
    /// The word in listings.
    pub fn name(self) -> &'static str {
        match self {
            PoolState::Online => "ONLINE",
            PoolState::Degraded => "DEGRADED",
            PoolState::Suspended => "SUSPENDED",
            PoolState::Unavailable => "UNAVAIL",
        }
    }
}

/// Which pools: the one named, or all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListPools {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// A line of `braid list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolSummary {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: String,
    /// State.
    pub state: PoolState,
    /// Sum of member sizes.
    pub size_bytes: u64,
    /// Of it in chunks.
    pub allocated_bytes: u64,
    /// Of it not in chunks.
    pub free_bytes: u64,
    /// Data that could still be written, in the data profile.
    pub writable_bytes: u64,
    /// Members.
    pub devices: u32,
    /// Volumes.
    pub volumes: u32,
    /// Data profile, such as `raid1@hdd`.
    pub data: String,
    /// Metadata profile.
    pub metadata: String,
    /// Why it is not open although it was when the last daemon ended; absent for a pool that is open. Nothing but its
    /// name and the number of its devices is known then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_open: Option<String>,
}

/// How pools are: the one named, or all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// How a pool is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: String,
    /// State.
    pub state: PoolState,
    /// When it was opened, RFC 3339; empty for a pool that could not be, of which only the problems say something.
    pub opened_at: String,
    /// Since then.
    pub uptime_ns: u64,
    /// Device failures that all content is sure to survive from now on.
    pub survivable_failures: u32,
    /// Data profile, such as `raid1@hdd`.
    pub data: String,
    /// Metadata profile.
    pub metadata: String,
    /// Read policy, with its values: `round-robin:262144`.
    pub read_policy: String,
    /// Allocation mode.
    pub mode: String,
    /// What content is summed with: `crc32c`, `xxh3` or `none`.
    #[serde(default)]
    pub checksum: String,
    /// Checksums in memory.
    #[serde(default)]
    pub checksum_cache: ChecksumCache,
    /// Blocks without a good copy, as far as reads or a scrub found them since the pool was opened; empty is good.
    #[serde(default)]
    pub lost: Vec<LostRange>,
    /// Chunks.
    pub chunks: u64,
    /// Of them with fewer good columns than their profile says.
    pub degraded_chunks: u64,
    /// Volumes.
    pub volumes: u32,
    /// Generation of the newest superblock.
    pub generation: u64,
    /// Data that could still be written.
    pub writable_data_bytes: u64,
    /// Metadata that could still be written.
    pub writable_metadata_bytes: u64,
    /// Chunks on a tier their type does not prefer; empty is good.
    #[serde(default)]
    pub spilled: Vec<Spill>,
    /// What is wrong, worst first; empty is good.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// What there is to know and nothing to worry about: how disks are talked to, what a power cut took back.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The last scrub.
    #[serde(default)]
    pub scrub: super::ScrubInfo,
    /// The last job that moved content.
    #[serde(default)]
    pub job: super::JobInfo,
    /// Members that are held back until another one fails.
    #[serde(default)]
    pub spares: Vec<Spare>,
    /// Members in id order.
    pub devices: Vec<DeviceStatus>,
}

/// A member that is held back until another one fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spare {
    /// Id within the pool.
    pub id: u32,
    /// Short name.
    pub name: String,
    /// Device class.
    pub class: String,
    /// Bytes.
    pub size_bytes: u64,
    /// `AVAIL`, `INUSE` while it gets what another member has, or `UNAVAIL`.
    pub state: String,
    /// Whose place it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_of: Option<u32>,
}

/// The memory that checksums are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumCache {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Of them what the devices don't have yet.
    pub unwritten_bytes: u64,
    /// Bytes that there may be.
    pub limit_bytes: u64,
}

/// Blocks without a good copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    /// The volume.
    pub volume: String,
    /// First byte within it.
    pub offset: u64,
    /// Bytes, whole blocks.
    pub bytes: u64,
}

/// Bytes of one chunk type that did not find room where they belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spill {
    /// `data`, `metadata` or `system`.
    pub kind: String,
    /// Length of the chunks.
    pub bytes: u64,
    /// How many spills since the pool was opened.
    pub count: u64,
}

/// Something wrong with a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Stable word: `device.failed`.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}
