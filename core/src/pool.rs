//! A pool: devices, chunks and volumes as one value.
//!
//! Changes come as [`Record`]s, from the log of an earlier run and from the running engine alike, so that what was
//! read back cannot differ from what was.

mod members;
mod place;
mod totals;
pub mod trial;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ChunkType;
use crate::allocator;
use crate::chunk::Chunk;
use crate::device::{Device, DeviceState, RESERVED, Role, Used};
use crate::job::Job;
use crate::meta::record::Record;
use crate::meta::superblock::{LAGGING_MAX, WITHOUT_MAX};
use crate::profile::Profile;
use crate::properties::Properties;
use crate::regions::{Missed, ROWS, Region, Regions, UNITS, of_rows, of_unit};
use crate::report::VolumeCounters;
use crate::scrub::{Scrub, State};
use crate::sparse::{CHUNK_ROW, Sparse};
use crate::units::{ChunkId, DeviceId, UNIT, Uuid, VolumeId};
use crate::volume::{Entry, LEAF, Map, Volume};
use totals::Totals;

/// A pool.
#[derive(Clone)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: Uuid,
    /// Profiles of future chunks: data, metadata, system.
    pub profiles: [Profile; 3],
    /// Knobs.
    pub properties: Properties,
    /// The last scrub. While one runs its place and sums move without a record; the engine writes one now and then.
    pub scrub: Scrub,
    /// The last job, if there ever was one; likewise.
    pub job: Option<Job>,
    /// Where a write may be under way: copies may differ.
    pub(crate) intent: Regions,
    /// By member, what it missed; never an empty set.
    pub(crate) stale: BTreeMap<DeviceId, Missed>,
    devices: Vec<Option<Device>>,
    /// Where the next chunk of each type would go, as far as it is known.
    next_places: [Option<allocator::Index>; 3],
    totals: Totals,
    chunks: Sparse<Chunk, CHUNK_ROW>,
    volumes: Sparse<Volume>,
    pub(crate) next_chunk: u32,
    pub(crate) next_volume: u32,
    /// Ids below have been used.
    next_device: u32,
}

/// A record does not fit what the pool is; the text says how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction(pub String);

fn put<T>(table: &mut Vec<Option<T>>, index: usize, value: T) {
    if table.len() <= index {
        table.resize_with(index + 1, || None);
    }
    table[index] = Some(value);
}

impl Pool {
    /// A pool of nothing.
    pub fn new(name: String, uuid: Uuid) -> Pool {
        Pool {
            name,
            uuid,
            profiles: [Profile::Single; 3],
            properties: Properties::default(),
            scrub: Scrub::default(),
            job: None,
            intent: Regions::default(),
            stale: BTreeMap::new(),
            devices: Vec::new(),
            next_places: [None, None, None],
            totals: Totals::default(),
            chunks: Sparse::default(),
            volumes: Sparse::default(),
            next_chunk: 1,
            next_volume: 1,
            next_device: 1,
        }
    }

