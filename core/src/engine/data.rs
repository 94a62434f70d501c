//! Reads, writes, and what a client can do to space.

use alloc::vec::Vec;

use super::intent::written_parts;
use super::rows::Writer;
use super::{Active, Engine, Phase, Slip, Waiter};
use crate::chunk::{Chunk, Column};
use crate::control::VolumeClass;
use crate::meta::journal::Lsn;
use crate::meta::record::Record;
use crate::profile::slice;
use crate::queue::{CopySet, Io, Owner};
use crate::read_policy::stream::Place;
use crate::read_policy::{Ask, Candidate, Verdict};
use crate::request::{Content, Copy, DeviceOp, IoError, NO_BUF, Op, Output, Request, RequestError};
use crate::units::{BLOCK, BLOCKS_PER_UNIT, BufId, BufRange, ChunkId, DeviceId, UNIT, VolumeId, round_down, round_up};
use crate::volume::{ALL_BLOCKS, Entry, Extent, block_mask};
use crate::{ChunkType, DeviceState};

/// Most copies of anything: raid1c4.
const COPIES_MAX: usize = 4;

/// The upper half of [`CopySet::tried`]: copies that must not be read at all.
const BARRED: usize = COPIES_MAX;
const ALL_BARRED: u8 = 0xf << BARRED;

/// The whole blocks that a request touches.
pub(super) fn envelope(request: &Request) -> (u64, u64) {
    (round_down(request.offset, BLOCK), round_up(request.offset + request.len, BLOCK))
}

/// The whole blocks within a request: empty when it covers none.
pub(super) fn interior(request: &Request) -> (u64, u64) {
    let start = round_up(request.offset, BLOCK);
    (start, round_down(request.offset + request.len, BLOCK).max(start))
}

/// First bytes of the blocks that a request covers in part.
pub(super) fn edges(request: &Request) -> [Option<u64>; 2] {
    let end = request.offset + request.len;
    let (first, last) = (round_down(request.offset, BLOCK), round_down(end, BLOCK));
    let head = (first != request.offset).then_some(first);
    let tail = (last != end && (last != first || head.is_none())).then_some(last);
    [head, tail]
}

/// A contiguous piece of a chunk.
#[derive(Clone, Copy)]
struct Stretch {
    chunk: ChunkId,
    /// First byte in the chunk.
    offset: u64,
    len: u64,
    /// First byte in the volume.
    at: u64,
}

fn range(buf: BufId, offset: u64, len: u64) -> BufRange {
    BufRange { buf, offset: offset as u32, len: len as u32 }
}

impl Engine {
    // ---- reads ----------------------------------------------------------------------------------------------------

    pub(super) fn start_read(&mut self, id: u32) {
        let request = self.requests[id].request;
        let (start, end) = envelope(&request);
        if self.waits_for_mend(id, start, end) {
            return;
        }
        let mut at = start;
        let mut hole = true;
        while at < end {
            let Some(volume) = self.pool.volume(request.volume) else {
                // It went while the read waited for a mend.
                self.requests[id].error = Some(RequestError::NoVolume);
                hole = false;
                break;
            };
            let (until, is_unread) = self.unread_until(request.volume, at, end);
            let extent = volume.map.first(at, self.read_until(request.volume, at, until) - at);
            let len = extent.len();
            let buf = range(request.buf, at - start, len);
            match extent {
                Extent::Hole { .. } => self.outputs.push_back(Output::Copy(Copy::Zero(buf))),
                Extent::Lost { .. } if self.slips(Slip::LostIsHole) => {
                    self.outputs.push_back(Output::Copy(Copy::Zero(buf)))
                }
                Extent::Lost { .. } => {
                    hole = false;
                    self.requests[id].error = Some(RequestError::Io);
                }
                Extent::Mapped { chunk, offset, .. } => {
                    hole = false;
                    if is_unread {
                        // It may be over at once.
                        self.requests[id].pending += 1;
                        self.read_by_mend(id, Owner::Read(id), buf);
                        self.requests[id].pending -= 1;
                    } else {
                        self.read_extent(id, Owner::Read(id), chunk, offset, buf, at);
                    }
                }
            }
            at += len;
        }
        let active = &mut self.requests[id];
        active.hole = hole;
        if active.pending == 0 {
            self.reply(id);
        } else if active.trouble.is_some() {
            self.rest_on_mends(id);
        }
    }

