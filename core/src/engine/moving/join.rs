//! A device joins a pool that runs.
//!
//! ```text
//!   checkpoint, checkpoint   both slots of its superblock are this pool's        a crash here: a stranger, as before
//!   record                   the pool knows it                                   a crash here: a member
//!   job                      if it is to get what another member has
//!   answer                   when that is stable; chunks may go there
//! ```
//!
//! The superblock comes first, so that no record ever names a member that says nothing of itself. Two checkpoints, as each
//! writes one slot and the other may hold a newer one of an earlier pool.

use alloc::boxed::Box;
use alloc::format;

use super::{Engine, Waiter};
use crate::control::{ControlError, Done, ErrorKind};
use crate::device::{Device, DeviceState, Role};
use crate::engine::control::{Due, Outcome};
use crate::job::Task;
use crate::meta::format::NewDevice;
use crate::meta::record::{DEVICES_MAX, Record};
use crate::request::Output;
use crate::units::DeviceId;

/// Slots of a superblock.
const SLOTS: u8 = 2;

impl Engine {
    /// Checks a device and begins to make it a member. The caller has connected it under [`Pool::next_device_id`].
    ///
    /// [`Pool::next_device_id`]: crate::Pool::next_device_id
    pub(in crate::engine) fn add_device(&mut self, new: &NewDevice, spare: bool) -> Outcome {
        new.check()?;
        let refuse = |kind, text| Err(ControlError::new(kind, text));
        let id = self.pool.next_device_id();
        if id.0 >= DEVICES_MAX {
            return refuse(ErrorKind::Usage, format!("a pool has fewer than {DEVICES_MAX} devices in its life"));
        }
        if let Some(known) = self.pool.devices().find(|d| d.uuid == new.uuid) {
            return refuse(ErrorKind::Exists, format!("{} is device {} of this pool already", new.path, known.id));
        }
        let device = Device { role: Role::Joining, spare, ..Device::new(id, new) };
        self.pool.properties.check_queues([&device].into_iter())?;
        self.pool.welcome(device);
        self.post_views();
        Ok((Done::Device(id), Due::Joined { device: id, slots: SLOTS }))
    }

    /// The same for one that is to get what a member has. Until that begins no other job does.
    pub(in crate::engine) fn join_to_replace(&mut self, old: DeviceId, new: &NewDevice) -> Outcome {
        let by = self.pool.next_device_id();
        self.may_replace(old, by, core::iter::once(Device::new(by, new)))?;
        let joins = self.add_device(new, false)?;
        self.moving.promised = Some((old, by));
        Ok(joins)
    }

    /// A checkpoint ended that wrote one slot of its superblock.
    pub(in crate::engine) fn slot_written(&mut self, tag: u64, device: DeviceId, slots: u8, fine: bool) {
        // Who missed a record has no superblock written.
        let is_well = fine && self.pool.device(device).is_some_and(|d| d.state == DeviceState::Online && !d.is_behind);
        if is_well && slots > 1 {
            return self.join_checkpoint(Waiter::Join { tag, device, slots: slots - 1 });
        }
        let member = self.pool.device_mut(device).filter(|_| is_well);
        let promised = self.moving.promised.take_if(|(_, by)| *by == device);
        let Some(member) = member else {
            self.forget_member(device);
            let text = format!("device {device} could not be written and is no member of pool {:?}", self.pool.name);
            let result = Err(ControlError::new(ErrorKind::Io, text));
            return self.outputs.push_back(Output::Done { tag, result });
        };
        member.role = if member.spare { Role::Spare } else { Role::Member };
        let record = Record::Device(Box::new(member.clone()));
        // What the old one has may have grown meanwhile.
        if let Some((old, by)) = promised
            && let Err(why) = self.may_replace(old, by, core::iter::empty())
        {
            self.forget_member(device);
            return self.outputs.push_back(Output::Done { tag, result: Err(why) });
        }
        let mut lsn = self.journal.append(&record);
        self.pool.apply(record).expect("a member changes");
        self.post_views();
        self.note_spare();
        if let Some((old, by)) = promised {
            match self.start_job(Task::Replace { device: old, by }) {
                Ok((_, Due::Stable(begun))) => lsn = begun,
                Ok(_) => {}
                Err(why) => return self.outputs.push_back(Output::Done { tag, result: Err(why) }),
            }
        }
        self.wait_stable(lsn, Waiter::Control { tag, done: Done::Device(device) });
    }
}
