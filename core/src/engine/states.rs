//! Which state a member is in while it is there: what it missed and what a job makes of it decides. See the drawing at
//! [`DeviceState`].

use alloc::vec::Vec;

use super::Engine;
use crate::device::{Device, DeviceState, Role};
use crate::job::Job;
use crate::regions::REGION;
use crate::report::Progress;
use crate::request::{Event, Output};
use crate::units::DeviceId;

impl Engine {
    fn members_that(&self, are: impl Fn(&Device) -> bool) -> Vec<DeviceId> {
        self.pool.devices().filter(|d| are(d)).map(|d| d.id).collect()
    }

    fn become_all(&mut self, ids: Vec<DeviceId>, next: DeviceState) {
        for id in ids {
            self.pool.device_mut(id).expect("a member").become_state(next);
            self.post_views();
        }
    }

    /// It gets what another member has, or will when the job is resumed.
    pub(super) fn is_heir(&self, device: DeviceId) -> bool {
        self.pool.job.as_ref().is_some_and(Job::is_open) && self.heir().is_some_and(|(_, new)| new == device)
    }

    /// Of those that are behind: who is being brought up to date, and who has to wait since nothing can be done.
    pub(super) fn note_who_is_rebuilt(&mut self) {
        let begins = |d: &Device| d.state == DeviceState::Suspect && self.is_being_caught_up(d.id);
        let begin = self.members_that(begins);
        let rests = |d: &Device| {
            let is_behind = d.state == DeviceState::Rebuilding && self.pool.stale.contains_key(&d.id);
            is_behind && !self.is_being_caught_up(d.id)
        };
        let rest = self.members_that(rests);
        self.become_all(begin, DeviceState::Rebuilding);
        self.become_all(rest, DeviceState::Suspect);
    }

    /// It was behind, and nobody has said yet that it is no more.
    pub(super) fn was_behind(&self, d: &Device) -> bool {
        match d.state {
            DeviceState::Suspect => true,
            DeviceState::Rebuilding => !self.is_heir(d.id),
            _ => false,
        }
    }

    /// Whoever was behind and is no more is in full use again.
    pub(super) fn note_who_is_whole(&mut self) {
        let is_whole = |d: &Device| self.was_behind(d) && !d.is_behind && !self.pool.stale.contains_key(&d.id);
        for device in self.members_that(is_whole) {
            let member = self.pool.device_mut(device).expect("just listed");
            member.become_state(DeviceState::Online);
            member.faults = 0;
            self.outputs.push_back(Output::Event(Event::DeviceOnline { device }));
            if self.pool.device(device).is_some_and(|d| d.spare) {
                self.note_spare();
            }
            self.note_what_becomes_of(device);
            self.ask_again_for_lost();
            self.ask_for_unread();
            self.post_views();
        }
    }

    /// A member that is well says what a job makes of it.
    pub(super) fn note_what_becomes_of(&mut self, device: DeviceId) {
        let (is_heir, is_behind) = (self.is_heir(device), self.pool.stale.contains_key(&device));
        let Some(member) = self.pool.device_mut(device) else { return };
        // What it is is of more weight than what becomes of it.
        match (member.state, member.role) {
            (DeviceState::Online, Role::Leaving) => member.become_state(DeviceState::Removing),
            (DeviceState::Removing, Role::Member | Role::Spare) => member.become_state(DeviceState::Online),
            (DeviceState::Online, _) if is_heir => member.become_state(DeviceState::Rebuilding),
            (DeviceState::Rebuilding, _) if !is_heir && !is_behind => member.become_state(DeviceState::Online),
            _ => {}
        }
        self.check_deferred_rows();
    }

    /// How far a member is that is being rebuilt, in bytes: what it missed comes before what it gets.
    pub(super) fn rebuilt(&self, device: DeviceId) -> Option<Progress> {
        let member = self.pool.device(device).filter(|d| d.state == DeviceState::Rebuilding)?;
        match self.pool.job.as_ref().filter(|_| !self.pool.stale.contains_key(&member.id)) {
            Some(job) => Some(Progress { done: job.done, total: job.total.max(job.done) }),
            None => {
                let (left, most) = (self.regions_left(device), self.regions_most(device));
                Some(Progress { done: (most - left.min(most)) * REGION, total: most * REGION })
            }
        }
    }
}
