//! Write intent: what is marked before a write, what is made alike after a crash, and what it costs.

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::regions::REGION;
use braid_core::report::ResyncReport;
use braid_core::request::{Content, DeviceOp, Op};
use braid_core::units::{BLOCK, MIB, VolumeId};
use braid_sim::world::Shape;
use braid_sim::{Crash, Model, World};

use crate::common::all_is_well;
use crate::scrub::{WRITE, fill, pool};

fn resync(world: &World) -> ResyncReport {
    world.engine().report().resync
}

#[test]
fn first_writes_need_no_mark_and_overwrites_do_and_an_idle_pool_becomes_clean() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    assert_eq!(resync(&world).dirty_regions, 0, "nobody sees a first write before its record");
    world.run(v, WRITE, 5 * MIB, BLOCK).unwrap();
    assert_eq!(resync(&world).dirty_regions, 1);
    world.run(v, WRITE, 6 * MIB, BLOCK).unwrap();
    assert_eq!(resync(&world).dirty_regions, 1, "the same region");
    world.run(v, WRITE, 40 << 33, BLOCK).unwrap();
    assert_eq!(resync(&world).dirty_regions, 2);
    all_is_well(&mut world);
    assert_eq!(resync(&world), ResyncReport::default(), "after some seconds it is clean");
}

#[test]
fn one_copy_needs_no_marks() {
    for (devices, profile) in [(1, Profile::Single), (2, Profile::Raid0)] {
        let (mut world, v) = pool(devices, profile, Profile::Single);
        fill(&mut world, v);
        world.run(v, WRITE, 5 * MIB, BLOCK).unwrap();
        assert_eq!(resync(&world).dirty_regions, 0, "{profile:?}");
    }
}

#[test]
fn a_discard_that_is_not_stable_leaves_blocks_that_a_power_cut_brings_back() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    world.run_until_quiet();
    world.run(v, Op::Discard, 8 * BLOCK, BLOCK).unwrap();
    world.run(v, WRITE, 8 * BLOCK, BLOCK).unwrap();
    assert_eq!(resync(&world).dirty_regions, 1, "the old map may come back and name the block");
}

#[test]
fn a_clean_stop_leaves_nothing_to_do_and_a_crash_leaves_what_was_marked() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    world.run_until_quiet();
    world.run(v, WRITE, 5 * MIB, BLOCK).unwrap();
    world.control(Command::Close).unwrap();
    world.run_until_quiet();
    world.crash(Crash::Process);
    world.open().unwrap();
    assert_eq!(resync(&world), ResyncReport::default());
    world.run_until_quiet();
    world.run(v, WRITE, 5 * MIB, BLOCK).unwrap();
    world.crash(Crash::Process);
    world.open().unwrap();
    assert_eq!(resync(&world).regions_left, 1);
    world.keep_dispatched = true;
    all_is_well(&mut world);
    // Region 1 and no other: 4 MiB of each copy.
    let read: u64 = world.dispatched.iter().filter(|d| d.op == DeviceOp::Read).map(|d| d.len).sum();
    assert!(read >= 2 * REGION, "{read}");
    assert_eq!((resync(&world).units_done, resync(&world).dirty_regions), (64, 0));
}

