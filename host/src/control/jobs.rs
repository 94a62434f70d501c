//! Members that come and go, and jobs that move content, on the wire.

use serde::{Deserialize, Serialize};

use super::api::NewDevice;

/// Make devices members of an open pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddDevices {
    /// Which pool.
    pub pool: String,
    /// The devices.
    pub devices: Vec<NewDevice>,
    /// Hold them back until a member fails.
    #[serde(default)]
    pub spare: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Use devices that carry a known file system or a foreign pool; never one that is in use.
    #[serde(default)]
    pub force: bool,
}

/// Empty a member and let it go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveDevice {
    /// Which pool.
    pub pool: String,
    /// Which member.
    pub device: u32,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Put a device in the place of a member: it is added, unless it is a spare of the pool, then the member is emptied and leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceDevice {
    /// Which pool.
    pub pool: String,
    /// The member that leaves.
    pub device: u32,
    /// The device that comes; class and tiers are those of the member unless said. A spare keeps its own.
    pub new: NewDevice,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Use a device that carries a known file system or a foreign pool; never one that is in use.
    #[serde(default)]
    pub force: bool,
}

/// Write chunks anew, evenly or in another profile. With neither `data` nor `metadata` all of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Balance {
    /// Which pool.
    pub pool: String,
    /// Which data chunks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<BalanceChoice>,
    /// Which metadata chunks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BalanceChoice>,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Although fewer failures are survived then.
    #[serde(default)]
    pub force: bool,
}

/// Which chunks of a type: those that every filter lets through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalanceChoice {
    /// To this profile; new chunks have it from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convert: Option<String>,
    /// Leave chunks alone that have it already.
    #[serde(default)]
    pub soft: bool,
    /// At most so full, in a hundred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<u8>,
    /// With a column on this member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// Of these profiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    /// So many at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Pause, resume or cancel the job of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobControl {
    /// Which pool.
    pub pool: String,
    /// What to do.
    pub action: JobAction,
}

/// What can be done about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobAction {
    /// Keep what is done and stop, also over restarts.
    Pause,
    /// Go on.
    Resume,
    /// Stop for good; what was moved stays moved.
    Cancel,
}

/// The last job: of the pool named, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobStatus {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// The last job of a pool. Bytes are those of content, whatever the copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Pool.
    pub pool: String,
    /// `remove`, `balance` or `return`; absent when there never was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The member that leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// `none`, `running`, `paused`, `finished` or `canceled`.
    pub state: String,
    /// When it was started, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it finished, was paused or canceled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// How long it ran, without pauses.
    pub running_ns: u64,
    /// Moved so far.
    pub done_bytes: u64,
    /// To move in all, as of its start.
    pub total_bytes: u64,
    /// Chunks that were emptied and given back.
    pub chunks: u32,
    /// Bytes in units of 64 KiB that stay, as some block of them cannot be read from any copy.
    pub lost_bytes: u64,
    /// What it waits for, or why it was paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Bytes a second over the last minute; absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// How long it takes at this rate; absent while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_ns: Option<u64>,
}
