//! Is somebody else's data on this disk, or is it in use?
//!
//! ```text
//!   0          512 KiB                                    size - 1 MiB      size
//!   |-- head --|------------------ not looked at ---------------|-- tail --|
//!    boot sectors, ext, xfs, btrfs, LVM, LUKS, swap,            md 0.90 and 1.0, GPT backup, ZFS labels 2 and 3
//!    GPT, ZFS labels 0 and 1
//! ```
//!
//! A magic number in its place is a finding; nothing is parsed further and nothing found here is trusted. A wrong "yes" costs
//! the user a `--force`, a wrong "no" costs the data. What this does *not* see: filesystems without a magic number,
//! data inside of partitions of an unknown table, and raw data of databases.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Disk, Medium, sysfs_dir};
use braid_core::units::{BLOCK, round_down};

/// Enough for everything that begins at the start; the farthest is the second label of ZFS.
const HEAD: usize = 2 * ZFS_LABEL;
/// Enough for everything that lies at the end: two ZFS labels of 256 KiB, md, GPT.
const TAIL: u64 = 1 << 20;
/// Uberblocks of ZFS begin there in each label of 256 KiB, one at least each 1 KiB.
const ZFS_UBERBLOCKS: usize = 128 << 10;
const ZFS_LABEL: usize = 256 << 10;
const ZFS_MAGIC: u64 = 0x00ba_b10c;
const MD_MAGIC: u32 = 0xa92b_4efc;

/// One reason to keep off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// "an ext2/3/4 filesystem", "mounted on /srv".
    pub what: String,
    /// Where it was seen: an offset on the disk, or a file of the kernel.
    pub place: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.place)
    }
}

/// Everything that speaks against using the disk; empty for a blank one. Errors of reading are errors: a disk that
/// could not be looked at is not blank.
pub fn probe(disk: &Disk) -> io::Result<Vec<Finding>> {
    let mut found = Vec::new();
    let size = disk.size();
    let head = disk.read_blocks(0, HEAD)?;
    scan_head(&head, &mut found);
    let tail_at = round_down(size.saturating_sub(TAIL), BLOCK);
    let tail = disk.read_blocks(tail_at, (size - tail_at) as usize)?;
    scan_tail(&tail, tail_at, &mut found);
    if let Medium::Block(fd) | Medium::File(fd) = &disk.medium {
        let meta = File::from(fd.as_fd().try_clone_to_owned()?).metadata()?;
        in_use(&meta, disk.is_block(), &mut found);
    }
    Ok(found)
}

fn holds(bytes: &[u8], at: usize, magic: &[u8]) -> bool {
    at.checked_add(magic.len()).and_then(|end| bytes.get(at..end)) == Some(magic)
}

