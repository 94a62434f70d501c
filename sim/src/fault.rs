//! What can go wrong with a disk.
//!
//! | trouble | a command | what stays behind |
//! |---|---|---|
//! | `Error` | fails, some of them, for a while | some sectors of a failed write, or none, or all |
//! | `Torn` | a write fails | some of its sectors |
//! | `CacheLost` | a flush fails, some of them | of what it should have covered, what chance leaves, as after a power cut |
//! | `Latent` | reads of the range fail until it is written again | as it was |
//! | `Flipped` | succeeds | one bit of some blocks is another, once |
//! | `Misread` | a read succeeds, some of them | as it was; one bit of what arrived is another |
//! | `Misdirected` | a write succeeds | its content elsewhere on the device, nothing at its own place |
//! | `Lost` | a write of the range succeeds | as it was |
//! | `Slow` | takes so many times longer | as it was |
//! | `Stuck` | is not answered before the end: then late, with an error, or never | as it was |
//! | `Absent` | fails from a moment on | as it was |
//! | `Pulled` | as absent; an opening of the pool after its return finds it again | the write cache is lost |
//!
//! A write that is misdirected or lost, or a bit that changes, is not noticed until somebody reads or scrubs. Where content has no checksums,
//! or they cannot be relied on since a run ended unclean, the [oracle](crate::oracle) is told which sectors were spoilt and
//! lets them be wrong until they are written again.
//!
//! Left out: writes that are changed on the bus, a device that reports another size, firmware that lies about flushes.

use core::ops::Range;

use braid_core::request::{DeviceOp, IoError};
use serde::{Deserialize, Serialize};

use crate::disk::BLOCK;
use crate::rng::Rng;

/// A fault of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Which, by id.
    pub device: u32,
    /// What.
    pub trouble: Trouble,
}

/// How a stuck device ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ends {
    /// It answers after all.
    Late,
    /// The driver gives up, and the device is gone.
    Gone,
    /// Nobody ever hears of it again.
    Never,
}

