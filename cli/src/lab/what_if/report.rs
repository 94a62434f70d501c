//! What came of a load on a pool and on its variants.
//!
//! ```text
//!   today      the pool that the others are compared with
//!   variants   everything together: bytes, requests, waits
//!   jobs       the same by job and direction, where there are several
//!   devices    how busy they were
//!   why        which rule chose the copy of a read; what queues did
//!   notes, advice
//! ```
//!
//! Rows are variants in the first table and columns in the others. Where their names would make lines too long to read,
//! they get letters.

use crate::render::printable;
use crate::render::table::duration;
use braid_core::properties::Properties;
use braid_host::control::size;
use braid_sim::lab::outcome::JobOutcome;
use braid_sim::lab::setup::Setup;
use braid_sim::lab::what_if::{Advice, Trial};
use braid_sim::lab::{Direction, Outcome, Stop};
use serde_json::{Value, json};
use std::fmt::Write;

/// Names of variants that are longer together make tables that no terminal holds.
const NAMES_MAX: usize = 80;

pub(super) struct Report<'a> {
    pub(super) trials: &'a [Trial],
    pub(super) advice: Option<Advice>,
    /// About the load.
    pub(super) notes: &'a [String],
    /// Of one run of each variant nothing is known about how far others would be.
    pub(super) has_spread: bool,
}

impl Report<'_> {
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for note in self.notes {
            let _ = writeln!(out, "note: {}", printable(note));
        }
        if let Some(today) = self.trials.first() {
            let _ = writeln!(out, "Today: {}\n", printable(&pool(&today.setup)));
        }
        out += &grid(&self.throughput());
        self.section(&mut out, "Jobs: requests a second, p50, p99", "job", &jobs);
        self.section(
            &mut out,
            "Devices: share of the time with a command there, commands there at once",
            "device",
            &devices,
        );
        self.section(&mut out, "Reads: how often each rule chose the copy", "rule", &rules);
        self.section(&mut out, "Queues: what they did, and what made a request wait", "reason", &queues);
        out.push('\n');
        for sentence in self.cuts().iter().chain(&self.verdict()) {
            let _ = writeln!(out, "{}", printable(sentence));
        }
        let traces: Vec<String> = self.trials.iter().map(|trial| format!("{:016x}", trial.outcome.hash)).collect();
        let _ = writeln!(out, "Traces: {}", traces.join(" "));
        out
    }

    /// Names of the variants as the tables show them.
    fn labels(&self) -> Vec<String> {
        let names: Vec<String> = self.trials.iter().map(|trial| printable(&trial.name)).collect();
        let together: usize = names.iter().map(|name| name.chars().count() + 2).sum();
        match together > NAMES_MAX {
            true => (0..names.len()).map(letter).collect(),
            false => names,
        }
    }

    fn throughput(&self) -> Vec<Vec<String>> {
        let head = ["variant", "bytes/s", "requests/s", "p50", "p99", "p99.9", "max", "spread"].map(String::from);
        let row = |(trial, label): (&Trial, String)| {
            let all = &trial.outcome.all;
            let latency = all.data().latency;
            let quantile = |permille| duration(latency.quantile_ns(permille));
            let name = printable(&trial.name);
            vec![
                if label == name { name } else { format!("{label}  {name}") },
                size::long(all.bytes_per_s()),
                (all.milli_iops() / 1000).to_string(),
                quantile(500),
                quantile(990),
                quantile(999),
                duration(latency.max_ns),
                if self.has_spread { percent(trial.spread_permille) } else { "-".into() },
            ]
        };
        std::iter::once(head.to_vec()).chain(self.trials.iter().zip(self.labels()).map(row)).collect()
    }

    /// A table with a column for each variant; nothing when it would say no more than the first one.
    fn section(&self, out: &mut String, title: &str, what: &str, cells: &dyn Fn(&Outcome) -> Vec<(String, String)>) {
        let columns: Vec<Vec<(String, String)>> = self.trials.iter().map(|trial| cells(&trial.outcome)).collect();
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in columns.iter().flatten() {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return;
        }
        let head = std::iter::once(what.to_string()).chain(self.labels()).collect();
        let cell = |column: &Vec<(String, String)>, name: &str| {
            column.iter().find(|(n, _)| n == name).map_or("-".to_string(), |(_, cell)| cell.clone())
        };
        let row = |name: &&str| {
            std::iter::once(printable(name)).chain(columns.iter().map(|column| cell(column, name))).collect()
        };
        let _ = writeln!(out, "\n{title}");
        *out += &grid(&std::iter::once(head).chain(names.iter().map(row)).collect::<Vec<_>>());
    }

    /// Runs that did not end by themselves, the same sentence once.
    fn cuts(&self) -> Vec<String> {
        let mut cuts: Vec<(String, Vec<&str>)> = Vec::new();
        for trial in self.trials {
            let Some(cut) = cut(trial) else { continue };
            match cuts.iter_mut().find(|(sentence, _)| *sentence == cut) {
                Some((_, names)) => names.push(&trial.name),
                None => cuts.push((cut, vec![&trial.name])),
            }
        }
        let sentence = |(cut, names): (String, Vec<&str>)| match names.len() == self.trials.len() {
            true => format!("note: {cut}"),
            false => format!("note: {}: {cut}", names.join(", ")),
        };
        cuts.into_iter().map(sentence).collect()
    }

    fn verdict(&self) -> Vec<String> {
        if self.trials.iter().all(|trial| trial.outcome.all.data().ios == 0) {
            return vec!["Nothing was answered, so there is nothing to compare: raise --seconds or --requests.".into()];
        }
        if self.trials.len() == 1 {
            return vec![
                "To compare it with something, name variants with --set, --replace, --add or --variant.".into(),
            ];
        }
        let mut sentences = self.advice.iter().flat_map(|advice| advice.sentences.clone()).collect::<Vec<_>>();
        let jobs = self.trials.first().map_or(0, |trial| trial.outcome.jobs.len());
        if jobs > 1 && self.advice.as_ref().is_some_and(|advice| advice.measure == "throughput") {
            let weighed =
                "note: of several jobs the geometric mean decides, each in its own time; the first table mixes them";
            sentences.insert(0, weighed.into());
        }
        sentences
    }

    pub(super) fn json(&self) -> String {
        let trials: Vec<Value> = self.trials.iter().map(|trial| trial_json(trial, self.has_spread)).collect();
        let advice = self.advice.as_ref().map(|advice| {
            json!({
                "best": self.trials[advice.best].name, "measure": advice.measure,
                "margin_permille": advice.margin_permille, "matters": advice.matters, "sentences": advice.sentences,
            })
        });
        let data = json!({"trials": trials, "advice": advice, "notes": self.notes});
        format!("{}\n", json!({"schema": "lab.what_if", "version": 1, "data": data}))
    }
}

