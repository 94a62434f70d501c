//! How costs grow with the pool: devices from 10 to 10,000, volumes from 1 TiB to 10 PiB.
//!
//! ```text
//!   by devices       raid10 of NVMe of 1 TiB    a read and an overwrite of 4 KiB at random, depth 32
//!                    raid1 of the same          a first write of 64 KiB that needs a new chunk, and one that does not
//!                    either                     superblocks to a pool
//!                    raid1 of 32 GiB            what one lost member leaves to rebuild: found, and planned as `braid replace -n` does,
//!                    8 chunks of 1 GiB each     with a place for each of its chunks and capacity and survivable failures after it
//!   by volume size   raid1 over 100 devices     the same requests at places all over the volume; memory of its map
//! ```
//!
//! The engine alone is measured, as in [`cost`](crate::cost): CPU time of the thread, no payload, no disks. Times are those of
//! this machine at this moment, so only their growth is judged: the exponent p of the best fit of n^p. What grows with the
//! logarithm from 10 to 10,000 grows fourfold, p = 0.2; a pool that no longer fits the processor's cache costs more without
//! a step more being taken, so p up to [`LOGARITHMIC`] counts as that. By size it is less: leaves of a map are 2^16 to 2^29, whose
//! logarithm grows as p = 0.06. Steps are counted with `sim/examples/requests.rs`.
//!
//! Memory is what the process holds more of afterwards (its resident set), from samples: a map as dense as can be, of a TiB, and
//! ones with a leaf of its own for each unit. They come first and stay, since memory that was given back would be taken again.
//!
//! Not measured: fragmented pools, many volumes, scrub, and checkpoints, which write the whole root and a superblock for each
//! member.

use std::time::Instant;

use braid_core::control::VolumeClass;
use braid_core::device::{Device, DeviceClass};
use braid_core::meta::assembly::{Assembly, Step};
use braid_core::meta::format::NewDevice;
use braid_core::request::Op;
use braid_core::units::{DeviceId, GIB, KIB, MIB, UNIT, Uuid};
use braid_core::volume::LEAF_SPAN;

use crate::cost::Bench;
use crate::device::Model;
use crate::rng::Rng;
use crate::table::{Lab, Plot, Row, Sheet, Table};
use crate::world::{Shape, World};

/// Exponents up to this count as logarithmic growth.
pub const LOGARITHMIC: f64 = 0.3;
/// The same of sizes of a volume; a clock that differs by half between runs makes 0.04 of it.
const LOGARITHMIC_BY_SIZE: f64 = 0.15;
/// What a cache that is too small may add.
const CACHE: f64 = 0.05;

/// Requests of one kind in one measurement.
const REQUESTS: u64 = 100_000;
const WRITE: Op = Op::Write { fua: false };
const TIB: u64 = 1 << 40;
const PIB: u64 = 1 << 50;

/// All sizes.
pub const FULL: Table = Table {
    name: "scale",
    title: "What grows with the pool",
    source: "this machine; only growth is judged",
    seed: 1,
    run: |lab, seed| sheet(lab, &[10, 100, 1_000, 10_000], &[TIB, 10 * TIB, 100 * TIB, PIB, 10 * PIB], seed),
};

/// The smaller ones.
pub const QUICK: Table =
    Table { run: |lab, seed| sheet(lab, &[10, 100, 1_000], &[TIB, 100 * TIB, 10 * PIB], seed), ..FULL };

/// A measure over sizes.
struct Curve {
    what: &'static str,
    unit: &'static str,
    points: Vec<(f64, f64)>,
}

impl Curve {
    fn new(what: &'static str, unit: &'static str) -> Curve {
        Curve { what, unit, points: Vec::new() }
    }

    fn line(&self) -> (String, Vec<(f64, f64)>) {
        (self.what.into(), self.points.clone())
    }
}

/// The slope of the best line through the logarithms.
pub fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x.ln(), y.max(f64::MIN_POSITIVE).ln())).collect();
    let n = logs.len() as f64;
    let (mx, my) = (logs.iter().map(|p| p.0).sum::<f64>() / n, logs.iter().map(|p| p.1).sum::<f64>() / n);
    let above: f64 = logs.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    let below: f64 = logs.iter().map(|p| (p.0 - mx).powi(2)).sum();
    if below > 0.0 { above / below } else { 0.0 }
}

