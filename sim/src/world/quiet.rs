//! When all is quiet: nothing is left over, space adds up, and everything that was written can be read.

use std::collections::BTreeSet;

use braid_core::report::DeviceReport;
use braid_core::request::{Content as Tag, Op, RequestError};
use braid_core::units::{BLOCK, DeviceId, UNIT, VolumeId};
use braid_core::{ChunkType, DeviceState};

use super::World;
use crate::checker::{Checker, hold};
use crate::disk::{SECTOR, SECTORS};

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

    /// When no trouble is left and every member is in full use, a block of which all its places have the only content that it may have
    /// is read without an error: troubles that were too many for the profile are no excuse for what came through them. `None` where that
    /// cannot be said.
    pub fn check_served(&mut self) -> Option<Result<(), String>> {
        let engine = self.engine();
        let report = engine.report();
        let is_whole = |d: &DeviceReport| d.state == DeviceState::Online && !d.stale.is_behind;
        let is_well = report.devices.iter().all(is_whole) && !report.suspended;
        if !is_well || !self.faults.0.is_empty() {
            return None;
        }
        let volumes: Vec<VolumeId> = engine.pool().volumes().filter(|v| !v.is_internal()).map(|v| v.id).collect();
        for volume in volumes {
            let blocks: BTreeSet<u64> = self.oracle.touched(volume.0).into_iter().map(|s| s * SECTOR / BLOCK).collect();
            for at in blocks.into_iter().map(|block| block * BLOCK) {
                if self.is_in_place(volume, at) && self.run(volume, Op::Read, at, BLOCK) == Err(RequestError::Io) {
                    let places = self.places(volume, at);
                    let why = format_args!("{at} of volume {volume} is EIO, and is as it should be at {places:?}");
                    return Some(Err(Checker::Content.says(why)));
                }
            }
        }
        Some(Ok(()))
    }

    /// Every copy of a block can be read and is what the block must be.
    fn is_in_place(&self, volume: VolumeId, at: u64) -> bool {
        let places = self.places(volume, at);
        let is_good = |&(device, place): &(DeviceId, u64)| {
            let mut stamps = [0; SECTORS];
            let disk = &self.disks[device.index() - 1];
            disk.read_stamps(place, &mut stamps);
            let mut sectors = (at / SECTOR..).zip(stamps);
            disk.is_readable(place, BLOCK)
                && sectors.all(|(sector, stamp)| self.oracle.must_be(volume.0, sector, stamp))
        };
        !places.is_empty() && places.iter().all(is_good)
    }

    /// Runs until all requests are answered; false when `goes_on` said no before that.
    fn answer_while(&mut self, goes_on: impl Fn(&World) -> bool) -> bool {
        self.run_until(|w| w.asked.is_empty() || !goes_on(w));
        let stays = goes_on(self);
        hold!(Drain, self.asked.is_empty() || !stays, "quiet, but {}", self.unanswered());
        stays
    }
}
