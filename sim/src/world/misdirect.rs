//! Writes that land elsewhere: what they spoil is told to the oracle, so that it expects wrong content there and nowhere
//! else.

use std::collections::BTreeSet;

use braid_core::chunk::{Chunk, Column};
use braid_core::meta::superblock::{SLOTS, SUPERBLOCK_SIZE};
use braid_core::profile::slice;
use braid_core::units::{BLOCK, ChunkId, DeviceId, STRIP, UNIT, VolumeId};

use super::World;
use crate::disk::{Content, SECTOR};

impl World {
    /// A write meant for `offset` arrives at `lands`.
    pub(super) fn misdirect(
        &mut self,
        device: DeviceId,
        (offset, lands, len): (u64, Option<u64>, u64),
        content: &Content,
    ) {
        if let Some(lands) = lands {
            self.disks[device.index() - 1].write(lands, content, false, || true);
        }
        let blocks = |at: u64| (at / BLOCK..(at + len) / BLOCK).map(|block| (device.0, block));
        self.spoil(blocks(offset).chain(lands.into_iter().flat_map(blocks)).collect());
    }

    /// These blocks hold what nobody wrote there.
    pub(super) fn spoil(&mut self, blocks: BTreeSet<(u32, u64)>) {
        if blocks.is_empty() {
            return;
        }
        self.tell_spoilt(&blocks);
        let rows = self.rows_of(&blocks);
        rows.iter().for_each(|&row| self.tell_unmade(row));
        self.spoilt_rows.extend(rows);
        self.spoilt_still.extend(&blocks);
        self.spoilt.extend(blocks);
    }

    /// Some write landed elsewhere, or a bit changed.
    pub fn was_misdirected(&self) -> bool {
        !self.spoilt.is_empty()
    }

    /// Something else than its last superblocks may stand in the slots of a device.
    pub fn has_spoilt_slots(&self, device: DeviceId) -> bool {
        let blocks = |slot: u64| slot / BLOCK..(slot + SUPERBLOCK_SIZE) / BLOCK;
        SLOTS.into_iter().flat_map(blocks).any(|block| self.spoilt.contains(&(device.0, block)))
    }

    /// A scrub may find copies that differ, or seem to while it reads them.
    pub fn may_tell_differences(&self) -> bool {
        self.was_misdirected() || self.faults.any_misreads()
    }

    /// Blocks of devices that were spoilt so far.
    pub fn spoilt_blocks(&self) -> usize {
        self.spoilt.len()
    }

    /// Before a read: since some place was spoilt, content may have moved there.
    pub(super) fn note_spoilt_read(&mut self, device: DeviceId, offset: u64, len: u64) {
        let read = (device.0, offset / BLOCK)..(device.0, (offset + len).div_ceil(BLOCK));
        if self.spoilt_still.range(read).next().is_some() {
            let spoilt = self.spoilt_still.clone();
            self.tell_spoilt(&spoilt);
        }
        let is_read = |&&(chunk, row, block): &&(ChunkId, u32, u64)| {
            let at = u64::from(row) * STRIP + block * BLOCK;
            let columns = self.engine().pool().chunk(chunk).into_iter().flat_map(|chunk| &chunk.columns);
            columns.filter(|c| c.device == device).any(|c| (offset..offset + len).contains(&(c.offset + at)))
        };
        let rows: Vec<_> = self.spoilt_rows.iter().filter(is_read).copied().collect();
        rows.into_iter().for_each(|row| self.tell_unmade(row));
    }

    /// A write arrived where it was meant to.
    pub(super) fn note_unspoilt(&mut self, device: DeviceId, offset: u64, len: u64) {
        if !self.spoilt_still.is_empty() {
            (offset / BLOCK..(offset + len) / BLOCK).for_each(|block| _ = self.spoilt_still.remove(&(device.0, block)));
        }
    }

    /// After a crash the pool may see places again that nothing referred to when they were spoilt.
    pub(super) fn spoil_again(&mut self) {
        // A mend may have taken such a copy for the right one and written it over the others.
        for (volume, offset, _) in self.owners(&self.spoilt) {
            let places = self.places(volume, offset);
            self.spoilt.extend(places.into_iter().map(|(device, at)| (device.0, at / BLOCK)));
        }
        let spoilt = self.spoilt.clone();
        self.tell_spoilt(&spoilt);
        self.spoilt_rows.extend(self.rows_of(&spoilt));
        self.spoilt_still = spoilt;
    }

