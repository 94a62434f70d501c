//! The laboratory, benches, traces and the demo.

use super::ListFlags;
use crate::numbers::{count, hours, whole, within};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchWhat {
    /// CPU of a 4 KiB read on null:
    Engine,
    /// A pool on a file, beside a bare io_uring
    File,
    /// The NBD server, beside nbdkit and qemu-nbd
    Nbd,
    /// A pool with checksums, beside the same without
    Integrity,
    /// Parity made and rebuilt, and device I/Os of writes, beside Linux md
    Parity,
    /// Everything
    All,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(value_enum, default_value_t = BenchWhat::All)]
    pub(crate) what: BenchWhat,
    /// Runs of 0.3 s instead of 1 s
    #[arg(long)]
    pub(crate) quick: bool,
    /// NBD cases whose name contains one of these
    #[arg(long, value_name = "WORD,...")]
    pub(crate) only: Option<String>,
    /// Folder for sockets and files, on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Checksums of the pool
    #[arg(long, default_value = "none")]
    pub(crate) checksum: String,
    /// Socket
    pub(crate) unix: PathBuf,
    /// Bytes of the volume
    pub(crate) size: u64,
    /// Disks of the pool
    pub(crate) disk: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// How long each read policy is tried
    #[arg(long = "ms", default_value_t = 700, value_name = "MS")]
    pub(crate) milliseconds: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Write down what clients ask, for lab what-if --trace
    Record {
        /// A volume, or a pool for all of its volumes
        #[arg(value_name = "POOL[/VOL]")]
        of: String,
        /// The file to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// How long
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = count::<u64>)]
        seconds: u64,
        /// Ends early when the file is so large
        #[arg(long, value_name = "SIZE", default_value = "256M")]
        max_size: String,
    },
    /// What is in a trace, of braid or of blkparse
    Show {
        /// The trace
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Give a flight record to a fresh engine; exit code 1 when its outputs differ
    Replay {
        /// What braid daemon --flight-record wrote
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Published tables that can be run
    List(ListFlags),
    /// Ours beside published, with CSV and a report
    Run(LabNames),
    /// All of them
    All(LabFlags),
    /// Only what is out of tolerance; exit code 1 if anything is
    Check(LabCheck),
    /// A load on a pool as it is and on variants of it, in virtual time
    #[command(name = "what-if", after_long_help = WHAT_IF_HELP)]
    WhatIf(WhatIfArgs),
    /// Pools, clients, faults and crashes drawn from seeds; exit code 1 at the first run with a failure
    Swarm(SwarmFlags),
    /// Power cuts at every point of small runs; exit code 1 at the first point that does not hold what was promised
    Crash(CrashFlags),
    /// Every fault, and every two of them, in every phase of every profile
    Faults(FaultsFlags),
    /// Damaged inputs for everything that reads disks, sockets and files; exit code 1 at the first that fails
    Fuzz(FuzzFlags),
    /// What grows with the pool: CPU, memory, opening and rebuilding by number of devices and size of volumes
    Scale(LabScale),
}

#[derive(Args, Debug)]
pub(crate) struct LabCheck {
    #[command(flatten)]
    pub(crate) names: LabNames,
    /// Run everything again with another number of threads; exit code 1 if anything differs
    #[arg(long)]
    pub(crate) twice: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LabScale {
    /// Leave out the largest sizes
    #[arg(long)]
    pub(crate) quick: bool,
    /// Folder for scale.csv and report.html [default: braid-lab]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

const WHAT_IF_HELP: &str = "\
VARIANTS
  Each --set, --replace and --add is a variant of its own; --variant takes several changes that go together:
  --variant \"replace:hdd=ssd read_policy=latency\"   --variant \"add:nvme:1T profile=raid1c3\"

A POOL THAT IS NOT THERE
  box.toml:  data = \"raid1\"
             [[device]]
             class = \"nvme\"
             size = \"1T\"
             [[device]]
             class = \"hdd\"
             size = \"4T\"
             count = 2

EXAMPLES
  braid lab what-if --pool tank --job web.fio --set read_policy=queue --replace hdd=ssd
  braid lab what-if --pool box.toml --job web.fio --set read_policy=queue --set read_policy=zfs
  braid lab what-if --pool box.toml --files mail --model hdd=sdb.toml

What the tables say is in docs/lab.md, under What if.";

const WHAT_IF_USAGE: &str =
    "braid lab what-if --pool <POOL|FILE.toml> <--job <FILE>|--trace <FILE>|--files <NAME>> [OPTIONS]";

#[derive(Args, Debug)]
#[command(override_usage = WHAT_IF_USAGE)]
pub(crate) struct WhatIfArgs {
    /// A pool of the daemon, or a description of one (with a / or ending in .toml)
    #[arg(long, value_name = "POOL|FILE.toml")]
    pub(crate) pool: String,
    /// What is asked: a job file of fio
    #[arg(long, value_name = "FILE")]
    pub(crate) job: Option<PathBuf>,
    /// What is asked: a trace of blkparse, or of braid trace record
    #[arg(long, value_name = "FILE", conflicts_with = "job")]
    pub(crate) trace: Option<PathBuf>,
    /// What is asked: install, install-unsafe, tree or mail, with knobs: install,files=500
    #[arg(long, value_name = "NAME[,KNOB=VALUE]", conflicts_with_all = ["job", "trace"])]
    pub(crate) files: Option<String>,
    /// A variant with another property: read_policy=queue; profile= and metadata= are the profiles
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// A variant with all devices of a class replaced: hdd=ssd
    #[arg(long, value_name = "CLASS=CLASS")]
    pub(crate) replace: Vec<String>,
    /// A variant with one device more: nvme:1T; as large as the largest without a size
    #[arg(long, value_name = "CLASS[:SIZE]")]
    pub(crate) add: Vec<String>,
    /// A variant with several changes
    #[arg(long, value_name = "CHANGES")]
    pub(crate) variant: Vec<String>,
    /// How long a device or a class takes: hdd-5400, or a FILE.toml of device probe; else the usual model of its class
    #[arg(long, value_name = "DEVICE|CLASS=MODEL")]
    pub(crate) model: Vec<String>,
    /// Size of a file of the job that says none
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    pub(crate) size: String,
    /// A run is cut after so many virtual seconds
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = count::<u64>)]
    pub(crate) seconds: u64,
    /// A run is cut after so many answers
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = count::<u64>)]
    pub(crate) requests: u64,
    /// Runs of each variant, with other dice
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = |word: &str| within(word, 1..=99))]
    pub(crate) seeds: u64,
}

