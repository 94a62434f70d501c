//! Write intent: where a write may be under way is on stable media before the write begins, so that after a crash only
//! those regions have to be looked at.
//!
//! ```text
//!              write to a block that was written before
//!     clean --------------------------------------------> marked: a forced record in the log; the write waits for it
//!       ^                                                    |
//!       '----------------------------------------------------'
//!         a checkpoint whose image leaves it out: idle when the image is taken, flushed before the image counts
//! ```
//!
//! * Only writes over blocks that have their bit count. A first write needs no record of a mark: until the record of its
//!   place is in the log nobody sees it, and that comes after the data. A block that was discarded is as good as written until
//!   its discard is stable.
//! * Where content is summed, the sum of a first write may reach its home later than the record of its place. So its region is
//!   marked as well, but that costs nothing: the opening takes the record of a place for a mark, and the image has the
//!   mark itself.
//! * Marks go to the log with the group that is next, forced. A mark counts at an opening wherever its block is found, also
//!   behind a gap: it says "may differ", which is true of everything. So it needs no flush of what is before it.
//! * A writer who goes on where a marked region ends gets [`AHEAD`] regions at once, and later ones before it needs them:
//!   a stream pays one log write for 32 MiB and waits for the first only.
//! * A region is cleaned by a checkpoint and by nothing else. It is made ready when nothing was written for
//!   [`CLEAN_NS`], so an idle pool becomes clean; when more than three quarters of the limit are marked, the longest idle ones go.
//!
//! Pools whose chunks have one copy mark nothing.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::data::{edges, envelope, mask_in};
use super::{Active, Engine, Slip};
use crate::meta::journal::Lsn;
use crate::meta::record::Record;
use crate::regions::{self, REGION, Region, touched};
use crate::request::Op;
use crate::units::{BLOCK, Instant, UNIT, VolumeId};
use crate::volume::Entry;

/// Regions that are marked for a writer who goes on: 64 MiB. After a crash that much is read for nothing.
const AHEAD: u64 = 16;
/// Idle for so long, a region may be cleaned; an idle pool is.
const CLEAN_NS: u64 = 5_000_000_000;

#[derive(Clone, Default)]
pub(super) struct Intent {
    /// For the laboratory: nothing is marked.
    is_off: bool,
    marks: BTreeMap<Region, Mark>,
    /// Marks that some write is under way to.
    busy: usize,
    /// Records below hold all marks that were made.
    marked: Lsn,
    /// Writes that wait for a mark: until this record is written.
    waiting: VecDeque<(Lsn, u32)>,
    /// Writes that wait until fewer are marked.
    full: Vec<u32>,
    /// Some are marked no more since they began to wait.
    pub(super) has_room: bool,
    /// Blocks that were discarded of units that keep their place, until the record is stable.
    discarded: BTreeMap<(VolumeId, u64), (u16, Lsn)>,
    /// Volumes that gave their sums up, until this record is stable.
    given_up: BTreeMap<VolumeId, Lsn>,
    /// The last end of a write that a mark was for, or the last look for regions to clean.
    last: Instant,
}

#[derive(Clone)]
pub(super) struct Mark {
    /// Its record.
    lsn: Lsn,
    /// Writes under way.
    writing: u32,
    last: Instant,
    /// Marked ahead, and not written yet.
    is_ahead: bool,
    /// There is a record of it: blocks may be written over.
    is_logged: bool,
    /// What is written there has its sums among what was put into pages up to this.
    sums_at: u64,
}

impl Mark {
    fn new(lsn: Lsn, last: Instant) -> Mark {
        Mark { lsn, writing: 0, last, is_ahead: false, is_logged: true, sums_at: 0 }
    }
}

impl Engine {
    /// For the laboratory, which replays systems that keep no such records: no region is ever marked.
    pub fn set_intent(&mut self, is_on: bool) {
        self.intent.is_off = !is_on;
    }

    /// A write may be under way in this unit, or was when the pool stopped: its copies may differ, and be no worse for it.
    pub(super) fn is_dirty(&self, volume: VolumeId, unit: u64) -> bool {
        self.pool.intent.contains(regions::of_unit(volume, unit))
    }

    /// Some log record on its way is a mark, of intent or of what a member missed: it has to be on stable media when it is
    /// there.
    pub(super) fn has_marks_under_way(&self) -> bool {
        self.intent.marked.max(self.commit.failure_lsn) > self.journal.written() && !self.slips(Slip::MarkNotForced)
    }

    /// The volume has no sums any more, as of the last record.
    pub(super) fn note_sums_given_up(&mut self, volume: VolumeId) {
        self.intent.given_up.insert(volume, self.journal.appended());
    }

