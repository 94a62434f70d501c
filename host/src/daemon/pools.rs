//! Making pools, opening them, closing them, and making their devices forget.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, DirBuilder};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant, SystemTime};

use braid_core::allocator::{Hint, Mode};
use braid_core::control::Command;
use braid_core::meta::format::{self, NewPool};
use braid_core::meta::superblock::{self, SLOTS, SUPERBLOCK_SIZE, Superblock};
use braid_core::units::{DeviceId, Uuid};
use braid_core::{DeviceClass, Profile, Tiers};

use super::cache::{self, Remembered};
use super::discover::{self, Group, Identity, Look, Search};
use super::events::{Narrator, Severity, kind_name};
use super::views::{self, About, MemberFacts};
use super::{Daemon, OpenPool, lock};
use crate::backend::probe::probe;
use crate::backend::{self, Disk, DiskSpec, Facts, OpenError, OpenOptions, sysfs_dir};
use crate::control::api::*;
use crate::control::{check, size};
use crate::pump::{self, PumpHandle, Setup};

/// How long a member may be in somebody's hands when a pool is opened.
const CLAIM_PATIENCE: Duration = Duration::from_secs(3);

/// A device that was claimed.
struct Claimed {
    spec: DiskSpec,
    /// As it was named; remembered and shown.
    path: String,
    identity: Option<Identity>,
    disk: Option<Disk>,
    facts: Facts,
}

/// Files and folders that go again unless the pool is made.
#[derive(Default)]
struct Made {
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.files.iter().for_each(|f| drop(fs::remove_file(f)));
        self.folders.iter().rev().for_each(|f| drop(fs::remove_dir(f)));
    }
}

impl Made {
    fn keep(mut self) {
        self.files.clear();
        self.folders.clear();
    }

    /// Makes a folder and those above it, remembering which were new.
    fn folder(&mut self, path: &Path) -> std::io::Result<()> {
        let missing: Vec<&Path> = path.ancestors().take_while(|p| !p.exists()).collect();
        for folder in missing.into_iter().rev() {
            DirBuilder::new().mode(0o700).create(folder)?;
            self.folders.push(folder.into());
        }
        Ok(())
    }
}

fn open_error(error: &OpenError) -> ApiError {
    let text = discover::with_source(error);
    match error {
        OpenError::Missing(_) => ApiError::not_found("device.not_found", text),
        OpenError::Busy(..) => ApiError::refused("device.busy", text).hint("unmount it, or stop what uses it"),
        OpenError::NotADisk(..) => ApiError::usage("device.not_a_disk", text),
        OpenError::Size(..) => ApiError::usage("device.bad_size", text),
        OpenError::Sector(..) => ApiError::usage("device.bad_sectors", text),
        OpenError::Io(_, e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            ApiError::failed("device.permission_denied", text).hint("a daemon that runs as root may use it")
        }
        OpenError::Io(..) => ApiError::failed("device.open_failed", text),
    }
}

fn devices_word(count: usize) -> String {
    if count == 1 { "1 device".into() } else { format!("{count} devices") }
}

fn fresh_uuid() -> Uuid {
    Uuid(uuid::Uuid::new_v4().into_bytes())
}

impl Daemon {
    // ---- create ---------------------------------------------------------------------------------------------------

    pub(super) fn create_pool(&self, request: CreatePool) -> Result<Change, ApiError> {
        let mut request = request;
        check::create(&mut request)?;
        let _opening = lock(&self.opening);
        self.check_new_name(&request.name)?;

        let mut made = Made::default();
        let mut claimed = Vec::new();
        for device in &request.devices {
            let spec = DiskSpec::parse(&device.path).map_err(|e| ApiError::usage("device.bad_path", e.to_string()))?;
            claimed.push(self.claim(spec, &claimed, request.force)?);
        }
        if let Some(files) = &request.files {
            self.make_files(files, request.dry_run, &mut made, &mut claimed)?;
        }

        let (new, mut notes) = new_pool(&request, &claimed)?;
        let plan = format::plan(&new)?;
        for chunk in &plan.preview {
            let mut devices: Vec<u32> = chunk.columns.iter().map(|c| c.device.0).collect();
            devices.dedup();
            let devices: Vec<String> = devices.iter().map(u32::to_string).collect();
            let spilled = if chunk.spilled { ", which is not the preferred tier" } else { "" };
            notes.push(format!(
                "{}: the first chunk of {} goes to device {}{spilled}",
                kind_name(chunk.kind),
                size::long(chunk.length),
                devices.join(" ")
            ));
        }
        let failures = |p: Profile| p.facts().tolerated_failures as u32;
        let after = Standing {
            raw_bytes: new.devices.iter().map(|d| d.size).sum(),
            writable_data_bytes: plan.writable[0],
            writable_metadata_bytes: plan.writable[1],
            data_failures: failures(new.data),
            metadata_failures: failures(new.metadata),
        };
        let what = format!("pool {} of {}", new.name, devices_word(new.devices.len()));
        let dry_run = request.dry_run;
        let change = Change { changed: true, dry_run, what, after: Some(after), notes, ..Change::default() };
        if dry_run {
            return Ok(change);
        }

        let (name, uuid) = (new.name.clone(), new.uuid);
        let paths: Vec<PathBuf> = claimed.iter().filter_map(|c| spec_path(&c.spec)).map(Path::to_owned).collect();
        let members = claimed.into_iter().enumerate().map(|(i, c)| (DeviceId(i as u32 + 1), c)).collect();
        if let Err(why) = self.open_pool(&name, uuid, members, Setup::Create(new), false) {
            // Nothing half made: what was written of it before it failed is taken back.
            paths.iter().for_each(|p| drop(wipe(p, uuid)));
            return Err(ApiError::failed("pool.create_failed", format!("making pool {name} failed: {why}")));
        }
        made.keep();
        self.events.tell(Severity::Info, Some(&name), "pool.created", format!("{} was made", change.what));
        Ok(change)
    }

