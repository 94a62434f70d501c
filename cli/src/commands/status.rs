//! `status`: how pools are, for people, for scripts, and for a monitor.

use super::{Context, Outcome, print};
use crate::args::{ListFlags, StatusArgs};
use crate::render::printable;
use crate::render::table::{Cell, Column, extra, shown, table};
use crate::resolve;
use braid_host::control::api::*;
use braid_host::control::size;
use std::fmt::Write;

pub(crate) fn status(context: &Context, args: StatusArgs) -> Outcome {
    if args.check {
        return check(context, &args);
    }
    let (pool, interval) = resolve::pool_and_interval(&args.list.words)?;
    let only_bad = args.unhealthy;
    if only_bad && context.json {
        let mut pools = context.client.call(Status { pool })?;
        pools.retain(|p| !healthy(p));
        print(&crate::render::json::<Status>(&pools, false));
        return Ok(0);
    }
    context.repeat(
        interval,
        || Status { pool: pool.clone() },
        |pools| {
            let chosen: Vec<&PoolStatus> = pools.iter().filter(|p| !only_bad || !healthy(p)).collect();
            if args.list.flags.plain() {
                let rows: Vec<DeviceStatus> = chosen.iter().flat_map(|p| p.devices.iter().cloned()).collect();
                return table(&rows, DEVICES, &args.list.flags);
            }
            if pools.is_empty() {
                return Ok("no pool is open\n".into());
            }
            if chosen.is_empty() {
                return Ok("all pools are healthy\n".into());
            }
            let texts: Result<Vec<String>, ApiError> =
                chosen.iter().map(|p| show(p, args.verbose, &args.list.flags)).collect();
            Ok(texts?.join("\n"))
        },
    )
}

/// Nothing is missing, nothing failed, nothing spilled that anyone should act on.
fn healthy(pool: &PoolStatus) -> bool {
    pool.state == PoolState::Online
        && pool.problems.is_empty()
        && pool.degraded_chunks == 0
        && pool.devices.iter().all(|d| d.usable)
}

fn errors(device: &DeviceStatus) -> u64 {
    device.read_errors.saturating_add(device.write_errors).saturating_add(device.checksum_errors)
}

/// One line and the exit codes of monitoring plug-ins; what cannot be told is said on standard output too.
fn check(context: &Context, args: &StatusArgs) -> Outcome {
    let (pool, _) = resolve::pool_and_interval(&args.list.words)?;
    let pools = match context.client.call(Status { pool }) {
        Ok(pools) => pools,
        Err(e) => {
            print(&format!("UNKNOWN {}\n", printable(&e.message)));
            return Ok(3);
        }
    };
    let code = |p: &PoolStatus| match p.state {
        PoolState::Unavailable | PoolState::Suspended => 2,
        _ if healthy(p) => 0,
        _ => 1,
    };
    let worst = pools.iter().max_by_key(|p| code(p));
    let count = |n: u8| pools.iter().filter(|p| code(p) == n).count();
    let numbers = format!("healthy={};degraded={};unavailable={}", count(0), count(1), count(2));
    let Some(worst) = worst else {
        print("UNKNOWN no pool is open\n");
        return Ok(3);
    };
    let line = match code(worst) {
        0 => "HEALTHY".to_string(),
        bad => {
            let word = if bad == 2 { worst.state.name() } else { "DEGRADED" };
            let why = match worst.problems.first() {
                Some(problem) => problem.message.clone(),
                None => format!("{} of {} chunks degraded", worst.degraded_chunks, worst.chunks),
            };
            format!("{word} {}: {}", worst.name, printable(&why))
        }
    };
    print(&format!("{line} | {numbers}\n"));
    Ok(code(worst))
}

fn problems(pool: &PoolStatus, out: &mut String) {
    for problem in &pool.problems {
        let _ = writeln!(out, "status: {}", printable(&problem.message));
        if let Some(action) = &problem.action {
            let _ = writeln!(out, "action: {}", printable(action));
        }
    }
}

