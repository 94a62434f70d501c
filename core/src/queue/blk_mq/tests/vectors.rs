//! Vectors 5.1 to 5.12; 5.7, 5.8 and 5.10 are tests of the budget and of the merge test.

use super::*;
use crate::queue::blk_mq::dispatch::Busy;

#[test]
fn vector_5_1_a_batch_of_1024_blocks_is_one_request() {
    let (mut queue, mut leaving) = (Queue::new(config(Scheduler::None, 128, 0)), Leaving::default());
    for n in 0..1024 {
        queue.arrive(T, block(n), true, &mut leaving);
    }
    assert!(leaving.commands.is_empty(), "merging into a plug never empties it");
    queue.finish_plug(T, &mut leaving);
    assert_eq!(blocks(&leaving), [(0, 1024)]);
    assert_eq!(merges(&queue), 1023);
}

#[test]
fn vector_5_2_a_smaller_maximum_flushes_the_plug_on_the_way() {
    let mut config = config(Scheduler::None, 128, 0);
    config.bounds.max_bytes = MIB;
    let (mut queue, mut leaving) = (Queue::new(config), Leaving::default());
    let mut sent_after = Vec::new();
    for n in 0..1024 {
        let before = leaving.commands.len();
        queue.arrive(T, block(n), true, &mut leaving);
        if leaving.commands.len() > before {
            sent_after.push(n);
        }
    }
    assert_eq!(sent_after, [256, 512, 768], "the last request is over 128 KiB when another is added");
    queue.finish_plug(T, &mut leaving);
    assert_eq!(blocks(&leaving), [(0, 256), (256, 256), (512, 256), (768, 256)]);
    assert_eq!(merges(&queue), 1020);
}

#[test]
fn vector_5_3_a_plug_of_32_requests_is_full() {
    for (plug_requests, in_plug) in [(PLUG_REQUESTS, 32), (PLUG_REQUESTS_BEFORE_5_16, 16)] {
        let config = Config { plug_requests, ..config(Scheduler::None, 128, 0) };
        let (mut queue, mut leaving) = (Queue::new(config), Leaving::default());
        for n in 0..in_plug {
            queue.arrive(T, block(2 * n), true, &mut leaving);
        }
        assert!(leaving.commands.is_empty());
        queue.arrive(T, block(2 * in_plug), true, &mut leaving);
        assert_eq!(leaving.commands.len() as u64, in_plug);
        queue.finish_plug(T, &mut leaving);
        assert_eq!(leaving.commands.len() as u64, in_plug + 1);
    }
}

#[test]
fn vector_5_4_without_scheduler_the_submitter_sleeps_and_nothing_merges() {
    let (mut queue, mut leaving) = (Queue::new(config(Scheduler::None, 64, 0)), Leaving::default());
    for n in 0..65 {
        queue.arrive(T, block(n), false, &mut leaving);
    }
    assert_eq!(blocks(&leaving), (0..64).map(|n| (n, 1)).collect::<Vec<_>>());
    assert_eq!((merges(&queue), queue.counters().slept, queue.outside.len()), (0, 1, 1));
    // What is submitted meanwhile waits behind the sleeper, and each wakes for one tag.
    queue.arrive(T, block(65), false, &mut leaving);
    queue.complete(T, &mut leaving);
    assert_eq!((leaving.commands.len(), merges(&queue), queue.outside.len()), (65, 0, 1));
}

#[test]
fn who_slept_does_not_look_for_neighbours_again() {
    let (mut queue, mut leaving) = (Queue::new(config(Scheduler::None, 4, 1)), Leaving::default());
    queue.arrive(T, block(1000), false, &mut leaving);
    queue.arrive(T, block(2000), false, &mut leaving);
    // In the plug only the last request is compared; for a tag it is flushed to the list, where 50 would be found.
    for n in [50, 10, 51] {
        queue.arrive(T, block(n), true, &mut leaving);
    }
    assert_eq!((queue.waiting().1, queue.outside.len()), (vec![(50, 1), (10, 1)], 1));
    queue.complete(T, &mut leaving);
    assert_eq!((merges(&queue), queue.outside.len()), (0, 0));
}

