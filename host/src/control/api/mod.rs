//! What can be asked of the daemon, as plain values: the wire format of the control socket.
//!
//! ```text
//!   braid (command line) --- POST /v1/<route>, JSON ---> server.rs ---> Service (the daemon)
//!                        <-- envelope or error, JSON --            <---
//! ```
//!
//! The structs here are independent of the engine's on purpose: the engine may rename a field, a script that reads
//! `size_bytes` must not notice. Keys carry their unit (`_bytes`, `_ns`), numbers are numbers, times are RFC 3339,
//! objects have a stable id beside their name. Within version 1 fields may be added, never renamed or removed.
//!
//! A success is `{"schema":"braid.status","version":1,"data":…}`, the schema being `braid.` and the route; a failure is
//! `{"error":{"code","kind","message","hint"}}`. Both are exactly what the command line prints with `-j`.
//!
//! What ties a request to its route, its reply and whoever answers it is a [`Call`](super::service::Call).

mod devices;
mod events;
mod pools;
mod properties;
mod reply;
mod shares;
mod stats;
mod volumes;

pub use super::jobs::*;
pub use super::scrub::*;
pub use super::trace::*;
pub use devices::*;
pub use events::*;
pub use pools::*;
pub use properties::*;
pub use reply::*;
pub use shares::*;
pub use stats::*;
pub use volumes::*;

/// Version of the envelope and of every struct of this module.
pub const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_in_a_key_is_refused() {
        assert!(serde_json::from_str::<Status>(r#"{"pol":"tank"}"#).is_err());
        assert!(serde_json::from_str::<Status>("{}").is_ok());
        assert!(
            serde_json::from_str::<SetProperties>(
                r#"{"target":{"kind":"device","pool":"tank","device":3},"values":{"class":"ssd"}}"#
            )
            .is_ok()
        );
    }
}
