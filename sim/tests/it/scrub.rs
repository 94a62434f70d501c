//! What a scrub promises: it finds what differs, where it is, and nothing else; it keeps its place.

use std::collections::BTreeSet;

use braid_core::control::{Command, Done, ErrorKind, VolumeClass};
use braid_core::request::{Content, DeviceOp, Event, Op, ScrubCopy};
use braid_core::scrub::{Found, State};
use braid_core::units::{BLOCK, DeviceId, KIB, MIB, UNIT, VolumeId};
use braid_core::{ChunkType, DeviceState, Profile};
use braid_sim::Model;
use braid_sim::fault::{Fault, Trouble};
use braid_sim::world::Shape;
use braid_sim::{Crash, World};

pub(crate) const WRITE: Op = Op::Write { fua: false };

pub(crate) fn pool(devices: usize, data: Profile, metadata: Profile) -> (World, VolumeId) {
    let shape = Shape { size: 160 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let mut world = World::with_pool(1, &vec![shape; devices], data, metadata, &[]);
    let volume = world.volume("v", 1 << 40, VolumeClass::Auto);
    (world, volume)
}

/// 24 MiB in one piece, single blocks far apart, and a unit with every second block.
pub(crate) fn fill(world: &mut World, v: VolumeId) {
    for i in 0..24 {
        world.run(v, WRITE, i * MIB, MIB).unwrap();
    }
    for i in 1..=40 {
        world.run(v, WRITE, i << 33, BLOCK).unwrap();
    }
    for i in 0..8 {
        world.run(v, WRITE, (1 << 39) + 2 * i * BLOCK, BLOCK).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
}

pub(crate) fn state(world: &World) -> State {
    world.engine().report().scrub.scrub.state
}

/// Runs until the scrub is not running any more, or nothing moves.
pub(crate) fn finish(world: &mut World) {
    world.run_until(|w| state(w) != State::Running);
}

pub(crate) fn scrub(world: &mut World) -> Vec<Event> {
    world.events.clear();
    world.control(Command::ScrubStart).unwrap();
    finish(world);
    assert_eq!(state(world), State::Finished);
    world.run_until_quiet();
    world.check_quiet(true);
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    let scrub = world.engine().report().scrub.scrub;
    assert_eq!(scrub.done, scrub.total);
    assert!(scrub.started >= 1_700_000_000 && scrub.ended >= scrub.started, "{scrub:?}");
    world.events.drain(..).filter(|e| !matches!(e, Event::ChunkAllocated { .. } | Event::DeviceError { .. })).collect()
}

fn differences(events: &[Event]) -> Vec<(VolumeId, u64, u64, Vec<ScrubCopy>)> {
    let difference = |e: &Event| match e {
        Event::ScrubDifference { volume: Some(v), offset, len, copies, .. } => {
            Some((*v, *offset, *len, copies.clone()))
        }
        _ => None,
    };
    events.iter().filter_map(difference).collect()
}

fn media(device: u32, from: u64, to: u64) -> Fault {
    let trouble = Trouble::reads_fail(from..to, u64::MAX);
    Fault { device, trouble }
}

#[test]
fn what_differs_is_found_at_its_place_and_nothing_else() {
    for (devices, profile) in
        [(2, Profile::Raid1), (1, Profile::Dup), (4, Profile::Raid10), (5, Profile::Raid10), (3, Profile::Raid1c3)]
    {
        let (mut world, v) = pool(devices, profile, Profile::Raid1.min(profile));
        fill(&mut world, v);
        let clean = scrub(&mut world);
        assert_eq!(
            clean,
            [Event::ScrubFinished { differences: 0, read_errors: 0, unread: 0, undecided: 0, repaired: 0 }],
            "{profile:?}"
        );
        let planted = [0, 3 * MIB + 5 * BLOCK, 23 * MIB + 255 * BLOCK, 17 << 33, (1 << 39) + 14 * BLOCK];
        for (i, &offset) in planted.iter().enumerate() {
            let places = world.places(v, offset);
            let (device, at) = places[i % places.len()];
            world.disks[device.index() - 1].corrupt(at + 77, 0x10);
        }
        let found = differences(&scrub(&mut world));
        let mut offsets: Vec<u64> = found.iter().map(|f| f.1).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, planted, "{profile:?}");
        for (_, offset, len, copies) in &found {
            let places: Vec<_> = copies.iter().map(|c| (c.device, c.offset)).collect();
            assert_eq!((*len, &places), (BLOCK, &world.places(v, *offset)), "{profile:?}");
            let i = planted.iter().position(|p| p == offset).unwrap() % copies.len();
            // Of three copies, the one in the minority is known; of two, nobody is.
            let suspects: Vec<usize> = (0..copies.len()).filter(|&c| copies[c].suspect).collect();
            assert_eq!(suspects, if copies.len() == 3 { vec![i] } else { vec![] }, "{profile:?}: {copies:?}");
        }
        let report = world.engine().report();
        assert_eq!((report.scrub.scrub.differences, report.scrub.scrub.read_errors), (5, 0));
        let counted: u64 = report.scrub.scrub.found.values().map(|found| found.differences).sum();
        let each = if profile == Profile::Raid1c3 { 1 } else { 2 };
        assert_eq!(counted, 5 * each, "{profile:?}");
        // What was outvoted was put right; of two copies that differ nobody knows.
        let (repaired, left) = if profile == Profile::Raid1c3 { (5, 0) } else { (0, 5) };
        assert_eq!(report.scrub.scrub.repaired, repaired, "{profile:?}");
        assert_eq!((differences(&scrub(&mut world)).len(), world.unequal().len()), (left, left), "{profile:?}");
    }
}

#[test]
fn blocks_that_nobody_wrote_are_not_compared() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    world.run(v, WRITE, 3 * BLOCK, BLOCK).unwrap();
    let (device, at) = world.places(v, 3 * BLOCK)[0];
    for block in [2, 4, 15] {
        world.disks[device.index() - 1].corrupt(at + block * BLOCK - 3 * BLOCK, 1);
    }
    assert_eq!(scrub(&mut world).len(), 1);
    world.run(v, Op::Discard, 0, UNIT).unwrap();
    world.disks[device.index() - 1].corrupt(at, 1);
    assert_eq!(scrub(&mut world).len(), 1);
}

