//! What no copy has any more does not hold up a member that is being replaced: blocks that everybody was asked for in vain are
//! given up, and everything beside them goes.
//!
//! ```text
//!   column            tried twice as it is, five seconds apart: an error of a device may pass
//!   the second time   how much is it?                          many units: that is a device that fails, no bad block
//!   the last time     what nobody gives is lost from now on    one record: not written any more, and no hole
//!   rows of strips    zeros are written in its place           parity is right again, whoever else was missing
//! ```
//!
//! Nothing is given up that somebody has who was not asked, nor more than a disk with bad blocks has: then the job ends
//! without what it cannot read, as when a member is removed.

use super::{Engine, Home};
use crate::engine::Slip;
use crate::queue::CopySet;
use crate::units::{BLOCK, BufRange, ChunkId, DeviceId, UNIT, VolumeId};
use crate::volume::{INTERNAL, block_mask};

/// Units of a pool of which blocks may be lost. Their records are in memory and in the root.
const UNITS_MAX: usize = 4096;
/// Of the units of a chunk, or of its rows, one in so many.
const SHARE: u64 = 64;

impl Engine {
    /// Whether a member that was not asked for something may have it, now or later. Who leaves, and is not here or is behind, will
    /// not.
    pub(in crate::engine) fn may_have(&self, device: DeviceId) -> bool {
        self.heir().is_none_or(|(old, _)| old != device) && !self.slips(Slip::LostUnasked)
    }

    /// Whether blocks of a unit of a chunk, or of so many units in one of its rows, may be given up: no more than could not be read
    /// at the try before, and that was little.
    pub(in crate::engine) fn may_give_up(&mut self, chunk: ChunkId, units: u64) -> bool {
        let Some(unfit) = self.moving.unfit.get(&chunk).copied().filter(|_| self.is_last_try(chunk)) else {
            return false;
        };
        if !self.is_moving() || self.heir().is_none() || self.commit.is_dead() {
            return false;
        }
        let all: usize = self.pool.volumes().map(|v| v.map.lost_units()).sum();
        let most = self.pool.chunk(chunk).map_or(0, |c| if c.rows() > 0 { c.rows().into() } else { c.length / UNIT });
        let given_up = self.moving.given_up.get(&chunk).copied().unwrap_or(0);
        unfit.unreadable <= (most / SHARE).max(1)
            && given_up < unfit.unreadable
            && all as u64 + units <= UNITS_MAX as u64
            && self.has_page_room()
    }

    /// They were.
    pub(in crate::engine) fn count_given_up(&mut self, chunk: ChunkId) {
        *self.moving.given_up.entry(chunk).or_default() += 1;
    }

    /// No copy gives these blocks of a unit.
    pub(in crate::engine) fn note_unreadable_move(&mut self, id: u32, set: &CopySet, buf: BufRange) {
        let first = u64::from(buf.offset) / BLOCK;
        let is_unsure = !self.all_were_asked(id, set);
        let m = &mut self.moving.moves[id];
        m.lost |= block_mask(first, first + u64::from(buf.len) / BLOCK);
        m.is_unsure |= is_unsure;
    }

    /// Everybody who may have a piece of a unit on its way was asked for it.
    fn all_were_asked(&self, id: u32, set: &CopySet) -> bool {
        let (roster, (volume, at)) = (self.moving.moves[id].read_roster, self.unit_of_move(id));
        let (home, unit) = self.unit_of_piece(set, volume, at * UNIT);
        let Some(c) = self.pool.chunk(set.chunk) else { return false };
        // What a strip is made of is everything else in its row.
        let columns = match c.rows() {
            0 => &c.columns[usize::from(set.first)..][..c.profile.facts().copies],
            _ => &c.columns[..],
        };
        // Who is behind may be so elsewhere in the region only, and is brought up to date.
        let is_good = |device| {
            let is_here = self.pool.is_online(device) && !self.was_away(device, roster);
            is_here && !self.pool.is_unit_stale(device, home, unit)
        };
        set.tried != 0 && columns.iter().all(|c| is_good(c.device) || !self.may_have(c.device))
    }

    /// The unit is ours, and blocks of it cannot be read: they are given up, if they may be.
    pub(super) fn give_up_unreadable(&mut self, id: u32) -> bool {
        let m = &self.moving.moves[id];
        let (volume, at, chunk, lost) = (m.volume, m.at, m.from.0, m.lost);
        // What the pool keeps for itself nobody would write again.
        if !m.is_locked || m.is_unsure || volume == INTERNAL || !self.may_give_up(chunk, 1) {
            return false;
        }
        self.count_given_up(chunk);
        self.give_up_blocks(volume, at, lost);
        let m = &mut self.moving.moves[id];
        (m.mask, m.lost) = (m.mask & !lost, 0);
        true
    }

    /// Who owns a place in the rows of which a column goes: nobody, or a unit of a volume. None where that is not known.
    pub(in crate::engine) fn owner_in_rows(&self, chunk: ChunkId, place: u32) -> Option<Option<(VolumeId, u64)>> {
        if !self.pool.chunk(chunk).is_some_and(|c| c.is_taken(place)) {
            return Some(None);
        }
        let table = self.moving.owners.as_ref().filter(|table| table.chunk == chunk)?;
        let owner = table.owners.get(place as usize).copied().and_then(Home::get)?;
        let entry = self.entry(owner.0, owner.1);
        ((entry.chunk(), entry.unit()) == (chunk, place)).then_some(Some(owner))
    }
}
