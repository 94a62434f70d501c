//! Rows of strips with parity: written, read without some members, after power cuts, after bits went bad.

use braid_core::control::{Command, VolumeClass};
use braid_core::job::Choice;
use braid_core::profile::column_of;
use braid_core::request::Op;
use braid_core::scrub::State;
use braid_core::units::{DeviceId, KIB, MIB, VolumeId};
use braid_core::{ChunkType, DeviceState, Profile, Slip};
use braid_sim::disk::Content;
use braid_sim::fault::{Ends, Fault, Trouble};
use braid_sim::rng::Rng;
use braid_sim::world::Shape;
use braid_sim::{Crash, Model, World};

use crate::common::{all_is_well, device_state, reopen, scrub, shape};

const MS: u64 = 1_000_000;
const WRITE: Op = Op::Write { fua: false };
const PARITY: [Profile; 2] = [Profile::Raid5, Profile::Raid6];

/// Metadata survives as much as data.
fn pool(seed: u64, devices: usize, profile: Profile, checksum: &str) -> (World, VolumeId) {
    let shapes: Vec<Shape> = vec![shape(96); devices];
    let mut world = World::with_pool(
        seed,
        &shapes,
        profile,
        profile.system(),
        &[("checksum", checksum), ("commit_interval", "60s")],
    );
    let v = world.volume("v", 64 * MIB, VolumeClass::Data);
    (world, v)
}

/// Requests of all sizes, some beside each other.
fn stir(world: &mut World, v: VolumeId, rng: &mut Rng, count: u64) {
    for _ in 0..count {
        let offset = rng.below(40 * MIB / 512) * 512;
        let len = *rng.pick(&[512, 4 * KIB, 12 * KIB, 64 * KIB, 100 * KIB, 300 * KIB, MIB]);
        let op = *rng.pick(&[WRITE, WRITE, WRITE, Op::Write { fua: true }, Op::Discard, Op::Flush, Op::Read]);
        let op = if rng.percent(5) { Op::WriteZeroes { fua: false, no_hole: rng.percent(50) } } else { op };
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (offset, len) };
        world.submit(1, v, op, offset, len, Default::default());
        if rng.percent(60) {
            world.drain();
        }
        if rng.percent(30) {
            world.run_until_answered();
        }
    }
    world.run_until_answered();
}

fn check_parity(world: &World) {
    assert_eq!(world.wrong_parity(), [], "rows whose parity is not what their strips come to");
}

#[test]
fn what_is_written_is_read_and_parity_is_what_it_should_be() {
    for profile in PARITY {
        for (devices, checksum) in [(3, "none"), (4, "crc32c"), (6, "none"), (6, "crc32c")] {
            let (mut world, v) = pool(7, devices, profile, checksum);
            let mut rng = Rng::new(devices as u64);
            for _ in 0..4 {
                stir(&mut world, v, &mut rng, 60);
                world.run_until_quiet();
                check_parity(&world);
                world.verify();
            }
            world.crash(Crash::Process);
            world.open().unwrap();
            world.verify();
            world.run_until_quiet();
            check_parity(&world);
        }
    }
}

/// A volume on five disks, all rows of which hold something already.
fn live_rows(settings: &[(&str, &str)]) -> (World, VolumeId) {
    let disk = Shape { model: Model::shipped("hdd").unwrap(), class: "hdd", ..shape(256) };
    let mut world = World::with_pool(29, &vec![disk; 5], Profile::Raid5, Profile::Raid1, settings);
    let v = world.volume("v", 32 * MIB, VolumeClass::Data);
    (0..32).for_each(|i| world.run(v, WRITE, i * MIB, MIB).unwrap());
    world.run_until_quiet();
    (world, v)
}

/// All of it once more, a strip at a time and so many under way: bytes that members read for parity, and the time it took.
fn overwrite(depth: usize, settings: &[(&str, &str)]) -> (u64, u64) {
    let (mut world, v) = live_rows(settings);
    let reads = |world: &World| world.engine().pool().devices().map(|d| d.counters.read_bytes).sum::<u64>();
    let (before, since) = (reads(&world), world.now());
    for i in 0..512 {
        world.submit(1, v, WRITE, i * 64 * KIB, 64 * KIB, Default::default());
        world.run_until(|world| world.outstanding() < depth);
    }
    world.run_until_answered();
    let outcome = (reads(&world) - before, world.now() - since);
    all_is_well(&mut world);
    outcome
}