#[test]
fn neighbours_that_differ_alike_are_told_as_one() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    let (device, at) = world.places(v, 8 * MIB)[1];
    for block in 3..9 {
        world.disks[device.index() - 1].corrupt(at + block * BLOCK, 1);
    }
    let found = differences(&scrub(&mut world));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].1, found[0].2), (8 * MIB + 3 * BLOCK, 6 * BLOCK));
    assert_eq!(world.engine().report().scrub.scrub.differences, 6);
}

#[test]
fn what_cannot_be_read_is_told_block_by_block() {
    for profile in [Profile::Raid1, Profile::Raid0, Profile::Raid1c3] {
        let (mut world, v) = pool(3, profile, Profile::Raid1);
        fill(&mut world, v);
        let (device, at) = world.places(v, 5 * MIB + 7 * BLOCK)[0];
        world.faults.0.push(media(device.0, at, at + 2 * BLOCK));
        let found = scrub(&mut world);
        let (volume, offset) = (Some(v), 5 * MIB + 7 * BLOCK);
        let name = "v".into();
        let error = Event::ScrubReadError { volume, name, offset, len: 2 * BLOCK, device, device_offset: at };
        let finished =
            |repaired| Event::ScrubFinished { differences: 0, read_errors: 2, unread: 0, undecided: 0, repaired };
        let expected = match profile {
            Profile::Raid0 => {
                vec![error, Event::BlocksLost { volume: v, name: "v".into(), offset, len: 2 * BLOCK }, finished(0)]
            }
            _ => {
                let name = "v".into();
                let repaired = Event::Repaired { volume, name, offset, len: 2 * BLOCK, device, device_offset: at };
                vec![error, repaired, finished(2)]
            }
        };
        assert_eq!(found, expected, "{profile:?}");
        let report = world.engine().report();
        assert_eq!(report.scrub.scrub.found, [(device, Found { differences: 0, read_errors: 2 })].into());
        assert_eq!(report.devices[device.index() - 1].state, DeviceState::Online);
    }
}

