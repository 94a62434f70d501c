//! `braid lab what-if` and `braid trace`, on descriptions of pools and on a live one.

use crate::real::Real;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use std::fs;
use std::path::Path;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

const POOL: &str = "\
data = 'raid1'
settings = { read_policy = 'pid' }
[[device]]
class = 'hdd'
size = '100G'
count = 2
name = 'd'
[[device]]
class = 'ssd'
size = '20G'
";

const JOB: &str = "\
[global]
ioengine=libaio   ; as on the real machine
direct=1
bs=4k
size=256m
group_reporting

[web]
rw=randread
iodepth=8
numjobs=2
filename=/dev/nbd0
";

/// A folder with a pool and a job; `braid` needs no daemon for them.
fn desk() -> Real {
    let mut real = Real::start();
    real.stop();
    fs::write(real.path("pool.toml"), POOL).expect("write");
    fs::write(real.path("web.fio"), JOB).expect("write");
    real
}

fn what_if(real: &Real, rest: &str) -> String {
    let (pool, job) = (real.word("pool.toml"), real.word("web.fio"));
    real.ok(&format!("lab what-if --pool {pool} --job {job} --seconds 5 --requests 3000 {rest}"))
}

#[test]
fn variants_stand_side_by_side_with_advice_and_twice_the_same() {
    let real = desk();
    let out = what_if(&real, "--set read_policy=queue --replace hdd=nvme --add ssd:50G");
    let head = out.lines().find(|line| line.starts_with("variant")).expect("a table");
    assert!(head.contains("p99.9") && head.contains("spread"), "{out}");
    for row in ["today ", "read_policy=queue ", "replace:hdd=nvme ", "add:ssd:50G "] {
        assert!(out.lines().any(|line| line.starts_with(row)), "{row}: {out}");
    }
    assert!(out.contains("accepted, without effect here: group_reporting"), "{out}");
    assert!(out.contains("\nd0 ") && out.contains("+ssd3 ") && out.contains("fewest-in-flight"), "{out}");
    assert!(out.contains("Take replace:hdd=nvme: ") && out.contains(" times the throughput of today."), "{out}");
    assert_eq!(out, what_if(&real, "--set read_policy=queue --replace hdd=nvme --add ssd:50G"));
}

#[test]
fn a_margin_that_is_too_small_is_said_to_be() {
    let real = desk();
    let out = what_if(&real, "--set commit_interval=6s");
    assert!(out.contains("Leave it as it is: "), "{out}");
}

#[test]
fn without_a_variant_nothing_is_advised_and_the_trace_is_told() {
    let out = what_if(&desk(), "");
    assert!(out.contains("Nothing was compared: name variants with --set"), "{out}");
    let trace = out.lines().find_map(|line| line.strip_prefix("Traces: ")).expect("a trace");
    assert!(trace.len() == 16 && u64::from_str_radix(trace, 16).is_ok(), "{out}");
}

#[test]
fn numbers_for_programs_are_exact() {
    let real = desk();
    let out = what_if(&real, "--json --variant read_policy=latency");
    let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let (trials, advice) = (&value["data"]["trials"], &value["data"]["advice"]);
    assert_eq!(
        (trials[0]["variant"].as_str(), trials[1]["variant"].as_str()),
        (Some("today"), Some("read_policy=latency"))
    );
    for trial in trials.as_array().expect("trials") {
        let n = |key: &str| trial[key].as_u64().unwrap_or_else(|| panic!("{key}: {trial}"));
        assert!(n("requests") > 0 && n("p50_ns") <= n("p99_ns") && n("p99_ns") <= n("max_ns"), "{trial}");
        assert_eq!(n("errors"), 0);
        let reads: u64 = trial["devices"].as_array().expect("devices").iter().filter_map(|d| d["reads"].as_u64()).sum();
        assert!(reads > 0);
    }
    assert_eq!(advice["measure"], "throughput");
}

#[test]
fn mistakes_are_one_sentence() {
    let real = desk();
    let (pool, job) = (real.word("pool.toml"), real.word("web.fio"));
    fs::write(real.path("bad.fio"), "[j]\nsize=1m\niodpeth=4\n").expect("write");
    let bad = real.word("bad.fio");
    fs::write(real.path("lone.toml"), "data = 'raid1'\n[[device]]\nclass = 'hdd'\nsize = '1T'\n").expect("write");
    let lone = real.word("lone.toml");
    for (line, part) in [
        (format!("--pool {pool}"), "what is asked? name a load with --job"),
        (format!("--pool {pool} --job {bad}"), "line 3: no option \"iodpeth\" is known"),
        (format!("--pool {pool}.toml --job {job}"), "cannot read"),
        (format!("--pool {lone} --job {job}"), "braid: data profile raid1 needs 2 devices"),
        (format!("--pool {pool} --job {job} --add hdd:9000P"), "variant add:hdd:9000P: device +hdd3 has "),
        (format!("--pool {pool} --job {job} --set faster"), "is no change"),
        (format!("--pool {pool} --job {job} --set read_policy=best"), "variant read_policy=best: "),
        (format!("--pool {pool} --job {job} --replace nvme=ssd"), "no device of class \"nvme\""),
        (format!("--pool {pool} --job {job} --model d7=nvme"), "the pool has no device \"d7\"; there are d"),
        (format!("--pool {pool} --files database"), "there are install, install-unsafe, tree, mail"),
        (format!("--pool {pool} --files mail,speed=1"), "no knob \"speed\""),
        (format!("--pool {pool} --trace {pool}"), "no request in the trace"),
    ] {
        let run = real.braid(&format!("lab what-if {line}"));
        assert!(run.code != 0 && run.err.contains(part), "{line}: {run:?}");
        assert!(run.err.lines().filter(|line| line.contains("braid: ")).count() <= 1, "{run:?}");
    }
    let run = real.braid(&format!("lab what-if --pool tank --job {job}"));
    assert_eq!(run.code, 3, "a live pool needs a daemon: {run:?}");
}

