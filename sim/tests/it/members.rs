//! Members that come and go while the pool runs.

use braid_core::control::{Command, Done, VolumeClass};
use braid_core::request::Op;
use braid_core::units::{DeviceId, MIB, VolumeId};
use braid_core::{ChunkType, DeviceState, Profile};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::{Crash, World};

use crate::common::{all_answered_well, shape};

const WRITE: Op = Op::Write { fua: false };

fn pool(devices: usize, profile: Profile) -> (World, VolumeId) {
    let mut world = World::with_pool(1, &vec![shape(64); devices], profile, profile.system(), &[]);
    let volume = world.volume("v", 512 * MIB, VolumeClass::Auto);
    (world, volume)
}

/// Adds a disk and waits for the answer.
fn add(world: &mut World, mib: u64) -> Option<DeviceId> {
    let tag = world.add_disk(&shape(mib));
    world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
    match world.done.pop() {
        Some((_, Ok(Done::Device(id)))) => Some(id),
        _ => None,
    }
}

#[test]
fn a_device_that_joins_gives_room_at_once_and_after_a_restart() {
    let (mut world, v) = pool(2, Profile::Raid1);
    let before = world.engine().report().writable_data;
    assert_eq!(add(&mut world, 200), Some(DeviceId(3)));
    assert_eq!(add(&mut world, 200), Some(DeviceId(4)));
    let after = world.engine().report().writable_data;
    assert!(after > before + 150 * MIB, "{before} {after}");
    for i in 0..150 {
        world.run(v, WRITE, i * MIB, MIB).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    for crash in [Crash::Process, Crash::Power] {
        world.crash(crash);
        world.open().unwrap();
        assert!(world.engine().pool().devices().all(|d| d.state == DeviceState::Online));
        assert!(world.engine().pool().device(DeviceId(4)).unwrap().allocated() > 100 * MIB);
        all_answered_well(&mut world);
    }
}

/// Nothing was written since the opening, so there is no record to wait for.
#[test]
fn a_member_may_leave_a_pool_that_was_only_opened() {
    let mut world = World::with_pool(1, &vec![shape(64); 4], Profile::Raid6, Profile::Raid1c3, &[]);
    // No copy of the records is there, and there is nothing else.
    let has_records = |world: &World, id| world.chunks(ChunkType::System).iter().any(|(_, on)| on.contains(&id));
    let device = (1..=4).map(DeviceId).find(|&id| !has_records(&world, id)).expect("three of four have them");
    assert_eq!(world.control(Command::OfflineDevice { device }), Ok(Done::Changed));
    assert_eq!(world.engine().pool().device(device).map(|d| d.state), Some(DeviceState::Missing));
    let volume = world.volume("v", 512 * MIB, VolumeClass::Auto);
    world.run(volume, WRITE, 0, MIB).unwrap();
    all_answered_well(&mut world);
}

/// However far it came, the pool opens without asking for a device that never was one; an answer holds.
#[test]
fn a_crash_on_the_way_in_leaves_a_member_or_a_stranger() {
    let mut outcomes = [0; 2];
    for steps in 0.. {
        let (mut world, v) = pool(2, Profile::Raid1);
        world.run(v, WRITE, 0, MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        let tag = world.add_disk(&shape(100));
        let mut left = steps;
        while left > 0 && world.done.iter().all(|(of, _)| *of != tag) {
            world.step();
            left -= 1;
        }
        let is_answered = world.done.iter().any(|(of, result)| *of == tag && result.is_ok());
        world.crash(if steps % 2 == 0 { Crash::Power } else { Crash::Process });
        world.open().unwrap_or_else(|why| panic!("after {steps} steps: {why}"));
        let states: Vec<_> = world.engine().pool().devices().map(|d| d.state).collect();
        assert!(states.iter().all(|s| *s == DeviceState::Online), "after {steps} steps: {states:?}");
        let is_member = states.len() == 3;
        assert!(is_member || !is_answered, "after {steps} steps it was a member");
        outcomes[usize::from(is_member)] += 1;
        // Its place in the row is free for another one, whatever it says of itself.
        let next = add(&mut world, 80);
        assert_eq!(next, Some(DeviceId(if is_member { 4 } else { 3 })));
        world.run(v, WRITE, 0, 8 * MIB).unwrap();
        world.crash(Crash::Power);
        world.open().unwrap();
        assert!(world.engine().pool().devices().all(|d| d.state == DeviceState::Online));
        all_answered_well(&mut world);
        if is_answered {
            break;
        }
    }
    assert!(outcomes.iter().all(|&n| n > 0), "{outcomes:?}");
}

#[test]
fn a_device_that_cannot_be_written_is_no_member() {
    let (mut world, v) = pool(2, Profile::Raid1);
    world.run_until_quiet();
    let since = world.now();
    world.faults.0.push(Fault { device: 3, trouble: Trouble::Absent { since } });
    assert_eq!(add(&mut world, 100), None);
    assert_eq!(world.engine().pool().devices().count(), 2);
    world.faults.0.clear();
    assert_eq!(add(&mut world, 100), Some(DeviceId(4)));
    world.run(v, WRITE, 0, MIB).unwrap();
    all_answered_well(&mut world);
}
