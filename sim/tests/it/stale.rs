//! Members that miss writes, go and come back: what they missed is noted and caught up, and nothing stale is ever read.

use braid_core::control::{Command, Done};
use braid_core::regions::{ROWS, row_unit};
use braid_core::request::{Content, DeviceOp, Event, Op, RequestError};
use braid_core::units::{BLOCK, DeviceId, MIB, UNIT, VolumeId};
use braid_core::{ChunkType, DeviceState, Profile};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::{Crash, World};

use crate::common::all_is_well;
use crate::scrub::{WRITE, fill, pool, scrub};

const TWO: DeviceId = DeviceId(2);

fn state(world: &World, device: DeviceId) -> DeviceState {
    world.engine().pool().device(device).expect("a member").state
}

fn regions(world: &World, device: DeviceId) -> u64 {
    world.engine().report().devices[device.index() - 1].stale.regions
}

fn befalls(world: &mut World, trouble: Trouble) {
    let trouble = trouble.later(world.now());
    world.faults.0.push(Fault { device: 2, trouble });
}

fn fine(world: &mut World) {
    all_is_well(world);
    assert_eq!(world.unequal(), []);
}

fn mirror(profile: Profile, devices: usize) -> (World, VolumeId) {
    let (mut world, v) = pool(devices, profile, Profile::Raid1);
    fill(&mut world, v);
    world.run_until_quiet();
    world.events.clear();
    (world, v)
}

#[test]
fn a_write_that_one_copy_refuses_is_caught_up_and_nothing_else_is() {
    for (profile, devices) in [(Profile::Raid1, 2), (Profile::Raid1c3, 3), (Profile::Raid10, 4)] {
        let (mut world, v) = mirror(profile, devices);
        let (from, to) = (0, u64::MAX >> 1);
        befalls(&mut world, Trouble::writes_fail(from..to, 1));
        let mut wrote = 0;
        while !world.events.iter().any(|e| matches!(e, Event::DeviceSuspect { .. })) {
            world.run(v, WRITE, wrote * MIB, BLOCK).unwrap();
            wrote += 1;
        }
        assert_eq!(state(&world, TWO), DeviceState::Suspect);
        world.keep_dispatched = true;
        fine(&mut world);
        assert_eq!((state(&world, TWO), regions(&world, TWO)), (DeviceState::Online, 0), "{profile:?}");
        let online = world.events.iter().filter(|e| **e == Event::DeviceOnline { device: TWO }).count();
        assert_eq!(online, 1, "{profile:?}");
    }
}