#[test]
fn a_file_system_is_a_load_with_knobs() {
    let real = desk();
    let pool = real.word("pool.toml");
    let out = real.ok(&format!("lab what-if --pool {pool} --files install,files=40 --replace hdd=ssd --seeds 1"));
    assert!(out.contains("Take replace:hdd=ssd"), "{out}");
}

/// Asks a volume for something over NBD.
fn ask(socket: &Path) {
    let mut client = Client::connect(socket, "tank/v", Wish::default()).expect("connect");
    let block = vec![7; 4096];
    for i in 0..64 {
        assert_eq!(client.write(0, i * 8192, &block).expect("write").error, 0);
    }
    assert_eq!(client.call(cmd::FLUSH, 0, 0, 0).expect("flush").error, 0);
    for i in 0..32 {
        assert_eq!(client.read(i * 8192, 4096).expect("read").error, 0);
    }
    client.disconnect().expect("disconnect");
}

#[test]
fn what_clients_ask_of_a_live_pool_is_recorded_shown_and_tried_on_variants() {
    let real = Real::start();
    real.tank("raid1", &[256 * MIB, 256 * MIB], 64 * MIB);
    real.ok("set read_policy=queue tank");
    let (socket, file) = (real.path("v.sock"), real.word("t.trace"));
    real.ok(&format!("share tank/v nbd --unix={}", socket.display()));
    let mut recorder = real.command();
    recorder.args(["trace", "record", "tank/v", "-o", &file, "--seconds", "2"]).stdout(Stdio::piped());
    let mut recorder = recorder.spawn().expect("it starts");
    // It records once the file is there.
    let begin = std::time::Instant::now();
    while !real.path("t.trace").exists() {
        assert!(begin.elapsed().as_secs() < 20, "the recorder does not begin");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    ask(&socket);
    assert!(recorder.wait().expect("it ends").success());
    let shown = real.json(&format!("trace show {file}"));
    let count = |of: &str| shown["directions"][of]["requests"].as_u64();
    assert_eq!((count("write"), count("sync"), count("read")), (Some(64), Some(1), Some(32)), "{shown}");
    assert_eq!(shown["notes"], serde_json::json!([]));
    let models = "--model d0.img=hdd --model d1.img=hdd";
    let out = real.ok(&format!("lab what-if --pool tank --trace {file} {models} --set read_policy=pid --seeds 1"));
    assert!(out.lines().any(|line| line.starts_with("d0.img")), "{out}");
    assert!(out.contains("fewest-in-flight"), "today's policy is the one that was set: {out}");
}

#[test]
fn a_flight_record_of_a_live_pool_gives_the_same_outputs_in_the_laboratory() {
    let mut real = Real::start();
    fs::create_dir(real.path("flights")).expect("mkdir");
    real.flags = vec!["--flight-record".into(), real.word("flights")];
    real.restart();
    real.tank("raid1", &[256 * MIB, 256 * MIB, 256 * MIB], 64 * MIB);
    let socket = real.path("v.sock");
    real.ok(&format!("share tank/v nbd --unix={}", socket.display()));
    ask(&socket);
    real.ok("set read_policy=latency tank");
    real.ok("scrub -w tank");
    ask(&socket);
    real.stop();
    let record = real.word("flights/tank.flight");
    let value = real.json(&format!("trace replay {record}"));
    let n = |key: &str| value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"));
    assert!(n("requests") >= 2 * 97 && n("completions") > 97 && n("outputs") > 400, "{value}");
    assert!(n("compared") >= 1 && value["cut"] == false, "{value}");
    // A single other input, and the outputs are others: the length of the last read, say.
    let mut bytes = fs::read(&record).expect("read");
    let needle = 4096u64.to_le_bytes();
    let at = (0..bytes.len() - 8).rev().find(|&at| bytes[at..at + 8] == needle).expect("a length of 4096");
    bytes[at..at + 8].copy_from_slice(&8192u64.to_le_bytes());
    fs::write(real.path("other.flight"), &bytes).expect("write");
    let run = real.braid(&format!("trace replay {}", real.word("other.flight")));
    assert!(run.code == 1 && run.err.contains("the engine differs from the recorded one"), "{run:?}");
}
