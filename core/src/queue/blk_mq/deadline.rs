//! The scheduler `mq-deadline`: device order in batches, and nobody waits for ever.
//!
//! ```text
//!   a batch: up to 16 requests of one direction, each the next in device order
//!   after it:  reads, unless writes have been passed over twice and wait
//!              from the place of the last request on, or from the oldest one if that has expired
//! ```
//!
//! Source: Linux `block/mq-deadline.c`, without I/O priorities and zones. The place is a position, as since 6.5; before
//! that it was a request, so that one inserted right behind the last was passed over.

use alloc::collections::BTreeMap;

use crate::queue::chains::{Chain, ChainId, Chains};
use crate::queue::index::Index;
use crate::queue::merge::{Fit, Rules, Shape};
use crate::queue::waiting::Waiting;
use crate::request::DeviceOp;
use crate::units::Instant;

/// A read should be sent by then.
const READ_EXPIRE_NS: u64 = 500_000_000;
/// A write likewise; nobody waits for most of them.
const WRITE_EXPIRE_NS: u64 = 5_000_000_000;
/// Requests of one direction sent in a row.
const FIFO_BATCH: u32 = 16;
/// How often reads may pass writes over.
const WRITES_STARVED: u32 = 2;

const READ: usize = 0;
const WRITE: usize = 1;

#[derive(Clone, Default)]
pub(super) struct Deadline {
    lines: [Line; 2],
    /// Sent in a row.
    batch: u32,
    /// How often writes were passed over.
    starved: u32,
    len: usize,
}

/// The requests of one direction.
#[derive(Clone, Default)]
struct Line {
    index: Index,
    /// Oldest first: moment of expiry, then order of creation.
    expiry: BTreeMap<(Instant, u64), ChainId>,
    /// End of the last request of the batch, while it lasts.
    place: Option<u64>,
}

impl Deadline {
    /// Joins `io` to a request that ends where it begins, or else begins where it ends; then a request that it was
    /// appended to with the next one, if that closed the gap between them, which the second result says.
    pub(super) fn merge(&mut self, chains: &mut Chains, rules: &Rules, io: &Waiting) -> (Fit, bool) {
        let shape = Shape::from(io);
        let line = &mut self.lines[direction(io.op)];
        let back = line.index.ending_at(shape.offset);
        if let Some(id) = back {
            let fit = rules.fit(&chains.get(id).shape, &shape);
            match fit {
                Fit::Back => {
                    line.index.remove(chains.get(id));
                    chains.append(id, *io);
                    line.index.insert(id, chains.get(id));
                    let next = line.index.starting_at(shape.end());
                    return (fit, next.is_some_and(|next| self.join(chains, rules, id, next)));
                }
                Fit::Full => return (fit, false),
                Fit::Apart | Fit::Front => {}
            }
        }
        let Some(id) = line.index.starting_at(shape.end()) else { return (Fit::Apart, false) };
        let fit = rules.fit(&chains.get(id).shape, &shape);
        if fit != Fit::Front {
            return (fit, false);
        }
        line.index.remove(chains.get(id));
        chains.prepend(id, *io);
        line.index.insert(id, chains.get(id));
        // What ends where the I/O begins did not take it, so it does not take the longer request either.
        (fit, false)
    }

    /// Takes a request in. It may be the missing piece behind another one, and that one of yet another; says how many
    /// requests it swallowed.
    pub(super) fn insert(&mut self, now: Instant, chains: &mut Chains, rules: &Rules, mut id: ChainId) -> u64 {
        let way = direction(chains.get(id).shape.op);
        let mut joined = 0;
        let patience = if way == READ { READ_EXPIRE_NS } else { WRITE_EXPIRE_NS };
        self.add(now + patience, chains, id, way);
        while let Some(before) = self.lines[way].index.ending_at(chains.get(id).shape.offset) {
            if !self.join(chains, rules, before, id) {
                break;
            }
            (id, joined) = (before, joined + 1);
        }
        joined
    }

    /// The next request to send.
    pub(super) fn pop(&mut self, now: Instant, chains: &Chains) -> Option<ChainId> {
        let continued = self.next_in_batch(WRITE).or_else(|| self.next_in_batch(READ));
        let (way, id) = match continued {
            Some(next) if self.batch < FIFO_BATCH => next,
            _ => {
                let way = self.choose_direction()?;
                self.batch = 0;
                (way, self.first_of_batch(now, way)?)
            }
        };
        self.batch += 1;
        self.lines[READ].place = None;
        self.lines[WRITE].place = None;
        let chain = chains.get(id);
        self.remove(chain, way);
        self.lines[way].place = Some(chain.shape.end());
        Some(id)
    }

    #[cfg(test)]
    pub(super) fn ids(&self) -> impl Iterator<Item = &ChainId> {
        self.lines.iter().flat_map(|line| line.expiry.values())
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn drain(&mut self, mut take: impl FnMut(ChainId)) {
        for line in &mut self.lines {
            line.expiry.values().copied().for_each(&mut take);
            line.expiry.clear();
            line.index.clear();
            line.place = None;
        }
        self.len = 0;
    }

    fn next_in_batch(&self, way: usize) -> Option<(usize, ChainId)> {
        let line = &self.lines[way];
        Some((way, line.index.first_from(line.place?)?))
    }

    fn choose_direction(&mut self) -> Option<usize> {
        let waits = |way: usize| !self.lines[way].expiry.is_empty();
        let (reads, writes) = (waits(READ), waits(WRITE));
        if reads && writes {
            let passed_over = self.starved;
            self.starved += 1;
            if passed_over < WRITES_STARVED {
                return Some(READ);
            }
        } else if reads {
            return Some(READ);
        }
        if !writes {
            return None;
        }
        self.starved = 0;
        Some(WRITE)
    }

    fn first_of_batch(&self, now: Instant, way: usize) -> Option<ChainId> {
        let line = &self.lines[way];
        let (&(expires, _), &oldest) = line.expiry.first_key_value()?;
        match self.next_in_batch(way) {
            Some((_, next)) if expires > now => Some(next),
            _ => Some(oldest),
        }
    }

    /// Makes one request of two if they fit.
    fn join(&mut self, chains: &mut Chains, rules: &Rules, front: ChainId, back: ChainId) -> bool {
        let (a, b) = (*chains.get(front), *chains.get(back));
        if rules.fit(&a.shape, &b.shape) != Fit::Back {
            return false;
        }
        let way = direction(a.shape.op);
        // Of two deadlines the earlier one holds.
        self.remove(&a, way);
        self.remove(&b, way);
        chains.join(front, back);
        self.add(a.expires.min(b.expires), chains, front, way);
        true
    }

    fn add(&mut self, expires: Instant, chains: &mut Chains, id: ChainId, way: usize) {
        chains.set_expires(id, expires);
        let (line, chain) = (&mut self.lines[way], chains.get(id));
        line.index.insert(id, chain);
        line.expiry.insert((expires, chain.seq), id);
        self.len += 1;
    }

    fn remove(&mut self, chain: &Chain, way: usize) {
        let line = &mut self.lines[way];
        line.index.remove(chain);
        line.expiry.remove(&(chain.expires, chain.seq));
        self.len -= 1;
    }
}

/// Whatever changes the device counts as a write.
fn direction(op: DeviceOp) -> usize {
    match op {
        DeviceOp::Read => READ,
        DeviceOp::Write { .. } | DeviceOp::Flush | DeviceOp::Discard | DeviceOp::WriteZeroes => WRITE,
    }
}
