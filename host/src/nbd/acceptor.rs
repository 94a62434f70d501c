//! One thread with everything that has not finished its handshake: listening sockets and half-open connections.
//!
//! A finished one leaves as a [`Handover`] for the pump of its pool. So a client that dawdles, floods or lies costs
//! this thread a little and the data path nothing.
//!
//! Who gets in: on a Unix socket the same user and root, by peer credentials, and the socket file is 0600 from its
//! first moment; on TCP anyone on loopback, and others only when TLS is required.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::handshake::{self, Exports, Handshake, Outcome, Session, TlsMode};
use super::stream::{Permit, Stream};
use super::tls::TlsServer;

/// Half-open connections; when full the oldest goes. A handshake takes a good client milliseconds.
pub const HALF_OPEN_MAX: usize = 64;
/// Negotiated connections of a daemon; a client's usual number is 1 to 8.
pub const NEGOTIATED_MAX: usize = 1024;
/// Time for a handshake, TLS included.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long listening pauses when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a half-open connection that one recv takes.
const RECV: usize = 4 << 10;
/// Connections accepted from one listener before others get their turn.
const ACCEPT_BATCH: usize = 16;

/// How a daemon accepts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether TLS is spoken.
    pub tls: TlsMode,
    /// Certificates; needed unless `tls` is off.
    pub tls_server: Option<TlsServer>,
    /// [`HALF_OPEN_MAX`].
    pub half_open_max: usize,
    /// [`NEGOTIATED_MAX`].
    pub negotiated_max: usize,
    /// [`HANDSHAKE_DEADLINE`].
    pub deadline: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            tls: TlsMode::Off,
            tls_server: None,
            half_open_max: HALF_OPEN_MAX,
            negotiated_max: NEGOTIATED_MAX,
            deadline: HANDSHAKE_DEADLINE,
        }
    }
}

/// Where to listen.
#[derive(Debug)]
pub enum Listen {
    /// A Unix socket; the file of a dead daemon is replaced, that of a live one is not.
    Unix(PathBuf),
    /// TCP; port 0 takes any.
    Tcp(SocketAddr),
    /// A listening socket made by someone else, see [`activation`].
    Adopted(OwnedFd),
}

/// Who is on the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine.
    Unix {
        /// Its user.
        uid: u32,
        /// Its id.
        pid: i32,
    },
    /// An address.
    Tcp(SocketAddr),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Unix { uid, pid } => write!(f, "process {pid} of user {uid}"),
            Peer::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// A connection that finished its handshake.
#[derive(Debug)]
pub struct Handover {
    /// The socket, with TLS state; also holds the connection's place among [`NEGOTIATED_MAX`].
    pub stream: Stream,
    /// What was agreed; `session.export.pool` says whose it is.
    pub session: Session,
    /// Bytes received behind the handshake.
    pub leftover: Vec<u8>,
    /// Who.
    pub peer: Peer,
}

/// Where finished connections go.
pub type Deliver = Box<dyn Fn(Handover) + Send>;

struct Shared {
    inbox: Mutex<Inbox>,
    wake: OwnedFd,
    tls: TlsMode,
}

#[derive(Default)]
struct Inbox {
    listeners: Vec<Listener>,
    stop: bool,
}

impl Shared {
    fn inbox(&self) -> std::sync::MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes to an eventfd of ours.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

struct Listener {
    fd: OwnedFd,
    unix: bool,
    /// Path, device and inode of the socket file, to remove exactly that one.
    file: Option<(PathBuf, u64, u64)>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, dev, ino)) = &self.file
            && std::fs::symlink_metadata(path).is_ok_and(|m| m.dev() == *dev && m.ino() == *ino)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The thread.