fn le<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Offset, bytes, name.
const HEAD_MAGICS: &[(usize, &[u8], &str)] = &[
    (0, b"XFSB", "an XFS filesystem"),
    (0, b"LUKS\xba\xbe", "a LUKS encrypted volume"),
    (0x4000, b"SKUL\xba\xbe", "a LUKS2 encrypted volume (second header)"),
    (1080, &[0x53, 0xef], "an ext2/3/4 filesystem"),
    (0x10040, b"_BHRfS_M", "a btrfs filesystem"),
    (4096 + 24, &BCACHEFS, "a bcachefs filesystem"),
    (4096 + 24, &BCACHE, "a bcache device"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (3, b"EXFAT   ", "an exFAT filesystem"),
    (3, b"-FVE-FS-", "a BitLocker volume"),
    (54, b"FAT", "a FAT filesystem"),
    (82, b"FAT32   ", "a FAT filesystem"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (16374, b"SWAPSPACE2", "swap space"),
    (65526, b"SWAPSPACE2", "swap space"),
    (0, &MD_LE, "a member of an md array (1.1)"),
    (4096, &MD_LE, "a member of an md array (1.2)"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "an f2fs filesystem"),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS filesystem"),
    (0x10034, b"ReIsEr", "a reiserfs filesystem"),
    (0x8001, b"CD001", "an ISO 9660 filesystem"),
    (0x10000, &[0x10, 0x19, 0x16, 0x01], "a GFS2 filesystem"),
    (32, b"JFS1", "a JFS filesystem"),
    (0x8000, b"JFS1", "a JFS filesystem"),
    (0, b"hsqs", "a squashfs image"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"bluestore block device", "a Ceph OSD"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table (4 KiB sectors)"),
];

const MD_LE: [u8; 4] = MD_MAGIC.to_le_bytes();
const BCACHE: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
const BCACHEFS: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];

fn scan_head(head: &[u8], found: &mut Vec<Finding>) {
    let mut add = |what: &str, at: usize| {
        let new = Finding { what: what.into(), place: format!("at offset {at}") };
        if !found.iter().any(|f| f.what == new.what) {
            found.push(new);
        }
    };
    for (at, magic, what) in HEAD_MAGICS {
        if holds(head, *at, magic) {
            add(what, *at);
        }
    }
    // The label of LVM may stand in any of the first four sectors.
    for at in (0..2048).step_by(512) {
        if holds(head, at, b"LABELONE") {
            add("an LVM physical volume", at);
        }
    }
    // A boot sector that is no FAT or NTFS: a partition table if an entry has a type.
    if holds(head, 510, &[0x55, 0xaa]) && (0..4).any(|i| head.get(446 + 16 * i + 4).is_some_and(|kind| *kind != 0)) {
        add("an MBR partition table", 510);
    }
    for label in [0, ZFS_LABEL] {
        if let Some(at) = zfs_label(head, label) {
            add("a member of a ZFS pool", at);
        }
    }
}

fn zfs_label(bytes: &[u8], label: usize) -> Option<usize> {
    (label + ZFS_UBERBLOCKS..label + ZFS_LABEL).step_by(1024).find(|at| {
        le::<8>(bytes, *at).is_some_and(|m| u64::from_le_bytes(m) == ZFS_MAGIC || u64::from_be_bytes(m) == ZFS_MAGIC)
    })
}

/// `at` is where the tail begins on the disk, `at + tail.len()` its end.
fn scan_tail(tail: &[u8], at: u64, found: &mut Vec<Finding>) {
    let size = at + tail.len() as u64;
    let mut check = |place: u64, magic: &[u8], what: &str| {
        let Some(index) = place.checked_sub(at).and_then(|i| usize::try_from(i).ok()) else { return };
        if holds(tail, index, magic) && !found.iter().any(|f| f.what == what) {
            found.push(Finding { what: what.into(), place: format!("at offset {place}") });
        }
    };
    // 0.90: the last whole 64 KiB but one; 1.0: 8 KiB before the end, rounded down to 4 KiB.
    if size >= 128 << 10 {
        let old = round_down(size, 64 << 10) - (64 << 10);
        check(old, &MD_LE, "a member of an md array (0.90)");
        check(old, &MD_MAGIC.to_be_bytes(), "a member of an md array (0.90)");
    }
    check(round_down(size.saturating_sub(8 << 10), 4 << 10), &MD_LE, "a member of an md array (1.0)");
    check(size.saturating_sub(512), b"EFI PART", "the backup of a GPT partition table");
    check(size.saturating_sub(4096), b"EFI PART", "the backup of a GPT partition table");
    // ZFS rounds the size down to a whole label first.
    let end = round_down(size, ZFS_LABEL as u64);
    for label in [end.checked_sub(2 * ZFS_LABEL as u64), end.checked_sub(ZFS_LABEL as u64)].into_iter().flatten() {
        let Some(index) = label.checked_sub(at).and_then(|i| usize::try_from(i).ok()) else { continue };
        let what = "a member of a ZFS pool";
        if let Some(place) = zfs_label(tail, index)
            && !found.iter().any(|f| f.what == what)
        {
            found.push(Finding { what: what.into(), place: format!("at offset {}", at + place as u64) });
        }
    }
}

/// What the kernel says about a device and its partitions, or about a file: mounts, swaps, holders, loop devices.
fn in_use(meta: &std::fs::Metadata, block: bool, found: &mut Vec<Finding>) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    if block {
        let devices = with_partitions(meta.rdev());
        for dev in &devices {
            for holder in std::fs::read_dir(sysfs_dir(*dev).join("holders")).into_iter().flatten().flatten() {
                found.push(Finding {
                    what: format!("used by {}", holder.file_name().display()),
                    place: format!("{}/holders", sysfs_dir(*dev).display()),
                });
            }
        }
        mounts(&read("/proc/self/mountinfo"), &devices, found);
    }
    let same = |path: &str| {
        std::fs::metadata(path).is_ok_and(|other| match block {
            true => other.rdev() == meta.rdev(),
            false => (other.dev(), other.ino()) == (meta.dev(), meta.ino()),
        })
    };
    // First line is a heading.
    for path in read("/proc/swaps").lines().skip(1).filter_map(|l| l.split_whitespace().next()) {
        if same(&unescape(path)) {
            found.push(Finding { what: format!("swap space in use as {path}"), place: "/proc/swaps".into() });
        }
    }
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = entry.path().join("loop/backing_file");
        if let Ok(backing) = std::fs::read_to_string(&file)
            && same(backing.trim_end_matches('\n'))
        {
            let what = format!("behind the loop device /dev/{}", entry.file_name().display());
            found.push(Finding { what, place: file.display().to_string() });
        }
    }
}

fn with_partitions(dev: u64) -> Vec<u64> {
    let mut all = vec![dev];
    for entry in std::fs::read_dir(sysfs_dir(dev)).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists()
            && let Ok(text) = std::fs::read_to_string(entry.path().join("dev"))
        {
            all.extend(parse_dev(text.trim()));
        }
    }
    all
}

fn parse_dev(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// By device number, and by name for filesystems that show a number of their own (btrfs).
fn mounts(table: &str, devices: &[u64], found: &mut Vec<Finding>) {
    for line in table.lines() {
        let mut fields = line.split(' ');
        let (dev, place) = (fields.nth(2).and_then(parse_dev), fields.nth(1).unwrap_or_default());
        let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1)).unwrap_or_default();
        let by_name = || {
            let is_path = source.starts_with('/');
            is_path
                && std::fs::metadata(Path::new(&unescape(source)))
                    .is_ok_and(|m| m.rdev() != 0 && devices.contains(&m.rdev()))
        };
        if dev.is_some_and(|dev| devices.contains(&dev)) || by_name() {
            let what = format!("mounted on {}", unescape(place));
            found.push(Finding { what, place: "/proc/self/mountinfo".into() });
        }
    }
}

