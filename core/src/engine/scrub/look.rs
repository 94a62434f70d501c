//! The first look: pieces in order of place, every copy into memory, copies compared unit by unit.

use alloc::vec::Vec;

use super::{COPIES_MAX, Engine, Home, Piece, Stage, TURN, Turn, Unit, range, runs};
use crate::ChunkType;
use crate::engine::sums::Part;
use crate::profile::slice;
use crate::queue::{Io, Owner};
use crate::request::{DeviceOp, IoError, Output};
use crate::scrub::{PART_MAX, PIECE_MAX, Place};
use crate::units::{BLOCK, BufId, ChunkId, DeviceId, UNIT, VolumeId};
use crate::volume::{Entry, INTERNAL};

impl Engine {
    /// Fills the window of every lane, one piece each in turn.
    pub(super) fn issue_pieces(&mut self) -> Turn {
        let (mut spent, before) = (0, self.ios.len());
        let mut is_full = false;
        while !is_full && spent < TURN {
            is_full = true;
            let Some(round) = &self.scrub.round else { break };
            let (lanes, first) = (round.lanes.len(), round.turn);
            for i in 0..lanes {
                let lane = (first + i) % lanes;
                let Some(round) = &mut self.scrub.round else { break };
                if self.scrub.pieces.len() >= round.pieces_max {
                    // Whoever is next goes first next time.
                    round.turn = lane;
                    is_full = true;
                    break;
                }
                if round.lanes[lane].out.len() < round.lanes[lane].window
                    && !round.lanes[lane].tables.is_empty()
                    && spent < TURN
                {
                    is_full = false;
                    match self.next_piece(lane, &mut spent) {
                        Some(piece) => self.begin_piece(piece),
                        None => self.lane_moved(lane),
                    }
                }
            }
        }
        match () {
            // Pieces whose copies are all away are ready without a read.
            _ if self.ios.len() > before || !self.scrub.ready.is_empty() => Turn::Moved,
            _ if !is_full || self.scrub.round.is_none() => Turn::Later,
            _ => Turn::Nothing,
        }
    }

    /// Blocks of a unit that are to be compared now.
    pub(super) fn blocks_of(&self, chunk: ChunkId, unit: u32, home: Home) -> u16 {
        let Some((volume, at)) = home.get() else {
            let is_system = self.pool.chunk(chunk).is_some_and(|c| c.kind == ChunkType::System);
            return if is_system { self.commit.pages_of(chunk, unit) } else { 0 };
        };
        self.entry_here(chunk, unit, (volume, at)).map_or(0, Entry::written)
    }

    /// What the map says of this unit of a volume, if it is still there.
    pub(super) fn entry_here(&self, chunk: ChunkId, unit: u32, (volume, at): (VolumeId, u64)) -> Option<Entry> {
        let entry = self.pool.volume(volume)?.map.get(at);
        ((entry.chunk(), entry.unit()) == (chunk, unit)).then_some(entry)
    }

    /// The next run of units of a lane that have something to compare; None at the end of a chunk, or of patience.
    fn next_piece(&mut self, lane_id: usize, spent: &mut u64) -> Option<Piece> {
        let most = (self.scrub.piece_max.min(PIECE_MAX) / UNIT) as usize;
        let round = self.scrub.round.as_ref()?;
        let lane = &round.lanes[lane_id];
        let table = lane.tables.front()?;
        if self.has_rows(table.chunk) {
            return self.next_rows(lane_id, spent);
        }
        let chunk = self.pool.chunk(table.chunk);
        let mut units: Vec<Unit> = Vec::new();
        let (mut at, mut first) = (lane.at, lane.at);
        while chunk.is_some() && at < table.units && units.len() < most && *spent < TURN {
            *spent += 1;
            let home = table.owners.get(at as usize).copied().unwrap_or_default();
            let mask = self.blocks_of(table.chunk, at, home);
            if mask != 0 {
                first = if units.is_empty() { at } else { first };
                units.push(Unit { home, mask, bad: 0, gone: 0 });
            } else if !units.is_empty() {
                break;
            }
            at += 1;
        }
        let copies = chunk.map_or(0, |c| c.profile.facts().copies as u64);
        let is_over = chunk.is_none() || at >= table.units;
        let bytes = units.len() as u64 * UNIT * copies;
        let piece = (bytes > 0).then(|| Piece { bytes, ..Piece::new(lane_id, table, first, units).trimmed() });
        self.lane_goes_on(lane_id, (!is_over).then_some(at));
        piece
    }

