//! What each model captures, shown by what it does: rows of data sheets and of queueing theory.

use std::collections::BTreeMap;
use std::path::Path;

use braid_core::request::DeviceOp;
use braid_core::units::{GIB, KIB, MIB};

use super::*;
use crate::Rng;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const TB: u64 = 1_000_000_000_000;
const WRITE: DeviceOp = DeviceOp::Write { fua: false };

fn shipped(name: &str) -> Model {
    Model::shipped(name).unwrap()
}

/// The model without what is drawn.
fn even(name: &str) -> Model {
    let mut model = shipped(name);
    for key in ["spread_percent", "tail_one_in"] {
        model.set(key, 0, "test").unwrap();
    }
    model
}

const RANDOM: Load = Load { op: DeviceOp::Read, depth: 1, len: 4 * KIB, from: 0, to: 256 * GIB, random: true };
const STREAM: Load = Load { op: DeviceOp::Read, depth: 4, len: 128 * KIB, from: 0, to: 256 * GIB, random: false };

fn run(model: &Model, load: Load, ns: u64) -> Got {
    load.run(&mut Timing::new(model, TB, 1), ns)
}

#[track_caller]
fn near(found: u64, wanted: u64, percent: u64) {
    assert!(found.abs_diff(wanted) * 100 <= wanted * percent, "{found}, and not {wanted} within {percent} %");
}

// ---- flash --------------------------------------------------------------------------------------------------------

#[test]
fn flash_does_what_its_data_sheet_says() {
    // Model, load, commands a second; nvme's 600,000 is with 4 threads of depth 32.
    let write = Load { op: WRITE, ..RANDOM };
    for (name, load, wanted, percent) in [
        ("nvme", RANDOM, 19_000, 2),
        ("nvme", Load { depth: 128, ..RANDOM }, 600_000, 5),
        ("nvme", write, 60_000, 2),
        ("nvme", Load { depth: 128, ..write }, 550_000, 6),
        ("sata-ssd", RANDOM, 10_000, 2),
        ("sata-ssd", Load { depth: 32, ..RANDOM }, 98_000, 5),
        ("sata-ssd", write, 42_000, 2),
        ("sata-ssd", Load { depth: 32, ..write }, 90_000, 6),
    ] {
        let got = run(&shipped(name), load, SECOND / 4);
        println!("{name} depth {}: {got:?}", load.depth);
        near(got.per_second, wanted, percent);
    }
    // Model, operation, MB/s.
    for (name, op, mb) in [
        ("nvme", DeviceOp::Read, 3500),
        ("nvme", WRITE, 3300),
        ("sata-ssd", DeviceOp::Read, 550),
        ("sata-ssd", WRITE, 520),
    ] {
        let got = run(&shipped(name), Load { op, depth: 8, ..STREAM }, SECOND / 2);
        near(got.kib_per_second * 1024 / 1_000_000, mb, 3);
    }
}

/// The latency of a drive under rising load: flat while units idle, rising before they are all busy since random
/// commands meet, and then by Little's law with the depth, since throughput does not rise any more.
#[test]
fn latency_rises_with_load() {
    let at = |depth| run(&even("nvme"), Load { depth, ..RANDOM }, SECOND / 10);
    let [one, four, sixteen, full, double] = [1, 4, 16, 128, 256].map(at);
    near(four.mean_ns, one.mean_ns, 10);
    assert!(sixteen.mean_ns > one.mean_ns * 108 / 100, "{} at 16, {} at 1", sixteen.mean_ns, one.mean_ns);
    assert!(sixteen.mean_ns < one.mean_ns * 150 / 100);
    near(double.per_second, full.per_second, 5);
    near(double.mean_ns, 2 * full.mean_ns, 8);
}

/// Mean number under way = rate * mean time.
#[test]
fn littles_law_holds() {
    for (name, depth) in [("nvme", 1), ("nvme", 64), ("sata-ssd", 32), ("hdd", 8), ("rbd", 32), ("ceph-one-node", 128)]
    {
        let got = run(&shipped(name), Load { depth, ..RANDOM }, SECOND * if name == "hdd" { 20 } else { 4 });
        near(got.mean_depth_percent, u64::from(depth) * 100, 3);
    }
}

