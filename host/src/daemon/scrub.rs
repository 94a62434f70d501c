//! Scrub: commands to the engine, its state in the words of the API, what it found in sentences.

use std::time::{Duration, UNIX_EPOCH};

use braid_core::control::{Command, Done};
use braid_core::queue::config::Source;
use braid_core::report::{DeviceReport, PoolReport};
use braid_core::request::{Event, ScrubCopy, Witness};
use braid_core::scrub::State;
use braid_core::units::DeviceId;

use super::events::Severity;
use super::views::{About, path_of};
use super::{Daemon, lock};
use crate::control::api::*;
use crate::control::size;

impl Daemon {
    pub(super) fn change_scrub(&self, request: &Scrub) -> Result<Change, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        let name = &pool.name;
        let (command, what) = match request.action {
            ScrubAction::Start => (Command::ScrubStart, format!("scrub of {name} started")),
            ScrubAction::Pause => (Command::ScrubPause, format!("scrub of {name} paused")),
            ScrubAction::Resume => (Command::ScrubResume, format!("scrub of {name} resumed")),
            ScrubAction::Cancel => (Command::ScrubCancel, format!("scrub of {name} canceled")),
            ScrubAction::Limit => {
                let value = request.limit.clone().ok_or_else(|| {
                    ApiError::usage("scrub.limit", "a limit is a number of commands at a time on each device")
                        .hint(format!("for example: braid scrub limit {name} 2"))
                })?;
                let what = format!("scrub of {name} limited to {value} commands at a time on each device");
                (Command::Set { name: "scrub_max_active".into(), value }, what)
            }
        };
        let done = pool.ask(|pump| pump.control(command)).map_err(|e| match e.code.as_str() {
            "object.not_found" if request.action != ScrubAction::Limit => ApiError { code: "scrub.none".into(), ..e },
            _ => e,
        })?;
        let mut notes = match &request.limit {
            Some(limit) if request.action == ScrubAction::Limit => without_limit(&pool.report()?, limit.trim()),
            _ => Vec::new(),
        };
        match done {
            Done::Unchanged => return Ok(Change { notes, ..Change::unchanged(what) }),
            Done::Adjusted(note) => notes.push(note),
            _ => {}
        }
        self.events.tell(Severity::Info, Some(name), "scrub.changed", what.clone());
        Ok(Change { notes, ..Change::done(what) })
    }
}

/// Members that a limit set for the pool does nothing to, one sentence each.
fn without_limit(report: &PoolReport, limit: &str) -> Vec<String> {
    let note = |device: &DeviceReport| {
        let (id, pool) = (device.id, &report.name);
        let of = |name: &str| device.queue.settings.iter().find(|(known, ..)| *known == name);
        let (_, scheduler, said_by) = of("scheduler")?;
        let (_, own, source) = of("scrub_max_active")?;
        if matches!(scheduler.as_str(), "none" | "deadline") {
            let inherit = match said_by {
                Source::Device => format!("braid device set {pool} {id} scheduler=braid"),
                Source::Pool | Source::Default => format!("braid set scheduler=braid {pool}"),
            };
            return Some(format!(
                "it does nothing on device {id}: the scheduler {scheduler} knows no classes; for one that does: {inherit}"
            ));
        }
        (*source == Source::Device && own != limit).then(|| {
            format!(
                "it does nothing on device {id}, which has scrub_max_active={own} of its own; to take that away: braid \
                 inherit scrub_max_active {pool} {id}"
            )
        })
    };
    report.devices.iter().filter_map(note).collect()
}

