//! What a request costs the engine: handle, poll and complete, against a world that takes no time.
//!
//! The share of the queue is the difference between schedulers, or between commits: [`Bench`] can be told settings. Who makes
//! so many requests of it under an instruction counter (`perf stat`) has figures that do not depend on the machine's load.
//!
//! CPU time of the thread where the system tells it (Linux), else wall clock; run it in release, several times.

use std::time::Instant as Clock;

use braid_core::control::{Command, VolumeClass};
use braid_core::request::{Content, Input, Op, Output, Request};
use braid_core::units::{BufId, ClientId, Instant, IoId, MIB, VolumeId};
use braid_core::{Engine, Profile};

use crate::device::Model;
use crate::pages::work_bare;
use crate::rng::Rng;
use crate::world::{Shape, World};

/// What was measured, in ns a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// 4 KiB random reads.
    pub read_ns: u64,
    /// 4 KiB random writes to blocks written before.
    pub write_ns: u64,
    /// 4 KiB sequential first writes.
    pub first_write_ns: u64,
}

const VOLUME: u64 = 64 * MIB;

/// `requests` of each kind at depth 32 on a pool of this profile over four devices.
pub fn engine_cost(profile: Profile, requests: u64, settings: &[(String, String)]) -> Cost {
    let (mut bench, first) = Bench::new(profile, settings);
    let read = bench.random(Op::Read, requests, 32);
    let write = bench.random(Op::Write { fua: false }, requests, 32);
    Cost { read_ns: read / requests, write_ns: write / requests, first_write_ns: first / BLOCKS }
}

const BLOCKS: u64 = VOLUME / 4096;

/// An engine over a volume that is written from end to end.
pub struct Bench {
    engine: Engine,
    volume: VolumeId,
    now: u64,
    rng: Rng,
    /// Blocks from the start of the volume that random requests go to.
    blocks: u64,
}

impl Bench {
    /// Goes on with the engine of a world that is quiet.
    pub fn of(mut world: World, volume: VolumeId, blocks: u64) -> Bench {
        let engine = world.engine.take().expect("the engine is up");
        Bench { engine, volume, now: world.now(), rng: Rng::new(7), blocks }
    }

    /// One request without payload, to its answer.
    pub fn one(&mut self, op: Op, offset: u64, len: u64) {
        let (tag, client, volume, buf, content) = (0, ClientId(0), self.volume, BufId(0), Content::Unsaid);
        let request = Request { tag, client, volume, op, offset, len, buf, content, no_merge: false };
        self.engine.handle(Instant(self.now), Input::Submit(request));
        settle(&mut self.engine, &mut self.now, &mut Vec::new());
    }

    /// ns of a checkpoint: to build its pages, which is done in one piece, and to send them to their disks.
    pub fn checkpoint(&mut self) -> u64 {
        let begun = Clock::now();
        self.engine.handle(Instant(self.now), Input::Control { tag: 0, command: Command::Checkpoint });
        settle(&mut self.engine, &mut self.now, &mut Vec::new());
        begun.elapsed().as_nanos() as u64
    }

    /// The engine that is measured.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The pool under it.
    pub fn pool(&self) -> &braid_core::pool::Pool {
        self.engine.pool()
    }

    /// A pool of this profile with these properties; and the ns of filling the volume.
    pub fn new(profile: Profile, settings: &[(String, String)]) -> (Bench, u64) {
        let model = Model::shipped("nvme").expect("it comes with the crate");
        let shape = Shape { size: 512 * MIB, model, class: "ssd" };
        let shapes = vec![shape; profile.facts().devs_min.max(4)];
        // What content is summed with is chosen when a pool is made.
        let (first, later): (Vec<_>, Vec<_>) = settings.iter().cloned().partition(|(name, _)| name == "checksum");
        let first: Vec<(&str, &str)> = first.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let mut world = World::with_pool(1, &shapes, profile, profile.system(), &first);
        for (name, value) in later {
            world.control(Command::Set { name, value }).expect("a setting");
        }
        let volume = world.volume("v", VOLUME, VolumeClass::Auto);
        world.run_until_quiet();
        let mut bench = Bench::of(world, volume, BLOCKS);
        let mut next = 0;
        let ns = bench.go(Op::Write { fua: false }, BLOCKS, 32, |_| {
            next += 1;
            (next - 1) * 4096
        });
        bench.checkpoint();
        (bench, ns)
    }

