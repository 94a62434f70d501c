//! Where reads of clients go, by policy.

use super::{GIB, MIB};
use crate::real::{LOOP, Real};
use crate::tools::{Need, have, sh};

/// Reads of clients, and by device: I/Os and what the policy chose.
fn reads(real: &Real) -> (i64, Vec<(i64, i64)>) {
    let snapshot = real.json("iostat -v tank");
    let pool = &snapshot["pools"][0];
    let number = |value: &serde_json::Value| value.as_i64().unwrap_or_else(|| panic!("{snapshot}"));
    let devices = pool["devices"].as_array().expect("devices");
    let each = devices.iter().map(|d| (number(&d["io"]["reads"]), number(&d["chosen"]))).collect();
    (number(&pool["client"]["reads"]), each)
}

/// 32 jobs that read 64 KiB at random places, past the page cache, from ext4 on the loop share, once for each policy.
#[test]
fn the_published_read_job_reaches_the_devices_that_the_policy_says() {
    let mut needs = LOOP.to_vec();
    needs.extend(["fio", "mkfs.ext4"].map(Need::Tool));
    if !have("the_published_read_job_reaches_the_devices_that_the_policy_says", &needs) {
        return;
    }
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 256 * MIB);
    let (device, mount) = (real.ok("share tank/v loop"), real.word("mnt"));
    sh(&format!("mkfs.ext4 -q -E lazy_itable_init=0 {device}; mkdir {mount}; mount {device} {mount}"));
    let job = format!(
        "fio --name=job --directory={mount} --rw=randread --bs=64k --direct=1 --ioengine=psync --numjobs=32 \
         --size=2m --group_reporting"
    );
    sh(&format!("{job} --create_only=1; sync -f {mount}"));
    real.ok("set read_preferred=on tank 2");
    println!("{:<16} {:>7} {:>9} {:>9}", "policy", "reads", "device 1", "device 2");
    let policies = "pid latency latency-2021 latency-2024 device devid:1 roundrobin-v3 round-robin queue zfs \
                    parity-avoid-slow";
    for policy in policies.split(' ') {
        real.ok(&format!("set read_policy={policy} tank"));
        let (logical, before) = reads(&real);
        sh(&job);
        let (after, now) = reads(&real);
        let logical = after - logical;
        let each: Vec<i64> = now.iter().zip(&before).map(|(a, b)| a.0 - b.0).collect();
        let chosen: Vec<i64> = now.iter().zip(&before).map(|(a, b)| a.1 - b.1).collect();
        println!("{policy:<16} {logical:>7} {:>9} {:>9}", each[0], each[1]);
        let total: i64 = each.iter().sum();
        // 32 jobs read 2 MiB each; the file system adds a little of its own.
        assert!((1024..1124).contains(&logical), "{policy}: {logical} reads of 64 KiB");
        // One device I/O a read, but where a file crosses a stripe or an extent; neighbours may be read together.
        assert!((logical * 9 / 10..=logical * 11 / 10).contains(&total), "{policy}: {total} for {logical}");
        match policy {
            "device" => assert_eq!((each[0], chosen[0]), (0, 0), "{policy}: all on the preferred one"),
            "devid:1" => assert_eq!((each[1], chosen[1]), (0, 0), "{policy}: all on the one named"),
            "roundrobin-v3" | "round-robin" | "queue" => {
                assert!(each.iter().all(|n| *n > logical / 5), "{policy}: both take part: {each:?}");
            }
            _ => {}
        }
    }
    sh(&format!("umount {mount}"));
}
