//! Random reads beside a sequential scrub, before and after OpenZFS held its background work back.
//!
//! Source: OpenZFS pull request 11166, "Reduce latency effects of non-interactive I/O", 2020-11, its commit message and
//! discussion: fio, 4 KiB random reads at depth 1 from 100 GiB of a volume of 16 KiB blocks on a pool just written,
//! FreeBSD, histograms of a minute by powers of two.
//!
//! Scenario: the engine's own scrub, the published queues, and the disks as modelled. 100 GiB are all there is, as in the
//! source: at the beginning of each disk, so seeks are short, and the disk's 166 reads a second without scrub say so too.
//!
//! What the published scrub does and ours does not: it works inside of transaction groups, for up to 5 s
//! (`zfs_txg_timeout`), then waits for its own reads and rests while the group is written (`dsl_scan.c` at that commit). The
//! runs with a published queue do likewise, before and after alike: a round of writes, a flush, a round for the labels, a
//! flush. How long the scrub rests is what the disks make of that, and reads are beside it. How much a group writes is not
//! published: the 15 of [`GROUPS`] are fitted.
//!
//! Fitted, by drive: the hard deadline of passing over, from its `before` rows (that there is one, of 1 to 4 s by model, the
//! author of the change measured); the growth of the read-ahead, from the count of reads `after` of the WD20EFRX; the seek
//! to the next track of the ST14000NM0048, between its reads without scrub and its 99th percentile `after`; the SSD's time of
//! a read and its stream, from its reads `before` and the idle scrub that became no faster. Fitted for all: the 15 writes,
//! with both disks' ratios of reads in view. Predicted: the shapes, and everything else `after` of the ST14000NM0048 and of
//! the SSD.

mod draid;

use braid_core::Profile;

use crate::device::Model;
use crate::lab::groups::Groups;
use crate::lab::outcome::JobOutcome;
use crate::lab::script::Work;
use crate::lab::{self, Access, Direction, Job, Member, Outcome, Setup, Sizes};
use crate::table::{Lab, Plot, Row, Sheet, Table, Within};

/// See the file.
pub(super) const TABLE: Table = Table {
    name: "zfs-scrub",
    title: "random reads beside a scrub",
    source: "OpenZFS pull request 11166, 2020-11: 4 KiB random reads at depth 1 during a sequential scrub, two disks, an SSD",
    seed: 2,
    run,
};

const SECOND: u64 = 1_000_000_000;
const BUCKETS: usize = 13;
/// What is not counted: the scrub gathers, queues find their rhythm. A period of groups.
const RAMP_NS: u64 = 5 * SECOND;
/// Of a scrub alone.
const IDLE_NS: u64 = 10 * SECOND;
const VOLUME: u64 = 100 << 30;
/// Transaction groups of a published scrub: `zfs_txg_timeout`; blocks, then labels; fitted, see the file.
const GROUPS: Groups = Groups { period_ns: 5 * SECOND, rounds: 2, writes: 15, area: VOLUME };

/// A pool of the source and its two histograms: bucket `i` counts reads of (2^(i-1), 2^i] units.
struct Pool {
    name: &'static str,
    model: &'static str,
    class: &'static str,
    size: u64,
    members: usize,
    /// Of data and metadata.
    profiles: (Profile, Profile),
    /// What is scrubbed: more than a scrub comes to while reads are counted.
    volume: u64,
    /// Memory of a published scrub, where it is not ours.
    scrub_memory: Option<&'static str>,
    /// Bytes of a read, and reads at once.
    read: u64,
    depth: u64,
    /// Of the histograms.
    unit: &'static str,
    unit_ns: u64,
    /// Virtual time that is counted of each run; the source counts a minute.
    counted_ns: u64,
    /// Of other seeds, whose reads are taken together: a minute of a disk is some two hundred reads, and varies by a tenth.
    runs: u64,
    before: [u64; BUCKETS],
    after: [u64; BUCKETS],
}

