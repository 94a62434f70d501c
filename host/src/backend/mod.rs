//! The disks of a pool, as this machine has them.
//!
//! ```text
//!   "ram:64M"  memory, gone with the process        tests, scratch tiers
//!   "null:1G"  writes vanish, reads are zeros       measuring everything but the disk
//!   "/dev/sdb" a block device, O_EXCL, O_DIRECT     what this is about
//!   "./a.img"  a file, flock, O_DIRECT if it can
//!   "model:hdd,./a.img"  the same, answering no sooner than the modelled device would (see [`pace`])
//! ```
//!
//! Opening answers three questions: may we have it (nobody else uses it), what is it ([`Facts`]), and is its size one
//! we can work with. What is *on* it is asked separately, see [`probe`].

pub mod measure;
pub mod pace;
pub mod probe;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_core::request::{DeviceOp, IoError};
use braid_core::units::{BLOCK, round_down};

use crate::aligned::AlignedBox;
use crate::buffers::Mapping;

/// Devices above this size are refused: offsets are signed 64-bit in the kernel.
const SIZE_MAX: u64 = i64::MAX as u64;
/// The unit that every disk counts in; a size that is no multiple of it is a mistake, not a disk.
const SECTOR: u64 = 512;

/// What the user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskSpec {
    /// `ram:SIZE`.
    Ram(u64),
    /// `null:SIZE`.
    Null(u64),
    /// A block device or a file.
    Path(PathBuf),
    /// `model:MODEL,PATH`: a block device or a file that is as slow as a model.
    Model(String, PathBuf),
}

/// A sentence that says what is wrong with a [`DiskSpec`] or a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

/// Reads `64M`, `64MiB`, `1G`, `500GB`, `4096`: K, M, G, T and P are powers of 1024, with `iB` too; with a mere `B` they
/// are powers of 1000.
pub fn parse_size(text: &str) -> Result<u64, SpecError> {
    let wrong = || SpecError(format!("\"{text}\" is not a size; write for example 64M, 10GiB or 500GB"));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (letter, base) = match unit.to_ascii_lowercase().as_bytes() {
        [] | [b'b'] => (b'b', 1024),
        [letter] | [letter, b'i', b'b'] => (*letter, 1024u64),
        [letter, b'b'] => (*letter, 1000),
        _ => return Err(wrong()),
    };
    let power = b"bkmgtp".iter().position(|l| *l == letter).ok_or_else(wrong)? as u32;
    if number.is_empty() {
        return Err(wrong());
    }
    let too_large = || SpecError(format!("\"{text}\" is larger than a device can be (8 EiB)"));
    let number: u64 = number.parse().map_err(|_| too_large())?;
    number.checked_mul(base.pow(power)).filter(|size| *size <= SIZE_MAX).ok_or_else(too_large)
}

impl DiskSpec {
    /// See the module.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let spec = match text.split_once(':') {
            Some(("ram", size)) => return parse_size(size).map(Self::Ram),
            Some(("null", size)) => return parse_size(size).map(Self::Null),
            Some(("model", rest)) => return Self::parse_model(rest),
            Some(("file", path)) => path,
            Some((word, _)) if !word.contains('/') => {
                return Err(SpecError(format!(
                    "\"{word}:\" is no kind of disk; known are ram:SIZE, null:SIZE, file:PATH, model:MODEL,PATH"
                )));
            }
            _ if !text.contains('/') && !text.is_empty() => {
                return Err(SpecError(format!("\"{text}\" is no path; write /dev/{text} or ./{text}")));
            }
            _ => text,
        };
        if spec.is_empty() || spec.contains('\0') {
            return Err(SpecError("a disk needs a path, or ram:SIZE, or null:SIZE".into()));
        }
        Ok(Self::Path(spec.into()))
    }

    fn parse_model(rest: &str) -> Result<Self, SpecError> {
        match rest.split_once(',') {
            Some((model, path)) if !model.is_empty() && path.contains('/') && !path.contains('\0') => {
                Ok(Self::Model(model.into(), path.into()))
            }
            _ => Err(SpecError(format!(
                "\"model:{rest}\" is no disk; write model:NAME,PATH or model:FILE.toml,PATH, such as model:hdd,./disk.img"
            ))),
        }
    }

    /// The disk of a member that is remembered by this path, which may be that of a modelled one.
    pub fn of_member(path: &Path) -> Self {
        let model = path.to_str().and_then(|text| text.strip_prefix("model:"));
        model.and_then(|rest| Self::parse_model(rest).ok()).unwrap_or_else(|| Self::Path(path.into()))
    }

    /// The block device or file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) | Self::Model(_, path) => Some(path),
            Self::Ram(_) | Self::Null(_) => None,
        }
    }
}

