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
use crate::sums::Checksum;
use crate::units::{BLOCKS_PER_UNIT, UNIT};

/// Columns taken before steps get coarser: 16 TiB of columns of 1 GiB.
const UPDATES: u64 = 16 << 10;
/// And for each member: a mirror of many devices needs several steps on each to come out even.
const UPDATES_PER_MEMBER: u64 = 64;
/// Candidates looked at before the run ends with what it has; about a second.
const VISITS: usize = 8 << 20;

/// Bytes of volume data that future chunks of this profile and kind could hold, if nothing else were allocated but what
/// their sums need.
pub fn writable(rules: &Rules, profile: Profile, kind: Kind, members: &[Member<'_>], sums: &Sums) -> u64 {
    let job = Job::new(rules, profile, kind, members);
    let times = coarseness(&job, members);
    run_coarsely(rules, job, members, sums, times)
}

/// What has to be kept beside content: every chunk comes with room for its sums. A chunk of metadata has it in itself;
/// for the others there must be room in metadata, or a chunk more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// What the sums are.
    pub checksum: Checksum,
    /// Profile of new chunks of metadata.
    pub profile: Profile,
    /// Bytes free in the chunks of metadata that are there.
    pub free: u64,
}

impl Sums {
    /// Bytes kept for a chunk of so many bytes.
    fn of(&self, length: u64) -> u64 {
        u64::from(self.checksum.pages_for(length)).div_ceil(BLOCKS_PER_UNIT) * UNIT
    }

    /// Bytes for content in a chunk that holds its own.
    fn beside_own(&self, length: u64) -> u64 {
        length.saturating_sub(self.of(length))
    }
}

/// Runs with all size limits so many times larger and takes off the margin; factor 1 is exact and needs none.
fn run_coarsely(rules: &Rules, mut job: Job, members: &[Member<'_>], sums: &Sums, times: u64) -> u64 {
    let mut of_metadata = Job::new(rules, sums.profile, Kind::Metadata, members);
    (job.sizes, of_metadata.sizes) = (job.sizes.scaled(times), of_metadata.sizes.scaled(times));
    let margin = if times > 1 { margin(&job, members) } else { 0 };
    run(&job, &of_metadata, Space::new(members), *sums).saturating_sub(margin)
}

/// Allocates to the end.
fn run(job: &Job, of_metadata: &Job, mut space: Space<'_>, mut sums: Sums) -> u64 {
    let (mut sum, mut visits) = (0u64, 0);
    // Space only shrinks, so once a rung gives nothing it stays so: rungs need not be interleaved.
    for rung in job.rungs() {
        let mut queue: BTreeSet<Candidate> = job.gather(&space.members(), rung).into_iter().collect();
        while let Some(chosen) = job.accept(job.select(queue.iter().copied())) {
            let stripe = job.stripe(&chosen, Shortest::OfAll);
            let length = stripe.saturating_mul(job.data_stripes(chosen.len()));
            for candidate in &chosen {
                queue.remove(candidate);
                space.take(candidate.index, candidate.offset, stripe.saturating_mul(job.columns_per_device()));
                queue.extend(job.candidate(candidate.index, &space.member(candidate.index), rung));
            }
            visits += if job.looks_at_all() { queue.len() } else { chosen.len() };
            if job.holds_its_sums() {
                sum = sum.saturating_add(sums.beside_own(length));
            } else {
                while sums.free < sums.of(length) {
                    let Some((taken, room)) = space.take_chunk(of_metadata) else { return sum };
                    sums.free = sums.free.saturating_add(sums.beside_own(room));
                    visits += space.len();
                    queue.retain(|candidate| !taken.contains(&candidate.index));
                    queue.extend(taken.into_iter().filter_map(|i| job.candidate(i, &space.member(i), rung)));
                }
                sums.free -= sums.of(length);
                sum = sum.saturating_add(length);
            }
            if visits > VISITS {
                return sum;
            }
        }
    }
    sum
}

/// What is free on all members.
struct Space<'a> {
    members: &'a [Member<'a>],
    free: Vec<Free>,
}

impl<'a> Space<'a> {
    fn new(members: &'a [Member<'a>]) -> Space<'a> {
        let free = members.iter().map(|m| Free { allocated: m.allocated, holes: m.holes.to_vec() }).collect();
        Space { members, free }
    }

    fn len(&self) -> usize {
        self.members.len()
    }

    fn member(&self, index: usize) -> Member<'_> {
        let free = &self.free[index];
        Member { allocated: free.allocated, holes: &free.holes, ..self.members[index] }
    }

    fn members(&self) -> Vec<Member<'_>> {
        (0..self.len()).map(|index| self.member(index)).collect()
    }

    fn take(&mut self, index: usize, offset: u64, len: u64) {
        self.free[index].take(offset, len);
    }

    /// A chunk: the members it takes of, and its bytes of content.
    fn take_chunk(&mut self, job: &Job) -> Option<(Vec<usize>, u64)> {
        let chosen = {
            let members = self.members();
            job.rungs().find_map(|rung| job.accept(job.select(job.gather(&members, rung).into_iter())))?
        };
        let stripe = job.stripe(&chosen, Shortest::OfAll);
        for candidate in &chosen {
            self.take(candidate.index, candidate.offset, stripe.saturating_mul(job.columns_per_device()));
        }
        let length = stripe.saturating_mul(job.data_stripes(chosen.len()));
        Some((chosen.into_iter().map(|candidate| candidate.index).collect(), length))
    }
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
pub(super) fn writable_in_coarse_steps(
    rules: &Rules,
    profile: Profile,
    members: &[Member<'_>],
    sums: &Sums,
    times: u64,
) -> u64 {
    run_coarsely(rules, Job::new(rules, profile, Kind::Data, members), members, sums, times)
}
