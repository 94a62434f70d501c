//! Records: one change each. The log is a sequence of them, and so is the root of a checkpoint.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::codec::{Malformed, Reader, Writer};
use crate::ChunkType;
use crate::allocator::{Hint, Tiers};
use crate::chunk::{CHUNK_MAX, COLUMNS_MAX, Chunk, Column};
use crate::control::VolumeClass;
use crate::device::{DEVICE_MAX, Device, DeviceClass, DeviceState, Role};
use crate::job::{Choice, Job, Task};
use crate::profile::Profile;
use crate::queue::config::{self, Overrides};
use crate::regions::WORDS_MAX;
use crate::scrub::{FOUND_MAX, Found, PLACES_MAX, Place, Scrub, State};
use crate::units::{BLOCK, ChunkId, DeviceId, STRIP, UNIT, VolumeId};
use crate::volume::{Entry, VOLUME_MAX};

/// Ids of devices are below.
pub const DEVICES_MAX: u32 = 65_536;
/// Ids of chunks are below: 30 bits of a map entry.
pub const CHUNKS_MAX: u32 = 1 << 30;
/// Ids of volumes are below, those of volumes that are gone included.
pub const VOLUME_IDS_MAX: u32 = 1 << 20;
/// Units of a chunk are below: 18 bits of a map entry.
const UNITS_MAX: u32 = 1 << 18;
/// Longest remembered path; longer ones are cut.
pub const PATH_MAX: usize = 1024;

/// Bit of the class of a volume whose content is not summed.
const WITHOUT_CHECKSUM: u8 = 0x80;

/// One change of a pool.
#[derive(Clone, Debug)]
pub enum Record {
    /// `count` units of a volume from `unit` on are at consecutive units of a chunk, all blocks written, beginning
    /// with `entry`; with `count` 1 the entry may be anything, none included.
    Map {
        /// The volume.
        volume: VolumeId,
        /// First unit of the volume.
        unit: u64,
        /// How many.
        count: u16,
        /// The entry of the first one.
        entry: Entry,
    },
    /// These blocks of a unit of a volume, and no others, are lost: they are not written any more, and no holes.
    Lost {
        /// The volume.
        volume: VolumeId,
        /// Unit of the volume.
        unit: u64,
        /// One bit each; a later record of the map that says that one is written takes it back.
        blocks: u16,
    },
    /// A chunk came to be.
    ChunkAdd(Box<Chunk>),
    /// A chunk went.
    ChunkRemove(ChunkId),
    /// A volume came to be, or something about it changed.
    Volume {
        /// Id.
        id: VolumeId,
        /// Name.
        name: String,
        /// Bytes.
        size: u64,
        /// Class.
        class: VolumeClass,
        /// What is written gets checksums.
        checksum: bool,
    },
    /// A volume went, with everything in it.
    VolumeRemove(VolumeId),
    /// A property has this value from now on; the empty value is the default.
    Property {
        /// Name.
        name: String,
        /// Value.
        value: String,
    },
    /// A device joined, or something about it changed.
    Device(Box<Device>),
    /// A device left, or, in a root, was the last of those that did; ids up to this one are never used again.
    DeviceRemove(DeviceId),
    /// What is known of the last job.
    Job(Box<Job>),
    /// Profiles of future chunks by type.
    Profiles([Profile; 3]),
    /// A column of a chunk is somewhere else now, with all that it held.
    Column {
        /// The chunk.
        chunk: ChunkId,
        /// Which of its columns.
        column: u16,
        /// Where it is.
        to: Column,
    },
    /// What is known of the last scrub.
    Scrub(Box<Scrub>),
    /// Copies of these regions of a volume may differ: see [`crate::regions`].
    Intent {
        /// The volume.
        volume: VolumeId,
        /// Which 64 of its regions.
        word: u32,
        /// One bit each; it adds to what was said before.
        bits: u64,
    },
    /// A member missed writes in these regions of a volume.
    Stale {
        /// The member.
        device: DeviceId,
        /// The volume.
        volume: VolumeId,
        /// Which 64 of its regions.
        word: u32,
        /// One bit each; it adds to what was said before.
        bits: u64,
    },
    /// A member missed writes in a region of a volume, but not of these units, which nothing else has.
    Kept {
        /// The member.
        device: DeviceId,
        /// The volume.
        volume: VolumeId,
        /// Which of its regions.
        region: u64,
        /// One bit each; of a region that was missed before, no more are kept than were.
        units: u64,
    },
    /// Root only: profiles of future chunks by type, and the next ids.
    Pool {
        /// Data, metadata, system.
        profiles: [Profile; 3],
        /// Ids below have been used.
        next_chunk: u32,
        /// Ids below have been used.
        next_volume: u32,
    },
    /// Root only: `count` leaves of a volume in one line.
    LeafLine {
        /// The volume.
        volume: VolumeId,
        /// First leaf.
        leaf: u64,
        /// The chunk.
        chunk: ChunkId,
        /// First unit in the chunk.
        first: u32,
    },
    /// Root only: a leaf in a page.
    LeafPage {
        /// The volume.
        volume: VolumeId,
        /// The leaf.
        leaf: u64,
        /// Address of the page.
        page: u64,
        /// Checksum of the page: tells it from an older one at the same address.
        crc: u32,
    },
}