    /// Reads one contiguous piece of a chunk, which is at `at` of the volume: a mirror is chosen per strip where there are
    /// strips, else once.
    fn read_extent(&mut self, id: u32, owner: Owner, chunk: ChunkId, offset: u64, buf: BufRange, at: u64) {
        let volume = self.requests[id].request.volume;
        let is_summed = self.is_summed(volume);
        let mut done = 0;
        while done < u64::from(buf.len) {
            let c = self.pool.chunk(chunk).expect("maps refer to chunks that exist");
            let piece = slice(c.profile, c.columns.len(), offset + done, u64::from(buf.len) - done);
            self.counters.translations += 1;
            if self.is_torn(chunk, offset + done, piece.len) {
                self.requests[id].error = Some(RequestError::Io);
                done += piece.len;
                continue;
            }
            if is_summed {
                self.fetch_sums(chunk, offset + done, piece.len);
            }
            let c = self.pool.chunk(chunk).expect("maps refer to chunks that exist");
            let set = CopySet { chunk, first: piece.first as u16, copy: 0, tried: 0, offset: piece.offset };
            let columns = &c.columns[piece.first..piece.first + piece.copies];
            let barred = self.barred(columns, || self.unit_of_piece(&set, volume, at));
            let set = CopySet { tried: barred << BARRED, ..set };
            let buf = range(buf.buf, u64::from(buf.offset) + done, piece.len);
            let is_made = barred == 0 && self.avoids(&set) && self.reconstruct_read(id, owner, set, buf);
            if !is_made && !self.read_copy(id, owner, set, buf) && !self.reconstruct_read(id, owner, set, buf) {
                self.requests[id].error = Some(RequestError::Io);
            }
            done += piece.len;
        }
    }

    /// Lets the policy choose among the copies not tried yet; false when there is none.
    pub(super) fn read_copy(&mut self, id: u32, owner: Owner, mut set: CopySet, buf: BufRange) -> bool {
        let only_first = self.is_without_mends();
        set.tried |= self.barred_by_now(id, owner, &set, buf) << BARRED;
        let Engine { pool, selector, views, .. } = self;
        let chunk = pool.chunk(set.chunk).expect("maps refer to chunks that exist");
        let (copies, kind) = (chunk.profile.facts().copies, chunk.kind);
        let columns = &chunk.columns[set.first as usize..set.first as usize + copies];
        let nobody = Candidate { index: 0, device: DeviceId(0), offset: 0, verdict: Verdict::Missing };
        let mut candidates = [nobody; COPIES_MAX];
        let mut has_first = false;
        for (i, (candidate, column)) in candidates.iter_mut().zip(columns).enumerate() {
            let verdict = match pool.device(column.device).map(|d| d.state) {
                _ if set.tried >> i & 1 == 1 => Verdict::AlreadyTried,
                Some(DeviceState::Failed) => Verdict::Failed,
                Some(DeviceState::Missing) | None => Verdict::Missing,
                _ if set.tried >> (i + BARRED) & 1 == 1 => Verdict::Stale,
                // What a mend would choose.
                Some(_) if only_first && has_first => Verdict::Stale,
                Some(_) => Verdict::Eligible,
            };
            has_first |= verdict == Verdict::Eligible;
            let offset = column.offset + set.offset;
            *candidate = Candidate { index: i, device: column.device, offset, verdict };
        }
        let ask = Ask { client: self.requests[id].request.client, offset: set.offset };
        let place = Place { chunk: set.chunk, first: set.first, offset: set.offset };
        let run = (place, buf.len.into());
        let Some(choice) = selector.choose_in_stream(self.now, &ask, run, &candidates[..copies], views) else {
            return false;
        };
        let column = columns[choice.index];
        set.copy = choice.index as u8;
        set.tried |= 1 << choice.index;
        if let Some(device) = self.pool.device_mut(column.device) {
            device.counters.chosen += 1;
        }
        self.requests[id].pending += 1;
        let Request { volume, no_merge, .. } = self.requests[id].request;
        let summed = self.is_summed(volume);
        let (offset, len) = (column.offset + set.offset, u64::from(buf.len));
        let io = Io::new(owner, DeviceOp::Read, column.device, offset, len, self.now);
        self.issue(Io { buf, set, kind, no_merge, summed, ..io });
        true
    }

