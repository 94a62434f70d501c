//! Start, pause, resume, cancel, the end; reports.

use alloc::format;
use alloc::string::String;

use super::{Engine, Pass};
use crate::ChunkType;
use crate::control::{ControlError, Done, ErrorKind};
use crate::device::{Device, Role};
use crate::engine::control::{Due, Outcome};
use crate::job::{Choice, Job, Task};
use crate::meta::journal::Lsn;
use crate::meta::record::Record;
use crate::pool::trial::{Outlook, Shortfall};
use crate::report::JobReport;
use crate::request::{Event, Output};
use crate::scrub::State;
use crate::units::{DeviceId, MIB};

fn refused(message: String) -> ControlError {
    ControlError::new(ErrorKind::Refused, message)
}

impl Engine {
    /// A member is to be emptied and to leave.
    pub(in crate::engine) fn start_remove(&mut self, device: DeviceId) -> Outcome {
        self.may_remove(device)?;
        self.start_job(Task::Remove { device })
    }

    /// Another member gets what one has, and that one leaves.
    pub(in crate::engine) fn start_replace(&mut self, device: DeviceId, by: DeviceId) -> Outcome {
        let may_take = |d: &Device| d.takes_chunks() || d.role == Role::Spare && d.state.is_used();
        if device == by || !self.pool.device(by).is_some_and(may_take) {
            let text = format!("pool {:?} has no device {by} that could replace device {device}", self.pool.name);
            return Err(ControlError::new(ErrorKind::NotFound, text));
        }
        self.may_replace(device, by, core::iter::empty())?;
        self.start_job(Task::Replace { device, by })
    }

    /// Whether no other job is under way, and a member can be done without; the reason why not has the numbers.
    pub fn may_remove(&self, device: DeviceId) -> Result<Outlook, ControlError> {
        self.may_leave(&Task::Remove { device }, device, core::iter::empty())
    }

    /// The same when another one gets what it has; `more` come before.
    pub fn may_replace(
        &self,
        device: DeviceId,
        by: DeviceId,
        more: impl Iterator<Item = Device>,
    ) -> Result<Outlook, ControlError> {
        self.may_leave(&Task::Replace { device, by }, device, more)
    }

    fn may_leave(
        &self,
        task: &Task,
        device: DeviceId,
        more: impl Iterator<Item = Device>,
    ) -> Result<Outlook, ControlError> {
        self.check_no_job()?;
        let name = &self.pool.name;
        if !self.pool.device(device).is_some_and(|d| d.is_recorded()) {
            return Err(ControlError::new(ErrorKind::NotFound, format!("pool {name:?} has no device {device}")));
        }
        let tried = self.pool.try_task_with(more, task);
        tried.map_err(|why| self.does_not_fit(&why, &format!("without device {device}")))
    }

    /// Content is to be written anew, in other profiles perhaps.
    pub(in crate::engine) fn start_balance(&mut self, data: Option<Choice>, metadata: Option<Choice>) -> Outcome {
        let task = Task::Balance { data, metadata };
        self.may_balance(&task)?;
        let profiles = task.profiles(self.pool.profiles);
        if profiles != self.pool.profiles {
            let record = Record::Profiles(profiles);
            self.journal.append(&record);
            self.pool.apply(record).expect("profiles contradict nothing");
        }
        self.start_job(task)
    }

    /// Whether no other job is under way, and content fits its new profiles; the reason why not has the numbers.
    pub fn may_balance(&self, task: &Task) -> Result<(), ControlError> {
        self.check_no_job()?;
        let profiles = task.profiles(self.pool.profiles);
        if let Some(bad) = Some(profiles[ChunkType::Metadata as usize]).filter(|p| !p.carries(ChunkType::Metadata)) {
            let text = format!(
                "profile {} cannot carry metadata, in which the journal of its own rows is kept; choose single, dup, raid1, \
                 raid1c3, raid1c4 or raid10",
                bad.name()
            );
            return Err(ControlError::new(ErrorKind::Usage, text));
        }
        self.pool.try_task(task).map(drop).map_err(|why| self.does_not_fit(&why, "after the balance"))
    }

