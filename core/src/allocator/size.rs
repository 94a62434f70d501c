//! How large a chunk may become.
//!
//! A chunk keeps to a tenth of the pool, so that a small pool still gets several; the last step rounds its stripe
//! *up* to 16 MiB, so a chunk may exceed the limit slightly (12 devices of raid0: 864 MiB each, 10368 MiB in all).
//!
//! Two changes in braid's own mode, both for pools of a few hundred MiB: stripes below 16 MiB are rounded to 1 MiB
//! instead, and a system chunk is a 64th of the pool (2 to 32 MiB
//! unless the caller says more), as it would be a tenth of it otherwise.

use super::{Era, Kind, Rules, rank};
use crate::units::{GIB, MIB, STRIP, round_down, round_up};

/// Shortest stripe of braid's own mode.
const STRIPE_MIN: u64 = MIB;
/// Shortest system chunk of braid's own mode: room for the records and for a copy while they are rewritten.
const SYSTEM_MIN: u64 = 2 * MIB;
/// Longest system chunk of braid's own mode.
const SYSTEM_MAX: u64 = 32 * MIB;
/// Part of the pool that one system chunk may take in braid's own mode.
const SYSTEM_PART: u64 = 64;
/// Stripes that were cut are rounded up to this.
const GRANULE: u64 = 16 * MIB;
/// Above this much space metadata chunks are large.
const LARGE_POOL: u64 = 50 * GIB;
/// No limit; leaves room to round up.
const UNLIMITED: u64 = 1 << 62;

/// Limits of one kind of chunk in one pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Bytes wanted of a hole for each column.
    pub(super) max_stripe: u64,
    /// Bytes of volume data before rounding up.
    pub(super) max_chunk: u64,
    /// Bytes of a column after rounding up.
    stripe_cap: u64,
    /// Finest rounding.
    granule_min: u64,
    /// Shortest stripe worth a chunk, once nothing longer is left.
    pub(super) least: u64,
}

impl Sizes {
    /// Limits in a pool of `pool` bytes.
    pub(super) fn new(rules: &Rules, kind: Kind, pool: u64) -> Sizes {
        let old = rules.era == Era::V5_6;
        let chunk = match kind {
            Kind::Data | Kind::Mixed => rules.data_chunk_size,
            Kind::Metadata => rules.metadata_chunk_size.unwrap_or(if pool > LARGE_POOL { GIB } else { 256 * MIB }),
            Kind::System => rules.system_chunk_size.unwrap_or(if old { 64 * MIB } else { 32 * MIB }),
        };
        let stripe_max = if old && kind == Kind::System { 32 * MIB } else { GIB };
        let sizes = Sizes {
            max_stripe: chunk.min(stripe_max),
            max_chunk: chunk.min(pool / 10),
            stripe_cap: if old { UNLIMITED } else { GIB },
            granule_min: GRANULE,
            least: STRIP,
        };
        match (rank::is_own(rules.mode), kind) {
            (false, _) => sizes,
            (true, Kind::System) => sizes.own_system(rules, pool),
            (true, _) => Sizes { granule_min: MIB, least: STRIPE_MIN, ..sizes },
        }
    }

    fn own_system(self, rules: &Rules, pool: u64) -> Sizes {
        let most = rules.system_chunk_size.unwrap_or(SYSTEM_MAX).max(SYSTEM_MIN);
        let part = round_up(pool / SYSTEM_PART, MIB).min(self.max_stripe).clamp(SYSTEM_MIN, most);
        Sizes { max_stripe: part, max_chunk: part, granule_min: MIB, least: SYSTEM_MIN, ..self }
    }

    /// The same rules with all limits so many times larger.
    pub(super) fn scaled(self, times: u64) -> Sizes {
        let larger = |bytes: u64| bytes.saturating_mul(times).min(UNLIMITED);
        Sizes {
            max_stripe: larger(self.max_stripe),
            max_chunk: larger(self.max_chunk),
            stripe_cap: larger(self.stripe_cap),
            ..self
        }
    }

    /// Bytes of a column in a chunk of so many data stripes, given that `room` bytes are there.
    pub(super) fn stripe(&self, room: u64, data_stripes: u64) -> u64 {
        let data_stripes = data_stripes.max(1);
        let cut = if room.saturating_mul(data_stripes) > self.max_chunk {
            let share = self.max_chunk / data_stripes;
            let granule = if share < GRANULE { self.granule_min } else { GRANULE };
            round_up(share, granule).min(room)
        } else {
            room
        };
        round_down(cut.min(self.stripe_cap), STRIP)
    }
}
