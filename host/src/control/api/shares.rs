//! Shares: volumes that are served.

use serde::{Deserialize, Serialize};

/// How a volume is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareKind {
    /// Network block device.
    #[default]
    Nbd,
    /// A file in a FUSE mount.
    Fuse,
    /// A loop device over that file.
    Loop,
}

impl ShareKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            ShareKind::Nbd => "nbd",
            ShareKind::Fuse => "fuse",
            ShareKind::Loop => "loop",
        }
    }
}

/// Whether TLS is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// Never.
    #[default]
    Off,
    /// When the client asks for it.
    Allow,
    /// Nothing else.
    Require,
}

impl Tls {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Tls::Off => "off",
            Tls::Allow => "allow",
            Tls::Require => "require",
        }
    }
}

/// Where an NBD share listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Listen {
    /// On the daemon's NBD socket.
    #[default]
    Unix,
    /// On a Unix socket at this absolute path.
    UnixPath(String),
    /// On `ADDRESS:PORT`; port 0 = any free one.
    Tcp(String),
}

/// Serve a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateShare {
    /// Pool.
    pub pool: String,
    /// Volume.
    pub volume: String,
    /// How.
    pub kind: ShareKind,
    /// Where (NBD).
    #[serde(default)]
    pub listen: Listen,
    /// TLS (NBD).
    #[serde(default)]
    pub tls: Tls,
    /// Folder with the certificates of `braid tls init`; the usual one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_directory: Option<String>,
    /// Refuse writes.
    #[serde(default)]
    pub read_only: bool,
    /// Until it is unshared or the daemon ends. Others come back with their pool.
    #[serde(default)]
    pub temporary: bool,
}

/// A share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShareInfo {
    /// Id, never reused while the daemon lives.
    pub id: u32,
    /// Pool.
    pub pool: String,
    /// Volume.
    pub volume: String,
    /// How.
    pub kind: ShareKind,
    /// The URI, or the path of the file or device: all a client needs.
    pub uri: String,
    /// TLS.
    #[serde(default)]
    pub tls: Tls,
    /// Refuses writes.
    pub read_only: bool,
    /// Connections now; absent when that cannot be known (loop).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// It was shared this way already; nothing was changed.
    #[serde(default)]
    pub existing: bool,
    /// It is shared again, in the same place, when the next daemon opens the pool.
    #[serde(default)]
    pub remembered: bool,
    /// For people: what stands behind it, how to try it.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Stop serving.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveShare {
    /// `tank/vm0` (all its shares), a URI, a path, or a share id.
    pub target: String,
    /// Only shares of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ShareKind>,
    /// Even with clients connected.
    #[serde(default)]
    pub force: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Shares: of the pool named, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListShares {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}
