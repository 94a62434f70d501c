//! Requests made on the pump's own thread, without any protocol: benches, and tests of the engine under real disks.

use std::sync::mpsc::Sender;

use braid_core::request::{Input, Op, Reply, Request};
use braid_core::units::{BLOCK, BufId};

use super::Pump;

/// The upper half of the tags of requests of a [`Load`].
pub(super) const LOAD: u32 = u32::MAX - 1;

/// Requests made on the pump's own thread, without any protocol: benches and tests of the engine under real disks.
pub trait Load: Send + std::any::Any {
    /// The next request to keep the queue full, with the length of the buffer it needs; None when there is none now.
    /// `tag` is to be the request's.
    fn next(&mut self, tag: u64) -> Option<Request>;
    /// Puts the payload of a write into its buffer.
    fn fill(&mut self, request: &Request, bytes: &mut [u8]);
    /// One was answered; a read's content is in `bytes`. False ends the load once all others are answered.
    fn done(&mut self, tag: u64, reply: &Reply, bytes: &[u8]) -> bool;
    /// Requests to keep in flight.
    fn depth(&self) -> usize;
}

impl dyn Load {
    /// To get back what was handed to `PumpHandle::load`.
    pub fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

pub(super) struct Running {
    load: Box<dyn Load>,
    tell: Sender<Box<dyn Load>>,
    buffers: Vec<Option<BufId>>,
    idle: Vec<u32>,
    ending: bool,
}

impl Pump {
    pub(super) fn start_load(&mut self, load: Box<dyn Load>, tell: Sender<Box<dyn Load>>) {
        let depth = load.depth();
        self.reactor.heard(depth);
        let idle = (0..depth as u32).rev().collect();
        self.loads = Some(Running { load, tell, buffers: vec![None; depth], idle, ending: false });
        self.feed_load();
    }

    /// True when there was something to feed.
    pub(super) fn feed_load(&mut self) -> bool {
        let Some(mut running) = self.loads.take() else { return false };
        let now = self.now();
        let mut fed = false;
        while !running.ending
            && let Some(slot) = running.idle.pop()
        {
            let Some(mut request) = running.load.next(u64::from(LOAD) << 32 | u64::from(slot)) else {
                running.idle.push(slot);
                break;
            };
            if matches!(request.op, Op::Read | Op::Write { .. }) {
                let envelope = (request.offset % BLOCK + request.len).next_multiple_of(BLOCK) as usize;
                let buf = running.buffers[slot as usize].take();
                let buf = match buf {
                    Some(buf) if self.buffers.bytes(buf).len() >= envelope => Some(buf),
                    Some(small) => {
                        self.buffers.free(small);
                        self.buffers.alloc(envelope)
                    }
                    None => self.buffers.alloc(envelope),
                };
                let Some(buf) = buf else {
                    running.ending = true;
                    break;
                };
                running.buffers[slot as usize] = Some(buf);
                request.buf = buf;
                if matches!(request.op, Op::Write { .. }) {
                    let skew = (request.offset % BLOCK) as usize;
                    running.load.fill(&request, &mut self.buffers.bytes_mut(buf)[skew..]);
                }
            }
            self.engine.handle(now, Input::Submit(request));
            fed = true;
        }
        self.loads = Some(running);
        self.end_load();
        fed
    }

    pub(super) fn reply_load(&mut self, reply: &Reply) {
        let Some(running) = &mut self.loads else { return };
        let slot = reply.tag as u32;
        let bytes = match running.buffers[slot as usize] {
            Some(buf) => self.buffers.bytes(buf),
            None => &[],
        };
        running.ending |= !running.load.done(reply.tag, reply, bytes);
        running.idle.push(slot);
        self.end_load();
    }

    fn end_load(&mut self) {
        if self.loads.as_ref().is_some_and(|r| r.ending && r.idle.len() == r.buffers.len()) {
            let running = self.loads.take().expect("just seen");
            for buf in running.buffers.into_iter().flatten() {
                self.buffers.free(buf);
                self.freed = true;
            }
            let _ = running.tell.send(running.load);
        }
    }
}