    /// A lane goes on at this unit of its chunk, or with the next chunk.
    pub(super) fn lane_goes_on(&mut self, lane: usize, at: Option<u32>) {
        let Some(round) = &mut self.scrub.round else { return };
        let lane = &mut round.lanes[lane];
        lane.at = at.unwrap_or(0);
        if at.is_none()
            && let Some(table) = lane.tables.pop_front()
        {
            lane.end = Some(Place { start: table.start, unit: table.units });
        }
    }

    /// Some unit of a part of the piece is stale there: what is not read is not compared, and counts as not read.
    fn is_stale_in(&self, id: u32, device: DeviceId, (from, len): (u64, u64)) -> bool {
        let piece = &self.scrub.pieces[id];
        let chunk = self.pool.chunk(piece.chunk).expect("just looked at");
        let places = (from / UNIT) as u32..(from + len).div_ceil(UNIT) as u32;
        let units = &piece.units[(places.start - piece.first) as usize..];
        places.zip(units).any(|(place, unit)| self.lacks(device, chunk, place, unit.home.get()))
    }

    /// Reads all of its copies that are there.
    fn begin_piece(&mut self, mut piece: Piece) {
        // While it is read, its space gets no new owner.
        piece.epoch = Some(self.space.enter());
        let (lane, chunk, first, from, len) = (piece.lane, piece.chunk, piece.first, piece.from, piece.len);
        let id = self.scrub.pieces.insert(piece);
        if let Some(round) = &mut self.scrub.round {
            round.lanes[lane].out.push_back(id);
        }
        let mut done = 0;
        while done < len {
            let c = self.pool.chunk(chunk).expect("just looked at");
            let part = slice(c.profile, c.columns.len(), from + done, (len - done).min(PART_MAX));
            let mut columns = [None; COPIES_MAX];
            for (place, column) in columns.iter_mut().zip(&c.columns[part.first..part.first + part.copies]) {
                *place = Some(*column);
            }
            for (copy, column) in columns.into_iter().enumerate() {
                let Some(column) = column else { continue };
                if !self.pool.is_online(column.device) || self.is_stale_in(id, column.device, (from + done, part.len)) {
                    self.copy_gone(id, copy, from + done, part.len, first);
                    continue;
                }
                let buf = match self.scrub.pieces[id].scratch[copy] {
                    Some(buf) => buf,
                    None => self.take_spare(),
                };
                let piece = &mut self.scrub.pieces[id];
                piece.scratch[copy] = Some(buf);
                piece.pending += 1;
                let offset = column.offset + part.offset;
                let io = Io::new(Owner::Scrub(id), DeviceOp::Read, column.device, offset, part.len, self.now);
                self.issue(Io { buf: range(buf, done, part.len), ..io });
            }
            done += part.len;
        }
        self.read_parity(id);
        if self.scrub.pieces[id].pending == 0 {
            self.reads_done(id);
        }
    }

    pub(super) fn take_spare(&mut self) -> BufId {
        self.scrub.spare.pop().unwrap_or_else(|| self.scratch_of(self.scrub.piece_max))
    }

    /// A copy of a part is on a member that is not there: it is neither right nor wrong.
    fn copy_gone(&mut self, id: u32, copy: usize, from: u64, len: u64, first: u32) {
        let units =
            (from / UNIT - u64::from(first)) as usize..((from + len).div_ceil(UNIT) - u64::from(first)) as usize;
        let mut bytes = 0;
        for unit in self.scrub.pieces[id].units[units].iter_mut() {
            unit.gone |= 1 << copy;
            bytes += u64::from(unit.mask.count_ones()) * BLOCK;
        }
        if !self.scrub.ended {
            self.pool.scrub.unread = self.pool.scrub.unread.saturating_add(bytes);
        }
    }

    /// One copy of a part came back, or parity.
    pub(in crate::engine) fn scrub_read(&mut self, id: u32, io: &Io, result: Result<(), IoError>) {
        if !self.parity_read(id, io, result) {
            self.copy_read(id, io, result);
        }
        let piece = &mut self.scrub.pieces[id];
        piece.pending -= 1;
        if piece.pending == 0 {
            self.reads_done(id);
        }
    }

    fn copy_read(&mut self, id: u32, io: &Io, result: Result<(), IoError>) {
        let piece = &mut self.scrub.pieces[id];
        let copy = piece.scratch.iter().position(|s| *s == Some(io.buf.buf)).expect("it reads into its own scratch");
        let (from, first) = (piece.from + u64::from(io.buf.offset), piece.first);
        match result {
            Ok(()) => {}
            Err(IoError::Gone) => self.copy_gone(id, copy, from, io.len, first),
            Err(_) => {
                let base = u64::from(first);
                let units = (from / UNIT - base) as usize..((from + io.len).div_ceil(UNIT) - base) as usize;
                piece.units[units].iter_mut().for_each(|unit| unit.bad |= 1 << copy);
            }
        }
    }

