//! What to read and what to add up, when a row of strips with parity changes or when part of it is lost.
//!
//! ```text
//!  P =  D0 + D1 +   D2 + ...          each byte an element of GF(2^8), see crate::gf
//!  Q =  D0 + 2 D1 + 4 D2 + ...
//!
//!  reconstruct-write    read what else counts, and add it to what is written
//!  read-modify-write    read what is written over and P, Q; take the old from them, add the new
//!  with something lost  whatever of P and Q is left stands for it
//! ```
//!
//! All of these are one thing: a sum over what is read and what is written, with a factor for each. A way to plan is a
//! choice of members not to read; two equations, P and Q, then either make up for them or don't (`solve.rs`). Blocks
//! with the same pattern are planned together: a strip is 16 *lanes* of one block each, and nothing crosses lanes.
//!
//! Members of a row are those of [`column_of`](super::column_of): data 0.., then P, then Q. Content that nobody wrote
//! counts as zeros in parity and is never read. Left to others: where members stand, which lanes count, and that
//! parity agrees with what counts.

mod solve;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use crate::gf;
use solve::{Aim, Pattern, Way};

/// One bit a 4 KiB block of a strip: 16 lanes.
pub type Lanes = u16;

/// Most members of a row, P and Q among them. Wider rows are answered as lost.
pub const MEMBERS_MAX: usize = 64;

/// What a row holds now. Lists that are too short go on with zeros.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Data members.
    pub data: usize,
    /// Parity members: 1 = P, 2 = P and Q.
    pub parity: usize,
    /// By data member, the lanes that parity counts; others count as zeros, they are never read.
    pub counted: &'a [Lanes],
    /// By member (data, P, Q), the lanes that can be read.
    pub good: &'a [Lanes],
}

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// What a member held.
    Old(usize),
    /// What a data member will hold.
    New(usize),
}

/// One term of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addend {
    /// What is added.
    pub from: Source,
    /// Its factor for each target; 0 = no part of it.
    pub times: [u8; 2],
}

/// Up to two members made in one pass: each target is the sum of `times[target] * from`, and zeros where that is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Make {
    /// Members to make; one at least.
    pub to: [Option<usize>; 2],
    /// In these lanes.
    pub lanes: Lanes,
    /// By member, data first; what was before what will be.
    pub addends: Vec<Addend>,
}

/// What to do: all reads, then the sums in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Members and their lanes, each member once, in order.
    pub reads: Vec<(usize, Lanes)>,
    /// No lane of a member is made twice, and none is made of another that is made.
    pub makes: Vec<Make>,
}

/// Too little is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Lanes that can't be known any more. Without them the rest can be planned.
    pub lanes: Lanes,
}

/// New parity, of those parity members in `wanted`, for the lanes in which something is written (`written`, by data
/// member).
///
/// Written lanes count from then on. Fewest blocks are read: what else counts, or what is written over and old parity,
/// for each group of lanes with the same pattern. Of equal ways the one that needs fewer devices is taken, seen from
/// the groups that have no choice, then reconstruction. A full stripe reads nothing, nor do rows in which nothing
/// else counts. What is neither read nor needed may be unreadable.
pub fn plan_change(row: &Row<'_>, written: &[Lanes], wanted: [bool; 2]) -> Result<Plan, Lost> {
    let data = row.data;
    let written = &written[..written.len().min(data)];
    let touched = written.iter().fold(0, |all, lanes| all | lanes);
    let wanted = [wanted[0] && row.parity >= 1, wanted[1] && row.parity >= 2];
    if wanted == [false; 2] {
        return Ok(Plan::default());
    }
    let mut draft = Draft::default();
    for (lanes, pattern, written) in groups(row, touched, written)? {
        let others = pattern.counted & !written;
        let aims = [
            wanted[0].then_some(Aim { to: data, over: others, powers: false }),
            wanted[1].then_some(Aim { to: data + 1, over: others, powers: true }),
        ];
        let written_over = pattern.counted & written;
        draft.add(lanes, pattern, written, aims, &[written_over, others, pattern.missing()]);
    }
    draft.finish(data)
}

/// The lanes `wanted[member]` of each member, data or parity, from the others. Good lanes of members that are wanted
/// there are not used. Data that doesn't count is made of nothing.
pub fn plan_read(row: &Row<'_>, wanted: &[Lanes]) -> Result<Plan, Lost> {
    let members = row.data.saturating_add(row.parity.min(2));
    let touched = wanted.iter().take(members).fold(0, |all, lanes| all | lanes);
    let mut draft = Draft::default();
    for (lanes, mut pattern, wanted) in groups(row, touched, wanted)? {
        pattern.good &= !wanted;
        let aim = |to: usize| match to.checked_sub(row.data) {
            None => Aim { to, over: pattern.counted & 1 << to, powers: false },
            Some(parity) => Aim { to, over: pattern.counted, powers: parity == 1 },
        };
        let mut aims: Vec<Aim> = (0..members).filter(|to| wanted >> to & 1 == 1).map(aim).collect();
        // What is made of nothing comes last, so that two that need the same reads are made together.
        aims.sort_by_key(|aim| aim.over == 0);
        if aims.iter().filter(|aim| aim.over != 0).count() > 2 {
            draft.lost |= lanes;
            continue;
        }
        for pair in aims.chunks(2) {
            let pair = [pair.first().copied(), pair.get(1).copied()];
            draft.add(lanes, pattern, 0, pair, &[pattern.missing()]);
        }
    }
    draft.finish(row.data)
}