    /// The volume has sums, or an opening would find that it has: what is written over without one is marked as well.
    fn may_be_found_summed(&self, volume: VolumeId) -> bool {
        let is_unstable = |&lsn: &Lsn| self.journal.stable() < lsn;
        self.is_summed(volume) || self.intent.given_up.get(&volume).is_some_and(is_unstable)
    }

    /// Marks what a change is about to write over; false when it has to wait, and then it is taken care of.
    pub(super) fn intend(&mut self, id: u32) -> bool {
        let volume = self.requests[id].request.volume;
        let is_summed = self.may_be_found_summed(volume);
        if self.intent.is_off || !is_summed && !self.pool.has_copies() {
            return true;
        }
        let parts = written_parts(&self.requests[id]);
        if !self.requests[id].intends {
            let writes_over = parts.iter().any(|&(start, end)| self.writes_over(volume, start, end));
            if !writes_over && !is_summed {
                return true;
            }
            if !self.has_room_for_marks(volume, &parts) && self.may_clean() {
                self.intent.full.push(id);
                return false;
            }
            self.mark(id, volume, &parts, writes_over);
        }
        if self.intent.marked <= self.journal.written() || self.slips(Slip::WriteBeforeMark) {
            return true;
        }
        let regions = parts.iter().flat_map(|&(start, end)| touched(volume, start, end));
        let marks = regions.filter_map(|r| self.intent.marks.get(&r)).filter(|mark| mark.is_logged);
        let Some(lsn) = marks.map(|mark| mark.lsn).max().filter(|lsn| *lsn >= self.journal.written()) else {
            return true;
        };
        self.intent.waiting.push_back((lsn, id));
        false
    }

    /// The marks that these parts need stay below the limit.
    fn has_room_for_marks(&self, volume: VolumeId, parts: &[(u64, u64); 2]) -> bool {
        let Intent { marks, .. } = &self.intent;
        let limit = self.pool.dirty_regions();
        let regions = || parts.iter().flat_map(|&(start, end)| touched(volume, start, end));
        // Counted only where it matters: the limit is far most of the time.
        let most: u64 = parts.iter().map(|(start, end)| (end - start) / REGION + 2).sum();
        marks.len() as u64 + most <= limit as u64 || {
            let new = regions().filter(|region| !marks.contains_key(region)).count();
            new == 0 || marks.len() + new <= limit
        }
    }

    /// Some block of the range has copies, or a sum, that a reader may see.
    fn writes_over(&self, volume: VolumeId, start: u64, end: u64) -> bool {
        let is_summed = self.may_be_found_summed(volume);
        (start / UNIT..end.div_ceil(UNIT)).any(|unit| {
            let entry = self.entry(volume, unit);
            let discarded = self.intent.discarded.get(&(volume, unit)).map_or(0, |(mask, _)| *mask);
            (entry.written() | discarded) & mask_in(unit, start, end) != 0
                && (is_summed || self.pool.chunk(entry.chunk()).is_some_and(|c| c.profile.facts().copies > 1))
        })
    }

    /// From now on until it is answered the request writes to these parts.
    fn mark(&mut self, id: u32, volume: VolumeId, parts: &[(u64, u64); 2], writes_over: bool) {
        self.requests[id].intends = true;
        for region in parts.iter().flat_map(|&(start, end)| touched(volume, start, end)) {
            let is_ahead = self.begin_writing(region, writes_over).unwrap_or_else(|| {
                match writes_over {
                    true => self.mark_aloud(region),
                    false => self.mark_silently(region),
                }
                self.begin_writing(region, writes_over).expect("just marked")
            });
            if is_ahead && !self.intent.marks.contains_key(&(volume, region.1 + AHEAD / 2)) {
                self.mark_ahead(region);
            }
        }
    }

    /// Counts a write to a region that is marked well enough: whether it is the first since that was marked ahead.
    fn begin_writing(&mut self, region: Region, writes_over: bool) -> Option<bool> {
        let Intent { marks, busy, .. } = &mut self.intent;
        let mark = marks.get_mut(&region).filter(|mark| mark.is_logged || !writes_over)?;
        *busy += usize::from(mark.writing == 0);
        mark.writing += 1;
        mark.last = self.now;
        Some(writes_over && core::mem::take(&mut mark.is_ahead))
    }

    /// Marks a region, and more where a writer goes on.
    fn mark_aloud(&mut self, region: Region) {
        self.mark_region(region, false);
        let before = region.1.checked_sub(1).map(|r| (region.0, r));
        if before.is_some_and(|before| self.intent.marks.contains_key(&before)) {
            self.mark_ahead(region);
        }
    }