    fn check_new_name(&self, name: &str) -> Result<(), ApiError> {
        match self.pools.get(name) {
            Err(_) => Ok(()),
            Ok(pool) => {
                let message = format!("a pool named {name} is open already ({})", pool.uuid);
                Err(ApiError::failed("pool.exists", message).hint("choose another name, or export that one first"))
            }
        }
    }

    /// Opens one device for nobody else and asks whether it may be written over.
    fn claim(&self, spec: DiskSpec, others: &[Claimed], force: bool) -> Result<Claimed, ApiError> {
        let path = match &spec {
            DiskSpec::Path(path) => path.display().to_string(),
            other => other.to_string(),
        };
        let identity = spec_path(&spec).and_then(Identity::of);
        if let Some(identity) = identity {
            if let Some(other) = others.iter().find(|o| o.identity == Some(identity)) {
                let message = format!("{} and {path} are the same device", other.path);
                return Err(ApiError::usage("device.twice", message));
            }
            if let Some((pool, id)) = self.pools.owner(identity) {
                let message = format!("{path} is device {id} of pool {}, which is open", pool.name);
                return Err(ApiError::refused("device.in_pool", message)
                    .hint(format!("it can be used after: braid destroy {}", pool.name)));
            }
        }
        let options = OpenOptions { direct: self.config.direct, ..OpenOptions::default() };
        let (disk, facts) = backend::open(&spec, options).map_err(|e| open_error(&e))?;
        if spec_path(&spec).is_some() {
            self.may_overwrite(&disk, &path, force)?;
        }
        Ok(Claimed { spec, path, identity, disk: Some(disk), facts })
    }

    fn may_overwrite(&self, disk: &Disk, path: &str, force: bool) -> Result<(), ApiError> {
        match discover::look(disk, path) {
            Look::Nothing => {}
            Look::Member(found, _) if self.pools.by_uuid(found.pool).is_some() => {
                let message =
                    format!("{path} says it is device {} of pool {}, which is open", found.device, found.name);
                return Err(ApiError::refused("device.in_pool", message)
                    .hint("it may be a copy or another path to a member; wipe it first if it is not wanted"));
            }
            _ if force => {}
            Look::Member(found, _) => {
                let message = format!("{path} is device {} of pool {} ({})", found.device, found.name, found.pool);
                return Err(ApiError::refused("device.in_pool", message)
                    .hint(format!("open it with: braid import {}   or add -f to write over it", found.name)));
            }
            Look::Problem(sentence) => {
                return Err(ApiError::refused(
                    "device.damaged_member",
                    format!("{sentence}; it may have been a member"),
                )
                .hint("add -f to write over it"));
            }
        }
        let findings = probe(disk).map_err(|e| {
            ApiError::failed("device.probe_failed", format!("looking at what is on {path} failed: {e}"))
        })?;
        // What is seen in a file of the kernel is in use now; what is seen on the disk is only there.
        let in_use = findings.iter().find(|f| f.place.starts_with('/'));
        if let Some(use_) = in_use {
            return Err(ApiError::refused("device.busy", format!("{path} is in use: {use_}"))
                .hint("unmount it, or stop what uses it; -f does not help here"));
        }
        match findings.first() {
            Some(_) if !force => {
                let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
                Err(ApiError::refused("device.not_blank", format!("{path} carries {}", all.join(", ")))
                    .hint("add -f to write over it"))
            }
            _ => Ok(()),
        }
    }

