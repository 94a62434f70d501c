//! Where the copies of a block are and whether they are alike, looked up slowly in maps and on disks.

use std::collections::BTreeSet;

use braid_core::ChunkType;
use braid_core::chunk::Column;
use braid_core::gf;
use braid_core::meta::superblock::{self, SUPERBLOCK_SIZE};
use braid_core::profile::{column_of, data_stripes, slice};
use braid_core::regions;
use braid_core::request::{Event, ScrubCopy};
use braid_core::units::{BLOCK, ChunkId, DeviceId, STRIP, UNIT, VolumeId};
use braid_core::volume::{Extent, Volume};

use super::World;
use crate::checker::Checker;
use crate::combine;
use crate::disk::SECTOR;

/// Longer than any look at a unit takes where disks are as they should be.
const JUST_NOW_NS: u64 = 100_000_000;

impl World {
    /// The chunks of a type, and the devices each stands on.
    pub fn chunks(&self, kind: ChunkType) -> Vec<(ChunkId, Vec<DeviceId>)> {
        let chunks = self.engine().pool().chunks().filter(|c| c.kind == kind);
        chunks.map(|c| (c.id, c.columns.iter().map(|col| col.device).collect())).collect()
    }

    /// Where each copy of a block of a volume is: device and first byte.
    pub fn places(&self, volume: VolumeId, offset: u64) -> Vec<(DeviceId, u64)> {
        let pool = self.engine().pool();
        let Some(Extent::Mapped { chunk, offset, .. }) = pool.volume(volume).map(|v| v.map.first(offset, BLOCK)) else {
            return Vec::new();
        };
        let chunk = pool.chunk(chunk).expect("it exists");
        let part = slice(chunk.profile, chunk.columns.len(), offset, BLOCK);
        let columns = chunk.columns[part.first..part.first + part.copies].iter();
        columns.map(|c| (c.device, c.offset + part.offset)).collect()
    }

    /// All copies are alike, and parity is what its rows come to. `when` is for the sentence.
    pub fn check_copies(&self, when: &str) -> Result<(), String> {
        let (unequal, wrong) = (self.unequal(), self.wrong_parity());
        match unequal.is_empty() && wrong.is_empty() {
            true => Ok(()),
            false => Err(Checker::Copies.says(format_args!("{when} unequal {unequal:?}, wrong parity {wrong:?}"))),
        }
    }

    /// Blocks of volumes whose copies on members in use, as far as those are up to date, are not alike: volume and first byte.
    /// By brute force. Pages of checksums are made alike when they are used.
    pub fn unequal(&self) -> Vec<(VolumeId, u64)> {
        self.unequal_of(|volume| !volume.is_internal())
    }

    /// The same of pages of checksums.
    pub fn unequal_pages(&self) -> Vec<(VolumeId, u64)> {
        self.unequal_of(Volume::is_internal)
    }

    fn unequal_of(&self, which: impl Fn(&Volume) -> bool) -> Vec<(VolumeId, u64)> {
        let pool = self.engine().pool();
        let mut found = Vec::new();
        for volume in pool.volumes().filter(|volume| which(volume)) {
            for (unit, entry) in volume.map.entries() {
                let chunk = pool.chunk(entry.chunk()).expect("it exists");
                for block in (0..UNIT / BLOCK).filter(|b| entry.written() >> b & 1 == 1) {
                    let at = u64::from(entry.unit()) * UNIT + block * BLOCK;
                    let part = slice(chunk.profile, chunk.columns.len(), at, BLOCK);
                    let columns = chunk.columns[part.first..part.first + part.copies].iter();
                    let is_stale = |device| pool.is_unit_stale(device, volume.id, unit);
                    let online = columns.filter(|c| pool.is_online(c.device) && !is_stale(c.device));
                    // As payload: a copy of what is no stamp is alike, though other bytes stand for it.
                    let read = |c: &Column| {
                        let mut stamps = [0; (BLOCK / SECTOR) as usize];
                        self.disks[c.device.index() - 1].read_stamps(c.offset + part.offset, &mut stamps);
                        stamps
                    };
                    let copies: BTreeSet<_> = online.map(read).collect();
                    if copies.len() > 1 {
                        found.push((volume.id, unit * UNIT + block * BLOCK));
                    }
                }
            }
        }
        found
    }

