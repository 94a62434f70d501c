//! Images to begin with: what an engine of today wrote, and forged ones, each named by what it shows.
//!
//! They are made and not kept as bytes: so they are always of the present format, and a forgery says what it forges.

use std::sync::LazyLock;

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::meta::PAGE;
use braid_core::meta::superblock::Superblock;
use braid_core::request::Op;
use braid_core::units::{DeviceId, MIB, STRIP};
use braid_core::volume::INTERNAL;

use super::Sample;
use super::image::{CONTENT, Image, long, seal, short};
use crate::device::Model;
use crate::world::Shape;
use crate::{Crash, World};

/// Bytes of each member.
const MEMBER: u64 = 128 * MIB;
/// The stripe journal is at the front of the volume of the pool's own, and never longer.
const JOURNAL_MAX: u64 = 16 * MIB;

/// What an engine wrote, by name.
static WRITTEN: LazyLock<Vec<(&'static str, Image)>> = LazyLock::new(|| {
    vec![
        ("a-new-pool", written(1, "single", "none", |_| ())),
        ("a-new-pool-with-checksums", written(1, "single", "crc32c", |_| ())),
        ("a-log-behind-a-checkpoint", written(1, "single", "none", used)),
        ("two-members-and-a-scrub", written(2, "raid1", "none", scrubbed)),
        ("two-members-and-a-scrub-of-checksums", written(2, "raid1", "crc32c", scrubbed)),
        ("a-member-on-its-way-out", written(3, "raid1", "xxh3", emptied)),
    ]
});

/// A forgery: a seal agrees with what it seals.
type Forge = fn(&mut Image);

/// Those that open, at the price of a number as large as there may be.
const FAR_OUT: &[(&str, Forge)] = &[
    ("the-highest-chunk-there-can-be", |image| append(image, &chunk((1 << 30) - 1))),
    ("the-highest-volume-there-can-be", |image| append(image, &volume((1 << 20) - 1))),
    ("the-highest-member-there-can-be", |image| append(image, &member(65_535))),
];

/// The same, of a pool with checksums.
const FAR_OUT_SUMMED: &[(&str, Forge)] = &[
    ("the-highest-chunk-that-has-checksums", |image| append(image, &chunk((1 << 28) - 1))),
    ("a-chunk-too-high-for-checksums", |image| append(image, &chunk((1 << 30) - 1))),
];

const FORGED: &[(&str, Forge)] = &[
    ("a-root-of-half-a-million-pages", |image| superblocks(image, |sb| sb.root = vec![(sb.root[0].0, 4096); 128])),
    ("a-root-page-twice", |image| superblocks(image, |sb| sb.root.push(sb.root[0]))),
    ("a-root-longer-than-its-pages", |image| superblocks(image, |sb| sb.root_len = u32::MAX)),
    ("a-root-listed-by-itself", |image| superblocks(image, |sb| sb.root_is_listed = true)),
    ("a-root-where-no-chunk-is", |image| superblocks(image, |sb| sb.root[0].0 = 77 << 24)),
    ("a-root-at-the-end-of-numbers", |image| superblocks(image, |sb| sb.root[0] = (u64::MAX, 1))),
    ("a-ring-longer-than-any", |image| superblocks(image, |sb| sb.log_blocks = 2049)),
    ("a-record-that-nobody-knows", |image| append(image, &[200])),
    ("a-volume-cut-short", |image| append(image, &volume(9)[..7])),
    ("sixty-leaves-far-out-in-large-volumes", |image| {
        (10..70).for_each(|id| append(image, &[volume(id), leaf_line(id, (1 << 30) - 1)].concat()));
    }),
    ("a-leaf-behind-the-end-of-its-volume", |image| append(image, &[volume(9), leaf_line(9, 1 << 30)].concat())),
];

/// Images as an engine leaves them.
pub(super) fn images() -> Vec<Sample> {
    WRITTEN.iter().map(|(name, image)| Sample::fine(name, image.encode())).collect()
}

/// Images with groups in the stripe journal.
pub(super) fn journals() -> Vec<Sample> {
    let rows = |name, members, profile, checksum| {
        Sample::fine(name, written(members, profile, checksum, changed_rows).encode())
    };
    vec![
        rows("rows-in-the-journal", 3, "raid5", "none"),
        rows("rows-with-two-strips-of-parity-in-the-journal", 4, "raid6", "crc32c"),
    ]
}

