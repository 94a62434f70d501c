//! Traces, on the wire.

use serde::{Deserialize, Serialize};

/// What clients asked of a pool, or of one volume, since this was last asked. The first question begins; whoever does
/// not ask again for ten seconds is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeTrace {
    /// Which pool.
    pub pool: String,
    /// One volume of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// This was the last question.
    #[serde(default)]
    pub end: bool,
}

/// Requests in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracePart {
    /// Those that came.
    pub requests: Vec<TracedRequest>,
    /// How many more came when there was no room left for them.
    pub lost: u64,
}

/// One request, as it came to the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedRequest {
    /// Since the pool was opened.
    pub at_ns: u64,
    /// Who asked: a number for each connection or mount.
    pub client: u32,
    /// Of which volume.
    #[serde(default)]
    pub volume: String,
    /// `read`, `write`, `flush`, `discard` or `write_zeroes`.
    pub op: String,
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// Force unit access.
    #[serde(default)]
    pub fua: bool,
    /// It says that it is metadata.
    #[serde(default)]
    pub metadata: bool,
}
