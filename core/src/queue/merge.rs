//! May two requests become one command?
//!
//! ```text
//!   back     [ request )[ io )        the io is appended
//!   front    [ io )[ request )        the io is put before; the request's start moves
//!   apart    not neighbours, or of two kinds: look on
//!   full     neighbours of one kind, but together over a limit: look no further
//!
//!   bridged  [ read ).....[ read )    what lies between is read for nothing
//! ```
//!
//! Source of the published rule: Linux `block/blk-merge.c`, restated in the specification, section 5.4. Two differences
//! matter between the [variants](Variant):
//!
//! | | blk-mq | braid |
//! |---|---|---|
//! | metadata flag | not compared; the command keeps the flag of the request that was there first | compared |
//! | writes with force unit access | never join | join each other |
//!
//! Of the published attributes, I/O priority is braid's [`Class`] and is compared in both; integrity data, encryption
//! contexts, control groups, write hints and streams, and atomic writes have no counterpart here. Buffers are gathered
//! by the host and may lie anywhere in memory, so virtual boundaries and segment sizes have no counterpart either: an
//! I/O is one segment, and so is a gap.

use super::class::Class;
use super::waiting::Waiting;
use crate::request::DeviceOp;

/// What one command may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes.
    pub max_bytes: u64,
    /// I/Os, each with a buffer of its own, and gaps.
    pub max_segments: u32,
    /// No joined command contains a multiple of this in its middle; 0 means none. An I/O that does so by itself
    /// passes, but stays alone.
    pub boundary: u64,
}

/// Whose rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As published.
    BlkMq,
    /// braid's own: what the classes are for survives merging.
    Braid,
}

/// A rule with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Limits of a command.
    pub bounds: Bounds,
    /// Whose rule.
    pub variant: Variant,
}

/// What merging sees of an I/O, or of a request that several I/Os have become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What it does.
    pub op: DeviceOp,
    /// Who waits for it.
    pub class: Class,
    /// The content class, of the I/O that was there first.
    pub kind: u8,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes, gaps included.
    pub len: u64,
    /// I/Os in it, and gaps.
    pub segments: u32,
    /// Nobody asked to leave it alone.
    pub mergeable: bool,
}

/// How an I/O lies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It is appended.
    Back,
    /// It is put before.
    Front,
    /// No neighbours, or not of one kind.
    Apart,
    /// Neighbours of one kind, but together over a limit.
    Full,
}

impl Rules {
    /// How `io` lies to `request`.
    #[must_use]
    pub fn fit(&self, request: &Shape, io: &Shape) -> Fit {
        if !self.joinable(request) || !self.joinable(io) || !self.alike(request, io) {
            return Fit::Apart;
        }
        let (fit, start) = if request.end() == io.offset {
            (Fit::Back, request.offset)
        } else if io.end() == request.offset {
            (Fit::Front, io.offset)
        } else {
            return Fit::Apart;
        };
        let len = request.len.saturating_add(io.len);
        let segments = request.segments.saturating_add(io.segments);
        if self.holds(start, len, segments) { fit } else { Fit::Full }
    }

    /// Whether two reads may leave as one, `gap_max` bytes or less apart. Of writes nothing lies between: nobody knows
    /// what to write there.
    #[must_use]
    pub fn bridges(&self, front: &Shape, back: &Shape, gap_max: u64) -> bool {
        let Some(gap) = back.offset.checked_sub(front.end()) else { return false };
        let may = gap <= gap_max && front.op == DeviceOp::Read && self.alike(front, back);
        if !may || !self.joinable(front) || !self.joinable(back) {
            return false;
        }
        let mut both = *front;
        both.append_over_gap(back);
        self.holds(both.offset, both.len, both.segments)
    }

    /// Whether it may join anything at all.
    #[must_use]
    pub fn joinable(&self, shape: &Shape) -> bool {
        let op = match shape.op {
            DeviceOp::Read | DeviceOp::Write { fua: false } => true,
            DeviceOp::Write { fua: true } => self.variant == Variant::Braid,
            DeviceOp::Flush | DeviceOp::Discard | DeviceOp::WriteZeroes => false,
        };
        op && shape.mergeable && shape.len > 0
    }

    /// Nothing can be appended to it any more.
    #[must_use]
    pub fn is_full(&self, shape: &Shape) -> bool {
        let Bounds { max_bytes, max_segments, boundary } = self.bounds;
        let at_boundary = boundary != 0 && shape.end().is_multiple_of(boundary);
        shape.len >= max_bytes || shape.segments >= max_segments || at_boundary
    }

