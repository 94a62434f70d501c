//! Superblocks under a scrub: when all else was read, both slots of each member are read, one member after the other, and held to
//! their own seal, the newer one to what was last written there, too: a disk may say that a write is done and lose it. Nothing else reads
//! them while a pool is open, and the next opening has no copy of a member's own superblock.
//!
//! A checkpoint writes one slot of each, so a look that one came between says nothing, and is repeated. What is damaged or older is told
//! here, and written anew by the checkpoints that end a scrub.

use super::again::TRIES_MAX;
use super::{Engine, Turn, range};
use crate::device::{Device, Role};
use crate::meta::superblock::{SLOTS, SUPERBLOCK_SIZE};
use crate::queue::{Io, Owner};
use crate::request::{Copy, DeviceOp, Event, IoError, Output};
use crate::units::{BLOCK, BufId, DeviceId};

/// Blocks of a slot: what one that is damaged counts for.
const BLOCKS: u64 = SUPERBLOCK_SIZE / BLOCK;

/// How far a scrub is with superblocks.
#[derive(Clone, Default)]
pub(super) struct Slots {
    /// Members up to this one are done.
    passed: Option<DeviceId>,
    /// Looks at the next one that a checkpoint came between.
    tries: u32,
    look: Option<Look>,
}

/// The slots of one member on their way.
#[derive(Clone)]
struct Look {
    device: DeviceId,
    scratch: BufId,
    /// Slots that nothing is known of yet.
    pending: usize,
    verdicts: [Verdict; SLOTS.len()],
    /// Of the superblocks that counted when it began.
    generation: u64,
    /// It belongs to a scrub that was canceled.
    is_void: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Also of one that is not there any more.
    Whole,
    /// Or older than what was written there.
    Damaged,
    Unreadable,
}

/// Both of its slots were written by checkpoints of this pool, and nothing else writes there.
fn has_both_slots(device: &Device) -> bool {
    device.has_superblock() && device.role != Role::Joining
}

impl Engine {
    /// A scrub begins, or is canceled: the next one has all members before it, and none of what is under way.
    pub(super) fn rewind_slots(&mut self) {
        let look = self.scrub.slots.look.take().map(|look| Look { is_void: true, ..look });
        self.scrub.slots = Slots { look, ..Slots::default() };
    }

    /// Goes on with superblocks; None when there is none left.
    pub(super) fn scrub_slots(&mut self) -> Option<Turn> {
        let Slots { passed, look, .. } = &self.scrub.slots;
        if look.is_some() {
            return Some(Turn::Nothing);
        }
        let device = self.pool.devices().find(|d| Some(d.id) > *passed && has_both_slots(d))?.id;
        if self.commit.is_writing_pages() {
            return Some(Turn::Nothing);
        }
        let scratch = self.scratch_of(SUPERBLOCK_SIZE * SLOTS.len() as u64);
        let (verdicts, generation) = ([Verdict::Whole; SLOTS.len()], self.commit.generation());
        self.scrub.slots.look =
            Some(Look { device, scratch, pending: SLOTS.len(), verdicts, generation, is_void: false });
        for (i, at) in (0..).zip(SLOTS) {
            let io = Io::new(Owner::ScrubSlot, DeviceOp::Read, device, at, SUPERBLOCK_SIZE, self.now);
            self.issue(Io { buf: range(scratch, i * SUPERBLOCK_SIZE, SUPERBLOCK_SIZE), ..io });
        }
        Some(Turn::Moved)
    }

    /// A slot was read, or could not be.
    pub(in crate::engine) fn slot_read(&mut self, io: &Io, result: Result<(), IoError>) {
        let slot = u64::from(io.buf.offset) / SUPERBLOCK_SIZE;
        match result {
            Ok(()) => {
                let Some(device) = self.pool.device(io.device).map(|d| d.uuid) else {
                    return self.slot_judged(slot, Verdict::Whole);
                };
                self.outputs.push_back(Output::Superblock { tag: slot, slot: io.buf, pool: self.pool.uuid, device });
            }
            Err(IoError::Gone) => self.slot_judged(slot, Verdict::Whole),
            Err(_) => self.slot_judged(slot, Verdict::Unreadable),
        }
    }

    /// The host's answer: the generation, of one that is whole. A write that failed may have arrived, so a later one is none the worse.
    pub(in crate::engine) fn slot_checked(&mut self, slot: u64, generation: Option<u64>) {
        let device = self.scrub.slots.look.as_ref().and_then(|look| self.pool.device(look.device));
        let written = device.map_or(0, |d| d.age.generation);
        let is_newer = written % SLOTS.len() as u64 == slot;
        let is_right = generation.is_some_and(|found| !is_newer || found >= written);
        self.slot_judged(slot, if is_right { Verdict::Whole } else { Verdict::Damaged });
    }

    fn slot_judged(&mut self, slot: u64, verdict: Verdict) {
        let Slots { look, .. } = &mut self.scrub.slots;
        let current = look.as_mut().expect("its slots are under way");
        current.verdicts[slot as usize] = verdict;
        current.pending -= 1;
        if current.pending == 0
            && let Some(look) = look.take()
        {
            self.outputs.push_back(Output::Copy(Copy::Drop(look.scratch)));
            self.slots_judged(&look);
        }
    }

    /// Both slots of a member were looked at.
    fn slots_judged(&mut self, look: &Look) {
        if look.is_void {
            return;
        }
        let is_doubted = look.verdicts.iter().any(|verdict| *verdict != Verdict::Whole);
        let came_between = self.commit.is_writing_pages() || self.commit.generation() != look.generation;
        let slots = &mut self.scrub.slots;
        if is_doubted && came_between {
            slots.tries += 1;
            if slots.tries < TRIES_MAX {
                return;
            }
            let scrub = &mut self.pool.scrub;
            scrub.undecided = scrub.undecided.saturating_add(BLOCKS * SLOTS.len() as u64);
        } else {
            (0..).zip(look.verdicts).for_each(|(slot, verdict)| self.tell_slot(look.device, SLOTS[slot], verdict));
        }
        (self.scrub.slots.passed, self.scrub.slots.tries) = (Some(look.device), 0);
    }

    fn tell_slot(&mut self, device: DeviceId, at: u64, verdict: Verdict) {
        let scrub = &mut self.pool.scrub;
        let found = scrub.found.entry(device);
        let event = match verdict {
            Verdict::Whole => return,
            Verdict::Damaged => {
                found.or_default().differences += BLOCKS;
                scrub.differences = scrub.differences.saturating_add(BLOCKS);
                Event::BadRecord { device, device_offset: at, len: SUPERBLOCK_SIZE }
            }
            Verdict::Unreadable => {
                found.or_default().read_errors += BLOCKS;
                scrub.read_errors = scrub.read_errors.saturating_add(BLOCKS);
                let (volume, name) = (None, self.volume_name(None));
                let (offset, len, device_offset) = (at, SUPERBLOCK_SIZE, at);
                Event::ScrubReadError { volume, name, offset, len, device, device_offset }
            }
        };
        // As pages: what they are about is in memory, and the end of the scrub writes it.
        self.pool.scrub.repaired = self.pool.scrub.repaired.saturating_add(BLOCKS);
        if verdict == Verdict::Damaged {
            self.count_wrong(device, BLOCKS);
        }
        self.tell_place(event);
    }
}