pub struct Acceptor {
    shared: Arc<Shared>,
    negotiated: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Starts it, listening nowhere yet. `deliver` runs on its thread and must not block.
    pub fn start(config: Config, exports: Arc<dyn Exports + Send + Sync>, deliver: Deliver) -> io::Result<Self> {
        if config.tls != TlsMode::Off && config.tls_server.is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "TLS is asked for but no certificate is loaded"));
        }
        // SAFETY: no memory involved.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor of ours.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        let shared = Arc::new(Shared { inbox: Mutex::default(), wake, tls: config.tls });
        let negotiated = Arc::new(AtomicUsize::new(0));
        let room = Room {
            config,
            exports,
            deliver,
            shared: shared.clone(),
            negotiated: negotiated.clone(),
            listeners: Vec::new(),
            half_open: Vec::new(),
            paused_until: None,
        };
        let thread = std::thread::Builder::new().name("nbd-accept".into()).spawn(move || room.run())?;
        Ok(Acceptor { shared, negotiated, thread: Some(thread) })
    }

    /// Binds and listens; the address says which port TCP got. Fails at once and with the reason.
    pub fn add_listener(&self, listen: Listen) -> io::Result<Option<SocketAddr>> {
        let (listener, address) = match listen {
            Listen::Unix(path) => (bind_unix(&path)?, None),
            Listen::Tcp(address) => {
                allowed(address, self.shared.tls)?;
                let listener = TcpListener::bind(address)?;
                let address = listener.local_addr()?;
                (Listener { fd: listener.into(), unix: false, file: None }, Some(address))
            }
            Listen::Adopted(fd) => adopt(fd, self.shared.tls)?,
        };
        set_nonblocking(listener.fd.as_raw_fd())?;
        self.shared.inbox().listeners.push(listener);
        self.shared.wake();
        Ok(address)
    }

    /// Negotiated connections that are alive.
    pub fn negotiated(&self) -> usize {
        self.negotiated.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Closes listeners and half-open connections and ends the thread. Negotiated ones live on with their pumps.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.inbox().stop = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.end();
    }
}

struct HalfOpen {
    stream: Stream,
    handshake: Handshake,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    deadline: Instant,
    peer: Peer,
}

enum Step {
    Wait,
    Drop(String),
    Deliver(Session),
}

impl HalfOpen {
    /// Goes as far as the socket lets it.
    fn step(&mut self, config: &Config, exports: &dyn Exports) -> io::Result<Step> {
        let mut chunk = [0u8; RECV];
        loop {
            while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
                match self.stream.send_bytes(rest) {
                    Ok(n) => self.sent += n,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Step::Wait),
                    Err(e) => return Err(e),
                }
            }
            self.output.clear();
            self.sent = 0;
            match self.handshake.outcome() {
                Outcome::Open => {}
                Outcome::Closed => return Ok(Step::Drop("the client is done".into())),
                Outcome::Negotiated(session) => return Ok(Step::Deliver(session.clone())),
                Outcome::StartTls => {
                    if !self.stream.is_tls() {
                        let Some(server) = &config.tls_server else {
                            return Ok(Step::Drop("no certificate is loaded".into()));
                        };
                        self.stream.set_tls(server.accept()?);
                    }
                    self.stream.handshake()?;
                    if self.stream.is_handshaking() {
                        return Ok(Step::Wait);
                    }
                    self.handshake.tls_started();
                }
            }
            let used = match self.handshake.feed(&self.input, exports) {
                Ok(used) => used,
                Err(violation) => return Ok(Step::Drop(violation.to_string())),
            };
            self.input.drain(..used.min(self.input.len()));
            self.output = self.handshake.take_output();
            if !self.output.is_empty() || *self.handshake.outcome() != Outcome::Open {
                continue;
            }
            match self.stream.recv(&mut chunk, &mut []) {
                Ok(0) => return Ok(Step::Drop("the client left".into())),
                Ok(n) => self.input.extend_from_slice(&chunk[..n.min(RECV)]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Step::Wait),
                Err(e) => return Err(e),
            }
        }
    }

    fn wants_write(&self) -> bool {
        self.sent < self.output.len() || self.stream.wants_write()
    }
}

/// Everything that the thread owns.
struct Room {
    config: Config,
    exports: Arc<dyn Exports + Send + Sync>,
    deliver: Deliver,
    shared: Arc<Shared>,
    negotiated: Arc<AtomicUsize>,
    listeners: Vec<Listener>,
    /// Oldest first.
    half_open: Vec<HalfOpen>,
    paused_until: Option<Instant>,
}

