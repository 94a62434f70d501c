//! The second look, at what the first one doubts: a unit at a time, block by block, while nobody can write it.
//!
//! Content of a volume is read under the range lock of its unit; a client's write may wait behind that, so these reads
//! are of class sync read. Pages of the pool are never written in place: a look counts when no checkpoint was under way
//! from its beginning to its end.

use alloc::string::String;
use alloc::vec::Vec;

use super::{AGAIN, COPIES_MAX, Engine, Stage, TOKENS, range};
use crate::chunk::Column;
use crate::profile::slice;
use crate::queue::{Io, Owner};
use crate::request::{Copy, DeviceOp, Event, IoError, Output, ScrubCopy};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, BufId, UNIT, VolumeId};

/// Looks at one unit of pages that a checkpoint came between; then it is counted as undecided and left to the next scrub.
const TRIES_MAX: u32 = 8;

/// One unit under its second look.
#[derive(Default)]
pub(super) struct Again {
    /// Which of the piece's units.
    unit: usize,
    /// The range lock is held.
    locked: bool,
    epoch: Option<u64>,
    tries: u32,
    /// Checkpoints so far, when a look at pages began.
    checkpoints: u64,
    columns: [Option<Column>; COPIES_MAX],
    /// First byte within a column.
    offset: u64,
    scratch: [Option<BufId>; COPIES_MAX],
    pending: u32,
    /// Blocks to look at.
    mask: u16,
    /// By copy: blocks that could not be read, blocks whose member is gone.
    bad: [u16; COPIES_MAX],
    gone: [u16; COPIES_MAX],
    /// By copy: blocks that differ from another copy.
    unlike: [[u16; COPIES_MAX]; COPIES_MAX],
}

impl Again {
    fn has(&self, copy: usize, block: u64) -> bool {
        self.scratch[copy].is_some() && (self.bad[copy] | self.gone[copy]) >> block & 1 == 0
    }

    /// The block was read and is not alike, or could not be read.
    fn doubts(&self, block: u64) -> bool {
        let groups = self.groups(block);
        let first = groups.iter().flatten().next();
        let is_bad = self.bad.iter().any(|bad| bad >> block & 1 == 1);
        self.mask >> block & 1 == 1 && (is_bad || groups.iter().flatten().any(|g| Some(g) != first))
    }

    /// For each copy that has the block, the first copy that holds the same.
    fn groups(&self, block: u64) -> [Option<u8>; COPIES_MAX] {
        let mut groups = [None; COPIES_MAX];
        for copy in (0..COPIES_MAX).filter(|&c| self.has(c, block)) {
            let same = |&other: &usize| self.has(other, block) && self.unlike[other][copy] >> block & 1 == 0;
            groups[copy] = Some((0..copy).find(same).unwrap_or(copy) as u8);
        }
        groups
    }
}

/// The group that more than half of the copies are in.
fn majority(groups: &[Option<u8>; COPIES_MAX]) -> Option<u8> {
    let all = groups.iter().flatten().count();
    groups.iter().flatten().copied().find(|group| groups.iter().flatten().filter(|g| *g == group).count() * 2 > all)
}

impl Engine {
    /// Goes on with the next unit in doubt of a piece, or ends the piece.
    pub(super) fn look_again(&mut self, id: u32) {
        let is_ended = self.scrub.ended;
        let is_writing = self.commit.is_writing_pages();
        let piece = &mut self.scrub.pieces[id];
        if piece.doubts == 0 || is_ended {
            piece.stage = Stage::Done;
            let lane = piece.lane;
            return self.lane_moved(lane);
        }
        let unit = piece.doubts.trailing_zeros() as usize;
        let tries = piece.again.take().filter(|a| a.unit == unit).map_or(0, |a| a.tries);
        piece.again = Some(Again { unit, tries, ..Again::default() });
        match piece.units[unit].home.get() {
            Some((volume, at)) => {
                if self.locks.acquire(volume, at * UNIT, (at + 1) * UNIT, TOKENS | id) {
                    self.scrub_granted(TOKENS | id);
                }
            }
            None if is_writing => self.scrub.wait_pages.push(id),
            None => self.read_again(id),
        }
    }

    /// The unit is ours.
    pub(in crate::engine) fn scrub_granted(&mut self, token: u32) {
        let id = token & !TOKENS;
        self.scrub.pieces[id].again.as_mut().expect("it asked for it").locked = true;
        self.read_again(id);
    }

