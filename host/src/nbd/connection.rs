//! The transmission phase: bytes of a socket into requests of the engine, replies into one sendmsg.
//!
//! ```text
//!   recv ──► scratch (one per thread) ──► headers ──► Action::Submit ──► engine
//!      └───► rest of a WRITE, straight into its buffer                     │
//!   sendmsg ◄── pieces: headers in an arena, payload in its buffer ◄── Reply
//! ```
//!
//! One recv takes up to [`RECV_MAX`] and parses every request in it; one sendmsg answers as many as there are. There
//! is no allocation per request: slots, pieces and the arena are reused.
//!
//! Full is an ordinary day. When a slot, payload memory or room for replies is missing, the rest of the input stays
//! where it is, nothing more is read, and [`Connection::stalled`] says so until [`Connection::readable`] gets through.
//! The pump tries again when something was answered, sent or freed, and not before: a socket event will not come. Its
//! buffers must be able to hold one request of [`PAYLOAD_MAX`] and a block, or that request waits for ever.
//!
//! The life of a payload buffer: taken when the first byte of a write is here (or when a read is submitted), with
//! the engine until its [`Reply`], then with the socket until the last byte is sent. A client that goes away changes
//! nothing about the middle part: the connection is [`closed`](Connection::closed) only when the engine has answered
//! everything.
//!
//! A write is submitted when its last byte is here, so a client that vanishes in the middle has written nothing.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use braid_core::request::{Content, NO_BUF, Op, Reply, Request, RequestError};
use braid_core::units::{BLOCK, BufId, BufRange, ClientId, VolumeId, round_down, round_up};

use super::handshake::Session;
use super::proto::{self, PAYLOAD_MAX, Put, REQUEST_LEN, RequestHeader, chunk, cmd, err};
use super::stream::Stream;
use crate::buffers::Buffers;

/// Bytes that one recv takes: 9,362 read requests, or 63 writes of 4 KiB.
pub const RECV_MAX: usize = 256 << 10;
/// Bytes that one recv takes while a client sends large writes: enough for the next header, so that payload is not
/// received into the wrong place first.
const RECV_SMALL: usize = 512;
/// A write from here on is "large".
const LARGE_WRITE: u32 = 32 << 10;
/// Bytes that one call of [`Connection::readable`] takes before others get their turn.
pub const READ_QUOTA: usize = 1 << 20;
/// Requests of one connection between header and sent reply. nbdcopy and qemu stay at 64 or fewer; one more recv of
/// headers than this would not raise throughput.
pub const IN_FLIGHT_MAX: usize = 256;
/// Block status requests among them; bounds the memory of their replies.
pub const BLOCK_STATUS_MAX: usize = 16;
/// Extents in one block status reply; clients ask again for the rest.
pub const EXTENTS_MAX: usize = 1024;
/// Bytes of unsent reply headers at which no more requests are parsed. Replies without a slot (errors) count here.
pub const UNSENT_MAX: usize = 64 << 10;
/// Largest refused write that is received and thrown away; one that announces more ends the connection.
pub const SWALLOW_MAX: u32 = 64 << 20;
/// Payload that is worth a sendmsg of its own.
const SEND_EARLY: usize = 128 << 10;
/// Pieces of memory in one sendmsg: 128 reads.
const IOVECS: usize = 256;

const _: () = assert!(IN_FLIGHT_MAX <= u16::MAX as usize, "a slot has 16 bits in the tag");
const _: () = assert!(SWALLOW_MAX > PAYLOAD_MAX, "a refused write of legal size is always thrown away");
const _: () = assert!(RECV_SMALL > REQUEST_LEN);

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

/// An extent: bytes and [`proto::state`] flags.
pub type Extent = (u64, u32);

/// What to do with the connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Wait for the socket.
    Idle,
    /// The quota is used up, there may be more: call again without waiting.
    More,
    /// Something is missing; call again after a reply was sent or memory came back.
    Stalled,
    /// Nothing more comes in. Keep calling `reply` and `flush` until [`Connection::closed`].
    Closed,
}

