//! The command tree. Help, completions and manual pages all come from here.

use crate::numbers::{count, hours, whole, within};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const AFTER_HELP: &str = "\
FINDING THE DAEMON
  --socket PATH, else $BRAID_SOCKET, else this user's own: /run/braid/braid.sock (root),
  $XDG_RUNTIME_DIR/braid/braid.sock or /tmp/braid-UID/braid.sock (others); when that one is not
  there, the system's /run/braid/braid.sock. Start one with: braid daemon

NAMES
  A device has a '/' or a scheme (ram:1G, model:hdd,./a.img); a pool is a plain word; a volume is POOL/NAME.
  A bare sdb is looked up as pool, then member, then /dev/sdb. Order does not matter.

SIZES
  10G = 10GiB = 1024^3, 10GB = 1000^3, a plain number is bytes. Output is always 1024-based.

EXIT CODES
  0 done  1 failed  2 usage  3 daemon not reachable  4 no such object or file  5 refused for safety
  (see -f)  130 interrupted.  status --check: 0 healthy  1 degraded  2 unavailable  3 cannot tell

COMING FROM
  zpool create tank mirror a b     braid create tank -d raid1 /dev/a /dev/b
  zfs create -V 10G tank/v         braid create -V 10G tank/v
  btrfs filesystem usage MNT       braid filesystem usage tank  (fi us works)
  zpool scrub tank                 braid scrub tank
  zpool wait -t scrub tank         braid wait -t scrub tank
  btrfs device stats MNT           braid device stats tank
  mdadm --detail /dev/md0          braid status tank
  lvcreate -L 10G -n v vg          braid volume create vg/v 10G";

/// One pool from disks that are not alike, served as block devices
#[derive(Debug, Parser)]
#[command(name = "braid", version, infer_subcommands = true, allow_external_subcommands = true)]
#[command(after_long_help = AFTER_HELP, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// Socket of the daemon
    #[arg(long, global = true, value_name = "PATH", display_order = 900)]
    pub(crate) socket: Option<PathBuf>,
    /// JSON: {"schema","version","data"} on stdout, {"error"} on stderr
    #[arg(short, long, global = true, display_order = 901)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How a table looks.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListFlags {
    /// No header, TABs between columns
    #[arg(short = 'H', long)]
    pub(crate) no_header: bool,
    /// Exact numbers: bytes and nanoseconds
    #[arg(short = 'p', long = "parsable", visible_alias = "exact")]
    pub(crate) exact: bool,
    /// These columns; +COL adds one, "all" shows every one
    #[arg(short = 'o', long = "columns", value_name = "COL,...")]
    pub(crate) columns: Option<String>,
    /// Sort by a column; -COL descending
    #[arg(short = 's', long, value_name = "COL", allow_hyphen_values = true)]
    pub(crate) sort: Option<String>,
}

impl ListFlags {
    /// Asked for as a table, not as a report with sentences around it.
    pub(crate) fn plain(&self) -> bool {
        self.no_header || self.columns.is_some() || self.sort.is_some()
    }
}

/// A listing of one pool or all, once or repeated.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListArgs {
    /// A pool, and seconds between repetitions and their number
    #[arg(value_name = "POOL] [INTERVAL [COUNT]")]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) flags: ListFlags,
}

