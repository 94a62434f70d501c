//! What members missed: regions where a member's copy is not what it should be, and how it is brought up to date.
//!
//! ```text
//!                a write, or a flush, did not arrive                  the member is there
//!     up to date -----------------------------------> stale -----------------------------> units are mended, one by one
//!         ^                durable before the answer                                             |
//!         '--------------------------------------------------------------------------------------'
//!            a checkpoint whose image says so: what was written over the member is flushed before the image counts
//! ```
//!
//! A stale copy is written like the others, never read and never a source; a stale strip of a row is not written until it was made
//! anew, and is like any other from then on, though nothing on stable media says so. Only what another good copy stands in for
//! becomes stale: the last good copy of anything stays what it is, and who needed the write hears of the error. So of a region whose
//! units are not redundant alike (data with four copies, metadata with one) a member may have missed some and keep the others.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::mend::{Cause, Target};
use super::sums::SUMS_VOLUME;
use super::{Engine, Slip};
use crate::chunk::{Chunk, Column};
use crate::device::{Device, DeviceState, FAULTS_MAX};
use crate::meta::record::Record;
use crate::profile::slice;
use crate::regions::{self, Missed, REGION, ROWS, Region, Regions, UNITS, Units, row_unit, touched, units_in};
use crate::report::StaleReport;
use crate::request::{Event, IoError, Output};
use crate::units::{DeviceId, Instant, UNIT, VolumeId};

/// Units under way at once.
const ACTIVE_MAX: usize = 8;
/// Units that one turn looks at.
const TURN: u32 = 4096;
/// So many regions are told to the disks at once, so that reads have more copies before all is done.
const BATCH: usize = 256;
/// Regions with units that cannot be had, each of which costs memory and 23 B of the root; beyond, such a region waits as a whole.
const SOURCELESS_MAX: usize = 4096;
/// After an error of the member that is caught up; the next errors wait so many times longer.
const PAUSE_NS: u64 = 1_000_000_000;

#[derive(Clone, Default)]
pub(super) struct Stale {
    /// Units to mend, of regions that some member that is there missed.
    left: Units,
    active: BTreeSet<(VolumeId, u64)>,
    /// Regions that were gone through to the end, and which units of them are good now; the next checkpoint says so.
    caught_up: BTreeMap<(DeviceId, Region), u64>,
    /// What the checkpoint under way says is caught up, and which units of it: until it counts, an opening would find them missed.
    unsaid: BTreeMap<(DeviceId, Region), u64>,
    /// Regions where something failed: not before somebody is asked again.
    failed: BTreeSet<Region>,
    /// Units, and rows, that cannot be had elsewhere: they wait until they are written, or until somebody is asked again. Around
    /// them everything is caught up.
    sourceless: Units,
    /// A member lacks some of the pool's own records: the next checkpoint writes all of them.
    records_due: bool,
    /// Members that get all of them with the checkpoint under way: until it counts, they are no copy of what is from before it.
    receiving: BTreeSet<DeviceId>,
    /// When what failed is tried again.
    retry_at: Option<Instant>,
    /// Regions that were written since a flush began, newest last, and the number of that flush.
    unflushed: VecDeque<(u64, Regions)>,
    flushes: u64,
    /// The most regions that members were behind in since they were last up to date.
    most: BTreeMap<DeviceId, u64>,
    /// Units mended since the pool was opened.
    mended: u64,
}

impl Stale {
    /// A unit is to be gone through once more, if its region is being gone through; else that comes by itself.
    fn leave(&mut self, volume: VolumeId, unit: u64) {
        if self.left.touches(regions::of_unit(volume, unit)) {
            self.left.insert(volume, unit);
        }
    }

    /// All that was missed of a region cannot be had. (Of a region that an opening found to be needed whole nothing was missed.)
    fn is_without_source(&self, region: Region, missed: u64) -> bool {
        missed != 0 && missed & !self.sourceless.bits(region) == 0
    }
}

impl Engine {
    // ---- what is stale --------------------------------------------------------------------------------------------

