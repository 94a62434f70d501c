//! What happened: a ring of sentences.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::SystemTime;

use braid_core::ChunkType;
use braid_core::request::{DeviceOp, Event, IoError};
use braid_core::units::DeviceId;

use super::lock;
use crate::control::api::{EventInfo, ListEvents, rfc3339};
use crate::control::size;

/// Events kept; at the rate of a healthy pool that is weeks, and it is some 200 KiB.
pub const EVENTS_MAX: usize = 1000;

/// Errors of one device that are told one by one. A dying disk makes thousands a second; they are counted in `status`
/// and must not push everything else out of the ring.
const ERRORS_TOLD: u32 = 50;

const _: () = assert!(ERRORS_TOLD as usize * 10 < EVENTS_MAX, "ten dying disks leave room for the rest");

/// How bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Info,
    Warning,
    Error,
}

/// The ring. Its lock is a leaf: nothing else is taken under it, so any thread may tell it something.
#[derive(Default)]
pub(super) struct Events(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    events: VecDeque<EventInfo>,
    told: u64,
}

impl Events {
    /// Adds one, and writes it to the log.
    pub(super) fn tell(&self, severity: Severity, pool: Option<&str>, code: &str, message: impl Into<String>) {
        let message = message.into();
        let pool_name = pool.unwrap_or("-");
        let word = match severity {
            Severity::Info => {
                tracing::info!(pool = pool_name, "{message}");
                "info"
            }
            Severity::Warning => {
                tracing::warn!(pool = pool_name, "{message}");
                "warning"
            }
            Severity::Error => {
                tracing::error!(pool = pool_name, "{message}");
                "error"
            }
        };
        let mut ring = lock(&self.0);
        ring.told += 1;
        let event = EventInfo {
            sequence: ring.told,
            time: rfc3339(SystemTime::now()),
            pool: pool.map(str::to_string),
            code: code.into(),
            severity: word.into(),
            message,
        };
        if ring.events.len() == EVENTS_MAX {
            ring.events.pop_front();
        }
        ring.events.push_back(event);
    }

    /// Those asked for, oldest first.
    pub(super) fn list(&self, request: &ListEvents) -> Vec<EventInfo> {
        let ring = lock(&self.0);
        let wanted = |e: &&EventInfo| {
            e.sequence > request.after && (request.pool.is_none() || e.pool.as_deref() == request.pool.as_deref())
        };
        let limit = if request.limit == 0 { EVENTS_MAX } else { request.limit as usize };
        let mut found: Vec<EventInfo> = ring.events.iter().rev().filter(wanted).take(limit).cloned().collect();
        found.reverse();
        found
    }
}

/// Turns what one pool's engine tells into sentences; lives on its pump's thread.
pub(super) struct Narrator {
    pool: String,
    paths: Mutex<HashMap<DeviceId, String>>,
    errors: Mutex<HashMap<DeviceId, u32>>,
}

impl Narrator {
    pub(super) fn new(pool: &str, paths: HashMap<DeviceId, String>) -> Narrator {
        Narrator { pool: pool.into(), paths: Mutex::new(paths), errors: Mutex::default() }
    }

    pub(super) fn tell(&self, events: &Events, event: &Event) {
        if let Some((severity, code, message)) = self.sentence(event) {
            events.tell(severity, Some(&self.pool), code, message);
        }
    }

    /// A member came, and is there.
    pub(super) fn joined(&self, id: DeviceId, path: &str) {
        lock(&self.paths).insert(id, path.into());
    }

    /// Errors of a member, or of all, are told one by one again.
    pub(super) fn errors_cleared(&self, device: Option<DeviceId>) {
        lock(&self.errors).retain(|&id, _| device.is_some_and(|device| device != id));
    }

    fn device(&self, id: DeviceId) -> String {
        match lock(&self.paths).get(&id) {
            Some(path) => format!("device {id} ({path})"),
            None => format!("device {id}"),
        }
    }

