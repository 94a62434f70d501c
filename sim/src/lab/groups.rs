//! Transaction groups that a scrub is a part of, as OpenZFS has them.
//!
//! ```text
//!   every period   the scrub rests - round - round - ... - the scrub goes on
//!   a round        writes at places anywhere, together; when all are there a flush; when that is there the next
//! ```
//!
//! A group is written in passes, each of which waits for the one before, and ends with labels between two flushes. The scrub
//! has no say meanwhile. How long that takes is what the disks make of it: nothing here says so.
//!
//! Left out: what is written grows with what was changed; here every group is alike.

use std::collections::VecDeque;

use braid_core::request::Content;
use braid_core::units::BLOCK;

use super::job::Direction;
use super::places::Ask;
use super::script::Step;
use crate::rng::Rng;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// From one to the next, in ns.
    pub period_ns: u64,
    /// Rounds of each.
    pub rounds: u64,
    /// Writes of each round, of a block.
    pub writes: u64,
    /// Bytes from the volume's beginning on where they may be.
    pub area: u64,
}

/// Groups that come.
#[derive(Debug)]
pub(super) struct GroupsScript {
    groups: Groups,
    written: u64,
    rng: Rng,
    steps: VecDeque<Step>,
}

impl GroupsScript {
    pub(super) fn new(groups: &Groups, seed: u64) -> GroupsScript {
        GroupsScript { groups: groups.clone(), written: 0, rng: Rng::new(seed), steps: VecDeque::new() }
    }

    /// There is always one more.
    pub(super) fn next(&mut self) -> Option<Step> {
        if self.steps.is_empty() {
            self.group();
        }
        self.steps.pop_front()
    }

    fn group(&mut self) {
        self.written += 1;
        self.steps.extend([Step::Until(self.written * self.groups.period_ns), Step::Scrub { goes_on: false }]);
        for _ in 0..self.groups.rounds {
            let writes = (0..self.groups.writes).map(|_| {
                let offset = self.rng.below(self.groups.area / BLOCK) * BLOCK;
                Ask { direction: Direction::Write, offset, len: BLOCK, fua: false, content: Content::Unsaid }
            });
            let flush = Ask { direction: Direction::Sync, offset: 0, len: 0, fua: false, content: Content::Unsaid };
            self.steps.extend([Step::Ask(writes.collect()), Step::Wait, Step::Ask(vec![flush]), Step::Wait]);
        }
        self.steps.push_back(Step::Scrub { goes_on: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scrub_rests_while_rounds_follow_each_other() {
        let groups = Groups { period_ns: 7, rounds: 2, writes: 3, area: 1 << 20 };
        let mut script = GroupsScript::new(&groups, 1);
        for group in 1..=3 {
            assert_eq!(script.next(), Some(Step::Until(group * 7)));
            assert_eq!(script.next(), Some(Step::Scrub { goes_on: false }));
            for _ in 0..2 {
                let Some(Step::Ask(writes)) = script.next() else { panic!("writes") };
                assert!(
                    writes.len() == 3 && writes.iter().all(|w| w.direction == Direction::Write && w.offset < 1 << 20)
                );
                assert_eq!(script.next(), Some(Step::Wait));
                let Some(Step::Ask(flush)) = script.next() else { panic!("a flush") };
                assert_eq!((flush.len(), flush[0].direction), (1, Direction::Sync));
                assert_eq!(script.next(), Some(Step::Wait));
            }
            assert_eq!(script.next(), Some(Step::Scrub { goes_on: true }));
        }
    }
}
