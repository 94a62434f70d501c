//! The control socket: HTTP/1 and JSON on a Unix socket, for one user.
//!
//! Every route is `POST /v1/<route>` with a JSON object (an empty body is `{}`); `GET` does the same without a body
//! for those that only look. The reply is an [`Envelope`] or an [`ErrorEnvelope`].
//!
//! | route | request | reply | what |
//! |---|---|---|---|
//! | `create` | `CreatePool` | `Change` | make a pool, or with `dry_run` say what would be |
//! | `destroy` | `DestroyPool` | `Change` | close a pool and forget it |
//! | `import` | `ImportPools` | `[FoundPool]` | find pools on devices, open those asked for |
//! | `export` | `ExportPool` | `Change` | close a pool |
//! | `list` | `ListPools` | `[PoolSummary]` | open pools |
//! | `status` | `Status` | `[PoolStatus]` | how they are |
//! | `usage` | `Usage` | `[PoolUsage]` | where space went |
//! | `iostat` | `IoStat` | `IoSnapshot` | raw counters |
//! | `get` | `GetProperties` | `[Property]` | properties of a pool, device or volume |
//! | `set` | `SetProperties` | `Change` | change them, all or none |
//! | `device.list` | `ListDevices` | `[DeviceStatus]` | members |
//! | `device.scan` | `ScanDevices` | `[ScannedDevice]` | what could be a member |
//! | `device.online` | `OnlineDevice` | `Change` | use a member again |
//! | `device.offline` | `OfflineDevice` | `Change` | use a member no more |
//! | `device.clear` | `ClearErrors` | `Change` | count errors anew; open a suspended pool again |
//! | `volume.create` | `CreateVolume` | `Change` | make a thin volume |
//! | `volume.list` | `ListVolumes` | `[VolumeInfo]` | volumes |
//! | `volume.resize` | `ResizeVolume` | `Change` | grow a volume |
//! | `volume.rename` | `RenameVolume` | `Change` | rename a volume |
//! | `volume.destroy` | `DestroyVolume` | `Change` | forget a volume |
//! | `volume.map` | `MapVolume` | `[MapExtent]` | where a volume's content is |
//! | `share` | `CreateShare` | `ShareInfo` | serve a volume |
//! | `unshare` | `RemoveShare` | `Change` | stop serving it |
//! | `shares` | `ListShares` | `[ShareInfo]` | what is served |
//! | `scrub` | `Scrub` | `Change` | start, pause, resume, cancel or limit a scrub |
//! | `scrub.status` | `ScrubStatus` | `[ScrubInfo]` | how far it is, what it found |
//! | `add` | `AddDevices` | `Change` | make devices members |
//! | `remove` | `RemoveDevice` | `Change` | empty a member and let it go |
//! | `replace` | `ReplaceDevice` | `Change` | add a device, or take a spare, then empty a member and let it go |
//! | `balance` | `Balance` | `Change` | write chunks anew, in other profiles perhaps |
//! | `job` | `JobControl` | `Change` | pause, resume or cancel that |
//! | `job.status` | `JobStatus` | `[JobInfo]` | how far it is |
//! | `trace` | `TakeTrace` | `TracePart` | what clients asked since the last question |
//! | `events` | `ListEvents` | `[EventInfo]` | what happened |
//!
//! A query is taken for an object when there is no body: `GET /v1/iostat?pool=tank&histograms=true`.
//!
//! `GET /metrics` is the one other address: [`metrics`](super::metrics), no JSON.
//!
//! Who may ask: the user that runs the daemon, and root. Three locks guard that: the folder is 0700 when it is made
//! here, the socket is created 0600 (by umask: there is no moment at which it is wider), and each connection's
//! peer is asked for its uid.
//!
//! One daemon a socket: a lock file beside the socket is held for the daemon's life. Who gets the lock may replace a
//! socket that a dead daemon left; who does not is told that another one runs.

use super::api::*;
use super::service::{Call, ROUTES, Service};
use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::serve::IncomingStream;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;

/// Largest request: `create` with 500 devices of the longest path fits twice.
pub const BODY_MAX: usize = 1 << 20;

/// The effective user.
pub fn own_uid() -> u32 {
    // SAFETY: geteuid has no precondition and cannot fail.
    unsafe { libc::geteuid() }
}