const POOLS: [Pool; 3] = [
    Pool {
        name: "WD20EFRX, 4 mirrors",
        model: "hdd-5400",
        class: "hdd",
        size: 2_000_398_934_016,
        members: 8,
        profiles: (Profile::Raid1, Profile::Raid1),
        volume: VOLUME,
        scrub_memory: None,
        read: 4096,
        depth: 1,
        unit: "ms",
        unit_ns: 1_000_000,
        counted_ns: 60 * SECOND,
        runs: 4,
        before: [0, 0, 2, 1, 12, 21, 19, 18, 10, 15, 17, 21, 0],
        after: [0, 0, 0, 24, 101, 195, 419, 250, 47, 4, 0, 0, 0],
    },
    Pool {
        name: "ST14000NM0048",
        model: "hdd-14t",
        class: "hdd",
        size: 14_000_519_643_136,
        members: 1,
        profiles: (Profile::Single, Profile::Dup),
        volume: VOLUME,
        scrub_memory: None,
        read: 4096,
        depth: 1,
        unit: "ms",
        unit_ns: 1_000_000,
        counted_ns: 60 * SECOND,
        runs: 4,
        before: [0, 0, 29, 70, 107, 45, 27, 1, 0, 0, 1, 4, 19],
        after: [1, 29, 681, 1261, 676, 1633, 67, 1, 0, 0, 0, 0, 0],
    },
    Pool {
        name: "XS3840TE70014",
        model: "sas-ssd",
        class: "ssd",
        size: 3_840_755_982_336,
        members: 1,
        profiles: (Profile::Single, Profile::Dup),
        volume: VOLUME,
        scrub_memory: None,
        read: 4096,
        depth: 1,
        unit: "us",
        unit_ns: 1_000,
        counted_ns: 5 * SECOND,
        runs: 1,
        before: [0, 0, 0, 0, 0, 0, 0, 0, 70, 18_343, 82_548, 618, 0],
        after: [0, 0, 0, 0, 0, 0, 0, 0, 283, 92_351, 34_844, 90, 0],
    },
];

impl Pool {
    /// What it is run with: all there is, and where there are mirrors to keep busy, with more readers.
    fn modes(&self) -> impl Iterator<Item = Mode> {
        let has_mirrors = self.has_mirrors();
        MODES.into_iter().filter(move |mode| has_mirrors || !matches!(mode, Mode::Busy(_)))
    }

    fn has_mirrors(&self) -> bool {
        self.members > 1
    }
}

