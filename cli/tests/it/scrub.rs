//! Scrub, from the command line down to damaged bytes on a disk.

use crate::real::Real;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Every block has its own content: its number, all over.
fn content(offset: u64, len: u64) -> Vec<u8> {
    let word = |i: u64| (0x5c0b_0000_0000_0000 | ((offset / 8 + i) / 512)).to_le_bytes();
    (0..len / 8).flat_map(word).collect()
}

fn fill(real: &Real, bytes: u64) {
    let socket = real.path("v.sock");
    real.ok(&format!("share tank/v nbd --unix={}", socket.display()));
    let mut client = Client::connect(&socket, "tank/v", Wish::default()).expect("connect");
    for offset in (0..bytes).step_by(MIB as usize) {
        assert_eq!(client.write(0, offset, &content(offset, MIB)).expect("write").error, 0);
    }
    assert_eq!(client.call(cmd::FLUSH, 0, 0, 0).expect("flush").error, 0);
    client.disconnect().expect("disconnect");
    real.ok("unshare tank/v");
}

/// Where a block of the volume is in a file.
fn find(real: &Real, disk: &str, offset: u64) -> Option<u64> {
    let bytes = std::fs::read(real.path(disk)).expect("read");
    let block = content(offset, BLOCK);
    (0..bytes.len()).step_by(BLOCK as usize).find(|&at| bytes[at..].starts_with(&block)).map(|at| at as u64)
}

fn damage(real: &Real, disk: &str, at: u64) {
    let file = File::options().read(true).write(true).open(real.path(disk)).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("write");
    file.sync_all().expect("sync");
}

/// A checksum tells which copy is right, and then the other one is written anew; without one nobody knows.
#[test]
fn planted_damage_is_found_at_its_device_and_byte() {
    for checksum in ["none", "crc32c"] {
        find_planted_damage(checksum);
    }
}

/// A row of many members takes more memory than any other piece: 64 of them, the most there may be, and as many as just do.
#[test]
fn rows_of_many_members_are_scrubbed() {
    for members in [15, 64] {
        let real = Real::start();
        let disks: Vec<String> = (0..members).map(|i| real.disk(&format!("d{i}.img"), 64 * MIB)).collect();
        real.ok(&format!("create tank -d raid6 -m raid1c3 {}", disks.join(" ")));
        real.ok("volume create tank/v 64M");
        fill(&real, 16 * MIB);
        let place = |i| Some((i, find(&real, &format!("d{i}.img"), MIB)?));
        let (disk, at) = (0..members).find_map(place).expect("it is on one of them");
        damage(&real, &format!("d{disk}.img"), at);
        assert_eq!(real.braid("scrub -w tank").code, 1, "it found something");
        let info = &real.json("scrub status tank")[0];
        assert_eq!((info["state"].as_str(), info["differences"].as_u64()), (Some("finished"), Some(1)), "{info}");
        assert_eq!(real.braid("scrub -w tank").code, 0);
    }
}

