//! Buffers of a look, and what the engine writes while it lasts: over the disks of the moment, which stay as they are.

use std::collections::BTreeMap;

use braid_core::combine::Combine;
use braid_core::request::{Copy, DeviceOp, Dispatch, Input, PageWork, Segment};
use braid_core::units::{BLOCK, BufId, BufRange, Uuid};
use braid_core::{Engine, units::DeviceId};

use super::looks::Place;
use super::moment::Moment;
use crate::combine;
use crate::disk::{Block, Records, SECTOR, SECTORS};
use crate::pages::{Pages, is_page};

/// Stamps of the sectors of a block.
pub(crate) type Stamps = [u64; SECTORS];

/// By disk and block: what was written since the cut.
type Written = BTreeMap<(usize, u64), Block>;

/// See the module.
#[derive(Default)]
pub(crate) struct Memory {
    /// Buffers of reads, by number; they are kept from look to look.
    reads: Vec<Vec<u64>>,
    scratch: BTreeMap<u32, Vec<u64>>,
    /// What of all that is records.
    records: Records,
    /// Of checksums.
    pub(crate) pages: Pages,
    written: Written,
    /// What was read of the disks as the cut left them.
    read: Vec<Place>,
}

impl Memory {
    /// Nothing is written, and there are so many buffers of so many bytes.
    pub(crate) fn begin(&mut self, buffers: usize, len: u64) {
        self.scratch.clear();
        self.records.clear();
        self.pages.clear();
        self.written.clear();
        self.read.clear();
        while self.reads.len() < buffers {
            self.reads.push(vec![0; (len / SECTOR) as usize]);
        }
    }

    /// A block of a buffer of a read.
    pub(crate) fn read(&self, buffer: usize, block: u64) -> &Stamps {
        let block = self.reads[buffer][block as usize * SECTORS..].first_chunk();
        block.expect("it is as long as was asked for")
    }

    /// A block of a disk as it is by now.
    pub(crate) fn on_disk(&mut self, state: &Moment<'_>, device: DeviceId, block: u64) -> Stamps {
        block_of(&self.written, &mut self.read, state, device, block).stamps()
    }

