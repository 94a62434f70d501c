//! The superblock: who a device is, which pool it belongs to, and where the pool's maps begin.
//!
//! Two slots; generation `g` goes to slot `g % 2`, so that a torn write leaves the one before. Everything else about
//! the pool (the other members, chunks, volumes, properties) stands in the root that it points at.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::codec::{Malformed, Reader, Writer, crc32c, crc32c_without};
use super::record;
use crate::chunk::Chunk;
use crate::device::DEVICE_MAX;
use crate::units::{DeviceId, KIB, Uuid};

/// Bytes of one slot.
pub const SUPERBLOCK_SIZE: u64 = 16 * KIB;
/// First bytes of the slots.
pub const SLOTS: [u64; 2] = [64 * KIB, 512 * KIB];
/// The first eight bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"BRAIDsb\n";
/// The version this code writes.
pub const VERSION: u32 = 2;
/// Most system chunks of one pool, so that their list fits the slot.
pub const SYSTEM_CHUNKS_MAX: usize = 128;
/// Most runs of pages that a superblock lists: of the root, or of the pages that list the root's.
pub const ROOT_RUNS_MAX: usize = 128;
/// Most blocks of the log ring, 8 MiB: all of it is read at an opening.
pub const LOG_BLOCKS_MAX: u32 = 2048;
/// Openings that a superblock remembers.
pub const OPENINGS_MAX: usize = 16;
/// Most members that a superblock names as away; of more, those with the lowest ids.
pub(crate) const WITHOUT_MAX: usize = 1024;
/// Most members that a superblock says the image of; of more, those in use come first.
pub(crate) const LAGGING_MAX: usize = 512;
/// Generations that a member is ahead of the others, at most, when a power cut came between its superblock and theirs.
const AHEAD_MAX: u64 = 2;

/// How far the superblock of a member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Age {
    /// Its generation.
    pub generation: u64,
    /// The number of its image; 0 of a superblock that was written before images were counted.
    pub image: u64,
}

/// One superblock.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// Identity of the pool.
    pub pool: Uuid,
    /// Name of the pool.
    pub name: String,
    /// This device's id within the pool.
    pub device: DeviceId,
    /// Identity of this device.
    pub device_uuid: Uuid,
    /// Bytes of this device that the pool uses.
    pub device_size: u64,
    /// Raised by every checkpoint; the highest one counts.
    pub generation: u64,
    /// Raised by every opening: log blocks of another epoch don't count.
    pub epoch: u32,
    /// The boot of the machine that wrote it last.
    pub boot: Uuid,
    /// The latest openings of the pool that this member took part in, newest first: random, so that two halves of a
    /// mirror that were opened each without the other don't take one another for themselves.
    pub openings: Vec<Uuid>,
    /// Members that were away or given up when it was written.
    pub without: Vec<DeviceId>,
    /// Raised by every checkpoint, and not by openings that are cut before theirs; 0 of one that was written before images were counted.
    pub image: u64,
    /// Members whose superblock may say less than the image before this one, and which image it says at least.
    pub lagging: Vec<(DeviceId, u64)>,
    /// Nothing was under way when it was written. For people only: the log is read all the same, since this
    /// superblock stays the newest while the pool goes on.
    pub clean: bool,
    /// Blocks of the log ring at the front of the first system chunk.
    pub log_blocks: u32,
    /// Sequence number of the first log block to look at.
    pub log_seq: u64,
    /// First record that the root does not contain.
    pub first_lsn: u64,
    /// Bytes of the root.
    pub root_len: u32,
    /// Checksum of the root: tells it from parts of older ones.
    pub root_crc: u32,
    /// `root` lists pages that list the root's runs, not the root's own.
    pub root_is_listed: bool,
    /// Where the root is: runs of pages (address of the first, how many).
    pub root: Vec<(u64, u32)>,
    /// The system chunks; the first one holds the log.
    pub system: Vec<Chunk>,
}

