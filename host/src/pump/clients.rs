//! NBD clients on the pump's thread: adopted, heard, answered, sent away.
//!
//! A turn costs what there is to do, however many clients there are: who has something to say, answers to send or waits
//! for memory stands in a list of its own.

use std::time::{Duration, Instant as Clock};

use braid_core::request::Reply;
use braid_core::units::{BLOCK, VolumeId};
use braid_core::volume::Extent;

use super::Pump;
use crate::nbd::proto::state;
use crate::nbd::{Action, Connection, Handover, Status};

/// A client that holds memory and sends nothing for this long is sent away.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Extents of one block status reply.
const EXTENTS_MAX: usize = 1024;

/// How often silent clients are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// A connection with what only a clock can tell of it.
pub(super) struct Client {
    connection: Connection,
    watched: (bool, bool),
    /// Bytes in and out when it was last looked at.
    moved: u64,
    silent_since: Clock,
    /// Has answers to send; then it is in [`Pump::answered`].
    answered: bool,
    /// Wants to be read without a socket event; then it is in [`Pump::again`].
    again: bool,
    /// Waits for memory, a place or room; then it is in [`Pump::stalled`].
    stalled: bool,
}

impl Pump {
    pub(super) fn adopt(&mut self, handover: Handover) {
        let place = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if place == self.clients.len() {
            self.clients.push(None);
        }
        let Handover { stream, session, leftover, .. } = handover;
        let mut connection = Connection::new(place as u32, stream, session, leftover);
        if self.stopping.is_some() {
            connection.drain(&mut self.buffers);
        }
        if !self.reactor.watch(connection.fd(), place as u64, true, false) {
            tracing::warn!("an NBD client was sent away: its socket cannot be watched (out of memory?)");
            connection.kill(&mut self.buffers);
        }
        self.present += 1;
        self.again.push(place as u32);
        self.clients[place] = Some(Client {
            connection,
            watched: (true, false),
            moved: 0,
            silent_since: Clock::now(),
            answered: false,
            again: true,
            stalled: false,
        });
    }

    /// Something happened at the socket of a client.
    pub(super) fn ready(&mut self, id: u32, readable: bool, writable: bool, hangup: bool) {
        let Some(client) = self.clients.get_mut(id as usize).and_then(Option::as_mut) else { return };
        if hangup {
            client.connection.hung_up();
        }
        if readable && !std::mem::replace(&mut client.again, true) {
            self.again.push(id);
        }
        if writable && !std::mem::replace(&mut client.answered, true) {
            self.answered.push(id);
        }
    }

    /// Everyone who may have something to say is heard; the most requests that one of them had.
    pub(super) fn hear_all(&mut self) -> usize {
        let mut most = 0;
        let mut hearing = std::mem::replace(&mut self.again, std::mem::take(&mut self.hearing));
        for id in hearing.drain(..) {
            most = most.max(self.hear(id));
        }
        self.hearing = hearing;
        most
    }

    /// Reads what a client has to say; how many requests it had.
    fn hear(&mut self, id: u32) -> usize {
        let Some(client) = self.clients[id as usize].as_mut().filter(|c| c.again) else { return 0 };
        let mut actions = std::mem::take(&mut self.actions);
        let status = client.connection.readable(&mut self.buffers, &mut actions);
        client.again = status == Status::More;
        if client.again {
            self.again.push(id);
        }
        // One that is stalled is heard again when something was answered, not before: see `speak`.
        if status == Status::Stalled && !std::mem::replace(&mut client.stalled, true) {
            self.stalled.push(id);
        }
        if status == Status::Closed || client.connection.wants_write() {
            self.answered.push(id);
        }
        let count = actions.len();
        for action in actions.drain(..) {
            match action {
                Action::Submit(request) => self.submit(request),
                Action::BlockStatus { tag, volume, offset, len, one } => {
                    let extents = self.block_status(volume, offset, len, if one { 1 } else { EXTENTS_MAX });
                    if let Some(client) = self.clients[id as usize].as_mut() {
                        client.connection.block_status(tag, &extents);
                    }
                    self.answered.push(id);
                }
            }
        }
        self.actions = actions;
        count
    }

