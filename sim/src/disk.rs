//! What commands leave behind on a disk; how long they take is its [`Timing`].
//!
//! ```text
//!   content   block 4 KiB -> eight stamps (payload: one u64 a sector of 512 bytes) or bytes (records)
//!   cache     block -> its versions since the last flush; a power cut leaves any of them, sector by sector
//! ```
//!
//! Payload is one stamp a sector. A stamp and the 512 bytes that repeat it are the same thing, so payload that is read
//! as a record, or a record as payload, is seen for what it is.
//!
//! Left out: silent corruption that nobody asked for. Data of a read is that of the moment it completes.

use std::collections::{BTreeMap, BTreeSet};

use braid_core::meta::superblock;
use braid_core::units::Uuid;

use crate::device::{Buses, Model, Timing};
use crate::rng::Rng;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Sectors of a block.
pub(crate) const SECTORS: usize = (BLOCK / SECTOR) as usize;

/// What stands in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Payload.
    Stamps([u64; SECTORS]),
    /// A record.
    Bytes(Box<[u8; BLOCK as usize]>),
}

/// What stands where nobody wrote.
pub(crate) const ZERO: Block = Block::Stamps([0; SECTORS]);

/// What bytes that are no stamp look like: the same for the same, and nothing that a client writes.
fn rubbish(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)) | 1 << 63
}

fn is_rubbish(stamp: u64) -> bool {
    stamp >> 63 == 1
}

impl Block {
    /// One sector as payload; of a record, a stamp that nobody writes.
    pub(crate) fn stamp(&self, i: usize) -> u64 {
        match self {
            Block::Stamps(stamps) => stamps[i],
            Block::Bytes(bytes) => {
                let sector = &bytes[i * SECTOR as usize..][..SECTOR as usize];
                let (words, _) = sector.as_chunks::<8>();
                let first = u64::from_le_bytes(words[0]);
                let words = words.iter().map(|w| u64::from_le_bytes(*w));
                if words.clone().all(|w| w == first) { first } else { rubbish(words) }
            }
        }
    }

    /// All sectors as payload.
    pub(crate) fn stamps(&self) -> [u64; SECTORS] {
        match self {
            Block::Stamps(stamps) => *stamps,
            Block::Bytes(_) => std::array::from_fn(|sector| self.stamp(sector)),
        }
    }

    /// All of it as a record, into a page.
    pub(crate) fn copy_bytes(&self, page: &mut [u8; BLOCK as usize]) {
        match self {
            Block::Bytes(bytes) => page.copy_from_slice(&bytes[..]),
            Block::Stamps(stamps) if *stamps == [0; SECTORS] => page.fill(0),
            Block::Stamps(_) => *page = self.bytes(),
        }
    }

    /// All of it as a record.
    pub(crate) fn bytes(&self) -> [u8; BLOCK as usize] {
        match self {
            Block::Bytes(bytes) => **bytes,
            Block::Stamps(stamps) => {
                let mut bytes = [0; BLOCK as usize];
                for (i, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    *word = stamps[i / 64].to_le_bytes();
                }
                bytes
            }
        }
    }

    /// Some sectors of `new` over this.
    pub(crate) fn torn(&self, new: &Block, mut takes: impl FnMut() -> bool) -> Block {
        let mut result = self.clone();
        for i in 0..SECTORS {
            if !takes() {
                continue;
            }
            match (&mut result, new) {
                (Block::Stamps(to), Block::Stamps(from)) => to[i] = from[i],
                (to, from) => {
                    let mut bytes = to.bytes();
                    let range = i * SECTOR as usize..(i + 1) * SECTOR as usize;
                    bytes[range.clone()].copy_from_slice(&from.bytes()[range]);
                    *to = Block::Bytes(Box::new(bytes));
                }
            }
        }
        result
    }
}

/// Records that were read as payload. Memory of payload has a stamp a sector, which says nothing of a record: who copies what
/// it does not know, as a move of the stripe journal does, copies the record all the same.
#[derive(Clone, Default)]
pub(crate) struct Records(BTreeMap<[u64; SECTORS], Box<[u8; BLOCK as usize]>>);

