//! Random submitters, schedulers, limits and drivers. What must hold whatever happens:
//!
//! * the budget's counter is the number of commands in flight, on every path out of the queue;
//! * what waits is known to be run again: by a completion to come or by the timer;
//! * every I/O leaves once, in a command that is right, or is given back when the device goes.

use super::*;
use crate::queue::testing::{Rng, any_io, check_command};
use alloc::collections::BTreeSet;

struct World {
    queue: Queue,
    leaving: Leaving,
    now: Instant,
    /// Submitted and neither left nor given back.
    inside: BTreeSet<u32>,
    /// Paths taken, so that the test can tell that it tests.
    seen: Counters,
    gone: u64,
}

impl World {
    fn new(rng: &mut Rng) -> World {
        let scheduler = if rng.chance(2) { Scheduler::None } else { Scheduler::Deadline };
        let queue_depth = 1 + rng.below(12) as u32;
        let threshold = rng.below(8) as i32;
        let mut config = config(scheduler, queue_depth, threshold);
        config.nr_requests = rng.chance(3).then(|| 1 + rng.below(30) as u32);
        config.bounds.max_bytes = (1 + rng.below(6)) * BLOCK;
        config.bounds.max_segments = 1 + rng.below(6) as u32;
        config.bounds.boundary = if rng.chance(2) { 8 * BLOCK } else { 0 };
        config.variant = if rng.chance(2) { Variant::Braid } else { Variant::BlkMq };
        config.rerun = if rng.chance(2) { Rerun::Completion } else { Rerun::Restart };
        config.plug_requests = 1 + rng.below(6) as usize;
        let queue = Queue::new(config);
        let (seen, gone) = (Counters::default(), 0);
        World { queue, leaving: Leaving::default(), now: T, inside: BTreeSet::new(), seen, gone }
    }

    fn step(&mut self, rng: &mut Rng, id: u32) {
        self.now = self.now + rng.below(2_000_000);
        let World { queue, leaving, now, inside, .. } = self;
        match rng.below(100) {
            0..50 => {
                inside.insert(id);
                queue.arrive(*now, any_io(rng, id, *now), rng.chance(2), leaving);
            }
            50..65 => queue.finish_plug(*now, leaving),
            65..85 if queue.in_flight() > 0 => queue.complete(*now, leaving),
            85..95 => queue.tick(*now, leaving),
            95..98 => queue.set_driver_room(if rng.chance(2) { u32::MAX } else { rng.below(5) as u32 }),
            98 if rng.chance(4) => {
                let mut out = Vec::new();
                queue.take_all(&mut out);
                for io in out {
                    assert!(inside.remove(&io.id.0), "given back twice: {io:?}");
                }
                assert!(inside.is_empty() && queue.is_empty(), "not given back: {inside:?}");
                self.gone += 1;
            }
            _ => {}
        }
        self.left(rng);
        self.check();
    }

    /// Looks at what left; some of it fails before the device has seen it.
    fn left(&mut self, rng: &mut Rng) {
        while !self.leaving.commands.is_empty() {
            let leaving = core::mem::take(&mut self.leaving);
            let rules = self.queue.rules();
            for command in &leaving.commands {
                for id in check_command(&rules, 0, &leaving, command) {
                    assert!(self.inside.remove(&id.0), "left twice: {id:?}");
                }
                if rng.chance(10) {
                    self.queue.complete(self.now, &mut self.leaving);
                }
            }
        }
    }

    fn check(&self) {
        let queue = &self.queue;
        let budget = &queue.config.budget;
        let in_flight = queue.in_flight();
        if budget.threshold() != 0 {
            assert_eq!(budget.counter(), i64::from(in_flight), "the budget leaks");
            assert!(in_flight <= budget.threshold());
        }
        assert!(in_flight <= queue.config.queue_depth);
        assert!(queue.chains.len() + in_flight as usize <= queue.config.nr_requests() as usize);
        let completion_runs = queue.restart || queue.config.rerun == Rerun::Completion;
        let runs_again = in_flight > 0 && completion_runs || queue.wake_at().is_some();
        assert!(!queue.has_waiting() || runs_again, "what waits is stuck");
        // A completion wakes the submitter whether it runs the queue or not.
        assert!(queue.outside.is_empty() || runs_again || in_flight > 0, "the submitter is stuck");
    }
}

