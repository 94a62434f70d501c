//! A volume as one file: each share is a FUSE mount whose only file has the volume's name, size and content.
//!
//! ```text
//!   application      kernel           session threads (2)              pump
//!   pwrite O_DIRECT -> /dev/fuse -> copy payload, Call{op, data,..} -> Sink::submit
//!                   <-------------------- ReplyHandle::ok / data / fail, from any thread
//! ```
//!
//! Promises:
//!
//! - A session thread only reads a request, copies its payload into memory that the request owns and submits it. It
//!   never waits for a disk, so the depth at the disks is not bounded by the number of threads.
//! - A request owns its buffer until it is answered. (qemu-storage-daemon 7.2 had one buffer per export and corrupted
//!   large concurrent direct writes.)
//! - A [`Call`] that is dropped answers EIO: no application hangs on a request that the pump lost.
//! - The kernel caches neither content (`FOPEN_DIRECT_IO`) nor pending writes; fsync, and the end of every
//!   O_SYNC/O_DSYNC write, are real. While an fsync or a punched hole waits for its answer the kernel holds back writes
//!   to the same file (it locks the inode), so a slow flush is felt by all writers of the share.
//! - What a share holds in memory is bounded by [`IN_FLIGHT_BYTES_MAX`]; beyond it the session threads stop reading
//!   and the kernel queues, opens and stats included, until the pump answers something.
//!
//! The file behaves like a block device with a name: O_TRUNC is accepted and does nothing (so `dd of=` and `cp` work),
//! any other change of its size is refused with EPERM, a write that crosses the end is cut short, one that starts
//! there is ENOSPC. Shared `mmap` is refused by the kernel (ENODEV).
//!
//! Whoever opens or stats the file must not be a thread that serves it: not the pump, not a sink. And no process should
//! wait for data of a share that it serves: killed while it waits, it stays, because its own descriptors keep the
//! session alive that would have to answer. `umount -f` ends that.

mod mount;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use braid_core::request::{Op, RequestError};
use braid_core::units::{BLOCK, MIB, round_up};
use fuser::{
    AccessFlags, Config, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, Notifier, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    Session, SessionACL, TimeOrNow, WriteFlags,
};

use crate::aligned::AlignedBox;

/// Bytes of data requests that one share may have in memory, reads included (the pump holds memory for those).
/// 64 requests of the largest size: more than any disk array asks for, small beside a server's memory.
pub const IN_FLIGHT_BYTES_MAX: u64 = 64 * MIB;

/// Largest single read or write. 1 MiB is what the kernel allows by default (fs.fuse.max_pages_limit = 256), and
/// what a slab buffer holds.
pub const REQUEST_BYTES_MAX: u64 = MIB;
const _: () = assert!(IN_FLIGHT_BYTES_MAX >= 16 * REQUEST_BYTES_MAX, "depth 16 at the largest size must be possible");

/// Asynchronous requests that the kernel sends without an answer to the first. Its default of 12 would be the queue
/// depth of a loop device.
const BACKGROUND_MAX: u16 = 512;

/// Threads that read requests. They only copy, so two keep up with any disk; more contend for the same queue.
const SESSION_THREADS: usize = 2;

/// How long the kernel may believe in name and attributes. [`FuseShare::set_size`] takes the belief back.
const TTL: Duration = Duration::from_secs(3600);

/// A program that has just closed the file, or udev looking at a loop device, is gone within this time.
const BUSY_PATIENCE: Duration = Duration::from_millis(600);

/// After an abort the session threads get ENODEV at once; one that does not come back is left alone.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);

const FILE: INodeNo = INodeNo(2);

/// One request for a volume.
#[derive(Debug)]
pub struct Call {
    /// What.
    pub op: Op,
    /// First byte; within the volume.
    pub offset: u64,
    /// Bytes; 0 only for a flush. The range ends within the volume.
    pub len: u64,
    /// The process that asks, as the kernel says; 0 when it does not (it is outside this pid namespace).
    pub pid: u32,
    /// For writes: memory that covers the block-aligned envelope of the range, with the payload at `offset % BLOCK`.
    pub data: Option<AlignedBox>,
    /// Where the answer goes.
    pub reply: ReplyHandle,
}

/// Where calls go.
pub trait Sink: Send + Sync {
    /// Takes a call. Must not wait for anything that a session thread of the same share does; the answer may be given
    /// from any thread, before or after this returns.
    fn submit(&self, call: Call);
}

