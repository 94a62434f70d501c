//! The reactor on io_uring.
//!
//! The ring carries disk commands, and one poll of the set of sockets while there are any: with disks at work the pump
//! sleeps on the ring, without it sleeps on the sockets. `user_data` is a kind in the top byte and an index below.
//! Everything that the kernel may still look at sits in `jobs` until its completion was seen.
//!
//! The ring is created disabled and enabled by the first thread that uses it: SINGLE_ISSUER ties a ring to one
//! thread, and pools are opened by another one than the thread that pumps them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::sockets::Sockets;
use super::threads::Pool;
use super::{Found, Job, ROUNDS_WITHOUT_LOOK, Signal};
use crate::buffers::{Arena, Mapping};
use braid_core::request::{DeviceOp, IoError};

/// Commands sent with one system call; more are sent in several.
const SQ_ENTRIES: u32 = 1024;
/// Completions kept by the ring; beyond it the kernel keeps a slower list, so nothing is lost.
const CQ_ENTRIES: u32 = 16 * 1024;
/// Registered files; members beyond it work too, a little slower.
const FILES: u32 = 128;
/// The kernel registers at most 1 GiB in one piece.
const PIECE: usize = 1 << 30;
/// Most bytes of one fixed command: the kernel would cut at 2 GiB, at an odd place.
const COMMAND_MAX: usize = 1 << 30;
/// The kernel takes so many iovecs at once; the rest of the command follows.
const IOVECS_MAX: usize = 1024;
/// Times that a full queue is sent again before commands wait in our own.
const FULL_TRIES: u32 = 8;

const KIND: u64 = 56;
const INDEX: u64 = (1 << KIND) - 1;
const KIND_JOB: u64 = 1 << KIND;
const KIND_SOCKETS: u64 = 2 << KIND;

pub(super) struct Uring {
    ring: IoUring,
    enabled: bool,
    signal: Arc<Signal>,
    /// Pinned by the ring.
    arena: Arena,
    fixed: bool,
    files: bool,
    registered: [bool; FILES as usize],
    jobs: Vec<Option<Job>>,
    vacant: Vec<u32>,
    in_flight: usize,
    sockets: Sockets,
    /// The ring polls the set of sockets.
    polled: bool,
    /// Something happened at the sockets since they were last looked at.
    stirred: bool,
    rounds: u32,
    /// What found no place in the queue.
    backlog: VecDeque<squeue::Entry>,
    /// For commands that io_uring does not have: BLKDISCARD.
    helper: Option<Pool>,
    /// An error that should not exist was told already.
    complained: bool,
}

// SAFETY: the iovecs in `jobs` name memory that belongs to the commands; the entries in `backlog` name those.
unsafe impl Send for Uring {}

type Ring = IoUring<squeue::Entry, cqueue::Entry>;

fn build() -> Result<IoUring, String> {
    let mut last = None;
    for attempt in 0..3 {
        let mut builder = Ring::builder();
        builder.setup_clamp().setup_cqsize(CQ_ENTRIES).setup_r_disabled();
        match attempt {
            // 6.1
            0 => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
            }
            // 5.19
            1 => {
                builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
            }
            _ => {}
        }
        match builder.build(SQ_ENTRIES) {
            Ok(ring) => return Ok(ring),
            Err(error) => {
                let code = error.raw_os_error();
                last = Some(error);
                if code != Some(libc::EINVAL) {
                    break;
                }
            }
        }
    }
    Err(blocked(&last.unwrap_or_else(io::Error::last_os_error)))
}

/// Names what keeps us from io_uring, so that one can change it.
fn blocked(error: &io::Error) -> String {
    let (code, why) = match error.raw_os_error() {
        Some(libc::EPERM) => {
            let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
            let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let filtered = status.lines().any(|l| l.starts_with("Seccomp:") && l.trim_end().ends_with('2'));
            let why = match disabled.trim() {
                "2" => "kernel.io_uring_disabled=2",
                "1" => "kernel.io_uring_disabled=1, and this user is not in kernel.io_uring_group",
                _ if filtered => "a seccomp filter, as container runtimes set it",
                _ => "a security policy",
            };
            ("EPERM", why)
        }
        Some(libc::ENOSYS) => ("ENOSYS", "this kernel has no io_uring, or a seccomp filter hides it"),
        Some(libc::ENOMEM) => ("ENOMEM", "the limit of locked memory is too low, see ulimit -l"),
        Some(libc::EMFILE) => ("EMFILE", "too many open files, see ulimit -n"),
        _ => return format!("io_uring_setup: {error}"),
    };
    format!("io_uring_setup: {code} ({why})")
}

