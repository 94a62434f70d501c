//! A flipped bit anywhere in anything that a pool keeps on its disks: served right, noticed, put right, and where there is no
//! other copy, just that block is lost.
//!
//! Nothing here knows what stands where. Every block of a member is hit in turn; what the pool then neither notices nor
//! writes anew has to be of no use, and it is if the same block can be spoilt on every member without harm.

use std::ops::Range;
use std::panic::catch_unwind;

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::meta::codec::crc32c;
use braid_core::meta::superblock::SUPERBLOCK_SIZE;
use braid_core::request::{Event, Op};
use braid_core::units::{BLOCK, MIB};
use braid_sim::disk::{Content, Disk};
use braid_sim::oracle::Oracle;
use braid_sim::{Crash, Rng, World};

use crate::common::{scrub, shape};

const WRITE: Op = Op::Write { fua: false };
/// Requests that write, and the distance between them.
const WRITES: u64 = 12;
const STEP: u64 = 3 * MIB;
const LEN: u64 = 20 * 1024;
/// Where the checksum of a superblock is; see `docs/format.md`.
const SLOT_SEAL: Range<usize> = 12..16;

/// A pool as a power cut left it: a checkpoint, pages of checksums at home, and a log behind them.
struct Image {
    disks: Vec<Disk>,
    oracle: Oracle,
}

fn image(profile: Profile, devices: usize, checksum: &str) -> Image {
    let set = [("checksum", checksum), ("checksum_cache", "256K")];
    let mut world = World::with_pool(1, &vec![shape(64); devices], profile, profile.system(), &set);
    let volume = world.volume("v", 1 << 36, VolumeClass::Auto);
    (0..WRITES).for_each(|i| world.run(volume, WRITE, i * STEP, LEN).unwrap());
    world.control(Command::Checkpoint).unwrap();
    (0..WRITES).step_by(3).for_each(|i| world.run(volume, WRITE, i * STEP + 2 * BLOCK, LEN).unwrap());
    // Sums of what is being written when the power goes are on their way home: see docs/semantics.md.
    world.run_until_quiet();
    (0..6).for_each(|i| _ = world.volume(&format!("later{i}"), 1 << 30, VolumeClass::Auto));
    world.crash(Crash::Power);
    Image { disks: world.disks.clone(), oracle: world.oracle.clone() }
}

impl Image {
    fn world(&self) -> World {
        let mut world = World::new(2);
        (world.disks, world.oracle) = (self.disks.clone(), self.oracle.clone());
        world
    }
}

/// Everything there is reads as it was written.
fn is_right(world: &mut World) {
    world.verify();
    world.run_until_quiet();
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}

/// Somebody was told that something on a disk is not as it was.
fn is_news(event: &Event) -> bool {
    matches!(event, Event::BadCopy { .. } | Event::BadRecord { .. } | Event::ScrubDifference { .. })
}

/// Opens a pool with one bit flipped, uses and scrubs it; whether that was of no use to anybody: neither noticed nor
/// written over.
fn goes_unnoticed(image: &Image, disk: usize, block: u64, byte: u64, bit: u8) -> bool {
    let mut world = image.world();
    world.disks[disk].corrupt(block * BLOCK + byte, 1 << bit);
    let flipped = world.disks[disk].read_bytes(block * BLOCK, BLOCK);
    world.open().unwrap();
    is_right(&mut world);
    scrub(&mut world);
    let is_noticed = world.events.iter().any(is_news);
    world.events.clear();
    scrub(&mut world);
    let left: Vec<_> = world.events.iter().filter(|e| is_news(e)).collect();
    assert!(left.is_empty(), "still there after a scrub: {left:?}");
    is_right(&mut world);
    world.control(Command::Close).unwrap();
    world.run_until_quiet();
    !is_noticed && world.disks[disk].read_bytes(block * BLOCK, BLOCK) == flipped
}

