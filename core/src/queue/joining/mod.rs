//! braid's own queue in front of a budget: neighbours join whenever they meet, and only what may still grow can wait.
//!
//! ```text
//!   arrive:    joined by place to what waits, at either end; otherwise a request of its own
//!
//!              free     is alone, or cannot grow: leaves as soon as there is depth
//!              run      touches a command in flight of its direction and can grow: leaves when the budget says so
//!
//!   a run becomes free when its neighbour completes or when it is full;
//!   a free request becomes a run when a neighbour leaves before it
//! ```
//!
//! Within `free` and within the runs the oldest goes first, and of the two heads the older one. Nothing is sorted and
//! nothing is walked: each step is a few look-ups in ordered maps.
//!
//! [`Waiting::optional`] has no meaning here: such I/Os are not to be handed in.
//!
//! The law is that of the door: any number of [`arrive`](Joining::arrive), then one
//! [`dispatch`](Joining::dispatch). What came between two dispatches meets before anything of it leaves.

#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::queue::budget::{Budget, Neighbours, Verdict};
use crate::queue::chains::{Chain, ChainId, Chains};
use crate::queue::index::Index;
use crate::queue::merge::{Fit, Rules, Shape};
use crate::queue::waiting::{Leaving, Waiting};
use crate::request::DeviceOp;
use crate::units::Instant;

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// I/Os appended to a waiting request.
    pub merged_back: u64,
    /// I/Os put before a waiting request.
    pub merged_front: u64,
    /// Waiting requests that became one when the gap between them closed.
    pub joined: u64,
    /// Commands that left.
    pub dispatched: u64,
    /// Times the budget said "hold".
    pub held: u64,
}

/// The queue of one device. See the [module](self).
pub struct Joining {
    rules: Rules,
    depth: u32,
    budget: Budget,
    chains: Chains,
    /// Reads, writes; the rest never joins and is in none.
    index: [Index; 2],
    /// By arrival.
    free: BTreeMap<Key, ChainId>,
    runs: BTreeMap<Key, ChainId>,
    /// Edges of the commands in flight.
    flying: Neighbours,
    in_flight: u32,
    held_until: Option<Instant>,
    counters: Counters,
}

/// When the oldest I/O of a request arrived, and the order of creation.
type Key = (Instant, u64);

impl Joining {
    /// An empty queue that lets at most `depth` commands go, at least 1.
    #[must_use]
    pub fn new(rules: Rules, depth: u32, budget: Budget) -> Joining {
        Joining {
            rules,
            depth: depth.max(1),
            budget,
            chains: Chains::default(),
            index: [Index::default(), Index::default()],
            free: BTreeMap::new(),
            runs: BTreeMap::new(),
            flying: Neighbours::default(),
            in_flight: 0,
            held_until: None,
            counters: Counters::default(),
        }
    }

    /// An I/O joins the queue.
    pub fn arrive(&mut self, io: Waiting) {
        let shape = Shape::from(&io);
        let Some(way) = direction(io.op).filter(|_| self.rules.joinable(&shape)) else {
            let id = self.chains.start(io);
            self.free.insert(key(self.chains.get(id)), id);
            return;
        };
        let back = self.index[way].ending_at(io.offset);
        let front = self.index[way].starting_at(io.end());
        match (back, front) {
            (Some(id), _) if self.fits(id, &shape, Fit::Back) => {
                self.counters.merged_back += 1;
                self.change(way, id, |chains| chains.append(id, io));
                if let Some(next) = front {
                    self.close_gap(way, id, next);
                }
            }
            (_, Some(id)) if self.fits(id, &shape, Fit::Front) => {
                self.counters.merged_front += 1;
                // What ends here did not take the I/O, so it does not take the longer request either.
                self.change(way, id, |chains| chains.prepend(id, io));
            }
            _ => {
                let id = self.chains.start(io);
                self.place(way, id);
            }
        }
    }

    /// Hands out what may leave now.
    pub fn dispatch(&mut self, now: Instant, leaving: &mut Leaving) {
        self.held_until = None;
        let mut held = false;
        while self.in_flight < self.depth {
            let run = if held { None } else { self.runs.first_key_value() };
            let (key, id, is_run) = match (self.free.first_key_value(), run) {
                (Some((free, _)), Some((run, &id))) if run < free => (*run, id, true),
                (Some((free, &id)), _) => (*free, id, false),
                (None, Some((run, &id))) => (*run, id, true),
                (None, None) => return,
            };
            match self.budget.may_go(now, self.in_flight, is_run, key.0) {
                Verdict::Go => self.leave(now, id, leaving),
                Verdict::Hold { until } => {
                    self.counters.held += 1;
                    self.held_until = Some(self.held_until.map_or(until, |other| other.min(until)));
                    // All runs are asked the same but for their age, and this was the oldest.
                    held = is_run;
                    if !is_run {
                        return;
                    }
                }
            }
        }
    }

