//! Checksums: what a disk changes silently is noticed, served from another copy and put right.

use std::collections::BTreeSet;

use braid_core::control::{Command, VolumeClass};
use braid_core::request::{Event, Op, RequestError, Witness};
use braid_core::units::{DeviceId, MIB, VolumeId};
use braid_core::{ChunkType, Profile, Slip};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::world::Shape;
use braid_sim::{Crash, Model, World};

use crate::common::{all_is_well, reopen, scrub};

const KIND: [&str; 2] = ["crc32c", "xxh3"];
const BLOCK: u64 = 4096;

fn pool(devices: usize, data: Profile, set: &[(&str, &str)]) -> (World, VolumeId) {
    let shape = Shape { size: 256 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let metadata = if devices > 1 { Profile::Raid1 } else { Profile::Single };
    let mut world = World::with_pool(1, &vec![shape; devices], data, metadata, set);
    let volume = world.volume("v", 1 << 36, VolumeClass::Auto);
    (world, volume)
}

fn wrong_blocks(world: &World) -> Vec<u64> {
    world.engine().report().devices.iter().map(|d| d.io.checksum_errors).collect()
}

#[test]
fn a_changed_byte_is_served_from_the_other_copy_and_put_right() {
    for kind in KIND {
        for (devices, profile) in [(2, Profile::Raid1), (4, Profile::Raid10), (1, Profile::Dup), (3, Profile::Raid1c3)]
        {
            let (mut world, v) = pool(devices, profile, &[("checksum", kind)]);
            for i in 0..40 {
                world.run(v, Op::Write { fua: false }, i * 3 * MIB + i * 512, 150 * 1024).unwrap();
            }
            reopen(&mut world);
            for i in 0..40 {
                let at = (i * 3 * MIB + i * 512) / BLOCK * BLOCK + i % 30 * BLOCK;
                let places = world.places(v, at);
                let (device, place) = places[i as usize % places.len()];
                world.disks[device.index() - 1].corrupt(place + i * 97 % BLOCK, 1 << (i % 8));
            }
            world.verify();
            world.run_until_quiet();
            all_is_well(&mut world);
            // Which copy a read takes is the policy's affair: what was not read is wrong as before.
            let found: u64 = wrong_blocks(&world).iter().sum();
            let left = if profile == Profile::Dup { 40 - found } else { world.unequal().len() as u64 };
            assert!(found > 5 && found + left == 40, "{kind} {profile:?}: {found} and {left}");
            let count = |which: fn(&Event) -> bool| world.events.iter().filter(|e| which(e)).count() as u64;
            assert_eq!(count(|e| matches!(e, Event::BadCopy { .. })), found);
            assert_eq!(count(|e| matches!(e, Event::Repaired { .. })), found);
        }
    }
}

/// An engine that does not compare answers with what a disk made of it, and the oracle sees that.
#[test]
fn a_read_that_is_not_compared_with_its_checksum_is_noticed() {
    for (slip, is_right) in [(None, true), (Some(Slip::SumsNotCompared), false)] {
        let (mut world, v) = pool(2, Profile::Raid1, &[("checksum", "crc32c")]);
        world.run(v, Op::Write { fua: false }, 0, MIB).unwrap();
        world.slip = slip;
        reopen(&mut world);
        // One block of each copy, so that whatever is read has one.
        for (i, (device, place)) in world.places(v, 5 * BLOCK).into_iter().enumerate() {
            world.disks[device.index() - 1].corrupt(place + i as u64 * BLOCK, 1);
        }
        world.run(v, Op::Read, 0, MIB).unwrap();
        world.run_until_quiet();
        assert_eq!(world.wrong.is_empty(), is_right, "{slip:?}: {:?}", world.wrong);
    }
}

/// The first reads come while the first checkpoint is under way: nothing is written over a copy then, but afterwards.
#[test]
fn what_is_found_while_a_pool_opens_is_put_right_too() {
    let (mut world, v) = pool(2, Profile::Raid1, &[("checksum", "crc32c"), ("read_policy", "roundrobin-v3")]);
    world.run(v, Op::Write { fua: false }, 0, MIB).unwrap();
    world.control(Command::Close).unwrap();
    world.run_until_quiet();
    let places = world.places(v, 5 * BLOCK);
    world.crash(Crash::Power);
    for (device, place) in places {
        world.disks[device.index() - 1].corrupt(place, 1);
        world.open().unwrap();
        // Each copy has its turn.
        (0..2).for_each(|_| world.run(v, Op::Read, 5 * BLOCK, BLOCK).unwrap());
        world.run_until_quiet();
        assert_eq!(world.unequal(), [], "copy on device {device}");
        world.crash(Crash::Process);
    }
}

/// Whatever says that it is bad, its checksum or the device.
#[test]
fn what_no_copy_that_is_here_has_is_listed_until_the_member_that_has_it_is_back() {
    for checksum in ["crc32c", "none"] {
        let (mut world, v) = pool(2, Profile::Raid1, &[("checksum", checksum)]);
        world.run(v, Op::Write { fua: false }, 0, MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        let (device, place) = world.places(v, 5 * BLOCK)[0];
        let other = DeviceId(3 - device.0);
        world.control(Command::OfflineDevice { device: other }).unwrap();
        match checksum {
            "none" => {
                let trouble = Trouble::reads_fail(place..place + BLOCK, u64::MAX);
                world.faults.0.push(Fault { device: device.0, trouble });
            }
            _ => world.disks[device.index() - 1].corrupt(place, 1),
        }
        let lost = |world: &World| world.engine().report().lost;
        assert_eq!(world.run(v, Op::Read, 5 * BLOCK, BLOCK), Err(RequestError::Io), "{checksum}");
        world.run_until_quiet();
        assert_eq!(lost(&world), [(v, 5 * BLOCK, BLOCK)], "{checksum}");
        let told = world.events.iter().any(|e| matches!(e, Event::BlocksLost { .. }));
        assert!(!told, "{checksum}: it is not lost for good");
        world.control(Command::OnlineDevice { device: other, found: None }).unwrap();
        world.run_until_quiet();
        assert_eq!(lost(&world), [], "{checksum}");
        world.run(v, Op::Read, 0, MIB).unwrap();
        all_is_well(&mut world);
    }
}

#[test]
fn with_no_good_copy_just_that_block_fails_until_it_is_written_again() {
    let (mut world, v) = pool(2, Profile::Raid1, &[("checksum", "crc32c")]);
    world.run(v, Op::Write { fua: false }, 0, MIB).unwrap();
    reopen(&mut world);
    for (device, place) in world.places(v, 5 * BLOCK) {
        world.disks[device.index() - 1].corrupt(place, 1);
    }
    assert_eq!(world.run(v, Op::Read, 5 * BLOCK, BLOCK), Err(RequestError::Io));
    assert_eq!(world.run(v, Op::Read, 0, MIB), Err(RequestError::Io));
    world.run(v, Op::Read, 0, 5 * BLOCK).unwrap();
    world.run(v, Op::Read, 6 * BLOCK, 64 * BLOCK).unwrap();
    // Half of a block needs the other half.
    assert_eq!(world.run(v, Op::Write { fua: false }, 5 * BLOCK + 512, 512), Err(RequestError::Io));
    let lost: Vec<_> = world.events.iter().filter(|e| matches!(e, Event::BlocksLost { .. })).collect();
    assert!(matches!(lost[..], [Event::BlocksLost { offset: 20480, len: BLOCK, .. }]), "{lost:?}");
    assert_eq!(world.engine().report().lost.len(), 1);
    world.run(v, Op::Write { fua: false }, 5 * BLOCK, BLOCK).unwrap();
    world.run(v, Op::Read, 0, MIB).unwrap();
    assert_eq!(world.engine().report().lost, []);
    all_is_well(&mut world);
}

/// Two copies that differ say nothing of each other; of three, two do; a checksum knows of any number, and so also that none
/// is right.
#[test]
fn a_scrub_says_who_says_which_copy_is_right() {
    let cases = [
        (Profile::Raid1, "none", 1, Witness::Nobody, vec![false, false]),
        (Profile::Raid1, "crc32c", 1, Witness::Checksum, vec![true, false]),
        (Profile::Raid1, "crc32c", 2, Witness::Checksum, vec![false, false]),
        (Profile::Raid1c3, "none", 1, Witness::Majority, vec![true, false, false]),
        (Profile::Raid1c3, "xxh3", 2, Witness::Checksum, vec![true, true, false]),
    ];
    for (profile, kind, changed, by, expected) in cases {
        let (mut world, v) = pool(3, profile, &[("checksum", kind)]);
        world.run(v, Op::Write { fua: false }, 0, MIB).unwrap();
        reopen(&mut world);
        for (i, (device, place)) in world.places(v, 3 * BLOCK).into_iter().take(changed).enumerate() {
            world.disks[device.index() - 1].corrupt(place + i as u64 * 512, 1);
        }
        scrub(&mut world);
        let told = world.events.iter().find_map(|e| match e {
            Event::ScrubDifference { copies, witness, .. } => Some((*witness, copies.clone())),
            _ => None,
        });
        let (witness, copies) = told.expect("copies differ");
        let suspects: Vec<bool> = copies.iter().map(|c| c.suspect).collect();
        assert_eq!((witness, suspects), (by, expected), "{profile:?} {kind}");
    }
}

/// Pages go home, are evicted and come back; what they say stays true.
#[test]
fn a_cache_that_is_too_small_costs_time_and_nothing_else() {
    for kind in KIND {
        let (mut world, v) = pool(3, Profile::Raid1, &[("checksum", kind), ("checksum_cache", "256K")]);
        for i in 0..600 {
            world
                .run(v, Op::Write { fua: false }, i * 37 % 80 * MIB + i % 7 * 64 * 1024, BLOCK * (1 + i % 20))
                .unwrap();
        }
        all_is_well(&mut world);
        reopen(&mut world);
        all_is_well(&mut world);
        assert_eq!(wrong_blocks(&world), [0; 3]);
        // What was discarded leaves nothing behind, checksums included.
        world.run(v, Op::Discard, 0, 100 * MIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        all_is_well(&mut world);
        assert!(world.chunks(ChunkType::Data).len() <= 1, "{:?}", world.chunks(ChunkType::Data));
        reopen(&mut world);
        all_is_well(&mut world);
    }
}

/// Once its page is in memory nothing asks about a read any more; what a disk changed is noticed all the same.
#[test]
fn a_read_whose_sums_are_at_hand_is_compared_on_arrival() {
    for kind in KIND {
        for (devices, profile) in [(1, Profile::Single), (4, Profile::Raid10), (3, Profile::Raid0)] {
            let (mut world, v) = pool(devices, profile, &[("checksum", kind)]);
            for i in 0..20 {
                world.run(v, Op::Write { fua: false }, i * MIB + i * 512, 150 * 1024).unwrap();
            }
            // The edges of those writes were read too.
            world.compared = (0, 0);
            for i in 0..20 {
                // Within units, over their ends, and joined by neighbours.
                world.run(v, Op::Read, i * MIB + 8 * BLOCK, BLOCK).unwrap();
                world.run(v, Op::Read, i * MIB + 12 * BLOCK + 512, 9 * BLOCK).unwrap();
                for k in 0..8 {
                    world.submit(0, v, Op::Read, i * MIB + k * BLOCK, BLOCK, Default::default());
                }
                world.run_until_answered();
            }
            let (there, asked) = world.compared;
            assert!(there >= 60 && asked == 0, "{kind} {profile:?}: {there} on arrival, {asked} later");
            let (device, place) = world.places(v, 3 * MIB + 8 * BLOCK)[0];
            world.disks[device.index() - 1].corrupt(place + 77, 1);
            let result = world.run(v, Op::Read, 3 * MIB + 8 * BLOCK, BLOCK);
            assert_eq!(result.is_ok(), profile == Profile::Raid10, "{kind} {profile:?}");
        }
    }
}

/// A cache of 64 pages for 110, reads and writes of the same blocks beside each other.
#[test]
fn pages_come_and_go_while_reads_are_under_way() {
    for seed in 0..4 {
        let (mut world, v) = pool(2, Profile::Raid1, &[("checksum", "xxh3"), ("checksum_cache", "256K")]);
        let mut rng = braid_sim::Rng::new(seed);
        for i in 0..165 {
            world.run(v, Op::Write { fua: false }, i * MIB, MIB).unwrap();
        }
        let place = |rng: &mut braid_sim::Rng| rng.below(165 * 16) * 64 * 1024;
        world.compared = (0, 0);
        for _ in 0..1500 {
            let at = place(&mut rng) + rng.below(14) * BLOCK;
            let op = match rng.below(4) {
                0 => Op::Write { fua: false },
                1 if rng.below(20) == 0 => Op::Discard,
                _ => Op::Read,
            };
            let len = BLOCK * (1 + rng.below(6)) - rng.below(2) * 512;
            world.submit(0, v, op, at, len, Default::default());
            // The same again at once: what is read may be changing.
            if op != Op::Read {
                world.submit(1, v, Op::Read, at, len, Default::default());
            }
            for _ in 0..rng.below(4) {
                world.step();
            }
        }
        world.run_until_answered();
        let (there, asked) = world.compared;
        assert!(there > 200 && asked > 200, "seed {seed}: {there} on arrival, {asked} later");
        all_is_well(&mut world);
        assert_eq!(wrong_blocks(&world), [0; 2], "seed {seed}");
    }
}

#[test]
fn a_page_that_is_wrong_or_old_on_one_disk_is_taken_from_the_other() {
    let (mut world, v) = pool(2, Profile::Raid1, &[("checksum", "crc32c")]);
    for i in 0..20 {
        world.run(v, Op::Write { fua: false }, i * 4 * MIB, 8 * BLOCK).unwrap();
    }
    reopen(&mut world);
    let old = world.disks[0].clone();
    for i in 0..20 {
        world.run(v, Op::Write { fua: false }, i * 4 * MIB, 8 * BLOCK).unwrap();
    }
    reopen(&mut world);
    let pages: Vec<u64> =
        world.engine().pool().volume(VolumeId(0)).unwrap().map.entries().map(|(unit, _)| unit).collect();
    let mut damaged = Vec::new();
    for unit in pages {
        for block in 0..16 {
            let at = unit * 65536 + block * BLOCK;
            let Some(&(_, place)) = world.places(VolumeId(0), at).iter().find(|p| p.0.0 == 1) else { continue };
            let mut content = braid_sim::disk::Content::new();
            content.push_bytes(&old.read_bytes(place, BLOCK));
            match block % 2 {
                0 => world.disks[0].write(place, &content, true, || true),
                _ => {
                    world.disks[0].corrupt(place + 700, 1);
                    damaged.push(place + 512);
                }
            }
        }
    }
    world.events.clear();
    all_is_well(&mut world);
    // One that is old is no error, one that is damaged is counted and told.
    assert!(damaged.len() > 3);
    assert_eq!(wrong_blocks(&world), [damaged.len() as u64, 0]);
    let told = |e: &Event| match *e {
        Event::BadRecord { device, device_offset, len: 512 } => Some((device.0, device_offset)),
        _ => None,
    };
    let told: BTreeSet<_> = world.events.iter().filter_map(told).collect();
    assert_eq!(told, damaged.into_iter().map(|place| (1, place)).collect());
    reopen(&mut world);
    assert_eq!(world.unequal_pages(), []);
}

#[test]
fn after_an_unclean_stop_what_is_torn_is_accepted_and_summed_anew() {
    for seed in 0..30 {
        let (mut world, v) = pool(2, Profile::Raid1, &[("checksum", "crc32c")]);
        world.rng = braid_sim::Rng::new(seed);
        for i in 0..8 {
            world.run(v, Op::Write { fua: false }, i * 64 * 1024, 64 * 1024).unwrap();
        }
        world.run(v, Op::Flush, 0, 0).unwrap();
        for i in 0..8 {
            world.submit(0, v, Op::Write { fua: false }, i * 64 * 1024 + i * 512, 40 * 1024, Default::default());
        }
        for _ in 0..seed * 2 {
            world.step();
        }
        world.crash(if seed % 2 == 0 { Crash::Power } else { Crash::Process });
        world.open().unwrap();
        all_is_well(&mut world);
        assert!(!world.events.iter().any(|e| matches!(e, Event::BlocksLost { .. })));
    }
}

#[test]
fn a_volume_without_checksums_is_not_looked_at() {
    let (mut world, v) = pool(2, Profile::Raid1, &[("checksum", "crc32c")]);
    world.control(Command::SetVolumeChecksum { volume: v, on: false }).unwrap();
    world.run(v, Op::Write { fua: false }, 0, MIB).unwrap();
    assert!(world.control(Command::SetVolumeChecksum { volume: v, on: true }).is_err());
    let (device, place) = world.places(v, 0)[0];
    world.disks[device.index() - 1].corrupt(place, 1);
    for _ in 0..50 {
        world.run(v, Op::Read, 0, BLOCK).unwrap();
    }
    assert_eq!(wrong_blocks(&world), [0; 2]);
    assert!(!world.wrong.is_empty(), "the oracle sees what nobody else does");
}

/// Without another copy to compare with, and without a read.
#[test]
fn a_scrub_finds_what_one_copy_hides_and_puts_right_what_it_can() {
    for (devices, profile) in [(1, Profile::Single), (2, Profile::Raid1), (1, Profile::Dup), (4, Profile::Raid10)] {
        let (mut world, v) = pool(devices, profile, &[("checksum", "crc32c")]);
        for i in 0..30 {
            world.run(v, Op::Write { fua: false }, i * 3 * MIB, 100 * 1024).unwrap();
        }
        reopen(&mut world);
        for i in 0..30 {
            let places = world.places(v, i * 3 * MIB + i % 25 * BLOCK);
            let (device, place) = places[i as usize % places.len()];
            world.disks[device.index() - 1].corrupt(place + i * 131 % BLOCK, 1 << (i % 8));
        }
        scrub(&mut world);
        assert_eq!(wrong_blocks(&world).iter().sum::<u64>(), 30, "{profile:?}");
        let report = world.engine().report();
        assert_eq!(report.scrub.scrub.differences, 30);
        let alone = profile == Profile::Single;
        assert_eq!(report.lost.len(), if alone { 30 } else { 0 });
        assert_eq!(world.unequal(), []);
        if alone {
            continue;
        }
        all_is_well(&mut world);
        scrub(&mut world);
        assert_eq!(wrong_blocks(&world).iter().sum::<u64>(), 30, "nothing new");
    }
}

/// After a power cut what was being written is taken as it is found; everything else is still held to its checksums, and
/// so is that when it was looked at.
#[test]
fn only_what_was_being_written_is_taken_as_it_is() {
    let (mut world, v) = pool(2, Profile::Raid1, &[("checksum", "xxh3")]);
    for i in 0..30 {
        world.run(v, Op::Write { fua: false }, i * 4 * MIB, 100 * 1024).unwrap();
    }
    reopen(&mut world);
    world.run(v, Op::Write { fua: true }, 40 * MIB, BLOCK).unwrap();
    world.crash(Crash::Power);
    world.open().unwrap();
    let is_known = |world: &World, at: u64| world.engine().knows_better(v, at / 65536);
    assert!(is_known(&world, 0) && !is_known(&world, 40 * MIB));
    world.run_until_quiet();
    assert!(is_known(&world, 40 * MIB), "an idle pool becomes clean");
    for at in [4 * MIB, 40 * MIB] {
        for (device, place) in world.places(v, at) {
            world.disks[device.index() - 1].corrupt(place + 5, 1);
        }
        assert_eq!(world.run(v, Op::Read, at, BLOCK), Err(RequestError::Io));
    }
}

#[test]
fn pages_that_differ_are_written_anew_by_a_scrub() {
    let (mut world, v) = pool(2, Profile::Raid1, &[("checksum", "crc32c")]);
    for i in 0..30 {
        world.run(v, Op::Write { fua: false }, i * 3 * MIB, 100 * 1024).unwrap();
    }
    for is_cached in [false, true] {
        reopen(&mut world);
        if is_cached {
            world.verify();
        }
        let internal = world.engine().pool().volume(VolumeId(0)).unwrap();
        let pages: Vec<u64> = internal
            .map
            .entries()
            .flat_map(|(unit, e)| (0..16).filter(move |b| e.written() >> b & 1 == 1).map(move |b| unit * 16 + b))
            .collect();
        assert!(pages.len() > 5);
        for &page in &pages {
            let (device, place) = world.places(VolumeId(0), page * BLOCK)[page as usize % 2];
            world.disks[device.index() - 1].corrupt(place + page * 67 % BLOCK, 4);
        }
        scrub(&mut world);
        world.control(Command::Checkpoint).unwrap();
        world.run_until_quiet();
        assert_eq!(world.unequal_pages(), [], "cached: {is_cached}");
        all_is_well(&mut world);
        // What is in memory is right whatever a copy says: a scrub tells of the difference.
        let counted: u64 = wrong_blocks(&world).iter().sum();
        assert_eq!(counted, if is_cached { 0 } else { pages.len() as u64 });
    }
}