    fn does_not_fit(&self, why: &Shortfall, when: &str) -> ControlError {
        let kind = match why.kind {
            ChunkType::Data => "data",
            ChunkType::Metadata => "metadata",
            ChunkType::System => "the pool's own records",
        };
        let name = &self.pool.name;
        let inside: u64 = self.pool.chunks().map(|c| c.length.saturating_sub(c.used())).sum();
        // Not told where it would not help.
        let pack = match inside >= why.missing {
            true => format!(
                "; chunks have {} MiB free inside, of which braid balance start -m all {name} and then -d all may give back some",
                inside / MIB
            ),
            false => String::new(),
        };
        refused(format!(
            "pool {name:?} does not fit {when}: {} MiB of {kind} ({}) find no place, with {} MiB free on the devices that \
             remain; add a device, free some space, or choose another profile{pack}",
            why.missing.div_ceil(MIB),
            why.profile.name(),
            why.free / MIB,
        ))
    }

    /// What an operator began that is not over, or is about to begin.
    pub(super) fn busy_with(&self) -> Option<(&'static str, State)> {
        let open = self.pool.job.as_ref().filter(|job| job.is_open() && job.task != Task::Return);
        let promised =
            || self.moving.promised.map(|(device, by)| (Task::Replace { device, by }.name(), State::Running));
        open.map(|job| (job.task.name(), job.state)).or_else(promised)
    }

    fn check_no_job(&self) -> Result<(), ControlError> {
        let Some((what, state)) = self.busy_with() else { return Ok(()) };
        let name = &self.pool.name;
        let text = format!("pool {name:?} has a {what} {} already; see: braid {what} status {name}", state.name());
        Err(ControlError::new(ErrorKind::Busy, text))
    }

    pub(super) fn start_job(&mut self, task: Task) -> Outcome {
        if self.commit.is_dead() {
            return Err(ControlError::new(
                ErrorKind::Io,
                format!("pool {:?} cannot write its records", self.pool.name),
            ));
        }
        self.pool.job = Some(Job::new(task, self.unix_now(), self.pool.next_chunk));
        self.run_job();
        let total = self.source_bytes();
        if let Some(job) = self.job_mut() {
            job.total = total;
        }
        Ok((Done::Changed, Due::Stable(self.save_job())))
    }

    /// From its beginning, or on from where it is.
    fn run_job(&mut self) {
        self.moving.meter.begin();
        self.moving.lost.clear();
        self.moving.unfit.clear();
        self.moving.given_up.clear();
        self.moving.swaps_failed = 0;
        (self.moving.pass, self.moving.starved, self.moving.not_before) = (Pass::default(), None, None);
        self.mark_sources();
    }

    /// A job that the pool was closed with goes on.
    pub(in crate::engine) fn take_up_job(&mut self) {
        if self.pool.job.as_ref().is_some_and(Job::is_open) {
            self.run_job();
        }
    }

    pub(in crate::engine) fn pause_job(&mut self) -> Outcome {
        match self.open_job()?.state {
            State::Paused => Ok((Done::Unchanged, Due::Now)),
            _ => {
                self.set_job(State::Paused);
                Ok((Done::Changed, Due::Stable(self.save_job())))
            }
        }
    }

    pub(in crate::engine) fn resume_job(&mut self) -> Outcome {
        if self.open_job()?.state == State::Running {
            return Ok((Done::Unchanged, Due::Now));
        }
        self.set_job(State::Running);
        self.run_job();
        Ok((Done::Changed, Due::Stable(self.save_job())))
    }

    pub(in crate::engine) fn cancel_job(&mut self) -> Outcome {
        self.open_job()?;
        if self.moving.leaving.is_some() {
            let text = format!("the job of pool {:?} is at its very end and cannot be canceled", self.pool.name);
            return Err(ControlError::new(ErrorKind::Busy, text));
        }
        self.note_spare_unwanted();
        Ok((Done::Changed, Due::Stable(self.cancel_running())))
    }

