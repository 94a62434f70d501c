//! Jobs that move content: begun, changed, and how far they are, in the words of the API.

use std::time::{Duration, UNIX_EPOCH};

use braid_core::Profile;
use braid_core::control::{Command, Done};
use braid_core::job::{Choice, Task};
use braid_core::report::PoolReport;
use braid_core::request::Event;
use braid_core::scrub::State;
use braid_core::units::{DeviceId, UNIT};

use super::events::Severity;
use super::members::{standing, standing_now};
use super::pools::plan;
use super::{Daemon, lock};
use crate::control::api::*;
use crate::control::size;

/// A choice of chunks in the engine's terms.
fn choice(asked: &BalanceChoice) -> Choice {
    let profiles = asked.profiles.iter().filter_map(|name| Profile::parse(name)).fold(0, |set, p| set | 1 << p as u16);
    Choice {
        convert: asked.convert.as_deref().and_then(Profile::parse),
        soft: asked.soft,
        usage: asked.usage.unwrap_or(100),
        device: asked.device.map(DeviceId),
        profiles,
        limit: asked.limit.unwrap_or(0),
    }
}

impl Daemon {
    pub(super) fn start_balance(&self, request: &Balance) -> Result<Change, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        let (mut data, mut metadata) = (request.data.as_ref().map(choice), request.metadata.as_ref().map(choice));
        if data.is_none() && metadata.is_none() {
            (data, metadata) = (Some(Choice::default()), Some(Choice::default()));
        }
        let mut notes = Vec::new();
        if let Some(convert) = metadata.as_mut().and_then(|choice| choice.convert.as_mut()) {
            let (copies, note) = plan::kept_on(*convert);
            *convert = copies;
            notes.extend(note);
        }
        let task = Task::Balance { data: data.clone(), metadata: metadata.clone() };
        let trial = task.clone();
        let (before, after) = pool.ask(move |pump| {
            pump.with_engine(move |engine| {
                engine.may_balance(&trial)?;
                Ok((engine.pool().outlook(), engine.pool().try_task(&trial).ok()))
            })?
        })?;
        let report = pool.report()?;
        let (before, moves) = (standing_now(&before, &report), after.as_ref().map_or(0, |after| after.moves));
        let after = after.as_ref().map(standing);
        if let Some(after) = &after
            && (after.data_failures < before.data_failures || after.metadata_failures < before.metadata_failures)
            && !request.force
        {
            let message = format!(
                "pool {} would survive fewer failures: data {} (now {}), metadata {} (now {})",
                pool.name, after.data_failures, before.data_failures, after.metadata_failures, before.metadata_failures
            );
            return Err(ApiError::refused("balance.less_redundancy", message).hint("add -f if that is what you want"));
        }
        let [data_profile, metadata_profile, _] = task.profiles(report.profiles);
        let what = format!(
            "balance of pool {} (data {}, metadata {}): {} of content are written anew",
            pool.name,
            data_profile.name(),
            metadata_profile.name(),
            size::long(moves)
        );
        let dry_run = request.dry_run;
        let change = Change { dry_run, before: Some(before), after, move_bytes: moves, notes, ..Change::done(what) };
        if !dry_run {
            pool.ask(|pump| pump.control(Command::Balance { data, metadata }))?;
            self.events.tell(Severity::Info, Some(&pool.name), "job.started", change.what.clone());
        }
        Ok(change)
    }

    pub(super) fn change_job(&self, request: &JobControl) -> Result<Change, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        let task = pool.report()?.job.map_or("job", |job| job.job.task.name());
        let (command, verb) = match request.action {
            JobAction::Pause => (Command::JobPause, "paused"),
            JobAction::Resume => (Command::JobResume, "resumed"),
            JobAction::Cancel => (Command::JobCancel, "canceled"),
        };
        let what = format!("{task} of pool {} {verb}", pool.name);
        let done = pool.ask(|pump| pump.control(command)).map_err(|e| match e.code.as_str() {
            "object.not_found" => ApiError { code: "job.none".into(), ..e },
            _ => e,
        })?;
        if done == Done::Unchanged {
            return Ok(Change::unchanged(what));
        }
        self.events.tell(Severity::Info, Some(&pool.name), "job.changed", what.clone());
        Ok(Change::done(what))
    }
}

