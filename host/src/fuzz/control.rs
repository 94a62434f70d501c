//! Target: requests to the control socket, as bytes: HTTP, queries, JSON, and what is judged without the pool.
//!
//! Behind it is a daemon with a pool in memory for whatever only looks. What would change something is refused behind all
//! checks, so an input means the same whichever came before it, and nothing of this machine is touched.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::control::api::*;
use crate::control::server;
use crate::control::service::Service;
use crate::daemon::{Daemon, DaemonConfig};

/// Who says nothing for so long may wait for more: then an end is sent.
const PAUSE: Duration = Duration::from_millis(500);
/// A server that says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Longest answer: all there is of one pool.
const ANSWER_MAX: usize = 1 << 20;

/// A control socket with a daemon behind it.
pub struct Control {
    socket: PathBuf,
    /// Dropped, it ends the thread that serves.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Control {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Control {
    /// Begins to serve, with everything in this folder.
    pub fn start(folder: &Path) -> Result<Control, String> {
        let socket = folder.join("braid.sock");
        let daemon = Daemon::new(DaemonConfig { state_dir: folder.join("state"), ..DaemonConfig::beside(&socket) });
        let size = "ram:64M".to_string();
        let pool = CreatePool {
            name: "tank".into(),
            devices: vec![NewDevice { path: size, ..NewDevice::default() }],
            ..CreatePool::default()
        };
        daemon.create(pool).map_err(|e| e.message)?;
        let volume =
            CreateVolume { pool: "tank".into(), volume: "v".into(), size_bytes: 1 << 30, ..CreateVolume::default() };
        daemon.volume_create(volume).map_err(|e| e.message)?;
        let bound = server::bind(&socket).map_err(|e| e.message)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| format!("no event loop: {e}"))?;
        let (stop, stopped) = oneshot::channel();
        let until = async {
            let _ = stopped.await;
        };
        let serve = move || drop(runtime.block_on(bound.serve(Arc::new(Looks(daemon)), until)));
        Ok(Control { socket, stop: Some(stop), thread: Some(std::thread::spawn(serve)) })
    }

    /// Says this on a connection of its own; taken when every answer is a good one.
    pub fn run(&self, input: &[u8]) -> Result<bool, String> {
        let failed = |what: &str, e: std::io::Error| format!("{what} the control socket failed: {e}");
        let mut stream = UnixStream::connect(&self.socket).map_err(|e| failed("connecting to", e))?;
        stream.set_read_timeout(Some(PAUSE)).map_err(|e| failed("setting up", e))?;
        // Who is refused early hears no more of it, and hangs up with an error instead of an end.
        let _ = stream.write_all(input).and_then(|()| stream.write_all(LAST));
        // An end while it is answered would be taken for a client that is gone: only what has no end of its own gets one.
        if !is_whole(input) {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let mut answer = Vec::new();
        let (mut chunk, mut silence) = ([0; 65536], Duration::ZERO);
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => return judge(&answer),
                Ok(_) if answer.len() > ANSWER_MAX => return Err("the answer has no end".into()),
                Ok(n) => answer.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock && silence >= SILENCE_MAX => {
                    return Err("it is never answered".into());
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    silence += PAUSE;
                    let _ = stream.shutdown(Shutdown::Write);
                }
                Err(_) => return judge(&answer),
            }
        }
    }
}

/// Whether it seems to be whole requests, so that a server will not wait for more.
fn is_whole(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") else { return false };
        let (head, body) = (String::from_utf8_lossy(&bytes[..end]).to_lowercase(), &bytes[end + 4..]);
        if head.contains("transfer-encoding") {
            return body.ends_with(b"0\r\n\r\n");
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.map_or(Some(0), |length| length.trim().parse().ok()).unwrap_or(usize::MAX);
        let Some(rest) = body.get(length..) else { return false };
        bytes = rest;
    }
    true
}

/// What is said of ourselves must not be that we failed.
fn judge(answer: &[u8]) -> Result<bool, String> {
    let text = String::from_utf8_lossy(answer);
    if text.contains("daemon.bug") {
        return Err(text.into_owned());
    }
    let answers = text.matches(STATUS).count();
    // What was refused behind all checks is as good as done. One answer is that to the last request, which is ours.
    let good = text.matches(&format!("{STATUS}200")).count() + text.matches(REFUSED).count();
    Ok(answers > 1 && good == answers)
}

/// What each answer begins with, up to its number.
const STATUS: &str = "HTTP/1.1 ";
/// Behind each input: whoever answers it hangs up.
const LAST: &[u8] = b"GET /v1/list HTTP/1.1\r\nhost: braid\r\nconnection: close\r\n\r\n";
/// The code of what is refused because it would change something.
const REFUSED: &str = "fuzz.refused";

/// A daemon that changes nothing.
struct Looks(Daemon);

macro_rules! looks {
    ($($look:ident $request:ident -> $reply:ty;)* -- $($change:ident $changes:ident -> $changed:ty;)*) => {
        impl Service for Looks {
            $(fn $look(&self, request: $request) -> Result<$reply, ApiError> {
                self.0.$look(request)
            })*
            $(fn $change(&self, _: $changes) -> Result<$changed, ApiError> {
                Err(ApiError::refused(REFUSED, "nothing is changed here"))
            })*
        }
    };
}

looks! {
    list ListPools -> Vec<PoolSummary>;
    status Status -> Vec<PoolStatus>;
    usage Usage -> Vec<PoolUsage>;
    iostat IoStat -> IoSnapshot;
    get GetProperties -> Vec<Property>;
    device_list ListDevices -> Vec<DeviceStatus>;
    volume_list ListVolumes -> Vec<VolumeInfo>;
    volume_map MapVolume -> Vec<MapExtent>;
    shares ListShares -> Vec<ShareInfo>;
    scrub_status ScrubStatus -> Vec<ScrubInfo>;
    job_status JobStatus -> Vec<JobInfo>;
    events ListEvents -> Vec<EventInfo>;
    --
    create CreatePool -> Change;
    destroy DestroyPool -> Change;
    import ImportPools -> Vec<FoundPool>;
    export ExportPool -> Change;
    set SetProperties -> Change;
    device_scan ScanDevices -> Vec<ScannedDevice>;
    device_online OnlineDevice -> Change;
    device_offline OfflineDevice -> Change;
    device_clear ClearErrors -> Change;
    volume_create CreateVolume -> Change;
    volume_resize ResizeVolume -> Change;
    volume_rename RenameVolume -> Change;
    volume_destroy DestroyVolume -> Change;
    share CreateShare -> ShareInfo;
    unshare RemoveShare -> Change;
    scrub Scrub -> Change;
    add AddDevices -> Change;
    remove RemoveDevice -> Change;
    replace ReplaceDevice -> Change;
    balance Balance -> Change;
    job JobControl -> Change;
    trace TakeTrace -> TracePart;
}
