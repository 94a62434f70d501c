//! Reads compared with their sums. What is wrong is read from another copy, just that; when no copy is left, the unit is
//! [mended](super::super::mend) under its range lock and the read is given what comes of that. (It had no lock: a write beside
//! it may have changed the data and not yet the sum. Then the mend finds nothing wrong.)

use alloc::vec::Vec;

use super::cache::memory;
use super::{Engine, MEND_TAG, Need, PAGE_TAG, SCRUB_TAG, locate};
use crate::engine::Slip;
use crate::engine::data::envelope;
use crate::engine::mend::runs;
use crate::engine::rows;
use crate::profile::content_offset;
use crate::queue::{CopySet, Io, Owner};
use crate::request::{Expected, Output, PageWork};
use crate::units::{BLOCK, BufRange, ChunkId, DeviceId, IoId, UNIT, VolumeId};

/// One copy of a piece of a read, in memory.
#[derive(Clone)]
pub(super) struct Check {
    io: Io,
    /// Questions under way.
    pending: u32,
    /// Wrong blocks: first byte within the I/O, and bits from there.
    wrong: Vec<(u32, u16)>,
}

impl Engine {
    /// The sums of a piece that is being read come along, if they are not here.
    pub(in crate::engine) fn fetch_sums(&mut self, chunk: ChunkId, byte: u64, len: u64) {
        let kind = self.sums.kind;
        let (first, last) = (locate(kind, byte).0, locate(kind, byte + len - 1).0);
        (first..=last).for_each(|index| self.fetch_page(chunk, index));
    }

    /// Whether the blocks of a read that is just done are what their sums say: true when all those sums are in memory and
    /// `is_right` says so of each piece, in order, until one is not. The host asks when a read was well, and then says
    /// [`Input::Intact`](crate::request::Input::Intact) for true and `Complete` for false. That is as good in every case,
    /// and the long way: sums that have to be loaded, blocks that a write is changing, copies that are wrong.
    ///
    /// Nobody else may hand anything in between the two.
    pub fn expects(&self, id: IoId, mut is_right: impl FnMut(Expected) -> bool) -> bool {
        if !self.sums.is_on() {
            return false;
        }
        let mut any = false;
        for io in self.command(id).filter(|io| io.summed) {
            if !self.expects_of(io, &mut is_right) {
                return false;
            }
            any = true;
        }
        any
    }

    fn expects_of(&self, io: &Io, is_right: &mut impl FnMut(Expected) -> bool) -> bool {
        let c = self.pool.chunk(io.set.chunk).expect("it was read from it");
        let at = content_offset(c.profile, c.columns.len(), io.set.first as usize, io.set.offset);
        let at = at.expect("content was read");
        let (kind, len) = (self.sums.kind, u64::from(io.buf.len));
        let mut done = 0;
        while done < len {
            let piece = (UNIT - (at + done) % UNIT).min(len - done);
            let (index, first) = locate(kind, at + done);
            let Some(slot) = self.sums.settled(io.set.chunk, index) else { return false };
            let data = BufRange { offset: io.buf.offset + done as u32, len: piece as u32, ..io.buf };
            if !is_right(Expected { kind, data, page: memory(slot, 0), first }) {
                return false;
            }
            done += piece;
        }
        true
    }

    /// A copy of a piece was read: its blocks are compared with their sums.
    pub(in crate::engine) fn verify(&mut self, io: Io) {
        let c = self.pool.chunk(io.set.chunk).expect("it was read from it");
        let at = content_offset(c.profile, c.columns.len(), io.set.first as usize, io.set.offset);
        let at = at.expect("content was read");
        let (chunk, buf, kind) = (io.set.chunk, io.buf, self.sums.kind);
        // A question for each unit, counted before the first answer may come.
        let pending = (at % UNIT + u64::from(buf.len)).div_ceil(UNIT) as u32;
        let check = self.sums.checks.insert(Check { io, pending, wrong: Vec::new() });
        let mut done = 0;
        while done < u64::from(buf.len) {
            let len = (UNIT - (at + done) % UNIT).min(u64::from(buf.len) - done);
            let (index, first) = locate(kind, at + done);
            let data = BufRange { offset: buf.offset + done as u32, len: len as u32, ..buf };
            self.with_page(chunk, index, Need::Verify { check, data, first });
            done += len;
        }
    }