/// Writes over one block again and again, and stops in the middle.
fn torn(seed: u64, profile: Profile, devices: usize, crash: Crash) -> (World, VolumeId) {
    let shape = Shape { size: 160 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let metadata = Profile::Raid1.min(profile);
    let mut world = World::with_pool(seed, &vec![shape; devices], profile, metadata, &[]);
    let v = world.volume("v", 1 << 30, VolumeClass::Auto);
    world.run(v, WRITE, 0, 8 * MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    for i in 0..40u64 {
        let at = world.rng.below(8 * MIB / BLOCK - 16) * BLOCK;
        let len = world.rng.between(1, 16) * BLOCK;
        world.submit(i as u32, v, WRITE, at, len, Content::Unsaid);
    }
    for _ in 0..world.rng.between(3, 60) {
        world.step();
    }
    world.crash(crash);
    (world, v)
}

#[test]
fn after_a_crash_copies_are_equal_and_every_read_says_the_same() {
    let mut differed = 0;
    for seed in 0..60 {
        let crash = if seed % 2 == 0 { Crash::Power } else { Crash::Process };
        let (profile, devices) =
            [(Profile::Raid1, 2), (Profile::Dup, 1), (Profile::Raid10, 4), (Profile::Raid1c3, 3)][seed as usize % 4];
        let (mut world, v) = torn(seed, profile, devices, crash);
        world.open().unwrap();
        differed += world.unequal().len();
        // Reads come first, from whatever copy, and a crash in the middle of it; the oracle holds them to what they said.
        for i in 0..8 {
            world.submit(i, v, Op::Read, u64::from(i) * MIB, MIB, Content::Unsaid);
        }
        for _ in 0..world.rng.between(0, 400) {
            world.step();
        }
        if world.rng.percent(50) {
            world.crash(Crash::Process);
            world.open().unwrap();
        }
        all_is_well(&mut world);
        assert_eq!(world.unequal(), [], "seed {seed}");
    }
    assert!(differed > 100, "only {differed} blocks ever differed");
}

#[test]
fn few_marks_are_enough_and_many_wait_for_a_checkpoint() {
    let shape = Shape { size: 400 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let set = [("dirty_regions", "64")];
    let mut world = World::with_pool(3, &vec![shape; 2], Profile::Raid1, Profile::Raid1, &set);
    let v = world.volume("v", 1 << 40, VolumeClass::Auto);
    for round in 0..3u64 {
        for i in 0..600u64 {
            world.submit(i as u32 % 32, v, WRITE, i * 3 * REGION, BLOCK, Content::Unsaid);
            if i % 8 == 7 {
                world.run_until_answered();
            }
            let dirty = resync(&world).dirty_regions;
            assert!(dirty <= 64 + 32, "{dirty} in round {round}");
        }
    }
    all_is_well(&mut world);
    assert_eq!(resync(&world).dirty_regions, 0);
    world.crash(Crash::Power);
    world.open().unwrap();
    all_is_well(&mut world);
}

/// Device commands for a load that writes over what is there, with intent and without.
fn commands(intent: bool, ask: impl Fn(&mut World, VolumeId, u64)) -> (u64, u64) {
    let shape = Shape { size: 3 << 30, model: Model::shipped("nvme").unwrap(), class: "nvme" };
    let mut world = World::without_payload(1);
    world.create(&vec![shape; 2], Profile::Raid1, Profile::Raid1, &[]).unwrap();
    world.open().unwrap();
    world.engine.as_mut().unwrap().set_intent(intent);
    let v = world.volume("v", 1 << 30, VolumeClass::Auto);
    for i in 0..128 {
        world.submit(0, v, WRITE, i * 8 * MIB, 8 * MIB, Content::Unsaid);
    }
    world.run_until_quiet();
    (world.keep_dispatched, world.dispatched) = (true, Vec::new());
    let before = world.now();
    for i in 0..4096 {
        ask(&mut world, v, i);
        world.run_until(|w| w.outstanding() < 16);
        world.answers.clear();
    }
    world.run_until_answered();
    (world.dispatched.len() as u64, world.now() - before)
}

/// The table of docs/decisions.md: `cargo test -p braid-sim --test it intent::what_marks_cost -- --nocapture`.
#[test]
fn what_marks_cost() {
    type Load = (&'static str, fn(&mut World, VolumeId, u64), u64);
    let loads: [Load; 3] = [
        (
            "sequential, 64 KiB",
            |w, v, i| {
                w.submit(0, v, WRITE, i % 16384 * 65_536, 65_536, Content::Unsaid);
            },
            2,
        ),
        (
            "random over 1 GiB, 4 KiB",
            |w, v, i| {
                let at = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 30) / BLOCK * BLOCK;
                w.submit(i as u32 % 16, v, WRITE, at, BLOCK, Content::Unsaid);
            },
            12,
        ),
        (
            "random over 1 GiB, 4 KiB, every 4th a flush",
            |w, v, i| {
                let at = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 30) / BLOCK * BLOCK;
                let (op, len) = if i % 4 == 3 { (Op::Flush, 0) } else { (WRITE, BLOCK) };
                w.submit(i as u32 % 16, v, op, if len == 0 { 0 } else { at }, len, Content::Unsaid);
            },
            12,
        ),
    ];
    for (name, ask, most) in loads {
        let [without, with] = [false, true].map(|intent| commands(intent, ask));
        println!(
            "| {name} | {}.{:03} | {}.{:03} | {} us | {} us |",
            without.0 / 4096,
            without.0 * 1000 / 4096 % 1000,
            with.0 / 4096,
            with.0 * 1000 / 4096 % 1000,
            without.1 / 4_096_000,
            with.1 / 4_096_000
        );
        assert!(with.0 <= without.0 + without.0 * most / 100, "{name}: {} commands, {} without", with.0, without.0);
    }
}
