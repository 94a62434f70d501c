//! One promise each.

use braid_core::Profile;
use braid_core::control::{Command, Done, ErrorKind, VolumeClass};
use braid_core::request::{Content, DeviceOp, Event, Op, RequestError};
use braid_core::units::{DeviceId, KIB, MIB, VolumeId};
use braid_core::{ChunkType, DeviceState};
use braid_sim::Model;
use braid_sim::fault::{Fault, Trouble};
use braid_sim::world::Shape;
use braid_sim::{Crash, World};

use crate::common::{all_answered_well, device_state};

const WRITE: Op = Op::Write { fua: false };

fn shape(mib: u64, class: &'static str) -> Shape {
    let model = Model::shipped(if class == "hdd" { "hdd" } else { "sata-ssd" }).unwrap();
    Shape { size: mib * MIB, model, class }
}

fn pool(devices: usize, profile: Profile) -> (World, VolumeId) {
    let mut world = World::with_pool(1, &vec![shape(128, "ssd"); devices], profile, profile.system(), &[]);
    let volume = world.volume("v", 64 * MIB, VolumeClass::Auto);
    (world, volume)
}

fn absent(world: &mut World, device: u32) {
    let since = world.now();
    world.faults.0.push(Fault { device, trouble: Trouble::Absent { since } });
}

#[test]
fn a_hole_reads_zeros_and_says_so() {
    let (mut world, v) = pool(1, Profile::Single);
    world.run(v, WRITE, 8 * KIB, 4 * KIB).unwrap();
    for (offset, hole) in [(0, true), (4 * KIB, false), (12 * KIB, true)] {
        let tag = world.submit(0, v, Op::Read, offset, 8 * KIB, Content::Unsaid);
        world.run_until_answered();
        let answer = world.answers.iter().find(|a| a.tag == tag).unwrap();
        assert_eq!((answer.result, answer.hole), (Ok(()), hole), "{offset}");
    }
    all_answered_well(&mut world);
}

#[test]
fn raid1_goes_on_without_a_device_and_never_reads_what_it_missed() {
    let (mut world, v) = pool(2, Profile::Raid1);
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    absent(&mut world, 2);
    for i in 0..16 {
        world.run(v, Op::Read, i * 64 * KIB, 64 * KIB).unwrap();
    }
    assert_eq!(device_state(&world, 2), DeviceState::Missing, "nothing was written without it yet");
    world.run(v, WRITE, 0, 64 * KIB).unwrap();
    assert_eq!(device_state(&world, 2), DeviceState::Missing);
    world.crash(Crash::Power);
    world.faults.0.clear();
    world.open().unwrap();
    assert_eq!(device_state(&world, 2), DeviceState::Suspect, "it came back, and is known to be behind");
    all_answered_well(&mut world);
    assert_eq!(device_state(&world, 2), DeviceState::Online);
}

#[test]
fn single_answers_eio_for_exactly_what_is_gone() {
    let (mut world, v) = pool(1, Profile::Single);
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    absent(&mut world, 1);
    assert_eq!(world.run(v, Op::Read, 0, 4 * KIB), Err(RequestError::Io));
    assert_eq!(world.run(v, Op::Read, 2 * MIB, 4 * KIB), Ok(()), "a hole is known without any device");
    assert_eq!(world.run(v, WRITE, 0, 4 * KIB), Err(RequestError::Io));
    world.run_until_quiet();
    world.crash(Crash::Process);
    assert!(world.open().is_err());
    world.faults.0.clear();
    world.open().unwrap();
    world.verify();
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}

#[test]
fn a_latent_error_is_read_around_on_a_mirror() {
    let (mut world, v) = pool(2, Profile::Raid1);
    world.run(v, WRITE, 0, MIB).unwrap();
    for device in [1, 2] {
        world.faults.0.clear();
        let trouble = Trouble::reads_fail(0..u64::MAX, u64::MAX);
        world.faults.0.push(Fault { device, trouble });
        world.run(v, Op::Read, 0, MIB).unwrap();
        assert_eq!(device_state(&world, device), DeviceState::Online, "a read error is no reason to give it up");
    }
    assert!(world.engine().report().counters.retries > 0);
    all_answered_well(&mut world);
}

