//! Choice, order, joins and gaps against the slow twin of the queues with classes.

use alloc::format;

use super::*;
use crate::queue::twin::{Rng, Twin, any_change, any_io};
use crate::units::{KIB, MIB};

/// What happens in a history.
#[derive(Clone, Copy, PartialEq)]
enum Joins {
    /// Nobody joins anybody: the published queue driven by batches.
    Never,
    /// As braid's own queue does.
    Braid,
}

/// What a history met.
#[derive(Default)]
struct Met {
    floors: u64,
    /// As they arrived, and over gaps.
    joined: [u64; 2],
    /// Most that waited at once.
    longest: usize,
}

fn any_bounds(rng: &mut Rng) -> Bounds {
    Bounds {
        max_bytes: rng.pick(&[16, 64, 1024]) * KIB,
        max_segments: rng.pick(&[3, 8, 512]),
        boundary: rng.pick(&[0, 0, 64]) * KIB,
    }
}

fn history(joins: Joins, generation: Generation, rotating: bool, seed: u64, steps: u32) -> Met {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut settings = QueueSettings::new(generation, rotating);
    let apart = |settings: &mut QueueSettings| {
        for name in ["aggregation_limit", "aggregation_limit_non_rotating"] {
            settings.set(name, "0").expect(name);
        }
    };
    let mut rules = RULES;
    match joins {
        Joins::Never => apart(&mut settings),
        Joins::Braid => {
            rules.bounds = any_bounds(&mut rng);
            settings.set("read_gap_limit", rng.pick(&["0", "3000", "32768", "131072"])).expect("a size");
        }
    }
    let mut real = BraidQueue::new(settings.clone(), rules, Budget::Off);
    let mut twin = Twin::new(settings.clone());
    twin.bounds = (joins == Joins::Braid).then_some(rules.bounds);
    let (mut now, mut arrived, mut flying) = (0u64, 0u32, Vec::new());
    let (universe, eager) = (rng.pick(&[40, 400, 100_000]), rng.pick(&[15, 35, 50]));
    let mut met = Met::default();
    for step in 0..steps {
        now += rng.pick(&[0, 0, 1_000, 300_000, 40_000_000]);
        let (at, mut a, mut b) = (Instant(now), Leaving::default(), Leaving::default());
        match rng.below(100) {
            0 => {
                any_change(&mut rng, &mut settings);
                match joins {
                    Joins::Never => apart(&mut settings),
                    Joins::Braid => {
                        rules.bounds = any_bounds(&mut rng);
                        real.set_rules(rules);
                        twin.bounds = Some(rules.bounds);
                    }
                }
                real.configure(settings.clone());
                twin.s = settings.clone();
            }
            1 => {
                twin.dirty = rng.percent(80).then_some(Dirty { bytes: rng.below(MIB), limit: MIB, sync_waits: false });
                real.set_dirty(twin.dirty);
            }
            2 if rng.percent(5) => {
                let mut gone = Vec::new();
                real.take_all(&mut gone);
                let mut expected: Vec<_> = twin.queued.drain(..).map(|queued| queued.io.id.0).collect();
                expected.sort_unstable();
                assert!(gone.is_sorted_by_key(|io| io.arrived));
                let mut gone: Vec<_> = gone.iter().map(|io| io.id.0).collect();
                gone.sort_unstable();
                assert_eq!(gone, expected);
            }
            n if n < 3 + eager && !flying.is_empty() => {
                for _ in 0..=rng.below(3).min(flying.len() as u64 - 1) {
                    let (class, op, offset, len) = flying.swap_remove(rng.below(flying.len() as u64) as usize);
                    real.complete(at, class, op, offset, len, len);
                    twin.complete(class);
                }
            }
            _ => {
                let most = if joins == Joins::Braid && rng.percent(5) { 60 } else { 5 };
                for _ in 0..=rng.below(most) {
                    let io = any_io(&mut rng, arrived, now, universe, 0);
                    arrived += 1;
                    real.arrive(io);
                    twin.arrive(now, io);
                }
            }
        }
        met.longest = met.longest.max(twin.queued.len());
        real.turn(at, &mut a);
        while twin.issue_one(now, &mut b) {}
        let context = || format!("{generation:?} rotating {rotating} seed {seed} step {step} at {now}");
        assert_eq!(a.commands, b.commands, "{}", context());
        assert_eq!(a.members, b.members, "{}", context());
        assert_eq!((real.credit() as i64, real.active_interactive()), (twin.credit, twin.ia), "{}", context());
        assert_eq!(real.last_offset(), twin.last_offset, "{}", context());
        assert_eq!(real.selection.last_class(), twin.last_class, "{}", context());
        let cap = twin.total() >= settings.max_active();
        assert_eq!(real.wake_at().map(|at| at.0), twin.floor_at().filter(|_| !cap), "{}", context());
        for class in Class::ALL {
            let queued = twin.queued.iter().filter(|queued| queued.io.class == class).count();
            assert_eq!(real.queued(class) as usize, queued, "{}", context());
        }
        for command in &a.commands {
            flying.push((command.class, a.members[command.members.start].op, command.offset, command.len));
        }
    }
    let counters = real.counters();
    assert_eq!([counters.merged_back + counters.merged_front, counters.bridged], twin.joined);
    Met { floors: counters.floor, joined: twin.joined, ..met }
}

#[test]
fn without_joins_it_is_the_published_queue_driven_by_batches() {
    for generation in Generation::ALL {
        let met = (1..=40).map(|seed| history(Joins::Never, generation, seed % 2 == 0, seed, 1_000));
        assert!(met.map(|met| met.floors).sum::<u64>() > 0, "{generation:?}: the histories meet the floor");
    }
}

#[test]
fn it_joins_and_bridges_as_its_slow_twin_does() {
    for generation in Generation::ALL {
        let (mut joined, mut longest) = ([0; 2], 0);
        for seed in 1..=40 {
            let met = history(Joins::Braid, generation, seed % 2 == 0, seed, 1_000);
            joined = [joined[0] + met.joined[0], joined[1] + met.joined[1]];
            longest = longest.max(met.longest);
        }
        assert!(joined[0] > 5_000 && joined[1] > 500 && longest > 600, "{generation:?}: {joined:?} {longest}");
    }
}