/// The socket of the system's daemon.
pub const SYSTEM_SOCKET: &str = "/run/braid/braid.sock";

/// Where a daemon of this user listens when nobody says otherwise: root on [`SYSTEM_SOCKET`], others under
/// `$XDG_RUNTIME_DIR/braid/`, or `/tmp/braid-UID/` on machines without a session manager.
pub fn default_socket() -> PathBuf {
    if own_uid() == 0 {
        return SYSTEM_SOCKET.into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()) {
        Some(directory) => PathBuf::from(directory).join("braid/braid.sock"),
        None => PathBuf::from(format!("/tmp/braid-{}/braid.sock", own_uid())),
    }
}

/// A socket that is ours and listens; nobody is answered before [`Bound::serve`].
#[derive(Debug)]
pub struct Bound {
    listener: StdListener,
    path: PathBuf,
    /// Held until the daemon ends; `None` when the socket was made by a service manager, which also keeps it.
    lock: Option<File>,
}

/// Takes over a listening Unix socket that a service manager made. That there is one daemon is then its business, and the
/// socket stays when the daemon ends.
pub fn adopt(socket: OwnedFd) -> Result<Bound, ApiError> {
    let failed = |e: &dyn std::fmt::Display| {
        ApiError::failed("socket.failed", format!("the control socket that was passed cannot be used: {e}"))
    };
    let listener = StdListener::from(socket);
    let address = listener.local_addr().map_err(|e| failed(&e))?;
    let path = address.as_pathname().ok_or_else(|| failed(&"it is no Unix socket with a path"))?.to_owned();
    listener.set_nonblocking(true).map_err(|e| failed(&e))?;
    Ok(Bound { listener, path, lock: None })
}

/// Takes the socket, or says who has it.
pub fn bind(path: &Path) -> Result<Bound, ApiError> {
    let failed = |what: &str, e: io::Error| {
        ApiError::failed("socket.failed", format!("{what} {} failed: {e}", path.display()))
            .hint("choose another place with: braid daemon --socket PATH")
    };
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|e| failed("making the folder of", e))?;
    let owner = directory.metadata().map_err(|e| failed("looking at the folder of", e))?;
    if owner.uid() != own_uid() && owner.uid() != 0 {
        let message =
            format!("{} belongs to uid {}: someone else could take the socket away", directory.display(), owner.uid());
        return Err(ApiError::failed("socket.foreign_directory", message));
    }

    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&lock_path)
        .map_err(|e| failed("opening the lock of", e))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(already_running(path)),
        Err(TryLockError::Error(e)) => return Err(failed("locking", e)),
    }
    match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed("looking at", e)),
        Ok(found) if !found.file_type().is_socket() => {
            let message = format!("{} is there and is not a socket; it was left alone", path.display());
            return Err(ApiError::failed("socket.not_a_socket", message));
        }
        Ok(_) if StdStream::connect(path).is_ok() => return Err(already_running(path)),
        Ok(_) => std::fs::remove_file(path).map_err(|e| failed("removing the socket of a dead daemon", e))?,
    }

    // SAFETY: umask cannot fail. It is process-wide, so it is narrowed for this one call and only ever narrowed.
    let before = unsafe { libc::umask(0o177) };
    let listener = StdListener::bind(path);
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    let listener = listener.map_err(|e| failed("listening on", e))?;
    listener.set_nonblocking(true).map_err(|e| failed("setting up", e))?;
    Ok(Bound { listener, path: path.to_owned(), lock: Some(lock) })
}

fn already_running(path: &Path) -> ApiError {
    ApiError::failed("daemon.already_running", format!("a braid daemon already listens on {}", path.display()))
        .hint("use it as it is, or start another one with: braid daemon --socket PATH")
}

impl Bound {
    /// Where.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers until `until` is ready and the requests under way are answered, then removes the socket. Needs a
    /// tokio runtime; the service is called on its blocking threads.
    pub async fn serve(
        self,
        service: Arc<dyn Service>,
        until: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let listener = UnixListener::from_std(self.listener)?;
        let app = router(service).into_make_service_with_connect_info::<Peer>();
        let result = axum::serve(listener, app).with_graceful_shutdown(until).await;
        if self.lock.is_some() {
            // Gone already is as good.
            let _ = std::fs::remove_file(&self.path);
        }
        result
    }
}

