//! Both engines against a model that is a byte array, and against each promise of the module.

use super::*;
use crate::backend::{DiskSpec, OpenOptions, open};
use braid_core::units::{BufId, BufRange};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const BLOCK: usize = 4096;

/// Engines that run here: io_uring only where it is allowed.
fn engines() -> Vec<Choice> {
    let buffers = Buffers::new(0, 0).unwrap();
    let mut all = vec![Choice::Threads];
    match Reactor::new(Choice::Uring, &buffers) {
        Ok(_) => all.push(Choice::Uring),
        Err(why) => eprintln!("not tested: {why}"),
    }
    all
}

struct World {
    // Before the buffers: it waits for what uses them.
    reactor: Reactor,
    buffers: Buffers,
    dir: tempfile::TempDir,
}

fn world(choice: Choice) -> World {
    let buffers = Buffers::new(8 << 20, 256 << 20).unwrap();
    let reactor = Reactor::new(choice, &buffers).unwrap();
    // Below the target directory: /tmp may be a tmpfs, and O_DIRECT should be tried on a real filesystem.
    let dir = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")).or_else(|_| tempfile::tempdir());
    World { reactor, buffers, dir: dir.unwrap() }
}

impl World {
    fn file(&self, name: &str, size: u64, direct: bool) -> Disk {
        let spec = DiskSpec::Path(self.dir.path().join(name));
        open(&spec, OpenOptions { create_size: Some(size), direct, ..OpenOptions::default() }).unwrap().0
    }

    fn segs(&self, buf: BufId, parts: &[(u32, u32)]) -> Vec<Seg> {
        parts
            .iter()
            .map(|(offset, len)| {
                let (ptr, len) = self.buffers.raw(BufRange { buf, offset: *offset, len: *len }).unwrap();
                Seg { ptr, len }
            })
            .collect()
    }

    fn submit(&mut self, disk: DiskId, token: u64, op: DeviceOp, offset: u64, len: u64, segs: &[Seg]) {
        // SAFETY: tests free buffers only after the answer.
        unsafe { self.reactor.submit(disk, token, op, offset, len, segs) };
    }

    fn answer(&mut self) -> (u64, Result<(), IoError>) {
        let mut events = Vec::new();
        self.reactor.wait(&mut events, Some(Duration::from_secs(20)));
        match events[..] {
            [Event::Disk { token, result }] => (token, result),
            _ => panic!("one answer was expected: {events:?}"),
        }
    }

