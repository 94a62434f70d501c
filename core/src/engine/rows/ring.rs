//! The stripe journal at work: changes of live rows, in full and on stable media before they go in place.
//!
//! ```text
//!   works that wait --> a group: checksums of their blocks --> its place free? --> written, forced --> in place, each by itself
//!                                                                  '- a group there counts until what it is about is flushed
//! ```
//!
//! One group is on its way at a time; what comes meanwhile goes together in the next, so that many small changes share one
//! forced write. While it is on its way the one before it stays: else a power cut could leave an older one, which the end of the
//! ring was too short for them to cover, as the last that is whole. Where that cannot be, an empty group goes between them. Before a row that is in a group that could be read back is filled anew, the journal says that all it has of
//! that row is void: else an opening would bring back what it was before.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::change::Piece;
use super::work::Step;
use super::{ALL, Engine, Lanes, RowId};
use crate::ChunkType;
use crate::chunk::Column;
use crate::engine::sums::{BESIDE, SUMS_VOLUME};
use crate::engine::{Slip, Waiter};
use crate::meta::Bytes;
use crate::meta::journal::Lsn;
use crate::meta::ring::{ENTRIES_MAX, Entry, Head};
use crate::profile::slice;
use crate::queue::{CopySet, Io, Owner};
use crate::regions::{ROWS, Units, row_unit};
use crate::request::{DeviceOp, IoError, Output};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, BufRange, DeviceId, UNIT};

/// The token of the range lock for the place of a group: below those of pages, above those of requests.
pub(in crate::engine) const TOKEN: u32 = (1 << 29) - 1;

#[derive(Clone, Default)]
pub(super) struct Ring {
    /// 0 while there is none.
    pub(super) blocks: u64,
    /// Number and first block of the next group.
    seq: u64,
    head: u64,
    /// Works whose change is ready to be written down.
    waiting: VecDeque<u32>,
    group: Option<Group>,
    /// Groups that could be read back, oldest first.
    held: VecDeque<Held>,
    /// The last group that each row is in.
    rows: BTreeMap<RowId, u64>,
    /// This record says where it is, or a part of it; it has to be stable before something is written there.
    pub(super) moved: Option<Lsn>,
    /// A flush was asked for.
    has_asked: bool,
    /// Flushes of lower number are over.
    flushed: u64,
}

/// On its way.
#[derive(Clone)]
struct Group {
    first: u64,
    blocks: u64,
    works: Vec<u32>,
    entries: Vec<Entry>,
    payload: Vec<BufRange>,
    /// Questions, or commands, under way.
    pending: u32,
    missed: Vec<(DeviceId, IoError)>,
    roster: u64,
    epoch: Option<u64>,
    /// It has its place, and waits until the record that says where that is now is stable.
    waits: bool,
}

/// Written.
#[derive(Clone)]
struct Held {
    seq: u64,
    first: u64,
    blocks: u64,
    rows: Vec<RowId>,
    /// Changes that are not in place yet.
    left: u32,
    /// A flush of a higher number covers all of it.
    flush: u64,
}

impl Held {
    fn overlaps(&self, first: u64, blocks: u64) -> bool {
        self.first < first + blocks && first < self.first + self.blocks
    }
}

impl Ring {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.group.is_none()
    }

    /// For whoever looks for what does not go on.
    pub(super) fn state(&self) -> alloc::string::String {
        let Ring { blocks, head, waiting, group, held, moved, has_asked, flushed, .. } = self;
        let (waiting, group) = (waiting.len(), group.as_ref().map(|group| group.pending));
        let oldest = held.front().map(|held| (held.left, held.flush));
        alloc::format!(
            "{waiting} wait for the journal of {blocks} blocks at {head}, group {group:?}, oldest {oldest:?} of {}, flushed \
             {flushed}, asked {has_asked}, moved {moved:?}",
            held.len()
        )
    }

    pub(super) fn holds(&self, row: RowId) -> bool {
        self.rows.contains_key(&row)
    }

    /// Most blocks of one change.
    pub(super) fn entry_max(&self) -> u64 {
        (self.blocks / 2).saturating_sub(1)
    }

    /// A flush is over: groups that it covers may be written over.
    pub(super) fn flush_ended(&mut self, number: u64) {
        self.flushed = self.flushed.max(number);
    }

    /// Where the next group begins, of so many blocks.
    fn place_for(&self, blocks: u64) -> u64 {
        if self.head + blocks <= self.blocks { self.head } else { 0 }
    }

    /// A group at this place would be written over the one before it.
    fn is_over_last(&self, first: u64, blocks: u64) -> bool {
        self.held.back().is_some_and(|last| last.overlaps(first, blocks))
    }

    /// Groups that count no more once one is written here: those that stand there, and all that are older.
    fn in_the_way(&self, first: u64, blocks: u64) -> impl Iterator<Item = &Held> {
        let last = self.held.iter().filter(|held| held.overlaps(first, blocks)).map(|h| h.seq).max();
        self.held.iter().take_while(move |h| last.is_some_and(|last| h.seq <= last))
    }
}

