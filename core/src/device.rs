//! A member device: what the operator said of it, what state it is in, what it has done.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::allocator::{Hint, Tiers};
use crate::meta::format::NewDevice;
use crate::meta::superblock::Age;
use crate::queue::config::{Config, Overrides};
use crate::report::DeviceCounters;
use crate::request::{DeviceOp, IoError};
use crate::units::{ChunkId, DeviceId, Uuid};

/// First byte of a device that chunks may use; below it are the superblocks.
pub const RESERVED: u64 = crate::units::MIB;

/// Smallest member: the reserved front, a system chunk, and a little room.
pub const DEVICE_MIN: u64 = 16 * crate::units::MIB;

/// Largest member: what the allocator's arithmetic has been tested for.
pub const DEVICE_MAX: u64 = 1 << 56;

/// A read or write of a rotating member counts as slow beyond this, in ns: a hundred seeks, or a disk that tries again by
/// itself.
pub const SLOW_ROTATING_NS: u64 = 1_000_000_000;

/// As [`SLOW_ROTATING_NS`] for members that do not rotate: beyond what cleaning up inside a flash device takes.
pub const SLOW_NS: u64 = 100_000_000;

/// The operator's label for placement: `nvme`, `ssd`, `hdd`, `net`, or a word of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceClass(String);

impl DeviceClass {
    /// A label of 1 to 15 characters `a-z 0-9 . _ -`.
    pub fn parse(word: &str) -> Option<DeviceClass> {
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
        ((1..16).contains(&word.len()) && word.chars().all(fine)).then(|| DeviceClass(word.into()))
    }

    /// The label.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The class of a device about which only the rotational flag is known.
    pub fn of_rotational(rotational: bool) -> DeviceClass {
        DeviceClass(if rotational { "hdd" } else { "ssd" }.into())
    }

    /// Where chunks prefer to go when nobody said: metadata on flash first, data on disks first, so that the
    /// scarce fast space is kept for what gains most from it. A class without meaning here gets 0/0.
    pub fn default_tiers(&self) -> Tiers {
        match self.0.as_str() {
            "nvme" => Tiers { data: 2, metadata: 0 },
            "ssd" => Tiers { data: 1, metadata: 1 },
            "hdd" => Tiers { data: 0, metadata: 2 },
            "net" => Tiers { data: 3, metadata: 3 },
            _ => Tiers { data: 0, metadata: 0 },
        }
    }
}

/// Errors of a member that answers, since it was last up to date: one more and it is given up, where the pool can do
/// without it.
pub const FAULTS_MAX: u32 = 16;

/// What the pool thinks of a member.
///
/// ```text
///           missed something             being caught up
///    Online ----------------> Suspect <------------------> Rebuilding     (and back when nothing can be done for now)
///     | | ^                      |                           ^    |
///     | | '----------------------+------- has all again -----|----'
///     | '----------------------- gets what another has ------'
///     '--> Removing --> Online: it stays; Suspect: missed something
///
///    any that is used ---- vanished ------------------------------> Missing    back: Suspect; Online when it missed nothing
///    any but Failed ------ too many errors, or went its own way --> Failed     asked for again: Suspect, behind in all
/// ```
///
/// What a member missed is durable before the write that it missed is answered, region by region: see [`crate::regions`].
/// Reads go to what is not stale only. `Failed` is durable too; while a member is failed nothing is noted for it, since it
/// is behind in everything. The others are found anew at each opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceState {
    /// In use, and up to date.
    Online,
    /// Not there, or taken out of use; what is written meanwhile is noted.
    Missing,
    /// Not used any more: too many errors, or it went its own way.
    Failed,
    /// It answers but missed something: read where it is up to date, written everywhere, to be caught up.
    Suspect,
    /// It is being brought up to date where it missed something, or gets what another member has.
    Rebuilding,
    /// Its content moves to other members.
    Removing,
}