/// Who is at the other end; `None` when the kernel does not say.
#[derive(Clone, Copy, Debug)]
struct Peer {
    uid: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Peer { uid: stream.io().peer_cred().ok().map(|c| c.uid()) }
    }
}

async fn only_for_us(ConnectInfo(peer): ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    if permitted(peer.uid, own_uid()) {
        // What is announced too large is refused before it is read; what is not announced, at the limit.
        let length = request.headers().get(header::CONTENT_LENGTH);
        let announced: Option<usize> = length.and_then(|v| v.to_str().ok()?.parse().ok());
        return match announced {
            Some(length) if length > BODY_MAX => too_large(),
            _ => next.run(request).await,
        };
    }
    let message = format!("this daemon answers uid {} and root only", own_uid());
    failure(StatusCode::FORBIDDEN, ApiError::new(ErrorKind::Unreachable, "daemon.permission_denied", message))
}

fn permitted(peer: Option<u32>, own: u32) -> bool {
    peer.is_some_and(|uid| uid == 0 || uid == own)
}

type Shared = Arc<dyn Service>;

fn router(service: Shared) -> Router {
    Router::new()
        .add::<CreatePool>(change::<CreatePool>)
        .add::<DestroyPool>(change::<DestroyPool>)
        .add::<ImportPools>(change::<ImportPools>)
        .add::<ExportPool>(change::<ExportPool>)
        .add::<ListPools>(look::<ListPools>)
        .add::<Status>(look::<Status>)
        .add::<Usage>(look::<Usage>)
        .add::<IoStat>(look::<IoStat>)
        .add::<GetProperties>(change::<GetProperties>)
        .add::<SetProperties>(change::<SetProperties>)
        .add::<ListDevices>(look::<ListDevices>)
        .add::<ScanDevices>(look::<ScanDevices>)
        .add::<OnlineDevice>(change::<OnlineDevice>)
        .add::<OfflineDevice>(change::<OfflineDevice>)
        .add::<ClearErrors>(change::<ClearErrors>)
        .add::<CreateVolume>(change::<CreateVolume>)
        .add::<ListVolumes>(look::<ListVolumes>)
        .add::<ResizeVolume>(change::<ResizeVolume>)
        .add::<RenameVolume>(change::<RenameVolume>)
        .add::<DestroyVolume>(change::<DestroyVolume>)
        .add::<MapVolume>(change::<MapVolume>)
        .add::<CreateShare>(change::<CreateShare>)
        .add::<RemoveShare>(change::<RemoveShare>)
        .add::<ListShares>(look::<ListShares>)
        .add::<Scrub>(change::<Scrub>)
        .add::<ScrubStatus>(look::<ScrubStatus>)
        .add::<AddDevices>(change::<AddDevices>)
        .add::<RemoveDevice>(change::<RemoveDevice>)
        .add::<ReplaceDevice>(change::<ReplaceDevice>)
        .add::<Balance>(change::<Balance>)
        .add::<JobControl>(change::<JobControl>)
        .add::<JobStatus>(look::<JobStatus>)
        .add::<TakeTrace>(change::<TakeTrace>)
        .add::<ListEvents>(look::<ListEvents>)
        .route("/metrics", get(metrics))
        .fallback(async || {
            let known = ROUTES.join(" ");
            let error =
                ApiError::not_found("route.unknown", format!("there is no such route; POST /v1/ one of {known}"));
            failure(StatusCode::NOT_FOUND, error)
        })
        .method_not_allowed_fallback(async || {
            failure(StatusCode::METHOD_NOT_ALLOWED, ApiError::usage("route.method", "use POST with a JSON object"))
        })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn(only_for_us))
        .with_state(service)
}

trait AddCall {
    fn add<C: Call>(self, methods: fn() -> MethodRouter<Shared>) -> Self;
}

impl AddCall for Router<Shared> {
    fn add<C: Call>(self, methods: fn() -> MethodRouter<Shared>) -> Self {
        self.route(&format!("/v1/{}", C::ROUTE), methods())
    }
}

fn change<C: Call>() -> MethodRouter<Shared> {
    post(answer::<C>)
}

fn look<C: Call>() -> MethodRouter<Shared> {
    get(answer::<C>).post(answer::<C>)
}