#[test]
fn the_budget_never_leaks_and_nothing_is_stuck() {
    let mut seen = Counters::default();
    let mut gone = 0;
    for seed in 1..800 {
        let mut rng = Rng::new(seed);
        let mut world = World::new(&mut rng);
        for id in 0..400 {
            world.step(&mut rng, id);
        }
        // The world gets well: everything goes, without anything new.
        world.queue.set_driver_room(u32::MAX);
        world.queue.finish_plug(world.now, &mut world.leaving);
        for _ in 0..5_000 {
            world.left(&mut rng);
            world.check();
            match world.queue.wake_at() {
                _ if world.queue.in_flight() > 0 => world.queue.complete(world.now, &mut world.leaving),
                Some(at) => {
                    world.now = world.now.max(at);
                    world.queue.tick(world.now, &mut world.leaving);
                }
                None => break,
            }
        }
        assert!(world.queue.is_empty() && world.inside.is_empty(), "seed {seed}: {:?}", world.inside);
        world.seen = *world.queue.counters();
        seen.merged_plug += world.seen.merged_plug;
        seen.merged_back += world.seen.merged_back;
        seen.merged_front += world.seen.merged_front;
        seen.joined += world.seen.joined;
        seen.refused_budget += world.seen.refused_budget;
        seen.refused_tag += world.seen.refused_tag;
        seen.refused_driver += world.seen.refused_driver;
        seen.reruns += world.seen.reruns;
        seen.slept += world.seen.slept;
        gone += world.gone;
    }
    let Counters { merged_plug, merged_back, merged_front, joined, .. } = seen;
    let Counters { refused_budget, refused_tag, refused_driver, reruns, slept, .. } = seen;
    let paths = [merged_plug, merged_back, merged_front, joined, refused_budget, refused_tag, refused_driver];
    assert!(paths.into_iter().chain([reruns, slept, gone]).all(|count| count > 20), "{seen:?}, gone {gone}");
}

/// The slow twin of the software queue: lists of I/Os, looked through as section 5.2 says.
#[test]
fn the_list_merges_as_its_slow_twin_does() {
    for seed in 1..300 {
        let mut rng = Rng::new(seed);
        let mut config = config(Scheduler::None, 1000, 1);
        config.bounds.max_bytes = 6 * BLOCK;
        config.bounds.boundary = 16 * BLOCK;
        let (mut queue, mut leaving) = (Queue::new(config), Leaving::default());
        // One command in flight and one refused: from here on all I/Os go to the list.
        queue.arrive(T, block(1000), false, &mut leaving);
        queue.arrive(T, block(2000), false, &mut leaving);
        let mut twin: Vec<Vec<Waiting>> = Vec::new();
        for id in 0..60 {
            let io = any_io(&mut rng, id, T);
            if queue.bypasses(io.op) {
                continue;
            }
            queue.arrive(T, io, false, &mut leaving);
            submit_slowly(&mut twin, io);
        }
        leaving.clear();
        while queue.in_flight() > 0 {
            queue.complete(T, &mut leaving);
        }
        let commands: Vec<Vec<Waiting>> =
            leaving.commands.iter().skip(1).map(|command| leaving.members[command.members.clone()].to_vec()).collect();
        assert_eq!(commands, twin, "seed {seed}");
    }
}

fn submit_slowly(list: &mut Vec<Vec<Waiting>>, io: Waiting) {
    let may = |io: &Waiting| matches!(io.op, DeviceOp::Read | DeviceOp::Write { .. }) && io.mergeable;
    for request in list.iter_mut().rev().take(8) {
        let (first, last) = (request[0], request[request.len() - 1]);
        if !may(&io) || !may(&first) || io.op != first.op || io.class != first.class {
            continue;
        }
        let back = last.offset + last.len == io.offset;
        let front = io.offset + io.len == first.offset;
        if !back && !front {
            continue;
        }
        let (start, end) = (first.offset.min(io.offset), (last.offset + last.len).max(io.offset + io.len));
        if end - start <= 6 * BLOCK && start / (16 * BLOCK) == (end - 1) / (16 * BLOCK) {
            request.insert(if back { request.len() } else { 0 }, io);
            return;
        }
        break;
    }
    list.push(vec![io]);
}
