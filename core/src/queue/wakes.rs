//! When which queue wants to be asked again: the next one is found without looking at all of them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::units::{DeviceId, Instant};

/// A moment for each member, or none.
#[derive(Clone, Default)]
pub(crate) struct Wakes {
    in_order: BTreeSet<(Instant, DeviceId)>,
    of: Vec<Option<Instant>>,
}

impl Wakes {
    /// This member's moment is that from now on.
    pub(crate) fn set(&mut self, device: DeviceId, at: Option<Instant>) {
        if self.of.len() <= device.index() {
            self.of.resize(device.index() + 1, None);
        }
        let known = core::mem::replace(&mut self.of[device.index()], at);
        if known == at {
            return;
        }
        if let Some(known) = known {
            self.in_order.remove(&(known, device));
        }
        self.in_order.extend(at.map(|at| (at, device)));
    }

    /// The first moment of all.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.in_order.first().map(|&(at, _)| at)
    }

    /// Members whose moment has come, in order of the moments.
    pub(crate) fn due(&self, now: Instant) -> impl Iterator<Item = DeviceId> {
        self.in_order.iter().take_while(move |&&(at, _)| at <= now).map(|&(_, device)| device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_known_whatever_is_set_again() {
        let mut wakes = Wakes::default();
        let mut twin: Vec<Option<Instant>> = alloc::vec![None; 20];
        let mut x = 1u64;
        for _ in 0..5000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (device, at) = ((x >> 33) as usize % 20, Instant(x >> 40 & 0xff));
            let at = (x >> 60 > 4).then_some(at);
            wakes.set(DeviceId(device as u32), at);
            twin[device] = at;
            assert_eq!(wakes.next(), twin.iter().flatten().min().copied());
            let mut due: Vec<u32> = wakes.due(Instant(100)).map(|d| d.0).collect();
            due.sort_unstable();
            let slow = (0..20).filter(|&i| twin[i as usize].is_some_and(|at| at <= Instant(100)));
            assert_eq!(due, slow.collect::<Vec<u32>>());
        }
    }
}
