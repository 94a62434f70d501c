//! What checksums cost: pools with them beside the same pool without, 4 KiB random reads at depth 32, in this process and over
//! a socket. Both are on memory, where nothing else takes time; all checksums of the volume are in memory too.

use super::file::{Timed, pooled};
use super::nbd::{Server, compare};
use super::{Dice, RUNS, Row, failed, median, pool};
use braid_core::Profile;
use braid_core::sums::Checksum;
use braid_core::units::MIB;
use braid_host::control::api::ApiError;
use std::path::Path;
use std::time::Duration;

const VOLUME: u64 = 256 * MIB;
const DISK: &str = "ram:1G";
/// Of the rate without.
const TARGET: f64 = 0.95;

pub(super) fn run(quick: bool, dir: &Path) -> Result<Vec<Row>, ApiError> {
    let time = Duration::from_millis(if quick { 300 } else { 1000 });
    let mut rows = in_process(time)?;
    rows.extend(over_nbd(time, dir)?);
    Ok(rows)
}

fn in_process(time: Duration) -> Result<Vec<Row>, ApiError> {
    let mut pools = Vec::new();
    for kind in Checksum::ALL {
        let (pump, volume) = pool::start_with(&[DISK.to_string()], Profile::Single, VOLUME, kind)?;
        pool::fill(&pump, volume, VOLUME)?;
        pools.push((pump, volume));
    }
    let mut rates = vec![Vec::new(); pools.len()];
    for run in 0..RUNS {
        for step in 0..pools.len() {
            let who = if run % 2 == 0 { step } else { pools.len() - 1 - step };
            let (pump, volume) = &pools[who];
            rates[who].push(pooled(pump, Timed::reads(*volume, Dice(run as u64 + 1), time))?);
        }
    }
    let of = |kind: Checksum| median(&rates[kind as usize]);
    let row = |kind: Checksum| {
        Row::rate(format!("{} 4k randread d32, in process", kind.name()), "none", of(kind), of(Checksum::None), TARGET)
    };
    Ok([Checksum::Crc32c, Checksum::Xxh3].map(row).into())
}

fn over_nbd(time: Duration, dir: &Path) -> Result<Vec<Row>, ApiError> {
    let temp = tempfile::tempdir_in(dir).map_err(failed)?;
    let own = std::env::current_exe().map_err(failed)?;
    let server = |kind: Checksum| {
        let (word, socket) = (kind.name(), temp.path().join(kind.name()));
        let words = format!("internal bench-serve --checksum {word} {} {VOLUME} {DISK}", socket.display());
        let found = Server::start(word, &format!("{} {words}", own.display()), "v", socket)?;
        found.ok_or_else(|| failed("this program is not where it was"))
    };
    let mut rows = Vec::new();
    for kind in [Checksum::Crc32c, Checksum::Xxh3] {
        let mut both = [server(kind)?, server(Checksum::None)?];
        let case = format!("{} 4k randread d32, NBD", kind.name());
        rows.extend(compare(&mut both, &case, TARGET, 1, super::nbd::RANDOM_READS, time)?);
    }
    Ok(rows)
}
