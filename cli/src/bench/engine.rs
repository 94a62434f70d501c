//! CPU of a 4 KiB read on `null:`.
//!
//! Two numbers. *Core* is the engine alone: a request in, a command out, its completion in, the answer out. *Pump* is
//! all of it on the pump's thread, with the reactor, the disk that is not there (it clears 4 KiB) and the clock.

use super::{Dice, RUNS, Row, failed, median, pool, thread_cpu_ns};
use braid_core::control::{Command, Done, VolumeClass};
use braid_core::meta::assembly::{Assembly, Step};
use braid_core::meta::format;
use braid_core::meta::superblock::Superblock;
use braid_core::request::{Content, Input, NO_BUF, Op, Output, PageWork, Reply, Request};
use braid_core::units::{BLOCK, BufId, ClientId, GIB, Instant, MIB, Uuid, VolumeId};
use braid_core::{Engine, Profile};
use braid_host::control::api::ApiError;
use braid_host::pump::Load;

/// Most CPU that a 4 KiB read may cost.
const TARGET_NS: f64 = 400.0;
const DEPTH: usize = 32;
const VOLUME: u64 = GIB;

pub(super) fn run(quick: bool) -> Result<Vec<Row>, ApiError> {
    let reads = if quick { 200_000 } else { 2_000_000 };
    let mut rows = Vec::new();
    for profile in [Profile::Single, Profile::Raid1] {
        let name = format!("{profile:?}").to_lowercase();
        rows.push(Row::cost(format!("engine {name} 4k read, pump"), pump(profile, reads)?, TARGET_NS));
        rows.push(Row::cost(format!("engine {name} 4k read, core"), core(profile, reads)?, TARGET_NS));
    }
    Ok(rows)
}

fn disks(profile: Profile) -> usize {
    if profile == Profile::Single { 1 } else { 2 }
}

fn pump(profile: Profile, reads: u64) -> Result<f64, ApiError> {
    let disks = vec!["null:4G".to_string(); disks(profile)];
    let (pump, volume) = pool::start(&disks, profile, VOLUME)?;
    pool::fill(&pump, volume, VOLUME)?;
    let mut costs = Vec::new();
    for run in 0..RUNS {
        let load = Reads { volume, dice: Dice(run as u64 + 1), todo: reads, left: reads, began: None, ended: 0 };
        let any: Box<dyn std::any::Any> = pump.load(Box::new(load)).map_err(|e| failed(e.message))?.into_any();
        let load = any.downcast::<Reads>().map_err(|_| failed("another load came back"))?;
        costs.push((load.ended - load.began.unwrap_or(0)) as f64 / reads as f64);
    }
    Ok(median(&costs))
}

/// Its own cost is a few nanoseconds a read, and counted as ours.
struct Reads {
    volume: VolumeId,
    dice: Dice,
    todo: u64,
    left: u64,
    began: Option<u64>,
    ended: u64,
}

impl Load for Reads {
    fn next(&mut self, tag: u64) -> Option<Request> {
        self.began.get_or_insert_with(thread_cpu_ns);
        self.todo = self.todo.checked_sub(1)?;
        Some(read(tag, self.volume, self.dice.below(VOLUME / BLOCK) * BLOCK, NO_BUF))
    }
    fn fill(&mut self, _: &Request, _: &mut [u8]) {}
    fn done(&mut self, _: u64, _: &Reply, _: &[u8]) -> bool {
        self.left -= 1;
        if self.left == 0 {
            self.ended = thread_cpu_ns();
        }
        self.left > 0
    }
    fn depth(&self) -> usize {
        DEPTH
    }
}

fn read(tag: u64, volume: VolumeId, offset: u64, buf: BufId) -> Request {
    Request {
        tag,
        client: ClientId(1),
        volume,
        op: Op::Read,
        offset,
        len: BLOCK,
        buf,
        content: Content::Unsaid,
        no_merge: false,
    }
}