impl fmt::Display for DiskSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ram(size) => write!(f, "ram:{size}"),
            Self::Null(size) => write!(f, "null:{size}"),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Model(model, path) => write!(f, "model:{model},{}", path.display()),
        }
    }
}

/// How to open.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Make a sparse file of this size if the path does not exist or is an empty file.
    pub create_size: Option<u64>,
    /// Nobody else may use it: O_EXCL for block devices, flock for files.
    pub exclusive: bool,
    /// Past the page cache where the filesystem can.
    pub direct: bool,
    /// Only to look: closing a block device that was open for writing makes udev look at it again.
    pub read_only: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { create_size: None, exclusive: true, direct: true, read_only: false }
    }
}

/// What we know about a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Usable bytes, a multiple of 4 KiB.
    pub size: u64,
    /// Smallest I/O of the device.
    pub logical_block: u32,
    /// What the device writes without reading first.
    pub physical_block: u32,
    /// What the kernel believes; a hint, since virtual disks often lie. False when nothing is known.
    pub rotational: bool,
    /// What a model says of its class.
    pub class: Option<&'static str>,
    /// Discard reaches the device; unsupported discards succeed all the same.
    pub discard: bool,
    /// Reads and writes go past the page cache.
    pub direct: bool,
    /// Serial number.
    pub serial: Option<String>,
    /// Model name.
    pub model: Option<String>,
    /// Which attachment of a disk to this machine, in this boot, it is (Linux 5.15 and later): another one may be another disk, or
    /// the same without what its cache held.
    pub diskseq: Option<u64>,
    /// What a file may still take of its filesystem.
    pub growth: Option<Growth>,
    /// Sentences that a user should see.
    pub note: Vec<String>,
}

/// What a sparse file may still take of the filesystem that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Number of the filesystem.
    pub filesystem: u64,
    /// Bytes that are not allocated yet.
    pub bytes: u64,
    /// Bytes that the filesystem has free.
    pub free: u64,
}

