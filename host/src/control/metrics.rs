//! Everything that counts, as Prometheus reads it: `GET /metrics` on the control socket.
//!
//! ```text
//!   curl --unix-socket /run/braid/braid.sock http://localhost/metrics
//! ```
//!
//! The text format 0.0.4. Times are in seconds, sizes in bytes, a counter ends in `_total`. Counters begin at the opening
//! of the pool; those of a queue's scheduler begin anew when another one is set.
//!
//! | stage | from | to |
//! |---|---|---|
//! | `queue` | the queue's door | the device |
//! | `device` | the device | completion |
//! | `total` | the queue's door | completion |
//!
//! `le` are the powers of two of the engine's histograms, those below 1 us and above 17 s put together; they are the
//! same in every answer, so rates over them are right.

use super::api::*;
use super::service::Service;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What the answer says it is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Buckets of latencies that are shown: up to 2^10 ns, …, up to 2^34 ns.
const LATENCY: std::ops::RangeInclusive<usize> = 10..=34;
/// Buckets of sizes that are shown: up to 512 B, …, up to 32 MiB.
const SIZE: std::ops::RangeInclusive<usize> = 9..=25;

/// The whole page. What cannot be had now is left out of it, and `braid_scrape_success` says so.
pub fn page(service: &dyn Service) -> String {
    let mut parts = Parts::default();
    let snapshot = parts.take("iostat", service.iostat(IoStat { pool: None, histograms: true }));
    let pools = parts.take("pools", service.list(ListPools::default()));
    let volumes = parts.take("volumes", service.volume_list(ListVolumes::default()));
    let devices = parts.take("devices", service.device_list(ListDevices::default()));
    text(&snapshot, &pools, &volumes, &devices) + &parts.0.text
}

/// Which questions were answered.
struct Parts(Page);

impl Default for Parts {
    fn default() -> Parts {
        let mut page = Page::default();
        page.family("braid_scrape_success", "gauge", "1 if this part of the page could be had, 0 if it is left out.");
        Parts(page)
    }
}

impl Parts {
    fn take<T: Default>(&mut self, part: &str, answer: Result<T, ApiError>) -> T {
        self.0.sample("braid_scrape_success", &[("part", part)], u8::from(answer.is_ok()));
        answer.unwrap_or_default()
    }
}