/// `A`, `B`, …, `Z`, `27`.
fn letter(i: usize) -> String {
    match u8::try_from(i) {
        Ok(i) if i < 26 => char::from(b'A' + i).to_string(),
        _ => (i + 1).to_string(),
    }
}

/// A pool in a line: members that are alike together.
fn pool(setup: &Setup) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for member in &setup.members {
        let kind = format!("{} of {} (model {})", member.class, size::long(member.size), member.model.name());
        match kinds.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => kinds.push((kind, 1)),
        }
    }
    let members: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let mut settings: Vec<String> = setup.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if !setup.settings.iter().any(|(name, _)| name == "read_policy") {
        let default = Properties::default().get("read_policy").unwrap_or_default();
        settings.insert(0, format!("read_policy={default} (default)"));
    }
    let (data, metadata) = (setup.data.name(), setup.metadata.name());
    format!("data {data}, metadata {metadata} on {}; {}", members.join(", "), settings.join(" "))
}

/// By job and direction: requests a second, p50, p99. Nothing where one row would repeat what is above.
fn jobs(outcome: &Outcome) -> Vec<(String, String)> {
    let sides = |job: &JobOutcome| Direction::ALL.into_iter().filter(|side| job.side(*side).ios > 0).count();
    if outcome.jobs.iter().map(|job| sides(job).max(1)).sum::<usize>() < 2 {
        return Vec::new();
    }
    let row = |job: &JobOutcome, direction: Direction| {
        let side = job.side(direction);
        let milli = (u128::from(side.ios) * 1_000_000_000).checked_div(u128::from(job.runtime_ns)).unwrap_or(0);
        let [p50, p99] = [500, 990].map(|permille| duration(side.latency.quantile_ns(permille)));
        (format!("{} {}", job.name, direction.name()), format!("{milli}/s {p50} {p99}"))
    };
    let of = |job: &JobOutcome| -> Vec<(String, String)> {
        if sides(job) == 0 {
            return vec![(job.name.clone(), "nothing".into())];
        }
        Direction::ALL.into_iter().filter(|side| job.side(*side).ios > 0).map(|side| row(job, side)).collect()
    };
    outcome.jobs.iter().flat_map(of).collect()
}

fn devices(outcome: &Outcome) -> Vec<(String, String)> {
    let one = |device: &braid_sim::lab::outcome::DeviceOutcome| {
        let queue = device.mean_queue_milli;
        let busy = percent(device.busy_permille);
        (device.name.clone(), format!("{busy} {}.{}", queue / 1000, queue % 1000 / 100))
    };
    outcome.devices.iter().map(one).collect()
}

