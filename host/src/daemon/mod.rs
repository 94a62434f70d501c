//! The daemon: all pools of this process, and everything that is asked of them.
//!
//! ```text
//!   control socket ──► Daemon (service::Service)
//!                        │   pools/         create, destroy, import, export, scan
//!                        │   discover.rs    which devices are members of what
//!                        │   cache.rs       where members were last time, and what was shared
//!                        │   unopened.rs    pools that should be open and are not
//!                        │   members.rs     devices come and go
//!                        │   away.rs        members that vanished are taken back
//!                        │   jobs.rs        balance, and how far a job is
//!                        │   volumes.rs     create, resize, rename, destroy, map
//!                        │   properties.rs  get and set
//!                        │   shares/        NBD, FUSE, loop
//!                        │   views.rs       reports in the words of the API
//!                        │   events.rs      what happened
//!                        ▼
//!                  PumpHandle, one a pool: engine, ring, connections
//! ```
//!
//! **Locks**, in the order in which they may be taken:
//!
//! | lock | held while | by |
//! |---|---|---|
//! | `opening` | devices are claimed, a pool is opened | create, import |
//! | `OpenPool::change` | a volume or its shares change, the pool is closed; waits for the pump and for the kernel | all changes of one pool, export and destroy too |
//! | `listeners` | a socket is bound, or an acceptor ends | NBD shares |
//! | `OpenPool::pump` (shared) | the pump is asked something | everybody |
//! | `Cache` | `pools.json` is changed; waits for the disk it is on | whoever opens, closes, shares or unshares |
//! | `Pools::open`, `OpenPool::members`, `Shares`, `Unopened`, an export table, `Events` | a look or an insertion | everybody; leaves |
//!
//! Leaves are never held while something is waited for. Threads that others wait for (pumps, the acceptor, FUSE
//! sessions) take leaves only, and the acceptor *tries* `pump`: so whoever mounts, attaches or stops something while it
//! holds `change` always gets its answer.

mod away;
mod cache;
mod discover;
mod events;
mod jobs;
mod members;
mod pools;
mod problems;
mod properties;
mod scrub;
mod seen;
mod shares;
mod spares;
mod stats;
mod trace;
mod unopened;
mod views;
mod volumes;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use braid_core::control::ControlError;
use braid_core::report::PoolReport;
use braid_core::request::{Event, IoError};
use braid_core::units::{DeviceId, Uuid, VolumeId};

use crate::backend::{Facts, FaultHandle};
use crate::control::api::*;
use crate::control::server::own_uid;
use crate::control::service::Service;
use crate::pump::PumpHandle;
use crate::reactor::Choice;
use discover::Identity;
use events::{Events, Narrator};
use views::{About, MemberFacts};

pub use events::EVENTS_MAX;
pub use shares::usual_tls_directory;

/// Payload memory of one pool when nobody says otherwise: 128 requests of 1 MiB. Touched only when it is needed.
pub const MEMORY_DEFAULT: usize = 128 << 20;

/// How long a pool that was open before waits for members that were not there when the daemon started: as long as mdadm does.
pub const LATE: Duration = Duration::from_secs(30);

const _: () = assert!(MEMORY_DEFAULT >= crate::pump::MEMORY_MIN, "the largest request fits");

/// How to run a daemon.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// Sockets and mounts: `nbd.sock`, `fuse/`, `loop/`.
    pub runtime_dir: PathBuf,
    /// What outlives the process: `pools.json`.
    pub state_dir: PathBuf,
    /// Which way to talk to disks.
    pub reactor: Choice,
    /// Payload memory of each pool, in bytes.
    pub memory: usize,
    /// Past the page cache where the file system can.
    pub direct: bool,
    /// Folder for flight records of every pool that is opened; none is made without it.
    pub flight_dir: Option<PathBuf>,
}