    /// It is over, and what was moved stays moved.
    pub(super) fn cancel_running(&mut self) -> Lsn {
        self.keep_heir(false);
        self.set_job(State::Canceled);
        self.mark_sources();
        self.note_job_over();
        self.save_job()
    }

    /// Another job may have its turn.
    fn note_job_over(&mut self) {
        self.note_return_ended();
        self.look_for_returns_later();
    }

    /// The pool closes: nothing more is begun, and how far it is is written down.
    pub(in crate::engine) fn close_job(&mut self) {
        if self.is_moving() {
            self.save_job();
        }
        self.moving.closing = true;
    }

    fn open_job(&self) -> Result<&Job, ControlError> {
        self.pool.job.as_ref().filter(|job| job.is_open()).ok_or_else(|| {
            let text = format!("pool {:?} has no balance and no removal under way", self.pool.name);
            ControlError::new(ErrorKind::NotFound, text)
        })
    }

    fn set_job(&mut self, state: State) {
        let ended = if state == State::Running { 0 } else { self.unix_now() };
        if let Some(job) = self.job_mut() {
            (job.state, job.ended, job.no_room) = (state, ended, false);
        }
        self.moving.starved = None;
        self.moving.not_before = None;
        if state == State::Canceled {
            self.cancel_shift();
        }
        if state != State::Running {
            // What it ran so far is written down by who calls.
            self.moving.round = None;
        }
    }

    /// Everything is where it should be.
    pub(super) fn end_job(&mut self) {
        self.keep_heir(true);
        let leaving = self.pool.job.as_ref().and_then(Job::leaving);
        match leaving.filter(|&id| self.pool.device(id).is_some()) {
            Some(device) => self.part_with(device),
            None => self.finish_job(),
        }
    }

    pub(super) fn finish_job(&mut self) {
        self.set_job(State::Finished);
        if self.heir().is_some() {
            self.check_rows_of_lost();
        }
        self.mark_sources();
        self.tell_job_ended();
    }

    /// Some units cannot be read, and nothing else is left.
    pub(super) fn give_up_job(&mut self) {
        self.note_spare_unwanted();
        self.keep_heir(false);
        self.set_job(State::Canceled);
        self.mark_sources();
        self.tell_job_ended();
    }

    fn tell_job_ended(&mut self) {
        if let Some(job) = self.job_mut() {
            let (task, done, lost) = (job.task.name(), job.done, job.lost);
            job.total = if job.state == State::Finished { job.done } else { job.total };
            self.outputs.push_back(Output::Event(Event::JobEnded { task, bytes: done, lost }));
        }
        self.note_job_over();
        self.save_job();
        self.moving.meter.rest();
    }

    pub(super) fn stop_for_want_of_room(&mut self) {
        self.stop_job(true);
    }

    pub(super) fn stop_for_failures(&mut self) {
        self.stop_job(false);
    }

    /// It cannot go on by itself; an operator may see to that, and resume it.
    fn stop_job(&mut self, no_room: bool) {
        if self.is_only_return() {
            // What finds no better place is as well off where it is.
            return self.finish_job();
        }
        self.set_job(State::Paused);
        if let Some(job) = self.job_mut() {
            job.no_room = no_room;
            let task = job.task.name();
            self.outputs.push_back(Output::Event(Event::JobStopped { task, no_room }));
        }
        self.save_job();
        self.moving.meter.rest();
    }

    pub(in crate::engine) fn job_report(&self) -> Option<JobReport> {
        let mut job = self.pool.job.clone()?;
        let mut rate = 0;
        if job.state == State::Running {
            job.ran_ms = job.ran_ms.saturating_add(self.moving.meter.ran_ms(self.now));
            rate = self.moving.meter.rate(self.now, job.done);
        }
        job.total = job.total.max(job.done);
        Some(JobReport { job, rate, is_waiting: self.moving.starved.is_some() })
    }
}
