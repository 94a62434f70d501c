//! Records that count although no flush covers them: copies may differ, or a member may be behind.

use alloc::vec;
use alloc::vec::Vec;

use crate::chunk::Column;
use crate::meta::record::Record;
use crate::pool::{Contradiction, Pool};
use crate::profile::slice;
use crate::regions::{ROWS, Region, UNITS, bits_of};
use crate::units::{DeviceId, UNIT};
use crate::volume::Entry;

/// True of any later state: copies may differ, or a member may be behind.
pub(super) fn is_mark(record: &Record) -> bool {
    matches!(record, Record::Intent { .. } | Record::Stale { .. } | Record::Kept { .. })
}

/// Makes a mark true that may be of a later state than the pool's. Who was behind there had to be spared by others; what they had may
/// be at places that no record of this state names, and then the member's own copy is all that there is, and what it was.
pub(super) fn apply_mark(pool: &mut Pool, mark: Record) -> Result<(), Contradiction> {
    let (device, volume, regions, units) = match mark {
        Record::Stale { device, volume, word, bits } if volume != ROWS => {
            let regions: Vec<u64> = bits_of(bits).map(|bit| u64::from(word) * 64 + bit).collect();
            (device, volume, regions, 0)
        }
        Record::Kept { device, volume, region, units } => (device, volume, vec![region], units),
        mark => return pool.apply(mark),
    };
    for region in regions {
        let units = units | lone_units(pool, device, (volume, region));
        pool.apply(Record::Kept { device, volume, region, units })?;
    }
    Ok(())
}

/// Units of a region that are good on this member and on no other one, there or not: one bit each.
fn lone_units(pool: &Pool, device: DeviceId, (volume, region): Region) -> u64 {
    let is_lone = |bit: &u64| {
        let unit = region * UNITS + bit;
        let entry = pool.volume(volume).map_or(Entry::NONE, |v| v.map.get(unit));
        let Some(chunk) = pool.chunk(entry.chunk()).filter(|c| entry.written() != 0 && c.rows() == 0) else {
            return false;
        };
        let part = slice(chunk.profile, chunk.columns.len(), u64::from(entry.unit()) * UNIT, UNIT);
        let columns = chunk.columns.get(part.first..part.first + part.copies).unwrap_or_default();
        let is_good = |c: &Column| c.device != device && pool.may_have_unit(c.device, volume, unit);
        columns.iter().any(|c| c.device == device) && !columns.iter().any(is_good)
    };
    (0..UNITS).filter(is_lone).fold(0, |units, bit| units | 1 << bit) & !pool.missed_units(device, (volume, region))
}