/// The connection of a tag.
pub fn tag_connection(tag: u64) -> u32 {
    (tag >> 32) as u32
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// In use: the header was read and the reply is not sent.
    live: bool,
    /// Handed to the engine, not answered.
    with_engine: bool,
    /// Tells this use of the slot from the one before.
    generation: u16,
    header: Header,
    buf: Option<BufId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Header {
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

impl From<RequestHeader> for Header {
    fn from(h: RequestHeader) -> Self {
        Header { flags: h.flags, kind: h.kind, cookie: h.cookie, offset: h.offset, len: h.len }
    }
}

impl Header {
    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
    /// Offset of the payload in its buffer.
    fn skew(&self) -> usize {
        (self.offset % BLOCK) as usize
    }
    /// Bytes of the buffer.
    fn envelope(&self) -> usize {
        let end = self.offset.saturating_add(u64::from(self.len));
        let top = if end > u64::MAX - BLOCK { end } else { round_up(end, BLOCK) };
        top.saturating_sub(round_down(self.offset, BLOCK)) as usize
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    /// The payload of the write in `slot`; its buffer is taken with the first byte.
    Payload {
        slot: u16,
        got: usize,
    },
    /// The payload of a refused write.
    Swallow {
        left: u64,
        header: Header,
        error: u32,
        words: &'static str,
    },
}

#[derive(Clone, Copy, Debug)]
enum Piece {
    /// The next bytes of the arena.
    Arena(usize),
    /// Bytes of a buffer; when the last is sent the buffer and the slot are free.
    Payload { slot: u16, range: BufRange },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Requests come in.
    Serving,
    /// No more requests; answers still go out.
    Draining,
    /// The socket is of no use; answers only free their memory.
    Dead,
}

thread_local! {
    /// Where bytes land before they are parsed; shared by all connections of the thread.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A negotiated client.
#[derive(Debug)]
pub struct Connection {
    id: u32,
    stream: Stream,
    volume: VolumeId,
    share: u32,
    size: u64,
    read_only: bool,
    structured: bool,
    allocation: bool,
    life: Life,
    goodbye_said: bool,
    state: State,
    /// Received and not parsed: part of a header, or everything behind a stall.
    pending: Vec<u8>,
    stalled: bool,
    /// The end of the stream is on its way behind what is there to be received.
    ended: bool,
    /// How much the next recv may take.
    recv_len: usize,
    received: u64,
    sent_ever: u64,
    slots: Vec<Slot>,
    free: Vec<u16>,
    with_engine: usize,
    block_status: usize,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are sent.
    sent: usize,
    /// Bytes of payload among the pieces.
    unsent: usize,
    /// The socket took less than it was offered.
    full: bool,
    arena: Vec<u8>,
    arena_sent: usize,
}

impl Connection {
    /// A connection that finished its handshake; `leftover` was received behind it. Call [`Connection::readable`]
    /// once without waiting for the socket: requests may be in `leftover` or decrypted already.
    pub fn new(id: u32, stream: Stream, session: Session, leftover: Vec<u8>) -> Self {
        Connection {
            id,
            stream,
            volume: session.export.volume,
            share: session.export.share,
            size: session.export.size,
            read_only: session.export.read_only,
            structured: session.structured,
            allocation: session.allocation,
            life: Life::Serving,
            goodbye_said: false,
            state: State::Header,
            pending: leftover,
            stalled: false,
            ended: false,
            recv_len: RECV_MAX,
            received: 0,
            sent_ever: 0,
            slots: Vec::new(),
            free: Vec::new(),
            with_engine: 0,
            block_status: 0,
            pieces: VecDeque::new(),
            sent: 0,
            unsent: 0,
            full: false,
            arena: Vec::new(),
            arena_sent: 0,
        }
    }

    /// Its name, the upper half of every tag.
    pub fn id(&self) -> u32 {
        self.id
    }
    /// The descriptor, to poll.
    pub fn fd(&self) -> RawFd {
        self.stream.fd()
    }
    /// The share it came through, see [`ExportInfo::share`](super::ExportInfo::share).
    pub fn share(&self) -> u32 {
        self.share
    }
    /// Requests whose reply is not sent.
    pub fn in_flight(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }
    /// Replies wait for the socket.
    pub fn wants_write(&self) -> bool {
        self.life != Life::Dead && (!self.pieces.is_empty() || self.stream.wants_write())
    }
    /// So much waits to be sent that the client should have it now, while it is in the cache, and not when all that
    /// came with it is answered.
    pub fn is_laden(&self) -> bool {
        self.unsent >= SEND_EARLY && !self.full
    }
    /// Requests wait for a slot, for memory or for room; do not poll for input.
    pub fn stalled(&self) -> bool {
        self.stalled && self.life == Life::Serving
    }
    /// Input is of interest. A connection that wants neither to read nor to write must not be polled at all: poll
    /// reports a hang-up unasked, and there is nothing to do about it until the engine answers.
    pub fn wants_read(&self) -> bool {
        self.life == Life::Serving && !self.stalled
    }
    /// It may be dropped: nothing comes in, nothing goes out, and the engine has answered everything.
    pub fn closed(&self) -> bool {
        self.with_engine == 0
            && match self.life {
                Life::Serving => false,
                Life::Draining => self.pieces.is_empty() && !self.stream.wants_write(),
                Life::Dead => true,
            }
    }
    /// A request has begun and is not complete. When this holds and [`Connection::moved`] stands still for long,
    /// the client is holding memory for nothing.
    pub fn mid_request(&self) -> bool {
        let begun = matches!(self.state, State::Payload { .. } | State::Swallow { .. }) || !self.pending.is_empty();
        self.life == Life::Serving && begun
    }
    /// Bytes received and sent, ever: while it grows, the client is there.
    pub fn moved(&self) -> u64 {
        self.received.saturating_add(self.sent_ever)
    }

    /// Ends it at once; replies that are still due only free their memory.
    pub fn kill(&mut self, buffers: &mut Buffers) {
        if self.life == Life::Dead {
            return;
        }
        self.life = Life::Dead;
        self.drop_unfinished_write(buffers);
        for piece in std::mem::take(&mut self.pieces) {
            if let Piece::Payload { slot, range } = piece {
                buffers.free(range.buf);
                self.release(slot);
            }
        }
        self.pending = Vec::new();
        self.arena = Vec::new();
        self.arena_sent = 0;
        // SAFETY: a descriptor of ours.
        unsafe { libc::shutdown(self.fd(), libc::SHUT_RDWR) };
    }

    /// The socket says that the peer has sent its last, or is gone: the end is looked for behind the data, since no
    /// event will tell of it again.
    pub fn hung_up(&mut self) {
        self.ended = true;
    }

    /// No more requests are taken; those in flight are answered. For an orderly stop.
    pub fn drain(&mut self, buffers: &mut Buffers) {
        if self.life == Life::Serving {
            self.life = Life::Draining;
            self.stalled = false;
            self.pending = Vec::new();
            self.drop_unfinished_write(buffers);
        }
    }

    fn drop_unfinished_write(&mut self, buffers: &mut Buffers) {
        if let State::Payload { slot, .. } = self.state {
            if let Some(buf) = self.slots.get_mut(slot as usize).and_then(|s| s.buf.take()) {
                buffers.free(buf);
            }
            self.release(slot);
        }
        self.state = State::Header;
    }

    /// Receives and parses until the socket is empty, the quota is used up or something is missing.
    pub fn readable(&mut self, buffers: &mut Buffers, out: &mut Vec<Action>) -> Status {
        if self.life != Life::Serving {
            return Status::Closed;
        }
        let mut scratch = SCRATCH.take();
        if scratch.len() < RECV_MAX {
            scratch.resize(RECV_MAX, 0);
        }
        let status = self.readable_with(&mut scratch, buffers, out);
        SCRATCH.set(scratch);
        status
    }

    fn readable_with(&mut self, scratch: &mut [u8], buffers: &mut Buffers, out: &mut Vec<Action>) -> Status {
        self.stalled = false;
        if !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            let used = self.parse(&pending, buffers, out);
            self.pending = pending;
            self.pending.drain(..used.min(self.pending.len()));
            if let Some(status) = self.stop_reason() {
                return status;
            }
            if self.pending.capacity() > UNSENT_MAX {
                self.pending.shrink_to(REQUEST_LEN);
            }
        }
        let mut quota = READ_QUOTA;
        loop {
            // Not stalled, so what is pending is less than a header.
            let head = self.pending.len();
            let Some((front, space)) = scratch.split_at_mut_checked(head) else {
                self.kill(buffers);
                return Status::Closed;
            };
            let space_len = space.len().min(self.recv_len);
            let space = space.get_mut(..space_len).unwrap_or_default();
            // The rest of a write goes where it belongs; only what comes behind it lands in the scratch.
            let mut direct: &mut [u8] = &mut [];
            let mut slot_of_payload = None;
            if let State::Payload { slot, got } = self.state
                && let Some(Slot { header, buf: Some(buf), .. }) = self.slots.get(slot as usize)
            {
                let (from, to) = (header.skew().saturating_add(got), header.skew().saturating_add(header.len as usize));
                direct = buffers.bytes_mut(*buf).get_mut(from..to).unwrap_or_default();
                slot_of_payload = Some(slot);
            }
            let direct_len = direct.len();
            let room = direct_len.saturating_add(space.len());
            let n = match self.stream.recv(direct, space) {
                Ok(0) => {
                    // The end without DISC: what was asked for is still done, half a request is not.
                    self.drain(buffers);
                    return Status::Closed;
                }
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Status::Idle,
                Err(_) => {
                    self.kill(buffers);
                    return Status::Closed;
                }
            };
            self.received = self.received.saturating_add(n as u64);
            let straight = n.min(direct_len);
            if let (Some(slot), State::Payload { got, .. }) = (slot_of_payload, &mut self.state) {
                *got = got.saturating_add(straight);
                self.finish_payload(slot, out);
            }
            let fresh = n.saturating_sub(straight);
            if fresh > 0 {
                for (to, from) in front.iter_mut().zip(&self.pending) {
                    *to = *from;
                }
                self.pending.clear();
                let filled = head.saturating_add(fresh);
                let data = scratch.get(..filled).unwrap_or_default();
                let used = self.parse(data, buffers, out);
                if self.life == Life::Serving {
                    self.pending.extend_from_slice(data.get(used..).unwrap_or_default());
                }
                if let Some(status) = self.stop_reason() {
                    return status;
                }
            }
            let waits_for_payload = matches!(self.state, State::Payload { .. });
            if n < room && !waits_for_payload && !self.stream.is_tls() && !self.ended {
                // The socket gave less than there was room for: it is empty, and asking again would only say so. In the
                // middle of a payload the client is still sending, and asking again is cheaper than a sleep.
                return Status::Idle;
            }
            quota = quota.saturating_sub(n);
            if quota == 0 {
                return Status::More;
            }
        }
    }

    fn stop_reason(&self) -> Option<Status> {
        match (self.life, self.stalled) {
            (Life::Serving, false) => None,
            (Life::Serving, true) => Some(Status::Stalled),
            _ => Some(Status::Closed),
        }
    }

    /// Parses what it can; how many bytes were used. Sets `stalled` when it stopped for want of something.
    fn parse(&mut self, data: &[u8], buffers: &mut Buffers, out: &mut Vec<Action>) -> usize {
        let mut rest = data;
        while self.life == Life::Serving {
            match self.state {
                State::Header => {
                    if self.arena.len().saturating_sub(self.arena_sent) > UNSENT_MAX {
                        self.stalled = rest.len() >= REQUEST_LEN;
                        break;
                    }
                    let header = match RequestHeader::decode(rest) {
                        Ok(Some(header)) => header,
                        Ok(None) => break,
                        Err(_) => {
                            self.kill(buffers);
                            break;
                        }
                    };
                    if !self.request(header.into(), buffers, out) {
                        self.stalled = true;
                        break;
                    }
                    rest = rest.get(REQUEST_LEN..).unwrap_or_default();
                }
                State::Payload { slot, got } => {
                    if rest.is_empty() {
                        break;
                    }
                    let Some(entry) = self.slots.get_mut(slot as usize) else { break };
                    let header = entry.header;
                    let buf = match entry.buf {
                        Some(buf) => buf,
                        None => match buffers.alloc(header.envelope()) {
                            Some(buf) => *entry.buf.insert(buf),
                            None => {
                                self.stalled = true;
                                break;
                            }
                        },
                    };
                    let n = rest.len().min((header.len as usize).saturating_sub(got));
                    let from = header.skew().saturating_add(got);
                    let (head, tail) = rest.split_at_checked(n).unwrap_or((rest, &[]));
                    if let Some(to) = buffers.bytes_mut(buf).get_mut(from..from.saturating_add(n)) {
                        to.copy_from_slice(head);
                    }
                    rest = tail;
                    self.state = State::Payload { slot, got: got.saturating_add(n) };
                    self.finish_payload(slot, out);
                }
                State::Swallow { left, header, error, words } => {
                    let n = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    rest = rest.get(n..).unwrap_or_default();
                    let left = left.saturating_sub(n as u64);
                    if left > 0 {
                        self.state = State::Swallow { left, header, error, words };
                        break;
                    }
                    self.state = State::Header;
                    self.put_error(header, error, words);
                }
            }
        }
        data.len().saturating_sub(rest.len())
    }

    /// One header. False when something is missing and it has to be looked at again later.
    fn request(&mut self, header: Header, buffers: &mut Buffers, out: &mut Vec<Action>) -> bool {
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

    fn finish_payload(&mut self, slot: u16, out: &mut Vec<Action>) {
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

    fn submitted(&mut self, slot: u16) -> u64 {
        let Some(entry) = self.slots.get_mut(slot as usize) else { return 0 };
        entry.with_engine = true;
        self.with_engine = self.with_engine.saturating_add(1);
        u64::from(self.id) << 32 | u64::from(entry.generation) << 16 | u64::from(slot)
    }

    fn take_slot(&mut self, header: Header) -> Option<u16> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < IN_FLIGHT_MAX => {
                self.slots.push(Slot::default());
                self.slots.len().saturating_sub(1) as u16
            }
            None => return None,
        };
        let entry = self.slots.get_mut(slot as usize)?;
        let generation = entry.generation.wrapping_add(1);
        *entry = Slot { live: true, with_engine: false, generation, header, buf: None };
        Some(slot)
    }

    fn release(&mut self, slot: u16) {
        if let Some(entry) = self.slots.get_mut(slot as usize).filter(|s| s.live) {
            entry.live = false;
            entry.buf = None;
            self.free.push(slot);
        }
    }

    /// The slot of a tag that the engine holds, now answered.
    fn answered(&mut self, tag: u64) -> Option<(u16, Header, Option<BufId>)> {
        let slot = tag as u16;
        let entry = self.slots.get_mut(slot as usize)?;
        if tag_connection(tag) != self.id || entry.generation != (tag >> 16) as u16 || !entry.with_engine {
            return None;
        }
        entry.with_engine = false;
        self.with_engine = self.with_engine.saturating_sub(1);
        Some((slot, entry.header, entry.buf.take()))
    }

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

    /// Queues the answer to [`Action::BlockStatus`]: extents from its offset on. Empty is "cannot tell".
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

    fn put_success(&mut self, header: Header) {
        if self.life != Life::Dead {
            let start = self.arena.len();
            proto::put_simple_reply(&mut self.arena, 0, header.cookie);
            self.queue_arena(start);
        }
    }

    fn put_error(&mut self, header: Header, error: u32, words: &str) {
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

    /// Sends what is queued, many replies with one call; frees the buffers of what is sent.
    pub fn flush(&mut self, buffers: &mut Buffers) -> Status {
        self.full = false;
        while self.life != Life::Dead && !self.pieces.is_empty() {
            let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; IOVECS];
            let mut count = 0usize;
            let mut arena = self.arena.get(self.arena_sent..).unwrap_or_default();
            let mut skip = self.sent;
            for (piece, slot) in self.pieces.iter().zip(iov.iter_mut()) {
                let (base, len) = match *piece {
                    Piece::Arena(len) => {
                        // `arena_sent` has moved along with what was sent of the first piece.
                        let len = len.saturating_sub(skip);
                        let (head, tail) = arena.split_at_checked(len).unwrap_or((arena, &[]));
                        arena = tail;
                        (head.as_ptr().cast_mut(), head.len())
                    }
                    Piece::Payload { range, .. } => {
                        let (offset, len) =
                            (range.offset.saturating_add(skip as u32), range.len.saturating_sub(skip as u32));
                        match buffers.raw(BufRange { offset, len, ..range }) {
                            Some(raw) => raw,
                            None => {
                                self.kill(buffers);
                                return Status::Closed;
                            }
                        }
                    }
                };
                skip = 0;
                *slot = libc::iovec { iov_base: base.cast(), iov_len: len };
                count = count.saturating_add(1);
            }
            let iov = iov.get(..count).unwrap_or_default();
            // SAFETY: the arena is not touched during the call, and the buffers of queued replies are the host's.
            match unsafe { self.stream.send(iov) } {
                Ok(n) => self.advance(n, buffers),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.full = true;
                    break;
                }
                Err(_) => self.kill(buffers),
            }
        }
        if self.life != Life::Dead && self.pieces.is_empty() {
            match self.stream.flush() {
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => self.kill(buffers),
                _ => {}
            }
        }
        if self.life == Life::Draining && self.with_engine == 0 && self.pieces.is_empty() && !self.goodbye_said {
            self.goodbye_said = true;
            self.stream.say_goodbye();
        }
        match self.life {
            Life::Serving if self.stalled => Status::Stalled,
            Life::Serving => Status::Idle,
            _ => Status::Closed,
        }
    }

    /// `n` more bytes are sent.
    fn advance(&mut self, n: usize, buffers: &mut Buffers) {
        self.sent_ever = self.sent_ever.saturating_add(n as u64);
        let mut n = n;
        while let Some(&piece) = self.pieces.front() {
            let len = match piece {
                Piece::Arena(len) => len,
                Piece::Payload { range, .. } => range.len as usize,
            };
            let now = n.min(len.saturating_sub(self.sent));
            n = n.saturating_sub(now);
            self.sent = self.sent.saturating_add(now);
            if matches!(piece, Piece::Arena(_)) {
                self.arena_sent = self.arena_sent.saturating_add(now);
            }
            if self.sent < len {
                break;
            }
            self.sent = 0;
            self.pieces.pop_front();
            if let Piece::Payload { slot, range } = piece {
                self.unsent = self.unsent.saturating_sub(range.len as usize);
                buffers.free(range.buf);
                self.release(slot);
            }
        }
        if self.pieces.is_empty() {
            self.arena.clear();
            self.arena_sent = 0;
        } else if self.arena_sent > UNSENT_MAX {
            self.arena.drain(..self.arena_sent.min(self.arena.len()));
            self.arena_sent = 0;
        }
    }
}
