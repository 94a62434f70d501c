//! Choice and order against the slow twin of the queues with classes, with nothing to join.

use alloc::format;

use super::*;
use crate::queue::twin::{Rng, Twin, any_change, any_io};
use crate::units::MIB;

fn history(generation: Generation, rotating: bool, seed: u64, steps: u32) -> u64 {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut settings = QueueSettings::new(generation, rotating);
    let apart = |settings: &mut QueueSettings| {
        for name in ["aggregation_limit", "aggregation_limit_non_rotating"] {
            settings.set(name, "0").expect(name);
        }
    };
    apart(&mut settings);
    let mut real = BraidQueue::new(settings.clone(), RULES, Budget::Off);
    let mut twin = Twin::new(settings.clone());
    let (mut now, mut arrived, mut flying) = (0u64, 0u32, Vec::new());
    let (universe, eager) = (rng.pick(&[40, 400, 100_000]), rng.pick(&[15, 35, 50]));
    let mut floors = 0;
    for step in 0..steps {
        now += rng.pick(&[0, 0, 1_000, 300_000, 40_000_000]);
        let (at, mut a, mut b) = (Instant(now), Leaving::default(), Leaving::default());
        match rng.below(100) {
            0 => {
                any_change(&mut rng, &mut settings);
                apart(&mut settings);
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
                    real.complete(at, class, op, offset, len);
                    twin.complete(class);
                }
            }
            _ => {
                for _ in 0..=rng.below(4) {
                    let io = any_io(&mut rng, arrived, now, universe, 0);
                    arrived += 1;
                    real.arrive(io);
                    twin.arrive(now, io);
                }
            }
        }
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
        for (command, io) in a.commands.iter().zip(&a.members) {
            flying.push((command.class, io.op, command.offset, command.len));
        }
        floors = real.counters().floor;
    }
    floors
}

#[test]
fn without_joins_it_is_the_published_queue_driven_by_batches() {
    for generation in Generation::ALL {
        let floors: u64 = (1..=40).map(|seed| history(generation, seed % 2 == 0, seed, 1_000)).sum();
        assert!(floors > 0, "{generation:?}: the histories meet the floor");
    }
}
