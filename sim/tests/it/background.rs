//! Background work beside a client on a disk that prefers streams: what each mode of a queue makes of it.
//!
//! A scrub reads in order of place, always with more to read; a client reads 4 KiB at random places, one after the
//! other. The disk chooses among the commands it has, and takes the nearest: the next of the scrub. Only the queue can
//! keep it from that. Published (specification, section 3.7): random reads beside a scrub on disks rise 7.6 and 14 times
//! from `zfs-before` to `zfs-2.0.1`, their longest waits fall from seconds to some hundred ms.
//!
//! The queues are the engine's own, alone with one disk of the simulator.

use std::collections::BTreeMap;

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::queue::braid::BraidQueue;
use braid_core::queue::budget::Budget;
use braid_core::queue::class::Class;
use braid_core::queue::limits::{Generation, QueueSettings};
use braid_core::queue::merge::{Bounds, Rules, Variant};
use braid_core::queue::waiting::{Leaving, Waiting};
use braid_core::queue::zfs::VdevQueue;
use braid_core::request::{Content, DeviceOp, Op};
use braid_core::units::{DeviceId, GIB, Instant, IoId, KIB, MIB};
use braid_sim::device::{self, Timing};
use braid_sim::world::Shape;
use braid_sim::{Model, Rng, World};

const SECOND: u64 = 1_000_000_000;
const SIZE: u64 = 1024 * GIB;
const PIECE: u64 = 128 * KIB;
/// Pieces of the scrub that its pace lets it have in the queue.
const AHEAD: u64 = 32;

enum Queue {
    Braid(Box<BraidQueue>),
    Zfs(Box<VdevQueue>),
}

impl Queue {
    fn new(generation: Generation, set: &[(&str, &str)]) -> Queue {
        let mut settings = QueueSettings::new(generation, true);
        settings.set_all(set.iter().copied()).unwrap();
        match generation {
            Generation::Braid => {
                let bounds = Bounds { max_bytes: MIB, max_segments: 256, boundary: 0 };
                let rules = Rules { bounds, variant: Variant::Braid };
                Queue::Braid(Box::new(BraidQueue::new(settings, rules, Budget::Off)))
            }
            _ => Queue::Zfs(Box::new(VdevQueue::new(settings))),
        }
    }

    fn arrive(&mut self, now: Instant, io: Waiting, leaving: &mut Leaving) {
        match self {
            Queue::Braid(queue) => {
                queue.arrive(io);
                queue.turn(now, leaving);
            }
            Queue::Zfs(queue) => queue.arrive(now, io, leaving),
        }
    }

    fn complete(&mut self, now: Instant, class: Class, offset: u64, len: u64, leaving: &mut Leaving) {
        match self {
            Queue::Braid(queue) => {
                queue.complete(now, class, DeviceOp::Read, offset, len, len);
                queue.turn(now, leaving);
            }
            Queue::Zfs(queue) => queue.complete(now, class, leaving),
        }
    }

    fn turn(&mut self, now: Instant, leaving: &mut Leaving) {
        match self {
            Queue::Braid(queue) => queue.turn(now, leaving),
            Queue::Zfs(queue) => queue.turn(now, leaving),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Queue::Braid(queue) => queue.wake_at(),
            Queue::Zfs(queue) => queue.wake_at(),
        }
    }
}

#[derive(Debug, Default)]
struct Outcome {
    /// Random reads answered.
    reads: u64,
    /// Their longest, in ms.
    longest_ms: u64,
    /// MiB that the scrub read.
    scrubbed_mib: u64,
}

