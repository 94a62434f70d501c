//! One thread of a job: what it asks next, and what it waits for.
//!
//! ```text
//!              depth has room                 group is with the engine
//!    Asleep -----------------> (asks a group) ------------------------> asks on, or
//!      ^   start, rate, CPU,                                             |
//!      |   thinking                                                      v
//!      '----- enough is back ------------- Waiting <----------- depth is full, or nothing is left
//!                                             '-------> Finished        nothing is left, nothing on its way
//! ```
//!
//! After a flush the thread waits until it and everything before it is back; thinking begins when everything is back. fio
//! does the same with thinking, and with a flush at depth 1; deeper, it waits for the flush alone.

use braid_core::request::Content;

use super::job::{Cpu, Direction, Job};
use super::outcome::Stop;
use super::places::{Ask, Places};
use super::script::{Script, Step};
use crate::rng::Rng;

/// What a thread does when the runner asks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Hands these over.
    Ask(Vec<Ask>),
    /// Sleeps until that moment.
    Sleep(u64),
    /// Waits for answers.
    Wait,
    /// Lets the scrub go on, or rest, and goes on itself.
    Scrub {
        /// Which of both.
        goes_on: bool,
    },
    /// Has ended.
    End(Stop),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asleep,
    Waiting { answers: u64 },
    Finished,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    /// Index of its job.
    pub(super) job: usize,
    /// Id towards the engine; of a trace that of whoever asked last.
    pub(super) id: u32,
    state: State,
    rng: Rng,
    places: Places,
    /// In place of places: what it does, step by step.
    script: Option<Script>,
    began: u64,
    /// On their way, and back but not looked at yet.
    in_flight: u64,
    back: u64,
    /// Drawn and not asked yet, because its rate does not allow it.
    next: Option<Ask>,
    asked: u64,
    asked_bytes: u64,
    goal_bytes: u64,
    /// Requests and bytes asked of each side, for the rates.
    by_side: [(u64, u64); 2],
    writes_since_sync: u64,
    since_thought: u64,
    syncs: bool,
    last_sync: bool,
    stop: Option<Stop>,
}

impl Client {
    /// Thread number so and so of a job, in a volume of so many bytes.
    pub(super) fn new(job: &Job, index: usize, thread: u64, volume: u64, seed: u64, now: u64) -> Client {
        let mut rng = Rng::new(seed ^ job.seed.rotate_left(17) ^ (index as u64) << 40 ^ (thread + 1) << 8);
        let places = Places::new(job, thread, volume, &mut rng);
        let (first, end) = job.region(thread, volume);
        Client {
            job: index,
            id: job.client + thread as u32,
            state: State::Asleep,
            script: job.work.as_ref().map(|work| work.script(rng.next_u64())),
            rng,
            places,
            began: now,
            in_flight: 0,
            back: 0,
            next: None,
            asked: 0,
            asked_bytes: 0,
            goal_bytes: job.io_size.unwrap_or(end - first).saturating_mul(job.loops),
            by_side: [(0, 0); 2],
            writes_since_sync: 0,
            since_thought: 0,
            syncs: false,
            last_sync: job.sync_last,
            stop: None,
        }
    }

    /// What it does now that it is awake.
    pub(super) fn go_on(&mut self, job: &Job, now: u64) -> Move {
        let done = match self.decide(job, now) {
            Move::Ask(asks) if asks.is_empty() => Move::Wait,
            other => other,
        };
        self.state = match &done {
            Move::Ask(_) | Move::Sleep(_) | Move::Scrub { .. } => State::Asleep,
            Move::Wait => State::Waiting { answers: self.wanted(job) },
            Move::End(_) => State::Finished,
        };
        done
    }

    fn decide(&mut self, job: &Job, now: u64) -> Move {
        self.back = 0;
        if self.syncs {
            if self.in_flight > 0 {
                return Move::Wait;
            }
            self.syncs = false;
        }
        if let Some(stop) = self.ends(job, now) {
            return self.finish(stop);
        }
        if self.script.is_some() {
            return self.follow(job, now);
        }
        if self.thinks(job) {
            if self.in_flight > 0 {
                return Move::Wait;
            }
            self.since_thought = 0;
            return Move::Sleep(self.in_time(job, now.saturating_add(job.think_ns)));
        }
        if job.sync_every > 0 && self.writes_since_sync >= job.sync_every {
            return self.sync();
        }
        self.group(job, now)
    }

    /// The next steps of its script, up to one that takes time.
    fn follow(&mut self, job: &Job, now: u64) -> Move {
        let script = self.script.as_mut().expect("it has one");
        loop {
            match script.next() {
                Some(Step::Ask(asks)) => {
                    self.in_flight += asks.len() as u64;
                    return Move::Ask(asks);
                }
                Some(Step::AskAs(client, asks)) => {
                    self.id = job.client.wrapping_add(client);
                    self.in_flight += asks.len() as u64;
                    return Move::Ask(asks);
                }
                Some(Step::Wait) if self.in_flight > 0 => return Move::Wait,
                Some(Step::Scrub { goes_on }) => return Move::Scrub { goes_on },
                Some(Step::Compute(ns)) if ns > 0 => return Move::Sleep(now.saturating_add(ns)),
                Some(Step::Until(at)) if self.began.saturating_add(at) > now => {
                    return Move::Sleep(self.began.saturating_add(at));
                }
                Some(_) => {}
                None => return self.finish(Stop::Done),
            }
        }
    }

