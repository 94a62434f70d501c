//! The life of a pool: made on fresh disks, opened from what is there, ended by a crash.

use braid_core::control::ControlError;
use braid_core::meta::assembly::{Assembly, Step};
use braid_core::meta::format::{self, NewDevice, NewPool};
use braid_core::meta::superblock::{self, Age, SLOTS, SUPERBLOCK_SIZE};
use braid_core::queue::config::Config;
use braid_core::request::{DeviceOp, Dispatch, Input, IoError};
use braid_core::units::{DeviceId, Instant, IoId, Uuid};
use braid_core::{DeviceState, Engine, Profile};

use serde::{Deserialize, Serialize};

use super::{Load, World};
use crate::device::Model;
use crate::disk::{self, Content, Disk};
use crate::fault::{Fault, Trouble};
use crate::oracle;
use crate::sabotage::Sabotage;
use crate::watch::Watch;

/// How a run ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Crash {
    /// The process dies: disks keep what arrived, and what was on its way arrived wholly, in part or not at all.
    Process,
    /// The power goes: what no flush covered may be lost as well.
    Power,
}

/// A device of a new pool.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// How it behaves.
    pub model: Model,
    /// Label.
    pub class: &'static str,
}

impl World {
    /// A world with a pool that is open; panics with the reason why not.
    pub fn with_pool(seed: u64, shapes: &[Shape], data: Profile, metadata: Profile, set: &[(&str, &str)]) -> World {
        let mut world = World::new(seed);
        world.create(shapes, data, metadata, set).expect("the pool can be made");
        world.open().expect("a new pool opens");
        world
    }

    /// Makes a pool on fresh disks.
    pub fn create(
        &mut self,
        shapes: &[Shape],
        data: Profile,
        metadata: Profile,
        set: &[(&str, &str)],
    ) -> Result<(), ControlError> {
        let devices = shapes.iter().enumerate().map(|(i, s)| NewDevice {
            uuid: member_uuid(i),
            path: format!("disk{i}"),
            size: s.size,
            class: braid_core::DeviceClass::parse(s.class).expect("a class"),
            rotational: s.model.is_rotational(),
            tiers: None,
            hint: Default::default(),
        });
        let new = NewPool {
            name: "tank".into(),
            uuid: Uuid([0xbb; 16]),
            data,
            metadata,
            devices: devices.collect(),
            properties: set.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
        };
        let disks = disk::array(shapes.iter().map(|s| (s.size, &s.model)), &mut self.rng);
        self.form(disks, &new)
    }

    /// Writes a new pool on these disks.
    pub fn form(&mut self, disks: Vec<Disk>, new: &NewPool) -> Result<(), ControlError> {
        self.loads = vec![Load::default(); disks.len()];
        self.disks = disks;
        let plan = format::plan(new)?;
        for place in plan.pages.iter().chain(&plan.superblocks) {
            let mut content = Content::new();
            content.push_bytes(&place.bytes);
            self.disks[place.device].write(place.offset, &content, true, || true);
        }
        Ok(())
    }

    /// Superblocks of the disks that are there; those without one are left out.
    pub fn superblocks(&self) -> Vec<superblock::Superblock> {
        let here = (0..self.disks.len()).filter(|&i| self.faults.is_found(i as u32 + 1, self.now));
        here.filter_map(|i| {
            let disk = &self.disks[i];
            let slots = SLOTS.map(|at| match disk.is_readable(at, SUPERBLOCK_SIZE) {
                true => disk.read_bytes(at, SUPERBLOCK_SIZE),
                false => Vec::new(),
            });
            superblock::newest([&slots[0], &slots[1]]).ok()
        })
        .collect()
    }

