//! Reads that are near each other leave together.

use alloc::string::ToString;
use alloc::vec;

use super::*;
use crate::queue::budget::{Auto, WAIT_NS_MIN, Wait};
use Class::{AsyncRead, Scrub, SyncRead};

const READ: DeviceOp = DeviceOp::Read;
const WRITE: DeviceOp = DeviceOp::Write { fua: false };

/// A queue that bridges so many blocks, one command at a time for who wants an order.
fn bridging(blocks: u64, bounds: Bounds, depth: u32) -> BraidQueue {
    let mut queue = deep(Rules { bounds, ..RULES }, depth, Budget::Off);
    set_gap(&mut queue, blocks);
    queue
}

fn set_gap(queue: &mut BraidQueue, blocks: u64) {
    let mut settings = queue.settings().clone();
    settings.set("read_gap_limit", &(blocks * BLOCK).to_string()).expect("a size");
    queue.configure(settings);
}

/// First block and blocks.
fn at(start: u64, len: u64) -> Waiting {
    Waiting { arrived: T, ..read(start as u32, start * BLOCK, len * BLOCK) }
}

/// The commands of one turn: first block, blocks, I/Os.
fn turn(queue: &mut BraidQueue) -> Vec<(u64, u64, usize)> {
    let mut leaving = Leaving::default();
    queue.turn(T, &mut leaving);
    leaving.commands.iter().map(|c| (c.offset / BLOCK, c.len / BLOCK, c.members.len())).collect()
}

type Ios = &'static [(u64, u64)];
type Commands = &'static [(u64, u64, usize)];

#[test]
fn near_reads_leave_as_one_within_the_limits_of_a_command() {
    let bounds = |blocks: u64, max_segments, boundary: u64| Bounds {
        max_bytes: blocks * BLOCK,
        max_segments,
        boundary: boundary * BLOCK,
    };
    let wide = bounds(1000, 1000, 0);
    let rows: [(&str, u64, Bounds, Ios, Commands); 14] = [
        ("off", 0, wide, &[(0, 1), (2, 1)], &[(0, 1, 1), (2, 1, 1)]),
        ("at the limit", 2, wide, &[(0, 1), (3, 1), (6, 1)], &[(0, 7, 3)]),
        ("beyond it", 1, wide, &[(0, 1), (3, 1)], &[(0, 1, 1), (3, 1, 1)]),
        ("whatever the order", 2, wide, &[(6, 1), (0, 1), (3, 1)], &[(0, 7, 3)]),
        ("what closes a gap", 2, wide, &[(0, 1), (2, 1), (1, 1)], &[(0, 3, 3)]),
        ("joined ones", 4, wide, &[(0, 1), (1, 1), (9, 1), (5, 2), (7, 1)], &[(0, 10, 5)]),
        ("full", 2, bounds(4, 9, 0), &[(0, 1), (3, 1), (6, 1), (9, 1)], &[(0, 4, 2), (6, 4, 2)]),
        ("down before up", 2, bounds(4, 9, 0), &[(3, 1), (0, 1), (6, 1)], &[(0, 4, 2), (6, 1, 1)]),
        ("a gap is a segment", 2, bounds(99, 3, 0), &[(0, 1), (3, 1), (6, 1)], &[(0, 4, 2), (6, 1, 1)]),
        ("none for neighbours", 2, bounds(99, 3, 0), &[(0, 1), (1, 1), (2, 1)], &[(0, 3, 3)]),
        ("boundary in the gap", 2, bounds(99, 9, 2), &[(0, 1), (3, 1)], &[(0, 1, 1), (3, 1, 1)]),
        ("boundary at its end", 2, bounds(99, 9, 4), &[(0, 1), (3, 1), (4, 1)], &[(0, 4, 2), (4, 1, 1)]),
        ("the same twice", 2, wide, &[(0, 1), (0, 1), (3, 1), (3, 1)], &[(0, 4, 2), (0, 4, 2)]),
        ("overlapping", 2, wide, &[(0, 4), (2, 4), (8, 1)], &[(0, 4, 1), (2, 7, 2)]),
    ];
    for (name, gap, bounds, ios, expected) in rows {
        let mut queue = bridging(gap, bounds, 64);
        ios.iter().for_each(|&(start, len)| queue.arrive(at(start, len)));
        assert_eq!(turn(&mut queue), expected, "{name}");
        assert!(queue.is_empty(), "{name}");
    }
}

