//! Rows carry the numbers of the decision tables for btrfs mirror read policies; below them small worlds in virtual time.

use super::mirror::{Increments, load};
use super::published::{average, latency_inflight, lowest_average};
use super::*;
use crate::units::{BLOCK, KIB, MIB, STRIP};
use alloc::string::String;
use alloc::vec;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// Views of devices 0..=9, idle flash.
fn views() -> Vec<DeviceView> {
    (0..10).map(|id| DeviceView::new(DeviceId(id), false)).collect()
}

/// Eligible copies on these devices, all at byte 0.
fn copies(devices: &[u32]) -> Vec<Candidate> {
    let copy =
        |(index, id): (usize, &u32)| Candidate { index, device: DeviceId(*id), offset: 0, verdict: Verdict::Eligible };
    devices.iter().enumerate().map(copy).collect()
}

fn by(client: u32) -> Ask {
    Ask { client: ClientId(client), offset: 0 }
}

fn pick(selector: &mut Selector, client: u32, candidates: &[Candidate], views: &[DeviceView]) -> usize {
    selector.choose(Instant(0), &by(client), candidates, views).expect("somebody is eligible").index
}

/// Devices 1.. with these lifetime totals.
fn totals(rows: &[(u64, u64)]) -> (Vec<Candidate>, Vec<DeviceView>) {
    let mut views = views();
    for (i, (ns, ios)) in rows.iter().enumerate() {
        (views[i + 1].read_ns, views[i + 1].read_ios) = (*ns, *ios);
    }
    let ids: Vec<u32> = (1..=rows.len() as u32).collect();
    (copies(&ids), views)
}

// ------------------------------------------------------------------------------------------------ decision tables

#[test]
fn row_1_1_pid() {
    let views = views();
    let mut selector = Selector::new(ReadPolicy::Pid);
    let mut picks = |clients: &[u32], devices: &[u32]| -> Vec<usize> {
        clients.iter().map(|client| pick(&mut selector, *client, &copies(devices), &views)).collect()
    };
    assert_eq!(picks(&[1000, 1001, 1002], &[1, 2]), [0, 1, 0]);
    assert_eq!(picks(&[1000, 1001, 1002, 1003], &[1, 2, 3]), [1, 2, 0, 1]);
    // raid10, four stripes, offset 64K*3: element 3, two pairs, so the pair starts at stripe (3 % 2) * 2.
    let first = 2;
    assert_eq!(first + picks(&[7], &[3, 4])[0], 3);
}

#[test]
fn rows_1_2_to_1_5_published_latency() {
    let one = |ms: u64| (ms * MS, 1);
    // row | totals | 2021 | 2024
    type Row<'a> = (&'a str, &'a [(u64, u64)], usize, usize);
    let rows: &[Row] = &[
        ("1.2", &[one(10), one(5)], 1, 1),
        ("1.2", &[one(10), one(10)], 0, 0),
        ("1.3 1.4", &[(0, 0), one(9)], 1, 0),
        ("1.3 1.4", &[one(1), (0, 0)], 1, 1),
        ("1.3 1.4", &[one(1), (0, 0), one(50)], 2, 1),
        ("1.3 1.4", &[one(1), (0, 0), one(50), one(20)], 3, 1),
        ("1.3 1.4", &[(0, 0); 4], 3, 0),
        ("1.5", &[(5, 10), (100, 10)], 1, 0),
    ];
    for (row, input, in_2021, in_2024) in rows {
        let (candidates, views) = totals(input);
        assert_eq!(pick(&mut Selector::new(ReadPolicy::Latency2021), 0, &candidates, &views), *in_2021, "{row}");
        assert_eq!(pick(&mut Selector::new(ReadPolicy::Latency2024), 0, &candidates, &views), *in_2024, "{row}");
    }
    assert_eq!([average(5, 10), average(100, 10), average(0, 0), average(7, 0)], [0, 10, 0, 0]);
}

proptest! {
    /// The closed form of the 2021 loop: with z the last zero, the argmin after z, or z when it is the last.
    #[test]
    fn latency_2021_is_its_closed_form(averages in prop::collection::vec(0u64..4, 1..6)) {
        let after = averages.iter().rposition(|average| *average == 0).map_or(0, |z| (z + 1).min(averages.len() - 1));
        let lowest = averages[after..].iter().min().expect("never empty");
        let expected = after + averages[after..].iter().position(|average| average == lowest).expect("it is there");
        prop_assert_eq!(lowest_average(averages.iter().copied(), ZeroAverage::ResetsScan), expected);
    }
}

#[test]
fn row_1_6_latency_inflight() {
    for (in_flight, expected) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 1)] {
        assert_eq!(latency_inflight([(100, in_flight), (150, 0)].into_iter()), expected, "1.6 {in_flight}");
    }
    // The signed 32-bit best: 2.2 s is replaced by 3 s.
    assert_eq!(latency_inflight([(2200 * MS, 0), (3000 * MS, 0)].into_iter()), 1, "1.6, the source's defect");
    assert_eq!(lowest_average([2200 * MS, 3000 * MS].into_iter(), ZeroAverage::ResetsScan), 0, "1.6, mended");
}

