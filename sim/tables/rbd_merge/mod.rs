//! Sequential reads of 4 KiB from an RBD image: who makes large requests of them.
//!
//! Source: ceph-devel, April 2019, the posting of `busy_threshold` for rbd by Dongsheng Yang (fio, depth 128, one submit
//! each, four cases) and its review by Ilya Dryomov (scheduler `none`, depth 1024, 1 GiB, one submit each and 1024
//! together). The fourth case of the posting is printed with `queue_depth=64` and can only be `busy_threshold=64`. Beside
//! them a measured Ceph of one node: [`one_node`].
//!
//! Two machines, two models; what was fitted is in their files:
//!
//! | row | IOPS or time | merged |
//! |---|---|---|
//! | mqd-1, mqd-2 | predicted | the window |
//! | none-a, none-b | fitted | 0; the window |
//! | plug-1, plug-2 | fitted | predicted |
//!
//! The posting doesn't say what its counts of merges were counted over. They are held to one window of 700 MiB, the round
//! number nearest to what all three say; it is the same for all of them.
//!
//! The published schedulers merge as a kernel does, with its 3 ms in which a refused queue is left alone (see
//! `core/src/queue/blk_mq`). That is how mqd-2 merges more than mqd-1 and yet is no faster: 46 commands are there at a
//! time instead of 64.

mod one_node;

use braid_core::Profile;
use braid_core::units::{BLOCK, GIB, MIB};

use crate::device::Model;
use crate::lab::{self, Job, Member, Outcome, Setup};
use crate::table::{Lab, Plot, Row, Sheet, Table, Within};

/// See the file.
pub(super) const TABLE: Table = Table {
    name: "rbd-merge",
    title: "sequential reads of an RBD image: budget, scheduler, batches",
    source: "ceph-devel, April 2019: busy_threshold for rbd, and its review; a measured one-node Ceph 16.2",
    seed: 4,
    run,
};

type Settings = &'static [(&'static str, &'static str)];

/// A case of the posting.
struct Posted {
    name: &'static str,
    settings: Settings,
    iops: f64,
    merged: f64,
}

const POSTED: [Posted; 4] = [
    Posted {
        name: "mq-deadline, queue_depth=64",
        settings: &[("scheduler", "deadline"), ("queue_depth", "64")],
        iops: 17_000.0,
        merged: 85_555.0,
    },
    Posted {
        name: "mq-deadline, busy_threshold=64",
        settings: &[("scheduler", "deadline"), ("budget", "64"), ("budget_rerun", "restart")],
        iops: 16_900.0,
        merged: 103_374.0,
    },
    Posted {
        name: "none, queue_depth=64",
        settings: &[("scheduler", "none"), ("queue_depth", "64")],
        iops: 9_464.0,
        merged: 0.0,
    },
    Posted {
        name: "none, busy_threshold=64",
        settings: &[("scheduler", "none"), ("budget", "64"), ("budget_rerun", "restart")],
        iops: 18_314.0,
        merged: 100_099.0,
    },
];

/// What the posting's merges are counted over.
const WINDOW: u64 = 700 * MIB;

/// A case of the review: name, requests handed over together, ms for 1 GiB, and what the disk statistics show. These miss
/// what came last: 26 requests of the one, four of the other.
const REVIEWED: [(&str, u64, f64, u64, u64); 2] =
    [("none, one submit each", 1, 40_137.0, 262_118, 0), ("none, batches of 1024", 1024, 12_317.0, 252, 257_796)];

/// rbd's own limit is 65,535.
const SEGMENTS: (&str, &str) = ("max_segments", "1024");

/// Chunks begin 1 MiB behind a multiple of 4 MiB of the device; from here on requests of 4 MiB are whole objects, as they
/// are in an image.
const FIRST: u64 = 3 * MIB;

/// A run on one member of that model.
struct Case {
    model: Model,
    settings: Vec<(String, String)>,
    job: Job,
}

impl Case {
    fn new(model: &Model, settings: &[(&str, &str)], job: Job) -> Case {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Case { model: model.clone(), settings, job: Job { offset: FIRST, ..job } }
    }

