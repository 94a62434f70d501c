//! Members that another one replaces: columns change places.

use std::collections::BTreeSet;
use std::panic;

use braid_core::control::{Command, ErrorKind, VolumeClass};
use braid_core::request::{Content, Op};
use braid_core::scrub::State;
use braid_core::units::{DeviceId, MIB};
use braid_core::{ChunkType, DeviceState, Profile, Slip};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::world::Shape;
use braid_sim::{Crash, World};

use super::{WRITE, members, pool, remove, state};
use crate::common::{all_answered_well, reopen, shape};

/// One more member, as big as another one.
fn join(world: &mut World, shape: &Shape) -> u32 {
    let id = world.engine().pool().next_device_id().0;
    let tag = world.add_disk(shape);
    world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
    id
}

fn replace(device: u32, by: u32) -> Command {
    Command::ReplaceDevice { device: DeviceId(device), by: DeviceId(by) }
}

/// Chunks stay what they are and get a column elsewhere; each of the members, present or gone, with writers meanwhile.
#[test]
fn a_member_is_replaced_column_by_column() {
    for (device, is_gone) in [(1, false), (2, false), (1, true), (2, true)] {
        let (mut world, v) = pool(2, Profile::Raid1);
        for i in 0..10 {
            world.run(v, WRITE, (i * 4 + 61) * MIB, 3 * MIB).unwrap();
        }
        world.run(v, Op::Flush, 0, 0).unwrap();
        let before: Vec<_> =
            world.engine().pool().chunks().filter(|c| c.kind == ChunkType::Data).map(|c| c.id).collect();
        if is_gone {
            let since = world.now();
            world.faults.0.push(Fault { device, trouble: Trouble::Absent { since } });
            world.run(v, WRITE, 0, MIB).unwrap();
        }
        assert_eq!(world.control(remove(device)).unwrap_err().kind, ErrorKind::Refused, "there is no room");
        let by = join(&mut world, &shape(96));
        world.control(replace(device, by)).unwrap();
        for i in 0..60 {
            world.run(v, WRITE, i % 24 * 2 * MIB + i * 4096, 64 * 1024).unwrap();
        }
        world.run_until(|w| state(w) != Some(State::Running));
        assert_eq!(state(&world), Some(State::Finished), "device {device}, gone {is_gone}");
        assert!(!members(&world).contains(&device));
        let after: Vec<_> =
            world.engine().pool().chunks().filter(|c| c.kind == ChunkType::Data).map(|c| c.id).collect();
        assert_eq!(after, before, "no chunk was written anew");
        assert!(world.unequal().is_empty());
        all_answered_well(&mut world);
        world.crash(Crash::Power);
        world.faults.0.clear();
        world.open().unwrap();
        all_answered_well(&mut world);
        // The other one can be missed now.
        let since = world.now();
        world.faults.0.push(Fault { device: 3 - device, trouble: Trouble::Absent { since } });
        world.verify();
        assert!(world.wrong.is_empty() && world.answers.drain(..).all(|a| a.result.is_ok()), "{:?}", world.wrong);
    }
}

/// Whoever gets what another one has says so from the beginning to the end, paused and over a restart too.
#[test]
fn a_member_that_gets_what_another_one_has_is_rebuilding() {
    let member = |world: &World, device| world.engine().pool().device(DeviceId(device)).unwrap().state;
    let (mut world, _) = pool(2, Profile::Raid1);
    let by = join(&mut world, &shape(96));
    assert_eq!(member(&world, by), DeviceState::Online);
    world.control(replace(1, by)).unwrap();
    assert_eq!((member(&world, 1), member(&world, by)), (DeviceState::Removing, DeviceState::Rebuilding));
    let done = |w: &World| w.engine().report().devices[by as usize - 1].rebuilt.unwrap();
    world.run_until(|w| done(w).done > 2 * MIB);
    assert!(done(&world).done < done(&world).total && done(&world).total >= 24 * MIB, "{:?}", done(&world));
    world.control(Command::JobPause).unwrap();
    assert_eq!(member(&world, by), DeviceState::Rebuilding);
    world.crash(Crash::Power);
    world.open().unwrap();
    world.run_until_quiet();
    assert_eq!((member(&world, 1), member(&world, by)), (DeviceState::Removing, DeviceState::Rebuilding));
    world.control(Command::JobCancel).unwrap();
    assert_eq!((member(&world, 1), member(&world, by)), (DeviceState::Online, DeviceState::Online));
    world.control(replace(1, by)).unwrap();
    world.run_until(|w| state(w) != Some(State::Running));
    assert_eq!((members(&world), member(&world, by)), (vec![2, by], DeviceState::Online));
    all_answered_well(&mut world);
}

