//! The daemon, its certificates, and what it asks of itself.

use super::ServeArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

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
