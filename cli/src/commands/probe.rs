//! `device probe` and `device fit`: a model of a device from what it does.
//!
//! ```text
//!   probe: host measures --.
//!                          +--> sim fits --> table: each load, measured and modelled --> FILE.toml
//!   fit: fio measured -----'
//! ```

use super::{Outcome, print};
use crate::args::{FitArgs, ListFlags, ModelArgs, ProbeArgs};
use crate::files;
use crate::models;
use crate::render::table::{Cell, Column, shown, table};
use crate::render::{envelope, printable};
use crate::resolve;
use braid_core::request::DeviceOp;
use braid_host::backend::measure::{self, Bench};
use braid_host::backend::{self, DiskSpec, OpenOptions, pace};
use braid_host::control::api::ApiError;
use braid_host::control::size;
use braid_host::reactor::Choice;
use braid_sim::device::fit::{Fitted, Measured, fit as fit_model};
use braid_sim::device::{Got, Load, Model, fio};
use serde::Serialize;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Bytes of a command of a stream.
const STREAM_LEN: u64 = 1 << 20;
/// Less than this holds no stream at its beginning and another at its end.
const SIZE_MIN: u64 = 16 * STREAM_LEN;
const WRITE: DeviceOp = DeviceOp::Write { fua: false };

pub(crate) fn probe(json: bool, args: &ProbeArgs) -> Outcome {
    // What would fail after a minute of measuring fails now.
    check(&args.model)?;
    pace::offer(models::paced);
    let path = resolve::device(&args.device)?;
    let usage = |why: String| ApiError::usage("device.bad_path", why);
    let spec = DiskSpec::parse(&path).map_err(|e| usage(e.to_string()))?;
    // Of a modelled disk the times are wanted, and those are not there for who only looks.
    let read_only = !args.write && !matches!(spec, DiskSpec::Model(..));
    let options = OpenOptions { exclusive: args.write, read_only, ..OpenOptions::default() };
    let failed = |why: String| ApiError::failed("device.probe_failed", why);
    if let Some(path) = spec.path().filter(|path| !path.exists()) {
        return Err(ApiError::not_found("device.not_found", format!("there is no disk or file {}", path.display())));
    }
    let (disk, facts) = backend::open(&spec, options).map_err(|e| failed(with_source(&e)))?;
    if facts.size < SIZE_MIN {
        let (has, least) = (size::long(facts.size), size::long(SIZE_MIN));
        return Err(usage(format!("{path} has {has}; at least {least} are needed to measure it")));
    }
    if args.write
        && let Some(why) = measure::why_not_write(&disk).map_err(|e| failed(format!("looking at {path}: {e}")))?
    {
        return Err(ApiError::refused("device.not_blank", format!("{path} is not written over: {why}"))
            .hint("without --write it is only read"));
    }
    let loads = loads(facts.size, args.write);
    let each = Duration::from_secs(args.seconds) / loads.len() as u32;
    let mut bench = Bench::new(disk, Choice::Auto).map_err(|e| failed(format!("measuring {path}: {e}")))?;
    let mut measured = Vec::new();
    for (name, load) in loads {
        if !json && std::io::stderr().is_terminal() {
            eprintln!("measuring {name}, {:.1} s", each.as_secs_f64());
        }
        let range = (load.from, load.to);
        let asked = measure::Load { op: load.op, depth: load.depth, len: load.len as u32, range, random: load.random };
        let mut times = bench.run(&asked, each).map_err(|e| failed(format!("measuring {path}: {e}")))?;
        measured.push(Measured { name: name.into(), load, got: load.summary(&mut times.ns, times.took_ns) });
    }
    let mut notes = facts.note;
    if !args.write
        && let Some(note) = spec.path().and_then(holes)
    {
        notes.push(note);
    }
    if !facts.direct {
        notes.push(format!("{path} was read through the page cache: the numbers are those of memory"));
    }
    show(json, &measured, &args.model, Path::new(&path), facts.size, notes)
}

