//! The reactor without io_uring: epoll for sockets, a pool of threads for disks.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::sockets::Sockets;
use super::{Found, Job, ROUNDS_WITHOUT_LOOK, Signal};
use braid_core::request::{DeviceOp, IoError};

/// Commands that disks work on at the same time. A blocked thread costs little, and disks want a queue.
const WORKERS: usize = 16;
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

pub(super) struct Threads {
    pool: Pool,
    sockets: Sockets,
    rounds: u32,
}

impl Threads {
    pub(super) fn new(signal: Arc<Signal>) -> io::Result<Self> {
        let sockets = Sockets::new(signal.fd())?;
        Ok(Self { pool: Pool::new(signal, WORKERS), sockets, rounds: 0 })
    }

    pub(super) fn sockets(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    pub(super) fn start(&mut self, job: Job) {
        self.pool.queue(job);
    }

    pub(super) fn kick(&mut self) {
        self.pool.kick();
    }

    pub(super) fn wait(&mut self, sleep: Option<Duration>, idle: bool, found: &mut Found) {
        self.pool.kick();
        self.rounds += 1;
        if !idle && self.rounds < ROUNDS_WITHOUT_LOOK {
            return;
        }
        self.rounds = 0;
        self.sockets.wait(sleep, found);
    }

    pub(super) fn collect(&mut self, found: &mut Found) {
        self.pool.collect(&mut found.done);
    }
}
