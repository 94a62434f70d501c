//! The class of a device I/O: who waits for it, and so how long it may wait.
//!
//! The classes and their order are those of the OpenZFS vdev queue (`zio_priority_t`); the index is the priority.

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
