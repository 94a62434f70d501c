//! `braid lab fuzz`: damaged inputs for everything that reads what others wrote, until one fails.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | inputs by target, seed and number; what failed, and how to see it again |
//! | `meter.rs` | memory: counted while an input is read, and stopped at a limit |
//! | `watch.rs` | whoever looks on: progress, and the end of what would never end |
//! | `mistake.rs` | wrong targets, which have to be found |
//! | `sockets.rs` | the targets that read from sockets |
//!
//! One input at a time, so that memory can be counted: more cores take more commands, each with a seed of its own. A
//! failure is a panic, too much memory, no end, or what a target says; its input is written to a file. What kills the
//! process (a stack that is too deep) leaves target, seed and number in the last line of progress.

pub(crate) mod meter;
mod mistake;
mod sockets;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use braid_host::control::api::ApiError;
use braid_host::control::check;
use braid_sim::fuzz::{self, Target};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::watch::Watch;
use crate::args::FuzzFlags;
use crate::commands::{self, Outcome};
use crate::files;

/// Inputs of each target, unless the flags say otherwise.
const COUNT: u64 = 10_000;

/// Where inputs come from.
enum Source {
    /// Drawn from a seed: the numbers from the first one on, so many.
    Drawn { seed: u64, first: u64, count: u64 },
    /// A file that was written when it failed.
    File(Vec<u8>),
}

impl Source {
    /// How inputs are numbered.
    fn numbers(&self) -> std::ops::Range<u64> {
        match *self {
            Source::Drawn { first, count, .. } => first..first.saturating_add(count),
            Source::File(_) => 0..1,
        }
    }

    fn input(&self, target: &Target, number: u64) -> Vec<u8> {
        match self {
            Source::Drawn { seed, .. } => target.input(*seed, number),
            Source::File(bytes) => bytes.clone(),
        }
    }
}

/// What was done with a target.
struct Tally {
    target: &'static str,
    inputs: u64,
    taken: u64,
    /// Most memory for one input, in bytes.
    memory: usize,
    took: Duration,
}

pub(super) fn fuzz(flags: &FuzzFlags, json: bool) -> Outcome {
    let folder = tempfile::tempdir().map_err(|e| ApiError::failed("lab.fuzz", format!("no temporary folder: {e}")))?;
    let mut targets = chosen(flags, folder.path())?;
    if let Some(word) = &flags.mistake {
        let mistake = mistake::find(word)?;
        targets = targets.into_iter().map(|target| mistake::made(target, mistake)).collect();
    }
    // A failure says what was wrong by itself.
    std::panic::set_hook(Box::new(|_| {}));
    if flags.input.is_some() && targets.len() != 1 {
        return Err(ApiError::usage("lab.fuzz", "an input is for one target: name it"));
    }
    let source = match &flags.input {
        Some(path) => Source::File(files::bytes(path, "an input that lab fuzz wrote")?),
        None => Source::Drawn { seed: flags.seed, first: flags.from, count: flags.count.unwrap_or(COUNT) },
    };
    let output = flags.output.clone().unwrap_or_else(|| PathBuf::from("."));
    let patience = Duration::from_secs(flags.patience);
    let watch = Watch::begin(Fuzz { targets, source, output, mistake: flags.mistake.clone(), json, patience, folder });
    let mut tallies = Vec::new();
    for at in 0..watch.fuzz.targets.len() {
        match run(&watch, at) {
            Ok(tally) => {
                if !json {
                    commands::print(&format!("{}\n", tally.text()));
                }
                tallies.push(tally);
            }
            Err((number, why)) => {
                watch.fuzz.tell(at, number, &why);
                return Ok(1);
            }
        }
    }
    if json {
        told(json!({"failed": false, "targets": tallies.iter().map(Tally::json).collect::<Vec<_>>()}));
    }
    Ok(0)
}

/// All inputs of a target; the number of one that fails, and why.
fn run(watch: &Watch, at: usize) -> Result<Tally, (u64, String)> {
    let (target, source) = (&watch.fuzz.targets[at], &watch.fuzz.source);
    let begun = Instant::now();
    let mut tally = Tally { target: target.name, inputs: 0, taken: 0, memory: 0, took: Duration::ZERO };
    for number in source.numbers() {
        let input = source.input(target, number);
        watch.now(at, number);
        let (result, memory) = metered(target, &input);
        tally.taken += u64::from(result.map_err(|why| (number, why))?);
        tally.inputs += 1;
        tally.memory = tally.memory.max(memory);
    }
    tally.took = begun.elapsed();
    Ok(tally)
}