#[test]
fn a_burst_of_writes_ends_at_the_sustained_rate() {
    let mut model = even("nvme");
    model.set("burst_kib", 100_000, "test").unwrap();
    let mut timing = Timing::new(&model, TB, 1);
    let load = Load { op: WRITE, depth: 8, ..STREAM };
    let (first, then) = (load.run(&mut timing.clone(), SECOND / 50), load.run(&mut timing, 2 * SECOND));
    near(first.kib_per_second * 1024 / 1_000_000, 3300, 5);
    near(then.kib_per_second * 1024 / 1_000_000, 1700, 5);
}

/// One completion of a command that arrives at `at`, when nothing else is under way.
fn alone(timing: &mut Timing, at: u64, op: DeviceOp, offset: u64, len: u64) -> u64 {
    timing.arrive(at, Command { id: 1, op, offset, len });
    loop {
        let now = timing.next_event().expect("it is under way");
        if timing.complete(now).is_some() {
            return now - at;
        }
    }
}

#[test]
fn a_flush_pays_for_what_was_written_up_to_a_bound() {
    let mut timing = Timing::new(&even("nvme"), TB, 1);
    let empty = alone(&mut timing, 0, DeviceOp::Flush, 0, 0);
    near(empty, 500_000, 1);
    alone(&mut timing, SECOND, WRITE, 0, MIB);
    near(alone(&mut timing, 2 * SECOND, DeviceOp::Flush, 0, 0), 500_000 + 1024 * 602, 1);
    alone(&mut timing, 3 * SECOND, WRITE, 0, 64 * MIB);
    near(alone(&mut timing, 4 * SECOND, DeviceOp::Flush, 0, 0), 500_000 + 4096 * 602, 1);
    near(alone(&mut timing, 5 * SECOND, DeviceOp::Flush, 0, 0), empty, 1);
}

/// Flash behind a write cache of 4 MiB: 32 units, a program takes 640 us.
fn with_write_cache() -> Model {
    let mut model = even("sata-ssd");
    model.set("write_cache_kib", 4096, "test").unwrap();
    model.set("program_ns", 640_000, "test").unwrap();
    model
}

#[test]
fn a_write_cache_answers_at_once_and_goes_at_the_pace_of_the_flash_when_full() {
    let (model, write) = (with_write_cache(), Load { op: WRITE, ..RANDOM });
    near(run(&model, write, SECOND / 50).per_second, 42_000, 2);
    // 32 units of 640 us are 50,000 a second, and some have nothing to do at times; 32 without a cache have 94,000.
    near(run(&model, Load { depth: 32, ..write }, 2 * SECOND).per_second, 50_000, 5);
    assert!(run(&even("sata-ssd"), Load { depth: 32, ..write }, SECOND).per_second > 85_000);
    // One write that is larger than the cache.
    let large = Load { len: 8 * MIB, ..write };
    assert!(run(&model, large, SECOND).per_second > 0);
}

#[test]
fn flushes_and_forced_writes_wait_for_flash_and_other_writes_do_not() {
    let model = with_write_cache();
    let mut timing = Timing::new(&model, TB, 1);
    assert!(alone(&mut timing, 0, WRITE, 0, 4 * KIB) < 30_000);
    // The program of the write before, and flush_ns.
    near(alone(&mut timing, 30_000, DeviceOp::Flush, 0, 0), 640_000 + 1_000_000, 3);
    let forced = alone(&mut timing, 10 * MS, DeviceOp::Write { fua: true }, GIB, 4 * KIB);
    near(forced, 640_000, 5);
}

#[test]
fn a_read_waits_for_one_program_and_not_for_all() {
    let model = with_write_cache();
    let mut timing = Timing::new(&model, TB, 1);
    // The same place again and again: all on one unit.
    (0..16).for_each(|i| _ = alone(&mut timing, i * 30_000, WRITE, 0, 4 * KIB));
    let read = alone(&mut timing, 500_000, DeviceOp::Read, 0, 4 * KIB);
    assert!((90_000..90_000 + 700_000).contains(&read), "{read} ns");
    assert!(alone(&mut timing, 510_000 + read, DeviceOp::Read, MIB, 4 * KIB) < 110_000, "another unit is free");
}

