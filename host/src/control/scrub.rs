//! Scrub, on the wire.

use serde::{Deserialize, Serialize};

/// Change what a scrub does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scrub {
    /// Which pool.
    pub pool: String,
    /// What to do.
    pub action: ScrubAction,
    /// For `limit`: device commands of class scrub at a time on each member, as for `set scrub_max_active=N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// What can be done about a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScrubAction {
    /// Begin one; one that is paused goes on.
    Start,
    /// Keep the place and stop, also over restarts.
    Pause,
    /// Go on.
    Resume,
    /// Stop for good.
    Cancel,
    /// Change its limit.
    Limit,
}

/// The last scrub: of the pool named, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubStatus {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// The last scrub of a pool. Bytes are those of all copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubInfo {
    /// Pool.
    pub pool: String,
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
    /// Passed so far.
    pub done_bytes: u64,
    /// To pass in all, as of its start.
    pub total_bytes: u64,
    /// Not read, since the member was not there.
    pub unread_bytes: u64,
    /// Blocks of 4 KiB whose copies are not alike.
    pub differences: u64,
    /// Blocks of 4 KiB that could not be read, each copy counted.
    pub read_errors: u64,
    /// Blocks of 4 KiB of the pool's own records that nothing is known of: they looked different, and checkpoints came
    /// between whenever they were looked at again.
    #[serde(default)]
    pub undecided: u64,
    /// Blocks of 4 KiB of copies that were written anew.
    #[serde(default)]
    pub repaired: u64,
    /// Bytes a second over the last minute; absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// How long it takes at this rate; absent while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_ns: Option<u64>,
    /// Members on which it found something.
    #[serde(default)]
    pub devices: Vec<ScrubDevice>,
}

/// What it found on one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubDevice {
    /// Id within the pool.
    pub id: u32,
    /// Where it is.
    pub path: String,
    /// Blocks that differ: of three copies or more those in the minority, else on every copy.
    pub differences: u64,
    /// Blocks that could not be read.
    pub read_errors: u64,
}
