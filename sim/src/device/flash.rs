//! Flash behind NVMe or SATA.
//!
//! ```text
//!   command --> [ link: one at a time, ns a command + ns a KiB ] --> [ units of flash, each one at a time ] --> done
//! ```
//!
//! * Parallelism: a command is cut at multiples of `unit_kib`, and each piece is served by the unit of flash that its
//!   place belongs to; the command is done with its last piece. Streams go round all units; random commands meet on
//!   some while others idle, so latency rises with load well before the units are all busy.
//! * Ceilings: the link has a price per command (IOPS) and a price per KiB for each direction (bandwidth).
//! * Writes: as fast as `write_ns` for a burst of `burst_kib`; whoever is further ahead of `sustained_kib_ns` waits.
//! * Flush: `flush_ns`, and `flush_kib_ns` for what was written since the last one, at most `volatile_kib`.
//! * Tail: one step in `tail_one_in` takes `tail_times` as long, and holds up what waits for the same unit.
//!
//! Left out: garbage collection that follows from what was written, erase and suspend, the mapping table's cache, wear,
//! heat. The link comes before the flash for reads as well: that is another order and the same times, but for the
//! moment at which a slow read would have given way.

use super::numbers::{SECOND, numbers};
use super::stage::{Scatter, Stage, kib};
use super::{Command, Done};
use crate::rng::Rng;
use braid_core::request::DeviceOp;

numbers! {
    /// Numbers of a flash device.
    Flash {
        /// Units of flash that work at once
        units: 1..=4096,
        /// Neighbouring KiB on one unit
        unit_kib: 4..=4096,
        /// A read of one piece by a unit, in ns
        read_ns: 0..=SECOND,
        /// A write of one piece, in ns
        write_ns: 0..=SECOND,
        /// Any command on the link, in ns: 1 / IOPS ceiling, less the payload's share
        command_ns: 0..=SECOND,
        /// A KiB read on the link, in ns: 1 / bandwidth
        read_kib_ns: 0..=SECOND,
        /// A KiB written on the link, in ns
        write_kib_ns: 0..=SECOND,
        /// KiB that writes may be ahead of the sustained rate; 0 = there is no such limit
        burst_kib: 0..=1 << 40,
        /// A KiB at the sustained rate, in ns
        sustained_kib_ns: 0..=SECOND,
        /// A flush, in ns
        flush_ns: 0..=10 * SECOND,
        /// Added to a flush for each KiB written since the last, in ns
        flush_kib_ns: 0..=SECOND,
        /// KiB for which a flush pays at most
        volatile_kib: 0..=1 << 30,
        /// A discard, or zeroes without payload, in ns
        discard_ns: 0..=10 * SECOND,
        /// Times of a piece scatter evenly by so much, in percent
        spread_percent: 0..=100,
        /// One piece in so many is slow; 0 = none
        tail_one_in: 0..=1 << 40,
        /// How many times slower
        tail_times: 1..=100_000,
    }
}

/// One flash device at work.
#[derive(Clone, Debug)]
pub(super) struct State {
    m: Flash,
    link: Stage,
    units: Vec<Stage>,
    /// When all that was written would be away at the sustained rate.
    sustained: Stage,
    /// KiB written since the last flush.
    unflushed_kib: u64,
    rng: Rng,
}

impl State {
    pub(super) fn new(m: Flash, seed: u64) -> State {
        let units = vec![Stage::default(); m.units as usize];
        let (link, sustained) = (Stage::default(), Stage::default());
        State { m, link, units, sustained, unflushed_kib: 0, rng: Rng::new(seed) }
    }

    pub(super) fn arrive(&mut self, now: u64, command: &Command, factor: u64, done: &mut Done) {
        let m = self.m;
        let at = match command.op {
            DeviceOp::Read => {
                let at = self.link.pass(now, factor * (m.command_ns + kib(command.len) * m.read_kib_ns));
                self.pieces(at, command, m.read_ns, factor)
            }
            DeviceOp::Write { .. } => {
                let at = self.link.pass(now, factor * (m.command_ns + kib(command.len) * m.write_kib_ns));
                let at = self.pieces(at, command, m.write_ns, factor);
                self.unflushed_kib += kib(command.len);
                at.max(self.burst(now, kib(command.len), factor))
            }
            DeviceOp::Flush => {
                let kib = std::mem::take(&mut self.unflushed_kib).min(m.volatile_kib);
                self.link.pass(now, factor * m.command_ns) + factor * (m.flush_ns + kib * m.flush_kib_ns)
            }
            DeviceOp::Discard | DeviceOp::WriteZeroes => {
                self.link.pass(now, factor * m.command_ns) + factor * m.discard_ns
            }
        };
        done.at(at, command.id);
    }

    /// When the last piece of a command is done.
    fn pieces(&mut self, from: u64, command: &Command, ns: u64, factor: u64) -> u64 {
        let m = &self.m;
        let scatter =
            Scatter { spread_percent: m.spread_percent, tail_one_in: m.tail_one_in, tail_times: m.tail_times };
        let bytes = m.unit_kib * 1024;
        let (first, last) = (command.offset / bytes, (command.offset + command.len.max(1) - 1) / bytes);
        let units = self.units.len() as u64;
        let mut end = from;
        for piece in first..=last {
            // Each round of all units begins elsewhere, or a stride would always meet on the same few.
            let turn = (piece / units).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let unit = &mut self.units[((piece + turn) % units) as usize];
            end = end.max(unit.pass(from, factor * scatter.draw(ns, &mut self.rng)));
        }
        end
    }

    /// When the sustained rate lets a write of so many KiB be done.
    fn burst(&mut self, now: u64, kib: u64, factor: u64) -> u64 {
        if self.m.burst_kib == 0 {
            return 0;
        }
        let away = self.sustained.pass(now, factor * kib * self.m.sustained_kib_ns);
        away.saturating_sub(factor * self.m.burst_kib * self.m.sustained_kib_ns)
    }

    pub(super) fn settle(&mut self) {
        self.link = Stage::default();
        self.sustained = Stage::default();
        self.units.fill(Stage::default());
        self.unflushed_kib = 0;
    }
}
