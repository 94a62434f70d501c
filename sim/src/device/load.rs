//! A client that keeps a number of commands under way on one device: what fio calls a job, and all that data sheets and
//! measurements speak of.

use std::collections::BTreeMap;

use braid_core::request::DeviceOp;

use super::numbers::SECOND;
use super::{Command, Timing};
use crate::rng::Rng;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Read or write.
    pub op: DeviceOp,
    /// Commands under way, always.
    pub depth: u32,
    /// Bytes of each.
    pub len: u64,
    /// First byte of where they lie.
    pub from: u64,
    /// End of it.
    pub to: u64,
    /// Anywhere, or one behind the other.
    pub random: bool,
}

/// What it got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// Commands a second.
    pub per_second: u64,
    /// KiB a second.
    pub kib_per_second: u64,
    /// Mean time of a command.
    pub mean_ns: u64,
    /// Half took no longer.
    pub p50_ns: u64,
    /// 99 in a hundred took no longer.
    pub p99_ns: u64,
    /// 999 in a thousand took no longer.
    pub p999_ns: u64,
    /// Sum of times over the length of the run, in hundredths: by Little's law the depth.
    pub mean_depth_percent: u64,
}

impl Load {
    /// Runs for so many ns of virtual time, or a little longer, on a device where nothing is under way.
    pub fn run(&self, timing: &mut Timing, ns: u64) -> Got {
        let (mut rng, mut next, mut now) = (Rng::new(7), self.from, 0);
        let mut began = BTreeMap::new();
        let blocks = ((self.to - self.from) / self.len).max(1);
        let mut send = |timing: &mut Timing, began: &mut BTreeMap<u32, u64>, now, id| {
            let offset = if self.random { self.from + rng.below(blocks) * self.len } else { next };
            next = if next + 2 * self.len > self.to { self.from } else { next + self.len };
            began.insert(id, now);
            timing.arrive(now, Command { id, op: self.op, offset, len: self.len });
        };
        (0..self.depth).for_each(|id| send(timing, &mut began, 0, id));
        let mut times = Vec::new();
        while now < ns
            && let Some(at) = timing.next_event()
        {
            now = at;
            while let Some(id) = timing.complete(now) {
                times.extend(began.remove(&id).map(|since| now - since));
                send(timing, &mut began, now, id);
            }
        }
        self.summary(&mut times, now)
    }

    /// Of the times of commands within so many ns.
    pub fn summary(&self, times: &mut [u64], ns: u64) -> Got {
        times.sort_unstable();
        let (count, total): (u64, u64) = (times.len() as u64, times.iter().sum());
        let rate = |amount: u64| (u128::from(amount) * u128::from(SECOND) / u128::from(ns.max(1))) as u64;
        let quantile =
            |n: u64| times.get(((count * n).div_ceil(1000) as usize).saturating_sub(1)).copied().unwrap_or(0);
        Got {
            per_second: rate(count),
            kib_per_second: rate(count * self.len / 1024),
            mean_ns: total / count.max(1),
            p50_ns: quantile(500),
            p99_ns: quantile(990),
            p999_ns: quantile(999),
            mean_depth_percent: (u128::from(total) * 100 / u128::from(ns.max(1))) as u64,
        }
    }
}
