//! `braid lab what-if`: a load on a pool as it is, and on variants of it, side by side.

use crate::args::WhatIfArgs;
use crate::client::Client;
use crate::commands::{self, Outcome};
use crate::render::printable;
use crate::render::table::duration;
use braid_host::control::api::*;
use braid_host::control::size;
use braid_sim::lab::files::{self, Files};
use braid_sim::lab::fio;
use braid_sim::lab::pool_file::{self, DeviceEntry, PoolFile};
use braid_sim::lab::script::Work;
use braid_sim::lab::setup::{Setup, Volume};
use braid_sim::lab::trace::Trace;
use braid_sim::lab::what_if::{Advice, Trial, Variant, advise, trials};
use braid_sim::lab::{Job, Stop};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest file that is read.
const FILE_MAX: u64 = 4 << 30;

pub(crate) fn what_if(socket: Option<PathBuf>, json: bool, args: &WhatIfArgs) -> Outcome {
    let variants = variants(args)?;
    let mut setup = pool(socket, args)?;
    let load = load(args)?;
    setup.volumes = load.volumes;
    (setup.limit_ns, setup.limit_ios) = (args.seconds.saturating_mul(1_000_000_000), args.requests);
    let seeds: Vec<u64> = (1..=args.seeds).collect();
    let trials = trials(&setup, &load.jobs, &variants, &seeds).map_err(|why| ApiError::failed("lab.what_if", why))?;
    let advice = advise(&load.jobs, &trials);
    let text = match json {
        true => {
            format!("{}\n", json!({"schema": "lab.what_if", "version": 1, "data": data(&trials, &advice, &load.notes)}))
        }
        false => report(&trials, &advice, &load.notes),
    };
    commands::print(&text);
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
    let parsed = all.map(|text| Variant::parse(&text)).collect::<Result<Vec<_>, _>>().map_err(usage)?;
    Ok(std::iter::once(Variant::today()).chain(parsed).collect())
}

// ---- the pool ---------------------------------------------------------------------------------------------------------

fn pool(socket: Option<PathBuf>, args: &WhatIfArgs) -> Result<Setup, ApiError> {
    let is_file = args.pool.contains('/') || args.pool.ends_with(".toml");
    let mut pool = match is_file {
        true => {
            let path = Path::new(&args.pool);
            PoolFile::parse(&read(path)?).map_err(|why| usage(format!("{}: {why}", path.display())))?
        }
        false => live(&Client::new(socket)?, &args.pool)?,
    };
    for word in &args.model {
        let (device, model) =
            word.split_once('=').ok_or_else(|| usage(format!("--model {word}: write DEVICE=MODEL")))?;
        let known: Vec<String> = pool.devices.iter().filter_map(|entry| entry.name.clone()).collect();
        let entry = pool.devices.iter_mut().find(|entry| entry.name.as_deref() == Some(device));
        let entry = entry.ok_or_else(|| {
            usage(format!("--model {word}: the pool has no device {device:?}; there are {}", known.join(", ")))
        })?;
        entry.model = Some(model.into());
    }
    pool.setup().map_err(|why| usage(format!("pool {}: {why}", args.pool)))
}

