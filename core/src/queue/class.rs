//! The class of a device I/O: who waits for it, and so how long it may wait.
//!
//! The classes and their order are those of the OpenZFS vdev queue (`zio_priority_t`); the index is the priority.

use crate::request::DeviceOp;

/// Who waits for an I/O. The order is the priority: the first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A client waits for the bytes.
    SyncRead,
    /// A client, or the log, waits until it is stored.
    SyncWrite,
    /// Nobody waits yet: read-ahead.
    AsyncRead,
    /// Nobody waits yet: checkpoint pages, write-back.
    AsyncWrite,
    /// Verification of what is stored; resilver.
    Scrub,
    /// Moving data off a device that leaves.
    Removal,
    /// First writing of a new device.
    Initializing,
    /// Discards.
    Trim,
    /// Copying to a new member.
    Rebuild,
}

/// One bit for each class that a read can have, and a write.
const READS: u16 = {
    use Class::{AsyncRead, Initializing, Rebuild, Removal, Scrub, SyncRead};
    bits(&[SyncRead, AsyncRead, Scrub, Removal, Initializing, Rebuild])
};
const WRITES: u16 = {
    use Class::{AsyncWrite, Initializing, Rebuild, Removal, SyncWrite};
    bits(&[SyncWrite, AsyncWrite, Removal, Initializing, Rebuild])
};

const fn bits(classes: &[Class]) -> u16 {
    let (mut bits, mut i) = (0, 0);
    while i < classes.len() {
        bits |= 1 << classes[i].index();
        i += 1;
    }
    bits
}

impl Class {
    /// All of them, by priority.
    pub const ALL: [Class; 9] = [
        Class::SyncRead,
        Class::SyncWrite,
        Class::AsyncRead,
        Class::AsyncWrite,
        Class::Scrub,
        Class::Removal,
        Class::Initializing,
        Class::Trim,
        Class::Rebuild,
    ];

    /// How many there are.
    pub const COUNT: usize = Class::ALL.len();

    /// Its place in [`Class::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Somebody waits, directly or (trim) close by; the others are background work, held back by credit.
    #[must_use]
    pub const fn is_interactive(self) -> bool {
        !matches!(self, Class::Scrub | Class::Removal | Class::Initializing | Class::Rebuild)
    }

    /// Within the class the oldest goes first; in the others the place on the device has a say.
    #[must_use]
    pub const fn is_fifo(self) -> bool {
        matches!(self, Class::SyncRead | Class::SyncWrite | Class::Trim)
    }

    /// This class, or the one that counts instead where the operation cannot have it: other reads and writes are
    /// asynchronous, a discard is trim, a flush may be anything.
    #[must_use]
    pub const fn fitting(self, op: DeviceOp) -> Class {
        let (fitting, instead) = match op {
            DeviceOp::Read => (READS, Class::AsyncRead),
            DeviceOp::Write { .. } | DeviceOp::WriteZeroes => (WRITES, Class::AsyncWrite),
            DeviceOp::Discard => (0, Class::Trim),
            DeviceOp::Flush => (u16::MAX, self),
        };
        if fitting >> self.index() & 1 == 1 { self } else { instead }
    }

    /// The name in properties, tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::SyncRead => "sync_read",
            Class::SyncWrite => "sync_write",
            Class::AsyncRead => "async_read",
            Class::AsyncWrite => "async_write",
            Class::Scrub => "scrub",
            Class::Removal => "removal",
            Class::Initializing => "initializing",
            Class::Trim => "trim",
            Class::Rebuild => "rebuild",
        }
    }
}
