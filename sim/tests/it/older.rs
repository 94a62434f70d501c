//! Members that hold what was there at another time.

use braid_core::control::{Command, VolumeClass};
use braid_core::request::{Event, Op};
use braid_core::units::{DeviceId, MIB, VolumeId};
use braid_core::{DeviceState, Profile, Slip};
use braid_sim::disk::Disk;
use braid_sim::world::Shape;
use braid_sim::{Crash, Model, World};

use crate::common::all_is_well;
use crate::scrub::WRITE;

const TWO: DeviceId = DeviceId(2);

/// Runs on after a look at the disk of a member. Without checksums nothing but its superblock tells.
fn runs_on(profile: Profile, devices: usize) -> (World, VolumeId, Disk) {
    let shape = Shape { size: 256 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let set = [("checksum", "none")];
    let mut world = World::with_pool(1, &vec![shape; devices], profile, Profile::Raid1, &set);
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
        world.control(Command::OnlineDevice { device: TWO, generation: Some(said.generation) }).unwrap();
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
