//! What is being done to a row: members, memory for their strips, reads, and what checksums say of what was read.

use alloc::vec::Vec;

use super::again::Again;
use super::check::Looker;
use super::judge::Judgement;
use super::suspect::Hunt;
use super::{ALL, Engine, Lanes, Part, Reconstruction, Restore, RowId};
use crate::ChunkType;
use crate::chunk::Column;
use crate::combine::{Addend, Combine};
use crate::engine::Slip;
use crate::engine::mend::{blocks, runs};
use crate::engine::sums::{BESIDE, Need, locate, memory};
use crate::profile::parity::{Make, Plan, Row, Source};
use crate::profile::{column_of, data_stripes};
use crate::queue::class::Class;
use crate::queue::{CopySet, Io, Owner};
use crate::request::{Copy, DeviceOp, IoError, Output, PageWork};
use crate::units::{BLOCK, BufId, BufRange, STRIP};
use crate::volume::block_mask;

/// Bit of questions about strips that were read.
pub(in crate::engine) const TAG: u64 = 1 << 60;
/// Bit of those about which lanes have no checksum, of a row in doubt.
const UNSURE: u64 = 1 << 7;

/// See the module.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) row: RowId,
    pub(super) what: What,
    pub(super) step: Step,
    /// Commands and questions under way, and one more while they are being given out.
    pub(super) pending: u32,
    /// Data members.
    pub(super) data: usize,
    /// Data, then parity.
    pub(super) members: Vec<Member>,
    pub(super) plan: Plan,
    pub(super) trust: Trust,
    /// A member that is read only if it does not go without.
    pub(super) avoided: Option<usize>,
    /// Comings and goings of members when it began.
    pub(super) roster: u64,
    pub(super) epoch: u64,
    /// Bytes of strips in memory.
    pub(super) memory: u64,
    /// Zeros to write.
    pub(super) zeros: Option<BufId>,
    /// What was read again.
    pub(super) again: Again,
    /// A scrub looks for who is wrong.
    pub(super) hunt: Option<Hunt>,
    /// Of what was made for a member.
    pub(super) judgement: Judgement,
    /// The group of the journal that it is in.
    pub(super) group: Option<u64>,
    pub(super) error: Option<IoError>,
    /// By data member, lanes that were given up.
    pub(super) lost: Vec<Lanes>,
}

#[derive(Clone)]
pub(super) enum What {
    Change(Vec<Part>),
    Reconstruction(Reconstruction),
    Restore(Restore),
    Rebuild,
    Check(Looker),
    Copy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Waits until the log says who missed it.
    Note,
    Read,
    Verify,
    Compare,
    /// A data member is tried for what is wrong; what it should be is verified.
    Try,
    Believe,
    /// Lanes that were given up lose their sums.
    Forget,
    /// Zeros go there.
    Zero,
    /// Waits for its group of the journal.
    Journal,
    Write,
}

/// What tells whether a strip that was read is right. Less is asked where nothing could be made of the row otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// Its checksums, whoever they are of.
    Sums,
    /// Its checksums, if they are of what is there now.
    OwnSums,
    /// That it could be read.
    Reads,
}

/// A member of a row.
#[derive(Clone)]
pub(super) struct Member {
    /// Its strip.
    pub(super) column: Column,
    /// It is there and missed nothing.
    pub(super) is_good: bool,
    /// It was compared with its checksums, and they are of what is there now.
    pub(super) has_own_sums: bool,
    /// Lanes that were asked for, those that could not be read, and those that are not what their checksums say.
    pub(super) asked: Lanes,
    pub(super) bad: Lanes,
    pub(super) doubtful: Lanes,
    /// Lanes without a checksum that may have been about to get one when a crash came.
    pub(super) unsure: Lanes,
    /// Lanes that were the same when they were read twice in a row.
    pub(super) steady: Lanes,
    /// What it held, and what it will hold.
    pub(super) old: Option<Strip>,
    pub(super) new: Option<Strip>,
    /// Lanes of `new` that are made.
    pub(super) made: Lanes,
    /// A write of it failed.
    pub(super) failed: Option<IoError>,
}

/// Memory for lanes of a strip, from the first one on.
#[derive(Clone, Copy)]
pub(super) struct Strip {
    pub(super) buf: BufId,
    first: u64,
    end: u64,
}