/// What a slot of a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotError {
    /// Not a superblock of braid at all.
    Foreign,
    /// Written by a version that this one does not understand.
    Version(u32),
    /// It was a superblock; the reason says what is wrong.
    Damaged(String),
}

impl core::fmt::Display for SlotError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SlotError::Foreign => f.write_str("no braid superblock"),
            SlotError::Version(v) => write!(f, "format version {v}; this braid understands version {VERSION}"),
            SlotError::Damaged(why) => f.write_str(why),
        }
    }
}

/// The generation of the superblock in a slot; none where that is not whole, or not of this pool and for this device.
pub fn generation(slot: &[u8], pool: Uuid, device: Uuid) -> Option<u64> {
    let found = Superblock::decode(slot).ok()?;
    ((found.pool, found.device_uuid) == (pool, device)).then_some(found.generation)
}

impl Superblock {
    /// An opening begins.
    pub(crate) fn note_opening(&mut self, opening: Uuid) {
        self.openings.insert(0, opening);
        self.openings.truncate(OPENINGS_MAX);
    }

    /// Whether a member that says `other` has seen nothing that this one's line does not know: the last opening it took
    /// part in is one of ours. What was never opened is everybody's ancestor.
    pub(crate) fn descends_from(&self, other: &Superblock) -> bool {
        other.openings.first().is_none_or(|opening| self.openings.contains(opening))
    }

    /// Whether the pool went on without the member that says `other`, after a power cut that only that one has the last
    /// superblock of. What it names may have been written over. If each went on without the other it is another matter.
    pub(crate) fn went_on_without(&self, other: &Superblock) -> bool {
        self.without.contains(&other.device)
            && !other.without.contains(&self.device)
            && !self.openings.first().is_some_and(|opening| other.openings.contains(opening))
            && other.generation <= self.generation + AHEAD_MAX
    }

    /// How far it is.
    pub fn age(&self) -> Age {
        Age { generation: self.generation, image: self.image }
    }

    /// How far the superblock of another member is at least, as this one knows. A power cut among the superblocks of a checkpoint leaves
    /// some that say the image before; whoever may have less is named.
    pub(crate) fn least_age(&self, member: DeviceId) -> Age {
        let is_away = self.without.contains(&member);
        let unnamed = if is_away { 0 } else { self.image.saturating_sub(1) };
        let image = self.lagging.iter().find(|(id, _)| *id == member).map_or(unnamed, |&(_, image)| image);
        Age { generation: if is_away { 0 } else { self.generation }, image }
    }

    /// Who is away is named with the image that it has, as far as that is known, and not known less of than before.
    pub(crate) fn name_lagging(&mut self, image_of: impl Fn(DeviceId) -> u64) {
        for &id in &self.without {
            let image = image_of(id);
            if image > 0 && self.lagging.len() < LAGGING_MAX && self.lagging.iter().all(|(named, _)| *named != id) {
                self.lagging.push((id, image));
            }
        }
    }

    /// The slot this generation goes to.
    pub fn slot(&self) -> u64 {
        SLOTS[(self.generation % 2) as usize]
    }

