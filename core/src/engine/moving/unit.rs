//! A unit on its way.
//!
//! ```text
//!   read  from any copy, written to all copies of the new place     without the lock: clients go on
//!   settle  a flush covers the copy
//!   lock  did nobody change it meanwhile? else once more, now under the lock and in the class of a client
//!   sum   its checksums join those of its new neighbours
//!   log   one record; the lock is held until it is written, so that no answered change is lost with the process
//! ```

use alloc::vec;
use alloc::vec::Vec;

use super::{Engine, Home, TOKENS};
use crate::chunk::Column;
use crate::engine::Slip;
use crate::engine::mend::runs;
use crate::engine::rows::{Writer, is_journal};
use crate::engine::scrub::range;
use crate::engine::sums::page_on_its_way;
use crate::job::{TOLD_MAX, Task};
use crate::meta::record::Record;
use crate::profile::slice;
use crate::queue::class::Class;
use crate::queue::{CopySet, Io, Owner};
use crate::request::{Copy, DeviceOp, Event, IoError, Output};
use crate::units::{BLOCK, BufId, BufRange, ChunkId, DeviceId, UNIT, VolumeId};
use crate::volume::{Entry, INTERNAL};

/// See the module.
#[derive(Clone)]
pub(super) struct Move {
    pub(super) volume: VolumeId,
    /// Unit of the volume.
    pub(super) at: u64,
    pub(super) from: (ChunkId, u32),
    pub(super) to: Target,
    /// Blocks that are copied.
    pub(super) mask: u16,
    pub(super) buf: Option<BufId>,
    /// Of [`super::super::space`], while it looks at places.
    epoch: Option<u64>,
    pub(super) pending: u32,
    step: Step,
    pub(super) is_locked: bool,
    /// Somebody changed it since it was read.
    pub(super) is_stale: bool,
    /// Blocks that could not be read from any copy.
    pub(super) lost: u16,
    /// Of some of them somebody was not asked who may have it.
    pub(super) is_unsure: bool,
    pub(super) missed: Vec<(DeviceId, IoError)>,
    /// Of a unit of pages: those that are held in memory, by block.
    pub(super) pages: Vec<(u64, u32)>,
    /// Comings and goings of members when it was read.
    pub(super) read_roster: u64,
    /// The same, and losses, when it was written.
    pub(super) roster: u64,
    pub(super) losses: u64,
}

/// Where a unit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To another unit, which the map will name.
    Unit(ChunkId, u32),
    /// Into the column of its chunk that is on its way: written under the lock, as clients write there too.
    Column,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read,
    Write,
    /// The copy is there; a flush is to cover it.
    Settle,
    /// Waits for the lock.
    Lock,
    Log,
}

/// What became of a unit that was to move.
pub(super) enum Begun {
    Moves,
    /// It is not there any more.
    Elsewhere,
    NoRoom,
}

/// Pages of checksums are moved out of memory; the stripe journal is not.
fn is_of_pages(volume: VolumeId, unit: u64) -> bool {
    volume == INTERNAL && !is_journal(unit)
}

impl Engine {
    /// The unit of a chunk goes to a better place, if it still belongs to whom the table says.
    pub(super) fn begin_move(&mut self, chunk: ChunkId, unit: u32, home: Home) -> Begun {
        let Some((volume, at)) = home.get() else { return Begun::Elsewhere };
        if let Some(begun) = self.goes_by_itself(volume, at, (chunk, unit)) {
            return begun;
        }
        let entry = self.entry(volume, at);
        if (entry.chunk(), entry.unit()) != (chunk, unit)
            || entry.written() == 0
            || self.moving.lost.contains(&(chunk, unit))
            // On its way already, for a job that was canceled just now: it goes again with the next pass.
            || self.moving.loose.contains_key(&(volume, at))
        {
            return Begun::Elsewhere;
        }
        if self.is_starved_still() {
            return Begun::NoRoom;
        }
        let Some(kind) = self.pool.chunk(chunk).map(|c| c.kind) else { return Begun::Elsewhere };
        let is_return = self.pool.job.as_ref().is_some_and(|job| job.task == Task::Return);
        let Some(to) = self.find_good_place(volume, at, kind, is_return) else { return Begun::NoRoom };
        self.moving.starved = None;
        self.place_taken(volume, to.0, to.1);
        self.start_move(volume, at, (chunk, unit), Target::Unit(to.0, to.1));
        Begun::Moves
    }

