//! Payload memory: requests that wait for some, and what the engine wants done with it.
//!
//! Who waits does so in order of arrival; nobody is overtaken by one who needs less.

use braid_core::request::{Copy, Input, Op, Request};
use braid_core::units::BLOCK;

use super::Pump;
use crate::buffers::SLAB_MAX;

impl Pump {
    pub(super) fn submit(&mut self, request: Request) {
        // A read is about to touch memory that nobody has counted yet.
        let large = request.op == Op::Read && request.len as usize > SLAB_MAX;
        if large && (!self.thirsty.is_empty() || !self.touch(&request)) {
            self.thirsty.push_back(request);
            return;
        }
        let now = self.now();
        self.engine.handle(now, Input::Submit(request));
    }

    fn touch(&mut self, request: &Request) -> bool {
        let len = request.len + request.offset % BLOCK;
        self.buffers.touched(request.buf, len as usize)
    }

    /// Memory may have come back: who waited for some goes on.
    pub(super) fn quench(&mut self) {
        self.refreshed = false;
        while let Some(request) = self.thirsty.front().copied()
            && self.touch(&request)
        {
            self.thirsty.pop_front();
            let now = self.now();
            self.engine.handle(now, Input::Submit(request));
        }
        #[cfg(feature = "fuse")]
        while let Some((volume, client, call)) = self.thirsty_calls.pop_front() {
            if let Some(call) = self.call(volume, client, call) {
                self.thirsty_calls.push_front((volume, client, call));
                break;
            }
        }
    }

    /// Requests wait for memory.
    pub(super) fn is_thirsty(&self) -> bool {
        #[cfg(feature = "fuse")]
        if !self.thirsty_calls.is_empty() {
            return true;
        }
        !self.thirsty.is_empty()
    }

    pub(super) fn copy(&mut self, copy: Copy) {
        let fine = match copy {
            Copy::Zero(range) => self.buffers.zero(range),
            Copy::Move { from, to } => self.buffers.copy(from, to),
            Copy::Scratch { buf, len } => {
                self.buffers.insert_scratch(buf, len as usize);
                true
            }
            Copy::Drop(id) => {
                self.buffers.free(id);
                true
            }
        };
        assert!(fine, "the engine names buffers that it was given: {copy:?}");
    }
}
