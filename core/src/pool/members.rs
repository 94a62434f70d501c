//! Who comes to a pool and who goes.

use alloc::format;

use super::{Contradiction, Pool, put};
use crate::device::Device;
use crate::units::DeviceId;

impl Pool {
    /// The id of the next member. No id is used twice: what a device that left says of itself stays recognizable.
    pub fn next_device_id(&self) -> DeviceId {
        DeviceId(self.next_device.max(self.devices.len() as u32).max(1))
    }

    /// A member that no record has yet.
    pub(crate) fn welcome(&mut self, device: Device) {
        self.members_changed();
        put(&mut self.devices, device.id.index(), device);
    }

    /// A member that nothing is on goes; one that is gone already stays gone.
    pub(super) fn drop_member(&mut self, id: DeviceId) -> Result<(), Contradiction> {
        if let Some(device) = self.device(id)
            && !device.used.is_empty()
        {
            return Err(Contradiction(format!("device {id} goes and has chunks")));
        }
        self.next_device = self.next_device.max(id.0 + 1);
        self.forget_member(id);
        Ok(())
    }

    /// Takes a member off the table.
    pub(crate) fn forget_member(&mut self, id: DeviceId) {
        if let Some(place) = self.devices.get_mut(id.index()) {
            *place = None;
        }
        self.members_changed();
    }
}