/// The state after vector 5.5.
fn refused_at_threshold_2() -> (Queue, Leaving) {
    let (mut queue, mut leaving) = (Queue::new(config(Scheduler::None, 128, 2)), Leaving::default());
    for n in 0..6 {
        queue.arrive(T, block(n), false, &mut leaving);
    }
    (queue, leaving)
}

#[test]
fn vector_5_5_what_is_refused_before_dequeue_merges_and_after_it_does_not() {
    let (queue, leaving) = refused_at_threshold_2();
    assert_eq!(blocks(&leaving), [(0, 1), (1, 1)], "issued directly");
    assert_eq!(queue.waiting(), (vec![(2, 1)], vec![(3, 3)]));
    assert_eq!((queue.busy.value(), queue.counters().merged_back), (2, 2));
    assert_eq!(queue.wake_at(), Some(T), "a rerun, asynchronously");
}

#[test]
fn vector_5_6_a_completion_sends_the_residual_first() {
    let (mut queue, mut leaving) = refused_at_threshold_2();
    leaving.clear();
    queue.complete(T, &mut leaving);
    assert_eq!(blocks(&leaving), [(2, 1)]);
    assert_eq!(queue.waiting(), (vec![], vec![(3, 3)]), "no budget is left, and it can still grow");
    queue.complete(T, &mut leaving);
    assert_eq!(blocks(&leaving), [(2, 1), (3, 3)]);
    assert!(queue.is_empty());
}

#[test]
fn the_rerun_of_vector_5_5_is_refused_once_more_and_then_left_to_the_timer() {
    let (mut queue, mut leaving) = refused_at_threshold_2();
    queue.tick(T, &mut leaving);
    assert_eq!((queue.busy.value(), queue.wake_at()), (3, Some(T + RERUN_NS)));
    queue.tick(T + (RERUN_NS - 1), &mut leaving);
    assert_eq!(queue.counters().reruns, 0, "not yet");
    queue.tick(T + RERUN_NS, &mut leaving);
    assert_eq!((queue.counters().reruns, queue.wake_at()), (1, Some(T + 2 * RERUN_NS)));
    assert_eq!(leaving.commands.len(), 2);
}

#[test]
fn what_was_refused_before_dequeue_goes_with_the_next_completion() {
    for scheduler in [Scheduler::None, Scheduler::Deadline] {
        let (mut queue, mut leaving) = (Queue::new(config(scheduler, 128, 1)), Leaving::default());
        for n in [0, 10, 11] {
            queue.arrive(T, block(n), false, &mut leaving);
            queue.tick(T, &mut leaving);
        }
        queue.complete(T, &mut leaving);
        assert_eq!(blocks(&leaving).len(), 2, "{scheduler:?}: {:?}", queue.waiting());
        queue.complete(T, &mut leaving);
        assert!(queue.is_empty() && queue.counters().reruns == 0, "{scheduler:?}: {:?}", queue.waiting());
    }
}

/// With the kernel's flag: the residual is empty, so that nothing tells the completion to run the queue, and what comes
/// behind merges.
#[test]
fn with_the_restart_flag_what_was_refused_before_dequeue_waits_for_the_timer_beside_an_idle_driver() {
    for scheduler in [Scheduler::None, Scheduler::Deadline] {
        let flagged = Config { rerun: Rerun::Restart, ..config(scheduler, 128, 2) };
        let (mut queue, mut leaving) = (Queue::new(flagged), Leaving::default());
        for n in 0..5 {
            queue.arrive(T, block(n), false, &mut leaving);
            queue.tick(T, &mut leaving);
        }
        // Without scheduler there is a residual first, and a completion that sends it.
        while !queue.residual.is_empty() || queue.restart {
            queue.complete(T, &mut leaving);
            queue.arrive(T, block(100), false, &mut leaving);
            queue.tick(T, &mut leaving);
        }
        let (left, staged) = (leaving.commands.len(), queue.waiting().1);
        assert!(!staged.is_empty(), "{scheduler:?}");
        while queue.in_flight() > 0 {
            queue.complete(T, &mut leaving);
        }
        let (last, len) = *queue.waiting().1.last().unwrap();
        queue.arrive(T, block(last + len), false, &mut leaving);
        assert_eq!(leaving.commands.len(), left, "{scheduler:?}: the driver is idle");
        queue.tick(T + (RERUN_NS - 1), &mut leaving);
        assert_eq!(leaving.commands.len(), left, "{scheduler:?}: not yet");
        queue.tick(T + RERUN_NS, &mut leaving);
        assert!(leaving.commands.len() > left && queue.counters().reruns == 1, "{scheduler:?}");
    }
}