    /// Reads of one piece stay within what every copy has missed as a whole or not at all.
    pub(super) fn read_until(&self, volume: VolumeId, at: u64, end: u64) -> u64 {
        if self.pool.stale.is_empty() {
            return end;
        }
        let region = (volume, at / REGION);
        let is_mixed = |missed: &Missed| !matches!(missed.units(region), 0 | u64::MAX);
        let piece = if self.pool.stale.values().any(is_mixed) { UNIT } else { REGION };
        end.min((at / piece + 1) * piece)
    }

    /// Copies that must not be read, since their members missed something of the unit: one bit each.
    pub(super) fn barred(&self, columns: &[Column], unit: impl FnOnce() -> (VolumeId, u64)) -> u8 {
        if self.pool.stale.is_empty() || self.slips(Slip::StaleTrusted) {
            return 0;
        }
        let (volume, unit) = unit();
        let is_stale = |c: &Column| self.pool.is_unit_stale(c.device, volume, unit);
        columns.iter().enumerate().filter(|(_, c)| is_stale(c)).fold(0, |bits, (i, _)| bits | 1 << i)
    }

    /// Whether a member missed something of what stands in a unit of a chunk: of its row, of the unit of a volume, or of the
    /// pool's own records.
    pub(super) fn lacks(&self, device: DeviceId, chunk: &Chunk, place: u32, home: Option<(VolumeId, u64)>) -> bool {
        match (chunk.row_of(place), home) {
            (Some((row, _)), _) => self.is_row_stale(device, (chunk.id, row)),
            (None, Some((volume, unit))) => self.pool.is_unit_stale(device, volume, unit),
            (None, None) => self.pool.device(device).is_some_and(|d| d.is_behind),
        }
    }

    /// The copies of a unit.
    pub(super) fn columns_of(&self, volume: VolumeId, unit: u64) -> &[Column] {
        let entry = self.entry(volume, unit);
        // Rows are looked after as rows.
        let is_mirrored = |c: &&Chunk| entry.is_mapped() && c.rows() == 0;
        let Some(c) = self.pool.chunk(entry.chunk()).filter(is_mirrored) else { return &[] };
        let part = slice(c.profile, c.columns.len(), u64::from(entry.unit()) * UNIT, UNIT);
        &c.columns[part.first..part.first + part.copies]
    }

    /// Units of a region that a member missed, or of which an opening would think so: one bit each.
    pub(super) fn may_be_found_missed(&self, device: DeviceId, region: Region) -> u64 {
        self.pool.missed_units(device, region) | self.stale.unsaid.get(&(device, region)).copied().unwrap_or(0)
    }

    /// Members that missed something, or of which an opening would think so.
    pub(super) fn may_be_found_behind(&self) -> impl Iterator<Item = DeviceId> {
        let unsaid = self.stale.unsaid.keys().map(|&(device, _)| device);
        self.pool.stale.keys().copied().chain(unsaid)
    }

    /// A checkpoint counts. Who failed too often and was needed for what others lacked may be needed no more.
    pub(super) fn caught_up_is_said(&mut self) {
        // Who got its records with this one was behind when it began.
        self.note_who_is_whole();
        self.stale.receiving.clear();
        if core::mem::take(&mut self.stale.unsaid).is_empty() {
            return;
        }
        let too_often = |d: &&Device| d.state.is_used() && d.faults > FAULTS_MAX;
        let failing: Vec<DeviceId> = self.pool.devices().filter(too_often).map(|d| d.id).collect();
        for device in failing {
            if self.spares(device) {
                self.fail_device(device, IoError::Media);
            }
        }
    }

    /// Units of a region that are good on this member and on no other one that is there: one bit each.
    fn needed_units(&self, device: DeviceId, region: Region) -> u64 {
        let missed = self.pool.missed_units(device, region);
        if region.0 == ROWS {
            return self.rows_that_need(device, region.1) & !missed;
        }
        let good = |c: &Column, bit: u64| {
            c.device != device
                && self.pool.is_online(c.device)
                && self.may_be_found_missed(c.device, region) >> bit & 1 == 0
        };
        let is_needed = |bit: &u64| {
            let columns = self.columns_of(region.0, region.1 * UNITS + bit);
            columns.iter().any(|c| c.device == device) && !columns.iter().any(|c| good(c, *bit))
        };
        (0..UNITS).filter(is_needed).fold(0, |units, bit| units | 1 << bit) & !missed
    }

