//! Random histories: nothing is lost or stuck, limits hold, and counts come back to zero.

use alloc::collections::BTreeSet;
use alloc::format;

use super::*;
use crate::queue::budget::{Auto, BusyThreshold, WAIT_NS_MIN, Wait};
use crate::queue::merge::Shape;
use crate::queue::testing::{Rng, any_io_in, check_command};

#[derive(Clone, Copy)]
struct Flying {
    class: Class,
    op: DeviceOp,
    offset: u64,
    len: u64,
}

/// Whether something that waits may wait for neighbours, said slowly.
fn is_run(flying: &[Flying], shape: &Shape) -> bool {
    let way = |op| matches!(op, DeviceOp::Read);
    let touches = |there: &Flying| {
        let beside = there.offset + there.len == shape.offset || shape.offset + shape.len == there.offset;
        there.class == shape.class && way(there.op) == way(shape.op) && beside
    };
    shape.len < BOUNDS.max_bytes && shape.segments < BOUNDS.max_segments && flying.iter().any(touches)
}

/// Counts background commands by itself: how many more may start before the next interactive completion.
#[derive(Default)]
struct Purse {
    interactive: u32,
    left: u32,
    overdrawn: u64,
}

impl Purse {
    fn started(&mut self, class: Class) {
        if class.is_interactive() {
            self.interactive += 1;
            self.left = if self.interactive == 1 { 1 } else { self.left };
        } else if self.interactive > 0 {
            self.overdrawn += u64::from(self.left == 0);
            self.left = self.left.saturating_sub(1);
        }
    }

    fn completed(&mut self, class: Class, nia_credit: u32) {
        if class.is_interactive() {
            self.interactive -= 1;
            self.left = nia_credit;
        }
    }
}

fn any_budget(rng: &mut Rng) -> Budget {
    match rng.below(4) {
        0 => Budget::Off,
        1 => Budget::Fixed(BusyThreshold::new(rng.below(6) as i32).unwrap()),
        _ => Budget::Auto(Auto::with_limit(
            [Wait::Fixed(0), Wait::Fixed(WAIT_NS_MIN), Wait::Auto][rng.below(3) as usize],
            1 + rng.below(6) as u32,
        )),
    }
}

fn any_settings(rng: &mut Rng) -> QueueSettings {
    let generation = if rng.chance(2) { Generation::Braid } else { Generation::V2_0_1 };
    let mut settings = QueueSettings::new(generation, rng.chance(2));
    for (name, values) in [
        ("max_active", ["1", "3", "6", "12"]),
        ("scrub_min_active", ["0", "1", "1", "2"]),
        ("nia_credit", ["0", "1", "5", "5"]),
        ("nia_delay", ["0", "1", "5", "5"]),
        ("background_floor", ["off", "200us", "1ms", "100ms"]),
        ("read_gap_limit", ["0", "4096", "10000", "1M"]),
    ] {
        settings.set(name, values[rng.below(4) as usize]).expect(name);
    }
    settings
}

