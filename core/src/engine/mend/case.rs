//! A unit that is being mended: what it is, who wants it, and what is known of its copies so far.

use alloc::vec::Vec;

use super::again::Again;
use super::judge::{self, Groups, Known, Winner};
use super::otherwise::Otherwise;
use super::parities::Parities;
use super::readers::Reader;
use super::{COPIES_MAX, MADE, blocks, verify};
use crate::chunk::Column;
use crate::request::IoError;
use crate::units::{BLOCKS_PER_UNIT, BufId, ChunkId, UNIT, VolumeId};

/// Who wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Cause {
    /// The second look of a scrub, for this piece.
    Scrub(u32),
    /// A read that one copy failed.
    Read,
    /// A read that waits.
    Verify,
    /// A write that covers a part of the block waits, and holds its range.
    Edge,
    /// A member that missed something.
    CatchUp,
    /// Copies that may differ since a crash; urgent when a read waits.
    Resync { is_urgent: bool },
}

impl Cause {
    /// A client may wait for it.
    pub(super) fn is_urgent(self) -> bool {
        matches!(self, Cause::Scrub(_) | Cause::Verify | Cause::Edge | Cause::Resync { is_urgent: true })
    }
}

/// What to mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Target {
    /// A unit of a volume, wherever it is.
    Unit(VolumeId, u64),
    /// The same, unless it is somewhere else by now.
    UnitAt(VolumeId, u64, (ChunkId, u32)),
    /// One block, whose range is held by who wants it: it is judged and not written.
    Block(VolumeId, u64),
    /// Pages of the pool: a unit of a system chunk.
    Pages(ChunkId, u32),
}

impl Target {
    pub(super) fn home(self) -> Option<(VolumeId, u64)> {
        match self {
            Target::Unit(volume, unit) | Target::UnitAt(volume, unit, _) => Some((volume, unit)),
            Target::Block(volume, block) => Some((volume, block / BLOCKS_PER_UNIT)),
            Target::Pages(..) => None,
        }
    }

    /// The unit whose range is to be locked.
    pub(super) fn locked(self) -> Option<(VolumeId, u64)> {
        self.home().filter(|_| !matches!(self, Target::Block(..)))
    }
}

/// A unit that is being mended.
#[derive(Clone)]
pub(in crate::engine) struct Mend {
    pub(in crate::engine) cause: Cause,
    pub(in crate::engine) target: Target,
    pub(super) epoch: Option<u64>,
    /// Checkpoints so far, and comings and goings of members, when the look began.
    pub(super) checkpoints: u64,
    pub(super) roster: u64,
    /// Blocks that were in doubt when the look began: they are judged by that.
    pub(in crate::engine) doubts: u16,
    /// Chunk and unit of it.
    pub(super) place: Option<(ChunkId, u32)>,
    pub(in crate::engine) columns: [Option<Column>; COPIES_MAX],
    /// First byte within a column.
    pub(in crate::engine) offset: u64,
    pub(super) scratch: [Option<BufId>; COPIES_MAX],
    pub(super) pending: u32,
    /// Copies that missed something: written and never read, one bit each.
    pub(super) stale: u8,
    /// Blocks to look at.
    pub(in crate::engine) mask: u16,
    /// By copy: blocks that could not be read, blocks whose member is gone.
    pub(in crate::engine) bad: [u16; COPIES_MAX],
    pub(super) gone: [u16; COPIES_MAX],
    /// By copy: blocks that differ from another copy.
    pub(super) unlike: [[u16; COPIES_MAX]; COPIES_MAX],
    /// What the checksums say.
    pub(super) sums: verify::Sums,
    /// What is made without one of the others.
    pub(super) otherwise: Otherwise,
    /// What is made by each parity alone.
    pub(super) parities: Parities,
    /// What was read again.
    pub(super) again: Again,
    pub(super) readers: Vec<Reader>,
    /// Nobody may see the winners before they are on stable media: a crash on the way could make another one win.
    pub(super) must_flush: bool,
    /// By copy: blocks that are written, and those of them that could not be.
    pub(super) rewritten: [u16; COPIES_MAX],
    pub(super) failed: [u16; COPIES_MAX],
    /// The page of its sums is with members that are gone.
    pub(in crate::engine) lacks_sums: bool,
    pub(super) error: Option<IoError>,
    /// It went to its end: copies are alike, or as good as they get.
    pub(super) is_settled: bool,
}

