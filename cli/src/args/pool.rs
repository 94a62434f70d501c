//! Pools: made, looked at, changed.

use super::{ChangeFlags, ListArgs, ListFlags};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// Name of the pool and its devices: /dev/sdb, ./disk.img, ram:1G, sdb, model:hdd,./disk.img
    #[arg(value_name = "POOL DEVICE")]
    pub(crate) words: Vec<String>,
    /// Profile of data: single dup raid0 raid1 raid1c3 raid1c4 raid10 raid5 raid6; raid1@ssd,hdd with classes
    #[arg(short, long, value_name = "PROFILE", allow_hyphen_values = true)]
    pub(crate) data: Option<String>,
    /// Profile of metadata
    #[arg(short, long, visible_alias = "meta", value_name = "PROFILE")]
    pub(crate) metadata: Option<String>,
    /// Class of devices; devices that are only named here become members too
    #[arg(long, value_name = "CLASS=DEVICE,...")]
    pub(crate) class: Vec<String>,
    /// Tier of a chunk type on devices or classes: metadata=0@ssd, data=255@/dev/sdb
    #[arg(long, value_name = "TYPE=N@WHERE,...")]
    pub(crate) tier: Vec<String>,
    /// Make sparse files and use them: 4x2G
    #[arg(long, value_name = "NxSIZE")]
    pub(crate) file: Option<String>,
    /// Folder for --file [default: $XDG_DATA_HOME/braid/POOL]
    #[arg(long, value_name = "DIR", requires = "file")]
    pub(crate) dir: Option<PathBuf>,
    /// Make a volume of this size: create -V 10G tank/v
    #[arg(short = 'V', value_name = "SIZE")]
    pub(crate) volume_size: Option<String>,
    /// Allocation mode: stock ssd-metadata-v1 ssd-metadata allocation-hint tiers
    #[arg(long)]
    pub(crate) mode: Option<String>,
    /// Fail rather than spill to another tier
    #[arg(long)]
    pub(crate) strict: bool,
    /// Read policy to begin with
    #[arg(long, value_name = "POLICY")]
    pub(crate) read_policy: Option<String>,
    /// Further properties
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE")]
    pub(crate) option: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

#[derive(Args, Debug)]
pub(crate) struct DestroyArgs {
    /// Pool, or POOL/VOLUME
    pub(crate) name: String,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// Names or uuids of pools to open, and devices to search; without a name pools are only listed
    #[arg(value_name = "POOL|DEVICE")]
    pub(crate) words: Vec<String>,
    /// Open all pools that are found
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Search this folder, or look at this file or device
    #[arg(short = 'd', long = "dir", value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,
    /// Open it under this name
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) rename: Option<String>,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
    #[command(flatten)]
    pub(crate) flags: ListFlags,
}

#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// Pool
    pub(crate) pool: String,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

#[derive(Args, Debug)]
pub(crate) struct PoolListArgs {
    /// What to list: pool, volume
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "pool")]
    pub(crate) kind: ListKind,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ListKind {
    #[value(alias = "pools", alias = "filesystem")]
    Pool,
    #[value(alias = "volumes", alias = "vol")]
    Volume,
}

