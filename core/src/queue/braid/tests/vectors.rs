//! Rows carry the numbers of the decision table of the vdev queue. An arrival here is a batch of one: the queue turns
//! after it. A turn lets everything go that may, an arrival in the source one command at most; in these rows the two
//! come to the same.

use alloc::vec;

use super::*;
use crate::queue::budget::{Auto, BusyThreshold, RERUN_NS, WAIT_NS_MIN, Wait};
use crate::queue::table;
use crate::units::{IoId, KIB, MIB};
use Class::{AsyncRead, Rebuild, Scrub, SyncRead, SyncWrite};

const MS: u64 = 1_000_000;

/// A queue without a budget.
type Row = table::Row<BraidQueue>;

impl table::Scheduler for BraidQueue {
    fn with(settings: QueueSettings) -> Self {
        BraidQueue::new(settings, RULES, Budget::Off)
    }
    fn wait(&mut self, _: Instant, io: Waiting) {
        self.arrive(io);
    }
    fn arrive(&mut self, now: Instant, io: Waiting, out: &mut Leaving) {
        self.arrive(io);
        self.turn(now, out);
    }
    fn turn(&mut self, now: Instant, out: &mut Leaving) {
        self.turn(now, out);
    }
    fn complete(&mut self, now: Instant, (class, op, offset, len): (Class, DeviceOp, u64, u64), out: &mut Leaving) {
        self.complete(now, class, op, offset, len, len);
        self.turn(now, out);
    }
    fn active(&self, class: Class) -> u32 {
        self.active(class)
    }
    fn credit(&self) -> (u32, u64) {
        (self.active_interactive(), self.credit())
    }
}

#[test]
fn row_3_1_a_scrub_on_an_idle_device_speeds_up() {
    Row::row_3_1();
}

#[test]
fn row_3_2_an_interactive_one_stops_it() {
    Row::row_3_2();
}

#[test]
fn row_3_3_credit_is_spent_and_then_it_is_blocked() {
    let mut row = Row::row_3_3();
    let before = row.queue.counters().no_credit;
    assert_eq!(row.complete(Scrub), []);
    assert_eq!(row.issue(), [], "blocked until an interactive event");
    assert_eq!(row.queue.counters().no_credit - before, 2);
}

#[test]
fn row_3_6_the_first_scan_starts_at_the_second_class() {
    let row = Row::row_3_6();
    assert_eq!(row.queue.counters().depth_reached, 9, "every class has somebody left");
}

#[test]
fn row_3_7_everybody_waits() {
    let mut row = Row::published();
    Class::ALL.into_iter().for_each(|class| row.wait(class, 50));
    row.issue();
    let active = [10, 10, 3, 10, 1, 0, 0, 2, 0];
    assert_eq!(Class::ALL.map(|class| row.queue.active(class)), active);
    assert_eq!(row.queue.active_total(), 36);
    assert_eq!(Class::ALL.map(|class| row.queue.queued(class)), active.map(|active| 50 - active));
    let counters = row.queue.counters();
    assert_eq!((counters.class_reached, counters.no_credit, counters.depth_reached), (5, 4, 0));
    // Trim, the eighth, counts as interactive.
    let [maximum, credit] = [Obstacle::Maximum, Obstacle::Credit];
    let each = [maximum, maximum, maximum, maximum, credit, credit, credit, maximum, credit];
    let kept: Vec<Obstacle> = row.queue.blocked(Instant(u64::MAX)).map(|(_, why, _)| why).collect();
    assert_eq!(kept, each);
}

#[test]
fn row_3_8_trim_is_interactive() {
    Row::row_3_8();
}

// ------------------------------------------------------------------------------------------------ braid's own

