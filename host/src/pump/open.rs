//! Opening a pool: writing a new one, or reading one back.

use std::collections::VecDeque;
use std::time::Instant as Clock;

use braid_core::device::Role;
use braid_core::flight::Entry;
use braid_core::meta::assembly::{Assembly, MetaRead, Step};
use braid_core::meta::format::{self, NewPool, Place};
use braid_core::meta::superblock::{self, Superblock};
use braid_core::request::{DeviceOp, IoError};
use braid_core::units::{DeviceId, Instant, Uuid};
use braid_core::{DeviceState, Engine};

use super::disks::WASTE;
use super::door::{Door, Flight};
use super::handle::Opened;
use super::inbox::Inbox;
use super::{ARENA, MEMORY_MIN, Options, Pump, Setup, Without};
use crate::aligned::AlignedBox;
use crate::backend::Disk;
use crate::buffers::Buffers;
use crate::reactor::{DiskId, Event, Reactor, Seg};

impl Pump {
    /// On the pump's own thread: the ring belongs to whoever waits on it first.
    pub(super) fn open(options: Options, disks: Vec<(DeviceId, Disk)>, setup: Setup) -> Result<(Pump, Opened), String> {
        let memory = options.memory.max(MEMORY_MIN);
        let buffers = Buffers::new(ARENA.min(memory), memory).map_err(|e| format!("no payload memory: {e}"))?;
        let mut reactor = Reactor::new(options.reactor, &buffers).map_err(|e| format!("no way to do I/O: {e}"))?;
        let mut table = Vec::new();
        for (id, disk) in disks {
            if table.len() <= id.index() {
                table.resize(id.index() + 1, None);
            }
            table[id.index()] = Some(reactor.add_disk(disk));
        }
        let (found, written) = match setup {
            Setup::Import(found) => (found, Vec::new()),
            Setup::Create(new) => create(&mut reactor, &table, &new)?,
        };
        // A pool is opened with or without its record.
        let made = options.flight.as_ref().map(|(path, max)| Flight::new(path, *max)).transpose();
        let mut flight = made.unwrap_or_else(|why| {
            tracing::warn!("{why}");
            None
        });
        let mut note = |entry: Entry| flight.iter_mut().for_each(|flight| flight.note(&entry));
        note(Entry::Boot(options.boot));
        found.iter().for_each(|superblock| note(Entry::Superblock(superblock.encode())));
        let mut assembly = Assembly::new(found, options.boot)?;
        let opened = loop {
            match assembly.step() {
                Step::Ready(opened) => break opened,
                Step::Failed(reason) => return Err(reason),
                Step::Read(reads) => {
                    for read in reads {
                        let result = match copy_of_written(&written, read) {
                            // A disk that keeps nothing (null:) can still be tried: what was just written is known.
                            Some(bytes) => Ok(bytes),
                            None => read_back(&mut reactor, &table, read),
                        };
                        note(Entry::Read(read, result.clone()));
                        assembly.supply(read, result);
                    }
                }
            }
        };
        if let Some(why) = &opened.gives_up
            && options.without != Without::Apart
        {
            return Err(why.clone());
        }
        let may_lack = |id: DeviceId| match options.without {
            Without::Nothing => false,
            Without::Away => opened.was_without(id),
            Without::Absent | Without::Apart => true,
        };
        let absent = opened.pool().devices().filter(|d| d.state == DeviceState::Missing && d.role != Role::Spare);
        let lacks = absent.filter(|d| !may_lack(d.id));
        let names: Vec<String> = lacks.map(|d| format!("device {} (last seen at {})", d.id, d.path)).collect();
        if !names.is_empty() {
            return Err(format!(
                "pool {:?} lacks {}; connect it, or import the pool without it: it is caught up when it is back",
                opened.pool().name,
                names.join(" and ")
            ));
        }
        let told = Opened {
            missing: opened.missing.clone(),
            forgotten: opened.forgotten,
            reactor: reactor.engine().to_owned(),
        };
        let started = Clock::now();
        let opening = Uuid(uuid::Uuid::new_v4().into_bytes());
        note(Entry::Open(opening));
        let engine = Door::new(Engine::new(*opened, Instant(0), options.boot, opening), flight);
        let inbox = Inbox { messages: Some(Vec::new()).into(), waker: reactor.waker() };
        let pump = Pump {
            engine,
            reactor,
            buffers,
            inbox: inbox.into(),
            started,
            disks: table,
            on_event: options.on_event,
            clients: Vec::new(),
            answered: Vec::new(),
            again: Vec::new(),
            hearing: Vec::new(),
            stalled: Vec::new(),
            present: 0,
            called: 0,
            freed: false,
            refreshed: false,
            actions: Vec::new(),
            thirsty: VecDeque::new(),
            #[cfg(feature = "fuse")]
            dues: Vec::new(),
            #[cfg(feature = "fuse")]
            dues_free: Vec::new(),
            #[cfg(feature = "fuse")]
            thirsty_calls: VecDeque::new(),
            loads: None,
            commands: Default::default(),
            joining: Default::default(),
            next_command: 0,
            records: Default::default(),
            segs: Vec::new(),
            zeroings: Vec::new(),
            zeros: None,
            waste: AlignedBox::zeroed(WASTE),
            last_sweep: started,
            stopping: None,
        };
        Ok((pump, told))
    }
}

