//! When all is quiet: nothing is left over, space adds up, and everything that was written can be read.

use std::collections::BTreeSet;

use braid_core::ChunkType;
use braid_core::request::{Content as Tag, Op};
use braid_core::units::{BLOCK, UNIT, VolumeId};

use super::World;
use crate::disk::SECTOR;

impl World {
    /// Nothing is left over; with `counts`, space adds up as well.
    pub fn check_quiet(&mut self, counts: bool) {
        assert!(self.heap.is_empty() && self.running.is_empty() && self.wake.is_none(), "not quiet: {:?}", self.wake);
        assert!(self.asked.is_empty(), "no answer to {:?}", self.asked);
        assert!(self.scratch.is_empty() && self.buffers.is_empty(), "memory is left over");
        let engine = self.engine();
        assert!(engine.is_quiet() && engine.in_flight() == 0, "{} requests", engine.in_flight());
        self.watches.iter().for_each(|watch| watch.check_quiet(engine));
        if !counts {
            return;
        }
        let report = engine.report();
        for kind in [ChunkType::Data, ChunkType::Metadata] {
            let mapped: u64 = report.volumes.iter().map(|v| v.mapped[kind as usize]).sum();
            let used: u64 = report.chunks.iter().filter(|c| c.kind == kind).map(|c| c.used).sum();
            let entries: usize = engine.pool().volumes().map(|v| v.map.entries().count()).sum();
            let about = format!("{entries} entries; {}", engine.space_state());
            assert_eq!(mapped, used, "{kind:?}: bytes mapped, bytes used in chunks; {about}");
        }
        let mut places = BTreeSet::new();
        for volume in engine.pool().volumes() {
            let mut entries = 0;
            for (unit, entry) in volume.map.entries() {
                assert!(entry.written() != 0, "volume {} unit {unit} is only reserved", volume.id);
                assert!(places.insert((entry.chunk(), entry.unit())), "{entry:?} has two owners");
                let chunk = engine.pool().chunk(entry.chunk()).expect("it exists");
                assert!(u64::from(entry.unit()) < chunk.length / UNIT);
                entries += 1;
            }
            assert_eq!(entries, volume.mapped_units.iter().sum::<u64>());
        }
    }

    /// Reads everything that was ever touched, and some that was not.
    pub fn verify(&mut self) {
        let volumes: Vec<(VolumeId, u64)> = self.engine().pool().volumes().map(|v| (v.id, v.size)).collect();
        for (id, size) in volumes {
            let mut blocks: Vec<u64> = self.oracle.touched(id.0).into_iter().map(|s| s * SECTOR / BLOCK).collect();
            // A growth that nobody was told of may be undone.
            blocks.retain(|block| (block + 1) * BLOCK <= size);
            blocks.extend((0..8).map(|i| size / BLOCK / 8 * i));
            blocks.sort_unstable();
            blocks.dedup();
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for block in blocks {
                match runs.last_mut() {
                    Some((first, count)) if *first + *count == block && *count < 64 => *count += 1,
                    _ => runs.push((block, 1)),
                }
            }
            for (i, (first, count)) in runs.into_iter().enumerate() {
                self.submit(i as u32, id, Op::Read, first * BLOCK, count * BLOCK, Tag::Unsaid);
                if i % 64 == 63 {
                    self.run_until_answered();
                }
            }
            self.run_until_answered();
        }
    }
}
