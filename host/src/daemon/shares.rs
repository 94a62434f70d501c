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
//! What is taken down goes in the reverse order of how it was put up: loop device, file, mount. Nothing is taken down
//! under a client unless that is forced.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use braid_core::units::{Uuid, VolumeId};

use super::events::Severity;
use super::{Daemon, OpenPool, Pools, lock};
use crate::control::api::*;
use crate::control::server::own_uid;
#[cfg(feature = "fuse")]
use crate::fuse::{FuseShare, ShareOptions, Stop};
#[cfg(feature = "fuse")]
use crate::loopdev::{self, LogicalBlock, LoopDevice};
use crate::nbd::acceptor::{self, Listen as Bind};
use crate::nbd::handshake::TlsMode;
use crate::nbd::tls::TlsServer;
use crate::nbd::{Acceptor, ExportInfo, Exports, Handover};

/// Where a listener listens, which is what it is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Unix(path) => write!(f, "{}", path.display()),
            Place::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// The exports of one listener. The lock is a leaf.
#[derive(Default)]
struct Table(RwLock<BTreeMap<String, ExportInfo>>);

impl Table {
    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, ExportInfo>) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Exports for Table {
    fn list(&self) -> Vec<ExportInfo> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

struct Listener {
    acceptor: Acceptor,
    table: Arc<Table>,
    tls: Tls,
    tls_directory: Option<PathBuf>,
    /// Made by a service manager: stays when its last share goes.
    activated: bool,
}

/// All of them.
#[derive(Default)]
pub(super) struct Listeners(BTreeMap<Place, Listener>);

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

/// Where `braid tls init` puts certificates when nobody says.
pub fn usual_tls_directory() -> PathBuf {
    if own_uid() == 0 {
        return "/etc/braid/tls".into();
    }
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    config.unwrap_or_else(|| format!("/tmp/braid-{}", own_uid()).into()).join("braid/tls")
}

/// What may stand in a query as it is; everything else is written `%XX`.
fn quoted(path: &Path) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'.' | b'~' | b':');
    path.as_os_str().as_bytes().iter().fold(String::new(), |mut out, b| {
        match plain(*b) {
            true => out.push(char::from(*b)),
            false => out.push_str(&format!("%{b:02X}")),
        }
        out
    })
}

/// All that an NBD client needs to know.
fn nbd_uri(place: &Place, tls: Tls, tls_directory: Option<&Path>, export: &str) -> String {
    let scheme = if tls == Tls::Require { "nbds" } else { "nbd" };
    let certificates = match tls_directory.filter(|_| tls == Tls::Require) {
        Some(folder) => format!("tls-certificates={}", quoted(folder)),
        None => String::new(),
    };
    match place {
        Place::Unix(path) => {
            let more = if certificates.is_empty() { String::new() } else { format!("&{certificates}") };
            format!("{scheme}+unix:///{export}?socket={}{more}", quoted(path))
        }
        Place::Tcp(address) => {
            let host = match address.ip().is_unspecified() {
                true => format!("localhost:{}", address.port()),
                false => address.to_string(),
            };
            let more = if certificates.is_empty() { String::new() } else { format!("?{certificates}") };
            format!("{scheme}://{host}/{export}{more}")
        }
    }
}

/// A finished handshake goes to the pump of its pool; the acceptor's thread must not wait, so a pool that is being
/// closed loses the connection.
fn deliver(pools: &Pools, handover: Handover) {
    let Some(pool) = pools.by_uuid(handover.session.export.pool) else { return };
    if let Ok(pump) = pool.pump.try_read()
        && let Some(pump) = &*pump
    {
        pump.adopt(handover);
    }
}

fn tls_mode(tls: Tls) -> TlsMode {
    match tls {
        Tls::Off => TlsMode::Off,
        Tls::Allow => TlsMode::Allow,
        Tls::Require => TlsMode::Require,
    }
}

impl Daemon {
    // ---- share ----------------------------------------------------------------------------------------------------

