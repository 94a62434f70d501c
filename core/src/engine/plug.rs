//! Clients that hold back what they ask, as a thread under a plug does.
//!
//! ```text
//!   plug(client)   submit, submit, submit          unplug(client)
//!                     '--> copy chosen, view told     '--> into the queues, in order; neighbours join there
//! ```
//!
//! Without it everything goes when a batch ends, whoever ends it: then a read that comes in pieces is torn apart by the
//! completions of others. Only the laboratory, where pieces have times of their own, holds anything back; a host hands
//! over what it has in one batch.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Active, Engine};
use crate::queue::{Io, Owner};
use crate::slab::Slab;
use crate::units::{ClientId, IoId};

/// By client, what it holds back: nothing is there for a client without a plug.
#[derive(Clone, Default)]
pub(super) struct Plugs(BTreeMap<ClientId, Vec<IoId>>);

impl Plugs {
    /// Where an I/O waits, if the client that asked for it has a plug.
    pub(super) fn of(&mut self, io: &Io, requests: &Slab<Active>) -> Option<&mut Vec<IoId>> {
        if self.0.is_empty() {
            return None;
        }
        let (Owner::Read(request) | Owner::Write(request)) = io.owner else { return None };
        self.0.get_mut(&requests[request].request.client)
    }
}

impl Engine {
    /// From now on the reads and writes of this client choose their copies and wait for [`unplug`](Self::unplug).
    pub fn plug(&mut self, client: ClientId) {
        self.plugs.0.entry(client).or_default();
    }

    /// What this client held back goes to the queues, and leaves with the next batch.
    pub fn unplug(&mut self, client: ClientId) {
        for id in self.plugs.0.remove(&client).unwrap_or_default() {
            let device = self.ios[id.0].device;
            self.enqueue(device, id);
        }
    }
}