/// With those whose root was forged.
pub(super) fn images_and_forged() -> Vec<Sample> {
    let far_out = FAR_OUT.iter().map(|(name, forge)| Sample::fine(name, forged("a-new-pool", *forge)));
    let summed = "a-new-pool-with-checksums";
    let far_out_summed = FAR_OUT_SUMMED.iter().map(|(name, forge)| Sample::fine(name, forged(summed, *forge)));
    let forged = FORGED.iter().map(|(name, forge)| Sample::damaged(name, forged("a-new-pool", *forge)));
    images().into_iter().chain(far_out).chain(far_out_summed).chain(forged).collect()
}

fn image(name: &str) -> &'static Image {
    let named = WRITTEN.iter().find(|(known, _)| *known == name);
    &named.expect("an engine wrote it").1
}

fn forged(of: &str, forge: Forge) -> Vec<u8> {
    let mut image = image(of).clone();
    forge(&mut image);
    image.seal();
    image.encode()
}

/// Slots, as `superblock` reads them.
pub(super) fn slots() -> Vec<Sample> {
    let fine = WRITTEN.iter().map(|(name, image)| Sample::fine(name, short(&image.slots[0])));
    let slot = &image("two-members-and-a-scrub").slots[0];
    let changed = |change: fn(&mut Superblock)| {
        let mut superblock = Superblock::decode(slot).expect("an engine wrote it");
        change(&mut superblock);
        short(&superblock.encode())
    };
    let patched = |at: usize, bytes: &[u8], seals: bool| {
        let mut slot = slot.clone();
        slot[at..at + bytes.len()].copy_from_slice(bytes);
        if seals {
            seal(&mut slot, 12);
        }
        short(&slot)
    };
    let damaged = [
        ("nothing", Vec::new()),
        ("a-magic-and-no-more", b"BRAIDsb\n".to_vec()),
        ("of-a-later-version", patched(8, &[0xff], true)),
        ("a-flipped-bit", patched(30, &[0xff], false)),
        ("longer-than-its-slot", patched(16, &[0xff; 4], true)),
        ("a-name-longer-than-the-slot", patched(40, &[0xff; 2], true)),
        ("device-zero", changed(|sb| sb.device = DeviceId(0))),
        ("generation-zero", changed(|sb| sb.generation = 0)),
        ("a-ring-of-nothing", changed(|sb| sb.log_blocks = 0)),
        ("a-column-behind-the-end", changed(|sb| sb.device_size = MIB)),
        ("numbers-near-their-end", changed(|sb| sb.log_seq = u64::MAX)),
        ("an-image-near-the-end-of-numbers", changed(|sb| sb.image = u64::MAX)),
    ];
    fine.chain(damaged.map(|(name, bytes)| Sample::damaged(name, bytes))).collect()
}

/// A pool that something was done with, as a crash leaves it.
fn written(devices: usize, profile: &str, checksum: &str, work: fn(&mut World)) -> Image {
    let profile = Profile::parse(profile).expect("a profile");
    let model = Model::shipped("sata-ssd").expect("it comes with the crate");
    let shape = Shape { size: MEMBER, model, class: "ssd" };
    let mut world = World::with_pool(1, &vec![shape; devices], profile, profile.system(), &[("checksum", checksum)]);
    work(&mut world);
    let journal = (0..JOURNAL_MAX).step_by(PAGE as usize).flat_map(|at| world.places(INTERNAL, at)).collect::<Vec<_>>();
    world.crash(Crash::Process);
    let mut image = image_of(&world);
    journal.into_iter().for_each(|(device, at)| image.take(&world, device, at));
    image
}

/// Leaves as tables and in a line, and records that no checkpoint has.
fn used(world: &mut World) {
    let v = world.volume("v", 1 << 36, VolumeClass::Auto);
    let write = |world: &mut World, at, len| world.run(v, Op::Write { fua: false }, at, len).expect("there is room");
    write(world, 0, 16 * MIB);
    (0..10).for_each(|i| write(world, i * 30 * MIB + 4096, 8192));
    world.control(Command::Checkpoint).expect("nothing is in the way");
    (0..10).for_each(|i| write(world, i * 50 * MIB, 8192));
    world.run(v, Op::Discard, 0, MIB).expect("it is there");
    world.run(v, Op::Flush, 0, 0).expect("nothing is in the way");
    world.volume("w", MIB, VolumeClass::Auto);
}

