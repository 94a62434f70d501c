//! Requests that I/Os join while they wait.
//!
//! A request is a chain of I/Os in device order. Appending, prepending and joining two chains are a change of a link,
//! and the places of those that left are used again: once the tables have grown, nothing is allocated.

use super::merge::Shape;
use super::waiting::{Command, Leaving, Waiting};
use crate::slab::Slab;
use crate::units::Instant;

/// Its place in [`Chains`].
pub(super) type ChainId = u32;

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) shape: Shape,
    /// Order of creation; makes keys unique.
    pub(super) seq: u64,
    /// When the oldest of its I/Os joined the queue.
    pub(super) arrived: Instant,
    /// When a scheduler with deadlines wants it sent.
    pub(super) expires: Instant,
    first: u32,
    last: u32,
}

#[derive(Clone)]
struct Link {
    io: Waiting,
    next: Option<u32>,
}

/// All requests of a queue that have not left.
#[derive(Clone, Default)]
pub(super) struct Chains {
    chains: Slab<Chain>,
    links: Slab<Link>,
    created: u64,
}

impl Chains {
    /// A request of one I/O.
    pub(super) fn start(&mut self, io: Waiting) -> ChainId {
        let seq = self.number();
        self.start_as(io, seq)
    }

    /// The next number in the order of creation.
    pub(super) fn number(&mut self) -> u64 {
        self.created += 1;
        self.created
    }

    /// A request of one I/O, with a number it was given before.
    pub(super) fn start_as(&mut self, io: Waiting, seq: u64) -> ChainId {
        let link = self.links.insert(Link { io, next: None });
        let (shape, arrived) = (Shape::from(&io), io.arrived);
        self.chains.insert(Chain { shape, seq, arrived, expires: Instant(u64::MAX), first: link, last: link })
    }

    /// `io` follows the request.
    pub(super) fn append(&mut self, id: ChainId, io: Waiting) {
        let link = self.links.insert(Link { io, next: None });
        let chain = &mut self.chains[id];
        self.links[chain.last].next = Some(link);
        chain.last = link;
        chain.shape.append(&Shape::from(&io));
        chain.arrived = chain.arrived.min(io.arrived);
    }

    /// `io` precedes the request.
    pub(super) fn prepend(&mut self, id: ChainId, io: Waiting) {
        let chain = &mut self.chains[id];
        chain.first = self.links.insert(Link { io, next: Some(chain.first) });
        chain.shape.prepend(&Shape::from(&io));
        chain.arrived = chain.arrived.min(io.arrived);
    }

    /// `back` follows `front`, with or without a gap, and is no request of its own any more.
    pub(super) fn join(&mut self, front: ChainId, back: ChainId) {
        let back = self.chains.remove(back);
        let chain = &mut self.chains[front];
        self.links[chain.last].next = Some(back.first);
        chain.last = back.last;
        chain.shape.append_over_gap(&back.shape);
        chain.arrived = chain.arrived.min(back.arrived);
    }

    /// The request becomes a command.
    pub(super) fn leave(&mut self, id: ChainId, leaving: &mut Leaving) {
        let begin = leaving.members.len();
        let Chain { shape, .. } = self.take(id, &mut leaving.members);
        let members = begin..leaving.members.len();
        leaving.commands.push(Command { class: shape.class, offset: shape.offset, len: shape.len, members });
    }

    /// The request is given up, its I/Os are appended to `out`.
    pub(super) fn take(&mut self, id: ChainId, out: &mut alloc::vec::Vec<Waiting>) -> Chain {
        let chain = self.chains.remove(id);
        let mut next = Some(chain.first);
        while let Some(link) = next {
            let link = self.links.remove(link);
            out.push(link.io);
            next = link.next;
        }
        chain
    }

    pub(super) fn set_expires(&mut self, id: ChainId, expires: Instant) {
        self.chains[id].expires = expires;
    }

    pub(super) fn get(&self, id: ChainId) -> &Chain {
        &self.chains[id]
    }

    /// How many requests there are.
    pub(super) fn len(&self) -> usize {
        self.chains.len()
    }
}