    pub(super) fn start_move(&mut self, volume: VolumeId, at: u64, from: (ChunkId, u32), to: Target) {
        let id = self.moving.moves.insert(Move {
            volume,
            at,
            from,
            to,
            mask: 0,
            buf: None,
            epoch: None,
            pending: 0,
            step: Step::Read,
            is_locked: false,
            is_stale: false,
            lost: 0,
            is_unsure: false,
            missed: Vec::new(),
            pages: Vec::new(),
            read_roster: 0,
            roster: 0,
            losses: 0,
        });
        // Who is changing it now may have begun before anybody listens.
        let is_busy = self.locks.overlaps_other(volume, at * UNIT, (at + 1) * UNIT, TOKENS | id);
        match is_busy || volume == INTERNAL {
            true => {
                self.moving.moves[id].is_stale = true;
                self.lock_move(id);
            }
            false => {
                self.moving.loose.insert((volume, at), id);
                self.read_move(id);
            }
        }
    }

    /// All written blocks into memory.
    fn read_move(&mut self, id: u32) {
        let Move { volume, at, from: (chunk, unit), epoch, buf, .. } = self.moving.moves[id];
        let mask = self.entry(volume, at).written();
        let epoch = epoch.unwrap_or_else(|| self.space.enter());
        // Pages have memory of their own.
        let buf = if is_of_pages(volume, at) { None } else { buf.or_else(|| Some(self.scratch_of(UNIT))) };
        let c = self.pool.chunk(chunk).expect("a unit is in a chunk");
        // A unit never crosses a strip.
        let part = slice(c.profile, c.columns.len(), u64::from(unit) * UNIT, UNIT);
        let m = &mut self.moving.moves[id];
        (m.mask, m.epoch, m.buf, m.step) = (mask, Some(epoch), buf, Step::Read);
        (m.is_stale, m.lost, m.is_unsure, m.read_roster) = (false, 0, false, self.roster);
        // Held up until all are asked for.
        m.pending = 1;
        let Some(buf) = buf else {
            self.read_move_pages(id);
            return self.count_move_down(id);
        };
        for (first, count) in runs(mask) {
            let offset = part.offset + first * BLOCK;
            let set = CopySet { chunk, first: part.first as u16, copy: 0, tried: 0, offset };
            self.read_run(id, set, range(buf, first * BLOCK, count * BLOCK));
        }
        self.count_move_down(id);
    }

    /// Reads a run of blocks from a copy that was not tried; of what no copy could give whole every block by itself.
    pub(super) fn read_run(&mut self, id: u32, set: CopySet, buf: BufRange) {
        let chunk = self.pool.chunk(set.chunk).expect("a unit is in a chunk");
        let (copies, kind) = (chunk.profile.facts().copies, chunk.kind);
        let columns = &chunk.columns[set.first as usize..][..copies];
        // Neighbours take turns among the copies, a stretch of 1 MiB each.
        let turn = (self.moving.moves[id].from.1 / 16) as usize;
        let mut copy = (0..copies).map(|i| (i + turn) % copies);
        let Move { volume, at, .. } = self.moving.moves[id];
        let (home, unit) = self.unit_of_piece(&set, volume, at * UNIT);
        let is_good = |device| self.pool.is_online(device) && !self.pool.is_unit_stale(device, home, unit);
        let copy = copy.find(|&i| set.tried >> i & 1 == 0 && is_good(columns[i].device));
        let len = u64::from(buf.len);
        let Some(copy) = copy else {
            if self.reconstruct_move(id, set, buf) {
                return;
            }
            if len == BLOCK || set.tried == 0 {
                return self.note_unreadable_move(id, &set, buf);
            }
            for at in (0..len).step_by(BLOCK as usize) {
                let set = CopySet { tried: 0, offset: set.offset + at, ..set };
                self.read_run(id, set, range(buf.buf, u64::from(buf.offset) + at, BLOCK));
            }
            return;
        };
        let Column { device, offset } = columns[copy];
        let set = CopySet { copy: copy as u8, tried: set.tried | 1 << copy, ..set };
        let io = Io::new(Owner::Move(id), DeviceOp::Read, device, offset + set.offset, len, self.now);
        self.issue_move(id, Io { buf, set, kind, ..io });
    }