#[test]
fn what_a_stream_writes_is_gathered_into_rows_and_who_is_alone_does_not_wait() {
    let both = |depth| (overwrite(depth, &[]), overwrite(depth, &[("budget_wait", "off")]));
    let (waiting, off) = both(1);
    assert_eq!(waiting, off, "there is nobody to wait for");
    for (depth, reads_fall, time_falls) in [(4, 2, 1.25), (16, 50, 1.35)] {
        let (waiting, off) = both(depth);
        println!("{depth} at once: bytes read and ns {waiting:?}, without waiting {off:?}");
        assert!(waiting.0 * reads_fall <= off.0, "{depth} at once: {waiting:?} and {off:?}");
        assert!(waiting.1 as f64 * time_falls <= off.1 as f64, "{depth} at once: {waiting:?} and {off:?}");
    }
}

/// What begins behind a row waits for a change that reaches that row's end, and for no other; if it takes very long, not so long.
#[test]
fn the_wait_for_a_row_before_has_an_end() {
    let beside = |until_end: u64| {
        let (mut world, v) = live_rows(&[]);
        let journal = world.places(VolumeId(0), 0).into_iter().map(|(device, _)| device).collect::<Vec<_>>();
        let strip_of = |row: u64| world.places(v, row * 4 * 64 * KIB)[0].0;
        let row =
            (0..5).find(|&row| !journal.contains(&strip_of(row))).expect("there are more members than copies of it");
        // All strips but the first are written, so this one is read for the parity.
        let trouble = Trouble::Stuck { since: world.now(), until: world.now() + 500 * MS, ends: Ends::Late };
        world.faults.0.push(Fault { device: strip_of(row).0, trouble });
        let (since, end) = (world.now(), (row + 1) * 4 * 64 * KIB);
        world.submit(1, v, WRITE, end - 3 * 64 * KIB, 3 * 64 * KIB - until_end, Default::default());
        let behind = world.submit(2, v, WRITE, end, 4 * KIB, Default::default());
        world.run_until(|world| world.answers.iter().any(|answer| answer.tag == behind));
        let took = world.now() - since;
        world.run_until_answered();
        all_is_well(&mut world);
        took / MS
    };
    let (elsewhere, at_its_end) = (beside(4 * KIB), beside(0));
    println!("ms: {elsewhere} beside a write to the row before, {at_its_end} beside one that reaches its end");
    assert!(elsewhere < 60, "{elsewhere} ms");
    assert!((100..200).contains(&at_its_end), "{at_its_end} ms");
}

fn take_out(world: &mut World, device: u32) {
    world.control(Command::OfflineDevice { device: DeviceId(device) }).unwrap();
}

/// As many members as there is parity are away for a while; then as many others.
fn away_and_back(profile: Profile, checksum: &str, slip: Option<Slip>) {
    let (mut world, v) = pool(11, 5, profile, checksum);
    let mut rng = Rng::new(3);
    world.slip = slip;
    reopen(&mut world);
    stir(&mut world, v, &mut rng, 80);
    let away: Vec<u32> = (0..profile.facts().parity as u32).map(|i| 2 + 2 * i).collect();
    away.iter().for_each(|&device| take_out(&mut world, device));
    world.verify();
    stir(&mut world, v, &mut rng, 80);
    world.verify();
    for &device in &away {
        world.control(Command::OnlineDevice { device: DeviceId(device) }).unwrap();
    }
    stir(&mut world, v, &mut rng, 30);
    world.verify();
    world.run_until_quiet();
    let behind: Vec<u32> = away.iter().copied().filter(|&d| device_state(&world, d) != DeviceState::Online).collect();
    assert!(behind.is_empty(), "{profile:?}: {behind:?} are not up to date");
    check_parity(&world);
    // Others go now: what came back has to be right.
    let others: Vec<u32> = (1..=5).filter(|d| !away.contains(d)).take(away.len()).collect();
    others.iter().for_each(|&device| take_out(&mut world, device));
    all_is_well(&mut world);
}

#[test]
fn as_many_members_as_there_is_parity_may_be_away_and_catch_up_when_they_are_back() {
    for profile in PARITY {
        ["none", "crc32c"].into_iter().for_each(|checksum| away_and_back(profile, checksum, None));
        for slip in [Slip::StaleTrusted, Slip::CaughtUpAtOnce] {
            let run = std::panic::catch_unwind(|| away_and_back(profile, "none", Some(slip)));
            assert!(run.is_err(), "{slip:?} goes unnoticed");
        }
    }
}

