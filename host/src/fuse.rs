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

mod file;
mod mount;
mod permit;
mod reply;
mod share;

pub use permit::{IN_FLIGHT_BYTES_MAX, REQUEST_BYTES_MAX};
pub use reply::{Call, ReplyHandle, Sink};
pub use share::{FuseShare, ShareOptions, Stop};
