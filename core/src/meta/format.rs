//! A new pool: what to write on empty devices.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::PAGE;
use super::image;
use super::pages::{self, PageSpace};
use super::record::{DEVICES_MAX, Record};
use super::superblock::{LOG_BLOCKS_MAX, SLOTS, SUPERBLOCK_SIZE, Superblock};
use crate::ChunkType;
use crate::allocator::{Hint, Tiers};
use crate::chunk::{Chunk, Column};
use crate::control::{ControlError, ErrorKind, VolumeClass};
use crate::device::{DEVICE_MAX, DEVICE_MIN, Device, DeviceClass};
use crate::pool::Pool;
use crate::profile::Profile;
use crate::units::{DeviceId, MIB, Uuid};
use crate::volume::{INTERNAL, INTERNAL_NAME, VOLUME_MAX};

/// A device that is to be a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDevice {
    /// Fresh identity.
    pub uuid: Uuid,
    /// What the host calls it.
    pub path: String,
    /// Usable bytes, a multiple of `BLOCK`.
    pub size: u64,
    /// Label.
    pub class: DeviceClass,
    /// As sampled or said.
    pub rotational: bool,
    /// Tiers, when the operator gave some.
    pub tiers: Option<Tiers>,
    /// Hint for mode `allocation-hint`.
    pub hint: Hint,
}

impl NewDevice {
    /// Whether a member may have this size.
    pub(crate) fn check(&self) -> Result<(), ControlError> {
        let text = match self.size {
            size if size < DEVICE_MIN => {
                format!("{} has {size} bytes; a member needs at least {} MiB", self.path, DEVICE_MIN / MIB)
            }
            size if size > DEVICE_MAX => format!("{} has {size} bytes; a member has at most {DEVICE_MAX}", self.path),
            _ => return Ok(()),
        };
        Err(ControlError::new(ErrorKind::Usage, text))
    }
}

/// A new pool.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// Name.
    pub name: String,
    /// Fresh identity.
    pub uuid: Uuid,
    /// Profile of data chunks.
    pub data: Profile,
    /// Profile of metadata chunks.
    pub metadata: Profile,
    /// Members; their ids will be 1, 2, 3, … in this order.
    pub devices: Vec<NewDevice>,
    /// Properties that are not to have their default.
    pub properties: Vec<(String, String)>,
}

/// Bytes for a place of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index into [`NewPool::devices`].
    pub device: usize,
    /// First byte.
    pub offset: u64,
    /// What to write.
    pub bytes: Vec<u8>,
}

/// How to make a pool.
pub struct Plan {
    /// To write first, then flush.
    pub pages: Vec<Place>,
    /// To write after that, then flush: from now on the pool exists.
    pub superblocks: Vec<Place>,
    /// Where the first chunks of each type would go: what `-n` shows.
    pub preview: Vec<Chunk>,
    /// Bytes of data and metadata the pool can hold.
    pub writable: [u64; 2],
}

