//! The FUSE file and the loop device over it, in front of a memory engine that answers late and out of order.
//!
//! Stamps, not mkfs, find what broke other exports: every block written says where it belongs and who wrote it.
//! Not checked: a kill of the serving process (these tests are that process), and users other than the daemon's.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use braid_core::request::{Op, RequestError};
use braid_core::units::{BLOCK, KIB, MIB, round_up};
use braid_host::aligned::AlignedBox;
use braid_host::fuse::{Call, FuseShare, IN_FLIGHT_BYTES_MAX, Sink, Stop};
use braid_host::loopdev::{self, LogicalBlock, LoopDevice};

use crate::tools::Need::{Node, Root, Tool};
use crate::tools::{have, sh};

const FUSE: crate::tools::Need = Node("/dev/fuse");
const LOOP: crate::tools::Need = Node("/dev/loop-control");

/// xorshift64*: a seed repeats a run.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

// ---------------------------------------------------------------------------------------------- the memory engine

#[derive(Default)]
struct Watch {
    /// Keep everything unanswered.
    hold: AtomicBool,
    /// Answer everything with this.
    fail: Mutex<Option<RequestError>>,
    /// What was asked, without reads.
    log: Mutex<Vec<(Op, u64, u64)>>,
    /// Calls held at once, at most.
    depth_max: AtomicU64,
    pending: AtomicU64,
}

impl Watch {
    fn log(&self) -> Vec<(Op, u64, u64)> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
    fn count(&self, op: Op) -> usize {
        self.log.lock().unwrap().iter().filter(|(o, ..)| *o == op).count()
    }
}

struct Ram(mpsc::Sender<Call>);

impl Sink for Ram {
    fn submit(&self, call: Call) {
        // A dead engine drops the call, which answers EIO.
        let _ = self.0.send(call);
    }
}

/// Answers each call after up to `delay_us_max`, whichever is due first; 0 answers in order, at once.
fn ram_engine(size: u64, delay_us_max: u64) -> (Arc<Ram>, Arc<Watch>, Arc<AtomicBool>, JoinHandle<()>) {
    let (tx, rx) = mpsc::channel::<Call>();
    let watch = Arc::new(Watch::default());
    let quit = Arc::new(AtomicBool::new(false));
    let (w, q) = (watch.clone(), quit.clone());
    let thread = thread::spawn(move || {
        let mut memory = vec![0u8; size as usize];
        let mut rng = Rng(0x5eed);
        let mut pending: Vec<(Instant, Call)> = Vec::new();
        while !q.load(Ordering::Relaxed) {
            let now = Instant::now();
            let next = pending.iter().map(|p| p.0).min();
            let wait = if w.hold.load(Ordering::Relaxed) { None } else { next }
                .map_or(Duration::from_millis(5), |due| due.saturating_duration_since(now));
            match rx.recv_timeout(wait) {
                Ok(call) => {
                    let delay = if delay_us_max == 0 { 0 } else { rng.below(delay_us_max) };
                    pending.push((Instant::now() + Duration::from_micros(delay), call));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Ok(call) = rx.try_recv() {
                let delay = if delay_us_max == 0 { 0 } else { rng.below(delay_us_max) };
                pending.push((Instant::now() + Duration::from_micros(delay), call));
            }
            w.pending.store(pending.len() as u64, Ordering::Relaxed);
            w.depth_max.fetch_max(pending.len() as u64, Ordering::Relaxed);
            if w.hold.load(Ordering::Relaxed) {
                continue;
            }
            let now = Instant::now();
            for at in (0..pending.len()).rev() {
                if pending[at].0 <= now {
                    answer(pending.swap_remove(at).1, &mut memory, &w);
                }
            }
        }
        // Whatever is pending is dropped here: EIO.
    });
    (Arc::new(Ram(tx)), watch, quit, thread)
}

fn answer(call: Call, memory: &mut [u8], watch: &Watch) {
    let Call { op, offset, len, data, reply, .. } = call;
    if op != Op::Read {
        watch.log.lock().unwrap().push((op, offset, len));
    }
    if let Some(error) = *watch.fail.lock().unwrap() {
        return reply.fail(error);
    }
    let range = offset as usize..(offset + len) as usize;
    match op {
        Op::Read => return reply.data(&memory[range]),
        Op::Write { .. } => {
            let data = data.expect("a write has a buffer");
            let lead = (offset % BLOCK) as usize;
            assert_eq!(data.as_ptr() as usize % BLOCK as usize, 0);
            assert_eq!(data.len() as u64, round_up(lead as u64 + len, BLOCK), "covers the envelope");
            memory[range].copy_from_slice(&data[lead..lead + len as usize]);
        }
        Op::Flush => {}
        Op::Discard => {
            assert_eq!((offset % BLOCK, len % BLOCK), (0, 0), "only whole blocks are promised to be zeros");
            memory[range].fill(0);
        }
        Op::WriteZeroes { .. } => memory[range].fill(0),
    }
    reply.ok();
}

// ------------------------------------------------------------------------------------------------------- the rig

/// A share in front of a memory engine, and all that must go away again, in this order, whatever happens.
struct Rig {
    mounts: Vec<PathBuf>,
    loops: Vec<LoopDevice>,
    share: Option<FuseShare>,
    sink: Option<Arc<Ram>>,
    watch: Arc<Watch>,
    quit: Arc<AtomicBool>,
    engine: Option<JoinHandle<()>>,
    /// Dropped at the end; wakes the watchdog.
    _alive: mpsc::Sender<()>,
    dir: tempfile::TempDir,
}

/// Far above what any test takes here.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that waits for a file that it serves itself cannot be killed: its own descriptors keep the session alive.
/// So a test that hangs must lose its mount, to become a test that fails.
fn watchdog(dir: PathBuf) -> mpsc::Sender<()> {
    let (alive, ended) = mpsc::channel();
    thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{} hangs; aborting it", dir.display());
            let _ = std::process::Command::new("umount").arg("-f").arg(&dir).status();
        }
    });
    alive
}

