//! Pages in memory: loaded when somebody needs one, from all copies, and let go when room is needed.

use alloc::vec;
use alloc::vec::Vec;

use super::{Engine, Need, PAGE_TAG, PAGES_MIN, SUMS_VOLUME, Sums, home, locate, name_of};
use crate::chunk::Column;
use crate::engine::mend::COPIES_MAX;
use crate::profile::slice;
use crate::queue::{Io, Owner};
use crate::regions::{self, Region, UNITS};
use crate::request::{Copy, DeviceOp, Event, IoError, Output, PAGES_FIRST, PageWork};
use crate::sums::{PageName, SECTOR, SECTORS};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, BufId, BufRange, ChunkId, DeviceId, UNIT, VolumeId};
use crate::volume::Entry;

/// A page in memory, or on its way there.
#[derive(Clone)]
pub(super) struct Page {
    pub(super) chunk: ChunkId,
    pub(super) index: u32,
    pub(super) state: State,
    /// It has sums that its home does not have.
    pub(super) dirty: bool,
    /// It is to be written, or is.
    pub(super) writing: bool,
    /// Its home would not take it.
    pub(super) failed: bool,
    /// While it is dirty: when the first of those sums was put in, by the count of them.
    pub(super) since: u64,
    /// The same of what is on its way home.
    pub(super) leaving: Option<u64>,
    /// How many drains had ended when it became ready.
    ready_after: u64,
    /// Comings and goings of members when it was loaded.
    loaded: u64,
    /// Flushes that had begun when it was asked of its home; None when nothing was there.
    asked: Option<u64>,
    /// The same when it left.
    pub(super) roster: u64,
    /// Somebody used it since the hand passed.
    used: bool,
    waiters: Vec<Need>,
    /// It is in use at this moment, and stays.
    pub(super) pins: u32,
    /// Copies that have memory.
    made: u8,
    /// Commands under way.
    pub(super) pending: u32,
    pub(super) epoch: Option<u64>,
    /// Members that did not take it, while it is written.
    pub(super) missed: Vec<(DeviceId, IoError)>,
    /// Where its copies were read, and the sectors of each that are not whole.
    from: Vec<Column>,
    damaged: [u8; COPIES_MAX],
}

/// Where a page is kept.
pub(super) struct PageHome {
    /// Of its unit.
    pub(super) entry: Entry,
    /// It was written there.
    pub(super) is_written: bool,
    /// The block on each copy.
    pub(super) columns: Vec<Column>,
    /// The block in a column that is on its way: to be written, and not read.
    pub(super) beside: Option<Column>,
}

/// Number of the copy in such a column.
pub(in crate::engine) const BESIDE: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Copies are being read: which came back whole, which could not be read, and which are not there.
    Loading { here: u8, bad: u8, gone: u8 },
    /// The copies in memory are being looked at: which there are, whether one of them is to be put right, and the sectors that none
    /// has whole. Once that is known, those are asked for by themselves that are not alike.
    Checking { here: u8, heal: bool, lost: u8, is_told: bool },
    /// Its sums can be used.
    Ready,
}

/// Memory of a page; copy 0 is the page itself, the others are there while it is loaded, and copy 1 while it is written.
pub(in crate::engine) fn memory(slot: u32, copy: u32) -> BufId {
    BufId(PAGES_FIRST | copy << 28 | slot)
}

pub(super) fn whole(buf: BufId) -> BufRange {
    BufRange { buf, offset: 0, len: BLOCK as u32 }
}

impl Page {
    /// Nothing is under way for it.
    pub(super) fn is_at_rest(&self) -> bool {
        self.state == State::Ready && !self.writing && self.pins == 0
    }
}

impl Sums {
    /// The page, if it is in memory and can be used.
    pub(super) fn ready(&self, chunk: ChunkId, index: u32) -> Option<u32> {
        let slot = self.slot(chunk, index)?;
        (self.pages[slot].state == State::Ready).then_some(slot)
    }

