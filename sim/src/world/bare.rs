//! The world of a measurement: the same engine through the same door, but no payload, no oracle and no watch.
//!
//! ```text
//!   kept      the pool's own records, so that it can be closed and opened again; commands, their times and failures
//!   left out  what a volume holds, and every check of it: the swarm is there for that
//! ```
//!
//! Ranges that a scrub compares are the same here: nothing else could be true of what nobody wrote.

use braid_core::request::{DeviceOp, Dispatch, Input, IoError, Op, Request, Segment};
use braid_core::units::{BufId, ClientId};

use super::{Asked, World};
use crate::disk::Content;

/// What one device had to do, in commands: how many at once, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Commands there now.
    pub in_flight: u64,
    /// ns with a command there.
    pub busy_ns: u64,
    /// Sum over its commands of the ns that they were there.
    pub command_ns: u64,
    since: u64,
}

impl Load {
    /// As of this moment.
    pub fn at(mut self, now: u64) -> Load {
        let ns = now - self.since;
        self.busy_ns += if self.in_flight > 0 { ns } else { 0 };
        self.command_ns += ns * self.in_flight;
        self.since = now;
        self
    }

    pub(super) fn begins(&mut self, now: u64) {
        *self = self.at(now);
        self.in_flight += 1;
    }

    pub(super) fn ends(&mut self, now: u64) {
        *self = self.at(now);
        self.in_flight -= 1;
    }
}

impl World {
    /// A world that only measures: commands take exactly what the model says, and payload is not kept.
    pub fn without_payload(seed: u64) -> World {
        World { keeps_payload: false, exact: true, ..World::new(seed) }
    }

    /// When something will happen by itself.
    pub fn next_at(&self) -> Option<u64> {
        let due = self.heap.peek().map(|entry| entry.0.0);
        due.into_iter().chain(self.held.iter().map(|held| held.0)).chain(self.wake).min()
    }

    /// Nothing happens before that moment, and it is now.
    pub fn wait_until(&mut self, at: u64) {
        assert!(self.next_at().is_none_or(|next| next >= at), "something happens before {at}");
        self.now = self.now.max(at);
    }

    /// Hands the batch over and does not let the engine act yet, as a plug that more is coming to.
    pub fn hand_over(&mut self) {
        for input in std::mem::take(&mut self.batch) {
            self.input(input);
        }
    }

    /// What this client asks chooses its copies and goes no further.
    pub fn plug(&mut self, client: u32) {
        self.engine.as_mut().expect("the engine is up").plug(ClientId(client));
    }

    /// What it held back goes on when the batch ends.
    pub fn unplug(&mut self, client: u32) {
        self.hand_over();
        self.engine.as_mut().expect("the engine is up").unplug(ClientId(client));
    }

    pub(super) fn submit_bare(&mut self, mut request: Request) -> u64 {
        request.tag = self.next_tag;
        self.next_tag += 1;
        if matches!(request.op, Op::Read | Op::Write { .. }) {
            // A name is all there is of it; the highest ones are the engine's own.
            request.buf = BufId(request.tag as u32 & 0x7fff_ffff);
        }
        self.asked.insert(request.tag, Asked { request, op: request.tag, mark: 0 });
        self.batch.push(Input::Submit(request));
        request.tag
    }

    /// What of a command has to be there when the pool is opened again; payload that goes with it is zeros.
    pub(super) fn records_of(&self, dispatch: Dispatch) -> Content {
        let mut content = Content::new();
        let is_record = |segment: Segment<'_>| matches!(segment, Segment::Record(_));
        if !matches!(dispatch.op, DeviceOp::Write { .. }) || !self.engine().segments(dispatch.id).any(is_record) {
            return content;
        }
        for segment in self.engine().segments(dispatch.id) {
            match segment {
                Segment::Record(bytes) => content.push_bytes(bytes),
                Segment::Payload(range) => content.push_zeros(range.len.into()),
                Segment::Gap(_) => unreachable!("writes have no gaps"),
            }
        }
        content
    }

    pub(super) fn complete_bare(&mut self, dispatch: Dispatch, content: &Content, fails: Option<IoError>) {
        let Dispatch { id, device, offset, len, .. } = dispatch;
        if fails.is_none() && !content.is_empty() {
            assert_eq!(content.len(), len, "part of a command: {dispatch:?}");
            self.disks[device.index() - 1].write(offset, content, true, || true);
        }
        let input = match fails {
            None => self.read_done(id),
            Some(error) => Input::Complete { id, result: Err(error) },
        };
        self.input(input);
    }

    /// The engine stops and is opened again from what is on the disks: what it had learnt is forgotten.
    pub fn reopen(&mut self) -> Result<(), String> {
        assert!(self.engine().is_quiet(), "something is under way");
        self.engine = None;
        self.wake = None;
        self.heap.clear();
        self.disks.iter_mut().for_each(|disk| disk.settle());
        self.open()
    }
}