    fn make_files(
        &self,
        files: &NewFiles,
        dry_run: bool,
        made: &mut Made,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), ApiError> {
        let folder = Path::new(&files.directory);
        let failed = |e: std::io::Error| ApiError::failed("files.failed", format!("making {}: {e}", folder.display()));
        if !dry_run {
            made.folder(folder).map_err(failed)?;
        }
        for i in 0..files.count {
            let path = folder.join(format!("disk{i}.img"));
            if path.symlink_metadata().is_ok() {
                let message = format!("{} is there already and was left alone", path.display());
                return Err(ApiError::refused("files.exist", message).hint("choose another folder with --dir"));
            }
            let spec = DiskSpec::Path(path.clone());
            let name = path.display().to_string();
            if dry_run {
                let usable = files.size_bytes / braid_core::units::BLOCK * braid_core::units::BLOCK;
                let facts = Facts { size: usable, rotational: folder_rotates(folder), ..Facts::default() };
                claimed.push(Claimed { spec, path: name, identity: None, disk: None, facts });
                continue;
            }
            made.files.push(path.clone());
            let create_size = Some(files.size_bytes);
            let options = OpenOptions { create_size, direct: self.config.direct, ..OpenOptions::default() };
            let (disk, facts) = backend::open(&spec, options).map_err(|e| open_error(&e))?;
            let identity = Identity::of(&path);
            claimed.push(Claimed { spec, path: name, identity, disk: Some(disk), facts });
        }
        Ok(())
    }

    /// Starts the pump and puts the pool on the list; remembers it.
    fn open_pool(
        &self,
        name: &str,
        uuid: Uuid,
        members: Vec<(DeviceId, Claimed)>,
        setup: Setup,
        degraded: bool,
    ) -> Result<Arc<OpenPool>, String> {
        let mut facts = BTreeMap::new();
        let mut identities = Vec::new();
        let mut faults = BTreeMap::new();
        let mut disks = Vec::new();
        for (id, claimed) in members {
            let Some(disk) = claimed.disk else { continue };
            identities.extend(claimed.identity.map(|i| (i, id)));
            faults.insert(id, disk.fault_handle());
            let Facts { model, serial, note: notes, .. } = claimed.facts;
            facts.insert(id, MemberFacts { path: claimed.path, model, serial, notes });
            disks.push((id, disk));
        }
        let paths: HashMap<DeviceId, String> = facts.iter().map(|(id, f)| (*id, f.path.clone())).collect();
        let (narrator, events) = (Narrator::new(name, paths), self.events.clone());
        let options = pump::Options {
            reactor: self.config.reactor,
            memory: self.config.memory,
            boot: self.boot,
            degraded,
            on_event: Box::new(move |event| narrator.tell(&events, &event)),
        };
        let pump = PumpHandle::start(options, disks, setup)?;
        for id in pump.missing() {
            let message = format!("device {id} was not there when the pool was opened");
            self.events.tell(Severity::Warning, Some(name), "device.missing", message);
        }
        if pump.forgotten() > 0 {
            let message = format!("a power cut took back {} changes that nobody had asked to flush", pump.forgotten());
            self.events.tell(Severity::Warning, Some(name), "pool.forgotten", message);
        }
        let about = About {
            opened_at: SystemTime::now(),
            opened_ns: views::monotonic_ns(),
            members: facts,
            reactor: pump.reactor().to_string(),
            forgotten: pump.forgotten(),
        };
        let pool = Arc::new(OpenPool {
            name: name.into(),
            uuid,
            about,
            identities,
            faults,
            change: Mutex::default(),
            pump: RwLock::new(Some(pump)),
        });
        self.pools.insert(pool.clone());
        self.remember(&pool);
        Ok(pool)
    }

    /// Pools in memory only are not worth remembering: they are gone with the process.
    fn remember(&self, pool: &OpenPool) {
        let paths = pool.about.members.values().map(|m| &m.path).filter(|p| p.starts_with('/'));
        let devices: Vec<PathBuf> = paths.map(PathBuf::from).collect();
        if devices.is_empty() {
            return;
        }
        // A member that is away now is looked for where it was, until the pool is exported.
        let uuid = pool.uuid.to_string();
        let entry = Remembered { uuid: uuid.clone(), name: pool.name.clone(), devices };
        self.update_cache(&uuid, Some(entry));
    }

    fn update_cache(&self, uuid: &str, entry: Option<Remembered>) {
        if let Err(e) = cache::update(&self.config.state_dir, uuid, entry) {
            let message = format!("{e}; after a restart pools are found by braid import only");
            self.events.tell(Severity::Warning, None, "cache.failed", message);
        }
    }

    // ---- import ---------------------------------------------------------------------------------------------------