impl Record {
    pub(crate) fn encode(&self, w: &mut Writer) {
        match self {
            Record::Map { volume, unit, count, entry } => {
                w.u8(1).u32(volume.0).u64(*unit).u16(*count).u64(entry.bits());
            }
            Record::Lost { volume, unit, blocks } => {
                w.u8(24).u32(volume.0).u64(*unit).u16(*blocks);
            }
            Record::ChunkAdd(chunk) => {
                w.u8(2);
                encode_chunk(w, chunk);
            }
            Record::ChunkRemove(id) => {
                w.u8(3).u32(id.0);
            }
            Record::Volume { id, name, size, class, checksum } => {
                let without = if *checksum { 0 } else { WITHOUT_CHECKSUM };
                w.u8(4).u32(id.0).text(name).u64(*size).u8(*class as u8 | without);
            }
            Record::VolumeRemove(id) => {
                w.u8(5).u32(id.0);
            }
            Record::Property { name, value } => {
                w.u8(6).text(name).text(value);
            }
            Record::Device(device) => {
                w.u8(7);
                encode_device(w, device);
            }
            Record::Pool { profiles, next_chunk, next_volume } => {
                w.u8(8);
                for profile in profiles {
                    w.u8(*profile as u8);
                }
                w.u32(*next_chunk).u32(*next_volume);
            }
            Record::LeafLine { volume, leaf, chunk, first } => {
                w.u8(9).u32(volume.0).u64(*leaf).u32(chunk.0).u32(*first);
            }
            Record::LeafPage { volume, leaf, page, crc } => {
                w.u8(10).u32(volume.0).u64(*leaf).u64(*page).u32(*crc);
            }
            Record::Intent { volume, word, bits } => {
                w.u8(12).u32(volume.0).u32(*word).u64(*bits);
            }
            Record::Stale { device, volume, word, bits } => {
                w.u8(13).u16(device.0 as u16).u32(volume.0).u32(*word).u64(*bits);
            }
            Record::Kept { device, volume, region, units } => {
                w.u8(14).u16(device.0 as u16).u32(volume.0).u64(*region).u64(*units);
            }
            Record::Scrub(scrub) => {
                w.u8(11);
                encode_scrub(w, scrub);
            }
            Record::DeviceRemove(id) => {
                w.u8(20).u32(id.0);
            }
            Record::Job(job) => {
                w.u8(21);
                encode_job(w, job);
            }
            Record::Column { chunk, column, to } => {
                w.u8(23).u32(chunk.0).u16(*column).u16(to.device.0 as u16).raw(&strips(to.offset));
            }
            Record::Profiles(profiles) => {
                w.u8(22);
                for profile in profiles {
                    w.u8(*profile as u8);
                }
            }
        }
    }