/// Held, let go by the floor, and bridged.
fn history(seed: u64, changes: bool, blocks: u64) -> [u64; 3] {
    let mut rng = Rng::new(seed);
    let mut settings = any_settings(&mut rng);
    let mut queue = BraidQueue::new(settings.clone(), RULES, any_budget(&mut rng));
    let (mut now, mut leaving, mut purse) = (T, Leaving::default(), Purse::default());
    let mut flying: Vec<Flying> = Vec::new();
    let mut inside = BTreeSet::new();
    for id in 0..5000 {
        let context = || format!("seed {seed} step {id}");
        let calm = id >= 500;
        if calm && inside.is_empty() && flying.is_empty() {
            break;
        }
        now = match queue.wake_at() {
            // Calm, and nothing in flight: only waking helps.
            Some(at) if calm && flying.is_empty() => now.max(at),
            _ => now + rng.below(100_000),
        };
        match rng.below(100) {
            0..55 if !calm => {
                for id in id * 4..=id * 4 + rng.below(4) as u32 {
                    inside.insert(id);
                    queue.arrive(any_io_in(&mut rng, id, now, blocks));
                }
            }
            55 if !calm && rng.chance(4) => {
                let mut out = Vec::new();
                queue.take_all(&mut out);
                assert!(out.iter().all(|io| inside.remove(&io.id.0)) && inside.is_empty(), "{}", context());
            }
            56 if changes && rng.chance(2) => {
                settings = any_settings(&mut rng);
                queue.configure(settings.clone());
            }
            57 if changes && rng.chance(2) => queue.set_budget(any_budget(&mut rng)),
            58 if changes => {
                let (max_bytes, boundary) = ((1 + rng.below(8)) * BLOCK, rng.below(3) * 4 * BLOCK);
                let bounds = Bounds { max_bytes, max_segments: 1 + rng.below(8) as u32, boundary };
                queue.set_rules(Rules { bounds, ..RULES });
            }
            _ if !flying.is_empty() => {
                let Flying { class, op, offset, len } = flying.swap_remove(rng.below(flying.len() as u64) as usize);
                queue.complete(now, class, op, offset, len, len);
                purse.completed(class, settings.nia_credit());
            }
            _ => {}
        }
        let active = queue.active_total();
        queue.turn(now, &mut leaving);
        let woken = queue.wake_at().is_some_and(|at| at > now);
        assert!(queue.is_empty() || queue.active_total() > 0 || woken, "{}: stuck", context());
        assert!(queue.wake_at().is_none_or(|at| at > now), "{}: wakes for nothing, again and again", context());
        assert!(queue.active_total() <= settings.max_active().max(active), "{}", context());
        for command in &leaving.commands {
            for id in check_command(&RULES, settings.read_gap_limit(), &leaving, command) {
                assert!(inside.remove(&id.0), "{}: left twice: {id:?}", context());
            }
            let op = leaving.members[command.members.start].op;
            flying.push(Flying { class: command.class, op, offset: command.offset, len: command.len });
            purse.started(command.class);
        }
        leaving.clear();
        let counters = queue.counters();
        assert!(purse.overdrawn <= counters.floor, "{}: background without credit", context());
        for class in Class::ALL {
            let active = flying.iter().filter(|flying| flying.class == class).count();
            assert_eq!(queue.active(class) as usize, active, "{}", context());
        }
        let queued: u32 = Class::ALL.iter().map(|&class| queue.queued(class)).sum();
        assert_eq!(queued as usize, inside.len(), "{}", context());
        match queue.budget() {
            Budget::Off => {}
            Budget::Fixed(fixed) if fixed.threshold() == 0 => {}
            Budget::Fixed(fixed) => assert_eq!(fixed.counter(), flying.len() as i64, "{}", context()),
            Budget::Auto(auto) => assert_eq!(auto.in_flight() as usize, flying.len(), "{}", context()),
        }
        for shape in queue.lanes.iter().flat_map(|lane| lane.runs()) {
            assert!(is_run(&flying, &shape), "{}: waits for nobody", context());
        }
        if flying.is_empty() {
            assert!(queue.lanes.iter().all(|lane| lane.knows_nothing_in_flight()), "{}", context());
        }
    }
    assert!(inside.is_empty() && queue.is_empty() && flying.is_empty(), "seed {seed}: {inside:?}");
    assert_eq!((queue.active_total(), queue.active_interactive()), (0, 0));
    let counters = queue.counters();
    [counters.held, counters.floor, counters.bridged]
}

#[test]
fn nothing_is_lost_or_stuck_and_limits_hold() {
    for (changes, blocks, seeds) in [(false, 64, 400), (true, 64, 400), (true, 700, 100)] {
        let mut met = [0; 3];
        for seed in 1..seeds {
            history(seed, changes, blocks).iter().zip(&mut met).for_each(|(n, sum)| *sum += n);
        }
        let [held, floors, bridged] = met;
        assert!(held > 1000 && floors > 100 && bridged > 1000, "the histories say something: {met:?}");
    }
}

/// An interactive command never comes back: clients go on, and scrub gets its floor and not more.
#[test]
fn a_hung_command_leaves_scrub_its_floor() {
    const MS: u64 = 1_000_000;
    for rotating in [false, true] {
        let mut queue = BraidQueue::new(QueueSettings::new(Generation::Braid, rotating), RULES, Budget::Off);
        let (mut leaving, mut now, mut scrubbed) = (Leaving::default(), T, 0);
        queue.arrive(read(0, 0, BLOCK));
        queue.turn(now, &mut leaving);
        for id in 1..=50 {
            queue.arrive(Waiting { class: Class::Scrub, ..read(id, u64::from(id) * 16 * BLOCK, BLOCK) });
        }
        queue.turn(now, &mut leaving);
        leaving.commands.remove(0);
        while !queue.is_empty() {
            for command in leaving.commands.drain(..) {
                queue.complete(now, command.class, DeviceOp::Read, command.offset, command.len, command.len);
                scrubbed += 1;
            }
            leaving.clear();
            queue.turn(now, &mut leaving);
            if leaving.commands.is_empty() {
                now = queue.wake_at().expect("it goes on");
                queue.turn(now, &mut leaving);
            }
        }
        assert_eq!((scrubbed + leaving.commands.len(), queue.counters().floor), (50, 49));
        // One by credit at once, then one each floor.
        assert_eq!(now.0 - T.0, 49 * 100 * MS);
    }
}
