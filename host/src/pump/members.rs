//! Disks that come and go while the pool runs.

use std::sync::mpsc::Sender;

use braid_core::control::{Command, ControlError, Done};
use braid_core::meta::format::NewDevice;
use braid_core::request::Input;
use braid_core::units::DeviceId;

use super::Pump;
use crate::backend::Disk;

/// What a disk becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// A member like any other.
    AsMember,
    /// One that is held back until another one fails.
    AsSpare,
    /// One that gets what this one has, which then leaves.
    InsteadOf(DeviceId),
}

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
    pub(super) fn add_member(&mut self, (disk, new, joins): (Disk, NewDevice, Joins), tell: Tell) {
        let id = self.engine.pool().next_device_id();
        self.put_disk(id, Some(disk));
        let new = Box::new(new);
        let command = match joins {
            Joins::AsMember => Command::AddDevice(new),
            Joins::AsSpare => Command::AddSpare(new),
            Joins::InsteadOf(device) => Command::ReplaceWith { device, new },
        };
        let tag = self.command(command, tell);
        self.joining.insert(tag, id);
    }

    /// Puts a member's disk in place of the one that was there, then the command. The engine sends nothing to a member that it
    /// does not use, so that can lose its disk; one in use gets another where its own is dead, and commands under way fail.
    pub(super) fn change_member(
        &mut self,
        id: DeviceId,
        disk: Option<Box<Disk>>,
        command: Option<Command>,
        tell: Tell,
    ) {
        let is_used = self.engine.pool().device(id).is_some_and(|device| device.state.is_used());
        if !is_used || disk.is_some() {
            self.put_disk(id, disk.map(|disk| *disk));
        }
        match command {
            Some(command) => drop(self.command(command, tell)),
            None => drop(tell.send(Ok(Done::Unchanged))),
        }
    }

    pub(super) fn clone_disk(&self, id: DeviceId) -> Option<Disk> {
        self.reactor.clone_disk(self.disks.get(id.index()).copied().flatten()?)
    }

    /// The disk of this id from now on; the one before is closed.
    pub(super) fn put_disk(&mut self, id: DeviceId, disk: Option<Disk>) {
        if self.disks.len() <= id.index() {
            self.disks.resize(id.index() + 1, None);
        }
        let disk = disk.map(|disk| self.reactor.add_disk(disk));
        if let Some(old) = core::mem::replace(&mut self.disks[id.index()], disk) {
            self.reactor.remove_disk(old);
        }
    }

    /// The engine has answered: a disk that it does not take is closed.
    pub(super) fn member_answered(&mut self, tag: u64, fine: bool) {
        if let Some(id) = self.joining.remove(&tag).filter(|_| !fine) {
            self.close_member(id);
        }
    }

    /// The engine does not know this member any more.
    pub(super) fn close_member(&mut self, id: DeviceId) {
        self.put_disk(id, None);
    }
}
