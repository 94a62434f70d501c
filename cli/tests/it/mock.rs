//! A daemon of which only the socket is real: fixed answers, and a memory of what was asked.

use braid_host::control::api::*;
use braid_host::control::server;
use braid_host::control::service::{Call, Service};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(crate) const GIB: u64 = 1 << 30;

/// Answers as a daemon with the pool `tank` (three devices, two volumes, one share) would, and writes down the requests.
#[derive(Default)]
pub(crate) struct Mock {
    pub(crate) asked: Mutex<Vec<(String, serde_json::Value)>>,
    /// What is wrong with the pool.
    pub(crate) state: Mutex<Option<PoolState>>,
    /// It cannot say what volumes there are.
    pub(crate) without_volumes: bool,
}

impl Mock {
    fn note<C: Call + Clone>(&self, request: &C) {
        let value = serde_json::to_value(request).expect("requests are JSON");
        self.asked.lock().expect("lock").push((C::ROUTE.to_string(), value));
    }

    fn state(&self) -> PoolState {
        self.state.lock().expect("lock").unwrap_or(PoolState::Online)
    }

    fn known(pool: &Option<String>) -> Result<(), ApiError> {
        match pool.as_deref() {
            None | Some("tank") => Ok(()),
            Some(other) => Err(ApiError::no_pool(other)),
        }
    }

    fn pool(pool: &str) -> Result<(), ApiError> {
        Self::known(&Some(pool.to_string()))
    }

    fn volume(pool: &str, volume: &str) -> Result<(), ApiError> {
        Self::pool(pool)?;
        if ["vm0", "vm1"].contains(&volume) { Ok(()) } else { Err(ApiError::no_volume(pool, volume)) }
    }

    fn devices(&self) -> Vec<DeviceStatus> {
        let faulted = self.state() != PoolState::Online;
        let device = |id: u32, name: &str, class: &str| DeviceStatus {
            pool: "tank".into(),
            id,
            uuid: format!("00000000-0000-0000-0000-00000000000{id}"),
            name: name.into(),
            path: format!("/dev/{name}"),
            class: class.into(),
            state: if id == 3 && faulted { "FAULTED" } else { "ONLINE" }.into(),
            usable: !(id == 3 && faulted),
            tiers: BTreeMap::from([("data".into(), 1), ("metadata".into(), 0)]),
            size_bytes: 932 * GIB,
            allocated_bytes: 101 * GIB,
            read_errors: if id == 3 && faulted { 12 } else { 0 },
            note: (id == 3 && faulted).then(|| "was /dev/disk/by-id/ata-X\tY".into()),
            ..DeviceStatus::default()
        };
        vec![device(1, "nvme9n1", "ssd"), device(2, "sdqb", "hdd"), device(3, "sdqd", "hdd")]
    }
}

fn change(what: String, dry_run: bool) -> Result<Change, ApiError> {
    Ok(Change { changed: true, dry_run, what, ..Change::default() })
}

fn standing(writable: u64, failures: u32) -> Standing {
    Standing {
        raw_bytes: 3 * 932 * GIB,
        writable_data_bytes: writable,
        writable_metadata_bytes: GIB,
        data_failures: failures,
        metadata_failures: failures,
    }
}

