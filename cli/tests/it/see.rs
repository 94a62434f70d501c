//! Seeing it, on a real daemon: `iostat -l -q -w -r`, `why`, `/metrics`, and the settings of queues.

use crate::exposition::Page;
use crate::mock::Mock;
use crate::real::Real;
use braid_core::queue::config;
use braid_host::control::api::{DeviceStatus, IoSnapshot, PoolIo};
use braid_host::control::metrics;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use serde_json::Value;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const READS: u64 = 1000;

/// Eight MiB written, then 4 KiB reads all over them, 32 at a time.
fn load(real: &Real, reads: u64) {
    let mut client = Client::connect(&real.path("run/nbd.sock"), "tank/v", Wish::default()).expect("connect");
    let data = vec![7; MIB as usize];
    for i in 0..8 {
        client.send_write(i, 0, i * MIB, &data);
        assert_eq!(client.recv().expect("an answer").error, 0);
    }
    let mut sent = 0;
    for got in 0..reads {
        while sent < reads && sent < got + 32 {
            client.send_read(sent, (sent * 7919 % 2048) * 4096, 4096);
            sent += 1;
        }
        assert_eq!(client.recv().expect("an answer").error, 0);
    }
    client.disconnect().expect("disconnect");
}

fn loaded() -> Real {
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 32 * MIB);
    real.ok("share tank/v nbd");
    real.ok("set sync_read_min_active=1 sync_read_max_active=1 tank");
    load(&real, READS);
    real
}

fn n(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Numbers of a line of `-Hp`.
fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().map(|w| w.parse().unwrap_or(0)).collect()
}

#[test]
fn stages_classes_and_sizes_add_up() {
    let real = loaded();
    let snapshot = real.json("iostat -w tank");
    let pool = &snapshot["pools"][0];
    let mut reads = 0;
    for device in pool["devices"].as_array().expect("devices") {
        let class = &device["queue"]["classes"]["sync_read"];
        let count =
            |name: &str| -> u64 { class["histograms"][name]["counts"].as_array().expect("counts").iter().map(n).sum() };
        let ios = n(&class["ios"]);
        assert_eq!([count("queue_ns"), count("device_ns"), count("total_ns"), count("size_before")], [ios; 4]);
        assert_eq!(class["histograms"]["total_ns"]["sum"], class["total_ns"]);
        assert_eq!(count("size_after"), n(&device["io"]["reads"]), "commands, after merging");
        assert!(n(&class["queue_ns"]) + n(&class["device_ns"]) == n(&class["total_ns"]), "{class}");
        assert!(n(&class["waited"]) <= n(&class["left"]) && n(&class["waited_ns"]) <= n(&class["queue_ns"]), "{class}");
        assert_eq!(n(&class["bytes"]), ios * 4096);
        reads += ios;
    }
    assert_eq!((reads, n(&pool["client"]["reads"]), n(&pool["volumes"][0]["io"]["reads"])), (READS, READS, READS));
    assert!(!real.json("iostat tank").to_string().contains("histograms"), "only when asked");

    // The tables show the same.
    let sum = |line: &str| -> u64 { real.ok(line).lines().map(|l| numbers(l)[0]).sum() };
    for column in ["total_wait.read", "disk_wait.read", "syncq_wait.read"] {
        assert_eq!(sum(&format!("iostat -Hpw -o {column} tank")), READS, "{column}");
    }
    assert_eq!(sum("iostat -Hpr -o sync_read.ind tank"), READS);
    let text = real.ok("iostat -vl tank");
    for heading in ["TOTAL_WAIT", "DISK_WAIT", "SYNCQ_WAIT", "ASYNCQ_WAIT", "SCRUB", "TRIM"] {
        assert!(text.contains(heading), "{heading}: {text}");
    }
    let waits = numbers(&real.ok("iostat -Hp -o total_wait.read,syncq_wait.read,disk_wait.read tank"));
    assert!(waits[1] > 0 && waits[2] > 0 && waits[0].abs_diff(waits[1] + waits[2]) <= 2, "{waits:?}");
    let text = real.ok("iostat -q tank");
    assert!(text.contains("SYNCQ_READ") && text.contains("ACTIV"), "{text}");
    // One interval without load: nothing of what was before.
    assert_eq!(real.ok("iostat -Hp -o total_wait.read,syncq_read.pend,read_s tank 0.05 1"), "-\t0\t0");
    assert_eq!(real.ok("iostat -Hpw -o total_wait.read tank 0.05 1").lines().map(|l| numbers(l)[0]).sum::<u64>(), 0);
    real.refuses("iostat -wl tank", 2, &["cannot be used with"]);
}

