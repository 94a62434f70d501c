//! Power cuts and the stripe journal: with members lost at the same moment, in the middle of a move, of a replace, of a replay.

use braid_core::control::{Command, VolumeClass};
use braid_core::job::Choice;
use braid_core::profile::column_of;
use braid_core::request::Op;
use braid_core::scrub::State;
use braid_core::units::{DeviceId, KIB, MIB, VolumeId};
use braid_core::{DeviceState, Profile, Slip};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::rng::Rng;
use braid_sim::{Crash, World};

use super::{PARITY, WRITE, check_parity, fill_metadata, pool, stir, take_out};
use crate::common::{all_is_well, device_state, reopen, shape};

/// A pool of some profile, of up to so many members, with content.
fn drawn_pool(seed: u64, devices_max: u64) -> (Rng, Profile, usize, World, VolumeId) {
    let mut rng = Rng::new(seed);
    let profile = *rng.pick(&PARITY);
    let devices = rng.between(profile.facts().devs_min as u64, devices_max) as usize;
    let checksum = *rng.pick(&["none", "crc32c"]);
    let (mut world, v) = pool(seed, devices, profile, checksum);
    if rng.percent(30) {
        fill_metadata(&mut world, rng.between(1, 15) as u32);
    }
    stir(&mut world, v, &mut rng, 40);
    (rng, profile, devices, world, v)
}

/// The power goes at some moment of a run, and so many members with it; with the one more that a profile does not survive it
/// would be refused.
fn crash_beside_loss(seed: u64, slip: Option<Slip>) -> Result<(), String> {
    crash_beside_loss_of(seed, 6, &[4 * KIB, 12 * KIB, 64 * KIB], slip)
}

/// The same on so many members at most, with writes of such lengths.
fn crash_beside_loss_of(seed: u64, devices_max: u64, lengths: &[u64], slip: Option<Slip>) -> Result<(), String> {
    let (mut rng, profile, devices, mut world, v) = drawn_pool(seed, devices_max);
    if slip.is_some() {
        world.slip = slip;
        world.crash(Crash::Process);
        world.open()?;
    }
    // A few rows, again and again: the journal goes round.
    let area = rng.between(1, 8) * 256 * KIB;
    world.run(v, WRITE, 0, area).map_err(|e| format!("{e:?}"))?;
    world.run(v, Op::Flush, 0, 0).map_err(|e| format!("{e:?}"))?;
    let (flushes, only_writes) = (*rng.pick(&[1, 10, 30]), rng.percent(40));
    for _ in 0..rng.between(5, 200) {
        let offset = rng.below(area / 4096) * 4096;
        let len = *rng.pick(lengths);
        let is_flush = rng.percent(flushes);
        let kinds: &[Op] = if only_writes { &[WRITE] } else { &[WRITE, WRITE, Op::Write { fua: true }, Op::Discard] };
        let op = *rng.pick(kinds);
        let (op, offset, len) = if is_flush { (Op::Flush, 0, 0) } else { (op, offset, len) };
        world.submit(1, v, op, offset, len, Default::default());
        if rng.percent(50) {
            world.drain();
            let steps = rng.below(12);
            for _ in 0..steps {
                world.step();
            }
        }
    }
    world.drain();
    for _ in 0..rng.below(30) {
        world.step();
    }
    world.crash(Crash::Power);
    let mut lost: Vec<u32> = (1..=devices as u32).collect();
    while lost.len() > profile.facts().parity {
        lost.swap_remove(rng.below(lost.len() as u64) as usize);
    }
    let absent = |&device: &u32| Fault { device, trouble: Trouble::Absent { since: 0 } };
    world.faults.0.extend(lost.iter().map(absent));
    world.open()?;
    world.verify();
    world.run_until_quiet();
    world.verify();
    match world.wrong.first() {
        None => Ok(()),
        Some(wrong) => Err(wrong.to_string()),
    }
}