impl Room {
    fn run(mut self) {
        let mut polls: Vec<libc::pollfd> = Vec::new();
        loop {
            let now = Instant::now();
            {
                let mut inbox = self.shared.inbox();
                if inbox.stop {
                    self.listeners.append(&mut inbox.listeners);
                    return;
                }
                self.listeners.append(&mut inbox.listeners);
            }
            self.half_open.retain(|h| {
                let in_time = h.deadline > now;
                if !in_time {
                    tracing::info!(peer = %h.peer, "handshake not finished in time, connection closed");
                }
                in_time
            });
            if self.paused_until.is_some_and(|until| until <= now) {
                self.paused_until = None;
            }
            polls.clear();
            let poll = |fd, events| libc::pollfd { fd, events, revents: 0 };
            polls.push(poll(self.shared.wake.as_raw_fd(), libc::POLLIN));
            let listening = if self.paused_until.is_some() { 0 } else { libc::POLLIN };
            polls.extend(self.listeners.iter().map(|l| poll(l.fd.as_raw_fd(), listening)));
            polls.extend(self.half_open.iter().map(|h| {
                let events = if h.wants_write() { libc::POLLOUT } else { libc::POLLIN };
                poll(h.stream.fd(), events)
            }));
            let next = self.half_open.iter().map(|h| h.deadline).chain(self.paused_until).min();
            // Rounded up, so that a wake-up is never just too early.
            let timeout = next.map_or(-1, |at| at.saturating_duration_since(now).as_millis().min(60_000) as i32 + 1);
            // SAFETY: `polls` is as long as it says.
            let n = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) };
            if n < 0 {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    tracing::error!("poll failed ({e}), trying again");
                    std::thread::sleep(ACCEPT_PAUSE);
                }
                continue;
            }
            if polls[0].revents != 0 {
                let mut count = [0u8; 8];
                // SAFETY: eight bytes from an eventfd of ours.
                unsafe { libc::read(self.shared.wake.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
            }
            let (for_listeners, for_half_open) = polls[1..].split_at(self.listeners.len());
            // Those who wait first: newcomers may push the oldest out.
            let ready: Vec<RawFd> = for_half_open.iter().filter(|p| p.revents != 0).map(|p| p.fd).collect();
            let knocking: Vec<usize> =
                for_listeners.iter().enumerate().filter(|(_, p)| p.revents != 0).map(|(i, _)| i).collect();
            self.advance(&ready);
            for index in knocking {
                self.accept(index);
            }
        }
    }

    fn advance(&mut self, ready: &[RawFd]) {
        let mut index = 0;
        while index < self.half_open.len() {
            let fd = self.half_open[index].stream.fd();
            if ready.contains(&fd) && self.advance_one(index) {
                continue;
            }
            index += 1;
        }
    }

    /// One step of one connection; true when it is gone from the list.
    fn advance_one(&mut self, index: usize) -> bool {
        let half = &mut self.half_open[index];
        match half.step(&self.config, &*self.exports) {
            Ok(Step::Wait) => return false,
            Ok(Step::Drop(why)) => {
                let half = self.half_open.remove(index);
                tracing::info!(peer = %half.peer, "handshake ended: {why}");
            }
            Err(e) => {
                let half = self.half_open.remove(index);
                tracing::info!(peer = %half.peer, "handshake failed: {e}");
            }
            Ok(Step::Deliver(session)) => {
                let HalfOpen { mut stream, input, peer, .. } = self.half_open.remove(index);
                match Permit::take(&self.negotiated, self.config.negotiated_max) {
                    Some(permit) => {
                        stream.set_permit(permit);
                        (self.deliver)(Handover { stream, session, leftover: input, peer });
                    }
                    None => {
                        tracing::warn!(%peer, "{} connections are open, this one is closed", self.config.negotiated_max)
                    }
                }
            }
        }
        true
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPT_BATCH {
            let Some(listener) = self.listeners.get(index) else { return };
            let unix = listener.unix;
            let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            // SAFETY: the address is not asked for.
            let fd =
                unsafe { libc::accept4(listener.fd.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) };
            if fd < 0 {
                let e = io::Error::last_os_error();
                match e.raw_os_error() {
                    Some(libc::EAGAIN) => return,
                    Some(libc::ECONNABORTED | libc::EINTR) => continue,
                    _ => {
                        tracing::warn!("accept failed ({e}), trying again in {ACCEPT_PAUSE:?}");
                        self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                        return;
                    }
                }
            }
            // SAFETY: a fresh descriptor of ours.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            let peer = match if unix { unix_peer(&fd) } else { tcp_peer(&fd) } {
                Ok(peer) => peer,
                Err(e) => {
                    tracing::warn!("connection refused: {e}");
                    continue;
                }
            };
            while self.half_open.len() >= self.config.half_open_max.max(1) {
                let oldest = self.half_open.remove(0);
                tracing::info!(peer = %oldest.peer, "too many half-open connections, the oldest is closed");
            }
            let mut handshake = Handshake::new(handshake::Config { tls: self.config.tls });
            let output = handshake.take_output();
            let deadline = Instant::now() + self.config.deadline;
            let stream = Stream::plain(fd);
            self.half_open.push(HalfOpen { stream, handshake, input: Vec::new(), output, sent: 0, deadline, peer });
            self.advance_one(self.half_open.len() - 1);
        }
    }
}

