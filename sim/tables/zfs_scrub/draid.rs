//! Random reads beside a scrub of a wide pool with two parities.
//!
//! Source: the same discussion, a remark without a table: on a dRAID2 of 34 disks (8 data, 2 spares) the mean latency of reads
//! became a half to a third, and the longest, 4 s before, a tenth and less than 0.5 s.
//!
//! Scenario: raid6 over 34 disks, which is braid's nearest: rows of 32 strips and two parities, without spares in place. A
//! block of the source's volume, 32 KiB, is on 8 disks, and who reads of it waits for all of them: so reads are of 8 strips. The
//! disks are those of the single-disk histograms, and nothing is fitted.

use braid_core::Profile;
use braid_core::units::STRIP;

use super::{AFTER, BEFORE, Mode, Pool, SECOND, reads, scenario, scrub_mib_per_s};
use crate::lab::{Direction, Outcome};
use crate::table::{Lab, Row, Sheet, Within};

const MODES: [(&str, Mode); 3] = [("before", BEFORE), ("after", AFTER), ("braid", Mode::Braid)];
const DISKS: usize = 34;
/// A block of the source's volume is on 8 disks; ours are whole strips.
const READ: u64 = 8 * STRIP;
const COUNTED_NS: u64 = 30 * SECOND;
const VOLUME: u64 = 400 << 30;
/// Of numbers in prose, as of ratios elsewhere.
const TOLERANCE: f64 = 0.25;

pub(super) fn judge(sheet: &mut Sheet, lab: &Lab, disk: &Pool, seed: u64) {
    let pool = Pool {
        name: "raid6",
        members: DISKS,
        profiles: (Profile::Raid6, Profile::Raid1c3),
        volume: VOLUME,
        read: READ,
        counted_ns: COUNTED_NS,
        runs: 1,
        ..*disk
    };
    let outcomes = lab.each(&MODES, |&(_, mode)| scenario(&pool, mode, seed));
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

fn mean_ms(outcome: &Outcome) -> f64 {
    reads(outcome).side(Direction::Read).latency.mean_ns() as f64 / 1e6
}

fn longest_ms(outcome: &Outcome) -> f64 {
    reads(outcome).side(Direction::Read).latency.max_ns as f64 / 1e6
}
