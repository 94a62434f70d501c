//! How long an upgrade of packages takes, by where metadata is.
//!
//! Source: linux-btrfs, "btrfs: add ssd_metadata mode", cover letter, April 2020: wall time of a Debian dist-upgrade from
//! local packages, an SSD of 20 GB and a disk of 230 GB, profile single; once as it is, once with dpkg told to leave most
//! syncs out (`force-unsafe-io`). Judged are times relative to btrfs on the SSD, within 15 %.
//!
//! Scenario: 100 packages of 2,000, so a twentieth. A package is 84 files that are unpacked, each synced or none, and 42
//! steps of its state, synced in both variants. A sync writes the data to wherever there is room, 32 KiB of log, flushes, and
//! writes the superblock; data and metadata are told apart in the requests, and the pool places chunks by that. Without
//! syncs unpacked data goes out in windows of 64 MiB. One set of numbers for all rows, but for the syncs of files.
//!
//! Fitted, on the rows of one device only: CPU, how many syncs of which kind, and the SSD's flush. SSD + HDD and bcache are
//! predictions.

use std::sync::Arc;

use braid_core::Profile;
use braid_core::units::{GIB, KIB, MIB};

use crate::device::{Cache, Model};
use crate::lab::files::Files;
use crate::lab::script::Work;
use crate::lab::{self, Job, Member, Outcome, Setup, Stop};
use crate::table::{Lab, Plot, Row, Sheet, Table, Within};

/// See the file.
pub(in crate::tables) const TABLE: Table = Table {
    name: "ssd-metadata-upgrade",
    title: "a package upgrade with metadata on the SSD",
    source: "linux-btrfs, April 2020: btrfs: add ssd_metadata mode, Debian dist-upgrade on SSD 20 GB and HDD 230 GB",
    seed: 20,
    run,
};

/// What the volume is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Hdd,
    SsdMetadata,
    Bcache,
    Ssd,
    /// braid's own mode on SSD and HDD.
    Tiers,
    /// As Linux has it: flushes go to the disk as well.
    BcachePassing,
}

use Pool::*;

const POOLS: [(Pool, &str); 6] = [
    (Hdd, "HDD"),
    (SsdMetadata, "SSD + HDD, ssd-metadata"),
    (Bcache, "bcache, SSD + HDD"),
    (Ssd, "SSD"),
    (Tiers, "SSD + HDD, tiers"),
    (BcachePassing, "bcache that passes flushes on"),
];

/// Whether files are synced, and seconds on HDD, SSD + HDD with `ssd_metadata`, bcache, SSD.
const PUBLISHED: [(&str, bool, [f64; 4]); 2] =
    [("with syncs", true, [8558.0, 4864.0, 2159.0, 1351.0]), ("unsafe-io", false, [3362.0, 2010.0, 1137.0, 944.0])];
const WITHIN: Within = Within::Percent(15.0);

/// One of so many packages is installed.
const SCALE: u64 = 20;
const PACKAGES: u64 = 2000 / SCALE;

/// A package in numbers. Sizes are those of files in packages, 4 to 32 KiB; counts and CPU are fitted.
fn files(synced: bool) -> Files {
    const PACKAGE_FILES: u64 = 84;
    Files {
        files: PACKAGES * PACKAGE_FILES,
        write_bytes: (4 * KIB, 32 * KIB),
        metadata_reads: 0,
        cpu_ns: 2_000_000,
        sync_every: u64::from(synced),
        package_files: PACKAGE_FILES,
        package_syncs: 42,
        package_cpu_ns: 4_800_000,
        sync_metadata_bytes: 32 * KIB,
        scattered: true,
        commit_every: 1_000,
        metadata_bytes: 2 * KIB,
        metadata_area: 512 * MIB,
        data_area: 8 * GIB,
        ..Files::default()
    }
}

fn run(lab: &Lab, seed: u64) -> Sheet {
    let cases: Vec<(bool, Pool)> =
        PUBLISHED.iter().flat_map(|(_, synced, _)| POOLS.iter().map(|(pool, _)| (*synced, *pool))).collect();
    let outcomes = lab.each(&cases, |&(synced, pool)| upgrade(synced, pool, seed));
    let mut sheet = Sheet::default();
    outcomes.iter().for_each(|outcome| sheet.traced(outcome.hash));
    let all_done = outcomes.iter().all(|outcome| outcome.stop == Stop::Done);
    sheet.claim("every upgrade ends", all_done, format!("{} of them", outcomes.len()));
    let seconds: Vec<f64> = outcomes.iter().map(|outcome| outcome.ns as f64 / 1e9).collect();
    let variants: Vec<&[f64]> = seconds.chunks(POOLS.len()).collect();
    for ((name, _, published), ours) in PUBLISHED.iter().zip(&variants) {
        variant(&mut sheet, name, published, ours);
    }
    let unsafe_share = |ssd: [f64; 2]| ssd[1] / ssd[0];
    let (theirs, ours) = ([0, 1].map(|v: usize| PUBLISHED[v].2[3]), [0, 1].map(|v: usize| variants[v][3]));
    let what = "SSD: unsafe-io to with syncs (fitted)";
    sheet.rows.push(Row::new(what, "ratio", unsafe_share(theirs), unsafe_share(ours), WITHIN));
    sheet.plots.extend(PUBLISHED.iter().zip(&variants).map(|((name, _, published), ours)| plot(name, published, ours)));
    notes(&mut sheet);
    sheet
}

