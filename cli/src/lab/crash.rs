//! `braid lab crash`: the power goes at every point of small runs, and what is left has to open and hold what was promised.

use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_host::control::api::ApiError;
use braid_sim::crash::{self, Budget, Failure, Mistake, Point, Rules, Tally};
use serde_json::{Value, json};

use crate::args::CrashFlags;
use crate::commands::{self, Outcome};

/// Points, unless the flags say otherwise.
const COUNT: u64 = 1_000_000;

pub(super) fn crash(flags: &CrashFlags, json: bool) -> Outcome {
    let mistake = flags.mistake.as_deref().map(mistake).transpose()?;
    let rules = Rules { mistake, alike: flags.alike, every_loss: flags.every_loss, once: flags.once };
    let scenes = scenes(flags)?;
    // A point that fails says what was wrong by itself.
    panic::set_hook(Box::new(|_| {}));
    if let Some(point) = &flags.point {
        let point: Point = point.parse().map_err(|why: String| ApiError::usage("lab.crash", why))?;
        let (name, seed) = (&scenes[0], flags.seed.unwrap_or(0));
        return Ok(match crash::again(name, seed, &point, rules) {
            Ok(()) => told(json, json!({"failed": false}), &format!("All well at {point} of {name}, seed {seed}")),
            Err(why) => show(&Failure { scene: name.clone(), seed, point, why }, rules, json),
        });
    }
    let run = Run::new(flags, scenes, rules);
    let found = run.all();
    let report = run.report();
    Ok(match found {
        None => told(json, report.json(), &format!("All well: {}", report.text())),
        Some(failure) => {
            if !json {
                eprintln!("{}", report.text());
            }
            show(&failure, rules, json)
        }
    })
}

fn mistake(name: &str) -> Result<Mistake, ApiError> {
    Mistake::parse(name).ok_or_else(|| {
        let known: Vec<&str> = Mistake::all().map(Mistake::name).collect();
        ApiError::usage("lab.crash", format!("there is no mistake '{name}'; there are {}", known.join(", ")))
    })
}

/// The scenarios asked for: one by its name, all of a plot or of a pool by a part of it.
fn scenes(flags: &CrashFlags) -> Result<Vec<String>, ApiError> {
    let mut names = crash::names();
    let Some(word) = &flags.scenario else { return Ok(names) };
    let known = names.join(", ");
    match names.contains(word) {
        true => names.retain(|name| name == word),
        false => names.retain(|name| name.split('/').any(|part| part == word)),
    }
    match names.is_empty() || flags.point.is_some() && names.len() > 1 {
        true => Err(ApiError::usage("lab.crash", format!("there is no scenario '{word}'; there are {known}"))),
        false => Ok(names),
    }
}

/// Scenes with one seed after the other, over several threads.
struct Run {
    scenes: Vec<String>,
    rules: Rules,
    first_seed: u64,
    budget: Budget,
    threads: usize,
    begun: Instant,
    next: AtomicU64,
    stops: AtomicBool,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    tally: Tally,
    cpu: Duration,
    /// By the number of the scene, so that of failures at once the same one is told.
    failure: Option<(u64, Failure)>,
}

impl Run {
    fn new(flags: &CrashFlags, scenes: Vec<String>, rules: Rules) -> Run {
        let threads = flags.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, |n| n.get());
        Run {
            scenes,
            rules,
            first_seed: flags.seed.unwrap_or(0),
            budget: Budget::new(flags.count.unwrap_or(COUNT)),
            threads,
            begun: Instant::now(),
            next: AtomicU64::new(0),
            stops: AtomicBool::new(false),
            done: Mutex::default(),
        }
    }

    fn all(&self) -> Option<Failure> {
        super::on_threads(self.threads, || self.work(), || self.report().text());
        self.lock().failure.take().map(|(_, failure)| failure)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Done> {
        self.done.lock().expect("nobody panics with the lock")
    }

    fn work(&self) {
        let scenes = self.scenes.len() as u64;
        while !self.stops.load(Ordering::Relaxed) && !self.budget.is_spent() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let (name, seed) = (&self.scenes[(number % scenes) as usize], self.first_seed + number / scenes);
            let before = on_cpu();
            let result = crash::scene(name, seed, &self.budget, self.rules);
            let mut done = self.lock();
            done.cpu += on_cpu().saturating_sub(before);
            match result {
                Ok(tally) => done.tally.add(&tally),
                Err(failure) => {
                    self.stops.store(true, Ordering::Relaxed);
                    if done.failure.as_ref().is_none_or(|(other, _)| *other > number) {
                        done.failure = Some((number, failure));
                    }
                }
            }
        }
    }

    fn report(&self) -> Report {
        let done = self.lock();
        Report { tally: done.tally.clone(), cpu: done.cpu, took: self.begun.elapsed() }
    }
}

/// What this thread had of a processor; nothing where the kernel does not tell.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// What was done so far.
struct Report {
    tally: Tally,
    cpu: Duration,
    took: Duration,
}

impl Report {
    /// Points in a second of one core's time.
    fn rate(&self) -> u64 {
        match self.cpu.is_zero() {
            true => 0,
            false => (self.tally.points as f64 / self.cpu.as_secs_f64()) as u64,
        }
    }

    fn text(&self) -> String {
        let Tally { points, states, in_recovery, cuts, lives, whole, hash } = self.tally;
        let (rate, took) = (self.rate(), self.took.as_secs_f64());
        format!(
            "{points} crash points ({in_recovery} in recovery, {states} different states) at {cuts} cuts of {lives} runs, {whole} of which were cut from beginning to end, {rate} a second a core, \
             {took:.0} s, trace {hash:016x}"
        )
    }

    fn json(&self) -> Value {
        let Tally { points, states, in_recovery, cuts, lives, whole, hash } = self.tally;
        json!({
            "failed": false, "points": points, "states": states, "in_recovery": in_recovery, "cuts": cuts, "runs": lives, "whole": whole,
            "trace": format!("{hash:016x}"),
            "points_per_s_core": self.rate(), "seconds": self.took.as_secs_f64(),
        })
    }
}

/// Prints either form.
fn told(json: bool, mut value: Value, text: &str) -> u8 {
    match json {
        true => {
            value["schema"] = "lab.crash".into();
            value["version"] = 1.into();
            commands::print(&format!("{value}\n"));
        }
        false => commands::print(&format!("{text}\n")),
    }
    0
}

/// What was wrong, and how to see it again.
fn show(failure: &Failure, rules: Rules, json: bool) -> u8 {
    let Failure { scene, seed, point, why } = failure;
    let at = if point.0.is_empty() { " --count 1".into() } else { format!(" --point {point}") };
    let mut wrong = rules.mistake.map_or(String::new(), |m| format!(" --break {}", m.name()));
    wrong.push_str(if rules.alike { " --alike" } else { "" });
    let again = format!("braid lab crash --scenario {scene} --seed {seed}{at}{wrong}");
    let value = json!({
        "failed": true, "scenario": scene, "seed": seed, "point": point.to_string(), "why": why, "again": again,
    });
    told(json, value, &format!("{why}\nAgain: {again}"));
    1
}
