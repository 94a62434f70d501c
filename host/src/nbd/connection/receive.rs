//! From the socket to headers and payload: what one call takes, where it lands, when it stops.

use std::cell::Cell;
use std::io;

use super::slots::{Header, Slot};
use super::{Action, Connection, Life, State, Status, UNSENT_MAX};
use crate::buffers::Buffers;
use crate::nbd::proto::{REQUEST_LEN, RequestHeader};

/// Bytes that one recv takes: 9,362 read requests, or 63 writes of 4 KiB.
pub const RECV_MAX: usize = 256 << 10;

/// Bytes that one recv takes while a client sends large writes: enough for the next header, so that payload is not
/// received into the wrong place first.
pub(super) const RECV_SMALL: usize = 512;

const _: () = assert!(RECV_SMALL > REQUEST_LEN);

/// Bytes that one call of [`Connection::readable`] takes before others get their turn.
pub const READ_QUOTA: usize = 1 << 20;

thread_local! {
    /// Where bytes land before they are parsed; shared by all connections of the thread.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Connection {
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
        if let Some(status) = self.parse_pending(buffers, out) {
            return status;
        }
        let mut quota = READ_QUOTA;
        loop {
            let (n, room) = match self.receive(scratch, buffers, out) {
                Ok(received) => received,
                Err(status) => return status,
            };
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

    /// What came in earlier and had to wait.
    fn parse_pending(&mut self, buffers: &mut Buffers, out: &mut Vec<Action>) -> Option<Status> {
        if self.pending.is_empty() {
            return None;
        }
        let pending = std::mem::take(&mut self.pending);
        let used = self.parse(&pending, buffers, out);
        self.pending = pending;
        self.pending.drain(..used.min(self.pending.len()));
        let stop = self.stop_reason();
        if stop.is_none() && self.pending.capacity() > UNSENT_MAX {
            self.pending.shrink_to(REQUEST_LEN);
        }
        stop
    }

    /// One recv: how many bytes came, and for how many there was room; or why it is over.
    fn receive(
        &mut self,
        scratch: &mut [u8],
        buffers: &mut Buffers,
        out: &mut Vec<Action>,
    ) -> Result<(usize, usize), Status> {
        // Not stalled, so what is pending is less than a header.
        let head = self.pending.len();
        let Some((front, space)) = scratch.split_at_mut_checked(head) else {
            self.kill(buffers);
            return Err(Status::Closed);
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
                return Err(Status::Closed);
            }
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(Status::Idle),
            Err(_) => {
                self.kill(buffers);
                return Err(Status::Closed);
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
                return Err(status);
            }
        }
        Ok((n, room))
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
            let used = match self.state {
                State::Header => self.parse_header(rest, buffers, out),
                State::Payload { slot, got } => self.parse_payload(slot, got, rest, buffers, out),
                State::Swallow { left, header, error, words } => {
                    let used = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.swallowed(left.saturating_sub(used as u64), header, (error, words));
                    (used > 0).then_some(used)
                }
            };
            let Some(used) = used else { break };
            rest = rest.get(used..).unwrap_or_default();
        }
        data.len().saturating_sub(rest.len())
    }

    /// A request, of which `rest` is the beginning; None when it is not whole, or something is missing to begin it.
    fn parse_header(&mut self, rest: &[u8], buffers: &mut Buffers, out: &mut Vec<Action>) -> Option<usize> {
        if self.arena.len().saturating_sub(self.arena_sent) > UNSENT_MAX {
            self.stalled = rest.len() >= REQUEST_LEN;
            return None;
        }
        let header = match RequestHeader::decode(rest) {
            Ok(header) => header?,
            Err(_) => {
                self.kill(buffers);
                return None;
            }
        };
        if !self.request(header.into(), buffers, out) {
            self.stalled = true;
            return None;
        }
        Some(REQUEST_LEN)
    }

    /// More of a write, into its buffer; None when nothing is here, or no memory for it.
    fn parse_payload(
        &mut self,
        slot: u16,
        got: usize,
        rest: &[u8],
        buffers: &mut Buffers,
        out: &mut Vec<Action>,
    ) -> Option<usize> {
        if rest.is_empty() {
            return None;
        }
        let entry = self.slots.get_mut(slot as usize)?;
        let header = entry.header;
        let buf = match entry.buf {
            Some(buf) => buf,
            None => match buffers.alloc(header.envelope()) {
                Some(buf) => *entry.buf.insert(buf),
                None => {
                    self.stalled = true;
                    return None;
                }
            },
        };
        let n = rest.len().min((header.len as usize).saturating_sub(got));
        let from = header.skew().saturating_add(got);
        let to = buffers.bytes_mut(buf).get_mut(from..from.saturating_add(n));
        if let (Some(to), Some(from)) = (to, rest.get(..n)) {
            to.copy_from_slice(from);
        }
        self.state = State::Payload { slot, got: got.saturating_add(n) };
        self.finish_payload(slot, out);
        Some(n)
    }

    /// Of a refused write `left` bytes are to come; the refusal is sent behind the last.
    fn swallowed(&mut self, left: u64, header: Header, (error, words): (u32, &'static str)) {
        if left > 0 {
            self.state = State::Swallow { left, header, error, words };
        } else {
            self.state = State::Header;
            self.put_error(header, error, words);
        }
    }
}