    /// Copies that must not be read: some may have missed a write since the read began.
    fn barred_by_now(&self, id: u32, owner: Owner, set: &CopySet, buf: BufRange) -> u8 {
        if self.pool.stale.is_empty() {
            return 0;
        }
        let (volume, start, end) = self.place_of_read(id, owner, buf);
        let chunk = self.pool.chunk(set.chunk).expect("maps refer to chunks that exist");
        let first = set.first as usize;
        let columns = &chunk.columns[first..first + chunk.profile.facts().copies];
        let barred = |unit| self.barred(columns, || self.unit_of_piece(set, volume, unit * UNIT));
        (start / UNIT..end.div_ceil(UNIT)).fold(0, |bits, unit| bits | barred(unit))
    }

    /// A copy could not be read: the request gets another lap, with that copy crossed out.
    ///
    /// When that was the last of several copies, it may be another block that each of them cannot read: halves are asked
    /// for anew from all, down to single blocks. They wait until everything else came back and then go one by one, the
    /// later only if the earlier was well: what is lost on all copies costs a failing command, and a drive's recovery
    /// of seconds, on each level of halving and not for each block.
    pub(super) fn read_elsewhere(&mut self, id: u32, io: Io) {
        self.counters.retries += 1;
        let Io { owner, set, buf, .. } = io;
        if self.read_copy(id, owner, set, buf) || self.reconstruct_read(id, owner, set, buf) {
            // Another copy is on its way.
        } else if io.summed || self.requests[id].trouble.as_ref().is_some_and(|trouble| trouble.is_in_question) {
            self.read_by_mend(id, owner, buf);
        } else {
            let len = u64::from(buf.len);
            let half = round_up(len / 2, BLOCK);
            let (tried, barred) = (set.tried & !ALL_BARRED, set.tried & ALL_BARRED);
            let worth = tried.count_ones() > 1 && half < len && self.requests[id].error.is_none();
            if !worth {
                self.requests[id].error = Some(RequestError::Io);
                // Which blocks these are is found block by block and under the lock, for the list of what is lost. A large read
                // of the only copy is many units: those are left to a scrub.
                let (volume, start, end) = self.place_of_read(id, owner, buf);
                if self.pool.is_online(io.device) && len <= UNIT && !self.is_known_lost(volume, start, end) {
                    self.want_mend(id, &io);
                }
            } else {
                for (at, len) in [(half, len - half), (0, half)] {
                    let set = CopySet { copy: 0, tried: barred, offset: set.offset + at, ..set };
                    let buf = range(buf.buf, u64::from(buf.offset) + at, len);
                    self.requests[id].trouble.get_or_insert_default().doubtful.push((owner, set, buf));
                }
            }
        }
        self.count_down(id);
    }

    /// Asks for the next part of a read that no copy could give whole; false when there is none, or no hope left.
    pub(super) fn read_doubtful(&mut self, id: u32) -> bool {
        while let Some(trouble) = &mut self.requests[id].trouble
            && let Some((owner, set, buf)) = trouble.doubtful.pop()
        {
            if self.requests[id].error.is_some() {
                continue;
            }
            if self.read_copy(id, owner, set, buf) || self.reconstruct_read(id, owner, set, buf) {
                return true;
            }
            self.requests[id].error = Some(RequestError::Io);
        }
        false
    }

    // ---- changes --------------------------------------------------------------------------------------------------

    /// The range is ours: reads what an unaligned request covers in part, then goes on.
    pub(super) fn start_change(&mut self, id: u32) {
        let Active { request, phase, .. } = &mut self.requests[id];
        let request = *request;
        *phase = Phase::Edges;
        if self.pool.volume(request.volume).is_none() {
            self.requests[id].error = Some(RequestError::NoVolume);
            return self.reply(id);
        }
        let (start, end) = envelope(&request);
        self.moving.note_change(request.volume, start, end);
        if request.op != Op::Discard {
            for (i, block) in edges(&request).into_iter().enumerate() {
                let Some(block) = block else { continue };
                self.start_edge(id, i, block);
            }
        }
        if self.requests[id].pending == 0 {
            self.phase_done(id);
        }
    }

