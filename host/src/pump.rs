//! The pump: one thread per pool that owns the engine, its ring and every negotiated connection.

use std::sync::Arc;

use braid_core::Engine;
use braid_core::control::{Command, ControlError, Done};
use braid_core::meta::format::NewPool;
use braid_core::meta::superblock::Superblock;
use braid_core::report::PoolReport;
use braid_core::request::Event;
use braid_core::units::{DeviceId, Uuid, VolumeId};

use crate::backend::Disk;
use crate::nbd::Handover;
use crate::reactor::Choice;

/// Where the pool of a pump comes from.
pub enum Setup {
    /// Write a new one on the disks, which are in the order of [`NewPool::devices`] with ids 1, 2, 3, ….
    Create(NewPool),
    /// Read one back from its members.
    Import(Vec<Superblock>),
}

/// How to run it.
pub struct Options {
    /// Which way to talk to disks.
    pub reactor: Choice,
    /// Payload memory in bytes.
    pub memory: usize,
    /// The present boot of the machine.
    pub boot: Uuid,
    /// Called on the pump's thread; must not block.
    pub on_event: Box<dyn Fn(Event) + Send>,
}

/// A running pump. Dropping it stops it in order.
pub struct PumpHandle {}

impl PumpHandle {
    /// Opens a pool; what is written in vain is said in one sentence.
    pub fn start(_options: Options, _disks: Vec<(DeviceId, Disk)>, _setup: Setup) -> Result<PumpHandle, String> {
        todo!()
    }
    /// Does a command; durable when it returns.
    pub fn control(&self, _command: Command) -> Result<Done, ControlError> {
        todo!()
    }
    /// What the pool says about itself.
    pub fn report(&self) -> Result<PoolReport, ControlError> {
        todo!()
    }
    /// Runs `look` on the pump's thread with the engine: for whatever has no call of its own.
    pub fn with_engine<T: Send + 'static>(
        &self,
        _look: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        todo!()
    }
    /// Takes over a negotiated NBD connection.
    pub fn adopt(&self, _handover: Handover) {
        todo!()
    }
    /// Where the FUSE share of a volume sends its calls.
    #[cfg(feature = "fuse")]
    pub fn sink(&self, _volume: VolumeId) -> Arc<dyn crate::fuse::Sink> {
        todo!()
    }
    /// NBD clients of a volume.
    pub fn clients(&self, _volume: VolumeId) -> usize {
        todo!()
    }
    /// Ends the NBD connections of a volume: requests in flight are answered, more are not taken.
    pub fn hang_up(&self, _volume: VolumeId) {
        todo!()
    }
    /// Members that were not there when the pool was opened.
    pub fn missing(&self) -> &[DeviceId] {
        todo!()
    }
    /// Records that a power cut took back, see the core's `Opened::forgotten`.
    pub fn forgotten(&self) -> u64 {
        todo!()
    }
    /// `io_uring`, or `threads: ` and what blocked it.
    pub fn reactor(&self) -> &str {
        todo!()
    }
    /// Answers what is in flight, writes a checkpoint, closes the disks.
    pub fn stop(self) {}
}