/// Whether what is to become of the measurements can be.
fn check(args: &ModelArgs) -> Result<(), ApiError> {
    if let Some(base) = &args.base {
        Model::find(base).map_err(|why| ApiError::usage("model.unknown", format!("--base: {why}")))?;
    }
    let Some(path) = &args.output else { return Ok(()) };
    let wrong = |why: &str| ApiError::usage("model.not_saved", format!("-o {}: {why}", path.display()));
    if path.extension().is_none_or(|ending| ending != "toml") {
        return Err(wrong("a model is saved as FILE.toml"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(wrong("there is no such folder"));
    }
    Ok(())
}

/// Reading what was never written asks no disk: such times are those of memory.
fn holes(path: &Path) -> Option<String> {
    let facts = std::fs::metadata(path).ok().filter(|facts| facts.is_file())?;
    let (size, there) = (facts.size(), facts.blocks() * 512);
    let percent = (size - there.min(size)) * 100 / size.max(1);
    (percent > 0).then(|| {
        format!(
            "{percent} % of {} was never written, and reads of that ask no disk: the numbers are too good; fill it first, \
             such as with: dd if=/dev/urandom of={} bs=1M conv=notrunc count={}",
            path.display(),
            path.display(),
            size >> 20
        )
    })
}

/// What is asked of a device of so many bytes.
fn loads(size: u64, write: bool) -> Vec<(&'static str, Load)> {
    let part = (size / 4).min(64 << 30) / STREAM_LEN * STREAM_LEN;
    let random = |op, depth| Load { op, depth, len: 4096, from: 0, to: size, random: true };
    let stream = |op, from| Load { op, depth: 4, len: STREAM_LEN, from, to: from + part, random: false };
    let end = (size - part) / 4096 * 4096;
    let mut loads = vec![
        ("random reads, 1 at a time", random(DeviceOp::Read, 1)),
        ("random reads, 8 at a time", random(DeviceOp::Read, 8)),
        ("random reads, 32 at a time", random(DeviceOp::Read, 32)),
        ("stream of reads at the start", stream(DeviceOp::Read, 0)),
        ("stream of reads at the end", stream(DeviceOp::Read, end)),
    ];
    if write {
        loads.push(("random writes, 1 at a time", random(WRITE, 1)));
        loads.push(("stream of writes", stream(WRITE, 0)));
    }
    loads
}

pub(crate) fn fit(json: bool, args: &FitArgs) -> Outcome {
    check(&args.model)?;
    let (mut measured, mut notes) = (Vec::new(), Vec::new());
    for path in &args.files {
        let bad = |why: String| ApiError::usage("fio.bad_output", format!("{}: {why}", path.display()));
        let text = files::text(path, "what fio --output-format=json printed")?;
        let (more, left_out) = fio::from_fio(&text).map_err(bad)?;
        measured.extend(more);
        notes.extend(left_out);
    }
    if measured.is_empty() && !notes.is_empty() {
        return Err(ApiError::failed(
            "model.not_fitted",
            format!("nothing is left to fit a model from: {}", notes.join("; ")),
        ));
    }
    let size = measured.iter().map(|m| m.load.to).max().unwrap_or(0);
    let first = args.files.first().map_or(Path::new("fio"), |path| path);
    show(json, &measured, &args.model, first, size, notes)
}

/// One measured load beside the model.
#[derive(Serialize)]
struct Row {
    load: String,
    per_second: u64,
    kib_per_second: u64,
    mean_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    model_per_second: u64,
    model_mean_ns: u64,
}

impl Row {
    fn new((m, model): &(Measured, Got)) -> Row {
        let Got { per_second, kib_per_second, mean_ns, p50_ns, p99_ns, p999_ns, .. } = m.got;
        let (model_per_second, model_mean_ns) = (model.per_second, model.mean_ns);
        let load = m.name.clone();
        Row { load, per_second, kib_per_second, mean_ns, p50_ns, p99_ns, p999_ns, model_per_second, model_mean_ns }
    }
}

const ROWS: &[Column<Row>] = &[
    shown("load", |r| Cell::text(&r.load)),
    shown("iops", |r| Cell::Number(r.per_second)),
    shown("mib_s", |r| Cell::Real(r.kib_per_second as f64 / 1024.0)),
    shown("mean", |r| Cell::Ns(r.mean_ns)),
    shown("p50", |r| Cell::Ns(r.p50_ns)),
    shown("p99", |r| Cell::Ns(r.p99_ns)),
    shown("p999", |r| Cell::Ns(r.p999_ns)),
    shown("model.iops", |r| Cell::Number(r.model_per_second)),
    shown("model.mean", |r| Cell::Ns(r.model_mean_ns)),
];

/// What `-j` prints.
#[derive(Serialize)]
struct Found {
    name: String,
    kind: &'static str,
    rotational: bool,
    loads: Vec<Row>,
    notes: Vec<String>,
    warnings: Vec<String>,
    saved: Option<String>,
    toml: String,
}

fn show(json: bool, measured: &[Measured], args: &ModelArgs, source: &Path, size: u64, notes: Vec<String>) -> Outcome {
    let stem = args.output.as_deref().unwrap_or(source).file_stem();
    let default = stem.map_or("device".into(), |stem| stem.to_string_lossy().into_owned());
    let name = args.name.clone().unwrap_or(default);
    let Fitted { model, check, warnings } = fit_model(measured, args.base.as_deref(), &name, size)
        .map_err(|why| ApiError::failed("model.not_fitted", why))?;
    let toml = model.to_toml();
    if let Some(path) = &args.output {
        let failed = |e| ApiError::failed("model.not_saved", format!("writing {}: {e}", path.display()));
        std::fs::write(path, &toml).map_err(failed)?;
    }
    let loads: Vec<Row> = check.iter().map(Row::new).collect();
    if json {
        let saved = args.output.as_ref().map(|path| path.display().to_string());
        let (kind, rotational) = (model.kind().name(), model.is_rotational());
        print(&envelope("device_probe", Found { name, kind, rotational, loads, notes, warnings, saved, toml }, false));
        return Ok(0);
    }
    let mut text = table(&loads, ROWS, &ListFlags::default())?;
    let turns = if model.is_rotational() { ", rotates" } else { "" };
    text.push_str(&format!("\nmodel {}: {}{turns}; {}\n", printable(&name), model.kind().name(), model.about()));
    notes.iter().for_each(|note| text.push_str(&format!("note: {}\n", printable(note))));
    warnings.iter().for_each(|warning| text.push_str(&format!("warning: {}\n", printable(warning))));
    text.push_str(&match &args.output {
        Some(path) => format!("saved to {}; use it as model:{},PATH\n", path.display(), path.display()),
        None => "save it with -o FILE.toml\n".into(),
    });
    print(&text);
    Ok(0)
}

fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or(error.to_string(), |source| format!("{error}: {source}"))
}