#[test]
fn vector_5_9_only_the_newest_eight_requests_are_looked_at() {
    // The list holds 9 requests, at blocks 10, 20 .. 90; the oldest is the 9th newest.
    for (neighbour_of, merged) in [(10, 0), (20, 1), (90, 1)] {
        let (mut queue, mut leaving) = (Queue::new(config(Scheduler::None, 128, 1)), Leaving::default());
        queue.arrive(T, block(1000), false, &mut leaving);
        queue.arrive(T, block(2000), false, &mut leaving);
        for n in 1..10 {
            queue.arrive(T, block(10 * n), false, &mut leaving);
        }
        assert_eq!(queue.waiting().1.len(), 9);
        queue.arrive(T, block(neighbour_of + 1), false, &mut leaving);
        assert_eq!(queue.counters().merged_back, merged, "neighbour of {neighbour_of}");
    }
}

#[test]
fn a_neighbour_that_is_full_ends_the_look_back() {
    let mut config = config(Scheduler::None, 128, 1);
    config.bounds.max_bytes = 2 * BLOCK;
    let (mut queue, mut leaving) = (Queue::new(config), Leaving::default());
    queue.arrive(T, block(1000), false, &mut leaving);
    queue.arrive(T, block(2000), false, &mut leaving);
    // Two requests end at block 12; the younger one cannot grow.
    queue.arrive(T, read(1, 11 * BLOCK, BLOCK), false, &mut leaving);
    queue.arrive(T, read(2, 10 * BLOCK, 2 * BLOCK), false, &mut leaving);
    queue.arrive(T, block(12), false, &mut leaving);
    assert_eq!(queue.waiting().1, [(11, 1), (10, 2), (12, 1)]);
}

#[test]
fn vector_5_11_the_busy_flag_is_smoothed() {
    let mut busy = Busy::default();
    let mut after = |refused| {
        busy.update(refused);
        busy.value()
    };
    assert_eq!([true; 9].map(&mut after), [2, 3, 4, 5, 6, 7, 8, 9, 9]);
    assert_eq!([false; 9].map(&mut after), [7, 6, 5, 4, 3, 2, 1, 0, 0]);
}

#[test]
fn vector_5_12_how_many_requests_exist() {
    let rows = [
        (Scheduler::Deadline, 64, 128),
        (Scheduler::Deadline, 128, 256),
        (Scheduler::Deadline, 256, 256),
        (Scheduler::None, 64, 64),
        (Scheduler::None, 128, 128),
        (Scheduler::None, 256, 256),
    ];
    for (scheduler, depth, nr_requests) in rows {
        assert_eq!(config(scheduler, depth, 0).nr_requests(), nr_requests);
        // And they do: blocks that are not neighbours, a driver that never answers.
        let (mut queue, mut leaving) = (Queue::new(config(scheduler, depth, 0)), Leaving::default());
        for n in 0..300 {
            queue.arrive(T, block(2 * n), false, &mut leaving);
            queue.tick(T, &mut leaving);
        }
        assert_eq!(leaving.commands.len(), depth as usize, "{scheduler:?} {depth}: driver tags");
        assert_eq!(queue.chains.len() + leaving.commands.len(), nr_requests as usize, "{scheduler:?} {depth}");
        assert_eq!(queue.outside.len(), 300 - nr_requests as usize);
    }
}

#[test]
fn deadline_can_merge_what_exceeds_the_driver_tags() {
    let (mut queue, mut leaving) = (Queue::new(config(Scheduler::Deadline, 2, 0)), Leaving::default());
    for n in [0, 10, 20, 31, 30, 32] {
        queue.arrive(T, block(n), false, &mut leaving);
        queue.tick(T, &mut leaving);
    }
    assert_eq!(queue.waiting(), (vec![(20, 1)], vec![(30, 3)]), "one had left the scheduler without a tag");
    let counters = *queue.counters();
    assert_eq!((counters.merged_front, counters.merged_back), (1, 1));
}

