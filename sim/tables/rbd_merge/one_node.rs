//! A measured Ceph 16.2 of one node, client and server on the same two cores: 4 KiB, 128 outstanding, librbd's own
//! merging off. Its absolute numbers are those of a small machine; the ratios are the finding.
//!
//! The model `ceph-one-node` has the disk store's reads from four numbers: without merging, all 128 joined, and random at
//! 128 and at 1. For the other columns nothing random was measured: all its times are scaled by what they do without
//! merging, and the price of a KiB is what all 128 joined leave. One number more is fitted, to all columns together: what a
//! client that hands each request over by itself takes from the server, [`CLIENT_NS`]. What is predicted are the three
//! limits between, in all four columns, but for that number.

use super::{Case, iops};
use crate::device::Model;
use crate::lab::{Access, Job};
use crate::table::{Lab, Plot, Row, Sheet, Within};
use braid_core::units::{BLOCK, GIB, KIB};

/// A column: IOPS without merging, then times as many with at most 64, 16, 4 in flight, and with the whole batch joined.
struct Column {
    name: &'static str,
    reads: bool,
    base: u64,
    ratios: [f64; 3],
    joined: f64,
}

const LIMITS: [&str; 3] = ["64", "16", "4"];

const MEASURED: [Column; 4] = [
    Column { name: "disk store, read", reads: true, base: 11_400, ratios: [1.6, 5.4, 10.6], joined: 13.9 },
    Column { name: "disk store, write", reads: false, base: 7_900, ratios: [1.7, 4.8, 10.2], joined: 13.0 },
    Column { name: "memory store, read", reads: true, base: 56_800, ratios: [1.8, 3.8, 5.4], joined: 8.1 },
    Column { name: "memory store, write", reads: false, base: 20_700, ratios: [1.7, 4.3, 8.6], joined: 13.5 },
];

/// Random reads of the disk store, with 128 and with 1 in flight.
const RANDOM: [f64; 2] = [22_800.0, 4_400.0];

/// How far a prediction may be: the measurements have two digits, on cores that client and server share.
const TOLERANCE: Within = Within::Percent(25.0);
/// And what was fitted.
const FITTED: Within = Within::Percent(3.0);

/// Of a request that is handed over by itself, and its answer taken by itself: client and server share their cores, so it is
/// the server that waits. Not paid by a batch, which is handed over once.
const CLIENT_NS: u64 = 1_000;

/// All that is outstanding.
const DEPTH: u64 = 128;

/// The server by itself.
fn model(column: &Column) -> Model {
    let mut model = Model::shipped("ceph-one-node").expect("it comes with the crate");
    let disk = &MEASURED[0];
    if column.base == disk.base {
        return model;
    }
    let source = "the disk store's reads, scaled by what is done without merging";
    let scaled = |key| model.get(key).expect("a number of a network") * disk.base / column.base;
    let [request, server, round_trip] = ["request_ns", "read_ns", "round_trip_ns"].map(scaled);
    let payload = model.get("server_kib_ns").expect("a number of a network") * 4 * disk.base / column.base;
    // One command of 512 KiB at a time.
    let joined_ns = (DEPTH as f64 * 1e9 / (column.base as f64 * column.joined)) as u64;
    let kib = (joined_ns - request - server - payload - round_trip) / (4 * (DEPTH - 1));
    let small = server + payload - 4 * kib - CLIENT_NS;
    let numbers = [("request_ns", request), ("round_trip_ns", round_trip), ("server_kib_ns", kib)];
    for (key, value) in numbers.into_iter().chain([("read_ns", small), ("write_ns", small), ("flush_ns", small)]) {
        model.set(key, value, source).expect("in range");
    }
    model
}

/// The same beside a client that hands over each block by itself.
fn beside_client(model: &Model) -> Model {
    let mut model = model.clone();
    let key = "server_kib_ns";
    let kib = model.get(key).expect("a number of a network") + CLIENT_NS / (BLOCK / KIB);
    model.set(key, kib, "with what the client takes").expect("in range");
    model
}

fn client(column: &Column) -> Job {
    Job {
        depth: DEPTH,
        reads: if column.reads { 100 } else { 0 },
        size: Some(GIB),
        time_based: true,
        ramp_ns: 500_000_000,
        runtime_ns: Some(1_000_000_000),
        ..Job::default()
    }
}

const OFF: (&str, &str) = ("budget", "off");

