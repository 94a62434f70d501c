//! Devices: members, and what could become one.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Members: of the pool named, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListDevices {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// How a member is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Pool it belongs to.
    pub pool: String,
    /// Id within the pool, never reused.
    pub id: u32,
    /// Identity.
    pub uuid: String,
    /// Short name: the last part of the path.
    pub name: String,
    /// Where it is, or was last seen.
    pub path: String,
    /// Device class.
    pub class: String,
    /// `ONLINE`, `FAULTED`, `MISSING` …
    pub state: String,
    /// Answers reads and writes.
    pub usable: bool,
    /// Rotating, or said to be.
    pub rotational: bool,
    /// Preferred by the read policy `device`.
    pub read_preferred: bool,
    /// Tier by chunk type.
    pub tiers: BTreeMap<String, u8>,
    /// Usable bytes.
    pub size_bytes: u64,
    /// Of it in chunks.
    pub allocated_bytes: u64,
    /// Failed reads since the pool was opened.
    pub read_errors: u64,
    /// Failed writes, flushes and discards.
    pub write_errors: u64,
    /// Blocks of 4 KiB that were written anew since the pool was opened: they could not be read, or were wrong.
    #[serde(default)]
    pub repaired: u64,
    /// Blocks that were not what their checksums say.
    #[serde(default)]
    pub checksum_errors: u64,
    /// Reads and writes since the pool was opened that took longer than 1 s on a rotating member, 100 ms on another,
    /// waiting in the member's line included.
    pub slow_ios: u64,
    /// Recent mean latency of interactive reads; 0 = no sample yet.
    pub read_latency_ns: u64,
    /// While it is being brought up to date: what it got of what it missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuilt_bytes: Option<u64>,
    /// And all that it missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_rebuild_bytes: Option<u64>,
    /// What there is to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Model, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial number, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// A member that was away, or was given up, is used again and caught up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnlineDevice {
    /// The pool.
    pub pool: String,
    /// The member: id, path, last part of the path, or uuid.
    pub device: String,
    /// Where it is now; without, it is looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A member is used no more until it is asked for, or until the pool is opened again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfflineDevice {
    /// The pool.
    pub pool: String,
    /// The member: id, path, last part of the path, or uuid.
    pub device: String,
}

/// Errors of one member, or of all, are counted from 0 again. A suspended pool is opened again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearErrors {
    /// The pool.
    pub pool: String,
    /// The member: id, path, last part of the path, or uuid; all of them without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Only count: a suspended pool stays as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts_only: bool,
}

/// Look for what could be a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanDevices {
    /// Only these; the service's usual places when empty.
    #[serde(default)]
    pub paths: Vec<String>,
}

/// A block device or file, and what speaks against it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScannedDevice {
    /// Where.
    pub path: String,
    /// Bytes.
    pub size_bytes: u64,
    /// Class it would get.
    pub class: String,
    /// Says it rotates.
    pub rotational: bool,
    /// Could be given to `create` without force.
    pub usable: bool,
    /// What is on it or uses it: `mounted on /home`, `ext4`, `member 2 of pool tank`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Pool it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Model, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial number, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}