impl Records {
    /// A block was read, and looks like this as payload.
    pub(crate) fn note<'a>(&mut self, stamps: &[u64; SECTORS], block: impl FnOnce() -> &'a Block) {
        if stamps.iter().any(|&stamp| is_rubbish(stamp))
            && let Block::Bytes(bytes) = block()
        {
            self.0.insert(*stamps, bytes.clone());
        }
    }

    /// What a write of these carries.
    pub(crate) fn block(&self, stamps: [u64; SECTORS]) -> Block {
        let record = stamps.iter().any(|&stamp| is_rubbish(stamp)).then(|| self.0.get(&stamps)).flatten();
        record.map_or(Block::Stamps(stamps), |bytes| Block::Bytes(bytes.clone()))
    }

    /// The generation of a superblock that was read, if it is whole.
    pub(crate) fn superblock(&self, stamps: &[u64], pool: Uuid, device: Uuid) -> Option<u64> {
        let blocks = stamps.as_chunks::<SECTORS>().0;
        let slot: Vec<u8> = blocks.iter().flat_map(|stamps| self.block(*stamps).bytes()).collect();
        superblock::generation(&slot, pool, device)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// What a write carries, block by block.
#[derive(Clone, Debug)]
pub struct Content(Vec<Block>);

impl Content {
    /// Payload: one stamp a sector.
    pub(crate) fn push_stamps(&mut self, stamps: &[u64], records: &Records) {
        self.0.extend(stamps.as_chunks::<SECTORS>().0.iter().map(|s| records.block(*s)));
    }

    /// A record.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<{ BLOCK as usize }>();
        assert!(rest.is_empty(), "a record of {} bytes", bytes.len());
        self.0.extend(blocks.iter().map(|b| Block::Bytes(Box::new(*b))));
    }

    /// Zeros.
    pub(crate) fn push_zeros(&mut self, len: u64) {
        self.0.resize(self.0.len() + (len / BLOCK) as usize, ZERO);
    }

    /// Nothing yet.
    pub fn new() -> Content {
        Content(Vec::new())
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.0.len() as u64 * BLOCK
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Block by block.
    pub(crate) fn blocks(&self) -> &[Block] {
        &self.0
    }

    /// So many bytes of zeros.
    pub fn zeros(len: u64) -> Content {
        Content(vec![ZERO; (len / BLOCK) as usize])
    }
}

impl Default for Content {
    fn default() -> Self {
        Content::new()
    }
}

/// The disks of one world: they share buses by name.
pub fn array<'a>(shapes: impl Iterator<Item = (u64, &'a Model)>, rng: &mut Rng) -> Vec<Disk> {
    let mut buses = Buses::default();
    shapes.map(|(size, model)| Disk::new(size, Timing::sharing(model, size, rng.next_u64(), &mut buses))).collect()
}

/// One disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Bytes.
    pub size: u64,
    /// When commands are done.
    pub timing: Timing,
    /// When the world will look at it next.
    pub(crate) look_at: Option<u64>,
    blocks: BTreeMap<u64, Block>,
    /// Versions that a power cut may leave: the first is on stable media, the last is what a read gives.
    unstable: BTreeMap<u64, Vec<(u64, Block)>>,
    /// Blocks that cannot be read until they are written again.
    unreadable: BTreeSet<u64>,
    seq: u64,
}

impl Disk {
    /// An empty disk.
    pub fn new(size: u64, timing: Timing) -> Disk {
        let (blocks, unstable, unreadable) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Disk { size, timing, look_at: None, blocks, unstable, unreadable, seq: 0 }
    }

