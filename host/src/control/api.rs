//! What can be asked of the daemon, as plain values: the wire format of the control socket.
//!
//! ```text
//!   braid (command line) --- POST /v1/<route>, JSON ---> server.rs ---> Service (the daemon)
//!                        <-- envelope or error, JSON --            <---
//! ```
//!
//! The structs here are independent of the engine's on purpose: the engine may rename a field, a script that reads
//! `size_bytes` must not notice. Keys carry their unit (`_bytes`, `_ns`), numbers are numbers, times are RFC 3339,
//! objects have a stable id beside their name. Within version 1 fields may be added, never renamed or removed.
//!
//! A success is `{"schema":"braid.status","version":1,"data":…}`, the schema being `braid.` and the route; a failure is
//! `{"error":{"code","kind","message","hint"}}`. Both are exactly what the command line prints with `-j`.
//!
//! What [`server`](super::server) has done before a [`Service`] sees a request: the JSON fits the struct, unknown keys
//! were refused, and [`check`] has passed names, profiles, policies and tiers. What is left to the
//! service: everything that needs to know the pool.

use super::check;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the envelope and of every struct in this file.
pub const VERSION: u32 = 1;

/// What the control server needs from the rest of the daemon.
///
/// Methods block; the server calls each from a thread that may. They may run at the same time, a change and a
/// listing included. A change is durable when it returns, or has not happened at all: nothing half made.
pub trait Service: Send + Sync + 'static {
    /// Makes a pool and opens it; with `dry_run` only says what would be.
    fn create(&self, request: CreatePool) -> Result<Change, ApiError>;
    /// Closes a pool and makes its devices forget it. Refused while a volume is shared, unless forced.
    fn destroy(&self, request: DestroyPool) -> Result<Change, ApiError>;
    /// Looks for pools on devices and opens those that were asked for.
    fn import(&self, request: ImportPools) -> Result<Vec<FoundPool>, ApiError>;
    /// Writes a checkpoint and closes a pool. Refused while a volume is shared, unless forced.
    fn export(&self, request: ExportPool) -> Result<Change, ApiError>;
    /// Open pools, in name order.
    fn list(&self, request: ListPools) -> Result<Vec<PoolSummary>, ApiError>;
    /// How open pools are, in name order.
    fn status(&self, request: Status) -> Result<Vec<PoolStatus>, ApiError>;
    /// Where space went.
    fn usage(&self, request: Usage) -> Result<Vec<PoolUsage>, ApiError>;
    /// Raw counters; whoever asks takes differences.
    fn iostat(&self, request: IoStat) -> Result<IoSnapshot, ApiError>;

    /// Properties of a pool, device or volume, in the order of the documentation. An unknown name is an error that
    /// lists the known ones.
    fn get(&self, request: GetProperties) -> Result<Vec<Property>, ApiError>;
    /// Sets properties: all of them or none. What already holds succeeds and changes nothing.
    fn set(&self, request: SetProperties) -> Result<Change, ApiError>;

    /// Members, in id order.
    fn device_list(&self, request: ListDevices) -> Result<Vec<DeviceStatus>, ApiError>;
    /// What could be a member, and what speaks against it; opens nothing for writing.
    fn device_scan(&self, request: ScanDevices) -> Result<Vec<ScannedDevice>, ApiError>;

    /// Makes a thin volume.
    fn volume_create(&self, request: CreateVolume) -> Result<Change, ApiError>;
    /// Volumes of one pool or of all.
    fn volume_list(&self, request: ListVolumes) -> Result<Vec<VolumeInfo>, ApiError>;
    /// Grows a volume.
    fn volume_resize(&self, request: ResizeVolume) -> Result<Change, ApiError>;
    /// Gives a volume another name.
    fn volume_rename(&self, request: RenameVolume) -> Result<Change, ApiError>;
    /// Forgets a volume and its content.
    fn volume_destroy(&self, request: DestroyVolume) -> Result<Change, ApiError>;
    /// Where the content of a volume is.
    fn volume_map(&self, _request: MapVolume) -> Result<Vec<MapExtent>, ApiError> {
        Err(ApiError::not_yet("volume map"))
    }

    /// Serves a volume; ready to be connected to when this returns.
    fn share(&self, request: CreateShare) -> Result<ShareInfo, ApiError>;
    /// Stops serving; pending requests are answered first.
    fn unshare(&self, request: RemoveShare) -> Result<Change, ApiError>;
    /// What is served, in id order.
    fn shares(&self, request: ListShares) -> Result<Vec<ShareInfo>, ApiError>;

    /// What happened, oldest first.
    fn events(&self, request: ListEvents) -> Result<Vec<EventInfo>, ApiError>;

    /// The daemon is about to end: unshare, checkpoint and close everything. Called once, after the last request.
    fn shutdown(&self) {}
}

