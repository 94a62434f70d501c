//! The pump: one thread per pool that owns the engine, its ring, its payload memory and every negotiated connection.
//!
//! ```text
//!            other threads                     the pump's thread
//!
//!   acceptor, FUSE, control --Message--> inbox --.
//!                                                v
//!   sockets, disks ------- Reactor::wait ----> inputs --> engine --> outputs --> disks, replies
//!                                ^                                     |
//!                                '-------------------------------------'
//! ```
//!
//! One turn: everything that happened is handed to the engine, then the engine is drained, then every connection with
//! answers sends them in one call. So what arrived together is one batch: it merges, and it is answered together.
//!
//! Promises: every request gets one answer, or its connection ends; a buffer belongs to its request until then.

mod open;

pub use open::superblock_of;

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use braid_core::Engine;
use braid_core::control::{Command, ControlError, Done, ErrorKind};
use braid_core::meta::format::NewPool;
use braid_core::meta::superblock::Superblock;
use braid_core::report::PoolReport;
use braid_core::request::{
    Content, Copy, DeviceOp, Dispatch, Event, Input, IoError, NO_BUF, Op, Output, Reply, Request, Segment,
};
use braid_core::units::{BLOCK, BufId, ClientId, DeviceId, Instant, IoId, MIB, Uuid, VolumeId};
use braid_core::volume::Extent;

use crate::aligned::AlignedBox;
use crate::backend::Disk;
use crate::buffers::{Buffers, SLAB_MAX};
use crate::nbd::connection::tag_connection;
use crate::nbd::proto::state;
use crate::nbd::{Action, Connection, Handover, Status};
use crate::reactor::{self, Choice, DiskId, Reactor, Seg, Waker};

/// Registered payload memory: enough for 1,024 requests of 64 KiB.
const ARENA: usize = 64 * MIB as usize;
/// A client that holds memory and sends nothing for this long is sent away.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long a question to a pool may take: a device in its own error recovery takes 30 s at most.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Extents of one block status reply.
const EXTENTS_MAX: usize = 1024;
/// How often silent clients are looked for.
const SWEEP: Duration = Duration::from_secs(5);
/// How long a stop waits for requests in flight.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// The upper half of the tags of requests that came over FUSE; connections count from 0.
const FUSE: u32 = u32::MAX;
/// The upper half of the tags of requests of a [`Load`].
const LOAD: u32 = u32::MAX - 1;
/// Token of a disk command that is not the engine's: zeros written where a device cannot clear by itself.
const ZEROING: u64 = 1 << 63;
/// Bytes between two joined reads that one segment takes: the published limit of such a gap.
const WASTE: usize = 32 << 10;
/// Bytes of zeros written with one command.
const ZEROS: usize = MIB as usize;

/// Where the pool of a pump comes from.
pub enum Setup {
    /// Write a new one on the disks, which are in the order of [`NewPool::devices`] with ids 1, 2, 3, ….
    Create(NewPool),
    /// Read one back from its members.
    Import(Vec<Superblock>),
}

/// How to run it.
pub struct Options {
    /// Which way to talk to disks.
    pub reactor: Choice,
    /// Payload memory in bytes; at least what the largest request needs.
    pub memory: usize,
    /// The present boot of the machine.
    pub boot: Uuid,
    /// Open a pool without all of its members. The first write then sets the absent ones aside for good, so somebody
    /// has to want it.
    pub degraded: bool,
    /// Called on the pump's thread; must not block.
    pub on_event: Box<dyn Fn(Event) + Send>,
}

/// Smallest payload memory: the largest NBD request with unaligned ends, twice.
pub const MEMORY_MIN: usize = 80 * MIB as usize;

/// Requests made on the pump's own thread, without any protocol: benches and tests of the engine under real disks.
pub trait Load: Send + std::any::Any {
    /// The next request to keep the queue full, with the length of the buffer it needs; None when there is none now.
    /// `tag` is to be the request's.
    fn next(&mut self, tag: u64) -> Option<Request>;
    /// Puts the payload of a write into its buffer.
    fn fill(&mut self, request: &Request, bytes: &mut [u8]);
    /// One was answered; a read's content is in `bytes`. False ends the load once all others are answered.
    fn done(&mut self, tag: u64, reply: &Reply, bytes: &[u8]) -> bool;
    /// Requests to keep in flight.
    fn depth(&self) -> usize;
}

