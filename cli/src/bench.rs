//! `braid bench`: what the engine and the shares cost, beside others that do the same.
//!
//! | file | what it measures |
//! |---|---|
//! | `engine.rs` | CPU of one 4 KiB read on `null:`: the core alone, and the whole pump |
//! | `file.rs` | reads a second of a pool on a file, beside a bare io_uring on the same blocks |
//! | `nbd.rs` | requests a second over a Unix socket, beside nbdkit and qemu-nbd |
//! | `integrity.rs` | reads a second with checksums, beside the same pool without |
//! | `parity.rs` | MB a second of parity made and strips rebuilt; device I/Os a client write, beside Linux md's |
//! | `load.rs` | the NBD load generator |
//! | `pool.rs` | a pool to measure; `serve` runs one as a process of its own |
//!
//! A clock on a shared machine lies. So every number is a ratio of runs that took turns (A B B A), a median, and where
//! it can be had, CPU time beside it: that is what stays the same when somebody else compiles.

mod engine;
mod file;
mod integrity;
mod load;
mod nbd;
mod parity;
mod pool;

use crate::args::{BenchArgs, BenchWhat, ServeArgs};
use crate::commands::{self, Outcome};
use braid_host::control::api::ApiError;
use serde::Serialize;
use std::fmt::Write;

/// Runs of one case and one contestant; the median counts.
const RUNS: usize = 5;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
struct Row {
    case: String,
    peer: String,
    /// Of `ours` and `theirs`.
    unit: &'static str,
    ours: f64,
    theirs: Option<f64>,
    /// How much better we are; for costs, how many times the target fits.
    ratio: f64,
    target: f64,
    /// None of what is only shown.
    met: Option<bool>,
    /// How far the ratios of single turns lie apart: the upper quartile through the lower one. A ratio that is nearer to the
    /// target than this says nothing about it.
    noise: Option<f64>,
    /// Server CPU of one operation in nanoseconds, ours and theirs.
    cpu_ns: Option<(f64, f64)>,
    /// Median round trip at depth 1, ours and theirs: what a machine that is busy with other things hardly changes.
    round_trip_ns: Option<(f64, f64)>,
}

impl Row {
    /// A rate beside another rate.
    fn rate(case: impl Into<String>, peer: &str, ours: f64, theirs: f64, target: f64) -> Row {
        let ratio = ours / theirs.max(1e-9);
        let (case, peer) = (case.into(), peer.into());
        Row {
            case,
            peer,
            unit: "op/s",
            ours,
            theirs: Some(theirs),
            ratio,
            target,
            met: Some(ratio >= target),
            noise: None,
            cpu_ns: None,
            round_trip_ns: None,
        }
    }

    /// A rate in MB/s that should be at least `target`.
    fn throughput(case: impl Into<String>, ours: f64, target: f64) -> Row {
        let peer = format!("at least {} MB/s", number(target));
        Row { unit: "MB/s", theirs: None, ..Row::rate(case, &peer, ours, target, 1.0) }
    }

    /// How often something is done beside how often a peer does it.
    fn count(case: impl Into<String>, peer: &str, ours: f64, theirs: f64) -> Row {
        let ratio = theirs / ours.max(1e-9);
        Row { unit: "I/O", ratio, met: Some(ratio >= 1.0), ..Row::rate(case, peer, ours, theirs, 1.0) }
    }

    /// How often something is done, with nothing to hold it to.
    fn shown(case: impl Into<String>, what: &str, ours: f64) -> Row {
        Row { theirs: None, met: None, ..Row::count(case, what, ours, ours) }
    }

    /// Rates turn by turn. The ratio is the median of those within a turn: what slows a whole turn down slows both.
    fn turns(case: impl Into<String>, peer: &str, ours: &[f64], theirs: &[f64], target: f64) -> Row {
        let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b.max(1e-9)).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |part: usize| ratios.get(ratios.len() * part / 4).copied().unwrap_or(0.0);
        let ratio = median(&ratios);
        let noise = (ratios.len() > 2).then(|| at(3) / at(1).max(1e-9));
        Row { ratio, met: Some(ratio >= target), noise, ..Row::rate(case, peer, median(ours), median(theirs), target) }
    }

    /// A cost that should be at most `target` nanoseconds.
    fn cost(case: impl Into<String>, ours: f64, target: f64) -> Row {
        let (case, peer, ratio) = (case.into(), format!("at most {target} ns"), target / ours.max(1e-9));
        Row {
            case,
            peer,
            unit: "ns",
            ours,
            theirs: None,
            ratio,
            target: 1.0,
            met: Some(ours <= target),
            noise: None,
            cpu_ns: None,
            round_trip_ns: None,
        }
    }
}

/// The middle one.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn failed(what: impl std::fmt::Display) -> ApiError {
    ApiError::failed("bench.failed", what.to_string())
}

