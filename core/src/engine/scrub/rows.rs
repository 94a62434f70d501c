//! Chunks with parity: a piece is a run of rows, and one look sees all that is in them.
//!
//! ```text
//!   read      all strips of the rows, data and parity
//!   compare   data with its checksums; parity with what the data makes, in memory
//!   again     data in doubt first: a mend of each unit, as of any other piece
//!   check     then parity in doubt: a row at a time, under its lock; what is not alike is made once more
//! ```
//!
//! As elsewhere the first look takes no lock, so what a client writes to a row meanwhile may cost it a second one. Where a strip is
//! not there, or behind, the others are looked at, and parity counts as not read.

use alloc::vec::Vec;

use super::{Engine, Lane, Piece, TURN, Unit, range};
use crate::chunk::Chunk;
use crate::combine::{Addend, Combine};
use crate::gf;
use crate::profile::column_of;
use crate::queue::{Io, Owner};
use crate::request::{DeviceOp, IoError, Output};
use crate::scrub::PIECE_MAX;
use crate::units::{STRIP, UNIT};
use crate::volume::Entry;

/// Bit of questions about parity, among those about units.
const PARITY: u64 = 1 << 7;

/// Rows of a piece, and what is known of their parity.
#[derive(Clone)]
pub(super) struct Rows {
    first: u32,
    count: u32,
    /// Strips of a row.
    data: usize,
    parity: usize,
    /// One bit a row: strips that are not there, that could not be read, parity that is not what the data makes.
    gone: u16,
    bad: u16,
    unlike: u16,
}

impl Rows {
    fn doubts(&self) -> u16 {
        self.bad | self.unlike
    }

    /// Where in its scratch a piece has this parity of a row: behind the data, as it was read or as it should be.
    fn place(&self, i: u32, parity: usize, is_made: bool) -> u64 {
        let (rows, strips) = (u64::from(self.count), self.parity as u64);
        let behind = self.data as u64 * rows + if is_made { strips * rows } else { 0 };
        (behind + u64::from(i) * strips + parity as u64) * STRIP
    }

    /// The row of which the parity at this place was read; none where data is.
    fn row_at(&self, place: u64) -> Option<u32> {
        let strip = (place / STRIP).checked_sub(self.data as u64 * u64::from(self.count))?;
        Some((strip / self.parity as u64) as u32)
    }

    fn pass(&mut self, i: u32) {
        (self.bad, self.unlike) = (self.bad & !(1 << i), self.unlike & !(1 << i));
    }
}

/// What a scrub has to read of a chunk's rows.
pub(super) fn bytes_of_rows(chunk: &Chunk) -> u64 {
    chunk.live_rows() * chunk.columns.len() as u64 * STRIP
}

/// Strips of scratch that a row needs: for its data, and for parity twice.
pub(super) fn scratch_of_row(chunk: &Chunk) -> u64 {
    u64::from(chunk.row_units()) + 2 * chunk.profile.facts().parity as u64
}

impl Engine {
    /// The next run of rows of a lane in which somebody owns something; None at the end of a chunk, or of patience.
    pub(super) fn next_rows(&mut self, lane: usize, spent: &mut u64) -> Option<Piece> {
        let Lane { tables, at, .. } = &self.scrub.round.as_ref()?.lanes[lane];
        let (table, at) = (tables.front()?, *at);
        let chunk = self.pool.chunk(table.chunk)?;
        let most = (self.scrub.piece_max.min(PIECE_MAX) / UNIT / scratch_of_row(chunk)).max(1) as u32;
        let width = chunk.row_units();
        let (mut first, mut row) = (at / width, at / width);
        let mut units = Vec::new();
        while row < chunk.rows() && units.len() < (most * width) as usize && *spent < TURN {
            *spent += u64::from(width);
            let (begun, mut is_owned) = (units.len(), false);
            units.extend((row * width..(row + 1) * width).map(|at| {
                let home = table.owners.get(at as usize).copied().unwrap_or_default();
                let entry = home.get().and_then(|home| self.entry_here(chunk.id, at, home));
                is_owned |= entry.is_some();
                // What is nobody's counts in parity, and has no block to compare.
                Unit { home, mask: entry.map_or(0, Entry::written), bad: 0, gone: 0 }
            }));
            row += 1;
            if is_owned {
                continue;
            }
            // Nobody owns any of it: its space may come free, and have a new owner, before a read of it is through.
            units.truncate(begun);
            if begun > 0 {
                break;
            }
            first = row;
        }
        let count = units.len() as u32 / width;
        let (data, parity) = (width as usize, chunk.profile.facts().parity);
        let piece = (count > 0).then(|| Piece {
            bytes: u64::from(count) * chunk.columns.len() as u64 * STRIP,
            rows: Some(Rows { first, count, data, parity, gone: 0, bad: 0, unlike: 0 }),
            ..Piece::new(lane, table, first * width, units)
        });
        let next = (row < chunk.rows()).then_some(row * width);
        self.lane_goes_on(lane, next);
        piece
    }