impl Rig {
    fn new(size: u64, delay_us_max: u64) -> Rig {
        Rig::with(size, delay_us_max, false)
    }

    fn with(size: u64, delay_us_max: u64, read_only: bool) -> Rig {
        let dir = tempfile::Builder::new().prefix("braid-fuse").tempdir().unwrap();
        let (sink, watch, quit, engine) = ram_engine(size, delay_us_max);
        let mut rig = Rig {
            mounts: vec![],
            loops: vec![],
            share: None,
            sink: Some(sink.clone()),
            watch,
            quit,
            engine: Some(engine),
            _alive: watchdog(dir.path().join("share")),
            dir,
        };
        rig.share = Some(FuseShare::start(&rig.dir.path().join("share"), "vol", size, read_only, sink).unwrap());
        rig
    }

    fn share(&mut self) -> &mut FuseShare {
        self.share.as_mut().unwrap()
    }

    fn path(&self) -> PathBuf {
        self.share.as_ref().unwrap().path().to_owned()
    }

    fn open(&self, flags: libc::c_int) -> File {
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path()).unwrap()
    }

    fn attach(&mut self, block: LogicalBlock) -> LoopDevice {
        let device = loopdev::attach(&self.path(), false, block).unwrap();
        self.loops.push(device.clone());
        device
    }

    fn mount(&mut self, device: &Path, name: &str) -> PathBuf {
        let dir = self.dir.path().join(name);
        fs::create_dir_all(&dir).unwrap();
        sh(&format!("mount -o noatime {} {}", device.display(), dir.display()));
        self.mounts.push(dir.clone());
        dir
    }

    fn unmount(&mut self, dir: &Path) {
        sh(&format!("umount {}", dir.display()));
        self.mounts.retain(|d| d != dir);
    }

    fn detach(&mut self, device: &LoopDevice) {
        device.detach().unwrap();
        self.loops.retain(|d| d != device);
    }

    /// Ends the engine; what it holds is dropped.
    fn end_engine(&mut self) {
        self.quit.store(true, Ordering::Relaxed);
        self.sink = None;
        if let Some(engine) = self.engine.take() {
            let ended = engine.join();
            assert!(ended.is_ok() || thread::panicking(), "the memory engine panicked");
        }
    }

    /// The answer comes first, the account is settled right after it.
    fn wait_no_bytes(&mut self) {
        let patience = Instant::now() + Duration::from_secs(10);
        while self.share().in_flight_bytes() > 0 {
            assert!(Instant::now() < patience, "{} bytes are never given back", self.share().in_flight_bytes());
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn wait_pending(&self, n: u64) {
        let patience = Instant::now() + Duration::from_secs(10);
        while self.watch.pending.load(Ordering::Relaxed) < n {
            assert!(Instant::now() < patience, "{} of {n} arrived", self.watch.pending.load(Ordering::Relaxed));
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.watch.hold.store(false, Ordering::Relaxed);
        for dir in self.mounts.iter().rev() {
            let _ = std::process::Command::new("umount").arg("-l").arg(dir).status();
        }
        for device in &self.loops {
            if let Err(e) = device.detach() {
                eprintln!("cleaning up: {e}");
            }
        }
        self.share = None;
        self.end_engine();
    }
}

// -------------------------------------------------------------------------------------------------------- stamps

/// Every 16 bytes of a block say where they belong and in which round they were written.
fn stamp(buf: &mut [u8], offset: u64, round: u64) {
    for (i, cell) in buf.chunks_exact_mut(16).enumerate() {
        cell[..8].copy_from_slice(&(offset + i as u64 * 16).to_le_bytes());
        cell[8..].copy_from_slice(&round.to_le_bytes());
    }
}

fn check_stamp(buf: &[u8], offset: u64, round: u64) {
    for (i, cell) in buf.chunks_exact(16).enumerate() {
        let place = offset + i as u64 * 16;
        let found =
            (u64::from_le_bytes(cell[..8].try_into().unwrap()), u64::from_le_bytes(cell[8..].try_into().unwrap()));
        assert_eq!(found, (place, round), "at {place:#x}");
    }
}

/// 16 threads write all of `path` with direct I/O in pieces of `piece`, in a shuffled order, then read it back in
/// pieces of another size.
fn stamped_round(path: &Path, size: u64, piece: u64, round: u64) {
    const DEPTH: usize = 16;
    let open = || OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let each = |piece: u64, seed: u64, io: &(dyn Fn(&File, u64, &mut AlignedBox) + Sync)| {
        let mut order: Vec<u64> = (0..size / piece).map(|i| i * piece).collect();
        let mut rng = Rng(seed);
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let next = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..DEPTH {
                scope.spawn(|| {
                    let file = open();
                    let mut buf = AlignedBox::zeroed(piece as usize);
                    while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                        io(&file, at, &mut buf);
                    }
                });
            }
        });
    };
    each(piece, round + 1, &|file, at, buf| {
        stamp(buf, at, round);
        assert_eq!(file.write_at(buf, at).unwrap() as u64, piece, "short write at {at:#x}");
        // The buffer is the application's again: what the engine keeps must not change with it.
        buf.fill(0xee);
    });
    let other = if piece == MIB { 64 * KIB } else { MIB };
    each(other, round + 2, &|file, at, buf| {
        file.read_exact_at(buf, at).unwrap();
        check_stamp(buf, at, round);
    });
}

