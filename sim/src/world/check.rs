//! What a command must be when it leaves for a disk; see the list in [`world`](super).

use braid_core::ChunkType;
use braid_core::chunk::{Chunk, Column};
use braid_core::device::RESERVED;
use braid_core::meta::superblock::{SLOTS, SUPERBLOCK_SIZE};
use braid_core::queue::class::Class;
use braid_core::request::{DeviceOp, Dispatch, Segment};
use braid_core::units::{BLOCK, BufRange, DeviceId};

use super::{Missed, World};
use crate::checker::hold;
use crate::disk::{Content, SECTOR, SECTORS};
use crate::watch::{Gaps, Sent};

/// What the segments of a command come to.
#[derive(Default)]
struct Carried {
    /// What a write brings.
    content: Content,
    /// Requests and records in it; gaps are nobody's.
    members: u64,
    gaps: Gaps,
    /// One of them asked not to be merged.
    wants_alone: bool,
    /// Bytes of all segments.
    len: u64,
}

impl World {
    /// What a command carries; panics when it should not be.
    pub(super) fn check(&mut self, dispatch: Dispatch) -> (Content, Option<Sent>) {
        let Dispatch { id, device, op, offset, len } = dispatch;
        let engine = self.engine();
        let member = engine.pool().device(device).expect("a member");
        hold!(Members, member.state.is_used(), "{dispatch:?} to a member that is {}", member.state.name());
        let class = engine.class_of(id);
        if op == DeviceOp::Flush {
            let watch = &mut self.watches[device.index() - 1];
            return (Content::new(), Some(watch.send(dispatch, class, 1, Gaps::default())));
        }
        let end = offset + len;
        let is_whole = len > 0 && offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        hold!(Place, is_whole && end <= member.size, "{dispatch:?} on {} bytes", member.size);
        self.check_apart(dispatch);
        let Carried { content, members, gaps, wants_alone, len: carried } = self.carried(dispatch);
        if op == DeviceOp::Read {
            self.note_outdated(dispatch);
        }
        match op {
            DeviceOp::Read | DeviceOp::Write { .. } => hold!(Place, carried == len, "{carried} bytes in {dispatch:?}"),
            _ => {
                let is_there = self.is_within(device, offset, len, false) || self.is_held(device, offset, len, true);
                hold!(Place, members == 0 && is_there, "{dispatch:?}");
            }
        }
        // What goes to the journal goes together.
        let may_join = self.is_of_rows(device, offset, len, Some(ChunkType::Metadata));
        hold!(Place, members < 2 || !wants_alone || may_join, "{dispatch:?} has one that asked to be alone");
        let watch = &mut self.watches[device.index() - 1];
        (content, Some(watch.send(dispatch, class, members.max(1), gaps)))
    }

    /// No two writes under way overlap on a device.
    fn check_apart(&self, dispatch: Dispatch) {
        let Dispatch { device, op, offset, len, .. } = dispatch;
        if op == DeviceOp::Read {
            return;
        }
        for other in self.running.values().map(|r| r.dispatch) {
            let writes = !matches!(other.op, DeviceOp::Read | DeviceOp::Flush);
            let apart = offset + len <= other.offset || other.offset + other.len <= offset || other.device != device;
            hold!(Overlap, !writes || apart, "{dispatch:?} overlaps {other:?}");
        }
    }

    /// Goes through the segments of a command; panics where one is not at its place.
    fn carried(&self, dispatch: Dispatch) -> Carried {
        let Dispatch { id, device, op, offset, .. } = dispatch;
        let is_write = op != DeviceOp::Read;
        let mut carried = Carried::default();
        for segment in self.engine().segments(id) {
            let at = offset + carried.len;
            carried.len += match segment {
                Segment::Record(bytes) => {
                    self.check_record(device, at, bytes.len() as u64);
                    carried.members += 1;
                    carried.content.push_bytes(bytes);
                    bytes.len() as u64
                }
                Segment::Payload(range) => {
                    self.check_payload(device, at, range, is_write);
                    if is_write {
                        self.check_current(range);
                    }
                    carried.members += 1;
                    carried.wants_alone |= self.asked.get(&range.buf.0.into()).is_some_and(|a| a.request.no_merge);
                    if let Some(page) = self.pages.get(range.buf) {
                        if is_write {
                            carried.content.push_bytes(&page[..]);
                        }
                    } else if is_write {
                        let memory = &self.buffers[&range.buf.0];
                        let (from, len) = (u64::from(range.offset) / SECTOR, u64::from(range.len) / SECTOR);
                        carried.content.push_stamps(&memory[from as usize..(from + len) as usize], &self.records);
                    }
                    range.len.into()
                }
                Segment::Gap(len) => {
                    hold!(Place, !is_write && at > offset && len > 0, "a gap of {len} in {dispatch:?}");
                    carried.gaps.add(len);
                    len
                }
            }
        }
        carried
    }