    fn alike(&self, a: &Shape, b: &Shape) -> bool {
        let kind = match self.variant {
            Variant::BlkMq => true,
            Variant::Braid => a.kind == b.kind,
        };
        a.op == b.op && a.class == b.class && kind
    }

    /// One command may be that.
    fn holds(&self, start: u64, len: u64, segments: u32) -> bool {
        let Bounds { max_bytes, max_segments, boundary } = self.bounds;
        let crosses = || boundary != 0 && len > boundary - start % boundary;
        len <= max_bytes && segments <= max_segments && !crosses()
    }
}

impl Shape {
    /// First byte after it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Takes in what lies right behind it. It stays what it was in all but its length.
    pub fn append(&mut self, other: &Shape) {
        self.len += other.len;
        self.segments += other.segments;
    }

    /// The same with a gap between, which is a segment.
    pub fn append_over_gap(&mut self, other: &Shape) {
        let gap = other.offset.saturating_sub(self.end());
        self.len += gap;
        self.segments += u32::from(gap > 0);
        self.append(other);
    }

    /// Takes in what lies right before it. Class and kind stay its own: the newcomer's are lost.
    pub fn prepend(&mut self, other: &Shape) {
        self.offset = other.offset;
        self.append(other);
    }
}

impl From<&Waiting> for Shape {
    fn from(io: &Waiting) -> Shape {
        let Waiting { op, class, kind, offset, len, mergeable, .. } = *io;
        Shape { op, class, kind, offset, len, segments: 1, mergeable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: u8 = 0;
    const METADATA: u8 = 1;

    fn rules(variant: Variant) -> Rules {
        Rules { bounds: Bounds { max_bytes: 64 << 10, max_segments: 4, boundary: 0 }, variant }
    }

    /// A read of the sectors `[start, end)`.
    fn sectors(start: u64, end: u64) -> Shape {
        let (offset, len) = (start * 512, (end - start) * 512);
        Shape { op: DeviceOp::Read, class: Class::SyncRead, kind: DATA, offset, len, segments: 1, mergeable: true }
    }

    /// Vector 5.10, with the rows that braid answers otherwise.
    #[test]
    fn vector_5_10_what_joins_the_request_8_to_16() {
        let request = sectors(8, 16);
        let fua = DeviceOp::Write { fua: true };
        let rows: [(&str, Shape, Shape, Fit, Fit); 12] = [
            ("[16,24)", request, sectors(16, 24), Fit::Back, Fit::Back),
            ("[0,8)", request, sectors(0, 8), Fit::Front, Fit::Front),
            ("[17,24)", request, sectors(17, 24), Fit::Apart, Fit::Apart),
            ("other priority", request, Shape { class: Class::Scrub, ..sectors(16, 24) }, Fit::Apart, Fit::Apart),
            ("metadata", request, Shape { kind: METADATA, ..sectors(16, 24) }, Fit::Back, Fit::Apart),
            ("metadata before", request, Shape { kind: METADATA, ..sectors(0, 8) }, Fit::Front, Fit::Apart),
            (
                "other operation",
                request,
                Shape { op: DeviceOp::Write { fua: false }, ..sectors(16, 24) },
                Fit::Apart,
                Fit::Apart,
            ),
            ("marked no-merge", request, Shape { mergeable: false, ..sectors(16, 24) }, Fit::Apart, Fit::Apart),
            ("request no-merge", Shape { mergeable: false, ..request }, sectors(16, 24), Fit::Apart, Fit::Apart),
            ("fua", Shape { op: fua, ..request }, Shape { op: fua, ..sectors(16, 24) }, Fit::Apart, Fit::Back),
            (
                "discard",
                Shape { op: DeviceOp::Discard, ..request },
                Shape { op: DeviceOp::Discard, ..sectors(16, 24) },
                Fit::Apart,
                Fit::Apart,
            ),
            ("overlap", request, sectors(12, 24), Fit::Apart, Fit::Apart),
        ];
        for (name, request, io, published, braid) in rows {
            assert_eq!(rules(Variant::BlkMq).fit(&request, &io), published, "{name}, as published");
            assert_eq!(rules(Variant::Braid).fit(&request, &io), braid, "{name}, braid");
        }
    }

    #[test]
    fn the_request_keeps_the_flag_of_who_was_first() {
        let metadata = Shape { kind: METADATA, ..sectors(16, 24) };
        let mut request = sectors(8, 16);
        request.append(&metadata);
        assert_eq!((request.kind, request.offset, request.len, request.segments), (DATA, 4096, 8192, 2));
        request.prepend(&Shape { kind: METADATA, ..sectors(0, 8) });
        assert_eq!((request.kind, request.offset, request.len, request.segments), (DATA, 0, 12_288, 3));
    }

    #[test]
    fn limits() {
        let bounds = |max_bytes, max_segments, boundary| Bounds { max_bytes, max_segments, boundary };
        let two = Shape { segments: 2, ..sectors(8, 16) };
        let rows: [(&str, Bounds, Shape, Shape, Fit); 9] = [
            ("bytes reached", bounds(8192, 9, 0), sectors(8, 16), sectors(16, 24), Fit::Back),
            ("bytes passed", bounds(8191, 9, 0), sectors(8, 16), sectors(16, 24), Fit::Full),
            ("front, bytes passed", bounds(8191, 9, 0), sectors(8, 16), sectors(0, 8), Fit::Full),
            ("segments reached", bounds(1 << 20, 3, 0), two, sectors(16, 24), Fit::Back),
            ("segments passed", bounds(1 << 20, 2, 0), two, sectors(16, 24), Fit::Full),
            ("boundary at the seam", bounds(1 << 20, 9, 8192), sectors(8, 16), sectors(16, 24), Fit::Full),
            ("boundary at the end", bounds(1 << 20, 9, 12_288), sectors(8, 16), sectors(16, 24), Fit::Back),
            ("front, boundary at the seam", bounds(1 << 20, 9, 4096), sectors(8, 16), sectors(0, 8), Fit::Full),
            ("not adjacent, over a limit", bounds(1, 1, 0), sectors(8, 16), sectors(32, 40), Fit::Apart),
        ];
        for (name, bounds, request, io, expected) in rows {
            assert_eq!(Rules { bounds, variant: Variant::BlkMq }.fit(&request, &io), expected, "{name}");
        }
    }

    #[test]
    fn reads_are_bridged_within_the_limits_of_a_command() {
        const GAP: u64 = 8 * 512;
        let bounds = |max_bytes, max_segments, boundary| Bounds { max_bytes, max_segments, boundary };
        let (wide, write) = (bounds(1 << 20, 9, 0), DeviceOp::Write { fua: false });
        let (request, near) = (sectors(8, 16), sectors(24, 32));
        let rows: [(&str, Bounds, Shape, Shape, bool); 16] = [
            ("at the limit", wide, request, near, true),
            ("beyond it", wide, request, sectors(25, 32), false),
            ("no gap", wide, request, sectors(16, 24), true),
            ("overlap", wide, request, sectors(15, 24), false),
            ("the wrong way round", wide, near, request, false),
            ("writes", wide, Shape { op: write, ..request }, Shape { op: write, ..near }, false),
            ("a write behind a read", wide, request, Shape { op: write, ..near }, false),
            ("other class", wide, request, Shape { class: Class::Scrub, ..near }, false),
            ("metadata", wide, request, Shape { kind: METADATA, ..near }, false),
            ("marked no-merge", wide, request, Shape { mergeable: false, ..near }, false),
            ("request no-merge", wide, Shape { mergeable: false, ..request }, near, false),
            ("bytes reached", bounds(24 * 512, 9, 0), request, near, true),
            ("bytes passed by the gap", bounds(24 * 512 - 1, 9, 0), request, near, false),
            ("segments reached", bounds(1 << 20, 3, 0), request, near, true),
            ("segments passed by the gap", bounds(1 << 20, 2, 0), request, near, false),
            ("a boundary in the gap", bounds(1 << 20, 9, 20 * 512), request, near, false),
        ];
        for (name, bounds, front, back, expected) in rows {
            assert_eq!(Rules { bounds, variant: Variant::Braid }.bridges(&front, &back, GAP), expected, "{name}");
        }
        let mut both = request;
        both.append_over_gap(&near);
        assert_eq!((both.offset, both.len, both.segments), (4096, 24 * 512, 3), "the gap is a segment");
    }

    #[test]
    fn full_is_when_nothing_can_be_appended() {
        let rules = |max_bytes, max_segments, boundary| Rules {
            bounds: Bounds { max_bytes, max_segments, boundary },
            variant: Variant::Braid,
        };
        assert!(!rules(8192, 2, 0).is_full(&sectors(0, 8)));
        assert!(rules(4096, 2, 0).is_full(&sectors(0, 8)));
        assert!(rules(8192, 1, 0).is_full(&sectors(0, 8)));
        assert!(rules(8192, 2, 4096).is_full(&sectors(0, 8)));
        assert!(!rules(8192, 2, 16_384).is_full(&sectors(0, 8)));
    }
}