    /// The same, if its memory says by now what it should: a page that became ready since the last drain may have been
    /// made, cleared or loaded by outputs that nobody carried out yet. What is to be put in since then may be missing.
    pub(super) fn settled(&self, chunk: ChunkId, index: u32) -> Option<u32> {
        let slot = self.slot(chunk, index)?;
        let page = &self.pages[slot];
        (page.state == State::Ready && page.ready_after != self.drains).then_some(slot)
    }

    /// Which page it is.
    pub(super) fn page(&self, slot: u32) -> (ChunkId, u32) {
        (self.pages[slot].chunk, self.pages[slot].index)
    }

    fn slot(&self, chunk: ChunkId, index: u32) -> Option<u32> {
        self.places.get(chunk.index())?.get(index as usize)?.checked_sub(1)
    }
}

impl Engine {
    /// Pages that may be in memory.
    fn pages_max(&self) -> usize {
        (self.pool.properties.checksum_cache / BLOCK).max(PAGES_MIN) as usize
    }

    /// Does what needs a page: now, when it is there.
    pub(in crate::engine) fn with_page(&mut self, chunk: ChunkId, index: u32, need: Need) {
        match self.sums.slot(chunk, index) {
            // It goes, or went: only a scrub may still ask.
            _ if self.pool.chunk(chunk).is_none_or(|c| c.closing) => self.refuse(need),
            Some(slot) if self.sums.pages[slot].state == State::Ready => {
                self.sums.pages[slot].used = true;
                self.serve(slot, need);
            }
            Some(slot) => self.sums.pages[slot].waiters.push(need),
            None if self.sums.line.is_empty() && self.make_room() => self.load(chunk, index, Some(need)),
            None => self.sums.line.push_back((chunk, index, need)),
        }
    }

    /// The same by the block of the volume of pages.
    pub(in crate::engine) fn with_page_at(&mut self, block: u64, need: Need) {
        let (chunk, index) = name_of(block);
        self.with_page(chunk, index, need);
    }

    /// Somebody will need the page soon: it is loaded meanwhile, if there is room.
    pub(super) fn fetch_page(&mut self, chunk: ChunkId, index: u32) {
        match self.sums.slot(chunk, index) {
            Some(slot) => self.sums.pages[slot].used = true,
            None if self.sums.line.is_empty() && self.make_room() => self.load(chunk, index, None),
            None => {}
        }
    }

    /// Whether a page more may be in memory; another one goes if it has to.
    fn make_room(&mut self) -> bool {
        while self.sums.pages.len() >= self.pages_max() {
            if !self.evict() {
                self.write_pages();
                // What cannot be written stays, and must not keep others out.
                let failed = |slot: &u32| self.sums.pages.get(*slot).is_some_and(|p| p.failed);
                let stuck = (0..self.sums.pages.ids_end()).filter(failed).count();
                return self.sums.pages.len() < self.pages_max() + stuck;
            }
        }
        true
    }

    /// Lets go of a page that nobody used for a while; false when there is none.
    fn evict(&mut self) -> bool {
        let end = self.sums.pages.ids_end();
        // Twice around: the first time takes the marks away.
        for _ in 0..2 * end {
            let slot = self.sums.hand;
            self.sums.hand = (slot + 1) % end;
            let Some(page) = self.sums.pages.get_mut(slot) else { continue };
            let is_idle = page.is_at_rest() && !page.dirty;
            if is_idle && !core::mem::take(&mut page.used) {
                self.forget_page(slot);
                return true;
            }
        }
        false
    }

    /// The page is not in memory any more.
    pub(super) fn forget_page(&mut self, slot: u32) {
        let page = self.sums.pages.remove(slot);
        self.sums.dirty -= u32::from(page.dirty);
        self.sums.failed -= u32::from(page.failed);
        self.sums.at_home = None;
        if let Some(places) = self.sums.places.get_mut(page.chunk.index()) {
            places[page.index as usize] = 0;
        }
        self.outputs.push_back(Output::Copy(Copy::Drop(memory(slot, 0))));
    }

