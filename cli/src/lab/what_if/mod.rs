//! `braid lab what-if`: a load on a pool as it is, and on variants of it, side by side.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the pool, the load and the variants from the command line |
//! | `live.rs` | a pool of the daemon |
//! | `report.rs` | what came of it, for people and as JSON |

mod live;
mod report;

use crate::args::WhatIfArgs;
use crate::client::Client;
use crate::commands::{self, Outcome};
use crate::files as named;
use braid_host::control::api::*;
use braid_host::control::size;
use braid_sim::lab::Job;
use braid_sim::lab::files::{self, Files};
use braid_sim::lab::fio;
use braid_sim::lab::pool_file::{DeviceEntry, PoolFile};
use braid_sim::lab::script::Work;
use braid_sim::lab::setup::Volume;
use braid_sim::lab::trace::Trace;
use braid_sim::lab::what_if::{Change, Variant, advise, trials};
use live::Today;
use report::Report;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) fn what_if(socket: Option<PathBuf>, json: bool, args: &WhatIfArgs) -> Outcome {
    let mut variants = variants(args)?;
    let mut today = today(socket, args)?;
    let mut setup = today.pool.setup().map_err(|why| wrong(args, why))?;
    let mut load = load(args)?;
    today.liken(&mut load.volumes, args.trace.is_some());
    setup.volumes = load.volumes;
    for change in variants.iter_mut().flat_map(|variant| &mut variant.changes) {
        if let Change::Set(name, value) = change
            && name == "read_policy"
        {
            *value = today.read_policy(std::mem::take(value));
        }
    }
    let notes: Vec<String> = today.notes.into_iter().chain(load.notes).collect();
    (setup.limit_ns, setup.limit_ios) = (args.seconds.saturating_mul(1_000_000_000), args.requests);
    let seeds: Vec<u64> = (1..=args.seeds).collect();
    // Whatever goes wrong was asked for wrongly: models and memory don't fail.
    let trials = trials(&setup, &load.jobs, &variants, &seeds).map_err(usage)?;
    let report =
        Report { advice: advise(&load.jobs, &trials), trials: &trials, notes: &notes, has_spread: args.seeds > 1 };
    commands::print(&if json { report.json() } else { report.text() });
    Ok(0)
}

fn usage(message: impl Into<String>) -> ApiError {
    ApiError::usage("lab.what_if", message).hint("see: braid lab what-if --help")
}

/// Today's pool first.
fn variants(args: &WhatIfArgs) -> Result<Vec<Variant>, ApiError> {
    let set = args.set.iter().cloned();
    let replace = args.replace.iter().map(|words| format!("replace:{words}"));
    let add = args.add.iter().map(|words| format!("add:{words}"));
    let all = set.chain(replace).chain(add).chain(args.variant.iter().cloned());
    let mut variants = all.map(|text| Variant::parse(&text)).collect::<Result<Vec<_>, _>>().map_err(usage)?;
    for change in variants.iter_mut().flat_map(|variant| &mut variant.changes) {
        if let Change::Set(name, _) = change {
            *name = property(name);
        }
    }
    Ok(std::iter::once(Variant::today()).chain(variants).collect())
}

/// The pool's own word for a property; operators may write a dash, and say mode where chunks go.
fn property(name: &str) -> String {
    match name.replace('-', "_").as_str() {
        "mode" | "allocation_mode" => "allocation".into(),
        name => name.into(),
    }
}

// ---- the pool ---------------------------------------------------------------------------------------------------------

fn wrong(args: &WhatIfArgs, why: String) -> ApiError {
    usage(format!("pool {}: {why}", args.pool))
}

fn today(socket: Option<PathBuf>, args: &WhatIfArgs) -> Result<Today, ApiError> {
    let is_file = args.pool.contains('/') || args.pool.ends_with(".toml");
    let mut today = match is_file {
        true => Today::described(described(&args.pool)?),
        false => Client::new(socket)
            .and_then(|client| Today::live(&client, &args.pool))
            .map_err(|e| or_a_file(e, &args.pool))?,
    };
    let mut pool = today.pool.one_by_one().map_err(|why| wrong(args, why))?;
    pool.settings = pool.settings.into_iter().map(|(name, value)| (property(&name), value)).collect();
    args.model.iter().try_for_each(|word| model(&mut pool, word))?;
    today.pool = pool;
    Ok(today)
}

fn described(word: &str) -> Result<PoolFile, ApiError> {
    let text = named::text(Path::new(word), "a description of a pool").map_err(|error| match word.split_once('/') {
        Some((pool, _)) if error.kind == ErrorKind::NotFound && !pool.is_empty() && !Path::new(pool).exists() => {
            error.hint(format!("a pool of the daemon is named without its volumes: --pool {pool}"))
        }
        _ => error,
    })?;
    PoolFile::parse(&text).map_err(|why| {
        usage(format!("{word}: {why}"))
            .hint("a description begins with data = \"raid1\" and has a [[device]] for each; see docs/lab.md")
    })
}

