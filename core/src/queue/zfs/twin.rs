//! The slow twin: one list, and every rule as the specification words it. Compared step by step with the real queue over
//! random histories.
//!
//! What this does not check: speed, statistics by member, and whether the specification is right.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::*;
use crate::queue::limits::{AGGREGATE_MAX, Generation, LbaOrder};
use crate::units::{KIB, MIB};

#[derive(Clone)]
struct Queued {
    io: Waiting,
    serial: u64,
    needed: bool,
}

struct Twin {
    s: QueueSettings,
    queued: Vec<Queued>,
    active: [u32; 9],
    last_class: usize,
    last_offset: u64,
    ia: u32,
    credit: i64,
    dirty: Option<Dirty>,
    serial: u64,
    dropped: Vec<Waiting>,
    floor_from: u64,
    floor_class: usize,
}

fn interactive(c: usize) -> bool {
    matches!(c, 0 | 1 | 2 | 3 | 7)
}

impl Twin {
    fn new(s: QueueSettings) -> Self {
        Twin {
            s,
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

    fn total(&self) -> u32 {
        self.active.iter().sum()
    }

    fn waits(&self, c: usize) -> bool {
        self.queued.iter().any(|q| q.io.class.index() == c)
    }

    fn background_waits(&self) -> bool {
        (0..9).any(|c| !interactive(c) && self.waits(c))
    }

    fn floor_at(&self) -> Option<u64> {
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

    /// Serial number of the next of a class.
    fn pick(&self, c: usize) -> u64 {
        let of_class = || self.queued.iter().filter(|q| q.io.class.index() == c);
        if matches!(c, 0 | 1 | 7) {
            return of_class().min_by_key(|q| (q.io.arrived, q.serial)).expect("waits").serial;
        }
        let slot = |q: &Queued| match self.s.lba_order() {
            LbaOrder::Offset => 0,
            LbaOrder::Slot => q.io.arrived.0 >> 29,
        };
        let first = of_class().min_by_key(|q| (slot(q), q.io.offset, q.serial)).expect("waits");
        let ahead = of_class()
            .filter(|q| slot(q) == slot(first) && q.io.offset >= self.last_offset)
            .min_by_key(|q| (q.io.offset, q.serial));
        ahead.unwrap_or(first).serial
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

    fn issue_one(&mut self, now: u64, out: &mut Leaving) -> bool {
        loop {
            let Some(c) = self.choose(now) else { return false };
            let chosen = self.pick(c);
            let run = self.aggregate(chosen);
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

    fn arrive(&mut self, now: u64, io: Waiting, out: &mut Leaving) {
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
        self.queued.push(Queued { io: Waiting { class, ..io }, serial: self.serial, needed: false });
        self.serial += 1;
        if self.s.generation() != Generation::Braid {
            self.issue_one(now, out);
        }
    }

    fn complete(&mut self, now: u64, class: Class, out: &mut Leaving) {
        self.active[class.index()] -= 1;
        if class.is_interactive() {
            self.ia -= 1;
            self.credit = if self.ia == 0 { 0 } else { i64::from(self.s.nia_credit()) };
        } else if self.ia == 0 {
            self.credit += 1;
        }
        if self.s.generation() != Generation::Braid {
            while self.issue_one(now, out) {}
        }
    }

    /// A class that its operation can have.
    fn change_class(&mut self, now: u64, id: IoId, class: Class) -> bool {
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

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

fn any_io(rng: &mut Rng, id: u32, now: u64, universe: u64, bridges: u64) -> Waiting {
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

/// What its operation can have, whatever was drawn.
fn any_class(rng: &mut Rng, op: DeviceOp) -> Class {
    match op {
        DeviceOp::Read => rng.pick(&[Class::SyncRead, Class::AsyncRead, Class::Scrub, Class::Removal, Class::Rebuild]),
        DeviceOp::Write { .. } | DeviceOp::WriteZeroes => {
            rng.pick(&[Class::SyncWrite, Class::AsyncWrite, Class::Initializing, Class::Rebuild])
        }
        DeviceOp::Discard => Class::Trim,
        DeviceOp::Flush => rng.pick(&Class::ALL),
    }
}

fn any_change(rng: &mut Rng, settings: &mut QueueSettings) {
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
        ("read_gap_limit", &["0", "2048", "32768"]),
        ("write_gap_limit", &["0", "4096", "8192"]),
        ("max_segments", &["1", "2", "3", "7", ""]),
        ("lba_order", &["offset", "slot"]),
        ("background_floor", &["off", "1ms", "300ms"]),
    ]);
    // Some do not fit the others; then nothing changes.
    let _ = settings.set(name, rng.pick(values));
}

fn history(generation: Generation, rotating: bool, seed: u64, steps: u32) -> (u64, u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut settings = QueueSettings::new(generation, rotating);
    let (mut real, mut twin) = (VdevQueue::new(settings.clone()), Twin::new(settings.clone()));
    let (mut now, mut flying, mut members_flying) = (0u64, Vec::<Class>::new(), [0u32; 9]);
    let (mut arrived, mut left) = (0u64, 0u64);
    let (mut started, mut completed) = ([0u32; 9], [0u32; 9]);
    // Few places make many neighbours, few completions a long line.
    let (universe, eager, bridges) = (rng.pick(&[40, 400, 100_000]), rng.pick(&[15, 35, 50]), rng.pick(&[0, 25, 70]));
    let (mut merged, mut credits) = (0, 0);
    for step in 0..steps {
        now += rng.pick(&[0, 0, 1_000, 300_000, 40_000_000]);
        let at = Instant(now);
        let (mut a, mut b) = (Leaving::default(), Leaving::default());
        let what: String;
        match rng.below(100) {
            0 => {
                any_change(&mut rng, &mut settings);
                real.configure(settings.clone());
                twin.s = settings.clone();
                what = "configure".into();
            }
            1 => {
                let dirty = Dirty { bytes: rng.below(MIB), limit: MIB, sync_waits: rng.percent(10) };
                twin.dirty = rng.percent(80).then_some(dirty);
                real.set_dirty(twin.dirty);
                what = format!("dirty {:?}", twin.dirty);
            }
            2..=5 if !twin.queued.is_empty() => {
                let io = twin.queued[rng.below(twin.queued.len() as u64) as usize].io;
                let class = any_class(&mut rng, io.op);
                assert!(real.change_class(at, io.id, class) && twin.change_class(now, io.id, class));
                what = format!("{:?} becomes {class:?}", io.id);
            }
            6 if rng.percent(5) => {
                let all: Vec<Waiting> = twin.queued.drain(..).map(|q| q.io).collect();
                left += all.len() as u64;
                assert_eq!(real.take_all(), all, "oldest first");
                what = "gone".into();
            }
            7..=10 => {
                real.turn(at, &mut a);
                while twin.issue_one(now, &mut b) {}
                what = "turn".into();
            }
            n if n < 11 + eager && !flying.is_empty() => {
                let class = flying.swap_remove(rng.below(flying.len() as u64) as usize);
                completed[class.index()] += 1;
                real.complete(at, class, &mut a);
                twin.complete(now, class, &mut b);
                what = format!("{class:?} completes");
            }
            _ => {
                let io = any_io(&mut rng, arrived as u32, now, universe, bridges);
                arrived += 1;
                real.arrive(at, io, &mut a);
                twin.arrive(now, io, &mut b);
                what = format!("{io:?} arrives");
            }
        }
        let context = || format!("{generation:?} rotating {rotating} seed {seed} step {step} at {now}: {what}");
        assert_eq!(a.commands, b.commands, "{}", context());
        assert_eq!(a.members, b.members, "{}", context());
        let dropped: Vec<Waiting> = real.take_dropped().collect();
        assert_eq!(dropped, core::mem::take(&mut twin.dropped), "{}", context());
        assert_eq!((real.credit() as i64, real.active_interactive()), (twin.credit, twin.ia), "{}", context());
        assert_eq!(real.last_offset(), twin.last_offset, "{}", context());
        assert_eq!(real.last_class, twin.last_class, "{}", context());
        let cap = twin.total() >= settings.max_active();
        assert_eq!(real.wake_at().map(|at| at.0), twin.floor_at().filter(|_| !cap), "{}", context());

        for command in &a.commands {
            started[command.class.index()] += 1;
            flying.push(command.class);
            merged += u64::from(command.members.len() > 1);
            let members = &a.members[command.members.clone()];
            members.iter().for_each(|member| members_flying[member.class.index()] += 1);
            assert!(members.windows(2).all(|two| two[0].end() <= two[1].offset), "{}: in order", context());
            assert_eq!(command.len, members[members.len() - 1].end() - command.offset, "{}", context());
        }
        left += (a.members.len() + dropped.len()) as u64;
        let waiting: u64 = Class::ALL.iter().map(|&class| u64::from(real.queued(class))).sum();
        assert_eq!(arrived, left + waiting, "{}: everything leaves once", context());
        for class in Class::ALL {
            let i = class.index();
            assert_eq!(real.active(class), started[i] - completed[i], "{}: {class:?}", context());
            assert_eq!(real.queued(class) as usize, twin.queued.iter().filter(|q| q.io.class == class).count());
            assert_eq!(real.stats(class).active, members_flying[i]);
        }
        assert!(real.credit() <= u64::from(step) + 6, "{}: credit is earned", context());
        credits += real.credit();
    }
    (merged, credits)
}

#[test]
fn the_queue_equals_its_slow_twin() {
    for generation in Generation::ALL {
        let (mut merged, mut credits) = (0, 0);
        for seed in 1..=60 {
            let (m, c) = history(generation, seed % 2 == 0, seed, 1_000);
            (merged, credits) = (merged + m, credits + c);
        }
        assert!(merged > 500 && credits > 1_000, "{generation:?}: the histories say something: {merged} {credits}");
    }
}
