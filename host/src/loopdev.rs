//! A kernel block device over a file, with the loop driver and direct I/O: `/dev/loopN` for a share, without nbd or
//! ublk in the kernel.
//!
//! ```text
//!   mkfs, mount, fio -> /dev/loopN -> the share's file -> FUSE session -> pump -> disks
//! ```
//!
//! **Every function here touches the backing file**, by opening it or by making the kernel do so, and waits for what
//! the kernel asks of it. When the file is served by this process, none may be called on a thread that serves it:
//! neither the pump nor a FUSE session thread. It would wait for itself, and not even a signal ends that.
//!
//! A [`LoopDevice`] that is dropped stays attached: a file system may be mounted on it, and a daemon that starts again
//! finds it with [`find_by_backing`].

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

// linux/loop.h
const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4C07;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const LO_NAME_SIZE: usize = 64;

/// The free device that the kernel named can be taken by someone else before we configure it; try as often.
const ATTACH_ATTEMPTS: u32 = 64;

/// udev opens a device for a moment when it appears or changes; being busy for less than this is not being in use.
const BUSY_PATIENCE: Duration = Duration::from_millis(1500);

#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; LO_NAME_SIZE],
    crypt_name: [u8; LO_NAME_SIZE],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304, "linux/loop.h");

const NO_INFO: LoopInfo64 = LoopInfo64 {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; LO_NAME_SIZE],
    crypt_name: [0; LO_NAME_SIZE],
    encrypt_key: [0; 32],
    init: [0; 2],
};

/// The unit in which a loop device is addressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogicalBlock {
    /// For guests and boot loaders that know nothing else; writes below 4 KiB cost a read.
    B512,
    /// What a volume is made of.
    #[default]
    B4096,
}

impl LogicalBlock {
    /// In bytes.
    pub fn bytes(self) -> u32 {
        match self {
            LogicalBlock::B512 => 512,
            LogicalBlock::B4096 => 4096,
        }
    }
}

/// An attached loop device. Dropping it does not detach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    /// `/dev/loopN`.
    pub path: PathBuf,
}

/// Attaches `path` to a free loop device. See the module about threads that must not call this.
pub fn attach(path: &Path, read_only: bool, block: LogicalBlock) -> io::Result<LoopDevice> {
    attach_to(None, path, read_only, block)
}

/// As [`attach`], to `/dev/loopN` if that one is there and free, else to any.
pub fn attach_to(wish: Option<&Path>, path: &Path, read_only: bool, block: LogicalBlock) -> io::Result<LoopDevice> {
    let path = path.canonicalize().map_err(|e| context(e, "attaching", path))?;
    let control = open(Path::new("/dev/loop-control"), true, 0)
        .map_err(|e| Error::new(e.kind(), format!("no loop devices here: {e} (try `modprobe loop`, as root)")))?;
    let backing = open(&path, !read_only, libc::O_DIRECT).map_err(|e| context(e, "attaching", &path))?;

    let mut info = NO_INFO;
    info.flags = LO_FLAGS_DIRECT_IO | if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    info.file_name = file_name(&path);
    let config = LoopConfig { fd: backing.as_raw_fd() as u32, block_size: block.bytes(), info, reserved: [0; 8] };

    let mut wish = wish.and_then(number_of).filter(|n| Path::new(&format!("/dev/loop{n}")).exists());
    for _ in 0..ATTACH_ATTEMPTS {
        let number = match wish.take() {
            Some(number) => number,
            // SAFETY: takes no argument.
            None => check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) })
                .map_err(|e| Error::new(e.kind(), format!("no free loop device: {e}")))?,
        };
        let device = LoopDevice { path: PathBuf::from(format!("/dev/loop{number}")) };
        let node = open_node(&device.path, number)?;
        // SAFETY: the structure has the layout of linux/loop.h and outlives the call.
        match check(unsafe { libc::ioctl(node.as_raw_fd(), LOOP_CONFIGURE, &raw const config) }) {
            Ok(_) => {
                // The kernel falls back to buffered I/O without a word; the device then works, at a fifth of the speed
                // and with a second cache.
                if device.status(&node).is_ok_and(|s| s.flags & LO_FLAGS_DIRECT_IO == 0) {
                    tracing::warn!("{} has no direct I/O to {}", device.path.display(), path.display());
                }
                return Ok(device);
            }
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                return Err(Error::new(
                    e.kind(),
                    format!("attaching {} needs LOOP_CONFIGURE with direct I/O (Linux 5.8): {e}", path.display()),
                ));
            }
            Err(e) => return Err(context(e, "attaching", &path)),
        }
    }
    Err(Error::new(
        ErrorKind::ResourceBusy,
        format!("attaching {}: others took the free loop device {ATTACH_ATTEMPTS} times", path.display()),
    ))
}