    /// Whatever stands in these blocks may be read, unless checksums say better.
    fn tell_spoilt(&mut self, spoilt: &BTreeSet<(u32, u64)>) {
        let after = self.next_tag - 1;
        for (volume, offset, (device, block)) in self.owners(spoilt) {
            if self.engine().knows_better(volume, offset / UNIT) {
                continue;
            }
            let mut stamps = [0; (BLOCK / SECTOR) as usize];
            self.disks[device as usize - 1].read_stamps(block * BLOCK, &mut stamps);
            for (i, stamp) in stamps.into_iter().enumerate() {
                self.oracle.spoil(volume.0, offset / SECTOR + i as u64, stamp, after);
            }
        }
    }

    /// A strip of this row may be made of one that was spoilt, whichever that was and whatever was written since: parity that is
    /// brought up to date by what changed stays wrong.
    fn tell_unmade(&mut self, (chunk, row, block): (ChunkId, u32, u64)) {
        let columns = self.engine().pool().chunk(chunk).into_iter().flat_map(|chunk| &chunk.columns);
        let at = u64::from(row) * STRIP + block * BLOCK;
        let strips = columns.map(|c| (c.device.0, (c.offset + at) / BLOCK)).collect();
        for (volume, offset, _) in self.owners(&strips) {
            if !self.engine().knows_better(volume, offset / UNIT) {
                (0..BLOCK / SECTOR).for_each(|i| self.oracle.unmake(volume.0, offset / SECTOR + i));
            }
        }
    }

    /// The rows of parity that these blocks are of, whichever strip: chunk, row, block of the strips. By brute force.
    fn rows_of(&self, blocks: &BTreeSet<(u32, u64)>) -> Vec<(ChunkId, u32, u64)> {
        let chunks = self.engine().pool().chunks().filter(|chunk| chunk.rows() > 0);
        let columns = chunks.flat_map(|chunk| chunk.columns.iter().map(move |column| (chunk, column)));
        let of_column = |(chunk, column): (&Chunk, &Column)| {
            let first = column.offset / BLOCK;
            let strips = (column.device.0, first)..(column.device.0, first + u64::from(chunk.rows()) * (STRIP / BLOCK));
            let id = chunk.id;
            let row = move |&(_, block): &(u32, u64)| {
                let at = block - first;
                (id, (at / (STRIP / BLOCK)) as u32, at % (STRIP / BLOCK))
            };
            blocks.range(strips).map(row).collect::<Vec<_>>()
        };
        columns.flat_map(of_column).collect()
    }

    /// A block of a volume that is written has a copy there. By brute force.
    pub(super) fn holds_something(&self, device: DeviceId, block: u64) -> bool {
        let owners = self.owners(&[(device.0, block)].into());
        owners.into_iter().any(|(volume, offset, _)| {
            let map = &self.engine().pool().volume(volume).expect("just seen").map;
            map.get(offset / UNIT).written() >> (offset % UNIT / BLOCK) & 1 == 1
        })
    }

    /// Who has a copy in one of these blocks: volume, first byte, and the block. By brute force.
    fn owners(&self, blocks: &BTreeSet<(u32, u64)>) -> Vec<(VolumeId, u64, (u32, u64))> {
        let pool = self.engine().pool();
        let mut found = Vec::new();
        if blocks.is_empty() {
            return found;
        }
        for volume in pool.volumes().filter(|v| !v.is_internal()) {
            for (unit, entry) in volume.map.entries() {
                let chunk = pool.chunk(entry.chunk()).expect("it exists");
                for block in 0..UNIT / BLOCK {
                    let at = u64::from(entry.unit()) * UNIT + block * BLOCK;
                    let part = slice(chunk.profile, chunk.columns.len(), at, BLOCK);
                    let columns = chunk.columns[part.first..part.first + part.copies].iter();
                    let places = columns.map(|c| (c.device.0, (c.offset + part.offset) / BLOCK));
                    let offset = unit * UNIT + block * BLOCK;
                    found.extend(places.filter(|p| blocks.contains(p)).map(|p| (volume.id, offset, p)));
                }
            }
        }
        found
    }
}