/// Answers one request, once. Dropping it answers EIO.
#[derive(Debug)]
pub struct ReplyHandle {
    slot: Option<Slot>,
    len: u64,
    _permit: Permit,
}

#[derive(Debug)]
enum Slot {
    Read(ReplyData),
    Write(ReplyWrite),
    Empty(ReplyEmpty),
}

impl ReplyHandle {
    /// `permit` is what the request takes in memory.
    fn new(slot: Slot, len: u64, permit: Permit) -> ReplyHandle {
        ReplyHandle { slot: Some(slot), len, _permit: permit }
    }

    /// Done: a write, flush, discard or write-zeroes.
    pub fn ok(mut self) {
        match self.slot.take() {
            Some(Slot::Write(reply)) => reply.written(self.len as u32),
            Some(Slot::Empty(reply)) => reply.ok(),
            Some(Slot::Read(reply)) => {
                debug_assert!(false, "a read was answered without data");
                reply.error(Errno::EIO);
            }
            None => {}
        }
    }

    /// The bytes of a read: exactly [`Call::len`] of them, *without* the envelope. Copied before this returns.
    /// Anything shorter would be an end of file in the middle, so it becomes EIO.
    pub fn data(mut self, bytes: &[u8]) {
        match self.slot.take() {
            Some(Slot::Read(reply)) if bytes.len() as u64 == self.len => reply.data(bytes),
            Some(slot) => {
                debug_assert!(false, "{} bytes for a request of {}", bytes.len(), self.len);
                slot.error(Errno::EIO);
            }
            None => {}
        }
    }

    /// It failed.
    pub fn fail(mut self, error: RequestError) {
        if let Some(slot) = self.slot.take() {
            slot.error(errno(error));
        }
    }
}

impl Drop for ReplyHandle {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            tracing::warn!("a FUSE request was dropped unanswered; the application gets EIO");
            slot.error(Errno::EIO);
        }
    }
}

impl Slot {
    fn error(self, error: Errno) {
        match self {
            Slot::Read(reply) => reply.error(error),
            Slot::Write(reply) => reply.error(error),
            Slot::Empty(reply) => reply.error(error),
        }
    }
}

/// What an application sees of a failed request.
fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::NoVolume => Errno::ENXIO,
        RequestError::OutOfRange | RequestError::Invalid => Errno::EINVAL,
        RequestError::ReadOnly => Errno::EROFS,
        RequestError::NoSpace => Errno::ENOSPC,
        RequestError::Io => Errno::EIO,
        RequestError::Busy => Errno::EAGAIN,
    }
}

/// The part of `[offset, offset + len)` that lies within `size`, as a length; 0 when none does.
fn within(size: u64, offset: u64, len: u64) -> u64 {
    len.min(size.saturating_sub(offset))
}

/// What session threads, answers and the owner of a share have in common.
#[derive(Debug)]
struct Shared {
    size: AtomicU64,
    /// Stopped by force: nothing reaches the sink any more.
    dead: AtomicBool,
    in_flight: Mutex<u64>,
    freed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes counted against [`IN_FLIGHT_BYTES_MAX`] until dropped.
#[derive(Debug)]
struct Permit {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Permit {
    /// Waits while the share has too much in memory. A request alone always passes.
    fn wait(shared: &Arc<Shared>, bytes: u64) -> Permit {
        let mut in_flight = shared.lock();
        while *in_flight > 0 && *in_flight + bytes > IN_FLIGHT_BYTES_MAX && !shared.dead.load(Ordering::Relaxed) {
            in_flight = shared.freed.wait(in_flight).unwrap_or_else(PoisonError::into_inner);
        }
        *in_flight += bytes;
        drop(in_flight);
        Permit { shared: shared.clone(), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.shared.lock() -= self.bytes;
            self.shared.freed.notify_all();
        }
    }
}

/// Who may use a share, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShareOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Users other than the daemon's may reach the file (its mode still applies, so: root). For ordinary users it needs
    /// `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
}

/// How to end a share that may be in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Refuse when something has the file open.
    IfIdle,
    /// Whoever waits for an answer gets an error, open files give errors from now on, the mount leaves the tree.
    Force,
}

/// A mounted volume. Dropping it stops it by force.
#[derive(Debug)]
pub struct FuseShare {
    dir: PathBuf,
    file: PathBuf,
    shared: Arc<Shared>,
    made_dir: bool,
    /// None once stopped.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    notifier: Notifier,
    device: (u32, u32),
}