/// Where a byte of a disk stands on all members that hold the same.
fn copies(image: &Image, disk: usize, at: u64) -> Vec<(usize, u64)> {
    let mut world = image.world();
    world.open().unwrap();
    let chunks = world.engine().pool().chunks();
    let mut found: Vec<(usize, u64)> = Vec::new();
    for chunk in chunks {
        let is_here = |c: &&braid_core::chunk::Column| {
            c.device.index() == disk + 1 && (c.offset..c.offset + chunk.stripe).contains(&at)
        };
        if let Some(column) = chunk.columns.iter().find(is_here) {
            if chunk.profile.facts().parity > 0 {
                return vec![(disk, at)];
            }
            let within = at - column.offset;
            found.extend(chunk.columns.iter().map(|c| (c.device.index() - 1, c.offset + within)));
        }
    }
    if found.is_empty() { (0..image.disks.len()).map(|disk| (disk, at)).collect() } else { found }
}

/// What happens to a pool that was opened, which writes some of it anew, and then has this byte spoilt on every copy.
fn harm_of_loss(image: &Image, copies: &[(usize, u64)], xor: u8) -> Option<String> {
    let mut world = image.world();
    world.open().unwrap();
    world.run_until_quiet();
    world.crash(Crash::Process);
    copies.iter().for_each(|&(disk, at)| world.disks[disk].corrupt(at, xor));
    if let Err(why) = world.open() {
        return Some(why);
    }
    world.verify();
    world.run_until_quiet();
    world.gives_up.take().or_else(|| world.wrong.first().cloned())
}

/// The newer superblock of the only member with a bit flipped, and the checksum as before or put right: what opens from that.
fn from_damaged_slot(image: &Image, byte: u64, is_taken: bool) -> Result<(), String> {
    let mut world = image.world();
    let at = world.superblocks().remove(0).slot();
    world.disks[0].corrupt(at + byte, 1);
    if is_taken {
        let mut slot = world.disks[0].read_bytes(at, SUPERBLOCK_SIZE);
        slot[SLOT_SEAL].fill(0);
        let sum = crc32c(&slot).to_le_bytes();
        slot[SLOT_SEAL].copy_from_slice(&sum);
        let mut content = Content::new();
        content.push_bytes(&slot);
        world.disks[0].write(at, &content, true, || true);
    }
    world.open()?;
    world.verify();
    world.run_until_quiet();
    world.wrong.first().map_or(Ok(()), |why| Err(why.clone()))
}

/// A superblock that is damaged is none. Were its checksum not looked at, many a bit of it would cost the pool, or content.
#[test]
fn a_superblock_that_is_damaged_does_not_count() {
    let image = image(Profile::Single, 1, "crc32c");
    let ends = |is_taken| {
        let end = |byte| {
            catch_unwind(|| from_damaged_slot(&image, byte, is_taken)).unwrap_or_else(|_| Err("it stops".into()))
        };
        (0..512).map(end).collect::<Vec<_>>()
    };
    assert!(ends(false).iter().all(Result::is_ok), "the older one counts");
    let harm = ends(true).iter().filter(|end| end.is_err()).count();
    println!("{harm} of 512 bytes would do harm");
    assert!(harm > 20, "{harm} of 512 bytes would do harm");
}

/// Blocks of the log that hold something of the present epoch, on the first member: byte and number.
fn log_blocks(image: &Image) -> Vec<u64> {
    let superblock = image.world().superblocks().remove(0);
    let column = &superblock.system[0].columns[0];
    let ring = (0..u64::from(superblock.log_blocks))
        .map(|i| column.offset + (superblock.log_seq + i) % u64::from(superblock.log_blocks) * BLOCK);
    ring.take_while(|&at| image.disks[0].read_bytes(at, BLOCK).iter().any(|&b| b != 0)).collect()
}

