//! Memory that a disk can read and write directly: aligned to one block.

use std::alloc::{Layout, alloc, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use braid_core::units::BLOCK;

const ALIGN: usize = BLOCK as usize;

/// Bytes aligned to [`BLOCK`], initialised, owned.
pub struct AlignedBox {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for AlignedBox {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBox {}

impl AlignedBox {
    /// `len` zero bytes, or None when there is no memory for them.
    pub fn zeroed(len: usize) -> Option<AlignedBox> {
        Self::envelope(0, &[], len)
    }

    /// `len` bytes with `payload` at `lead`, zeros around it. The payload is written once and not cleared before:
    /// clearing 1 MiB first is as dear as copying it. None when it does not fit or there is no memory.
    pub fn envelope(lead: usize, payload: &[u8], len: usize) -> Option<AlignedBox> {
        let end = lead.checked_add(payload.len())?;
        if end > len {
            return None;
        }
        let layout = layout(len)?;
        // SAFETY: the layout is never of size 0; the three writes cover 0..len exactly and the new memory cannot
        // overlap with the payload.
        let ptr = unsafe {
            let ptr = NonNull::new(alloc(layout))?;
            ptr.write_bytes(0, lead);
            ptr.add(lead).copy_from_nonoverlapping(NonNull::from(payload).cast(), payload.len());
            ptr.add(end).write_bytes(0, len - end);
            ptr
        };
        Some(AlignedBox { ptr, len })
    }
}

/// At least one block, so that an empty box needs no special case.
fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.max(ALIGN), ALIGN).ok()
}

impl Drop for AlignedBox {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.len) {
            // SAFETY: allocated with the same layout.
            unsafe { dealloc(self.ptr.as_ptr(), layout) }
        }
    }
}

impl Deref for AlignedBox {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: ptr..ptr+len is ours and initialised.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBox {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for deref, and we are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
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
            assert_eq!((b.len(), b.as_ptr() as usize % ALIGN), (len, 0));
            assert!(b.iter().enumerate().all(|(i, &x)| x == if i >= lead && i < lead + payload { 0xa5 } else { 0 }));
        }
        assert!(AlignedBox::envelope(4095, &[0; 2], 4096).is_none());
        assert!(AlignedBox::envelope(usize::MAX, &[0; 2], 4096).is_none());
    }
}
