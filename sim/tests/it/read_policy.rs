//! What the tables of read policies stand on, in small: pieces that choose one by one and leave together, turns that
//! meet by chance, and who is quicker than whom.

use braid_core::Profile;
use braid_sim::device::Model;
use braid_sim::lab::{self, Access, Cpu, Job, Member, Outcome, Setup, Sizes};

const REQUEST: u64 = 64 << 10;
const READS: u64 = 24;

/// Reads of 64 KiB in pieces of 4 KiB by so many threads.
fn pieces(models: &[&str], profile: Profile, policy: &str, threads: u64, cpu: Cpu) -> Outcome {
    let member = |(i, model): (usize, &&str)| {
        let model = Model::shipped(model).expect("it is shipped");
        Member::new(&format!("d{i}"), 4 << 30, "flash", model)
    };
    let region = READS * REQUEST;
    let members = models.iter().enumerate().map(member).collect();
    let set = |name: &str, value: &str| (name.to_string(), value.to_string());
    let setup = Setup {
        settings: vec![set("read_policy", "pid"), set("scheduler", "none"), set("queue_depth", "1024")],
        changes: vec![(1, "read_policy".into(), policy.into())],
        counted_from: 1,
        stream_window: Some(0),
        ..Setup::new(members, profile, profile.system(), threads * region)
    };
    let job = |stage| Job {
        access: Access::Random,
        sizes: [Sizes::fixed(REQUEST), Sizes::fixed(REQUEST)],
        piece: Some(4096),
        cpu,
        count: threads,
        size: Some(region),
        offset_step: region,
        stage,
        ..Job::default()
    };
    lab::run(&setup, &[job(0), job(1)], 1).expect("it runs")
}

/// Between two pieces a guest's thread is away for this long.
const AWAY: Cpu = Cpu { request_ns: 0, piece_ns: 0, jitter_ns: 0, scatter_ns: 280_000 };

fn commands_per_read(outcome: &Outcome) -> f64 {
    outcome.devices.iter().map(|device| device.reads).sum::<u64>() as f64 / outcome.all.data().ios as f64
}

#[test]
fn a_read_stays_together_whatever_happens_between_its_pieces() {
    let outcome = pieces(&["guest-sata"; 2], Profile::Raid1, "pid", 32, AWAY);
    assert_eq!(outcome.all.data().ios, 32 * READS, "history is not counted");
    assert_eq!([outcome.devices[0].reads, outcome.devices[1].reads], [16 * READS; 2], "one command each, half here");
}

#[test]
fn turns_of_many_threads_meet_by_chance_and_of_one_never() {
    for (profile, members, threads, low, high) in [
        (Profile::Raid1, 2, 1, 16.0, 16.0),
        (Profile::Raid1, 2, 32, 9.2, 10.1),
        (Profile::Raid10, 4, 32, 9.2, 10.1),
        (Profile::Raid1c4, 4, 32, 13.1, 14.3),
    ] {
        let outcome = pieces(&vec!["guest-sata"; members], profile, "roundrobin-v3", threads, AWAY);
        let each = commands_per_read(&outcome);
        assert!((low..=high).contains(&each), "{} by {threads} threads: {each} commands a read", profile.name());
    }
}

#[test]
fn beside_an_ssd_a_policy_that_knows_wins_and_taking_turns_loses() {
    let cpu = Cpu { scatter_ns: 13_800, ..Cpu::default() };
    for profile in [Profile::Raid1, Profile::Raid1c3] {
        let models = ["nvme", "sata-ssd-2021", "nvme"];
        let models = if profile == Profile::Raid1 { &models[..2] } else { &models[..] };
        let [pid, latency, turns] = ["pid", "latency-2021", "roundrobin-v3"].map(|policy| {
            let outcome = pieces(models, profile, policy, 32, cpu);
            outcome.all.bytes_per_s() >> 20
        });
        let name = profile.name();
        assert!(turns * 5 / 4 < pid && pid * 7 / 4 < latency, "{name}: {turns}, {pid} and {latency} MiB/s");
    }
}
