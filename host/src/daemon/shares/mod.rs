//! Serving volumes: NBD, a FUSE file, a loop device over that file.
//!
//! ```text
//!   nbd    client ─► listener (one acceptor, one table of exports) ─► pump
//!   fuse   program ─► runtime/fuse/POOL/VOLUME/VOLUME ─► pump
//!   loop   mkfs, mount ─► /dev/loopN ─► runtime/loop/POOL/VOLUME/VOLUME ─► pump
//! ```
//!
//! Each listener has its own table, so a volume shared with TLS on TCP cannot be had in the clear on a Unix socket. A
//! listener comes with its first share and goes with its last, except those that a service manager made.
//!
//! Shares that are not temporary outlive the daemon: they are written down, and put up again when a daemon opens the pool
//! ([`remembered`]). Exporting a pool forgets them.
//!
//! What is taken down goes in the reverse order of how it was put up: loop device, file, mount. Nothing is taken down
//! under a client unless that is forced.

mod file;
mod nbd;
mod remembered;

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use braid_core::units::{Uuid, VolumeId};

use super::events::Severity;
use super::{Daemon, OpenPool, lock};
use crate::control::api::*;
#[cfg(feature = "fuse")]
use crate::fuse::{FuseShare, Stop};
#[cfg(feature = "fuse")]
use crate::loopdev::LoopDevice;
pub(super) use nbd::Listeners;
use nbd::Place;
pub use nbd::usual_tls_directory;
use remembered::Unrestored;

/// What stands behind a share.
enum Body {
    Nbd(Place),
    #[cfg(feature = "fuse")]
    File {
        fuse: FuseShare,
        device: Option<LoopDevice>,
    },
}

#[derive(Clone)]
struct Entry {
    info: ShareInfo,
    pool: Uuid,
    volume: VolumeId,
    /// Certificates of its listener.
    tls_directory: Option<String>,
    /// Locked by whoever holds `OpenPool::change` of its pool, and by nobody else.
    body: Arc<Mutex<Body>>,
}

/// What is shared. The lock is a leaf.
#[derive(Default)]
pub(super) struct Shares(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    last_id: u32,
    by_id: BTreeMap<u32, Entry>,
    unrestored: Vec<Unrestored>,
}

impl Shares {
    fn select(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        lock(&self.0).by_id.values().filter(|e| wanted(e)).cloned().collect()
    }
    fn remove(&self, id: u32) {
        lock(&self.0).by_id.remove(&id);
    }
    fn insert(&self, mut entry: Entry) -> ShareInfo {
        let mut entries = lock(&self.0);
        entries.last_id += 1;
        entry.info.id = entries.last_id;
        let info = entry.info.clone();
        entries.by_id.insert(info.id, entry);
        info
    }
    pub(super) fn of_pool(&self, pool: Uuid) -> Vec<ShareInfo> {
        self.select(|e| e.pool == pool).into_iter().map(|e| e.info).collect()
    }
    pub(super) fn of_volume(&self, pool: Uuid, volume: VolumeId) -> Vec<ShareInfo> {
        self.select(|e| e.pool == pool && e.volume == volume).into_iter().map(|e| e.info).collect()
    }
}

/// A share to be.
struct Wanted<'a> {
    pool: &'a OpenPool,
    volume: VolumeId,
    size: u64,
    request: &'a CreateShare,
    /// The loop device that it was before.
    #[cfg_attr(not(feature = "fuse"), allow(dead_code))]
    node: Option<&'a Path>,
}

impl Wanted<'_> {
    fn entry(&self, uri: String, body: Body) -> Entry {
        let &Wanted { pool, volume, request, .. } = self;
        let info = ShareInfo {
            pool: pool.name.clone(),
            volume: request.volume.clone(),
            kind: request.kind,
            uri,
            tls: request.tls,
            read_only: request.read_only,
            ..ShareInfo::default()
        };
        Entry { info, pool: pool.uuid, volume, tls_directory: None, body: Arc::new(Mutex::new(body)) }
    }
}

impl Daemon {
    // ---- share ----------------------------------------------------------------------------------------------------

