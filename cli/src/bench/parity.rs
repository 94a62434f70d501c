//! What parity costs: CPU for making and rebuilding strips, and device I/Os of client writes.
//!
//! Rates count the content of rows, whatever of them is made, in CPU time of this thread; a row and its parity stay in
//! the processor's cache, as they do when a client just sent them.
//!
//! Device I/Os are those of the engine, on modelled disks in virtual time, of writes that come one at a time, or a stream of which 32
//! are under way: reads and writes of members, with joins in queues and all that the journal does. Beside them stands the arithmetic
//! of Linux md with a write journal, which decides for each 4 KiB of a stripe; it leaves out md's cache of stripes and its flushes, and
//! takes it for perfect where writes are a stream.

use super::{RUNS, Row, failed, median, thread_cpu_ns};
use braid_core::Profile;
use braid_core::control::VolumeClass;
use braid_core::profile::parity::{self, Lanes, Plan, Source};
use braid_core::request::{Content, Op};
use braid_core::units::{BLOCK, GIB, KIB, MIB, STRIP};
use braid_host::aligned::AlignedBox;
use braid_host::control::api::ApiError;
use braid_host::parity::{Addend, Kernel, combine_with};
use braid_sim::rng::Rng;
use braid_sim::world::Shape;
use braid_sim::{Model, World};

/// Data and parity members.
const WIDTHS: [(usize, usize); 2] = [(4, 1), (8, 2)];
/// What the best kernel has to make, in MB of content a second: P, or P and Q.
const MAKE_TARGET: f64 = 20_000.0;
/// And where two strips are made of eight with a product for each.
const REBUILD_TARGET: f64 = 10_000.0;
const SIZES_KIB: [u64; 9] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];

pub(super) fn run(quick: bool) -> Result<Vec<Row>, ApiError> {
    let bytes = if quick { 256 * MIB } else { 2048 * MIB };
    let mut rows = Vec::new();
    for (data, parity) in WIDTHS {
        for what in [What::Make, What::One, What::Two].into_iter().take(1 + parity) {
            rows.extend(rates(data, parity, what, bytes));
        }
    }
    for (data, parity) in WIDTHS {
        for kib in SIZES_KIB {
            for order in [Order::Random, Order::Sequential, Order::Stream, Order::StreamAtOnce] {
                rows.extend(ios(data, parity, kib * KIB, order)?);
            }
        }
    }
    Ok(rows)
}

#[derive(Clone, Copy)]
enum What {
    Make,
    One,
    Two,
}

impl What {
    fn words(self) -> &'static str {
        match self {
            What::Make => "make parity",
            What::One => "rebuild one lost",
            What::Two => "rebuild two lost",
        }
    }

    fn plan(self, data: usize, parity: usize) -> Plan {
        let (counted, good) = (vec![Lanes::MAX; data], vec![Lanes::MAX; data + parity]);
        let row = parity::Row { data, parity, counted: &counted, good: &good };
        let lost = |count: usize| -> Vec<Lanes> { (0..data).map(|m| if m < count { Lanes::MAX } else { 0 }).collect() };
        let plan = match self {
            What::Make => parity::plan_change(&row, &counted, [true, true]),
            What::One => parity::plan_read(&row, &lost(1)),
            What::Two => parity::plan_read(&row, &lost(2)),
        };
        plan.expect("enough is left")
    }
}

/// One row of the table for each kernel; the best one has to reach the target, the others to beat a look-up a byte.
fn rates(data: usize, parity: usize, what: What, bytes: u64) -> Vec<Row> {
    let plan = what.plan(data, parity);
    let make = &plan.makes[0];
    let kernels: Vec<Kernel> = Kernel::ALL.into_iter().filter(|kernel| kernel.is_here()).collect();
    let mut strips: Vec<AlignedBox> =
        (0..data + parity).map(|m| AlignedBox::copy_of(&vec![m as u8 + 1; STRIP as usize])).collect();
    let mut targets = [0; 2].map(|_| AlignedBox::zeroed(STRIP as usize));
    strips.iter_mut().for_each(|strip| strip[1] = 77);
    let addends: Vec<Addend<'_>> = make
        .addends
        .iter()
        .map(|addend| match addend.from {
            Source::Old(m) | Source::New(m) => (&strips[m][..], addend.times),
        })
        .collect();
    let mut found = vec![Vec::new(); kernels.len()];
    for run in 0..RUNS {
        for step in 0..kernels.len() {
            let who = if run % 2 == 0 { step } else { kernels.len() - 1 - step };
            let slow = if kernels[who] == Kernel::Table { 16 } else { 1 };
            let turns = (bytes / (data as u64 * STRIP) / slow).max(1);
            let began = thread_cpu_ns();
            for _ in 0..turns {
                let [a, b] = &mut targets;
                let to = [make.to[0].map(|_| &mut a[..]), make.to[1].map(|_| &mut b[..])];
                combine_with(kernels[who], to, std::hint::black_box(&addends));
            }
            let ns = (thread_cpu_ns() - began).max(1);
            found[who].push((turns * data as u64 * STRIP) as f64 * 1000.0 / ns as f64);
        }
    }
    let rate: Vec<f64> = found.iter().map(|runs| median(runs)).collect();
    let target = if matches!(what, What::Two) { REBUILD_TARGET } else { MAKE_TARGET };
    let case = |kernel: Kernel| format!("parity {data}+{parity} {}, {}", what.words(), kernel.name());
    let rows = kernels.iter().zip(&rate).map(|(&kernel, &rate_of)| match kernel {
        _ if kernel == Kernel::best() => Row::throughput(case(kernel), rate_of, target),
        _ => Row { unit: "MB/s", ..Row::rate(case(kernel), Kernel::Table.name(), rate_of, rate[0], 1.0) },
    });
    rows.filter(|row| row.case != case(Kernel::Table)).collect()
}

