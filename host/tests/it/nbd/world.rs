//! A small world: volumes in memory, a pump that serves them, and a daemon around it.
//!
//! What it does not check: durability, merging, anything about disks.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braid_core::request::{Op, Reply, Request, RequestError};
use braid_core::units::{BLOCK, Uuid, VolumeId, round_down, round_up};
use braid_host::buffers::Buffers;
use braid_host::nbd::acceptor::{self, Acceptor, Handover, Listen};
use braid_host::nbd::connection::{Action, Connection, Extent, Status, tag_connection};
use braid_host::nbd::handshake::{ExportInfo, Exports, Session};
use braid_host::nbd::proto::state;
use braid_host::nbd::stream::Stream;

pub const POOL: Uuid = Uuid([7; 16]);

pub fn export(name: &str, volume: u32, size: u64) -> ExportInfo {
    ExportInfo {
        name: name.into(),
        description: format!("volume {volume}"),
        size,
        read_only: false,
        rotational: false,
        can_multi_conn: true,
        pool: POOL,
        volume: VolumeId(volume),
        share: 0,
    }
}

pub struct Table(pub Vec<ExportInfo>);

impl Exports for Table {
    fn list(&self) -> Vec<ExportInfo> {
        self.0.clone()
    }
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        self.0.iter().find(|e| e.name == name).cloned()
    }
}

/// A volume in memory.
pub struct Ram {
    pub data: Vec<u8>,
    pub written: Vec<bool>,
    /// Every request that came, for a look at what was asked.
    pub log: Vec<(Op, u64, u64)>,
    pub fail: Option<RequestError>,
}

impl Ram {
    pub fn new(size: u64) -> Self {
        let blocks = size.div_ceil(BLOCK) as usize;
        Ram { data: vec![0; blocks * BLOCK as usize], written: vec![false; blocks], log: Vec::new(), fail: None }
    }

    pub fn execute(&mut self, r: &Request, buffers: &mut Buffers) -> Reply {
        if self.log.len() < 10_000 {
            self.log.push((r.op, r.offset, r.len));
        }
        if let Some(error) = self.fail {
            return Reply { tag: r.tag, result: Err(error), hole: false };
        }
        let (from, to) = (r.offset as usize, (r.offset + r.len) as usize);
        let blocks = (r.offset / BLOCK) as usize..(r.offset + r.len).div_ceil(BLOCK) as usize;
        let mut hole = false;
        match r.op {
            Op::Read => {
                let low = round_down(r.offset, BLOCK) as usize;
                let high = round_up(r.offset + r.len, BLOCK) as usize;
                buffers.bytes_mut(r.buf)[..high - low].copy_from_slice(&self.data[low..high]);
                hole = !self.written[blocks].iter().any(|w| *w);
            }
            Op::Write { .. } => {
                let at = (r.offset % BLOCK) as usize;
                self.data[from..to].copy_from_slice(&buffers.bytes(r.buf)[at..at + (to - from)]);
                self.written[blocks].fill(true);
            }
            Op::Flush => {}
            Op::Discard => {
                let low = r.offset.div_ceil(BLOCK) as usize;
                let high = ((r.offset + r.len) / BLOCK) as usize;
                for block in low..high.max(low) {
                    self.data[block * BLOCK as usize..][..BLOCK as usize].fill(0);
                    self.written[block] = false;
                }
            }
            Op::WriteZeroes { no_hole, .. } => {
                self.data[from..to].fill(0);
                for block in blocks {
                    let whole = block as u64 * BLOCK >= r.offset && (block as u64 + 1) * BLOCK <= r.offset + r.len;
                    self.written[block] = no_hole || !whole;
                }
            }
        }
        Reply { tag: r.tag, result: Ok(()), hole }
    }

    pub fn extents(&self, offset: u64, len: u64) -> Vec<Extent> {
        let mut at = offset;
        let mut all = Vec::new();
        while at < offset + len {
            let end = (round_down(at, BLOCK) + BLOCK).min(offset + len);
            let flags = if self.written[(at / BLOCK) as usize] { 0 } else { state::HOLE | state::ZERO };
            all.push((end - at, flags));
            at = end;
        }
        all
    }
}

