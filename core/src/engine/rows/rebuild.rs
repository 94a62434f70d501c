//! Strips that are made from the others of their row: for who wants to know what a member cannot give, and for members that
//! missed something.

use alloc::vec::Vec;

use super::work::{What, Work};
use super::{Engine, Lanes, Other, RowId};
use crate::engine::mend::blocks;
use crate::profile::data_stripes;
use crate::profile::parity::plan_read;
use crate::queue::{CopySet, Io, Owner};
use crate::read_policy::ReadPolicy;
use crate::read_policy::avoid_slow::without_slowest;
use crate::regions::{ROWS, row_unit};
use crate::request::{DeviceOp, IoError};
use crate::units::{BLOCK, BufRange, ChunkId, DeviceId, STRIP};

/// Lanes of a data member that somebody wants made from the others.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Reconstruction {
    pub(super) who: Who,
    pub(super) member: u8,
    pub(super) lanes: Lanes,
    /// Where the first of them goes; the others stand behind it as in the strip.
    to: BufRange,
    pub(super) is_urgent: bool,
    /// A member that nothing is made of.
    without: Option<u8>,
}

/// Who wants it.
#[derive(Clone, Copy)]
pub(in crate::engine) enum Who {
    /// A part of a request, which may be compared with its checksums.
    Read { id: u32, owner: Owner, set: CopySet },
    /// A mend, in place of this copy.
    Mend { id: u32, copy: u8, is_urgent: bool },
    /// A unit on its way.
    Move { id: u32, set: CopySet },
}

/// Bit of [`CopySet::tried`] for what is made from others, beside that of the strip itself.
const MADE: u8 = 1 << 1;

impl Engine {
    /// Wants a part of a chunk made from what else is in its rows; within one strip.
    pub(in crate::engine) fn reconstruct(&mut self, who: Who, chunk: ChunkId, byte: u64, lanes: Lanes, to: BufRange) {
        self.reconstruct_without(None, who, chunk, byte, lanes, to);
    }

    /// The same without one of the others.
    pub(in crate::engine) fn reconstruct_without(
        &mut self,
        without: Option<u8>,
        who: Who,
        chunk: ChunkId,
        byte: u64,
        lanes: Lanes,
        to: BufRange,
    ) {
        let (row, member) = self.strip_at(chunk, byte);
        let is_urgent = match who {
            Who::Read { owner, .. } => owner.is_interactive(),
            Who::Mend { is_urgent, .. } => is_urgent,
            Who::Move { .. } => false,
        };
        self.want_of_row(row, Other::Reconstruction(Reconstruction { who, member, lanes, to, is_urgent, without }));
    }

    /// A part of a read is made from others, if it is in rows and that was not tried.
    pub(in crate::engine) fn reconstruct_read(&mut self, id: u32, owner: Owner, set: CopySet, buf: BufRange) -> bool {
        let Some(byte) = self.byte_of(&set).filter(|_| set.tried & MADE == 0) else { return false };
        let set = CopySet { tried: set.tried | MADE, ..set };
        self.requests[id].pending += 1;
        self.reconstruct(Who::Read { id, owner, set }, set.chunk, byte, super::lanes(byte, buf.len.into()), buf);
        true
    }

    /// The policy would have it made, although its member can be read.
    pub(in crate::engine) fn avoids(&mut self, set: &CopySet) -> bool {
        if self.selector.policy() != ReadPolicy::ParityAvoidSlow {
            return false;
        }
        let Engine { pool, selector, views, now, .. } = self;
        let Some(chunk) = pool.chunk(set.chunk).filter(|c| c.rows() > 0) else { return false };
        let (own, row) = (usize::from(set.first), (set.chunk, (set.offset / STRIP) as u32));
        let unit = row_unit(row.0, row.1);
        let counts = |device: &DeviceId| pool.is_online(*device) && !pool.is_unit_stale(*device, ROWS, unit);
        let others = chunk.columns.iter().enumerate().filter(|(at, _)| *at != own).map(|(_, column)| column.device);
        let needed = data_stripes(chunk.profile, chunk.columns.len());
        let own = chunk.columns[own].device;
        pool.is_online(own) && selector.avoids(*now, own, others.filter(counts), needed, views)
    }

