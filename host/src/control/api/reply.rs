//! What comes back whatever was asked: the envelope, errors, and what a change did.

use super::VERSION;
use serde::{Deserialize, Serialize};

/// What a success looks like on the wire and with `-j`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// `braid.` and the route.
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// The answer.
    pub data: T,
}

impl<T> Envelope<T> {
    /// The envelope of this route's reply.
    pub fn new(route: &str, data: T) -> Self {
        Envelope { schema: format!("braid.{route}"), version: VERSION, data }
    }
}

/// What a failure looks like on the wire and with `-j`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorEnvelope {
    /// The failure.
    pub error: ApiError,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// Stable word for programs, `object.what`: `pool.not_found`.
    pub code: String,
    /// Class of failure; decides the exit code.
    pub kind: ErrorKind,
    /// One sentence with the cause.
    pub message: String,
    /// The next step, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Classes of failure: one exit code and one HTTP status each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Tried and failed.
    Failed,
    /// Malformed or unknown value.
    Usage,
    /// The daemon is not there, or does not answer this user. Made by the client only.
    Unreachable,
    /// No such pool, device, volume, share or property.
    NotFound,
    /// Something could be lost; `-f` may allow it.
    Refused,
}

impl ErrorKind {
    /// Exit code of the command line.
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Failed => 1,
            ErrorKind::Usage => 2,
            ErrorKind::Unreachable => 3,
            ErrorKind::NotFound => 4,
            ErrorKind::Refused => 5,
        }
    }

    /// HTTP status.
    pub fn http_status(self) -> u16 {
        match self {
            ErrorKind::Failed => 500,
            ErrorKind::Usage => 400,
            ErrorKind::Unreachable => 503,
            ErrorKind::NotFound => 404,
            ErrorKind::Refused => 409,
        }
    }
}

impl ApiError {
    /// An error of this kind, without a hint.
    pub fn new(kind: ErrorKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        ApiError { code: code.into(), kind, message: message.into(), hint: None }
    }
    /// Tried and failed (exit 1).
    pub fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, code, message)
    }
    /// Malformed or unknown value (exit 2).
    pub fn usage(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, code, message)
    }
    /// No such object (exit 4).
    pub fn not_found(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, code, message)
    }
    /// Refused for safety (exit 5).
    pub fn refused(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, code, message)
    }
    /// No pool of this name.
    pub fn no_pool(name: &str) -> Self {
        Self::not_found("pool.not_found", format!("there is no open pool named {name}"))
            .hint("see the open ones with: braid list   look for others with: braid import")
    }
    /// No volume of this name.
    pub fn no_volume(pool: &str, volume: &str) -> Self {
        Self::not_found("volume.not_found", format!("there is no volume {volume} in pool {pool}"))
            .hint(format!("see what is there with: braid volume list {pool}"))
    }
    /// No device of this id.
    pub fn no_device(pool: &str, device: u32) -> Self {
        Self::not_found("device.not_found", format!("pool {pool} has no device {device}"))
            .hint(format!("see its members with: braid device list {pool}"))
    }
    /// Known to the design, not to this version.
    pub fn not_yet(what: &str) -> Self {
        Self::failed("not_yet", format!("{what} is not there yet in this version of braid"))
    }
    /// The same with a next step.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<braid_core::control::ControlError> for ApiError {
    fn from(e: braid_core::control::ControlError) -> Self {
        use braid_core::control::ErrorKind as K;
        let (kind, code) = match e.kind {
            K::Usage => (ErrorKind::Usage, "value.invalid"),
            K::NotFound => (ErrorKind::NotFound, "object.not_found"),
            K::Exists => (ErrorKind::Failed, "object.exists"),
            K::Refused => (ErrorKind::Refused, "change.refused"),
            K::NoSpace => (ErrorKind::Failed, "pool.no_space"),
            K::Io => (ErrorKind::Failed, "device.io"),
            K::Busy => (ErrorKind::Failed, "object.busy"),
        };
        ApiError::new(kind, code, e.message)
    }
}

/// What a changing request did, or with `dry_run` would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Something is (would be) different now; false when it held already.
    pub changed: bool,
    /// Nothing was done, this is what would be.
    pub dry_run: bool,
    /// One line on what was (would be) done: `pool tank of 3 devices`, `volume tank/vm0 of 100GiB`.
    pub what: String,
    /// Capacity and safety before; absent when there was no pool, or they have nothing to do with the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Standing>,
    /// Capacity and safety after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Standing>,
    /// Bytes to be moved by it.
    #[serde(default)]
    pub move_bytes: u64,
    /// What the operator should know: roundings, spills, guesses; one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Change {
    /// Done: `what`.
    pub fn done(what: impl Into<String>) -> Self {
        Change { changed: true, what: what.into(), ..Change::default() }
    }
    /// It held already.
    pub fn unchanged(what: impl Into<String>) -> Self {
        Change { what: what.into(), ..Change::default() }
    }
}

/// How much a pool holds and how much it survives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Sum of member sizes.
    pub raw_bytes: u64,
    /// Data that could still be written, in the data profile.
    pub writable_data_bytes: u64,
    /// Metadata that could still be written, in the metadata profile.
    pub writable_metadata_bytes: u64,
    /// Device failures that data is sure to survive.
    pub data_failures: u32,
    /// Device failures that metadata is sure to survive.
    pub metadata_failures: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_exit_code() {
        use ErrorKind::*;
        let codes: Vec<u8> = [Failed, Usage, Unreachable, NotFound, Refused].map(ErrorKind::exit_code).into();
        assert_eq!(codes, [1, 2, 3, 4, 5]);
    }
}
