//! What is wrong with a pool, and what to do about it: the `status:` and `action:` lines.

use braid_core::DeviceState;
use braid_core::device::FAULTS_MAX;
use braid_core::regions::REGION;
use braid_core::report::{DeviceReport, PoolReport};
use braid_core::request::IoError;
use braid_core::units::{BLOCK, UNIT};

use super::events::{error_name, op_name};
use super::spares;
use super::views::{About, gone, path_of, survives};
use crate::control::api::Problem;
use crate::control::size;

fn problem(code: &str, message: String, action: Option<String>) -> Problem {
    Problem { code: code.into(), message, action }
}

/// What is wrong, the worst first; of `degraded` chunks it is known that they are.
pub(super) fn of(report: &PoolReport, about: &About, degraded: u64) -> Vec<Problem> {
    let gone = gone(report);
    let unreachable = report.chunks.iter().filter(|c| survives(c, &gone).is_none()).count();
    let devices = report.devices.iter();
    let mut problems: Vec<Problem> = suspended(report).into_iter().collect();
    if unreachable > 0 {
        let chunks = report.chunks.len();
        let message = format!("{unreachable} of {chunks} chunks have no copy left: reads of them fail with EIO");
        let action = match report.suspended {
            true => format!("connect the devices below again, then: braid clear {}", report.name),
            false => "connect the devices below again".into(),
        };
        problems.push(problem("chunk.lost", message, Some(action)));
    }
    problems.extend(devices.clone().filter_map(|d| state(report, d, about)));
    problems.extend(devices.filter_map(|d| errors(report, d, &path_of(d, about))));
    problems.extend(lost(report));
    if degraded > 0 && unreachable == 0 {
        let message = format!("{degraded} of {} chunks have fewer copies than their profile says", report.chunks.len());
        problems.push(problem("chunk.degraded", message, None));
    }
    if report.writable_data == 0 && report.devices.iter().any(|d| d.state.is_used()) {
        let message = "no more data can be written: first writes fail with ENOSPC".into();
        problems.push(problem("pool.full", message, Some("discard or destroy".into())));
    }
    problems
}

fn suspended(report: &PoolReport) -> Option<Problem> {
    let message = "the pool's records can be written nowhere any more: changes fail with EIO";
    let action = || format!("see to its devices, then: braid clear {}", report.name);
    report.suspended.then(|| problem("pool.suspended", message.into(), Some(action())))
}

/// The list of pools and shares that outlives the daemon is not what it is to be.
pub(super) fn cache_failed(why: &str) -> Problem {
    let message = format!("{why}: after a restart pools are found by braid import only, and without their shares");
    problem("cache.failed", message, Some("make it writable; each braid status tries again".into()))
}

/// A member that is not as it should be.
fn state(report: &PoolReport, d: &DeviceReport, about: &About) -> Option<Problem> {
    let (id, pool, path) = (d.id, &report.name, &path_of(d, about));
    let is_awaited = about.away.contains(&id);
    Some(match d.state {
        DeviceState::Failed => {
            let why =
                if failures(d) > 0 { format!(" ({} errors{})", failures(d), last_error(d)) } else { String::new() };
            let message = format!("device {id} ({path}) was given up and is no longer used{why}");
            let first = match d.last_error {
                Some((_, IoError::NoSpace)) => "make room where it lies, then",
                _ => "to use it again",
            };
            let action = format!("the pool goes on with the others; {first}: braid online {pool} {id}");
            problem("device.failed", message, Some(action))
        }
        DeviceState::Suspect => {
            let (message, action) = suspect(report, d, path);
            problem("device.suspect", message, action)
        }
        DeviceState::Rebuilding if d.stale.regions > 0 => {
            let how_far = spares::rebuilt(d);
            let message = format!("device {id} ({path}) missed something and is being brought up to date: {how_far}");
            problem("device.rebuilding", message, None)
        }
        DeviceState::Missing => {
            let message = format!("device {id} (last seen at {}, {}) is missing", d.path, d.uuid);
            let action = match is_awaited {
                _ if report.suspended => format!("connect it, then: braid clear {pool}"),
                true => "connect it: it is taken back by itself".into(),
                false => format!("connect it, then: braid online {pool} {id}"),
            };
            problem("device.missing", message, Some(action))
        }
        DeviceState::Online | DeviceState::Rebuilding | DeviceState::Removing => return None,
    })
}

