//! The list of requests where there is no scheduler.

use alloc::collections::VecDeque;

use crate::queue::chains::{ChainId, Chains};
use crate::queue::merge::{Fit, Rules, Shape};
use crate::queue::waiting::Waiting;

/// How many requests an I/O is compared with, from the newest on.
const LOOK_BACK: usize = 8;

/// In the order of insertion.
#[derive(Clone, Default)]
pub(super) struct Software {
    requests: VecDeque<ChainId>,
}

impl Software {
    /// Joins `io` to one of the newest requests, if it fits. A neighbour that would grow over a limit ends the search.
    pub(super) fn merge(&mut self, chains: &mut Chains, rules: &Rules, io: &Waiting) -> Fit {
        let shape = Shape::from(io);
        for &id in self.requests.iter().rev().take(LOOK_BACK) {
            let fit = rules.fit(&chains.get(id).shape, &shape);
            match fit {
                Fit::Apart => continue,
                Fit::Back => chains.append(id, *io),
                Fit::Front => chains.prepend(id, *io),
                Fit::Full => {}
            }
            return fit;
        }
        Fit::Apart
    }

    pub(super) fn push(&mut self, id: ChainId) {
        self.requests.push_back(id);
    }

    pub(super) fn pop(&mut self) -> Option<ChainId> {
        self.requests.pop_front()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = ChainId> {
        self.requests.drain(..)
    }

    #[cfg(test)]
    pub(super) fn ids(&self) -> impl Iterator<Item = &ChainId> {
        self.requests.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }
}