impl Uring {
    /// The error is the sentence that [`super::Reactor::engine`] shows.
    pub(super) fn new(signal: Arc<Signal>, arena: &Arena) -> Result<Self, String> {
        let ring = build()?;
        if !(ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop()) {
            return Err("io_uring_setup: the kernel is older than 5.11".into());
        }
        let mut probe = io_uring::Probe::new();
        let needed = [
            opcode::Readv::CODE,
            opcode::WriteFixed::CODE,
            opcode::Read::CODE,
            opcode::Fallocate::CODE,
            opcode::PollAdd::CODE,
        ];
        if ring.submitter().register_probe(&mut probe).is_err() || needed.iter().any(|op| !probe.is_supported(*op)) {
            return Err("io_uring_setup: operations are missing or restricted".into());
        }
        // Both are only faster, so a refusal (old kernel, locked memory of a plain user) is no error.
        let files = ring.submitter().register_files(&[-1; FILES as usize]).is_ok();
        let fixed = register_arena(&ring, arena).is_ok();
        let sockets = Sockets::new(signal.fd()).map_err(|e| format!("epoll_create: {e}"))?;
        Ok(Self {
            ring,
            enabled: false,
            signal,
            arena: arena.clone(),
            fixed,
            files,
            registered: [false; FILES as usize],
            jobs: Vec::new(),
            vacant: Vec::new(),
            in_flight: 0,
            sockets,
            polled: false,
            stirred: false,
            rounds: 0,
            backlog: VecDeque::new(),
            helper: None,
            complained: false,
        })
    }

    pub(super) fn sockets(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    /// Allowed before the ring is enabled, and does not tie it to this thread then.
    pub(super) fn register(&mut self, index: u32, fd: RawFd) {
        if let Some(registered) = self.registered.get_mut(index as usize).filter(|_| self.files) {
            *registered = self.ring.submitter().register_files_update(index, &[fd]).is_ok();
        }
    }

    pub(super) fn unregister(&mut self, index: u32) {
        if let Some(registered) = self.registered.get_mut(index as usize).filter(|r| **r) {
            *registered = false;
            // A refusal leaves the file open until the place or the ring is used no more.
            let _ = self.ring.submitter().register_files_update(index, &[-1]);
        }
    }

    fn enable(&mut self) {
        if !self.enabled {
            self.enabled = true;
            self.ring.submitter().register_enable_rings().expect("a ring that was made disabled can be enabled");
        }
    }

    pub(super) fn start(&mut self, job: Job) {
        self.in_flight += 1;
        if job.op == DeviceOp::Discard && job.block {
            let signal = &self.signal;
            let helper = self.helper.get_or_insert_with(|| Pool::new(signal.clone(), 1));
            helper.queue(job);
            return;
        }
        let slot = match self.vacant.pop() {
            Some(slot) => slot as usize,
            None => {
                self.jobs.push(None);
                self.jobs.len() - 1
            }
        };
        self.jobs[slot] = Some(job);
        self.send(slot);
    }

    /// Builds the entry for what is left of a command.
    fn send(&mut self, slot: usize) {
        let Some(job) = &self.jobs[slot] else { return };
        let arena = self.fixed.then_some(&self.arena);
        let entry = match self.registered.get(job.disk as usize) {
            Some(true) => entry(job, types::Fd(job.disk as RawFd), arena).flags(squeue::Flags::FIXED_FILE),
            _ => entry(job, types::Fd(job.fd), arena),
        };
        self.push(entry.user_data(KIND_JOB | slot as u64));
    }

    fn push(&mut self, entry: squeue::Entry) {
        // In the order in which they came, or a command could wait behind others for ever.
        if !self.backlog.is_empty() {
            self.backlog.push_back(entry);
            return;
        }
        for _ in 0..FULL_TRIES {
            // SAFETY: what the entry names is kept in `jobs` until the completion was seen, and payload by the
            // lifetime rule.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            if !self.enabled {
                break;
            }
            // An error (EBUSY, EAGAIN, EINTR) leaves the queue as full as it was; then the entry waits below.
            let _ = self.ring.submit();
        }
        self.backlog.push_back(entry);
    }