/// What grows with the number of members in any case may do so in proportion, with a logarithm on top: n log n is p = 1.20 from 10 to
/// 10,000 and 1.24 from 10 to 1,000.
fn proportional(devices: &[usize]) -> f64 {
    let n_log_n: Vec<(f64, f64)> = devices.iter().map(|&n| (n as f64, n as f64 * (n as f64).ln())).collect();
    exponent(&n_log_n) + CACHE
}

fn sheet(lab: &Lab, devices: &[usize], volumes: &[u64], seed: u64) -> Sheet {
    let mut sheet = Sheet::default();
    // Memory first: what a measurement before it gave back would be taken again, and nothing seen of it.
    by_volume(lab, &mut sheet, volumes, seed);
    by_devices(lab, &mut sheet, devices, seed);
    sheet
}

fn by_devices(lab: &Lab, sheet: &mut Sheet, devices: &[usize], seed: u64) {
    let mut requests = [Curve::new("read", "ns"), Curve::new("overwrite", "ns"), Curve::new("first write", "ns")];
    let mut chunk = [Curve::new("first write with a new chunk", "ns")];
    let mut rest = [Curve::new("assemble", "us"), Curve::new("plan a rebuild", "us")];
    let mut found = [Curve::new("find what a member holds", "ns a chunk")];
    for &n in devices {
        let (read, write) = requests_on(n, REQUESTS, seed);
        (lab.tell)(&format!("{n} devices: a read {read:.0} ns, an overwrite {write:.0} ns"));
        let (first, opening) = first_writes_on(n, seed);
        (lab.tell)(&format!("{n} devices: a first write {first:.0} ns, one with a new chunk {opening:.0} ns"));
        let assembled = assemble(n, seed);
        (lab.tell)(&format!("{n} devices: opened in {:.0} us", assembled / 1e3));
        let (per_chunk, planned) = rebuild_of(n, seed);
        (lab.tell)(&format!("{n} devices: a rebuild is planned in {:.0} us", planned / 1e3));
        found[0].points.push((n as f64, per_chunk));
        for (curve, y) in requests.iter_mut().zip([read, write, first]) {
            curve.points.push((n as f64, y));
        }
        chunk[0].points.push((n as f64, opening));
        for (curve, y) in rest.iter_mut().zip([assembled, planned]) {
            curve.points.push((n as f64, y / 1e3));
        }
    }
    let by = |n: f64| format!("{n} devices");
    tell(sheet, &requests, "CPU a request by devices", ("devices", "ns"), LOGARITHMIC, by);
    tell(sheet, &chunk, "CPU of a chunk by devices", ("devices", "ns"), LOGARITHMIC, by);
    tell(sheet, &found, "Finding what a member holds by devices", ("devices", "ns"), LOGARITHMIC, by);
    tell(sheet, &rest, "Opening and rebuilding by devices", ("devices", "us"), proportional(devices), by);
}

fn by_volume(lab: &Lab, sheet: &mut Sheet, volumes: &[u64], seed: u64) {
    let mut requests = [Curve::new("scattered read", "ns"), Curve::new("scattered overwrite", "ns")];
    let mut memory = [Curve::new("memory a TiB mapped at random", "MiB")];
    let in_sequence = dense(seed);
    let mut held = Vec::new();
    for &size in volumes {
        let (read, write, bytes_a_leaf, bench) = scattered(size, seed);
        held.push(bench);
        let tib = size as f64 / TIB as f64;
        (lab.tell)(&format!("{tib} TiB: a read anywhere {read:.0} ns, an overwrite {write:.0} ns"));
        requests[0].points.push((tib, read));
        requests[1].points.push((tib, write));
        memory[0].points.extend(bytes_a_leaf.map(|bytes| (tib, bytes * LEAVES_PER_TIB / MIB as f64)));
    }
    let by = |tib: f64| format!("{tib} TiB");
    tell(sheet, &requests, "CPU a request by size of the volume", ("TiB", "ns"), LOGARITHMIC_BY_SIZE, by);
    if memory[0].points.len() == volumes.len() {
        tell(sheet, &memory, "Memory of a map by size of the volume", ("TiB", "MiB a TiB"), LOGARITHMIC_BY_SIZE, by);
    } else {
        sheet.notes.push("Memory of maps could not be measured: the process holds no more than before.".into());
    }
    if let Some(mib) = in_sequence {
        sheet.rows.push(Row::ours("memory a TiB mapped in sequence", "MiB", mib));
    }
}