fn errno_of<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

fn fallocate(file: &File, mode: i32, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: plain numbers.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, len as i64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

// --------------------------------------------------------------------------------------------------------- tests

#[test]
fn concurrent_large_direct_writes_through_the_file() {
    if !have("concurrent_large_direct_writes_through_the_file", &[FUSE]) {
        return;
    }
    let size = 64 * MIB;
    let rig = Rig::new(size, 2000);
    for (round, piece) in [64 * KIB, 256 * KIB, MIB, 4 * KIB].into_iter().enumerate() {
        stamped_round(&rig.path(), if piece < MIB { size / 4 } else { size }, piece, round as u64);
    }
    let depth = rig.watch.depth_max.load(Ordering::Relaxed);
    assert!(depth >= 12, "16 writers reached a depth of {depth} only");
}

#[test]
fn concurrent_large_direct_writes_through_the_loop_device() {
    if !have("concurrent_large_direct_writes_through_the_loop_device", &[Root, FUSE, LOOP]) {
        return;
    }
    for block in [LogicalBlock::B4096, LogicalBlock::B512] {
        let size = 64 * MIB;
        let mut rig = Rig::new(size, 2000);
        let device = rig.attach(block);
        assert!(device.is_direct() && device.is_attached());
        assert_eq!(device.size().unwrap(), size);
        assert_eq!(loopdev::find_by_backing(&rig.path()).unwrap(), vec![device.clone()]);
        for (round, piece) in [64 * KIB, MIB].into_iter().enumerate() {
            stamped_round(&device.path, size, piece, round as u64);
        }
        let depth = rig.watch.depth_max.load(Ordering::Relaxed);
        assert!(depth >= 12, "16 writers reached a depth of {depth} only");
        rig.detach(&device);
        assert!(loopdev::find_by_backing(&rig.path()).unwrap().is_empty());
        rig.share().stop(Stop::IfIdle).unwrap();
    }
}

#[test]
fn the_directory_holds_one_file_like_the_volume() {
    if !have("the_directory_holds_one_file_like_the_volume", &[FUSE]) {
        return;
    }
    let size = MIB + 512;
    let mut rig = Rig::new(size, 100);
    let dir = rig.share().mount_dir().to_owned();
    let names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["vol"]);
    let stat = fs::metadata(rig.path()).unwrap();
    assert_eq!((stat.len(), stat.mode() & 0o7777, stat.is_file()), (size, 0o600, true));
    assert_eq!(errno_of(fs::metadata(dir.join("other"))), libc::ENOENT);
    assert!(File::create(dir.join("other")).is_err());
    assert!(fs::remove_file(rig.path()).is_err());

    // A size that is the volume's business.
    let file = rig.open(0);
    file.write_all_at(&[7; 512], 0).unwrap();
    assert_eq!(errno_of(file.set_len(0)), libc::EPERM);
    assert_eq!(errno_of(file.set_len(size + 1)), libc::EPERM);
    file.set_len(size).unwrap();
    assert_eq!(
        errno_of(fs::set_permissions(rig.path(), std::os::unix::fs::PermissionsExt::from_mode(0o666))),
        libc::EPERM
    );
    let truncating = OpenOptions::new().write(true).truncate(true).open(rig.path()).unwrap();
    assert_eq!(truncating.metadata().unwrap().len(), size);
    let mut byte = [0];
    file.read_exact_at(&mut byte, 511).unwrap();
    assert_eq!(byte, [7], "O_TRUNC destroyed content");

    // The end.
    let mut buf = [0xff; 1024];
    assert_eq!(file.read_at(&mut buf, size - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut buf, size).unwrap(), 0);
    assert_eq!(file.read_at(&mut buf, size + 5000).unwrap(), 0);
    assert_eq!(file.write_at(&buf, size - 10).unwrap(), 10);
    assert_eq!(errno_of(file.write_at(&buf, size)), libc::ENOSPC);
    assert_eq!(errno_of(file.write_at(&buf, size + 5000)), libc::ENOSPC);
    assert_eq!(fs::metadata(rig.path()).unwrap().len(), size);
    drop((file, truncating));
    rig.share().stop(Stop::IfIdle).unwrap();
    assert!(!dir.exists(), "a directory that the share made goes with it");
}