    /// Members in id order.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().flatten()
    }
    /// Regions that may be marked at a time; ids that members had before count as well.
    pub fn dirty_regions(&self) -> usize {
        self.properties.dirty_regions_of(self.device_ids_end().saturating_sub(1))
    }
    /// Chunks in id order.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter()
    }
    /// Volumes in id order.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.iter()
    }
    pub(crate) fn volumes_mut(&mut self) -> impl Iterator<Item = &mut Volume> {
        self.volumes.iter_mut()
    }
    /// The member of this id.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(id.index())?.as_ref()
    }
    pub(crate) fn device_mut(&mut self, id: DeviceId) -> Option<&mut Device> {
        self.devices.get_mut(id.index())?.as_mut()
    }
    /// Ids of members are below.
    pub fn device_ids_end(&self) -> usize {
        self.devices.len()
    }
    /// The chunk of this id.
    pub fn chunk(&self, id: ChunkId) -> Option<&Chunk> {
        self.chunks.get(id.index())
    }
    pub(crate) fn chunk_mut(&mut self, id: ChunkId) -> Option<&mut Chunk> {
        self.chunks.get_mut(id.index())
    }
    /// The volume of this id.
    pub fn volume(&self, id: VolumeId) -> Option<&Volume> {
        self.volumes.get(id.index())
    }
    pub(crate) fn volume_mut(&mut self, id: VolumeId) -> Option<&mut Volume> {
        self.volumes.get_mut(id.index())
    }
    /// The volume of this name.
    pub fn volume_named(&self, name: &str) -> Option<&Volume> {
        self.volumes().find(|v| v.name == name && !v.is_internal())
    }

    /// Whether what is written to a volume gets checksums, and what is read is compared.
    pub(crate) fn is_summed(&self, volume: VolumeId) -> bool {
        self.properties.checksum.is_on() && self.volume(volume).is_some_and(|v| v.checksum && !v.is_internal())
    }

    /// Members that are away or given up, as superblocks name them.
    pub(crate) fn away(&self) -> Vec<DeviceId> {
        let is_away = |d: &&Device| !d.state.is_used();
        self.devices().filter(is_away).map(|d| d.id).take(WITHOUT_MAX).collect()
    }

    /// Members whose superblocks may say less than the image before this one, and which image they say: first those in use. One that
    /// parts is among them, since a checkpoint that was under way when it began to has it still.
    pub(crate) fn lagging(&self, image: u64) -> Vec<(DeviceId, u64)> {
        let lags = |d: &&Device| d.role != Role::Joining && d.age.image.saturating_add(1) < image;
        let of = |is_used: bool| self.devices().filter(move |d| d.state.is_used() == is_used).filter(lags);
        of(true).chain(of(false)).map(|d| (d.id, d.age.image)).take(LAGGING_MAX).collect()
    }

    /// Whether a member can be read and written.
    pub fn is_online(&self, id: DeviceId) -> bool {
        self.device(id).is_some_and(|d| d.state.is_used())
    }

    /// Units of a region that a member missed, one bit each.
    pub(crate) fn missed_units(&self, id: DeviceId, region: Region) -> u64 {
        if self.stale.is_empty() { 0 } else { self.stale.get(&id).map_or(0, |missed| missed.units(region)) }
    }

    /// Whether a member missed something of this unit, as far as is noted.
    pub fn is_unit_stale(&self, id: DeviceId, volume: VolumeId, unit: u64) -> bool {
        self.missed_units(id, of_unit(volume, unit)) >> (unit % UNITS) & 1 == 1
    }

    /// Whether what a member has of a unit counts, be it there or not: of one that failed nothing is noted any more, since it is
    /// behind in everything.
    pub fn may_have_unit(&self, id: DeviceId, volume: VolumeId, unit: u64) -> bool {
        self.device(id).is_some_and(|d| d.state != DeviceState::Failed) && !self.is_unit_stale(id, volume, unit)
    }

    /// What is, as it would be said anew.
    pub(crate) fn records(&self) -> Vec<Record> {
        let head = Record::Pool { profiles: self.profiles, next_chunk: self.next_chunk, next_volume: self.next_volume };
        let mut records = Vec::from([head]);
        let last = self.devices().filter(|d| d.is_recorded()).map(|d| d.id.0).max().unwrap_or(0);
        if self.next_device > last + 1 {
            records.push(Record::DeviceRemove(DeviceId(self.next_device - 1)));
        }
        records.extend(self.devices().filter(|d| d.is_recorded()).map(|d| Record::Device(d.clone().into())));
        // A system chunk that closes goes with the checkpoint that this is for; others go by a record of their own.
        let stays = |c: &&Chunk| c.kind != ChunkType::System || !c.closing;
        records.extend(self.chunks().filter(stays).map(|c| Record::ChunkAdd(c.clone().into())));
        records.extend(self.volumes().map(|v| Record::Volume {
            id: v.id,
            name: v.name.clone(),
            size: v.size,
            class: v.class,
            checksum: v.checksum,
        }));
        for v in self.volumes() {
            let lost = v.map.lost_in(0, u64::MAX);
            records.extend(lost.map(|(unit, blocks)| Record::Lost { volume: v.id, unit, blocks }));
        }
        let set = self.properties.list().into_iter().filter(|(_, _, is_default)| !is_default);
        records.extend(set.map(|(name, value, _)| Record::Property { name: name.into(), value }));
        if self.scrub.state != State::None {
            records.push(Record::Scrub(self.scrub.clone().into()));
        }
        records.extend(self.job.clone().map(|job| Record::Job(job.into())));
        records.extend(self.intent.words().map(|((volume, word), bits)| Record::Intent { volume, word, bits }));
        for (&device, missed) in &self.stale {
            // First, since of a region that is known as missed no more units are kept than were.
            let kept = |((volume, region), units)| Record::Kept { device, volume, region, units };
            records.extend(missed.kept().map(kept));
            let record = |((volume, word), bits)| Record::Stale { device, volume, word, bits };
            records.extend(missed.words().map(record));
        }
        records
    }

    /// Makes a record true. Places that entries refer to are checked at the end, by [`Pool::count_units`].
    pub(crate) fn apply(&mut self, record: Record) -> Result<(), Contradiction> {
        match record {
            Record::Map { volume, unit, count, entry } => {
                let Some(volume) = self.volume_mut(volume) else {
                    return Err(Contradiction(format!("an entry of volume {volume}, which does not exist")));
                };
                volume.check_inside(unit.saturating_add(u64::from(count)))?;
                for i in 0..u32::from(count) {
                    let entry = match entry.is_mapped() && entry.written() != 0 {
                        true => Entry::new(entry.chunk(), entry.unit() + i, entry.written()),
                        false => Entry::NONE,
                    };
                    volume.map.set(unit + u64::from(i), entry);
                }
            }
            Record::Lost { volume, unit, blocks } => {
                let Some(volume) = self.volume_mut(volume) else {
                    return Err(Contradiction(format!("lost blocks of volume {volume}, which does not exist")));
                };
                volume.check_inside(unit.saturating_add(1))?;
                volume.lose(unit, blocks);
            }
            Record::ChunkAdd(chunk) => {
                for (i, column) in chunk.columns.iter().enumerate() {
                    let Some(device) = self.devices.get_mut(column.device.index()).and_then(Option::as_mut) else {
                        return Err(Contradiction(format!(
                            "chunk {} on device {}, which is not a member",
                            chunk.id, column.device
                        )));
                    };
                    let end = column.offset.saturating_add(chunk.stripe);
                    let below = device.used.range(..end).next_back().map_or(0, |(o, used)| o + used.len);
                    if column.offset < RESERVED || end > device.size || below > column.offset {
                        return Err(Contradiction(format!(
                            "column {i} of chunk {} lies over something else",
                            chunk.id
                        )));
                    }
                    device.used.insert(column.offset, Used { len: chunk.stripe, chunk: chunk.id });
                }
                self.next_chunk = self.next_chunk.max(chunk.id.0 + 1);
                if self.chunk(chunk.id).is_some() {
                    return Err(Contradiction(format!("chunk {} twice", chunk.id)));
                }
                self.totals.add(&chunk);
                self.space_changed(&chunk);
                self.chunks.put(chunk.id.index(), *chunk);
            }
            Record::Column { chunk, column, to } => self.move_column(chunk, column.into(), to)?,
            Record::ChunkRemove(id) => {
                let Some(chunk) = self.chunks.take(id.index()) else {
                    return Err(Contradiction(format!("chunk {id} goes but was not there")));
                };
                for column in &chunk.columns {
                    if let Some(device) = self.device_mut(column.device) {
                        device.used.remove(&column.offset);
                    }
                }
                if chunk.rows() > 0 {
                    self.stale.values_mut().for_each(|regions| regions.remove_within(ROWS, of_rows(id)));
                    self.stale.retain(|_, regions| !regions.is_empty());
                }
                self.totals.remove(&chunk);
                self.space_changed(&chunk);
            }
            Record::Volume { id, name, size, class, checksum } => {
                self.next_volume = self.next_volume.max(id.0 + 1);
                match self.volume_mut(id) {
                    Some(volume) => {
                        (volume.name, volume.size, volume.class, volume.checksum) = (name, size, class, checksum);
                    }
                    None => {
                        let map = Map::default();
                        self.volumes.put(
                            id.index(),
                            Volume {
                                id,
                                name,
                                size,
                                class,
                                checksum,
                                map,
                                mapped_units: [0; 2],
                                counters: VolumeCounters::default(),
                            },
                        );
                    }
                }
            }
            Record::VolumeRemove(id) => {
                if self.volumes.take(id.index()).is_none() {
                    return Err(Contradiction(format!("volume {id} goes but was not there")));
                }
                self.intent.remove_volume(id);
                self.stale.values_mut().for_each(|regions| regions.remove_volume(id));
                self.stale.retain(|_, regions| !regions.is_empty());
            }
            Record::Property { name, value } => {
                // A property of a later version is not a reason to refuse a pool.
                let _ = self.properties.set(&name, &value);
            }
            Record::Device(mut device) => {
                self.next_device = self.next_device.max(device.id.0 + 1);
                if let Some(old) = self.device_mut(device.id) {
                    device.used = core::mem::take(&mut old.used);
                    device.counters = old.counters;
                    if device.spare == old.spare {
                        device.role = old.role;
                    }
                    (device.written, device.flushed) = (old.written, old.flushed);
                    (device.faults, device.last_error) = (old.faults, old.last_error);
                    (device.is_behind, device.age) = (old.is_behind, old.age);
                }
                self.members_changed();
                put(&mut self.devices, device.id.index(), *device);
            }
            Record::DeviceRemove(id) => self.drop_member(id)?,
            Record::Pool { profiles, next_chunk, next_volume } => {
                self.profiles = profiles;
                self.next_chunk = self.next_chunk.max(next_chunk);
                self.members_changed();
                self.next_volume = self.next_volume.max(next_volume);
            }
            Record::LeafLine { volume, leaf, chunk, first } => match self.volume_mut(volume) {
                Some(volume) => {
                    // The last leaf of a volume may reach over its end, its entries may not: a line is all written.
                    volume.check_inside(leaf.saturating_add(1).saturating_mul(LEAF as u64))?;
                    volume.map.load_line(leaf, chunk, first);
                }
                None => return Err(Contradiction(format!("a leaf of volume {volume}, which does not exist"))),
            },
            Record::Scrub(scrub) => self.scrub = *scrub,
            Record::Job(job) => self.job = Some(*job),
            Record::Profiles(profiles) => {
                self.profiles = profiles;
                self.members_changed();
            }
            // Of a volume that a power cut took back, or that is gone, it says nothing.
            Record::Intent { volume, word, bits } if self.volume(volume).is_some() => {
                self.intent.set_word((volume, word), self.intent.word((volume, word)) | bits);
            }
            Record::Intent { .. } => {}
            Record::Stale { device, volume, word, bits } => {
                let is_there = self.volume(volume).is_some() || volume == ROWS;
                let known = is_there && self.device(device).is_some();
                if known && bits != 0 {
                    self.stale.entry(device).or_default().add_word((volume, word), bits);
                }
            }
            Record::Kept { device, volume, region, units } => {
                let is_there = self.volume(volume).is_some() || volume == ROWS;
                if is_there && self.device(device).is_some() {
                    self.stale.entry(device).or_default().add_but((volume, region), units);
                }
            }
            Record::LeafPage { .. } => {} // its page has to be read first: see `assembly`
        }
        Ok(())
    }

    /// Makes the chunks' bitmaps from the maps; every place must exist and have one owner.
    pub(crate) fn count_units(&mut self) -> Result<(), Contradiction> {
        let has_sums = self.properties.checksum.is_on();
        let Pool { volumes, chunks, .. } = self;
        for volume in volumes.iter_mut() {
            let mut mapped = [0; 2];
            for (unit, entry) in volume.map.entries() {
                let at = |what: &str| Contradiction(format!("unit {unit} of volume {:?} {what}", volume.name));
                let chunk = chunks.get_mut(entry.chunk().index());
                let chunk = chunk.ok_or_else(|| at("is in a chunk that does not exist"))?;
                if chunk.kind == ChunkType::System || u64::from(entry.unit()) >= chunk.length / UNIT {
                    return Err(at("is outside its chunk"));
                }
                if !chunk.take(entry.unit()) {
                    return Err(at("is where something else is"));
                }
                if let Some((row, _)) = chunk.row_of(entry.unit()).filter(|_| entry.written() != 0) {
                    chunk.make_live(row);
                }
                if has_sums && !volume.checksum {
                    chunk.set_unsummed(entry.unit());
                }
                mapped[chunk.kind as usize] += 1;
            }
            volume.mapped_units = mapped;
        }
        Ok(())
    }

    /// Chunks with a column on this member, in order of place there; one with two comes twice. What a rebuild of the member
    /// has to go through, without a look at any other chunk.
    pub fn chunks_on(&self, device: DeviceId) -> impl Iterator<Item = &Chunk> {
        let used = self.device(device).map(|device| device.used.values()).into_iter().flatten();
        used.filter_map(|used| self.chunk(used.chunk))
    }

    /// Some volume content has more than one copy.
    pub(crate) fn has_copies(&self) -> bool {
        self.totals.mirrored > 0
    }

    /// Candidates of each chunk that can still be read: false when some content has no copy left.
    pub fn chunk_available(&self, chunk: &Chunk) -> bool {
        let copies = chunk.profile.facts().copies;
        if chunk.profile.facts().parity != 0 {
            return chunk.rows_survive(|c| !self.is_online(c.device));
        }
        chunk.columns.chunks(copies.max(1)).all(|set| set.iter().any(|c| self.is_online(c.device)))
    }
}

impl Volume {
    /// These blocks of a unit are the lost ones: not written any more. A unit without any other one has no place.
    pub(crate) fn lose(&mut self, unit: u64, blocks: u16) {
        let old = self.map.get(unit);
        let left = old.written() & !blocks;
        if left != old.written() {
            self.map.set(unit, if left == 0 { Entry::NONE } else { old.with_written(left) });
        }
        self.map.set_lost(unit, blocks);
    }

    /// Units below `end` are within the volume. (What lies beyond would size the directories of its map.)
    pub(crate) fn check_inside(&self, end: u64) -> Result<(), Contradiction> {
        match end <= self.size.div_ceil(UNIT) {
            true => Ok(()),
            false => Err(Contradiction(format!("a unit behind the end of volume {}", self.id))),
        }
    }
}
