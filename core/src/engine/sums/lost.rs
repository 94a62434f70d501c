//! Blocks that no copy holds any more, as far as somebody noticed since the pool was opened. They are lost until they are
//! written again, or until a member is back that was not asked. Those that a replacement gave up are known to the map, and listed too.

use alloc::vec::Vec;

use super::Engine;
use crate::engine::mend::runs;
use crate::request::{Event, Output};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, UNIT, VolumeId};

/// Blocks that are remembered by name; of those beyond only an event tells.
const LOST_MAX: usize = 4096;

/// Who was asked for a block that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Asked {
    /// Every copy there is.
    All,
    /// Those that are here: another one may have it.
    Here,
}

/// Blocks of a volume.
fn blocks_of(unit: u64, blocks: u16) -> impl Iterator<Item = u64> {
    runs(blocks).flat_map(move |(first, count)| (first..first + count).map(move |block| unit * BLOCKS_PER_UNIT + block))
}

impl Engine {
    /// What a look at a unit under its range lock found: blocks that some copy holds, and such that none does of those that were
    /// asked. Tells of those that are new, and gone for good.
    pub(in crate::engine) fn note_lost(&mut self, volume: VolumeId, unit: u64, good: u16, lost: u16, asked: Asked) {
        let mut news = 0u16;
        for block in 0..BLOCKS_PER_UNIT {
            let place = (volume, unit * BLOCKS_PER_UNIT + block);
            if good >> block & 1 == 1 {
                self.sums.lost.remove(&place);
            } else if lost >> block & 1 == 1 && self.sums.lost.get(&place) != Some(&Asked::All) {
                news |= u16::from(asked == Asked::All) << block;
                if self.sums.lost.len() >= LOST_MAX && asked == Asked::All {
                    // What may be there is of less weight than what is not.
                    let least =
                        self.sums.lost.iter().find(|(_, asked)| **asked == Asked::Here).map(|(place, _)| *place);
                    least.map(|place| self.sums.lost.remove(&place));
                }
                if self.sums.lost.len() < LOST_MAX || self.sums.lost.contains_key(&place) {
                    self.sums.lost.insert(place, asked);
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
    pub(in crate::engine) fn is_known_lost(&self, volume: VolumeId, start: u64, end: u64) -> bool {
        self.sums.lost.range((volume, start / BLOCK)..(volume, end.div_ceil(BLOCK))).next().is_some()
    }

    /// What was written or discarded is not lost any more.
    pub(in crate::engine) fn forget_lost(&mut self, volume: VolumeId, start: u64, end: u64) {
        if self.sums.lost.is_empty() {
            return;
        }
        let range = (volume, start / BLOCK)..(volume, end / BLOCK);
        let found: Vec<_> = self.sums.lost.range(range).map(|(place, _)| *place).collect();
        for block in &found {
            self.sums.lost.remove(block);
        }
    }

    /// A member is whole again: what only those that were here did not have is read before anybody says again that it is lost.
    pub(in crate::engine) fn ask_again_for_lost(&mut self) {
        self.sums.lost.retain(|_, asked| *asked == Asked::All);
    }

    /// What no copy holds, neighbours as one: volume, first byte, bytes.
    pub(in crate::engine) fn lost_blocks(&self) -> Vec<(VolumeId, u64, u64)> {
        let mut found: Vec<(VolumeId, u64, u64)> = Vec::new();
        let kept = self.pool.volumes().flat_map(|v| {
            let blocks = v.map.lost_in(0, u64::MAX);
            blocks.flat_map(|(unit, lost)| blocks_of(unit, lost)).map(|block| (v.id, block))
        });
        let mut all: Vec<_> = self.sums.lost.keys().copied().chain(kept).collect();
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
}
