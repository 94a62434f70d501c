//! One I/O to one device, from the engine's decision to its completion.

use super::class::Class;
use super::waiting::Waiting;
use crate::ChunkType;
use crate::meta::Bytes;
use crate::request::{DeviceOp, NO_BUF};
use crate::units::{BufRange, ChunkId, DeviceId, Instant, IoId};

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
    /// One copy of a piece that a scrub reads.
    Scrub(u32),
    /// A slot of a superblock that a scrub reads.
    ScrubSlot,
    /// One block of a unit that is mended under the range lock, where a client may wait.
    Mend(u32),
    /// The same, in the background.
    Restore(u32),
    /// A unit on its way to another place, read or written.
    Move(u32),
    /// A superblock of a member that left is cleared.
    Wipe,
    /// One copy of a page of checksums.
    SumPage(u32),
    /// Lanes of a strip of a row that is worked at, where a client may wait.
    Row(u32),
    /// The same, in the background.
    RowInBackground(u32),
    /// One copy of a part of a group of the stripe journal.
    Ring,
    /// What an opening found in it, in place again.
    Replay,
}

impl Owner {
    /// A client is behind it, now: checkpoints and discards don't count where policies look at load.
    pub(crate) fn is_interactive(self) -> bool {
        matches!(
            self,
            Owner::Read(_)
                | Owner::Write(_)
                | Owner::Edge(_)
                | Owner::Log
                | Owner::Mend(_)
                | Owner::Row(_)
                | Owner::Ring
        )
    }

    /// What neighbours have to share besides content, as bits above those of [`ChunkType`]. Where classes may join, a
    /// scrub or a mend would make a client's command longer, and each of them the other's.
    const fn flags(self) -> u8 {
        match self {
            Owner::Scrub(_) | Owner::ScrubSlot => 1 << 4,
            Owner::Mend(_) => 1 << 5,
            Owner::Restore(_) | Owner::RowInBackground(_) => 1 << 6,
            Owner::Move(_) => 1 << 7,
            _ => 0,
        }
    }

    /// How long it may wait. Somebody waits for the log and for superblocks: writes and flushes are answered after them.
    fn class(self, op: DeviceOp) -> Class {
        match self {
            Owner::Read(_) | Owner::Write(_) | Owner::Edge(_) | Owner::Mend(_) | Owner::Row(_)
                if op == DeviceOp::Read =>
            {
                Class::SyncRead
            }
            Owner::Read(_) | Owner::Write(_) | Owner::Edge(_) | Owner::Mend(_) | Owner::Row(_) => Class::SyncWrite,
            Owner::Ring | Owner::Replay | Owner::Log | Owner::Superblock | Owner::Flush | Owner::CheckpointFlush => {
                Class::SyncWrite
            }
            Owner::Page => Class::AsyncWrite,
            Owner::Discard(_) => Class::Trim,
            Owner::Scrub(_) | Owner::ScrubSlot => Class::Scrub,
            // Under a lock that a client may wait for: not of a class that settings can bring to a stand.
            Owner::Restore(_) | Owner::RowInBackground(_) if op == DeviceOp::Read => Class::AsyncRead,
            // A client waits for a page of checksums that is read, and nobody for one that is written.
            Owner::SumPage(_) if op == DeviceOp::Read => Class::SyncRead,
            Owner::Restore(_) | Owner::RowInBackground(_) | Owner::SumPage(_) => Class::AsyncWrite,
            Owner::Move(_) => Class::Removal,
            Owner::Wipe => Class::SyncWrite,
        }
    }
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Io {
    pub(crate) owner: Owner,
    pub(crate) op: DeviceOp,
    pub(crate) device: DeviceId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) buf: BufRange,
    pub(crate) record: Option<Bytes>,
    /// Where else the same bytes are.
    pub(crate) set: CopySet,
    /// The next I/O of the command.
    pub(crate) next: Option<IoId>,
    /// Who waits, for the queue.
    pub(crate) class: Class,
    /// What kind of content it carries: neighbours of another kind don't join it.
    pub(crate) kind: ChunkType,
    /// The client asked for it to be left alone.
    pub(crate) no_merge: bool,
    /// What is read is compared with its checksums.
    pub(crate) summed: bool,
    /// It failed in company: it goes again by itself, and that error counts. Statistics know it from its first way.
    pub(crate) alone: bool,
    /// It was under way when its member lost its cache: what it brings may be from before or after.
    pub(crate) lapsed: bool,
    /// When it joined the queue. Of a command the first I/O's counts: the published policies measure requests after
    /// merging, from their creation, so that waiting here is part of it.
    pub(crate) admitted: Instant,
    /// How many batches the queue had ended when it joined.
    pub(crate) batch: u64,
    /// When it left, as a part of a command.
    pub(crate) dispatched: Instant,
    /// Of the first I/O of a command: the class that the command counts against.
    pub(crate) charged: Class,
}

