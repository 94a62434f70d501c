//! Disks that fail when they are told to: a sparse file, served by the test itself as the only file of a FUSE mount.

use crate::e2e::Dice;
use crate::real::Real;
use braid_core::request::{Op, RequestError};
use braid_core::units::BLOCK;
use braid_host::fuse::{Call, FuseShare, Sink};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trouble {
    None,
    /// Of a hundred reads, this many fail.
    Reads(u64),
    Writes(u64),
    Flushes(u64),
    /// This many blocks cannot be read until they are written again.
    BadBlocks(u64),
    /// Of a hundred reads, this many give something else.
    Misreads(u64),
    /// Everything takes as long.
    Slow(Duration),
    /// Everything says that there is no such device.
    Gone,
}

/// A disk, for as long as its mount lives.
struct FailingDisk {
    folder: PathBuf,
    name: String,
    /// None while it is not connected.
    share: Option<FuseShare>,
    inside: Arc<Inside>,
}

struct Inside {
    file: File,
    state: Mutex<State>,
}

struct State {
    trouble: Trouble,
    bad: BTreeSet<u64>,
    dice: Dice,
}

impl FailingDisk {
    /// The file `name` in `folder`, which is made, over `backing`.
    fn start(folder: &Path, name: &str, backing: &Path, bytes: u64) -> FailingDisk {
        let file = File::options().read(true).write(true).open(backing).expect("the file behind");
        let state = State { trouble: Trouble::None, bad: BTreeSet::new(), dice: Dice(bytes) };
        let inside = Arc::new(Inside { file, state: Mutex::new(state) });
        let mut disk = FailingDisk { folder: folder.to_owned(), name: name.into(), share: None, inside };
        disk.connect();
        disk
    }

    fn connect(&mut self) {
        let bytes = self.inside.file.metadata().expect("a file").len();
        let share = FuseShare::start(&self.folder, &self.name, bytes, false, self.inside.clone());
        self.share = Some(share.expect("a mount"));
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Blocks that were bad stay so, but with [`Trouble::None`].
    fn suffer(&self, trouble: Trouble) {
        let blocks = self.inside.file.metadata().expect("a file").len() / BLOCK;
        let state = &mut *self.inside.state.lock().expect("no panic");
        state.trouble = trouble;
        match trouble {
            Trouble::None => state.bad.clear(),
            Trouble::BadBlocks(count) => state.bad.extend((0..count).map(|_| state.dice.below(blocks))),
            _ => {}
        }
    }
}

impl Sink for Inside {
    fn submit(&self, mut call: Call) {
        match self.trouble(&call) {
            Err(error) => call.reply.fail(error),
            Ok(wait) => {
                std::thread::sleep(wait);
                let data = call.data.take();
                match (self.run(&call, data.as_deref()), call.op) {
                    (Ok(mut data), Op::Read) => {
                        self.misread(&mut data);
                        call.reply.data(&data);
                    }
                    (Ok(_), _) => call.reply.ok(),
                    (Err(_), _) => call.reply.fail(RequestError::Io),
                }
            }
        }
    }
}

impl Inside {
    /// How a request fails, or how long it waits.
    fn trouble(&self, call: &Call) -> Result<Duration, RequestError> {
        let state = &mut *self.state.lock().expect("no panic");
        let blocks = call.offset / BLOCK..(call.offset + call.len).div_ceil(BLOCK);
        let is_one_of = |percent: u64, dice: &mut Dice| dice.below(100) < percent;
        let fails = match (state.trouble, call.op) {
            (Trouble::Gone, _) => return Err(RequestError::NoVolume),
            (Trouble::Slow(wait), _) => return Ok(wait),
            (Trouble::Reads(percent), Op::Read) | (Trouble::Flushes(percent), Op::Flush) => {
                is_one_of(percent, &mut state.dice)
            }
            (Trouble::Writes(percent), Op::Write { .. } | Op::WriteZeroes { .. }) => {
                is_one_of(percent, &mut state.dice)
            }
            _ => false,
        };
        match call.op {
            Op::Read if state.bad.range(blocks.clone()).next().is_some() => Err(RequestError::Io),
            _ if fails => Err(RequestError::Io),
            Op::Write { .. } | Op::WriteZeroes { .. } => {
                state.bad.retain(|block| !blocks.contains(block));
                Ok(Duration::ZERO)
            }
            _ => Ok(Duration::ZERO),
        }
    }

