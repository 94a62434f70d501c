//! Sums over all chunks, kept so that nobody has to go through them for one more.

use crate::ChunkType;
use crate::chunk::Chunk;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Chunks of any type.
    pub(crate) chunks: u64,
    /// Their columns.
    pub(crate) columns: u64,
    /// Bytes in chunks of volume content.
    pub(crate) content: u64,
    /// Chunks of volume content with more than one copy.
    pub(crate) mirrored: u64,
    /// Bytes in chunks of volume content that spilled.
    pub(crate) spilled: u64,
    /// System chunks.
    pub(crate) system_chunks: u64,
    /// Bytes in them.
    pub(crate) system: u64,
}

impl Totals {
    pub(super) fn add(&mut self, chunk: &Chunk) {
        self.chunks += 1;
        self.columns += chunk.columns.len() as u64;
        match chunk.kind {
            ChunkType::System => {
                (self.system_chunks, self.system) = (self.system_chunks + 1, self.system + chunk.length)
            }
            ChunkType::Data | ChunkType::Metadata => {
                self.content += chunk.length;
                self.spilled += if chunk.spilled { chunk.length } else { 0 };
                self.mirrored += u64::from(chunk.profile.facts().copies > 1);
            }
        }
    }

    pub(super) fn remove(&mut self, chunk: &Chunk) {
        self.chunks -= 1;
        self.columns -= chunk.columns.len() as u64;
        match chunk.kind {
            ChunkType::System => {
                (self.system_chunks, self.system) = (self.system_chunks - 1, self.system - chunk.length)
            }
            ChunkType::Data | ChunkType::Metadata => {
                self.content -= chunk.length;
                self.spilled -= if chunk.spilled { chunk.length } else { 0 };
                self.mirrored -= u64::from(chunk.profile.facts().copies > 1);
            }
        }
    }

    /// The slow, obvious twin.
    #[cfg(debug_assertions)]
    pub(super) fn of<'a>(chunks: impl Iterator<Item = &'a Chunk>) -> Totals {
        let mut totals = Totals::default();
        chunks.for_each(|chunk| totals.add(chunk));
        totals
    }
}
