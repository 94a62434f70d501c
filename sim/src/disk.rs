//! A simple disk: how long a command takes, and what it leaves behind.
//!
//! ```text
//!   time      a shared stage, one command at a time, then wait for one of n servers,
//!             then base + bytes * per byte (+ seek, if it rotates and the head is elsewhere)
//!   order     as they come; with command queueing the nearest of those it has, and so the next of a stream before all
//!             others, unless one has waited for a second
//!   content   block 4 KiB -> eight stamps (payload: one u64 a sector of 512 bytes) or bytes (records)
//!   cache     block -> its versions since the last flush; a power cut leaves any of them, sector by sector
//! ```
//!
//! Payload is one stamp a sector. A stamp and the 512 bytes that repeat it are the same thing, so payload that is read
//! as a record, or a record as payload, is seen for what it is.
//!
//! Left out: elevators over more than distance, zones, read-ahead, throttling, wear, silent corruption. A disk
//! answers reads from its cache and in any order; data of a read is that of the moment it completes.

use std::collections::{BTreeMap, VecDeque};

use crate::rng::Rng;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// Bytes of a block.
pub const BLOCK: u64 = 4096;
const SECTORS: usize = (BLOCK / SECTOR) as usize;

/// Service times.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Any command.
    pub base_ns: u64,
    /// Each KiB.
    pub kib_ns: u64,
    /// Commands served at once.
    pub parallel: usize,
    /// Added when the head has to move; 0 = does not rotate.
    pub seek_ns: u64,
    /// A flush.
    pub flush_ns: u64,
    /// A stage that commands pass one at a time, whatever their size, before a server takes them.
    pub shared_ns: u64,
    /// Commands among which it chooses the next; 0 takes them as they come.
    pub ncq: usize,
}

/// How long a command may be passed over by nearer ones.
const PATIENCE_NS: u64 = 1_000_000_000;

impl Model {
    /// 7,200 rpm.
    pub const HDD: Model = Model {
        base_ns: 100_000,
        kib_ns: 6_000,
        parallel: 1,
        seek_ns: 8_000_000,
        flush_ns: 10_000_000,
        shared_ns: 0,
        ncq: 0,
    };
    /// The same with command queueing.
    pub const HDD_NCQ: Model = Model { ncq: 32, ..Model::HDD };
    /// SATA flash.
    pub const SSD: Model =
        Model { base_ns: 60_000, kib_ns: 2_000, parallel: 8, seek_ns: 0, flush_ns: 1_000_000, shared_ns: 0, ncq: 0 };
    /// NVMe flash.
    pub const NVME: Model =
        Model { base_ns: 15_000, kib_ns: 300, parallel: 32, seek_ns: 0, flush_ns: 100_000, shared_ns: 0, ncq: 0 };
    /// Network-like: a price per command, 64 at a time, and nothing in common. No limit can gain more than twice.
    pub const SERVERS: Model =
        Model { base_ns: 1_000_000, kib_ns: 0, parallel: 64, seek_ns: 0, flush_ns: 1_000_000, shared_ns: 0, ncq: 0 };
    /// Network-like, with a price in common: what a measured one-node Ceph does, by `queue/budget/model.rs` in core.
    pub const CLUSTER: Model =
        Model { base_ns: 720_000, kib_ns: 0, parallel: 64, seek_ns: 0, flush_ns: 720_000, shared_ns: 88_000, ncq: 0 };
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Block {
    Stamps([u64; SECTORS]),
    Bytes(Box<[u8; BLOCK as usize]>),
}

const ZERO: Block = Block::Stamps([0; SECTORS]);

impl Block {
    fn stamp(&self, i: usize) -> u64 {
        match self {
            Block::Stamps(stamps) => stamps[i],
            Block::Bytes(bytes) => {
                let sector = &bytes[i * SECTOR as usize..][..SECTOR as usize];
                let (words, _) = sector.as_chunks::<8>();
                let first = u64::from_le_bytes(words[0]);
                if words.iter().all(|w| u64::from_le_bytes(*w) == first) { first } else { u64::MAX }
            }
        }
    }

