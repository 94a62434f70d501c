//! Four read policies of btrfs in virtual machines: reads of each device, and bandwidth.
//!
//! Source: linux-btrfs, "btrfs: read_policy types latency, device and round-robin", v1 to v3, October 2020 to January
//! 2021: fio, random reads of 64 KiB, 32 threads of 500 MiB, 256,000 reads in all. The logs of raid1, raid10 and raid1c4
//! are one measurement, posted three times; v2 has a second raid1, on a host half as fast.
//!
//! ```text
//!   host disk   shared by all members: 45 us a command, 10.37 us a KiB     r1-dev; r1-rr and c4-rr together
//!               on the second occasion 22.48 us a KiB                       r1b-dev
//!   a piece     of 4 KiB takes its thread 280 us, without memory            r1-rr and c4-rr, commands a read
//!               on the second occasion 750 us                               r1b-rr
//! ```
//!
//! Everything else is predicted. With k turns of other threads between two pieces, the pieces go to one device when
//! k + 1 is a multiple of the copies. Some four threads are between two of their pieces at any time and none remembers how
//! long it has been: then k is geometric, and the same 280 us give 9.6 commands a read for two copies, and 13.8 for four.
//! Constant or evenly scattered times don't: whatever fits the one is off by 5 % and more for the other.
//!
//! Runs are 16 MiB a thread instead of 500, after as much of `pid`; counts are scaled to 256,000 reads.
//!
//! Who is read under `latency-2021` is chance where the copies are nearly alike: an average over a life moves less and less, and
//! the lead changes when it happens to cross the other. [`Chance`] is such a run, made with several seeds.

use braid_core::Profile;

use crate::device::{BusNumbers, Model};
use crate::lab::{Access, Cpu, Member, Outcome};
use crate::table::{Lab, Plot, Row, Sheet, Table, Within};

use super::read_policy::{OWN, Scenario, judge_order, mib_s};

/// See the file.
pub(super) const TABLE: Table = Table {
    name: "read-policy-vm",
    title: "btrfs read policies in virtual machines",
    source: "linux-btrfs, October 2020 to January 2021: read_policy types latency, device and round-robin, v1 to v3",
    seed: 1,
    run,
};

use Profile::{Raid1, Raid1c4, Raid10};

/// Of a published run.
const LOGICAL: u64 = 256_000;
/// Of each thread of ours.
const READS: u64 = 256;
/// Percent that counts may be off.
const COUNTS: f64 = 3.0;
/// Percent that bandwidth may be off.
const BANDWIDTH: f64 = 10.0;
/// Percent that the median of them may be off.
const MEDIAN: f64 = 10.0;
/// braid's default may be so much below the best of the published policies.
const SHARE_OF_BEST: f64 = 0.98;

/// A run whose counts are a draw: with how many seeds it is made, and reads of each thread. Longer runs change their lead less.
struct Chance {
    id: &'static str,
    seeds: u64,
    reads: u64,
}

const CHANCE: Chance = Chance { id: "r10-lat", seeds: 8, reads: 1000 };

/// A virtual machine on one occasion.
struct Machine {
    name: &'static str,
    profile: Profile,
    /// Members, in the order of their stripes. The first of each mirror won under latency, and has the flag of `device`.
    disks: &'static [(&'static str, &'static str)],
    /// ns that the host takes for a KiB, and a thread for a piece.
    kib_ns: u64,
    piece_ns: u64,
    /// What the other disks of a mirror take longer than the one that won under latency. Assumed: two images on one disk are
    /// not alike, and by how little is enough to say who wins everything. Where the lead changed they are the more alike.
    behind_ns: u64,
    runs: &'static [Run],
}

/// Reads of each disk, MiB/s.
struct Run {
    id: &'static str,
    policy: &'static str,
    ios: &'static [u64],
    mib_s: f64,
}

const fn published(id: &'static str, policy: &'static str, ios: &'static [u64], mib_s: f64) -> Run {
    Run { id, policy, ios, mib_s }
}

