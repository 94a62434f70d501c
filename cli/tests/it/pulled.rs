//! Disks that are pulled while they are open, as the kernel shows that: loop devices that lose their size. What they held is kept.

use crate::real::Real;
use crate::tools::{Need, sh};
use std::fs::File;
use std::os::fd::AsRawFd;

/// What they need.
pub(crate) const LOOPS: [Need; 3] = [Need::Root, Need::Node("/dev/loop-control"), Need::Tool("losetup")];

const LOOP_SET_STATUS64: libc::Ioctl = 0x4c04;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
/// Of `struct loop_info64` in <linux/loop.h>, and of its `lo_offset`.
const INFO: usize = 232;
const OFFSET: std::ops::Range<usize> = 24..32;

/// A loop device over a sparse file, until it is dropped.
pub(crate) struct LoopDisk(String);

impl LoopDisk {
    pub(crate) fn new(real: &Real, name: &str, bytes: u64) -> LoopDisk {
        let file = real.disk(name, bytes);
        LoopDisk(sh(&format!("losetup -f --show {file}")).trim().into())
    }

    pub(crate) fn path(&self) -> &str {
        &self.0
    }

    pub(crate) fn pull(&self) {
        self.begin_at(i64::MAX as u64 & !4095);
    }

    pub(crate) fn plug_in(&self) {
        self.begin_at(0);
    }

    /// It begins at this byte of its file: behind the end it has no size.
    fn begin_at(&self, byte: u64) {
        let device = File::open(&self.0).expect("a loop device");
        let mut info = [0u8; INFO];
        let mut call = |request, change: &dyn Fn(&mut [u8; INFO])| {
            change(&mut info);
            // SAFETY: both requests read or write one loop_info64.
            let result = unsafe { libc::ioctl(device.as_raw_fd(), request, info.as_mut_ptr()) };
            assert_eq!(result, 0, "{}: {}", self.0, std::io::Error::last_os_error());
        };
        call(LOOP_GET_STATUS64, &|_| ());
        call(LOOP_SET_STATUS64, &|info| info[OFFSET].copy_from_slice(&byte.to_le_bytes()));
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // The daemon may have it open still, when a test fails: it goes when that ends.
        crate::real::shell(&format!("losetup -d {}", self.0));
    }
}
