//! The NBD load generator: [`Client`] negotiates, then a loop that does as little as it can.
//!
//! It must not be what is measured. So requests are formatted once and only their offset changes, payload is sent from
//! where it lies and received to be thrown away, and replies are looked at as far as finding the next one needs.
//! *Batched*, everything that can be sent goes in one call, as io_uring and libnbd users do; *one by one*, each request
//! is a call of its own, as with a client that has a thread a request.

use super::{Dice, failed};
use braid_host::control::api::ApiError;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::{REQUEST_LEN, RequestHeader, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, cmd};
use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) write: bool,
    pub(super) len: u32,
    pub(super) depth: usize,
    pub(super) sequential: bool,
    pub(super) batched: bool,
}

/// One connection, kept between runs.
pub(super) struct Conn {
    client: Client<UnixStream>,
    size: u64,
    input: Vec<u8>,
    start: usize,
    end: usize,
    payload: Vec<u8>,
    /// Round trips of the last run at depth 1, in nanoseconds.
    trips: Vec<u32>,
}

const INPUT: usize = 256 << 10;

impl Conn {
    pub(super) fn open(socket: &Path, export: &str, size: u64) -> Result<Conn, ApiError> {
        let wish = Wish { allocation: false, ..Wish::default() };
        let client = Client::connect(socket, export, wish).map_err(failed)?;
        if client.size < size {
            return Err(failed(format!("{} serves {} bytes instead of {size}", socket.display(), client.size)));
        }
        Ok(Conn {
            client,
            size,
            input: vec![0; INPUT],
            start: 0,
            end: 0,
            payload: vec![0x5a; 1 << 20],
            trips: Vec::new(),
        })
    }

    /// Every block once: what is thin elsewhere is thin no more.
    pub(super) fn fill(&mut self) -> Result<(), ApiError> {
        let shape = Shape { write: true, len: 1 << 20, depth: 4, sequential: true, batched: false };
        let requests = self.size >> 20;
        self.run(shape, 0, |done| done < requests).map(drop)
    }

    /// Requests a second within `time`.
    pub(super) fn rate(&mut self, shape: Shape, seed: u64, time: Duration) -> Result<f64, ApiError> {
        let began = Instant::now();
        // The clock is looked at once in a while; a clock call a request would be part of the result.
        let mut next_look = 0;
        let mut over = false;
        let done = self.run(shape, seed, |done| {
            if done >= next_look {
                next_look = done + if shape.depth > 1 { 64 } else { 16 };
                over = began.elapsed() >= time;
            }
            !over
        })?;
        Ok(done as f64 / began.elapsed().as_secs_f64())
    }

    /// Keeps `depth` in flight while `more(done)`, then waits for the rest.
    fn run(&mut self, shape: Shape, seed: u64, mut more: impl FnMut(u64) -> bool) -> Result<u64, ApiError> {
        let Shape { write, len, depth, sequential, batched } = shape;
        let kind = if write { cmd::WRITE } else { cmd::READ };
        let mut headers: Vec<Vec<u8>> = (0..depth as u64)
            .map(|cookie| {
                let mut bytes = Vec::with_capacity(REQUEST_LEN);
                RequestHeader { flags: 0, kind, cookie, offset: 0, len }.encode(&mut bytes);
                bytes
            })
            .collect();
        let (mut dice, places) = (Dice(seed + 1), self.size / u64::from(len));
        let mut at = if sequential { dice.below(places) } else { 0 };
        if seed == 0 {
            at = 0;
        }
        let mut ready: Vec<usize> = (0..depth).collect();
        let (mut done, mut in_flight) = (0u64, 0usize);
        self.trips.clear();
        loop {
            let sent = (depth == 1).then(Instant::now);
            if !ready.is_empty() && more(done) {
                for &slot in &ready {
                    let place = if sequential { at } else { dice.below(places) };
                    at = (at + 1) % places;
                    let offset = place * u64::from(len);
                    headers[slot][16..24].copy_from_slice(&offset.to_be_bytes());
                    in_flight += 1;
                    if !batched {
                        let payload: &[u8] = if write { &self.payload[..len as usize] } else { &[] };
                        send(self.client.stream(), &mut [IoSlice::new(&headers[slot]), IoSlice::new(payload)])?;
                    }
                }
                if batched {
                    let mut pieces = Vec::with_capacity(2 * ready.len());
                    for &slot in &ready {
                        pieces.push(IoSlice::new(&headers[slot]));
                        if write {
                            pieces.push(IoSlice::new(&self.payload[..len as usize]));
                        }
                    }
                    send(self.client.stream(), &mut pieces)?;
                }
                ready.clear();
            }
            if in_flight == 0 {
                return Ok(done);
            }
            self.receive(&mut ready, len)?;
            if let Some(sent) = sent {
                self.trips.push(sent.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32);
            }
            if ready.len() > in_flight {
                return Err(failed("more answers than questions"));
            }
            in_flight -= ready.len().min(in_flight);
            done += ready.len() as u64;
            if !more(done) {
                ready.clear();
            }
        }
    }