    /// Blocks of parity that are not what the blocks of their rows come to: chunk, row, member. By brute force, over rows that hold
    /// something and whose members are there and up to date.
    pub fn wrong_parity(&self) -> Vec<(ChunkId, u32, usize)> {
        let pool = self.engine().pool();
        let mut found = Vec::new();
        for chunk in pool.chunks().filter(|c| c.rows() > 0) {
            let (n, data) = (chunk.columns.len(), data_stripes(chunk.profile, chunk.columns.len()));
            for row in (0..chunk.rows()).filter(|&row| chunk.is_live(row)) {
                let unit = regions::row_unit(chunk.id, row);
                let is_good = |member: usize| {
                    let device = chunk.columns[column_of(chunk.profile, n, row.into(), member)].device;
                    pool.is_online(device) && !pool.is_unit_stale(device, regions::ROWS, unit)
                };
                if !(0..data).all(is_good) {
                    continue;
                }
                let strip = |member: usize| {
                    let column = chunk.columns[column_of(chunk.profile, n, row.into(), member)];
                    let mut stamps = vec![0; (STRIP / SECTOR) as usize];
                    let disk = &self.disks[column.device.index() - 1];
                    disk.read_stamps(column.offset + u64::from(row) * STRIP, &mut stamps);
                    stamps
                };
                let strips: Vec<Vec<u64>> = (0..data).map(strip).collect();
                for parity in (0..chunk.profile.facts().parity).filter(|parity| is_good(data + parity)) {
                    let factor = |member: usize| if parity == 0 { 1 } else { gf::pow2(member) };
                    let wanted = (0..(STRIP / SECTOR) as usize).map(|i| {
                        strips.iter().enumerate().fold(0, |sum, (m, strip)| sum ^ combine::counted(strip[i], factor(m)))
                    });
                    if !wanted.eq(strip(data + parity).into_iter().map(|stamp| combine::counted(stamp, 1))) {
                        found.push((chunk.id, row, data + parity));
                    }
                }
            }
        }
        found
    }

    /// A superblock that is called damaged is, or it is not the newest that was written.
    fn check_bad_superblock(&mut self, event: &Event) {
        let &Event::BadRecord { device, device_offset: at, len: SUPERBLOCK_SIZE } = event else { return };
        let slot = self.disks[device.index() - 1].read_bytes(at, SUPERBLOCK_SIZE);
        let pool = self.engine().pool();
        let found = pool.device(device).and_then(|member| superblock::generation(&slot, pool.uuid, member.uuid));
        let written = self.superblocks_written.get(&(device.0, at));
        if found.is_some_and(|found| written.is_none_or(|&written| found >= written)) {
            self.wrong.push(Checker::Copies.says(format_args!("a whole superblock is called damaged: {event:?}")));
        }
    }

    /// A difference that is reported is there now, and the copies are grouped as they are. Not seen: what is said of copies of which one
    /// changed just now, maybe after it was read, or while reads may give something else.
    pub(super) fn check_difference(&mut self, event: &Event) {
        if self.faults.any_misreads() {
            return;
        }
        self.check_bad_superblock(event);
        let Event::ScrubDifference { len, copies, .. } = event else { return };
        let blocks = |c: &ScrubCopy| (c.device.0, c.offset / BLOCK)..(c.device.0, (c.offset + len) / BLOCK);
        let is_new = |at: &u64| self.now - at < JUST_NOW_NS;
        let has_changed = |c: &ScrubCopy| {
            self.cache_lost.get(&c.device.0).is_some_and(is_new)
                || self.flipped.range(blocks(c)).any(|(_, at)| is_new(at))
        };
        // What was true when it was read.
        if copies.iter().any(has_changed) {
            return;
        }
        for at in (0..*len).step_by(BLOCK as usize) {
            let block = |c: &ScrubCopy| self.disks[c.device.index() - 1].read_bytes(c.offset + at, BLOCK);
            let is_right = |a: &ScrubCopy, b: &ScrubCopy| (a.group == b.group) == (block(a) == block(b));
            let all_right = copies.iter().all(|a| copies.iter().all(|b| is_right(a, b)));
            let none_differs = match copies.as_slice() {
                // It differs from what the others of its row make of it, which stands nowhere.
                [alone] => self.chunk_at(alone.device, alone.offset, *len).is_none_or(|c| c.rows() == 0),
                [first, ..] => copies.iter().all(|c| c.group == first.group),
                [] => true,
            };
            if !all_right || none_differs {
                self.wrong.push(Checker::Copies.says(format_args!("a false difference at {} ns: {event:?}", self.now)));
            }
        }
    }
}