/// The order in which answers go back.
#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    AsAsked,
    /// Each batch backwards.
    Backwards,
}

/// The pump: connections, volumes, buffers.
pub struct Pump {
    pub connections: HashMap<u32, Connection>,
    pub rams: Arc<Mutex<HashMap<VolumeId, Ram>>>,
    pub buffers: Buffers,
    pub order: Order,
    /// Answers wait while this holds.
    pub hold: bool,
    pub held: Vec<Action>,
    next: u32,
}

pub const MEMORY: usize = 256 << 20;

impl Pump {
    pub fn new(rams: Arc<Mutex<HashMap<VolumeId, Ram>>>, memory: usize) -> Self {
        let buffers = Buffers::new(1 << 20, memory).unwrap();
        let (connections, held) = (HashMap::new(), Vec::new());
        Pump { connections, rams, buffers, order: Order::AsAsked, hold: false, held, next: 1 }
    }

    pub fn add(&mut self, stream: Stream, session: Session, leftover: Vec<u8>) -> u32 {
        let id = self.next;
        self.next += 1;
        self.connections.insert(id, Connection::new(id, stream, session, leftover));
        id
    }

    /// One round for every connection; true when one of them wants another without waiting.
    pub fn turn(&mut self) -> bool {
        let mut again = false;
        let mut actions = std::mem::take(&mut self.held);
        for connection in self.connections.values_mut() {
            if connection.wants_read() || connection.stalled() {
                again |= connection.readable(&mut self.buffers, &mut actions) == Status::More;
            }
        }
        let mut progress = !actions.is_empty() && !self.hold;
        if self.hold {
            self.held = actions;
        } else {
            if self.order == Order::Backwards {
                actions.reverse();
            }
            self.answer(&actions);
        }
        for connection in self.connections.values_mut() {
            progress |= connection.wants_write();
            connection.flush(&mut self.buffers);
        }
        // What one gave back may be what another waits for; without progress only the sockets can help.
        again |= progress && self.connections.values().any(|c| c.stalled() && !c.wants_write());
        self.connections.retain(|_, c| !c.closed());
        again
    }

    pub fn answer(&mut self, actions: &[Action]) {
        let mut rams = self.rams.lock().unwrap();
        for action in actions {
            match *action {
                Action::Submit(r) => {
                    let reply = match rams.get_mut(&r.volume) {
                        Some(ram) => ram.execute(&r, &mut self.buffers),
                        None => Reply { tag: r.tag, result: Err(RequestError::NoVolume), hole: false },
                    };
                    self.connections.get_mut(&tag_connection(r.tag)).unwrap().reply(&reply, &mut self.buffers);
                }
                Action::BlockStatus { tag, volume, offset, len, .. } => {
                    let extents = rams[&volume].extents(offset, len);
                    self.connections.get_mut(&tag_connection(tag)).unwrap().block_status(tag, &extents);
                }
            }
        }
    }

    /// Every byte of payload memory is free again.
    pub fn memory_is_back(&mut self, memory: usize) -> bool {
        match self.buffers.alloc(memory) {
            Some(all) => {
                self.buffers.free(all);
                true
            }
            None => false,
        }
    }
}

