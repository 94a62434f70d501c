//! Looks that were well: what becomes of a look follows from the opening it begins with, from what is promised and from what it
//! reads of the disks afterwards. A state that holds the same there is as right, whatever stands elsewhere.
//!
//! ```text
//!   opening, promises --> footprint (blocks that some look read) --what they hold--> was well, or is to be looked at
//! ```
//!
//! Which blocks a look reads is known when it is over. So a state is held against the footprints of looks before it: where it
//! holds what one of them found, the engine would read the same blocks, one after the other, and come to the same.

use std::collections::BTreeSet;

use super::moment::{Moment, mix};

/// Footprints that are tried: those of one cut are much alike.
const TRIED: usize = 16;
/// And that are kept.
const KEPT: usize = 64;

/// A disk, and a block of it.
pub(crate) type Place = (u32, u32);

/// Blocks in order, each once, and a number that tells them from others.
struct Footprint {
    places: Vec<Place>,
    name: u64,
}

impl Footprint {
    fn new(mut places: Vec<Place>) -> Footprint {
        places.sort_unstable();
        places.dedup();
        let name = places.iter().fold(0, |name, &(disk, block)| mix(name, u64::from(disk) << 32 | u64::from(block)));
        Footprint { places, name }
    }

    /// What the state holds there.
    fn of(&self, state: &Moment<'_>, before: u64) -> u64 {
        let cells = self.places.iter().map(|&(disk, block)| state.disks[disk as usize][block as usize]);
        cells.fold(mix(before, self.name), |so_far, cell| mix(so_far, state.name(cell)))
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Looks {
    /// Who helped last comes last.
    footprints: Vec<Footprint>,
    well: BTreeSet<u64>,
}

impl Looks {
    /// Whether a look with this before it need not be made.
    pub(crate) fn was_well(&mut self, state: &Moment<'_>, before: u64) -> bool {
        let well = &self.well;
        let tried = self.footprints.len().saturating_sub(TRIED);
        let found = self.footprints[tried..].iter().rposition(|f| well.contains(&f.of(state, before)));
        if let Some(at) = found {
            self.footprints[tried + at..].rotate_left(1);
        }
        found.is_some()
    }

    /// A look was well and read this.
    pub(crate) fn note(&mut self, state: &Moment<'_>, before: u64, places: Vec<Place>) {
        let footprint = Footprint::new(places);
        self.well.insert(footprint.of(state, before));
        self.footprints.retain(|f| f.name != footprint.name);
        if self.footprints.len() == KEPT {
            self.footprints.remove(0);
        }
        self.footprints.push(footprint);
    }
}