#[test]
fn a_block_of_the_log_that_is_damaged_on_one_copy_is_told() {
    let image = image(Profile::Raid1, 2, "crc32c");
    let blocks = log_blocks(&image);
    assert!(blocks.len() > 3, "{blocks:?}");
    // What no flush covers may have been torn.
    for (i, &at) in blocks.iter().enumerate().take(blocks.len() - 1) {
        for byte in [5, 30, 70, 4000] {
            let mut world = image.world();
            world.disks[0].corrupt(at + byte, 4);
            world.open().unwrap();
            let told: Vec<_> = world.events.iter().filter(|e| matches!(e, Event::BadRecord { .. })).collect();
            let is_it = |e: &Event| matches!(*e, Event::BadRecord { device_offset, .. } if device_offset == at);
            assert!(told.len() == 1 && is_it(told[0]), "block {i}, byte {byte}: {told:?}");
            assert_eq!(world.engine().report().devices[0].io.checksum_errors, 1);
            is_right(&mut world);
        }
    }
}

#[test]
fn a_gap_in_the_middle_of_the_log_is_no_end_of_it() {
    for devices in [1, 2] {
        let image = image(if devices == 1 { Profile::Single } else { Profile::Raid1 }, devices, "crc32c");
        let blocks = log_blocks(&image);
        for (i, &at) in blocks.iter().enumerate() {
            let mut world = image.world();
            copies(&image, 0, at + 100).into_iter().for_each(|(disk, at)| world.disks[disk].corrupt(at, 1));
            world.open().unwrap();
            // The last one may have been torn by a power cut: nobody knew of a flush.
            let is_known = i + 1 < blocks.len();
            assert_eq!(world.gives_up.is_some(), is_known, "{devices} devices, block {i} of {}", blocks.len());
            if let Some(why) = &world.gives_up {
                assert!(why.contains("damaged in the middle") && why.contains("use -f"), "{why}");
            }
        }
    }
}

/// Bits of every block that anything was written to, one by one.
fn every_block(of: &str, image: &Image) {
    let mut rng = Rng::new(3);
    let (mut hit, mut unnoticed) = (0, 0);
    for (disk, written) in image.disks.iter().map(Disk::written_blocks).enumerate() {
        for block in written {
            for byte in [rng.below(64), rng.below(BLOCK)] {
                let bit = rng.below(8) as u8;
                hit += 1;
                let name = format!("{of}: bit {bit} of byte {byte} of block {block} of disk {disk}");
                let run = catch_unwind(|| goes_unnoticed(image, disk, block, byte, bit));
                if run.unwrap_or_else(|_| panic!("{name}")) {
                    unnoticed += 1;
                    let harm = harm_of_loss(image, &copies(image, disk, block * BLOCK + byte), 1 << bit);
                    assert_eq!(harm, None, "{name} was not noticed");
                }
            }
        }
    }
    println!("{of}: {hit} bits, {unnoticed} of no use");
}

#[test]
fn every_block_of_a_mirror_is_served_right_and_put_right() {
    for (profile, devices) in [(Profile::Raid1, 2), (Profile::Raid1c3, 3), (Profile::Dup, 1)] {
        every_block(profile.name(), &image(profile, devices, "crc32c"));
    }
    every_block("raid1, xxh3", &image(Profile::Raid1, 2, "xxh3"));
}

/// How a group of the stripe journal begins; see `docs/format.md`.
const GROUP_MAGIC: [u8; 4] = *b"brRg";

/// Data, parity, and the stripe journal with what a power cut left in it.
#[test]
fn every_block_of_rows_is_served_right_and_put_right() {
    for (profile, devices) in [(Profile::Raid5, 3), (Profile::Raid6, 4)] {
        let image = image(profile, devices, "crc32c");
        let is_group = |disk: &Disk, block: &u64| disk.read_bytes(block * BLOCK, BLOCK).starts_with(&GROUP_MAGIC);
        let groups = |disk: &Disk| disk.written_blocks().into_iter().filter(|block| is_group(disk, block)).count();
        assert!(image.disks.iter().filter(|disk| groups(disk) > 3).count() > 1, "the journal has copies with changes");
        every_block(profile.name(), &image);
    }
}
