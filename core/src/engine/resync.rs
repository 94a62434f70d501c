//! Making copies alike where they may not be: in the regions that were marked when the pool stopped without a clean end,
//! and where a write failed on all copies.
//!
//! ```text
//!   opening: marked regions --> units in doubt --> mended, in the background in order, or when a read wants one first
//! ```
//!
//! A read of a unit in doubt waits until it is mended, so it sees what every later read sees, from whatever copy. A write
//! does not wait: what it writes is on all copies afterwards, and the rest of the unit is still in doubt.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::mend::{Cause, Target};
use super::{Engine, Slip};
use crate::regions::{self, Region, UNITS};
use crate::report::ResyncReport;
use crate::units::{UNIT, VolumeId};

/// Units under way at once, all together: memory of 64 KiB a copy each.
const ACTIVE_MAX: usize = 16;
/// Of them in the background.
const BACKGROUND_MAX: usize = 8;
/// Units without content that one turn passes over.
const TURN: u32 = 4096;

#[derive(Default)]
pub(super) struct Resync {
    /// Units in doubt, one bit each; never a region without any.
    doubts: BTreeMap<Region, u64>,
    active: BTreeSet<(VolumeId, u64)>,
    /// Reads that wait for a unit.
    readers: Vec<u32>,
    /// They look again with the next turn.
    is_woken: bool,
    /// Units that were mended since the pool was opened.
    mended: u64,
}

impl Resync {
    /// Regions with a unit in doubt.
    pub(super) fn regions(&self) -> usize {
        self.doubts.len()
    }

    pub(super) fn holds(&self, region: Region) -> bool {
        self.doubts.contains_key(&region)
    }

    /// Nothing tells which copy of this unit is right, and none is wrong.
    pub(super) fn doubts(&self, volume: VolumeId, unit: u64) -> bool {
        !self.doubts.is_empty()
            && self.doubts.get(&regions::of_unit(volume, unit)).is_some_and(|bits| bits >> (unit % UNITS) & 1 == 1)
    }
}

impl Engine {
    /// The regions that an opening found marked.
    pub(super) fn adopt_doubts(&mut self) {
        self.resync.doubts = self.pool.intent.iter().map(|region| (region, u64::MAX)).collect();
        self.resync.is_woken = true;
    }

    /// A write of `[start, end)` failed: copies hold what they may, until they are made alike.
    pub(super) fn doubt(&mut self, volume: VolumeId, start: u64, end: u64) {
        for unit in start / UNIT..end.div_ceil(UNIT) {
            if self.is_dirty(volume, unit) {
                *self.resync.doubts.entry(regions::of_unit(volume, unit)).or_default() |= 1 << (unit % UNITS);
            }
        }
        self.copy_again(volume, start, end);
    }

    /// Whether a read has to wait until what it wants is mended; then that begins, and it is taken care of.
    pub(super) fn waits_for_mend(&mut self, id: u32, start: u64, end: u64) -> bool {
        if self.resync.doubts.is_empty() || self.is_without_mends() || self.slips(Slip::DoubtsNotMended) {
            return false;
        }
        let volume = self.requests[id].request.volume;
        let mut any = false;
        for unit in start / UNIT..end.div_ceil(UNIT) {
            if !self.resync.doubts(volume, unit) || self.settles_by_itself(volume, unit) {
                continue;
            }
            any = true;
            let has_room = self.resync.active.len() < ACTIVE_MAX && !self.commit.is_opening();
            if has_room && self.resync.active.insert((volume, unit)) {
                self.mend(Cause::Resync { is_urgent: true }, Target::Unit(volume, unit));
            }
        }
        // A mend may be over by now: then the next turn looks again.
        if any {
            self.resync.readers.push(id);
        }
        any
    }

    /// The pool cannot write what it needs to open: copies that may differ stay so, and everybody reads the first.
    pub(super) fn is_without_mends(&self) -> bool {
        !self.resync.doubts.is_empty() && self.commit.is_dead() && self.commit.is_opening()
    }

    /// Nobody could see a difference: nothing is there, or there is one copy without a checksum.
    fn settles_by_itself(&mut self, volume: VolumeId, unit: u64) -> bool {
        let entry = self.entry(volume, unit);
        let copies = self.pool.chunk(entry.chunk()).map_or(0, |c| c.profile.facts().copies);
        let settles = entry.written() == 0 || copies < 2 && !self.is_summed(volume);
        if settles {
            self.unit_settled(volume, unit);
        }
        settles
    }

    /// The copies of a unit are alike, or as good as they get.
    pub(super) fn unit_settled(&mut self, volume: VolumeId, unit: u64) {
        let region = regions::of_unit(volume, unit);
        let Some(bits) = self.resync.doubts.get_mut(&region) else { return };
        *bits &= !(1 << (unit % UNITS));
        if *bits == 0 {
            self.resync.doubts.remove(&region);
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
        if self.resync.doubts.is_empty() && self.resync.readers.is_empty() || self.slips(Slip::DoubtsNotMended) {
            return false;
        }
        let mut any = core::mem::take(&mut self.resync.is_woken) && self.wake_readers();
        for _ in 0..TURN {
            if self.resync.active.len() >= BACKGROUND_MAX || self.is_closing() {
                break;
            }
            let Some((volume, unit)) = self.next_doubt() else { break };
            if !self.settles_by_itself(volume, unit) {
                self.resync.active.insert((volume, unit));
                self.mend(Cause::Resync { is_urgent: false }, Target::Unit(volume, unit));
            }
            any = true;
        }
        any
    }

    fn next_doubt(&self) -> Option<(VolumeId, u64)> {
        let units = self.resync.doubts.iter().flat_map(|(&(volume, region), &bits)| {
            let set = (0..UNITS).filter(move |bit| bits >> bit & 1 == 1);
            set.map(move |bit| (volume, region * UNITS + bit))
        });
        units.into_iter().find(|unit| !self.resync.active.contains(unit))
    }

    fn wake_readers(&mut self) -> bool {
        let readers = core::mem::take(&mut self.resync.readers);
        let any = !readers.is_empty();
        readers.into_iter().for_each(|id| self.start_read(id));
        any
    }

    pub(super) fn resync_report(&self) -> ResyncReport {
        ResyncReport {
            dirty_regions: self.dirty_regions() as u64,
            regions_left: self.resync.regions() as u64,
            units_done: self.resync.mended,
        }
    }

    /// A volume goes, and what was in doubt of it.
    pub(super) fn forget_doubts(&mut self, volume: VolumeId) {
        self.resync.doubts.retain(|(v, _), _| *v != volume);
        self.resync.is_woken = true;
    }
}
