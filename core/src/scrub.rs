//! What a pool remembers of its scrub: state, place, result. The work itself is the engine's.

use alloc::collections::BTreeMap;

use crate::profile::parity::MEMBERS_MAX;
use crate::units::{DeviceId, KIB, MIB, STRIP};

/// Places that a record holds; lanes beyond begin anew after a restart.
pub const PLACES_MAX: usize = 256;

/// Longest piece: what one command of a rotating disk should be at least to pay for its seek.
pub const PIECE_MAX: u64 = MIB;
/// Longest scratch buffer that an engine asks for: a piece of rows is a row at least, with its parity once more as it should be.
pub const SCRATCH_MAX: u64 = (MEMBERS_MAX as u64 + 2) * STRIP;
/// Longest I/O of a piece. Queues join neighbours again as far as is good for their device; what is longer than that from
/// the beginning they could not cut, and whoever comes behind it would wait.
pub const PART_MAX: u64 = 128 * KIB;
/// Units that a round gathers at most, and one chunk more: 64 GiB of content, 8 bytes each.
pub const ROUND_MAX: u64 = 1 << 20;
/// Pieces under way a lane, times the strips that each is spread over: enough that a device has the next one when one is done.
pub const WINDOW: usize = 4;
/// Memory of pieces under way with `scrub_memory=auto`, at least. With many lanes pieces get shorter; neighbours join again in
/// the queue.
pub const MEMORY: u64 = 16 * MIB;
/// With many members there is so much for each of them: a row is through when the slowest of its disks is, and with less the others have
/// nothing to read meanwhile.
pub const MEMORY_OF_MEMBER: u64 = MIB;
/// Members with a result of their own that a record holds; those beyond are in the sums only after a restart.
pub const FOUND_MAX: usize = 48;
/// Places that are told one by one; then they are only counted.
pub const TOLD_MAX: u32 = 1000;
/// How much may be read twice after a crash: the place is written down so often.
pub const SAVE_NS: u64 = 10_000_000_000;

/// `scrub_memory=auto` in a pool of so many members.
#[must_use]
pub fn memory_of(members: usize) -> u64 {
    MEMORY.max(members as u64 * MEMORY_OF_MEMBER)
}

/// How far a scrub is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// There never was one.
    #[default]
    None,
    /// Under way; also while the pool is closed.
    Running,
    /// Stopped by an operator, with its place.
    Paused,
    /// Everything was read.
    Finished,
    /// Stopped for good by an operator.
    Canceled,
}

impl State {
    /// All, by number on disk.
    pub const ALL: [State; 5] = [State::None, State::Running, State::Paused, State::Finished, State::Canceled];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            State::None => "none",
            State::Running => "running",
            State::Paused => "paused",
            State::Finished => "finished",
            State::Canceled => "canceled",
        }
    }
}

/// How far a device is, in the chunks that begin on it, which are read in order of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// First byte on the device of the chunk it is at; those that begin below are done.
    pub start: u64,
    /// First unit of it that is not done.
    pub unit: u32,
}

/// What was found on one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Blocks that differ: of three copies or more those in the minority, else on every copy.
    pub differences: u64,
    /// Blocks that could not be read.
    pub read_errors: u64,
}

/// The last scrub of a pool. Sums count each copy; moments are seconds since 1970, 0 = not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    /// How far it is.
    pub state: State,
    /// When it was started.
    pub started: u64,
    /// When it ended or was paused.
    pub ended: u64,
    /// How long it ran, without pauses, in ms.
    pub ran_ms: u64,
    /// Chunks of this id and above came later and are no part of it.
    pub end: u32,
    /// Bytes of units, by copies, that were passed.
    pub done: u64,
    /// Bytes that there were to pass when it was started.
    pub total: u64,
    /// Bytes of copies that were not read because their member was not there.
    pub unread: u64,
    /// Blocks whose copies are not alike.
    pub differences: u64,
    /// Blocks of copies that could not be read.
    pub read_errors: u64,
    /// Blocks of the pool's own records that checkpoints came between at every look: nothing is known of them.
    pub undecided: u64,
    /// Blocks of copies that were written anew, since they could not be read or were outvoted.
    pub repaired: u64,
    /// What was found, by member.
    pub found: BTreeMap<DeviceId, Found>,
    /// Where it is, by the device that chunks begin on.
    pub places: BTreeMap<DeviceId, Place>,
}
