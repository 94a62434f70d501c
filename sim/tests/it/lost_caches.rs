//! Flushes that fail and take the write cache along: of members that nobody stands in for, of those that have the only copy of the
//! pool's own records, and beside reads that are under way.

use braid_core::control::{Command, VolumeClass};
use braid_core::request::{Content, Op};
use braid_core::units::{DeviceId, KIB, MIB, UNIT, VolumeId};
use braid_core::{DeviceState, Profile, Slip};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::{Crash, World};

use crate::common::{all_is_well, device_state, reopen, shape};

const WRITE: Op = Op::Write { fua: false };

fn lose_caches(world: &mut World, device: u32, left: u64) {
    world.faults.0.push(Fault { device, trouble: Trouble::CacheLost { percent: 100, left } });
}

fn pool(profile: Profile, metadata: Profile, devices: usize, slip: Option<Slip>) -> (World, VolumeId) {
    pool_of(1, profile, metadata, devices, slip)
}

/// What a lost cache keeps all the same is the seed's.
fn pool_of(seed: u64, profile: Profile, metadata: Profile, devices: usize, slip: Option<Slip>) -> (World, VolumeId) {
    let set = [("commit_interval", "60s"), ("checksum", "none")];
    let mut world = World::with_pool(seed, &vec![shape(128); devices], profile, metadata, &set);
    let v = world.volume("v", 64 * MIB, VolumeClass::Data);
    world.slip = slip;
    reopen(&mut world);
    (world, v)
}

/// So many flushes fail in a row, of a device that has all there is. What is flushed after that is there after a power cut.
fn write_on_after_losses(count: u64, in_checkpoint: bool, slip: Option<Slip>) -> Result<(), String> {
    let (mut world, v) = pool(Profile::Single, Profile::Single, 1, slip);
    world.may_lose_caches = true;
    world.run(v, WRITE, 0, MIB).map_err(|e| format!("{e:?}"))?;
    world.run(v, Op::Flush, 0, 0).map_err(|e| format!("{e:?}"))?;
    // First writes, so that the log has something of each.
    world.run(v, WRITE, MIB, 4 * MIB).map_err(|e| format!("{e:?}"))?;
    lose_caches(&mut world, 1, count);
    if in_checkpoint {
        let _ = world.control(Command::Checkpoint);
    }
    let failed = (0..count).take_while(|_| world.run(v, Op::Flush, 0, 0).is_err()).count();
    world.may_lose_caches = false;
    world.run(v, WRITE, 8 * MIB, MIB).map_err(|e| format!("after {failed} errors: {e:?}"))?;
    world.run(v, Op::Flush, 0, 0).map_err(|e| format!("after {failed} errors: {e:?}"))?;
    world.faults.0.clear();
    world.crash(Crash::Power);
    world.open()?;
    world.run(v, Op::Read, 8 * MIB, MIB).map_err(|e| format!("{e:?}"))?;
    world.verify();
    world.run_until_quiet();
    world.check_quiet(true);
    world.wrong.first().map_or(Ok(()), |wrong| Err(wrong.clone()))
}

#[test]
fn records_that_only_one_device_had_are_written_anew_when_it_lost_its_cache() {
    for count in 1..=3 {
        for in_checkpoint in [false, true] {
            assert_eq!(write_on_after_losses(count, in_checkpoint, None), Ok(()), "{count}, {in_checkpoint}");
        }
    }
    let caught = write_on_after_losses(1, false, Some(Slip::LossNotDoubted));
    println!("{caught:?}");
    assert!(caught.is_err(), "it goes unnoticed");
}

