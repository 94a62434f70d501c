//! `parity-avoid-slow`: what stands on a member that is far slower than the rest of its row is made from the rest.
//!
//! ```text
//!   direct = expected of the strip's own member                      expected: as `latency` has it
//!   made   = highest expected of the members that it is made from    with two parities the slowest can be left out
//!   it is made when direct > FAR_SLOWER * made
//! ```
//!
//! **Why a factor.** A strip that is made costs a read on every other member instead of one. Among equal members that are
//! equally busy it is never worth that, and with [`FAR_SLOWER`] a line that is a little longer than the others' is no reason
//! either. A member that is of a slower kind, sick, or owes answers is; and as the others get busy with what is made, their
//! own lines bring reads back to it.
//!
//! **Looking again.** As under `latency`: once what was made instead adds up to `PROBE_SHARE` times its price, the member is
//! read once.
//!
//! Where there are copies to choose from, this policy is `latency`.

use super::latency::{Credits, expected_ns, probe_price_ns};
use super::{DeviceView, grow_to};
use crate::units::{DeviceId, Instant};

/// How many times longer than from the others.
pub const FAR_SLOWER: u64 = 4;

/// The slowest of `others`, where more are there than the `needed`, and how long those that are read are expected to take; `None`
/// with too few.
pub fn without_slowest(
    now: Instant,
    others: impl Iterator<Item = DeviceId>,
    needed: usize,
    views: &[DeviceView],
) -> Option<(Option<DeviceId>, u64)> {
    let (mut slowest, mut second, mut count) = ((0, None), 0, 0);
    for device in others {
        let ns = expected_ns(now, views.get(device.index())?);
        count += 1;
        if ns > slowest.0 {
            (second, slowest) = (slowest.0, (ns, Some(device)));
        } else {
            second = second.max(ns);
        }
    }
    match count > needed {
        true => Some((slowest.1, second)),
        false => (count == needed).then_some((None, slowest.0)),
    }
}

/// Whether `own` is left alone this time, when what stands there can be made in `made_ns`.
pub(super) fn avoids(
    now: Instant,
    own: DeviceId,
    made_ns: u64,
    views: &[DeviceView],
    Credits(credits): &mut Credits,
) -> bool {
    grow_to(credits, views.len());
    let (Some(view), Some(credit)) = (views.get(own.index()), credits.get_mut(own.index())) else { return false };
    let direct_ns = expected_ns(now, view);
    if direct_ns <= made_ns.saturating_mul(FAR_SLOWER) {
        *credit = 0;
        return false;
    }
    *credit = credit.saturating_add(made_ns);
    let is_due = *credit >= probe_price_ns(view, direct_ns, made_ns);
    if is_due {
        *credit = 0;
    }
    !is_due
}