impl Service for Mock {
    fn create(&self, r: CreatePool) -> Result<Change, ApiError> {
        self.note(&r);
        if r.name == "tank" {
            return Err(ApiError::failed("pool.exists", "a pool tank is open already"));
        }
        let what = format!("pool {} of {} devices", r.name, r.devices.len());
        Ok(Change { after: Some(standing(900 * GIB, 1)), ..change(what, r.dry_run)? })
    }
    fn destroy(&self, r: DestroyPool) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        if !r.force && !r.dry_run {
            return Err(
                ApiError::refused("pool.shared", "tank/vm0 is shared").hint("braid unshare tank/vm0, or add -f")
            );
        }
        change(format!("pool {} forgotten", r.pool), r.dry_run)
    }
    fn import(&self, r: ImportPools) -> Result<Vec<FoundPool>, ApiError> {
        self.note(&r);
        Ok(vec![FoundPool {
            name: "old".into(),
            uuid: "6f1c0000-0000-0000-0000-000000000000".into(),
            state: PoolState::Degraded,
            imported: r.all || r.names.contains(&"old".to_string()),
            devices: vec![FoundDevice { id: 1, path: "/dev/sdx".into() }],
            missing: 1,
            note: None,
        }])
    }
    fn export(&self, r: ExportPool) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        change(format!("pool {} closed", r.pool), r.dry_run)
    }
    fn list(&self, r: ListPools) -> Result<Vec<PoolSummary>, ApiError> {
        Self::known(&r.pool)?;
        Ok(vec![PoolSummary {
            name: "tank".into(),
            uuid: "6f1c".into(),
            state: self.state(),
            size_bytes: 3 * 932 * GIB,
            allocated_bytes: 303 * GIB,
            free_bytes: 2493 * GIB,
            writable_bytes: 1246 * GIB,
            devices: 3,
            volumes: 2,
            data: "raid1@hdd".into(),
            metadata: "raid1c3".into(),
            not_open: None,
        }])
    }
    fn status(&self, r: Status) -> Result<Vec<PoolStatus>, ApiError> {
        Self::known(&r.pool)?;
        let bad = self.state() != PoolState::Online;
        let problem = Problem {
            code: "device.failed".into(),
            message: "device 3 (sdqd) stopped answering".into(),
            action: Some("look at its cable".into()),
        };
        Ok(vec![PoolStatus {
            name: "tank".into(),
            uuid: "6f1c".into(),
            state: self.state(),
            opened_at: "2026-11-21T08:00:00Z".into(),
            uptime_ns: 3 * 86_400 * 1_000_000_000,
            survivable_failures: u32::from(!bad),
            data: "raid1@hdd".into(),
            metadata: "raid1c3".into(),
            read_policy: "latency".into(),
            mode: "tiers".into(),
            checksum: "crc32c".into(),
            checksum_cache: ChecksumCache { used_bytes: 12 << 20, unwritten_bytes: 0, limit_bytes: 64 << 20 },
            lost: vec![],
            chunks: 120,
            degraded_chunks: if bad { 118 } else { 0 },
            volumes: 2,
            generation: 7,
            writable_data_bytes: 1246 * GIB,
            writable_metadata_bytes: 500 * GIB,
            spares: Vec::new(),
            spilled: vec![Spill { kind: "metadata".into(), bytes: GIB, count: 1 }],
            notes: vec![],
            scrub: ScrubInfo { pool: "tank".into(), state: "none".into(), ..ScrubInfo::default() },
            job: JobInfo { pool: "tank".into(), state: "none".into(), ..JobInfo::default() },
            problems: if bad { vec![problem] } else { vec![] },
            devices: self.devices(),
        }])
    }
    fn device_online(&self, r: OnlineDevice) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        change(format!("device {} of pool {} in use", r.device, r.pool), false)
    }
    fn device_offline(&self, r: OfflineDevice) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        change(format!("device {} of pool {} out of use", r.device, r.pool), false)
    }
    fn device_clear(&self, r: ClearErrors) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        change(format!("errors of pool {} are counted anew", r.pool), false)
    }
    fn trace(&self, r: TakeTrace) -> Result<TracePart, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        Ok(TracePart::default())
    }
    fn scrub(&self, r: Scrub) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        change(format!("scrub of {}", r.pool), false)
    }
    fn scrub_status(&self, r: ScrubStatus) -> Result<Vec<ScrubInfo>, ApiError> {
        Self::known(&r.pool)?;
        let time = |at: &str| Some(format!("2026-11-21T{at}Z"));
        Ok(vec![ScrubInfo {
            pool: "tank".into(),
            state: "finished".into(),
            started_at: time("08:00:00"),
            ended_at: time("08:01:00"),
            running_ns: 60_000_000_000,
            done_bytes: 600 * GIB,
            total_bytes: 600 * GIB,
            ..ScrubInfo::default()
        }])
    }
    fn add(&self, r: AddDevices) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        let (before, after) = (Some(standing(900 * GIB, 1)), Some(standing(1800 * GIB, 1)));
        Ok(Change { before, after, ..change(format!("device 4 added to pool {}", r.pool), r.dry_run)? })
    }
    fn remove(&self, r: RemoveDevice) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        let what = format!("device {} leaves pool {}", r.device, r.pool);
        Ok(Change { move_bytes: 101 * GIB, after: Some(standing(500 * GIB, 1)), ..change(what, r.dry_run)? })
    }
    fn replace(&self, r: ReplaceDevice) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        change(format!("{} replaces device {}", r.new.path, r.device), r.dry_run)
    }
    fn balance(&self, r: Balance) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        change(format!("balance of pool {}", r.pool), r.dry_run)
    }
    fn job(&self, r: JobControl) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        change(format!("balance of pool {} changed", r.pool), false)
    }
    fn job_status(&self, r: JobStatus) -> Result<Vec<JobInfo>, ApiError> {
        Self::known(&r.pool)?;
        Ok(vec![JobInfo {
            pool: "tank".into(),
            task: Some("remove".into()),
            device: Some(3),
            state: "finished".into(),
            ended_at: Some("2026-11-21T08:01:00Z".into()),
            running_ns: 60_000_000_000,
            done_bytes: 101 * GIB,
            total_bytes: 101 * GIB,
            chunks: 11,
            ..JobInfo::default()
        }])
    }
    fn usage(&self, r: Usage) -> Result<Vec<PoolUsage>, ApiError> {
        Self::known(&r.pool)?;
        let device = |d: DeviceStatus| DeviceUsage {
            id: d.id,
            name: d.name,
            class: d.class,
            size_bytes: d.size_bytes,
            data_bytes: 89 * GIB,
            metadata_bytes: 12 * GIB,
            system_bytes: 0,
            unallocated_bytes: 831 * GIB,
        };
        let group = GroupUsage {
            kind: "data".into(),
            profile: "raid1".into(),
            chunks: 100,
            raw_bytes: 200 * GIB,
            size_bytes: 100 * GIB,
            used_bytes: 50 * GIB,
        };
        Ok(vec![PoolUsage {
            name: "tank".into(),
            raw_bytes: 3 * 932 * GIB,
            unallocated_bytes: 2493 * GIB,
            writable_data_bytes: 1246 * GIB,
            writable_metadata_bytes: 500 * GIB,
            data: "raid1@hdd".into(),
            metadata: "raid1c3".into(),
            groups: vec![group],
            devices: self.devices().into_iter().map(device).collect(),
        }])
    }
    fn iostat(&self, r: IoStat) -> Result<IoSnapshot, ApiError> {
        Self::known(&r.pool)?;
        // Ten seconds pass between two looks, a thousand reads a second.
        let looks = {
            let mut asked = self.asked.lock().expect("lock");
            asked.push(("iostat".into(), serde_json::Value::Null));
            asked.iter().filter(|(route, _)| route == "iostat").count() as u64
        };
        let io = IoCounters {
            reads: looks * 10_000,
            read_bytes: looks * 10_000 * 4096,
            read_ns: Some(looks * 3_100_000_000),
            ..IoCounters::default()
        };
        let device = |d: DeviceStatus| DeviceIo {
            id: d.id,
            name: d.name,
            class: d.class,
            io,
            chosen: io.reads,
            ..DeviceIo::default()
        };
        let pool = PoolIo {
            name: "tank".into(),
            client: io,
            devices: self.devices().into_iter().map(device).collect(),
            ..PoolIo::default()
        };
        Ok(IoSnapshot { time: "2026-11-21T08:00:00Z".into(), monotonic_ns: looks * 10_000_000_000, pools: vec![pool] })
    }
    fn get(&self, r: GetProperties) -> Result<Vec<Property>, ApiError> {
        self.note(&r);
        Self::pool(r.target.pool())?;
        let property = |name: &str, value: &str, choices: &str| Property {
            target: r.target.to_string(),
            name: name.into(),
            value: value.into(),
            source: Source::Default,
            choices: choices.split_whitespace().map(String::from).collect(),
            read_only: false,
        };
        let all = vec![
            property("mode", "tiers", "stock tiers"),
            property("read_policy", "latency", "pid latency device devid:1 queue"),
            property("strict", "off", ""),
        ];
        for name in &r.names {
            if !all.iter().any(|p| p.name == *name) {
                return Err(ApiError::not_found("property.not_found", format!("there is no property {name}")));
            }
        }
        Ok(all.into_iter().filter(|p| r.names.is_empty() || r.names.contains(&p.name)).collect())
    }
    fn set(&self, r: SetProperties) -> Result<Change, ApiError> {
        self.note(&r);
        let what: Vec<String> = r.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        change(format!("{} {}", r.target, what.join(" ")), r.dry_run)
    }
    fn device_list(&self, r: ListDevices) -> Result<Vec<DeviceStatus>, ApiError> {
        Self::known(&r.pool)?;
        Ok(self.devices())
    }
    fn device_scan(&self, r: ScanDevices) -> Result<Vec<ScannedDevice>, ApiError> {
        self.note(&r);
        let device = |path: &str, content: Option<&str>| ScannedDevice {
            path: path.into(),
            size_bytes: 8 * GIB,
            class: "hdd".into(),
            usable: content.is_none(),
            content: content.map(String::from),
            ..ScannedDevice::default()
        };
        Ok(vec![device("/dev/sdx", None), device("/dev/sdy", Some("mounted on /home"))])
    }
    fn volume_create(&self, r: CreateVolume) -> Result<Change, ApiError> {
        self.note(&r);
        Self::pool(&r.pool)?;
        if r.size_bytes > 1 << 50 {
            return Err(ApiError::usage("volume.too_large", "a volume has 1PiB at most"));
        }
        change(format!("volume {}/{} of {} bytes", r.pool, r.volume, r.size_bytes), r.dry_run)
    }
    fn volume_list(&self, r: ListVolumes) -> Result<Vec<VolumeInfo>, ApiError> {
        if self.without_volumes {
            return Err(ApiError::failed("pool.closing", "pool tank is being closed"));
        }
        Self::known(&r.pool)?;
        let volume = |id: u32, shares: &[&str]| VolumeInfo {
            pool: "tank".into(),
            id,
            name: format!("vm{id}"),
            size_bytes: 100 * GIB,
            data_bytes: GIB,
            class: "auto".into(),
            shares: shares.iter().map(|s| s.to_string()).collect(),
            ..VolumeInfo::default()
        };
        Ok(vec![volume(0, &["nbd+unix:///tank/vm0?socket=/run/x"]), volume(1, &[])])
    }
    fn volume_resize(&self, r: ResizeVolume) -> Result<Change, ApiError> {
        self.note(&r);
        Self::volume(&r.pool, &r.volume)?;
        change(format!("volume {}/{}", r.pool, r.volume), r.dry_run)
    }
    fn volume_rename(&self, r: RenameVolume) -> Result<Change, ApiError> {
        self.note(&r);
        Self::volume(&r.pool, &r.volume)?;
        change(format!("volume {}/{}", r.pool, r.to), r.dry_run)
    }
    fn volume_destroy(&self, r: DestroyVolume) -> Result<Change, ApiError> {
        self.note(&r);
        Self::volume(&r.pool, &r.volume)?;
        change(format!("volume {}/{} forgotten", r.pool, r.volume), r.dry_run)
    }
    fn volume_map(&self, r: MapVolume) -> Result<Vec<MapExtent>, ApiError> {
        Self::volume(&r.pool, &r.volume)?;
        // In two parts, as a large map comes.
        let hole = MapExtent { length_bytes: GIB, kind: "hole".into(), ..MapExtent::default() };
        let places = [2, 3].map(|device| MapPlace { device, offset_bytes: u64::from(device) << 20 }).to_vec();
        let profile = Some("raid1".into());
        let data =
            MapExtent { kind: "data".into(), chunk: Some(7), profile, places, offset_bytes: GIB, ..hole.clone() };
        Ok([hole, data].into_iter().filter(|e| e.offset_bytes == r.offset_bytes).collect())
    }
    fn share(&self, r: CreateShare) -> Result<ShareInfo, ApiError> {
        self.note(&r);
        Self::volume(&r.pool, &r.volume)?;
        let uri = match r.kind {
            ShareKind::Nbd => format!("nbd+unix:///{}/{}?socket=/run/braid/nbd.sock", r.pool, r.volume),
            ShareKind::Fuse => format!("/run/braid/fuse/{}/{}", r.pool, r.volume),
            ShareKind::Loop => "/dev/loop4".into(),
        };
        Ok(ShareInfo {
            id: 9,
            pool: r.pool,
            volume: r.volume,
            kind: r.kind,
            uri,
            read_only: r.read_only,
            ..ShareInfo::default()
        })
    }
    fn unshare(&self, r: RemoveShare) -> Result<Change, ApiError> {
        self.note(&r);
        change(format!("{} is no longer shared", r.target), r.dry_run)
    }
    fn shares(&self, r: ListShares) -> Result<Vec<ShareInfo>, ApiError> {
        Self::known(&r.pool)?;
        let nbd = ShareInfo {
            id: 1,
            pool: "tank".into(),
            volume: "vm0".into(),
            uri: "nbd+unix:///tank/vm0?socket=/run/x".into(),
            clients: Some(2),
            ..ShareInfo::default()
        };
        Ok(vec![nbd])
    }
    fn events(&self, r: ListEvents) -> Result<Vec<EventInfo>, ApiError> {
        Self::known(&r.pool)?;
        let event = EventInfo {
            sequence: 1,
            time: "2026-11-21T08:00:00Z".into(),
            pool: Some("tank".into()),
            code: "chunk.spill".into(),
            severity: "warning".into(),
            message: "1GiB of metadata went to a data tier".into(),
        };
        Ok([event].into_iter().filter(|e| e.sequence > r.after).collect())
    }
}