    /// What was read of the disks as the cut left them.
    pub(crate) fn take_read(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.read)
    }

    /// What the engine asks of memory.
    pub(crate) fn copy(&mut self, copy: Copy) {
        match copy {
            Copy::Zero(range) if is_page(range.buf) => self.pages.zero(range),
            Copy::Move { from, to } if is_page(from.buf) => self.pages.copy(from.buf, to.buf),
            Copy::Drop(page) if is_page(page) => self.pages.drop(page),
            Copy::Zero(range) => self.range(range).fill(0),
            Copy::Move { from, to } => {
                let from = self.range(from).to_vec();
                self.range(to).copy_from_slice(&from);
            }
            Copy::Scratch { buf, len } => {
                self.scratch.insert(buf.0, vec![0; (u64::from(len) / SECTOR) as usize]);
            }
            Copy::Drop(buf) => {
                self.scratch.remove(&buf.0);
            }
        }
    }

    /// What the engine asks of parity.
    pub(crate) fn combine(&mut self, work: &Combine) {
        let made = combine::made(work, |range| self.range(range).to_vec());
        made.into_iter().for_each(|(to, stamps)| self.range(to).copy_from_slice(&stamps));
    }

    #[cfg(test)]
    pub(crate) fn stamps(&mut self, range: BufRange) -> &mut [u64] {
        self.range(range)
    }

    /// What the engine asks of checksums.
    pub(crate) fn page(&mut self, work: PageWork) -> Option<Input> {
        let Memory { pages, reads, scratch, .. } = self;
        pages.work(work, |range| seen(reads, scratch, range))
    }

    /// The checksum of what is in memory.
    pub(crate) fn digest(&mut self, data: Vec<BufRange>) -> u32 {
        let whole: Vec<u64> = data.into_iter().flat_map(|range| self.range(range).to_vec()).collect();
        combine::digest(&whole)
    }

    /// The generation of a superblock that was read, if it is whole.
    pub(crate) fn superblock(&self, slot: BufRange, pool: Uuid, device: Uuid) -> Option<u64> {
        self.records.superblock(seen(&self.reads, &self.scratch, slot), pool, device)
    }

    /// Whether two ranges hold the same.
    pub(crate) fn equal(&mut self, a: BufRange, b: BufRange) -> bool {
        let Memory { reads, scratch, .. } = self;
        seen(reads, scratch, a) == seen(reads, scratch, b)
    }

    /// Does what a command asks of payload, and of what an opening writes again. Other records are read by nobody while the pool
    /// is open.
    pub(crate) fn done(&mut self, engine: &Engine, state: &Moment<'_>, dispatch: Dispatch) {
        let mut at = dispatch.offset / BLOCK;
        for segment in engine.segments(dispatch.id) {
            let range = match segment {
                Segment::Payload(range) => range,
                Segment::Record(bytes) => {
                    for block in bytes.as_chunks::<{ BLOCK as usize }>().0 {
                        let disk = dispatch.device.index() - 1;
                        self.written.insert((disk, at), Block::Bytes(Box::new(*block)));
                        at += 1;
                    }
                    continue;
                }
                Segment::Gap(len) => {
                    at += len / BLOCK;
                    continue;
                }
            };
            for i in 0..u64::from(range.len) / BLOCK {
                let part = BufRange { offset: range.offset + (i * BLOCK) as u32, len: BLOCK as u32, ..range };
                let page = is_page(range.buf);
                match dispatch.op {
                    DeviceOp::Read if page => {
                        let Memory { pages, written, read, .. } = self;
                        block_of(written, read, state, dispatch.device, at).copy_bytes(pages.page(range.buf));
                    }
                    _ if page => {
                        let bytes = Block::Bytes(Box::new(*self.pages.page(range.buf)));
                        self.written.insert((dispatch.device.index() - 1, at), bytes);
                    }
                    DeviceOp::Read => {
                        let Memory { records, written, read, .. } = self;
                        let block = block_of(written, read, state, dispatch.device, at);
                        let stamps = block.stamps();
                        records.note(&stamps, || block);
                        self.range(part).copy_from_slice(&stamps);
                    }
                    _ => {
                        let stamps = self.range(part).try_into().expect("a block");
                        let block = self.records.block(stamps);
                        self.written.insert((dispatch.device.index() - 1, at), block);
                    }
                }
                at += 1;
            }
        }
    }

    fn range(&mut self, range: BufRange) -> &mut [u64] {
        part(&mut self.reads, &mut self.scratch, range)
    }
}

fn block_of<'a>(
    written: &'a Written,
    read: &mut Vec<Place>,
    state: &'a Moment<'_>,
    device: DeviceId,
    block: u64,
) -> &'a Block {
    let disk = device.index() - 1;
    written.get(&(disk, block)).unwrap_or_else(|| {
        read.push((disk as u32, block as u32));
        state.block(state.disks[disk][block as usize])
    })
}

fn seen<'a>(reads: &'a [Vec<u64>], scratch: &'a BTreeMap<u32, Vec<u64>>, range: BufRange) -> &'a [u64] {
    let (from, len) = sectors(range);
    let stamps = match scratch.get(&range.buf.0) {
        Some(scratch) => scratch,
        None => &reads[range.buf.0 as usize],
    };
    &stamps[from..from + len]
}

/// First sector and how many.
fn sectors(range: BufRange) -> (usize, usize) {
    ((u64::from(range.offset) / SECTOR) as usize, (u64::from(range.len) / SECTOR) as usize)
}

fn part<'a>(reads: &'a mut [Vec<u64>], scratch: &'a mut BTreeMap<u32, Vec<u64>>, range: BufRange) -> &'a mut [u64] {
    let (BufId(buf), (from, len)) = (range.buf, sectors(range));
    let stamps = match scratch.get_mut(&buf) {
        Some(scratch) => scratch,
        None => &mut reads[buf as usize],
    };
    &mut stamps[from..from + len]
}