/// So many seconds of a scrub, with or without the client.
fn beside_a_scrub(mut queue: Queue, client: bool, seconds: u64) -> Outcome {
    let mut disk = Timing::new(&Model::shipped("hdd").unwrap(), SIZE, 1);
    let (mut rng, mut leaving) = (Rng::new(5), Leaving::default());
    let mut flying = BTreeMap::new();
    let (mut outcome, mut now, mut id, mut place, mut ahead) = (Outcome::default(), 0, 0, 0, 0);
    let mut client_waits = !client;
    while now < seconds * SECOND {
        let io = |id, class, offset, len| {
            let (id, arrived, op) = (IoId(id), Instant(now), DeviceOp::Read);
            Waiting { id, class, op, offset, len, arrived, kind: 0, mergeable: false, optional: false }
        };
        while ahead < AHEAD {
            (id, ahead, place) = (id + 1, ahead + 1, place + PIECE);
            queue.arrive(Instant(now), io(id, Class::Scrub, place, PIECE), &mut leaving);
        }
        if !client_waits {
            (id, client_waits) = (id + 1, true);
            let offset = rng.below(SIZE / 4096) * 4096;
            queue.arrive(Instant(now), io(id, Class::SyncRead, offset, 4096), &mut leaving);
        }
        for command in leaving.commands.drain(..) {
            let member = leaving.members[command.members.start];
            assert_eq!(command.members.len(), 1);
            flying.insert(member.id.0, member);
            let (id, op, offset, len) = (member.id.0, DeviceOp::Read, command.offset, command.len);
            disk.arrive(now, device::Command { id, op, offset, len });
        }
        leaving.clear();
        let due = disk.next_event();
        match (due, queue.wake_at()) {
            (due, Some(wake)) if due.is_none_or(|at| wake.0 < at) => {
                now = now.max(wake.0);
                queue.turn(Instant(now), &mut leaving);
            }
            (Some(at), _) => {
                now = at;
                let Some(done) = disk.complete(now) else { continue };
                let member = flying.remove(&done).unwrap();
                if member.class == Class::Scrub {
                    (ahead, outcome.scrubbed_mib) = (ahead - 1, outcome.scrubbed_mib + PIECE);
                } else {
                    (outcome.reads, client_waits) = (outcome.reads + 1, false);
                    outcome.longest_ms = outcome.longest_ms.max((now - member.arrived.0) / 1_000_000);
                }
                queue.complete(Instant(now), member.class, member.offset, member.len, &mut leaving);
            }
            (None, _) => panic!("nothing on the disk, and nobody wants to be woken"),
        }
    }
    outcome.scrubbed_mib /= MIB;
    outcome
}

#[test]
fn random_reads_beside_a_scrub_in_each_mode() {
    let of = |generation| beside_a_scrub(Queue::new(generation, &[]), true, 20);
    let [before, patch, fixed, braid] =
        [Generation::Before, Generation::Pr11166, Generation::V2_0_1, Generation::Braid].map(of);
    println!("before {before:?}\npr11166 {patch:?}\n2.0.1 {fixed:?}\nbraid {braid:?}");
    for (name, after) in [("zfs-pr11166", &patch), ("zfs-2.0.1", &fixed), ("braid", &braid)] {
        assert!(after.reads >= 7 * before.reads, "{name}: {after:?}, before {before:?}");
        assert!(after.longest_ms * 10 <= before.longest_ms, "{name}: {after:?}, before {before:?}");
        assert!(after.scrubbed_mib > 20, "{name}: the scrub gets on: {after:?}");
    }
    // Alone it is as fast as ever: faster, since three and not two are under way.
    let alone = |generation| beside_a_scrub(Queue::new(generation, &[]), false, 5).scrubbed_mib;
    let base = alone(Generation::Before);
    for generation in [Generation::Pr11166, Generation::V2_0_1, Generation::Braid] {
        assert!(alone(generation) >= base, "{}: {} of {base}", generation.name(), alone(generation));
    }
}

#[test]
fn limits_of_background_classes_hold_in_the_engine() {
    for scheduler in ["braid", "zfs-2.0.1", "zfs-pr11166", "zfs-before"] {
        for most in [1u32, 2] {
            let shape = Shape { size: 256 * MIB, model: Model::shipped("hdd").unwrap(), class: "hdd" };
            let mut world = World::with_pool(1, &[shape], Profile::Single, Profile::Single, &[]);
            let (limit, m) =
                (most.to_string(), |name: &str, value: &str| Command::Set { name: name.into(), value: value.into() });
            world.control(m("scheduler", scheduler)).unwrap();
            for name in ["async_write_min_active", "async_write_max_active", "trim_min_active", "trim_max_active"] {
                world.control(m(name, if name.ends_with("min_active") { "1" } else { &limit })).unwrap();
            }
            // Leaves enough for a checkpoint of several pages, and chunks to give back.
            let v = world.volume("v", 1 << 36, VolumeClass::Auto);
            for i in 0..150 {
                world.submit(0, v, Op::Write { fua: false }, i * 64 * MIB, MIB, Content::Unsaid);
            }
            let mut peaks = [0; Class::COUNT];
            let mut look = |world: &World| {
                let stats = world.engine().queue_stats(DeviceId(1)).unwrap();
                stats.all().zip(&mut peaks).for_each(|((_, c), peak)| *peak = c.commands.max(*peak));
                false
            };
            world.run_until(|w| look(w) || w.outstanding() == 0);
            world.command(Command::Checkpoint);
            world.run_until(&mut look);
            for i in 0..150 {
                world.submit(0, v, Op::Discard, i * 64 * MIB, MIB, Content::Unsaid);
            }
            world.run_until(&mut look);
            world.check_quiet(true);
            let peak = |class: Class| peaks[class.index()];
            println!("{scheduler} {most}: {peaks:?}");
            assert_eq!(peak(Class::AsyncWrite), most, "{scheduler}");
            assert_eq!(peak(Class::Trim), most, "{scheduler}");
        }
    }
}