/// A request with its route and its reply; what ties client, server and [`Service`] together.
pub trait Call: Serialize + DeserializeOwned + Send + 'static {
    /// Last part of the address, and of the schema: `status` is `POST /v1/status` and `braid.status`.
    const ROUTE: &'static str;
    /// What comes back.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// What can be judged without knowing the pool; may round values. See [`check`].
    fn check(&mut self) -> Result<(), ApiError>;
    /// Hands the request to the service.
    fn call(self, service: &dyn Service) -> Result<Self::Reply, ApiError>;
}

macro_rules! calls {
    ($($route:literal $method:ident $request:ident -> $reply:ty $(, $check:path)?;)*) => {
        $(impl Call for $request {
            const ROUTE: &'static str = $route;
            type Reply = $reply;
            fn check(&mut self) -> Result<(), ApiError> {
                $($check(self)?;)?
                Ok(())
            }
            fn call(self, service: &dyn Service) -> Result<$reply, ApiError> {
                service.$method(self)
            }
        })*

        /// Every route, in the order of the documentation.
        pub const ROUTES: &[&str] = &[$($route),*];
    };
}

calls! {
    "create" create CreatePool -> Change, check::create;
    "destroy" destroy DestroyPool -> Change;
    "import" import ImportPools -> Vec<FoundPool>;
    "export" export ExportPool -> Change;
    "list" list ListPools -> Vec<PoolSummary>;
    "status" status Status -> Vec<PoolStatus>;
    "usage" usage Usage -> Vec<PoolUsage>;
    "iostat" iostat IoStat -> IoSnapshot;
    "get" get GetProperties -> Vec<Property>;
    "set" set SetProperties -> Change, check::set;
    "device.list" device_list ListDevices -> Vec<DeviceStatus>;
    "device.scan" device_scan ScanDevices -> Vec<ScannedDevice>;
    "volume.create" volume_create CreateVolume -> Change, check::volume_create;
    "volume.list" volume_list ListVolumes -> Vec<VolumeInfo>;
    "volume.resize" volume_resize ResizeVolume -> Change, check::volume_resize;
    "volume.rename" volume_rename RenameVolume -> Change, check::volume_rename;
    "volume.destroy" volume_destroy DestroyVolume -> Change;
    "volume.map" volume_map MapVolume -> Vec<MapExtent>;
    "share" share CreateShare -> ShareInfo;
    "unshare" unshare RemoveShare -> Change;
    "shares" shares ListShares -> Vec<ShareInfo>;
    "events" events ListEvents -> Vec<EventInfo>;
}

// ---------------------------------------------------------------------------------------------------------------
// Envelope and errors

/// What a success looks like on the wire and with `-j`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// `braid.` and the route.
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// The answer.
    pub data: T,
}

impl<T> Envelope<T> {
    /// The envelope of this route's reply.
    pub fn new(route: &str, data: T) -> Self {
        Envelope { schema: format!("braid.{route}"), version: VERSION, data }
    }
}