    /// A member missed something of this part of a volume. True: that is noted, and no write is answered before the note
    /// is durable. False: of some of it nothing else has what the member has, and that stays as it is.
    pub(super) fn miss(
        &mut self,
        device: DeviceId,
        volume: VolumeId,
        (start, end): (u64, u64),
        error: IoError,
    ) -> bool {
        if self.pool.device(device).is_none_or(|d| d.state == DeviceState::Failed) {
            return true;
        }
        let mut is_spared = true;
        let mut new = Vec::new();
        for region in touched(volume, start, end) {
            let part = units_in(region, start, end) & !self.pool.missed_units(device, region);
            if part == 0 {
                continue;
            }
            let needed = self.needed_units(device, region);
            is_spared &= part & needed == 0;
            if part & !needed != 0 {
                new.push((region, needed));
            }
        }
        if is_spared || !new.is_empty() {
            self.note_stale(device, &new);
            self.set_back(device, volume, (start, end));
            self.suspect(device, error);
        }
        is_spared
    }

    /// What was caught up of these units is not any more, and only of these: else who writes faster than a region is gone through
    /// would have it begin anew for ever. Who is not there is not waited for.
    pub(super) fn set_back(&mut self, device: DeviceId, volume: VolumeId, (start, end): (u64, u64)) {
        let is_online = self.pool.is_online(device);
        let caught_up = &mut self.stale.caught_up;
        touched(volume, start, end).for_each(|region| {
            let Some(units) = caught_up.get_mut(&(device, region)) else { return };
            *units &= !units_in(region, start, end);
            if *units == 0 {
                caught_up.remove(&(device, region));
            }
        });
        for unit in start / UNIT..end.div_ceil(UNIT) {
            if is_online {
                self.stale.leave(volume, unit);
            }
        }
    }

    /// A member that missed something of this unit's region has what it should of this unit, although nothing on stable media says
    /// so yet.
    pub(super) fn is_caught_up(&self, device: DeviceId, volume: VolumeId, unit: u64) -> bool {
        let Stale { left, caught_up, sourceless, .. } = &self.stale;
        let region = regions::of_unit(volume, unit);
        let is_left = || left.contains(volume, unit) || sourceless.contains(volume, unit);
        let is_past = || self.pool.is_online(device) && left.touches(region) && !is_left();
        let is_said = |units: &u64| units >> (unit % UNITS) & 1 == 1;
        caught_up.get(&(device, region)).is_some_and(is_said) || is_past()
    }

    /// A member is behind in these regions, but for units that nothing else has.
    pub(super) fn note_stale(&mut self, device: DeviceId, new: &[(Region, u64)]) {
        let mut words = BTreeSet::new();
        let missed = self.pool.stale.entry(device).or_default();
        for &(region, kept) in new {
            let is_whole = kept == 0 && (!missed.contains(region) || missed.units(region) == u64::MAX);
            missed.add_but(region, kept);
            if is_whole {
                words.insert(regions::word_of(region));
                continue;
            }
            let (volume, region) = region;
            let lsn = self.journal.append(&Record::Kept { device, volume, region, units: kept });
            self.commit.failure_lsn = lsn + 1;
        }
        for (volume, word) in words {
            let bits = self.pool.stale[&device].word((volume, word));
            let lsn = self.journal.append(&Record::Stale { device, volume, word, bits });
            self.commit.failure_lsn = lsn + 1;
        }
        let count = self.pool.stale[&device].len() as u64;
        if count == 0 {
            self.pool.stale.remove(&device);
        }
        let most = self.stale.most.entry(device).or_default();
        *most = count.max(*most);
    }

