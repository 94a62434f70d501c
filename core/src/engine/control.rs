//! Commands of the operator, reports.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Engine;
use crate::allocator::{Hint, Tiers};
use crate::control::{Command, ControlError, Done, ErrorKind, VolumeClass};
use crate::device::{Device, DeviceClass};
use crate::meta::journal::Lsn;
use crate::meta::record::{Record, VOLUME_IDS_MAX};
use crate::queue::config;
use crate::regions::ROWS;
use crate::report::{ChunkReport, DeviceReport, PoolReport, VolumeReport};
use crate::units::{BLOCK, DeviceId, UNIT, VolumeId};
use crate::volume::{VOLUME_MAX, VOLUME_MIN, VOLUMES_MAX, Volume};
use crate::{ChunkType, names};

/// Bytes of a path, and of a serial number behind it.
const PLACE_MAX: usize = 8192;

/// When a command is answered.
pub(super) enum Due {
    Now,
    /// Once this record is stable.
    Stable(Lsn),
    /// Once a checkpoint that begins after it is durable.
    Checkpoint,
    /// Once so many checkpoints wrote a device's superblock, and its record is stable.
    Joined {
        device: DeviceId,
        slots: u8,
    },
}

pub(super) type Outcome = Result<(Done, Due), ControlError>;

fn usage(message: impl Into<String>) -> ControlError {
    ControlError::new(ErrorKind::Usage, message)
}

impl Engine {
    /// Does what a command says; the answer is due once the record returned is stable.
    pub(super) fn control(&mut self, command: Command) -> Outcome {
        match command {
            Command::CreateVolume { name, size, class } => self.create_volume(name, size, class),
            Command::ResizeVolume { volume, size } => {
                let v = self.volume(volume)?;
                let (name, class, old, checksum) = (v.name.clone(), v.class, v.size, v.checksum);
                check_size(size)?;
                if size < old {
                    let text = format!(
                        "volume {name:?} has {old} bytes and would lose what lies above {size}; shrinking is not \
                         supported, make a smaller volume and copy"
                    );
                    return Err(ControlError::new(ErrorKind::Refused, text));
                }
                self.change(size != old, Record::Volume { id: volume, name, size, class, checksum })
            }
            Command::RenameVolume { volume, name } => {
                let v = self.volume(volume)?;
                let (old, size, class, checksum) = (v.name.clone(), v.size, v.class, v.checksum);
                if old != name {
                    self.check_new_name(&name)?;
                }
                self.change(old != name, Record::Volume { id: volume, name, size, class, checksum })
            }
            Command::SetVolumeClass { volume, class } => {
                self.check_parity(class)?;
                let v = self.volume(volume)?;
                let (name, size, old, checksum) = (v.name.clone(), v.size, v.class, v.checksum);
                self.change(old != class, Record::Volume { id: volume, name, size, class, checksum })
            }
            Command::SetVolumeChecksum { volume, on } => self.set_volume_checksum(volume, on),
            Command::DestroyVolume { volume } => {
                let map = &self.volume(volume)?.map;
                let entries: Vec<_> = map.entries().map(|(_, e)| e).collect();
                // The last checkpoint still refers to the pages of its leaves: the next one does not.
                let pages: Vec<_> = map.slots().map(|(_, slot)| slot.page).filter(|&page| page != 0).collect();
                let outcome = self.change(true, Record::VolumeRemove(volume))?;
                self.retire_units(entries);
                self.orphan_pages(pages);
                self.forget_marks(volume);
                self.forget_doubts(volume);
                self.forget_stale(volume);
                self.forget_lost(volume, 0, VOLUME_MAX);
                Ok(outcome)
            }
            Command::Set { name, value } => {
                let mut next = self.pool.properties.clone();
                let note = next.set(&name, &value)?;
                if next.checksum != self.pool.properties.checksum {
                    let text = "checksum is chosen when a pool is made: braid create -o checksum=...; make another pool and copy";
                    return Err(ControlError::new(ErrorKind::Refused, text));
                }
                next.check_queues(self.pool.devices())?;
                let stored = next.get(&name).unwrap_or_default();
                let changed = self.pool.properties != next;
                let is_about_returns = self.pool.properties.return_spilled != next.return_spilled;
                self.pool.properties = next;
                self.selector.set(self.pool.properties.read_policy);
                if is_about_returns {
                    self.returns_changed();
                }
                self.post_views();
                let (done, due) = self.change(changed, Record::Property { name, value: stored })?;
                Ok((note.map_or(done, Done::Adjusted), due))
            }
            Command::SetDevice { device, name, value } => self.set_device(device, &name, &value),
            Command::OnlineDevice { device, found } => self.online_device(device, found),
            Command::OfflineDevice { device } => self.offline_device(device),
            Command::ClearErrors { device } => self.clear_errors(device),
            Command::Checkpoint => Ok((Done::Changed, Due::Checkpoint)),
            Command::Close => {
                self.close_scrub();
                self.close_job();
                Ok((Done::Changed, Due::Checkpoint))
            }
            Command::ScrubStart => self.start_scrub(),
            Command::ScrubPause => self.pause_scrub(),
            Command::ScrubResume => self.resume_scrub(),
            Command::ScrubCancel => self.cancel_scrub(),
            Command::AddDevice(new) => self.add_device(&new, false),
            Command::AddSpare(new) => self.add_device(&new, true),
            Command::RemoveDevice { device } => self.start_remove(device),
            Command::ReplaceDevice { device, by } => self.start_replace(device, by),
            Command::ReplaceWith { device, new } => self.join_to_replace(device, &new),
            Command::Balance { data, metadata } => self.start_balance(data, metadata),
            Command::JobPause => self.pause_job(),
            Command::JobResume => self.resume_job(),
            Command::JobCancel => self.cancel_job(),
        }
    }

