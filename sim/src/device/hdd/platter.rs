//! Where a byte is: zone, track, angle; and how long the head takes to be there.
//!
//! ```text
//!   offset --> ns of media time: how long reading everything before it would take, without a pause
//!              / a turn = track        (what a seek is measured in)
//!              % a turn = angle        (where the platter has to be)
//! ```
//!
//! Tracks are skewed just so that a stream never waits at a boundary; what switching costs is part of the sustained rate,
//! as in data sheets. Zones are of equal size, rates fall evenly from the outer to the inner.
//!
//! The seek curve goes through three published figures: track to track, average (over a third of all tracks) and full
//! stroke. The first third follows the root of the distance, where the arm only accelerates and brakes; the rest is
//! a line, where it coasts.
//!
//! ```text
//!   full |                 __--'
//!    avg |        __.--''
//!        |    .-'
//!    t2t |  /
//!        '--+------|-----------|
//!           0     1/3          1   of all tracks
//! ```

use super::Hdd;
use crate::device::numbers::SECOND;

/// As many as are drawn in data sheets; more change nothing that could be seen.
const ZONES: u64 = 16;
const MIB: u128 = 1 << 20;
/// Distances are in millionths of all tracks.
const ALL: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub(super) struct Platter {
    pub(super) turn_ns: u64,
    zone_bytes: u64,
    /// Of each zone: when it begins, in media time, and ns per MiB.
    zones: Vec<(u64, u64)>,
    tracks: u64,
    track_ns: u64,
    average_ns: u64,
    full_ns: u64,
}

impl Platter {
    pub(super) fn new(m: &Hdd, size: u64) -> Platter {
        let turn_ns = 60 * SECOND / m.rpm;
        let zone_bytes = (size / ZONES).max(1 << 20);
        let (mut zones, mut at) = (Vec::new(), 0);
        for zone in 0..ZONES {
            let middle = 2 * zone + 1;
            let kib_per_s = (m.outer_kib_per_s * (2 * ZONES - middle) + m.inner_kib_per_s * middle) / (2 * ZONES);
            let mib_ns = 1024 * SECOND / kib_per_s.max(1);
            zones.push((at, mib_ns));
            at += (u128::from(zone_bytes) * u128::from(mib_ns) / MIB) as u64;
        }
        let (track_ns, average_ns, full_ns) = (m.track_to_track_ns, m.average_seek_ns, m.full_stroke_ns);
        Platter { turn_ns, zone_bytes, zones, tracks: (at / turn_ns).max(1), track_ns, average_ns, full_ns }
    }

    fn zone(&self, offset: u64) -> usize {
        ((offset / self.zone_bytes) as usize).min(self.zones.len() - 1)
    }

    /// The media time of a place.
    pub(super) fn media_ns(&self, offset: u64) -> u64 {
        let zone = self.zone(offset);
        let (start, mib_ns) = self.zones[zone];
        let into = offset - zone as u64 * self.zone_bytes;
        start + (u128::from(into) * u128::from(mib_ns) / MIB) as u64
    }

    /// How far the head gets from a place in so many ns; the rate is that of the place.
    pub(super) fn bytes_in(&self, offset: u64, ns: u64) -> u64 {
        (u128::from(ns) * MIB / u128::from(self.zones[self.zone(offset)].1)) as u64
    }

    /// Between the ends of a range.
    pub(super) fn transfer_ns(&self, offset: u64, len: u64) -> u64 {
        self.media_ns(offset + len) - self.media_ns(offset)
    }

    /// Moving the head from above one place to above another.
    pub(super) fn seek_ns(&self, from: u64, to: u64) -> u64 {
        let track = |offset| self.media_ns(offset) / self.turn_ns;
        match track(from).abs_diff(track(to)) {
            0 => 0,
            distance => self.curve((u128::from(distance) * u128::from(ALL) / u128::from(self.tracks)) as u64),
        }
    }