#[test]
fn one_in_so_many_is_slow() {
    let mut model = even("sata-ssd");
    model.set("tail_one_in", 100, "test").unwrap();
    let mut timing = Timing::new(&model, TB, 3);
    let mut rng = Rng::new(1);
    let slow = (0..10_000).filter(|i| {
        let offset = rng.below(1 << 24) * 4 * KIB;
        alone(&mut timing, i * SECOND, DeviceOp::Read, offset, 4 * KIB) > 30 * 89_800
    });
    near(slow.count() as u64, 100, 25);
}

// ---- hdd ----------------------------------------------------------------------------------------------------------

#[test]
fn a_random_read_takes_a_seek_and_half_a_turn() {
    for (name, size, rpm, seek) in [("hdd", 2 * TB, 7200, 8_500_000), ("hdd-5400", 2 * TB, 5400, 10_000_000)] {
        let load = Load { to: size, ..RANDOM };
        let got = load.run(&mut Timing::new(&shipped(name), size, 1), 60 * SECOND);
        near(got.mean_ns, seek + 60 * SECOND / rpm / 2 + 100_000, 5);
    }
}

#[test]
fn streams_run_at_the_rate_of_their_zone() {
    for (name, outer, inner) in [("hdd", 210, 105), ("hdd-5400", 147, 73)] {
        for (op, depth) in [(DeviceOp::Read, 1), (DeviceOp::Read, 4), (WRITE, 4)] {
            let size = 2 * TB;
            for (from, mb) in [(0, outer), (size - 8 * GIB, inner)] {
                let load = Load { op, depth, from, to: from + 8 * GIB, ..STREAM };
                let got = load.run(&mut Timing::new(&shipped(name), size, 1), 30 * SECOND);
                near(got.kib_per_second * 1024 / 1_000_000, mb, 6);
            }
        }
    }
}

/// Choosing the nearest of many, by seek and angle, more than doubles what one at a time gets; without a queue it doesn't.
#[test]
fn the_queue_finds_the_nearest() {
    let mut plain = shipped("hdd");
    plain.set("queue_depth", 1, "test").unwrap();
    let at = |model: &Model, depth| run(model, Load { depth, to: TB, ..RANDOM }, 30 * SECOND).per_second;
    let (one, many) = (at(&shipped("hdd"), 1), at(&shipped("hdd"), 32));
    assert!((22..=32).contains(&(many * 10 / one)), "{one} and {many}");
    near(at(&plain, 32), one, 5);
}

/// A stream that jumps is begun at its beginning: of commands that follow each other none is left behind.
#[test]
fn a_stream_is_not_begun_in_its_middle() {
    let (mut timing, mut rng, mut now) = (Timing::new(&shipped("hdd"), TB, 1), Rng::new(1), 0);
    for _ in 0..50 {
        let start = rng.below(TB / MIB - 8) * MIB;
        // Something else first, so that all of them are there when the head becomes free.
        timing.arrive(now, Command { id: 9, op: DeviceOp::Read, offset: rng.below(TB / MIB) * MIB, len: MIB });
        for id in [2, 0, 3, 1] {
            timing.arrive(now, Command { id, op: DeviceOp::Read, offset: start + u64::from(id) * MIB, len: MIB });
        }
        let mut order = Vec::new();
        while let Some(at) = timing.next_event() {
            now = at;
            order.extend(timing.complete(now));
        }
        order.retain(|id| *id != 9);
        assert_eq!(order, [0, 1, 2, 3]);
    }
}

/// A stream of reads of 128 KiB, so many at a time and the next as soon as one is done, and beside it one random read at a
/// time. What the random reads waited, in ns.
fn beside_a_stream(model: &Model, depth: u32, think_ns: u64, seconds: u64) -> Vec<u64> {
    const RANDOM_ID: u32 = 1000;
    let mut timing = Timing::new(model, TB, 1);
    let (mut rng, mut place, mut waits, mut since) = (Rng::new(3), 0, Vec::new(), 0);
    let mut next_of_stream: BTreeMap<u64, u32> = (0..depth).map(|id| (u64::from(id), id)).collect();
    let mut random_at = Some(50 * MS);
    loop {
        let ours = next_of_stream.keys().next().copied().into_iter().chain(random_at).min();
        let now = ours.into_iter().chain(timing.next_event()).min().expect("somebody is there");
        if now > seconds * SECOND {
            return waits;
        }
        while let Some(id) = timing.complete(now) {
            if id == RANDOM_ID {
                waits.push(now - since);
                random_at = Some(now + 1);
            } else {
                next_of_stream.insert(now + think_ns + u64::from(id), id);
            }
        }
        if random_at.is_some_and(|at| at <= now) {
            (random_at, since) = (None, now);
            let offset = (TB / 2 + rng.below(TB / 4)) / 4096 * 4096;
            timing.arrive(now, Command { id: RANDOM_ID, op: DeviceOp::Read, offset, len: 4 * KIB });
        }
        while let Some(entry) = next_of_stream.first_entry()
            && *entry.key() <= now
        {
            let id = entry.remove();
            timing.arrive(now, Command { id, op: DeviceOp::Read, offset: place, len: 128 * KIB });
            place += 128 * KIB;
        }
    }
}

