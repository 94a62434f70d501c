//! The laboratory: what comes out of a run is what arithmetic on the model says.

use std::sync::Arc;

use braid_core::Profile;
use braid_core::units::{GIB, KIB, MIB};
use braid_sim::Model;
use braid_sim::device::{Kind, Network};
use braid_sim::lab::files::Files;
use braid_sim::lab::script::Work;
use braid_sim::lab::trace::Trace;
use braid_sim::lab::{self, Access, Cpu, Direction, Fill, Job, Member, Outcome, Setup, Sizes, Stop};

const MS: u64 = 1_000_000;

/// So many commands at once, each so many ns whatever its size; a flush takes 50 us.
fn servers(servers: u64, ns: u64) -> Model {
    let (read_ns, write_ns, flush_ns, tail_times) = (ns, ns, 50_000, 1);
    let numbers = Network { servers, read_ns, write_ns, flush_ns, tail_times, ..Network::default() };
    Model::new("servers", "so many at once", Kind::Network(numbers))
}

/// One at a time, 100 us each.
fn plain() -> Model {
    servers(1, 100_000)
}

fn shipped(name: &str) -> Model {
    Model::shipped(name).expect("it comes with the crate")
}

fn members(n: usize, model: Model) -> Vec<Member> {
    (0..n).map(|i| Member::new(&format!("d{i}"), 8 * GIB, "ssd", model.clone())).collect()
}

fn single(model: Model) -> Setup {
    Setup::new(members(1, model), Profile::Single, Profile::Dup, GIB)
}

fn mirror(set: &[(&str, &str)]) -> Setup {
    let mut setup = Setup::new(members(2, shipped("sata-ssd")), Profile::Raid1, Profile::Raid1, GIB);
    setup.settings = set.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    setup
}

fn reads(bytes: u64) -> Job {
    let sizes = [Sizes::fixed(bytes), Sizes::fixed(bytes)];
    Job { access: Access::Random, sizes, size: Some(4 * MIB), ..Job::default() }
}

