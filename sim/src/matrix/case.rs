//! One cell of the matrix, and all of them.

use std::cmp::Ordering;
use std::fmt;
use std::iter;
use std::ops::RangeInclusive;
use std::str::FromStr;

use braid_core::sums::Checksum;
use braid_core::{ChunkType, Profile};

use super::phase::Phase;
use crate::rng::Rng;

/// What happens to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It goes, and does not come back by itself.
    Missing,
    /// Some blocks cannot be read until they are written again.
    ReadError,
    /// The next writes fail.
    WriteError,
    /// A bit of some blocks changes.
    BitFlip,
    /// The next writes fail, and half of their sectors arrive.
    Torn,
    /// It goes with its write cache, and comes back a moment later with what it had.
    StaleReturn,
    /// Its next flush fails, and what was in its write cache is lost.
    CacheLost,
    /// All writes fail until it is given up; then it is well again, and put to use.
    GivenUp,
}

impl Kind {
    /// All.
    pub const ALL: [Kind; 8] = [
        Kind::Missing,
        Kind::ReadError,
        Kind::WriteError,
        Kind::BitFlip,
        Kind::Torn,
        Kind::StaleReturn,
        Kind::CacheLost,
        Kind::GivenUp,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Missing => "missing",
            Kind::ReadError => "read-error",
            Kind::WriteError => "write-error",
            Kind::BitFlip => "bit-flip",
            Kind::Torn => "torn",
            Kind::StaleReturn => "stale-return",
            Kind::CacheLost => "cache-lost",
            Kind::GivenUp => "given-up",
        }
    }

    /// It is about some blocks of content and nothing else of the member.
    pub(super) fn is_of_blocks(self) -> bool {
        matches!(self, Kind::ReadError | Kind::BitFlip)
    }
}

/// Moments of a phase: before it begins, after a third of its events, after two thirds.
pub const MOMENTS: u32 = 3;

/// A fault of one member at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// What.
    pub kind: Kind,
    /// Whose, by id.
    pub device: u32,
    /// When.
    pub moment: u32,
}

/// A pool: of so many members, with such data; metadata is never less redundant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layout {
    /// Of data.
    pub profile: Profile,
    /// How many.
    pub members: u32,
    /// What says whether a block is what was written.
    pub checksum: Checksum,
}

/// Of parity every pool up to this size is one of its own.
const MEMBERS: RangeInclusive<u32> = 3..=6;
/// What a pool has where nothing else is said.
const USUAL: Checksum = Checksum::Crc32c;
/// Larger ones have too many cases for all of them.
const WIDE: RangeInclusive<u32> = 7..=16;

impl Layout {
    /// As few members as a profile needs, two where records need that, and two strips of data beside parity.
    pub fn usual(profile: Profile) -> Layout {
        let facts = profile.facts();
        let members = match (facts.dev_stripes, facts.parity) {
            (2.., _) => 1,
            (_, 0) => (facts.copies * facts.sub_stripes).max(2) as u32,
            (_, parity) => 2 + parity as u32,
        };
        Layout { profile, members, checksum: USUAL }
    }

    /// The one that is meant where only a profile is named.
    pub fn is_usual(self) -> bool {
        self == Layout::usual(self.profile)
    }

    /// The same with other checksums, or without.
    fn with(self, checksum: Checksum) -> Layout {
        Layout { checksum, ..self }
    }

    /// Strips of data in a row.
    pub(super) fn data(self) -> u64 {
        u64::from(self.members) - self.profile.facts().parity as u64
    }
}

/// One cell: a pool, what it is doing, and what goes wrong meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Whose.
    pub layout: Layout,
    /// What goes on.
    pub phase: Phase,
    /// One fault or two.
    pub hits: Vec<Hit>,
}

/// How many faults a case has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// One.
    Single,
    /// Two: both at once at the first and at the second moment, and one after the other.
    Double,
}

/// Profiles that carry data.
pub fn profiles() -> impl Iterator<Item = Profile> {
    Profile::ALL.into_iter().filter(|profile| profile.carries(ChunkType::Data))
}

/// The usual pool of each profile, and those of parity with other numbers of members.
pub fn layouts() -> impl Iterator<Item = Layout> {
    profiles().flat_map(|profile| {
        let usual = Layout::usual(profile);
        let others = [Checksum::None, Checksum::Xxh3].map(move |checksum| usual.with(checksum));
        let more = MEMBERS.filter(move |_| profile.facts().parity > 0).map(move |members| Layout { members, ..usual });
        iter::once(usual).chain(more.filter(move |layout| *layout != usual)).chain(others)
    })
}