impl DaemonConfig {
    /// The usual one beside the control socket: its folder takes the other sockets and the mounts, and what outlives
    /// the process goes to `/var/lib/braid` (root) or to this user's `$XDG_STATE_HOME/braid`.
    pub fn beside(socket: &std::path::Path) -> DaemonConfig {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let folder = socket.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
        let state = || match own_uid() {
            0 => PathBuf::from("/var/lib/braid"),
            uid => set("XDG_STATE_HOME")
                .or_else(|| Some(set("HOME")?.join(".local/state")))
                .unwrap_or_else(|| format!("/tmp/braid-{uid}/state").into())
                .join("braid"),
        };
        DaemonConfig {
            runtime_dir: std::path::absolute(folder).unwrap_or_else(|_| folder.into()),
            state_dir: set("BRAID_STATE_DIR").unwrap_or_else(state),
            reactor: Choice::Auto,
            memory: MEMORY_DEFAULT,
            direct: true,
            flight_dir: None,
        }
    }
}

/// A panic elsewhere must not make the daemon deaf: what a lock guards here is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the daemon knows of a pool and its members, who come and go. The lock is a leaf.
struct Members {
    about: About,
    /// Block devices and files among the members.
    identities: Vec<(Identity, DeviceId)>,
    faults: BTreeMap<DeviceId, FaultHandle>,
}

impl Members {
    /// It is here, for the first time or again.
    fn found(&mut self, id: DeviceId, path: String, identity: Option<Identity>, fault: FaultHandle, facts: Facts) {
        self.identities.retain(|(_, known)| *known != id);
        let Facts { model, serial, diskseq, note: notes, .. } = facts;
        self.about.members.insert(id, MemberFacts { path, model, serial, diskseq, notes });
        self.identities.extend(identity.map(|identity| (identity, id)));
        self.faults.insert(id, fault);
    }

    /// What the engine says of a member.
    fn hear(&mut self, event: &Event) {
        let away = &mut self.about.away;
        match *event {
            Event::DeviceRemoved { device, .. } => self.forget(device),
            Event::DeviceFailed { device, error: IoError::Gone } => {
                away.insert(device);
                // Its number may be another disk's by now.
                self.identities.retain(|(_, known)| *known != device);
            }
            // It is there, and no good.
            Event::DeviceFailed { device, .. } => drop(away.remove(&device)),
            _ => {}
        }
    }

    /// It is none any more.
    fn forget(&mut self, id: DeviceId) {
        self.about.members.remove(&id);
        self.about.away.remove(&id);
        self.identities.retain(|(_, known)| *known != id);
        self.faults.remove(&id);
    }
}

/// A pool that is served.
struct OpenPool {
    name: String,
    uuid: Uuid,
    members: Arc<RwLock<Members>>,
    /// Names members in events.
    narrator: Arc<Narrator>,
    /// See the table of locks.
    change: Mutex<()>,
    /// `None` once it is closed: who still holds the pool by then finds nobody to ask.
    pump: RwLock<Option<PumpHandle>>,
}

