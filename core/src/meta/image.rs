//! The image of a pool at one moment: the pages of a checkpoint and where its root is.

use alloc::vec::Vec;

use super::codec::{Writer, crc32c};
use super::pages::{self, Page, PageSpace};
use super::record::Record;
use super::superblock::ROOT_RUNS_MAX;
use crate::pool::Pool;
use crate::regions::Missed;
use crate::units::{UNIT, VolumeId};
use crate::volume::{Entry, LEAF, Shape};

/// Pages to write, and what is free once they count.
#[derive(Default)]
pub(crate) struct Image {
    /// Address and sealed bytes.
    pub(crate) writes: Vec<(Page, Vec<u8>)>,
    /// Pages of the root, in order.
    pub(crate) root: Vec<Page>,
    /// Pages that list the root's runs, where a superblock cannot.
    pub(crate) list: Vec<Page>,
    /// Bytes of the root.
    pub(crate) root_len: u32,
    /// Checksum of the root.
    pub(crate) root_crc: u32,
    /// Pages that only the image before refers to.
    pub(crate) stale: Vec<Page>,
}

impl Image {
    pub(crate) fn is_listed(&self) -> bool {
        !self.list.is_empty()
    }

    /// What the superblock says of where the root is.
    pub(crate) fn place(&self) -> Vec<(Page, u32)> {
        pages::runs(if self.is_listed() { &self.list } else { &self.root })
    }
}

/// Pages of an image with so many leaves if every leaf had one, rounded up, with a little for chunks and volumes to come.
///
/// A leaf costs its page, its record in the root, and less than 1 byte of the list of the root's pages.
pub(crate) fn pages_for(pool: &Pool, leaves: u64) -> u64 {
    (leaves * LEAF_COST).div_ceil(pages::PAYLOAD as u64) + fixed_pages(pool)
}

/// The most leaves that so many pages can hold, by the same count.
pub(crate) fn leaves_in(pool: &Pool, pages: u64) -> u64 {
    pages.saturating_sub(fixed_pages(pool)) * pages::PAYLOAD as u64 / LEAF_COST
}

/// Bytes of the root for one leaf.
const LEAF_RECORD: u64 = 25;
/// Bytes of pages for one leaf, wherever they are.
const LEAF_COST: u64 = pages::PAYLOAD as u64 + 32 + 2 * STALE_COST;
/// Bytes of the root for one region that is marked, if it is alone in its word; or for a word.
const INTENT_COST: u64 = 17;
/// Bytes of the root for 64 regions that a member missed. Two members that are behind everywhere are reckoned with, and
/// what more there is counts as it is.
const STALE_COST: u64 = 19;
/// The same of units that it did not miss.
const KEPT_COST: u64 = 23;
/// The same of a unit with lost blocks.
const LOST_COST: u64 = 15;
/// Pages for chunks and volumes that come before the next count.
const SLACK: u64 = 8;

fn fixed_pages(pool: &Pool) -> u64 {
    // There may be more than the limit says: those that an opening found, or that were there when it was lowered.
    let limit = (pool.dirty_regions() as u64).min(pool.totals().content / UNIT);
    fixed_bytes(pool, marks(pool).max(limit)).div_ceil(pages::PAYLOAD as u64) + SLACK
}

/// Words of 64 regions, some of which are marked.
fn marks(pool: &Pool) -> u64 {
    pool.intent.words().count() as u64
}

/// Leaves of all maps, reserved ones included.
fn leaves(pool: &Pool) -> u64 {
    pool.volumes().map(|v| v.map.leaves()).sum()
}

/// Pages that an image of this pool needs now, at most.
pub(crate) fn pages_needed(pool: &Pool) -> u64 {
    let dirty: u64 = pool.volumes().map(|v| v.map.dirty_tables()).sum();
    let root = (leaves(pool) * LEAF_RECORD + fixed_bytes(pool, marks(pool))).div_ceil(pages::PAYLOAD as u64);
    dirty + root + root.div_ceil(pages::RUNS_PER_PAGE as u64)
}

fn stale_cost(missed: &Missed) -> u64 {
    STALE_COST * missed.words().len() as u64 + KEPT_COST * missed.kept().len() as u64
}