    fn issue_move(&mut self, id: u32, io: Io) {
        let m = &mut self.moving.moves[id];
        m.pending += 1;
        // Under the lock a client may wait for it.
        let class = match (m.is_locked, io.op) {
            (false, _) if m.to == Target::Column => Class::Rebuild,
            (false, _) => io.class,
            (true, DeviceOp::Read) => Class::SyncRead,
            (true, _) => Class::SyncWrite,
        };
        self.issue(Io { class, charged: class, ..io });
    }

    pub(in crate::engine) fn move_io_done(&mut self, id: u32, io: Io, result: Result<(), IoError>) {
        match (io.op, result) {
            (DeviceOp::Read, Ok(())) if self.is_summed(self.moving.moves[id].volume) => return self.verify(io),
            (_, Ok(())) => {}
            (DeviceOp::Read, Err(error)) => {
                self.moving.moves[id].is_unsure |= error != IoError::Media;
                self.read_run(id, io.set, io.buf);
            }
            (_, Err(error)) => self.moving.moves[id].missed.push((io.device, error)),
        }
        self.count_move_down(id);
    }

    /// Volume and unit that a move is about.
    pub(in crate::engine) fn unit_of_move(&self, id: u32) -> (VolumeId, u64) {
        let Move { volume, at, .. } = self.moving.moves[id];
        (volume, at)
    }

    pub(in crate::engine) fn count_move_down(&mut self, id: u32) {
        let m = &mut self.moving.moves[id];
        m.pending -= 1;
        if m.pending > 0 {
            return;
        }
        match m.step {
            Step::Read => self.move_read(id),
            Step::Write => self.move_written(id),
            Step::Settle | Step::Lock | Step::Log => unreachable!("nothing is under way in {:?}", m.step),
        }
    }

    /// All that can be had is in memory.
    fn move_read(&mut self, id: u32) {
        let Move { to, is_locked, lost, .. } = self.moving.moves[id];
        if !is_locked && (to == Target::Column || lost != 0 && self.heir().is_some()) {
            // What cannot be read may just be written over.
            self.moving.moves[id].is_stale |= lost != 0;
            return self.lock_move(id);
        }
        if lost != 0 && !self.give_up_unreadable(id) {
            return self.lose_move(id);
        }
        match to {
            _ if lost == 0 || self.moving.moves[id].mask != 0 => self.write_move(id),
            // Nothing is left of it.
            Target::Column => self.end_copy(id, true),
            Target::Unit(..) => self.drop_move(id),
        }
    }

    /// To all copies of the new place.
    fn write_move(&mut self, id: u32) {
        let m = &mut self.moving.moves[id];
        (m.step, m.pending) = (Step::Write, 1);
        (m.roster, m.losses) = (self.roster, self.moving.losses);
        m.missed.clear();
        if self.slips(Slip::MapBeforeCopy) {
            return self.count_move_down(id);
        }
        let m = &mut self.moving.moves[id];
        let (chunk, unit) = if let Target::Unit(chunk, unit) = m.to { (chunk, unit) } else { m.from };
        let is_new = m.to != Target::Column;
        let c = self.pool.chunk(chunk).expect("its place is in a chunk");
        let part = slice(c.profile, c.columns.len(), u64::from(unit) * UNIT, UNIT);
        let columns = match c.shift.filter(|_| !is_new) {
            Some(shift) => vec![shift.to],
            None => c.columns[part.first..][..part.copies].to_vec(),
        };
        let (kind, pieces, has_rows) = (c.kind, self.pieces_to_write(id), c.rows() > 0);
        let fua = is_new && self.moving.moves[id].is_locked && !self.slips(Slip::CopyNotFlushed);
        if has_rows && is_new {
            for (block, buf) in pieces {
                self.hold_move(id);
                let byte = u64::from(unit) * UNIT + block * BLOCK;
                self.write_row(Writer::Move(id), chunk, byte, buf.len.into(), Some(buf));
            }
            return self.count_move_down(id);
        }
        for (copy, column) in columns.into_iter().enumerate() {
            for &(block, buf) in &pieces {
                let offset = part.offset + block * BLOCK;
                if !self.pool.is_online(column.device) {
                    self.moving.moves[id].missed.push((column.device, IoError::Gone));
                    continue;
                }
                let set = CopySet { chunk, first: part.first as u16, copy: copy as u8, tried: 0, offset };
                let (op, len) = (DeviceOp::Write { fua }, u64::from(buf.len));
                let io = Io::new(Owner::Move(id), op, column.device, column.offset + offset, len, self.now);
                self.issue_move(id, Io { buf, set, kind, ..io });
            }
        }
        self.count_move_down(id);
    }