#[test]
fn row_1_7_device() {
    for (flagged, expected) in
        [(&[2][..], (2, Reason::Flagged)), (&[1, 2], (1, Reason::Flagged)), (&[], (0, Reason::NoneFlaggedFirst))]
    {
        let mut views = views();
        for stripe in flagged {
            views[stripe + 5].read_preferred = true;
        }
        let choice = Selector::new(ReadPolicy::Device).choose(Instant(0), &by(0), &copies(&[5, 6, 7]), &views);
        assert_eq!(choice, Some(Choice { index: expected.0, reason: expected.1 }), "1.7 {flagged:?}");
    }
}

#[test]
fn devid_takes_that_device_or_the_first() {
    for (id, index, reason) in [(7, 1, Reason::Devid), (3, 0, Reason::DevidAbsentFirst)] {
        let mut selector = Selector::new(ReadPolicy::Devid(DeviceId(id)));
        let choice = selector.choose(Instant(0), &by(0), &copies(&[9, 7]), &views());
        assert_eq!(choice, Some(Choice { index, reason }));
    }
}

#[test]
fn row_1_8_roundrobin_v3() {
    let rows: [(usize, &[u32], &[usize]); 3] =
        [(0, &[7, 3], &[0, 1, 0, 1]), (2, &[9, 4], &[2, 3, 2]), (0, &[3, 1, 2], &[2, 0, 1, 2, 0, 1])];
    for (first, devices, expected) in rows {
        let mut selector = Selector::new(ReadPolicy::RoundRobinV3);
        let picks: Vec<usize> =
            expected.iter().map(|_| first + pick(&mut selector, 0, &copies(devices), &views())).collect();
        assert_eq!(picks, expected, "1.8 {devices:?}");
    }
}

#[test]
fn roundrobin_v3_wraps_without_a_negative_index() {
    let mut selector = Selector::new(ReadPolicy::RoundRobinV3);
    selector.start_rotations_at(i32::MAX - 1, 0);
    let picks = [(); 4].map(|()| pick(&mut selector, 0, &copies(&[1, 2, 3]), &views()));
    // 2147483647 % 3 = 1; then -2147483648, -2147483647, -2147483646, which the source makes -2, -1, 0.
    assert_eq!(picks, [1, 1, 2, 0]);
}

#[test]
fn row_1_9_round_robin() {
    let candidates = copies(&[2, 1]);
    for (read_blocks, expected) in [(0, 1), (63, 1), (64, 0), (127, 0), (128, 1)] {
        let mut selector = Selector::new(ReadPolicy::RoundRobin { bytes: ROUND_ROBIN_BYTES_DEFAULT });
        selector.read_admitted(read_blocks * BLOCK);
        assert_eq!(pick(&mut selector, 0, &candidates, &views()), expected, "1.9 {read_blocks}");
    }
    let mut selector = Selector::new(ReadPolicy::Pid);
    selector.read_admitted(64 * BLOCK);
    selector.set(ReadPolicy::RoundRobin { bytes: ROUND_ROBIN_BYTES_DEFAULT });
    assert_eq!(pick(&mut selector, 0, &candidates, &views()), 1, "nothing is counted under another policy");
}

#[test]
fn row_1_10_values() {
    let round_robin = |bytes| ReadPolicy::RoundRobin { bytes };
    let flash_first = Increments { rotating_seek_inc: 7, non_rotating_seek_inc: 0, ..Increments::DEFAULT };
    // text | policy, and whether it was adjusted; None = refused
    let rows = [
        ("round-robin:262145", Some((round_robin(266240), true))),
        ("round-robin:-1", Some((round_robin(262144), false))),
        ("round-robin", Some((round_robin(262144), false))),
        ("round-robin:65536", Some((round_robin(65536), false))),
        ("round-robin:1", Some((round_robin(4096), true))),
        ("round-robin:abc", None),
        ("round-robin:", None),
        ("round-robin:0", None),
        ("round-robin:-2", None),
        ("round-robin:+8192", None),
        ("round-robin:18446744073709551615", None),
        ("round-robin:99999999999999999999", None),
        ("devid:3", Some((ReadPolicy::Devid(DeviceId(3)), false))),
        ("devid", None),
        ("devid:0", None),
        ("devid:4294967296", None),
        ("devid:x", None),
        ("  pid\n", Some((ReadPolicy::Pid, false))),
        ("pid:1", None),
        ("PID", None),
        ("", None),
        ("roundrobin", None),
        ("roundrobin-v3", Some((ReadPolicy::RoundRobinV3, false))),
        ("latency-2021", Some((ReadPolicy::Latency2021, false))),
        ("latency-2024", Some((ReadPolicy::Latency2024, false))),
        ("latency", Some((ReadPolicy::Latency, false))),
        ("device", Some((ReadPolicy::Device, false))),
        ("queue", Some((ReadPolicy::Queue, false))),
        ("zfs", Some((ReadPolicy::Zfs(Increments::DEFAULT), false))),
        ("zfs:rotating_seek_inc=5", Some((ReadPolicy::Zfs(Increments::DEFAULT), false))),
        ("zfs:rotating_seek_inc=7,non_rotating_seek_inc=0", Some((ReadPolicy::Zfs(flash_first), false))),
        ("zfs:", None),
        ("zfs:rotating_seek_inc", None),
        ("zfs:rotating_seek_inc=", None),
        ("zfs:rotating_seek_inc=4294967296", None),
        ("zfs:rotating_seek_inc=-1", None),
        ("zfs:rotating_seek_inc=7,", None),
        ("zfs:seek=1", None),
        ("zfs-2.0.1", None),
    ];
    for (text, expected) in rows {
        let answer = ReadPolicy::parse(text);
        assert_eq!(answer.as_ref().ok().map(|(policy, note)| (*policy, note.is_some())), expected, "1.10 {text:?}");
        if let Ok((policy, _)) = answer {
            assert_eq!(ReadPolicy::parse(&policy.value()), Ok((policy, None)), "value() is what parse() takes");
        }
    }
}

