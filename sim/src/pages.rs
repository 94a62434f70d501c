//! Pages of checksums: real bytes, with sums of stamps in them.

use std::collections::BTreeMap;

use braid_core::meta::codec::crc32c;
use braid_core::request::{Expected, Input, PAGES_FIRST, PageWork};
use braid_core::sums::{self, Checksum, Page};
use braid_core::units::{BLOCK, BufId, BufRange};

/// Ids of pages are below.
const PAGES_END: u32 = 1 << 31;

pub(crate) fn is_page(buf: BufId) -> bool {
    (PAGES_FIRST..PAGES_END).contains(&buf.0)
}

/// The sum of a block of stamps, as it is kept.
pub(crate) fn of_block(kind: Checksum, stamps: &[u64]) -> u64 {
    let mix = |sum: u64, stamp: &u64| (sum ^ stamp).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let sum = stamps.iter().fold(kind as u64, mix);
    sums::kept(kind, sum ^ sum >> 32)
}

/// What a host does with pages.
#[derive(Clone, Default)]
pub(crate) struct Pages(BTreeMap<u32, Box<Page>>);

impl Pages {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The bytes of a page that was made.
    pub(crate) fn get(&self, page: BufId) -> Option<&Page> {
        self.0.get(&page.0).map(|page| &**page)
    }

    /// The same, to be changed.
    pub(crate) fn page(&mut self, page: BufId) -> &mut Page {
        self.0.get_mut(&page.0).unwrap_or_else(|| panic!("no page {page}"))
    }

    pub(crate) fn drop(&mut self, page: BufId) {
        assert!(self.0.remove(&page.0).is_some(), "page {page} is not in use");
    }

    /// Clears a part of a page.
    pub(crate) fn zero(&mut self, range: BufRange) {
        let (from, len) = (range.offset as usize, range.len as usize);
        self.page(range.buf)[from..from + len].fill(0);
    }

    /// One page becomes what another one is.
    pub(crate) fn copy(&mut self, from: BufId, to: BufId) {
        let page = *self.page(from);
        *self.page(to) = page;
    }

    /// One bit for each block of stamps that is not what its sum says.
    pub(crate) fn wrong(&self, expected: &Expected, stamps: &[u64]) -> u16 {
        let Expected { kind, page, first, .. } = *expected;
        let page = self.get(page).unwrap_or_else(|| panic!("no page {page}"));
        let kept = (u32::from(first)..).map(|slot| sums::get(page, kind, slot));
        let wrong = stamps.chunks(8).zip(kept).map(|(block, kept)| kept != 0 && kept != of_block(kind, block));
        wrong.enumerate().fold(0, |bad, (i, wrong)| bad | u16::from(wrong) << i)
    }

    /// Does what is asked of pages, and of the stamps that `memory` holds; the answer, if one is due.
    pub(crate) fn work<'a>(&mut self, work: PageWork, memory: impl FnOnce(BufRange) -> &'a [u64]) -> Option<Input> {
        match work {
            PageWork::New(page) => {
                let before = self.0.insert(page.0, Box::new([0; BLOCK as usize]));
                assert!(before.is_none(), "page {page} is in use");
            }
            PageWork::Sum { kind, data, page, first } => {
                let page = self.page(page);
                for (slot, sum) in (u32::from(first)..).zip(memory(data).chunks(8).map(|block| of_block(kind, block))) {
                    sums::set(page, kind, slot, sum);
                }
            }
            PageWork::SumZeros { kind, page, first, count } => {
                let sum = of_block(kind, &[0; 8]);
                (first..first + count).for_each(|slot| sums::set(self.page(page), kind, slot.into(), sum));
            }
            PageWork::Clear { kind, page, first, count } => {
                (first..first + count).for_each(|slot| sums::set(self.page(page), kind, slot.into(), 0));
            }
            PageWork::Seal { page, name } => sums::seal(self.page(page), &name, crc32c),
            PageWork::Verify { tag, kind, data, page, first } => {
                let bad = self.wrong(&Expected { kind, data, page, first }, memory(data));
                return Some(Input::Verified { tag, bad });
            }
            PageWork::Unsummed { tag, kind, page, first, count } => {
                let bad = sums::unsummed(self.page(page), kind, first, count);
                return Some(Input::Verified { tag, bad });
            }
            PageWork::Check { tag, page, other, name } => {
                let other = other.map(|other| *self.page(other));
                let bad = sums::merge(self.page(page), other.as_ref(), &name, crc32c);
                return Some(Input::Verified { tag, bad });
            }
        }
        None
    }
}

/// Without payload everything is right.
pub(crate) fn work_bare(work: PageWork) -> Option<Input> {
    match work {
        PageWork::Verify { tag, .. } | PageWork::Unsummed { tag, .. } | PageWork::Check { tag, .. } => {
            Some(Input::Verified { tag, bad: 0 })
        }
        PageWork::New(_)
        | PageWork::Sum { .. }
        | PageWork::SumZeros { .. }
        | PageWork::Clear { .. }
        | PageWork::Seal { .. } => None,
    }
}