/// The bound is reached, and never exceeded by more than one movement of the head; also at depth 1, where the stream's next
/// command is not there yet when the head becomes free.
#[test]
fn a_stream_passes_over_a_random_read_up_to_the_bound() {
    for (bound_ms, depth) in [(3000, 1), (3000, 2), (500, 1), (500, 3), (50, 2)] {
        let mut model = shipped("hdd");
        model.set("pass_over_ms", bound_ms, "test").unwrap();
        let waits = beside_a_stream(&model, depth, 50_000, 60);
        let longest = *waits.iter().max().unwrap();
        // A command of the stream under way, a full stroke, a turn.
        let movement = 5 * MS + 17 * MS + 9 * MS;
        assert!(longest <= bound_ms * MS + movement, "depth {depth}, bound {bound_ms} ms: {longest}");
        assert!(longest >= bound_ms * MS, "depth {depth}: the bound of {bound_ms} ms is reached: {longest}");
        assert!(waits.len() as u64 >= 60_000 / (bound_ms + 31), "{} answered", waits.len());
    }
    // Without the preference nobody waits long.
    let mut fair = shipped("hdd");
    fair.set("pass_over_ms", 0, "test").unwrap();
    let longest = *beside_a_stream(&fair, 2, 50_000, 20).iter().max().unwrap();
    assert!(longest < 60 * MS, "{longest}");
    // By count: three commands of 128 KiB are 2 ms of transfer.
    let mut counted = shipped("hdd");
    counted.set("pass_over_count", 3, "test").unwrap();
    let longest = *beside_a_stream(&counted, 2, 50_000, 20).iter().max().unwrap();
    assert!(longest < 60 * MS, "{longest}");
}

/// Who comes behind a stream waits until its read-ahead is full: so many percent of the stream, up to a limit.
#[test]
fn what_is_read_ahead_grows_with_the_stream() {
    let mut model = shipped("hdd");
    model.set("stream_ahead_percent", 50, "test").unwrap();
    model.set("stream_ahead_kib", 32 << 10, "test").unwrap();
    for (stream_mib, ahead_mib) in [(1, 1), (16, 8), (32, 16), (64, 32), (256, 32)] {
        let mut timing = Timing::new(&model, TB, 1);
        let mut now = 0;
        for i in 0..stream_mib {
            now += alone(&mut timing, now, DeviceOp::Read, i * MIB, MIB);
        }
        let waited = alone(&mut timing, now, DeviceOp::Read, TB / 2, 4 * KIB);
        // 205,078 KiB/s outside; then a seek and a turn at most.
        let (fills, moves) = (ahead_mib * 1024 * SECOND / 205_078, 26 * MS);
        assert!((fills..fills + moves).contains(&waited), "{stream_mib} MiB: {waited} ns");
    }
}

#[test]
fn a_slow_reader_is_answered_from_the_read_ahead() {
    let mut timing = Timing::new(&shipped("hdd"), TB, 1);
    let took: Vec<u64> = (0..20)
        .map(|i| alone(&mut timing, SECOND + i * 20 * MS, DeviceOp::Read, GIB + i * 128 * KIB, 128 * KIB))
        .collect();
    assert!(took[0] > 2 * MS, "{}", took[0]);
    assert!(took[1..].iter().all(|&ns| ns < MS), "{took:?}");
    // And again, out of the cache, until something is written there.
    let again = alone(&mut timing, 2 * SECOND, DeviceOp::Read, GIB + 19 * 128 * KIB, 128 * KIB);
    assert!(again < MS, "{again}");
    alone(&mut timing, 3 * SECOND, DeviceOp::Write { fua: true }, GIB + 19 * 128 * KIB, 128 * KIB);
    let after = alone(&mut timing, 4 * SECOND, DeviceOp::Read, GIB + 19 * 128 * KIB, 128 * KIB);
    assert!(after > MS, "{after}");
}