#[test]
fn a_batch_leaves_at_its_end_as_one_command_up_to_32_mib() {
    for rotating in [false, true] {
        let bounds = Bounds { max_bytes: 64 * MIB, max_segments: 1024, boundary: 0 };
        let rules = Rules { bounds, ..RULES };
        let mut queue = BraidQueue::new(QueueSettings::new(Generation::Braid, rotating), rules, Budget::Off);
        let mut leaving = Leaving::default();
        (0..512).for_each(|i| queue.arrive(read(i, u64::from(i) * 64 * KIB, 64 * KIB)));
        assert_eq!(queue.queued(SyncRead), 512);
        queue.turn(T, &mut leaving);
        assert_eq!((leaving.commands.len(), leaving.commands[0].len), (1, 32 * MIB), "rotating {rotating}");
        assert_eq!((queue.queued(SyncRead), queue.active(SyncRead)), (0, 1));
        leaving.clear();
        // The device's own limit counts when it is less, and the settings' when they are.
        queue.set_rules(Rules { bounds: Bounds { boundary: 4 * MIB, ..bounds }, ..RULES });
        (0..512).for_each(|i| queue.arrive(read(i, u64::from(i) * 64 * KIB, 64 * KIB)));
        queue.turn(T, &mut leaving);
        assert_eq!((leaving.commands.len(), leaving.commands[0].len), (8, 4 * MIB));
        leaving.clear();
        let mut settings = queue.settings().clone();
        settings.set("aggregation_limit", "0").expect("a size");
        settings.set("aggregation_limit_non_rotating", "0").expect("a size");
        queue.configure(settings);
        (0..8).for_each(|i| queue.arrive(read(i, u64::from(i) * 4 * KIB, 4 * KIB)));
        queue.turn(T, &mut leaving);
        assert_eq!(leaving.commands.len(), 8, "nothing joins");
    }
}

#[test]
fn background_work_leaves_in_commands_that_others_can_wait_for() {
    for (rotating, longest) in [(true, 512 * KIB), (false, 128 * KIB)] {
        let mut settings = QueueSettings::new(Generation::Braid, rotating);
        settings.set("scrub_max_active", "64").expect("a limit");
        settings.set("scrub_min_active", "64").expect("a limit");
        let bounds = Bounds { max_bytes: 64 * MIB, max_segments: 1024, boundary: 0 };
        let mut queue = BraidQueue::new(settings.clone(), Rules { bounds, ..RULES }, Budget::Off);
        let mut lengths = |settings: &QueueSettings| {
            let mut leaving = Leaving::default();
            queue.configure(settings.clone());
            (0..32)
                .for_each(|i| queue.arrive(Waiting { class: Scrub, ..read(i, u64::from(i) * 128 * KIB, 128 * KIB) }));
            queue.turn(T, &mut leaving);
            leaving.commands.iter().map(|command| command.len).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&settings), vec![longest; (4 * MIB / longest) as usize], "rotating {rotating}");
        // What the settings say counts when it is less.
        settings.set("aggregation_limit", "256K").expect("a size");
        settings.set("aggregation_limit_non_rotating", "0").expect("a size");
        let less = if rotating { 256 * KIB } else { 128 * KIB };
        assert_eq!(lengths(&settings)[..4], [less; 4], "rotating {rotating}");
    }
}

#[test]
fn neighbours_of_two_classes_stay_apart() {
    let mut queue = deep(RULES, 64, Budget::Off);
    let mut leaving = Leaving::default();
    for (id, class) in [Scrub, SyncRead, SyncRead, Scrub].into_iter().enumerate() {
        queue.arrive(Waiting { class, ..read(id as u32, id as u64 * BLOCK, BLOCK) });
    }
    // A scrub's read at the same place does not hide the client's neighbour either.
    queue.arrive(Waiting { class: Scrub, ..read(9, 2 * BLOCK, BLOCK) });
    queue.arrive(read(4, 3 * BLOCK, BLOCK));
    queue.turn(T, &mut leaving);
    let sent: Vec<_> = leaving.commands.iter().map(|c| (c.class, c.offset / BLOCK, c.len / BLOCK)).collect();
    assert_eq!(sent, [(Scrub, 0, 1), (SyncRead, 1, 3)]);
}

#[test]
fn who_is_not_waited_for_goes_by_place_within_a_slot() {
    const SLOT: u64 = 1 << 29;
    // The last command ended at 10. Order | class | place and arrival | order of dispatch
    type Ios = &'static [(u64, u64)];
    let rows: [(&str, Class, Ios, &[u64]); 5] = [
        ("slot", AsyncRead, &[(5, 0), (20, 1), (12, 2)], &[12, 20, 5]),
        ("slot", AsyncRead, &[(5, 0), (12, SLOT)], &[5, 12]),
        ("slot", Scrub, &[(15, 0), (12, SLOT)], &[15, 12]),
        ("offset", AsyncRead, &[(5, 0), (12, SLOT)], &[12, 5]),
        ("slot", SyncRead, &[(5, 0), (20, 1), (12, 2)], &[5, 20, 12]),
    ];
    for (order, class, ios, expected) in rows {
        let mut row = Row::new(Generation::Braid, &[("max_active", "1"), ("lba_order", order)]);
        row.queue.last_offset = 10 * MIB;
        for &(place, arrived) in ios {
            let io = row.io(class);
            row.queue.arrive(Waiting { offset: place * MIB, arrived: Instant(arrived), ..io });
        }
        let mut sent = vec![];
        while !row.queue.is_empty() {
            row.issue();
            let (class, op, offset, len) = row.flying.remove(0);
            sent.push(offset / MIB);
            row.queue.complete(row.now, class, op, offset, len, len);
        }
        assert_eq!(sent, expected, "{order} {class:?} {ios:?}");
    }
}

