//! What a share holds in memory, and who waits until it is less.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use braid_core::units::MIB;

/// Bytes of data requests that one share may have in memory, reads included (the pump holds memory for those).
/// 64 requests of the largest size: more than any disk array asks for, small beside a server's memory.
pub const IN_FLIGHT_BYTES_MAX: u64 = 64 * MIB;

/// Largest single read or write. 1 MiB is what the kernel allows by default (fs.fuse.max_pages_limit = 256), and
/// what a slab buffer holds.
pub const REQUEST_BYTES_MAX: u64 = MIB;

const _: () = assert!(IN_FLIGHT_BYTES_MAX >= 16 * REQUEST_BYTES_MAX, "depth 16 at the largest size must be possible");

/// What session threads, answers and the owner of a share have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) size: AtomicU64,
    /// Stopped by force: nothing reaches the sink any more.
    pub(super) dead: AtomicBool,
    pub(super) in_flight: Mutex<u64>,
    pub(super) freed: Condvar,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, u64> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes counted against [`IN_FLIGHT_BYTES_MAX`] until dropped.
#[derive(Debug)]
pub(super) struct Permit {
    pub(super) shared: Arc<Shared>,
    pub(super) bytes: u64,
}

impl Permit {
    /// Waits while the share has too much in memory. A request alone always passes.
    pub(super) fn wait(shared: &Arc<Shared>, bytes: u64) -> Permit {
        let mut in_flight = shared.lock();
        while *in_flight > 0 && *in_flight + bytes > IN_FLIGHT_BYTES_MAX && !shared.dead.load(Ordering::Relaxed) {
            in_flight = shared.freed.wait(in_flight).unwrap_or_else(PoisonError::into_inner);
        }
        *in_flight += bytes;
        drop(in_flight);
        Permit { shared: shared.clone(), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.shared.lock() -= self.bytes;
            self.shared.freed.notify_all();
        }
    }
}
