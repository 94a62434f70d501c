//! The decisive relations of the table `zfs-scrub`, in less time: one disk, a scrub, a reader.

use braid_core::Profile;
use braid_sim::Model;
use braid_sim::lab::{self, Access, Direction, Job, Member, Outcome, Setup};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// 15 s of random reads, one at a time; the volume is not read to its end in that time.
fn beside_a_scrub(scheduler: &str, rests: Option<(u64, u64)>) -> Outcome {
    let model = Model::shipped("hdd-14t").expect("it comes with the crate");
    let member = Member::new("d", 14_000_519_643_136, "hdd", model);
    let mut setup = Setup::new(vec![member], Profile::Single, Profile::Dup, 8 << 30);
    (setup.scrub, setup.scrub_rests) = (true, rests);
    setup.settings = vec![("scheduler".into(), scheduler.into())];
    let random = Job { access: Access::Random, each_once: false, ..Job::default() };
    let job = Job { time_based: true, ramp_ns: SECOND, runtime_ns: Some(15 * SECOND), ..random };
    lab::run(&setup, &[job], 1).expect("it runs")
}

fn reads_and_longest(outcome: &Outcome) -> (u64, u64) {
    let side = outcome.all.side(Direction::Read);
    (side.ios, side.latency.max_ns)
}

#[test]
fn reads_beside_a_scrub_wait_for_the_deadline_of_the_disk_unless_the_scrub_is_held_back() {
    let before = beside_a_scrub("zfs-before", None);
    let (reads, longest) = reads_and_longest(&before);
    assert!(reads < 60, "most of the time a read starves: {reads}");
    assert!((2_300 * MS..2_400 * MS).contains(&longest), "{longest}");
    for scheduler in ["zfs-pr11166", "zfs-2.0.1", "braid"] {
        let after = beside_a_scrub(scheduler, None);
        let (more, longest) = reads_and_longest(&after);
        assert!(more > 10 * reads && longest <= 128 * MS, "{scheduler}: {more} reads, longest {longest} ns");
        let (slower, was) = (after.scrub_bytes_per_s, before.scrub_bytes_per_s);
        assert!(slower * 4 > was && slower < was, "{scheduler}: the scrub goes on, {slower} of {was} bytes/s");
    }
}

#[test]
fn a_scrub_that_rests_lets_reads_through_meanwhile() {
    let (working, _) = reads_and_longest(&beside_a_scrub("zfs-before", None));
    let rests = Some((4_800 * MS, 200 * MS));
    let (resting, longest) = reads_and_longest(&beside_a_scrub("zfs-before", rests));
    assert!(resting > working + 20, "{resting} reads, without rests {working}");
    assert!(longest >= 2_300 * MS, "between rests it is as before: {longest}");
}
