//! The engine: the only code with a hand in every room.
//!
//! ```text
//!   Submit -> admit -> range lock -> map -> profile -> read policy -> device queue -> Issue
//!                         ^                                               |
//!   Reply <- log, flush <-+---- countdown <------------------------- Complete
//! ```
//!
//! | file | part of a request's life |
//! |---|---|
//! | `mod.rs` | the door, commands of devices, countdowns, errors of devices |
//! | `admit.rs` | in and out: refusals, parking, answers, counters |
//! | `data.rs` | reads, writes, and what a client can do to space |
//! | `space.rs` | units and chunks: handing out, taking back |
//! | `commit/` | log groups, flushes, checkpoints |
//! | `intent.rs`, `resync.rs` | where a write may be under way; after a crash, copies made alike there |
//! | `rows/` | strips with parity: written, and made from others |
//! | `stale.rs`, `offline.rs`, `states.rs` | what members missed, and how they catch up; members that come and go |
//! | `members.rs` | what queues and read policy know of the members |
//! | `control.rs` | commands of the operator, reports |
//! | `plug.rs` | what a client holds back, in the laboratory |
//! | `slip.rs` | what goes wrong on purpose, in the laboratory |
//! | `mend/` | all copies of a unit made alike |
//! | `sums/` | checksums: made, compared, kept |
//! | `scrub/` | not part of any: reading everything and comparing copies |
//! | `moving/` | nor this: content on its way to another place, members that come and go |

mod admit;
mod commit;
mod control;
mod data;
mod intent;
mod lapsed;
mod lost;
mod members;
mod mend;
mod meter;
mod moving;
mod offline;
mod owners;
mod plug;
mod resync;
mod rows;
mod scrub;
mod slip;
mod space;
mod stale;
mod states;
mod sums;

pub use admit::REQUESTS_MAX;
use control::Due;
pub use slip::Slip;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use crate::control::{ControlError, Done, ErrorKind};
use crate::device::DeviceState;
use crate::meta::Bytes;
use crate::meta::assembly::{Damage, MetaRead, Opened};
use crate::meta::journal::{Journal, Lsn};
use crate::meta::record::Record;
use crate::pool::Pool;
use crate::queue::class::Class;
use crate::queue::limits::Dirty;
use crate::queue::stats::QueueStats;
use crate::queue::wakes::Wakes;
use crate::queue::{CopySet, Departure, Io, Owner};
use crate::range_lock::RangeLock;
use crate::read_policy::{DeviceView, Selector};
use crate::report::Counters;
use crate::request::{Copy, DeviceOp, Dispatch, Event, Input, IoError, Output, Request, RequestError, Segment};
use crate::scrub::SCRATCH_MAX;
use crate::slab::Slab;
use crate::units::{BLOCK, BufId, BufRange, DeviceId, Instant, IoId, Uuid};

/// A client's request on its way.
#[derive(Clone)]
struct Active {
    request: Request,
    /// I/Os to wait for.
    pending: u32,
    phase: Phase,
    error: Option<RequestError>,
    /// Which epoch of [`space`] it belongs to.
    epoch: u64,
    /// Its data was written with force unit access.
    forced: bool,
    /// It writes to regions that are marked, and counts there.
    intends: bool,
    /// [`Engine::roster`] when it began.
    roster: u64,
    /// Rare, and so not part of what is copied for every request.
    trouble: Option<Box<Trouble>>,
    /// Nothing of a read's range was ever written.
    hole: bool,
    /// Scratch blocks of unaligned edges.
    scratch: [Option<BufId>; 2],
    arrived: Instant,
    /// When its present wait for a lock, for room or for the log began.
    waits_since: Instant,
}

/// What `docs/limits.md` counts with.
const _: () = assert!(size_of::<Active>() <= 112 && size_of::<Io>() <= 112);

