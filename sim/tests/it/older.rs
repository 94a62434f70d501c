//! Members that hold what was there at another time.

use braid_core::control::{Command, VolumeClass};
use braid_core::meta::superblock::{SLOTS, SUPERBLOCK_SIZE};
use braid_core::request::{Event, Op};
use braid_core::units::{DeviceId, MIB, VolumeId};
use braid_core::{DeviceState, Profile, Slip};
use braid_sim::disk::Disk;
use braid_sim::fault::{Fault, Trouble};
use braid_sim::{Crash, World};

use crate::common::{all_is_well, scrub, shape};
use crate::scrub::WRITE;

const TWO: DeviceId = DeviceId(2);
/// Events of an opening, and some more.
const STEPS: usize = 40;

/// Runs on after a look at the disk of a member. Without checksums nothing but its superblock tells.
fn runs_on(profile: Profile, devices: usize) -> (World, VolumeId, Disk) {
    let set = [("checksum", "none")];
    let mut world = World::with_pool(1, &vec![shape(256); devices], profile, Profile::Raid1, &set);
    let v = world.volume("v", 64 * MIB, VolumeClass::Auto);
    (0..16).for_each(|i| world.run(v, WRITE, i * MIB, MIB).unwrap());
    world.control(Command::Checkpoint).unwrap();
    world.run_until_quiet();
    let old = world.disks[1].clone();
    for i in 0..10 {
        world.run(v, WRITE, i * MIB, MIB / 4).unwrap();
        world.control(Command::Checkpoint).unwrap();
    }
    world.run_until_quiet();
    (world, v, old)
}

/// Goes down, and has that put back: as when the snapshot of one disk is.
fn put_back(profile: Profile, devices: usize, slip: Option<Slip>) -> (World, VolumeId) {
    let (mut world, v, old) = runs_on(profile, devices);
    world.crash(Crash::Power);
    world.disks[1] = old;
    world.events.clear();
    world.slip = slip;
    world.open().unwrap();
    (world, v)
}

#[test]
fn a_member_that_is_older_than_it_can_be_is_made_anew() {
    for (profile, devices) in [(Profile::Raid1, 2), (Profile::Raid10, 4), (Profile::Raid5, 3)] {
        let (mut world, _) = put_back(profile, devices, None);
        world.verify();
        all_is_well(&mut world);
        assert_eq!(world.unequal(), [], "{profile:?}");
        let told = Event::DeviceOlder { device: TWO, is_spared: true };
        assert!(world.events.contains(&told), "{profile:?}: {:?}", world.events);
        let report = world.engine().report();
        let member = &report.devices[1];
        assert_eq!((member.state, member.stale.is_behind), (DeviceState::Online, false), "{profile:?}");
        let (mut world, _) = put_back(profile, devices, Some(Slip::OlderTrusted));
        // Which copy a read takes is the policy's affair. Of rows the stripe journal has all of that still, and puts it in place.
        (0..4).for_each(|_| world.verify());
        assert_eq!(world.wrong.is_empty(), profile == Profile::Raid5, "{profile:?}: old content is read unnoticed");
    }
}

/// Whenever the power goes before it has all, the next opening knows as much.
#[test]
fn a_member_that_is_older_stays_so_until_it_has_all() {
    for steps in [1, 2, 4, 8, 16, 32, 64, 128] {
        let (mut world, _) = put_back(Profile::Raid1, 2, None);
        for _ in 0..3 {
            (0..steps).for_each(|_| {
                world.step();
            });
            world.crash(Crash::Power);
            world.open().unwrap();
        }
        world.verify();
        all_is_well(&mut world);
        assert_eq!(world.unequal(), [], "{steps}");
    }
}

/// What nothing else has is used as it is, and somebody hears of it.
#[test]
fn the_only_member_that_has_something_is_used_and_told() {
    let (mut world, v) = put_back(Profile::Raid0, 2, None);
    let told = Event::DeviceOlder { device: TWO, is_spared: false };
    world.run_until_quiet();
    assert!(world.events.contains(&told), "{:?}", world.events);
    assert_eq!(world.run(v, Op::Read, 0, MIB), Ok(()));
}

