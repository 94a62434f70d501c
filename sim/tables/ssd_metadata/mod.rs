//! `ssd_metadata`, posted for btrfs in April 2020: data on disks that rotate, metadata on those that don't.
//!
//! | file | published |
//! |---|---|
//! | `placement.rs` | which devices hold which chunks |
//! | `upgrade.rs` | how long an upgrade of packages takes |

pub(super) mod placement;
pub(super) mod upgrade;