    /// The drawing above.
    pub(super) fn curve(&self, distance: u64) -> u64 {
        let distance = distance.min(ALL);
        if 3 * distance <= ALL {
            // The root of 3 d, of ALL * ALL at the knee.
            let root = (3 * distance * ALL).isqrt();
            self.track_ns + self.average_ns.saturating_sub(self.track_ns) * root / ALL
        } else {
            let beyond = 3 * distance - ALL;
            self.average_ns + self.full_ns.saturating_sub(self.average_ns) * beyond / (2 * ALL)
        }
    }

    /// From `now` until the head, which is above the track, is above the place.
    pub(super) fn wait_ns(&self, now: u64, offset: u64) -> u64 {
        let (is, wanted) = (now % self.turn_ns, self.media_ns(offset) % self.turn_ns);
        (wanted + self.turn_ns - is) % self.turn_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Kind, Model};

    fn hdd() -> (Hdd, Platter) {
        let Kind::Hdd(m) = *Model::shipped("hdd").unwrap().kind() else { panic!("a disk") };
        (m, Platter::new(&m, 2_000_000_000_000))
    }

    #[test]
    fn the_curve_goes_through_the_published_points_and_never_falls() {
        let (m, platter) = hdd();
        let about = |ns: u64, wanted: u64| assert!(ns.abs_diff(wanted) * 1000 <= wanted, "{ns}, not {wanted}");
        about(platter.curve(0), m.track_to_track_ns);
        about(platter.curve(ALL / 3), m.average_seek_ns);
        about(platter.curve(ALL), m.full_stroke_ns);
        let curve: Vec<u64> = (0..=1000).map(|i| platter.curve(i * ALL / 1000)).collect();
        assert!(curve.is_sorted());
        // Half way to the knee the root is at 0.71, a line would be at 0.5.
        let half = platter.curve(ALL / 6) - m.track_to_track_ns;
        about(half, (m.average_seek_ns - m.track_to_track_ns) * 7071 / 10_000);
    }

    /// What data sheets call the average seek is one over all pairs of places; the curve's mean is that within 5 %.
    #[test]
    fn the_mean_over_all_pairs_is_the_average_seek() {
        let (m, platter) = hdd();
        let mut rng = crate::Rng::new(1);
        let size = 2_000_000_000_000;
        let total: u64 = (0..20_000).map(|_| platter.seek_ns(rng.below(size), rng.below(size))).sum();
        let mean = total / 20_000;
        assert!(mean.abs_diff(m.average_seek_ns) * 20 <= m.average_seek_ns, "{mean}");
    }

    #[test]
    fn transfer_by_zone() {
        let (m, platter) = hdd();
        let size = 2_000_000_000_000;
        let rate = |offset| (64 << 10) * SECOND / platter.transfer_ns(offset, 64 << 20);
        // The outermost zone of 16 is a thirty-second of the way in on average.
        for (at, wanted) in [(0, m.outer_kib_per_s), (size - (64 << 20), m.inner_kib_per_s)] {
            assert!(rate(at).abs_diff(wanted) * 20 <= wanted, "{} KiB/s, not {wanted}", rate(at));
        }
        assert!(rate(size / 2) < rate(0) && rate(size / 2) > rate(size - (64 << 20)));
        assert_eq!(platter.bytes_in(0, platter.transfer_ns(0, 1 << 20)), 1 << 20);
    }

    #[test]
    fn the_wait_is_for_the_angle() {
        let (_, platter) = hdd();
        for (now, offset) in [(0, 12345 << 12), (987_654_321, 0), (55_555_555_555, 999_999 << 20)] {
            let wait = platter.wait_ns(now, offset);
            assert!(wait < platter.turn_ns);
            assert_eq!((now + wait) % platter.turn_ns, platter.media_ns(offset) % platter.turn_ns);
            let end = now + wait + platter.transfer_ns(offset, 4 << 20);
            assert_eq!(platter.wait_ns(end, offset + (4 << 20)), 0, "what follows needs no wait");
        }
    }
}
