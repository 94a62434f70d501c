//! Mending a unit: all copies of its written blocks are read while nobody can write it, block by block one is chosen,
//! and written over those that differ or could not be read.
//!
//! ```text
//!   lock --> read every copy --> compare --> ask checksums --> choose a winner --> write the others --> tell --> unlock
//! ```
//!
//! | cause | when |
//! |---|---|
//! | a scrub | its first look doubts a unit |
//! | a read | one copy failed it, another served it |
//! | a read | no copy was what its checksums say: it waits for the judgement |
//! | a catch-up | a member missed writes there |
//! | a resync | a write may have been under way at a crash |
//!
//! Content of a volume is read under the range lock of its unit. What a client waits for is of the classes of clients, the
//! rest of the asynchronous ones: a writer may wait for the lock, so no class that settings can bring to a stand. Pages of the
//! pool are never written in place, so they need no lock: a look at them counts when no checkpoint was under way from its
//! beginning to its end, and they are not written here.
//!
//! | file | what |
//! |---|---|
//! | `case.rs` | the unit, and what is known of it so far |
//! | `judge.rs` | which copy is right |
//! | `verify.rs` | what checksums say, and what becomes of them |
//! | `otherwise.rs` | a block made without one of the others after the other |
//! | `again.rs` | what nothing decides is read once more |
//! | `parities.rs` | what two parities agree on where nothing else decides |
//! | `readers.rs` | reads that wait for it |
//! | `settle.rs` | what follows for those who count on the unit |
//! | `wanted.rs` | units that reads found trouble in |

mod again;
mod case;
pub(super) mod judge;
mod otherwise;
mod parities;
mod readers;
mod settle;
mod verify;
pub(super) mod wanted;

use alloc::string::String;
use alloc::vec::Vec;

use super::rows::{Restored, RowId, Who};
use super::{Engine, is_about_a_place};
use crate::chunk::Column;
use crate::profile::slice;
use crate::queue::{Io, Owner};
use crate::request::{Copy, DeviceOp, IoError, Output};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, BufId, BufRange, ChunkId, UNIT, VolumeId};
use crate::volume::block_mask;
pub(super) use again::REREADS_MAX;
pub(super) use case::{Cause, Mend, Target};
use judge::{Known, Winner};
use parities::BY_PARITY;
use readers::Reader;

/// Most copies of anything: raid1c4.
pub(super) const COPIES_MAX: usize = 4;
/// In place of a copy: what is made from other strips of the row.
const MADE: usize = 1;
/// Tokens of the range lock from here on are those of mends.
pub(super) const TOKENS: u32 = 1 << 31;
/// Bit of a question of a mend, among the tags of comparisons; below it id, two copies, count less one and first block.
pub(super) const TAG: u64 = 1 << 63;

impl Engine {
    /// Begins; [`Engine::mended`] hears of the end.
    pub(super) fn mend(&mut self, cause: Cause, target: Target) {
        self.mend_for(cause, target, None);
    }

    /// As [`mend`](Self::mend), for a read that waits for the judgement.
    fn mend_for(&mut self, cause: Cause, target: Target, reader: Option<Reader>) {
        let id = self.mends.insert(Mend { readers: reader.into_iter().collect(), ..Mend::new(cause, target) });
        match target.locked() {
            Some((volume, unit)) if !self.locks.acquire(volume, unit * UNIT, (unit + 1) * UNIT, TOKENS | id) => {}
            _ => self.begin_mend(id),
        }
    }

    /// The unit is ours.
    pub(super) fn mend_granted(&mut self, token: u32) {
        self.begin_mend(token & !TOKENS);
    }

    /// Where it is, and which of its blocks count. It may have been discarded, and its place be somebody else's.
    fn locate_target(&self, target: Target) -> (ChunkId, u32, u16) {
        let of_volume = |volume, unit| {
            let entry = self.entry(volume, unit);
            (entry.chunk(), entry.unit(), entry.written())
        };
        match target {
            Target::Unit(volume, unit) => of_volume(volume, unit),
            Target::UnitAt(volume, unit, place) => {
                Some(of_volume(volume, unit)).filter(|at| (at.0, at.1) == place).unwrap_or_default()
            }
            Target::Block(volume, block) => {
                let (chunk, place, written) = of_volume(volume, block / BLOCKS_PER_UNIT);
                (chunk, place, written & 1 << (block % BLOCKS_PER_UNIT))
            }
            Target::Pages(chunk, unit) => (chunk, unit, self.commit.pages_of(chunk, unit)),
        }
    }