    pub(super) fn import_pools(&self, request: &ImportPools) -> Result<Vec<FoundPool>, ApiError> {
        if let Some(name) = &request.rename {
            check::pool_name(name)?;
            if request.names.len() != 1 {
                return Err(ApiError::usage("import.rename_what", "a new name is for exactly one pool, so name one"));
            }
        }
        let _opening = lock(&self.opening);
        let search = self.search(request);
        for problem in &search.problems {
            tracing::warn!("{problem}");
        }
        let mut groups = search.groups();
        groups.retain(|g| self.pools.by_uuid(g.uuid).is_none());
        if request.names.is_empty() {
            if groups.is_empty()
                && !search.problems.is_empty()
                && (!request.devices.is_empty() || !request.directories.is_empty() || request.all)
            {
                return Err(ApiError::failed("import.nothing_found", search.problems.join("; ")));
            }
            return Ok(groups.iter().map(|g| self.found(g, request, request.all, &search.problems)).collect());
        }
        let mut chosen = Vec::new();
        for name in &request.names {
            if let Some(open) = self.pools.all().into_iter().find(|p| p.name == *name || p.uuid.to_string() == *name)
                && !groups.iter().any(|g| g.uuid.to_string() == *name || (g.name == *name && request.rename.is_some()))
            {
                // The same name on other devices is a clash, not the same pool.
                if let Some(clash) = groups.iter().find(|g| g.name == *name) {
                    return Err(name_clash(clash, &open));
                }
                chosen.push(Chosen::Open(open));
                continue;
            }
            chosen.push(Chosen::Found(choose(&groups, name, &search)?));
        }
        let mut answer = Vec::new();
        for one in chosen {
            match one {
                Chosen::Open(pool) => answer.push(self.found_open(&pool)?),
                Chosen::Found(group) => {
                    let found = self.found(&group, request, true, &search.problems);
                    if !found.imported && !request.dry_run {
                        let why = found.note.unwrap_or_else(|| "it cannot be opened".into());
                        let message = format!("pool {} was not opened: {why}", group.name);
                        let error = match found.state {
                            PoolState::Degraded if !request.force => {
                                ApiError::new(ErrorKind::Refused, "import.degraded", message)
                            }
                            _ => ApiError::failed("import.failed", message),
                        };
                        return Err(match self.pools.get(&group.name) {
                            Ok(open) if open.uuid != group.uuid && request.rename.is_none() => {
                                name_clash(&group, &open)
                            }
                            _ => error,
                        });
                    }
                    answer.push(found);
                }
            }
        }
        Ok(answer)
    }

    fn search(&self, request: &ImportPools) -> Search {
        let mut search = Search::default();
        request.devices.iter().for_each(|d| search.place(Path::new(d), true));
        request.directories.iter().for_each(|d| search.folder(Path::new(d)));
        if request.devices.is_empty() && request.directories.is_empty() {
            for remembered in cache::load(&self.config.state_dir).unwrap_or_else(|e| {
                search.problems.push(e.to_string());
                Vec::new()
            }) {
                remembered.devices.iter().for_each(|d| search.place(d, false));
            }
            discover::block_devices().iter().for_each(|d| search.place(d, false));
        }
        search
    }

    /// What is said about a pool that was found, after opening it if that is wanted and possible.
    fn found(&self, group: &Group, request: &ImportPools, open: bool, problems: &[String]) -> FoundPool {
        let mut notes = group.notes.clone();
        let mut found = FoundPool {
            name: group.name.clone(),
            uuid: group.uuid.to_string(),
            state: PoolState::Online,
            imported: false,
            devices: group
                .members
                .iter()
                .map(|(id, f)| FoundDevice { id: id.0, path: f.path.display().to_string() })
                .collect(),
            missing: 0,
            note: None,
        };
        let examined = match &group.obstacle {
            Some(obstacle) => Err(obstacle.clone()),
            None => group.examine(self.boot),
        };
        match examined {
            Ok((missing, _)) if missing.is_empty() => {}
            Ok((missing, Some(apart))) => {
                found.state = PoolState::Degraded;
                found.missing = missing.len() as u32;
                notes.push(apart);
            }
            Ok((missing, None)) => {
                found.state = PoolState::Degraded;
                found.missing = missing.len() as u32;
                let ids: Vec<String> = missing.iter().map(ToString::to_string).collect();
                notes.push(format!(
                    "device {} is missing; what is written without it leaves it out of date, and this version cannot \
                     bring it up to date again",
                    ids.join(" ")
                ));
                // What was seen of damaged devices may be what is missing here.
                notes.extend(problems.iter().cloned());
            }
            Err(why) => {
                found.state = PoolState::Unavailable;
                notes.push(why);
                notes.extend(problems.iter().cloned());
            }
        }
        if open && !request.dry_run && found.state != PoolState::Unavailable {
            match self.import_group(group, request.rename.as_deref(), request.force) {
                Ok(pool) => {
                    found.imported = true;
                    found.name.clone_from(&pool.name);
                }
                Err(why) => notes.push(why),
            }
        }
        found.note = (!notes.is_empty()).then(|| notes.join("; "));
        found
    }

