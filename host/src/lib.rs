//! Rings, sockets and disks around the engine of braid: core decides, this crate does.

pub mod buffers;
pub mod nbd;
