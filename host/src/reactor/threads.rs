//! The reactor without io_uring: epoll for sockets, a pool of threads for disks.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::uring::readiness;
use super::{Found, Job, Signal};
use braid_core::request::{DeviceOp, IoError};

/// Commands that disks work on at the same time. A blocked thread costs little, and disks want a queue.
const WORKERS: usize = 16;
/// Events taken at once.
const EVENTS: usize = 128;
/// A pump with disks that answer at once may go so many rounds without a look at its sockets.
const ROUNDS_WITHOUT_LOOK: u32 = 8;
/// The doorbell's token in epoll; sockets have their descriptor.
const BELL: u64 = u64::MAX;
/// What preadv takes at once.
const IOVECS_MAX: usize = 1024;

type Done = (Job, Result<(), IoError>);

#[derive(Default)]
struct Todo {
    jobs: VecDeque<Job>,
    end: bool,
}

struct Shared {
    todo: Mutex<Todo>,
    bell: Condvar,
    done: Mutex<Vec<Done>>,
    signal: Arc<Signal>,
}

/// Threads that do commands one by one.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    size: usize,
    queue: Vec<Job>,
    spare: Vec<Done>,
    out: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks, and if it did, the lists would still be whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(super) fn new(signal: Arc<Signal>, size: usize) -> Self {
        let shared = Shared { todo: Mutex::default(), bell: Condvar::new(), done: Mutex::default(), signal };
        Self { shared: Arc::new(shared), workers: Vec::new(), size, queue: Vec::new(), spare: Vec::new(), out: 0 }
    }

    pub(super) fn queue(&mut self, job: Job) {
        self.queue.push(job);
    }

    pub(super) fn kick(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let new = self.queue.len();
        self.out += new;
        lock(&self.shared.todo).jobs.extend(self.queue.drain(..));
        // Threads are made when they are needed first.
        while self.workers.len() < self.size.min(self.out) {
            let shared = self.shared.clone();
            match std::thread::Builder::new().name("braid-disk".into()).spawn(move || work(&shared)) {
                Ok(worker) => self.workers.push(worker),
                Err(error) if self.workers.is_empty() => panic!("no thread for disk commands: {error}"),
                Err(_) => break,
            }
        }
        for _ in 0..new.min(self.workers.len()) {
            self.shared.bell.notify_one();
        }
    }

    /// How many.
    pub(super) fn collect(&mut self, done: &mut Vec<Done>) -> usize {
        std::mem::swap(&mut *lock(&self.shared.done), &mut self.spare);
        let count = self.spare.len();
        self.out -= count;
        done.append(&mut self.spare);
        count
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // What is under way must end before its memory goes. What was never sent has nobody who waits for it.
        lock(&self.shared.todo).end = true;
        self.shared.bell.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn work(shared: &Shared) {
    loop {
        let mut todo = lock(&shared.todo);
        let mut job = loop {
            if let Some(job) = todo.jobs.pop_front() {
                break job;
            }
            if todo.end {
                return;
            }
            todo = shared.bell.wait(todo).unwrap_or_else(PoisonError::into_inner);
        };
        drop(todo);
        let result = carry_out(&mut job);
        lock(&shared.done).push((job, result));
        shared.signal.done();
    }
}

/// Does a command to its end.
fn carry_out(job: &mut Job) -> Result<(), IoError> {
    loop {
        let moved = matches!(job.op, DeviceOp::Read | DeviceOp::Write { .. });
        // A refusal that says "try again" would spin on a busy device otherwise; it is rare.
        match call(job) {
            Ok(0) if moved => return Err(IoError::Media),
            Ok(bytes) if moved => {
                if job.advance(bytes) {
                    return Ok(());
                }
            }
            Ok(_) => return Ok(()),
            Err(errno) => {
                if let Some(verdict) = job.verdict(errno) {
                    return verdict;
                }
                if errno == libc::EAGAIN {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}

fn call(job: &Job) -> Result<usize, i32> {
    let parts = job.iov.get(job.first..).unwrap_or_default();
    let (parts, count) = (parts.as_ptr(), parts.len().min(IOVECS_MAX) as libc::c_int);
    let (fd, offset, len) = (job.fd, job.offset as libc::off_t, job.len as libc::off_t);
    // SAFETY: the iovecs and their memory belong to the command (lifetime rule), the descriptor stays open until it is
    // answered.
    let result = unsafe {
        match job.op {
            DeviceOp::Read => libc::preadv(fd, parts, count, offset),
            DeviceOp::Write { fua: false } => libc::pwritev(fd, parts, count, offset),
            DeviceOp::Write { fua: true } => libc::pwritev2(fd, parts, count, offset, libc::RWF_DSYNC),
            DeviceOp::Flush => libc::fdatasync(fd) as isize,
            DeviceOp::Discard if job.block => {
                // The number next to BLKSSZGET in the same family, so that it fits each architecture.
                const BLKDISCARD: libc::Ioctl = libc::BLKSSZGET + (119 - 104);
                let range = [job.offset, job.len];
                libc::ioctl(fd, BLKDISCARD, range.as_ptr()) as isize
            }
            DeviceOp::Discard | DeviceOp::WriteZeroes => {
                libc::fallocate(fd, job.fallocate_mode(), offset, len) as isize
            }
        }
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

struct Watched {
    token: u64,
}

pub(super) struct Threads {
    epoll: OwnedFd,
    pool: Pool,
    watched: std::collections::HashMap<RawFd, Watched>,
    events: Vec<libc::epoll_event>,
    rounds: u32,
}

impl Threads {
    pub(super) fn new(signal: Arc<Signal>) -> io::Result<Self> {
        // SAFETY: takes a number; the result is checked before it is owned.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let bell = signal.fd();
        let this = Self {
            epoll,
            pool: Pool::new(signal, WORKERS),
            watched: Default::default(),
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
            rounds: 0,
        };
        match this.control(libc::EPOLL_CTL_ADD, bell, libc::EPOLLIN as u32, BELL) {
            true => Ok(this),
            false => Err(io::Error::last_os_error()),
        }
    }

    fn control(&self, op: i32, fd: RawFd, mask: u32, data: u64) -> bool {
        let mut event = libc::epoll_event { events: mask | libc::EPOLLET as u32, u64: data };
        // SAFETY: an event that lives through the call.
        unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &mut event) == 0 }
    }

    pub(super) fn start(&mut self, job: Job) {
        self.pool.queue(job);
    }

    pub(super) fn kick(&mut self) {
        self.pool.kick();
    }

    /// False when the descriptor cannot be watched.
    pub(super) fn watch(&mut self, fd: RawFd, token: u64, read: bool, write: bool) -> bool {
        let mut mask = libc::EPOLLRDHUP as u32;
        mask |= if read { libc::EPOLLIN as u32 } else { 0 };
        mask |= if write { libc::EPOLLOUT as u32 } else { 0 };
        let known = self.watched.insert(fd, Watched { token }).is_some();
        known && self.control(libc::EPOLL_CTL_MOD, fd, mask, fd as u64)
            || self.control(libc::EPOLL_CTL_ADD, fd, mask, fd as u64)
    }

    pub(super) fn unwatch(&mut self, fd: RawFd) {
        if self.watched.remove(&fd).is_some() {
            self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
    }

    pub(super) fn wait(&mut self, sleep: Option<Duration>, idle: bool, found: &mut Found) {
        self.pool.kick();
        self.rounds += 1;
        if !idle && self.rounds < ROUNDS_WITHOUT_LOOK {
            return;
        }
        self.rounds = 0;
        // Rounded up: waking too early would only mean waiting again.
        let ms = sleep.map_or(-1, |s| s.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32);
        // SAFETY: room for EVENTS events.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), self.events.as_mut_ptr(), EVENTS as i32, ms) };
        for event in self.events.iter().take(usize::try_from(count).unwrap_or(0)) {
            let (data, mask) = (event.u64, event.events);
            if data == BELL {
                continue;
            }
            if let Some(watched) = self.watched.get(&(data as RawFd)) {
                found.ready.push(readiness(watched.token, mask));
            }
        }
    }

    pub(super) fn collect(&mut self, found: &mut Found) {
        self.pool.collect(&mut found.done);
    }
}
