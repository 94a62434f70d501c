//! `braid demo`: a pool of unlike disks, served over NBD to a client that checks every byte.
//!
//! Everything is real: files with direct I/O where the file system has it, the engine, the NBD server on a Unix
//! socket. Only the disks are small. Nothing is left behind.

mod workload;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_core::control::{Command, Done, VolumeClass};
use braid_core::meta::format::{NewDevice, NewPool};
use braid_core::report::PoolReport;
use braid_core::units::{DeviceId, MIB, Uuid, VolumeId};
use braid_core::{ChunkType, DeviceClass, Profile};
use braid_host::backend::{self, Disk, DiskSpec, OpenOptions};
use braid_host::nbd::handshake::{ExportInfo, Exports};
use braid_host::nbd::{Acceptor, Listen, acceptor};
use braid_host::pump::{self, Options, PumpHandle, Setup};
use braid_host::reactor::Choice;

use crate::args::DemoArgs;
use crate::commands::Outcome;
use braid_host::control::api::ApiError;
use workload::{Job, Sheet};

/// Class and size of the disks: 440 MiB if they were ever full.
const DISKS: [(&str, u64); 5] = [("ssd", 64), ("ssd", 80), ("hdd", 128), ("hdd", 96), ("hdd", 72)];
const DATA: u64 = 64 * MIB;
const METADATA: u64 = 16 * MIB;
/// In the order of the documentation; every policy answers the same reads.
const POLICIES: [&str; 11] = [
    "pid",
    "latency",
    "latency-2021",
    "latency-2024",
    "device",
    "devid:4",
    "roundrobin-v3",
    "round-robin:262144",
    "queue",
    "zfs",
    "parity-avoid-slow",
];

/// Volumes as exports.
struct Shelf(Vec<ExportInfo>);

impl Exports for Shelf {
    fn list(&self) -> Vec<ExportInfo> {
        self.0.clone()
    }
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        self.0.iter().find(|e| e.name == name).cloned()
    }
}

pub(crate) fn demo(args: &DemoArgs) -> Outcome {
    run(args).map_err(|message| ApiError::failed("demo.failed", message))
}