    fn misread(&self, data: &mut [u8]) {
        let State { trouble, dice, .. } = &mut *self.state.lock().expect("no panic");
        if matches!(*trouble, Trouble::Misreads(percent) if dice.below(100) < percent) {
            data[dice.below(data.len() as u64) as usize] ^= 1 << dice.below(8);
        }
    }

    fn run(&self, call: &Call, data: Option<&[u8]>) -> io::Result<Vec<u8>> {
        match call.op {
            Op::Read => {
                let mut data = vec![0; call.len as usize];
                self.file.read_exact_at(&mut data, call.offset)?;
                return Ok(data);
            }
            Op::Write { .. } => {
                let lead = (call.offset % BLOCK) as usize;
                let data = data.expect("a payload");
                self.file.write_all_at(&data[lead..lead + call.len as usize], call.offset)?;
            }
            Op::Flush => {}
            Op::Discard | Op::WriteZeroes { .. } => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                // SAFETY: numbers only, and a file that is open.
                let rc = unsafe { libc::fallocate(self.file.as_raw_fd(), mode, call.offset as i64, call.len as i64) };
                if rc != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
        }
        Ok(Vec::new())
    }
}

/// Disks of a pool, as they are made.
#[derive(Default)]
pub(crate) struct Disks {
    pub(crate) made: AtomicU64,
    /// Those that fail when they are told to; None: nothing fails.
    failing: Option<Mutex<Vec<FailingDisk>>>,
}

impl Disks {
    /// Disks that fail when they are told to.
    pub(crate) fn failing() -> Disks {
        Disks { failing: Some(Mutex::default()), ..Disks::default() }
    }

    /// One more, and its path.
    pub(crate) fn make(&self, real: &Real, bytes: u64) -> String {
        let name = format!("disk{}.img", self.made.fetch_add(1, Relaxed));
        let path = real.disk(&name, bytes);
        let Some(failing) = &self.failing else { return path };
        let disk = FailingDisk::start(&real.path(&format!("{name}.d")), &name, Path::new(&path), bytes);
        let path = disk.path().display().to_string();
        failing.lock().expect("no panic").push(disk);
        path
    }

    fn those(&self) -> MutexGuard<'_, Vec<FailingDisk>> {
        self.failing.as_ref().expect("disks that may fail").lock().expect("no panic")
    }

    /// Some disk begins to fail; it misreads only where checksums would tell.
    pub(crate) fn hurt(&self, dice: &mut Dice, has_sums: bool) -> Trouble {
        let disks = self.those();
        let number = dice.below(disks.len() as u64) as usize;
        let trouble = match dice.below(if has_sums { 9 } else { 8 }) {
            0 => Trouble::Reads(dice.pick(&[3, 30, 100])),
            1 | 2 => Trouble::Writes(dice.pick(&[3, 30, 100])),
            3 => Trouble::Flushes(dice.pick(&[10, 100])),
            4 | 5 => Trouble::BadBlocks(dice.pick(&[10, 1000, 20000])),
            6 => Trouble::Slow(Duration::from_millis(dice.pick(&[2, 20]))),
            7 => Trouble::Gone,
            _ => Trouble::Misreads(dice.pick(&[3, 30])),
        };
        println!("disk {number} has {trouble:?}");
        disks[number].suffer(trouble);
        trouble
    }

    /// A disk, by number, begins to fail like this.
    pub(crate) fn suffer(&self, number: usize, trouble: Trouble) {
        self.those()[number].suffer(trouble);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.those().len()
    }

    /// A disk, by number, is pulled: whoever has it open has nothing any more.
    pub(crate) fn pull(&self, number: usize) {
        self.those()[number].share = None;
    }

    /// It is there again, where it was.
    pub(crate) fn plug_in(&self, number: usize) {
        self.those()[number].connect();
    }

    /// What stands here on a disk, by number, cannot be read until it is written again.
    pub(crate) fn spoil(&self, number: usize, offset: u64) {
        let disks = self.those();
        disks[number].inside.state.lock().expect("no panic").bad.insert(offset / BLOCK);
    }

    /// All are as new.
    pub(crate) fn mend(&self) {
        println!("no trouble any more");
        let disks = self.those();
        disks.iter().for_each(|disk| disk.suffer(Trouble::None));
    }
}
