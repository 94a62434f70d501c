//! Making copies alike where they may not be: in the regions that were marked when the pool stopped without a clean end,
//! and where a write failed on all copies.
//!
//! ```text
//!   opening: marked regions --> units in doubt --> mended, in the background in order, or when a read wants one first
//! ```
//!
//! A read of a unit in doubt waits until it is mended, so it sees what every later read sees, from whatever copy. A write
//! does not wait: what it writes is on all copies afterwards, and the rest of the unit is still in doubt.
//!
//! Blocks that no copy could be read of stay in doubt, since an error may pass: what is there then may be newer than its checksum.
//! Each read of them is a mend, and all of them are mended again when somebody may know better.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::data::mask_in;
use super::mend::{Cause, Mend, Target};
use super::rows::RowId;
use super::{Engine, Slip};
use crate::regions::{Region, UNITS, Units, bits_of, of_unit};
use crate::report::ResyncReport;
use crate::request::RequestError;
use crate::units::{ChunkId, UNIT, VolumeId};

/// Units under way at once, all together: memory of 64 KiB a copy each.
const ACTIVE_MAX: usize = 16;
/// Of them in the background.
const BACKGROUND_MAX: usize = 8;
/// Copies that cannot be written are left to differ after so many tries.
const TRIES_MAX: u8 = 4;
/// Regions whose units without content one turn passes over.
const TURN: u32 = 64;

#[derive(Clone, Default)]
pub(super) struct Resync {
    doubts: Units,
    /// Of them, those that are to be mended; the others were, and wait until somebody is asked again.
    left: Units,
    /// Blocks of a unit that no copy could be read of when it was mended, or all without its sums: no others of it are in doubt.
    unread: BTreeMap<(VolumeId, u64), u16>,
    active: BTreeSet<(VolumeId, u64)>,
    /// Reads that wait for a unit.
    readers: Vec<u32>,
    /// They look again with the next turn.
    is_woken: bool,
    /// Rows with a unit that is to be mended, and those that had one; gathered when somebody asks.
    rows: Option<BTreeSet<RowId>>,
    /// Units whose copies could not be made alike, nor one of them be noted as behind: how often that was tried.
    tries: BTreeMap<(VolumeId, u64), u8>,
    /// Units that were mended since the pool was opened.
    mended: u64,
}

impl Resync {
    /// Regions with a unit in doubt.
    pub(super) fn regions(&self) -> usize {
        self.doubts.regions()
    }

    pub(super) fn holds(&self, region: Region) -> bool {
        self.doubts.touches(region)
    }

    /// Nothing tells which copy of this unit is right, and none is wrong.
    pub(super) fn doubts(&self, volume: VolumeId, unit: u64) -> bool {
        self.doubts.contains(volume, unit)
    }

    /// The same by block.
    pub(super) fn doubts_of(&self, volume: VolumeId, unit: u64) -> u16 {
        match self.doubts(volume, unit) {
            true => self.unread.get(&(volume, unit)).copied().unwrap_or(u16::MAX),
            false => 0,
        }
    }

    /// It is to be mended.
    pub(super) fn is_left(&self, volume: VolumeId, unit: u64) -> bool {
        self.left.contains(volume, unit)
    }

    fn insert(&mut self, region: Region, bits: u64) {
        self.doubts.insert_bits(region, bits);
        self.left.insert_bits(region, bits);
    }
}

impl Engine {
    /// The regions that an opening found marked.
    pub(super) fn adopt_doubts(&mut self) {
        self.pool.intent.iter().for_each(|region| self.resync.insert(region, u64::MAX));
        self.resync.is_woken = true;
    }

    /// The same of a place in a chunk. It takes as long as there are units in doubt.
    pub(super) fn doubts_place(&self, chunk: ChunkId, place: u32) -> bool {
        let is_there = |(volume, unit)| {
            let entry = self.entry(volume, unit);
            entry.is_mapped() && (entry.chunk(), entry.unit()) == (chunk, place)
        };
        self.resync.doubts.iter().any(is_there)
    }

    /// Something in this row is in doubt, or was when there was something left to be mended for the last time.
    pub(super) fn doubts_row(&mut self, row: RowId) -> bool {
        let is_there = |&(volume, unit): &(VolumeId, u64)| self.row_at(volume, unit) == Some(row);
        self.resync.unread.keys().any(is_there) || self.is_row_left(row)
    }

    /// Something in this row was to be mended since nothing was for the last time.
    pub(super) fn is_row_left(&mut self, row: RowId) -> bool {
        if self.resync.left.is_empty() {
            self.resync.rows = None;
            return false;
        }
        if self.resync.rows.is_none() {
            let units = self.resync.left.iter();
            self.resync.rows = Some(units.filter_map(|(volume, unit)| self.row_at(volume, unit)).collect());
        }
        self.resync.rows.as_ref().is_some_and(|rows| rows.contains(&row))
    }

