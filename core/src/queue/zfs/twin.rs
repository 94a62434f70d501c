//! Random histories, compared step by step with the slow twin.

use alloc::format;
use alloc::string::String;

use super::*;
use crate::queue::limits::Generation;
use crate::queue::twin::{Rng, Twin, any_change, any_io};
use crate::units::MIB;

/// What its operation can have, whatever was drawn.
fn any_class(rng: &mut Rng, op: DeviceOp) -> Class {
    match op {
        DeviceOp::Read => rng.pick(&[Class::SyncRead, Class::AsyncRead, Class::Scrub, Class::Removal, Class::Rebuild]),
        DeviceOp::Write { .. } | DeviceOp::WriteZeroes => {
            rng.pick(&[Class::SyncWrite, Class::AsyncWrite, Class::Initializing, Class::Rebuild])
        }
        DeviceOp::Discard => Class::Trim,
        DeviceOp::Flush => rng.pick(&Class::ALL),
    }
}

fn history(generation: Generation, rotating: bool, seed: u64, steps: u32) -> (u64, u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut settings = QueueSettings::new(generation, rotating);
    let (mut real, mut twin) = (VdevQueue::new(settings.clone()), Twin::new(settings.clone()));
    let (mut now, mut flying, mut members_flying) = (0u64, Vec::<Class>::new(), [0u32; 9]);
    let (mut arrived, mut left) = (0u64, 0u64);
    let (mut started, mut completed) = ([0u32; 9], [0u32; 9]);
    // Few places make many neighbours, few completions a long line.
    let (universe, eager, bridges) = (rng.pick(&[40, 400, 100_000]), rng.pick(&[15, 35, 50]), rng.pick(&[0, 25, 70]));
    let (mut merged, mut credits) = (0, 0);
    for step in 0..steps {
        now += rng.pick(&[0, 0, 1_000, 300_000, 40_000_000]);
        let at = Instant(now);
        let (mut a, mut b) = (Leaving::default(), Leaving::default());
        let what: String;
        match rng.below(100) {
            0 => {
                any_change(&mut rng, &mut settings);
                real.configure(settings.clone());
                twin.s = settings.clone();
                what = "configure".into();
            }
            1 => {
                let dirty = Dirty { bytes: rng.below(MIB), limit: MIB, sync_waits: rng.percent(10) };
                twin.dirty = rng.percent(80).then_some(dirty);
                real.set_dirty(twin.dirty);
                what = format!("dirty {:?}", twin.dirty);
            }
            2..=5 if !twin.queued.is_empty() => {
                let io = twin.queued[rng.below(twin.queued.len() as u64) as usize].io;
                let class = any_class(&mut rng, io.op);
                assert!(real.change_class(at, io.id, class) && twin.change_class(now, io.id, class));
                what = format!("{:?} becomes {class:?}", io.id);
            }
            6 if rng.percent(5) => {
                let all: Vec<Waiting> = twin.queued.drain(..).map(|q| q.io).collect();
                left += all.len() as u64;
                assert_eq!(real.take_all(), all, "oldest first");
                what = "gone".into();
            }
            7..=10 => {
                real.turn(at, &mut a);
                while twin.issue_one(now, &mut b) {}
                what = "turn".into();
            }
            n if n < 11 + eager && !flying.is_empty() => {
                let class = flying.swap_remove(rng.below(flying.len() as u64) as usize);
                completed[class.index()] += 1;
                real.complete(at, class, &mut a);
                twin.complete(class);
                while twin.issue_one(now, &mut b) {}
                what = format!("{class:?} completes");
            }
            _ => {
                let io = any_io(&mut rng, arrived as u32, now, universe, bridges);
                arrived += 1;
                real.arrive(at, io, &mut a);
                twin.arrive(now, io);
                twin.issue_one(now, &mut b);
                what = format!("{io:?} arrives");
            }
        }
        let context = || format!("{generation:?} rotating {rotating} seed {seed} step {step} at {now}: {what}");
        assert_eq!(a.commands, b.commands, "{}", context());
        assert_eq!(a.members, b.members, "{}", context());
        let dropped: Vec<Waiting> = real.take_dropped().collect();
        assert_eq!(dropped, core::mem::take(&mut twin.dropped), "{}", context());
        assert_eq!((real.credit() as i64, real.active_interactive()), (twin.credit, twin.ia), "{}", context());
        assert_eq!(real.last_offset(), twin.last_offset, "{}", context());
        assert_eq!(real.selection.last_class(), twin.last_class, "{}", context());
        let cap = twin.total() >= settings.max_active();
        assert_eq!(real.wake_at().map(|at| at.0), twin.floor_at().filter(|_| !cap), "{}", context());

        for command in &a.commands {
            started[command.class.index()] += 1;
            flying.push(command.class);
            merged += u64::from(command.members.len() > 1);
            let members = &a.members[command.members.clone()];
            members.iter().for_each(|member| members_flying[member.class.index()] += 1);
            assert!(members.windows(2).all(|two| two[0].end() <= two[1].offset), "{}: in order", context());
            assert_eq!(command.len, members[members.len() - 1].end() - command.offset, "{}", context());
        }
        left += (a.members.len() + dropped.len()) as u64;
        let waiting: u64 = Class::ALL.iter().map(|&class| u64::from(real.queued(class))).sum();
        assert_eq!(arrived, left + waiting, "{}: everything leaves once", context());
        for class in Class::ALL {
            let i = class.index();
            assert_eq!(real.active(class), started[i] - completed[i], "{}: {class:?}", context());
            assert_eq!(real.queued(class) as usize, twin.queued.iter().filter(|q| q.io.class == class).count());
            assert_eq!(real.stats(class).active, members_flying[i]);
        }
        assert!(real.credit() <= u64::from(step) + 6, "{}: credit is earned", context());
        credits += real.credit();
    }
    (merged, credits)
}

#[test]
fn the_queue_equals_its_slow_twin() {
    for generation in [Generation::V2_0_1, Generation::Pr11166, Generation::Before] {
        let (mut merged, mut credits) = (0, 0);
        for seed in 1..=60 {
            let (m, c) = history(generation, seed % 2 == 0, seed, 1_000);
            (merged, credits) = (merged + m, credits + c);
        }
        assert!(merged > 500 && credits > 1_000, "{generation:?}: the histories say something: {merged} {credits}");
    }
}