    fn begin_mend(&mut self, id: u32) {
        let Mend { cause, target, .. } = self.mends[id];
        self.mends[id].doubts = target.home().map_or(0, |(volume, unit)| self.resync.doubts_of(volume, unit));
        let is_wanted = !matches!(cause, Cause::Scrub(_)) || !self.scrub.is_ended();
        let (chunk, unit, mask) = self.locate_target(target);
        let Some(c) = self.pool.chunk(chunk).filter(|_| is_wanted && mask != 0) else {
            // What has no written block has no copies.
            self.mends[id].is_settled = matches!(target, Target::Unit(..));
            return self.end_mend(id);
        };
        // A unit never crosses a strip.
        let part = slice(c.profile, c.columns.len(), u64::from(unit) * UNIT, UNIT);
        let mut columns = [None; COPIES_MAX];
        for (place, column) in columns.iter_mut().zip(&c.columns[part.first..part.first + part.copies]) {
            *place = Some(*column);
        }
        let (checkpoints, epoch) = (self.counters.checkpoints, self.space.enter());
        let mend = &mut self.mends[id];
        (mend.mask, mend.columns, mend.offset, mend.place) = (mask, columns, part.offset, Some((chunk, unit)));
        (mend.checkpoints, mend.roster, mend.epoch) = (checkpoints, self.roster, Some(epoch));
        let has_rows = c.rows() > 0;
        let is_stale = |column: &Column| self.lacks(column.device, c, unit, target.home());
        let missed = |c: &Option<Column>| c.as_ref().is_some_and(&is_stale);
        let stale = columns.iter().enumerate().filter(|(_, c)| missed(c)).fold(0, |bits, (i, _)| bits | 1 << i);
        let there = columns.map(|c| c.filter(|c| self.pool.is_online(c.device) && !is_stale(c)));
        self.mends[id].stale = stale;
        for (copy, column) in there.into_iter().enumerate() {
            let Some(column) = column else { continue };
            let buf = self.scratch_of(UNIT);
            self.mends[id].scratch[copy] = Some(buf);
            for run in runs(mask) {
                self.issue_mend(id, DeviceOp::Read, column, run, buf);
            }
        }
        if has_rows {
            self.ask_row(id, MADE, None, mask);
        }
        if self.mends[id].pending == 0 {
            // Nobody is there to ask, and nobody to tell.
            self.mends[id].is_settled = cause != Cause::CatchUp;
            self.end_mend(id);
        }
    }

    /// Some blocks of one copy, into or out of this scratch: first and count.
    fn issue_mend(&mut self, id: u32, op: DeviceOp, column: Column, (first, count): (u64, u64), buf: BufId) {
        let mend = &mut self.mends[id];
        mend.pending += 1;
        let owner = if mend.cause.is_urgent() { Owner::Mend(id) } else { Owner::Restore(id) };
        let offset = column.offset + mend.offset + first * BLOCK;
        let kind = mend.volume().map_or(crate::ChunkType::System, |_| crate::ChunkType::Data);
        let io = Io::new(owner, op, column.device, offset, count * BLOCK, self.now);
        self.issue(Io { buf: range(buf, first * BLOCK, count * BLOCK), kind, ..io });
    }

    /// Blocks that failed together go again one by one, so that each one's error is known.
    fn part_mend(&mut self, id: u32, io: &Io) {
        for part in (0..io.len).step_by(BLOCK as usize) {
            self.mends[id].pending += 1;
            let buf = BufRange { offset: io.buf.offset + part as u32, len: BLOCK as u32, ..io.buf };
            let one = Io::new(io.owner, io.op, io.device, io.offset + part, BLOCK, self.now);
            self.issue(Io { buf, kind: io.kind, no_merge: true, ..one });
        }
    }

    /// Blocks of one copy came back, or arrived there.
    pub(super) fn mend_io_done(&mut self, id: u32, io: &Io, result: Result<(), IoError>) {
        let is_parted = io.len > BLOCK && is_about_a_place(result);
        if is_parted {
            self.part_mend(id, io);
        }
        let mend = &mut self.mends[id];
        let first = u64::from(io.buf.offset) / BLOCK;
        let bits = block_mask(first, first + io.len / BLOCK);
        mend.pending -= 1;
        if let (Err(error), false) = (result, is_parted) {
            if io.op == DeviceOp::Read {
                let copy =
                    mend.scratch.iter().position(|s| *s == Some(io.buf.buf)).expect("it reads into its own scratch");
                match error {
                    IoError::Gone => mend.gone[copy] |= bits,
                    _ => mend.bad[copy] |= bits,
                }
            } else {
                mend.error = Some(error);
                let here =
                    |c: &Column| c.device == io.device && (io.offset - mend.offset).wrapping_sub(c.offset) < UNIT;
                let copy =
                    mend.columns.iter().position(|c| c.as_ref().is_some_and(here)).expect("it writes its own copies");
                mend.failed[copy] |= bits;
            }
        }
        match mend.pending {
            0 if io.op == DeviceOp::Read => self.compare_mend(id),
            0 => self.mend_written(id),
            _ => {}
        }
    }