impl FuseShare {
    /// Mounts at `mount_dir` (made when missing; a dead mount of an earlier daemon is removed first). The file is
    /// there when this returns. Must not be called on a thread that the sink needs.
    pub fn start(
        mount_dir: &Path,
        file_name: &str,
        size: u64,
        read_only: bool,
        sink: Arc<dyn Sink>,
    ) -> io::Result<FuseShare> {
        Self::start_with(mount_dir, file_name, size, ShareOptions { read_only, allow_other: false }, sink)
    }

    /// As [`start`](Self::start), with all options.
    pub fn start_with(
        mount_dir: &Path,
        file_name: &str,
        size: u64,
        options: ShareOptions,
        sink: Arc<dyn Sink>,
    ) -> io::Result<FuseShare> {
        check_name(file_name)?;
        if i64::try_from(size).is_err() {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{size} bytes are too many for a file")));
        }
        let dir = mount::absolute(mount_dir)?;
        mount::clear_leftover(&dir)?;
        let made_dir = prepare_dir(&dir)?;

        let shared = Arc::new(Shared {
            size: AtomicU64::new(size),
            dead: AtomicBool::new(false),
            in_flight: Mutex::new(0),
            freed: Condvar::new(),
        });
        let device = mount::mount(
            &dir,
            &mount::MountOptions { read_only: options.read_only, allow_other: options.allow_other },
        )?;
        // From here on the mount exists: an error must take it away again.
        let mut undo = Undo { dir: &dir, armed: true };

        let volume = VolumeFile {
            name: file_name.into(),
            read_only: options.read_only,
            // SAFETY: no arguments, always succeeds.
            owner: unsafe { (libc::geteuid(), libc::getegid()) },
            since: SystemTime::now(),
            shared: shared.clone(),
            sink,
        };
        let mut config = Config::default();
        config.n_threads = Some(SESSION_THREADS);
        config.clone_fd = true;
        // Who may come in is the kernel's decision (allow_other); fuser's own check would refuse the loop driver's
        // threads, which run as root, in a share of an ordinary user.
        let session = Session::from_fd(volume, device, SessionACL::All, config)?;
        let notifier = session.notifier();
        let name = format!("fuse-{file_name}");
        let thread = std::thread::Builder::new().name(name.chars().take(15).collect()).spawn(move || {
            // Inherited by the threads that the session starts.
            if let Err(note) = crate::loopdev::set_io_flusher() {
                tracing::debug!("{note}");
            }
            if let Err(error) = session.run() {
                tracing::warn!("FUSE session ended: {error}");
            }
        })?;

        let file = dir.join(file_name);
        let stat = fs::metadata(&file)
            .map_err(|e| Error::new(e.kind(), format!("{} does not answer after mounting: {e}", file.display())))?;
        undo.armed = false;
        drop(undo);
        let device = (libc::major(stat.dev()), libc::minor(stat.dev()));
        Ok(FuseShare { dir, file, shared, made_dir, running: Some(Running { thread, notifier, device }) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// The directory that it is in.
    pub fn mount_dir(&self) -> &Path {
        &self.dir
    }

    /// The volume has another size now: the next stat shows it, the next request is checked against it.
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        self.shared.size.store(size, Ordering::Release);
        match &self.running {
            // A negative offset: attributes only; there are no cached pages.
            Some(running) => running.notifier.inval_inode(FILE, -1, 0),
            None => Ok(()),
        }
    }

    /// Bytes of requests not answered yet.
    pub fn in_flight_bytes(&self) -> u64 {
        *self.shared.lock()
    }

    /// Ends the share. A refusal leaves it as it was, and it can be tried again. Must not be called on a thread that
    /// the sink needs.
    pub fn stop(&mut self, how: Stop) -> io::Result<()> {
        let Some(running) = &self.running else { return Ok(()) };
        // Not ours any more when the operator has unmounted it: then nothing is left but to collect the threads.
        // The device number alone does not tell: a mount made since may have got the same. While the session lives, the
        // number is taken.
        let mounted = !running.thread.is_finished()
            && mount::at(&self.dir)?.is_some_and(|m| m.device == running.device && m.fs_type == mount::FS_TYPE);
        match how {
            Stop::IfIdle if mounted => self.unmount_patiently()?,
            Stop::IfIdle => {}
            Stop::Force => {
                self.shared.dead.store(true, Ordering::Relaxed);
                // Under the lock, so that no session thread goes to sleep between its check and this.
                drop(self.shared.lock());
                self.shared.freed.notify_all();
                if mounted {
                    mount::abort(&self.dir, running.device)?;
                }
            }
        }
        if let Some(Running { thread, notifier, .. }) = self.running.take() {
            drop(notifier);
            let patience = Instant::now() + ABORT_PATIENCE;
            while !thread.is_finished() && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                tracing::warn!("{} is still open somewhere; it gives errors from now on", self.file.display());
            }
        }
        if self.made_dir {
            let _ = fs::remove_dir(&self.dir);
        }
        Ok(())
    }

    fn unmount_patiently(&self) -> io::Result<()> {
        let patience = Instant::now() + BUSY_PATIENCE;
        loop {
            match mount::unmount(&self.dir) {
                Err(e) if e.kind() == ErrorKind::ResourceBusy && Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(30));
                }
                Err(e) if e.kind() == ErrorKind::ResourceBusy => {
                    return Err(Error::new(
                        ErrorKind::ResourceBusy,
                        format!(
                            "{} is in use: unmount what is on it, detach its loop device and close it, or stop it by \
                             force",
                            self.file.display()
                        ),
                    ));
                }
                other => return other,
            }
        }
    }
}

