//! Blocks that nobody has any more when a member is replaced: they are lost, nothing else is, and the member leaves.

use braid_core::chunk::{Chunk, Column};
use braid_core::control::{Command, VolumeClass};
use braid_core::request::{DeviceOp, Dispatch, Event, Op, RequestError};
use braid_core::scrub::State;
use braid_core::units::{DeviceId, KIB, MIB, UNIT, VolumeId};
use braid_core::{ChunkType, Profile, Slip};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::{Crash, Rng, World};

use super::WRITE;
use crate::common::{all_answered_well, reopen, scrub, shape};

const BLOCK: u64 = 4096;
/// Bytes of the volume that are written.
const LEN: u64 = 12 * MIB;
/// Where a block goes bad.
const BAD: u64 = 5 * MIB + 3 * BLOCK;

/// A pool that was closed with content and opened again, and one member more that holds nothing.
fn pool(devices: usize, profile: Profile, checksum: &str) -> (World, VolumeId, DeviceId) {
    let shapes = vec![shape(96); devices];
    let set = [("checksum", checksum)];
    let mut world = World::with_pool(1, &shapes, profile, profile.system(), &set);
    let v = world.volume("v", 1 << 30, VolumeClass::Data);
    for at in (0..LEN).step_by(MIB as usize) {
        world.run(v, WRITE, at, MIB).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    reopen(&mut world);
    let by = world.engine().pool().next_device_id();
    let tag = world.add_disk(&shape(96));
    world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
    world.events.clear();
    (world, v, by)
}

/// A block cannot be read until it is written again.
fn go_bad(world: &mut World, (device, place): (DeviceId, u64)) {
    let trouble = Trouble::Latent { since: world.now(), from: place, to: place + BLOCK };
    world.faults.0.push(Fault { device: device.0, trouble });
}

/// The lane of a row that has a block of the volume goes bad on so many members besides the one that leaves: what is lost of the
/// volume, and who else has a part of the row.
fn lose_lane(world: &mut World, v: VolumeId, count: usize, leaves: DeviceId) -> (Vec<u64>, Vec<DeviceId>) {
    let (device, place) = world.places(v, BAD)[0];
    let holds = |c: &&Chunk| {
        c.columns.iter().any(|col| col.device == device && (col.offset..col.offset + c.stripe).contains(&place))
    };
    let columns = world.engine().pool().chunks().find(holds).unwrap().columns.clone();
    let within = place - columns.iter().find(|c| c.device == device).unwrap().offset;
    let others: Vec<Column> = columns.iter().filter(|c| c.device != leaves).copied().collect();
    let gone: Vec<DeviceId> = others.iter().take(count).map(|c| c.device).chain([leaves]).collect();
    let is_lost = |at: &u64| {
        let (device, place) = world.places(v, *at)[0];
        let column = columns.iter().find(|c| c.device == device).unwrap();
        gone.contains(&device) && place.wrapping_sub(column.offset) == within
    };
    let lost: Vec<u64> = (0..LEN).step_by(BLOCK as usize).filter(is_lost).collect();
    assert!((1..=gone.len()).contains(&lost.len()), "{lost:?}");
    others.iter().take(count).for_each(|c| go_bad(world, (c.device, c.offset + within)));
    (lost, others.into_iter().map(|c| c.device).collect())
}

fn is_over(world: &World) -> bool {
    world.engine().pool().job.as_ref().is_some_and(|job| job.state != State::Running)
}

/// Runs a replace to its end, with writers elsewhere.
fn replace(world: &mut World, v: VolumeId, device: DeviceId, by: DeviceId) {
    world.control(Command::ReplaceDevice { device, by }).unwrap();
    for i in 0..300 {
        world.run(v, WRITE, 100 * MIB + i % 32 * 68 * KIB, 20 * KIB).unwrap();
    }
    world.run_until(is_over);
    world.run_until_quiet();
}

/// First byte of each block that cannot be read, by reading everything.
fn unreadable(world: &mut World, v: VolumeId) -> Vec<u64> {
    let mut fails = |at: &u64, len| world.run(v, Op::Read, *at, len) == Err(RequestError::Io);
    let units: Vec<u64> = (0..LEN).step_by(UNIT as usize).filter(|at| fails(at, UNIT)).collect();
    let blocks = units.into_iter().flat_map(|unit| (unit..unit + UNIT).step_by(BLOCK as usize));
    blocks.filter(|at| fails(at, BLOCK)).collect()
}

fn listed(world: &World) -> Vec<u64> {
    let lost = world.engine().report().lost;
    lost.into_iter().flat_map(|(_, at, len)| (at..at + len).step_by(BLOCK as usize)).collect()
}

/// What is lost is lost after a restart and a power cut too, told once, and is well again when it is written or discarded.
fn is_lost_until_written(world: &mut World, v: VolumeId, lost: &[u64], what: &str) {
    let told = world.events.iter().filter(|e| matches!(e, Event::BlocksLost { .. })).count();
    assert_eq!(told, lost.len(), "{what}: {:?}", world.events);
    for _ in 0..2 {
        assert_eq!(unreadable(world, v), lost, "{what}");
        assert_eq!(listed(world), lost, "{what}");
        scrub(world);
        assert_eq!(listed(world), lost, "{what}: after a scrub");
        world.check_copies(what).unwrap();
        reopen(world);
        world.crash(Crash::Power);
        world.open().unwrap();
        world.run_until_quiet();
    }
    for (i, &at) in lost.iter().enumerate() {
        assert_eq!(world.run(v, WRITE, at, 512), Err(RequestError::Io), "{what}: the rest of the block is not known");
        match i % 3 {
            0 => world.run(v, WRITE, at, BLOCK).unwrap(),
            1 => world.run(v, Op::Discard, at, BLOCK).unwrap(),
            _ => world.run(v, Op::WriteZeroes { fua: true, no_hole: true }, at, BLOCK).unwrap(),
        }
    }
    assert_eq!((unreadable(world, v), listed(world)), (vec![], vec![]), "{what}: written again");
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.crash(Crash::Power);
    world.open().unwrap();
    world.run_until_quiet();
    assert_eq!((unreadable(world, v), listed(world)), (vec![], vec![]), "{what}: and flushed");
    world.answers.clear();
    all_answered_well(world);
    world.check_copies(what).unwrap();
}

#[test]
fn a_block_that_no_copy_has_does_not_keep_a_member() {
    for (profile, is_gone) in [(Profile::Single, false), (Profile::Raid1, false), (Profile::Raid1, true)] {
        for checksum in ["crc32c", "none"] {
            let what = format!("{} {checksum} gone {is_gone}", profile.name());
            let (mut world, v, by) = pool(2, profile, checksum);
            let places = world.places(v, BAD);
            let leaves = places[0].0;
            if is_gone {
                world.control(Command::OfflineDevice { device: leaves }).unwrap();
            }
            for &place in places.iter().filter(|(device, _)| !is_gone || *device != leaves) {
                go_bad(&mut world, place);
            }
            let data = |w: &World| {
                let chunks = w.engine().pool().chunks().filter(|c| c.kind == ChunkType::Data);
                chunks.map(|c| c.id).collect::<Vec<_>>()
            };
            let before = data(&world);
            replace(&mut world, v, leaves, by);
            let job = world.engine().pool().job.clone().unwrap();
            assert_eq!((job.state, job.lost), (State::Finished, 0), "{what}");
            assert!(job.done.abs_diff(job.total) <= job.total / 10, "{what}: {job:?}");
            assert!(world.engine().pool().device(leaves).is_none(), "{what}: it left");
            assert!(data(&world).starts_with(&before), "{what}: column by column");
            is_lost_until_written(&mut world, v, &[BAD], &what);
        }
    }
}

/// Lanes of a row that cannot be made: the data in them is lost, and the row has parity again.
#[test]
fn a_row_that_cannot_be_made_whole_loses_what_is_missing() {
    for (profile, checksum) in [(Profile::Raid5, "crc32c"), (Profile::Raid6, "crc32c"), (Profile::Raid5, "none")] {
        // By who leaves: strips of data and of parity are lost.
        for leaves in 1..=5 {
            let what = format!("{} {checksum} without {leaves}", profile.name());
            let (mut world, v, by) = pool(5, profile, checksum);
            let leaves = DeviceId(leaves);
            world.control(Command::OfflineDevice { device: leaves }).unwrap();
            // The same lane of as many others as there is parity.
            let (lost, others) = lose_lane(&mut world, v, profile.facts().parity, leaves);
            let rows =
                |w: &World| w.engine().pool().chunks().filter(|c| c.rows() > 0).map(|c| c.id).collect::<Vec<_>>();
            let before = rows(&world);
            replace(&mut world, v, leaves, by);
            let job = world.engine().pool().job.clone().unwrap();
            assert_eq!((job.state, job.lost), (State::Finished, 0), "{what}");
            assert!(world.engine().pool().device(leaves).is_none(), "{what}: it left");
            assert!(rows(&world).starts_with(&before), "{what}: column by column");
            assert_eq!(world.wrong_parity(), [], "{what}");
            is_lost_until_written(&mut world, v, &lost, &what);
            // Any of them can be missed now.
            for device in others.into_iter().take(profile.facts().parity) {
                world.control(Command::OfflineDevice { device }).unwrap();
            }
            all_answered_well(&mut world);
        }
    }
}

/// Blocks that cannot be read once a member is back that was away while another one was replaced, and those here had none.
fn lost_beside_one_that_was_away(slip: Option<Slip>) -> Vec<u64> {
    let (mut world, v, by) = pool(3, Profile::Raid1c3, "crc32c");
    world.slip = slip;
    reopen(&mut world);
    let places = world.places(v, BAD);
    for &place in &places[..2] {
        go_bad(&mut world, place);
    }
    world.control(Command::OfflineDevice { device: places[2].0 }).unwrap();
    replace(&mut world, v, places[0].0, by);
    world.control(Command::OnlineDevice { device: places[2].0, found: None }).unwrap();
    world.run_until_quiet();
    unreadable(&mut world, v)
}

/// Who is not here and does not leave may have it.
#[test]
fn what_a_member_that_is_away_may_have_is_not_given_up() {
    assert_eq!(lost_beside_one_that_was_away(None), Vec::<u64>::new());
    assert_eq!(lost_beside_one_that_was_away(Some(Slip::LostUnasked)), [BAD]);
}

/// A device that fails everywhere is not one with bad blocks.
#[test]
fn a_device_that_fails_takes_nothing_along() {
    for profile in [Profile::Single, Profile::Raid5] {
        let (mut world, v, by) = pool(if profile == Profile::Single { 1 } else { 5 }, profile, "none");
        if profile == Profile::Raid5 {
            world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap();
        }
        let fails = if profile == Profile::Single { 1 } else { 4 };
        let trouble = Trouble::reads_fail(3 * MIB..96 * MIB, u64::MAX);
        world.faults.0.push(Fault { device: fails, trouble });
        replace(&mut world, v, DeviceId(1), by);
        let state = world.engine().pool().job.as_ref().unwrap().state;
        assert!(matches!(state, State::Paused | State::Canceled), "{profile:?} {state:?}");
        world.faults.0.clear();
        assert_eq!(unreadable(&mut world, v), Vec::<u64>::new(), "{profile:?}");
    }
}

/// A sector that takes no zeros either costs its chunk, whose units go elsewhere, and not the pool.
#[test]
fn units_leave_a_row_with_a_sector_that_cannot_be_written() {
    let (mut world, v, by) = pool(5, Profile::Raid5, "crc32c");
    let leaves = DeviceId(1);
    world.control(Command::OfflineDevice { device: leaves }).unwrap();
    let (lost, others) = lose_lane(&mut world, v, 1, leaves);
    let Trouble::Latent { from, to, .. } = world.faults.0[0].trouble else { panic!("{:?}", world.faults) };
    let dead = Trouble::Error { read: true, write: true, flush: false, from, to, percent: 100, left: u64::MAX };
    world.faults.0 = vec![Fault { device: others[0].0, trouble: dead }];
    replace(&mut world, v, leaves, by);
    assert_eq!(world.engine().pool().job.as_ref().unwrap().state, State::Finished);
    assert!(!world.engine().is_suspended() && world.engine().pool().device(leaves).is_none());
    assert_eq!(unreadable(&mut world, v), lost);
    reopen(&mut world);
    world.run(v, WRITE, 0, MIB).unwrap();
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}

/// A pool of which a member is to leave, out of use where others have copies, and what nobody has then.
struct Drawn {
    world: World,
    v: VolumeId,
    by: DeviceId,
    leaves: DeviceId,
    lost: Vec<u64>,
}

fn drawn(rng: &mut Rng, profile: Profile, slip: Option<Slip>) -> Drawn {
    let parity = profile.facts().parity;
    let checksum = if rng.percent(50) { "crc32c" } else { "none" };
    let (mut world, v, by) = pool(if parity > 0 { 5 } else { 2 }, profile, checksum);
    world.slip = slip;
    reopen(&mut world);
    let leaves = if parity > 0 { DeviceId(rng.between(1, 5) as u32) } else { world.places(v, BAD)[0].0 };
    if profile != Profile::Single {
        world.control(Command::OfflineDevice { device: leaves }).unwrap();
    }
    let lost = match parity {
        0 => {
            let places = world.places(v, BAD);
            places.into_iter().for_each(|place| go_bad(&mut world, place));
            vec![BAD]
        }
        parity => lose_lane(&mut world, v, parity, leaves).0,
    };
    Drawn { world, v, by, leaves, lost }
}

/// Reads of blocks, and writes of parts of them, are under way when they are given up.
fn lost_beside_readers(seed: u64, slip: Option<Slip>) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let profile = *rng.pick(&[Profile::Raid1, Profile::Raid5, Profile::Raid6]);
    let Drawn { mut world, v, by, leaves, lost } = drawn(&mut rng, profile, slip);
    let is_latent = |f: &Fault| if let Trouble::Latent { from, .. } = f.trouble { Some(from) } else { None };
    let bad: Vec<u64> = world.faults.0.iter().filter_map(is_latent).collect();
    world.control(Command::ReplaceDevice { device: leaves, by }).unwrap();
    world.keep_dispatched = true;
    let mut asked = 0;
    while !is_over(&world) && world.step() {
        let is_bad =
            |d: Dispatch| d.op == DeviceOp::Read && bad.iter().any(|at| (d.offset..d.offset + d.len).contains(at));
        // Whenever somebody wants a bad block somebody else wants it too; at each of the tries.
        if world.dispatched.drain(..).any(is_bad) && asked < 6 * (1 + world.now() / 4_000_000_000 % 16) {
            asked += 1;
            let at = *rng.pick(&lost);
            match rng.percent(50) {
                true => world.submit(1, v, Op::Read, at, BLOCK, Default::default()),
                false => world.submit(1, v, WRITE, at + 1024, 512, Default::default()),
            };
            world.drain();
        }
    }
    world.keep_dispatched = false;
    world.run_until_quiet();
    let unreadable = unreadable(&mut world, v);
    match world.wrong.first() {
        Some(wrong) => return Err(wrong.to_string()),
        None if unreadable != lost => return Err(format!("{unreadable:?} cannot be read, lost are {lost:?}")),
        None if world.engine().pool().device(leaves).is_some() => return Err("it stays".into()),
        None => {}
    }
    world.check_quiet(true);
    world.check_copies("in the end")
}