const MACHINES: [Machine; 4] = [
    Machine {
        name: "raid1",
        profile: Raid1,
        disks: &[("sda", "guest-sata"), ("sdb", "guest-sata")],
        kib_ns: 10_370,
        piece_ns: 280_000,
        behind_ns: 300_000,
        runs: &[
            published("r1-pid", "pid", &[128_090, 128_087], 78.8),
            published("r1-lat", "latency-2021", &[255_942, 567], 86.5),
            published("r1-dev", "device", &[256_191, 0], 88.2),
            published("r1-rr", "roundrobin-v3", &[1_254_258, 1_252_584], 54.1),
        ],
    },
    Machine {
        name: "raid10",
        profile: Raid10,
        disks: &[("sdf", "guest-sata"), ("sde", "guest-sata"), ("sdd", "guest-sata"), ("sdc", "guest-sata")],
        kib_ns: 10_370,
        piece_ns: 280_000,
        behind_ns: 60_000,
        runs: &[
            published("r10-pid", "pid", &[64_053, 64_036, 64_043, 64_038], 85.2),
            published("r10-lat", "latency-2021", &[117_494, 10_748, 125_247, 2_921], 85.4),
            published("r10-rr", "roundrobin-v3", &[617_593, 617_381, 618_486, 618_633], 55.4),
        ],
    },
    Machine {
        name: "raid1c4",
        profile: Raid1c4,
        disks: &[("vdb", "guest-virtio"), ("vdc", "guest-virtio"), ("sdb", "guest-sata"), ("sda", "guest-sata")],
        kib_ns: 10_370,
        piece_ns: 280_000,
        behind_ns: 300_000,
        runs: &[
            published("c4-pid", "pid", &[64_060, 64_053, 64_072, 64_054], 87.0),
            published("c4-lat", "latency-2021", &[255_844, 559, 0, 93], 87.1),
            // Printed as 51.0 beside 54.5 MB/s and a run time that both say 52.0.
            published("c4-rr", "roundrobin-v3", &[866_859, 866_651, 864_139, 865_533], 52.0),
        ],
    },
    Machine {
        name: "raid1 of v2",
        profile: Raid1,
        disks: &[("vdb", "guest-virtio"), ("sda", "guest-sata")],
        kib_ns: 22_480,
        piece_ns: 750_000,
        behind_ns: 300_000,
        runs: &[
            published("r1b-dev", "device", &[256_242, 0], 42.1),
            published("r1b-pid", "pid", &[128_097, 128_106], 40.7),
            published("r1b-lat", "latency-2021", &[256_238, 0], 41.7),
            published("r1b-rr", "roundrobin-v3", &[1_149_797, 1_148_975], 35.3),
        ],
    },
];

/// Reads of the RFC with and without its factor for commands in flight, on another machine.
const INFLIGHT: [(&str, f64); 2] = [("inf-with", 256_074.0), ("inf-without", 141_006.0)];

fn run(lab: &Lab, seed: u64) -> Sheet {
    let all: Vec<(&Machine, &str, u64, u64)> = MACHINES.iter().flat_map(|machine| machine.all(seed)).collect();
    let run = |&(machine, policy, reads, seed): &(&Machine, _, _, _)| machine.scenario(policy, reads).run(seed);
    let mut outcomes = lab.each(&all, run).into_iter();
    let mut sheet = Sheet::default();
    for machine in &MACHINES {
        let mut next = |seeds: u64| -> Vec<Outcome> {
            outcomes.by_ref().take(seeds as usize).inspect(|outcome| sheet.traced(outcome.hash)).collect()
        };
        let published: Vec<Ours> = machine.runs.iter().map(|run| Ours::of(&next(run.seeds()))).collect();
        let own = next(OWN.len() as u64);
        for (run, ours) in machine.runs.iter().zip(&published) {
            add_run(&mut sheet, machine, run, ours);
        }
        let named = machine.runs.iter().zip(&published).map(|(run, ours)| (run.id, run.mib_s, ours.mib_s));
        judge_order(&mut sheet, machine.name, &named.collect::<Vec<_>>());
        add_own(&mut sheet, machine, &published, &own);
        add_plots(&mut sheet, machine, &published, &own);
    }
    let median = Sheet::median_error(sheet.rows.iter().filter(|row| row.unit == "MiB/s"));
    sheet.claim(format!("bandwidth: median error at most {MEDIAN} %"), median <= MEDIAN, format!("{median:.1} %"));
    let ours = sheet.rows.iter().filter(|row| row.what.starts_with("r1-lat, reads")).map(|row| row.ours).sum();
    for (id, commands) in INFLIGHT {
        sheet.rows.push(Row::new(format!("{id}, reads"), "reads", commands, ours, Within::Shown));
    }
    add_notes(&mut sheet);
    sheet
}

