//! The slow twin of the queues with classes: one list, and every rule as the specification words it. It starts nothing
//! by itself: when something may leave is what the queues differ in. Neighbours travel as in the OpenZFS queue or, with
//! [`bounds`](Twin::bounds), as in braid's own.
//!
//! What it cannot check: speed, statistics by member, and whether the specification is right.

mod joins;

use alloc::vec;
use alloc::vec::Vec;

use super::class::Class;
use super::limits::{AGGREGATE_MAX, Dirty, Generation, LbaOrder, QueueSettings};
use super::merge::Bounds;
use super::waiting::{Command, Leaving, Waiting};
use crate::request::DeviceOp;
use crate::units::{Instant, IoId, KIB};
use joins::Request;

#[derive(Clone)]
pub(super) struct Queued {
    pub(super) io: Waiting,
    serial: u64,
    /// I/Os of one number have joined.
    request: u64,
    needed: bool,
}

pub(super) struct Twin {
    pub(super) s: QueueSettings,
    /// Of the device, where I/Os join as they arrive.
    pub(super) bounds: Option<Bounds>,
    /// How many joined as they arrived, and over how many gaps.
    pub(super) joined: [u64; 2],
    pub(super) queued: Vec<Queued>,
    active: [u32; 9],
    pub(super) last_class: usize,
    pub(super) last_offset: u64,
    pub(super) ia: u32,
    pub(super) credit: i64,
    pub(super) dirty: Option<Dirty>,
    serial: u64,
    pub(super) dropped: Vec<Waiting>,
    floor_from: u64,
    floor_class: usize,
}

pub(super) fn interactive(c: usize) -> bool {
    matches!(c, 0 | 1 | 2 | 3 | 7)
}

impl Twin {
    pub(super) fn new(s: QueueSettings) -> Self {
        Twin {
            s,
            bounds: None,
            joined: [0; 2],
            queued: vec![],
            active: [0; 9],
            last_class: 0,
            last_offset: 0,
            ia: 0,
            credit: 0,
            dirty: None,
            serial: 0,
            dropped: vec![],
            floor_from: 0,
            floor_class: 8,
        }
    }

    pub(super) fn total(&self) -> u32 {
        self.active.iter().sum()
    }

    fn waits(&self, c: usize) -> bool {
        self.queued.iter().any(|q| q.io.class.index() == c)
    }

    fn background_waits(&self) -> bool {
        (0..9).any(|c| !interactive(c) && self.waits(c))
    }

    pub(super) fn floor_at(&self) -> Option<u64> {
        let none_active = (0..9).all(|c| interactive(c) || self.active[c] == 0);
        let on = self.s.background_floor_ns() > 0;
        (on && none_active && self.background_waits()).then(|| self.floor_from + self.s.background_floor_ns())
    }

    fn min_max(&self, c: usize) -> (i64, i64) {
        let class = Class::ALL[c];
        let (min, mut max) = (i64::from(self.s.class(class).min), i64::from(self.s.class(class).max));
        if class == Class::AsyncWrite {
            max = i64::from(self.s.async_write_max(self.dirty));
        }
        if interactive(c) || self.s.generation() == Generation::Before {
            return (min, max);
        }
        let emin = if self.ia == 0 { min } else { self.credit.min(min) };
        let emax = if self.ia > 0 {
            self.credit.min(min)
        } else if self.credit < i64::from(self.s.nia_delay()) {
            if self.s.generation() == Generation::Pr11166 { min } else { min.max(1) }
        } else {
            max
        };
        (emin, emax)
    }

    fn choose(&mut self, now: u64) -> Option<usize> {
        if self.queued.is_empty() || self.total() >= self.s.max_active() {
            return None;
        }
        if self.floor_at().is_some_and(|at| now >= at) {
            let next = (1..=9).map(|i| (self.floor_class + i) % 9).find(|&c| !interactive(c) && self.waits(c))?;
            self.floor_class = next;
            return Some(next);
        }
        let generation = self.s.generation();
        for i in 0..9 {
            let c = match generation {
                Generation::Before => i,
                _ if self.last_class == 9 => i,
                _ => (self.last_class + 1 + i) % 9,
            };
            if self.waits(c) && i64::from(self.active[c]) < self.min_max(c).0 {
                self.last_class = c;
                return Some(c);
            }
        }
        for c in 0..9 {
            if self.waits(c) && i64::from(self.active[c]) < self.min_max(c).1 {
                self.last_class = c;
                return Some(c);
            }
        }
        if matches!(generation, Generation::V2_0_1 | Generation::Braid) {
            self.last_class = 9;
        }
        None
    }