#[test]
fn metrics_are_valid_and_agree_with_iostat() {
    let real = loaded();
    real.ok("volume create tank/idle 16M");
    let snapshot = real.json("iostat -w tank");
    let page = Page::parse(&real.ok("metrics")).unwrap_or_else(|e| panic!("{e}"));
    let pool = &snapshot["pools"][0];
    let get =
        |name: &str, labels: &[(&str, &str)]| page.value(name, labels).unwrap_or_else(|| panic!("{name} {labels:?}"));
    assert_eq!(get("braid_pool_client_operations_total", &[("pool", "tank"), ("op", "read")]), READS as f64);
    assert_eq!(
        get("braid_volume_operations_total", &[("pool", "tank"), ("volume", "v"), ("op", "read")]),
        READS as f64
    );
    assert_eq!(get("braid_volume_size_bytes", &[("pool", "tank"), ("volume", "idle")]), (16 * MIB) as f64);
    assert_eq!(get("braid_pool_state", &[("pool", "tank"), ("state", "ONLINE")]), 1.0);
    for device in pool["devices"].as_array().expect("devices") {
        let (id, class) = (device["id"].to_string(), &device["queue"]["classes"]["sync_read"]);
        for (stage, key) in [("queue", "queue_ns"), ("device", "device_ns"), ("total", "total_ns")] {
            let labels = [("pool", "tank"), ("device", &*id), ("op", "read"), ("class", "sync_read"), ("stage", stage)];
            assert_eq!(get("braid_device_io_seconds_count", &labels), n(&class["ios"]) as f64);
            let sum = get("braid_device_io_seconds_sum", &labels);
            assert!((sum * 1e9 - n(&class[key]) as f64).abs() < 1000.0, "{sum} s and {}", class[key]);
            // One bucket against the histogram it comes from: all up to 2^20 ns.
            let counts = class["histograms"][key]["counts"].as_array().expect("counts");
            let upto: u64 = counts.iter().take(21).map(n).sum();
            let labels: Vec<_> = labels.into_iter().chain([("le", "0.001048576")]).collect();
            assert_eq!(get("braid_device_io_seconds_bucket", &labels), upto as f64);
        }
        let labels = [("pool", "tank"), ("device", &*id), ("class", "sync_read")];
        assert_eq!(get("braid_device_pending", &labels), 0.0);
        assert_eq!(get("braid_device_class_waited_total", &labels), n(&class["waited"]) as f64);
    }
    // The same by hand, as a scraper would; and a query instead of a body.
    let raw = |address: &str| {
        use std::io::{Read, Write};
        let mut stream = std::os::unix::net::UnixStream::connect(real.socket()).expect("connect");
        write!(stream, "GET {address} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("write");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read");
        text
    };
    let answer = raw("/metrics");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("text/plain; version=0.0.4"), "{answer}");
    assert!(raw("/v1/iostat?pool=tank&histograms=true").contains("size_before"));
    assert!(!raw("/v1/iostat?pool=tank").contains("size_before"));
    assert!(raw("/v1/iostat?pool=nopool").starts_with("HTTP/1.1 404"));
}

#[test]
fn labels_are_escaped_and_an_empty_pool_is_a_valid_page() {
    let path = "/srv/a \"quoted\" \\ name\nof two lines";
    let device = DeviceStatus { pool: "tank".into(), id: 3, path: path.into(), ..DeviceStatus::default() };
    let pool = PoolIo { name: "tank".into(), ..PoolIo::default() };
    let snapshot = IoSnapshot { pools: vec![pool], ..IoSnapshot::default() };
    let text = metrics::text(&snapshot, &[], &[], &[device]);
    let page = Page::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let labels = [("pool", "tank"), ("device", "3"), ("name", ""), ("class", ""), ("path", path)];
    assert_eq!(page.value("braid_device_info", &labels), Some(1.0), "{text}");
    assert!(Page::parse(&metrics::text(&IoSnapshot::default(), &[], &[], &[])).is_ok());
}

#[test]
fn the_document_names_every_setting_and_scheduler() {
    let text = include_str!("../../../docs/policies.md");
    let schedulers = config::SchedulerName::ALL.map(config::SchedulerName::name);
    for name in config::names().chain(schedulers) {
        let class = ["_min_active", "_max_active"].into_iter().find(|end| name.ends_with(end) && name != "max_active");
        let written = class.map_or(format!("`{name}`"), |end| format!("`<class>{end}`"));
        assert!(text.contains(&written), "{name}");
    }
}

