//! Volumes, and how they are shared.

use super::{ChangeFlags, DestroyArgs, GetArgs, ListArgs, ListFlags, SetArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

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
    /// The volume
    #[arg(value_name = "POOL/NAME")]
    pub(crate) first: String,
    /// The new size, or +SIZE to add
    // Not a list: what follows one with hyphens would be taken for its values, flags as well.
    #[arg(value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) second: Option<String>,
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
