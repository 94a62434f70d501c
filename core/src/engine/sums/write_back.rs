//! Pages on their way to their home: a few at a time, each a copy of what it was when it left, under its range lock.

use super::cache::{BESIDE, Page, PageHome, State, memory, whole};
use super::{Engine, PAGE_TOKENS, SUMS_VOLUME, home};
use crate::meta::record::Record;
use crate::queue::{CopySet, Io, Owner};
use crate::request::{Copy, DeviceOp, IoError, Output, PageWork};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, BufRange, DeviceId, UNIT};

/// Where in memory a page is that is being written.
pub(in crate::engine) fn page_on_its_way(slot: u32) -> BufRange {
    whole(memory(slot, 1))
}

/// Pages on their way at once: each takes another 4 KiB meanwhile.
const WRITING_MAX: u32 = 64;

impl Engine {
    /// Begins to write every page that says more than its home.
    pub(in crate::engine) fn write_pages(&mut self) {
        for slot in 0..self.sums.pages.ids_end() {
            let Some(page) = self.sums.pages.get_mut(slot) else { continue };
            if page.dirty && !page.writing {
                page.writing = true;
                self.sums.to_write.push_back(slot);
            }
        }
        self.next_page_writes();
    }

    /// Sums go home with every checkpoint. One that cleans regions waits until those are there that were put in before it was
    /// asked for, as the last one does; one that the log needs waits for nothing.
    pub(in crate::engine) fn waits_for_sums(&mut self) -> bool {
        if self.sums.dirty == self.sums.failed && self.sums.writing == 0 {
            self.sums.awaited = None;
            return false;
        }
        let until = match self.sums.awaited {
            Some(until) => until,
            None => {
                self.write_pages();
                *self.sums.awaited.insert(self.sums.changes)
            }
        };
        let may_wait = self.is_closing() || self.is_cleaning_due() && !self.is_log_full() && !self.is_log_in_doubt();
        let waits = may_wait && self.sums.failed == 0 && self.sums_at_home() <= until;
        match waits {
            // What was put into a page while that was on its way waits for another turn.
            true if self.sums.writing == 0 => self.write_pages(),
            true => {}
            false => self.sums.awaited = None,
        }
        waits
    }

    /// What was put in before this is at home, by the count of changes.
    pub(in crate::engine) fn sums_at_home(&mut self) -> u64 {
        if let Some(count) = self.sums.at_home {
            return count;
        }
        let pages = (0..self.sums.pages.ids_end()).filter_map(|slot| self.sums.pages.get(slot));
        let away = |page: &Page| page.dirty.then_some(page.since).into_iter().chain(page.leaving).min();
        let count = pages.filter_map(away).min().unwrap_or(u64::MAX);
        self.sums.at_home = Some(count);
        count
    }

    /// Some sums have no home, and no region is cleaned until they have.
    pub(in crate::engine) fn are_sums_stuck(&self) -> bool {
        self.sums.failed > 0
    }

    fn next_page_writes(&mut self) {
        while self.sums.writing < WRITING_MAX
            && let Some(slot) = self.sums.to_write.pop_front()
        {
            self.sums.writing += 1;
            let page = &self.sums.pages[slot];
            let at = home(page.chunk, page.index);
            if self.locks.acquire(SUMS_VOLUME, at, at + BLOCK, PAGE_TOKENS | slot) {
                self.write_page(slot);
            }
        }
    }

    /// Its place is ours: what it says now goes to all copies.
    pub(in crate::engine) fn write_page(&mut self, slot: u32) {
        let page = &mut self.sums.pages[slot];
        let (chunk, index) = (page.chunk, page.index);
        page.leaving = page.dirty.then_some(page.since);
        self.sums.failed -= u32::from(core::mem::take(&mut page.failed));
        self.sums.dirty -= u32::from(core::mem::take(&mut page.dirty));
        if !self.page_home(chunk, index).entry.is_mapped() {
            // Without one, its sums are known while it is in memory.
            self.reserve_page(chunk, index);
        }
        let PageHome { entry, columns, beside, .. } = self.page_home(chunk, index);
        let epoch = self.space.enter();
        let page = &mut self.sums.pages[slot];
        (page.epoch, page.pending, page.roster) = (Some(epoch), 1, self.roster);
        self.seal_page(slot);
        let copy = page_on_its_way(slot);
        for column in columns {
            if !self.pool.is_online(column.device) {
                self.page_copy_written(slot, column.device, Err(IoError::Gone));
                continue;
            }
            self.sums.pages[slot].pending += 1;
            let op = DeviceOp::Write { fua: false };
            let io = Io::new(Owner::SumPage(slot), op, column.device, column.offset, BLOCK, self.now);
            self.issue(Io { buf: copy, ..io });
        }
        match beside {
            Some(column) if !self.pool.is_online(column.device) => self.shift_failed(entry.chunk()),
            Some(column) => {
                self.sums.pages[slot].pending += 1;
                let op = DeviceOp::Write { fua: false };
                let io = Io::new(Owner::SumPage(slot), op, column.device, column.offset, BLOCK, self.now);
                let set = CopySet { chunk: entry.chunk(), copy: BESIDE, ..io.set };
                self.issue(Io { buf: copy, set, ..io });
            }
            None => {}
        }
        self.page_io_over(slot);
    }

