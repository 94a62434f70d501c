//! Aligned payload memory behind [`BufId`]s, bounded, owned by the pump thread.
//!
//! A buffer is one contiguous piece of memory aligned to 4 KiB. Where it comes from:
//!
//! ```text
//!   alloc(len)    up to SLAB_MAX   arena, power-of-two classes     registered with io_uring: no pinning per I/O
//!                                  heap, when the arena is full
//!                 larger           its own mapping, unmapped at free
//!   adopt(box)                     memory that another thread filled and hands over
//!   insert_scratch(id, len)        likewise, and longer ones from the heap, under a name that the engine chose
//! ```
//!
//! What counts against the limit are *touched* bytes: a client that announces a 32 MiB write and sends nothing costs
//! an address range and no memory. Small buffers count with their class from the start; a large one counts what its
//! receiver reported with [`Buffers::touched`]. Adopted and scratch memory counts, but is never refused: it exists
//! already, respectively the engine cannot go on without it and bounds it itself.
//!
//! Two large buffers, each half received and each waiting for memory that the other holds, would wait for ever. So the
//! first one that hits the limit gets the *pass*: it may go past the limit until it is freed. The limit is exceeded by
//! at most one buffer.
//!
//! All memory starts as zeros and afterwards holds what its last user left: callers fill or clear what they show.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use braid_core::scrub::SCRATCH_MAX;
use braid_core::units::{BLOCK, BufId, BufRange};

use crate::aligned::{AlignedBox, BUFFER_MAX};

/// Largest buffer that comes from the registered arena.
pub const SLAB_MAX: usize = 1 << 20;
/// Address space that large buffers may reserve, in multiples of the limit. Costs nothing, yet must end somewhere.
const RESERVE_FACTOR: usize = 64;
/// Ids from here up to those of scratch blocks belong to the engine's pages of checksums.
pub const PAGES_FIRST: u32 = braid_core::request::PAGES_FIRST;
/// Ids from here to the top belong to the engine's scratch blocks.
pub const SCRATCH_FIRST: u32 = 1 << 31;
/// Alignment and granularity of everything.
const PAGE: usize = BLOCK as usize;
/// 4 KiB, 8 KiB, .. 1 MiB.
const CLASSES: usize = 9;

const _: () = assert!(PAGE << (CLASSES - 1) == SLAB_MAX);
const _: () = assert!(BUFFER_MAX <= u32::MAX as usize);