    pub(super) fn create_share(&self, request: &CreateShare) -> Result<ShareInfo, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        let (volume, size) = pool.volume(&request.volume)?;
        let info = match request.kind {
            ShareKind::Nbd => self.share_nbd(&pool, volume, size, request)?,
            ShareKind::Fuse | ShareKind::Loop => self.share_file(&pool, volume, size, request)?,
        };
        if !info.existing {
            let message = format!("volume {}/{} is shared as {}", info.pool, info.volume, info.uri);
            self.events.tell(Severity::Info, Some(&pool.name), "share.created", message);
        }
        Ok(info)
    }

    /// The same share again is no error: whoever asks twice gets the same answer.
    fn existing(
        &self,
        pool: &OpenPool,
        volume: VolumeId,
        request: &CreateShare,
    ) -> Result<Option<ShareInfo>, ApiError> {
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

    fn entry(&self, pool: &OpenPool, volume: VolumeId, request: &CreateShare, uri: String, body: Body) -> Entry {
        let info = ShareInfo {
            pool: pool.name.clone(),
            volume: request.volume.clone(),
            kind: request.kind,
            uri,
            tls: request.tls,
            read_only: request.read_only,
            ..ShareInfo::default()
        };
        Entry { info, pool: pool.uuid, volume, body: Arc::new(Mutex::new(body)) }
    }

    // ---- NBD ------------------------------------------------------------------------------------------------------

    fn share_nbd(
        &self,
        pool: &OpenPool,
        volume: VolumeId,
        size: u64,
        request: &CreateShare,
    ) -> Result<ShareInfo, ApiError> {
        let report = pool.report()?;
        let name = format!("{}/{}", pool.name, request.volume);
        let export = ExportInfo {
            name: name.clone(),
            description: format!("braid volume {name}"),
            size,
            read_only: request.read_only,
            rotational: !report.devices.is_empty() && report.devices.iter().all(|d| d.rotational),
            can_multi_conn: true,
            pool: pool.uuid,
            volume,
            // Given with the share's id, see `add_export`.
            share: 0,
        };
        let mut listeners = lock(&self.listeners);
        let place = self.place(&listeners, pool, volume, request)?;
        if !listeners.0.contains_key(&place) {
            let (place, listener) = self.listen(place.clone(), request)?;
            listeners.0.insert(place.clone(), listener);
            return self.add_export(&listeners, &place, pool, volume, request, export);
        }
        self.add_export(&listeners, &place, pool, volume, request, export)
    }

    /// Where this share is to be reached. A port that is asked for as "any" is any one that the volume has already.
    fn place(
        &self,
        listeners: &Listeners,
        pool: &OpenPool,
        volume: VolumeId,
        request: &CreateShare,
    ) -> Result<Place, ApiError> {
        Ok(match &request.listen {
            Listen::Unix => {
                // One default socket for each way to speak TLS: a socket has one.
                let file = match request.tls {
                    Tls::Off => "nbd.sock",
                    Tls::Allow => "nbd-starttls.sock",
                    Tls::Require => "nbd-tls.sock",
                };
                let activated = listeners
                    .0
                    .iter()
                    .find(|(p, l)| l.activated && l.tls == request.tls && matches!(p, Place::Unix(_)));
                activated.map_or_else(|| Place::Unix(self.config.runtime_dir.join(file)), |(place, _)| place.clone())
            }
            Listen::UnixPath(path) if path.starts_with('/') => Place::Unix(path.into()),
            Listen::UnixPath(path) => {
                return Err(ApiError::usage("share.bad_path", format!("{path} is not an absolute path")));
            }
            Listen::Tcp(text) => {
                let address: SocketAddr = text.parse().map_err(|_| {
                    ApiError::usage("share.bad_address", format!("{text}: write ADDRESS:PORT, such as 127.0.0.1:10809"))
                })?;
                let mine = |e: &Entry| e.pool == pool.uuid && e.volume == volume && e.info.tls == request.tls;
                let known = self.shares.select(mine).into_iter().find_map(|e| match &*lock(&e.body) {
                    Body::Nbd(place @ Place::Tcp(a)) if a.ip() == address.ip() => Some(place.clone()),
                    _ => None,
                });
                match known {
                    Some(place) if address.port() == 0 => place,
                    _ => Place::Tcp(address),
                }
            }
        })
    }

    fn listen(&self, place: Place, request: &CreateShare) -> Result<(Place, Listener), ApiError> {
        let tls_directory = (request.tls != Tls::Off)
            .then(|| request.tls_directory.as_ref().map_or_else(usual_tls_directory, PathBuf::from));
        let bind = match &place {
            Place::Unix(path) => {
                if let Some(folder) = path.parent().filter(|f| *f == self.config.runtime_dir) {
                    make_folder(folder)?;
                }
                Bind::Unix(path.clone())
            }
            Place::Tcp(address) => Bind::Tcp(*address),
        };
        let listener = self.acceptor(request.tls, tls_directory, false)?;
        let address = listener.acceptor.add_listener(bind).map_err(|e| listen_error(&place, &e))?;
        // Port 0 has become a real one.
        Ok((address.map_or(place, Place::Tcp), listener))
    }

    fn acceptor(&self, tls: Tls, tls_directory: Option<PathBuf>, activated: bool) -> Result<Listener, ApiError> {
        let tls_server = match &tls_directory {
            None => None,
            Some(folder) => Some(TlsServer::load(folder, true).map_err(|e| {
                ApiError::failed("tls.no_certificates", format!("TLS needs certificates: {e}"))
                    .hint("make them with: braid tls init   or say where they are: --tls-certificates DIR")
            })?),
        };
        let table = Arc::new(Table::default());
        let config = acceptor::Config { tls: tls_mode(tls), tls_server, ..acceptor::Config::default() };
        let pools = self.pools.clone();
        let acceptor = Acceptor::start(config, table.clone(), Box::new(move |handover| deliver(&pools, handover)))
            .map_err(|e| ApiError::failed("share.listen_failed", format!("starting to accept failed: {e}")))?;
        Ok(Listener { acceptor, table, tls, tls_directory, activated })
    }

    fn add_export(
        &self,
        listeners: &Listeners,
        place: &Place,
        pool: &OpenPool,
        volume: VolumeId,
        request: &CreateShare,
        mut export: ExportInfo,
    ) -> Result<ShareInfo, ApiError> {
        let Some(listener) = listeners.0.get(place) else {
            return Err(ApiError::failed("share.listen_failed", format!("nothing listens on {place}")));
        };
        let asked = request.tls_directory.as_ref().map(PathBuf::from);
        let other_folder = asked.is_some() && request.tls != Tls::Off && asked != listener.tls_directory;
        if listener.tls != request.tls || other_folder {
            let folder = listener.tls_directory.as_ref().map(|f| format!(" with {}", f.display())).unwrap_or_default();
            let message = format!("{place} is in use for shares with TLS {}{folder}", listener.tls.name());
            return Err(ApiError::refused("share.other_tls", message)
                .hint("choose another socket or port, or unshare what is there"));
        }
        let name = export.name.clone();
        let old = self.shares.select(|e| {
            e.pool == pool.uuid && e.volume == volume && matches!(&*lock(&e.body), Body::Nbd(p) if p == place)
        });
        if let Some(entry) = old.into_iter().next() {
            if entry.info.read_only == request.read_only {
                return Ok(again(entry.info));
            }
            let mode = if entry.info.read_only { "read-only" } else { "read-write" };
            let message = format!("{name} is shared {mode} as {}", entry.info.uri);
            return Err(ApiError::refused("share.other_mode", message)
                .hint(format!("first: braid unshare {name}   or use another socket: --unix=PATH")));
        }
        let uri = nbd_uri(place, request.tls, listener.tls_directory.as_deref(), &name);
        let mut entry = self.entry(pool, volume, request, uri, Body::Nbd(place.clone()));
        if request.tls == Tls::Require {
            entry.info.notes.push(format!(
                "clients need ca-cert.pem, client-cert.pem and client-key.pem of {}; undo: braid unshare {name}",
                listener.tls_directory.as_deref().unwrap_or(Path::new("?")).display()
            ));
        }
        let mut info = self.shares.insert(entry);
        export.share = info.id;
        listener.table.change(|t| t.insert(name, export));
        info.clients = Some(0);
        Ok(info)
    }

    pub(super) fn adopt_listener(&self, socket: OwnedFd) -> Result<(), ApiError> {
        let failed = |e: &dyn std::fmt::Display| {
            ApiError::failed("activation.failed", format!("the NBD socket that was passed cannot be used: {e}"))
        };
        let copy = || socket.try_clone().map_err(|e| failed(&e));
        let path = std::os::unix::net::UnixListener::from(copy()?).local_addr().ok();
        let address = std::net::TcpListener::from(copy()?).local_addr().ok();
        let place = match (path.as_ref().and_then(|a| a.as_pathname()), address) {
            (Some(path), _) => Place::Unix(path.into()),
            (None, Some(address)) => Place::Tcp(address),
            (None, None) => return Err(failed(&"it is neither a TCP socket nor a Unix socket with a path")),
        };
        // In the clear only on this machine.
        let (tls, folder) = match &place {
            Place::Tcp(a) if !a.ip().is_loopback() => (Tls::Require, Some(usual_tls_directory())),
            _ => (Tls::Off, None),
        };
        let mut listeners = lock(&self.listeners);
        if listeners.0.contains_key(&place) {
            return Err(failed(&format_args!("{place} was passed twice")));
        }
        let listener = self.acceptor(tls, folder, true)?;
        let raw = socket.as_raw_fd();
        listener.acceptor.add_listener(Bind::Adopted(socket)).map_err(|e| failed(&e))?;
        tracing::info!("NBD on {place} (descriptor {raw}, passed by the service manager)");
        listeners.0.insert(place, listener);
        Ok(())
    }

    pub(super) fn stop_listeners(&self) {
        lock(&self.listeners).0.clear();
    }

    // ---- FUSE and loop --------------------------------------------------------------------------------------------

    #[cfg(not(feature = "fuse"))]
    fn share_file(
        &self,
        _pool: &OpenPool,
        _volume: VolumeId,
        _size: u64,
        request: &CreateShare,
    ) -> Result<ShareInfo, ApiError> {
        let message = format!("this braid was built without FUSE, so {} is not there", request.kind.name());
        Err(ApiError::failed("share.not_built", message).hint("share it as nbd"))
    }

    #[cfg(feature = "fuse")]
    fn share_file(
        &self,
        pool: &OpenPool,
        volume: VolumeId,
        size: u64,
        request: &CreateShare,
    ) -> Result<ShareInfo, ApiError> {
        if let Some(info) = self.existing(pool, volume, request)? {
            return Ok(info);
        }
        let word = request.kind.name();
        if request.kind == ShareKind::Loop && own_uid() != 0 {
            return Err(ApiError::failed("share.needs_root", "a loop device needs a daemon that runs as root")
                .hint("share it as fuse or nbd, which any user can"));
        }
        let failed = |what: &str, e: &std::io::Error| {
            ApiError::failed("share.failed", format!("{what} for {}/{} failed: {e}", pool.name, request.volume))
        };
        let folder = self.config.runtime_dir.join(word).join(&pool.name);
        make_folder(&folder)?;
        let dir = folder.join(&request.volume);
        let file = dir.join(&request.volume);
        if request.kind == ShareKind::Loop {
            // A daemon that died leaves its device on a file that answers nothing any more. While something is mounted
            // on it, only the operator can let go of it.
            for left in loopdev::find_by_backing(&file).map_err(|e| failed("looking for loop devices", &e))? {
                left.detach().map_err(|e| {
                    failed("detaching the loop device of an earlier daemon", &e)
                        .hint(format!("unmount what is on {}, then share again", left.path.display()))
                })?;
                tracing::info!("{} of an earlier daemon was detached", left.path.display());
            }
        }
        let sink = pool.ask(|pump| Ok(pump.sink(volume)))?;
        let options = ShareOptions { read_only: request.read_only, allow_other: false };
        let mut fuse = FuseShare::start_with(&dir, &request.volume, size, options, sink).map_err(|e| {
            failed("mounting", &e).hint("FUSE needs /dev/fuse, and fusermount3 for users who are not root")
        })?;
        let file = fuse.path().to_path_buf();
        let undo = format!("undo: braid unshare {}/{}", pool.name, request.volume);
        let (uri, device, note) = if request.kind == ShareKind::Loop {
            match loopdev::attach(&file, request.read_only, LogicalBlock::B4096) {
                Ok(device) => {
                    let direct = if device.is_direct() { "direct-io" } else { "through the page cache" };
                    let note = format!("(FUSE file {}, {direct}, 4096 B sectors; {undo})", file.display());
                    (device.path.display().to_string(), Some(device), note)
                }
                Err(e) => {
                    let _ = fuse.stop(Stop::Force);
                    return Err(failed("attaching a loop device", &e));
                }
            }
        } else {
            (file.display().to_string(), None, undo)
        };
        let mut entry = self.entry(pool, volume, request, uri, Body::File { fuse, device });
        entry.info.notes.push(note);
        Ok(self.shares.insert(entry))
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
            notes.extend(self.stop_share(&pool, entry, request.force)?);
        }
        Ok(Change { notes, ..Change::done(what) })
    }

    /// All shares of a pool; the caller holds its `change`. With `force` as many as can be, whatever fails.
    pub(super) fn unshare_all(&self, pool: &OpenPool, force: bool) -> Result<(), ApiError> {
        self.stop_shares(pool, self.shares.select(|e| e.pool == pool.uuid), force)
    }

    /// All shares of a volume; as [`Daemon::unshare_all`].
    pub(super) fn unshare_volume(&self, pool: &OpenPool, volume: VolumeId, force: bool) -> Result<(), ApiError> {
        self.stop_shares(pool, self.shares.select(|e| e.pool == pool.uuid && e.volume == volume), force)
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
        let mut notes = Vec::new();
        match &mut *lock(&entry.body) {
            Body::Nbd(place) => {
                let clients = pool.ask(|pump| Ok(pump.clients(entry.info.id))).unwrap_or(0);
                if clients > 0 && !force {
                    let message = format!("{} has {clients} clients", info.uri);
                    return Err(
                        ApiError::refused("share.in_use", message).hint("disconnect them first, or add -f to hang up")
                    );
                }
                let mut listeners = lock(&self.listeners);
                if let Some(listener) = listeners.0.get(place) {
                    let left = listener.table.change(|t| {
                        t.remove(&name);
                        t.len()
                    });
                    if left == 0 && !listener.activated {
                        listeners.0.remove(place);
                    }
                }
                drop(listeners);
                let _ = pool.ask(|pump| {
                    pump.hang_up(info.id);
                    Ok(())
                });
            }
            #[cfg(feature = "fuse")]
            Body::File { fuse, device } => {
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
            }
        }
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
                    if let Some(listener) = lock(&self.listeners).0.get(place) {
                        let name = format!("{}/{}", info.pool, info.volume);
                        listener.table.change(|t| t.get_mut(&name).map(|export| export.size = size));
                    }
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

fn listen_error(place: &Place, e: &std::io::Error) -> ApiError {
    let message = format!("listening on {place} failed: {e}");
    match e.kind() {
        std::io::ErrorKind::PermissionDenied if matches!(place, Place::Tcp(_)) => {
            ApiError::refused("share.not_local", message).hint("add --tls require, or use 127.0.0.1")
        }
        std::io::ErrorKind::AddrInUse => {
            ApiError::failed("share.address_in_use", message).hint("choose another port or path")
        }
        _ => ApiError::failed("share.listen_failed", message),
    }
}

fn make_folder(path: &Path) -> Result<(), ApiError> {
    let failed = |e| ApiError::failed("share.failed", format!("making {} failed: {e}", path.display()));
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_work_as_they_are_printed() {
        let unix = |p: &str| Place::Unix(p.into());
        let tcp = |a: &str| Place::Tcp(a.parse().unwrap());
        for (place, tls, folder, uri) in [
            (unix("/run/braid/nbd.sock"), Tls::Off, None, "nbd+unix:///tank/vm0?socket=/run/braid/nbd.sock"),
            (unix("/tmp/a b&c?.sock"), Tls::Allow, Some("/t"), "nbd+unix:///tank/vm0?socket=/tmp/a%20b%26c%3F.sock"),
            (
                unix("/s"),
                Tls::Require,
                Some("/etc/braid/tls"),
                "nbds+unix:///tank/vm0?socket=/s&tls-certificates=/etc/braid/tls",
            ),
            (tcp("127.0.0.1:10809"), Tls::Off, None, "nbd://127.0.0.1:10809/tank/vm0"),
            (tcp("[::1]:99"), Tls::Off, None, "nbd://[::1]:99/tank/vm0"),
            (tcp("0.0.0.0:7"), Tls::Require, Some("/c"), "nbds://localhost:7/tank/vm0?tls-certificates=/c"),
        ] {
            assert_eq!(nbd_uri(&place, tls, folder.map(Path::new), "tank/vm0"), uri);
        }
    }
}