/// What went wrong so far.
#[derive(Clone, Default)]
struct Trouble {
    /// Copies of a write that a device did not take.
    missed: Vec<(DeviceId, CopySet, IoError)>,
    /// Parts of a read that no copy could give whole; see [`Engine::read_elsewhere`].
    doubtful: Vec<(Owner, CopySet, BufRange)>,
    /// Some part of it did not agree with its checksums; if those are given up meanwhile, a mend decides.
    is_in_question: bool,
    /// Parts of a read that mends will answer.
    mends: u32,
    /// It waits for nothing else, and has left its epoch.
    rests: bool,
    /// What it wrote may have gone with a cache, and it is to be stable when it is answered.
    is_unstable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for the range lock.
    Parked,
    /// Reads, or writes data.
    Data,
    /// Reads the blocks that an unaligned write covers in part.
    Edges,
    /// Puts in the checksums of what was written.
    Sums,
    /// Waits for the log, or for a flush.
    Commit,
}

/// Who waits for the log or a flush.
#[derive(Clone)]
enum Waiter {
    Request(u32),
    /// The checkpoint under way looks by itself.
    Checkpoint,
    /// A first write without room.
    Starved(u32),
    /// A mend whose winners nobody may see before they are stable.
    Mend(u32),
    Control {
        tag: u64,
        done: Done,
    },
    /// The stripe journal, whose place is to be written over.
    Ring,
    /// Units that were copied to other places.
    Copies,
    /// A work at a row that gave up lanes of it.
    Lost(u32),
    /// A column that was copied to another member: the number of its flush.
    Column(u64),
    /// A device that joins: checkpoints to come.
    Join {
        tag: u64,
        device: DeviceId,
        slots: u8,
    },
    /// A member that leaves: the checkpoint without it.
    Part {
        device: DeviceId,
    },
}

/// A pool that is served. See the crate's documentation for the law of the door.
#[derive(Clone)]
pub struct Engine {
    pool: Pool,
    now: Instant,
    outputs: VecDeque<Output>,

    requests: Slab<Active>,
    locks: RangeLock,
    granted: Vec<u32>,

    ios: Slab<Io>,
    queues: members::Queues,
    /// Devices with I/Os admitted since the last drain.
    touched: Vec<DeviceId>,
    plugs: plug::Plugs,
    slip: Option<Slip>,
    /// When queues want to be asked again.
    wakes: Wakes,
    /// What queues know of the log: see [`Engine::dirty`].
    dirty: Option<Dirty>,
    views: Vec<DeviceView>,
    selector: Selector,

    journal: Journal,
    commit: commit::Commit,
    space: space::Space,
    scrub: scrub::Work,
    moving: moving::Work,
    mends: Slab<mend::Mend>,
    wanted: mend::wanted::Wanted,
    intent: intent::Intent,
    resync: resync::Resync,
    /// Blocks that no copy has, as far as that was noticed.
    lost: lost::Noticed,
    rows: rows::Rows,
    stale: stale::Stale,
    /// Members that are not in use.
    absent: usize,
    /// The number of the list of who is here: another one whenever a member comes or goes.
    roster: u64,
    sums: sums::Sums,
    /// The clock on the wall: at that moment it said so many seconds since 1970.
    wall: (Instant, u64),

    counters: Counters,
    next_scratch: u32,
}

impl Engine {
    /// Goes on with a pool that was read back; `boot` is the present boot of the machine, `opening` a random number that
    /// was never used before: it tells this run from every other one, also from those of a part of the same pool.
    /// The first thing the engine does is a checkpoint, so that the log of the run before is never needed again; before that it
    /// writes what it found in the stripe journal, and where members are missing or behind it claims the pool.
    pub fn new(opened: Opened, now: Instant, boot: Uuid, opening: Uuid) -> Engine {
        Engine::begin(opened, now, boot, opening, None)
    }

    /// For clients of the run before, who go on with this one although that could not write its last records: what they were
    /// answered and had not flushed may be gone, and the next flush of each volume hears of it.
    pub fn after_loss(mut self) -> Engine {
        self.commit.owed.extend(self.pool.volumes().map(|v| v.id));
        self
    }

