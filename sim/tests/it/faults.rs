//! Each fault does what its name says, and the engine what it promises for it.

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::profile::column_of;
use braid_core::request::{Content, DeviceOp, Event, Op, RequestError};
use braid_core::scrub::State;
use braid_core::units::{BLOCK, DeviceId, MIB, STRIP, VolumeId};
use braid_core::{ChunkType, DeviceState};
use braid_sim::device::Model;
use braid_sim::oracle::Loses;
use braid_sim::world::Shape;
use braid_sim::{Crash, Ends, Fault, Trouble, World};

use crate::common::device_state;

const WRITE: Op = Op::Write { fua: false };
const SECOND: u64 = 1_000_000_000;

/// Disks, and a volume whose first MiB is written and flushed.
fn pool(profile: Profile, devices: usize) -> (World, VolumeId) {
    let model = Model::shipped("sata-ssd").expect("it comes with the crate");
    let shapes = vec![Shape { size: 200 * MIB, model, class: "ssd" }; devices];
    let mut world = World::with_pool(1, &shapes, profile, profile.system(), &[]);
    let v = world.volume("v", 64 * MIB, VolumeClass::Data);
    world.run(v, WRITE, 0, MIB).expect("a healthy pool");
    world.run(v, Op::Flush, 0, 0).expect("a healthy pool");
    world.run_until_quiet();
    (world, v)
}

fn befalls(world: &mut World, device: u32, trouble: Trouble) {
    let trouble = trouble.later(world.now());
    world.faults.0.push(Fault { device, trouble });
}

/// The range on a device that holds the first MiB of the volume.
fn range(world: &World, v: VolumeId) -> (u32, u64, u64) {
    let (device, from) = world.places(v, 0)[0];
    (device.0, from, from + MIB)
}

#[test]
fn a_latent_sector_is_an_error_until_it_is_written_again() {
    let (mut world, v) = pool(Profile::Single, 1);
    let (device, from, to) = range(&world, v);
    befalls(&mut world, device, Trouble::Latent { since: 0, from, to });
    assert_eq!(world.run(v, Op::Read, 0, BLOCK), Err(RequestError::Io));
    assert_eq!(world.run(v, WRITE, 0, BLOCK), Ok(()));
    assert_eq!(world.run(v, Op::Read, 0, BLOCK), Ok(()), "it was written again");
    assert_eq!(world.run(v, Op::Read, BLOCK, BLOCK), Err(RequestError::Io), "and its neighbour was not");
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    // The other copy has it all.
    let (mut world, v) = pool(Profile::Raid1, 2);
    let (device, from, to) = range(&world, v);
    befalls(&mut world, device, Trouble::Latent { since: 0, from, to });
    for at in (0..MIB).step_by(BLOCK as usize) {
        assert_eq!(world.run(v, Op::Read, at, BLOCK), Ok(()));
    }
    assert_eq!(device_state(&world, device), DeviceState::Online, "a read that fails is no reason to give up a member");
}

/// A write that can only be answered with an error is not sent: on disk it would leave copies unlike, or a place unlike its checksum.
#[test]
fn where_the_log_cannot_be_written_nothing_else_is() {
    let (mut world, v) = pool(Profile::Dup, 1);
    // What is marked needs no log to be written over.
    world.run(v, WRITE, 0, 64 * 1024).unwrap();
    befalls(&mut world, 1, Trouble::writes_fail(0..u64::MAX >> 1, u64::MAX));
    world.control(Command::RenameVolume { volume: v, name: "w".into() }).unwrap_err();
    assert!(world.engine().is_suspended());
    world.keep_dispatched = true;
    world.dispatched.clear();
    for op in [WRITE, Op::Write { fua: true }, Op::Discard, Op::WriteZeroes { no_hole: true, fua: false }] {
        assert_eq!(world.run(v, op, 0, 64 * 1024), Err(RequestError::Io), "{op:?}");
    }
    assert_eq!(world.run(v, Op::Read, 0, MIB), Ok(()));
    assert!(world.dispatched.iter().all(|d| d.op == DeviceOp::Read), "{:?}", world.dispatched);
}