    /// The next record; every field is within its range, what it refers to is not looked at.
    #[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Record, Malformed> {
        Ok(match r.u8()? {
            1 => {
                let (volume, unit, count) = (volume_id(r)?, leaf_or_unit(r)?, r.u16()?);
                let entry = entry(r)?;
                let last = entry.unit().checked_add(u32::from(count)).ok_or(Malformed)?;
                check(count != 0 && (!entry.is_mapped() || last <= UNITS_MAX))?;
                Record::Map { volume, unit, count, entry }
            }
            2 => Record::ChunkAdd(Box::new(decode_chunk(r)?)),
            3 => Record::ChunkRemove(chunk_id(r)?),
            4 => {
                let (id, name, size) = (volume_id(r)?, r.text()?, r.u64()?);
                check(size != 0 && size <= VOLUME_MAX && size.is_multiple_of(BLOCK))?;
                check(crate::names::check_volume(&name).is_ok())?;
                let word = r.u8()?;
                let class = VolumeClass::ALL.get(usize::from(word & !WITHOUT_CHECKSUM)).copied().ok_or(Malformed)?;
                Record::Volume { id, name, size, class, checksum: word & WITHOUT_CHECKSUM == 0 }
            }
            5 => Record::VolumeRemove(volume_id(r)?),
            6 => Record::Property { name: r.text()?, value: r.text()? },
            7 => Record::Device(Box::new(decode_device(r)?)),
            8 => {
                let profiles = profiles(r)?;
                let (next_chunk, next_volume) = (r.u32()?, r.u32()?);
                check(next_chunk <= CHUNKS_MAX && next_volume <= VOLUME_IDS_MAX)?;
                Record::Pool { profiles, next_chunk, next_volume }
            }
            9 => {
                let (volume, leaf, chunk, first) = (volume_id(r)?, leaf_or_unit(r)?, chunk_id(r)?, r.u32()?);
                check(first <= UNITS_MAX - crate::chunk::REGION)?;
                Record::LeafLine { volume, leaf, chunk, first }
            }
            10 => Record::LeafPage { volume: volume_id(r)?, leaf: leaf_or_unit(r)?, page: r.u64()?, crc: r.u32()? },
            11 => Record::Scrub(Box::new(decode_scrub(r)?)),
            12 => Record::Intent { volume: volume_id(r)?, word: word(r)?, bits: r.u64()? },
            13 => {
                let device = DeviceId(u32::from(r.u16()?));
                check(device.0 != 0)?;
                Record::Stale { device, volume: volume_id(r)?, word: word(r)?, bits: r.u64()? }
            }
            14 => {
                let device = DeviceId(u32::from(r.u16()?));
                let (volume, region, units) = (volume_id(r)?, r.u64()?, r.u64()?);
                check(device.0 != 0 && region / 64 < u64::from(WORDS_MAX) && units != u64::MAX)?;
                Record::Kept { device, volume, region, units }
            }
            20 => Record::DeviceRemove(device_id(r)?),
            21 => Record::Job(Box::new(decode_job(r)?)),
            22 => Record::Profiles(profiles(r)?),
            23 => Record::Column { chunk: chunk_id(r)?, column: r.u16()?, to: column(r)? },
            24 => Record::Lost { volume: volume_id(r)?, unit: leaf_or_unit(r)?, blocks: r.u16()? },
            _ => return Err(Malformed),
        })
    }
}

fn check(fine: bool) -> Result<(), Malformed> {
    if fine { Ok(()) } else { Err(Malformed) }
}

fn word(r: &mut Reader<'_>) -> Result<u32, Malformed> {
    let word = r.u32()?;
    check(word < WORDS_MAX)?;
    Ok(word)
}

fn volume_id(r: &mut Reader<'_>) -> Result<VolumeId, Malformed> {
    let id = r.u32()?;
    // The map of volumes is a table: an id off a damaged disk must not size it.
    check(id < VOLUME_IDS_MAX)?;
    Ok(VolumeId(id))
}

