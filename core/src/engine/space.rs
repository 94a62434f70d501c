//! Units and chunks: handing out, taking back.
//!
//! A unit that a volume gave up is used again only when two things hold: the change of the map is on stable media (a
//! power cut would bring the old map back), and every request that was under way at that moment is answered (a slow
//! read may still be looking at it). For the second, requests belong to *epochs*: a new epoch begins when nobody is
//! left in the one before the present one, so whoever was there at epoch `e` is gone at `e + 2`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Engine, Slip};
use crate::ChunkType;
use crate::chunk::{Chunk, Column, REGION};
use crate::meta::journal::Lsn;
use crate::meta::record::Record;
use crate::pool::Pool;
use crate::queue::Owner;
use crate::regions::ROWS_CHUNKS_MAX;
use crate::request::{DeviceOp, Event, Output, RequestError};
use crate::units::{ChunkId, UNIT, VolumeId};
use crate::volume::{Entry, LEAF};

/// The widest chunk's record takes no more of the root than this many leaves take in pages.
const CHUNK_RECORD_LEAVES: u64 = 2;

#[derive(Clone, Default)]
pub(super) struct Space {
    epoch: u64,
    /// Requests under way in the present epoch and the one before.
    present: [u32; 2],
    retired: VecDeque<Retired>,
    /// Chunks with free units, by type: data, metadata.
    open: [Vec<ChunkId>; 2],
    /// Chunks that are being emptied, by type: what is free in them is for those who find no other place.
    shunned: [Vec<ChunkId>; 2],
    /// Writes that found no room while some was about to come free.
    pub(super) starved: Vec<u32>,
    /// Empty chunks whose space is being discarded: how many devices are not done yet.
    closing: Vec<(ChunkId, usize)>,
    /// Room came to be since the starved were asked.
    pub(super) room: bool,
}

#[derive(Clone)]
struct Retired {
    what: Place,
    epoch: u64,
    lsn: Lsn,
}

/// What comes free.
#[derive(Clone)]
enum Place {
    Unit(Entry),
    Extent(Column),
    /// A system chunk that no checkpoint refers to.
    System(ChunkId),
}

impl Space {
    pub(super) fn enter(&mut self) -> u64 {
        self.present[(self.epoch % 2) as usize] += 1;
        self.epoch
    }

    pub(super) fn leave(&mut self, epoch: u64) {
        self.present[(epoch % 2) as usize] -= 1;
    }

    fn turn(&mut self) {
        while self.retired.front().is_some_and(|r| self.epoch < r.epoch + 2)
            && self.present[((self.epoch + 1) % 2) as usize] == 0
        {
            self.epoch += 1;
        }
    }

    /// Something waits to come free.
    pub(super) fn is_waiting(&self) -> bool {
        !self.retired.is_empty() || !self.closing.is_empty()
    }

    /// Something that was given up before this record is not free yet.
    pub(super) fn holds_before(&self, lsn: Lsn) -> bool {
        self.retired.front().is_some_and(|r| r.lsn <= lsn) || !self.closing.is_empty()
    }

    /// Somebody may still look at a column that changed places, or at a system chunk that was left.
    pub(super) fn holds_extents(&self) -> bool {
        self.retired.iter().any(|r| !matches!(r.what, Place::Unit(_)))
    }

    /// Free units of chunks of a type that are there; with `any`, of those too where nothing is to stay.
    pub(super) fn free_units(&self, pool: &Pool, kind: ChunkType, any: bool) -> u64 {
        let (open, shunned) = (&self.open[kind as usize], &self.shunned[kind as usize]);
        let chunks = open.iter().chain(shunned.iter().filter(|_| any)).filter_map(|&id| pool.chunk(id));
        chunks.filter(|c| pool.chunk_available(c)).map(|c| u64::from(c.free_units())).sum()
    }

    /// What waits to come free waits for records to become stable.
    pub(super) fn waits_for(&self, stable: Lsn) -> bool {
        self.retired.front().is_some_and(|r| r.lsn > stable)
    }
}

impl Engine {
    pub(super) fn find_open_chunks(&mut self) {
        self.space.open.iter_mut().chain(&mut self.space.shunned).for_each(Vec::clear);
        let is_open = |c: &&Chunk| c.kind != ChunkType::System && !c.closing && (c.free_units() > 0 || c.shunned);
        for chunk in self.pool.chunks().filter(is_open) {
            let lists = if chunk.shunned { &mut self.space.shunned } else { &mut self.space.open };
            lists[chunk.kind as usize].push(chunk.id);
        }
    }

