//! Sums of memory: what parity is made of, and what is made of parity.

use alloc::vec::Vec;

use crate::units::BufRange;

/// Make each of `to` the sum of all addends, each byte an element of GF(2^8) (see [`crate::gf`]) times the addend's factor
/// for it. All ranges have one length; none overlaps another one of `to`. Without addends the sum is zeros. Done at once and
/// before the next output is carried out; no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combine {
    /// What is made; one at least.
    pub to: [Option<BufRange>; 2],
    /// Of what.
    pub addends: Vec<Addend>,
}

/// One term of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addend {
    /// What is added.
    pub from: BufRange,
    /// Its factor for each of `to`; 0 = no part of it.
    pub times: [u8; 2],
}