    fn bytes(&self) -> [u8; BLOCK as usize] {
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
    fn torn(&self, new: &Block, mut takes: impl FnMut() -> bool) -> Block {
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

/// What a write carries, block by block.
#[derive(Clone, Debug)]
pub struct Content(Vec<Block>);

impl Content {
    /// Payload: one stamp a sector.
    pub fn push_stamps(&mut self, stamps: &[u64]) {
        self.0.extend(stamps.as_chunks::<SECTORS>().0.iter().map(|s| Block::Stamps(*s)));
    }

    /// A record.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<{ BLOCK as usize }>();
        assert!(rest.is_empty(), "a record of {} bytes", bytes.len());
        self.0.extend(blocks.iter().map(|b| Block::Bytes(Box::new(*b))));
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

/// One disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Bytes.
    pub size: u64,
    /// Service times.
    pub model: Model,
    blocks: BTreeMap<u64, Block>,
    /// Versions that a power cut may leave: the first is on stable media, the last is what a read gives.
    unstable: BTreeMap<u64, Vec<(u64, Block)>>,
    seq: u64,
    servers: Vec<u64>,
    /// When the shared stage is free.
    shared: u64,
    head: u64,
    /// What it may choose from, by arrival.
    choices: VecDeque<Choice>,
    is_busy: bool,
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    id: u32,
    arrived: u64,
    offset: u64,
    len: u64,
    is_flush: bool,
}

impl Disk {
    /// An empty disk.
    pub fn new(size: u64, model: Model) -> Disk {
        let servers = vec![0; model.parallel.max(1)];
        let (blocks, unstable, choices) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Disk { size, model, blocks, unstable, seq: 0, servers, shared: 0, head: 0, choices, is_busy: false }
    }

    /// A command arrives; which one the disk begins with, and when that is done.
    pub fn arrive(
        &mut self,
        now: u64,
        (id, offset, len): (u32, u64, u64),
        is_flush: bool,
        factor: u64,
    ) -> Option<(u32, u64)> {
        if self.model.ncq == 0 {
            return Some((id, self.serve(now, offset, len, is_flush, factor)));
        }
        self.choices.push_back(Choice { id, arrived: now, offset, len, is_flush });
        if self.is_busy { None } else { self.begin(now, factor) }
    }

    /// A command is done; likewise.
    pub fn next(&mut self, now: u64, factor: u64) -> Option<(u32, u64)> {
        if self.model.ncq == 0 {
            return None;
        }
        self.is_busy = false;
        self.begin(now, factor)
    }

    fn begin(&mut self, now: u64, factor: u64) -> Option<(u32, u64)> {
        let far = |choice: &Choice| if choice.is_flush { u64::MAX } else { choice.offset.abs_diff(self.head) };
        let nearest = || self.choices.iter().take(self.model.ncq).enumerate().min_by_key(|(_, choice)| far(choice));
        let at = match self.choices.front()? {
            oldest if now >= oldest.arrived + PATIENCE_NS => 0,
            _ => nearest()?.0,
        };
        let Choice { id, offset, len, is_flush, .. } = self.choices.remove(at)?;
        self.is_busy = true;
        Some((id, self.serve(now, offset, len, is_flush, factor)))
    }

    /// When a command that arrives now is done.
    fn serve(&mut self, now: u64, offset: u64, len: u64, is_flush: bool, factor: u64) -> u64 {
        let m = &self.model;
        let mut ns = if is_flush { m.flush_ns } else { m.base_ns + len.min(32 << 20) / 1024 * m.kib_ns };
        if !is_flush && self.head != offset {
            ns += m.seek_ns;
        }
        self.head = offset + len;
        let server = self.servers.iter_mut().min().expect("at least one");
        self.shared = self.shared.max(now) + m.shared_ns * factor;
        *server = (*server).max(self.shared) + ns.max(1) * factor;
        *server
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
            bytes.extend_from_slice(&self.blocks.get(&at).unwrap_or(&ZERO).bytes());
        }
        bytes
    }

    /// The power goes: of what no flush covered, anything may be left, block by block, some of them torn.
    pub fn cut(&mut self, rng: &mut Rng) {
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
        self.settle();
    }

    /// The command queue is empty, as after a reset.
    pub fn settle(&mut self) {
        self.servers.iter_mut().for_each(|s| *s = 0);
        self.shared = 0;
        self.choices.clear();
        self.is_busy = false;
    }

    /// Damages one byte of what stands there.
    pub fn corrupt(&mut self, offset: u64, xor: u8) {
        let block = self.blocks.entry(offset / BLOCK).or_insert(ZERO);
        let mut bytes = block.bytes();
        bytes[(offset % BLOCK) as usize] ^= xor;
        *block = Block::Bytes(Box::new(bytes));
    }
}
