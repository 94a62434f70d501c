//! What waits of one class: joined by place, and in two lines.
//!
//! ```text
//!   arrive:    joined by place to what waits, at either end; otherwise a request of its own
//!
//!              free     is alone, or cannot grow: leaves as soon as the class may
//!              run      touches a command of its class and direction in flight, and can grow: asks the budget
//!
//!   a run becomes free when its neighbour completes or when it is full;
//!   a free request becomes a run when a neighbour leaves before it;
//!   a read that leaves takes along the reads near it, free ones and runs (gaps)
//! ```
//!
//! Nothing is walked, and only where gaps are bridged reads in the tables are kept in order of place: each step is a few
//! look-ups. An I/O that touches nothing that waits or is in
//! flight is [loose], in no table, until a neighbour comes: that is how a random load costs next to nothing. Classes
//! that go by place have room for one of those, since theirs is a line by arrival.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::edges::{Edges, direction};
use super::gaps::ByPlace;
use super::loose::{Loose, Single};
use super::{Counters, How};
use crate::queue::budget::Neighbours;
use crate::queue::chains::{Chain, ChainId, Chains};
use crate::queue::limits::LbaOrder;
use crate::queue::merge::{Fit, Shape};
use crate::queue::waiting::{Leaving, Waiting};
use crate::request::DeviceOp;
use crate::units::Instant;

/// Arrival slots are 2^29 ns.
const SLOT_SHIFT: u32 = 29;

/// Time or slot of arrival, offset, order of creation.
type Key = (u64, u64, u64);

#[derive(Clone)]
pub(super) struct Lane {
    /// By arrival, not by place.
    fifo: bool,
    /// I/Os that touch nothing here or, while the budget looks at that, in flight; and reads that are near none.
    loose: Loose,
    pub(super) chains: Chains,
    /// Where requests begin and end, reads and writes; what never joins is in none.
    index: [Edges; 2],
    pub(super) by_place: ByPlace,
    /// In the order of the class.
    free: BTreeMap<Key, ChainId>,
    /// By arrival in every class: what is held is held for a time.
    runs: BTreeMap<Key, ChainId>,
    /// Edges of this class's commands in flight, while the budget looks at them.
    flying: Neighbours,
}

impl Lane {
    pub(super) fn new(how: &How, fifo: bool) -> Lane {
        Lane {
            fifo,
            loose: Loose::new(how.read_gap),
            chains: Chains::default(),
            index: Default::default(),
            by_place: ByPlace::default(),
            free: BTreeMap::new(),
            runs: BTreeMap::new(),
            flying: Neighbours::default(),
        }
    }

    // ---- what happens ----------------------------------------------------------------------------------------------

    /// An I/O joins the lane.
    #[inline]
    pub(super) fn arrive(&mut self, how: &How, io: &Waiting, counters: &mut Counters) {
        self.call_in(how, io.offset, io.end());
        if how.read_gap > 0 && self.loose.may_have_near(io.offset, io.end()) {
            self.call_near_in(how, io);
        }
        if !self.fifo {
            self.call_all_in(how);
        }
        let single = Single { io: *io, seq: self.chains.number() };
        if self.chains.len() == 0 && self.may_be_loose(how, io) {
            self.loose.push(single);
        } else {
            self.sort_in(how, single, counters);
        }
    }

    /// Its place among those in the tables, or in the line.
    #[inline(never)]
    fn sort_in(&mut self, how: &How, single: Single, counters: &mut Counters) {
        match self.beside(how, &single.io) {
            (None, None) if self.may_be_loose(how, &single.io) => self.loose.push(single),
            (None, None) => self.start(how, single),
            (back, front) => self.join(how, single, back, front, counters),
        }
    }

