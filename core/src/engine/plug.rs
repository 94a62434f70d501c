//! For the laboratory: a client's plug, as a kernel thread has one.
//!
//! ```text
//!   plug      its I/Os choose their device as they come, and stay here
//!   unplug    they join the queues, and so each other
//! ```
//!
//! A host needs none: what came together is one batch already. Where threads ask for one thing in pieces, each at its own
//! moment, a batch of one would end in the middle of another's.

use alloc::vec::Vec;

use super::Engine;
use crate::queue::Owner;
use crate::units::{ClientId, IoId};

/// Who is plugged, and what waits for it.
#[derive(Default)]
pub(super) struct Plugs(Vec<(ClientId, Vec<IoId>)>);

impl Engine {
    /// Reads and writes that this client asks for from now on wait for [`unplug`](Self::unplug).
    pub fn plug(&mut self, client: ClientId) {
        if !self.plugs.0.iter().any(|(plugged, _)| *plugged == client) {
            self.plugs.0.push((client, Vec::new()));
        }
    }

    /// What it asked for since is one batch, which ends with the next drain.
    pub fn unplug(&mut self, client: ClientId) {
        let Some(at) = self.plugs.0.iter().position(|(plugged, _)| *plugged == client) else { return };
        for id in self.plugs.0.swap_remove(at).1 {
            self.enqueue(self.ios[id.0].device, id);
        }
    }

    /// Keeps an I/O if its client is plugged.
    pub(super) fn keeps_in_plug(&mut self, id: IoId) -> bool {
        if self.plugs.0.is_empty() {
            return false;
        }
        let (Owner::Read(request) | Owner::Write(request)) = self.ios[id.0].owner else { return false };
        let client = self.requests[request].request.client;
        let plug = self.plugs.0.iter_mut().find(|(plugged, _)| *plugged == client);
        plug.map(|(_, waiting)| waiting.push(id)).is_some()
    }
}
