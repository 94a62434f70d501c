//! `why`: where requests wait, in words, with the knob to turn.
//!
//! All numbers are differences of counters that `iostat -j` shows; a finding without a number behind it does not exist.
//! Device queues do not know volumes: for a volume they speak of its whole pool, and say so.

mod because;

use super::iostat::delta;
use super::{Context, Outcome, print};
use crate::args::WhyArgs;
use crate::render;
use crate::render::table::duration;
use because::because;
use braid_host::control::api::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The answer, as `-j` prints it.
#[derive(Serialize)]
struct Why {
    target: String,
    /// How long was looked at.
    interval_ns: u64,
    /// What clients asked of the target in that time.
    client: IoCounters,
    /// Something waited before, in or after device queues.
    waited: bool,
    /// Longest wait in sum first; then what is no wait.
    findings: Vec<Finding>,
}

/// One sentence and its numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Finding {
    /// `admission`, `queue`, `budget`, `log`, `policy` or `device`.
    stage: &'static str,
    /// Why: a reason's name.
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    /// How many, of how many that could have.
    count: u64,
    of: u64,
    /// Sum of their waits.
    wait_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    knob: Option<Knob>,
    text: String,
}

/// A setting that the finding depends on.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Knob {
    name: String,
    value: String,
    source: &'static str,
}

impl Finding {
    fn is_wait(&self) -> bool {
        !matches!(self.stage, "policy" | "device")
    }
}

type Settings = BTreeMap<String, Property>;

pub(crate) fn why(context: &Context, args: WhyArgs) -> Outcome {
    let (pool, volume) = match args.target.split_once('/') {
        Some((pool, volume)) => (pool.to_string(), Some(volume)),
        None => (args.target.clone(), None),
    };
    let ask = || context.client.call(IoStat { pool: Some(pool.clone()), histograms: false });
    let before = match args.interval {
        None => None,
        Some(seconds) if (0.01..=86_400.0).contains(&seconds) => {
            let first = ask()?;
            std::thread::sleep(Duration::from_secs_f64(seconds));
            Some(first)
        }
        Some(seconds) => {
            let message = format!("'{seconds}' is not an interval in seconds (0.01 to 86400)");
            return Err(ApiError::usage("usage", message));
        }
    };
    let now = ask()?;
    let found = now.pools.first().ok_or_else(|| ApiError::no_pool(&pool))?;
    let mut settings = BTreeMap::new();
    for device in &found.devices {
        let target = Target::Device { pool: pool.clone(), device: device.id };
        let all = context.client.call(GetProperties { target, names: vec!["queue".into()] })?;
        settings.insert(device.id, all.into_iter().map(|p| (p.name.clone(), p)).collect());
    }
    let why = explain(before.as_ref(), &now, found, volume, &settings)?;
    print(&if context.json { render::envelope("why", &why, false) } else { text(&why) });
    Ok(0)
}

fn explain(
    before: Option<&IoSnapshot>,
    now: &IoSnapshot,
    pool: &PoolIo,
    volume: Option<&str>,
    settings: &BTreeMap<u32, Settings>,
) -> Result<Why, ApiError> {
    let (nothing, old) = (PoolIo::default(), delta::earlier(before, pool));
    let since = old.map_or(pool.opened_monotonic_ns, |(at, _)| at);
    let old = old.map_or(&nothing, |(_, old)| old);
    let client = delta::operations(&pool.client, &old.client);
    let asked = match volume {
        None => client,
        Some(name) => {
            let of = |p: &'_ PoolIo| p.volumes.iter().find(|v| v.name == name).map(|v| v.io);
            let now = of(pool).ok_or_else(|| ApiError::no_volume(&pool.name, name))?;
            delta::operations(&now, &of(old).unwrap_or_default())
        }
    };
    let mut findings = in_pool(pool, old, &client);
    let no_settings = Settings::new();
    for device in &pool.devices {
        let before = old.devices.iter().find(|d| d.id == device.id);
        findings.extend(in_queue(device, before, settings.get(&device.id).unwrap_or(&no_settings)));
    }
    findings.extend(by_policy(pool, old));
    for device in &pool.devices {
        let before = old.devices.iter().find(|d| d.id == device.id);
        findings.extend(on_device(device, before));
    }
    // Stable: what is no wait keeps its order behind.
    findings.sort_by_key(|f| (!f.is_wait(), if f.is_wait() { u64::MAX - f.wait_ns } else { 0 }));
    Ok(Why {
        target: volume.map_or_else(|| pool.name.clone(), |v| format!("{}/{v}", pool.name)),
        interval_ns: now.monotonic_ns.saturating_sub(since),
        client: asked,
        waited: findings.iter().any(Finding::is_wait),
        findings,
    })
}

