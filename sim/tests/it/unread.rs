//! What a crash left in doubt and nobody could read at once: it stays in doubt, since an error may pass.

use braid_core::control::{Command, VolumeClass};
use braid_core::job::Choice;
use braid_core::regions::REGION;
use braid_core::report::ResyncReport;
use braid_core::request::{Content, Op, RequestError};
use braid_core::units::{BLOCK, DeviceId, MIB, UNIT, VolumeId};
use braid_core::{ChunkType, Profile, Slip};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::{Crash, World};

use crate::common::{all_is_well, reopen, scrub, shape};
use crate::scrub::WRITE;

/// Content of a block came in place, and its checksum is not at home.
fn written(profile: Profile, devices: usize, at: u64, slip: Option<Slip>) -> (World, VolumeId) {
    let metadata = if devices > 1 { Profile::Raid1 } else { Profile::Single };
    let set = [("checksum", "crc32c")];
    let mut world = World::with_pool(1, &vec![shape(256); devices], profile, metadata, &set);
    let v = world.volume("v", 1 << 30, VolumeClass::Auto);
    world.slip = slip;
    world.run(v, WRITE, 0, MIB).unwrap();
    reopen(&mut world);
    world.run(v, WRITE, at, BLOCK).unwrap();
    (world, v)
}

/// What came cannot be read when the pool opens, nor what could stand in for it.
fn written_and_unreadable(profile: Profile, devices: usize, at: u64, slip: Option<Slip>) -> (World, VolumeId) {
    let (mut world, v) = written(profile, devices, at, slip);
    // The same block of all strips, where it is in a row.
    let pool = world.engine().pool();
    let chunk = pool.chunks().find(|c| c.kind == ChunkType::Data).expect("it was written");
    let rows = chunk.columns.iter().filter(|_| chunk.rows() > 0).map(|c| (c.device, c.offset + at));
    for (device, place) in rows.chain(world.places(v, at)).collect::<Vec<_>>() {
        let trouble = Trouble::reads_fail(place..place + BLOCK, u64::MAX);
        world.faults.0.push(Fault { device: device.0, trouble });
    }
    world.crash(Crash::Process);
    world.open().unwrap();
    (world, v)
}

const LAYOUTS: [(Profile, usize); 6] = [
    (Profile::Single, 1),
    (Profile::Dup, 1),
    (Profile::Raid1, 2),
    (Profile::Raid10, 4),
    (Profile::Raid5, 3),
    (Profile::Raid6, 4),
];

#[test]
fn what_cannot_be_read_after_a_crash_is_right_when_it_can() {
    for (profile, devices) in LAYOUTS {
        let at = 5 * BLOCK;
        let (mut world, v) = written_and_unreadable(profile, devices, at, None);
        world.run_until_quiet();
        assert_eq!(world.run(v, Op::Read, at, BLOCK), Err(RequestError::Io), "{profile:?}");
        world.run_until_quiet();
        world.faults.0.clear();
        world.run(v, Op::Read, at, BLOCK).unwrap_or_else(|_| panic!("{profile:?}: it can be read"));
        all_is_well(&mut world);
    }
}

fn resync(world: &World) -> ResyncReport {
    world.engine().report().resync
}

/// The check at the end of each run of a swarm sees an engine that gives such blocks up.
#[test]
fn blocks_that_are_there_and_not_served_are_noticed() {
    for (profile, devices) in LAYOUTS {
        for slip in [None, Some(Slip::UnreadSettled)] {
            let (mut world, _) = written_and_unreadable(profile, devices, 5 * BLOCK, slip);
            world.run_until_quiet();
            world.faults.0.clear();
            let served = world.check_served().expect("all is well again");
            assert_eq!(served.is_ok(), slip.is_none(), "{profile:?}: {served:?}");
        }
    }
}

/// Only that waits: what is beside it is decided, and held to its checksums from then on.
#[test]
fn nothing_around_it_is_in_doubt_any_more() {
    let at = 5 * BLOCK;
    let (mut world, v) = written_and_unreadable(Profile::Raid1, 2, at, None);
    world.run_until_quiet();
    let waits = ResyncReport { dirty_regions: 1, regions_left: 0, unread: 1, ..resync(&world) };
    assert_eq!(resync(&world), waits);
    assert_eq!(world.engine().report().lost, [(v, at, BLOCK)]);
    world.run(v, Op::Read, 0, at).unwrap();
    world.run(v, Op::Read, at + BLOCK, UNIT).unwrap();
    for (device, place) in world.places(v, 3 * BLOCK) {
        world.disks[device.index() - 1].corrupt(place, 1);
    }
    assert_eq!(world.run(v, Op::Read, 3 * BLOCK, BLOCK), Err(RequestError::Io));
    world.run(v, WRITE, 3 * BLOCK, BLOCK).unwrap();
    world.faults.0.clear();
    all_is_well(&mut world);
    assert_eq!((resync(&world).unread, resync(&world).dirty_regions), (0, 0));
    assert_eq!(world.engine().report().lost, []);
}

