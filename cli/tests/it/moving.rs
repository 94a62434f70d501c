//! Members come and go, and profiles change, on real files with a real daemon.

use crate::real::Real;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const BYTES: u64 = 24 * MIB;

/// Every block has its own content: its number, all over.
fn content(offset: u64) -> Vec<u8> {
    (0..MIB / 8).flat_map(|i| (0x30e5_0000_0000_0000 | ((offset / 8 + i) / 512)).to_le_bytes()).collect()
}

fn with_client(real: &Real, work: impl FnOnce(&mut Client<UnixStream>)) {
    let socket = real.path("v.sock");
    real.ok(&format!("share --temporary tank/v nbd --unix={}", socket.display()));
    let mut client = Client::connect(&socket, "tank/v", Wish::default()).expect("connect");
    work(&mut client);
    client.disconnect().expect("disconnect");
    real.ok("unshare tank/v");
}

fn fill(real: &Real) {
    with_client(real, |client| {
        for offset in (0..BYTES).step_by(MIB as usize) {
            assert_eq!(client.write(0, offset, &content(offset)).expect("write").error, 0);
        }
        assert_eq!(client.call(cmd::FLUSH, 0, 0, 0).expect("flush").error, 0);
    });
}

fn check(real: &Real) {
    with_client(real, |client| {
        for offset in (0..BYTES).step_by(MIB as usize) {
            let read = client.read(offset, MIB as u32).expect("read");
            assert!(read.data == content(offset), "at {offset}");
        }
    });
}

fn ids(real: &Real) -> Vec<u64> {
    let members = real.json("device list tank");
    members.as_array().expect("a list").iter().map(|d| d["id"].as_u64().expect("an id")).collect()
}

#[test]
fn members_come_and_go_on_real_files() {
    let mut real = Real::start();
    real.tank("raid1", &[128 * MIB, 128 * MIB], 64 * MIB);
    fill(&real);

    // What does not fit is refused with the numbers.
    let run = real.braid("remove tank 1");
    assert!(run.code == 5 && run.err.contains("does not fit without device 1"), "{run:?}");

    let third = real.disk("d2.img", 128 * MIB);
    let would = real.ok(&format!("add -n tank {third}"));
    assert!(would.contains("writable data") && would.contains("nothing was changed"), "{would}");
    assert_eq!(ids(&real), [1, 2]);
    assert!(real.ok(&format!("device add {third} tank")).contains("device 3 added"));
    assert_eq!(ids(&real), [1, 2, 3]);
    // It is taken.
    let run = real.braid(&format!("create other {third}"));
    assert!(run.code == 5 && run.err.contains("device 3 of pool tank"), "{run:?}");

    let would = real.ok("remove -n tank 1");
    assert!(would.contains("bytes to move") && would.contains("nothing was changed"), "{would}");
    let run = real.braid("remove -w tank 1");
    assert!(run.code == 0 && run.out.contains("remove of device 1 finished"), "{run:?}");
    assert_eq!(ids(&real), [2, 3]);
    check(&real);
    assert!(real.ok("status tank").contains("  jobs: remove of device 1 finished at 20"));
    assert_eq!(real.json("remove status tank")[0]["state"].as_str(), Some("finished"));
    // It says nothing of a pool any more, and nobody has it open.
    let first = real.word("d0.img");
    real.ok(&format!("create other {first}"));
    real.ok("destroy -y other");

    real.restart();
    assert_eq!(ids(&real), [2, 3]);
    check(&real);
    assert_eq!(real.braid("scrub -w tank").code, 0);
}

#[test]
fn a_balance_in_both_directions() {
    let mut real = Real::start();
    real.tank("raid1", &[128 * MIB, 128 * MIB, 128 * MIB], 64 * MIB);
    fill(&real);
    let run = real.braid("balance start -dconvert=single tank");
    assert!(run.code == 5 && run.err.contains("fewer failures"), "{run:?}");
    real.ok("balance start -f -w tank -d single");
    assert_eq!(real.json("usage tank")[0]["data"].as_str(), Some("single"));
    check(&real);
    real.ok("balance start tank -d raid1,soft -m raid1c3");
    real.ok("wait -t balance tank");
    let usage = real.json("usage tank");
    for group in usage[0]["groups"].as_array().expect("groups") {
        let profile = if group["kind"] == "data" { "raid1" } else { "raid1c3" };
        assert_eq!(group["profile"], profile, "{usage}");
    }
    real.kill();
    real.restart();
    check(&real);
    assert_eq!(real.braid("balance pause tank").code, 4);
}