/// `12 %`, `0.4 %`.
fn percent(part: u64, whole: u64) -> String {
    match u128::from(part) * 1000 / u128::from(whole.max(1)) {
        0 => "less than 0.1 %".into(),
        tenths @ 1..100 => format!("{}.{} %", tenths / 10, tenths % 10),
        tenths => format!("{} %", (tenths + 5) / 10),
    }
}

fn mean(sum: u64, count: u64) -> String {
    duration(sum.checked_div(count).unwrap_or(0))
}

fn in_pool(pool: &PoolIo, old: &PoolIo, client: &IoCounters) -> Vec<Finding> {
    let (now, old) = (&pool.waits, &old.waits);
    let diff =
        |now: WaitIo, old: WaitIo| (now.count.saturating_sub(old.count), now.wait_ns.saturating_sub(old.wait_ns));
    let changes = client.writes.saturating_add(client.discards);
    let all = changes.saturating_add(client.reads).saturating_add(client.flushes);
    let mut findings = Vec::new();
    let mut add = |stage, reason: &str, (count, wait_ns): (u64, u64), of: u64, text: String| {
        if count > 0 {
            findings.push(Finding { stage, reason: reason.into(), count, of, wait_ns, text, ..Finding::default() });
        }
    };
    let busy = now.busy.saturating_sub(old.busy);
    let text =
        format!("{busy} times a request was refused because 65,536 were in flight; let clients queue less deep.");
    add("admission", "busy", (busy, 0), all.saturating_add(busy), text);
    let (n, ns) = diff(now.parked, old.parked);
    let text = format!(
        "{} of writes and discards ({n} of {changes}) waited until an overlapping one was done, {} on average: clients \
         change the same blocks at the same time; no setting helps.",
        percent(n, changes),
        mean(ns, n)
    );
    add("admission", "range_lock", (n, ns), changes, text);
    let (n, ns) = diff(now.space, old.space);
    let text = format!(
        "{n} of the first writes waited for room that was about to come free, {} on average; the pool is nearly full: see \
         braid usage {}.",
        mean(ns, n),
        pool.name
    );
    add("admission", "space", (n, ns), changes, text);
    let n = now.no_space.saturating_sub(old.no_space);
    let text = format!("{n} requests failed because there was no room: see braid usage {}.", pool.name);
    add("admission", "no_space", (n, 0), changes, text);
    let (n, ns) = diff(now.log, old.log);
    let text = format!(
        "{} of writes and discards ({n} of {changes}) changed the map and waited until the log had it, {} on average; \
         overwrites in place do not. The log is metadata: it is as quick as the members that hold metadata.",
        percent(n, changes),
        mean(ns, n)
    );
    add("log", "log", (n, ns), changes, text);
    let (n, ns) = diff(now.flush, old.flush);
    let text = format!(
        "{n} of the flushes and forced writes waited for the caches of the devices, {} on average; clients asked for it.",
        mean(ns, n)
    );
    add("log", "flush", (n, ns), n.max(client.flushes), text);
    findings
}

fn words(class: &str) -> String {
    match class {
        "trim" => "discards".into(),
        "scrub" | "removal" | "rebuild" | "initializing" => format!("{class} I/Os"),
        class => format!("{}s", class.replace('_', " ")),
    }
}

