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
    /// With histograms of latencies and sizes, which make the answer many times as long.
    #[serde(default)]
    pub histograms: bool,
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
    /// What requests waited for outside of device queues.
    #[serde(default)]
    pub waits: PoolWaits,
    /// Volumes in id order.
    #[serde(default)]
    pub volumes: Vec<VolumeIo>,
    /// Members in id order.
    pub devices: Vec<DeviceIo>,
}

/// What requests waited for before or after devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolWaits {
    /// Refused because too many were in flight.
    pub busy: u64,
    /// Failed because there was no room.
    pub no_space: u64,
    /// Changes that waited until an overlapping one was done.
    pub parked: WaitIo,
    /// First writes that waited for room that was about to come free.
    pub space: WaitIo,
    /// Changes that waited until their map entries were in the log.
    pub log: WaitIo,
    /// Forced writes and flushes that waited for the devices' caches.
    pub flush: WaitIo,
}

/// How many waited, and how long in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitIo {
    /// Those whose wait is over.
    pub count: u64,
    /// Sum of their waits.
    pub wait_ns: u64,
}

/// What clients asked of one volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeIo {
    /// Id.
    pub id: u32,
    /// Name within the pool.
    pub name: String,
    /// Requests that were answered.
    pub io: IoCounters,
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
    /// Blocks that were not what their checksums say.
    #[serde(default)]
    pub checksum_errors: u64,
    /// Reads the policy chose this device for.
    pub chosen: u64,
    /// In flight now.
    pub in_flight: u32,
    /// Recent mean latency of interactive reads; 0 = no sample yet.
    pub read_latency_ns: u64,
    /// Its queue.
    #[serde(default)]
    pub queue: QueueIo,
}

/// The queue of one member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueIo {
    /// Whose rules it goes by.
    pub scheduler: String,
    /// By class: `sync_read`, `sync_write`, `async_read`, `async_write`, `scrub`, `removal`, `initializing`, `trim`,
    /// `rebuild`. A class that never had an I/O is left out.
    pub classes: BTreeMap<String, ClassIo>,
    /// What the scheduler did, since it took over: these alone may fall back to zero.
    pub reasons: BTreeMap<String, u64>,
    /// By class and reason, with the unit `_ns` behind its name: for how long somebody of the class was left behind for
    /// it, since the scheduler took over. `none` and `deadline` do not say.
    pub left_behind: BTreeMap<String, BTreeMap<String, u64>>,
}

/// One class of I/Os of one member. Everything but `commands` and `size_after` counts I/Os as they were before merging.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassIo {
    /// In the queue now.
    pub queued: u32,
    /// On the device now.
    pub active: u32,
    /// Commands on the device now.
    pub commands: u32,
    /// Left for the device.
    pub left: u64,
    /// Those of them that were still in the queue when the batch they came in was over.
    pub waited: u64,
    /// Sum of the times in the queue of those.
    pub waited_ns: u64,
    /// Completed.
    pub ios: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Sum of times in the queue, of all that left.
    pub queue_ns: u64,
    /// Sum of times on the device, of all that completed.
    pub device_ns: u64,
    /// Sum of both, of all that completed.
    pub total_ns: u64,
    /// If asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histograms: Option<ClassHistograms>,
}

/// Histograms of one class of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassHistograms {
    /// ns in the queue.
    pub queue_ns: HistogramIo,
    /// ns on the device.
    pub device_ns: HistogramIo,
    /// ns from arrival to completion.
    pub total_ns: HistogramIo,
    /// Bytes of I/Os before merging.
    pub size_before: HistogramIo,
    /// Bytes of commands.
    pub size_after: HistogramIo,
}

/// Counts by powers of two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramIo {
    /// Number `i` counts values above 2^(i-1) and up to 2^i; number 0 those of 0 and 1; number 38 all above 2^37. Zeros
    /// at the end are left out.
    pub counts: Vec<u64>,
    /// Sum of the values.
    pub sum: u64,
}

impl HistogramIo {
    /// How many values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
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
    /// Sum of read latencies: of clients from arrival to answer, of members from the queue's door to completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<u64>,
    /// Sum of write latencies; as `read_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_ns: Option<u64>,
}