/// The same of one that went and comes back while the pool is open; of itself it is as old as it was.
#[test]
fn a_member_that_comes_back_older_than_it_went_is_made_anew() {
    let (mut world, v, old) = runs_on(Profile::Raid1, 2);
    world.control(Command::OfflineDevice { device: TWO }).unwrap();
    world.run(v, WRITE, 12 * MIB, MIB).unwrap();
    let comes_back = |world: &mut World| {
        let said = world.superblocks().into_iter().find(|sb| sb.device == TWO).expect("it has one");
        world.control(Command::OnlineDevice { device: TWO, found: Some(said.age()) }).unwrap();
        world.run_until_quiet();
        world.events.contains(&Event::DeviceOlder { device: TWO, is_spared: true })
    };
    assert!(!comes_back(&mut world), "it is the member itself");
    world.control(Command::OfflineDevice { device: TWO }).unwrap();
    world.disks[1] = old;
    assert!(comes_back(&mut world));
    world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap();
    world.verify();
    all_is_well(&mut world);
}

/// A pool of that many members whose checksums are of this kind, closed after some writes; the disk of a member as it is then.
fn closed(profile: Profile, devices: usize, checksum: &str) -> (World, VolumeId, Disk) {
    let set = [("checksum", checksum)];
    let mut world = World::with_pool(1, &vec![shape(256); devices], profile, Profile::Raid1, &set);
    let v = world.volume("v", 64 * MIB, VolumeClass::Auto);
    (0..16).for_each(|i| world.run(v, WRITE, i * MIB, MIB).unwrap());
    close(&mut world);
    let old = world.disks[1].clone();
    (world, v, old)
}

fn close(world: &mut World) {
    world.control(Command::Close).unwrap();
    world.run_until_quiet();
    world.crash(Crash::Process);
}

/// A snapshot of one disk that was made while the pool was closed, put back after a run.
#[test]
fn a_member_of_before_the_last_run_is_made_anew() {
    for (profile, devices) in [(Profile::Raid1, 2), (Profile::Raid10, 4), (Profile::Raid5, 3)] {
        for (checksum, slip) in [("none", None), ("crc32c", None), ("none", Some(Slip::OlderTrusted))] {
            let (mut world, v, old) = closed(profile, devices, checksum);
            world.open().unwrap();
            (0..10).for_each(|i| world.run(v, WRITE, i * MIB, MIB / 4).unwrap());
            close(&mut world);
            world.disks[1] = old;
            world.slip = slip;
            world.open().unwrap();
            (0..4).for_each(|_| world.verify());
            if slip.is_some() {
                assert!(!world.wrong.is_empty(), "{profile:?}: old content is read unnoticed");
                continue;
            }
            all_is_well(&mut world);
            assert_eq!(told(&world), 1, "{profile:?}, {checksum}: {:?}", world.events);
            world.events.clear();
            scrub(&mut world);
            let found = world.engine().report().scrub.scrub;
            assert_eq!((found.differences, found.read_errors), (0, 0), "{profile:?}, {checksum}");
            assert_eq!(world.unequal(), [], "{profile:?}, {checksum}");
        }
    }
}

/// Four writes, from this MiB on, with a checkpoint after each.
fn write_on(world: &mut World, v: VolumeId, from: u64) {
    for i in from..from + 4 {
        world.run(v, WRITE, i * MIB, MIB / 4).unwrap();
        world.control(Command::Checkpoint).unwrap();
    }
}

/// It opens, nothing is lost, and whether a member is made anew.
fn opens_well(world: &mut World, anew: bool, what: &str) {
    world.open().unwrap();
    world.verify();
    all_is_well(world);
    assert_eq!((told(world) > 0, world.unequal()), (anew, vec![]), "{what}");
}