    fn start_edge(&mut self, id: u32, i: usize, block: u64) {
        let request = self.requests[id].request;
        let volume = self.pool.volume(request.volume).expect("looked up before");
        match volume.map.first(block, BLOCK) {
            Extent::Mapped { chunk, offset, .. } => {
                let scratch = self.scratch();
                self.requests[id].scratch[i] = Some(scratch);
                self.read_extent(id, Owner::Edge(id), chunk, offset, range(scratch, 0, BLOCK), block);
            }
            // Zeros surround what is written into a hole.
            Extent::Hole { .. } if request.buf != NO_BUF => {
                for rest in around(&request, block) {
                    self.outputs.push_back(Output::Copy(Copy::Zero(rest)));
                }
            }
            Extent::Hole { .. } => {}
            Extent::Lost { .. } => self.requests[id].error = Some(RequestError::Io),
        }
    }

    /// All I/Os of a phase came back.
    pub(super) fn phase_done(&mut self, id: u32) {
        let Active { request, phase, error, .. } = &self.requests[id];
        match (*phase, request.op) {
            (Phase::Data, Op::Read) => self.reply(id),
            (Phase::Edges, _) if error.is_some() => self.reply(id),
            (Phase::Edges, _) => self.start_data(id),
            (Phase::Data, _) => self.copies_done(id),
            (Phase::Sums, _) => self.data_done(id),
            (phase, op) => unreachable!("{op:?} waits for no I/O in phase {phase:?}"),
        }
    }

    pub(super) fn start_data(&mut self, id: u32) {
        self.requests[id].phase = Phase::Data;
        let request = self.requests[id].request;
        if self.pool.volume(request.volume).is_none() {
            self.requests[id].error = Some(RequestError::NoVolume);
            return self.reply(id);
        }
        // Its answer is known. On disk it would leave copies unlike that nobody may make alike any more.
        if self.commit.is_dead() {
            self.requests[id].error = Some(RequestError::Io);
            return self.reply(id);
        }
        if !self.intend(id) {
            return;
        }
        match request.op {
            Op::Write { fua } => {
                for (i, block) in edges(&request).into_iter().enumerate() {
                    let (Some(block), Some(scratch)) = (block, self.requests[id].scratch[i]) else { continue };
                    for to in around(&request, block) {
                        let at = (u64::from(to.offset)) % BLOCK;
                        let from = range(scratch, at, u64::from(to.len));
                        self.outputs.push_back(Output::Copy(Copy::Move { from, to }));
                    }
                }
                let (start, end) = envelope(&request);
                if !self.place(id, start, end) {
                    return;
                }
                self.start_write(id, start, end, Some(range(request.buf, 0, end - start)), fua);
            }
            Op::WriteZeroes { no_hole, fua } => {
                let (start, end) = interior(&request);
                if no_hole && start < end && !self.place(id, start, end) {
                    return;
                }
                for (i, block) in edges(&request).into_iter().enumerate() {
                    let (Some(block), Some(scratch)) = (block, self.requests[id].scratch[i]) else { continue };
                    let from = request.offset.max(block) - block;
                    let to = (request.offset + request.len).min(block + BLOCK) - block;
                    self.outputs.push_back(Output::Copy(Copy::Zero(range(scratch, from, to - from))));
                    let volume = self.pool.volume(request.volume).expect("looked up before");
                    if let Extent::Mapped { chunk, offset, .. } = volume.map.first(block, BLOCK) {
                        let buf = range(scratch, 0, BLOCK);
                        let stretch = Stretch { chunk, offset, len: BLOCK, at: block };
                        self.write_extent(id, Owner::Edge(id), DeviceOp::Write { fua: false }, stretch, Some(buf));
                    }
                }
                if no_hole && start < end {
                    return self.start_write(id, start, end, None, fua);
                }
                self.finish_start(id);
            }
            Op::Discard => self.finish_start(id),
            Op::Read | Op::Flush => unreachable!("{:?} changes nothing", request.op),
        }
    }

    fn finish_start(&mut self, id: u32) {
        if self.requests[id].pending == 0 {
            self.copies_done(id);
        }
    }