/// A query as the JSON object that it stands for.
fn object_of(query: BTreeMap<String, String>) -> Vec<u8> {
    let value = |text: String| match text.as_str() {
        "true" | "false" => serde_json::Value::Bool(text == "true"),
        _ => serde_json::Value::String(text),
    };
    let object: serde_json::Map<_, _> = query.into_iter().map(|(name, text)| (name, value(text))).collect();
    serde_json::to_vec(&object).unwrap_or_default()
}

async fn metrics(State(service): State<Shared>) -> Response {
    match tokio::task::spawn_blocking(move || super::metrics::page(&*service)).await {
        Ok(text) => ([(header::CONTENT_TYPE, super::metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => fail(ApiError::failed("daemon.bug", "the daemon failed inside while answering metrics")),
    }
}

async fn answer<C: Call>(
    State(service): State<Shared>,
    Query(query): Query<BTreeMap<String, String>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => return too_large(),
        Err(rejection) => return fail(ApiError::usage("request.malformed", rejection.body_text())),
    };
    let body = if body.is_empty() { object_of(query).into() } else { body };
    let request: C = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(e) => return fail(ApiError::usage("request.malformed", format!("request {}: {e}", C::ROUTE))),
    };
    // Detached on purpose: a client that hangs up does not stop a change half way.
    let result = tokio::task::spawn_blocking(move || {
        let mut request = request;
        request.check()?;
        request.call(&*service)
    })
    .await;
    match result {
        Ok(Ok(data)) => json(StatusCode::OK, &Envelope::new(C::ROUTE, data)),
        Ok(Err(error)) => fail(error),
        Err(_) => fail(
            ApiError::failed("daemon.bug", format!("the daemon failed inside while answering {}", C::ROUTE))
                .hint("its log has the place; this is a bug in braid"),
        ),
    }
}

fn too_large() -> Response {
    let error = ApiError::usage("request.too_large", format!("a request has at most {BODY_MAX} bytes"));
    failure(StatusCode::PAYLOAD_TOO_LARGE, error)
}

fn fail(error: ApiError) -> Response {
    failure(StatusCode::from_u16(error.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error)
}

fn failure(status: StatusCode, error: ApiError) -> Response {
    json(status, &ErrorEnvelope { error })
}

fn json(status: StatusCode, body: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_socket_is_for_its_owner_and_its_folder_too() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("new/braid.sock");
        let bound = bind(&path).expect("bind");
        let mode = |p: &Path| p.metadata().expect("metadata").permissions().mode() & 0o777;
        assert_eq!((mode(bound.path()), mode(path.parent().expect("parent"))), (0o600, 0o700));
    }

    #[test]
    fn one_daemon_a_socket() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("braid.sock");
        let first = bind(&path).expect("first");
        assert_eq!(bind(&path).expect_err("second").code, "daemon.already_running");
        drop(first);
        assert!(path.exists(), "a dead daemon leaves its socket");
        bind(&path).expect("which the next one replaces");
    }

    #[test]
    fn a_passed_socket_is_used_where_it_is() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("passed.sock");
        let socket = StdListener::bind(&path).expect("bind");
        assert_eq!(adopt(socket.into()).expect("adopt").path(), path);
        assert!(path.exists());
        let pair = StdStream::pair().expect("pair").0;
        assert_eq!(adopt(pair.into()).expect_err("no path").code, "socket.failed");
    }

    #[test]
    fn what_is_not_a_socket_is_left_alone() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("braid.sock");
        std::fs::write(&path, "precious").expect("write");
        assert_eq!(bind(&path).expect_err("file").code, "socket.not_a_socket");
        assert_eq!(std::fs::read(&path).expect("read"), b"precious");
        let link = directory.path().join("link.sock");
        symlink(&path, &link).expect("symlink");
        assert_eq!(bind(&link).expect_err("link").code, "socket.not_a_socket");
    }

    #[test]
    fn strangers_are_not_answered() {
        for (peer, own, yes) in [
            (Some(1000), 1000, true),
            (Some(0), 1000, true),
            (Some(1001), 1000, false),
            (Some(1000), 0, false),
            (None, 0, false),
        ] {
            assert_eq!(permitted(peer, own), yes, "{peer:?} {own}");
        }
    }

    #[test]
    fn the_table_above_names_every_route() {
        let text = include_str!("server.rs");
        for route in ROUTES {
            assert!(text.contains(&format!("//! | `{route}` |")), "{route}");
        }
    }
}
