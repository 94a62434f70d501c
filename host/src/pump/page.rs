//! Work on pages of checksums: what the engine decides about, and never sees.

use braid_core::request::{Expected, Input, PageWork};
use braid_core::sums::{self, Checksum};
use braid_core::units::{BLOCK, BufId, BufRange, IoId};

use super::Pump;
use crate::buffers::Buffers;
use crate::checksum::{crc32c, of_block, of_zeros};

const NAMED: &str = "the engine names memory that it was given";

impl Pump {
    /// Does it; the answer, where one is wanted.
    pub(super) fn page_work(&mut self, work: PageWork) -> Option<Input> {
        let buffers = &mut self.buffers;
        match work {
            PageWork::New(page) => buffers.insert_page(page),
            PageWork::Sum { kind, data, page, first } => {
                for i in 0..data.len / BLOCK as u32 {
                    let sum = of_block(kind, block(buffers, data, i));
                    sums::set(page_mut(buffers, page), kind, u32::from(first) + i, sum);
                }
            }
            PageWork::SumZeros { kind, page, first, count } => fill(buffers, kind, page, first, count, of_zeros(kind)),
            PageWork::Clear { kind, page, first, count } => fill(buffers, kind, page, first, count, 0),
            PageWork::Seal { page, name } => sums::seal(page_mut(buffers, page), &name, crc32c),
            PageWork::Verify { tag, kind, data, page, first } => {
                let expected = Expected { kind, data, page, first };
                return Some(Input::Verified { tag, bad: verify(buffers, &expected) });
            }
            PageWork::Unsummed { tag, kind, page, first, count } => {
                let bad = sums::unsummed(page_mut(buffers, page), kind, first, count);
                return Some(Input::Verified { tag, bad });
            }
            PageWork::Check { tag, page, other, name } => {
                let other = other.map(|other| *page_mut(buffers, other));
                let bad = sums::merge(page_mut(buffers, page), other.as_ref(), &name, crc32c);
                return Some(Input::Verified { tag, bad });
            }
        }
        None
    }
}

impl Pump {
    /// What a read that was well comes back as: compared now, while it is in the cache of the processor.
    pub(super) fn read_done(&self, id: IoId) -> Input {
        match self.engine.expects(id, |expected| verify(&self.buffers, &expected) == 0) {
            true => Input::Intact { id },
            false => Input::Complete { id, result: Ok(()) },
        }
    }
}

fn page_mut(buffers: &mut Buffers, page: BufId) -> &mut sums::Page {
    buffers.page_mut(page).expect(NAMED)
}

fn block(buffers: &Buffers, data: BufRange, i: u32) -> &[u8; BLOCK as usize] {
    let (offset, len) = (data.offset + i * BLOCK as u32, BLOCK as u32);
    buffers.range(BufRange { buf: data.buf, offset, len }).and_then(<[u8]>::first_chunk).expect(NAMED)
}

fn fill(buffers: &mut Buffers, kind: Checksum, page: BufId, first: u16, count: u16, sum: u64) {
    let page = page_mut(buffers, page);
    (first..first + count).for_each(|slot| sums::set(page, kind, u32::from(slot), sum));
}

/// One bit for each block that is not what its sum says.
fn verify(buffers: &Buffers, expected: &Expected) -> u16 {
    let Expected { kind, data, page, first } = *expected;
    let page: &sums::Page = buffers.bytes(page).first_chunk().expect(NAMED);
    let mut bad = 0;
    for i in 0..data.len / BLOCK as u32 {
        let sum = sums::get(page, kind, u32::from(first) + i);
        let differs = sum != 0 && sum != of_block(kind, block(buffers, data, i));
        bad |= u16::from(differs) << i;
    }
    bad
}