    pub(super) fn create_share(&self, request: &CreateShare) -> Result<ShareInfo, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        let (volume, size) = pool.volume(&request.volume)?;
        let mut info = self.put_up(&Wanted { pool: &pool, volume, size, request, node: None })?;
        if !request.temporary && !info.remembered {
            match self.remember_share(&pool, info.id) {
                Ok(remembered) => info.remembered = remembered,
                Err(why) => info.notes.push(format!("it will not be shared again by the next daemon: {why}")),
            }
        }
        if !info.existing {
            let message = format!("volume {}/{} is shared as {}", info.pool, info.volume, info.uri);
            self.events.tell(Severity::Info, Some(&pool.name), "share.created", message);
        }
        Ok(info)
    }

    /// Shares, and no more; the caller holds the pool's `change`.
    fn put_up(&self, wanted: &Wanted) -> Result<ShareInfo, ApiError> {
        match wanted.request.kind {
            ShareKind::Nbd => self.share_nbd(wanted),
            ShareKind::Fuse | ShareKind::Loop => self.share_file(wanted),
        }
    }

    /// The same share again is no error: whoever asks twice gets the same answer.
    #[cfg(feature = "fuse")]
    fn existing(&self, wanted: &Wanted) -> Result<Option<ShareInfo>, ApiError> {
        let &Wanted { pool, volume, request, .. } = wanted;
        let same = |e: &Entry| e.pool == pool.uuid && e.volume == volume && e.info.kind == request.kind;
        let Some(entry) = self.shares.select(same).into_iter().next() else { return Ok(None) };
        if entry.info.read_only != request.read_only {
            let mode = if entry.info.read_only { "read-only" } else { "read-write" };
            let message =
                format!("volume {}/{} is shared {mode} as {}", entry.info.pool, entry.info.volume, entry.info.uri);
            return Err(
                ApiError::refused("share.other_mode", message).hint(format!("first: braid unshare {}", entry.info.uri))
            );
        }
        Ok(Some(again(entry.info)))
    }

    // ---- unshare --------------------------------------------------------------------------------------------------

    pub(super) fn remove_shares(&self, request: &RemoveShare) -> Result<Change, ApiError> {
        let target = request.target.as_str();
        let id: Option<u32> = target.parse().ok();
        let meant = |e: &Entry| {
            let named = format!("{}/{}", e.info.pool, e.info.volume) == target || e.info.uri == target;
            (named || Some(e.info.id) == id) && request.kind.is_none_or(|k| k == e.info.kind)
        };
        let found = self.shares.select(meant);
        if found.is_empty()
            && let Some(change) = self.forget_unrestored(request)
        {
            return Ok(change);
        }
        if found.is_empty() {
            return Err(ApiError::not_found("share.not_found", format!("nothing is shared as {target}"))
                .hint("see what is: braid shares"));
        }
        let uris: Vec<&str> = found.iter().map(|e| e.info.uri.as_str()).collect();
        let what = format!("{} not shared any more", uris.join(" "));
        if request.dry_run {
            return Ok(Change { dry_run: true, ..Change::done(what) });
        }
        let mut notes = Vec::new();
        for entry in &found {
            let Some(pool) = self.pools.by_uuid(entry.pool) else { continue };
            let _change = lock(&pool.change);
            let remembered = entry.as_remembered();
            notes.extend(self.stop_share(&pool, entry, request.force)?);
            self.forget_shares(pool.uuid, |s| s.same_as(&remembered));
        }
        Ok(Change { notes, ..Change::done(what) })
    }

    /// All shares of a pool; the caller holds its `change`. With `force` as many as can be, whatever fails.
    pub(super) fn unshare_all(&self, pool: &OpenPool, force: bool) -> Result<(), ApiError> {
        self.shares.restored(pool.uuid, |_| true);
        self.stop_shares(pool, self.shares.select(|e| e.pool == pool.uuid), force)
    }

    /// All shares of a volume, for good; as [`Daemon::unshare_all`].
    pub(super) fn unshare_volume(&self, pool: &OpenPool, volume: VolumeId, force: bool) -> Result<(), ApiError> {
        self.stop_shares(pool, self.shares.select(|e| e.pool == pool.uuid && e.volume == volume), force)?;
        self.forget_shares(pool.uuid, |s| s.volume == volume.0);
        Ok(())
    }

    fn stop_shares(&self, pool: &OpenPool, entries: Vec<Entry>, force: bool) -> Result<(), ApiError> {
        let mut result = Ok(());
        for entry in entries {
            match self.stop_share(pool, &entry, force) {
                Ok(notes) => notes.iter().for_each(|n| tracing::warn!(pool = pool.name, "{n}")),
                Err(e) if force => result = Err(e),
                Err(e) => return Err(e),
            }
        }
        result
    }

    /// Takes one down; the caller holds the pool's `change`. A refusal leaves it as it was.
    fn stop_share(&self, pool: &OpenPool, entry: &Entry, force: bool) -> Result<Vec<String>, ApiError> {
        // Somebody else may have been faster.
        if self.shares.select(|e| e.info.id == entry.info.id).is_empty() {
            return Ok(Vec::new());
        }
        let info = &entry.info;
        let name = format!("{}/{}", info.pool, info.volume);
        let notes = match &mut *lock(&entry.body) {
            Body::Nbd(place) => {
                let clients = pool.ask(|pump| Ok(pump.clients(entry.info.id))).unwrap_or(0);
                if clients > 0 && !force {
                    let message = format!("{} has {clients} clients", info.uri);
                    return Err(
                        ApiError::refused("share.in_use", message).hint("disconnect them first, or add -f to hang up")
                    );
                }
                lock(&self.listeners).withdraw(place, &name);
                let _ = pool.ask(|pump| {
                    pump.hang_up(info.id);
                    Ok(())
                });
                Vec::new()
            }
            #[cfg(feature = "fuse")]
            Body::File { fuse, device } => {
                let mut notes = Vec::new();
                let busy = |e: &std::io::Error| {
                    ApiError::refused("share.in_use", format!("{} is still shared: {e}", info.uri))
                        .hint("unmount and close it first, or add -f to take it away")
                };
                if let Some(attached) = &device {
                    match attached.detach() {
                        Ok(()) => *device = None,
                        Err(e) if !force => return Err(busy(&e)),
                        Err(e) => notes.push(format!("{e}; it gives errors from now on")),
                    }
                }
                let how = if force { Stop::Force } else { Stop::IfIdle };
                fuse.stop(how).map_err(|e| busy(&e))?;
                if let Some(folder) = fuse.mount_dir().parent() {
                    // Goes when this was the pool's last one.
                    let _ = std::fs::remove_dir(folder);
                }
                notes
            }
        };
        self.shares.remove(info.id);
        let message = format!("volume {name} is not shared as {} any more", info.uri);
        self.events.tell(Severity::Info, Some(&pool.name), "share.removed", message);
        Ok(notes)
    }

    // ---- what is shared -------------------------------------------------------------------------------------------

    pub(super) fn list_shares(&self, request: &ListShares) -> Result<Vec<ShareInfo>, ApiError> {
        if let Some(name) = &request.pool {
            self.pools.get(name)?;
        }
        let mut all = Vec::new();
        for entry in self.shares.select(|e| request.pool.as_ref().is_none_or(|name| e.info.pool == *name)) {
            let (id, mut info) = (entry.info.id, entry.info);
            if info.kind == ShareKind::Nbd
                && let Some(pool) = self.pools.by_uuid(entry.pool)
            {
                let clients = pool.ask(|pump| Ok(pump.clients(id))).unwrap_or(0);
                info.clients = Some(u32::try_from(clients).unwrap_or(u32::MAX));
            }
            all.push(info);
        }
        Ok(all)
    }

    /// A volume has another size: whoever serves it is told. Returns what did not follow.
    pub(super) fn shares_resized(&self, pool: &OpenPool, volume: VolumeId, size: u64) -> Vec<String> {
        let mut notes = Vec::new();
        for entry in self.shares.select(|e| e.pool == pool.uuid && e.volume == volume) {
            let info = &entry.info;
            match &*lock(&entry.body) {
                Body::Nbd(place) => {
                    lock(&self.listeners).resize(place, &format!("{}/{}", info.pool, info.volume), size);
                    if pool.ask(|pump| Ok(pump.clients(info.id))).unwrap_or(0) > 0 {
                        notes.push(format!("clients of {} see the new size when they connect again", info.uri));
                    }
                }
                #[cfg(feature = "fuse")]
                Body::File { fuse, device } => {
                    let mut tell = |result: std::io::Result<()>| {
                        notes.extend(result.err().map(|e| format!("{} keeps its old size for now: {e}", info.uri)));
                    };
                    tell(fuse.set_size(size));
                    if let Some(device) = device {
                        tell(device.set_capacity());
                    }
                }
            }
        }
        notes
    }
}

fn again(mut info: ShareInfo) -> ShareInfo {
    info.existing = true;
    info
}

fn make_folder(path: &Path) -> Result<(), ApiError> {
    let failed = |e| ApiError::failed("share.failed", format!("making {} failed: {e}", path.display()));
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)
}