/// Kinds of trouble.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Writes fail half way: some of the sectors are new, some old, by chance.
    Torn {
        /// How many in a hundred.
        percent: u64,
        /// Failures left.
        left: u64,
    },
    /// Flushes fail, and what stood in the write cache is gone, as with a file whose dirty pages are dropped after an error.
    CacheLost {
        /// How many in a hundred.
        percent: u64,
        /// Failures left.
        left: u64,
    },
    /// A range that cannot be read until it is written again.
    Latent {
        /// In ns.
        since: u64,
        /// First byte.
        from: u64,
        /// End.
        to: u64,
    },
    /// In some of what stands in a range a bit changes, and nobody is told.
    Flipped {
        /// In ns.
        since: u64,
        /// First byte.
        from: u64,
        /// End.
        to: u64,
        /// How many blocks in a thousand.
        per_mille: u64,
    },
    /// Reads give something else than what stands there: a cable, a controller, memory.
    Misread {
        /// How many in a hundred.
        percent: u64,
        /// So many more.
        left: u64,
    },
    /// Writes land elsewhere.
    Misdirected {
        /// How many in a hundred.
        percent: u64,
        /// So many more.
        left: u64,
    },
    /// Writes to a range are answered and leave nothing.
    Lost {
        /// First byte.
        from: u64,
        /// End.
        to: u64,
        /// So many more.
        left: u64,
    },
    /// It is not there from this moment on; what was under way may have arrived.
    Absent {
        /// In ns.
        since: u64,
    },
    /// It was pulled, and is plugged in again. Whoever had it open does not get it back.
    Pulled {
        /// In ns.
        since: u64,
        /// In ns.
        until: u64,
    },
    /// Nothing is answered in a window.
    Stuck {
        /// In ns.
        since: u64,
        /// In ns.
        until: u64,
        /// What then.
        ends: Ends,
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

impl Trouble {
    /// So many reads of these bytes fail, from the first on.
    pub fn reads_fail(bytes: Range<u64>, left: u64) -> Trouble {
        let Range { start: from, end: to } = bytes;
        Trouble::Error { read: true, write: false, flush: false, from, to, percent: 100, left }
    }

    /// So many writes to these bytes fail, from the first on.
    pub fn writes_fail(bytes: Range<u64>, left: u64) -> Trouble {
        let Range { start: from, end: to } = bytes;
        Trouble::Error { read: false, write: true, flush: false, from, to, percent: 100, left }
    }

    /// Costs time and nothing else.
    pub fn only_delays(&self) -> bool {
        matches!(self, Trouble::Slow { .. } | Trouble::Stuck { ends: Ends::Late, .. })
    }

    /// The same, so much later.
    pub fn later(mut self, ns: u64) -> Trouble {
        match &mut self {
            Trouble::Error { .. }
            | Trouble::Torn { .. }
            | Trouble::Misread { .. }
            | Trouble::Misdirected { .. }
            | Trouble::Lost { .. }
            | Trouble::CacheLost { .. } => {}
            Trouble::Latent { since, .. } | Trouble::Flipped { since, .. } => *since += ns,
            Trouble::Absent { since } => *since += ns,
            Trouble::Pulled { since, until }
            | Trouble::Stuck { since, until, .. }
            | Trouble::Slow { since, until, .. } => {
                (*since, *until) = (*since + ns, *until + ns);
            }
        }
        self
    }
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// It fails, and a write may have arrived in part.
    Fails(IoError),
    /// It fails, and a write arrived in part.
    Tears,
    /// A flush fails, and the write cache is lost.
    Forgets,
    /// It lands at this byte.
    LandsAt(u64),
    /// It is answered, and leaves nothing.
    Vanishes,
    /// A bit of what a read gives is another.
    Misreads,
}

impl Strike {
    /// Whether the device says that all went well.
    pub fn is_silent(self) -> bool {
        matches!(self, Strike::LandsAt(_) | Strike::Vanishes | Strike::Misreads)
    }
}

/// Faults in force.
#[derive(Clone, Debug, Default)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// How a command that a device of `size` bytes gets will go wrong, if it does.
    pub fn strike(
        &mut self,
        device: u32,
        op: DeviceOp,
        (offset, len): (u64, u64),
        size: u64,
        rng: &mut Rng,
    ) -> Option<Strike> {
        let changes = matches!(op, DeviceOp::Write { .. } | DeviceOp::WriteZeroes);
        for fault in self.0.iter_mut().filter(|f| f.device == device) {
            match &mut fault.trouble {
                Trouble::Error { read, write, flush, from, to, percent, left } => {
                    let meant = match op {
                        DeviceOp::Read => *read,
                        DeviceOp::Write { .. } | DeviceOp::WriteZeroes | DeviceOp::Discard => *write,
                        DeviceOp::Flush => *flush,
                    };
                    let there = op == DeviceOp::Flush || offset < *to && *from < offset + len;
                    if meant && there && *left > 0 && rng.percent(*percent) {
                        *left -= 1;
                        return Some(Strike::Fails(IoError::Media));
                    }
                }
                Trouble::Torn { percent, left } if changes && *left > 0 && rng.percent(*percent) => {
                    *left -= 1;
                    return Some(Strike::Tears);
                }
                Trouble::CacheLost { percent, left } if op == DeviceOp::Flush && *left > 0 && rng.percent(*percent) => {
                    *left -= 1;
                    return Some(Strike::Forgets);
                }
                Trouble::Misread { percent, left } if op == DeviceOp::Read && *left > 0 && rng.percent(*percent) => {
                    *left -= 1;
                    return Some(Strike::Misreads);
                }
                Trouble::Lost { from, to, left }
                    if matches!(op, DeviceOp::Write { .. }) && *left > 0 && offset < *to && *from < offset + len =>
                {
                    *left -= 1;
                    return Some(Strike::Vanishes);
                }
                Trouble::Misdirected { percent, left }
                    if matches!(op, DeviceOp::Write { .. }) && *left > 0 && rng.percent(*percent) =>
                {
                    *left -= 1;
                    return landing(offset, len, size, rng).map(Strike::LandsAt);
                }
                _ => {}
            }
        }
        None
    }

    /// Whether the device is out of reach at this moment, for somebody who holds it open.
    pub fn is_absent(&self, device: u32, now: u64) -> bool {
        self.any(device, |t| match *t {
            Trouble::Absent { since } | Trouble::Pulled { since, .. } => now >= since,
            Trouble::Stuck { until, ends: Ends::Gone, .. } => now >= until,
            _ => false,
        })
    }

    /// Whether somebody who looks for it at this moment finds it.
    pub fn is_found(&self, device: u32, now: u64) -> bool {
        !self.any(device, |t| match *t {
            Trouble::Absent { since } => now >= since,
            Trouble::Pulled { since, until } => (since..until).contains(&now),
            Trouble::Stuck { since, ends: Ends::Never, .. } => now >= since,
            _ => false,
        })
    }

    /// Until when nothing is answered; `u64::MAX` for ever.
    pub fn stuck_until(&self, device: u32, now: u64) -> Option<u64> {
        let end = |f: &Fault| match f.trouble {
            Trouble::Stuck { since, ends: Ends::Never, .. } if f.device == device && now >= since => Some(u64::MAX),
            Trouble::Stuck { since, until, .. } if f.device == device && (since..until).contains(&now) => Some(until),
            _ => None,
        };
        self.0.iter().filter_map(end).max()
    }

    /// Whether some device will never answer again.
    pub fn any_stuck_for_ever(&self, now: u64) -> bool {
        self.0.iter().any(|f| self.stuck_until(f.device, now) == Some(u64::MAX))
    }

    /// Whether some device was pulled and lost its write cache.
    pub fn any_pulled(&self, now: u64) -> bool {
        self.0.iter().any(|f| matches!(f.trouble, Trouble::Pulled { since, .. } if since <= now))
    }

    /// Whether what a read gives may be something else than what stands there.
    pub fn any_misreads(&self) -> bool {
        self.0.iter().any(|f| matches!(f.trouble, Trouble::Misread { .. }))
    }

    /// How many times slower it is at this moment.
    pub fn factor(&self, device: u32, now: u64) -> u64 {
        let factor = |f: &Fault| match f.trouble {
            Trouble::Slow { since, until, factor } if f.device == device && (since..until).contains(&now) => factor,
            _ => 1,
        };
        self.0.iter().map(factor).product()
    }

    fn any(&self, device: u32, is: impl Fn(&Trouble) -> bool) -> bool {
        self.0.iter().any(|f| f.device == device && is(&f.trouble))
    }
}

/// Where a misdirected write goes: half of them to a neighbour, where something is.
fn landing(offset: u64, len: u64, size: u64, rng: &mut Rng) -> Option<u64> {
    let last = size.checked_sub(len)? / BLOCK;
    let at = match rng.percent(50) {
        true => (offset / BLOCK + rng.between(1, 32)).min(last),
        false => rng.below(last + 1),
    };
    (at * BLOCK != offset).then_some(at * BLOCK)
}