/// What a failure looks like on the wire and with `-j`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorEnvelope {
    /// The failure.
    pub error: ApiError,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// Stable word for programs, `object.what`: `pool.not_found`.
    pub code: String,
    /// Class of failure; decides the exit code.
    pub kind: ErrorKind,
    /// One sentence with the cause.
    pub message: String,
    /// The next step, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Classes of failure: one exit code and one HTTP status each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Tried and failed.
    Failed,
    /// Malformed or unknown value.
    Usage,
    /// The daemon is not there, or does not answer this user. Made by the client only.
    Unreachable,
    /// No such pool, device, volume, share or property.
    NotFound,
    /// Something could be lost; `-f` may allow it.
    Refused,
}

impl ErrorKind {
    /// Exit code of the command line.
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Failed => 1,
            ErrorKind::Usage => 2,
            ErrorKind::Unreachable => 3,
            ErrorKind::NotFound => 4,
            ErrorKind::Refused => 5,
        }
    }

    /// HTTP status.
    pub fn http_status(self) -> u16 {
        match self {
            ErrorKind::Failed => 500,
            ErrorKind::Usage => 400,
            ErrorKind::Unreachable => 503,
            ErrorKind::NotFound => 404,
            ErrorKind::Refused => 409,
        }
    }
}

impl ApiError {
    /// An error of this kind, without a hint.
    pub fn new(kind: ErrorKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        ApiError { code: code.into(), kind, message: message.into(), hint: None }
    }
    /// Tried and failed (exit 1).
    pub fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, code, message)
    }
    /// Malformed or unknown value (exit 2).
    pub fn usage(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, code, message)
    }
    /// No such object (exit 4).
    pub fn not_found(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, code, message)
    }
    /// Refused for safety (exit 5).
    pub fn refused(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, code, message)
    }
    /// No pool of this name.
    pub fn no_pool(name: &str) -> Self {
        Self::not_found("pool.not_found", format!("there is no open pool named {name}"))
            .hint("see the open ones with: braid list   look for others with: braid import")
    }
    /// No volume of this name.
    pub fn no_volume(pool: &str, volume: &str) -> Self {
        Self::not_found("volume.not_found", format!("there is no volume {volume} in pool {pool}"))
            .hint(format!("see what is there with: braid volume list {pool}"))
    }
    /// No device of this id.
    pub fn no_device(pool: &str, device: u32) -> Self {
        Self::not_found("device.not_found", format!("pool {pool} has no device {device}"))
            .hint(format!("see its members with: braid device list {pool}"))
    }
    /// Known to the design, not to this version.
    pub fn not_yet(what: &str) -> Self {
        Self::failed("not_yet", format!("{what} is not there yet in this version of braid"))
    }
    /// The same with a next step.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<braid_core::control::ControlError> for ApiError {
    fn from(e: braid_core::control::ControlError) -> Self {
        use braid_core::control::ErrorKind as K;
        let (kind, code) = match e.kind {
            K::Usage => (ErrorKind::Usage, "value.invalid"),
            K::NotFound => (ErrorKind::NotFound, "object.not_found"),
            K::Exists => (ErrorKind::Failed, "object.exists"),
            K::Refused => (ErrorKind::Refused, "change.refused"),
            K::NoSpace => (ErrorKind::Failed, "pool.no_space"),
            K::Io => (ErrorKind::Failed, "device.io"),
            K::Busy => (ErrorKind::Failed, "object.busy"),
        };
        ApiError::new(kind, code, e.message)
    }
}

/// What a changing request did, or with `dry_run` would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Something is (would be) different now; false when it held already.
    pub changed: bool,
    /// Nothing was done, this is what would be.
    pub dry_run: bool,
    /// One line on what was (would be) done: `pool tank of 3 devices`, `volume tank/vm0 of 100GiB`.
    pub what: String,
    /// Capacity and safety before; absent when there was no pool, or they have nothing to do with the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Standing>,
    /// Capacity and safety after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Standing>,
    /// Bytes to be moved by it.
    #[serde(default)]
    pub move_bytes: u64,
    /// What the operator should know: roundings, spills, guesses; one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Change {
    /// Done: `what`.
    pub fn done(what: impl Into<String>) -> Self {
        Change { changed: true, what: what.into(), ..Change::default() }
    }
    /// It held already.
    pub fn unchanged(what: impl Into<String>) -> Self {
        Change { what: what.into(), ..Change::default() }
    }
}

