//! The stripe journal read back: changes of rows that may not be in place, in the order in which they were made.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Assembly, MetaRead, Stop};
use crate::meta::ring::{self, UNITS_MAX};
use crate::pool::Pool;
use crate::profile::slice;
use crate::regions::of_unit;
use crate::units::{BLOCK, BLOCKS_PER_UNIT, ChunkId, UNIT};
use crate::volume::INTERNAL;

/// A block of a row that goes in place again, or the word that nothing before this counts of it.
#[derive(Clone, Debug)]
pub(crate) struct Replayed {
    pub(crate) chunk: ChunkId,
    pub(crate) row: u32,
    /// Member, lane, content.
    pub(crate) block: Option<(u8, u8, Arc<[u8]>)>,
}

impl Assembly {
    /// The last groups of the journal, as far back as each follows the one before.
    ///
    /// Each copy of the journal is read by itself: a group that is whole on one of them counts. Copies of members that missed
    /// something of it are left out, since what stands there may be older than what follows it.
    pub(super) fn replayed(&self, pool: &Pool) -> Result<Vec<Replayed>, Stop> {
        let Some(volume) = pool.volume(INTERNAL) else { return Ok(Vec::new()) };
        let mut copies: Vec<Vec<Option<MetaRead>>> = Vec::new();
        for unit in 0..UNITS_MAX {
            let entry = volume.map.get(unit);
            let Some(c) = pool.chunk(entry.chunk()).filter(|_| entry.is_mapped()) else { break };
            let part = slice(c.profile, c.columns.len(), u64::from(entry.unit()) * UNIT, UNIT);
            let columns = c.columns.get(part.first..part.first + part.copies).unwrap_or_default();
            let region = of_unit(INTERNAL, unit);
            for (copy, column) in columns.iter().enumerate() {
                let is_there = self.present.contains_key(&column.device) && !pool.is_stale(column.device, region);
                let read = MetaRead { device: column.device, offset: column.offset + part.offset, len: UNIT };
                if copies.len() <= copy {
                    copies.push(Vec::new());
                }
                let units = copies.get_mut(copy).ok_or(Stop::because("its journal has too many copies"))?;
                units.resize(unit as usize, None);
                units.push(is_there.then_some(read));
            }
        }
        let missing: Vec<MetaRead> =
            copies.iter().flatten().flatten().filter(|read| !self.have.contains_key(read)).copied().collect();
        if !missing.is_empty() {
            return Err(Stop::Need(missing));
        }
        let mut groups: BTreeMap<u64, Vec<Replayed>> = BTreeMap::new();
        for units in copies {
            let bytes = self.copy_of_ring(&units);
            let blocks = (bytes.len() as u64 / BLOCK) as usize;
            let mut at = 0;
            while at < blocks {
                let behind = bytes.get(at * BLOCK as usize..).unwrap_or_default();
                let Some((head, blocks)) = ring::open(behind, self.superblock.pool, self.superblock.epoch) else {
                    at += 1;
                    continue;
                };
                let keep = |a: ring::Again<'_>| {
                    let ring::Again { chunk, row, member, lane, bytes } = a;
                    Replayed { chunk, row, block: Some((member, lane, bytes.into())) }
                };
                at += head.blocks() as usize;
                let void = head.entries.iter().filter(|entry| entry.members.is_empty());
                let void = void.map(|entry| Replayed { chunk: entry.chunk, row: entry.row, block: None });
                groups.entry(head.seq).or_insert_with(|| void.chain(blocks.into_iter().map(keep)).collect());
            }
        }
        let mut next = None;
        let mut last: Vec<Vec<Replayed>> = Vec::new();
        while let Some((seq, group)) = groups.pop_last() {
            if next.is_some_and(|next| next != seq + 1) {
                break;
            }
            next = Some(seq);
            last.push(group);
        }
        Ok(last.into_iter().rev().flatten().collect())
    }

    /// One copy, zeros where it cannot be read.
    fn copy_of_ring(&self, units: &[Option<MetaRead>]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(units.len() * UNIT as usize);
        for unit in units {
            let held = unit.and_then(|read| self.have.get(&read)).and_then(|held| held.result.as_ref().ok());
            bytes.extend_from_slice(held.map_or(&[], |bytes| bytes));
            bytes.resize(bytes.len().next_multiple_of(UNIT as usize), 0);
            if held.is_none_or(|bytes| bytes.is_empty()) {
                bytes.resize(bytes.len() + UNIT as usize, 0);
            }
        }
        bytes
    }
}

const _: () = assert!(UNIT == BLOCKS_PER_UNIT * BLOCK);
