//! Answers become pieces to send: headers in the arena, payload where it is.

use braid_core::request::{Reply, RequestError};
use braid_core::units::{BufId, BufRange};

use super::slots::Header;
use super::{Connection, Life, Piece};
use crate::buffers::Buffers;
use crate::nbd::proto::{self, Put, chunk, cmd, err};

/// Extents in one block status reply; clients ask again for the rest.
pub const EXTENTS_MAX: usize = 1024;

/// An extent: bytes and [`proto::state`] flags.
pub type Extent = (u64, u32);

impl Connection {
    /// Queues the answer to a request. An answer to nothing that is due is ignored.
    pub fn reply(&mut self, reply: &Reply, buffers: &mut Buffers) {
        let Some((slot, header, buf)) = self.answered(reply.tag) else { return };
        let payload = header.kind == cmd::READ && reply.result.is_ok() && self.life != Life::Dead;
        if let (true, Some(buf)) = (payload, buf) {
            if !(reply.hole && self.structured) {
                self.put_data(slot, header, buf);
                return;
            }
            self.put_hole(header);
            buffers.free(buf);
            self.release(slot);
            return;
        }
        if let Some(buf) = buf {
            buffers.free(buf);
        }
        self.release(slot);
        if header.kind == cmd::BLOCK_STATUS {
            self.block_status = self.block_status.saturating_sub(1);
        }
        match reply.result {
            Ok(()) => self.put_success(header),
            Err(error) => {
                let writes = matches!(header.kind, cmd::WRITE | cmd::WRITE_ZEROES);
                let (number, words) = match error {
                    RequestError::NoVolume => (err::ESHUTDOWN, "the volume is gone"),
                    RequestError::OutOfRange if writes => (err::ENOSPC, "past the end of the volume"),
                    RequestError::OutOfRange => (err::EINVAL, "past the end of the volume"),
                    RequestError::Invalid => (err::EINVAL, "malformed request"),
                    RequestError::ReadOnly => (err::EPERM, "the volume is read-only"),
                    RequestError::NoSpace => (err::ENOSPC, "no space is left in the pool"),
                    RequestError::Io => (err::EIO, "no copy could be read, or too few written"),
                    RequestError::Busy => (err::ENOMEM, "too many requests are in flight"),
                };
                self.put_error(header, number, words);
            }
        }
    }

    /// Queues the answer to `Action::BlockStatus`: extents from its offset on. Empty is "cannot tell".
    pub fn block_status(&mut self, tag: u64, extents: &[Extent]) {
        let Some((slot, header, _)) = self.answered(tag) else { return };
        self.release(slot);
        self.block_status = self.block_status.saturating_sub(1);
        if self.life == Life::Dead {
            return;
        }
        let start = self.arena.len();
        proto::put_chunk(&mut self.arena, chunk::BLOCK_STATUS, header.cookie, 0);
        self.arena.put_u32(proto::BASE_ALLOCATION_ID);
        let body = self.arena.len();
        let limit = if header.has(cmd::FLAG_REQ_ONE) { 1 } else { EXTENTS_MAX };
        let asked = u64::from(header.len);
        let (mut count, mut covered) = (0usize, 0u64);
        // An extent never reaches past the request: the sum then fits 32 bits, and REQ_ONE wants it so.
        let mut extents = extents.iter().filter(|e| e.0 > 0).copied().peekable();
        while let Some((mut len, flags)) = extents.next() {
            while let Some(next) = extents.next_if(|next| next.1 == flags) {
                len = len.saturating_add(next.0);
            }
            let len = len.min(asked.saturating_sub(covered));
            self.arena.put_u32(len as u32);
            self.arena.put_u32(flags);
            count = count.saturating_add(1);
            covered = covered.saturating_add(len);
            if covered >= asked || count >= limit {
                break;
            }
        }
        if count == 0 {
            self.arena.put_u32(header.len);
            self.arena.put_u32(0);
        }
        let len = 4u32.saturating_add(self.arena.len().saturating_sub(body) as u32);
        let field = start.saturating_add(16);
        if let Some(to) = self.arena.get_mut(field..field.saturating_add(4)) {
            to.copy_from_slice(&len.to_be_bytes());
        }
        self.queue_arena(start);
    }

    fn queue_arena(&mut self, start: usize) {
        let n = self.arena.len().saturating_sub(start);
        match self.pieces.back_mut() {
            Some(Piece::Arena(len)) => *len = len.saturating_add(n),
            _ => self.pieces.push_back(Piece::Arena(n)),
        }
    }

    fn put_data(&mut self, slot: u16, header: Header, buf: BufId) {
        let start = self.arena.len();
        if self.structured {
            proto::put_chunk(&mut self.arena, chunk::OFFSET_DATA, header.cookie, header.len.saturating_add(8));
            self.arena.put_u64(header.offset);
        } else {
            proto::put_simple_reply(&mut self.arena, 0, header.cookie);
        }
        self.queue_arena(start);
        let range = BufRange { buf, offset: header.skew() as u32, len: header.len };
        self.unsent = self.unsent.saturating_add(header.len as usize);
        self.pieces.push_back(Piece::Payload { slot, range });
    }

    fn put_hole(&mut self, header: Header) {
        let start = self.arena.len();
        proto::put_chunk(&mut self.arena, chunk::OFFSET_HOLE, header.cookie, 12);
        self.arena.put_u64(header.offset);
        self.arena.put_u32(header.len);
        self.queue_arena(start);
    }

    pub(super) fn put_success(&mut self, header: Header) {
        if self.life != Life::Dead {
            let start = self.arena.len();
            proto::put_simple_reply(&mut self.arena, 0, header.cookie);
            self.queue_arena(start);
        }
    }

    pub(super) fn put_error(&mut self, header: Header, error: u32, words: &str) {
        if self.life != Life::Dead {
            let start = self.arena.len();
            if self.structured {
                proto::put_error_chunk(&mut self.arena, header.cookie, error, words);
            } else {
                proto::put_simple_reply(&mut self.arena, error, header.cookie);
            }
            self.queue_arena(start);
        }
    }
}