    /// A unit in doubt was judged by the copies of its page that were there to be loaded. One on a member that was not may be a later one,
    /// which was on its way when the power went: it counts no more, or it would have its say against what was decided.
    pub(in crate::engine) fn pass_page_by_absent(&mut self, slot: u32) {
        let (at, roster) = (self.place_of_page(slot), self.sums.pages[slot].loaded);
        self.pass_by_absent(SUMS_VOLUME, at, at + BLOCK, roster);
    }

    /// The page stays until it is let go of.
    pub(in crate::engine) fn pin_page(&mut self, slot: u32) {
        self.sums.pages[slot].pins += 1;
    }

    /// It may go, as far as this user is concerned.
    pub(in crate::engine) fn unpin_page(&mut self, slot: u32) {
        self.sums.pages[slot].pins -= 1;
    }

    /// Room came to be: who waits for it goes on.
    pub(super) fn room_moved(&mut self) {
        while let Some((chunk, index, _)) = self.sums.line.front() {
            let (chunk, index) = (*chunk, *index);
            if self.pool.chunk(chunk).is_none_or(|c| c.closing) {
                let (_, _, need) = self.sums.line.pop_front().expect("just seen");
                self.refuse(need);
                continue;
            }
            if self.sums.slot(chunk, index).is_none() && !self.make_room() {
                return;
            }
            let (_, _, need) = self.sums.line.pop_front().expect("just seen");
            match self.sums.slot(chunk, index) {
                None => self.load(chunk, index, Some(need)),
                Some(slot) if self.sums.pages[slot].state == State::Ready => self.serve(slot, need),
                Some(slot) => self.sums.pages[slot].waiters.push(need),
            }
        }
    }

    /// Where a page is.
    pub(super) fn page_home(&self, chunk: ChunkId, index: u32) -> PageHome {
        let at = home(chunk, index);
        let entry = self.entry(SUMS_VOLUME, at / UNIT);
        let block = at / BLOCK % BLOCKS_PER_UNIT;
        let is_written = entry.written() >> block & 1 == 1;
        let Some(c) = self.pool.chunk(entry.chunk()).filter(|_| entry.is_mapped()) else {
            return PageHome { entry, is_written, columns: Vec::new(), beside: None };
        };
        let part = slice(c.profile, c.columns.len(), u64::from(entry.unit()) * UNIT + block * BLOCK, BLOCK);
        let within = |column: Column| Column { offset: column.offset + part.offset, ..column };
        let places = part.first..part.first + part.copies;
        let columns = c.columns[places.clone()].iter().map(|&c| within(c)).collect();
        let beside = c.shift.filter(|shift| places.contains(&shift.column)).map(|shift| within(shift.to));
        PageHome { entry, is_written, columns, beside }
    }

    pub(super) fn page_name(&self, slot: u32) -> PageName {
        let page = &self.sums.pages[slot];
        PageName { pool: self.pool.uuid, kind: self.sums.kind, chunk: page.chunk, index: page.index }
    }

