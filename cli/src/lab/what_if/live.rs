//! A pool of the daemon as it is today, for the laboratory.
//!
//! ```text
//!   settings      as they were set, its checksums too; of the queue of a member what was set for that one alone
//!   members       class, size, tiers, hint; one that is not there is missing in the laboratory, too
//!   spares        left out: they hold nothing until a member fails
//! ```

use super::property;
use crate::client::Client;
use braid_core::control::VolumeClass;
use braid_core::queue::config;
use braid_core::read_policy::ReadPolicy;
use braid_host::backend::DiskSpec;
use braid_host::control::api::*;
use braid_sim::lab::pool_file::{DeviceEntry, PoolFile};
use braid_sim::lab::setup::Volume;

/// What a load runs on.
pub(super) struct Today {
    pub(super) pool: PoolFile,
    /// Ids of the members; empty when they are those of the laboratory, 1, 2, 3, …
    ids: Vec<u32>,
    volumes: Vec<Kind>,
    /// What is not as it is, a sentence each.
    pub(super) notes: Vec<String>,
}

/// What becomes of what is written to a volume.
struct Kind {
    volume: String,
    class: VolumeClass,
    checksum: bool,
}

impl Today {
    /// A pool that is described.
    pub(super) fn described(pool: PoolFile) -> Today {
        Today { pool, ids: Vec::new(), volumes: Vec::new(), notes: Vec::new() }
    }

    /// A pool of the daemon.
    pub(super) fn live(client: &Client, name: &str) -> Result<Today, ApiError> {
        let mut all = client.call(Status { pool: Some(name.into()) })?;
        let status = all.pop().ok_or_else(|| ApiError::no_pool(name))?;
        let settings = properties(client, Target::Pool { pool: name.into() })?;
        let is_known = |name: &str| braid_core::properties::NAMES.contains(&name) || config::is_name(name);
        let mut pool = PoolFile {
            data: profile(&status.data),
            metadata: Some(profile(&status.metadata)),
            settings: own(&settings, Source::Pool).filter(|(name, _)| is_known(name)).collect(),
            devices: Vec::new(),
        };
        if !status.checksum.is_empty() {
            pool.settings.insert("checksum".into(), status.checksum);
        }
        let mut today = Today { volumes: kinds(client, name)?, ..Today::described(pool) };
        for device in status.devices {
            match status.spares.iter().find(|spare| spare.id == device.id) {
                Some(spare) => today.notes.push(left_out(spare)),
                None => today.add(client, device)?,
            }
        }
        if let Some(policy) = today.pool.settings.remove("read_policy") {
            let policy = today.read_policy(policy);
            today.pool.settings.insert("read_policy".into(), policy);
        }
        Ok(today)
    }

    fn add(&mut self, client: &Client, device: DeviceStatus) -> Result<(), ApiError> {
        let settings = properties(client, Target::Device { pool: device.pool, device: device.id })?;
        let is_placed =
            |name: &str| matches!(name, "tier.data" | "tier.metadata" | "allocation_hint" | "read_preferred");
        let placed = own(&settings, Source::Pool).filter(|(name, _)| is_placed(name));
        // What its queue has from the pool comes with the pool, or no variant could change it.
        let queue = own(&settings, Source::Device).filter(|(name, _)| config::is_name(name));
        // Two paths may end alike.
        let is_other = |other: &DeviceEntry| other.name.as_deref() == Some(&device.name);
        let is_twice = self.pool.devices.iter().any(is_other);
        let name = if is_twice { format!("{}-{}", device.name, device.id) } else { device.name };
        match (device.usable, device.state.as_str()) {
            (true, "ONLINE") => {}
            (true, state) => self.notes.push(format!("{name} is {state}; it takes part as if it were ONLINE")),
            (false, state) => self.notes.push(format!("{name} is {state}, and so it is missing here")),
        }
        self.ids.push(device.id);
        self.pool.devices.push(DeviceEntry {
            name: Some(name),
            class: device.class,
            model: modelled(&device.path),
            size: device.size_bytes.to_string(),
            rotational: Some(device.rotational),
            settings: placed.chain(queue).collect(),
            missing: !device.usable,
            ..DeviceEntry::default()
        });
        Ok(())
    }

    /// A read policy that names a member names it by its id; those of the laboratory have no gaps.
    pub(super) fn read_policy(&self, word: String) -> String {
        let named = ReadPolicy::parse(&word).ok().and_then(|(policy, _)| policy.device());
        let place = named.and_then(|id| self.ids.iter().position(|known| *known == id.0));
        place.map_or(word, |place| format!("devid:{}", place + 1))
    }

    /// Volumes of a load are like those of the pool: of a trace like the one of its name, else like all of them.
    pub(super) fn liken(&mut self, volumes: &mut [Volume], by_name: bool) {
        let alike = |kind: &Kind, other: &Kind| (kind.class, kind.checksum) == (other.class, other.checksum);
        let first = self.volumes.first().filter(|first| self.volumes.iter().all(|kind| alike(kind, first)));
        let mut unlike = false;
        for volume in volumes {
            let same = self.volumes.iter().find(|kind| by_name && kind.volume == volume.name).or(first);
            unlike |= same.is_none() && !self.volumes.is_empty();
            if let Some(kind) = same {
                (volume.class, volume.checksum) = (kind.class, kind.checksum);
            }
        }
        if unlike {
            let note = "the pool's volumes differ in class or checksum; the load's are as a new one would be";
            self.notes.push(note.into());
        }
    }
}

fn left_out(spare: &Spare) -> String {
    match spare.in_place_of {
        Some(id) => format!("{} gets what device {id} has; here it is left out", spare.name),
        None => format!("{} is a spare; it is left out, as it holds nothing until a member fails", spare.name),
    }
}

fn properties(client: &Client, target: Target) -> Result<Vec<Property>, ApiError> {
    client.call(GetProperties { target, names: Vec::new() })
}

/// What was set there, in the engine's words.
fn own(settings: &[Property], at: Source) -> impl Iterator<Item = (String, String)> {
    let is_set = move |set: &&Property| !set.read_only && set.source == at;
    settings.iter().filter(is_set).map(|set| (property(&set.name), set.value.clone()))
}

fn kinds(client: &Client, pool: &str) -> Result<Vec<Kind>, ApiError> {
    let kind = |info: VolumeInfo| {
        let settings = properties(client, Target::Volume { pool: pool.into(), volume: info.name.clone() })?;
        let class = VolumeClass::ALL.into_iter().find(|class| class.name() == info.class).unwrap_or_default();
        let checksum = !own(&settings, Source::Pool).any(|(name, _)| name == "checksum");
        Ok(Kind { volume: info.name, class, checksum })
    };
    client.call(ListVolumes { pool: Some(pool.into()) })?.into_iter().map(kind).collect()
}

/// `raid1@hdd` is a profile, and tiers, which members have.
fn profile(words: &str) -> String {
    words.split('@').next().unwrap_or_default().to_string()
}

/// A member that answers like a model does so in the laboratory, too.
fn modelled(path: &str) -> Option<String> {
    match DiskSpec::parse(path) {
        Ok(DiskSpec::Model(model, _)) => Some(model),
        _ => None,
    }
}