#[test]
fn a_crash_and_the_loss_of_members_at_once_cost_nothing_that_was_flushed() {
    for seed in 0..60 {
        if let Err(wrong) = crash_beside_loss(seed, None) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

/// Rows of more than a group of the journal holds are changed in two parts.
#[test]
fn the_same_on_wide_pools() {
    for seed in 0..30 {
        if let Err(wrong) = crash_beside_loss_of(seed, 16, &[4 * KIB, 64 * KIB, 512 * KIB, MIB], None) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

/// What is in the journal of a row was written while all members were there; then one was away, and the row changed without
/// it. An opening must not go back to that: neither when the member is still away, nor when it was rebuilt.
#[test]
fn the_journal_never_brings_back_what_was_before_a_member_went() {
    for (seed, profile) in (0..6).flat_map(|seed| PARITY.map(|profile| (seed, profile))) {
        let devices = 3 + profile.facts().parity - 1;
        for (device, is_back) in (1..=devices as u32).flat_map(|device| [(device, true), (device, false)]) {
            let (mut world, v) = pool(seed, devices, profile, "none");
            let mut rng = Rng::new(seed);
            let mut change = |world: &mut World| {
                // So few that the journal is not around in between, and so near that they meet.
                for _ in 0..8 {
                    let (unit, block) = (rng.below(4), rng.below(4));
                    let len = rng.between(1, 4 - block) * 4 * KIB;
                    world.run(v, WRITE, unit * 64 * KIB + block * 4 * KIB, len).expect("members may be away");
                }
            };
            world.run(v, WRITE, 0, MIB).expect("there is room");
            change(&mut world);
            world.control(Command::OfflineDevice { device: DeviceId(device) }).expect("the others have everything");
            change(&mut world);
            world.run(v, Op::Flush, 0, 0).expect("the others are there");
            if is_back {
                world.control(Command::OnlineDevice { device: DeviceId(device), found: None }).expect("it is there");
                world.run_until_quiet();
            }
            world.crash(Crash::Power);
            world.open().expect("no more than it spares is away");
            world.verify();
            all_is_well(&mut world);
        }
    }
}

/// A member fails, and the journal goes round without it: what stands there on that member is older than what a row without its
/// parity got since, which is not in the journal.
#[test]
fn the_journal_of_a_member_that_failed_brings_nothing_back() {
    let mut failed = 0;
    for (seed, profile) in (0..24).flat_map(|seed| PARITY.map(|profile| (seed, profile))) {
        let parity = profile.facts().parity as u32;
        let devices = 2 + parity;
        let (mut world, v) = pool(seed, devices as usize, profile, ["none", "crc32c"][seed as usize % 2]);
        let mut rng = Rng::new(seed);
        let mut change = |world: &mut World, rows: u64, count: u64| {
            for _ in 0..count {
                let (unit, block) = (8 * rows + rng.below(8), rng.below(4));
                world.run(v, WRITE, unit * 64 * KIB + block * 4 * KIB, 4 * KIB).expect("the others have everything");
            }
        };
        world.run(v, WRITE, 0, MIB).expect("there is room");
        change(&mut world, 0, 6);
        change(&mut world, 1, 14);
        for device in (0..parity).map(|i| (seed as u32 + i) % devices + 1) {
            world.faults.0.push(Fault { device, trouble: Trouble::writes_fail(0..u64::MAX, u64::MAX) });
            change(&mut world, 1, 10 / u64::from(parity));
        }
        failed += (1..=devices).filter(|&device| device_state(&world, device) == DeviceState::Failed).count();
        world.faults.0.clear();
        // Of other rows, until the journal, which has 256 blocks, was written over what it had of the first ones.
        change(&mut world, 1, 46 + seed / 2);
        change(&mut world, 0, 8);
        world.crash(Crash::Process);
        world.open().expect("no more than it spares is away");
        world.verify();
        all_is_well(&mut world);
    }
    assert!(failed >= 12, "only {failed} members have failed");
}

/// The journal has 256 blocks, and a group as many as it changes and one. By number: where the first stand, what is written
/// again at 49, and at last two large ones, of which the second finds room only where the first stands. After so many steps
/// more comes a cut.
///
/// ```text
///   rows 0 | 49 | 98 | 147    a 196 .. 235, nothing          again from the front: row 0 | a 49 .. 73 | large 73..170, 0..97
/// ```
fn cut_beside_large_groups(steps: u64, slip: Option<Slip>) -> Result<(), String> {
    let set = [("checksum", "none"), ("commit_interval", "60s")];
    let mut world = World::with_pool(steps, &vec![shape(96); 3], Profile::Raid5, Profile::Single, &set);
    let v = world.volume("v", 4 * MIB, VolumeClass::Data);
    world.slip = slip;
    reopen(&mut world);
    let row = |row: u64| row * 128 * KIB;
    let write = |world: &mut World, offset, len| world.run(v, WRITE, offset, len).map_err(|e| format!("{e:?}"));
    write(&mut world, 0, MIB)?;
    (1..5).try_for_each(|i| write(&mut world, row(i), 128 * KIB))?;
    (0..13).try_for_each(|i| write(&mut world, i * 4 * KIB, 4 * KIB))?;
    write(&mut world, row(5), 128 * KIB)?;
    (0..8).try_for_each(|i| write(&mut world, i * 4 * KIB, 4 * KIB))?;
    for i in 1..5 {
        world.submit(1, v, WRITE, row(i), 128 * KIB, Default::default());
    }
    world.drain();
    for _ in 0..steps {
        world.step();
    }
    world.crash(Crash::Process);
    world.open()?;
    world.verify();
    world.run_until_quiet();
    world.wrong.first().map_or(Ok(()), |wrong| Err(wrong.to_string()))
}

#[test]
fn a_group_that_is_cut_leaves_the_one_before_it_whole() {
    let cut = |slip| (0..60).map(move |steps| cut_beside_large_groups(steps, slip));
    assert_eq!(cut(None).find(|run| run.is_err()), None);
    let caught = cut(Some(Slip::LastGroupOverwritten)).position(|run| run.is_err());
    println!("after {caught:?} steps");
    assert!(caught.is_some(), "it goes unnoticed");
}

/// A change of a strip is cut after so many steps, and the next opening cannot put in place what the journal has of it: neither the
/// strip nor parity can be written. None when the change was over before that.
fn replay_beside_failing_writes(steps: u64) -> Option<bool> {
    let set = [("checksum", "none"), ("commit_interval", "60s")];
    let mut world = World::with_pool(steps, &vec![shape(96); 3], Profile::Raid5, Profile::Raid1, &set);
    let v = world.volume("v", 4 * MIB, VolumeClass::Data);
    world.run(v, WRITE, 0, 128 * KIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run_until_quiet();
    let chunk = world.engine().pool().chunks().find(|c| c.rows() > 0).expect("there is data");
    let columns = [0, 2].map(|member| chunk.columns[column_of(Profile::Raid5, 3, 0, member)]);
    world.submit(1, v, WRITE, 0, 64 * KIB, Default::default());
    world.drain();
    for _ in 0..steps {
        world.step();
    }
    if world.outstanding() == 0 {
        return None;
    }
    world.crash(Crash::Process);
    for column in columns {
        let (from, to) = (column.offset, column.offset + 64 * KIB);
        let trouble = Trouble::Error { read: false, write: true, flush: false, from, to, percent: 100, left: u64::MAX };
        world.faults.0.push(Fault { device: column.device.0, trouble });
    }
    world.open().unwrap();
    world.run_until_quiet();
    // The other strip is whole, and can be read where it is. What is torn is an error, and nothing is made of it.
    world.run(v, Op::Read, 64 * KIB, 64 * KIB).unwrap();
    let is_torn = world.run(v, Op::Read, 0, 64 * KIB).is_err();
    if is_torn {
        assert!(world.run(v, WRITE, 0, 4 * KIB).is_err(), "nothing is written over it");
    }
    world.crash(Crash::Process);
    world.faults.0.clear();
    world.open().unwrap();
    world.run_until_quiet();
    assert_eq!(world.run(v, Op::Read, 0, 128 * KIB), Ok(()));
    all_is_well(&mut world);
    check_parity(&world);
    Some(is_torn)
}

#[test]
fn what_a_replay_cannot_put_in_place_is_an_error_until_the_next_one_does() {
    let torn: Vec<bool> = (0..).map_while(replay_beside_failing_writes).collect();
    println!("{torn:?}");
    assert!(torn.contains(&false) && torn.contains(&true), "{torn:?}");
}

/// Metadata goes to another profile, and the journal with it, while rows change; a cut after so many steps. None when it was over
/// before that.
fn cut_beside_a_journal_that_moves(steps: u64, slip: Option<Slip>) -> Option<Result<(), String>> {
    let (mut world, v) = pool(5, 5, Profile::Raid6, "none");
    world.slip = slip;
    reopen(&mut world);
    world.run(v, WRITE, 0, 8 * MIB).expect("there is room");
    let choice = Some(Choice { convert: Some(Profile::Raid1c4), ..Choice::default() });
    world.control(Command::Balance { data: None, metadata: choice }).expect("there is room for it");
    for step in 0..steps {
        if step % 4 == 0 && world.outstanding() < 16 {
            world.submit(1, v, WRITE, step % 120 * 64 * KIB, 64 * KIB, Default::default());
        }
        world.step();
    }
    if world.engine().pool().job.as_ref().is_none_or(|job| job.state != State::Running) {
        return None;
    }
    world.crash(Crash::Power);
    let opened = world.open();
    Some(opened.and_then(|()| {
        world.run_until_quiet();
        match world.wrong_parity().as_slice() {
            [] => Ok(()),
            rows => Err(format!("after {steps} steps parity is wrong: {rows:?}")),
        }
    }))
}

#[test]
fn a_journal_that_moves_is_written_where_the_log_says_that_it_is() {
    let cuts = |slip| (0..).map(|i| i * 2).map_while(move |steps| cut_beside_a_journal_that_moves(steps, slip));
    let right: Vec<_> = cuts(None).collect();
    assert!(right.len() > 20, "{} cuts", right.len());
    assert_eq!(right.into_iter().find(Result::is_err), None);
    let caught = cuts(Some(Slip::JournalPlaceUnsaid)).position(|run| run.is_err());
    println!("at cut {caught:?}");
    assert!(caught.is_some(), "it goes unnoticed");
}

/// The same with a mistake: some seed shows it.
#[test]
fn an_engine_that_slips_is_caught() {
    for slip in
        [Slip::RowNotJournaled, Slip::JournalNotForced, Slip::RingReusedEarly, Slip::ParityNotMade, Slip::WrongFactor]
    {
        let is_caught = |seed: u64| {
            let run = std::panic::catch_unwind(|| crash_beside_loss(seed, Some(slip)));
            run.is_err() || run.is_ok_and(|run| run.is_err())
        };
        let caught = (0..200).find(|&seed| is_caught(seed));
        println!("{slip:?}: {caught:?}");
        assert!(caught.is_some(), "{slip:?} goes unnoticed");
    }
}

/// A member is replaced under load, and the power goes at some moment of that.
fn cut_beside_replace(seed: u64, slip: Option<Slip>) -> Result<(), String> {
    let (mut rng, _, devices, mut world, v) = drawn_pool(seed, 5);
    world.add_disk(&shape(96));
    world.run_until_quiet();
    if slip.is_some() {
        world.slip = slip;
        world.crash(Crash::Process);
        world.open()?;
        world.run_until_quiet();
    }
    if rng.percent(50) {
        take_out(&mut world, 1);
    }
    let by = DeviceId(devices as u32 + 1);
    let _ = world.control(Command::ReplaceDevice { device: DeviceId(1), by });
    for _ in 0..rng.between(1, 60) {
        let offset = rng.below(40 * MIB / 4096) * 4096;
        let len = *rng.pick(&[4 * KIB, 12 * KIB, 64 * KIB, 300 * KIB]);
        let op = *rng.pick(&[WRITE, WRITE, Op::Write { fua: true }, Op::Discard, Op::Read]);
        world.submit(1, v, op, offset, len, Default::default());
        if rng.percent(10) {
            world.submit(1, v, Op::Flush, 0, 0, Default::default());
        }
        world.drain();
        for _ in 0..rng.below(60) {
            world.step();
        }
    }
    world.crash(Crash::Power);
    // The others are enough without the one that goes, and without the one that comes.
    if rng.percent(50) && device_is_there(&world, 1) {
        world.faults.0.push(Fault { device: 1, trouble: Trouble::Absent { since: 0 } });
    }
    world.open()?;
    world.verify();
    world.run_until_quiet();
    world.verify();
    match (world.wrong.first(), world.wrong_parity().first()) {
        (Some(wrong), _) => Err(wrong.to_string()),
        (_, Some(row)) => Err(format!("parity of {row:?}")),
        _ => Ok(()),
    }
}

fn device_is_there(world: &World, device: u32) -> bool {
    world.faults.0.iter().all(|fault| fault.device != device)
}

#[test]
fn a_crash_in_the_middle_of_a_replace_costs_nothing_that_was_flushed() {
    for seed in 0..120 {
        cut_beside_replace(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    for slip in [Slip::ColumnBeforeCopy, Slip::ColumnMissesWrites] {
        let is_caught =
            |seed| std::panic::catch_unwind(|| cut_beside_replace(seed, Some(slip))).map_or(true, |r| r.is_err());
        assert!((0..40).any(is_caught), "{slip:?} is caught");
    }
}