    /// A member that answers did not do what it was asked; often enough, and it is not asked any more.
    pub(super) fn suspect(&mut self, device: DeviceId, error: IoError) {
        let Some(member) = self.pool.device_mut(device) else { return };
        if error != IoError::Gone {
            member.faults += 1;
        }
        let is_too_much = member.faults > FAULTS_MAX;
        let was_well = match member.state {
            DeviceState::Online | DeviceState::Removing => true,
            DeviceState::Rebuilding => self.is_heir(device),
            _ => false,
        };
        if let Some(member) = self.pool.device_mut(device).filter(|_| was_well) {
            member.become_state(DeviceState::Suspect);
            self.outputs.push_back(Output::Event(Event::DeviceSuspect { device, error }));
            self.post_views();
        }
        if is_too_much && self.spares(device) {
            self.fail_device(device, error);
        }
    }

    /// What a member got since the last flush may be gone with its cache.
    pub(super) fn lose_unflushed(&mut self, device: DeviceId, error: IoError) -> bool {
        // With that may be gone what it got of changes that are under way: for these it is as if it had been away.
        self.renew_roster(device);
        self.lapse_reads(device);
        // Where only it has the log, a note of it may be lost with the rest: whoever asks for a flush hears of it.
        let can_be_noted = self.spares_system(device);
        if can_be_noted && self.slips(Slip::LossNotNoted) {
            return true;
        }
        let since = self.stale.unflushed.front().map_or(self.stale.flushes, |(flush, _)| *flush);
        let mut all = Regions::default();
        self.stale.unflushed.iter().flat_map(|(_, regions)| regions.iter()).for_each(|r| {
            all.insert(r);
        });
        let is_on = |&(volume, region): &Region| {
            if volume == ROWS {
                return self.columns_of_rows(region).iter().any(|c| c.device == device);
            }
            (region * UNITS..(region + 1) * UNITS)
                .any(|unit| self.columns_of(volume, unit).iter().any(|c| c.device == device))
        };
        let (mut spared, mut needed, mut rows) = (Vec::new(), Vec::new(), Units::default());
        for region in all.iter().filter(is_on) {
            let missed = self.pool.missed_units(device, region);
            let kept = self.needed_units(device, region);
            if missed | kept != u64::MAX {
                spared.push((region, kept));
            }
            if kept != 0 || !can_be_noted {
                needed.push(region);
            }
            if region.0 == ROWS {
                rows.insert_bits(region, if can_be_noted { kept } else { u64::MAX });
            }
        }
        self.note_stale(device, &spared);
        if !spared.is_empty() {
            self.commit.loss_lsn = self.commit.failure_lsn;
        }
        // What it was brought up to date in since may be gone as well.
        self.stale.caught_up.retain(|(d, _), _| *d != device);
        if self.pool.stale.contains_key(&device) {
            self.begin_again();
        }
        for &((volume, region), _) in &spared {
            self.set_back(device, volume, (region * REGION, (region + 1) * REGION));
        }
        self.suspect(device, error);
        if needed.iter().any(|&(volume, _)| volume == SUMS_VOLUME) {
            self.doubt_image();
            self.doubt_without_pages(&needed, since);
            self.soil_pages(&needed);
        }
        self.tear_rows(&rows);
        self.owe_error(&needed);
        can_be_noted && needed.is_empty()
    }

    /// A member that is there lacks some of the pool's own records. Until it has them all its superblock stays what it is,
    /// so that the next opening knows.
    pub(super) fn lacks_records(&mut self, device: DeviceId, error: IoError) {
        self.suspect(device, error);
        self.is_to_get_records(device);
    }