    /// Number of the next request of a class.
    fn pick(&self, c: usize) -> u64 {
        let all = self.requests(c);
        if matches!(c, 0 | 1 | 7) {
            return all.iter().min_by_key(|r| (r.arrived, r.number)).expect("waits").number;
        }
        let slot = |r: &Request| match self.s.lba_order() {
            LbaOrder::Offset => 0,
            LbaOrder::Slot => r.arrived >> 29,
        };
        let first = all.iter().min_by_key(|r| (slot(r), r.start(), r.number)).expect("waits");
        let ahead = all
            .iter()
            .filter(|r| slot(r) == slot(first) && r.start() >= self.last_offset)
            .min_by_key(|r| (r.start(), r.number));
        ahead.unwrap_or(first).number
    }

    /// Serial numbers of the run around one, in device order; just that one when it goes alone.
    fn aggregate(&mut self, serial: u64) -> Vec<u64> {
        let chosen = self.queued.iter().find(|q| q.serial == serial).expect("waits").clone();
        let alone = vec![serial];
        let read = chosen.io.op == DeviceOp::Read;
        if !(read || matches!(chosen.io.op, DeviceOp::Write { .. })) {
            return alone;
        }
        let limit = self.s.aggregation_limit();
        if limit == 0 || !chosen.io.mergeable {
            return alone;
        }
        let same_direction = |op| if read { op == DeviceOp::Read } else { matches!(op, DeviceOp::Write { .. }) };
        let mut line: Vec<Queued> = self.queued.iter().filter(|q| same_direction(q.io.op)).cloned().collect();
        line.sort_by_key(|q| (q.io.offset, q.serial));
        let optional = |q: &Queued| q.io.optional && !q.needed;
        let end = |q: &Queued| q.io.offset + q.io.len;
        let span = |a: usize, b: usize| end(&line[b]) as i64 - line[a].io.offset as i64;
        let gap = |a: usize, b: usize| line[b].io.offset as i64 - end(&line[a]) as i64;
        let max_gap = if read { self.s.read_gap_limit() as i64 } else { 0 };
        let like =
            |i: usize| line[i].io.op == chosen.io.op && line[i].io.kind == chosen.io.kind && line[i].io.mergeable;
        let joins = |a: usize, b: usize| (0..=max_gap).contains(&gap(a, b));
        let buffers = |a: usize, b: usize| {
            let gaps = (a..b).filter(|&i| gap(i, i + 1) > 0).count();
            (b - a + 1 + gaps) as u32
        };

        let at = line.iter().position(|q| q.serial == serial).expect("it is there");
        let (mut first, mut last) = (at, at);
        while first > 0
            && like(first - 1)
            && span(first - 1, last) <= limit as i64
            && joins(first - 1, first)
            && buffers(first - 1, last) <= self.s.max_segments()
        {
            first -= 1;
        }
        while first < last && optional(&line[first]) {
            first += 1;
        }
        if optional(&line[first]) {
            return alone;
        }
        while last + 1 < line.len()
            && like(last + 1)
            && (span(first, last + 1) <= limit as i64 || optional(&line[last + 1]))
            && span(first, last + 1) <= AGGREGATE_MAX as i64
            && joins(last, last + 1)
            && buffers(first, last + 1) <= self.s.max_segments()
        {
            last += 1;
        }
        if !read && optional(&line[last]) {
            let needed = (first..=last).rev().find(|&i| !optional(&line[i])).expect("the first one is");
            let mut next = last + 1;
            let reach =
                |i: usize| gap(i - 1, i) == 0 && (0..=self.s.write_gap_limit() as i64).contains(&gap(needed, i));
            while next < line.len() && reach(next) && optional(&line[next]) {
                next += 1;
            }
            if next < line.len() && reach(next) {
                let serial = line[last + 1].serial;
                self.queued.iter_mut().find(|q| q.serial == serial).expect("waits").needed = true;
            } else {
                last = needed;
            }
        }
        if first == last { alone } else { line[first..=last].iter().map(|q| q.serial).collect() }
    }

    pub(super) fn issue_one(&mut self, now: u64, out: &mut Leaving) -> bool {
        loop {
            let Some(c) = self.choose(now) else { return false };
            let chosen = self.pick(c);
            let run = match self.bounds {
                Some(bounds) => self.travellers(chosen, bounds),
                None => self.aggregate(chosen),
            };
            let members: Vec<Waiting> = run
                .iter()
                .map(|serial| {
                    let at = self.queued.iter().position(|q| q.serial == *serial).expect("waits");
                    self.queued.remove(at).io
                })
                .collect();
            if let [only] = members[..]
                && only.optional
            {
                self.dropped.push(only);
                continue;
            }
            let (offset, end) = (members[0].offset, members[members.len() - 1].end());
            if members[0].op != DeviceOp::Flush {
                self.last_offset = end;
            }
            self.active[c] += 1;
            if interactive(c) {
                self.ia += 1;
                if self.ia == 1 {
                    self.credit = 1;
                }
            } else {
                self.floor_from = now;
                if self.ia > 0 {
                    self.credit = (self.credit - 1).max(0);
                }
            }
            let start = out.members.len();
            out.members.extend(members);
            let members = start..out.members.len();
            out.commands.push(Command { class: Class::ALL[c], offset, len: end - offset, members });
            return true;
        }
    }