/// A member that is not slow cannot be read: then a slow one has to do it.
#[test]
fn slow_members_are_read_around_when_that_is_asked_for() {
    for (profile, checksum) in PARITY.into_iter().flat_map(|profile| [(profile, "none"), (profile, "crc32c")]) {
        let (mut world, v) = pool(19, 6, profile, checksum);
        let mut rng = Rng::new(23);
        stir(&mut world, v, &mut rng, 120);
        (0..40).for_each(|i| world.run(v, WRITE, i * MIB, MIB).unwrap());
        world.run_until_quiet();
        let slow = [2, 5].into_iter().take(profile.facts().parity);
        for device in slow.clone() {
            let trouble = Trouble::Slow { since: world.now(), until: u64::MAX, factor: 50 };
            world.faults.0.push(Fault { device, trouble });
        }
        let mut time_of = |world: &mut World, policy: &str| {
            world.control(Command::Set { name: "read_policy".into(), value: policy.into() }).unwrap();
            // Until it is known who is slow.
            (0..100).for_each(|_| world.run(v, Op::Read, rng.below(40 * 256) * 4 * KIB, 4 * KIB).unwrap());
            let since = world.now();
            (0..400).for_each(|_| world.run(v, Op::Read, rng.below(40 * 256) * 4 * KIB, 4 * KIB).unwrap());
            world.now() - since
        };
        let (before, after) = (time_of(&mut world, "latency"), time_of(&mut world, "parity-avoid-slow"));
        assert!(after * 3 < before, "{profile:?} {checksum}: {after} ns, and {before} ns without");
        let made = |world: &World| world.engine().report().read_reasons.iter().find(|r| r.0 == "avoid-slow").unwrap().1;
        assert!(made(&world) > 50);
        let trouble = Trouble::Latent { since: 0, from: 0, to: u64::MAX };
        world.faults.0.push(Fault { device: 1, trouble });
        time_of(&mut world, "parity-avoid-slow");
        world.faults.0.clear();
        stir(&mut world, v, &mut rng, 60);
        world.run_until_quiet();
        check_parity(&world);
        all_is_well(&mut world);
    }
}

/// Of a member that was given up nothing is noted any more: when it is put to use again it is behind in everything.
#[test]
fn a_member_that_was_given_up_is_behind_in_everything_when_it_is_back() {
    for profile in PARITY {
        for checksum in ["none", "crc32c"] {
            let (mut world, v) = pool(13, 5, profile, checksum);
            let mut rng = Rng::new(17);
            stir(&mut world, v, &mut rng, 60);
            let trouble = Trouble::writes_fail(0..u64::MAX, u32::MAX.into());
            world.faults.0.push(Fault { device: 2, trouble });
            stir(&mut world, v, &mut rng, 120);
            assert_eq!(device_state(&world, 2), DeviceState::Failed);
            world.faults.0.clear();
            stir(&mut world, v, &mut rng, 60);
            world.control(Command::OnlineDevice { device: DeviceId(2) }).unwrap();
            world.verify();
            stir(&mut world, v, &mut rng, 30);
            world.run_until_quiet();
            assert_eq!(device_state(&world, 2), DeviceState::Online);
            check_parity(&world);
            let others = [1, 3].into_iter().take(profile.facts().parity);
            others.for_each(|device| take_out(&mut world, device));
            all_is_well(&mut world);
        }
    }
}

fn convert(profile: Profile) -> Command {
    let choice = Some(Choice { convert: Some(profile), ..Choice::default() });
    Command::Balance { data: choice, metadata: None }
}

/// A job to its end, under load until then: how many requests that was.
fn job(world: &mut World, v: VolumeId, rng: &mut Rng, command: Command) -> u64 {
    world.control(command.clone()).unwrap_or_else(|e| panic!("{command:?}: {e:?}"));
    let mut asked = 0;
    while world.engine().pool().job.as_ref().is_some_and(|job| job.state == State::Running) {
        stir(world, v, rng, 4);
        asked += 4;
        assert!(asked < 10_000, "{command:?} comes to no end beside clients");
    }
    world.run_until_quiet();
    let job = world.engine().pool().job.clone().unwrap();
    assert_eq!((job.state, job.lost), (State::Finished, 0), "{command:?}");
    world.verify();
    check_parity(world);
    asked
}

#[test]
fn content_goes_from_parity_to_every_other_profile_and_back_under_load() {
    let carries_data = |profile: &Profile| profile.carries(ChunkType::Data);
    for checksum in ["none", "crc32c"] {
        for parity in PARITY {
            let (mut world, v) = pool(5, 6, parity, checksum);
            let (mut rng, mut asked) = (Rng::new(8), u64::MAX);
            stir(&mut world, v, &mut rng, 60);
            for other in Profile::ALL.into_iter().filter(carries_data).filter(|&other| other != parity) {
                for profile in [other, parity] {
                    let meanwhile = job(&mut world, v, &mut rng, convert(profile));
                    println!("{profile:?}, {checksum}: {meanwhile} requests meanwhile");
                    asked = asked.min(meanwhile);
                }
            }
            assert!(asked >= 12, "{parity:?}, {checksum}: it was over before there was load, {asked}");
            reopen(&mut world);
            all_is_well(&mut world);
        }
    }
}