    fn read_again(&mut self, id: u32) {
        let piece = &self.scrub.pieces[id];
        let (chunk, is_ended) = (piece.chunk, self.scrub.ended);
        let unit = piece.again.as_ref().expect("it looks again").unit;
        let at = piece.first + unit as u32;
        // It may have been discarded since, and its place be somebody else's.
        let mask = if is_ended { 0 } else { self.blocks_of(chunk, at, piece.units[unit].home) };
        let Some(c) = self.pool.chunk(chunk).filter(|_| mask != 0) else { return self.next_doubt(id) };
        // A unit never crosses a strip.
        let part = slice(c.profile, c.columns.len(), u64::from(at) * UNIT, UNIT);
        let mut columns = [None; COPIES_MAX];
        for (place, column) in columns.iter_mut().zip(&c.columns[part.first..part.first + part.copies]) {
            *place = Some(*column);
        }
        let (checkpoints, epoch) = (self.counters.checkpoints, self.space.enter());
        let again = self.scrub.pieces[id].again.as_mut().expect("just seen");
        (again.mask, again.columns, again.offset) = (mask, columns, part.offset);
        (again.checkpoints, again.epoch) = (checkpoints, Some(epoch));
        let online = |c: &Column| self.pool.is_online(c.device);
        let there = columns.map(|c| c.filter(online));
        for (copy, column) in there.into_iter().enumerate() {
            let Some(column) = column else { continue };
            let buf = self.scratch_of(UNIT);
            self.scrub.pieces[id].again.as_mut().expect("just seen").scratch[copy] = Some(buf);
            // One command on the way out, as neighbours; apart again when it fails, so that each block's error is known.
            for block in (0..BLOCKS_PER_UNIT).filter(|b| mask >> b & 1 == 1) {
                self.scrub.pieces[id].again.as_mut().expect("just seen").pending += 1;
                let offset = column.offset + part.offset + block * BLOCK;
                let io = Io::new(Owner::Recheck(id), DeviceOp::Read, column.device, offset, BLOCK, self.now);
                self.issue(Io { buf: range(buf, block * BLOCK, BLOCK), ..io });
            }
        }
        if there.iter().flatten().count() == 0 {
            self.next_doubt(id);
        }
    }

    /// One block of one copy came back.
    pub(in crate::engine) fn scrub_reread(&mut self, id: u32, io: &Io, result: Result<(), IoError>) {
        let again = self.scrub.pieces[id].again.as_mut().expect("it looks again");
        let copy = again.scratch.iter().position(|s| *s == Some(io.buf.buf)).expect("it reads into its own scratch");
        let bit = 1 << (u64::from(io.buf.offset) / BLOCK);
        match result {
            Ok(()) => {}
            Err(IoError::Gone) => again.gone[copy] |= bit,
            Err(_) => again.bad[copy] |= bit,
        }
        again.pending -= 1;
        if again.pending > 0 {
            return;
        }
        for block in 0..BLOCKS_PER_UNIT {
            for b in 0..COPIES_MAX {
                for a in 0..b {
                    if again.mask >> block & 1 == 0 || !again.has(a, block) || !again.has(b, block) {
                        continue;
                    }
                    let (Some(one), Some(other)) = (again.scratch[a], again.scratch[b]) else { continue };
                    let tag = AGAIN | u64::from(id) << 16 | (a as u64) << 12 | (b as u64) << 8 | block;
                    let (a, b) = (range(one, block * BLOCK, BLOCK), range(other, block * BLOCK, BLOCK));
                    again.pending += 1;
                    self.outputs.push_back(Output::Compare { tag, a, b });
                }
            }
        }
        if again.pending == 0 {
            self.judge(id);
        }
    }

    pub(super) fn compared_again(&mut self, tag: u64, equal: bool) {
        let (id, block) = (((tag & !AGAIN) >> 16) as u32, tag & 0xff);
        let (a, b) = ((tag >> 12 & 0xf) as usize, (tag >> 8 & 0xf) as usize);
        let again = self.scrub.pieces[id].again.as_mut().expect("it looks again");
        again.unlike[a][b] |= u16::from(!equal) << block;
        again.pending -= 1;
        if again.pending == 0 {
            self.judge(id);
        }
    }

    /// What differs now differs for good.
    fn judge(&mut self, id: u32) {
        let piece = &self.scrub.pieces[id];
        let again = piece.again.as_ref().expect("it looks again");
        let (home, at) = (piece.units[again.unit].home.get(), piece.first + again.unit as u32);
        let is_page = home.is_none();
        if is_page && (self.commit.is_writing_pages() || again.checkpoints != self.counters.checkpoints) {
            return self.try_pages_again(id);
        }
        if self.scrub.ended {
            return self.next_doubt(id);
        }
        let volume = home.map(|(volume, _)| volume);
        let base = home.map_or(u64::from(at), |(_, unit)| unit) * UNIT;
        let mut events = Vec::new();
        self.judge_errors(id, volume, base, &mut events);
        self.judge_differences(id, volume, base, &mut events);
        for event in events {
            self.tell_place(event);
        }
        self.next_doubt(id);
    }

