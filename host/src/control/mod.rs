//! The control plane: one Unix socket, HTTP and JSON, the command line as its only client.
//!
//! * [`api`]: what can be asked and answered; the wire format.
//! * [`size`]: sizes as people write them.

pub mod api;
pub mod size;