    fn load(&mut self, chunk: ChunkId, index: u32, need: Option<Need>) {
        let PageHome { is_written, columns, .. } = self.page_home(chunk, index);
        let slot = self.sums.pages.insert(Page {
            chunk,
            index,
            state: State::Loading { here: 0, bad: 0, gone: 0 },
            dirty: false,
            writing: false,
            failed: false,
            since: 0,
            leaving: None,
            ready_after: 0,
            loaded: self.roster,
            asked: is_written.then(|| self.flushes()),
            roster: 0,
            used: true,
            waiters: need.into_iter().collect(),
            pins: 0,
            made: 0,
            pending: 0,
            epoch: None,
            missed: Vec::new(),
            from: Vec::new(),
            damaged: [0; COPIES_MAX],
        });
        self.note_place(chunk, index, slot);
        self.outputs.push_back(Output::Page(PageWork::New(memory(slot, 0))));
        if !is_written {
            // All of its sums are to come.
            return self.page_ready(slot);
        }
        let epoch = self.space.enter();
        self.sums.pages[slot].epoch = Some(epoch);
        // One more than there are, so that no answer ends it before all were asked.
        self.sums.pages[slot].pending = 1;
        self.sums.pages[slot].from.clone_from(&columns);
        for (copy, column) in columns.into_iter().enumerate() {
            let unit = home(chunk, index) / UNIT;
            if !self.pool.is_online(column.device) || self.pool.is_unit_stale(column.device, SUMS_VOLUME, unit) {
                self.page_copy_read(slot, copy, Err(IoError::Gone));
                continue;
            }
            if copy > 0 {
                self.outputs.push_back(Output::Page(PageWork::New(memory(slot, copy as u32))));
                self.sums.pages[slot].made |= 1 << copy;
            }
            self.sums.pages[slot].pending += 1;
            let io = Io::new(Owner::SumPage(slot), DeviceOp::Read, column.device, column.offset, BLOCK, self.now);
            self.issue(Io { buf: whole(memory(slot, copy as u32)), ..io });
        }
        self.page_io_over(slot);
    }

    fn note_place(&mut self, chunk: ChunkId, index: u32, slot: u32) {
        if self.sums.places.get(chunk.index()).is_none() {
            let length = self.pool.chunk(chunk).map_or(0, |c| c.length);
            self.sums.places.put(chunk.index(), vec![0; self.sums.kind.pages_for(length) as usize]);
        }
        let places = self.sums.places.get_mut(chunk.index()).expect("just made");
        places[index as usize] = slot + 1;
    }

    /// First byte of a page that is in memory, in the volume of pages.
    pub(in crate::engine) fn place_of_page(&self, slot: u32) -> u64 {
        let page = &self.sums.pages[slot];
        home(page.chunk, page.index)
    }

    /// One copy of a page came back, from a read or from a write.
    pub(in crate::engine) fn sum_page_done(&mut self, slot: u32, io: &Io, result: Result<(), IoError>) {
        match io.op {
            DeviceOp::Read => self.page_copy_read(slot, (io.buf.buf.0 >> 28 & 3) as usize, result),
            _ if io.set.copy == BESIDE && result.is_err() => self.shift_failed(io.set.chunk),
            _ if io.set.copy == BESIDE => {}
            _ => self.page_copy_written(slot, io.device, result),
        }
        self.page_io_over(slot);
    }

    fn page_copy_read(&mut self, slot: u32, copy: usize, result: Result<(), IoError>) {
        let State::Loading { here, bad, gone } = &mut self.sums.pages[slot].state else {
            unreachable!("a page that is not being loaded was read")
        };
        match result {
            Ok(()) => *here |= 1 << copy,
            Err(IoError::Gone) => *gone |= 1 << copy,
            Err(_) => *bad |= 1 << copy,
        }
    }

    pub(super) fn page_io_over(&mut self, slot: u32) {
        let page = &mut self.sums.pages[slot];
        page.pending -= 1;
        if page.pending > 0 {
            return;
        }
        if let Some(epoch) = page.epoch.take() {
            self.space.leave(epoch);
        }
        match self.sums.pages[slot].state {
            State::Loading { here, bad, gone } => self.look_at_page(slot, here, bad, gone),
            _ => self.page_written(slot),
        }
    }