    /// What stands for another copy: blocks of the strip as the others of its row have them, or as they do without one of them.
    fn ask_row(&mut self, id: u32, copy: usize, without: Option<u8>, mask: u16) {
        let buf = self.mends[id].scratch[copy].unwrap_or_else(|| self.scratch_of(UNIT));
        let mend = &mut self.mends[id];
        mend.scratch[copy] = Some(buf);
        mend.pending += 1;
        let (chunk, unit) = mend.place.expect("it was looked up");
        let (first, end) = (u64::from(mask.trailing_zeros()), u64::from(16 - mask.leading_zeros()));
        let who = Who::Mend { id, copy: copy as u8, is_urgent: mend.cause.is_urgent() };
        let to = range(buf, first * BLOCK, (end - first) * BLOCK);
        self.reconstruct_without(without, who, chunk, u64::from(unit) * UNIT, mask, to);
    }

    /// Members of its row, where that has two parities, and which of them has the strip itself.
    fn row_with_two_parities(&self, mend: &Mend) -> Option<(u8, u8)> {
        let (chunk, unit) = mend.place?;
        let c = self.pool.chunk(chunk).filter(|c| c.rows() > 0 && c.profile.facts().parity > 1)?;
        Some((c.columns.len() as u8, self.strip_at(chunk, u64::from(unit) * UNIT).1))
    }

    /// These blocks of it are made, or can't be.
    pub(super) fn mend_reconstructed(&mut self, id: u32, copy: usize, lanes: u16, fine: bool) {
        if copy == MADE && self.made_otherwise(id, lanes, fine) {
            return;
        }
        let mend = &mut self.mends[id];
        if !fine {
            mend.gone[copy] |= lanes;
        }
        mend.pending -= 1;
        if mend.pending == 0 {
            self.compare_mend(id);
        }
    }

    /// These blocks of the strip are written, or not.
    pub(super) fn mend_restored(&mut self, id: u32, lanes: u16, became: Restored) {
        let mend = &mut self.mends[id];
        match became {
            Restored::Written => {}
            Restored::LeftToRebuild => mend.rewritten[0] &= !lanes,
            Restored::Failed(error) => {
                mend.error = Some(error);
                mend.failed[0] |= lanes;
            }
        }
        mend.pending -= 1;
        if mend.pending == 0 {
            self.mend_written(id);
        }
    }

    /// More answers are to come.
    pub(super) fn hold_mend(&mut self, id: u32, more: u32) {
        self.mends[id].pending += more;
    }

    /// The row of a unit that is being mended.
    pub(super) fn row_of_mend(&self, id: u32) -> RowId {
        let (chunk, unit) = self.mends[id].place.expect("it was looked up");
        let c = self.pool.chunk(chunk).expect("a unit is in a chunk");
        (chunk, c.row_of(unit).expect("a chunk with rows").0)
    }

    /// Who lost its cache, or came back without it, since the mend began may have answered with what was there before.
    fn pass_by_losers(&mut self, id: u32) {
        let Mend { columns, roster, target, place, .. } = &self.mends[id];
        let Some((c, unit)) = place.and_then(|(chunk, unit)| Some((self.pool.chunk(chunk)?, unit))) else { return };
        let has_lost = |column: &Column| {
            self.was_away(column.device, *roster) && self.lacks(column.device, c, unit, target.home())
        };
        let lost: [bool; COPIES_MAX] = columns.map(|column| column.is_some_and(|column| has_lost(&column)));
        let mend = &mut self.mends[id];
        lost.iter().zip(&mut mend.gone).filter(|(lost, _)| **lost).for_each(|(_, gone)| *gone = mend.mask);
    }

