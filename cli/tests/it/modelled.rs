//! Pools on disks that are as slow as a model: `model:NAME,PATH`.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;

use crate::real::Real;

const MIB: u64 = 1 << 20;

fn connect(real: &Real) -> Client<UnixStream> {
    let socket = real.path("v.sock");
    real.ok(&format!("share --temporary tank/v nbd --unix={}", socket.display()));
    Client::connect(&socket, "tank/v", Wish::default()).expect("a client")
}

/// Reads that the disk did, log and all.
fn reads(real: &Real) -> u64 {
    real.json("iostat tank")["pools"][0]["devices"][0]["io"]["reads"].as_u64().expect("a number")
}

/// The seed's example of unlike disks, and what of it is said beforehand.
#[test]
fn members_and_tiers_of_a_pool_are_told_before_anything_is_written() {
    let real = Real::start();
    let disk = |model: &str, i: u32, mib| format!("model:{model},{}", real.disk(&format!("d{i}.img"), mib * MIB));
    let ssds = (1..4).map(|i| disk("sata-ssd", i, 512));
    let disks: Vec<String> = ssds.chain((4..6).map(|i| disk("hdd", i, 1024))).collect();
    let told = real.ok(&format!("create -n tank -d raid6 -m raid6 {}", disks.join(" ")));
    for line in [
        &format!("device 4: {}, 1GiB, class hdd; answers no sooner than model hdd would", disks[3]),
        "allocation tiers: the lowest tier first, the next where that has too few members or no room",
        "metadata: first device 1 2 3 (tier 1), then 4 5 (tier 2)",
        "data: first device 4 5 (tier 0), then 1 2 3 (tier 1)",
        "to device 1 2 3\n",
        "to device 4 5 1 2 3\n",
    ] {
        assert!(told.contains(line), "{told}\nlacks {line}");
    }
    assert!(real.ok("list").lines().all(|line| !line.contains("tank")));
    let told = real.ok(&format!("create -n tank -d raid1 -m raid1 --mode stock {}", disks.join(" ")));
    assert!(told.contains("allocation stock: the most free space first") && !told.contains("tier 0"), "{told}");
    // What is flash is `nvme` by its name.
    let (fast, far) = (real.disk("d6.img", 512 * MIB), real.disk("d7.img", 512 * MIB));
    let classes = real.ok(&format!("create -n tank -d raid1 -m raid1 model:nvme,{fast} model:rbd,{far}"));
    assert!(classes.contains("class nvme; answers") && classes.contains("class net; answers"), "{classes}");
}

#[test]
fn a_pool_on_a_modelled_disk_is_as_slow_as_that_and_comes_back_as_such() {
    let mut real = Real::start();
    let disk = format!("model:hdd,{}", real.disk("d0.img", 512 * MIB));
    // Without checksums: after a crash those of what was being written are looked at, beside the reads that are counted here.
    real.ok(&format!("create tank -o checksum=none -d single -m single {disk}"));
    real.ok("volume create tank/v 256M");
    let mut client = connect(&real);
    for i in 0..160u64 {
        client.write(0, i * MIB, &vec![i as u8; MIB as usize]).expect("a write");
    }
    client.call(cmd::FLUSH, 0, 0, 0).expect("a flush");
    client.disconnect().expect("goodbye");
    for life in 0..2 {
        let device = &real.json("device list tank")[0];
        assert_eq!(device["path"], disk, "life {life}");
        assert_eq!((&device["class"], &device["model"]), (&"hdd".into(), &"model hdd".into()), "life {life}");
        assert!(real.ok("status").contains("answers no sooner than model hdd would"), "{}", real.ok("status"));
        let before = reads(&real);
        let mut client = connect(&real);
        let began = Instant::now();
        // Each is 10 MiB or more from the one before, which is several tracks.
        for i in (0..16u64).map(|i| i * 7 % 16 * 10) {
            let answer = client.read(i * MIB, 4096).expect("a read");
            assert!(answer.data.iter().all(|b| *b == i as u8), "block {i}");
        }
        // The least there is, without turning: each a seek to the next track.
        assert!(began.elapsed() >= Duration::from_millis(16), "life {life}: {:?}", began.elapsed());
        assert_eq!(reads(&real) - before, 16, "life {life}");
        client.disconnect().expect("goodbye");
        real.kill();
        real.restart();
    }
    real.ok("export tank");
    let folder = real.dir.path().display();
    let plain = real.ok(&format!("import -d {folder}"));
    assert!(plain.contains(&format!("device 1 came as {disk} and is plain now")), "{plain}");
    let again = real.ok(&format!("import {disk} tank"));
    assert!(!again.contains("is plain now"), "{again}");
    assert!(real.ok("status").contains("answers no sooner than model hdd would"), "{}", real.ok("status"));
    real.ok("destroy -y tank");
    let found = real.braid(&format!("import -d {}", real.dir.path().display()));
    assert!(!found.out.contains("tank"), "its file has forgotten it: {found:?}");
}

#[test]
fn models_that_are_not_there_are_told_in_a_sentence() {
    let real = Real::start();
    let disk = real.disk("d0.img", 64 * MIB);
    std::fs::write(real.path("bad.toml"), "name = \"x\"\nkind = \"flash\"\nabout = \"\"\nunits = 0\n").expect("a file");
    let bad = real.word("bad.toml");
    for (model, wanted) in [
        ("floppy", "no model is called \"floppy\"; there are nvme, sata-ssd, ".to_string()),
        (&bad, format!("model {bad}: line 4: units = 0 is out of range: 1 to 4096")),
        ("/nowhere.toml", "cannot read model /nowhere.toml".into()),
        ("", "a modelled one is model:NAME,PATH or model:FILE.toml,PATH".into()),
    ] {
        let run = real.words(&["create", "tank", &format!("model:{model},{disk}")]);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.err.contains(&wanted), "{run:?}, not {wanted}");
    }
}