    /// Copies of a unit may differ.
    pub(super) fn doubt_unit(&mut self, volume: VolumeId, unit: u64) {
        self.resync.insert(of_unit(volume, unit), 1 << (unit % UNITS));
        self.resync.unread.remove(&(volume, unit));
        self.add_row_of(volume, unit);
    }

    /// A write of `[start, end)` failed: copies hold what they may, until they are made alike.
    pub(super) fn doubt(&mut self, volume: VolumeId, start: u64, end: u64) {
        for unit in start / UNIT..end.div_ceil(UNIT) {
            if self.is_dirty(volume, unit) {
                self.doubt_unit(volume, unit);
            }
        }
        self.copy_again(volume, start, end);
    }

    /// Whether a read has to wait until what it wants is mended, which begins then, or cannot be answered; it is taken care of.
    pub(super) fn waits_for_mend(&mut self, id: u32, start: u64, end: u64) -> bool {
        if self.resync.doubts.is_empty() || self.slips(Slip::DoubtsNotMended) {
            return false;
        }
        let volume = self.requests[id].request.volume;
        if self.is_without_mends() {
            let is_undecidable = self.is_undecidable(volume, start, end);
            if is_undecidable {
                self.requests[id].error = Some(RequestError::Io);
                self.reply(id);
            }
            return is_undecidable;
        }
        let mut any = false;
        for unit in start / UNIT..end.div_ceil(UNIT) {
            if !self.resync.is_left(volume, unit) {
                continue;
            }
            if self.settles_by_itself(volume, unit) {
                self.unit_settled(volume, unit);
                continue;
            }
            any = true;
            let has_room = self.resync.active.len() < ACTIVE_MAX && !self.commit.is_opening();
            if has_room && self.resync.active.insert((volume, unit)) {
                self.mend(Cause::Resync { is_urgent: true }, Target::Unit(volume, unit));
            }
        }
        // A mend may be over by now: then the next turn looks again. Until then it looks at no place, so it leaves its epoch: who has
        // a unit that is to be mended may be a writer that waits for room, and room may wait for this.
        if any {
            self.space.leave(self.requests[id].epoch);
            self.resync.readers.push(id);
        }
        any
    }

    /// The pool cannot write what it needs to open: copies that may differ stay so, and everybody reads the first.
    pub(super) fn is_without_mends(&self) -> bool {
        !self.resync.doubts.is_empty() && self.commit.is_dead() && self.commit.is_opening()
    }

    /// The opening is not over, and copies of something in this volume may differ.
    pub(super) fn decides_by_sums(&self, volume: VolumeId) -> bool {
        self.commit.is_opening() && self.resync.doubts.iter().any(|(of, _)| of == volume)
    }

    /// Without mends everybody reads the first copy. Where a member lost something that no record says, another one may be
    /// the first at the next opening.
    fn is_undecidable(&self, volume: VolumeId, start: u64, end: u64) -> bool {
        let is_open = |unit| self.resync.doubts(volume, unit) && !self.settles_by_itself(volume, unit);
        self.is_failure_unsaid() && (start / UNIT..end.div_ceil(UNIT)).any(is_open)
    }

    /// Nobody could see a difference: nothing is there, or there is one copy without a checksum.
    fn settles_by_itself(&self, volume: VolumeId, unit: u64) -> bool {
        let entry = self.entry(volume, unit);
        let copies = || self.pool.chunk(entry.chunk()).map_or(0, |c| c.profile.facts().copies);
        entry.written() == 0 || !self.is_summed(volume) && copies() < 2
    }

    /// Passes over those units of a region that settle by themselves.
    fn pass_settled(&mut self, region: Region) {
        let (volume, first) = (region.0, region.1 * UNITS);
        let settles = |bit: &u64| self.settles_by_itself(volume, first + bit);
        let settled: Vec<u64> = bits_of(self.resync.left.bits(region)).filter(settles).collect();
        settled.into_iter().for_each(|bit| self.unit_settled(volume, first + bit));
    }

    /// Counts a try to write over a copy that nothing stands in for, so that the next read might see it; false when it was the last.
    pub(super) fn resync_again(&mut self, volume: VolumeId, unit: u64) -> bool {
        let tries = self.resync.tries.entry((volume, unit)).or_default();
        *tries += 1;
        *tries < TRIES_MAX
    }

    /// The copies of a unit are alike, or as good as they get.
    fn unit_settled(&mut self, volume: VolumeId, unit: u64) {
        let Resync { doubts, left, unread, tries, .. } = &mut self.resync;
        doubts.remove(volume, unit);
        left.remove(volume, unit);
        unread.remove(&(volume, unit));
        tries.remove(&(volume, unit));
    }