/// No pool of this name, or no daemon: perhaps a file was meant, or would do.
fn or_a_file(error: ApiError, word: &str) -> ApiError {
    let with_ending = format!("{word}.toml");
    let near = [word, with_ending.as_str()].into_iter().find(|name| Path::new(name).is_file());
    match (near, error.kind) {
        (Some(name), _) if name.ends_with(".toml") => {
            error.hint(format!("a description of a pool is here: --pool {name}"))
        }
        (Some(name), _) => error.hint(format!("a description of a pool ends in .toml, or has a /: --pool ./{name}")),
        (None, ErrorKind::Unreachable) => {
            let next = error.hint.clone().unwrap_or_default();
            error.hint(format!("{next}   or describe a pool in a file, see docs/lab.md: --pool pool.toml"))
        }
        _ => error,
    }
}

/// `sdb=hdd-5400`: a device by its name in the tables, or all of a class.
fn model(pool: &mut PoolFile, word: &str) -> Result<(), ApiError> {
    let (device, model) = word.split_once('=').ok_or_else(|| usage(format!("--model {word}: write DEVICE=MODEL")))?;
    let is_name = |entry: &DeviceEntry| entry.name.as_deref() == Some(device);
    let by_name = pool.devices.iter().any(is_name);
    let meant = |entry: &&mut DeviceEntry| if by_name { is_name(entry) } else { entry.class == device };
    let mut found = false;
    for entry in pool.devices.iter_mut().filter(meant) {
        entry.model = Some(model.into());
        found = true;
    }
    if found {
        return Ok(());
    }
    let known: Vec<&str> = pool.devices.iter().filter_map(|entry| entry.name.as_deref()).collect();
    Err(usage(format!(
        "--model {word}: the pool has no device or class {device:?}; its devices are {}",
        known.join(", ")
    )))
}

// ---- the load ---------------------------------------------------------------------------------------------------------

struct Load {
    jobs: Vec<Job>,
    volumes: Vec<Volume>,
    notes: Vec<String>,
}

fn load(args: &WhatIfArgs) -> Result<Load, ApiError> {
    let told = |path: &Path, why: String| usage(format!("{}: {why}", path.display()));
    if let Some(path) = &args.job {
        let file = fio::parse(&named::text(path, "a job file of fio")?).map_err(|why| {
            told(path, why).hint("what is followed of fio, and what is not: docs/lab.md, fio's job files")
        })?;
        let free = size::parse(&args.size).map_err(|why| usage(format!("--size: {why}")))?;
        let volume = |(i, target): (usize, &fio::Target)| volume(i, target.bytes.unwrap_or(free));
        let volumes = file.targets.iter().enumerate().map(volume).collect();
        return Ok(Load { volumes, jobs: file.jobs, notes: file.notes });
    }
    if let Some(path) = &args.trace {
        let text = named::text(path, "a trace of braid trace record or of blkparse")?;
        let trace = Trace::parse(&text).map_err(|why| told(path, why))?;
        return Ok(replayed(trace));
    }
    let Some(words) = &args.files else {
        return Err(usage("what is asked? name a load with --job FILE, --trace FILE or --files NAME"));
    };
    let (name, knobs) = words.split_once(',').unwrap_or((words, ""));
    let mut work = Files::named(name).ok_or_else(|| {
        usage(format!("there is no file system load {name:?}; there are {}", files::NAMES.join(", ")))
    })?;
    for knob in knobs.split(',').map(str::trim).filter(|knob| !knob.is_empty()) {
        let (knob, value) = knob.split_once('=').ok_or_else(|| usage(format!("{knob:?}: write KNOB=VALUE")))?;
        work.set(knob, value).map_err(usage)?;
    }
    work.check().map_err(usage)?;
    let size = work.bytes_needed();
    let job = Job { name: name.into(), work: Some(Work::Files(work)), ..Job::default() };
    Ok(Load { jobs: vec![job], volumes: vec![volume(0, size)], notes: Vec::new() })
}

/// A job for each volume of a trace.
fn replayed(trace: Trace) -> Load {
    let (notes, is_one) = (trace.notes.clone(), trace.volumes.len() == 1);
    let (mut jobs, mut volumes) = (Vec::new(), Vec::new());
    for (name, trace) in trace.by_volume() {
        let new = volume(volumes.len(), trace.bytes_needed());
        let name = if name.is_empty() { new.name } else { name };
        volumes.push(Volume { name: name.clone(), ..new });
        let (name, volume) = (if is_one { "trace".into() } else { name }, jobs.len());
        jobs.push(Job { name, volume, work: Some(Work::Trace(Arc::new(trace))), ..Job::default() });
    }
    Load { jobs, volumes, notes }
}

fn volume(number: usize, bytes: u64) -> Volume {
    // As many as there are numbers is more than any volume has, and refused as such.
    let size = bytes.div_ceil(1 << 20).saturating_mul(1 << 20);
    Volume { name: format!("v{number}"), size, class: braid_core::control::VolumeClass::Auto, checksum: true }
}
