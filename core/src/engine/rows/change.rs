//! What is written to a row, and its parity.
//!
//! A row that is live is never torn by a crash: new content and new parity are in the journal, on stable media, before any of
//! them goes in place. Nor does it matter which members are lost at that moment: those that miss the change are noted in the
//! log before it goes into the journal, so none of them is taken for what it was.

use alloc::vec::Vec;

use super::work::{What, part_of};
use super::{ALL, Engine, Lanes, Part, RowId, Writer};
use crate::engine::Slip;
use crate::engine::mend::runs;
use crate::profile::parity::plan_change;
use crate::request::{Copy, IoError, Output, RequestError};
use crate::units::{BufRange, ChunkId, DeviceId, STRIP, UNIT};

/// Lanes of a member that follow each other, and what goes there.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) member: usize,
    pub(super) first: u64,
    pub(super) count: u64,
    /// Zeros without one.
    pub(super) buf: Option<BufRange>,
    /// Its command is to be its own.
    no_merge: bool,
}

impl Piece {
    pub(super) fn lanes(&self) -> Lanes {
        crate::volume::block_mask(self.first, self.first + self.count)
    }
}

impl Engine {
    /// Parts of a row are to be written, none over another.
    pub(super) fn begin_change(&mut self, row: RowId, parts: Vec<Part>) {
        let parts = self.cut(row, parts);
        let id = self.start_work(row, What::Change(parts));
        self.note_change(id);
    }

    /// Members that are not to have what is written are noted first.
    pub(super) fn note_change(&mut self, id: u32) {
        let row = self.rows.works[id].row;
        let is_new = self.is_new(row);
        let work = &self.rows.works[id];
        let written = self.written(id);
        let concerns = |member: usize| is_new || written.get(member).is_none_or(|&lanes| lanes != 0);
        let passed: Vec<DeviceId> = (0..work.members.len())
            .filter(|&member| !work.members[member].is_good && concerns(member))
            .map(|member| work.members[member].column.device)
            .collect();
        let spared = passed.iter().all(|&device| self.miss_row(device, row, IoError::Gone));
        if !spared || self.commit.is_dead() {
            return self.fail_work(id);
        }
        // Also when somebody else noted it: put in place by an opening that knows nothing of that, the change would be torn.
        if !is_new && !passed.is_empty() && self.commit.failure_lsn > self.journal.written() {
            // Its strips are to have room when it goes on.
            let work = &mut self.rows.works[id];
            (work.step, work.memory) = (super::work::Step::Note, work.members.len() as u64 * STRIP);
            self.rows.memory += work.memory;
            return self.rows.noted.push_back((self.commit.failure_lsn - 1, id));
        }
        self.change_noted(id);
    }

    /// Nothing in the row is of use yet.
    pub(super) fn is_new(&self, row: RowId) -> bool {
        !self.pool.chunk(row.0).expect("a row is in a chunk").is_live(row.1)
    }

    /// The log says more: works that waited for it go on.
    pub(in crate::engine) fn notes_written(&mut self) {
        while let Some(&(lsn, id)) = self.rows.noted.front()
            && lsn < self.journal.written()
        {
            self.rows.noted.pop_front();
            match self.rows.works[id].step {
                super::work::Step::Journal => self.write_change(id),
                _ => {
                    self.rows.memory -= core::mem::take(&mut self.rows.works[id].memory);
                    self.change_noted(id);
                }
            }
        }
    }

    fn change_noted(&mut self, id: u32) {
        match self.plan_change_of(id) {
            true => self.read_work(id),
            false => self.fail_work(id),
        }
    }

    /// By data member, the lanes that are written.
    pub(super) fn written(&self, id: u32) -> Vec<Lanes> {
        let work = &self.rows.works[id];
        let mut written = alloc::vec![0; work.data];
        if let What::Change(parts) = &work.what {
            parts.iter().for_each(|part| written[usize::from(part.member)] |= part.lanes);
        }
        written
    }

    pub(super) fn plan_change_of(&mut self, id: u32) -> bool {
        let written = self.written(id);
        let work = &self.rows.works[id];
        let good = |i: usize| work.members.get(work.data + i).is_some_and(|m| m.is_good);
        let goes_beside = |i: usize| self.beside(id, work.data + i).is_some();
        let (good, beside) = ([good(0), good(1)], [goes_beside(0), goes_beside(1)]);
        let all = [good[0] || beside[0], good[1] || beside[1]];
        let fits = self.plan_work(id, |row| plan_change(row, &written, all).ok());
        if fits || all == good {
            return fits;
        }
        // Not in both places, then: the column is tried another time.
        self.shift_failed(self.rows.works[id].row.0);
        self.plan_work(id, |row| plan_change(row, &written, good).ok())
    }