impl DeviceState {
    /// All, by number on disk.
    pub const ALL: [DeviceState; 6] = [
        DeviceState::Online,
        DeviceState::Missing,
        DeviceState::Failed,
        DeviceState::Suspect,
        DeviceState::Rebuilding,
        DeviceState::Removing,
    ];

    /// Whether the drawing has this arrow.
    pub fn may_become(self, next: DeviceState) -> bool {
        use DeviceState::*;
        match self {
            Online => matches!(next, Suspect | Missing | Failed | Removing | Rebuilding),
            Suspect => matches!(next, Online | Missing | Failed | Rebuilding),
            Missing => matches!(next, Online | Suspect | Failed),
            Failed => matches!(next, Suspect),
            Rebuilding => matches!(next, Online | Suspect | Missing | Failed),
            Removing => matches!(next, Online | Suspect | Missing | Failed),
        }
    }

    /// It is read and written.
    pub fn is_used(self) -> bool {
        !matches!(self, DeviceState::Missing | DeviceState::Failed)
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            DeviceState::Online => "ONLINE",
            DeviceState::Missing => "MISSING",
            DeviceState::Failed => "FAILED",
            DeviceState::Suspect => "SUSPECT",
            DeviceState::Rebuilding => "REBUILDING",
            DeviceState::Removing => "REMOVING",
        }
    }
}

/// How far a member belongs to its pool. Known only while the pool runs: the records say who is a member, and a job says
/// who is being emptied.
///
/// ```text
///   Joining --superblock written--> Member --remove--> Leaving --empty, no record has it--> Parting --cleared--> gone
///             |                       ^------cancel------'
///             '--> Spare --what a replace job fills--> Member
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// It takes chunks.
    #[default]
    Member,
    /// Its superblock is being written; no record has it yet.
    Joining,
    /// It is held back until a member fails.
    Spare,
    /// It is being emptied: it serves what it holds and gets nothing new.
    Leaving,
    /// No record has it any more; its superblock is being cleared.
    Parting,
}

/// An extent of a member that a chunk uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Bytes.
    pub len: u64,
    /// Whose column it is.
    pub chunk: ChunkId,
}

/// One member.
#[derive(Clone, Debug)]
pub struct Device {
    /// Id within the pool.
    pub id: DeviceId,
    /// Identity, in its superblock.
    pub uuid: Uuid,
    /// Where the host saw it last; a hint for people, never used to open anything.
    pub path: String,
    /// Bytes, a multiple of `BLOCK`.
    pub size: u64,
    /// Operator's label.
    pub class: DeviceClass,
    /// Sampled once when the device joined; can be overridden.
    pub rotational: bool,
    /// Placement tiers of mode `tiers`.
    pub tiers: Tiers,
    /// Whether the operator set the tiers, so that a later change of class leaves them alone.
    pub tiers_set: bool,
    /// Placement hint of mode `allocation-hint`.
    pub hint: Hint,
    /// Flag of the `device` read policy.
    pub read_preferred: bool,
    /// What was set for its queue alone, see [`crate::queue::config`].
    pub queue: Overrides,
    /// State.
    pub state: DeviceState,
    /// Whether it comes or goes.
    pub role: Role,
    /// It is held back, or was until the job began that fills it.
    pub spare: bool,
    /// Extents in use by chunks, by first byte.
    pub used: BTreeMap<u64, Used>,
    /// What it did since the pool was opened.
    pub counters: DeviceCounters,
    /// Writes completed.
    pub written: u64,
    /// How many of them a completed flush covers.
    pub flushed: u64,
    /// Errors since it was last up to date, against [`FAULTS_MAX`].
    pub faults: u32,
    /// The last command that failed, and why; as long as its errors are counted.
    pub last_error: Option<(DeviceOp, IoError)>,
    /// How far its superblock is at least.
    pub(crate) age: Age,
    /// It lacks some of the pool's own records: its superblock is not renewed before it has them.
    pub is_behind: bool,
    /// Number of the engine's roster that began when this one came or went last; not kept.
    pub roster: u64,
}

