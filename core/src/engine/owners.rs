//! Who owns the units of chunks. Maps say where each unit of a volume is; whoever goes through chunks in order of place
//! needs it the other way round, and walks through the maps for it, a bounded time at once.

use crate::pool::Pool;
use crate::units::{ChunkId, KIB, VolumeId};
use crate::volume::{Entry, INTERNAL, LEAF, Shape};

/// Entries that one turn looks at: well below a millisecond.
pub(super) const TURN: u64 = 64 * KIB;

/// Volume and unit of it in one word; 0 = nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Home(u64);

impl Home {
    /// Units of a volume are below 2^38 (16 PiB), volumes below 2^20.
    pub(super) fn new(volume: VolumeId, unit: u64) -> Home {
        Home((u64::from(volume.0) << 38 | unit) + 1)
    }

    pub(super) fn get(self) -> Option<(VolumeId, u64)> {
        let word = self.0.checked_sub(1)?;
        Some((VolumeId((word >> 38) as u32), word & ((1 << 38) - 1)))
    }
}

/// The next leaf to look at.
#[derive(Clone, Default)]
pub(super) struct Walk {
    volume: u32,
    leaf: u64,
    /// Also units that are about to be written for the first time.
    takes_all: bool,
}

impl Walk {
    /// Of all units that have a place, written or not.
    pub(super) fn of_all() -> Walk {
        Walk { takes_all: true, ..Walk::default() }
    }

    /// Walks on for a turn: tells every written unit of a leaf that may be in a chunk that is wanted, and those set aside for
    /// checksums, as chunk, unit of it and owner. True at the end of the last map.
    pub(super) fn go_on(
        &mut self,
        pool: &Pool,
        wants: impl Fn(ChunkId) -> bool,
        mut tell: impl FnMut(ChunkId, u32, Home),
    ) -> bool {
        let mut spent = 0;
        while spent < TURN {
            spent += 1;
            if self.volume >= pool.next_volume {
                return true;
            }
            let volume = VolumeId(self.volume);
            let Some((leaf, slot)) = pool.volume(volume).and_then(|v| v.map.leaf_from(self.leaf)) else {
                (self.volume, self.leaf) = (self.volume + 1, 0);
                continue;
            };
            // Between two leaves there may be hundreds that don't exist.
            spent += (leaf - self.leaf).min(LEAF as u64);
            self.leaf = leaf + 1;
            if let Shape::Line { chunk, .. } = slot.shape()
                && !wants(chunk)
            {
                continue;
            }
            spent += LEAF as u64;
            // What is set aside for checksums may stay unwritten for ever.
            let takes_all = self.takes_all || volume == INTERNAL;
            let counts = |e: &Entry| e.written() != 0 || takes_all && e.is_mapped();
            for (i, entry) in slot.entries().enumerate().filter(|(_, e)| counts(e)) {
                tell(entry.chunk(), entry.unit(), Home::new(volume, leaf * LEAF as u64 + i as u64));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_one_word() {
        for (volume, unit) in [(0, 0), (1, 0), ((1 << 20) - 1, (1 << 38) - 1), (7, 12345)] {
            assert_eq!(Home::new(VolumeId(volume), unit).get(), Some((VolumeId(volume), unit)));
        }
        assert_eq!(Home::default().get(), None);
    }
}
