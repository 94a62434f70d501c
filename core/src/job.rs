//! What a pool remembers of the job that moves its content: what for, how far. The work itself is the engine's.
//!
//! There is one job at a time. It needs no place to go on from: what is left to move is what still stands where it should
//! not, and that can be seen.

use crate::ChunkType;
use crate::chunk::Chunk;
use crate::profile::Profile;
use crate::scrub::State;
use crate::units::{DeviceId, MIB, UNIT};

/// Units under way at most: memory of 8 MiB, and enough neighbours in the queue to make commands of the longest kind.
pub const MOVES_MAX: usize = (8 * MIB / UNIT) as usize;
/// Units besides, that are copied and wait for a flush before the map names them: 16 MiB, which stay in memory for their checksums.
/// A flush covers half of them while the other half is copied, and costs a disk little of its time.
pub const COPIES_MAX: usize = 2 * MOVES_MAX;
/// Units that a round gathers at most, and one chunk more: 64 GiB of content, 8 bytes each.
pub const ROUND_MAX: u64 = 1 << 20;
/// Units that could not be moved, that are told one by one; then they are only counted.
pub const TOLD_MAX: u64 = 100;

/// What a job is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// A member is emptied and leaves.
    Remove {
        /// Which.
        device: DeviceId,
    },
    /// Another member gets what a member has, and that one leaves.
    Replace {
        /// Which leaves.
        device: DeviceId,
        /// Which comes.
        by: DeviceId,
    },
    /// Chunks are written anew, perhaps in another profile.
    Balance {
        /// Which data chunks, and what they become.
        data: Option<Choice>,
        /// Which metadata chunks; pool records follow their profile.
        metadata: Option<Choice>,
    },
    /// What spilled goes back to the tier it prefers.
    Return,
}

impl Task {
    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Task::Remove { .. } => "remove",
            Task::Replace { .. } => "replace",
            Task::Balance { .. } => "balance",
            Task::Return => "return",
        }
    }

    /// Profiles of future chunks by type, once it is begun; `now` are those before.
    pub fn profiles(&self, now: [Profile; 3]) -> [Profile; 3] {
        let Task::Balance { data, metadata } = self else { return now };
        let convert = |choice: &Option<Choice>| choice.as_ref().and_then(|choice| choice.convert);
        let metadata = convert(metadata);
        let system = metadata.map_or(now[2], Profile::system);
        [convert(data).unwrap_or(now[0]), metadata.unwrap_or(now[1]), system]
    }
}

/// Which chunks of a type are balanced: those that every filter lets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// New chunks have this profile from now on.
    pub convert: Option<Profile>,
    /// Chunks that have it already are left alone.
    pub soft: bool,
    /// At most so full, in a hundred.
    pub usage: u8,
    /// With a column on this member.
    pub device: Option<DeviceId>,
    /// Of these profiles: one bit each, by number; 0 = any.
    pub profiles: u16,
    /// So many chunks at most, those that come first; 0 = all.
    pub limit: u32,
}

impl Default for Choice {
    fn default() -> Self {
        Choice { convert: None, soft: false, usage: 100, device: None, profiles: 0, limit: 0 }
    }
}

impl Choice {
    fn takes(&self, chunk: &Chunk) -> bool {
        let percent = u128::from(chunk.used()) * 100;
        let is_done = self.soft && self.convert == Some(chunk.profile);
        !is_done
            && percent <= u128::from(chunk.length) * u128::from(self.usage)
            && self.device.is_none_or(|device| chunk.is_on(device))
            && (self.profiles == 0 || self.profiles >> (chunk.profile as u16) & 1 == 1)
    }
}

/// The last job of a pool. Bytes are those of content, whatever the copies; moments are seconds since 1970, 0 = not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What for.
    pub task: Task,
    /// How far.
    pub state: State,
    /// When it was started.
    pub started: u64,
    /// When it ended or was paused.
    pub ended: u64,
    /// How long it ran, without pauses, in ms.
    pub ran_ms: u64,
    /// Chunks of this id and above came later and are no part of a balance.
    pub end: u32,
    /// Bytes moved.
    pub done: u64,
    /// Bytes that there were to move when it was started.
    pub total: u64,
    /// Chunks that were emptied.
    pub chunks: u32,
    /// Units of which some block could not be read from any copy: they stay where they are.
    pub lost: u64,
    /// It was paused by itself, as nothing could be moved for want of room.
    pub no_room: bool,
}

impl Job {
    /// A new one.
    pub(crate) fn new(task: Task, started: u64, end: u32) -> Job {
        let (state, ended, ran_ms) = (State::Running, 0, 0);
        Job { task, state, started, ended, ran_ms, end, done: 0, total: 0, chunks: 0, lost: 0, no_room: false }
    }

    /// Under way, or paused.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Running | State::Paused)
    }

    /// Whether what is in this chunk is to move; `system` is the profile of new system chunks.
    pub(crate) fn moves(&self, chunk: &Chunk, system: Profile) -> bool {
        match &self.task {
            Task::Remove { device } | Task::Replace { device, .. } => chunk.is_on(*device),
            Task::Return => chunk.spilled && chunk.kind != ChunkType::System,
            Task::Balance { .. } if chunk.id.0 >= self.end => false,
            Task::Balance { data, metadata } => match chunk.kind {
                ChunkType::Data => data.as_ref().is_some_and(|choice| choice.takes(chunk)),
                ChunkType::Metadata => metadata.as_ref().is_some_and(|choice| choice.takes(chunk)),
                ChunkType::System => {
                    metadata.as_ref().is_some_and(|choice| choice.convert.is_some()) && chunk.profile != system
                }
            },
        }
    }

    /// Chunks of a type that may still be taken.
    pub(crate) fn limit(&self, kind: ChunkType) -> u32 {
        let choice = match (&self.task, kind) {
            (Task::Balance { data, .. }, ChunkType::Data) => data.as_ref(),
            (Task::Balance { metadata, .. }, ChunkType::Metadata) => metadata.as_ref(),
            _ => None,
        };
        match choice {
            Some(Choice { limit: 1.., .. }) => choice.map_or(0, |c| c.limit).saturating_sub(self.chunks),
            _ => u32::MAX,
        }
    }

    /// The member that leaves with it.
    pub fn leaving(&self) -> Option<DeviceId> {
        match self.task {
            Task::Remove { device } | Task::Replace { device, .. } => Some(device),
            Task::Balance { .. } | Task::Return => None,
        }
    }
}
