//! How much could still be written: the planner run to the end on a copy of the free space.
//!
//! Adding up free bytes over-promises as soon as classes are separated (two disks and three SSDs do not hold what
//! their sum says), so the question is answered by allocating. Up to [`UPDATES`] columns, a pool of tens of TiB, the
//! sequence is exactly that of [`plan`](super::plan). In larger pools all size limits grow by one factor that keeps
//! the number of steps. Coarse steps usually leave over a little that fine ones would use; where they cut holes
//! more luckily instead, a margin of one coarse column for each hole makes up for it (tested on random pools, not
//! proven). The answer is too low when [`VISITS`] ends the run early, which takes thousands of members under
//! `allocation_hint`.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::select::{Candidate, Job, Shortest};
use super::{Hole, Kind, Member, Rules, holes};
use crate::profile::Profile;

/// Columns taken before steps get coarser: 16 TiB of columns of 1 GiB.
const UPDATES: u64 = 16 << 10;
/// And for each member: a mirror of many devices needs several steps on each to come out even.
const UPDATES_PER_MEMBER: u64 = 64;
/// Candidates looked at before the run ends with what it has; about a second.
const VISITS: usize = 8 << 20;

/// Bytes of volume data that future chunks of this profile and kind could hold, if nothing else were allocated.
pub fn writable(rules: &Rules, profile: Profile, kind: Kind, members: &[Member<'_>]) -> u64 {
    let job = Job::new(rules, profile, kind, members);
    let times = coarseness(&job, members);
    run_coarsely(job, members, times)
}

/// Runs with all size limits so many times larger and takes off the margin; factor 1 is exact and needs none.
fn run_coarsely(mut job: Job, members: &[Member<'_>], times: u64) -> u64 {
    job.sizes = job.sizes.scaled(times);
    let margin = if times > 1 { margin(&job, members) } else { 0 };
    run(job, members).saturating_sub(margin)
}

/// Allocates to the end.
fn run(job: Job, members: &[Member<'_>]) -> u64 {
    let mut pool: Vec<Free> =
        members.iter().map(|m| Free { allocated: m.allocated, holes: m.holes.to_vec() }).collect();
    let (mut sum, mut visits) = (0u64, 0);
    // Space only shrinks, so once a rung gives nothing it stays so: rungs need not be interleaved.
    for rung in job.rungs() {
        let look = |index: usize, free: &Free| {
            let member = Member { allocated: free.allocated, holes: &free.holes, ..members[index] };
            job.candidate(index, &member, rung)
        };
        let mut queue: BTreeSet<Candidate> = pool.iter().enumerate().filter_map(|(i, free)| look(i, free)).collect();
        while let Some(chosen) = job.accept(job.select(queue.iter().copied())) {
            let stripe = job.stripe(&chosen, Shortest::OfAll);
            sum = sum.saturating_add(stripe.saturating_mul(job.data_stripes(chosen.len())));
            for candidate in &chosen {
                queue.remove(candidate);
                let free = &mut pool[candidate.index];
                free.take(candidate.offset, stripe.saturating_mul(job.columns_per_device()));
                queue.extend(look(candidate.index, free));
            }
            visits += if job.looks_at_all() { queue.len() } else { chosen.len() };
            if visits > VISITS {
                return sum;
            }
        }
    }
    sum
}

/// What is free on one member.
struct Free {
    allocated: u64,
    holes: Vec<Hole>,
}

impl Free {
    fn take(&mut self, offset: u64, len: u64) {
        self.allocated = self.allocated.saturating_add(len);
        holes::take(&mut self.holes, offset, len);
    }
}

/// The factor that keeps the run within its number of column updates.
fn coarseness(job: &Job, members: &[Member<'_>]) -> u64 {
    let free = members.iter().flat_map(|m| m.holes).fold(0u64, |sum, hole| sum.saturating_add(hole.len));
    let budget = UPDATES + UPDATES_PER_MEMBER * members.len() as u64;
    (free / usual_column(job, members)).div_ceil(budget).max(1)
}

/// Volume bytes in one usual column of every hole.
fn margin(job: &Job, members: &[Member<'_>]) -> u64 {
    let columns = members.iter().map(|m| m.holes.len() as u64).sum::<u64>();
    let devices = members.len().min(job.devices_max());
    let per_row = (devices as u64 * job.columns_per_device()).max(1);
    columns.saturating_mul(usual_column(job, members)).saturating_mul(job.data_stripes(devices)) / per_row
}

/// Bytes of a column when space is plenty.
fn usual_column(job: &Job, members: &[Member<'_>]) -> u64 {
    let devices = members.len().min(job.devices_max());
    job.sizes.stripe(job.sizes.max_stripe, job.data_stripes(devices)).max(1)
}

#[cfg(test)]
pub(super) fn writable_in_coarse_steps(rules: &Rules, profile: Profile, members: &[Member<'_>], times: u64) -> u64 {
    run_coarsely(Job::new(rules, profile, Kind::Data, members), members, times)
}
