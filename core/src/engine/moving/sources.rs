//! Which chunks a job empties, and who owns what is in them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::{Engine, Home, PATIENCE_NS, Pass, Round, Table, Turn, Walk, Work};
use crate::ChunkType;
use crate::device::Role;
use crate::job::ROUND_MAX;
use crate::units::{ChunkId, UNIT};

impl Engine {
    /// Says of each chunk and of each member what the job, if there is one, makes of it.
    pub(super) fn mark_sources(&mut self) {
        self.give_up_room_for_system();
        let job = self.pool.job.clone().filter(|job| job.is_open());
        let leaving = job.as_ref().and_then(|job| job.leaving());
        let ids: Vec<_> = self.pool.devices().filter(|d| d.is_recorded()).map(|d| d.id).collect();
        for id in ids {
            let is_held_back = !self.is_heir(id);
            let member = self.pool.device_mut(id).expect("a member");
            member.role = match leaving == Some(id) {
                true => Role::Leaving,
                false if member.spare && is_held_back => Role::Spare,
                false => Role::Member,
            };
            self.note_what_becomes_of(id);
        }
        let system = self.pool.profiles[ChunkType::System as usize];
        let mut left = [ChunkType::Data, ChunkType::Metadata, ChunkType::System]
            .map(|kind| job.as_ref().map_or(0, |job| job.limit(kind)));
        let chunks: Vec<ChunkId> = self.pool.chunks().map(|c| c.id).collect();
        for id in chunks {
            let chunk = self.pool.chunk_mut(id).expect("just listed");
            let left = &mut left[chunk.kind as usize];
            chunk.shunned = *left > 0 && job.as_ref().is_some_and(|job| job.moves(chunk, system));
            *left -= u32::from(chunk.shunned);
        }
        self.pool.members_changed();
        self.find_open_chunks();
    }

    /// Bytes of content in the chunks that a job empties.
    pub(super) fn source_bytes(&self) -> u64 {
        let content = |kind| kind != ChunkType::System;
        self.pool.chunks().filter(|c| c.shunned && content(c.kind)).map(|c| c.used()).sum()
    }

    /// A source is empty and gone.
    pub(in crate::engine) fn source_released(&mut self) {
        if let Some(job) = self.job_mut() {
            job.chunks = job.chunks.saturating_add(1);
        }
    }

    /// Everything that was gathered has been tried: gathers what is left, or goes on to what comes after that.
    pub(super) fn next_pass(&mut self) -> Turn {
        if self.moving.shift.is_some() {
            return self.go_on_with_shift();
        }
        // What was given up is not free yet, and looks as if it were in use.
        let Work { leaving, pass, .. } = &self.moving;
        if leaving.is_some() || pass.ended.is_some_and(|lsn| self.space.holds_before(lsn)) {
            return Turn::Nothing;
        }
        self.close_empty_chunks();
        self.keep_room_for_system();
        let is_source = |c: &&crate::chunk::Chunk| c.shunned && c.kind != ChunkType::System;
        // No unit that comes from elsewhere arrives in a chunk of which a column is copied.
        if self.moving.moves.len() == 0 {
            if self.waits_for_heir() {
                return Turn::Nothing;
            }
            if self.begin_shift() {
                return Turn::Later;
            }
            // What a column that failed had there is not free yet.
            if self.is_column_tried_again() && self.space.holds_extents() {
                return Turn::Nothing;
            }
        }
        let sources = || self.pool.chunks().filter(is_source);
        if sources().next().is_none() {
            if self.space.holds_extents() {
                return Turn::Nothing;
            }
            return self.leave_system();
        }
        let left: u64 = sources().filter(|c| !c.closing).map(|c| self.units_of_others(c.id)).sum();
        if left == 0 {
            // They are being discarded.
            return Turn::Nothing;
        }
        let Pass { moved, failed, ended } = core::mem::take(&mut self.moving.pass);
        if ended.is_some() && moved == 0 {
            if left <= self.moving.lost.len() as u64 {
                self.give_up_job();
                return Turn::Moved;
            }
            if failed > 0 {
                self.stop_for_failures();
                return Turn::Moved;
            }
            // Units that somebody is about to write for the first time.
            self.moving.not_before = Some(self.now + PATIENCE_NS);
        }
        let mut room = ROUND_MAX;
        let mut tables = VecDeque::new();
        for chunk in sources().filter(|c| !c.closing && self.units_of_others(c.id) > 0) {
            let units = chunk.length / UNIT;
            if room == 0 {
                break;
            }
            room = room.saturating_sub(units);
            tables.push_back(Table { chunk: chunk.id, owners: vec![Home::default(); units as usize] });
        }
        self.moving.round = Some(Round { tables, walk: Some(Walk::default()), at: 0 });
        Turn::Later
    }

    /// Walks on through the maps, for a bounded time.
    pub(super) fn gather_sources(&mut self) {
        let Engine { pool, moving, .. } = self;
        let Some(Round { tables, walk: Some(walk), .. }) = &mut moving.round else { return };
        let seats: BTreeMap<ChunkId, usize> = tables.iter().enumerate().map(|(i, t)| (t.chunk, i)).collect();
        let tell = |chunk, unit: u32, home| {
            let table = seats.get(&chunk).and_then(|&seat| tables.get_mut(seat));
            if let Some(owner) = table.and_then(|t| t.owners.get_mut(unit as usize)) {
                *owner = home;
            }
        };
        if walk.go_on(pool, |chunk| seats.contains_key(&chunk), tell)
            && let Some(round) = &mut moving.round
        {
            round.walk = None;
            if self.shifting().is_some_and(|chunk| self.has_rows(chunk)) {
                self.moving.owners = self.moving.round.take().and_then(|mut round| round.tables.pop_front());
            }
        }
    }
}