fn chunk_id(r: &mut Reader<'_>) -> Result<ChunkId, Malformed> {
    let id = r.u32()?;
    check(id != 0 && id < CHUNKS_MAX)?;
    Ok(ChunkId(id))
}

fn device_id(r: &mut Reader<'_>) -> Result<DeviceId, Malformed> {
    let id = r.u32()?;
    check(id != 0 && id < DEVICES_MAX)?;
    Ok(DeviceId(id))
}

/// An entry, which is either nothing or has a chunk; whether that exists is not looked at.
pub(crate) fn entry(r: &mut Reader<'_>) -> Result<Entry, Malformed> {
    let entry = Entry::from_bits(r.u64()?);
    check(!entry.is_mapped() || entry.chunk().0 != 0)?;
    Ok(entry)
}

fn leaf_or_unit(r: &mut Reader<'_>) -> Result<u64, Malformed> {
    let n = r.u64()?;
    check(n < VOLUME_MAX / UNIT)?;
    Ok(n)
}

fn profile(r: &mut Reader<'_>) -> Result<Profile, Malformed> {
    Profile::ALL.get(usize::from(r.u8()?)).copied().ok_or(Malformed)
}

fn profiles(r: &mut Reader<'_>) -> Result<[Profile; 3], Malformed> {
    let [data, metadata, system] = [profile(r)?, profile(r)?, profile(r)?];
    check(system == system.system())?;
    Ok([data, metadata, system])
}

fn encode_job(w: &mut Writer, job: &Job) {
    let none = DeviceId(0);
    let (kind, device, by, choices) = match &job.task {
        Task::Remove { device } => (0, *device, none, [None, None]),
        Task::Balance { data, metadata } => (1, none, none, [data.as_ref(), metadata.as_ref()]),
        Task::Return => (2, none, none, [None, None]),
        Task::Replace { device, by } => (3, *device, *by, [None, None]),
    };
    w.u8(job.state as u8).u64(job.started).u64(job.ended).u64(job.ran_ms).u32(job.end).u64(job.done).u64(job.total);
    w.u32(job.chunks).u64(job.lost).u8(u8::from(job.no_room)).u8(kind).u32(device.0).u32(by.0);
    choices.into_iter().for_each(|choice| encode_choice(w, choice));
}

pub(crate) fn encode_choice(w: &mut Writer, choice: Option<&Choice>) {
    let Some(Choice { convert, soft, usage, device, profiles, limit }) = choice else {
        w.u8(0);
        return;
    };
    w.u8(1).u8(convert.map_or(u8::MAX, |p| p as u8)).u8(u8::from(*soft)).u8(*usage);
    w.u32(device.map_or(0, |d| d.0)).u16(*profiles).u32(*limit);
}

#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
fn decode_job(r: &mut Reader<'_>) -> Result<Job, Malformed> {
    let state = State::ALL.get(usize::from(r.u8()?)).copied().ok_or(Malformed)?;
    let (started, ended, ran_ms, end) = (r.u64()?, r.u64()?, r.u64()?, r.u32()?);
    let (done, total, chunks, lost, no_room) = (r.u64()?, r.u64()?, r.u32()?, r.u64()?, r.u8()? != 0);
    let (kind, device, by) = (r.u8()?, r.u32()?, r.u32()?);
    check(device < DEVICES_MAX && by < DEVICES_MAX && end <= CHUNKS_MAX)?;
    let (data, metadata) = (decode_choice(r)?, decode_choice(r)?);
    let task = match kind {
        0 => Task::Remove { device: DeviceId(device) },
        1 => Task::Balance { data, metadata },
        2 => Task::Return,
        3 => Task::Replace { device: DeviceId(device), by: DeviceId(by) },
        _ => return Err(Malformed),
    };
    Ok(Job { task, state, started, ended, ran_ms, end, done, total, chunks, lost, no_room })
}