#[test]
fn a_full_pool_can_be_filled_again_after_discard() {
    let mut world = World::with_pool(1, &[shape(48, "ssd")], Profile::Single, Profile::Single, &[]);
    let v = world.volume("v", 64 * MIB, VolumeClass::Data);
    for round in 0..4 {
        let mut written = 0;
        while world.run(v, WRITE, written, MIB) == Ok(()) {
            written += MIB;
        }
        assert!(written > 30 * MIB, "round {round}: {} MiB", written / MIB);
        assert!(world.events.iter().any(|e| matches!(e, Event::NoSpace { .. })));
        world.verify();
        assert!(world.wrong.is_empty(), "{:?}", world.wrong);
        // The write finds the space of the discard before it, which nobody flushed.
        world.submit(0, v, Op::Discard, 0, written, Content::Unsaid);
        world.submit(1, v, WRITE, written, MIB, Content::Unsaid);
        world.run_until_answered();
        let answers: Vec<_> = world.answers.drain(..).map(|a| a.result).collect();
        assert!(answers.iter().rev().take(2).all(|r| *r == Ok(())), "{answers:?}");
        world.run(v, Op::Discard, 0, 64 * MIB).unwrap();
        world.run_until_quiet();
        world.check_quiet(true);
        let report = world.engine().report();
        assert_eq!(report.volumes[0].mapped, [0, 0]);
    }
}

#[test]
fn space_given_up_as_data_can_become_metadata() {
    let mut world = World::with_pool(1, &[shape(48, "ssd")], Profile::Single, Profile::Single, &[]);
    let v = world.volume("v", 64 * MIB, VolumeClass::Auto);
    let mut written = 0;
    while world.run(v, WRITE, written, MIB) == Ok(()) {
        written += MIB;
    }
    world.run(v, Op::Discard, 0, 64 * MIB).unwrap();
    let tag = world.submit(0, v, WRITE, 0, 8 * MIB, Content::Metadata);
    world.run_until_answered();
    assert_eq!(world.answers.iter().find(|a| a.tag == tag).unwrap().result, Ok(()));
    world.answers.clear();
    all_answered_well(&mut world);
}

#[test]
fn metadata_goes_to_the_fast_disk_and_spills_when_it_is_full() {
    let shapes = [shape(32, "nvme"), shape(512, "hdd")];
    let mut world = World::with_pool(1, &shapes, Profile::Single, Profile::Single, &[]);
    let v = world.volume("v", 256 * MIB, VolumeClass::Auto);
    world.run(v, WRITE, 0, MIB).unwrap();
    let put = |world: &mut World, mib: u64| {
        let tag = world.submit(0, v, WRITE, mib * MIB, MIB, Content::Metadata);
        world.run_until_answered();
        world.answers.iter().find(|a| a.tag == tag).unwrap().result
    };
    put(&mut world, 64).unwrap();
    assert!(world.chunks(ChunkType::Metadata).iter().all(|(_, on)| *on == [DeviceId(1)]));
    assert!(world.chunks(ChunkType::Data).iter().all(|(_, on)| *on == [DeviceId(2)]));
    assert_eq!(world.engine().report().spilled, [0; 3]);
    for mib in 65..110 {
        put(&mut world, mib).unwrap();
    }
    let report = world.engine().report();
    assert!(report.counters.spills > 0 && report.spilled[ChunkType::Metadata as usize] > 0);
    assert!(world.events.iter().any(|e| matches!(e, Event::Spill { kind: ChunkType::Metadata, .. })));
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.crash(Crash::Power);
    world.open().unwrap();
    assert_eq!(world.engine().report().spilled, report.spilled, "the mark survives");
    world.answers.clear();
    all_answered_well(&mut world);
}

#[test]
fn strict_refuses_to_spill() {
    let shapes = [shape(32, "nvme"), shape(512, "hdd")];
    let mut world = World::with_pool(1, &shapes, Profile::Single, Profile::Single, &[("strict", "on")]);
    let v = world.volume("v", 256 * MIB, VolumeClass::Metadata);
    let results: Vec<_> = (0..64).map(|i| world.run(v, WRITE, i * MIB, MIB)).collect();
    assert!(results.contains(&Err(RequestError::NoSpace)) && results[0] == Ok(()));
    assert_eq!(world.engine().report().counters.spills, 0);
}