fn in_queue(device: &DeviceIo, old: Option<&DeviceIo>, settings: &Settings) -> Vec<Finding> {
    let old = old.map(|d| &d.queue);
    let mut findings = Vec::new();
    for (class, c) in delta::classes(&device.queue, old) {
        if c.waited == 0 {
            continue;
        }
        let before = old.and_then(|q| q.left_behind.get(&class));
        let times = device.queue.left_behind.get(&class).map(|now| delta::counts(now, before)).unwrap_or_default();
        let mut reasons: Vec<(&str, u64)> =
            times.iter().map(|(reason, ns)| (reason.trim_end_matches("_ns"), *ns)).filter(|(_, ns)| *ns > 0).collect();
        reasons.sort_by_key(|(_, ns)| u64::MAX - ns);
        let all: u64 = reasons.iter().map(|(_, ns)| ns).sum();
        let reason = reasons.first().map_or("unknown", |(reason, _)| reason);
        let (knob, because) = because(reason, &class, device, old, settings);
        let mut text = format!(
            "{} of the {} of device {} ({} of {}) waited in its queue, {} on average, {because}",
            percent(c.waited, c.left),
            words(&class),
            device.id,
            c.waited,
            c.left,
            mean(c.waited_ns, c.waited),
        );
        if let [(_, most), others @ ..] = reasons.as_slice()
            && all > *most
        {
            let others: Vec<String> = others
                .iter()
                .map(|(reason, ns)| format!("{} {}", reason.replace('_', " "), percent(*ns, all)))
                .collect();
            text.push_str(&format!(
                " Some of them waited during {} in all; that was the reason {} of this time; {}.",
                duration(all),
                percent(*most, all),
                others.join(", ")
            ));
        }
        if c.queued > 0 {
            text.push_str(&format!(" {} wait now.", c.queued));
        }
        findings.push(Finding {
            stage: if reason == "held_by_budget" { "budget" } else { "queue" },
            reason: reason.into(),
            device: Some(device.id),
            class: Some(class.clone()),
            count: c.waited,
            of: c.left,
            wait_ns: c.waited_ns,
            knob,
            text,
        });
    }
    findings
}

fn by_policy(pool: &PoolIo, old: &PoolIo) -> Option<Finding> {
    let reasons = delta::counts(&pool.read_reasons, Some(&old.read_reasons));
    let mut reasons: Vec<(&String, &u64)> = reasons.iter().filter(|(_, n)| **n > 0).collect();
    reasons.sort_by_key(|(_, n)| u64::MAX - **n);
    let all: u64 = reasons.iter().map(|(_, n)| **n).sum();
    let (first, count) = reasons.first()?;
    let shares: Vec<String> = reasons.iter().map(|(name, n)| format!("{name} {}", percent(**n, all))).collect();
    let text = format!("The read policy chose the copies of {all} reads: {}.", shares.join(", "));
    Some(Finding { stage: "policy", reason: (*first).clone(), count: **count, of: all, text, ..Finding::default() })
}

/// How long the device itself took.
fn on_device(device: &DeviceIo, old: Option<&DeviceIo>) -> Option<Finding> {
    let classes = delta::classes(&device.queue, old.map(|d| &d.queue));
    let used: Vec<(&String, &ClassIo)> = classes.iter().filter(|(_, c)| c.ios > 0).collect();
    let (ios, ns) = used.iter().fold((0, 0), |(ios, ns), (_, c)| (ios + c.ios, ns + c.device_ns));
    if ios == 0 {
        return None;
    }
    let each: Vec<String> =
        used.iter().map(|(class, c)| format!("{} {} on average", words(class), mean(c.device_ns, c.ios))).collect();
    let text = format!("Device {} ({}) itself took: {}.", device.id, device.name, each.join(", "));
    let (stage, reason, device) = ("device", "service".to_string(), Some(device.id));
    Some(Finding { stage, reason, device, count: ios, of: ios, wait_ns: ns, text, ..Finding::default() })
}