    fn refill(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { self.ring.submission().push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    pub(super) fn kick(&mut self) {
        self.enable();
        if let Some(helper) = &mut self.helper {
            helper.kick();
        }
        self.refill();
        let _ = self.ring.submit();
    }

    /// Sends, sleeps, and takes what completed. No system call when there is nothing to send, nothing to fetch and
    /// no sleep.
    pub(super) fn wait(&mut self, sleep: Option<Duration>, idle: bool, found: &mut Found) {
        self.enable();
        if let Some(helper) = &mut self.helper {
            helper.kick();
        }
        self.refill();
        let already = self.drain(found);
        let on_disks = self.in_flight > 0;
        // With the sockets stirred they are looked at below. A poll before that would end at once and say no more.
        if on_disks && !self.polled && !self.stirred {
            self.polled = true;
            let poll = opcode::PollAdd::new(types::Fd(self.sockets.fd()), libc::POLLIN as u32).build();
            self.push(poll.user_data(KIND_SOCKETS));
        }
        let sleep = if already || !self.backlog.is_empty() { Some(Duration::ZERO) } else { sleep };
        self.enter(if on_disks { sleep } else { Some(Duration::ZERO) });
        let found_some = self.drain(found);
        self.rounds += 1;
        let look = self.stirred || self.rounds >= ROUNDS_WITHOUT_LOOK || (idle && !on_disks);
        if look {
            (self.stirred, self.rounds) = (false, 0);
            let sleep = if on_disks || found_some { Some(Duration::ZERO) } else { sleep };
            self.sockets.wait(sleep, found);
        }
    }

    /// Sends what is queued and fetches completions; waits for one when there is to be a sleep.
    fn enter(&mut self, sleep: Option<Duration>) {
        let (queued, work) = {
            let queue = self.ring.submission();
            (!queue.is_empty(), queue.taskrun() || queue.cq_overflow())
        };
        let result = match sleep {
            Some(Duration::ZERO) => {
                if !queued && !work {
                    return;
                }
                self.ring.submitter().submit_with_args(0, &types::SubmitArgs::new())
            }
            Some(time) => {
                let time = types::Timespec::from(time);
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
            }
            None => self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new()),
        };
        if let Err(error) = result {
            match error.raw_os_error() {
                // ETIME: nothing happened. EINTR: a signal. EBUSY and EAGAIN: the kernel wants us to fetch first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
                // Short of memory, or a reason that kernels do not have today: what is queued stays queued and is sent
                // again. Dying of it would take a pool away that may be fine in a moment.
                code => {
                    if code != Some(libc::ENOMEM) && !std::mem::replace(&mut self.complained, true) {
                        tracing::error!("io_uring_enter: {error}; trying again every millisecond");
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// True when something was found.
    fn drain(&mut self, found: &mut Found) -> bool {
        let before = found.done.len();
        loop {
            let Some(cqe) = self.ring.completion().next() else { break };
            let (data, result) = (cqe.user_data(), cqe.result());
            let index = (data & INDEX) as usize;
            match data & !INDEX {
                KIND_JOB => self.job_done(index, result, found),
                // Whatever it says: look, and poll again.
                KIND_SOCKETS => (self.polled, self.stirred) = (false, true),
                _ => {}
            }
        }
        found.done.len() > before || self.stirred
    }

    fn job_done(&mut self, slot: usize, result: i32, found: &mut Found) {
        let Some(job) = self.jobs.get_mut(slot).and_then(Option::as_mut) else { return };
        let verdict = match (usize::try_from(result), job.op) {
            (Err(_), _) => job.verdict(result.saturating_neg()),
            // Less than asked for, and not a byte more to be had: the medium is shorter than it was.
            (Ok(0), DeviceOp::Read | DeviceOp::Write { .. }) => Some(Err(IoError::Media)),
            (Ok(bytes), DeviceOp::Read | DeviceOp::Write { .. }) => job.advance(bytes).then_some(Ok(())),
            (Ok(_), _) => Some(Ok(())),
        };
        match verdict {
            None => self.send(slot),
            Some(verdict) => {
                if let Some(job) = self.jobs[slot].take() {
                    found.done.push((job, verdict));
                }
                self.vacant.push(slot as u32);
                self.in_flight -= 1;
            }
        }
    }

    pub(super) fn collect(&mut self, found: &mut Found) {
        if let Some(helper) = &mut self.helper {
            self.in_flight -= helper.collect(&mut found.done);
        }
    }
}

fn register_arena(ring: &IoUring, arena: &Mapping) -> io::Result<()> {
    if arena.len() == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let pieces: Vec<_> = (0..arena.len())
        .step_by(PIECE)
        .map(|at| libc::iovec {
            // SAFETY: `at` lies within the mapping.
            iov_base: unsafe { arena.base().add(at) }.cast(),
            iov_len: PIECE.min(arena.len() - at),
        })
        .collect();
    // SAFETY: the mapping is valid, and this struct keeps it for as long as the ring.
    unsafe { ring.submitter().register_buffers(&pieces) }
}

fn entry(job: &Job, file: types::Fd, arena: Option<&Arena>) -> squeue::Entry {
    let parts = job.iov.get(job.first..).unwrap_or_default();
    let count = parts.len().min(IOVECS_MAX) as u32;
    // One piece of the arena: no pinning, no iovec.
    let single = match (parts, arena) {
        ([part], Some(arena)) if arena.holds(part.iov_base.cast(), part.iov_len) => {
            let at = part.iov_base as usize - arena.base() as usize;
            let fits = at / PIECE == (at + part.iov_len - 1) / PIECE;
            fits.then(|| (part.iov_base.cast::<u8>(), part.iov_len.min(COMMAND_MAX) as u32, (at / PIECE) as u16))
        }
        _ => None,
    };
    match (job.op, single) {
        (DeviceOp::Read, Some((ptr, len, index))) => {
            opcode::ReadFixed::new(file, ptr, len, index).offset(job.offset).build()
        }
        (DeviceOp::Read, None) => opcode::Readv::new(file, parts.as_ptr(), count).offset(job.offset).build(),
        (DeviceOp::Write { fua }, single) => {
            let flags = if fua { libc::RWF_DSYNC } else { 0 };
            match single {
                Some((ptr, len, index)) => {
                    opcode::WriteFixed::new(file, ptr, len, index).offset(job.offset).rw_flags(flags).build()
                }
                None => opcode::Writev::new(file, parts.as_ptr(), count).offset(job.offset).rw_flags(flags).build(),
            }
        }
        (DeviceOp::Flush, _) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        (DeviceOp::Discard | DeviceOp::WriteZeroes, _) => {
            opcode::Fallocate::new(file, job.len).offset(job.offset).mode(job.fallocate_mode()).build()
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut found = Found::default();
        while self.in_flight > 0 {
            // The kernel may write to the memory of these commands at any time: nothing may go before they end.
            self.wait(Some(Duration::from_millis(100)), false, &mut found);
            self.collect(&mut found);
        }
        // A ring is torn down by the kernel in its own time; locks on members must be gone when this returns.
        let _ = self.ring.submitter().unregister_files();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_blocks_io_uring_is_named() {
        for (errno, says) in [
            (libc::EPERM, "io_uring_setup: EPERM ("),
            (libc::ENOSYS, "io_uring_setup: ENOSYS (this kernel has no io_uring"),
            (libc::ENOMEM, "ulimit -l"),
            (libc::EINVAL, "io_uring_setup: Invalid argument"),
        ] {
            let text = blocked(&io::Error::from_raw_os_error(errno));
            assert!(text.contains(says), "{text}");
        }
    }
}
