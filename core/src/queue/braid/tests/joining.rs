//! What the budget holds, for how long, and who goes first.

use alloc::vec;

use super::*;
use crate::queue::budget::{Auto, BusyThreshold, RERUN_NS, WAIT_NS_MIN, Wait};

fn at(block: u64, now: Instant) -> Waiting {
    Waiting { arrived: now, ..read(block as u32, block * BLOCK, BLOCK) }
}

/// First block and length of each command.
fn blocks(leaving: &Leaving) -> Vec<(u64, u64)> {
    leaving.commands.iter().map(|command| (command.offset / BLOCK, command.len / BLOCK)).collect()
}

/// A queue whose budget holds every run while anything is in flight.
fn tight() -> BraidQueue {
    deep(RULES, 64, Budget::Auto(Auto::with_limit(Wait::Fixed(WAIT_NS_MIN), 1)))
}

fn send(queue: &mut BraidQueue, now: Instant, places: &[u64]) -> Vec<(u64, u64)> {
    let mut leaving = Leaving::default();
    for &place in places {
        queue.arrive(at(place, now));
    }
    queue.turn(now, &mut leaving);
    blocks(&leaving)
}

fn back(queue: &mut BraidQueue, now: Instant, place: u64) {
    queue.complete(now, Class::SyncRead, DeviceOp::Read, place * BLOCK, BLOCK, BLOCK);
}

#[test]
fn what_continues_something_in_flight_waits_and_grows() {
    let mut queue = tight();
    assert_eq!(send(&mut queue, T, &[10]), [(10, 1)], "the device is idle");
    assert_eq!(send(&mut queue, T, &[11]), [], "continues it");
    assert_eq!(send(&mut queue, T, &[50]), [(50, 1)], "alone");
    assert_eq!(send(&mut queue, T, &[12]), [], "grows");
    assert_eq!(send(&mut queue, T, &[9]), [], "continues it the other way");
    assert_eq!(queue.wake_at(), Some(T + WAIT_NS_MIN));
    back(&mut queue, T, 50);
    assert_eq!(send(&mut queue, T, &[]), [], "it was not their neighbour");
    back(&mut queue, T, 10);
    assert_eq!(send(&mut queue, T, &[]), [(11, 2), (9, 1)], "their neighbour is back");
    assert!(queue.is_empty() && queue.wake_at().is_none());
}

#[test]
fn what_is_held_leaves_at_the_bound_or_when_it_is_full() {
    let mut queue = tight();
    send(&mut queue, T, &[10]);
    send(&mut queue, T + 1000, &[11]);
    assert_eq!(send(&mut queue, T + 2000, &[12]), []);
    assert_eq!(queue.wake_at(), Some(T + (1000 + WAIT_NS_MIN)), "the oldest counts");
    assert_eq!(send(&mut queue, T + (999 + WAIT_NS_MIN), &[]), []);
    assert_eq!(send(&mut queue, T + (1000 + WAIT_NS_MIN), &[]), [(11, 2)]);
    assert_eq!(send(&mut queue, T + 400_000, &[13, 14, 15, 16, 17, 18, 19]), [], "seven of eight");
    assert_eq!(send(&mut queue, T + 400_000, &[20]), [(13, 8)], "full");
}

#[test]
fn a_neighbour_that_does_not_fit_ends_the_wait() {
    let mut queue = tight();
    send(&mut queue, T, &[10]);
    queue.arrive(Waiting { arrived: T, ..read(0, 11 * BLOCK, 5 * BLOCK) });
    assert_eq!(send(&mut queue, T, &[]), []);
    queue.arrive(Waiting { arrived: T, ..read(1, 16 * BLOCK, 4 * BLOCK) });
    assert_eq!(send(&mut queue, T, &[]), [(11, 5)], "9 blocks are too many; the newcomer continues it and waits");
}

#[test]
fn what_waits_for_depth_becomes_a_run_when_its_neighbour_leaves() {
    let mut queue = tight();
    // Of another kind, so that they don't join.
    let metadata = Waiting { kind: 1, ..at(11, T) };
    queue.arrive(at(10, T));
    queue.arrive(metadata);
    assert_eq!(send(&mut queue, T, &[]), [(10, 1)]);
    assert_eq!(queue.counters().held, 1, "it did not join, but follows what is in flight now");
    assert_eq!(send(&mut queue, T + WAIT_NS_MIN, &[]), [(11, 1)]);
}

/// An I/O that is to be left alone is in no table of places, but in flight it is somebody's neighbour like any other.
#[test]
fn who_follows_one_that_goes_alone_is_a_run_when_that_leaves() {
    let mut queue = tight();
    for io in [at(10, T), Waiting { mergeable: false, ..at(11, T) }, at(12, T)] {
        queue.arrive(io);
    }
    assert_eq!(send(&mut queue, T, &[]), [(10, 1), (11, 1)]);
    assert_eq!(queue.counters().held, 1);
    back(&mut queue, T, 11);
    assert_eq!(send(&mut queue, T, &[]), [(12, 1)]);
}

#[test]
fn nobody_waits_for_a_neighbour_of_another_class() {
    let mut queue = tight();
    assert_eq!(send(&mut queue, T, &[10]), [(10, 1)]);
    queue.arrive(Waiting { class: Class::AsyncRead, ..at(11, T) });
    assert_eq!(send(&mut queue, T, &[]), [(11, 1)], "nothing of its class could join it for that reason");
    assert_eq!(queue.counters().held, 0);
}

#[test]
fn a_fixed_budget_holds_everything_alike_and_asks_again_after_3_ms() {
    let mut queue = deep(RULES, 64, Budget::Fixed(BusyThreshold::new(2).unwrap()));
    assert_eq!(send(&mut queue, T, &[10, 30, 50, 70]), [(10, 1), (30, 1)]);
    assert_eq!(queue.wake_at(), Some(T + RERUN_NS));
    back(&mut queue, T, 10);
    assert_eq!(send(&mut queue, T, &[51]), [(50, 2)], "in the order of arrival");
}

#[test]
fn the_oldest_goes_first_where_depth_is_short() {
    let mut queue = deep(RULES, 1, Budget::Off);
    for (n, place) in [70, 10, 50, 30].into_iter().enumerate() {
        queue.arrive(at(place, T + n as u64));
    }
    let mut order = vec![];
    while !queue.is_empty() {
        let sent = send(&mut queue, T + 9, &[]);
        order.extend(sent.iter().map(|&(place, _)| place));
        queue.complete(T, Class::SyncRead, DeviceOp::Read, sent[0].0 * BLOCK, sent[0].1 * BLOCK, sent[0].1 * BLOCK);
    }
    assert_eq!(order, [70, 10, 50, 30]);
}

/// Clients' I/Os leave in the order of arrival, whether a neighbour brought them into the tables or not.
#[test]
fn loose_and_joined_requests_share_one_line() {
    let mut queue = deep(RULES, 1, Budget::Off);
    for (n, place) in [10, 50, 30, 51, 70, 31, 10].into_iter().enumerate() {
        queue.arrive(at(place, T + n as u64 / 3));
    }
    let mut order = vec![];
    while !queue.is_empty() {
        let sent = send(&mut queue, T + 9, &[]);
        queue.complete(T, Class::SyncRead, DeviceOp::Read, sent[0].0 * BLOCK, sent[0].1 * BLOCK, sent[0].1 * BLOCK);
        order.extend(sent);
    }
    assert_eq!(order, [(10, 1), (50, 2), (30, 2), (70, 1), (10, 1)]);
}
