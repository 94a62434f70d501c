//! The pool's own records leave a place: by a checkpoint that writes them elsewhere.
//!
//! ```text
//!   new chunks      for the ring of the log, if that has to go, and for the pages, as the reserve wants them
//!   shut            no page is taken from the old ones; leaves that have a page there count as changed
//!   checkpoint      root, leaves and superblocks know only the new ones; the log waits meanwhile, if its ring moves
//!   done            the old chunks are free: nothing on any device refers to them
//! ```
//!
//! Which of both a crash finds is decided by the newest superblock, as for everything else in a checkpoint.

use alloc::vec::Vec;

use super::part::Leaving;
use super::{Engine, PATIENCE_NS, TRIES, Turn};
use crate::ChunkType;
use crate::chunk::{Column, Shift};
use crate::device::Used;
use crate::engine::commit::Departing;
use crate::meta::PAGE;
use crate::meta::image;
use crate::meta::superblock::LOG_BLOCKS_MAX;
use crate::units::ChunkId;

impl Engine {
    /// Content is where it should be: now the pool's own records, and then the end.
    pub(super) fn leave_system(&mut self) -> Turn {
        let sources = self.system_sources();
        if sources.is_empty() {
            self.end_job();
        } else if self.commit.is_writing_pages() {
            // The pages of two images would be counted.
            return Turn::Nothing;
        } else if self.moving.swaps_failed >= TRIES {
            self.stop_for_failures();
        } else if self.swap_system(&sources) || self.move_system(&sources) {
            self.moving.leaving = Some(Leaving::System);
        } else {
            self.stop_for_want_of_room();
        }
        Turn::Moved
    }

    /// Where a member is replaced: room on the other one for columns of the pool's own records. They go last, and units that go
    /// one by one might take it meanwhile.
    pub(super) fn keep_room_for_system(&mut self) {
        let Some((old, new)) = self.heir() else { return };
        for id in self.system_sources() {
            if self.moving.kept.iter().any(|&(chunk, _)| chunk == id) {
                continue;
            }
            let chunk = self.pool.chunk(id).expect("a source exists");
            let Some(shift) = self.pool.shift_of(chunk, old, new) else { continue };
            let len = chunk.stripe;
            self.hold_extent(shift, Used { len, chunk: id });
            self.moving.kept.push((id, shift.to));
        }
    }

    pub(super) fn give_up_room_for_system(&mut self) {
        for (_, column) in core::mem::take(&mut self.moving.kept) {
            self.free_extent(column);
        }
    }

    fn system_sources(&self) -> Vec<ChunkId> {
        self.pool.chunks().filter(|c| c.shunned && c.kind == ChunkType::System).map(|c| c.id).collect()
    }

    /// Has the next checkpoint leave these system chunks; false when there is no room elsewhere.
    fn move_system(&mut self, sources: &[ChunkId]) -> bool {
        let log = self.commit.log_chunk();
        let ring = match sources.contains(&log) {
            false => None,
            // The ring stands at the front, so it needs a chunk of its own.
            true => {
                let Some(id) = self.open_chunk(ChunkType::System) else { return false };
                let chunk = self.pool.chunk(id).expect("just made");
                let blocks = (chunk.length / 4 / PAGE).min(u64::from(LOG_BLOCKS_MAX));
                self.commit.add_pages(chunk, blocks);
                Some((id, blocks as u32))
            }
        };
        sources.iter().for_each(|&id| self.commit.shut_pages(id));
        self.make_page_room(0);
        let is_inside = |page: u64| page != 0 && sources.contains(&crate::meta::pages::locate(page).0);
        self.pool.volumes_mut().for_each(|v| v.map.touch_pages(is_inside));
        let leaves: u64 = self.pool.volumes().map(|v| v.map.leaves()).sum();
        if !self.commit.has_pages(2 * image::pages_for(&self.pool, leaves), image::pages_needed(&self.pool)) {
            sources.iter().for_each(|&id| self.commit.reopen_pages(id));
            if let Some(chunk) = ring.and_then(|(id, _)| self.pool.chunk(id)) {
                // It holds pages from now on, like any other.
                self.commit.remove_pages(chunk.id);
                self.commit.add_pages(chunk, 0);
            }
            return false;
        }
        for &id in sources {
            self.pool.chunk_mut(id).expect("a source exists").closing = true;
        }
        self.commit.leave(Departing { chunks: sources.to_vec(), ring, columns: Vec::new() });
        true
    }

