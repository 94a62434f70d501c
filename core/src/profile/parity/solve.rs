//! Two equations and what they can stand for.
//!
//! What is wanted of what a lane held is a sum over data members that count. Those that are read take part as they
//! are; of those that are not (`unread`), nothing may be left over once P and Q have been added with factors `a` and
//! `b`: for each of them  wanted factor = a + b 2^member.  Two unknowns, so either there are at most two of them, or
//! they happen to lie alike, as all that is left alone does in a read-modify-write.

use super::weight;
use crate::gf;

/// What is there in a lane. Sets have one bit a member.
#[derive(Clone, Copy)]
pub(super) struct Pattern {
    /// Data members; P and Q follow.
    pub(super) data: usize,
    /// Data members that count.
    pub(super) counted: u64,
    /// Members that can be read.
    pub(super) good: u64,
}

impl Pattern {
    /// What counts and can't be read.
    pub(super) fn missing(self) -> u64 {
        self.counted & !self.good
    }

    fn has(self, parity: usize) -> bool {
        self.data + parity < super::MEMBERS_MAX && self.good >> (self.data + parity) & 1 == 1
    }
}

/// What is wanted of what was there: the sum over these members, for Q with powers of two.
#[derive(Clone, Copy)]
pub(super) struct Aim {
    /// The member that is made of it.
    pub(super) to: usize,
    /// Data members, of those that count.
    pub(super) over: u64,
    /// As Q counts them.
    pub(super) powers: bool,
}

impl Aim {
    /// What a data member counts in it.
    pub(super) fn weight(self, member: usize) -> u8 {
        weight(self.powers, member)
    }

    fn factor(self, member: usize) -> u8 {
        if self.over >> member & 1 == 1 { self.weight(member) } else { 0 }
    }
}

/// A way to have what is wanted.
pub(super) struct Way {
    /// Members to read: those with a factor that is not zero.
    pub(super) reads: u64,
    /// By target, the factors of P and Q.
    parity: [[u8; 2]; 2],
}

impl Way {
    /// What a member that is read counts for a target.
    pub(super) fn factor(&self, pattern: Pattern, target: usize, aim: Aim, member: usize) -> u8 {
        match member.checked_sub(pattern.data) {
            Some(parity) => self.parity[target][parity],
            None => rest(aim, self.parity[target], member),
        }
    }
}

/// What is left of a data member's factor when parity has been added.
fn rest(aim: Aim, [a, b]: [u8; 2], member: usize) -> u8 {
    aim.factor(member) ^ a ^ gf::mul(b, gf::pow2(member))
}

/// The ways that read none of `unread`: without parity, with P, with Q, with both, as far as they are there.
pub(super) fn ways(pattern: Pattern, aims: [Option<Aim>; 2], unread: u64) -> impl Iterator<Item = Way> {
    let possible = pattern.missing() & !unread == 0;
    let sets = [[false, false], [true, false], [false, true], [true, true]];
    let usable = move |set: &[bool; 2]| possible && (0..2).all(|parity| !set[parity] || pattern.has(parity));
    sets.into_iter().filter(usable).filter_map(move |set| {
        let mut way = Way { reads: 0, parity: [[0; 2]; 2] };
        for (target, aim) in aims.iter().enumerate() {
            let Some(aim) = aim else { continue };
            let factors = factors(*aim, pattern, unread, set)?;
            way.parity[target] = factors;
            for member in members(pattern.counted).filter(|&member| rest(*aim, factors, member) != 0) {
                way.reads |= 1 << member;
            }
            for parity in (0..2).filter(|&parity| factors[parity] != 0) {
                way.reads |= 1 << (pattern.data + parity);
            }
        }
        Some(way)
    })
}

/// The factors of P and Q with which nothing of `unread` is left.
fn factors(aim: Aim, pattern: Pattern, unread: u64, [p, q]: [bool; 2]) -> Option<[u8; 2]> {
    let unread = unread & pattern.counted;
    let mut first = members(unread);
    let found = match (first.next(), first.next(), p, q) {
        (None, ..) => [0, 0],
        (Some(x), None, true, _) | (Some(x), _, true, false) => [aim.factor(x), 0],
        (Some(x), _, false, true) => [0, gf::div(aim.factor(x), gf::pow2(x))],
        (Some(x), Some(y), true, true) => {
            let b = gf::div(aim.factor(x) ^ aim.factor(y), gf::pow2(x) ^ gf::pow2(y));
            [aim.factor(x) ^ gf::mul(b, gf::pow2(x)), b]
        }
        (Some(_), _, false, false) => [0, 0],
    };
    members(unread).all(|member| rest(aim, found, member) == 0).then_some(found)
}

/// The members of a set.
fn members(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let member = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(member)
    })
}
