//! Members that come and go at an operator's word.

use alloc::format;
use alloc::vec::Vec;

use super::Engine;
use super::control::{Due, Outcome};
use crate::control::{ControlError, Done, ErrorKind};
use crate::device::DeviceState;
use crate::engine::Slip;
use crate::meta::Superblock;
use crate::meta::assembly::is_older;
use crate::meta::record::Record;
use crate::meta::superblock::Age;
use crate::regions::{self, REGION, Region};
use crate::request::{Event, IoError, Output};
use crate::units::DeviceId;
use crate::volume::Entry;

impl Engine {
    /// The host has the member open again. What it missed is noted and is caught up; of one that was given up nothing was
    /// noted, so it is behind in everything. One in use has something to say only where the host found it anew.
    pub(super) fn online_device(&mut self, id: DeviceId, found: Option<Age>) -> Outcome {
        let state = self.member(id)?;
        let least = self.pool.device(id).map_or(Age::default(), |d| d.age);
        let is_older = found.is_some_and(|found| is_older(found, least));
        if state.is_used() {
            if let Some(found) = found {
                self.connected_anew(id);
                if is_older {
                    self.pool.device_mut(id).expect("just seen").age = found;
                    self.note_older(id);
                    self.is_to_get_records(id);
                    self.ask_for_records();
                }
            }
            let done = if self.try_again(id) || found.is_some() { Done::Changed } else { Done::Unchanged };
            return Ok((done, Due::Now));
        }
        if self.commit.is_dead() {
            let text =
                format!("pool {:?} cannot write its records; see to its devices, then: braid clear", self.pool.name);
            return Err(ControlError::new(ErrorKind::Io, text));
        }
        let is_spared = self.spares(id);
        if state == DeviceState::Failed || is_older && is_spared {
            self.note_all_stale(id);
        }
        if is_older {
            self.outputs.push_back(Output::Event(Event::DeviceOlder { device: id, is_spared }));
        }
        let member = self.pool.device_mut(id).expect("just seen");
        member.become_state(DeviceState::Suspect);
        (member.faults, member.is_behind, member.age) = (0, true, found.unwrap_or(least));
        let record = Record::Device(member.clone().into());
        self.journal.append(&record);
        self.renew_roster(id);
        self.post_views();
        self.begin_again();
        self.ask_for_records();
        Ok((Done::Changed, Due::Checkpoint))
    }

    /// Whether what a member says of itself belongs to this pool's line: else it was opened without the others meanwhile, and
    /// holds what none of them knows.
    pub fn knows(&self, member: &Superblock) -> bool {
        self.commit.knows(member)
    }

    /// Takes a member out of use, if everything on it is elsewhere too.
    pub(super) fn offline_device(&mut self, id: DeviceId) -> Outcome {
        let state = self.member(id)?;
        if !state.is_used() {
            return Ok((Done::Unchanged, Due::Now));
        }
        if !self.spares(id) && self.spares_soon(id) {
            let text = format!(
                "pool {:?} is about to write down that others have caught up with device {id}; try again in a moment",
                self.pool.name
            );
            return Err(ControlError::new(ErrorKind::Busy, text));
        }
        if !self.spares(id) {
            let text = format!(
                "pool {:?} holds something that has no other copy on a member that is there than that of device {id}; \
                 it cannot be taken out of use",
                self.pool.name
            );
            return Err(ControlError::new(ErrorKind::Refused, text));
        }
        self.member_goes(id, IoError::Gone, Event::DeviceOffline { device: id });
        self.note_sent_away(id);
        // Nothing was said since the opening where it had nothing to lose.
        let due = self.journal.appended().checked_sub(1).map_or(Due::Now, Due::Stable);
        Ok((Done::Changed, due))
    }

    pub(super) fn member(&self, id: DeviceId) -> Result<DeviceState, ControlError> {
        let missing =
            || ControlError::new(ErrorKind::NotFound, format!("pool {:?} has no device {id}", self.pool.name));
        self.pool.device(id).filter(|d| d.is_recorded()).map(|d| d.state).ok_or_else(missing)
    }

    /// A member is not there any more.
    pub(super) fn member_went(&mut self, device: DeviceId, error: IoError) {
        self.member_goes(device, error, Event::DeviceFailed { device, error });
    }

    /// What it has of the last writes may be gone with its cache.
    fn member_goes(&mut self, device: DeviceId, error: IoError, event: Event) {
        let Some(member) = self.pool.device_mut(device).filter(|d| d.state.is_used()) else { return };
        member.become_state(DeviceState::Missing);
        self.note_gone(device);
        self.renew_roster(device);
        self.outputs.push_back(Output::Event(event));
        self.post_views();
        let is_spared = self.lose_unflushed(device, error);
        if !self.spares_system(device) {
            // Nor is there a log to note that in: no later flush would know.
            return self.commit.kill();
        }
        // What others have as well is noted. Of the rest the next flush tells whoever it belongs to, as after a flush that failed; for
        // this member there is nothing left to flush.
        if let Some(member) = self.pool.device_mut(device) {
            member.flushed = member.written;
        }
        if !is_spared {
            self.covered_lost();
        }
    }

    /// A member came or went: who writes meanwhile asks for it, and what was on its way there begins anew.
    pub(super) fn renew_roster(&mut self, device: DeviceId) {
        self.roster += 1;
        if let Some(member) = self.pool.device_mut(device) {
            member.roster = self.roster;
        }
        self.copies_lost(device);
    }

    /// At an opening: the superblock of a member is older than it can be, so it is a copy of another time, or could not be written for
    /// long. Nothing the member holds counts, where others have it.
    pub(super) fn note_older(&mut self, device: DeviceId) {
        if !self.pool.is_online(device) || self.slips(Slip::OlderTrusted) {
            return;
        }
        let is_spared = self.spares(device);
        if is_spared {
            self.note_all_stale(device);
            if let Some(member) = self.pool.device_mut(device).filter(|d| d.state == DeviceState::Online) {
                member.become_state(DeviceState::Suspect);
            }
            self.post_views();
        }
        self.outputs.push_back(Output::Event(Event::DeviceOlder { device, is_spared }));
    }

    fn note_all_stale(&mut self, device: DeviceId) {
        let mut all: Vec<(Region, u64)> = Vec::new();
        let mut add = |region| {
            if all.last().is_none_or(|(last, _)| *last != region) {
                all.push((region, 0));
            }
        };
        for volume in self.pool.volumes() {
            let mirrored =
                |entry: &Entry| self.pool.chunk(entry.chunk()).is_some_and(|c| c.rows() == 0 && c.is_on(device));
            let units = volume.map.entries().filter(|(_, entry)| mirrored(entry));
            units.for_each(|(unit, _)| add(regions::of_unit(volume.id, unit)));
        }
        for chunk in self.pool.chunks().filter(|c| c.is_on(device)) {
            let live = (0..chunk.rows()).filter(|&row| chunk.is_live(row));
            live.for_each(|row| add(regions::of_row(chunk.id, row)));
        }
        debug_assert!(all.iter().all(|((_, region), _)| region.checked_mul(REGION).is_some()));
        self.note_stale(device, &all);
    }
}
