//! Disks that come and go while the pool runs.

use std::sync::mpsc::Sender;

use braid_core::control::{Command, ControlError, Done};
use braid_core::meta::format::NewDevice;
use braid_core::request::Input;
use braid_core::units::DeviceId;

use super::Pump;
use crate::backend::Disk;

/// Who waits for the answer to a command.
pub(super) type Tell = Sender<Result<Done, ControlError>>;

impl Pump {
    /// Hands a command to the engine; its answer goes to `tell`.
    pub(super) fn command(&mut self, command: Command, tell: Tell) -> u64 {
        self.next_command += 1;
        let (now, tag) = (self.now(), self.next_command);
        self.commands.insert(tag, tell);
        self.tell_time(now);
        self.engine.handle(now, Input::Control { tag, command });
        tag
    }

    /// Connects a disk under the id that the engine will give it, and asks the engine to take it.
    pub(super) fn add_member(&mut self, disk: Disk, new: NewDevice, tell: Tell) {
        let id = self.engine.pool().next_device_id();
        if self.disks.len() <= id.index() {
            self.disks.resize(id.index() + 1, None);
        }
        let disk = self.reactor.add_disk(disk);
        if let Some(left_over) = self.disks[id.index()].replace(disk) {
            self.reactor.remove_disk(left_over);
        }
        let tag = self.command(Command::AddDevice(Box::new(new)), tell);
        self.joining.insert(tag, id);
    }

    /// The engine has answered: a disk that it does not take is closed.
    pub(super) fn member_answered(&mut self, tag: u64, fine: bool) {
        if let Some(id) = self.joining.remove(&tag).filter(|_| !fine) {
            self.close_member(id);
        }
    }

    /// The engine does not know this member any more.
    pub(super) fn close_member(&mut self, id: DeviceId) {
        if let Some(disk) = self.disks.get_mut(id.index()).and_then(Option::take) {
            self.reactor.remove_disk(disk);
        }
    }
}