#[test]
fn neighbours_of_a_batch_travel_together() {
    // profile, devices, size of a request -> commands of 1 MiB for writes, for reads
    let rows = [
        (Profile::Raid0, 4, 4 * KIB, 4, 4),
        (Profile::Raid0, 4, MIB, 4, 4),
        // The policy may let both copies share a stream.
        (Profile::Raid1, 2, 4 * KIB, 2, 0),
        (Profile::Raid1, 2, MIB, 2, 1),
        (Profile::Raid10, 4, MIB, 4, 0),
        (Profile::Single, 1, 4 * KIB, 1, 1),
    ];
    for (profile, devices, size, writes, reads) in rows {
        let (mut world, v) = pool(devices, profile);
        world.run_until_quiet();
        world.keep_dispatched = true;
        for (op, expected) in [(WRITE, writes), (Op::Read, reads)] {
            world.dispatched.clear();
            let before = world.engine().report().counters.translations;
            for i in 0..MIB / size {
                world.submit(0, v, op, i * size, size, Content::Unsaid);
            }
            world.run_until_answered();
            let wanted = |o: DeviceOp| match op {
                Op::Read => o == DeviceOp::Read,
                _ => matches!(o, DeviceOp::Write { .. }),
            };
            let mut sizes: Vec<u64> =
                world.dispatched.iter().filter(|d| wanted(d.op) && d.len >= 64 * KIB).map(|d| d.len).collect();
            let name = format!("{} {op:?} of {size}: {sizes:?}", profile.name());
            let translations = world.engine().report().counters.translations - before;
            assert_eq!(translations, if size == MIB && devices < 3 { 1 } else { (MIB / size).max(16) }, "{name}");
            sizes.sort_unstable();
            if expected > 0 {
                assert_eq!(sizes.len(), expected, "{name}");
                assert_eq!(sizes[0], sizes[expected - 1], "{name}");
            } else {
                assert!(sizes.iter().sum::<u64>() >= MIB * 3 / 4 && sizes.len() <= 16, "{name}");
            }
        }
        world.answers.clear();
        all_answered_well(&mut world);
    }
}

#[test]
fn the_read_policy_changes_at_once_and_is_kept() {
    let (mut world, v) = pool(2, Profile::Raid1);
    world.run(v, WRITE, 0, MIB).unwrap();
    let reads = |world: &World| -> Vec<u64> { world.engine().report().devices.iter().map(|d| d.io.reads).collect() };
    for (policy, device) in [("devid:2", 1), ("devid:1", 0)] {
        let set = |value: &str| Command::Set { name: "read_policy".into(), value: value.into() };
        assert_eq!(world.control(set(policy)), Ok(Done::Changed));
        assert_eq!(world.control(set(policy)), Ok(Done::Unchanged));
        for _ in 0..2 {
            let before = reads(&world);
            for i in 0..20 {
                world.run(v, Op::Read, i * 4 * KIB, 4 * KIB).unwrap();
            }
            let after = reads(&world);
            assert_eq!((after[device] - before[device], after[1 - device]), (20, before[1 - device]), "{policy}");
            let value = world.engine().pool().properties.get("read_policy").unwrap();
            assert_eq!(value, policy);
            world.crash(Crash::Power);
            world.open().unwrap();
        }
    }
    let unknown = world.control(Command::Set { name: "read_policy".into(), value: "fastest".into() });
    assert_eq!(unknown.unwrap_err().kind, ErrorKind::Usage);
}

#[test]
fn what_was_flushed_or_forced_survives_a_power_cut_and_what_was_answered_a_dead_process() {
    for seed in 0..40 {
        for (crash, op) in [(Crash::Power, Op::Write { fua: true }), (Crash::Process, WRITE), (Crash::Power, WRITE)] {
            let shapes = vec![shape(64, "ssd"); 2];
            let mut world = World::with_pool(seed, &shapes, Profile::Raid1, Profile::Raid1, &[]);
            let v = world.volume("v", 16 * MIB, VolumeClass::Auto);
            for i in 0..seed {
                world.submit(0, v, op, i * 20 * KIB, 12 * KIB, Content::Unsaid);
                world.step();
            }
            world.run_until_answered();
            if crash == Crash::Power && op == WRITE {
                world.run(v, Op::Flush, 0, 0).unwrap();
            }
            world.crash(crash);
            world.open().unwrap();
            world.answers.clear();
            all_answered_well(&mut world);
        }
    }
}

#[test]
fn an_idle_pool_is_quiet_and_everything_is_stable_then() {
    let (mut world, v) = pool(2, Profile::Raid1);
    world.run(v, WRITE, 0, 4 * KIB).unwrap();
    world.run_until_quiet();
    world.run(v, WRITE, 0, 4 * KIB).unwrap();
    let before = world.now();
    world.run_until_quiet();
    assert!(world.now() - before >= 4_900_000_000, "the commit interval");
    world.check_quiet(true);
    assert!(world.engine().pool().devices().all(|d| !d.is_dirty()));
}

