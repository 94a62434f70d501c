//! `zfs`: the copy with the lowest load, as OpenZFS mirrors choose it.
//!
//! ```text
//!   load = commands on the device + increment
//!
//!   increment         last command ends here   less than 1 MiB away   anywhere else
//!   rotating                    0                       2                   5
//!   not rotating                0                       1                   1
//!
//!   lowest load wins; several: (offset >> 21) mod how many        regions of 2 MiB take turns
//! ```
//!
//! Restated from `vdev_mirror_load` and `vdev_mirror_child_select`; the numbers are its defaults.
//!
//! **Where the source's numbers live here.** The source compares leaf offsets, its label space of 4 MiB included. braid
//! addresses devices by their first byte, superblocks and all, and both [`Candidate::offset`](super::Candidate::offset)
//! and [`DeviceView::last_offset`] are such addresses: they compare as they are, and nothing is added. The offset whose
//! region breaks ties has to be the same for all copies; it is the byte within the chunk's column
//! ([`Ask::offset`](super::Ask::offset)), the nearest to an offset in a top-level device.
//!
//! **Known weakness, kept.** On a mirror of a disk and a flash device the disk is read as soon as the other has about five
//! more in flight, however much slower the disk is. `non_rotating_seek_inc=0` makes flash win more ties.

use super::{Ask, DeviceView, Field, Reason};
use crate::units::MIB;

/// 2 MiB: where loads are equal, neighbouring regions go to different copies.
const REGION_SHIFT: u32 = 21;

/// What a place costs, in commands in flight. The names are OpenZFS's, without `zfs_vdev_mirror_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Increments {
    /// A rotating device whose last command ends where the read starts.
    pub rotating_inc: u32,
    /// Any other place on a rotating device; half of it nearby.
    pub rotating_seek_inc: u32,
    /// What is nearby, in bytes; exactly so far away is not.
    pub rotating_seek_offset: u64,
    /// Another device whose last command ends where the read starts.
    pub non_rotating_inc: u32,
    /// Any other place on such a device.
    pub non_rotating_seek_inc: u32,
}

impl Increments {
    /// Names in the order of the fields.
    pub const NAMES: [&str; 5] =
        ["rotating_inc", "rotating_seek_inc", "rotating_seek_offset", "non_rotating_inc", "non_rotating_seek_inc"];

    /// The published ones.
    pub const DEFAULT: Increments = Increments {
        rotating_inc: 0,
        rotating_seek_inc: 5,
        rotating_seek_offset: MIB,
        non_rotating_inc: 0,
        non_rotating_seek_inc: 1,
    };

    /// The values, in the order of [`NAMES`](Self::NAMES).
    #[must_use]
    pub fn values(&self) -> [u64; 5] {
        [
            self.rotating_inc.into(),
            self.rotating_seek_inc.into(),
            self.rotating_seek_offset,
            self.non_rotating_inc.into(),
            self.non_rotating_seek_inc.into(),
        ]
    }

    /// Changes one; false when there is no such name or the value is too large for it.
    pub fn set(&mut self, name: &str, value: u64) -> bool {
        let small = u32::try_from(value);
        let field = match name {
            "rotating_inc" => &mut self.rotating_inc,
            "rotating_seek_inc" => &mut self.rotating_seek_inc,
            "non_rotating_inc" => &mut self.non_rotating_inc,
            "non_rotating_seek_inc" => &mut self.non_rotating_seek_inc,
            "rotating_seek_offset" => {
                self.rotating_seek_offset = value;
                return true;
            }
            _ => return false,
        };
        small.map(|value| *field = value).is_ok()
    }
}

impl Default for Increments {
    fn default() -> Self {
        Increments::DEFAULT
    }
}

/// The load a read at `offset` finds on this device.
#[must_use]
pub fn load(increments: &Increments, view: &DeviceView, offset: u64) -> u64 {
    let away = view.last_offset.abs_diff(offset);
    let increment = match (view.rotational, away) {
        (true, 0) => increments.rotating_inc,
        (true, _) if away < increments.rotating_seek_offset => increments.rotating_seek_inc / 2,
        (true, _) => increments.rotating_seek_inc,
        (false, 0) => increments.non_rotating_inc,
        (false, _) => increments.non_rotating_seek_inc,
    };
    u64::from(view.active) + u64::from(increment)
}

/// The position to read and why; `None` when nobody is eligible.
pub(super) fn choose(increments: &Increments, ask: &Ask, field: Field<'_>) -> Option<(usize, Reason)> {
    let loads = || field.eligible().map(|(position, copy, view)| (position, load(increments, view, copy.offset)));
    let lowest = loads().map(|(_, load)| load).min()?;
    let equal = || loads().filter(|&(_, load)| load == lowest).map(|(position, _)| position);
    match equal().count() {
        1 => Some((equal().next()?, Reason::LowestLoad)),
        several => Some((equal().nth((ask.offset >> REGION_SHIFT) as usize % several)?, Reason::Region)),
    }
}