/// They fail, or had them.
#[test]
fn who_reads_what_is_given_up_meanwhile_gets_no_zeros() {
    for seed in 0..60 {
        lost_beside_readers(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!((0..60).any(|seed| lost_beside_readers(seed, Some(Slip::LostReadersAnswered)).is_err()));
}

/// A member with a bad block beside it is replaced under load, and the power goes at some moment of that.
fn cut_beside_loss(seed: u64, slip: Option<Slip>) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let profile = *rng.pick(&[Profile::Single, Profile::Raid1, Profile::Raid5, Profile::Raid5, Profile::Raid6]);
    let Drawn { mut world, v, by, leaves, lost } = drawn(&mut rng, profile, slip);
    world.control(Command::ReplaceDevice { device: leaves, by }).unwrap();
    // Every moment from the last try on is as likely, and clients are there as well.
    let is_last = |w: &World| w.events.iter().any(|e| matches!(e, Event::BlocksLost { .. })) || is_over(w);
    if rng.percent(70) {
        world.run_until(is_last);
    }
    for _ in 0..rng.between(0, 30) {
        let at = if rng.percent(30) { *rng.pick(&lost) } else { rng.below(LEN / BLOCK - 32) * BLOCK };
        let op = *rng.pick(&[WRITE, WRITE, Op::Write { fua: true }, Op::Discard, Op::Read]);
        world.submit(1, v, op, at, *rng.pick(&[1, 3, 20]) * BLOCK, Default::default());
        world.drain();
        for _ in 0..rng.below(40) {
            world.step();
        }
    }
    world.crash(Crash::Power);
    world.open()?;
    world.verify();
    world.run_until(is_over);
    world.run_until_quiet();
    let (unreadable, listed) = (unreadable(&mut world, v), listed(&world));
    if let Some(wrong) = world.wrong.first() {
        return Err(wrong.to_string());
    }
    if let Some(at) = unreadable.iter().find(|at| !lost.contains(at) || !listed.contains(at)) {
        return Err(format!("{at} cannot be read; lost {lost:?}, listed {listed:?}"));
    }
    if world.engine().pool().device(leaves).is_some() {
        return Err(format!("it stays: {:?}", world.engine().pool().job));
    }
    world.check_copies("after the job")
}

#[test]
fn a_power_cut_beside_what_is_given_up_costs_nothing_else() {
    for seed in 0..80 {
        cut_beside_loss(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    for slip in [Slip::LostIsHole, Slip::LostNotSaid] {
        assert!((0..100).any(|seed| cut_beside_loss(seed, Some(slip)).is_err()), "{slip:?} is caught");
    }
}
