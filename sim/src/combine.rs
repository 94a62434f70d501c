//! Sums of buffers over stamps.
//!
//! A sector is one stamp, 64 bits. A sum must give back exactly the stamps that went in, and a wrong one nothing that any
//! checker takes for right. Stamps themselves won't do: they are a small number and a place, so that the sum of three of
//! them, say of a block with old parity and new data, may well be a fourth. So the sum is made of what stamps are mapped
//! to, one to one and well mixed, byte by byte over GF(2^8); and mapped back. Zeros stay zeros, as what nobody wrote
//! counts as nothing.

use braid_core::combine::Combine;
use braid_core::gf;
use braid_core::meta::codec::crc32c;
use braid_core::units::BufRange;

use crate::disk::{Block, SECTORS};
use crate::pages::is_page;

const FIRST: u64 = 0xbf58_476d_1ce4_e5b9;
const SECOND: u64 = 0x94d0_49bb_1331_11eb;

/// What a stamp counts in parity with this factor.
pub(crate) fn counted(stamp: u64, factor: u8) -> u64 {
    product(element(stamp), factor)
}

/// The crc32c of what stamps stand for.
pub(crate) fn digest(stamps: &[u64]) -> u32 {
    let blocks = stamps.as_chunks::<SECTORS>().0.iter();
    let bytes: Vec<u8> = blocks.flat_map(|block| Block::Stamps(*block).bytes()).collect();
    crc32c(&bytes)
}

/// The element of the field, eight bytes of it, that a stamp stands for.
fn element(stamp: u64) -> u64 {
    let x = (stamp ^ stamp >> 30).wrapping_mul(FIRST);
    let x = (x ^ x >> 27).wrapping_mul(SECOND);
    x ^ x >> 31
}

/// The stamp of an element: [`element`] backwards, step by step.
fn stamp(element: u64) -> u64 {
    let unshifted = |x: u64, by: u32| (1..=64 / by).fold(x, |sum, i| sum ^ x.checked_shr(i * by).unwrap_or(0));
    let x = unshifted(element, 31).wrapping_mul(inverse(SECOND));
    let x = unshifted(x, 27).wrapping_mul(inverse(FIRST));
    unshifted(x, 30)
}

/// Modulo 2^64; each step of Newton doubles the places that are right, three to begin with.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// What the targets become: `read` gives the stamps of a range.
pub(crate) fn made(work: &Combine, mut read: impl FnMut(BufRange) -> Vec<u64>) -> Vec<(BufRange, Vec<u64>)> {
    assert!(work.is_sound(), "ranges overlap, or differ in length: {work:?}");
    let ranges = work.to.iter().flatten().copied().chain(work.addends.iter().map(|addend| addend.from));
    assert!(ranges.into_iter().all(|range| !is_page(range.buf)), "checksums are not combined: {work:?}");
    let sources: Vec<_> = work.addends.iter().map(|addend| (read(addend.from), addend.times)).collect();
    let targets = work.to.iter().enumerate().filter_map(|(target, to)| Some((target, (*to)?)));
    let make = |(target, to): (usize, BufRange)| {
        let mut sum = vec![0; read(to).len()];
        for (stamps, times) in &sources {
            sum.iter_mut().zip(stamps).for_each(|(sum, &stamp)| *sum ^= product(element(stamp), times[target]));
        }
        sum.iter_mut().for_each(|sum| *sum = stamp(*sum));
        (to, sum)
    };
    targets.map(make).collect()
}