    pub(super) fn compare_with_sums(&mut self, check: u32, data: BufRange, slot: u32, first: u16) {
        let within = data.offset - self.sums.checks[check].io.buf.offset;
        let tag = u64::from(check) << 32 | u64::from(within);
        let page = memory(slot, 0);
        self.outputs.push_back(Output::Page(PageWork::Verify { tag, kind: self.sums.kind, data, page, first }));
    }

    /// The host's answer to one question.
    pub(in crate::engine) fn verified(&mut self, tag: u64, bad: u16) {
        if tag & PAGE_TAG != 0 {
            return self.page_checked(tag & !PAGE_TAG, bad);
        }
        if tag & SCRUB_TAG != 0 {
            return self.scrub_verified(tag & !SCRUB_TAG, bad);
        }
        if tag & MEND_TAG != 0 {
            return self.mend_verified(tag, bad);
        }
        if tag & rows::TAG != 0 {
            return self.row_verified(tag, bad);
        }
        let check = (tag >> 32) as u32;
        if bad != 0 && !self.slips(Slip::SumsNotCompared) {
            self.sums.checks[check].wrong.push((tag as u32, bad));
        }
        self.check_over(check);
    }

    /// The sums cannot be had: neither can the data.
    pub(super) fn check_fails(&mut self, check: u32) {
        match self.sums.checks[check].io.owner {
            Owner::Move(id) => self.move_not_compared(id),
            Owner::Read(id) | Owner::Edge(id) => self.requests[id].error = Some(crate::request::RequestError::Io),
            owner => unreachable!("{owner:?} compares nothing"),
        }
        self.check_over(check);
    }

    fn check_over(&mut self, check: u32) {
        let open = &mut self.sums.checks[check].pending;
        *open -= 1;
        if *open > 0 {
            return;
        }
        let Check { io, wrong, .. } = self.sums.checks.remove(check);
        let id = match io.owner {
            Owner::Move(id) => return self.move_compared(id, &io, wrong),
            Owner::Read(id) | Owner::Edge(id) => id,
            owner => unreachable!("{owner:?} compares nothing"),
        };
        for (within, bad) in wrong {
            for (first, count) in runs(bad) {
                let at = u64::from(within) + first * BLOCK;
                self.read_wrong(id, &io, at, count * BLOCK);
            }
        }
        self.count_down(id);
    }

    /// A part of a piece is not what its sums say.
    fn read_wrong(&mut self, id: u32, io: &Io, at: u64, len: u64) {
        self.counters.retries += 1;
        self.requests[id].trouble.get_or_insert_default().is_in_question = true;
        let set = CopySet { offset: io.set.offset + at, ..io.set };
        let buf = BufRange { offset: io.buf.offset + at as u32, len: len as u32, ..io.buf };
        self.want_mend(id, &Io { buf, len, ..Io::new(io.owner, io.op, io.device, io.offset + at, len, self.now) });
        if self.read_copy(id, io.owner, set, buf) || self.reconstruct_read(id, io.owner, set, buf) {
            self.note_wrong_edge(id, io, len / BLOCK);
        } else {
            self.read_by_mend(id, io.owner, buf);
        }
    }

    /// The range of an edge is held, so this is no write passing by. The whole block is about to be written anew.
    fn note_wrong_edge(&mut self, id: u32, io: &Io, blocks: u64) {
        let request = &self.requests[id].request;
        let (start, end) = (request.offset / UNIT, (request.offset + request.len) / UNIT);
        let is_doubtful = [start, end].iter().any(|&unit| self.resync.doubts(request.volume, unit));
        if matches!(io.owner, Owner::Edge(_)) && !is_doubtful {
            self.count_wrong(io.device, blocks);
        }
    }

    /// Counts blocks of a copy that are not what their checksums say.
    pub(in crate::engine) fn count_wrong(&mut self, device: DeviceId, blocks: u64) {
        if let Some(member) = self.pool.device_mut(device) {
            member.counters.checksum_errors += blocks;
        }
    }

    /// What a part of a request's memory is of its volume. Edges stand in scratch blocks of their own.
    pub(in crate::engine) fn place_of_read(&self, id: u32, owner: Owner, buf: BufRange) -> (VolumeId, u64, u64) {
        let active = &self.requests[id];
        let start = match owner {
            Owner::Edge(_) => {
                let i = active.scratch.iter().position(|s| *s == Some(buf.buf)).expect("it reads into its scratch");
                crate::engine::data::edges(&active.request)[i].expect("a scratch is for an edge")
            }
            _ => envelope(&active.request).0 + u64::from(buf.offset),
        };
        (active.request.volume, start, start + u64::from(buf.len))
    }
}
