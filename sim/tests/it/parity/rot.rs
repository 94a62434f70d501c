//! What changed silently on a member of a row: found by checksums, by two parities, by what a rebuild makes.

use braid_core::control::Command;
use braid_core::profile::column_of;
use braid_core::request::{Event, Op, RequestError};
use braid_core::units::{DeviceId, KIB, MIB, VolumeId};
use braid_core::{Profile, Slip};
use braid_sim::disk::Content;
use braid_sim::rng::Rng;
use braid_sim::{Crash, World};

use super::{PARITY, WRITE, check_parity, pool, stir, take_out};
use crate::common::{all_is_well, reopen, scrub};

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

/// Rows that are written, then the beginning of the first once more, and the process ends before the checksums of that are on the disks.
fn cut_behind_a_write(profile: Profile, len: u64, slip: Option<Slip>) -> (World, VolumeId) {
    let (mut world, v) = pool(7, 5, profile, "crc32c");
    world.run(v, WRITE, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run_until_quiet();
    world.run(v, WRITE, 0, len).unwrap();
    world.crash(Crash::Process);
    world.slip = slip;
    world.open().unwrap();
    (world, v)
}

/// A crash took the checksums of what was written over, and then a bit changed: with one parity nothing says which of two contents it
/// is, the strip's or the one that the others make. Whichever stays, all of the row agree on it. Where two parities make the same, each
/// by itself, it is that.
fn changed_behind_a_cut(profile: Profile, slip: Option<Slip>) -> Result<(), String> {
    let (mut world, v) = cut_behind_a_write(profile, 64 * KIB, slip);
    // What the stripe journal has is in place.
    world.run_until(|world| world.engine().report().counters.checkpoints > 0);
    let (device, at) = world.places(v, 0)[0];
    let disk = |device: DeviceId| device.index() - 1;
    let before = world.disks[disk(device)].read_bytes(at, 64 * KIB);
    world.disks[disk(device)].corrupt(at + 100, 1);
    // Another strip of the row, elsewhere: that one's checksum says so.
    let (beside, there) = world.places(v, 64 * KIB)[0];
    world.disks[disk(beside)].corrupt(there + 9 * 4 * KIB, 1);
    assert!(!world.wrong_parity().is_empty(), "{profile:?}: it is as it was");
    world.run_until_quiet();
    let is_made_good = world.disks[disk(device)].read_bytes(at, 64 * KIB) == before;
    world.run(v, Op::Read, 64 * KIB, 64 * KIB).map_err(|e| format!("{profile:?}: {e:?}"))?;
    world.run_until_quiet();
    assert_eq!(world.wrong_parity(), [], "{profile:?}");
    for away in 1..=5 {
        take_out(&mut world, away);
        world.run_until_quiet();
        world.run(v, Op::Read, 0, 64 * KIB).map_err(|e| format!("{profile:?} without {away}: {e:?}"))?;
        world.control(Command::OnlineDevice { device: DeviceId(away), found: None }).unwrap();
        world.run_until_quiet();
    }
    match is_made_good == (profile == Profile::Raid6) {
        true => Ok(()),
        false => Err(format!("{profile:?}: the strip as it was before: {is_made_good}")),
    }
}

#[test]
fn a_strip_that_a_crash_may_have_cut_is_what_two_parities_make_of_it_and_stays_with_one() {
    for profile in PARITY {
        assert_eq!(changed_behind_a_cut(profile, None), Ok(()));
    }
    let caught = changed_behind_a_cut(Profile::Raid6, Some(Slip::ParitiesNotAsked));
    println!("{caught:?}");
    assert_eq!(caught, Err("Raid6: the strip as it was before: false".into()));
}

/// One parity was changed silently, the member of the other one is away: what is looked at after a crash stays, as its checksum says,
/// and its row is looked at as soon as all are there.
#[test]
fn a_row_that_could_not_be_looked_at_is_when_its_members_are_back() {
    for (changed, away) in [(3, 4), (4, 3)] {
        let (mut world, _) = cut_behind_a_write(Profile::Raid6, 4 * KIB, None);
        let chunk = world.engine().pool().chunks().find(|c| c.rows() > 0).expect("there is data");
        let [changed, away] = [changed, away].map(|member| chunk.columns[column_of(Profile::Raid6, 5, 0, member)]);
        world.disks[changed.device.index() - 1].corrupt(changed.offset + 3 * 4 * KIB, 1);
        take_out(&mut world, away.device.0);
        world.run_until_quiet();
        assert_eq!(world.wrong_parity().len(), 1, "it cannot be looked at without {away:?}");
        world.control(Command::OnlineDevice { device: away.device, found: None }).unwrap();
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
    world.control(Command::OnlineDevice { device: away, found: None }).unwrap();
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
    world.control(Command::OnlineDevice { device: away, found: None }).unwrap();
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

/// A strip and its parity changed silently: no copy of the block is right, which is told once, also after it was read again.
#[test]
fn a_block_of_a_row_that_is_lost_is_told() {
    for (profile, strips) in [(Profile::Raid5, 2), (Profile::Raid6, 3)] {
        let (mut world, v) = pool(7, 5, profile, "crc32c");
        world.run(v, WRITE, 0, MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run_until_quiet();
        let chunk = world.engine().pool().chunks().find(|c| c.rows() > 0).expect("there is data");
        let data = 5 - profile.facts().parity;
        let rotten: Vec<_> = (0..strips).map(|i| if i == 0 { 0 } else { data + i - 1 }).collect();
        let places = rotten.into_iter().map(|member| chunk.columns[column_of(profile, 5, 0, member)]);
        for column in places.collect::<Vec<_>>() {
            world.disks[column.device.index() - 1].corrupt(column.offset + 100, 1 << column.device.0);
        }
        assert_eq!(world.run(v, Op::Read, 0, 4 * KIB), Err(RequestError::Io), "{profile:?}");
        world.run_until_quiet();
        let told = world.events.iter().filter(|e| matches!(e, Event::BlocksLost { offset: 0, len: 4096, .. })).count();
        assert_eq!((told, world.engine().report().lost), (1, vec![(v, 0, 4096)]), "{profile:?}");
    }
}