    /// Where a member is replaced and others have copies: the chunks stay and their columns change places. The other member
    /// is behind in all records, and the next checkpoint hands them out. A full pool has room for that.
    fn swap_system(&mut self, sources: &[ChunkId]) -> bool {
        let Some((old, new)) = self.heir() else { return false };
        self.give_up_room_for_system();
        let mut columns = Vec::new();
        for &id in sources {
            let chunk = self.pool.chunk(id).expect("a source exists");
            let Some(shift) = self.pool.swap_of(chunk, old, new) else {
                // Nothing is on its way there.
                self.swap_back(columns).into_iter().for_each(|column| self.free_extent(column));
                return false;
            };
            let (column, len) = (chunk.columns[shift.column], chunk.stripe);
            self.pool.move_column(id, shift.column, shift.to).expect("there is room");
            // Until the checkpoint counts it is in use.
            self.hold_extent(Shift { to: column, ..shift }, Used { len, chunk: id });
            self.pool.chunk_mut(id).expect("just seen").shunned = false;
            columns.push((id, column));
        }
        self.pool.device_mut(new).expect("it gets them").is_behind = true;
        self.commit.leave(Departing { columns, ..Departing::default() });
        true
    }

    /// Whether columns have to stay where they are after all: the member that was to get them did not get everything, and
    /// who has them is there with all of it.
    pub(in crate::engine) fn columns_stay(&self, leaves: Option<&Departing>) -> bool {
        let (Some(leaves), Some((_, new))) = (leaves, self.heir()) else { return false };
        let has_all = |id| self.pool.is_online(id) && self.pool.device(id).is_some_and(|d| !d.is_behind);
        !leaves.columns.is_empty() && !has_all(new) && leaves.columns.iter().all(|(_, column)| has_all(column.device))
    }

    /// They do: the next image is written to the old member in full, and the job tries again later.
    pub(in crate::engine) fn take_columns_back(&mut self, columns: Vec<(ChunkId, Column)>) {
        if let Some(old) = self.heir().and_then(|(old, _)| self.pool.device_mut(old)) {
            old.is_behind = true;
        }
        let lost = self.swap_back(columns);
        self.leave_columns(lost);
        self.moving.leaving = None;
        self.moving.swaps_failed += 1;
        self.moving.not_before = Some(self.now + PATIENCE_NS);
    }

    /// The same chunks have the columns that they had; those that they were to get, which stay held.
    fn swap_back(&mut self, columns: Vec<(ChunkId, Column)>) -> Vec<Column> {
        let Some((_, new)) = self.heir() else { return Vec::new() };
        let mut back = Vec::new();
        for (id, column) in columns {
            let Some(chunk) = self.pool.chunk_mut(id) else { continue };
            chunk.shunned = true;
            let Some(index) = chunk.columns.iter().position(|c| c.device == new) else { continue };
            let (len, to) = (chunk.stripe, chunk.columns[index]);
            self.pool.move_column(id, index, column).expect("its place was held");
            self.hold_extent(Shift { column: index, to }, Used { len, chunk: id });
            back.push(to);
        }
        back
    }

    /// The checkpoint that would have left them found no room for its pages: they stay.
    pub(in crate::engine) fn system_stays(&mut self, Departing { chunks, columns, .. }: Departing) {
        let lost = self.swap_back(columns);
        self.leave_columns(lost);
        for id in chunks {
            self.commit.reopen_pages(id);
            if let Some(chunk) = self.pool.chunk_mut(id) {
                chunk.closing = false;
            }
        }
        self.moving.leaving = None;
        self.stop_for_want_of_room();
    }

    /// The checkpoint that left them is durable.
    pub(in crate::engine) fn system_left(&mut self, chunks: Vec<ChunkId>) {
        chunks.into_iter().for_each(|id| self.retire_system_chunk(id));
        self.moving.leaving = None;
    }
}