fn fixed_bytes(pool: &Pool, marks: u64) -> u64 {
    let totals = pool.totals();
    32 * totals.chunks
        + 12 * totals.columns
        + pool.device_ids_end() as u64 * 1200
        + pool.volumes().count() as u64 * 100
        + pool.stale.values().map(stale_cost).sum::<u64>()
        + pool.volumes().map(|v| v.map.lost_units() as u64 * LOST_COST).sum::<u64>()
        + INTENT_COST * marks
        + 4096
}

/// Takes pages and writes what changed since the last image; None when the pages do not suffice (nothing is taken).
pub(crate) fn build(pool: &mut Pool, space: &mut PageSpace, old_root: &[Page]) -> Option<Image> {
    if pages_needed(pool) > space.free() {
        return None;
    }
    let uuid = pool.uuid;
    let mut image = Image { stale: old_root.to_vec(), ..Image::default() };
    let mut root = Writer::with_room(super::PAGE as usize + (leaves(pool) * LEAF_RECORD) as usize);
    for record in pool.records() {
        record.encode(&mut root);
    }
    for volume in pool.volumes_mut() {
        for leaf in core::mem::take(&mut volume.map.dirty) {
            let slot = volume.map.slot_mut(leaf);
            slot.dirty = false;
            if slot.page != 0 {
                image.stale.push(core::mem::take(&mut slot.page));
            }
            if slot.shape() == Shape::Table {
                let page = space.take().expect("counted before");
                slot.page = page;
                let bytes = encode_leaf(volume.id, leaf, slot.entries());
                let bytes = pages::seal(uuid, page, &bytes);
                slot.crc = pages::checksum(&bytes);
                image.writes.push((page, bytes));
            }
        }
        for (leaf, slot) in volume.map.slots() {
            match slot.shape() {
                Shape::Empty => {}
                Shape::Line { chunk, first } => {
                    Record::LeafLine { volume: volume.id, leaf, chunk, first }.encode(&mut root);
                }
                Shape::Table => {
                    Record::LeafPage { volume: volume.id, leaf, page: slot.page, crc: slot.crc }.encode(&mut root)
                }
            }
        }
    }
    image.root_len = root.bytes.len() as u32;
    image.root_crc = crc32c(&root.bytes);
    let payloads = root.bytes.chunks(pages::PAYLOAD);
    image.root = space.take_many(payloads.len()).expect("counted before");
    for (&page, payload) in image.root.iter().zip(payloads) {
        image.writes.push((page, pages::seal(uuid, page, payload)));
    }
    let runs = pages::runs(&image.root);
    if runs.len() > ROOT_RUNS_MAX {
        let lists = runs.chunks(pages::RUNS_PER_PAGE);
        image.list = space.take_many(lists.len()).expect("counted before");
        for (&page, runs) in image.list.iter().zip(lists) {
            image.writes.push((page, pages::seal(uuid, page, &pages::encode_runs(runs))));
        }
    }
    Some(image)
}