fn find_planted_damage(checksum: &str) {
    let real = Real::start();
    let disks = [real.disk("d0.img", 256 * MIB), real.disk("d1.img", 256 * MIB)].join(" ");
    real.ok(&format!("create tank -o checksum={checksum} -d raid1 -m raid1 {disks}"));
    real.ok(&format!("volume create tank/v {}", 64 * MIB));
    assert!(real.ok("status tank").contains("  scan: none requested"));
    fill(&real, 32 * MIB);
    let run = real.braid("scrub -w tank");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("scan: scrub finished at ") && run.out.contains("nothing found"), "{run:?}");
    let planted = 17 * MIB + 5 * BLOCK;
    let at = find(&real, "d1.img", planted).expect("it is there");
    let other = find(&real, "d0.img", planted).expect("it is there");
    damage(&real, "d1.img", at + 1234);
    let run = real.braid("scrub start -B tank");
    assert_eq!(run.code, 1, "it found something: {run:?}");
    assert!(run.out.contains("1 block not alike") && run.out.contains("braid events tank"), "{run:?}");
    let events = real.ok("events tank");
    let (good, bad) = (real.word("d0.img"), real.word("d1.img"));
    let told = match checksum {
        "none" => format!(
            "copies of 4KiB of volume v at byte {planted} are not alike: device 1 ({good}) at byte {other}, device 2 \
             ({bad}) at byte {at}: which is right cannot be told"
        ),
        _ => format!(
            "4KiB of volume v at byte {planted}: the copy at byte {at} of device 2 ({bad}) is not what its checksums say"
        ),
    };
    assert!(events.contains(&told), "{events}\nlacks\n{told}");
    assert_eq!(find(&real, "d1.img", planted).is_some(), checksum != "none", "it is written anew where that is known");
    let info = &real.json("scrub status tank")[0];
    assert_eq!((info["state"].as_str(), info["differences"].as_u64()), (Some("finished"), Some(1)), "{info}");
    // Devices without any are not listed.
    let second = info["devices"].as_array().and_then(|list| list.iter().find(|device| device["id"] == 2));
    assert_eq!(second.and_then(|device| device["differences"].as_u64()), Some(1), "{info}");
    assert!(info["done_bytes"].as_u64() >= Some(64 * MIB), "{info}");
    let status = real.ok("status tank");
    let told = match checksum {
        "none" => "the last scrub found 1 block whose copies are not alike or wrong",
        _ => "had errors: 1 block was not what its checksum says, 1 block was written anew",
    };
    assert!(status.matches("status: ").count() == 1 && status.contains(told), "{status}");
    real.ok("clear tank");
    assert_eq!(real.braid("status --check tank").code, i32::from(checksum == "none"), "what was put right is over");
}

/// Three strips of one disk, one above the other: parity goes round, so of three disks' rows one of them is parity.
#[test]
fn strips_and_parity_that_are_damaged_are_told_and_written_anew() {
    let real = Real::start();
    let disks = [0, 1, 2].map(|i| real.disk(&format!("d{i}.img"), 256 * MIB)).join(" ");
    real.ok(&format!("create tank -d raid5 -m raid1 {disks}"));
    real.ok(&format!("volume create tank/v {}", 64 * MIB));
    fill(&real, 32 * MIB);
    let planted = 17 * MIB + 5 * BLOCK;
    let disk = ["d0.img", "d1.img", "d2.img"].into_iter().find(|disk| find(&real, disk, planted).is_some());
    let disk = disk.expect("it is on one of them");
    let at = find(&real, disk, planted).expect("just seen");
    (0..3).for_each(|row| damage(&real, disk, at + row * 64 * KIB));
    let run = real.braid("scrub start -B tank");
    assert_eq!(run.code, 1, "it found something: {run:?}");
    assert!(run.out.contains("3 blocks not alike, 3 blocks of copies written anew"), "{run:?}");
    let events = real.ok("events tank");
    let count = |what: &str| events.lines().filter(|line| line.contains(what)).count();
    assert_eq!((count(" copy.repaired "), count(" parity.repaired ")), (2, 1), "{events}");
    assert_eq!(find(&real, disk, planted), Some(at));
    let run = real.braid("scrub start -B tank");
    assert!(run.code == 0 && run.out.contains("nothing found"), "{run:?}");
}