#[test]
fn the_log_wraps_and_the_maps_outgrow_their_first_chunk() {
    let mut world = World::with_pool(3, &vec![shape(192, "ssd"); 2], Profile::Raid1, Profile::Raid1, &[]);
    let v = world.volume("v", 1 << 40, VolumeClass::Data);
    // Far apart: each first write makes a leaf.
    for i in 0..1500 {
        world.submit(0, v, WRITE, i * 16 * MIB + i % 16 * 4 * KIB, 4 * KIB, Content::Unsaid);
        if i % 8 == 7 {
            world.run_until_answered();
        }
    }
    assert!(world.answers.drain(..).all(|a| a.result.is_ok()));
    assert!(world.chunks(ChunkType::System).len() > 1);
    world.control(Command::Checkpoint).unwrap();
    // One record after the other, many times the ring.
    for i in 0..20_000u64 {
        world.submit(
            0,
            v,
            Op::Write { fua: i % 64 == 0 },
            i % 1500 * 16 * MIB + i % 13 * 4 * KIB,
            4 * KIB,
            Content::Unsaid,
        );
        if i % 4 == 3 {
            world.run_until_answered();
        }
    }
    let counters = world.engine().report().counters;
    assert!(counters.checkpoints > 5, "{counters:?}");
    world.run(v, Op::Flush, 0, 0).unwrap();
    assert!(world.answers.drain(..).all(|a| a.result.is_ok()));
    world.crash(Crash::Power);
    world.open().unwrap();
    all_answered_well(&mut world);
}