    /// Gives a unit of a volume a place; false when there is none.
    pub(super) fn reserve(&mut self, volume: VolumeId, unit: u64, kind: ChunkType) -> bool {
        let is_new = self.pool.volume(volume).is_some_and(|v| !v.map.has_leaf(unit));
        // What has no leaf yet must leave the reserve whole; everything else has its page already.
        if self.commit.is_closed() || is_new && !self.has_page_room() {
            return false;
        }
        let Some((chunk, place)) = self.find_place(volume, unit, kind) else { return false };
        self.take_page_room(u64::from(is_new));
        let Some(v) = self.pool.volume_mut(volume) else { return false };
        v.map.set(unit, Entry::new(chunk, place, 0));
        v.mapped_units[kind as usize] += 1;
        self.place_taken(volume, chunk, place);
        true
    }

    /// A place for a client's unit: better with fewer copies, or where nothing is to stay, than not at all.
    fn find_place(&mut self, volume: VolumeId, unit: u64, kind: ChunkType) -> Option<(ChunkId, u32)> {
        self.find_good_place(volume, unit, kind, false)
            .or_else(|| self.find_neighbour(volume, unit, kind, false, false))
            .or_else(|| self.take_from_open(kind, false, |chunk| chunk.take_any()))
            .or_else(|| self.take_from_shunned(kind))
            .or_else(|| {
                self.open_degraded_chunk(kind)?;
                self.take_from_open(kind, false, |chunk| chunk.take_any())
            })
    }

    /// Where nothing is to stay.
    pub(super) fn take_from_shunned(&mut self, kind: ChunkType) -> Option<(ChunkId, u32)> {
        let Engine { space, pool, .. } = self;
        space.shunned[kind as usize].iter().find_map(|&id| {
            pool.chunk(id).filter(|c| pool.chunk_available(c))?;
            Some((id, pool.chunk_mut(id)?.take_any()?))
        })
    }

    /// Next to its neighbours if possible, else at its own position in a free region, else anywhere: with all copies, and
    /// with `preferred` in no chunk that spills.
    pub(super) fn find_good_place(
        &mut self,
        volume: VolumeId,
        unit: u64,
        kind: ChunkType,
        preferred: bool,
    ) -> Option<(ChunkId, u32)> {
        if let Some(place) = self.find_neighbour(volume, unit, kind, true, preferred) {
            return Some(place);
        }
        let position = (unit % u64::from(REGION)) as u32;
        let may = |chunk: &Chunk| !(preferred && chunk.spilled);
        self.take_from_open(kind, true, |chunk| {
            let place = may(chunk).then(|| chunk.empty_region())?? + position;
            chunk.take(place).then_some(place)
        })
        .or_else(|| self.take_from_open(kind, true, |chunk| may(chunk).then(|| chunk.take_any())?))
        .or_else(|| {
            if preferred && self.pool.next_chunk(kind).is_none_or(|next| next.spilled) {
                return None;
            }
            self.open_chunk(kind)?;
            self.take_from_open(
                kind,
                true,
                |chunk| if chunk.take(position) { Some(position) } else { chunk.take_any() },
            )
        })
    }

    /// Next to its neighbours, with all copies if `whole` says so.
    fn find_neighbour(
        &mut self,
        volume: VolumeId,
        unit: u64,
        kind: ChunkType,
        whole: bool,
        preferred: bool,
    ) -> Option<(ChunkId, u32)> {
        let map = &self.pool.volume(volume)?.map;
        let (at, entry) = map.anchor(unit).or_else(|| {
            // The last unit of the leaf before: a sequential writer goes on right behind it.
            let before = (unit / LEAF as u64 * LEAF as u64).checked_sub(1)?;
            Some((before, map.get(before))).filter(|(_, e)| e.is_mapped())
        })?;
        let place = u32::try_from(i64::from(entry.unit()) + unit as i64 - at as i64).ok()?;
        let chunk = self.pool.chunk(entry.chunk()).filter(|c| c.kind == kind && !c.shunned)?;
        let is_there = match whole {
            true => chunk.columns.iter().all(|c| self.pool.is_online(c.device)),
            false => self.pool.chunk_available(chunk),
        };
        if !is_there || preferred && chunk.spilled {
            return None;
        }
        self.pool.chunk_mut(entry.chunk())?.take(place).then_some((entry.chunk(), place))
    }

