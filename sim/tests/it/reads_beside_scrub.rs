//! The decisive relations of the table `zfs-scrub`, in less time: one disk, a scrub, a reader.

use braid_core::Profile;
use braid_sim::Model;
use braid_sim::lab::groups::Groups;
use braid_sim::lab::script::Work;
use braid_sim::lab::{self, Access, Direction, Job, Member, Outcome, Setup};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// 15 s of random reads, one at a time; the volume is not read to its end in that time.
fn beside_a_scrub(scheduler: &str, groups: Option<Groups>) -> Outcome {
    let model = Model::shipped("hdd-14t").expect("it comes with the crate");
    let member = Member::new("d", 14_000_519_643_136, "hdd", model);
    let mut setup = Setup::new(vec![member], Profile::Single, Profile::Dup, 8 << 30);
    setup.scrub = true;
    setup.settings = vec![("scheduler".into(), scheduler.into())];
    let random = Job { access: Access::Random, each_once: false, ..Job::default() };
    let job = Job { time_based: true, ramp_ns: SECOND, runtime_ns: Some(15 * SECOND), ..random };
    let runtime_ns = Some(16 * SECOND);
    let group = |groups| Job { client: 1, work: Some(Work::Groups(groups)), runtime_ns, ..Job::default() };
    let jobs: Vec<Job> = std::iter::once(job).chain(groups.map(group)).collect();
    lab::run(&setup, &jobs, 1).expect("it runs")
}

fn reads_and_longest(outcome: &Outcome) -> (u64, u64) {
    let side = outcome.jobs[0].side(Direction::Read);
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
fn a_scrub_that_rests_while_a_group_is_written_lets_reads_through_meanwhile() {
    let (working, _) = reads_and_longest(&beside_a_scrub("zfs-before", None));
    let groups = |rounds| Groups { period_ns: 5 * SECOND, rounds, writes: 8, area: 8 << 30 };
    let [few, many] = [2, 8].map(|rounds| beside_a_scrub("zfs-before", Some(groups(rounds))));
    let (resting, longest) = reads_and_longest(&many);
    assert!(resting > working + 20, "{resting} reads, without groups {working}");
    assert!(longest >= 2_300 * MS, "between groups it is as before: {longest}");
    assert!(reads_and_longest(&few).0 < resting, "who writes less rests for less long");
    assert_eq!(many.jobs[1].side(Direction::Write).ios, 3 * 8 * 8, "three groups in 16 s");
}
