//! Members of pools, and devices that are measured.

use super::{AddArgs, GetArgs, ListArgs, ListFlags, RemoveArgs, ReplaceArgs, SetArgs};
use crate::numbers::within;
use clap::{Args, Subcommand};
use std::path::PathBuf;

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

#[derive(Args, Debug)]
pub(crate) struct ClearArgs {
    /// The pool
    pub(crate) pool: String,
    /// One member: id, path, last part of the path, or uuid
    pub(crate) device: Option<String>,
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
    /// Show them, then count anew
    #[arg(short = 'z', long)]
    pub(crate) reset: bool,
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
    /// Shipped model whose numbers stand where nothing was measured, such as nvme, sata-ssd or hdd
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