impl OpenPool {
    fn members(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member is here, for the first time or again.
    fn found(&self, id: DeviceId, path: String, identity: Option<Identity>, fault: FaultHandle, facts: Facts) {
        self.narrator.joined(id, &path);
        self.members.write().unwrap_or_else(PoisonError::into_inner).found(id, path, identity, fault, facts);
    }

    /// Whether a member is taken back when it is there again; whether it was before.
    fn await_member(&self, id: DeviceId, is_so: bool) -> bool {
        let away = &mut self.members.write().unwrap_or_else(PoisonError::into_inner).about.away;
        let was_so = away.remove(&id);
        if is_so {
            away.insert(id);
        }
        was_so
    }

    fn about(&self) -> About {
        self.members().about.clone()
    }

    fn ask<T>(&self, ask: impl FnOnce(&PumpHandle) -> Result<T, ControlError>) -> Result<T, ApiError> {
        match &*self.pump.read().unwrap_or_else(PoisonError::into_inner) {
            Some(pump) => ask(pump).map_err(ApiError::from),
            None => Err(ApiError::no_pool(&self.name)),
        }
    }

    fn report(&self) -> Result<PoolReport, ApiError> {
        self.ask(PumpHandle::report)
    }

    /// Takes the pump out and ends it; whoever asks meanwhile is answered first.
    fn close(&self) {
        let pump = self.pump.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(pump) = pump {
            pump.stop();
        }
    }

    /// Id and size of a volume.
    fn volume(&self, name: &str) -> Result<(VolumeId, u64), ApiError> {
        let report = self.report()?;
        let volume = report.volumes.iter().find(|v| v.name == name);
        volume.map(|v| (v.id, v.size)).ok_or_else(|| ApiError::no_volume(&self.name, name))
    }
}

/// The open pools. The lock is a leaf.
#[derive(Default)]
struct Pools {
    open: RwLock<BTreeMap<String, Arc<OpenPool>>>,
}

impl Pools {
    fn get(&self, name: &str) -> Result<Arc<OpenPool>, ApiError> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(name).cloned().ok_or_else(|| ApiError::no_pool(name))
    }
    fn by_uuid(&self, uuid: Uuid) -> Option<Arc<OpenPool>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.values().find(|p| p.uuid == uuid).cloned()
    }
    /// All, or the one named, in order of name.
    fn select(&self, name: Option<&String>) -> Result<Vec<Arc<OpenPool>>, ApiError> {
        match name {
            Some(name) => Ok(vec![self.get(name)?]),
            None => Ok(self.all()),
        }
    }
    fn all(&self) -> Vec<Arc<OpenPool>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
    fn insert(&self, pool: Arc<OpenPool>) {
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(pool.name.clone(), pool);
    }
    fn remove(&self, name: &str) -> Option<Arc<OpenPool>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(name)
    }
    /// Which open pool this device belongs to.
    fn owner(&self, identity: Identity) -> Option<(Arc<OpenPool>, DeviceId)> {
        self.all().into_iter().find_map(|pool| {
            let id = pool.members().identities.iter().find(|(i, _)| *i == identity)?.1;
            Some((pool, id))
        })
    }
}

/// Everything that is asked over the control socket ends here. See the module.
pub struct Daemon {
    config: DaemonConfig,
    boot: Uuid,
    cache: cache::Cache,
    opening: Mutex<()>,
    pools: Arc<Pools>,
    unopened: unopened::Unopened,
    shares: shares::Shares,
    listeners: Mutex<shares::Listeners>,
    events: Arc<Events>,
    down: AtomicBool,
}

impl Daemon {
    /// A daemon without pools; opens nothing yet.
    pub fn new(config: DaemonConfig) -> Daemon {
        // The origin of the clock, so that no pool is older than it.
        views::monotonic_ns();
        Daemon {
            cache: cache::Cache::new(&config.state_dir),
            config,
            boot: present_boot(),
            opening: Mutex::default(),
            pools: Arc::default(),
            unopened: unopened::Unopened::default(),
            shares: shares::Shares::default(),
            listeners: Mutex::default(),
            events: Arc::default(),
            down: AtomicBool::new(false),
        }
    }

    /// Opens the pools that were open when the last daemon ended, and shares what was shared of them. What cannot be
    /// opened or shared is said in the log, in the events and in `status`, and stays remembered. Returns the names of
    /// those that are open now.
    pub fn import_remembered(&self) -> Vec<String> {
        self.open_remembered()
    }

    /// Serves NBD on a listening socket that a service manager made; shares on "the daemon's own socket" (a Unix one) or
    /// on its address (TCP) then are reached through it.
    pub fn serve_activated_nbd(&self, socket: OwnedFd) -> Result<(), ApiError> {
        self.adopt_listener(socket)
    }

    /// A handle to break a member with, for tests.
    #[doc(hidden)]
    pub fn fault_handle(&self, pool: &str, device: u32) -> Option<FaultHandle> {
        self.pools.get(pool).ok()?.members().faults.get(&DeviceId(device)).cloned()
    }

    /// Somebody changes or closes this pool now; for tests.
    #[doc(hidden)]
    pub fn pool_is_changing(&self, pool: &str) -> bool {
        self.pools.get(pool).is_ok_and(|p| matches!(p.change.try_lock(), Err(std::sync::TryLockError::WouldBlock)))
    }

