//! Blocks that no copy holds any more, as far as somebody noticed since the pool was opened. They are lost until they are
//! written again, or until a member is back that was not asked. Those that a replacement gave up are known to the map, and listed too.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::data::{edges, envelope, mask_in};
use super::mend::runs;
use super::rows::RING_TOKEN;
use super::{Engine, Phase, Slip};
use crate::meta::journal::Lsn;
use crate::meta::record::Record;
use crate::request::{Event, Op, Output, RequestError};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, UNIT, VolumeId};
use crate::volume::Entry;

/// Blocks that are remembered by name; of those beyond only an event tells.
const LOST_MAX: usize = 4096;

/// Who was asked for a block that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Every copy there is.
    All,
    /// Those that are here: another one may have it.
    Here,
}

/// By volume and block: who was asked in vain.
pub(super) type Noticed = BTreeMap<(VolumeId, u64), Asked>;

impl Engine {
    /// What a look at a unit under its range lock found: blocks that some copy holds, and such that none does of those that were
    /// asked. Tells of those that are new, and gone for good.
    pub(super) fn note_lost(&mut self, volume: VolumeId, unit: u64, good: u16, lost: u16, asked: Asked) {
        let mut news = 0u16;
        for block in 0..BLOCKS_PER_UNIT {
            let place = (volume, unit * BLOCKS_PER_UNIT + block);
            if good >> block & 1 == 1 {
                self.lost.remove(&place);
            } else if lost >> block & 1 == 1 && self.lost.get(&place) != Some(&Asked::All) {
                news |= u16::from(asked == Asked::All) << block;
                if self.lost.len() >= LOST_MAX && asked == Asked::All {
                    // What may be there is of less weight than what is not.
                    let least = self.lost.iter().find(|(_, asked)| **asked == Asked::Here).map(|(place, _)| *place);
                    least.map(|place| self.lost.remove(&place));
                }
                if self.lost.len() < LOST_MAX || self.lost.contains_key(&place) {
                    self.lost.insert(place, asked);
                }
            }
        }
        for (first, count) in runs(news) {
            let name = self.volume_name(Some(volume));
            let (offset, len) = (unit * UNIT + first * BLOCK, count * BLOCK);
            self.outputs.push_back(Output::Event(Event::BlocksLost { volume, name, offset, len }));
        }
    }

    /// Whether some block of a range is known to be lost.
    pub(super) fn is_known_lost(&self, volume: VolumeId, start: u64, end: u64) -> bool {
        self.lost.range((volume, start / BLOCK)..(volume, end.div_ceil(BLOCK))).next().is_some()
    }

    /// What was written or discarded is not lost any more.
    pub(super) fn forget_lost(&mut self, volume: VolumeId, start: u64, end: u64) {
        if self.lost.is_empty() {
            return;
        }
        let range = (volume, start / BLOCK)..(volume, end / BLOCK);
        let found: Vec<_> = self.lost.range(range).map(|(place, _)| *place).collect();
        for block in &found {
            self.lost.remove(block);
        }
    }

    /// A member is whole again: what only those that were here did not have is read before anybody says again that it is lost.
    pub(super) fn ask_again_for_lost(&mut self) {
        self.lost.retain(|_, asked| *asked == Asked::All);
    }

    /// What no copy holds, neighbours as one: volume, first byte, bytes.
    pub(super) fn lost_blocks(&self) -> Vec<(VolumeId, u64, u64)> {
        let mut found: Vec<(VolumeId, u64, u64)> = Vec::new();
        let kept = self.pool.volumes().flat_map(|v| v.map.lost_blocks(0, u64::MAX).map(|block| (v.id, block)));
        let mut all: Vec<_> = self.lost.keys().copied().chain(kept).collect();
        all.sort_unstable();
        all.dedup();
        for (volume, block) in all {
            match found.last_mut() {
                Some((last, at, len)) if *last == volume && *at + *len == block * BLOCK => *len += BLOCK,
                _ => found.push((volume, block * BLOCK, BLOCK)),
            }
        }
        found
    }

    // ---- given up, and not lost any more ---------------------------------------------------------------------------

    /// These blocks of a unit are lost from now on.
    pub(super) fn give_up_blocks(&mut self, volume: VolumeId, unit: u64, blocks: u16) {
        let old = self.entry(volume, unit);
        let blocks = blocks & old.written();
        if blocks == 0 {
            return;
        }
        self.note_lost(volume, unit, 0, blocks, Asked::All);
        self.fail_readers_of(volume, unit, blocks);
        self.take_page_room(1);
        let Some(v) = self.pool.volume_mut(volume) else { return };
        let lost = v.map.lost(unit) | blocks;
        let lsn = self.journal.append(&Record::Lost { volume, unit, blocks: lost });
        let left = old.with_written(old.written() & !blocks);
        // A writer may be on its way there: then the place stays, as a reservation.
        let (start, end) = (unit * UNIT, (unit + 1) * UNIT);
        let is_shared = || self.locks.is_held_by(volume, start, end, |token| token < RING_TOKEN);
        let new = if left.written() == 0 && !is_shared() { Entry::NONE } else { left };
        v.map.set(unit, new);
        v.map.set_lost(unit, lost);
        match new.is_mapped() {
            true => self.note_discarded(volume, unit, old, new, lsn),
            false => {
                self.uncount_unit(volume, old);
                self.retire_units([old]);
            }
        }
        // Nobody needs them any more.
        self.ask_for_source_of(volume, start, end);
    }

    /// Requests that are to see these blocks, and may have begun before that was known, fail: where they look there may be zeros by
    /// now, or what was there before.
    fn fail_readers_of(&mut self, volume: VolumeId, unit: u64, blocks: u16) {
        if self.slips(Slip::LostReadersAnswered) {
            return;
        }
        for active in self.requests.iter_mut().filter(|active| active.request.volume == volume) {
            let request = &active.request;
            let edge = |block: Option<u64>| block.map_or(0, |at| mask_in(unit, at, at + BLOCK));
            let [head, tail] = edges(request).map(edge);
            let seen = match request.op {
                Op::Read => {
                    let (start, end) = envelope(request);
                    mask_in(unit, start, end)
                }
                Op::WriteZeroes { .. } => head | tail,
                // Later it has what it wanted of them.
                Op::Write { .. } if active.phase == Phase::Edges => head | tail,
                Op::Write { .. } | Op::Discard | Op::Flush => 0,
            };
            if seen & blocks != 0 {
                active.error = Some(RequestError::Io);
            }
        }
    }

    /// Blocks of a range are discarded: they are not lost any more, but holes.
    pub(super) fn discard_lost(&mut self, volume: VolumeId, start: u64, end: u64) -> Option<Lsn> {
        let v = self.pool.volume_mut(volume)?;
        let found: Vec<_> = v.map.lost_in(start / UNIT, end.div_ceil(UNIT)).collect();
        let mut last = None;
        for (unit, lost) in found {
            let blocks = lost & !mask_in(unit, start, end);
            if blocks != lost {
                v.map.set_lost(unit, blocks);
                last = Some(self.journal.append(&Record::Lost { volume, unit, blocks }));
            }
        }
        last
    }
}
