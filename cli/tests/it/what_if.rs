//! `braid lab what-if` and `braid trace`, on descriptions of pools and on a live one.

use crate::real::Real;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

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
    assert!(out.contains("To compare it with something, name variants with --set"), "{out}");
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

/// A write of 4 KiB as blkparse prints it.
fn line(at: &str, sector: u64) -> String {
    format!("8,0 3 1 {at} 697 Q W {sector} + 8 [fio]\n")
}

#[test]
fn mistakes_are_one_sentence() {
    let real = desk();
    let (pool, job) = (real.word("pool.toml"), real.word("web.fio"));
    fs::write(real.path("bad.fio"), "[j]\nsize=1m\niodpeth=4\n").expect("write");
    fs::write(real.path("huge.fio"), "[j]\nrw=read\nsize=20T\n").expect("write");
    fs::write(real.path("late.fio"), "[j]\nsize=1m\nstartdelay=18446744073\n").expect("write");
    fs::write(real.path("most.fio"), "[j]\nsize=18446744073709551615\n").expect("write");
    fs::write(real.path("far.txt"), format!("{}{}", line("0.0", 0), line("18446744072.0", 8))).expect("write");
    let (bad, huge) = (real.word("bad.fio"), real.word("huge.fio"));
    let (late, most) = (real.word("late.fio"), real.word("most.fio"));
    for (line, code, part) in [
        (format!("--pool {pool}"), 2, "what is asked? name a load with --job"),
        (format!("--job {job}"), 2, "--pool <POOL|FILE.toml> <--job <FILE>|--trace <FILE>|--files <NAME>>"),
        (format!("--pool {pool} --job {bad}"), 2, "line 3: no option \"iodpeth\" is known"),
        (
            format!("--pool {pool} --job {huge}"),
            2,
            "the load touches 20480 GiB of volume v0, more than the pool can hold",
        ),
        (format!("--pool {pool}x.toml --job {job}"), 4, "there is no file"),
        (format!("--pool {pool} --job {job}x"), 4, "you may mean"),
        (format!("--pool {job}/ --job {job}"), 4, "there is no file"),
        (format!("--pool {job} --job {job}"), 2, "line 6: key with no value, expected `=`"),
        (format!("--pool {pool} --job {job} --set faster"), 2, "is no change"),
        (format!("--pool {pool} --job {job} --set read_policy=best"), 2, "variant read_policy=best: "),
        (format!("--pool {pool} --job {job} --replace nvme=ssd"), 2, "no device of class \"nvme\", only hdd, ssd"),
        (format!("--pool {pool} --job {job} --add nvme:many"), 2, "\"many\" is no size"),
        (
            format!("--pool {pool} --job {job} --model d7=nvme"),
            2,
            "no device or class \"d7\"; its devices are d0, d1, ssd2",
        ),
        (format!("--pool {pool} --job {job} --seconds 30s"), 2, "write a whole number of 1 or more"),
        (format!("--pool {pool} --job {job} --requests 0"), 2, "see: braid lab what-if --help"),
        (format!("--pool {pool} --files database"), 2, "there are install, install-unsafe, tree, mail"),
        (format!("--pool {pool} --files mail,speed=1"), 2, "no knob \"speed\""),
        (format!("--pool {pool} --files install,cpu_ns=18446744073709551615"), 2, "at most 3600000000000 ns, an hour"),
        (format!("--pool {pool} --files install,metadata_reads=1000000000"), 2, "would make 1000000000 requests"),
        (format!("--pool {pool} --files tree,data_area=18446744073709547520"), 2, "at most 1125899906842624 bytes"),
        (format!("--pool {pool} --job {late}"), 2, "a time such as 30, 30s or 5m, at most a year"),
        (format!("--pool {pool} --job {most}"), 2, "a volume has"),
        (format!("--pool {pool} --trace {pool}"), 2, "no request in it"),
    ] {
        let run = real.braid(&format!("lab what-if {line}"));
        assert!(run.code == code && run.err.contains(part), "{line}: {run:?}");
        assert!(run.err.lines().filter(|line| line.contains("braid: ")).count() <= 1, "{run:?}");
    }
    let far = real.ok(&format!("lab what-if --pool {pool} --trace {}", real.word("far.txt")));
    assert!(far.contains("cut after 30 virtual seconds"), "{far}");
    let run = real.braid(&format!("lab what-if --pool tank --job {job}"));
    assert_eq!(run.code, 3, "a live pool needs a daemon: {run:?}");
    assert!(run.err.contains("or describe a pool in a file"), "{run:?}");
}