    fn run(&self, seed: u64) -> Outcome {
        let member = Member::new("image", 64 * GIB, "net", self.model.clone());
        let settings = self.settings.clone();
        let setup = Setup { settings, ..Setup::new(vec![member], Profile::Single, Profile::Single, GIB + 2 * FIRST) };
        lab::run(&setup, std::slice::from_ref(&self.job), seed).expect("the table's scenarios make sense")
    }
}

fn run(lab: &Lab, seed: u64) -> Sheet {
    let mut sheet = Sheet::default();
    posting(lab, seed, &mut sheet);
    review(lab, seed, &mut sheet);
    one_node::run(lab, seed, &mut sheet);
    sheet.note(
        "Row 4 of the posting is printed with queue_depth=64, which row 3 has too; its option is busy_threshold=64.",
    );
    sheet.note("The posting computes 256 - 64 = 198 requests that may wait; it is 192, and a depth of 128 allows 64.");
    sheet.note(
        "The posting's merges are over a window that is not printed; 700 MiB is fitted to its three counts together.",
    );
    sheet.note(
        "Row 2 merges more than row 1 and is no faster: after a refusal no completion runs the queue, so that up to 3 ms \
         pass while the driver runs dry. Requests wait longer, and fewer commands are under way.",
    );
    sheet
        .note("The models were fitted to the speeds of rows 3 to 6; rows 1 and 2 are predicted, and what merged but for its window.");
    sheet.note(
        "braid, one submit each: the search for a limit begins with what the client does without one, which is 7 % of the GiB. \
         With budget_wait=300us no limit has an effect, since a command of this image takes a multiple of that.",
    );
    sheet
}

fn iops(outcome: &Outcome) -> f64 {
    outcome.all.milli_iops() as f64 / 1000.0
}

fn merged(outcome: &Outcome) -> f64 {
    outcome.devices[0].merged as f64
}

fn per_gib(outcome: &Outcome) -> f64 {
    let bytes = outcome.all.data().bytes.max(1);
    outcome.devices[0].reads as f64 * GIB as f64 / bytes as f64
}

/// Rows 1 to 4, and braid in their place.
fn posting(lab: &Lab, seed: u64, sheet: &mut Sheet) {
    let model = Model::shipped("rbd-posting").expect("it comes with the crate");
    let client = || Job { depth: 128, size: Some(WINDOW), ..Job::default() };
    let mut cases: Vec<Case> = POSTED.iter().map(|row| Case::new(&model, row.settings, client())).collect();
    cases.push(Case::new(&model, &[], client()));
    let outcomes = lab.each(&cases, |case| case.run(seed));
    outcomes.iter().for_each(|outcome| sheet.traced(outcome.hash));
    for (row, outcome) in POSTED.iter().zip(&outcomes) {
        let name = row.name;
        let within = if row.merged == 0.0 { Within::Exactly } else { Within::Percent(5.0) };
        sheet.rows.push(Row::new(format!("{name}: speed"), "IOPS", row.iops, iops(outcome), Within::Percent(10.0)));
        sheet.rows.push(Row::new(format!("{name}: merged"), "I/Os", row.merged, merged(outcome), within));
    }
    let ours = &outcomes[POSTED.len()];
    sheet.rows.push(Row::ours("braid, its defaults, same client: speed", "IOPS", iops(ours)));
    sheet.rows.push(Row::ours("braid, its defaults, same client: merged", "I/Os", merged(ours)));
    let best = POSTED.iter().map(|row| row.iops).fold(0.0, f64::max);
    sheet.claim(
        "braid is at least as fast as the best row of the posting, its search included",
        iops(ours) >= best,
        format!("{:.0} and {best:.0} IOPS", iops(ours)),
    );
    let names = POSTED.iter().map(|row| row.name).chain(["braid"]);
    let published = POSTED.iter().map(|row| row.iops).chain([0.0]);
    let bars = names.clone().zip(published).zip(&outcomes);
    sheet.plots.push(Plot::Bars {
        title: "4 KiB sequential reads, depth 128, one submit each".into(),
        unit: "IOPS",
        series: vec!["published".into(), "ours".into()],
        groups: bars.map(|((name, published), ours)| (name.into(), vec![published, iops(ours)])).collect(),
    });
    let commands = names.zip(&outcomes).map(|(name, outcome)| (name.into(), vec![per_gib(outcome)]));
    sheet.plots.push(commands_plot("posting", commands.collect()));
}