    /// The same of a member whose fault is counted already.
    pub(super) fn is_to_get_records(&mut self, device: DeviceId) {
        let Some(member) = self.pool.device_mut(device) else { return };
        member.is_behind = true;
        let faults = member.faults;
        if faults <= FAULTS_MAX && self.pool.is_online(device) {
            let at = self.now + PAUSE_NS * u64::from(faults);
            self.stale.retry_at = Some(self.stale.retry_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Somebody says that a member is well again: what waits for that, or for a later try, is tried now, however often it
    /// failed. False where nothing waits.
    pub(super) fn try_again(&mut self, device: DeviceId) -> bool {
        let is_waiting = self.stale.retry_at.is_some();
        let Some(member) = self.pool.device_mut(device) else { return false };
        match member.state {
            DeviceState::Suspect => {}
            DeviceState::Rebuilding if is_waiting => {}
            _ => return false,
        }
        member.faults = 0;
        self.stale.retry_at = Some(self.now);
        true
    }

    /// A member came, or lost what it got: what is under way it needs from the beginning.
    pub(super) fn begin_again(&mut self) {
        self.stale.left.fill();
    }

    /// The next checkpoint comes at once and writes everything.
    pub(super) fn ask_for_records(&mut self) {
        self.stale.records_due = true;
        self.ask_again();
    }

    /// What failed is tried again.
    fn ask_again(&mut self) {
        self.stale.failed.clear();
        self.ask_for_sources();
    }

    /// What could not be had is read again.
    pub(super) fn ask_for_sources(&mut self) {
        self.ask_for_unread();
        let sourceless = core::mem::take(&mut self.stale.sourceless);
        sourceless.iter().for_each(|(volume, unit)| self.stale.leave(volume, unit));
    }

    /// Content of this part is written, or there is none any more: what nothing could be read of there may be had now.
    pub(super) fn ask_for_source_of(&mut self, volume: VolumeId, start: u64, end: u64) {
        if self.stale.sourceless.is_empty() && !self.has_unread() {
            return;
        }
        for unit in start / UNIT..end.div_ceil(UNIT) {
            self.ask_for_unread_of(volume, unit);
            let row = self.row_at(volume, unit).map(|(chunk, row)| row_unit(chunk, row));
            let (volume, unit) = row.map_or((volume, unit), |row| (ROWS, row));
            if self.stale.sourceless.contains(volume, unit) {
                self.stale.sourceless.remove(volume, unit);
                self.stale.leave(volume, unit);
            }
        }
    }

    /// A checkpoint begins: whoever lacks records gets them all.
    pub(super) fn hand_out_records(&mut self) {
        self.stale.records_due = false;
        let online = |d: &&Device| d.is_behind && self.pool.is_online(d.id);
        let behind: Vec<DeviceId> = self.pool.devices().filter(online).map(|d| d.id).collect();
        for &device in &behind {
            self.pool.device_mut(device).expect("just seen").is_behind = false;
        }
        if !behind.is_empty() {
            self.stale.receiving.extend(behind);
            self.pool.volumes_mut().for_each(|volume| volume.map.touch_tables());
        }
    }

    /// It gets all records with the checkpoint under way, and is no copy of them yet. Before that of an opening nothing is claimed, so
    /// there it counts.
    fn is_receiving(&self, device: DeviceId) -> bool {
        self.stale.receiving.contains(&device) && !self.commit.is_opening()
    }

    /// Whether the pool's own records are on other members now.
    pub(super) fn has_records_besides(&self, device: DeviceId) -> bool {
        let is_copy = |c: &Column| c.device != device && !self.is_receiving(c.device);
        self.spares_system(device) && (self.stale.receiving.is_empty() || self.have_records(is_copy))
    }

    /// All others that had the pool's own records went or failed: what is stable depends on a checkpoint that does not count yet.
    pub(super) fn only_receivers_have_records(&self) -> bool {
        !self.stale.receiving.is_empty()
            && self.have_records(|_| true)
            && !self.have_records(|c| !self.is_receiving(c.device))
    }

    /// Members that are not there missed this change, also when theirs was done before they went: nothing has flushed it. And
    /// so did those that came or went since it began, under this roster: they were passed by, or lost it with their cache.
    pub(super) fn pass_by_absent(&mut self, volume: VolumeId, start: u64, end: u64, roster: u64) -> bool {
        if self.absent == 0 && self.roster == roster {
            return true;
        }
        let mut all = true;
        for unit in start / UNIT..end.div_ceil(UNIT) {
            let part = (unit * UNIT, (unit + 1) * UNIT);
            let missed = |c: &&Column| self.was_away(c.device, roster);
            let missed: Vec<DeviceId> = self.columns_of(volume, unit).iter().filter(missed).map(|c| c.device).collect();
            for device in missed {
                match self.pool.is_unit_stale(device, volume, unit) {
                    // It may have caught up with what came before.
                    true => self.set_back(device, volume, part),
                    false => all &= self.miss(device, volume, part, IoError::Gone),
                }
            }
        }
        all
    }

    /// Whether a member was not there at some time since this roster.
    pub(super) fn was_away(&self, device: DeviceId, roster: u64) -> bool {
        !self.pool.is_online(device) || self.pool.device(device).is_some_and(|d| d.roster > roster)
    }

    // ---- what no flush covers -------------------------------------------------------------------------------------

    /// A change wrote to its range.
    pub(super) fn note_unflushed(&mut self, volume: VolumeId, start: u64, end: u64) {
        let flushes = self.stale.flushes;
        if self.stale.unflushed.back().is_none_or(|(flush, _)| *flush != flushes) {
            self.stale.unflushed.push_back((flushes, Regions::default()));
        }
        let (_, regions) = self.stale.unflushed.back_mut().expect("just made");
        for region in touched(volume, start, end) {
            regions.insert(region);
        }
    }

    /// The number of the last flush that began.
    pub(super) fn flushes(&self) -> u64 {
        self.stale.flushes
    }

    /// A flush of all members begins: its number.
    pub(super) fn flush_begins(&mut self) -> u64 {
        self.stale.flushes += 1;
        self.stale.flushes
    }

    /// It is done on all members that count.
    pub(super) fn flush_ended(&mut self, number: u64) {
        self.ring_covered(number);
        while self.stale.unflushed.front().is_some_and(|(flush, _)| *flush < number) {
            self.stale.unflushed.pop_front();
        }
    }

    // ---- catching up ----------------------------------------------------------------------------------------------

    /// Goes on bringing members up to date; says whether there was something to do.
    pub(super) fn catch_up_turn(&mut self) -> bool {
        if self.commit.is_closed() || self.is_closing() {
            return false;
        }
        if self.stale.retry_at.is_some_and(|at| at <= self.now) {
            self.stale.retry_at = None;
            self.ask_again();
            self.stale.records_due = self.pool.devices().any(|d| d.is_behind && self.pool.is_online(d.id));
        }
        if self.pool.stale.is_empty() {
            return false;
        }
        if self.stale.left.is_empty() && self.stale.active.is_empty() {
            self.find_stale();
            self.note_who_is_rebuilt();
        }
        let mut any = false;
        for _ in 0..TURN {
            if self.stale.active.len() >= ACTIVE_MAX {
                break;
            }
            let Some((volume, unit)) = self.stale.left.first_besides(&self.stale.active) else { break };
            any = true;
            if volume == ROWS {
                match self.catch_up_row(unit) {
                    true => drop(self.stale.active.insert((volume, unit))),
                    false => self.stale_unit_done(volume, unit),
                }
                continue;
            }
            let is_missed =
                |c: &Column| self.pool.is_online(c.device) && self.pool.is_unit_stale(c.device, volume, unit);
            let has_content = self.entry(volume, unit).written() != 0 && !self.slips(Slip::CaughtUpAtOnce);
            if has_content && self.columns_of(volume, unit).iter().any(is_missed) {
                self.stale.active.insert((volume, unit));
                self.mend(Cause::CatchUp, Target::Unit(volume, unit));
            } else {
                self.stale_unit_done(volume, unit);
            }
        }
        any
    }

    /// Regions that a member has to be brought up to date in and nothing failed in.
    fn open_regions(&self, device: DeviceId) -> impl Iterator<Item = Region> {
        let Stale { failed, caught_up, .. } = &self.stale;
        let missed = self.pool.stale.get(&device);
        let has_source = move |r: &Region| !self.stale.is_without_source(*r, missed.map_or(0, |m| m.units(*r)));
        let is_open = move |r: &Region| !failed.contains(r) && !caught_up.contains_key(&(device, *r)) && has_source(r);
        missed.into_iter().flat_map(Missed::iter).filter(is_open)
    }

    fn find_stale(&mut self) {
        let online = self.pool.stale.keys().filter(|device| self.pool.is_online(**device));
        let found: Vec<Region> = online.flat_map(|&device| self.open_regions(device).take(BATCH)).collect();
        for region in found {
            let units = !self.stale.sourceless.bits(region);
            self.stale.left.insert_bits(region, units);
        }
    }

    /// All members that are there have what a unit should be.
    pub(super) fn stale_unit_done(&mut self, volume: VolumeId, unit: u64) {
        self.stale.sourceless.remove(volume, unit);
        self.stale_unit_passed(volume, unit);
    }

    /// Nothing more is to be done for a unit. With the last one of its region those are good of which something could be read.
    fn stale_unit_passed(&mut self, volume: VolumeId, unit: u64) {
        if !self.stale.left.remove(volume, unit) {
            return;
        }
        let region = regions::of_unit(volume, unit);
        let Engine { pool, stale, .. } = self;
        let units = !stale.sourceless.bits(region);
        let is_done =
            |missed: &Missed| missed.contains(region) && !stale.is_without_source(region, missed.units(region));
        let done = pool.stale.iter().filter(|(device, missed)| pool.is_online(**device) && is_done(missed));
        let done: Vec<_> = done.map(|(&device, _)| ((device, region), units)).collect();
        stale.caught_up.extend(done);
    }

    /// A unit, or a row, could not be made good on some member. Where it could not be had, those around it still can; else its region
    /// waits.
    pub(super) fn stale_unit_failed(&mut self, volume: VolumeId, unit: u64, by: Option<DeviceId>) {
        let region = regions::of_unit(volume, unit);
        let Engine { pool, stale: Stale { sourceless, .. }, .. } = self;
        let has_room = sourceless.touches(region) || sourceless.regions() < SOURCELESS_MAX;
        if by.is_none() && has_room {
            if !pool.stale.is_empty() {
                sourceless.insert(volume, unit);
            }
            return self.stale_unit_passed(volume, unit);
        }
        self.stale.left.remove_region(region);
        self.stale.failed.insert(region);
        // Where no source can be read, asking again helps nobody.
        let faults = by.and_then(|device| self.pool.device(device)).map_or(0, |d| d.faults);
        if (1..=FAULTS_MAX).contains(&faults) {
            self.stale.retry_at = Some(self.now + PAUSE_NS * u64::from(faults));
        }
    }

    pub(super) fn catch_up_ended(&mut self, volume: VolumeId, unit: u64) {
        self.stale.active.remove(&(volume, unit));
        self.stale.mended += 1;
    }

    /// A member is behind, and something is done or will be about that.
    pub(super) fn is_being_caught_up(&self, device: DeviceId) -> bool {
        let Stale { left, active, caught_up, records_due, retry_at, .. } = &self.stale;
        let is_moving = !left.is_empty() || !active.is_empty() || !caught_up.is_empty();
        self.pool.is_online(device)
            && self.pool.stale.contains_key(&device)
            && (is_moving || *records_due || retry_at.is_some() || self.commit.is_writing_pages())
    }

    /// Something is being done about what a member misses, or will be by itself: who waits for it to be up to date waits for that.
    fn is_catching_up_to_come(&self, device: DeviceId) -> bool {
        let to_come = self.stale.records_due || self.stale.retry_at.is_some() || self.commit.is_writing_pages();
        // Whoever gets its last records with the checkpoint under way has to wait until that counts.
        let is_unsaid = self.pool.device(device).is_some_and(|d| self.was_behind(d)) && to_come;
        let is_open = || self.open_regions(device).next().is_some();
        self.pool.is_online(device) && (is_unsaid || self.is_being_caught_up(device) || is_open())
    }

    /// A member is none any more.
    pub(super) fn forget_member(&mut self, device: DeviceId) {
        self.stale.caught_up.retain(|(d, _), _| *d != device);
        self.pool.forget_member(device);
        self.post_views();
    }

    /// When something that failed is tried again.
    pub(super) fn catch_up_deadline(&self) -> Option<Instant> {
        self.stale.retry_at.filter(|_| !self.commit.is_closed() && !self.is_closing())
    }

    /// A checkpoint should say what was caught up.
    pub(super) fn is_catching_up_due(&self) -> bool {
        let all = self.stale.left.is_empty() && self.stale.active.is_empty();
        self.stale.records_due || !self.stale.caught_up.is_empty() && (all || self.stale.caught_up.len() >= BATCH)
    }

    /// Leaves out of the image that comes what was caught up.
    pub(super) fn clear_caught_up(&mut self) {
        for ((device, region), units) in core::mem::take(&mut self.stale.caught_up) {
            let Some(missed) = self.pool.stale.get_mut(&device) else { continue };
            let units = missed.remove(region, units);
            if missed.is_empty() {
                self.pool.stale.remove(&device);
            }
            *self.stale.unsaid.entry((device, region)).or_default() |= units;
        }
        let Engine { pool, stale, .. } = self;
        stale.most.retain(|device, _| pool.stale.contains_key(device));
        self.note_who_is_whole();
    }

    /// What the run before wrote and nothing flushed: where it was writing, and where it placed units. A member that is not
    /// there is behind in all of that, and so is one that goes before the first flush.
    pub(super) fn adopt_unflushed(&mut self, mut unflushed: Regions) {
        unflushed.extend(self.pool.intent.iter());
        unflushed.retain(|(volume, _)| self.pool.volume(volume).is_some());
        let rows = self.unflushed_rows(unflushed.iter());
        unflushed.extend(rows);
        let missing = |d: &&Device| d.state == DeviceState::Missing;
        let absent: Vec<DeviceId> = self.pool.devices().filter(missing).map(|d| d.id).collect();
        for device in absent {
            for (volume, region) in unflushed.iter() {
                self.miss(device, volume, (region * REGION, (region + 1) * REGION), IoError::Gone);
            }
        }
        self.commit.loss_lsn = self.commit.failure_lsn;
        self.stale.unflushed.push_back((self.stale.flushes, unflushed));
    }

    /// A volume goes.
    pub(super) fn forget_stale(&mut self, volume: VolumeId) {
        self.stale.left.remove_volume(volume);
        self.stale.failed.retain(|(v, _)| *v != volume);
        self.stale.sourceless.remove_volume(volume);
        self.stale.caught_up.retain(|(_, (v, _)), _| *v != volume);
    }

    pub(super) fn stale_report(&self, device: DeviceId) -> StaleReport {
        let lacks_records = self.pool.device(device).is_some_and(|d| d.is_behind);
        let is_behind = lacks_records || self.pool.stale.contains_key(&device);
        let is_to_come = self.is_catching_up_to_come(device);
        let missed = self.pool.stale.get(&device);
        let lacks = |region| missed.map_or(0, |m| (m.units(region) & self.stale.sourceless.bits(region)).count_ones());
        let sourceless = missed.into_iter().flat_map(Missed::iter).map(|region| u64::from(lacks(region))).sum();
        let regions = self.regions_left(device);
        StaleReport { is_behind, is_to_come, regions, sourceless, units_done: self.stale.mended }
    }

    /// Regions that a member was behind in when it was furthest behind.
    pub(super) fn regions_most(&self, device: DeviceId) -> u64 {
        let now = self.pool.stale.get(&device).map_or(0, Missed::len) as u64;
        self.stale.most.get(&device).map_or(now, |&most| most.max(now))
    }

    /// Regions that a member has still to be brought up to date in.
    pub(super) fn regions_left(&self, device: DeviceId) -> u64 {
        let Some(missed) = self.pool.stale.get(&device) else { return 0 };
        let is_done =
            |(&(d, region), units): (&(DeviceId, Region), &u64)| d == device && missed.units(region) & !units == 0;
        let caught_up = self.stale.caught_up.iter().filter(|&at| is_done(at)).count();
        missed.len().saturating_sub(caught_up) as u64
    }
}
