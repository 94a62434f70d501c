//! A block device over a network, such as an RBD image.
//!
//! ```text
//!   command --> [ shared: one at a time, ns a request + ns a KiB ] --> [ servers ] --> round trip --> done
//!               client, wire and what the cluster does for everybody
//! ```
//!
//! * Price per request: the shared stage. It is what makes one request of 4 MiB so much cheaper than 1024 of 4 KiB.
//! * Servers: with `object_kib`, a command is cut at object boundaries, each piece is a request of its own, and all requests
//!   of one object queue at the server that holds it. Without, a request goes to the server that is free first.
//! * Round trip: added to each request, occupies nobody.
//!
//! Left out: replication traffic of its own, caches of client and servers, recovery, several clients, lost packets.

use super::numbers::{SECOND, numbers};
use super::stage::{Scatter, Stage, kib};
use super::{Command, Done};
use crate::rng::Rng;
use braid_core::request::DeviceOp;

numbers! {
    /// Numbers of a network device.
    Network {
        /// The shared stage, each request, in ns
        request_ns: 0..=SECOND,
        /// The shared stage, each KiB of payload, in ns
        kib_ns: 0..=SECOND,
        /// Servers
        servers: 1..=4096,
        /// A read at a server, in ns
        read_ns: 0..=SECOND,
        /// A write at a server, in ns
        write_ns: 0..=SECOND,
        /// Each KiB at a server, in ns
        server_kib_ns: 0..=SECOND,
        /// There and back, in ns
        round_trip_ns: 0..=10 * SECOND,
        /// KiB of an object; 0 = any server takes any request
        object_kib: 0..=1 << 20,
        /// A flush at a server, in ns
        flush_ns: 0..=10 * SECOND,
        /// Times at servers scatter evenly by so much, in percent
        spread_percent: 0..=100,
        /// One request in so many is slow; 0 = none
        tail_one_in: 0..=1 << 40,
        /// How many times slower
        tail_times: 1..=100_000,
    }
}

/// One network device at work.
#[derive(Clone, Debug)]
pub(super) struct State {
    m: Network,
    shared: Stage,
    servers: Vec<Stage>,
    rng: Rng,
}

impl State {
    pub(super) fn new(m: Network, seed: u64) -> State {
        State { m, shared: Stage::default(), servers: vec![Stage::default(); m.servers as usize], rng: Rng::new(seed) }
    }

    pub(super) fn arrive(&mut self, now: u64, command: &Command, factor: u64, done: &mut Done) {
        let m = self.m;
        let (at_server, payload_kib_ns) = match command.op {
            DeviceOp::Read => (m.read_ns, m.server_kib_ns),
            DeviceOp::Write { .. } => (m.write_ns, m.server_kib_ns),
            DeviceOp::Discard | DeviceOp::WriteZeroes => (m.write_ns, 0),
            DeviceOp::Flush => (m.flush_ns, 0),
        };
        let has_payload = matches!(command.op, DeviceOp::Read | DeviceOp::Write { .. });
        let object = if m.object_kib == 0 { u64::MAX } else { m.object_kib * 1024 };
        let (mut at, end, mut last) = (command.offset, command.offset + command.len.max(1), now);
        while at < end {
            let len = (object - at % object).min(end - at);
            let wire = if has_payload { kib(len) * m.kib_ns } else { 0 };
            let sent = self.shared.pass(now, factor * (m.request_ns + wire));
            let scatter =
                Scatter { spread_percent: m.spread_percent, tail_one_in: m.tail_one_in, tail_times: m.tail_times };
            let ns = scatter.draw(at_server + kib(len) * payload_kib_ns, &mut self.rng);
            let holder = (m.object_kib > 0 && command.op != DeviceOp::Flush).then_some(at / object);
            last = last.max(self.server(holder).pass(sent, factor * ns));
            at += len;
        }
        done.at(last + factor * m.round_trip_ns, command.id);
    }

    /// Who holds this object, or who is free first.
    fn server(&mut self, object: Option<u64>) -> &mut Stage {
        let i = match object {
            Some(object) => (object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % self.m.servers,
            None => (0..self.m.servers).min_by_key(|&i| self.servers[i as usize].free_at()).unwrap_or(0),
        };
        &mut self.servers[i as usize]
    }

    pub(super) fn settle(&mut self) {
        self.shared = Stage::default();
        self.servers.fill(Stage::default());
    }
}