#[test]
fn clients_may_fill_a_fast_device() {
    for (rotating, most) in [(false, 256), (true, 32)] {
        for class in [SyncRead, SyncWrite] {
            let mut row = Row::new(Generation::Braid, &[]);
            row.queue.configure(QueueSettings::new(Generation::Braid, rotating));
            row.wait(class, 1_000);
            assert_eq!(row.issue().len(), most);
        }
    }
    // And no flood of reads keeps writes or background work out.
    let mut row = Row::new(Generation::Braid, &[]);
    row.queue.configure(QueueSettings::new(Generation::Braid, false));
    row.wait(SyncRead, 1_000);
    assert_eq!(row.issue().len(), 256);
    row.wait(SyncWrite, 10);
    row.wait(Scrub, 10);
    for _ in 0..12 {
        row.complete(SyncRead);
    }
    assert_eq!((row.queue.active(SyncWrite), row.queue.active(Scrub)), (10, 1));
}

#[test]
fn a_hung_request_does_not_stop_background_work_for_ever() {
    let mut row = Row::new(Generation::Braid, &[]);
    assert_eq!(row.arrive(SyncRead), [SyncRead]);
    assert_eq!(row.queue.wake_at(), None, "nobody to wake for");
    row.now = Instant(500 * MS);
    row.wait(Scrub, 5);
    row.wait(Rebuild, 5);
    // The credit of the hung one pays for one; then nothing until the floor.
    assert_eq!(row.issue(), [Scrub]);
    assert_eq!((row.complete(Scrub), row.credit()), (vec![], (1, 0)));
    let floor = Instant(600 * MS);
    assert_eq!(row.queue.wake_at(), Some(floor));
    row.now = Instant(floor.0 - 1);
    assert_eq!((row.issue(), row.queue.counters().floor), (vec![], 0));
    row.now = floor;
    assert_eq!((row.issue(), row.credit()), (vec![Scrub], (1, 0)), "one, and the credit does not go below zero");
    assert_eq!(row.queue.wake_at(), None, "not while one is active");
    row.complete(Scrub);
    row.now = Instant(700 * MS);
    assert_eq!(row.issue(), [Rebuild], "background classes take turns at it");
    assert_eq!(row.queue.counters().floor, 2);
}

#[test]
fn a_class_that_has_only_held_runs_loses_neither_its_turn_nor_the_floor() {
    let auto = Budget::Auto(Auto::with_limit(Wait::Fixed(WAIT_NS_MIN), 1));
    let mut settings = QueueSettings::new(Generation::Braid, true);
    settings.set("background_floor", "1us").expect("a time");
    let mut queue = BraidQueue::new(settings, RULES, auto);
    let scrub = |id: u32, arrived| Waiting { class: Scrub, arrived, ..read(id, u64::from(id) * BLOCK, BLOCK) };
    let turn = |queue: &mut BraidQueue, now: Instant| {
        let mut leaving = Leaving::default();
        queue.turn(now, &mut leaving);
        leaving.commands.iter().map(|c| (c.class, c.offset / BLOCK, c.len / BLOCK)).collect::<Vec<_>>()
    };
    queue.arrive(read(500, 500 * BLOCK, BLOCK));
    assert_eq!(turn(&mut queue, T), [(SyncRead, 500, 1)]);
    queue.arrive(scrub(10, T));
    assert_eq!(turn(&mut queue, T), [(Scrub, 10, 1)], "by the credit of the first one");
    queue.arrive(scrub(11, T));
    queue.arrive(read(100, 100 * BLOCK, BLOCK));
    queue.arrive(scrub(12, T));
    assert_eq!(turn(&mut queue, T), [(SyncRead, 100, 1)], "the scrub continues itself and waits");
    assert_eq!((queue.counters().held, queue.queued(Scrub)), (1, 2));
    assert_eq!(queue.wake_at(), Some(T + WAIT_NS_MIN), "and nothing wakes in vain before");
    queue.complete(T, Scrub, DeviceOp::Read, 10 * BLOCK, BLOCK, BLOCK);
    assert_eq!(turn(&mut queue, T), [], "nothing to wait for, but no credit");
    assert_eq!(queue.wake_at(), Some(T + 1_000), "the floor is next");
    assert_eq!(turn(&mut queue, T + 1_000), [(Scrub, 11, 2)]);
}

