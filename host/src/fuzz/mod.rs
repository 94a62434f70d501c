//! What a socket brings, given as bytes: whoever damages inputs on purpose calls these and counts memory and time.
//!
//! Each says whether the input was taken; refusing it is fine. An error, or a panic, is a mistake of ours.
//!
//! | file | what it reads |
//! |---|---|
//! | `negotiation.rs` | everything a client says before an export is open |
//! | `transmission.rs` | requests and payload behind that, over a socket |
//! | `control.rs` | HTTP and JSON, over the control socket of a daemon with a pool |
//!
//! Left out: TLS itself, which is rustls; what happens behind an answer of the control plane that changes something.

mod control;
mod negotiation;
mod transmission;

pub use control::Control;
pub use negotiation::negotiation;
pub use transmission::transmission;

use braid_core::units::{MIB, Uuid, VolumeId};

use crate::nbd::handshake::ExportInfo;

/// A sample of a corpus: name, bytes, and whether it has to be taken; else it has to be refused.
pub type Sample = (&'static str, &'static [u8], bool);

/// The one export of NBD targets, as clients of the corpora call it.
const EXPORT: &str = "tank/v";
/// Its size.
const SIZE: u64 = MIB;

fn export() -> ExportInfo {
    ExportInfo {
        name: EXPORT.into(),
        description: "a volume".into(),
        size: SIZE,
        read_only: false,
        rotational: false,
        can_multi_conn: true,
        pool: Uuid([7; 16]),
        volume: VolumeId(1),
        share: 0,
    }
}

/// Files of a folder of the corpus.
macro_rules! samples {
    ($folder:literal: fine [$($fine:literal),* $(,)?] damaged [$($damaged:literal),* $(,)?]) => {
        &[
            $(($fine, include_bytes!(concat!("../../corpus/", $folder, "/", $fine)), true),)*
            $(($damaged, include_bytes!(concat!("../../corpus/", $folder, "/", $damaged)), false),)*
        ]
    };
}

/// Sessions up to an open export, or to the goodbye of a client that only asked.
pub const NEGOTIATIONS: &[Sample] = samples!("negotiation":
    fine ["nbdinfo", "nbdinfo-asks-for-contexts", "nbdinfo-lists", "nbdcopy", "qemu-img", "export-name-of-old-clients",
        "starttls-first"]
    damaged ["a-name-longer-than-its-option", "a-wrong-magic", "an-export-nobody-has", "an-option-of-four-gib",
        "bytes-behind-a-name-of-four-kib", "more-queries-than-bytes", "three-hundred-options", "unknown-client-flags"]);

/// Requests behind that; those that are only answered with errors are taken too.
pub const TRANSMISSIONS: &[Sample] = samples!("transmission":
    fine ["nbdcopy-reads", "nbdcopy-writes", "nbdinfo-maps", "qemu-io", "a-read-of-four-gib", "a-read-past-the-end",
        "a-write-half-outside", "a-write-refused-and-swallowed", "flags-nobody-has"]
    damaged ["a-write-of-four-gib", "a-wrong-magic", "half-a-header", "half-a-payload", "nothing-but-goodbye"]);

/// Requests to the control socket.
pub const CONTROLS: &[Sample] = samples!("control":
    fine ["braid-asks-for-counters", "braid-asks-for-metrics", "braid-asks-for-status", "braid-creates-a-pool",
        "braid-creates-a-volume", "braid-sets-a-property", "curl-asks-by-query", "curl-sends-chunks-twice",
        "a-share-a-scrub-and-an-import", "members-come-and-go", "shares-with-every-flag-and-volumes"]
    damaged ["a-body-of-a-gib", "a-chunk-of-a-tib", "a-key-twice", "a-length-that-is-no-number", "a-method-nobody-has",
        "a-name-of-ten-kib", "a-number-past-all-numbers", "a-size-that-rounds-past-all-numbers", "an-unknown-key",
        "five-hundred-arrays-deep", "half-a-body", "half-a-header", "no-such-route", "not-http", "two-hundred-headers"]);