impl dyn Load {
    /// To get back what was handed to [`PumpHandle::load`].
    pub fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

/// A running pump. Dropping it stops it in order.
pub struct PumpHandle {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
    opened: Opened,
}

/// What was found when the pool was opened.
#[derive(Clone, Debug, Default)]
struct Opened {
    missing: Vec<DeviceId>,
    forgotten: u64,
    reactor: String,
}

struct Inbox {
    /// None once the pump has ended: whoever asks then hears so at once.
    messages: Mutex<Option<Vec<Message>>>,
    waker: Waker,
}

impl Inbox {
    fn send(&self, message: Message) {
        // A message to nobody is dropped here, and with it the sender that an answer would have come from.
        if let Some(messages) = &mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner) {
            messages.push(message);
        }
        self.waker.wake();
    }
}

/// However the pump ends, a panic included, nobody waits for it for ever.
impl Drop for Pump {
    fn drop(&mut self) {
        let left = self.inbox.messages.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(left);
    }
}

type Look = Box<dyn FnOnce(&Engine) + Send>;

enum Message {
    Control(Command, Sender<Result<Done, ControlError>>),
    Look(Look),
    Adopt(Box<Handover>),
    HangUp(u32),
    Clients(u32, Sender<usize>),
    #[cfg(feature = "fuse")]
    Call(VolumeId, ClientId, crate::fuse::Call),
    Load(Box<dyn Load>, Sender<Box<dyn Load>>),
    Stop,
}

impl PumpHandle {
    /// Opens a pool; what is written in vain is said in one sentence.
    pub fn start(options: Options, disks: Vec<(DeviceId, Disk)>, setup: Setup) -> Result<PumpHandle, String> {
        let (tell, told) = channel();
        let name = match &setup {
            Setup::Create(new) => new.name.clone(),
            Setup::Import(found) => found.first().map(|sb| sb.name.clone()).unwrap_or_default(),
        };
        let thread_name: String = format!("pump-{name}").chars().take(15).collect();
        let run = move || match Pump::open(options, disks, setup) {
            Ok((mut pump, opened)) => {
                let inbox = pump.inbox.clone();
                if tell.send(Ok((inbox, opened))).is_ok() {
                    pump.run();
                }
            }
            Err(reason) => drop(tell.send(Err(reason))),
        };
        let thread = std::thread::Builder::new().name(thread_name).spawn(run);
        let thread = thread.map_err(|e| format!("no thread for pool {name:?}: {e}"))?;
        match told.recv() {
            Ok(Ok((inbox, opened))) => Ok(PumpHandle { inbox, thread: Some(thread), opened }),
            Ok(Err(reason)) => {
                let _ = thread.join();
                Err(reason)
            }
            Err(_) => Err(format!("pool {name:?} could not be opened: its thread ended")),
        }
    }

    fn ask<T>(&self, message: impl FnOnce(Sender<T>) -> Message) -> Result<T, ControlError> {
        let (tell, told) = channel();
        self.inbox.send(message(tell));
        told.recv_timeout(ANSWER_MAX).map_err(|e| match e {
            RecvTimeoutError::Disconnected => ControlError::new(ErrorKind::Io, "the pool has been closed"),
            RecvTimeoutError::Timeout => {
                let text = format!("the pool did not answer within {ANSWER_MAX:?}: does one of its devices hang?");
                ControlError::new(ErrorKind::Busy, text)
            }
        })
    }

    /// Does a command; durable when it returns.
    pub fn control(&self, command: Command) -> Result<Done, ControlError> {
        self.ask(|tell| Message::Control(command, tell))?
    }

    /// What the pool says about itself.
    pub fn report(&self) -> Result<PoolReport, ControlError> {
        self.with_engine(Engine::report)
    }

