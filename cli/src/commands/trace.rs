//! `trace`: what clients ask, recorded and shown; a flight record, replayed.

use super::{Outcome, print};
use crate::args::TraceCommand;
use crate::client::Client;
use crate::files;
use crate::render::printable;
use crate::render::table::duration;
use braid_core::flight::MAGIC;
use braid_host::control::api::*;
use braid_host::control::size;
use braid_sim::lab::Direction;
use braid_sim::lab::flight;
use braid_sim::lab::trace::Trace;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the daemon is asked: often enough that its tape never fills.
const LOOK: Duration = Duration::from_millis(50);

/// Somebody pressed Ctrl-C: what was recorded until then is wanted.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupted(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

pub(crate) fn trace(socket: Option<PathBuf>, json: bool, command: &TraceCommand) -> Outcome {
    match command {
        TraceCommand::Record { of, output, seconds, max_size } => {
            let max = size::parse(max_size).map_err(|why| ApiError::usage("trace.size", why))?;
            record(&Client::new(socket)?, json, of, output, Duration::from_secs(*seconds), max)
        }
        TraceCommand::Show { file } => show(file, json),
        TraceCommand::Replay { file } => replay(file, json),
    }
}

fn failed(path: &Path, why: impl std::fmt::Display) -> ApiError {
    ApiError::failed("trace.failed", format!("writing {} failed: {why}", path.display()))
}

fn unfit(path: &Path, why: impl std::fmt::Display) -> ApiError {
    ApiError::usage("trace.unfit", format!("{}: {why}", path.display()))
}

fn record(client: &Client, json: bool, of: &str, path: &Path, time: Duration, max: u64) -> Outcome {
    let (pool, volume) = match of.split_once('/') {
        Some((pool, volume)) => (pool, Some(volume.to_string())),
        None => (of, None),
    };
    let ask = |end| client.call(TakeTrace { pool: pool.into(), volume: volume.clone(), end });
    ask(false)?;
    let mut file = BufWriter::new(File::create(path).map_err(|e| failed(path, e))?);
    let head = json!({"braid_trace": 1, "pool": pool, "volume": volume});
    writeln!(file, "{head}").map_err(|e| failed(path, e))?;
    // SAFETY: the handler does nothing but store into an atomic, which is allowed in one.
    unsafe { libc::signal(libc::SIGINT, interrupted as *const () as libc::sighandler_t) };
    let (begin, mut requests, mut lost, mut bytes) = (Instant::now(), 0, 0, 0);
    loop {
        std::thread::sleep(LOOK.min(time.saturating_sub(begin.elapsed())));
        let ends = begin.elapsed() >= time || bytes >= max || INTERRUPTED.load(Ordering::Relaxed);
        let part = ask(ends)?;
        for request in &part.requests {
            let line = line(request, volume.is_none());
            bytes += line.len() as u64 + 1;
            writeln!(file, "{line}").map_err(|e| failed(path, e))?;
        }
        (requests, lost) = (requests + part.requests.len() as u64, lost + part.lost);
        // Whole lines: whoever ends us otherwise leaves a trace that can be read.
        file.flush().map_err(|e| failed(path, e))?;
        if ends {
            break;
        }
    }
    let end = json!({"end": {"requests": requests, "lost": lost}});
    writeln!(file, "{end}").and_then(|()| file.flush()).map_err(|e| failed(path, e))?;
    print(&match json {
        true => format!("{}\n", json!({"schema": "braid.trace.record", "version": 1, "data": end["end"]})),
        false if lost > 0 => format!("{requests} requests in {}; {lost} more were lost\n", path.display()),
        false => format!("{requests} requests in {}\n", path.display()),
    });
    Ok(0)
}

/// One request of a trace, as docs/lab.md has it; of a whole pool with its volume.
fn line(request: &TracedRequest, of_pool: bool) -> String {
    let op = match request.op.as_str() {
        "read" => "R",
        "write" => "W",
        "flush" => "F",
        "discard" => "D",
        _ => "Z",
    };
    let flags = format!("{}{}", if request.fua { "f" } else { "" }, if request.metadata { "m" } else { "" });
    let TracedRequest { at_ns, client, offset_bytes, length_bytes, volume, .. } = request;
    match of_pool {
        true => json!([at_ns, client, op, offset_bytes, length_bytes, flags, volume]).to_string(),
        false => json!([at_ns, client, op, offset_bytes, length_bytes, flags]).to_string(),
    }
}