    /// Gives every unit of `[start, end)` a place; false when there is none, and then the request is taken care of.
    fn place(&mut self, id: u32, start: u64, end: u64) -> bool {
        let request = self.requests[id].request;
        let kind = self.kind_of(&request);
        for unit in start / UNIT..end.div_ceil(UNIT) {
            if !self.entry(request.volume, unit).is_mapped() && !self.reserve(request.volume, unit, kind) {
                self.no_space(id, kind);
                return false;
            }
        }
        true
    }

    /// Writes `[start, end)`, which has its place: from `buf`, or zeros without one.
    fn start_write(&mut self, id: u32, start: u64, end: u64, buf: Option<BufRange>, fua: bool) {
        let request = self.requests[id].request;
        let covers = |unit| self.entry(request.volume, unit).written() & mask_in(unit, start, end);
        let known = fua && (start / UNIT..end.div_ceil(UNIT)).all(|unit| covers(unit) == mask_in(unit, start, end));
        // A forced write is durable by itself only when its map entries are.
        let settled = known && self.journal.stable() == self.journal.appended() && !self.commit.is_opening();
        let op = match buf {
            Some(_) => DeviceOp::Write { fua: fua && settled },
            None => DeviceOp::WriteZeroes,
        };
        self.requests[id].forced = op == DeviceOp::Write { fua: true };
        self.fetch_pages(request.volume, start, end);
        let mut at = start;
        while at < end {
            let head = self.entry(request.volume, at / UNIT);
            let mut run_end = round_down(at, UNIT) + UNIT;
            let mut next = head.unit() + 1;
            while run_end < end {
                let entry = self.entry(request.volume, run_end / UNIT);
                if entry.chunk() != head.chunk() || entry.unit() != next {
                    break;
                }
                (run_end, next) = (run_end + UNIT, next + 1);
            }
            let len = run_end.min(end) - at;
            let offset = u64::from(head.unit()) * UNIT + at % UNIT;
            let buf = buf.map(|b| range(b.buf, u64::from(b.offset) + at - start, len));
            let stretch = Stretch { chunk: head.chunk(), offset, len, at };
            self.write_extent(id, Owner::Write(id), op, stretch, buf);
            at += len;
        }
        self.finish_start(id);
    }

    /// Writes one contiguous piece of a chunk to every copy that is there, and to the one that is on its way to another member.
    fn write_extent(&mut self, id: u32, owner: Owner, op: DeviceOp, stretch: Stretch, buf: Option<BufRange>) {
        let Stretch { chunk, offset, len, at } = stretch;
        let Request { volume, no_merge, .. } = self.requests[id].request;
        let mut done = 0;
        while done < len {
            let c = self.pool.chunk(chunk).expect("maps refer to chunks that exist");
            let (mut piece, kind) = (slice(c.profile, c.columns.len(), offset + done, len - done), c.kind);
            if done > 0 && self.slips(Slip::WrongStripe) {
                piece.first = (piece.first + piece.copies) % c.columns.len();
            }
            self.counters.translations += 1;
            if c.rows() > 0 {
                self.requests[id].pending += 1;
                let buf = buf.map(|b| range(b.buf, u64::from(b.offset) + done, piece.len));
                self.write_row(Writer::Request(id), chunk, offset + done, piece.len, buf);
                done += piece.len;
                continue;
            }
            let places = piece.first..piece.first + piece.copies;
            let mut columns = [None; COPIES_MAX + 1];
            let set = &c.columns[places.clone()];
            columns.iter_mut().zip(set).for_each(|(place, column)| *place = Some(*column));
            columns[piece.copies] = c.shift.filter(|shift| places.contains(&shift.column)).map(|shift| shift.to);
            let is_good =
                |c: &Column, unit| self.pool.is_online(c.device) && !self.pool.is_unit_stale(c.device, volume, unit);
            let mut units = (at + done) / UNIT..(at + done + piece.len).div_ceil(UNIT);
            if !units.all(|unit| set.iter().any(|c| is_good(c, unit))) {
                self.requests[id].error = Some(RequestError::Io);
            }
            let buf = buf.map_or(range(NO_BUF, 0, 0), |b| range(b.buf, u64::from(b.offset) + done, piece.len));
            for (copy, column) in columns.into_iter().flatten().enumerate() {
                if !self.pool.is_online(column.device) {
                    // What a copy misses is noted when the others have it.
                    if copy == piece.copies {
                        self.shift_failed(chunk);
                    }
                    continue;
                }
                self.requests[id].pending += 1;
                let (first, copy) = (piece.first as u16, copy as u8);
                let set = CopySet { chunk, first, copy, tried: 0, offset: piece.offset };
                let io = Io::new(owner, op, column.device, column.offset + piece.offset, piece.len, self.now);
                self.issue(Io { buf, set, kind, no_merge, ..io });
            }
            done += piece.len;
        }
    }

