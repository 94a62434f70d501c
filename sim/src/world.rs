//! The world around one engine: clock, event heap, memory, disks, and everything that is checked on the way.
//!
//! Checked at each command: it lies within the device; below 1 MiB only superblocks; payload only within one chunk
//! of data or metadata, records only in system chunks; no two writes under way overlap on a device; no command to a
//! member that is not online; who asked not to be merged travels alone; its memory is there until it completes and
//! unchanged; and what the member's queue allows, by the [watch](crate::watch).
//! Checked of answers: one to each request, none to others; what was read, by the [oracle](crate::oracle).
//! Checked when the engine rests: it wants to be woken later than now, or the next tick does something.
//! Checked when all is quiet: no request, no I/O, no scratch block, no deadline; units counted in volumes and chunks.
//!
//! Not seen: reads that race with writes on a device (they may return either), what a command would have cost a real
//! disk, and how long anything waits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use braid_core::chunk::Column;
use braid_core::control::{Command, ControlError, Done, VolumeClass};
use braid_core::device::RESERVED;
use braid_core::meta::assembly::{Assembly, Step};
use braid_core::meta::format::{self, NewDevice, NewPool};
use braid_core::meta::superblock::{self, SLOTS, SUPERBLOCK_SIZE};
use braid_core::profile::slice;
use braid_core::queue::config::Config;
use braid_core::request::{
    Content as Tag, Copy, DeviceOp, Dispatch, Event, Input, IoError, NO_BUF, Op, Output, Request, RequestError,
    ScrubCopy, Segment,
};
use braid_core::units::{BLOCK, BufId, BufRange, ChunkId, ClientId, DeviceId, Instant, IoId, UNIT, Uuid, VolumeId};
use braid_core::volume::Extent;
use braid_core::{ChunkType, DeviceState, Engine, Profile};

use crate::disk::{Content, Disk, Model, SECTOR};
use crate::fault::Faults;
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::watch::{Sent, Watch};

pub use bare::Load;

mod bare;

/// How a run ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process dies: disks keep what arrived, and what was on its way arrived wholly, in part or not at all.
    Process,
    /// The power goes: what no flush covered may be lost as well.
    Power,
}

/// A command on its way.
struct Running {
    dispatch: Dispatch,
    /// As its watch knows it, while one watches.
    sent: Option<Sent>,
    content: Content,
    /// When a flush arrived.
    mark: u64,
    fails: Option<IoError>,
}

/// A client's request on its way.
#[derive(Clone, Debug)]
struct Asked {
    request: Request,
    op: u64,
    mark: u64,
}

/// Answers of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The tag of the request.
    pub tag: u64,
    /// The reply.
    pub result: Result<(), RequestError>,
    /// For reads.
    pub hole: bool,
}

/// A device of a new pool.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// How it behaves.
    pub model: Model,
    /// Label.
    pub class: &'static str,
}

/// See the module.
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
    pub apart: Option<String>,
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
    /// A number that two equal runs share at every moment.
    pub hash: u64,
    /// Events handled.
    pub steps: u64,
    /// Complaints of the oracle and the checkers: empty, or the run is a failure.
    pub wrong: Vec<String>,
    now: u64,
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    order: u64,
    running: BTreeMap<u32, Running>,
    watches: Vec<Watch>,
    /// Outputs since the last rest, and ticks in vain.
    outputs: u64,
    idle_ticks: u32,
    buffers: BTreeMap<u32, Vec<u64>>,
    scratch: BTreeSet<u32>,
    asked: BTreeMap<u64, Asked>,
    next_tag: u64,
    wake: Option<u64>,
    boot: u8,
    batch: Vec<Input>,
}

