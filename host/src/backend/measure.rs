//! What a disk gets from a load: so many commands under way for some time, each time taken.
//!
//! For `braid device probe`. Everything goes through the reactor, as in a pool, and past the page cache where the filesystem
//! can. Reads are of what is there; of a file with holes that is not what its disk would do.

use std::io;
use std::time::{Duration, Instant};

use braid_core::meta::superblock::{self, SLOTS, SUPERBLOCK_SIZE, SlotError};
use braid_core::request::DeviceOp;
use braid_core::units::{BufId, BufRange};

use super::Disk;
use super::probe::probe;
use crate::buffers::Buffers;
use crate::reactor::{Choice, DiskId, Event, Reactor, Seg};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Read or write.
    pub op: DeviceOp,
    /// Commands under way.
    pub depth: u32,
    /// Bytes of each, a multiple of 4 KiB.
    pub len: u32,
    /// Where they lie: first byte, end.
    pub range: (u64, u64),
    /// Anywhere there, or one behind the other.
    pub random: bool,
}

/// Commands of one load.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Of each command, in order of completion.
    pub ns: Vec<u64>,
    /// From the first begin to the last end.
    pub took_ns: u64,
}

/// A disk that is being measured.
pub struct Bench {
    // Dropped first: it waits for what uses the buffers.
    reactor: Reactor,
    disk: DiskId,
    buffers: Buffers,
    dice: u64,
}

impl Bench {
    /// Takes the disk.
    pub fn new(disk: Disk, choice: Choice) -> io::Result<Bench> {
        let buffers = Buffers::new(0, 256 << 20)?;
        let mut reactor = Reactor::new(choice, &buffers)?;
        let disk = reactor.add_disk(disk);
        Ok(Bench { reactor, disk, buffers, dice: 0x9e37_79b9_7f4a_7c15 })
    }

    /// Runs a load for so long; an error names the place that failed.
    pub fn run(&mut self, load: &Load, time: Duration) -> io::Result<Times> {
        let buffers: Vec<_> = (0..load.depth).map_while(|_| self.buffers.alloc(load.len as usize)).collect();
        if buffers.len() != load.depth as usize {
            return Err(io::Error::other(format!("no memory for {} buffers of {} bytes", load.depth, load.len)));
        }
        let result = self.run_with(&buffers, load, time);
        buffers.into_iter().for_each(|buf| self.buffers.free(buf));
        result
    }

    fn run_with(&mut self, buffers: &[BufId], load: &Load, time: Duration) -> io::Result<Times> {
        let (began, mut times, mut failed) = (Instant::now(), Times::default(), None);
        let mut since = vec![(began, 0); buffers.len()];
        let (mut next, mut under_way) = (load.range.0, 0);
        let mut again: Vec<usize> = (0..buffers.len()).collect();
        loop {
            for slot in again.drain(..) {
                let offset = self.place(load, &mut next);
                let range = BufRange { buf: buffers[slot], offset: 0, len: load.len };
                let (ptr, len) = self.buffers.raw(range).ok_or_else(|| io::Error::other("a buffer is gone"))?;
                since[slot] = (Instant::now(), offset);
                let (token, segs) = (slot as u64, [Seg { ptr, len }]);
                // SAFETY: the buffer is freed when every command was answered, and the reactor is dropped before it.
                unsafe { self.reactor.submit(self.disk, token, load.op, offset, load.len.into(), &segs) };
                under_way += 1;
            }
            if under_way == 0 {
                break;
            }
            let mut events = Vec::new();
            self.reactor.wait(&mut events, None);
            for event in events {
                let Event::Disk { token, result } = event else { continue };
                let (slot, now) = (token as usize, Instant::now());
                under_way -= 1;
                match result {
                    Ok(()) => times.ns.push(ns(now - since[slot].0)),
                    Err(error) => failed = Some((since[slot].1, error)),
                }
                if began.elapsed() < time && failed.is_none() {
                    again.push(slot);
                }
            }
        }
        times.took_ns = ns(began.elapsed());
        match failed {
            None => Ok(times),
            Some((offset, error)) => Err(io::Error::other(format!("a command at byte {offset} failed ({error:?})"))),
        }
    }

    fn place(&mut self, load: &Load, next: &mut u64) -> u64 {
        let (from, to) = load.range;
        let (len, count) = (u64::from(load.len), ((to - from) / u64::from(load.len)).max(1));
        if load.random {
            self.dice ^= self.dice << 13;
            self.dice ^= self.dice >> 7;
            self.dice ^= self.dice << 17;
            return from + (self.dice >> 11) % count * len;
        }
        let at = *next;
        *next = if at + 2 * len > to { from } else { at + len };
        at
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Why a disk may not be written over, in a sentence; nothing if it holds nothing. There is no way around it: who wants to
/// measure writes wipes it first.
pub fn why_not_write(disk: &Disk) -> io::Result<Option<String>> {
    let slot = |at| match at + SUPERBLOCK_SIZE <= disk.size() {
        true => disk.read_blocks(at, SUPERBLOCK_SIZE as usize).map(|bytes| bytes.to_vec()),
        false => Ok(Vec::new()),
    };
    let [a, b] = SLOTS.map(slot);
    match superblock::newest([&a?, &b?]) {
        Ok(found) => return Ok(Some(format!("it is device {} of pool {}", found.device, found.name))),
        Err(SlotError::Foreign) => {}
        Err(why) => return Ok(Some(format!("it may have been a member of a pool ({why})"))),
    }
    Ok(probe(disk)?.first().map(|finding| format!("it carries {finding}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_timed_and_stays_in_its_range() {
        for random in [false, true] {
            let mut bench = Bench::new(Disk::ram(1 << 20).unwrap(), Choice::Threads).unwrap();
            let load = Load { op: DeviceOp::Read, depth: 4, len: 8192, range: (1 << 19, 1 << 20), random };
            let times = bench.run(&load, Duration::from_millis(20)).unwrap();
            assert!(times.ns.len() >= 4 && times.took_ns >= 20_000_000, "{} {}", times.ns.len(), times.took_ns);
            assert!(times.ns.iter().all(|ns| *ns <= times.took_ns));
        }
        // What lies outside is an error of the disk, and told with its place.
        let mut bench = Bench::new(Disk::ram(1 << 20).unwrap(), Choice::Threads).unwrap();
        let outside = Load { op: DeviceOp::Read, depth: 1, len: 4096, range: (1 << 20, 2 << 20), random: false };
        let why = bench.run(&outside, Duration::from_millis(1)).unwrap_err().to_string();
        assert!(why.contains("a command at byte 1048576 failed"), "{why}");
    }

    #[test]
    fn only_what_holds_nothing_may_be_written() {
        let dir = tempfile::tempdir().unwrap();
        for (name, at, bytes, wanted) in [("blank", 0, &b""[..], None), ("ext", 1024 + 56, &[0x53, 0xef], Some("ext"))]
        {
            let path = dir.path().join(name);
            let mut image = vec![0u8; 4 << 20];
            image[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
            std::fs::write(&path, image).unwrap();
            let (disk, _) = crate::backend::open(&crate::backend::DiskSpec::Path(path), Default::default()).unwrap();
            let why = why_not_write(&disk).unwrap();
            assert_eq!(why.is_some(), wanted.is_some(), "{name}: {why:?}");
            assert!(wanted.is_none_or(|part| why.unwrap().contains(part)), "{name}");
        }
    }
}
