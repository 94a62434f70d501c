//! The world around one engine: clock, event heap, memory, disks, and everything that is checked on the way.
//!
//! What is checked, and what none of it sees, is listed in [`Checker`](crate::checker::Checker).

mod bare;
mod check;
mod client;
mod commands;
mod copies;
mod door;
mod life;
mod members;
mod misdirect;
mod quiet;
mod time;

pub use bare::Load;
pub use client::Answer;
pub use life::{Crash, Shape};

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use braid_core::control::{ControlError, Done};
use braid_core::request::{Dispatch, Event, Input, Request};
use braid_core::units::{ChunkId, VolumeId};
use braid_core::{Engine, Slip};

use crate::crash::tape::Tape;
use crate::disk::{Content, Disk, Records};
use crate::fault::{Faults, Strike};
use crate::oracle::Oracle;
use crate::pages::Pages;
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::watch::{Sent, Watch};

/// A command on its way.
#[derive(Clone)]
struct Running {
    dispatch: Dispatch,
    /// As its watch knows it, while one watches.
    sent: Option<Sent>,
    content: Content,
    /// When a flush arrived.
    mark: u64,
    strike: Option<Strike>,
}

/// A client's request on its way.
#[derive(Clone, Debug)]
struct Asked {
    request: Request,
    op: u64,
    mark: u64,
}

/// A write that a block of a device missed, and a client believes written.
#[derive(Clone, Copy)]
struct Missed {
    /// The last request when it was answered.
    since: u64,
    /// And when that was.
    at: u64,
    volume: VolumeId,
    /// Its first byte in the volume.
    block: u64,
}

/// See the module. A copy goes on as the one that it was taken of.
#[derive(Clone)]
pub struct World {
    /// The engine, unless it is down.
    pub engine: Option<Engine>,
    /// Disks; device `i + 1` is disk `i`.
    pub disks: Vec<Disk>,
    /// Troubles in force.
    pub faults: Faults,
    /// The longest read that an opening asked for so far, in bytes.
    pub read_max: u64,
    /// What the last opening said of members that went their own way; it went on without them, as with `-f`.
    pub gives_up: Option<String>,
    /// Dice of the world (not of the workload).
    pub rng: Rng,
    /// The model.
    pub oracle: Oracle,
    /// Events since the last look.
    pub events: Vec<Event>,
    /// Answers since the last look.
    pub answers: Vec<Answer>,
    /// Answers to commands since the last look.
    pub done: Vec<(u64, Result<Done, ControlError>)>,
    /// Device commands since the last look.
    pub dispatched: Vec<Dispatch>,
    /// Whether `dispatched` is kept.
    pub keep_dispatched: bool,
    /// Commands take what the model says to the ns, and each completion is a batch of its own.
    pub exact: bool,
    /// Requests that ask not to be merged, in a hundred.
    pub no_merge: u64,
    /// Payload is kept and everything is checked; without, see [`World::without_payload`].
    keeps_payload: bool,
    /// Commands take no time.
    pub instant: bool,
    /// What each device had to do.
    pub loads: Vec<Load>,
    /// Reads that were compared with their checksums on arrival, and questions that had to wait for a page, or for a second
    /// look.
    pub compared: (u64, u64),
    /// More members have faults than the profile does without: what a write cache loses with a flush that fails may be lost.
    pub may_lose_caches: bool,
    /// A mistake made on purpose.
    pub sabotage: Option<Sabotage>,
    /// A mistake that the engine itself makes on purpose.
    pub slip: Option<Slip>,
    /// What reaches the disks is recorded, for cuts at any moment of it.
    pub(crate) tape: Option<Box<Tape>>,
    /// A number that two equal runs share at every moment.
    pub hash: u64,
    /// Events handled.
    pub steps: u64,
    /// Complaints of the oracle and the checkers: empty, or the run is a failure.
    pub wrong: Vec<String>,
    now: u64,
    /// When to look at which disk. An entry counts if the disk says the same, and the first one always does.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    order: u64,
    /// Completions of stuck devices: when to try again, and whose.
    held: Vec<(u64, u32)>,
    running: BTreeMap<u32, Running>,
    watches: Vec<Watch>,
    /// Outputs since the last rest, and ticks in vain.
    outputs: u64,
    idle_ticks: u32,
    buffers: BTreeMap<u32, Vec<u64>>,
    scratch: BTreeSet<u32>,
    /// What of it is records.
    records: Records,
    /// Pages of checksums.
    pages: Pages,
    asked: BTreeMap<u64, Asked>,
    next_tag: u64,
    wake: Option<u64>,
    boot: u8,
    /// Blocks of devices whose last write failed, and those of them that the client believes written.
    failed: BTreeSet<(u32, u64)>,
    stale: BTreeMap<(u32, u64), Missed>,
    /// Blocks of the engine's own memory that were read from such a place: they may be looked at, not used.
    outdated: BTreeSet<(u32, u64)>,
    /// Blocks of devices that a misdirected write left wrong, once.
    spoilt: BTreeSet<(u32, u64)>,
    /// When bits of these changed, by device and block.
    flipped: BTreeMap<(u32, u64), u64>,
    /// Those of them that nobody has written since.
    spoilt_still: BTreeSet<(u32, u64)>,
    /// Rows of parity with such a block: chunk, row, block of the strips.
    spoilt_rows: BTreeSet<(ChunkId, u32, u64)>,
    /// When a device lost its cache with a flush, for the last time.
    cache_lost: BTreeMap<u32, u64>,
    /// Generations that this run wrote to slots of superblocks, as the disks say.
    superblocks_written: BTreeMap<(u32, u64), u64>,
    batch: Vec<Input>,
}

impl World {
    /// A world without a pool.
    pub fn new(seed: u64) -> World {
        World {
            engine: None,
            disks: Vec::new(),
            faults: Faults::default(),
            gives_up: None,
            read_max: 0,
            rng: Rng::new(seed),
            oracle: Oracle::default(),
            events: Vec::new(),
            answers: Vec::new(),
            done: Vec::new(),
            dispatched: Vec::new(),
            keep_dispatched: false,
            exact: false,
            no_merge: 0,
            keeps_payload: true,
            instant: false,
            loads: Vec::new(),
            compared: (0, 0),
            may_lose_caches: false,
            sabotage: None,
            slip: None,
            tape: None,
            hash: 0,
            steps: 0,
            wrong: Vec::new(),
            now: 0,
            heap: BinaryHeap::new(),
            order: 0,
            held: Vec::new(),
            running: BTreeMap::new(),
            watches: Vec::new(),
            outputs: 0,
            idle_ticks: 0,
            buffers: BTreeMap::new(),
            scratch: BTreeSet::new(),
            records: Records::default(),
            pages: Pages::default(),
            asked: BTreeMap::new(),
            next_tag: 1,
            wake: None,
            boot: 1,
            failed: BTreeSet::new(),
            stale: BTreeMap::new(),
            outdated: BTreeSet::new(),
            spoilt: BTreeSet::new(),
            flipped: BTreeMap::new(),
            spoilt_still: BTreeSet::new(),
            spoilt_rows: BTreeSet::new(),
            cache_lost: BTreeMap::new(),
            superblocks_written: BTreeMap::new(),
            batch: Vec::new(),
        }
    }

    /// The clock, in ns.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The engine; panics while it is down.
    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the engine is up")
    }
}

fn mix(hash: &mut u64, n: u64) {
    *hash = (*hash ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
}