/// At every so many events of a replacement, and again when it goes on.
#[test]
fn power_cuts_while_columns_go_lose_nothing() {
    for profile in [Profile::Raid1, Profile::Dup, Profile::Raid10, Profile::Raid0, Profile::Single] {
        let mut steps = 3;
        loop {
            let (mut world, v) = pool(if profile == Profile::Raid10 { 4 } else { 2 }, profile);
            let old = world.places(v, 0)[0].0.0;
            let by = join(&mut world, &shape(96));
            world.command(replace(old, by));
            for left in 0..steps {
                if left % 20 == 7 {
                    world.submit(0, v, WRITE, left % 40 * MIB, 64 * 1024, Content::Unsaid);
                }
                world.step();
            }
            let is_over = state(&world) == Some(State::Finished);
            for round in 0..2 {
                world.crash(if round == 0 { Crash::Power } else { Crash::Process });
                world.open().unwrap_or_else(|why| panic!("{profile:?} after {steps} steps: {why}"));
                (0..steps % 90).for_each(|_| _ = world.step());
            }
            world.run_until(|w| state(w) != Some(State::Running));
            world.done.clear();
            world.answers.clear();
            all_answered_well(&mut world);
            if is_over {
                assert!(!members(&world).contains(&old), "{profile:?}");
                break;
            }
            steps += 97;
        }
    }
}

/// A column goes, what is written to where it is now is answered, and the process ends: at every step from there on. The log is on
/// disks that are slow and busy, so that it comes last.
fn ended_after_a_column_went(steps: u64, slip: Option<Slip>) -> bool {
    let mut world = World::with_pool(1, &vec![shape(96); 4], Profile::Single, Profile::Raid1, &[]);
    let v = world.volume("v", 512 * MIB, VolumeClass::Data);
    (0..8).for_each(|i| world.run(v, WRITE, i * MIB, MIB).unwrap());
    world.run(v, Op::Flush, 0, 0).unwrap();
    let by = join(&mut world, &shape(96));
    world.slip = slip;
    reopen(&mut world);
    let old = world.places(v, 0)[0].0;
    let records = |c: &braid_core::chunk::Chunk| c.kind != ChunkType::Data;
    let log: BTreeSet<u32> =
        world.engine().pool().chunks().filter(|c| records(c)).flat_map(|c| &c.columns).map(|c| c.device.0).collect();
    assert!(!log.contains(&old.0) && !log.contains(&by), "{log:?} {old}");
    let slow = Trouble::Slow { since: 0, until: u64::MAX, factor: 100 };
    world.faults.0.extend(log.into_iter().map(|device| Fault { device, trouble: slow.clone() }));
    world.command(replace(old.0, by));
    for i in 0.. {
        if world.places(v, 0)[0].0 != old {
            break;
        }
        assert_ne!(state(&world), Some(State::Finished));
        if i % 2 == 0 && world.engine().in_flight() < 64 {
            world.submit(0, v, WRITE, 8 * MIB + i % 64 * 64 * 1024, 4096, Content::Unsaid);
        }
        world.step();
    }
    (0..4).for_each(|i| _ = world.submit(0, v, WRITE, i * 64 * 1024, 64 * 1024, Content::Unsaid));
    (0..steps).for_each(|_| _ = world.step());
    world.crash(Crash::Process);
    (world.slip, world.faults.0) = (None, Vec::new());
    world.open().expect("nobody is missing");
    world.run_until_quiet();
    (0..8).for_each(|i| world.run(v, Op::Read, i * MIB, MIB).unwrap());
    world.wrong.is_empty()
}

#[test]
fn what_was_written_after_a_column_went_outlives_the_process() {
    assert!((0..60).all(|steps| ended_after_a_column_went(steps, None)));
    let is_fine = |steps| panic::catch_unwind(|| ended_after_a_column_went(steps, Some(Slip::ShiftNotAwaited)));
    assert!(!(0..60).all(|steps| is_fine(steps).unwrap_or(false)), "nobody sees it when it is not awaited");
}

