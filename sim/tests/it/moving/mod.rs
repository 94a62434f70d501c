//! Content that moves while clients go on: members that leave, balances.

mod instead;
mod lost;
mod replace;
mod sums;

use braid_core::control::{Command, ErrorKind, VolumeClass};
use braid_core::job::Choice;
use braid_core::request::{Content, Event, Op};
use braid_core::scrub::State;
use braid_core::units::{DeviceId, MIB, UNIT, VolumeId};
use braid_core::{ChunkType, Profile, Slip};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::swarm::{self, Scenario};
use braid_sim::{Crash, World};

use crate::common::{all_answered_well, shape};

const WRITE: Op = Op::Write { fua: false };

/// A pool with 24 MiB of content, flushed.
fn pool(devices: usize, profile: Profile) -> (World, VolumeId) {
    let mut world = World::with_pool(1, &vec![shape(96); devices], profile, profile.system(), &[]);
    let v = world.volume("v", 256 * MIB, VolumeClass::Auto);
    for i in 0..24 {
        world.run(v, WRITE, 2 * i * MIB, MIB).unwrap();
    }
    // Holes inside units, too.
    world.run(v, WRITE, 100 * MIB + 4096, 8192).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    (world, v)
}

fn state(world: &World) -> Option<State> {
    world.engine().pool().job.as_ref().map(|job| job.state)
}

fn remove(device: u32) -> Command {
    Command::RemoveDevice { device: DeviceId(device) }
}

pub(crate) fn convert(profile: Profile) -> Command {
    let choice = Some(Choice { convert: Some(profile), ..Choice::default() });
    Command::Balance { data: choice.clone(), metadata: choice }
}

fn members(world: &World) -> Vec<u32> {
    world.engine().pool().devices().map(|d| d.id.0).collect()
}

