//! Openings that states share: what an opening reads are superblocks, records and the stripe journal, and many states differ in
//! other blocks only. A pool that is opened the second time is kept as it was then, under what was read on the way there: most are
//! wanted once. It was asked once what it wants: an opening claims its members and writes its records, and that is made ready once for all.
//!
//! ```text
//!   disks there --> superblocks --what they hold--> records --what they hold--> ... --> an engine, and its first output
//! ```

use std::collections::BTreeMap;

use braid_core::Engine;
use braid_core::meta::assembly::MetaRead;
use braid_core::meta::superblock::{SLOTS, SUPERBLOCK_SIZE};
use braid_core::request::Output;
use braid_core::units::BLOCK;

use super::moment::{Moment, mix};
use super::tape::Cell;

/// Engines that are kept: those of one cut are wanted again soon.
const ENGINES_MAX: usize = 128;

/// A step of an opening.
enum Stage {
    /// What is read next.
    Reads(Vec<MetaRead>),
    Open,
}

/// A pool that is open.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    /// What it wanted first.
    pub(crate) first: Output,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Openings {
    stages: BTreeMap<u64, Stage>,
    engines: BTreeMap<u64, Opened>,
}

impl Openings {
    /// What is read on the way there, if a pool like it was opened before.
    pub(crate) fn find(&self, state: &Moment<'_>, present: &[bool]) -> Option<u64> {
        let mut key = Key::of(state, present);
        loop {
            match self.stages.get(&key.0)? {
                Stage::Reads(reads) => key.read(state, reads),
                Stage::Open => return Some(key.0),
            }
        }
    }

    /// The pool, if it is still kept.
    pub(crate) fn engine(&self, opening: u64) -> Option<&Opened> {
        self.engines.get(&opening)
    }

    /// An opening that read that reads this next.
    pub(crate) fn reads(&mut self, key: &mut Key, state: &Moment<'_>, reads: &[MetaRead]) {
        self.stages.entry(key.0).or_insert_with(|| Stage::Reads(reads.to_vec()));
        key.read(state, reads);
    }

    /// This is what came of it: kept if it was wanted before.
    pub(crate) fn keep(&mut self, key: &Key, opened: &Opened) -> u64 {
        if self.stages.insert(key.0, Stage::Open).is_some() {
            if self.engines.len() == ENGINES_MAX {
                self.engines.clear();
            }
            self.engines.insert(key.0, opened.clone());
        }
        key.0
    }
}

/// What was read so far, as a [fingerprint](Moment::fingerprint).
pub(crate) struct Key(u64);

impl Key {
    /// The superblocks of the disks that are there.
    pub(crate) fn of(state: &Moment<'_>, present: &[bool]) -> Key {
        let mut key = Key(0);
        for (cells, &here) in state.disks.iter().zip(present) {
            key.0 = mix(key.0, here.into());
            SLOTS.into_iter().filter(|_| here).for_each(|at| key.pass(state, cells, at, SUPERBLOCK_SIZE));
        }
        key
    }

    fn read(&mut self, state: &Moment<'_>, reads: &[MetaRead]) {
        for read in reads {
            self.pass(state, &state.disks[read.device.index() - 1], read.offset, read.len);
        }
    }

    fn pass(&mut self, state: &Moment<'_>, cells: &[Cell], offset: u64, len: u64) {
        let cells = &cells[(offset / BLOCK) as usize..][..(len / BLOCK) as usize];
        self.0 = cells.iter().fold(self.0, |key, &cell| mix(key, state.name(cell)));
    }
}
