//! What the queues do for an engine that serves: published numbers again, and what merging survives.

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::queue::class::Class;
use braid_core::queue::stats::Histogram;
use braid_core::request::{Content, DeviceOp, Op};
use braid_core::units::{DeviceId, GIB, KIB, MIB, VolumeId};
use braid_sim::Model;
use braid_sim::fault::{Fault, Trouble};
use braid_sim::table::Lab;
use braid_sim::world::Shape;
use braid_sim::{Rng, World};

const WRITE: Op = Op::Write { fua: false };
const SECOND: u64 = 1_000_000_000;
const BLOCK: u64 = 4 * KIB;

type Settings<'a> = &'a [(&'a str, &'a str)];

/// What a measured Ceph of one node does.
fn cluster() -> Model {
    Model::shipped("ceph-one-node").unwrap()
}

/// A price per command, 64 at a time, and nothing in common. No limit can gain more than twice.
fn servers() -> Model {
    let mut model = cluster();
    for key in ["request_ns", "server_kib_ns", "round_trip_ns", "object_kib"] {
        model.set(key, 0, "chosen").unwrap();
    }
    for (key, value) in [("servers", 64), ("read_ns", 1_000_000), ("write_ns", 1_000_000), ("flush_ns", 1_000_000)] {
        model.set(key, value, "chosen").unwrap();
    }
    model
}

fn set(world: &mut World, settings: Settings<'_>) {
    for (name, value) in settings {
        let command = Command::Set { name: name.to_string(), value: value.to_string() };
        world.control(command).unwrap_or_else(|why| panic!("{name}={value}: {why:?}"));
    }
}

/// A pool whose volume is written from end to end.
fn written(model: &Model, class: &'static str, devices: usize, profile: Profile, bytes: u64) -> (World, VolumeId) {
    let shape = Shape { size: 2 * bytes + 256 * MIB, model: model.clone(), class };
    let mut world = World::with_pool(1, &vec![shape; devices], profile, profile.system(), &[]);
    let v = world.volume("v", bytes, VolumeClass::Auto);
    for at in (0..bytes).step_by(MIB as usize) {
        world.submit(0, v, WRITE, at, MIB, Content::Unsaid);
        if at / MIB % 64 == 63 {
            world.run_until_answered();
        }
    }
    world.run_until_answered();
    world.control(Command::Checkpoint).unwrap();
    world.run_until_quiet();
    world.answers.clear();
    (world, v)
}

/// A client that keeps so many requests of 4 KiB outstanding and submits again, one by one, what was answered.
struct Load {
    op: Op,
    depth: u64,
    random: bool,
}

const SEQUENTIAL: Load = Load { op: Op::Read, depth: 128, random: false };

impl Load {
    /// Requests answered in `ns` after a time to warm up; with the moment of the last answer.
    fn run(&self, world: &mut World, v: VolumeId, bytes: u64, warm: u64, ns: u64) -> (u64, u64) {
        let (mut rng, mut next) = (Rng::new(3), 0);
        let start = world.now();
        let mut submit = |world: &mut World| {
            let place = if self.random { rng.below(bytes / BLOCK) } else { next % (bytes / BLOCK) };
            next += 1;
            world.submit(0, v, self.op, place * BLOCK, BLOCK, Content::Unsaid);
            world.drain();
        };
        (0..self.depth).for_each(|_| submit(world));
        let (mut answered, mut last) = (0, 0);
        while world.now() < start + warm + ns {
            assert!(world.step());
            for answer in std::mem::take(&mut world.answers) {
                assert_eq!(answer.result, Ok(()));
                answered += u64::from(world.now() >= start + warm);
                last = world.now() - start;
                submit(world);
            }
        }
        world.run_until_answered();
        world.answers.clear();
        assert!(world.wrong.is_empty(), "{:?}", world.wrong);
        (answered, last)
    }
}

/// What a load gets on one device of this model under these settings.
fn rate(model: &Model, settings: Settings<'_>, load: &Load) -> (u64, u64) {
    const BYTES: u64 = 32 * MIB;
    let (mut world, v) = written(model, "net", 1, Profile::Single, BYTES);
    set(&mut world, settings);
    world.run_until_quiet();
    world.exact = true;
    // A search of `auto` takes some thousand commands.
    let warm = if load.depth == 1 { 0 } else { 128 * model.get("request_ns").unwrap().max(10_000) * 1000 };
    load.run(&mut world, v, BYTES, warm, SECOND / 4)
}

const NONE: Settings<'_> = &[("scheduler", "none"), ("budget", "off")];
const NONE_64: Settings<'_> = &[("scheduler", "none"), ("budget", "64")];
const DEADLINE_64: Settings<'_> = &[("scheduler", "deadline"), ("queue_depth", "64")];
const OFF: Settings<'_> = &[("budget", "off")];
const BRAID_64: Settings<'_> = &[("budget", "64")];
const AUTO: Settings<'_> = &[("budget", "auto")];