#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub(crate) fn decode_choice(r: &mut Reader<'_>) -> Result<Option<Choice>, Malformed> {
    if r.u8()? == 0 {
        return Ok(None);
    }
    let convert = match r.u8()? {
        u8::MAX => None,
        number => Some(Profile::ALL.get(usize::from(number)).copied().ok_or(Malformed)?),
    };
    let (soft, usage, device) = (r.u8()? != 0, r.u8()?, r.u32()?);
    check(usage <= 100 && device < DEVICES_MAX)?;
    let device = (device != 0).then_some(DeviceId(device));
    Ok(Some(Choice { convert, soft, usage, device, profiles: r.u16()?, limit: r.u32()? }))
}

pub(crate) fn encode_chunk(w: &mut Writer, chunk: &Chunk) {
    w.u32(chunk.id.0).u8(chunk.kind as u8).u8(chunk.profile as u8).u8(u8::from(chunk.spilled));
    w.u64(chunk.stripe).u64(chunk.length).u16(chunk.columns.len() as u16);
    for column in &chunk.columns {
        // Seven bytes a column, so that the widest chunk fits one block of the log.
        w.u16(column.device.0 as u16).raw(&strips(column.offset));
    }
}

pub(crate) fn decode_chunk(r: &mut Reader<'_>) -> Result<Chunk, Malformed> {
    let id = chunk_id(r)?;
    let kind = match r.u8()? {
        0 => ChunkType::Data,
        1 => ChunkType::Metadata,
        2 => ChunkType::System,
        _ => return Err(Malformed),
    };
    let profile = profile(r)?;
    let spilled = r.u8()? != 0;
    let (stripe, length) = (r.u64()?, r.u64()?);
    let count = usize::from(r.u16()?);
    let facts = profile.facts();
    let wide = facts.devs_min * facts.dev_stripes;
    check(count >= wide.max(1) && count <= COLUMNS_MAX)?;
    let most = crate::profile::columns_max(profile);
    check(most == 0 || count <= most)?;
    check(stripe.is_multiple_of(UNIT) && stripe != 0 && stripe <= CHUNK_MAX)?;
    check(length.is_multiple_of(UNIT) && length != 0 && length <= CHUNK_MAX)?;
    let stripes = crate::profile::data_stripes(profile, count) as u64;
    check(stripe.checked_mul(stripes) == Some(length))?;
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        columns.push(column(r)?);
    }
    Ok(Chunk::new(id, kind, profile, stripe, length, columns, spilled))
}

fn column(r: &mut Reader<'_>) -> Result<Column, Malformed> {
    let device = DeviceId(u32::from(r.u16()?));
    let offset = place_of_strips(r)?;
    check(device.0 != 0)?;
    Ok(Column { device, offset })
}

/// Where a column begins, in strips.
fn strips(offset: u64) -> [u8; 5] {
    let [a, b, c, d, e, ..] = (offset / STRIP).to_le_bytes();
    [a, b, c, d, e]
}

#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
fn place_of_strips(r: &mut Reader<'_>) -> Result<u64, Malformed> {
    let mut strips = [0; 8];
    strips.get_mut(..5).ok_or(Malformed)?.copy_from_slice(r.take(5)?);
    let offset = u64::from_le_bytes(strips).checked_mul(STRIP).ok_or(Malformed)?;
    check(offset < DEVICE_MAX)?;
    Ok(offset)
}

fn encode_device(w: &mut Writer, device: &Device) {
    let mut path = device.path.as_str();
    while path.len() > PATH_MAX {
        path = &path[..path.char_indices().next_back().map_or(0, |(i, _)| i)];
    }
    w.u32(device.id.0).uuid(device.uuid).text(path).u64(device.size).text(device.class.name());
    let flags = u8::from(device.rotational)
        | u8::from(device.tiers_set) << 1
        | u8::from(device.read_preferred) << 2
        | u8::from(device.spare) << 3;
    w.u8(flags).u8(device.tiers.data).u8(device.tiers.metadata).u8(device.hint as u8).u8(device.state as u8);
    // Known names only: far fewer than a byte counts.
    w.u8(device.queue.len() as u8);
    for (name, value) in &device.queue {
        w.text(name).text(value);
    }
}

