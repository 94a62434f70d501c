//! The two system calls of a socket, never blocking and without signals.

use std::io;
use std::os::fd::RawFd;

pub(super) fn iovec(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

fn message(iov: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: all zeroes is a message without address, memory and control data.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov.as_ptr().cast_mut();
    msg.msg_iovlen = iov.len() as _;
    msg
}

fn checked(n: isize) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// recvmsg that neither blocks nor raises signals.
pub(super) fn recvmsg(fd: RawFd, iov: &[libc::iovec]) -> io::Result<usize> {
    let mut msg = message(iov);
    loop {
        // SAFETY: the iovecs describe memory borrowed by the caller.
        match checked(unsafe { libc::recvmsg(fd, &mut msg, libc::MSG_DONTWAIT) }) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// sendmsg that neither blocks nor raises signals.
pub(super) fn sendmsg(fd: RawFd, iov: &[libc::iovec]) -> io::Result<usize> {
    let msg = message(iov);
    loop {
        // SAFETY: the iovecs describe memory borrowed by the caller.
        match checked(unsafe { libc::sendmsg(fd, &msg, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A socket as `Read` and `Write` for rustls.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub(super) struct Raw(pub(super) RawFd);

impl io::Read for Raw {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        recvmsg(self.0, &[iovec(buf)])
    }
}

impl io::Write for Raw {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        sendmsg(self.0, &[libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() }])
    }
    fn write_vectored(&mut self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 64];
        let mut n = 0usize;
        for (slot, buf) in iov.iter_mut().zip(bufs) {
            *slot = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
            n = n.saturating_add(1);
        }
        sendmsg(self.0, iov.get(..n).unwrap_or_default())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
