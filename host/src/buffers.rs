//! Aligned payload memory behind [`BufId`]s, bounded, owned by the pump thread.
//!
//! A buffer is one contiguous piece of memory aligned to 4 KiB. Buffers up to [`SLAB_MAX`] come from an arena that
//! is registered with io_uring; larger ones are mapped when they are needed. What counts against the limit are
//! *touched* bytes: a client that announces a 32 MiB write and sends nothing costs an address range and no memory.

use braid_core::units::{BufId, BufRange};

/// Largest buffer that comes from the registered arena.
pub const SLAB_MAX: usize = 1 << 20;

/// See the module.
pub struct Buffers {}

impl Buffers {
    /// Memory for at most `limit` touched bytes; `arena` bytes of it registered with the ring.
    pub fn new(_arena: usize, _limit: usize) -> std::io::Result<Self> {
        todo!()
    }
    /// A buffer of at least `len` bytes with unspecified old content, or None when that would pass the limit.
    pub fn alloc(&mut self, _len: usize) -> Option<BufId> {
        todo!()
    }
    /// Gives it back.
    pub fn free(&mut self, _id: BufId) {
        todo!()
    }
    /// The memory. Only between alloc/complete and submit: nobody touches a buffer that a device is working on.
    pub fn bytes(&self, _id: BufId) -> &[u8] {
        todo!()
    }
    /// As `bytes`, to fill.
    pub fn bytes_mut(&mut self, _id: BufId) -> &mut [u8] {
        todo!()
    }
    /// Pointer and length of a range, for an iovec; None when it does not lie within the buffer.
    pub fn raw(&self, _range: BufRange) -> Option<(*mut u8, usize)> {
        todo!()
    }
}