    fn run(&mut self, disk: DiskId, op: DeviceOp, offset: u64, len: u64, segs: &[Seg]) -> Result<(), IoError> {
        self.submit(disk, 77, op, offset, len, segs);
        let (token, result) = self.answer();
        assert_eq!(token, 77);
        result
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// Each block says where it belongs and which write made it.
fn stamp(block: &mut [u8], at: u64, version: u64) {
    for (i, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(at << 40 ^ version << 12 ^ i as u64).to_le_bytes());
    }
}

/// Where the pieces of a command lie in its buffer: offset and length.
type Parts = Vec<(u32, u32)>;

enum Under {
    Read { first: u64, want: Vec<u64> },
    Other { first: u64, count: u64 },
}

/// Random commands, many at once, none overlapping another; `model[block]` is the version, 0 for zeros.
fn against_model(world: &mut World, id: DiskId, blocks: u64, seed: u64) {
    let mut rng = Rng(seed);
    let mut model = vec![0u64; blocks as usize];
    let mut busy = vec![false; blocks as usize];
    let mut under: HashMap<u64, (BufId, Parts, Under)> = HashMap::new();
    let mut events = Vec::new();
    let mut expected = vec![0u8; BLOCK];
    for token in 1..=1500u64 {
        let most = if rng.below(40) == 0 { 300 } else { 16 };
        let count = 1 + rng.below(most);
        let first = rng.below(blocks - count);
        let range = first as usize..(first + count) as usize;
        if busy[range.clone()].iter().all(|b| !b) {
            let bytes = count as usize * BLOCK;
            let buf = world.buffers.alloc(bytes).unwrap();
            assert!(world.buffers.touched(buf, bytes));
            // One piece, or as many as there are blocks, or two with the later one first in memory.
            let parts: Parts = match rng.below(3) {
                0 => vec![(0, bytes as u32)],
                1 => (0..count as u32).map(|b| (b * 4096, 4096)).collect(),
                _ => vec![
                    (4096 * (count as u32 / 2), (bytes as u32) - 4096 * (count as u32 / 2)),
                    (0, 4096 * (count as u32 / 2)),
                ],
            };
            let segs = world.segs(buf, &parts);
            busy[range.clone()].fill(true);
            let (op, what) = match rng.below(10) {
                0..4 => {
                    world.buffers.bytes_mut(buf).fill(0xEE);
                    (DeviceOp::Read, Under::Read { first, want: model[range].to_vec() })
                }
                4..8 => {
                    let mut at = first;
                    for (offset, len) in &parts {
                        for block in world.buffers.bytes_mut(buf)[*offset as usize..][..*len as usize].chunks_mut(BLOCK)
                        {
                            stamp(block, at, token);
                            at += 1;
                        }
                    }
                    model[range].fill(token);
                    (DeviceOp::Write { fua: rng.below(8) == 0 }, Under::Other { first, count })
                }
                8 => {
                    model[range].fill(0);
                    (DeviceOp::WriteZeroes, Under::Other { first, count })
                }
                _ => {
                    model[range].fill(0);
                    (DeviceOp::Discard, Under::Other { first, count })
                }
            };
            let segs = if matches!(op, DeviceOp::Read | DeviceOp::Write { .. }) { segs } else { vec![] };
            world.submit(id, token, op, first * BLOCK as u64, bytes as u64, &segs);
            under.insert(token, (buf, parts, what));
        }
        while under.len() > 64 || (token == 1500 && !under.is_empty()) {
            events.clear();
            world.reactor.wait(&mut events, Some(Duration::from_secs(20)));
            assert!(!events.is_empty(), "seed {seed}: {} commands were never answered", under.len());
            for event in &events {
                let Event::Disk { token, result } = event else { panic!("{event:?}") };
                assert_eq!(*result, Ok(()), "seed {seed} command {token}");
                let (buf, parts, what) = under.remove(token).expect("answered once");
                match what {
                    Under::Other { first, count } => busy[first as usize..(first + count) as usize].fill(false),
                    Under::Read { first, want } => {
                        busy[first as usize..first as usize + want.len()].fill(false);
                        let bytes = world.buffers.bytes(buf);
                        let read = parts.iter().flat_map(|(o, l)| bytes[*o as usize..][..*l as usize].chunks(BLOCK));
                        for (i, (got, version)) in read.zip(&want).enumerate() {
                            let at = first + i as u64;
                            expected.fill(0);
                            if *version != 0 {
                                stamp(&mut expected, at, *version);
                            }
                            assert!(got == expected, "seed {seed}: block {at} is not version {version}");
                        }
                    }
                }
                world.buffers.free(buf);
            }
        }
    }
    assert_eq!(world.buffers.used(), 0);
}

#[test]
fn every_disk_gives_back_what_was_written() {
    for choice in engines() {
        for seed in [11, 12] {
            let mut world = world(choice);
            let size = 8 << 20;
            let disks =
                [world.file("direct", size, true), world.file("buffered", size, false), Disk::ram(size).unwrap()];
            for disk in disks {
                let id = world.reactor.add_disk(disk);
                against_model(&mut world, id, size / BLOCK as u64, seed);
                world.reactor.remove_disk(id);
            }
        }
    }
}

#[test]
fn thousands_of_commands_at_once() {
    for choice in engines() {
        let mut world = world(choice);
        let count = 6000u64;
        let disk = world.file("wide", count * BLOCK as u64, true);
        let id = world.reactor.add_disk(disk);
        for read in [false, true] {
            let bufs: Vec<_> = (0..count).map(|_| world.buffers.alloc(BLOCK).unwrap()).collect();
            for (i, buf) in bufs.iter().enumerate() {
                if read {
                    world.buffers.bytes_mut(*buf).fill(0);
                } else {
                    stamp(world.buffers.bytes_mut(*buf), i as u64, 5);
                }
                let segs = world.segs(*buf, &[(0, BLOCK as u32)]);
                let op = if read { DeviceOp::Read } else { DeviceOp::Write { fua: false } };
                world.submit(id, i as u64, op, i as u64 * BLOCK as u64, BLOCK as u64, &segs);
            }
            let mut seen = vec![false; count as usize];
            let mut events = Vec::new();
            while seen.iter().any(|s| !s) {
                events.clear();
                world.reactor.wait(&mut events, Some(Duration::from_secs(20)));
                assert!(!events.is_empty());
                for event in &events {
                    let Event::Disk { token, result: Ok(()) } = event else { panic!("{event:?}") };
                    assert!(!std::mem::replace(&mut seen[*token as usize], true), "answered twice");
                }
            }
            let mut want = vec![0; BLOCK];
            for (i, buf) in bufs.into_iter().enumerate() {
                stamp(&mut want, i as u64, 5);
                assert!(world.buffers.bytes(buf) == want);
                world.buffers.free(buf);
            }
        }
        assert_eq!(world.run(id, DeviceOp::Flush, 0, 0, &[]), Ok(()));
    }
}

#[test]
fn null_forgets_and_reads_zeros() {
    for choice in engines() {
        let mut world = world(choice);
        let id = world.reactor.add_disk(Disk::null(1 << 40));
        let buf = world.buffers.alloc(8192).unwrap();
        world.buffers.bytes_mut(buf).fill(3);
        let segs = world.segs(buf, &[(0, 4096), (4096, 4096)]);
        assert_eq!(world.run(id, DeviceOp::Write { fua: true }, 1 << 39, 8192, &segs), Ok(()));
        assert_eq!(world.run(id, DeviceOp::Read, 1 << 39, 8192, &segs), Ok(()));
        assert!(world.buffers.bytes(buf).iter().all(|b| *b == 0));
        for op in [DeviceOp::Flush, DeviceOp::Discard, DeviceOp::WriteZeroes] {
            assert_eq!(world.run(id, op, 0, 1 << 40, &[]), Ok(()));
        }
    }
}

#[test]
fn what_lies_outside_a_disk_is_an_error() {
    for choice in engines() {
        let mut world = world(choice);
        let disks = [world.file("small", 65536, true), Disk::ram(65536).unwrap(), Disk::null(65536)];
        let buf = world.buffers.alloc(8192).unwrap();
        for disk in disks {
            let id = world.reactor.add_disk(disk);
            for (offset, want) in
                [(0, Ok(())), (57344, Ok(())), (61440, Err(IoError::Media)), (u64::MAX - 4095, Err(IoError::Media))]
            {
                let segs = world.segs(buf, &[(0, 8192)]);
                assert_eq!(world.run(id, DeviceOp::Read, offset, 8192, &segs), want, "{choice:?} {offset}");
            }
        }
        // A file that shrank under us: the end comes too early.
        let disk = world.file("shrinks", 65536, true);
        let id = world.reactor.add_disk(disk);
        let path = world.dir.path().join("shrinks");
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4096).unwrap();
        let segs = world.segs(buf, &[(0, 4096), (4096, 4096)]);
        assert_eq!(world.run(id, DeviceOp::Read, 0, 8192, &segs), Err(IoError::Media));
        // One piece of the arena, more iovecs than the kernel takes, and none at all.
        let segs = world.segs(buf, &[(0, 8192)]);
        assert_eq!(world.run(id, DeviceOp::Read, 0, 8192, &segs), Err(IoError::Media));
        let disk = world.file("many", 8 << 20, true);
        let id = world.reactor.add_disk(disk);
        let large = world.buffers.alloc(8 << 20).unwrap();
        let parts: Vec<_> = (0..2048).map(|i| (i * 4096, 4096)).collect();
        let segs = world.segs(large, &parts);
        world.buffers.bytes_mut(large).fill(7);
        assert_eq!(world.run(id, DeviceOp::Write { fua: false }, 0, 8 << 20, &segs), Ok(()));
        world.buffers.bytes_mut(large).fill(0);
        assert_eq!(world.run(id, DeviceOp::Read, 0, 8 << 20, &segs), Ok(()));
        assert!(world.buffers.bytes(large).iter().all(|b| *b == 7));
        assert_eq!(world.run(id, DeviceOp::Read, 0, 0, &[]), Ok(()));
        world.reactor.remove_disk(id);
        assert_eq!(world.run(id, DeviceOp::Flush, 0, 0, &[]), Err(IoError::Gone));
    }
}