    fn change(&mut self, changed: bool, record: Record) -> Outcome {
        if !changed {
            return Ok((Done::Unchanged, Due::Now));
        }
        let lsn = self.journal.append(&record);
        self.pool.apply(record).expect("a command that was checked contradicts nothing");
        Ok((Done::Changed, Due::Stable(lsn)))
    }

    fn volume(&self, id: VolumeId) -> Result<&Volume, ControlError> {
        let missing =
            || ControlError::new(ErrorKind::NotFound, format!("pool {:?} has no volume {id}", self.pool.name));
        self.pool.volume(id).filter(|v| !v.is_internal()).ok_or_else(missing)
    }

    fn create_volume(&mut self, name: String, size: u64, class: VolumeClass) -> Outcome {
        self.check_new_name(&name)?;
        check_size(size)?;
        self.check_parity(class)?;
        if self.pool.volumes().count() >= VOLUMES_MAX {
            return Err(usage(format!("a pool has at most {VOLUMES_MAX} volumes")));
        }
        let id = VolumeId(self.pool.next_volume);
        if id >= ROWS {
            return Err(usage(format!("a pool can make {VOLUME_IDS_MAX} volumes in its life; make a new pool")));
        }
        if !self.has_page_room() {
            let text = format!(
                "pool {:?} has no room for the records of another volume; discard or destroy one",
                self.pool.name
            );
            return Err(ControlError::new(ErrorKind::NoSpace, text));
        }
        self.take_page_room(1);
        let (_, due) = self.change(true, Record::Volume { id, name, size, class, checksum: true })?;
        Ok((Done::Volume(id), due))
    }

    /// From now on without, or with them while nothing is written yet: what has no sums cannot be verified, and old ones
    /// would be about something else.
    fn set_volume_checksum(&mut self, id: VolumeId, on: bool) -> Outcome {
        let v = self.volume(id)?;
        let (name, size, class, old) = (v.name.clone(), v.size, v.class, v.checksum);
        if on && !old && v.mapped_units != [0; 2] {
            let text = format!(
                "volume {name:?} holds content that was written without checksums; make a volume with them and copy"
            );
            return Err(ControlError::new(ErrorKind::Refused, text));
        }
        let gives_up = self.is_summed(id) && !on;
        // If the opening fails, nobody writes what is decided, and the next read would decide anew.
        if gives_up && self.decides_by_sums(id) {
            let text = format!(
                "checksums of volume {name:?} still decide between copies that an unclean stop left unlike; {}",
                match self.is_suspended() {
                    true => "the pool could not write what it needs to open; once its devices take writes: braid clear",
                    false => "try again when the pool is open",
                }
            );
            return Err(ControlError::new(ErrorKind::Busy, text));
        }
        if gives_up {
            let in_rows = v.map.entries().map(|(_, entry)| entry).filter(|entry| self.has_rows(entry.chunk()));
            let in_rows: Vec<_> = in_rows.collect();
            in_rows.into_iter().for_each(|entry| self.place_unsummed(entry.chunk(), entry.unit()));
        }
        let outcome = self.change(old != on, Record::Volume { id, name, size, class, checksum: on });
        if gives_up {
            self.note_sums_given_up(id);
        }
        outcome
    }

