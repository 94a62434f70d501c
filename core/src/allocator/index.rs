//! The order of candidates, kept from one chunk to the next.
//!
//! [`plan`](super::plan) looks at every member and sorts; a pool that grows chunk by chunk changes a few members each
//! time. Here the order stays, and a chunk costs what its own columns cost.
//!
//! ```text
//!   begin    ranks, limits and the order of all members      once for these rules and members
//!   changed  members whose space was taken or given back     looked at again before the next answer
//!   plan     the first candidates of the order               as `plan` would answer, by the same steps
//! ```
//!
//! Whoever changes a member in any other way (its size, tier, state) begins a new one. The mode that forgets ranks looks at
//! every candidate all the same.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::select::{Candidate, Job, Shortest};
use super::{Kind, Member, Plan, Rules};
use crate::profile::Profile;
use crate::units::DeviceId;

/// See the module.
#[derive(Clone)]
pub(crate) struct Index {
    rules: Rules,
    profile: Profile,
    job: Job,
    order: BTreeSet<Candidate>,
    /// What the order holds of each member, by id.
    known: Vec<Option<Candidate>>,
    changed: Vec<DeviceId>,
}

impl Index {
    /// Members in any order.
    pub(crate) fn new(rules: &Rules, profile: Profile, kind: Kind, members: &[Member<'_>]) -> Index {
        let job = Job::new(rules, profile, kind, members);
        let (order, known, changed) = (BTreeSet::new(), Vec::new(), Vec::new());
        let mut index = Index { rules: *rules, profile, job, order, known, changed };
        members.iter().for_each(|member| index.put(member.id, Some(member)));
        index
    }

    /// Whether it answers for these.
    pub(crate) fn is_for(&self, rules: &Rules, profile: Profile) -> bool {
        self.rules == *rules && self.profile == profile
    }

    /// Space of this member was taken or given back.
    pub(crate) fn change(&mut self, device: DeviceId) {
        self.changed.push(device);
    }

    /// Members that changed since they were looked at.
    pub(crate) fn take_changed(&mut self) -> Vec<DeviceId> {
        let mut changed = core::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// What a member is like now; nothing if it may not be used.
    pub(crate) fn put(&mut self, device: DeviceId, member: Option<&Member<'_>>) {
        let next = member.and_then(|member| self.job.candidate(0, member, self.job.sizes.least));
        if self.known.len() <= device.index() {
            self.known.resize(device.index() + 1, None);
        }
        if let Some(before) = core::mem::replace(&mut self.known[device.index()], next) {
            self.order.remove(&before);
        }
        self.order.extend(next);
    }

    /// The next chunk, if there is room for one.
    pub(crate) fn plan(&self) -> Option<Plan> {
        let chosen = |rung| self.job.accept(self.job.select(self.with_holes(rung)));
        let chosen = self.job.rungs().find_map(chosen)?;
        Some(self.job.lay_out(&chosen, Shortest::OfAll))
    }

    /// Candidates in order whose hole is no shorter than this for each column. Within a rank holes only get shorter, so
    /// the first that is too short ends the rank.
    fn with_holes(&self, rung: u64) -> impl Iterator<Item = Candidate> {
        let least = rung.saturating_mul(self.job.columns_per_device());
        let mut order = self.order.range(Candidate::first_of(0)..);
        core::iter::from_fn(move || {
            loop {
                let next = *order.next()?;
                if next.max_avail.0 >= least {
                    return Some(next);
                }
                order = self.order.range(Candidate::first_of(next.rank.checked_add(1)?)..);
            }
        })
    }
}