/// The mock on a socket of its own, until dropped.
pub(crate) struct Daemon {
    pub(crate) mock: Arc<Mock>,
    pub(crate) directory: tempfile::TempDir,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start() -> Daemon {
        let directory = tempfile::tempdir().expect("tempdir");
        let bound = server::bind(&directory.path().join("braid.sock")).expect("bind");
        let mock = Arc::new(Mock::default());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let service: Arc<dyn Service> = mock.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            let until = async {
                let _ = stopped.await;
            };
            runtime.block_on(bound.serve(service, until)).expect("serve");
        });
        Daemon { mock, directory, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("braid.sock")
    }

    /// The last request of a route.
    pub(crate) fn last(&self, route: &str) -> serde_json::Value {
        let asked = self.mock.asked.lock().expect("lock");
        asked.iter().rev().find(|(r, _)| r == route).unwrap_or_else(|| panic!("{route} was not asked")).1.clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a run of the command line gave.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The real binary, without a terminal, in an environment of its own.
pub(crate) fn command(socket: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_braid"));
    command.env_clear().env("BRAID_SOCKET", socket).env("HOME", "/nonexistent/home").env("PATH", "/usr/bin:/bin");
    command.stdin(std::process::Stdio::null());
    command
}

pub(crate) fn finish(mut command: std::process::Command) -> Run {
    let output = loop {
        match command.output() {
            // A copy of the binary that was just written: a child that another test forked meanwhile has it open for
            // writing until it executes something.
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            output => break output.expect("the braid binary runs"),
        }
    };
    Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

impl Daemon {
    /// `braid` with these words.
    pub(crate) fn braid(&self, line: &str) -> Run {
        let mut command = command(&self.socket());
        command.args(line.split_whitespace());
        finish(command)
    }
}