    /// More than one group of the journal holds is done in two, lowest lanes first.
    fn cut(&mut self, row: RowId, mut parts: Vec<Part>) -> Vec<Part> {
        let parity = self.pool.chunk(row.0).map_or(0, |c| c.profile.facts().parity as u64);
        let (mut blocks, mut fits): (u64, Lanes) = (0, 0);
        for lane in 0..16 {
            let here = parts.iter().filter(|p| p.lanes >> lane & 1 == 1).count() as u64;
            if here > 0 && blocks + here + parity > self.rows.ring.entry_max() && fits != 0 {
                break;
            }
            (blocks, fits) = (blocks + if here > 0 { here + parity } else { 0 }, fits | 1 << lane);
        }
        if fits == ALL || self.is_new(row) {
            return parts;
        }
        let (mut later, mut cut) = (Vec::new(), Vec::new());
        for part in &mut parts {
            let rest = part.lanes & !fits;
            if rest == 0 {
                continue;
            }
            let first = rest.trailing_zeros() as u8;
            let skip = u64::from(first - part.first);
            let left = u64::from(rest.count_ones());
            later.push(Part { first, lanes: rest, buf: part.buf.map(|buf| part_of(buf, skip, left)), ..*part });
            part.lanes &= fits;
            if part.lanes != 0 {
                // What is done in two is waited for twice.
                cut.push(part.writer);
            }
        }
        parts.retain(|part| part.lanes != 0);
        cut.into_iter().for_each(|writer| self.hold_writer(writer));
        self.rows.lines.entry(row).or_default().parts.extend(later);
        parts
    }

    fn hold_writer(&mut self, writer: Writer) {
        match writer {
            Writer::Request(id) => self.requests[id].pending += 1,
            Writer::Move(id) => self.hold_move(id),
            Writer::Nobody => unreachable!("it is cut before"),
        }
    }

    /// Everything that new parity is made of is in memory.
    pub(super) fn make_change(&mut self, id: u32) {
        if self.slips(Slip::ParityNotMade) {
            self.rows.works[id].plan.makes.clear();
        }
        let makes = self.rows.works[id].plan.makes.clone();
        for make in &makes {
            for member in make.to.into_iter().flatten() {
                self.rows.works[id].members[member].made |= make.lanes;
            }
        }
        for member in 0..self.rows.works[id].members.len() {
            let made = self.rows.works[id].members[member].made;
            if made != 0 {
                let strip = self.strip_for(id, made);
                self.rows.works[id].members[member].new = Some(strip);
            }
        }
        self.make_strips(id, |engine, member, lane, count| {
            engine.rows.works[id].members[member].new.expect("just made").range(lane, count)
        });
        let work = &self.rows.works[id];
        // Without parity nothing is torn but what is written. Yet what the journal has of the row would come back.
        let has_parity = work.members[work.data..].iter().any(|m| m.is_good);
        let (is_new, is_held) = (self.is_new(work.row), self.rows.ring.holds(work.row));
        let is_journaled = is_held || has_parity && !is_new;
        if (is_new || !is_journaled) && !self.slips(Slip::RowTakenForForced) {
            self.leave_to_flush(id);
        }
        match is_journaled {
            true => self.journal_change(id),
            false => self.write_change(id),
        }
    }

    /// Its content is not in the journal: what is asked to be forced is not, until a flush.
    fn leave_to_flush(&mut self, id: u32) {
        let Engine { rows, requests, .. } = self;
        let What::Change(parts) = &rows.works[id].what else { return };
        for part in parts {
            if let Writer::Request(request) = part.writer {
                requests[request].forced = false;
            }
        }
    }

    /// What changes, of members that are to have it.
    pub(super) fn pieces(&self, id: u32) -> Vec<Piece> {
        let mut pieces = self.all_pieces(id);
        pieces.retain(|piece| self.is_written(id, piece.member));
        pieces
    }

    /// A member has the strip, or is about to.
    fn is_written(&self, id: u32, member: usize) -> bool {
        self.rows.works[id].members[member].is_good || self.beside(id, member).is_some()
    }

    /// The same with data of members that are not there: so the journal never has less of a row than what it had before.
    pub(super) fn all_pieces(&self, id: u32) -> Vec<Piece> {
        let work = &self.rows.works[id];
        let What::Change(parts) = &work.what else { return Vec::new() };
        let data = parts.iter().map(|part| {
            let count = u64::from(part.lanes.count_ones());
            let (member, first, no_merge) = (usize::from(part.member), part.first.into(), part.no_merge);
            Piece { member, first, count, buf: part.buf.map(|buf| part_of(buf, 0, count)), no_merge }
        });
        let parity = (work.data..work.members.len()).flat_map(|member| {
            let m = &work.members[member];
            runs(m.made).map(move |(first, count)| {
                let buf = m.new.map(|strip| strip.range(first, count));
                Piece { member, first, count, buf, no_merge: false }
            })
        });
        data.chain(parity).collect()
    }