/// Jobs one after the other, of which the second never gets its turn.
const TWO_JOBS: &str = "\
[global]
ioengine=libaio
size=64m
filename=/dev/nbd0
[mixed]
rw=randrw
rwmixread=70
iodepth=8
[backup]
stonewall
rw=read
bs=1m
";

#[test]
fn the_answer_says_what_it_is_about() {
    let real = desk();
    fs::write(real.path("two.fio"), TWO_JOBS).expect("write");
    let (pool, job) = (real.word("pool.toml"), real.word("two.fio"));
    let run = |rest: &str| real.ok(&format!("lab what-if --pool {pool} --job {job} --seeds 1 {rest}"));
    let out = run("--requests 500");
    assert!(out.contains("Today: data raid1, metadata raid1 on 2 hdd of 100GiB (model hdd), 1 ssd of 20GiB"), "{out}");
    assert!(out.contains("; read_policy=pid checksum=crc32c\n"), "{out}");
    for job in ["mixed read ", "mixed write "] {
        assert!(out.lines().any(|line| line.starts_with(job)), "{job}: {out}");
    }
    assert!(out.contains("note: cut after 500 answers (--requests), in the middle of mixed, before backup"), "{out}");
    assert!(out.contains("name variants with --set"), "nothing to compare: {out}");
    let out = run("--requests 500 --set mode=stock --set read-policy=queue --model ssd=sata-ssd --model d0=hdd-5400");
    assert!(out.contains("1 hdd of 100GiB (model hdd-5400), 1 hdd of 100GiB (model hdd)"), "{out}");
    assert!(out.contains("Reads: ") && out.contains("Queues: "), "{out}");
    assert!(out.contains("note: of several jobs the geometric mean decides"), "{out}");
    assert!(out.lines().any(|line| line.starts_with("mode=stock ")), "as it was written: {out}");
    assert!(run("--seconds 1").contains("cut after 1 virtual seconds (--seconds)"));
    let long = "--set read_policy=queue --set read_policy=latency-2024 --set read_policy=round-robin:262144";
    let out = run(&format!("--requests 500 {long}"));
    assert!(out.lines().all(|line| line.len() <= 120 || line.starts_with("Today: ")), "{out}");
    assert!(out.contains("\nB  read_policy=queue ") && out.contains("\ndevice "), "{out}");
}

/// The example of the documentation, with the files that stand beside it.
#[test]
fn the_example_of_the_documentation_is_what_is_printed() {
    let text = include_str!("../../../docs/lab.md");
    let block = |begin: &str| {
        let block = text.split(begin).nth(1).and_then(|rest| rest.split("```").next());
        block.unwrap_or_else(|| panic!("docs/lab.md has a block that begins with {begin:?}"))
    };
    let real = desk();
    fs::write(real.path("box.toml"), block("```toml\n# box.toml")).expect("write");
    fs::write(real.path("home.fio"), block("```ini\n; home.fio")).expect("write");
    let (command, shown) = block("```text\n$ braid ").split_once('\n').expect("a command and what it prints");
    let command = command.replace("box.toml", &real.word("box.toml")).replace("home.fio", &real.word("home.fio"));
    let printed = real.ok(&command);
    assert!(printed == shown.trim_end(), "the example in docs/lab.md prints now:\n{printed}");
}

#[test]
fn a_file_system_is_a_load_with_knobs() {
    let real = desk();
    let pool = real.word("pool.toml");
    let out = real.ok(&format!("lab what-if --pool {pool} --files install,files=40 --replace hdd=ssd --seeds 1"));
    assert!(out.contains("Take replace:hdd=ssd"), "{out}");
    // One run each: nobody knows how far another would be.
    let today = out.lines().find(|line| line.starts_with("today ")).expect("a row");
    assert!(today.ends_with(" -") && !out.contains("0.0%  "), "{out}");
    let told = real.json(&format!("lab what-if --pool {pool} --files install,files=4 --seeds 1"));
    assert!(told["trials"][0]["spread_permille"].is_null(), "{told}");
}

/// Asks a volume for something over NBD.
fn ask(socket: &Path) {
    ask_of(socket, "tank/v");
}

