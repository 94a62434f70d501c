//! Which places on a device are edges of something in flight.

use crate::queue::places::Places;
use crate::request::DeviceOp;

/// A multiset of edges: a queue adds a command when it leaves and removes it when it completes.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    /// Reads, writes; other operations have no runs.
    ways: [Edges; 2],
}

#[derive(Clone, Debug, Default)]
struct Edges {
    starts: Places,
    ends: Places,
}

/// Places have numbers; edges need none.
const THERE: u32 = 0;

impl Neighbours {
    /// Something is there now.
    pub fn add(&mut self, op: DeviceOp, offset: u64, len: u64) {
        if let Some(edges) = way(op).map(|way| &mut self.ways[way]) {
            edges.starts.insert(offset, THERE);
            edges.ends.insert(offset.saturating_add(len), THERE);
        }
    }

    /// It is there no more. An edge that was never added is passed over: what left before anybody looked completes
    /// too. It may take the edge of another one with it, which then goes a little early, but leaves none behind.
    pub fn remove(&mut self, op: DeviceOp, offset: u64, len: u64) {
        if let Some(edges) = way(op).map(|way| &mut self.ways[way]) {
            edges.starts.remove(offset, THERE);
            edges.ends.remove(offset.saturating_add(len), THERE);
        }
    }

    /// Nothing is there any more.
    pub fn clear(&mut self) {
        for edges in &mut self.ways {
            edges.starts.clear();
            edges.ends.clear();
        }
    }

    /// Something of the same direction ends where this begins, or begins where it ends.
    #[must_use]
    pub fn touches(&self, op: DeviceOp, offset: u64, len: u64) -> bool {
        let Some(edges) = way(op).map(|way| &self.ways[way]) else { return false };
        edges.ends.at(offset).next().is_some() || edges.starts.at(offset.saturating_add(len)).next().is_some()
    }

    /// Nothing is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ways.iter().all(|edges| edges.starts.is_empty() && edges.ends.is_empty())
    }
}

fn way(op: DeviceOp) -> Option<usize> {
    match op {
        DeviceOp::Read => Some(0),
        DeviceOp::Write { .. } => Some(1),
        DeviceOp::Flush | DeviceOp::Discard | DeviceOp::WriteZeroes => None,
    }
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
