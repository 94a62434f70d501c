//! Jobs against a setup: one clock, two lists of what comes next, the world's and the clients'.
//!
//! ```text
//!   client asks a group --CPU--> pieces, each at its moment --> handle        of the engine
//!                                the last piece of the group --> unplug, drain
//!   answers --> the request is done when its last piece is --> its client wakes, or waits for more
//! ```
//!
//! While a group is handed over piece by piece its client is plugged: pieces choose their copy in the order of the CPUs,
//! between those of others, and are joined and sent when the group is complete. A kernel thread does the same.
//!
//! Settings may change where a stage begins. What stages before [`Setup::counted_from`] did is remembered by policies and
//! counted nowhere.
//!
//! A run is a function of setup, jobs and seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use braid_core::control::Command;
use braid_core::queue::class::Class;
use braid_core::report::DeviceReport;
use braid_core::request::{Op, RequestError};
use braid_core::units::VolumeId;

use super::client::{Client, Move};
use super::job::{Direction, Job, check_together};
use super::outcome::{JobOutcome, Outcome, Snapshot, Stop, per_second};
use super::places::Ask;
use super::setup::Setup;
use crate::world::World;

/// Nobody waits for what is later than this, a hundred years: behind it times would end.
const LATEST_NS: u64 = 100 * 365 * 86_400 * 1_000_000_000;

/// Runs the jobs to their end; what was wrong with them, or with the setup, in a sentence.
pub fn run(setup: &Setup, jobs: &[Job], seed: u64) -> Result<Outcome, String> {
    let sizes: Vec<u64> = setup.volumes.iter().map(|volume| volume.size).collect();
    jobs.iter().try_for_each(|job| job.check(&sizes))?;
    check_together(jobs)?;
    let (world, volumes) = setup.world(jobs, seed)?;
    let mut run = Run::new(setup, jobs, seed, world, volumes);
    if setup.scrub {
        run.world.command(Command::ScrubStart);
        run.world.drain();
    }
    let stop = run.finish()?;
    Ok(run.outcome(stop))
}

/// A group of requests on its way through the CPU: what is handed over when.
#[derive(Debug)]
struct Group {
    client: usize,
    /// Who asks, towards the engine.
    id: u32,
    /// Moments, and the requests they belong to with first byte and length of the piece.
    steps: Vec<(u64, usize, u64, u64)>,
    asks: Vec<Ask>,
    done: usize,
    flights: Vec<usize>,
}

#[derive(Debug)]
enum Event {
    Wake(usize),
    HandOver(Group),
}

/// A request on its way.
#[derive(Clone, Debug)]
struct Flight {
    client: usize,
    ask: Ask,
    began: u64,
    pieces: u64,
    failed: Option<RequestError>,
}

struct Run<'a> {
    setup: &'a Setup,
    jobs: &'a [Job],
    seed: u64,
    world: World,
    volumes: Vec<VolumeId>,
    clients: Vec<Client>,
    /// When each CPU is free.
    cpus: Vec<u64>,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    order: u64,
    tags: BTreeMap<u64, usize>,
    flights: Vec<Flight>,
    free_flights: Vec<usize>,
    unfinished: usize,
    before: Snapshot,
    answered: u64,
    began: u64,
    steps: u64,
    outcomes: Vec<JobOutcome>,
    all: JobOutcome,
}