    /// All copies are in memory. Comparing costs some 100 us a piece, so each waits for its turn.
    fn reads_done(&mut self, id: u32) {
        if let Some(epoch) = self.scrub.pieces[id].epoch.take() {
            self.space.leave(epoch);
        }
        self.scrub.ready.push_back(id);
    }

    /// Compares the copies of a piece, unit by unit.
    pub(super) fn compare_piece(&mut self, id: u32) {
        let is_ended = self.scrub.ended;
        let piece = &mut self.scrub.pieces[id];
        piece.stage = Stage::Comparing;
        let copies: Vec<(usize, BufId)> =
            piece.scratch.iter().enumerate().filter_map(|(copy, buf)| Some((copy, (*buf)?))).collect();
        // One more than there are, until all were asked.
        piece.pending = 1;
        let mut sums = Vec::new();
        // Of a row there may be units that are nobody's.
        for (i, unit) in piece.units.iter().enumerate().filter(|(_, unit)| unit.mask != 0 && !is_ended) {
            if unit.bad != 0 {
                piece.doubts |= 1 << i;
                continue;
            }
            sums.push(i);
            let mut have = copies.iter().filter(|(copy, _)| unit.gone >> copy & 1 == 0);
            let Some(&(_, one)) = have.next() else { continue };
            let base = (u64::from(piece.first) + i as u64) * UNIT;
            for &(_, other) in have {
                for (block, count) in runs(unit.mask) {
                    let at = base + block * BLOCK - piece.from;
                    let (a, b) = (range(one, at, count * BLOCK), range(other, at, count * BLOCK));
                    let tag = u64::from(id) << 8 | i as u64;
                    piece.pending += 1;
                    self.outputs.push_back(Output::Compare { tag, a, b });
                }
            }
        }
        for unit in sums {
            self.ask_sums(id, unit, &copies);
        }
        if !is_ended {
            self.compare_parity(id);
        }
        self.scrub_answered(id);
    }

    /// A unit of a piece is compared with its checksums as well.
    fn ask_sums(&mut self, id: u32, i: usize, copies: &[(usize, BufId)]) {
        let piece = &self.scrub.pieces[id];
        let (unit, chunk, place) = (&piece.units[i], piece.chunk, piece.first + i as u32);
        let Some((volume, at)) = unit.home.get() else { return };
        if volume == INTERNAL {
            let mask = unit.mask;
            self.scrub.pieces[id].pending += mask.count_ones();
            let asked = self.scrub_pages(id, at, mask);
            self.scrub.pieces[id].pending -= mask.count_ones() - asked;
        } else if self.is_summed(volume) {
            let begins = (u64::from(place) * UNIT) as i64 - piece.from as i64;
            let mut here = [None; COPIES_MAX];
            copies
                .iter()
                .filter(|(copy, _)| unit.gone >> copy & 1 == 0)
                .for_each(|&(copy, buf)| here[copy] = Some(buf));
            let part = Part { piece: id, unit: i as u32, place, mask: unit.mask, at: begins, copies: here };
            self.scrub.pieces[id].pending += 1;
            self.scrub_sums(chunk, part);
        }
    }

    /// A page is there, and so many questions were asked about it.
    pub(in crate::engine) fn scrub_asks(&mut self, id: u32, asked: u32) {
        self.scrub.pieces[id].pending += asked;
        self.scrub_answered(id);
    }

    /// One copy of a part of a unit is what its checksums say, or not.
    pub(in crate::engine) fn scrub_verified(&mut self, tag: u64, bad: u16) {
        let (id, unit) = ((tag >> 16) as u32, tag & 0xffff);
        self.scrub.pieces[id].doubts |= u64::from(bad != 0) << unit;
        self.scrub_answered(id);
    }

    fn scrub_answered(&mut self, id: u32) {
        let piece = &mut self.scrub.pieces[id];
        piece.pending -= 1;
        if piece.pending == 0 {
            self.piece_compared(id);
        }
    }

    /// The answer to one question.
    pub(in crate::engine) fn scrub_compared(&mut self, tag: u64, equal: bool) {
        let (id, unit) = ((tag >> 8) as u32, tag & 0xff);
        if !self.parity_compared_in_piece(id, unit, equal) {
            self.scrub.pieces[id].doubts |= u64::from(!equal) << unit;
        }
        self.scrub_answered(id);
    }

    fn piece_compared(&mut self, id: u32) {
        let piece = &mut self.scrub.pieces[id];
        piece.stage = Stage::Again;
        let scratch = core::mem::take(&mut piece.scratch);
        self.scrub.spare.extend(scratch.into_iter().flatten());
        self.look_again(id);
    }
}
