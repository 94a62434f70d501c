//! The one thing that modes differ in: how they rank a device for a kind of chunk.
//!
//! A lower rank comes first; no rank means never. Ranks are compared before space.

use super::{Hint, Kind, Member, Mode, Tiers};

/// The rank of this member, if it may take such a chunk at all.
pub(super) fn rank(mode: Mode, kind: Kind, member: &Member<'_>) -> Option<u8> {
    match mode {
        Mode::Stock => Some(0),
        Mode::SsdMetadata | Mode::SsdMetadataV1 => Some(by_rotation(kind, member.rotational)),
        Mode::AllocationHint => by_hint(kind, member.hint),
        Mode::Tiers { .. } => by_tier(kind, member.tiers),
    }
}

/// Data on rotational, the rest on non-rotational devices; a mixed chunk has no preference.
fn by_rotation(kind: Kind, rotational: bool) -> u8 {
    match kind {
        Kind::Mixed => 0,
        Kind::Data => u8::from(!rotational),
        Kind::Metadata | Kind::System => u8::from(rotational),
    }
}

/// A mixed chunk ignores hints, except that a draining device takes nothing.
fn by_hint(kind: Kind, hint: Hint) -> Option<u8> {
    match (kind, hint) {
        (_, Hint::None) => None,
        (Kind::Mixed, _) => Some(0),
        (Kind::Data, Hint::MetadataOnly) => None,
        (Kind::Data, Hint::DataOnly) => Some(0),
        (Kind::Data, Hint::DataPreferred) => Some(1),
        (Kind::Data, Hint::MetadataPreferred) => Some(2),
        (_, Hint::DataOnly) => None,
        (_, Hint::MetadataOnly) => Some(0),
        (_, Hint::MetadataPreferred) => Some(1),
        (_, Hint::DataPreferred) => Some(2),
    }
}

/// A mixed chunk waits for the later of the two tiers: a device that refuses one kind refuses both.
fn by_tier(kind: Kind, tiers: Tiers) -> Option<u8> {
    let tier = match kind {
        Kind::Data => tiers.data,
        Kind::Metadata | Kind::System => tiers.metadata,
        Kind::Mixed => tiers.data.max(tiers.metadata),
    };
    (tier != Tiers::NEVER).then_some(tier)
}

/// How many devices stop the widening: ranks are taken whole until there are so many. v1 of `ssd_metadata` compared
/// with `>` and so wanted one too many.
pub(super) fn enough(mode: Mode, devs_min: usize) -> usize {
    if mode == Mode::SsdMetadataV1 { devs_min + 1 } else { devs_min }
}

/// Whether the collected devices are sorted by space again, ranks forgotten: the trap of `allocation_hint`.
pub(super) fn forgets_ranks(mode: Mode) -> bool {
    mode == Mode::AllocationHint
}

/// braid's own mode, without the sources' defects and with sizes for small pools.
pub(super) fn is_own(mode: Mode) -> bool {
    matches!(mode, Mode::Tiers { .. })
}