    /// Nanoseconds for so many requests of 4 KiB at random places, `depth` in a batch.
    pub fn random(&mut self, op: Op, requests: u64, depth: u64) -> u64 {
        let blocks = self.blocks;
        self.go(op, requests, depth, |rng| rng.below(blocks) * 4096)
    }

    /// The same at these places, one after the other.
    pub fn at(&mut self, op: Op, places: &[u64], depth: u64) -> u64 {
        let mut next = places.iter();
        self.go(op, places.len() as u64, depth, |_| *next.next().expect("as many as requests"))
    }

    /// The same from the start of the volume on, again and again.
    pub fn sequential(&mut self, op: Op, requests: u64, depth: u64) -> u64 {
        let mut next = 0;
        self.go(op, requests, depth, |_| {
            next += 1;
            (next - 1) % BLOCKS * 4096
        })
    }

    fn go(&mut self, op: Op, requests: u64, depth: u64, mut offset: impl FnMut(&mut Rng) -> u64) -> u64 {
        let Bench { engine, volume, now, rng, .. } = self;
        let (volume, client, content) = (*volume, ClientId(0), Content::Unsaid);
        let clock = CpuClock::start();
        let mut issued: Vec<IoId> = Vec::with_capacity(256);
        let mut sent = 0;
        while sent < requests {
            for slot in 0..depth.min(requests - sent) {
                let (buf, offset) = (BufId(slot as u32), offset(rng));
                let request =
                    Request { tag: sent, client, volume, op, offset, len: 4096, buf, content, no_merge: false };
                engine.handle(Instant(*now), Input::Submit(request));
                sent += 1;
            }
            settle(engine, now, &mut issued);
        }
        clock.elapsed_ns()
    }
}

/// How long this thread computed: other threads of a busy machine don't count.
struct CpuClock {
    cpu_ns: Option<u64>,
    wall: Clock,
}

impl CpuClock {
    fn start() -> CpuClock {
        CpuClock { cpu_ns: cpu_ns(), wall: Clock::now() }
    }

    fn elapsed_ns(&self) -> u64 {
        match (self.cpu_ns, cpu_ns()) {
            (Some(start), Some(end)) if end > start => end - start,
            _ => self.wall.elapsed().as_nanos() as u64,
        }
    }
}

fn cpu_ns() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// Drains, and completes what was issued, until nothing is under way.
fn settle(engine: &mut Engine, now: &mut u64, issued: &mut Vec<IoId>) {
    loop {
        loop {
            match engine.poll(Instant(*now)) {
                Output::Issue(dispatch) => issued.push(dispatch.id),
                Output::Idle { .. } => break,
                Output::Reply(reply) => assert!(reply.result.is_ok()),
                Output::Page(work) => {
                    if let Some(answer) = work_bare(work) {
                        engine.handle(Instant(*now), answer);
                    }
                }
                Output::Superblock { tag, .. } => {
                    engine.handle(Instant(*now), Input::Superblock { tag, generation: Some(u64::MAX) })
                }
                Output::Digest { tag, .. } => engine.handle(Instant(*now), Input::Digested { tag, crc: 0 }),
                _ => {}
            }
        }
        if issued.is_empty() {
            return;
        }
        *now += 20_000;
        for id in issued.drain(..) {
            let input = match engine.expects(id, |_| true) {
                true => Input::Intact { id },
                false => Input::Complete { id, result: Ok(()) },
            };
            engine.handle(Instant(*now), input);
        }
    }
}
