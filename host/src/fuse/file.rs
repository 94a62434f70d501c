//! The file system that the kernel sees: a root directory and one file.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use braid_core::request::{Op, RequestError};
use braid_core::units::{BLOCK, round_up};
use fuser::{
    AccessFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::permit::{Permit, Shared};
use super::reply::Slot;
use super::{Call, REQUEST_BYTES_MAX, ReplyHandle, Sink};
use crate::aligned::AlignedBox;

/// Asynchronous requests that the kernel sends without an answer to the first. Its default of 12 would be the queue
/// depth of a loop device.
const BACKGROUND_MAX: u16 = 512;

/// How long the kernel may believe in name and attributes. [`FuseShare::set_size`] takes the belief back.
const TTL: Duration = Duration::from_secs(3600);

pub(super) const FILE: INodeNo = INodeNo(2);

/// The file system: a root directory and one file.
pub(super) struct VolumeFile {
    pub(super) name: OsString,
    pub(super) read_only: bool,
    pub(super) owner: (u32, u32),
    pub(super) since: SystemTime,
    pub(super) shared: Arc<Shared>,
    pub(super) sink: Arc<dyn Sink>,
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

/// The part of `[offset, offset + len)` that lies within `size`, as a length; 0 when none does.
fn within(size: u64, offset: u64, len: u64) -> u64 {
    len.min(size.saturating_sub(offset))
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
}