    fn begin(opened: Opened, now: Instant, boot: Uuid, opening: Uuid, slip: Option<Slip>) -> Engine {
        let Opened {
            pool,
            mut superblock,
            mut behind,
            older,
            log_copies_differ,
            pages,
            root,
            next_lsn,
            next_seq,
            orphans,
            unflushed,
            damaged,
            replay,
            ..
        } = opened;
        superblock.note_opening(opening);
        superblock.without = pool.away();
        superblock.name_lagging(|id| pool.device(id).map_or(0, |d| d.age.image));
        behind.retain(|&id, _| pool.is_online(id));
        let is_claimed = !behind.is_empty() || pool.devices().any(|d| d.state == DeviceState::Missing);
        superblock.generation += u64::from(is_claimed);
        let claim = is_claimed.then(|| commit::Claim { superblock: superblock.clone(), behind, older: older.clone() });
        superblock.epoch = superblock.epoch.wrapping_add(1);
        superblock.boot = boot;
        let (blocks, epoch) = (u64::from(superblock.log_blocks), superblock.epoch);
        let journal = Journal::new(pool.uuid, epoch, blocks, next_seq, next_lsn);
        let mut engine = Engine {
            now,
            outputs: VecDeque::new(),
            requests: Slab::default(),
            locks: RangeLock::default(),
            granted: Vec::new(),
            ios: Slab::default(),
            queues: members::Queues::default(),
            touched: Vec::new(),
            plugs: plug::Plugs::default(),
            slip,
            wakes: Wakes::default(),
            dirty: None,
            views: Vec::new(),
            selector: Selector::new(pool.properties.read_policy),
            journal,
            commit: commit::Commit::new(superblock, claim, pages, root),
            space: space::Space::default(),
            scrub: scrub::Work::default(),
            moving: moving::Work::default(),
            mends: Slab::default(),
            wanted: mend::wanted::Wanted::default(),
            intent: intent::Intent::default(),
            resync: resync::Resync::default(),
            lost: lost::Noticed::default(),
            rows: rows::Rows::default(),
            stale: stale::Stale::default(),
            absent: 0,
            roster: 0,
            sums: sums::Sums::new(pool.properties.checksum),
            wall: (now, 0),
            counters: Counters::default(),
            next_scratch: u32::MAX - 1,
            pool,
        };
        engine.post_views();
        // The run before may have left writes that nothing flushed.
        for id in 0..engine.pool.device_ids_end() {
            if let Some(device) = engine.pool.device_mut(DeviceId(id as u32))
                && device.state.is_used()
            {
                device.written = 1;
                engine.commit.dirty.insert(device.id);
            }
        }
        let missing = |d: &&crate::device::Device| d.state == DeviceState::Missing;
        let missing: Vec<DeviceId> = engine.pool.devices().filter(missing).map(|d| d.id).collect();
        missing.into_iter().for_each(|id| engine.note_gone(id));
        older.iter().for_each(|&id| engine.note_older(id));
        engine.take_up_job();
        engine.find_open_chunks();
        engine.orphan_pages(orphans);
        engine.reserve_all_sums();
        engine.adopt_marks();
        engine.adopt_doubts();
        engine.adopt_ring();
        engine.adopt_unflushed(unflushed);
        engine.tell_damaged(&damaged);
        if is_claimed || log_copies_differ {
            engine.park_requests();
        }
        if !engine.replay(replay) {
            engine.start_checkpoint();
        }
        engine
    }

    /// Copies of records that the opening could not use; what they were of is written anew by its checkpoint.
    fn tell_damaged(&mut self, damaged: &[Damage]) {
        for &Damage { place: MetaRead { device, offset, len }, error } in damaged {
            let Some(member) = self.pool.device_mut(device) else { continue };
            let event = match error {
                Some(error) => {
                    member.counters.read_errors += 1;
                    member.last_error = Some((DeviceOp::Read, error));
                    Event::DeviceError { device, op: DeviceOp::Read, offset, len, error }
                }
                None => {
                    self.count_wrong(device, len / BLOCK);
                    Event::BadRecord { device, device_offset: offset, len }
                }
            };
            self.outputs.push_back(Output::Event(event));
        }
    }