fn run(args: &DemoArgs) -> Result<u8, String> {
    let started = Instant::now();
    let text = |e: std::io::Error| e.to_string();
    let dir = tempfile::Builder::new().prefix("braid-demo-").tempdir().map_err(text)?;
    let pool = Uuid(*uuid::Uuid::new_v4().as_bytes());
    let (pump, notes) = create(dir.path(), pool)?;
    println!("pool demo   data raid1, metadata raid1c3, {}", pump.reactor());
    for note in notes {
        println!("            {note}");
    }
    let data = volume(&pump, "data", DATA, VolumeClass::Auto)?;
    let meta = volume(&pump, "meta", METADATA, VolumeClass::Metadata)?;
    let socket = dir.path().join("nbd.sock");
    let export = |name: &str, size, volume| ExportInfo {
        name: format!("demo/{name}"),
        description: String::new(),
        size,
        read_only: false,
        rotational: false,
        can_multi_conn: true,
        pool,
        volume,
        share: 0,
    };
    let shelf = Arc::new(Shelf(vec![export("data", DATA, data), export("meta", METADATA, meta)]));
    let pump = Arc::new(pump);
    let acceptor = serve(&pump, &shelf, &socket)?;
    println!("serving     nbd+unix:///demo/data?socket={}\n", socket.display());

    let data_sheet = Sheet::new("demo/data", DATA);
    let meta_sheet = Sheet::new("demo/meta", METADATA);
    let job = |sheet: &Arc<Sheet>, share: u64, seed| Job { sheet: sheet.clone(), part: share, parts: 4, seed };
    // Fill first, so that the reads below find data on the disks.
    let fill = workload::fill(&socket, &[&data_sheet, &meta_sheet])?;
    println!("filled      {} MiB, each block with its own stamp", fill / MIB);

    let seconds = Duration::from_millis(args.milliseconds);
    let before = report(&pump)?;
    print!("{:<20}{:>9}{:>9}{:>9}  reads per device (", "read policy", "reads", "writes", "wrong");
    let names: Vec<String> = before.devices.iter().map(|d| format!("{} {}", d.id, d.class.name())).collect();
    println!("{})", names.join(", "));
    let (wrong, total) = (AtomicU64::new(0), AtomicU64::new(0));
    for policy in POLICIES {
        set(&pump, "read_policy", policy)?;
        if policy == "device" {
            let flag =
                |on: &str| Command::SetDevice { device: DeviceId(5), name: "read_preferred".into(), value: on.into() };
            pump.control(flag("1")).map_err(|e| e.message)?;
        }
        let before = report(&pump)?;
        let jobs: Vec<Job> = (0..4).map(|i| job(&data_sheet, i, i + 1)).chain([job(&meta_sheet, 0, 9)]).collect();
        let tally = workload::run(&socket, jobs, seconds)?;
        let after = report(&pump)?;
        let mut line = String::new();
        for (a, b) in after.devices.iter().zip(&before.devices) {
            let _ = write!(line, "{:>9}", a.io.reads - b.io.reads);
        }
        println!("{:<20}{:>9}{:>9}{:>9}  {line}", policy, tally.reads, tally.writes, tally.wrong);
        wrong.fetch_add(tally.wrong, Ordering::Relaxed);
        total.fetch_add(tally.reads + tally.writes, Ordering::Relaxed);
    }

    println!("\nwhere it went");
    print!("{}", placement(&report(&pump)?));

    // Close, find the pool again from its devices alone, and read everything once more.
    acceptor.stop();
    let pump = Arc::try_unwrap(pump).map_err(|_| "the pool is still in use".to_string())?;
    pump.stop();
    let pump = Arc::new(reopen(dir.path())?);
    let acceptor = serve(&pump, &shelf, &socket)?;
    let (read, bad) = workload::check(&socket, &[&data_sheet, &meta_sheet])?;
    acceptor.stop();
    wrong.fetch_add(bad, Ordering::Relaxed);
    println!("\nreopened    from the disks alone: {} MiB read back, {bad} blocks wrong", read / MIB);
    drop(pump);
    let (wrong, total) = (wrong.into_inner(), total.into_inner());
    println!("{total} requests in {:.1} s, {wrong} blocks wrong", started.elapsed().as_secs_f64());
    if wrong == 0 { Ok(0) } else { Err(format!("{wrong} blocks were not what was written")) }
}

/// Writes the pool on fresh files.
fn create(dir: &Path, pool: Uuid) -> Result<(PumpHandle, Vec<String>), String> {
    let (mut devices, mut disks, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for (i, (class, mib)) in DISKS.into_iter().enumerate() {
        let path = dir.join(format!("{class}{}.img", i + 1));
        let spec = DiskSpec::Path(path.clone());
        let options = OpenOptions { create_size: Some(mib * MIB), ..OpenOptions::default() };
        let (disk, facts) = backend::open(&spec, options).map_err(|e| e.to_string())?;
        notes.extend(facts.note.into_iter().filter(|n| i == 0 || !n.contains("O_DIRECT")));
        devices.push(NewDevice {
            uuid: Uuid(*uuid::Uuid::new_v4().as_bytes()),
            path: path.display().to_string(),
            size: facts.size,
            class: DeviceClass::parse(class).ok_or("a class of the demo is malformed")?,
            rotational: class == "hdd",
            tiers: None,
            hint: Default::default(),
        });
        disks.push((DeviceId(i as u32 + 1), disk));
    }
    let new = NewPool {
        name: "demo".into(),
        uuid: pool,
        data: Profile::Raid1,
        metadata: Profile::Raid1c3,
        devices,
        properties: Vec::new(),
    };
    Ok((PumpHandle::start(options(), disks, Setup::Create(new))?, notes))
}

/// Finds the pool again: no name, no list, only the files.
fn reopen(dir: &Path) -> Result<PumpHandle, String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| e.to_string())?.flatten() {
        if entry.path().extension().is_none_or(|e| e != "img") {
            continue;
        }
        let (disk, _) =
            backend::open(&DiskSpec::Path(entry.path()), OpenOptions::default()).map_err(|e| e.to_string())?;
        let superblock = pump::superblock_of(&disk)?;
        found.push((superblock, disk));
    }
    let disks: Vec<(DeviceId, Disk)>;
    let superblocks;
    (superblocks, disks) = found.into_iter().map(|(sb, disk)| (sb.clone(), (sb.device, disk))).unzip();
    PumpHandle::start(options(), disks, Setup::Import(superblocks))
}