#[test]
fn every_copy_is_read_in_order_and_commands_are_long() {
    for (model, class, longest) in [("hdd", "hdd", 512 * KIB), ("sata-ssd", "ssd", 128 * KIB)] {
        let shape = Shape { size: 160 * MIB, model: Model::shipped(model).expect("it comes with the crate"), class };
        commands_of_a_scrub(World::with_pool(1, &vec![shape; 2], Profile::Raid1, Profile::Raid1, &[]), longest);
    }
}

fn commands_of_a_scrub(mut world: World, longest: u64) {
    let v = world.volume("v", 1 << 40, VolumeClass::Auto);
    fill(&mut world, v);
    world.run_until_quiet();
    world.keep_dispatched = true;
    scrub(&mut world);
    let data = world.chunks(ChunkType::Data)[0].0;
    let chunk = world.engine().pool().chunk(data).unwrap().clone();
    for column in &chunk.columns {
        let reads: Vec<(u64, u64)> = world
            .dispatched
            .iter()
            .filter(|d| d.op == DeviceOp::Read && d.device == column.device)
            .filter(|d| (column.offset..column.offset + chunk.stripe).contains(&d.offset))
            .map(|d| (d.offset, d.len))
            .collect();
        assert!(reads.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{reads:?}");
        assert!(reads.iter().all(|r| r.1 <= longest), "{reads:?}");
        let long: u64 = reads.iter().map(|r| r.1).filter(|len| *len == longest).sum();
        assert!(long >= 23 * MIB, "{reads:?}");
    }
}

#[test]
fn pieces_take_the_memory_that_they_are_given() {
    for (memory, least, most) in [("1M", MIB / 2, MIB), ("4M", 2 * MIB, 4 * MIB), ("", 8 * MIB, 16 * MIB)] {
        let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
        let (name, value) = ("scrub_memory".into(), memory.into());
        world.control(Command::Set { name, value }).unwrap();
        fill(&mut world, v);
        world.run_until_quiet();
        world.control(Command::ScrubStart).unwrap();
        let mut peak = 0;
        world.run_until(|world| {
            peak = peak.max(world.scratch_bytes());
            state(world) != State::Running
        });
        // A page of a map or two are read besides.
        assert!(peak >= least && peak <= most + 64 * KIB, "scrub_memory={memory}: {peak} bytes");
    }
}

#[test]
fn what_is_found_on_a_member_is_that_of_the_last_scrub() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    let (device, at) = world.places(v, 4 * MIB)[1];
    world.disks[device.index() - 1].corrupt(at, 1);
    let found = |w: &World| w.engine().report().scrub.scrub.found;
    for _ in 0..2 {
        scrub(&mut world);
        let one = Found { differences: 1, read_errors: 0 };
        assert_eq!(found(&world), [(DeviceId(1), one), (DeviceId(2), one)].into());
    }
    world.control(Command::Checkpoint).unwrap();
    world.crash(Crash::Process);
    world.open().unwrap();
    world.run_until_quiet();
    assert_eq!(found(&world).len(), 2, "it is remembered");
    world.run(v, WRITE, 4 * MIB, BLOCK).unwrap();
    scrub(&mut world);
    assert_eq!(found(&world), [].into());
}

