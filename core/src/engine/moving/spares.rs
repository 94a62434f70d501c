//! Members that are held back until another one fails.
//!
//! ```text
//!   AVAIL    a member that holds nothing and gets nothing; its superblock is kept up to date
//!     |      a member failed, or is missing for longer than `spare_delay`
//!   INUSE    it is what a replace job fills: see [`super::column`]                            cancel: AVAIL, if it got nothing yet
//!     |      the member that was replaced leaves
//!   member   like any other
//! ```
//!
//! Which one: of the same class before one of the same kind of medium before any other; of those the smallest that all fits on, and
//! then the one that came first. Whether it fits is tried like for every replacement.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Engine;
use crate::device::{Device, DeviceState, Role};
use crate::job::Task;
use crate::meta::record::Record;
use crate::request::{Event, Output};
use crate::units::{DeviceId, Instant};

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Spares {
    /// Members that went by themselves, and when. Of others an operator said so.
    gone: BTreeMap<DeviceId, Instant>,
    /// Members that no spare takes the place of, until they are back or another device came: none fits, or an operator did not
    /// want it.
    left_alone: BTreeSet<DeviceId>,
}

impl Engine {
    /// A member went, and nobody said that it should.
    pub(in crate::engine) fn note_gone(&mut self, device: DeviceId) {
        let now = self.now;
        self.moving.spares.gone.entry(device).or_insert(now);
    }

    /// An operator knows that it is away.
    pub(in crate::engine) fn note_sent_away(&mut self, device: DeviceId) {
        self.moving.spares.gone.remove(&device);
    }

    /// Members are not what they were.
    pub(in crate::engine) fn note_members(&mut self) {
        let Engine { pool, moving, .. } = self;
        let is_away = |id: &DeviceId| pool.device(*id).is_some_and(|d| !d.state.is_used());
        moving.spares.gone.retain(|id, _| is_away(id));
        moving.spares.left_alone.retain(is_away);
    }

    /// A device came, perhaps a spare: whom none fitted may have one now.
    pub(in crate::engine) fn note_spare(&mut self) {
        self.moving.spares.left_alone.clear();
    }

    /// Since when a member has needed another one in its place, as far as that is for a spare to do.
    fn due(&self, d: &Device) -> Option<Instant> {
        if d.role != Role::Member || d.spare && !self.is_heir(d.id) || self.moving.spares.left_alone.contains(&d.id) {
            return None;
        }
        let delay = self.pool.properties.spare_delay_ms?;
        match d.state {
            DeviceState::Failed => Some(Instant(0)),
            DeviceState::Missing => Some(*self.moving.spares.gone.get(&d.id)? + delay * 1_000_000),
            _ => None,
        }
    }

    fn has_spare(&self) -> bool {
        self.pool.devices().any(is_available)
    }

    /// Others come first: an operator may end them.
    fn may_use_spare(&self) -> bool {
        self.busy_with().is_none() && !self.moving.closing && !self.commit.is_closed() && !self.commit.is_dead()
    }

    /// When the next member has been missing for long enough; while a job is open only the one that it fills counts.
    pub(in crate::engine) fn spare_deadline(&self) -> Option<Instant> {
        if self.absent == 0 || self.moving.closing || self.commit.is_closed() || self.commit.is_dead() {
            return None;
        }
        let may_use = self.may_use_spare() && self.has_spare();
        let counts = |d: &&Device| may_use || d.spare && self.is_heir(d.id);
        self.pool.devices().filter(counts).filter_map(|d| self.due(d)).filter(|&at| at > self.now).min()
    }

    /// A spare takes the place of a member that needs it.
    pub(super) fn use_spare(&mut self) {
        if self.absent == 0 {
            return;
        }
        self.drop_lost_heir();
        let due = |d: &&Device| self.due(d).is_some_and(|at| at <= self.now);
        let needy: Vec<DeviceId> = self.pool.devices().filter(due).map(|d| d.id).collect();
        if needy.is_empty() || !self.may_use_spare() || !self.has_spare() {
            return;
        }
        for device in needy {
            // What it alone has is lost to a replacement, and may yet come back with it.
            if !self.pool.chunks_on(device).all(|chunk| self.pool.chunk_available(chunk)) {
                self.moving.spares.left_alone.insert(device);
                continue;
            }
            if let Some(by) = self.fitting_spare(device)
                && self.start_job(Task::Replace { device, by }).is_ok()
            {
                return self.outputs.push_back(Output::Event(Event::SpareInUse { device, by }));
            }
            self.moving.spares.left_alone.insert(device);
            self.outputs.push_back(Output::Event(Event::NoSpareFits { device }));
        }
    }

    fn fitting_spare(&self, device: DeviceId) -> Option<DeviceId> {
        let old = self.pool.device(device)?;
        let mut spares: Vec<&Device> = self.pool.devices().filter(|d| is_available(d)).collect();
        spares.sort_by_key(|d| (d.class != old.class, d.rotational != old.rotational, d.size, d.id));
        spares.into_iter().map(|d| d.id).find(|&by| self.may_replace(device, by, core::iter::empty()).is_ok())
    }

    /// A spare that was lost before it had all makes room for the next one.
    fn drop_lost_heir(&mut self) {
        let Some((_, by)) = self.heir().filter(|(_, by)| self.is_heir(*by)) else { return };
        let heir = self.pool.device(by).filter(|d| d.spare);
        if heir.and_then(|d| self.due(d)).is_some_and(|at| at <= self.now) && self.moving.leaving.is_none() {
            self.cancel_running();
        }
    }

    /// An operator ended the job: its member is not given a spare again before it was back.
    pub(super) fn note_spare_unwanted(&mut self) {
        if let Some((old, _)) = self.heir().filter(|(_, by)| self.pool.device(*by).is_some_and(|d| d.spare)) {
            self.moving.spares.left_alone.insert(old);
        }
    }

    /// The job is about to end. Who got something is a member from now on; the record comes before that of the job, so that no
    /// crash leaves a spare that holds content.
    pub(super) fn keep_heir(&mut self, is_done: bool) {
        let Some((_, by)) = self.heir().filter(|(_, by)| self.is_heir(*by)) else { return };
        let got_something = || self.pool.chunks().any(|chunk| chunk.is_on(by));
        let is_kept = is_done || got_something();
        let Some(member) = self.pool.device_mut(by).filter(|d| d.spare && is_kept) else { return };
        member.spare = false;
        let record = Record::Device(member.clone().into());
        self.journal.append(&record);
    }
}

/// It can take a place.
fn is_available(d: &Device) -> bool {
    d.role == Role::Spare && d.state == DeviceState::Online && !d.is_behind
}
