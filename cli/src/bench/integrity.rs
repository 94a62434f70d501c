//! What checksums cost: pools with them beside the same pool without, 4 KiB random reads at depth 32, in this process and over
//! a socket. On memory, where nothing else takes time, and on a file, as users have it; all checksums of the volume are in
//! memory. In this process its CPU stands beside the rate: that of the pump and of whoever else is in it. There it is read by a client
//! that leaves the content alone, which no real one does, and by one that looks at all of it: whoever first touches what came from a disk
//! pays for that, the sum or the client. Over a socket that is who copies it there.
//!
//! A pool without checksums beside another one without says what the machine adds: no row can be told more exactly than that.

use super::file::{Timed, pooled};
use super::nbd::{Server, compare};
use super::{Dice, Row, failed, median, pool, process_cpu_ns};
use braid_core::Profile;
use braid_core::sums::Checksum;
use braid_core::units::{MIB, VolumeId};
use braid_host::control::api::ApiError;
use braid_host::pump::PumpHandle;
use std::path::Path;
use std::time::{Duration, Instant};

const VOLUME: u64 = 256 * MIB;
const DISK: &str = "ram:1G";
/// Of the rate without.
const TARGET: f64 = 0.95;
/// Many short turns: what else a machine does comes and goes in less than a second.
const TURNS: usize = 24;

/// Those to compare; the first one is what the others are compared with.
const CONTESTANTS: [(&str, Checksum); 4] =
    [("none", Checksum::None), ("none again", Checksum::None), ("crc32c", Checksum::Crc32c), ("xxh3", Checksum::Xxh3)];

pub(super) fn run(quick: bool, dir: &Path) -> Result<Vec<Row>, ApiError> {
    let turns = (if quick { 6 } else { TURNS }, Duration::from_millis(if quick { 150 } else { 300 }));
    let temp = tempfile::tempdir_in(dir).map_err(failed)?;
    let file = |name: &str| temp.path().join(name.replace(' ', "-")).display().to_string();
    let mut rows = in_process("memory", |_| DISK.to_string(), turns)?;
    rows.extend(in_process("file", file, turns)?);
    rows.extend(over_nbd("NBD, memory", |_| DISK.to_string(), turns, dir)?);
    rows.extend(over_nbd("NBD, file", |role| temp.path().join(role).display().to_string(), turns, dir)?);
    Ok(rows)
}

fn in_process(
    place: &str,
    disk: impl Fn(&str) -> String,
    (turns, time): (usize, Duration),
) -> Result<Vec<Row>, ApiError> {
    let mut pools: Vec<(PumpHandle, VolumeId)> = Vec::new();
    for (name, kind) in CONTESTANTS {
        let (pump, volume) = pool::start_with(&[disk(name)], Profile::Single, VOLUME, kind)?;
        pool::fill(&pump, volume, VOLUME)?;
        pools.push((pump, volume));
    }
    let mut rows = Vec::new();
    for (looks, client) in [(false, "in process"), (true, "in process, looked at")] {
        rows.extend(measured(&pools, looks, &format!("{client}, {place}"), (turns, time))?);
    }
    Ok(rows)
}

fn measured(
    pools: &[(PumpHandle, VolumeId)],
    looks: bool,
    place: &str,
    (turns, time): (usize, Duration),
) -> Result<Vec<Row>, ApiError> {
    let (mut rates, mut costs) = (vec![Vec::new(); pools.len()], vec![Vec::new(); pools.len()]);
    for run in 0..turns {
        for step in 0..pools.len() {
            let who = if run % 2 == 0 { step } else { pools.len() - 1 - step };
            let (pump, volume) = &pools[who];
            let (cpu, began) = (process_cpu_ns(std::process::id()), Instant::now());
            let reads = Timed::reads(*volume, Dice(run as u64 + 1), time);
            let rate = pooled(pump, if looks { reads.looking() } else { reads })?;
            let cpu = process_cpu_ns(std::process::id()) - cpu;
            costs[who].push(cpu as f64 / (rate * began.elapsed().as_secs_f64()).max(1.0));
            rates[who].push(rate);
        }
    }
    let row = |(who, (name, _)): (usize, (&str, Checksum))| {
        let case = format!("{name} 4k randread d32, {place}");
        let cpu_ns = Some((median(&costs[who]), median(&costs[0])));
        Row { cpu_ns, ..Row::turns(case, "none", &rates[who], &rates[0], TARGET) }
    };
    Ok(CONTESTANTS.into_iter().enumerate().skip(1).map(row).collect())
}

fn over_nbd(
    place: &str,
    disk: impl Fn(&str) -> String,
    turns: (usize, Duration),
    dir: &Path,
) -> Result<Vec<Row>, ApiError> {
    let temp = tempfile::tempdir_in(dir).map_err(failed)?;
    let own = std::env::current_exe().map_err(failed)?;
    let server = |role: &str, i: usize, kind: Checksum| {
        let (word, socket) = (kind.name(), temp.path().join(format!("{role}{i}")));
        let disk = disk(role);
        let words = format!("internal bench-serve --checksum {word} {} {VOLUME} {disk}", socket.display());
        let found = Server::start(word, &format!("{} {words}", own.display()), "v", socket)?;
        found.ok_or_else(|| failed("this program is not where it was"))
    };
    let mut rows = Vec::new();
    for (i, (name, kind)) in CONTESTANTS.into_iter().enumerate().skip(1) {
        let mut both = [server("ours", i, kind)?, server("theirs", i, Checksum::None)?];
        let case = format!("{name} 4k randread d32, {place}");
        rows.extend(compare(&mut both, &case, TARGET, 1, super::nbd::RANDOM_READS, turns)?);
    }
    Ok(rows)
}