#[test]
fn a_pool_opens_without_a_device_that_it_can_spare() {
    for (profile, devices, gone) in [(Profile::Raid1, 2, 1), (Profile::Raid1c3, 3, 2), (Profile::Raid10, 4, 1)] {
        let (mut world, v) = pool(devices, profile);
        world.run(v, WRITE, 0, 4 * MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.crash(Crash::Power);
        for device in 1..=gone {
            absent(&mut world, device);
        }
        world.open().unwrap_or_else(|why| panic!("{}: {why}", profile.name()));
        world.verify();
        world.run(v, WRITE, MIB, MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.crash(Crash::Power);
        world.faults.0.clear();
        world.open().unwrap();
        world.answers.clear();
        all_answered_well(&mut world);
    }
}

#[test]
fn destroying_a_volume_that_is_in_use_returns_its_space() {
    let (mut world, keep) = pool(2, Profile::Raid1);
    for round in 0..5 {
        let v = world.volume("gone", 32 * MIB, VolumeClass::Auto);
        world.run(v, WRITE, 0, 4 * MIB).unwrap();
        for i in 0..32 {
            let op = *[WRITE, Op::Read, Op::Discard, Op::WriteZeroes { fua: false, no_hole: true }].get(i % 4).unwrap();
            world.submit(i as u32, v, op, i as u64 * 300 * KIB + 512, 200 * KIB, Content::Unsaid);
        }
        for _ in 0..round * 3 {
            world.step();
        }
        world.oracle.destroy(v.0);
        world.command(Command::DestroyVolume { volume: v });
        world.drain();
        world.run(keep, WRITE, round * MIB, MIB).unwrap();
        world.run_until_quiet();
        world.oracle.destroyed(v.0);
        world.check_quiet(true);
        assert_eq!(world.run(v, Op::Read, 0, 4 * KIB), Err(RequestError::NoVolume));
    }
    world.answers.clear();
    all_answered_well(&mut world);
}

/// Blocks of 4 KiB from `at` on that a device cannot read, or write.
fn bad(world: &mut World, device: u32, op: Op, at: u64, blocks: u64, left: u64) {
    let bytes = at..at + blocks * 4 * KIB;
    let trouble = match op {
        Op::Read => Trouble::reads_fail(bytes, left),
        _ => Trouble::writes_fail(bytes, left),
    };
    world.faults.0.push(Fault { device, trouble });
}

/// Sixteen requests of 4 KiB that become one command a device; which of them failed.
fn sixteen(world: &mut World, volume: VolumeId, op: Op) -> Vec<u64> {
    let tags: Vec<u64> = (0..16).map(|i| world.submit(0, volume, op, i * 4 * KIB, 4 * KIB, Content::Unsaid)).collect();
    world.run_until_answered();
    let failed: Vec<u64> = world.answers.drain(..).filter(|a| a.result.is_err()).map(|a| a.tag).collect();
    (0..16).filter(|&i| failed.contains(&tags[i as usize])).collect()
}

/// A pool whose first 64 KiB are written, and where they are on its devices.
fn written(devices: usize, profile: Profile) -> (World, VolumeId, u64) {
    let (mut world, v) = pool(devices, profile);
    world.control(Command::Set { name: "read_policy".into(), value: "devid:1".into() }).unwrap();
    world.keep_dispatched = true;
    world.dispatched.clear();
    world.run(v, WRITE, 0, 64 * KIB).unwrap();
    let at = world.dispatched.iter().find(|d| d.len == 64 * KIB).expect("one command a device").offset;
    world.run_until_quiet();
    world.answers.clear();
    world.dispatched.clear();
    (world, v, at)
}

#[test]
fn a_bad_block_is_its_own_trouble_and_not_that_of_reads_that_travelled_with_it() {
    for (devices, profile, failing) in [(1, Profile::Single, vec![5]), (2, Profile::Raid1, vec![])] {
        let (mut world, v, at) = written(devices, profile);
        bad(&mut world, 1, Op::Read, at + 5 * 4 * KIB, 1, u64::MAX);
        assert_eq!(sixteen(&mut world, v, Op::Read), failing, "{}", profile.name());
        world.run_until_quiet();
        let report = world.engine().report();
        let first = &report.devices[0];
        // The unit is looked at behind that, and mended where another copy helps: more reads.
        let (reads, errors) = (first.io.reads, first.io.read_errors);
        match profile {
            // A run of sixteen, which parts, and the look: the unit whole and block by block.
            Profile::Single => assert_eq!((reads, errors, first.in_flight), (1 + 16 + 1 + 16, 4, 0)),
            _ => assert!(reads > 16 && errors >= 2 && first.io.chosen == 16, "{reads} reads, {errors} errors"),
        }
        assert_eq!(first.state, DeviceState::Online);
        if let Some(second) = report.devices.get(1) {
            assert_eq!((second.io.chosen, second.io.read_errors), (1, 0), "only the bad block");
        }
        world.faults.0.clear();
        all_answered_well(&mut world);
    }
}

#[test]
fn a_bad_block_is_its_own_trouble_and_not_that_of_writes_that_travelled_with_it() {
    let (mut world, v, at) = written(1, Profile::Single);
    bad(&mut world, 1, WRITE, at + 5 * 4 * KIB, 1, u64::MAX);
    assert_eq!(sixteen(&mut world, v, WRITE), [5]);
    world.faults.0.clear();
    all_answered_well(&mut world);
    // On a mirror the member missed that one write, and is behind there.
    for (left, after) in [(1, DeviceState::Online), (2, DeviceState::Rebuilding)] {
        let (mut world, v, at) = written(2, Profile::Raid1);
        bad(&mut world, 1, WRITE, at + 5 * 4 * KIB, 1, left);
        assert!(sixteen(&mut world, v, WRITE).is_empty(), "the other copy took them all");
        assert_eq!((device_state(&world, 1), device_state(&world, 2)), (after, DeviceState::Online));
        assert_eq!(world.engine().report().devices[1].io.write_errors, 0);
        all_answered_well(&mut world);
    }
}

#[test]
fn copies_that_are_bad_in_different_places_make_one_good_read() {
    let (mut world, v, at) = written(2, Profile::Raid1);
    bad(&mut world, 1, Op::Read, at + 3 * 4 * KIB, 1, u64::MAX);
    bad(&mut world, 2, Op::Read, at + 9 * 4 * KIB, 1, u64::MAX);
    world.run(v, Op::Read, 0, 64 * KIB).unwrap();
    all_answered_well(&mut world);
    // The same block on both: lost, and that is found out without asking for every block.
    bad(&mut world, 2, Op::Read, at + 3 * 4 * KIB, 1, u64::MAX);
    world.dispatched.clear();
    assert_eq!(world.run(v, Op::Read, 0, 64 * KIB), Err(RequestError::Io));
    assert!(world.dispatched.len() < 25, "{:?}", world.dispatched);
    assert_eq!(world.run(v, Op::Read, 16 * KIB, 48 * KIB), Ok(()));
    assert_eq!((device_state(&world, 1), device_state(&world, 2)), (DeviceState::Online, DeviceState::Online));
}

#[test]
fn what_no_copy_can_read_costs_few_failing_commands() {
    let (mut world, v) = pool(2, Profile::Raid1);
    world.run(v, WRITE, 0, 4 * MIB).unwrap();
    world.run_until_quiet();
    for device in [1, 2] {
        bad(&mut world, device, Op::Read, 0, u64::MAX >> 13, u64::MAX);
    }
    world.keep_dispatched = true;
    world.dispatched.clear();
    assert_eq!(world.run(v, Op::Read, 0, 4 * MIB), Err(RequestError::Io));
    assert!(world.dispatched.len() <= 50, "{} commands", world.dispatched.len());
    world.faults.0.clear();
    all_answered_well(&mut world);
}