/// What a suspect member missed, and what can be done about it.
fn suspect(report: &PoolReport, d: &DeviceReport, path: &str) -> (String, Option<String>) {
    let (id, name) = (d.id, &report.name);
    let sourceless = d.stale.sourceless * (UNIT >> 10);
    if d.faults > FAULTS_MAX || d.stale.is_to_come || sourceless == 0 {
        let left = d.stale.regions * (REGION >> 20);
        let action = || format!("after {} errors that waits for: braid online {name} {id}", d.faults);
        let message = format!("device {id} ({path}) missed something and is to be brought up to date: {left} MiB");
        return (message, (d.faults > FAULTS_MAX).then(action));
    }
    (
        format!("device {id} ({path}) missed {sourceless} KiB that cannot be read from the others"),
        Some(format!("write or discard what braid status -v lists; to try to read it again: braid scrub {name}")),
    )
}

/// A member that is used had errors: what a disk makes that is about to die, or a cable, or a process that writes beside the pool.
fn errors(report: &PoolReport, d: &DeviceReport, path: &str) -> Option<Problem> {
    let counts = [
        (d.io.read_errors, "read failed", "reads failed"),
        (d.io.write_errors, "write failed", "writes failed"),
        (d.io.checksum_errors, "block was not what its checksum says", "blocks were not what their checksums say"),
        (d.io.repaired, "block was written anew", "blocks were written anew"),
    ];
    if counts.iter().all(|(n, ..)| *n == 0) || !d.state.is_used() {
        return None;
    }
    let (id, pool) = (d.id, &report.name);
    let counts = counts.iter().filter(|(n, ..)| *n > 0);
    let counts: Vec<String> =
        counts.map(|(n, one, more)| format!("{n} {}", if *n == 1 { one } else { more })).collect();
    let message = format!("device {id} ({path}) had errors: {}{}", counts.join(", "), last_error(d));
    let first = match d.last_error {
        Some((_, IoError::NoSpace)) => "make room where it lies; ",
        _ => "",
    };
    let action = format!(
        "{first}where: braid events {pool}; to read all of it: braid scrub {pool}; if it goes on: braid replace {pool} {id} NEW; \
         to count anew: braid clear {pool} {id}"
    );
    Some(problem("device.errors", message, Some(action)))
}

/// Commands of a member that failed.
fn failures(d: &DeviceReport) -> u64 {
    d.io.read_errors.saturating_add(d.io.write_errors)
}

/// The last one of them, behind a number.
fn last_error(d: &DeviceReport) -> String {
    d.last_error.map_or(String::new(), |(op, error)| format!("; the last a {}: {}", op_name(op), error_name(error)))
}

/// Blocks without a good copy.
fn lost(report: &PoolReport) -> Option<Problem> {
    let blocks: u64 = report.lost.iter().map(|(_, _, len)| len / BLOCK).sum();
    if blocks == 0 {
        return None;
    }
    let (whose, first) = match report.devices.iter().all(|d| d.state.is_used()) {
        true => ("left", ""),
        false => ("on the devices that are here", "connect the others, or "),
    };
    let (what, have) = (size::blocks(blocks), if blocks == 1 { "has" } else { "have" });
    let message = format!("{what} {have} no good copy {whose}: reads of what is lost fail with EIO");
    let mut action = format!("see which with: braid status -v; {first}write them anew from a backup");
    if report.resync.unread > 0 {
        let unread = size::blocks(report.resync.unread.min(blocks));
        action += &format!(
            "; {unread} of it could not be read after an unclean stop, and can be had as soon as that can be read: braid scrub {}",
            report.name
        );
    }
    Some(problem("integrity.lost", message, Some(action)))
}

