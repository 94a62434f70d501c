//! The pool's own records as one value: what an opening finds on the members. Written down it is the opening part of a
//! flight record: superblocks, and blocks in place of reads.
//!
//! Blocks that an image does not have are zeros. Of each block and slot the zeros at its end are left out.

use std::collections::BTreeMap;

use braid_core::flight::{Entries, Entry, MAGIC};
use braid_core::meta::PAGE;
use braid_core::meta::assembly::MetaRead;
use braid_core::meta::codec::crc32c;
use braid_core::meta::superblock::{SUPERBLOCK_SIZE, Superblock};
use braid_core::units::DeviceId;

/// Magic and seal of a log block; see `docs/format.md`.
const LOG: &[u8] = b"BRlg";
const PAGE_MAGIC: &[u8] = b"BRpg";
/// Magic of the head of a group in the stripe journal.
const GROUP: &[u8] = b"brRg";
/// Where the seal of a log block, page or head is, and that of a superblock.
const SEAL: usize = 4;
const SUPERBLOCK_SEAL: usize = 12;
/// Where a page says its address, and where its content begins.
const ADDRESS: std::ops::Range<usize> = 24..32;
pub(super) const CONTENT: usize = 32;

/// What kind of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Log,
    Page,
    Group,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Image {
    /// One slot of each member that is there.
    pub(super) slots: Vec<Vec<u8>>,
    /// By member and first byte.
    pub(super) blocks: BTreeMap<(u32, u64), Vec<u8>>,
}

impl Image {
    /// As bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        self.slots.iter().for_each(|slot| Entry::Superblock(short(slot)).encode(&mut bytes));
        for (&(device, offset), block) in &self.blocks {
            let read = MetaRead { device: DeviceId(device), offset, len: PAGE };
            Entry::Read(read, Ok(short(block))).encode(&mut bytes);
        }
        bytes
    }

    /// From bytes; what is malformed ends it.
    pub(super) fn decode(bytes: &[u8]) -> Image {
        let mut image = Image::default();
        for entry in Entries::new(bytes).into_iter().flatten().map_while(Result::ok) {
            match entry {
                Entry::Superblock(slot) => image.slots.push(long(slot, SUPERBLOCK_SIZE)),
                Entry::Read(MetaRead { device, offset, .. }, Ok(block)) => {
                    image.blocks.insert((device.0, offset), long(block, PAGE));
                }
                _ => {}
            }
        }
        image
    }

    /// Places of blocks of a kind, copies included.
    pub(super) fn places(&self, kind: Kind) -> Vec<(u32, u64)> {
        let magic = match kind {
            Kind::Log => LOG,
            Kind::Page => PAGE_MAGIC,
            Kind::Group => GROUP,
        };
        self.blocks.iter().filter(|(_, block)| block.starts_with(magic)).map(|(&at, _)| at).collect()
    }

    /// Every copy of a block becomes something else.
    pub(super) fn replace(&mut self, at: (u32, u64), new: Vec<u8>) {
        let Some(old) = self.blocks.get(&at).cloned() else { return };
        let new = long(new, PAGE);
        self.blocks.values_mut().filter(|block| **block == old).for_each(|block| block.clone_from(&new));
    }

    /// Bytes that a read gives; blocks the image lacks are zeros.
    pub(super) fn read(&self, read: MetaRead) -> Vec<u8> {
        let mut bytes = vec![0; read.len as usize];
        for (place, at) in bytes.chunks_mut(PAGE as usize).zip((read.offset..).step_by(PAGE as usize)) {
            if let Some(block) = self.blocks.get(&(read.device.0, at)) {
                place.copy_from_slice(&block[..place.len()]);
            }
        }
        bytes
    }

    /// Puts every checksum right: of blocks, of leaves in the root, of the root in the superblocks, of those.
    pub(super) fn seal(&mut self) {
        self.blocks.values_mut().filter(|block| is_sealed(block)).for_each(|block| seal(block, SEAL));
        let sums: BTreeMap<[u8; 8], [u8; 4]> =
            self.places(Kind::Page).iter().map(|at| sum_of(&self.blocks[at])).collect();
        for block in self.blocks.values_mut().filter(|block| block.starts_with(PAGE_MAGIC)) {
            let content = &mut block[CONTENT..];
            // A leaf in the root is the address of its page, then its checksum.
            for at in 0..content.len() - 12 {
                let address: [u8; 8] = content[at..at + 8].try_into().expect("eight bytes");
                if let Some(sum) = sums.get(&address) {
                    content[at + 8..at + 12].copy_from_slice(sum);
                }
            }
            seal(block, SEAL);
        }
        for i in 0..self.slots.len() {
            self.slots[i] = long(std::mem::take(&mut self.slots[i]), SUPERBLOCK_SIZE);
            seal(&mut self.slots[i], SUPERBLOCK_SEAL);
            let Ok(mut superblock) = Superblock::decode(&self.slots[i]) else { continue };
            superblock.root_crc = crc32c(&self.root(&superblock));
            self.slots[i] = superblock.encode();
        }
    }

    /// What the superblock says is the root.
    fn root(&self, superblock: &Superblock) -> Vec<u8> {
        let mut root = Vec::new();
        // More is in no image, and a forged count may be anything.
        let pages =
            superblock.root.iter().flat_map(|&(first, n)| (0..u64::from(n)).map(move |i| first.saturating_add(i)));
        for page in pages.take(self.blocks.len()) {
            let block = self.page_of(page).map_or_else(|| vec![0; PAGE as usize], |(_, block)| block);
            root.extend_from_slice(&block[CONTENT..]);
        }
        root.truncate(superblock.root_len as usize);
        root
    }

    /// A page by what pages say of themselves, and where the first copy of it is.
    pub(super) fn page_of(&self, address: u64) -> Option<((u32, u64), Vec<u8>)> {
        let is_it = |block: &[u8]| block.starts_with(PAGE_MAGIC) && block[ADDRESS] == address.to_le_bytes();
        self.blocks.iter().find(|(_, block)| is_it(block)).map(|(&at, block)| (at, block.clone()))
    }
}

fn is_sealed(block: &[u8]) -> bool {
    [LOG, PAGE_MAGIC, GROUP].iter().any(|magic| block.starts_with(magic))
}

/// Puts the checksum at `at` right.
pub(super) fn seal(bytes: &mut [u8], at: usize) {
    if bytes.len() < at + 4 {
        return;
    }
    bytes[at..at + 4].fill(0);
    let sum = crc32c(bytes);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Address and checksum of a page.
fn sum_of(block: &[u8]) -> ([u8; 8], [u8; 4]) {
    (block[ADDRESS].try_into().expect("eight bytes"), block[SEAL..SEAL + 4].try_into().expect("four bytes"))
}

/// Without the zeros at the end.
pub(super) fn short(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1)].to_vec()
}

/// With zeros up to this length, and no longer.
pub(super) fn long(mut bytes: Vec<u8>, len: u64) -> Vec<u8> {
    bytes.resize(len as usize, 0);
    bytes
}
