//! What waits: by class for the choice of the next, by place for its neighbours.
//!
//! ```text
//!   by class                                  by place, one for reads and one for writes
//!   sync_read   FIFO  (arrived, 0, serial)    (offset, serial)
//!   scrub       LBA   (slot, offset, serial)
//! ```
//!
//! One I/O alone needs no order and waits in neither: on a device that is not busy, nothing is ever sorted.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Included, Unbounded};

use crate::queue::class::Class;
use crate::queue::limits::LbaOrder;
use crate::queue::waiting::Waiting;
use crate::request::DeviceOp;
use crate::slab::Slab;
use crate::units::IoId;

/// Arrival slots are 2^29 ns.
const SLOT_SHIFT: u32 = 29;

/// Slot or time of arrival, offset, serial number.
type Key = (u64, u64, u64);
/// Offset, serial number.
pub(super) type Place = (u64, u64);

/// Reads and writes meet only their like; what carries no data meets nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) io: Waiting,
    serial: u64,
    /// Optional by birth, but the command before it counts on it now.
    pub(super) needed: bool,
}

#[derive(Clone)]
pub(super) struct Line {
    order: LbaOrder,
    /// All there is, when there is one.
    lone: Option<Entry>,
    entries: Slab<Entry>,
    by_class: [BTreeMap<Key, u32>; Class::COUNT],
    by_place: [BTreeMap<Place, u32>; 2],
    queued: [u32; Class::COUNT],
    /// One bit for each class that has somebody here.
    classes: u16,
    next_serial: u64,
}

pub(super) fn direction(op: DeviceOp) -> Option<Direction> {
    match op {
        DeviceOp::Read => Some(Direction::Read),
        DeviceOp::Write { .. } => Some(Direction::Write),
        DeviceOp::Flush | DeviceOp::Discard | DeviceOp::WriteZeroes => None,
    }
}

impl Entry {
    pub(super) fn place(&self) -> Place {
        (self.io.offset, self.serial)
    }

    /// Worth doing for its neighbours' sake only.
    pub(super) fn is_optional(&self) -> bool {
        self.io.optional && !self.needed
    }
}

impl Line {
    pub(super) fn new(order: LbaOrder) -> Self {
        Line {
            order,
            lone: None,
            entries: Slab::default(),
            by_class: Default::default(),
            by_place: Default::default(),
            queued: [0; Class::COUNT],
            classes: 0,
            next_serial: 0,
        }
    }

    pub(super) fn queued(&self, class: Class) -> u32 {
        self.queued[class.index()]
    }

    /// One bit for each class that has somebody here.
    pub(super) fn classes(&self) -> u16 {
        self.classes
    }

    pub(super) fn insert(&mut self, io: Waiting) {
        let entry = Entry { io, serial: self.next_serial, needed: false };
        self.next_serial += 1;
        let alone = self.classes == 0;
        self.count(io.class);
        if alone {
            self.lone = Some(entry);
            return;
        }
        if let Some(other) = self.lone.take() {
            self.sort_in(other);
        }
        self.sort_in(entry);
    }

    /// The next of a class, which has somebody waiting: `Err` takes out the only one here, `Ok` points at one of many.
    pub(super) fn next(&mut self, class: Class, last_offset: u64) -> Result<Entry, Entry> {
        if let Some(entry) = self.lone.take() {
            self.discount(entry.io.class);
            return Err(entry);
        }
        let line = &self.by_class[class.index()];
        let (&(slot, offset, _), &first) = line.first_key_value().expect("the class has somebody waiting");
        let ahead = if class.is_fifo() {
            None
        } else {
            match self.order {
                LbaOrder::Offset => line.range((0, last_offset, 0)..).next(),
                LbaOrder::Slot if offset >= last_offset => None,
                LbaOrder::Slot => line.range((slot, last_offset, 0)..=(slot, u64::MAX, u64::MAX)).next(),
            }
        };
        Ok(self.entries[ahead.map_or(first, |(_, &id)| id)])
    }

    /// Its neighbours downwards, nearest first.
    pub(super) fn before(&self, direction: Direction, place: Place) -> impl Iterator<Item = &Entry> {
        self.by_place[direction as usize].range(..place).rev().map(|(_, &id)| &self.entries[id])
    }