#[test]
fn writes_beside_a_scrub_make_no_difference() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    let mut scrubs = 0;
    for i in 0..4000u64 {
        if state(&world) != State::Running {
            scrubs += 1;
            world.command(Command::ScrubStart);
        }
        let at = world.rng.below(24 * MIB / BLOCK - 64) * BLOCK;
        let len = world.rng.between(1, 64) * BLOCK;
        let op = match world.rng.below(8) {
            0 => Op::Discard,
            1 => Op::WriteZeroes { fua: false, no_hole: true },
            2 => Op::Write { fua: true },
            _ => WRITE,
        };
        world.submit(i as u32 % 4, v, op, at, len, Content::Unsaid);
        if i % 500 == 499 {
            world.command(Command::Checkpoint);
        }
        while world.outstanding() > 12 {
            world.step();
        }
    }
    world.run_until_answered();
    finish(&mut world);
    assert!(scrubs > 3, "{scrubs}");
    let found = world.events.iter().find(|e| matches!(e, Event::ScrubDifference { .. } | Event::ScrubReadError { .. }));
    assert_eq!(found, None);
    world.verify();
    world.run_until_quiet();
    world.check_quiet(true);
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}

#[test]
fn a_client_waits_for_a_second_look_of_64_kib_at_most() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    let (device, at) = world.places(v, 4 * MIB)[0];
    world.disks[device.index() - 1].corrupt(at, 1);
    world.control(Command::ScrubStart).unwrap();
    let mut most = 0;
    world.run_until(|w| {
        most = most.max(w.engine().locked());
        state(w) != State::Running
    });
    assert_eq!(most, 1, "one unit is held");
    assert!(world.events.iter().any(|e| matches!(e, Event::ScrubDifference { .. })));
}

#[test]
fn pause_resume_and_restart_keep_the_place() {
    for how in ["pause", "orderly close", "process died", "paused and process died"] {
        let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
        for i in 0..100 {
            world.run(v, WRITE, i * MIB, MIB).unwrap();
        }
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run_until_quiet();
        // Slow enough for the place to be written down now and then.
        let since = world.now();
        for device in [1, 2] {
            let trouble = Trouble::Slow { since, until: u64::MAX, factor: 800 };
            world.faults.0.push(Fault { device, trouble });
        }
        world.control(Command::ScrubStart).unwrap();
        let done = |w: &World| w.engine().report().scrub.scrub.done;
        world.run_until(|w| done(w) > 120 * MIB);
        let before = done(&world);
        world.keep_dispatched = true;
        if how.contains("pause") {
            assert_eq!(world.control(Command::ScrubPause), Ok(Done::Changed));
            assert_eq!(world.control(Command::ScrubPause), Ok(Done::Unchanged));
            world.run_until_quiet();
            world.check_quiet(true);
            assert_eq!(state(&world), State::Paused);
        }
        if how == "orderly close" {
            world.control(Command::Close).unwrap();
            world.run_until_quiet();
        }
        if how != "pause" {
            world.crash(Crash::Process);
            world.open().unwrap();
        }
        if how.contains("pause") {
            assert_eq!(state(&world), State::Paused, "{how}");
            world.run_until_quiet();
            assert_eq!(state(&world), State::Paused, "{how}");
            world.control(Command::ScrubResume).unwrap();
        }
        world.dispatched.clear();
        finish(&mut world);
        let scrub = world.engine().report().scrub.scrub;
        assert_eq!(state(&world), State::Finished, "{how}");
        assert_eq!(scrub.done, scrub.total, "{how}: {scrub:?}");
        let read: u64 = world.dispatched.iter().filter(|d| d.op == DeviceOp::Read).map(|d| d.len).sum();
        // What was passed is not read again, but for the window and, after a crash, some seconds.
        let seconds = 11 * 2 * 1024 * 1_000_000 / (2000 * 800);
        let slack = 16 * MIB + if how == "process died" { seconds * KIB } else { 0 };
        assert!(read + before <= 200 * MIB + 4 * MIB + slack, "{how}: {read} read after {before}");
        // What was on its way when it paused or closed came back and counted.
        assert!(read + before + 16 * MIB >= 200 * MIB, "{how}: {read} read after {before}");
    }
}

