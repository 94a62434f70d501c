//! Who answers: what the daemon does for each request, and the table that ties request, route, reply and method.
//!
//! What [`server`](super::server) has done before a [`Service`] sees a request: the JSON fits the struct, unknown keys
//! were refused, and [`check`] has passed names, profiles, policies and tiers. What is left to the service: everything
//! that needs to know the pool.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::api::*;
use super::check;

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

    /// Uses a member again that was away, and catches it up.
    fn device_online(&self, request: OnlineDevice) -> Result<Change, ApiError>;
    /// Uses a member no more.
    fn device_offline(&self, request: OfflineDevice) -> Result<Change, ApiError>;
    /// Counts errors of members anew.
    fn device_clear(&self, request: ClearErrors) -> Result<Change, ApiError>;

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
    fn volume_map(&self, request: MapVolume) -> Result<Vec<MapExtent>, ApiError>;

    /// Serves a volume; ready to be connected to when this returns.
    fn share(&self, request: CreateShare) -> Result<ShareInfo, ApiError>;
    /// Stops serving; pending requests are answered first.
    fn unshare(&self, request: RemoveShare) -> Result<Change, ApiError>;
    /// What is served, in id order.
    fn shares(&self, request: ListShares) -> Result<Vec<ShareInfo>, ApiError>;

    /// Starts, pauses, resumes, cancels or limits a scrub.
    fn scrub(&self, request: Scrub) -> Result<Change, ApiError>;
    /// The last scrub of a pool, or of all.
    fn scrub_status(&self, request: ScrubStatus) -> Result<Vec<ScrubInfo>, ApiError>;

    /// Makes devices members of an open pool.
    fn add(&self, request: AddDevices) -> Result<Change, ApiError>;
    /// Begins to empty a member; when that is done it is none any more. Refused when the rest has no room.
    fn remove(&self, request: RemoveDevice) -> Result<Change, ApiError>;
    /// Adds a device and begins to empty the member that it is to replace.
    fn replace(&self, request: ReplaceDevice) -> Result<Change, ApiError>;
    /// Begins to write chunks anew. Refused when there is no room, or, unless forced, when fewer failures are survived then.
    fn balance(&self, request: Balance) -> Result<Change, ApiError>;
    /// Pauses, resumes or cancels what the last two began.
    fn job(&self, request: JobControl) -> Result<Change, ApiError>;
    /// The last job of a pool, or of all.
    fn job_status(&self, request: JobStatus) -> Result<Vec<JobInfo>, ApiError>;

    /// What clients asked since the last question.
    fn trace(&self, request: TakeTrace) -> Result<TracePart, ApiError>;

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
    "device.online" device_online OnlineDevice -> Change;
    "device.offline" device_offline OfflineDevice -> Change;
    "device.clear" device_clear ClearErrors -> Change;
    "volume.create" volume_create CreateVolume -> Change, check::volume_create;
    "volume.list" volume_list ListVolumes -> Vec<VolumeInfo>;
    "volume.resize" volume_resize ResizeVolume -> Change, check::volume_resize;
    "volume.rename" volume_rename RenameVolume -> Change, check::volume_rename;
    "volume.destroy" volume_destroy DestroyVolume -> Change;
    "volume.map" volume_map MapVolume -> Vec<MapExtent>;
    "share" share CreateShare -> ShareInfo;
    "unshare" unshare RemoveShare -> Change;
    "shares" shares ListShares -> Vec<ShareInfo>;
    "scrub" scrub Scrub -> Change;
    "scrub.status" scrub_status ScrubStatus -> Vec<ScrubInfo>;
    "add" add AddDevices -> Change, check::add;
    "remove" remove RemoveDevice -> Change;
    "replace" replace ReplaceDevice -> Change, check::replace;
    "balance" balance Balance -> Change, check::balance;
    "job" job JobControl -> Change;
    "job.status" job_status JobStatus -> Vec<JobInfo>;
    "trace" trace TakeTrace -> TracePart;
    "events" events ListEvents -> Vec<EventInfo>;
}