impl Mend {
    pub(super) fn new(cause: Cause, target: Target) -> Mend {
        Mend {
            cause,
            target,
            epoch: None,
            checkpoints: 0,
            roster: 0,
            doubts: 0,
            place: None,
            columns: [None; COPIES_MAX],
            offset: 0,
            scratch: [None; COPIES_MAX],
            pending: 0,
            stale: 0,
            mask: 0,
            otherwise: Otherwise::default(),
            parities: Parities::default(),
            again: Again::default(),
            bad: [0; COPIES_MAX],
            gone: [0; COPIES_MAX],
            unlike: [[0; COPIES_MAX]; COPIES_MAX],
            sums: verify::Sums::default(),
            readers: Vec::new(),
            must_flush: false,
            rewritten: [0; COPIES_MAX],
            failed: [0; COPIES_MAX],
            lacks_sums: false,
            error: None,
            is_settled: false,
        }
    }

    /// What is known of a block besides its copies.
    pub(super) fn known(&self, block: u64) -> Known {
        match self.doubts >> block & 1 {
            0 => Known::Nothing,
            _ if self.is_of_row() => Known::DirtyStrip,
            _ => Known::Dirty,
        }
    }

    /// It is a strip of a row, and what stands for its other copies is made.
    pub(super) fn is_of_row(&self) -> bool {
        self.columns[MADE].is_none() && self.scratch[MADE].is_some()
    }

    pub(super) fn has(&self, copy: usize, block: u64) -> bool {
        self.scratch[copy].is_some() && (self.bad[copy] | self.gone[copy]) >> block & 1 == 0
    }

    /// Blocks that no copy could be read of.
    pub(super) fn unread(&self) -> u16 {
        let is_unread = |block: &u64| !(0..COPIES_MAX).any(|copy| self.has(copy, *block));
        blocks(self.mask).filter(is_unread).fold(0, |bits, block| bits | 1 << block)
    }

    /// Blocks that were in doubt and still are: no copy could be read, or sums are to follow that cannot be had.
    pub(in crate::engine) fn still_in_doubt(&self) -> u16 {
        if self.lacks_sums { self.doubts } else { self.doubts & self.unread() }
    }

    /// Blocks of which all copies were read, are alike, and are what their checksums say where they have one: there is
    /// nothing to do.
    pub(super) fn agreed(&self) -> u16 {
        let of_copy = |copy: usize| {
            self.bad[copy] | self.gone[copy] | self.sums.wrong_of(copy) | self.unlike[copy].iter().fold(0, |a, b| a | b)
        };
        match self.stale {
            0 => self.mask & !(0..COPIES_MAX).fold(0, |bits, copy| bits | of_copy(copy)),
            _ => 0,
        }
    }

    /// The block was read and is not alike, or could not be read.
    pub(in crate::engine) fn is_unlike(&self, block: u64) -> bool {
        let is_bad = self.bad.iter().any(|bad| bad >> block & 1 == 1);
        self.mask >> block & 1 == 1 && (is_bad || self.differs(block))
    }

    /// Copies of it that were read are not alike.
    pub(super) fn differs(&self, block: u64) -> bool {
        let groups = self.groups(block);
        let first = groups.iter().flatten().next();
        groups.iter().flatten().any(|g| Some(g) != first)
    }

    /// For each copy that has the block, the first copy that holds the same.
    pub(in crate::engine) fn groups(&self, block: u64) -> Groups {
        let mut groups = [None; COPIES_MAX];
        for copy in (0..COPIES_MAX).filter(|&c| self.mask >> block & 1 == 1 && self.has(c, block)) {
            let same = |&other: &usize| self.has(other, block) && self.unlike[other][copy] >> block & 1 == 0;
            groups[copy] = Some((0..copy).find(same).unwrap_or(copy) as u8);
        }
        groups
    }

    /// The copy of a block to go by.
    pub(super) fn winner(&self, block: u64) -> Winner {
        judge::winner(&self.groups(block), self.known(block), self.right(block), self.agreed_by_parities(block))
    }

    /// Copies that a winner has to be written over.
    pub(super) fn losers(&self, block: u64, winner: usize) -> impl Iterator<Item = usize> {
        let groups = self.groups(block);
        let bad = move |copy: &usize| self.bad[*copy] >> block & 1 == 1;
        (0..COPIES_MAX).filter(move |copy| {
            self.stale >> copy & 1 == 1 || bad(copy) || groups[*copy].is_some_and(|g| Some(g) != groups[winner])
        })
    }

    /// First byte of what it looks at, within the volume or the chunk.
    pub(in crate::engine) fn base(&self) -> u64 {
        match self.target {
            Target::Unit(_, unit) | Target::UnitAt(_, unit, _) => unit * UNIT,
            Target::Block(_, block) => block / BLOCKS_PER_UNIT * UNIT,
            Target::Pages(_, unit) => u64::from(unit) * UNIT,
        }
    }

    pub(in crate::engine) fn volume(&self) -> Option<VolumeId> {
        self.target.home().map(|(volume, _)| volume)
    }
}