#[test]
fn a_power_cut_in_the_middle_ends_in_a_scrub_that_finishes() {
    for seed in 0..30 {
        let shape = Shape { size: 160 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
        let mut world = World::with_pool(seed, &[shape.clone(), shape], Profile::Raid1, Profile::Raid1, &[]);
        let v = world.volume("v", 1 << 40, VolumeClass::Auto);
        fill(&mut world, v);
        world.run_until_quiet();
        let (device, at) = world.places(v, 20 * MIB)[0];
        world.disks[device.index() - 1].corrupt(at, 1);
        world.control(Command::ScrubStart).unwrap();
        for _ in 0..world.rng.below(60) {
            world.step();
        }
        world.crash(Crash::Power);
        world.open().unwrap();
        finish(&mut world);
        let scrub = world.engine().report().scrub.scrub;
        assert_eq!((scrub.state, scrub.differences), (State::Finished, 1), "seed {seed}");
        assert!(world.events.iter().any(|e| matches!(e, Event::ScrubDifference { .. })), "seed {seed}");
        world.run_until_quiet();
        world.check_quiet(true);
        assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    }
}

#[test]
fn a_member_that_vanishes_is_left_out_and_told() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    world.control(Command::ScrubStart).unwrap();
    world.run_until(|w| w.engine().report().scrub.scrub.done > 10 * MIB);
    let since = world.now();
    world.faults.0.push(Fault { device: 2, trouble: Trouble::Absent { since } });
    finish(&mut world);
    let scrub = world.engine().report().scrub.scrub;
    assert_eq!((scrub.state, scrub.differences, scrub.read_errors), (State::Finished, 0, 0));
    assert!(scrub.unread > 5 * MIB && scrub.unread < 30 * MIB, "{scrub:?}");
    world.run_until_quiet();
    world.check_quiet(true);
}

#[test]
fn cancel_forgets_the_place_and_a_new_one_begins_anew() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    for command in [Command::ScrubCancel, Command::ScrubPause, Command::ScrubResume] {
        assert_eq!(world.control(command).unwrap_err().kind, ErrorKind::NotFound);
    }
    for when in [1, 10, 30] {
        world.control(Command::ScrubStart).unwrap();
        assert_eq!(world.control(Command::ScrubStart).unwrap_err().kind, ErrorKind::Busy);
        for _ in 0..when {
            world.step();
        }
        // In one batch: what the first one has under way is none of the second one's.
        world.command(Command::ScrubCancel);
        world.command(Command::ScrubStart);
        world.drain();
        assert_eq!((state(&world), world.engine().report().scrub.scrub.done), (State::Running, 0));
        finish(&mut world);
        let scrub = world.engine().report().scrub.scrub;
        assert_eq!((scrub.state, scrub.done), (State::Finished, scrub.total));
        assert!(scrub.done >= 48 * MIB, "{scrub:?}");
        world.control(Command::ScrubStart).unwrap();
        world.step();
        world.control(Command::ScrubCancel).unwrap();
        world.run_until_quiet();
        world.check_quiet(true);
        assert_eq!(state(&world), State::Canceled);
        world.crash(Crash::Process);
        world.open().unwrap();
        world.run_until_quiet();
        assert_eq!(state(&world), State::Canceled);
    }
}

#[test]
fn volumes_that_go_while_they_are_read_are_forgotten() {
    for when in 0..25 {
        let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
        fill(&mut world, v);
        let w = world.volume("w", 64 * MIB, VolumeClass::Auto);
        world.run(w, WRITE, 0, 4 * MIB).unwrap();
        world.control(Command::ScrubStart).unwrap();
        for _ in 0..when {
            world.step();
        }
        world.oracle.destroy(v.0);
        world.control(Command::DestroyVolume { volume: v }).unwrap();
        world.oracle.destroyed(v.0);
        // New owners of the old space.
        for i in 0..32 {
            world.run(w, WRITE, i * 2 * MIB, MIB).unwrap();
        }
        finish(&mut world);
        assert_eq!(state(&world), State::Finished);
        assert_eq!(world.engine().report().scrub.scrub.differences, 0);
        world.verify();
        world.run_until_quiet();
        world.check_quiet(true);
        assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    }
}