    /// All copies that there are were read: of each sector the best one counts.
    fn look_at_page(&mut self, slot: u32, here: u8, bad: u8, gone: u8) {
        if here == 0 && bad == 0 && gone != 0 {
            let waiters = core::mem::take(&mut self.sums.pages[slot].waiters);
            self.drop_copies(slot);
            self.forget_page(slot);
            waiters.into_iter().for_each(|need| self.refuse(need));
            return self.room_moved();
        }
        self.sums.pages[slot].state = State::Checking { here, heal: bad != 0, lost: 0, is_told: false };
        let (page, name) = (memory(slot, 0), self.page_name(slot));
        if here & 1 == 0 {
            self.outputs.push_back(Output::Copy(Copy::Zero(whole(page))));
        }
        let others: Vec<u32> = (1..COPIES_MAX as u32).filter(|copy| here >> copy & 1 == 1).collect();
        self.sums.pages[slot].pending += others.len().max(1) as u32;
        if others.is_empty() {
            self.outputs.push_back(Output::Page(PageWork::Check { tag: page_tag(slot), page, other: None, name }));
        } else if here & 1 == 1 {
            // By itself first, since it gets what is better in the others.
            self.check_page_copy(slot, 0);
        }
        for copy in others {
            let other = Some(memory(slot, copy));
            self.outputs.push_back(Output::Page(PageWork::Check { tag: page_tag(slot), page, other, name }));
        }
    }

    /// Is this copy, by itself, whole?
    fn check_page_copy(&mut self, slot: u32, copy: u32) {
        let name = self.page_name(slot);
        self.sums.pages[slot].pending += 1;
        let (tag, page) = (page_tag(slot) | u64::from(copy + 1) << COPY_BIT, memory(slot, copy));
        self.outputs.push_back(Output::Page(PageWork::Check { tag, page, other: None, name }));
    }

    fn drop_copies(&mut self, slot: u32) {
        let made = core::mem::take(&mut self.sums.pages[slot].made);
        for copy in (1..COPIES_MAX as u32).filter(|copy| made >> copy & 1 == 1) {
            self.outputs.push_back(Output::Copy(Copy::Drop(memory(slot, copy))));
        }
    }

    /// What the host makes of a page that was read: of all copies, or of one.
    pub(super) fn page_checked(&mut self, tag: u64, answer: u16) {
        let (slot, copy) = (tag as u32, (tag >> COPY_BIT & 7).checked_sub(1));
        let page = &mut self.sums.pages[slot];
        let State::Checking { heal, lost, .. } = &mut page.state else { unreachable!("nobody asked about the page") };
        match copy {
            None => {
                *heal |= answer >> 8 != 0;
                *lost = answer as u8;
            }
            Some(copy) => self.sums.pages[slot].damaged[copy as usize] = answer as u8,
        }
        let page = &mut self.sums.pages[slot];
        page.pending -= 1;
        if page.pending > 0 {
            return;
        }
        let State::Checking { here, heal, lost, is_told } = &mut page.state else { unreachable!("it was just seen") };
        let others: Vec<u32> = (1..COPIES_MAX as u32).filter(|copy| *here >> copy & 1 == 1).collect();
        // Which of them is damaged, and which only older? Whoever is alike is neither.
        if *heal && !core::mem::replace(is_told, true) && !others.is_empty() {
            return others.into_iter().for_each(|copy| self.check_page_copy(slot, copy));
        }
        if others.is_empty() && *here & 1 == 1 {
            page.damaged[0] = *lost;
        }
        let (heal, lost, chunk, index) = (*heal, *lost, page.chunk, page.index);
        self.drop_copies(slot);
        self.tell_damaged_page(slot, lost);
        for sector in (0..SECTORS).filter(|sector| lost >> sector & 1 == 1) {
            let (offset, len) = (sector * SECTOR as u32, SECTOR as u32);
            self.outputs.push_back(Output::Copy(Copy::Zero(BufRange { buf: memory(slot, 0), offset, len })));
        }
        if lost != 0 {
            let sectors = lost.count_ones();
            self.outputs.push_back(Output::Event(Event::SumsLost { chunk, page: index, sectors }));
        }
        if heal {
            self.dirty_page(slot);
        }
        self.page_ready(slot);
    }

