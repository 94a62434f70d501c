//! Rings, sockets and disks around the engine of braid: core decides, this crate does.

pub mod aligned;
pub mod backend;
pub mod buffers;
pub mod checksum;
pub mod control;
pub mod daemon;
#[cfg(feature = "fuse")]
pub mod fuse;
pub mod fuzz;
pub mod limits;
pub mod loopdev;
pub mod nbd;
pub mod parity;
pub mod pump;
pub mod reactor;