impl Strip {
    fn holds(&self, lanes: Lanes) -> bool {
        lanes & !block_mask(self.first, self.end) == 0
    }

    pub(super) fn range(&self, first: u64, count: u64) -> BufRange {
        let offset = ((first - self.first) * BLOCK) as u32;
        BufRange { buf: self.buf, offset, len: (count * BLOCK) as u32 }
    }
}

impl Member {
    /// Lanes that can be counted on.
    pub(super) fn good(&self, trust: Trust) -> Lanes {
        let doubtful = match trust {
            Trust::Sums => self.doubtful,
            Trust::OwnSums => self.wrong(),
            Trust::Reads => 0,
        };
        if self.is_good { ALL & !self.bad & !doubtful } else { 0 }
    }

    /// Lanes that are not what was written there last.
    pub(super) fn wrong(&self) -> Lanes {
        if self.has_own_sums { self.doubtful } else { 0 }
    }
}

impl Work {
    /// What holds `lanes` from this one on, and for how many: the content of a source of new parity; zeros without memory.
    fn source(&self, from: Source, lane: u64) -> (Option<BufRange>, u64) {
        match from {
            Source::Old(member) => {
                let strip = self.members[member].old.expect("it was read");
                (Some(strip.range(lane, 1)), u64::MAX)
            }
            Source::New(member) => {
                let What::Change(parts) = &self.what else { unreachable!("nothing new is written") };
                let part = parts.iter().find(|p| usize::from(p.member) == member && p.lanes >> lane & 1 == 1);
                let part = part.expect("it is being written");
                let left = u64::from((part.lanes >> lane).trailing_ones());
                (part.buf.map(|buf| part_of(buf, lane - u64::from(part.first), 1)), left)
            }
        }
    }

    /// Where in its chunk the unit of a data member is.
    pub(super) fn place(&self, member: usize) -> u32 {
        self.row.1 * self.data as u32 + member as u32
    }

    /// Whether a client waits.
    fn is_urgent(&self) -> bool {
        match &self.what {
            What::Change(parts) => parts.iter().any(|p| matches!(p.writer, super::Writer::Request(_))),
            What::Reconstruction(ask) => ask.is_urgent,
            What::Restore(ask) => ask.is_urgent,
            What::Rebuild | What::Check(_) | What::Copy => false,
        }
    }
}

/// Names a question about lanes of a member, from this one on.
pub(super) fn row_tag(id: u32, member: usize, lane: u64) -> u64 {
    TAG | u64::from(id) << 16 | (member as u64) << 8 | lane
}

/// Blocks of memory, counted from its beginning.
pub(super) fn part_of(buf: BufRange, first: u64, count: u64) -> BufRange {
    BufRange { offset: buf.offset + (first * BLOCK) as u32, len: (count * BLOCK) as u32, ..buf }
}

impl Engine {
    /// A work of which nothing is known but its row.
    pub(super) fn start_work(&mut self, row: RowId, what: What) -> u32 {
        let (members, data) = self.members_of(row);
        let (roster, epoch) = (self.roster, self.space.enter());
        self.rows.works.insert(Work {
            row,
            what,
            step: Step::Read,
            pending: 0,
            data,
            members,
            plan: Plan::default(),
            trust: Trust::Sums,
            avoided: None,
            roster,
            epoch,
            memory: 0,
            zeros: None,
            again: Again::default(),
            hunt: None,
            judgement: Judgement::default(),
            group: None,
            error: None,
            lost: Vec::new(),
        })
    }

    /// Members of a row of which nothing was asked, and how many of them have data.
    fn members_of(&self, row: RowId) -> (Vec<Member>, usize) {
        let (chunk, at) = row;
        let c = self.pool.chunk(chunk).expect("rows are of chunks that exist");
        let (n, data) = (c.columns.len(), data_stripes(c.profile, c.columns.len()));
        let member = |member: usize| {
            let column = c.columns[column_of(c.profile, n, at.into(), member)];
            let column = Column { offset: column.offset + u64::from(at) * STRIP, ..column };
            let is_good = self.pool.is_online(column.device) && !self.is_row_stale(column.device, row);
            let (asked, bad, doubtful, unsure, steady, made) = (0, 0, 0, 0, 0, 0);
            let (has_own_sums, old, new, failed) = (false, None, None, None);
            Member { column, is_good, has_own_sums, asked, bad, doubtful, unsure, steady, old, new, made, failed }
        };
        ((0..data + c.profile.facts().parity).map(member).collect(), data)
    }