/// Each of the members, the one with the log's first copy included.
#[test]
fn a_member_leaves_with_everything_that_was_on_it_elsewhere() {
    for device in 1..=3 {
        let (mut world, v) = pool(3, Profile::Raid1);
        world.control(remove(device)).unwrap();
        assert_eq!(state(&world), Some(State::Running));
        // Clients go on meanwhile, where things are moved and elsewhere.
        for i in 0..40 {
            world.run(v, WRITE, i * 700 * 1024 / 4096 * 4096, 64 * 1024).unwrap();
            if i % 5 == 0 {
                world.run(v, Op::Discard, i * MIB, MIB).unwrap();
            }
        }
        world.run_until(|w| state(w) != Some(State::Running));
        assert_eq!(state(&world), Some(State::Finished), "device {device}");
        assert_eq!(members(&world), [1, 2, 3].into_iter().filter(|&d| d != device).collect::<Vec<_>>());
        let removed = |e: &Event| matches!(e, Event::DeviceRemoved { device: d, cleared: true } if d.0 == device);
        assert!(world.events.iter().any(removed), "device {device}");
        world.run_until_quiet();
        assert_eq!(world.superblocks().len(), 2, "device {device} still says that it is a member");
        all_answered_well(&mut world);
        world.crash(Crash::Power);
        world.open().unwrap();
        assert_eq!(members(&world).len(), 2);
        all_answered_well(&mut world);
        // Its id is not used again.
        let tag = world.add_disk(&shape(96));
        world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
        assert_eq!(members(&world).last(), Some(&4));
        all_answered_well(&mut world);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers() {
    let (mut world, _) = pool(2, Profile::Raid1);
    let why = world.control(remove(2)).unwrap_err();
    assert_eq!(why.kind, ErrorKind::Refused);
    assert!(why.message.contains("does not fit without device 2") && why.message.contains("MiB"), "{}", why.message);
    let why = world.control(convert(Profile::Raid1c3)).unwrap_err();
    assert_eq!(why.kind, ErrorKind::Refused);
    assert_eq!(world.control(remove(9)).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(state(&world), None);
    all_answered_well(&mut world);
}

/// Content without a second copy, flushed long ago: a flush of its new device fails and takes its cache along, at any moment.
#[test]
fn what_moves_is_not_lost_with_the_cache_of_where_it_goes() {
    let moments = |other, slip| {
        (0..).map(|i| i * 61).map_while(move |steps| move_beside_lost_cache(steps, other, slip).transpose())
    };
    let both = |slip| moments(0, slip).chain(moments(1, slip));
    let found: Vec<_> = both(None).collect();
    assert!(found.iter().all(Result::is_ok) && found.len() > 10, "{found:?}");
    assert!(both(Some(Slip::CopyNotFlushed)).any(|why| why.is_err()), "it goes unnoticed");
}

/// A flush of one of the others fails after so many events of a removal; none when it was over before.
fn move_beside_lost_cache(steps: u64, other: usize, slip: Option<Slip>) -> Result<Option<()>, String> {
    let shapes = vec![shape(160); 3];
    let mut world = World::new(1);
    world.slip = slip;
    world.create(&shapes, Profile::Single, Profile::Raid1, &[("checksum", "none")]).unwrap();
    world.open().unwrap();
    let v = world.volume("v", 256 * MIB, VolumeClass::Auto);
    for i in 0..24 {
        world.run(v, WRITE, 2 * i * MIB, MIB).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    let from = world.places(v, 0)[0].0;
    world.command(remove(from.0));
    for _ in 0..steps {
        world.step();
    }
    if state(&world) == Some(State::Finished) {
        return Ok(None);
    }
    let device = (1..=3).filter(|&d| d != from.0).nth(other).unwrap();
    world.faults.0.push(Fault { device, trouble: Trouble::CacheLost { percent: 100, left: 1 } });
    world.run_until(|w| state(w) != Some(State::Running));
    assert_eq!(state(&world), Some(State::Finished), "after {steps} events");
    world.run_until_quiet();
    for i in 0..24 {
        world.run(v, Op::Read, 2 * i * MIB, MIB).map_err(|why| format!("after {steps} events: {why:?}"))?;
    }
    world.wrong.first().map_or(Ok(Some(())), |why| Err(format!("after {steps} events: {why}")))
}

/// At every so many events of a removal, and again when it goes on: of a member with content, and of one with the log.
#[test]
fn power_cuts_on_the_way_out_lose_nothing() {
    for is_log in [false, true] {
        let cuts = (0..).map(|i| i * 41).take_while(|&steps| !cut_after(steps, is_log)).count();
        assert!(cuts > 5, "{cuts} cuts");
    }
}

/// A removal is cut short after so many events, twice, and goes on to its end; says whether it was over before that.
fn cut_after(steps: u64, is_log: bool) -> bool {
    let (mut world, v) = pool(3, Profile::Raid1);
    let log = world.chunks(ChunkType::System)[0].1[0];
    let device = if is_log { log } else { world.places(v, 0)[1].0 };
    world.command(remove(device.0));
    let mut left = steps;
    while left > 0 && state(&world) != Some(State::Finished) {
        if left.is_multiple_of(50) {
            world.submit(0, v, WRITE, left % 40 * MIB, 64 * 1024, Content::Unsaid);
        }
        world.step();
        left -= 1;
    }
    let is_over = state(&world) == Some(State::Finished);
    for round in 0..2 {
        world.crash(if (steps + round).is_multiple_of(2) { Crash::Power } else { Crash::Process });
        world.open().unwrap_or_else(|why| panic!("after {steps} steps: {why}"));
        for _ in 0..steps % 90 {
            world.step();
        }
    }
    world.run_until(|w| state(w) != Some(State::Running));
    world.done.clear();
    world.answers.clear();
    all_answered_well(&mut world);
    is_over
}

#[test]
fn a_balance_changes_the_profile_of_everything_and_of_what_comes() {
    let (mut world, v) = pool(3, Profile::Single);
    world.control(convert(Profile::Raid1)).unwrap();
    world.run_until(|w| state(w) != Some(State::Running));
    assert_eq!(state(&world), Some(State::Finished));
    world.run(v, WRITE, 200 * MIB, 4 * MIB).unwrap();
    let report = world.engine().report();
    assert_eq!(report.profiles, [Profile::Raid1; 3]);
    assert!(report.chunks.iter().all(|c| c.profile == Profile::Raid1), "{:?}", report.chunks);
    let job = report.job.unwrap().job;
    assert!(job.done >= 24 * MIB && job.done == job.total && job.lost == 0, "{job:?}");
    all_answered_well(&mut world);
    // And now it survives.
    let since = world.now();
    world.faults.0.push(Fault { device: 1, trouble: Trouble::Absent { since } });
    world.run(v, WRITE, 0, 8 * MIB).unwrap();
    all_answered_well(&mut world);
}

#[test]
fn filters_choose_and_soft_leaves_alone() {
    let (mut world, _) = pool(3, Profile::Raid1);
    let before: Vec<_> = world.chunks(ChunkType::Data);
    let soft = Some(Choice { convert: Some(Profile::Raid1), soft: true, ..Choice::default() });
    world.control(Command::Balance { data: soft, metadata: None }).unwrap();
    world.run_until(|w| state(w) != Some(State::Running));
    assert_eq!(world.chunks(ChunkType::Data), before, "all have it already");
    world.control(Command::Balance { data: Some(Choice::default()), metadata: None }).unwrap();
    world.run_until(|w| state(w) != Some(State::Running));
    assert!(world.chunks(ChunkType::Data).iter().all(|c| !before.contains(c)), "all are new");
    all_answered_well(&mut world);
}

#[test]
fn pause_resume_and_cancel_over_restarts() {
    let (mut world, v) = pool(3, Profile::Raid1);
    let leaver = world.places(v, 0)[1].0.0;
    let stays: Vec<u32> = (1..=3).filter(|&id| id != leaver).collect();
    world.command(remove(leaver));
    world.control(Command::JobPause).unwrap();
    world.run_until_quiet();
    world.crash(Crash::Process);
    world.open().unwrap();
    world.run_until_quiet();
    assert_eq!(state(&world), Some(State::Paused));
    assert_eq!(world.control(remove(stays[0])).unwrap_err().kind, ErrorKind::Busy);
    world.command(Command::JobResume);
    world.control(Command::JobCancel).unwrap();
    world.crash(Crash::Power);
    world.open().unwrap();
    world.run_until_quiet();
    assert_eq!((state(&world), members(&world)), (Some(State::Canceled), vec![1, 2, 3]));
    // It takes chunks again.
    world.run(v, WRITE, 150 * MIB, 60 * MIB).unwrap();
    all_answered_well(&mut world);
    world.run(v, Op::Discard, 150 * MIB, 60 * MIB).unwrap();
    world.run_until_quiet();
    world.control(remove(leaver)).unwrap();
    world.run_until(|w| state(w) != Some(State::Running));
    assert_eq!(members(&world), stays);
    all_answered_well(&mut world);
}

/// Units on their way for a job that was canceled are left alone by the next one: two moves of one unit would not both hear
/// of a write meanwhile.
#[test]
fn a_job_that_follows_a_canceled_one_takes_no_unit_twice() {
    let scenario = r#"{
      "seed": 23744, "data": "dup", "metadata": "raid0",
      "devices": [{"kind":"sata-ssd","bytes":118079488}],
      "lives": [
        { "steps": [{"create":{"slot":2,"name":"v","size":16777216,"class":"auto"}}, {"go":13}], "crash": "process" },
        { "steps": [
            {"add":{"kind":"hdd-5400","bytes":91271168}}, {"go":16},
            {"ask":{"client":0,"depth":16,"slot":2,"op":"write","offset":3473408,"len":4096}}, {"go":4},
            {"remove":2}, {"go":3}, {"job":"cancel"}, {"balance":{}}, {"go":4},
            {"ask":{"client":0,"depth":16,"slot":2,"op":"write","offset":3489792,"len":4096}}
          ],
          "rests": true, "crash": "process" }
      ]
    }"#;
    let scenario = Scenario::parse(scenario).unwrap();
    let failure = swarm::attempt(&scenario).err();
    assert!(failure.is_none(), "{failure:?}");
}

/// What a member that is gone had is made again from the other copies.
#[test]
fn a_missing_member_is_removed_and_all_has_two_copies_again() {
    let (mut world, v) = pool(3, Profile::Raid1);
    let since = world.now();
    world.faults.0.push(Fault { device: 3, trouble: Trouble::Absent { since } });
    world.run(v, WRITE, 0, 50 * MIB).unwrap();
    world.control(remove(3)).unwrap();
    world.run_until(|w| state(w) != Some(State::Running));
    assert_eq!((state(&world), members(&world)), (Some(State::Finished), vec![1, 2]));
    assert!(world.unequal().is_empty());
    all_answered_well(&mut world);
    // Either of the two can be missed now.
    world.crash(Crash::Process);
    world.faults.0.clear();
    let since = world.now();
    world.faults.0.push(Fault { device: 1, trouble: Trouble::Absent { since } });
    world.open().unwrap();
    world.verify();
    assert!(world.answers.drain(..).all(|a| a.result.is_ok()));
}

/// A block without a readable copy stays where it is, is told, and the member with it.
#[test]
fn what_cannot_be_read_stays_and_is_told() {
    let (mut world, v) = pool(3, Profile::Single);
    let (device, at) = world.places(v, 0)[0];
    world.faults.0.push(Fault { device: device.0, trouble: Trouble::Latent { since: 0, from: at, to: at + 4096 } });
    world.control(remove(device.0)).unwrap();
    world.run_until(|w| state(w) != Some(State::Running));
    assert_eq!(state(&world), Some(State::Canceled));
    let is_lost = |e: &&Event| matches!(e, Event::MoveLost { offset: 0, len: UNIT, .. });
    assert_eq!(world.events.iter().filter(is_lost).count(), 1);
    assert_eq!(members(&world).len(), 3);
    world.run_until_quiet();
    // Written anew it can go.
    world.run(v, WRITE, 0, 64 * 1024).unwrap();
    world.control(remove(device.0)).unwrap();
    world.run_until(|w| state(w) != Some(State::Running));
    assert_eq!(members(&world).len(), 2);
    all_answered_well(&mut world);
}