    /// One copy missed a write. What follows from that is known when all copies are back: see [`Self::judge_missed`].
    pub(super) fn copy_not_written(&mut self, id: u32, io: &Io, error: IoError) {
        // Where a column is on its way to nobody reads before it is one.
        let is_column = |c: &Column| (c.device, c.offset + io.set.offset) == (io.device, io.offset);
        let goes_beside =
            |c: &Chunk| usize::from(io.set.copy) == c.profile.facts().copies && !c.columns.iter().any(is_column);
        if self.pool.chunk(io.set.chunk).is_some_and(goes_beside) {
            return self.shift_failed(io.set.chunk);
        }
        self.requests[id].trouble.get_or_insert_default().missed.push((io.device, io.set, error));
    }

    /// Copies that missed a write that others took: their members are stale there. Where no copy took it, or where nothing
    /// else holds what the member has of that region, nothing is noted and the client hears: the blocks hold old or new
    /// content, as after any failed write.
    fn judge_missed(&mut self, id: u32) {
        let Some(trouble) = &mut self.requests[id].trouble else { return };
        let missed = core::mem::take(&mut trouble.missed);
        let volume = self.requests[id].request.volume;
        let parts = written_parts(&self.requests[id]);
        let units = |(start, end): (u64, u64)| start / UNIT..end.div_ceil(UNIT);
        let is_stale = |pool: &crate::Pool, device| {
            parts.into_iter().flat_map(units).any(|unit| pool.is_unit_stale(device, volume, unit))
        };
        for &(device, set, error) in &missed {
            let taken = self.pool.chunk(set.chunk).is_some_and(|chunk| {
                let first = set.first as usize;
                let columns = &chunk.columns[first..first + chunk.profile.facts().copies];
                let same = |s: &CopySet| (s.chunk, s.first, s.offset) == (set.chunk, set.first, set.offset);
                let missed_it = |d: DeviceId| missed.iter().any(|(device, s, _)| *device == d && same(s));
                let has_it = |d| self.pool.is_online(d) && !missed_it(d) && !is_stale(&self.pool, d);
                columns.iter().any(|c| has_it(c.device))
            });
            if !taken || !parts.into_iter().all(|part| self.miss(device, volume, part, error)) {
                self.requests[id].error = Some(match error {
                    IoError::NoSpace => RequestError::NoSpace,
                    _ => RequestError::Io,
                });
            }
        }
    }

    /// What was written is noted as not flushed, and as missed by members that are not there.
    fn judge_absent(&mut self, id: u32) {
        let Active { request, error, roster, .. } = &self.requests[id];
        let (volume, fine, roster) = (request.volume, error.is_none(), *roster);
        for (start, end) in written_parts(&self.requests[id]) {
            self.note_unflushed(volume, start, end);
            if fine && !self.pass_by_absent(volume, start, end, roster) {
                self.requests[id].error = Some(RequestError::Io);
            }
        }
    }

    /// All copies are back: sums follow where they are kept.
    fn copies_done(&mut self, id: u32) {
        let Active { request, error, .. } = &self.requests[id];
        match error.is_none() && self.is_summed(request.volume) {
            true => self.sum_change(id),
            false => self.data_done(id),
        }
    }

