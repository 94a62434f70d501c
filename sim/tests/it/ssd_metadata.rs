//! The tables of `ssd_metadata`: what decides them.

use braid_sim::table::Lab;
use braid_sim::tables;

#[test]
fn placement_is_as_stated() {
    let sheet = tables::find("ssd-metadata-placement").expect("it is in the list").sheet(&Lab { threads: 1 });
    let missed: Vec<_> = sheet.claims.iter().filter(|claim| !claim.holds).collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert!(sheet.claims.len() >= 11, "each statement by each posting that makes it");
}