fn run(setup: &Setup, job: Job) -> Outcome {
    lab::run(setup, &[job], 1).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn one_at_a_time_takes_what_the_model_says() {
    let outcome = run(&single(plain()), reads(4096));
    let job = &outcome.jobs[0];
    assert_eq!((job.data().ios, job.data().bytes, job.stop), (1024, 4 * MIB, Stop::Done));
    assert_eq!(job.runtime_ns, 1024 * 100_000);
    assert_eq!(job.milli_iops(), 10_000_000);
    let latency = &job.side(Direction::Read).latency;
    assert_eq!((latency.quantile_ns(500), latency.quantile_ns(999), latency.max_ns), (100_000, 100_000, 100_000));
    let d = &outcome.devices[0];
    assert_eq!((d.reads, d.writes, d.busy_permille, d.mean_queue_milli, d.service_ns), (1024, 0, 1000, 1000, 100_000));
}

#[test]
fn depth_fills_the_queue_and_latency_grows_with_it() {
    let outcome = run(&single(plain()), Job { depth: 8, ..reads(4096) });
    assert_eq!(outcome.all.runtime_ns, 1024 * 100_000, "one server is as fast at any depth");
    assert_eq!(outcome.all.data().latency.quantile_ns(500), 800_000, "behind seven others");
    let spread = run(&single(servers(8, 100_000)), Job { depth: 8, ..reads(4096) });
    assert_eq!(spread.all.runtime_ns, 1024 / 8 * 100_000);
}

#[test]
fn equal_runs_have_equal_hashes_and_outcomes() {
    let job = || Job {
        reads: 60,
        depth: 16,
        count: 3,
        sizes: [Sizes::between(4096, 65536), Sizes::between(4096, 16384)],
        cpu: Cpu { request_ns: 2_000, piece_ns: 300, jitter_ns: 500, ..Cpu::default() },
        piece: Some(4096),
        sync_every: 40,
        ..reads(4096)
    };
    let setup = Setup { cpus: 2, scrub: true, ..mirror(&[]) };
    let (one, two) = (run(&setup, job()), run(&setup, job()));
    assert_eq!(one, two);
    let other = lab::run(&setup, &[job()], 2).expect("it runs");
    assert_ne!(one.hash, other.hash, "another seed is another run");
}

#[test]
fn every_block_once_and_a_lap_more_with_loops() {
    let outcome = run(&single(plain()), Job { loops: 3, count: 2, ..reads(64 * KIB) });
    assert_eq!(outcome.all.data().ios, 2 * 3 * 64);
    assert_eq!(outcome.devices[0].read_bytes, 2 * 3 * 4 * MIB);
    let outcome = run(&single(plain()), Job { io_size: Some(10 * 4096), ..reads(4096) });
    assert_eq!(outcome.all.data().ios, 10);
}

#[test]
fn rates_and_thinking_and_runtimes_are_kept() {
    let setup = single(servers(1, 1_000));
    let second = |job| Job { time_based: true, runtime_ns: Some(1_000 * MS), ..job };
    let outcome = run(&setup, second(Job { rate_iops: [Some(500), None], depth: 4, ..reads(4096) }));
    assert_eq!((outcome.all.data().ios, outcome.all.stop), (500, Stop::Runtime));
    let outcome = run(&setup, second(Job { rate: [Some(MIB), None], ..reads(64 * KIB) }));
    assert_eq!(outcome.all.data().ios, 16, "16 times 64 KiB is a MiB");
    let thinks = Job { think_ns: 9_999_000, think_after: 1, ..reads(4096) };
    assert_eq!(run(&setup, second(thinks)).all.data().ios, 100, "1 us of work and 9,999 us of thought");
    let outcome = run(&setup, second(Job { ramp_ns: 500 * MS, ..reads(4096) }));
    let counted = outcome.all.data().ios;
    assert_eq!(counted, 1_000_000, "a ramp comes before the runtime, and what is answered then is not counted");
}

/// A disk that answers one request in two seconds does not do ten thousand a second.
#[test]
fn rates_are_those_of_the_time_a_job_had_and_not_of_its_answers_alone() {
    let setup = single(servers(1, 1_000));
    let slow = |job| Job { rate: [Some(1), None], ..job };
    let timed = Job { time_based: true, runtime_ns: Some(2_000 * MS), ..reads(4096) };
    let outcome = run(&setup, slow(timed.clone()));
    assert_eq!((outcome.all.runtime_ns, outcome.all.milli_iops(), outcome.ns), (2_000 * MS, 500, 2_000 * MS));
    assert_eq!(outcome.devices[0].busy_permille, 0, "1 us of it");
    let thinks = Job { think_ns: 60_000 * MS, ..timed.clone() };
    assert_eq!(run(&setup, thinks).all.milli_iops(), 500);
    let ramped = Job { ramp_ns: 500 * MS, rate_iops: [Some(2), None], ..timed };
    assert_eq!(run(&setup, ramped).all.milli_iops(), 2_000, "at 0.5, 1, 1.5 and 2 s");
    let cut = run(&Setup { limit_ns: 4_000 * MS, ..setup }, slow(reads(4096)));
    assert_eq!((cut.all.stop, cut.all.milli_iops()), (Stop::Limit, 250), "nor where a run is cut");
}

#[test]
fn syncs_are_flushes_of_devices() {
    let job = Job { reads: 0, sync_every: 8, ..reads(4096) };
    let outcome = run(&single(plain()), job);
    let (writes, syncs) = (outcome.all.side(Direction::Write).ios, outcome.all.side(Direction::Sync).ios);
    assert_eq!((writes, syncs), (1024, 1024 / 8 - 1), "a flush comes before the next write, and there is no next one");
    assert!(outcome.devices[0].flushes >= syncs, "{} flushes", outcome.devices[0].flushes);
    assert!(outcome.all.side(Direction::Sync).latency.quantile_ns(0) >= 50_000);
}

#[test]
fn stages_follow_each_other_and_a_late_job_begins_late() {
    let first = Job { name: "first".into(), ..reads(4096) };
    let late = Job { name: "late".into(), start_ns: 20 * MS, ..reads(4096) };
    let then = Job { name: "then".into(), stage: 1, ..reads(4096) };
    let outcome = lab::run(&single(plain()), &[first, late, then], 1).expect("it runs");
    let ends = |i: usize| outcome.jobs[i].began_ns + outcome.jobs[i].runtime_ns;
    assert_eq!((outcome.jobs[0].began_ns, outcome.jobs[1].began_ns), (0, 20 * MS));
    assert_eq!(outcome.jobs[2].began_ns, ends(0).max(ends(1)));
    assert_eq!(ends(2), 3 * 1024 * 100_000);
}

#[test]
fn cpu_of_a_client_bounds_what_it_asks() {
    let fast = servers(64, 1_000);
    let job = Job { depth: 32, count: 4, cpu: Cpu { request_ns: 10_000, ..Cpu::default() }, ..reads(4096) };
    let one = run(&Setup { cpus: 1, ..single(fast.clone()) }, job.clone());
    let two = run(&Setup { cpus: 2, ..single(fast) }, job);
    assert_eq!(one.all.runtime_ns, 4 * 1024 * 10_000 + 1_000);
    assert_eq!(two.all.runtime_ns, 2 * 1024 * 10_000 + 1_000);
}

#[test]
fn batches_are_joined_where_they_are_neighbours() {
    let job = |batch, reap| {
        let job = Job { access: Access::Sequential, depth: 32, batch, reap, ..reads(4096) };
        run(&single(plain()), job).devices[0].reads
    };
    assert_eq!(job(32, 32), 1024 / 32, "32 neighbours go as one");
    assert!(job(1, 1) > 1024 / 32 && job(1, 1) <= 1024, "one by one they join only while the device is full");
}

#[test]
fn pieces_choose_one_by_one_and_join_after_that() {
    let job = |piece| Job {
        piece,
        count: 8,
        cpu: Cpu { request_ns: 3_000, piece_ns: 500, jitter_ns: 300, ..Cpu::default() },
        size: Some(16 * MIB),
        ..reads(64 * KIB)
    };
    let setup = Setup { cpus: 4, stream_window: Some(0), ..mirror(&[("read_policy", "roundrobin-v3")]) };
    let commands = |outcome: &Outcome| outcome.devices.iter().map(|d| d.reads).sum::<u64>();
    let (whole, pieces) = (run(&setup, job(None)), run(&setup, job(Some(4096))));
    assert_eq!(commands(&whole), 8 * 256, "a request is a command");
    assert_eq!(pieces.all.data().ios, 8 * 256, "a request of sixteen pieces is one request");
    assert_eq!(pieces.devices.iter().map(|d| d.chosen).sum::<u64>(), 8 * 256 * 16, "each piece chooses");
    let each = commands(&pieces) as f64 / (8.0 * 256.0);
    assert!(each > 7.0, "{each} commands a request");
    let by_client = Setup { settings: vec![("read_policy".into(), "pid".into())], ..setup };
    let commands = commands(&run(&by_client, job(Some(4096))));
    assert_eq!(commands, 8 * 256, "a thread's pieces choose alike, and are one again");
}

#[test]
fn a_scrub_meanwhile_is_seen() {
    let plain = Setup { members: members(2, plain()), ..mirror(&[]) };
    let setup = Setup { scrub: true, ..plain.clone() };
    let job = Job { size: Some(256 * MIB), time_based: true, runtime_ns: Some(200 * MS), ..reads(4096) };
    let outcome = run(&setup, job.clone());
    assert!(outcome.scrub_bytes > 0 && outcome.scrub_bytes_per_s > 0);
    let alone = run(&plain, job);
    assert!(alone.all.data().ios > outcome.all.data().ios, "a scrub costs the client something");
    assert_eq!(alone.scrub_bytes, 0);
}

#[test]
fn a_volume_that_holds_nothing_is_read_without_a_device() {
    let setup = Setup { fill: Fill::Nothing, ..single(plain()) };
    assert_eq!(run(&setup, reads(4096)).devices[0].reads, 0);
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    let fails = |setup: &Setup, job| lab::run(setup, &[job], 1).expect_err("it must not run");
    let setup = single(plain());
    assert!(fails(&setup, Job { offset: GIB, ..reads(4096) }).contains("does not fit"));
    assert!(fails(&setup, Job { depth: 0, ..reads(4096) }).contains("deep"));
    assert!(fails(&setup, Job { volume: 3, ..reads(4096) }).contains("no volume 3"));
    assert!(fails(&mirror(&[("read_policy", "best")]), reads(4096)).contains("best"));
    let large = Setup::new(members(1, plain()), Profile::Single, Profile::Dup, 64 * GIB);
    assert!(fails(&large, Job { size: None, ..reads(4096) }).contains("use larger devices"));
    let beyond = Member::new("d0", 1 << 60, "hdd", shipped("hdd"));
    let beyond = Setup::new(vec![beyond], Profile::Single, Profile::Dup, GIB);
    assert!(fails(&beyond, reads(4096)).contains("a member has at most"));
}

#[test]
fn who_asked_in_a_trace_is_who_asks_now() {
    let line = |i: u64| format!("8,0 0 {i} 0.{i:03} {} Q R {} + 8 [dd]\n", 1000 + i % 8, i * 8);
    let text: String = (0..64).map(line).collect();
    let trace = Trace::parse(&text).expect("a trace");
    let job = Job { work: Some(Work::Trace(Arc::new(trace))), ..Job::default() };
    let reads = |setup: &Setup| run(setup, job.clone()).devices.iter().map(|d| d.chosen).collect::<Vec<_>>();
    assert_eq!(reads(&mirror(&[("read_policy", "pid")])), [32, 32], "of eight processes four go to each");
}

#[test]
fn a_trace_goes_at_its_own_pace_and_a_slow_pool_shows_as_latency() {
    let lines: String = (0..100).map(|i| format!("[{},1,\"R\",{},4096]\n", i * 50_000, i * 4096)).collect();
    let trace = Trace::parse(&format!("{{\"braid_trace\":1}}\n{lines}{{\"end\":{{}}}}")).expect("a trace");
    let job = Job { work: Some(Work::Trace(Arc::new(trace))), ..Job::default() };
    let fast = run(&single(servers(1, 10_000)), job.clone());
    assert_eq!((fast.all.data().ios, fast.all.runtime_ns), (100, 99 * 50_000 + 10_000));
    assert_eq!(fast.all.data().latency.max_ns, 10_000);
    // Every 50 us one comes, and each takes 100: the last waits behind 49 others.
    let slow = run(&single(plain()), job);
    assert!(slow.all.data().latency.max_ns > 1_000_000, "{}", slow.all.data().latency.max_ns);
}

#[test]
fn a_file_system_gains_from_metadata_on_flash_and_from_no_syncs() {
    let time = |flash: bool, name: &str| {
        let mut members = vec![Member::new("hdd", 8 * GIB, "hdd", shipped("hdd"))];
        if flash {
            members.push(Member::new("ssd", 8 * GIB, "ssd", shipped("sata-ssd")));
        }
        let setup = Setup::new(members, Profile::Single, Profile::Single, 2 * GIB);
        let files = Files { files: 200, ..Files::named(name).expect("a ready-made one") };
        let outcome = run(&setup, Job { work: Some(Work::Files(files)), ..Job::default() });
        assert_eq!(outcome.stop, Stop::Done);
        outcome
    };
    let (plain, mixed, eager) = (time(false, "install"), time(true, "install"), time(false, "install-unsafe"));
    assert!(mixed.ns < plain.ns && eager.ns < plain.ns, "{} {} {}", plain.ns, mixed.ns, eager.ns);
    assert_eq!(plain.all.data().bytes, mixed.all.data().bytes, "the same work");
    let ssd = &mixed.devices[1];
    assert!(ssd.reads >= 200 && ssd.writes > 400, "tree blocks are on flash: {ssd:?}");
}
