//! What comes in between: writes to what is being caught up, a member that goes before that counts, a power cut before a record is
//! stable, answers that wait for an opening that fails.

use braid_core::control::{Command, VolumeClass};
use braid_core::request::Op;
use braid_core::units::{DeviceId, KIB, MIB, VolumeId};
use braid_core::{DeviceState, Profile};
use braid_sim::fault::{Fault, Faults, Trouble};
use braid_sim::rng::Rng;
use braid_sim::world::Shape;
use braid_sim::{Crash, Model, World};

use crate::common::{all_is_well, device_state, shape};

const WRITE: Op = Op::Write { fua: false };

fn pool(seed: u64, profile: Profile, shape: &Shape, devices: usize, set: &[(&str, &str)]) -> (World, VolumeId) {
    let mut world = World::with_pool(seed, &vec![shape.clone(); devices], profile, profile.system(), set);
    let v = world.volume("v", 64 * MIB, VolumeClass::Data);
    (world, v)
}

fn go(world: &mut World, steps: u64) {
    for _ in 0..steps {
        world.step();
    }
}

/// Members that get what they missed while clients write to it all the time have it all some time: who is passed by is not
/// passed by for ever.
#[test]
fn a_member_is_caught_up_although_clients_go_on_writing_there() {
    let hdd = Shape { model: Model::shipped("hdd").unwrap(), class: "hdd", ..shape(256) };
    let mut least = u64::MAX;
    for (profile, devices) in [(Profile::Raid5, 3), (Profile::Raid6, 4), (Profile::Raid6, 6)] {
        let (mut world, v) = pool(3, profile, &hdd, devices, &[("checksum", "crc32c")]);
        (0..60).for_each(|i| world.run(v, WRITE, i * MIB, MIB).unwrap());
        world.run_until_quiet();
        world.control(Command::OfflineDevice { device: DeviceId(2) }).unwrap();
        (0..60).for_each(|i| world.run(v, WRITE, i * MIB + 64 * KIB, 192 * KIB).unwrap());
        let (mut rng, mut written) = (Rng::new(5), 0);
        world.command(Command::OnlineDevice { device: DeviceId(2), found: None });
        while device_state(&world, 2) != DeviceState::Online {
            world.submit(1, v, WRITE, rng.below(6 * MIB / 4096) * 4096, 4096, Default::default());
            world.run_until(|world| world.outstanding() < 16);
            written += 1;
            assert!(written < 4000, "{profile:?} on {devices}: it is behind still");
        }
        println!("{profile:?} on {devices}: {written} writes meanwhile");
        least = least.min(written);
        world.run_until_quiet();
        let parity = profile.facts().parity;
        assert!(parity == 0 || world.wrong_parity().is_empty());
        // Now it has to stand in for another one.
        world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap();
        all_is_well(&mut world);
    }
    assert!(least > 50, "it was caught up before anybody wrote");
}

/// It has all that it missed, in its cache, and nothing says so yet: then it goes, comes without that, and is asked for it.
#[test]
fn what_was_caught_up_into_a_cache_that_is_lost_is_caught_up_again() {
    for (profile, devices) in [(Profile::Raid1, 2), (Profile::Raid5, 3), (Profile::Raid6, 4)] {
        for steps in 0..120 {
            let (mut world, v) = pool(steps, profile, &shape(128), devices, &[("commit_interval", "60s")]);
            world.run(v, WRITE, 0, MIB).unwrap();
            world.run_until_quiet();
            world.control(Command::OfflineDevice { device: DeviceId(2) }).unwrap();
            world.run(v, WRITE, 0, 512 * KIB).unwrap();
            world.command(Command::OnlineDevice { device: DeviceId(2), found: None });
            go(&mut world, steps * 3);
            let since = world.now();
            world.faults.0.push(Fault { device: 2, trouble: Trouble::Pulled { since, until: since + 1 } });
            world.run_until_quiet();
            // Somebody has to notice.
            world.run(v, Op::Write { fua: true }, MIB, 256 * KIB).unwrap();
            world.run_until_quiet();
            assert!(world.comes_back(DeviceId(2)), "{profile:?}, {steps}");
            world.control(Command::OnlineDevice { device: DeviceId(2), found: None }).unwrap();
            world.run_until_quiet();
            assert_eq!(device_state(&world, 2), DeviceState::Online, "{profile:?}, {steps}");
            world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap();
            all_is_well(&mut world);
        }
    }
}

/// The record that a volume has no checksums any more is on its way while it is written to: after a power cut it has some again.
#[test]
fn a_volume_that_gives_its_checksums_up_as_the_power_goes_reads_what_it_holds() {
    for (profile, devices) in [(Profile::Single, 1), (Profile::Raid0, 2), (Profile::Raid1, 2), (Profile::Raid5, 3)] {
        for steps in 0..60 {
            let set = [("checksum", "crc32c"), ("commit_interval", "60s")];
            let (mut world, v) = pool(steps, profile, &shape(128), devices, &set);
            world.run(v, WRITE, 0, MIB).unwrap();
            world.run(v, Op::Flush, 0, 0).unwrap();
            world.run_until_quiet();
            world.command(Command::SetVolumeChecksum { volume: v, on: false });
            world.submit(1, v, Op::Write { fua: true }, 8 * KIB, 12 * KIB, Default::default());
            world.submit(2, v, WRITE, 512 * KIB, 64 * KIB, Default::default());
            go(&mut world, steps);
            world.crash(Crash::Power);
            world.open().unwrap();
            let read = world.run(v, Op::Read, 0, MIB);
            assert_eq!(read, Ok(()), "{profile:?}, {steps} steps");
            all_is_well(&mut world);
        }
    }
}