fn text(why: &Why) -> String {
    let c = &why.client;
    let time = |ns: Option<u64>, n: u64| match n {
        0 => String::new(),
        n => format!(", {} on average", mean(ns.unwrap_or(0), n)),
    };
    let mut out = format!(
        "{}, the last {}: {} reads{}; {} writes{}\n",
        why.target,
        duration(why.interval_ns),
        c.reads,
        time(c.read_ns, c.reads),
        c.writes,
        time(c.write_ns, c.writes),
    );
    if why.target.contains('/') {
        out.push_str("what follows is of the whole pool: device queues do not know volumes\n");
    }
    let (waits, rest): (Vec<&Finding>, Vec<&Finding>) = why.findings.iter().partition(|f| f.is_wait());
    if waits.is_empty() {
        out.push_str(
            "nothing waited: no request for a lock, for room or for the log, and no I/O in a device's queue\n",
        );
    }
    for finding in waits.into_iter().chain(rest) {
        out.push_str(&format!("* {}\n", render::printable(&finding.text)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(pool: PoolIo) -> IoSnapshot {
        IoSnapshot { monotonic_ns: 3_000_000_000, pools: vec![pool], ..IoSnapshot::default() }
    }

    fn device(class: ClassIo, reasons: &[(&str, u64)]) -> DeviceIo {
        let reasons: BTreeMap<String, u64> = reasons.iter().map(|(name, n)| (format!("{name}_ns"), *n)).collect();
        let queue = QueueIo {
            scheduler: "braid".into(),
            classes: [("sync_read".to_string(), class)].into(),
            left_behind: [("sync_read".to_string(), reasons)].into(),
            ..QueueIo::default()
        };
        DeviceIo { id: 2, name: "sdb".into(), queue, ..DeviceIo::default() }
    }

    fn settings() -> BTreeMap<u32, Settings> {
        let one = |name: &str, value: &str, source| Property {
            target: "tank:2".into(),
            name: name.into(),
            value: value.into(),
            source,
            choices: vec![],
            read_only: false,
        };
        let all = [
            one("sync_read_max_active", "32", Source::Default),
            one("max_active", "7", Source::Pool),
            one("budget", "16", Source::Device),
            one("budget_wait", "auto", Source::Default),
        ];
        [(2, all.into_iter().map(|p| (p.name.clone(), p)).collect())].into()
    }

    fn explained(pool: PoolIo, before: Option<&IoSnapshot>) -> Why {
        let now = snapshot(pool);
        explain(before, &now, &now.pools[0], None, &settings()).expect("an answer")
    }

    type Row = (&'static [(&'static str, u64)], &'static str, &'static str);

    #[test]
    fn a_wait_in_a_queue_has_its_numbers_its_reason_and_its_knob() {
        let class = ClassIo { left: 1000, waited: 120, waited_ns: 144_000_000, ..ClassIo::default() };
        let rows: [Row; 6] = [
            (&[("class_reached", 9)], "class_reached", "(sync_read_max_active 32, default)"),
            (&[("depth_reached", 9), ("class_reached", 1)], "depth_reached", "(max_active 7, pool)"),
            (&[("class_reached", 0)], "unknown", "does not"),
            (&[("held_by_budget", 3)], "held_by_budget", "allows (budget 16, device)"),
            (&[("nia_delay", 3)], "nia_delay", "a client was served a moment ago, or"),
            (
                &[("nia_delay", 1_000_000), ("no_credit", 3_000_000)],
                "no_credit",
                "4ms in all; that was the reason 75 %",
            ),
        ];
        for (reasons, reason, part) in rows {
            let pool =
                PoolIo { name: "tank".into(), devices: vec![device(class.clone(), reasons)], ..PoolIo::default() };
            let why = explained(pool, None);
            let finding = &why.findings[0];
            assert_eq!((finding.reason.as_str(), finding.count, finding.of), (reason, 120, 1000));
            let start = "12 % of the sync reads of device 2 (120 of 1000) waited in its queue, 1.2ms on average";
            assert!(finding.text.starts_with(start) && finding.text.contains(part), "{}", finding.text);
            assert!(why.waited && !text(&why).contains("nothing waited"));
        }
    }

    #[test]
    fn nothing_waited_is_said_and_an_interval_forgets_what_was_before() {
        let class = ClassIo { left: 1000, waited: 120, waited_ns: 144_000_000, ..ClassIo::default() };
        let waits = PoolWaits { busy: 3, log: WaitIo { count: 5, wait_ns: 50 }, ..PoolWaits::default() };
        let pool = PoolIo {
            name: "tank".into(),
            devices: vec![device(class, &[("class_reached", 9)])],
            waits,
            ..PoolIo::default()
        };
        let since_open = explained(pool.clone(), None);
        let reasons: Vec<&str> = since_open.findings.iter().map(|f| f.reason.as_str()).collect();
        assert_eq!(reasons, ["class_reached", "log", "busy"], "the longest in sum first");
        let before = snapshot(pool.clone());
        let why = explained(pool, Some(&before));
        assert!(!why.waited && why.findings.is_empty() && text(&why).contains("nothing waited"), "{}", text(&why));
    }
}