impl Drop for FuseShare {
    fn drop(&mut self) {
        if let Err(error) = self.stop(Stop::Force) {
            tracing::warn!("unmounting {}: {error}", self.dir.display());
        }
    }
}

/// Takes a mount away again when the start fails half-way.
struct Undo<'a> {
    dir: &'a Path,
    armed: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.armed {
            let _ = mount::detach(self.dir);
        }
    }
}

fn check_name(name: &str) -> io::Result<()> {
    if matches!(name, "" | "." | "..") || name.len() > 255 || name.contains(['/', '\0']) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{name:?} cannot be the name of a file")));
    }
    Ok(())
}

/// True when it had to be made. A directory with something in it is not hidden under a mount.
fn prepare_dir(dir: &Path) -> io::Result<bool> {
    match fs::create_dir(dir) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => match fs::read_dir(dir)?.next() {
            None => Ok(false),
            Some(_) => Err(Error::new(
                ErrorKind::DirectoryNotEmpty,
                format!("{} is not empty; a share needs a directory of its own", dir.display()),
            )),
        },
        Err(e) => Err(Error::new(e.kind(), format!("making {}: {e}", dir.display()))),
    }
}

/// The file system: a root directory and one file.
struct VolumeFile {
    name: OsString,
    read_only: bool,
    owner: (u32, u32),
    since: SystemTime,
    shared: Arc<Shared>,
    sink: Arc<dyn Sink>,
}

impl VolumeFile {
    fn size(&self) -> u64 {
        self.shared.size.load(Ordering::Acquire)
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o700, 2, 0),
            FILE if self.read_only => (FileType::RegularFile, 0o400, 1, self.size()),
            FILE => (FileType::RegularFile, 0o600, 1, self.size()),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK as u32,
            flags: 0,
        })
    }

    fn submit(&self, call: Call) {
        match self.shared.dead.load(Ordering::Relaxed) {
            true => call.reply.fail(RequestError::Io),
            false => self.sink.submit(call),
        }
    }

    /// Without a payload, hence without a place in memory.
    fn submit_empty(&self, pid: u32, op: Op, offset: u64, len: u64, reply: ReplyEmpty) {
        let permit = Permit { shared: self.shared.clone(), bytes: 0 };
        self.submit(Call {
            op,
            offset,
            len,
            pid,
            data: None,
            reply: ReplyHandle::new(Slot::Empty(reply), len, permit),
        });
    }
}

/// Bytes of the block-aligned envelope of a range.
fn envelope(offset: u64, len: u64) -> u64 {
    round_up((offset % BLOCK).saturating_add(len), BLOCK)
}

