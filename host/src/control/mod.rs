//! The control plane: one Unix socket, HTTP and JSON, the command line as its only client.
//!
//! * [`api`]: what can be asked and answered; the wire format.
//! * [`service`]: who answers, by route.
//! * [`check`]: what of it can be judged without knowing the pool.
//! * [`metrics`]: everything that counts, as Prometheus reads it.
//! * [`server`]: the socket, its permissions, the routes.
//! * [`size`]: sizes as people write them.

pub mod api;
pub mod check;
pub mod jobs;
pub mod metrics;
pub mod scrub;
pub mod server;
pub mod service;
pub mod size;
pub mod trace;