#[test]
fn only_reads_of_one_sort_are_bridged() {
    let io = at(2, 1);
    let rows: [(&str, Waiting, bool); 7] = [
        ("a read", io, true),
        ("a write", Waiting { op: WRITE, ..io }, false),
        ("another class", Waiting { class: AsyncRead, ..io }, false),
        ("background", Waiting { class: Scrub, ..io }, false),
        ("another kind", Waiting { kind: 1, ..io }, false),
        ("to be left alone", Waiting { mergeable: false, ..io }, false),
        ("a discard", Waiting { op: DeviceOp::Discard, class: Class::Trim, ..io }, false),
    ];
    for (name, io, joins) in rows {
        for swapped in [false, true] {
            let mut queue = bridging(4, Bounds { max_segments: 99, max_bytes: 99 * BLOCK, boundary: 0 }, 64);
            let mut both = [at(0, 1), io];
            both.rotate_left(usize::from(swapped));
            both.into_iter().for_each(|io| queue.arrive(io));
            assert_eq!(turn(&mut queue).len() == 1, joins, "{name}");
            assert_eq!(queue.counters().bridged, u64::from(joins), "{name}");
        }
    }
    let mut queue = bridging(4, BOUNDS, 64);
    [at(0, 1), at(2, 1)].into_iter().for_each(|io| queue.arrive(Waiting { op: WRITE, class: Class::SyncWrite, ..io }));
    assert_eq!(turn(&mut queue).len(), 2, "two writes");
    [at(0, 1), at(2, 1)].into_iter().for_each(|io| queue.arrive(Waiting { class: Scrub, ..io }));
    assert_eq!(turn(&mut queue), [(0, 3, 2)], "a scrub's reads among themselves");
}

/// It ends where something of another kind stands between, since whoever reads that would read it twice.
#[test]
fn the_walk_ends_at_the_first_that_does_not_fit() {
    let mut queue = bridging(8, Bounds { max_segments: 99, max_bytes: 99 * BLOCK, boundary: 0 }, 64);
    for io in [at(0, 1), Waiting { kind: 1, ..at(2, 1) }, at(4, 1), at(6, 1)] {
        queue.arrive(io);
    }
    assert_eq!(turn(&mut queue), [(0, 1, 1), (2, 1, 1), (4, 3, 2)]);
}

#[test]
fn who_waits_for_depth_leaves_with_who_is_chosen() {
    let mut queue = bridging(2, Bounds { max_segments: 99, max_bytes: 99 * BLOCK, boundary: 0 }, 1);
    let mut leaving = Leaving::default();
    for (n, start) in [90, 10, 40, 12, 50, 42].into_iter().enumerate() {
        queue.arrive(Waiting { arrived: T + n as u64, ..at(start, 1) });
        queue.turn(T + n as u64, &mut leaving);
    }
    let mut order = vec![];
    while let Some(command) = leaving.commands.pop() {
        order.push((command.offset / BLOCK, command.len / BLOCK, leaving.members.len()));
        leaving.clear();
        queue.complete(T + 9, SyncRead, READ, command.offset, command.len, command.len);
        queue.turn(T + 9, &mut leaving);
    }
    assert_eq!(order, [(90, 1, 1), (10, 3, 2), (40, 3, 2), (50, 1, 1)]);
}