#[test]
fn unaligned_requests_equal_a_model() {
    if !have("unaligned_requests_equal_a_model", &[FUSE]) {
        return;
    }
    let size = 2 * MIB + 1536;
    let rig = Rig::new(size, 50);
    let file = rig.open(0);
    let mut model = vec![0u8; size as usize];
    let mut rng = Rng(42);
    for step in 0..400u64 {
        let len = 1 + rng.below(if step % 10 == 0 { 3 * MIB / 2 } else { 20_000 }).min(size - 1);
        let at = rng.below(size - len + 1);
        let range = at as usize..(at + len) as usize;
        if rng.below(2) == 0 {
            let bytes: Vec<u8> = (0..len).map(|i| (i ^ step) as u8 | 1).collect();
            file.write_all_at(&bytes, at).unwrap();
            model[range].copy_from_slice(&bytes);
        } else {
            let mut bytes = vec![0; len as usize];
            file.read_exact_at(&mut bytes, at).unwrap();
            assert!(bytes == model[range], "step {step}: {len} at {at}");
        }
    }
}

#[test]
fn fsync_and_synchronous_writes_reach_the_engine() {
    if !have("fsync_and_synchronous_writes_reach_the_engine", &[FUSE]) {
        return;
    }
    let rig = Rig::new(MIB, 100);
    let block = AlignedBox::zeroed(4096);
    let file = rig.open(0);
    file.write_all_at(&block, 0).unwrap();
    assert_eq!(rig.watch.log(), [(Op::Write { fua: false }, 0, 4096)]);
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    assert_eq!(rig.watch.log(), [(Op::Flush, 0, 0); 3]);
    for flags in [libc::O_DSYNC, libc::O_SYNC, libc::O_SYNC | libc::O_DIRECT] {
        rig.open(flags).write_all_at(&block, 4096).unwrap();
        let log = rig.watch.log();
        assert!(
            log == [(Op::Write { fua: true }, 4096, 4096)] || log.last() == Some(&(Op::Flush, 0, 0)),
            "{flags:#o}: {log:?}"
        );
    }
    drop(file);
    assert_eq!(rig.watch.log(), [], "a close is not a flush");
}