fn commands_plot(of: &str, groups: Vec<(String, Vec<f64>)>) -> Plot {
    let title = format!("commands for a GiB of 262,144 requests: {of}");
    Plot::Bars { title, unit: "commands", series: vec!["ours".into()], groups }
}

/// Rows 5 and 6, and braid in their place.
fn review(lab: &Lab, seed: u64, sheet: &mut Sheet) {
    let model = Model::shipped("rbd-review").expect("it comes with the crate");
    let client = |batch, size| Job { depth: 1024, batch, reap: batch, size: Some(size), ..Job::default() };
    let none = [("scheduler", "none"), SEGMENTS];
    let mut cases = Vec::new();
    for (_, batch, _, ios, merged) in REVIEWED {
        cases.push(Case::new(&model, &none, client(batch, GIB)));
        cases.push(Case::new(&model, &none, client(batch, (ios + merged) * BLOCK)));
    }
    // One submit each twice: with its search, which is seconds of these twelve, and after it.
    let settled = Job { ramp_ns: 6_000_000_000, runtime_ns: Some(20_000_000_000), time_based: true, ..client(1, GIB) };
    let short: Settings = &[("budget_wait", "300us")];
    let braid = [
        ("its defaults, batches of 1024", &[] as Settings, client(1024, GIB), true),
        ("its defaults, one submit each", &[], client(1, GIB), false),
        ("its defaults, the same, settled", &[], settled.clone(), true),
        ("budget_wait=300us, the same, settled", short, settled, false),
    ];
    cases.extend(braid.iter().map(|(_, settings, job, _)| Case::new(&model, settings, job.clone())));
    let outcomes = lab.each(&cases, |case| case.run(seed));
    outcomes.iter().for_each(|outcome| sheet.traced(outcome.hash));
    let (published, ours) = outcomes.split_at(2 * REVIEWED.len());
    for ((name, _, ms, ios, merges), pair) in REVIEWED.into_iter().zip(published.chunks(2)) {
        let (whole, counted) = (&pair[0], &pair[1]);
        let took = whole.all.runtime_ns as f64 / 1e6;
        sheet.rows.push(Row::new(format!("{name}: 1 GiB"), "ms", ms, took, Within::Percent(10.0)));
        let rows = [("I/Os", ios, counted.devices[0].reads as f64), ("merged", merges, merged(counted))];
        rows.into_iter().for_each(|(what, published, ours)| {
            sheet.rows.push(Row::new(format!("{name}: {what}"), "I/Os", published as f64, ours, Within::Exactly));
        });
    }
    let best = 1024.0 * 256.0 / (REVIEWED[1].2 / 1000.0);
    for ((name, .., is_claimed), outcome) in braid.iter().zip(ours) {
        sheet.rows.push(Row::ours(format!("braid, {name}: speed"), "IOPS", iops(outcome)));
        if *is_claimed {
            let what = format!("braid, {name}: within 1 % of the best row of the review, or faster");
            sheet.claim(what, iops(outcome) >= best * 0.99, format!("{:.0} and {best:.0} IOPS", iops(outcome)));
        }
    }
    let names = REVIEWED.map(|(name, ..)| name.to_string()).into_iter();
    let names = names.chain(braid.iter().map(|(name, ..)| format!("braid, {name}")));
    let speeds = REVIEWED.map(|(_, _, ms, ..)| 262_144_000.0 / ms).into_iter().chain([0.0; 4]);
    let wholes: Vec<&Outcome> = published.iter().step_by(2).chain(ours).collect();
    sheet.plots.push(Plot::Bars {
        title: "4 KiB sequential reads, depth 1024".into(),
        unit: "IOPS",
        series: vec!["published".into(), "ours".into()],
        groups: names.clone().zip(speeds).zip(&wholes).map(|((n, p), o)| (n, vec![p, iops(o)])).collect(),
    });
    let commands = names.zip(&wholes).map(|(name, outcome)| (name, vec![per_gib(outcome)]));
    sheet.plots.push(commands_plot("review", commands.collect()));
}
