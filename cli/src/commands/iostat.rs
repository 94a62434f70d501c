//! `iostat`: differences of counters, by pool or by device.
//!
//! Without an interval one line shows the means since the pool was opened; with one, each line shows that interval only.
//! (In the tool that the flags come from the since-start line always comes first, and misleads newcomers.) With `-j` the
//! raw counters are printed, and differences are the reader's.

pub(crate) mod delta;
mod histogram;

use super::{Context, Outcome, print};
use crate::args::IostatArgs;
use crate::render;
use crate::render::table::{Cell, Column, extra, shown, table};
use crate::resolve;
use braid_host::control::api::*;
use std::collections::BTreeMap;

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
    /// Of the member, or of all members.
    classes: BTreeMap<String, ClassIo>,
}

impl Row {
    fn rate(&self, count: u64) -> u64 {
        let rate = u128::from(count) * 1_000_000_000 / u128::from(self.ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Mean of a time over these classes.
    fn wait(&self, classes: &[&str], sum_ns: fn(&ClassIo) -> u64, count: fn(&ClassIo) -> u64) -> Cell {
        let all = || classes.iter().filter_map(|class| self.classes.get(*class));
        let (sum, n) = (all().map(sum_ns).sum::<u64>(), all().map(count).sum());
        sum.checked_div(n).map_or(Cell::Empty, Cell::Ns)
    }

    fn in_queue(&self, classes: &[&str]) -> Cell {
        self.wait(classes, |c| c.queue_ns, |c| c.left)
    }

    fn now(&self, class: &str, number: fn(&ClassIo) -> u32) -> Cell {
        Cell::Number(self.classes.get(class).map_or(0, number).into())
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
    extra("total_wait.read", |r| r.wait(&["sync_read", "async_read"], |c| c.total_ns, |c| c.ios)),
    extra("total_wait.write", |r| r.wait(&["sync_write", "async_write"], |c| c.total_ns, |c| c.ios)),
    extra("disk_wait.read", |r| r.wait(&["sync_read", "async_read"], |c| c.device_ns, |c| c.ios)),
    extra("disk_wait.write", |r| r.wait(&["sync_write", "async_write"], |c| c.device_ns, |c| c.ios)),
    extra("syncq_wait.read", |r| r.in_queue(&["sync_read"])),
    extra("syncq_wait.write", |r| r.in_queue(&["sync_write"])),
    extra("asyncq_wait.read", |r| r.in_queue(&["async_read"])),
    extra("asyncq_wait.write", |r| r.in_queue(&["async_write"])),
    extra("scrub.wait", |r| r.in_queue(&["scrub"])),
    extra("trim.wait", |r| r.in_queue(&["trim"])),
    extra("rebuild.wait", |r| r.in_queue(&["rebuild"])),
    extra("syncq_read.pend", |r| r.now("sync_read", |c| c.queued)),
    extra("syncq_read.activ", |r| r.now("sync_read", |c| c.active)),
    extra("syncq_write.pend", |r| r.now("sync_write", |c| c.queued)),
    extra("syncq_write.activ", |r| r.now("sync_write", |c| c.active)),
    extra("asyncq_read.pend", |r| r.now("async_read", |c| c.queued)),
    extra("asyncq_read.activ", |r| r.now("async_read", |c| c.active)),
    extra("asyncq_write.pend", |r| r.now("async_write", |c| c.queued)),
    extra("asyncq_write.activ", |r| r.now("async_write", |c| c.active)),
    extra("scrubq_read.pend", |r| r.now("scrub", |c| c.queued)),
    extra("scrubq_read.activ", |r| r.now("scrub", |c| c.active)),
    extra("trimq_write.pend", |r| r.now("trim", |c| c.queued)),
    extra("trimq_write.activ", |r| r.now("trim", |c| c.active)),
    extra("rebuildq_write.pend", |r| r.now("rebuild", |c| c.queued)),
    extra("rebuildq_write.activ", |r| r.now("rebuild", |c| c.active)),
];

/// A column of `-q`.
fn is_line(name: &str) -> bool {
    name.ends_with(".pend") || name.ends_with(".activ")
}

/// A column of `-l`.
fn is_wait(name: &str) -> bool {
    name.contains('.') && !is_line(name)
}

/// Such columns, as a list for `-o`.
fn added(wanted: fn(&str) -> bool) -> String {
    COLUMNS.iter().filter(|c| wanted(c.name)).map(|c| format!(",{}", c.name)).collect()
}

/// `-w` and `-r` have tables of their own.
fn histograms(args: &IostatArgs) -> Option<histogram::What> {
    match (args.waits, args.sizes) {
        (true, _) => Some(histogram::What::Waits),
        (_, true) => Some(histogram::What::Sizes),
        _ => None,
    }
}

pub(crate) fn iostat(context: &Context, args: IostatArgs) -> Outcome {
    let (pool, interval) = resolve::pool_and_interval(&args.list.words)?;
    let what = histograms(&args);
    let ask = || context.client.call(IoStat { pool: pool.clone(), histograms: what.is_some() });
    let mut flags = args.list.flags.clone();
    if flags.columns.is_none() && what.is_none() {
        let device = if args.verbose { "id,device,class," } else { "" };
        let chosen = if args.verbose { ",merged,chosen" } else { "" };
        let waits = if args.latency { added(is_wait) } else { ",rwait,wwait".into() };
        let lines = if args.queue { added(is_line) } else { String::new() };
        flags.columns = Some(format!("pool,{device}alloc,free,read_s,write_s,rbytes_s,wbytes_s{waits}{chosen}{lines}"));
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
            let text = match what {
                Some(what) => histogram::tables(rows, what, &flags)?,
                None => table(&rows, COLUMNS, &flags)?,
            };
            if !flags.no_header && before.is_none() {
                print(match what {
                    None => "means since open; K, M, G are 1024; read_s, rbytes_s: a second; waits: mean\n",
                    Some(histogram::What::Waits) => "I/Os since open by how long each stage took\n",
                    Some(histogram::What::Sizes) => "since open; ind: I/Os before merging, agg: commands after it\n",
                });
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
        let old = delta::earlier(before, pool);
        let since = old.map_or(pool.opened_monotonic_ns, |(at, _)| at);
        let ns = now.monotonic_ns.saturating_sub(since);
        let nothing = PoolIo::default();
        let old = old.map_or(&nothing, |(_, old)| old);
        let old_queue = |id: u32| old.devices.iter().find(|d| d.id == id).map(|d| &d.queue);
        let mut classes = BTreeMap::new();
        for device in &pool.devices {
            delta::add(&mut classes, &delta::classes(&device.queue, old_queue(device.id)));
        }
        rows.push(Row {
            classes,
            pool: pool.name.clone(),
            allocated: pool.allocated_bytes,
            free: pool.free_bytes,
            ns,
            io: delta::operations(&pool.client, &old.client),
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
                io: delta::operations(&device.io, &old.io),
                ios: device.ios.saturating_sub(old.ios),
                merged: device.merged.saturating_sub(old.merged),
                chosen: device.chosen.saturating_sub(old.chosen),
                errors: errors(device).saturating_sub(errors(old)),
                in_flight: Some(device.in_flight),
                classes: delta::classes(&device.queue, Some(&old.queue)),
            });
        }
    }
    rows
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