fn mix(hash: &mut u64, n: u64) {
    *hash = (*hash ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
}

impl World {
    /// A world without a pool.
    pub fn new(seed: u64) -> World {
        World {
            engine: None,
            disks: Vec::new(),
            faults: Faults::default(),
            apart: None,
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
            hash: 0,
            steps: 0,
            wrong: Vec::new(),
            now: 0,
            heap: BinaryHeap::new(),
            order: 0,
            running: BTreeMap::new(),
            watches: Vec::new(),
            outputs: 0,
            idle_ticks: 0,
            buffers: BTreeMap::new(),
            scratch: BTreeSet::new(),
            asked: BTreeMap::new(),
            next_tag: 1,
            wake: None,
            boot: 1,
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

    /// A world with a pool that is open; panics with the reason why not.
    pub fn with_pool(seed: u64, shapes: &[Shape], data: Profile, metadata: Profile, set: &[(&str, &str)]) -> World {
        let mut world = World::new(seed);
        world.create(shapes, data, metadata, set).expect("the pool can be made");
        world.open().expect("a new pool opens");
        world
    }

    /// Makes a pool on fresh disks.
    pub fn create(
        &mut self,
        shapes: &[Shape],
        data: Profile,
        metadata: Profile,
        set: &[(&str, &str)],
    ) -> Result<(), ControlError> {
        let devices = shapes.iter().enumerate().map(|(i, s)| NewDevice {
            uuid: Uuid([i as u8 + 1; 16]),
            path: format!("disk{i}"),
            size: s.size,
            class: braid_core::DeviceClass::parse(s.class).expect("a class"),
            rotational: s.model.seek_ns != 0,
            tiers: None,
            hint: Default::default(),
        });
        let new = NewPool {
            name: "tank".into(),
            uuid: Uuid([0xbb; 16]),
            data,
            metadata,
            devices: devices.collect(),
            properties: set.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
        };
        self.form(shapes.iter().map(|s| Disk::new(s.size, s.model)).collect(), &new)
    }

    /// Writes a new pool on these disks.
    pub fn form(&mut self, disks: Vec<Disk>, new: &NewPool) -> Result<(), ControlError> {
        self.loads = vec![Load::default(); disks.len()];
        self.disks = disks;
        let plan = format::plan(new)?;
        for place in plan.pages.iter().chain(&plan.superblocks) {
            let mut content = Content::new();
            content.push_bytes(&place.bytes);
            self.disks[place.device].write(place.offset, &content, true, || true);
        }
        Ok(())
    }

    /// Superblocks of the disks that are there; those without one are left out.
    pub fn superblocks(&self) -> Vec<superblock::Superblock> {
        let here = (0..self.disks.len()).filter(|&i| !self.faults.is_absent(i as u32 + 1, self.now));
        here.filter_map(|i| {
            let slots = SLOTS.map(|at| self.disks[i].read_bytes(at, SUPERBLOCK_SIZE));
            superblock::newest([&slots[0], &slots[1]]).ok()
        })
        .collect()
    }

    /// Opens the pool from the disks that are there.
    pub fn open(&mut self) -> Result<(), String> {
        let boot = Uuid([self.boot; 16]);
        let mut assembly = Assembly::new(self.superblocks(), boot)?;
        for _ in 0..100 {
            match assembly.step() {
                Step::Failed(why) => return Err(why),
                Step::Read(reads) => {
                    for read in reads {
                        self.read_max = self.read_max.max(read.len);
                        let disk = &self.disks[read.device.index() - 1];
                        let inside = read.offset.checked_add(read.len).is_some_and(|end| end <= disk.size);
                        let result =
                            if inside { Ok(disk.read_bytes(read.offset, read.len)) } else { Err(IoError::Media) };
                        assembly.supply(read, result);
                    }
                }
                Step::Ready(opened) => {
                    self.apart = opened.apart.clone();
                    let mut opening = [0; 16];
                    opening[..8].copy_from_slice(&self.rng.next_u64().to_le_bytes());
                    let engine = Engine::new(*opened, Instant(self.now), boot, Uuid(opening));
                    let watched = if self.keeps_payload { engine.pool().device_ids_end() as u32 } else { 1 };
                    self.watches = (1..watched)
                        .map(|id| Watch::new(DeviceId(id), config_of(&engine, DeviceId(id))))
                        .collect();
                    self.engine = Some(engine);
                    // A run begins in November 2023.
                    self.input(Input::Clock { unix_s: 1_700_000_000 + self.now / 1_000_000_000 });
                    self.drain();
                    return Ok(());
                }
            }
        }
        Err("opening asks for more and more".into())
    }

    /// Everything stops at this moment.
    pub fn crash(&mut self, crash: Crash) {
        self.engine = None;
        self.heap.clear();
        self.batch.clear();
        self.wake = None;
        for (_, running) in std::mem::take(&mut self.running) {
            let Dispatch { device, op, offset, len, .. } = running.dispatch;
            let i = device.index() - 1;
            let percent = *self.rng.pick(&[0, 50, 100]);
            let Self { disks, rng, .. } = self;
            match op {
                DeviceOp::Write { .. } => disks[i].write(offset, &running.content, false, || rng.percent(percent)),
                DeviceOp::WriteZeroes => disks[i].write_zeroes(offset, len, || rng.percent(percent)),
                DeviceOp::Discard => disks[i].discard(offset, len, rng),
                DeviceOp::Read | DeviceOp::Flush => {}
            }
        }
        for disk in &mut self.disks {
            match crash {
                Crash::Power => disk.cut(&mut self.rng),
                Crash::Process => disk.settle(),
            }
        }
        if crash == Crash::Power {
            self.boot += 1;
        }
        self.oracle.crash(crash == Crash::Power);
        self.watches.clear();
        self.buffers.clear();
        self.scratch.clear();
        self.asked.clear();
    }

    // ---- clients --------------------------------------------------------------------------------------------------

    /// Puts a request into the present batch; the tag. Offsets are multiples of 512.
    pub fn submit(&mut self, client: u32, volume: VolumeId, op: Op, offset: u64, len: u64, content: Tag) -> u64 {
        if !self.keeps_payload {
            return self.submit_bare(Request {
                tag: 0,
                client: ClientId(client),
                volume,
                op,
                offset,
                len,
                buf: NO_BUF,
                content,
                no_merge: false,
            });
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let (first, last) = (offset / BLOCK * BLOCK, (offset + len).next_multiple_of(BLOCK));
        let (start, end) = (offset / SECTOR, (offset + len) / SECTOR);
        let has_payload = matches!(op, Op::Read | Op::Write { .. });
        let buf = if has_payload { BufId(tag as u32) } else { NO_BUF };
        if has_payload {
            // What a careless server would leave in it.
            let mut memory = vec![0xdead_beef_dead_beef; ((last - first) / SECTOR) as usize];
            if op != Op::Read {
                for sector in start..end {
                    memory[(sector - first / SECTOR) as usize] = stamp(tag, sector);
                }
            }
            self.buffers.insert(buf.0, memory);
        }
        match op {
            Op::Read => self.oracle.read(tag, volume.0, start, end),
            Op::Write { .. } => self.oracle.change(tag, volume.0, start, end, |sector| stamp(tag, sector)),
            Op::Flush => {}
            Op::Discard | Op::WriteZeroes { .. } => {
                let (start, end) = changed_sectors(op, offset, len);
                self.oracle.change(tag, volume.0, start, end, |_| 0);
            }
        }
        let no_merge = self.no_merge > 0 && self.rng.percent(self.no_merge);
        let request = Request { tag, client: ClientId(client), volume, op, offset, len, buf, content, no_merge };
        self.asked.insert(tag, Asked { request, op: tag, mark: self.oracle.mark() });
        self.batch.push(Input::Submit(request));
        tag
    }

    /// Puts a command into the present batch; the tag.
    pub fn command(&mut self, command: Command) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.batch.push(Input::Control { tag, command });
        tag
    }

    /// Requests that no answer came to yet.
    pub fn outstanding(&self) -> usize {
        self.asked.len()
    }

    // ---- time -----------------------------------------------------------------------------------------------------

    /// Hands the batch to the engine, drains it, and goes on to the next thing that happens; false when nothing will
    /// ever happen by itself.
    pub fn step(&mut self) -> bool {
        if !self.batch.is_empty() {
            self.drain();
            return true;
        }
        let due = self.heap.peek().map(|Reverse((at, ..))| *at);
        let at = match (due, self.wake) {
            (None, None) => return false,
            (Some(at), None) | (None, Some(at)) => at,
            (Some(a), Some(b)) => a.min(b),
        };
        self.now = self.now.max(at);
        self.steps += 1;
        // What completes within a moment is one batch, as from a ring.
        let window = self.now + if !self.exact && self.rng.percent(20) { 200_000 } else { 0 };
        let mut any = false;
        while let Some(&Reverse((at, _, id))) = self.heap.peek()
            && at <= window
        {
            self.heap.pop();
            self.now = self.now.max(at);
            self.complete(IoId(id));
            any = true;
            if self.exact {
                break;
            }
        }
        if !any {
            self.input(Input::Tick);
        }
        self.drain();
        true
    }

    /// Until `done` says so; false when everything is quiet before that.
    pub fn run_until(&mut self, mut done: impl FnMut(&World) -> bool) -> bool {
        for _ in 0..50_000_000u64 {
            if self.batch.is_empty() && done(self) {
                return true;
            }
            if !self.step() {
                return false;
            }
        }
        panic!("no end in sight at {} ns", self.now);
    }

    /// Until nothing happens any more, deadlines included.
    pub fn run_until_quiet(&mut self) {
        self.run_until(|_| false);
    }

    /// Until all requests are answered.
    pub fn run_until_answered(&mut self) {
        self.run_until(|w| w.asked.is_empty());
        assert!(self.asked.is_empty(), "quiet, but no answer to {:?}", self.asked);
    }

    /// Runs a request to its answer.
    pub fn run(&mut self, volume: VolumeId, op: Op, offset: u64, len: u64) -> Result<(), RequestError> {
        let tag = self.submit(0, volume, op, offset, len, Tag::Unsaid);
        self.run_until(|w| !w.asked.contains_key(&tag));
        let at = self.answers.iter().position(|a| a.tag == tag).expect("it was answered");
        self.answers.swap_remove(at).result
    }

    /// Runs a command to its answer.
    pub fn control(&mut self, command: Command) -> Result<Done, ControlError> {
        let tag = self.command(command);
        self.run_until(|w| w.done.iter().any(|d| d.0 == tag));
        let at = self.done.iter().position(|d| d.0 == tag).expect("the command was answered");
        self.done.swap_remove(at).1
    }

    /// Makes a volume.
    pub fn volume(&mut self, name: &str, size: u64, class: VolumeClass) -> VolumeId {
        match self.control(Command::CreateVolume { name: name.into(), size, class }) {
            Ok(Done::Volume(id)) => {
                self.oracle.create(id.0);
                id
            }
            other => panic!("creating {name}: {other:?}"),
        }
    }

    // ---- the door -------------------------------------------------------------------------------------------------

    fn input(&mut self, input: Input) {
        mix(&mut self.hash, self.now);
        match &input {
            Input::Submit(r) => [1, r.tag, r.offset, r.len].iter().for_each(|&n| mix(&mut self.hash, n)),
            Input::Complete { id, result } => {
                [2, u64::from(id.0), u64::from(result.is_ok())].iter().for_each(|&n| mix(&mut self.hash, n));
            }
            Input::Control { tag, .. } => mix(&mut self.hash, tag ^ 3),
            Input::Compared { tag, equal } => mix(&mut self.hash, tag << 1 ^ u64::from(*equal) ^ 6 << 50),
            Input::Clock { unix_s } => mix(&mut self.hash, *unix_s),
            Input::Tick => mix(&mut self.hash, 4),
        }
        let is_control = matches!(input, Input::Control { .. });
        self.engine.as_mut().expect("the engine is up").handle(Instant(self.now), input);
        if is_control {
            let engine = self.engine.as_ref().expect("the engine is up");
            for (i, watch) in self.watches.iter_mut().enumerate() {
                watch.configure(config_of(engine, DeviceId(i as u32 + 1)));
            }
        }
    }

    /// Hands over the batch and takes what the engine wants, up to idle.
    pub fn drain(&mut self) {
        for input in std::mem::take(&mut self.batch) {
            self.input(input);
        }
        loop {
            let output = self.engine.as_mut().expect("the engine is up").poll(Instant(self.now));
            self.outputs += 1;
            match output {
                Output::Issue(dispatch) => self.issue(dispatch),
                Output::Copy(copy) => self.copy(copy),
                Output::Reply(reply) => {
                    mix(&mut self.hash, reply.tag ^ u64::from(reply.result.is_ok()) << 40);
                    self.reply(Answer { tag: reply.tag, result: reply.result, hole: reply.hole });
                }
                Output::Done { tag, result } => {
                    mix(&mut self.hash, tag ^ u64::from(result.is_ok()) << 41);
                    self.done.push((tag, result));
                }
                Output::Compare { tag, a, b } => {
                    let equal = !self.keeps_payload || self.memory(a).to_vec() == self.memory(b);
                    self.input(Input::Compared { tag, equal });
                }
                Output::Event(event) => {
                    mix(&mut self.hash, 5);
                    self.check_difference(&event);
                    self.events.push(event);
                }
                Output::Idle { until } => {
                    self.wake = until.map(|at| at.0);
                    return self.rest();
                }
            }
        }
    }

    fn rest(&mut self) {
        let engine = self.engine.as_ref().expect("the engine is up");
        self.watches.iter_mut().for_each(|watch| watch.rest(engine, self.wake.is_some()));
        // A scrub that gathers does so turn by turn, and has nothing to show for it until the last; one that was ended
        // drops its pieces one by one.
        let gathers = engine.pool().scrub.state == braid_core::scrub::State::Running;
        let in_vain = self.outputs == 1 && !gathers && self.wake.is_some_and(|at| at <= self.now);
        self.idle_ticks = if in_vain { self.idle_ticks + 1 } else { 0 };
        assert!(self.idle_ticks < 200, "it wants to be woken at {:?}, and then does nothing", self.wake);
        self.outputs = 0;
    }

    fn memory(&mut self, range: BufRange) -> &mut [u64] {
        let memory = self.buffers.get_mut(&range.buf.0).unwrap_or_else(|| panic!("no buffer for {range:?}"));
        let (from, len) = (u64::from(range.offset), u64::from(range.len));
        assert!(from.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR));
        &mut memory[(from / SECTOR) as usize..((from + len) / SECTOR) as usize]
    }

    fn copy(&mut self, copy: Copy) {
        if !self.keeps_payload {
            return;
        }
        match copy {
            Copy::Zero(range) => self.memory(range).fill(0),
            Copy::Move { from, to } => {
                let stamps = self.memory(from).to_vec();
                self.memory(to).copy_from_slice(&stamps);
            }
            Copy::Scratch { buf, len } => {
                assert!(buf != NO_BUF && self.scratch.insert(buf.0), "scratch {buf} is in use");
                // Other rubbish each time: what was not read must not look alike.
                let rubbish = 0xdead_beef_0000_0000 | u64::from(buf.0);
                self.buffers.insert(buf.0, vec![rubbish; (u64::from(len) / SECTOR) as usize]);
            }
            Copy::Drop(id) => {
                assert!(self.scratch.remove(&id.0), "scratch {id} is not in use");
                self.buffers.remove(&id.0);
            }
        }
    }

    fn reply(&mut self, answer: Answer) {
        let asked = self.asked.remove(&answer.tag).unwrap_or_else(|| panic!("a second answer: {answer:?}"));
        if !self.keeps_payload {
            return self.answers.push(answer);
        }
        let Request { volume, op, offset, len, buf, .. } = asked.request;
        let memory = self.buffers.remove(&buf.0);
        let fine = answer.result.is_ok();
        match op {
            Op::Read => {
                let memory = memory.expect("a read has a buffer");
                let skip = (offset % BLOCK / SECTOR) as usize;
                let values = &memory[skip..skip + (len / SECTOR) as usize];
                if fine && answer.hole && values.iter().any(|&v| v != 0) {
                    self.wrong.push(format!("a hole is not zero: {:?}", asked.request));
                }
                if let Err(why) = self.oracle.was_read(answer.tag, fine.then_some(values)) {
                    self.wrong.push(format!("at {} ns: {why}", self.now));
                }
            }
            Op::Flush => {
                if fine {
                    self.oracle.flushed(asked.mark);
                }
            }
            Op::Write { .. } | Op::Discard | Op::WriteZeroes { .. } => {
                let (start, end) = changed_sectors(op, offset, len);
                let fua = matches!(op, Op::Write { fua: true } | Op::WriteZeroes { fua: true, .. });
                self.oracle.changed(asked.op, volume.0, start, end, fine, fua);
            }
        }
        self.answers.push(answer);
    }

    fn issue(&mut self, dispatch: Dispatch) {
        let Dispatch { id, device, op, offset, len } = dispatch;
        let kind = match op {
            DeviceOp::Read => 1,
            DeviceOp::Write { fua } => 2 + u64::from(fua),
            DeviceOp::Flush => 4,
            DeviceOp::Discard => 5,
            DeviceOp::WriteZeroes => 6,
        };
        [u64::from(id.0), u64::from(device.0), kind, offset, len].iter().for_each(|&n| mix(&mut self.hash, n));
        let i = device.index() - 1;
        let (content, sent) = match self.keeps_payload {
            true => self.check(dispatch),
            false => (self.records_of(dispatch), None),
        };
        if self.keep_dispatched {
            self.dispatched.push(dispatch);
        }
        let fails = if self.faults.is_absent(device.0, self.now) {
            Some(IoError::Gone)
        } else {
            self.faults.strike(device.0, op, offset, len, &mut self.rng)
        };
        let factor = self.faults.factor(device.0, self.now);
        self.loads[i].begins(self.now);
        let began = match self.instant {
            true => Some((id.0, self.now)),
            false => self.disks[i].arrive(self.now, (id.0, offset, len), op == DeviceOp::Flush, factor),
        };
        self.schedule(began);
        let running = Running { dispatch, sent, content, mark: self.disks[i].mark(), fails };
        assert!(self.running.insert(id.0, running).is_none(), "I/O {id} is under way already");
    }

    /// A disk began with a command.
    fn schedule(&mut self, began: Option<(u32, u64)>) {
        let Some((id, done)) = began else { return };
        let jitter = if self.exact { 0 } else { self.rng.below(2_000) };
        self.order += 1;
        self.heap.push(Reverse((done + jitter, self.order, id)));
    }

    /// What a command carries; panics when it should not be.
    fn check(&mut self, dispatch: Dispatch) -> (Content, Option<Sent>) {
        let Dispatch { id, device, op, offset, len } = dispatch;
        let engine = self.engine.as_ref().expect("the engine is up");
        let pool = engine.pool();
        let member = pool.device(device).expect("a member");
        assert_eq!(member.state, DeviceState::Online, "{dispatch:?} to a member that is not online");
        let (class, watch) = (engine.class_of(id), &mut self.watches[device.index() - 1]);
        if op == DeviceOp::Flush {
            return (Content::new(), Some(watch.send(dispatch, class, 1, 0, 0)));
        }
        let end = offset + len;
        assert!(len > 0 && offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK) && end <= member.size);
        let within = |offset: u64, len: u64, system: bool| {
            let column = |c: &braid_core::chunk::Chunk| {
                (c.kind == ChunkType::System) == system
                    && c.columns.iter().any(|col| {
                        col.device == device && col.offset <= offset && offset + len <= col.offset + c.stripe
                    })
            };
            pool.chunks().any(column)
        };
        let is_write = !matches!(op, DeviceOp::Read);
        if is_write {
            for other in self.running.values().map(|r| r.dispatch) {
                let writes = !matches!(other.op, DeviceOp::Read | DeviceOp::Flush);
                let apart = end <= other.offset || other.offset + other.len <= offset || other.device != device;
                assert!(!writes || apart, "{dispatch:?} overlaps {other:?}");
            }
        }
        let mut content = Content::new();
        let mut at = offset;
        let (mut members, mut gaps, mut gap_max, mut wants_alone) = (0, 0, 0, false);
        for segment in engine.segments(id) {
            members += u64::from(!matches!(segment, Segment::Gap(_)));
            match segment {
                Segment::Record(bytes) => {
                    let in_slot = SLOTS.contains(&at) && bytes.len() as u64 == SUPERBLOCK_SIZE;
                    let len = bytes.len() as u64;
                    assert!(in_slot || at >= RESERVED && within(at, len, true), "a record at {at} of device {device}");
                    content.push_bytes(bytes);
                    at += len;
                }
                Segment::Payload(range) => {
                    let len = u64::from(range.len);
                    // A scrub reads the pool's own pages into memory like everything else.
                    let is_there = within(at, len, false) || !is_write && within(at, len, true);
                    assert!(at >= RESERVED && is_there, "payload at {at} of device {device}");
                    wants_alone |= self.asked.get(&range.buf.0.into()).is_some_and(|asked| asked.request.no_merge);
                    let memory = &self.buffers[&range.buf.0];
                    let from = (u64::from(range.offset) / SECTOR) as usize;
                    if is_write {
                        content.push_stamps(&memory[from..from + (len / SECTOR) as usize]);
                    }
                    at += len;
                }
                Segment::Gap(len) => {
                    assert!(!is_write && at > offset && len > 0, "a gap of {len} in {dispatch:?}");
                    (gaps, gap_max) = (gaps + len, gap_max.max(len));
                    at += len;
                }
            }
        }
        match op {
            DeviceOp::Read | DeviceOp::Write { .. } => assert_eq!(at, end, "segments of {dispatch:?}"),
            _ => assert!(members == 0 && within(offset, len, false), "{dispatch:?}"),
        }
        assert!(members < 2 || !wants_alone, "{dispatch:?} has one that asked to be alone");
        (content, Some(watch.send(dispatch, class, members.max(1), gaps, gap_max)))
    }

    fn complete(&mut self, id: IoId) {
        let Running { dispatch, sent, content, mark, mut fails } = self.running.remove(&id.0).expect("it is under way");
        let Dispatch { device, op, offset, len, .. } = dispatch;
        let i = device.index() - 1;
        if let Some(sent) = &sent {
            self.watches[i].complete(sent);
        }
        let factor = self.faults.factor(device.0, self.now);
        self.loads[i].ends(self.now);
        if !self.instant {
            let began = self.disks[i].next(self.now, factor);
            self.schedule(began);
        }
        if self.faults.is_absent(device.0, self.now) {
            fails = Some(IoError::Gone);
        }
        if !self.keeps_payload {
            return self.complete_bare(dispatch, &content, fails);
        }
        let engine = self.engine.as_ref().expect("the engine is up");
        let percent = if fails.is_some() { *self.rng.pick(&[0, 50, 100]) } else { 100 };
        let Self { disks, rng, .. } = self;
        let mut takes = || percent == 100 || rng.percent(percent);
        match op {
            DeviceOp::Read if fails.is_none() => {
                let mut at = offset;
                let mut segments = Vec::new();
                for segment in engine.segments(id) {
                    at += match segment {
                        Segment::Payload(range) => {
                            segments.push((at, range));
                            u64::from(range.len)
                        }
                        Segment::Gap(len) => len,
                        Segment::Record(_) => panic!("a read into a record"),
                    };
                }
                for (at, range) in segments {
                    let mut stamps = vec![0; (u64::from(range.len) / SECTOR) as usize];
                    self.disks[i].read_stamps(at, &mut stamps);
                    self.memory(range).copy_from_slice(&stamps);
                }
            }
            DeviceOp::Read => {}
            DeviceOp::Write { fua } => {
                for segment in engine.segments(id) {
                    if let Segment::Payload(range) = segment {
                        assert!(self.buffers.contains_key(&range.buf.0), "the memory of {dispatch:?} is gone");
                    }
                }
                disks[i].write(offset, &content, fua && fails.is_none(), &mut takes);
            }
            DeviceOp::Flush if fails.is_none() => disks[i].flushed(mark),
            DeviceOp::Flush => {}
            DeviceOp::Discard => disks[i].discard(offset, len, rng),
            DeviceOp::WriteZeroes => disks[i].write_zeroes(offset, len, &mut takes),
        }
        self.input(Input::Complete { id, result: fails.map_or(Ok(()), Err) });
    }

    // ---- when all is quiet ----------------------------------------------------------------------------------------

    /// Nothing is left over; with `counts`, space adds up as well.
    pub fn check_quiet(&mut self, counts: bool) {
        assert!(self.heap.is_empty() && self.running.is_empty() && self.wake.is_none(), "not quiet: {:?}", self.wake);
        assert!(self.asked.is_empty(), "no answer to {:?}", self.asked);
        assert!(self.scratch.is_empty() && self.buffers.is_empty(), "memory is left over");
        let engine = self.engine();
        assert!(engine.is_quiet() && engine.in_flight() == 0, "{} requests", engine.in_flight());
        self.watches.iter().for_each(|watch| watch.check_quiet(engine));
        if !counts {
            return;
        }
        let report = engine.report();
        for kind in [ChunkType::Data, ChunkType::Metadata] {
            let mapped: u64 = report.volumes.iter().map(|v| v.mapped[kind as usize]).sum();
            let used: u64 = report.chunks.iter().filter(|c| c.kind == kind).map(|c| c.used).sum();
            let entries: usize = engine.pool().volumes().map(|v| v.map.entries().count()).sum();
            let about = format!("{entries} entries; {}", engine.space_state());
            assert_eq!(mapped, used, "{kind:?}: bytes mapped, bytes used in chunks; {about}");
        }
        let mut places = BTreeSet::new();
        for volume in engine.pool().volumes() {
            let mut entries = 0;
            for (unit, entry) in volume.map.entries() {
                assert!(entry.written() != 0, "volume {} unit {unit} is only reserved", volume.id);
                assert!(places.insert((entry.chunk(), entry.unit())), "{entry:?} has two owners");
                let chunk = engine.pool().chunk(entry.chunk()).expect("it exists");
                assert!(u64::from(entry.unit()) < chunk.length / UNIT);
                entries += 1;
            }
            assert_eq!(entries, volume.mapped_units.iter().sum::<u64>());
        }
    }

    /// A difference that is reported is there now, and the copies are grouped as they are.
    fn check_difference(&mut self, event: &Event) {
        let Event::ScrubDifference { len, copies, .. } = event else { return };
        for at in (0..*len).step_by(BLOCK as usize) {
            let block = |c: &ScrubCopy| self.disks[c.device.index() - 1].read_bytes(c.offset + at, BLOCK);
            let is_right = |a: &ScrubCopy, b: &ScrubCopy| (a.group == b.group) == (block(a) == block(b));
            let all_right = copies.iter().all(|a| copies.iter().all(|b| is_right(a, b)));
            if !all_right || copies.iter().all(|c| c.group == copies[0].group) {
                self.wrong.push(format!("a false difference at {} ns: {event:?}", self.now));
            }
        }
    }

    /// Blocks of volumes whose copies on members in use are not alike: volume and first byte. By brute force.
    pub fn unequal(&self) -> Vec<(VolumeId, u64)> {
        let pool = self.engine().pool();
        let mut found = Vec::new();
        for volume in pool.volumes() {
            for (unit, entry) in volume.map.entries() {
                let chunk = pool.chunk(entry.chunk()).expect("it exists");
                for block in (0..UNIT / BLOCK).filter(|b| entry.written() >> b & 1 == 1) {
                    let at = u64::from(entry.unit()) * UNIT + block * BLOCK;
                    let part = slice(chunk.profile, chunk.columns.len(), at, BLOCK);
                    let columns = chunk.columns[part.first..part.first + part.copies].iter();
                    let online = columns.filter(|c| pool.is_online(c.device));
                    let read = |c: &Column| self.disks[c.device.index() - 1].read_bytes(c.offset + part.offset, BLOCK);
                    let copies: BTreeSet<Vec<u8>> = online.map(read).collect();
                    if copies.len() > 1 {
                        found.push((volume.id, unit * UNIT + block * BLOCK));
                    }
                }
            }
        }
        found
    }

    /// Where each copy of a block of a volume is: device and first byte.
    pub fn places(&self, volume: VolumeId, offset: u64) -> Vec<(DeviceId, u64)> {
        let pool = self.engine().pool();
        let Some(Extent::Mapped { chunk, offset, .. }) = pool.volume(volume).map(|v| v.map.first(offset, BLOCK)) else {
            return Vec::new();
        };
        let chunk = pool.chunk(chunk).expect("it exists");
        let part = slice(chunk.profile, chunk.columns.len(), offset, BLOCK);
        let columns = chunk.columns[part.first..part.first + part.copies].iter();
        columns.map(|c| (c.device, c.offset + part.offset)).collect()
    }

    /// Reads everything that was ever touched, and some that was not.
    pub fn verify(&mut self) {
        let volumes: Vec<(VolumeId, u64)> = self.engine().pool().volumes().map(|v| (v.id, v.size)).collect();
        for (id, size) in volumes {
            let mut blocks: Vec<u64> = self.oracle.touched(id.0).into_iter().map(|s| s * SECTOR / BLOCK).collect();
            // A growth that nobody was told of may be undone.
            blocks.retain(|block| (block + 1) * BLOCK <= size);
            blocks.extend((0..8).map(|i| size / BLOCK / 8 * i));
            blocks.sort_unstable();
            blocks.dedup();
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for block in blocks {
                match runs.last_mut() {
                    Some((first, count)) if *first + *count == block && *count < 64 => *count += 1,
                    _ => runs.push((block, 1)),
                }
            }
            for (i, (first, count)) in runs.into_iter().enumerate() {
                self.submit(i as u32, id, Op::Read, first * BLOCK, count * BLOCK, Tag::Unsaid);
                if i % 64 == 63 {
                    self.run_until_answered();
                }
            }
            self.run_until_answered();
        }
    }

    /// The chunks of a type, and the devices each stands on.
    pub fn chunks(&self, kind: ChunkType) -> Vec<(ChunkId, Vec<DeviceId>)> {
        let chunks = self.engine().pool().chunks().filter(|c| c.kind == kind);
        chunks.map(|c| (c.id, c.columns.iter().map(|col| col.device).collect())).collect()
    }
}

/// What the queue of a member goes by.
fn config_of(engine: &Engine, device: DeviceId) -> Config {
    let pool = engine.pool();
    let config = pool.device(device).and_then(|device| device.queue_config(&pool.properties.queue).ok());
    config.unwrap_or_default()
}

fn stamp(tag: u64, sector: u64) -> u64 {
    tag << 32 | (sector & 0xffff_ffff)
}

/// Sectors whose content a change decides: whole blocks only, where it makes holes without writing.
fn changed_sectors(op: Op, offset: u64, len: u64) -> (u64, u64) {
    match op {
        Op::Discard => {
            let start = offset.next_multiple_of(BLOCK);
            let end = ((offset + len) / BLOCK * BLOCK).max(start);
            (start / SECTOR, end / SECTOR)
        }
        _ => (offset / SECTOR, (offset + len) / SECTOR),
    }
}