fn wide() -> impl Iterator<Item = Layout> {
    let profiles = profiles().filter(|profile| profile.facts().parity > 0);
    let of = |profile| WIDE.map(move |members| Layout { members, ..Layout::usual(profile) });
    profiles.flat_map(of).flat_map(|layout| [layout, layout.with(Checksum::None)])
}

/// So many cases of two faults of parity over more members than are enumerated, drawn from a seed.
pub fn drawn(count: usize, seed: u64) -> Vec<Case> {
    let (mut rng, layouts) = (Rng::new(seed), wide().collect::<Vec<_>>());
    let case = |_| {
        let layout = *rng.pick(&layouts);
        let phase = *rng.pick(&Phase::ALL);
        let hits = hits(layout, phase);
        let first = *rng.pick(&hits);
        let may_follow = |hit: &Hit| *hit != first && hit.moment >= first.moment;
        let others: Vec<Hit> = hits.into_iter().filter(may_follow).collect();
        Case { layout, phase, hits: vec![first, *rng.pick(&others)] }
    };
    (0..count).map(case).collect()
}

/// All cases of a pool.
pub fn cases(layout: Layout, faults: Faults) -> Vec<Case> {
    let mut all = Vec::new();
    for phase in Phase::ALL.into_iter().filter(|phase| phase.is_for(layout.profile)) {
        let hits = hits(layout, phase);
        let case = |hits: Vec<Hit>| Case { layout, phase, hits };
        match faults {
            Faults::Single => all.extend(hits.iter().map(|&hit| case(vec![hit]))),
            Faults::Double => {
                let pairs = hits.iter().flat_map(|&a| hits.iter().map(move |&b| (a, b)));
                let is_meant = |a: Hit, b: Hit| match a.moment.cmp(&b.moment) {
                    // Either order of the same two is the same case.
                    Ordering::Equal => (a.kind, a.device) < (b.kind, b.device),
                    Ordering::Less => (a.kind, a.device) != (b.kind, b.device),
                    Ordering::Greater => false,
                };
                all.extend(pairs.filter(|&(a, b)| is_meant(a, b)).map(|(a, b)| case(vec![a, b])));
            }
        }
    }
    all
}

fn hits(Layout { members, checksum, .. }: Layout, phase: Phase) -> Vec<Hit> {
    let mut all = Vec::new();
    for device in 1..=members + u32::from(phase.has_another()) {
        for kind in Kind::ALL {
            // Nothing says of a block without a checksum that it is another than was written.
            if kind == Kind::BitFlip && !checksum.is_on() {
                continue;
            }
            // Nothing stands yet on the one that comes.
            if device > members && kind.is_of_blocks() {
                continue;
            }
            all.extend((0..MOMENTS).map(|moment| Hit { kind, device, moment }));
        }
    }
    all
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.profile.name())?;
        if self.members != Layout::usual(self.profile).members {
            write!(f, "x{}", self.members)?;
        }
        if self.checksum == USUAL { Ok(()) } else { write!(f, "-{}", self.checksum.name()) }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.layout, self.phase.name())?;
        for (i, Hit { kind, device, moment }) in self.hits.iter().enumerate() {
            let plus = if i == 0 { "" } else { "+" };
            write!(f, "{plus}{}@{device}.{moment}", kind.name())?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        parse(text)
            .filter(|case| {
                let all = hits(case.layout, case.phase);
                case.phase.is_for(case.layout.profile) && case.hits.iter().all(|hit| all.contains(hit))
            })
            .ok_or_else(|| format!("'{text}' is no case; one looks like raid1/write/missing@1.0+bit-flip@2.2"))
    }
}

fn parse(text: &str) -> Option<Case> {
    let mut parts = text.split('/');
    let (layout, phase, hits) = (parts.next()?, parts.next()?, parts.next()?);
    let hit = |text: &str| {
        let (kind, rest) = text.split_once('@')?;
        let (device, moment) = rest.split_once('.')?;
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
        Some(Hit { kind, device: device.parse().ok()?, moment: moment.parse().ok()? })
    };
    let hits: Vec<Hit> = hits.split('+').map(hit).collect::<Option<_>>()?;
    let phase = Phase::ALL.into_iter().find(|known| known.name() == phase)?;
    let layout = layouts().chain(wide()).find(|known| known.to_string() == layout)?;
    let case = Case { layout, phase, hits };
    (parts.next().is_none() && (1..=2).contains(&case.hits.len())).then_some(case)
}