    /// Copies of a page with sectors that are not what was written there are counted, and told where another copy has them. A
    /// power cut leaves none: a sector is old or new.
    fn tell_damaged_page(&mut self, slot: u32, lost: u8) {
        let page = &mut self.sums.pages[slot];
        let (damaged, from) = (core::mem::take(&mut page.damaged), core::mem::take(&mut page.from));
        for (damaged, Column { device, offset }) in damaged.into_iter().zip(from).filter(|(damaged, _)| *damaged != 0) {
            self.count_wrong(device, 1);
            if let Some(first) = (0..SECTORS).find(|sector| (damaged & !lost) >> sector & 1 == 1) {
                let len = u64::from((damaged & !lost).count_ones()) * SECTOR as u64;
                let device_offset = offset + u64::from(first) * SECTOR as u64;
                self.outputs.push_back(Output::Event(Event::BadRecord { device, device_offset, len }));
            }
        }
    }

    fn page_ready(&mut self, slot: u32) {
        let drains = self.sums.drains;
        let page = &mut self.sums.pages[slot];
        (page.state, page.pins, page.ready_after) = (State::Ready, page.pins + 1, drains);
        for need in core::mem::take(&mut page.waiters) {
            self.serve(slot, need);
        }
        self.sums.pages[slot].pins -= 1;
        self.room_moved();
    }

    /// What these regions of pages got since the last flush is gone, on all copies: what is in memory goes home again, and until it is
    /// there no region is cleaned.
    pub(in crate::engine) fn soil_pages(&mut self, lost: &[Region]) {
        for slot in 0..self.sums.pages.ids_end() {
            let Some(page) = self.sums.pages.get(slot) else { continue };
            if page.state == State::Ready && lost.contains(&region_of_page(page.chunk, page.index)) {
                self.dirty_page(slot);
                (self.sums.pages[slot].since, self.sums.at_home) = (0, None);
            }
        }
    }

    /// Of what is gone and not in memory content is taken as it is found, as after a crash. In memory may also be what was read from
    /// a home that had lost it: `since` is the first flush that may not have covered it.
    pub(in crate::engine) fn doubt_without_pages(&mut self, lost: &[Region], since: u64) {
        let is_known = |chunk, index| {
            let page = self.sums.slot(chunk, index).map(|slot| &self.sums.pages[slot]);
            page.is_some_and(|p| p.state == State::Ready && p.asked.is_none_or(|asked| asked < since))
        };
        let marked = self.pool.intent.iter().filter(|(volume, _)| self.is_summed(*volume));
        let units =
            marked.flat_map(|(volume, region)| (region * UNITS..(region + 1) * UNITS).map(move |u| (volume, u)));
        let is_forgotten = |&(volume, unit): &(VolumeId, u64)| {
            let entry = self.entry(volume, unit);
            let (index, _) = locate(self.sums.kind, u64::from(entry.unit()) * UNIT);
            entry.written() != 0
                && lost.contains(&region_of_page(entry.chunk(), index))
                && !is_known(entry.chunk(), index)
        };
        let forgotten: Vec<_> = units.filter(is_forgotten).collect();
        forgotten.into_iter().for_each(|(volume, unit)| self.doubt_unit(volume, unit));
    }

    /// The page says more than its home.
    pub(super) fn dirty_page(&mut self, slot: u32) {
        self.sums.changes += 1;
        let page = &mut self.sums.pages[slot];
        if !core::mem::replace(&mut page.dirty, true) {
            (page.since, self.sums.at_home) = (self.sums.changes, None);
            self.sums.dirty += 1;
            // Half of the room stays for pages that can go at once.
            if self.sums.dirty as usize * 2 > self.pages_max() {
                self.write_pages();
            }
        }
    }
}

/// The region of the volume of pages that a page's home is in.
fn region_of_page(chunk: ChunkId, index: u32) -> Region {
    regions::of_unit(SUMS_VOLUME, home(chunk, index) / UNIT)
}

/// Where a tag says which copy alone it is about, plus one.
const COPY_BIT: u32 = 32;

fn page_tag(slot: u32) -> u64 {
    PAGE_TAG | u64::from(slot)
}
