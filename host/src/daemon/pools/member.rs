//! Members that come and go while their pool is open.

use std::path::{Path, PathBuf};

use braid_core::DeviceState;
use braid_core::control::{Command, Done};
use braid_core::device::FAULTS_MAX;
use braid_core::meta::superblock::Age;
use braid_core::report::DeviceReport;
use braid_core::units::DeviceId;

use super::Claimed;
use super::import::claim_member;
use crate::backend::{Disk, DiskSpec, OpenOptions};
use crate::control::api::*;
use crate::daemon::discover::{self, Identity, Look};
use crate::daemon::events::Severity;
use crate::daemon::{Daemon, OpenPool, away, lock};

/// Where to look for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Where<'a> {
    /// At this path only.
    At(&'a str),
    /// Where it was.
    Known,
    /// There, and then on every block device.
    Anywhere,
}

/// What there is where a member may be.
enum Returning {
    /// The member, and how far its superblock is.
    Here(Box<Claimed>, Age),
    /// What was there once cannot be told any more: the sentence says why.
    Damaged(String),
    /// Nothing, or something else.
    Other,
}

impl Daemon {
    /// As an operator says.
    pub(in crate::daemon) fn online_device(&self, request: &OnlineDevice) -> Result<Change, ApiError> {
        let id = member(&*self.pools.get(&request.pool)?, &request.device)?.id;
        self.bring_back(&request.pool, id, request.path.as_deref().map_or(Where::Anywhere, Where::At))
    }

    /// Finds the member again and has it caught up.
    pub(in crate::daemon) fn bring_back(&self, pool: &str, id: DeviceId, place: Where) -> Result<Change, ApiError> {
        let _opening = lock(&self.opening);
        let pool = self.pools.get(pool)?;
        let _change = lock(&pool.change);
        let device = member(&pool, &id.to_string())?;
        let what = format!("device {id} of pool {}", pool.name);
        if device.state.is_used() && !self.is_dead(&pool, &device)? {
            pool.await_member(id, false);
            let done = pool.ask(|pump| pump.control(Command::OnlineDevice { device: id, found: None }))?;
            return Ok(match done {
                Done::Unchanged => Change::unchanged(format!("{what} is {}", device.state.name())),
                _ => Change { changed: true, what: format!("{what}: what failed is tried again"), ..Change::default() },
            });
        }
        // The kernel may still hold the file of a disk that went, and our own lock with it.
        pool.ask(|pump| pump.let_go(id))?;
        let (Claimed { path, identity, disk, facts, .. }, age) = self.find_member(&pool, &device, place)?;
        let disk = disk.expect("a member that was found is open");
        let fault = disk.fault_handle();
        // Before, since it may vanish again at any moment from then on.
        let was_awaited = pool.await_member(id, false);
        let done = pool.ask(|pump| pump.online(id, disk, age)).inspect_err(|_| {
            pool.await_member(id, was_awaited);
        })?;
        pool.found(id, path.clone(), identity, fault, facts);
        self.remember(&pool);
        let what = format!("{what}, at {path}: what it missed is caught up");
        self.events.tell(Severity::Info, Some(&pool.name), "device.online", what.clone());
        Ok(Change { changed: done != Done::Unchanged, what, ..Change::default() })
    }

    /// The file of a member in use says nothing of it any more: its disk was pulled, and may be there again as another one.
    fn is_dead(&self, pool: &OpenPool, device: &DeviceReport) -> Result<bool, ApiError> {
        let id = device.id;
        let Some(disk) = pool.ask(move |pump| pump.clone_disk(id))? else { return Ok(false) };
        let is_it = |found: Look| matches!(found, Look::Member(found, _) if found.device_uuid == device.uuid);
        Ok(!is_it(discover::look(&disk, &device.path)))
    }