/// Rows, a picture and a claim for curves of one kind.
fn tell(
    sheet: &mut Sheet,
    curves: &[Curve],
    title: &str,
    units: (&'static str, &'static str),
    most: f64,
    by: impl Fn(f64) -> String,
) {
    for curve in curves {
        let rows = curve.points.iter().map(|&(x, y)| Row::ours(format!("{}, {}", curve.what, by(x)), curve.unit, y));
        sheet.rows.extend(rows);
        let p = exponent(&curve.points);
        let kind = if most <= LOGARITHMIC { "logarithmic" } else { "proportional" };
        sheet.claim(
            format!("{}: growth with {} is {kind} at most", curve.what, units.0),
            p <= most,
            format!("n^{p:.2}"),
        );
    }
    let lines = curves.iter().map(Curve::line).collect();
    sheet.plots.push(Plot::Lines { title: title.into(), units, log: (true, true), lines });
}

/// A quiet pool of so many devices of `bytes` each.
fn world(devices: usize, bytes: u64, profile: &str, seed: u64) -> World {
    let profile = braid_core::Profile::ALL.into_iter().find(|p| p.name() == profile).expect("a profile");
    let model = Model::shipped("nvme").expect("it comes with the crate");
    let shapes = vec![Shape { size: bytes, model, class: "nvme" }; devices];
    let mut world = World::without_payload(seed);
    world.instant = true;
    let metadata = braid_core::Profile::ALL.into_iter().find(|p| p.name() == "raid1").expect("a profile");
    world.create(&shapes, profile, metadata, &[]).expect("the pool can be made");
    world.open().expect("a new pool opens");
    world.run_until_quiet();
    world
}

/// 4 KiB at random places of a volume on raid10, 32 at a time.
pub struct Requests(Bench);

impl Requests {
    /// On a pool of so many devices.
    pub fn on(devices: usize, seed: u64) -> Requests {
        let span = (devices as u64 * 20 * MIB).max(GIB);
        let mut world = world(devices, TIB, "raid10", seed);
        let volume = world.volume("v", span, VolumeClass::Auto);
        world.run_until_quiet();
        let mut bench = Bench::of(world, volume, span / (4 * KIB));
        (0..span).step_by(MIB as usize).for_each(|at| bench.one(WRITE, at, MIB));
        Requests(bench)
    }

    /// ns of one of so many.
    pub fn ns_of(&mut self, op: Op, count: u64) -> f64 {
        self.0.random(op, count, 32) as f64 / count as f64
    }
}

/// ns of a read and of an overwrite.
pub fn requests_on(devices: usize, count: u64, seed: u64) -> (f64, f64) {
    let mut requests = Requests::on(devices, seed);
    let mut least_of = |op| (0..3).map(|_| requests.ns_of(op, count)).fold(f64::MAX, f64::min);
    (least_of(Op::Read), least_of(WRITE))
}

/// Bytes of a member where one is lost.
const DEVICE: u64 = 32 * GIB;

/// ns to find a chunk of those that one member leaves to rebuild, and to plan that for a new device in its place.
pub fn rebuild_of(devices: usize, seed: u64) -> (f64, f64) {
    let mut world = world(devices, DEVICE, "raid1", seed);
    let content = devices as u64 * DEVICE / 8;
    let volume = world.volume("v", content, VolumeClass::Auto);
    world.run_until_quiet();
    let mut bench = Bench::of(world, volume, 1);
    (0..content).step_by(1 << 30).for_each(|at| bench.one(WRITE, at, GIB));
    let lost = DeviceId(devices as u32 / 2);
    let chunks = bench.pool().chunks_on(lost).count();
    assert!(chunks > 4, "{chunks} chunks stand on the member");
    let find = least(9, || {
        let begun = Instant::now();
        assert_eq!(bench.pool().chunks_on(lost).count(), chunks);
        begun.elapsed().as_nanos() as u64
    });
    let plan = least(3, || {
        let first = bench.pool().next_device_id();
        let new = Device::new(first, &new_device());
        let begun = Instant::now();
        let outlook = bench.engine().may_replace(lost, first, [new].into_iter()).expect("it fits");
        assert!(outlook.moves > 0);
        begun.elapsed().as_nanos() as u64
    });
    (find / chunks as f64, plan)
}

