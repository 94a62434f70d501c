//! Mounting and unmounting `/dev/fuse` sessions of ours, by the system call or by `fusermount3`.
//!
//! fuser can mount too, and it is not used for it: it drops the subtype (so a leftover could not be told from another
//! program's mount), for ordinary users it only knows the lazy unmount (so "busy" is never reported), and after a
//! successful unmount it unmounts the same path once more, which hits whatever was mounted there before.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// File system type as `/proc/mounts` shows it; how we know our own.
pub(super) const FS_TYPE: &str = "fuse.braid";

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountEntry {
    /// Device number as `stat` of a file in it says, `major:minor`.
    pub(super) device: (u32, u32),
    /// Type, with subtype.
    pub(super) fs_type: String,
}

/// The uppermost mount at exactly this directory. Never touches the directory itself: a dead session answers no stat.
pub(super) fn at(dir: &Path) -> io::Result<Option<MountEntry>> {
    Ok(find_mount(&fs::read("/proc/self/mountinfo")?, dir.as_os_str().as_bytes()))
}

fn find_mount(mountinfo: &[u8], dir: &[u8]) -> Option<MountEntry> {
    let mut found = None;
    for line in mountinfo.split(|&b| b == b'\n') {
        // 36 35 98:0 /root /mount/point opts [optional fields] - type source super-opts
        let mut fields = line.split(|&b| b == b' ');
        let (Some(device), Some(point)) = (fields.nth(2), fields.nth(1)) else { continue };
        if unescape(point) != dir {
            continue;
        }
        let Some(fs_type) = fields.skip_while(|f| *f != b"-").nth(1) else { continue };
        let device = String::from_utf8_lossy(device);
        let Some((major, minor)) = device.split_once(':') else { continue };
        let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) else { continue };
        found = Some(MountEntry { device: (major, minor), fs_type: String::from_utf8_lossy(fs_type).into_owned() });
    }
    found
}

