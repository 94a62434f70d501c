//! Which places on a device are edges of something queued or in flight.

use alloc::collections::BTreeMap;

use crate::request::DeviceOp;

/// A multiset of edges: a queue adds a command when it leaves and removes it when it completes.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    edges: BTreeMap<(Edge, u64), u32>,
}

/// Reads and writes are kept apart; other operations have no runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    ReadStart,
    ReadEnd,
    WriteStart,
    WriteEnd,
}

impl Neighbours {
    /// Something is there now.
    pub fn add(&mut self, op: DeviceOp, offset: u64, len: u64) {
        for edge in edges(op, offset, len) {
            *self.edges.entry(edge).or_insert(0) += 1;
        }
    }

    /// It is there no more. An edge that was never added is passed over: what left before anybody looked completes
    /// too. It may take the edge of another one with it, which then goes a little early, but leaves none behind.
    pub fn remove(&mut self, op: DeviceOp, offset: u64, len: u64) {
        for edge in edges(op, offset, len) {
            let Some(count) = self.edges.get_mut(&edge) else { continue };
            *count -= 1;
            if *count == 0 {
                self.edges.remove(&edge);
            }
        }
    }

    /// Nothing is there any more.
    pub fn clear(&mut self) {
        self.edges.clear();
    }

    /// Something of the same direction ends where this begins, or begins where it ends.
    #[must_use]
    pub fn touches(&self, op: DeviceOp, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        let (starts, ends) = match op {
            DeviceOp::Read => (Edge::ReadStart, Edge::ReadEnd),
            DeviceOp::Write { .. } => (Edge::WriteStart, Edge::WriteEnd),
            _ => return false,
        };
        self.edges.contains_key(&(ends, offset)) || self.edges.contains_key(&(starts, end))
    }

    /// Nothing is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }
}

fn edges(op: DeviceOp, offset: u64, len: u64) -> impl Iterator<Item = (Edge, u64)> {
    let end = offset.saturating_add(len);
    match op {
        DeviceOp::Read => Some([(Edge::ReadStart, offset), (Edge::ReadEnd, end)]),
        DeviceOp::Write { .. } => Some([(Edge::WriteStart, offset), (Edge::WriteEnd, end)]),
        _ => None,
    }
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: DeviceOp = DeviceOp::Write { fua: false };

    #[test]
    fn neighbours_touch_in_their_own_direction_only() {
        let mut there = Neighbours::default();
        there.add(DeviceOp::Read, 8192, 4096);
        let rows = [
            (DeviceOp::Read, 12_288, true),
            (DeviceOp::Read, 4096, true),
            (DeviceOp::Read, 8192, false),
            (DeviceOp::Read, 16_384, false),
            (WRITE, 12_288, false),
            (DeviceOp::Discard, 12_288, false),
        ];
        for (op, offset, expected) in rows {
            assert_eq!(there.touches(op, offset, 4096), expected, "{op:?} at {offset}");
        }
        there.add(DeviceOp::Read, 8192, 4096);
        there.remove(DeviceOp::Read, 8192, 4096);
        assert!(there.touches(DeviceOp::Read, 12_288, 4096), "the other one is still there");
        there.remove(DeviceOp::Read, 8192, 4096);
        assert!(there.is_empty());
        there.remove(DeviceOp::Read, 8192, 4096);
        assert!(there.is_empty(), "it left before anybody looked");
    }
}