    /// The data is where it belongs: the map follows, then the log, then the answer.
    fn data_done(&mut self, id: u32) {
        // Who missed it is behind from the moment on in which the map knows of it: before that it would be caught up at once.
        self.judge_missed(id);
        self.judge_absent(id);
        if self.commit.is_dead() {
            // The maps in memory may know more than the log ever will: no change is safe on top of them.
            self.requests[id].error = Some(RequestError::Io);
        }
        let Active { request, error, .. } = &self.requests[id];
        let (request, failed) = (*request, error.is_some());
        if failed {
            for (start, end) in written_parts(&self.requests[id]) {
                self.doubt(request.volume, start, end);
            }
        }
        let mut change = None;
        let mut fua = false;
        match request.op {
            _ if failed => {}
            Op::Write { fua: f } => {
                let (start, end) = envelope(&request);
                change = self.mark_written(request.volume, start, end);
                fua = f;
            }
            Op::WriteZeroes { no_hole, fua: f } => {
                let (start, end) = interior(&request);
                change = match no_hole {
                    true => self.mark_written(request.volume, start, end),
                    false => self.unmap(id, request.volume, start, end),
                };
                // Zeros go to the device as a command of their own, never forced: a flush makes them stable.
                fua = f;
            }
            Op::Discard => {
                let (start, end) = interior(&request);
                change = self.unmap(id, request.volume, start, end);
            }
            Op::Read | Op::Flush => unreachable!("{:?} changes nothing", request.op),
        }
        if !failed {
            let (start, end) = if request.op == Op::Discard { interior(&request) } else { envelope(&request) };
            self.forget_lost(request.volume, start, end);
            self.ask_for_source_of(request.volume, start, end);
            change = change.max(self.shift_to_be_written());
        }
        let active = &mut self.requests[id];
        (active.phase, active.waits_since) = (Phase::Commit, self.now);
        let waiter = Waiter::Request(id);
        // Every block was known and its entry stable when the write was forced, and the range has been ours since.
        let settled = self.requests[id].forced && change.is_none();
        if fua && !failed && !settled {
            self.join_flush(waiter);
        } else if self.is_failure_unsaid() {
            let failure = self.commit.failure_lsn - 1;
            self.wait_stable(change.map_or(failure, |lsn| lsn.max(failure)), waiter);
        } else if let Some(lsn) = change {
            self.wait_written(lsn, id);
        } else {
            self.reply(id);
        }
    }

    fn kind_of(&self, request: &Request) -> ChunkType {
        let class = self.pool.volume(request.volume).map_or(VolumeClass::Auto, |v| v.class);
        match class.resolve(request.content) {
            Content::Metadata => ChunkType::Metadata,
            _ => ChunkType::Data,
        }
    }

    pub(super) fn entry(&self, volume: VolumeId, unit: u64) -> Entry {
        self.pool.volume(volume).map_or(Entry::NONE, |v| v.map.get(unit))
    }

    /// Sets the blocks' bits and logs what changed; whole units that follow each other share a record.
    fn mark_written(&mut self, volume: VolumeId, start: u64, end: u64) -> Option<Lsn> {
        let mut last = None;
        let mut run: Option<(u64, u16, Entry)> = None;
        let mut unit = start / UNIT;
        while unit * UNIT < end {
            let v = self.pool.volume_mut(volume)?;
            let old = v.map.get(unit);
            let new = old.with_written(old.written() | mask_in(unit, start, end));
            if old.is_mapped() && new != old {
                v.map.set(unit, new);
                run = match run {
                    Some((first, count, entry))
                        if first + u64::from(count) == unit
                            && count < u16::MAX
                            && entry.written() == ALL_BLOCKS
                            && new.written() == ALL_BLOCKS
                            && (new.chunk(), new.unit()) == (entry.chunk(), entry.unit() + u32::from(count)) =>
                    {
                        Some((first, count + 1, entry))
                    }
                    other => {
                        last = self.log_run(volume, other).or(last);
                        Some((unit, 1, new))
                    }
                };
            }
            unit += 1;
        }
        self.log_run(volume, run).or(last)
    }

    fn log_run(&mut self, volume: VolumeId, run: Option<(u64, u16, Entry)>) -> Option<Lsn> {
        let (unit, count, entry) = run?;
        let entry = if entry.written() == 0 { Entry::NONE } else { entry };
        Some(self.journal.append(&Record::Map { volume, unit, count, entry }))
    }

