//! What the tests of the queues share.

use alloc::vec::Vec;

use super::class::Class;
use super::merge::{Rules, Shape};
use super::waiting::{Command, Leaving, Waiting};
use crate::request::DeviceOp;
use crate::units::{Instant, IoId};

/// A mergeable read for a client.
pub(super) fn read(id: u32, offset: u64, len: u64) -> Waiting {
    Waiting {
        id: IoId(id),
        class: Class::SyncRead,
        op: DeviceOp::Read,
        offset,
        len,
        arrived: Instant(0),
        kind: 0,
        mergeable: true,
        optional: false,
    }
}

/// xorshift64*, so that a seed repeats a run anywhere.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    pub(super) fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// A random I/O in a small place, so that neighbours are common.
pub(super) fn any_io(rng: &mut Rng, id: u32, arrived: Instant) -> Waiting {
    any_io_in(rng, id, arrived, 64)
}

/// A random I/O that begins within so many blocks.
pub(super) fn any_io_in(rng: &mut Rng, id: u32, arrived: Instant, blocks: u64) -> Waiting {
    let op = match rng.below(20) {
        0 => DeviceOp::Flush,
        1 => DeviceOp::Discard,
        2 => DeviceOp::Write { fua: true },
        3..=8 => DeviceOp::Write { fua: false },
        _ => DeviceOp::Read,
    };
    let class = if rng.chance(8) { Class::Scrub } else { Class::SyncRead };
    let (offset, len) = (rng.below(blocks) * 4096, (1 + rng.below(2)) * 4096);
    let (offset, len) = if op == DeviceOp::Flush { (0, 0) } else { (offset, len) };
    let (kind, mergeable) = (u8::from(rng.chance(6)), !rng.chance(10));
    Waiting { id: IoId(id), class, op, offset, len, arrived, kind, mergeable, optional: false }
}

/// What every command must be: its members in device order without overlap, all of one sort, within the limits of
/// `rules`, and only between reads gaps, of `gap_max` bytes at most. Written without a look at how chains are built.
pub(super) fn check_command(rules: &Rules, gap_max: u64, leaving: &Leaving, command: &Command) -> Vec<IoId> {
    let members = &leaving.members[command.members.clone()];
    let (first, rest) = members.split_first().expect("a command has a member");
    assert_eq!(command.offset, first.offset);
    let (mut place, mut segments) = (first.offset + first.len, 1);
    for io in rest {
        let gap = io.offset.checked_sub(place).unwrap_or_else(|| panic!("an overlap: {members:?}"));
        assert!(gap == 0 || io.op == DeviceOp::Read && gap <= gap_max, "a gap of {gap}: {members:?}");
        place += gap + io.len;
        segments += 1 + u32::from(gap > 0);
        assert!(io.op == first.op && io.class == first.class, "{members:?}");
        assert!(io.mergeable && first.mergeable, "{members:?}");
        assert!(matches!(io.op, DeviceOp::Read | DeviceOp::Write { .. }), "{members:?}");
        // Of all things that two members must have in common the rule itself is asked as well, member by member.
        let shape = |io: &Waiting| Shape { offset: 0, len: 1, ..Shape::from(io) };
        let next = Shape { offset: 1, ..shape(io) };
        assert_eq!(rules.fit(&shape(first), &next), super::merge::Fit::Back, "{members:?}");
    }
    assert_eq!(command.offset + command.len, place);
    if !rest.is_empty() {
        let bounds = rules.bounds;
        assert!(command.len <= bounds.max_bytes && segments <= bounds.max_segments, "{members:?}");
        let last = command.offset + command.len - 1;
        assert!(bounds.boundary == 0 || command.offset / bounds.boundary == last / bounds.boundary, "{members:?}");
    }
    assert_eq!(command.class, first.class);
    members.iter().map(|io| io.id).collect()
}
