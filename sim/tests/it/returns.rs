//! What spilled goes back by itself, and a pool that lacks a member goes on beyond the chunks it has.

use braid_core::control::{Command, VolumeClass};
use braid_core::request::{Content, Event, Op};
use braid_core::scrub::State;
use braid_core::units::{DeviceId, KIB, MIB, VolumeId};
use braid_core::{ChunkType, Profile};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::world::Shape;
use braid_sim::{Crash, Model, World};

use crate::common::all_answered_well;

const WRITE: Op = Op::Write { fua: false };
const FAST: DeviceId = DeviceId(1);
const META: usize = ChunkType::Metadata as usize;

fn shape(mib: u64, class: &'static str) -> Shape {
    let model = Model::shipped(if class == "hdd" { "hdd" } else { "sata-ssd" }).unwrap();
    Shape { size: mib * MIB, model, class }
}

fn set(world: &mut World, name: &str, value: &str) {
    world.control(Command::Set { name: name.into(), value: value.into() }).unwrap();
}

fn put(world: &mut World, v: VolumeId, mib: u64, of: Content) {
    let tag = world.submit(0, v, WRITE, mib * MIB, MIB, of);
    world.run_until_answered();
    assert_eq!(world.answers.iter().find(|a| a.tag == tag).unwrap().result, Ok(()), "{mib}");
}