/// Why a disk could not be opened. Each is one sentence that names the disk.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is nothing of that name.
    #[error("{0}: no such disk or file")]
    Missing(String),
    /// Somebody else has it.
    #[error("{0} is in use: {1}")]
    Busy(String, &'static str),
    /// Not a block device and not a file.
    #[error("{0} is {1}, not a block device or a file")]
    NotADisk(String, &'static str),
    /// Zero, odd or beyond what can be addressed.
    #[error("{0} has a size of {1} bytes: {2}")]
    Size(String, u64, &'static str),
    /// Sectors that we cannot write.
    #[error("{0} has sectors of {1} bytes; up to 4096 are supported")]
    Sector(String, u32),
    /// Its model cannot be had.
    #[error("{0}: {1}")]
    Model(String, String),
    /// The kernel said no.
    #[error("opening {0}: {1}")]
    Io(String, #[source] io::Error),
}

/// What goes wrong on purpose, to see what a pool makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// All is well.
    None,
    /// Everything fails with [`IoError::Gone`], also what is under way.
    Gone,
    /// Reads fail with [`IoError::Media`].
    ReadError,
    /// Writes, flushes and zeroing fail with [`IoError::Media`].
    WriteError,
    /// Each command starts that much later, or when the fault is lifted.
    DelayMs(u32),
}

/// Sets the fault of a disk from any thread, while it is used.
#[derive(Clone, Debug, Default)]
pub struct FaultHandle(Arc<AtomicU64>);

impl FaultHandle {
    /// From now on.
    pub fn set(&self, fault: Fault) {
        let word = match fault {
            Fault::None => 0,
            Fault::Gone => 1,
            Fault::ReadError => 2,
            Fault::WriteError => 3,
            Fault::DelayMs(ms) => 4 | u64::from(ms) << 8,
        };
        self.0.store(word, Ordering::Relaxed);
    }

    /// What is set.
    pub fn get(&self) -> Fault {
        match self.0.load(Ordering::Relaxed) {
            0 => Fault::None,
            1 => Fault::Gone,
            2 => Fault::ReadError,
            3 => Fault::WriteError,
            word => Fault::DelayMs((word >> 8) as u32),
        }
    }

    /// The error that `op` meets now.
    pub(crate) fn error(&self, op: DeviceOp) -> Option<IoError> {
        match (self.get(), op) {
            (Fault::Gone, _) => Some(IoError::Gone),
            (Fault::ReadError, DeviceOp::Read) => Some(IoError::Media),
            (Fault::WriteError, DeviceOp::Write { .. } | DeviceOp::Flush | DeviceOp::WriteZeroes) => {
                Some(IoError::Media)
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Medium {
    Block(OwnedFd),
    File(OwnedFd),
    Ram(Mapping),
    Null,
}

/// An opened member. Dropping it gives it back.
#[derive(Debug)]
pub struct Disk {
    pub(crate) medium: Medium,
    size: u64,
    fault: FaultHandle,
    /// When it may answer, if it is modelled.
    pub(crate) pace: Option<Box<dyn pace::Pace>>,
}

impl Disk {
    fn new(medium: Medium, size: u64) -> Self {
        Self { medium, size, fault: FaultHandle::default(), pace: None }
    }

    /// A disk in memory.
    pub fn ram(size: u64) -> io::Result<Self> {
        let len = usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self::new(Medium::Ram(Mapping::new(len)?), size))
    }

    /// A disk that forgets.
    pub fn null(size: u64) -> Self {
        Self::new(Medium::Null, size)
    }

    /// Usable bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The file that is open, once more, to look at; none of a disk in memory.
    pub fn try_clone(&self) -> Option<Disk> {
        let medium = match &self.medium {
            Medium::Block(fd) => Medium::Block(fd.try_clone().ok()?),
            Medium::File(fd) => Medium::File(fd.try_clone().ok()?),
            Medium::Ram(_) | Medium::Null => return None,
        };
        Some(Self::new(medium, self.size))
    }

    /// A handle to break it with.
    pub fn fault_handle(&self) -> FaultHandle {
        self.fault.clone()
    }

    /// As [`FaultHandle::set`].
    pub fn set_fault(&self, fault: Fault) {
        self.fault.set(fault);
    }

    pub(crate) fn fault(&self) -> &FaultHandle {
        &self.fault
    }

    pub(crate) fn fd(&self) -> Option<RawFd> {
        match &self.medium {
            Medium::Block(fd) | Medium::File(fd) => Some(fd.as_raw_fd()),
            Medium::Ram(_) | Medium::Null => None,
        }
    }

    pub(crate) fn is_block(&self) -> bool {
        matches!(self.medium, Medium::Block(_))
    }

    /// False of a block device that the kernel has taken away, while it is open here: it has no size left, or, as a partition, no name.
    pub(crate) fn is_attached(&self) -> bool {
        let Medium::Block(fd) = &self.medium else { return true };
        let is_there = |file: File| {
            let name = sysfs_dir(file.metadata()?.rdev());
            // Without sysfs nothing is known of names.
            let is_named = name.exists() || !name.parent().is_some_and(Path::exists);
            Ok::<_, io::Error>(is_named && end_of(&file)? > 0)
        };
        fd.try_clone().map(File::from).and_then(is_there).unwrap_or(true)
    }

    /// Reads whole blocks, waiting for them: for probing and assembly, before there is a reactor. `offset` and `len`
    /// are multiples of 4 KiB; fewer bytes come back at the end of the disk.
    pub fn read_blocks(&self, offset: u64, len: usize) -> io::Result<AlignedBox> {
        let len = len.min(usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX));
        let mut out = AlignedBox::zeroed(len);
        match &self.medium {
            Medium::Block(fd) | Medium::File(fd) => {
                File::from(fd.try_clone()?).read_exact_at(&mut out, offset)?;
            }
            Medium::Ram(memory) if len > 0 => {
                // SAFETY: `offset + len <= size`, which is the length of the mapping.
                let from = unsafe { std::slice::from_raw_parts(memory.base().add(offset as usize), len) };
                out.copy_from_slice(from);
            }
            Medium::Ram(_) | Medium::Null => {}
        }
        Ok(out)
    }
}

/// Opens what the user wrote.
pub fn open(spec: &DiskSpec, options: OpenOptions) -> Result<(Disk, Facts), OpenError> {
    let name = spec.to_string();
    let mut facts = Facts { logical_block: 512, physical_block: BLOCK as u32, discard: true, ..Facts::default() };
    let medium = match spec {
        DiskSpec::Ram(size) | DiskSpec::Null(size) => {
            facts.size = usable(&name, *size, &mut facts.note)?;
            facts.direct = true;
            return match spec {
                DiskSpec::Ram(_) => Ok((Disk::ram(facts.size).map_err(|e| OpenError::Io(name, e))?, facts)),
                _ => Ok((Disk::null(facts.size), facts)),
            };
        }
        DiskSpec::Path(path) | DiskSpec::Model(_, path) => open_path(path, &name, options, &mut facts)?,
    };
    let mut disk = Disk::new(medium, facts.size);
    if let (DiskSpec::Model(model, _), false) = (spec, options.read_only) {
        let paced = pace::make(model, facts.size).map_err(|why| OpenError::Model(name, why))?;
        (facts.rotational, facts.class) = (paced.rotational, Some(paced.class));
        facts.note.push(format!("answers no sooner than model {} would", paced.name));
        facts.model = Some(format!("model {}", paced.name));
        disk.pace = Some(paced.pace);
    }
    Ok((disk, facts))
}

fn usable(name: &str, size: u64, note: &mut Vec<String>) -> Result<u64, OpenError> {
    let refuse = |why| Err(OpenError::Size(name.into(), size, why));
    if size == 0 {
        return refuse("there is nothing to store on");
    }
    if !size.is_multiple_of(SECTOR) {
        return refuse("not a multiple of 512, so this is not a whole disk or image");
    }
    if size > SIZE_MAX {
        return refuse("more than can be addressed");
    }
    let rounded = round_down(size, BLOCK);
    if rounded == 0 {
        return refuse("less than one block of 4096");
    }
    if rounded != size {
        note.push(format!("{name}: the last {} bytes are not used, blocks are 4096 bytes", size - rounded));
    }
    Ok(rounded)
}

fn open_path(path: &Path, name: &str, options: OpenOptions, facts: &mut Facts) -> Result<Medium, OpenError> {
    let io_error = |e: io::Error| match e.raw_os_error() {
        Some(libc::ENOENT) => OpenError::Missing(name.into()),
        Some(libc::EBUSY) => OpenError::Busy(
            name.into(),
            "it is mounted, or part of something like LVM or md, or another process has it",
        ),
        _ => OpenError::Io(name.into(), e),
    };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => Some(meta),
        Err(e) if e.kind() == io::ErrorKind::NotFound && options.create_size.is_some() => None,
        Err(e) => return Err(io_error(e)),
    };
    let block = meta.as_ref().is_some_and(|m| m.file_type().is_block_device());
    if let Some(kind) = meta.as_ref().map(|m| m.file_type()).filter(|kind| !block && !kind.is_file()) {
        let what = match () {
            () if kind.is_dir() => "a directory",
            () if kind.is_char_device() => "a character device",
            () if kind.is_socket() => "a socket",
            () if kind.is_fifo() => "a pipe",
            () => "something else",
        };
        return Err(OpenError::NotADisk(name.into(), what));
    }

    let access = if options.read_only { libc::O_RDONLY } else { libc::O_RDWR };
    let mut flags = access | libc::O_CLOEXEC | libc::O_NONBLOCK;
    if block && options.exclusive {
        flags |= libc::O_EXCL;
    }
    if meta.is_none() {
        flags |= libc::O_CREAT | libc::O_EXCL;
    }
    let fd = open_fd(path, flags).map_err(io_error)?;
    let file = File::from(fd);
    // What was looked at above may have been exchanged since.
    let meta = file.metadata().map_err(io_error)?;
    if meta.file_type().is_block_device() != block || !(block || meta.is_file()) {
        return Err(OpenError::NotADisk(name.into(), "changing while it is opened"));
    }
    if !block && options.exclusive {
        lock(&file).map_err(|e| match e.raw_os_error() {
            Some(libc::EWOULDBLOCK) => OpenError::Busy(name.into(), "another process has locked the file"),
            _ => io_error(e),
        })?;
    }
    if !block
        && meta.len() == 0
        && let Some(size) = options.create_size
    {
        // Refused sizes must not leave a file behind that looks like a disk.
        let size = usable(name, size, &mut Vec::new())?;
        file.set_len(size).map_err(io_error)?;
    }

    let bytes = end_of(&file).map_err(io_error)?;
    facts.size = usable(name, bytes, &mut facts.note)?;
    let dev = if block { meta.rdev() } else { meta.dev() };
    sysfs_facts(dev, block, facts);
    if block {
        facts.logical_block = ioctl_u32(&file, libc::BLKSSZGET).unwrap_or(512);
        facts.physical_block = ioctl_u32(&file, libc::BLKPBSZGET).unwrap_or(facts.logical_block);
        if u64::from(facts.logical_block) > BLOCK {
            return Err(OpenError::Sector(name.into(), facts.logical_block));
        }
    }
    if !block {
        facts.growth = growth(&file).ok().flatten();
    }
    if options.direct {
        facts.direct = set_direct(&file);
        if !facts.direct {
            facts.note.push(format!("{name}: no O_DIRECT on this filesystem, buffered"));
        }
    }
    Ok(if block { Medium::Block(file.into()) } else { Medium::File(file.into()) })
}

fn open_fd(path: &Path, flags: i32) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a C string that lives through the call; the result is checked before it is owned.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A lock goes with the last descriptor of its file, and a process that starts another one lends its descriptors to it
/// from fork to exec: what we closed ourselves a moment ago may still be locked for that long.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_millis(200);
    let began = Instant::now();
    loop {
        // SAFETY: flock only takes numbers.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        let taken = error.kind() == io::ErrorKind::WouldBlock;
        if error.kind() != io::ErrorKind::Interrupted && (!taken || began.elapsed() > PATIENCE) {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Nothing of a file that has all it needs.
fn growth(file: &File) -> io::Result<Option<Growth>> {
    // Sectors of 512 bytes, whatever the filesystem counts in.
    let meta = file.metadata()?;
    let bytes = meta.len().saturating_sub(meta.blocks() * 512);
    if bytes == 0 {
        return Ok(None);
    }
    // SAFETY: numbers only, for which zeros are values.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: it writes one statvfs.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut about) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    Ok(Some(Growth { filesystem: meta.dev(), bytes, free }))
}

fn end_of(mut file: &File) -> io::Result<u64> {
    io::Seek::seek(&mut file, io::SeekFrom::End(0))
}

fn ioctl_u32(file: &File, request: libc::Ioctl) -> Option<u32> {
    let mut value: libc::c_int = 0;
    // SAFETY: both requests in use write one int.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, &mut value) };
    (result == 0).then_some(value).and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0)
}

/// Switches to O_DIRECT and tries it: some filesystems accept the flag and refuse the read, or want more alignment
/// than a block.
fn set_direct(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: fcntl with these commands only takes numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_DIRECT) } != 0 {
        return false;
    }
    let mut block = AlignedBox::zeroed(BLOCK as usize);
    let refused = |e: io::Error| e.raw_os_error() == Some(libc::EINVAL);
    if file.read_at(&mut block, 0).is_err_and(refused) {
        // SAFETY: as above.
        unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_DIRECT) };
        return false;
    }
    true
}