fn rules(outcome: &Outcome) -> Vec<(String, String)> {
    counted(outcome.read_reasons.iter().copied())
}

fn queues(outcome: &Outcome) -> Vec<(String, String)> {
    counted(outcome.devices.iter().flat_map(|device| &device.reasons).copied())
}

/// Sums by name, without those that never happened.
fn counted(counts: impl Iterator<Item = (&'static str, u64)>) -> Vec<(String, String)> {
    sums(counts).into_iter().map(|(name, count)| (name.into(), count.to_string())).collect()
}

fn sums(counts: impl Iterator<Item = (&'static str, u64)>) -> Vec<(&'static str, u64)> {
    let mut sums: Vec<(&'static str, u64)> = Vec::new();
    for (name, count) in counts.filter(|(_, count)| *count > 0) {
        match sums.iter_mut().find(|(n, _)| *n == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name, count)),
        }
    }
    sums
}

/// Why a run is not the whole of what was asked; none when it is.
fn cut(trial: &Trial) -> Option<String> {
    let (outcome, setup) = (&trial.outcome, &trial.setup);
    match outcome.stop {
        Stop::Done | Stop::Runtime => return None,
        Stop::Limit => {}
        Stop::Failed(_) | Stop::Stuck => return Some(outcome.stop.sentence()),
    }
    let limit = match outcome.ns >= setup.limit_ns {
        true => format!("after {} virtual seconds (--seconds)", setup.limit_ns / 1_000_000_000),
        false => format!("after {} answers (--requests)", setup.limit_ios),
    };
    let named = |stop: Stop| -> Vec<&str> {
        outcome.jobs.iter().filter(|job| job.stop == stop).map(|job| job.name.as_str()).collect()
    };
    let mut sentence = format!("cut {limit}");
    for (what, jobs) in [("in the middle of", named(Stop::Limit)), ("before", named(Stop::Stuck))] {
        if !jobs.is_empty() {
            let _ = write!(sentence, ", {what} {}", jobs.join(", "));
        }
    }
    Some(sentence)
}

fn percent(permille: u64) -> String {
    format!("{}.{}%", permille / 10, permille % 10)
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

fn trial_json(trial: &Trial, has_spread: bool) -> Value {
    let (all, latency) = (&trial.outcome.all, trial.outcome.all.data().latency);
    let devices = trial.outcome.devices.iter().map(|device| {
        json!({
            "name": device.name, "reads": device.reads, "writes": device.writes, "flushes": device.flushes,
            "read_bytes": device.read_bytes, "write_bytes": device.write_bytes, "merged": device.merged,
            "busy_permille": device.busy_permille, "mean_queue_milli": device.mean_queue_milli,
            "service_ns": device.service_ns,
        })
    });
    let queues = trial.outcome.devices.iter().flat_map(|device| &device.reasons);
    let reasons: serde_json::Map<String, Value> = sums(trial.outcome.read_reasons.iter().chain(queues).copied())
        .into_iter()
        .map(|(name, count)| (name.into(), count.into()))
        .collect();
    json!({
        "variant": trial.name, "bytes_per_s": all.bytes_per_s(), "milli_iops": all.milli_iops(),
        "p50_ns": latency.quantile_ns(500), "p99_ns": latency.quantile_ns(990), "p999_ns": latency.quantile_ns(999),
        "max_ns": latency.max_ns, "requests": all.data().ios, "errors": all.errors,
        "spread_permille": has_spread.then_some(trial.spread_permille), "stop": trial.outcome.stop.sentence(), "cut": cut(trial),
        "jobs": trial.outcome.jobs.iter().map(job_json).collect::<Vec<_>>(),
        "devices": devices.collect::<Vec<_>>(), "reasons": reasons, "hash": format!("{:016x}", trial.outcome.hash),
    })
}

fn job_json(job: &JobOutcome) -> Value {
    let sides: serde_json::Map<String, Value> = (Direction::ALL.into_iter())
        .filter(|direction| job.side(*direction).ios > 0)
        .map(|direction| {
            let side = job.side(direction);
            let [p50, p99, p999] = [500, 990, 999].map(|permille| side.latency.quantile_ns(permille));
            let value = json!({
                "requests": side.ios, "bytes": side.bytes, "p50_ns": p50, "p99_ns": p99, "p999_ns": p999,
                "max_ns": side.latency.max_ns,
            });
            (direction.name().into(), value)
        })
        .collect();
    json!({"name": job.name, "began_ns": job.began_ns, "runtime_ns": job.runtime_ns, "directions": sides})
}