    fn judge_errors(&mut self, id: u32, volume: Option<VolumeId>, base: u64, events: &mut Vec<Event>) {
        let again = self.scrub.pieces[id].again.as_ref().expect("it looks again");
        let found = again.columns.iter().zip(again.bad).filter_map(|(c, bad)| Some(((*c)?, bad))).collect::<Vec<_>>();
        let offset = again.offset;
        for (column, bad) in found {
            let blocks = u64::from(bad.count_ones());
            self.pool.scrub.read_errors = self.pool.scrub.read_errors.saturating_add(blocks);
            if blocks > 0 {
                self.pool.scrub.found.entry(column.device).or_default().read_errors += blocks;
            }
            for (first, count) in super::runs(bad) {
                let (device, device_offset) = (column.device, column.offset + offset + first * BLOCK);
                let (offset, len) = (base + first * BLOCK, count * BLOCK);
                let name = self.volume_name(volume);
                events.push(Event::ScrubReadError { volume, name, offset, len, device, device_offset });
            }
        }
    }

    fn judge_differences(&mut self, id: u32, volume: Option<VolumeId>, base: u64, events: &mut Vec<Event>) {
        let name = self.volume_name(volume);
        let Engine { scrub, pool, .. } = self;
        let again = scrub.pieces[id].again.as_ref().expect("it looks again");
        let mut run: Option<(u64, u64, [Option<u8>; COPIES_MAX])> = None;
        let mut told = Vec::new();
        for block in 0..BLOCKS_PER_UNIT {
            let groups = if again.mask >> block & 1 == 1 { again.groups(block) } else { [None; COPIES_MAX] };
            let first = groups.iter().flatten().next();
            if groups.iter().flatten().all(|g| Some(g) == first) {
                continue;
            }
            pool.scrub.differences = pool.scrub.differences.saturating_add(1);
            run = match run {
                Some((first, count, before)) if before == groups && first + count == block => {
                    Some((first, count + 1, before))
                }
                other => {
                    told.extend(other);
                    Some((block, 1, groups))
                }
            };
        }
        told.extend(run);
        for (first, count, groups) in told {
            let right = majority(&groups);
            let mut copies = Vec::new();
            for (copy, group) in groups.into_iter().enumerate() {
                let (Some(group), Some(column)) = (group, again.columns[copy]) else { continue };
                let suspect = right.is_some_and(|right| right != group);
                if suspect || right.is_none() {
                    pool.scrub.found.entry(column.device).or_default().differences += count;
                }
                let offset = column.offset + again.offset + first * BLOCK;
                copies.push(ScrubCopy { device: column.device, offset, group, suspect });
            }
            let (offset, len) = (base + first * BLOCK, count * BLOCK);
            events.push(Event::ScrubDifference { volume, name: name.clone(), offset, len, copies });
        }
    }

    fn volume_name(&self, volume: Option<VolumeId>) -> String {
        volume.and_then(|id| self.pool.volume(id)).map(|v| v.name.clone()).unwrap_or_default()
    }

    /// A checkpoint may have written these very pages while they were read.
    fn try_pages_again(&mut self, id: u32) {
        let again = self.scrub.pieces[id].again.as_mut().expect("it looks again");
        let doubts = (0..BLOCKS_PER_UNIT).filter(|&block| again.doubts(block)).count() as u64;
        again.tries += 1;
        let is_last = again.tries >= TRIES_MAX;
        self.let_go_again(id);
        if is_last {
            if !self.scrub.ended {
                self.pool.scrub.undecided += doubts;
            }
            return self.next_doubt(id);
        }
        self.look_again(id);
    }

    /// Gives back memory and space of a second look; the lock stays.
    fn let_go_again(&mut self, id: u32) {
        let again = self.scrub.pieces[id].again.as_mut().expect("it looks again");
        let (epoch, scratch) = (again.epoch.take(), core::mem::take(&mut again.scratch));
        if let Some(epoch) = epoch {
            self.space.leave(epoch);
        }
        for buf in scratch.into_iter().flatten() {
            self.outputs.push_back(Output::Copy(Copy::Drop(buf)));
        }
    }

    /// This unit is judged.
    fn next_doubt(&mut self, id: u32) {
        self.let_go_again(id);
        let piece = &mut self.scrub.pieces[id];
        let again = piece.again.take().expect("it looked again");
        piece.doubts &= !(1 << again.unit);
        let home = piece.units[again.unit].home.get();
        if let (Some((volume, at)), true) = (home, again.locked) {
            self.unlock(volume, at * UNIT, (at + 1) * UNIT, TOKENS | id);
        }
        self.look_again(id);
    }
}