impl Io {
    /// An I/O without payload of a client and without copies elsewhere.
    pub(crate) fn new(owner: Owner, op: DeviceOp, device: DeviceId, offset: u64, len: u64, now: Instant) -> Io {
        let class = owner.class(op);
        Io {
            owner,
            op,
            device,
            offset,
            len,
            buf: BufRange { buf: NO_BUF, offset: 0, len: 0 },
            record: None,
            set: CopySet::default(),
            next: None,
            class,
            kind: ChunkType::System,
            no_merge: false,
            summed: false,
            alone: false,
            lapsed: false,
            admitted: now,
            batch: 0,
            dispatched: now,
            charged: class,
        }
    }

    /// What a scheduler sees of it.
    pub(super) fn waiting(&self, id: IoId) -> Waiting {
        let kind = self.kind as u8 | self.owner.flags();
        Waiting {
            id,
            class: self.class,
            op: self.op,
            offset: self.offset,
            len: self.len,
            arrived: self.admitted,
            kind,
            mergeable: !self.no_merge && !self.alone,
            optional: false,
        }
    }
}

/// The candidate set an I/O belongs to, and which of it failed already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopySet {
    pub(crate) chunk: ChunkId,
    /// First column of the set.
    pub(crate) first: u16,
    /// Which copy this I/O goes to.
    pub(crate) copy: u8,
    /// One bit a copy, of at most four.
    pub(crate) tried: u8,
    /// Byte within the column.
    pub(crate) offset: u64,
}

impl CopySet {
    /// Another copy failed it before.
    pub(crate) fn is_second_try(&self) -> bool {
        (self.tried & 0xf).count_ones() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::limits::{Generation, QueueSettings};
    use crate::queue::waiting::Leaving;
    use crate::queue::zfs::VdevQueue;
    use crate::units::BLOCK;

    /// Where classes may join, as published, the flags of a scrub keep its I/Os to themselves.
    #[test]
    fn neighbours_of_background_work_join_only_their_like() {
        let owners =
            [Owner::Read(1), Owner::Scrub(1), Owner::Mend(1), Owner::Restore(1), Owner::Edge(1), Owner::Move(1)];
        let alike = |a: Owner, b: Owner| a == b || ![a, b].iter().any(|o| o.flags() != 0);
        for (a, b) in owners.into_iter().flat_map(|a| owners.map(|b| (a, b))) {
            let io = |owner, at| Io::new(owner, DeviceOp::Read, DeviceId(1), at * BLOCK, BLOCK, Instant(0));
            let mut queue = VdevQueue::new(QueueSettings::new(Generation::V2_0_1, true));
            let mut leaving = Leaving::default();
            // While one is on the device that has room for no more, the two meet in the queue.
            queue.arrive(Instant(0), io(Owner::Log, 99).waiting(IoId(0)), &mut leaving);
            let mut settings = queue.settings().clone();
            settings.set("max_active", "1").expect("a number");
            queue.configure(settings);
            queue.arrive(Instant(0), io(a, 1).waiting(IoId(1)), &mut leaving);
            queue.arrive(Instant(0), io(b, 2).waiting(IoId(2)), &mut leaving);
            leaving.clear();
            let class = Owner::Log.class(DeviceOp::Read).fitting(DeviceOp::Read);
            queue.complete(Instant(0), class, &mut leaving);
            assert_eq!(leaving.members.len() == 2, alike(a, b), "{a:?} and {b:?}");
        }
    }
}