    /// The same turn of a row goes on with something else.
    pub(super) fn turn_work_into(&mut self, id: u32, what: What) {
        self.drop_strips(id);
        let (members, _) = self.members_of(self.rows.works[id].row);
        let work = &mut self.rows.works[id];
        (work.what, work.members, work.step, work.trust) = (what, members, Step::Read, Trust::Sums);
        (work.plan, work.judgement, work.lost) = (Plan::default(), Judgement::default(), Vec::new());
        (work.hunt, work.zeros, work.memory, work.roster) = (None, None, 0, self.roster);
        work.again = Again::default();
    }

    /// Memory for strips goes back.
    fn drop_strips(&mut self, id: u32) {
        let work = &self.rows.works[id];
        let strips = work.members.iter().flat_map(|m| [m.old, m.new]).flatten().map(|strip| strip.buf);
        let before = work.again.before.iter().map(|(_, strip, _)| strip.buf);
        let hunt = work.hunt.iter().flat_map(|hunt| [Some(hunt.q), hunt.spare]).flatten().map(|strip| strip.buf);
        let drops = strips.chain(before).chain(hunt).chain(work.zeros).map(|buf| Output::Copy(Copy::Drop(buf)));
        self.outputs.extend(drops);
        self.rows.memory -= work.memory;
    }

