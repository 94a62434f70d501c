//! NBD against an engine in memory.

mod accept;
mod commands;
mod fuzz;
mod handshake;
mod hostile;
mod interop;
#[cfg(feature = "tls")]
mod tls;
mod world;
