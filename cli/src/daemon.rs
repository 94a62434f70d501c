//! `braid daemon`: the socket, the log, the signals. What is behind the socket comes from [`engine`].

use crate::args::DaemonArgs;
use crate::client::named_socket;
use crate::commands::Outcome;
use crate::engine;
use braid_host::control::api::ApiError;
use braid_host::control::server;
use braid_host::control::service::Service;
use braid_host::limits;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// How long requests under way may take after a signal. What is durable by then stays; a stop that hangs is worse.
const STOP_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn daemon(socket: Option<PathBuf>, args: &DaemonArgs) -> Outcome {
    log_to_stderr(&args.log)?;
    if let Err(e) = limits::raise_open_files() {
        tracing::warn!("the limit of open files stays as it is: {e}");
    }
    let path = socket.or_else(named_socket).unwrap_or_else(server::default_socket);
    // First the socket: a second daemon must not get as far as touching a disk.
    let mut passed = engine::passed()?;
    let bound = engine::bind(&mut passed, &path)?;
    let service = engine::service(passed, bound.path(), args.state_dir.as_deref(), args.flight_record.as_deref())?;
    run(bound, service)?;
    Ok(0)
}

fn run(bound: server::Bound, service: Arc<dyn Service>) -> Result<(), ApiError> {
    let failed = |e: std::io::Error| ApiError::failed("daemon.failed", format!("the control server failed: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let result = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        tracing::info!(socket = %bound.path().display(), "ready");
        // Not under systemd: nothing to tell.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        let server = bound.serve(service.clone(), async {
            let _ = stopped.await;
        });
        tokio::pin!(server);
        tokio::select! {
            result = &mut server => return result,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        let _ = stop.send(());
        match tokio::time::timeout(STOP_WITHIN, server).await {
            Ok(result) => result,
            Err(_) => {
                tracing::warn!("requests were still under way; they are cut off");
                Ok(())
            }
        }
    });
    service.shutdown();
    runtime.shutdown_background();
    result.map_err(failed)
}

fn log_to_stderr(level: &str) -> Result<(), ApiError> {
    let targets: Targets = level.parse().map_err(|_| {
        ApiError::usage("daemon.bad_log", format!("--log {level}: write error, warn, info, debug, or module=level,..."))
    })?;
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colour).with_filter(targets);
    // A second call in one process (tests) keeps the first.
    let _ = tracing_subscriber::registry().with(layer).try_init();
    Ok(())
}
