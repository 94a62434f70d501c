//! One request of the kernel and its answer, given once, from any thread.

use braid_core::request::{Op, RequestError};
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};

use super::permit::Permit;
use crate::aligned::AlignedBox;

/// One request for a volume.
#[derive(Debug)]
pub struct Call {
    /// What.
    pub op: Op,
    /// First byte; within the volume.
    pub offset: u64,
    /// Bytes; 0 only for a flush. The range ends within the volume.
    pub len: u64,
    /// The process that asks, as the kernel says; 0 when it does not (it is outside this pid namespace).
    pub pid: u32,
    /// For writes: memory that covers the block-aligned envelope of the range, with the payload at `offset % BLOCK`.
    pub data: Option<AlignedBox>,
    /// Where the answer goes.
    pub reply: ReplyHandle,
}

/// Where calls go.
pub trait Sink: Send + Sync {
    /// Takes a call. Must not wait for anything that a session thread of the same share does; the answer may be given
    /// from any thread, before or after this returns.
    fn submit(&self, call: Call);
}

/// Answers one request, once. Dropping it answers EIO.
#[derive(Debug)]
pub struct ReplyHandle {
    slot: Option<Slot>,
    len: u64,
    _permit: Permit,
}

#[derive(Debug)]
pub(super) enum Slot {
    Read(ReplyData),
    Write(ReplyWrite),
    Empty(ReplyEmpty),
}

impl ReplyHandle {
    /// `permit` is what the request takes in memory.
    pub(super) fn new(slot: Slot, len: u64, permit: Permit) -> ReplyHandle {
        ReplyHandle { slot: Some(slot), len, _permit: permit }
    }

    /// Done: a write, flush, discard or write-zeroes.
    pub fn ok(mut self) {
        match self.slot.take() {
            Some(Slot::Write(reply)) => reply.written(self.len as u32),
            Some(Slot::Empty(reply)) => reply.ok(),
            Some(Slot::Read(reply)) => {
                debug_assert!(false, "a read was answered without data");
                reply.error(Errno::EIO);
            }
            None => {}
        }
    }

    /// The bytes of a read: exactly [`Call::len`] of them, *without* the envelope. Copied before this returns.
    /// Anything shorter would be an end of file in the middle, so it becomes EIO.
    pub fn data(mut self, bytes: &[u8]) {
        match self.slot.take() {
            Some(Slot::Read(reply)) if bytes.len() as u64 == self.len => reply.data(bytes),
            Some(slot) => {
                debug_assert!(false, "{} bytes for a request of {}", bytes.len(), self.len);
                slot.error(Errno::EIO);
            }
            None => {}
        }
    }

    /// It failed.
    pub fn fail(mut self, error: RequestError) {
        if let Some(slot) = self.slot.take() {
            slot.error(errno(error));
        }
    }
}

impl Drop for ReplyHandle {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            tracing::warn!("a FUSE request was dropped unanswered; the application gets EIO");
            slot.error(Errno::EIO);
        }
    }
}

impl Slot {
    fn error(self, error: Errno) {
        match self {
            Slot::Read(reply) => reply.error(error),
            Slot::Write(reply) => reply.error(error),
            Slot::Empty(reply) => reply.error(error),
        }
    }
}

/// What an application sees of a failed request.
fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::NoVolume => Errno::ENXIO,
        RequestError::OutOfRange | RequestError::Invalid => Errno::EINVAL,
        RequestError::ReadOnly => Errno::EROFS,
        RequestError::NoSpace => Errno::ENOSPC,
        RequestError::Io => Errno::EIO,
        RequestError::Busy => Errno::EAGAIN,
    }
}
