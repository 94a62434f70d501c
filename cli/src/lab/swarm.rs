//! `braid lab swarm`: runs drawn from seeds, on all cores, until one fails or time is up.

use std::cell::Cell;
use std::panic;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_host::control::api::ApiError;
use braid_sim::Sabotage;
use braid_sim::swarm::{self, Failure, Scenario, Summary, draw};
use serde_json::{Value, json};

use crate::args::SwarmFlags;
use crate::commands::{self, Outcome};
use crate::files;

/// Seeds, unless the flags say otherwise.
const COUNT: u64 = 1000;

/// What has been done so far.
#[derive(Default)]
struct Tally {
    runs: AtomicU64,
    answered: AtomicU64,
    crashes: AtomicU64,
    /// Over the traces of all runs, in whatever order they came.
    trace: AtomicU64,
}

impl Tally {
    fn add(&self, summary: &Summary) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.answered.fetch_add(summary.answered, Ordering::Relaxed);
        self.crashes.fetch_add(summary.crashes, Ordering::Relaxed);
        self.trace.fetch_xor(summary.hash, Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.runs.load(Ordering::Relaxed) == 0
    }

    fn counts(&self) -> [u64; 3] {
        [&self.runs, &self.answered, &self.crashes].map(|n| n.load(Ordering::Relaxed))
    }

    fn text(&self, begun: Instant) -> String {
        let [runs, answered, crashes] = self.counts();
        let seconds = begun.elapsed().as_secs_f64();
        format!("{runs} runs, {answered} requests, {crashes} crashes, {seconds:.0} s")
    }
}

pub(super) fn swarm(flags: &SwarmFlags, json: bool) -> Outcome {
    let sabotage = flags.sabotage.as_deref().map(sabotage).transpose()?;
    let scenario = flags.scenario.as_deref().map(read).transpose()?;
    hush();
    let (begun, tally) = (Instant::now(), Tally::default());
    let found = match &scenario {
        Some(scenario) => one(scenario, &tally),
        None => many(flags, sabotage, begun, &tally),
    };
    if found.is_none() && tally.is_empty() {
        return Err(ApiError::usage("lab.swarm", "no run was begun: --hours leaves no time for one"));
    }
    match found {
        None => {
            let [runs, requests, crashes] = tally.counts();
            let trace = format!("{:016x}", tally.trace.load(Ordering::Relaxed));
            let counts = json!({
                "failed": false, "runs": runs, "requests": requests, "crashes": crashes, "trace": trace
            });
            commands::print(&match json {
                true => in_json(counts),
                false => format!("All well: {}, trace {trace}\n", tally.text(begun)),
            });
            Ok(0)
        }
        Some(found) => {
            report(&found, flags, json);
            Ok(1)
        }
    }
}

fn in_json(data: Value) -> String {
    format!("{}\n", json!({"schema": "lab.swarm", "version": 1, "data": data}))
}

thread_local! {
    static PLAYS: Cell<bool> = const { Cell::new(false) };
}

/// A failed run says what was wrong by itself, and one that is being made small fails a thousand times. Any other panic is
/// told as ever.
fn hush() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !PLAYS.get() {
            tell(panic);
        }
    }));
}

/// Plays without a word.
fn quietly<T>(play: impl FnOnce() -> T) -> T {
    PLAYS.set(true);
    let played = play();
    PLAYS.set(false);
    played
}

/// A run that failed.
struct Found {
    seed: Option<u64>,
    scenario: Scenario,
    failure: Failure,
}

fn sabotage(name: &str) -> Result<Sabotage, ApiError> {
    Sabotage::parse(name).ok_or_else(|| {
        let known: Vec<&str> = Sabotage::ALL.iter().map(|s| s.name()).collect();
        ApiError::usage("lab.swarm", format!("there is no mistake '{name}'; there are {}", known.join(", ")))
    })
}

fn read(path: &Path) -> Result<Scenario, ApiError> {
    let text = files::text(path, "a scenario that lab swarm printed")?;
    Scenario::parse(&text).map_err(|why| ApiError::usage("lab.swarm", format!("{}: {why}", path.display())))
}

fn one(scenario: &Scenario, tally: &Tally) -> Option<Found> {
    match quietly(|| swarm::attempt(scenario)) {
        Ok(summary) => {
            tally.add(&summary);
            None
        }
        Err(failure) => Some(Found { seed: None, scenario: scenario.clone(), failure }),
    }
}

/// Seeds in order, over several threads, until the first failure; of failures at once the lowest seed counts.
fn many(flags: &SwarmFlags, sabotage: Option<Sabotage>, begun: Instant, tally: &Tally) -> Option<Found> {
    let first = flags.seed.unwrap_or(0);
    // A time beyond all clocks is no end.
    let until = flags.hours.and_then(|time| begun.checked_add(time));
    let count = flags.count.unwrap_or(if flags.hours.is_some() { u64::MAX } else { COUNT });
    let threads = flags.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, |n| n.get());
    let (next, stops) = (AtomicU64::new(0), AtomicBool::new(false));
    let found: Mutex<Option<Found>> = Mutex::new(None);
    let is_over = || stops.load(Ordering::Relaxed) || until.is_some_and(|at| Instant::now() >= at);
    let work = || {
        while !is_over() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(seed) = first.checked_add(number).filter(|_| number < count) else { break };
            let scenario = Scenario { sabotage, ..draw::scenario(seed) };
            match quietly(|| swarm::attempt(&scenario)) {
                Ok(summary) => tally.add(&summary),
                Err(failure) => {
                    stops.store(true, Ordering::Relaxed);
                    let mut found = found.lock().expect("nobody panics with the lock");
                    if found.as_ref().is_none_or(|f| f.seed > Some(seed)) {
                        *found = Some(Found { seed: Some(seed), scenario, failure });
                    }
                }
            }
        }
    };
    super::on_threads(threads, work, || tally.text(begun));
    found.into_inner().expect("nobody panics with the lock")
}

/// Steps of a failure are left out for so long at most: a run that comes to no end takes half a minute to show that.
const SHRINK_MAX: Duration = Duration::from_secs(120);

fn made_small(Found { scenario, failure, .. }: &Found, flags: &SwarmFlags) -> Scenario {
    if flags.no_shrink {
        return scenario.clone();
    }
    let until = Instant::now() + SHRINK_MAX;
    quietly(|| swarm::shrunk(scenario, failure, || Instant::now() < until))
}

/// What was wrong, how to see it again, and the smallest scenario that shows it.
fn report(found: &Found, flags: &SwarmFlags, json: bool) {
    let Found { seed, scenario, failure } = found;
    let again = seed.map(|seed| {
        let sabotage = scenario.sabotage.map_or(String::new(), |s| format!(" --break {}", s.name()));
        format!("braid lab swarm --seed {seed} --count 1{sabotage}")
    });
    if !json {
        // Before that takes its time.
        eprintln!("{}", failure.why);
        again.iter().for_each(|again| eprintln!("Again: {again}"));
    }
    let small = made_small(found, flags);
    if json {
        return commands::print(&in_json(json!({
            "failed": true, "checker": failure.checker.name(), "why": failure.why,
            "seed": seed, "again": again, "scenario": serde_json::to_value(&small).unwrap_or_default(),
        })));
    }
    let (steps, before) = (small.steps(), scenario.steps());
    let size = match flags.no_shrink {
        true => format!("As it was drawn, {steps} steps"),
        false => format!("Made small, {steps} steps of {before}"),
    };
    eprintln!("{size}; from a file it runs with braid lab swarm --scenario FILE:");
    commands::print(&small.to_text());
}