/// The page of these answers.
pub fn text(snapshot: &IoSnapshot, pools: &[PoolSummary], volumes: &[VolumeInfo], devices: &[DeviceStatus]) -> String {
    let mut page = Page::default();
    page.family("braid_build_info", "gauge", "Version of the daemon; always 1.");
    page.sample("braid_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    of_pools(&mut page, snapshot, pools);
    of_volumes(&mut page, snapshot, volumes);
    of_devices(&mut page, snapshot, devices);
    of_queues(&mut page, snapshot);
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

type Labels<'a> = [(&'a str, &'a str)];

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &Labels, value: impl std::fmt::Display) {
        self.text.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"{}\"", if i == 0 { '{' } else { ',' }, escaped(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// Cumulative buckets, sum and count; `unit` is how many of the histogram's make one of the page's.
    fn histogram(
        &mut self,
        name: &str,
        labels: &Labels,
        histogram: &HistogramIo,
        shown: std::ops::RangeInclusive<usize>,
        unit: f64,
    ) {
        let upto = |bucket: usize| histogram.counts.iter().take(bucket + 1).sum::<u64>();
        let bucket_name = format!("{name}_bucket");
        for bucket in shown {
            let le = ((1u64 << bucket) as f64 / unit).to_string();
            let labels: Vec<_> = labels.iter().copied().chain([("le", le.as_str())]).collect();
            self.sample(&bucket_name, &labels, upto(bucket));
        }
        let labels_of_all: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        self.sample(&bucket_name, &labels_of_all, histogram.count());
        self.sample(&format!("{name}_sum"), labels, histogram.sum as f64 / unit);
        self.sample(&format!("{name}_count"), labels, histogram.count());
    }
}

/// A label's value as it stands between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Counters of operations and bytes that pools, volumes and devices have alike.
fn operations(page: &mut Page, prefix: &str, what: &str, rows: &[(Vec<(&str, &str)>, &IoCounters)]) {
    let mut family = |suffix: &str, help: String, values: &dyn Fn(&IoCounters) -> Vec<(&'static str, f64)>| {
        let name = format!("{prefix}_{suffix}_total");
        page.family(&name, "counter", &help);
        for (labels, io) in rows {
            for (op, value) in values(io) {
                let labels: Vec<_> = labels.iter().copied().chain([("op", op)]).collect();
                page.sample(&name, &labels, value);
            }
        }
    };
    family("operations", format!("{what}."), &|io| {
        vec![
            ("read", io.reads as f64),
            ("write", io.writes as f64),
            ("flush", io.flushes as f64),
            ("discard", io.discards as f64),
        ]
    });
    family("bytes", format!("{what}: bytes."), &|io| {
        vec![("read", io.read_bytes as f64), ("write", io.write_bytes as f64)]
    });
    family("seconds", format!("{what}: sum of the times until they were answered."), &|io| {
        let times = [("read", io.read_ns), ("write", io.write_ns)];
        times.into_iter().filter_map(|(op, ns)| Some((op, seconds(ns?)))).collect()
    });
}

fn of_pools(page: &mut Page, snapshot: &IoSnapshot, pools: &[PoolSummary]) {
    page.family("braid_pool_state", "gauge", "1 for the state that the pool is in.");
    for pool in pools {
        for state in [PoolState::Online, PoolState::Degraded, PoolState::Suspended, PoolState::Unavailable] {
            let labels = [("pool", pool.name.as_str()), ("state", state.name())];
            page.sample("braid_pool_state", &labels, u8::from(state == pool.state));
        }
    }
    type Of = fn(&PoolSummary) -> u64;
    let sizes: [(&str, &str, Of); 4] = [
        ("size", "Sum of member sizes.", |p| p.size_bytes),
        ("allocated", "Raw space in chunks.", |p| p.allocated_bytes),
        ("free", "Raw space in no chunk.", |p| p.free_bytes),
        ("writable", "Data that can still be written, in the data profile.", |p| p.writable_bytes),
    ];
    for (name, help, value) in sizes {
        let name = format!("braid_pool_{name}_bytes");
        page.family(&name, "gauge", help);
        for pool in pools {
            page.sample(&name, &[("pool", &pool.name)], value(pool));
        }
    }
    let rows: Vec<_> = snapshot.pools.iter().map(|p| (vec![("pool", p.name.as_str())], &p.client)).collect();
    operations(page, "braid_pool_client", "Requests of clients", &rows);

    type Counter = fn(&PoolIo) -> u64;
    let counters: [(&str, &str, Counter); 5] = [
        ("errors", "Requests answered with an error.", |p| p.errors),
        ("busy", "Requests refused because too many were in flight.", |p| p.waits.busy),
        ("no_space", "Requests that failed because there was no room.", |p| p.waits.no_space),
        ("translations", "Contiguous pieces that requests were cut into.", |p| p.translations),
        ("retries", "Reads sent to another copy after an error.", |p| p.retries),
    ];
    for (name, help, value) in counters {
        let name = format!("braid_pool_{name}_total");
        page.family(&name, "counter", help);
        for pool in &snapshot.pools {
            page.sample(&name, &[("pool", &pool.name)], value(pool));
        }
    }
    type Wait = fn(&PoolWaits) -> WaitIo;
    let waits: [(&str, Wait); 4] =
        [("range_lock", |w| w.parked), ("space", |w| w.space), ("log", |w| w.log), ("flush", |w| w.flush)];
    page.family("braid_pool_waits_total", "counter", "Requests that waited outside of device queues, by what for.");
    for pool in &snapshot.pools {
        for (reason, wait) in waits {
            let labels = [("pool", pool.name.as_str()), ("reason", reason)];
            page.sample("braid_pool_waits_total", &labels, wait(&pool.waits).count);
        }
    }
    page.family("braid_pool_wait_seconds_total", "counter", "Sum of those waits.");
    for pool in &snapshot.pools {
        for (reason, wait) in waits {
            let labels = [("pool", pool.name.as_str()), ("reason", reason)];
            page.sample("braid_pool_wait_seconds_total", &labels, seconds(wait(&pool.waits).wait_ns));
        }
    }
    page.family("braid_read_choices_total", "counter", "Reads by the reason that chose the copy.");
    for pool in &snapshot.pools {
        for (reason, n) in &pool.read_reasons {
            page.sample("braid_read_choices_total", &[("pool", &pool.name), ("reason", reason)], n);
        }
    }
}

fn of_volumes(page: &mut Page, snapshot: &IoSnapshot, volumes: &[VolumeInfo]) {
    page.family("braid_volume_size_bytes", "gauge", "Size of a volume.");
    for v in volumes {
        page.sample("braid_volume_size_bytes", &[("pool", &v.pool), ("volume", &v.name)], v.size_bytes);
    }
    page.family("braid_volume_mapped_bytes", "gauge", "Bytes of a volume that have a place, by type of chunk.");
    for v in volumes {
        for (kind, bytes) in [("data", v.data_bytes), ("metadata", v.metadata_bytes)] {
            let labels = [("pool", v.pool.as_str()), ("volume", v.name.as_str()), ("type", kind)];
            page.sample("braid_volume_mapped_bytes", &labels, bytes);
        }
    }
    let each = snapshot.pools.iter().flat_map(|p| p.volumes.iter().map(move |v| (p, v)));
    let rows: Vec<_> =
        each.map(|(p, v)| (vec![("pool", p.name.as_str()), ("volume", v.name.as_str())], &v.io)).collect();
    operations(page, "braid_volume", "Answered requests of a volume", &rows);
}

/// Members with their labels: the pool's name and the id.
fn each_device(snapshot: &IoSnapshot) -> Vec<(&str, String, &DeviceIo)> {
    let mut all = Vec::new();
    for pool in &snapshot.pools {
        all.extend(pool.devices.iter().map(|d| (pool.name.as_str(), d.id.to_string(), d)));
    }
    all
}

fn of_devices(page: &mut Page, snapshot: &IoSnapshot, devices: &[DeviceStatus]) {
    page.family("braid_device_info", "gauge", "Name, class and place of a member; always 1.");
    let ids: Vec<String> = devices.iter().map(|d| d.id.to_string()).collect();
    for (d, id) in devices.iter().zip(&ids) {
        let labels =
            [("pool", d.pool.as_str()), ("device", id), ("name", &d.name), ("class", &d.class), ("path", &d.path)];
        page.sample("braid_device_info", &labels, 1);
    }
    page.family("braid_device_usable", "gauge", "1 while reads and writes go to it.");
    for (d, id) in devices.iter().zip(&ids) {
        page.sample("braid_device_usable", &[("pool", &d.pool), ("device", id)], u8::from(d.usable));
    }
    let all = each_device(snapshot);
    let rows: Vec<_> =
        all.iter().map(|(pool, id, d)| (vec![("pool", *pool), ("device", id.as_str())], &d.io)).collect();
    operations(page, "braid_device", "Commands to a device, after merging", &rows);
    type Counter = fn(&DeviceIo) -> u64;
    let counters: [(&str, &str, Counter); 6] = [
        ("ios", "I/Os before merging, reads and writes.", |d| d.ios),
        ("merged_ios", "I/Os that joined another one's command.", |d| d.merged),
        ("read_errors", "Failed reads.", |d| d.read_errors),
        ("write_errors", "Failed writes, flushes and discards.", |d| d.write_errors),
        ("checksum_errors", "Blocks that were not what their checksums say.", |d| d.checksum_errors),
        ("chosen_reads", "Reads that the read policy chose the device for.", |d| d.chosen),
    ];
    for (name, help, value) in counters {
        let name = format!("braid_device_{name}_total");
        page.family(&name, "counter", help);
        for (pool, id, d) in &all {
            page.sample(&name, &[("pool", pool), ("device", id)], value(d));
        }
    }
}

/// What a class does to a device.
fn op_of(class: &str) -> &'static str {
    match class {
        "sync_read" | "async_read" | "scrub" => "read",
        "sync_write" | "async_write" | "initializing" => "write",
        "trim" => "discard",
        _ => "mixed",
    }
}

fn of_queues(page: &mut Page, snapshot: &IoSnapshot) {
    let all = each_device(snapshot);
    let classes: Vec<(&str, &str, &str, &ClassIo)> = all
        .iter()
        .flat_map(|(pool, id, d)| d.queue.classes.iter().map(move |(class, c)| (*pool, id.as_str(), class.as_str(), c)))
        .collect();
    type Of = fn(&ClassIo) -> u64;
    let numbers: [(&str, &str, &str, Of); 6] = [
        ("braid_device_pending", "gauge", "I/Os in the queue now.", |c| c.queued.into()),
        ("braid_device_active", "gauge", "I/Os on the device now.", |c| c.active.into()),
        ("braid_device_active_commands", "gauge", "Commands on the device now.", |c| c.commands.into()),
        ("braid_device_class_ios_total", "counter", "Completed I/Os as they were before merging.", |c| c.ios),
        ("braid_device_class_bytes_total", "counter", "Bytes of those.", |c| c.bytes),
        ("braid_device_class_waited_total", "counter", "I/Os that stayed longer than their batch.", |c| c.waited),
    ];
    for (name, kind, help, value) in numbers {
        page.family(name, kind, help);
        for (pool, id, class, c) in &classes {
            page.sample(name, &[("pool", pool), ("device", id), ("class", class)], value(c));
        }
    }
    let name = "braid_device_io_seconds";
    page.family(name, "histogram", "Times of I/Os by stage: in the queue, on the device, and both.");
    for (pool, id, class, c) in &classes {
        let Some(h) = &c.histograms else { continue };
        for (stage, histogram) in [("queue", &h.queue_ns), ("device", &h.device_ns), ("total", &h.total_ns)] {
            let labels = [("pool", *pool), ("device", *id), ("op", op_of(class)), ("class", *class), ("stage", stage)];
            page.histogram(name, &labels, histogram, LATENCY, 1e9);
        }
    }
    let name = "braid_device_request_bytes";
    page.family(name, "histogram", "Sizes of I/Os before and of commands after merging.");
    for (pool, id, class, c) in &classes {
        let Some(h) = &c.histograms else { continue };
        for (merge, histogram) in [("before", &h.size_before), ("after", &h.size_after)] {
            let labels = [("pool", *pool), ("device", *id), ("class", *class), ("merge", merge)];
            page.histogram(name, &labels, histogram, SIZE, 1.0);
        }
    }
    page.family("braid_queue_events_total", "counter", "What a queue's scheduler did, since it took over.");
    for (pool, id, d) in &all {
        for (reason, n) in &d.queue.reasons {
            page.sample("braid_queue_events_total", &[("pool", pool), ("device", id), ("reason", reason)], n);
        }
    }
    let help = "How long a queue's scheduler left somebody of a class behind, by reason, since it took over.";
    page.family("braid_queue_left_behind_seconds_total", "counter", help);
    let none = BTreeMap::new();
    for (pool, id, d) in &all {
        for class in d.queue.classes.keys() {
            for (reason, ns) in d.queue.left_behind.get(class).unwrap_or(&none) {
                let reason = reason.trim_end_matches("_ns");
                let labels = [("pool", *pool), ("device", id), ("class", class), ("reason", reason)];
                page.sample("braid_queue_left_behind_seconds_total", &labels, seconds(*ns));
            }
        }
    }
}