/// Writes a new pool: its records, then, when those are safe, the superblocks that make it one.
fn create(
    reactor: &mut Reactor,
    disks: &[Option<DiskId>],
    new: &NewPool,
) -> Result<(Vec<Superblock>, Vec<Place>), String> {
    let plan = format::plan(new).map_err(|e| e.message)?;
    let disk_of = |device: usize| disks.get(device + 1).copied().flatten();
    for places in [&plan.pages, &plan.superblocks] {
        let mut written = Vec::new();
        for place in places.iter() {
            let disk = disk_of(place.device).ok_or("a device of the new pool is not open")?;
            let path = &new.devices[place.device].path;
            let mut bytes = AlignedBox::copy_of(&place.bytes);
            let seg = Seg { ptr: bytes.as_mut_ptr(), len: place.bytes.len() };
            let op = DeviceOp::Write { fua: false };
            one(reactor, disk, op, place.offset, &[seg]).map_err(|e| {
                format!("writing {path} at {} failed ({e:?}); nothing uses it as a member", place.offset)
            })?;
            written.push((disk, path));
        }
        written.dedup_by_key(|(disk, _)| *disk);
        for (disk, path) in written {
            one(reactor, disk, DeviceOp::Flush, 0, &[]).map_err(|e| format!("flushing {path} failed ({e:?})"))?;
        }
    }
    let superblocks = plan.superblocks.iter().filter_map(|place| Superblock::decode(&place.bytes).ok()).collect();
    Ok((superblocks, plan.pages))
}

fn copy_of_written(written: &[Place], read: MetaRead) -> Option<Vec<u8>> {
    if written.is_empty() {
        return None;
    }
    let exact = |p: &&Place| p.device + 1 == read.device.index() && p.offset == read.offset;
    let found = written.iter().find(exact).filter(|p| p.bytes.len() as u64 == read.len);
    // Nothing else of a new pool has any content: its log is empty.
    Some(found.map_or_else(|| vec![0; read.len as usize], |p| p.bytes.clone()))
}

fn read_back(reactor: &mut Reactor, disks: &[Option<DiskId>], read: MetaRead) -> Result<Vec<u8>, IoError> {
    let disk = disks.get(read.device.index()).copied().flatten().ok_or(IoError::Gone)?;
    let mut bytes = AlignedBox::zeroed(read.len as usize);
    let seg = Seg { ptr: bytes.as_mut_ptr(), len: read.len as usize };
    one(reactor, disk, DeviceOp::Read, read.offset, &[seg])?;
    Ok(bytes.to_vec())
}

/// One command, waited for.
fn one(reactor: &mut Reactor, disk: DiskId, op: DeviceOp, offset: u64, segs: &[Seg]) -> Result<(), IoError> {
    let len = segs.iter().map(|s| s.len as u64).sum();
    // SAFETY: the caller keeps the memory until this returns, and this returns when the command is done.
    unsafe { reactor.submit(disk, 0, op, offset, len, segs) };
    let mut events = Vec::new();
    loop {
        reactor.wait(&mut events, None);
        for event in events.drain(..) {
            if let Event::Disk { result, .. } = event {
                return result;
            }
        }
    }
}

/// The newest superblock of a disk, or why there is none.
pub fn superblock_of(disk: &Disk) -> Result<Superblock, String> {
    let mut slots = Vec::new();
    for at in superblock::SLOTS {
        let slot = disk.read_blocks(at, superblock::SUPERBLOCK_SIZE as usize);
        slots.push(slot.map_err(|e| format!("its superblock at {at} cannot be read: {e}"))?);
    }
    superblock::newest([&slots[0], &slots[1]]).map_err(|e| e.to_string())
}