impl Engine {
    /// The change of a work is ready.
    pub(super) fn journal_change(&mut self, id: u32) {
        self.rows.works[id].step = Step::Journal;
        if self.slips(Slip::RowNotJournaled) {
            return self.write_change(id);
        }
        self.rows.ring.waiting.push_back(id);
    }

    /// Begins the next group if that is possible; says whether something happened.
    pub(super) fn drive_ring(&mut self) -> bool {
        let waits = self.rows.ring.group.as_ref().map(|group| group.waits);
        if waits == Some(false) || waits.is_none() && self.rows.ring.waiting.is_empty() || self.commit.is_opening() {
            return false;
        }
        if self.commit.is_dead() || self.rows.ring.blocks == 0 {
            self.give_up_ring();
            return true;
        }
        if self.is_place_unsaid() {
            return self.ask_for_flush();
        }
        if waits.is_some() {
            self.write_group();
            return true;
        }
        let (mut works, mut blocks) = self.next_works();
        let ring = &self.rows.ring;
        let mut first = ring.place_for(blocks);
        if ring.is_over_last(first, blocks) && !self.slips(Slip::LastGroupOverwritten) {
            (works, blocks, first) = (Vec::new(), 1, ring.place_for(1));
        }
        if ring.in_the_way(first, blocks).any(|held| held.left > 0) {
            return false;
        }
        if ring.in_the_way(first, blocks).any(|held| held.flush >= ring.flushed) && !self.slips(Slip::RingReusedEarly) {
            return self.ask_for_flush();
        }
        self.rows.ring.waiting.drain(..works.len());
        self.begin_group(first, blocks, works);
        true
    }

    /// A power cut would bring back an older place of the ring, or of a part of it.
    fn is_place_unsaid(&self) -> bool {
        let is_unstable = |lsn| lsn >= self.journal.stable();
        self.rows.ring.moved.is_some_and(is_unstable) && !self.slips(Slip::JournalPlaceUnsaid)
    }

    fn ask_for_flush(&mut self) -> bool {
        let is_new = !core::mem::replace(&mut self.rows.ring.has_asked, true);
        if is_new {
            self.join_flush(Waiter::Ring);
        }
        is_new
    }

    /// The flush that the journal asked for is over, or failed.
    pub(in crate::engine) fn ring_flushed(&mut self, fine: bool) {
        self.rows.ring.has_asked = false;
        if !fine {
            self.give_up_ring();
        }
    }

    /// A flush is over on all members that count.
    pub(in crate::engine) fn ring_covered(&mut self, number: u64) {
        self.rows.ring.flush_ended(number);
    }

    /// As many of those that wait as one group takes, and its blocks.
    fn next_works(&self) -> (Vec<u32>, u64) {
        let (mut blocks, mut bytes, mut works) = (1, 0, Vec::new());
        for &id in &self.rows.ring.waiting {
            let pieces = self.journaled_pieces(id);
            let more = pieces.iter().map(|piece| piece.count).sum::<u64>();
            let head = Entry::len(self.rows.works[id].members.len());
            let fits = blocks + more <= self.rows.ring.blocks / 2 && bytes + head <= ENTRIES_MAX;
            if !fits && !works.is_empty() {
                break;
            }
            (blocks, bytes) = (blocks + more, bytes + head);
            works.push(id);
        }
        (works, blocks)
    }

    /// What is written down of a change: all of it, or nothing, where the row begins anew.
    fn journaled_pieces(&self, id: u32) -> Vec<Piece> {
        match self.is_new(self.rows.works[id].row) {
            true => Vec::new(),
            false => self.all_pieces(id),
        }
    }

