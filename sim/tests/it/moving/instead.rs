//! A disk that comes to take a member's place, in one command: it joins and the replacement begins, or nothing does.

use braid_core::Profile;
use braid_core::control::{Command, ControlError, Done, ErrorKind};
use braid_core::job::Task;
use braid_core::request::{Content, Event, Op};
use braid_core::scrub::State;
use braid_core::units::{DeviceId, MIB};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::{Crash, World};

use super::{WRITE, convert, members, pool, remove, state};
use crate::common::{all_answered_well, shape};

fn task(world: &World) -> Option<Task> {
    world.engine().pool().job.as_ref().map(|job| job.task.clone())
}

fn answer(world: &mut World, tag: u64) -> Result<Done, ControlError> {
    world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
    world.done.iter().find(|(of, _)| *of == tag).expect("just seen").1.clone()
}

#[test]
fn a_disk_joins_and_gets_what_a_member_has() {
    let (mut world, _) = pool(2, Profile::Raid1);
    let tag = world.replace_with(DeviceId(1), &shape(96));
    assert_eq!(answer(&mut world, tag), Ok(Done::Device(DeviceId(3))));
    assert_eq!(task(&world), Some(Task::Replace { device: DeviceId(1), by: DeviceId(3) }));
    world.run_until(|w| state(w) == Some(State::Finished));
    assert_eq!(members(&world), [2, 3]);
    all_answered_well(&mut world);
}

#[test]
fn no_other_job_begins_while_it_joins() {
    let (mut world, _) = pool(3, Profile::Raid1);
    let tag = world.replace_with(DeviceId(1), &shape(96));
    for command in [remove(2), convert(Profile::Raid1c3)] {
        let refused = world.control(command.clone()).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Busy, "{command:?}");
    }
    let other = world.replace_with(DeviceId(2), &shape(96));
    assert_eq!(answer(&mut world, other).unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(answer(&mut world, tag), Ok(Done::Device(DeviceId(4))));
    assert_eq!(task(&world), Some(Task::Replace { device: DeviceId(1), by: DeviceId(4) }));
}

/// Not a spare's either, which is due in that moment: it comes after it.
#[test]
fn a_spare_waits_until_it_is_over() {
    let mut due_meanwhile = 0;
    for early in 0..12 {
        let (mut world, v) = pool(3, Profile::Raid1);
        let spare = world.add_spare(&shape(96));
        answer(&mut world, spare).unwrap();
        world.control(Command::Set { name: "spare_delay".into(), value: "1s".into() }).unwrap();
        let since = world.now();
        world.faults.0.push(Fault { device: 3, trouble: Trouble::Absent { since } });
        world.run(v, WRITE, 0, 24 * MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        let in_use = |w: &World| w.events.iter().any(|e| matches!(e, Event::SpareInUse { .. }));
        while world.now() < since + 1_000_000_000 - early * 500_000 {
            world.run(v, Op::Read, 0, 4096).unwrap();
        }
        if in_use(&world) {
            continue;
        }
        let (begun, tag) = (world.now(), world.replace_with(DeviceId(1), &shape(96)));
        assert_eq!(answer(&mut world, tag), Ok(Done::Device(DeviceId(5))));
        due_meanwhile += u64::from((begun..world.now()).contains(&(since + 1_000_000_000)));
        assert_eq!(task(&world), Some(Task::Replace { device: DeviceId(1), by: DeviceId(5) }));
        world.run_until(in_use);
        assert_eq!(members(&world), [2, 3, 4, 5]);
    }
    assert!(due_meanwhile > 0);
}

/// There was room when it was asked for, and clients were faster.
#[test]
fn what_does_not_fit_any_more_is_refused_and_nobody_joins() {
    let mut refused = 0;
    for mib in 40..80 {
        let (mut world, v) = pool(2, Profile::Raid1);
        let tag = world.replace_with(DeviceId(1), &shape(mib));
        if world.done.iter().any(|(of, result)| *of == tag && result.is_err()) {
            continue;
        }
        for i in 0..30 {
            world.submit(1, v, WRITE, (100 + i) * MIB, MIB, Content::default());
        }
        match answer(&mut world, tag) {
            Ok(_) => assert!(task(&world).is_some(), "{mib} MiB"),
            Err(why) => {
                refused += 1;
                assert_eq!((why.kind, members(&world), task(&world)), (ErrorKind::Refused, vec![1, 2], None));
                world.run_until_quiet();
                // Nor is the next one told that something goes on.
                let next = world.control(convert(Profile::Raid1));
                assert_ne!(next.map_err(|why| why.kind), Err(ErrorKind::Busy));
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn a_crash_leaves_both_or_neither() {
    let mut seen = [0; 2];
    for steps in (0..120).step_by(3) {
        for crash in [Crash::Process, Crash::Power] {
            let (mut world, v) = pool(2, Profile::Raid1);
            world.replace_with(DeviceId(1), &shape(96));
            (0..steps).for_each(|_| assert!(world.step()));
            world.crash(crash);
            world.open().unwrap();
            let joined = members(&world) != [1, 2];
            assert_eq!(joined, task(&world).is_some(), "{steps} steps, {crash:?}");
            seen[usize::from(joined)] += 1;
            world.run_until(|w| state(w) != Some(State::Running));
            world.run(v, Op::Read, 0, MIB).unwrap();
        }
    }
    assert!(seen.iter().all(|&times| times > 8), "{seen:?}");
}