    fn compare_mend(&mut self, id: u32) {
        self.pass_by_losers(id);
        let mend = &self.mends[id];
        let read = |copy: usize| mend.mask & !mend.bad[copy] & !mend.gone[copy];
        let mut pairs = Vec::new();
        let are_parities_asked = mend.parities.are_asked();
        if !are_parities_asked {
            pairs.extend(mend.reread().map(|(copy, run)| (copy, copy, run)));
        }
        let first = if are_parities_asked { BY_PARITY[0] } else { 0 };
        for b in first..COPIES_MAX {
            for a in (0..b).filter(|&a| mend.scratch[a].is_some() && mend.scratch[b].is_some()) {
                pairs.extend(runs(read(a) & read(b)).map(|run| (a, b, run)));
            }
        }
        pairs.into_iter().for_each(|(a, b, run)| self.ask_compare(id, (a, b), run));
        if self.mends[id].pending == 0 {
            self.verify_mend(id);
        }
    }

    /// Whether two copies, or a copy and what was read of it before, hold the same in some blocks: first and count.
    fn ask_compare(&mut self, id: u32, (a, b): (usize, usize), (first, count): (u64, u64)) {
        let mend = &mut self.mends[id];
        mend.pending += 1;
        let of = |buf: Option<BufId>| range(buf.expect("it was read"), first * BLOCK, count * BLOCK);
        let other = if a == b { mend.again.before[b] } else { mend.scratch[b] };
        let tag = TAG | u64::from(id) << 16 | (a as u64) << 12 | (b as u64) << 8 | (count - 1) << 4 | first;
        self.outputs.push_back(Output::Compare { tag, a: of(mend.scratch[a]), b: of(other) });
    }

    pub(super) fn mend_compared(&mut self, tag: u64, equal: bool) {
        let (id, first, count) = (((tag & !TAG) >> 16) as u32, tag & 0xf, (tag >> 4 & 0xf) + 1);
        let (a, b) = ((tag >> 12 & 0xf) as usize, (tag >> 8 & 0xf) as usize);
        match equal {
            true if a == b => self.mends[id].note_steady(a, block_mask(first, first + count)),
            true => {}
            // Rare, so each by itself only now.
            false if count > 1 => (first..first + count).for_each(|block| self.ask_compare(id, (a, b), (block, 1))),
            false if a != b => self.mends[id].unlike[a][b] |= 1 << first,
            false => {}
        }
        let mend = &mut self.mends[id];
        mend.pending -= 1;
        if mend.pending == 0 {
            self.verify_mend(id);
        }
    }

    /// All copies are in memory and compared: what has to be written is.
    fn judge_mend(&mut self, id: u32) {
        if self.ask_parities(id) || self.read_mend_again(id) {
            return;
        }
        let (cause, is_ours) = (self.mends[id].cause, self.mends[id].volume().is_some());
        if let Cause::Scrub(_) = cause {
            self.scrub_judged(id);
        }
        self.settle_sums(id);
        if !is_ours || cause == Cause::Edge || self.commit.is_opening() {
            return self.end_mend(id);
        }
        self.mends[id].is_settled = true;
        self.write_winners(id);
        if !self.mends[id].must_flush {
            self.serve_readers(id);
        }
        if self.mends[id].pending == 0 {
            return self.flush_mend(id);
        }
        if let Some((volume, unit)) = self.mends[id].target.home() {
            self.copy_again(volume, unit * UNIT, (unit + 1) * UNIT);
        }
    }

    /// A mend looks at a unit of this chunk.
    pub(super) fn mends_in(&self, chunk: ChunkId) -> bool {
        self.mends.iter().any(|mend| mend.place.is_some_and(|(at, _)| at == chunk))
    }

