//! Choosing among candidates: the steps that all modes share.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::size::Sizes;
use super::{Era, Hole, Kind, Member, Mode, NoSpace, Plan, Rules, holes, rank};
use crate::profile::{self, Facts, Profile, data_stripes};
use crate::units::{DeviceId, STRIP};

/// Most columns of a chunk: what fits in a metadata node of 16 KiB. Even, so that raid10 keeps whole pairs.
const COLUMNS_MAX: usize = 506;
/// Most columns of a system chunk: what fits in a superblock.
const SYSTEM_COLUMNS_MAX: usize = 58;
/// Each retry for a full pool accepts holes so many times shorter.
const RUNG: u64 = 4;

/// A member with a useful hole. The order of the fields is the order of choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) rank: u8,
    pub(super) max_avail: Reverse<u64>,
    pub(super) total_avail: Reverse<u64>,
    pub(super) id: DeviceId,
    /// In the list of members; makes the order total even when ids repeat.
    pub(super) index: usize,
    pub(super) offset: u64,
}

impl Candidate {
    /// No candidate of this rank comes before it.
    pub(super) fn first_of(rank: u8) -> Candidate {
        let most = Reverse(u64::MAX);
        Candidate { rank, max_avail: most, total_avail: most, id: DeviceId(0), index: 0, offset: 0 }
    }
}

/// Which chosen hole counts as the shortest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortest {
    /// The last one, as the sources have it: right as long as the order is by space.
    Last,
    /// The shortest of all.
    OfAll,
}

/// One question to the allocator, with everything that does not depend on what is free.
#[derive(Clone)]
pub(super) struct Job {
    rules: Rules,
    profile: Profile,
    kind: Kind,
    facts: &'static Facts,
    devs_min: usize,
    devs_max: usize,
    pub(super) sizes: Sizes,
    /// Holes shorter than this are passed over at first.
    useful: u64,
    /// Ranks that the pool would use if all its space were free, in order.
    ideal: Vec<u8>,
}

