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
//! buffers must be able to hold one request of `PAYLOAD_MAX` and a block, or that request waits for ever.
//!
//! The life of a payload buffer: taken when the first byte of a write is here (or when a read is submitted), with
//! the engine until its `Reply`, then with the socket until the last byte is sent. A client that goes away changes
//! nothing about the middle part: the connection is [`closed`](Connection::closed) only when the engine has answered
//! everything.
//!
//! A write is submitted when its last byte is here, so a client that vanishes in the middle has written nothing.

mod receive;
mod reply;
mod request;
mod send;
mod slots;

pub use receive::{READ_QUOTA, RECV_MAX};
pub use reply::{EXTENTS_MAX, Extent};
pub use request::{Action, BLOCK_STATUS_MAX, SWALLOW_MAX};
pub use slots::{IN_FLIGHT_MAX, tag_connection};

use std::collections::VecDeque;
use std::os::fd::RawFd;

use braid_core::units::{BufRange, VolumeId};

use self::slots::{Header, Slot};
use super::handshake::Session;
use super::stream::Stream;
use crate::buffers::Buffers;

/// Bytes of unsent reply headers at which no more requests are parsed. Replies without a slot (errors) count here.
pub const UNSENT_MAX: usize = 64 << 10;

/// Payload that is worth a sendmsg of its own.
const SEND_EARLY: usize = 128 << 10;

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
}