/// A policy is stored as its word; what comes back is the same policy, and shown alike.
#[test]
fn a_stored_policy_comes_back() {
    use crate::meta::codec::{Reader, Writer};
    use crate::meta::record::Record;
    let mut all = ReadPolicy::ALL.to_vec();
    all.retain(|policy| policy.name() != "devid");
    all.push(ReadPolicy::Devid(DeviceId(u32::MAX)));
    for name in Increments::NAMES {
        for value in [0, 1, 99, u64::from(u32::MAX)] {
            let mut increments = Increments::DEFAULT;
            assert!(increments.set(name, value) && !increments.set("seek_inc", value));
            all.push(ReadPolicy::Zfs(increments));
        }
    }
    for policy in all {
        let mut stored = crate::properties::Properties { read_policy: policy, ..Default::default() };
        let value = stored.get("read_policy").expect("it is a property");
        let mut writer = Writer::default();
        Record::Property { name: "read_policy".into(), value }.encode(&mut writer);
        let back = Record::decode(&mut Reader::new(&writer.bytes)).expect("as written");
        let Record::Property { name, value } = back else { panic!("another record: {back:?}") };
        stored.read_policy = ReadPolicy::Pid;
        stored.set(&name, &value).expect("it was set before");
        assert_eq!(stored.read_policy, policy);
    }
}

#[test]
fn row_1_11_tolerance() {
    // row | first | preferred | present | avoided | expected
    type Row<'a> = (&'a str, usize, usize, &'a [usize], Option<usize>, usize);
    let rows: [Row; 5] = [
        ("preferred absent", 0, 0, &[1], None, 1),
        ("preferred is being replaced", 0, 0, &[0, 1], Some(0), 1),
        ("only the replaced one is here", 0, 0, &[0], Some(0), 0),
        ("nobody is here", 0, 1, &[], None, 1),
        ("second pair", 2, 3, &[2], None, 2),
    ];
    for (row, first, preferred, present, avoid, expected) in rows {
        let got = tolerate(2, preferred - first, |i| present.contains(&(first + i)), |i| avoid == Some(first + i));
        assert_eq!(first + got, expected, "1.11 {row}");
    }
}

#[test]
fn row_1_12_show() {
    assert_eq!(show_s0(ReadPolicy::Device), "pid latency [device] roundrobin\n");
    assert_eq!(show_s0(ReadPolicy::Latency2021), "pid [latency] device roundrobin\n");
    assert_eq!(show_s0(ReadPolicy::RoundRobinV3), "pid latency device [roundrobin]\n");
    assert_eq!(show_s0(ReadPolicy::Queue), "pid latency device roundrobin\n");
    assert_eq!(
        ReadPolicy::show(ReadPolicy::default()),
        "pid [latency] latency-2021 latency-2024 device devid:N roundrobin-v3 round-robin:BYTES queue zfs \
         parity-avoid-slow"
    );
    assert!(ReadPolicy::show(ReadPolicy::Devid(DeviceId(3))).contains(" [devid:3] "));
    assert!(ReadPolicy::show(ReadPolicy::RoundRobin { bytes: 8192 }).contains(" [round-robin:8192] "));
}

#[test]
fn a_strip_is_made_from_its_row_when_its_member_is_far_slower() {
    // row | ms that device 1 is expected to take, that the others are | how many of them it takes | made
    type Row<'a> = (&'a str, u64, &'a [u64], usize, bool);
    let rows: [Row; 7] = [
        ("all alike", 10, &[10, 10, 10], 3, false),
        ("slower", 40, &[10, 10, 10], 3, false),
        ("far slower", 41, &[10, 10, 10], 3, true),
        ("so is another", 41, &[10, 10, 11], 3, false),
        ("which can be spared", 41, &[11, 10, 10], 2, true),
        ("two are slow and one can be spared", 41, &[20, 10, 20], 2, false),
        ("too few are left", 100, &[1, 1], 3, false),
    ];
    for (row, own, others, needed, made) in rows {
        let mut views = views();
        for (view, ms) in views[1..].iter_mut().zip([&[own], others].concat()) {
            view.latency.record(Instant(0), ms * MS, 1);
        }
        let others = || (2..2 + others.len() as u32).map(DeviceId);
        let mut selector = Selector::new(ReadPolicy::ParityAvoidSlow);
        assert_eq!(selector.avoids(Instant(0), DeviceId(1), others(), needed, &views), made, "{row}");
        assert_eq!(selector.counts[Reason::AvoidSlow as usize], u64::from(made), "{row}");
        selector.set(ReadPolicy::Latency);
        assert!(!selector.avoids(Instant(0), DeviceId(1), others(), needed, &views), "{row}: nobody asked for it");
    }
}