    /// Heads of the stripe journal are records too, and so is what an opening writes again in rows. A command may go on in the chunk
    /// that is next on the device.
    fn is_of_rows(&self, device: DeviceId, offset: u64, len: u64, kind: Option<ChunkType>) -> bool {
        let pool = self.engine().pool();
        let Some(member) = pool.device(device).filter(|_| pool.chunks().any(|chunk| chunk.rows() > 0)) else {
            return false;
        };
        let is_right = |chunk: &Chunk| kind.is_none_or(|kind| chunk.kind == kind);
        let first = member.used.range(..=offset).next_back();
        let next = member.used.range(offset + 1..offset + len);
        let end = first.into_iter().chain(next).try_fold(offset, |at, (&start, used)| {
            let continues = start <= at && pool.chunk(used.chunk).is_some_and(is_right);
            continues.then_some(start + used.len)
        });
        end.is_some_and(|end| offset + len <= end)
    }

    /// The chunk that has this part of a device.
    pub(super) fn chunk_at(&self, device: DeviceId, offset: u64, len: u64) -> Option<&Chunk> {
        let pool = self.engine().pool();
        let (start, used) = pool.device(device)?.used.range(..=offset).next_back()?;
        pool.chunk(used.chunk).filter(|_| offset + len <= start + used.len)
    }

    /// Records live in system chunks; below them only superblocks.
    fn check_record(&self, device: DeviceId, at: u64, len: u64) {
        let in_slot = SLOTS.contains(&at) && len == SUPERBLOCK_SIZE;
        let is_there = in_slot
            || at >= RESERVED
                && (self.is_within(device, at, len, true)
                    || self.is_left(device, at, len)
                    || self.is_of_rows(device, at, len, None));
        hold!(Place, is_there, "a record at {at} of device {device}");
    }

    /// Payload lives in chunks of data or metadata; a scrub reads the pool's own pages and superblocks into memory like
    /// everything else.
    fn check_payload(&self, device: DeviceId, at: u64, range: BufRange, is_write: bool) {
        let len = u64::from(range.len);
        let is_there = self.is_within(device, at, len, false)
            || self.is_held(device, at, len, is_write)
            || !is_write && (self.is_within(device, at, len, true) || self.is_left(device, at, len));
        let is_looked_at = !is_write && SLOTS.contains(&at) && len == SUPERBLOCK_SIZE;
        hold!(Place, is_looked_at || at >= RESERVED && is_there, "payload at {at} of device {device}");
    }

    /// What a read brings from places that missed a write is remembered.
    fn note_outdated(&mut self, dispatch: Dispatch) {
        if self.stale.is_empty() && self.outdated.is_empty() {
            return;
        }
        for (at, range) in self.read_into(dispatch.id, dispatch.offset) {
            let outdated = self.outdated_of(dispatch, at, range);
            self.renew(range);
            self.outdated.extend(outdated);
        }
    }