#[test]
fn holes_are_discards_and_zero_ranges_are_zeroes() {
    if !have("holes_are_discards_and_zero_ranges_are_zeroes", &[FUSE]) {
        return;
    }
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    let hole = Op::WriteZeroes { fua: false, no_hole: false };
    let solid = Op::WriteZeroes { fua: false, no_hole: true };
    let size = MIB;
    let rig = Rig::new(size, 100);
    let file = rig.open(0);
    file.write_all_at(&vec![0xff; size as usize], 0).unwrap();
    rig.watch.log();
    let mut model = vec![0xffu8; size as usize];
    /// mode, offset, length, what the engine sees (nothing, for a range past the end) or the error
    type Row = (i32, u64, u64, Result<Option<Op>, i32>);
    let table: &[Row] = &[
        (PUNCH, 65536, 131072, Ok(Some(Op::Discard))),
        (PUNCH, 4096, 4096, Ok(Some(Op::Discard))),
        (PUNCH, 100, 5000, Ok(Some(hole))),
        (PUNCH, 300_000, 1, Ok(Some(hole))),
        (PUNCH, size - 4096, 10 * MIB, Ok(Some(Op::Discard))),
        (PUNCH, size, 4096, Ok(None)),
        (ZERO | KEEP, 400_000, 4096, Ok(Some(solid))),
        (ZERO, 512 * 1024, 65536, Ok(Some(solid))),
        (ZERO, size - 4096, 8192, Err(libc::ENOSPC)),
        (0, 0, 4096, Err(libc::EOPNOTSUPP)),
        (libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096, Err(libc::EOPNOTSUPP)),
    ];
    for &(mode, offset, len, ref want) in table {
        let got = fallocate(&file, mode, offset, len).map_err(|e| e.raw_os_error().unwrap());
        assert_eq!(got, want.map(drop), "mode {mode:#x} {len}@{offset}");
        let cut = len.min(size - offset);
        let wanted_log = want.ok().flatten().map(|op| (op, offset, cut));
        assert_eq!(rig.watch.log().first().copied(), wanted_log, "mode {mode:#x} {len}@{offset}");
        if wanted_log.is_some() {
            model[offset as usize..(offset + cut) as usize].fill(0);
        }
    }
    let mut found = vec![0; size as usize];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == model);
    assert_eq!(file.metadata().unwrap().len(), size);
}

#[test]
fn errors_arrive_as_their_numbers() {
    if !have("errors_arrive_as_their_numbers", &[FUSE]) {
        return;
    }
    let rig = Rig::new(MIB, 100);
    let file = rig.open(libc::O_DIRECT);
    let mut block = AlignedBox::zeroed(4096);
    for (error, number) in [
        (RequestError::NoSpace, libc::ENOSPC),
        (RequestError::Io, libc::EIO),
        (RequestError::OutOfRange, libc::EINVAL),
        (RequestError::Invalid, libc::EINVAL),
        (RequestError::ReadOnly, libc::EROFS),
        (RequestError::NoVolume, libc::ENXIO),
        (RequestError::Busy, libc::EAGAIN),
    ] {
        *rig.watch.fail.lock().unwrap() = Some(error);
        assert_eq!(errno_of(file.write_at(&block, 0)), number, "{error:?}");
        assert_eq!(errno_of(file.read_at(&mut block, 0)), number, "{error:?}");
        assert_eq!(errno_of(file.sync_all()), number, "{error:?}");
    }
    *rig.watch.fail.lock().unwrap() = None;
    file.read_exact_at(&mut block, 0).unwrap();
}

#[test]
fn a_read_only_share_refuses_writes() {
    if !have("a_read_only_share_refuses_writes", &[FUSE]) {
        return;
    }
    let rig = Rig::with(MIB, 100, true);
    assert_eq!(errno_of(OpenOptions::new().write(true).open(rig.path())), libc::EROFS);
    let file = File::open(rig.path()).unwrap();
    file.read_exact_at(&mut [0; 512], 0).unwrap();
    assert_eq!(fs::metadata(rig.path()).unwrap().mode() & 0o777, 0o400);
    if have("a_read_only_share_refuses_writes (loop)", &[Root, LOOP]) {
        let device = loopdev::attach(&rig.path(), true, LogicalBlock::B4096).unwrap();
        let written = OpenOptions::new().write(true).open(&device.path).and_then(|f| f.write_at(&[0; 4096], 0));
        device.detach().unwrap();
        assert!(written.is_err());
    }
}