    fn found_open(&self, pool: &OpenPool) -> Result<FoundPool, ApiError> {
        let report = pool.report()?;
        let status = views::status(&report, &pool.about);
        Ok(FoundPool {
            name: status.name,
            uuid: status.uuid,
            state: status.state,
            imported: false,
            missing: status.devices.iter().filter(|d| d.state == "MISSING").count() as u32,
            devices: status.devices.into_iter().map(|d| FoundDevice { id: d.id, path: d.path }).collect(),
            note: Some("it is open already".into()),
        })
    }

    /// Claims the members and opens the pool.
    fn import_group(&self, group: &Group, rename: Option<&str>, degraded: bool) -> Result<Arc<OpenPool>, String> {
        let name = rename.unwrap_or(&group.name);
        if let Ok(open) = self.pools.get(name) {
            return Err(format!("a pool named {name} is open already ({})", open.uuid));
        }
        let mut members = Vec::new();
        let mut superblocks = Vec::new();
        for (id, found) in &group.members {
            let spec = DiskSpec::Path(found.path.clone());
            let options = OpenOptions { direct: self.config.direct, ..OpenOptions::default() };
            let (disk, facts) = claim_member(&spec, options).map_err(|e| discover::with_source(&e))?;
            let path = found.path.display().to_string();
            // Between the look and the claim someone may have been here.
            let Look::Member(now, _) = discover::look(&disk, &path) else {
                return Err(format!("{path} has changed since it was looked at"));
            };
            if (now.pool, now.device_uuid) != (found.superblock.pool, found.superblock.device_uuid) {
                return Err(format!("{path} has changed since it was looked at"));
            }
            let identity = Identity::of(&found.path);
            // The name is written by the first checkpoint, from the newest of these.
            superblocks.push(Superblock { name: name.into(), ..*now });
            members.push((*id, Claimed { spec, path, identity, disk: Some(disk), facts }));
        }
        let pool = self.open_pool(name, group.uuid, members, Setup::Import(superblocks), degraded)?;
        let message = format!("pool {name} was opened from {}", devices_word(group.members.len()));
        self.events.tell(Severity::Info, Some(name), "pool.opened", message);
        Ok(pool)
    }

    pub(super) fn open_remembered(&self) -> Vec<String> {
        let _opening = lock(&self.opening);
        let remembered = cache::load(&self.config.state_dir).unwrap_or_else(|e| {
            self.events.tell(Severity::Warning, None, "cache.failed", e.to_string());
            Vec::new()
        });
        let mut open = Vec::new();
        for entry in remembered {
            let mut search = Search::default();
            entry.devices.iter().for_each(|d| search.place(d, false));
            let find = |search: &Search| search.groups().into_iter().find(|g| g.uuid.to_string() == entry.uuid);
            let complete =
                |g: &Group| g.obstacle.is_none() && g.examine(self.boot).is_ok_and(|(missing, _)| missing.is_empty());
            if !find(&search).is_some_and(|g| complete(&g)) {
                // Disks change their names at boot: look everywhere before doing without one.
                discover::block_devices().iter().for_each(|d| search.place(d, false));
            }
            let result = match find(&search) {
                None => Err(format!("none of its devices was found ({})", problems_or(&search, "nothing is there"))),
                Some(group) => match &group.obstacle {
                    Some(obstacle) => Err(obstacle.clone()),
                    None => self.import_group(&group, None, false),
                },
            };
            match result {
                Ok(pool) => open.push(pool.name.clone()),
                Err(why) => {
                    let message = format!("pool {} was open before and could not be opened: {why}", entry.name);
                    self.events.tell(Severity::Error, Some(&entry.name), "pool.not_opened", message);
                }
            }
        }
        open
    }

    // ---- export, destroy ------------------------------------------------------------------------------------------

    pub(super) fn export_pool(&self, request: &ExportPool) -> Result<Change, ApiError> {
        let what = format!("pool {} closed", request.pool);
        let _opening = lock(&self.opening);
        let pool = self.pools.get(&request.pool)?;
        if request.dry_run {
            self.may_close(&pool, request.force)?;
            return Ok(Change { dry_run: true, ..Change::done(what) });
        }
        self.close_pool(&pool, request.force)?;
        self.update_cache(&pool.uuid.to_string(), None);
        self.events.tell(Severity::Info, Some(&pool.name), "pool.exported", format!("pool {} was closed", pool.name));
        Ok(Change::done(what))
    }