    /// In place.
    pub(super) fn write_change(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        (work.step, work.pending) = (super::work::Step::Write, 1);
        let mut pieces = self.pieces(id);
        if self.is_new(self.rows.works[id].row) {
            let members = 0..self.rows.works[id].members.len();
            for member in members.filter(|&member| self.is_written(id, member)) {
                let here = pieces.iter().filter(|piece| piece.member == member);
                let taken = here.fold(0, |all, piece| all | piece.lanes());
                let rest = runs(!taken);
                pieces.extend(rest.map(|(first, count)| Piece { member, first, count, buf: None, no_merge: false }));
            }
        }
        for Piece { member, first, count, buf, no_merge } in pieces {
            let buf = buf.unwrap_or_else(|| part_of(self.zeros(id), 0, count));
            match self.rows.works[id].members[member].is_good {
                true => self.write_strip(id, member, first, buf, no_merge),
                false => self.write_beside(id, member, first, buf, no_merge),
            }
        }
        self.count_work_down(id);
    }

    /// A strip of zeros.
    pub(super) fn zeros(&mut self, id: u32) -> BufRange {
        let whole = |buf| BufRange { buf, offset: 0, len: UNIT as u32 };
        if let Some(buf) = self.rows.works[id].zeros {
            return whole(buf);
        }
        let buf = self.scratch_of(UNIT);
        self.outputs.push_back(Output::Copy(Copy::Zero(whole(buf))));
        let work = &mut self.rows.works[id];
        work.zeros = Some(buf);
        work.memory += UNIT;
        self.rows.memory += UNIT;
        whole(buf)
    }

    /// A change, or a strip that was made anew, is in place.
    pub(super) fn work_written(&mut self, id: u32) {
        let row = self.rows.works[id].row;
        self.note_row_unflushed(row);
        let work = &self.rows.works[id];
        match work.what {
            What::Change(_) => {}
            What::Copy => return self.copy_written(id),
            _ => return self.end_rebuild(id),
        }
        let outcome = |m: &super::work::Member| {
            let away = self.was_away(m.column.device, work.roster).then_some(IoError::Gone);
            (m.column.device, m.failed.or(away))
        };
        let written: Vec<_> = work.members.iter().filter(|m| m.is_good || m.new.is_some()).map(outcome).collect();
        for (device, error) in written {
            if let Some(error) = error
                && !self.miss_row(device, row, error)
            {
                self.rows.works[id].error = Some(error);
            }
        }
        if self.rows.works[id].error.is_some() && self.rows.works[id].group.is_some() && !self.is_new(row) {
            // Neither old nor new, and too few strips to tell. The journal has it for the next opening, if nothing more is
            // written down.
            self.note_torn(id);
            self.commit.kill();
            return self.end_work(id);
        }
        if self.rows.works[id].error.is_none()
            && let Some(chunk) = self.pool.chunk_mut(row.0)
        {
            chunk.make_live(row.1);
        }
        self.change_in_place(id);
        self.end_work(id);
    }

    /// The journal may have a change that is not in place, or not all of it, and nothing more will be written: the next opening
    /// puts it there. Until then nobody reads what would not stay.
    pub(super) fn note_torn(&mut self, id: u32) {
        let row = self.rows.works[id].row;
        if self.is_new(row) || self.rows.works[id].step == super::work::Step::Note {
            return;
        }
        let written = self.written(id);
        let torn = self.rows.torn.entry(row).or_default();
        torn.resize(written.len(), 0);
        torn.iter_mut().zip(written).for_each(|(torn, lanes)| *torn |= lanes);
    }

    /// Whether an opening may bring other content of a part of a strip, which is at this byte of a chunk with rows.
    pub(in crate::engine) fn is_torn(&self, chunk: ChunkId, byte: u64, len: u64) -> bool {
        if self.rows.torn.is_empty() || !self.has_rows(chunk) {
            return false;
        }
        let (row, member) = self.strip_at(chunk, byte);
        let torn = self.rows.torn.get(&row).and_then(|torn| torn.get(usize::from(member)));
        torn.is_some_and(|torn| torn & super::lanes(byte, len) != 0)
    }

    /// A strip holds what is new, and its sums are still of what was there before.
    pub(super) fn note_sums_lag(&mut self, writer: Writer, chunk: ChunkId, place: u32) {
        let volume = match writer {
            Writer::Request(id) => self.requests[id].request.volume,
            Writer::Move(id) => self.volume_of_move(id),
            Writer::Nobody => return,
        };
        if self.is_summed(volume) {
            self.sums.lag(chunk, place, writer);
        }
    }

    /// A part of a row is written, or not.
    pub(super) fn row_written(&mut self, writer: Writer, error: Option<IoError>) {
        match writer {
            Writer::Request(id) => {
                if let Some(error) = error {
                    self.requests[id].error = Some(match error {
                        IoError::NoSpace => RequestError::NoSpace,
                        _ => RequestError::Io,
                    });
                }
                self.count_down(id);
            }
            Writer::Move(id) => self.move_row_written(id, error),
            Writer::Nobody => {}
        }
    }
}