    /// The command `[offset, offset + len)` came back, with success or not; a [`dispatch`](Self::dispatch) should
    /// follow, since what was held is decided anew.
    pub fn complete(&mut self, now: Instant, op: DeviceOp, offset: u64, len: u64) {
        self.in_flight = self.in_flight.checked_sub(1).expect("a command completes once");
        self.flying.remove(op, offset, len);
        self.budget.completed(now, len);
        self.place_neighbours(op, offset, len);
    }

    /// When to call [`dispatch`](Self::dispatch) if no completion comes first.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.held_until
    }

    /// The device is gone: everything that has not left. Commands in flight still have to
    /// [`complete`](Self::complete).
    pub fn take_all(&mut self, out: &mut Vec<Waiting>) {
        for line in [&mut self.free, &mut self.runs] {
            for &id in line.values() {
                self.chains.take(id, out);
            }
            line.clear();
        }
        self.index.iter_mut().for_each(Index::clear);
        self.held_until = None;
    }

    /// Another depth from now on, at least 1.
    pub fn set_depth(&mut self, depth: u32) {
        self.depth = depth.max(1);
    }

    /// Commands that left and have not completed.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chains.len() == 0
    }

    /// The budget as it is.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn fits(&mut self, id: ChainId, io: &Shape, wanted: Fit) -> bool {
        let shape = self.chains.get(id).shape;
        let fit = self.rules.fit(&shape, io);
        if fit == Fit::Full && self.runs.remove(&key(self.chains.get(id))).is_some() {
            // What would have made it grow does not fit: there is nothing to wait for.
            self.free.insert(key(self.chains.get(id)), id);
        }
        fit == wanted
    }

    /// Joins two requests if they fit.
    fn close_gap(&mut self, way: usize, front: ChainId, back: ChainId) {
        if self.rules.fit(&self.chains.get(front).shape, &self.chains.get(back).shape) == Fit::Back {
            self.counters.joined += 1;
            self.unplace(way, back);
            self.change(way, front, |chains| chains.join(front, back));
        }
    }

    fn change(&mut self, way: usize, id: ChainId, how: impl FnOnce(&mut Chains)) {
        self.unplace(way, id);
        how(&mut self.chains);
        self.place(way, id);
    }

    fn place(&mut self, way: usize, id: ChainId) {
        let chain = self.chains.get(id);
        self.index[way].insert(id, chain);
        let Shape { op, offset, len, .. } = chain.shape;
        let grows = !self.rules.is_full(&chain.shape) && self.flying.touches(op, offset, len);
        let line = if grows { &mut self.runs } else { &mut self.free };
        line.insert(key(chain), id);
    }

    fn unplace(&mut self, way: usize, id: ChainId) {
        let chain = self.chains.get(id);
        self.index[way].remove(chain);
        if self.free.remove(&key(chain)).is_none() {
            self.runs.remove(&key(chain));
        }
    }

    /// What is in flight changed at the edges of `[offset, offset + len)`: what waits beside it may be a run now, or
    /// none any more.
    fn place_neighbours(&mut self, op: DeviceOp, offset: u64, len: u64) {
        let Some(way) = direction(op) else { return };
        let Joining { index, chains, free, runs, flying, rules, .. } = self;
        for id in index[way].all_starting_at(offset.saturating_add(len)).chain(index[way].all_ending_at(offset)) {
            let chain = chains.get(id);
            let Shape { op, offset, len, .. } = chain.shape;
            let grows = !rules.is_full(&chain.shape) && flying.touches(op, offset, len);
            let (from, to) = if grows { (&mut *free, &mut *runs) } else { (&mut *runs, &mut *free) };
            if from.remove(&key(chain)).is_some() {
                to.insert(key(chain), id);
            }
        }
    }

    fn leave(&mut self, now: Instant, id: ChainId, leaving: &mut Leaving) {
        let chain = *self.chains.get(id);
        let Shape { op, offset, len, .. } = chain.shape;
        match direction(op) {
            Some(way) if self.rules.joinable(&chain.shape) => self.unplace(way, id),
            _ => {
                self.free.remove(&key(&chain));
            }
        }
        self.chains.leave(id, leaving);
        self.in_flight += 1;
        self.counters.dispatched += 1;
        self.budget.issued(now);
        self.flying.add(op, offset, len);
        self.place_neighbours(op, offset, len);
    }
}

fn key(chain: &Chain) -> Key {
    (chain.arrived, chain.seq)
}

fn direction(op: DeviceOp) -> Option<usize> {
    match op {
        DeviceOp::Read => Some(0),
        DeviceOp::Write { .. } => Some(1),
        DeviceOp::Flush | DeviceOp::Discard | DeviceOp::WriteZeroes => None,
    }
}