    fn mark_region(&mut self, region: Region, is_ahead: bool) {
        let at = regions::word_of(region);
        let bits = 1 << (region.1 % 64);
        let lsn = self.journal.append(&Record::Intent { volume: at.0, word: at.1, bits });
        self.intent.marked = lsn + 1;
        self.pool.intent.insert(region);
        let mark = self.intent.marks.entry(region).or_insert(Mark::new(lsn, self.now));
        (mark.lsn, mark.is_logged, mark.is_ahead) = (lsn, true, is_ahead);
    }

    /// Marks a region for first writes: the records of their places say the same.
    fn mark_silently(&mut self, region: Region) {
        if !self.intent.marks.contains_key(&region) {
            self.pool.intent.insert(region);
            self.intent.marks.insert(region, Mark { is_logged: false, ..Mark::new(0, self.now) });
        }
    }

    /// Marks what comes behind a region, as far as there is something and room for it.
    fn mark_ahead(&mut self, (volume, region): Region) {
        let end = self.pool.volume(volume).map_or(0, |v| v.size.div_ceil(REGION));
        for next in region + 1..(region + AHEAD).min(end) {
            if self.intent.marks.len() >= self.pool.dirty_regions() {
                return;
            }
            if !self.intent.marks.contains_key(&(volume, next)) {
                self.mark_region((volume, next), true);
            }
        }
    }

    /// A change is answered: it writes no more.
    pub(super) fn stop_writing(&mut self, active: &Active) {
        if !active.intends {
            return;
        }
        self.intent.last = self.now;
        for (start, end) in written_parts(active) {
            for region in touched(active.request.volume, start, end) {
                // A volume that went took its marks with it.
                let Some(mark) = self.intent.marks.get_mut(&region) else { continue };
                mark.writing -= 1;
                (mark.last, mark.sums_at) = (self.now, self.sums.changes);
                self.intent.busy -= usize::from(mark.writing == 0);
            }
        }
    }

    /// The log says more: writes whose marks are there go on.
    pub(super) fn marks_written(&mut self) {
        while let Some(&(lsn, id)) = self.intent.waiting.front()
            && lsn < self.journal.written()
        {
            self.intent.waiting.pop_front();
            self.start_data(id);
        }
    }

    /// Nothing can be marked any more: who waits for that.
    pub(super) fn give_up_marks(&mut self) -> Vec<u32> {
        let waiting = core::mem::take(&mut self.intent.waiting).into_iter().map(|(_, id)| id);
        waiting.chain(core::mem::take(&mut self.intent.full)).collect()
    }

    /// Blocks were taken off a unit that keeps its place.
    pub(super) fn note_discarded(&mut self, volume: VolumeId, unit: u64, old: Entry, new: Entry, lsn: Lsn) {
        let (mask, since) = self.intent.discarded.entry((volume, unit)).or_default();
        (*mask, *since) = (*mask | old.written() & !new.written(), lsn);
    }

    // ---- cleaning -------------------------------------------------------------------------------------------------

    /// Regions that are marked and that nothing keeps from being cleaned, at least.
    fn cleanable(&self) -> usize {
        match self.are_sums_stuck() {
            true => 0,
            false => self.intent.marks.len().saturating_sub(self.intent.busy + self.resync.regions()),
        }
    }

    /// A checkpoint is under way, or would find something to clean.
    fn may_clean(&self) -> bool {
        !self.commit.is_closed() && (self.commit.is_writing_pages() || self.cleanable() > 0)
    }

    /// When an idle pool wants to become clean.
    pub(super) fn clean_deadline(&self) -> Option<Instant> {
        // The checkpoint that comes will do it: until it begins nobody is to be woken, again and again.
        let is_busy = self.commit.is_writing_pages() || self.commit.is_leaving() || self.sums.is_awaited();
        let is_wanted = !self.commit.is_closed() && !is_busy && self.cleanable() > 0;
        is_wanted.then(|| self.intent.last + CLEAN_NS)
    }

    /// A checkpoint should clean.
    pub(super) fn is_cleaning_due(&self) -> bool {
        let most = self.pool.dirty_regions();
        let least = if self.intent.full.is_empty() { most / 8 } else { 0 };
        let presses = !self.intent.full.is_empty() || self.intent.marks.len() > most / 4 * 3;
        self.sums.is_awaited()
            || presses && self.cleanable() > least
            || self.clean_deadline().is_some_and(|at| at <= self.now)
    }

