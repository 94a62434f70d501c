//! The second look, at what the first one doubts: a unit at a time, as a [mend](super::super::mend). What differs then, or
//! cannot be read, is told and counted; what is known to be wrong is put right.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Engine, Stage};
use crate::engine::mend::judge::{Groups, majority};
use crate::engine::mend::{COPIES_MAX, Cause, Mend, Target, runs};
use crate::meta::pages::{Page, address};
use crate::request::{Event, ScrubCopy, Witness};
use crate::scrub::Found;
use crate::units::{BLOCK, BLOCKS_PER_UNIT, DeviceId};
use crate::volume::INTERNAL;

/// Looks at one unit of pages that a checkpoint came between; then it is counted as undecided and left to the next scrub.
pub(super) const TRIES_MAX: u32 = 8;

/// One unit under its second look.
#[derive(Clone, Default)]
pub(super) struct Again {
    /// Which of the piece's units.
    unit: usize,
    tries: u32,
}

/// What is wrong with a unit: to be told, and to be counted by member.
#[derive(Default)]
struct Complaint {
    events: Vec<Event>,
    differences: u64,
    found: Vec<(DeviceId, Found)>,
}

/// A block whose copies differ: what they hold, which of that is right, and who says so.
#[derive(PartialEq, Eq)]
struct Judged {
    groups: Groups,
    right: Option<u8>,
    witness: Witness,
}

impl Judged {
    /// `right` has a bit for each copy that is what the block's checksum says; None without a checksum.
    fn new(groups: Groups, right: Option<u8>) -> Judged {
        let (witness, right) = match right {
            Some(0) => (Witness::Checksum, None),
            Some(right) => (Witness::Checksum, groups[right.trailing_zeros() as usize]),
            None => match majority(&groups) {
                None => (Witness::Nobody, None),
                most => (Witness::Majority, most),
            },
        };
        Judged { groups, right, witness }
    }
}

impl Engine {
    /// Goes on with the next unit in doubt of a piece, or ends the piece.
    pub(super) fn look_again(&mut self, id: u32) {
        let is_ended = self.scrub.ended;
        let is_writing = self.commit.is_writing_pages();
        let piece = &mut self.scrub.pieces[id];
        if piece.doubts == 0 || is_ended {
            return self.piece_looked_at(id);
        }
        let unit = piece.doubts.trailing_zeros() as usize;
        let tries = piece.again.take().filter(|a| a.unit == unit).map_or(0, |a| a.tries);
        piece.again = Some(Again { unit, tries });
        let place = (piece.chunk, piece.first + unit as u32);
        match piece.units[unit].home.get() {
            Some((INTERNAL, at)) => {
                self.rewrite_pages(at);
                self.mend(Cause::Scrub(id), Target::UnitAt(INTERNAL, at, place));
            }
            Some((volume, at)) => self.mend(Cause::Scrub(id), Target::UnitAt(volume, at, place)),
            None if is_writing => self.scrub.wait_pages.push(id),
            None => self.mend(Cause::Scrub(id), Target::Pages(place.0, place.1)),
        }
    }

    /// All copies of a unit were read and compared: what differs now differs for good.
    pub(in crate::engine) fn scrub_judged(&mut self, mend: u32) {
        let mend = &self.mends[mend];
        if self.pages_moved(mend) || self.scrub.ended {
            return;
        }
        let pages = damaged_pages(mend);
        let mut complaint = Complaint::default();
        let name = self.volume_name(mend.volume());
        complaint.of_errors(mend, &name);
        complaint.of_differences(mend, &name);
        let scrub = &mut self.pool.scrub;
        scrub.differences = scrub.differences.saturating_add(complaint.differences);
        for (device, Found { differences, read_errors }) in complaint.found {
            scrub.read_errors = scrub.read_errors.saturating_add(read_errors);
            let found = scrub.found.entry(device).or_default();
            (found.differences, found.read_errors) = (found.differences + differences, found.read_errors + read_errors);
        }
        for event in complaint.events {
            self.tell_place(event);
        }
        self.renew_pages(&pages);
    }

    /// Whatever copies of these pages hold, memory has what they are about: the checkpoint that follows the scrub writes it
    /// elsewhere.
    fn renew_pages(&mut self, pages: &[Page]) {
        if !pages.is_empty() {
            self.pool.volumes_mut().for_each(|v| v.map.touch_pages(|page| pages.contains(&page)));
            self.pool.scrub.repaired = self.pool.scrub.repaired.saturating_add(pages.len() as u64);
            self.commit.renew_pages();
        }
    }