    /// Opens the pool from the disks that are there.
    pub fn open(&mut self) -> Result<(), String> {
        self.loads.resize(self.disks.len(), Load::default());
        self.welcome_back(|_| true);
        let boot = Uuid([self.boot; 16]);
        let mut assembly = Assembly::new(self.superblocks(), boot)?;
        for _ in 0..100 {
            match assembly.step() {
                Step::Failed(why) => return Err(why),
                Step::Read(reads) => {
                    for read in reads {
                        self.read_max = self.read_max.max(read.len);
                        let disk = &self.disks[read.device.index() - 1];
                        let is_fine = read.offset.checked_add(read.len).is_some_and(|end| end <= disk.size)
                            && disk.is_readable(read.offset, read.len);
                        let result =
                            if is_fine { Ok(disk.read_bytes(read.offset, read.len)) } else { Err(IoError::Media) };
                        assembly.supply(read, result);
                    }
                }
                Step::Ready(opened) => {
                    self.gives_up = opened.gives_up.clone();
                    let mut opening = [0; 16];
                    opening[..8].copy_from_slice(&self.rng.next_u64().to_le_bytes());
                    let engine = Engine::slipping(*opened, Instant(self.now), boot, Uuid(opening), self.slip);
                    let watched = if self.keeps_payload { engine.pool().device_ids_end() as u32 } else { 1 };
                    self.watches =
                        (1..watched).map(|id| Watch::new(DeviceId(id), config_of(&engine, DeviceId(id)))).collect();
                    if self.sabotage == Some(Sabotage::IgnoreLimits) {
                        self.watches.iter_mut().for_each(Watch::expect_one);
                    }
                    self.engine = Some(engine);
                    self.spoil_again();
                    // A run begins in November 2023.
                    self.input(Input::Clock { unix_s: 1_700_000_000 + self.now / 1_000_000_000 });
                    self.drain();
                    return Ok(());
                }
            }
        }
        Err("opening asks for more and more".into())
    }

    /// The pool could not write its records, and is opened again from its disks, after a power cut of those alone or not, for the clients
    /// that it has; says whether these may have lost something that they had not flushed.
    pub fn resume(&mut self, crash: Crash) -> Result<bool, String> {
        let is_loss = crash == Crash::Power || self.engine().owes_a_loss();
        self.crash(crash);
        self.open()?;
        if is_loss {
            self.engine = self.engine.take().map(Engine::after_loss);
        }
        Ok(is_loss)
    }

    /// Of these devices, those that were pulled are there again, without what was in their write caches.
    fn welcome_back(&mut self, which: impl Fn(u32) -> bool) {
        let now = self.now;
        let is_back = |f: &Fault| which(f.device) && matches!(f.trouble, Trouble::Pulled { until, .. } if now >= until);
        let back: Vec<u32> = self.faults.0.iter().filter(|f| is_back(f)).map(|f| f.device).collect();
        for device in back {
            // What it was asked before nobody answers any more.
            let lost: Vec<u32> =
                self.running.iter().filter(|(_, r)| r.dispatch.device.0 == device).map(|(id, _)| *id).collect();
            lost.into_iter().for_each(|id| self.complete(IoId(id)));
            self.disks[device as usize - 1].cut(&mut self.rng);
        }
        self.faults.0.retain(|f| !is_back(f));
    }

    /// Whether the host finds a member again that the pool misses; then it has it open.
    pub fn comes_back(&mut self, device: DeviceId) -> bool {
        let is_missed = self.engine().pool().device(device).is_some_and(|d| !d.state.is_used());
        // Others, that the pool has open and does not know to be gone, stay out of its reach.
        if is_missed && self.faults.is_found(device.0, self.now) {
            self.welcome_back(|found| found == device.0);
        }
        is_missed && !self.faults.is_absent(device.0, self.now)
    }

    /// Whether the host finds a member anew that the pool uses and that was pulled under it; then it has it open, and this is how
    /// far its superblock is.
    pub fn reopens(&mut self, device: DeviceId) -> Option<Age> {
        let is_used = self.engine().pool().device(device).is_some_and(|d| d.state.is_used());
        let is_dead = self.faults.is_absent(device.0, self.now);
        if !is_used || !is_dead || !self.faults.is_found(device.0, self.now) {
            return None;
        }
        self.welcome_back(|found| found == device.0);
        self.cache_lost.insert(device.0, self.now);
        if self.may_lose_caches {
            self.oracle.cache_lost();
        }
        let member = self.engine().pool().device(device).map(|d| d.uuid);
        self.superblocks().iter().find(|sb| Some(sb.device_uuid) == member).map(superblock::Superblock::age)
    }

    /// A member was pulled, and no command went there since: nobody knows that it comes back without its write cache.
    fn is_pull_unnoticed(&self) -> bool {
        self.any_pulled_is(DeviceState::is_used)
    }