impl Run {
    fn seeds(&self) -> u64 {
        if self.id == CHANCE.id { CHANCE.seeds } else { 1 }
    }

    fn reads(&self) -> u64 {
        if self.id == CHANCE.id { CHANCE.reads } else { READS }
    }
}

impl Machine {
    /// What is run: policy, reads of each thread, seed.
    fn all(&self, seed: u64) -> impl Iterator<Item = (&Machine, &'static str, u64, u64)> {
        let seeds = move |run: &'static Run| (seed..seed + run.seeds()).map(|seed| (run.policy, run.reads(), seed));
        let own = OWN.map(|policy| (policy, READS, seed));
        self.runs.iter().flat_map(seeds).chain(own).map(move |(policy, reads, seed)| (self, policy, reads, seed))
    }

    fn scenario(&self, policy: &'static str, reads: u64) -> Scenario {
        Scenario {
            members: self.disks.iter().enumerate().map(|(i, disk)| self.member(i, *disk)).collect(),
            profile: self.profile,
            policy,
            access: Access::Random,
            reads,
            cpus: 0,
            piece: Cpu { scatter_ns: self.piece_ns, ..Cpu::default() },
        }
    }

    fn member(&self, i: usize, (name, model): (&str, &str)) -> Member {
        let mut model = Model::shipped(model).expect("it is");
        let leads = i == 0 || self.profile == Raid10 && i.is_multiple_of(2);
        let read_ns = model.get("read_ns").expect("it is flash") + if leads { 0 } else { self.behind_ns };
        model.set("read_ns", read_ns, "Assumed: disks are not alike.").expect("in range");
        let (bus, numbers) = model.bus().expect("guests share a disk");
        let (bus, numbers) = (bus.to_string(), BusNumbers { kib_ns: self.kib_ns, ..numbers });
        let mut member = Member::new(name, 16 << 30, "ssd", model.on_bus(&bus, numbers));
        if leads {
            member.settings.push(("read_preferred".into(), "1".into()));
        }
        member
    }
}

/// What a run gave: the means of its seeds.
struct Ours {
    /// Reads of each device by seed, as if there were as many in all as were published.
    reads: Vec<Vec<f64>>,
    mib_s: f64,
}

impl Ours {
    fn of(outcomes: &[Outcome]) -> Ours {
        let devices = 0..outcomes[0].devices.len();
        let reads = |device: usize| outcomes.iter().map(|outcome| scaled(outcome, device)).collect();
        Ours { reads: devices.map(reads).collect(), mib_s: mean(outcomes.iter().map(mib_s)) }
    }

    fn means(&self) -> impl Iterator<Item = f64> {
        self.reads.iter().map(|seeds| mean(seeds.iter().copied()))
    }
}

fn mean(all: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = all.len() as f64;
    all.sum::<f64>() / count
}

fn scaled(outcome: &Outcome, device: usize) -> f64 {
    (outcome.devices[device].reads * LOGICAL) as f64 / outcome.all.data().ios as f64
}

fn add_run(sheet: &mut Sheet, machine: &Machine, run: &Run, ours: &Ours) {
    let sum: u64 = run.ios.iter().sum();
    for ((((disk, _), published), seeds), ours) in machine.disks.iter().zip(run.ios).zip(&ours.reads).zip(ours.means())
    {
        // What got nearly nothing is held to the same number of reads as those that got them.
        let few = (*published as f64) < sum as f64 * COUNTS / 100.0;
        let within = if seeds.len() > 1 {
            let ends = seeds.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), n| (least.min(*n), most.max(*n)));
            Within::Draws(ends.0, ends.1)
        } else if few {
            Within::Absolute(sum as f64 * COUNTS / 100.0)
        } else {
            Within::Percent(COUNTS)
        };
        sheet.rows.push(Row::new(format!("{}, reads of {disk}", run.id), "reads", *published as f64, ours, within));
    }
    if run.id == CHANCE.id {
        let beside = run.ios.iter().zip(ours.means()).map(|(published, ours)| (ours - *published as f64).abs());
        let percent = beside.fold(0.0, f64::max) * 100.0 / sum as f64;
        sheet.claim(
            format!("{}: the mean of no disk is further off than {COUNTS} % of the run's reads", run.id),
            percent <= COUNTS,
            format!("{percent:.1} %"),
        );
    }
    let what = format!("{}, MiB/s", run.id);
    sheet.rows.push(Row::new(what, "MiB/s", run.mib_s, ours.mib_s, Within::Percent(BANDWIDTH)));
}