/// A disk that isn't there is measured, and found to be what its model says.
#[test]
fn a_modelled_disk_is_probed_and_its_model_found_again() {
    let real = Real::start();
    let disk = format!("model:hdd,{}", real.disk("d0.img", 4096 * MIB));
    let file = real.word("found.toml");
    let found = real.json(&format!("device probe {disk} --seconds 5 -o {file}"));
    assert_eq!(
        (&found["rotational"], &found["kind"], &found["saved"]),
        (&true.into(), &"hdd".into(), &file[..].into())
    );
    let loads = found["loads"].as_array().expect("loads");
    assert_eq!(loads.len(), 5, "reads only");
    // No sooner than the model: a random read of one at a time takes several ms, a stream no more than 210 MB/s.
    assert!(loads[0]["mean_ns"].as_u64().expect("a time") > 5_000_000, "{found}");
    assert!(loads[3]["kib_per_second"].as_u64().expect("a rate") < 230_000, "{found}");
    let text = std::fs::read_to_string(&file).expect("the model");
    assert!(text.contains("# Measured: ") && text.contains("name = \"found\""), "{text}");
    real.ok(&format!("create tank -d single -m single model:{file},{}", real.disk("d1.img", 4096 * MIB)));
    assert!(real.ok("status").contains("answers no sooner than model found would"));
    let out = real.ok("lab what-if --pool tank --files mail,files=2 --seeds 1");
    assert!(out.contains("1 hdd of 4GiB (model found)"), "in the laboratory it is such a disk as well: {out}");
}

#[test]
fn what_would_spoil_a_probe_is_told_before_it() {
    let real = Real::start();
    let sparse = real.disk("sparse.img", 64 * MIB);
    let seconds = "--seconds 3600";
    for (line, code, part) in [
        (format!("{sparse} {seconds} -o {sparse}"), 2, "a model is saved as FILE.toml"),
        (format!("{sparse} {seconds} -o /nosuch/m.toml"), 2, "there is no such folder"),
        (format!("{sparse} {seconds} --base floppy"), 2, "no model is called \"floppy\""),
        (format!("{sparse}x {seconds}"), 4, "there is no disk or file"),
        (format!("{sparse} --seconds 5m"), 2, "write a whole number from 1 to 3600"),
    ] {
        let run = real.braid(&format!("device probe {line}"));
        assert!(run.code == code && run.err.contains(part), "{line}: {run:?}");
    }
    let note = &real.json(&format!("device probe {sparse} --seconds 1"))["notes"][0];
    assert!(note.as_str().expect("a note").contains("was never written"), "{note}");
}

#[test]
fn writes_are_measured_only_where_nothing_is() {
    let real = Real::start();
    real.tank("single", &[64 * MIB, 64 * MIB], 4 * MIB);
    real.ok("export tank");
    let before = std::fs::read(real.path("d0.img")).expect("a member");
    let run = real.braid(&format!("device probe --write --seconds 1 {}", real.word("d0.img")));
    assert_eq!(run.code, 5, "{run:?}");
    assert!(run.err.contains("is not written over: it is device 1 of pool tank"), "{run:?}");
    assert!(before == std::fs::read(real.path("d0.img")).expect("a member"), "it was not touched");
    let blank = real.disk("blank.img", 64 * MIB);
    assert_eq!(real.json(&format!("device probe --write --seconds 1 {blank}"))["loads"][6]["load"], "stream of writes");
}

#[test]
fn a_run_of_fio_becomes_a_model() {
    let real = Real::start();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/tests/fixtures/fio.json");
    let found = real.json(&format!("device fit {fixture} --name mine"));
    assert_eq!((&found["name"], &found["kind"]), (&"mine".into(), &"flash".into()));
    assert!(found["notes"][0].as_str().expect("a note").contains("job mixed is left out"), "{found}");
    std::fs::write(real.path("y.json"), "{}").expect("write");
    for (file, part) in [(real.disk("x.json", 4096), "it is not text"), (real.word("y.json"), "no output of fio")] {
        let run = real.braid(&format!("device fit {file}"));
        assert!(run.code == 2 && run.err.contains(part), "{run:?}");
    }
    // Through the page cache, and 50,000 single writes a second where 32 at once do 500: a cache would be full at once.
    let job = |name, depth: u64, iops: u64| {
        format!(
            r#"{{"jobname": "{name}", "job options": {{"rw": "randwrite", "iodepth": "{depth}", "ioengine": "libaio"}},
            "write": {{"iops": {iops}, "bw": {}, "lat_ns": {{"mean": {}}}}}}}"#,
            iops * 4,
            depth * 1_000_000_000 / iops
        )
    };
    std::fs::write(real.path("z.json"), format!(r#"{{"jobs": [{},{}]}}"#, job("one", 1, 50_000), job("deep", 32, 500)))
        .expect("write");
    let out = real.ok(&format!("device fit {}", real.word("z.json")));
    assert!(out.contains("note: fio job one") && out.contains("went through the page cache"), "{out}");
    assert!(out.contains("\nwarning: fio job one (rw=randwrite bs=4k depth 1): the model does "), "{out}");
    let fast = r#"{"jobs": [{"jobname": "a", "read": {"iops": 1e300, "bw": 4, "lat_ns": {"mean": 1000}}}]}"#;
    std::fs::write(real.path("fast.json"), fast).expect("write");
    let run = real.braid(&format!("device fit {}", real.word("fast.json")));
    assert!(run.code == 1 && run.err.contains("job a is left out: 1e300 requests a second"), "{run:?}");
}