#[test]
fn requests_that_the_engine_drops_answer_eio() {
    if !have("requests_that_the_engine_drops_answer_eio", &[FUSE]) {
        return;
    }
    // An fsync alone: the kernel lets no write pass it.
    for (kinds, n) in [(&["write", "read"][..], 8), (&["fsync"], 1), (&["punch"], 1)] {
        let mut rig = Rig::new(MIB, 100);
        rig.watch.hold.store(true, Ordering::Relaxed);
        let waiting: Vec<_> = (0..n)
            .map(|i| {
                let file = rig.open(libc::O_DIRECT);
                let kind = kinds[i as usize % kinds.len()];
                thread::spawn(move || {
                    let mut block = AlignedBox::zeroed(4096);
                    match kind {
                        "write" => file.write_at(&block, i * 4096).map(drop),
                        "read" => file.read_at(&mut block, i * 4096).map(drop),
                        "fsync" => file.sync_all(),
                        _ => fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 4096),
                    }
                })
            })
            .collect();
        rig.wait_pending(n);
        let refused = rig.share().stop(Stop::IfIdle).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        assert!(refused.to_string().contains("is in use"), "{refused}");
        rig.end_engine();
        for thread in waiting {
            assert_eq!(errno_of(thread.join().unwrap()), libc::EIO, "{kinds:?}");
        }
        // Later requests too, and nothing is in the way of a clean unmount.
        assert_eq!(errno_of(File::open(rig.path()).unwrap().read_at(&mut [0; 512], 0)), libc::EIO);
        rig.wait_no_bytes();
        rig.share().stop(Stop::IfIdle).unwrap();
    }
}

#[test]
fn a_forced_stop_ends_requests_in_flight() {
    if !have("a_forced_stop_ends_requests_in_flight", &[Root, FUSE]) {
        return;
    }
    let mut rig = Rig::new(MIB, 100);
    rig.watch.hold.store(true, Ordering::Relaxed);
    let file = rig.open(libc::O_DIRECT);
    let waiting: Vec<_> = (0..4u64)
        .map(|i| {
            let file = file.try_clone().unwrap();
            thread::spawn(move || file.write_at(&AlignedBox::zeroed(4096), i * 4096))
        })
        .collect();
    rig.wait_pending(4);
    let began = Instant::now();
    rig.share().stop(Stop::Force).unwrap();
    for thread in waiting {
        let number = errno_of(thread.join().unwrap());
        assert!(matches!(number, libc::EIO | libc::ECONNABORTED | libc::ENOTCONN), "{number}");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
    assert!(file.read_at(&mut [0; 512], 0).is_err());
    assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains(rig.dir.path().to_str().unwrap()));
    // The engine answers late, into nothing.
    rig.watch.hold.store(false, Ordering::Relaxed);
    rig.share().stop(Stop::Force).unwrap();
}

#[test]
fn memory_in_flight_is_bounded() {
    if !have("memory_in_flight_is_bounded", &[FUSE]) {
        return;
    }
    let size = 96 * MIB;
    let mut rig = Rig::new(size, 0);
    rig.watch.hold.store(true, Ordering::Relaxed);
    // Opened before: beyond the limit nobody answers an open either.
    let files: Vec<_> = (0..96).map(|_| rig.open(libc::O_DIRECT)).collect();
    let waiting: Vec<_> = files
        .into_iter()
        .zip(0..)
        .map(|(file, i)| {
            thread::spawn(move || {
                let mut buf = AlignedBox::zeroed(MIB as usize);
                stamp(&mut buf, i * MIB, 9);
                file.write_all_at(&buf, i * MIB)
            })
        })
        .collect();
    rig.wait_pending(IN_FLIGHT_BYTES_MAX / MIB);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(rig.share().in_flight_bytes(), IN_FLIGHT_BYTES_MAX);
    rig.watch.hold.store(false, Ordering::Relaxed);
    for thread in waiting {
        thread.join().unwrap().unwrap();
    }
    let mut buf = AlignedBox::zeroed(MIB as usize);
    for i in 0..96 {
        rig.open(libc::O_DIRECT).read_exact_at(&mut buf, i * MIB).unwrap();
        check_stamp(&buf, i * MIB, 9);
    }
    rig.wait_no_bytes();
}