/// More wait than a line is looked through for; nobody of them touches anybody.
#[test]
fn a_batch_of_strided_reads_is_one_command_however_it_is_shuffled() {
    for (gap, blocks) in [(1, 2), (3, 4), (7, 8)] {
        for factor in [1, 77, 241, 511] {
            let mut queue = bridging(gap, Bounds { max_segments: 2000, max_bytes: 8000 * BLOCK, boundary: 0 }, 64);
            let mut settings = queue.settings().clone();
            settings.set("max_segments", "1024").expect("a number");
            queue.configure(settings);
            (0..512).for_each(|i| queue.arrive(at(i * factor % 512 * blocks, 1)));
            assert_eq!(turn(&mut queue), [(0, 511 * blocks + 1, 512)], "every {blocks} blocks, factor {factor}");
            assert_eq!(queue.counters().bridged, 511);
        }
    }
}

/// Who was loose under one limit is near somebody under another.
#[test]
fn the_limit_changes_while_something_waits() {
    for waiting in [3, 20] {
        let mut queue = bridging(0, Bounds { max_segments: 99, max_bytes: 999 * BLOCK, boundary: 0 }, 64);
        (0..waiting).for_each(|i| queue.arrive(at(i * 3, 1)));
        set_gap(&mut queue, 2);
        queue.arrive(at(waiting * 3, 1));
        assert_eq!(turn(&mut queue), [(0, waiting * 3 + 1, waiting as usize + 1)], "{waiting}: wider");
        (0..waiting).for_each(|i| queue.arrive(at(i * 3, 1)));
        set_gap(&mut queue, 1);
        assert_eq!(turn(&mut queue).len() as u64, waiting, "{waiting}: narrower");
    }
}

/// A run is held so that it grows; leaving with somebody costs no command.
#[test]
fn who_is_held_leaves_with_a_free_neighbour() {
    let mut queue = deep(RULES, 64, Budget::Auto(Auto::with_limit(Wait::Fixed(WAIT_NS_MIN), 1)));
    set_gap(&mut queue, 2);
    queue.arrive(at(10, 1));
    assert_eq!(turn(&mut queue), [(10, 1, 1)], "the device is idle");
    queue.arrive(at(11, 1));
    assert_eq!(turn(&mut queue), [], "continues it");
    queue.arrive(at(14, 1));
    assert_eq!(turn(&mut queue), [(11, 4, 2)], "near is not a continuation");
    queue.arrive(at(15, 1));
    assert_eq!(turn(&mut queue), [], "continues the command with the gap");
    queue.complete(T, SyncRead, READ, 11 * BLOCK, 4 * BLOCK, 2 * BLOCK);
    assert_eq!(turn(&mut queue), [(15, 1, 1)], "its neighbour is back");
    for (start, len) in [(10, 1), (15, 1)] {
        queue.complete(T, SyncRead, READ, start * BLOCK, len * BLOCK, len * BLOCK);
    }
    assert!(queue.is_empty() && queue.lanes.iter().all(|lane| lane.knows_nothing_in_flight()));
}

/// What a search for a limit gains must be bytes that somebody wanted.
#[test]
fn a_budget_counts_no_gaps() {
    let counted = |gap| {
        let mut queue = deep(RULES, 64, Budget::Auto(Auto::new(Wait::Auto)));
        set_gap(&mut queue, gap);
        [at(0, 1), at(3, 1)].into_iter().for_each(|io| queue.arrive(io));
        let mut leaving = Leaving::default();
        queue.turn(T, &mut leaving);
        for command in &leaving.commands {
            let wanted = leaving.members[command.members.clone()].iter().map(|io| io.len).sum();
            queue.complete(T + 1000, SyncRead, READ, command.offset, command.len, wanted);
        }
        let Budget::Auto(auto) = queue.budget() else { panic!("it is auto") };
        (leaving.commands.len(), auto.sampled_bytes())
    };
    assert_eq!((counted(0), counted(2)), ((2, 2 * BLOCK), (1, 2 * BLOCK)));
}