/// Zeroed anonymous memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a Mapping is a plain range of process memory; who may touch it when is said by its users.
unsafe impl Send for Mapping {}
// SAFETY: as above, a shared Mapping only gives out its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(len: usize) -> std::io::Result<Self> {
        if len == 0 {
            return Ok(Self { base: NonNull::dangling(), len: 0 });
        }
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Does all of `len` bytes from `ptr` lie here?
    pub(crate) fn holds(&self, ptr: *const u8, len: usize) -> bool {
        match (ptr as usize).checked_sub(self.base.as_ptr() as usize) {
            Some(offset) => offset.checked_add(len).is_some_and(|end| end <= self.len),
            None => false,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the range came from mmap in `new` and nobody else unmaps it.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

/// The registered part of the memory, shared with the ring so that neither outlives what it needs.
pub(crate) type Arena = Arc<Mapping>;

/// Free pieces of the arena, by class. Splits when it must, joins neighbours only when nothing else helps: a load
/// with one request size, which is the usual one, then pops and pushes one stack.
struct Slabs {
    /// First page that was never given out.
    fresh: usize,
    pages: usize,
    free: [Vec<u32>; CLASSES],
    /// Bytes that came back since the last attempt to join; joining is O(free pieces), so it must be earned.
    returned: usize,
}

impl Slabs {
    fn new(bytes: usize) -> Self {
        let pages = (bytes / PAGE).min(u32::MAX as usize);
        Self { fresh: 0, pages, free: Default::default(), returned: SLAB_MAX }
    }

    fn class_of(len: usize) -> usize {
        (len.div_ceil(PAGE)).next_power_of_two().trailing_zeros() as usize
    }

    /// First page of a piece.
    fn take(&mut self, class: usize) -> Option<u32> {
        if let Some(page) = self.free[class].pop() {
            return Some(page);
        }
        // Fresh memory comes in whole SLAB_MAX pieces, so that a piece of class c is aligned to its own size.
        let whole = SLAB_MAX / PAGE;
        if self.free[class + 1..].iter().all(Vec::is_empty) {
            if self.pages - self.fresh >= whole {
                self.free[CLASSES - 1].push(self.fresh as u32);
                self.fresh += whole;
            } else if self.returned >= SLAB_MAX {
                self.join();
            }
        }
        let from = (class..CLASSES).find(|&c| !self.free[c].is_empty())?;
        let page = self.free[from].pop()?;
        // Give the upper halves back on the way down.
        for c in (class..from).rev() {
            self.free[c].push(page + (1 << c));
        }
        Some(page)
    }

    fn give(&mut self, class: usize, page: u32) {
        self.free[class].push(page);
        self.returned += PAGE << class;
    }

    /// Join free buddies, smallest class first.
    fn join(&mut self) {
        self.returned = 0;
        for class in 0..CLASSES - 1 {
            let mut pieces = std::mem::take(&mut self.free[class]);
            pieces.sort_unstable();
            let mut rest = pieces.as_slice();
            while let [first, tail @ ..] = rest {
                let size = 1u32 << class;
                if first.is_multiple_of(size * 2) && tail.first() == Some(&(first + size)) {
                    self.free[class + 1].push(*first);
                    rest = &tail[1..];
                } else {
                    self.free[class].push(*first);
                    rest = tail;
                }
            }
        }
    }
}

enum Home {
    Slab { page: u32, class: u8 },
    Heap(#[allow(dead_code, reason = "owns the memory")] AlignedBox),
    Mapped(#[allow(dead_code, reason = "owns the memory")] Mapping),
    Adopted(AlignedBox),
}

struct Buffer {
    base: NonNull<u8>,
    len: usize,
    /// What it counts against the limit.
    counted: usize,
    home: Home,
}

/// A page's memory, and that of its copies while it is loaded or written.
const PAGE_COPIES: usize = 4;

/// Copy and place of a page of checksums; None for other memory.
fn page_place(id: BufId) -> Option<(usize, usize)> {
    let within = id.0.checked_sub(PAGES_FIRST).filter(|_| id.0 < SCRATCH_FIRST)?;
    Some(((within >> 28) as usize, (within & ((1 << 28) - 1)) as usize))
}

/// See the module.
pub struct Buffers {
    arena: Arena,
    slabs: Slabs,
    table: Vec<Option<Buffer>>,
    vacant: Vec<u32>,
    scratch: HashMap<u32, Buffer>,
    /// Pages of checksums, by the lower bits of their ids: bounded by the engine, and not counted here.
    pages: [Vec<Option<Buffer>>; PAGE_COPIES],
    /// Who may exceed the limit.
    pass: Option<BufId>,
    limit: usize,
    used: usize,
    reserved: usize,
}

// SAFETY: the pointers in the table point into memory that the same struct owns.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Memory for at most `limit` touched bytes; `arena` bytes of it registered with the ring.
    pub fn new(arena: usize, limit: usize) -> std::io::Result<Self> {
        let arena = arena / SLAB_MAX * SLAB_MAX;
        Ok(Self {
            arena: Arc::new(Mapping::new(arena)?),
            slabs: Slabs::new(arena),
            table: Vec::new(),
            vacant: Vec::new(),
            scratch: HashMap::new(),
            pages: Default::default(),
            pass: None,
            limit,
            used: 0,
            reserved: 0,
        })
    }

    /// A buffer of at least `len` bytes with unspecified old content, or None when that would pass the limit.
    pub fn alloc(&mut self, len: usize) -> Option<BufId> {
        if len > BUFFER_MAX {
            return None;
        }
        let len = len.max(1).next_multiple_of(PAGE);
        if len > SLAB_MAX {
            return self.alloc_large(len);
        }
        let class = Slabs::class_of(len);
        let counted = PAGE << class;
        if self.used.checked_add(counted)? > self.limit {
            return None;
        }
        let (base, home) = match self.slabs.take(class) {
            Some(page) => {
                // SAFETY: the slabs only name pages within the arena.
                let base = unsafe { self.arena.base.add(page as usize * PAGE) };
                (base, Home::Slab { page, class: class as u8 })
            }
            None => {
                let memory = AlignedBox::zeroed(len);
                (memory.base, Home::Heap(memory))
            }
        };
        Some(self.enter(Buffer { base, len, counted, home }))
    }

    fn alloc_large(&mut self, len: usize) -> Option<BufId> {
        if self.used >= self.limit || self.reserved.checked_add(len)? > self.limit.saturating_mul(RESERVE_FACTOR) {
            return None;
        }
        let memory = Mapping::new(len).ok()?;
        self.reserved += len;
        Some(self.enter(Buffer { base: memory.base, len, counted: 0, home: Home::Mapped(memory) }))
    }

    fn enter(&mut self, buffer: Buffer) -> BufId {
        self.used += buffer.counted;
        if let Some(index) = self.vacant.pop() {
            self.table[index as usize] = Some(buffer);
            return BufId(index);
        }
        let index = self.table.len() as u32;
        assert!(index < PAGES_FIRST, "one thousand million buffers are in use");
        self.table.push(Some(buffer));
        BufId(index)
    }

    /// The first `upto` bytes of a large buffer are about to be touched, by a receiver or by a device. False when the
    /// memory is not there now: try again after something was freed. True always for buffers up to [`SLAB_MAX`].
    pub fn touched(&mut self, id: BufId, upto: usize) -> bool {
        let (used, limit, pass) = (self.used, self.limit, self.pass);
        let buffer = self.get_mut(id).expect("a buffer that is in use");
        if !matches!(buffer.home, Home::Mapped(_)) {
            return true;
        }
        let upto = upto.next_multiple_of(PAGE).min(buffer.len);
        let Some(more) = upto.checked_sub(buffer.counted).filter(|more| *more > 0) else { return true };
        let fits = used + more <= limit;
        if !fits && pass.is_some_and(|holder| holder != id) {
            return false;
        }
        buffer.counted = upto;
        self.used += more;
        if !fits {
            self.pass = Some(id);
        }
        true
    }

    /// Zeros under the engine's own name for them, up to [`SCRATCH_MAX`].
    pub fn insert_scratch(&mut self, id: BufId, len: usize) {
        assert!(id.0 >= SCRATCH_FIRST, "scratch {id} lies in the range of ordinary buffers");
        assert!((1..=SCRATCH_MAX as usize).contains(&len), "scratch {id} of {len} bytes");
        let len = len.next_multiple_of(PAGE);
        let class = Slabs::class_of(len);
        let piece = if class < CLASSES { self.slabs.take(class) } else { None };
        let (base, counted, home) = match piece {
            Some(page) => {
                // SAFETY: the slabs only name pages within the arena.
                let base = unsafe { self.arena.base.add(page as usize * PAGE) };
                // SAFETY: the pages of this piece were free, so nobody else uses them.
                unsafe { base.as_ptr().write_bytes(0, len) };
                (base, PAGE << class, Home::Slab { page, class: class as u8 })
            }
            None => {
                let memory = AlignedBox::zeroed(len);
                (memory.base, len, Home::Heap(memory))
            }
        };
        self.used += counted;
        let old = self.scratch.insert(id.0, Buffer { base, len, counted, home });
        assert!(old.is_none(), "scratch {id} exists already");
    }

    /// A page of zeros for checksums under the engine's own name for it.
    pub fn insert_page(&mut self, id: BufId) {
        let (copy, slot) = page_place(id).expect("pages have names of their own");
        let memory = AlignedBox::zeroed(PAGE);
        let buffer = Buffer { base: memory.base, len: PAGE, counted: 0, home: Home::Heap(memory) };
        let pages = &mut self.pages[copy];
        if pages.len() <= slot {
            pages.resize_with(slot + 1, || None);
        }
        assert!(pages[slot].replace(buffer).is_none(), "page {id} exists already");
    }

    /// The bytes of a page of checksums, with whatever else is asked of other memory meanwhile.
    pub fn page_mut(&mut self, id: BufId) -> Option<&mut [u8; PAGE]> {
        page_place(id)?;
        self.bytes_mut(id).first_chunk_mut()
    }

    /// The bytes of a range; None when it does not lie within the buffer.
    pub fn range(&self, range: BufRange) -> Option<&[u8]> {
        let (from, len) = (range.offset as usize, range.len as usize);
        self.bytes(range.buf).get(from..from.checked_add(len)?)
    }

    /// Takes over memory that somebody else filled. Its length is used as it is.
    pub fn adopt(&mut self, memory: AlignedBox) -> BufId {
        let (base, len, counted) = (memory.base, memory.len, memory.cap);
        self.enter(Buffer { base, len, counted, home: Home::Adopted(memory) })
    }

    /// Gives adopted memory back out; None, and nothing happens, when `id` was not adopted.
    pub fn take(&mut self, id: BufId) -> Option<AlignedBox> {
        if !matches!(self.get(id)?.home, Home::Adopted(_)) {
            return None;
        }
        match self.remove(id)?.home {
            Home::Adopted(memory) => Some(memory),
            _ => None,
        }
    }

    /// Gives it back.
    pub fn free(&mut self, id: BufId) {
        let buffer = self.remove(id).unwrap_or_else(|| panic!("buffer {id} was freed twice or never existed"));
        match buffer.home {
            Home::Slab { page, class } => self.slabs.give(class as usize, page),
            Home::Mapped(_) => self.reserved -= buffer.len,
            Home::Heap(_) | Home::Adopted(_) => {}
        }
    }

    /// Gives back all that the engine named by itself: another one names its own.
    pub(crate) fn forget_engine(&mut self) {
        let scratch: Vec<u32> = self.scratch.keys().copied().collect();
        scratch.into_iter().for_each(|id| self.free(BufId(id)));
        self.pages = Default::default();
    }

    fn remove(&mut self, id: BufId) -> Option<Buffer> {
        let buffer = if id.0 >= SCRATCH_FIRST {
            self.scratch.remove(&id.0)?
        } else if let Some((copy, slot)) = page_place(id) {
            self.pages[copy].get_mut(slot)?.take()?
        } else {
            let buffer = self.table.get_mut(id.index())?.take()?;
            self.vacant.push(id.0);
            buffer
        };
        self.used -= buffer.counted;
        if self.pass == Some(id) {
            self.pass = None;
        }
        Some(buffer)
    }

    fn get(&self, id: BufId) -> Option<&Buffer> {
        match page_place(id) {
            None if id.0 >= SCRATCH_FIRST => self.scratch.get(&id.0),
            None => self.table.get(id.index())?.as_ref(),
            Some((copy, slot)) => self.pages[copy].get(slot)?.as_ref(),
        }
    }

    fn get_mut(&mut self, id: BufId) -> Option<&mut Buffer> {
        match page_place(id) {
            None if id.0 >= SCRATCH_FIRST => self.scratch.get_mut(&id.0),
            None => self.table.get_mut(id.index())?.as_mut(),
            Some((copy, slot)) => self.pages[copy].get_mut(slot)?.as_mut(),
        }
    }

    /// The memory. Only between alloc/complete and submit: nobody touches a buffer that a device is working on.
    pub fn bytes(&self, id: BufId) -> &[u8] {
        let buffer = self.get(id).expect("a buffer that is in use");
        // SAFETY: `len` initialised bytes that this struct owns; by the rule above no device writes to them now.
        unsafe { std::slice::from_raw_parts(buffer.base.as_ptr(), buffer.len) }
    }

    /// As `bytes`, to fill.
    pub fn bytes_mut(&mut self, id: BufId) -> &mut [u8] {
        let buffer = self.get_mut(id).expect("a buffer that is in use");
        // SAFETY: as for `bytes`, and two buffers never overlap.
        unsafe { std::slice::from_raw_parts_mut(buffer.base.as_ptr(), buffer.len) }
    }

    /// Pointer and length of a range, for an iovec; None when it does not lie within the buffer.
    pub fn raw(&self, range: BufRange) -> Option<(*mut u8, usize)> {
        let buffer = self.get(range.buf)?;
        let (offset, len) = (range.offset as usize, range.len as usize);
        if offset.checked_add(len)? > buffer.len {
            return None;
        }
        // SAFETY: `offset <= len` of the same piece of memory.
        Some((unsafe { buffer.base.as_ptr().add(offset) }, len))
    }

    /// Clears a range; false when it does not lie within the buffer.
    pub fn zero(&mut self, range: BufRange) -> bool {
        let Some((to, len)) = self.raw(range) else { return false };
        // SAFETY: `raw` checked the range, and `&mut self` says that nobody reads it.
        unsafe { to.write_bytes(0, len) };
        true
    }

    /// Copies a range; false when one does not lie within its buffer or the lengths differ.
    pub fn copy(&mut self, from: BufRange, to: BufRange) -> bool {
        match (self.raw(from), self.raw(to)) {
            (Some((from, len)), Some((to, same))) if len == same => {
                // SAFETY: both ranges were checked by `raw`; `copy_from` allows them to overlap.
                unsafe { to.copy_from(from, len) };
                true
            }
            _ => false,
        }
    }

    /// Whether two ranges hold the same; None when one does not lie within its buffer or the lengths differ.
    pub fn equal(&self, a: BufRange, b: BufRange) -> Option<bool> {
        let bytes = |range: BufRange| {
            let end = (range.offset as usize).checked_add(range.len as usize)?;
            self.get(range.buf)?;
            self.bytes(range.buf).get(range.offset as usize..end)
        };
        let (a, b) = (bytes(a)?, bytes(b)?);
        (a.len() == b.len()).then(|| a == b)
    }

    /// Bytes that count against the limit now.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(buf: BufId, offset: u32, len: u32) -> BufRange {
        BufRange { buf, offset, len }
    }

    #[test]
    fn every_buffer_is_aligned_and_apart_from_the_others() {
        let mut buffers = Buffers::new(4 << 20, 64 << 20).unwrap();
        let mut seed = 7u64;
        let mut live: Vec<(BufId, u8, usize)> = Vec::new();
        for step in 0..4000u32 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = (seed >> 33) as usize;
            if live.len() > 40 || (pick.is_multiple_of(3) && !live.is_empty()) {
                let (id, stamp, len) = live.swap_remove(pick % live.len());
                assert!(buffers.bytes(id)[..len].iter().all(|b| *b == stamp), "buffer {id} was overwritten");
                buffers.free(id);
            } else {
                let len = [512, 4096, 5000, 65536, 200_000, SLAB_MAX, SLAB_MAX + 1][pick % 7];
                let Some(id) = buffers.alloc(len) else { continue };
                assert!(buffers.touched(id, len));
                assert!((buffers.bytes(id).as_ptr() as usize).is_multiple_of(PAGE));
                assert!(buffers.bytes(id).len() >= len);
                buffers.bytes_mut(id)[..len].fill(step as u8);
                live.push((id, step as u8, len));
            }
        }
        for (id, ..) in live {
            buffers.free(id);
        }
        assert_eq!((buffers.used(), buffers.reserved), (0, 0));
    }

    #[test]
    fn the_arena_serves_one_class_after_another() {
        let mut buffers = Buffers::new(2 << 20, 64 << 20).unwrap();
        for len in [4096, SLAB_MAX, 8192, SLAB_MAX, 65536] {
            let ids: Vec<_> = (0..(2 << 20) / len).map(|_| buffers.alloc(len).unwrap()).collect();
            for id in &ids {
                let (ptr, len) = buffers.raw(range(*id, 0, len as u32)).unwrap();
                assert!(buffers.arena().holds(ptr, len), "a {len} byte buffer came from elsewhere");
            }
            let beyond = buffers.alloc(len).unwrap();
            assert!(!buffers.arena().holds(buffers.raw(range(beyond, 0, 1)).unwrap().0, 1));
            buffers.free(beyond);
            ids.into_iter().for_each(|id| buffers.free(id));
        }
    }

    #[test]
    fn the_limit_counts_touched_bytes() {
        let mut buffers = Buffers::new(1 << 20, 4 << 20).unwrap();
        let announced: Vec<_> = (0..7).map(|_| buffers.alloc(32 << 20).unwrap()).collect();
        assert_eq!(buffers.used(), 0);
        assert!(buffers.touched(announced[0], 3 << 20));
        assert!(buffers.touched(announced[0], 1 << 20), "known already");
        assert_eq!(buffers.used(), 3 << 20);
        let small = buffers.alloc(SLAB_MAX).unwrap();
        assert_eq!(buffers.alloc(4096), None, "the limit is reached");
        assert_eq!(buffers.alloc(2 << 20), None);
        // The first to hit the limit may finish, the second waits for it.
        assert!(buffers.touched(announced[1], 4096));
        assert!(!buffers.touched(announced[0], 4 << 20));
        assert!(buffers.touched(announced[1], 32 << 20));
        buffers.free(announced[1]);
        buffers.free(small);
        assert!(buffers.touched(announced[0], 4 << 20));
    }

    #[test]
    fn address_space_has_an_end_too() {
        let mut buffers = Buffers::new(0, 1 << 20).unwrap();
        let ids: Vec<_> = std::iter::from_fn(|| buffers.alloc(32 << 20)).collect();
        assert_eq!(ids.len(), RESERVE_FACTOR / 32);
        assert_eq!(buffers.alloc(BUFFER_MAX + 1), None);
        assert_eq!(buffers.alloc(usize::MAX), None);
    }

    #[test]
    fn ranges_outside_a_buffer_have_no_address() {
        let mut buffers = Buffers::new(1 << 20, 1 << 20).unwrap();
        let id = buffers.alloc(8192).unwrap();
        for (offset, len, inside) in [
            (0, 8192, true),
            (4096, 4096, true),
            (8192, 0, true),
            (8192, 1, false),
            (4096, 4097, false),
            (u32::MAX, u32::MAX, false),
        ] {
            assert_eq!(buffers.raw(range(id, offset, len)).is_some(), inside, "{offset}+{len}");
        }
        assert_eq!(buffers.raw(range(BufId(99), 0, 0)), None);
        assert!(!buffers.copy(range(id, 0, 4096), range(id, 4096, 8192)));
        buffers.bytes_mut(id).fill(9);
        assert!(buffers.zero(range(id, 0, 4096)));
        assert!(buffers.copy(range(id, 4096, 10), range(id, 5, 10)));
        assert_eq!(&buffers.bytes(id)[3..17], &[0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0]);
    }

    #[test]
    fn scratch_blocks_are_zero_and_keep_their_name() {
        let mut buffers = Buffers::new(1 << 20, 1 << 20).unwrap();
        let dirty = buffers.alloc(4096).unwrap();
        buffers.bytes_mut(dirty).fill(1);
        buffers.free(dirty);
        let name = BufId(u32::MAX - 1);
        buffers.insert_scratch(name, PAGE);
        assert_eq!(buffers.bytes(name), &[0; 4096]);
        buffers.free(name);
        buffers.insert_scratch(name, PAGE);
        assert_eq!(buffers.take(name).map(|b| b.len()), None);
        buffers.free(name);
        // A row of many members needs more than the arena has pieces for.
        let widest = SCRATCH_MAX as usize;
        for len in [SLAB_MAX, SLAB_MAX + PAGE, widest] {
            buffers.insert_scratch(name, len);
            assert_eq!(buffers.used(), len, "it counts as what it is");
            assert!(buffers.bytes(name).len() == len && buffers.bytes(name).iter().all(|byte| *byte == 0), "{len}");
            buffers.free(name);
        }
        assert_eq!(buffers.used(), 0);
    }

    #[test]
    fn adopted_memory_comes_back_as_it_is() {
        let mut buffers = Buffers::new(0, 1 << 20).unwrap();
        let filled = std::thread::spawn(|| AlignedBox::copy_of(&[5; 5000])).join().unwrap();
        let base = filled.as_ptr();
        let id = buffers.adopt(filled);
        assert_eq!((buffers.used(), buffers.bytes(id).len()), (8192, 5000));
        buffers.bytes_mut(id)[0] = 6;
        let back = buffers.take(id).unwrap();
        assert_eq!((back.as_ptr(), back[0], back[4999]), (base, 6, 5));
        assert_eq!(buffers.used(), 0);
        assert!(buffers.take(id).is_none());
        assert_eq!(AlignedBox::zeroed(0).len(), 0);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_buffer_is_freed_once() {
        let mut buffers = Buffers::new(0, 1 << 20).unwrap();
        let id = buffers.alloc(1).unwrap();
        buffers.free(id);
        buffers.free(id);
    }
}