    pub(super) fn take_from_open(
        &mut self,
        kind: ChunkType,
        whole: bool,
        mut take: impl FnMut(&mut crate::chunk::Chunk) -> Option<u32>,
    ) -> Option<(ChunkId, u32)> {
        let mut i = 0;
        while let Some(&id) = self.space.open[kind as usize].get(i) {
            let chunk = self.pool.chunk(id).expect("open chunks exist");
            if chunk.free_units() == 0 {
                self.space.open[kind as usize].remove(i);
                continue;
            }
            let all_there = chunk.columns.iter().all(|c| self.pool.is_online(c.device));
            if (all_there || (!whole && self.pool.chunk_available(chunk)))
                && let Some(place) = self.pool.chunk_mut(id).and_then(&mut take)
            {
                return Some((id, place));
            }
            i += 1;
        }
        None
    }

    /// Allocates a chunk; its record precedes every entry that refers to it in the log.
    pub(super) fn open_chunk(&mut self, kind: ChunkType) -> Option<ChunkId> {
        self.open_planned(kind, |pool| pool.next_chunk(kind))
    }

    /// One that has a column on a member that is not there, when no other is possible: what is written is noted for that
    /// one, and it gets it when it is back, or whoever replaces it.
    pub(super) fn open_degraded_chunk(&mut self, kind: ChunkType) -> Option<ChunkId> {
        self.open_planned(kind, |pool| pool.next_degraded_chunk(kind))
    }

    fn open_planned(&mut self, kind: ChunkType, plan: impl Fn(&mut Pool) -> Option<Chunk>) -> Option<ChunkId> {
        let mut chunk = plan(&mut self.pool)?;
        if kind != ChunkType::System {
            // Room to write it all down comes before the room itself.
            self.make_page_room(chunk.length);
            self.take_page_room(CHUNK_RECORD_LEAVES);
            chunk = plan(&mut self.pool)?;
        }
        let (id, bytes, spilled) = (chunk.id, chunk.length, chunk.spilled);
        let record = Record::ChunkAdd(Box::new(chunk));
        self.pool.apply(record.clone()).expect("a planned chunk fits");
        let has_rows = self.has_rows(id);
        let rows_fit = !has_rows || id.0 < ROWS_CHUNKS_MAX && self.make_ring();
        let is_fit = kind == ChunkType::System || rows_fit && self.reserve_sums(id);
        if !is_fit {
            // A chunk whose sums have no place is of no use.
            self.untry_chunk(id);
            return None;
        }
        self.journal.append(&record);
        self.outputs.push_back(Output::Event(Event::ChunkAllocated { chunk: id, kind, bytes }));
        if spilled {
            self.counters.spills += 1;
            self.outputs.push_back(Output::Event(Event::Spill { chunk: id, kind, bytes }));
        }
        if kind != ChunkType::System {
            self.space.open[kind as usize].push(id);
        }
        Some(id)
    }

    /// A chunk that was only tried leaves no trace: who finds no room asks often.
    pub(super) fn untry_chunk(&mut self, id: ChunkId) {
        self.pool.apply(Record::ChunkRemove(id)).expect("it was just added");
        if self.pool.next_chunk == id.0 + 1 {
            self.pool.next_chunk = id.0;
        }
    }

    /// A first write found no room: it waits if some is about to come free.
    ///
    /// While it waits it looks at no place, so it leaves its epoch: what it waits for may be waiting for that.
    pub(super) fn no_space(&mut self, id: u32, kind: ChunkType) {
        if self.commit.is_checkpointing() || self.space.is_waiting() || self.close_spare_chunks() {
            self.space.leave(self.requests[id].epoch);
            self.requests[id].waits_since = self.now;
            self.space.starved.push(id);
        } else {
            self.outputs.push_back(Output::Event(Event::NoSpace { kind }));
            self.requests[id].error = Some(RequestError::NoSpace);
            self.reply(id);
        }
    }