/// What a pool is run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A published queue, under its name, with reads beside the scrub.
    Published(&'static str),
    /// The same with [`BUSY`] readers.
    Busy(&'static str),
    /// All of braid's defaults, likewise.
    Braid,
    /// Reads alone.
    NoScrub,
    /// A scrub alone, under that published queue.
    Idle(&'static str),
    /// The same with braid's defaults.
    BraidIdle,
}

const BEFORE: Mode = Mode::Published("zfs-before");
const AFTER: Mode = Mode::Published("zfs-pr11166");
const LATER: Mode = Mode::Published("zfs-2.0.1");
const BUSY_BEFORE: Mode = Mode::Busy("zfs-before");
const BUSY_AFTER: Mode = Mode::Busy("zfs-pr11166");
const IDLE_BEFORE: Mode = Mode::Idle("zfs-before");
const IDLE_AFTER: Mode = Mode::Idle("zfs-pr11166");
const MODES: [Mode; 10] = [
    BEFORE,
    AFTER,
    LATER,
    BUSY_BEFORE,
    BUSY_AFTER,
    Mode::Braid,
    Mode::NoScrub,
    IDLE_BEFORE,
    IDLE_AFTER,
    Mode::BraidIdle,
];

/// Readers at once of a pool that is busy: one leaves each of four mirrors alone for three quarters of the time.
const BUSY: u64 = 2;

fn run(lab: &Lab, seed: u64) -> Sheet {
    let modes = |pool: &'static Pool| pool.modes().map(move |mode| (pool, mode));
    let runs = |(pool, mode): (&'static Pool, Mode)| (0..pool.runs).map(move |run| (pool, mode, seed + run));
    let jobs: Vec<(&Pool, Mode, u64)> = POOLS.iter().flat_map(modes).flat_map(runs).collect();
    let mut outcomes = lab.each(&jobs, |&(pool, mode, seed)| scenario(pool, mode, seed)).into_iter();
    let mut sheet = Sheet::default();
    for pool in &POOLS {
        let in_turn = pool.modes().map(|mode| {
            let runs: Vec<Outcome> = outcomes.by_ref().take(pool.runs as usize).collect();
            runs.iter().for_each(|run| sheet.traced(run.hash));
            (mode, together(runs))
        });
        let outcomes: Vec<(Mode, Outcome)> = in_turn.collect();
        let of = |mode: Mode| outcomes.iter().find(|run| run.0 == mode).map(|run| &run.1).expect("it was run");
        judge_reads(&mut sheet, pool, of(BEFORE), of(AFTER));
        judge_scrub(&mut sheet, pool, &of);
        judge_braid(&mut sheet, pool, of(Mode::Braid), of(AFTER));
        show(&mut sheet, pool, &of);
        plot(&mut sheet, pool, &of);
        if pool.model == "hdd-14t" {
            quoted(&mut sheet, iops(of(BEFORE)), iops(of(AFTER)), iops(of(Mode::NoScrub)));
        }
    }
    draid::judge(&mut sheet, lab, &POOLS[1], seed);
    notes(&mut sheet);
    sheet
}

/// Runs of several seeds as one: reads of all of them, the mean of the scrub's speed. What goes over time is that of the first.
fn together(runs: Vec<Outcome>) -> Outcome {
    let mut scrubs = 0;
    let count = runs.len() as u64;
    let all = runs.into_iter().inspect(|run| scrubs += run.scrub_bytes_per_s).reduce(|mut all, run| {
        all.jobs[0].add(&run.jobs[0]);
        all
    });
    Outcome { scrub_bytes_per_s: scrubs / count, ..all.expect("there is one") }
}

// ---- scenario -------------------------------------------------------------------------------------------------------

fn scenario(pool: &Pool, mode: Mode, seed: u64) -> Outcome {
    let model = Model::shipped(pool.model).expect("it comes with the crate");
    let member = |i| Member::new(&format!("{}{i}", pool.class), pool.size, pool.class, model.clone());
    let members: Vec<Member> = (0..pool.members).map(member).collect();
    let (data, metadata) = pool.profiles;
    let mut setup = Setup::new(members, data, metadata, pool.volume);
    setup.scrub = mode != Mode::NoScrub;
    if let Mode::Published(scheduler) | Mode::Busy(scheduler) | Mode::Idle(scheduler) = mode {
        setup.settings = vec![("scheduler".into(), scheduler.into()), ("read_policy".into(), "zfs".into())];
        setup.settings.extend(pool.scrub_memory.map(|size| ("scrub_memory".into(), size.into())));
    }
    let mut jobs = vec![reader(pool, mode)];
    if matches!(mode, Mode::Published(_) | Mode::Busy(_) | Mode::Idle(_)) {
        jobs.push(groups(&jobs[0]));
    }
    lab::run(&setup, &jobs, seed).unwrap_or_else(|why| panic!("{}, {mode:?}: {why}", pool.name))
}

/// As fio was told. For a scrub alone: a single read when the time is over.
fn reader(pool: &Pool, mode: Mode) -> Job {
    let sizes = [Sizes::fixed(pool.read), Sizes::fixed(pool.read)];
    let random = Job { name: "reader".into(), access: Access::Random, each_once: false, sizes, ..Job::default() };
    match mode {
        Mode::Idle(_) | Mode::BraidIdle => Job { start_ns: IDLE_NS, io_size: Some(4096), ..random },
        _ => {
            let depth = if matches!(mode, Mode::Busy(_)) { BUSY } else { pool.depth };
            Job { depth, time_based: true, ramp_ns: RAMP_NS, runtime_ns: Some(pool.counted_ns), ..random }
        }
    }
}

/// For as long as there is a reader.
fn groups(reader: &Job) -> Job {
    let ns = reader.start_ns + reader.ramp_ns + reader.runtime_ns.unwrap_or(0);
    Job { name: "groups".into(), client: 1, work: Some(Work::Groups(GROUPS)), runtime_ns: Some(ns), ..Job::default() }
}

/// What the reader got.
fn reads(outcome: &Outcome) -> &JobOutcome {
    &outcome.jobs[0]
}

/// Reads by powers of two of the pool's unit.
fn histogram(pool: &Pool, outcome: &Outcome) -> Vec<u64> {
    reads(outcome).side(Direction::Read).latency.powers_of_two(pool.unit_ns)
}

fn iops(outcome: &Outcome) -> f64 {
    reads(outcome).milli_iops() as f64 / 1000.0
}

fn scrub_mib_per_s(outcome: &Outcome) -> f64 {
    outcome.scrub_bytes_per_s as f64 / f64::from(1 << 20)
}

/// Upper edge of the bucket where so many of a thousand are reached.
fn edge(histogram: &[u64], permille: u64) -> f64 {
    let wanted = (histogram.iter().sum::<u64>() * permille).div_ceil(1000);
    let mut seen = 0;
    let bucket = histogram.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    (bucket.unwrap_or(0) as f64).exp2()
}

// ---- rows -----------------------------------------------------------------------------------------------------------

fn judge_reads(sheet: &mut Sheet, pool: &Pool, before: &Outcome, after: &Outcome) {
    let total = |histogram: &[u64]| histogram.iter().sum::<u64>() as f64;
    let (was, is) = (total(&pool.before), total(&pool.after));
    for (when, published, outcome) in [("before", &pool.before, before), ("after", &pool.after, after)] {
        let what = |what: &str| format!("{}, {when}: {what}", pool.name);
        let ours = histogram(pool, outcome);
        let (p99, max) = (edge(published, 990), edge(published, 1000));
        sheet.rows.push(Row::new(what("p99, bucket up to"), pool.unit, p99, edge(&ours, 990), Within::Buckets(0)));
        sheet.rows.push(Row::new(what("longest, bucket up to"), pool.unit, max, edge(&ours, 1000), Within::Buckets(1)));
        let a_minute = iops(outcome) * 60.0;
        sheet.rows.push(Row::new(what("reads a minute"), "reads", total(published), a_minute, Within::Shown));
    }
    let ratio = iops(after) / iops(before);
    let what = format!("{}: reads after / before", pool.name);
    sheet.rows.push(Row::new(what, "times", is / was, ratio, Within::Percent(25.0)));
}

/// What the change costs the scrub.
fn judge_scrub<'a>(sheet: &mut Sheet, pool: &Pool, of: &impl Fn(Mode) -> &'a Outcome) {
    let longer = |before: Mode, after: Mode| scrub_mib_per_s(of(before)) / scrub_mib_per_s(of(after));
    let what = format!("{}: scrub time after / before, with reads", pool.name);
    sheet.rows.push(Row::ours(what, "times", longer(BEFORE, AFTER)));
    if pool.has_mirrors() {
        // Given together, of a busy pool without a name, in two digits and in one.
        let reads = iops(of(BUSY_AFTER)) / iops(of(BUSY_BEFORE));
        let scrub = longer(BUSY_BEFORE, BUSY_AFTER);
        let rows = [
            ("reads after / before", reads, Within::Range(4.5, 9.5)),
            ("scrub time after / before", scrub, Within::Range(1.45, 1.75)),
        ];
        sheet.rows.extend(rows.map(|(what, ours, within)| {
            let what = format!("{}, {BUSY} readers: {what}", pool.name);
            Row { published: None, ..Row::new(what, "times", 0.0, ours, within) }
        }));
    }
    let idle = longer(IDLE_BEFORE, IDLE_AFTER);
    let what = format!("{}: scrub time after / before, idle", pool.name);
    sheet.rows.push(Row::new(what, "times", 1.0, idle, Within::Percent(5.0)));
}

fn judge_braid(sheet: &mut Sheet, pool: &Pool, braid: &Outcome, after: &Outcome) {
    let of = |outcome: &Outcome| {
        let latency = &reads(outcome).side(Direction::Read).latency;
        (latency.quantile_ns(990), latency.max_ns)
    };
    let (ours, theirs) = (of(braid), of(after));
    let bucket = |ns: u64| ns.div_ceil(pool.unit_ns).next_power_of_two();
    let shown = |ns: u64| format!("{:.1}", ns as f64 / pool.unit_ns as f64);
    sheet.claim(
        format!("{}: braid's p99 and longest read are in no later bucket than after", pool.name),
        bucket(ours.0) <= bucket(theirs.0) && bucket(ours.1) <= bucket(theirs.1),
        format!(
            "p99 {} and {} {unit}, longest {} and {} {unit}, scrub {:.0} and {:.0} MiB/s",
            shown(ours.0),
            shown(theirs.0),
            shown(ours.1),
            shown(theirs.1),
            scrub_mib_per_s(braid),
            scrub_mib_per_s(after),
            unit = pool.unit,
        ),
    );
}

/// Reads and scrub side by side; nobody published these.
fn show<'a>(sheet: &mut Sheet, pool: &Pool, of: &impl Fn(Mode) -> &'a Outcome) {
    for (name, mode) in [("before", IDLE_BEFORE), ("after", IDLE_AFTER), ("braid", Mode::BraidIdle)] {
        sheet.rows.push(Row::ours(format!("{}, {name}: idle scrub", pool.name), "MiB/s", scrub_mib_per_s(of(mode))));
    }
    for (name, mode) in [("before", BEFORE), ("after", AFTER), ("zfs-2.0.1", LATER), ("braid", Mode::Braid)] {
        let (outcome, what) = (of(mode), |what: &str| format!("{}, {name}: {what}", pool.name));
        sheet.rows.push(Row::ours(what("scrub beside reads"), "MiB/s", scrub_mib_per_s(outcome)));
        if matches!(mode, LATER | Mode::Braid) {
            let ours = histogram(pool, outcome);
            sheet.rows.push(Row::ours(what("reads a minute"), "reads", iops(outcome) * 60.0));
            sheet.rows.push(Row::ours(what("p99, bucket up to"), pool.unit, edge(&ours, 990)));
            sheet.rows.push(Row::ours(what("longest, bucket up to"), pool.unit, edge(&ours, 1000)));
        }
    }
}

/// Averages that the discussion quotes for the ST14000NM0048.
fn quoted(sheet: &mut Sheet, before: f64, after: f64, without: f64) {
    let row = |what: &str, published, ours, within| {
        Row::new(format!("ST14000NM0048, quoted: {what}"), "reads/s", published, ours, within)
    };
    sheet.rows.push(row("without scrub", 166.0, without, Within::Percent(25.0)));
    sheet.rows.push(row("after", 73.0, after, Within::Percent(25.0)));
    sheet.rows.push(row("before", 22.0, before, Within::Shown));
}

fn notes(sheet: &mut Sheet) {
    for note in [
        "Before, the histogram of the ST14000NM0048 has 5 reads a second and the text 22: not the same stretch of time. \
         After, both say 73. Judged is the histogram.",
        "Scrub time with reads (1.5 to 1.7 times, where reads became 5 to 9 times as many, both rounded) is given for a busy \
         pool that is not named. Of these that is the mirrors, and two readers at once: a single one leaves each of the four \
         alone for three quarters of the time, and their scrub slows down less. With three readers ours gives 1.6 times, \
         with four 1.7, and reads are 11 and 12 times as many.",
        "Published scrubs rest while a transaction group is written, every 5 s (OpenZFS): twice 15 writes of 4 KiB, each time \
         with a flush. Twice is blocks and labels; 15 is fitted to the ratios of both disks. Without rests nothing but \
         the drive's own deadline lets reads through. The groups of the \
         source's disks were of different sizes, and so its waits of 128 to 1,024 ms are missing here.",
        "Disks: reads of four minutes, of four seeds. Before, a minute of the mirrors is some two hundred, and varies by a tenth.",
        "The idle fragmented pool, where the scrub became a few percent faster, is left out: the volume here is in one piece.",
        "dRAID2 of 34 disks is a remark without a table; ours is raid6 over as many, with rows of 32 strips in place of 8. Its disks were \
         close to their most reads a second, with a scrub or without; the depth is not published. Here it is what fills the ten places \
         that the source's queue has for reads, on each disk. Means depend on it: with 32 reads at once after / before is 0.26, with 36 it is \
         0.36, with 50 it is 0.67. A published scrub has 4 MiB under way for each disk there, as OpenZFS had (zfs_scan_vdev_limit).",
        "SSD: 5 s of virtual time. Its time of a read, 250 us, and its stream of 356 MiB/s have the host's share in them, which \
         was not published; the drive alone does more.",
        "braid runs with its defaults but for checksums and marks of write intent, as all systems of the tables, and without groups.",
    ] {
        sheet.note(note);
    }
}

// ---- pictures -------------------------------------------------------------------------------------------------------

fn plot<'a>(sheet: &mut Sheet, pool: &Pool, of: &impl Fn(Mode) -> &'a Outcome) {
    let ours = |mode| histogram(pool, of(mode));
    let series = [
        ("before, published", pool.before.to_vec()),
        ("before", ours(BEFORE)),
        ("after, published", pool.after.to_vec()),
        ("after", ours(AFTER)),
        ("braid", ours(Mode::Braid)),
    ];
    let percent = |histogram: &[u64], bucket: usize| {
        let count = histogram.get(bucket).copied().unwrap_or(0);
        count as f64 * 100.0 / histogram.iter().sum::<u64>().max(1) as f64
    };
    let used = |bucket: &usize| series.iter().any(|(_, histogram)| percent(histogram, *bucket) > 0.0);
    let group = |bucket| {
        let bars = series.iter().map(|(_, histogram)| percent(histogram, bucket)).collect();
        (format!("{} {}", 1u64 << bucket, pool.unit), bars)
    };
    sheet.plots.push(Plot::Bars {
        title: format!("{}: reads by latency, up to", pool.name),
        unit: "%",
        series: series.iter().map(|(name, _)| (*name).into()).collect(),
        groups: (0..BUCKETS).filter(used).map(group).collect(),
    });
    let line = |(name, mode): (&str, Mode)| (name.to_string(), over_time(pool, of(mode)));
    sheet.plots.push(Plot::Lines {
        title: format!("{}: the longest read of each moment", pool.name),
        units: ("s", pool.unit),
        log: (false, true),
        lines: [("before", BEFORE), ("after", AFTER), ("braid", Mode::Braid)].map(line).into(),
    });
}

fn over_time(pool: &Pool, outcome: &Outcome) -> Vec<(f64, f64)> {
    let timeline = &reads(outcome).timeline;
    let moments = timeline.moments.iter().enumerate().filter(|(_, moment)| moment.ios > 0);
    let at = |i: usize| (i as u64 * timeline.step_ns) as f64 / SECOND as f64;
    moments.map(|(i, moment)| (at(i), moment.max_ns as f64 / pool.unit_ns as f64)).collect()
}