/// A 64th of the time goes into looking again; whoever owes an answer is not asked for another one meanwhile.
#[test]
fn a_member_that_is_avoided_is_looked_at_again() {
    let mut views = views();
    (1..4).for_each(|i| views[i].latency.record(Instant(0), if i == 1 { 100 * MS } else { 10 * MS }, 1));
    let mut selector = Selector::new(ReadPolicy::ParityAvoidSlow);
    let mut direct = |now, views: &[DeviceView], reads: u32| {
        let others = || [DeviceId(2), DeviceId(3)].into_iter();
        (0..reads).filter(|_| !selector.avoids(now, DeviceId(1), others(), 2, views)).count()
    };
    assert_eq!(direct(Instant(0), &views, 6400), 10, "it takes ten times as long");
    views[1].admitted(Instant(0), 0, BLOCK, true);
    assert_eq!(direct(Instant(64_000 * MS), &views, 6300), 0, "it owes an answer for a minute");
}

// ------------------------------------------------------------------------------------------------ what all share

fn any_policy() -> impl Strategy<Value = ReadPolicy> {
    (prop::sample::select(ReadPolicy::ALL.to_vec()), 0u32..6, 0u64..600_000).prop_map(
        |(policy, id, bytes)| match policy {
            ReadPolicy::Devid(_) => ReadPolicy::Devid(DeviceId(id)),
            ReadPolicy::RoundRobin { .. } => ReadPolicy::RoundRobin { bytes },
            policy => policy,
        },
    )
}

fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), 0u64..20 * MS, any::<u64>()]
}

fn any_view() -> impl Strategy<Value = DeviceView> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let history = prop::collection::vec((any_u64(), any_u64(), any::<bool>()), 0..5);
    (flags, any::<u8>(), any_u64(), any_u64(), history).prop_map(|(flags, line, offset, len, history)| {
        let mut view = DeviceView::new(DeviceId(0), flags.0);
        (view.state_readable, view.read_preferred) = (flags.1, flags.2);
        for _ in 0..line {
            view.admitted(Instant(offset), offset, len, true);
        }
        for (now, latency_ns, interactive) in history {
            view.completed_read(Instant(now), latency_ns, interactive);
        }
        view
    })
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    use Verdict::*;
    prop::sample::select(vec![Eligible, Eligible, Eligible, Missing, Failed, Stale, AlreadyTried])
}

proptest! {
    /// Data integrity: whatever the policy, the facts and the history, what is not eligible is never read, and what is
    /// eligible is found. Devices beyond the views are not eligible either.
    #[test]
    fn no_policy_reads_a_copy_that_is_out(
        views in prop::collection::vec(any_view(), 1..6),
        sets in prop::collection::vec(
            (prop::collection::vec((0u32..7, any_u64(), any_verdict()), 0..6), any_policy(), any::<u32>(), any_u64()), 1..20,
        ),
        turns in any::<i32>(),
        read_blocks in any::<u64>(),
    ) {
        let mut selector = Selector::default();
        selector.start_rotations_at(turns, read_blocks);
        let mut decided = 0;
        for (set, policy, client, now) in sets {
            selector.set(policy);
            selector.read_admitted(now);
            let candidates: Vec<Candidate> = set
                .into_iter()
                .enumerate()
                .map(|(index, (id, offset, verdict))| Candidate { index, device: DeviceId(id), offset, verdict })
                .collect();
            let may = |candidate: &Candidate| {
                candidate.verdict == Verdict::Eligible
                    && views.get(candidate.device.index()).is_some_and(|view| view.state_readable)
            };
            let choice = selector.choose(Instant(now), &Ask { offset: now, ..by(client) }, &candidates, &views);
            prop_assert_eq!(choice.is_some(), candidates.iter().any(may));
            if let Some(choice) = choice {
                prop_assert!(may(&candidates[choice.index]), "{:?} under {:?}", choice, policy);
                decided += 1;
            }
        }
        prop_assert_eq!(selector.reasons().map(|(_, count)| count).sum::<u64>(), decided);
    }
}

#[test]
fn a_failed_read_goes_on_cyclically_or_to_the_best_that_remains() {
    use Verdict::{AlreadyTried, Eligible, Missing};
    let zfs = ReadPolicy::Zfs(Increments::DEFAULT);
    let rows = [
        ([Eligible, AlreadyTried, Eligible], 2, 0),
        ([Eligible, Eligible, AlreadyTried], 0, 0),
        ([AlreadyTried, Missing, Eligible], 2, 2),
    ];
    for (verdicts, published, ours) in rows {
        let mut candidates = copies(&[1, 2, 3]);
        (0..3).for_each(|i| candidates[i].verdict = verdicts[i]);
        for (policy, expected) in
            [(ReadPolicy::Pid, published), (ReadPolicy::Latency, ours), (ReadPolicy::Queue, ours), (zfs, ours)]
        {
            let choice = Selector::new(policy).choose(Instant(0), &by(1), &candidates, &views());
            assert_eq!(choice, Some(Choice { index: expected, reason: Reason::RetryAfterError }), "{policy:?}");
        }
    }
}

