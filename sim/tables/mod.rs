//! Published results that the engine is held to, one file each: source, published rows, scenario, tolerance.
//!
//! | file | published |
//! |---|---|
//! | `dm_stripe.rs` | map calls of a striped device before and after requests could grow over pages, 2011 |
//! | `zfs_scrub.rs` | random reads beside a scrub before and after OpenZFS held its background work back, 2020 |

mod dm_stripe;
mod zfs_scrub;

use crate::table::Table;

/// All of them, in the order of publication's subjects.
pub const ALL: &[Table] = &[dm_stripe::TABLE, zfs_scrub::TABLE];

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
