//! What a submitter holds back until its batch ends.

use alloc::collections::VecDeque;

use crate::queue::chains::{ChainId, Chains};
use crate::queue::merge::{Fit, Rules, Shape};
use crate::queue::waiting::Waiting;
use crate::units::KIB;

/// A plug with so many requests is full.
pub const PLUG_REQUESTS: usize = 32;

/// The same, in kernels before 5.16.
pub const PLUG_REQUESTS_BEFORE_5_16: usize = 16;

/// A last request of so many bytes makes a plug full too.
const PLUG_LAST_BYTES: u64 = 128 * KIB;

/// In the order of submission.
#[derive(Clone, Default)]
pub(super) struct Plug {
    requests: VecDeque<ChainId>,
}

impl Plug {
    /// Joins `io` to the most recent request, if it fits. This never empties the plug.
    pub(super) fn merge(&mut self, chains: &mut Chains, rules: &Rules, io: &Waiting) -> bool {
        let Some(&last) = self.requests.back() else { return false };
        match rules.fit(&chains.get(last).shape, &Shape::from(io)) {
            Fit::Back => chains.append(last, *io),
            Fit::Front => chains.prepend(last, *io),
            Fit::Apart | Fit::Full => return false,
        }
        true
    }

    /// Whether it has to go before another request is added.
    pub(super) fn is_full(&self, chains: &Chains, requests: usize) -> bool {
        let large = |&last: &ChainId| chains.get(last).shape.len >= PLUG_LAST_BYTES;
        self.requests.len() >= requests || self.requests.back().is_some_and(large)
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

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}