/// Where writes go, and how many are under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// One at a time over live rows.
    Random,
    /// One at a time where nobody wrote before; the first of a row fills it.
    Sequential,
    /// The same with 32 under way; rows wait for what neighbours bring (`budget_wait=auto`).
    Stream,
    /// The same as NVMe and other flash have it by default: nothing waits.
    StreamAtOnce,
}

impl Order {
    fn words(self) -> &'static str {
        match self {
            Order::Random => "random write",
            Order::Sequential => "sequential write",
            Order::Stream => "sequential write, 32 at a time",
            Order::StreamAtOnce => "sequential write, 32 at a time, without a wait",
        }
    }
}

/// Reads and writes of devices for one client write, and flushes.
fn ios(data: usize, parity: usize, size: u64, order: Order) -> Result<Vec<Row>, ApiError> {
    let case = format!("parity {data}+{parity} {} KiB {}", size / KIB, order.words());
    let (ours, flushes) = measured(data, parity, size, order)?;
    let theirs = match order {
        Order::Stream | Order::StreamAtOnce => md_stream_ios(data, parity, size),
        Order::Random | Order::Sequential => md_ios(data, parity, size),
    };
    let mut rows = vec![Row::count(case.clone(), "md with a journal", ours, theirs)];
    if flushes > 0.0 {
        rows.push(Row::shown(format!("{case}, flushes"), "for the journal's ring", flushes));
    }
    Ok(rows)
}

/// Writes of one size: so many, and as much content as there is for them.
const WRITES: u64 = 512;
const SPAN: u64 = GIB;

/// Under way at once.
const STREAM: usize = 32;

fn measured(data: usize, parity: usize, size: u64, order: Order) -> Result<(f64, f64), ApiError> {
    let profile = if parity == 1 { Profile::Raid5 } else { Profile::Raid6 };
    let model = Model::shipped("nvme").expect("it comes with the crate");
    let shapes = vec![Shape { size: 4 * GIB, model, class: "nvme" }; data + parity];
    let mut world = World::without_payload(1);
    let mut set = vec![("checksum", "none")];
    if order == Order::Stream {
        set.push(("budget_wait", "auto"));
    }
    world.create(&shapes, profile, profile.system(), &set).map_err(|e| failed(e.message))?;
    world.open().map_err(failed)?;
    let volume = world.volume("v", SPAN, VolumeClass::Data);
    let write = |world: &mut World, at, len| {
        world.run(volume, Op::Write { fua: false }, at, len).map_err(|e| failed(format!("a write: {e:?}")))
    };
    if order == Order::Random {
        (0..SPAN).step_by(4 << 20).try_for_each(|at| write(&mut world, at, 4 * MIB))?;
    }
    world.run_until_quiet();
    let (mut rng, before) = (Rng::new(size), commands(&world));
    for i in 0..WRITES {
        match order {
            Order::Random => write(&mut world, rng.below(SPAN / size) * size, size)?,
            Order::Sequential => write(&mut world, i * size, size)?,
            Order::Stream | Order::StreamAtOnce => {
                world.submit(0, volume, Op::Write { fua: false }, i * size, size, Content::Unsaid);
                world.run_until(|w| w.outstanding() < STREAM);
            }
        }
    }
    world.run_until_answered();
    if let Some(why) = world.answers.iter().find_map(|answer| answer.result.err()) {
        return Err(failed(format!("a write: {why:?}")));
    }
    let after = commands(&world);
    let each = |after: u64, before: u64| (after - before) as f64 / WRITES as f64;
    Ok((each(after.0, before.0), each(after.1, before.1)))
}