#[test]
fn the_write_cache_answers_at_once_until_it_is_full_and_a_flush_empties_it() {
    let mut timing = Timing::new(&shipped("hdd"), TB, 1);
    let mut rng = Rng::new(1);
    let mut place = || rng.below(TB / 8192) * 8192;
    for _ in 0..20 {
        assert!(alone(&mut timing, 0, WRITE, place(), 4 * KIB) < MS);
    }
    let flush = alone(&mut timing, MS, DeviceOp::Flush, 0, 0);
    assert!(flush > 20 * 3 * MS, "20 places, {flush} ns");
    near(alone(&mut timing, 2 * SECOND, DeviceOp::Flush, 0, 0), 8_333_000 + 100_000, 1);
    assert!(alone(&mut timing, 3 * SECOND, DeviceOp::Write { fua: true }, place(), 4 * KIB) > MS);
    // In the long run random writes cost the head as much as reads do, with the whole cache to choose from.
    let load = Load { op: WRITE, depth: 4, to: TB, ..RANDOM };
    let mut small = shipped("hdd");
    small.set("write_cache_kib", 1024, "test").unwrap();
    let got = load.run(&mut Timing::new(&small, TB, 1), 60 * SECOND);
    assert!((80..400).contains(&got.per_second), "{got:?}");
}

// ---- network, bus, all ----------------------------------------------------------------------------------------------

#[test]
fn a_network_device_has_a_price_per_request() {
    // Published: 262,118 requests of 4 KiB in 40.1 s; 252 of 4 MiB in 12.3 s.
    let small = run(&even("rbd"), Load { depth: 128, len: 4 * KIB, ..STREAM }, 10 * SECOND);
    let large = run(&even("rbd"), Load { depth: 1, len: 4 * MIB, ..STREAM }, 20 * SECOND);
    println!("{small:?} {large:?}");
    assert!(small.per_second < 6_700, "the shared stage bounds it: {small:?}");
    assert!(large.kib_per_second > 2 * small.kib_per_second, "{large:?}");
    // Commands of one object queue at its server: 400 us and 44 for the payload, one after the other.
    let one = Load { depth: 32, to: 4 * MIB, ..RANDOM };
    near(run(&even("rbd"), one, SECOND).per_second, SECOND / 444_000, 3);
    let spread = Load { depth: 32, ..RANDOM };
    assert!(run(&even("rbd"), spread, SECOND).per_second > 2 * SECOND / 444_000);
}

#[test]
fn devices_on_one_bus_share_its_ceiling() {
    let numbers = BusNumbers { command_ns: 5_000, kib_ns: 0 };
    let model = even("nvme").on_bus("host", numbers);
    let rate = |timings: &mut [Timing]| {
        // Closed loops of depth 64 on each; commands in a second.
        let (mut rng, mut now, mut count) = (Rng::new(1), 0, 0);
        let mut command = |id| Command { id, op: DeviceOp::Read, offset: rng.below(1 << 26) * 4 * KIB, len: 4 * KIB };
        for timing in timings.iter_mut() {
            (0..64).for_each(|id| timing.arrive(0, command(id)));
        }
        while now < SECOND / 10 {
            now = timings.iter().filter_map(Timing::next_event).min().unwrap();
            for timing in timings.iter_mut() {
                while let Some(id) = timing.complete(now) {
                    count += 10;
                    timing.arrive(now, command(id));
                }
            }
        }
        count
    };
    let mut buses = Buses::default();
    let mut shared: Vec<Timing> = (0..2).map(|seed| Timing::sharing(&model, TB, seed, &mut buses)).collect();
    let mut apart: Vec<Timing> = (0..2).map(|seed| Timing::new(&model, TB, seed)).collect();
    near(rate(&mut shared), 200_000, 2);
    near(rate(&mut apart), 400_000, 2);
}

#[test]
fn a_seed_is_a_run() {
    for name in Model::shipped_names() {
        let of = |seed| Load { depth: 16, ..RANDOM }.run(&mut Timing::new(&shipped(name), TB, seed), 2 * SECOND);
        assert_eq!(of(1), of(1), "{name}");
        let scatters = shipped(name).get("spread_percent").is_some_and(|percent| percent > 0);
        assert_eq!(of(1) != of(2), scatters, "{name}");
    }
}

