//! Which copies count: of a unit at its new place, and of a column that is on its way while others write.

use alloc::vec::Vec;

use super::Engine;
use crate::chunk::Column;
use crate::request::IoError;
use crate::units::{ChunkId, DeviceId, UNIT, VolumeId};
use crate::volume::Entry;

impl Engine {
    /// The map names the new place from now on; members that missed a copy are judged as after a client's write. False: it
    /// has no good copy, or what one missed cannot be spared, and all stays as it was.
    pub(super) fn name_place(&mut self, id: u32, old: Entry, new: Entry) -> bool {
        let m = &self.moving.moves[id];
        let (volume, at, roster) = (m.volume, m.at, m.roster);
        if m.losses != self.moving.losses {
            return false;
        }
        let set = |engine: &mut Engine, entry| {
            if let Some(v) = engine.pool.volume_mut(volume) {
                v.map.set(at, entry);
            }
        };
        set(self, new);
        let part = (at * UNIT, (at + 1) * UNIT);
        let error_of = |device: DeviceId| {
            let missed = self.moving.moves[id].missed.iter().find(|(d, _)| *d == device).map(|(_, error)| *error);
            missed.or_else(|| self.was_away(device, roster).then_some(IoError::Gone))
        };
        if self.has_rows(new.chunk()) {
            // Who missed a strip is noted already.
            let fine = self.moving.moves[id].missed.is_empty();
            match fine {
                true => self.note_unflushed(volume, part.0, part.1),
                false => set(self, old),
            }
            return fine;
        }
        let columns = self.columns_of(volume, at);
        let mut behind: Vec<(DeviceId, IoError)> =
            columns.iter().filter_map(|c| Some((c.device, error_of(c.device)?))).collect();
        behind.dedup();
        let is_stale = |device| self.pool.is_unit_stale(device, volume, at);
        let is_good = |c: &Column| !behind.iter().any(|(d, _)| *d == c.device) && !is_stale(c.device);
        let has_good = columns.iter().any(is_good);
        // One at most: what one missed is noted whole or not at all.
        let fine = has_good
            && behind.len() <= 1
            && behind.iter().all(|&(device, error)| match self.pool.is_unit_stale(device, volume, at) {
                true => {
                    self.set_back(device, volume, part);
                    true
                }
                false => self.miss(device, volume, part, error),
            });
        match fine {
            true => self.note_unflushed(volume, part.0, part.1),
            false => set(self, old),
        }
        fine
    }

    /// A member may have lost what it got since the last flush: what was on its way there is copied again.
    pub(in crate::engine) fn copies_lost(&mut self, device: DeviceId) {
        self.moving.losses += 1;
        let shift = self.moving.shift.and_then(|shifting| self.pool.chunk(shifting.chunk)?.shift);
        if let Some(chunk) = self.shifting().filter(|_| shift.is_some_and(|shift| shift.to.device == device)) {
            self.shift_failed(chunk);
        }
    }

    /// Copies of this part are written, or may differ: what was copied of it into a column does not count.
    pub(in crate::engine) fn copy_again(&mut self, volume: VolumeId, start: u64, end: u64) {
        self.moving.note_change(volume, start, end);
        // Rows are written to both places, whoever writes.
        let Some(chunk) = self.shifting().filter(|&chunk| !self.has_rows(chunk)) else { return };
        for unit in start / UNIT..end.div_ceil(UNIT) {
            if self.entry(volume, unit).chunk() == chunk && !self.moving.loose.contains_key(&(volume, unit)) {
                self.moving.again.insert((volume, unit));
            }
        }
    }

    /// The chunk of which a column is on its way.
    pub(in crate::engine) fn shifting(&self) -> Option<ChunkId> {
        self.moving.shift.map(|shifting| shifting.chunk)
    }

    /// The next unit that is copied once more.
    pub(super) fn next_again(&mut self) -> Option<(ChunkId, u32, super::Home)> {
        let sure = self.moving.again.iter().copied().find(|&(volume, unit)| !self.resync.is_left(volume, unit));
        let (volume, unit) = sure.or_else(|| self.moving.again.first().copied())?;
        self.moving.again.remove(&(volume, unit));
        let entry = self.entry(volume, unit);
        Some((entry.chunk(), entry.unit(), super::Home::new(volume, unit)))
    }
}