    /// Makes whole blocks holes; units without any block left go back to free space when that is safe.
    fn unmap(&mut self, id: u32, volume: VolumeId, start: u64, end: u64) -> Option<Lsn> {
        let mut last = self.discard_lost(volume, start, end);
        let mut retired = Vec::new();
        let mut kept = Vec::new();
        let mut run: Option<(u64, u16, Entry)> = None;
        let mut unit = start / UNIT;
        let units_end = end.div_ceil(UNIT);
        while start < end && unit < units_end {
            let Some(next) = self.pool.volume(volume).and_then(|v| v.map.next_mapped(unit, units_end)) else { break };
            unit = next;
            let old = self.entry(volume, unit);
            let left = old.with_written(old.written() & !mask_in(unit, start, end));
            // Another writer may be on its way to the same unit: then the place stays, as a reservation.
            let shared = self.locks.overlaps_other(volume, unit * UNIT, (unit + 1) * UNIT, id);
            let new = if left.written() == 0 && !shared { Entry::NONE } else { left };
            if new != old {
                self.pool.volume_mut(volume)?.map.set(unit, new);
                run = match run {
                    Some((first, count, entry))
                        if first + u64::from(count) == unit
                            && count < u16::MAX
                            && entry.written() == 0
                            && new.written() == 0 =>
                    {
                        Some((first, count + 1, entry))
                    }
                    other => {
                        last = self.log_run(volume, other).or(last);
                        Some((unit, 1, new))
                    }
                };
                if !new.is_mapped() {
                    self.uncount_unit(volume, old);
                    retired.push(old);
                } else {
                    kept.push((unit, old, new));
                }
            }
            unit += 1;
        }
        let last = self.log_run(volume, run).or(last);
        self.retire_units(retired);
        for (unit, old, new) in kept {
            self.note_discarded(volume, unit, old, new, last.unwrap_or(0));
        }
        last
    }
}

/// Bits of the blocks of a unit that lie in `[start, end)`.
pub(super) fn mask_in(unit: u64, start: u64, end: u64) -> u16 {
    let base = unit * UNIT;
    let first = start.saturating_sub(base) / BLOCK;
    let last = end.saturating_sub(base).div_ceil(BLOCK).min(BLOCKS_PER_UNIT);
    block_mask(first.min(last), last)
}

/// The parts of a block's buffer that the payload of a request does not cover.
fn around(request: &Request, block: u64) -> impl Iterator<Item = BufRange> {
    let base = round_down(request.offset, BLOCK);
    let (start, end) = (request.offset.max(block), (request.offset + request.len).min(block + BLOCK));
    let buf = request.buf;
    let parts = [(block, start), (end, block + BLOCK)];
    parts.into_iter().filter(|(a, b)| a < b).map(move |(a, b)| range(buf, a - base, b - a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ClientId;

    fn request(offset: u64, len: u64) -> Request {
        Request {
            tag: 0,
            client: ClientId(0),
            volume: VolumeId(1),
            op: Op::Read,
            offset,
            len,
            buf: BufId(0),
            content: Content::Unsaid,
            no_merge: false,
        }
    }

    #[test]
    fn envelopes_interiors_and_edges() {
        // offset, len | envelope | interior | edge blocks
        let rows = [
            (0, 4096, (0, 4096), (0, 4096), [None, None]),
            (512, 512, (0, 4096), (4096, 4096), [Some(0), None]),
            (0, 512, (0, 4096), (0, 0), [None, Some(0)]),
            (4095, 2, (0, 8192), (4096, 4096), [Some(0), Some(4096)]),
            (512, 8192, (0, 12288), (4096, 8192), [Some(0), Some(8192)]),
            (4096, 4608, (4096, 12288), (4096, 8192), [None, Some(8192)]),
        ];
        for (offset, len, envelope_, interior_, edges_) in rows {
            let r = request(offset, len);
            assert_eq!((envelope(&r), interior(&r), edges(&r)), (envelope_, interior_, edges_), "{len}@{offset}");
        }
    }

    #[test]
    fn payload_and_what_is_around_it_tile_the_edge_blocks() {
        for offset in (0..9000).step_by(509) {
            for len in (1..14000).step_by(777) {
                let r = request(offset, len);
                let (start, end) = envelope(&r);
                let mut covered = std::vec![0u8; (end - start) as usize];
                for b in &mut covered[(offset - start) as usize..(offset - start + len) as usize] {
                    *b += 1;
                }
                for block in edges(&r).into_iter().flatten() {
                    for part in around(&r, block) {
                        for b in &mut covered[part.offset as usize..(part.offset + part.len) as usize] {
                            *b += 1;
                        }
                    }
                }
                assert!(covered.iter().all(|&c| c == 1), "{len}@{offset}");
            }
        }
    }
}