#[test]
fn waits_before_and_after_devices_are_counted() {
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 32 * MIB);
    real.ok("share tank/v nbd");
    assert!(real.ok("why tank").contains("nothing waited"));
    let mut client = Client::connect(&real.path("run/nbd.sock"), "tank/v", Wish::default()).expect("connect");
    // Sixteen writes of the same MiB at once: one after another, and the first one fills holes.
    let data = vec![1; MIB as usize];
    (0..16).for_each(|i| client.send_write(i, 0, 0, &data));
    (0..16).for_each(|_| assert_eq!(client.recv().expect("an answer").error, 0));
    assert_eq!(client.call(cmd::FLUSH, 0, 0, 0).expect("flush").error, 0);
    let why = real.json("why tank/v");
    let count = |reason: &str| {
        let found = why["findings"].as_array().expect("findings").iter().find(|f| f["reason"] == reason);
        found.map_or((0, 0), |f| (n(&f["count"]), n(&f["wait_ns"])))
    };
    assert!((1..16).contains(&count("range_lock").0) && count("range_lock").1 > 0, "{why}");
    assert!((1..16).contains(&count("log").0) && count("log").1 > 0, "only what changed the map: {why}");
    assert!(count("flush").0 == 1 && count("flush").1 > 0, "{why}");
    let (writes, ns) = (n(&why["client"]["writes"]), n(&why["client"]["write_ns"]));
    assert!(writes == 16 && ns > count("range_lock").1, "a write's time has its waits in it: {why}");
    let page = Page::parse(&real.ok("metrics")).unwrap_or_else(|e| panic!("{e}"));
    let parked = page.value("braid_pool_waits_total", &[("pool", "tank"), ("reason", "range_lock")]);
    assert_eq!(parked, Some(count("range_lock").0 as f64));
    let run = real.ok("why tank/v");
    assert!(run.contains("until an overlapping one was done") && run.contains("16 writes, "), "{run}");
}

#[test]
fn why_says_where_and_what_to_turn_or_that_nothing_waited() {
    let real = loaded();
    let text = real.ok("why tank/v");
    assert!(text.starts_with("tank/v, the last ") && text.contains("1000 reads"), "{text}");
    assert!(text.contains("sync reads of device") && text.contains("(sync_read_max_active 1, pool)"), "{text}");
    let why = real.json("why tank");
    let finding = why["findings"].as_array().expect("findings").iter().find(|f| f["reason"] == "class_reached");
    let finding = finding.unwrap_or_else(|| panic!("{why}"));
    assert_eq!((&finding["knob"]["value"], &why["waited"]), (&"1".into(), &true.into()));
    // The counts are those of iostat.
    let id = n(&finding["device"]) as usize;
    let class = &real.json("iostat tank")["pools"][0]["devices"][id - 1]["queue"]["classes"]["sync_read"];
    assert_eq!([&finding["count"], &finding["of"]], [&class["waited"], &class["left"]]);
    assert!(n(&finding["count"]) > READS / 10, "{finding}");
    // A moment without load.
    let quiet = real.json("why -i 0.05 tank");
    assert_eq!((&quiet["waited"], quiet["client"]["reads"].as_u64()), (&false.into(), Some(0)), "{quiet}");
    assert!(real.ok("why -i 0.05 tank").contains("nothing waited"));
    real.refuses("why nopool", 4, &["no open pool named nopool"]);
    real.refuses("why tank/nothing", 4, &["no volume nothing"]);
    real.refuses("why -i 0 tank", 2, &["not an interval"]);
    // Those of OpenZFS say it too; one that does not says that.
    real.ok("set scheduler=zfs-2.0.1 tank");
    load(&real, 200);
    let text = real.ok("why tank");
    assert!(text.contains("because the class had its maximum on the device (sync_read_max_active 1, pool)"), "{text}");
    real.ok("set scheduler=none tank");
    let text = real.ok("why tank");
    assert!(text.contains("the scheduler none does not"), "{text}");
}

/// Name, value and source of what `get queue` says of a target.
fn queue(real: &Real, target: &str) -> Vec<(String, String, String)> {
    let rows = real.json(&format!("get queue {target}"));
    let word = |row: &Value, key: &str| row[key].as_str().expect("a word").to_string();
    rows.as_array().expect("rows").iter().map(|r| (word(r, "name"), word(r, "value"), word(r, "source"))).collect()
}

fn one(real: &Real, target: &str, name: &str) -> (String, String) {
    let all = queue(real, target);
    let found = all.into_iter().find(|(n, ..)| n == name).unwrap_or_else(|| panic!("{name}"));
    (found.1, found.2)
}

