//! The power goes at every point of small runs; wrong builds are found.

use braid_sim::crash::{self, Budget, Mistake, Point, Rules, Tally};

/// Points of each scenario here; the command runs a million.
const POINTS: u64 = 1_500;

#[test]
fn every_scenario_holds_what_it_promised_at_every_cut() {
    let mut all = Tally::default();
    for name in crash::names() {
        match crash::scene(&name, 1, &Budget::new(POINTS), Rules::default()) {
            Ok(tally) => all.add(&tally),
            Err(f) => {
                panic!("{}\n    braid lab crash --scenario {} --seed {} --point {}", f.why, f.scene, f.seed, f.point)
            }
        }
    }
    println!("{all:?}");
    assert!(all.points > 50_000 && all.in_recovery > 100, "{all:?}");
}

/// At each cut of changes to rows, to its end, whoever may be lost with the power is. Wider rows take minutes: the command does that.
#[test]
fn every_cut_of_rows_is_crossed_with_every_loss() {
    let rules = Rules { every_loss: true, once: true, ..Rules::default() };
    for name in ["rows/raid5", "rows/raid6"] {
        match crash::scene(name, 2, &Budget::new(u64::MAX), rules) {
            Ok(tally) => assert!(tally.whole == 1 && tally.points > 2 * POINTS, "{name}: {tally:?}"),
            Err(f) => panic!("{}\n    braid lab crash --scenario {name} --seed 2 --point {}", f.why, f.point),
        }
    }
}

#[test]
fn points_that_found_something() {
    for (name, seed, point) in [
        // Sums of what was in a place before said that a strip was wrong, which somebody else's was to be made of.
        ("discard/raid6", 3000, "122:21/78:51/59:3-2-4"),
        ("discard/raid5", 3003, "119:29/79:10197351-3/17:3"),
        // Member 2 comes back with the superblock of a checkpoint that was cut; the others had written over what it names.
        ("overwrite/raid5", 3, "115:3/43:11881460-2/15:127"),
        // A write relied on a mark that only a member had that was lost then, or that only the others had.
        ("checkpoint/unlike", 10, "61:46/15:1-3"),
        ("first-writes/raid1c3", 300, "14:32/20:16385299-2-3"),
        ("checkpoint/raid1c3", 0, "112:21/49:7540058-3/5:12"),
        // A change without a member's strip was in the stripe journal before it was stable anywhere that the member had missed it.
        ("degraded/raid6", 600, "22:101-3"),
        // Members come back with a later copy of a page of checksums than the one that content was judged by without them.
        ("checkpoint/raid1c3", 50, "125:38-1-2/19:3"),
    ] {
        let point = point.parse().expect("a point");
        assert_eq!(crash::again(name, seed, &point, Rules::default()), Ok(()), "{name} {seed}");
    }
}

#[test]
fn every_wrong_build_is_found_and_its_point_fails_again_alone() {
    for mistake in Mistake::all() {
        assert_eq!(Mistake::parse(mistake.name()), Some(mistake));
        let rules = Rules { mistake: Some(mistake), ..Rules::default() };
        let is_likely = |name: &String| name.starts_with(mistake.shows_in());
        let names: Vec<String> = crash::names().into_iter().filter(is_likely).collect();
        let runs = (0..60).flat_map(|seed| names.iter().map(move |name| (name, seed)));
        let mut found = runs.filter_map(|(name, seed)| crash::scene(name, seed, &Budget::new(POINTS), rules).err());
        // A point, not a run that failed by itself.
        let failure = found.find(|f| !f.point.0.is_empty());
        let failure = failure.unwrap_or_else(|| panic!("{} goes unnoticed", mistake.name()));
        println!("{}: {} {} {}: {}", mistake.name(), failure.scene, failure.seed, failure.point, failure.why);
        let point: Point = failure.point.to_string().parse().expect("it is printed as it is read");
        let again = crash::again(&failure.scene, failure.seed, &point, rules);
        assert_eq!(again, Err(failure.why), "{}", mistake.name());
    }
}

/// The strong form: what writes left that nobody flushed is the same on all copies, and at every later read.
#[test]
fn after_a_cut_copies_are_alike_and_never_contradict_each_other() {
    let rules = Rules { alike: true, ..Rules::default() };
    for name in crash::names() {
        if let Err(f) = crash::scene(&name, 1, &Budget::new(POINTS / 5), rules) {
            panic!(
                "{}\n    braid lab crash --alike --scenario {} --seed {} --point {}",
                f.why, f.scene, f.seed, f.point
            );
        }
    }
}

#[test]
fn the_document_lists_every_scenario_and_every_mistake() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/lab.md");
    let document = std::fs::read_to_string(path).expect("docs/lab.md");
    for mistake in Mistake::all() {
        let row = format!("| {} | {} |", mistake.name(), mistake.about());
        assert!(document.lines().any(|line| line == row), "docs/lab.md lacks the line\n{row}");
    }
    let rows = document.lines().skip_while(|line| *line != "| mistake | what is wrong |").skip(2);
    let rows = rows.take_while(|line| line.starts_with("| "));
    assert_eq!(rows.count(), Mistake::all().count(), "docs/lab.md lists mistakes that there are not");
    for name in crash::names() {
        let (plot, _) = name.split_once('/').expect("a plot on a cast");
        assert!(document.contains(&format!("\n| {plot} | ")), "docs/lab.md lacks {plot}");
    }
}
