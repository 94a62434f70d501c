//! Sockets and the doorbell, in one epoll set: how both engines learn of what other processes and threads sent.
//!
//! A ring could poll sockets itself. It is slower to be woken by: a client that sends and then waits tells the
//! scheduler so (a *synchronous* wakeup), poll and epoll pass that on, and the server then runs at once where the
//! client ran. A ring's own poll does not, and each turn pays for waking another processor: 56 instead of 30 µs a round
//! trip on the machine of `bench/README.md`.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::{Event, Found};

/// Events taken at once.
const EVENTS: usize = 128;
/// The doorbell's token in epoll; sockets have their descriptor.
const BELL: u64 = u64::MAX;

pub(super) struct Sockets {
    epoll: OwnedFd,
    /// Token by descriptor. What is not in here is not told.
    tokens: HashMap<RawFd, u64>,
    events: Vec<libc::epoll_event>,
}

impl Sockets {
    /// Rung by an eventfd that nobody ever reads: each write is an edge.
    pub(super) fn new(bell: RawFd) -> io::Result<Self> {
        // SAFETY: takes a number; the result is checked before it is owned.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let this =
            Self { epoll, tokens: HashMap::new(), events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS] };
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

    /// False when the descriptor cannot be watched.
    pub(super) fn watch(&mut self, fd: RawFd, token: u64, read: bool, write: bool) -> bool {
        let mut mask = libc::EPOLLRDHUP as u32;
        mask |= if read { libc::EPOLLIN as u32 } else { 0 };
        mask |= if write { libc::EPOLLOUT as u32 } else { 0 };
        let known = self.tokens.insert(fd, token).is_some();
        let watched = known && self.control(libc::EPOLL_CTL_MOD, fd, mask, fd as u64)
            || self.control(libc::EPOLL_CTL_ADD, fd, mask, fd as u64);
        if !watched {
            self.unwatch(fd);
        }
        watched
    }

    pub(super) fn unwatch(&mut self, fd: RawFd) {
        if self.tokens.remove(&fd).is_some() {
            self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
    }

    /// Becomes readable when something happened.
    pub(super) fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Sleeps until something happened; None is for ever.
    fn wait_for(&mut self, sleep: Option<Duration>) -> i32 {
        let (fd, events) = (self.fd(), self.events.as_mut_ptr());
        // A modelled disk may be faster than a millisecond, which is all that the older call can tell apart.
        if let Some(short) = sleep.filter(|s| !s.is_zero() && s.as_millis() == 0) {
            let time = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(short.subsec_nanos() as i32) };
            // SAFETY: room for EVENTS events, a time that lives through the call, no mask.
            let count = unsafe { libc::epoll_pwait2(fd, events, EVENTS as i32, &raw const time, std::ptr::null()) };
            if count >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
                return count;
            }
        }
        // Rounded up: waking too early would only mean waiting again.
        let ms = sleep.map_or(-1, |s| s.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32);
        // SAFETY: room for EVENTS events.
        unsafe { libc::epoll_wait(fd, events, EVENTS as i32, ms) }
    }

    pub(super) fn wait(&mut self, sleep: Option<Duration>, found: &mut Found) {
        let count = self.wait_for(sleep);
        for event in self.events.iter().take(usize::try_from(count).unwrap_or(0)) {
            let (data, mask) = (event.u64, event.events);
            if data == BELL {
                continue;
            }
            if let Some(&token) = self.tokens.get(&(data as RawFd)) {
                found.ready.push(readiness(token, mask));
            }
        }
    }
}

/// What epoll calls it, in our words. The end of a stream is something to read, and told apart: data and the end may
/// come in one event, and who stops at the last byte of data would never hear of the end.
fn readiness(token: u64, mask: u32) -> Event {
    let any = |bits: i32| mask & bits as u32 != 0;
    let broken = any(libc::EPOLLHUP | libc::EPOLLERR);
    let hangup = broken || any(libc::EPOLLRDHUP);
    Event::Ready { token, readable: hangup || any(libc::EPOLLIN), writable: broken || any(libc::EPOLLOUT), hangup }
}