fn add_own(sheet: &mut Sheet, machine: &Machine, published: &[Ours], own: &[Outcome]) {
    let best = published.iter().map(|ours| ours.mib_s).fold(0.0, f64::max);
    for (name, ours) in OWN.iter().zip(own) {
        sheet.rows.push(Row::ours(format!("{}, braid {name}, MiB/s", machine.name), "MiB/s", mib_s(ours)));
    }
    sheet.claim(
        format!("{}: braid's default is not 2 % below the best", machine.name),
        mib_s(&own[0]) >= SHARE_OF_BEST * best,
        format!("{:.1} and {best:.1} MiB/s", mib_s(&own[0])),
    );
    let commands = (0..own[0].devices.len()).map(|device| scaled(&own[0], device)).sum::<f64>() / LOGICAL as f64;
    sheet.claim(
        format!("{}: braid's default makes one command of a read", machine.name),
        commands == 1.0,
        format!("{commands:.3}"),
    );
}

fn add_plots(sheet: &mut Sheet, machine: &Machine, published: &[Ours], own: &[Outcome]) {
    let mut groups = Vec::new();
    for (run, ours) in machine.runs.iter().zip(published) {
        groups.push((format!("{} published", run.id), run.ios.iter().map(|n| *n as f64).collect()));
        groups.push((format!("{} ours", run.id), ours.means().collect()));
    }
    for (name, outcome) in OWN.iter().zip(own) {
        let devices = 0..outcome.devices.len();
        groups.push((format!("braid {name}"), devices.map(|device| scaled(outcome, device)).collect()));
    }
    let series = machine.disks.iter().map(|(disk, _)| disk.to_string()).collect();
    sheet.plots.push(Plot::Shares { title: format!("{}: reads by disk", machine.name), series, groups });
    let bandwidth =
        machine.runs.iter().zip(published).map(|(run, ours)| (run.id.to_string(), vec![run.mib_s, ours.mib_s]));
    sheet.plots.push(Plot::Bars {
        title: format!("{}: bandwidth", machine.name),
        unit: "MiB/s",
        series: vec!["published".into(), "ours".into()],
        groups: bandwidth.collect(),
    });
}

fn add_notes(sheet: &mut Sheet) {
    for note in [
        "A device that got less than 3 % of a run's reads is held to 3 % of the run's reads: 93 reads of 256,000 are no \
         rate.",
        "Who wins under latency is put in: one disk of each mirror is 0.3 ms quicker than the others, beside 18 ms in the \
         host's line. That it then gets everything is the policy. With disks in steps of 0.1 ms instead the lead changed on raid1c4, \
         and c4-lat was 12 % off. On raid10, where the lead did change, it is 0.06 ms.",
        "r10-lat is a draw: with copies that are nearly alike, how many reads the losing ones get is chance, in the source (10,748 and \
         2,921) as here. Ours is the mean of eight seeds, with the least and the most of them; what was published has to be among those.",
        "r1-pid takes 203 s, and 12 % longer than r1-dev with the same commands from the same disk; no other pid run \
         does. Noise of the source. That r1-dev is above r1-pid here is a matter of 0.05 %.",
        "r1b: two numbers, from its device and its roundrobin row; its other rows are predicted.",
        "The text of the posting calls roundrobin's reads \"almost double\"; its numbers are nine to thirteen times.",
        "The inflight pair is one unexplained observation: 20 reads of the other disk cannot cost 115,000 joins, and \
         0.55 commands a read means requests of more than 64 KiB. Beside it stands our raid1 under latency-2021.",
        "c4-rr prints 51.0 MiB/s where its run time says 52.0; r1b-rr prints 36.0 MB/s where 37.0 is meant.",
    ] {
        sheet.note(note);
    }
}
