//! A member that holds nothing any more leaves.
//!
//! ```text
//!   checkpoint   no record has it, its superblock is not written          a crash from here on: it is a stranger
//!   clear        both slots of its superblock are zeros                   nobody finds it again
//!   gone         the host closes it
//! ```

use super::{Engine, Waiter};
use crate::device::Role;
use crate::meta::Bytes;
use crate::meta::superblock::{SLOTS, SUPERBLOCK_SIZE};
use crate::queue::Owner;
use crate::request::{Event, IoError, Output};
use crate::units::DeviceId;

/// What a job waits for at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// A checkpoint without the pool's old records.
    System,
    /// A checkpoint without the member.
    Record,
    /// So many slots to be cleared, and whether all were so far.
    Slots(u8, bool),
}

impl Engine {
    /// Has the next checkpoint leave out this member.
    pub(super) fn part_with(&mut self, device: DeviceId) {
        // With a checkpoint that knows it no more, nobody could open the pool again.
        let held = self.pool.chunks().find(|chunk| chunk.is_on(device)).map(|chunk| chunk.id);
        assert!(held.is_none(), "device {device} is to leave and has a part of chunk {held:?}");
        if let Some(member) = self.pool.device_mut(device) {
            member.role = Role::Parting;
        }
        self.moving.leaving = Some(Leaving::Record);
        self.join_checkpoint(Waiter::Part { device });
    }

    /// The checkpoint without it ended.
    pub(in crate::engine) fn unrecorded(&mut self, device: DeviceId, fine: bool) {
        if !fine {
            // The pool cannot write its records any more: all stays as it is.
            return;
        }
        if !self.pool.is_online(device) {
            return self.parted(device, false);
        }
        self.moving.leaving = Some(Leaving::Slots(SLOTS.len() as u8, true));
        let zeros = Bytes::new(alloc::vec![0; SUPERBLOCK_SIZE as usize]);
        for slot in SLOTS {
            self.issue_record(Owner::Wipe, device, slot, zeros.clone(), true);
        }
    }

    pub(in crate::engine) fn slot_wiped(&mut self, device: DeviceId, result: Result<(), IoError>) {
        let Some(Leaving::Slots(left, fine)) = self.moving.leaving else { return };
        let fine = fine && result.is_ok();
        self.moving.leaving = Some(Leaving::Slots(left - 1, fine));
        if left == 1 {
            self.parted(device, fine);
        }
    }

    fn parted(&mut self, device: DeviceId, cleared: bool) {
        self.moving.leaving = None;
        self.forget_member(device);
        self.outputs.push_back(Output::Event(Event::DeviceRemoved { device, cleared }));
        self.finish_job();
    }
}
