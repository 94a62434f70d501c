//! Disks that come to a pool that runs.

use braid_core::control::Command;
use braid_core::meta::format::NewDevice;
use braid_core::units::{DeviceId, Uuid};

use super::life::config_of;
use super::{Load, Shape, World};
use crate::disk;
use crate::watch::Watch;

impl World {
    /// Connects an empty disk as the next member to be, and asks the engine to take it; the tag of the command.
    pub fn add_disk(&mut self, shape: &Shape) -> u64 {
        self.connect(shape, Command::AddDevice)
    }

    /// The same, held back until a member fails.
    pub fn add_spare(&mut self, shape: &Shape) -> u64 {
        self.connect(shape, Command::AddSpare)
    }

    /// The same, to get what a member has, which then leaves.
    pub fn replace_with(&mut self, device: DeviceId, shape: &Shape) -> u64 {
        self.connect(shape, |new| Command::ReplaceWith { device, new })
    }

    fn connect(&mut self, shape: &Shape, as_what: impl FnOnce(Box<NewDevice>) -> Command) -> u64 {
        let id = self.engine().pool().next_device_id();
        let mut made = disk::array([(shape.size, &shape.model)].into_iter(), &mut self.rng);
        let new = made.pop().expect("one disk");
        // What an earlier one left behind on its way into the pool is unplugged.
        match self.disks.get_mut(id.index() - 1) {
            Some(disk) => *disk = new,
            None => self.disks.push(new),
        }
        self.loads.resize(self.disks.len(), Load::default());
        self.next_tag += 1;
        let command = as_what(Box::new(NewDevice {
            uuid: Uuid((u128::from(self.next_tag) << 64 | u128::from(id.0)).to_le_bytes()),
            path: format!("disk{}", id.index() - 1),
            size: shape.size,
            class: braid_core::DeviceClass::parse(shape.class).expect("a class"),
            rotational: shape.model.is_rotational(),
            tiers: None,
            hint: Default::default(),
        }));
        // One disk after the other: the next one's id is known when this one has its own.
        let tag = self.command(command);
        while self.watches.len() < id.index() {
            let id = DeviceId(self.watches.len() as u32 + 1);
            self.watches.push(Watch::new(id, config_of(self.engine(), id)));
        }
        self.drain();
        tag
    }
}