impl Filesystem for VolumeFile {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an old kernel lacks makes it slower, not wrong.
        for flag in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_MAX_PAGES, InitFlags::FUSE_PARALLEL_DIROPS] {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX as u32);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX / 4 * 3);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(FILE) {
            Some(attr) if parent == INodeNo::ROOT && name == self.name => reply.entry(&TTL, &attr, Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attr) = self.attr(ino) else { return reply.error(Errno::ENOENT) };
        // O_TRUNC arrives as a size of 0 without a file handle. Accepted without effect, as block devices do: the
        // answer carries the true size. (truncate(2) to 0 by path looks the same and has the same non-effect.)
        let truncating_open = size == Some(0) && fh.is_none() && ino == FILE;
        let resize = size.is_some_and(|s| s != attr.size) && !truncating_open;
        if resize || mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        // Times may be set and are not kept: `cp` and `touch` should not fail for them.
        reply.attr(&TTL, &attr);
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        if self.read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        reply.opened(
            FileHandle(0),
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH,
        );
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        let len = within(self.size(), offset, u64::from(size));
        if len == 0 {
            return reply.data(&[]);
        }
        let permit = Permit::wait(&self.shared, envelope(offset, len));
        let reply = ReplyHandle::new(Slot::Read(reply), len, permit);
        self.submit(Call { op: Op::Read, offset, len, pid: req.pid(), data: None, reply });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        if self.read_only {
            return reply.error(Errno::EROFS);
        }
        if data.is_empty() {
            return reply.written(0);
        }
        let len = within(self.size(), offset, data.len() as u64);
        let Some(payload) = data.get(..len as usize).filter(|p| !p.is_empty()) else {
            return reply.error(Errno::ENOSPC);
        };
        let bytes = envelope(offset, len);
        let permit = Permit::wait(&self.shared, bytes);
        let Some(data) = AlignedBox::envelope((offset % BLOCK) as usize, payload, bytes as usize) else {
            return reply.error(Errno::ENOMEM);
        };
        // The kernel sends no fsync after a direct write to a file opened with O_SYNC or O_DSYNC (or with RWF_DSYNC);
        // it passes the flag and relies on us.
        let fua = flags.0 & libc::O_DSYNC != 0;
        let reply = ReplyHandle::new(Slot::Write(reply), len, permit);
        self.submit(Call { op: Op::Write { fua }, offset, len, pid: req.pid(), data: Some(data), reply });
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        // Close, not fsync: nothing of ours is pending.
        reply.ok();
    }

    fn fsync(&self, req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        if ino != FILE {
            return reply.ok();
        }
        self.submit_empty(req.pid(), Op::Flush, 0, 0, reply);
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO_RANGE_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        if self.read_only {
            return reply.error(Errno::EROFS);
        }
        let len = within(self.size(), offset, length);
        let whole_blocks = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        let op = match mode {
            // A hole reads as zeros to its last byte; a discard promises that for whole blocks only.
            PUNCH_HOLE if whole_blocks => Op::Discard,
            PUNCH_HOLE => Op::WriteZeroes { fua: false, no_hole: false },
            ZERO_RANGE_KEEP => Op::WriteZeroes { fua: false, no_hole: true },
            libc::FALLOC_FL_ZERO_RANGE if len == length => Op::WriteZeroes { fua: false, no_hole: true },
            libc::FALLOC_FL_ZERO_RANGE => return reply.error(Errno::ENOSPC),
            // Reserving space has no meaning in a volume that is allocated at first write. Never ENOSYS: the kernel
            // would not ask for holes again either.
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        if len == 0 {
            return reply.ok();
        }
        self.submit_empty(req.pid(), op, offset, len, reply);
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, OsStr::new(".")),
            (INodeNo::ROOT, FileType::Directory, OsStr::new("..")),
            (FILE, FileType::RegularFile, self.name.as_os_str()),
        ];
        let rest = entries.into_iter().zip(1..).skip(usize::try_from(offset).unwrap_or(usize::MAX));
        for ((ino, kind, name), next) in rest {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        // The block size matters: a loop device takes it for its discard granularity.
        reply.statfs(self.size() / BLOCK, 0, 0, 1, 0, BLOCK as u32, 255, BLOCK as u32);
    }

    // What the kernel should handle itself, or not ask again. fuser's defaults say the same with a warning each.

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _offset: i64, _whence: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        _fh_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _fh_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_at_the_end_of_the_volume() {
        for (size, offset, len, want) in [
            (100, 0, 100, 100),
            (100, 0, 101, 100),
            (100, 99, 4096, 1),
            (100, 100, 1, 0),
            (100, u64::MAX, u64::MAX, 0),
            (u64::MAX, 1, u64::MAX, u64::MAX - 1),
            (0, 0, 1, 0),
        ] {
            assert_eq!(within(size, offset, len), want, "{size} {offset} {len}");
        }
    }

    #[test]
    fn envelopes_cover_the_blocks_that_a_range_touches() {
        for (offset, len, want) in
            [(0, 1, 4096), (0, 4096, 4096), (1, 4096, 8192), (4095, 2, 8192), (4096, 9000, 12288)]
        {
            assert_eq!(envelope(offset, len), want, "{len} at {offset}");
        }
    }

    #[test]
    fn names_that_no_file_can_have_are_refused() {
        for name in ["", ".", "..", "a/b", "a\0", &"x".repeat(256)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["vm0", "...", "a b", "ü", &"x".repeat(255)] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }
}