    fn check_new_name(&self, name: &str) -> Result<(), ControlError> {
        names::check_volume(name).map_err(usage)?;
        match self.pool.volume_named(name) {
            Some(_) => {
                let text = format!("pool {:?} has a volume {name:?} already; choose another name", self.pool.name);
                Err(ControlError::new(ErrorKind::Exists, text))
            }
            None => Ok(()),
        }
    }

    /// Profiles with parity carry data only.
    fn check_parity(&self, class: VolumeClass) -> Result<(), ControlError> {
        let [_, metadata, _] = self.pool.profiles;
        let used = match class {
            VolumeClass::Data => None,
            VolumeClass::Metadata | VolumeClass::Auto => Some(metadata),
        };
        match used.filter(|p| !p.carries(ChunkType::Metadata)) {
            None => Ok(()),
            Some(p) => Err(ControlError::new(
                ErrorKind::Usage,
                format!(
                    "profile {} cannot carry metadata, in which the journal of its own rows is kept; make a pool with \
                     metadata on raid1, raid1c3, raid1c4 or raid10",
                    p.name()
                ),
            )),
        }
    }

    fn set_device(&mut self, id: DeviceId, name: &str, value: &str) -> Outcome {
        let Some(device) = self.pool.device(id).filter(|d| d.is_recorded()) else {
            let text = format!("pool {:?} has no device {id}", self.pool.name);
            return Err(ControlError::new(ErrorKind::NotFound, text));
        };
        let mut device = device.clone();
        let flag = || match value {
            "1" | "on" | "yes" | "true" => Ok(true),
            "0" | "off" | "no" | "false" => Ok(false),
            _ => Err(usage(format!("{name} is 0 or 1, not {value:?}"))),
        };
        let tier = || {
            value.parse::<u8>().map_err(|_| {
                usage(format!("tier {value:?} is out of range; a tier is 0 to 254, lowest first, or 255 for never"))
            })
        };
        let before = device.clone();
        match name {
            _ if config::is_name(name) && value.is_empty() => drop(device.queue.remove(name)),
            _ if config::is_name(name) => {
                device.queue.insert(name.into(), config::word(name, value).map_err(usage)?);
            }
            "class" => {
                device.class = DeviceClass::parse(value).ok_or_else(|| {
                    usage(format!("class {value:?}: a class is 1 to 15 characters of a-z 0-9 . _ -, such as ssd"))
                })?;
                if !device.tiers_set {
                    device.tiers = device.class.default_tiers();
                }
            }
            // Hosts say it, for people.
            "path" if value.is_empty() || value.len() > PLACE_MAX => {
                return Err(usage(format!("a path has 1 to {PLACE_MAX} bytes, not {}", value.len())));
            }
            "path" => device.path = value.into(),
            "rotational" => device.rotational = flag()?,
            "read_preferred" => device.read_preferred = flag()?,
            "tier" => (device.tiers, device.tiers_set) = (Tiers { data: tier()?, metadata: tier()? }, true),
            "tier.data" => (device.tiers.data, device.tiers_set) = (tier()?, true),
            "tier.metadata" => (device.tiers.metadata, device.tiers_set) = (tier()?, true),
            "allocation_hint" => {
                device.hint = Hint::parse(value).ok_or_else(|| {
                    let names: Vec<&str> = Hint::ALL.iter().map(|h| h.name()).collect();
                    usage(format!("allocation_hint {value:?} is unknown; it is one of {}", names.join(", ")))
                })?;
            }
            _ => {
                let text = format!(
                    "no device property {name:?}; a device has class, rotational, read_preferred, tier, tier.data, \
                     tier.metadata, allocation_hint and the settings of its queue"
                );
                return Err(ControlError::new(ErrorKind::NotFound, text));
            }
        }
        device.queue_config(&self.pool.properties.queue).map_err(usage)?;
        let facts = |d: &Device| {
            let Device { path, class, rotational, tiers, read_preferred, hint, queue, .. } = d;
            (path.clone(), class.clone(), *rotational, *tiers, *read_preferred, *hint, queue.clone())
        };
        let outcome = self.change(facts(&before) != facts(&device), Record::Device(Box::new(device)))?;
        self.post_views();
        Ok(outcome)
    }