fn product(element: u64, factor: u8) -> u64 {
    u64::from_le_bytes(element.to_le_bytes().map(|byte| gf::mul(byte, factor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::memory::Memory;
    use crate::disk::{BLOCK, SECTOR};
    use crate::rng::Rng;
    use braid_core::combine::Addend;
    use braid_core::profile::parity::{self, Lanes, Row, Source, plan_change, plan_read};
    use braid_core::request::Copy;
    use braid_core::units::{BufId, STRIP};

    const DATA: usize = 4;
    const PARITY: usize = 2;
    /// New content of member m is in buffer 10 + m, what is decoded in 20 + m.
    const NEW: u32 = 10;
    const AGAIN: u32 = 20;

    #[test]
    fn elements_are_stamps_and_back() {
        let mut rng = Rng::new(3);
        for i in 0..10_000 {
            let any = if i < 64 { 1 << i } else { rng.below(u64::MAX) };
            assert_eq!(stamp(element(any)), any);
            assert_eq!(element(stamp(any)), any);
        }
        assert_eq!((element(0), stamp(0)), (0, 0));
    }

    fn blocks(buf: u32, lanes: Lanes) -> impl Iterator<Item = BufRange> {
        let at = move |lane: u32| BufRange { buf: BufId(buf), offset: lane * BLOCK as u32, len: BLOCK as u32 };
        (0..16).filter(move |lane| lanes >> lane & 1 == 1).map(at)
    }

    /// Carries a plan out, lane by lane, as an engine would have it done.
    fn carry_out(memory: &mut Memory, plan: &parity::Plan, place: impl Fn(usize) -> u32) {
        for make in &plan.makes {
            for (i, _) in blocks(0, make.lanes).enumerate() {
                let part = |buf: u32| blocks(buf, make.lanes).nth(i).unwrap();
                let from = |source| match source {
                    Source::Old(m) => part(m as u32),
                    Source::New(m) => part(NEW + m as u32),
                };
                let addends = make.addends.iter().map(|a| Addend { from: from(a.from), times: a.times }).collect();
                memory.combine(&Combine { to: make.to.map(|to| to.map(|m| part(place(m)))), addends });
            }
        }
    }

    fn stamps(memory: &mut Memory, buf: u32) -> Vec<u64> {
        memory.stamps(BufRange { buf: BufId(buf), offset: 0, len: STRIP as u32 }).to_vec()
    }

    #[test]
    fn parity_of_stamps_is_made_changed_and_decoded() {
        let mut memory = Memory::default();
        for buf in (0..DATA + PARITY).map(|m| m as u32).flat_map(|m| [m, NEW + m, AGAIN + m]) {
            memory.copy(Copy::Scratch { buf: BufId(buf), len: STRIP as u32 });
        }
        // Stamps as clients make them: a number and a place. Members 0 and 1 are written in whole, of member 2 some
        // lanes, of member 3 none; of P and Q all.
        let counted = [Lanes::MAX, Lanes::MAX, 0x0ff0, 0];
        let sectors = (STRIP / SECTOR) as usize;
        let fill = |memory: &mut Memory, buf: u32, lanes: Lanes, tag: u64| {
            for range in blocks(buf, lanes) {
                let first = u64::from(range.offset) / SECTOR + u64::from(buf % 10) * sectors as u64;
                (first..).zip(memory.stamps(range)).for_each(|(sector, stamp)| *stamp = tag << 32 | sector);
            }
        };
        (0..DATA).for_each(|m| fill(&mut memory, m as u32, counted[m], 100 + m as u64));
        let good = [Lanes::MAX; DATA + PARITY];
        let fresh = Row { data: DATA, parity: PARITY, counted: &[0; DATA], good: &good };
        // Members are written from where they stand: what is new is what is there.
        (0..DATA).for_each(|m| fill(&mut memory, NEW + m as u32, counted[m], 100 + m as u64));
        let plan = plan_change(&fresh, &counted, [true, true]).unwrap();
        carry_out(&mut memory, &plan, |m| m as u32);
        // Then a part of member 1 is written over.
        let mut after = [0; DATA];
        after[1] = 0x00ff;
        fill(&mut memory, NEW + 1, after[1], 200);
        let row = Row { counted: &counted, ..fresh };
        let plan = plan_change(&row, &after, [true, true]).unwrap();
        // A target is no source, so new parity is made elsewhere.
        carry_out(&mut memory, &plan, |m| AGAIN + m as u32);
        let move_to = |memory: &mut Memory, from: u32, to: u32, lanes| {
            for (from, to) in blocks(from, lanes).zip(blocks(to, lanes)) {
                memory.copy(Copy::Move { from, to });
            }
        };
        (DATA..DATA + PARITY).for_each(|m| move_to(&mut memory, AGAIN + m as u32, m as u32, after[1]));
        let stale = stamps(&mut memory, 1);
        move_to(&mut memory, NEW + 1, 1, after[1]);
        for (a, b) in (0..DATA + PARITY).flat_map(|b| (0..=b).map(move |a| (a, b))) {
            let mut wanted = [0; DATA + PARITY];
            (wanted[a], wanted[b]) = (Lanes::MAX, Lanes::MAX);
            let plan = plan_read(&row, &wanted).unwrap();
            carry_out(&mut memory, &plan, |m| AGAIN + m as u32);
            for m in [a, b] {
                assert_eq!(stamps(&mut memory, AGAIN + m as u32), stamps(&mut memory, m as u32), "{a} and {b} lost");
            }
        }
        // With old content of member 1, what is decoded of member 0 is no stamp that anybody ever made.
        let new = stamps(&mut memory, 1);
        memory.stamps(BufRange { buf: BufId(1), offset: 0, len: STRIP as u32 }).copy_from_slice(&stale);
        let plan = plan_read(&row, &[Lanes::MAX, 0, 0, 0]).unwrap();
        carry_out(&mut memory, &plan, |m| AGAIN + m as u32);
        let (right, made) = (stamps(&mut memory, 0), stamps(&mut memory, AGAIN));
        for (i, made) in made.into_iter().enumerate() {
            assert_eq!(made == right[i], new[i] == stale[i], "sector {i}");
            assert!(made == right[i] || made >> 32 > 1 << 16, "sector {i} looks like a stamp: {made:x}");
        }
    }

    #[test]
    #[should_panic(expected = "ranges overlap")]
    fn overlaps_are_refused() {
        let range = BufRange { buf: BufId(1), offset: 0, len: BLOCK as u32 };
        let addends = vec![Addend { from: range, times: [1, 1] }];
        made(&Combine { to: [None, Some(range)], addends }, |_| vec![0; 8]);
    }
}