    /// The pool as it is.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Takes in one thing that happened at `now`.
    pub fn handle(&mut self, now: Instant, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Submit(request) => self.submit(request),
            Input::Complete { id, result } => self.complete(id, result, false),
            Input::Intact { id } => self.complete(id, Ok(()), true),
            Input::Control { tag, command } => match self.control(command) {
                Ok((done, Due::Now)) => self.outputs.push_back(Output::Done { tag, result: Ok(done) }),
                Ok((done, Due::Stable(lsn))) => self.wait_stable(lsn, Waiter::Control { tag, done }),
                Ok((done, Due::Checkpoint)) => self.join_checkpoint(Waiter::Control { tag, done }),
                Ok((_, Due::Joined { device, slots })) => self.join_checkpoint(Waiter::Join { tag, device, slots }),
                Err(error) => self.outputs.push_back(Output::Done { tag, result: Err(error) }),
            },
            Input::Compared { tag, equal } if tag & mend::TAG != 0 => self.mend_compared(tag, equal),
            Input::Compared { tag, equal } if tag & rows::TAG != 0 => self.row_compared(tag, equal),
            Input::Compared { tag, equal } => self.scrub_compared(tag, equal),
            Input::Verified { tag, bad } => self.verified(tag, bad),
            Input::Superblock { tag, generation } => self.slot_checked(tag, generation),
            Input::Digested { tag, crc } => self.digested(tag, crc),
            Input::Clock { unix_s } => self.wall = (self.now, unix_s),
            Input::Tick => {}
        }
    }

    /// The next thing to do; [`Output::Idle`] ends the drain.
    pub fn poll(&mut self, now: Instant) -> Output {
        self.now = self.now.max(now);
        match self.outputs.pop_front() {
            Some(output) => output,
            None => self.drain(),
        }
    }

    /// All that was decided is handed out: what follows from what came in since. Apart from [`poll`](Self::poll), which
    /// nearly always has something at hand and would pay for the size of this.
    #[inline(never)]
    fn drain(&mut self) -> Output {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output;
            }
            self.drive_commit();
            if self.rows_turn() {
                continue;
            }
            let came_back = self.dispatch();
            if self.outputs.is_empty() && !came_back {
                if self.resync_turn() | self.catch_up_turn() | self.mend_wanted() {
                    continue;
                }
                // Last, so that clients' commands are on their way while it looks for work.
                match self.scrub_turn().max(self.moving_turn()) {
                    scrub::Turn::Moved => {}
                    scrub::Turn::Later => {
                        self.sums.drained();
                        return Output::Idle { until: Some(self.now) };
                    }
                    scrub::Turn::Nothing => {
                        self.sums.drained();
                        let until = self
                            .commit_deadline()
                            .into_iter()
                            .chain(self.checkpoint_deadline())
                            .chain(self.clean_deadline())
                            .chain(self.catch_up_deadline())
                            .chain(self.moving_wake())
                            .chain(self.homing_deadline())
                            .chain(self.spare_deadline())
                            .chain(self.gathering_deadline())
                            .chain(self.wakes.next())
                            .min();
                        return Output::Idle { until };
                    }
                }
            }
        }
    }

    /// Memory of a dispatch, in device order; empty for operations without payload.
    pub fn segments(&self, id: IoId) -> impl Iterator<Item = Segment<'_>> {
        let (mut next, mut at) = (Some(id), self.ios[id.0].offset);
        core::iter::from_fn(move || {
            let io = &self.ios[next?.0];
            if !matches!(io.op, DeviceOp::Read | DeviceOp::Write { .. }) {
                return None;
            }
            if io.offset > at {
                let gap = io.offset - at;
                at = io.offset;
                return Some(Segment::Gap(gap));
            }
            (next, at) = (io.next, io.offset + io.len);
            Some(match &io.record {
                Some(record) => Segment::Record(record),
                None => Segment::Payload(io.buf),
            })
        })
    }

    /// The I/Os of a command, in device order.
    fn command(&self, id: IoId) -> impl Iterator<Item = &Io> {
        core::iter::successors(Some(&self.ios[id.0]), |io| io.next.map(|next| &self.ios[next.0]))
    }

    /// Bytes of a command from end to end, and those that its I/Os asked for.
    #[inline(never)]
    fn extent(&self, id: IoId) -> (u64, u64) {
        let start = self.ios[id.0].offset;
        self.command(id).fold((0, 0), |(_, wanted), io| (io.offset + io.len - start, wanted + io.len))
    }

    /// The class that a command in flight counts against; flushes count against none, whatever this says.
    pub fn class_of(&self, id: IoId) -> Class {
        self.ios[id.0].charged
    }

    /// When the first of the I/Os of a command in flight was asked for.
    pub fn asked_at(&self, id: IoId) -> Instant {
        self.command(id).map(|io| io.admitted).min().unwrap_or(self.now)
    }

    /// What a member's queue has and had, by class; `None` for a stranger. The same as in the
    /// [report](Self::report), without a copy.
    pub fn queue_stats(&self, device: DeviceId) -> Option<&QueueStats> {
        self.queues.get(device).map(|queue| &queue.stats)
    }

    /// For the laboratory: how much of a run a read policy is asked about at once, see [`crate::read_policy::stream`]; 0
    /// asks for every piece.
    pub fn set_stream_window(&mut self, bytes: u64) {
        self.selector.set_stream_window(bytes);
    }

    /// Requests not yet answered.
    pub fn in_flight(&self) -> usize {
        self.requests.len() + self.parked()
    }

    /// Ranges of volumes that are held now, by clients, by mends and by a job.
    pub fn locked(&self) -> usize {
        self.locks.held_count()
    }

    /// Nothing is under way: no request, no I/O, no commit.
    pub fn is_quiet(&self) -> bool {
        self.requests.len() == 0
            && self.ios.len() == 0
            && self.mends.len() == 0
            && self.rows.is_idle()
            && !self.is_parking()
    }

    /// A scratch block of the host's.
    fn scratch(&mut self) -> BufId {
        self.scratch_of(BLOCK)
    }

    fn scratch_of(&mut self, len: u64) -> BufId {
        assert!(len <= SCRATCH_MAX, "hosts have no scratch of {len} bytes");
        let id = BufId(self.next_scratch);
        // The upper half of the ids is for scratch; far fewer are ever in use at once.
        self.next_scratch = if self.next_scratch == 1 << 31 { u32::MAX - 1 } else { self.next_scratch - 1 };
        self.outputs.push_back(Output::Copy(Copy::Scratch { buf: id, len: len as u32 }));
        id
    }

    // ---- device commands ------------------------------------------------------------------------------------------

    /// Hands an I/O to its device's queue.
    fn issue(&mut self, io: Io) {
        let (device, interactive) = (io.device, io.owner.is_interactive());
        if let Some(view) = self.views.get_mut(device.index()) {
            match io.op {
                DeviceOp::Read => {
                    view.admitted(self.now, io.offset, io.len, interactive);
                    self.selector.read_admitted(io.len);
                }
                DeviceOp::Write { .. } => view.admitted(self.now, io.offset, io.len, interactive),
                _ => {}
            }
        }
        let id = IoId(self.ios.insert(io));
        let Engine { plugs, ios, requests, .. } = self;
        match plugs.of(&ios[id.0], requests) {
            Some(held) => held.push(id),
            None => self.enqueue(device, id),
        }
    }

    fn enqueue(&mut self, device: DeviceId, id: IoId) {
        self.queues[device.index()].admit(self.now, id, &mut self.ios[id.0]);
        self.touch(device);
    }

    /// The device's queue is looked at when the batch ends.
    fn touch(&mut self, device: DeviceId) {
        if !core::mem::replace(&mut self.queues[device.index()].is_touched, true) {
            self.touched.push(device);
        }
    }

    fn issue_simple(&mut self, owner: Owner, device: DeviceId, op: DeviceOp, offset: u64, len: u64) {
        self.issue(Io::new(owner, op, device, offset, len, self.now));
    }

    fn issue_record(&mut self, owner: Owner, device: DeviceId, offset: u64, record: Bytes, fua: bool) {
        let io = Io::new(owner, DeviceOp::Write { fua }, device, offset, record.len() as u64, self.now);
        self.issue(Io { record: Some(record), ..io });
    }

    /// Ends a batch: neighbours join and commands leave. What still waits for a member that is not used any more comes
    /// back at once; says whether there was any.
    #[inline(never)]
    fn dispatch(&mut self) -> bool {
        self.post_dirty();
        if self.wakes.next().is_some_and(|at| at <= self.now) {
            let due: Vec<DeviceId> = self.wakes.due(self.now).collect();
            due.into_iter().for_each(|device| self.touch(device));
        }
        if self.touched.is_empty() {
            return false;
        }
        let mut came_back = false;
        while let Some(device) = self.touched.pop() {
            self.queues[device.index()].is_touched = false;
            if !self.pool.is_online(device) {
                for id in self.queues[device.index()].take_waiting(self.now, &self.ios) {
                    let io = self.ios.remove(id.0);
                    if let (Some(view), DeviceOp::Read | DeviceOp::Write { .. }) =
                        (self.views.get_mut(device.index()), io.op)
                    {
                        view.completed_other(self.now, io.owner.is_interactive());
                    }
                    self.retire(io, Err(IoError::Gone), false);
                    came_back = true;
                }
                self.wakes.set(device, self.queues[device.index()].wake_at());
                continue;
            }
            let Engine { queues, ios, outputs, pool, views, now, .. } = self;
            let view = &mut views[device.index()];
            let counters = &mut pool.device_mut(device).expect("I/Os go to members").counters;
            queues[device.index()].dispatch(*now, ios, |Departure { head: id, op, offset, len, members }| {
                let bytes = match op {
                    DeviceOp::Read => (&mut counters.reads, Some(&mut counters.read_bytes)),
                    DeviceOp::Write { .. } => (&mut counters.writes, Some(&mut counters.write_bytes)),
                    DeviceOp::Flush => (&mut counters.flushes, None),
                    DeviceOp::Discard | DeviceOp::WriteZeroes => (&mut counters.discards, None),
                };
                *bytes.0 += 1;
                if let Some(sum) = bytes.1 {
                    *sum += len;
                    counters.ios += members;
                    counters.merged += members - 1;
                }
                // A flush has no place; what it covers stands in its offset.
                if op != DeviceOp::Flush {
                    view.last_offset = offset + len;
                }
                outputs.push_back(Output::Issue(Dispatch { id, device, op, offset, len }));
            });
            view.active = queues[device.index()].in_flight();
            self.wakes.set(device, self.queues[device.index()].wake_at());
        }
        came_back
    }

    /// `intact`: what was read is what its checksums say.
    fn complete(&mut self, id: IoId, result: Result<(), IoError>, intact: bool) {
        let head = self.ios.get(id.0).expect("a completion names a dispatch in flight");
        let (device, op, offset, head_next) = (head.device, head.op, head.offset, head.next);
        let latency = self.now.since(head.admitted);
        let (len, wanted) = if head_next.is_some() { self.extent(id) } else { (head.len, head.len) };
        let queue = &mut self.queues[device.index()];
        queue.complete(self.now, head, len, wanted);
        self.views[device.index()].active = queue.in_flight();
        self.touch(device);
        if let Err(error) = result {
            self.device_error(id, device, op, offset, error);
        }
        if let Some(member) = self.pool.device_mut(device) {
            if matches!(op, DeviceOp::Read | DeviceOp::Write { .. }) && latency > member.slow_ns() {
                member.counters.slow += 1;
            }
            match op {
                DeviceOp::Read => member.counters.read_ns += latency,
                DeviceOp::Write { .. } => member.counters.write_ns += latency,
                _ => {}
            }
            // Whoever is not there any more has nothing to flush: what it may have got counts as missed.
            if member.state.is_used() && matches!(op, DeviceOp::Write { fua: false } | DeviceOp::WriteZeroes) {
                if !member.is_dirty() {
                    self.commit.dirty.insert(device);
                }
                member.written += 1;
                self.commit.unflushed = true;
            }
        }
        if is_about_a_place(result) && head_next.is_some() {
            return self.part(device, id);
        }
        let (mut next, mut is_head) = (Some(id), true);
        while let Some(id) = next {
            let io = self.ios.remove(id.0);
            next = io.next;
            self.queues[device.index()].member_done(self.now, &io);
            let interactive = io.owner.is_interactive();
            if let Some(view) = self.views.get_mut(device.index()) {
                match op {
                    // One command, one measurement, however many I/Os it served.
                    DeviceOp::Read if result.is_ok() && is_head => view.completed_read(self.now, latency, interactive),
                    DeviceOp::Read | DeviceOp::Write { .. } => view.completed_other(self.now, interactive),
                    _ => {}
                }
            }
            is_head = false;
            self.retire(io, result, intact);
        }
    }

    /// A command of several I/Os failed, and nothing says which of them is to blame: each goes again by itself, once.
    /// For the read policy they are on their way all the time.
    fn part(&mut self, device: DeviceId, id: IoId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let io = &mut self.ios[id.0];
            next = io.next.take();
            io.alone = true;
            io.admitted = self.now;
            self.enqueue(device, id);
        }
    }

    /// One I/O of a completed command goes back to whoever waits for it.
    fn retire(&mut self, io: Io, result: Result<(), IoError>, intact: bool) {
        let result = match result {
            Ok(()) if io.lapsed && !intact => match self.lacks_what_is_read(&io) {
                true => Err(IoError::Gone),
                false => return self.issue(Io { lapsed: false, alone: false, next: None, admitted: self.now, ..io }),
            },
            result => result,
        };
        match io.owner {
            Owner::Read(id) | Owner::Edge(id) if io.op == DeviceOp::Read => match result {
                Ok(()) => {
                    if io.set.is_second_try() {
                        self.want_mend(id, &io);
                    }
                    match io.summed && !intact {
                        true => self.verify(io),
                        false => self.count_down(id),
                    }
                }
                Err(_) => self.read_elsewhere(id, io),
            },
            Owner::Read(id) | Owner::Write(id) | Owner::Edge(id) => {
                if let Err(error) = result {
                    self.copy_not_written(id, &io, error);
                }
                self.count_down(id);
            }
            Owner::Log => self.log_copy_done(&io, result),
            Owner::Page => self.page_copy_done(io.device, result),
            Owner::Superblock => self.superblock_done(io.device, result),
            Owner::Flush | Owner::CheckpointFlush => self.device_flushed(&io, result),
            Owner::Discard(chunk) => self.chunk_discarded(chunk),
            Owner::Scrub(piece) => self.scrub_read(piece, &io, result),
            Owner::ScrubSlot => self.slot_read(&io, result),
            Owner::Mend(id) | Owner::Restore(id) => self.mend_io_done(id, &io, result),
            Owner::Move(id) => self.move_io_done(id, io, result),
            Owner::Wipe => self.slot_wiped(io.device, result),
            Owner::SumPage(page) => self.sum_page_done(page, &io, result),
            Owner::Row(id) | Owner::RowInBackground(id) => self.strip_done(id, &io, result),
            Owner::Ring => self.ring_io_done(&io, result),
            Owner::Replay => self.replayed(&io, result),
        }
    }

    fn count_down(&mut self, id: u32) {
        let active = &mut self.requests[id];
        active.pending -= 1;
        if active.pending == 0 && !self.read_doubtful(id) {
            self.phase_done(id);
        } else if self.requests[id].trouble.is_some() {
            self.rest_on_mends(id);
        }
    }

    fn device_error(&mut self, id: IoId, device: DeviceId, op: DeviceOp, offset: u64, error: IoError) {
        if error == IoError::Unsupported {
            return;
        }
        let len = self.command(id).map(|io| io.len).sum();
        self.outputs.push_back(Output::Event(Event::DeviceError { device, op, offset, len, error }));
        let Some(member) = self.pool.device_mut(device) else { return };
        match op {
            DeviceOp::Read => member.counters.read_errors += 1,
            _ => member.counters.write_errors += 1,
        }
        member.last_error = Some((op, error));
        if error == IoError::Gone {
            self.member_went(device, error);
        }
    }

    /// A member missed a write that others got: it is not trusted any more, and no write is answered before that is
    /// durable. (Answer first, and a crash could later take it for the good copy.)
    fn fail_device(&mut self, device: DeviceId, error: IoError) {
        let Some(member) = self.pool.device_mut(device) else { return };
        if !member.state.may_become(DeviceState::Failed) {
            return;
        }
        if !member.is_recorded() {
            // Nothing depends on it, and no record may name it.
            member.become_state(DeviceState::Failed);
            return self.post_views();
        }
        member.become_state(DeviceState::Failed);
        let record = Record::Device(Box::new(member.clone()));
        let lsn = self.journal.append(&record);
        self.renew_roster(device);
        self.commit.failure_lsn = lsn + 1;
        // It is behind in everything now, and nothing is noted any more.
        self.pool.stale.remove(&device);
        self.outputs.push_back(Output::Event(Event::DeviceFailed { device, error }));
        self.post_views();
    }

    fn wait_stable(&mut self, lsn: Lsn, waiter: Waiter) {
        debug_assert!(lsn < self.journal.appended(), "a record that nobody appended never becomes stable");
        if self.journal.stable() > lsn {
            self.wake(waiter, true);
        } else {
            self.commit.stable_waiters.push_back((lsn, waiter));
        }
    }

    /// What somebody waited for has happened, or never will.
    fn wake(&mut self, waiter: Waiter, fine: bool) {
        match waiter {
            Waiter::Checkpoint => {}
            Waiter::Ring => self.ring_flushed(fine),
            Waiter::Copies => self.copies_flushed(fine),
            Waiter::Lost(id) => self.lanes_given_up(id, fine),
            Waiter::Column(number) => self.column_flushed(number, fine),
            Waiter::Mend(id) => self.end_mend(id),
            Waiter::Request(id) => {
                let is_unstable = self.requests[id].trouble.as_ref().is_some_and(|trouble| trouble.is_unstable);
                if self.is_owed_error(id) || is_unstable || !fine {
                    self.requests[id].error = Some(RequestError::Io);
                }
                self.reply(id);
            }
            Waiter::Starved(id) => {
                self.unstarve(id);
                self.requests[id].error = Some(RequestError::Io);
                self.reply(id);
            }
            Waiter::Join { tag, device, slots } => self.slot_written(tag, device, slots, fine),
            Waiter::Part { device } => self.unrecorded(device, fine),
            Waiter::Control { tag, done } => {
                let failed =
                    || ControlError::new(ErrorKind::Io, format!("pool {:?} cannot write its records", self.pool.name));
                let result = if fine { Ok(done) } else { Err(failed()) };
                self.outputs.push_back(Output::Done { tag, result });
            }
        }
    }
}

/// The error may be that of one block among many, and the others may fare better without it.
fn is_about_a_place(result: Result<(), IoError>) -> bool {
    matches!(result, Err(IoError::Media | IoError::NoSpace))
}