/// How much a pool holds and how much it survives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Sum of member sizes.
    pub raw_bytes: u64,
    /// Data that could still be written, in the data profile.
    pub writable_data_bytes: u64,
    /// Metadata that could still be written, in the metadata profile.
    pub writable_metadata_bytes: u64,
    /// Device failures that data is sure to survive.
    pub data_failures: u32,
    /// Device failures that metadata is sure to survive.
    pub metadata_failures: u32,
}

// ---------------------------------------------------------------------------------------------------------------
// Pools

/// Make a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Name; checked.
    pub name: String,
    /// Members, in id order.
    #[serde(default)]
    pub devices: Vec<NewDevice>,
    /// Sparse files to make and to use as further members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<NewFiles>,
    /// Profile of data; the service chooses by the number of devices when absent (raid1 from two, else single).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<ProfileSpec>,
    /// Profile of metadata, and of braid's own records; by the number of devices when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ProfileSpec>,
    /// Allocation mode: one of [`check::MODES`]; `tiers` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Fail rather than spill to a tier that is not preferred.
    #[serde(default)]
    pub strict: bool,
    /// Further pool properties, as for `set`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Use devices that carry a known file system or a foreign pool; never one that is in use.
    #[serde(default)]
    pub force: bool,
}

/// A member to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewDevice {
    /// Absolute path, or `ram:SIZE`, `null:SIZE`.
    pub path: String,
    /// Device class; guessed from the device when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Tier (0-255, 255 = never) by chunk type: `data`, `metadata`, `system`. What is absent follows from the class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tiers: BTreeMap<String, u8>,
}

/// Files to be made as members: `disk0.img` and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewFiles {
    /// How many.
    pub count: u32,
    /// Bytes each.
    pub size_bytes: u64,
    /// Absolute path of the folder they go to; made if missing.
    pub directory: String,
}

/// `raid1`, `raid6@hdd`, `raid1@ssd,hdd`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// One of [`check::PROFILES`].
    pub profile: String,
    /// Device classes it is meant for, in order of preference; empty = any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
}

impl std::fmt::Display for ProfileSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.profile)?;
        if !self.classes.is_empty() {
            write!(f, "@{}", self.classes.join(","))?;
        }
        Ok(())
    }
}

/// Forget a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyPool {
    /// Which.
    pub pool: String,
    /// Even while volumes are shared.
    #[serde(default)]
    pub force: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Close a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportPool {
    /// Which.
    pub pool: String,
    /// Even while volumes are shared.
    #[serde(default)]
    pub force: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Find pools, and open them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportPools {
    /// Names or uuids to open. Empty and not `all`: only look.
    #[serde(default)]
    pub names: Vec<String>,
    /// Open everything that is found complete enough.
    #[serde(default)]
    pub all: bool,
    /// Folders to search; with no device named either, the service searches its usual places.
    #[serde(default)]
    pub directories: Vec<String>,
    /// Devices to search.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Open under this name; only with one name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rename: Option<String>,
    /// Open although devices are missing, or it looks open elsewhere.
    #[serde(default)]
    pub force: bool,
    /// Only look.
    #[serde(default)]
    pub dry_run: bool,
}

/// A pool found on devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundPool {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: String,
    /// Whether it can be (or is) opened.
    pub state: PoolState,
    /// It is open now because of this request.
    pub imported: bool,
    /// Where its members are.
    pub devices: Vec<FoundDevice>,
    /// Members that were not found.
    pub missing: u32,
    /// Why not, or what to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A member found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDevice {
    /// Its id in the pool.
    pub id: u32,
    /// Where.
    pub path: String,
}

/// How a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// Everything is there.
    Online,
    /// Serving, with less redundancy than asked for.
    Degraded,
    /// Some content cannot be read or written.
    Unavailable,
}