impl<'a> Run<'a> {
    fn new(setup: &'a Setup, jobs: &'a [Job], seed: u64, world: World, volumes: Vec<VolumeId>) -> Run<'a> {
        Run {
            setup,
            jobs,
            seed,
            before: Snapshot::of(&world),
            began: world.now(),
            steps: world.steps,
            world,
            volumes,
            clients: Vec::new(),
            cpus: vec![0; setup.cpus],
            heap: BinaryHeap::new(),
            events: BTreeMap::new(),
            order: 0,
            tags: BTreeMap::new(),
            flights: Vec::new(),
            free_flights: Vec::new(),
            unfinished: 0,
            answered: 0,
            outcomes: jobs.iter().map(|job| JobOutcome::new(&job.name)).collect(),
            all: JobOutcome::new("all"),
        }
    }

    fn finish(&mut self) -> Result<Stop, String> {
        let stages: std::collections::BTreeSet<u32> = self.jobs.iter().map(|job| job.stage).collect();
        for stage in stages {
            self.begin_stage(stage)?;
            let stop = self.finish_stage();
            if stop != Stop::Done {
                return Ok(stop);
            }
        }
        let failed = self.outcomes.iter().map(|job| job.stop).find(|stop| matches!(stop, Stop::Failed(_)));
        let runtime = self.outcomes.iter().map(|job| job.stop).find(|stop| *stop == Stop::Runtime);
        Ok(failed.or(runtime).unwrap_or(Stop::Done))
    }

    fn begin_stage(&mut self, stage: u32) -> Result<(), String> {
        for (_, name, value) in self.setup.changes.iter().filter(|change| change.0 == stage) {
            let (name, value) = (name.clone(), value.clone());
            self.world.control(Command::Set { name, value }).map_err(|error| error.message)?;
        }
        if stage > 0 && stage == self.setup.counted_from {
            self.count_from_here();
        }
        for (index, job) in self.jobs.iter().enumerate().filter(|(_, job)| job.stage == stage) {
            let (volume, at) = (self.setup.volumes[job.volume].size, self.world.now().saturating_add(job.start_ns));
            self.outcomes[index].began_ns = at - self.began;
            self.outcomes[index].stop = Stop::Done;
            for thread in 0..job.count {
                self.clients.push(Client::new(job, index, thread, volume, self.seed, at));
                self.unfinished += 1;
                self.plan(at, Event::Wake(self.clients.len() - 1));
            }
        }
        Ok(())
    }

    /// What was until now is history.
    fn count_from_here(&mut self) {
        (self.before, self.began, self.steps) = (self.snapshot(), self.world.now(), self.world.steps);
        self.outcomes = self.jobs.iter().map(|job| JobOutcome::new(&job.name)).collect();
        self.all = JobOutcome::new("all");
    }

    fn finish_stage(&mut self) -> Stop {
        while self.unfinished > 0 {
            let ours = self.heap.peek().map(|entry| entry.0.0);
            let theirs = self.world.next_at();
            let at = match (ours, theirs) {
                (None, None) => return Stop::Stuck,
                _ if ours.into_iter().chain(theirs).min() > Some(LATEST_NS) => {
                    self.world.wait_until(self.began.saturating_add(self.setup.limit_ns).min(LATEST_NS));
                    return Stop::Limit;
                }
                (Some(ours), theirs) if theirs.is_none_or(|at| ours <= at) => {
                    self.world.wait_until(ours);
                    self.act();
                    ours
                }
                (_, theirs) => {
                    self.world.step();
                    theirs.unwrap_or(0)
                }
            };
            self.take_answers();
            if at - self.began.min(at) > self.setup.limit_ns || self.answered >= self.setup.limit_ios {
                return Stop::Limit;
            }
        }
        Stop::Done
    }

    // ---- clients --------------------------------------------------------------------------------------------------

    fn plan(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order)));
        self.events.insert(self.order, event);
    }

    fn act(&mut self) {
        let Some(Reverse((_, order))) = self.heap.pop() else { return };
        match self.events.remove(&order).expect("it was planned") {
            Event::Wake(client) => self.go_on(client),
            Event::HandOver(group) => self.hand_over(group),
        }
    }

    fn go_on(&mut self, index: usize) {
        let now = self.world.now();
        let job = self.clients[index].job;
        match self.clients[index].go_on(&self.jobs[job], now) {
            Move::Wait => {}
            Move::Sleep(until) => self.plan(until, Event::Wake(index)),
            Move::Scrub { goes_on } => {
                self.world.command(if goes_on { Command::ScrubResume } else { Command::ScrubPause });
                self.world.drain();
                self.plan(now, Event::Wake(index));
            }
            Move::End(stop) => {
                self.unfinished -= 1;
                let outcome = &mut self.outcomes[job];
                if stop == Stop::Runtime {
                    outcome.runtime_ns = outcome.runtime_ns.max(self.jobs[job].runtime_ns.unwrap_or(0));
                }
                if stop != Stop::Done && !matches!(outcome.stop, Stop::Failed(_)) {
                    outcome.stop = stop;
                }
            }
            Move::Ask(asks) => {
                let group = self.on_cpu(index, asks, now);
                self.hand_over_at(group);
            }
        }
    }

    /// When each piece of a group is with the engine.
    fn on_cpu(&mut self, index: usize, asks: Vec<Ask>, now: u64) -> Group {
        let client = &mut self.clients[index];
        let job = &self.jobs[client.job];
        let cpu = self.cpus.iter_mut().min();
        let mut at = cpu.as_ref().map_or(now, |free| now.max(**free));
        let mut steps = Vec::with_capacity(asks.len());
        for (number, ask) in asks.iter().enumerate() {
            at += client.cost(&job.cpu, job.cpu.request_ns);
            let piece = if ask.direction == Direction::Sync { None } else { job.piece };
            let Some(piece) = piece else {
                steps.push((at, number, ask.offset, ask.len));
                continue;
            };
            for first in (0..ask.len).step_by(piece as usize) {
                at += client.cost(&job.cpu, job.cpu.piece_ns);
                steps.push((at, number, ask.offset + first, piece.min(ask.len - first)));
            }
        }
        if job.piece.is_none() {
            // One system call takes them all.
            steps.iter_mut().for_each(|step| step.0 = at);
        }
        if let Some(free) = cpu {
            *free = at;
        }
        Group {
            client: index,
            id: self.clients[index].id,
            steps,
            flights: Vec::with_capacity(asks.len()),
            asks,
            done: 0,
        }
    }

    fn hand_over_at(&mut self, group: Group) {
        let at = group.steps[group.done].0;
        match at <= self.world.now() {
            true => self.hand_over(group),
            false => self.plan(at, Event::HandOver(group)),
        }
    }

    /// What of a group is due now goes to the engine; with the last of it the engine acts.
    fn hand_over(&mut self, mut group: Group) {
        let now = self.world.now();
        let (id, job) = (group.id, &self.jobs[self.clients[group.client].job]);
        let volume = self.volumes[job.volume];
        let plugs = job.piece.is_some() || group.done > 0 || group.steps.last().is_some_and(|last| last.0 > now);
        if plugs {
            self.world.plug(id);
        }
        while let Some(&(at, number, offset, len)) = group.steps.get(group.done)
            && at <= now
        {
            let ask = group.asks[number];
            if number == group.flights.len() {
                group.flights.push(self.begin_flight(group.client, ask));
            }
            let op = match ask.direction {
                Direction::Read => Op::Read,
                Direction::Write => Op::Write { fua: ask.fua },
                Direction::Trim => Op::Discard,
                Direction::Sync => Op::Flush,
            };
            let tag = self.world.submit(id, volume, op, offset, len, ask.content);
            let flight = group.flights[number];
            self.tags.insert(tag, flight);
            group.done += 1;
            // While a piece is still to come the request cannot be done.
            if group.steps.get(group.done).is_some_and(|next| next.1 == number) {
                self.flights[flight].pieces += 1;
            }
        }
        if group.done < group.steps.len() {
            self.world.hand_over();
            return self.hand_over_at(group);
        }
        if plugs {
            self.world.unplug(id);
        }
        self.world.drain();
        self.plan(now, Event::Wake(group.client));
    }

    /// With its first piece.
    fn begin_flight(&mut self, client: usize, ask: Ask) -> usize {
        let flight = Flight { client, ask, began: self.world.now(), pieces: 1, failed: None };
        match self.free_flights.pop() {
            Some(free) => {
                self.flights[free] = flight;
                free
            }
            None => {
                self.flights.push(flight);
                self.flights.len() - 1
            }
        }
    }

    // ---- answers --------------------------------------------------------------------------------------------------

    fn take_answers(&mut self) {
        self.world.events.clear();
        self.world.done.clear();
        if self.world.answers.is_empty() {
            return;
        }
        for answer in std::mem::take(&mut self.world.answers) {
            let number = self.tags.remove(&answer.tag).expect("it was asked");
            let flight = &mut self.flights[number];
            flight.pieces -= 1;
            flight.failed = flight.failed.or(answer.result.err());
            if flight.pieces == 0 {
                let flight = flight.clone();
                self.free_flights.push(number);
                self.land(flight);
            }
        }
    }

    fn land(&mut self, flight: Flight) {
        let now = self.world.now();
        self.answered += 1;
        let job = self.clients[flight.client].job;
        let outcome = &mut self.outcomes[job];
        let (at, ramp) = (now - self.began, self.jobs[job].ramp_ns);
        match flight.failed {
            Some(_) => outcome.errors += 1,
            None if ramp == 0 || at > outcome.began_ns.saturating_add(ramp) => {
                let ns = now - flight.began;
                let side = &mut outcome.sides[flight.ask.direction as usize];
                side.ios += 1;
                side.bytes += flight.ask.len;
                side.latency.record(ns);
                if flight.ask.direction != Direction::Sync {
                    outcome.timeline.record(at, flight.ask.len, ns);
                    self.all.timeline.record(at, flight.ask.len, ns);
                }
                outcome.runtime_ns = at - outcome.began_ns - ramp;
            }
            None => {}
        }
        if self.clients[flight.client].answered(flight.failed.map(Stop::Failed)) {
            self.go_on(flight.client);
        }
    }

    // ---- the end --------------------------------------------------------------------------------------------------

    fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.world)
    }

    /// Jobs that were at work when the run ended count until then.
    fn end_unfinished(&mut self, stop: Stop) {
        let cut = (self.world.now() - self.began).min(self.setup.limit_ns);
        for client in self.clients.iter().filter(|client| !client.is_finished()) {
            let (job, outcome) = (&self.jobs[client.job], &mut self.outcomes[client.job]);
            outcome.stop = stop;
            outcome.runtime_ns =
                outcome.runtime_ns.max(cut.saturating_sub(outcome.began_ns.saturating_add(job.ramp_ns)));
        }
    }

    fn outcome(mut self, stop: Stop) -> Outcome {
        if !matches!(stop, Stop::Done | Stop::Runtime | Stop::Failed(_)) {
            self.end_unfinished(stop);
        }
        let (before, after, ns) = (&self.before, self.snapshot(), self.world.now() - self.began);
        let begun = self.outcomes.iter().filter(|job| job.data().ios > 0);
        let first = begun.clone().map(|job| job.began_ns).min().unwrap_or(0);
        let last = begun.map(|job| job.began_ns + job.runtime_ns).max().unwrap_or(0);
        for job in &self.outcomes {
            self.all.sides.iter_mut().zip(&job.sides).for_each(|(all, side)| all.add(side));
            self.all.errors += job.errors;
        }
        (self.all.began_ns, self.all.runtime_ns, self.all.stop) = (first, last - first, stop);
        let scrub_bytes: u64 = (before.report.devices.iter().zip(&after.report.devices))
            .map(|(a, b)| {
                let scrubbed = |d: &DeviceReport| d.queue.stats.class(Class::Scrub).bytes;
                scrubbed(b) - scrubbed(a)
            })
            .sum();
        Outcome {
            devices: before.devices(&after, &self.setup.names(), ns),
            read_reasons: before.read_reasons(&after),
            counters: after.report.counters,
            scrub_bytes,
            scrub_bytes_per_s: per_second(scrub_bytes, ns),
            jobs: self.outcomes,
            all: self.all,
            stop,
            hash: self.world.hash,
            ns,
            steps: self.world.steps - self.steps,
        }
    }
}
