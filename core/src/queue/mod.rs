//! The queue of one device: who goes next, who joins whom, and how much the device has at once.
//!
//! An I/O is *admitted* when the engine decided it (views of the device change at that moment), *dispatched* when it
//! leaves as part of a command, *retired* when the command completes. Joining never moves memory: a command is a
//! chain of I/Os, and the host gathers their buffers.
//!
//! ```text
//!   admitted, one batch:      [64K..128K) [0..64K) [256K..260K) [128K..192K)
//!   dispatched:               [0..192K) of three I/Os, [256K..260K)
//! ```

pub mod blk_mq;
mod blocked;
pub mod braid;
pub mod budget;
mod chains;
pub mod class;
pub mod config;
mod device;
mod index;
mod io;
pub mod limits;
pub mod merge;
mod places;
mod selection;
pub mod stats;
#[cfg(test)]
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod twin;
pub mod waiting;
pub(crate) mod wakes;
pub mod zfs;

pub(crate) use device::{Departure, DeviceQueue};
pub(crate) use io::{CopySet, Io, Owner};