/// A replacement is canceled at any moment, and the member that was to come is removed at once: what was on its way there does not
/// arrive any more, and the pool can do without it.
#[test]
fn what_an_ended_replacement_had_under_way_stays_where_it_is() {
    for profile in [Profile::Raid1, Profile::Raid5, Profile::Raid6] {
        let moments = |slip| (1..).map(|i| i * 41).map_while(move |steps| replaced_and_removed(profile, steps, slip));
        assert!(moments(None).count() > 5, "{profile:?}");
        let goes_unnoticed = panic::catch_unwind(|| moments(Some(Slip::OldColumnArrives)).count()).is_ok();
        // Units that are copied one by one ended with their job, mostly; rows went on.
        assert_eq!(goes_unnoticed, profile == Profile::Raid1, "{profile:?}");
    }
}

/// Says nothing when the replacement was over after so many events.
fn replaced_and_removed(profile: Profile, steps: u64, slip: Option<Slip>) -> Option<()> {
    let devices = profile.facts().devs_min.max(2);
    let (mut world, _) = pool(devices, profile);
    world.slip = slip;
    reopen(&mut world);
    let by = join(&mut world, &shape(96));
    world.command(replace(1, by));
    (0..steps).for_each(|_| _ = world.step());
    if state(&world) == Some(State::Finished) {
        return None;
    }
    // Nothing happens between the two.
    let tags = [Command::JobCancel, remove(by)].map(|command| world.command(command));
    world.run_until(|w| tags.iter().all(|tag| w.done.iter().any(|(of, _)| of == tag)));
    let result = |of: u64| world.done.iter().find(|(tag, _)| *tag == of).map(|(_, result)| result.is_ok());
    match tags.map(result) {
        [Some(true), Some(true)] => {}
        // It is at its very end.
        [Some(false), _] => return Some(()),
        other => panic!("{profile:?} after {steps} steps: {other:?}"),
    }
    world.run_until(|w| state(w) != Some(State::Running));
    assert_eq!(members(&world), Vec::from_iter(1..=devices as u32), "{profile:?} after {steps} steps");
    world.crash(Crash::Power);
    world.open().unwrap_or_else(|why| panic!("{profile:?} after {steps} steps: {why}"));
    all_answered_well(&mut world);
    Some(())
}

/// While columns go, and back again: what was on its way is not counted as there, and copies are alike in the end.
#[test]
fn who_goes_and_comes_back_while_columns_go_is_no_worse_for_it() {
    for who in 1..=3 {
        for steps in [20, 200, 600, 1200] {
            let (mut world, v) = pool(2, Profile::Raid1);
            let new = join(&mut world, &shape(96));
            world.command(replace(1, new));
            for _ in 0..steps {
                world.step();
            }
            let device = DeviceId(who);
            let went = world.control(Command::OfflineDevice { device }).is_ok();
            for i in 0..12 {
                world.run(v, WRITE, 4 * i * MIB + 4096, 8192).unwrap();
            }
            if went && members(&world).contains(&who) {
                world.control(Command::OnlineDevice { device, found: None }).unwrap();
            }
            world.run_until(|w| state(w) != Some(State::Running));
            world.run_until_quiet();
            all_answered_well(&mut world);
            assert_eq!(world.unequal(), [], "device {who} after {steps} steps");
            world.crash(Crash::Power);
            world.open().unwrap();
            all_answered_well(&mut world);
        }
    }
}

