//! Which member of a row is wrong, when nothing else says so: two parities can tell, one can't.

use crate::gf;

/// What P and Q say of a row that should agree with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspect {
    /// They agree.
    Nobody,
    /// This member, data or P or Q, if only one is wrong.
    Member(usize),
    /// No single one would explain it.
    Several,
}

impl Suspect {
    /// What it is of two pieces of a row together.
    pub fn and(self, other: Suspect) -> Suspect {
        match (self, other) {
            (Suspect::Nobody, found) | (found, Suspect::Nobody) => found,
            (found, other) if found == other => found,
            _ => Suspect::Several,
        }
    }
}

/// The member that is wrong in a piece of a row with so many data members, by its syndromes: `p` and `q` are what P and
/// Q hold plus what they should hold, byte by byte. The shorter one ends it.
///
/// An error `e` in data member m shows as e in P and 2^m e in Q, in every byte; one in P or Q shows there alone. Two
/// wrong members may look like a third: ask where checksums don't exist, and about one lane at a time.
pub fn suspect(data: usize, p: &[u8], q: &[u8]) -> Suspect {
    p.iter().zip(q).fold(Suspect::Nobody, |found, (&p, &q)| {
        found.and(match (gf::log2(p), gf::log2(q)) {
            (None, None) => Suspect::Nobody,
            (Some(_), None) => Suspect::Member(data),
            (None, Some(_)) => Suspect::Member(data + 1),
            (Some(_), Some(_)) => match gf::log2(gf::div(q, p)) {
                Some(member) if member < data => Suspect::Member(member),
                _ => Suspect::Several,
            },
        })
    })
}