    pub(in crate::engine) fn volume_of_move(&self, id: u32) -> VolumeId {
        self.moving.moves[id].volume
    }

    /// Something more is under way for it.
    pub(in crate::engine) fn hold_move(&mut self, id: u32) {
        self.moving.moves[id].pending += 1;
    }

    /// A part of it is in its row, or not.
    pub(in crate::engine) fn move_row_written(&mut self, id: u32, error: Option<IoError>) {
        self.moving.moves[id].missed.extend(error.map(|error| (DeviceId(0), error)));
        self.count_move_down(id);
    }

    /// What there is to write: first block, and where it is in memory.
    fn pieces_to_write(&self, id: u32) -> Vec<(u64, BufRange)> {
        let m = &self.moving.moves[id];
        if is_of_pages(m.volume, m.at) {
            return m.pages.iter().map(|&(block, slot)| (block, page_on_its_way(slot))).collect();
        }
        let buf = m.buf.expect("it was read");
        runs(m.mask).map(|(first, count)| (first, range(buf, first * BLOCK, count * BLOCK))).collect()
    }

    /// The copies are there, or not: that is judged when the map is to name them.
    fn move_written(&mut self, id: u32) {
        let m = &self.moving.moves[id];
        if m.to == Target::Column {
            return self.end_copy(id, m.missed.is_empty());
        }
        if self.commit.is_dead() {
            return self.fail_move(id);
        }
        if let Some(epoch) = self.moving.moves[id].epoch.take() {
            self.space.leave(epoch);
        }
        match self.moving.moves[id].is_locked {
            true => self.sum_move(id),
            false => {
                self.moving.moves[id].step = Step::Settle;
                self.settle_move(id);
            }
        }
    }

    /// It is in the column that is on its way, or not.
    fn end_copy(&mut self, id: u32, fine: bool) {
        let Move { volume, at, .. } = self.moving.moves[id];
        match fine && !self.commit.is_dead() {
            true => {
                self.note_unflushed(volume, at * UNIT, (at + 1) * UNIT);
                self.column_copied();
                self.count_shifted(1);
            }
            false => self.shift_failed(self.moving.moves[id].from.0),
        }
        self.end_move(id);
    }

    pub(super) fn lock_move(&mut self, id: u32) {
        let m = &mut self.moving.moves[id];
        m.step = Step::Lock;
        let (volume, at) = (m.volume, m.at);
        if self.locks.acquire(volume, at * UNIT, (at + 1) * UNIT, TOKENS | id) {
            self.move_granted(TOKENS | id);
        }
    }

    /// The unit is ours.
    pub(in crate::engine) fn move_granted(&mut self, token: u32) {
        let id = token & !TOKENS;
        let m = &mut self.moving.moves[id];
        m.is_locked = true;
        let (volume, at, from, to, is_stale) = (m.volume, m.at, m.from, m.to, m.is_stale);
        self.moving.loose.remove(&(volume, at));
        let entry = self.entry(volume, at);
        if self.resync.is_left(volume, at) {
            // It is mended first.
            self.copy_again(volume, at * UNIT, (at + 1) * UNIT);
            return self.drop_move(id);
        }
        match (entry.chunk(), entry.unit()) == from && entry.written() != 0 {
            false => self.drop_move(id),
            true if is_stale => self.read_move(id),
            true if to == Target::Column => self.write_move(id),
            true => self.sum_move(id),
        }
    }