    /// What is there, block by block; what nobody wrote is left out.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, &Block)> {
        self.blocks.iter().map(|(&at, block)| (at, block))
    }

    /// This stands there, and has for long.
    pub(crate) fn put(&mut self, at: u64, block: Block) {
        self.blocks.insert(at, block);
    }

    /// A moment that a flush arriving now covers everything up to.
    pub fn mark(&self) -> u64 {
        self.seq
    }

    /// A flush that arrived at `mark` is done.
    pub fn flushed(&mut self, mark: u64) {
        self.unstable.retain(|_, versions| {
            let keep = versions.iter().rposition(|&(seq, _)| seq <= mark).unwrap_or(0);
            versions.drain(..keep);
            versions.len() > 1
        });
    }

    /// A write is done; `takes` says which sectors of it arrived.
    pub fn write(&mut self, offset: u64, content: &Content, stable: bool, mut takes: impl FnMut() -> bool) {
        self.seq += 1;
        for (i, new) in content.0.iter().enumerate() {
            let at = offset / BLOCK + i as u64;
            self.unreadable.remove(&at);
            let old = self.blocks.get(&at).unwrap_or(&ZERO);
            let new = old.torn(new, &mut takes);
            if stable {
                self.unstable.remove(&at);
            } else {
                self.unstable.entry(at).or_insert_with(|| vec![(0, old.clone())]).push((self.seq, new.clone()));
            }
            if new == ZERO {
                self.blocks.remove(&at)
            } else {
                self.blocks.insert(at, new)
            };
        }
    }

    /// The range is forgotten: what is read from it is zeros or what was there.
    pub fn discard(&mut self, offset: u64, len: u64, rng: &mut Rng) {
        let range = offset / BLOCK..(offset + len) / BLOCK;
        let all: Vec<u64> = self.blocks.range(range).map(|(&at, _)| at).collect();
        for at in all {
            if rng.percent(70) {
                self.write(at * BLOCK, &Content::zeros(BLOCK), false, || true);
            }
        }
    }

    /// Zeros.
    pub fn write_zeroes(&mut self, offset: u64, len: u64, takes: impl FnMut() -> bool) {
        self.write(offset, &Content::zeros(len), false, takes);
    }

    /// A block, as it is.
    pub(crate) fn block(&self, at: u64) -> &Block {
        self.blocks.get(&at).unwrap_or(&ZERO)
    }

    /// Payload.
    pub fn read_stamps(&self, offset: u64, into: &mut [u64]) {
        for (i, stamp) in into.iter_mut().enumerate() {
            let sector = offset / SECTOR + i as u64;
            let block = self.blocks.get(&(sector / SECTORS as u64));
            *stamp = block.map_or(0, |b| b.stamp(sector as usize % SECTORS));
        }
    }

    /// Records.
    pub fn read_bytes(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len as usize);
        for at in offset / BLOCK..(offset + len) / BLOCK {
            bytes.extend_from_slice(&self.block(at).bytes());
        }
        bytes
    }

    /// The power goes: of what no flush covered, anything may be left, block by block, some of them torn.
    pub fn cut(&mut self, rng: &mut Rng) {
        self.lose_cache(rng);
        self.settle();
    }

    /// The same, of a disk that goes on.
    pub fn lose_cache(&mut self, rng: &mut Rng) {
        let mood = rng.below(4);
        for (at, versions) in std::mem::take(&mut self.unstable) {
            let newest = versions.len() - 1;
            let any = |rng: &mut Rng| &versions[rng.below(versions.len() as u64) as usize].1;
            let left = match mood {
                0 => versions[0].1.clone(),
                1 => versions[newest].1.clone(),
                _ if rng.percent(80) => any(rng).clone(),
                _ => {
                    let (base, over) = (any(rng).clone(), any(rng).clone());
                    base.torn(&over, || rng.percent(50))
                }
            };
            self.blocks.insert(at, left);
        }
    }

    /// The command queue is empty, as after a reset.
    pub fn settle(&mut self) {
        self.timing.settle();
        self.look_at = None;
    }

    /// The range cannot be read from now on, block by block until it is written again.
    pub fn spoil(&mut self, from: u64, to: u64) {
        self.unreadable.extend(from / BLOCK..to.min(self.size) / BLOCK);
    }

    /// Whether all of the range can be read.
    pub fn is_readable(&self, offset: u64, len: u64) -> bool {
        self.unreadable.range(offset / BLOCK..(offset + len).div_ceil(BLOCK)).next().is_none()
    }

    /// Blocks that hold something.
    pub fn written_blocks(&self) -> Vec<u64> {
        self.blocks.keys().copied().collect()
    }

    /// One bit changes in some of the blocks of a range, so many in a thousand; which blocks those are.
    pub fn flip(&mut self, from: u64, to: u64, per_mille: u64, rng: &mut Rng) -> Vec<u64> {
        let there: Vec<u64> = self.blocks.range(from / BLOCK..to / BLOCK).map(|(&at, _)| at).collect();
        let hit: Vec<u64> = there.into_iter().filter(|_| rng.below(1000) < per_mille).collect();
        for &at in &hit {
            self.corrupt(at * BLOCK + rng.below(BLOCK), 1 << rng.below(8));
        }
        hit
    }

    /// Damages one byte of what stands there.
    pub fn corrupt(&mut self, offset: u64, xor: u8) {
        let block = self.blocks.entry(offset / BLOCK).or_insert(ZERO);
        let mut bytes = block.bytes();
        bytes[(offset % BLOCK) as usize] ^= xor;
        *block = Block::Bytes(Box::new(bytes));
    }
}
