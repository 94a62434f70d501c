//! Making pools, opening them, closing them, and making their devices forget.

mod close;
mod create;
mod explain;
mod import;
mod member;
pub(super) mod plan;
mod resume;
mod scan;

pub(super) use member::Where;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use braid_core::control::Command;
use braid_core::report::{DeviceReport, PoolReport};
use braid_core::units::{DeviceId, Uuid};

use super::cache::{Attached, Remembered};
use super::discover::Identity;
use super::events::{Narrator, Severity};
use super::views::{self, About, MemberFacts};
use super::{Daemon, Members, OpenPool, seen};
use crate::backend::{Disk, DiskSpec, Facts};
use crate::pump::{self, PumpHandle, Setup, Without};

/// Bytes of a flight record: hours of a light load, minutes of a heavy one.
const FLIGHT_MAX: u64 = 1 << 30;

/// A device that was claimed.
pub(super) struct Claimed {
    pub(super) spec: DiskSpec,
    /// As it was named; remembered and shown.
    pub(super) path: String,
    pub(super) identity: Option<Identity>,
    pub(super) disk: Option<Disk>,
    pub(super) facts: Facts,
}

pub(super) fn devices_word(count: usize) -> String {
    if count == 1 { "1 device".into() } else { format!("{count} devices") }
}

/// The file or block device behind a member of this name, if it outlives the process.
fn kept_on(name: &str) -> Option<PathBuf> {
    DiskSpec::of_member(Path::new(name)).path().filter(|path| path.is_absolute()).map(Path::to_owned)
}

impl Daemon {
    /// Where the inputs of this opening are recorded, if they are: an older record of the pool is kept once.
    fn flight_of(&self, name: &str) -> Option<(PathBuf, u64)> {
        let path = self.config.flight_dir.as_ref()?.join(format!("{name}.flight"));
        // Without an older one there is nothing to keep; whatever else is wrong shows when the new one is made.
        let _ = std::fs::rename(&path, path.with_extension("flight.old"));
        Some((path, FLIGHT_MAX))
    }

    /// Starts the pump and puts the pool on the list; remembers it.
    fn open_pool(
        &self,
        name: &str,
        uuid: Uuid,
        members: Vec<(DeviceId, Claimed)>,
        setup: Setup,
        without: Without,
    ) -> Result<Arc<OpenPool>, String> {
        let about = About {
            opened_at: SystemTime::now(),
            opened_ns: views::monotonic_ns(),
            members: BTreeMap::new(),
            away: BTreeSet::new(),
            reactor: String::new(),
            forgotten: 0,
        };
        let mut found = Members { about, identities: Vec::new(), faults: BTreeMap::new() };
        let mut disks = Vec::new();
        for (id, Claimed { path, identity, disk, facts, .. }) in members {
            let Some(disk) = disk else { continue };
            found.found(id, path, identity, disk.fault_handle(), facts);
            disks.push((id, disk));
        }
        let paths: HashMap<DeviceId, String> =
            found.about.members.iter().map(|(id, f)| (*id, f.path.clone())).collect();
        let members = Arc::new(RwLock::new(found));
        let narrator = Arc::new(Narrator::new(name, paths));
        let (tells, known, events) = (narrator.clone(), members.clone(), self.events.clone());
        let options = pump::Options {
            reactor: self.config.reactor,
            memory: self.config.memory,
            boot: self.boot,
            without,
            flight: self.flight_of(name),
            on_event: Box::new(move |event| {
                known.write().unwrap_or_else(PoisonError::into_inner).hear(&event);
                tells.tell(&events, &event);
            }),
        };
        let pump = PumpHandle::start(options, disks, setup)?;
        self.tell_opened(name, pump.missing(), pump.forgotten());
        {
            let about = &mut members.write().unwrap_or_else(PoisonError::into_inner).about;
            (about.reactor, about.forgotten) = (pump.reactor().to_string(), pump.forgotten());
            about.away.extend(pump.missing());
        }
        let pool = Arc::new(OpenPool {
            name: name.into(),
            uuid,
            members,
            narrator,
            change: Mutex::default(),
            pump: RwLock::new(Some(pump)),
        });
        self.pools.insert(pool.clone());
        self.unopened.remove(&uuid.to_string());
        self.remember(&pool);
        Ok(pool)
    }

    fn tell_opened(&self, name: &str, missing: &[DeviceId], forgotten: u64) {
        for id in missing {
            let message =
                format!("device {id} was not there when the pool was opened; it is taken back when it is there");
            self.events.tell(Severity::Warning, Some(name), "device.missing", message);
        }
        if forgotten > 0 {
            let message = format!("a power cut took back {forgotten} changes that nobody had asked to flush");
            self.events.tell(Severity::Warning, Some(name), "pool.forgotten", message);
        }
    }

    /// The pool's records say where a member was seen last, for the day it is missing.
    fn note_places(&self, pool: &OpenPool, report: &PoolReport, about: &About) {
        for device in report.devices.iter().filter(|d| d.state.is_used()) {
            let Some(MemberFacts { path, serial, .. }) = about.members.get(&device.id) else { continue };
            let (device, before, value) = (device.id, &device.path, seen::record(path, serial.as_deref()));
            if *before == value {
                continue;
            }
            let command = Command::SetDevice { device, name: "path".into(), value };
            if let Err(why) = pool.ask(move |pump| pump.control(command)) {
                tracing::warn!(
                    pool = pool.name,
                    "that device {device} is at {path} now could not be noted: {}",
                    why.message
                );
            }
        }
    }

    /// Pools in memory only are not worth remembering: they are gone with the process.
    pub(super) fn remember(&self, pool: &OpenPool) {
        let (about, report) = (pool.about(), pool.report());
        if let Ok(report) = &report {
            self.note_places(pool, report, &about);
        }
        let paths = about.members.values().map(|m| &m.path).filter(|p| kept_on(p).is_some());
        let mut devices: Vec<PathBuf> = paths.map(PathBuf::from).collect();
        if devices.is_empty() {
            return;
        }
        let members = report.map(|report| report.devices).unwrap_or_default();
        let is_whole = members.len() == devices.len();
        let seq = |d: &DeviceReport| Some((d.uuid.to_string(), about.members.get(&d.id)?.diskseq?));
        let attached = Attached { boot: self.boot.to_string(), disks: members.iter().filter_map(seq).collect() };
        let uuid = pool.uuid.to_string();
        self.update_cache(&uuid.clone(), |known| {
            let (before, shares) = known.map_or_else(Default::default, |k| (k.devices, k.shares));
            // A member that is away now is looked for where it was, until the pool is exported.
            if !is_whole {
                let away: Vec<_> = before.into_iter().filter(|d| !devices.contains(d)).collect();
                devices.extend(away);
            }
            Some(Remembered { uuid, name: pool.name.clone(), devices, attached, shares })
        });
    }

    fn update_cache(&self, uuid: &str, change: impl FnOnce(Option<Remembered>) -> Option<Remembered>) {
        if let Err(e) = self.cache.update(uuid, change) {
            let message = format!(
                "{e}; after a restart pools are found by braid import only; it is tried again with each braid status"
            );
            self.events.tell(Severity::Warning, None, "cache.failed", message);
        }
    }
}
