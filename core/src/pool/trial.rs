//! What would be: a job tried on a copy of the free space, chunk by chunk in the order in which the engine will do it.

use alloc::vec::Vec;

use super::Pool;
use crate::ChunkType;
use crate::chunk::Chunk;
use crate::device::{Device, Role, Used};
use crate::job::{Job, Task};
use crate::profile::Profile;
use crate::units::{BLOCKS_PER_UNIT, ChunkId, UNIT};

/// A pool as it would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Sum of the sizes of members.
    pub raw: u64,
    /// Bytes of data and of metadata that could then be written.
    pub writable: [u64; 2],
    /// Profiles of the chunks there would be, by type: data, metadata; none twice.
    pub profiles: [Vec<Profile>; 2],
    /// Bytes of content to move.
    pub moves: u64,
}

/// Something finds no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// Its type.
    pub kind: ChunkType,
    /// The profile it needs a place in.
    pub profile: Profile,
    /// Bytes of content without one.
    pub missing: u64,
    /// Bytes free on all devices that may be used, whatever could be made of them.
    pub free: u64,
}

impl Pool {
    /// The pool as it is.
    pub fn outlook(&self) -> Outlook {
        let mut trial = Trial::new(self);
        self.chunks().for_each(|chunk| trial.keep(chunk));
        trial.outlook(0)
    }

    /// The pool with more members.
    pub fn try_add(&self, devices: impl Iterator<Item = Device>) -> Outlook {
        let mut trial = Trial::new(self);
        self.chunks().for_each(|chunk| trial.keep(chunk));
        devices.for_each(|device| trial.pool.welcome(device));
        trial.outlook(0)
    }

    /// The pool after a job, if that finds room for all.
    pub fn try_task(&self, task: &Task) -> Result<Outlook, Shortfall> {
        self.try_task_with(core::iter::empty(), task)
    }

    /// The pool with more members, after a job, if that finds room for all.
    pub fn try_task_with(&self, more: impl Iterator<Item = Device>, task: &Task) -> Result<Outlook, Shortfall> {
        let job = Job::new(task.clone(), 0, self.next_chunk);
        let mut trial = Trial::new(self);
        more.for_each(|device| trial.pool.welcome(device));
        trial.pool.profiles = task.profiles(self.profiles);
        if let Task::Replace { by, .. } = *task
            && let Some(device) = trial.pool.device_mut(by)
        {
            device.role = Role::Member;
        }
        if let Some(device) = job.leaving().and_then(|id| trial.pool.device_mut(id)) {
            device.role = Role::Leaving;
        }
        let system = trial.pool.profiles[ChunkType::System as usize];
        let mut left = [ChunkType::Data, ChunkType::Metadata, ChunkType::System].map(|kind| job.limit(kind));
        let mut sources = Vec::new();
        for chunk in self.chunks() {
            let left = &mut left[chunk.kind as usize];
            if *left > 0 && job.moves(chunk, system) {
                *left -= 1;
                sources.push(chunk);
            } else {
                trial.keep(chunk);
            }
        }
        // The pool's own records leave last.
        sources.sort_by_key(|chunk| (chunk.kind == ChunkType::System, chunk.id));
        let mut moves = 0;
        for chunk in sources {
            if !trial.shift_away(chunk, task) {
                trial.move_away(chunk)?;
            }
            moves += if chunk.kind == ChunkType::System { 0 } else { chunk.used() };
        }
        if let Some(device) = job.leaving() {
            trial.pool.forget_member(device);
        }
        Ok(trial.outlook(moves))
    }
}

/// Members with what is taken of them; chunks only as far as they count.
struct Trial {
    pool: Pool,
    /// Bytes free in chunks that stay, by type.
    free: [u64; 3],
    profiles: [Vec<Profile>; 3],
}

impl Trial {
    fn new(of: &Pool) -> Trial {
        let mut pool = Pool::new(of.name.clone(), of.uuid);
        (pool.profiles, pool.properties, pool.next_chunk) = (of.profiles, of.properties.clone(), of.next_chunk);
        for device in of.devices().filter(|d| d.is_recorded()) {
            pool.welcome(device.clone());
        }
        Trial { pool, free: [0; 3], profiles: Default::default() }
    }