    fn begin_group(&mut self, first: u64, blocks: u64, works: Vec<u32>) {
        let (mut entries, mut payload) = (Vec::new(), Vec::new());
        let pending = works.len() as u32;
        let mut questions = Vec::new();
        for (i, &id) in works.iter().enumerate() {
            let mut pieces = self.journaled_pieces(id);
            pieces.sort_unstable_by_key(|piece| (piece.member, piece.first));
            let mut members: Vec<(u8, Lanes)> = Vec::new();
            let mut data = Vec::new();
            for piece in pieces {
                let (member, lanes) = (piece.member, piece.lanes());
                match members.last_mut().filter(|(last, _)| usize::from(*last) == member) {
                    Some((_, all)) => *all |= lanes,
                    None => members.push((member as u8, lanes)),
                }
                data.push(piece.buf.unwrap_or_else(|| super::work::part_of(self.zeros(id), 0, piece.count)));
            }
            payload.extend(data.iter().copied());
            let (chunk, row) = self.rows.works[id].row;
            entries.push(Entry { chunk, row, members, crc: 0 });
            questions.push((i as u64, data));
        }
        let (missed, roster) = (Vec::new(), self.roster);
        let group =
            Group { first, blocks, works, entries, payload, pending, missed, roster, epoch: None, waits: false };
        self.rows.ring.group = Some(group);
        for (tag, data) in questions {
            self.outputs.push_back(Output::Digest { tag, data });
        }
        self.group_digested();
    }

    /// The checksum of an entry's blocks.
    pub(in crate::engine) fn digested(&mut self, tag: u64, crc: u32) {
        let group = self.rows.ring.group.as_mut().expect("a group asked for it");
        group.entries[tag as usize].crc = crc;
        group.pending -= 1;
        self.group_digested();
    }

    /// All checksums are known, or not yet.
    fn group_digested(&mut self) {
        let group = self.rows.ring.group.as_ref().expect("just begun");
        if group.pending == 0 {
            let (start, end) = (group.first * BLOCK, (group.first + group.blocks) * BLOCK);
            if self.locks.acquire(SUMS_VOLUME, start, end, TOKEN) {
                self.write_group();
            }
        }
    }

    /// Its place is ours: to all copies. While it waited for that, a part of the ring may have moved.
    pub(in crate::engine) fn write_group(&mut self) {
        let is_unsaid = self.is_place_unsaid();
        self.rows.ring.group.as_mut().expect("it waited for its lock").waits = is_unsaid;
        if is_unsaid {
            return;
        }
        let epoch = self.space.enter();
        let (pool, run, seq) = (self.pool.uuid, self.commit.epoch(), self.rows.ring.seq);
        let roster = self.roster;
        let group = self.rows.ring.group.as_mut().expect("it waited for its lock");
        (group.epoch, group.pending, group.roster) = (Some(epoch), 1, roster);
        let head = Bytes::new(Head { pool, epoch: run, seq, entries: group.entries.clone() }.encode());
        let (mut at, payload) = (group.first, group.payload.clone());
        self.write_ring(at, 1, |io| Io { record: Some(head.clone()), ..io });
        at += 1;
        for buf in payload {
            let (mut done, all) = (0, u64::from(buf.len) / BLOCK);
            while done < all {
                let count = (BLOCKS_PER_UNIT - at % BLOCKS_PER_UNIT).min(all - done);
                let part = super::work::part_of(buf, done, count);
                self.write_ring(at, count, |io| Io { buf: part, ..io });
                (at, done) = (at + count, done + count);
            }
        }
        self.ring_io_over();
    }

    /// So many blocks of one unit of the ring, to all copies and beside them.
    fn write_ring(&mut self, at: u64, count: u64, fill: impl Fn(Io) -> Io) {
        let entry = self.entry(SUMS_VOLUME, at / BLOCKS_PER_UNIT);
        let c = self.pool.chunk(entry.chunk()).expect("the ring has its place");
        let byte = u64::from(entry.unit()) * UNIT + at % BLOCKS_PER_UNIT * BLOCK;
        let part = slice(c.profile, c.columns.len(), byte, count * BLOCK);
        let places = part.first..part.first + part.copies;
        let beside = c.shift.filter(|shift| places.contains(&shift.column)).map(|shift| (shift.to, BESIDE));
        let columns: Vec<(Column, u8)> = c.columns[places].iter().map(|&c| (c, 0)).chain(beside).collect();
        let (chunk, is_forced) = (c.id, !self.slips(Slip::JournalNotForced));
        for (column, copy) in columns {
            if !self.pool.is_online(column.device) {
                if copy == BESIDE {
                    self.shift_failed(chunk);
                } else if let Some(group) = &mut self.rows.ring.group {
                    group.missed.push((column.device, IoError::Gone));
                }
                continue;
            }
            if let Some(group) = &mut self.rows.ring.group {
                group.pending += 1;
            }
            let (op, set) = (DeviceOp::Write { fua: is_forced }, CopySet { chunk, copy, ..CopySet::default() });
            let io = Io::new(Owner::Ring, op, column.device, column.offset + part.offset, count * BLOCK, self.now);
            self.issue(fill(Io { set, kind: ChunkType::Metadata, ..io }));
        }
    }