/// A replacement of which only the pool's own records are left to go; now `failures` writes of the member that comes fail.
fn replaced_but_for_records(devices: usize, profile: Profile, failures: u64) -> World {
    let mut world = World::with_pool(1, &vec![shape(96); devices], profile, profile.system(), &[]);
    let v = world.volume("v", 64 * MIB, VolumeClass::Auto);
    for i in 0..16 {
        world.run(v, WRITE, i * MIB, MIB).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    let tag = world.add_disk(&shape(96));
    world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
    world.done.clear();
    let by = DeviceId(devices as u32 + 1);
    world.control(Command::ReplaceDevice { device: DeviceId(1), by }).unwrap();
    world.run_until(|w| !holds(w, 1, false));
    assert!(holds(&world, 1, true), "{profile:?}: the records go last");
    let (from, to, percent, left) = (0, u64::MAX, 100, failures);
    let trouble = Trouble::Error { read: false, write: true, flush: false, from, to, percent, left };
    world.faults.0.push(Fault { device: by.0, trouble });
    world.run_until(|w| w.engine().pool().device(by).is_some_and(|d| d.faults > 0));
    world
}

/// Whether a member has a column of the pool's own records, or of something else.
fn holds(world: &World, device: u32, records: bool) -> bool {
    let pool = world.engine().pool();
    let mut chunks = pool.chunks().filter(|c| (c.kind == ChunkType::System) == records);
    chunks.any(|c| c.columns.iter().any(|c| c.device == DeviceId(device)))
}

/// Until the member that comes has the pool's own records they count where they are: the pool survives what it did before.
#[test]
fn records_stay_while_the_member_that_gets_them_fails() {
    for (devices, profile) in [(2, Profile::Raid1), (3, Profile::Raid1c3), (4, Profile::Raid10)] {
        for steps in [0, 10, 20, 50, 1000] {
            let mut world = replaced_but_for_records(devices, profile, u64::MAX);
            (0..steps).for_each(|_| _ = world.step());
            if world.engine().pool().device(DeviceId(devices as u32 + 1)).unwrap().state == DeviceState::Failed {
                // Then its content counts no more either, and that is the one fault that raid1 survives.
                continue;
            }
            let others = (2..=devices as u32).filter(|&device| holds(&world, device, true)).collect::<Vec<_>>();
            world.crash(Crash::Power);
            world.faults.0.clear();
            for device in others {
                world.faults.0.push(Fault { device, trouble: Trouble::Absent { since: 0 } });
            }
            world.open().unwrap_or_else(|why| panic!("{profile:?}, after {steps} steps: {why}"));
        }
        // It fails for a moment only.
        let mut world = replaced_but_for_records(devices, profile, 3);
        world.run_until(|w| state(w) != Some(State::Running));
        assert_eq!(state(&world), Some(State::Finished), "{profile:?}");
        assert!(!members(&world).contains(&1));
        world.run_until_quiet();
        world.verify();
        assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    }
}

/// Not a unit is free, and the pool's own records have no room for another chunk: their columns change places.
#[test]
fn a_full_pool_replaces_a_member_by_one_of_its_size() {
    for (devices, profile) in [(2, Profile::Raid1), (3, Profile::Raid1c3), (4, Profile::Raid10)] {
        for is_gone in [false, true] {
            let mut world = World::with_pool(1, &vec![shape(96); devices], profile, profile.system(), &[]);
            let v = world.volume("v", 1024 * MIB, VolumeClass::Auto);
            let full = (0..1024).find(|i| world.run(v, WRITE, i * MIB, MIB).is_err());
            assert!(full.is_some_and(|mib| mib > 20), "{profile:?}: full after {full:?} MiB");
            world.run(v, Op::Flush, 0, 0).unwrap();
            let tag = world.add_disk(&shape(96));
            world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
            world.done.clear();
            if is_gone {
                let since = world.now();
                world.faults.0.push(Fault { device: 1, trouble: Trouble::Absent { since } });
                world.run(v, WRITE, 0, MIB).unwrap();
            }
            let by = DeviceId(devices as u32 + 1);
            world.control(Command::ReplaceDevice { device: DeviceId(1), by }).unwrap();
            world.run_until(|w| state(w) != Some(State::Running));
            assert_eq!(state(&world), Some(State::Finished), "{profile:?}, gone: {is_gone}");
            world.answers.clear();
            all_answered_well(&mut world);
            world.crash(Crash::Power);
            world.open().unwrap();
            assert_eq!(members(&world).len(), devices);
            all_answered_well(&mut world);
            // Every copy is as good as any other.
            let others = if profile == Profile::Raid10 { 2..3 } else { 2..devices as u32 + 1 };
            for device in others {
                let since = world.now();
                world.faults.0.push(Fault { device, trouble: Trouble::Absent { since } });
            }
            world.crash(Crash::Power);
            world.open().unwrap_or_else(|why| panic!("{profile:?}: without the others: {why}"));
            world.verify();
            assert!(world.wrong.is_empty(), "{:?}", world.wrong);
        }
    }
}