/// N of `/dev/loopN`.
fn number_of(node: &Path) -> Option<libc::c_int> {
    node.to_str()?.strip_prefix("/dev/loop")?.parse().ok()
}

/// The loop devices that use this file, also when the mount that it was reached through has left the tree. Reads sysfs
/// and the loop driver only, so it works when the file is dead.
pub fn find_by_backing(path: &Path) -> io::Result<Vec<LoopDevice>> {
    let path = std::path::absolute(path)?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")?.flatten() {
        let name = entry.file_name();
        let Ok(backing) = fs::read(entry.path().join("loop/backing_file")) else { continue };
        let backing = backing.strip_suffix(b"\n").unwrap_or(&backing);
        let backing = backing.strip_suffix(b" (deleted)").unwrap_or(backing);
        let device = LoopDevice { path: Path::new("/dev").join(name) };
        // A path that does not fit into lo_file_name is not compared with it: the cut one may be someone else's.
        let by_name = || {
            path.as_os_str().len() < LO_NAME_SIZE
                && open(&device.path, false, 0)
                    .and_then(|node| device.status(&node))
                    .is_ok_and(|status| status.file_name == file_name(&path))
        };
        if backing == path.as_os_str().as_bytes() || by_name() {
            found.push(device);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

impl LoopDevice {
    /// Detaches it. Refused, without effect, when a file system or another device is on it; when a program merely has
    /// it open, it goes away with the last close, and this says so.
    pub fn detach(&self) -> io::Result<()> {
        let patience = Instant::now() + BUSY_PATIENCE;
        // LOOP_CLR_FD itself never refuses: of a device in use it makes one that vanishes later. A claim for ourselves
        // finds out first.
        let node = loop {
            match open(&self.path, false, libc::O_EXCL) {
                Ok(node) => break node,
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < patience => pause(),
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                    return Err(busy(format!("{} is in use: unmount what is on it first", self.path.display())));
                }
                Err(e) => return Err(context(e, "detaching", &self.path)),
            }
        };
        // SAFETY: takes no argument.
        match check(unsafe { libc::ioctl(node.as_raw_fd(), LOOP_CLR_FD) }) {
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(()),
            Err(e) => return Err(context(e, "detaching", &self.path)),
        }
        drop(node);
        while self.is_attached() {
            if Instant::now() >= patience {
                return Err(busy(format!(
                    "{} is open in another program and will be detached when that closes it",
                    self.path.display()
                )));
            }
            pause();
        }
        Ok(())
    }

    /// Whether it has a backing file.
    pub fn is_attached(&self) -> bool {
        self.sysfs("loop/backing_file").is_ok()
    }

    /// Whether it bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.sysfs("loop/dio").is_ok_and(|text| text.trim() == "1")
    }

    /// Takes over the size of the backing file after it has grown. See the module about threads.
    pub fn set_capacity(&self) -> io::Result<()> {
        // Older kernels take the size that was last seen: make them see it.
        if let Ok(backing) = self.sysfs("loop/backing_file") {
            let _ = fs::metadata(backing.trim_end_matches('\n'));
        }
        let node = open(&self.path, true, 0).map_err(|e| context(e, "growing", &self.path))?;
        // SAFETY: takes no argument.
        check(unsafe { libc::ioctl(node.as_raw_fd(), LOOP_SET_CAPACITY) })
            .map(drop)
            .map_err(|e| context(e, "growing", &self.path))
    }

    /// Bytes.
    pub fn size(&self) -> io::Result<u64> {
        let sectors = self.sysfs("size")?;
        let sectors: u64 = sectors.trim().parse().map_err(|e| Error::new(ErrorKind::InvalidData, e))?;
        Ok(sectors.saturating_mul(512))
    }

    fn sysfs(&self, attribute: &str) -> io::Result<String> {
        let name = self.path.file_name().ok_or(ErrorKind::InvalidInput)?;
        fs::read_to_string(Path::new("/sys/block").join(name).join(attribute))
    }

    fn status(&self, node: &File) -> io::Result<LoopInfo64> {
        let mut info = NO_INFO;
        // SAFETY: the kernel fills a structure of exactly this layout.
        check(unsafe { libc::ioctl(node.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) })?;
        Ok(info)
    }
}

