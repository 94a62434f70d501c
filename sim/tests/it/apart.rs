//! Members that were opened each without the other, and come together again.

use braid_core::control::{Command, VolumeClass};
use braid_core::request::{Content, Op};
use braid_core::units::{DeviceId, KIB, MIB, VolumeId};
use braid_core::{DeviceState, Profile};
use braid_sim::Model;
use braid_sim::fault::{Fault, Trouble};
use braid_sim::oracle::Oracle;
use braid_sim::world::Shape;
use braid_sim::{Crash, World};

const WRITE: Op = Op::Write { fua: false };

/// A mirror of two with 4 MiB written, after a power cut.
fn mirror(seed: u64) -> (World, VolumeId) {
    let shape = Shape { size: 64 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let mut world = World::with_pool(seed, &[shape.clone(), shape], Profile::Raid1, Profile::Raid1, &[]);
    let v = world.volume("v", 64 * MIB, VolumeClass::Auto);
    world.run(v, WRITE, 0, 4 * MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.crash(Crash::Power);
    (world, v)
}

/// One life with one member only: so many writes, flushed, and so many checkpoints. Ends in a power cut.
fn alone(world: &mut World, v: VolumeId, device: u32, writes: u64, checkpoints: u64) {
    let since = world.now();
    world.faults.0 = vec![Fault { device: 3 - device, trouble: Trouble::Absent { since } }];
    world.open().unwrap();
    assert_eq!(world.gives_up, None);
    for i in 0..writes {
        let at = (i * 5 + u64::from(device)) % 60 * 64 * KIB;
        world.submit(device, v, WRITE, at, 32 * KIB, Content::Unsaid);
    }
    world.run_until_answered();
    world.run(v, Op::Flush, 0, 0).unwrap();
    for _ in 0..checkpoints {
        world.control(Command::Checkpoint).unwrap();
    }
    world.crash(Crash::Power);
    world.faults.0.clear();
}

/// Reads everything under policies that ask one member, the other, and both in turn.
fn verify(world: &mut World, about: &str) {
    for policy in ["devid:1", "devid:2", "roundrobin-v3"] {
        world.control(Command::Set { name: "read_policy".into(), value: policy.into() }).unwrap();
        world.verify();
        assert!(world.wrong.is_empty(), "{about}, {policy}: {:?}", world.wrong);
        assert!(world.answers.drain(..).all(|a| a.result.is_ok()), "{about}, {policy}");
    }
}

fn generations(world: &World) -> Vec<u64> {
    world.superblocks().iter().map(|sb| sb.generation).collect()
}

#[test]
fn two_halves_that_went_their_own_ways_are_never_mixed() {
    let mut even = 0;
    // Writes and checkpoints of each side: equal numbers, more of one and of the other, and a side that wrote nothing
    // but is the newest all the same.
    for (a, b) in
        [((9, 2), (9, 2)), ((9, 0), (4, 3)), ((3, 5), (9, 1)), ((0, 6), (9, 0)), ((0, 0), (0, 0)), ((0, 1), (5, 1))]
    {
        for seed in 0..5 {
            let about = format!("{a:?} {b:?} seed {seed}");
            let (mut world, v) = mirror(seed);
            let fork: Oracle = world.oracle.clone();
            alone(&mut world, v, 1, a.0, a.1);
            let first = std::mem::replace(&mut world.oracle, fork);
            alone(&mut world, v, 2, b.0, b.1);
            let generations = generations(&world);
            even += usize::from(generations[0] == generations[1]);
            let winner = if generations[0] >= generations[1] { 1 } else { 2 };
            if winner == 1 {
                world.oracle = first;
            }
            world.open().unwrap_or_else(|why| panic!("{about}: {why}"));
            let said = world.gives_up.clone().unwrap_or_else(|| {
                // The newest says itself that the other missed writes.
                let state = world.engine().pool().device(DeviceId(3 - winner)).unwrap().state;
                assert_eq!(state, DeviceState::Failed, "{about}: nobody says so");
                String::new()
            });
            assert!(
                said.is_empty() || said.contains(&format!("device {}", 3 - winner)) && said.contains("-f"),
                "{said}"
            );
            assert_eq!(
                world.engine().pool().device(DeviceId(3 - winner)).unwrap().state,
                DeviceState::Failed,
                "{about}"
            );
            verify(&mut world, &about);
            // It stays so, and the winner goes on.
            world.run(v, WRITE, MIB, MIB).unwrap();
            world.run(v, Op::Flush, 0, 0).unwrap();
            world.crash(Crash::Power);
            world.open().unwrap();
            assert_eq!(
                world.engine().pool().device(DeviceId(3 - winner)).unwrap().state,
                DeviceState::Failed,
                "{about}"
            );
            verify(&mut world, &about);
        }
    }
    assert!(even > 0, "equal generations are the dangerous case");
}

#[test]
fn a_member_that_was_away_and_missed_nothing_comes_back_and_one_that_was_never_opened_too() {
    let (mut world, v) = mirror(1);
    for _ in 0..3 {
        alone(&mut world, v, 1, 0, 1);
    }
    world.open().unwrap();
    assert_eq!(world.gives_up, None);
    assert_eq!(world.engine().pool().device(DeviceId(2)).unwrap().state, DeviceState::Online);
    verify(&mut world, "together again");
    world.run_until_quiet();
    world.crash(Crash::Process);
    // Away for longer than openings are remembered: nobody can tell any more, so it is not trusted.
    for _ in 0..17 {
        alone(&mut world, v, 2, 0, 0);
    }
    world.open().unwrap();
    assert!(world.gives_up.is_some());
    verify(&mut world, "long away");

    let shape = Shape { size: 64 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let mut world = World::new(1);
    world.create(&[shape.clone(), shape], Profile::Raid1, Profile::Raid1, &[]).unwrap();
    let since = world.now();
    world.faults.0 = vec![Fault { device: 2, trouble: Trouble::Absent { since } }];
    world.open().unwrap();
    world.run_until_quiet();
    world.crash(Crash::Power);
    world.faults.0.clear();
    world.open().unwrap();
    assert_eq!(world.gives_up, None);
}

/// What was written to the records while a member was away is on it soon after it is back: the other one may go then.
#[test]
fn a_member_that_comes_back_gets_the_records_it_missed() {
    for seed in 0..10 {
        let (mut world, v) = mirror(seed);
        alone(&mut world, v, 1, 0, seed % 3);
        world.open().unwrap();
        world.run_until_quiet();
        world.crash(Crash::Power);
        let since = world.now();
        world.faults.0 = vec![Fault { device: 1, trouble: Trouble::Absent { since } }];
        world.open().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(world.run(v, Op::Read, 0, 4 * MIB), Ok(()));
        verify(&mut world, "the one that was away");
    }
}
