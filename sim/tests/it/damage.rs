//! Damaged, hostile and torn records: a clear answer, never a panic, and the other copy where there is one.

use braid_core::Profile;
use braid_core::control::VolumeClass;
use braid_core::meta::codec::crc32c;
use braid_core::meta::superblock::{SLOTS, SUPERBLOCK_SIZE, SlotError, Superblock, newest};
use braid_core::request::Op;
use braid_core::units::{MIB, VolumeId};
use braid_sim::Model;
use braid_sim::disk::Content;
use braid_sim::world::Shape;
use braid_sim::{Crash, Rng, World};

fn pool(devices: usize, profile: Profile) -> (World, VolumeId) {
    let shape = Shape { size: 64 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let mut world = World::with_pool(1, &vec![shape; devices], profile, profile.system(), &[]);
    let v = world.volume("v", 1 << 36, VolumeClass::Auto);
    for i in 0..40 {
        world.run(v, Op::Write { fua: false }, i * 30 * MIB, 8192).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    (world, v)
}

#[test]
fn one_flipped_byte_anywhere_in_a_slot_is_found_and_the_other_slot_is_used() {
    let (world, _) = pool(1, Profile::Single);
    let slots = SLOTS.map(|at| world.disks[0].read_bytes(at, SUPERBLOCK_SIZE));
    let good = newest([&slots[0], &slots[1]]).unwrap();
    let new = usize::from(good.slot() == SLOTS[1]);
    for byte in 0..SUPERBLOCK_SIZE as usize {
        let mut bad = slots.clone();
        bad[new][byte] ^= 0x40;
        match Superblock::decode(&bad[new]).unwrap_err() {
            SlotError::Foreign => assert!(byte < 8),
            SlotError::Version(_) => assert!((8..12).contains(&byte)),
            SlotError::Damaged(why) => assert!(!why.is_empty()),
        }
        // The format writes one slot; a checkpoint since then has written the other.
        if byte % 97 == 0 {
            let other = newest([&bad[0], &bad[1]]).unwrap();
            assert!(other.generation < good.generation, "byte {byte}");
            bad[1 - new][byte] ^= 1;
            assert!(newest([&bad[0], &bad[1]]).is_err(), "byte {byte}");
        }
    }
}

#[test]
fn records_damaged_on_one_copy_are_read_from_the_other() {
    let (mut world, _) = pool(2, Profile::Raid1);
    world.control(braid_core::control::Command::Checkpoint).unwrap();
    world.run_until_quiet();
    world.crash(Crash::Power);
    let system = world.superblocks().remove(0).system;
    for victim in [0, 1] {
        let disks = world.disks.clone();
        for chunk in &system {
            let column = chunk.columns.iter().find(|c| c.device.index() == victim + 1).unwrap();
            for at in (column.offset..column.offset + chunk.stripe).step_by(4096) {
                world.disks[victim].corrupt(at + 100, 1);
            }
        }
        world.open().unwrap();
        world.verify();
        world.run_until_quiet();
        assert!(world.wrong.is_empty(), "{:?}", world.wrong);
        world.crash(Crash::Process);
        world.disks = disks;
    }
    for disk in 0..2 {
        for chunk in &system {
            for at in (chunk.columns[disk].offset..chunk.columns[disk].offset + chunk.stripe).step_by(4096) {
                world.disks[disk].corrupt(at + 100, 1);
            }
        }
    }
    let why = world.open().unwrap_err();
    assert!(why.contains("damaged on every copy"), "{why}");
}

#[test]
fn decoding_a_superblock_survives_anything() {
    let (world, _) = pool(2, Profile::Raid1);
    let slot = world.superblocks().remove(0).encode();
    let mut rng = Rng::new(11);
    for _ in 0..20_000 {
        let mut bytes = slot.clone();
        for _ in 0..rng.between(1, 4) {
            let within = if rng.percent(90) { 400 } else { SUPERBLOCK_SIZE };
            let at = rng.below(within) as usize;
            bytes[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1]);
        }
        if rng.percent(10) {
            bytes.truncate(rng.below(SUPERBLOCK_SIZE) as usize);
        }
        if rng.percent(80) && bytes.len() > 16 {
            bytes[12..16].fill(0);
            let crc = crc32c(&bytes);
            bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        }
        let _ = Superblock::decode(&bytes);
    }
}

/// Changes something in a sealed block and seals it again: what a checksum does not protect from.
fn reseal(bytes: &mut [u8], crc_at: usize, rng: &mut Rng, within: u64) {
    for _ in 0..rng.between(1, 3) {
        let at = rng.below(within) as usize;
        if !(crc_at..crc_at + 4).contains(&at) {
            bytes[at] = *rng.pick(&[0, 1, 2, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)]);
        }
    }
    bytes[crc_at..crc_at + 4].fill(0);
    let crc = crc32c(bytes);
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn opening_hostile_images_ends_in_a_pool_or_a_sentence() {
    let (mut world, _) = pool(2, Profile::Raid1);
    world.crash(Crash::Process);
    let (good, faults) = (world.disks.clone(), world.faults.clone());
    let mut rng = Rng::new(5);
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..1500 {
        let mut world = World::new(1);
        world.disks = good.clone();
        world.faults = faults.clone();
        let sb = world.superblocks().remove(0);
        let put = |world: &mut World, disk: usize, at: u64, bytes: &[u8]| {
            let mut content = Content::new();
            content.push_bytes(bytes);
            world.disks[disk].write(at, &content, true, || true);
        };
        match rng.below(3) {
            0 => {
                let mut bytes = sb.encode();
                reseal(&mut bytes, 12, &mut rng, 500);
                put(&mut world, 0, sb.slot(), &bytes);
            }
            _ => {
                // Root pages are what the superblock checks as a whole: it has to agree with the forgery.
                let log_bytes = u64::from(sb.log_blocks) * 4096;
                let in_log = rng.percent(50);
                let byte = if in_log { rng.below(8) * 4096 } else { log_bytes + rng.below(64) * 4096 };
                let at = sb.system[0].columns[0].offset + byte;
                let mut bytes = world.disks[0].read_bytes(at, 4096);
                if bytes[0] == 0 {
                    continue;
                }
                reseal(&mut bytes, 4, &mut rng, 700);
                for disk in 0..2 {
                    put(&mut world, disk, sb.system[0].columns[disk].offset + byte, &bytes);
                }
                let mut root = Vec::new();
                for &(first, count) in &sb.root {
                    for page in first..first + u64::from(count) {
                        let at = sb.system[0].columns[0].offset + (page & 0xff_ffff) * 4096;
                        root.extend_from_slice(&world.disks[0].read_bytes(at, 4096)[32..]);
                    }
                }
                root.truncate(sb.root_len as usize);
                for (disk, mut sb) in world.superblocks().into_iter().enumerate() {
                    sb.root_crc = crc32c(&root);
                    put(&mut world, disk, sb.slot(), &sb.encode());
                }
            }
        }
        match world.open() {
            Ok(()) => {
                opened += 1;
                world.run_until_quiet();
            }
            Err(why) => {
                assert!(!why.is_empty());
                refused += 1;
            }
        }
    }
    assert!(opened > 100 && refused > 50, "{opened} opened, {refused} refused");
}

#[test]
fn a_pool_of_two_powers_and_no_superblock_says_so() {
    let (mut world, _) = pool(1, Profile::Single);
    world.crash(Crash::Power);
    for slot in SLOTS {
        world.disks[0].corrupt(slot + 2000, 1);
    }
    let why = world.open().unwrap_err();
    assert!(why.contains("no member of the pool was found"), "{why}");
}

/// Writes a superblock's changes to all members, and a change of the first root page with checksums that agree.
fn forge(world: &mut World, change: impl Fn(&mut Superblock), patch: impl Fn(&mut [u8])) {
    let put = |world: &mut World, disk: usize, at: u64, bytes: &[u8]| {
        let mut content = Content::new();
        content.push_bytes(bytes);
        world.disks[disk].write(at, &content, true, || true);
    };
    let all = world.superblocks();
    let sb = all[0].clone();
    let (first, count) = sb.root[0];
    let byte = (first & 0xff_ffff) * 4096;
    assert_eq!((sb.root.len(), count), (1, 1), "the root is one page");
    let mut page = world.disks[0].read_bytes(sb.system[0].columns[0].offset + byte, 4096);
    patch(&mut page);
    page[4..8].fill(0);
    let crc = crc32c(&page);
    page[4..8].copy_from_slice(&crc.to_le_bytes());
    for (disk, mut sb) in all.into_iter().enumerate() {
        put(world, disk, sb.system[0].columns[disk].offset + byte, &page);
        sb.root_crc = crc32c(&page[32..][..sb.root_len as usize]);
        let other = SLOTS.into_iter().find(|&slot| slot != sb.slot()).expect("two slots");
        put(world, disk, other, &[0; SUPERBLOCK_SIZE as usize]);
        change(&mut sb);
        put(world, disk, sb.slot(), &sb.encode());
    }
}

/// Each row: a number off a disk that sizes something here. It ends in a pool that works or in a sentence, and at no
/// time is more asked to be read than a log ring.
#[test]
fn numbers_that_size_something_are_bounded() {
    let (mut world, _) = pool(2, Profile::Raid1);
    world.control(braid_core::control::Command::Checkpoint).unwrap();
    world.run_until_quiet();
    world.crash(Crash::Process);
    let good = world.disks.clone();
    type Change = fn(&mut Superblock);
    type Patch = fn(&mut [u8]);
    let same: Change = |_| ();
    let keep: Patch = |_| ();
    // Page header of 32 bytes, tag, three profiles, next chunk, next volume.
    let rows: [(&str, bool, Change, Patch); 17] = [
        ("as it was", true, same, keep),
        ("next chunk: none left", true, same, |p| p[36..40].copy_from_slice(&(1u32 << 30).to_le_bytes())),
        ("next chunk: one left", true, same, |p| p[36..40].copy_from_slice(&((1u32 << 30) - 1).to_le_bytes())),
        ("next chunk: too far", false, same, |p| p[36..40].copy_from_slice(&((1u32 << 30) + 1).to_le_bytes())),
        ("next chunk: all ones", false, same, |p| p[36..40].fill(0xff)),
        ("next chunk: zero", true, same, |p| p[36..40].fill(0)),
        ("next volume: none left", true, same, |p| p[40..44].copy_from_slice(&(1u32 << 20).to_le_bytes())),
        ("next volume: all ones", false, same, |p| p[40..44].fill(0xff)),
        ("striped system chunks", false, same, |p| p[35] = 6),
        ("a long ring", false, |sb| sb.log_blocks = 2049, keep),
        ("a ring as long as a chunk can be", false, |sb| sb.log_blocks = (1 << 22) - 1, keep),
        ("an endless ring", false, |sb| sb.log_blocks = u32::MAX, keep),
        ("a ring of nothing", false, |sb| sb.log_blocks = 0, keep),
        ("a root as long as can be said", false, |sb| sb.root[0].1 = u32::MAX, keep),
        ("a root of half a million pages", false, |sb| sb.root = vec![(sb.root[0].0, 4096); 128], keep),
        ("a small device", false, |sb| sb.device_size = 1 << 20, keep),
        ("a huge device", false, |sb| sb.device_size = u64::MAX, keep),
    ];
    for (name, opens, change, patch) in rows {
        world.disks = good.clone();
        forge(&mut world, change, patch);
        match world.open() {
            Ok(()) => {
                assert!(opens, "{name}: opened");
                assert!(world.read_max <= 8 * MIB, "{name}: {} bytes at once", world.read_max);
                // What is used up is refused; nothing is indexed or counted past its end.
                for i in 0..3 {
                    let name = format!("new{i}");
                    let create =
                        braid_core::control::Command::CreateVolume { name, size: MIB, class: VolumeClass::Auto };
                    if let Ok(braid_core::control::Done::Volume(v)) = world.control(create) {
                        world.oracle.create(v.0);
                        let _ = world.run(v, Op::Write { fua: false }, 0, MIB);
                    }
                }
                for i in 0..40 {
                    let _ = world.run(VolumeId(1), Op::Write { fua: false }, i * MIB, MIB);
                }
                world.run_until_quiet();
                world.crash(Crash::Process);
                world.open().unwrap_or_else(|why| panic!("{name}, again: {why}"));
                world.verify();
                assert!(world.wrong.is_empty(), "{name}: {:?}", world.wrong);
                world.crash(Crash::Process);
            }
            Err(why) => {
                assert!(!opens && !why.is_empty(), "{name}: {why}");
                assert!(world.read_max <= 8 * MIB, "{name}: {} bytes at once", world.read_max);
            }
        }
        world.oracle = Default::default();
        world.answers.clear();
    }
}

#[test]
fn who_lacks_all_that_have_the_records_is_told_which_members_have_them() {
    let (mut world, _) = pool(4, Profile::Raid1);
    let holders: Vec<u32> = world.superblocks()[0].system[0].columns.iter().map(|c| c.device.0).collect();
    let [a, b] = holders[..] else { panic!("two copies: {holders:?}") };
    world.crash(Crash::Process);
    let whole = world.disks.clone();
    let take = |world: &mut World, device: u32| SLOTS.map(|at| world.disks[device as usize - 1].corrupt(at + 100, 1));
    take(&mut world, a);
    take(&mut world, b);
    let why = world.open().unwrap_err();
    assert!(why.contains(&format!("device {a} and device {b}, and not on what is here: connect one of them")), "{why}");
    world.disks = whole;
    take(&mut world, b);
    world.open().unwrap();
}