    /// What a page says now, ready to be written.
    fn seal_page(&mut self, slot: u32) {
        let (page, name) = (memory(slot, 0), self.page_name(slot));
        self.outputs.push_back(Output::Page(PageWork::Seal { page, name }));
        self.copy_page(slot);
    }

    fn copy_page(&mut self, slot: u32) {
        let (page, copy) = (whole(memory(slot, 0)), page_on_its_way(slot));
        self.outputs.push_back(Output::Page(PageWork::New(copy.buf)));
        self.outputs.push_back(Output::Copy(Copy::Move { from: page, to: copy }));
    }

    /// A page goes to another place, with the unit it is in: it stays in memory, as it is now, until it is let go of. One that
    /// says no more than its home goes as it is there: with a generation of its own it would differ from copies that stay.
    pub(in crate::engine) fn hold_page(&mut self, slot: u32) {
        self.pin_page(slot);
        match self.sums.pages[slot].dirty {
            true => self.seal_page(slot),
            false => self.copy_page(slot),
        }
    }

    pub(in crate::engine) fn let_page_go(&mut self, slot: u32) {
        self.outputs.push_back(Output::Copy(Copy::Drop(memory(slot, 1))));
        self.unpin_page(slot);
        self.room_moved();
    }

    pub(super) fn page_copy_written(&mut self, slot: u32, device: DeviceId, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.sums.pages[slot].missed.push((device, error));
        }
    }

    /// All copies are back: who missed it is behind, and where nobody can be spared it is tried again later.
    pub(super) fn page_written(&mut self, slot: u32) {
        let page = &mut self.sums.pages[slot];
        debug_assert!(page.state == State::Ready && page.writing);
        page.writing = false;
        let (chunk, index, roster, leaving) = (page.chunk, page.index, page.roster, page.leaving.take());
        let missed = core::mem::take(&mut page.missed);
        let at = home(chunk, index);
        let part = (at, at + BLOCK);
        self.sums.writing -= 1;
        self.outputs.push_back(Output::Copy(Copy::Drop(memory(slot, 1))));
        let mut is_stored = self.page_home(chunk, index).entry.is_mapped();
        self.note_unflushed(SUMS_VOLUME, part.0, part.1);
        for (device, error) in missed {
            is_stored &= self.miss(device, SUMS_VOLUME, part, error);
        }
        is_stored &= self.pass_by_absent(SUMS_VOLUME, part.0, part.1, roster);
        self.sums.at_home = None;
        if is_stored {
            self.note_page_written(at);
        } else {
            self.dirty_page(slot);
            let page = &mut self.sums.pages[slot];
            page.since = leaving.map_or(page.since, |since| since.min(page.since));
            self.sums.failed += u32::from(!core::mem::replace(&mut page.failed, true));
        }
        self.unlock(SUMS_VOLUME, at, at + BLOCK, PAGE_TOKENS | slot);
        self.next_page_writes();
        self.room_moved();
    }

    /// From now on there is something to read.
    fn note_page_written(&mut self, at: u64) {
        let (unit, bit) = (at / UNIT, 1 << (at / BLOCK % BLOCKS_PER_UNIT));
        let old = self.entry(SUMS_VOLUME, unit);
        let new = old.with_written(old.written() | bit);
        if new != old
            && old.is_mapped()
            && let Some(volume) = self.pool.volume_mut(SUMS_VOLUME)
        {
            volume.map.set(unit, new);
            self.journal.append(&Record::Map { volume: SUMS_VOLUME, unit, count: 1, entry: new });
        }
    }
}