fn decode_device(r: &mut Reader<'_>) -> Result<Device, Malformed> {
    let (id, uuid, path, size) = (device_id(r)?, r.uuid()?, r.text()?, r.u64()?);
    check(size <= DEVICE_MAX && size.is_multiple_of(BLOCK))?;
    let class = DeviceClass::parse(&r.text()?).ok_or(Malformed)?;
    let flags = r.u8()?;
    let tiers = Tiers { data: r.u8()?, metadata: r.u8()? };
    let hint = Hint::ALL.get(usize::from(r.u8()?)).copied().ok_or(Malformed)?;
    let state = DeviceState::ALL.get(usize::from(r.u8()?)).copied().ok_or(Malformed)?;
    let mut queue = Overrides::new();
    for _ in 0..r.u8()? {
        let (name, value) = (r.text()?, r.text()?);
        // A setting of a later version is not a reason to refuse a pool.
        if config::is_name(&name) {
            queue.insert(name, value);
        }
    }
    Ok(Device {
        id,
        uuid,
        path,
        size,
        class,
        rotational: flags & 1 != 0,
        tiers,
        tiers_set: flags & 2 != 0,
        hint,
        read_preferred: flags & 4 != 0,
        queue,
        state,
        role: if flags & 8 != 0 { Role::Spare } else { Role::Member },
        spare: flags & 8 != 0,
        used: Default::default(),
        counters: Default::default(),
        written: 0,
        flushed: 0,
        faults: 0,
        last_error: None,
        age: Default::default(),
        is_behind: false,
        roster: 0,
    })
}

fn encode_scrub(w: &mut Writer, scrub: &Scrub) {
    w.u8(scrub.state as u8).u64(scrub.started).u64(scrub.ended).u64(scrub.ran_ms).u32(scrub.end);
    w.u64(scrub.done).u64(scrub.total).u64(scrub.unread).u64(scrub.differences).u64(scrub.read_errors);
    w.u64(scrub.undecided).u64(scrub.repaired);
    w.u16(scrub.found.len().min(FOUND_MAX) as u16);
    for (device, found) in scrub.found.iter().take(FOUND_MAX) {
        w.u16(device.0 as u16).u64(found.differences).u64(found.read_errors);
    }
    w.u16(scrub.places.len().min(PLACES_MAX) as u16);
    for (device, place) in scrub.places.iter().take(PLACES_MAX) {
        w.u16(device.0 as u16).raw(&strips(place.start)).u32(place.unit);
    }
}

#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
fn decode_scrub(r: &mut Reader<'_>) -> Result<Scrub, Malformed> {
    let state = State::ALL.get(usize::from(r.u8()?)).copied().ok_or(Malformed)?;
    let mut scrub =
        Scrub { state, started: r.u64()?, ended: r.u64()?, ran_ms: r.u64()?, end: r.u32()?, ..Scrub::default() };
    (scrub.done, scrub.total, scrub.unread) = (r.u64()?, r.u64()?, r.u64()?);
    (scrub.differences, scrub.read_errors) = (r.u64()?, r.u64()?);
    (scrub.undecided, scrub.repaired) = (r.u64()?, r.u64()?);
    let count = usize::from(r.u16()?);
    check(scrub.end <= CHUNKS_MAX && count <= FOUND_MAX)?;
    for _ in 0..count {
        let device = DeviceId(u32::from(r.u16()?));
        check(device.0 != 0)?;
        scrub.found.insert(device, Found { differences: r.u64()?, read_errors: r.u64()? });
    }
    let count = usize::from(r.u16()?);
    check(count <= PLACES_MAX)?;
    for _ in 0..count {
        let device = DeviceId(u32::from(r.u16()?));
        let place = Place { start: place_of_strips(r)?, unit: r.u32()? };
        check(place.unit <= UNITS_MAX)?;
        scrub.places.insert(device, place);
    }
    Ok(scrub)
}