#[test]
fn a_grown_volume_shows() {
    if !have("a_grown_volume_shows", &[Root, FUSE, LOOP]) {
        return;
    }
    // The engine has the later size from the start.
    let mut rig = Rig::new(16 * MIB, 100);
    rig.share().set_size(8 * MIB).unwrap();
    assert_eq!(fs::metadata(rig.path()).unwrap().len(), 8 * MIB);
    let device = rig.attach(LogicalBlock::B4096);
    assert_eq!(device.size().unwrap(), 8 * MIB);
    let file = rig.open(0);
    assert_eq!(errno_of(file.write_at(&[1; 4096], 8 * MIB)), libc::ENOSPC);
    rig.share().set_size(16 * MIB).unwrap();
    assert_eq!(fs::metadata(rig.path()).unwrap().len(), 16 * MIB);
    device.set_capacity().unwrap();
    assert_eq!(device.size().unwrap(), 16 * MIB);
    stamped_round(&device.path, 16 * MIB, 64 * KIB, 3);
    drop(file);
    rig.detach(&device);
}

#[test]
fn a_directory_in_use_is_refused_and_a_dead_mount_is_replaced() {
    if !have("a_directory_in_use_is_refused_and_a_dead_mount_is_replaced", &[Root, FUSE]) {
        return;
    }
    let mut rig = Rig::new(MIB, 100);
    let sink = rig.sink.clone().unwrap();
    let dir = rig.share().mount_dir().to_owned();
    let start = |dir: &Path| FuseShare::start(dir, "vol", MIB, false, sink.clone());
    let error = start(&dir).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("already mounted by a running braid"), "{error}");

    // What a daemon leaves that was killed: a mount whose device nobody holds.
    let dead = rig.dir.path().join("dead mount");
    fs::create_dir(&dead).unwrap();
    for (fs_type, ours) in [("fuse.braid", true), ("fuse.other", false)] {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_raw_fd());
        let target = format!("{}\0", dead.display());
        let fs_type = format!("{fs_type}\0");
        // SAFETY: NUL-terminated strings that outlive the call.
        let rc = unsafe {
            libc::mount(
                c"x".as_ptr(),
                target.as_ptr().cast(),
                fs_type.as_ptr().cast(),
                0,
                data.as_ptr().cast::<libc::c_void>(),
            )
        };
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
        drop(device);
        rig.mounts.push(dead.clone());
        assert_eq!(errno_of(fs::metadata(&dead)), libc::ENOTCONN);
        match start(&dead) {
            Ok(mut share) => {
                assert!(ours);
                assert_eq!(fs::metadata(share.path()).unwrap().len(), MIB);
                share.stop(Stop::IfIdle).unwrap();
                assert_eq!(fs::read_dir(&dead).unwrap().count(), 0, "nothing is left below");
                rig.mounts.clear();
            }
            Err(error) => {
                assert!(!ours, "{error}");
                assert!(error.to_string().contains("not ours"), "{error}");
            }
        }
    }

    // A directory with something in it is not hidden.
    let full = rig.dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("x"), "x").unwrap();
    assert_eq!(start(&full).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
}

#[test]
fn a_share_unmounted_by_hand_stops_cleanly() {
    if !have("a_share_unmounted_by_hand_stops_cleanly", &[Root, FUSE]) {
        return;
    }
    let mut rig = Rig::new(MIB, 100);
    // What is mounted below must survive.
    let dir = rig.share().mount_dir().to_owned();
    sh(&format!("umount {}", dir.display()));
    sh(&format!("mount -t tmpfs none {}", dir.display()));
    rig.mounts.push(dir.clone());
    fs::write(dir.join("x"), "x").unwrap();
    rig.share().stop(Stop::IfIdle).unwrap();
    assert!(dir.join("x").exists());
}

