//! Members that are held back until another one fails.

use braid_core::control::{Command, ErrorKind, VolumeClass};
use braid_core::device::Role;
use braid_core::job::{Choice, Task};
use braid_core::request::{Content, Event, Op};
use braid_core::scrub::State;
use braid_core::units::{DeviceId, MIB, VolumeId};
use braid_core::{DeviceState, Profile};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::world::Shape;
use braid_sim::{Crash, Model, World};

use crate::common::{all_answered_well, device_state};

const WRITE: Op = Op::Write { fua: false };
const MINUTE: u64 = 60_000_000_000;

fn shape(mib: u64, class: &'static str) -> Shape {
    let model = Model::shipped(if class == "hdd" { "hdd" } else { "sata-ssd" }).unwrap();
    Shape { size: mib * MIB, model, class }
}

/// A mirror of two disks with 24 MiB of content.
fn pool() -> (World, VolumeId) {
    let mut world = World::with_pool(1, &[shape(96, "hdd"), shape(96, "hdd")], Profile::Raid1, Profile::Raid1, &[]);
    let v = world.volume("v", 256 * MIB, VolumeClass::Auto);
    for i in 0..24 {
        world.run(v, WRITE, 2 * i * MIB, MIB).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    (world, v)
}

fn spare(world: &mut World, shape: &Shape) -> u32 {
    let id = world.engine().pool().next_device_id().0;
    let tag = world.add_spare(shape);
    world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
    id
}

/// It is not there any more; said by the first command that goes to it.
fn lose(world: &mut World, v: VolumeId, device: u32) {
    let since = world.now();
    world.faults.0.push(Fault { device, trouble: Trouble::Absent { since } });
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    assert_eq!(device_state(world, device), DeviceState::Missing);
}

fn role(world: &World, device: u32) -> Option<Role> {
    world.engine().pool().device(DeviceId(device)).map(|d| d.role)
}

/// Columns that it has.
fn holds(world: &World, device: u32) -> usize {
    world.engine().pool().chunks().flat_map(|c| &c.columns).filter(|c| c.device.0 == device).count()
}

fn members(world: &World) -> Vec<u32> {
    world.engine().pool().devices().map(|d| d.id.0).collect()
}

fn state(world: &World) -> Option<State> {
    world.engine().pool().job.as_ref().map(|job| job.state)
}

fn set(world: &mut World, name: &str, value: &str) {
    world.control(Command::Set { name: name.into(), value: value.into() }).unwrap();
}

fn used(world: &World) -> Vec<(u32, u32)> {
    let used = |e: &Event| if let Event::SpareInUse { device, by } = e { Some((device.0, by.0)) } else { None };
    world.events.iter().filter_map(used).collect()
}

#[test]
fn a_spare_holds_nothing_and_takes_the_place_of_a_member_that_is_missing_for_long() {
    let (mut world, v) = pool();
    let writable = world.engine().report().writable_data;
    let by = spare(&mut world, &shape(96, "hdd"));
    assert_eq!((role(&world, by), world.engine().report().writable_data), (Some(Role::Spare), writable));
    for i in 24..30 {
        world.run(v, WRITE, 2 * i * MIB, MIB).unwrap();
    }
    world.crash(Crash::Power);
    world.open().unwrap();
    assert_eq!(role(&world, by), Some(Role::Spare), "it outlives a restart");
    assert!(world.engine().pool().device(DeviceId(by)).unwrap().used.is_empty());
    lose(&mut world, v, 2);
    let at = world.now();
    world.run_until(|w| !used(w).is_empty());
    assert!((9 * MINUTE..11 * MINUTE).contains(&(world.now() - at)), "after {} s", (world.now() - at) / 1_000_000_000);
    assert_eq!((role(&world, by), device_state(&world, by)), (Some(Role::Member), DeviceState::Rebuilding));
    for i in 0..10 {
        world.run(v, WRITE, i * 5 * MIB, 64 * 1024).unwrap();
    }
    world.run_until_quiet();
    assert_eq!((state(&world), members(&world)), (Some(State::Finished), vec![1, by]));
    assert_eq!((role(&world, by), device_state(&world, by)), (Some(Role::Member), DeviceState::Online));
    assert_eq!((used(&world), world.unequal()), (vec![(2, by)], vec![]));
    world.crash(Crash::Power);
    world.open().unwrap();
    assert_eq!(role(&world, by), Some(Role::Member), "it is one like any other");
    world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap();
    all_answered_well(&mut world);
}

/// Who is back in time, was sent away, or may be missing for ever is not replaced; who failed is at once.
#[test]
fn when_a_spare_is_used_and_when_not() {
    let (mut world, v) = pool();
    spare(&mut world, &shape(96, "hdd"));
    set(&mut world, "spare_delay", "1h");
    lose(&mut world, v, 2);
    assert_eq!(used(&world), []);
    world.mend();
    world.control(Command::OnlineDevice { device: DeviceId(2), found: None }).unwrap();
    world.run_until_quiet();
    world.control(Command::OfflineDevice { device: DeviceId(2) }).unwrap();
    world.run_until_quiet();
    assert_eq!((used(&world), device_state(&world, 2)), (vec![], DeviceState::Missing));
    world.control(Command::OnlineDevice { device: DeviceId(2), found: None }).unwrap();
    world.run_until_quiet();
    set(&mut world, "spare_delay", "off");
    lose(&mut world, v, 2);
    world.run_until_quiet();
    assert_eq!(used(&world), vec![]);
    set(&mut world, "spare_delay", "0s");
    assert_eq!(used(&world), [(2, 3)], "at once");
    world.run_until_quiet();
    all_answered_well(&mut world);

    let (mut world, v) = pool();
    let by = spare(&mut world, &shape(96, "hdd"));
    let (from, to) = (0, u64::MAX >> 1);
    let trouble = Trouble::writes_fail(from..to, u64::MAX);
    world.faults.0.push(Fault { device: 2, trouble: trouble.later(world.now()) });
    for i in 0..24 {
        world.run(v, WRITE, i * MIB, 64 * 1024).unwrap();
    }
    world.run_until(|w| !used(w).is_empty());
    assert!(world.now() < MINUTE, "it failed, and that is waited for by nobody");
    world.run_until_quiet();
    assert_eq!(members(&world), [1, by]);
    all_answered_well(&mut world);
}

/// The same class, then the same kind of medium, then any; the smallest that fits.
#[test]
fn which_spare_is_used() {
    for (spares, used_one) in [
        (vec![(96, "ssd"), (200, "hdd"), (96, "hdd")], Some(2)),
        (vec![(96, "ssd"), (200, "hdd"), (16, "hdd")], Some(1)),
        (vec![(120, "ssd"), (96, "ssd"), (16, "hdd")], Some(1)),
        (vec![(16, "hdd"), (16, "ssd")], None),
    ] {
        let (mut world, v) = pool();
        let ids: Vec<u32> = spares.iter().map(|&(mib, class)| spare(&mut world, &shape(mib, class))).collect();
        lose(&mut world, v, 2);
        world.run_until_quiet();
        let expected: Vec<(u32, u32)> = used_one.map(|i: usize| (2, ids[i])).into_iter().collect();
        assert_eq!(used(&world), expected, "{spares:?}");
        let told = world.events.iter().filter(|e| matches!(e, Event::NoSpareFits { .. })).count();
        assert_eq!(told, usize::from(expected.is_empty()), "{spares:?}");
        if expected.is_empty() {
            let by = spare(&mut world, &shape(96, "hdd"));
            world.run_until_quiet();
            assert_eq!((used(&world), members(&world).contains(&2)), (vec![(2, by)], false), "one came that fits");
        }
        all_answered_well(&mut world);
    }
}

#[test]
fn a_spare_leaves_like_any_member_and_a_job_is_waited_for() {
    let (mut world, v) = pool();
    let by = spare(&mut world, &shape(96, "hdd"));
    world.control(Command::RemoveDevice { device: DeviceId(by) }).unwrap();
    world.run_until_quiet();
    assert_eq!((state(&world), members(&world)), (Some(State::Finished), vec![1, 2]));
    let by = spare(&mut world, &shape(96, "hdd"));
    world.control(Command::Balance { data: Some(Choice { limit: 1, ..Choice::default() }), metadata: None }).unwrap();
    world.control(Command::JobPause).unwrap();
    lose(&mut world, v, 2);
    world.run_until_quiet();
    assert_eq!(used(&world), [], "a balance is open");
    world.control(Command::JobCancel).unwrap();
    world.run_until(|w| !used(w).is_empty());
    assert_eq!(used(&world), [(2, by)]);
    let why = world.control(Command::RemoveDevice { device: DeviceId(by) }).unwrap_err();
    assert_eq!(why.kind, ErrorKind::Busy);
    // Nothing is there yet: it is a spare again, and not used again for this one.
    world.control(Command::JobCancel).unwrap();
    world.run_until_quiet();
    assert_eq!((role(&world, by), device_state(&world, by)), (Some(Role::Spare), DeviceState::Online));
    assert_eq!(used(&world).len(), 1);
    all_answered_well(&mut world);
}

/// One that got something before the job was canceled is a member, also when a crash comes then.
#[test]
fn a_spare_that_got_something_stays_a_member() {
    for crash in [Crash::Power, Crash::Process] {
        let (mut world, v) = pool();
        let by = spare(&mut world, &shape(96, "hdd"));
        lose(&mut world, v, 2);
        world.run_until(|w| holds(w, by) > 0);
        world.control(Command::JobCancel).unwrap();
        assert_eq!(role(&world, by), Some(Role::Member));
        world.crash(crash);
        world.faults.0.clear();
        world.open().unwrap();
        assert_eq!(role(&world, by), Some(Role::Member), "{crash:?}");
        world.run_until_quiet();
        assert_eq!(members(&world), [1, 2, by]);
        all_answered_well(&mut world);
        assert_eq!(world.unequal(), []);
    }
}

/// At every so many events from the loss on, and once more: the spare ends as a member, or as a spare, and holds nothing then.
#[test]
fn power_cuts_on_the_way_in_lose_nothing() {
    let mut steps = 1;
    loop {
        let (mut world, v) = pool();
        let by = spare(&mut world, &shape(96, "hdd"));
        set(&mut world, "spare_delay", "0s");
        lose(&mut world, v, 2);
        (0..steps).for_each(|_| _ = world.step());
        let is_over = state(&world) == Some(State::Finished);
        for round in 0..2 {
            world.crash(if round == 0 { Crash::Power } else { Crash::Process });
            world.open().unwrap_or_else(|why| panic!("after {steps} steps: {why}"));
            (0..steps % 70).for_each(|_| _ = world.step());
        }
        world.run_until_quiet();
        assert_eq!((members(&world), role(&world, by)), (vec![1, by], Some(Role::Member)), "after {steps} steps");
        all_answered_well(&mut world);
        if is_over {
            return;
        }
        steps += 53;
    }
}

/// The spare is lost, too: the next one takes its turn, and what the first one got goes the same way.
#[test]
fn a_spare_that_is_lost_makes_room_for_the_next_one() {
    let (mut world, v) = pool();
    // A chunk more, which has still to go when the first one has gone.
    world.submit(0, v, WRITE, MIB, MIB, Content::Metadata);
    world.run_until_answered();
    world.run(v, Op::Flush, 0, 0).unwrap();
    let (one, two) = (spare(&mut world, &shape(96, "hdd")), spare(&mut world, &shape(96, "hdd")));
    lose(&mut world, v, 2);
    world.run_until(|w| holds(w, one) > 0);
    let since = world.now();
    world.faults.0.push(Fault { device: one, trouble: Trouble::Absent { since } });
    world.run_until(|w| device_state(w, one) == DeviceState::Missing);
    assert_eq!((state(&world), role(&world, two)), (Some(State::Running), Some(Role::Spare)));
    world.run_until_quiet();
    assert_eq!(used(&world)[..2], [(2, one), (2, two)], "{:?}", used(&world));
    assert!(!members(&world).contains(&2) && role(&world, two) == Some(Role::Member), "{:?}", members(&world));
    all_answered_well(&mut world);
    let third = spare(&mut world, &shape(96, "hdd"));
    world.run_until_quiet();
    assert_eq!(members(&world), [1, two, third], "{:?}", used(&world));
    all_answered_well(&mut world);
    assert_eq!(world.unequal(), []);
    let last = world.engine().pool().job.as_ref().map(|job| job.task.clone());
    assert_eq!(last, Some(Task::Replace { device: DeviceId(one), by: DeviceId(third) }));
}
