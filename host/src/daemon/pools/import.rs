//! Pools are found on devices and opened.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_core::meta::superblock::Superblock;
use braid_core::units::Uuid;

use super::{Claimed, devices_word};
use crate::backend::{self, Disk, DiskSpec, Facts, OpenError, OpenOptions};
use crate::control::api::*;
use crate::control::check;
use crate::control::server::own_uid;
use crate::daemon::cache::Remembered;
use crate::daemon::discover::{self, Examined, Group, Identity, Look, Search};
use crate::daemon::events::Severity;
use crate::daemon::{Daemon, OpenPool, lock, views};
use crate::pump::{Setup, Without};

/// How long a member may be in somebody's hands when a pool is opened.
const CLAIM_PATIENCE: Duration = Duration::from_secs(3);

impl Daemon {
    pub(in crate::daemon) fn import_pools(&self, request: &ImportPools) -> Result<Vec<FoundPool>, ApiError> {
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
            for remembered in self.cache.load().unwrap_or_else(|e| {
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
        if let Ok(examined) = &examined {
            notes.extend(examined.unpaced.iter().cloned());
        }
        match examined {
            Ok(Examined { missing, .. }) if missing.is_empty() => {}
            Ok(Examined { missing, gives_up: Some(why), .. }) => {
                found.state = PoolState::Degraded;
                found.missing = missing.len() as u32;
                notes.push(why);
            }
            Ok(Examined { missing, .. }) => {
                found.state = PoolState::Degraded;
                found.missing = missing.len() as u32;
                let ids: Vec<String> = missing.iter().map(ToString::to_string).collect();
                notes.push(format!(
                    "device {} is missing; what is written without it is noted, and it is caught up when it is back: \
                     braid online {} DEVICE",
                    ids.join(" "),
                    group.name
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
            let without = if request.force { Without::Apart } else { Without::Absent };
            match self.import_group(group, request.rename.as_deref(), without) {
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
        let status = views::status(&report, &pool.about());
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
    fn import_group(&self, group: &Group, rename: Option<&str>, without: Without) -> Result<Arc<OpenPool>, String> {
        let name = rename.unwrap_or(&group.name);
        if let Ok(open) = self.pools.get(name) {
            return Err(format!("a pool named {name} is open already ({})", open.uuid));
        }
        let attached = self.cache.pool(&group.uuid.to_string()).map(|known| known.attached).unwrap_or_default();
        let mut anew = Vec::new();
        let mut members = Vec::new();
        let mut superblocks = Vec::new();
        for (id, found) in &group.members {
            let spec = DiskSpec::of_member(&found.path);
            let options = OpenOptions { direct: self.config.direct, ..OpenOptions::default() };
            let (disk, facts) = claim_member(&spec, options).map_err(|e| discover::with_source(&e))?;
            let path = found.path.display().to_string();
            // Between the look and the claim someone may have been here.
            let seen = (found.superblock.pool, found.superblock.device_uuid);
            let now = match discover::look(&disk, &path) {
                Look::Member(now, _) if (now.pool, now.device_uuid) == seen => now,
                Look::Member(..) | Look::Nothing => return Err(format!("{path} has changed since it was looked at")),
                // It could be read a moment ago: as good as not there.
                Look::Problem(why) => {
                    self.events.tell(Severity::Warning, Some(name), "device.unreadable", why);
                    continue;
                }
            };
            let identity = Identity::of(&found.path);
            if attached.is_another(self.boot, now.device_uuid, facts.diskseq) {
                anew.push(path.clone());
            }
            // The name is written by the first checkpoint, from the newest of these.
            superblocks.push(Superblock { name: name.into(), ..*now });
            members.push((*id, Claimed { spec, path, identity, disk: Some(disk), facts }));
        }
        if !anew.is_empty() {
            let message = format!(
                "{} was disconnected and connected again since the pool was open: what nobody had flushed counts as lost, as after a \
                 power cut",
                anew.join(" ")
            );
            self.events.tell(Severity::Warning, Some(name), "device.connected_anew", message);
            superblocks.iter_mut().for_each(|superblock| superblock.boot = Uuid::default());
        }
        let devices = devices_word(members.len());
        let pool = self.open_pool(name, group.uuid, members, Setup::Import(superblocks), without)?;
        let message = format!("pool {name} was opened from {devices}");
        self.events.tell(Severity::Info, Some(name), "pool.opened", message);
        self.restore_shares(&pool);
        Ok(pool)
    }

    pub(in crate::daemon) fn open_remembered(&self) -> Vec<String> {
        let _opening = lock(&self.opening);
        let remembered = self.cache.load().unwrap_or_else(|e| {
            self.events.tell(Severity::Warning, None, "cache.failed", e.to_string());
            Vec::new()
        });
        let mut open = Vec::new();
        for entry in remembered {
            let looked = look_for(&entry, self.boot);
            match self.open_again(&looked) {
                Ok(pool) => open.push(pool.name.clone()),
                Err(why) => {
                    let message = format!("pool {} was open before and could not be opened: {why}", entry.name);
                    self.events.tell(Severity::Error, Some(&entry.name), "pool.not_opened", message);
                    self.unopened.add(entry, why, members_of(&looked));
                }
            }
        }
        open
    }

    fn open_again(&self, (group, search): &Looked) -> Result<Arc<OpenPool>, String> {
        match group {
            None => Err(format!("none of its devices was found ({})", problems_or(search, "nothing is there"))),
            Some(Group { obstacle: Some(obstacle), .. }) => Err(obstacle.clone()),
            Some(group) => self.import_group(group, None, Without::Away),
        }
    }

    /// Opens pools of which more members are there than when that was tried last.
    pub(in crate::daemon) fn open_late(&self) {
        let _opening = lock(&self.opening);
        if self.alive().is_err() {
            return;
        }
        let waiting = self.unopened.select(None, |uuid| self.pools.all().iter().any(|p| p.uuid.to_string() == uuid));
        for entry in waiting {
            let looked = look_for(&entry.remembered, self.boot);
            if members_of(&looked) > entry.members
                && let Err(why) = self.open_again(&looked)
            {
                self.unopened.add(entry.remembered, why, members_of(&looked));
            }
        }
    }
}

/// A pool as it was found, and where it was looked for.
type Looked = (Option<Group>, Search);

fn members_of((group, _): &Looked) -> usize {
    group.as_ref().map_or(0, |group| group.members.len())
}

/// A pool that was open before, where its members were, and anywhere if that is not all of them.
fn look_for(entry: &Remembered, boot: Uuid) -> Looked {
    let mut search = Search::default();
    entry.devices.iter().for_each(|d| search.place(d, false));
    let find = |search: &Search| search.groups().into_iter().find(|g| g.uuid.to_string() == entry.uuid);
    let complete = |g: &Group| g.obstacle.is_none() && g.examine(boot).is_ok_and(|found| found.missing.is_empty());
    if !find(&search).is_some_and(|g| complete(&g)) {
        // Disks change their names at boot: look everywhere before doing without one.
        discover::block_devices().iter().for_each(|d| search.place(d, false));
    }
    (find(&search), search)
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
            const NEXT: &str = "name its devices, or the folder of its files with -d DIR";
            Err(error.hint(match search.denied {
                0 => NEXT.into(),
                n if own_uid() == 0 => format!(
                    "{NEXT}; {n} devices could not be opened although this daemon runs as root: the container or the \
                     security policy that it runs under forbids it"
                ),
                n => format!("{NEXT}; {n} devices may not be read by this user: run the daemon as root"),
            }))
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
pub(super) fn claim_member(spec: &DiskSpec, options: OpenOptions) -> Result<(Disk, Facts), OpenError> {
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
