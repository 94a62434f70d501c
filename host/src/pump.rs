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

#[cfg(feature = "fuse")]
mod calls;
mod clients;
mod combine;
mod disks;
mod door;
mod handle;
mod inbox;
mod load;
mod members;
mod memory;
mod open;
mod page;
mod resume;
mod stop;

pub use door::{Noted, Taken};
pub use handle::PumpHandle;
pub use load::Load;
pub use members::Joins;
pub use open::superblock_of;
pub use resume::{Resume, Resumed};

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use braid_core::meta::format::NewPool;
use braid_core::meta::superblock::{self, Superblock};
use braid_core::request::{Event, Input, Output, Reply, Request};
use braid_core::units::{DeviceId, Instant, MIB, Uuid};

#[cfg(feature = "fuse")]
use self::calls::{Due, FUSE};
use self::clients::Client;
use self::disks::Zeroing;
use self::door::Door;
#[cfg(feature = "fuse")]
use self::inbox::Addressed;
use self::inbox::Inbox;
use self::load::{LOAD, Running};
use self::stop::STOP_TURN;
use crate::aligned::AlignedBox;
use crate::buffers::Buffers;
use crate::nbd::Action;
use crate::nbd::connection::tag_connection;
use crate::reactor::{Choice, DiskId, Event as Happening, Reactor, Seg};

/// Registered payload memory: enough for 1,024 requests of 64 KiB.
const ARENA: usize = 64 * MIB as usize;

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
    /// What a pool may be opened without.
    pub without: Without,
    /// Everything that comes into the engine is recorded, from its opening on, in a file of at most so many bytes: for
    /// a replay in the laboratory.
    pub flight: Option<(std::path::PathBuf, u64)>,
    /// Called on the pump's thread; must not block.
    pub on_event: Box<dyn Fn(Event) + Send>,
}

/// What a pool may be opened without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// Nothing: all members have to be there.
    Nothing,
    /// Members that the pool was in use without, as the others say: that was decided, and what they missed is noted.
    Away,
    /// Absent members that the rest can do without: they are caught up when they return.
    Absent,
    /// Also a side that went its own way: what only that one has is given up.
    Apart,
}

/// Smallest payload memory: the largest NBD request with unaligned ends, twice.
pub const MEMORY_MIN: usize = 80 * MIB as usize;

struct Pump {
    engine: Door,
    // Before `buffers`: commands in flight may be writing to them until the reactor is gone.
    reactor: Reactor,
    buffers: Buffers,
    inbox: Arc<Inbox>,
    started: Clock,
    boot: Uuid,
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
    thirsty_calls: VecDeque<Addressed>,
    loads: Option<Running>,
    commands: HashMap<u64, members::Tell>,
    /// Commands that add a member, and its id.
    joining: HashMap<u64, DeviceId>,
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
    fn run(&mut self) {
        let mut events = Vec::new();
        self.tell_time(self.now());
        let mut until = self.drain();
        loop {
            events.clear();
            self.reactor.wait(&mut events, self.timeout(until));
            events.drain(..).for_each(|event| self.event(event));
            self.open_inbox();
            self.quench();
            let called = std::mem::take(&mut self.called);
            let most = called.max(self.hear_all());
            self.reactor.heard(most);
            until = self.drain();
            self.speak();
            self.sweep();
            if self.stopping.is_some() && self.stop_step() {
                return;
            }
        }
    }

    /// Something happened at a disk or a socket.
    fn event(&mut self, event: Happening) {
        match event {
            Happening::Disk { token, result } => self.disk_event(token, result),
            Happening::Ready { token, readable, writable, hangup } => {
                self.ready(token as u32, readable, writable, hangup);
            }
            Happening::Woken => {}
        }
    }

    /// How long to wait for something to happen; `until` is when the engine wants to be asked again.
    fn timeout(&self, until: Option<Instant>) -> Option<Duration> {
        if self.refreshed || !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let engine = until.map(|at| Duration::from_nanos(at.since(self.now())));
        let bound = if self.stopping.is_some() { Some(STOP_TURN) } else { self.sweep_timeout() };
        match (engine, bound) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Carries out what the engine wants; when it wants to be asked again.
    fn drain(&mut self) -> Option<Instant> {
        let now = self.now();
        loop {
            match self.engine.poll(now) {
                Output::Issue(dispatch) => self.issue(dispatch),
                Output::Copy(copy) => self.copy(copy),
                Output::Combine(work) => self.combine(&work),
                Output::Digest { tag, data } => {
                    let crc = combine::digest(&self.buffers, &data);
                    self.engine.handle(now, Input::Digested { tag, crc });
                }
                Output::Superblock { tag, slot, pool, device } => {
                    let bytes = self.buffers.range(slot).expect("the engine names buffers that it was given");
                    let generation = superblock::generation(bytes, pool, device);
                    self.engine.handle(now, Input::Superblock { tag, generation });
                }
                Output::Compare { tag, a, b } => {
                    let equal = self.buffers.equal(a, b).expect("the engine names buffers that it was given");
                    self.engine.handle(now, Input::Compared { tag, equal });
                }
                Output::Page(work) => {
                    if let Some(answer) = self.page_work(work) {
                        self.engine.handle(now, answer);
                    }
                }
                Output::Reply(reply) => self.reply(reply),
                Output::Done { tag, result } => {
                    self.member_answered(tag, result.is_ok());
                    if let Some(tell) = self.commands.remove(&tag) {
                        let _ = tell.send(result);
                    }
                }
                Output::Event(event) => {
                    if let Event::DeviceRemoved { device, .. } = event {
                        self.close_member(device);
                    }
                    (self.on_event)(event);
                }
                Output::Idle { until } => {
                    if !self.feed_load() {
                        return until;
                    }
                }
            }
        }
    }

    fn reply(&mut self, reply: Reply) {
        match tag_connection(reply.tag) {
            #[cfg(feature = "fuse")]
            FUSE => self.reply_call(reply),
            LOAD => self.reply_load(&reply),
            id => self.reply_client(id, &reply),
        }
    }

    fn now(&self) -> Instant {
        Instant(self.started.elapsed().as_nanos() as u64)
    }

    /// The clock on the wall may be set at any time; it is told with each command.
    fn tell_time(&mut self, now: Instant) {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        self.engine.handle(now, Input::Clock { unix_s: since.map_or(0, |d| d.as_secs()) });
    }
}