/// What a run is made of, for whoever runs it and whoever looks on.
struct Fuzz {
    targets: Vec<Target>,
    source: Source,
    output: PathBuf,
    mistake: Option<String>,
    json: bool,
    /// Longest time for one input.
    patience: Duration,
    /// Sockets.
    folder: TempDir,
}

impl Fuzz {
    /// Says what was wrong; an input that was drawn is written to a file.
    fn tell(&self, at: usize, number: u64, why: &str) {
        let target = &self.targets[at];
        let name = target.name;
        let mut data = json!({"failed": true, "target": name, "why": why});
        let mut text = format!("{name} ({}): {why}\n", target.about);
        if let Source::Drawn { seed, .. } = self.source {
            let path = self.output.join(format!("fuzz-{name}-{seed}-{number}.input"));
            let wrong = self.mistake.as_ref().map_or(String::new(), |word| format!(" --break {word}"));
            let again = match self.write(&path, &target.input(seed, number)) {
                Ok(()) => format!("braid lab fuzz {name} --input {}{wrong}", path.display()),
                Err(e) => {
                    eprintln!("braid: the input was not written to {}: {e}", path.display());
                    format!("braid lab fuzz {name} --seed {seed} --from {number} --count 1{wrong}")
                }
            };
            text += &format!("Input {number} of seed {seed}. Again: {again}\n");
            (data["seed"], data["number"], data["again"]) = (seed.into(), number.into(), again.into());
        }
        match self.json {
            true => told(data),
            false => commands::print(&text),
        }
    }

    fn write(&self, path: &Path, input: &[u8]) -> io::Result<()> {
        std::fs::create_dir_all(&self.output)?;
        std::fs::write(path, input)
    }
}

/// Reads an input: how that went, and the memory it took at most.
fn metered(target: &Target, input: &[u8]) -> (Result<bool, String>, usize) {
    meter::begin(target.memory);
    let result = target.attempt(input);
    (result, meter::end())
}

/// The targets named, or all.
fn chosen(flags: &FuzzFlags, folder: &Path) -> Result<Vec<Target>, ApiError> {
    let known: Vec<&str> = fuzz::names().into_iter().chain(sockets::NAMES).collect();
    if let Some(name) = flags.targets.iter().find(|name| !known.contains(&name.as_str())) {
        let message = format!("there is no target '{name}'; there are {}", known.join(", "));
        let error = ApiError::usage("lab.unknown", message);
        return Err(match check::nearest(name, &known) {
            Some(near) => error.hint(format!("you may mean {near}")),
            None => error,
        });
    }
    let is_wanted = |name: &str| flags.targets.is_empty() || flags.targets.iter().any(|wanted| wanted == name);
    let mut all = fuzz::targets(is_wanted);
    all.extend(sockets::targets(folder, is_wanted).map_err(|why| ApiError::failed("lab.fuzz", why))?);
    Ok(all)
}

impl Tally {
    /// Inputs a second.
    fn rate(&self) -> u64 {
        (self.inputs as f64 / self.took.as_secs_f64().max(1e-9)) as u64
    }

    fn text(&self) -> String {
        let Tally { target, inputs, taken, memory, took } = self;
        format!(
            "{target:<12} {inputs} inputs, {taken} taken, {} a second, {}, {:.1} s",
            self.rate(),
            memory_text(*memory),
            took.as_secs_f64()
        )
    }

    fn json(&self) -> Value {
        json!({
            "target": self.target, "inputs": self.inputs, "taken": self.taken, "inputs_per_s": self.rate(),
            "memory_bytes_max": self.memory, "seconds": self.took.as_secs_f64(),
        })
    }
}

fn memory_text(bytes: usize) -> String {
    format!("{} KiB at most", bytes.div_ceil(1024))
}

/// Prints the JSON form.
fn told(data: Value) {
    commands::print(&format!("{}\n", json!({"schema": "lab.fuzz", "version": 1, "data": data})));
}