#[test]
fn a_published_favourite_that_is_out_falls_back_in_stripe_order() {
    let mut candidates = copies(&[1, 2, 3]);
    candidates[2].verdict = Verdict::Missing;
    let choice = Selector::new(ReadPolicy::Pid).choose(Instant(0), &by(2), &candidates, &views());
    assert_eq!(choice, Some(Choice { index: 0, reason: Reason::FallbackAbsent }));
    // Neither published latency loop looks whether the device is here: the defect is kept, braid's own has it not.
    let (mut candidates, mut views) = totals(&[(9 * MS, 1), (5 * MS, 1), (1, 1)]);
    views[3].state_readable = false;
    candidates[2].verdict = Verdict::Missing;
    (1..=2).for_each(|id| views[id].completed_read(Instant(0), (10 - 4 * id as u64) * MS, true));
    assert_eq!(pick(&mut Selector::new(ReadPolicy::Latency2024), 0, &candidates, &views), 0);
    assert_eq!(pick(&mut Selector::new(ReadPolicy::Latency), 0, &candidates, &views), 1);
}

#[test]
fn setting_the_same_policy_changes_nothing_and_rotations_go_on() {
    let mut selector = Selector::new(ReadPolicy::RoundRobinV3);
    assert_eq!(pick(&mut selector, 0, &copies(&[1, 2]), &views()), 1);
    assert!(!selector.set(ReadPolicy::RoundRobinV3));
    assert!(selector.set(ReadPolicy::Pid));
    assert!(selector.set(ReadPolicy::RoundRobinV3));
    assert_eq!(pick(&mut selector, 0, &copies(&[1, 2]), &views()), 0);
}

#[test]
fn queue_takes_the_shortest_line_then_the_stream_then_the_lowest_id() {
    // in flight of 1 and 2 | head of 1 and 2 | expected index for copies on [2, 1] at byte 4096
    let rows = [
        ([0, 0], [0, 0], 1, Reason::FewestInFlight),
        ([1, 0], [0, 0], 0, Reason::FewestInFlight),
        ([3, 3], [0, 4096], 0, Reason::Sequential),
        ([3, 2], [4096, 0], 0, Reason::FewestInFlight),
    ];
    for (in_flight, head, index, reason) in rows {
        let mut views = views();
        for i in 0..2 {
            (views[i + 1].in_flight, views[i + 1].head) = (in_flight[i], head[i]);
        }
        let mut candidates = copies(&[2, 1]);
        candidates.iter_mut().for_each(|candidate| candidate.offset = 4096);
        let choice = Selector::new(ReadPolicy::Queue).choose(Instant(0), &by(0), &candidates, &views);
        assert_eq!(choice, Some(Choice { index, reason }));
    }
}

#[test]
fn row_3_12_mirror_load() {
    // active | rotating | end of the last command, for a read at 64 MiB | load
    let here = 64 * MIB;
    let rows = [
        (0, true, here, 0),
        (3, true, here - 4 * KIB, 5),
        (3, true, here + MIB, 8),
        (3, true, here - MIB, 8),
        (3, true, here + MIB - 1, 5),
        (3, true, here - MIB + 1, 5),
        (4, false, here, 4),
        (4, false, here + BLOCK, 5),
    ];
    for (active, rotating, last_offset, expected) in rows {
        let view = DeviceView { active, last_offset, ..DeviceView::new(DeviceId(1), rotating) };
        assert_eq!(load(&Increments::DEFAULT, &view, here), expected, "3.12 {active} {rotating} {last_offset}");
    }
    let mut selector = Selector::new(ReadPolicy::Zfs(Increments::DEFAULT));
    for (offset, index) in [(0, 0), (2 * MIB, 1), (4 * MIB, 0), (4 * MIB - 1, 1)] {
        let choice = selector.choose(Instant(0), &Ask { offset, ..by(0) }, &copies(&[7, 3]), &views());
        assert_eq!(choice, Some(Choice { index, reason: Reason::Region }), "3.12 tie at {offset}");
    }
}

#[test]
fn zfs_takes_the_lowest_load_among_those_that_may_be_read() {
    let zfs = ReadPolicy::Zfs(Increments::DEFAULT);
    let mut views = views();
    views.iter_mut().for_each(|view| view.last_offset = 1); // everybody has to seek
    (views[1].active, views[2].active, views[3].active) = (2, 0, 1);
    let mut candidates = copies(&[1, 2, 3]);
    let choose = |candidates: &[Candidate], views: &[DeviceView]| {
        let ask = Ask { offset: 6 * MIB, ..by(0) };
        Selector::new(zfs).choose(Instant(0), &ask, candidates, views).map(|choice| (choice.index, choice.reason))
    };
    assert_eq!(choose(&candidates, &views), Some((1, Reason::LowestLoad)));
    candidates[1].verdict = Verdict::Stale;
    assert_eq!(choose(&candidates, &views), Some((2, Reason::LowestLoad)));
    // Ties are counted among the equal ones, not among all.
    views[1].active = 1;
    assert_eq!(choose(&candidates, &views), Some((2, Reason::Region)));
    candidates[0].verdict = Verdict::Missing;
    assert_eq!(choose(&candidates, &views), Some((2, Reason::OnlyCopy)));
    candidates[2].verdict = Verdict::Failed;
    assert_eq!(choose(&candidates, &views), None);
    // A disk is read as soon as the flash device beside it has about five more in flight.
    let mut views = [DeviceView::new(DeviceId(0), true), DeviceView::new(DeviceId(1), false)];
    views.iter_mut().for_each(|view| view.last_offset = 100 * MIB);
    let index = |active| {
        views[1].active = active;
        let ask = Ask { offset: 0, ..by(0) };
        Selector::new(zfs).choose(Instant(0), &ask, &copies(&[0, 1]), &views).expect("both are here").index
    };
    assert_eq!([0, 3, 4, 5].map(index), [1, 1, 0, 0], "at 4 it is a tie, and region 0 goes to the first");
}

