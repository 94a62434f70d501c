//! Pieces go to the socket, many replies with one call; what is sent gives its memory and its slot back.

use std::io;

use braid_core::units::BufRange;

use super::{Connection, Life, Piece, Status, UNSENT_MAX};
use crate::buffers::Buffers;

/// Pieces of memory in one sendmsg: 128 reads.
const IOVECS: usize = 256;

impl Connection {
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