/// Who was answered before the disks went, and flushes when they are back, takes nothing for stable that is gone.
#[test]
fn a_flush_after_disks_came_back_without_their_caches_fails_once() {
    let (mut world, v) = pool(Profile::Raid1, 2);
    world.control(Command::CreateVolume { name: "other".into(), size: 1 << 20, class: VolumeClass::Data }).unwrap();
    let other = world.engine().pool().volumes().map(|v| v.id).find(|id| *id != v).unwrap();
    world.run(v, WRITE, 0, 64 * 1024).unwrap();
    for device in 1..3 {
        befalls(&mut world, device, Trouble::Pulled { since: 0, until: u64::MAX >> 1 });
    }
    world.control(Command::RenameVolume { volume: v, name: "w".into() }).unwrap_err();
    assert!(world.engine().is_suspended());
    world.mend();
    world.resume(Crash::Power).unwrap();
    for volume in [v, other] {
        assert_eq!(world.run(volume, Op::Flush, 0, 0), Err(RequestError::Io), "{volume}");
        assert_eq!(world.run(volume, Op::Flush, 0, 0), Ok(()), "{volume}");
    }
    world.run(v, WRITE, 0, 64 * 1024).unwrap();
    world.verify();
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}

/// A member in use that was pulled and is found anew, before any command went there: the host knows by its dead file.
#[test]
fn a_member_in_use_that_was_connected_anew_lost_what_it_got_since_the_last_flush() {
    for (profile, members) in [(Profile::Raid0, 2), (Profile::Raid1, 2)] {
        let (mut world, v) = pool(profile, members);
        world.may_lose_caches = profile == Profile::Raid0;
        world.run(v, WRITE, 0, MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run(v, WRITE, 0, MIB).unwrap();
        world.faults.0.push(Fault { device: 1, trouble: Trouble::Pulled { since: 0, until: 0 }.later(world.now()) });
        let found = world.reopens(DeviceId(1));
        assert!(found.is_some());
        world.control(Command::OnlineDevice { device: DeviceId(1), found }).unwrap();
        let is_loss = profile == Profile::Raid0;
        assert_eq!(world.run(v, Op::Flush, 0, 0).is_err(), is_loss, "{profile:?}");
        assert_eq!(world.run(v, Op::Flush, 0, 0), Ok(()));
        world.run_until_quiet();
        world.verify();
        assert!(world.wrong.is_empty(), "{profile:?}: {:?}", world.wrong);
        assert_eq!(device_state(&world, 1), DeviceState::Online);
    }
}

#[test]
fn a_torn_write_fails_and_leaves_old_and_new_sectors() {
    let (mut world, v) = pool(Profile::Single, 1);
    befalls(&mut world, 1, Trouble::Torn { percent: 100, left: 1 });
    let (_, at) = world.places(v, 0)[0];
    let stamps = |world: &World| {
        let mut stamps = vec![0; 2048];
        world.disks[0].read_stamps(at, &mut stamps);
        stamps
    };
    let before = stamps(&world);
    assert_eq!(world.run(v, WRITE, 0, MIB), Err(RequestError::Io));
    let changed = before.iter().zip(stamps(&world)).filter(|(a, b)| *a != b).count();
    assert!((512..1536).contains(&changed), "{changed} of 2048 sectors are new");
    world.verify();
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    // With a second copy the client notices nothing, and the torn one is not read again.
    let (mut world, v) = pool(Profile::Raid1, 2);
    befalls(&mut world, 1, Trouble::Torn { percent: 100, left: 1 });
    assert_eq!(world.run(v, WRITE, 0, MIB), Ok(()));
    assert_eq!(device_state(&world, 1), DeviceState::Suspect);
    world.run_until_quiet();
    assert_eq!((device_state(&world, 1), world.unequal()), (DeviceState::Online, Vec::new()), "it was caught up");
}

/// Without checksums nobody knows which copy is right; a scrub says where they differ, and only there.
#[test]
fn a_misdirected_write_is_a_difference_that_a_scrub_finds() {
    let (mut world, v) = pool(Profile::Raid1, 2);
    // The region is marked by now, so the next write that the member gets is the block's.
    assert_eq!(world.run(v, WRITE, 4 * BLOCK, BLOCK), Ok(()));
    befalls(&mut world, 1, Trouble::Misdirected { percent: 100, left: 1 });
    assert_eq!(world.run(v, WRITE, 4 * BLOCK, BLOCK), Ok(()), "the device says that it is done");
    world.run_until_quiet();
    let unequal = world.unequal();
    assert!(unequal.contains(&(v, 4 * BLOCK)), "{unequal:?}");
    for _ in 0..8 {
        world.verify();
    }
    assert!(world.wrong.is_empty(), "the oracle knows: {:?}", world.wrong);
    world.events.clear();
    world.control(Command::ScrubStart).expect("nothing is in the way");
    world.run_until(|w| w.engine().report().scrub.scrub.state != State::Running);
    let told = world.events.iter().filter_map(|event| match *event {
        Event::ScrubDifference { volume: Some(volume), offset, len, .. } => Some((volume, offset, len)),
        _ => None,
    });
    let told: Vec<_> = told.flat_map(|(v, at, len)| (0..len / BLOCK).map(move |i| (v, at + i * BLOCK))).collect();
    assert_eq!(told, unequal);
    // Written again, all is well, and the oracle insists.
    for (volume, at) in unequal {
        assert_eq!(world.run(volume, WRITE, at, BLOCK), Ok(()));
    }
    assert_eq!(world.unequal(), []);
    let (device, at) = world.places(v, 4 * BLOCK)[0];
    world.disks[device.index() - 1].corrupt(at, 1);
    (0..8).for_each(|_| world.verify());
    assert!(!world.wrong.is_empty(), "what nobody misdirected is wrong again");
}

/// Without checksums nobody knows that parity went elsewhere; what is made of it is wrong, and nothing else may be.
#[test]
fn what_is_made_of_misdirected_parity_may_be_wrong_and_nothing_beside_it() {
    let (mut world, v) = pool(Profile::Raid5, 3);
    let columns = world.engine().pool().chunks().find(|c| c.rows() > 0).expect("rows are written").columns.clone();
    let device = |row: u64, member: usize| columns[column_of(Profile::Raid5, 3, row, member)].device;
    // Rows that hold nothing yet are written without a journal; the first of them marks their region.
    let first = |row: u64| row * 2 * STRIP;
    assert_eq!(world.run(v, WRITE, first(8), 2 * STRIP), Ok(()));
    befalls(&mut world, device(9, 2).0, Trouble::Misdirected { percent: 100, left: 1 });
    assert_eq!(world.run(v, WRITE, first(9), 2 * STRIP), Ok(()), "the device says that it is done");
    world.run_until_quiet();
    assert_eq!(world.wrong_parity().iter().filter(|(_, row, _)| *row == 9).count(), 1);
    let gone = device(9, 0);
    world.control(Command::OfflineDevice { device: gone }).expect("parity stands in");
    let wrong = |world: &mut World, at| {
        assert_eq!(world.run(v, Op::Read, at, STRIP), Ok(()));
        world.wrong.len()
    };
    assert_eq!((wrong(&mut world, first(9)), wrong(&mut world, first(9) + STRIP)), (0, 0), "the oracle knows");
    // What nobody misdirected is made of what stands there.
    let strips = (0..8).flat_map(|row| [(row, 0), (row, 1)]);
    let (row, member) = strips.into_iter().find(|&(row, member)| device(row, member) == gone).expect("they take turns");
    let column = columns.iter().find(|c| c.device != gone).expect("two are left");
    world.disks[column.device.index() - 1].corrupt(column.offset + row * STRIP, 1);
    assert!(wrong(&mut world, first(row) + member as u64 * STRIP) > 0);
}

#[test]
fn a_stuck_device_holds_up_who_needs_it_and_nobody_else() {
    // Single: each device has chunks of its own, and the volumes of other devices go on.
    let (mut world, v) = pool(Profile::Raid1, 2);
    befalls(&mut world, 2, Trouble::Stuck { since: 0, until: 30 * SECOND, ends: Ends::Late });
    let begun = world.now();
    let write = world.submit(0, v, WRITE, 0, BLOCK, Content::Unsaid);
    for at in (0..MIB).step_by(BLOCK as usize) {
        world.submit(1, v, Op::Read, at, BLOCK, Content::Unsaid);
    }
    world.run_until(|w| w.now() > begun + SECOND);
    let answered = world.answers.len();
    assert!(answered > 100 && world.answers.iter().all(|a| a.tag != write), "{answered} of 256 reads");
    world.run_until_answered();
    assert!(world.now() >= begun + 30 * SECOND && world.answers.iter().all(|a| a.result.is_ok()));
    assert_eq!(device_state(&world, 2), DeviceState::Online, "slow is not wrong");
    // The driver gives up: from then on the pool does without.
    let (mut world, v) = pool(Profile::Raid1, 2);
    befalls(&mut world, 2, Trouble::Stuck { since: 0, until: 30 * SECOND, ends: Ends::Gone });
    assert_eq!(world.run(v, WRITE, 0, BLOCK), Ok(()));
    assert_eq!(device_state(&world, 2), DeviceState::Missing);
    // Nobody ever gives up: braid has no clock of its own for that, and the write waits.
    let (mut world, v) = pool(Profile::Raid1, 2);
    befalls(&mut world, 2, Trouble::Stuck { since: 0, until: 0, ends: Ends::Never });
    world.submit(0, v, WRITE, 0, BLOCK, Content::Unsaid);
    let begun = world.now();
    world.run_until(|w| w.outstanding() == 0 || w.now() > begun + 3600 * SECOND);
    assert_eq!((world.outstanding(), device_state(&world, 2)), (1, DeviceState::Online));
}

#[test]
fn a_pulled_device_loses_its_cache_and_is_found_again_by_an_opening() {
    let (mut world, v) = pool(Profile::Single, 1);
    let chunks = world.chunks(ChunkType::Data).len();
    befalls(&mut world, 1, Trouble::Pulled { since: 1, until: SECOND });
    assert_eq!(world.run(v, WRITE, 0, BLOCK), Err(RequestError::Io));
    world.run_until_quiet();
    world.crash(Crash::Process);
    world.oracle.crash(Loses::Unflushed);
    if world.now() < SECOND {
        let why = world.open().expect_err("it is out");
        assert!(why.contains("no member"), "{why}");
    }
    world.mend();
    world.open().expect("it is back");
    assert_eq!(world.chunks(ChunkType::Data).len(), chunks);
    world.verify();
    world.run_until_quiet();
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    // One of two: what it missed it must not show when it returns.
    let (mut world, v) = pool(Profile::Raid1, 2);
    assert_eq!(world.run(v, WRITE, 0, BLOCK), Ok(()), "in both caches");
    befalls(&mut world, 2, Trouble::Pulled { since: 0, until: SECOND });
    assert_eq!(world.run(v, WRITE, BLOCK, BLOCK), Ok(()));
    assert_eq!(device_state(&world, 2), DeviceState::Missing);
    world.crash(Crash::Process);
    world.mend();
    world.open().expect("both are there");
    assert_eq!(device_state(&world, 2), DeviceState::Suspect, "it is known to be stale");
    (0..8).for_each(|_| world.verify());
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}