    /// The next request leaves. There is one; of runs only if `runs_go`.
    #[inline]
    pub(super) fn leave(
        &mut self,
        how: &How,
        last_offset: u64,
        runs_go: bool,
        leaving: &mut Leaving,
        counters: &mut Counters,
    ) {
        let chain = if self.chains.len() == 0 { None } else { self.next(how, last_offset, runs_go) };
        let older = |id| self.loose.first().is_none_or(|single| by_age(self.chains.get(id)) < single.age());
        let (op, offset, len);
        if let Some(id) = chain.filter(|&id| older(id)) {
            self.unplace(how, id);
            let id = if how.read_gap > 0 { self.bridge(how, id, counters) } else { id };
            let shape = self.chains.get(id).shape;
            (op, offset, len) = (shape.op, shape.offset, shape.len);
            self.chains.leave(id, leaving);
        } else {
            let Single { io, .. } = self.loose.pop().expect("the lane has somebody who may go");
            (op, offset, len) = (io.op, io.offset, io.len);
            leaving.push_single(io);
        }
        if how.tracks {
            self.flying.add(op, offset, len);
            self.call_in(how, offset, offset.saturating_add(len));
            self.place_neighbours(how, op, offset, len);
        }
    }

    /// The next one leaves, if nothing waits that is not loose and the budget looks at no runs.
    pub(super) fn leave_loose(&mut self) -> Option<Waiting> {
        if self.chains.len() > 0 { None } else { self.loose.pop().map(|single| single.io) }
    }

    /// A command of this class came back.
    pub(super) fn completed(&mut self, how: &How, op: DeviceOp, offset: u64, len: u64) {
        if how.tracks {
            self.flying.remove(op, offset, len);
            self.place_neighbours(how, op, offset, len);
        }
    }

    /// Everything that waits, in no order.
    pub(super) fn take_all(&mut self, out: &mut Vec<Waiting>) {
        while let Some(Single { io, .. }) = self.loose.pop() {
            out.push(io);
        }
        for line in [&mut self.free, &mut self.runs] {
            for &id in line.values() {
                self.chains.take(id, out);
            }
            line.clear();
        }
        self.clear_tables();
    }

    /// Other rules from now on. What is joined stays joined.
    pub(super) fn sort_anew(&mut self, how: &How) {
        if !how.tracks {
            self.flying.clear();
        }
        // Who was near nobody may be near somebody now.
        if self.loose.gap() != how.read_gap {
            self.call_all_in(how);
            self.loose = Loose::new(how.read_gap);
        }
        self.clear_tables();
        let (free, runs) = (core::mem::take(&mut self.free), core::mem::take(&mut self.runs));
        for id in free.into_values().chain(runs.into_values()) {
            self.place(how, id);
        }
    }

    // ---- what there is ---------------------------------------------------------------------------------------------

    /// Somebody waits who is no run.
    pub(super) fn has_free(&self) -> bool {
        !self.loose.is_empty() || !self.free.is_empty()
    }

    /// When the oldest run arrived, if there is one.
    pub(super) fn oldest_run(&self) -> Option<Instant> {
        self.runs.first_key_value().map(|(key, _)| Instant(key.0))
    }

    /// Runs, as chains.
    #[cfg(test)]
    pub(super) fn runs(&self) -> impl Iterator<Item = Shape> {
        self.runs.values().map(|&id| self.chains.get(id).shape)
    }

    /// Nothing is known to be in flight.
    #[cfg(test)]
    pub(super) fn knows_nothing_in_flight(&self) -> bool {
        self.flying.is_empty()
    }

    // ---- how it is done --------------------------------------------------------------------------------------------

    /// Of the next free request and the oldest run the older one.
    fn next(&self, how: &How, last_offset: u64, runs_go: bool) -> Option<ChainId> {
        let free = self.next_free(how, last_offset);
        let run = self.runs.first_key_value().map(|(_, &id)| id).filter(|_| runs_go);
        let (Some(a), Some(b)) = (free, run) else { return free.or(run) };
        Some(if by_age(self.chains.get(b)) < by_age(self.chains.get(a)) { b } else { a })
    }