    /// Takes a member out of use, and closes it.
    pub(in crate::daemon) fn offline_device(&self, request: &OfflineDevice) -> Result<Change, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        // A replace or a remove that was just found to fit may rely on this member; and between the two steps below nobody may bring
        // it back, whose disk would be closed.
        let _change = lock(&pool.change);
        let id = member(&pool, &request.device)?.id;
        let done = pool.ask(|pump| pump.control(Command::OfflineDevice { device: id }))?;
        pool.await_member(id, false);
        pool.ask(|pump| pump.let_go(id))?;
        let what = format!("device {id} of pool {} out of use", pool.name);
        let notes =
            vec![format!("what is written without it is noted; to use it again: braid online {} {id}", pool.name)];
        Ok(Change { changed: done != Done::Unchanged, what, notes, ..Change::default() })
    }

    /// Counts errors anew, and says again which there are. A suspended pool is opened again, if that is meant as well.
    pub(in crate::daemon) fn clear_errors(&self, request: &ClearErrors) -> Result<Change, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let resumed = if request.counts_only { None } else { self.resume(&pool)? };
        let one = request.device.as_ref().map(|word| member(&pool, word)).transpose()?;
        let id = one.as_ref().map(|device| device.id);
        let done = pool.ask(move |pump| pump.control(Command::ClearErrors { device: id }))?;
        pool.narrator.errors_cleared(id);
        let whose = id.map_or(String::new(), |id| format!("device {id} of "));
        // A member that was given up because of them needs more than that.
        let meant = pool.report()?.devices.into_iter().filter(|d| id.is_none_or(|id| id == d.id));
        let waits = meant.filter(|d| d.state == DeviceState::Failed || d.state.is_used() && d.faults > FAULTS_MAX);
        let notes = waits.map(|d| {
            format!(
                "device {0} is {1} all the same; to use it again: braid online {2} {0}",
                d.id,
                d.state.name(),
                pool.name
            )
        });
        let changed = resumed.is_some() || done != Done::Unchanged;
        let notes = resumed.into_iter().chain(notes).collect();
        let what = format!("errors of {whose}pool {} are counted from 0", pool.name);
        Ok(Change { changed, what, notes, ..Change::default() })
    }

    /// The disk with this member's superblock.
    pub(super) fn find_member(
        &self,
        pool: &OpenPool,
        device: &DeviceReport,
        place: Where,
    ) -> Result<(Claimed, Age), ApiError> {
        let mut places = match place {
            Where::At(path) => vec![PathBuf::from(path)],
            Where::Known | Where::Anywhere => away::places(pool, device),
        };
        let expected = places.len();
        if place == Where::Anywhere {
            places.extend(discover::block_devices());
        }
        let (mut why, mut damaged) = (Vec::new(), None);
        for (i, place) in places.into_iter().enumerate() {
            match self.claim_returning(pool, device, &place) {
                Ok(Returning::Here(member, age)) => return Ok((*member, age)),
                Ok(Returning::Damaged(problem)) if i < expected => {
                    why.push(problem);
                    damaged = Some(place);
                }
                Ok(Returning::Other | Returning::Damaged(_)) => {}
                Err(reason) => why.push(reason),
            }
        }
        why.dedup();
        let message = format!(
            "device {} of pool {} ({}) was not found{}",
            device.id,
            pool.name,
            device.uuid,
            why.first().map_or(String::new(), |why| format!(": {why}"))
        );
        let hint = match damaged {
            Some(place) => format!(
                "nothing else says which member it is; to have all of it made anew there: braid replace -f {} {} {}",
                pool.name,
                device.id,
                place.display()
            ),
            None => format!("connect it, or say where it is: braid online {} {} PATH", pool.name, device.id),
        };
        Err(ApiError::failed("device.not_found", message).hint(hint))
    }

    /// Opens a place if the member is there.
    fn claim_returning(&self, pool: &OpenPool, device: &DeviceReport, place: &Path) -> Result<Returning, String> {
        let spec = DiskSpec::of_member(place);
        let options = OpenOptions { direct: self.config.direct, ..OpenOptions::default() };
        let is_it = |disk: &Disk| match discover::look(disk, &place.display().to_string()) {
            Look::Member(found, _) if (found.pool, found.device_uuid) == (pool.uuid, device.uuid) => Ok(found),
            Look::Problem(problem) => Err(Returning::Damaged(problem)),
            Look::Member(..) | Look::Nothing => Err(Returning::Other),
        };
        // Looked at first: disks of others are not to be claimed, not even for a moment.
        if let Some(path) = spec.path() {
            let (disk, _) = discover::open_to_look(path).map_err(|e| discover::with_source(&e))?;
            if let Err(other) = is_it(&disk) {
                return Ok(other);
            }
        }
        let (disk, facts) = claim_member(&spec, options).map_err(|e| discover::with_source(&e))?;
        let found = match is_it(&disk) {
            Ok(found) => found,
            Err(other) => return Ok(other),
        };
        let age = found.age();
        let is_ours = pool.ask(move |pump| pump.with_engine(move |engine| engine.knows(&found)));
        match is_ours {
            Ok(true) => {
                let (path, identity) = (place.display().to_string(), Identity::of(place));
                Ok(Returning::Here(Box::new(Claimed { spec, path, identity, disk: Some(disk), facts }), age))
            }
            Ok(false) => Err(format!(
                "{} was opened without the others and went its own way; import it alone and copy what you need",
                place.display()
            )),
            Err(error) => Err(error.message),
        }
    }
}

/// The member that a word means: id, path, last part of the path, or uuid.
fn member(pool: &OpenPool, word: &str) -> Result<DeviceReport, ApiError> {
    let (report, about) = (pool.report()?, pool.about());
    let is_meant = |d: &DeviceReport| {
        let known = about.members.get(&d.id).map(|facts| facts.path.as_str());
        let names = [Some(d.path.as_str()), known].into_iter().flatten();
        let mut paths = names.flat_map(|path| [Some(path), Path::new(path).file_name().and_then(|name| name.to_str())]);
        word.parse() == Ok(d.id.0) || d.uuid.to_string() == word || paths.any(|name| name == Some(word))
    };
    let mut meant = report.devices.into_iter().filter(is_meant);
    match (meant.next(), meant.next()) {
        (Some(one), None) => Ok(one),
        (Some(one), Some(other)) => Err(ApiError::usage(
            "device.ambiguous",
            format!("{word} may be device {} or {} of pool {}", one.id, other.id, pool.name),
        )),
        (None, _) => Err(ApiError::not_found("device.not_found", format!("pool {} has no device {word}", pool.name))),
    }
}
