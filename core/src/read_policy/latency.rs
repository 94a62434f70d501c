//! `latency`: the copy expected to answer first.
//!
//! ```text
//!   expected = max( floor, service * (in_flight + 1), silence )
//!   of those up to 3/2 of the lowest: fewest commands on the device now, then lowest expected, then lowest device id
//!
//!   service  = sum of latencies / sum of line lengths, over the last 100 to 200 ms
//!   floor    = the quickest read in that time
//!   silence  = time since a device that owes answers gave one
//!
//!   expected ^              / service * (in_flight + 1)
//!            |            /
//!            |----------'          floor: an idle device is not quicker than it ever was
//!            +--------------------> in_flight
//! ```
//!
//! **Why this score.** A latency was measured at some load; dividing it by the line it was measured in gives what one
//! place in line costs (Little's law: inverse throughput), and multiplying by today's line gives today's latency. At the
//! load it was measured at the score *is* the measurement, so a device that serves many at once is not punished for its
//! line as it would be by latency times in-flight. The line is counted when a read completes: in steady state those who
//! leave see the same lines as those who arrive, and a burst of 32 on a disk sums to exactly 32 single services. Reads
//! overflow to the slower copy when the loaded fast one would take as long (water-filling), which at saturation
//! adds up the rates. Ideas: dm-multipath's historical service time, Prequal's "latency at about this number in flight"
//! (NSDI 24), Colloid's in-flight over throughput (SOSP 24).
//!
//! **Nearly equal.** What a scrub has on a device at this moment is in no average, and a disk's averages are no better than
//! half of themselves anyway: among such copies the one that is less busy now answers first. Beside a scrub of 4 mirrors of
//! disks (`braid lab run zfs-scrub`) that is 937 reads a minute in place of 735; with 5/4 it is 894.
//!
//! **Streams.** A read that starts where a device's line ends stays there: up to 8 times the best score until the run
//! is 256 KiB long (merging pays most at the start), then up to 5/4 of it, so that long streams still use both copies and
//! one copy that is plainly quicker wins them.
//!
//! **Looking again.** Whoever loses collects what the winner costs. Once that is [`PROBE_SHARE`] times its own price, it
//! is read once: probes take a 64th of the time spent reading, be the copy twice or fifty times as slow. The price of an
//! idle copy is capped at [`PROBE_PRICE_MAX`] winners, so that one in 4096 reads looks again however bad it was (a disk
//! beside NVMe, a hundred times as slow, costs 2.4 % that way). The fresh sample replaces the old ones: a copy that
//! recovered is back after one probe. A copy that owes answers pays its full price: its own answers will tell.
//!
//! **Silence.** A stuck device does not complete and so does not spoil its average; what it owes counts instead, and it
//! loses as soon as it is quiet for longer than the other copy would need.
//!
//! **Before the first sample** a device is expected to be what its kind usually is.

use alloc::vec::Vec;

use super::{DeviceView, Field, Reason, grow_to};
use crate::units::{Instant, KIB};

/// A disk's seek and half a turn.
pub const ROTATIONAL_GUESS_NS: u64 = 8_000_000;
/// A flash read over a common bus.
pub const FLASH_GUESS_NS: u64 = 100_000;

/// A run shorter than this is kept together at nearly any price.
pub const RUN_SHORT: u64 = 256 * KIB;
/// How many times the best score a short run may cost.
const SHORT_RUN_FACTOR: u64 = 8;

/// Winners' time per probe's time.
pub const PROBE_SHARE: u64 = 64;
/// An idle copy's price, at most, in winners.
pub const PROBE_PRICE_MAX: u64 = 64;

/// By device: what the winners cost since it was last chosen.
#[derive(Clone, Debug, Default)]
pub struct Credits(pub(super) Vec<u64>);

/// How long a read admitted now is expected to take on this device; never zero.
pub fn expected_ns(now: Instant, view: &DeviceView) -> u64 {
    let (service_ns, floor_ns) = if view.latency.is_measured() {
        (view.latency.service_ns(), view.latency.floor_ns())
    } else if view.rotational {
        (ROTATIONAL_GUESS_NS, ROTATIONAL_GUESS_NS)
    } else {
        (FLASH_GUESS_NS, FLASH_GUESS_NS)
    };
    let line = u64::from(view.in_flight) + 1;
    let silence_ns = if view.in_flight == 0 { 0 } else { now.since(view.progress) };
    service_ns.saturating_mul(line).max(floor_ns).max(silence_ns)
}

/// The position to read and why; `None` when nobody is eligible.
pub(super) fn choose(now: Instant, field: Field<'_>, credits: &mut Credits) -> Option<(usize, Reason)> {
    grow_to(&mut credits.0, field.views.len());

    let score = |view| expected_ns(now, view);
    let best_ns = field.eligible().map(|(.., view)| score(view)).min()?;
    let near_ns = best_ns.saturating_add(best_ns / 2);
    let (fastest, best, _) = field
        .eligible()
        .map(|(position, candidate, view)| (position, candidate.device, (score(view), view.active)))
        .filter(|(.., (score_ns, _))| *score_ns <= near_ns)
        .min_by_key(|&(_, device, (score_ns, active))| (active, score_ns, device))?;

    let stream = field
        .eligible()
        .filter(|(_, candidate, view)| view.head == candidate.offset)
        .filter(|(_, _, view)| score(view) <= stream_limit_ns(view.run, best_ns))
        .min_by_key(|(_, candidate, _)| candidate.device);
    let (winner, device, reason) = match stream {
        Some((position, candidate, _)) => (position, candidate.device, Reason::Sequential),
        None => (fastest, best, Reason::Fastest),
    };

    let mut probe = None;
    for (position, candidate, view) in field.eligible() {
        let credit = &mut credits.0[candidate.device.index()];
        if candidate.device == device {
            *credit = 0;
            continue;
        }
        *credit = credit.saturating_add(best_ns);
        let due = *credit >= probe_price_ns(view, score(view), best_ns);
        if due && probe.is_none_or(|(_, other)| candidate.device < other) {
            probe = Some((position, candidate.device));
        }
    }
    match probe {
        Some((position, device)) => {
            credits.0[device.index()] = 0;
            Some((position, Reason::Probe))
        }
        None => Some((winner, reason)),
    }
}

fn stream_limit_ns(run: u64, best_ns: u64) -> u64 {
    if run < RUN_SHORT { best_ns.saturating_mul(SHORT_RUN_FACTOR) } else { best_ns.saturating_add(best_ns / 4) }
}

/// What has to be saved up until an avoided device is read again.
pub(super) fn probe_price_ns(view: &DeviceView, expected_ns: u64, best_ns: u64) -> u64 {
    let idle = view.in_flight == 0;
    let price_ns = if idle { expected_ns.min(best_ns.saturating_mul(PROBE_PRICE_MAX)) } else { expected_ns };
    price_ns.saturating_mul(PROBE_SHARE)
}