    pub(super) fn arrive(&mut self, now: u64, io: Waiting) {
        let class = match (io.op, io.class.index()) {
            (DeviceOp::Read, 0 | 2 | 4 | 5 | 6 | 8) => io.class,
            (DeviceOp::Read, _) => Class::AsyncRead,
            (DeviceOp::Write { .. } | DeviceOp::WriteZeroes, 1 | 3 | 5 | 6 | 8) => io.class,
            (DeviceOp::Write { .. } | DeviceOp::WriteZeroes, _) => Class::AsyncWrite,
            (DeviceOp::Discard, _) => Class::Trim,
            (DeviceOp::Flush, _) => io.class,
        };
        if !class.is_interactive() && !self.background_waits() {
            self.floor_from = self.floor_from.max(now);
        }
        let serial = self.serial;
        self.queued.push(Queued { io: Waiting { class, ..io }, serial, request: serial, needed: false });
        self.serial += 1;
        if let Some(bounds) = self.bounds {
            self.join_newest(bounds);
        }
    }

    pub(super) fn complete(&mut self, class: Class) {
        self.active[class.index()] -= 1;
        if class.is_interactive() {
            self.ia -= 1;
            self.credit = if self.ia == 0 { 0 } else { i64::from(self.s.nia_credit()) };
        } else if self.ia == 0 {
            self.credit += 1;
        }
    }

    /// A class that its operation can have.
    pub(super) fn change_class(&mut self, now: u64, id: IoId, class: Class) -> bool {
        let nobody = !self.background_waits();
        let Some(queued) = self.queued.iter_mut().find(|q| q.io.id == id) else { return false };
        queued.io.class = class;
        if nobody && !class.is_interactive() {
            self.floor_from = self.floor_from.max(now);
        }
        true
    }
}

// ------------------------------------------------------------------------------------------------ random histories

pub(super) struct Rng(pub(super) u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

pub(super) fn any_io(rng: &mut Rng, id: u32, now: u64, universe: u64, bridges: u64) -> Waiting {
    let op = match rng.below(20) {
        0 => DeviceOp::Flush,
        1 => DeviceOp::Discard,
        2 => DeviceOp::WriteZeroes,
        3 => DeviceOp::Write { fua: true },
        4..=10 => DeviceOp::Write { fua: false },
        _ => DeviceOp::Read,
    };
    let optional = matches!(op, DeviceOp::Write { .. }) && rng.percent(bridges);
    Waiting {
        id: IoId(id),
        class: rng.pick(&Class::ALL),
        op,
        offset: rng.below(universe) * 2 * KIB,
        len: if optional { 2 * KIB } else { rng.pick(&[2, 4, 4, 4, 4, 8, 16]) * KIB },
        arrived: Instant(now),
        kind: u8::from(rng.percent(5)),
        mergeable: !rng.percent(3),
        optional,
    }
}

pub(super) fn any_change(rng: &mut Rng, settings: &mut QueueSettings) {
    let (name, values): (&str, &[&str]) = rng.pick(&[
        ("max_active", &["1", "2", "5", "17", ""][..]),
        ("scrub_min_active", &["0", "1", "2"]),
        ("scrub_max_active", &["1", "3", "8"]),
        ("rebuild_min_active", &["0", "1"]),
        ("sync_read_min_active", &["0", "1", "2", ""]),
        ("sync_write_min_active", &["0", "3", ""]),
        ("async_write_max_active", &["2", "10", ""]),
        ("nia_delay", &["0", "1", "5"]),
        ("nia_credit", &["0", "1", "5"]),
        ("aggregation_limit", &["0", "8192", "131072", ""]),
        ("aggregation_limit_non_rotating", &["0", "16384", ""]),
        ("read_gap_limit", &["0", "2048", "3000", "32768"]),
        ("write_gap_limit", &["0", "4096", "8192"]),
        ("max_segments", &["1", "2", "3", "7", ""]),
        ("lba_order", &["offset", "slot"]),
        ("background_floor", &["off", "1ms", "300ms"]),
    ]);
    // Some do not fit the others; then nothing changes.
    let _ = settings.set(name, rng.pick(values));
}