#[test]
fn budgets_of_a_device_with_a_price_per_command() {
    for op in [Op::Read, WRITE] {
        let load = Load { op, ..SEQUENTIAL };
        // The cluster has a price per byte too, and a budget of 64 gave 1.6 times there.
        for (model, fixed_min, auto_min) in [(&servers(), 190, 190), (&cluster(), 175, 400)] {
            let base = rate(model, NONE, &load).0;
            let gain = |settings| rate(model, settings, &load).0 * 100 / base;
            let braid = gain(OFF);
            assert!((99..=101).contains(&braid), "without a budget nothing waits, and so nothing joins: {braid} %");
            for settings in [NONE_64, BRAID_64] {
                let fixed = gain(settings);
                assert!(fixed >= fixed_min, "{op:?}, {settings:?}: {fixed} %; posted were 193 % of reads");
            }
            let depth = gain(DEADLINE_64);
            assert!((175..=200).contains(&depth), "{op:?}: {depth} %; posted were 180 % of reads");
            let auto = gain(AUTO);
            assert!(auto >= auto_min, "{op:?}: {auto} %");
        }
    }
}

#[test]
fn budgets_leave_random_load_alone() {
    let load = Load { random: true, ..SEQUENTIAL };
    for model in [&servers(), &cluster()] {
        for (off, on) in [(NONE, NONE_64), (OFF, AUTO)] {
            let (base, kept) = (rate(model, off, &load).0, rate(model, on, &load).0);
            assert!(kept * 100 >= base * 98 && kept * 100 <= base * 102, "{on:?}: {kept} of {base}");
        }
    }
}

#[test]
fn at_depth_1_budgets_change_nothing_at_all() {
    for random in [false, true] {
        for op in [Op::Read, WRITE] {
            let load = Load { op, depth: 1, random };
            let base = rate(&cluster(), NONE, &load);
            for settings in [NONE_64, OFF, AUTO] {
                assert_eq!(rate(&cluster(), settings, &load), base, "{settings:?}");
            }
        }
    }
}

/// What the budget holds goes at the bound of its wait, although nothing completes: the engine has to be woken for it.
#[test]
fn a_held_run_goes_at_its_bound_beside_a_device_that_is_stuck() {
    const BYTES: u64 = 32 * MIB;
    // The edge of a bucket above the bound, which for `auto` is a command's time before the device was stuck.
    for (wait, bound_ns) in [("300us", 1 << 19), ("auto", 1 << 22)] {
        let (mut world, v) = written(&cluster(), "net", 1, Profile::Single, BYTES);
        set(&mut world, &[("budget_wait", wait)]);
        world.exact = true;
        SEQUENTIAL.run(&mut world, v, BYTES, 3 * SECOND, SECOND / 4);
        let held = |world: &World| {
            let reasons = world.engine().report().devices[0].queue.reasons.clone();
            reasons.into_iter().find(|(name, _)| *name == "held_by_budget").expect("a reason").1
        };
        let waits = |world: &World| {
            let stats = world.engine().queue_stats(DeviceId(1)).unwrap();
            stats.class(Class::SyncRead).queue_ns()
        };
        let (held_before, before) = (held(&world), waits(&world));
        let (device, since) = (1, world.now());
        world.faults.0.push(Fault { device, trouble: Trouble::Slow { since, until: u64::MAX, factor: 1000 } });
        for block in 0..64 {
            world.submit(0, v, Op::Read, block * BLOCK, BLOCK, Content::Unsaid);
            world.drain();
        }
        world.run_until_answered();
        let after = waits(&world);
        assert!(held(&world) > held_before, "it held somebody");
        assert_eq!(after.count() - before.count(), 64);
        // The device took most of a second.
        let beyond = |h: &Histogram| h.counts[Histogram::bucket_of(bound_ns) + 1..].iter().sum::<u64>();
        assert_eq!(beyond(&after), beyond(&before), "{wait}");
    }
}

/// Commands for the payload of an operation, and their bytes.
fn commands(world: &World, op: Op) -> (u64, u64) {
    let wanted = |o: DeviceOp| match op {
        Op::Read => o == DeviceOp::Read,
        _ => matches!(o, DeviceOp::Write { .. }),
    };
    let sizes = || world.dispatched.iter().filter(|d| wanted(d.op)).map(|d| d.len);
    (sizes().count() as u64, sizes().sum())
}

/// The whole volume in requests of `size`, `batch` of them at a time.
fn in_batches(world: &mut World, v: VolumeId, op: Op, bytes: u64, size: u64, batch: u64) -> (u64, u64) {
    world.run_until_quiet();
    world.dispatched.clear();
    world.keep_dispatched = true;
    for first in (0..bytes).step_by((size * batch) as usize) {
        for at in (first..bytes.min(first + size * batch)).step_by(size as usize) {
            world.submit(0, v, op, at, size, Content::Unsaid);
        }
        world.run_until_answered();
        assert!(world.answers.drain(..).all(|a| a.result.is_ok()));
    }
    world.keep_dispatched = false;
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    commands(world, op)
}