#[test]
fn members_leave_rows_under_load() {
    for checksum in ["none", "crc32c"] {
        let (mut world, v) = pool(5, 6, Profile::Raid5, checksum);
        let mut rng = Rng::new(8);
        stir(&mut world, v, &mut rng, 60);
        job(&mut world, v, &mut rng, Command::RemoveDevice { device: DeviceId(2) });
        reopen(&mut world);
        world.verify();
        world.add_disk(&shape(96));
        world.run_until_quiet();
        let by = world.engine().pool().devices().map(|d| d.id).max().unwrap();
        job(&mut world, v, &mut rng, Command::ReplaceDevice { device: DeviceId(3), by });
        // Of one that is gone, too.
        world.add_disk(&shape(96));
        world.run_until_quiet();
        let by = world.engine().pool().devices().map(|d| d.id).max().unwrap();
        take_out(&mut world, 4);
        job(&mut world, v, &mut rng, Command::ReplaceDevice { device: DeviceId(4), by });
        all_is_well(&mut world);
    }
}

/// A row had content, with checksums, and then nothing: the next write makes it live again, with zeros for the rest. What
/// checksums say of the content before does not keep anybody from what is made with the zeros after a crash, whoever is lost
/// with it.
#[test]
fn checksums_of_what_a_row_held_before_say_nothing_of_its_zeros() {
    // Units of one row of three, in two regions.
    let (old, first, second) = (126 * 64 * KIB, 127 * 64 * KIB + 12 * KIB, 128 * 64 * KIB + 28 * KIB);
    let three = |profile: Profile| 3 + profile.facts().parity;
    let losses =
        |profile| (1..=three(profile) as u32).flat_map(move |a| (a..=three(profile) as u32).map(move |b| [a, b]));
    for (profile, lost) in PARITY.into_iter().flat_map(|profile| losses(profile).map(move |lost| (profile, lost))) {
        // Somebody else is in the row already, whose region is clean; or nobody is.
        for (is_alone, checksum) in [(false, "crc32c"), (true, "xxh3")] {
            if profile == Profile::Raid5 && lost[0] != lost[1] {
                continue;
            }
            let (mut world, v) = pool(17, three(profile), profile, checksum);
            world.run(v, WRITE, old, 3 * 64 * KIB).unwrap();
            world.run(v, Op::Flush, 0, 0).unwrap();
            world.run_until_quiet();
            world.run(v, Op::Discard, old, 3 * 64 * KIB).unwrap();
            world.run(v, Op::Flush, 0, 0).unwrap();
            world.run_until_quiet();
            if !is_alone {
                world.run(v, WRITE, first, 4 * KIB).unwrap();
                world.run_until_quiet();
            }
            world.run(v, Op::Write { fua: true }, second, 4 * KIB).unwrap();
            world.crash(Crash::Power);
            world.faults.0.extend(lost.map(|device| Fault { device, trouble: Trouble::Absent { since: 0 } }));
            world.open().unwrap();
            let read = world.run(v, Op::Read, second, 4 * KIB);
            assert_eq!(read, Ok(()), "{profile:?}, {checksum}, without {lost:?}, alone {is_alone}");
            world.verify();
        }
    }
}