    /// Runs `look` on the pump's thread with the engine: for whatever has no call of its own.
    pub fn with_engine<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        self.ask(|tell| Message::Look(Box::new(move |engine| drop(tell.send(look(engine))))))
    }

    /// Takes over a negotiated NBD connection.
    pub fn adopt(&self, handover: Handover) {
        self.inbox.send(Message::Adopt(Box::new(handover)));
    }

    /// Where the FUSE share of a volume sends its calls.
    #[cfg(feature = "fuse")]
    pub fn sink(&self, volume: VolumeId) -> Arc<dyn crate::fuse::Sink> {
        /// Mounts count from here, so that none shares its name with a connection.
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1 << 30);
        struct Sink(Arc<Inbox>, VolumeId, ClientId);
        impl crate::fuse::Sink for Sink {
            fn submit(&self, call: crate::fuse::Call) {
                self.0.send(Message::Call(self.1, self.2, call));
            }
        }
        let client = ClientId(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        Arc::new(Sink(self.inbox.clone(), volume, client))
    }

    /// NBD clients of a share.
    pub fn clients(&self, share: u32) -> usize {
        self.ask(|tell| Message::Clients(share, tell)).unwrap_or(0)
    }

    /// Ends the NBD connections of a share: requests in flight are answered, more are not taken.
    pub fn hang_up(&self, share: u32) {
        self.inbox.send(Message::HangUp(share));
    }

    /// Runs requests on the pump's own thread until the load says it is done.
    pub fn load(&self, load: Box<dyn Load>) -> Result<Box<dyn Load>, ControlError> {
        let (tell, told) = channel();
        self.inbox.send(Message::Load(load, tell));
        told.recv().map_err(|_| ControlError::new(ErrorKind::Io, "the pool has been closed"))
    }

    /// Members that were not there when the pool was opened.
    pub fn missing(&self) -> &[DeviceId] {
        &self.opened.missing
    }

    /// Records that a power cut took back, see the core's `Opened::forgotten`.
    pub fn forgotten(&self) -> u64 {
        self.opened.forgotten
    }

    /// `io_uring`, or `threads: ` and what blocked it.
    pub fn reactor(&self) -> &str {
        &self.opened.reactor
    }

    /// Answers what is in flight, writes a checkpoint, closes the disks.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for PumpHandle {
    fn drop(&mut self) {
        self.inbox.send(Message::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a pump ended in a panic; its pool is as after a crash of the process");
        }
    }
}

/// A connection with what only a clock can tell of it.
struct Client {
    connection: Connection,
    watched: (bool, bool),
    /// Bytes in and out when it was last looked at.
    moved: u64,
    silent_since: Clock,
    /// Has answers to send; then it is in [`Pump::answered`].
    answered: bool,
    /// Wants to be read without a socket event; then it is in [`Pump::again`].
    again: bool,
    /// Waits for memory, a place or room; then it is in [`Pump::stalled`].
    stalled: bool,
}

/// A request that came over FUSE.
#[cfg(feature = "fuse")]
struct Due {
    reply: crate::fuse::ReplyHandle,
    request: Request,
}

/// Zeros being written where a device cannot clear by itself.
struct Zeroing {
    id: IoId,
    device: DeviceId,
    at: u64,
    end: u64,
}

struct Running {
    load: Box<dyn Load>,
    tell: Sender<Box<dyn Load>>,
    buffers: Vec<Option<BufId>>,
    idle: Vec<u32>,
    ending: bool,
}

struct Pump {
    engine: Engine,
    // Before `buffers`: commands in flight may be writing to them until the reactor is gone.
    reactor: Reactor,
    buffers: Buffers,
    inbox: Arc<Inbox>,
    started: Clock,
    disks: Vec<Option<DiskId>>,
    on_event: Box<dyn Fn(Event) + Send>,

    clients: Vec<Option<Client>>,
    // Who has something to be done, by id: a turn costs what it has to do, however many clients there are. An id may
    // name nobody any more, or somebody else: the flags of the client decide.
    answered: Vec<u32>,
    again: Vec<u32>,
    /// Those of `again` in the turn under way; kept for its memory.
    hearing: Vec<u32>,
    stalled: Vec<u32>,
    /// How many clients there are.
    present: usize,
    /// FUSE calls that came in this turn.
    called: usize,
    /// Memory came back that no connection gave.
    freed: bool,
    /// Memory may have come back since requests were last found to wait for some.
    refreshed: bool,
    actions: Vec<Action>,
    /// Requests that wait for memory.
    thirsty: VecDeque<Request>,
    #[cfg(feature = "fuse")]
    dues: Vec<Option<Due>>,
    #[cfg(feature = "fuse")]
    dues_free: Vec<u32>,
    #[cfg(feature = "fuse")]
    thirsty_calls: VecDeque<(VolumeId, ClientId, crate::fuse::Call)>,
    loads: Option<Running>,
    commands: HashMap<u64, Sender<Result<Done, ControlError>>>,
    next_command: u64,

    /// Aligned copies of the pool's own records in flight.
    records: HashMap<u32, Vec<AlignedBox>>,
    segs: Vec<Seg>,
    zeroings: Vec<Option<Zeroing>>,
    zeros: Option<AlignedBox>,
    /// Where bytes between two joined reads go.
    waste: AlignedBox,

    last_sweep: Clock,
    stopping: Option<Clock>,
}