impl Device {
    /// Checkpoints write its superblock: it is there, and does not part from the pool.
    pub(crate) fn has_superblock(&self) -> bool {
        self.state.is_used() && !self.is_behind && self.role != Role::Parting
    }

    /// A member that has done nothing yet.
    pub fn new(id: DeviceId, new: &NewDevice) -> Device {
        Device {
            id,
            uuid: new.uuid,
            path: new.path.clone(),
            size: new.size,
            class: new.class.clone(),
            rotational: new.rotational,
            tiers: new.tiers.unwrap_or_else(|| new.class.default_tiers()),
            tiers_set: new.tiers.is_some(),
            hint: new.hint,
            read_preferred: false,
            queue: Overrides::default(),
            state: DeviceState::Online,
            role: Role::Member,
            spare: false,
            used: BTreeMap::new(),
            counters: DeviceCounters::default(),
            written: 0,
            flushed: 0,
            faults: 0,
            last_error: None,
            age: Age::default(),
            is_behind: false,
            roster: 0,
        }
    }

    /// New chunks may go there.
    pub fn takes_chunks(&self) -> bool {
        self.state.is_used() && self.role == Role::Member
    }

    /// The pool's records have it.
    pub fn is_recorded(&self) -> bool {
        matches!(self.role, Role::Member | Role::Spare | Role::Leaving)
    }

    /// Moves to `next` along the drawing; panics with both states otherwise.
    pub fn become_state(&mut self, next: DeviceState) {
        assert!(self.state.may_become(next), "device {}: {:?} may not become {next:?}", self.id, self.state);
        self.state = next;
    }

    /// A read or write that takes longer, from its first I/O's place in the line to the answer, is counted as slow.
    pub fn slow_ns(&self) -> u64 {
        if self.rotational { SLOW_ROTATING_NS } else { SLOW_NS }
    }

    /// What its queue goes by: its own words before the pool's.
    pub fn queue_config(&self, pool: &Overrides) -> Result<Config, String> {
        Config::resolve(self.rotational, self.class.name(), pool, &self.queue)
    }

    /// Something was written that no completed flush covers.
    pub fn is_dirty(&self) -> bool {
        self.written > self.flushed
    }

    /// Bytes in chunks.
    pub fn allocated(&self) -> u64 {
        self.used.values().map(|used| used.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table beside the drawing, in words: every pair that is not here is refused.
    #[test]
    fn the_arrows_of_the_drawing() {
        let arrows = [
            "ONLINE SUSPECT",
            "ONLINE MISSING",
            "ONLINE FAILED",
            "ONLINE REMOVING",
            "ONLINE REBUILDING",
            "SUSPECT ONLINE",
            "SUSPECT MISSING",
            "SUSPECT FAILED",
            "SUSPECT REBUILDING",
            "MISSING ONLINE",
            "MISSING SUSPECT",
            "MISSING FAILED",
            "FAILED SUSPECT",
            "REBUILDING ONLINE",
            "REBUILDING SUSPECT",
            "REBUILDING MISSING",
            "REBUILDING FAILED",
            "REMOVING ONLINE",
            "REMOVING SUSPECT",
            "REMOVING MISSING",
            "REMOVING FAILED",
        ];
        for from in DeviceState::ALL {
            for to in DeviceState::ALL {
                let drawn = arrows.contains(&alloc::format!("{} {}", from.name(), to.name()).as_str());
                assert_eq!(from.may_become(to), drawn, "{from:?} to {to:?}");
            }
        }
        let used: alloc::vec::Vec<&str> =
            DeviceState::ALL.into_iter().filter(|s| s.is_used()).map(DeviceState::name).collect();
        assert_eq!(used, ["ONLINE", "SUSPECT", "REBUILDING", "REMOVING"]);
    }
}
