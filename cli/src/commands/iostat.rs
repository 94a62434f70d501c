//! `iostat`: differences of counters, by pool or by device.
//!
//! Without an interval one line shows the means since the pool was opened; with one, each line shows that interval only.
//! (In the tool that the flags come from the since-start line always comes first, and misleads newcomers.) With `-j` the
//! raw counters are printed, and differences are the reader's.

use super::{Context, Outcome, print};
use crate::args::IostatArgs;
use crate::render;
use crate::render::table::{Cell, Column, extra, shown, table};
use crate::resolve;
use braid_host::control::api::*;

/// One line: what happened in `ns` nanoseconds.
#[derive(Debug, Default)]
struct Row {
    pool: String,
    /// Id and name; the pool itself when absent.
    device: Option<(u32, String)>,
    class: String,
    allocated: u64,
    free: u64,
    ns: u64,
    io: IoCounters,
    ios: u64,
    merged: u64,
    chosen: u64,
    errors: u64,
    in_flight: Option<u32>,
}

impl Row {
    fn rate(&self, count: u64) -> u64 {
        let rate = u128::from(count) * 1_000_000_000 / u128::from(self.ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

fn mean(ns: Option<u64>, count: u64) -> Cell {
    match ns.and_then(|ns| ns.checked_div(count)) {
        Some(mean) if mean > 0 => Cell::Ns(mean),
        _ => Cell::Empty,
    }
}

/// `_s` columns are a second; `ios`, `merged`, `chosen` and `errors` are counts of the interval.
const COLUMNS: &[Column<Row>] = &[
    shown("pool", |r| Cell::text(&r.pool)),
    extra("id", |r| r.device.as_ref().map_or(Cell::Empty, |d| Cell::Number(d.0.into()))),
    extra("device", |r| r.device.as_ref().map_or(Cell::Empty, |d| Cell::text(&d.1))),
    extra("class", |r| Cell::text(&r.class)),
    shown("alloc", |r| Cell::Short(r.allocated)),
    shown("free", |r| Cell::Short(r.free)),
    shown("read_s", |r| Cell::Number(r.rate(r.io.reads))),
    shown("write_s", |r| Cell::Number(r.rate(r.io.writes))),
    shown("rbytes_s", |r| Cell::Short(r.rate(r.io.read_bytes))),
    shown("wbytes_s", |r| Cell::Short(r.rate(r.io.write_bytes))),
    shown("rwait", |r| mean(r.io.read_ns, r.io.reads)),
    shown("wwait", |r| mean(r.io.write_ns, r.io.writes)),
    extra("reads", |r| Cell::Number(r.io.reads)),
    extra("writes", |r| Cell::Number(r.io.writes)),
    extra("flushes", |r| Cell::Number(r.io.flushes)),
    extra("discards", |r| Cell::Number(r.io.discards)),
    extra("ios", |r| Cell::Number(r.ios)),
    extra("merged", |r| Cell::Number(r.merged)),
    extra("chosen", |r| Cell::Number(r.chosen)),
    extra("errors", |r| Cell::Number(r.errors)),
    extra("pend", |r| r.in_flight.map_or(Cell::Empty, |n| Cell::Number(n.into()))),
];

pub(crate) fn iostat(context: &Context, args: IostatArgs) -> Outcome {
    let (pool, interval) = resolve::pool_and_interval(&args.list.words)?;
    let ask = || context.client.call(IoStat { pool: pool.clone(), histograms: false });
    let mut flags = args.list.flags.clone();
    if flags.columns.is_none() {
        let device = if args.verbose { "id,device,class," } else { "" };
        let chosen = if args.verbose { ",merged,chosen" } else { "" };
        let pend = if args.queue { ",pend" } else { "" };
        flags.columns =
            Some(format!("pool,{device}alloc,free,read_s,write_s,rbytes_s,wbytes_s,rwait,wwait{chosen}{pend}"));
    }
    let mut before = None;
    let mut left = interval.count;
    if let Some(pause) = interval.every
        && !context.json
    {
        before = Some(ask()?);
        std::thread::sleep(pause);
    }
    loop {
        let now = ask()?;
        if context.json {
            print(&render::json::<IoStat>(&now, interval.every.is_some()));
        } else {
            let rows = rows(before.as_ref(), &now, args.verbose);
            let text = table(&rows, COLUMNS, &flags)?;
            if !flags.no_header && before.is_none() {
                print("means since open; K, M, G are 1024; read_s, rbytes_s: a second; rwait: mean\n");
            }
            print(&text);
        }
        before = Some(now);
        left = left.map(|n| n - 1);
        match interval.every {
            Some(pause) if left != Some(0) => std::thread::sleep(pause),
            _ => return Ok(0),
        }
    }
}

fn rows(before: Option<&IoSnapshot>, now: &IoSnapshot, verbose: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for pool in &now.pools {
        // A pool that was opened in between counts from its opening.
        let old = before
            .and_then(|b| Some((b, b.pools.iter().find(|p| p.name == pool.name)?)))
            .filter(|(_, old)| old.opened_monotonic_ns == pool.opened_monotonic_ns);
        let since = old.map_or(pool.opened_monotonic_ns, |(b, _)| b.monotonic_ns);
        let ns = now.monotonic_ns.saturating_sub(since);
        let nothing = PoolIo::default();
        let old = old.map_or(&nothing, |(_, old)| old);
        rows.push(Row {
            pool: pool.name.clone(),
            allocated: pool.allocated_bytes,
            free: pool.free_bytes,
            ns,
            io: minus(&pool.client, &old.client),
            errors: pool.errors.saturating_sub(old.errors),
            ..Row::default()
        });
        for device in pool.devices.iter().filter(|_| verbose) {
            let nothing = DeviceIo::default();
            let old = old.devices.iter().find(|d| d.id == device.id).unwrap_or(&nothing);
            let errors = |d: &DeviceIo| d.read_errors.saturating_add(d.write_errors);
            rows.push(Row {
                pool: pool.name.clone(),
                device: Some((device.id, device.name.clone())),
                class: device.class.clone(),
                allocated: device.allocated_bytes,
                free: device.free_bytes,
                ns,
                io: minus(&device.io, &old.io),
                ios: device.ios.saturating_sub(old.ios),
                merged: device.merged.saturating_sub(old.merged),
                chosen: device.chosen.saturating_sub(old.chosen),
                errors: errors(device).saturating_sub(errors(old)),
                in_flight: Some(device.in_flight),
            });
        }
    }
    rows
}

fn minus(now: &IoCounters, old: &IoCounters) -> IoCounters {
    let time = |now: Option<u64>, old: Option<u64>| now.map(|now| now.saturating_sub(old.unwrap_or(0)));
    IoCounters {
        reads: now.reads.saturating_sub(old.reads),
        writes: now.writes.saturating_sub(old.writes),
        flushes: now.flushes.saturating_sub(old.flushes),
        discards: now.discards.saturating_sub(old.discards),
        read_bytes: now.read_bytes.saturating_sub(old.read_bytes),
        write_bytes: now.write_bytes.saturating_sub(old.write_bytes),
        read_ns: time(now.read_ns, old.read_ns),
        write_ns: time(now.write_ns, old.write_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at: u64, opened: u64, reads: u64) -> IoSnapshot {
        let client =
            IoCounters { reads, read_bytes: reads * 4096, read_ns: Some(reads * 100), ..IoCounters::default() };
        let pool = PoolIo { name: "tank".into(), opened_monotonic_ns: opened, client, ..PoolIo::default() };
        IoSnapshot { monotonic_ns: at, pools: vec![pool], ..IoSnapshot::default() }
    }

    #[test]
    fn rates_are_of_the_interval_or_since_open() {
        const S: u64 = 1_000_000_000;
        for (name, before, now, reads, rate) in [
            ("since open", None, snapshot(11 * S, S, 1000), 1000, 100),
            ("interval", Some(snapshot(9 * S, S, 400)), snapshot(11 * S, S, 1000), 600, 300),
            ("opened again between", Some(snapshot(9 * S, S, 4000)), snapshot(11 * S, 10 * S, 50), 50, 50),
            ("no time passed", Some(snapshot(9 * S, S, 4)), snapshot(9 * S, S, 4), 0, 0),
        ] {
            let rows = rows(before.as_ref(), &now, true);
            assert_eq!((rows[0].io.reads, rows[0].rate(rows[0].io.reads)), (reads, rate), "{name}");
        }
    }
}
