//! The engine of braid: it decides where every byte goes and never touches one.
//!
//! No clock, no thread, no file, no payload, no floating point in a decision, no dependency, no `unsafe`. What it
//! knows of the world comes in through [`Engine::handle`]; what it wants goes out through [`Engine::poll`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod allocator;
pub mod chunk;
pub mod combine;
pub mod content;
pub mod control;
pub mod device;
mod engine;
pub mod flight;
pub mod gf;
pub mod job;
pub mod meta;
pub mod names;
mod packed;
pub mod pool;
pub mod profile;
pub mod properties;
pub mod queue;
pub mod range_lock;
pub mod read_policy;
pub mod regions;
pub mod report;
pub mod request;
pub mod scrub;
mod slab;
mod sparse;
pub mod stripe;
pub mod sums;
pub mod units;
pub mod volume;

pub use allocator::Tiers;
pub use device::{DeviceClass, DeviceState};
pub use engine::{Engine, REQUESTS_MAX, Slip};
pub use pool::Pool;
pub use profile::Profile;

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChunkType {
    /// Volume content.
    Data,
    /// Volume content that counts as metadata.
    Metadata,
    /// The pool's own log and maps.
    System,
}