#[test]
fn a_new_budget_counts_what_is_in_flight() {
    let mut queue = deep(RULES, 64, Budget::Off);
    let mut leaving = Leaving::default();
    (0..4).for_each(|i| queue.arrive(read(i, u64::from(i) * MIB, BLOCK)));
    queue.turn(T, &mut leaving);
    assert_eq!(leaving.commands.len(), 4);
    queue.set_budget(Budget::Fixed(BusyThreshold::new(5).expect("a limit")));
    (4..8).for_each(|i| queue.arrive(read(i, u64::from(i) * MIB, BLOCK)));
    queue.turn(T, &mut leaving);
    assert_eq!(leaving.commands.len(), 5, "one place is left");
    assert_eq!((queue.wake_at(), queue.counters().held), (Some(T + RERUN_NS), 1));
    queue.set_budget(Budget::Auto(Auto::with_limit(Wait::Fixed(WAIT_NS_MIN), 1)));
    queue.turn(T, &mut leaving);
    assert_eq!((leaving.commands.len(), queue.wake_at()), (8, None), "all are alone");
    // What left before it is nobody's neighbour, and what left after it is.
    queue.arrive(read(9, BLOCK, BLOCK));
    queue.arrive(Waiting { arrived: T, ..read(10, 7 * MIB + BLOCK, BLOCK) });
    queue.turn(T, &mut leaving);
    assert_eq!((leaving.commands.len(), leaving.commands[8].offset, queue.queued(SyncRead)), (9, BLOCK, 1));
    for command in &leaving.commands {
        queue.complete(T, command.class, DeviceOp::Read, command.offset, command.len, command.len);
    }
    let Budget::Auto(auto) = queue.budget() else { panic!("it is auto") };
    assert_eq!((auto.in_flight(), queue.active_total()), (0, 0));
    queue.set_budget(Budget::Off);
    queue.turn(T, &mut leaving);
    assert_eq!((leaving.commands.len(), queue.is_empty()), (10, true), "without a budget nothing is held");
}

#[test]
fn rules_change_while_something_waits() {
    let fua = |id: u32| {
        let op = DeviceOp::Write { fua: true };
        Waiting { op, class: SyncWrite, ..read(id, u64::from(id) * BLOCK, BLOCK) }
    };
    let mut queue = deep(RULES, 64, Budget::Off);
    let mut leaving = Leaving::default();
    queue.arrive(fua(0));
    queue.arrive(fua(1));
    // Published: such writes join nobody.
    queue.set_rules(Rules { variant: Variant::BlkMq, ..RULES });
    queue.arrive(fua(2));
    queue.set_rules(RULES);
    queue.arrive(fua(3));
    queue.turn(T, &mut leaving);
    let sent: Vec<_> = leaving.commands.iter().map(|c| (c.offset / BLOCK, c.len / BLOCK)).collect();
    assert_eq!(sent, [(0, 2), (2, 2)], "what is joined stays joined, and what was apart finds its next neighbour");
    assert_eq!((queue.counters().merged_back, queue.is_empty()), (2, true));
}

#[test]
fn what_waits_comes_back_when_the_device_goes() {
    let mut row = Row::new(Generation::Braid, &[("max_active", "1")]);
    row.arrive(SyncRead);
    let mut ids = vec![];
    for class in [SyncWrite, Scrub, SyncRead, SyncRead] {
        row.now = row.now + 1;
        row.wait(class, 1);
        ids.push(IoId(row.next));
    }
    let mut gone = vec![];
    row.queue.take_all(&mut gone);
    assert_eq!(gone.iter().map(|io| io.id).collect::<Vec<_>>(), ids, "oldest first");
    assert_eq!((row.queue.is_empty(), row.queue.queued(SyncRead), row.queue.wake_at()), (true, 0, None));
    assert_eq!(row.queue.active_total(), 1, "what is active still completes");
    assert_eq!(row.complete(SyncRead), []);
}
