//! Memory that a disk can read and write directly: aligned to one block.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use braid_core::units::BLOCK;

/// Largest buffer at all: offsets in a `BufRange` are 32 bits wide, and no protocol of ours allows more.
pub const BUFFER_MAX: usize = 1 << 30;

const PAGE: usize = BLOCK as usize;

/// Heap memory aligned to 4 KiB, always initialised; what other threads fill and hand over.
pub struct AlignedBox {
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
    pub(crate) cap: usize,
}

// SAFETY: unique ownership of plain bytes, as for Box<[u8]>.
unsafe impl Send for AlignedBox {}
// SAFETY: as above.
unsafe impl Sync for AlignedBox {}

impl AlignedBox {
    fn layout(cap: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(cap, PAGE).expect("capacity was checked")
    }

    fn allocate(len: usize) -> Self {
        assert!(len <= BUFFER_MAX, "{len} bytes is more than one buffer may have");
        let cap = len.max(1).next_multiple_of(PAGE);
        // SAFETY: the layout has a size above zero.
        let base = unsafe { std::alloc::alloc(Self::layout(cap)) };
        let Some(base) = NonNull::new(base) else { std::alloc::handle_alloc_error(Self::layout(cap)) };
        Self { base, len, cap }
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let new = Self::allocate(len);
        // SAFETY: `cap` bytes were just allocated there.
        unsafe { new.base.as_ptr().write_bytes(0, new.cap) };
        new
    }

    /// `len` bytes with `payload` at `lead`, zeros around it. The payload is written once and not cleared before:
    /// clearing 1 MiB first is as dear as copying it. None when it does not fit.
    pub fn envelope(lead: usize, payload: &[u8], len: usize) -> Option<Self> {
        let end = lead.checked_add(payload.len()).filter(|&end| end <= len && len <= BUFFER_MAX)?;
        let new = Self::allocate(len);
        // SAFETY: the three writes cover `0..cap` exactly, and fresh memory cannot overlap with the payload.
        unsafe {
            let base = new.base.as_ptr();
            base.write_bytes(0, lead);
            base.add(lead).copy_from_nonoverlapping(payload.as_ptr(), payload.len());
            base.add(end).write_bytes(0, new.cap - end);
        }
        Some(new)
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let new = Self::allocate(bytes.len());
        // SAFETY: fresh memory of `cap >= bytes.len()` bytes; the tail is cleared so that all of it is initialised.
        unsafe {
            new.base.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            new.base.as_ptr().add(bytes.len()).write_bytes(0, new.cap - bytes.len());
        }
        new
    }
}

impl Deref for AlignedBox {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= cap` initialised bytes that this box owns.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBox {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and the box is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBox {
    fn drop(&mut self) {
        // SAFETY: allocated in `allocate` with the same layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.cap)) };
    }
}

impl std::fmt::Debug for AlignedBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBox({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_stands_in_a_zeroed_aligned_envelope() {
        for (lead, payload, len) in [(0, 0, 0), (0, 0, 1), (0, 4096, 4096), (4095, 2, 8192), (17, 5000, 8192)] {
            let bytes = vec![0xa5; payload];
            let b = AlignedBox::envelope(lead, &bytes, len).unwrap();
            assert_eq!((b.len(), b.as_ptr() as usize % PAGE), (len, 0));
            assert!(b.iter().enumerate().all(|(i, &x)| x == if i >= lead && i < lead + payload { 0xa5 } else { 0 }));
        }
        assert!(AlignedBox::envelope(4095, &[0; 2], 4096).is_none());
        assert!(AlignedBox::envelope(usize::MAX, &[0; 2], 4096).is_none());
    }
}
