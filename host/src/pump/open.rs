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
        let mut opening = Opening::new(&mut reactor, &table);
        let (found, written) = match setup {
            Setup::Import(found) => (found, Vec::new()),
            Setup::Create(new) => opening.create(&new)?,
        };
        // A pool is opened with or without its record.
        let made = options.flight.as_ref().map(|(path, max)| Flight::new(path, *max)).transpose();
        let mut flight = made.unwrap_or_else(|why| {
            tracing::warn!("{why}");
            None
        });
        let mut note = |entry: Entry| flight.iter_mut().for_each(|flight| flight.note(&entry));
        note(Entry::Boot(options.boot));
        let opened = opening.assemble(found, &written, options.boot, options.without, &mut note)?;
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
            boot: options.boot,
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

/// The pump's own reads and writes of disks, one at a time, while there is no engine.
pub(super) struct Opening<'a> {
    reactor: &'a mut Reactor,
    disks: &'a [Option<DiskId>],
    /// What happened meanwhile and is about somebody else.
    pub(super) meanwhile: Vec<Event>,
}

impl Opening<'_> {
    pub(super) fn new<'a>(reactor: &'a mut Reactor, disks: &'a [Option<DiskId>]) -> Opening<'a> {
        Opening { reactor, disks, meanwhile: Vec::new() }
    }

    /// Writes a new pool: its records, then, when those are safe, the superblocks that make it one.
    fn create(&mut self, new: &NewPool) -> Result<(Vec<Superblock>, Vec<Place>), String> {
        let plan = format::plan(new).map_err(|e| e.message)?;
        for places in [&plan.pages, &plan.superblocks] {
            let mut written = Vec::new();
            for place in places.iter() {
                let disk = self.disk(place.device + 1).ok_or("a device of the new pool is not open")?;
                let path = &new.devices[place.device].path;
                let mut bytes = AlignedBox::copy_of(&place.bytes);
                let seg = Seg { ptr: bytes.as_mut_ptr(), len: place.bytes.len() };
                let op = DeviceOp::Write { fua: false };
                self.one(disk, op, place.offset, &[seg]).map_err(|e| {
                    format!("writing {path} at {} failed ({e:?}); nothing uses it as a member", place.offset)
                })?;
                written.push((disk, path));
            }
            written.dedup_by_key(|(disk, _)| *disk);
            for (disk, path) in written {
                self.one(disk, DeviceOp::Flush, 0, &[]).map_err(|e| format!("flushing {path} failed ({e:?})"))?;
            }
        }
        let superblocks = plan.superblocks.iter().filter_map(|place| Superblock::decode(&place.bytes).ok()).collect();
        Ok((superblocks, plan.pages))
    }

    /// Reads a pool back that has these superblocks; every input goes to `note` as well.
    pub(super) fn assemble(
        &mut self,
        found: Vec<Superblock>,
        written: &[Place],
        boot: Uuid,
        without: Without,
        note: &mut impl FnMut(Entry),
    ) -> Result<Box<braid_core::meta::assembly::Opened>, String> {
        found.iter().for_each(|superblock| note(Entry::Superblock(superblock.encode())));
        let mut assembly = Assembly::new(found, boot)?;
        let opened = loop {
            match assembly.step() {
                Step::Ready(opened) => break opened,
                Step::Failed(reason) => return Err(reason),
                Step::Read(reads) => {
                    for read in reads {
                        let result = match copy_of_written(written, read) {
                            // A disk that keeps nothing (null:) can still be tried: what was just written is known.
                            Some(bytes) => Ok(bytes),
                            None => self.read(read),
                        };
                        note(Entry::Read(read, result.clone()));
                        assembly.supply(read, result);
                    }
                }
            }
        };
        if let Some(why) = &opened.gives_up
            && without != Without::Apart
        {
            return Err(why.clone());
        }
        let may_lack = |id: DeviceId| match without {
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
        Ok(opened)
    }

    /// The newest superblock of a member, if one can be read.
    pub(super) fn superblock(&mut self, device: DeviceId) -> Option<Superblock> {
        let slots = superblock::SLOTS.map(|offset| {
            let read = MetaRead { device, offset, len: superblock::SUPERBLOCK_SIZE };
            self.read(read).unwrap_or_default()
        });
        superblock::newest([&slots[0], &slots[1]]).ok()
    }

    fn read(&mut self, read: MetaRead) -> Result<Vec<u8>, IoError> {
        let disk = self.disk(read.device.index()).ok_or(IoError::Gone)?;
        let mut bytes = AlignedBox::zeroed(read.len as usize);
        let seg = Seg { ptr: bytes.as_mut_ptr(), len: read.len as usize };
        self.one(disk, DeviceOp::Read, read.offset, &[seg])?;
        Ok(bytes.to_vec())
    }

    fn disk(&self, place: usize) -> Option<DiskId> {
        self.disks.get(place).copied().flatten()
    }

    /// One command, waited for.
    fn one(&mut self, disk: DiskId, op: DeviceOp, offset: u64, segs: &[Seg]) -> Result<(), IoError> {
        let len = segs.iter().map(|s| s.len as u64).sum();
        // SAFETY: the caller keeps the memory until this returns, and this returns when the command is done.
        unsafe { self.reactor.submit(disk, 0, op, offset, len, segs) };
        let mut events = Vec::new();
        let mut done = None;
        while done.is_none() {
            self.reactor.wait(&mut events, None);
            for event in events.drain(..) {
                match event {
                    Event::Disk { result, .. } => done = Some(result),
                    other => self.meanwhile.push(other),
                }
            }
        }
        done.expect("just seen")
    }
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

/// The newest superblock of a disk, or why there is none.
pub fn superblock_of(disk: &Disk) -> Result<Superblock, String> {
    let mut slots = Vec::new();
    for at in superblock::SLOTS {
        let slot = disk.read_blocks(at, superblock::SUPERBLOCK_SIZE as usize);
        slots.push(slot.map_err(|e| format!("its superblock at {at} cannot be read: {e}"))?);
    }
    superblock::newest([&slots[0], &slots[1]]).map_err(|e| e.to_string())
}
