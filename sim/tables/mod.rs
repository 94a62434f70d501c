//! Published results that the engine is held to, one file each: source, published rows, scenario, tolerance.
//!
//! | file | published |
//! |---|---|
//! | `ssd_metadata/placement.rs` | which devices hold data and metadata under `ssd_metadata`, 2020 |
//! | `ssd_metadata/upgrade.rs` | how long a package upgrade takes with metadata on the SSD, 2020 |
//! | `dm_stripe.rs` | map calls of a striped device before and after requests could grow over pages, 2011 |

mod dm_stripe;
mod ssd_metadata;

use crate::table::Table;

/// All of them, in the order of publication's subjects.
pub const ALL: &[Table] = &[ssd_metadata::placement::TABLE, ssd_metadata::upgrade::TABLE, dm_stripe::TABLE];

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