#[test]
fn a_member_that_was_away_is_caught_up_by_what_it_missed_and_not_wholesale() {
    let (mut world, v) = mirror(Profile::Raid1, 2);
    befalls(&mut world, Trouble::Pulled { since: 0, until: 1 });
    for at in [0, 9 * MIB, 9 * MIB + BLOCK, 7 << 33] {
        world.run(v, WRITE, at, BLOCK).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    assert_eq!((state(&world, TWO), regions(&world, TWO)), (DeviceState::Missing, 3));
    for at in [0, 9 * MIB, 7 << 33, 3 * MIB] {
        world.run(v, Op::Read, at, BLOCK).unwrap();
    }
    assert!(world.comes_back(TWO));
    (world.keep_dispatched, world.dispatched) = (true, Vec::new());
    assert_eq!(world.control(Command::OnlineDevice { device: TWO, found: None }), Ok(Done::Changed));
    fine(&mut world);
    assert_eq!((state(&world, TWO), regions(&world, TWO)), (DeviceState::Online, 0));
    let written = |d: &&braid_core::request::Dispatch| d.device == TWO && d.op == WRITE_COMMAND;
    let bytes: u64 = world.dispatched.iter().filter(written).map(|d| d.len).sum();
    assert!(bytes < 16 * MIB, "{bytes} bytes for three regions of 4 MiB and the pool's own records");
    // And it can be relied on: the other one may go now.
    world.faults.0.push(Fault { device: 1, trouble: Trouble::Absent { since: world.now() } });
    world.verify();
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}

const WRITE_COMMAND: braid_core::request::DeviceOp = braid_core::request::DeviceOp::Write { fua: false };

fn put(world: &mut World, v: VolumeId, at: u64, len: u64, content: Content) -> Result<(), RequestError> {
    let tag = world.submit(0, v, WRITE, at, len, content);
    world.run_until(|w| w.answers.iter().any(|a| a.tag == tag));
    let at = world.answers.iter().position(|a| a.tag == tag).expect("it was answered");
    world.answers.swap_remove(at).result
}

/// Data and metadata are neighbours in a region of 4 MiB, with unlike redundancy: a member that has the only copy of some of it goes,
/// and what has another copy is served, written and noted as missed all the same.
#[test]
fn of_a_region_that_is_not_redundant_alike_a_member_misses_what_others_have() {
    for (returns, crash) in [(false, None), (true, None), (true, Some(Crash::Process)), (true, Some(Crash::Power))] {
        let (mut world, v) = pool(2, Profile::Single, Profile::Raid1);
        let (data, metadata) = (16 * BLOCK, 0);
        put(&mut world, v, metadata, BLOCK, Content::Metadata).unwrap();
        put(&mut world, v, data, BLOCK, Content::Data).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run_until_quiet();
        let lone = world.chunks(ChunkType::Data)[0].1[0];
        let trouble = Trouble::Pulled { since: 0, until: 1 }.later(world.now());
        world.faults.0.push(Fault { device: lone.0, trouble });

        for at in [metadata, 2 * 16 * BLOCK] {
            assert_eq!(put(&mut world, v, at, BLOCK, Content::Metadata), Ok(()), "the other copy has it");
        }
        assert_eq!(put(&mut world, v, data, BLOCK, Content::Data), Err(RequestError::Io));
        assert_eq!((state(&world, lone), regions(&world, lone)), (DeviceState::Missing, 1));
        let reads = |world: &mut World| [metadata, data].map(|at| world.run(v, Op::Read, at, BLOCK).is_ok());
        assert_eq!(reads(&mut world), [true, false]);
        assert_eq!(world.run(v, Op::Flush, 0, 0), Ok(()));
        if !returns {
            continue;
        }
        assert!(world.comes_back(lone));
        match crash {
            None => {
                assert_eq!(world.control(Command::OnlineDevice { device: lone, found: None }), Ok(Done::Changed))
            }
            Some(crash) => {
                world.crash(crash);
                world.open().unwrap();
            }
        }
        assert_eq!(
            reads(&mut world),
            [true, true],
            "{crash:?}: nobody else has the data, and nobody read what was missed"
        );
        fine(&mut world);
        assert_eq!((state(&world, lone), regions(&world, lone)), (DeviceState::Online, 0), "{crash:?}");
        assert_eq!(reads(&mut world), [true, true]);
    }
}

#[test]
fn a_member_that_returns_at_an_opening_is_caught_up_before_it_is_read() {
    for crash in [Crash::Process, Crash::Power] {
        let (mut world, v) = mirror(Profile::Raid1, 2);
        befalls(&mut world, Trouble::Absent { since: 0 });
        world.run(v, WRITE, 0, 64 * BLOCK).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.crash(crash);
        world.open().unwrap();
        world.run_until_quiet();
        assert_eq!(state(&world, TWO), DeviceState::Missing);
        world.run(v, WRITE, 64 * BLOCK, 64 * BLOCK).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.crash(crash);
        world.mend();
        world.open().unwrap();
        assert_eq!(state(&world, TWO), DeviceState::Suspect, "{crash:?}");
        assert!(world.engine().report().devices[TWO.index() - 1].stale.is_to_come, "{crash:?}");
        for _ in 0..32 {
            world.run(v, Op::Read, 0, 128 * BLOCK).unwrap();
        }
        // Who waits for it to be up to date waits until it is said to be online.
        while state(&world, TWO) != DeviceState::Online {
            assert!(world.engine().report().devices[TWO.index() - 1].stale.is_to_come, "{crash:?}");
            assert!(world.step(), "it comes to its end");
        }
        fine(&mut world);
    }
}

#[test]
fn a_member_that_is_caught_up_is_rebuilding_and_says_how_far_it_is() {
    let (mut world, v) = mirror(Profile::Raid1, 2);
    world.control(Command::OfflineDevice { device: TWO }).unwrap();
    for i in 0..24 {
        world.run(v, WRITE, i * 4 * MIB, 16 * BLOCK).unwrap();
    }
    let behind = regions(&world, TWO) * 4 * MIB;
    assert_eq!(world.control(Command::OnlineDevice { device: TWO, found: None }), Ok(Done::Changed));
    let mut seen = Vec::new();
    while world.engine().pool().device(TWO).unwrap().state != DeviceState::Online {
        let report = &world.engine().report().devices[TWO.index() - 1];
        assert_eq!(report.rebuilt.is_some(), report.state == DeviceState::Rebuilding, "{:?}", report.state);
        assert!(report.stale.is_to_come, "{:?} at {:?}", report.state, report.rebuilt);
        seen.extend(report.rebuilt);
        assert!(world.step(), "it comes to its end");
    }
    assert!(seen.len() > 24 && seen.iter().all(|p| p.total == behind), "{seen:?}");
    assert!(seen.is_sorted_by_key(|p| p.done) && seen[0].done < behind, "{seen:?}");
    assert!(seen.last().unwrap().done * 4 > behind * 3, "{seen:?}");
    fine(&mut world);
}

/// Nothing can be done for it: it is not said to be rebuilt.
#[test]
fn a_member_without_a_source_is_suspect() {
    let (mut world, v) = mirror(Profile::Raid1, 2);
    world.control(Command::OfflineDevice { device: TWO }).unwrap();
    world.run(v, WRITE, 0, 16 * BLOCK).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    let (from, to) = (0, u64::MAX >> 1);
    let trouble = Trouble::reads_fail(from..to, u64::MAX);
    world.faults.0.push(Fault { device: 1, trouble: trouble.later(world.now()) });
    world.control(Command::OnlineDevice { device: TWO, found: None }).unwrap();
    world.run_until_quiet();
    assert_eq!(state(&world, TWO), DeviceState::Suspect);
    let report = &world.engine().report().devices[TWO.index() - 1];
    assert_eq!((report.rebuilt, report.stale.is_to_come), (None, false), "who waits would wait for ever");
    world.mend();
    world.control(Command::Checkpoint).unwrap();
    world.control(Command::OfflineDevice { device: TWO }).unwrap();
    world.control(Command::OnlineDevice { device: TWO, found: None }).unwrap();
    fine(&mut world);
    assert_eq!(state(&world, TWO), DeviceState::Online);
}

fn until_it_is_written(from: u64, to: u64) -> Trouble {
    Trouble::Latent { since: 0, from, to }
}

/// TWO was away, and is back beside a block of the first volume's that the others have lost meanwhile: how much it still lacks.
fn back_beside_a_bad_block(world: &mut World, v: VolumeId, at: u64, trouble: impl Fn(u64, u64) -> Trouble) {
    world.control(Command::OfflineDevice { device: TWO }).unwrap();
    world.run(v, WRITE, 0, 2 * MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    for (device, place) in world.places(v, at).into_iter().filter(|(device, _)| *device != TWO) {
        world.faults.0.push(Fault { device: device.0, trouble: trouble(place, place + BLOCK) });
    }
    world.control(Command::OnlineDevice { device: TWO, found: None }).unwrap();
    world.run_until_quiet();
    let stale = &world.engine().report().devices[TWO.index() - 1].stale;
    assert_eq!((state(world, TWO), stale.sourceless, stale.is_to_come), (DeviceState::Suspect, 1, false));
}

/// One bad block is 64 KiB less redundancy and not a region; and it is none when somebody writes it.
#[test]
fn what_cannot_be_read_keeps_nothing_around_it_from_being_caught_up() {
    let bad = 7 * UNIT + 3 * BLOCK;
    for crashes in [false, true] {
        let (mut world, v) = mirror(Profile::Raid1, 2);
        back_beside_a_bad_block(&mut world, v, bad, until_it_is_written);
        if crashes {
            world.crash(Crash::Power);
            world.open().unwrap();
            world.run_until_quiet();
        }
        let around = [(0, 7 * UNIT), (8 * UNIT, 2 * MIB)];
        for (start, end) in around {
            for unit in start / UNIT..end / UNIT {
                assert!(!world.engine().pool().is_unit_stale(TWO, v, unit), "unit {unit}");
            }
        }
        assert!(world.engine().pool().is_unit_stale(TWO, v, bad / UNIT));
        assert_eq!(world.run(v, Op::Read, bad, BLOCK), Err(RequestError::Io), "it is read from nobody who missed it");
        // A part of the unit, and then the block itself.
        world.run(v, WRITE, bad - 2 * BLOCK, BLOCK).unwrap();
        world.run_until_quiet();
        assert_eq!(state(&world, TWO), DeviceState::Suspect);
        world.run(v, WRITE, bad, BLOCK).unwrap();
        fine(&mut world);
        assert_eq!((state(&world, TWO), regions(&world, TWO)), (DeviceState::Online, 0));
        // It has all of it now.
        world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap();
        world.run(v, Op::Read, 0, 2 * MIB).unwrap();
    }
}

/// The same of a row.
#[test]
fn a_row_that_cannot_be_made_keeps_nothing_around_it_from_being_caught_up() {
    let bad = 7 * UNIT + 3 * BLOCK;
    for crashes in [false, true] {
        let (mut world, v) = mirror(Profile::Raid5, 3);
        back_beside_a_bad_block(&mut world, v, bad, until_it_is_written);
        if crashes {
            world.crash(Crash::Power);
            world.open().unwrap();
            world.run_until_quiet();
        }
        // Two units are in a row, and so the fourth has the block.
        let pool = world.engine().pool();
        let chunk = pool.chunks().find(|c| c.rows() > 0).expect("it was written").id;
        let missed: Vec<u32> = (0..16).filter(|row| pool.is_unit_stale(TWO, ROWS, row_unit(chunk, *row))).collect();
        assert_eq!(missed, [3]);
        world.run(v, WRITE, bad - 3 * BLOCK, UNIT).unwrap();
        fine(&mut world);
        assert_eq!((state(&world, TWO), regions(&world, TWO)), (DeviceState::Online, 0));
        world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap();
        world.run(v, Op::Read, 0, 2 * MIB).unwrap();
    }
}

/// In the same region other members may miss other rows: each row is whole without one of them.
#[test]
fn members_may_miss_rows_beside_one_that_cannot_be_made() {
    let (mut world, v) = mirror(Profile::Raid5, 3);
    back_beside_a_bad_block(&mut world, v, 7 * UNIT + 3 * BLOCK, until_it_is_written);
    let is_elsewhere = |&unit: &u64| world.places(v, unit * UNIT)[0].0 != TWO;
    let other = (20..30).find(is_elsewhere).expect("rows rotate") * UNIT;
    let (device, place) = world.places(v, other)[0];
    let trouble = Trouble::writes_fail(place..place + UNIT, 1);
    world.faults.0.push(Fault { device: device.0, trouble });
    world.run(v, WRITE, other, UNIT).unwrap();
    world.run(v, WRITE, 7 * UNIT, UNIT).unwrap();
    fine(&mut world);
    for device in 1..4 {
        assert_eq!((state(&world, DeviceId(device)), regions(&world, DeviceId(device))), (DeviceState::Online, 0));
    }
}

#[test]
fn what_could_not_be_read_is_read_again_by_a_scrub() {
    let bad = 7 * UNIT + 3 * BLOCK;
    let (mut world, v) = mirror(Profile::Raid1, 2);
    back_beside_a_bad_block(&mut world, v, bad, |from, to| Trouble::reads_fail(from..to, u64::MAX));
    world.faults.0.clear();
    world.run_until_quiet();
    assert_eq!(state(&world, TWO), DeviceState::Suspect);
    scrub(&mut world);
    fine(&mut world);
    assert_eq!((state(&world, TWO), regions(&world, TWO)), (DeviceState::Online, 0));
}

#[test]
fn a_crash_in_the_middle_of_catching_up_goes_on_where_it_was() {
    for seed in 0..20 {
        let (mut world, v) = mirror(Profile::Raid1, 2);
        world.rng = braid_sim::Rng::new(seed);
        world.control(Command::OfflineDevice { device: TWO }).unwrap();
        for i in 0..24 {
            world.run(v, WRITE, i * MIB, 16 * BLOCK).unwrap();
        }
        world.control(Command::OnlineDevice { device: TWO, found: None }).unwrap();
        for _ in 0..world.rng.between(1, 300) {
            world.step();
        }
        world.crash(if seed % 2 == 0 { Crash::Power } else { Crash::Process });
        world.open().unwrap();
        fine(&mut world);
        assert_eq!(state(&world, TWO), DeviceState::Online, "seed {seed}");
    }
}

#[test]
fn repeated_errors_fail_a_member_and_an_operator_brings_it_back_whole() {
    let (mut world, v) = mirror(Profile::Raid1, 2);
    let (from, to) = (0, u64::MAX >> 1);
    let left = u64::MAX;
    befalls(&mut world, Trouble::writes_fail(from..to, left));
    for i in 0..24 {
        world.run(v, WRITE, i * MIB, BLOCK).unwrap();
    }
    world.run_until_quiet();
    assert_eq!(state(&world, TWO), DeviceState::Failed);
    world.run(v, WRITE, 0, BLOCK).unwrap();
    world.faults.0.clear();
    world.crash(Crash::Process);
    world.open().unwrap();
    world.run_until_quiet();
    assert_eq!(state(&world, TWO), DeviceState::Failed, "that outlives a restart");
    world.control(Command::OnlineDevice { device: TWO, found: None }).unwrap();
    fine(&mut world);
    assert_eq!(state(&world, TWO), DeviceState::Online);
}

/// It failed with something in its cache that no flush covers: what it gets from then on is flushed all the same.
#[test]
fn a_member_that_failed_is_flushed_again_when_it_is_back() {
    let (mut world, v) = mirror(Profile::Raid1, 2);
    world.run(v, WRITE, 0, BLOCK).unwrap();
    befalls(&mut world, Trouble::writes_fail(0..u64::MAX >> 1, u64::MAX));
    (0..24).for_each(|i| world.run(v, WRITE, i * MIB, BLOCK).unwrap());
    assert_eq!(state(&world, TWO), DeviceState::Failed);
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.faults.0.clear();
    world.control(Command::OnlineDevice { device: TWO, found: None }).unwrap();
    world.run_until_quiet();
    assert_eq!(state(&world, TWO), DeviceState::Online);
    world.keep_dispatched = true;
    world.dispatched.clear();
    world.run(v, WRITE, 0, BLOCK).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    let flushed: Vec<u32> = world.dispatched.iter().filter(|d| d.op == DeviceOp::Flush).map(|d| d.device.0).collect();
    assert!(flushed.contains(&2), "only {flushed:?} were flushed");
    fine(&mut world);
}

#[test]
fn the_last_good_copy_is_never_given_up() {
    let (mut world, v) = mirror(Profile::Raid1, 2);
    world.control(Command::OfflineDevice { device: TWO }).unwrap();
    world.run(v, WRITE, 0, BLOCK).unwrap();
    let refused = world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap_err();
    assert!(refused.message.contains("cannot be taken out of use"), "{refused:?}");
    // A write that the one good copy refuses is the client's error, and no reason to read the other.
    let (from, to) = (0, u64::MAX >> 1);
    let trouble = Trouble::writes_fail(from..to, 1);
    world.faults.0.push(Fault { device: 1, trouble });
    assert!(world.run(v, WRITE, 0, BLOCK).is_err());
    world.run(v, Op::Read, 0, BLOCK).unwrap();
    world.control(Command::OnlineDevice { device: TWO, found: None }).unwrap();
    fine(&mut world);
}

#[test]
fn who_lacks_the_only_good_copy_says_which_member_would_be_enough() {
    let (mut world, v) = mirror(Profile::Raid1, 2);
    world.control(Command::OfflineDevice { device: TWO }).unwrap();
    world.run(v, WRITE, 0, BLOCK).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    // It is there again and knows that it is behind; before it has caught up the other one goes.
    befalls(&mut world, Trouble::Slow { since: 0, until: u64::MAX / 2, factor: 100_000 });
    world.command(Command::OnlineDevice { device: TWO, found: None });
    for _ in 0..3 {
        world.step();
    }
    world.crash(Crash::Process);
    world.faults.0.clear();
    // Both superblocks are read, so that the newer one counts, but the first disk is gone by then.
    world.faults.0.push(Fault { device: 1, trouble: Trouble::Absent { since: 0 } });
    match world.open() {
        Ok(()) => {
            assert_eq!(state(&world, DeviceId(1)), DeviceState::Missing, "by itself it knows of nothing it missed")
        }
        Err(why) => assert!(why.contains("device 1 (last seen at disk0"), "{why}"),
    }
}