/// The kernel writes space, tab, newline and backslash as `\ooo`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        match octal {
            Some(byte) if first == b'\\' => {
                out.push(byte);
                rest = &tail[3..];
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// The absolute path without symlinks, found through the parent so that it works when `dir` is a dead mount.
pub(super) fn absolute(dir: &Path) -> io::Result<PathBuf> {
    let named = std::path::absolute(dir)?;
    match (named.parent(), named.file_name()) {
        (Some(parent), Some(name)) => {
            let joined = parent.canonicalize()?.join(name);
            // A symlink as last component: follow it unless what it leads to is dead.
            Ok(joined.canonicalize().unwrap_or(joined))
        }
        _ => Err(Error::new(ErrorKind::InvalidInput, format!("cannot mount on {}", dir.display()))),
    }
}

/// Removes what a daemon that died left at `dir`. Another program's mount, or a living one, is an error.
pub(super) fn clear_leftover(dir: &Path) -> io::Result<()> {
    // More than one crash leaves more than one layer.
    for _ in 0..8 {
        let mount = at(dir)?;
        let dead = mount.is_some() && is_dead(dir);
        match mount {
            Some(mount) if mount.fs_type == FS_TYPE && dead => detach(dir)?,
            Some(mount) if mount.fs_type == FS_TYPE => {
                return Err(Error::new(
                    ErrorKind::ResourceBusy,
                    format!("{} is already mounted by a running braid", dir.display()),
                ));
            }
            Some(mount) if dead => {
                return Err(Error::new(
                    ErrorKind::ResourceBusy,
                    format!("{} is a dead {} mount that is not ours; unmount it first", dir.display(), mount.fs_type),
                ));
            }
            _ => return Ok(()),
        }
    }
    Err(Error::new(ErrorKind::ResourceBusy, format!("{} stays mounted", dir.display())))
}

/// Whether nobody answers behind the mount. Asked with statfs, which always goes to the session: attributes may come
/// from the kernel's cache for as long as the dead session had allowed.
fn is_dead(dir: &Path) -> bool {
    let Ok(path) = c_path(dir) else { return false };
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a C string that lives through the call, and a structure that the kernel fills.
    let rc = unsafe { libc::statfs(path.as_ptr(), stat.as_mut_ptr()) };
    rc != 0 && matches!(Error::last_os_error().raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// How to mount.
pub(super) struct MountOptions {
    pub(super) read_only: bool,
    pub(super) allow_other: bool,
}

/// Mounts at `dir` (see [`absolute`]) and gives the session's `/dev/fuse`.
pub(super) fn mount(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    match mount_by_call(dir, options) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => mount_by_helper(dir, options),
        other => other,
    }
    .map_err(|e| Error::new(e.kind(), format!("mounting FUSE on {}: {e}", dir.display())))
}

fn mount_by_call(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    // SAFETY: no arguments, always succeeds.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions", device.as_raw_fd());
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = libc::MS_NODEV | libc::MS_NOSUID | libc::MS_NOEXEC | libc::MS_NOATIME;
    if options.read_only {
        flags |= libc::MS_RDONLY;
    }
    let target = c_path(dir)?;
    let (fs_type, data) = (CString::new(FS_TYPE)?, CString::new(data)?);
    // SAFETY: all strings live until the call returns.
    let rc = unsafe {
        libc::mount(c"braid".as_ptr(), target.as_ptr(), fs_type.as_ptr(), flags, data.as_ptr().cast::<libc::c_void>())
    };
    if rc == 0 { Ok(device.into()) } else { Err(Error::last_os_error()) }
}

fn mount_by_helper(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut list = String::from("fsname=braid,subtype=braid,default_permissions,nodev,nosuid,noexec,noatime");
    if options.read_only {
        list.push_str(",ro");
    }
    if options.allow_other {
        list.push_str(",allow_other");
    }
    let theirs_fd = theirs.as_raw_fd();
    let mut command = Command::new("fusermount3");
    command.arg("-o").arg(list).arg("--").arg(dir).env("_FUSE_COMMFD", theirs_fd.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only fcntl is called. The descriptor is made inheritable in the child alone.
    unsafe {
        command.pre_exec(move || match libc::fcntl(theirs_fd, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        });
    }
    let child = command.spawn().map_err(|e| no_helper(&e))?;
    drop(theirs);
    let received = receive_fd(&ours);
    let output = child.wait_with_output()?;
    if output.status.success() { received } else { Err(Error::other(first_line(&output.stderr))) }
}

/// The helper passes the mounted `/dev/fuse` over the socket with one byte of data.
fn receive_fd(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = 0u8;
    let mut iov = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: an all-zero msghdr is valid; the pointers set below outlive the call.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    loop {
        // SAFETY: the message describes memory that lives here.
        let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
        if n < 0 {
            let error = Error::last_os_error();
            if error.kind() == ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        // SAFETY: the kernel filled control and its length; the first header is checked before its data is read.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            if n == 0 || header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
                return Err(Error::new(ErrorKind::UnexpectedEof, "fusermount3 passed no descriptor"));
            }
            let fd = libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned();
            return Ok(OwnedFd::from_raw_fd(fd));
        }
    }
}

/// Unmounts; an error of kind ResourceBusy when something in it is open.
pub(super) fn unmount(dir: &Path) -> io::Result<()> {
    by_call_or_helper(dir, 0, "-u")
}

/// Takes the mount out of the tree, in use or not.
pub(super) fn detach(dir: &Path) -> io::Result<()> {
    by_call_or_helper(dir, libc::MNT_DETACH, "-uz")
}

/// Ends the session: whoever waits for an answer gets an error, then the mount leaves the tree.
pub(super) fn abort(dir: &Path, device: (u32, u32)) -> io::Result<()> {
    // Works for the owner of the mount without privilege, where fusectl is mounted; the number is that of the
    // anonymous device.
    let connection = (u64::from(device.0) << 20) | u64::from(device.1);
    let _ = fs::write(format!("/sys/fs/fuse/connections/{connection}/abort"), "1");
    by_call_or_helper(dir, libc::MNT_DETACH | libc::MNT_FORCE, "-uz")
}

fn by_call_or_helper(dir: &Path, flags: libc::c_int, helper: &str) -> io::Result<()> {
    let target = c_path(dir)?;
    // SAFETY: the string outlives the call.
    if unsafe { libc::umount2(target.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) } == 0 {
        return Ok(());
    }
    let error = Error::last_os_error();
    if error.raw_os_error() != Some(libc::EPERM) {
        return Err(error);
    }
    let output = Command::new("fusermount3")
        .arg(helper)
        .arg("--")
        .arg(dir)
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .output()
        .map_err(|e| no_helper(&e))?;
    if output.status.success() {
        return Ok(());
    }
    let line = first_line(&output.stderr);
    let kind = if line.contains("busy") { ErrorKind::ResourceBusy } else { ErrorKind::Other };
    Err(Error::new(kind, line))
}

fn no_helper(error: &Error) -> Error {
    Error::new(error.kind(), format!("fusermount3 does not run ({error}); install the package fuse3, or be root"))
}

fn first_line(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).lines().next().unwrap_or("fusermount3 failed without a word").to_owned()
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().to_owned().into_vec())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uppermost_mount_at_a_directory_is_found() {
        let table = b"24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            90 24 0:44 / /srv/a\\040b rw,nosuid shared:7 master:2 - tmpfs tmpfs rw\n\
            91 90 0:45 / /srv/a\\040b rw,nosuid - fuse.braid braid rw,user_id=0\n\
            garbage\n92 24 0:46 / /srv/short\n";
        let at = |dir: &str| find_mount(table, dir.as_bytes()).map(|m| (m.device, m.fs_type));
        assert_eq!(at("/"), Some(((254, 0), "ext4".into())));
        assert_eq!(at("/srv/a b"), Some(((0, 45), "fuse.braid".into())));
        assert_eq!(at("/srv"), None);
        assert_eq!(at("/srv/short"), None);
    }

    #[test]
    fn escapes_of_the_kernel_are_undone() {
        for (field, plain) in [("a", "a"), ("a\\040b", "a b"), ("\\134", "\\"), ("\\04", "\\04"), ("\\0409", " 9")] {
            assert_eq!(unescape(field.as_bytes()), plain.as_bytes());
        }
    }
}