/// A pool of the daemon, as a description of one.
fn live(client: &Client, name: &str) -> Result<PoolFile, ApiError> {
    let mut all = client.call(Status { pool: Some(name.into()) })?;
    let status = all.pop().ok_or_else(|| ApiError::no_pool(name))?;
    let profile = |words: &str| words.split('@').next().unwrap_or_default().to_string();
    let settings = client.call(GetProperties { target: Target::Pool { pool: name.into() }, names: Vec::new() })?;
    let is_set = |property: &&Property| !property.read_only && matches!(property.source, Source::Pool | Source::Device);
    // The pool's own word for where chunks go differs from the operator's.
    let word = |property: &Property| match property.name.as_str() {
        "mode" => ("allocation".to_string(), property.value.clone()),
        _ => (property.name.clone(), property.value.clone()),
    };
    let known = |(name, _): &(String, String)| {
        braid_core::properties::NAMES.contains(&name.as_str()) || braid_core::queue::config::is_name(name)
    };
    let mut devices = Vec::new();
    for device in client.call(ListDevices { pool: Some(name.into()) })? {
        let target = Target::Device { pool: name.into(), device: device.id };
        let own = client.call(GetProperties { target, names: Vec::new() })?;
        let is_other = |other: &DeviceEntry| other.name.as_deref() == Some(&device.name);
        let name = if devices.iter().any(is_other) { format!("{}-{}", device.name, device.id) } else { device.name };
        devices.push(DeviceEntry {
            name: Some(name),
            class: device.class,
            size: device.size_bytes.to_string(),
            rotational: Some(device.rotational),
            settings: own.iter().filter(is_set).map(word).filter(known).collect(),
            ..DeviceEntry::default()
        });
    }
    Ok(PoolFile {
        data: profile(&status.data),
        metadata: Some(profile(&status.metadata)),
        settings: settings.iter().filter(is_set).map(word).filter(known).collect(),
        devices,
    })
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
        let file = fio::parse(&read(path)?).map_err(|why| told(path, why))?;
        let free = pool_file::size(&args.size).ok_or_else(|| usage(format!("--size {}: write 4G", args.size)))?;
        let volume = |(i, target): (usize, &fio::Target)| volume(i, target.bytes.unwrap_or(free));
        let volumes = file.targets.iter().enumerate().map(volume).collect();
        return Ok(Load { volumes, jobs: file.jobs, notes: file.notes });
    }
    if let Some(path) = &args.trace {
        let trace = Trace::parse(&read(path)?).map_err(|why| told(path, why))?;
        let (size, notes) = (trace.bytes_needed(), trace.notes.clone());
        let job = Job { name: "trace".into(), work: Some(Work::Trace(Arc::new(trace))), ..Job::default() };
        return Ok(Load { jobs: vec![job], volumes: vec![volume(0, size)], notes });
    }
    let Some(words) = &args.files else {
        return Err(usage("what is asked? name a load with --job FILE, --trace FILE or --files NAME"));
    };
    let (name, knobs) = words.split_once(',').unwrap_or((words, ""));
    let mut work = Files::named(name).ok_or_else(|| {
        usage(format!("there is no file system load {name:?}; there are {}", files::NAMES.join(", ")))
    })?;
    for knob in knobs.split(',').filter(|knob| !knob.is_empty()) {
        let (knob, value) = knob.split_once('=').ok_or_else(|| usage(format!("{knob:?}: write KNOB=VALUE")))?;
        work.set(knob, value).map_err(usage)?;
    }
    let size = work.metadata_area + work.data_area;
    let job = Job { name: name.into(), work: Some(Work::Files(work)), ..Job::default() };
    Ok(Load { jobs: vec![job], volumes: vec![volume(0, size)], notes: Vec::new() })
}

fn volume(number: usize, bytes: u64) -> Volume {
    let size = bytes.next_multiple_of(1 << 20);
    Volume { name: format!("v{number}"), size, class: braid_core::control::VolumeClass::Auto }
}

fn read(path: &Path) -> Result<String, ApiError> {
    let fail = |why: std::io::Error| usage(format!("cannot read {}: {why}", path.display()));
    let len = std::fs::metadata(path).map_err(fail)?.len();
    if len > FILE_MAX {
        return Err(usage(format!(
            "{} has {}; at most {} are read",
            path.display(),
            size::long(len),
            size::long(FILE_MAX)
        )));
    }
    std::fs::read_to_string(path).map_err(fail)
}

// ---- the answer -------------------------------------------------------------------------------------------------------

fn report(trials: &[Trial], advice: &Option<Advice>, notes: &[String]) -> String {
    let mut out = String::new();
    for note in notes {
        let _ = writeln!(out, "note: {}", printable(note));
    }
    out += &grid(&throughput(trials));
    out += "\nDevices: share of the time with a command there, commands there at once\n";
    out += &grid(&devices(trials));
    out += "\nWhy: how often each reason decided\n";
    out += &grid(&reasons(trials));
    out.push('\n');
    for trial in trials.iter().filter(|trial| !matches!(trial.outcome.stop, Stop::Done | Stop::Runtime)) {
        let _ = writeln!(out, "note: {}: {}", printable(&trial.name), trial.outcome.stop.sentence());
    }
    match advice {
        Some(advice) => advice.sentences.iter().for_each(|sentence| {
            let _ = writeln!(out, "{}", printable(sentence));
        }),
        None => out.push_str("Nothing was compared: name variants with --set, --replace, --add or --variant.\n"),
    }
    let traces: Vec<String> = trials.iter().map(|trial| format!("{:016x}", trial.outcome.hash)).collect();
    let _ = writeln!(out, "Traces: {}", traces.join(" "));
    out
}

fn throughput(trials: &[Trial]) -> Vec<Vec<String>> {
    let head = ["variant", "bytes/s", "requests/s", "p50", "p99", "p99.9", "max", "spread"].map(String::from);
    let row = |trial: &Trial| {
        let all = &trial.outcome.all;
        let latency = all.data().latency;
        let quantile = |permille| duration(latency.quantile_ns(permille));
        vec![
            printable(&trial.name),
            size::long(all.bytes_per_s()),
            (all.milli_iops() / 1000).to_string(),
            quantile(500),
            quantile(990),
            quantile(999),
            duration(latency.max_ns),
            percent(trial.spread_permille),
        ]
    };
    std::iter::once(head.to_vec()).chain(trials.iter().map(row)).collect()
}