/// One job at a time, and who is refused leaves nothing half made: the disk that was to come in is nobody's.
#[test]
fn a_replace_beside_another_job_takes_no_disk() {
    let real = Real::start();
    let slow = |i: u32| format!("model:hdd,{}", real.disk(&format!("d{i}.img"), 512 * MIB));
    real.ok(&format!("create tank -d raid1 -m raid1 {} {}", slow(0), slow(1)));
    real.ok("volume create tank/v 64M");
    fill(&real);
    real.ok("balance start tank");
    real.ok("balance pause tank");
    let new = real.disk("d2.img", 512 * MIB);
    for asked in [format!("replace -n tank 1 {new}"), format!("replace tank 1 {new}"), "remove tank 1".into()] {
        let run = real.braid(&asked);
        let why = "has a balance paused already; see: braid balance status tank";
        assert!(run.code == 1 && run.err.contains(why), "{asked}: {run:?}");
    }
    assert_eq!(ids(&real), [1, 2]);
    real.ok(&format!("create other {new}"));
    real.ok("balance resume tank");
    real.ok("wait -t balance tank");
    check(&real);
}

/// What would not fit without a member fits with another one in its place.
#[test]
fn a_member_is_replaced_whether_it_is_there_or_not() {
    let mut real = Real::start();
    real.tank("raid1", &[128 * MIB, 128 * MIB], 64 * MIB);
    fill(&real);
    let third = real.disk("d2.img", 128 * MIB);
    let would = real.ok(&format!("replace -n tank 1 {third}"));
    assert!(would.contains("bytes to move") && would.contains("nothing was changed"), "{would}");
    let run = real.braid(&format!("replace -w start 1 {third} tank"));
    assert!(run.code == 0 && run.out.contains("finished"), "{run:?}");
    assert_eq!(ids(&real), [2, 3]);
    check(&real);
    // And one that is gone.
    real.stop();
    std::fs::remove_file(real.path("d1.img")).expect("it was there");
    real.restart();
    real.ok(&format!("import -f tank -d {}", real.dir.path().display()));
    let fourth = real.disk("d3.img", 128 * MIB);
    assert_eq!(real.braid(&format!("replace -w tank missing {fourth}")).code, 0);
    assert_eq!(ids(&real), [3, 4]);
    check(&real);
    assert_eq!(real.json("status tank")[0]["state"].as_str(), Some("online"));
}

/// A spare is added, shown, taken out, added again, and takes the place of a member that does not come back.
#[test]
fn a_spare_is_told_to_take_the_place_of_a_member() {
    let real = Real::start();
    real.tank("raid1", &[128 * MIB, 128 * MIB], 64 * MIB);
    fill(&real);
    let third = real.disk("d2.img", 128 * MIB);
    real.ok(&format!("add --spare tank {third}"));
    let plan = real.ok(&format!("replace -n tank 2 {third}"));
    assert!(
        plan.contains("replaces device 2") && real.json("status tank")[0]["spares"][0]["state"] == "AVAIL",
        "{plan}"
    );
    // A member is no spare.
    let run = real.braid(&format!("replace tank 2 {}", real.word("d0.img")));
    assert!(run.code == 5 && run.err.contains("is device 1 of pool tank"), "{run:?}");
    let run = real.braid(&format!("replace --class nvme tank 2 {third}"));
    assert!(run.code == 2 && run.err.contains("is a spare of class"), "{run:?}");
    real.ok(&format!("replace -w tank 2 {third}"));
    assert_eq!(ids(&real), [1, 3]);
    assert!(real.json("status tank")[0]["spares"].as_array().is_none_or(Vec::is_empty));
    check(&real);
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_is_gone() {
    let mut real = Real::start();
    real.tank("raid1", &[128 * MIB, 128 * MIB], 64 * MIB);
    fill(&real);
    let before = real.json("usage tank");
    let third = real.disk("d2.img", 128 * MIB);
    assert!(real.ok(&format!("add --spare tank {third}")).contains("device 3 added to pool tank as a spare"));
    let status = real.ok("status tank");
    assert!(status.contains(" spare: device 3 (d2.img, hdd, 128MiB) AVAIL"), "{status}");
    let after = real.json("usage tank");
    for what in ["raw_bytes", "writable_data_bytes"] {
        assert_eq!(before[0][what], after[0][what], "{what}");
    }
    assert_eq!(real.braid("remove -w tank 3").code, 0);
    assert!(!real.ok("status tank").contains("spare:"));
    real.ok(&format!("add tank spare {third}"));
    assert_eq!(real.json("status tank")[0]["spares"][0]["state"], "AVAIL");
    let run = real.braid("set tank spare_delay=soon");
    assert!(run.code == 2 && run.err.contains("spare_delay is 0s to 24h"), "{run:?}");
    real.ok("set tank spare_delay=0s");

    real.stop();
    std::fs::remove_file(real.path("d1.img")).expect("it was there");
    real.restart();
    real.ok(&format!("import -f tank -d {}", real.dir.path().display()));
    // An import does not wait for what comes after it.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !real.ok("events tank").contains("takes the place of device 2") {
        assert!(Instant::now() < deadline, "no spare is used: {}", real.ok("events tank"));
        std::thread::sleep(Duration::from_millis(50));
    }
    real.ok("wait tank");
    assert_eq!(ids(&real), [1, 4]);
    let status = real.json("status tank");
    assert_eq!(status[0]["state"].as_str(), Some("online"), "{status}");
    assert!(status[0]["spares"].as_array().is_none_or(Vec::is_empty), "{status}");
    check(&real);
}