fn scrubbed(world: &mut World) {
    used(world);
    world.control(Command::ScrubStart).expect("nothing is in the way");
    world.run_until_quiet();
    let set = Command::Set { name: "read_policy".into(), value: "queue".into() };
    world.control(set).expect("a policy");
}

/// Groups that no checkpoint has made void.
fn changed_rows(world: &mut World) {
    let v = world.volume("v", 64 * MIB, VolumeClass::Auto);
    let write = |world: &mut World, at, len| world.run(v, Op::Write { fua: false }, at, len).expect("there is room");
    write(world, 0, MIB);
    (0..12).for_each(|i| write(world, i * 76 * 1024 / 4096 * 4096, 4096 << (i % 4)));
}

/// A crash in the middle of it.
fn emptied(world: &mut World) {
    used(world);
    world.control(Command::RemoveDevice { device: DeviceId(2) }).expect("the rest has room");
    let mut steps = 0;
    world.run_until(|_| {
        steps += 1;
        steps > 200
    });
}

/// Superblocks, logs and pages on the disks of a world.
fn image_of(world: &World) -> Image {
    let superblocks = world.superblocks();
    let mut image = Image { slots: superblocks.iter().map(Superblock::encode).collect(), ..Image::default() };
    for superblock in &superblocks {
        let columns = superblock.system.iter().flat_map(|chunk| chunk.columns.iter().map(|c| (c, chunk.stripe)));
        for (column, length) in columns.filter(|(column, _)| column.device == superblock.device) {
            let blocks = (column.offset..column.offset + length).step_by(PAGE as usize);
            blocks.for_each(|at| image.take(world, column.device, at));
        }
    }
    image
}

impl Image {
    /// A block as a disk has it.
    fn take(&mut self, world: &World, device: DeviceId, at: u64) {
        let block = world.disks[device.index() - 1].read_bytes(at, PAGE);
        if block.iter().any(|byte| *byte != 0) {
            self.blocks.insert((device.0, at), block);
        }
    }
}

/// Changes what the superblocks say.
fn superblocks(image: &mut Image, change: impl Fn(&mut Superblock)) {
    for slot in &mut image.slots {
        let mut superblock = Superblock::decode(slot).expect("an engine wrote it");
        change(&mut superblock);
        *slot = superblock.encode();
    }
}

/// Appends a record to the root, which has one page.
fn append(image: &mut Image, record: &[u8]) {
    let first = Superblock::decode(&image.slots[0]).expect("an engine wrote it");
    let (at, mut page) = image.page_of(first.root[0].0).expect("the root has a page");
    page.truncate(CONTENT + first.root_len as usize);
    page.extend_from_slice(record);
    assert!(page.len() <= PAGE as usize, "the root has one page");
    image.replace(at, long(page, PAGE));
    superblocks(image, |superblock| superblock.root_len += record.len() as u32);
}

/// A volume of 16 PiB, as `docs/format.md` has its record.
fn volume(id: u32) -> Vec<u8> {
    let name = format!("v{id:02}");
    let mut record = [&[4][..], &id.to_le_bytes(), &(name.len() as u16).to_le_bytes(), name.as_bytes()].concat();
    record.extend_from_slice(&(1u64 << 54).to_le_bytes());
    record.push(0);
    record
}

/// A data chunk of 64 KiB behind everything else of the first member, in profile single.
fn chunk(id: u32) -> Vec<u8> {
    let mut record = [&[2][..], &id.to_le_bytes(), &[0, 0, 0], &STRIP.to_le_bytes(), &STRIP.to_le_bytes()].concat();
    record.extend([1, 0, 1, 0]);
    record.extend(&((MEMBER - MIB) / STRIP).to_le_bytes()[..5]);
    record
}

/// A member of which nothing is known, and that is not there.
fn member(id: u32) -> Vec<u8> {
    let mut record = [&[7][..], &id.to_le_bytes(), &[9; 16], &[0, 0], &MEMBER.to_le_bytes()].concat();
    record.extend([3, 0]);
    record.extend(b"ssd\0\0\0\0\0\0");
    record
}

/// A leaf in one line, in a chunk that there is not.
fn leaf_line(volume: u32, leaf: u64) -> Vec<u8> {
    [&[9][..], &volume.to_le_bytes(), &leaf.to_le_bytes(), &99u32.to_le_bytes(), &0u32.to_le_bytes()].concat()
}
