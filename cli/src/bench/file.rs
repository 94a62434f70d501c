//! The engine on a file beside a bare ring on the same file: same blocks, same order, same depth.

use super::{Dice, RUNS, Row, failed, median, pool};
use braid_core::Profile;
use braid_core::request::{Content, NO_BUF, Op, Reply, Request};
use braid_core::units::{BLOCK, ClientId, MIB, VolumeId};
use braid_core::volume::Extent;
use braid_host::control::api::ApiError;
use braid_host::pump::Load;
use io_uring::{IoUring, opcode, types};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const DEPTH: usize = 32;
const VOLUME: u64 = 256 * MIB;
const TARGET: f64 = 0.95;

pub(super) fn run(quick: bool, dir: &Path) -> Result<Vec<Row>, ApiError> {
    let time = Duration::from_millis(if quick { 300 } else { 1000 });
    let dir = tempfile::tempdir_in(dir).map_err(failed)?;
    let path = dir.path().join("disk");
    let (pump, volume) = pool::start(&[path.display().to_string()], Profile::Single, VOLUME)?;
    pool::fill(&pump, volume, VOLUME)?;
    let places = pump.with_engine(move |engine| places(engine.pool(), volume)).map_err(|e| failed(e.message))?;
    let mut rows = Vec::new();
    for write in [false, true] {
        let (mut ours, mut raw) = (Vec::new(), Vec::new());
        for run in 0..RUNS {
            let mut one = |raw_turn: bool| -> Result<(), ApiError> {
                let dice = Dice(run as u64 + 1);
                if raw_turn {
                    raw.push(bare(&path, &places, dice, write, time)?);
                } else {
                    ours.push(pooled(&pump, Timed { write, ..Timed::reads(volume, dice, time) })?);
                }
                Ok(())
            };
            let raw_first = run % 2 == 1;
            one(raw_first)?;
            one(!raw_first)?;
        }
        let case = format!("file 4k rand{} d32, in process", if write { "write" } else { "read" });
        rows.push(Row::rate(case, "raw io_uring", median(&ours), median(&raw), TARGET));
    }
    Ok(rows)
}

/// Where each block of the volume is on the device.
fn places(pool: &braid_core::pool::Pool, volume: VolumeId) -> Vec<u64> {
    let Some(v) = pool.volume(volume) else { return Vec::new() };
    let place = |at: u64| match v.map.first(at, BLOCK) {
        Extent::Mapped { chunk, offset, .. } => pool.chunk(chunk)?.columns.first().map(|c| c.offset + offset),
        Extent::Hole { .. } | Extent::Lost { .. } => None,
    };
    (0..VOLUME).step_by(BLOCK as usize).filter_map(place).collect()
}

/// Requests of 4 KiB at random places, for some time.
pub(super) struct Timed {
    volume: VolumeId,
    dice: Dice,
    write: bool,
    /// Every byte that was read is looked at, as clients do.
    looks: bool,
    time: Duration,
    began: Instant,
    ended: Instant,
    done: u64,
    in_flight: usize,
    failed: bool,
}

impl Timed {
    pub(super) fn reads(volume: VolumeId, dice: Dice, time: Duration) -> Timed {
        let (began, ended) = (Instant::now(), Instant::now());
        Timed { volume, dice, write: false, looks: false, time, began, ended, done: 0, in_flight: 0, failed: false }
    }

    /// A client that looks at what it reads.
    pub(super) fn looking(self) -> Timed {
        Timed { looks: true, ..self }
    }

    fn is_over(&self) -> bool {
        self.ended - self.began >= self.time
    }
}

impl Load for Timed {
    fn next(&mut self, tag: u64) -> Option<Request> {
        if self.done > 0 && self.is_over() {
            return None;
        }
        self.in_flight += 1;
        Some(Request {
            tag,
            client: ClientId(1),
            volume: self.volume,
            op: if self.write { Op::Write { fua: false } } else { Op::Read },
            offset: self.dice.below(VOLUME / BLOCK) * BLOCK,
            len: BLOCK,
            buf: NO_BUF,
            content: Content::Unsaid,
            no_merge: false,
        })
    }
    fn fill(&mut self, _: &Request, _: &mut [u8]) {}
    fn done(&mut self, _: u64, reply: &Reply, bytes: &[u8]) -> bool {
        self.failed |= reply.result.is_err();
        if self.looks {
            let words = bytes.chunks_exact(8).filter_map(|word| word.first_chunk().copied());
            std::hint::black_box(words.map(u64::from_ne_bytes).fold(0, |sum, word| sum ^ word));
        }
        self.done += 1;
        self.in_flight -= 1;
        self.ended = Instant::now();
        !self.is_over()
    }
    fn depth(&self) -> usize {
        DEPTH
    }
}

/// Requests a second of a load on a pool.
pub(super) fn pooled(pump: &braid_host::pump::PumpHandle, load: Timed) -> Result<f64, ApiError> {
    let began = Instant::now();
    let load = Timed { began, ended: began, ..load };
    let any: Box<dyn std::any::Any> = pump.load(Box::new(load)).map_err(|e| failed(e.message))?.into_any();
    let load = any.downcast::<Timed>().map_err(|_| failed("another load came back"))?;
    if load.failed {
        return Err(failed("a request on the file failed"));
    }
    Ok(load.done as f64 / (load.ended - load.began).as_secs_f64())
}

/// The same with nothing but a ring: registered file and memory, direct, one enter for many.
fn bare(path: &Path, places: &[u64], mut dice: Dice, write: bool, time: Duration) -> Result<f64, ApiError> {
    let file = std::fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
    let file = file.map_err(failed)?;
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun();
    let mut ring: IoUring =
        builder.build(2 * DEPTH as u32).or_else(|_| IoUring::new(2 * DEPTH as u32)).map_err(failed)?;
    let mut memory = braid_host::aligned::AlignedBox::zeroed(DEPTH * BLOCK as usize);
    let whole = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    ring.submitter().register_files(&[file.as_raw_fd()]).map_err(failed)?;
    // SAFETY: `memory` lives until the ring is empty and dropped.
    unsafe { ring.submitter().register_buffers(&[whole]) }.map_err(failed)?;
    let base = memory.as_mut_ptr();
    let mut free: Vec<usize> = (0..DEPTH).collect();
    let (began, mut done, mut bad) = (Instant::now(), 0u64, false);
    loop {
        let over = began.elapsed() >= time;
        if over && free.len() == DEPTH {
            break;
        }
        while !over && let Some(slot) = free.pop() {
            let at = places[dice.below(places.len() as u64) as usize];
            // SAFETY: slots do not overlap and lie within `memory`.
            let to = unsafe { base.add(slot * BLOCK as usize) };
            let entry = match write {
                true => opcode::WriteFixed::new(types::Fixed(0), to, BLOCK as u32, 0).offset(at).build(),
                false => opcode::ReadFixed::new(types::Fixed(0), to, BLOCK as u32, 0).offset(at).build(),
            };
            // SAFETY: the memory belongs to the command until its completion was seen.
            unsafe { ring.submission().push(&entry.user_data(slot as u64)) }.map_err(failed)?;
        }
        ring.submit_and_wait(1).map_err(failed)?;
        for cqe in ring.completion() {
            bad |= cqe.result() != BLOCK as i32;
            free.push(cqe.user_data() as usize);
            done += 1;
        }
    }
    if bad {
        return Err(failed("a request of the bare ring failed"));
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}