    /// A unit was mended, as far as it could be: what still is in doubt waits.
    pub(super) fn doubts_mended(&mut self, (volume, unit): (VolumeId, u64), mend: &Mend) {
        if self.resync.doubts_of(volume, unit) & !mend.doubts != 0 {
            // It came to be in doubt meanwhile.
            return;
        }
        // A region that is not marked nobody would doubt after a stop, and marks have a limit.
        let most = self.pool.dirty_regions() / 2;
        let blocks = if self.slips(Slip::UnreadSettled) { 0 } else { mend.still_in_doubt() };
        let Resync { left, unread, tries, .. } = &mut self.resync;
        let has_room = unread.len() < most || unread.contains_key(&(volume, unit));
        if blocks == 0 || !has_room || !self.pool.intent.contains(of_unit(volume, unit)) {
            return self.unit_settled(volume, unit);
        }
        unread.insert((volume, unit), blocks);
        left.remove(volume, unit);
        tries.remove(&(volume, unit));
    }

    /// Some blocks are in doubt since they could not be read.
    pub(super) fn has_unread(&self) -> bool {
        !self.resync.unread.is_empty()
    }

    /// What could not be read may be had now.
    pub(super) fn ask_for_unread(&mut self) {
        let units: Vec<_> = self.resync.unread.keys().copied().collect();
        units.into_iter().for_each(|(volume, unit)| self.ask_for_unread_of(volume, unit));
    }

    /// The same of one unit.
    pub(super) fn ask_for_unread_of(&mut self, volume: VolumeId, unit: u64) {
        if self.resync.unread.contains_key(&(volume, unit)) {
            self.resync.left.insert(volume, unit);
            self.add_row_of(volume, unit);
        }
    }

    fn add_row_of(&mut self, volume: VolumeId, unit: u64) {
        let row = self.row_at(volume, unit);
        if let Some(rows) = &mut self.resync.rows {
            rows.extend(row);
        }
    }

    /// How far from here nothing waits for being asked again, or all is of one unit that does; and whether it does.
    pub(super) fn unread_until(&self, volume: VolumeId, at: u64, end: u64) -> (u64, bool) {
        if !self.has_unread() {
            return (end, false);
        }
        let units = (volume, at / UNIT)..(volume, end.div_ceil(UNIT));
        let waits = |((volume, unit), blocks): (&(VolumeId, u64), &u16)| {
            let is_seen = blocks & mask_in(*unit, at, end) != 0;
            (is_seen && !self.resync.is_left(*volume, *unit)).then_some(*unit)
        };
        match self.resync.unread.range(units).find_map(waits) {
            None => (end, false),
            Some(unit) if unit == at / UNIT => (end.min((unit + 1) * UNIT), true),
            Some(unit) => (unit * UNIT, false),
        }
    }

    pub(super) fn resync_ended(&mut self, volume: VolumeId, unit: u64) {
        self.resync.active.remove(&(volume, unit));
        self.resync.mended += 1;
        self.resync.is_woken = true;
    }

    /// Goes on with what is in doubt; says whether there was something to do.
    pub(super) fn resync_turn(&mut self) -> bool {
        if self.commit.is_opening() {
            return self.commit.is_dead() && self.wake_readers();
        }
        if self.resync.left.is_empty() && self.resync.readers.is_empty() || self.slips(Slip::DoubtsNotMended) {
            return false;
        }
        let mut any = core::mem::take(&mut self.resync.is_woken) && self.wake_readers();
        for _ in 0..TURN {
            if self.resync.active.len() >= BACKGROUND_MAX || self.is_closing() {
                break;
            }
            let Some((volume, unit)) = self.resync.left.first_besides(&self.resync.active) else { break };
            match self.settles_by_itself(volume, unit) {
                true => self.pass_settled(of_unit(volume, unit)),
                false => {
                    self.resync.active.insert((volume, unit));
                    self.mend(Cause::Resync { is_urgent: false }, Target::Unit(volume, unit));
                }
            }
            any = true;
        }
        any
    }

    fn wake_readers(&mut self) -> bool {
        let readers = core::mem::take(&mut self.resync.readers);
        let any = !readers.is_empty();
        for id in readers {
            self.requests[id].epoch = self.space.enter();
            self.start_read(id);
        }
        any
    }

    pub(super) fn resync_report(&self) -> ResyncReport {
        ResyncReport {
            dirty_regions: self.dirty_regions() as u64,
            regions_left: self.resync.left.regions() as u64,
            units_done: self.resync.mended,
            unread: self.resync.unread.values().map(|blocks| u64::from(blocks.count_ones())).sum(),
        }
    }

    /// A volume goes, and what was in doubt of it.
    pub(super) fn forget_doubts(&mut self, volume: VolumeId) {
        let Resync { doubts, left, unread, tries, .. } = &mut self.resync;
        doubts.remove_volume(volume);
        left.remove_volume(volume);
        unread.retain(|(of, _), _| *of != volume);
        tries.retain(|(of, _), _| *of != volume);
        self.resync.is_woken = true;
    }
}