/// The last scrub of a pool.
pub(super) fn info(report: &PoolReport, about: &About) -> ScrubInfo {
    let scrub = &report.scrub.scrub;
    let time = |unix_s: u64| (unix_s != 0).then(|| rfc3339(UNIX_EPOCH + Duration::from_secs(unix_s)));
    let rate = Some(report.scrub.rate).filter(|rate| *rate > 0 && scrub.state == State::Running);
    let left = u128::from(scrub.total.saturating_sub(scrub.done));
    let eta = |rate: u64| u64::try_from(left * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX);
    let found = report.devices.iter().filter_map(|d| Some((d, scrub.found.get(&d.id)?)));
    ScrubInfo {
        pool: report.name.clone(),
        state: scrub.state.name().into(),
        started_at: time(scrub.started),
        ended_at: time(scrub.ended),
        running_ns: scrub.ran_ms.saturating_mul(1_000_000),
        done_bytes: scrub.done,
        total_bytes: scrub.total,
        unread_bytes: scrub.unread,
        differences: scrub.differences,
        read_errors: scrub.read_errors,
        undecided: scrub.undecided,
        repaired: scrub.repaired,
        rate_bytes_per_s: rate,
        eta_ns: rate.map(eta),
        devices: found
            .map(|(d, found)| ScrubDevice {
                id: d.id.0,
                path: path_of(d, about),
                differences: found.differences,
                read_errors: found.read_errors,
            })
            .collect(),
    }
}

/// What the last scrub found and did not put right is a problem until the next one finds less. What it did is told of the members.
pub(super) fn problem(report: &PoolReport) -> Option<Problem> {
    let scrub = &report.scrub.scrub;
    let (differences, errors) = (scrub.differences, scrub.read_errors);
    if differences.saturating_add(errors) <= scrub.repaired {
        return None;
    }
    let message = match (differences, errors) {
        (d, 0) => format!("the last scrub found {} whose copies are not alike or wrong", size::blocks(d)),
        (0, e) => format!("the last scrub found {} that cannot be read", size::blocks(e)),
        (d, e) => {
            format!(
                "the last scrub found {} whose copies are not alike or wrong, and {} that cannot be read",
                size::blocks(d),
                size::blocks(e)
            )
        }
    };
    let repaired = match scrub.repaired {
        0 => String::new(),
        n => format!("Written anew from what is right: {} of copies. ", size::blocks(n)),
    };
    let action = format!(
        "{repaired}Where neither a checksum nor most copies say which is right none is changed: writing the block anew makes \
         them alike. See where with: braid events {}; then scrub again",
        report.name
    );
    Some(Problem { code: "scrub.found".into(), message, action: Some(action) })
}