    /// Unshares everything by force and closes all pools; later calls do nothing.
    fn end(&self) {
        if self.down.swap(true, Ordering::SeqCst) {
            return;
        }
        let _opening = lock(&self.opening);
        for pool in self.pools.all() {
            let _change = lock(&pool.change);
            if let Err(problem) = self.unshare_all(&pool, true) {
                tracing::warn!("{problem}");
            }
            self.pools.remove(&pool.name);
            pool.close();
        }
        self.stop_listeners();
    }

    /// Nothing new is begun once the daemon is about to end.
    fn alive(&self) -> Result<(), ApiError> {
        match self.down.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(ApiError::failed("daemon.ending", "the daemon is about to end")),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// The present boot of the machine; a fresh one where the kernel does not say, which reads as "another boot".
fn present_boot() -> Uuid {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let id = uuid::Uuid::parse_str(text.trim()).unwrap_or_else(|_| uuid::Uuid::new_v4());
    Uuid(id.into_bytes())
}

impl Service for Daemon {
    fn create(&self, request: CreatePool) -> Result<Change, ApiError> {
        self.alive()?;
        self.create_pool(request)
    }
    fn destroy(&self, request: DestroyPool) -> Result<Change, ApiError> {
        self.alive()?;
        self.destroy_pool(&request)
    }
    fn import(&self, request: ImportPools) -> Result<Vec<FoundPool>, ApiError> {
        self.alive()?;
        self.import_pools(&request)
    }
    fn export(&self, request: ExportPool) -> Result<Change, ApiError> {
        self.alive()?;
        self.export_pool(&request)
    }

    fn list(&self, request: ListPools) -> Result<Vec<PoolSummary>, ApiError> {
        self.view_all(request.pool.as_ref(), |report, _| views::summary(report), unopened::Entry::summary)
    }
    fn status(&self, request: Status) -> Result<Vec<PoolStatus>, ApiError> {
        let mut all = self.view_all(request.pool.as_ref(), views::status, unopened::Entry::status)?;
        let unwritten = self.cache.retry();
        for pool in &mut all {
            pool.problems.extend(self.shares.problems(&pool.uuid));
            pool.problems.extend(unwritten.as_deref().map(problems::cache_failed));
        }
        Ok(all)
    }
    fn usage(&self, request: Usage) -> Result<Vec<PoolUsage>, ApiError> {
        self.view(request.pool.as_ref(), views::usage)
    }
    fn iostat(&self, request: IoStat) -> Result<IoSnapshot, ApiError> {
        let pools = self.view(request.pool.as_ref(), |report, about| stats::io(report, about, request.histograms))?;
        let time = rfc3339(std::time::SystemTime::now());
        Ok(IoSnapshot { time, monotonic_ns: views::monotonic_ns(), pools })
    }

    fn get(&self, request: GetProperties) -> Result<Vec<Property>, ApiError> {
        self.get_properties(&request)
    }
    fn set(&self, request: SetProperties) -> Result<Change, ApiError> {
        self.alive()?;
        self.set_properties(&request)
    }

    fn device_list(&self, request: ListDevices) -> Result<Vec<DeviceStatus>, ApiError> {
        Ok(self.view(request.pool.as_ref(), views::devices)?.into_iter().flatten().collect())
    }
    fn device_scan(&self, request: ScanDevices) -> Result<Vec<ScannedDevice>, ApiError> {
        self.scan(&request)
    }
    fn device_online(&self, request: OnlineDevice) -> Result<Change, ApiError> {
        self.alive()?;
        self.online_device(&request)
    }
    fn device_offline(&self, request: OfflineDevice) -> Result<Change, ApiError> {
        self.alive()?;
        self.offline_device(&request)
    }
    fn device_clear(&self, request: ClearErrors) -> Result<Change, ApiError> {
        self.alive()?;
        self.clear_errors(&request)
    }

    fn volume_create(&self, request: CreateVolume) -> Result<Change, ApiError> {
        self.alive()?;
        self.create_volume(&request)
    }
    fn volume_list(&self, request: ListVolumes) -> Result<Vec<VolumeInfo>, ApiError> {
        self.list_volumes(&request)
    }
    fn volume_resize(&self, request: ResizeVolume) -> Result<Change, ApiError> {
        self.alive()?;
        self.resize_volume(&request)
    }
    fn volume_rename(&self, request: RenameVolume) -> Result<Change, ApiError> {
        self.alive()?;
        self.rename_volume(&request)
    }
    fn volume_destroy(&self, request: DestroyVolume) -> Result<Change, ApiError> {
        self.alive()?;
        self.destroy_volume(&request)
    }
    fn volume_map(&self, request: MapVolume) -> Result<Vec<MapExtent>, ApiError> {
        self.map_volume(&request)
    }

    fn share(&self, request: CreateShare) -> Result<ShareInfo, ApiError> {
        self.alive()?;
        self.create_share(&request)
    }
    fn unshare(&self, request: RemoveShare) -> Result<Change, ApiError> {
        self.remove_shares(&request)
    }
    fn shares(&self, request: ListShares) -> Result<Vec<ShareInfo>, ApiError> {
        self.list_shares(&request)
    }

    fn scrub(&self, request: Scrub) -> Result<Change, ApiError> {
        self.alive()?;
        self.change_scrub(&request)
    }
    fn scrub_status(&self, request: ScrubStatus) -> Result<Vec<ScrubInfo>, ApiError> {
        self.view(request.pool.as_ref(), scrub::info)
    }

    fn add(&self, request: AddDevices) -> Result<Change, ApiError> {
        self.alive()?;
        self.add_devices(&request)
    }
    fn remove(&self, request: RemoveDevice) -> Result<Change, ApiError> {
        self.alive()?;
        self.remove_device(&request)
    }
    fn replace(&self, request: ReplaceDevice) -> Result<Change, ApiError> {
        self.alive()?;
        self.replace_device(&request)
    }
    fn balance(&self, request: Balance) -> Result<Change, ApiError> {
        self.alive()?;
        self.start_balance(&request)
    }
    fn job(&self, request: JobControl) -> Result<Change, ApiError> {
        self.alive()?;
        self.change_job(&request)
    }
    fn job_status(&self, request: JobStatus) -> Result<Vec<JobInfo>, ApiError> {
        self.view(request.pool.as_ref(), |report, _| jobs::info(report))
    }

    fn trace(&self, request: TakeTrace) -> Result<TracePart, ApiError> {
        self.take_trace(&request)
    }

    fn events(&self, request: ListEvents) -> Result<Vec<EventInfo>, ApiError> {
        Ok(self.events.list(&request))
    }

    fn shutdown(&self) {
        self.end();
    }
}

impl Daemon {
    /// As [`Daemon::view`], with the pools that should be open and are not behind those that are.
    fn view_all<T>(
        &self,
        name: Option<&String>,
        open: impl Fn(&PoolReport, &About) -> T,
        unopened: impl Fn(&unopened::Entry) -> T,
    ) -> Result<Vec<T>, ApiError> {
        let others = self.unopened.select(name, |uuid| self.pools.all().iter().any(|p| p.uuid.to_string() == uuid));
        match self.view(name, open) {
            Err(e) if e.kind == ErrorKind::NotFound && !others.is_empty() => Ok(others.iter().map(unopened).collect()),
            Err(e) => Err(e),
            // One that is open has the better right to its name.
            Ok(all) if name.is_some() => Ok(all),
            Ok(all) => Ok(all.into_iter().chain(others.iter().map(unopened)).collect()),
        }
    }

    /// Reports of the pools asked for, mapped. A pool that was closed meanwhile is left out of a listing of all.
    fn view<T>(&self, name: Option<&String>, map: impl Fn(&PoolReport, &About) -> T) -> Result<Vec<T>, ApiError> {
        let mut all = Vec::new();
        for pool in self.pools.select(name)? {
            match pool.report() {
                Ok(report) => all.push(map(&report, &pool.about())),
                Err(e) if name.is_none() && e.kind == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(all)
    }
}