    /// Errors of a member, or of all, are counted from 0 again. Counts end with the process: there is nothing to make durable.
    fn clear_errors(&mut self, device: Option<DeviceId>) -> Outcome {
        device.map(|id| self.member(id)).transpose()?;
        let all = || self.pool.devices().map(|d| d.id).collect();
        let meant: Vec<DeviceId> = device.map_or_else(all, |id| Vec::from([id]));
        let mut done = Done::Unchanged;
        for member in meant {
            let Some(member) = self.pool.device_mut(member) else { continue };
            member.last_error = None;
            if member.counters.clear_errors() {
                done = Done::Changed;
            }
        }
        Ok((done, Due::Now))
    }

    /// Its records can be written no more: see [`PoolReport::suspended`].
    pub fn is_suspended(&self) -> bool {
        self.commit.is_dead()
    }

    /// What the pool says about itself now.
    pub fn report(&self) -> PoolReport {
        let [writable_data, writable_metadata] = self.pool.writable();
        let mut spilled = [0; 3];
        for chunk in self.pool.chunks().filter(|c| c.spilled) {
            spilled[chunk.kind as usize] += chunk.length;
        }
        PoolReport {
            name: self.pool.name.clone(),
            uuid: self.pool.uuid,
            profiles: self.pool.profiles,
            devices: self.pool.devices().map(|d| self.device_report(d.id)).collect(),
            chunks: self
                .pool
                .chunks()
                .map(|c| ChunkReport {
                    id: c.id,
                    kind: c.kind,
                    profile: c.profile,
                    length: c.length,
                    used: if c.kind == ChunkType::System { c.length } else { c.used() },
                    columns: c.columns.iter().map(|col| (col.device, col.offset)).collect(),
                    stripe: c.stripe,
                    spilled: c.spilled,
                })
                .collect(),
            volumes: self
                .pool
                .volumes()
                .filter(|v| !v.is_internal())
                .map(|v| VolumeReport {
                    id: v.id,
                    name: v.name.to_string(),
                    size: v.size,
                    class: v.class,
                    checksum: v.checksum,
                    mapped: v.mapped_units.map(|units| units * UNIT),
                    io: v.counters,
                })
                .collect(),
            properties: self.pool.properties.list(),
            read_reasons: self.selector.reasons().collect(),
            counters: self.counters,
            spilled,
            writable_data,
            writable_metadata,
            generation: self.commit.generation(),
            scrub: self.scrub_report(),
            job: self.job_report(),
            resync: self.resync_report(),
            suspended: self.is_suspended(),
            lost: self.lost_blocks(),
            sums: self.sums_report(),
        }
    }

    fn device_report(&self, id: DeviceId) -> DeviceReport {
        let d = self.pool.device(id).expect("a member");
        let mut allocated = [0; 3];
        for chunk in self.pool.chunks() {
            let columns = chunk.columns.iter().filter(|c| c.device == id).count() as u64;
            allocated[chunk.kind as usize] += chunk.stripe * columns;
        }
        let (view, queue) = (&self.views[id.index()], &self.queues[id.index()]);
        DeviceReport {
            id,
            uuid: d.uuid,
            path: d.path.clone(),
            class: d.class.clone(),
            rotational: d.rotational,
            tiers: d.tiers,
            read_preferred: d.read_preferred,
            state: d.state,
            faults: d.faults,
            last_error: d.last_error,
            role: d.role,
            spare: d.spare,
            size: d.size,
            allocated,
            io: d.counters,
            in_flight: queue.in_flight(),
            read_latency_ns: view.latency.mean_ns(),
            queue: queue.report(self.now, &self.pool.properties.queue, &d.queue),
            stale: self.stale_report(id),
            rebuilt: self.rebuilt(id),
        }
    }
}

fn check_size(size: u64) -> Result<(), ControlError> {
    if !(VOLUME_MIN..=VOLUME_MAX).contains(&size) {
        let text = format!("a volume has {VOLUME_MIN} bytes to {} PiB, not {size} bytes", VOLUME_MAX >> 50);
        return Err(usage(text));
    }
    if !size.is_multiple_of(BLOCK) {
        return Err(usage(format!("a volume's size is a multiple of {BLOCK} bytes; {size} is not")));
    }
    Ok(())
}