/// Tells the kernel that the calling thread, and the threads it starts, serve I/O that memory reclaim may wait for. A
/// pump below a loop device needs it: without, its allocation can wait for a page that only it can write out. Needs
/// CAP_SYS_RESOURCE; the error says what that means in practice.
pub fn set_io_flusher() -> Result<(), String> {
    // linux/prctl.h, not in the libc crate.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: plain numbers.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } == 0 {
        return Ok(());
    }
    Err(format!(
        "PR_SET_IO_FLUSHER refused ({}): under memory pressure on this host a file system on a braid volume may stall; \
         CAP_SYS_RESOURCE allows it",
        Error::last_os_error()
    ))
}

/// As `lo_file_name`: cut to 63 bytes and a NUL.
fn file_name(path: &Path) -> [u8; LO_NAME_SIZE] {
    let mut name = [0; LO_NAME_SIZE];
    let bytes = path.as_os_str().as_bytes();
    let len = bytes.len().min(LO_NAME_SIZE - 1);
    name[..len].copy_from_slice(&bytes[..len]);
    name
}

/// Opens the device, making its node where devtmpfs did not (containers).
fn open_node(path: &Path, number: libc::c_int) -> io::Result<File> {
    let is_device = fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
    if !is_device {
        let dev = fs::read_to_string(format!("/sys/block/loop{number}/dev"))?;
        let parts = dev.trim().split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let (major, minor): (u32, u32) = parts.ok_or_else(|| Error::new(ErrorKind::InvalidData, dev.clone()))?;
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the string outlives the call.
        let rc = unsafe { libc::mknod(name.as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(major, minor)) };
        if let Err(e) = check(rc)
            && e.kind() != ErrorKind::AlreadyExists
        {
            return Err(context(e, "making the node", path));
        }
    }
    // Writable also for a read-only device: the flag decides, and a configuration needs a writable node.
    open(path, true, 0).map_err(|e| context(e, "opening", path))
}

fn open(path: &Path, write: bool, flags: libc::c_int) -> io::Result<File> {
    OpenOptions::new().read(true).write(write).custom_flags(flags | libc::O_CLOEXEC).open(path)
}

fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc >= 0 { Ok(rc) } else { Err(Error::last_os_error()) }
}

fn context(error: Error, doing: &str, path: &Path) -> Error {
    Error::new(error.kind(), format!("{doing} {}: {error}", path.display()))
}

fn busy(sentence: String) -> Error {
    Error::new(ErrorKind::ResourceBusy, sentence)
}

fn pause() {
    std::thread::sleep(Duration::from_millis(30));
}
