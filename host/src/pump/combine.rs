//! Sums of buffers: parity, and what it makes up for.

use braid_core::combine::Combine;
use braid_core::units::BufRange;

use super::Pump;
use crate::buffers::Buffers;
use crate::checksum::crc32c_joined;
use crate::parity::{self, Addend};

impl Pump {
    pub(super) fn combine(&mut self, work: &Combine) {
        combine(&mut self.buffers, work);
    }
}

/// The checksum of ranges, one after the other.
pub(super) fn digest(buffers: &Buffers, data: &[BufRange]) -> u32 {
    crc32c_joined(data.iter().map(|&range| {
        let (from, len) = buffers.raw(range).expect("the engine names buffers that it was given");
        // SAFETY: `raw` checked the range, and no device writes to it while the engine works on it.
        unsafe { std::slice::from_raw_parts(from.cast_const(), len) }
    }))
}

/// Makes the targets. Panics when a range is not there, or two overlap that must not.
fn combine(buffers: &mut Buffers, work: &Combine) {
    assert!(work.is_sound(), "ranges overlap, or differ in length: {work:?}");
    let raw = |range: BufRange| {
        buffers.raw(range).unwrap_or_else(|| panic!("the engine names buffers that it was given: {range:?}"))
    };
    let addends: Vec<Addend<'_>> = work
        .addends
        .iter()
        .map(|addend| {
            let (from, len) = raw(addend.from);
            // SAFETY: `raw` checked the range, no device writes to it while the engine works on it, and no target of ours
            // overlaps with it.
            (unsafe { std::slice::from_raw_parts(from.cast_const(), len) }, addend.times)
        })
        .collect();
    let to = work.to.map(|range| {
        let (to, len) = raw(range?);
        // SAFETY: as above; `&mut` says that nobody else uses buffers now, and the other target lies elsewhere.
        Some(unsafe { std::slice::from_raw_parts_mut(to, len) })
    });
    parity::combine(to, &addends);
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::profile::parity::{Lanes, Row, Source, plan_change, plan_read};
    use braid_core::units::{BLOCK, BufId, STRIP};

    fn strip(buf: BufId) -> BufRange {
        BufRange { buf, offset: 0, len: STRIP as u32 }
    }

    fn work(to: [Option<BufRange>; 2], addends: impl Iterator<Item = (BufRange, [u8; 2])>) -> Combine {
        let addends = addends.map(|(from, times)| braid_core::combine::Addend { from, times }).collect();
        Combine { to, addends }
    }

    #[test]
    fn what_two_lost_disks_held_is_made_again() {
        let mut buffers = Buffers::new(1 << 20, 8 << 20).unwrap();
        let (data, parity) = (5, 2);
        let strips: Vec<BufId> = (0..data + parity).map(|_| buffers.alloc(STRIP as usize).unwrap()).collect();
        for (m, &id) in strips[..data].iter().enumerate() {
            buffers.bytes_mut(id).iter_mut().enumerate().for_each(|(i, b)| *b = (i * 7 + i / 251 * (m + 3) + m) as u8);
        }
        let (counted, good) = ([Lanes::MAX; 5], [Lanes::MAX; 7]);
        let row = Row { data, parity, counted: &counted, good: &good };
        let made = &plan_change(&row, &counted, [true, true]).unwrap().makes[0];
        let from = |source| match source {
            Source::Old(m) | Source::New(m) => strip(strips[m]),
        };
        let to = made.to.map(|to| to.map(|m| strip(strips[m])));
        combine(&mut buffers, &work(to, made.addends.iter().map(|a| (from(a.from), a.times))));
        let sum = (0..data).fold(0, |sum, m| sum ^ buffers.bytes(strips[m])[70]);
        assert_eq!(buffers.bytes(strips[data])[70], sum, "P is the sum");
        for (a, b) in (0..7).flat_map(|b| (0..b).map(move |a| (a, b))) {
            let mut wanted = [0; 7];
            (wanted[a], wanted[b]) = (Lanes::MAX, Lanes::MAX);
            let plan = plan_read(&row, &wanted).unwrap();
            let again = [0, 1].map(|_| buffers.alloc(STRIP as usize).unwrap());
            again.iter().for_each(|&id| buffers.bytes_mut(id).fill(0xee));
            for make in &plan.makes {
                let to = [0, 1].map(|target| make.to[target].map(|_| strip(again[target])));
                combine(&mut buffers, &work(to, make.addends.iter().map(|a| (from(a.from), a.times))));
                for (target, to) in make.to.iter().enumerate() {
                    let right = to.is_none_or(|to| buffers.bytes(again[target]) == buffers.bytes(strips[to]));
                    assert!(right, "{a} and {b} lost");
                }
            }
            again.into_iter().for_each(|id| buffers.free(id));
        }
    }

    #[test]
    #[should_panic(expected = "ranges overlap")]
    fn overlaps_are_refused() {
        let mut buffers = Buffers::new(1 << 20, 1 << 20).unwrap();
        let buf = buffers.alloc(STRIP as usize).unwrap();
        let part = |block: u32| BufRange { buf, offset: block * BLOCK as u32, len: 2 * BLOCK as u32 };
        combine(&mut buffers, &work([Some(part(0)), None], [(part(1), [1, 0])].into_iter()));
    }

    #[test]
    #[should_panic(expected = "buffers that it was given")]
    fn ranges_are_checked() {
        let mut buffers = Buffers::new(1 << 20, 1 << 20).unwrap();
        let buf = buffers.alloc(BLOCK as usize).unwrap();
        let beyond = BufRange { buf, offset: BLOCK as u32, len: BLOCK as u32 };
        combine(&mut buffers, &work([Some(beyond), None], std::iter::empty()));
    }
}