#[test]
fn a_disk_can_break_while_it_is_used() {
    for choice in engines() {
        let mut world = world(choice);
        let buf = world.buffers.alloc(4096).unwrap();
        let segs = world.segs(buf, &[(0, 4096)]);
        let disks = [world.file("breaks", 1 << 20, true), Disk::ram(1 << 20).unwrap()];
        for disk in disks {
            let fault = disk.fault_handle();
            let id = world.reactor.add_disk(disk);
            let (read, write) = (DeviceOp::Read, DeviceOp::Write { fua: false });
            for (set, op, want) in [
                (Fault::None, read, Ok(())),
                (Fault::ReadError, read, Err(IoError::Media)),
                (Fault::ReadError, write, Ok(())),
                (Fault::WriteError, write, Err(IoError::Media)),
                (Fault::WriteError, read, Ok(())),
                (Fault::Gone, read, Err(IoError::Gone)),
                (Fault::None, write, Ok(())),
            ] {
                fault.set(set);
                assert_eq!(world.run(id, op, 0, 4096, &segs), want, "{choice:?} {set:?} {op:?}");
            }
            fault.set(Fault::DelayMs(60));
            let start = Instant::now();
            world.submit(id, 1, read, 0, 4096, &segs);
            let mut events = Vec::new();
            world.reactor.wait(&mut events, Some(Duration::from_millis(5)));
            assert!(events.is_empty() && start.elapsed() < Duration::from_millis(55), "{events:?}");
            // It vanishes with a command under way, and is taken away before that was answered.
            fault.set(Fault::Gone);
            world.reactor.remove_disk(id);
            assert_eq!(world.answer(), (1, Err(IoError::Gone)));
            assert!(start.elapsed() >= Duration::from_millis(60));
        }
        assert!(world.reactor.disks.iter().all(Option::is_none));
    }
}