#[test]
fn ext4_on_the_loop_device() {
    let needs =
        [Root, FUSE, LOOP, Tool("mkfs.ext4"), Tool("e2fsck"), Tool("fstrim"), Tool("mount"), Tool("cp"), Tool("diff")];
    if !have("ext4_on_the_loop_device", &needs) {
        return;
    }
    for block in [LogicalBlock::B4096, LogicalBlock::B512] {
        let mut rig = Rig::new(256 * MIB, 300);
        let device = rig.attach(block);
        let node = device.path.display().to_string();
        sh(&format!("mkfs.ext4 -q -E nodiscard {node}"));
        let dir = rig.mount(&device.path, "ext4");
        let tree = rig.dir.path().join("tree");
        make_tree(&tree);
        let copy = dir.join("tree");
        sh(&format!("cp -a {} {} && sync -f {}", tree.display(), copy.display(), dir.display()));
        assert!(rig.watch.count(Op::Flush) > 0);
        let compare = format!("diff -r --no-dereference {} {}", tree.display(), copy.display());
        // Unmounting drops the cache of this file system and of no other.
        rig.unmount(&dir);
        let dir = rig.mount(&device.path, "ext4");
        sh(&compare);

        let error = device.detach().unwrap_err();
        assert!(error.to_string().contains("is in use"), "{error}");
        assert!(device.is_attached(), "a refused detach has no effect");

        sh(&format!("rm -r {} && sync -f {}", copy.display(), dir.display()));
        rig.watch.log();
        let said = sh(&format!("fstrim -v {}", dir.display()));
        let log = rig.watch.log();
        // With 512-byte addressing mkfs makes 1 KiB blocks here: holes that are not whole blocks of ours.
        let is_hole = |op: &Op| match block {
            LogicalBlock::B4096 => *op == Op::Discard,
            LogicalBlock::B512 => matches!(op, Op::Discard | Op::WriteZeroes { no_hole: false, .. }),
        };
        let trimmed: u64 = log.iter().filter(|(op, ..)| is_hole(op)).map(|(.., len)| len).sum();
        assert!(trimmed > 128 * MIB, "{block:?}: {said}{log:?}");

        sh(&format!("cp -a {} {}", tree.display(), copy.display()));
        rig.unmount(&dir);
        sh(&format!("e2fsck -fn {node}"));
        let dir = rig.mount(&device.path, "ext4");
        sh(&compare);
        rig.unmount(&dir);
        rig.detach(&device);
        rig.share().stop(Stop::IfIdle).unwrap();
    }
}

/// A few hundred files from 0 bytes to 3 MiB, links and odd names.
fn make_tree(root: &Path) {
    let mut rng = Rng(7);
    for d in 0..12 {
        let dir = root.join(format!("d{}", d % 4)).join(format!("sub {d}"));
        fs::create_dir_all(&dir).unwrap();
        for f in 0..40 {
            let len = match rng.below(20) {
                0 => rng.below(3 * MIB),
                1..5 => rng.below(100_000),
                _ => rng.below(9000),
            };
            let bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
            fs::write(dir.join(format!("f{f}")), bytes).unwrap();
        }
        let _ = std::os::unix::fs::symlink(format!("f{d}"), dir.join("link"));
        let _ = fs::hard_link(dir.join("f1"), dir.join("hard"));
    }
}

#[test]
fn a_file_system_survives_the_end_of_its_share_as_errors_not_as_a_hang() {
    let name = "a_file_system_survives_the_end_of_its_share_as_errors_not_as_a_hang";
    if !have(name, &[Root, FUSE, LOOP, Tool("mkfs.ext4"), Tool("mount")]) {
        return;
    }
    let mut rig = Rig::new(64 * MIB, 300);
    let device = rig.attach(LogicalBlock::B4096);
    sh(&format!("mkfs.ext4 -q {}", device.path.display()));
    let dir = rig.mount(&device.path, "ext4");
    fs::write(dir.join("before"), "x").unwrap();
    rig.watch.hold.store(true, Ordering::Relaxed);
    let writer = {
        let path = dir.join("file");
        thread::spawn(move || {
            let file = File::create(path)?;
            file.write_all_at(&vec![1; 4 << 20], 0)?;
            file.sync_all()
        })
    };
    rig.wait_pending(1);
    let path = rig.path();
    let began = Instant::now();
    rig.share().stop(Stop::Force).unwrap();
    assert!(writer.join().unwrap().is_err(), "an fsync that never reached the engine succeeded");
    assert_eq!(loopdev::find_by_backing(&path).unwrap(), vec![device.clone()], "a leftover is found");
    rig.unmount(&dir);
    rig.detach(&device);
    assert!(began.elapsed() < Duration::from_secs(10), "took {:?}", began.elapsed());
}