    /// Of a class by place the first at or after the end of the last command, among those of the oldest slot; the rule
    /// of the [`zfs`](crate::queue::zfs) queue.
    fn next_free(&self, how: &How, last_offset: u64) -> Option<ChainId> {
        let (&(slot, offset, _), &first) = self.free.first_key_value()?;
        let ahead = match how.order {
            _ if self.fifo || offset >= last_offset => None,
            LbaOrder::Offset => self.free.range((0, last_offset, 0)..).next(),
            LbaOrder::Slot => self.free.range((slot, last_offset, 0)..=(slot, u64::MAX, u64::MAX)).next(),
        };
        Some(ahead.map_or(first, |(_, &id)| id))
    }

    /// Who touches `[offset, end)` is loose no more.
    #[inline]
    fn call_in(&mut self, how: &How, offset: u64, end: u64) {
        while let Some(single) = self.loose.remove_beside(offset, end) {
            self.start(how, single);
        }
    }

    /// The same for who is near a read.
    #[inline(never)]
    fn call_near_in(&mut self, how: &How, io: &Waiting) {
        while how.is_bridged(&Shape::from(io))
            && let Some(single) = self.loose.remove_near(io.offset, io.end())
        {
            self.start(how, single);
        }
    }

    fn call_all_in(&mut self, how: &How) {
        while let Some(single) = self.loose.pop() {
            self.start(how, single);
        }
    }

    #[inline]
    fn may_be_loose(&self, how: &How, io: &Waiting) -> bool {
        let touches = how.tracks && self.flying.touches(io.op, io.offset, io.len);
        let is_near = || !self.by_place.is_empty() && self.has_near(how, io);
        !touches && self.loose.takes(io) && (self.fifo || self.chains.len() == 0) && !is_near()
    }

    /// The requests that an I/O could be appended to or put before.
    fn beside(&self, how: &How, io: &Waiting) -> (Option<ChainId>, Option<ChainId>) {
        if self.chains.len() == 0 || !how.rules.joinable(&Shape::from(io)) {
            return (None, None);
        }
        let Some(way) = direction(io.op) else { return (None, None) };
        // Several may begin or end at one place: the youngest.
        let youngest = |&id: &ChainId| self.chains.get(id).seq;
        let Edges { starts, ends } = &self.index[way];
        (ends.at(io.offset).max_by_key(youngest), starts.at(io.end()).max_by_key(youngest))
    }

    fn join(
        &mut self,
        how: &How,
        single: Single,
        back: Option<ChainId>,
        front: Option<ChainId>,
        counters: &mut Counters,
    ) {
        let Single { io, .. } = single;
        let shape = Shape::from(&io);
        match (back, front) {
            (Some(id), _) if self.fits(how, id, &shape, Fit::Back) => {
                counters.merged_back += 1;
                self.change(how, id, |chains| chains.append(id, io));
                if let Some(next) = front {
                    self.close_gap(how, id, next, counters);
                }
            }
            (_, Some(id)) if self.fits(how, id, &shape, Fit::Front) => {
                counters.merged_front += 1;
                // What ends here did not take the I/O, so it does not take the longer request either.
                self.change(how, id, |chains| chains.prepend(id, io));
            }
            _ => self.start(how, single),
        }
    }

    fn fits(&mut self, how: &How, id: ChainId, io: &Shape, wanted: Fit) -> bool {
        let chain = self.chains.get(id);
        let fit = how.rules.fit(&chain.shape, io);
        if fit == Fit::Full && self.runs.remove(&by_age(chain)).is_some() {
            // What would have made it grow does not fit: there is nothing to wait for.
            self.free.insert(self.key(how, chain), id);
        }
        fit == wanted
    }

    /// Joins two requests if they fit.
    fn close_gap(&mut self, how: &How, front: ChainId, back: ChainId, counters: &mut Counters) {
        if how.rules.fit(&self.chains.get(front).shape, &self.chains.get(back).shape) == Fit::Back {
            counters.joined += 1;
            self.unplace(how, back);
            self.change(how, front, |chains| chains.join(front, back));
        }
    }

    fn start(&mut self, how: &How, Single { io, seq }: Single) {
        let id = self.chains.start_as(io, seq);
        self.place(how, id);
    }