    /// Requests that go together, as many as there is room for.
    fn group(&mut self, job: &Job, now: u64) -> Move {
        let mut asks = Vec::new();
        while asks.len() < job.batch as usize && self.in_flight < job.depth && self.ends(job, now).is_none() {
            let Client { places, rng, .. } = self;
            let ask = *self.next.get_or_insert_with(|| places.next(job, rng));
            let due = self.due(job, ask.direction);
            if due > now && asks.is_empty() {
                return Move::Sleep(self.in_time(job, due));
            }
            let stops = self.thinks(job) || job.sync_every > 0 && self.writes_since_sync >= job.sync_every;
            if due > now || stops {
                break;
            }
            self.next = None;
            self.count(ask);
            asks.push(ask);
        }
        Move::Ask(asks)
    }

    fn count(&mut self, ask: Ask) {
        let side = &mut self.by_side[usize::from(ask.direction != Direction::Read)];
        *side = (side.0 + 1, side.1 + ask.len);
        self.asked += 1;
        self.asked_bytes += ask.len;
        self.since_thought += 1;
        self.writes_since_sync += u64::from(ask.direction == Direction::Write);
        self.in_flight += 1;
    }

    /// Everything is asked, or the time is over.
    fn ends(&self, job: &Job, now: u64) -> Option<Stop> {
        if self.stop.is_some() {
            return self.stop;
        }
        if self.runs_out(job, now) {
            return Some(Stop::Runtime);
        }
        let asked_all = self.script.is_none() && self.asked_bytes >= self.goal_bytes;
        (!job.time_based && asked_all).then_some(Stop::Done)
    }

    fn runs_out(&self, job: &Job, at: u64) -> bool {
        job.runtime_ns.is_some_and(|ns| at >= self.began.saturating_add(job.ramp_ns).saturating_add(ns))
    }

    /// That moment, or the one when its time is over: what it does nothing in counts as well.
    fn in_time(&self, job: &Job, at: u64) -> u64 {
        job.runtime_ns.map_or(at, |ns| at.min(self.began.saturating_add(job.ramp_ns).saturating_add(ns)))
    }

    /// It does nothing any more.
    pub(super) fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    fn finish(&mut self, stop: Stop) -> Move {
        self.stop = Some(stop);
        if self.in_flight > 0 {
            return Move::Wait;
        }
        match std::mem::take(&mut self.last_sync) && !matches!(stop, Stop::Failed(_)) {
            true => self.sync(),
            false => Move::End(stop),
        }
    }

    fn sync(&mut self) -> Move {
        (self.syncs, self.writes_since_sync) = (true, 0);
        self.in_flight += 1;
        Move::Ask(vec![Ask { direction: Direction::Sync, offset: 0, len: 0, fua: false, content: Content::Unsaid }])
    }

    fn thinks(&self, job: &Job) -> bool {
        job.think_ns > 0 && self.since_thought >= job.think_after
    }

    /// When the rate of its side allows the next request.
    fn due(&self, job: &Job, direction: Direction) -> u64 {
        let side = usize::from(direction != Direction::Read);
        let (ios, bytes) = self.by_side[side];
        let after = |n: u64, rate: Option<u64>| match rate {
            Some(rate) => u64::try_from(u128::from(n) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX),
            None => 0,
        };
        let after = after(bytes, job.rate[side]).max(after(ios, job.rate_iops[side]));
        self.began.saturating_add(after)
    }

    /// Answers that wake it.
    fn wanted(&self, job: &Job) -> u64 {
        let quiet = self.script.is_some() || self.syncs || self.stop.is_some() || self.thinks(job);
        let low = if job.depth_low == 0 { job.depth } else { job.depth_low.min(job.depth) };
        let drains = self.in_flight.saturating_sub(low);
        if quiet { self.in_flight } else { job.reap.max(drains).min(self.in_flight) }
    }

    /// An answer came; true when it wakes.
    pub(super) fn answered(&mut self, failed: Option<Stop>) -> bool {
        self.in_flight -= 1;
        self.back += 1;
        if failed.is_some() {
            self.stop = failed;
        }
        match self.state {
            State::Waiting { answers } => self.back >= answers,
            State::Asleep | State::Finished => false,
        }
    }

    /// ns of CPU that a step of it costs.
    pub(super) fn cost(&mut self, cpu: &Cpu, ns: u64) -> u64 {
        ns + if cpu.jitter_ns == 0 { 0 } else { self.rng.below(cpu.jitter_ns + 1) }
            + self.rng.exponential(cpu.scatter_ns)
    }
}
