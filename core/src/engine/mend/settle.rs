//! What follows from a mend: it is counted and told, and those who count on the unit hear of it.

use super::{COPIES_MAX, Cause, MADE, Mend, runs};
use crate::engine::rows::RowId;
use crate::engine::{Engine, Waiter};
use crate::request::{Event, IoError, Output};
use crate::units::{BLOCK, UNIT, VolumeId};

impl Engine {
    /// The winners are where they belong: it is counted and told.
    pub(super) fn mend_written(&mut self, id: u32) {
        let mend = &self.mends[id];
        let (volume, base, offset, cause) = (mend.volume(), mend.base(), mend.offset, mend.cause);
        let done = |copy: usize| mend.rewritten[copy] & !mend.failed[copy];
        let copies: [_; COPIES_MAX] = core::array::from_fn(|copy| mend.columns[copy].map(|c| (c, done(copy))));
        let name = self.volume_name(volume);
        for (column, mask) in copies.into_iter().flatten().filter(|(_, mask)| *mask != 0) {
            let device = column.device;
            if let Some(member) =
                self.pool.device_mut(device).filter(|_| !matches!(cause, Cause::Resync { .. } | Cause::CatchUp))
            {
                member.counters.repaired += u64::from(mask.count_ones());
            }
            if matches!(cause, Cause::Scrub(_)) && !self.scrub.is_ended() {
                self.pool.scrub.repaired = self.pool.scrub.repaired.saturating_add(mask.count_ones().into());
            }
            for (first, count) in runs(mask) {
                let (device_offset, name) = (column.offset + offset + first * BLOCK, name.clone());
                let (offset, len) = (base + first * BLOCK, count * BLOCK);
                let event = Event::Repaired { volume, name, offset, len, device, device_offset };
                match cause {
                    Cause::Scrub(_) => self.tell_place(event),
                    Cause::Resync { .. } | Cause::CatchUp => {}
                    Cause::Read | Cause::Verify | Cause::Edge => self.outputs.push_back(Output::Event(event)),
                }
            }
        }
        self.flush_mend(id);
    }

    /// Ends, once nobody can see anything else any more.
    pub(super) fn flush_mend(&mut self, id: u32) {
        match self.mends[id].must_flush && !self.commit.is_dead() {
            true => self.join_flush(Waiter::Mend(id)),
            false => self.end_mend(id),
        }
    }

    /// What follows from a mend for those who wait for the unit to be as it should; the range lock is still held.
    pub(super) fn unit_mended(&mut self, mend: &Mend, volume: VolumeId, unit: u64) {
        if !mend.is_settled {
            if mend.cause == Cause::CatchUp {
                self.stale_unit_failed(volume, unit, None);
            }
            return;
        }
        let part = (unit * UNIT, (unit + 1) * UNIT);
        self.note_unflushed(volume, part.0, part.1);
        if let Some(row) = self.row_at(volume, unit) {
            return self.strip_mended(mend, volume, unit, row);
        }
        let was_dirty = mend.doubts != 0;
        let error = mend.error.unwrap_or(IoError::Media);
        let (mut failed, mut may_differ) = (None, false);
        for (copy, column) in mend.columns.iter().enumerate() {
            let Some(column) = column else { continue };
            // What could not be written is behind now, unless it is no worse than it was.
            let is_stale = mend.stale >> copy & 1 == 1;
            let is_worse = mend.failed[copy] & mend.doubts != 0 || is_stale && mend.failed[copy] != 0;
            let was_away = self.was_away(column.device, mend.roster);
            let is_absent = was_away && (was_dirty || mend.rewritten.iter().any(|&m| m != 0));
            if is_worse {
                let is_noted = self.miss(column.device, volume, part, error);
                may_differ |= was_dirty && !is_noted;
                // Who went is behind again; the others have theirs.
                if !was_away {
                    failed = Some(column.device);
                }
            } else if is_absent {
                self.miss(column.device, volume, part, IoError::Gone);
            }
        }
        if !may_differ || !self.resync_again(volume, unit) {
            self.doubts_mended((volume, unit), mend);
        }
        match failed {
            None if mend.unread() == 0 => self.stale_unit_done(volume, unit),
            by => self.stale_unit_failed(volume, unit, by),
        }
        // Who came meanwhile has nothing of this.
        for column in mend.columns.iter().flatten() {
            if self.was_away(column.device, mend.roster) {
                self.set_back(column.device, volume, part);
            }
        }
    }

    /// The same for a unit in a row.
    fn strip_mended(&mut self, mend: &Mend, volume: VolumeId, unit: u64, row: RowId) {
        self.doubts_mended((volume, unit), mend);
        // A scrub comes to the row by itself.
        let is_made_otherwise = mend.unlike[0][MADE] & !mend.rewritten[0] != 0;
        if is_made_otherwise && !matches!(mend.cause, Cause::Scrub(_)) {
            self.check_row(row);
        }
        let Some(column) = mend.columns[0].filter(|_| mend.rewritten[0] != 0) else { return };
        self.note_row_unflushed(row);
        let error = mend.error.unwrap_or(IoError::Media);
        if mend.failed[0] != 0 || self.was_away(column.device, mend.roster) {
            // What it held was wrong before, if the note is refused.
            self.miss_row(column.device, row, error);
        }
    }
}