#[test]
fn settings_of_queues_come_from_default_pool_or_member_and_outlive_the_daemon() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB, GIB], 32 * MIB);
    let is = |real: &Real, target: &str, name: &str, value: &str, source: &str| {
        assert_eq!(one(real, target, name), (value.to_string(), source.to_string()), "{name} of {target}");
    };
    is(&real, "tank", "scrub_max_active", "3", "default");
    is(&real, "tank 1", "max_request", "32M", "default");
    assert!(!real.ok("get all tank").contains("scrub_max_active"), "what nobody set is left out");
    assert!(real.braid("get all tank").err.contains("braid get queue tank"), "and it says where it is");
    assert_eq!(real.braid("get -H all tank").err, "");

    // To say the default is to say something: it stays when the default changes.
    assert_eq!(real.json("set -n scrub_max_active=3 tank")["changed"], true);
    real.ok("set scrub_max_active=2 budget=64 max_request=4M tank");
    real.ok("device set tank 2 scrub_max_active=1 background_floor=250ms");
    // Together they are fine; each alone is below or above the other.
    real.ok("set sync_read_min_active=5 sync_read_max_active=5 tank");
    real.ok("set sync_read_min_active=50 sync_read_max_active=60 tank");
    let check = |real: &Real| {
        is(real, "tank", "scrub_max_active", "2", "pool");
        is(real, "tank 1", "scrub_max_active", "2", "pool");
        is(real, "tank 2", "scrub_max_active", "1", "device");
        is(real, "tank 2", "background_floor", "250ms", "device");
        is(real, "tank 1", "budget", "64", "pool");
        is(real, "tank 2", "max_request", "4M", "pool");
        is(real, "tank 2", "sync_read_min_active", "50", "pool");
        assert_eq!(real.ok("get scrub_max_active tank"), "2");
        assert!(real.ok("get all tank").contains("scrub_max_active"));
    };
    check(&real);
    real.restart();
    check(&real);
    real.kill();
    real.restart();
    check(&real);

    assert!(real.ok("set scrub_max_active=2 tank").starts_with("unchanged"));
    assert!(real.ok("set -n scrub_max_active=9 tank").starts_with("would"));
    is(&real, "tank", "scrub_max_active", "2", "pool");
    // Back to what is below: member, pool, default.
    real.ok("device set tank 2 scrub_max_active=");
    is(&real, "tank 2", "scrub_max_active", "2", "pool");
    real.ok("inherit scrub_max_active,budget tank");
    is(&real, "tank 2", "scrub_max_active", "3", "default");
    is(&real, "tank 1", "budget", "auto", "default");
    real.ok("set read_policy=queue tank");
    real.ok("inherit read-policy tank");
    assert!(real.ok("get read_policy tank").contains("[latency]"));
    // A scheduler has defaults of its own.
    real.ok("set scheduler=zfs-before tank");
    is(&real, "tank 1", "scrub_max_active", "2", "default");
    assert!(real.ok("get scheduler tank").contains("[zfs-before]"));

    for (line, code, said) in [
        ("set scheduler=cfq tank", 2, "zfs-pr11166"),
        ("set scrub_max_active=0 tank", 2, "scrub_max_active is 1 to 65536"),
        ("set -n scrub_max_active=0 tank", 2, "scrub_max_active is 1 to 65536"),
        ("set budget=64 tank", 2, "zfs-before as it was published has no budget=64"),
        ("set max_request=1000 tank", 2, "multiples of 4096"),
        ("device set tank 2 background_floor=soon", 2, "background_floor is a time"),
        ("device set tank 2 nia_credits=3", 4, "you may mean nia_credit"),
        ("device set tank 2 sync_read_max_active=1", 2, "sync_read_min_active 50 is above sync_read_max_active 1"),
        ("set lba_order=slot scrub_max_active=x tank", 2, "scrub_max_active"),
        ("inherit class tank 2", 2, "class"),
        ("inherit scrub_max_active", 2, "of what?"),
    ] {
        let before = (queue(&real, "tank"), queue(&real, "tank 2"));
        real.refuses(line, code, &[said]);
        assert_eq!((queue(&real, "tank"), queue(&real, "tank 2")), before, "{line}: all or none");
    }
}

/// A scraper gets what there is, and is told what is not.
#[test]
fn metrics_without_one_part_have_the_rest() {
    for without_volumes in [false, true] {
        let page = metrics::page(&Mock { without_volumes, ..Mock::default() });
        let page = Page::parse(&page).unwrap_or_else(|e| panic!("{e}"));
        let had = |part: &str| page.value("braid_scrape_success", &[("part", part)]);
        let volumes = if without_volumes { 0.0 } else { 1.0 };
        assert_eq!(["iostat", "pools", "devices"].map(had), [Some(1.0); 3]);
        assert_eq!(had("volumes"), Some(volumes));
        assert_eq!(page.value("braid_pool_state", &[("pool", "tank"), ("state", "ONLINE")]), Some(1.0));
    }
}
