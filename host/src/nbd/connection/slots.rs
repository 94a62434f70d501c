//! Slots: the requests of a connection between header and sent reply, and the tags they go by.

use braid_core::units::{BLOCK, BufId, round_down, round_up};

use super::Connection;
use crate::nbd::proto::RequestHeader;

/// Requests of one connection between header and sent reply. nbdcopy and qemu stay at 64 or fewer; one more recv of
/// headers than this would not raise throughput.
pub const IN_FLIGHT_MAX: usize = 256;

const _: () = assert!(IN_FLIGHT_MAX <= u16::MAX as usize, "a slot has 16 bits in the tag");

/// The connection of a tag.
pub fn tag_connection(tag: u64) -> u32 {
    (tag >> 32) as u32
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// In use: the header was read and the reply is not sent.
    pub(super) live: bool,
    /// Handed to the engine, not answered.
    pub(super) with_engine: bool,
    /// Tells this use of the slot from the one before.
    pub(super) generation: u16,
    pub(super) header: Header,
    pub(super) buf: Option<BufId>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    pub(super) flags: u16,
    pub(super) kind: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl From<RequestHeader> for Header {
    fn from(h: RequestHeader) -> Self {
        Header { flags: h.flags, kind: h.kind, cookie: h.cookie, offset: h.offset, len: h.len }
    }
}

impl Header {
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
    /// Offset of the payload in its buffer.
    pub(super) fn skew(&self) -> usize {
        (self.offset % BLOCK) as usize
    }
    /// Bytes of the buffer.
    pub(super) fn envelope(&self) -> usize {
        let end = self.offset.saturating_add(u64::from(self.len));
        let top = if end > u64::MAX - BLOCK { end } else { round_up(end, BLOCK) };
        top.saturating_sub(round_down(self.offset, BLOCK)) as usize
    }
}

impl Connection {
    pub(super) fn take_slot(&mut self, header: Header) -> Option<u16> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < IN_FLIGHT_MAX => {
                self.slots.push(Slot::default());
                self.slots.len().saturating_sub(1) as u16
            }
            None => return None,
        };
        let entry = self.slots.get_mut(slot as usize)?;
        let generation = entry.generation.wrapping_add(1);
        *entry = Slot { live: true, with_engine: false, generation, header, buf: None };
        Some(slot)
    }

    pub(super) fn release(&mut self, slot: u16) {
        if let Some(entry) = self.slots.get_mut(slot as usize).filter(|s| s.live) {
            entry.live = false;
            entry.buf = None;
            self.free.push(slot);
        }
    }

    pub(super) fn submitted(&mut self, slot: u16) -> u64 {
        let Some(entry) = self.slots.get_mut(slot as usize) else { return 0 };
        entry.with_engine = true;
        self.with_engine = self.with_engine.saturating_add(1);
        u64::from(self.id) << 32 | u64::from(entry.generation) << 16 | u64::from(slot)
    }

    /// The slot of a tag that the engine holds, now answered.
    pub(super) fn answered(&mut self, tag: u64) -> Option<(u16, Header, Option<BufId>)> {
        let slot = tag as u16;
        let entry = self.slots.get_mut(slot as usize)?;
        if tag_connection(tag) != self.id || entry.generation != (tag >> 16) as u16 || !entry.with_engine {
            return None;
        }
        entry.with_engine = false;
        self.with_engine = self.with_engine.saturating_sub(1);
        Some((slot, entry.header, entry.buf.take()))
    }
}
