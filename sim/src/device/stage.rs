//! What devices are made of: stages that commands pass one at a time, and the time a step really takes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::numbers::{SECOND, numbers};
use crate::rng::Rng;

/// Bytes in KiB, rounded up, as prices are given.
pub(super) fn kib(len: u64) -> u64 {
    len.div_ceil(1024)
}

/// One thing at a time, in order of arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stage {
    free_at: u64,
}

impl Stage {
    /// When something that comes now and takes `ns` is through.
    pub(super) fn pass(&mut self, now: u64, ns: u64) -> u64 {
        self.free_at = self.free_at.max(now) + ns;
        self.free_at
    }

    /// When somebody who comes later would begin.
    pub(super) fn free_at(&self) -> u64 {
        self.free_at
    }
}

/// How service times scatter: evenly around the mean, and one in many takes much longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scatter {
    pub(super) spread_percent: u64,
    pub(super) tail_one_in: u64,
    pub(super) tail_times: u64,
}

impl Scatter {
    /// A drawing; the mean is `ns`, but for the tail.
    pub(super) fn draw(&self, ns: u64, rng: &mut Rng) -> u64 {
        let spread = ns * self.spread_percent / 100;
        let drawn = if spread == 0 { ns } else { rng.between(ns - spread, ns + spread) };
        let is_tail = self.tail_one_in > 0 && rng.below(self.tail_one_in) == 0;
        if is_tail { drawn * self.tail_times } else { drawn }
    }
}

numbers! {
    /// What the devices of a host have in common: its processor, an adapter, one disk under several.
    BusNumbers {
        /// Each command, in ns
        command_ns: 0..=SECOND,
        /// Each KiB, in ns
        kib_ns: 0..=SECOND,
    }
}

/// A stage that several devices share.
#[derive(Clone, Debug)]
pub struct Bus {
    numbers: BusNumbers,
    stage: Arc<Mutex<Stage>>,
}

impl Bus {
    /// Nobody is on it.
    pub fn new(numbers: BusNumbers) -> Bus {
        Bus { numbers, stage: Arc::default() }
    }

    /// When a command that comes now is through.
    pub(super) fn pass(&self, now: u64, len: u64) -> u64 {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        stage.pass(now, self.numbers.command_ns + kib(len) * self.numbers.kib_ns)
    }

    pub(super) fn settle(&self) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = Stage::default();
    }
}

/// The buses of one world by name. Who comes first says what a bus costs.
#[derive(Clone, Debug, Default)]
pub struct Buses(BTreeMap<String, Bus>);

impl Buses {
    /// The bus of this name.
    pub fn get(&mut self, name: &str, numbers: BusNumbers) -> Bus {
        self.0.entry(name.into()).or_insert_with(|| Bus::new(numbers)).clone()
    }
}
