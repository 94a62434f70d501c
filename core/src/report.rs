//! What a pool says about itself: plain values for `status`, `usage`, `iostat` and whoever else asks.
//!
//! A report is a copy; taking one changes nothing. Counters count since the pool was opened.

use alloc::string::String;
use alloc::vec::Vec;

use crate::control::VolumeClass;
use crate::device::Role;
use crate::queue::class::Class;
use crate::queue::config::Source;
use crate::queue::stats::QueueStats;
use crate::request::{DeviceOp, IoError};
use crate::units::{ChunkId, DeviceId, Uuid, VolumeId};
use crate::{ChunkType, DeviceClass, DeviceState, Profile, Tiers};

/// The whole pool.
#[derive(Clone, Debug)]
pub struct PoolReport {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: Uuid,
    /// Profile of future chunks by type: data, metadata, system.
    pub profiles: [Profile; 3],
    /// Members in id order.
    pub devices: Vec<DeviceReport>,
    /// Chunks in id order.
    pub chunks: Vec<ChunkReport>,
    /// Volumes in id order.
    pub volumes: Vec<VolumeReport>,
    /// Properties: name, value, and whether it is the default.
    pub properties: Vec<(&'static str, String, bool)>,
    /// How often each reason decided a read, since open: the names of [`crate::read_policy::Reason`].
    pub read_reasons: Vec<(&'static str, u64)>,
    /// Pool-wide counters.
    pub counters: Counters,
    /// Bytes of chunks by type that stand on a tier their type does not prefer.
    pub spilled: [u64; 3],
    /// Bytes of raw space in chunks of each type that could still be allocated now: data, metadata.
    pub writable_data: u64,
    /// As `writable_data`, for metadata.
    pub writable_metadata: u64,
    /// Generation of the newest superblock.
    pub generation: u64,
    /// The last scrub.
    pub scrub: ScrubReport,
    /// The last job, if there ever was one.
    pub job: Option<JobReport>,
    /// Where copies may differ.
    pub resync: ResyncReport,
    /// Its records can be written no more: changes fail until it is exported and imported.
    pub suspended: bool,
    /// What no copy holds any more: volume, first byte, bytes; as far as it was noticed since open, and remembered.
    pub lost: Vec<(VolumeId, u64, u64)>,
    /// The pages of checksums in memory.
    pub sums: SumsReport,
}

/// The last job, as of now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobReport {
    /// What the pool remembers of it.
    pub job: crate::job::Job,
    /// Bytes of content a second over the last minute; 0 when not known yet, or while it does not run.
    pub rate: u64,
    /// It waits for room that is about to come free.
    pub is_waiting: bool,
}

/// What a member missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaleReport {
    /// Some of what it has may be old, or a checkpoint has not said yet that none is: nobody can count on it.
    pub is_behind: bool,
    /// Something is being done about that, or will be by itself; not while it is away, or where nothing has what it lacks.
    pub is_to_come: bool,
    /// Regions of 4 MiB that it is behind in.
    pub regions: u64,
    /// Units of 64 KiB of them that cannot be had, or strips of rows: some block of them can be read nowhere else.
    pub sourceless: u64,
    /// Units of 64 KiB that were mended for members that were behind, all of them, since the pool was opened.
    pub units_done: u64,
}

/// How far something is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// So many are done.
    pub done: u64,
    /// Of so many.
    pub total: u64,
}

/// Write intent, and what a crash left of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResyncReport {
    /// Regions of 4 MiB that are marked as being written.
    pub dirty_regions: u64,
    /// Regions of them whose copies are still to be compared, after a crash or a write that failed.
    pub regions_left: u64,
    /// Units of 64 KiB that were compared and made alike since the pool was opened.
    pub units_done: u64,
    /// Blocks of 4 KiB that were being written then and that no copy could be read of since, or whose sums could not be had.
    pub unread: u64,
}

/// The memory that checksums are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumsReport {
    /// Bytes of pages.
    pub cached: u64,
    /// Bytes of them that their home does not have yet.
    pub dirty: u64,
    /// Bytes that there may be.
    pub limit: u64,
}

/// The last scrub, as of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// What the pool remembers of it.
    pub scrub: crate::scrub::Scrub,
    /// Bytes a second over the last minute; 0 when not known yet, or while it does not run.
    pub rate: u64,
}

/// One member.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Id.
    pub id: DeviceId,
    /// Identity.
    pub uuid: Uuid,
    /// Where it was last seen, as the host named it.
    pub path: String,
    /// Operator's class.
    pub class: DeviceClass,
    /// Sampled once at creation, can be overridden.
    pub rotational: bool,
    /// Placement tiers.
    pub tiers: Tiers,
    /// Preferred by the `device` read policy.
    pub read_preferred: bool,
    /// State.
    pub state: DeviceState,
    /// Its errors since it was last up to date; beyond [`crate::device::FAULTS_MAX`] what failed is tried again only when told.
    pub faults: u32,
    /// The last command that failed, and why, since its errors are counted.
    pub last_error: Option<(DeviceOp, IoError)>,
    /// Whether it comes or goes.
    pub role: Role,
    /// It is held back, or was until the job began that fills it.
    pub spare: bool,
    /// Usable bytes.
    pub size: u64,
    /// Bytes in chunks by type: data, metadata, system.
    pub allocated: [u64; 3],
    /// Device commands and bytes since open.
    pub io: DeviceCounters,
    /// In flight now.
    pub in_flight: u32,
    /// Recent mean latency of interactive reads in ns; 0 = no sample yet.
    pub read_latency_ns: u64,
    /// Its queue.
    pub queue: QueueReport,
    /// What it missed.
    pub stale: StaleReport,
    /// How far it is, while it is being rebuilt.
    pub rebuilt: Option<Progress>,
}