    /// The map follows. A power cut before the record is stable finds the unit where it was, untouched.
    pub(super) fn log_move(&mut self, id: u32) {
        let Move { volume, at, from, to, .. } = self.moving.moves[id];
        let old = self.entry(volume, at);
        // A volume may go at any time, and with it what is read without a lock.
        if (old.chunk(), old.unit()) != from || self.commit.is_dead() {
            return self.drop_move(id);
        }
        let Target::Unit(chunk, unit) = to else { return self.drop_move(id) };
        let entry = Entry::new(chunk, unit, old.written());
        if !self.name_place(id, old, entry) {
            return self.fail_move(id);
        }
        if !self.is_summed(volume) {
            // Not any more, maybe.
            self.place_unsummed(chunk, unit);
        }
        let lsn = self.journal.append(&Record::Map { volume, unit: at, count: 1, entry });
        self.retire_units([old]);
        if volume == INTERNAL && is_journal(at) {
            self.ring_moved(lsn);
        }
        self.moving.moves[id].step = Step::Log;
        self.moving.logged.push_back((lsn, id));
        self.moving.pass.moved += 1;
        self.count_moved(1);
    }

    pub(super) fn count_moved(&mut self, units: u64) {
        let now = self.now;
        if let Some(job) = self.job_mut() {
            job.done = job.done.saturating_add(units * UNIT);
            let done = job.done;
            self.moving.meter.note(now, done);
        }
    }

    /// Ends moves whose record is in the log; says whether there was any.
    pub(super) fn finish_logged(&mut self) -> bool {
        let mut any = false;
        while let Some(&(lsn, id)) = self.moving.logged.front()
            && (lsn < self.journal.written() || self.commit.is_dead())
        {
            self.moving.logged.pop_front();
            self.end_move(id);
            any = true;
        }
        if any && self.moving.meter.is_save_due(self.now) && self.is_moving() {
            self.save_job();
        }
        any
    }

    /// Some block cannot be read: the unit stays where it is, whatever else of it could be moved.
    fn lose_move(&mut self, id: u32) {
        let Move { volume, at, from, to, is_stale, is_locked, .. } = self.moving.moves[id];
        if to == Target::Column {
            // Whoever moves it by itself tells.
            self.shift_unreadable(from.0);
            return self.end_copy(id, false);
        }
        if is_stale && !is_locked {
            // It may have been written over meanwhile.
            return self.fail_move(id);
        }
        self.moving.lost.insert(from);
        let lost = self.moving.lost.len() as u64;
        if let Some(job) = self.job_mut() {
            job.lost = lost;
        }
        if lost <= TOLD_MAX {
            let name = self.pool.volume(volume).map(|v| v.name.clone()).unwrap_or_default();
            self.outputs.push_back(Output::Event(Event::MoveLost { volume, name, offset: at * UNIT, len: UNIT }));
        }
        self.drop_move(id);
    }

    /// It goes again with the next pass.
    pub(in crate::engine) fn fail_move(&mut self, id: u32) {
        self.moving.pass.failed += 1;
        self.drop_move(id);
    }

    /// The new place is not needed after all.
    fn drop_move(&mut self, id: u32) {
        if let Target::Unit(chunk, unit) = self.moving.moves[id].to {
            self.retire_units([Entry::new(chunk, unit, 0)]);
        }
        self.end_move(id);
    }

    fn end_move(&mut self, id: u32) {
        let Move { volume, at, to, buf, epoch, is_locked, pages, .. } = self.moving.moves.remove(id);
        self.moving.loose.remove(&(volume, at));
        if let Target::Unit(chunk, unit) = to {
            self.sums.lags_no_more(chunk, unit, Writer::Move(id));
        }
        pages.into_iter().for_each(|(_, slot)| self.let_page_go(slot));
        if let Some(buf) = buf {
            self.outputs.push_back(Output::Copy(Copy::Drop(buf)));
        }
        if let Some(epoch) = epoch {
            self.space.leave(epoch);
        }
        if is_locked {
            self.unlock(volume, at * UNIT, (at + 1) * UNIT, TOKENS | id);
        }
    }
}