    fn block_status(&self, volume: VolumeId, offset: u64, len: u64, limit: usize) -> Vec<(u64, u32)> {
        let Some(volume) = self.engine.pool().volume(volume) else { return Vec::new() };
        let (mut at, end) = (offset / BLOCK * BLOCK, offset.saturating_add(len));
        let mut extents: Vec<(u64, u32)> = Vec::new();
        while at < end && extents.len() < limit {
            let extent = volume.map.first(at, (end - at).next_multiple_of(BLOCK));
            let flags = if matches!(extent, Extent::Hole { .. }) { state::HOLE | state::ZERO } else { 0 };
            let (from, to) = (at.max(offset), (at + extent.len()).min(end));
            match extents.last_mut() {
                Some(last) if last.1 == flags => last.0 += to - from,
                _ => extents.push((to - from, flags)),
            }
            at += extent.len();
        }
        extents
    }

    /// The answer to a request of a client; it is sent at the end of the turn, a large one at once.
    pub(super) fn reply_client(&mut self, id: u32, reply: &Reply) {
        let Some(client) = self.clients.get_mut(id as usize).and_then(Option::as_mut) else { return };
        client.connection.reply(reply, &mut self.buffers);
        if client.connection.is_laden() {
            client.connection.flush(&mut self.buffers);
        }
        if !std::mem::replace(&mut client.answered, true) {
            self.answered.push(id);
        }
    }

    /// Every connection with answers sends them, many in one call.
    pub(super) fn speak(&mut self) {
        let mut answered = std::mem::take(&mut self.answered);
        let moved = std::mem::take(&mut self.freed) || !answered.is_empty();
        for id in answered.drain(..) {
            let Some(client) = self.clients.get_mut(id as usize).and_then(Option::as_mut) else { continue };
            client.answered = false;
            client.connection.flush(&mut self.buffers);
            let wanted = (true, client.connection.wants_write());
            if wanted != client.watched && !client.connection.closed() {
                client.watched = wanted;
                if !self.reactor.watch(client.connection.fd(), u64::from(id), wanted.0, wanted.1) {
                    tracing::warn!("an NBD client was sent away: its socket cannot be watched (out of memory?)");
                    client.connection.kill(&mut self.buffers);
                }
            }
            if client.connection.closed() {
                self.reactor.unwatch(client.connection.fd());
                self.clients[id as usize] = None;
                self.present -= 1;
            }
        }
        self.answered = answered;
        if moved {
            // Places and memory may have come back, to anyone who waits for some.
            self.rouse();
            self.refreshed = self.is_thirsty();
        }
    }

    /// Everyone who waits for memory, a place or room is heard again.
    fn rouse(&mut self) {
        for id in self.stalled.drain(..) {
            let Some(client) = self.clients[id as usize].as_mut().filter(|c| c.stalled) else { continue };
            client.stalled = false;
            if client.connection.stalled() && !std::mem::replace(&mut client.again, true) {
                self.again.push(id);
            }
        }
    }

    /// Clients of shares that are meant may ask for nothing more; what they asked for is answered.
    pub(super) fn hang_up(&mut self, is_meant: impl Fn(u32) -> bool) {
        for client in self.clients.iter_mut().flatten().filter(|c| is_meant(c.connection.share())) {
            client.connection.drain(&mut self.buffers);
            self.answered.push(client.connection.id());
        }
    }

    /// How many clients a share has.
    pub(super) fn clients_of(&self, share: u32) -> usize {
        self.clients.iter().flatten().filter(|c| c.connection.share() == share).count()
    }

    pub(super) fn sweep_timeout(&self) -> Option<Duration> {
        (self.present > 0).then_some(SWEEP)
    }

    /// A client that began something and says nothing more holds memory that others could use.
    pub(super) fn sweep(&mut self) {
        let now = Clock::now();
        if now.duration_since(self.last_sweep) < SWEEP {
            return;
        }
        self.last_sweep = now;
        for client in self.clients.iter_mut().flatten() {
            let moved = client.connection.moved();
            // What is stalled waits for us, not for the client.
            let owes = client.connection.mid_request() && !client.connection.stalled();
            if !(owes || client.connection.wants_write()) || moved != client.moved {
                (client.moved, client.silent_since) = (moved, now);
            } else if now.duration_since(client.silent_since) > SILENCE_MAX {
                tracing::info!("an NBD client said nothing for {SILENCE_MAX:?} in the middle of a request");
                client.connection.kill(&mut self.buffers);
                self.answered.push(client.connection.id());
            }
        }
        // Nobody who waits for us is forgotten, whatever else was.
        self.rouse();
    }
}
