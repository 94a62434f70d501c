//! A pretended world around the engine of braid: virtual time, simple disks, faults, clients, and an oracle.
//!
//! ```text
//!   workload --requests--> world --Input--> Engine --Output--> world --commands--> disk + fault
//!       ^                    |                                                        |
//!       '------- oracle <----'---------------------- completions ---------------------'
//! ```
//!
//! The same engine as in production is driven through the same two functions; nothing in it knows. A run is a
//! function of its seed: same seed, same trace, on every machine.
//!
//! Left out: payload below 512 bytes (a sector is one stamp), what models of devices leave out (see [`device`]), threads,
//! memory.

pub mod checker;
pub(crate) mod combine;
pub mod cost;
pub mod crash;
pub mod device;
pub mod disk;
pub mod fault;
pub mod fuzz;
pub mod lab;
pub mod matrix;
pub mod oracle;
pub(crate) mod pages;
pub mod rng;
pub mod sabotage;
pub mod scale;
pub mod swarm;
pub mod table;
#[path = "../tables/mod.rs"]
pub mod tables;
pub mod watch;
pub mod workload;
pub mod world;

pub use checker::Checker;
pub use device::{Model, Timing};
pub use disk::Disk;
pub use fault::{Ends, Fault, Trouble};
pub use rng::Rng;
pub use sabotage::Sabotage;
pub use world::{Crash, World};
