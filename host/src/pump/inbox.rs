//! The inbox: what other threads ask of a pump. It is emptied once a turn.

use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::time::Instant as Clock;

use braid_core::Engine;
use braid_core::control::{Command, ControlError};
use braid_core::meta::format::NewDevice;
use braid_core::units::{DeviceId, VolumeId};

use super::members::{Joins, Tell};
use super::{Load, Pump, Resume, Resumed, Taken};
use crate::backend::Disk;
use crate::nbd::Handover;
use crate::reactor::Waker;

pub(super) struct Inbox {
    /// None once the pump has ended: whoever asks then hears so at once.
    pub(super) messages: Mutex<Option<Vec<Message>>>,
    pub(super) waker: Waker,
}

impl Inbox {
    pub(super) fn send(&self, message: Message) {
        // A message to nobody is dropped here, and with it the sender that an answer would have come from.
        if let Some(messages) = &mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner) {
            messages.push(message);
        }
        self.waker.wake();
    }
}

/// However the pump ends, a panic included, nobody waits for it for ever.
impl Drop for Pump {
    fn drop(&mut self) {
        let left = self.inbox.messages.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(left);
    }
}

type Look = Box<dyn FnOnce(&Engine) + Send>;

/// A call over FUSE, the volume it is for, and the mount it came through.
#[cfg(feature = "fuse")]
pub(super) type Addressed = (braid_core::units::VolumeId, braid_core::units::ClientId, crate::fuse::Call);

pub(super) enum Message {
    Control(Command, Tell),
    /// A disk that is to be a member.
    Add(Box<(Disk, NewDevice, Joins)>, Tell),
    Look(Look),
    /// A member's disk, where there is one now, in place of the one that was there; then the command.
    Member(DeviceId, Option<Box<Disk>>, Option<Command>, Tell),
    /// The file of a member that is open, for who wants to look at it.
    CloneDisk(DeviceId, Sender<Option<Disk>>),
    Adopt(Box<Handover>),
    HangUp(u32),
    Clients(u32, Sender<usize>),
    #[cfg(feature = "fuse")]
    Call(Addressed),
    Load(Box<dyn Load>, Sender<Box<dyn Load>>),
    /// What was noted of requests, of a volume or of all, and whether that is enough.
    Tape(Option<VolumeId>, bool, Sender<Taken>),
    /// The pool could not write its records; it is opened again.
    Resume(Box<Resume>, Sender<Result<Resumed, ControlError>>),
    Stop,
}

impl Pump {
    pub(super) fn open_inbox(&mut self) {
        let messages = {
            let mut inbox = self.inbox.messages.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.as_mut().map(std::mem::take).unwrap_or_default()
        };
        for message in messages {
            match message {
                Message::Control(command, tell) => drop(self.command(command, tell)),
                Message::Add(member, tell) => self.add_member(*member, tell),
                Message::Member(id, disk, command, tell) => self.change_member(id, disk, command, tell),
                Message::Look(look) => look(&self.engine),
                Message::CloneDisk(id, tell) => drop(tell.send(self.clone_disk(id))),
                Message::Adopt(handover) => self.adopt(*handover),
                Message::HangUp(share) => self.hang_up(|of| of == share),
                Message::Clients(share, tell) => drop(tell.send(self.clients_of(share))),
                #[cfg(feature = "fuse")]
                Message::Call(call) => {
                    self.called += 1;
                    self.thirsty_calls.push_back(call);
                }
                Message::Load(load, tell) => self.start_load(load, tell),
                Message::Tape(volume, ends, tell) => {
                    let now = self.now();
                    drop(tell.send(self.engine.look_at_tape(now, volume, ends)));
                }
                Message::Resume(how, tell) => drop(tell.send(self.resume(*how))),
                Message::Stop => {
                    self.stopping.get_or_insert_with(Clock::now);
                    self.hang_up(|_| true);
                }
            }
        }
    }
}
