//! Random reads beside a scrub of a wide pool with two parities.
//!
//! Source: the same discussion, a remark without a table: on a dRAID2 of 34 disks (8 data, 2 spares) the mean latency of reads
//! became a half to a third, and the longest, 4 s before, a tenth and less than 0.5 s.
//!
//! Scenario: raid6 over 34 disks, which is braid's nearest: rows of 32 strips and two parities, without spares in place. The
//! disks are those of the single-disk histograms, and nothing is fitted.

use braid_core::Profile;

use super::{AFTER, BEFORE, Mode, Pool, RAMP_NS, SECOND, VOLUME, groups, reader, reads, scrub_mib_per_s};
use crate::device::Model;
use crate::lab::{self, Direction, Job, Member, Outcome, Setup};
use crate::table::{Lab, Row, Sheet, Within};

const MODES: [(&str, Mode); 3] = [("before", BEFORE), ("after", AFTER), ("braid", Mode::Braid)];
const DISKS: usize = 34;
const COUNTED_NS: u64 = 30 * SECOND;
/// Of numbers in prose, as of ratios elsewhere.
const TOLERANCE: f64 = 0.25;

pub(super) fn judge(sheet: &mut Sheet, lab: &Lab, disk: &Pool, seed: u64) {
    let outcomes = lab.each(&MODES, |&(_, mode)| scenario(disk, mode, seed));
    for ((name, _), outcome) in MODES.iter().zip(&outcomes) {
        sheet.traced(outcome.hash);
        let what = |what: &str| format!("raid6 of {DISKS} disks, {name}: {what}");
        sheet.rows.push(Row::ours(what("mean"), "ms", mean_ms(outcome)));
        sheet.rows.push(Row::ours(what("longest"), "ms", longest_ms(outcome)));
        sheet.rows.push(Row::ours(what("scrub beside reads"), "MiB/s", scrub_mib_per_s(outcome)));
    }
    let [before, after, braid] = &outcomes[..] else { unreachable!("one of each") };
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
    let shown = |outcome: &Outcome| format!("{:.0} ms", longest_ms(outcome));
    sheet.claim(
        format!("raid6 of {DISKS} disks: the longest read after is a tenth, and less than 0.5 s"),
        longest_ms(after) * 10.0 <= longest_ms(before) && longest_ms(after) < 500.0,
        format!("{} and {}", shown(before), shown(after)),
    );
    sheet.claim(
        format!("raid6 of {DISKS} disks: braid's mean and longest read are no longer than after"),
        mean_ms(braid) <= mean_ms(after) && longest_ms(braid) <= longest_ms(after),
        format!("{:.1} and {:.1} ms, {} and {}", mean_ms(braid), mean_ms(after), shown(braid), shown(after)),
    );
}

fn scenario(disk: &Pool, mode: Mode, seed: u64) -> Outcome {
    let model = Model::shipped(disk.model).expect("it comes with the crate");
    let member = |i| Member::new(&format!("{}{i}", disk.class), disk.size, disk.class, model.clone());
    let mut setup = Setup::new((0..DISKS).map(member).collect(), Profile::Raid6, Profile::Raid1c3, VOLUME);
    setup.scrub = true;
    if let Mode::Published(scheduler) = mode {
        setup.settings = vec![("scheduler".into(), scheduler.into()), ("read_policy".into(), "zfs".into())];
    }
    let mut jobs = vec![Job { runtime_ns: Some(COUNTED_NS), ramp_ns: RAMP_NS, ..reader(disk, mode) }];
    if matches!(mode, Mode::Published(_)) {
        jobs.push(groups(&jobs[0]));
    }
    lab::run(&setup, &jobs, seed).unwrap_or_else(|why| panic!("raid6, {mode:?}: {why}"))
}

fn mean_ms(outcome: &Outcome) -> f64 {
    reads(outcome).side(Direction::Read).latency.mean_ns() as f64 / 1e6
}

fn longest_ms(outcome: &Outcome) -> f64 {
    reads(outcome).side(Direction::Read).latency.max_ns as f64 / 1e6
}