impl Pump {
    fn now(&self) -> Instant {
        Instant(self.started.elapsed().as_nanos() as u64)
    }

    /// The clock on the wall may be set at any time; it is told with each command.
    fn tell_time(&mut self, now: Instant) {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        self.engine.handle(now, Input::Clock { unix_s: since.map_or(0, |d| d.as_secs()) });
    }

    fn run(&mut self) {
        let mut events = Vec::new();
        self.tell_time(self.now());
        let mut until = self.drain();
        loop {
            let now = self.now();
            let timeout = match until {
                _ if self.refreshed || !self.again.is_empty() => Some(Duration::ZERO),
                Some(at) => Some(Duration::from_nanos(at.since(now))),
                None => None,
            };
            let bound = if self.stopping.is_some() { Some(Duration::from_millis(50)) } else { self.sweep_timeout() };
            let timeout = match (timeout, bound) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            events.clear();
            self.reactor.wait(&mut events, timeout);
            for event in events.drain(..) {
                match event {
                    reactor::Event::Disk { token, result } => self.disk_event(token, result),
                    reactor::Event::Ready { token, readable, writable, hangup } => {
                        if let Some(client) = self.clients.get_mut(token as usize).and_then(Option::as_mut) {
                            if hangup {
                                client.connection.hung_up();
                            }
                            if readable && !std::mem::replace(&mut client.again, true) {
                                self.again.push(token as u32);
                            }
                            if writable && !std::mem::replace(&mut client.answered, true) {
                                self.answered.push(token as u32);
                            }
                        }
                    }
                    reactor::Event::Woken => {}
                }
            }
            self.open_inbox();
            self.quench();
            let mut most = std::mem::take(&mut self.called);
            let mut hearing = std::mem::replace(&mut self.again, std::mem::take(&mut self.hearing));
            for id in hearing.drain(..) {
                most = most.max(self.hear(id));
            }
            self.hearing = hearing;
            self.reactor.heard(most);
            until = self.drain();
            self.speak();
            self.sweep();
            if self.stopping.is_some() && self.stop_step() {
                return;
            }
        }
    }

    // ---- in -------------------------------------------------------------------------------------------------------

    fn open_inbox(&mut self) {
        let messages = {
            let mut inbox = self.inbox.messages.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.as_mut().map(std::mem::take).unwrap_or_default()
        };
        for message in messages {
            match message {
                Message::Control(command, tell) => {
                    self.next_command += 1;
                    let (now, tag) = (self.now(), self.next_command);
                    self.commands.insert(tag, tell);
                    self.tell_time(now);
                    self.engine.handle(now, Input::Control { tag, command });
                }
                Message::Look(look) => look(&self.engine),
                Message::Adopt(handover) => self.adopt(*handover),
                Message::HangUp(share) => {
                    for client in self.clients.iter_mut().flatten().filter(|c| c.connection.share() == share) {
                        client.connection.drain(&mut self.buffers);
                        self.answered.push(client.connection.id());
                    }
                }
                Message::Clients(share, tell) => {
                    let clients = self.clients.iter().flatten();
                    let _ = tell.send(clients.filter(|c| c.connection.share() == share).count());
                }
                #[cfg(feature = "fuse")]
                Message::Call(volume, client, call) => {
                    self.called += 1;
                    self.thirsty_calls.push_back((volume, client, call));
                }
                Message::Load(load, tell) => {
                    let depth = load.depth();
                    self.reactor.heard(depth);
                    let idle = (0..depth as u32).rev().collect();
                    self.loads = Some(Running { load, tell, buffers: vec![None; depth], idle, ending: false });
                    self.feed_load();
                }
                Message::Stop => {
                    self.stopping.get_or_insert_with(Clock::now);
                    for client in self.clients.iter_mut().flatten() {
                        client.connection.drain(&mut self.buffers);
                        self.answered.push(client.connection.id());
                    }
                }
            }
        }
    }

    fn adopt(&mut self, handover: Handover) {
        let place = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if place == self.clients.len() {
            self.clients.push(None);
        }
        let Handover { stream, session, leftover, .. } = handover;
        let mut connection = Connection::new(place as u32, stream, session, leftover);
        if self.stopping.is_some() {
            connection.drain(&mut self.buffers);
        }
        if !self.reactor.watch(connection.fd(), place as u64, true, false) {
            tracing::warn!("an NBD client was sent away: its socket cannot be watched (out of memory?)");
            connection.kill(&mut self.buffers);
        }
        self.present += 1;
        self.again.push(place as u32);
        self.clients[place] = Some(Client {
            connection,
            watched: (true, false),
            moved: 0,
            silent_since: Clock::now(),
            answered: false,
            again: true,
            stalled: false,
        });
    }

