//! What a pump thread waits on: its disks, its sockets and its doorbell, in one place and one system call.
//!
//! ```text
//!   submit(disk, ..)  ----+                            +---->  Event::Disk   a command is done
//!   watch(fd, ..)     ----+--> Reactor --- wait() ---->+---->  Event::Ready  a socket has something
//!   Waker::wake()     ----+   uring | threads          +---->  Event::Woken  another thread has something
//! ```
//!
//! Two engines do the same work. `uring` is a ring for the disks, with registered files and a registered arena.
//! `threads` is for machines that forbid io_uring, as most container runtimes do: a pool of threads for the disks. Both
//! hear of sockets by epoll, for a reason that `sockets` tells. Disks in memory, faults and the pace of modelled disks
//! need neither and are done here, once for both.
//!
//! **Lifetime rule.** From `submit` until its [`Event::Disk`] was handed out, memory named by its segments belongs to
//! the disk: it must stay where it is, nobody writes it, and for reads nobody looks at it. A failed system call
//! changes nothing about that: a command that was queued may already be the kernel's. Dropping the reactor
//! waits until the last command has ended, so drop it before the memory.
//!
//! **Readiness is told when it changes.** After [`Event::Ready`], read (or write) until the socket says it would block;
//! only then does the next event come. `watch` itself tells at once what is ready already.

mod pacer;
mod sockets;
mod spin;
#[cfg(test)]
mod tests;
mod threads;
mod uring;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use braid_core::request::{DeviceOp, IoError};

use crate::backend::{Disk, Fault, Medium};
use crate::buffers::Buffers;

/// Which engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// io_uring, or threads where it is forbidden.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// Threads.
    Threads,
}

/// A disk of one reactor; used again after `remove_disk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiskId(pub u32);

/// A piece of memory. Pieces within the registered arena are found by their address.
#[derive(Clone, Copy, Debug)]
pub struct Seg {
    /// First byte.
    pub ptr: *mut u8,
    /// Bytes.
    pub len: usize,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command is done.
    Disk {
        /// As given to `submit`.
        token: u64,
        /// How it went.
        result: Result<(), IoError>,
    },
    /// A socket changed.
    Ready {
        /// As given to `watch`.
        token: u64,
        /// There may be something to read, be it the end.
        readable: bool,
        /// There may be room to write.
        writable: bool,
        /// The other side has said its last, or is gone: after what is there comes the end, and no further event.
        hangup: bool,
    },
    /// [`Waker::wake`] was called, once or more.
    Woken,
}

/// A pump whose disks answer at once may go so many rounds without a look at its sockets.
const ROUNDS_WITHOUT_LOOK: u32 = 8;

/// While a fault holds commands back, it is looked at so often.
const FAULT_LOOK: Duration = Duration::from_millis(20);

const SLEEPING: u8 = 1;
const WOKEN: u8 = 2;
const DONE: u8 = 4;

/// A doorbell that is only rung for a sleeper.
#[derive(Debug)]
pub(crate) struct Signal {
    state: AtomicU8,
    fd: OwnedFd,
}

