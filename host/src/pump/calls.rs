//! Calls over FUSE: a request with its buffer on the way in, its payload on the way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use braid_core::request::{Content, Input, NO_BUF, Op, Reply, Request};
use braid_core::units::{BLOCK, ClientId, VolumeId};

use super::inbox::{Inbox, Message};
use super::{Pump, PumpHandle};
use crate::fuse::{Call, ReplyHandle, Sink};

/// The upper half of the tags of requests that came over FUSE; connections count from 0.
pub(super) const FUSE: u32 = u32::MAX;

/// A request that came over FUSE.
pub(super) struct Due {
    reply: ReplyHandle,
    request: Request,
}

impl PumpHandle {
    /// Where the FUSE share of a volume sends its calls.
    pub fn sink(&self, volume: VolumeId) -> Arc<dyn Sink> {
        /// Mounts count from here, so that none shares its name with a connection.
        static NEXT: AtomicU32 = AtomicU32::new(1 << 30);
        struct Mount(Arc<Inbox>, VolumeId, ClientId);
        impl Sink for Mount {
            fn submit(&self, call: Call) {
                self.0.send(Message::Call((self.1, self.2, call)));
            }
        }
        let client = ClientId(NEXT.fetch_add(1, Ordering::Relaxed));
        Arc::new(Mount(self.inbox.clone(), volume, client))
    }
}

impl Pump {
    /// A request over FUSE; given back when there is no memory for it now.
    pub(super) fn call(&mut self, volume: VolumeId, client: ClientId, call: Call) -> Option<Call> {
        let Call { op, offset, len, pid, data, reply } = call;
        // The process is the client where the kernel names it; else the mount is.
        let reader = if pid == 0 { client } else { ClientId(pid) };
        let buf = match (op, data) {
            (Op::Read, data) => {
                let envelope = (offset % BLOCK + len).next_multiple_of(BLOCK) as usize;
                match self.buffers.alloc(envelope) {
                    Some(buf) if self.buffers.touched(buf, envelope) => buf,
                    Some(buf) => {
                        self.buffers.free(buf);
                        return Some(Call { op, offset, len, pid, data, reply });
                    }
                    None => return Some(Call { op, offset, len, pid, data, reply }),
                }
            }
            (_, Some(data)) => self.buffers.adopt(data),
            (_, None) => NO_BUF,
        };
        let slot = self.dues_free.pop().unwrap_or_else(|| {
            self.dues.push(None);
            (self.dues.len() - 1) as u32
        });
        let tag = u64::from(FUSE) << 32 | u64::from(slot);
        let request =
            Request { tag, client: reader, volume, op, offset, len, buf, content: Content::Unsaid, no_merge: false };
        self.dues[slot as usize] = Some(Due { reply, request });
        let now = self.now();
        self.engine.handle(now, Input::Submit(request));
        None
    }

    pub(super) fn reply_call(&mut self, reply: Reply) {
        let slot = reply.tag as u32;
        let Some(Due { reply: handle, request }) = self.dues.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        self.dues_free.push(slot);
        match reply.result {
            Err(error) => handle.fail(error),
            Ok(()) if request.op == Op::Read => {
                let skew = (request.offset % BLOCK) as usize;
                handle.data(&self.buffers.bytes(request.buf)[skew..skew + request.len as usize]);
            }
            Ok(()) => handle.ok(),
        }
        if request.buf != NO_BUF {
            self.freed = true;
            // What was adopted goes back as it came; what was allocated goes back to the arena.
            if self.buffers.take(request.buf).is_none() {
                self.buffers.free(request.buf);
            }
        }
    }
}
