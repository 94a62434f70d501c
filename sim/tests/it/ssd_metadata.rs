//! The tables of `ssd_metadata`: what decides them.

use braid_sim::table::Lab;
use braid_sim::tables;

#[test]
fn placement_is_as_stated() {
    let sheet = tables::find("ssd-metadata-placement").expect("it is in the list").sheet(&Lab::with_threads(1));
    let missed: Vec<_> = sheet.claims.iter().filter(|claim| !claim.holds).collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert!(sheet.claims.len() >= 11, "each statement by each posting that makes it");
}

/// It takes a second in release and some more without; a shorter one would not be shorter than filling the volume.
#[test]
fn the_upgrade_takes_as_long_as_published() {
    let sheet = tables::find("ssd-metadata-upgrade").expect("it is in the list").sheet(&Lab::with_threads(2));
    let rows: Vec<_> = sheet.rows.iter().filter(|row| !row.holds()).collect();
    let claims: Vec<_> = sheet.claims.iter().filter(|claim| !claim.holds).collect();
    assert!(rows.is_empty() && claims.is_empty(), "{rows:?} {claims:?}");
    let judged = sheet.rows.iter().filter(|row| row.is_judged()).count();
    assert_eq!(judged, 2 * 4 + 1, "three pools and the speed-up, with syncs and without; and the SSD's two variants");
}