fn percent(permille: u64) -> String {
    format!("{}.{}%", permille / 10, permille % 10)
}

/// Rows are devices, columns are variants. Devices that a variant has and another has not leave a gap.
fn devices(trials: &[Trial]) -> Vec<Vec<String>> {
    let mut names: Vec<&str> = Vec::new();
    for device in trials.iter().flat_map(|trial| &trial.outcome.devices) {
        if !names.contains(&device.name.as_str()) {
            names.push(&device.name);
        }
    }
    side_by_side("device", trials, &names, |trial, name| {
        let device = trial.outcome.devices.iter().find(|device| device.name == name)?;
        let queue = device.mean_queue_milli;
        Some(format!("{} {}.{}", percent(device.busy_permille), queue / 1000, queue % 1000 / 100))
    })
}

fn reasons(trials: &[Trial]) -> Vec<Vec<String>> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in trials.iter().flat_map(|trial| all_reasons(trial)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let count = |trial: &Trial, name: &str| {
        let found: Vec<u64> = all_reasons(trial).iter().filter(|(n, _)| *n == name).map(|(_, count)| *count).collect();
        (!found.is_empty()).then(|| found.iter().sum::<u64>().to_string())
    };
    side_by_side("reason", trials, &names, count)
}

/// Of reads and of all queues, without those that never happened.
fn all_reasons(trial: &Trial) -> Vec<(&'static str, u64)> {
    let queues = trial.outcome.devices.iter().flat_map(|device| &device.reasons);
    trial.outcome.read_reasons.iter().chain(queues).filter(|(_, count)| *count > 0).copied().collect()
}

fn side_by_side(
    what: &str,
    trials: &[Trial],
    names: &[&str],
    cell: impl Fn(&Trial, &str) -> Option<String>,
) -> Vec<Vec<String>> {
    let head = std::iter::once(what.to_string()).chain(trials.iter().map(|trial| printable(&trial.name))).collect();
    let row = |name: &&str| {
        let cells = trials.iter().map(|trial| cell(trial, name).unwrap_or_else(|| "-".into()));
        std::iter::once(printable(name)).chain(cells).collect()
    };
    std::iter::once(head).chain(names.iter().map(row)).collect()
}

/// The first column to the left, the others to the right.
fn grid(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, width))| match i {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out
}

fn data(trials: &[Trial], advice: &Option<Advice>, notes: &[String]) -> Value {
    let one = |trial: &Trial| {
        let (all, latency) = (&trial.outcome.all, trial.outcome.all.data().latency);
        let devices = trial.outcome.devices.iter().map(|device| {
            json!({
                "name": device.name, "reads": device.reads, "writes": device.writes, "flushes": device.flushes,
                "read_bytes": device.read_bytes, "write_bytes": device.write_bytes, "merged": device.merged,
                "busy_permille": device.busy_permille, "mean_queue_milli": device.mean_queue_milli,
                "service_ns": device.service_ns,
            })
        });
        let reasons: serde_json::Map<String, Value> =
            all_reasons(trial).into_iter().fold(Default::default(), |mut map: serde_json::Map<_, _>, (name, count)| {
                let sum = map.get(name).and_then(Value::as_u64).unwrap_or(0) + count;
                map.insert(name.into(), sum.into());
                map
            });
        json!({
            "variant": trial.name, "bytes_per_s": all.bytes_per_s(), "milli_iops": all.milli_iops(),
            "p50_ns": latency.quantile_ns(500), "p99_ns": latency.quantile_ns(990), "p999_ns": latency.quantile_ns(999),
            "max_ns": latency.max_ns, "requests": all.data().ios, "errors": all.errors,
            "spread_permille": trial.spread_permille, "stop": trial.outcome.stop.sentence(),
            "devices": devices.collect::<Vec<_>>(), "reasons": reasons, "hash": format!("{:016x}", trial.outcome.hash),
        })
    };
    let advice = advice.as_ref().map(|advice| {
        json!({
            "best": trials[advice.best].name, "measure": advice.measure, "margin_permille": advice.margin_permille,
            "matters": advice.matters, "sentences": advice.sentences,
        })
    });
    json!({"trials": trials.iter().map(one).collect::<Vec<_>>(), "advice": advice, "notes": notes})
}