    fn sentence(&self, event: &Event) -> Option<(Severity, &'static str, String)> {
        Some(match *event {
            Event::ScrubDifference { .. }
            | Event::ScrubReadError { .. }
            | Event::Repaired { .. }
            | Event::RowRepaired { .. }
            | Event::ScrubTellsNoMore
            | Event::ScrubFinished { .. } => return super::scrub::sentence(event, |id| self.device(id)),
            Event::JobEnded { .. }
            | Event::JobStopped { .. }
            | Event::ReturnStarted
            | Event::SpareInUse { .. }
            | Event::NoSpareFits { .. }
            | Event::MoveLost { .. }
            | Event::DeviceRemoved { .. } => return super::jobs::sentence(&self.pool, event, |id| self.device(id)),
            Event::Suspended => {
                let message = format!(
                    "pool {0} can write its records nowhere any more and is suspended: changes fail; see to its devices, \
                     then: braid clear {0}",
                    self.pool
                );
                (Severity::Error, "pool.suspended", message)
            }
            Event::BadCopy { ref name, offset, len, device, device_offset, .. } => {
                let message = format!(
                    "{} of volume {name} at byte {offset}: the copy at byte {device_offset} of {} is not what its \
                     checksums say",
                    size::long(len),
                    self.device(device)
                );
                (Severity::Warning, "integrity.bad_copy", message)
            }
            Event::BadRecord { device, device_offset, len } => {
                let message = format!(
                    "{} of the pool's own records at byte {device_offset} of {} are not what was written there; another copy \
                     was taken, and they are written anew",
                    size::long(len),
                    self.device(device)
                );
                (Severity::Warning, "integrity.bad_record", message)
            }
            Event::BlocksLost { ref name, offset, len, .. } => (
                Severity::Error,
                "integrity.lost",
                format!(
                    "no copy of {} of volume {name} at byte {offset} is right: reads there fail until it is written \
                     again; restore it from a backup",
                    size::long(len)
                ),
            ),
            Event::SumsLost { chunk, page, sectors } => (
                Severity::Error,
                "integrity.sums_lost",
                format!(
                    "{sectors} sectors of page {page} of the checksums of chunk {chunk} are damaged on every copy: what \
                     they were about is not verified until it is written again"
                ),
            ),
            Event::Spill { chunk, kind, bytes } => (
                Severity::Warning,
                "chunk.spill",
                format!(
                    "{} chunk {chunk} of {} went to a tier that is not preferred: the preferred devices are full",
                    kind_name(kind),
                    size::long(bytes)
                ),
            ),
            Event::ChunkAllocated { chunk, kind, bytes } => (
                Severity::Info,
                "chunk.allocated",
                format!("{} chunk {chunk} of {} was allocated", kind_name(kind), size::long(bytes)),
            ),
            Event::ChunkReleased { chunk } => {
                (Severity::Info, "chunk.released", format!("chunk {chunk} was empty and went back to free space"))
            }
            Event::DeviceError { device, op, offset, len, error } => {
                let mut errors = lock(&self.errors);
                let count = errors.entry(device).or_default();
                *count = count.saturating_add(1);
                let more = match *count {
                    n if n < ERRORS_TOLD => "",
                    ERRORS_TOLD => "; further errors of it are only counted, see: braid device stats",
                    _ => return None,
                };
                let what = match op {
                    DeviceOp::Flush => "flush".into(),
                    _ => format!("{} of {} at {}", op_name(op), size::long(len), size::long(offset)),
                };
                let message = format!("{what} on {} failed: {}{more}", self.device(device), error_name(error));
                (Severity::Warning, "device.error", message)
            }
            Event::DeviceFailed { device, error } => (
                Severity::Error,
                "device.failed",
                format!("{} is no longer used: {}", self.device(device), error_name(error)),
            ),
            Event::DeviceOffline { device } => {
                (Severity::Info, "device.offline", format!("{} was taken out of use", self.device(device)))
            }
            Event::DeviceSuspect { device, error } => (
                Severity::Warning,
                "device.suspect",
                format!("{} missed something and is caught up: {}", self.device(device), error_name(error)),
            ),
            Event::DeviceOlder { device, is_spared } => {
                let follows = match is_spared {
                    true => "all of it is made anew from the others",
                    false => "nothing else has all of it, so it is used as it is, and a scrub shows what differs",
                };
                let message = format!(
                    "{} is older than the others know it: a copy of another time, or one whose superblock could not be written; \
                     {follows}",
                    self.device(device)
                );
                (Severity::Error, "device.older", message)
            }
            Event::DeviceOnline { device } => {
                (Severity::Info, "device.caught_up", format!("{} is up to date again", self.device(device)))
            }
            Event::QueueOnDefaults { device, ref error } => (
                Severity::Warning,
                "device.queue_on_defaults",
                format!(
                    "the queue of {} goes by its defaults: {error}; set it anew, or: braid inherit",
                    self.device(device)
                ),
            ),
            Event::NoSpace { kind } => (
                Severity::Error,
                "pool.no_space",
                format!("there is no room for another {} chunk: first writes fail with ENOSPC", kind_name(kind)),
            ),
        })
    }
}