    /// This unit is done, unless it was looked at in vain.
    pub(in crate::engine) fn scrub_mended(&mut self, id: u32, mend: &Mend) {
        let moved = self.pages_moved(mend);
        let piece = &mut self.scrub.pieces[id];
        let again = piece.again.as_mut().expect("it looks again");
        if moved {
            again.tries += 1;
            if again.tries < TRIES_MAX {
                return self.look_again(id);
            }
            if !self.scrub.ended {
                self.pool.scrub.undecided += (0..BLOCKS_PER_UNIT).filter(|&block| mend.is_unlike(block)).count() as u64;
            }
        }
        let unit = again.unit;
        piece.doubts &= !(1 << unit);
        piece.again = None;
        self.look_again(id);
    }

    /// Nothing of a piece is in doubt any more; of a row, parity may be now.
    fn piece_looked_at(&mut self, id: u32) {
        if self.looks_at_next_row(id) {
            return;
        }
        let piece = &mut self.scrub.pieces[id];
        piece.stage = Stage::Done;
        let lane = piece.lane;
        self.lane_moved(lane);
    }
}

/// The pool's own pages among what was looked at that are not alike, or cannot be read somewhere.
fn damaged_pages(mend: &Mend) -> Vec<Page> {
    let Target::Pages(chunk, unit) = mend.target else { return Vec::new() };
    let first = u64::from(unit) * BLOCKS_PER_UNIT;
    (0..BLOCKS_PER_UNIT).filter(|&block| mend.is_unlike(block)).map(|block| address(chunk, first + block)).collect()
}

impl Complaint {
    /// Blocks that could not be read.
    fn of_errors(&mut self, mend: &Mend, name: &str) {
        for (column, bad) in mend.columns.iter().zip(mend.bad).filter_map(|(c, bad)| Some(((*c)?, bad))) {
            if bad != 0 {
                let read_errors = u64::from(bad.count_ones());
                self.found.push((column.device, Found { differences: 0, read_errors }));
            }
            for (first, count) in runs(bad) {
                let (volume, name) = (mend.volume(), String::from(name));
                let (device, device_offset) = (column.device, column.offset + mend.offset + first * BLOCK);
                let (offset, len) = (mend.base() + first * BLOCK, count * BLOCK);
                self.events.push(Event::ScrubReadError { volume, name, offset, len, device, device_offset });
            }
        }
    }

    /// All copies of a block hold the same, and it is not what was written.
    fn count_alike(&mut self, mend: &Mend, groups: &Groups, right: Option<u8>) {
        if right == Some(0) {
            let read = groups.iter().zip(mend.columns).filter_map(|(group, column)| column.filter(|_| group.is_some()));
            self.found.extend(read.map(|column| (column.device, Found { differences: 1, read_errors: 0 })));
        }
    }

    /// Blocks that are not alike; neighbours that differ in the same way are told as one. Where a write may have been under way at a
    /// crash, copies may differ and are no worse for it.
    fn of_differences(&mut self, mend: &Mend, name: &str) {
        let mut told: Vec<(u64, u64, Judged)> = Vec::new();
        for block in (0..BLOCKS_PER_UNIT).filter(|block| mend.doubts >> block & 1 == 0) {
            let (groups, right) = (mend.groups(block), mend.right(block));
            let first = groups.iter().flatten().next();
            let all_alike = groups.iter().flatten().all(|g| Some(g) == first);
            self.differences += u64::from(!all_alike || right == Some(0) && first.is_some());
            if all_alike {
                self.count_alike(mend, &groups, right);
                continue;
            }
            let judged = Judged::new(groups, right);
            match told.last_mut() {
                Some((first, count, before)) if *before == judged && *first + *count == block => *count += 1,
                _ => told.push((block, 1, judged)),
            }
        }
        for (first, count, Judged { groups, right, witness }) in told {
            let mut copies = Vec::with_capacity(COPIES_MAX);
            for (group, column) in groups.into_iter().zip(mend.columns) {
                let (Some(group), Some(column)) = (group, column) else { continue };
                let suspect = right.is_some_and(|right| right != group);
                if suspect || right.is_none() {
                    self.found.push((column.device, Found { differences: count, read_errors: 0 }));
                }
                let offset = column.offset + mend.offset + first * BLOCK;
                copies.push(ScrubCopy { device: column.device, offset, group, suspect });
            }
            let (offset, len) = (mend.base() + first * BLOCK, count * BLOCK);
            let (volume, name) = (mend.volume(), String::from(name));
            self.events.push(Event::ScrubDifference { volume, name, offset, len, copies, witness });
        }
    }
}