    pub(super) fn destroy_pool(&self, request: &DestroyPool) -> Result<Change, ApiError> {
        let _opening = lock(&self.opening);
        let pool = self.pools.get(&request.pool)?;
        let report = pool.report()?;
        let what = format!(
            "pool {} of {} and {} volumes forgotten",
            pool.name,
            devices_word(report.devices.len()),
            report.volumes.len()
        );
        if request.dry_run {
            self.may_close(&pool, request.force)?;
            return Ok(Change { dry_run: true, ..Change::done(what) });
        }
        self.close_pool(&pool, request.force)?;
        self.update_cache(&pool.uuid.to_string(), None);
        let mut notes = Vec::new();
        for device in &report.devices {
            match pool.about.members.get(&device.id) {
                None => notes.push(format!(
                    "device {} (last seen at {}) was not there and still says it is a member",
                    device.id, device.path
                )),
                Some(member) if member.path.starts_with('/') => {
                    if let Err(e) = wipe(Path::new(&member.path), pool.uuid) {
                        notes.push(format!("{} still says it is a member: {e}", member.path));
                    }
                }
                Some(_) => {}
            }
        }
        self.events.tell(Severity::Warning, Some(&pool.name), "pool.destroyed", what.clone());
        Ok(Change { notes, ..Change::done(what) })
    }

    fn may_close(&self, pool: &OpenPool, force: bool) -> Result<(), ApiError> {
        let shared = self.shares.of_pool(pool.uuid);
        if shared.is_empty() || force {
            return Ok(());
        }
        let mut volumes: Vec<String> = shared.iter().map(|s| format!("{}/{}", s.pool, s.volume)).collect();
        volumes.dedup();
        let message = format!("pool {} has volumes that are shared: {}", pool.name, volumes.join(" "));
        Err(ApiError::refused("pool.shared", message).hint("unshare them first, or add -f to do so now"))
    }

    /// Unshares if that is allowed, writes a checkpoint, ends the pump and gives the devices back.
    fn close_pool(&self, pool: &OpenPool, force: bool) -> Result<(), ApiError> {
        let _change = lock(&pool.change);
        self.may_close(pool, force)?;
        self.unshare_all(pool, force)?;
        if let Err(e) = pool.ask(|pump| pump.control(Command::Checkpoint)) {
            // The log has everything that was promised; the next import reads it.
            tracing::warn!(pool = pool.name, "checkpoint before closing failed: {e}");
        }
        self.pools.remove(&pool.name);
        pool.close();
        Ok(())
    }

    // ---- scan -----------------------------------------------------------------------------------------------------

    pub(super) fn scan(&self, request: &ScanDevices) -> Result<Vec<ScannedDevice>, ApiError> {
        let named = !request.paths.is_empty();
        let mut paths: Vec<PathBuf> = request.paths.iter().map(PathBuf::from).collect();
        if !named {
            let files = cache::load(&self.config.state_dir).unwrap_or_default();
            paths = discover::block_devices();
            paths.extend(files.into_iter().flat_map(|p| p.devices).filter(|d| d.exists()));
        }
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for path in paths {
            let identity = Identity::of(&path);
            if identity.is_some_and(|i| !seen.insert(i)) {
                continue;
            }
            found.push(self.scan_one(&path, identity));
        }
        Ok(found)
    }

    fn scan_one(&self, path: &Path, identity: Option<Identity>) -> ScannedDevice {
        let name = path.display().to_string();
        let mut scanned = ScannedDevice { path: name.clone(), ..ScannedDevice::default() };
        let owner = identity.and_then(|i| self.pools.owner(i));
        let (disk, facts) = match discover::open_to_look(path) {
            Ok(opened) => opened,
            Err(e) => return ScannedDevice { content: Some(discover::with_source(&e)), ..scanned },
        };
        scanned.size_bytes = facts.size;
        scanned.rotational = facts.rotational;
        scanned.class = discover::class_of(&DiskSpec::Path(path.into()), &facts).into();
        (scanned.model, scanned.serial) = (facts.model, facts.serial);
        let mut content = Vec::new();
        match (owner, discover::look(&disk, &name)) {
            (Some((pool, id)), _) => {
                content.push(format!("member {id} of pool {}, which is open", pool.name));
                scanned.pool = Some(pool.name.clone());
            }
            (None, Look::Member(found, note)) => {
                content.push(format!("member {} of pool {}", found.device, found.name));
                scanned.pool = Some(found.name.clone());
                content.extend(note);
            }
            (None, Look::Problem(sentence)) => content.push(sentence),
            (None, Look::Nothing) => match probe(&disk) {
                Ok(findings) => content.extend(findings.iter().map(|f| f.what.clone())),
                Err(e) => content.push(format!("it cannot be looked at: {e}")),
            },
        }
        let too_small = facts.size < braid_core::device::DEVICE_MIN;
        if too_small {
            content.push(format!("smaller than {}", size::long(braid_core::device::DEVICE_MIN)));
        }
        scanned.usable = content.is_empty();
        scanned.content = (!content.is_empty()).then(|| content.join(", "));
        scanned
    }
}