    /// Reads what a client has to say; how many requests it had.
    fn hear(&mut self, id: u32) -> usize {
        let Some(client) = self.clients[id as usize].as_mut().filter(|c| c.again) else { return 0 };
        let mut actions = std::mem::take(&mut self.actions);
        let status = client.connection.readable(&mut self.buffers, &mut actions);
        client.again = status == Status::More;
        if client.again {
            self.again.push(id);
        }
        // One that is stalled is heard again when something was answered, not before: see `speak`.
        if status == Status::Stalled && !std::mem::replace(&mut client.stalled, true) {
            self.stalled.push(id);
        }
        if status == Status::Closed || client.connection.wants_write() {
            self.answered.push(id);
        }
        let count = actions.len();
        for action in actions.drain(..) {
            match action {
                Action::Submit(request) => self.submit(request),
                Action::BlockStatus { tag, volume, offset, len, one } => {
                    let extents = self.block_status(volume, offset, len, if one { 1 } else { EXTENTS_MAX });
                    if let Some(client) = self.clients[id as usize].as_mut() {
                        client.connection.block_status(tag, &extents);
                    }
                    self.answered.push(id);
                }
            }
        }
        self.actions = actions;
        count
    }

    fn submit(&mut self, request: Request) {
        // A read is about to touch memory that nobody has counted yet.
        let large = request.op == Op::Read && request.len as usize > SLAB_MAX;
        if large && (!self.thirsty.is_empty() || !self.touch(&request)) {
            self.thirsty.push_back(request);
            return;
        }
        let now = self.now();
        self.engine.handle(now, Input::Submit(request));
    }

    fn touch(&mut self, request: &Request) -> bool {
        let len = request.len + request.offset % BLOCK;
        self.buffers.touched(request.buf, len as usize)
    }

    /// Memory may have come back: who waited for some goes on.
    fn quench(&mut self) {
        self.refreshed = false;
        while let Some(request) = self.thirsty.front().copied()
            && self.touch(&request)
        {
            self.thirsty.pop_front();
            let now = self.now();
            self.engine.handle(now, Input::Submit(request));
        }
        #[cfg(feature = "fuse")]
        while let Some((volume, client, call)) = self.thirsty_calls.pop_front() {
            if let Some(call) = self.call(volume, client, call) {
                self.thirsty_calls.push_front((volume, client, call));
                break;
            }
        }
    }

    /// A request over FUSE; given back when there is no memory for it now.
    #[cfg(feature = "fuse")]
    fn call(&mut self, volume: VolumeId, client: ClientId, call: crate::fuse::Call) -> Option<crate::fuse::Call> {
        let crate::fuse::Call { op, offset, len, pid, data, reply } = call;
        // The process is the client where the kernel names it; else the mount is.
        let reader = if pid == 0 { client } else { ClientId(pid) };
        let buf = match (op, data) {
            (Op::Read, data) => {
                let envelope = (offset % BLOCK + len).next_multiple_of(BLOCK) as usize;
                match self.buffers.alloc(envelope) {
                    Some(buf) if self.buffers.touched(buf, envelope) => buf,
                    Some(buf) => {
                        self.buffers.free(buf);
                        return Some(crate::fuse::Call { op, offset, len, pid, data, reply });
                    }
                    None => return Some(crate::fuse::Call { op, offset, len, pid, data, reply }),
                }
            }
            (_, Some(data)) => self.buffers.adopt(data),
            (_, None) => NO_BUF,
        };
        let slot = self.dues_free.pop().unwrap_or_else(|| {
            self.dues.push(None);
            (self.dues.len() - 1) as u32
        });
        let tag = u64::from(FUSE) << 32 | u64::from(slot);
        let request =
            Request { tag, client: reader, volume, op, offset, len, buf, content: Content::Unsaid, no_merge: false };
        self.dues[slot as usize] = Some(Due { reply, request });
        let now = self.now();
        self.engine.handle(now, Input::Submit(request));
        None
    }