// ------------------------------------------------------------------------------------------------ rotation resonance

/// Reads each pair's copies get when one reader goes through `strips` strips of a raid10 of `pairs` pairs, one at a time.
fn raid10_reads(policy: ReadPolicy, pairs: usize, strips: usize) -> Vec<u64> {
    let mut selector = Selector::new(policy);
    let mut views: Vec<_> = (0..=2 * pairs as u32).map(|id| DeviceView::new(DeviceId(id), false)).collect();
    let mut reads = vec![0; 2 * pairs];
    for strip in 0..strips {
        let (first, now) = ((strip % pairs) * 2, Instant(strip as u64 * 100 * US));
        let mut candidates = copies(&[first as u32 + 1, first as u32 + 2]);
        candidates.iter_mut().for_each(|candidate| candidate.offset = (strip / pairs) as u64 * STRIP);
        let index = pick(&mut selector, 0, &candidates, &views);
        reads[first + index] += 1;
        let view = &mut views[candidates[index].device.index()];
        view.admitted(now, candidates[index].offset, STRIP, true);
        selector.read_admitted(STRIP);
        view.completed_read(now + 100 * US, 100 * US, true);
    }
    reads
}

#[test]
fn raid10_resonance_of_the_pool_wide_rotations() {
    let window = ReadPolicy::RoundRobin { bytes: ROUND_ROBIN_BYTES_DEFAULT };
    let narrow = ReadPolicy::RoundRobin { bytes: STRIP };
    assert_eq!(raid10_reads(ReadPolicy::RoundRobinV3, 2, 400), [0, 200, 200, 0], "one mirror of each pair serves all");
    assert_eq!(raid10_reads(narrow, 2, 400), [200, 0, 0, 200], "and so with a turn per strip");
    assert_eq!(raid10_reads(window, 2, 400), [100; 4], "four strips a turn mend two pairs");
    let eight = raid10_reads(window, 8, 1600);
    assert_eq!(eight.iter().filter(|reads| **reads == 0).count(), 8, "but not eight: {eight:?}");
    assert_eq!(raid10_reads(ReadPolicy::RoundRobinV3, 3, 600), [100; 6], "an odd number of pairs never resonates");
}

// ------------------------------------------------------------------------------------------------ small worlds

/// A device that serves so many at once, each for so long, in arrival order.
struct Disk {
    view: DeviceView,
    service_ns: u64,
    lanes: Vec<u64>,
    reads: u64,
}

/// Closed loop: as soon as a read is answered, the same client sends the next.
struct World {
    now: u64,
    selector: Selector,
    disks: Vec<Disk>,
    /// (end, device, start)
    flying: Vec<(u64, usize, u64)>,
}

impl World {
    fn new(policy: ReadPolicy, disks: &[(u64, usize, bool)]) -> Self {
        let nobody = Disk { view: DeviceView::new(DeviceId(0), false), service_ns: 1, lanes: vec![0], reads: 0 };
        let disk = |(i, (service_ns, lanes, rotational)): (usize, &(u64, usize, bool))| Disk {
            view: DeviceView::new(DeviceId(i as u32 + 1), *rotational),
            service_ns: *service_ns,
            lanes: vec![0; *lanes],
            reads: 0,
        };
        let disks = core::iter::once(nobody).chain(disks.iter().enumerate().map(disk)).collect();
        World { now: 0, selector: Selector::new(policy), disks, flying: vec![] }
    }

    fn send(&mut self, offset: u64, len: u64) -> usize {
        let views: Vec<DeviceView> = self.disks.iter().map(|disk| disk.view).collect();
        let ids: Vec<u32> = (1..views.len() as u32).collect();
        let mut candidates = copies(&ids);
        candidates.iter_mut().for_each(|candidate| candidate.offset = offset);
        let choice = self.selector.choose(Instant(self.now), &by(0), &candidates, &views).expect("all are here");
        let device = candidates[choice.index].device.index();
        let disk = &mut self.disks[device];
        disk.view.admitted(Instant(self.now), offset, len, true);
        disk.reads += 1;
        let lane = disk.lanes.iter_mut().min().expect("at least one lane");
        *lane = (*lane).max(self.now) + disk.service_ns;
        self.flying.push((*lane, device, self.now));
        device
    }

    /// The next answer arrives.
    fn answer(&mut self) -> u64 {
        let next = (0..self.flying.len()).min_by_key(|i| self.flying[*i]).expect("something is in flight");
        let (end, device, start) = self.flying.remove(next);
        self.now = end;
        self.disks[device].view.completed_read(Instant(end), end - start, true);
        end - start
    }

