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
//! * Write cache, if there is one: a write is answered `write_ns` after there is room for it among `write_cache_kib`, in order of
//!   arrival, and its pieces go to their units behind its back, `program_ns` each. So single writes are quick, and many at a time have
//!   the pace of the flash. A read waits for the program that its unit is at, and goes before those to come.
//! * Flush: `flush_ns`, and `flush_kib_ns` for what was written since the last one, at most `volatile_kib`. With a write cache it
//!   is `flush_ns` after the last program instead, and a forced write has to wait for its own.
//! * Tail: one step in `tail_one_in` takes `tail_times` as long, and holds up what waits for the same unit.
//!
//! Left out: small writes that share a page of flash on their way out of the cache, and that reads which went before a program keep
//! its place in the cache taken for longer (what is written after them does see it); garbage collection that follows from what was written, erase and suspend, the mapping table's cache, wear,
//! heat. The link comes before the flash for reads as well: that is another order and the same times, but for the
//! moment at which a slow read would have given way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
        /// KiB of writes that are answered before flash has them; 0 = flash answers
        write_cache_kib: 0..=1 << 30,
        /// One piece from the cache to its unit of flash, in ns
        program_ns: 0..=SECOND,
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

/// A unit of flash: reads, and writes if there is no cache; and what comes from the cache.
#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    work: Stage,
    programs: Stage,
}

impl Unit {
    /// When a read, or a write without a cache, is done.
    fn work(&mut self, from: u64, ns: u64, program_ns: u64) -> u64 {
        let ahead = self.programs.free_at().saturating_sub(from);
        if ahead == 0 {
            return self.work.pass(from, ns);
        }
        // Of the programs ahead one is under way, unless it is a read that is, and the others wait.
        let rest = if self.work.free_at() > from { 0 } else { ahead % program_ns.max(1) };
        self.programs.pass(from, ns);
        self.work.pass(from + rest, ns)
    }

    /// When a piece from the cache is in flash.
    fn program(&mut self, from: u64, ns: u64) -> u64 {
        self.programs.pass(from.max(self.work.free_at()), ns)
    }
}

/// Writes that are answered and not in flash yet.
#[derive(Clone, Debug, Default)]
struct WriteCache {
    kib: u64,
    /// When each leaves, and how large it is.
    leaving: BinaryHeap<Reverse<(u64, u64)>>,
    /// When the last one got in: nobody overtakes.
    admitted: u64,
    /// When all of them will have left.
    empty_at: u64,
}

impl WriteCache {
    /// When there is room for a write that comes now; one that is larger than the cache has it to itself.
    fn admit(&mut self, now: u64, kib: u64, most: u64) -> u64 {
        let mut at = now.max(self.admitted);
        while let Some(&Reverse((end, size))) = self.leaving.peek()
            && (end <= at || self.kib + kib > most)
        {
            self.leaving.pop();
            self.kib -= size;
            at = at.max(end);
        }
        self.admitted = at;
        at
    }

    fn leaves(&mut self, at: u64, kib: u64) {
        self.kib += kib;
        self.leaving.push(Reverse((at, kib)));
        self.empty_at = self.empty_at.max(at);
    }
}

/// One flash device at work.
#[derive(Clone, Debug)]
pub(super) struct State {
    m: Flash,
    link: Stage,
    units: Vec<Unit>,
    cache: WriteCache,
    /// When all that was written would be away at the sustained rate.
    sustained: Stage,
    /// KiB written since the last flush.
    unflushed_kib: u64,
    rng: Rng,
}

impl State {
    pub(super) fn new(m: Flash, seed: u64) -> State {
        let units = vec![Unit::default(); m.units as usize];
        let (link, sustained) = (Stage::default(), Stage::default());
        State { m, link, units, cache: WriteCache::default(), sustained, unflushed_kib: 0, rng: Rng::new(seed) }
    }

    pub(super) fn arrive(&mut self, now: u64, command: &Command, factor: u64, done: &mut Done) {
        let m = self.m;
        let at = match command.op {
            DeviceOp::Read => {
                let at = self.link.pass(now, factor * (m.command_ns + kib(command.len) * m.read_kib_ns));
                self.pieces(at, command, m.read_ns, factor)
            }
            DeviceOp::Write { fua } if m.write_cache_kib > 0 => self.write_behind(now, command, fua, factor),
            DeviceOp::Write { .. } => {
                let at = self.link.pass(now, factor * (m.command_ns + kib(command.len) * m.write_kib_ns));
                let at = self.pieces(at, command, m.write_ns, factor);
                self.unflushed_kib += kib(command.len);
                at.max(self.burst(now, kib(command.len), factor))
            }
            DeviceOp::Flush if m.write_cache_kib > 0 => {
                self.link.pass(now, factor * m.command_ns).max(self.cache.empty_at) + factor * m.flush_ns
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

    /// A write into the cache: when it is answered.
    fn write_behind(&mut self, now: u64, command: &Command, fua: bool, factor: u64) -> u64 {
        let (m, size) = (self.m, kib(command.len));
        let at = self.link.pass(now, factor * (m.command_ns + size * m.write_kib_ns));
        let admitted = self.cache.admit(at, size, m.write_cache_kib);
        let answered = admitted + factor * self.scatter().draw(m.write_ns, &mut self.rng);
        let end = self.pieces(answered, command, m.program_ns, factor);
        self.cache.leaves(end, size);
        let at = if fua { end } else { answered };
        at.max(self.burst(now, size, factor))
    }

    fn scatter(&self) -> Scatter {
        let Flash { spread_percent, tail_one_in, tail_times, .. } = self.m;
        Scatter { spread_percent, tail_one_in, tail_times }
    }

    /// When the last piece of a command is done.
    fn pieces(&mut self, from: u64, command: &Command, ns: u64, factor: u64) -> u64 {
        let (m, scatter) = (self.m, self.scatter());
        let is_program = m.write_cache_kib > 0 && command.op != DeviceOp::Read;
        let bytes = m.unit_kib * 1024;
        let (first, last) = (command.offset / bytes, (command.offset + command.len.max(1) - 1) / bytes);
        let units = self.units.len() as u64;
        let mut end = from;
        for piece in first..=last {
            // Each round of all units begins elsewhere, or a stride would always meet on the same few.
            let turn = (piece / units).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let unit = &mut self.units[((piece + turn) % units) as usize];
            let ns = factor * scatter.draw(ns, &mut self.rng);
            end = end.max(match is_program {
                true => unit.program(from, ns),
                false => unit.work(from, ns, factor * m.program_ns),
            });
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
        self.units.fill(Unit::default());
        self.cache = WriteCache::default();
        self.unflushed_kib = 0;
    }
}