    /// The same for a unit on its way.
    pub(in crate::engine) fn reconstruct_move(&mut self, id: u32, set: CopySet, buf: BufRange) -> bool {
        let Some(byte) = self.byte_of(&set).filter(|_| set.tried & MADE == 0) else { return false };
        let set = CopySet { tried: set.tried | MADE, ..set };
        self.hold_move(id);
        self.reconstruct(Who::Move { id, set }, set.chunk, byte, super::lanes(byte, buf.len.into()), buf);
        true
    }

    /// Which byte of its chunk a piece of a strip is.
    fn byte_of(&self, set: &CopySet) -> Option<u64> {
        let c = self.pool.chunk(set.chunk).filter(|c| c.rows() > 0)?;
        crate::profile::content_offset(c.profile, c.columns.len(), set.first.into(), set.offset)
    }

    pub(super) fn begin_reconstruction(&mut self, row: RowId, ask: Reconstruction) {
        let id = self.start_work(row, What::Reconstruction(ask));
        if let Some(without) = ask.without {
            self.rows.works[id].members[usize::from(without)].is_good = false;
        }
        if matches!(ask.who, Who::Read { .. }) && self.selector.policy() == ReadPolicy::ParityAvoidSlow {
            self.avoid_slowest(id, ask.member);
        }
        match self.plan_reconstruction(id) {
            true => self.read_work(id),
            false => self.fail_work(id),
        }
    }

    /// Where more is there than it takes, the slowest is read only if something else fails.
    fn avoid_slowest(&mut self, id: u32, made: u8) {
        let work = &self.rows.works[id];
        let others = || work.members.iter().enumerate().filter(|(at, m)| *at != usize::from(made) && m.is_good);
        let devices = others().map(|(_, m)| m.column.device);
        let avoided = without_slowest(self.now, devices, work.data, &self.views).and_then(|(device, _)| device);
        let avoided = others().find(|(_, m)| Some(m.column.device) == avoided).map(|(at, _)| at);
        self.rows.works[id].avoided = avoided;
    }

    pub(super) fn plan_reconstruction(&mut self, id: u32) -> bool {
        let work = &self.rows.works[id];
        let What::Reconstruction(ask) = &work.what else { unreachable!("a reconstruction is planned") };
        let mut wanted = alloc::vec![0; work.members.len()];
        wanted[usize::from(ask.member)] = ask.lanes;
        self.plan_work(id, |row| plan_read(row, &wanted).ok())
    }

    pub(super) fn reconstruct_lanes(&mut self, id: u32) {
        let What::Reconstruction(ask) = self.rows.works[id].what else {
            unreachable!("a reconstruction is carried out")
        };
        let base = u64::from(ask.lanes.trailing_zeros());
        self.make_strips(id, |_, _, lane, count| super::work::part_of(ask.to, lane - base, count));
        self.end_work(id);
    }

    /// Lanes are reconstructed, or cannot be: then each is tried by itself.
    pub(super) fn reconstructed(&mut self, ask: Reconstruction, fine: bool) {
        let Reconstruction { who, lanes, to, .. } = ask;
        let count = lanes.count_ones();
        if !fine && count > 1 && !self.commit.is_dead() {
            return self.reconstruct_apart(ask);
        }
        match who {
            Who::Mend { id, copy, .. } => self.mend_reconstructed(id, copy.into(), lanes, fine),
            Who::Read { id, owner, set } => self.made_for_read(id, owner, set, to, fine),
            Who::Move { id, set } => self.made_for_move(id, set, to, fine),
        }
    }

    fn reconstruct_apart(&mut self, ask: Reconstruction) {
        let base = u64::from(ask.lanes.trailing_zeros());
        let row = self.row_of_reconstruction(&ask);
        for lane in blocks(ask.lanes) {
            let skip = lane - base;
            let shifted = |set: CopySet| CopySet { offset: set.offset + skip * BLOCK, ..set };
            let who = match ask.who {
                Who::Read { id, owner, set } => {
                    self.requests[id].pending += u32::from(skip > 0);
                    Who::Read { id, owner, set: shifted(set) }
                }
                Who::Move { id, set } => {
                    if skip > 0 {
                        self.hold_move(id);
                    }
                    Who::Move { id, set: shifted(set) }
                }
                Who::Mend { id, copy, is_urgent } => {
                    self.hold_mend(id, u32::from(skip > 0));
                    Who::Mend { id, copy, is_urgent }
                }
            };
            let to = super::work::part_of(ask.to, skip, 1);
            self.want_of_row(row, Other::Reconstruction(Reconstruction { who, lanes: 1 << lane, to, ..ask }));
        }
    }

