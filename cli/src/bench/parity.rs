//! What parity costs: CPU for making and rebuilding strips, and device I/Os of client writes.
//!
//! Rates count the content of rows, whatever of them is made, in CPU time of this thread; a row and its parity stay in
//! the processor's cache, as they do when a client just sent them. I/Os are counted, not measured: the planner's beside
//! the arithmetic of Linux md with a write journal, which decides for each 4 KiB of a stripe. What both leave out: md's cache
//! of stripes, requests that join in a queue, and changes that share a group of the journal.

use super::{RUNS, Row, median, thread_cpu_ns};
use braid_core::profile::parity::{self, Lanes, Plan, Source};
use braid_core::units::{BLOCK, KIB, MIB, STRIP};
use braid_host::aligned::AlignedBox;
use braid_host::control::api::ApiError;
use braid_host::parity::{Addend, Kernel, combine_with};

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
            for sequential in [false, true] {
                rows.push(ios(data, parity, kib * KIB, sequential));
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

/// Reads and writes of devices for one client write, on average over all places of its size. Random writes find live rows
/// everywhere; sequential ones are the first to come along, and the first of a row fills it. A change of a live row is in
/// the journal first: on as many copies as survive what parity survives, and with md on one device.
fn ios(data: usize, parity: usize, size: u64, sequential: bool) -> Row {
    let stripe = data as u64 * STRIP;
    let region = stripe.max(MIB) * data as u64;
    let good = vec![Lanes::MAX; data + parity];
    let mut live = vec![!sequential; (region / stripe) as usize];
    let all = vec![Lanes::MAX; data];
    let (mut ours, mut md) = (0, 0);
    for at in (0..region).step_by(size as usize) {
        for row in at / stripe..(at + size).div_ceil(stripe) {
            let written: Vec<Lanes> = (0..data as u64).map(|m| lanes(row * stripe + m * STRIP, at, size)).collect();
            let now = parity::Row { data, parity, counted: &all, good: &good };
            let plan = parity::plan_change(&now, &written, [true, true]).expect("nothing is lost");
            let touched = written.iter().fold(0, |all, lanes| all | lanes);
            let writes = written.iter().map(|&lanes| runs(lanes)).sum::<u32>() + runs(touched) * parity as u32;
            let (reads, copies) = (plan.reads.iter().map(|&(_, lanes)| runs(lanes)).sum::<u32>(), 1 + parity as u32);
            ours += match std::mem::replace(&mut live[row as usize], true) {
                true => writes + reads + copies,
                false => (data + parity) as u32,
            };
            md += writes + md_reads(parity, &written).into_iter().map(runs).sum::<u32>() + 1;
        }
    }
    let writes = (region / size) as f64;
    let order = if sequential { "sequential" } else { "random" };
    let case = format!("parity {data}+{parity} {} KiB {order} write", size / KIB);
    Row::count(case, "md with a journal", f64::from(ours) / writes, f64::from(md) / writes)
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
        let count = |data, parity, kib, sequential| {
            let row = ios(data, parity, kib * KIB, sequential);
            (row.ours, row.theirs.unwrap())
        };
        // Old block and P, new block and P, and the journal; with Q two more, and a copy of the journal more.
        assert_eq!(count(4, 1, 4, false), (4.0 + 2.0, 4.0 + 1.0));
        assert_eq!(count(8, 2, 4, false), (6.0 + 3.0, 6.0 + 1.0));
        assert_eq!(count(4, 1, 256, false), (5.0 + 2.0, 5.0 + 1.0));
        // The four strips of a row: the first fills it, the others find it live.
        assert_eq!(count(4, 1, 64, true), ((5.0 + 3.0 * (4.0 + 2.0)) / 4.0, 4.0 + 1.0));
        assert_eq!(count(4, 1, 256, true), (5.0, 5.0 + 1.0));
    }
}