fn ask_of(socket: &Path, volume: &str) {
    let mut client = Client::connect(socket, volume, Wish::default()).expect("connect");
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

/// The first line of a trace is written out when the recorder records and is ready for Ctrl-C.
fn wait_for_text(path: &Path) {
    let begin = Instant::now();
    while fs::read(path).unwrap_or_default().is_empty() {
        assert!(begin.elapsed().as_secs() < 20, "the recorder does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ctrl-C.
fn interrupt(recorder: &mut Child) {
    // SAFETY: our own child, not yet waited for, so the number is still its.
    unsafe { libc::kill(recorder.id() as i32, libc::SIGINT) };
    assert!(recorder.wait().expect("it ends").success());
}

#[test]
fn what_clients_ask_of_a_live_pool_is_recorded_shown_and_tried_on_variants() {
    let real = Real::start();
    real.tank("raid1", &[256 * MIB, 256 * MIB], 64 * MIB);
    real.ok("set read_policy=queue tank");
    let (socket, file) = (real.path("v.sock"), real.word("t.trace"));
    real.ok(&format!("share tank/v nbd --unix={}", socket.display()));
    let mut recorder = real.command();
    recorder.args(["trace", "record", "tank/v", "-o", &file, "--seconds", "600"]).stdout(Stdio::piped());
    let mut recorder = recorder.spawn().expect("it starts");
    wait_for_text(&real.path("t.trace"));
    ask(&socket);
    interrupt(&mut recorder);
    let shown = real.json(&format!("trace show {file}"));
    let count = |of: &str| shown["directions"][of]["requests"].as_u64();
    assert_eq!((count("write"), count("sync"), count("read")), (Some(64), Some(1), Some(32)), "{shown}");
    assert_eq!(shown["notes"], serde_json::json!([]));
    let run = real.braid("lab what-if --pool tank/v --files mail");
    assert!(run.code == 4 && run.err.contains("without its volumes: --pool tank"), "{run:?}");
    let models = "--model d0.img=hdd --model d1.img=hdd";
    let out = real.ok(&format!("lab what-if --pool tank --trace {file} {models} --set read_policy=pid --seeds 1"));
    assert!(out.lines().any(|line| line.starts_with("d0.img")), "{out}");
    assert!(out.contains("fewest-in-flight"), "today's policy is the one that was set: {out}");
}

#[test]
fn a_trace_of_a_whole_pool_is_replayed_on_as_many_volumes() {
    let real = Real::start();
    real.tank("raid1", &[256 * MIB, 256 * MIB], 64 * MIB);
    real.ok("volume create tank/w 32M");
    real.ok("set checksum=none tank/w");
    let mut recorder = real.command();
    recorder.args(["trace", "record", "tank", "-o", &real.word("t.trace"), "--seconds", "600"]).stdout(Stdio::null());
    let mut recorder = recorder.spawn().expect("it starts");
    wait_for_text(&real.path("t.trace"));
    for volume in ["tank/v", "tank/w"] {
        let socket = real.path(&format!("{}.sock", &volume[5..]));
        real.ok(&format!("share {volume} nbd --unix={}", socket.display()));
        ask_of(&socket, volume);
    }
    interrupt(&mut recorder);
    let file = real.word("t.trace");
    assert!(fs::read_to_string(real.path("t.trace")).expect("the trace").contains(",4096,\"\",\"w\"]\n"));
    let shown = real.ok(&format!("trace show {file}"));
    assert!(shown.contains("194 requests of ") && shown.contains(" of 2 volumes\n"), "{shown}");
    let out = real.json(&format!("lab what-if --pool tank --trace {file} --seeds 1"));
    assert_eq!(out["notes"].to_string(), "[]", "each is like the one of its name");
    let jobs = out["trials"][0]["jobs"].as_array().expect("jobs");
    let told: Vec<_> =
        jobs.iter().map(|job| (job["name"].as_str(), job["directions"]["write"]["requests"].as_u64())).collect();
    assert_eq!(told, [(Some("v"), Some(64)), (Some("w"), Some(64))]);
}

/// Trials of random reads on a live pool: today's, and one for each `--set`.
fn trials(real: &Real, rest: &str) -> (Vec<serde_json::Value>, String) {
    fs::write(real.path("small.fio"), "[j]\nrw=randread\nbs=4k\nsize=16m\niodepth=8\nioengine=libaio\n")
        .expect("write");
    let job = real.word("small.fio");
    let value = real.json(&format!("lab what-if --pool tank --job {job} --seeds 1 --requests 500 {rest}"));
    (value["trials"].as_array().expect("trials").clone(), value["notes"].to_string())
}

#[test]
fn todays_pool_is_the_live_one_with_its_checksums_tiers_queues_and_spares() {
    let real = Real::start();
    let disks = ["hdd", "nvme", "nvme"].iter().enumerate();
    let disks: Vec<String> =
        disks.map(|(i, model)| format!("model:{model},{}", real.disk(&format!("d{i}.img"), 256 * MIB))).collect();
    real.ok(&format!("create tank -f -d single -m single {} {}", disks[0], disks[1]));
    real.ok(&format!("add -f --spare tank {}", disks[2]));
    for set in ["tier.data=0 tank 2", "tier.data=255 tank 1", "scheduler=deadline tank"] {
        real.ok(&format!("set {set}"));
    }
    let hashes = |rest: &str| {
        let (trials, notes) = trials(&real, rest);
        let reads: Vec<_> = trials[0]["devices"].as_array().expect("devices").iter().map(|d| d["reads"] != 0).collect();
        assert_eq!(reads, [false, true], "data is on the NVMe, and the spare is none of them: {trials:?}");
        assert!(notes.contains("d2.img is a spare; it is left out"), "{notes}");
        trials.iter().map(|trial| trial["hash"].to_string()).collect::<Vec<_>>()
    };
    let new = hashes("--set checksum=crc32c --set checksum=none --set scheduler=deadline --set scheduler=braid");
    assert!(new[0] == new[1] && new[0] == new[3], "as it is set: {new:?}");
    assert!(new[0] != new[2] && new[0] != new[4], "{new:?}");
    real.ok("volume create tank/v 32M");
    real.ok("set checksum=none tank/v");
    assert_ne!(hashes("")[0], new[0], "all volumes are without checksums");
    real.ok("volume create tank/w 32M");
    let (mixed, notes) = trials(&real, "");
    assert_eq!(mixed[0]["hash"].to_string(), new[0]);
    assert!(notes.contains("the pool's volumes differ in class or checksum"), "{notes}");
}

#[test]
fn a_member_that_is_away_is_away_in_the_laboratory() {
    let real = Real::start();
    real.tank("raid1", &[256 * MIB, 256 * MIB, 256 * MIB], 16 * MIB);
    real.ok("remove -w tank 1");
    real.ok("set read_policy=devid:3 tank");
    let reads = |trials: &[serde_json::Value], i: usize| trials[0]["devices"][i]["reads"].as_u64();
    let (third, notes) = trials(&real, "");
    assert!(reads(&third, 0) < reads(&third, 1) && notes == "[]", "device 3 is the second here: {third:?} {notes}");
    real.ok("offline tank 3");
    let (alone, notes) = trials(&real, "");
    assert!(reads(&alone, 0) > Some(0) && reads(&alone, 1) == Some(0), "{alone:?}");
    assert!(notes.contains("d2.img is MISSING, and so it is missing here"), "{notes}");
}

#[test]
fn a_recorder_that_is_interrupted_leaves_a_whole_trace() {
    let real = Real::start();
    real.tank("single", &[64 * MIB], 4 * MIB);
    let mut recorder = real.command();
    recorder.args(["trace", "record", "tank", "-o", &real.word("t.trace"), "--seconds", "600"]).stdout(Stdio::null());
    let mut recorder = recorder.spawn().expect("it starts");
    wait_for_text(&real.path("t.trace"));
    interrupt(&mut recorder);
    let text = fs::read_to_string(real.path("t.trace")).expect("the trace");
    assert!(text.ends_with("{\"end\":{\"lost\":0,\"requests\":0}}\n"), "{text}");
}

#[test]
fn what_is_no_trace_is_told_at_once() {
    let real = desk();
    fs::write(real.path("tank.flight"), "BRAIDFL2\0").expect("write");
    fs::write(real.path("older.flight"), "BRAIDFL1\0").expect("write");
    real.disk("disk.img", 3 << 40);
    for (line, code, part) in [
        ("show nosuch.trace", 4, "there is no file nosuch.trace"),
        (&*format!("show {}", real.word("disk.img")), 2, "it has 3TiB, and at most 4GiB are read"),
        (&*format!("show {}", real.word("tank.flight")), 2, "replay it with: braid trace replay"),
        (&*format!("show {}", real.word("web.fio")), 2, "no request in it"),
        (&*format!("replay {}", real.word("web.fio")), 2, "it does not begin as a flight record does"),
        (&*format!("replay {}", real.word("older.flight")), 2, "another version of braid made this flight record"),
    ] {
        let run = real.braid(&format!("trace {line}"));
        assert!(run.code == code && run.err.contains(part), "{line}: {run:?}");
    }
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
    // One bit here and there: the same, another, or a sentence about the record.
    let whole = fs::read(&record).expect("read");
    for at in (0..20).map(|i| whole.len() * (i + 1) / 21) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(real.path("other.flight"), &bytes).expect("write");
        let run = real.braid(&format!("trace replay {}", real.word("other.flight")));
        assert!(run.code <= 1 && !run.err.contains("panicked"), "byte {at}: {run:?}");
    }
}
