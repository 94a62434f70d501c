//! The other threads' end of a pump: starts one, sends it messages, waits for their answers, stops it.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_core::Engine;
use braid_core::control::{Command, ControlError, Done, ErrorKind};
use braid_core::meta::format::NewDevice;
use braid_core::meta::superblock::Age;
use braid_core::report::PoolReport;
use braid_core::units::{DeviceId, VolumeId};

use super::inbox::{Inbox, Message};
use super::members::Joins;
use super::{Load, Options, Pump, Resume, Resumed, Setup, Taken};
use crate::backend::Disk;
use crate::nbd::Handover;

/// How long a question to a pool may take: a device in its own error recovery takes 30 s at most.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A running pump. Dropping it stops it in order.
pub struct PumpHandle {
    pub(super) inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
    opened: Opened,
}

/// What was found when the pool was opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Opened {
    pub(super) missing: Vec<DeviceId>,
    pub(super) forgotten: u64,
    pub(super) reactor: String,
}

impl PumpHandle {
    /// Opens a pool; what is written in vain is said in one sentence.
    pub fn start(options: Options, disks: Vec<(DeviceId, Disk)>, setup: Setup) -> Result<PumpHandle, String> {
        let (tell, told) = channel();
        let name = match &setup {
            Setup::Create(new) => new.name.clone(),
            Setup::Import(found) => found.first().map(|sb| sb.name.clone()).unwrap_or_default(),
        };
        let thread_name: String = format!("pump-{name}").chars().take(15).collect();
        let run = move || match Pump::open(options, disks, setup) {
            Ok((mut pump, opened)) => {
                let inbox = pump.inbox.clone();
                if tell.send(Ok((inbox, opened))).is_ok() {
                    pump.run();
                }
            }
            Err(reason) => drop(tell.send(Err(reason))),
        };
        let thread = std::thread::Builder::new().name(thread_name).spawn(run);
        let thread = thread.map_err(|e| format!("no thread for pool {name:?}: {e}"))?;
        match told.recv() {
            Ok(Ok((inbox, opened))) => Ok(PumpHandle { inbox, thread: Some(thread), opened }),
            Ok(Err(reason)) => {
                let _ = thread.join();
                Err(reason)
            }
            Err(_) => Err(format!("pool {name:?} could not be opened: its thread ended")),
        }
    }

    fn ask<T>(&self, message: impl FnOnce(Sender<T>) -> Message) -> Result<T, ControlError> {
        let (tell, told) = channel();
        self.inbox.send(message(tell));
        told.recv_timeout(ANSWER_MAX).map_err(|e| match e {
            RecvTimeoutError::Disconnected => ControlError::new(ErrorKind::Io, "the pool has been closed"),
            RecvTimeoutError::Timeout => {
                let text = format!("the pool did not answer within {ANSWER_MAX:?}: does one of its devices hang?");
                ControlError::new(ErrorKind::Busy, text)
            }
        })
    }

    /// Does a command; durable when it returns.
    pub fn control(&self, command: Command) -> Result<Done, ControlError> {
        self.ask(|tell| Message::Control(command, tell))?
    }

    /// Makes a disk a member, or a spare; it is one, durably, when this returns, and what it is to do has begun.
    pub fn add(&self, disk: Disk, new: NewDevice, joins: Joins) -> Result<Done, ControlError> {
        self.ask(|tell| Message::Add(Box::new((disk, new, joins)), tell))?
    }

    /// A member is there again, on this disk, with a superblock that is this far: it is caught up. One in use had a dead disk.
    pub fn online(&self, device: DeviceId, disk: Disk, found: Age) -> Result<Done, ControlError> {
        let command = Some(Command::OnlineDevice { device, found: Some(found) });
        self.ask(|tell| Message::Member(device, Some(Box::new(disk)), command, tell))?
    }

    /// The file of a member that is open, to look at; none of a disk in memory.
    pub fn clone_disk(&self, device: DeviceId) -> Result<Option<Disk>, ControlError> {
        self.ask(|tell| Message::CloneDisk(device, tell))
    }

    /// Closes the disk of a member that is not in use, so that it can be opened anew.
    pub fn let_go(&self, device: DeviceId) -> Result<Done, ControlError> {
        self.ask(|tell| Message::Member(device, None, None, tell))?
    }

    /// Opens a suspended pool again from its disks; one that is not suspended stays as it is.
    pub fn resume(&self, how: Resume) -> Result<Resumed, ControlError> {
        self.ask(|tell| Message::Resume(Box::new(how), tell))?
    }

    /// What the pool says about itself.
    pub fn report(&self) -> Result<PoolReport, ControlError> {
        self.with_engine(Engine::report)
    }

    /// Runs `look` on the pump's thread with the engine: for whatever has no call of its own.
    pub fn with_engine<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        self.ask(|tell| Message::Look(Box::new(move |engine| drop(tell.send(look(engine))))))
    }

    /// Takes over a negotiated NBD connection.
    pub fn adopt(&self, handover: Handover) {
        self.inbox.send(Message::Adopt(Box::new(handover)));
    }

    /// NBD clients of a share.
    pub fn clients(&self, share: u32) -> usize {
        self.ask(|tell| Message::Clients(share, tell)).unwrap_or(0)
    }

    /// Ends the NBD connections of a share: requests in flight are answered, more are not taken.
    pub fn hang_up(&self, share: u32) {
        self.inbox.send(Message::HangUp(share));
    }

    /// Runs requests on the pump's own thread until the load says it is done.
    pub fn load(&self, load: Box<dyn Load>) -> Result<Box<dyn Load>, ControlError> {
        let (tell, told) = channel();
        self.inbox.send(Message::Load(load, tell));
        told.recv().map_err(|_| ControlError::new(ErrorKind::Io, "the pool has been closed"))
    }

    /// What clients asked since the last look, of one volume or of all; the first look begins, and the one that ends is the
    /// last.
    pub fn take_tape(&self, volume: Option<VolumeId>, ends: bool) -> Result<Taken, ControlError> {
        self.ask(|tell| Message::Tape(volume, ends, tell))
    }

    /// Members that were not there when the pool was opened.
    pub fn missing(&self) -> &[DeviceId] {
        &self.opened.missing
    }

    /// Records that a power cut took back, see the core's `Opened::forgotten`.
    pub fn forgotten(&self) -> u64 {
        self.opened.forgotten
    }

    /// `io_uring`, or `threads: ` and what blocked it.
    pub fn reactor(&self) -> &str {
        &self.opened.reactor
    }

    /// Answers what is in flight, writes a checkpoint, closes the disks.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for PumpHandle {
    fn drop(&mut self) {
        self.inbox.send(Message::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a pump ended in a panic; its pool is as after a crash of the process");
        }
    }
}
