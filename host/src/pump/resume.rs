//! A pool that could not write its records any more is opened again from its disks, with the clients that it has.
//!
//! ```text
//!   suspended engine --at rest--> superblocks, records of the disks --> new engine
//!         |                                    |
//!         '--- goes on as it was if they do not make a pool
//! ```
//!
//! Nothing that was answered is lost, as after the end of the process alone. Only where a disk was connected anew, or lost its cache
//! before, may something be gone that nobody had flushed: then the next flush of each volume fails.

use std::time::Instant as Clock;

use braid_core::Engine;
use braid_core::control::{ControlError, ErrorKind};
use braid_core::meta::Superblock;
use braid_core::units::{DeviceId, Uuid};

use super::open::Opening;
use super::stop::PATIENCE;
use super::{Pump, Without};
use crate::backend::Disk;

/// How to open it again.
#[derive(Default)]
pub struct Resume {
    /// Disks of members that were found anew: what nobody had flushed counts as lost, as after a power cut.
    pub disks: Vec<(DeviceId, Disk)>,
    /// Members that cannot be read are done without, if the others say that they were.
    pub without_unread: bool,
}

/// What came of it.
#[derive(Debug)]
pub enum Resumed {
    /// It is open.
    Open {
        /// Members that are not there.
        missing: Vec<DeviceId>,
        /// Records that a power cut took back.
        forgotten: u64,
        /// Something may be gone that clients had not flushed.
        is_loss: bool,
    },
    /// It is as it was: these members could not be read, and their disks are closed.
    Unread(Vec<DeviceId>),
}

impl Pump {
    pub(super) fn resume(&mut self, how: Resume) -> Result<Resumed, ControlError> {
        if !self.engine.is_suspended() {
            return Ok(Resumed::Open { missing: Vec::new(), forgotten: 0, is_loss: false });
        }
        if self.stopping.is_some() || self.loads.is_some() || !self.comes_to_rest(Clock::now() + PATIENCE) {
            let text =
                format!("pool {:?} has requests in flight; try again when they are done", self.engine.pool().name);
            return Err(ControlError::new(ErrorKind::Busy, text));
        }
        let anew: Vec<DeviceId> = how.disks.iter().map(|(id, _)| *id).collect();
        how.disks.into_iter().for_each(|(id, disk)| self.put_disk(id, Some(disk)));
        let mut opening = Opening::new(&mut self.reactor, &self.disks);
        let pool = self.engine.pool();
        let (mut found, mut unread) = (Vec::new(), Vec::new());
        for member in pool.devices() {
            let is_its = |sb: &Superblock| (sb.pool, sb.device_uuid) == (pool.uuid, member.uuid);
            match opening.superblock(member.id).filter(is_its) {
                Some(mut superblock) => {
                    // As at an import, the name that the pool has here is written by the first checkpoint.
                    superblock.name.clone_from(&pool.name);
                    if !anew.is_empty() {
                        superblock.boot = Uuid::default();
                    }
                    found.push(superblock);
                }
                // One that was given up too: that may be among the records that were never written.
                None => unread.push(member.id),
            }
        }
        let opened = match unread.is_empty() || how.without_unread {
            true => Some(opening.assemble(found, &[], self.boot, Without::Away, &mut |_| {})),
            false => None,
        };
        let meanwhile = std::mem::take(&mut opening.meanwhile);
        meanwhile.into_iter().for_each(|event| self.event(event));
        let Some(opened) = opened else {
            // So that who looks for them anew is not told that they are in use.
            unread.iter().for_each(|&id| self.close_member(id));
            return Ok(Resumed::Unread(unread));
        };
        let opened = opened.map_err(|why| {
            // The next try is to know that they are others, too.
            anew.iter().for_each(|&id| self.close_member(id));
            ControlError::new(ErrorKind::Io, why)
        })?;
        let is_loss = !anew.is_empty() || self.engine.owes_a_loss();
        let resumed = Resumed::Open { missing: opened.missing.clone(), forgotten: opened.forgotten, is_loss };
        let opening = Uuid(uuid::Uuid::new_v4().into_bytes());
        let engine = Engine::new(*opened, self.now(), self.boot, opening);
        self.engine.replace(if is_loss { engine.after_loss() } else { engine });
        self.buffers.forget_engine();
        // At rest nothing is left of these but who waited for something that never came.
        self.commands.clear();
        self.joining.clear();
        self.tell_time(self.now());
        Ok(resumed)
    }
}