    /// What waits to come free, in words: for tests and for a developer's log.
    pub fn space_state(&self) -> alloc::string::String {
        let Space { epoch, present, retired, starved, closing, .. } = &self.space;
        let front = retired.front().map(|r| (r.epoch, r.lsn));
        let (stable, appended) = (self.journal.stable(), self.journal.appended());
        alloc::format!(
            "epoch {epoch}, present {present:?}, {} retired from {front:?}, {} starved, closing {closing:?}, stable \
             {stable} of {appended}, {} commands under way, {} ranges held; {}; {}; reserve counted {} times",
            retired.len(),
            starved.len(),
            self.ios.len(),
            self.locks.held_count(),
            self.commit.state(),
            self.rows_state(),
            self.commit.reserve_counts,
        )
    }

    pub(super) fn unstarve(&mut self, id: u32) {
        self.counters.space.add(self.now.since(self.requests[id].waits_since));
        self.requests[id].epoch = self.space.enter();
    }

    /// Volumes gave up these units; the records that take them off the maps are appended already.
    pub(super) fn retire_units(&mut self, entries: impl IntoIterator<Item = Entry>) {
        let (epoch, lsn) = (self.space.epoch, self.journal.appended());
        self.space.retired.extend(entries.into_iter().map(|entry| Retired { what: Place::Unit(entry), epoch, lsn }));
    }

    /// A chunk gave up this place of a column; the record that says so is appended already.
    pub(super) fn retire_extent(&mut self, column: Column) {
        let (epoch, lsn) = (self.space.epoch, self.journal.appended());
        self.space.retired.push_back(Retired { what: Place::Extent(column), epoch, lsn });
    }

    /// A checkpoint that counts left a system chunk: no record says so.
    pub(super) fn retire_system_chunk(&mut self, id: ChunkId) {
        let (epoch, lsn) = (self.space.epoch, self.journal.stable());
        self.space.retired.push_back(Retired { what: Place::System(id), epoch, lsn });
    }

    fn free_system_chunk(&mut self, id: ChunkId) {
        self.pool.apply(Record::ChunkRemove(id)).expect("a system chunk was there");
        self.outputs.push_back(Output::Event(Event::ChunkReleased { chunk: id }));
        self.space.room = true;
        self.note_room();
    }

    pub(super) fn free_extent(&mut self, Column { device, offset }: Column) {
        if let Some(device) = self.pool.device_mut(device) {
            device.used.remove(&offset);
        }
        self.pool.members_changed();
        self.space.room = true;
        self.note_room();
    }

    /// A unit leaves a volume's map.
    pub(super) fn uncount_unit(&mut self, volume: VolumeId, entry: Entry) {
        let kind = self.pool.chunk(entry.chunk()).map(|c| c.kind);
        if let (Some(kind), Some(v)) = (kind, self.pool.volume_mut(volume)) {
            v.mapped_units[kind as usize] -= 1;
        }
    }

    /// A request that changed a range goes: units at its ends that it left without any written block, and all that
    /// it reserved in vain, are given up unless somebody else is on the way there.
    pub(super) fn drop_reservations(&mut self, id: u32, all: bool) {
        let request = self.requests[id].request;
        let (start, end) = super::data::envelope(&request);
        let (first, end) = (start / UNIT, end.div_ceil(UNIT));
        let middle = if all { first + 1..end - 1 } else { first + 1..first + 1 };
        let mut given_up = Vec::new();
        for unit in [first, end - 1].into_iter().chain(middle) {
            let Some(v) = self.pool.volume_mut(request.volume) else { break };
            let entry = v.map.get(unit);
            let shared = || self.locks.overlaps_other(request.volume, unit * UNIT, (unit + 1) * UNIT, id);
            if entry.is_mapped() && entry.written() == 0 && !shared() {
                v.map.set(unit, Entry::NONE);
                self.uncount_unit(request.volume, entry);
                given_up.push(entry);
            }
        }
        self.retire_units(given_up);
    }

