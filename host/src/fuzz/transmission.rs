//! Target: requests and payload of a client, over a socket, to an engine that answers at once, late and backwards.
//!
//! Content is not looked at. Payload memory is bounded and all of it is free again when the connection is gone.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use braid_core::request::{Reply, RequestError};

use super::{SIZE, export};
use crate::buffers::Buffers;
use crate::nbd::connection::{Action, Connection, Extent};
use crate::nbd::handshake::Session;
use crate::nbd::stream::Stream;

/// Payload memory: two requests of the largest size there is, as little as a pump has.
const MEMORY: usize = 4 << 20;
/// Turns in a row in which nothing moves, until nothing will.
const IDLE_MAX: u32 = 3;

/// Serves a client that says this; taken when it got an answer.
pub fn transmission(input: &[u8]) -> Result<bool, String> {
    let mut taken = false;
    for (structured, backwards) in [(false, false), (true, true)] {
        taken |= serve(input, structured, backwards)?;
    }
    Ok(taken)
}

struct Server {
    connection: Connection,
    buffers: Buffers,
    peer: UnixStream,
    backwards: bool,
    received: u64,
}

fn serve(input: &[u8], structured: bool, backwards: bool) -> Result<bool, String> {
    let failed = |e: std::io::Error| format!("the target itself: {e}");
    let (peer, ours) = UnixStream::pair().map_err(failed)?;
    peer.set_nonblocking(true).map_err(failed)?;
    let session = Session { export: export(), structured, allocation: structured };
    let connection = Connection::new(1, Stream::plain(ours), session, Vec::new());
    let buffers = Buffers::new(1 << 20, MEMORY).map_err(failed)?;
    let mut server = Server { connection, buffers, peer, backwards, received: 0 };
    server.exchange(input)?;
    // A client that is killed has hung up already.
    let _ = server.peer.shutdown(Shutdown::Write);
    server.exchange(&[])?;
    server.connection.kill(&mut server.buffers);
    if !server.connection.closed() {
        return Err("requests are never answered".into());
    }
    match server.buffers.used() {
        0 => Ok(server.received > 0),
        left => Err(format!("{left} bytes of payload memory are lost")),
    }
}

impl Server {
    /// Sends all of it and takes what comes, until nothing moves.
    fn exchange(&mut self, mut rest: &[u8]) -> Result<(), String> {
        // Each turn moves a byte at least, or is counted as idle.
        let most = 4 * (rest.len() as u64 + self.connection.moved()) + 1_000_000;
        let (mut idle, mut turns) = (0, 0);
        let mut chunk = [0; 65536];
        while idle < IDLE_MAX {
            turns += 1;
            if turns > most {
                return Err(format!("no end after {turns} turns"));
            }
            let before = (rest.len(), self.connection.moved(), self.connection.in_flight());
            match (&self.peer).write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => rest = &[],
            }
            self.turn();
            let got = (&self.peer).read(&mut chunk).unwrap_or(0);
            self.received += got as u64;
            let moved = got > 0 || before != (rest.len(), self.connection.moved(), self.connection.in_flight());
            idle = if moved { 0 } else { idle + 1 };
        }
        Ok(())
    }

    /// What came in is answered, and answers go out.
    fn turn(&mut self) {
        let mut actions = Vec::new();
        if self.connection.wants_read() || self.connection.stalled() {
            self.connection.readable(&mut self.buffers, &mut actions);
        }
        if self.backwards {
            actions.reverse();
        }
        for action in actions {
            match action {
                Action::Submit(request) => {
                    // One in eight fails, one in four reads is of a hole.
                    let block = request.offset / 4096;
                    let result = if block % 8 == 7 { Err(RequestError::Io) } else { Ok(()) };
                    let reply = Reply { tag: request.tag, result, hole: block % 4 == 3 };
                    self.connection.reply(&reply, &mut self.buffers);
                }
                Action::BlockStatus { tag, offset, len, .. } => {
                    let extents: Vec<Extent> =
                        (offset..offset + len).step_by(65536).map(|at| (65536, (at >> 16 & 3) as u32)).collect();
                    self.connection.block_status(tag, &extents);
                }
            }
        }
        self.connection.flush(&mut self.buffers);
    }
}

const _: () = assert!(2 * SIZE as usize <= MEMORY, "the largest request fits twice");