#[derive(Args, Debug)]
pub(crate) struct SwarmFlags {
    /// First seed [default: 0]
    #[arg(long, value_name = "S", conflicts_with = "scenario", value_parser = whole)]
    pub(crate) seed: Option<u64>,
    /// So many seeds [default: 1000, or as many as --hours has room for]
    #[arg(long, value_name = "N", conflicts_with = "scenario", value_parser = count::<u64>)]
    pub(crate) count: Option<u64>,
    /// For so long; 0.1 is six minutes
    #[arg(long, value_name = "H", conflicts_with = "scenario", value_parser = hours)]
    pub(crate) hours: Option<Duration>,
    /// Run this scenario, as a failure prints it
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Runs at once [default: one a core]
    #[arg(long, value_name = "N", value_parser = count::<std::num::NonZeroUsize>)]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
    /// Make this mistake on purpose, to see what a failure looks like, such as read-elsewhere
    #[arg(long = "break", value_name = "MISTAKE", conflicts_with = "scenario")]
    pub(crate) sabotage: Option<String>,
    /// Print the scenario that failed as it was drawn
    #[arg(long)]
    pub(crate) no_shrink: bool,
}

#[derive(Args, Debug)]
pub(crate) struct FuzzFlags {
    /// Such as log or control [default: all]
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    /// Seed of the inputs
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = whole)]
    pub(crate) seed: u64,
    /// So many inputs of each target [default: 10000]
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    pub(crate) count: Option<u64>,
    /// Number of the first input; the first ones are the corpus itself
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole)]
    pub(crate) from: u64,
    /// This input alone, as a failure left it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "count", "from"])]
    pub(crate) input: Option<PathBuf>,
    /// Folder for inputs that fail [default: .]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Seconds for one input: a slow one takes a hundredth of one
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = count::<u64>)]
    pub(crate) patience: u64,
    /// Make this mistake on purpose, to see what a failure looks like: panic, memory or endless
    #[arg(long = "break", value_name = "MISTAKE")]
    pub(crate) mistake: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct CrashFlags {
    /// So many crash points [default: 1000000]
    #[arg(long, value_name = "N", conflicts_with = "point")]
    pub(crate) count: Option<u64>,
    /// First seed of the scenarios' details [default: 0]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// One scenario, such as first-writes/raid1; or all of a kind, such as first-writes or raid1
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Option<String>,
    /// This point alone, as a failure prints it
    #[arg(long, value_name = "POINT", requires = "scenario")]
    pub(crate) point: Option<String>,
    /// Scenarios at once [default: one a core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
    /// Let one state in 16 recover to its end and open again: what was read once has to stay
    #[arg(long)]
    pub(crate) alike: bool,
    /// Cross each state with every loss of members that the profiles spare, in place of one that is drawn
    #[arg(long, conflicts_with = "point")]
    pub(crate) every_loss: bool,
    /// Cut no recovery: more runs with as many points
    #[arg(long, conflicts_with = "point")]
    pub(crate) once: bool,
    /// Make this mistake on purpose, to see what a failure looks like, such as flush-not-passed-on
    #[arg(long = "break", value_name = "MISTAKE")]
    pub(crate) mistake: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct FaultsFlags {
    /// One profile, such as raid1
    #[arg(long, value_name = "PROFILE", conflicts_with = "case")]
    pub(crate) profile: Option<String>,
    /// One fault at a time only
    #[arg(long, conflicts_with = "case")]
    pub(crate) single: bool,
    /// Of two faults on parity of other than the usual numbers of members, one case in N
    #[arg(long, value_name = "N", conflicts_with = "case")]
    pub(crate) sample: Option<std::num::NonZeroUsize>,
    /// In place of all, so many of two faults on parity over 7 to 16 members, drawn
    #[arg(long, value_name = "N", conflicts_with_all = ["case", "profile", "single", "sample"])]
    pub(crate) drawn: Option<usize>,
    /// What they are drawn from
    #[arg(long, value_name = "N", default_value_t = 0, requires = "drawn")]
    pub(crate) seed: u64,
    /// This case alone, as a failure prints it
    #[arg(long, value_name = "CASE")]
    pub(crate) case: Option<String>,
    /// Cases at once [default: one a core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
}

#[derive(Args, Debug)]
pub(crate) struct LabNames {
    /// Tables, see lab list, or all [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) flags: LabFlags,
}

#[derive(Args, Debug)]
pub(crate) struct LabFlags {
    /// Folder for NAME.csv and report.html [default: braid-lab; check writes nothing without it]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Scenarios at once; results are the same [default: one a core]
    #[arg(long, value_name = "N", value_parser = count::<std::num::NonZeroUsize>)]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
    /// Put the tables into this document, between its marks; check compares instead
    #[arg(long, value_name = "FILE")]
    pub(crate) docs: Option<PathBuf>,
}