#[test]
fn batches_of_1024_are_commands_of_4_mib() {
    // The published case, and the others on an eighth of it.
    let rows = [("braid", Op::Read, GIB), ("braid", WRITE, GIB / 8), ("none", Op::Read, GIB / 8)];
    for (scheduler, op, bytes) in rows.into_iter().chain([("none", WRITE, GIB / 8), ("deadline", Op::Read, GIB / 8)]) {
        let (mut world, v) = written(&cluster(), "net", 1, Profile::Single, bytes);
        // The chunks of a pool do not begin at multiples of 4 MiB of the device, as objects of an image do.
        let settings = [("max_request", "4M"), ("max_segments", "1024"), ("boundary", "0")];
        set(&mut world, &[("scheduler", scheduler)]);
        set(&mut world, &settings);
        let (commands, moved) = in_batches(&mut world, v, op, bytes, BLOCK, 1024);
        let published = 252 * bytes / GIB..=260 * bytes / GIB + 1;
        assert!(published.contains(&commands) && moved >= bytes, "{scheduler} {op:?}: {commands} of {moved}");
    }
}

/// Reads of 4 KiB, one after the other, and how many commands they become: policies differ in when they turn to the
/// other mirror, and none of them may turn within a window.
#[test]
fn a_stream_stays_on_one_mirror_for_a_window_under_every_policy() {
    const BYTES: u64 = 16 * MIB;
    let policies = ["latency", "queue", "pid", "latency-2021", "latency-2024", "device", "devid:2"];
    let rotations = ["round-robin", "round-robin:4096", "zfs", "roundrobin-v3"];
    for (a, b) in [("sata-ssd", "sata-ssd"), ("hdd", "hdd"), ("hdd", "nvme")] {
        let shape = |model| Shape { size: 2 * BYTES + 256 * MIB, model: Model::shipped(model).unwrap(), class: "ssd" };
        let mut world = World::with_pool(1, &[shape(a), shape(b)], Profile::Raid1, Profile::Raid1, &[]);
        let v = world.volume("v", BYTES, VolumeClass::Auto);
        in_batches(&mut world, v, WRITE, BYTES, BLOCK, 256);
        // Again, now that every place is known: one command a batch on each mirror, and marks of write intent.
        let (writes, bytes) = in_batches(&mut world, v, WRITE, BYTES, BLOCK, 256);
        assert!(bytes <= 2 * BYTES + 4 * BLOCK && writes <= 2 * BYTES / MIB + 4, "writes join as reads do: {writes}");
        for policy in policies.into_iter().chain(rotations) {
            set(&mut world, &[("read_policy", policy)]);
            let (commands, bytes) = in_batches(&mut world, v, Op::Read, BYTES, BLOCK, 256);
            // One turn in each 256 KiB, and a probe or two.
            assert!(bytes == BYTES && commands <= 4 * BYTES / MIB + 4, "{policy}: {commands} commands");
        }
        // Asked for each piece of 4 KiB, which is how the published amplification comes about: 256 commands a MiB.
        for policy in ["round-robin:4096", "roundrobin-v3"] {
            set(&mut world, &[("read_policy", policy)]);
            world.engine.as_mut().unwrap().set_stream_window(0);
            let (commands, _) = in_batches(&mut world, v, Op::Read, BYTES, BLOCK, 256);
            assert_eq!(commands, BYTES / BLOCK, "{policy}");
        }
    }
}

/// Published: 2.6.39 asks for each page; ours are one translation a piece and one command a strip.
#[test]
fn striped_records_are_counted_as_published_and_need_no_more_commands_than_strips() {
    let sheet = braid_sim::tables::find("dm-stripe").unwrap().sheet(&Lab::with_threads(1));
    assert!(sheet.judged() == 28 && sheet.misses() == 0, "{sheet:#?}");
}

/// Who makes large requests of small ones, as posted for rbd, and what braid does in their place.
#[test]
fn the_rbd_posting_and_its_review_are_met() {
    let sheet = braid_sim::tables::find("rbd-merge").unwrap().sheet(&Lab::new());
    let judged = |row: &&braid_sim::table::Row| row.what.starts_with("none") || row.what.starts_with("mq-");
    let rows: Vec<_> = sheet.rows.iter().filter(judged).collect();
    assert_eq!(rows.len(), 14);
    rows.iter().for_each(|row| assert!(row.is_judged() && row.holds(), "{row:?}"));
    let [mqd_1, mqd_2] = [1, 3].map(|i: usize| rows[i].ours);
    assert!(mqd_2 > mqd_1 * 1.1, "the budget merges more: {mqd_1} and {mqd_2}");
    assert!(rows[2].ours < rows[0].ours, "and is no faster");
    let beats = |what: &str| sheet.claims.iter().find(|claim| claim.what.starts_with(what)).unwrap();
    for what in ["braid is at least", "braid, its defaults, batches", "disk store, read: braid", "random load"] {
        assert!(beats(what).holds, "{:?}", beats(what));
    }
}