enum Chosen {
    Open(Arc<OpenPool>),
    Found(Group),
}

fn name_clash(found: &Group, open: &OpenPool) -> ApiError {
    let message = format!(
        "pool {} ({}) was found, but another pool of that name is open ({})",
        found.name, found.uuid, open.uuid
    );
    ApiError::failed("pool.exists", message)
        .hint(format!("open it under another name: braid import {} --as NAME", found.uuid))
}

/// The one pool of this name or identity.
fn choose(groups: &[Group], name: &str, search: &Search) -> Result<Group, ApiError> {
    let hits: Vec<&Group> = groups.iter().filter(|g| g.name == *name || g.uuid.to_string() == *name).collect();
    match hits.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let message = format!("no pool {name} was found ({})", problems_or(search, "its devices are not here"));
            let error = ApiError::not_found("pool.not_found", message);
            Err(match search.denied {
                0 => error.hint("name its devices, or a folder to search with -d DIR"),
                n => error.hint(format!("{n} devices could not be read: this daemon does not run as root")),
            })
        }
        several => {
            let uuids: Vec<String> = several.iter().map(|g| g.uuid.to_string()).collect();
            let message = format!("{} pools are named {name}: {}", several.len(), uuids.join(" "));
            Err(ApiError::usage("pool.ambiguous", message).hint("use the uuid, and --as NAME for the second"))
        }
    }
}

fn problems_or(search: &Search, otherwise: &str) -> String {
    if search.problems.is_empty() { otherwise.into() } else { search.problems.join("; ") }
}