/// How a change is made.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ChangeFlags {
    /// Only say what would be: before -> after
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Although something could be lost
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a pool (or with -V a volume)
    Create(CreateArgs),
    /// Forget a pool and everything in it
    Destroy(DestroyArgs),
    /// Find pools on their devices and open them
    Import(ImportArgs),
    /// Close a pool; its devices can go elsewhere
    Export(ExportArgs),
    /// Open pools
    List(PoolListArgs),
    /// How pools are
    Status(StatusArgs),
    /// Where space went
    #[command(visible_alias = "df")]
    Usage(ListArgs),
    /// Operations and bytes a second, by device with -v
    Iostat(IostatArgs),
    /// Where requests wait, in words
    Why(WhyArgs),
    /// All counters, as Prometheus reads them
    Metrics,
    /// Properties of pools, devices and volumes; "queue" is all settings of queues
    Get(GetArgs),
    /// Change properties; NAME= without a value is the default
    Set(SetArgs),
    /// Read every copy of everything and compare: start, status, pause, resume, cancel, limit
    Scrub(ScrubArgs),
    /// Make devices members of an open pool
    Add(AddArgs),
    /// Empty a member and let it go: remove tank 3; status, pause, resume, cancel
    Remove(RemoveArgs),
    /// Put a device in the place of a member: replace tank 3 /dev/sdf; status, pause, resume, cancel
    Replace(ReplaceArgs),
    /// Write chunks anew, evenly or in another profile: start, status, pause, resume, cancel
    Balance(BalanceArgs),
    /// Use a member again that was away or given up: what it missed is caught up
    Online(OnlineArgs),
    /// Use a member no more, until it is asked for or the pool is opened again
    Offline(OfflineArgs),
    /// Wait until what a pool does in the background is done
    Wait(WaitArgs),
    /// Give properties their defaults back
    Inherit(InheritArgs),
    /// Members of a pool
    #[command(subcommand, allow_external_subcommands = true)]
    Device(DeviceCommand),
    /// Thin volumes
    #[command(subcommand, allow_external_subcommands = true)]
    Volume(VolumeCommand),
    /// As btrfs has it: show, usage, df
    #[command(subcommand, hide = true, allow_external_subcommands = true)]
    Filesystem(FilesystemCommand),
    /// Change the size of a volume
    Resize(ResizeArgs),
    /// Serve a volume; prints only its URI or path
    Share(ShareArgs),
    /// Stop serving
    Unshare(UnshareArgs),
    /// What is served
    Shares(ListArgs),
    /// What happened
    Events(EventsArgs),
    /// Run the daemon
    Daemon(DaemonArgs),
    /// Try everything on small files in a temporary folder
    Demo(DemoArgs),
    /// Certificates for NBD over TLS
    #[command(subcommand)]
    Tls(TlsCommand),
    /// Measure the engine and the NBD server beside others
    Bench(BenchArgs),
    /// The engine in virtual time, beside what was published
    #[command(subcommand)]
    Lab(LabCommand),
    /// What clients ask, recorded and shown; a flight record, replayed
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Completions for a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// The manual page of braid or of one command (roff)
    Man {
        /// Command, such as "volume create"
        command: Vec<String>,
    },
    #[command(subcommand, hide = true)]
    Internal(InternalCommand),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// Name of the pool and its devices: /dev/sdb, ./disk.img, ram:1G, sdb, model:hdd,./disk.img
    #[arg(value_name = "POOL DEVICE")]
    pub(crate) words: Vec<String>,
    /// Profile of data: single dup raid0 raid1 raid1c3 raid1c4 raid10; raid1@ssd,hdd with classes
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
    /// Search this folder
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

#[derive(Args, Debug)]
pub(crate) struct OnlineArgs {
    /// The pool
    pub(crate) pool: String,
    /// The member: id, path, last part of the path, or uuid
    pub(crate) device: String,
    /// Where it is now; without, it is looked for
    pub(crate) path: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct OfflineArgs {
    /// The pool
    pub(crate) pool: String,
    /// The member: id, path, last part of the path, or uuid
    pub(crate) device: String,
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
}

#[derive(Args, Debug)]
#[command(after_help = "\
braid wait tank              until no background work is under way: a scrub, a balance, a removal
braid wait -t scrub tank     until the scrub is done; what it found: braid scrub status tank")]
pub(crate) struct WaitArgs {
    /// Only for these
    #[arg(short = 't', value_name = "ACTIVITY", value_delimiter = ',')]
    pub(crate) activities: Vec<Activity>,
    /// A pool
    pub(crate) pool: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// Make devices members of an open pool
    Add(AddArgs),
    /// Empty a member and let it go
    #[command(visible_alias = "delete", alias = "evacuate")]
    Remove(RemoveArgs),
    /// Put a device in the place of a member
    Replace(ReplaceArgs),
    /// Members
    List(ListArgs),
    /// Error counters of members
    Stats(StatsArgs),
    /// Space on members
    Usage(ListArgs),
    /// What could be a member
    Scan(ScanArgs),
    /// Measure a device and make a model of it: device probe /dev/sdb -o sdb.toml
    Probe(ProbeArgs),
    /// Make a model of a device from fio --output-format=json
    Fit(FitArgs),
    /// Change properties: class=ssd tier.metadata=0 rotational=off read_preferred=on
    Set(SetArgs),
    /// Properties of members
    Get(GetArgs),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) list: ListArgs,
    /// Exit 1 when a counter is not zero
    #[arg(short, long)]
    pub(crate) check: bool,
}