#[test]
fn sockets_tell_when_they_change() {
    for choice in engines() {
        let mut world = world(choice);
        let (mut here, mut there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let next = |world: &mut World, ms| {
            let mut events = Vec::new();
            world.reactor.wait(&mut events, Some(Duration::from_millis(ms)));
            events
        };
        let ready = |token, readable, writable, hangup| Event::Ready { token, readable, writable, hangup };
        assert!(world.reactor.watch(here.as_raw_fd(), 5, true, false));
        assert_eq!(next(&mut world, 5), []);
        let mut bytes = [0; 64];
        for _ in 0..3 {
            there.write_all(b"hello").unwrap();
            assert_eq!(next(&mut world, 5000), [ready(5, true, false, false)], "{choice:?}");
            assert_eq!(here.read(&mut bytes).unwrap(), 5);
            assert_eq!(next(&mut world, 5), []);
        }
        // Another interest tells at once what holds already.
        assert!(world.reactor.watch(here.as_raw_fd(), 6, true, true));
        assert_eq!(next(&mut world, 5000), [ready(6, false, true, false)], "{choice:?}");
        there.write_all(b"x").unwrap();
        assert!(matches!(next(&mut world, 5000)[..], [Event::Ready { token: 6, readable: true, hangup: false, .. }]));
        world.reactor.unwatch(here.as_raw_fd());
        there.write_all(b"unheard").unwrap();
        assert_eq!(next(&mut world, 5), []);
        assert!(world.reactor.watch(here.as_raw_fd(), 7, true, false));
        assert_eq!(next(&mut world, 5000), [ready(7, true, false, false)]);
        drop(there);
        let last = next(&mut world, 5000);
        assert!(
            matches!(last[..], [Event::Ready { token: 7, readable: true, hangup: true, .. }]),
            "{choice:?} {last:?}"
        );
        world.reactor.unwatch(here.as_raw_fd());
        drop(here);
        // Closed after unwatch: the peer of a watched socket sees the end.
        let (a, mut b) = UnixStream::pair().unwrap();
        assert!(world.reactor.watch(a.as_raw_fd(), 8, true, false));
        assert_eq!(next(&mut world, 1), []);
        world.reactor.unwatch(a.as_raw_fd());
        drop(a);
        assert_eq!(next(&mut world, 1), []);
        b.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(b.read(&mut bytes).unwrap(), 0, "{choice:?}");
        // The last bytes and the end behind them are one event.
        let (c, mut d) = UnixStream::pair().unwrap();
        d.write_all(b"bye").unwrap();
        d.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(world.reactor.watch(c.as_raw_fd(), 9, true, false));
        assert_eq!(next(&mut world, 5000), [ready(9, true, false, true)], "{choice:?}");
        world.reactor.unwatch(c.as_raw_fd());
        // What cannot be watched is said at once.
        assert!(!world.reactor.watch(9999, 9, true, false));
        assert_eq!(next(&mut world, 1), []);
    }
}

#[test]
fn many_sockets_and_a_disk_share_the_wait() {
    for choice in engines() {
        let mut world = world(choice);
        let disk = world.file("shared", 1 << 20, true);
        let id = world.reactor.add_disk(disk);
        let buf = world.buffers.alloc(4096).unwrap();
        let segs = world.segs(buf, &[(0, 4096)]);
        let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        for (i, (here, _)) in pairs.iter().enumerate() {
            assert!(world.reactor.watch(here.as_raw_fd(), i as u64, true, false));
        }
        for round in 0..5 {
            world.submit(id, 1000, DeviceOp::Read, 0, 4096, &segs);
            pairs.iter().for_each(|(_, there)| (&*there).write_all(&[round]).unwrap());
            let mut told = vec![0; 100];
            let (mut disk, mut events) = (0, Vec::new());
            while disk < 1 || told.contains(&0) {
                events.clear();
                world.reactor.wait(&mut events, Some(Duration::from_secs(10)));
                assert!(!events.is_empty(), "{choice:?} {told:?}");
                for event in &events {
                    match event {
                        Event::Ready { token, .. } => told[*token as usize] += 1,
                        Event::Disk { token: 1000, result: Ok(()) } => disk += 1,
                        other => panic!("{other:?}"),
                    }
                }
            }
            pairs.iter().for_each(|(here, _)| assert_eq!((&*here).read(&mut [0; 2]).unwrap(), 1));
        }
    }
}

#[test]
fn a_busy_ram_disk_does_not_starve_sockets() {
    for choice in engines() {
        let mut world = world(choice);
        let id = world.reactor.add_disk(Disk::null(1 << 20));
        let (here, mut there) = UnixStream::pair().unwrap();
        assert!(world.reactor.watch(here.as_raw_fd(), 1, true, false));
        world.reactor.wait(&mut Vec::new(), Some(Duration::ZERO));
        there.write_all(b"!").unwrap();
        let heard = (0..1000).any(|_| {
            world.submit(id, 2, DeviceOp::Flush, 0, 0, &[]);
            let mut events = Vec::new();
            world.reactor.wait(&mut events, None);
            events.iter().any(|e| matches!(e, Event::Ready { token: 1, .. }))
        });
        assert!(heard, "{choice:?}");
    }
}

#[test]
fn the_doorbell_wakes_a_sleeper() {
    for choice in engines() {
        let mut world = world(choice);
        let waker = world.reactor.waker();
        // Rung while awake: one event, no sleep.
        waker.wake();
        waker.wake();
        let mut events = Vec::new();
        world.reactor.wait(&mut events, None);
        assert_eq!(events, [Event::Woken]);
        let done = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let ringers: Vec<_> = (0..3)
            .map(|_| {
                let (waker, done) = (waker.clone(), done.clone());
                std::thread::spawn(move || {
                    for i in 0..2000 {
                        done.fetch_add(1, Ordering::SeqCst);
                        waker.wake();
                        if i % 64 == 0 {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                })
            })
            .collect();
        // Each count is seen without a timeout ever being needed.
        while done.load(Ordering::SeqCst) < 6000 {
            events.clear();
            world.reactor.wait(&mut events, Some(Duration::from_secs(20)));
            assert_eq!(events, [Event::Woken], "{choice:?}: a ring was lost");
        }
        ringers.into_iter().for_each(|r| r.join().unwrap());
    }
}

#[test]
fn a_reactor_can_move_to_its_thread() {
    for choice in engines() {
        let mut world = world(choice);
        let disk = world.file("moves", 1 << 20, true);
        let id = world.reactor.add_disk(disk);
        let buf = world.buffers.alloc(4096).unwrap();
        std::thread::spawn(move || {
            let segs = world.segs(buf, &[(0, 4096)]);
            assert_eq!(world.run(id, DeviceOp::Read, 0, 4096, &segs), Ok(()));
            // Dropped with commands under way: waits for them.
            for i in 0..100 {
                world.submit(id, i, DeviceOp::Read, 0, 4096, &segs);
            }
            world.reactor.kick();
        })
        .join()
        .unwrap();
    }
}

/// A loop device, when this machine lets us make one.
struct Loop(String);

impl Loop {
    fn new(size: u64, dir: &std::path::Path) -> Option<Self> {
        let image = dir.join("loop.img");
        std::fs::File::create(&image).ok()?.set_len(size).ok()?;
        let made = std::process::Command::new("/usr/sbin/losetup")
            .args(["--find", "--show", "--sector-size", "4096"])
            .arg(&image)
            .output()
            .ok()?;
        made.status.success().then(|| Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("/usr/sbin/losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_a_disk_too() {
    for choice in engines() {
        let mut world = world(choice);
        let size = 8 << 20;
        let Some(device) = Loop::new(size, world.dir.path()) else {
            eprintln!("not tested: no loop device can be made here");
            return;
        };
        let spec = DiskSpec::Path(device.0.clone().into());
        let (disk, facts) = open(&spec, OpenOptions::default()).unwrap();
        assert_eq!(
            (facts.size, facts.logical_block, facts.direct, facts.discard),
            (size, 4096, true, true),
            "{facts:?}"
        );
        let again = open(&spec, OpenOptions::default()).unwrap_err().to_string();
        assert!(again.contains("is in use"), "{again}");
        assert_eq!(crate::backend::probe::probe(&disk).unwrap(), []);
        let id = world.reactor.add_disk(disk);
        against_model(&mut world, id, size / BLOCK as u64, 21);
        world.reactor.remove_disk(id);
        let image = DiskSpec::Path(world.dir.path().join("loop.img"));
        let (image, _) = open(&image, OpenOptions::default()).unwrap();
        let found = crate::backend::probe::probe(&image).unwrap();
        assert!(found.iter().any(|f| f.what.contains("behind the loop device")), "{found:?}");
    }
}

/// Behind the end of its file a loop device has no size, as a disk that the kernel has taken away: writes say ENOSPC, reads end.
#[test]
fn a_disk_that_the_kernel_took_away_is_gone() {
    for choice in engines() {
        let mut world = world(choice);
        let Some(device) = Loop::new(8 << 20, world.dir.path()) else {
            eprintln!("not tested: no loop device can be made here");
            return;
        };
        let spec = DiskSpec::Path(device.0.clone().into());
        let id = world.reactor.add_disk(open(&spec, OpenOptions::default()).unwrap().0);
        let block = |world: &mut World, op| {
            let mut block = crate::aligned::AlignedBox::zeroed(BLOCK);
            world.run(id, op, 0, BLOCK as u64, &[Seg { ptr: block.as_mut_ptr(), len: BLOCK }])
        };
        let write = DeviceOp::Write { fua: false };
        assert_eq!((block(&mut world, write), block(&mut world, DeviceOp::Read)), (Ok(()), Ok(())));
        let image = world.dir.path().join("loop.img");
        std::fs::File::options().write(true).open(&image).unwrap().set_len(0).unwrap();
        let told = std::process::Command::new("/usr/sbin/losetup").args(["-c", &device.0]).status();
        assert!(told.unwrap().success());
        for op in [write, DeviceOp::Read] {
            assert_eq!(block(&mut world, op), Err(IoError::Gone), "{op:?}");
        }
        world.reactor.remove_disk(id);
    }
}

#[test]
fn errors_of_the_kernel_have_a_meaning() {
    let write = DeviceOp::Write { fua: false };
    for (errno, op, want) in [
        (libc::EINTR, DeviceOp::Read, None),
        (libc::EAGAIN, write, None),
        (libc::EIO, DeviceOp::Read, Some(Err(IoError::Media))),
        (libc::EILSEQ, DeviceOp::Read, Some(Err(IoError::Media))),
        (libc::ENODATA, DeviceOp::Read, Some(Err(IoError::Media))),
        (libc::EINVAL, DeviceOp::Read, Some(Err(IoError::Media))),
        (libc::ENODEV, write, Some(Err(IoError::Gone))),
        (libc::ENXIO, DeviceOp::Flush, Some(Err(IoError::Gone))),
        (libc::EBADF, write, Some(Err(IoError::Gone))),
        (libc::ENOTCONN, DeviceOp::Read, Some(Err(IoError::Gone))),
        (libc::ENOSPC, write, Some(Err(IoError::NoSpace))),
        (libc::EOPNOTSUPP, DeviceOp::Discard, Some(Ok(()))),
        (libc::EINVAL, DeviceOp::Discard, Some(Ok(()))),
        (libc::EIO, DeviceOp::Discard, Some(Err(IoError::Media))),
        (libc::EOPNOTSUPP, DeviceOp::WriteZeroes, None),
    ] {
        let mut job = Job {
            token: 0,
            disk: 0,
            fd: -1,
            block: false,
            op,
            offset: 0,
            len: 4096,
            iov: vec![],
            first: 0,
            second_try: false,
            paced: 0,
        };
        assert_eq!(job.verdict(errno), want, "{errno} {op:?}");
        if op == DeviceOp::WriteZeroes {
            assert_eq!(job.verdict(errno), Some(Err(IoError::Unsupported)), "the second way was refused too");
        }
    }
}