    fn block_status(&self, volume: VolumeId, offset: u64, len: u64, limit: usize) -> Vec<(u64, u32)> {
        let Some(volume) = self.engine.pool().volume(volume) else { return Vec::new() };
        let (mut at, end) = (offset / BLOCK * BLOCK, offset.saturating_add(len));
        let mut extents: Vec<(u64, u32)> = Vec::new();
        while at < end && extents.len() < limit {
            let extent = volume.map.first(at, (end - at).next_multiple_of(BLOCK));
            let flags = if matches!(extent, Extent::Hole { .. }) { state::HOLE | state::ZERO } else { 0 };
            let (from, to) = (at.max(offset), (at + extent.len()).min(end));
            match extents.last_mut() {
                Some(last) if last.1 == flags => last.0 += to - from,
                _ => extents.push((to - from, flags)),
            }
            at += extent.len();
        }
        extents
    }

    /// True when there was something to feed.
    fn feed_load(&mut self) -> bool {
        let Some(mut running) = self.loads.take() else { return false };
        let now = self.now();
        let mut fed = false;
        while !running.ending
            && let Some(slot) = running.idle.pop()
        {
            let Some(mut request) = running.load.next(u64::from(LOAD) << 32 | u64::from(slot)) else {
                running.idle.push(slot);
                break;
            };
            if matches!(request.op, Op::Read | Op::Write { .. }) {
                let envelope = (request.offset % BLOCK + request.len).next_multiple_of(BLOCK) as usize;
                let buf = running.buffers[slot as usize].take();
                let buf = match buf {
                    Some(buf) if self.buffers.bytes(buf).len() >= envelope => Some(buf),
                    Some(small) => {
                        self.buffers.free(small);
                        self.buffers.alloc(envelope)
                    }
                    None => self.buffers.alloc(envelope),
                };
                let Some(buf) = buf else {
                    running.ending = true;
                    break;
                };
                running.buffers[slot as usize] = Some(buf);
                request.buf = buf;
                if matches!(request.op, Op::Write { .. }) {
                    let skew = (request.offset % BLOCK) as usize;
                    running.load.fill(&request, &mut self.buffers.bytes_mut(buf)[skew..]);
                }
            }
            self.engine.handle(now, Input::Submit(request));
            fed = true;
        }
        self.loads = Some(running);
        self.end_load();
        fed
    }

    fn end_load(&mut self) {
        if self.loads.as_ref().is_some_and(|r| r.ending && r.idle.len() == r.buffers.len()) {
            let running = self.loads.take().expect("just seen");
            for buf in running.buffers.into_iter().flatten() {
                self.buffers.free(buf);
                self.freed = true;
            }
            let _ = running.tell.send(running.load);
        }
    }

    // ---- out ------------------------------------------------------------------------------------------------------

    /// Carries out what the engine wants; when it wants to be asked again.
    fn drain(&mut self) -> Option<Instant> {
        let now = self.now();
        loop {
            match self.engine.poll(now) {
                Output::Issue(dispatch) => self.issue(dispatch),
                Output::Copy(copy) => self.copy(copy),
                Output::Compare { tag, a, b } => {
                    let equal = self.buffers.equal(a, b).expect("the engine names buffers that it was given");
                    self.engine.handle(now, Input::Compared { tag, equal });
                }
                Output::Reply(reply) => self.reply(reply),
                Output::Done { tag, result } => {
                    if let Some(tell) = self.commands.remove(&tag) {
                        let _ = tell.send(result);
                    }
                }
                Output::Event(event) => (self.on_event)(event),
                Output::Idle { until } => {
                    if !self.feed_load() {
                        return until;
                    }
                }
            }
        }
    }

    fn issue(&mut self, dispatch: Dispatch) {
        let Dispatch { id, device, op, offset, len } = dispatch;
        let Some(disk) = self.disks.get(device.index()).copied().flatten() else {
            let now = self.now();
            self.engine.handle(now, Input::Complete { id, result: Err(IoError::Gone) });
            return;
        };
        let mut segs = std::mem::take(&mut self.segs);
        let mut records = Vec::new();
        for segment in self.engine.segments(id) {
            let seg = match segment {
                Segment::Payload(range) => {
                    let (ptr, len) = self.buffers.raw(range).expect("the engine names buffers that it was given");
                    Seg { ptr, len }
                }
                Segment::Record(bytes) => {
                    // Records live anywhere on the heap; a disk wants them aligned.
                    let mut copy = AlignedBox::copy_of(bytes);
                    let ptr = copy.as_mut_ptr();
                    records.push(copy);
                    Seg { ptr, len: bytes.len() }
                }
                Segment::Gap(len) => {
                    // All gaps land in one place: nobody looks at it.
                    let (ptr, whole) = (self.waste.as_mut_ptr(), WASTE as u64);
                    segs.extend((0..len / whole).map(|_| Seg { ptr, len: WASTE }));
                    Seg { ptr, len: (len % whole) as usize }
                }
            };
            segs.push(seg);
        }
        if !records.is_empty() {
            self.records.insert(id.0, records);
        }
        // SAFETY: buffers belong to their request until it is answered, records until the dispatch completes.
        unsafe { self.reactor.submit(disk, u64::from(id.0), op, offset, len, &segs) };
        segs.clear();
        self.segs = segs;
        if op == DeviceOp::WriteZeroes {
            self.zeroings.resize_with(self.zeroings.len().max(id.index() + 1), || None);
            self.zeroings[id.index()] = Some(Zeroing { id, device, at: offset, end: offset + len });
        }
    }