/// Two volumes with a unit in the same row, each its first. The second one has no checksums, and what its place has of them is of
/// other content: its own of before, or the first one's.
fn beside_one_without_checksums(profile: Profile, had_some: bool) -> (World, VolumeId, VolumeId) {
    let (mut world, v) = pool(19, 3 + profile.facts().parity, profile, "crc32c");
    world.run(v, WRITE, 0, 64 * KIB).unwrap();
    // When no region of the chunk is empty, the first free place is next.
    let filler = world.volume("filler", 512 * MIB, VolumeClass::Data);
    let regions = world.engine().pool().chunks().find(|c| c.rows() > 0).unwrap().length / (16 * MIB);
    (1..regions).for_each(|region| world.run(filler, WRITE, region * 16 * MIB, 4 * KIB).unwrap());
    let u = world.volume("u", MIB, VolumeClass::Data);
    if had_some {
        world.run(u, WRITE, 0, 64 * KIB).unwrap();
    } else {
        world.run(v, WRITE, 64 * KIB, 64 * KIB).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run_until_quiet();
    if !had_some {
        world.run(v, Op::Discard, 64 * KIB, 64 * KIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run_until_quiet();
    }
    world.control(Command::SetVolumeChecksum { volume: u, on: false }).unwrap();
    world.run(u, Op::Write { fua: true }, 0, 64 * KIB).unwrap();
    world.crash(Crash::Power);
    world.open().unwrap();
    world.run_until_quiet();
    let at = |volume| {
        let entry = world.engine().pool().volume(volume).unwrap().map.get(0);
        (entry.chunk(), world.engine().pool().chunk(entry.chunk()).unwrap().row_of(entry.unit()).unwrap().0)
    };
    assert_eq!(at(u), at(v), "units of one row");
    (world, v, u)
}

#[test]
fn checksums_that_a_volume_gave_up_keep_nobody_from_what_is_made_with_it() {
    for profile in PARITY {
        let devices = 3 + profile.facts().parity as u32;
        let losses = (1..=devices).flat_map(|a| (a..=devices).map(move |b| [a, b]));
        for (lost, had_some) in losses.flat_map(|lost| [(lost, false), (lost, true)]) {
            if profile == Profile::Raid5 && lost[0] != lost[1] {
                continue;
            }
            let (mut world, v, u) = beside_one_without_checksums(profile, had_some);
            world.run(v, Op::Write { fua: true }, 8 * KIB, 4 * KIB).unwrap();
            world.crash(Crash::Power);
            world.faults.0.extend(lost.map(|device| Fault { device, trouble: Trouble::Absent { since: 0 } }));
            world.open().unwrap();
            for (volume, len) in [(v, 64 * KIB), (u, 64 * KIB)] {
                let read = world.run(volume, Op::Read, 0, len);
                assert_eq!(read, Ok(()), "{profile:?}, without {lost:?}, had checksums {had_some}, {volume:?}");
            }
            world.verify();
        }
    }
}

#[test]
fn parity_of_what_is_without_checksums_and_of_what_is_free_is_scrubbed() {
    for (profile, had_some) in PARITY.into_iter().flat_map(|profile| [(profile, false), (profile, true)]) {
        let (mut world, v, u) = beside_one_without_checksums(profile, had_some);
        for is_free in [false, true] {
            if is_free {
                world.run(u, Op::Discard, 0, 64 * KIB).unwrap();
                world.run(u, Op::Flush, 0, 0).unwrap();
                world.run_until_quiet();
            }
            let pool = world.engine().pool();
            let entry = pool.volume(v).unwrap().map.get(0);
            let chunk = pool.chunk(entry.chunk()).unwrap();
            let row = u64::from(chunk.row_of(entry.unit()).unwrap().0);
            let column = chunk.columns[column_of(profile, chunk.columns.len(), row, 3)];
            let from = column.offset + row * 64 * KIB;
            let hit = world.disks[column.device.index() - 1].flip(from, from + 64 * KIB, 1000, &mut Rng::new(1));
            assert_eq!((hit.len(), world.wrong_parity().len()), (16, 1));
            scrub(&mut world);
            let found = &world.engine().pool().scrub;
            assert_eq!(
                (found.differences, found.repaired),
                (16, 16),
                "{profile:?}, had checksums {had_some}, free {is_free}"
            );
            check_parity(&world);
            all_is_well(&mut world);
        }
    }
}

/// Bits of the data of one member go bad: reads give what was written, and put it right.
#[test]
fn what_rots_on_one_member_is_made_from_the_others() {
    for profile in PARITY {
        let (mut world, v) = pool(9, 5, profile, "crc32c");
        let mut rng = Rng::new(1);
        world.run(v, WRITE, 0, 12 * MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run_until_quiet();
        let chunk = world.engine().pool().chunks().find(|c| c.rows() > 0).expect("there is data");
        let (column, stripe) = (chunk.columns[1], chunk.stripe);
        let disk = &mut world.disks[column.device.index() - 1];
        let hit = disk.flip(column.offset, column.offset + stripe, 200, &mut rng);
        assert!(hit.len() > 10, "some blocks of it are bad");
        world.verify();
        world.run_until_quiet();
        let repaired: u64 = world.engine().pool().devices().map(|d| d.counters.repaired).sum();
        assert!(repaired > 0, "reads put right what they find");
        // Parity is read by nobody but a scrub.
        scrub(&mut world);
        check_parity(&world);
        let found = world.engine().pool().scrub.clone();
        assert!(found.differences > 0 && found.repaired == found.differences, "{found:?}");
        take_out(&mut world, column.device.0 % 5 + 1);
        all_is_well(&mut world);
    }
}

/// Nothing has a checksum, and of each block of a row at most one member is wrong: two parities can tell which, whoever it is.
#[test]
fn what_rots_without_checksums_is_found_by_two_parities() {
    for (seed, devices) in [3, 4, 5, 6, 6, 34].into_iter().enumerate() {
        let (mut world, v) = pool(seed as u64, devices, Profile::Raid6, "none");
        let mut rng = Rng::new(seed as u64);
        stir(&mut world, v, &mut rng, 100);
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run_until_quiet();
        let chunk = world.engine().pool().chunks().find(|c| c.rows() > 0).expect("there is data");
        let columns = chunk.columns.clone();
        let live: Vec<u64> = (0..chunk.rows()).filter(|&row| chunk.is_live(row)).map(u64::from).collect();
        let (mut hits, mut data) = (0, 0);
        for (row, lane) in live.into_iter().flat_map(|row| (0..16).map(move |lane| (row, lane))) {
            let member = rng.below(devices as u64) as usize;
            let column = columns[column_of(Profile::Raid6, devices, row, member)];
            let from = column.offset + row * 64 * KIB + lane * 4 * KIB;
            let hit = world.disks[column.device.index() - 1].flip(from, from + 4 * KIB, 300, &mut rng).len();
            (hits, data) = (hits + hit, data + if member < devices - 2 { hit } else { 0 });
        }
        println!("{devices} devices: {hits} blocks are bad, {data} of them data");
        assert!(data > 20 && hits > data, "{hits} blocks are bad, {data} of them data");
        scrub(&mut world);
        let found = world.engine().pool().scrub.clone();
        assert_eq!((found.differences, found.repaired), (hits as u64, hits as u64), "{found:?}");
        check_parity(&world);
        all_is_well(&mut world);
    }
}

/// Both parities of a block are what they were before it changed. Its checksum says that it is right; without one, two against
/// one are believed.
#[test]
fn what_a_checksum_calls_right_stays_although_both_parities_say_otherwise() {
    for (checksum, wrong_blocks) in [("crc32c", 2), ("none", 1)] {
        let (mut world, v) = pool(31, 5, Profile::Raid6, checksum);
        let change = |world: &mut World| {
            world.run(v, WRITE, 64 * KIB, 4 * KIB).unwrap();
            world.run(v, Op::Flush, 0, 0).unwrap();
            world.run_until_quiet();
        };
        change(&mut world);
        let chunk = world.engine().pool().chunks().find(|c| c.rows() > 0).expect("there is data");
        let parity: Vec<_> = (3..5).map(|member| chunk.columns[column_of(Profile::Raid6, 5, 0, member)]).collect();
        let disk = |device: DeviceId| device.index() - 1;
        let before = parity.iter().map(|p| world.disks[disk(p.device)].read_bytes(p.offset, 4 * KIB));
        let before: Vec<Vec<u8>> = before.collect();
        change(&mut world);
        for (p, bytes) in parity.iter().zip(&before) {
            let mut content = Content::new();
            content.push_bytes(bytes);
            world.disks[disk(p.device)].write(p.offset, &content, true, || true);
        }
        assert_eq!(world.wrong_parity().len(), 2, "both parities are old");
        scrub(&mut world);
        assert_eq!(world.engine().pool().scrub.differences, wrong_blocks, "{checksum}");
        check_parity(&world);
        if checksum != "none" {
            all_is_well(&mut world);
        }
    }
}

/// So many units of the first metadata chunk are left: the stripe journal goes on in the next one, on other members.
fn fill_metadata(world: &mut World, left: u32) {
    let v = world.volume("m", 512 * MIB, VolumeClass::Metadata);
    let free = |world: &World| {
        world.engine().pool().chunks().find(|c| c.kind == ChunkType::Metadata).map_or(u32::MAX, |c| c.free_units())
    };
    let mut at = 0;
    while free(world) > left {
        world.run(v, WRITE, at, 64 * KIB).unwrap();
        at += 64 * KIB;
    }
}

#[test]
fn a_journal_that_finds_the_first_chunk_full_is_on_other_members_too() {
    let (mut world, v) = pool(1, 3, Profile::Raid5, "none");
    fill_metadata(&mut world, 5);
    world.run(v, WRITE, 0, MIB).unwrap();
    let on = |unit: u64| world.places(VolumeId(0), unit * 64 * KIB).into_iter().map(|(device, _)| device).collect();
    let (first, last): (Vec<DeviceId>, Vec<DeviceId>) = (on(0), on(15));
    assert!(first.len() == 2 && last.len() == 2 && first != last, "{first:?} and {last:?}");
}

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
                world.control(Command::OnlineDevice { device: DeviceId(device) }).expect("it is there");
                world.run_until_quiet();
            }
            world.crash(Crash::Power);
            world.open().expect("no more than it spares is away");
            world.verify();
            all_is_well(&mut world);
        }
    }
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

