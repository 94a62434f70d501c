//! Aligned payload memory behind [`BufId`]s, bounded, owned by the pump thread.
//!
//! A buffer is one contiguous piece of memory aligned to 4 KiB. Buffers up to [`SLAB_MAX`] come from an arena that
//! is registered with io_uring; larger ones are mapped when they are needed. What counts against the limit are
//! *touched* bytes: a client that announces a 32 MiB write and sends nothing costs an address range and no memory.
//!
//! This body is the simple one: every buffer is its own mapping-sized allocation and its whole length counts.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::null_mut;

use braid_core::units::{BLOCK, BufId, BufRange, round_up};

/// Largest buffer that comes from the registered arena.
pub const SLAB_MAX: usize = 1 << 20;

/// See the module.
pub struct Buffers {
    slots: Vec<Option<(*mut u8, Layout)>>,
    free: Vec<u32>,
    used: usize,
    limit: usize,
}

// The pointers are owned by this value alone.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Memory for at most `limit` touched bytes; `arena` bytes of it registered with the ring.
    pub fn new(_arena: usize, limit: usize) -> std::io::Result<Self> {
        Ok(Buffers { slots: Vec::new(), free: Vec::new(), used: 0, limit })
    }
    /// A buffer of at least `len` bytes with unspecified old content, or None when that would pass the limit.
    pub fn alloc(&mut self, len: usize) -> Option<BufId> {
        let size = round_up(len.max(1) as u64, BLOCK) as usize;
        if self.used + size > self.limit {
            return None;
        }
        let layout = Layout::from_size_align(size, BLOCK as usize).ok()?;
        let memory = take(layout)?;
        self.used += size;
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index as usize] = Some((memory, layout));
        Some(BufId(index))
    }
    /// Gives it back.
    pub fn free(&mut self, id: BufId) {
        let (memory, layout) = self.slots[id.index()].take().expect("a live buffer");
        give(memory, layout);
        self.used -= layout.size();
        self.free.push(id.0);
    }
    /// The memory. Only between alloc/complete and submit: nobody touches a buffer that a device is working on.
    pub fn bytes(&self, id: BufId) -> &[u8] {
        let (memory, layout) = self.slots[id.index()].expect("a live buffer");
        unsafe { std::slice::from_raw_parts(memory, layout.size()) }
    }
    /// As `bytes`, to fill.
    pub fn bytes_mut(&mut self, id: BufId) -> &mut [u8] {
        let (memory, layout) = self.slots[id.index()].expect("a live buffer");
        unsafe { std::slice::from_raw_parts_mut(memory, layout.size()) }
    }
    /// Pointer and length of a range, for an iovec; None when it does not lie within the buffer.
    pub fn raw(&self, range: BufRange) -> Option<(*mut u8, usize)> {
        let (memory, layout) = (*self.slots.get(range.buf.index())?)?;
        let end = (range.offset as usize).checked_add(range.len as usize)?;
        (end <= layout.size()).then(|| (unsafe { memory.add(range.offset as usize) }, range.len as usize))
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        for (memory, layout) in self.slots.drain(..).flatten() {
            give(memory, layout);
        }
    }
}

fn take(layout: Layout) -> Option<*mut u8> {
    if layout.size() <= SLAB_MAX {
        let memory = unsafe { alloc_zeroed(layout) };
        return (!memory.is_null()).then_some(memory);
    }
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let memory = unsafe { libc::mmap(null_mut(), layout.size(), prot, flags, -1, 0) };
    (memory != libc::MAP_FAILED).then_some(memory.cast())
}

fn give(memory: *mut u8, layout: Layout) {
    if layout.size() <= SLAB_MAX {
        unsafe { dealloc(memory, layout) }
    } else {
        unsafe { libc::munmap(memory.cast(), layout.size()) };
    }
}