/// Opens a member, and waits a little for whoever has it: the kernel closes the files of a killed process's ring in its
/// own time, and the daemon that comes after must not miss its pools for that.
fn claim_member(spec: &DiskSpec, options: OpenOptions) -> Result<(Disk, Facts), OpenError> {
    let since = Instant::now();
    loop {
        match backend::open(spec, options) {
            Err(OpenError::Busy(..)) if since.elapsed() < CLAIM_PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

fn spec_path(spec: &DiskSpec) -> Option<&Path> {
    match spec {
        DiskSpec::Path(path) => Some(path),
        DiskSpec::Ram(_) | DiskSpec::Null(_) => None,
    }
}

/// What the kernel says of the disk below a folder, or below the nearest one above it that is there.
fn folder_rotates(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Some(meta) = folder.ancestors().find_map(|p| fs::metadata(p).ok()) else { return false };
    let base = sysfs_dir(meta.dev());
    [base.join("queue/rotational"), base.join("../queue/rotational")]
        .iter()
        .find_map(|p| fs::read_to_string(p).ok())
        .is_some_and(|text| text.trim() == "1")
}

/// What the request stands for: profiles, classes and tiers made definite.
fn new_pool(request: &CreatePool, claimed: &[Claimed]) -> Result<(NewPool, Vec<String>), ApiError> {
    let count = claimed.len();
    let mut notes: Vec<String> = claimed.iter().flat_map(|c| c.facts.note.clone()).collect();
    let profile = |what: &str, spec: &Option<ProfileSpec>, otherwise: Profile| match spec {
        None => Ok(otherwise),
        Some(spec) => Profile::parse(&spec.profile).ok_or_else(|| {
            ApiError::usage("profile.unknown", format!("there is no {what} profile '{}'", spec.profile))
        }),
    };
    let [usual_data, usual_metadata] = Profile::usual(count);
    let data = profile("data", &request.data, usual_data)?;
    let metadata = profile("metadata", &request.metadata, usual_metadata)?;
    for p in [data, metadata].iter().filter(|p| !p.carries_data()) {
        notes.push(format!(
            "profile {}: chunks are placed, volumes cannot be made yet; parity I/O is not there",
            p.name()
        ));
    }

    let asked: Vec<NewDevice> =
        request.devices.iter().cloned().chain((request.devices.len()..count).map(|_| NewDevice::default())).collect();
    let mut devices = Vec::new();
    for (claimed, asked) in claimed.iter().zip(&asked) {
        let word = asked.class.as_deref().unwrap_or_else(|| discover::class_of(&claimed.spec, &claimed.facts));
        let class = DeviceClass::parse(word).ok_or_else(|| {
            ApiError::usage("class.bad_name", format!("'{word}' cannot be a device class"))
                .hint("1 to 15 of a-z 0-9 . _ -, such as nvme, ssd, hdd")
        })?;
        if asked.class.is_some()
            && claimed.facts.rotational != (word == "hdd")
            && matches!(word, "nvme" | "ssd" | "hdd")
        {
            let says = if claimed.facts.rotational { "that it rotates" } else { "that it does not rotate" };
            notes.push(format!("{} is of class {word}, and the kernel says {says}", claimed.path));
        }
        devices.push(format::NewDevice {
            uuid: fresh_uuid(),
            path: claimed.path.clone(),
            size: claimed.facts.size,
            class,
            rotational: claimed.facts.rotational,
            tiers: None,
            hint: Hint::default(),
        });
    }
    prefer_classes(request, &mut devices)?;
    for (device, asked) in devices.iter_mut().zip(&asked) {
        if let Some(tiers) = asked_tiers(device.tiers.unwrap_or_else(|| device.class.default_tiers()), &asked.tiers)? {
            device.tiers = Some(tiers);
        }
    }

    let mut properties = Vec::new();
    if let Some(mode) = &request.mode {
        properties.push(("allocation".to_string(), mode.clone()));
    }
    if request.strict {
        properties.push(("strict".to_string(), "on".to_string()));
    }
    for (name, value) in &request.properties {
        properties.push((super::properties::canonical(name).to_string(), value.clone()));
    }
    // `strict` belongs to a mode, so the mode comes first.
    properties.sort_by_key(|(name, _)| name != "allocation");
    let mut trial = braid_core::properties::Properties::default();
    for (name, value) in &properties {
        notes.extend(trial.set(name, value)?);
    }
    if let Some(id) = trial.read_policy.device()
        && id.index() > count
    {
        return Err(ApiError::usage(
            "read_policy.no_device",
            format!("read policy devid:{id}: there will be devices 1 to {count}"),
        ));
    }
    Ok((NewPool { name: request.name.clone(), uuid: fresh_uuid(), data, metadata, devices, properties }, notes))
}

/// `raid1@ssd,hdd`: those classes come first, in this order; all others after them.
fn prefer_classes(request: &CreatePool, devices: &mut [format::NewDevice]) -> Result<(), ApiError> {
    for (is_data, spec) in [(true, &request.data), (false, &request.metadata)] {
        let Some(spec) = spec.as_ref().filter(|s| !s.classes.is_empty()) else { continue };
        if request.mode.as_deref().is_some_and(|m| Mode::parse(m) != Some(Mode::default())) {
            let message = format!("{spec}: classes of a profile need allocation mode {}", Mode::default().name());
            return Err(ApiError::usage("profile.classes_need_tiers", message));
        }
        if let Some(none) = spec.classes.iter().find(|c| !devices.iter().any(|d| d.class.name() == *c)) {
            let message = format!("{spec}: no device is of class {none}");
            return Err(ApiError::usage("class.no_device", message).hint(format!("say which: --class {none}=/dev/…")));
        }
        let listed = u8::try_from(spec.classes.len()).unwrap_or(u8::MAX);
        for device in devices.iter_mut() {
            let mut tiers = device.tiers.unwrap_or_else(|| device.class.default_tiers());
            let tier = if is_data { &mut tiers.data } else { &mut tiers.metadata };
            *tier = match spec.classes.iter().position(|c| c == device.class.name()) {
                Some(place) => u8::try_from(place).unwrap_or(u8::MAX - 1),
                None => tier.saturating_add(listed).min(Tiers::NEVER - 1),
            };
            device.tiers = Some(tiers);
        }
    }
    Ok(())
}

/// Tiers of one device as asked; `None` when nothing was asked.
fn asked_tiers(mut tiers: Tiers, asked: &BTreeMap<String, u8>) -> Result<Option<Tiers>, ApiError> {
    if asked.is_empty() {
        return Ok(None);
    }
    tiers.data = asked.get("data").copied().unwrap_or(tiers.data);
    tiers.metadata = asked.get("metadata").copied().unwrap_or(tiers.metadata);
    match asked.get("system") {
        Some(system) if *system != tiers.metadata => Err(ApiError::usage(
            "tier.system",
            format!(
                "the pool's own records are placed as metadata is: tier.system cannot be {system} and tier.metadata {}",
                tiers.metadata
            ),
        )
        .hint("leave tier.system out")),
        _ => Ok(Some(tiers)),
    }
}

/// Makes a device forget that it is a member of this pool. One that is not is left alone.
fn wipe(path: &Path, pool: Uuid) -> std::io::Result<()> {
    let block = fs::metadata(path)?.file_type().is_block_device();
    let flags = libc::O_CLOEXEC | if block { libc::O_EXCL } else { 0 };
    let file = fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    if !block {
        // SAFETY: flock only takes numbers.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    let mut slots = [vec![0; SUPERBLOCK_SIZE as usize], vec![0; SUPERBLOCK_SIZE as usize]];
    for (slot, at) in slots.iter_mut().zip(SLOTS) {
        file.read_exact_at(slot, at)?;
    }
    match superblock::newest([&slots[0], &slots[1]]) {
        Ok(found) if found.pool == pool => {}
        _ => return Ok(()),
    }
    let zeros = vec![0; SUPERBLOCK_SIZE as usize];
    for at in SLOTS {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()
}
