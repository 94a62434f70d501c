//! Tests of the host crate against this machine's kernel and tools; one binary, so that one link does.

#![allow(unreachable_pub)]

mod background;
mod daemon;
#[cfg(feature = "fuse")]
mod fuse;
mod gaps;
mod integrity;
mod nbd;
mod pump;
mod tools;