    /// `reads` random reads at this depth; how long they took, in ns per read, and the share of each device in percent.
    fn random(&mut self, depth: usize, reads: u64) -> (u64, Vec<u64>) {
        let (began, before) = (self.now, self.disks.iter().map(|disk| disk.reads).collect::<Vec<_>>());
        for i in 0..reads {
            while self.flying.len() >= depth {
                self.answer();
            }
            // Never next to each other.
            self.send((i * 7919 % 100_000) * MIB, BLOCK);
        }
        while !self.flying.is_empty() {
            self.answer();
        }
        let share = self.disks.iter().zip(before).skip(1).map(|(disk, before)| (disk.reads - before) * 100 / reads);
        let share = share.collect();
        ((self.now - began) / reads, share)
    }

    fn count(&self, reason: Reason) -> u64 {
        self.selector.reasons().find(|(name, _)| *name == reason.name()).expect("it has a counter").1
    }
}

const NVME: (u64, usize, bool) = (80 * US, 8, false);
const SSD: (u64, usize, bool) = (200 * US, 4, false);
const HDD: (u64, usize, bool) = (8 * MS, 1, true);

#[test]
fn light_load_stays_on_the_fast_copy() {
    for (slow, name) in [(SSD, "ssd"), (HDD, "hdd")] {
        for disks in [[NVME, slow], [slow, NVME]] {
            let (mean_ns, _) = World::new(ReadPolicy::Latency, &disks).random(1, 100_000);
            assert!(mean_ns <= NVME.0 * 103 / 100, "{name}: {mean_ns} ns; probes cost a 64th, or 100 in 4096");
        }
    }
}

#[test]
fn saturation_adds_up_the_rates() {
    // devices | depth | at least this much of the summed rates, in percent
    type Row<'a> = (&'a [(u64, usize, bool)], usize, u64);
    let rows: &[Row] = &[
        (&[NVME, SSD], 64, 93),
        (&[SSD, NVME], 32, 90),
        (&[SSD, SSD], 16, 93),
        (&[NVME, SSD, SSD], 64, 93),
        (&[HDD, HDD], 8, 95),
        (&[HDD, SSD], 256, 93),
    ];
    for (disks, depth, percent) in rows {
        let ideal_per_s: u64 =
            disks.iter().map(|(service_ns, lanes, _)| *lanes as u64 * 1_000_000_000 / service_ns).sum();
        let (ns_per_read, share) = World::new(ReadPolicy::Latency, disks).random(*depth, 40_000);
        let reached = 1_000_000_000 / ns_per_read * 100 / ideal_per_s;
        assert!(reached >= *percent, "{disks:?} at {depth}: {reached} % of the summed rates, shares {share:?}");
    }
}

/// The pitfall of the published averages: slow once, shunned for ever.
#[test]
fn starvation_by_a_stale_average_is_cured() {
    let world = |policy| {
        let mut world = World::new(policy, &[(50 * MS, 1, false), (100 * US, 1, false)]);
        world.random(4, 2_000); // device 1 is sick while both are measured
        world.disks[1].service_ns = 50 * US;
        world.random(1, 5_000); // it recovered, and is twice as quick as the other: time to find out
        world.random(1, 10_000).1
    };
    assert_eq!(world(ReadPolicy::Latency2024), [0, 100], "the source never looks again");
    let cured = world(ReadPolicy::Latency);
    assert!(cured[0] >= 97, "{cured:?}");
}

/// The other half: quick for long, slow now.
#[test]
fn a_device_that_became_slow_is_left_at_once() {
    let world = |policy| {
        let mut world = World::new(policy, &[(100 * US, 1, false), (110 * US, 1, false)]);
        world.random(2, 20_000);
        for (disk, mean_ns) in [(1, 100 * US), (2, 110 * US)] {
            let view = &mut world.disks[disk].view; // a million reads ago they appeared
            (view.read_ns, view.read_ios) = (mean_ns * 1_000_000, 1_000_000);
        }
        world.disks[1].service_ns = 20 * MS;
        world.random(1, 20);
        world.random(1, 100).1[1]
    };
    assert!(world(ReadPolicy::Latency) >= 98, "all but a probe");
    assert_eq!(world(ReadPolicy::Latency2021), 0, "the lifetime average has not noticed");
}

#[test]
fn the_never_measured_are_guessed_and_then_measured() {
    let mut world = World::new(ReadPolicy::Latency, &[HDD, SSD]);
    world.random(1, 10);
    assert_eq!(world.disks[1].reads, 0, "a disk without a sample is taken for a disk");
    world.random(1, 10_000);
    assert!((1..=4).contains(&world.disks[1].reads), "and measured now and then: {}", world.disks[1].reads);
    assert_eq!(world.count(Reason::Probe), world.disks[1].reads);
}

#[test]
fn a_stuck_device_loses_by_its_silence() {
    let mut world = World::new(ReadPolicy::Latency, &[NVME, SSD]);
    world.random(4, 5_000);
    world.disks[1].service_ns = 30_000 * MS;
    let stuck = (0..20_000).filter(|i| {
        while world.flying.iter().filter(|(end, ..)| *end < world.now + 1_000 * MS).count() >= 4 {
            world.answer();
        }
        // A client that waits for a stuck read sends nothing: here four others go on.
        world.send((i * 7919 % 100_000) * MIB, BLOCK) == 1
    });
    let stuck = stuck.count();
    // They all go before time passes: until four others are in flight, only the line speaks against the device.
    assert!(stuck <= 48, "{stuck} reads went to the stuck device in 20000");
}