/// How often a member was made anew.
fn told(world: &World) -> usize {
    let told = Event::DeviceOlder { device: TWO, is_spared: true };
    world.events.iter().filter(|e| **e == told).count()
}

/// What was away and is there again is the member itself, wherever the power goes on its way back. A copy of it that is older is not.
#[test]
fn a_member_that_was_away_is_the_one_that_went() {
    for is_copy in [false, true] {
        for steps in (0..STEPS).step_by(2).chain([100, 200, 400]) {
            let (mut world, v, old) = closed(Profile::Raid1, 2, "none");
            world.open().unwrap();
            world.run_until_quiet();
            // Both slots are written since, so that nothing of the run before is left.
            world.control(Command::Checkpoint).unwrap();
            world.run(v, WRITE, 0, MIB / 4).unwrap();
            world.control(Command::OfflineDevice { device: TWO }).unwrap();
            write_on(&mut world, v, 0);
            close(&mut world);
            if is_copy {
                world.disks[1] = old;
            }
            for _ in 0..3 {
                world.open().unwrap();
                (0..steps).for_each(|_| {
                    world.step();
                });
                world.crash(Crash::Power);
            }
            opens_well(&mut world, is_copy, &format!("{steps} steps"));
        }
    }
}

/// The same of one that comes back while the pool is open.
#[test]
fn a_power_cut_on_the_way_back_makes_nobody_older() {
    for steps in 0..24 {
        let (mut world, v, _) = closed(Profile::Raid1, 2, "none");
        world.open().unwrap();
        world.control(Command::OfflineDevice { device: TWO }).unwrap();
        write_on(&mut world, v, 0);
        // The other one's superblock is there long before its own.
        let trouble = Trouble::Slow { since: 0, until: u64::MAX, factor: 20 };
        world.faults.0.push(Fault { device: 2, trouble });
        world.command(Command::OnlineDevice { device: TWO, found: None });
        (0..steps).for_each(|_| {
            world.step();
        });
        world.crash(Crash::Power);
        opens_well(&mut world, false, &format!("{steps} steps"));
    }
}

/// A member whose superblocks cannot be written is used all the same, and others say how far it is.
#[test]
fn a_superblock_that_cannot_be_written_makes_nobody_older() {
    for (run, is_one) in [(0, true), (0, false), (3, true), (3, false)] {
        let (mut world, v, _) = closed(Profile::Raid1, 2, "none");
        for i in 0..4 {
            let slots =
                if is_one { SLOTS[0]..SLOTS[0] + SUPERBLOCK_SIZE } else { SLOTS[0]..SLOTS[1] + SUPERBLOCK_SIZE };
            world.faults.0 = vec![Fault { device: 2, trouble: Trouble::writes_fail(slots, u64::MAX) }];
            world.open().unwrap();
            world.run_until_quiet();
            write_on(&mut world, v, i);
            if run == i {
                world.faults.0.clear();
            }
            world.crash(Crash::Power);
        }
        world.faults.0.clear();
        opens_well(&mut world, false, &format!("run {run}, one slot {is_one}"));
    }
}

/// A member in use whose disk was pulled, and exchanged for an older copy before it was looked for.
#[test]
fn a_copy_in_place_of_a_member_in_use_is_made_anew() {
    let (mut world, v, old) = closed(Profile::Raid1, 2, "none");
    world.open().unwrap();
    (0..10).for_each(|i| world.run(v, WRITE, i * MIB, MIB / 4).unwrap());
    world.control(Command::Checkpoint).unwrap();
    world.run_until_quiet();
    let now = world.now();
    world.faults.0.push(Fault { device: 2, trouble: Trouble::Pulled { since: now, until: now } });
    world.disks[1] = old;
    let found = world.reopens(TWO);
    assert!(found.is_some());
    world.control(Command::OnlineDevice { device: TWO, found }).unwrap();
    world.run_until_quiet();
    assert_eq!(told(&world), 1, "{:?}", world.events);
    world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap();
    world.verify();
    all_is_well(&mut world);
}