/// A device that loses its cache again and again is no place for a promise: flushes and writes fail, what is there is read.
#[test]
fn a_pool_whose_only_device_loses_every_cache_stops_promising() {
    let (mut world, v) = pool(Profile::Single, Profile::Single, 1, None);
    world.may_lose_caches = true;
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run_until_quiet();
    world.run(v, WRITE, MIB, MIB).unwrap();
    lose_caches(&mut world, 1, u64::MAX);
    let since = world.now();
    for _ in 0..3 {
        assert!(world.run(v, Op::Flush, 0, 0).is_err());
    }
    world.run_until_quiet();
    assert!(world.now() - since < 60_000_000_000, "it goes on trying for {} ns", world.now() - since);
    assert!(world.run(v, WRITE, 32 * MIB, MIB).is_err(), "a first write is a promise");
    assert!(
        world.run(v, WRITE, 0, 64 * KIB).is_err(),
        "what the map in memory says of the place may be known to nobody else"
    );
    world.run(v, Op::Read, 0, 64 * KIB).unwrap();
    // When the device is well again, so is the pool that is opened anew, with all that was flushed before.
    world.faults.0.clear();
    world.may_lose_caches = false;
    world.crash(Crash::Power);
    world.open().unwrap();
    all_is_well(&mut world);
    world.run(v, WRITE, 32 * MIB, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    all_is_well(&mut world);
}

/// Where others have the records, a loss of data that only this member had costs just that.
#[test]
fn records_that_others_have_need_no_member_that_lost_data() {
    for left in 1..=2 {
        let (mut world, v) = pool(Profile::Single, Profile::Raid1, 2, None);
        world.may_lose_caches = true;
        (0..8).for_each(|i| world.run(v, WRITE, 4 * i * MIB, MIB).unwrap());
        lose_caches(&mut world, 1, left);
        let mut errors = 0;
        while world.run(v, Op::Flush, 0, 0).is_err() {
            errors += 1;
        }
        assert!((1..=left).contains(&errors), "{errors} of {left}");
        world.may_lose_caches = false;
        world.run_until_quiet();
        assert_eq!(device_state(&world, 1), DeviceState::Online, "it has all records again");
        world.run(v, WRITE, 0, MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.faults.0.clear();
        world.crash(Crash::Power);
        world.open().unwrap();
        all_is_well(&mut world);
    }
}

/// A flush of a checkpoint fails, and nothing is lost by it as long as there is power. What is written for the first time is content,
/// or a hole, after a cut; and not what stood in its place before.
#[test]
fn a_checkpoint_counts_when_what_only_one_member_has_is_flushed() {
    for device in 1..=2 {
        let (mut world, v) = pool(Profile::Single, Profile::Raid1, 2, None);
        world.run(v, WRITE, 0, 8 * MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        let places = || (0..8 * MIB).step_by(4 * UNIT as usize).map(|at| (at, UNIT / 2));
        places().for_each(|(at, len)| world.run(v, Op::Discard, at, len).unwrap());
        world.run(v, Op::Flush, 0, 0).unwrap();
        places().for_each(|(at, len)| world.run(v, WRITE, at, len).unwrap());
        let (from, to) = (0, u64::MAX);
        let trouble = Trouble::Error { read: false, write: false, flush: true, from, to, percent: 100, left: 1 };
        world.faults.0.push(Fault { device, trouble });
        world.control(Command::Checkpoint).unwrap();
        world.faults.0.clear();
        world.crash(Crash::Power);
        world.open().unwrap();
        all_is_well(&mut world);
    }
}

/// Where no flush of what only it has succeeds, no checkpoint counts, and after five there is nothing more to promise.
#[test]
fn a_member_that_flushes_nothing_of_what_only_it_has_ends_the_promises() {
    let (mut world, v) = pool(Profile::Single, Profile::Raid1, 2, None);
    world.run(v, WRITE, 0, 8 * MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run(v, WRITE, 8 * MIB, 8 * MIB).unwrap();
    let (from, to) = (0, u64::MAX);
    let trouble = Trouble::Error { read: false, write: false, flush: true, from, to, percent: 100, left: u64::MAX };
    world.faults.0.push(Fault { device: 1, trouble });
    let since = world.now();
    assert!(world.control(Command::Checkpoint).is_err());
    let took = world.now() - since;
    assert!((6_000_000_000..7_000_000_000).contains(&took), "it gave up after {took} ns");
    assert!(world.run(v, WRITE, 32 * MIB, MIB).is_err(), "a first write is a promise");
    world.run(v, Op::Read, 0, 64 * KIB).unwrap();
    world.faults.0.clear();
    world.crash(Crash::Power);
    world.open().unwrap();
    all_is_well(&mut world);
}

/// Beside a flush that fails, a read that begins after so many events of it. None when the flush was over.
fn read_beside_loss(profile: Profile, steps: u64, slip: Option<Slip>) -> Option<Result<(), String>> {
    let (mut world, v) = pool(profile, Profile::Raid1c3, 3, slip);
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run(v, WRITE, 0, MIB).unwrap();
    let device = world.places(v, 0)[0].0;
    lose_caches(&mut world, device.0, 1);
    world.submit(1, v, Op::Flush, 0, 0, Default::default());
    for _ in 0..steps {
        world.drain();
        if world.outstanding() == 0 {
            return None;
        }
        world.step();
    }
    for i in 0..16 {
        world.submit(2 + i, v, Op::Read, u64::from(i) * 64 * KIB, 64 * KIB, Default::default());
    }
    world.run_until_quiet();
    Some(world.wrong.first().map_or(Ok(()), |wrong| Err(format!("{profile:?} after {steps} steps: {wrong}"))))
}

#[test]
fn a_read_beside_a_lost_cache_brings_what_was_answered() {
    let each = |slip| {
        let profiles = [Profile::Raid1, Profile::Raid1c3, Profile::Raid5];
        profiles.into_iter().flat_map(move |p| (0..).map_while(move |steps| read_beside_loss(p, steps, slip)))
    };
    let right: Vec<_> = each(None).collect();
    println!("{} reads", right.len());
    assert_eq!(right.into_iter().find(Result::is_err), None);
    assert!(each(Some(Slip::LapsedReadTrusted)).any(|read| read.is_err()), "it goes unnoticed");
}

/// Beside a flush that fails, a write that is to be stable when it is answered, so many events later. None when the flush was over.
fn forced_beside_loss(seed: u64, steps: u64, op: Op, slip: Option<Slip>) -> Option<Result<(), String>> {
    let (mut world, v) = pool_of(seed, Profile::Single, Profile::Single, 1, slip);
    world.may_lose_caches = true;
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run(v, WRITE, MIB, MIB).unwrap();
    lose_caches(&mut world, 1, 1);
    world.submit(1, v, Op::Flush, 0, 0, Default::default());
    for _ in 0..steps {
        world.drain();
        if world.outstanding() == 0 {
            return None;
        }
        world.step();
    }
    // A first write, and one of what is known and stable.
    for at in [8 * MIB, 0] {
        world.submit(2, v, op, at, 64 * KIB, Default::default());
    }
    world.run_until_quiet();
    world.may_lose_caches = false;
    world.crash(Crash::Power);
    Some(world.open().and_then(|()| {
        world.verify();
        world.wrong.first().map_or(Ok(()), |wrong| Err(format!("{op:?} after {steps} steps: {wrong}")))
    }))
}

#[test]
fn what_is_answered_as_stable_did_not_go_with_a_cache() {
    let each = |slip| {
        let ops = [Op::Write { fua: true }, Op::WriteZeroes { no_hole: true, fua: true }];
        let cases = ops.into_iter().flat_map(|op| (0..12).map(move |seed| (op, seed)));
        cases.flat_map(move |(op, seed)| (0..).map_while(move |steps| forced_beside_loss(seed, steps, op, slip)))
    };
    let right: Vec<_> = each(None).collect();
    println!("{} writes", right.len());
    assert_eq!(right.into_iter().find(Result::is_err), None);
    assert!(each(Some(Slip::UnstableAnswered)).any(|run| run.is_err()), "it goes unnoticed");
}

/// Content is flushed, its sums go home when the pool is idle, and are lost with the cache by a flush that fails: of the checkpoint that
/// was to call their region clean, or so many events later, of a client beside it. When a checkpoint counts the power fails.
fn sums_lost_beside_cleaning(seed: u64, steps: Option<u64>) -> Option<World> {
    let set = [("commit_interval", "60s"), ("checksum", "crc32c")];
    let mut world = World::with_pool(seed, &[shape(128)], Profile::Single, Profile::Single, &set);
    world.may_lose_caches = true;
    let v = world.volume("v", 64 * MIB, VolumeClass::Data);
    // What stands on the disk then are sums of other content.
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run_until_quiet();
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    let before = world.engine().report().counters.checkpoints;
    let counts = |world: &World| world.engine().report().counters.checkpoints > before;
    match steps {
        None => lose_caches(&mut world, 1, 1),
        Some(steps) => {
            for _ in 0..steps {
                world.drain();
                world.step();
            }
            if counts(&world) {
                return None;
            }
            lose_caches(&mut world, 1, 1);
            world.submit(1, v, Op::Flush, 0, 0, Default::default());
        }
    }
    assert!(world.run_until(counts), "a checkpoint counts");
    world.faults.0.clear();
    world.crash(Crash::Power);
    world.open().unwrap();
    let read = world.run(v, Op::Read, 0, MIB);
    assert_eq!(read, Ok(()), "a flush {steps:?} events after content was stable");
    Some(world)
}

/// A region is clean only with its sums on the disk.
#[test]
fn sums_that_are_lost_with_a_cache_are_missed_by_no_image() {
    for seed in 1..=8 {
        all_is_well(&mut sums_lost_beside_cleaning(seed, None).expect("it was idle"));
        let beside = (0..).map_while(|steps| sums_lost_beside_cleaning(seed, Some(steps)));
        let count = beside.map(|mut world| all_is_well(&mut world)).count();
        assert!(count > 4, "{count} places for a flush");
    }
}

/// Content is flushed, its sums go home when others need the room, and are lost with the cache by a flush that fails: they are in
/// memory no more. Read at once, or after a checkpoint and a power cut.
fn sums_lost_that_left_memory(seed: u64, at_once: bool) {
    let set = [("commit_interval", "60s"), ("checksum", "xxh3"), ("checksum_cache", "256K")];
    let mut world = World::with_pool(seed, &[shape(256)], Profile::Single, Profile::Single, &set);
    world.may_lose_caches = true;
    let v = world.volume("v", 192 * MIB, VolumeClass::Data);
    let elsewhere = |world: &mut World| {
        for at in 1..160 {
            world.run(v, WRITE, at * MIB, 64 * KIB).unwrap();
        }
    };
    world.run(v, WRITE, 0, 160 * MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run_until_quiet();
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    elsewhere(&mut world);
    assert_eq!(world.engine().sum_place(v, 0), None);
    lose_caches(&mut world, 1, 1);
    assert!(world.run(v, Op::Flush, 0, 0).is_err());
    world.faults.0.clear();
    if !at_once {
        world.run_until_quiet();
        assert_eq!(world.engine().report().resync.dirty_regions, 0);
        world.crash(Crash::Power);
        world.open().unwrap();
    }
    assert_eq!(world.run(v, Op::Read, 0, MIB), Ok(()), "seed {seed}, at once: {at_once}");
    all_is_well(&mut world);
}

#[test]
fn sums_that_are_lost_with_a_cache_when_they_left_memory_are_made_again() {
    for seed in 1..=2 {
        sums_lost_that_left_memory(seed, true);
        sums_lost_that_left_memory(seed, false);
    }
}

/// A pool that is opened again for the clients that it has goes by this.
#[test]
fn a_loss_is_owed_until_a_flush_has_told_of_it() {
    let (mut world, v) = pool(Profile::Single, Profile::Raid1, 2, None);
    world.may_lose_caches = true;
    world.run(v, WRITE, 0, 8 * MIB).unwrap();
    assert!(!world.engine().owes_a_loss());
    (1..=2).for_each(|device| lose_caches(&mut world, device, 1));
    // Nobody waits for this flush.
    let _ = world.control(Command::Checkpoint);
    world.run_until_quiet();
    assert!(world.engine().owes_a_loss());
    assert!(world.run(v, Op::Flush, 0, 0).is_err());
    world.run_until_quiet();
    assert!(!world.engine().owes_a_loss());
    assert_eq!(world.run(v, Op::Flush, 0, 0), Ok(()));
}

/// A member in use is pulled and found anew at any moment of writes and a flush: the host has seen that its file is dead, and nothing else
/// has told the engine. Those who can be told of a loss are, and nobody else is.
#[test]
fn members_in_use_are_connected_anew_at_any_step() {
    let shapes = [
        (Profile::Single, Profile::Single, 1),
        (Profile::Single, Profile::Raid1, 2),
        (Profile::Raid0, Profile::Raid1, 3),
        (Profile::Raid1, Profile::Raid1, 2),
        (Profile::Raid5, Profile::Raid1, 3),
    ];
    for (profile, metadata, devices) in shapes {
        let mut anew = 0;
        for steps in 0..90 {
            let what = format!("{profile:?}, {steps} steps");
            let (mut world, v) = pool_of(steps, profile, metadata, devices, None);
            world.may_lose_caches = profile.facts().tolerated_failures == 0;
            world.run(v, WRITE, 0, 4 * MIB).unwrap();
            world.run(v, Op::Flush, 0, 0).unwrap();
            for at in [0, 3 * MIB, 6 * MIB, 9 * MIB] {
                world.submit(0, v, WRITE, at, MIB, Content::Unsaid);
            }
            (0..steps / 3).take_while(|_| world.step()).count();
            world.submit(0, v, Op::Flush, 0, 0, Content::Unsaid);
            (0..steps).take_while(|_| world.step()).count();
            let device = DeviceId(1 + (steps % devices as u64) as u32);
            let trouble = Trouble::Pulled { since: 0, until: 0 }.later(world.now());
            world.faults.0.push(Fault { device: device.0, trouble });
            let Some(found) = world.reopens(device) else { continue };
            anew += 1;
            let online = Command::OnlineDevice { device, found: Some(found) };
            // Something was on its way there that is nowhere else, so that the engine has missed it: the pool is opened again.
            if world.control(online).is_err() {
                assert!(world.engine().is_suspended() && profile.facts().tolerated_failures == 0, "{what}");
                world.resume(Crash::Power).unwrap();
            }
            world.run_until_quiet();
            let failed = (0..4).take_while(|_| world.run(v, Op::Flush, 0, 0).is_err()).count();
            assert!(failed < 3, "{what}: flushes fail and fail");
            world.may_lose_caches = false;
            world.run(v, WRITE, 16 * MIB, MIB).unwrap_or_else(|e| panic!("{what}: {e:?}"));
            assert_eq!(world.run(v, Op::Flush, 0, 0), Ok(()), "{what}");
            world.run_until_quiet();
            assert_eq!(device_state(&world, device.0), DeviceState::Online, "{what}");
            world.crash(Crash::Power);
            world.open().unwrap();
            all_is_well(&mut world);
        }
        assert!(anew > 60, "{profile:?}: {anew}");
    }
}

/// Pulled with something that nobody had flushed and no other member has: what others have goes on, and the next flush tells of it, once.
#[test]
fn a_pulled_member_that_is_needed_is_not_the_end_of_its_pool() {
    for seed in 0..24 {
        let (mut world, v) = pool_of(seed, Profile::Raid0, Profile::Raid1c3, 3, None);
        world.may_lose_caches = true;
        world.run(v, WRITE, 0, 4 * MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run(v, WRITE, 0, MIB).unwrap();
        let device = DeviceId(1 + (seed % 3) as u32);
        let trouble = Trouble::Pulled { since: 0, until: 0 }.later(world.now());
        world.faults.0.push(Fault { device: device.0, trouble });
        for op in [Op::Read, WRITE] {
            let fine = (0..64).filter(|i| world.run(v, op, i * UNIT, UNIT).is_ok()).count();
            assert!((42..=43).contains(&fine), "seed {seed}: {fine} of 64 with two of three members");
        }
        assert!(!world.engine().is_suspended());
        assert_eq!(device_state(&world, device.0), DeviceState::Missing, "seed {seed}");
        let flushes = |world: &mut World| (0..3).map(|_| world.run(v, Op::Flush, 0, 0).is_ok()).collect::<Vec<_>>();
        let told = [false, true, true];
        if seed % 2 == 0 {
            assert_eq!(flushes(&mut world), told, "seed {seed}: something may go with its cache");
        }
        world.oracle.cache_lost();
        assert!(world.comes_back(device));
        world.control(Command::OnlineDevice { device, found: None }).unwrap();
        world.run_until_quiet();
        if seed % 2 == 1 {
            assert_eq!(flushes(&mut world), told, "seed {seed}: it may have gone");
        }
        world.may_lose_caches = false;
        assert_eq!(world.run(v, Op::Read, 0, 4 * MIB), Ok(()), "seed {seed}");
        assert_eq!(device_state(&world, device.0), DeviceState::Online, "seed {seed}");
        world.crash(Crash::Power);
        world.open().unwrap();
        all_is_well(&mut world);
    }
}
