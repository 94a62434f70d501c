//! Which neighbours travel with the chosen I/O.
//!
//! ```text
//!   reads, gap limit 32 KiB        [4K]    [4K][4K]            [4K]
//!                                  |<-- one command -->|  64K   another
//!
//!   writes, gaps are never made up: an optional I/O of at most 4 KiB may bridge them
//!                                  [4K](opt)[4K]               one command of three
//! ```
//!
//! Members may be of any class: they ride along for free. They are of one operation and one [`kind`](Waiting::kind),
//! all may be merged, and they do not overlap. First downwards, then upwards, so that a full aggregate is the lower
//! part of a long run. Neither walk passes the limit, but optional I/Os may go past it, up to [`AGGREGATE_MAX`]. A
//! command never starts with an optional I/O, and ends with one only when that joins it to the next needed one.

use super::line::{Direction, Entry, Line, Place, direction};
use crate::queue::limits::{AGGREGATE_MAX, QueueSettings};
use crate::queue::waiting::Waiting;

/// Two or more neighbours: all that waits in this direction from one place to another.
pub(super) struct Run {
    pub(super) direction: Direction,
    pub(super) first: Place,
    pub(super) last: Place,
    /// The one after it is needed now, because this run ends with a bridge.
    pub(super) bridges: bool,
}

/// The run around the chosen one; `None` when that goes alone.
pub(super) fn run_around(line: &Line, settings: &QueueSettings, chosen: &Entry) -> Option<Run> {
    let direction = direction(chosen.io.op)?;
    // braid's own settings may say more.
    let limit = settings.aggregation_limit().min(AGGREGATE_MAX);
    if limit == 0 || !chosen.io.mergeable {
        return None;
    }
    let gap_max = match direction {
        Direction::Read => settings.read_gap_limit(),
        Direction::Write => 0,
    };
    let segments_max = settings.max_segments();
    let like = |entry: &Entry| {
        let io = entry.io;
        io.op == chosen.io.op && io.kind == chosen.io.kind && io.mergeable
    };

    let mut segments = 1;
    let (mut first, mut last) = (*chosen, *chosen);
    // The last one that is not optional.
    let mut needed = (!chosen.is_optional()).then_some(*chosen);
    for entry in line.before(direction, chosen.place()) {
        let Some(gap) = gap(&entry.io, &first.io) else { break };
        let more = segments_with(gap);
        if !like(entry) || span(entry, &last) > limit || gap > gap_max || segments + more > segments_max {
            break;
        }
        segments += more;
        first = *entry;
        if needed.is_none() && !entry.is_optional() {
            needed = Some(*entry);
        }
    }
    while first.is_optional() && first.place() != last.place() {
        let next = *line.after(direction, first.place()).next().expect("the chosen one is further up");
        segments -= segments_with(gap(&first.io, &next.io).unwrap_or(0));
        first = next;
    }
    if first.is_optional() {
        return None;
    }
    for entry in line.after(direction, last.place()) {
        let Some(gap) = gap(&last.io, &entry.io) else { break };
        let (more, span) = (segments_with(gap), span(&first, entry));
        let fits = (span <= limit || entry.is_optional()) && span <= AGGREGATE_MAX;
        if !like(entry) || !fits || gap > gap_max || segments + more > segments_max {
            break;
        }
        segments += more;
        last = *entry;
        if !entry.is_optional() {
            needed = Some(*entry);
        }
    }

    let mut bridges = false;
    if direction == Direction::Write && last.is_optional() {
        bridges = needed.is_some_and(|needed| reaches_needed(line, settings, &needed, &last));
        if !bridges {
            last = needed.unwrap_or(first);
        }
    }
    let (first, last) = (first.place(), last.place());
    (first != last).then_some(Run { direction, first, last, bridges })
}

/// Whether I/Os without gaps lead from `last` to a needed one, close behind the last `needed` one of the run.
fn reaches_needed(line: &Line, settings: &QueueSettings, needed: &Entry, last: &Entry) -> bool {
    let mut end = last.io;
    for entry in line.after(Direction::Write, last.place()) {
        let near = gap(&needed.io, &entry.io).is_some_and(|gap| gap <= settings.write_gap_limit());
        if gap(&end, &entry.io) != Some(0) || !near {
            return false;
        }
        if !entry.is_optional() {
            return true;
        }
        end = entry.io;
    }
    false
}

/// Bytes from the end of one to the start of the next; `None` where they overlap.
fn gap(lower: &Waiting, upper: &Waiting) -> Option<u64> {
    upper.offset.checked_sub(lower.end())
}

fn span(lowest: &Entry, highest: &Entry) -> u64 {
    highest.io.end() - lowest.io.offset
}

/// Buffers of one more member: its own, and scratch memory for the gap.
fn segments_with(gap: u64) -> u32 {
    1 + u32::from(gap > 0)
}