/// In place of the one that is lost.
fn new_device() -> NewDevice {
    NewDevice {
        uuid: Uuid([7; 16]),
        path: "new".into(),
        size: DEVICE,
        class: DeviceClass::parse("nvme").expect("a class"),
        rotational: false,
        tiers: None,
        hint: Default::default(),
    }
}

/// The least of several measurements: what disturbs only adds.
fn least(times: usize, measure: impl FnMut() -> u64) -> f64 {
    std::iter::repeat_with(measure).take(times).min().unwrap_or_default() as f64
}

/// ns of a first write of a unit that finds room in a chunk, and of one that does not.
pub fn first_writes_on(devices: usize, seed: u64) -> (f64, f64) {
    const CHUNKS: usize = 12;
    let mut world = world(devices, TIB, "raid1", seed);
    let volume = world.volume("v", PIB, VolumeClass::Auto);
    world.run_until_quiet();
    let mut bench = Bench::of(world, volume, 1);
    let (mut at, mut known, mut plain, mut opening) = (0, bench.pool().chunks().count(), f64::MAX, Vec::new());
    while opening.len() < CHUNKS {
        let begun = Instant::now();
        bench.one(WRITE, at, UNIT);
        let ns = begun.elapsed().as_nanos() as f64;
        at += UNIT;
        let chunks = bench.pool().chunks().count();
        match chunks == known {
            true => plain = plain.min(ns),
            false => opening.push(ns),
        }
        known = chunks;
        // Most of a chunk is filled in large steps.
        let free = bench.pool().chunks().last().map_or(0, |c| c.length - c.used());
        let large = free.saturating_sub(4 * MIB) / MIB * MIB;
        if large > 0 {
            bench.one(WRITE, at, large);
            at += large;
        }
    }
    opening.sort_by(f64::total_cmp);
    (plain, opening[CHUNKS / 2])
}

/// ns from superblocks to a pool, without the reading.
pub fn assemble(devices: usize, seed: u64) -> f64 {
    let world = world(devices, TIB, "raid1", seed);
    let superblocks = world.superblocks();
    least(3, || {
        let found = superblocks.clone();
        let mut begun = Instant::now();
        let mut ns = 0;
        let mut assembly = Assembly::new(found, Uuid([1; 16])).expect("superblocks of one pool");
        loop {
            let step = assembly.step();
            ns += begun.elapsed().as_nanos() as u64;
            match step {
                Step::Failed(why) => panic!("{why}"),
                Step::Ready(_) => break ns,
                Step::Read(reads) => {
                    for read in reads {
                        let bytes = world.disks[read.device.index() - 1].read_bytes(read.offset, read.len);
                        assembly.supply(read, Ok(bytes));
                    }
                    begun = Instant::now();
                }
            }
        }
    })
}

/// Leaves of a map in a TiB.
const LEAVES_PER_TIB: f64 = (TIB / (16 * MIB)) as f64;