    /// A request that is in the tables becomes longer; most of the time its place in line stays what it was.
    fn change(&mut self, how: &How, id: ChainId, change: impl FnOnce(&mut Chains)) {
        let before = *self.chains.get(id);
        change(&mut self.chains);
        let after = *self.chains.get(id);
        if let Some(way) = direction(after.shape.op) {
            self.index[way].change(id, &before.shape, &after.shape);
        }
        if before.shape.offset != after.shape.offset && how.is_bridged(&after.shape) {
            self.by_place.remove(&before);
            self.by_place.insert(id, &after);
        }
        if how.tracks || self.key(how, &before) != self.key(how, &after) {
            self.step_out(how, &before);
            self.line_up(how, id, &after);
        }
    }

    fn place(&mut self, how: &How, id: ChainId) {
        let chain = *self.chains.get(id);
        if let Some(way) = direction(chain.shape.op).filter(|_| how.rules.joinable(&chain.shape)) {
            self.index[way].insert(id, &chain.shape);
        }
        if how.is_bridged(&chain.shape) {
            self.by_place.insert(id, &chain);
        }
        self.line_up(how, id, &chain);
    }

    pub(super) fn unplace(&mut self, how: &How, id: ChainId) {
        let chain = *self.chains.get(id);
        if let Some(way) = direction(chain.shape.op).filter(|_| how.rules.joinable(&chain.shape)) {
            self.index[way].remove(id, &chain.shape);
        }
        if how.is_bridged(&chain.shape) {
            self.by_place.remove(&chain);
        }
        self.step_out(how, &chain);
    }

    fn line_up(&mut self, how: &How, id: ChainId, chain: &Chain) {
        if how.grows(&self.flying, &chain.shape) {
            self.runs.insert(by_age(chain), id);
        } else {
            self.free.insert(self.key(how, chain), id);
        }
    }

    fn step_out(&mut self, how: &How, chain: &Chain) {
        if self.free.remove(&self.key(how, chain)).is_none() {
            self.runs.remove(&by_age(chain));
        }
    }

    /// What is in flight changed at the edges of `[offset, offset + len)`: what waits beside it may be a run now, or
    /// none any more.
    fn place_neighbours(&mut self, how: &How, op: DeviceOp, offset: u64, len: u64) {
        let Some(way) = direction(op).filter(|_| self.chains.len() > 0) else { return };
        let Lane { fifo, chains, index, free, runs, flying, .. } = self;
        let Edges { starts, ends } = &index[way];
        for id in starts.at(offset.saturating_add(len)).chain(ends.at(offset)) {
            let chain = chains.get(id);
            let (grows, key, age) = (how.grows(flying, &chain.shape), how.key(*fifo, chain), by_age(chain));
            if grows && free.remove(&key).is_some() {
                runs.insert(age, id);
            } else if !grows && runs.remove(&age).is_some() {
                free.insert(key, id);
            }
        }
    }

    fn key(&self, how: &How, chain: &Chain) -> Key {
        how.key(self.fifo, chain)
    }

    fn clear_tables(&mut self) {
        self.index.iter_mut().for_each(Edges::clear);
        self.by_place.clear();
    }
}

impl How {
    /// It continues a command in flight, and more may join it.
    fn grows(&self, flying: &Neighbours, shape: &Shape) -> bool {
        self.tracks
            && self.rules.joinable(shape)
            && !self.rules.is_full(shape)
            && flying.touches(shape.op, shape.offset, shape.len)
    }

    /// Reads around it may leave with it.
    pub(super) fn is_bridged(&self, shape: &Shape) -> bool {
        self.read_gap > 0 && shape.op == DeviceOp::Read && self.rules.joinable(shape)
    }

    /// Place in the line of those that are free.
    fn key(&self, fifo: bool, chain: &Chain) -> Key {
        match self.order {
            _ if fifo => by_age(chain),
            LbaOrder::Offset => (0, chain.shape.offset, chain.seq),
            LbaOrder::Slot => (chain.arrived.0 >> SLOT_SHIFT, chain.shape.offset, chain.seq),
        }
    }
}

/// When the oldest I/O of a request arrived, and the order of creation.
fn by_age(chain: &Chain) -> Key {
    (chain.arrived.0, 0, chain.seq)
}
