//! When all is quiet: nothing is left over, space adds up, and everything that was written can be read.

use std::collections::BTreeSet;

use braid_core::ChunkType;
use braid_core::request::{Content as Tag, Op};
use braid_core::units::{BLOCK, UNIT, VolumeId};

use super::World;
use crate::checker::hold;
use crate::disk::SECTOR;

impl World {
    /// Nothing is left over; with `counts`, space adds up as well.
    pub fn check_quiet(&mut self, counts: bool) {
        let under_way: Vec<_> = self.running.values().map(|r| r.dispatch).collect();
        hold!(Drain, under_way.is_empty(), "{under_way:?} never ended");
        hold!(Drain, self.heap.is_empty() && self.wake.is_none(), "not quiet: {:?}", self.wake);
        hold!(Drain, self.asked.is_empty(), "{}", self.unanswered());
        let is_left = !self.scratch.is_empty() || !self.buffers.is_empty();
        let (scratch, state) = (self.scratch.len(), self.engine().space_state());
        hold!(Drain, !is_left, "memory is left over: {scratch} scratch buffers of {}; {state}", self.buffers.len());
        let engine = self.engine();
        hold!(Drain, engine.is_quiet() && engine.in_flight() == 0, "{} requests are left", engine.in_flight());
        self.watches.iter().for_each(|watch| watch.check_quiet(engine));
        if !counts {
            return;
        }
        let report = engine.report();
        for kind in [ChunkType::Data, ChunkType::Metadata] {
            let mapped: u64 = engine.pool().volumes().map(|v| v.mapped_units[kind as usize] * UNIT).sum();
            let used: u64 = report.chunks.iter().filter(|c| c.kind == kind).map(|c| c.used).sum();
            let entries: usize = engine.pool().volumes().map(|v| v.map.entries().count()).sum();
            let about = format!("{entries} entries; {}", engine.space_state());
            hold!(Drain, mapped == used, "{kind:?}: {mapped} bytes mapped, {used} used in chunks; {about}");
        }
        let mut places = BTreeSet::new();
        for volume in engine.pool().volumes() {
            let mut entries = 0;
            for (unit, entry) in volume.map.entries() {
                hold!(
                    Drain,
                    entry.written() != 0 || volume.is_internal(),
                    "volume {} unit {unit} is only reserved",
                    volume.id
                );
                hold!(Drain, places.insert((entry.chunk(), entry.unit())), "{entry:?} has two owners");
                let chunk = engine.pool().chunk(entry.chunk()).expect("it exists");
                hold!(Drain, u64::from(entry.unit()) < chunk.length / UNIT, "{entry:?} is outside its chunk");
                entries += 1;
            }
            let counted = volume.mapped_units.iter().sum::<u64>();
            hold!(Drain, entries == counted, "volume {} counts {counted} units and has {entries}", volume.id);
        }
    }

    /// Requests without an answer, and what the engine says that it waits for.
    pub(super) fn unanswered(&self) -> String {
        const TOLD: usize = 3;
        let told: Vec<_> = self.asked.values().take(TOLD).map(|asked| &asked.request).collect();
        let state = self.engine.as_ref().map_or_else(String::new, |engine| engine.space_state());
        format!("no answer to {} requests, among them {told:?}; {state}", self.asked.len())
    }

    /// Reads everything that was ever touched, and some that was not.
    pub fn verify(&mut self) {
        self.verify_while(|_| true);
    }

    /// The same, until `goes_on` says no: beside a device that never answers a read may wait for ever.
    pub fn verify_while(&mut self, goes_on: impl Fn(&World) -> bool) {
        let volumes: Vec<(VolumeId, u64)> =
            self.engine().pool().volumes().filter(|v| !v.is_internal()).map(|v| (v.id, v.size)).collect();
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
                if i % 64 == 63 && !self.answer_while(&goes_on) {
                    return;
                }
            }
            if !self.answer_while(&goes_on) {
                return;
            }
        }
    }

    /// Runs until all requests are answered; false when `goes_on` said no before that.
    fn answer_while(&mut self, goes_on: impl Fn(&World) -> bool) -> bool {
        self.run_until(|w| w.asked.is_empty() || !goes_on(w));
        let stays = goes_on(self);
        hold!(Drain, self.asked.is_empty() || !stays, "quiet, but {}", self.unanswered());
        stays
    }
}