fn show(path: &Path, json: bool) -> Outcome {
    let text = files::text(path, "a trace of braid trace record or of blkparse")?;
    let trace = Trace::parse(&text).map_err(|why| unfit(path, why))?;
    let clients: BTreeSet<u32> = trace.requests.iter().map(|request| request.client).collect();
    let sides: Vec<(&str, usize, u64)> = Direction::ALL
        .iter()
        .map(|direction| {
            let ours = trace.requests.iter().filter(|request| request.direction == *direction);
            (direction.name(), ours.clone().count(), ours.map(|request| request.len).sum())
        })
        .collect();
    if json {
        let sides: serde_json::Map<String, serde_json::Value> =
            sides.iter().map(|(name, n, bytes)| (name.to_string(), json!({"requests": n, "bytes": bytes}))).collect();
        let data = json!({
            "duration_ns": trace.duration_ns(), "clients": clients.len(), "needs_bytes": trace.bytes_needed(),
            "volumes": trace.volumes, "directions": sides, "notes": trace.notes,
        });
        print(&format!("{}\n", json!({"schema": "braid.trace.show", "version": 1, "data": data})));
        return Ok(0);
    }
    let ns = trace.duration_ns();
    let per_second = |n: usize| (n as u128 * 1_000_000_000).checked_div(u128::from(ns)).unwrap_or(0);
    let mut out = format!(
        "{} requests of {} in {}, on the first {} of {}\n",
        trace.requests.len(),
        match clients.len() {
            1 => "one client".into(),
            n => format!("{n} clients"),
        },
        duration(ns),
        size::long(trace.bytes_needed()),
        match trace.volumes.len() {
            1 => "a volume".into(),
            n => format!("{n} volumes"),
        }
    );
    for (name, count, bytes) in sides.iter().filter(|(_, count, _)| *count > 0) {
        let (bytes, each) = (size::long(*bytes), size::long(bytes / *count as u64));
        let _ = writeln!(out, "  {name:<6} {count:>10} {:>9}/s  {bytes:>8}, {each} each", per_second(*count));
    }
    for note in &trace.notes {
        let _ = writeln!(out, "note: {}", printable(note));
    }
    print(&out);
    Ok(0)
}

fn replay(path: &Path, json: bool) -> Outcome {
    let record = files::bytes(path, "what braid daemon --flight-record wrote")?;
    if !record.starts_with(MAGIC) {
        // All but the last byte says what it is.
        if record.starts_with(&MAGIC[..MAGIC.len() - 1]) {
            return Err(unfit(path, "another version of braid made this flight record, and replays it"));
        }
        return Err(unfit(path, "it does not begin as a flight record does; braid trace show reads traces"));
    }
    // What stops the engine is told in the error; where, is for whoever looks into it.
    std::panic::set_hook(Box::new(|panic| {
        if let Some(place) = panic.location() {
            eprintln!("braid: the engine stopped at {place}");
        }
    }));
    let done = flight::replay(&record)
        .map_err(|why| ApiError::failed("trace.differs", format!("{}: {why}", path.display())))?;
    let [requests, completions, rest] = flight::kinds(&record);
    print(&match json {
        true => format!(
            "{}\n",
            json!({"schema": "braid.trace.replay", "version": 1, "data": {
                "requests": requests, "completions": completions, "other_inputs": rest, "outputs": done.digest.outputs,
                "digest": format!("{:016x}", done.digest.hash), "compared": done.compared, "cut": done.cut,
            }})
        ),
        false => format!(
            "the same {} outputs (digest {:016x}, compared {} times): {requests} requests, {completions} completions and \
             {rest} other inputs in {}{}\n",
            done.digest.outputs,
            done.digest.hash,
            done.compared,
            duration(done.ns),
            if done.cut { "; the record was cut off" } else { "" }
        ),
    });
    Ok(0)
}