/// The last job of a pool.
pub(super) fn info(report: &PoolReport) -> JobInfo {
    let Some(last) = &report.job else {
        return JobInfo { pool: report.name.clone(), state: State::None.name().into(), ..JobInfo::default() };
    };
    let job = &last.job;
    let time = |unix_s: u64| (unix_s != 0).then(|| rfc3339(UNIX_EPOCH + Duration::from_secs(unix_s)));
    let rate = Some(last.rate).filter(|rate| *rate > 0 && job.state == State::Running);
    let left = u128::from(job.total.saturating_sub(job.done));
    let eta = |rate: u64| u64::try_from(left * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX);
    let note = match job.state {
        State::Running if last.is_waiting => Some("waits for room that is about to come free".to_string()),
        State::Paused if job.no_room => {
            Some("paused by itself: there is no room; add a device or free some space, then resume it".to_string())
        }
        _ => None,
    };
    JobInfo {
        pool: report.name.clone(),
        task: Some(job.task.name().into()),
        device: job.leaving().map(|id| id.0),
        state: job.state.name().into(),
        started_at: time(job.started),
        ended_at: time(job.ended),
        running_ns: job.ran_ms.saturating_mul(1_000_000),
        done_bytes: job.done,
        total_bytes: job.total,
        chunks: job.chunks,
        lost_bytes: job.lost.saturating_mul(UNIT),
        note,
        rate_bytes_per_s: rate,
        eta_ns: rate.map(eta),
    }
}

/// What a job tells; `device` names a member.
pub(super) fn sentence(
    pool: &str,
    event: &Event,
    device: impl Fn(DeviceId) -> String,
) -> Option<(Severity, &'static str, String)> {
    Some(match event {
        Event::SpareInUse { device: id, by } => {
            let message = format!("{} takes the place of {}: a spare is in use", device(*by), device(*id));
            (Severity::Warning, "spare.in_use", message)
        }
        Event::NoSpareFits { device: id } => {
            let message = format!(
                "no spare can take the place of {}: what it holds does not fit on any; add a larger one: braid add --spare \
                 {pool} DEVICE",
                device(*id)
            );
            (Severity::Error, "spare.none_fits", message)
        }
        Event::ReturnStarted => (
            Severity::Info,
            "job.started",
            "there is room again: what spilled goes back to the tier it prefers".to_string(),
        ),
        Event::JobEnded { task, bytes, lost: 0 } => (
            Severity::Info,
            "job.finished",
            format!("the {task} is done: {} of content were moved", size::long(*bytes)),
        ),
        Event::JobEnded { task, lost, .. } => {
            let message = format!(
                "the {task} was given up: {} could not be read from any copy and stay where they are; write or discard \
                 them, see: braid events {pool}",
                size::long(lost.saturating_mul(UNIT))
            );
            (Severity::Error, "job.failed", message)
        }
        Event::JobStopped { task, no_room: true } => {
            let message = format!(
                "the {task} was paused: there is no room for what is left; add a device or free some space, then: braid \
                 balance resume {pool}"
            );
            (Severity::Warning, "job.no_room", message)
        }
        Event::JobStopped { task, no_room: false } => {
            let message = format!(
                "the {task} was paused: what it writes to fails; see braid status {pool}, then: braid balance resume {pool}"
            );
            (Severity::Error, "job.stopped", message)
        }
        Event::MoveLost { name, offset, len, .. } => {
            let message = format!(
                "{} of volume {name} at byte {offset} cannot be moved: no copy of some block can be read",
                size::long(*len)
            );
            (Severity::Error, "job.unreadable", message)
        }
        Event::DeviceRemoved { device: id, cleared: true } => {
            (Severity::Info, "device.removed", format!("{} is no member any more", device(*id)))
        }
        Event::DeviceRemoved { device: id, cleared: false } => {
            let message = format!(
                "{} is no member any more; it could not be told so, and add or create need -f for it",
                device(*id)
            );
            (Severity::Warning, "device.removed", message)
        }
        _ => return None,
    })
}