/// The engine without a host: every command is done at once.
fn core(profile: Profile, reads: u64) -> Result<f64, ApiError> {
    let new = pool::new_pool(&vec![4 * GIB; disks(profile)], profile);
    let plan = format::plan(&new).map_err(|e| failed(e.message))?;
    let found = plan.superblocks.iter().filter_map(|place| Superblock::decode(&place.bytes).ok()).collect();
    let mut assembly = Assembly::new(found, Uuid([9; 16])).map_err(failed)?;
    let opened = loop {
        match assembly.step() {
            Step::Ready(opened) => break opened,
            Step::Failed(reason) => return Err(failed(reason)),
            Step::Read(wanted) => {
                for read in wanted {
                    let exact = |p: &&format::Place| p.device + 1 == read.device.index() && p.offset == read.offset;
                    let bytes = plan.pages.iter().find(exact).map(|p| p.bytes.clone());
                    assembly.supply(read, Ok(bytes.unwrap_or_else(|| vec![0; read.len as usize])));
                }
            }
        }
    };
    let mut bare =
        Bare { engine: Engine::new(*opened, Instant(0), Uuid([9; 16]), Uuid([8; 16])), now: 0, done: Vec::new() };
    bare.drain();
    let create = Command::CreateVolume { name: "v".into(), size: VOLUME, class: VolumeClass::Auto };
    bare.put(Input::Control { tag: 0, command: create });
    let volume = match bare.settle().pop() {
        Some(Output::Done { result: Ok(Done::Volume(volume)), .. }) => volume,
        other => return Err(failed(format!("no volume was made: {other:?}"))),
    };
    for at in (0..VOLUME).step_by(MIB as usize) {
        let op = Op::Write { fua: false };
        bare.put(Input::Submit(Request { op, len: MIB, ..read(1, volume, at, BufId(0)) }));
        bare.settle();
    }
    bare.put(Input::Control { tag: 0, command: Command::Checkpoint });
    bare.settle();
    let mut costs = Vec::new();
    for run in 0..RUNS {
        let (mut dice, mut left) = (Dice(run as u64 + 1), reads as usize);
        let began = thread_cpu_ns();
        while left > 0 {
            for tag in 0..DEPTH.min(left) {
                let offset = dice.below(VOLUME / BLOCK) * BLOCK;
                bare.put(Input::Submit(read(tag as u64, volume, offset, BufId(tag as u32))));
            }
            left = left.saturating_sub(DEPTH);
            bare.settle();
        }
        costs.push((thread_cpu_ns() - began) as f64 / reads as f64);
    }
    Ok(median(&costs))
}

struct Bare {
    engine: Engine,
    now: u64,
    done: Vec<braid_core::units::IoId>,
}

impl Bare {
    fn put(&mut self, input: Input) {
        self.engine.handle(Instant(self.now), input);
    }

    /// Until nothing is under way; what was told to the operator comes back.
    fn settle(&mut self) -> Vec<Output> {
        let mut told = self.drain();
        while !self.done.is_empty() {
            self.now += 1000;
            let mut done = std::mem::take(&mut self.done);
            for id in done.drain(..) {
                let input = match self.engine.expects(id, |_| true) {
                    true => Input::Intact { id },
                    false => Input::Complete { id, result: Ok(()) },
                };
                self.put(input);
            }
            self.done = done;
            told.extend(self.drain());
        }
        told
    }

    fn drain(&mut self) -> Vec<Output> {
        let mut told = Vec::new();
        loop {
            match self.engine.poll(Instant(self.now)) {
                Output::Issue(dispatch) => self.done.push(dispatch.id),
                Output::Idle { .. } => return told,
                done @ Output::Done { .. } => told.push(done),
                Output::Reply(_) | Output::Copy(_) | Output::Combine(_) | Output::Event(_) => {}
                Output::Superblock { tag, .. } => self.put(Input::Superblock { tag, generation: Some(u64::MAX) }),
                Output::Digest { tag, .. } => self.put(Input::Digested { tag, crc: 0 }),
                // What is read is right.
                Output::Page(
                    PageWork::Verify { tag, .. } | PageWork::Unsummed { tag, .. } | PageWork::Check { tag, .. },
                ) => {
                    self.put(Input::Verified { tag, bad: 0 });
                }
                Output::Page(_) => {}
                // Nothing is scrubbed here.
                Output::Compare { .. } => {}
            }
        }
    }
}