/// Its rows; times as of all packages.
fn variant(sheet: &mut Sheet, name: &str, published: &[f64; 4], ours: &[f64]) {
    for ((pool, pool_name), (i, seconds)) in POOLS.iter().zip(ours.iter().enumerate()) {
        let ratio = seconds / ours[3];
        let fitted = if *pool == Hdd { " (fitted)" } else { "" };
        let what = format!("{name}: {pool_name}{fitted}");
        // The SSD beside itself is 1, whatever happens.
        let within = if *pool == Ssd { Within::Shown } else { WITHIN };
        sheet.rows.push(match published.get(i) {
            Some(theirs) => Row::new(what, "times SSD", theirs / published[3], ratio, within),
            None => Row::ours(what, "times SSD", ratio),
        });
    }
    let faster = |seconds: &[f64]| seconds[0] / seconds[1];
    let what = format!("{name}: metadata on the SSD, speed-up over HDD");
    sheet.rows.push(Row::new(what, "times", faster(published), faster(ours), WITHIN));
    sheet.claim(
        format!("{name}: HDD, SSD + HDD, bcache, SSD get faster in this order"),
        ours[..4].is_sorted_by(|a, b| a > b),
        format!("{:.0?} s", ours[..4].iter().map(|s| s * SCALE as f64).collect::<Vec<_>>()),
    );
    sheet.claim(
        format!("{name}: braid's tiers are as fast as ssd-metadata, or faster"),
        ours[4] <= ours[1] * 1.01,
        format!("{:.0} s and {:.0} s", ours[4] * SCALE as f64, ours[1] * SCALE as f64),
    );
}

fn plot(name: &str, published: &[f64; 4], ours: &[f64]) -> Plot {
    let bars = |i: usize| match published.get(i) {
        Some(theirs) => vec![*theirs, ours[i] * SCALE as f64],
        None => vec![0.0, ours[i] * SCALE as f64],
    };
    Plot::Bars {
        title: format!("an upgrade of 2,000 packages, {name}"),
        unit: "s",
        series: vec!["published".into(), "ours".into()],
        groups: POOLS.iter().enumerate().map(|(i, (_, pool))| (pool.to_string(), bars(i))).collect(),
    }
}

fn notes(sheet: &mut Sheet) {
    sheet.note("A twentieth of the packages is installed; the seconds shown are twenty times those of the run.");
    sheet.note("Fitted on SSD and HDD alone: four times, hence three ratios. SSD + HDD and bcache are predictions.");
    sheet.note(
        "Assumed, with all rows in view: that the log of a sync is one run of blocks, and that free space is in pieces, over \
         8 GiB. Over 2 GiB the ratios are 6.15 and 3.43 with syncs, 3.47 and 2.16 without.",
    );
    sheet.note(
        "The mail names no drives: the HDD is model hdd as it is shipped, the SSD model sata-ssd with a flush of 2.1 ms.",
    );
    sheet.note(
        "Left out: btrfs writes its superblock to every device, here it is metadata and goes to the SSD alone; reads, since \
         packages and trees are in memory.",
    );
    sheet.note(
        "bcache as judged keeps flushes on the SSD. The one of Linux passes them on; with a model that writes back all \
         above a tenth of the cache each then waits for the disk, which is slower than what was measured. The rate \
         control of its write-back is not modelled.",
    );
    sheet.note("The rows of ext4 are left out: another file system's syncs, and nothing that placement changes.");
}

fn upgrade(synced: bool, pool: Pool, seed: u64) -> Outcome {
    let job = Job { work: Some(Work::Files(files(synced))), ..Job::default() };
    lab::run(&setup(pool), &[job], seed).expect("the setup makes sense")
}

fn setup(pool: Pool) -> Setup {
    let model = |name| Model::shipped(name).expect("it comes with the crate");
    let ssd = || Member::new("ssd", 20 * GIB, "ssd", model("sata-ssd-20g"));
    let hdd = || Member::new("hdd", 230 * GIB, "hdd", model("hdd"));
    let members = match pool {
        Hdd => vec![hdd()],
        SsdMetadata | Tiers => vec![ssd(), hdd()],
        Ssd => vec![ssd()],
        Bcache | BcachePassing => {
            // bcache aims at a tenth of the cache; as everything here, a part of that.
            let dirty_kib = 20 * GIB / KIB / 10 / SCALE;
            let cache =
                Cache { model: Arc::new(model("sata-ssd-20g")), dirty_kib, passes_flushes: pool == BcachePassing };
            vec![Member::new("bcache", 230 * GIB, "hdd", model("hdd").behind(cache))]
        }
    };
    let mut setup = Setup::new(members, Profile::Single, Profile::Single, 9 * GIB);
    if pool != Tiers {
        setup.settings.push(("allocation".into(), "ssd-metadata".into()));
    }
    setup
}