#[derive(Args, Debug, Default)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) list: ListArgs,
    /// More: identities, tiers, paths
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Only pools with something wrong
    #[arg(short = 'x', long)]
    pub(crate) unhealthy: bool,
    /// One line and an exit code: 0 healthy 1 degraded 2 unavailable 3 cannot tell
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Args, Debug)]
pub(crate) struct IostatArgs {
    #[command(flatten)]
    pub(crate) list: ListArgs,
    /// By device
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Mean waits by stage: total, on the disk, in its queue
    #[arg(short = 'l')]
    pub(crate) latency: bool,
    /// I/Os that are in queues and on disks now, by class
    #[arg(short = 'q')]
    pub(crate) queue: bool,
    /// Histograms of waits by stage
    #[arg(short = 'w', conflicts_with_all = ["latency", "queue", "sizes"])]
    pub(crate) waits: bool,
    /// Histograms of request sizes: ind before, agg after merging
    #[arg(short = 'r', conflicts_with_all = ["latency", "queue"])]
    pub(crate) sizes: bool,
    /// Leave the since-start line out (it only comes without an interval; accepted for habit)
    #[arg(short = 'y')]
    pub(crate) no_first: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WhyArgs {
    /// Pool, or POOL/VOLUME
    #[arg(value_name = "POOL[/VOLUME]")]
    pub(crate) target: String,
    /// Watch for so long, rather than say what was since the pool was opened
    #[arg(short, long, value_name = "SECONDS")]
    pub(crate) interval: Option<f64>,
}

#[derive(Args, Debug)]
pub(crate) struct InheritArgs {
    /// Properties separated by commas, and what of: a pool, or a pool and devices
    #[arg(value_name = "PROPERTY|TARGET", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// Properties separated by commas, all, or queue; then pools, POOL/VOLUME, or a pool and devices
    #[arg(value_name = "PROPERTY|all", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) flags: ListFlags,
}

#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// NAME=VALUE, and what to change: a pool, POOL/VOLUME, or a pool and devices
    #[arg(value_name = "NAME=VALUE|TARGET", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

#[derive(Args, Debug)]
#[command(after_help = "\
braid scrub tank             start one, or go on with one that was paused
braid scrub status tank      how far it is and what it found (-w waits)
braid scrub pause tank       keep the place, also over restarts (-p does the same)
braid scrub cancel tank      stop for good (-s does the same)
braid scrub limit tank N     N commands at a time on each device: set scrub_max_active=N
With -w exit 1 says that something was found, or that it did not finish.")]
pub(crate) struct ScrubArgs {
    /// A pool; before it start (when nothing is said), status, pause, resume, cancel or limit
    #[arg(value_name = "VERB] [POOL", required = true)]
    pub(crate) words: Vec<String>,
    /// Pause it
    #[arg(short = 'p', long)]
    pub(crate) pause: bool,
    /// Stop it for good
    #[arg(short = 's', long)]
    pub(crate) stop: bool,
    /// Wait until it is done, with a bar on a terminal
    #[arg(short = 'w', long, short_alias = 'B')]
    pub(crate) wait: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
braid add tank /dev/sdf                        new chunks may go there at once
braid add tank --class ssd=/dev/nvme1n1        with a class, as create has it
braid add --spare tank /dev/sdg                held back until a member fails; as zpool has it: add tank spare /dev/sdg
braid balance start tank                       spreads what is there over the new device too")]
pub(crate) struct AddArgs {
    /// A pool and devices, in any order
    #[arg(value_name = "POOL DEVICE", required = true)]
    pub(crate) words: Vec<String>,
    /// Class of devices; devices that are only named here are added too
    #[arg(long, value_name = "CLASS=DEVICE,...")]
    pub(crate) class: Vec<String>,
    /// Tier of a chunk type on devices or classes: metadata=0@ssd, data=255@/dev/sdb
    #[arg(long, value_name = "TYPE=N@WHERE,...")]
    pub(crate) tier: Vec<String>,
    /// Hold them back until a member fails or is missing for long (spare_delay); remove takes one out again
    #[arg(long)]
    pub(crate) spare: bool,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

#[derive(Args, Debug)]
#[command(after_help = "\
braid remove tank 3             its content moves to the others; then it is no member any more
braid remove tank /dev/sdc      the same, by path
braid remove tank missing       of a member that is gone: from the other copies
braid remove status tank        how far it is (-w waits)
braid remove cancel tank        it stays; what was moved stays moved (-s does the same)")]
pub(crate) struct RemoveArgs {
    /// A pool and a member: its number, its path, or missing; or status, pause, resume, cancel and a pool
    #[arg(value_name = "POOL DEVICE", required = true)]
    pub(crate) words: Vec<String>,
    /// Stop the removal that is under way
    #[arg(short = 's', long)]
    pub(crate) stop: bool,
    /// Wait until it is done, with a bar on a terminal
    #[arg(short = 'w', long, short_alias = 'B')]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

#[derive(Args, Debug)]
#[command(after_help = "\
braid replace tank 3 /dev/sdf           /dev/sdf is added, what is on device 3 moves, device 3 leaves
braid replace tank missing /dev/sdf     from the other copies, when the old one is gone
braid replace tank 3 /dev/sdh           a spare of the pool takes the place of device 3 now
braid replace status tank               how far it is (-w waits)
Cancel leaves both as members.")]
pub(crate) struct ReplaceArgs {
    /// A pool, the member that leaves and the device that comes; or status, pause, resume, cancel and a pool
    #[arg(value_name = "POOL OLD NEW", required = true)]
    pub(crate) words: Vec<String>,
    /// Class of the new one, when it is not that of the old one
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// Wait until it is done, with a bar on a terminal
    #[arg(short = 'w', long, short_alias = 'B')]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

#[derive(Args, Debug)]
#[command(after_help = "\
braid balance start tank -d raid1 -m raid1c3     everything in these profiles, also what comes later
braid balance start -dconvert=raid1,soft tank    as btrfs writes it; soft leaves alone what has it already
braid balance start tank -d usage=50             data chunks that are at most half full
braid balance start tank                         all chunks, anew: evenly over all members
braid balance status tank                        how far it is (-w waits); pause, resume, cancel
Filters: convert=PROFILE soft usage=PERCENT devid=N profiles=A|B limit=N, with commas between them; all for no filter.")]
pub(crate) struct BalanceArgs {
    /// start (when nothing is said), status, pause, resume or cancel, and a pool
    #[arg(value_name = "VERB] [POOL", required = true)]
    pub(crate) words: Vec<String>,
    /// Data chunks: a profile, filters
    #[arg(short, long, value_name = "PROFILE,FILTERS")]
    pub(crate) data: Option<String>,
    /// Metadata chunks
    #[arg(short, long, visible_alias = "meta", value_name = "PROFILE,FILTERS")]
    pub(crate) metadata: Option<String>,
    /// Wait until it is done, with a bar on a terminal
    #[arg(short = 'w', long, short_alias = 'B')]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

/// What a pool can do in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Activity {
    /// A scrub that runs; one that is paused is not waited for
    Scrub,
    /// A balance that runs
    #[value(alias = "rebalance")]
    Balance,
    /// A member that is being emptied
    #[value(alias = "drain", alias = "evacuate")]
    Remove,
    /// A member that is being filled: in the place of another one, or with what it missed
    #[value(alias = "resilver", alias = "replace")]
    Rebuild,
}

#[derive(Args, Debug)]
#[command(after_help = "\
braid wait tank              until no background work is under way: a scrub, a balance, a removal, a rebuild
braid wait -t scrub tank     until the scrub is done; what it found: braid scrub status tank")]
pub(crate) struct WaitArgs {
    /// Only for these
    #[arg(short = 't', value_name = "ACTIVITY", value_delimiter = ',')]
    pub(crate) activities: Vec<Activity>,
    /// A pool
    pub(crate) pool: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilesystemCommand {
    /// As status
    Show(StatusArgs),
    /// As usage
    #[command(alias = "df")]
    Usage(ListArgs),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub(crate) list: ListArgs,
    /// Wait for more
    #[arg(long, visible_alias = "follow")]
    pub(crate) watch: bool,
    /// Only the newest
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) lines: u32,
}