fn show(pool: &PoolStatus, verbose: bool, flags: &ListFlags) -> Result<String, ApiError> {
    let mut out = String::new();
    if pool.opened_at.is_empty() {
        let _ = writeln!(out, "  pool: {}\n state: UNAVAIL – not open", printable(&pool.name));
        problems(pool, &mut out);
        return Ok(out);
    }
    let name = format!("{} ({} devices, up {})", pool.name, pool.devices.len(), uptime(pool.uptime_ns));
    let _ = writeln!(out, "  pool: {}", printable(&name));
    let failures = match pool.survivable_failures {
        1 => "1 more failure is survivable".to_string(),
        n => format!("{n} more failures are survivable"),
    };
    let _ = match pool.state {
        PoolState::Unavailable => writeln!(out, " state: UNAVAIL – some content cannot be reached"),
        PoolState::Suspended => writeln!(out, " state: SUSPENDED – changes fail; what can be reached is read"),
        PoolState::Degraded => writeln!(
            out,
            " state: DEGRADED – still serving; {failures}; {} of {} chunks degraded",
            pool.degraded_chunks, pool.chunks
        ),
        PoolState::Online => writeln!(out, " state: ONLINE – {failures}"),
    };
    problems(pool, &mut out);
    let shape =
        format!("data {}   meta {}   mode {}   read-policy {}", pool.data, pool.metadata, pool.mode, pool.read_policy);
    let _ = writeln!(out, " shape: {}", printable(&shape));
    let _ = writeln!(
        out,
        " space: {} of data and {} of metadata writable, {} chunks, {} volumes",
        size::long(pool.writable_data_bytes),
        size::long(pool.writable_metadata_bytes),
        pool.chunks,
        pool.volumes
    );
    if !matches!(pool.checksum.as_str(), "" | "none") {
        let ChecksumCache { used_bytes, limit_bytes, .. } = pool.checksum_cache;
        let (used, limit) = (size::long(used_bytes), size::long(limit_bytes));
        let _ = writeln!(out, "  sums: {}, {used} of at most {limit} in memory", printable(&pool.checksum));
    }
    for spill in &pool.spilled {
        let text =
            format!("{} of {} chunks stand on a tier that is not preferred", size::long(spill.bytes), spill.kind);
        let _ = writeln!(out, " spill: {} ({} times since open)", printable(&text), spill.count);
    }
    let _ = writeln!(out, "  scan: {}", printable(&super::scrub::scan(&pool.scrub)));
    if let Some(line) = super::jobs::line(&pool.job) {
        let _ = writeln!(out, "  jobs: {}", printable(&line));
    }
    for spare in &pool.spares {
        let of = spare.in_place_of.map(|id| format!(" in the place of device {id}")).unwrap_or_default();
        let Spare { id, name, class, size_bytes, state, .. } = spare;
        let text = format!("device {id} ({name}, {class}, {}) {state}{of}", size::long(*size_bytes));
        let _ = writeln!(out, " spare: {}", printable(&text));
    }
    for note in &pool.notes {
        let _ = writeln!(out, "  note: {}", printable(note));
    }
    if verbose {
        let _ = writeln!(out, "  uuid: {}   generation {}   opened {}", pool.uuid, pool.generation, pool.opened_at);
    }
    out.push('\n');
    let flags = match verbose && flags.columns.is_none() {
        true => ListFlags { columns: Some("+latency,tiers,preferred,path,uuid".into()), ..flags.clone() },
        false => flags.clone(),
    };
    let named: Vec<&str> = REPORT.to_vec();
    let columns = match flags.columns.as_deref() {
        Some(more) => named.iter().copied().chain(more.trim_start_matches('+').split(',')).collect::<Vec<_>>(),
        None => named,
    };
    out += &table(&pool.devices, DEVICES, &ListFlags { columns: Some(columns.join(",")), ..flags })?;
    let bad: u64 = pool.devices.iter().map(errors).sum();
    let is_unreachable = pool.problems.iter().any(|problem| problem.code == "chunk.lost");
    let _ = match (is_unreachable, bad) {
        (true, _) => writeln!(out, "\nerrors: some content cannot be read"),
        _ if !pool.lost.is_empty() => writeln!(out, "\nerrors: {}", lost(pool, verbose)),
        (_, 0) => writeln!(out, "\nerrors: none"),
        (_, n) => writeln!(out, "\nerrors: {n}, no data lost"),
    };
    Ok(out)
}

/// What no copy holds any more: how much, and with `-v` where.
fn lost(pool: &PoolStatus, verbose: bool) -> String {
    let bytes: u64 = pool.lost.iter().map(|range| range.bytes).sum();
    let whose = if pool.devices.iter().all(|d| d.usable) { "left" } else { "on the devices that are here" };
    let mut text = format!("{} have no good copy {whose}", size::long(bytes));
    if !verbose {
        return text + "; list them with -v";
    }
    for LostRange { volume, offset, bytes } in &pool.lost {
        let place = format!("{}/{volume}", pool.name);
        let _ = write!(text, "\n        {} at byte {offset}: {}", printable(&place), size::long(*bytes));
    }
    text
}

/// Columns under the sentences, where the pool is said above.
const REPORT: &[&str] = &["id", "name", "class", "state", "size", "alloc", "read", "write", "cksum", "slow", "note"];

pub(crate) const DEVICES: &[Column<DeviceStatus>] = &[
    shown("pool", |d| Cell::text(&d.pool)),
    shown("id", |d| Cell::Number(d.id.into())),
    shown("name", |d| Cell::text(&d.name)),
    shown("class", |d| Cell::text(&d.class)),
    shown("state", |d| Cell::text(&d.state)),
    shown("size", |d| Cell::Bytes(d.size_bytes)),
    shown("alloc", |d| Cell::Bytes(d.allocated_bytes)),
    shown("read", |d| Cell::Number(d.read_errors)),
    shown("write", |d| Cell::Number(d.write_errors)),
    shown("cksum", |d| Cell::Number(d.checksum_errors)),
    shown("slow", |d| Cell::Number(d.slow_ios)),
    extra("repaired", |d| Cell::Number(d.repaired)),
    shown("note", |d| Cell::maybe(&d.note)),
    extra("path", |d| Cell::text(&d.path)),
    extra("uuid", |d| Cell::text(&d.uuid)),
    extra("rotational", |d| Cell::text(yes_no(d.rotational))),
    extra("preferred", |d| Cell::text(yes_no(d.read_preferred))),
    extra("tiers", |d| Cell::text(d.tiers.iter().map(|(k, t)| format!("{k}={t}")).collect::<Vec<_>>().join(","))),
    extra("latency", |d| if d.read_latency_ns == 0 { Cell::Empty } else { Cell::Ns(d.read_latency_ns) }),
    extra("model", |d| Cell::maybe(&d.model)),
    extra("serial", |d| Cell::maybe(&d.serial)),
];

pub(crate) fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// `12 s`, `3 min`, `5 h`, `3 d`.
fn uptime(ns: u64) -> String {
    match ns / 1_000_000_000 {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}