/// 32 MiB on flash, 512 on a disk, and 46 MiB of metadata: some of it spilled.
fn spilled() -> (World, VolumeId) {
    let mut world = World::with_pool(1, &[shape(32, "nvme"), shape(512, "hdd")], Profile::Single, Profile::Single, &[]);
    let v = world.volume("v", 256 * MIB, VolumeClass::Auto);
    for mib in 64..110 {
        put(&mut world, v, mib, Content::Metadata);
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    assert!(spill(&world) > 0);
    (world, v)
}

fn spill(world: &World) -> u64 {
    world.engine().report().spilled[META]
}

fn begun(world: &World) -> usize {
    world.events.iter().filter(|e| matches!(e, Event::ReturnStarted)).count()
}

fn moved(world: &World) -> u64 {
    let ended = |e: &Event| if let Event::JobEnded { task: "return", bytes, .. } = e { Some(*bytes) } else { None };
    world.events.iter().filter_map(ended).sum()
}

#[test]
fn what_spilled_goes_back_when_a_fast_member_comes() {
    for crash in [None, Some(Crash::Power), Some(Crash::Process)] {
        let (mut world, v) = spilled();
        world.run_until_quiet();
        assert_eq!((begun(&world), moved(&world)), (0, 0), "there is no room");
        let tag = world.add_disk(&shape(128, "nvme"));
        world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
        world.run_until(|w| begun(w) > 0);
        if let Some(crash) = crash {
            (0..150).for_each(|_| _ = world.step());
            world.crash(crash);
            world.open().unwrap();
        }
        world.run_until_quiet();
        assert_eq!(spill(&world), 0, "{crash:?}");
        assert_eq!(world.engine().pool().job.as_ref().map(|job| job.state), Some(State::Finished));
        let slow = |on: &[DeviceId]| on.contains(&DeviceId(2));
        assert!(!world.chunks(ChunkType::Metadata).iter().any(|(_, on)| slow(on)));
        // A power cut may have taken back that it was begun.
        assert!((1..=1 + usize::from(crash.is_some())).contains(&begun(&world)), "{crash:?}: {}", begun(&world));
        world.run(v, WRITE, 0, MIB).unwrap();
        all_answered_well(&mut world);
    }
}

/// Room that comes free is used as far as it goes, and nothing moves for what is left of it.
#[test]
fn what_finds_no_room_is_left_alone_until_there_is_more() {
    let (mut world, v) = spilled();
    let fast = |world: &World, mib: u64| world.places(v, mib * MIB)[0].0 == FAST;
    let on_fast: Vec<u64> = (64..110).filter(|&mib| fast(&world, mib)).collect();
    assert!(on_fast.len() > 12, "{on_fast:?}");
    // Less than is worth a walk through the maps.
    for &mib in &on_fast[..2] {
        world.run(v, Op::Discard, mib * MIB, MIB).unwrap();
    }
    world.run_until_quiet();
    assert_eq!(begun(&world), 0);
    let before = spill(&world);
    for &mib in &on_fast[2..] {
        world.run(v, Op::Discard, mib * MIB, MIB).unwrap();
    }
    world.run_until_quiet();
    assert_eq!(begun(&world), 1);
    assert!(moved(&world) >= 8 * MIB && spill(&world) < before, "{} moved", moved(&world));
    // Whatever goes on there, nothing moves twice.
    for round in 0..20 {
        put(&mut world, v, 200 + round, Content::Metadata);
        world.run(v, Op::Discard, (200 + round) * MIB, 512 * KIB).unwrap();
        world.run_until_quiet();
    }
    assert!(begun(&world) <= 2, "{} returns", begun(&world));
    all_answered_well(&mut world);
}

/// There is room, and it is no use: what cannot be read is not tried again and again.
#[test]
fn what_cannot_be_read_is_not_moved_again_and_again() {
    let (mut world, v) = spilled();
    let (from, to) = (0, u64::MAX >> 1);
    let trouble = Trouble::reads_fail(from..to, u64::MAX);
    world.faults.0.push(Fault { device: 2, trouble: trouble.later(world.now()) });
    let tag = world.add_disk(&shape(128, "nvme"));
    world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
    world.run_until_quiet();
    let lost = |e: &&Event| matches!(e, Event::JobEnded { lost, .. } if *lost > 0);
    assert_eq!((begun(&world), world.events.iter().filter(lost).count()), (1, 1));
    for round in 0..8 {
        put(&mut world, v, 200 + round, Content::Metadata);
        world.run(v, Op::Discard, (200 + round) * MIB, 512 * KIB).unwrap();
        world.run_until_quiet();
    }
    assert_eq!(begun(&world), 1);
    world.faults.0.clear();
    all_answered_well(&mut world);
}

#[test]
fn returns_are_switched_off_and_give_way_to_every_other_job() {
    let (mut world, _) = spilled();
    set(&mut world, "return_spilled", "off");
    let tag = world.add_disk(&shape(128, "nvme"));
    world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
    world.run_until_quiet();
    assert_eq!(begun(&world), 0);
    set(&mut world, "return_spilled", "on");
    world.run_until(|w| begun(w) == 1);
    (0..40).for_each(|_| _ = world.step());
    set(&mut world, "return_spilled", "off");
    let state = |w: &World| w.engine().pool().job.as_ref().map(|job| job.state);
    assert_eq!(state(&world), Some(State::Canceled));
    world.run_until_quiet();
    assert!(spill(&world) > 0);
    set(&mut world, "return_spilled", "on");
    world.run_until_quiet();
    assert_eq!(spill(&world), 0, "the room it had was not used up");
    // And a member may leave in the middle of one.
    let (mut other, w) = spilled();
    let tag = other.add_disk(&shape(128, "nvme"));
    other.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
    other.run_until(|w| begun(w) == 1);
    (0..40).for_each(|_| _ = other.step());
    other.control(Command::RemoveDevice { device: FAST }).unwrap();
    other.run_until_quiet();
    assert_eq!(other.engine().pool().devices().count(), 2);
    assert_eq!(spill(&other), 0, "it went on afterwards");
    other.run(w, WRITE, 0, MIB).unwrap();
    all_answered_well(&mut world);
    all_answered_well(&mut other);
}

/// Two disks, one gone: what is written beyond the chunks there are has a place on both, and the one that comes back, or
/// the one that replaces it, gets its copy.
#[test]
fn chunks_made_while_a_member_is_away_get_their_copies_when_there_is_one_again() {
    for (profile, devices) in [(Profile::Raid1, 2), (Profile::Raid1c3, 3), (Profile::Raid10, 2)] {
        for is_back in [true, false] {
            let shapes = vec![shape(160, "hdd"); devices];
            let mut world = World::with_pool(1, &shapes, profile, profile.system(), &[("checksum", "crc32c")]);
            let v = world.volume("v", 256 * MIB, VolumeClass::Auto);
            put(&mut world, v, 0, Content::Unsaid);
            world.control(Command::OfflineDevice { device: DeviceId(2) }).unwrap();
            let before = world.chunks(ChunkType::Data).len();
            for mib in 1..64 {
                put(&mut world, v, mib, Content::Unsaid);
            }
            world.run(v, Op::Flush, 0, 0).unwrap();
            assert!(world.chunks(ChunkType::Data).len() > before, "{profile:?}");
            world.crash(Crash::Power);
            world.open().unwrap();
            if is_back {
                world.run_until_quiet();
            } else {
                world.control(Command::OfflineDevice { device: DeviceId(2) }).unwrap();
                put(&mut world, v, 70, Content::Unsaid);
                let by = world.engine().pool().next_device_id();
                let tag = world.add_disk(&shape(160, "hdd"));
                world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
                world.control(Command::ReplaceDevice { device: DeviceId(2), by }).unwrap();
                world.run_until_quiet();
                assert_eq!(world.engine().pool().devices().count(), devices);
            }
            let pool = world.engine().pool();
            assert!(pool.chunks().all(|c| c.columns.iter().all(|column| pool.is_online(column.device))));
            assert_eq!(world.unequal(), [], "{profile:?}");
            // The one that was there all the time can be missed now.
            world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap();
            all_answered_well(&mut world);
        }
    }
}

/// Without a second copy there is nothing to note for whoever is away.
#[test]
fn content_with_one_copy_is_not_placed_on_who_is_away() {
    let mut world = World::with_pool(1, &vec![shape(64, "hdd"); 2], Profile::Single, Profile::Raid1, &[]);
    let v = world.volume("v", 256 * MIB, VolumeClass::Data);
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.control(Command::OfflineDevice { device: DeviceId(2) }).unwrap();
    let full = (0..128).find(|mib| world.run(v, WRITE, mib * MIB, MIB).is_err()).expect("it is full before");
    assert!(full < 64, "{full}");
    assert!(world.chunks(ChunkType::Data).iter().all(|(_, on)| *on == [FAST]));
}
