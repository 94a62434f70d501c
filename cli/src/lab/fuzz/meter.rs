//! Memory that an input takes: the allocator of this program, with a counter that is off unless `lab fuzz` reads an input.
//!
//! Counted is what is allocated and not yet free, on all threads. Whoever would go past the limit is stopped where it
//! stands and never goes on: an allocator must not panic, and an answer of "no memory" would end the process without a word
//! of the input. [`is_over`] tells whoever looks on.
//!
//! Left out: memory of the system that does not go through the allocator (payload of NBD, rings, stacks).

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

/// The allocator.
pub(crate) struct Meter;

static COUNTS: AtomicBool = AtomicBool::new(false);
static OVER: AtomicBool = AtomicBool::new(false);
static LIMIT: AtomicIsize = AtomicIsize::new(0);
static NOW: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

/// Counts from here on, up to so many bytes.
pub(super) fn begin(limit: usize) {
    LIMIT.store(limit as isize, Relaxed);
    NOW.store(0, Relaxed);
    MOST.store(0, Relaxed);
    COUNTS.store(true, Relaxed);
}

/// Counts no more; the most there was.
pub(super) fn end() -> usize {
    COUNTS.store(false, Relaxed);
    MOST.load(Relaxed).max(0) as usize
}

/// Somebody wanted more than the limit, and stands still.
pub(super) fn is_over() -> bool {
    OVER.load(Relaxed)
}

fn count(bytes: isize) {
    if !COUNTS.load(Relaxed) {
        return;
    }
    // What is asked for may be as much as there are numbers.
    let now = NOW.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if now > LIMIT.load(Relaxed) {
        // Whoever looks on needs memory to tell of it.
        COUNTS.store(false, Relaxed);
        OVER.store(true, Relaxed);
        loop {
            // SAFETY: it only waits for a signal.
            unsafe { libc::pause() };
        }
    }
    MOST.fetch_max(now, Relaxed);
}

/// No object is larger than `isize::MAX`.
fn size(layout: Layout) -> isize {
    layout.size() as isize
}

// SAFETY: everything is handed to the system's allocator as it is; counting touches atomics only.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size(layout));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(size(layout));
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-size(layout));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - size(layout));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}