/// A daemon: an acceptor, a pump thread, volumes.
pub struct Daemon {
    pub dir: tempfile::TempDir,
    pub acceptor: Option<Acceptor>,
    pub rams: Arc<Mutex<HashMap<VolumeId, Ram>>>,
    pub connections: Arc<AtomicUsize>,
    pub delivered: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    wake: UnixStream,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Daemon {
    pub fn start(config: acceptor::Config, exports: Vec<ExportInfo>, memory: usize, order: Order) -> Self {
        let rams: HashMap<_, _> = exports.iter().map(|e| (e.volume, Ram::new(e.size))).collect();
        let rams = Arc::new(Mutex::new(rams));
        let (wake, woken) = UnixStream::pair().unwrap();
        for end in [&wake, &woken] {
            end.set_nonblocking(true).unwrap();
        }
        let (sender, receiver) = std::sync::mpsc::channel::<Handover>();
        let knock = wake.try_clone().unwrap();
        let delivered = Arc::new(AtomicU64::new(0));
        let count = delivered.clone();
        let deliver = Box::new(move |handover| {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = sender.send(handover);
            let _ = std::io::Write::write(&mut &knock, &[1]);
        });
        let acceptor = Acceptor::start(config, Arc::new(Table(exports)), deliver).unwrap();
        let dir = tempfile::tempdir().unwrap();
        acceptor.add_listener(Listen::Unix(dir.path().join("nbd"))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(AtomicUsize::new(0));
        let (stopped, alive, volumes) = (stop.clone(), connections.clone(), rams.clone());
        let thread = std::thread::spawn(move || {
            let mut pump = Pump::new(volumes, memory);
            pump.order = order;
            let mut again = false;
            while !stopped.load(Ordering::SeqCst) {
                let mut polls = vec![libc::pollfd { fd: woken.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
                polls.extend(pump.connections.values().map(|c| {
                    let events =
                        if c.wants_read() { libc::POLLIN } else { 0 } | if c.wants_write() { libc::POLLOUT } else { 0 };
                    // A hang-up is reported whether asked for or not: who wants nothing is not polled.
                    libc::pollfd { fd: if events == 0 { -1 } else { c.fd() }, events, revents: 0 }
                }));
                unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as _, if again { 0 } else { 1000 }) };
                let _ = std::io::Read::read(&mut &woken, &mut [0; 64]);
                while let Ok(Handover { stream, session, leftover, .. }) = receiver.try_recv() {
                    pump.add(stream, session, leftover);
                }
                again = pump.turn();
                alive.store(pump.connections.len(), Ordering::SeqCst);
            }
        });
        Daemon { dir, acceptor: Some(acceptor), rams, connections, delivered, stop, wake, thread: Some(thread) }
    }

    pub fn simple(size: u64) -> Self {
        Daemon::start(acceptor::Config::default(), vec![export("disk", 1, size)], MEMORY, Order::AsAsked)
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd")
    }

    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = std::io::Write::write(&mut &self.wake, &[1]);
        self.acceptor.take();
        let result = self.thread.take().unwrap().join();
        assert!(result.is_ok() || std::thread::panicking(), "the pump thread panicked");
    }
}

/// A pump with one connection, driven by hand.
pub struct Bench {
    pub pump: Pump,
    pub peer: UnixStream,
    pub id: u32,
}

impl Bench {
    pub fn new(structured: bool, size: u64, memory: usize) -> Self {
        Bench::with(Session { export: export("disk", 1, size), structured, allocation: structured }, memory)
    }

    pub fn with(session: Session, memory: usize) -> Self {
        let rams = HashMap::from([(VolumeId(1), Ram::new(session.export.size))]);
        let mut pump = Pump::new(Arc::new(Mutex::new(rams)), memory);
        let (peer, ours) = UnixStream::pair().unwrap();
        peer.set_nonblocking(true).unwrap();
        let id = pump.add(Stream::plain(ours), session, Vec::new());
        Bench { pump, peer, id }
    }

    /// Writes all of it while the pump turns, and returns what came back.
    pub fn exchange(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut back = Vec::new();
        let mut idle = 0;
        while idle < 3 {
            let mut moved = false;
            match std::io::Write::write(&mut &self.peer, bytes) {
                Ok(n) if n > 0 => {
                    bytes = &bytes[n..];
                    moved = true;
                }
                Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => bytes = &[],
                _ => {}
            }
            moved |= self.pump.turn();
            let mut chunk = [0u8; 65536];
            if let Ok(n) = std::io::Read::read(&mut &self.peer, &mut chunk)
                && n > 0
            {
                back.extend_from_slice(&chunk[..n]);
                moved = true;
            }
            idle = if moved { 0 } else { idle + 1 };
        }
        back
    }

    pub fn alive(&self) -> bool {
        self.pump.connections.contains_key(&self.id)
    }

    pub fn ram<T>(&self, f: impl FnOnce(&mut Ram) -> T) -> T {
        f(self.pump.rams.lock().unwrap().get_mut(&VolumeId(1)).unwrap())
    }
}

/// Waits until it holds; panics when that takes too long.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Bytes that differ from place to place.
pub fn stamp(offset: u64, len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|i| {
            let at = (offset + i) / 8;
            ((at ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (((offset + i) % 8) * 8)) as u8
        })
        .collect()
}
