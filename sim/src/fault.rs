//! What can go wrong with a disk.

use braid_core::request::{DeviceOp, IoError};

use crate::rng::Rng;

/// A fault of one device.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which, by id.
    pub device: u32,
    /// What.
    pub trouble: Trouble,
}

/// Kinds of trouble.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// Commands of these kinds that touch the range fail, some of them, for a while.
    Error {
        /// Reads.
        read: bool,
        /// Writes, zeroes and discards; some sectors of a failed write arrive all the same.
        write: bool,
        /// Flushes; nothing is lost by it.
        flush: bool,
        /// First byte.
        from: u64,
        /// End.
        to: u64,
        /// How many in a hundred.
        percent: u64,
        /// Failures left.
        left: u64,
    },
    /// It is not there from this moment on; what was under way may have arrived.
    Absent {
        /// In ns.
        since: u64,
    },
    /// Everything takes so many times longer in a window.
    Slow {
        /// In ns.
        since: u64,
        /// In ns.
        until: u64,
        /// So many times.
        factor: u64,
    },
}

/// Faults in force.
#[derive(Clone, Debug, Default)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// How a command will fail, if it does.
    pub fn strike(&mut self, device: u32, op: DeviceOp, offset: u64, len: u64, rng: &mut Rng) -> Option<IoError> {
        for fault in self.0.iter_mut().filter(|f| f.device == device) {
            let Trouble::Error { read, write, flush, from, to, percent, left } = &mut fault.trouble else { continue };
            let meant = match op {
                DeviceOp::Read => *read,
                DeviceOp::Write { .. } | DeviceOp::WriteZeroes | DeviceOp::Discard => *write,
                DeviceOp::Flush => *flush,
            };
            let there = op == DeviceOp::Flush || offset < *to && *from < offset + len;
            if meant && there && *left > 0 && rng.percent(*percent) {
                *left -= 1;
                return Some(IoError::Media);
            }
        }
        None
    }

    /// Whether the device is there at this moment.
    pub fn is_absent(&self, device: u32, now: u64) -> bool {
        let gone = |f: &Fault| f.device == device && matches!(f.trouble, Trouble::Absent { since } if now >= since);
        self.0.iter().any(gone)
    }

    /// How many times slower it is at this moment.
    pub fn factor(&self, device: u32, now: u64) -> u64 {
        let factor = |f: &Fault| match f.trouble {
            Trouble::Slow { since, until, factor } if f.device == device && (since..until).contains(&now) => factor,
            _ => 1,
        };
        self.0.iter().map(factor).product()
    }
}