    /// A member was pulled, the pool was opened without it, and the log does not say yet what it may have lost: after the end of the process
    /// alone nobody ever knows, and what was placed there for the first time reads as what stood there before (see `docs/semantics.md`).
    fn is_absence_unsaid(&self) -> bool {
        let is_unsaid = self.engine.as_ref().is_some_and(Engine::is_loss_unsaid);
        is_unsaid && self.any_pulled_is(|state| state == DeviceState::Missing)
    }

    fn any_pulled_is(&self, is: impl Fn(DeviceState) -> bool) -> bool {
        let device = |id| self.engine.as_ref().and_then(|engine| engine.pool().device(DeviceId(id)));
        let is_pulled = |f: &Fault| matches!(f.trouble, Trouble::Pulled { since, .. } if since <= self.now);
        self.faults.0.iter().any(|f| is_pulled(f) && device(f.device).is_some_and(|member| is(member.state)))
    }

    /// All troubles end; what was pulled is back.
    pub fn mend(&mut self) {
        let now = self.now;
        for fault in &mut self.faults.0 {
            if let Trouble::Pulled { since, until } = &mut fault.trouble
                && *since <= now
            {
                *until = now;
            }
        }
        self.welcome_back(|_| true);
        self.faults.0.clear();
    }

    /// The machine was started for the so-many-th time.
    pub(crate) fn set_boot(&mut self, boot: u8) {
        self.boot = boot;
    }

    /// Which start of the machine it is.
    pub(crate) fn boot(&self) -> u8 {
        self.boot
    }

    /// Everything stops at this moment. The machine goes with the process where that alone would leave what no opening can know.
    pub fn crash(&mut self, crash: Crash) {
        let crash = if self.is_absence_unsaid() { Crash::Power } else { crash };
        let was_suspended = self.engine.as_ref().is_some_and(|engine| engine.is_suspended());
        let is_in_doubt = |engine: &Engine| engine.is_log_in_doubt() || engine.is_loss_unsaid();
        let was_in_doubt = self.engine.as_ref().is_some_and(is_in_doubt) || self.is_pull_unnoticed();
        self.engine = None;
        self.heap.clear();
        self.held.clear();
        self.failed.clear();
        self.batch.clear();
        self.wake = None;
        for (_, running) in std::mem::take(&mut self.running) {
            let Dispatch { device, op, offset, len, .. } = running.dispatch;
            let i = device.index() - 1;
            let percent = *self.rng.pick(&[0, 50, 100]);
            let Self { disks, rng, .. } = self;
            match op {
                DeviceOp::Write { .. } => disks[i].write(offset, &running.content, false, || rng.percent(percent)),
                DeviceOp::WriteZeroes => disks[i].write_zeroes(offset, len, || rng.percent(percent)),
                DeviceOp::Discard => disks[i].discard(offset, len, rng),
                DeviceOp::Read | DeviceOp::Flush => {}
            }
        }
        for disk in &mut self.disks {
            match crash {
                Crash::Power => disk.cut(&mut self.rng),
                Crash::Process => disk.settle(),
            }
        }
        if crash == Crash::Power {
            self.boot += 1;
        }
        self.oracle.crash(match crash {
            Crash::Power => oracle::Loses::Unflushed,
            // What was recorded behind a hole in the log is as good as not recorded, and so is what a member lost unsaid.
            Crash::Process if was_in_doubt => oracle::Loses::Unflushed,
            Crash::Process if was_suspended => oracle::Loses::Records,
            Crash::Process => oracle::Loses::Nothing,
        });
        self.superblocks_written.clear();
        self.watches.clear();
        self.buffers.clear();
        self.scratch.clear();
        self.records.clear();
        self.pages.clear();
        self.asked.clear();
    }
}

/// Small pools have uuids that can be read at a glance.
fn member_uuid(i: usize) -> Uuid {
    u8::try_from(i + 1).map_or(Uuid((i as u128).to_le_bytes()), |n| Uuid([n; 16]))
}

/// What the queue of a member goes by.
pub(super) fn config_of(engine: &Engine, device: DeviceId) -> Config {
    let pool = engine.pool();
    let config = pool.device(device).and_then(|device| device.queue_config(&pool.properties.queue).ok());
    config.unwrap_or_default()
}
