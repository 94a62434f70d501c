//! Published results that the engine is held to, one file each: source, published rows, scenario, tolerance.
//!
//! | file | published |
//! |---|---|
//! | `read_policy_vm.rs` | btrfs read policies in virtual machines: reads by device and bandwidth, 2021 |
//! | `read_policy_hw.rs` | the same on NVMe and SSD: bandwidth of four policies in twelve set-ups, 2021 |
//! | `ssd_metadata/placement.rs` | which devices hold data and metadata under `ssd_metadata`, 2020 |
//! | `ssd_metadata/upgrade.rs` | how long a package upgrade takes with metadata on the SSD, 2020 |
//! | `dm_stripe.rs` | map calls of a striped device before and after requests could grow over pages, 2011 |
//! | `zfs_scrub/` | random reads beside a scrub before and after OpenZFS held its background work back, 2020 |
//! | `parity.rs` | a mixed raid6, whole and without members: braid's own numbers |
//! | `rbd_merge/` | sequential reads of an RBD image under a budget, a scheduler, or in batches, 2019; a measured Ceph |

mod dm_stripe;
mod parity;
mod rbd_merge;
mod read_policy;
mod read_policy_hw;
mod read_policy_vm;
mod ssd_metadata;
mod zfs_scrub;

use crate::table::Table;

/// All of them, in the order of publication's subjects.
pub const ALL: &[Table] = &[
    read_policy_vm::TABLE,
    read_policy_hw::TABLE,
    ssd_metadata::placement::TABLE,
    ssd_metadata::upgrade::TABLE,
    zfs_scrub::TABLE,
    dm_stripe::TABLE,
    rbd_merge::TABLE,
    parity::TABLE,
];

/// Those that take longer than a test of all may, minutes without optimisation: `braid lab check --twice` runs them as well.
pub const SLOW: &[&str] = &["zfs-scrub", "parity-states"];

/// The table of that name.
pub fn find(name: &str) -> Option<&'static Table> {
    ALL.iter().find(|t| t.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_words() {
        for (i, table) in ALL.iter().enumerate() {
            assert!(table.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            assert!(ALL[..i].iter().all(|t| t.name != table.name), "{} twice", table.name);
        }
    }
}
