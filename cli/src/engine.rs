//! What is behind the control socket: the daemon of `braid-host`, set up for this user, with the sockets that a service
//! manager passed.
//!
//! | `FileDescriptorName=` | what it is |
//! |---|---|
//! | begins with `nbd` | an NBD socket: shares on the daemon's own socket, or on its address, are served there |
//! | anything else | the control socket |

use crate::models;
use braid_host::backend::pace;
use braid_host::control::api::ApiError;
use braid_host::control::server::{self, Bound};
use braid_host::control::service::Service;
use braid_host::daemon::{Daemon, DaemonConfig};
use braid_host::nbd::Listen;
use braid_host::nbd::acceptor::activation;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// Sockets of a service manager.
#[derive(Default)]
pub(crate) struct Passed {
    control: Option<OwnedFd>,
    nbd: Vec<OwnedFd>,
}

/// Takes them; call it once, before other descriptors are made.
pub(crate) fn passed() -> Result<Passed, ApiError> {
    let failed = |e: &dyn std::fmt::Display| {
        ApiError::failed("activation.failed", format!("the sockets of the service manager cannot be used: {e}"))
    };
    let mut passed = Passed::default();
    for (name, listen) in activation().map_err(|e| failed(&e))? {
        let Listen::Adopted(socket) = listen else { continue };
        if name.starts_with("nbd") {
            passed.nbd.push(socket);
        } else if passed.control.replace(socket).is_some() {
            return Err(failed(&format_args!("two are for control, the second is {name:?}; call NBD sockets nbd")));
        }
    }
    Ok(passed)
}

/// The control socket: the one that was passed, or a new one at `path`.
pub(crate) fn bind(passed: &mut Passed, path: &Path) -> Result<Bound, ApiError> {
    match passed.control.take() {
        Some(socket) => server::adopt(socket),
        None => server::bind(path),
    }
}

/// The daemon, with the pools open that were open when it last ended; `state_dir` instead of the usual folder.
pub(crate) fn service(
    passed: Passed,
    socket: &Path,
    state_dir: Option<&Path>,
    flight_dir: Option<&Path>,
) -> Result<Arc<dyn Service>, ApiError> {
    let mut config = DaemonConfig::beside(socket);
    if let Some(folder) = state_dir {
        config.state_dir = std::path::absolute(folder)
            .map_err(|e| ApiError::usage("daemon.bad_state_dir", format!("--state-dir {}: {e}", folder.display())))?;
    }
    if let Some(folder) = flight_dir {
        std::fs::create_dir_all(folder).map_err(|e| {
            let why = format!("--flight-record {}: cannot make this folder: {e}", folder.display());
            ApiError::usage("daemon.bad_flight_dir", why)
        })?;
    }
    pace::offer(models::paced);
    config.flight_dir = flight_dir.map(Path::to_path_buf);
    let daemon = Arc::new(Daemon::new(config));
    for socket in passed.nbd {
        daemon.serve_activated_nbd(socket)?;
    }
    let open = daemon.import_remembered();
    if !open.is_empty() {
        tracing::info!("open: {}", open.join(" "));
    }
    daemon.watch_members();
    Ok(daemon)
}