/// Sequential: without merging, at the three limits, joined, and by braid's defaults.
fn sequential(column: &Column) -> Vec<Case> {
    let alone = model(column);
    let shared = beside_client(&alone);
    let mut cases = vec![Case::new(&shared, &[OFF], client(column))];
    cases.extend(LIMITS.map(|limit| Case::new(&shared, &[("budget", limit)], client(column))));
    cases.push(Case::new(&alone, &[OFF], Job { batch: DEPTH, reap: DEPTH, ..client(column) }));
    cases.push(Case::new(&shared, &[], client(column)));
    cases
}

/// Random reads of the disk store: as much as there is, one at a time by a limit that holds everything, by braid's rule.
fn random() -> [Case; 3] {
    let model = beside_client(&model(&MEASURED[0]));
    let job = Job { access: Access::Random, ..client(&MEASURED[0]) };
    let settings: [&[(&str, &str)]; 3] = [&[OFF], &[("budget", "1")], &[]];
    settings.map(|settings| Case::new(&model, settings, job.clone()))
}

/// Rows, claims and a plot.
pub(super) fn run(lab: &Lab, seed: u64, sheet: &mut Sheet) {
    let mut cases: Vec<Case> = MEASURED.iter().flat_map(sequential).collect();
    let each = cases.len() / MEASURED.len();
    cases.extend(random());
    let outcomes = lab.each(&cases, |case| case.run(seed));
    outcomes.iter().for_each(|outcome| sheet.traced(outcome.hash));
    let speeds: Vec<f64> = outcomes.iter().map(iops).collect();
    let mut groups = Vec::new();
    for (column, speeds) in MEASURED.iter().zip(speeds.chunks(each)) {
        groups.extend(column.rows(speeds, sheet));
    }
    sheet.plots.push(Plot::Bars {
        title: "a measured one-node Ceph: 4 KiB, 128 outstanding".into(),
        unit: "times the IOPS without merging",
        series: vec!["measured".into(), "ours".into()],
        groups,
    });
    random_rows(&speeds[each * MEASURED.len()..], sheet);
    sheet.note(
        "One-node Ceph: of each column the first number and the last are fitted, of the disk store's reads the random ones \
         too, and one number to all four together: client and server share two cores, and a request that is handed over by \
         itself takes 1 us from the server. But for that number the limits between are predicted. Without it the memory store \
         gains up to 35 % more from a few in flight than was measured: there is little else it waits for.",
    );
}

impl Column {
    fn rows(&self, speeds: &[f64], sheet: &mut Sheet) -> Vec<(String, Vec<f64>)> {
        let (name, base) = (self.name, speeds[0]);
        sheet.rows.push(Row::new(format!("{name}: nothing merged"), "IOPS", self.base as f64, base, FITTED));
        let mut groups = Vec::new();
        let measured = self.ratios.into_iter().chain([self.joined]);
        let limits = LIMITS.map(|limit| (format!("at most {limit}"), TOLERANCE)).into_iter();
        let limits = limits.chain([("all joined".to_string(), FITTED)]);
        for ((measured, (limit, within)), speed) in measured.zip(limits).zip(&speeds[1..]) {
            sheet.rows.push(Row::new(format!("{name}: {limit}"), "times", measured, speed / base, within));
            groups.push((format!("{name}, {limit}"), vec![measured, speed / base]));
        }
        let braid = speeds[LIMITS.len() + 2];
        let best = speeds[1..=LIMITS.len()].iter().copied().fold(0.0, f64::max);
        sheet.rows.push(Row::ours(format!("{name}: braid, its defaults"), "times", braid / base));
        groups.push((format!("{name}, braid"), vec![0.0, braid / base]));
        sheet.claim(
            format!("{name}: braid finds by itself at least what the best of the limits gives"),
            braid >= best,
            format!("{:.1} and {:.1} times", braid / base, best / base),
        );
        groups
    }
}

fn random_rows(speeds: &[f64], sheet: &mut Sheet) {
    let &[all, one, braid] = speeds else { unreachable!("three cases") };
    sheet.rows.push(Row::new("random, 128 in flight", "IOPS", RANDOM[0], all, FITTED));
    sheet.rows.push(Row::new("random, at most 1 in flight", "IOPS", RANDOM[1], one, FITTED));
    sheet.rows.push(Row::ours("random, braid, its defaults", "IOPS", braid));
    sheet.claim(
        "random load falls with a limit that holds everything, and not with braid's",
        one < all / 4.0 && braid >= all * 0.98,
        format!("{all:.0}, at most one {one:.0}, braid {braid:.0} IOPS"),
    );
}
