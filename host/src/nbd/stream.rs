//! A connected socket, in the clear or under TLS, never blocking.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::socket::{iovec, recvmsg, sendmsg};
use super::tls::Tls;

/// A place among the negotiated connections; given back when dropped.
#[derive(Debug)]
pub struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// A place, unless `max` are taken.
    pub fn take(count: &Arc<AtomicUsize>, max: usize) -> Option<Permit> {
        count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| if n < max { n.checked_add(1) } else { None })
            .ok()
            .map(|_| Permit(count.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connected stream socket. All I/O is non-blocking whatever the mode of the descriptor is.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    tls: Option<Box<Tls>>,
    permit: Option<Permit>,
}

impl Drop for Stream {
    /// Hangs up. Closing alone does not while a second descriptor names the socket (of a child process, of a passed
    /// one), and a client that waits for the end after DISC would wait for ever.
    fn drop(&mut self) {
        // SAFETY: a descriptor that we own; the worst is ENOTCONN.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

impl Stream {
    /// In the clear.
    pub fn plain(fd: impl Into<OwnedFd>) -> Self {
        Stream { fd: fd.into(), tls: None, permit: None }
    }

    /// From now on under TLS.
    pub fn set_tls(&mut self, tls: Tls) {
        self.tls = Some(Box::new(tls));
    }

    /// Ties a place among the negotiated connections to the life of the socket.
    pub fn set_permit(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// Under TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The TLS handshake is not finished.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// TLS records wait to be sent.
    pub fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// The descriptor, to poll.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Drives the TLS handshake: sends and receives what it can.
    pub fn handshake(&mut self) -> io::Result<()> {
        let fd = self.fd();
        match &mut self.tls {
            Some(tls) => tls.handshake(fd),
            None => Ok(()),
        }
    }

    /// Receives into `first`, and what does not fit there into `second`. `Ok(0)` is the end of the stream.
    pub fn recv(&mut self, first: &mut [u8], second: &mut [u8]) -> io::Result<usize> {
        let fd = self.fd();
        if let Some(tls) = &mut self.tls {
            if first.is_empty() {
                return tls.recv(fd, second);
            }
            return tls.recv(fd, first);
        }
        let iov = [iovec(first), iovec(second)];
        recvmsg(fd, &iov)
    }

    /// Sends from several pieces of memory in one call; how many bytes went.
    ///
    /// # Safety
    /// Every iovec describes memory that may be read during the call.
    pub unsafe fn send(&mut self, iov: &[libc::iovec]) -> io::Result<usize> {
        let fd = self.fd();
        let Some(tls) = &mut self.tls else { return sendmsg(fd, iov) };
        let mut sent = 0usize;
        for piece in iov {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) };
            let n = tls.send(fd, bytes)?;
            sent = sent.saturating_add(n);
            if n < bytes.len() {
                break;
            }
        }
        match tls.flush(fd) {
            // What rustls took is sent, for the caller; its records wait for `flush`.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && sent > 0 => Ok(sent),
            Err(e) => Err(e),
            Ok(()) if sent == 0 => Err(io::ErrorKind::WouldBlock.into()),
            Ok(()) => Ok(sent),
        }
    }

    /// Sends one piece of memory; how many bytes went.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: `bytes` lives through the call.
        unsafe { self.send(&[piece]) }
    }

    /// Sends TLS records that wait; WouldBlock when some still do.
    pub fn flush(&mut self) -> io::Result<()> {
        let fd = self.fd();
        match &mut self.tls {
            Some(tls) => tls.flush(fd),
            None => Ok(()),
        }
    }

    /// Says goodbye as TLS wants it, as far as the socket takes it.
    pub fn say_goodbye(&mut self) {
        let fd = self.fd();
        if let Some(tls) = &mut self.tls {
            tls.close_notify();
            let _ = tls.flush(fd);
        }
    }
}
