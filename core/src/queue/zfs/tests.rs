//! Rows carry the numbers of the decision table of the vdev queue; below them what braid adds.

use alloc::vec;

use super::*;
use crate::queue::limits::Generation;
use crate::queue::table;
use crate::units::KIB;
use Class::{AsyncRead, AsyncWrite, Rebuild, Removal, Scrub, SyncRead, SyncWrite, Trim};

const NEWEST: Generation = Generation::V2_0_1;

type Row = table::Row<VdevQueue>;

impl table::Scheduler for VdevQueue {
    fn with(settings: QueueSettings) -> Self {
        VdevQueue::new(settings)
    }
    fn wait(&mut self, now: Instant, io: Waiting) {
        self.selection.arrived(now, self.line.classes(), io.class);
        self.line.insert(io);
    }
    fn arrive(&mut self, now: Instant, io: Waiting, out: &mut Leaving) {
        self.arrive(now, io, out);
    }
    fn turn(&mut self, now: Instant, out: &mut Leaving) {
        self.turn(now, out);
    }
    fn complete(&mut self, now: Instant, (class, ..): (Class, DeviceOp, u64, u64), out: &mut Leaving) {
        self.complete(now, class, out);
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
    assert_eq!(row.complete(Scrub), []);
    assert_eq!(row.issue(), [], "blocked until an interactive event");
}

#[test]
fn row_3_4_a_minimum_of_zero() {
    for (generation, starts) in [(Generation::Pr11166, 0), (NEWEST, 1)] {
        let mut row = Row::new(generation, &[("scrub_min_active", "0")]);
        row.wait(Scrub, 10);
        assert_eq!(row.issue().len(), starts, "3.4 {generation:?}");
    }
}

#[test]
fn row_3_5_turns_when_there_is_one_place() {
    let grants = |generation| {
        let mut row = Row::new(generation, &[("max_active", "1")]);
        row.wait(SyncRead, 20);
        row.wait(Scrub, 20);
        let mut grants = row.issue();
        while grants.len() < 12 {
            let last = grants[grants.len() - 1];
            grants.extend(row.complete(last));
        }
        grants
    };
    assert_eq!(grants(Generation::Before), [SyncRead; 12]);
    for generation in [Generation::Pr11166, NEWEST] {
        assert_eq!(grants(generation), [Scrub, SyncRead].repeat(6), "{generation:?}");
    }
}

#[test]
fn row_3_6_the_first_scan_starts_at_the_second_class() {
    Row::row_3_6();
}

#[test]
fn row_3_7_everybody_waits() {
    for (generation, active) in
        [(NEWEST, [10, 10, 3, 10, 1, 0, 0, 2, 0]), (Generation::Before, [10, 10, 3, 10, 2, 2, 1, 2, 3])]
    {
        let mut row = Row::new(generation, &[]);
        Class::ALL.into_iter().for_each(|class| row.wait(class, 50));
        row.issue();
        assert_eq!(Class::ALL.map(|class| row.queue.active(class)), active, "3.7 {generation:?}");
        assert_eq!(row.queue.active_total(), active.iter().sum::<u32>());
    }
}

#[test]
fn row_3_8_trim_is_interactive() {
    Row::row_3_8();
}

#[test]
fn row_3_10_order_by_place() {
    const SLOT: u64 = 1 << 29;
    // generation | offset and arrival | the next
    let rows: [(_, &[(u64, u64)], u64); 6] = [
        (Generation::Pr11166, &[(50, 0), (120, 0), (200, 0)], 120),
        (Generation::Pr11166, &[(50, 0), (60, 0)], 50),
        (NEWEST, &[(50, 0), (120, 1), (200, SLOT - 1)], 120),
        (NEWEST, &[(50, 0), (120, SLOT)], 50),
        (NEWEST, &[(150, 0), (120, SLOT)], 150),
        (NEWEST, &[(50, 0), (60, 0)], 50),
    ];
    for (generation, ios, expected) in rows {
        for ios in [ios.to_vec(), ios.iter().rev().copied().collect()] {
            let mut row = Row::new(generation, &[("max_active", "1")]);
            row.queue.last_offset = 100;
            for &(offset, arrived) in &ios {
                let io = row.io(AsyncRead);
                let io = Waiting { offset, len: 1, arrived: Instant(arrived), mergeable: false, ..io };
                row.queue.line.insert(io);
            }
            let mut out = Leaving::default();
            row.queue.turn(row.now, &mut out);
            assert_eq!(out.commands[0].offset, expected, "3.10 {generation:?} {ios:?}");
            assert_eq!(row.queue.last_offset(), expected + 1);
        }
    }
}

/// The first command: offset, length and ids of its members. I/Os are `(offset, len, kind, optional)`, ids from 0.
fn first_command(
    settings: &QueueSettings,
    op: DeviceOp,
    last_offset: u64,
    ios: &[(u64, u64, u8, bool)],
) -> (u64, u64, Vec<u32>) {
    let mut queue = VdevQueue::new(settings.clone());
    queue.last_offset = last_offset;
    let class = if op == DeviceOp::Read { AsyncRead } else { AsyncWrite };
    for (id, &(offset, len, kind, optional)) in ios.iter().enumerate() {
        let (id, arrived) = (IoId(id as u32), Instant(0));
        queue.line.insert(Waiting { id, class, op, offset, len, arrived, kind, mergeable: true, optional });
    }
    let mut out = Leaving::default();
    assert!(queue.start_one(Instant(0), &mut out));
    let command = &out.commands[0];
    assert_eq!((queue.active(class), queue.active_total()), (1, 1), "one command, however many members");
    assert_eq!(queue.stats(class).ios, out.members.len() as u64);
    (command.offset, command.len, out.members.iter().map(|member| member.id.0).collect())
}

#[test]
fn row_3_11_aggregation() {
    let write = DeviceOp::Write { fua: false };
    let rotating = QueueSettings::new(NEWEST, true);
    let flash = QueueSettings::new(NEWEST, false);
    let block = |offset| (offset, 4 * KIB, 0, false);
    let first = |settings, op, last_offset, ios: &[_]| first_command(settings, op, last_offset, ios);

    let gap = [block(0), block(36 * KIB)];
    assert_eq!(first(&rotating, DeviceOp::Read, 0, &gap), (0, 40 * KIB, vec![0, 1]));
    let wider = [block(0), block(36 * KIB + 512)];
    assert_eq!(first(&rotating, DeviceOp::Read, 0, &wider), (0, 4 * KIB, vec![0]));

    let forty: Vec<_> = (0..40).map(|i| block(i * 4 * KIB)).collect();
    for chosen in [0, 20] {
        let at = chosen * 4 * KIB;
        let expected: Vec<u32> = (0..32).collect();
        assert_eq!(first(&flash, DeviceOp::Read, at, &forty), (0, 128 * KIB, expected), "3.11 #{chosen}");
        let expected: Vec<u32> = (0..40).collect();
        assert_eq!(first(&rotating, DeviceOp::Read, at, &forty), (0, 160 * KIB, expected), "3.11 #{chosen}");
    }
    let writes = [block(0), block(4 * KIB), block(8 * KIB + 512)];
    assert_eq!(first(&rotating, write, 0, &writes), (0, 8 * KIB, vec![0, 1]));
    let kinds = [(0, 4 * KIB, 0, false), (4 * KIB, 4 * KIB, 1, false)];
    assert_eq!(first(&rotating, DeviceOp::Read, 0, &kinds), (0, 4 * KIB, vec![0]));
}

#[test]
fn optional_writes_bridge_and_are_never_written_for_nothing() {
    let write = DeviceOp::Write { fua: false };
    let mut small = QueueSettings::new(NEWEST, true);
    small.set("aggregation_limit", "8192").expect("a size");
    let large = QueueSettings::new(NEWEST, true);
    let io = |k: u64, len: u64, optional| (k * KIB, len * KIB, 0, optional);
    // settings | what waits | bytes and members of the first command
    let rows: [(&str, &QueueSettings, &[_], u64, &[u32]); 6] = [
        ("a bridge", &large, &[io(0, 4, false), io(4, 4, true), io(8, 4, false)], 12, &[0, 1, 2]),
        ("a trailing one is cut", &large, &[io(0, 4, false), io(4, 4, false), io(8, 4, true)], 8, &[0, 1]),
        ("a leading one too", &large, &[io(0, 4, true), io(4, 4, false), io(8, 4, false)], 8, &[1, 2]),
        (
            "past the limit, when it joins up",
            &small,
            &[io(0, 4, false), io(4, 4, false), io(8, 4, true), io(12, 4, false)],
            12,
            &[0, 1, 2],
        ),
        (
            "not when the next one is too far",
            &small,
            &[io(0, 4, false), io(4, 4, false), io(8, 8, true), io(16, 4, false)],
            8,
            &[0, 1],
        ),
        ("nothing to bridge", &large, &[io(0, 4, true), io(64, 4, false)], 4, &[1]),
    ];
    for (row, settings, ios, kib, members) in rows {
        let (_, len, ids) = first_command(settings, write, 0, ios);
        assert_eq!((len, &ids[..]), (kib * KIB, members), "{row}");
    }
}

#[test]
fn what_a_bridge_leads_to_is_written() {
    let mut row = Row::new(NEWEST, &[("max_segments", "2")]);
    for (offset, len, optional) in [(0, 4, false), (4, 2, true), (6, 2, true), (8, 4, false)] {
        let io = Waiting { offset: offset * KIB, len: len * KIB, optional, ..row.io(AsyncWrite) };
        row.queue.line.insert(io);
    }
    let mut out = Leaving::default();
    row.queue.turn(row.now, &mut out);
    let commands: Vec<_> = out.commands.iter().map(|command| (command.offset / KIB, command.len / KIB)).collect();
    assert_eq!(commands, [(0, 6), (6, 6)], "the second starts with what was optional");
    assert_eq!(row.queue.take_dropped().count(), 0);
}

#[test]
fn members_of_other_classes_ride_along_and_count_as_their_own() {
    let mut row = Row::new(NEWEST, &[("max_active", "1")]);
    for (class, offset) in [(Scrub, 0), (SyncRead, 4 * KIB), (Removal, 8 * KIB)] {
        let io = row.io(class);
        row.queue.line.insert(Waiting { offset, ..io });
    }
    let mut out = Leaving::default();
    row.queue.turn(row.now, &mut out);
    assert_eq!(out.commands.len(), 1);
    assert_eq!((out.commands[0].class, row.queue.active_total(), row.credit()), (Scrub, 1, (0, 0)));
    for class in [Scrub, SyncRead, Removal] {
        let stats = row.queue.stats(class);
        assert_eq!((stats.active, stats.ios, stats.bytes, stats.queued), (1, 1, 4 * KIB, 0), "{class:?}");
        row.queue.retired(class);
        assert_eq!(row.queue.stats(class).active, 0);
    }
}

#[test]
fn classes_that_an_operation_cannot_have_are_put_right() {
    let rows = [
        (DeviceOp::Read, SyncWrite, AsyncRead),
        (DeviceOp::Read, Trim, AsyncRead),
        (DeviceOp::Read, Scrub, Scrub),
        (DeviceOp::Write { fua: true }, SyncRead, AsyncWrite),
        (DeviceOp::Write { fua: false }, Scrub, AsyncWrite),
        (DeviceOp::WriteZeroes, Rebuild, Rebuild),
        (DeviceOp::Discard, SyncWrite, Trim),
        (DeviceOp::Flush, AsyncWrite, AsyncWrite),
    ];
    for (op, class, expected) in rows {
        let mut row = Row::new(NEWEST, &[]);
        let io = Waiting { op, ..row.io(class) };
        let started = row.classes(|queue, now, out| queue.arrive(now, io, out));
        assert_eq!(started, [expected], "{op:?} as {class:?}");
    }
}

#[test]
fn a_flush_does_not_move_the_place() {
    let mut row = Row::new(NEWEST, &[]);
    row.arrive(SyncRead);
    let place = row.queue.last_offset();
    let io = Waiting { op: DeviceOp::Flush, offset: 7, len: 0, ..row.io(SyncWrite) };
    assert_eq!(row.classes(|queue, now, out| queue.arrive(now, io, out)), [SyncWrite]);
    assert_eq!(row.queue.last_offset(), place);
}

// -------------------------------------------------------------------------------------------- beyond the published

#[test]
fn a_hung_request_does_not_stop_background_work_for_ever() {
    const MS: u64 = 1_000_000;
    let mut row = Row::new(NEWEST, &[("background_floor", "100ms")]);
    row.wait(SyncRead, 1);
    assert_eq!(row.issue(), [SyncRead]);
    assert_eq!(row.queue.wake_at(), None, "nobody to wake for");
    row.now = Instant(500 * MS);
    row.wait(Scrub, 5);
    row.wait(Rebuild, 5);
    // The credit of the hung one pays for one; then nothing until the floor.
    assert_eq!(row.issue(), [Scrub]);
    assert_eq!((row.complete(Scrub), row.issue(), row.credit()), (vec![], vec![], (1, 0)));
    let floor = Instant(600 * MS);
    assert_eq!(row.queue.wake_at(), Some(floor));
    row.now = Instant(floor.0 - 1);
    assert_eq!(row.issue(), []);
    row.now = floor;
    assert_eq!((row.issue(), row.credit()), (vec![Scrub], (1, 0)), "one, and the credit does not go below zero");
    assert_eq!(row.queue.wake_at(), None, "not while one is active");
    row.complete(Scrub);
    row.now = Instant(700 * MS);
    assert_eq!(row.issue(), [Rebuild], "background classes take turns at it");

    let mut published = Row::new(NEWEST, &[]);
    published.arrive(SyncRead);
    published.wait(Scrub, 5);
    assert_eq!((published.issue(), published.complete(Scrub)), (vec![Scrub], vec![]));
    published.now = Instant(u64::MAX);
    assert_eq!((published.issue(), published.queue.wake_at()), (vec![], None), "published: never");
}

#[test]
fn rules_change_while_the_pool_runs() {
    let mut row = Row::new(NEWEST, &[("max_active", "1")]);
    row.queue.last_offset = 100;
    for (offset, arrived) in [(50, 0), (120, 1 << 29)] {
        let io = Waiting { offset, arrived: Instant(arrived), ..row.io(AsyncRead) };
        row.queue.line.insert(io);
    }
    let mut older = row.queue.settings().clone();
    older.set("lba_order", "offset").expect("an order");
    row.queue.configure(older);
    row.issue();
    assert_eq!(row.queue.last_offset(), 120 + 4 * KIB);
    assert_eq!(row.queue.queued(AsyncRead), 1);
}

#[test]
fn what_waits_comes_back_when_the_device_goes() {
    let mut row = Row::new(NEWEST, &[("max_active", "1")]);
    row.wait(Scrub, 1);
    let alone = row.queue.take_all();
    assert_eq!((alone.len(), row.queue.is_empty()), (1, true));
    row.arrive(SyncRead);
    let ids: Vec<IoId> = [SyncWrite, Scrub, SyncRead]
        .into_iter()
        .map(|class| {
            row.wait(class, 1);
            IoId(row.next)
        })
        .collect();
    assert!(row.queue.change_class(row.now, ids[1], SyncRead) && !row.queue.change_class(row.now, IoId(1), SyncRead));
    assert_eq!((row.queue.queued(Scrub), row.queue.queued(SyncRead)), (0, 2));
    let gone: Vec<IoId> = row.queue.take_all().into_iter().map(|io| io.id).collect();
    assert_eq!(gone, ids, "oldest first");
    assert_eq!((row.queue.active_total(), row.queue.is_empty()), (1, true), "what is active still completes");
    assert_eq!(row.complete(SyncRead), []);
}

/// What somebody reads who asks why a class waits.
#[test]
fn what_keeps_a_class_is_told_with_its_time() {
    let kept = |row: &mut Row, ns: u64| {
        row.queue.settle(row.now);
        let before: Vec<_> = row.queue.blocked(row.now).collect();
        row.now = row.now + ns;
        let grown = |(class, why, sum): (Class, Obstacle, u64)| {
            let old = before.iter().find(|(c, w, _)| (*c, *w) == (class, why)).map_or(0, |(.., ns)| *ns);
            (sum > old).then_some((class, why, sum - old))
        };
        row.queue.blocked(row.now).filter_map(grown).collect::<Vec<_>>()
    };
    for generation in [Generation::Before, Generation::Pr11166, NEWEST] {
        let mut row = Row::new(generation, &[("scrub_max_active", "2"), ("max_active", "12")]);
        row.wait(Scrub, 30);
        row.issue();
        let before = generation == Generation::Before;
        let alone = if before { Obstacle::Maximum } else { Obstacle::Delay };
        assert_eq!(kept(&mut row, 7), [(Scrub, alone, 7)], "no client, but not for long");
        row.wait(SyncRead, 1);
        row.issue();
        let beside = if before { Obstacle::Maximum } else { Obstacle::Credit };
        assert_eq!(kept(&mut row, 11), [(Scrub, beside, 11)], "{generation:?}: a client is there");
        row.wait(SyncRead, 30);
        row.issue();
        let reason = if row.queue.active_total() == 12 { Obstacle::Depth } else { Obstacle::Maximum };
        let told = kept(&mut row, 13);
        assert_eq!(told[0], (SyncRead, reason, 13), "{generation:?}");
        row.classes(|queue, now, out| queue.complete(now, SyncRead, out));
        assert!(row.queue.kept(reason) > 0);
    }
    let mut row = Row::new(NEWEST, &[]);
    row.queue.set_dirty(Some(Dirty { bytes: 0, limit: 1 << 20, sync_waits: false }));
    row.wait(AsyncWrite, 20);
    row.issue();
    assert_eq!(kept(&mut row, 5), [(AsyncWrite, Obstacle::Ramp, 5)]);
    row.queue.set_dirty(None);
    row.issue();
    assert_eq!(kept(&mut row, 5), [(AsyncWrite, Obstacle::Maximum, 5)]);
}
