//! One binary for all integration tests of the crate.

#![allow(unreachable_pub)]

mod nbd;
mod tools;
