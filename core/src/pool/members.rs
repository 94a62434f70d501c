//! Who comes to a pool and who goes.

use alloc::format;

use super::place::free_extents;
use super::{Contradiction, Pool, put};
use crate::chunk::{Chunk, Column, Shift};
use crate::device::{Device, RESERVED, Used};
use crate::profile::Profile;
use crate::units::{ChunkId, DeviceId};

impl Pool {
    /// The id of the next member. No id is used twice: what a device that left says of itself stays recognizable.
    pub fn next_device_id(&self) -> DeviceId {
        DeviceId(self.next_device.max(self.devices.len() as u32).max(1))
    }

    /// A member that no record has yet.
    pub(crate) fn welcome(&mut self, device: Device) {
        self.members_changed();
        put(&mut self.devices, device.id.index(), device);
    }

    /// A member that nothing is on goes; one that is gone already stays gone.
    pub(super) fn drop_member(&mut self, id: DeviceId) -> Result<(), Contradiction> {
        if let Some(device) = self.device(id)
            && !device.used.is_empty()
        {
            return Err(Contradiction(format!("device {id} goes and has chunks")));
        }
        self.next_device = self.next_device.max(id.0 + 1);
        self.forget_member(id);
        Ok(())
    }

    /// Takes a member off the table.
    pub(crate) fn forget_member(&mut self, id: DeviceId) {
        if let Some(place) = self.devices.get_mut(id.index()) {
            *place = None;
        }
        self.stale.remove(&id);
        self.members_changed();
    }

    /// Where the column that a chunk has on one member would go on another; none when that has no room for it, or a part of
    /// the chunk already, or when nothing is there to copy from.
    pub(crate) fn shift_of(&self, chunk: &Chunk, from: DeviceId, to: DeviceId) -> Option<Shift> {
        let column = chunk.columns.iter().position(|c| c.device == from)?;
        let is_apart = chunk.profile == Profile::Dup || chunk.columns.iter().all(|c| c.device != to);
        let device = self.device(to).filter(|d| d.takes_chunks() && is_apart && self.chunk_available(chunk))?;
        let hole = free_extents(device).into_iter().find(|hole| hole.len >= chunk.stripe)?;
        Some(Shift { column, to: Column { device: to, offset: hole.offset } })
    }

    /// The same of the pool's own records, which the next checkpoint writes there: others have to hold them until then.
    pub(crate) fn swap_of(&self, chunk: &Chunk, from: DeviceId, to: DeviceId) -> Option<Shift> {
        let has_them =
            |c: &Column| c.device != from && self.device(c.device).is_some_and(|d| d.state.is_used() && !d.is_behind);
        self.shift_of(chunk, from, to).filter(|_| chunk.columns.iter().any(has_them))
    }

    /// A column is somewhere else from now on.
    pub(crate) fn move_column(&mut self, id: ChunkId, index: usize, to: Column) -> Result<(), Contradiction> {
        let of = |what: &str| Contradiction(format!("column {index} of chunk {id} {what}"));
        let Some(chunk) = self.chunk(id) else { return Err(of("moves, and there is no such chunk")) };
        let (old, len) = (chunk.columns.get(index).copied().ok_or_else(|| of("moves and never was"))?, chunk.stripe);
        let device = self.device_mut(to.device).ok_or_else(|| of("goes to a device that is not a member"))?;
        // Its extent may be held for it.
        device.used.remove(&to.offset);
        let end = to.offset.saturating_add(len);
        let below = device.used.range(..end).next_back().map_or(0, |(offset, used)| offset + used.len);
        if to.offset < RESERVED || end > device.size || below > to.offset {
            return Err(of("goes over something else"));
        }
        device.used.insert(to.offset, Used { len, chunk: id });
        if let Some(device) = self.device_mut(old.device) {
            device.used.remove(&old.offset);
        }
        self.chunk_mut(id).expect("just seen").columns[index] = to;
        self.members_changed();
        Ok(())
    }
}
