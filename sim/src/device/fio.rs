//! Loads and what they got, from the output of `fio --output-format=json`.
//!
//! Read: the jobs' options `rw`, `bs`, `iodepth`, `numjobs`, `offset`, `size`, `ioengine`, be they global or their own, and
//! of the results IOPS, bandwidth, mean and quantiles. A synchronous engine has one command under way, whatever its
//! `iodepth` says. A job without `direct=1` is taken, and said to be of memory. Left out: mixed jobs, trim, several block
//! sizes in a job, jobs that are slowed down, and numbers that no device has.

use braid_core::request::DeviceOp;
use serde_json::Value;

use super::fit::{Measured, WRITE};
use super::load::{Got, Load};

/// Options that keep a job from asking all it could.
const SLOWS: [&str; 3] = ["rate", "rate_iops", "thinktime"];
/// More requests a second than any device does.
const PER_SECOND_MAX: f64 = 1e8;
/// Longer than any request takes: an hour.
const MEAN_NS_MAX: f64 = 3.6e12;
/// Longest request.
const LEN_MAX: u64 = 256 << 20;
/// End of the largest device.
const END_MAX: u64 = 1 << 54;

/// The jobs of a run of `fio --output-format=json`, and sentences about those that say nothing here.
pub fn from_fio(text: &str) -> Result<(Vec<Measured>, Vec<String>), String> {
    // fio may say something before its document.
    let start = text.find('{').ok_or("this is no output of fio --output-format=json")?;
    let document: Value = serde_json::from_str(&text[start..]).map_err(|e| format!("not the output of fio: {e}"))?;
    let Some(jobs) = document["jobs"].as_array() else {
        return Err("this is no output of fio --output-format=json: it has no jobs".into());
    };
    let (mut measured, mut notes): (Vec<Measured>, _) = (Vec::new(), Vec::new());
    for job in jobs {
        match from_job(job, &document["global options"]) {
            // Threads of one job that are not reported together did it together.
            Ok(m) => match measured.iter_mut().find(|other| other.name == m.name) {
                Some(other) => add(other, &m),
                None => {
                    notes.extend(cached(job, &document["global options"], &m.name));
                    measured.push(m);
                }
            },
            Err(why) => notes.push(why),
        }
    }
    Ok((measured, notes))
}

fn option<'a>(job: &'a Value, global: &'a Value, key: &str) -> Option<&'a str> {
    job["job options"][key].as_str().or(global[key].as_str())
}

/// A run without `direct=1`, as fio does unless told otherwise.
fn cached(job: &Value, global: &Value, name: &str) -> Option<String> {
    let on = |key: &str| option(job, global, key).map(|value| value != "0" && value != "false");
    let is_direct = on("direct").unwrap_or(false) && !on("buffered").unwrap_or(false);
    (!is_direct).then(|| {
        format!("{name} went through the page cache: its numbers are those of memory in part; measure it with direct=1")
    })
}

/// What cannot be, if anything.
fn absurd(load: &Load, per_second: f64, mean: f64) -> Option<String> {
    // By Little's law; twice as many may be the clock of whoever measured.
    let under_way = per_second * mean / 1e9;
    if per_second > PER_SECOND_MAX {
        Some(format!("{per_second:e} requests a second"))
    } else if mean > MEAN_NS_MAX {
        Some(format!("a mean of {mean:e} ns"))
    } else if under_way > 2.0 * f64::from(load.depth) {
        Some(format!("{under_way:.0} requests under way on average, at depth {}", load.depth))
    } else if load.len > LEN_MAX {
        Some(format!("requests of {} bytes", load.len))
    } else if load.to > END_MAX {
        Some(format!("requests from byte {} on, to byte {}", load.from, load.to))
    } else {
        None
    }
}

fn add(to: &mut Measured, m: &Measured) {
    to.load.depth = to.load.depth.saturating_add(m.load.depth);
    to.got.per_second = to.got.per_second.saturating_add(m.got.per_second);
    to.got.kib_per_second = to.got.kib_per_second.saturating_add(m.got.kib_per_second);
    to.got.mean_ns = to.got.mean_ns.midpoint(m.got.mean_ns);
}

fn from_job(job: &Value, global: &Value) -> Result<Measured, String> {
    let name = job["jobname"].as_str().unwrap_or("a job");
    let option = |key: &str| option(job, global, key);
    let number = |key: &str| option(key).and_then(bytes);
    let rw = option("rw").or(option("readwrite")).unwrap_or("read");
    let (op, section) = match rw.split(':').next() {
        Some("read" | "randread") => (DeviceOp::Read, &job["read"]),
        Some("write" | "randwrite") => (WRITE, &job["write"]),
        _ => return Err(format!("job {name} is left out: of rw={rw} the parts cannot be told apart")),
    };
    let waits =
        ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"].contains(&option("ioengine").unwrap_or("psync"));
    let iodepth = if waits { 1 } else { number("iodepth").unwrap_or(1) };
    let together = if option("group_reporting").is_some() { number("numjobs").unwrap_or(1) } else { 1 };
    let len = number("bs").or(number("blocksize")).unwrap_or(4096).max(512);
    let from = number("offset").unwrap_or(0);
    let size = number("size").or(number("filesize")).unwrap_or(1 << 30).max(len);
    let depth = u32::try_from(iodepth.saturating_mul(together)).unwrap_or(u32::MAX).clamp(1, 4096);
    let load = Load { op, depth, len, from, to: from.saturating_add(size), random: rw.starts_with("rand") };
    let ns = |key: &str| section["clat_ns"]["percentile"][key].as_u64();
    let mean = section["lat_ns"]["mean"].as_f64().unwrap_or(0.0);
    let per_second = section["iops"].as_f64().unwrap_or(0.0);
    let left_out = |why: String| Err(format!("job {name} is left out: {why}"));
    if mean <= 0.0 || per_second < 1.0 {
        return left_out("it has no latencies, or did nothing".into());
    }
    let slows = |value: &str| value.contains(|c: char| ('1'..='9').contains(&c));
    if let Some((key, value)) = SLOWS.iter().find_map(|key| option(key).filter(|v| slows(v)).map(|value| (key, value)))
    {
        return left_out(format!("{key}={value} slows it down, and the device may do more"));
    }
    if let Some(why) = absurd(&load, per_second, mean) {
        return left_out(format!("{why}: no device does that"));
    }
    let p50_ns = ns("50.000000").unwrap_or(mean as u64);
    let got = Got {
        per_second: per_second as u64,
        kib_per_second: section["bw"].as_u64().unwrap_or(0),
        mean_ns: mean as u64,
        p50_ns,
        p99_ns: ns("99.000000").unwrap_or(p50_ns),
        p999_ns: ns("99.900000").unwrap_or(p50_ns),
        mean_depth_percent: u64::from(depth) * 100,
    };
    let shown = format!("fio job {name} (rw={rw} bs={}k depth {depth})", len / 1024);
    Ok(Measured { name: shown, load, got })
}

/// A number as fio writes it: powers of 1024.
fn bytes(text: &str) -> Option<u64> {
    let text = text.split([',', '-']).next()?.trim().to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let power = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1024u64.pow(power))
}
