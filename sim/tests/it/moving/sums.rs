//! Checksums while content moves: what arrives is what was written, whichever copy was changed silently before, and is held to
//! its checksums where it arrived.

use braid_core::control::{Command, VolumeClass};
use braid_core::job::Choice;
use braid_core::request::{Event, Op};
use braid_core::scrub::State;
use braid_core::units::{DeviceId, MIB, VolumeId};
use braid_core::{ChunkType, Profile};
use braid_sim::world::Shape;
use braid_sim::{Crash, Model, World};

const WRITE: Op = Op::Write { fua: false };
const BLOCK: u64 = 4096;
const SUMS: VolumeId = VolumeId(0);
/// Blocks that are changed silently.
const CHANGED: u64 = 30;

fn shape(mib: u64) -> Shape {
    Shape { size: mib * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" }
}

/// A pool that was closed with content, whose sums are at home, and opened again.
fn pool(devices: usize, profile: Profile, kind: &str) -> (World, VolumeId) {
    let set = [("checksum", kind), ("checksum_cache", "256K")];
    let mut world = World::with_pool(1, &vec![shape(256); devices], profile, profile.system(), &set);
    let v = world.volume("v", 1 << 36, VolumeClass::Auto);
    for i in 0..CHANGED {
        world.run(v, WRITE, i * 5 * MIB, 200 * 1024).unwrap();
    }
    reopen(&mut world);
    (world, v)
}

fn reopen(world: &mut World) {
    world.control(Command::Close).unwrap();
    world.run_until_quiet();
    world.crash(Crash::Power);
    world.open().unwrap();
    world.run_until_quiet();
}

/// One copy of some block of every place that was written is changed.
fn change(world: &mut World, v: VolumeId) {
    for i in 0..CHANGED {
        let places = world.places(v, i * 5 * MIB + i % 50 * BLOCK);
        let (device, place) = places[i as usize % places.len()];
        world.disks[device.index() - 1].corrupt(place + i * 131 % BLOCK, 1 << (i % 8));
    }
}

/// Every place has a block of which all copies are changed in the same way: only its checksum knows.
fn lose(world: &mut World, v: VolumeId) {
    for i in 0..CHANGED {
        let at = i * 5 * MIB + (i + 25) % 50 * BLOCK;
        for (device, place) in world.places(v, at) {
            world.disks[device.index() - 1].corrupt(place + i * 7, 1);
        }
        assert!(world.run(v, Op::Read, at, BLOCK).is_err(), "block {at} has no checksum");
        world.run(v, WRITE, at, BLOCK).unwrap();
    }
}

/// One copy of each page is.
fn change_pages(world: &mut World) -> usize {
    let map = &world.engine().pool().volume(SUMS).unwrap().map;
    let written = |(unit, e): (u64, braid_core::volume::Entry)| {
        (0..16).filter(move |b| e.written() >> b & 1 == 1).map(move |b| unit * 16 + b)
    };
    let pages: Vec<u64> = map.entries().flat_map(written).collect();
    for &page in &pages {
        let places = world.places(SUMS, page * BLOCK);
        let (device, place) = places[page as usize % places.len()];
        world.disks[device.index() - 1].corrupt(place + page * 67 % BLOCK, 4);
    }
    pages.len()
}

fn join(world: &mut World) -> u32 {
    let id = world.engine().pool().next_device_id().0;
    let tag = world.add_disk(&shape(256));
    world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
    id
}

fn finished(world: &mut World) {
    let state = |w: &World| w.engine().pool().job.as_ref().map(|job| job.state);
    world.run_until(|w| state(w) != Some(State::Running));
    let told = world.events.iter().rev().find(|e| matches!(e, Event::JobStopped { .. } | Event::MoveLost { .. }));
    assert_eq!(state(world), Some(State::Finished), "{told:?}");
    world.run_until_quiet();
}

fn scrub(world: &mut World) {
    world.control(Command::ScrubStart).unwrap();
    world.run_until(|w| w.engine().report().scrub.scrub.state == State::Finished);
    world.run_until_quiet();
}

fn wrong_blocks(world: &World) -> u64 {
    world.engine().report().devices.iter().map(|d| d.io.checksum_errors).sum()
}

/// All reads are right, also after a power cut, and every block is still held to its checksum.
fn is_well_and_watched(world: &mut World, v: VolumeId) {
    for _ in 0..2 {
        world.run_until_quiet();
        world.verify();
        world.run_until_quiet();
        world.check_quiet(true);
        assert!(world.wrong.is_empty(), "{:?}", world.wrong);
        assert!(world.answers.drain(..).all(|a| a.result.is_ok()));
        world.crash(Crash::Power);
        world.open().unwrap();
        world.run_until_quiet();
    }
    let told = world.events.iter().find(|e| matches!(e, Event::SumsLost { .. } | Event::BlocksLost { .. }));
    assert!(told.is_none(), "{told:?}");
    lose(world, v);
    scrub(world);
    assert_eq!((world.unequal(), world.unequal_pages()), (vec![], vec![]));
    let before = wrong_blocks(world);
    change(world, v);
    scrub(world);
    assert_eq!(wrong_blocks(world) - before, CHANGED, "what is changed now is noticed");
}

fn job(world: &mut World, v: VolumeId, command: Command) {
    world.control(command).unwrap();
    for i in 0..60 {
        world.run(v, WRITE, i % 20 * 7 * MIB + i * BLOCK, 3 * BLOCK).unwrap();
    }
    finished(world);
}

#[test]
fn what_leaves_a_member_is_the_right_copy_and_takes_its_sums_along() {
    for kind in ["crc32c", "xxh3"] {
        for device in 1..=3 {
            let (mut world, v) = pool(3, Profile::Raid1, kind);
            change(&mut world, v);
            assert!(change_pages(&mut world) > 1);
            job(&mut world, v, Command::RemoveDevice { device: DeviceId(device) });
            assert!(world.engine().pool().device(DeviceId(device)).is_none());
            is_well_and_watched(&mut world, v);
        }
    }
}

#[test]
fn a_column_gets_the_right_copy() {
    for profile in [Profile::Raid1, Profile::Dup, Profile::Raid10] {
        let (mut world, v) = pool(if profile == Profile::Raid10 { 4 } else { 2 }, profile, "crc32c");
        println!("{profile:?}");
        let old = world.places(v, 0)[0].0;
        let by = DeviceId(join(&mut world));
        reopen(&mut world);
        change(&mut world, v);
        assert!(change_pages(&mut world) > 1);
        job(&mut world, v, Command::ReplaceDevice { device: old, by });
        assert!(world.engine().pool().device(old).is_none());
        is_well_and_watched(&mut world, v);
    }
}

#[test]
fn a_balance_sums_what_it_writes() {
    for (from, to) in [(Profile::Single, Profile::Raid1), (Profile::Raid1, Profile::Dup)] {
        let (mut world, v) = pool(3, from, "crc32c");
        if from != Profile::Single {
            change(&mut world, v);
            assert!(change_pages(&mut world) > 1);
        }
        let choice = Some(Choice { convert: Some(to), ..Choice::default() });
        job(&mut world, v, Command::Balance { data: choice.clone(), metadata: choice });
        let is_old = |c: &braid_core::chunk::Chunk| c.kind != ChunkType::System && c.profile == from;
        assert!(!world.engine().pool().chunks().any(is_old));
        is_well_and_watched(&mut world, v);
    }
}

/// Pages go home while their columns go elsewhere: both places get them.
#[test]
fn pages_written_meanwhile_are_in_the_new_column_too() {
    for steps in (0..60).map(|i| i * 40) {
        let (mut world, v) = pool(2, Profile::Raid1, "crc32c");
        let by = DeviceId(join(&mut world));
        world.command(Command::ReplaceDevice { device: DeviceId(1), by });
        (0..steps).for_each(|_| _ = world.step());
        for i in 0..4 {
            world.run(v, WRITE, i * 35 * MIB, BLOCK).unwrap();
        }
        world.command(Command::Checkpoint);
        finished(&mut world);
        assert_eq!(world.unequal_pages(), [], "after {steps} steps");
        if steps % 400 == 0 {
            is_well_and_watched(&mut world, v);
        }
    }
}

/// What no copy holds any more is not copied as if it were right.
#[test]
fn what_is_lost_stays_where_it_is() {
    let (mut world, v) = pool(2, Profile::Single, "crc32c");
    let (device, place) = world.places(v, 3 * BLOCK)[0];
    join(&mut world);
    world.disks[device.index() - 1].corrupt(place, 1);
    world.control(Command::RemoveDevice { device }).unwrap();
    world.run_until(|w| w.engine().pool().job.as_ref().is_some_and(|job| job.state != State::Running));
    assert_eq!(world.engine().pool().job.as_ref().unwrap().lost, 1);
    assert!(world.events.iter().any(|e| matches!(e, Event::MoveLost { offset: 0, .. })));
    assert!(world.run(v, Op::Read, 3 * BLOCK, BLOCK).is_err());
    world.run(v, WRITE, 3 * BLOCK, BLOCK).unwrap();
    world.control(Command::RemoveDevice { device }).unwrap();
    finished(&mut world);
    world.events.clear();
    is_well_and_watched(&mut world, v);
}