/// Lanes with one pattern, what is there, and the members whose bit in `asked` is set there.
fn groups(
    row: &Row<'_>,
    mut left: Lanes,
    asked: &[Lanes],
) -> Result<impl Iterator<Item = (Lanes, Pattern, u64)>, Lost> {
    let (data, parity) = (row.data, row.parity.min(2));
    if data.saturating_add(parity) > MEMBERS_MAX {
        return Err(Lost { lanes: left });
    }
    let (counted, good) = (row.counted, row.good);
    Ok(core::iter::from_fn(move || {
        let lane = (left != 0).then(|| left.trailing_zeros())?;
        let mut same = left;
        let mut across = |list: &[Lanes], members: usize| {
            list.iter().take(members).enumerate().fold(0u64, |set, (member, &lanes)| {
                let bit = lanes >> lane & 1;
                same &= if bit == 1 { lanes } else { !lanes };
                set | u64::from(bit) << member
            })
        };
        let asked = across(asked, data + parity);
        let pattern = Pattern { data, counted: across(counted, data), good: across(good, data + parity) };
        left &= !same;
        Some((same, pattern, asked))
    }))
}

/// A plan while groups of lanes are added to it.
#[derive(Default)]
struct Draft {
    groups: Vec<Group>,
    lost: Lanes,
}

/// Lanes with one pattern.
struct Group {
    lanes: Lanes,
    pattern: Pattern,
    written: u64,
    aims: [Option<Aim>; 2],
    /// Those that read least.
    ways: Vec<Way>,
}

impl Draft {
    /// `unread`: the sets of members that are worth trying to do without.
    fn add(&mut self, lanes: Lanes, pattern: Pattern, written: u64, aims: [Option<Aim>; 2], unread: &[u64]) {
        let mut ways: Vec<Way> = Vec::new();
        for way in unread.iter().flat_map(|&set| solve::ways(pattern, aims, set)) {
            let least = ways.first().map_or(u32::MAX, |best| best.reads.count_ones());
            let reads = way.reads.count_ones();
            if reads < least {
                ways.clear();
            }
            if reads <= least && ways.iter().all(|other| other.reads != way.reads) {
                ways.push(way);
            }
        }
        if ways.is_empty() {
            self.lost |= lanes;
        }
        self.groups.push(Group { lanes, pattern, written, aims, ways });
    }

    fn finish(mut self, data: usize) -> Result<Plan, Lost> {
        if self.lost != 0 {
            return Err(Lost { lanes: self.lost });
        }
        let mut devices = self.groups.iter().filter(|g| g.ways.len() == 1).fold(0, |set, g| set | g.ways[0].reads);
        let mut plan = Plan::default();
        let mut lanes_of = [0; MEMBERS_MAX];
        for group in &mut self.groups {
            // The first of equals: ways are in order of preference.
            let best = group.ways.iter().min_by_key(|way| (way.reads & !devices).count_ones());
            let Some(way) = best else { continue };
            devices |= way.reads;
            for (member, lanes) in lanes_of.iter_mut().enumerate() {
                *lanes |= if way.reads >> member & 1 == 1 { group.lanes } else { 0 };
            }
            let make = group.make(way, data);
            match plan.makes.iter_mut().find(|other| other.to == make.to && other.addends == make.addends) {
                Some(same) => same.lanes |= make.lanes,
                None => plan.makes.push(make),
            }
        }
        let all = lanes_of.into_iter().enumerate();
        plan.reads = all.filter(|(_, lanes)| *lanes != 0).collect();
        Ok(plan)
    }
}

impl Group {
    fn make(&self, way: &Way, data: usize) -> Make {
        let mut addends = Vec::new();
        let both = |factor: &dyn Fn(usize, Aim) -> u8| {
            [0, 1].map(|target| self.aims[target].map_or(0, |aim| factor(target, aim)))
        };
        for member in 0..(data + 2).min(MEMBERS_MAX) {
            if way.reads >> member & 1 == 1 {
                let times = both(&|target, aim| way.factor(self.pattern, target, aim, member));
                addends.push(Addend { from: Source::Old(member), times });
            }
            if self.written >> member & 1 == 1 {
                let times = both(&|_, aim| aim.weight(member));
                addends.push(Addend { from: Source::New(member), times });
            }
        }
        Make { to: self.aims.map(|aim| aim.map(|aim| aim.to)), lanes: self.lanes, addends }
    }
}

/// What data member `member` counts in P, or in Q.
fn weight(powers: bool, member: usize) -> u8 {
    if powers { gf::pow2(member) } else { 1 }
}