fn options() -> Options {
    let boot = Uuid::default();
    Options {
        reactor: Choice::Auto,
        memory: pump::MEMORY_MIN,
        boot,
        without: braid_host::pump::Without::Nothing,
        flight: None,
        on_event: Box::new(|_| ()),
    }
}

fn serve(pump: &Arc<PumpHandle>, shelf: &Arc<Shelf>, socket: &Path) -> Result<Acceptor, String> {
    let to = Arc::downgrade(pump);
    let deliver = move |handover| {
        if let Some(pump) = to.upgrade() {
            pump.adopt(handover);
        }
    };
    let acceptor = Acceptor::start(acceptor::Config::default(), shelf.clone(), Box::new(deliver));
    let acceptor = acceptor.map_err(|e| e.to_string())?;
    acceptor.add_listener(Listen::Unix(socket.to_owned())).map_err(|e| e.to_string())?;
    Ok(acceptor)
}

fn volume(pump: &PumpHandle, name: &str, size: u64, class: VolumeClass) -> Result<VolumeId, String> {
    let create = Command::CreateVolume { name: name.into(), size, class };
    match pump.control(create).map_err(|e| e.message)? {
        Done::Volume(id) => {
            println!("volume      demo/{name}, {} MiB, {}", size / MIB, class.name());
            Ok(id)
        }
        other => Err(format!("a new volume was answered with {other:?}")),
    }
}

fn set(pump: &PumpHandle, name: &str, value: &str) -> Result<(), String> {
    let command = Command::Set { name: name.into(), value: value.into() };
    pump.control(command).map(drop).map_err(|e| e.message)
}

fn report(pump: &PumpHandle) -> Result<PoolReport, String> {
    pump.report().map_err(|e| e.message)
}

/// Chunks by type and the devices that hold them.
fn placement(report: &PoolReport) -> String {
    let mut text = format!("  {:<10}{:<9}{:>7}{:>10}", "chunks", "profile", "count", "MiB");
    for device in &report.devices {
        let _ = write!(text, "{:>9}", format!("{} {}", device.id, device.class.name()));
    }
    text.push('\n');
    for (kind, name) in [(ChunkType::Metadata, "metadata"), (ChunkType::Data, "data"), (ChunkType::System, "system")] {
        let chunks: Vec<_> = report.chunks.iter().filter(|c| c.kind == kind).collect();
        let mut on: BTreeMap<DeviceId, u64> = BTreeMap::new();
        for chunk in &chunks {
            for (device, _) in &chunk.columns {
                *on.entry(*device).or_default() += chunk.stripe;
            }
        }
        let bytes: u64 = chunks.iter().map(|c| c.length).sum();
        let profile = report.profiles[kind as usize].name();
        let _ = write!(text, "  {name:<10}{profile:<9}{:>7}{:>10}", chunks.len(), bytes / MIB);
        for device in &report.devices {
            let mib = on.get(&device.id).copied().unwrap_or(0) / MIB;
            let cell = if mib == 0 { "-".to_string() } else { format!("{mib} MiB") };
            let _ = write!(text, "{cell:>9}");
        }
        text.push('\n');
    }
    text
}
