//! Pools on disks that are as slow as a model: `model:NAME,PATH`.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use braid_host::nbd::client::{Client, Wish};

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

#[test]
fn a_pool_on_a_modelled_disk_is_as_slow_as_that_and_comes_back_as_such() {
    let mut real = Real::start();
    let disk = format!("model:hdd,{}", real.disk("d0.img", 512 * MIB));
    real.ok(&format!("create tank -d single -m single {disk}"));
    real.ok("volume create tank/v 256M");
    let mut client = connect(&real);
    for i in 0..16u64 {
        client.write(0, i * 16 * MIB, &vec![i as u8 + 1; 65536]).expect("a write");
    }
    client.disconnect().expect("goodbye");
    for life in 0..2 {
        let device = &real.json("device list tank")[0];
        assert_eq!(device["path"], disk, "life {life}");
        assert_eq!((&device["class"], &device["model"]), (&"hdd".into(), &"model hdd".into()), "life {life}");
        assert!(real.ok("status").contains("answers no sooner than model hdd would"), "{}", real.ok("status"));
        let before = reads(&real);
        let mut client = connect(&real);
        let began = Instant::now();
        // Each is elsewhere than the one before: a seek, and half a turn on average.
        for i in (0..16u64).map(|i| i * 7 % 16) {
            let answer = client.read(i * 16 * MIB, 4096).expect("a read");
            assert!(answer.data.iter().all(|b| *b == i as u8 + 1), "block {i}");
        }
        // 16 times a millisecond to the next track is the least that there is; half a turn on average is 66 ms.
        assert!(began.elapsed() >= Duration::from_millis(40), "life {life}: {:?}", began.elapsed());
        assert_eq!(reads(&real) - before, 16, "life {life}");
        client.disconnect().expect("goodbye");
        real.kill();
        real.restart();
    }
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
        ("floppy", "no model is called \"floppy\"; there are nvme, sata-ssd, hdd".to_string()),
        (&bad, format!("model {bad}: line 4: units = 0 is out of range: 1 to 4096")),
        ("/nowhere.toml", "cannot read model /nowhere.toml".into()),
        ("", "a modelled one is model:NAME,PATH or model:FILE.toml,PATH".into()),
    ] {
        let run = real.words(&["create", "tank", &format!("model:{model},{disk}")]);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.err.contains(&wanted), "{run:?}, not {wanted}");
    }
}