#[test]
fn a_damaged_superblock_is_told_and_written_anew() {
    let real = Real::start();
    let disks = [real.disk("d0.img", 256 * MIB), real.disk("d1.img", 256 * MIB)].join(" ");
    real.ok(&format!("create tank -d raid1 -m raid1 {disks}"));
    real.ok("volume create tank/v 64M");
    // A checkpoint may come between and write one of them.
    let slots = [64 * KIB, 512 * KIB];
    slots.into_iter().for_each(|slot| damage(&real, "d1.img", slot + 100));
    let run = real.braid("scrub start -B tank");
    assert_eq!(run.code, 1, "it found something: {run:?}");
    let told = |slot| format!("16KiB of the pool's own records at byte {slot} of device 2 ({})", real.word("d1.img"));
    let events = real.ok("events tank");
    assert!(slots.into_iter().any(|slot| events.contains(&told(slot))), "{events}");
    // Checkpoints follow a scrub, and take their time.
    for _ in 0..50 {
        if real.braid("scrub start -B tank").code == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("it stays damaged: {}", real.ok("events tank"));
}

#[test]
fn of_three_copies_the_wrong_one_is_named_and_who_says_so() {
    name_the_wrong_one("none", "differs from most copies");
    name_the_wrong_one("crc32c", "not what its checksum says; right");
}

fn name_the_wrong_one(checksum: &str, verdict: &str) {
    let real = Real::start();
    let disks: Vec<String> = (0..3).map(|i| real.disk(&format!("d{i}.img"), 256 * MIB)).collect();
    real.ok(&format!("create tank -o checksum={checksum} -d raid1c3 -m raid1c3 {}", disks.join(" ")));
    real.ok(&format!("volume create tank/v {}", 64 * MIB));
    fill(&real, 8 * MIB);
    let at = find(&real, "d2.img", 3 * MIB).expect("it is there");
    damage(&real, "d2.img", at);
    assert_eq!(real.braid("scrub -w tank").code, 1);
    let events = real.ok("events tank");
    let sentence = format!("device 3 ({}) at byte {at}: {verdict}: ", real.word("d2.img"));
    assert!(events.contains(&sentence), "{events}\nlacks\n{sentence}");
    let info = &real.json("scrub status tank")[0];
    assert_eq!(info["devices"].as_array().map(Vec::len), Some(1), "{info}");
}

#[test]
fn verbs_states_and_a_restart() {
    let mut real = Real::start();
    real.tank("raid1", &[256 * MIB, 256 * MIB], 64 * MIB);
    for verb in ["pause", "resume", "cancel", "-p", "-s"] {
        let run = real.braid(&format!("scrub {verb} tank"));
        assert_eq!(run.code, 4, "{verb}: {run:?}");
        assert!(run.err.contains("no scrub under way"), "{run:?}");
    }
    assert_eq!(real.braid("scrub nopool").code, 4);
    assert_eq!(real.braid("scrub sta tank").code, 2);
    assert!(real.ok("scrub tank").contains("scrub of tank started"));
    real.ok("scrub status -w tank");
    let before = real.json("scrub status tank")[0].clone();
    real.restart();
    let after = real.json("scrub status tank")[0].clone();
    assert_eq!(before, after, "the result outlives the daemon");
    assert!(real.ok("status tank").contains("  scan: scrub finished at 20"));
}

/// Done is done, whatever was found; that is `scrub -w`'s to say.
#[test]
fn wait_waits_for_a_scrub_and_says_nothing() {
    let real = Real::start();
    real.tank("raid1", &[256 * MIB, 256 * MIB], 64 * MIB);
    assert_eq!(real.ok("wait -t scrub tank"), "", "there is none to wait for");
    fill(&real, 32 * MIB);
    let at = find(&real, "d1.img", 3 * MIB).expect("it is there");
    damage(&real, "d1.img", at);
    real.ok("scrub tank");
    assert_eq!(real.ok("wait -t scrub tank"), "");
    assert_eq!(real.json("scrub status tank")[0]["state"].as_str(), Some("finished"));
    real.ok("scrub tank");
    assert_eq!(real.json("wait tank")[0]["state"].as_str(), Some("finished"));
    assert_eq!(real.braid("wait -t scrub nopool").code, 4);
    let run = real.braid("wait -t trim tank");
    assert!(run.code == 2 && run.err.contains("scrub"), "{run:?}");
}

#[test]
fn a_limit_says_where_it_does_nothing() {
    let real = Real::start();
    real.tank("raid1", &[256 * MIB, 256 * MIB], 64 * MIB);
    assert!(!real.ok("scrub limit tank 2").contains("it does nothing"));
    real.ok("device set tank 2 scrub_max_active=1");
    for _ in 0..2 {
        let text = real.ok("scrub limit tank 3");
        assert!(text.contains("it does nothing on device 2, which has scrub_max_active=1 of its own"), "{text}");
        assert!(!text.contains("device 1"), "{text}");
    }
    assert!(!real.ok("scrub limit tank 1").contains("it does nothing"), "they say the same");
    real.ok("inherit scrub_max_active tank 2");
    real.ok("set scheduler=deadline tank");
    let text = real.ok("scrub limit tank 2");
    for device in [1, 2] {
        let sentence = format!("it does nothing on device {device}: the scheduler deadline knows no classes");
        assert!(text.contains(&sentence), "{text}");
    }
}