    /// The bytes of a slot.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.uuid(self.pool).text(&self.name).u32(self.device.0).uuid(self.device_uuid).u64(self.device_size);
        w.u64(self.generation).u32(self.epoch).uuid(self.boot).u8(self.openings.len() as u8);
        for &opening in &self.openings {
            w.uuid(opening);
        }
        w.u8(u8::from(self.clean));
        w.u32(self.log_blocks).u64(self.log_seq).u64(self.first_lsn);
        w.u32(self.root_len).u32(self.root_crc).u8(u8::from(self.root_is_listed)).u16(self.root.len() as u16);
        for &(page, count) in &self.root {
            w.u64(page).u32(count);
        }
        w.u16(self.system.len() as u16);
        for chunk in &self.system {
            record::encode_chunk(&mut w, chunk);
        }
        if !self.without.is_empty() || self.image > 0 {
            w.u16(self.without.len() as u16);
            for device in &self.without {
                w.u16(device.0 as u16);
            }
        }
        if self.image > 0 {
            w.u64(self.image).u16(self.lagging.len() as u16);
            for &(device, image) in &self.lagging {
                w.u16(device.0 as u16).u64(image);
            }
        }
        let body = w.bytes;
        assert!(body.len() + HEADER <= SUPERBLOCK_SIZE as usize, "superblock of {} bytes", body.len());
        let mut slot = Writer::with_room(SUPERBLOCK_SIZE as usize);
        slot.raw(&MAGIC).u32(VERSION).u32(0).u32(body.len() as u32).u32(0).raw(&body);
        let mut bytes = slot.bytes;
        bytes.resize(SUPERBLOCK_SIZE as usize, 0);
        let crc = crc32c(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What a slot says. The whole slot is sealed, so one flipped bit anywhere in it is found.
    #[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    pub fn decode(slot: &[u8]) -> Result<Superblock, SlotError> {
        let damaged = |why: &str| SlotError::Damaged(String::from(why));
        let mut head = Reader::new(slot);
        if head.take(MAGIC.len()) != Ok(&MAGIC) {
            return Err(SlotError::Foreign);
        }
        let cut = |_| damaged("superblock cut short");
        let version = head.u32().map_err(cut)?;
        if version != VERSION {
            return Err(SlotError::Version(version));
        }
        let crc = head.u32().map_err(cut)?;
        let len = head.u32().map_err(cut)?;
        head.u32().map_err(cut)?;
        let body = head.take(len as usize).map_err(|_| damaged("superblock length is out of range"))?;
        let found = crc32c_without(slot, CRC_AT);
        if found != crc {
            return Err(SlotError::Damaged(format!("superblock checksum is {found:08x}, {crc:08x} was written")));
        }
        Self::decode_body(body).map_err(|Malformed| damaged("superblock has the right checksum over a wrong content"))
    }

    fn decode_body(body: &[u8]) -> Result<Superblock, Malformed> {
        let mut r = Reader::new(body);
        let mut sb = Superblock {
            pool: r.uuid()?,
            name: r.text()?,
            device: DeviceId(r.u32()?),
            device_uuid: r.uuid()?,
            device_size: r.u64()?,
            generation: r.u64()?,
            epoch: r.u32()?,
            boot: r.uuid()?,
            openings: openings(&mut r)?,
            without: vec![],
            image: 0,
            lagging: vec![],
            clean: r.u8()? != 0,
            log_blocks: r.u32()?,
            log_seq: r.u64()?,
            first_lsn: r.u64()?,
            root_len: r.u32()?,
            root_crc: r.u32()?,
            root_is_listed: r.u8()? != 0,
            root: vec![],
            system: vec![],
        };
        let runs = usize::from(r.u16()?);
        if runs > ROOT_RUNS_MAX {
            return Err(Malformed);
        }
        for _ in 0..runs {
            sb.root.push((r.u64()?, r.u32()?));
        }
        let chunks = usize::from(r.u16()?);
        if chunks == 0 || chunks > SYSTEM_CHUNKS_MAX {
            return Err(Malformed);
        }
        for _ in 0..chunks {
            sb.system.push(record::decode_chunk(&mut r)?);
        }
        if !r.is_empty() {
            let count = usize::from(r.u16()?);
            if count > WITHOUT_MAX {
                return Err(Malformed);
            }
            for _ in 0..count {
                sb.without.push(DeviceId(r.u16()?.into()));
            }
        }
        if !r.is_empty() {
            sb.image = r.u64()?;
            let count = usize::from(r.u16()?);
            if count > LAGGING_MAX {
                return Err(Malformed);
            }
            for _ in 0..count {
                sb.lagging.push((DeviceId(r.u16()?.into()), r.u64()?));
            }
        }
        let sane = crate::names::check_pool(&sb.name).is_ok()
            && sb.device.0 != 0
            && sb.device.0 < record::DEVICES_MAX
            // Far below the end of the numbers, so that going on from them cannot wrap.
            && [sb.generation, sb.image, sb.log_seq, sb.first_lsn].iter().all(|&n| n < 1 << 62)
            && sb.generation != 0
            && (4..=LOG_BLOCKS_MAX).contains(&sb.log_blocks)
            && sb.device_size <= DEVICE_MAX
            // What this member can know of itself; of the others, their superblocks and the root do.
            && sb.system.iter().all(|chunk| {
                let inside = |end: u64| end <= sb.device_size;
                chunk.columns.iter().filter(|c| c.device == sb.device).all(|c| c.offset.checked_add(chunk.stripe).is_some_and(inside))
            })
            && u64::from(sb.log_blocks) * super::PAGE < sb.system[0].length;
        if sane { Ok(sb) } else { Err(Malformed) }
    }
}

