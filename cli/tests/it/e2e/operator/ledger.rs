//! The client of a pool with operators, over whichever share: it knows what it wrote, what may have failed and what no flush covers.

use super::super::{BLOCK, Dice};
use super::VOLUME;
use crate::real::{FUSE, Real};
use crate::tools::have;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const SECTOR: usize = 512;

/// How the client gets at the volume.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Way {
    Nbd,
    Fuse,
}

enum Share {
    Nbd(Box<Client<UnixStream>>),
    File(File),
}

impl Share {
    fn open(way: Way, places: &Places) -> io::Result<Share> {
        match way {
            Way::Nbd => match Client::connect(&places.socket, "tank/v", Wish::default()) {
                Ok(client) => Ok(Share::Nbd(Box::new(client))),
                Err(error) => Err(io::Error::other(format!("{error:?}"))),
            },
            Way::Fuse => File::options().read(true).write(true).open(&places.file).map(Share::File),
        }
    }

    /// Errors are numbers, 0 for none.
    fn write(&mut self, is_forced: bool, offset: u64, data: &[u8]) -> u32 {
        match self {
            Share::Nbd(client) => client.write(forced(is_forced), offset, data).expect("an answer").error,
            Share::File(file) => number(file.write_all_at(data, offset).and_then(|()| sync(file, is_forced))),
        }
    }

    fn write_zeroes(&mut self, is_forced: bool, offset: u64, len: u32) -> u32 {
        match self {
            Share::Nbd(client) => {
                client.call(cmd::WRITE_ZEROES, forced(is_forced), offset, len).expect("an answer").error
            }
            Share::File(file) => {
                let mode = libc::FALLOC_FL_ZERO_RANGE;
                // SAFETY: numbers only, and a file that is open.
                let rc = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, i64::from(len)) };
                let done = if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
                number(done.and_then(|()| sync(file, is_forced)))
            }
        }
    }

    fn flush(&mut self) -> u32 {
        match self {
            Share::Nbd(client) => client.call(cmd::FLUSH, 0, 0, 0).expect("an answer").error,
            Share::File(file) => number(file.sync_all()),
        }
    }

    fn read(&mut self, offset: u64, len: u32) -> (u32, Vec<u8>) {
        match self {
            Share::Nbd(client) => {
                let answer = client.read(offset, len).expect("an answer");
                (answer.error, answer.data)
            }
            Share::File(file) => {
                let mut data = vec![0; len as usize];
                match number(file.read_exact_at(&mut data, offset)) {
                    0 => (0, data),
                    error => (error, Vec::new()),
                }
            }
        }
    }

    /// Writes whose end nobody waits for.
    fn leave(self, writes: Vec<(u64, Vec<u8>)>) {
        match self {
            Share::Nbd(mut client) => {
                for (cookie, (offset, data)) in writes.into_iter().enumerate() {
                    client.send_write(cookie as u64, 0, offset, &data);
                }
                client.push().expect("the daemon is there");
            }
            Share::File(file) => {
                for (offset, data) in writes {
                    let file = file.try_clone().expect("a file");
                    std::thread::spawn(move || drop(file.write_all_at(&data, offset)));
                }
            }
        }
    }
}

fn forced(is_forced: bool) -> u16 {
    if is_forced { cmd::FLAG_FUA } else { 0 }
}

fn sync(file: &File, is_wanted: bool) -> io::Result<()> {
    if is_wanted { file.sync_data() } else { Ok(()) }
}

fn number(result: io::Result<()>) -> u32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO) as u32, |()| 0)
}

/// Where shares of the volume are.
struct Places {
    socket: PathBuf,
    file: PathBuf,
}