    /// At least one answer, and all that came with it.
    fn receive(&mut self, ready: &mut Vec<usize>, len: u32) -> Result<(), ApiError> {
        loop {
            while let Some((cookie, used, last)) = reply(&self.input[self.start..self.end], len)? {
                // Payload is not looked at; what has not come yet is thrown away as it comes.
                let have = self.end - self.start;
                self.start += used.min(have);
                let mut missing = used.saturating_sub(have);
                while missing > 0 {
                    let room = missing.min(INPUT);
                    let n = self.client.stream().read(&mut self.input[..room]).map_err(failed)?;
                    if n == 0 {
                        return Err(failed("the server left"));
                    }
                    missing -= n;
                    (self.start, self.end) = (0, 0);
                }
                if last {
                    ready.push(cookie as usize);
                }
            }
            if !ready.is_empty() {
                return Ok(());
            }
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let n = self.client.stream().read(&mut self.input[self.end..]).map_err(failed)?;
            if n == 0 {
                return Err(failed("the server left"));
            }
            self.end += n;
        }
    }
}

/// Cookie, bytes with payload, and whether it is the last of its request; None when the header is not here yet.
fn reply(bytes: &[u8], len: u32) -> Result<Option<(u64, usize, bool)>, ApiError> {
    let field = |at: usize, n: usize| {
        bytes.get(at..at + n).map(|b| b.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    let Some(magic) = field(0, 4) else { return Ok(None) };
    if magic == u64::from(SIMPLE_REPLY_MAGIC) {
        let (Some(error), Some(cookie)) = (field(4, 4), field(8, 8)) else { return Ok(None) };
        return if error == 0 { Ok(Some((cookie, 16, true))) } else { Err(failed(format!("server error {error}"))) };
    }
    if magic != u64::from(STRUCTURED_REPLY_MAGIC) {
        return Err(failed("the server broke the protocol"));
    }
    let (Some(flags), Some(kind), Some(cookie), Some(length)) = (field(4, 2), field(6, 2), field(8, 8), field(16, 4))
    else {
        return Ok(None);
    };
    if kind as u16 & chunk::ERR != 0 || length > u64::from(len) + 8 {
        return Err(failed("the server answered with an error"));
    }
    Ok(Some((cookie, 20 + length as usize, flags as u16 & chunk::FLAG_DONE != 0)))
}

fn send(stream: &mut UnixStream, mut pieces: &mut [IoSlice<'_>]) -> Result<(), ApiError> {
    while !pieces.is_empty() {
        let n = stream.write_vectored(pieces).map_err(failed)?;
        IoSlice::advance_slices(&mut pieces, n);
    }
    Ok(())
}

/// The median round trip of the last run, over all connections; 0 above depth 1.
pub(super) fn round_trip_ns(conns: &[Conn]) -> f64 {
    let mut all: Vec<u32> = conns.iter().flat_map(|c| c.trips.iter().copied()).collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0).into()
}

/// All connections at once; the sum of their rates.
pub(super) fn together(conns: &mut [Conn], shape: Shape, seed: u64, time: Duration) -> Result<f64, ApiError> {
    std::thread::scope(|scope| {
        let running: Vec<_> = conns
            .iter_mut()
            .enumerate()
            .map(|(i, conn)| scope.spawn(move || conn.rate(shape, seed * 16 + i as u64 + 1, time)))
            .collect();
        let mut sum = 0.0;
        for thread in running {
            sum += thread.join().map_err(|_| failed("a load thread ended in a panic"))??;
        }
        Ok(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::reply;

    #[test]
    fn replies_are_told_apart() {
        let simple = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
        let mut data = vec![0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0x10, 8];
        assert_eq!(reply(&simple, 4096).unwrap(), Some((5, 16, true)));
        assert_eq!(reply(&simple[..15], 4096).unwrap(), None);
        assert_eq!(reply(&data, 4096).unwrap(), Some((6, 4124, true)));
        data[5] = 0;
        assert_eq!(reply(&data, 4096).unwrap(), Some((6, 4124, false)));
        assert!(reply(&data, 512).is_err());
        assert!(reply(b"what", 512).is_err());
    }
}