/// ns of a read and of an overwrite at places all over a volume of this size, and bytes of memory for a leaf that is mapped
/// here and there; with what was measured on, so that its memory is not taken again.
pub fn scattered(size: u64, seed: u64) -> (f64, f64, Option<f64>, Bench) {
    const PLACES: usize = 20_000;
    let mut world = world(100, 300 * TIB, "raid1", seed);
    let volume = world.volume("v", size, VolumeClass::Auto);
    world.run_until_quiet();
    let mut bench = Bench::of(world, volume, 1);
    let mut rng = Rng::new(seed);
    // Two units of a leaf that do not follow one another, so that none is a line.
    let leaves = size / (16 * MIB);
    let mut places: Vec<u64> = (0..PLACES).map(|_| rng.below(leaves) * 16 * MIB).collect();
    places.sort_unstable();
    places.dedup();
    let distinct = places.len();
    let apart: Vec<u64> = places.iter().flat_map(|at| [*at + 4 * UNIT, *at]).collect();
    let before = resident();
    bench.at(WRITE, &apart, 32);
    let memory = before.zip(resident()).map(|(before, after)| after.saturating_sub(before) as f64 / distinct as f64);
    // Nothing: it fits what an earlier measurement left.
    let memory = memory.filter(|bytes| *bytes > 0.0);
    for i in (1..places.len()).rev() {
        places.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let read = least(3, || bench.at(Op::Read, &places, 32));
    let write = least(3, || bench.at(WRITE, &places, 32));
    (read / distinct as f64, write / distinct as f64, memory, bench)
}

/// A volume of a TiB with a few units in each leaf of its map, none of which are neighbours.
pub struct Checkpoints {
    bench: Bench,
    /// Of each leaf, the first unit that nobody wrote.
    next: u64,
}

impl Checkpoints {
    /// On a pool of ten devices.
    pub fn of_a_tib(seed: u64) -> Checkpoints {
        let mut world = world(10, TIB, "raid1", seed);
        let volume = world.volume("v", TIB, VolumeClass::Auto);
        world.run_until_quiet();
        let mut checkpoints = Checkpoints { bench: Bench::of(world, volume, 1), next: 0 };
        for _ in 0..2 {
            checkpoints.ns_after(LEAVES_PER_TIB as usize);
        }
        checkpoints
    }

    /// ns of a checkpoint after so many leaves changed, the least of several.
    pub fn ns_of(&mut self, changed: usize) -> f64 {
        least(4, || self.ns_after(changed))
    }

    fn ns_after(&mut self, changed: usize) -> u64 {
        let leaves = (0..TIB).step_by(LEAF_SPAN as usize).step_by(LEAVES_PER_TIB as usize / changed);
        let places: Vec<u64> = leaves.map(|leaf| leaf + self.next * UNIT).collect();
        self.next += 2;
        self.bench.at(WRITE, &places, 32);
        self.bench.checkpoint()
    }
}

/// MiB of memory for a TiB that was written from its start on.
fn dense(seed: u64) -> Option<f64> {
    const SAMPLE: u64 = TIB;
    let mut world = world(10, 10 * TIB, "raid1", seed);
    let volume = world.volume("v", TIB, VolumeClass::Auto);
    world.run_until_quiet();
    let mut bench = Bench::of(world, volume, 1);
    // What the engine keeps for a request of this size is there before.
    bench.one(WRITE, 0, 16 * MIB);
    let before = resident()?;
    (16 * MIB..SAMPLE).step_by(16 << 20).for_each(|at| bench.one(WRITE, at, 16 * MIB));
    let bytes = resident()?.saturating_sub(before);
    (bytes > 0).then(|| bytes as f64 * (TIB / SAMPLE) as f64 / MIB as f64)
}

/// Bytes that this process has in memory, where the system tells it (Linux).
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_those_of_powers() {
        let curve = |p: f64| -> Vec<(f64, f64)> { [10.0f64, 100.0, 1000.0].map(|n| (n, 50.0 * n.powf(p))).into() };
        for p in [0.0, 0.2, 1.0, 2.0] {
            assert!((exponent(&curve(p)) - p).abs() < 1e-9);
        }
        let log = [10.0f64, 100.0, 1000.0, 10_000.0].map(|n| (n, 100.0 * n.log10()));
        assert!(exponent(&log) < LOGARITHMIC, "{}", exponent(&log));
        let limits =
            [&[10, 100, 1_000, 10_000][..], &[10, 100, 1_000]].map(|sizes| (proportional(sizes) * 100.0) as u32);
        assert_eq!(limits, [124, 128]);
    }

    /// Not what it costs: that everything the measurement does can be done.
    #[test]
    fn small_pools_can_be_measured() {
        let (read, write) = requests_on(10, 1_000, 1);
        let (find, plan) = rebuild_of(10, 1);
        let (first, opening) = first_writes_on(10, 1);
        assert!(
            read > 0.0
                && write > 0.0
                && find > 0.0
                && plan > 0.0
                && first > 0.0
                && opening > 0.0
                && assemble(10, 1) > 0.0
        );
    }
}
