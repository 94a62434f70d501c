//! The image of a pool at one moment: the pages of a checkpoint and where its root is.

use alloc::vec::Vec;

use super::codec::{Writer, crc32c};
use super::pages::{self, Page, PageSpace};
use super::record::Record;
use crate::pool::Pool;
use crate::units::VolumeId;
use crate::volume::{Entry, LEAF, Shape};

/// Pages to write, and what is free once they count.
pub(crate) struct Image {
    /// Address and sealed bytes.
    pub(crate) writes: Vec<(Page, Vec<u8>)>,
    /// Pages of the root, in order.
    pub(crate) root: Vec<Page>,
    /// Bytes of the root.
    pub(crate) root_len: u32,
    /// Checksum of the root.
    pub(crate) root_crc: u32,
    /// Pages that only the image before refers to.
    pub(crate) stale: Vec<Page>,
}

/// Pages of an image with so many leaves if every leaf had one, rounded up, with a little for chunks and volumes to come.
///
/// A leaf costs its page, 25 bytes of the root, and less than 1 byte of the list of the root's pages.
pub(crate) fn pages_for(pool: &Pool, leaves: u64) -> u64 {
    (leaves * LEAF_COST).div_ceil(pages::PAYLOAD as u64) + fixed_pages(pool)
}

/// The most leaves that so many pages can hold, by the same count.
pub(crate) fn leaves_in(pool: &Pool, pages: u64) -> u64 {
    pages.saturating_sub(fixed_pages(pool)) * pages::PAYLOAD as u64 / LEAF_COST
}

/// Bytes of pages for one leaf, wherever they are.
const LEAF_COST: u64 = pages::PAYLOAD as u64 + 32;
/// Pages for chunks and volumes that come before the next count.
const SLACK: u64 = 8;

fn fixed_pages(pool: &Pool) -> u64 {
    fixed_bytes(pool).div_ceil(pages::PAYLOAD as u64) + SLACK
}

/// Pages that an image of this pool needs now, at most.
fn pages_needed(pool: &Pool) -> u64 {
    let dirty: u64 = pool.volumes().map(|v| v.map.dirty_tables()).sum();
    let leaves: u64 = pool.volumes().map(|v| v.map.leaves()).sum();
    dirty + (leaves * 32 + fixed_bytes(pool)).div_ceil(pages::PAYLOAD as u64)
}

fn fixed_bytes(pool: &Pool) -> u64 {
    let chunks: u64 = pool.chunks().map(|c| 32 + 12 * c.columns.len() as u64).sum();
    chunks + pool.devices().count() as u64 * 1200 + pool.volumes().count() as u64 * 100 + 4096
}

/// Takes pages and writes what changed since the last image; None when the pages do not suffice (nothing is taken).
pub(crate) fn build(pool: &mut Pool, space: &mut PageSpace, old_root: &[Page]) -> Option<Image> {
    if pages_needed(pool) > space.free() {
        return None;
    }
    let uuid = pool.uuid;
    let mut image = Image { writes: Vec::new(), root: Vec::new(), root_len: 0, root_crc: 0, stale: old_root.to_vec() };
    let mut root = Writer::default();
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
    Some(image)
}

fn encode_leaf(volume: VolumeId, leaf: u64, entries: impl Iterator<Item = Entry>) -> Vec<u8> {
    let mut w = Writer::default();
    w.u32(volume.0).u64(leaf);
    for entry in entries {
        w.u64(if entry.written() == 0 { 0 } else { entry.bits() });
    }
    debug_assert_eq!(w.bytes.len(), 12 + LEAF * 8);
    w.bytes
}
