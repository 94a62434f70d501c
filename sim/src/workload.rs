//! Clients: what they ask, how deep, and what an operator does meanwhile.

use braid_core::control::{Command, VolumeClass};
use braid_core::request::{Content, Op};
use braid_core::units::{DeviceId, VolumeId};

use crate::disk::{BLOCK, SECTOR};
use crate::rng::Rng;

/// What one client does; numbers are shares of all it asks.
#[derive(Clone, Debug)]
pub struct Job {
    /// Reads.
    pub read: u64,
    /// Writes.
    pub write: u64,
    /// Flushes.
    pub flush: u64,
    /// Discards.
    pub discard: u64,
    /// Write-zeroes.
    pub zero: u64,
    /// Writes and zeroes with force unit access, in a hundred.
    pub fua: u64,
    /// Requests that are not whole blocks, in a hundred.
    pub unaligned: u64,
    /// Requests that follow the one before, in a hundred.
    pub sequential: u64,
    /// Writes that say they are metadata, in a hundred.
    pub metadata: u64,
    /// Largest request.
    pub bytes_max: u64,
    /// Only so much of the volume is touched.
    pub span: u64,
    /// Requests at once.
    pub depth: usize,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// What.
    pub op: Op,
    /// First byte, a multiple of 512.
    pub offset: u64,
    /// Bytes, a multiple of 512.
    pub len: u64,
    /// What the client says of it.
    pub content: Content,
}

impl Job {
    /// A job of some kind.
    pub fn any(rng: &mut Rng) -> Job {
        let bytes_max = *rng.pick(&[4096, 16384, 65536, 131072, 1 << 20]);
        Job {
            read: rng.between(1, 10),
            write: rng.between(1, 10),
            flush: rng.below(3),
            discard: rng.below(3),
            zero: rng.below(3),
            fua: *rng.pick(&[0, 0, 10, 100]),
            unaligned: *rng.pick(&[0, 0, 20, 80]),
            sequential: *rng.pick(&[0, 30, 95]),
            metadata: *rng.pick(&[0, 20]),
            bytes_max,
            span: *rng.pick(&[256 << 10, 2 << 20, 8 << 20, 1 << 40]),
            depth: *rng.pick(&[1, 4, 16, 32]),
        }
    }

    /// What comes next, in a volume of so many bytes; `at` is where the last one ended.
    pub fn next(&self, rng: &mut Rng, size: u64, at: &mut u64) -> Ask {
        let span = self.span.min(size);
        let unit = if rng.percent(self.unaligned) { SECTOR } else { BLOCK };
        let most = (self.bytes_max.min(span) / unit).max(1);
        // Most requests are small, whatever the largest is.
        let small = rng.percent(60);
        let len = rng.between(1, if small { most.min(8) } else { most }) * unit;
        let offset = match rng.percent(self.sequential) && *at + len <= span && at.is_multiple_of(unit) {
            true => *at,
            false => rng.below((span - len) / unit + 1) * unit,
        };
        *at = offset + len;
        let fua = rng.percent(self.fua);
        let content = if rng.percent(self.metadata) { Content::Metadata } else { Content::Unsaid };
        let total = self.read + self.write + self.flush + self.discard + self.zero;
        let mut die = rng.below(total);
        let mut falls = |share: u64| {
            let hit = die < share;
            die = die.wrapping_sub(share);
            hit
        };
        let op = if falls(self.read) {
            Op::Read
        } else if falls(self.write) {
            Op::Write { fua }
        } else if falls(self.flush) {
            Op::Flush
        } else if falls(self.discard) {
            Op::Discard
        } else {
            Op::WriteZeroes { fua, no_hole: rng.percent(50) }
        };
        match op {
            Op::Flush => Ask { op, offset: 0, len: 0, content },
            _ => Ask { op, offset, len, content },
        }
    }
}