impl PoolState {
    /// The word in listings.
    pub fn name(self) -> &'static str {
        match self {
            PoolState::Online => "ONLINE",
            PoolState::Degraded => "DEGRADED",
            PoolState::Unavailable => "UNAVAIL",
        }
    }
}

/// Which pools: the one named, or all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListPools {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// A line of `braid list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolSummary {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: String,
    /// State.
    pub state: PoolState,
    /// Sum of member sizes.
    pub size_bytes: u64,
    /// Of it in chunks.
    pub allocated_bytes: u64,
    /// Of it not in chunks.
    pub free_bytes: u64,
    /// Data that could still be written, in the data profile.
    pub writable_bytes: u64,
    /// Members.
    pub devices: u32,
    /// Volumes.
    pub volumes: u32,
    /// Data profile, such as `raid1@hdd`.
    pub data: String,
    /// Metadata profile.
    pub metadata: String,
}

/// How pools are: the one named, or all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// How a pool is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: String,
    /// State.
    pub state: PoolState,
    /// When it was opened, RFC 3339.
    pub opened_at: String,
    /// Since then.
    pub uptime_ns: u64,
    /// Device failures that all content is sure to survive from now on.
    pub survivable_failures: u32,
    /// Data profile, such as `raid1@hdd`.
    pub data: String,
    /// Metadata profile.
    pub metadata: String,
    /// Read policy, with its values: `round-robin:262144`.
    pub read_policy: String,
    /// Allocation mode.
    pub mode: String,
    /// Chunks.
    pub chunks: u64,
    /// Of them with fewer good columns than their profile says.
    pub degraded_chunks: u64,
    /// Volumes.
    pub volumes: u32,
    /// Generation of the newest superblock.
    pub generation: u64,
    /// Data that could still be written.
    pub writable_data_bytes: u64,
    /// Metadata that could still be written.
    pub writable_metadata_bytes: u64,
    /// Chunks on a tier their type does not prefer; empty is good.
    #[serde(default)]
    pub spilled: Vec<Spill>,
    /// What is wrong, worst first; empty is good.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// What there is to know and nothing to worry about: how disks are talked to, what a power cut took back.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Members in id order.
    pub devices: Vec<DeviceStatus>,
}

/// Bytes of one chunk type that did not find room where they belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spill {
    /// `data`, `metadata` or `system`.
    pub kind: String,
    /// Length of the chunks.
    pub bytes: u64,
    /// How many spills since the pool was opened.
    pub count: u64,
}

/// Something wrong with a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Stable word: `device.failed`.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

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
    /// Reads and writes since the pool was opened that took longer than 1 s on a rotating member, 100 ms on another,
    /// waiting in the member's line included.
    pub slow_ios: u64,
    /// Recent mean latency of interactive reads; 0 = no sample yet.
    pub read_latency_ns: u64,
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

// ---------------------------------------------------------------------------------------------------------------
// Properties

/// What has properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Target {
    /// A pool.
    Pool {
        /// Its name.
        pool: String,
    },
    /// A member.
    Device {
        /// Pool.
        pool: String,
        /// Id.
        device: u32,
    },
    /// A volume.
    Volume {
        /// Pool.
        pool: String,
        /// Name within the pool.
        volume: String,
    },
}

impl Target {
    /// The pool it is in.
    pub fn pool(&self) -> &str {
        match self {
            Target::Pool { pool } | Target::Device { pool, .. } | Target::Volume { pool, .. } => pool,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Pool { pool } => f.write_str(pool),
            Target::Device { pool, device } => write!(f, "{pool}:{device}"),
            Target::Volume { pool, volume } => write!(f, "{pool}/{volume}"),
        }
    }
}

/// Read properties.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetProperties {
    /// Of what.
    pub target: Target,
    /// Which; all when empty.
    #[serde(default)]
    pub names: Vec<String>,
}