    /// Leaves out of the image that comes what is idle and alike, with its sums at home. What was written there is flushed
    /// before the image counts; if it never does, the marks of the image before and of the log still stand.
    ///
    /// What was left out.
    pub(super) fn clean_regions(&mut self) -> Vec<(Region, Mark)> {
        (self.intent.last, self.intent.has_room) = (self.now, true);
        let stable = self.journal.stable();
        self.intent.discarded.retain(|_, (_, lsn)| *lsn >= stable);
        let most = self.pool.dirty_regions();
        let is_idle = |mark: &Mark| mark.writing == 0;
        let mut idle: Vec<(Instant, Region)> =
            self.intent.marks.iter().filter(|(_, mark)| is_idle(mark)).map(|(&r, mark)| (mark.last, r)).collect();
        let at_home = self.sums_at_home();
        idle.retain(|(_, region)| !self.resync.holds(*region) && self.intent.marks[region].sums_at < at_home);
        idle.sort_unstable();
        if self.slips(Slip::CleanedWhileWritten) {
            self.intent.marks.keys().for_each(|&region| {
                self.pool.intent.remove(region);
            });
        }
        let (now, mut left, mut cleaned) = (self.now, self.intent.marks.len(), Vec::new());
        for (last, region) in idle {
            if self.is_closing() || now.since(last) >= CLEAN_NS || left > most / 2 {
                left -= 1;
                cleaned.extend(self.intent.marks.remove(&region).map(|mark| (region, mark)));
                self.pool.intent.remove(region);
            }
        }
        cleaned
    }

    /// They are as they were: the image that has them left out does not count, and the one before and the log have them.
    pub(super) fn soil_regions(&mut self, cleaned: Vec<(Region, Mark)>) {
        for (region, mark) in cleaned {
            if self.pool.volume(region.0).is_none() {
                continue;
            }
            // Who has written there since has marked it anew.
            self.intent.marks.entry(region).or_insert(mark);
            self.pool.intent.insert(region);
        }
    }

    /// Sums of a unit changed without a write.
    pub(super) fn note_sums_changed(&mut self, volume: VolumeId, unit: u64) {
        if let Some(mark) = self.intent.marks.get_mut(&regions::of_unit(volume, unit)) {
            mark.sums_at = self.sums.changes;
        }
    }

    /// Whether a unit that goes elsewhere may have its region marked.
    pub(super) fn has_mark_room(&self, volume: VolumeId, unit: u64) -> bool {
        let Intent { is_off, marks, .. } = &self.intent;
        *is_off
            || !self.is_summed(volume)
            || marks.contains_key(&regions::of_unit(volume, unit))
            || marks.len() < self.pool.dirty_regions()
            || !self.may_clean()
    }

    /// A unit is about to have another place, and its sums are among what was put into pages up to now.
    pub(super) fn mark_moved(&mut self, volume: VolumeId, unit: u64) {
        if self.intent.is_off {
            return;
        }
        let region = regions::of_unit(volume, unit);
        self.mark_silently(region);
        let mark = self.intent.marks.get_mut(&region).expect("just made");
        (mark.last, mark.sums_at, self.intent.last) = (self.now, self.sums.changes, self.now);
    }

    /// Who waited for fewer marks looks again.
    pub(super) fn retry_full(&mut self) {
        if self.intent.full.is_empty() || !core::mem::take(&mut self.intent.has_room) && self.may_clean() {
            return;
        }
        for id in core::mem::take(&mut self.intent.full) {
            self.start_data(id);
        }
    }

    /// The marks that an opening found.
    pub(super) fn adopt_marks(&mut self) {
        let last = self.now;
        let marks = self.pool.intent.iter().map(|r| (r, Mark::new(0, last)));
        (self.intent.marks, self.intent.last) = (marks.collect(), last);
    }

    /// A volume goes, and its marks with it.
    pub(super) fn forget_marks(&mut self, volume: VolumeId) {
        let gone: Vec<Region> =
            self.intent.marks.range((volume, 0)..=(volume, u64::MAX)).map(|(&region, _)| region).collect();
        for region in gone {
            let mark = self.intent.marks.remove(&region).expect("just seen");
            self.intent.busy -= usize::from(mark.writing > 0);
        }
        self.intent.discarded.retain(|(v, _), _| *v != volume);
        self.intent.given_up.remove(&volume);
    }

    /// How many regions are marked.
    pub(super) fn dirty_regions(&self) -> usize {
        self.intent.marks.len()
    }
}

/// What a change writes to: of one that only clears, the blocks at its ends that it covers in part.
pub(super) fn written_parts(active: &Active) -> [(u64, u64); 2] {
    let request = &active.request;
    match request.op {
        Op::Write { .. } | Op::WriteZeroes { no_hole: true, .. } => [envelope(request), (0, 0)],
        Op::WriteZeroes { no_hole: false, .. } => {
            edges(request).map(|block| block.map_or((0, 0), |block| (block, block + BLOCK)))
        }
        Op::Discard | Op::Read | Op::Flush => [(0, 0); 2],
    }
}