/// Something an operator might do; `volumes` are those that exist, with their sizes.
pub fn any_command(rng: &mut Rng, volumes: &[(VolumeId, u64)], devices: u32, serial: u64) -> Command {
    let device = DeviceId(rng.between(1, u64::from(devices)) as u32);
    let set = |name: &str, value: &str| Command::Set { name: name.into(), value: value.into() };
    let set_device = |name: &str, value: &str| Command::SetDevice { device, name: name.into(), value: value.into() };
    let policies = [
        "pid",
        "latency",
        "latency-2021",
        "latency-2024",
        "device",
        "devid:1",
        "roundrobin-v3",
        "round-robin",
        "queue",
        "zfs",
    ];
    let (volume, size) = *rng.pick(volumes);
    match rng.below(10) {
        0 => {
            Command::CreateVolume { name: format!("v{serial}"), size: rng.between(1, 4096) * BLOCK, class: class(rng) }
        }
        1 => Command::ResizeVolume { volume, size: size + rng.below(16) * BLOCK },
        2 => Command::RenameVolume { volume, name: format!("r{serial}") },
        // Decided without a draw, so that seeds go on to be what they were.
        3 => match (serial % 3, class(rng)) {
            (1, _) => Command::SetVolumeChecksum { volume, on: serial.is_multiple_of(2) },
            (_, class) => Command::SetVolumeClass { volume, class },
        },
        4 if volumes.len() > 1 => Command::DestroyVolume { volume },
        5 => set_device("read_preferred", word(rng, &["0", "1"])),
        6 => set_device(word(rng, &["tier.data", "tier.metadata"]), word(rng, &["0", "1", "2"])),
        7 => Command::Checkpoint,
        8 => set("commit_interval", word(rng, &["100ms", "1s", "5s"])),
        // Decided without a draw as well.
        _ => match word(rng, &policies) {
            "latency" if serial % 2 == 1 => set("read_policy", "parity-avoid-slow"),
            policy => set("read_policy", policy),
        },
    }
}

/// A setting of queues, of the pool or of one member. Most are tight, so that they matter at once; some are refused.
pub fn any_queue_command(rng: &mut Rng, devices: u32) -> Command {
    const SCHEDULERS: [&str; 7] = ["braid", "zfs-2.0.1", "zfs-pr11166", "zfs-before", "none", "deadline", ""];
    const ACTIVE: [&str; 6] = ["1", "2", "3", "8", "64", ""];
    const LIMITED: [&str; 7] = ["sync_read", "sync_write", "async_read", "async_write", "scrub", "trim", "rebuild"];
    const SIZES: [&str; 7] = ["4096", "8192", "65536", "131072", "1048576", "0", ""];
    const DEPTHS: [&str; 6] = ["queue_depth", "nr_requests", "max_active", "max_segments", "nia_delay", "nia_credit"];
    let (name, value): (String, &str) = match rng.below(12) {
        0..3 => ("scheduler".into(), word(rng, &SCHEDULERS)),
        3 => (word(rng, &DEPTHS).into(), word(rng, &ACTIVE)),
        4 => ("budget".into(), word(rng, &["off", "1", "2", "8", "64", "auto", ""])),
        5 if rng.percent(30) => ("budget_rerun".into(), word(rng, &["completion", "restart", ""])),
        5 => ("budget_wait".into(), word(rng, &["off", "50us", "auto", "5ms", "100ms", ""])),
        6 => (format!("{}_max_active", word(rng, &LIMITED)), word(rng, &ACTIVE)),
        7 => {
            let class = word(rng, &LIMITED);
            // A minimum of 0 stops a scrub, or a copy to a new member, for good under `zfs-pr11166`, as published.
            let least = if matches!(class, "scrub" | "rebuild") { "1" } else { "0" };
            (format!("{class}_min_active"), word(rng, &[least, "1", "2", "8", ""]))
        }
        8 => (word(rng, &["max_request", "boundary"]).into(), word(rng, &SIZES)),
        9 => (word(rng, &["aggregation_limit", "aggregation_limit_non_rotating"]).into(), word(rng, &SIZES)),
        10 => (word(rng, &["read_gap_limit", "write_gap_limit"]).into(), word(rng, &SIZES)),
        _ => match rng.percent(50) {
            true => ("background_floor".into(), word(rng, &["off", "1ms", "1s", ""])),
            false => ("lba_order".into(), word(rng, &["offset", "slot", ""])),
        },
    };
    let value = value.into();
    match rng.percent(50) {
        true => Command::Set { name, value },
        false => Command::SetDevice { device: DeviceId(rng.between(1, devices.into()) as u32), name, value },
    }
}

fn class(rng: &mut Rng) -> VolumeClass {
    *rng.pick(&[VolumeClass::Auto, VolumeClass::Auto, VolumeClass::Data, VolumeClass::Metadata])
}

fn word<'a>(rng: &mut Rng, words: &[&'a str]) -> &'a str {
    words[rng.below(words.len() as u64) as usize]
}
