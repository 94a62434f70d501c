//! The other end of the control socket: one request, one connection.
//!
//! Which socket: `--socket`, else `$BRAID_SOCKET`; else this user's own (root: `/run/braid/braid.sock`; others:
//! `$XDG_RUNTIME_DIR/braid/braid.sock` or `/tmp/braid-UID/braid.sock`); else, when that one is not there, the
//! system's `/run/braid/braid.sock`. One's own comes first because the system's daemon answers its own user and root only.
//!
//! A socket that was not named is used only if root or this user listens there: anybody can make a folder in `/tmp`.

use braid_host::control::api::{ApiError, Envelope, ErrorEnvelope, ErrorKind};
use braid_host::control::server::{SYSTEM_SOCKET, default_socket, own_uid};
use braid_host::control::service::Call;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use std::io;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// Speaks with the daemon.
pub(crate) struct Client {
    socket: PathBuf,
    /// Somebody said where; then whoever listens there is who was meant.
    named: bool,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// A client of the daemon at `socket`, or of the usual one. Does not connect yet.
    pub(crate) fn new(socket: Option<PathBuf>) -> Result<Client, ApiError> {
        let (socket, named) = match socket.or_else(named_socket) {
            Some(socket) => (socket, true),
            None => (usual_socket(), false),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(|e| ApiError::failed("client.failed", format!("no event loop: {e}")))?;
        Ok(Client { socket, named, runtime })
    }

    /// Asks.
    pub(crate) fn call<C: Call>(&self, request: C) -> Result<C::Reply, ApiError> {
        let body = serde_json::to_vec(&request)
            .map_err(|e| ApiError::failed("client.failed", format!("request {} does not fit JSON: {e}", C::ROUTE)))?;
        let (success, body) = self.runtime.block_on(self.exchange(&format!("/v1/{}", C::ROUTE), Some(body)))?;
        let foreign = |e: serde_json::Error| self.foreign(&e);
        if success {
            let envelope: Envelope<C::Reply> = serde_json::from_slice(&body).map_err(foreign)?;
            return Ok(envelope.data);
        }
        let envelope: ErrorEnvelope = serde_json::from_slice(&body).map_err(foreign)?;
        Err(envelope.error)
    }

    /// A page that is no JSON.
    pub(crate) fn page(&self, address: &str) -> Result<String, ApiError> {
        let (success, body) = self.runtime.block_on(self.exchange(address, None))?;
        if success {
            return String::from_utf8(body.into()).map_err(|e| self.foreign(&e));
        }
        let envelope: ErrorEnvelope = serde_json::from_slice(&body).map_err(|e| self.foreign(&e))?;
        Err(envelope.error)
    }

    fn foreign(&self, e: &dyn std::fmt::Display) -> ApiError {
        let message = format!("what listens on {} does not speak like braid: {e}", self.socket.display());
        ApiError::new(ErrorKind::Unreachable, "daemon.foreign", message)
            .hint("perhaps the daemon is of another version; restart it with: braid daemon")
    }

    /// With a body it is a POST, without one a GET.
    async fn exchange(&self, address: &str, body: Option<Vec<u8>>) -> Result<(bool, Bytes), ApiError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|e| unreachable(&self.socket, &e))?;
        if !self.named {
            let peer = stream.peer_cred().map(|c| c.uid()).ok();
            if !peer.is_some_and(|uid| uid == 0 || uid == own_uid()) {
                let message = format!("{} belongs to somebody else; nothing was sent", self.socket.display());
                return Err(ApiError::new(ErrorKind::Unreachable, "daemon.foreign", message));
            }
        }
        let lost = |e: hyper::Error| {
            let message = format!("the daemon at {} hung up: {e}", self.socket.display());
            ApiError::new(ErrorKind::Unreachable, "daemon.hung_up", message)
                .hint("whether the request was carried out is unknown; look with: braid status")
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        let connection = tokio::spawn(connection);
        let method = if body.is_some() { hyper::Method::POST } else { hyper::Method::GET };
        let request = hyper::Request::builder()
            .method(method)
            .uri(address)
            .header("host", "braid")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|e| ApiError::failed("client.failed", e.to_string()))?;
        let response = sender.send_request(request).await.map_err(lost)?;
        let success = response.status().is_success();
        let body = response.into_body().collect().await.map_err(lost)?.to_bytes();
        connection.abort();
        Ok((success, body))
    }
}

/// `$BRAID_SOCKET`.
pub(crate) fn named_socket() -> Option<PathBuf> {
    std::env::var_os("BRAID_SOCKET").filter(|s| !s.is_empty()).map(PathBuf::from)
}

fn usual_socket() -> PathBuf {
    let own = default_socket();
    let system = Path::new(SYSTEM_SOCKET);
    if !own.exists() && system.exists() { system.into() } else { own }
}

fn unreachable(socket: &Path, e: &io::Error) -> ApiError {
    let place = socket.display();
    match e.kind() {
        io::ErrorKind::PermissionDenied => ApiError::new(
            ErrorKind::Unreachable,
            "daemon.permission_denied",
            format!("a daemon's socket is at {place}, but this user may not use it"),
        )
        .hint("run this as the user of that daemon or as root, or start your own with: braid daemon"),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ApiError::new(ErrorKind::Unreachable, "daemon.not_running", format!("no braid daemon listens on {place}"))
                .hint("start it with: braid daemon")
        }
        _ => {
            ApiError::new(ErrorKind::Unreachable, "daemon.not_reachable", format!("connecting to {place} failed: {e}"))
                .hint("name another socket with --socket PATH or $BRAID_SOCKET")
        }
    }
}