/// A read that a write passed by was not what the checksums said, and those are given up before it was looked at again: what stands
/// there is good.
#[test]
fn a_read_beside_writes_and_without_parity_outlives_the_checksums_of_its_volume() {
    for steps in 0..120 {
        let (mut world, v) = pool(steps, Profile::Raid5, &shape(128), 2, &[("checksum", "crc32c")]);
        world.run(v, WRITE, 0, 2 * MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.control(Command::OfflineDevice { device: DeviceId(1) }).unwrap();
        for i in 0..16 {
            world.submit(1, v, WRITE, i * 128 * KIB + 4 * KIB, 100 * KIB, Default::default());
        }
        for _ in 0..8 {
            go(&mut world, steps / 8);
            world.submit(2, v, Op::Read, 0, MIB, Default::default());
            world.submit(2, v, Op::Read, MIB, MIB, Default::default());
        }
        go(&mut world, steps % 8);
        world.command(Command::SetVolumeChecksum { volume: v, on: false });
        world.run_until_answered();
        let failed: Vec<_> = world.answers.drain(..).filter(|answer| answer.result.is_err()).collect();
        assert!(failed.is_empty(), "{steps} steps: {failed:?}");
        all_is_well(&mut world);
    }
}

/// Requests wait for the first checkpoint, and there will be none: each is answered all the same.
#[test]
fn requests_that_wait_for_an_opening_that_fails_are_answered() {
    for (op, len) in [(Op::Flush, 0), (WRITE, 4096), (Op::Read, 4096), (Op::Discard, 64 * KIB)] {
        let (mut world, v) = pool(1, Profile::Raid1, &shape(128), 3, &[]);
        world.run(v, WRITE, 0, MIB).unwrap();
        world.crash(Crash::Power);
        world.faults = Faults(vec![Fault { device: 1, trouble: Trouble::Absent { since: 0 } }]);
        let to = 128 * MIB;
        let refuses = Trouble::Error { read: false, write: true, flush: false, from: 0, to, percent: 100, left: 999 };
        world.faults.0.extend([2, 3].map(|device| Fault { device, trouble: refuses.clone() }));
        world.open().unwrap();
        assert_eq!(world.engine().in_flight(), 0);
        world.submit(1, v, op, 0, len, Default::default());
        world.drain();
        assert_eq!(world.engine().in_flight(), 1, "it waits for the first checkpoint");
        world.run_until_quiet();
        let answers: Vec<bool> = world.answers.drain(..).map(|answer| answer.result.is_ok()).collect();
        assert_eq!(answers, [op == Op::Read], "{op:?}");
    }
}

/// One member alone has the newest image, and does not take the superblock that claims it: the pool opens all the same, on another.
#[test]
fn an_opening_goes_on_where_nobody_takes_its_claim() {
    let refuses =
        |left| Trouble::Error { read: false, write: true, flush: false, from: 0, to: MIB, percent: 100, left };
    // What was refused may be there all the same, with some seeds: then both have the image that was found, and nobody is asked.
    for seed in 0..16 {
        let (mut world, v) = pool(seed, Profile::Raid1, &shape(128), 2, &[]);
        world.faults = Faults(vec![Fault { device: 2, trouble: refuses(99) }]);
        world.run(v, WRITE, 0, MIB).unwrap();
        world.control(Command::Checkpoint).unwrap();
        world.crash(Crash::Power);
        world.faults = Faults(vec![Fault { device: 1, trouble: refuses(1) }]);
        world.open().unwrap();
        world.run_until_quiet();
        world.run(v, Op::Write { fua: true }, 0, 64 * KIB).unwrap();
        all_is_well(&mut world);
        assert_eq!([1, 2].map(|device| device_state(&world, device)), [DeviceState::Online; 2]);
        let left = matches!(world.faults.0[..], [Fault { trouble: Trouble::Error { left: 0, .. }, .. }]);
        assert!(left, "{:?}", world.faults);
    }
}

/// What a flush that nobody asked for lost is told to the next who asks, once for each volume; what others stand in for is made
/// anew, and told to nobody.
#[test]
fn a_loss_that_no_client_waited_for_is_told_to_the_next_who_flushes() {
    for (profile, devices) in [(Profile::Single, 1), (Profile::Raid0, 2), (Profile::Raid1, 2), (Profile::Raid5, 3)] {
        let (mut world, v) = pool(1, profile, &shape(128), devices, &[("commit_interval", "100ms")]);
        let beside = world.volume("beside", 64 * MIB, VolumeClass::Data);
        for volume in [v, beside] {
            world.run(volume, WRITE, 0, MIB).unwrap();
            world.run(volume, Op::Flush, 0, 0).unwrap();
        }
        let is_alone = profile.facts().tolerated_failures == 0;
        world.may_lose_caches = is_alone;
        world.faults.0.push(Fault { device: 1, trouble: Trouble::CacheLost { percent: 100, left: 1 } });
        [v, beside].into_iter().for_each(|volume| world.run(volume, WRITE, 0, MIB).unwrap());
        world.run_until_quiet();
        assert!(matches!(world.faults.0[0].trouble, Trouble::CacheLost { left: 0, .. }), "the interval is over");
        for volume in [v, beside] {
            let flush = world.run(volume, Op::Flush, 0, 0);
            assert_eq!(flush.is_err(), is_alone, "{profile:?}: {flush:?}");
        }
        // Somebody knows, and what he writes and flushes from now on is there.
        for volume in [v, beside] {
            world.run(volume, WRITE, 0, MIB).unwrap();
            world.run(volume, Op::Flush, 0, 0).unwrap();
        }
        world.may_lose_caches = false;
        world.crash(Crash::Power);
        world.faults.0.clear();
        world.open().unwrap();
        all_is_well(&mut world);
    }
}