pub(crate) fn bench(args: &BenchArgs, json: bool) -> Outcome {
    let all = args.what == BenchWhat::All;
    let mut rows = Vec::new();
    if all || args.what == BenchWhat::Engine {
        rows.extend(engine::run(args.quick)?);
    }
    if all || args.what == BenchWhat::File {
        rows.extend(file::run(args.quick, &args.dir)?);
    }
    if all || args.what == BenchWhat::Nbd {
        rows.extend(nbd::run(args.quick, &args.dir, args.only.as_deref())?);
    }
    if all || args.what == BenchWhat::Integrity {
        rows.extend(integrity::run(args.quick, &args.dir)?);
    }
    if all || args.what == BenchWhat::Parity {
        rows.extend(parity::run(args.quick)?);
    }
    if json {
        commands::print(&format!("{}\n", serde_json::json!({"schema": "bench", "version": 1, "data": rows})));
    } else {
        commands::print(&table(&rows));
    }
    Ok(0)
}

pub(crate) fn serve(args: &ServeArgs) -> Outcome {
    pool::serve(args)
}

/// A table that Markdown shows as one.
fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| case | ours | peer | theirs | ratio | noise | target | met | server CPU a request: ours, theirs | median round trip: ours, theirs |\n\
         |---|---:|---|---:|---:|---:|---:|---|---:|---:|\n",
    );
    for r in rows {
        let shown = |value: f64| if r.unit == "I/O" { format!("{value:.2}") } else { number(value) };
        let theirs = r.theirs.map_or(String::new(), shown);
        let both = |pair: Option<(f64, f64)>| {
            pair.map_or(String::new(), |(a, b)| format!("{} ns, {} ns", number(a), number(b)))
        };
        let (cpu, trip) = (both(r.cpu_ns), both(r.round_trip_ns));
        let (ratio, target, met) = match r.met {
            Some(met) => (format!("{:.2}", r.ratio), format!("{:.2}", r.target), if met { "yes" } else { "NO" }),
            None => Default::default(),
        };
        let ours = shown(r.ours);
        let noise = r.noise.map_or(String::new(), |noise| format!("{noise:.2}"));
        let unit = if r.unit == "op/s" { String::new() } else { format!(" {}", r.unit) };
        let _ = writeln!(
            out,
            "| {} | {ours}{unit} | {} | {theirs} | {ratio} | {noise} | {target} | {met} | {cpu} | {trip} |",
            r.case, r.peer
        );
    }
    let targets: Vec<bool> = rows.iter().filter_map(|r| r.met).collect();
    let met = targets.iter().filter(|met| **met).count();
    let _ = writeln!(out, "\n{met} of {} targets met", targets.len());
    out
}

fn number(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// CPU time of the calling thread.
fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of another process, all its threads.
fn process_cpu_ns(pid: u32) -> u64 {
    // The kernel's name for the clock of a process, as clock_getcpuclockid(3) gives it.
    clock_ns((!(pid as libc::clockid_t) << 3) | 2)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a local; a clock that does not exist leaves it as it is.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Numbers that are random enough for offsets, and the same in every run.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_say_what_is_met() {
        let shown = Row::shown("c", "beside them", 2.5);
        let rows = [Row::rate("a", "nbdkit", 1_500_000.0, 1_000_000.0, 1.5), Row::cost("b", 401.0, 400.0), shown];
        let text = table(&rows);
        assert!(text.contains("| a | 1,500,000 | nbdkit | 1,000,000 | 1.50 |  | 1.50 | yes |"), "{text}");
        assert!(text.contains("| b | 401 ns | at most 400 ns |  | 1.00 |  | 1.00 | NO |"), "{text}");
        assert!(text.contains("| c | 2.50 I/O | beside them |  |  |  |  |  |"), "{text}");
        assert!(text.contains("1 of 2 targets met"));
    }

    /// A turn that was slow for both changes nothing; one that was slow for one of them is noise.
    #[test]
    fn turns_are_compared_with_themselves() {
        let row = Row::turns("a", "b", &[90.0, 45.0, 99.0, 88.0, 91.0], &[100.0, 50.0, 100.0, 100.0, 100.0], 0.9);
        assert!(row.met == Some(true) && row.ratio == 0.9, "{row:?}");
        assert_eq!(row.noise.map(|noise| (noise * 1000.0) as u64), Some(1011));
    }

    #[test]
    fn medians_and_dice() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[])), (2.0, 0.0));
        let mut dice = Dice(7);
        let mut seen = [false; 10];
        (0..1000).for_each(|_| seen[dice.below(10) as usize] = true);
        assert_eq!(seen, [true; 10]);
        assert!(process_cpu_ns(std::process::id()) > 0);
    }
}