/// Who looks late hears of everything, at the same moments as who looks in time: an event loop may be behind.
#[test]
fn looking_late_changes_nothing_that_was_decided() {
    for name in Model::shipped_names() {
        let mut timing = Timing::new(&shipped(name), TB, 1);
        let mut rng = Rng::new(2);
        for id in 0..50 {
            timing.arrive(0, Command { id, op: DeviceOp::Read, offset: rng.below(1 << 24) * 4 * KIB, len: 4 * KIB });
        }
        let mut late = timing.clone();
        let (mut order, mut end) = (Vec::new(), 0);
        while let Some(now) = timing.next_event() {
            order.extend(std::iter::from_fn(|| timing.complete(now)));
            end = now;
        }
        assert_eq!(std::iter::from_fn(|| late.complete(end)).collect::<Vec<_>>(), order, "{name}");
        assert_eq!((order.len(), late.next_event()), (50, None), "{name}");
    }
}

#[test]
fn a_fault_slows_everything_down() {
    for name in Model::shipped_names() {
        let mut timing = Timing::new(&shipped(name), TB, 1);
        let fast = alone(&mut timing, 0, DeviceOp::Read, GIB, 4 * KIB);
        timing.set_factor(50);
        let slow = alone(&mut timing, 10 * SECOND, DeviceOp::Read, 300 * GIB, 4 * KIB);
        assert!(slow > 10 * fast.min(15 * MS), "{name}: {slow}, not {fast}");
    }
}

// ---- files ----------------------------------------------------------------------------------------------------------

#[test]
fn every_number_that_is_shipped_says_where_it_comes_from() {
    for name in Model::shipped_names() {
        let model = shipped(name);
        assert_eq!(model.name(), name);
        for number in model.kind().numbers() {
            assert!(model.source(number.key).is_some_and(|s| s.len() > 4), "{name}: {} has no source", number.key);
        }
    }
}

#[test]
fn a_model_survives_its_file() {
    for name in Model::shipped_names() {
        let model = shipped(name).on_bus("host", BusNumbers { command_ns: 2_000, kib_ns: 400 });
        let text = model.to_toml();
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
        assert_eq!(Model::parse(&text), Ok(model));
    }
}

#[test]
fn mistakes_in_a_file_are_told_in_a_sentence() {
    let good = shipped("nvme").to_toml();
    let line = |text: &str, key: &str| text.lines().position(|l| l.starts_with(key)).unwrap() + 1;
    let with = |from: &str, to: &str| good.replace(from, to);
    let units = line(&good, "units");
    for (text, wanted) in [
        (with("units = 64", "units = 0"), format!("line {units}: units = 0 is out of range: 1 to 4096")),
        (with("units = 64", "units = -4"), format!("line {units}: units = -4 is out of range: 1 to 4096")),
        (
            with("units = 64", "units = \"64\""),
            format!("line {units}: units is a whole number from 1 to 4096, and not \"64\""),
        ),
        (
            with("units = 64", ""),
            "units is missing: a model of kind flash needs it (Units of flash that work at once, 1 to 4096)".into(),
        ),
        (with("kind = \"flash\"", "kind = \"tape\""), "line 2: kind is \"tape\"; there are flash, hdd, network".into()),
        (with("units = 64", "units = "), format!("line {units}: ")),
        (
            with("units = 64", "units = 64\nspeed = 9"),
            format!("line {}: a model of kind flash has no speed; it", units + 1),
        ),
        (format!("{good}[bus]\nkib_ns = 1\n"), "a bus has a name".into()),
    ] {
        let why = Model::parse(&text).unwrap_err();
        assert!(why.contains(&wanted) && !why.contains('\n'), "{why:?}, and not {wanted:?}");
    }
    assert!(shipped("hdd").set("units", 1, "").unwrap_err().contains("no number of a model of kind hdd"));
    assert!(Model::find("floppy").unwrap_err().contains("there are nvme, sata-ssd, hdd"));
    let why = Model::load(Path::new("/nowhere/x.toml")).unwrap_err();
    assert!(why.starts_with("cannot read model /nowhere/x.toml: "), "{why}");
}