fn openings(r: &mut Reader<'_>) -> Result<Vec<Uuid>, Malformed> {
    let count = usize::from(r.u8()?);
    if count > OPENINGS_MAX {
        return Err(Malformed);
    }
    (0..count).map(|_| r.uuid()).collect()
}

const CRC_AT: usize = 12;
const HEADER: usize = 24;

/// The newest superblock among both slots of a device, or why there is none: the more telling of the two reasons.
pub fn newest(slots: [&[u8]; 2]) -> Result<Superblock, SlotError> {
    let [a, b] = slots.map(Superblock::decode);
    newer(a, b)
}

/// The same of slots that were read already.
pub fn newer(a: Result<Superblock, SlotError>, b: Result<Superblock, SlotError>) -> Result<Superblock, SlotError> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok(if a.generation >= b.generation { a } else { b }),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(SlotError::Foreign), Err(other)) | (Err(other), Err(_)) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::units::{ChunkId, MIB};
    use crate::{ChunkType, chunk::Column};

    const fn opening(n: u8) -> Uuid {
        Uuid([n; 16])
    }

    /// Of this member and generation, that took part in these openings, the last one without those members.
    fn superblock(device: u32, generation: u64, openings: &[u8], without: &[u32]) -> Superblock {
        let columns = Vec::from([Column { device: DeviceId(device), offset: MIB }]);
        let system = Chunk::new(ChunkId(1), ChunkType::System, Profile::Single, 2 * MIB, 2 * MIB, columns, false);
        Superblock {
            pool: Uuid([1; 16]),
            name: "tank".into(),
            device: DeviceId(device),
            device_uuid: Uuid([device as u8; 16]),
            device_size: 64 * MIB,
            generation,
            epoch: 1,
            boot: Uuid::default(),
            openings: openings.iter().map(|&n| opening(n)).collect(),
            without: without.iter().map(|&id| DeviceId(id)).collect(),
            image: 0,
            lagging: Vec::new(),
            clean: false,
            log_blocks: 8,
            log_seq: 0,
            first_lsn: 0,
            root_len: 0,
            root_crc: 0,
            root_is_listed: false,
            root: Vec::new(),
            system: Vec::from([system]),
        }
    }

    #[test]
    fn who_was_away_is_read_as_it_was_written() {
        for without in [&[][..], &[2], &[2, 7, 65_535]] {
            let sb = superblock(1, 4, &[3, 2], without);
            let read = Superblock::decode(&sb.encode()).expect("it was just written");
            assert_eq!((read.without, read.openings), (sb.without, sb.openings));
        }
        let many: Vec<u32> = (2..WITHOUT_MAX as u32 + 3).collect();
        assert!(matches!(Superblock::decode(&superblock(1, 4, &[], &many).encode()), Err(SlotError::Damaged(_))));
    }

    #[test]
    fn images_are_read_as_they_were_written_and_none_where_they_were_not_counted() {
        for without in [&[][..], &[2]] {
            for (image, lagging) in [(0, &[][..]), (1, &[]), (9, &[(3, 0)]), (9, &[(3, 0), (65_535, 7)])] {
                let lagging: Vec<_> = lagging.iter().map(|&(id, image)| (DeviceId(id), image)).collect();
                let sb = Superblock { image, lagging, ..superblock(1, 4, &[3, 2], without) };
                let bytes = sb.encode();
                let read = Superblock::decode(&bytes).expect("it was just written");
                assert_eq!((read.without, read.image, read.lagging), (sb.without, image, sb.lagging));
                // What came before images ended before them.
                let body = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]) as usize;
                let end = superblock(1, 4, &[3, 2], without).encode()[16..20].to_vec();
                assert_eq!(image == 0, body.to_le_bytes()[..4] == end[..], "image {image}");
            }
        }
        let many = (2..LAGGING_MAX as u32 + 3).map(|id| (DeviceId(id), 1)).collect();
        let many = Superblock { image: 9, lagging: many, ..superblock(1, 4, &[], &[]) };
        assert!(matches!(Superblock::decode(&many.encode()), Err(SlotError::Damaged(_))));
    }

    #[test]
    fn the_longest_lists_fit_a_slot() {
        let columns = |at: u64| (1..5).map(|id| Column { device: DeviceId(id), offset: at * MIB }).collect();
        let chunk = |id: u32| {
            let columns: Vec<Column> = columns(u64::from(id));
            Chunk::new(ChunkId(id), ChunkType::System, Profile::Raid1c4, MIB, MIB, columns, false)
        };
        let all: Vec<u32> = (5..5 + WITHOUT_MAX as u32).collect();
        let name: String = core::iter::repeat_n('n', 64).collect();
        let sb = Superblock {
            name: name.clone(),
            device_size: 256 * MIB,
            image: 1 << 60,
            lagging: all.iter().take(LAGGING_MAX).map(|&id| (DeviceId(id), 1 << 59)).collect(),
            root: (0..ROOT_RUNS_MAX as u64).map(|run| (run << 40, 1)).collect(),
            system: (1..=SYSTEM_CHUNKS_MAX as u32).map(chunk).collect(),
            ..superblock(1, 4, &[1; OPENINGS_MAX], &all)
        };
        let read = Superblock::decode(&sb.encode()).expect("it was just written");
        assert_eq!((read.name, read.lagging), (name, sb.lagging));
    }

    #[test]
    fn what_a_superblock_knows_of_the_others() {
        let sb = Superblock {
            image: 9,
            lagging: Vec::from([(DeviceId(3), 5), (DeviceId(4), 2), (DeviceId(5), 0)]),
            ..superblock(1, 40, &[3, 2], &[2, 4])
        };
        for (member, generation, image) in [(1, 40, 8), (2, 0, 0), (3, 40, 5), (4, 0, 2), (5, 40, 0), (6, 40, 8)] {
            assert_eq!(sb.least_age(DeviceId(member)), Age { generation, image }, "{member}");
        }
        for image in [0, 1] {
            let first = Superblock { image, ..superblock(1, 40, &[3, 2], &[]) };
            assert_eq!(first.least_age(DeviceId(2)), Age { generation: 40, image: 0 });
        }
    }

    #[test]
    fn a_pool_went_on_without_who_is_ahead_by_a_checkpoint_that_was_cut() {
        for (why, other, is_left) in [
            ("it has the superblock that was cut", superblock(2, 7, &[2, 1], &[]), true),
            ("only it was claimed then", superblock(2, 7, &[4, 1], &[]), true),
            ("it is as old", superblock(2, 6, &[2, 1], &[]), true),
            ("it went on for longer", superblock(2, 9, &[2, 1], &[]), false),
            ("it went on without this one, too", superblock(2, 7, &[2, 1], &[1]), false),
            ("it was there when this was written, or later", superblock(2, 7, &[4, 3, 2], &[]), false),
            ("it was not away", superblock(5, 7, &[2, 1], &[]), false),
        ] {
            assert_eq!(superblock(1, 6, &[3, 2, 1], &[2]).went_on_without(&other), is_left, "{why}");
        }
    }
}