    fn disk_event(&mut self, token: u64, result: Result<(), IoError>) {
        match token & ZEROING {
            0 => self.completed(IoId(token as u32), result),
            _ => self.zeroed(token, result),
        }
    }

    fn completed(&mut self, id: IoId, result: Result<(), IoError>) {
        self.records.remove(&id.0);
        if let Some(zeroing) = self.zeroings.get_mut(id.index())
            && zeroing.is_some()
        {
            if result == Err(IoError::Unsupported) {
                return self.write_zeros(id);
            }
            *zeroing = None;
        }
        let now = self.now();
        self.engine.handle(now, Input::Complete { id, result });
    }

    /// The device cannot clear by itself: the next piece of zeros is written.
    fn write_zeros(&mut self, id: IoId) {
        let zeros = self.zeros.get_or_insert_with(|| AlignedBox::zeroed(ZEROS));
        let Some(zeroing) = self.zeroings[id.index()].as_ref() else { return };
        let (at, len) = (zeroing.at, (zeroing.end - zeroing.at).min(ZEROS as u64));
        let Some(disk) = self.disks.get(zeroing.device.index()).copied().flatten() else { return };
        let seg = [Seg { ptr: zeros.as_mut_ptr(), len: len as usize }];
        let op = DeviceOp::Write { fua: false };
        // SAFETY: the zeros live as long as the pump and are never written to.
        unsafe { self.reactor.submit(disk, ZEROING | u64::from(id.0), op, at, len, &seg) };
    }

    fn zeroed(&mut self, token: u64, result: Result<(), IoError>) {
        let id = IoId((token & !ZEROING) as u32);
        let Some(zeroing) = self.zeroings.get_mut(id.index()).and_then(Option::as_mut) else { return };
        zeroing.at = (zeroing.at + ZEROS as u64).min(zeroing.end);
        if result.is_ok() && zeroing.at < zeroing.end {
            return self.write_zeros(id);
        }
        let id = zeroing.id;
        self.zeroings[id.index()] = None;
        let now = self.now();
        self.engine.handle(now, Input::Complete { id, result });
    }

    fn copy(&mut self, copy: Copy) {
        let fine = match copy {
            Copy::Zero(range) => self.buffers.zero(range),
            Copy::Move { from, to } => self.buffers.copy(from, to),
            Copy::Scratch { buf, len } => {
                self.buffers.insert_scratch(buf, len as usize);
                true
            }
            Copy::Drop(id) => {
                self.buffers.free(id);
                true
            }
        };
        assert!(fine, "the engine names buffers that it was given: {copy:?}");
    }

    fn reply(&mut self, reply: Reply) {
        match tag_connection(reply.tag) {
            #[cfg(feature = "fuse")]
            FUSE => self.reply_fuse(reply),
            LOAD => {
                let Some(running) = &mut self.loads else { return };
                let slot = reply.tag as u32;
                let bytes = match running.buffers[slot as usize] {
                    Some(buf) => self.buffers.bytes(buf),
                    None => &[],
                };
                running.ending |= !running.load.done(reply.tag, &reply, bytes);
                running.idle.push(slot);
                self.end_load();
            }
            id => {
                if let Some(client) = self.clients.get_mut(id as usize).and_then(Option::as_mut) {
                    client.connection.reply(&reply, &mut self.buffers);
                    if client.connection.is_laden() {
                        client.connection.flush(&mut self.buffers);
                    }
                    if !std::mem::replace(&mut client.answered, true) {
                        self.answered.push(id);
                    }
                }
            }
        }
    }

