//! Devices come to an open pool and leave it.

use braid_core::control::{Command, Done};
use braid_core::device::{Device, Role};
use braid_core::pool::trial::Outlook;
use braid_core::report::{DeviceReport, PoolReport};
use braid_core::units::{DeviceId, Uuid};
use braid_core::{ChunkType, Profile};

use super::discover::Identity;
use super::events::Severity;
use super::pools::plan::{new_devices, set_tiers};
use super::pools::{Claimed, devices_word};
use super::{Daemon, OpenPool, lock};
use crate::backend::DiskSpec;
use crate::control::api::*;
use crate::control::size;
use crate::pump::Joins;

/// What a pool holds and survives; `gone` members survive nothing.
pub(super) fn standing(outlook: &Outlook) -> Standing {
    let [data, metadata] = &outlook.profiles;
    let least =
        |profiles: &[Profile]| profiles.iter().map(|p| p.facts().tolerated_failures as u32).min().unwrap_or_default();
    Standing {
        raw_bytes: outlook.raw,
        writable_data_bytes: outlook.writable[ChunkType::Data as usize],
        writable_metadata_bytes: outlook.writable[ChunkType::Metadata as usize],
        data_failures: least(data),
        metadata_failures: least(metadata),
    }
}

/// As it is now: a member that is not in use is a failure that was survived already.
pub(super) fn standing_now(outlook: &Outlook, report: &PoolReport) -> Standing {
    let gone = report.devices.iter().filter(|d| !d.state.is_used() && d.role != Role::Spare).count() as u32;
    let now = standing(outlook);
    Standing {
        data_failures: now.data_failures.saturating_sub(gone),
        metadata_failures: now.metadata_failures.saturating_sub(gone),
        ..now
    }
}