    /// Takes back what nobody can see any more.
    pub(super) fn reclaim(&mut self) {
        if !self.space.is_waiting() && self.space.starved.is_empty() {
            return;
        }
        let stable = self.journal.stable();
        let mut any = false;
        loop {
            self.space.turn();
            let epoch = self.space.epoch;
            let is_early = self.slips(Slip::UnitsReusedEarly);
            let is_free = |r: &Retired| (r.lsn <= stable || is_early) && epoch >= r.epoch + 2;
            if !self.space.retired.front().is_some_and(is_free) {
                break;
            }
            let entry = match self.space.retired.pop_front().expect("just seen").what {
                Place::Unit(entry) => entry,
                Place::Extent(column) => {
                    self.free_extent(column);
                    continue;
                }
                Place::System(id) => {
                    self.free_system_chunk(id);
                    continue;
                }
            };
            self.give_back(entry.chunk(), entry.unit());
            any = true;
        }
        if any {
            self.note_room();
            self.close_empty_chunks();
        }
        let nothing_to_wait_for = !self.space.is_waiting() && !self.commit.is_checkpointing();
        if any || core::mem::take(&mut self.space.room) || nothing_to_wait_for {
            for id in core::mem::take(&mut self.space.starved) {
                self.unstarve(id);
                self.start_data(id);
            }
        }
    }

    /// A unit that nobody can see may be taken again.
    pub(super) fn give_back(&mut self, chunk: ChunkId, unit: u32) {
        self.sums.place_given_back(chunk, unit);
        let chunk = self.pool.chunk_mut(chunk).expect("a chunk in use exists");
        // A full chunk leaves the list only when somebody looks for room in it; one that is emptied stays.
        let open = &mut self.space.open[chunk.kind as usize];
        if chunk.free_units() == 0 && !chunk.shunned && !open.contains(&chunk.id) {
            open.push(chunk.id);
        }
        chunk.give_back(unit);
    }

    /// Empty chunks go back to the devices, but one of each type stays for the next write: making chunks is work.
    pub(super) fn close_empty_chunks(&mut self) {
        self.close_chunks(1);
    }

    /// Somebody finds no room: no empty chunk stays. Says whether there was one.
    pub(super) fn close_spare_chunks(&mut self) -> bool {
        self.close_chunks(0);
        self.space.is_waiting()
    }

    /// Leaves so many empty chunks of each type. Their space is discarded first, so that no discard meets a new owner.
    fn close_chunks(&mut self, keep: usize) {
        self.close_shunned();
        for kind in 0..self.space.open.len() {
            let (mut i, mut kept) = (0, 0);
            while let Some(&id) = self.space.open[kind].get(i) {
                let is_spare = self.is_spare(id) && self.pool.chunk(id).is_some_and(|c| c.shift.is_none());
                if !is_spare || kept < keep || !self.let_sums_go(id) {
                    kept += usize::from(is_spare);
                    i += 1;
                    continue;
                }
                self.space.open[kind].remove(i);
                self.close_chunk(id);
            }
        }
    }

    /// Of those that are being emptied none stays.
    fn close_shunned(&mut self) {
        for kind in 0..self.space.shunned.len() {
            for id in core::mem::take(&mut self.space.shunned[kind]) {
                let is_spare = self.is_spare(id) && self.pool.chunk(id).is_some_and(|c| c.shift.is_none());
                match is_spare && self.let_sums_go(id) {
                    true => self.close_chunk(id),
                    false => self.space.shunned[kind].push(id),
                }
            }
        }
    }

    fn close_chunk(&mut self, id: ChunkId) {
        let chunk = self.pool.chunk_mut(id).expect("a chunk that closes exists");
        chunk.closing = true;
        let (columns, stripe) = (chunk.columns.clone(), chunk.stripe);
        let online: Vec<_> = columns.into_iter().filter(|c| self.pool.is_online(c.device)).collect();
        self.space.closing.push((id, online.len().max(1)));
        if online.is_empty() {
            self.chunk_discarded(id);
        }
        for column in online {
            let (device, offset) = (column.device, column.offset);
            self.issue_simple(Owner::Discard(id), device, DeviceOp::Discard, offset, stripe);
        }
    }

    pub(super) fn chunk_discarded(&mut self, id: ChunkId) {
        let at = self.space.closing.iter().position(|&(c, _)| c == id).expect("the chunk is closing");
        self.space.closing[at].1 -= 1;
        if self.space.closing[at].1 == 0 {
            self.space.closing.swap_remove(at);
            self.space.room = true;
            self.note_room();
            if self.pool.chunk(id).is_some_and(|c| c.shunned) {
                self.source_released();
            }
            self.journal.append(&Record::ChunkRemove(id));
            self.pool.apply(Record::ChunkRemove(id)).expect("the chunk was there");
            self.outputs.push_back(Output::Event(Event::ChunkReleased { chunk: id }));
        }
    }
}