#[cfg(test)]
mod tests {
    use super::super::views::{
        status,
        tests::{about, report},
    };
    use super::*;
    use braid_core::Profile;
    use braid_core::report::StaleReport;
    use braid_core::request::DeviceOp;
    use braid_core::units::VolumeId;

    #[test]
    fn a_member_that_cannot_catch_up_says_why_and_what_would_help() {
        let states = [DeviceState::Online, DeviceState::Suspect, DeviceState::Online, DeviceState::Online];
        let mut report = report(Profile::Raid1, states, vec![]);
        let told = |report: &PoolReport| {
            let problem = status(report, &about()).problems.remove(0);
            (problem.message, problem.action.unwrap_or_default())
        };
        report.devices[1].stale = StaleReport { is_behind: true, is_to_come: true, regions: 2, ..Default::default() };
        let (message, action) = told(&report);
        assert!(message.ends_with("is to be brought up to date: 8 MiB") && action.is_empty(), "{message} {action}");
        (report.devices[1].stale.is_to_come, report.devices[1].stale.sourceless) = (false, 3);
        let (message, action) = told(&report);
        assert!(message.ends_with("missed 192 KiB that cannot be read from the others"), "{message}");
        assert!(action.contains("braid status -v") && action.ends_with("braid scrub tank"), "{action}");
        report.devices[1].faults = FAULTS_MAX + 1;
        assert!(told(&report).1.ends_with("braid online tank 2"));
    }

    #[test]
    fn what_is_lost_says_what_may_be_had_again() {
        let mut report = report(Profile::Raid1, [DeviceState::Online; 4], vec![]);
        report.lost = vec![(VolumeId(1), 0, 3 * BLOCK)];
        let action = |report: &PoolReport| status(report, &about()).problems.remove(0).action.unwrap_or_default();
        assert!(action(&report).ends_with("write them anew from a backup"), "{}", action(&report));
        report.resync.unread = 1;
        assert!(
            action(&report).ends_with("can be had as soon as that can be read: braid scrub tank"),
            "{}",
            action(&report)
        );
    }

    #[test]
    fn errors_of_a_member_say_what_they_were_and_what_to_do() {
        let mut report = report(Profile::Raid1, [DeviceState::Online; 4], vec![]);
        let io = &mut report.devices[2].io;
        (io.read_errors, io.checksum_errors, io.repaired) = (2, 5, 7);
        report.devices[2].last_error = Some((DeviceOp::Read, IoError::Media));
        let told = status(&report, &about()).problems;
        assert_eq!(told.len(), 1, "{told:?}");
        let expected = "device 3 (/dev/sdd) had errors: 2 reads failed, 5 blocks were not what their checksums say, \
                        7 blocks were written anew; the last a read: the medium failed (EIO)";
        assert_eq!((told[0].code.as_str(), told[0].message.as_str()), ("device.errors", expected));
        assert!(told[0].action.as_deref().is_some_and(|a| a.ends_with("braid clear tank 3")), "{told:?}");
        // One that was given up is told once, with the reason.
        let scrub = &mut report.scrub.scrub;
        (scrub.differences, scrub.read_errors, scrub.repaired) = (5, 2, 7);
        assert_eq!(status(&report, &about()).problems.len(), 1, "the scrub has put all of it right");
        report.scrub.scrub.repaired = 6;
        assert_eq!(status(&report, &about()).problems.len(), 2);
        report.scrub.scrub.repaired = 7;
        report.devices[2].state = DeviceState::Failed;
        report.devices[2].last_error = Some((DeviceOp::Write { fua: false }, IoError::NoSpace));
        let told = status(&report, &about()).problems;
        assert!(told[0].message.ends_with("(2 errors; the last a write: what it lies on is full)"), "{told:?}");
        assert!(told[0].action.as_deref().is_some_and(|a| a.contains("make room where it lies")), "{told:?}");
        assert!(told.iter().all(|p| p.code != "device.errors"), "{told:?}");
    }
}