#[test]
fn places_told_one_by_one_have_an_end() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    for i in 0..20 {
        world.run(v, WRITE, i * MIB, MIB).unwrap();
    }
    let count = u64::from(braid_core::scrub::TOLD_MAX) + 200;
    for i in 0..count {
        let (device, at) = world.places(v, 2 * i * BLOCK)[1];
        world.disks[device.index() - 1].corrupt(at, 1);
    }
    let found = scrub(&mut world);
    assert_eq!(differences(&found).len() as u64, count - 200);
    assert_eq!(found.iter().filter(|e| **e == Event::ScrubTellsNoMore).count(), 1);
    assert_eq!(world.engine().report().scrub.scrub.differences, count);
    let offsets: BTreeSet<u64> = world.unequal().into_iter().map(|u| u.1).collect();
    assert_eq!(offsets.len() as u64, count);
}

#[test]
fn the_rate_is_that_of_the_last_minute() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    for i in 0..100 {
        world.run(v, WRITE, i * MIB, MIB).unwrap();
    }
    world.run_until_quiet();
    let since = world.now();
    for device in [1, 2] {
        world.faults.0.push(Fault { device, trouble: Trouble::Slow { since, until: u64::MAX, factor: 800 } });
    }
    world.control(Command::ScrubStart).unwrap();
    world.run_until(|w| w.engine().report().scrub.scrub.done > 60 * MIB);
    // 2 us a KiB, 800 times slower, two devices; base time makes it a little less. The class has one piece at a time after
    // each write of the scrub's own place, and three when the device has been its own for five pieces.
    let rate = world.engine().report().scrub.rate;
    let one = 2 * KIB * 1_000_000_000 / (2000 * 800);
    assert!(rate > one * 9 / 10 && rate <= 3 * one, "{rate}, of {one} with one piece at a time");
    assert_eq!(world.engine().report().scrub.scrub.found, [].into());
}

#[test]
fn what_a_volume_left_behind_is_nobodys_difference() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    for i in 0..100 {
        world.run(v, WRITE, i * MIB, MIB).unwrap();
    }
    world.run_until_quiet();
    for i in 0..100 {
        let (device, at) = world.places(v, i * MIB + 9 * BLOCK)[1];
        world.disks[device.index() - 1].corrupt(at, 1);
    }
    world.control(Command::ScrubStart).unwrap();
    world.run_until(|w| w.engine().report().scrub.scrub.done > 40 * MIB);
    world.oracle.destroy(v.0);
    world.control(Command::DestroyVolume { volume: v }).unwrap();
    world.oracle.destroyed(v.0);
    finish(&mut world);
    let differences = world.engine().report().scrub.scrub.differences;
    assert!((15..50).contains(&differences), "{differences}: 20 MiB were passed, and a window");
    world.run_until_quiet();
    world.check_quiet(true);
}

/// Leaves that the root names and whose volume the log ended are nobody's after an opening: a member that missed them has
/// nothing to get, and a scrub nothing to compare.
#[test]
fn leaves_of_a_volume_that_the_log_ended_are_nobodys_either() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    world.run_until_quiet();
    let since = world.now();
    world.faults.0.push(Fault { device: 2, trouble: Trouble::Absent { since } });
    fill(&mut world, v);
    world.control(Command::Checkpoint).expect("leaves without the second member");
    world.run_until_quiet();
    world.oracle.destroy(v.0);
    world.control(Command::DestroyVolume { volume: v }).expect("it is there");
    world.oracle.destroyed(v.0);
    world.crash(Crash::Process);
    world.faults.0.clear();
    world.open().expect("it is back");
    world.run_until_quiet();
    let found = scrub(&mut world);
    assert!(!found.iter().any(|event| matches!(event, Event::ScrubDifference { .. })), "{found:?}");
}