    /// Asks the planner, with what can be counted on by now; false when too much is lost.
    pub(super) fn plan_work(&mut self, id: u32, ask: impl Fn(&Row<'_>) -> Option<Plan>) -> bool {
        let work = &self.rows.works[id];
        if self.rows.torn.contains_key(&work.row) {
            return false;
        }
        let chunk = self.pool.chunk(work.row.0).expect("a row is in a chunk");
        let counted = if chunk.is_live(work.row.1) { ALL } else { 0 };
        let counted = alloc::vec![counted; work.data];
        let wrong = self.wrong_lanes(id);
        let work = &self.rows.works[id];
        let (trust, avoided, without) = (work.trust, work.avoided, work.judgement.without);
        let tries = [(trust, avoided), (trust, None), (trust.max(Trust::OwnSums), None), (Trust::Reads, None)];
        // What is made to find out who is wrong is made of nothing less.
        for (trust, avoided) in tries.into_iter().take(if without.is_some() { 2 } else { 4 }) {
            let mut good: Vec<Lanes> = work.members.iter().map(|m| m.good(trust)).collect();
            good.iter_mut().zip(&wrong).for_each(|(good, wrong)| *good &= !wrong);
            for member in avoided.into_iter().chain(without) {
                good[member] = 0;
            }
            let parity = work.members.len() - work.data;
            if let Some(plan) = ask(&Row { data: work.data, parity, counted: &counted, good: &good }) {
                let work = &mut self.rows.works[id];
                (work.plan, work.trust) = (plan, trust);
                return true;
            }
        }
        false
    }

    /// By data member, lanes that nothing may be made of although nothing else is left. What is made of the wrong strip is as
    /// wrong as that one. Mostly its own checksum tells: not of a unit in doubt, which may be new where its checksum is old. The
    /// same goes for the strip it would be made of, and that may be nobody's.
    fn wrong_lanes(&self, id: u32) -> Vec<Lanes> {
        let work = &self.rows.works[id];
        let mut wrong = alloc::vec![0; work.data];
        if work.members.iter().all(|m| m.wrong() == 0) {
            return wrong;
        }
        let is_in_doubt = |member| self.doubts_place(work.row.0, work.place(member));
        let is_made = |member| match &work.what {
            What::Reconstruction(ask) => usize::from(ask.member) == member,
            What::Rebuild | What::Copy => !work.members[member].is_good || work.members[member].bad != 0,
            What::Change(_) | What::Restore(_) | What::Check(_) => false,
        };
        if (0..work.data).any(|member| is_made(member) && is_in_doubt(member)) {
            for (member, wrong) in wrong.iter_mut().enumerate() {
                let own = work.members[member].wrong();
                *wrong = if own != 0 && !is_in_doubt(member) { own } else { 0 };
            }
        }
        wrong
    }

    /// Memory for these lanes of a strip.
    pub(super) fn strip_for(&mut self, id: u32, lanes: Lanes) -> Strip {
        let (first, end) = (u64::from(lanes.trailing_zeros()), u64::from(Lanes::BITS - lanes.leading_zeros()));
        let len = (end - first) * BLOCK;
        let buf = self.scratch_of(len);
        self.rows.works[id].memory += len;
        self.rows.memory += len;
        Strip { buf, first, end }
    }

    /// Reads what the plan asks for and was not read yet.
    pub(super) fn read_work(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        (work.step, work.pending) = (Step::Read, 1);
        for (member, lanes) in work.plan.reads.clone() {
            let m = &self.rows.works[id].members[member];
            let (new, old) = (lanes & !m.asked, m.old);
            if new == 0 {
                continue;
            }
            let strip = match old {
                None => self.strip_for(id, lanes),
                Some(strip) if strip.holds(lanes) => strip,
                Some(strip) => self.widen(id, member, strip),
            };
            self.rows.works[id].members[member].old = Some(strip);
            self.rows.works[id].members[member].asked |= new;
            let from = (self.rows.works[id].members[member].column, 0);
            for lane in blocks(new) {
                self.issue_strip(id, (member, lane), DeviceOp::Read, from, strip.range(lane, 1), false);
            }
        }
        self.count_work_down(id);
    }

    /// Memory for all of a strip, with what is in it already.
    fn widen(&mut self, id: u32, member: usize, old: Strip) -> Strip {
        let asked = self.rows.works[id].members[member].asked;
        let new = self.strip_for(id, ALL);
        for (first, count) in runs(asked) {
            let (from, to) = (old.range(first, count), new.range(first, count));
            self.outputs.push_back(Output::Copy(Copy::Move { from, to }));
        }
        self.outputs.push_back(Output::Copy(Copy::Drop(old.buf)));
        new
    }

    /// Lanes of a strip, into or out of memory: where it is, or is going to be.
    pub(super) fn issue_strip(
        &mut self,
        id: u32,
        (member, lane): (usize, u64),
        op: DeviceOp,
        (column, copy): (Column, u8),
        buf: BufRange,
        no_merge: bool,
    ) {
        let work = &mut self.rows.works[id];
        work.pending += 1;
        let is_urgent = work.is_urgent();
        let class = match op {
            DeviceOp::Read if is_urgent => Class::SyncRead,
            DeviceOp::Read => Class::AsyncRead,
            _ if is_urgent => Class::SyncWrite,
            _ => Class::AsyncWrite,
        };
        let set = CopySet { chunk: work.row.0, first: member as u16, copy, tried: 0, offset: lane * BLOCK };
        let owner = if is_urgent { Owner::Row(id) } else { Owner::RowInBackground(id) };
        let io = Io::new(owner, op, column.device, column.offset + lane * BLOCK, buf.len.into(), self.now);
        self.issue(Io { buf, set, kind: ChunkType::Data, no_merge, class, charged: class, ..io });
    }

    /// The row that a work is about.
    pub(in crate::engine) fn row_of_work(&self, id: u32) -> RowId {
        self.rows.works[id].row
    }

    /// A command about a strip is over.
    pub(in crate::engine) fn strip_done(&mut self, id: u32, io: &Io, result: Result<(), IoError>) {
        let member = &mut self.rows.works[id].members[usize::from(io.set.first)];
        match (io.op, result) {
            (_, Ok(())) => {}
            (DeviceOp::Read, Err(_)) => member.bad |= super::lanes(io.set.offset, io.len),
            (_, Err(_)) if io.set.copy == BESIDE => self.shift_failed(io.set.chunk),
            (_, Err(error)) => member.failed = Some(error),
        }
        self.count_work_down(id);
    }

    pub(super) fn count_work_down(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        work.pending -= 1;
        if work.pending > 0 {
            return;
        }
        match work.step {
            Step::Read => self.verify_work(id),
            Step::Verify => self.work_verified(id),
            Step::Compare => self.parity_compared(id),
            Step::Try => self.member_tried(id),
            Step::Believe if work.hunt.is_some() => self.member_believed(id),
            Step::Believe => self.strips_judged(id),
            Step::Write => self.work_written(id),
            Step::Forget => self.zero_lost_lanes(id),
            Step::Zero => self.lanes_zeroed(id),
            step @ (Step::Note | Step::Journal) => unreachable!("nothing is under way in {step:?}"),
        }
    }

    /// What was read of data is compared with its checksums. Blocks without one are believed, unless theirs is about to come.
    fn verify_work(&mut self, id: u32) {
        let work = &mut self.rows.works[id];
        (work.step, work.pending) = (Step::Verify, 1);
        self.compare_believed(id);
        let work = &self.rows.works[id];
        if self.sums.is_on() && work.trust != Trust::Reads {
            for member in 0..self.rows.works[id].data {
                let m = &self.rows.works[id].members[member];
                if m.asked & !m.bad != 0 {
                    self.compare_strip(id, member);
                }
            }
        }
        self.count_work_down(id);
    }

    /// Compares a strip with its checksums, but not with those that nobody keeps any more.
    pub(super) fn compare_strip(&mut self, id: u32, member: usize) {
        let work = &self.rows.works[id];
        let (chunk, place) = (work.row.0, work.place(member));
        if self.pool.chunk(chunk).is_some_and(|c| c.is_unsummed(place)) {
            return;
        }
        let has_own_sums = self.has_own_sums(chunk, place);
        let work = &mut self.rows.works[id];
        // Sums that followed a write meanwhile say something else than when it was asked before.
        let m = &mut work.members[member];
        (m.has_own_sums, m.doubtful, m.unsure) = (has_own_sums, 0, 0);
        work.pending += 1;
        let (index, first) = locate(self.sums.kind(), u64::from(place) * STRIP);
        self.with_page(chunk, index, Need::Row { work: id, member: member as u8, first });
    }

    /// The page with the sums of a strip is in memory.
    pub(in crate::engine) fn row_page_ready(&mut self, id: u32, member: u8, first: u16, slot: u32) {
        let work = &self.rows.works[id];
        let (row, is_change) = (work.row, matches!(work.what, What::Change(_)));
        let is_in_doubt = is_change && self.is_row_left(row);
        let work = &self.rows.works[id];
        let m = &work.members[usize::from(member)];
        let (lanes, strip) = if work.step == Step::Believe { (m.made, m.new) } else { (m.asked & !m.bad, m.old) };
        let strip = strip.expect("it was read, or made");
        let (kind, page) = (self.sums.kind(), memory(slot, 0));
        // Its first sums may be among those that are to follow, or that a crash took: what has none is not what nobody sums.
        let asks = match work.step {
            Step::Verify if self.sums.is_lagging(work.row.0, work.place(member.into())) => Some(0),
            Step::Verify if is_in_doubt => Some(UNSURE),
            _ => None,
        };
        if let Some(about) = asks {
            for (lane, count) in runs(lanes & !self.written(id)[usize::from(member)]) {
                self.rows.works[id].pending += 1;
                let (tag, first, count) = (row_tag(id, member.into(), lane) | about, first + lane as u16, count as u16);
                self.outputs.push_back(Output::Page(PageWork::Unsummed { tag, kind, page, first, count }));
            }
        }
        for (lane, count) in runs(lanes) {
            self.rows.works[id].pending += 1;
            let tag = row_tag(id, member.into(), lane);
            let (data, first) = (strip.range(lane, count), first + lane as u16);
            self.outputs.push_back(Output::Page(PageWork::Verify { tag, kind, data, page, first }));
        }
        self.count_work_down(id);
    }

    /// It cannot be had: what was read is believed, what was made for a member too. What was made to explain parity is not, nor
    /// what a member has that missed something.
    pub(in crate::engine) fn row_page_refused(&mut self, id: u32, member: u8) {
        let work = &mut self.rows.works[id];
        let m = &mut work.members[usize::from(member)];
        match work.step {
            Step::Believe if work.hunt.is_some() => m.doubtful = m.made,
            Step::Verify if work.judgement.asks_heirs => m.doubtful = m.asked,
            _ => {}
        }
        self.count_work_down(id);
    }

    /// The host's answer about a part of a strip.
    pub(in crate::engine) fn row_verified(&mut self, tag: u64, bad: u16) {
        let (id, member, lane) = (((tag & !TAG) >> 16) as u32, (tag >> 8 & 0xff) as usize, tag & 0xf);
        let m = &mut self.rows.works[id].members[member];
        match tag & UNSURE {
            0 => m.doubtful |= bad << lane,
            _ => m.unsure |= bad << lane,
        }
        self.count_work_down(id);
    }

    /// Everything that was asked for is here, or is not to be had: then something else is asked for.
    fn work_verified(&mut self, id: u32) {
        let work = &self.rows.works[id];
        if matches!(work.what, What::Check(_)) {
            return self.check_parity_of(id);
        }
        if work.judgement.asks_heirs {
            return self.keep_what_heirs_have(id);
        }
        let lacks = |&(member, lanes): &(usize, Lanes)| {
            let m = &work.members[member];
            lanes & !(m.asked & m.good(work.trust)) != 0
        };
        if work.plan.reads.iter().any(lacks) {
            return self.plan_again(id);
        }
        if self.read_believed_again(id) {
            return;
        }
        match self.rows.works[id].what {
            What::Change(_) => self.make_change(id),
            What::Reconstruction(_) => self.reconstruct_lanes(id),
            What::Rebuild | What::Copy => self.make_and_judge(id),
            What::Restore(_) | What::Check(_) => unreachable!("it is not planned"),
        }
    }

    pub(super) fn plan_again(&mut self, id: u32) {
        let fits = match &self.rows.works[id].what {
            What::Change(_) => self.plan_change_of(id),
            What::Reconstruction(_) => self.plan_reconstruction(id),
            What::Rebuild => self.plan_rebuild(id),
            What::Copy => self.plan_copy(id),
            What::Restore(_) | What::Check(_) => false,
        };
        match fits {
            true => self.read_work(id),
            false => self.fail_work(id),
        }
    }

    /// Makes what the plan says, each member's in its own memory or where `to` says.
    pub(super) fn make_strips(&mut self, id: u32, to: impl Fn(&Engine, usize, u64, u64) -> BufRange) {
        for Make { to: targets, lanes, addends } in self.rows.works[id].plan.makes.clone() {
            for (first, count) in runs(lanes) {
                let (mut lane, end) = (first, first + count);
                while lane < end {
                    let work = &self.rows.works[id];
                    let mut len = end - lane;
                    for addend in &addends {
                        len = len.min(work.source(addend.from, lane).1);
                    }
                    let with = |addend: &crate::profile::parity::Addend| {
                        let from = work.source(addend.from, lane).0?;
                        Some(Addend { from: BufRange { len: (len * BLOCK) as u32, ..from }, times: addend.times })
                    };
                    let addends: Vec<Addend> = addends.iter().filter_map(with).collect();
                    let addends = self.bent(addends);
                    let to = targets.map(|member| member.map(|member| to(self, member, lane, len)));
                    self.outputs.push_back(Output::Combine(Combine { to, addends }));
                    lane += len;
                }
            }
        }
    }

    /// As they should be, unless something is to go wrong.
    fn bent(&self, mut addends: Vec<Addend>) -> Vec<Addend> {
        if self.slips(Slip::WrongFactor)
            && let Some(last) = addends.last_mut()
        {
            last.times[1] ^= u8::from(last.times[1] != 0) << 1;
        }
        addends
    }

    /// Nothing can be made of what is left of the row.
    pub(super) fn fail_work(&mut self, id: u32) {
        let error = IoError::Media;
        self.rows.works[id].error.get_or_insert(error);
        self.end_work(id);
    }

    /// Memory goes back, the row is free, and whoever waits hears.
    pub(super) fn end_work(&mut self, id: u32) {
        self.drop_strips(id);
        let work = self.rows.works.remove(id);
        self.space.leave(work.epoch);
        self.leave_row(work.row);
        match &work.what {
            What::Change(parts) => {
                for part in parts {
                    self.note_sums_lag(part.writer, work.row.0, work.place(part.member.into()));
                    self.row_written(part.writer, work.error);
                }
                if parts.iter().any(|part| part.writer == super::Writer::Nobody) {
                    self.row_copied(&work);
                }
            }
            What::Reconstruction(ask) => self.reconstructed(*ask, work.error.is_none()),
            What::Restore(ask) => self.strip_restored(*ask, &work),
            What::Rebuild => self.row_rebuilt(&work),
            What::Check(by) => self.checked(*by, &work),
            What::Copy => self.row_copied(&work),
        }
    }
}