    /// Its neighbours upwards, nearest first.
    pub(super) fn after(&self, direction: Direction, place: Place) -> impl Iterator<Item = &Entry> {
        self.by_place[direction as usize].range((Excluded(place), Unbounded)).map(|(_, &id)| &self.entries[id])
    }

    /// From now on the one right after this place is needed, if there is one.
    pub(super) fn need_after(&mut self, direction: Direction, place: Place) {
        let next = self.by_place[direction as usize].range((Excluded(place), Unbounded)).next();
        if let Some(&id) = next.map(|(_, id)| id) {
            self.entries[id].needed = true;
        }
    }

    /// Takes out all from `first` to `last`, in device order.
    pub(super) fn take_run(&mut self, direction: Direction, first: Place, last: Place, out: &mut Vec<Waiting>) {
        loop {
            let next = self.by_place[direction as usize].range((Included(first), Included(last))).next();
            let Some(&id) = next.map(|(_, id)| id) else { return };
            out.push(self.sort_out(id).io);
        }
    }

    /// Takes out one that [`next`](Self::next) pointed at.
    pub(super) fn take(&mut self, entry: &Entry) {
        let id = self.by_class[entry.io.class.index()][&self.key(entry)];
        self.sort_out(id);
    }

    /// Takes out everything, oldest first.
    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.lone.take().into_iter().collect();
        for line in &mut self.by_class {
            all.extend(core::mem::take(line).into_values().map(|id| self.entries.remove(id)));
        }
        self.by_place = Default::default();
        self.queued = [0; Class::COUNT];
        self.classes = 0;
        all.sort_unstable_by_key(|entry| entry.serial);
        all
    }

    /// Sorts everything by another rule.
    pub(super) fn reorder(&mut self, order: LbaOrder) {
        let all = self.take_all();
        self.order = order;
        for entry in &all {
            self.count(entry.io.class);
        }
        match all[..] {
            [entry] => self.lone = Some(entry),
            _ => all.into_iter().for_each(|entry| self.sort_in(entry)),
        }
    }

    /// Gives one the class that `fitting` makes of it; that class, or `None` when it is not here. It keeps its time of
    /// arrival. Looks through all of them.
    pub(super) fn change_class(&mut self, id: IoId, fitting: impl Fn(&Waiting) -> Class) -> Option<Class> {
        if let Some(mut entry) = self.lone.take_if(|entry| entry.io.id == id) {
            self.discount(entry.io.class);
            entry.io.class = fitting(&entry.io);
            self.count(entry.io.class);
            self.lone = Some(entry);
            return Some(entry.io.class);
        }
        let mut all = self.by_class.iter().flat_map(|line| line.values().copied());
        let place = all.find(|&place| self.entries[place].io.id == id)?;
        let mut entry = self.sort_out(place);
        entry.io.class = fitting(&entry.io);
        self.count(entry.io.class);
        self.sort_in(entry);
        Some(entry.io.class)
    }

    fn key(&self, entry: &Entry) -> Key {
        let Waiting { class, arrived, offset, .. } = entry.io;
        match self.order {
            _ if class.is_fifo() => (arrived.0, 0, entry.serial),
            LbaOrder::Offset => (0, offset, entry.serial),
            LbaOrder::Slot => (arrived.0 >> SLOT_SHIFT, offset, entry.serial),
        }
    }

    fn sort_in(&mut self, entry: Entry) {
        let (class, key) = (entry.io.class.index(), self.key(&entry));
        let id = self.entries.insert(entry);
        self.by_class[class].insert(key, id);
        if let Some(direction) = direction(entry.io.op) {
            self.by_place[direction as usize].insert(entry.place(), id);
        }
    }

    fn sort_out(&mut self, id: u32) -> Entry {
        let entry = self.entries.remove(id);
        self.by_class[entry.io.class.index()].remove(&self.key(&entry));
        if let Some(direction) = direction(entry.io.op) {
            self.by_place[direction as usize].remove(&entry.place());
        }
        self.discount(entry.io.class);
        entry
    }

    fn count(&mut self, class: Class) {
        self.queued[class.index()] += 1;
        self.classes |= 1 << class.index();
    }

    fn discount(&mut self, class: Class) {
        self.queued[class.index()] -= 1;
        if self.queued[class.index()] == 0 {
            self.classes &= !(1 << class.index());
        }
    }
}
