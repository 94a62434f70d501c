//! Queues of a pool that serves: what changes under load, and what is counted.

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::queue::class::Class;
use braid_core::queue::stats::ClassStats;
use braid_core::request::{Content, Op};
use braid_core::units::{BLOCK, DeviceId, GIB, MIB, VolumeId};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::world::Shape;
use braid_sim::{Model, World};

const WRITE: Op = Op::Write { fua: false };

fn sata_ssd() -> Model {
    Model::shipped("sata-ssd").unwrap()
}

fn nvme() -> Model {
    Model::shipped("nvme").unwrap()
}

fn cluster() -> Model {
    Model::shipped("ceph-one-node").unwrap()
}

fn pool(model: Model, class: &'static str, devices: usize, profile: Profile) -> (World, VolumeId) {
    let shape = Shape { size: 2 * GIB, model, class };
    let mut world = World::with_pool(1, &vec![shape; devices], profile, profile.system(), &[]);
    let v = world.volume("v", GIB, VolumeClass::Auto);
    for i in 0..64 {
        world.run(v, WRITE, i * MIB, MIB).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run_until_quiet();
    (world, v)
}

fn set(world: &mut World, name: &str, value: &str) {
    let command = Command::Set { name: name.into(), value: value.into() };
    world.control(command).unwrap_or_else(|why| panic!("{name}={value}: {why:?}"));
}

fn stats(world: &World, device: u32, class: Class) -> ClassStats {
    *world.engine().queue_stats(DeviceId(device)).expect("a member").class(class)
}

/// A read of one block.
fn submit(world: &mut World, v: VolumeId, offset: u64) {
    world.submit(0, v, Op::Read, offset, BLOCK, Content::Unsaid);
}

fn finish(world: &mut World) {
    world.run_until_answered();
    world.run_until_quiet();
    world.check_quiet(true);
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}

/// A command of sixteen I/Os fails for one bad block: fifteen come from here at the second attempt, and none of the
/// sixteen counts twice.
#[test]
fn an_io_whose_command_is_parted_counts_once() {
    let (mut world, v) = pool(sata_ssd(), "ssd", 2, Profile::Raid1);
    world.control(Command::Set { name: "read_policy".into(), value: "devid:1".into() }).unwrap();
    let places = world.places(v, 5 * BLOCK);
    let (device, at) = *places.iter().find(|(device, _)| device.0 == 1).unwrap();
    let trouble = Trouble::reads_fail(at..at + 1, 9);
    world.faults.0.push(Fault { device: device.0, trouble });
    let (before, other) = (stats(&world, 1, Class::SyncRead), stats(&world, 2, Class::SyncRead));
    (0..16).for_each(|block| submit(&mut world, v, block * BLOCK));
    finish(&mut world);
    let (after, other) = (stats(&world, 1, Class::SyncRead), stats(&world, 2, Class::SyncRead).ios - other.ios);
    assert_eq!(after.size_after().count() - before.size_after().count(), 17, "one command, then one for each");
    let counts = [
        after.left - before.left,
        after.ios - before.ios,
        (after.bytes - before.bytes) / BLOCK,
        after.size_before().count() - before.size_before().count(),
        after.queue_ns().count() - before.queue_ns().count(),
        after.device_ns().count() - before.device_ns().count(),
    ];
    assert_eq!((counts, other), ([16; 6], 1));
}

/// What the scheduler before has sent is on the device, whatever the next one is called: the watch of every member
/// counts both together.
#[test]
fn the_next_scheduler_counts_what_the_one_before_has_on_the_device() {
    let names = ["braid", "zfs-2.0.1", "none", "deadline"];
    for (from, to) in names.iter().flat_map(|from| names.iter().map(move |to| (from, to))).filter(|(a, b)| a != b) {
        let (mut world, v) = pool(cluster(), "net", 1, Profile::Single);
        set(&mut world, "scheduler", from);
        set(&mut world, "max_active", "24");
        set(&mut world, "queue_depth", "24");
        world.run_until_quiet();
        for i in 0..64 {
            submit(&mut world, v, i * MIB);
            world.drain();
        }
        let on_device = world.engine().report().devices[0].in_flight;
        assert!(on_device >= 10, "{from}: {on_device}");
        set(&mut world, "scheduler", to);
        finish(&mut world);
    }
}

/// The published budget goes on with what it had: four commands, whoever sent them.
#[test]
fn a_budget_counts_what_was_sent_before_it() {
    for (from, to) in [("none", "braid"), ("deadline", "braid"), ("braid", "none"), ("braid", "deadline")] {
        let (mut world, v) = pool(cluster(), "net", 1, Profile::Single);
        set(&mut world, "scheduler", from);
        set(&mut world, "budget", "4");
        world.run_until_quiet();
        (0..8).for_each(|i| submit(&mut world, v, i * MIB));
        world.drain();
        assert_eq!(stats(&world, 1, Class::SyncRead).commands, 4, "{from}");
        world.command(Command::Set { name: "scheduler".into(), value: to.into() });
        (8..16).for_each(|i| submit(&mut world, v, i * MIB));
        let mut most = 0;
        world.run_until(|w| {
            let on_device = stats(w, 1, Class::SyncRead).commands + stats(w, 1, Class::SyncWrite).commands;
            most = most.max(on_device);
            w.outstanding() == 0
        });
        assert_eq!(most, 4, "{from} to {to}");
        finish(&mut world);
    }
}

/// Credit knows of clients whom the scheduler before serves: background work gets no more than its start.
#[test]
fn credit_knows_who_waits_since_before_the_exchange() {
    let (mut world, v) = pool(sata_ssd(), "ssd", 1, Profile::Single);
    set(&mut world, "scheduler", "none");
    world.run_until_quiet();
    let since = world.now();
    world.faults.0.push(Fault { device: 1, trouble: Trouble::Slow { since, until: u64::MAX, factor: 100_000 } });
    (0..4).for_each(|i| submit(&mut world, v, i * MIB));
    world.drain();
    assert_eq!(stats(&world, 1, Class::SyncRead).commands, 4);
    // Those hang, what comes now does not.
    world.faults.0.clear();
    world.command(Command::Set { name: "scheduler".into(), value: "zfs-2.0.1".into() });
    world.command(Command::ScrubStart);
    let left = |w: &World, class| stats(w, 1, class).size_after().count();
    let (mut scrubs, records_before, mut records) = (0, left(&world, Class::SyncWrite), 0);
    world.run_until(|w| {
        let hang = stats(w, 1, Class::SyncRead).commands == 4;
        if hang {
            (scrubs, records) = (left(w, Class::Scrub), left(w, Class::SyncWrite) - records_before);
        }
        !hang
    });
    // One is paid for by those that hang, and five by each command that wrote down the beginning of the scrub.
    assert!((1..=1 + 5 * records).contains(&scrubs) && scrubs < 20, "{scrubs} beside {records} records");
    finish(&mut world);
}

/// Most commands of class async write that the devices had at once, while a checkpoint of 300 leaves was written: one
/// that the log's filling to a half asked for, or one that somebody waits for.
fn peak_of_a_checkpoint(scheduler: &str, percents: (&str, &str), on_demand: bool) -> u32 {
    let (low, high) = percents;
    let set = [
        ("scheduler", scheduler),
        ("async_write_min_active", "4"),
        ("async_write_max_active", "64"),
        ("async_write_active_min_dirty_percent", low),
        ("async_write_active_max_dirty_percent", high),
        // Pages lie side by side: each goes by itself.
        ("aggregation_limit_non_rotating", "0"),
    ];
    let shape = Shape { size: 2 * GIB, model: nvme(), class: "nvme" };
    let mut world = World::with_pool(1, &[shape], Profile::Single, Profile::Single, &set);
    let v = world.volume("v", 1 << 40, VolumeClass::Auto);
    world.run_until_quiet();
    let checkpoints = world.engine().report().counters.checkpoints;
    let blocks = u64::from(world.superblocks()[0].log_blocks);
    let is_over = |w: &World| w.engine().report().counters.checkpoints > checkpoints;
    for i in 0..300 {
        world.run(v, WRITE, i << 30, BLOCK).unwrap();
    }
    assert!(!is_over(&world));
    if on_demand {
        world.control(Command::Checkpoint).unwrap();
    }
    // Each change that is answered fills a block of the log.
    for i in 0..blocks {
        if !is_over(&world) {
            world.run(v, WRITE, ((i % 300) << 30) + (1 + i / 300) * BLOCK, BLOCK).unwrap();
        }
    }
    assert!(is_over(&world));
    finish(&mut world);
    stats(&world, 1, Class::AsyncWrite).peak
}

#[test]
fn the_fuller_the_log_the_more_of_a_checkpoint_goes_at_once() {
    for scheduler in ["braid", "zfs-2.0.1"] {
        let peak = |percents, on_demand| peak_of_a_checkpoint(scheduler, percents, on_demand);
        assert_eq!(peak(("90", "95"), false), 4, "{scheduler}: a half is far below, so the minimum");
        // A little over a half: (50 - 30) / (60 - 30) of the way from 4 to 64.
        assert!((44..=46).contains(&peak(("30", "60"), false)), "{scheduler}: {}", peak(("30", "60"), false));
        assert_eq!(peak(("10", "20"), false), 64, "{scheduler}: a half is above");
        assert_eq!(peak(("90", "95"), true), 64, "{scheduler}: somebody waits for all of it");
    }
}

/// With a minimum of nothing and a log that is nearly empty, a checkpoint that nobody waits for goes on all the same.
#[test]
fn a_checkpoint_without_a_minimum_ends() {
    for scheduler in ["braid", "zfs-2.0.1", "zfs-before"] {
        let dirty = [("async_write_active_min_dirty_percent", "90"), ("async_write_active_max_dirty_percent", "95")];
        let set = [("scheduler", scheduler), ("async_write_min_active", "0"), dirty[0], dirty[1]];
        let shape = Shape { size: 2 * GIB, model: nvme(), class: "nvme" };
        let mut world = World::with_pool(1, &[shape], Profile::Single, Profile::Single, &set);
        let v = world.volume("v", 1 << 40, VolumeClass::Auto);
        let checkpoints = |w: &World| w.engine().report().counters.checkpoints;
        let before = checkpoints(&world);
        let blocks = u64::from(world.superblocks()[0].log_blocks);
        for i in 0..blocks {
            world.run(v, WRITE, i << 17, BLOCK).unwrap();
        }
        finish(&mut world);
        assert!(checkpoints(&world) > before, "{scheduler}");
    }
}