fn content(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// The client.
pub(super) struct Ledger {
    pub(super) way: Way,
    places: Places,
    dice: Dice,
    /// None until it is needed.
    share: Option<Share>,
    /// By block: stamps that each of its sectors may have.
    blocks: BTreeMap<u64, Vec<u64>>,
    /// What blocks that no flush covers had before.
    unflushed: BTreeMap<u64, Vec<u64>>,
    /// Requests may fail: what they were about has the old content or the new.
    pub(super) may_fail: bool,
    stamp: u64,
}

impl Ledger {
    /// One in four goes by a file, where that is possible.
    pub(super) fn new(real: &Real, seed: u64) -> Ledger {
        Ledger {
            way: if seed % 4 == 1 && have("an operator (fuse)", &FUSE) { Way::Fuse } else { Way::Nbd },
            places: Places { socket: real.path("v.sock"), file: real.path("run/fuse/tank/v/v") },
            dice: Dice(seed),
            share: None,
            blocks: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            may_fail: false,
            stamp: 0,
        }
    }

    /// A daemon that was just started has its control socket first, and then its shares.
    fn share(&mut self) -> &mut Share {
        let (way, places) = (self.way, &self.places);
        self.share.get_or_insert_with(|| {
            let mut tries = (0..1000).map(|_| {
                let share = Share::open(way, places);
                share.inspect_err(|_| std::thread::sleep(Duration::from_millis(10)))
            });
            tries.find_map(Result::ok).expect("the share is back after ten seconds")
        })
    }

    pub(super) fn hang_up(&mut self) {
        self.share = None;
    }

    /// Blocks somewhere, more often near the front.
    fn somewhere(&mut self) -> (u64, u64) {
        let count = self.dice.pick(&[1, 1, 1, 2, 4, 16, 64]);
        let end = self.dice.pick(&[1_000, VOLUME / BLOCK]) - count;
        (self.dice.below(end), count)
    }

    fn write(&mut self) {
        let (first, count) = self.somewhere();
        let zeros = self.dice.below(10) == 0;
        let stamps: Vec<u64> = (1..=count).map(|i| if zeros { 0 } else { self.stamp + i }).collect();
        self.stamp += count;
        let is_forced = self.dice.below(4) == 0;
        let data: Vec<u8> = stamps.iter().flat_map(|&stamp| content(stamp)).collect();
        let error = match zeros {
            true => self.share().write_zeroes(is_forced, first * BLOCK, (count * BLOCK) as u32),
            false => self.share().write(is_forced, first * BLOCK, &data),
        };
        assert!(error == 0 || self.may_fail, "write of {first} + {count}: error {error}");
        for (block, stamp) in (first..).zip(stamps) {
            let may = self.blocks.entry(block).or_insert_with(|| vec![0]);
            let before = may.clone();
            match error {
                0 => *may = vec![stamp],
                _ => may.push(stamp),
            }
            if !is_forced || error != 0 {
                self.unflushed.entry(block).or_default().extend(before);
            } else {
                self.unflushed.remove(&block);
            }
        }
    }

    pub(super) fn flush(&mut self) {
        let error = self.share().flush();
        assert!(error == 0 || self.may_fail, "flush: error {error}");
        if error == 0 {
            self.unflushed.clear();
        }
    }

    /// The disks lost their caches: what no flush covers may be what it was.
    pub(super) fn caches_lost(&mut self) {
        for (block, before) in &self.unflushed {
            self.blocks.entry(*block).or_insert_with(|| vec![0]).extend(before);
        }
    }

    /// Writes that nobody waits for: each sector may get it.
    pub(super) fn write_and_leave(&mut self) {
        let mut writes = Vec::new();
        for _ in 0..8 {
            let (first, _) = self.somewhere();
            self.stamp += 1;
            writes.push((first * BLOCK, content(self.stamp)));
            self.blocks.entry(first).or_insert_with(|| vec![0]).push(self.stamp);
        }
        self.share();
        self.share.take().expect("just opened").leave(writes);
    }

    fn read(&mut self, first: u64, count: u64) {
        let (error, data) = self.share().read(first * BLOCK, (count * BLOCK) as u32);
        assert!(error == 0 || self.may_fail, "read of {first} + {count}: error {error}");
        for (block, found) in (first..).zip(data.chunks(BLOCK as usize)) {
            let may = self.blocks.get(&block).map_or(&[0][..], Vec::as_slice);
            let is = |part: &[u8], stamp: &u64| part.chunks(8).all(|word| word == stamp.to_le_bytes());
            let bad = found.chunks(SECTOR).find(|part| !may.iter().any(|stamp| is(part, stamp)));
            assert!(
                bad.is_none(),
                "block {block} has a sector of {:?}, not one of {may:?}",
                bad.map(|part| &part[..8])
            );
            // What was read once stays, unless it is about something that failed while no record could be written.
            if let Some(stamp) = may.iter().find(|stamp| is(found, stamp)).copied()
                && !self.may_fail
            {
                self.blocks.insert(block, vec![stamp]);
            }
        }
    }

    pub(super) fn read_all(&mut self) {
        (0..VOLUME / BLOCK).step_by(256).for_each(|first| self.read(first, 256));
    }

    pub(super) fn work(&mut self) {
        for _ in 0..5 + self.dice.below(30) {
            match self.dice.below(100) {
                0..60 => self.write(),
                60..97 => {
                    let (first, count) = self.somewhere();
                    self.read(first, count);
                }
                _ => self.flush(),
            }
        }
    }
}
