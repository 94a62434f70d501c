//! Rows of strips with parity: written, read without some members, converted, left and joined by members.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | at work |
//! | `cuts.rs` | power cuts and the stripe journal |
//! | `looks.rs` | a scrub looks at rows |
//! | `rot.rs` | what changed silently |

mod cuts;
mod looks;
mod rot;

use braid_core::control::{Command, VolumeClass};
use braid_core::job::Choice;
use braid_core::profile::column_of;
use braid_core::request::Op;
use braid_core::scrub::State;
use braid_core::units::{DeviceId, KIB, MIB, VolumeId};
use braid_core::{ChunkType, DeviceState, Profile, Slip};
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
        world.control(Command::OnlineDevice { device: DeviceId(device), found: None }).unwrap();
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
            world.control(Command::OnlineDevice { device: DeviceId(2), found: None }).unwrap();
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

/// `status` counts it as a block of data that is not what its checksum says.
#[test]
fn parity_that_changed_beside_data_that_did_not_counts_for_its_member() {
    for profile in PARITY {
        let (mut world, v) = pool(1, 3 + profile.facts().parity, profile, "crc32c");
        world.run(v, WRITE, 0, 4 * 3 * 64 * KIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run_until_quiet();
        let pool = world.engine().pool();
        let entry = pool.volume(v).unwrap().map.get(0);
        let chunk = pool.chunk(entry.chunk()).unwrap();
        let row = chunk.row_of(entry.unit()).unwrap().0.into();
        let column = chunk.columns[column_of(profile, chunk.columns.len(), row, 3)];
        world.disks[column.device.index() - 1].corrupt(column.offset + row * 64 * KIB + 100, 1);
        assert_eq!(world.wrong_parity().len(), 1);
        scrub(&mut world);
        let counts = |world: &World| -> Vec<u64> {
            world.engine().pool().devices().map(|d| d.counters.checksum_errors).collect()
        };
        let alone: Vec<u64> = world.engine().pool().devices().map(|d| u64::from(d.id == column.device)).collect();
        assert_eq!(counts(&world), alone, "{profile:?}");
        check_parity(&world);
        scrub(&mut world);
        assert_eq!(counts(&world), alone, "{profile:?}: once");
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
