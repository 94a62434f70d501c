//! Each checker can fail: a world that stands in for an engine with a certain mistake is found out by the checker whose
//! business that is.

use std::panic::catch_unwind;

use braid_core::control::VolumeClass;
use braid_core::request::Op;
use braid_core::units::KIB;
use braid_core::{Profile, Slip};
use braid_sim::swarm::scenario::Scenario;
use braid_sim::swarm::{self, draw};
use braid_sim::{Checker, Sabotage, World};

use crate::common::{all_is_well, reopen, shape};

/// The first of some seeds that shows the mistake.
fn found(sabotage: Sabotage) -> Option<(Scenario, swarm::Failure)> {
    (0..300).find_map(|seed| {
        let scenario = Scenario { sabotage: Some(sabotage), ..draw::scenario(seed) };
        let failure = swarm::attempt(&scenario).err()?;
        Some((scenario, failure)).filter(|(_, failure)| failure.checker == sabotage.is_found_by())
    })
}

#[test]
fn every_mistake_is_found_by_its_checker() {
    for sabotage in Sabotage::ALL {
        assert!(found(sabotage).is_some(), "{} goes unnoticed", sabotage.name());
        assert_eq!(Sabotage::parse(sabotage.name()), Some(sabotage));
    }
    for checker in Checker::ALL {
        assert!(
            Sabotage::ALL.iter().any(|s| s.is_found_by() == checker),
            "nothing shows that {} can fail",
            checker.name()
        );
    }
}

/// A write over many strips of a pool that stripes, then all of it read.
fn over_strips(profile: Profile, slip: Option<Slip>) -> Result<(), String> {
    let run = || {
        let mut world = World::with_pool(1, &vec![shape(64); 4], profile, Profile::Raid1, &[]);
        let volume = world.volume("v", 1 << 30, VolumeClass::Auto);
        world.slip = slip;
        reopen(&mut world);
        // One after the other, so that what goes astray meets nothing else under way.
        for strip in 0..16 {
            world.run(volume, Op::Write { fua: false }, strip * 64 * KIB + 32 * KIB, 64 * KIB).unwrap();
        }
        all_is_well(&mut world);
    };
    catch_unwind(run).map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

/// An engine that itself takes another stripe than the right one: reads give something else.
#[test]
fn what_is_written_to_a_wrong_stripe_is_found() {
    for profile in [Profile::Raid0, Profile::Raid10] {
        assert_eq!(over_strips(profile, None), Ok(()));
        let why = over_strips(profile, Some(Slip::WrongStripe)).expect_err("it is found");
        println!("{profile:?}: {why}");
        assert!(why.contains("[content]"), "{why}");
    }
}

/// A failing run becomes a few steps that fail in the same way, also after they were written down and read again.
#[test]
fn a_failing_run_is_made_small_and_can_be_written_down() {
    for sabotage in [Sabotage::ReadElsewhere, Sabotage::ForgetFailure, Sabotage::Misplace] {
        let (scenario, failure) = found(sabotage).expect("it is found");
        let small = swarm::shrunk(&scenario, &failure, || true);
        let read = Scenario::parse(&small.to_text()).expect("what was written can be read");
        assert_eq!(read, small);
        let again = swarm::attempt(&read).expect_err("it fails again");
        assert_eq!(again.checker, failure.checker);
        assert!(small.steps() <= 16 && small.steps() < scenario.steps(), "{}", small.to_text());
    }
}

#[test]
fn a_scenario_is_what_its_text_says() {
    for seed in 0..200 {
        let scenario = draw::scenario(seed);
        assert_eq!(Scenario::parse(&scenario.to_text()).as_ref(), Ok(&scenario), "seed {seed}");
    }
    let why = Scenario::parse("{\"seed\": 1}").expect_err("that is not all");
    assert!(why.starts_with("not a scenario: missing field"), "{why}");
}

#[test]
fn the_document_lists_every_checker_and_what_it_does_not_see() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/lab.md");
    let document = std::fs::read_to_string(path).expect("docs/lab.md");
    for checker in Checker::ALL {
        let row = format!("| {} | {} | {} |", checker.name(), checker.sees(), checker.is_blind_to());
        assert!(document.lines().any(|line| line == row), "docs/lab.md lacks the line\n{row}");
    }
}
