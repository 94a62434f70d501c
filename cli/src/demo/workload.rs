//! A client that knows what every block must hold.
//!
//! A block is filled with 512 equal stamps of eight bytes: which block, and how often it was written. A job works on
//! its own part of a volume over its own connection, so that it alone knows the count.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use braid_core::units::BLOCK;
use braid_host::nbd::client::{Answer, Client, ClientError, Wish};
use braid_host::nbd::proto::cmd;

/// Requests in flight per connection.
const DEPTH: usize = 16;
/// Largest request, in blocks.
const BLOCKS_MAX: u64 = 16;
/// Blocks of one request when a volume is filled or checked.
const SWEEP: u64 = 64;

/// How often each block of a volume was written.
pub(super) struct Sheet {
    export: String,
    counts: Vec<AtomicU32>,
}

impl Sheet {
    pub(super) fn new(export: &str, size: u64) -> Arc<Sheet> {
        let counts = (0..size / BLOCK).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Sheet { export: export.into(), counts })
    }

    fn blocks(&self) -> u64 {
        self.counts.len() as u64
    }

    fn stamp(block: u64, count: u32) -> [u8; 8] {
        // A block never written reads as zeros.
        if count == 0 { [0; 8] } else { (block << 32 | u64::from(count)).to_le_bytes() }
    }

    /// The next content of these blocks.
    fn write(&self, first: u64, blocks: u64, payload: &mut Vec<u8>) {
        payload.clear();
        for block in first..first + blocks {
            let count = self.counts[block as usize].fetch_add(1, Ordering::Relaxed) + 1;
            payload.extend(Self::stamp(block, count).repeat(BLOCK as usize / 8));
        }
    }

    /// How many of these blocks are not as they were written last.
    fn wrong(&self, first: u64, data: &[u8]) -> u64 {
        let bad = |(i, content): &(usize, &[u8])| {
            let block = first + *i as u64;
            let stamp = Self::stamp(block, self.counts[block as usize].load(Ordering::Relaxed));
            !content.chunks_exact(8).all(|eight| eight == stamp)
        };
        data.chunks_exact(BLOCK as usize).enumerate().filter(bad).count() as u64
    }
}

/// One client's share of a volume.
pub(super) struct Job {
    pub(super) sheet: Arc<Sheet>,
    pub(super) part: u64,
    pub(super) parts: u64,
    pub(super) seed: u64,
}

#[derive(Default)]
pub(super) struct Tally {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) wrong: u64,
}

fn text(e: ClientError) -> String {
    e.to_string()
}

fn connect(socket: &Path, sheet: &Sheet) -> Result<Client<UnixStream>, String> {
    Client::connect(socket, &sheet.export, Wish::default()).map_err(text)
}

/// Writes every block once and flushes; how many bytes.
pub(super) fn fill(socket: &Path, sheets: &[&Arc<Sheet>]) -> Result<u64, String> {
    let mut bytes = 0;
    for sheet in sheets {
        let mut client = connect(socket, sheet)?;
        let mut payload = Vec::new();
        let mut first = 0;
        while first < sheet.blocks() || client.in_flight() > 0 {
            if first < sheet.blocks() && client.in_flight() < DEPTH {
                let blocks = SWEEP.min(sheet.blocks() - first);
                sheet.write(first, blocks, &mut payload);
                client.send_write(first, 0, first * BLOCK, &payload);
                (first, bytes) = (first + blocks, bytes + blocks * BLOCK);
                continue;
            }
            fine(&client.recv().map_err(text)?)?;
        }
        fine(&client.call(cmd::FLUSH, 0, 0, 0).map_err(text)?)?;
        client.disconnect().map_err(text)?;
    }
    Ok(bytes)
}

/// Reads every block; how many bytes, and how many blocks were wrong.
pub(super) fn check(socket: &Path, sheets: &[&Arc<Sheet>]) -> Result<(u64, u64), String> {
    let (mut bytes, mut wrong) = (0, 0);
    for sheet in sheets {
        let mut client = connect(socket, sheet)?;
        for first in (0..sheet.blocks()).step_by(SWEEP as usize) {
            let blocks = SWEEP.min(sheet.blocks() - first);
            let answer = client.read(first * BLOCK, (blocks * BLOCK) as u32).map_err(text)?;
            fine(&answer)?;
            wrong += sheet.wrong(first, &answer.data);
            bytes += blocks * BLOCK;
        }
        client.disconnect().map_err(text)?;
    }
    Ok((bytes, wrong))
}

/// Runs all jobs at once for so long.
pub(super) fn run(socket: &Path, jobs: Vec<Job>, time: Duration) -> Result<Tally, String> {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        let threads: Vec<_> = jobs.iter().map(|job| scope.spawn(move || mixed(socket, job, until))).collect();
        let mut sum = Tally::default();
        for thread in threads {
            let tally = thread.join().map_err(|_| "a client of the demo panicked".to_string())??;
            sum.reads += tally.reads;
            sum.writes += tally.writes;
            sum.wrong += tally.wrong;
        }
        Ok(sum)
    })
}

/// Random reads and writes, nine to one, none overlapping another one in flight.
fn mixed(socket: &Path, job: &Job, until: Instant) -> Result<Tally, String> {
    let mut client = connect(socket, &job.sheet)?;
    let span = job.sheet.blocks() / job.parts;
    let (mut dice, mut tally, mut payload) =
        (job.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), Tally::default(), Vec::new());
    // Cookie to first block, blocks, and whether it writes.
    let mut flying: HashMap<u64, (u64, u64, bool)> = HashMap::new();
    let mut answer = Answer::default();
    let mut cookie = 0;
    loop {
        while flying.len() < DEPTH && Instant::now() < until {
            // xorshift64: the demo wants variety, not quality.
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            let blocks = 1 + (dice >> 8) % BLOCKS_MAX;
            let first = job.part * span + (dice >> 16) % (span - blocks);
            let writes = dice % 10 == 0;
            let meets = |(f, b, w): &(u64, u64, bool)| (*w || writes) && first < f + b && *f < first + blocks;
            if flying.values().any(meets) {
                continue;
            }
            cookie += 1;
            flying.insert(cookie, (first, blocks, writes));
            if writes {
                job.sheet.write(first, blocks, &mut payload);
                client.send_write(cookie, 0, first * BLOCK, &payload);
            } else {
                client.send_read(cookie, first * BLOCK, (blocks * BLOCK) as u32);
            }
        }
        if flying.is_empty() {
            break;
        }
        client.recv_into(&mut answer).map_err(text)?;
        fine(&answer)?;
        let (first, _, wrote) = flying.remove(&answer.cookie).ok_or("an answer to nothing")?;
        match wrote {
            true => tally.writes += 1,
            false => {
                tally.reads += 1;
                tally.wrong += job.sheet.wrong(first, &answer.data);
            }
        }
    }
    client.disconnect().map_err(text)?;
    Ok(tally)
}

fn fine(answer: &Answer) -> Result<(), String> {
    match answer.error {
        0 => Ok(()),
        error => Err(format!("a request of the demo failed with NBD error {error} {}", answer.message)),
    }
}
