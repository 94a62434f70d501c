//! Units that reads found trouble in: they are mended in the background, a few at a time.

use alloc::collections::{BTreeSet, VecDeque};

use super::{Cause, Target};
use crate::engine::Engine;
use crate::queue::{Io, Owner};
use crate::units::{BLOCK, Instant, UNIT, VolumeId, round_down};

/// Units that wait, at most; what is beyond is found again by the next read, or by a scrub.
const WAITING_MAX: usize = 1024;
/// Under way at once.
const ACTIVE_MAX: u32 = 4;
/// A unit that was mended is left alone for so long: where writing does not help, reads would mend it for ever.
const PAUSE_NS: u64 = 60_000_000_000;
/// Units that are remembered for that.
const REMEMBERED_MAX: usize = 256;

#[derive(Clone, Default)]
pub(in crate::engine) struct Wanted {
    waiting: BTreeSet<(VolumeId, u64)>,
    active: u32,
    tried: VecDeque<(Instant, (VolumeId, u64))>,
}

impl Wanted {
    pub(super) fn ended(&mut self) {
        self.active -= 1;
    }
}

impl Engine {
    /// This part of a read was served by a copy after another one failed it: the units it covers are to be mended. Or
    /// none could serve it: they are to be looked at, once in a while.
    pub(in crate::engine) fn want_mend(&mut self, id: u32, io: &Io) {
        let request = &self.requests[id].request;
        if !matches!(io.owner, Owner::Read(_)) {
            return;
        }
        let volume = request.volume;
        let start = round_down(request.offset, BLOCK) + u64::from(io.buf.offset);
        while let Some(&(at, _)) = self.wanted.tried.front()
            && self.now.since(at) > PAUSE_NS
        {
            self.wanted.tried.pop_front();
        }
        for unit in start / UNIT..(start + io.len).div_ceil(UNIT) {
            self.want_unit(volume, unit);
        }
    }

    /// A unit is to be mended, if that was not tried just now.
    pub(in crate::engine) fn want_unit(&mut self, volume: VolumeId, unit: u64) {
        let is_tried = self.wanted.tried.iter().any(|(_, tried)| *tried == (volume, unit));
        if !is_tried && self.wanted.waiting.len() < WAITING_MAX {
            self.wanted.waiting.insert((volume, unit));
        }
    }

    /// Begins what waits; says whether there was something to begin.
    pub(in crate::engine) fn mend_wanted(&mut self) -> bool {
        let mut any = false;
        while self.wanted.active < ACTIVE_MAX
            && !self.is_closing()
            // What is found while a pool opens would be judged and not written.
            && !self.commit.is_opening()
            && let Some((volume, unit)) = self.wanted.waiting.pop_first()
        {
            self.wanted.active += 1;
            self.wanted.tried.push_back((self.now, (volume, unit)));
            if self.wanted.tried.len() > REMEMBERED_MAX {
                self.wanted.tried.pop_front();
            }
            self.mend(Cause::Read, Target::Unit(volume, unit));
            any = true;
        }
        any
    }
}