/// A crash took the checksums of what was written over, and then a bit changed: nothing says which of the two contents it is, the
/// strip's or the one that the others make. Whichever stays, all of the row agree on it.
#[test]
fn a_strip_that_nothing_speaks_against_stays_and_parity_follows() {
    for profile in PARITY {
        let (mut world, v) = pool(7, 5, profile, "crc32c");
        world.run(v, WRITE, 0, MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run_until_quiet();
        world.run(v, WRITE, 0, 64 * KIB).unwrap();
        world.crash(Crash::Process);
        world.open().unwrap();
        let (device, at) = world.places(v, 0)[0];
        world.disks[device.index() - 1].corrupt(at + 100, 1);
        // Another strip of the row, elsewhere: that one's checksum says so.
        let (beside, at) = world.places(v, 64 * KIB)[0];
        world.disks[beside.index() - 1].corrupt(at + 9 * 4 * KIB, 1);
        assert!(!world.wrong_parity().is_empty(), "{profile:?}: it is as it was");
        world.run_until_quiet();
        assert_eq!(world.run(v, Op::Read, 64 * KIB, 64 * KIB), Ok(()), "{profile:?}");
        world.run_until_quiet();
        assert_eq!(world.wrong_parity(), [], "{profile:?}");
        for away in 1..=5 {
            take_out(&mut world, away);
            world.run_until_quiet();
            assert_eq!(world.run(v, Op::Read, 0, 64 * KIB), Ok(()), "{profile:?} without {away}");
            world.control(Command::OnlineDevice { device: DeviceId(away) }).unwrap();
            world.run_until_quiet();
        }
    }
}

/// One parity was changed silently, the member of the other one is away: what is looked at after a crash stays, as its checksum says,
/// and its row is looked at as soon as all are there.
#[test]
fn a_row_that_could_not_be_looked_at_is_when_its_members_are_back() {
    for (changed, away) in [(3, 4), (4, 3)] {
        let (mut world, v) = pool(7, 5, Profile::Raid6, "crc32c");
        world.run(v, WRITE, 0, MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run_until_quiet();
        world.run(v, WRITE, 0, 4 * KIB).unwrap();
        world.crash(Crash::Process);
        world.open().unwrap();
        let chunk = world.engine().pool().chunks().find(|c| c.rows() > 0).expect("there is data");
        let [changed, away] = [changed, away].map(|member| chunk.columns[column_of(Profile::Raid6, 5, 0, member)]);
        world.disks[changed.device.index() - 1].corrupt(changed.offset + 3 * 4 * KIB, 1);
        take_out(&mut world, away.device.0);
        world.run_until_quiet();
        assert_eq!(world.wrong_parity().len(), 1, "it cannot be looked at without {away:?}");
        world.control(Command::OnlineDevice { device: away.device }).unwrap();
        world.run_until_quiet();
        assert_eq!(world.wrong_parity(), [], "{away:?} is back");
        all_is_well(&mut world);
    }
}

/// One member is away, and what another one has of its rows was changed silently: the two parities of raid6 make up for both, although
/// parity has no checksum that says which of the others is wrong.
fn away_beside_a_changed_strip(other: u32, slip: Option<Slip>) -> Result<(), String> {
    let (mut world, v) = pool(7, 5, Profile::Raid6, "crc32c");
    world.slip = slip;
    reopen(&mut world);
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run_until_quiet();
    let (away, at) = world.places(v, 0)[0];
    if other == away.0 {
        return Ok(());
    }
    let chunk = world.engine().pool().chunks().find(|c| c.rows() > 0).unwrap();
    let on = |device| chunk.columns.iter().find(|c| c.device == device).unwrap().offset;
    let at = on(DeviceId(other)) + at - on(away);
    for block in [0, 3, 4, 15] {
        world.disks[other as usize - 1].corrupt(at + block * 4 * KIB + 100, 16);
    }
    assert!(!world.wrong_parity().is_empty(), "nothing is wrong");
    take_out(&mut world, away.0);
    let read = world.run(v, Op::Read, 0, 64 * KIB);
    read.map_err(|e| format!("{away:?} is away and {other} is wrong: {e:?}"))?;
    // Half a block, whose rest is read before it is written.
    world.run(v, WRITE, 512, 512).map_err(|e| format!("{away:?} is away and {other} is wrong: a write: {e:?}"))?;
    world.run_until_quiet();
    world.control(Command::OnlineDevice { device: away }).unwrap();
    world.run_until_quiet();
    scrub(&mut world);
    check_parity(&world);
    all_is_well(&mut world);
    Ok(())
}

#[test]
fn a_strip_is_made_of_those_that_give_what_its_checksum_says() {
    for other in 1..=5 {
        assert_eq!(away_beside_a_changed_strip(other, None), Ok(()));
    }
    let caught = (1..=5).find_map(|other| away_beside_a_changed_strip(other, Some(Slip::OthersBelieved)).err());
    println!("{caught:?}");
    assert!(caught.is_some(), "it goes unnoticed");
}

/// A member missed a row, and parity of that row was changed silently before it gets its strip: what is made of that is not what its
/// checksum says, and the other parity is right.
fn rebuilt_beside_a_changed_parity(changed: usize, slip: Option<Slip>) -> Result<(), String> {
    let (mut world, v) = pool(7, 5, Profile::Raid6, "crc32c");
    world.slip = slip;
    reopen(&mut world);
    world.run(v, WRITE, 0, 192 * KIB).unwrap();
    let chunk = world.engine().pool().chunks().find(|c| c.rows() > 0).expect("there is data");
    let at = |member: usize| chunk.columns[column_of(Profile::Raid6, 5, 0, member)];
    let (away, parity) = (at(1).device, at(3 + changed));
    take_out(&mut world, away.0);
    world.run(v, WRITE, 0, 192 * KIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run_until_quiet();
    for block in [0, 3, 4, 15] {
        world.disks[parity.device.index() - 1].corrupt(parity.offset + block * 4 * KIB + 100, 16);
    }
    world.control(Command::OnlineDevice { device: away }).unwrap();
    world.run_until_quiet();
    let repaired = |world: &World| world.engine().pool().devices().map(|d| d.counters.repaired).sum::<u64>();
    // Nobody reads Q as long as P is enough.
    let expected = if changed == 0 { (0, 4) } else { (1, 0) };
    let found = (world.wrong_parity().len(), repaired(&world));
    if found != expected {
        return Err(format!("{:?} is wrong, {} blocks were repaired", world.wrong_parity(), found.1));
    }
    all_is_well(&mut world);
    match repaired(&world) == found.1 {
        true => Ok(()),
        false => Err("what was made was repaired when it was read".into()),
    }
}

#[test]
fn what_a_rebuild_makes_is_what_its_checksums_say() {
    for changed in [0, 1] {
        assert_eq!(rebuilt_beside_a_changed_parity(changed, None), Ok(()), "parity {changed}");
    }
    let caught = (0..2).find_map(|changed| rebuilt_beside_a_changed_parity(changed, Some(Slip::MadeBelieved)).err());
    println!("{caught:?}");
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

/// A pool that is too full for units to find other places: what a member holds goes to another one as it is, column by column,
/// from that member or, when it is gone, made from the others.
#[test]
fn a_member_of_a_full_pool_is_replaced_column_by_column() {
    for (profile, is_gone) in PARITY.into_iter().flat_map(|profile| [(profile, false), (profile, true)]) {
        let (mut world, _) = pool(3, 5, profile, "crc32c");
        let strips = 5 - profile.facts().parity as u64;
        let v = world.volume("large", strips * 64 * MIB, VolumeClass::Data);
        for at in (0..strips * 44).step_by(4) {
            world.run(v, WRITE, at * MIB, 4 * MIB).unwrap();
        }
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.add_disk(&shape(96));
        world.run_until_quiet();
        if is_gone {
            take_out(&mut world, 2);
        }
        let data = |world: &World| {
            let chunks = world.engine().pool().chunks().filter(|c| c.rows() > 0);
            chunks.map(|c| (c.id, c.columns.len())).collect::<Vec<_>>()
        };
        let written =
            |world: &World, device| world.engine().pool().device(DeviceId(device)).unwrap().counters.write_bytes;
        let (chunks, before) = (data(&world), written(&world, 3));
        let mut rng = Rng::new(6);
        world.control(Command::ReplaceDevice { device: DeviceId(2), by: DeviceId(6) }).unwrap();
        world.run_until_quiet();
        let job = world.engine().pool().job.clone().unwrap();
        assert_eq!((job.state, job.lost), (State::Finished, 0), "{profile:?}");
        assert!(job.done.abs_diff(job.total) <= job.total / 10, "{job:?}");
        assert_eq!(data(&world), chunks, "every chunk is what it was");
        assert!(written(&world, 3) - before < 8 * MIB, "the others are left alone");
        world.verify();
        check_parity(&world);
        // What is new counts: others go.
        (1..=profile.facts().parity as u32).for_each(|i| take_out(&mut world, 2 + i));
        stir(&mut world, v, &mut rng, 30);
        world.verify();
        assert!(world.wrong.is_empty(), "{:?}", world.wrong);
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