    /// One command of the group is over.
    pub(in crate::engine) fn ring_io_done(&mut self, io: &Io, result: Result<(), IoError>) {
        if let Err(error) = result {
            match io.set.copy {
                BESIDE => self.shift_failed(io.set.chunk),
                _ => self.rows.ring.group.as_mut().expect("it is on its way").missed.push((io.device, error)),
            }
        }
        self.ring_io_over();
    }

    fn ring_io_over(&mut self) {
        let group = self.rows.ring.group.as_mut().expect("it is on its way");
        group.pending -= 1;
        if group.pending > 0 {
            return;
        }
        let Group { first, blocks, works, entries, missed, roster, epoch, .. } =
            self.rows.ring.group.take().expect("just seen");
        if let Some(epoch) = epoch {
            self.space.leave(epoch);
        }
        let (start, end) = (first * BLOCK, (first + blocks) * BLOCK);
        let mut is_there = true;
        for (device, error) in missed {
            is_there &= self.miss(device, SUMS_VOLUME, (start, end), error);
        }
        is_there &= self.pass_by_absent(SUMS_VOLUME, start, end, roster);
        if !is_there {
            // As with the log: without it nothing can be promised.
            self.commit.kill();
        } else {
            self.hold_group(first, blocks, &works, entries);
        }
        self.unlock(SUMS_VOLUME, start, end, TOKEN);
        for id in works {
            match is_there {
                false => {
                    self.note_torn(id);
                    self.fail_work(id);
                }
                true if self.commit.failure_lsn > self.journal.written() => {
                    self.rows.noted.push_back((self.commit.failure_lsn - 1, id));
                }
                true => self.write_change(id),
            }
        }
    }

    /// The group counts from now on, and those it was written over don't.
    fn hold_group(&mut self, first: u64, blocks: u64, works: &[u32], entries: Vec<Entry>) {
        let ring = &mut self.rows.ring;
        let seq = ring.seq;
        for _ in 0..ring.in_the_way(first, blocks).count() {
            let held = ring.held.pop_front().expect("just counted");
            for row in held.rows {
                if ring.rows.get(&row) == Some(&held.seq) {
                    ring.rows.remove(&row);
                }
            }
        }
        let mut rows = Vec::new();
        for Entry { chunk, row, members, .. } in entries {
            let row = (chunk, row);
            rows.push(row);
            match members.is_empty() {
                true => ring.rows.remove(&row),
                false => ring.rows.insert(row, seq),
            };
        }
        // One that is empty waits for no flush.
        let flush = if works.is_empty() { 0 } else { u64::MAX };
        ring.held.push_back(Held { seq, first, blocks, rows, left: works.len() as u32, flush });
        (ring.seq, ring.head) = (seq + 1, first + blocks);
        works.iter().for_each(|&id| self.rows.works[id].group = Some(seq));
    }

    /// A change is in place, as far as it will be.
    pub(super) fn change_in_place(&mut self, id: u32) {
        let Some(seq) = self.rows.works[id].group else { return };
        let flush = self.flushes();
        let held = &mut self.rows.ring.held;
        let first = held.front().expect("it is not in place yet").seq;
        let held = &mut held[(seq - first) as usize];
        debug_assert!(held.rows.contains(&self.rows.works[id].row));
        held.left -= 1;
        held.flush = flush;
    }

    /// A member that is needed may have lost what it got of rows in these regions since the last flush. What of them is in the
    /// journal and was flushed nowhere is neither old nor new: the next opening puts it in place, if nothing more is written.
    pub(in crate::engine) fn tear_rows(&mut self, lost: &Units) {
        let ring = &self.rows.ring;
        let unsettled = ring.held.iter().filter(|held| held.left > 0 || held.flush >= ring.flushed);
        let is_lost = |&(chunk, row): &RowId| lost.contains(ROWS, row_unit(chunk, row));
        let torn: Vec<RowId> = unsettled.flat_map(|held| held.rows.iter().copied()).filter(is_lost).collect();
        for row in torn {
            // Nothing may be made of this row, nor read of it.
            let data = self.pool.chunk(row.0).map_or(0, |chunk| chunk.row_units() as usize);
            self.rows.torn.insert(row, alloc::vec![ALL; data]);
            self.commit.kill();
        }
    }

    /// What waits for the journal hears that nothing will be written.
    pub(super) fn give_up_ring(&mut self) {
        let mut all: Vec<u32> = core::mem::take(&mut self.rows.ring.waiting).into();
        if let Some(Group { first, blocks, works, .. }) = self.rows.ring.group.take_if(|group| group.waits) {
            all.splice(0..0, works);
            self.unlock(SUMS_VOLUME, first * BLOCK, (first + blocks) * BLOCK, TOKEN);
        }
        for id in all {
            self.fail_work(id);
        }
    }
}