/// What becomes of measurements.
#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// Save the model here; use it as model:FILE.toml,PATH
    #[arg(short, long, value_name = "FILE.toml")]
    pub(crate) output: Option<PathBuf>,
    /// Name of the model [default: after the device or the file]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Shipped model whose numbers stand where nothing was measured: nvme sata-ssd hdd hdd-5400 rbd
    #[arg(long, value_name = "MODEL")]
    pub(crate) base: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ProbeArgs {
    /// Device or file; it is only read unless --write is there
    pub(crate) device: String,
    /// How long it may take
    #[arg(long, default_value_t = 60, value_parser = |word: &str| within(word, 1..=3600))]
    pub(crate) seconds: u64,
    /// Measure writes too: THE CONTENT IS LOST; refused where a pool or a filesystem is
    #[arg(long)]
    pub(crate) write: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

#[derive(Args, Debug)]
pub(crate) struct FitArgs {
    /// Output of fio --output-format=json: randread at iodepth 1 and 32, read, randwrite, write; what there is
    #[arg(required = true, value_name = "FIO.json")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ScanArgs {
    /// Only these
    pub(crate) devices: Vec<String>,
    #[command(flatten)]
    pub(crate) flags: ListFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a thin volume: volume create tank/vm0 100G
    Create(VolumeCreateArgs),
    /// Volumes
    List(ListArgs),
    /// Change the size of a volume
    Resize(ResizeArgs),
    /// Give a volume another name
    Rename(RenameArgs),
    /// Forget a volume and its content
    Destroy(DestroyArgs),
    /// Change properties
    Set(SetArgs),
    /// Properties
    Get(GetArgs),
    /// Where its content is
    Map(MapArgs),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(Args, Debug)]
pub(crate) struct VolumeCreateArgs {
    /// POOL/NAME and its size, such as 100G
    #[arg(value_name = "POOL/NAME|SIZE", required = true)]
    pub(crate) words: Vec<String>,
    /// What its writes count as: auto, metadata, data
    #[arg(long)]
    pub(crate) class: Option<String>,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// POOL/NAME and the new size, or +SIZE to add
    #[arg(value_name = "POOL/NAME|SIZE", required = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
}

#[derive(Args, Debug)]
pub(crate) struct RenameArgs {
    /// POOL/NAME
    pub(crate) volume: String,
    /// New name, with or without the pool
    pub(crate) to: String,
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MapArgs {
    /// POOL/NAME
    pub(crate) volume: String,
    #[command(flatten)]
    pub(crate) flags: ListFlags,
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
pub(crate) struct ShareArgs {
    /// POOL/NAME
    pub(crate) volume: String,
    /// nbd: network block device; fuse: a file; loop: a kernel block device (root)
    pub(crate) kind: String,
    /// NBD on a Unix socket, at this path or at the daemon's own (default)
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    pub(crate) unix: Option<String>,
    /// NBD on TCP [default: 127.0.0.1:10809]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:10809")]
    #[arg(conflicts_with = "unix")]
    pub(crate) tcp: Option<String>,
    /// TLS: require, allow or off
    #[arg(long, value_name = "MODE", default_value = "off")]
    pub(crate) tls: String,
    /// Folder with the certificates of: braid tls init
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,
    /// Refuse writes
    #[arg(short, long, visible_alias = "ro")]
    pub(crate) read_only: bool,
    /// Several connections at once (always possible; accepted for habit)
    #[arg(long, hide = true)]
    pub(crate) multi_conn: bool,
    /// Print the URI (always done; accepted for habit)
    #[arg(long, hide = true)]
    pub(crate) print_uri: bool,
    /// Only until the daemon ends; other shares come back with their pool
    #[arg(short, long)]
    pub(crate) temporary: bool,
    /// Run a command with $uri set, then unshare; exits as the command does
    #[arg(long, value_name = "COMMAND")]
    pub(crate) run: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct UnshareArgs {
    /// POOL/NAME, a URI, a path, or a share's id
    pub(crate) target: String,
    /// Only shares of this kind
    pub(crate) kind: Option<String>,
    #[command(flatten)]
    pub(crate) change: ChangeFlags,
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

#[derive(Args, Debug, Default)]
pub(crate) struct DaemonArgs {
    /// Stay in the foreground (it always does; accepted for habit)
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Folder for what outlives the daemon [default: $BRAID_STATE_DIR, else /var/lib/braid (root) or
    /// $XDG_STATE_HOME/braid]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Record what comes into the engine of every pool, for braid trace replay: at most 1 GiB a pool, in DIR/POOL.flight
    #[arg(long, value_name = "DIR")]
    pub(crate) flight_record: Option<PathBuf>,
    /// Say more in the log: info, debug, or module=level,...
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TlsCommand {
    /// Make an authority, a server and a client certificate
    Init {
        /// Folder [default: /etc/braid/tls (root) or $XDG_CONFIG_HOME/braid/tls]
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Names and addresses of the server
        #[arg(long = "name", value_name = "NAME", default_values_t = ["localhost".to_string(), "127.0.0.1".to_string(), "::1".to_string()])]
        names: Vec<String>,
        /// Replace what is there
        #[arg(short, long)]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum InternalCommand {
    /// Serve a new pool until standard input ends
    BenchServe(ServeArgs),
    /// Write all manual pages
    Man {
        /// Folder
        dir: PathBuf,
    },
}

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
    /// This case alone, as a failure prints it
    #[arg(long, value_name = "CASE")]
    pub(crate) case: Option<String>,
    /// Cases at once [default: one a core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
}

#[derive(Args, Debug)]
pub(crate) struct LabNames {
    /// Tables, see lab list [default: all]
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