impl Daemon {
    pub(super) fn add_devices(&self, request: &AddDevices) -> Result<Change, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let claimed = self.claim_all(&request.devices, request.force, None)?;
        let _change = lock(&pool.change);
        let mut notes: Vec<String> = claimed.iter().flat_map(|c| c.facts.note.clone()).collect();
        let mut new = new_devices(&request.devices, &claimed, &mut notes)?;
        set_tiers(&request.devices, &mut new)?;
        // A spare changes nothing until it is needed.
        let trial = if request.spare { Vec::new() } else { new.clone() };
        let (before, after) = pool.ask(move |pump| {
            pump.with_engine(move |engine| {
                let pool = engine.pool();
                let first = pool.next_device_id().0;
                let members = trial.iter().zip(first..).map(|(new, id)| Device::new(DeviceId(id), new));
                (pool.outlook(), pool.try_add(members))
            })
        })?;
        let as_what = if request.spare { " as a spare" } else { "" };
        let what = format!("{} added to pool {}{as_what}", devices_word(claimed.len()), pool.name);
        let before = Some(standing_now(&before, &pool.report()?));
        let after = Some(standing(&after)).map(|after| Standing {
            data_failures: before.as_ref().map_or(0, |b| b.data_failures),
            metadata_failures: before.as_ref().map_or(0, |b| b.metadata_failures),
            ..after
        });
        let mut change = Change { dry_run: request.dry_run, before, after, notes, ..Change::done(what) };
        if request.dry_run {
            return Ok(change);
        }
        let joins = if request.spare { Joins::AsSpare } else { Joins::AsMember };
        let mut ids = Vec::new();
        for (claimed, new) in claimed.into_iter().zip(new) {
            let path = claimed.path.clone();
            let id = self.add_one(&pool, claimed, new, joins).map_err(|e| match ids.as_slice() {
                [] => e,
                some => {
                    ApiError { message: format!("{} (added before it: device {})", e.message, some.join(" ")), ..e }
                }
            })?;
            let what = if request.spare { ", a spare" } else { "" };
            let message = format!("{path} is device {id} now{what}");
            self.events.tell(Severity::Info, Some(&pool.name), "device.added", message);
            ids.push(id.to_string());
        }
        self.remember(&pool);
        change.what = format!("device {} added to pool {}{as_what}", ids.join(" "), pool.name);
        Ok(change)
    }

    /// Opens the devices for nobody else.
    fn claim_all(
        &self,
        devices: &[NewDevice],
        force: bool,
        instead: Option<(Uuid, DeviceId)>,
    ) -> Result<Vec<Claimed>, ApiError> {
        let _opening = lock(&self.opening);
        let mut claimed = Vec::new();
        for device in devices {
            let spec = DiskSpec::parse(&device.path).map_err(|e| ApiError::usage("device.bad_path", e.to_string()))?;
            claimed.push(self.claim(spec, &claimed, force, instead)?);
        }
        Ok(claimed)
    }

    fn add_one(
        &self,
        pool: &OpenPool,
        claimed: Claimed,
        new: braid_core::meta::format::NewDevice,
        joins: Joins,
    ) -> Result<DeviceId, ApiError> {
        let Claimed { path, identity, disk, facts, .. } = claimed;
        let Some(disk) = disk else {
            return Err(ApiError::failed("device.open_failed", format!("{path} is not open")));
        };
        let fault = disk.fault_handle();
        let Done::Device(id) = pool.ask(|pump| pump.add(disk, new, joins))? else {
            return Err(ApiError::failed("device.add_failed", format!("{path} was not added")));
        };
        pool.found(id, path, identity, fault, facts);
        Ok(id)
    }

    pub(super) fn remove_device(&self, request: &RemoveDevice) -> Result<Change, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        let device = DeviceId(request.device);
        let (before, after) = pool.ask(move |pump| {
            pump.with_engine(move |engine| Ok((engine.pool().outlook(), engine.may_remove(device)?)))?
        })?;
        let report = pool.report()?;
        let path = report.devices.iter().find(|d| d.id == device).map(|d| d.path.clone()).unwrap_or_default();
        let moves = after.moves;
        let what = format!(
            "device {device} ({path}) leaves pool {}: {} of content move to the others",
            pool.name,
            size::long(moves)
        );
        let change = Change {
            dry_run: request.dry_run,
            before: Some(standing_now(&before, &report)),
            after: Some(standing(&after)),
            move_bytes: moves,
            ..Change::done(what)
        };
        if !request.dry_run {
            pool.ask(|pump| pump.control(braid_core::control::Command::RemoveDevice { device }))?;
            self.events.tell(Severity::Info, Some(&pool.name), "job.started", change.what.clone());
        }
        Ok(change)
    }

    /// The new one first, then the old one is emptied: at no moment is there less redundancy than before.
    pub(super) fn replace_device(&self, request: &ReplaceDevice) -> Result<Change, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        if let Some(spare) = self.spare_at(&pool, &request.new.path)? {
            return self.replace_by_spare(&pool, request, spare);
        }
        let old = DeviceId(request.device);
        // Another disk in the same bay, or the same one whose superblocks are gone, has the name of the one that it replaces.
        let is_out_of_use = pool.report()?.devices.iter().any(|d| d.id == old && !d.state.is_used());
        if is_out_of_use {
            pool.ask(move |pump| pump.let_go(old))?;
        }
        let instead = is_out_of_use.then_some((pool.uuid, old));
        let claimed = self.claim_all(std::slice::from_ref(&request.new), request.force, instead)?;
        let _change = lock(&pool.change);
        let report = pool.report()?;
        let member = member_of(&pool, &report, old)?;
        let mut asked = request.new.clone();
        let class = asked.class.get_or_insert_with(|| member.class.name().to_string()).clone();
        let mut notes: Vec<String> = claimed.iter().flat_map(|c| c.facts.note.clone()).collect();
        let mut new = new_devices(std::slice::from_ref(&asked), &claimed, &mut notes)?;
        if class == member.class.name() && member.tiers != member.class.default_tiers() {
            new.iter_mut().for_each(|new| new.tiers = Some(member.tiers));
        }
        set_tiers(std::slice::from_ref(&asked), &mut new)?;
        let trial = new.clone();
        let outlooks = pool.ask(move |pump| {
            pump.with_engine(move |engine| {
                let first = engine.pool().next_device_id();
                let more = trial.iter().zip(first.0..).map(|(new, id)| Device::new(DeviceId(id), new));
                Ok((engine.pool().outlook(), engine.may_replace(old, first, more)?))
            })?
        })?;
        let change = replacement(&pool, &report, request, outlooks, notes)?;
        if request.dry_run {
            return Ok(change);
        }
        for (claimed, new) in claimed.into_iter().zip(new) {
            self.add_one(&pool, claimed, new, Joins::InsteadOf(old))?;
            self.remember(&pool);
        }
        self.events.tell(Severity::Info, Some(&pool.name), "job.started", change.what.clone());
        Ok(change)
    }

    /// The spare of a pool that is in this place.
    fn spare_at(&self, pool: &OpenPool, place: &str) -> Result<Option<DeviceId>, ApiError> {
        let identity = DiskSpec::parse(place).ok().and_then(|spec| Identity::of(spec.path()?));
        let owner = identity.and_then(|identity| self.pools.owner(identity));
        let Some((_, id)) = owner.filter(|(owner, _)| owner.uuid == pool.uuid) else { return Ok(None) };
        let is_it = |d: &DeviceReport| d.id == id && d.role == Role::Spare && d.state.is_used();
        Ok(pool.report()?.devices.iter().any(is_it).then_some(id))
    }

    /// A spare need not wait for a member to fail: mdadm's `--replace --with`.
    fn replace_by_spare(&self, pool: &OpenPool, request: &ReplaceDevice, by: DeviceId) -> Result<Change, ApiError> {
        let _change = lock(&pool.change);
        let report = pool.report()?;
        let device = member_of(pool, &report, DeviceId(request.device))?.id;
        let spare = member_of(pool, &report, by)?;
        if request.new.class.as_deref().is_some_and(|class| class != spare.class.name()) {
            let message = format!("{} is a spare of class {}, and stays in it", request.new.path, spare.class.name());
            let hint = format!("leave --class out, or: braid device set class=CLASS {} {by}", pool.name);
            return Err(ApiError::usage("device.class_of_spare", message).hint(hint));
        }
        let outlooks = pool.ask(move |pump| {
            pump.with_engine(move |engine| {
                Ok((engine.pool().outlook(), engine.may_replace(device, by, std::iter::empty())?))
            })?
        })?;
        let change = replacement(pool, &report, request, outlooks, Vec::new())?;
        if !request.dry_run {
            pool.ask(move |pump| pump.control(Command::ReplaceDevice { device, by }))?;
            self.events.tell(Severity::Info, Some(&pool.name), "job.started", change.what.clone());
        }
        Ok(change)
    }
}

/// One of its members.
fn member_of<'a>(pool: &OpenPool, report: &'a PoolReport, device: DeviceId) -> Result<&'a DeviceReport, ApiError> {
    let found = report.devices.iter().find(|d| d.id == device);
    found.ok_or_else(|| ApiError::no_device(&pool.name, device.0))
}

/// What a replacement changes, from how the pool stands now and how then.
fn replacement(
    pool: &OpenPool,
    report: &PoolReport,
    request: &ReplaceDevice,
    (before, after): (Outlook, Outlook),
    notes: Vec<String>,
) -> Result<Change, ApiError> {
    let old = member_of(pool, report, DeviceId(request.device))?;
    let what = format!(
        "{} replaces device {} ({}) of pool {}: {} of content move",
        request.new.path,
        old.id,
        old.path,
        pool.name,
        size::long(after.moves)
    );
    Ok(Change {
        dry_run: request.dry_run,
        before: Some(standing_now(&before, report)),
        after: Some(standing(&after)),
        move_bytes: after.moves,
        notes,
        ..Change::done(what)
    })
}