/// Set properties.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetProperties {
    /// Of what.
    pub target: Target,
    /// Names and values, as an operator writes them. Pool: `read_policy`, `mode`, `strict`, …; device: `class`,
    /// `tier.data`, `tier.metadata`, `tier.system`, `rotational`, `read_preferred`, `allocation_hint`; volume:
    /// `class`.
    pub values: BTreeMap<String, String>,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Although fewer failures would be survived.
    #[serde(default)]
    pub force: bool,
}

/// One property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Property {
    /// Of what: `tank`, `tank:3`, `tank/vm0`.
    pub target: String,
    /// Name.
    pub name: String,
    /// Value as it would be set.
    pub value: String,
    /// Where the value comes from.
    pub source: Source,
    /// All values as a list, the current one with its parameters: `["pid","latency","device","devid:1"]`. Empty when
    /// the values are no list.
    #[serde(default)]
    pub choices: Vec<String>,
    /// Cannot be set.
    #[serde(default)]
    pub read_only: bool,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Nobody said otherwise.
    Default,
    /// Set, and kept in the pool.
    Pool,
    /// Set until restart.
    Runtime,
    /// Cannot be set: measured or given.
    Fixed,
}

impl Source {
    /// The word in listings.
    pub fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::Pool => "pool",
            Source::Runtime => "runtime",
            Source::Fixed => "-",
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Volumes

/// Make a thin volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Pool.
    pub pool: String,
    /// Name within the pool; checked.
    pub volume: String,
    /// Size; the server has rounded it up to whole blocks.
    pub size_bytes: u64,
    /// What its writes count as: `auto`, `metadata`, `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Although it could never be filled.
    #[serde(default)]
    pub force: bool,
}

/// Volumes: of the pool named, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListVolumes {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Pool.
    pub pool: String,
    /// Id within the pool.
    pub id: u32,
    /// Name within the pool.
    pub name: String,
    /// Size that clients see.
    pub size_bytes: u64,
    /// Mapped to data chunks.
    pub data_bytes: u64,
    /// Mapped to metadata chunks.
    pub metadata_bytes: u64,
    /// What its writes count as.
    pub class: String,
    /// Where it is served.
    #[serde(default)]
    pub shares: Vec<String>,
}

/// Change the size of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// Pool.
    pub pool: String,
    /// Name.
    pub volume: String,
    /// New size, or with `relative` what is added (or taken) from the present one.
    pub size_bytes: i64,
    /// See `size_bytes`.
    #[serde(default)]
    pub relative: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Although it could never be filled.
    #[serde(default)]
    pub force: bool,
}

/// Give a volume another name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenameVolume {
    /// Pool.
    pub pool: String,
    /// Name.
    pub volume: String,
    /// New name; checked.
    pub to: String,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Forget a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyVolume {
    /// Pool.
    pub pool: String,
    /// Name.
    pub volume: String,
    /// Even while it is shared.
    #[serde(default)]
    pub force: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Where the content of a volume is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapVolume {
    /// Pool.
    pub pool: String,
    /// Name.
    pub volume: String,
    /// From here on.
    #[serde(default)]
    pub offset_bytes: u64,
    /// At most so many extents; 0 = as many as the service gives.
    #[serde(default)]
    pub limit: u32,
}

/// A run of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapExtent {
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// `hole`, `data` or `metadata`.
    pub kind: String,
    /// Chunk, when mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u32>,
    /// First byte of the run within the chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_offset_bytes: Option<u64>,
    /// The chunk's profile, when mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The run changes from one set of devices to the next after so many bytes; absent when it stands on each in one
    /// piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strip_bytes: Option<u64>,
    /// Where it begins on each device that has a part of it: all copies, and every column of a striped profile.
    #[serde(default)]
    pub places: Vec<MapPlace>,
}

/// Where on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapPlace {
    /// Device.
    pub device: u32,
    /// First byte on it.
    pub offset_bytes: u64,
}

// ---------------------------------------------------------------------------------------------------------------
// Shares

/// How a volume is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareKind {
    /// Network block device.
    #[default]
    Nbd,
    /// A file in a FUSE mount.
    Fuse,
    /// A loop device over that file.
    Loop,
}

