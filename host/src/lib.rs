//! Rings, sockets and disks around the engine of braid: core decides, this crate does.

pub mod backend;
pub mod buffers;
pub mod reactor;
pub mod aligned;
pub mod buffers;
#[cfg(feature = "fuse")]
pub mod fuse;
pub mod loopdev;
pub mod control;