    fn row_of_reconstruction(&self, ask: &Reconstruction) -> RowId {
        match ask.who {
            Who::Read { set, .. } | Who::Move { set, .. } => (set.chunk, (set.offset / STRIP) as u32),
            Who::Mend { id, .. } => self.row_of_mend(id),
        }
    }

    fn made_for_read(&mut self, id: u32, owner: Owner, set: CopySet, buf: BufRange, fine: bool) {
        let volume = self.requests[id].request.volume;
        let len = u64::from(buf.len);
        match (fine, self.is_summed(volume)) {
            (true, true) => {
                let io = Io::new(owner, DeviceOp::Read, DeviceId(0), set.offset, len, self.now);
                return self.verify(Io { buf, set, summed: true, ..io });
            }
            (true, false) => {}
            // The policy had it made, and its own member may still have it.
            (false, _) if self.read_copy(id, owner, set, buf) => {}
            // What its own member had may be well after all: a write passed by, or the sums that it did not agree with are given up.
            (false, _) => self.read_by_mend(id, owner, buf),
        }
        self.count_down(id);
    }

    fn made_for_move(&mut self, id: u32, set: CopySet, buf: BufRange, fine: bool) {
        match fine {
            true => {
                let len = buf.len.into();
                let io = Io::new(Owner::Move(id), DeviceOp::Read, DeviceId(0), set.offset, len, self.now);
                self.move_io_done(id, Io { buf, set, ..io }, Ok(()));
            }
            false => {
                self.note_unreadable_move(id, &set, buf);
                self.count_move_down(id);
            }
        }
    }

    // ---- members that missed something ----------------------------------------------------------------------------

    pub(super) fn begin_rebuild(&mut self, row: RowId) {
        let id = self.start_work(row, What::Rebuild);
        match self.plan_rebuild(id) {
            true => self.read_work(id),
            false => self.fail_work(id),
        }
    }

    /// Members that are there and missed something of the row.
    fn heirs(&self, id: u32) -> Vec<usize> {
        let work = &self.rows.works[id];
        let is_heir = |&member: &usize| {
            let m = &work.members[member];
            !m.is_good && self.pool.is_online(m.column.device) && self.is_row_stale(m.column.device, work.row)
        };
        (0..work.members.len()).filter(is_heir).collect()
    }

    pub(super) fn plan_rebuild(&mut self, id: u32) -> bool {
        let (heirs, members) = (self.heirs(id), self.rows.works[id].members.len());
        self.plan_made(id, |row, left| {
            let mut wanted = alloc::vec![0; members];
            heirs.iter().for_each(|&member| wanted[member] = left);
            plan_read(row, &wanted).ok()
        })
    }

    /// Strips that were made anew are in place, or not. Who went meanwhile is behind again, and the others have theirs.
    pub(super) fn end_rebuild(&mut self, id: u32) {
        let work = &self.rows.works[id];
        let here = work.members.iter().filter(|m| m.new.is_some() && !self.was_away(m.column.device, work.roster));
        if let Some((device, error)) = here.filter_map(|m| Some((m.column.device, m.failed?))).next() {
            self.suspect(device, error);
            self.rows.works[id].error = Some(error);
        }
        self.end_work(id);
    }

    /// A row is caught up, or not; who was there when that began.
    pub(super) fn row_rebuilt(&mut self, work: &Work) {
        let unit = row_unit(work.row.0, work.row.1);
        let failed = |m: &&super::work::Member| m.failed.is_some() && self.pool.is_online(m.column.device);
        let by = work.members.iter().find(failed).map(|m| m.column.device);
        match work.error {
            None => self.stale_unit_done(ROWS, unit),
            Some(_) => self.stale_unit_failed(ROWS, unit, by),
        }
        // Who came meanwhile has nothing of this, and who went and came has not what it had.
        for m in work.members.iter().filter(|_| work.error.is_none()) {
            let device = m.column.device;
            let is_behind = self.pool.is_unit_stale(device, ROWS, unit);
            if is_behind && (self.was_away(device, work.roster) || !m.is_good && m.new.is_none()) {
                self.miss_row(device, work.row, IoError::Gone);
            }
        }
        // What was made of a strip in doubt agrees with it; a parity that was not asked may have another content of it.
        let has_other_parity = work.members.len() - work.data > 1;
        let is_in_doubt = work.error.is_none() && has_other_parity && self.doubts_row(work.row);
        if is_in_doubt || work.judgement.found_something() {
            self.check_row(work.row);
        }
        self.catch_up_ended(ROWS, unit);
    }
}
