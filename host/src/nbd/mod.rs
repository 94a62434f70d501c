//! NBD: what a client says over a socket, turned into requests of the engine, and back.
//!
//! ```text
//!   socket ──► acceptor thread ── Handover ──► pump thread (one per pool)
//!              listeners, half-open             engine, ring, negotiated
//!              handshake, STARTTLS              connection: bytes ─► Action
//!              deadline, limits                 Reply ─► one sendmsg for many
//! ```
//!
//! [`proto`] knows the numbers, [`handshake`] haggles without doing I/O, [`connection`] is the transmission phase,
//! [`acceptor`] owns what has not finished haggling, [`stream`] is a socket in the clear or under TLS, [`tls`] wraps
//! rustls, [`client`] is our own client for tests and benches. A slow or hostile client in the handshake never reaches
//! a pump.
//!
//! Promises: nothing that comes from a socket can panic; memory per connection has a limit with a name; a write is
//! handed to the engine whole or not at all.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

// Its sums and places are of tables and clocks of our own, not of what a client sent.
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub mod acceptor;
pub mod client;
pub mod connection;
pub mod handshake;
pub mod proto;
mod socket;
pub mod stream;
pub mod tls;

pub use acceptor::{Acceptor, Handover, Listen};
pub use connection::{Action, Connection, Status};
pub use handshake::{ExportInfo, Exports, Session, TlsMode};
pub use stream::Stream;