    #[cfg(feature = "fuse")]
    fn reply_fuse(&mut self, reply: Reply) {
        let slot = reply.tag as u32;
        let Some(Due { reply: handle, request }) = self.dues.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        self.dues_free.push(slot);
        match reply.result {
            Err(error) => handle.fail(error),
            Ok(()) if request.op == Op::Read => {
                let skew = (request.offset % BLOCK) as usize;
                handle.data(&self.buffers.bytes(request.buf)[skew..skew + request.len as usize]);
            }
            Ok(()) => handle.ok(),
        }
        if request.buf != NO_BUF {
            self.freed = true;
            // What was adopted goes back as it came; what was allocated goes back to the arena.
            if self.buffers.take(request.buf).is_none() {
                self.buffers.free(request.buf);
            }
        }
    }

    /// Every connection with answers sends them, many in one call.
    fn speak(&mut self) {
        let mut answered = std::mem::take(&mut self.answered);
        let moved = std::mem::take(&mut self.freed) || !answered.is_empty();
        for id in answered.drain(..) {
            let Some(client) = self.clients.get_mut(id as usize).and_then(Option::as_mut) else { continue };
            client.answered = false;
            client.connection.flush(&mut self.buffers);
            let wanted = (true, client.connection.wants_write());
            if wanted != client.watched && !client.connection.closed() {
                client.watched = wanted;
                if !self.reactor.watch(client.connection.fd(), u64::from(id), wanted.0, wanted.1) {
                    tracing::warn!("an NBD client was sent away: its socket cannot be watched (out of memory?)");
                    client.connection.kill(&mut self.buffers);
                }
            }
            if client.connection.closed() {
                self.reactor.unwatch(client.connection.fd());
                self.clients[id as usize] = None;
                self.present -= 1;
            }
        }
        self.answered = answered;
        if moved {
            // Places and memory may have come back, to anyone who waits for some.
            self.rouse();
            self.refreshed = self.is_thirsty();
        }
    }

    /// Everyone who waits for memory, a place or room is heard again.
    fn rouse(&mut self) {
        for id in self.stalled.drain(..) {
            let Some(client) = self.clients[id as usize].as_mut().filter(|c| c.stalled) else { continue };
            client.stalled = false;
            if client.connection.stalled() && !std::mem::replace(&mut client.again, true) {
                self.again.push(id);
            }
        }
    }

    /// Requests wait for memory.
    fn is_thirsty(&self) -> bool {
        #[cfg(feature = "fuse")]
        if !self.thirsty_calls.is_empty() {
            return true;
        }
        !self.thirsty.is_empty()
    }

    fn sweep_timeout(&self) -> Option<Duration> {
        (self.present > 0).then_some(SWEEP)
    }

    /// A client that began something and says nothing more holds memory that others could use.
    fn sweep(&mut self) {
        let now = Clock::now();
        if now.duration_since(self.last_sweep) < SWEEP {
            return;
        }
        self.last_sweep = now;
        for client in self.clients.iter_mut().flatten() {
            let moved = client.connection.moved();
            // What is stalled waits for us, not for the client.
            let owes = client.connection.mid_request() && !client.connection.stalled();
            if !(owes || client.connection.wants_write()) || moved != client.moved {
                (client.moved, client.silent_since) = (moved, now);
            } else if now.duration_since(client.silent_since) > SILENCE_MAX {
                tracing::info!("an NBD client said nothing for {SILENCE_MAX:?} in the middle of a request");
                client.connection.kill(&mut self.buffers);
                self.answered.push(client.connection.id());
            }
        }
        // Nobody who waits for us is forgotten, whatever else was.
        self.rouse();
    }

    /// Everything answered, then a checkpoint, then the end. True when there is nothing left to do.
    fn stop_step(&mut self) -> bool {
        let since = self.stopping.expect("only while stopping");
        let patient = since.elapsed() < STOP_PATIENCE;
        if (self.engine.in_flight() > 0 || self.present > 0) && patient {
            return false;
        }
        let (tell, told) = channel();
        let now = self.now();
        self.commands.insert(0, tell);
        self.engine.handle(now, Input::Control { tag: 0, command: Command::Close });
        let mut events = Vec::new();
        self.drain();
        while since.elapsed() < 2 * STOP_PATIENCE && !self.engine.is_quiet() {
            events.clear();
            self.reactor.wait(&mut events, Some(Duration::from_millis(50)));
            for event in events.drain(..) {
                if let reactor::Event::Disk { token, result } = event {
                    self.disk_event(token, result);
                }
            }
            self.drain();
        }
        if !matches!(told.try_recv(), Ok(Ok(_))) {
            tracing::warn!("the last checkpoint was not written; the pool will be read back from its log");
        }
        true
    }
}
