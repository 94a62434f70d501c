//! A header becomes a request of the engine, or a refusal with its reason.

use braid_core::request::{Content, NO_BUF, Op, Request};
use braid_core::units::{BLOCK, ClientId, VolumeId, round_down};

use super::receive::{RECV_MAX, RECV_SMALL};
use super::slots::Header;
use super::{Connection, State};
use crate::buffers::Buffers;
use crate::nbd::proto::{PAYLOAD_MAX, cmd, err};

/// A write from here on is "large".
const LARGE_WRITE: u32 = 32 << 10;

/// Block status requests among them; bounds the memory of their replies.
pub const BLOCK_STATUS_MAX: usize = 16;

/// Largest refused write that is received and thrown away; one that announces more ends the connection.
pub const SWALLOW_MAX: u32 = 64 << 20;

const _: () = assert!(SWALLOW_MAX > PAYLOAD_MAX, "a refused write of legal size is always thrown away");

/// What a connection wants of the pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand it to the engine; the answer goes to [`Connection::reply`].
    Submit(Request),
    /// Ask for extents; the answer goes to [`Connection::block_status`].
    BlockStatus {
        /// As [`Request::tag`].
        tag: u64,
        /// Which volume.
        volume: VolumeId,
        /// First byte, not always aligned.
        offset: u64,
        /// Bytes, at least 1 and within the volume.
        len: u64,
        /// Only the first extent is wanted.
        one: bool,
    },
}

impl Connection {
    /// One header. False when something is missing and it has to be looked at again later.
    pub(super) fn request(&mut self, header: Header, buffers: &mut Buffers, out: &mut Vec<Action>) -> bool {
        if header.kind == cmd::DISC {
            self.drain(buffers);
            return true;
        }
        if let Err((error, words)) = self.check(&header) {
            if header.kind == cmd::WRITE && header.len > 0 {
                if header.len > SWALLOW_MAX {
                    self.kill(buffers);
                } else {
                    self.recv_len = RECV_MAX;
                    self.state = State::Swallow { left: u64::from(header.len), header, error, words };
                }
            } else {
                self.put_error(header, error, words);
            }
            return true;
        }
        if header.kind == cmd::CACHE {
            // A hint. The page cache below and the client's own are better places for it.
            self.put_success(header);
            return true;
        }
        if header.kind == cmd::BLOCK_STATUS && self.block_status >= BLOCK_STATUS_MAX {
            return false;
        }
        let Some(slot) = self.take_slot(header) else { return false };
        let fua = header.has(cmd::FLAG_FUA);
        let op = match header.kind {
            cmd::READ => {
                self.recv_len = RECV_MAX;
                let Some(buf) = buffers.alloc(header.envelope()) else {
                    self.release(slot);
                    return false;
                };
                if let Some(entry) = self.slots.get_mut(slot as usize) {
                    entry.buf = Some(buf);
                }
                Op::Read
            }
            cmd::WRITE => {
                self.recv_len = if header.len >= LARGE_WRITE { RECV_SMALL } else { RECV_MAX };
                self.state = State::Payload { slot, got: 0 };
                return true;
            }
            cmd::FLUSH => Op::Flush,
            // The engine's discard has no FUA; zeroing releases whole blocks just as well and has.
            cmd::TRIM if fua => Op::WriteZeroes { fua: true, no_hole: false },
            cmd::TRIM => Op::Discard,
            cmd::WRITE_ZEROES => Op::WriteZeroes { fua, no_hole: header.has(cmd::FLAG_NO_HOLE) },
            _ => {
                let tag = self.submitted(slot);
                self.block_status = self.block_status.saturating_add(1);
                out.push(Action::BlockStatus {
                    tag,
                    volume: self.volume,
                    offset: header.offset,
                    len: u64::from(header.len),
                    one: header.has(cmd::FLAG_REQ_ONE),
                });
                return true;
            }
        };
        self.submit(slot, op, out);
        true
    }

    /// Every reason to refuse a request, by name.
    fn check(&self, header: &Header) -> Result<(), (u32, &'static str)> {
        let allowed = match header.kind {
            cmd::READ if self.structured => cmd::FLAG_DF,
            cmd::READ | cmd::WRITE | cmd::FLUSH | cmd::TRIM | cmd::CACHE => 0,
            cmd::WRITE_ZEROES => cmd::FLAG_NO_HOLE | cmd::FLAG_FAST_ZERO,
            cmd::BLOCK_STATUS => cmd::FLAG_REQ_ONE,
            _ => return Err((err::EINVAL, "unknown command")),
        };
        if header.flags & !(allowed | cmd::FLAG_FUA) != 0 {
            return Err((err::EINVAL, "a flag that this command does not have"));
        }
        if header.kind == cmd::FLUSH {
            let clean = header.offset == 0 && header.len == 0;
            return if clean { Ok(()) } else { Err((err::EINVAL, "a flush has no offset and no length")) };
        }
        let modifies = matches!(header.kind, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES);
        if modifies && self.read_only {
            return Err((err::EPERM, "the export is read-only"));
        }
        if header.kind == cmd::BLOCK_STATUS && !self.allocation {
            return Err((err::EINVAL, "no metadata context was selected"));
        }
        if header.len == 0 {
            return Err((err::EINVAL, "a length of zero"));
        }
        if header.len > PAYLOAD_MAX {
            match header.kind {
                cmd::READ if self.structured => return Err((err::EOVERFLOW, "longer than 32 MiB")),
                cmd::READ | cmd::WRITE => return Err((err::EINVAL, "longer than 32 MiB")),
                _ => {}
            }
        }
        let end = header.offset.checked_add(u64::from(header.len));
        if end.is_none_or(|end| end > self.size) {
            let writes = matches!(header.kind, cmd::WRITE | cmd::WRITE_ZEROES);
            return Err((if writes { err::ENOSPC } else { err::EINVAL }, "past the end of the export"));
        }
        if header.has(cmd::FLAG_FAST_ZERO) {
            let first = header.offset.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
            let whole = round_down(end.unwrap_or(0), BLOCK) > first;
            if header.has(cmd::FLAG_NO_HOLE) || !whole {
                return Err((err::ENOTSUP, "zeroing this would be as slow as writing it"));
            }
        }
        Ok(())
    }

    pub(super) fn finish_payload(&mut self, slot: u16, out: &mut Vec<Action>) {
        if let State::Payload { got, .. } = self.state
            && let Some(entry) = self.slots.get(slot as usize)
            && got >= entry.header.len as usize
        {
            let fua = entry.header.has(cmd::FLAG_FUA);
            self.state = State::Header;
            self.submit(slot, Op::Write { fua }, out);
        }
    }

    fn submit(&mut self, slot: u16, op: Op, out: &mut Vec<Action>) {
        let tag = self.submitted(slot);
        let Some(entry) = self.slots.get(slot as usize) else { return };
        out.push(Action::Submit(Request {
            tag,
            client: ClientId(self.id),
            volume: self.volume,
            op,
            offset: entry.header.offset,
            len: u64::from(entry.header.len),
            buf: entry.buf.unwrap_or(NO_BUF),
            content: Content::Unsaid,
            no_merge: false,
        }));
    }
}