/// The kernel writes blanks and the like as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        match (first, rest) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                bytes = after;
            }
            _ => {
                out.push(*first);
                bytes = rest;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{DiskSpec, OpenOptions, open};
    use super::*;
    use std::os::unix::fs::FileExt;

    const SIZE: u64 = 16 << 20;

    fn found_with(size: u64, writes: &[(u64, &[u8])]) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        for (at, bytes) in writes {
            file.as_file().write_all_at(bytes, *at).unwrap();
        }
        let (disk, _) = open(&DiskSpec::Path(file.path().into()), OpenOptions::default()).unwrap();
        probe(&disk).unwrap().into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_blank_disk_has_nothing_on_it() {
        for size in [4096, 8192, 65536, 128 << 10, 1 << 20, SIZE, SIZE + 4096] {
            assert_eq!(found_with(size, &[]), Vec::<String>::new(), "{size}");
        }
        assert_eq!(probe(&Disk::null(1 << 40)).unwrap(), []);
        assert_eq!(probe(&Disk::ram(1 << 20).unwrap()).unwrap(), []);
    }

    #[test]
    fn each_signature_is_found_in_its_place() {
        for (at, magic, what) in HEAD_MAGICS {
            let found = found_with(SIZE, &[(*at as u64, magic)]);
            assert!(found.iter().any(|f| f == what), "{what}: {found:?}");
        }
        let md = MD_LE.as_slice();
        let zfs = ZFS_MAGIC.to_le_bytes();
        let mbr = [(450, &[0x83u8] as &[u8]), (510, &[0x55, 0xaa])];
        for (writes, what) in [
            (&mbr[..], "an MBR partition table"),
            (&[(1536, b"LABELONE" as &[u8])], "an LVM physical volume"),
            (&[(SIZE - 8192, md)], "a member of an md array (1.0)"),
            (&[(SIZE - 65536, md)], "a member of an md array (0.90)"),
            (&[(SIZE - 512, b"EFI PART")], "the backup of a GPT partition table"),
            (&[(SIZE - 4096, b"EFI PART")], "the backup of a GPT partition table"),
            (&[(128 << 10, &zfs)], "a member of a ZFS pool"),
            (&[(SIZE - (128 << 10), &zfs)], "a member of a ZFS pool"),
            (&[(SIZE - (384 << 10) + 5 * 1024, &zfs)], "a member of a ZFS pool"),
        ] {
            assert_eq!(found_with(SIZE, writes), [what], "{writes:?}");
        }
        assert!(found_with(SIZE, &[(510, &[0x55, 0xaa])]).is_empty(), "a boot sector without partitions");
    }

    #[test]
    fn what_tools_write_is_found() {
        for (tool, args, what) in [
            ("mkfs.ext4", &["-q", "-F"] as &[&str], "an ext2/3/4 filesystem"),
            ("mkswap", &[], "swap space"),
            ("mkfs.xfs", &["-q", "-f"], "an XFS filesystem"),
            ("mkfs.btrfs", &["-q", "-f"], "a btrfs filesystem"),
            ("mkfs.vfat", &[], "a FAT filesystem"),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(512 << 20).unwrap();
            let path = format!("/usr/sbin:/sbin:{}", std::env::var("PATH").unwrap_or_default());
            let run = std::process::Command::new(tool)
                .args(args)
                .arg(file.path())
                .env("PATH", path)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .status();
            match run {
                Err(_) => eprintln!("not tested: {tool} is not installed"),
                Ok(status) => {
                    assert!(status.success(), "{tool}");
                    let (disk, _) = open(&DiskSpec::Path(file.path().into()), OpenOptions::default()).unwrap();
                    let found = probe(&disk).unwrap();
                    assert!(found.iter().any(|f| f.what == what), "{tool}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn mounts_are_found_by_number() {
        let table =
            "27 1 8:17 / /srv/with\\040blank rw - ext4 /dev/none rw\n28 1 0:30 / /tmp rw - tmpfs tmpfs rw\nodd\n";
        let mut found = Vec::new();
        mounts(table, &[libc::makedev(8, 17)], &mut found);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].to_string(), "mounted on /srv/with blank (/proc/self/mountinfo)");
    }

    #[test]
    fn any_content_is_survived() {
        let mut seed = 1u64;
        for len in (0..2000usize).chain([4096, 65536, 1 << 20]) {
            let bytes: Vec<u8> = (0..len)
                .map(|_| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (seed >> 56) as u8
                })
                .collect();
            scan_head(&bytes, &mut Vec::new());
            scan_tail(&bytes, seed % (1 << 50), &mut Vec::new());
            mounts(&String::from_utf8_lossy(&bytes), &[1], &mut Vec::new());
        }
    }
}