/// The queue of one member.
#[derive(Clone, Debug)]
pub struct QueueReport {
    /// Settings: name, value, and who said so.
    pub settings: Vec<(&'static str, String, Source)>,
    /// By class and stage.
    pub stats: QueueStats,
    /// What the scheduler did and why something waited, since it took over: name and how often.
    pub reasons: Vec<(&'static str, u64)>,
    /// For how long somebody of a class was left behind by the scheduler, since it took over: class, the reason's name,
    /// ns. The schedulers of blk-mq do not tell.
    pub left_behind: Vec<(Class, &'static str, u64)>,
}

/// Counters of one device, since open; those of errors, and `slow` and `repaired`, since they were cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Device read commands (after merging).
    pub reads: u64,
    /// Device write commands (after merging).
    pub writes: u64,
    /// Flush commands.
    pub flushes: u64,
    /// Discard and write-zeroes commands.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// I/Os before merging, reads and writes.
    pub ios: u64,
    /// I/Os that joined another one's command.
    pub merged: u64,
    /// Sum of read command latencies in ns.
    pub read_ns: u64,
    /// Sum of write command latencies in ns.
    pub write_ns: u64,
    /// Reads and writes that took longer than [`Device::slow_ns`](crate::device::Device::slow_ns).
    pub slow: u64,
    /// Read commands that failed; one that served several I/Os is repeated for each of them, and counts besides.
    pub read_errors: u64,
    /// Write, flush and discard commands that failed; likewise.
    pub write_errors: u64,
    /// Blocks that were written anew since they could not be read, or were not what the other copies hold.
    pub repaired: u64,
    /// Reads that the pool's policy chose this device for.
    pub chosen: u64,
    /// Blocks of its copies that were not what their checksums say.
    pub checksum_errors: u64,
}

impl DeviceCounters {
    /// Errors are counted from 0 again; whether there were any.
    pub(crate) fn clear_errors(&mut self) -> bool {
        let DeviceCounters { read_errors, write_errors, checksum_errors, repaired, slow, .. } = self;
        let counts = [read_errors, write_errors, checksum_errors, repaired, slow];
        counts.map(core::mem::take).into_iter().any(|count| count > 0)
    }
}

/// One chunk.
#[derive(Clone, Debug)]
pub struct ChunkReport {
    /// Id.
    pub id: ChunkId,
    /// Type.
    pub kind: ChunkType,
    /// Profile.
    pub profile: Profile,
    /// Bytes of volume data it can hold.
    pub length: u64,
    /// Bytes of it in use.
    pub used: u64,
    /// Columns: device and first byte there.
    pub columns: Vec<(DeviceId, u64)>,
    /// Bytes of one column.
    pub stripe: u64,
    /// On a tier its type does not prefer.
    pub spilled: bool,
}

/// One volume.
#[derive(Clone, Debug)]
pub struct VolumeReport {
    /// Id.
    pub id: VolumeId,
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Class.
    pub class: VolumeClass,
    /// What is written gets checksums, in a pool that has them.
    pub checksum: bool,
    /// Bytes mapped (whole units) by type of chunk: data, metadata.
    pub mapped: [u64; 2],
    /// What clients asked of it.
    pub io: VolumeCounters,
}

/// What clients asked of one volume, since open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeCounters {
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
    /// Sum of the times from a read's arrival to its answer.
    pub read_ns: u64,
    /// Sum of the times from a write's arrival to its answer.
    pub write_ns: u64,
}

/// Pool-wide counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Client reads.
    pub reads: u64,
    /// Client writes.
    pub writes: u64,
    /// Client flushes.
    pub flushes: u64,
    /// Client discards and write-zeroes.
    pub discards: u64,
    /// Client bytes read.
    pub read_bytes: u64,
    /// Client bytes written.
    pub write_bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Contiguous pieces that requests were cut into: one address translation each.
    pub translations: u64,
    /// Reads sent to another copy after an error.
    pub retries: u64,
    /// Chunks that spilled to another tier, ever since open.
    pub spills: u64,
    /// Log blocks written.
    pub log_blocks: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Sum of the times from a read's arrival to its answer, in ns.
    pub read_ns: u64,
    /// Sum of the times from a write's arrival to its answer, in ns.
    pub write_ns: u64,
    /// Refused because too many requests were in flight.
    pub busy: u64,
    /// Changes that waited until an overlapping one was done, and for how long in sum.
    pub parked: Waits,
    /// First writes that waited for room that was about to come free.
    pub space: Waits,
    /// Requests that failed because there was no room.
    pub no_space: u64,
    /// Changes that waited until their map entries were in the log.
    pub log: Waits,
    /// Forced writes and flushes that waited for the devices' caches.
    pub flush: Waits,
}

/// How many waited for one thing, and how long together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Requests whose wait is over.
    pub count: u64,
    /// Sum of their waits.
    pub ns: u64,
}

impl Waits {
    pub(crate) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
    }
}