#[test]
fn deadline_joins_two_requests_when_the_gap_closes() {
    let (mut queue, mut leaving) = (Queue::new(config(Scheduler::Deadline, 128, 1)), Leaving::default());
    for n in [1000, 10, 12, 11] {
        queue.arrive(T, block(n), false, &mut leaving);
        queue.tick(T, &mut leaving);
    }
    assert_eq!((queue.waiting().1, queue.counters().joined), (vec![(10, 3)], 1));
}

/// What a scheduler does next, when one command after another completes.
fn order(setup: &[(DeviceOp, u64)], at: Instant) -> Vec<u64> {
    let (mut queue, mut leaving) = (Queue::new(config(Scheduler::Deadline, 128, 1)), Leaving::default());
    queue.arrive(T, block(100_000), false, &mut leaving);
    queue.tick(T, &mut leaving);
    for (n, &(op, place)) in setup.iter().enumerate() {
        let io = Waiting { op, ..read(n as u32, place * BLOCK, BLOCK) };
        queue.arrive(T, io, false, &mut leaving);
    }
    while queue.in_flight() > 0 {
        queue.complete(at, &mut leaving);
    }
    blocks(&leaving).iter().skip(1).map(|&(place, _)| place).collect()
}

#[test]
fn deadline_goes_in_device_order_unless_something_has_expired() {
    let (read, write) = (DeviceOp::Read, DeviceOp::Write { fua: false });
    let setup = [(read, 50), (read, 10), (read, 70), (read, 60)];
    assert_eq!(order(&setup, T), [50, 60, 70, 10], "from the oldest on, then from the front");
    // Seventeen in a row: the batch ends after 16, and what expired then is the oldest.
    let ascending: Vec<_> = (0..20).map(|n| (read, if n == 1 { 1 } else { 10 + 2 * n })).collect();
    let late = T + 500_000_000;
    let place_of_1 = |at| order(&ascending, at).iter().position(|&place| place == 1).unwrap();
    assert_eq!((place_of_1(T), place_of_1(late)), (19, 16));
    // Reads pass writes over twice, a batch each.
    let mixed: Vec<_> = (0..60).map(|n| (if n < 50 { read } else { write }, 2 * n)).collect();
    assert_eq!(order(&mixed, T).iter().position(|&place| place >= 100), Some(32));
}

#[test]
fn other_settings_take_over_what_waits_and_what_is_in_flight() {
    let (mut queue, mut leaving) = (Queue::new(config(Scheduler::None, 64, 0)), Leaving::default());
    for n in 0..80 {
        queue.arrive(Instant(n), block(n), false, &mut leaving);
    }
    queue.switch(T, config(Scheduler::Deadline, 64, 64), &mut leaving);
    queue.tick(T, &mut leaving);
    assert_eq!((queue.in_flight(), queue.config().budget.counter()), (64, 64));
    assert_eq!(queue.waiting().1, [(64, 16)], "and it can merge now");
}

#[test]
fn flushes_and_forced_writes_go_past_plug_and_list() {
    let (mut queue, mut leaving) = (Queue::new(config(Scheduler::Deadline, 128, 0)), Leaving::default());
    let forced = Waiting { op: DeviceOp::Write { fua: true }, ..block(5) };
    queue.arrive(T, block(4), true, &mut leaving);
    queue.arrive(T, forced, true, &mut leaving);
    queue.arrive(T, Waiting { op: DeviceOp::Flush, ..read(6, 0, 0) }, true, &mut leaving);
    assert_eq!(blocks(&leaving), [(5, 1), (0, 0)]);
    // Where they may join each other they take the same way as everything else.
    let config = Config { variant: Variant::Braid, ..config(Scheduler::Deadline, 128, 0) };
    let (mut queue, mut leaving) = (Queue::new(config), Leaving::default());
    for n in [5, 6] {
        queue.arrive(T, Waiting { op: DeviceOp::Write { fua: true }, ..block(n) }, true, &mut leaving);
    }
    queue.finish_plug(T, &mut leaving);
    assert_eq!(blocks(&leaving), [(5, 2)]);
}