fn encode_leaf(volume: VolumeId, leaf: u64, entries: impl Iterator<Item = Entry>) -> Vec<u8> {
    let mut w = Writer::with_room(pages::PAYLOAD);
    w.u32(volume.0).u64(leaf);
    for entry in entries {
        w.u64(if entry.written() == 0 { 0 } else { entry.bits() });
    }
    debug_assert_eq!(w.bytes.len(), 12 + LEAF * 8);
    w.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChunkType;
    use crate::control::VolumeClass;
    use crate::device::{Device, DeviceClass};
    use crate::meta::assembly::{Assembly, Step};
    use crate::meta::format::{NewDevice, NewPool, plan};
    use crate::meta::superblock::Superblock;
    use crate::profile::Profile;
    use crate::request::IoError;
    use crate::units::{MIB, Uuid};
    use std::collections::BTreeMap;
    use std::format;
    use std::string::ToString;

    fn pool() -> (Pool, Superblock) {
        let device = NewDevice {
            uuid: Uuid([1; 16]),
            path: "disk".to_string(),
            size: 4 << 30,
            class: DeviceClass::parse("ssd").expect("a class"),
            rotational: false,
            tiers: None,
            hint: Default::default(),
        };
        let new = NewPool {
            name: "tank".to_string(),
            uuid: Uuid([2; 16]),
            data: Profile::Single,
            metadata: Profile::Single,
            devices: Vec::from([device.clone()]),
            properties: Vec::new(),
        };
        let plan = plan(&new).expect("a pool");
        let superblock = plan.superblocks.iter().find_map(|p| Superblock::decode(&p.bytes).ok()).expect("one of them");
        let mut pool = Pool::new(new.name.clone(), new.uuid);
        let member = Device::new(superblock.device, &device);
        pool.apply(Record::Device(member.into())).expect("fits");
        pool.apply(Record::ChunkAdd(superblock.system[0].clone().into())).expect("fits");
        (pool, superblock)
    }

    /// A root in more runs than a superblock can list is found by a list of them; damage to the list is told.
    #[test]
    fn a_root_scattered_over_every_second_page_is_found_again() {
        for (volumes, listed) in [(6_000, false), (9_000, true)] {
            let (mut pool, mut sb) = pool();
            for i in 1..=volumes {
                let name = format!("{:x<60}", i);
                let volume =
                    Record::Volume { id: VolumeId(i), name, size: MIB, class: VolumeClass::Auto, checksum: true };
                pool.apply(volume).expect("fits");
            }
            let system = sb.system[0].clone();
            assert_eq!(system.kind, ChunkType::System);
            let mut space = PageSpace::default();
            space.add(&system, u64::from(sb.log_blocks));
            let pages = system.length / super::super::PAGE;
            for page in (u64::from(sb.log_blocks)..pages).step_by(2) {
                assert!(space.take_at(pages::address(system.id, page)));
            }
            let before = space.free();
            let image = build(&mut pool, &mut space, &[]).expect("room");
            assert_eq!(before - space.free(), (image.root.len() + image.list.len()) as u64);
            assert_eq!((image.is_listed(), image.root.len() > ROOT_RUNS_MAX), (listed, listed), "{}", image.root.len());
            (sb.root, sb.root_is_listed) = (image.place(), image.is_listed());
            (sb.root_len, sb.root_crc) = (image.root_len, image.root_crc);
            let sb = Superblock::decode(&sb.encode()).expect("it fits a slot");
            let mut disk: BTreeMap<u64, Vec<u8>> =
                image.writes.iter().map(|(p, b)| (system.columns[0].offset + pages::locate(*p).1, b.clone())).collect();
            let open = |disk: &BTreeMap<u64, Vec<u8>>| {
                let mut assembly = Assembly::new(Vec::from([sb.clone()]), Uuid::default()).expect("one member");
                loop {
                    match assembly.step() {
                        Step::Ready(opened) => return Ok(opened),
                        Step::Failed(why) => return Err(why),
                        Step::Read(reads) => {
                            for read in reads {
                                let zeros = || std::vec![0; read.len as usize];
                                let bytes = disk.get(&read.offset).cloned().unwrap_or_else(zeros);
                                assembly.supply(read, Ok::<_, IoError>(bytes));
                            }
                        }
                    }
                }
            };
            let opened = open(&disk).unwrap_or_else(|why| panic!("{volumes} volumes: {why}"));
            assert_eq!(opened.pool().volumes().count(), volumes as usize);
            // What the next checkpoint sets free: the list's pages as well.
            assert_eq!(opened.root.len(), image.root.len() + image.list.len());
            if let Some(&page) = image.list.first() {
                disk.insert(system.columns[0].offset + pages::locate(page).1, std::vec![7; 4096]);
                assert!(open(&disk).is_err_and(|why| why.contains("damaged on every copy")));
                // Sealed rightly and wrong all the same: runs that are far too long, or lead round.
                for runs in [&[(page, u32::MAX)][..], &[(u64::MAX, 2)], &[(page, 1), (page, 1)], &[(0, 1)]] {
                    let bytes = pages::seal(sb.pool, page, &pages::encode_runs(runs));
                    disk.insert(system.columns[0].offset + pages::locate(page).1, bytes);
                    assert!(open(&disk).is_err(), "{runs:?}");
                }
            }
        }
    }
}
