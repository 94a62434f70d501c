//! The command tree. Help, completions and manual pages all come from here.
//!
//! | file | what it has |
//! |---|---|
//! | `mod.rs` | the commands, and what many of them take |
//! | `pool.rs` | pools: made, looked at, changed |
//! | `device.rs` | members, and devices that are measured |
//! | `volume.rs` | volumes and their shares |
//! | `daemon.rs` | the daemon, certificates |
//! | `lab.rs` | the laboratory, benches, traces, the demo |

mod daemon;
mod device;
mod lab;
mod pool;
mod volume;

pub(crate) use daemon::*;
pub(crate) use device::*;
pub(crate) use lab::*;
pub(crate) use pool::*;
pub(crate) use volume::*;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

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
    /// Count errors of members anew, as after a repair; a suspended pool is opened again under its shares
    Clear(ClearArgs),
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