impl Job {
    pub(super) fn new(rules: &Rules, profile: Profile, kind: Kind, members: &[Member<'_>]) -> Job {
        let facts = profile.facts();
        let devs_min = if rules.era == Era::V5_6 { facts.devs_min_v5_6 } else { facts.devs_min };
        let columns_max = if kind == Kind::System { SYSTEM_COLUMNS_MAX } else { COLUMNS_MAX };
        let columns_max = match profile::columns_max(profile) {
            0 => columns_max,
            most => columns_max.min(most),
        };
        let devs_max = if facts.devs_max == 0 { columns_max } else { facts.devs_max };
        let ideal = ideal(members.iter().filter_map(|m| rank::rank(rules.mode, kind, m)), devs_min);
        let sizes = Sizes::new(rules, kind, pool_size(rules, kind, members, ideal.last().copied()));
        let useful = rules.min_useful_stripe.min(sizes.max_stripe).min(sizes.max_chunk).max(sizes.least);
        Job { rules: *rules, profile, kind, facts, devs_min, devs_max, sizes, useful, ideal }
    }

    /// Lower bounds for holes, to be tried in turn: the sources have one, braid's own mode goes down by steps.
    pub(super) fn rungs(&self) -> impl Iterator<Item = u64> + use<> {
        let least = self.sizes.least;
        let first = if rank::is_own(self.rules.mode) { self.useful } else { least };
        core::iter::successors(Some(first), move |&rung| (rung > least).then(|| (rung / RUNG).max(least)))
    }

    /// The first rung with an answer gives it.
    pub(super) fn plan(&self, members: &[Member<'_>], shortest: Shortest) -> Result<Plan, NoSpace> {
        for rung in self.rungs() {
            if let Some(chosen) = self.accept(self.select(self.gather(members, rung).into_iter())) {
                return Ok(self.lay_out(&chosen, shortest));
            }
        }
        Err(self.no_space(members))
    }

    /// Candidates in order of choice.
    pub(super) fn gather(&self, members: &[Member<'_>], rung: u64) -> Vec<Candidate> {
        let mut found: Vec<_> =
            members.iter().enumerate().filter_map(|(index, member)| self.candidate(index, member, rung)).collect();
        found.sort_unstable();
        found
    }

    /// The member as a candidate, if it has a rank and a hole for its columns.
    pub(super) fn candidate(&self, index: usize, member: &Member<'_>, rung: u64) -> Option<Candidate> {
        let rank = rank::rank(self.rules.mode, self.kind, member)?;
        let columns = self.facts.dev_stripes as u64;
        let total_avail = member.size.saturating_sub(member.allocated);
        let total_least = if self.rules.era == Era::V5_6 { 1 } else { STRIP * columns };
        let hole = holes::best(member.holes, self.sizes.max_stripe.saturating_mul(columns))?;
        (total_avail >= total_least && hole.len >= rung.saturating_mul(columns)).then_some(Candidate {
            rank,
            max_avail: Reverse(hole.len),
            total_avail: Reverse(total_avail),
            id: member.id,
            index,
            offset: hole.offset,
        })
    }

    /// Whole ranks until there are enough devices, then no more than the profile takes.
    pub(super) fn select(&self, ordered: impl Iterator<Item = Candidate>) -> Vec<Candidate> {
        let enough = rank::enough(self.rules.mode, self.devs_min);
        let resort = rank::forgets_ranks(self.rules.mode);
        let mut chosen: Vec<Candidate> = Vec::new();
        for next in ordered {
            let rank_ends = chosen.last().is_some_and(|last| last.rank != next.rank);
            let full = !resort && chosen.len() == self.devs_max;
            if full || rank_ends && chosen.len() >= enough {
                break;
            }
            chosen.push(next);
        }
        if resort {
            chosen.sort_unstable_by_key(|c| (c.max_avail, c.total_avail, c.id, c.index));
        }
        let whole = chosen.len() / self.facts.devs_increment * self.facts.devs_increment;
        chosen.truncate(whole.min(self.devs_max));
        chosen
    }

    /// The selection if a chunk can and may be made of it.
    pub(super) fn accept(&self, chosen: Vec<Candidate>) -> Option<Vec<Candidate>> {
        let strict = self.rules.mode == Mode::Tiers { strict: true };
        let possible = chosen.len() >= self.devs_min && self.stripe(&chosen, Shortest::OfAll) > 0;
        (possible && !(strict && self.spilled(&chosen))).then_some(chosen)
    }

    /// Bytes of one column.
    pub(super) fn stripe(&self, chosen: &[Candidate], shortest: Shortest) -> u64 {
        let room = match shortest {
            Shortest::Last => chosen.last().map(|c| c.max_avail.0),
            Shortest::OfAll => chosen.iter().map(|c| c.max_avail.0).min(),
        };
        self.sizes.stripe(room.unwrap_or(0) / self.facts.dev_stripes as u64, self.data_stripes(chosen.len()))
    }

    /// Columns' worth of volume data on so many devices.
    pub(super) fn data_stripes(&self, devices: usize) -> u64 {
        data_stripes(self.profile, devices * self.facts.dev_stripes) as u64
    }

    /// Columns on each device.
    pub(super) fn columns_per_device(&self) -> u64 {
        self.facts.dev_stripes as u64
    }

    /// Devices of the next chunk at most.
    pub(super) fn devices_max(&self) -> usize {
        self.devs_max
    }

    /// Content that counts as metadata has its sums beside it.
    pub(super) fn holds_its_sums(&self) -> bool {
        matches!(self.kind, Kind::Metadata | Kind::System)
    }

    /// Whether a choice looks at every candidate of the ranks it widened to.
    pub(super) fn looks_at_all(&self) -> bool {
        rank::forgets_ranks(self.rules.mode)
    }

    /// A place of the selection has a later rank than with all space free.
    fn spilled(&self, chosen: &[Candidate]) -> bool {
        self.preferred(chosen) < chosen.len().min(self.ideal.len())
    }

    /// Places whose rank is as early as with all space free.
    fn preferred(&self, chosen: &[Candidate]) -> usize {
        let mut ranks: Vec<u8> = chosen.iter().map(|c| c.rank).collect();
        ranks.sort_unstable();
        ranks.iter().zip(&self.ideal).filter(|(rank, ideal)| rank <= ideal).count()
    }

    pub(super) fn lay_out(&self, chosen: &[Candidate], shortest: Shortest) -> Plan {
        let stripe = self.stripe(chosen, shortest);
        let on_device = |c: &Candidate| {
            let (id, offset) = (c.id, c.offset);
            (0..self.columns_per_device()).map(move |column| (id, offset.saturating_add(column * stripe)))
        };
        Plan {
            stripe,
            length: stripe.saturating_mul(self.data_stripes(chosen.len())),
            columns: chosen.iter().flat_map(on_device).collect(),
            spilled: self.spilled(chosen),
        }
    }

    /// Why the last rung gave nothing.
    fn no_space(&self, members: &[Member<'_>]) -> NoSpace {
        let gathered = self.gather(members, self.sizes.least);
        let (found, chosen) = (gathered.len(), self.select(gathered.into_iter()));
        let qualified = if chosen.len() < self.devs_min { found } else { self.preferred(&chosen).min(self.devs_min) };
        let allowed = members.iter().filter(|m| rank::rank(self.rules.mode, self.kind, m).is_some());
        let largest_hole = allowed.flat_map(|m| m.holes).map(|hole: &Hole| hole.len).max().unwrap_or(0);
        NoSpace { qualified, needed: self.devs_min, largest_hole }
    }
}

/// The ranks of all members in order, as far as the widening would go.
fn ideal(ranks: impl Iterator<Item = u8>, devs_min: usize) -> Vec<u8> {
    let mut ranks: Vec<u8> = ranks.collect();
    ranks.sort_unstable();
    if let Some(&widest) = ranks.get(devs_min.saturating_sub(1)) {
        ranks.truncate(ranks.partition_point(|&rank| rank <= widest));
    }
    ranks
}

/// The pool that the tenth is taken of: all devices in the sources; in braid's own mode those that this kind
/// prefers, lest one metadata chunk fill a small fast device because there are large slow ones beside it.
fn pool_size(rules: &Rules, kind: Kind, members: &[Member<'_>], widest: Option<u8>) -> u64 {
    let counts = |member: &&Member<'_>| {
        !rank::is_own(rules.mode) || rank::rank(rules.mode, kind, member).is_some_and(|rank| Some(rank) <= widest)
    };
    members.iter().filter(counts).fold(0, |sum, member| sum.saturating_add(member.size))
}
