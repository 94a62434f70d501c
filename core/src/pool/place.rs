//! Where the next chunk goes, and how much could still be written: the pool's questions to the allocator.

use alloc::vec::Vec;

use super::Pool;
use super::totals::Totals;
use crate::ChunkType;
use crate::allocator::{self, Hole, Index, Member, NoSpace, Plan, Rules};
use crate::chunk::{CHUNK_MAX, Chunk, Column};
use crate::device::{Device, Role};
use crate::meta::record::CHUNKS_MAX;
use crate::profile::Profile;
use crate::units::{ChunkId, DeviceId, GIB, MIB, UNIT, round_down};

impl Pool {
    /// Plans and names a new chunk of this type, or says why there is none; nothing is changed yet. Looks at every member:
    /// whoever makes one chunk after the other asks [`Pool::next_chunk`].
    pub(crate) fn plan_chunk(&self, kind: ChunkType) -> Result<Chunk, NoSpace> {
        let rules = self.rules_for(kind);
        let profile = self.profiles[kind as usize];
        let plan = self.with_members(|members| allocator::plan(&rules, profile, kind.into(), members))?;
        let needed = plan.columns.len();
        // A pool that made a thousand million chunks in its life makes no more.
        self.named(kind, plan).ok_or(NoSpace { qualified: 0, needed, largest_hole: 0 })
    }

    /// The same answer without the reason why not, and without a look at members where nothing changed.
    pub fn next_chunk(&mut self, kind: ChunkType) -> Option<Chunk> {
        let rules = self.rules_for(kind);
        let profile = self.profiles[kind as usize];
        let known = self.next_places[kind as usize].take().filter(|index| index.is_for(&rules, profile));
        let mut index = match known {
            Some(index) => index,
            None => self.with_members(|members| Index::new(&rules, profile, kind.into(), members)),
        };
        for id in index.take_changed() {
            self.put_member(&mut index, id);
        }
        let plan = index.plan();
        self.next_places[kind as usize] = Some(index);
        let chunk = plan.and_then(|plan| self.named(kind, plan));
        // The slow, obvious twins.
        debug_assert_eq!(facts(chunk.as_ref()), facts(self.plan_chunk(kind).as_ref().ok()));
        #[cfg(debug_assertions)]
        assert_eq!(self.totals, Totals::of(self.chunks()));
        chunk
    }

    /// The next chunk when there is room only together with members that are not there: fewer of them than failures that the
    /// profile survives, so that all of it has a copy on one that is.
    pub(crate) fn next_degraded_chunk(&self, kind: ChunkType) -> Option<Chunk> {
        let (rules, profile) = (self.rules_for(kind), self.profiles[kind as usize]);
        let plan = |absent| {
            self.with_members_and(absent, |members| allocator::plan(&rules, profile, kind.into(), members)).ok()
        };
        let chunk = self.absent_allowed(profile).find_map(|absent| self.named(kind, plan(absent)?))?;
        self.chunk_available(&chunk).then_some(chunk)
    }

    /// How many of the members that are not there may get a column of a chunk.
    fn absent_allowed(&self, profile: Profile) -> impl Iterator<Item = usize> + use<> {
        let facts = profile.facts();
        let allowed = if facts.parity == 0 { facts.tolerated_failures } else { 0 };
        1..=allowed.min(self.devices().filter(is_absent).count())
    }

    fn put_member(&self, index: &mut Index, id: DeviceId) {
        let online = self.device(id).filter(|d| d.takes_chunks());
        let holes = online.map(free_extents).unwrap_or_default();
        index.put(id, online.map(|d| member(d, &holes)).as_ref());
    }

    /// Members went, came back, or are something else than they were.
    pub(crate) fn members_changed(&mut self) {
        self.next_places = [None, None, None];
    }

    /// Space was taken or given back.
    pub(super) fn space_changed(&mut self, chunk: &Chunk) {
        for index in self.next_places.iter_mut().flatten() {
            chunk.columns.iter().for_each(|column| index.change(column.device));
        }
    }