/// Checks everything that can be known without touching a device, and says what to write.
pub fn plan(new: &NewPool) -> Result<Plan, ControlError> {
    let usage = |message| ControlError::new(ErrorKind::Usage, message);
    crate::names::check_pool(&new.name).map_err(usage)?;
    for (what, profile) in [("data", new.data), ("metadata", new.metadata)] {
        let (need, have) = (profile.facts().devs_min, new.devices.len());
        if have < need {
            let devices = if have == 1 { "device" } else { "devices" };
            return Err(usage(format!(
                "{what} profile {} needs {need} devices and {have} {devices} were given; add devices or choose a \
                 smaller profile",
                profile.name()
            )));
        }
    }
    if new.devices.len() >= DEVICES_MAX as usize {
        return Err(usage(format!("a pool has fewer than {DEVICES_MAX} devices")));
    }
    let mut pool = Pool::new(new.name.clone(), new.uuid);
    pool.profiles = [new.data, new.metadata, new.metadata.system()];
    for (name, value) in &new.properties {
        pool.properties.set(name, value)?;
    }
    if pool.properties.checksum.is_on() {
        let (name, size, class) = (INTERNAL_NAME.into(), VOLUME_MAX, VolumeClass::Metadata);
        let volume = Record::Volume { id: INTERNAL, name, size, class, checksum: false };
        pool.apply(volume).expect("a new pool has no volumes");
    }
    let mut uuids: Vec<Uuid> = new.devices.iter().map(|d| d.uuid).collect();
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), new.devices.len(), "identities are fresh");
    for (i, d) in new.devices.iter().enumerate() {
        d.check()?;
        let device = Device::new(DeviceId(i as u32 + 1), d);
        let applied = pool.apply(Record::Device(Box::new(device)));
        applied.expect("a fresh device contradicts nothing");
    }
    pool.properties.check_queues(pool.devices())?;
    let system = add_chunk(&mut pool, ChunkType::System)?;
    let log_blocks = (system.length / 4 / PAGE).min(u64::from(LOG_BLOCKS_MAX));
    let mut space = PageSpace::default();
    space.add(&system, log_blocks);
    let image = image::build(&mut pool, &mut space, &[])
        .ok_or_else(|| ControlError::new(ErrorKind::NoSpace, "the devices are too small for the pool's own records"))?;
    let locate = |page| pages::locate(page).1;
    let page_places = image.writes.iter().flat_map(|(page, bytes)| {
        let column =
            |c: &Column| Place { device: c.device.index() - 1, offset: c.offset + locate(*page), bytes: bytes.clone() };
        system.columns.iter().map(column).collect::<Vec<_>>()
    });
    let superblock = |(i, d): (usize, &NewDevice)| {
        let sb = Superblock {
            pool: new.uuid,
            name: new.name.clone(),
            device: DeviceId(i as u32 + 1),
            device_uuid: d.uuid,
            device_size: d.size,
            generation: 1,
            epoch: 0,
            boot: Uuid::default(),
            openings: vec![],
            without: vec![],
            image: 1,
            lagging: vec![],
            clean: true,
            log_blocks: log_blocks as u32,
            log_seq: 0,
            first_lsn: 0,
            root_len: image.root_len,
            root_crc: image.root_crc,
            root_is_listed: image.is_listed(),
            root: image.place(),
            system: vec![system.clone()],
        };
        let other = SLOTS.into_iter().find(|&s| s != sb.slot()).expect("two slots");
        // The other slot may hold the superblock of an earlier pool.
        [
            Place { device: i, offset: other, bytes: vec![0; SUPERBLOCK_SIZE as usize] },
            Place { device: i, offset: sb.slot(), bytes: sb.encode() },
        ]
    };
    let superblocks = new.devices.iter().enumerate().flat_map(superblock).collect();
    let pages = page_places.collect();
    // Asked of the pool as it will be opened: the chunks below are only shown.
    let writable = pool.writable();
    let preview = [ChunkType::Metadata, ChunkType::Data].map(|kind| add_chunk(&mut pool, kind));
    let [metadata, data] = preview;
    let preview = vec![system, metadata?, data?];
    Ok(Plan { pages, superblocks, preview, writable })
}

fn add_chunk(pool: &mut Pool, kind: ChunkType) -> Result<Chunk, ControlError> {
    let chunk = pool.plan_chunk(kind).map_err(|no| {
        let what = match kind {
            ChunkType::Data => "data",
            ChunkType::Metadata => "metadata",
            ChunkType::System => "the pool's own records",
        };
        let text = format!("no room for {what} ({}): {no}", pool.profiles[kind as usize].name());
        ControlError::new(ErrorKind::NoSpace, text)
    })?;
    pool.apply(Record::ChunkAdd(Box::new(chunk.clone()))).expect("a planned chunk fits");
    Ok(chunk)
}