/// Nobody has to read it for that.
#[test]
fn it_is_tried_again_when_somebody_may_know_better() {
    type Again = fn(&mut World, VolumeId, u64);
    let all: [(&str, Again); 4] = [
        ("scrub", |world, _, _| scrub(world)),
        ("opening", |world, _, _| reopen(world)),
        ("write", |world, v, at| world.run(v, WRITE, at, BLOCK).unwrap()),
        ("discard", |world, v, at| world.run(v, Op::Discard, at, BLOCK).unwrap()),
    ];
    for ((profile, devices), (what, again)) in LAYOUTS.into_iter().flat_map(|l| all.map(|a| (l, a))) {
        let at = 5 * BLOCK;
        let (mut world, v) = written_and_unreadable(profile, devices, at, None);
        world.run_until_quiet();
        // Two strips of data in a row.
        let in_row = u64::from(matches!(profile, Profile::Raid5 | Profile::Raid6));
        assert_eq!(resync(&world).unread, 1 + in_row, "{profile:?}");
        world.faults.0.clear();
        again(&mut world, v, at);
        world.run_until_quiet();
        let left = if matches!(what, "write" | "discard") { in_row } else { 0 };
        assert_eq!((resync(&world).unread, resync(&world).dirty_regions), (left, left), "{profile:?}, {what}");
        all_is_well(&mut world);
        assert_eq!((resync(&world).unread, resync(&world).dirty_regions), (0, 0), "{profile:?}, {what} and read");
    }
}

/// What moves it reads it, too. Where it cannot be read it stays, and what can be read by then is not held to an old checksum.
#[test]
fn it_moves_once_it_can_be_read() {
    for (profile, devices) in LAYOUTS {
        let at = 5 * BLOCK;
        let (mut world, v) = written_and_unreadable(profile, devices, at, None);
        world.run_until_quiet();
        let all = Some(Choice::default());
        world.control(Command::Balance { data: all.clone(), metadata: None }).unwrap();
        world.run_until_quiet();
        assert_eq!(world.run(v, Op::Read, at, BLOCK), Err(RequestError::Io), "{profile:?}");
        world.faults.0.clear();
        world.control(Command::Balance { data: all, metadata: None }).unwrap();
        world.run_until_quiet();
        all_is_well(&mut world);
        assert_eq!(resync(&world).unread, 0, "{profile:?}");
    }
}

/// Marks that wait for such blocks leave room for those of writers.
#[test]
fn no_more_waits_than_half_of_the_marks() {
    let set = [("checksum", "crc32c"), ("dirty_regions", "64")];
    let mut world = World::with_pool(1, &[shape(512)], Profile::Single, Profile::Single, &set);
    let v = world.volume("v", 1 << 40, VolumeClass::Auto);
    let at = |i: u64| i * REGION;
    let bad = 40;
    (0..200).for_each(|i| world.run(v, WRITE, at(i), BLOCK).unwrap());
    reopen(&mut world);
    for i in 0..bad {
        world.run(v, WRITE, at(i), BLOCK).unwrap();
        for (device, place) in world.places(v, at(i)) {
            let trouble = Trouble::reads_fail(place..place + BLOCK, u64::MAX);
            world.faults.0.push(Fault { device: device.0, trouble });
        }
    }
    world.crash(Crash::Process);
    world.open().unwrap();
    world.run_until_quiet();
    assert_eq!((resync(&world).unread, resync(&world).dirty_regions), (32, 32));
    for i in bad..200 {
        world.submit(i as u32 % 8, v, WRITE, at(i), BLOCK, Content::Unsaid);
    }
    world.run_until_answered();
    assert!(world.answers.drain(..).all(|answer| answer.result.is_ok()));
    world.run_until_quiet();
    world.faults.0.clear();
    let fails = (0..bad).filter(|i| world.run(v, Op::Read, at(*i), BLOCK).is_err()).count();
    assert!((1..=8).contains(&fails), "{fails}: those that had no room, but for checksums that were at home");
}

/// Sums whose members go before their content is decided are to follow it: nobody holds it to them before that.
#[test]
fn what_is_decided_without_its_sums_gets_them_when_they_are_back() {
    for slip in [None, Some(Slip::UnreadSettled)] {
        let at = 5 * BLOCK;
        let (mut world, v) = written(Profile::Raid1c4, 4, at, slip);
        let pool = world.engine().pool();
        let of_sums = pool.chunks().filter(|c| c.kind == ChunkType::Metadata).flat_map(|c| &c.columns);
        let sums: Vec<DeviceId> = of_sums.map(|c| c.device).collect();
        world.crash(Crash::Process);
        world.open().unwrap();
        let since = world.now();
        let trouble = Trouble::Pulled { since, until: u64::MAX };
        world.faults.0 = sums.iter().map(|device| Fault { device: device.0, trouble: trouble.clone() }).collect();
        world.run_until_quiet();
        let read = world.run(v, Op::Read, at, BLOCK);
        assert_eq!((read.is_ok(), resync(&world).unread > 0), (slip.is_none(), slip.is_none()), "{read:?}");
        world.mend();
        for device in sums {
            world.control(Command::OnlineDevice { device, found: None }).unwrap();
        }
        world.run_until_quiet();
        assert_eq!(resync(&world).unread, 0);
        let served = world.check_served().expect("all is well again");
        assert_eq!(served.is_ok(), slip.is_none(), "{served:?}");
    }
}