#[test]
fn among_nearly_equal_copies_the_one_with_less_on_the_device_now_is_read() {
    // latency of the second in us; on the devices now; which is read
    let rows = [(100, [1, 0], 1), (140, [1, 0], 1), (160, [1, 0], 0), (140, [1, 1], 0), (140, [0, 0], 0)];
    for (latency_us, active, chosen) in rows {
        let (candidates, mut views) = totals(&[(0, 0), (0, 0)]);
        for (id, latency_ns) in [(1, 100 * US), (2, latency_us * US)] {
            views[id].completed_read(Instant(0), latency_ns, true);
            views[id].active = active[id - 1];
        }
        let picked = pick(&mut Selector::new(ReadPolicy::Latency), 0, &candidates, &views);
        assert_eq!(picked, chosen, "{latency_us} us, active {active:?}");
    }
}

#[test]
fn a_scrub_does_not_talk_the_policy_out_of_a_device() {
    let (candidates, mut views) = totals(&[(0, 0), (0, 0)]);
    for (id, latency_ns) in [(1, 100 * US), (2, 150 * US)] {
        views[id].completed_read(Instant(0), latency_ns, true);
    }
    for i in 0..1_000 {
        views[1].admitted(Instant(i), i * MIB, MIB, false);
        views[1].completed_read(Instant(i), 50 * MS, false);
    }
    assert_eq!((views[1].in_flight, views[1].head), (0, u64::MAX));
    assert_eq!(pick(&mut Selector::new(ReadPolicy::Latency), 0, &candidates, &views), 0, "braid leaves it out");
    assert_eq!(pick(&mut Selector::new(ReadPolicy::Latency2024), 0, &candidates, &views), 1, "the source counts it");
}

/// The ninefold device I/O of the published round robin comes from turning away from a stream; `latency` and `queue` do not.
#[test]
fn a_stream_is_not_torn() {
    let torn = |policy| {
        let mut world = World::new(policy, &[SSD, SSD]);
        let (mut last, mut turns) = (0, 0);
        for i in 0..16_384u64 {
            while world.flying.len() >= 16 {
                world.answer();
            }
            let device = world.send(i * 4 * KIB, 4 * KIB);
            turns += u64::from(device != last);
            last = device;
        }
        turns
    };
    assert_eq!(torn(ReadPolicy::RoundRobinV3), 16_384, "one turn per read");
    // 64 MiB are 256 runs of 256 KiB.
    let ours = torn(ReadPolicy::Latency);
    assert!(ours <= 2 * 256, "{ours} turns in 64 MiB");
    assert!(ours > 16, "{ours}: a long stream uses both copies");
}

#[test]
fn a_burst_sums_to_single_services() {
    let mut window = Window::default();
    (1..=32u64).for_each(|i| window.record(Instant(i * 8 * MS / 4), i * 8 * MS, 33 - i as u32));
    assert_eq!(window.floor_ns(), 8 * MS);
    // Within one window; 8 ms each, though the mean latency is 132 ms.
    assert_eq!((window.service_ns() / MS, window.mean_ns() / MS), (8, 132));
}

#[test]
fn old_samples_leave_the_window_when_new_ones_come() {
    let mut window = Window::default();
    window.record(Instant(0), 50 * MS, 1);
    window.record(Instant(Window::BUCKET_NS), 100 * US, 1);
    assert!(window.mean_ns() > 20 * MS, "the previous bucket still counts");
    window.record(Instant(2 * Window::BUCKET_NS), 100 * US, 1);
    assert_eq!((window.mean_ns(), window.service_ns(), window.floor_ns()), (100 * US, 100 * US, 100 * US));
}

#[test]
fn names_are_unique() {
    let names: alloc::collections::BTreeSet<String> = Reason::ALL.iter().map(|reason| reason.name().into()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    for (position, reason) in Reason::ALL.iter().enumerate() {
        assert_eq!(*reason as usize, position);
    }
}

#[test]
fn copies_on_one_device_are_no_choice() {
    for policy in [
        ReadPolicy::Pid,
        ReadPolicy::Latency,
        ReadPolicy::Latency2021,
        ReadPolicy::Latency2024,
        ReadPolicy::Device,
        ReadPolicy::Devid(DeviceId(3)),
        ReadPolicy::RoundRobinV3,
        ReadPolicy::RoundRobin { bytes: 4096 },
        ReadPolicy::Queue,
    ] {
        let mut selector = Selector::new(policy);
        let mut candidates = copies(&[3, 3]);
        for client in 0..7 {
            assert_eq!(pick(&mut selector, client, &candidates, &views()), 0, "{policy:?}");
        }
        candidates[0].verdict = Verdict::AlreadyTried;
        assert_eq!(pick(&mut selector, 0, &candidates, &views()), 1, "{policy:?}: the other one after an error");
        let counted: Vec<_> = selector.reasons().filter(|&(_, n)| n > 0).collect();
        assert_eq!(counted, [("same-device", 7), ("retry-after-error", 1)], "{policy:?}");
    }
}
