//! Reads that found trouble: the copy is written anew behind them.

use braid_core::Profile;
use braid_core::request::{Event, Op};
use braid_core::units::{BLOCK, DeviceId, MIB, VolumeId};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::{Crash, Rng, World};

use crate::scrub::{WRITE, fill, pool};

fn repaired(world: &World, device: DeviceId) -> u64 {
    world.engine().report().devices[device.index() - 1].io.repaired
}

/// One copy of the first 16 blocks of the volume cannot be read.
fn spoilt(profile: Profile, devices: usize) -> (World, VolumeId, DeviceId) {
    let (mut world, v) = pool(devices, profile, Profile::Raid1.min(profile));
    fill(&mut world, v);
    world.run_until_quiet();
    let (device, from) = world.places(v, 0)[0];
    world.faults.0.push(Fault { device: device.0, trouble: Trouble::Latent { since: 0, from, to: from + 16 * BLOCK } });
    (world, v, device)
}

#[test]
fn a_copy_that_a_read_found_bad_is_written_anew() {
    for (profile, devices) in [(Profile::Raid1, 2), (Profile::Raid10, 4), (Profile::Raid1c3, 3), (Profile::Dup, 1)] {
        let (mut world, v, device) = spoilt(profile, devices);
        world.events.clear();
        // Until a read meets the bad copy.
        for _ in 0..64 {
            world.run(v, Op::Read, 3 * BLOCK, BLOCK).unwrap();
        }
        world.run_until_quiet();
        let (_, at) = world.places(v, 0)[0];
        assert!(world.disks[device.index() - 1].is_readable(at, 16 * BLOCK), "{profile:?}: all of the unit");
        assert_eq!(repaired(&world, device), 16, "{profile:?}");
        let told = Event::Repaired {
            volume: Some(v),
            name: "v".into(),
            offset: 0,
            len: 16 * BLOCK,
            device,
            device_offset: at,
        };
        assert_eq!(world.events.iter().filter(|e| **e == told).count(), 1, "{profile:?}: {:?}", world.events);
        assert_eq!(world.unequal(), [], "{profile:?}");
        world.verify();
        world.run_until_quiet();
        world.check_quiet(true);
        assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    }
}

#[test]
fn writes_beside_a_mend_win() {
    for seed in 0..40 {
        let (mut world, v, device) = spoilt(Profile::Raid1, 2);
        world.rng = Rng::new(seed);
        for client in 0..200 {
            let at = world.rng.below(16) * BLOCK;
            let op = if world.rng.percent(40) { WRITE } else { Op::Read };
            world.submit(client, v, op, at, BLOCK, braid_core::request::Content::Unsaid);
            for _ in 0..world.rng.below(4) {
                world.step();
            }
        }
        world.run_until_quiet();
        world.verify();
        world.run_until_quiet();
        world.check_quiet(true);
        assert!(world.wrong.is_empty(), "seed {seed}: {:?}", world.wrong);
        assert_eq!(world.unequal(), [], "seed {seed}");
        assert!(repaired(&world, device) <= 16);
    }
}

#[test]
fn where_writing_does_not_help_a_unit_is_left_alone() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    let (device, from) = world.places(v, MIB)[0];
    let to = from + BLOCK;
    let trouble = Trouble::reads_fail(from..to, u64::MAX);
    world.faults.0.push(Fault { device: device.0, trouble });
    for _ in 0..500 {
        world.run(v, Op::Read, MIB, BLOCK).unwrap();
    }
    world.run_until_quiet();
    assert_eq!(repaired(&world, device), 1, "once, and not at every read");
}

/// A crash left both copies on one disk unlike, and the first tries to write one over the other fail: nobody stands in for that disk, so
/// the unit stays in doubt until the copies are alike. A disk that never takes it is not tried for ever.
#[test]
fn copies_on_one_disk_are_made_alike_although_the_first_tries_fail() {
    let blocks = [0, 2, 4, 6, 8, 10];
    let rounds = |rounds: u64| rounds * blocks.len() as u64;
    let mut unlike = 0;
    for (seed, failures) in [rounds(1), rounds(2)].into_iter().chain([u64::MAX; 8]).enumerate() {
        let (mut world, v) = pool(1, Profile::Dup, Profile::Dup);
        world.rng = Rng::new(seed as u64);
        fill(&mut world, v);
        world.run_until_quiet();
        world.run(v, WRITE, 0, 16 * BLOCK).unwrap();
        world.crash(Crash::Process);
        world.open().unwrap();
        let [(_, first), (_, second)] = world.places(v, 0)[..] else { panic!("two copies") };
        let right = world.disks[0].read_bytes(first, 16 * BLOCK);
        let sectors = blocks.iter().flat_map(|block| (0..8).map(move |sector| block * BLOCK + sector * 512));
        sectors.for_each(|at| world.disks[0].corrupt(second + at, 1));
        let trouble = Trouble::writes_fail(second..second + 16 * BLOCK, failures);
        world.faults.0.push(Fault { device: 1, trouble });
        world.run_until_quiet();
        let of = |at| world.disks[0].read_bytes(at, 16 * BLOCK);
        assert!(of(first) == right, "the first counts");
        let Trouble::Error { left, .. } = world.faults.0[0].trouble else { panic!("writes fail") };
        // Some of a write that failed may be there all the same.
        let (is_alike, failed) = (of(second) == right, failures - left);
        match failures {
            u64::MAX => assert!(failed <= rounds(4) && (is_alike || failed >= 4), "{failed} failures"),
            _ => assert!(is_alike, "{failed} of {failures} failures"),
        }
        unlike += u64::from(!is_alike);
    }
    assert!(unlike > 0, "writing does not help at times");
}
