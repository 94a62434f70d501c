//! A mixed pool with two parities, whole and without one and two of its members.
//!
//! Nobody published these: the pool is that of the placement example (`ssd_metadata`, 2020), raid6 with metadata on raid1c3, on three SSDs
//! and two disks: metadata is on the SSDs, data on all five. Rows show; claims are what braid promises.
//!
//! Random requests are of 4 KiB, 8 at once, sequential ones of 1 MiB, 4 at once. Each state is that of members that went
//! before the jobs began and stay away: nothing is rebuilt meanwhile.

use braid_core::Profile;
use braid_core::units::{GIB, KIB, MIB};

use crate::device::Model;
use crate::lab::{self, Access, Job, Member, Outcome, Setup, Sizes};
use crate::table::{Lab, Plot, Row, Sheet, Table};

/// See the file.
pub(super) const TABLE: Table = Table {
    name: "parity-states",
    title: "a mixed raid6, whole and without members",
    source: "braid's own: the pool of the ssd_metadata example, raid6 on three SSDs and two disks; no numbers are published",
    seed: 6,
    run,
};

const SECOND: u64 = 1_000_000_000;
const VOLUME: u64 = 8 * GIB;

/// Name, and the members that are gone: 1 to 3 are SSDs, 4 and 5 disks.
const STATES: [(&str, &[u32]); 5] = [
    ("whole", &[]),
    ("without a disk", &[4]),
    ("without an SSD", &[1]),
    ("without both disks", &[4, 5]),
    ("without an SSD and a disk", &[1, 4]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    RandomReads,
    /// The same under `parity-avoid-slow`.
    AvoidingReads,
    RandomWrites,
    SequentialReads,
    SequentialWrites,
}

const LOADS: [(&str, Load); 5] = [
    ("random reads", Load::RandomReads),
    ("random reads, parity-avoid-slow", Load::AvoidingReads),
    ("random writes", Load::RandomWrites),
    ("sequential reads", Load::SequentialReads),
    ("sequential writes", Load::SequentialWrites),
];

fn run(lab: &Lab, seed: u64) -> Sheet {
    let all: Vec<_> = STATES.iter().flat_map(|state| LOADS.map(|(_, load)| (state.1, load))).collect();
    let outcomes = lab.each(&all, |&(lost, load)| scenario(lost, load, seed));
    let mut sheet = Sheet::default();
    outcomes.iter().for_each(|outcome| sheet.traced(outcome.hash));
    for (state, outcomes) in STATES.iter().zip(outcomes.chunks(LOADS.len())) {
        for ((name, load), outcome) in LOADS.iter().zip(outcomes) {
            let what = |what: &str| format!("{}, {name}: {what}", state.0);
            match load {
                Load::SequentialReads | Load::SequentialWrites => {
                    sheet.rows.push(Row::ours(what("throughput"), "MiB/s", mib_per_s(outcome)));
                }
                _ => sheet.rows.push(Row::ours(what("requests"), "1/s", requests_per_s(outcome))),
            }
            sheet.rows.push(Row::ours(what("mean"), "ms", mean_ms(outcome)));
            sheet.rows.push(Row::ours(what("p99"), "ms", p99_ms(outcome)));
        }
        let (errors, ios) =
            outcomes.iter().fold((0, 0), |(errors, ios), o| (errors + o.all.errors, ios + o.all.data().ios));
        sheet.claim(
            format!("{}: every request is served", state.0),
            errors == 0 && ios > 0,
            format!("{ios} requests, {errors} errors"),
        );
    }
    let [direct, avoiding, ..] = &outcomes[..] else { unreachable!("a state has all loads") };
    sheet.claim(
        "whole: under parity-avoid-slow ten times as many random reads, with a tenth of the p99",
        requests_per_s(avoiding) >= 10.0 * requests_per_s(direct) && p99_ms(avoiding) * 10.0 <= p99_ms(direct),
        format!("{:.0} and {:.0} a second", requests_per_s(direct), requests_per_s(avoiding)),
    );
    plot(&mut sheet, &outcomes);
    sheet
}

fn scenario(lost: &[u32], load: Load, seed: u64) -> Outcome {
    let member = |(name, class, size, model): (String, &str, u64, &str)| {
        Member::new(&name, size, class, Model::shipped(model).expect("it comes with the crate"))
    };
    let ssds = (0..3).map(|i| (format!("ssd{i}"), "ssd", 500_107_862_016, "sata-ssd"));
    let disks = (0..2).map(|i| (format!("hdd{i}"), "hdd", 2_000_398_934_016, "hdd"));
    let members: Vec<Member> = ssds.chain(disks).map(member).collect();
    let mut setup = Setup::new(members, Profile::Raid6, Profile::Raid1c3, VOLUME);
    setup.lost = lost.to_vec();
    if load == Load::AvoidingReads {
        setup.settings = vec![("read_policy".into(), "parity-avoid-slow".into())];
    }
    let base = Job { time_based: true, ramp_ns: SECOND, runtime_ns: Some(5 * SECOND), ..Job::default() };
    let sizes = |bytes| [Sizes::fixed(bytes), Sizes::fixed(bytes)];
    let job = match load {
        Load::RandomReads | Load::AvoidingReads | Load::RandomWrites => {
            Job { access: Access::Random, each_once: false, sizes: sizes(4 * KIB), depth: 8, ..base }
        }
        Load::SequentialReads | Load::SequentialWrites => {
            Job { access: Access::Sequential, sizes: sizes(MIB), depth: 4, ..base }
        }
    };
    let reads = if matches!(load, Load::RandomWrites | Load::SequentialWrites) { 0 } else { 100 };
    lab::run(&setup, &[Job { reads, ..job }], seed).unwrap_or_else(|why| panic!("without {lost:?}: {why}"))
}

fn mib_per_s(outcome: &Outcome) -> f64 {
    outcome.jobs[0].bytes_per_s() as f64 / MIB as f64
}

fn requests_per_s(outcome: &Outcome) -> f64 {
    outcome.jobs[0].milli_iops() as f64 / 1000.0
}

fn mean_ms(outcome: &Outcome) -> f64 {
    outcome.jobs[0].data().latency.mean_ns() as f64 / 1e6
}

fn p99_ms(outcome: &Outcome) -> f64 {
    outcome.jobs[0].data().latency.quantile_ns(990) as f64 / 1e6
}

fn plot(sheet: &mut Sheet, outcomes: &[Outcome]) {
    let series = || STATES.iter().map(|(name, _)| (*name).to_string()).collect::<Vec<_>>();
    let mut bars = |title: &str, unit: &'static str, wanted: &[Load], number: fn(&Outcome) -> f64| {
        let group = |&(at, &(name, _)): &(usize, &(&str, Load))| {
            (name.to_string(), outcomes.chunks(LOADS.len()).map(|state| number(&state[at])).collect())
        };
        let groups = LOADS.iter().enumerate().filter(|(_, (_, load))| wanted.contains(load));
        sheet.plots.push(Plot::Bars {
            title: title.into(),
            unit,
            series: series(),
            groups: groups.collect::<Vec<_>>().iter().map(group).collect(),
        });
    };
    bars("throughput", "MiB/s", &[Load::SequentialReads, Load::SequentialWrites], mib_per_s);
    bars("requests", "1/s", &[Load::RandomReads, Load::RandomWrites], requests_per_s);
    bars("requests under parity-avoid-slow", "1/s", &[Load::AvoidingReads], requests_per_s);
    bars("p99", "ms", &LOADS.map(|(_, load)| load), p99_ms);
}
