//! The queue of one device: neighbours of a batch join, and no more than the device's depth is in flight.
//!
//! An I/O is *admitted* when the engine decided it (views of the device change at that moment), *dispatched* when it
//! leaves as part of a command, *retired* when the command completes. Joining never moves memory: a command is a
//! chain of I/Os, and the host gathers their buffers.
//!
//! ```text
//!   admitted, one batch:      [64K..128K) [0..64K) [256K..260K) [128K..192K)
//!   dispatched:               [0..192K) of three I/Os, [256K..260K)
//! ```

pub mod blk_mq;
pub mod budget;
mod chains;
pub mod class;
pub mod config;
mod index;
pub mod joining;
pub mod limits;
pub mod merge;
pub mod stats;
#[cfg(test)]
mod testing;
pub mod waiting;
pub mod zfs;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::request::DeviceOp;
use crate::slab::Slab;
use crate::units::{BufRange, ChunkId, DeviceId, Instant, IoId, MIB};

/// What a device command may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commands in flight; the rest waits and may still find neighbours.
    pub depth: u32,
    /// Bytes of one command: the largest client request, so that nothing large is ever cut here.
    pub max_bytes: u64,
    /// Buffers of one command: half of what one readv takes on Linux (1,024).
    pub max_segments: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { depth: 256, max_bytes: 32 * MIB, max_segments: 512 }
    }
}

/// Who waits for an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A client's read.
    Read(u32),
    /// A client's write, one copy of one piece.
    Write(u32),
    /// The edge block that an unaligned write has to read first, or a cleared one to write back.
    Edge(u32),
    /// One copy of a group of the log.
    Log,
    /// One copy of a page of a checkpoint.
    Page,
    /// One superblock.
    Superblock,
    /// One device of a client's flush; the I/O's offset is what it covers.
    Flush,
    /// One device of a checkpoint's flush; likewise.
    CheckpointFlush,
    /// The space of a chunk that goes.
    Discard(ChunkId),
}

/// One I/O to one device.
pub(crate) struct Io {
    pub(crate) owner: Owner,
    pub(crate) op: DeviceOp,
    pub(crate) device: DeviceId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) buf: BufRange,
    pub(crate) record: Option<Arc<[u8]>>,
    /// Where else the same bytes are.
    pub(crate) set: CopySet,
    /// The next I/O of the command.
    pub(crate) next: Option<IoId>,
    /// It failed in company: it goes again by itself, and that error counts.
    pub(crate) alone: bool,
    /// When it joined the queue. Of a command the first I/O's counts: the published policies measure requests after
    /// merging, from their creation, so that waiting here is part of it.
    pub(crate) admitted: Instant,
}

/// The candidate set an I/O belongs to, and which of it failed already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopySet {
    pub(crate) chunk: ChunkId,
    /// First column of the set.
    pub(crate) first: u16,
    /// Which copy this I/O goes to.
    pub(crate) copy: u8,
    /// One bit a copy.
    pub(crate) tried: u8,
    /// Byte within the column.
    pub(crate) offset: u64,
}

#[derive(Default)]
pub(crate) struct DeviceQueue {
    /// With their keys beside them: sorting looks at nothing else.
    waiting: Vec<(Key, IoId)>,
    /// How many of those came with an earlier batch.
    settled: usize,
    /// Commands in flight.
    pub(crate) in_flight: u32,
}

impl Owner {
    /// A client is behind it, now: checkpoints and discards don't count where policies look at load.
    pub(crate) fn is_interactive(self) -> bool {
        matches!(self, Owner::Read(_) | Owner::Write(_) | Owner::Edge(_) | Owner::Log)
    }
}

impl DeviceQueue {
    pub(crate) fn admit(&mut self, id: IoId, io: &Io) {
        self.waiting.push((sort_key(io), id));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Everything that has not left yet.
    pub(crate) fn take_waiting(&mut self) -> impl Iterator<Item = IoId> + use<> {
        self.settled = 0;
        core::mem::take(&mut self.waiting).into_iter().map(|(_, id)| id)
    }

    /// Joins neighbours and hands out the first I/O of each command that may leave now.
    pub(crate) fn dispatch(
        &mut self,
        ios: &mut Slab<Io>,
        limits: &Limits,
        mut leave: impl FnMut(IoId, u64, &mut Slab<Io>),
    ) {
        // Neighbours are looked for within the batch. What waited before it stays in front: a line that is sorted anew
        // at each turn would keep writes and flushes behind reads for as long as reads come.
        if self.waiting.len() > self.settled + 1 {
            self.waiting[self.settled..].sort_by_key(|&(key, _)| key);
        }
        let mut taken = 0;
        while taken < self.waiting.len() && self.in_flight < limits.depth {
            let (_, head) = self.waiting[taken];
            let (mut tail, mut len, mut segments) = (head, ios[head.0].len, 1);
            taken += 1;
            while let Some(&(_, next)) = self.waiting.get(taken) {
                let (a, b) = (&ios[tail.0], &ios[next.0]);
                if !joins(a, b) || len + b.len > limits.max_bytes || segments == limits.max_segments {
                    break;
                }
                (len, segments) = (len + b.len, segments + 1);
                ios[tail.0].next = Some(next);
                (tail, taken) = (next, taken + 1);
            }
            self.in_flight += 1;
            leave(head, len, ios);
        }
        self.waiting.drain(..taken);
        self.settled = self.waiting.len();
    }
}

/// Kind of command, then place.
type Key = (u8, u64);

fn sort_key(io: &Io) -> Key {
    match io.op {
        DeviceOp::Read => (0, io.offset),
        DeviceOp::Write { fua: false } => (1, io.offset),
        DeviceOp::Write { fua: true } => (2, io.offset),
        DeviceOp::Flush | DeviceOp::Discard | DeviceOp::WriteZeroes => (3, 0),
    }
}

fn joins(a: &Io, b: &Io) -> bool {
    let data = matches!(a.op, DeviceOp::Read | DeviceOp::Write { .. });
    data && !a.alone && !b.alone && a.op == b.op && a.offset + a.len == b.offset
}