impl Signal {
    fn new() -> io::Result<Self> {
        // SAFETY: eventfd only takes numbers; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, nobody else owns it.
        Ok(Self { state: AtomicU8::new(0), fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    fn raise(&self, bit: u8) {
        // Only the first one to find the pump asleep makes the system call.
        if self.state.fetch_or(bit, Ordering::SeqCst) == SLEEPING {
            let one = 1u64;
            // SAFETY: eight bytes from a local. It can only fail when the counter is full, and then it was rung.
            unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    pub(crate) fn done(&self) {
        self.raise(DONE);
    }

    /// False when there is already something to wake up for.
    fn lie_down(&self) -> bool {
        self.state.fetch_or(SLEEPING, Ordering::SeqCst) == 0
    }

    /// There is something to get up for.
    fn is_up(&self) -> bool {
        self.state.load(Ordering::SeqCst) != 0
    }

    fn get_up(&self) -> u8 {
        if self.state.load(Ordering::SeqCst) == 0 { 0 } else { self.state.swap(0, Ordering::SeqCst) }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Wakes the pump from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Signal>);

impl Waker {
    /// Costs a system call only if the pump sleeps and nobody woke it before.
    pub fn wake(&self) {
        self.0.raise(WOKEN);
    }
}

/// A command under way. Its iovecs stay at their heap address while it moves.
pub(crate) struct Job {
    pub(crate) token: u64,
    pub(crate) disk: u32,
    pub(crate) fd: RawFd,
    pub(crate) block: bool,
    pub(crate) op: DeviceOp,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) iov: Vec<libc::iovec>,
    /// First iovec with something left.
    pub(crate) first: usize,
    /// Zeroing was refused one way, so try the other.
    pub(crate) second_try: bool,
    /// Its number with the pacer, if its disk has one.
    pub(crate) paced: u32,
}

// SAFETY: the pointers name memory that belongs to the command until it is answered (lifetime rule of the module).
unsafe impl Send for Job {}

impl Job {
    /// `bytes` are done; true when nothing is left.
    pub(crate) fn advance(&mut self, bytes: usize) -> bool {
        self.offset += bytes as u64;
        self.len = self.len.saturating_sub(bytes as u64);
        let mut left = bytes;
        while let Some(part) = self.iov.get_mut(self.first) {
            if part.iov_len > left {
                // SAFETY: stays within the part.
                part.iov_base = unsafe { part.iov_base.cast::<u8>().add(left) }.cast();
                part.iov_len -= left;
                break;
            }
            left -= part.iov_len;
            self.first += 1;
        }
        self.first >= self.iov.len()
    }

    /// What a negative result means for the one who waits; None: try again.
    pub(crate) fn verdict(&mut self, errno: i32) -> Option<Result<(), IoError>> {
        match (errno, self.op) {
            (libc::EINTR | libc::EAGAIN, _) => None,
            (libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL, DeviceOp::Discard) => Some(Ok(())),
            (libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL, DeviceOp::WriteZeroes) => {
                if std::mem::replace(&mut self.second_try, true) { Some(Err(IoError::Unsupported)) } else { None }
            }
            (libc::EOPNOTSUPP | libc::ENOSYS, _) => Some(Err(IoError::Unsupported)),
            (libc::ENOSPC | libc::EDQUOT, _) => Some(Err(IoError::NoSpace)),
            // ENOTCONN: the FUSE server that had the file is no more.
            (
                libc::ENODEV
                | libc::ENXIO
                | libc::ENOENT
                | libc::ESTALE
                | libc::EBADF
                | libc::ESHUTDOWN
                | libc::ENOTCONN,
                _,
            ) => Some(Err(IoError::Gone)),
            // EIO, EILSEQ, ENODATA, EREMOTEIO, ETIMEDOUT and whatever else a driver thinks of: this range failed.
            _ => Some(Err(IoError::Media)),
        }
    }

    /// Mode of fallocate: files give the space back, block devices write zeros the cheapest way they know.
    pub(crate) fn fallocate_mode(&self) -> i32 {
        if self.block != self.second_try {
            libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE
        } else {
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE
        }
    }
}

/// What an engine found.
#[derive(Default)]
pub(crate) struct Found {
    done: Vec<(Job, Result<(), IoError>)>,
    ready: Vec<Event>,
}

enum Engine {
    Uring(Box<uring::Uring>),
    Threads(Box<threads::Threads>),
}

struct Member {
    disk: Disk,
    pacer: Option<pacer::Pacer>,
    in_flight: usize,
    removed: bool,
}

/// See the module. Made anywhere, used by one thread.
pub struct Reactor {
    // Dropped first: it waits for the commands that still use the disks.
    engine: Engine,
    name: String,
    signal: Arc<Signal>,
    disks: Vec<Option<Member>>,
    /// Some disk has a pacer, or had one.
    any_paced: bool,
    /// Done without waiting.
    ready: Vec<Event>,
    /// Held back by a fault.
    delayed: Vec<(Instant, Job)>,
    found: Found,
    spare: Vec<Vec<libc::iovec>>,
    spin: spin::Spin,
}

// SAFETY: the spare iovecs are empty, and the ones of commands under way follow the lifetime rule.
unsafe impl Send for Reactor {}

impl Reactor {
    /// `buffers` are registered with the ring as far as they come from the arena.
    pub fn new(choice: Choice, buffers: &Buffers) -> io::Result<Reactor> {
        let signal = Arc::new(Signal::new()?);
        let (engine, name) = match choice {
            Choice::Threads => (None, "threads".to_owned()),
            Choice::Auto | Choice::Uring => match uring::Uring::new(signal.clone(), buffers.arena()) {
                Ok(ring) => (Some(ring), "io_uring".to_owned()),
                Err(why) if choice == Choice::Auto => (None, format!("threads: {why}")),
                Err(why) => return Err(io::Error::other(why)),
            },
        };
        let engine = match engine {
            Some(ring) => Engine::Uring(Box::new(ring)),
            None => Engine::Threads(Box::new(threads::Threads::new(signal.clone())?)),
        };
        Ok(Reactor {
            engine,
            name,
            signal,
            disks: Vec::new(),
            any_paced: false,
            ready: Vec::new(),
            delayed: Vec::new(),
            found: Found::default(),
            spare: Vec::new(),
            spin: spin::Spin::default(),
        })
    }

    /// `io_uring`, or `threads`, with the reason why it is not io_uring.
    pub fn engine(&self) -> &str {
        &self.name
    }

    /// Takes a disk.
    pub fn add_disk(&mut self, mut disk: Disk) -> DiskId {
        let index = self.disks.iter().position(Option::is_none).unwrap_or_else(|| {
            self.disks.push(None);
            self.disks.len() - 1
        });
        if let (Engine::Uring(ring), Some(fd)) = (&mut self.engine, disk.fd()) {
            ring.register(index as u32, fd);
        }
        let pacer = disk.pace.take().map(pacer::Pacer::new);
        self.any_paced |= pacer.is_some();
        self.disks[index] = Some(Member { disk, pacer, in_flight: 0, removed: false });
        DiskId(index as u32)
    }

    /// The file of a disk, once more, for somebody else to look at.
    pub fn clone_disk(&self, id: DiskId) -> Option<Disk> {
        self.disks.get(id.0 as usize)?.as_ref()?.disk.try_clone()
    }

    /// Closes a disk as soon as its last command was answered. Nothing may be submitted to it any more.
    pub fn remove_disk(&mut self, id: DiskId) {
        if let Some(Some(member)) = self.disks.get_mut(id.0 as usize) {
            member.removed = true;
            self.close_if_idle(id.0);
        }
    }

    fn close_if_idle(&mut self, index: u32) {
        let Some(entry) = self.disks.get_mut(index as usize) else { return };
        if entry.as_ref().is_some_and(|m| m.removed && m.in_flight == 0) {
            if let Engine::Uring(ring) = &mut self.engine {
                ring.unregister(index);
            }
            *entry = None;
        }
    }

    /// Queues a command; [`Event::Disk`] with the same token answers it, once. Nothing is sent before
    /// [`wait`](Self::wait) or [`kick`](Self::kick). For reads and writes `len` is the sum of the segments, other
    /// commands have none. For direct I/O everything is a multiple of the logical block, memory too.
    ///
    /// # Safety
    ///
    /// The memory of the segments follows the lifetime rule of the module.
    pub unsafe fn submit(&mut self, disk: DiskId, token: u64, op: DeviceOp, offset: u64, len: u64, segs: &[Seg]) {
        let Some(Some(member)) = self.disks.get_mut(disk.0 as usize) else {
            self.ready.push(Event::Disk { token, result: Err(IoError::Gone) });
            return;
        };
        let data = matches!(op, DeviceOp::Read | DeviceOp::Write { .. });
        assert!(!data || segs.iter().map(|s| s.len as u64).sum::<u64>() == len, "segments of a command add up to it");
        let fault = member.disk.fault().get();
        let error = if member.removed {
            Some(IoError::Gone)
        } else if offset.checked_add(len).is_none_or(|end| end > member.disk.size()) {
            Some(IoError::Media)
        } else if fault == Fault::None {
            None
        } else {
            member.disk.fault().error(op)
        };
        if let Some(error) = error {
            self.ready.push(Event::Disk { token, result: Err(error) });
            return;
        }
        if fault == Fault::None {
            // The short way, without a Job: it is what a round trip to a null or ram disk costs.
            let segs = segs.iter().map(|s| (s.ptr, s.len));
            // SAFETY: the caller vouches for the segments, the range was checked above.
            if unsafe { in_memory(&member.disk, op, offset, len, segs) } {
                self.ready.push(Event::Disk { token, result: Ok(()) });
                return;
            }
        }
        let mut iov = self.spare.pop().unwrap_or_default();
        if data {
            iov.extend(segs.iter().map(|s| libc::iovec { iov_base: s.ptr.cast(), iov_len: s.len }));
        }
        member.in_flight += 1;
        let (fd, block) = (member.disk.fd().unwrap_or(-1), member.disk.is_block());
        let paced = member.pacer.as_mut().map_or(0, |pacer| pacer.arrive(op, offset, len));
        let job = Job { token, disk: disk.0, fd, block, op, offset, len, iov, first: 0, second_try: false, paced };
        match fault {
            Fault::DelayMs(ms) => self.delayed.push((Instant::now() + Duration::from_millis(ms.into()), job)),
            _ => self.start(job),
        }
    }

    fn start(&mut self, mut job: Job) {
        if let Some(Some(member)) = self.disks.get(job.disk as usize) {
            let segs = job.iov.iter().map(|part| (part.iov_base.cast(), part.iov_len));
            // SAFETY: checked at submit, and the memory belongs to the command until it is answered.
            if unsafe { in_memory(&member.disk, job.op, job.offset, job.len, segs) } {
                self.found.done.push((job, Ok(())));
                return;
            }
        }
        // A segment of nothing would look like the end of the device.
        if matches!(job.op, DeviceOp::Read | DeviceOp::Write { .. }) && job.advance(0) {
            self.found.done.push((job, Ok(())));
            return;
        }
        match &mut self.engine {
            Engine::Uring(ring) => ring.start(job),
            Engine::Threads(threads) => threads.start(job),
        }
    }

    /// Sends what is queued.
    pub fn kick(&mut self) {
        match &mut self.engine {
            Engine::Uring(ring) => ring.kick(),
            Engine::Threads(threads) => threads.kick(),
        }
    }

    /// Tells when `fd` becomes readable or writable, or hangs up. Watching it again changes token and interest. False
    /// when the system cannot watch it (ENOMEM, ENOSPC, a bad descriptor): then nothing is ever told of it.
    #[must_use]
    pub fn watch(&mut self, fd: RawFd, token: u64, read: bool, write: bool) -> bool {
        self.sockets().watch(fd, token, read, write)
    }

    /// No more events for `fd`, none that is under way either. To be called before it is closed.
    pub fn unwatch(&mut self, fd: RawFd) {
        self.sockets().unwatch(fd);
    }

    fn sockets(&mut self) -> &mut sockets::Sockets {
        match &mut self.engine {
            Engine::Uring(ring) => ring.sockets(),
            Engine::Threads(threads) => threads.sockets(),
        }
    }

    /// Sends what is queued and waits until something happened or the time is over; appends what happened. Does not
    /// sleep when there is something to tell already, and then makes no system call unless there is something to
    /// send.
    pub fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) {
        let before = events.len();
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut looked = false;
        loop {
            self.start_delayed();
            self.tell(events);
            let idle = events.len() == before;
            let sleep = if !idle {
                if looked {
                    return;
                }
                Some(Duration::ZERO)
            } else {
                let now = Instant::now();
                // Nobody says when a fault is lifted.
                let delayed = self.delayed.iter().map(|(due, _)| (*due).min(now + FAULT_LOOK));
                let held = delayed.chain(self.next_paced());
                let until = held.chain(deadline).min();
                let left = until.map(|until| until.saturating_duration_since(now));
                if looked && deadline.is_some_and(|deadline| deadline <= now) {
                    return;
                }
                left
            };
            let began = (sleep != Some(Duration::ZERO)).then(Instant::now);
            let look = began.and_then(|_| self.spin.look(sleep));
            let found = match (began, look) {
                (Some(began), Some(look)) => self.look_on(began, look),
                _ => false,
            };
            if !found {
                let awake = began.is_some() && !self.signal.lie_down();
                self.look(if awake { Some(Duration::ZERO) } else { sleep }, idle);
            }
            if let Some(began) = began {
                self.spin.waited(began.elapsed());
            }
            let up = self.signal.get_up();
            if up & DONE != 0 {
                match &mut self.engine {
                    Engine::Uring(ring) => ring.collect(&mut self.found),
                    Engine::Threads(threads) => threads.collect(&mut self.found),
                }
            }
            if up & WOKEN != 0 {
                events.push(Event::Woken);
            }
            looked = true;
        }
    }

    fn look(&mut self, sleep: Option<Duration>, idle: bool) {
        match &mut self.engine {
            Engine::Uring(ring) => ring.wait(sleep, idle, &mut self.found),
            Engine::Threads(threads) => threads.wait(sleep, idle, &mut self.found),
        }
    }

    /// Looks again and again without sleeping, for so long at most; true when something was found.
    fn look_on(&mut self, began: Instant, most: Duration) -> bool {
        loop {
            self.look(Some(Duration::ZERO), true);
            if !self.found.done.is_empty() || !self.found.ready.is_empty() || self.signal.is_up() {
                return true;
            }
            if began.elapsed() >= most {
                return false;
            }
            spin::step_aside();
        }
    }

    /// The most requests that one client sent in the turn that ends. With several there is nothing to be gained by
    /// looking on before a sleep.
    pub fn heard(&mut self, most: usize) {
        self.spin.heard(most);
    }

    /// The doorbell.
    pub fn waker(&self) -> Waker {
        Waker(self.signal.clone())
    }

    fn start_delayed(&mut self) {
        if self.delayed.is_empty() {
            return;
        }
        let now = Instant::now();
        let is_lifted = |job: &Job| {
            let member = self.disks.get(job.disk as usize).and_then(Option::as_ref);
            member.is_some_and(|member| member.disk.fault().get() == Fault::None)
        };
        let lifted: Vec<u64> =
            self.delayed.iter().filter(|(_, job)| is_lifted(job)).map(|(_, job)| job.token).collect();
        while let Some(index) = self.delayed.iter().position(|(due, job)| *due <= now || lifted.contains(&job.token)) {
            let (_, job) = self.delayed.remove(index);
            self.start(job);
        }
    }

    /// Modelled disks keep what came too early, and let go what is due.
    fn hold_back(&mut self) {
        let mut done = Vec::with_capacity(self.found.done.len());
        for (job, result) in self.found.done.drain(..) {
            match self.disks.get_mut(job.disk as usize) {
                Some(Some(Member { pacer: Some(pacer), .. })) => pacer.disk_done(job, result, &mut done),
                _ => done.push((job, result)),
            }
        }
        self.disks.iter_mut().flatten().filter_map(|m| m.pacer.as_mut()).for_each(|pacer| pacer.due(&mut done));
        self.found.done = done;
    }

    fn next_paced(&self) -> Option<Instant> {
        if !self.any_paced {
            return None;
        }
        self.disks.iter().flatten().filter_map(|m| m.pacer.as_ref()?.next()).min()
    }

    fn tell(&mut self, events: &mut Vec<Event>) {
        if self.any_paced {
            self.hold_back();
        }
        let mut done = std::mem::take(&mut self.found.done);
        for (job, result) in done.drain(..) {
            let Job { token, disk, op, mut iov, .. } = job;
            let mut result = result;
            if let Some(Some(member)) = self.disks.get_mut(disk as usize) {
                member.in_flight -= 1;
                if let Some(error) = member.disk.fault().error(op) {
                    result = Err(error);
                }
                // The kernel has words of its own for a disk that was pulled: ENOSPC, EIO, or nothing read.
                if result.is_err() && !member.disk.is_attached() {
                    result = Err(IoError::Gone);
                }
                if member.removed {
                    self.close_if_idle(disk);
                }
            }
            events.push(Event::Disk { token, result });
            iov.clear();
            self.spare.push(iov);
        }
        self.found.done = done;
        events.append(&mut self.ready);
        events.append(&mut self.found.ready);
    }
}

/// Does the command if the disk is memory; false if it is not.
///
/// # Safety
///
/// The segments can be read and written, and `offset + len` lies within the disk.
unsafe fn in_memory(
    disk: &Disk,
    op: DeviceOp,
    offset: u64,
    len: u64,
    segs: impl Iterator<Item = (*mut u8, usize)>,
) -> bool {
    match (&disk.medium, op) {
        (Medium::Block(_) | Medium::File(_), _) => return false,
        (Medium::Null, DeviceOp::Read) => {
            for (ptr, len) in segs {
                // SAFETY: as the caller says.
                unsafe { ptr.write_bytes(0, len) };
            }
        }
        (Medium::Null, _) | (Medium::Ram(_), DeviceOp::Flush) => {}
        (Medium::Ram(memory), DeviceOp::Read | DeviceOp::Write { .. }) => {
            let mut at = offset as usize;
            for (ptr, len) in segs {
                // SAFETY: as the caller says; a buffer is never part of a ram disk.
                unsafe {
                    let place = memory.base().add(at);
                    if op == DeviceOp::Read {
                        ptr.copy_from_nonoverlapping(place, len);
                    } else {
                        place.copy_from_nonoverlapping(ptr, len);
                    }
                }
                at += len;
            }
        }
        (Medium::Ram(memory), DeviceOp::Discard | DeviceOp::WriteZeroes) => {
            // SAFETY: within the mapping, as the caller says. Anonymous memory that is not needed reads as zeros.
            unsafe {
                let place = memory.base().add(offset as usize);
                let pages = offset.is_multiple_of(4096) && len.is_multiple_of(4096);
                if !pages || libc::madvise(place.cast(), len as usize, libc::MADV_DONTNEED) != 0 {
                    place.write_bytes(0, len as usize);
                }
            }
        }
    }
    true
}