    fn write_winners(&mut self, id: u32) {
        // By winner and copy: blocks to write.
        let mut writes = [[0u16; COPIES_MAX]; COPIES_MAX];
        let mend = &self.mends[id];
        // A copy that was left out could win after a power cut that has it forgotten why.
        let mut must_flush = mend.doubts != 0 && self.is_failure_unsaid();
        for block in blocks(mend.mask & !mend.agreed()) {
            let (groups, mut losers) = (mend.groups(block), [false; COPIES_MAX]);
            let winner = match mend.winner(block) {
                Winner::Copy(winner) => {
                    mend.losers(block, winner).for_each(|copy| losers[copy] = true);
                    Some(winner)
                }
                // Where nothing says which is right, what missed a write is certainly not.
                Winner::Nobody | Winner::Lost => {
                    let stale = |copy: &usize| mend.stale >> copy & 1 == 1;
                    (0..COPIES_MAX).filter(stale).for_each(|copy| losers[copy] = true);
                    groups.iter().position(Option::is_some)
                }
            };
            let Some(winner) = winner else { continue };
            let is_here = |copy: usize| mend.columns[copy].is_some_and(|c| self.pool.is_online(c.device));
            for copy in (0..COPIES_MAX).filter(|&copy| losers[copy] && is_here(copy)) {
                writes[winner][copy] |= 1 << block;
                // Torn on its way over another copy, it might leave what the checksum of before matches: that one would
                // win then.
                must_flush |= mend.known(block) != Known::Nothing && mend.right(block) == Some(0);
            }
        }
        let mend = &mut self.mends[id];
        mend.must_flush |= must_flush;
        let (columns, scratch, is_urgent) = (mend.columns, mend.scratch, mend.cause.is_urgent());
        let strip = mend.place.filter(|(chunk, _)| self.has_rows(*chunk));
        let strip = strip.map(|(chunk, unit)| (chunk, u64::from(unit) * UNIT));
        for (winner, by_copy) in writes.into_iter().enumerate() {
            for (copy, mask) in by_copy.into_iter().enumerate().filter(|(_, mask)| *mask != 0) {
                self.mends[id].rewritten[copy] |= mask;
                let (column, buf) = (columns[copy].expect("it is here"), scratch[winner].expect("it was read"));
                if let Some((chunk, byte)) = strip {
                    self.mends[id].pending += 1;
                    self.restore_strip((id, is_urgent), chunk, byte, mask, buf);
                    continue;
                }
                for run in runs(mask) {
                    self.issue_mend(id, DeviceOp::Write { fua: false }, column, run, buf);
                }
            }
        }
    }

    /// Gives back memory, space and the lock, and tells who wanted it.
    pub(super) fn end_mend(&mut self, id: u32) {
        self.serve_readers(id);
        let mend = self.mends.remove(id);
        if let Some(epoch) = mend.epoch {
            self.space.leave(epoch);
        }
        for buf in mend.scratch.into_iter().chain(mend.again.before).flatten() {
            self.outputs.push_back(Output::Copy(Copy::Drop(buf)));
        }
        if let Some((volume, unit)) = mend.target.locked() {
            self.unit_mended(&mend, volume, unit);
            self.unlock(volume, unit * UNIT, (unit + 1) * UNIT, TOKENS | id);
        }
        match mend.cause {
            Cause::Scrub(piece) => self.scrub_mended(piece, &mend),
            Cause::Read => self.wanted.ended(),
            Cause::Verify | Cause::Edge => {}
            Cause::CatchUp => {
                let (volume, unit) = mend.target.home().expect("units are caught up");
                self.catch_up_ended(volume, unit);
            }
            Cause::Resync { .. } => {
                let (volume, unit) = mend.target.home().expect("units are resynchronised");
                self.resync_ended(volume, unit);
            }
        }
    }

    /// Whether a checkpoint came between a look at pages and its end.
    pub(super) fn pages_moved(&self, mend: &Mend) -> bool {
        let is_moving = self.commit.is_writing_pages() || mend.checkpoints != self.counters.checkpoints;
        mend.volume().is_none() && is_moving
    }

    pub(super) fn volume_name(&self, volume: Option<VolumeId>) -> String {
        volume.and_then(|id| self.pool.volume(id)).map(|v| v.name.clone()).unwrap_or_default()
    }
}

/// The blocks of a mask.
pub(super) fn blocks(mask: u16) -> impl Iterator<Item = u64> {
    (0..BLOCKS_PER_UNIT).filter(move |block| mask >> block & 1 == 1)
}

/// Runs of set bits: first and count.
pub(super) fn runs(mask: u16) -> impl Iterator<Item = (u64, u64)> {
    let mut rest = u32::from(mask);
    let mut at = 0;
    core::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let skip = rest.trailing_zeros();
        rest >>= skip;
        let count = rest.trailing_ones();
        rest >>= count;
        let first = at + skip;
        at = first + count;
        Some((u64::from(first), u64::from(count)))
    })
}

fn range(buf: BufId, offset: u64, len: u64) -> BufRange {
    BufRange { buf, offset: offset as u32, len: len as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_the_bits() {
        for mask in 0..=u16::MAX {
            let mut back = 0u16;
            let mut end = 0;
            for (first, count) in runs(mask) {
                assert!(first > end || end == 0, "{mask:x}: runs never touch");
                back |= crate::volume::block_mask(first, first + count);
                end = first + count;
            }
            assert_eq!(back, mask);
        }
    }
}