impl ShareKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            ShareKind::Nbd => "nbd",
            ShareKind::Fuse => "fuse",
            ShareKind::Loop => "loop",
        }
    }
}

/// Whether TLS is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// Never.
    #[default]
    Off,
    /// When the client asks for it.
    Allow,
    /// Nothing else.
    Require,
}

impl Tls {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Tls::Off => "off",
            Tls::Allow => "allow",
            Tls::Require => "require",
        }
    }
}

/// Where an NBD share listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Listen {
    /// On the daemon's NBD socket.
    #[default]
    Unix,
    /// On a Unix socket at this absolute path.
    UnixPath(String),
    /// On `ADDRESS:PORT`; port 0 = any free one.
    Tcp(String),
}

/// Serve a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateShare {
    /// Pool.
    pub pool: String,
    /// Volume.
    pub volume: String,
    /// How.
    pub kind: ShareKind,
    /// Where (NBD).
    #[serde(default)]
    pub listen: Listen,
    /// TLS (NBD).
    #[serde(default)]
    pub tls: Tls,
    /// Folder with the certificates of `braid tls init`; the usual one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_directory: Option<String>,
    /// Refuse writes.
    #[serde(default)]
    pub read_only: bool,
    /// Until it is unshared or the daemon ends. Others come back with their pool.
    #[serde(default)]
    pub temporary: bool,
}

/// A share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShareInfo {
    /// Id, never reused while the daemon lives.
    pub id: u32,
    /// Pool.
    pub pool: String,
    /// Volume.
    pub volume: String,
    /// How.
    pub kind: ShareKind,
    /// The URI, or the path of the file or device: all a client needs.
    pub uri: String,
    /// TLS.
    #[serde(default)]
    pub tls: Tls,
    /// Refuses writes.
    pub read_only: bool,
    /// Connections now; absent when that cannot be known (loop).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// It was shared this way already; nothing was changed.
    #[serde(default)]
    pub existing: bool,
    /// It is shared again, in the same place, when the next daemon opens the pool.
    #[serde(default)]
    pub remembered: bool,
    /// For people: what stands behind it, how to try it.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Stop serving.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveShare {
    /// `tank/vm0` (all its shares), a URI, a path, or a share id.
    pub target: String,
    /// Only shares of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ShareKind>,
    /// Even with clients connected.
    #[serde(default)]
    pub force: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Shares: of the pool named, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListShares {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

// ---------------------------------------------------------------------------------------------------------------
// Events

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListEvents {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Only events numbered higher.
    #[serde(default)]
    pub after: u64,
    /// The newest so many; 0 = as many as are kept.
    #[serde(default)]
    pub limit: u32,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventInfo {
    /// Number, growing by one within the daemon's life.
    pub sequence: u64,
    /// When, RFC 3339.
    pub time: String,
    /// Pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Stable word: `chunk.spill`, `device.failed`.
    pub code: String,
    /// `info`, `warning` or `error`.
    pub severity: String,
    /// One sentence.
    pub message: String,
}

/// A moment the RFC 3339 way, in UTC with seconds.
pub fn rfc3339(time: std::time::SystemTime) -> String {
    let seconds = time.duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days to a civil date, counting years from March so that the leap day comes last (Howard Hinnant's method).
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn moments_are_written_the_rfc_3339_way() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn every_kind_has_its_own_exit_code() {
        use ErrorKind::*;
        let codes: Vec<u8> = [Failed, Usage, Unreachable, NotFound, Refused].map(ErrorKind::exit_code).into();
        assert_eq!(codes, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_typo_in_a_key_is_refused() {
        assert!(serde_json::from_str::<Status>(r#"{"pol":"tank"}"#).is_err());
        assert!(serde_json::from_str::<Status>("{}").is_ok());
        assert!(
            serde_json::from_str::<SetProperties>(
                r#"{"target":{"kind":"device","pool":"tank","device":3},"values":{"class":"ssd"}}"#
            )
            .is_ok()
        );
    }
}