    /// Sums over chunks.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    fn with_members<T>(&self, ask: impl FnOnce(&[Member<'_>]) -> T) -> T {
        self.with_members_and(0, ask)
    }

    /// With so many of those that are not there.
    fn with_members_and<T>(&self, absent: usize, ask: impl FnOnce(&[Member<'_>]) -> T) -> T {
        let online =
            || self.devices().filter(|d| d.takes_chunks()).chain(self.devices().filter(is_absent).take(absent));
        let holes: Vec<Vec<Hole>> = online().map(free_extents).collect();
        let members: Vec<Member<'_>> = online().zip(&holes).map(|(d, holes)| member(d, holes)).collect();
        ask(&members)
    }

    fn named(&self, kind: ChunkType, plan: Plan) -> Option<Chunk> {
        if self.next_chunk >= CHUNKS_MAX {
            return None;
        }
        let columns: Vec<Column> = plan.columns.iter().map(|&(device, offset)| Column { device, offset }).collect();
        let (mut stripe, mut length) = (plan.stripe, plan.length);
        if length > CHUNK_MAX {
            let stripes = length / stripe;
            stripe = round_down(CHUNK_MAX / stripes, UNIT);
            length = stripe * stripes;
        }
        let profile = self.profiles[kind as usize];
        Some(Chunk::new(ChunkId(self.next_chunk), kind, profile, stripe, length, columns, plan.spilled))
    }

    /// Large pools have large maps, and a superblock lists 128 system chunks at most: so they grow, each to an eighth of
    /// those before, from 256 MiB of them on.
    fn system_chunk_size(&self) -> Option<u64> {
        let part = round_down(self.totals.system / 8, MIB);
        (part > 32 * MIB).then_some(part.min(GIB))
    }

    /// Bytes of data and of metadata that could still be written, each as if nothing of the other came: what future chunks
    /// could hold beside sums, and what is free in those that are there. The one number of `create`, `list`, `usage` and
    /// `status`.
    pub fn writable(&self) -> [u64; 2] {
        self.writable_with([ChunkType::Data, ChunkType::Metadata].map(|kind| {
            let begun = self.chunks().filter(|c| c.kind == kind && c.profile.carries(kind));
            begun.map(|c| c.length - c.used()).sum()
        }))
    }

    /// The same where so many bytes are free in chunks of data and of metadata.
    pub(super) fn writable_with(&self, free: [u64; 2]) -> [u64; 2] {
        let (rules, checksum) = (self.rules(), self.properties.checksum);
        let metadata = self.profiles[ChunkType::Metadata as usize];
        let sums = allocator::Sums { checksum, profile: metadata, free: free[ChunkType::Metadata as usize] };
        [ChunkType::Data, ChunkType::Metadata].map(|kind| {
            let profile = self.profiles[kind as usize];
            let with = |absent| {
                self.with_members_and(absent, |members| {
                    allocator::writable(&rules, profile, kind.into(), members, &sums)
                })
            };
            // Who is not there counts only where nothing could be written without.
            let more = [0].into_iter().chain(self.absent_allowed(profile)).map(with).find(|&bytes| bytes > 0);
            free[kind as usize] + more.unwrap_or(0)
        })
    }

    fn rules(&self) -> Rules {
        Rules { mode: self.properties.allocation, ..Rules::default() }
    }

    fn rules_for(&self, kind: ChunkType) -> Rules {
        match kind {
            ChunkType::System => Rules { system_chunk_size: self.system_chunk_size(), ..self.rules() },
            ChunkType::Data | ChunkType::Metadata => self.rules(),
        }
    }
}

/// A member that takes chunks when it is there.
fn is_absent(d: &&Device) -> bool {
    !d.state.is_used() && d.role == Role::Member
}

/// What two chunks that are the same have in common.
fn facts(chunk: Option<&Chunk>) -> Option<(ChunkId, u64, u64, bool, &[Column])> {
    chunk.map(|c| (c.id, c.stripe, c.length, c.spilled, &c.columns[..]))
}

fn member<'a>(d: &Device, holes: &'a [Hole]) -> Member<'a> {
    Member {
        id: d.id,
        size: d.size,
        rotational: d.rotational,
        tiers: d.tiers,
        hint: d.hint,
        allocated: d.allocated(),
        holes,
    }
}

pub(super) fn free_extents(device: &Device) -> Vec<Hole> {
    let used: Vec<(u64, u64)> = device.used.iter().map(|(&offset, used)| (offset, used.len)).collect();
    allocator::holes(device.size, &used)
}
