//! What an operator can ask of a running pool, and the answers.
//!
//! Commands are idempotent where they can be: setting what already holds succeeds and changes nothing.

use alloc::boxed::Box;
use alloc::string::String;

use crate::job::Choice;
use crate::meta::format::NewDevice;
use crate::meta::superblock::Age;
use crate::units::{DeviceId, VolumeId};

pub use crate::content::VolumeClass;

/// A change of a running pool; every one is durable when it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make a thin volume. Names are checked by [`crate::names::check_volume`].
    CreateVolume {
        /// Name within the pool.
        name: String,
        /// Bytes, a multiple of `BLOCK`.
        size: u64,
        /// What its writes count as.
        class: VolumeClass,
    },
    /// Grow a volume (shrinking is refused).
    ResizeVolume {
        /// Which.
        volume: VolumeId,
        /// New size in bytes.
        size: u64,
    },
    /// Give a volume another name.
    RenameVolume {
        /// Which.
        volume: VolumeId,
        /// New name.
        name: String,
    },
    /// Change what the volume's future writes count as.
    SetVolumeClass {
        /// Which.
        volume: VolumeId,
        /// New class.
        class: VolumeClass,
    },
    /// Give what is written to a volume checksums, or none.
    SetVolumeChecksum {
        /// Which.
        volume: VolumeId,
        /// With.
        on: bool,
    },
    /// Forget a volume and everything in it.
    DestroyVolume {
        /// Which.
        volume: VolumeId,
    },
    /// Set a pool property; names and values as in [`crate::properties`].
    Set {
        /// Name, such as `read_policy`.
        name: String,
        /// Value, as an operator writes it.
        value: String,
    },
    /// Set a device property: `class`, `tier`, `rotational`, `read_preferred`, `allocation_hint`; or `path`, where the host sees it now.
    SetDevice {
        /// Which.
        device: DeviceId,
        /// Name.
        name: String,
        /// Value, as an operator writes it.
        value: String,
    },
    /// A member that was not there is there again, and open: it is caught up. Of one that was given up everything is.
    /// Of one that is an older copy as well, where others have it. One in use that was found anew lost what it got since its last flush;
    /// without that, what failed on it is tried again.
    OnlineDevice {
        /// Which.
        device: DeviceId,
        /// How far the superblock is that was found on it; none where nobody looked.
        found: Option<Age>,
    },
    /// Use a member no more until it is asked for, or until the next opening; what it misses is noted.
    OfflineDevice {
        /// Which.
        device: DeviceId,
    },
    /// Count errors anew, of one member or of all; what they led to stays as it is.
    ClearErrors {
        /// Which; all of them without.
        device: Option<DeviceId>,
    },
    /// Put the maps in order and write a checkpoint.
    Checkpoint,
    /// Begin no more work of the pool's own, then as `Checkpoint`: what `export` and a clean stop do last.
    Close,
    /// Read every copy of everything and compare; one that is paused goes on.
    ScrubStart,
    /// Keep the place and stop; also over restarts.
    ScrubPause,
    /// Go on where it was paused.
    ScrubResume,
    /// Stop for good.
    ScrubCancel,
    /// Make a device a member; the host has connected it under [`crate::Pool::next_device_id`].
    AddDevice(Box<NewDevice>),
    /// The same, to be held back until a member fails.
    AddSpare(Box<NewDevice>),
    /// Empty a member; when nothing is on it any more it is none.
    RemoveDevice {
        /// Which.
        device: DeviceId,
    },
    /// A member gets what another one has, which then is none.
    ReplaceDevice {
        /// Which leaves.
        device: DeviceId,
        /// Which gets what it has.
        by: DeviceId,
    },
    /// Make a device a member, as [`AddDevice`](Self::AddDevice) does, and give it what another one has; no other job begins meanwhile.
    ReplaceWith {
        /// Which leaves.
        device: DeviceId,
        /// What gets what it has.
        new: Box<NewDevice>,
    },
    /// Write chunks anew, those of a type that a choice was made of.
    Balance {
        /// Data chunks.
        data: Option<Choice>,
        /// Metadata chunks.
        metadata: Option<Choice>,
    },
    /// The job keeps what it has done and stops; also over restarts.
    JobPause,
    /// Go on.
    JobResume,
    /// Stop for good; what was moved stays moved.
    JobCancel,
}

/// A command succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// It holds now.
    Changed,
    /// It held already.
    Unchanged,
    /// The new volume's id.
    Volume(VolumeId),
    /// The new member's id.
    Device(DeviceId),
    /// It holds now, but not exactly as asked (a rounded value).
    Adjusted(String),
}

/// Why a command failed: a stable kind and one sentence with cause and next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlError {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// One sentence for people.
    pub message: String,
}

/// Kinds of failure; each has one exit code of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Malformed or unknown value (exit 2).
    Usage,
    /// No such pool, device, volume or property (exit 4).
    NotFound,
    /// It exists already (exit 1).
    Exists,
    /// Refused because something could be lost; `-f` may allow it (exit 5).
    Refused,
    /// No room (exit 1).
    NoSpace,
    /// A device failed the request (exit 1).
    Io,
    /// In use (exit 1).
    Busy,
}

impl ControlError {
    /// An error of this kind with this sentence.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        ControlError { kind, message: message.into() }
    }
}