/// Same user or root.
fn unix_peer(fd: &OwnedFd) -> io::Result<Peer> {
    let cred: libc::ucred = getsockopt(fd.as_raw_fd(), libc::SO_PEERCRED)?;
    // SAFETY: no memory involved.
    let own = unsafe { libc::geteuid() };
    if cred.uid != 0 && cred.uid != own {
        let message = format!("process {} of user {} is neither root nor user {own}", cred.pid, cred.uid);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(Peer::Unix { uid: cred.uid, pid: cred.pid })
}

fn tcp_peer(fd: &OwnedFd) -> io::Result<Peer> {
    let stream = std::net::TcpStream::from(fd.try_clone()?);
    stream.set_nodelay(true)?;
    Ok(Peer::Tcp(stream.peer_addr()?))
}

/// In the clear only on this machine.
fn allowed(address: SocketAddr, tls: TlsMode) -> io::Result<()> {
    if address.ip().is_loopback() || tls == TlsMode::Require {
        return Ok(());
    }
    let message = format!("{address} can be reached from outside: require TLS, or listen on 127.0.0.1 or ::1");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// The umask belongs to the process: one bind at a time.
static UMASK: Mutex<()> = Mutex::new(());

fn bind_unix(path: &Path) -> io::Result<Listener> {
    if let Ok(found) = std::fs::symlink_metadata(path) {
        let refuse = |why| Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{}: {why}", path.display())));
        if !found.file_type().is_socket() {
            return refuse("exists and is not a socket");
        }
        match UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            _ => return refuse("another daemon listens there"),
        }
    }
    let listener = {
        let _one = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: no memory involved. Files made meanwhile by other threads get fewer rights, never more.
        let old = unsafe { libc::umask(0o177) };
        let listener = UnixListener::bind(path);
        // SAFETY: as above.
        unsafe { libc::umask(old) };
        listener?
    };
    let made = std::fs::symlink_metadata(path)?;
    Ok(Listener { fd: listener.into(), unix: true, file: Some((path.to_owned(), made.dev(), made.ino())) })
}

/// Takes a listening socket over after a look at what it is: the kernel's NBD client once took any kind.
fn adopt(fd: OwnedFd, tls: TlsMode) -> io::Result<(Listener, Option<SocketAddr>)> {
    let raw = fd.as_raw_fd();
    let refuse = |why: &str| {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("descriptor {raw} cannot be listened on: {why}")))
    };
    match (
        getsockopt::<libc::c_int>(raw, libc::SO_TYPE),
        getsockopt::<libc::c_int>(raw, libc::SO_ACCEPTCONN),
        getsockopt::<libc::c_int>(raw, libc::SO_DOMAIN),
    ) {
        (Err(_), _, _) => refuse("not a socket"),
        (Ok(kind), _, _) if kind != libc::SOCK_STREAM => refuse("not a stream socket"),
        (_, Ok(0), _) => refuse("not listening"),
        (_, _, Ok(libc::AF_UNIX)) => Ok((Listener { fd, unix: true, file: None }, None)),
        (_, _, Ok(libc::AF_INET | libc::AF_INET6)) => {
            let listener = TcpListener::from(fd);
            let address = listener.local_addr()?;
            allowed(address, tls)?;
            Ok((Listener { fd: listener.into(), unix: false, file: None }, Some(address)))
        }
        _ => refuse("neither a Unix nor a TCP socket"),
    }
}

/// The sockets that a service manager passed to this process (LISTEN_FDS), by name where it gave names. Call it once,
/// early: it takes ownership of the descriptors.
pub fn activation() -> io::Result<Vec<(String, Listen)>> {
    const FIRST: RawFd = 3;
    let variable = |name| std::env::var(name).ok();
    if variable("LISTEN_PID").and_then(|pid| pid.parse().ok()) != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let bad = || io::Error::new(io::ErrorKind::InvalidInput, "LISTEN_FDS is not a small number");
    let count: RawFd = variable("LISTEN_FDS").unwrap_or_default().parse().map_err(|_| bad())?;
    if !(0..=256).contains(&count) {
        return Err(bad());
    }
    let names: HashMap<usize, String> =
        variable("LISTEN_FDNAMES").unwrap_or_default().split(':').map(str::to_owned).enumerate().collect();
    let mut found = Vec::new();
    for index in 0..count {
        let fd = FIRST + index;
        // SAFETY: no memory involved; says whether the descriptor exists.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("descriptor {fd} was not passed")));
        }
        // SAFETY: the service manager's promise is that it is ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        found.push((names.get(&(index as usize)).cloned().unwrap_or_default(), Listen::Adopted(fd)));
    }
    Ok(found)
}

fn getsockopt<T: Copy>(fd: RawFd, option: libc::c_int) -> io::Result<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has `len` bytes, and every T used here is valid as zeroes.
    unsafe {
        if libc::getsockopt(fd, libc::SOL_SOCKET, option, value.as_mut_ptr().cast(), &mut len) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(value.assume_init())
    }
}

fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: no memory involved.
    let set = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
