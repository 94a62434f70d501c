//! What members miss of rows. A member has one strip in each row; that it is not what it should be is remembered like what is
//! missed of volumes, in regions of 64 rows.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Engine, RowId};
use crate::chunk::Column;
use crate::engine::Slip;
use crate::regions::{ROWS, Region, UNITS, of_row, row_of_unit, row_unit};
use crate::request::IoError;
use crate::units::{ChunkId, DeviceId, UNIT, VolumeId};

/// A row as a part of what stands for all rows.
fn part_of((chunk, row): RowId) -> (u64, u64) {
    let unit = row_unit(chunk, row);
    (unit * UNIT, (unit + 1) * UNIT)
}

impl Engine {
    /// A member missed something of a row, and has not got it since.
    pub(in crate::engine) fn is_row_stale(&self, device: DeviceId, row: RowId) -> bool {
        let unit = row_unit(row.0, row.1);
        self.pool.is_unit_stale(device, ROWS, unit)
            && !self.is_caught_up(device, ROWS, unit)
            && !self.slips(Slip::StaleTrusted)
    }

    /// A member missed what was written to a row. True: that is noted, and no write is answered before the note is durable.
    /// False: too many others are not what they should be.
    pub(in crate::engine) fn miss_row(&mut self, device: DeviceId, row: RowId, error: IoError) -> bool {
        match self.pool.is_unit_stale(device, ROWS, row_unit(row.0, row.1)) {
            true => {
                self.set_back(device, ROWS, part_of(row));
                true
            }
            false => self.miss(device, ROWS, part_of(row), error),
        }
    }

    /// Content of a unit was not written to a member, or may be gone with its cache.
    pub(in crate::engine) fn row_at(&self, volume: VolumeId, unit: u64) -> Option<RowId> {
        let entry = self.entry(volume, unit);
        let chunk = self.pool.chunk(entry.chunk()).filter(|_| entry.is_mapped())?;
        chunk.row_of(entry.unit()).map(|(row, _)| (chunk.id, row))
    }

    /// What was written to a row is covered by no flush.
    pub(in crate::engine) fn note_row_unflushed(&mut self, row: RowId) {
        let (start, end) = part_of(row);
        self.note_unflushed(ROWS, start, end);
    }

    /// The rows that units of a region are in, by region.
    pub(in crate::engine) fn rows_under(&self, (volume, region): Region) -> BTreeSet<Region> {
        let units = region * UNITS..(region + 1) * UNITS;
        units.filter_map(|unit| self.row_at(volume, unit)).map(|(chunk, row)| of_row(chunk, row)).collect()
    }

    /// The columns of the chunk whose rows a region has.
    pub(in crate::engine) fn columns_of_rows(&self, region: u64) -> &[Column] {
        let (chunk, _) = row_of_unit(region * UNITS);
        self.pool.chunk(chunk).map_or(&[], |c| &c.columns)
    }

    /// Rows of a region that are not whole without this member: one bit each.
    pub(in crate::engine) fn rows_that_need(&self, device: DeviceId, region: u64) -> u64 {
        let (id, _) = row_of_unit(region * UNITS);
        let Some(chunk) = self.pool.chunk(id) else { return 0 };
        let lacks = |c: &Column| match c.device == device || !self.pool.is_online(c.device) {
            true => u64::MAX,
            false => self.may_be_found_missed(c.device, (ROWS, region)),
        };
        let lacking: Vec<u64> = chunk.columns.iter().map(lacks).collect();
        let lost = |row: &u64| lacking.iter().filter(|rows| *rows >> row & 1 == 1).count();
        (0..UNITS).filter(|row| !chunk.rows_survive_without(lost(row))).fold(0, |rows, row| rows | 1 << row)
    }

    /// A row is caught up: strips that members missed something of are made from the others. False when there is nothing to do.
    pub(in crate::engine) fn catch_up_row(&mut self, unit: u64) -> bool {
        let (chunk, row) = row_of_unit(unit);
        let is_missed = |c: &Column| self.pool.is_online(c.device) && self.is_row_stale(c.device, (chunk, row));
        let Some(c) = self.pool.chunk(chunk).filter(|c| c.is_live(row) || self.rows.lines.contains_key(&(chunk, row)))
        else {
            return false;
        };
        if !c.columns.iter().any(is_missed) || self.slips(Slip::CaughtUpAtOnce) {
            return false;
        }
        self.want_of_row((chunk, row), super::Other::Rebuild);
        true
    }

    /// What an opening found unflushed, of rows: under the regions of volumes.
    pub(in crate::engine) fn unflushed_rows(&self, regions: impl Iterator<Item = Region>) -> Vec<Region> {
        let all: BTreeSet<Region> = regions.flat_map(|region| self.rows_under(region)).collect();
        all.into_iter().collect()
    }

    /// Something is being done to rows of a chunk.
    pub(in crate::engine) fn rows_in(&self, chunk: ChunkId) -> bool {
        self.rows.lines.range((chunk, 0)..=(chunk, u32::MAX)).next().is_some()
    }
}
