//! Listeners and what they export: sockets, TLS, URIs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use super::{Body, Entry, Wanted, again, make_folder};
use crate::control::api::*;
use crate::control::server::own_uid;
use crate::daemon::{Daemon, Pools, lock};
use crate::nbd::acceptor::{self, Listen as Bind};
use crate::nbd::handshake::TlsMode;
use crate::nbd::tls::TlsServer;
use crate::nbd::{Acceptor, ExportInfo, Exports, Handover};

/// Where a listener listens, which is what it is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
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
pub(in crate::daemon) struct Listeners(BTreeMap<Place, Listener>);

impl Listeners {
    /// Nobody gets in by this name any more. The listener goes with its last export, unless a service manager made it.
    pub(super) fn withdraw(&mut self, place: &Place, export: &str) {
        let Some(listener) = self.0.get(place) else { return };
        let left = listener.table.change(|t| {
            t.remove(export);
            t.len()
        });
        if left == 0 && !listener.activated {
            self.0.remove(place);
        }
    }

    /// Who connects from now on sees another size.
    pub(super) fn resize(&self, place: &Place, export: &str, size: u64) {
        if let Some(listener) = self.0.get(place) {
            listener.table.change(|t| t.get_mut(export).map(|export| export.size = size));
        }
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
    pub(super) fn share_nbd(&self, wanted: &Wanted) -> Result<ShareInfo, ApiError> {
        let &Wanted { pool, volume, size, request, .. } = wanted;
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
        let place = self.place(&listeners, wanted)?;
        if !listeners.0.contains_key(&place) {
            let (place, listener) = self.listen(place.clone(), request)?;
            listeners.0.insert(place.clone(), listener);
            return self.add_export(&listeners, &place, wanted, export);
        }
        self.add_export(&listeners, &place, wanted, export)
    }

    /// Where this share is to be reached. A port that is asked for as "any" is any one that the volume has already.
    fn place(&self, listeners: &Listeners, wanted: &Wanted) -> Result<Place, ApiError> {
        let &Wanted { pool, volume, request, .. } = wanted;
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
        wanted: &Wanted,
        mut export: ExportInfo,
    ) -> Result<ShareInfo, ApiError> {
        let &Wanted { pool, volume, request, .. } = wanted;
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
        let mut entry = wanted.entry(uri, Body::Nbd(place.clone()));
        entry.tls_directory = listener.tls_directory.as_ref().map(|f| f.display().to_string());
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

    pub(in crate::daemon) fn adopt_listener(&self, socket: OwnedFd) -> Result<(), ApiError> {
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

    pub(in crate::daemon) fn stop_listeners(&self) {
        lock(&self.listeners).0.clear();
    }
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
