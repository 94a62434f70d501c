//! `model:NAME,PATH`: a file or device that answers with the timing of another one.
//!
//! ```text
//!   submit --> real I/O on PATH ----------.
//!      '-----> Pace: when would it be? ---+--> answered when both are done
//! ```
//!
//! Content is real, and so is what it costs to read and write it: an answer comes at the model's time or later, never
//! before. This crate knows no models; who starts it hands over somebody who does, once ([`offer`]).

use std::fmt;
use std::sync::OnceLock;

use braid_core::request::DeviceOp;

/// A device of which only the times are there. Times are ns since some moment and never go back.
pub trait Pace: Send + fmt::Debug {
    /// A command arrives.
    fn arrive(&mut self, now_ns: u64, id: u32, op: DeviceOp, offset: u64, len: u64);
    /// When to ask again, unless something arrives before.
    fn next_ns(&self) -> Option<u64>;
    /// A command that is done by now; ask until there is none.
    fn done(&mut self, now_ns: u64) -> Option<u32>;
}

/// What a name of a model stands for.
#[derive(Debug)]
pub struct Paced {
    /// Its times.
    pub pace: Box<dyn Pace>,
    /// Its name, for people.
    pub name: String,
    /// Its class, where nobody gives it one.
    pub class: &'static str,
    /// Whether it pretends to rotate.
    pub rotational: bool,
}

/// Makes a device of so many bytes from what stands between `model:` and the comma, or says why not.
pub type Factory = fn(model: &str, size: u64) -> Result<Paced, String>;

static FACTORY: OnceLock<Factory> = OnceLock::new();

/// Who knows models; the first one stays.
pub fn offer(factory: Factory) {
    // A second daemon in one process (tests) offers the same.
    let _ = FACTORY.set(factory);
}

pub(super) fn make(model: &str, size: u64) -> Result<Paced, String> {
    match FACTORY.get() {
        Some(factory) => factory(model, size),
        None => Err("this program knows no models of devices".into()),
    }
}
