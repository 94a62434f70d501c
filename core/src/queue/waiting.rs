//! What a scheduler of a device queue sees: I/Os that wait, commands that leave.
//!
//! Schedulers decide on these alone. They never own an I/O's memory and never see its payload, so that each can be
//! tested by the rows of the specification and exchanged while the pool runs.

use alloc::vec::Vec;
use core::ops::Range;

use super::class::Class;
use crate::request::DeviceOp;
use crate::units::{Instant, IoId};

/// One I/O in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The engine's name for it.
    pub id: IoId,
    /// Who waits for it.
    pub class: Class,
    /// What it does.
    pub op: DeviceOp,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// When it joined the queue.
    pub arrived: Instant,
    /// What two I/Os must have in common to become one command: the content class (metadata or data) and what else
    /// the engine wants kept apart (scrub, repair). Schedulers compare it for equality only.
    pub kind: u8,
    /// It may become part of a larger command.
    pub mergeable: bool,
    /// Has no payload of its own and is worth doing only as a bridge between two others (ZFS: optional I/O).
    pub optional: bool,
}

impl Waiting {
    /// First byte after it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// One command that a scheduler lets go: a run of I/Os in device order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The class it counts against.
    pub class: Class,
    /// First byte.
    pub offset: u64,
    /// Bytes, gaps between the members included.
    pub len: u64,
    /// Its I/Os, as a range of [`Leaving::members`].
    pub members: Range<usize>,
}

/// The commands that leave at one turn. Reused, so that dispatch allocates nothing in the long run.
#[derive(Clone, Debug, Default)]
pub struct Leaving {
    /// In the order of dispatch.
    pub commands: Vec<Command>,
    /// The I/Os of all commands, each command's in device order.
    pub members: Vec<Waiting>,
}

impl Leaving {
    /// One more command, of one I/O.
    pub fn push_single(&mut self, io: Waiting) {
        let members = self.members.len()..self.members.len() + 1;
        self.commands.push(Command { class: io.class, offset: io.offset, len: io.len, members });
        self.members.push(io);
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.commands.clear();
        self.members.clear();
    }
}
