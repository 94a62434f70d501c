//! Space and counters.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where space went: in the pool named, or in all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// Where space went in one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolUsage {
    /// Name.
    pub name: String,
    /// Sum of member sizes.
    pub raw_bytes: u64,
    /// Of it not in chunks.
    pub unallocated_bytes: u64,
    /// Data that could still be written, in the data profile.
    pub writable_data_bytes: u64,
    /// Metadata that could still be written, in the metadata profile.
    pub writable_metadata_bytes: u64,
    /// Data profile.
    pub data: String,
    /// Metadata profile.
    pub metadata: String,
    /// Chunks by type and profile.
    pub groups: Vec<GroupUsage>,
    /// Members in id order.
    pub devices: Vec<DeviceUsage>,
}

/// Chunks of one type and profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupUsage {
    /// `data`, `metadata` or `system`.
    pub kind: String,
    /// Profile.
    pub profile: String,
    /// Chunks.
    pub chunks: u64,
    /// Bytes on devices.
    pub raw_bytes: u64,
    /// Bytes they can hold.
    pub size_bytes: u64,
    /// Of it in use.
    pub used_bytes: u64,
}

/// One member's space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUsage {
    /// Id.
    pub id: u32,
    /// Short name.
    pub name: String,
    /// Device class.
    pub class: String,
    /// Usable bytes.
    pub size_bytes: u64,
    /// In data chunks.
    pub data_bytes: u64,
    /// In metadata chunks.
    pub metadata_bytes: u64,
    /// In system chunks.
    pub system_bytes: u64,
    /// In no chunk.
    pub unallocated_bytes: u64,
}

/// Counters: of the pool named, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoStat {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// Counters at one moment; all grow from the opening of the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IoSnapshot {
    /// The moment, RFC 3339.
    pub time: String,
    /// The moment on a clock that never jumps; only differences mean something.
    pub monotonic_ns: u64,
    /// Pools in name order.
    pub pools: Vec<PoolIo>,
}

/// What one pool did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolIo {
    /// Name.
    pub name: String,
    /// When it was opened, on the clock of `monotonic_ns`.
    pub opened_monotonic_ns: u64,
    /// Bytes in chunks.
    pub allocated_bytes: u64,
    /// Bytes in no chunk.
    pub free_bytes: u64,
    /// What clients asked.
    pub client: IoCounters,
    /// Requests answered with an error.
    pub errors: u64,
    /// Contiguous pieces that requests were cut into.
    pub translations: u64,
    /// Reads sent to another copy after an error.
    pub retries: u64,
    /// How often each reason decided a read.
    pub read_reasons: BTreeMap<String, u64>,
    /// Members in id order.
    pub devices: Vec<DeviceIo>,
}

/// What one member did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceIo {
    /// Id.
    pub id: u32,
    /// Short name.
    pub name: String,
    /// Device class.
    pub class: String,
    /// Bytes in chunks.
    pub allocated_bytes: u64,
    /// Bytes in no chunk.
    pub free_bytes: u64,
    /// Commands, after merging.
    pub io: IoCounters,
    /// I/Os before merging.
    pub ios: u64,
    /// I/Os that joined another one's command.
    pub merged: u64,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes, flushes and discards.
    pub write_errors: u64,
    /// Reads the policy chose this device for.
    pub chosen: u64,
    /// In flight now.
    pub in_flight: u32,
    /// Recent mean latency of interactive reads; 0 = no sample yet.
    pub read_latency_ns: u64,
}

/// Operations, bytes and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards and write-zeroes.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Sum of read latencies; absent for clients, of whom it is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<u64>,
    /// Sum of write latencies; as `read_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_ns: Option<u64>,
}
