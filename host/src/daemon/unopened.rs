//! Pools that were open when the last daemon ended and could not be opened by this one: `list` and `status` show them
//! until they are opened or given up.

use std::sync::Mutex;

use super::cache::Remembered;
use super::events::Severity;
use super::{Daemon, lock};
use crate::control::api::*;

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) remembered: Remembered,
    why: String,
    /// How many of its members were there then.
    pub(super) members: usize,
}

/// All of them. The lock is a leaf.
#[derive(Default)]
pub(super) struct Unopened(Mutex<Vec<Entry>>);

impl Unopened {
    pub(super) fn add(&self, remembered: Remembered, why: String, members: usize) {
        let mut all = lock(&self.0);
        all.retain(|e| e.remembered.uuid != remembered.uuid);
        all.push(Entry { remembered, why, members });
    }

    /// It is open now, or given up.
    pub(super) fn remove(&self, uuid: &str) {
        lock(&self.0).retain(|e| e.remembered.uuid != uuid);
    }

    /// All, or the one of this name, without those that are open meanwhile.
    pub(super) fn select(&self, name: Option<&String>, is_open: impl Fn(&str) -> bool) -> Vec<Entry> {
        let mut all = lock(&self.0).clone();
        all.retain(|e| name.is_none_or(|n| *n == e.remembered.name) && !is_open(&e.remembered.uuid));
        all
    }
}

impl Entry {
    pub(super) fn summary(&self) -> PoolSummary {
        PoolSummary {
            name: self.remembered.name.clone(),
            uuid: self.remembered.uuid.clone(),
            state: PoolState::Unavailable,
            size_bytes: 0,
            allocated_bytes: 0,
            free_bytes: 0,
            writable_bytes: 0,
            devices: self.remembered.devices.len() as u32,
            volumes: 0,
            data: String::new(),
            metadata: String::new(),
            not_open: Some(self.why.clone()),
        }
    }

    pub(super) fn status(&self) -> PoolStatus {
        let Remembered { uuid, name, devices, .. } = &self.remembered;
        let places: Vec<String> = devices.iter().map(|d| d.display().to_string()).collect();
        let action = format!(
            "connect what is missing (members were at {}), then, or to go on without it: braid import {name}   \
             give the pool up: braid export {name}",
            places.join(" ")
        );
        let problem = Problem {
            code: "pool.not_opened".into(),
            message: format!("pool {name} was open before and could not be opened: {}", self.why),
            action: Some(action),
        };
        PoolStatus {
            scrub: Default::default(),
            job: Default::default(),
            name: name.clone(),
            uuid: uuid.clone(),
            state: PoolState::Unavailable,
            opened_at: String::new(),
            uptime_ns: 0,
            survivable_failures: 0,
            data: String::new(),
            metadata: String::new(),
            read_policy: String::new(),
            mode: String::new(),
            checksum: String::new(),
            checksum_cache: Default::default(),
            lost: Vec::new(),
            chunks: 0,
            degraded_chunks: 0,
            volumes: 0,
            generation: 0,
            writable_data_bytes: 0,
            writable_metadata_bytes: 0,
            spilled: Vec::new(),
            spares: Vec::new(),
            problems: vec![problem],
            notes: Vec::new(),
            devices: Vec::new(),
        }
    }
}

impl Daemon {
    /// `export` of a pool that could not be opened: it is not looked for any more. None when no such pool is meant.
    pub(super) fn give_up_unopened(&self, request: &ExportPool) -> Option<Result<Change, ApiError>> {
        let entry = self.unopened.select(Some(&request.pool), |_| false).pop()?;
        let (uuid, what) =
            (&entry.remembered.uuid, format!("pool {} given up; its devices were not touched", request.pool));
        if request.dry_run {
            return Some(Ok(Change { dry_run: true, ..Change::done(what) }));
        }
        if let Err(e) = self.cache.update(uuid, |_| None) {
            let message = format!("{e}; the next daemon looks for pool {} again", request.pool);
            return Some(Err(ApiError::failed("cache.failed", message)));
        }
        self.unopened.remove(uuid);
        self.events.tell(Severity::Info, Some(&request.pool), "pool.given_up", what.clone());
        Some(Ok(Change::done(what)))
    }
}
