//! Faults, enumerated: what has to come of each is known, and wrong builds are found.

use braid_core::{Profile, Slip};
use braid_sim::matrix::{self, Case, Faults, Layout, Runner};

/// Of two faults at once, one case in so many; `braid lab faults` runs all.
const EVERY: usize = 83;

/// Of wide pools, so many; `braid lab faults --drawn N` draws more.
const WIDE: usize = 200;

/// Wrong builds that show here.
const SLIPS: [Slip; 3] = [Slip::StaleTrusted, Slip::CaughtUpAtOnce, Slip::ColumnBeforeCopy];

/// The same on parity.
const SLIPS_OF_PARITY: [Slip; 3] = [Slip::ParityNotMade, Slip::WrongFactor, Slip::StaleTrusted];

fn all(faults: Faults, every: usize) -> Vec<Case> {
    matrix::layouts().flat_map(|layout| matrix::cases(layout, faults)).step_by(every).collect()
}

fn hold(cases: &[Case]) {
    let runner = Runner::default();
    let failures: Vec<String> =
        cases.iter().filter_map(|case| Some(format!("{case}: {}", runner.run(case, None).err()?))).collect();
    assert!(failures.is_empty(), "{} of {}: {failures:#?}", failures.len(), cases.len());
}

#[test]
fn every_fault_alone_is_noticed_by_nobody_or_by_just_those_blocks() {
    let cases = all(Faults::Single, 3);
    assert!(cases.len() > 300, "{}", cases.len());
    hold(&cases);
}

#[test]
fn two_faults_are_too_much_for_some_profiles_and_wrong_for_none() {
    let cases = all(Faults::Double, EVERY);
    assert!(cases.len() > 300, "{}", cases.len());
    hold(&cases);
}

/// Rows of more members than are enumerated.
#[test]
fn two_faults_of_wide_pools_are_wrong_for_none() {
    hold(&matrix::drawn(WIDE, 1));
}

/// Each was wrong once.
#[test]
fn cases_that_found_something() {
    hold(
        &[
            // Pages of checksums went with both caches, and the checkpoint cleaned what relied on them.
            "raid10/write/given-up@3.0+cache-lost@4.2",
            "raid10/rebuild/missing@3.0+cache-lost@4.0",
            "raid10/rebuild/torn@4.0+cache-lost@3.2",
            // What was made of a block that had rotted went over a unit in doubt, and was taken for its content.
            "raid5x6/rebuild/bit-flip@3.0+missing@1.2",
            "raid5x6/rebuild/bit-flip@4.0+stale-return@2.2",
            // A member came back without its cache, and its old strips with the others' new ones made a third content.
            "raid5x6/rows/missing@2.0+stale-return@6.2",
            // A member that was a source of a row went and came while that was made: it was taken for up to date there.
            "raid6-none/write/stale-return@3.0+stale-return@1.2",
            // What a member got of changes under way went with its cache when a flush failed, and a later flush said that it was there.
            "raid6x12/rows/cache-lost@9.1+cache-lost@3.1",
            "raid6x7-none/rows/cache-lost@4.1+cache-lost@7.1",
            "raid6x16-none/write/cache-lost@2.1+cache-lost@5.1",
            "raid6x13-none/rows/torn@10.2+cache-lost@11.2",
            // A copy was a source of a mend, and lost its cache between that was asked of it and its answer.
            "raid1c3-none/write/cache-lost@1.0+cache-lost@2.0",
            // A column changed places before a flush covered it, and its new member's cache was lost.
            "dup/replace/cache-lost@2.0",
            // Said of a place that the record of a column that went was to name, and that record was cut off.
            "dup-none/replace/cache-lost@1.1+given-up@1.1",
            "raid1/replace/missing@2.0+cache-lost@3.0",
            "raid1-none/replace/cache-lost@2.1+cache-lost@3.1",
            // A member that had the whole log alone lost its cache: of what others had nothing was noted, not even in memory.
            "raid1-none/rebuild/torn@1.1+cache-lost@2.1",
            // A strip whose write failed had come to its disk, was what its checksum says, and stayed: the checker called it a stale copy.
            "raid5/write/given-up@3.0+bit-flip@2.1",
            "raid5x4/write/bit-flip@1.0+given-up@3.2",
            "raid5x5/write/bit-flip@5.1+stale-return@1.1",
        ]
        .map(|case| case.parse().expect("a case")),
    );
}

/// The matrix can fail: single faults are enough for these.
#[test]
fn wrong_builds_are_found() {
    let of_mirrors = SLIPS.map(|slip| (Profile::Raid1, slip));
    let of_parity = SLIPS_OF_PARITY.map(|slip| (Profile::Raid6, slip));
    for (profile, slip) in of_mirrors.into_iter().chain(of_parity) {
        let (cases, runner) = (matrix::cases(Layout::usual(profile), Faults::Single), Runner::default());
        let found = cases.iter().find_map(|case| Some((case, runner.run(case, Some(slip)).err()?)));
        let (case, why) = found.unwrap_or_else(|| panic!("{slip:?} goes unnoticed"));
        println!("{slip:?}: {case}: {why}");
        let (once, again) = (runner.run(case, None), runner.run(case, None));
        assert!(once.is_ok() && once == again, "{case}: {once:?}, and then {again:?}");
    }
}

#[test]
fn cases_are_read_as_they_are_written() {
    for case in all(Faults::Single, 1).into_iter().chain(all(Faults::Double, 17)) {
        assert_eq!(case.to_string().parse(), Ok(case));
    }
    for odd in [
        "",
        "raid1/write",
        "raid1/write/",
        "raid7/write/missing@1.0",
        "raid5x3/write/missing@1.0",
        "raid5x17/write/missing@1.0",
        "raid1/rows/missing@1.0",
        "raid1/write/missing@9.0",
        "raid1/write/missing@1.3",
        "single/rebuild/missing@1.0",
        "raid1/write/missing@1.0+torn@1.0+torn@2.0",
        "raid1/write/missing@1.0/more",
    ] {
        let why = odd.parse::<Case>().expect_err(odd);
        assert!(why.contains("is no case"), "{why}");
    }
}