pub(super) fn kind_name(kind: ChunkType) -> &'static str {
    match kind {
        ChunkType::Data => "data",
        ChunkType::Metadata => "metadata",
        ChunkType::System => "system",
    }
}

pub(super) fn op_name(op: DeviceOp) -> &'static str {
    match op {
        DeviceOp::Read => "read",
        DeviceOp::Write { .. } => "write",
        DeviceOp::Flush => "flush",
        DeviceOp::Discard => "discard",
        DeviceOp::WriteZeroes => "zeroing",
    }
}

pub(super) fn error_name(error: IoError) -> &'static str {
    match error {
        IoError::Media => "the medium failed (EIO)",
        IoError::Gone => "it vanished",
        IoError::NoSpace => "what it lies on is full",
        IoError::Unsupported => "it does not know the command",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(events: &Events, pool: Option<&str>, after: u64, limit: u32) -> Vec<u64> {
        let request = ListEvents { pool: pool.map(String::from), after, limit };
        events.list(&request).iter().map(|e| e.sequence).collect()
    }

    #[test]
    fn the_newest_are_kept_in_order() {
        let events = Events::default();
        for i in 0..EVENTS_MAX + 5 {
            events.tell(Severity::Info, Some(if i % 2 == 0 { "even" } else { "odd" }), "test", "x");
        }
        let all = told(&events, None, 0, 0);
        assert_eq!((all.len(), all[0], all[EVENTS_MAX - 1]), (EVENTS_MAX, 6, 1005));
        assert_eq!(told(&events, None, 1003, 0), [1004, 1005]);
        assert_eq!(told(&events, None, 0, 2), [1004, 1005], "a limit means the newest");
        assert_eq!(told(&events, Some("even"), 1001, 0), [1003, 1005]);
        assert!(told(&events, Some("none"), 0, 0).is_empty());
    }

    #[test]
    fn a_dying_disk_does_not_fill_the_ring() {
        let narrator = Narrator::new("tank", HashMap::from([(DeviceId(1), "/dev/sdx".into())]));
        let events = Events::default();
        let device = DeviceId(1);
        for _ in 0..5000 {
            let event = Event::DeviceError { device, op: DeviceOp::Read, offset: 0, len: 4096, error: IoError::Media };
            narrator.tell(&events, &event);
        }
        narrator.tell(&events, &Event::DeviceFailed { device, error: IoError::Gone });
        let list = events.list(&ListEvents::default());
        assert_eq!(list.len(), ERRORS_TOLD as usize + 1);
        assert_eq!(list[0].message, "read of 4KiB at 0B on device 1 (/dev/sdx) failed: the medium failed (EIO)");
        assert!(list[ERRORS_TOLD as usize - 1].message.contains("only counted"));
        let last = list.last().unwrap();
        assert_eq!((last.code.as_str(), last.severity.as_str()), ("device.failed", "error"));
    }
}
