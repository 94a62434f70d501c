//! What clients asked, for a trace.

use std::collections::BTreeMap;

use braid_core::request::{Content, Op, Request};
use braid_core::units::VolumeId;

use super::Daemon;
use crate::control::api::{ApiError, TakeTrace, TracePart, TracedRequest};
use crate::pump::Noted;

impl Daemon {
    pub(super) fn take_trace(&self, request: &TakeTrace) -> Result<TracePart, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let volume = request.volume.as_ref().map(|name| pool.volume(name)).transpose()?.map(|(id, _)| id);
        let taken = pool.ask(|pump| pump.take_tape(volume, request.end))?;
        // The report is made by who serves the clients that are traced.
        let volumes = if taken.noted.is_empty() { Vec::new() } else { pool.report()?.volumes };
        let names: BTreeMap<VolumeId, String> = volumes.into_iter().map(|v| (v.id, v.name)).collect();
        let traced = |noted: &Noted| traced(noted, &names);
        Ok(TracePart { requests: taken.noted.iter().map(traced).collect(), lost: taken.lost })
    }
}

fn traced(noted: &Noted, names: &BTreeMap<VolumeId, String>) -> TracedRequest {
    let Request { client, volume, op, offset, len, content, .. } = noted.request;
    let (word, fua) = match op {
        Op::Read => ("read", false),
        Op::Write { fua } => ("write", fua),
        Op::Flush => ("flush", false),
        Op::Discard => ("discard", false),
        Op::WriteZeroes { fua, .. } => ("write_zeroes", fua),
    };
    TracedRequest {
        at_ns: noted.at.0,
        client: client.0,
        volume: names.get(&volume).cloned().unwrap_or_else(|| format!("destroyed-{volume}")),
        op: word.into(),
        offset_bytes: offset,
        length_bytes: len,
        fua,
        metadata: content == Content::Metadata,
    }
}