/// `/sys/dev/block/MAJ:MIN`; partitions have their queue and identity in the parent directory.
fn sysfs_facts(dev: u64, block: bool, facts: &mut Facts) {
    let base = sysfs_dir(dev);
    let read = |name: &str| {
        [base.join(name), base.join("..").join(name)]
            .iter()
            .find_map(|path| std::fs::read_to_string(path).ok())
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    };
    facts.rotational = read("queue/rotational").is_some_and(|v| v == "1");
    if !block {
        return;
    }
    facts.discard = read("queue/discard_max_bytes").is_some_and(|v| v != "0");
    facts.serial = read("device/serial").or_else(|| read("serial"));
    facts.model = read("device/model");
    facts.diskseq = read("diskseq").and_then(|number| number.parse().ok());
}

pub(crate) fn sysfs_dir(dev: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", libc::major(dev), libc::minor(dev)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, want) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("512b", Some(512)),
            ("64M", Some(64 << 20)),
            ("64m", Some(64 << 20)),
            ("10GiB", Some(10 << 30)),
            ("10gib", Some(10 << 30)),
            ("500GB", Some(500_000_000_000)),
            ("1KB", Some(1000)),
            ("7T", Some(7 << 40)),
            ("7P", Some(7 << 50)),
            ("8191P", Some(8191 << 50)),
            ("8192P", None),
            ("99999999999999999999", None),
            ("", None),
            ("M", None),
            ("-1M", None),
            ("1.5G", None),
            ("1 G", None),
            ("1X", None),
            ("1GiBs", None),
            ("1é", None),
        ] {
            assert_eq!(parse_size(text).ok(), want, "{text:?}");
        }
    }

    #[test]
    fn specs() {
        let path = |p: &str| Some(DiskSpec::Path(p.into()));
        for (text, want) in [
            ("ram:64M", Some(DiskSpec::Ram(64 << 20))),
            ("null:1G", Some(DiskSpec::Null(1 << 30))),
            ("/dev/sdb", path("/dev/sdb")),
            ("./disk.img", path("./disk.img")),
            ("file:disk.img", path("disk.img")),
            ("./odd:name", path("./odd:name")),
            ("/dev/disk/by-path/pci-0000:00:1f.2", path("/dev/disk/by-path/pci-0000:00:1f.2")),
            ("sdb", None),
            ("", None),
            ("file:", None),
            ("model:hdd,./a", Some(DiskSpec::Model("hdd".into(), "./a".into()))),
            ("model:/m.toml,/dev/sdb", Some(DiskSpec::Model("/m.toml".into(), "/dev/sdb".into()))),
            ("model:hdd", None),
            ("model:,/a", None),
            ("model:hdd,a", None),
            ("ram:", None),
            ("ram:lots", None),
            ("nvme:1", None),
        ] {
            let got = DiskSpec::parse(text);
            assert_eq!(got.as_ref().ok(), want.as_ref(), "{text:?}: {got:?}");
        }
        assert_eq!(DiskSpec::parse("sdb").unwrap_err().to_string(), "\"sdb\" is no path; write /dev/sdb or ./sdb");
    }

    #[test]
    fn devices_of_zero_or_odd_size_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (size, says) in [
            (0, "nothing to store on"),
            (1, "not a multiple of 512"),
            (4097, "not a multiple of 512"),
            (512, "less than one block"),
            (3584, "less than one block"),
        ] {
            let path = dir.path().join(format!("{size}.img"));
            File::create(&path).unwrap().set_len(size).unwrap();
            for spec in [DiskSpec::Path(path), DiskSpec::Ram(size), DiskSpec::Null(size)] {
                let error = open(&spec, OpenOptions::default()).unwrap_err().to_string();
                assert!(error.contains(says), "{error}");
            }
        }
        let path = dir.path().join("new.img");
        let create = OpenOptions { create_size: Some(1 << 20), ..OpenOptions::default() };
        let (disk, facts) = open(&DiskSpec::Path(path.clone()), create).unwrap();
        assert_eq!((disk.size(), facts.size), (1 << 20, 1 << 20));
        let error = open(&DiskSpec::Path(path), create).unwrap_err().to_string();
        assert!(error.contains("in use: another process has locked the file"), "{error}");
        let (disk, facts) = open(&DiskSpec::Ram(4096 + 512), OpenOptions::default()).unwrap();
        assert_eq!((disk.size(), facts.note.len()), (4096, 1), "{facts:?}");
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        for (path, says) in [
            ("/dev/null", "a character device"),
            ("/tmp", "a directory"),
            ("/no/such/disk", "/no/such/disk: no such disk or file"),
        ] {
            let error = open(&DiskSpec::Path(path.into()), OpenOptions::default()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn faults_are_named_by_operation() {
        let handle = FaultHandle::default();
        for fault in [Fault::None, Fault::Gone, Fault::ReadError, Fault::WriteError, Fault::DelayMs(u32::MAX)] {
            handle.set(fault);
            assert_eq!(handle.get(), fault);
        }
        handle.set(Fault::WriteError);
        assert_eq!(handle.error(DeviceOp::Read), None);
        assert_eq!(handle.error(DeviceOp::Flush), Some(IoError::Media));
    }
}