/// What a scrub tells, with every place to the byte; `device` names a member.
pub(super) fn sentence(event: &Event, device: impl Fn(DeviceId) -> String) -> Option<(Severity, &'static str, String)> {
    let whose = |name: &str, offset: u64, len: u64| match name {
        "" => format!("{} of the pool's own records", size::long(len)),
        name => format!("{} of volume {name} at byte {offset}", size::long(len)),
    };
    Some(match event {
        Event::ScrubDifference { volume, name, offset, len, copies, witness, .. } => {
            let place = |c: &ScrubCopy| format!("{} at byte {}", device(c.device), c.offset);
            let list = |suspect: bool| {
                copies.iter().filter(|c| c.suspect == suspect).map(place).collect::<Vec<_>>().join(", ")
            };
            let verdict = match (witness, copies.iter().any(|c| c.suspect)) {
                _ if volume.is_none() => {
                    let all: Vec<String> = copies.iter().map(place).collect();
                    format!("{}: written anew from memory once the scrub is over", all.join(", "))
                }
                (_, true) if copies.len() == 1 => {
                    format!("{}: not what its checksum says and the other strips of its row make of it", list(true))
                }
                (Witness::Checksum, true) => {
                    format!("{}: not what its checksum says; right: {}", list(true), list(false))
                }
                (Witness::Checksum, false) => format!("{}: none is what its checksum says", list(false)),
                (_, true) => format!("{}: differs from most copies: {}", list(true), list(false)),
                (_, false) => format!("{}: which is right cannot be told", list(false)),
            };
            let message = format!("copies of {} are not alike: {verdict}", whose(name, *offset, *len));
            (Severity::Error, "scrub.difference", message)
        }
        Event::ScrubReadError { name, offset, len, device: id, device_offset, .. } => {
            let whose = whose(name, *offset, *len);
            let message = format!("a copy of {whose} cannot be read: {} at byte {device_offset}", device(*id));
            (Severity::Error, "scrub.read_error", message)
        }
        Event::Repaired { name, offset, len, device: id, device_offset, .. } => {
            let whose = whose(name, *offset, *len);
            let message = format!("a copy of {whose} was repaired: {} at byte {device_offset}", device(*id));
            (Severity::Info, "copy.repaired", message)
        }
        &Event::RowRepaired { chunk, row, is_data, len, device: id, device_offset } => {
            let (severity, name, what, why) = match is_data {
                true => (Severity::Warning, "strip.repaired", "data", "both parities make, may have been read so,"),
                false => (Severity::Info, "parity.repaired", "parity", "the data makes"),
            };
            let message = format!(
                "{} of {what} of row {row} of chunk {chunk} were not what {why} and were written anew: {} at byte \
                 {device_offset}",
                size::long(len),
                device(id)
            );
            (severity, name, message)
        }
        Event::ScrubTellsNoMore => {
            let message = "the scrub found a lot; further places are only counted, see: braid scrub status";
            (Severity::Warning, "scrub.tells_no_more", message.into())
        }
        Event::ScrubFinished { differences: 0, read_errors: 0, unread: 0, undecided: 0, repaired: 0 } => {
            (Severity::Info, "scrub.finished", "the scrub finished and found nothing".into())
        }
        Event::ScrubFinished { differences, read_errors, unread, undecided, repaired } => {
            let mut message = format!(
                "the scrub finished: {} not alike or wrong, {} unreadable",
                size::blocks(*differences),
                size::blocks(*read_errors)
            );
            if *repaired > 0 {
                message += &format!("; {} of copies written anew", size::blocks(*repaired));
            }
            if *unread > 0 {
                message +=
                    &format!(", {} of copies were not read since their device was not there", size::long(*unread));
            }
            if *undecided > 0 {
                message += &format!(", {undecided} of the pool's own records that checkpoints came between each time");
            }
            (Severity::Warning, "scrub.finished", message)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::units::VolumeId;

    fn copy(device: u32, offset: u64, group: u8, suspect: bool) -> ScrubCopy {
        ScrubCopy { device: DeviceId(device), offset, group, suspect }
    }

    #[test]
    fn a_difference_names_every_place() {
        let of = |volume: Option<VolumeId>, witness: Witness, copies: Vec<ScrubCopy>| {
            let name = volume.map_or(String::new(), |_| "v".into());
            let event = Event::ScrubDifference { volume, name, offset: 8192, len: 4096, copies, witness };
            sentence(&event, |id| format!("device {id}")).unwrap().2
        };
        let tell = |witness: Witness, copies: Vec<ScrubCopy>| of(Some(VolumeId(1)), witness, copies);
        assert_eq!(
            of(None, Witness::Nobody, vec![copy(1, 100, 0, false), copy(2, 200, 1, false)]),
            "copies of 4KiB of the pool's own records are not alike: device 1 at byte 100, device 2 at byte 200: written \
             anew from memory once the scrub is over"
        );
        assert_eq!(
            tell(Witness::Nobody, vec![copy(1, 100, 0, false), copy(2, 200, 1, false)]),
            "copies of 4KiB of volume v at byte 8192 are not alike: device 1 at byte 100, device 2 at byte 200: which \
             is right cannot be told"
        );
        assert_eq!(
            tell(Witness::Majority, vec![copy(1, 100, 0, false), copy(2, 200, 1, true), copy(3, 300, 0, false)]),
            "copies of 4KiB of volume v at byte 8192 are not alike: device 2 at byte 200: differs from most copies: \
             device 1 at byte 100, device 3 at byte 300"
        );
        assert_eq!(
            tell(Witness::Checksum, vec![copy(1, 100, 0, true)]),
            "copies of 4KiB of volume v at byte 8192 are not alike: device 1 at byte 100: not what its checksum says and \
             the other strips of its row make of it"
        );
        assert_eq!(
            tell(Witness::Checksum, vec![copy(1, 100, 0, false), copy(2, 200, 1, true)]),
            "copies of 4KiB of volume v at byte 8192 are not alike: device 2 at byte 200: not what its checksum says; \
             right: device 1 at byte 100"
        );
        assert_eq!(
            tell(Witness::Checksum, vec![copy(1, 100, 0, false), copy(2, 200, 1, false)]),
            "copies of 4KiB of volume v at byte 8192 are not alike: device 1 at byte 100, device 2 at byte 200: none is \
             what its checksum says"
        );
    }
}
