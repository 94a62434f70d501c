//! What lasts and what does not: settings, shares of a command, listings, TLS.

use super::{GIB, MIB, image};
use crate::real::{Real, shell};
use crate::tools::{Need, have, sh};

#[test]
fn parity_carries_data_and_metadata_survives_as_much() {
    let real = Real::start();
    let disks: Vec<String> = (0..4).map(|i| real.disk(&format!("d{i}"), GIB)).collect();
    let less = real.ok(&format!("create -n less -d raid6 -m raid1 {}", disks.join(" ")));
    assert!(less.contains("survives the fewer; use -m raid1c3"), "{less}");
    real.ok(&format!("create tank -d raid6 {}", disks.join(" ")));
    assert_eq!(real.ok("list -H -o name,data,meta"), "tank\traid6\traid1c3");
    real.ok("volume create tank/v 256M");
    let balanced = real.ok("balance start -m raid6 tank");
    assert!(balanced.contains("metadata on raid6 is kept on raid1c3: it survives as much"), "{balanced}");
    real.ok("wait tank");
    assert_eq!(real.ok("list -H -o name,data,meta"), "tank\traid6\traid1c3");
    real.ok("export tank");
}

#[test]
fn metadata_on_parity_is_kept_in_as_many_copies() {
    for (asked, kept) in [("raid5", "raid1"), ("raid6", "raid1c3")] {
        let real = Real::start();
        let disks: Vec<String> = (0..4).map(|i| real.disk(&format!("d{i}"), GIB)).collect();
        let made = real.ok(&format!("create tank -d {asked} -m {asked} {}", disks.join(" ")));
        assert!(made.contains(&format!("metadata on {asked} is kept on {kept}: it survives as much")), "{made}");
        assert_eq!(real.ok("list -H -o name,data,meta"), format!("tank\t{asked}\t{kept}"));
        real.ok("volume create tank/v 1G");
    }
}

#[test]
fn a_share_lives_as_long_as_the_command_that_it_runs() {
    if !have("a_share_lives_as_long_as_the_command_that_it_runs", &[Need::Tool("nbdinfo")]) {
        return;
    }
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 32 * MIB);
    let run = real.words(&["share", "tank/v", "nbd", "--run", "nbdinfo --size $uri"]);
    assert_eq!((run.code, run.out.trim()), (0, "33554432"), "{run:?}");
    let run = real.words(&["share", "tank/v", "nbd", "--run", "nbdinfo $uri >/dev/null && exit 7"]);
    assert_eq!(run.code, 7, "{run:?}");
    assert_eq!(real.ok("shares -H"), "");
    assert!(!real.path("run/nbd.sock").exists());
}

#[test]
fn listings_of_a_real_pool_are_json() {
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 32 * MIB);
    real.ok("share tank/v nbd");
    let dir = real.dir.path().display();
    for line in [
        "list",
        "list -t volume",
        "status",
        "status -v",
        "usage",
        "iostat",
        "iostat -v",
        "get all tank",
        "get all tank/v",
        "device list",
        "device stats",
        "device usage",
        "volume list",
        "volume map tank/v",
        "shares",
        "events",
        &format!("import -d {dir}"),
        &format!("device scan {dir}/d0.img"),
    ] {
        let value = real.json(line);
        assert!(value.is_array() || value.is_object(), "{line}: {value}");
    }
    for line in ["man", "man share", "completions bash", "completions zsh", "completions fish"] {
        assert!(real.ok(line).contains("share"), "{line}");
    }
}

#[test]
fn settings_outlive_the_daemon() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB, GIB], 32 * MIB);
    for line in [
        "set read_policy=round-robin:65536 strict=on tank",
        "device set tank 1 class=nvme tier.metadata=3 tier.data=255 read_preferred=on rotational=off",
        "volume set tank/v class=metadata",
    ] {
        real.ok(line);
    }
    let all = |real: &Real| -> Vec<serde_json::Value> {
        ["get all tank", "get all tank/v", "device list"]
            .map(|line| {
                let mut value = real.json(line);
                // What only counts since the pool was opened.
                for row in value.as_array_mut().into_iter().flatten().filter_map(|r| r.as_object_mut()) {
                    let counts = |name: &str| name.contains("alloc") || name == "slow_ios" || name == "read_latency_ns";
                    row.retain(|name, _| !counts(name));
                }
                value
            })
            .to_vec()
    };
    let before = all(&real);
    let device = &before[2][0];
    assert_eq!((&device["class"], &device["tiers"]["metadata"]), (&"nvme".into(), &3.into()), "{device}");
    real.restart();
    assert_eq!(all(&real), before, "after an orderly end");
    real.kill();
    real.restart();
    assert_eq!(all(&real), before, "after kill -9");
    assert!(real.ok("get read_policy tank").contains("[round-robin:65536]"));
}

#[test]
fn tls_is_required_of_everybody() {
    let tools = ["nbdcopy", "nbdinfo", "qemu-img"].map(Need::Tool);
    if !have("tls_is_required_of_everybody", &tools) {
        return;
    }
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 16 * MIB);
    let certificates = real.ok(&format!("tls init --dir {}", real.word("tls")));
    let uri = real.ok(&format!("share tank/v nbd --tcp 127.0.0.1:0 --tls require --tls-certificates {certificates}"));
    let address = uri.strip_prefix("nbds://").and_then(|u| u.split('/').next()).expect("an address").to_string();
    let port = address.rsplit(':').next().expect("a port");
    let with = format!("nbds://{address}/tank/v?tls-certificates={certificates}");
    let (one, out) = (image(&real, "one.img", 16 * MIB), real.word("out.img"));
    sh(&format!("nbdcopy {one} '{with}'; nbdcopy '{with}' {out}; cmp {one} {out}"));
    assert!(sh(&format!("nbdinfo --json '{with}'")).contains("\"TLS\": true"));
    sh(&format!(
        "qemu-img compare --object tls-creds-x509,id=tls,endpoint=client,dir={certificates} --image-opts \
         driver=raw,file.filename={one} driver=nbd,host=127.0.0.1,port={port},export=tank/v,tls-creds=tls"
    ));
    for plain in [format!("nbdinfo nbd://{address}/tank/v"), format!("qemu-img info nbd://{address}/tank/v")] {
        let run = shell(&plain);
        assert!(run.code != 0 && !run.out.contains("16777216"), "{plain}: {run:?}");
    }
    // Another authority's certificates are no better than none.
    real.ok(&format!("tls init --dir {}", real.word("strange")));
    let strange = format!("nbds://{address}/tank/v?tls-certificates={}", real.word("strange"));
    assert_ne!(shell(&format!("nbdinfo --size '{strange}'")).code, 0);
    sh(&format!("nbdinfo --size '{with}'"));
}
