//! Where requests of one direction begin and end: who could be appended to whom is looked up.

use crate::queue::chains::ChainId;
use crate::queue::merge::Shape;
use crate::queue::places::Places;
use crate::request::DeviceOp;

#[derive(Clone, Default)]
pub(super) struct Edges {
    pub(super) starts: Places,
    pub(super) ends: Places,
}

impl Edges {
    pub(super) fn insert(&mut self, id: ChainId, shape: &Shape) {
        self.starts.insert(shape.offset, id);
        self.ends.insert(shape.end(), id);
    }

    /// Must be asked before the request changes.
    pub(super) fn remove(&mut self, id: ChainId, shape: &Shape) {
        self.starts.remove(shape.offset, id);
        self.ends.remove(shape.end(), id);
    }

    /// The request was as `before`, and is as `after`.
    pub(super) fn change(&mut self, id: ChainId, before: &Shape, after: &Shape) {
        if before.offset != after.offset {
            self.starts.remove(before.offset, id);
            self.starts.insert(after.offset, id);
        }
        if before.end() != after.end() {
            self.ends.remove(before.end(), id);
            self.ends.insert(after.end(), id);
        }
    }

    pub(super) fn clear(&mut self) {
        self.starts.clear();
        self.ends.clear();
    }
}

/// Reads and writes meet only their like; what carries no data meets nobody.
pub(super) fn direction(op: DeviceOp) -> Option<usize> {
    match op {
        DeviceOp::Read => Some(0),
        DeviceOp::Write { .. } => Some(1),
        DeviceOp::Flush | DeviceOp::Discard | DeviceOp::WriteZeroes => None,
    }
}