/// Reads and writes that members were asked for since the pool was opened, and flushes.
fn commands(world: &World) -> (u64, u64) {
    let counters = || world.engine().pool().devices().map(|d| &d.counters);
    (counters().map(|c| c.reads + c.writes).sum(), counters().map(|c| c.flushes).sum())
}

/// The same of md, on average over all places of a write's size, by its rules; the journal is one device.
fn md_ios(data: usize, parity: usize, size: u64) -> f64 {
    let stripe = data as u64 * STRIP;
    let region = stripe.max(MIB) * data as u64;
    let mut all = 0;
    for at in (0..region).step_by(size as usize) {
        for row in at / stripe..(at + size).div_ceil(stripe) {
            let written: Vec<Lanes> = (0..data as u64).map(|m| lanes(row * stripe + m * STRIP, at, size)).collect();
            let touched = written.iter().fold(0, |all, lanes| all | lanes);
            let writes = written.iter().map(|&lanes| runs(lanes)).sum::<u32>() + runs(touched) * parity as u32;
            all += writes + md_reads(parity, &written).into_iter().map(runs).sum::<u32>() + 1;
        }
    }
    f64::from(all) / (region / size) as f64
}

/// The same of a stream that md gathers into whole stripes.
fn md_stream_ios(data: usize, parity: usize, size: u64) -> f64 {
    (data + parity + 1) as f64 * size as f64 / (data as u64 * STRIP) as f64
}

/// The lanes of a strip that begins at `strip` which `[at, at + len)` touches.
fn lanes(strip: u64, at: u64, len: u64) -> Lanes {
    let within = |byte: u64| byte.clamp(strip, strip + STRIP) - strip;
    let (first, end) = (within(at) / BLOCK, within(at + len) / BLOCK);
    (((1u32 << end) - 1) & !((1u32 << first) - 1)) as Lanes
}

/// What md reads, by member: for each 4 KiB of the stripe what is not written, or what is with parity, if that is less.
fn md_reads(parity: usize, written: &[Lanes]) -> Vec<Lanes> {
    let mut reads = vec![0; written.len() + parity];
    for lane in (0..16).map(|lane| 1 << lane) {
        let over = written.iter().filter(|&lanes| lanes & lane != 0).count();
        let modify = over + parity < written.len() - over;
        for (member, lanes) in reads.iter_mut().enumerate() {
            let is_written = written.get(member).map(|lanes| lanes & lane != 0);
            if over > 0 && is_written.map_or(modify, |is_written| is_written == modify) {
                *lanes |= lane;
            }
        }
    }
    reads
}

/// Commands for these lanes of a device: neighbours go together.
fn runs(lanes: Lanes) -> u32 {
    (lanes & !(lanes << 1)).count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_commands_by_hand() {
        assert_eq!((lanes(0, 0, STRIP), lanes(STRIP, 0, STRIP), lanes(0, 0, 4 * MIB)), (Lanes::MAX, 0, Lanes::MAX));
        assert_eq!((lanes(STRIP, STRIP + 8192, 4096), lanes(STRIP, 0, STRIP + 4096)), (0b100, 1));
        assert_eq!((runs(0), runs(0b1101_1000_0000_0001), runs(Lanes::MAX)), (0, 3, 1));
    }

    #[test]
    fn counts_by_hand() {
        // Old block and P, new block and P, and the journal; with Q two more.
        assert_eq!((md_ios(4, 1, 4 * KIB), md_ios(8, 2, 4 * KIB)), (4.0 + 1.0, 6.0 + 1.0));
        assert_eq!(md_ios(4, 1, 256 * KIB), 5.0 + 1.0);
        // The same, and a copy of the journal for each member that may be lost beside it.
        for (data, parity, ios) in [(4, 1, 4.0 + 2.0), (8, 2, 6.0 + 3.0)] {
            let (random, _) = measured(data, parity, 4 * KIB, Order::Random).expect("it runs");
            assert!((ios..ios + 0.5).contains(&random), "{data}+{parity}: {random}");
        }
        // Rows that nobody wrote before need neither; where they are is written to two copies of the log.
        let (filled, _) = measured(4, 1, 256 * KIB, Order::Sequential).expect("it runs");
        assert!((5.0 + 2.0..7.5).contains(&filled), "{filled}");
        // Sixteen writes of 4 KiB to a strip, and a stripe for all of them.
        assert_eq!(md_stream_ios(4, 1, 4 * KIB), 6.0 / 64.0);
        let (gathered, _) = measured(4, 1, 4 * KIB, Order::Stream).expect("it runs");
        let (alone, _) = measured(4, 1, 4 * KIB, Order::Sequential).expect("it runs");
        assert!(gathered < alone / 4.0, "{gathered} of {alone}");
    }
}