    fn note(&mut self, kind: ChunkType, profile: Profile) {
        let profiles = &mut self.profiles[kind as usize];
        if !profiles.contains(&profile) {
            profiles.push(profile);
        }
    }

    fn keep(&mut self, chunk: &Chunk) {
        self.note(chunk.kind, chunk.profile);
        let is_whole = chunk.columns.iter().all(|c| self.pool.is_online(c.device));
        if chunk.kind != ChunkType::System && is_whole {
            self.free[chunk.kind as usize] += chunk.length - chunk.used();
        }
    }

    /// A column goes to another member as it is; false when it cannot.
    fn shift_away(&mut self, chunk: &Chunk, task: &Task) -> bool {
        let Task::Replace { device: old, by } = *task else { return false };
        if chunk.kind == ChunkType::System && self.pool.swap_of(chunk, old, by).is_none() {
            return false;
        }
        let mut chunk = chunk.clone();
        while let Some(shift) = self.pool.shift_of(&chunk, old, by) {
            let used = Used { len: chunk.stripe, chunk: chunk.id };
            self.pool.device_mut(by).expect("it has room").used.insert(shift.to.offset, used);
            chunk.columns[shift.column] = shift.to;
        }
        let is_gone = chunk.columns.iter().all(|c| c.device != old);
        if is_gone {
            self.keep(&chunk);
        }
        is_gone
    }

    /// What is in a chunk finds a place elsewhere; then its space is free.
    fn move_away(&mut self, chunk: &Chunk) -> Result<(), Shortfall> {
        let kind = chunk.kind;
        let used = if kind == ChunkType::System { chunk.length } else { chunk.used() };
        self.find_room(kind, used)?;
        for column in &chunk.columns {
            if let Some(device) = self.pool.device_mut(column.device) {
                device.used.remove(&column.offset);
            }
        }
        Ok(())
    }

    /// So many bytes find a place, in new chunks where those that stay have none left.
    fn find_room(&mut self, kind: ChunkType, mut needs: u64) -> Result<(), Shortfall> {
        loop {
            let taken = needs.min(self.free[kind as usize]);
            self.free[kind as usize] -= taken;
            needs -= taken;
            if needs == 0 {
                return Ok(());
            }
            let Ok(next) = self.pool.plan_chunk(kind) else {
                let there = self.pool.devices().filter(|d| d.takes_chunks());
                let free = there.map(|d| d.size.saturating_sub(d.allocated())).sum();
                let profile = self.pool.profiles[kind as usize];
                return Err(Shortfall { kind, profile, missing: needs, free });
            };
            self.note(kind, next.profile);
            self.free[kind as usize] += next.length;
            self.take(&next);
            if kind != ChunkType::System {
                let pages = u64::from(self.pool.properties.checksum.pages_for(next.length));
                self.find_room(ChunkType::Metadata, pages.div_ceil(BLOCKS_PER_UNIT) * UNIT)?;
            }
        }
    }

    fn take(&mut self, chunk: &Chunk) {
        self.pool.next_chunk = chunk.id.0 + 1;
        for column in &chunk.columns {
            if let Some(device) = self.pool.device_mut(column.device) {
                device.used.insert(column.offset, Used { len: chunk.stripe, chunk: ChunkId(chunk.id.0) });
            }
        }
    }

    fn outlook(self, moves: u64) -> Outlook {
        let Trial { pool, free: [data, metadata, _], profiles: [mut of_data, mut of_metadata, _] } = self;
        let writable = pool.writable_with([data, metadata]);
        // What is not there yet will be in the profile of new chunks.
        for (kind, list) in [(0, &mut of_data), (1, &mut of_metadata)] {
            if list.is_empty() {
                list.push(pool.profiles[kind]);
            }
        }
        Outlook {
            raw: pool.devices().filter(|d| d.role != Role::Spare).map(|d| d.size).sum(),
            writable,
            profiles: [of_data, of_metadata],
            moves,
        }
    }
}