    /// Reads the parity of a piece, beside its data.
    pub(super) fn read_parity(&mut self, id: u32) {
        let piece = &self.scrub.pieces[id];
        let Some(rows) = piece.rows.clone() else { return };
        let chunk = piece.chunk;
        let buf = match piece.scratch[0] {
            Some(buf) => buf,
            None => self.take_spare(),
        };
        self.scrub.pieces[id].scratch[0] = Some(buf);
        for (i, p) in (0..rows.count).flat_map(|i| (0..rows.parity).map(move |p| (i, p))) {
            let c = self.pool.chunk(chunk).expect("just looked at");
            let row = rows.first + i;
            let column = c.columns[column_of(c.profile, c.columns.len(), row.into(), rows.data + p)];
            if !self.pool.is_online(column.device) || self.is_row_stale(column.device, (chunk, row)) {
                self.rows_of_piece(id).gone |= 1 << i;
                continue;
            }
            self.scrub.pieces[id].pending += 1;
            let offset = column.offset + u64::from(row) * STRIP;
            let io = Io::new(Owner::Scrub(id), DeviceOp::Read, column.device, offset, STRIP, self.now);
            self.issue(Io { buf: range(buf, rows.place(i, p, false), STRIP), ..io });
        }
    }

    fn rows_of_piece(&mut self, id: u32) -> &mut Rows {
        self.scrub.pieces[id].rows.as_mut().expect("it has rows")
    }

    /// Something came back; false when it is no parity.
    pub(super) fn parity_read(&mut self, id: u32, io: &Io, result: Result<(), IoError>) -> bool {
        let Some(rows) = &mut self.scrub.pieces[id].rows else { return false };
        let Some(i) = rows.row_at(io.buf.offset.into()) else { return false };
        let row = 1 << i;
        match result {
            Ok(()) => {}
            Err(IoError::Gone) => rows.gone |= row,
            Err(_) => rows.bad |= row,
        }
        true
    }

    /// All of the rows is in memory that can be had: parity is made of the data, and compared with what there is.
    pub(super) fn compare_parity(&mut self, id: u32) {
        let piece = &mut self.scrub.pieces[id];
        let (Some(rows), Some(buf)) = (&mut piece.rows, piece.scratch[0]) else { return };
        for (i, units) in (0..).zip(piece.units.chunks(rows.data)) {
            rows.gone |= u16::from(units.iter().any(|unit| unit.gone != 0)) << i;
            rows.bad |= u16::from(units.iter().any(|unit| unit.bad != 0)) << i;
        }
        // Without one strip nothing can be said about the others.
        rows.bad &= !rows.gone;
        let unread = u64::from(rows.gone.count_ones()) * rows.parity as u64 * STRIP;
        self.pool.scrub.unread = self.pool.scrub.unread.saturating_add(unread);
        for i in (0..rows.count).filter(|i| (rows.gone | rows.bad) >> i & 1 == 0) {
            let strip = |member: usize| range(buf, (u64::from(i) * rows.data as u64 + member as u64) * STRIP, STRIP);
            let addend = |member: usize| Addend { from: strip(member), times: [1, gf::pow2(member)] };
            let parity = |p: usize, is_made: bool| range(buf, rows.place(i, p, is_made), STRIP);
            let to = [Some(parity(0, true)), (rows.parity > 1).then(|| parity(1, true))];
            let combine = Combine { to, addends: (0..rows.data).map(addend).collect() };
            self.outputs.push_back(Output::Combine(combine));
            for p in 0..rows.parity {
                piece.pending += 1;
                let tag = u64::from(id) << 8 | PARITY | u64::from(i);
                self.outputs.push_back(Output::Compare { tag, a: parity(p, false), b: parity(p, true) });
            }
        }
    }

    /// The answer to a question about parity; false when it is about a unit.
    pub(super) fn parity_compared_in_piece(&mut self, id: u32, tag: u64, equal: bool) -> bool {
        let is_parity = tag & PARITY != 0;
        if is_parity {
            self.rows_of_piece(id).unlike |= u16::from(!equal) << (tag & !PARITY & 0xff);
        }
        is_parity
    }

    /// Data is as good as it gets: the next row whose parity is in doubt is looked at under its lock. False when there is none.
    pub(super) fn looks_at_next_row(&mut self, id: u32) -> bool {
        let is_ended = self.scrub.ended;
        let Piece { chunk, rows, .. } = &mut self.scrub.pieces[id];
        let (chunk, Some(rows)) = (*chunk, rows) else { return false };
        while rows.doubts() != 0 && !is_ended {
            let i = rows.doubts().trailing_zeros();
            let row = rows.first + i;
            if self.pool.chunk(chunk).is_some_and(|c| !c.closing && c.is_live(row)) {
                self.look_at_row((chunk, row), id);
                return true;
            }
            rows.pass(i);
        }
        false
    }

    /// A row was looked at under its lock, unless somebody is not there.
    pub(in crate::engine) fn row_looked_at(&mut self, id: u32, was_read: bool) {
        let is_ended = self.scrub.ended;
        let rows = self.rows_of_piece(id);
        rows.pass(rows.doubts().trailing_zeros());
        let parity = rows.parity as u64 * STRIP;
        if !was_read && !is_ended {
            self.pool.scrub.unread = self.pool.scrub.unread.saturating_add(parity);
        }
        self.look_again(id);
    }
}