    /// No copy is read that missed a write whose answer was good before the read was asked for. What only looks may, if it goes
    /// nowhere (these blocks of its memory): a scrub, whose read waited in a queue while the write failed, compares and looks again
    /// under the lock. In rows there is more to a strip than a copy: a rebuild may look at what the member has that it is for, where
    /// only that can be as its checksum says, unless so much of the write had come that far that the checksum agrees: such a block
    /// stays, and is as good as any. A unit that moves is read without its lock, written where nothing names it yet, and read again
    /// under the lock if it changed: only what was asked for afterwards counts.
    fn outdated_of(&self, dispatch: Dispatch, at: u64, range: BufRange) -> Vec<(u32, u64)> {
        let device = dispatch.device;
        let end = at + u64::from(range.len);
        let asked = self.asked.get(&range.buf.0.into()).map(|asked| asked.op);
        let stale = self.stale.range((device.0, at / BLOCK)..(device.0, end.div_ceil(BLOCK)));
        // A scrub reads over what holds nothing any more.
        let counts = |block: u64| asked.is_some() || self.holds_something(device, block);
        let missed = stale.filter(|((_, block), missed)| missed.since < asked.unwrap_or(u64::MAX) && counts(*block));
        let mut outdated = Vec::new();
        for (place, missed) in missed.map(|((_, block), missed)| (block * BLOCK, *missed)) {
            let in_rows = self.chunk_at(device, place, BLOCK).is_some_and(|chunk| chunk.rows() > 0);
            if in_rows && self.is_current(device, place, missed) {
                continue;
            }
            let is_scrub = self.engine().class_of(dispatch.id) == Class::Scrub;
            let looks = asked.is_none() && (in_rows || is_scrub);
            if !looks && asked.is_none() && self.engine().asked_at(dispatch.id).0 <= missed.at {
                continue;
            }
            hold!(Members, looks, "a read at {at} of device {device}, which missed a write at {place}");
            outdated.push((range.buf.0, (u64::from(range.offset) + place - at) / BLOCK));
        }
        outdated
    }

    /// A place that missed a write has all the same what may be read of its block.
    fn is_current(&self, device: DeviceId, place: u64, Missed { volume, block, .. }: Missed) -> bool {
        let mut stamps = [0; SECTORS];
        self.disks[device.index() - 1].read_stamps(place, &mut stamps);
        let mut sectors = (block / SECTOR..).zip(stamps);
        self.places(volume, block).contains(&(device, place))
            && sectors.all(|(sector, stamp)| self.oracle.may_be(volume.0, sector, stamp))
    }

    /// What was read from a place that missed a write goes nowhere.
    pub(super) fn check_current(&self, range: BufRange) {
        if !self.outdated.is_empty() {
            let used = self.outdated.range(blocks_of(range)).next();
            hold!(Members, used.is_none(), "{range:?} is used, which was read from a place that missed a write");
        }
    }

    /// Memory has other content now.
    pub(super) fn renew(&mut self, range: BufRange) {
        if !self.outdated.is_empty() {
            let blocks = blocks_of(range);
            self.outdated.retain(|block| !blocks.contains(block));
        }
    }

    /// An extent that the engine holds for a chunk: a column that goes there is written and read by nobody; of one that was
    /// there, commands that waited in a queue may come late.
    fn is_held(&self, device: DeviceId, offset: u64, len: u64, is_write: bool) -> bool {
        let pool = self.engine().pool();
        let extent = pool.device(device).and_then(|d| d.used.range(..=offset).next_back());
        let Some((&start, used)) = extent.filter(|(start, used)| offset + len <= *start + used.len) else {
            return false;
        };
        let Some(chunk) = pool.chunk(used.chunk).filter(|chunk| chunk.kind != ChunkType::System) else { return false };
        is_write || chunk.shift.is_none_or(|shift| shift.to != Column { device, offset: start })
    }

    /// A column of a system chunk that has it elsewhere as soon as a checkpoint says so.
    fn is_left(&self, device: DeviceId, offset: u64, len: u64) -> bool {
        let pool = self.engine().pool();
        let extent = pool.device(device).and_then(|d| d.used.range(..=offset).next_back());
        extent.is_some_and(|(start, used)| {
            let is_system = pool.chunk(used.chunk).is_some_and(|chunk| chunk.kind == ChunkType::System);
            is_system && offset + len <= *start + used.len
        })
    }

    /// One chunk holds all of it: a system chunk, or one of data or metadata.
    fn is_within(&self, device: DeviceId, offset: u64, len: u64, system: bool) -> bool {
        self.engine().pool().chunks().any(|chunk| {
            let holds =
                |c: &Column| c.device == device && c.offset <= offset && offset + len <= c.offset + chunk.stripe;
            (chunk.kind == ChunkType::System) == system && chunk.columns.iter().any(holds)
        })
    }
}

/// As [`World::outdated`] counts them.
fn blocks_of(range: BufRange) -> std::ops::Range<(u32, u64)> {
    let (start, end) = (u64::from(range.offset), u64::from(range.offset) + u64::from(range.len));
    (range.buf.0, start / BLOCK)..(range.buf.0, end.div_ceil(BLOCK))
}
