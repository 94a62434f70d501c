//! A member that is taken out of use, comes back and is brought up to date.

use super::{GIB, MIB, image, stamp};
use crate::failing::{Disks, Trouble};
use crate::pulled::{LOOPS, LoopDisk};
use crate::real::{FUSE, Real};
use crate::tools::{Need, have, sh};
use braid_core::meta::superblock::SLOTS;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Writes a part of the volume, each byte of this generation, and flushes.
fn write(real: &Real, from: u64, to: u64, generation: u8) {
    write_to(real, "tank/v", from, to, generation);
}

fn write_to(real: &Real, volume: &str, from: u64, to: u64, generation: u8) {
    let socket = real.path("v.sock");
    real.ok(&format!("share {volume} nbd --unix={}", socket.display()));
    let mut client = Client::connect(&socket, volume, Wish::default()).expect("connect");
    let mut data = vec![0; MIB as usize];
    for offset in (from..to).step_by(MIB as usize) {
        stamp(&mut data, offset, generation);
        assert_eq!(client.write(0, offset, &data).expect("write").error, 0);
    }
    assert_eq!(client.call(cmd::FLUSH, 0, 0, 0).expect("flush").error, 0);
    client.disconnect().expect("disconnect");
    real.ok(&format!("unshare {volume}"));
}

fn state(real: &Real, device: usize) -> String {
    real.json("device list")[device - 1]["state"].as_str().expect("a state").into()
}

fn becomes_online(real: &Real, device: usize) {
    let begun = Instant::now();
    while state(real, device) != "ONLINE" {
        assert!(begun.elapsed() < Duration::from_secs(60), "device {device} is {}", state(real, device));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_a_member_missed_is_caught_up_and_the_last_copy_is_never_let_go() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB, GIB], 256 * MIB);
    write(&real, 0, 64 * MIB, 1);
    assert!(real.ok("offline tank d1.img").contains("out of use"));
    assert_eq!(state(&real, 2), "MISSING");
    let run = real.braid("offline tank 1");
    assert!(run.code != 0 && run.err.contains("no other copy"), "{run:?}");
    write(&real, 60 * MIB, 70 * MIB, 2);
    let status = real.ok("status tank");
    assert!(status.contains("MISSING"), "{status}");
    // Killed, and opened by somebody who says that all members are there: the one that was away is behind.
    real.kill();
    real.restart();
    assert!(real.ok("online tank 2").contains("device 2"));
    real.ok("wait tank");
    assert_eq!(state(&real, 2), "ONLINE");
    // The other alone has everything now. Nobody relies on that before a checkpoint says so, and who asks earlier is told.
    let begun = Instant::now();
    let mut run = real.braid("offline tank 1");
    while run.code == 1 && run.err.contains("try again in a moment") && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
        run = real.braid("offline tank 1");
    }
    assert_eq!(run.code, 0, "{run:?}");
    let socket = real.path("w.sock");
    real.ok(&format!("share tank/v nbd --unix={}", socket.display()));
    let mut client = Client::connect(&socket, "tank/v", Wish::default()).expect("connect");
    let mut expected = vec![0; MIB as usize];
    for offset in (0..70 * MIB).step_by(MIB as usize) {
        stamp(&mut expected, offset, if offset < 60 * MIB { 1 } else { 2 });
        assert!(client.read(offset, MIB as u32).expect("read").data == expected, "at {offset}");
    }
    client.disconnect().expect("disconnect");
    real.ok("unshare tank/v");
    real.ok("online tank 1");
    becomes_online(&real, 1);
    let run = real.braid("scrub -w tank");
    assert!(run.code == 0 && run.out.contains("nothing found"), "{run:?}");
}

/// A file system that is full is an error of the member that lies there, and no longer one when there is room again.
#[test]
fn a_member_that_missed_something_is_tried_again_when_told() {
    if !have("a_member_that_missed_something_is_tried_again_when_told", &[Need::Root, Need::Tool("mount")]) {
        return;
    }
    let real = Real::start();
    let small = Mounted::of_memory(&real.path("small"), 64);
    let disks = [real.disk("d0.img", 256 * MIB), real.disk("small/d1.img", 256 * MIB)];
    let said = real.ok(&format!("create tank -d raid1 -m raid1 {}", disks.join(" ")));
    assert!(said.contains("d1.img has 64MiB free for 256MiB that may still be written there"), "{said}");
    real.ok(&format!("volume create tank/v {}", 64 * MIB));
    small.fill();
    let socket = real.path("s.sock");
    real.ok(&format!("share tank/v nbd --unix={}", socket.display()));
    let mut client = Client::connect(&socket, "tank/v", Wish::default()).expect("connect");
    assert_eq!(client.write(0, 0, &[1; 4096]).expect("write").error, 0);
    client.disconnect().expect("disconnect");
    let status = real.ok("status tank");
    assert_eq!(state(&real, 2), "REBUILDING", "{status}");
    assert!(status.contains("DEGRADED") && !status.contains("1 more failure"), "{status}");
    assert!(status.contains("failed; the last a write: what it lies on is full"), "{status}");
    let told = real.ok("online tank 2");
    assert!(told.contains("device 2 of pool tank: what failed is tried again"), "{told}");
    small.empty();
    real.ok("online tank 2");
    becomes_online(&real, 2);
    let run = real.braid("scrub -w tank");
    assert!(run.code == 0 && run.out.contains("nothing found"), "{run:?}");
    // It is seen to, and a monitor may know.
    assert_eq!((real.braid("status --check tank").code, real.braid("device stats -cz tank").code), (1, 1));
    assert_eq!((real.braid("status --check tank").code, real.braid("device stats -c tank").code), (0, 0));
    assert!(real.ok("clear tank 2").contains("errors of device 2 of pool tank are counted from 0"));
    assert_eq!(real.braid("device stats -z tank 1").code, 2, "once, or again and again");
}

/// A file system of so many MiB in memory.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn of_memory(at: &std::path::Path, mib: u64) -> Mounted {
        std::fs::create_dir(at).expect("mkdir");
        sh(&format!("mount -t tmpfs -o size={mib}m none {}", at.display()));
        Mounted(at.into())
    }

    /// Takes all its room.
    fn fill(&self) {
        use std::io::Write;
        let mut rest = std::fs::File::create(self.0.join("rest")).expect("create");
        while rest.write_all(&[1; 4096]).is_ok() {}
    }

    /// Gives back what [`Mounted::fill`] took.
    fn empty(&self) {
        std::fs::remove_file(self.0.join("rest")).expect("remove");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The daemon has its file open still, when a test fails.
        sh(&format!("umount -l {}", self.0.display()));
    }
}

/// Where a member is now is known from then on: in the status, to the next daemon, and on the day it is missing.
#[test]
fn a_member_that_came_back_elsewhere_is_known_there() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB / 2, GIB / 2], 32 * MIB);
    let (before, now) = (real.word("d1.img"), real.word("moved.img"));
    real.ok("offline tank 2");
    std::fs::rename(&before, &now).expect("rename");
    real.ok(&format!("online tank 2 {now}"));
    becomes_online(&real, 2);
    let path = |real: &Real| real.json("device list")[1]["path"].as_str().expect("a path").to_string();
    assert_eq!(path(&real), now);
    assert!(real.ok("online tank moved.img").contains("is ONLINE"));
    let run = real.braid(&format!("create other -d single -m dup {now}"));
    assert!(run.code == 5 && run.err.contains("is device 2 of pool tank, which is open"), "{run:?}");
    real.kill();
    real.restart();
    assert_eq!((state(&real, 2), path(&real)), ("ONLINE".into(), now.clone()));
    real.ok("export tank");
    std::fs::rename(&now, real.path("hidden")).expect("rename");
    real.ok(&format!("import tank {}", real.word("d0.img")));
    let status = real.ok("status tank");
    assert!(status.contains(&format!("device 2 (last seen at {now},")), "{status}");
}

/// A daemon that starts goes on without a member that the pool was in use without, and asks about any other.
#[test]
fn a_pool_that_was_in_use_without_a_member_is_opened_without_it() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB / 2, GIB / 2], 32 * MIB);
    write(&real, 0, 8 * MIB, 1);
    real.ok("offline tank 2");
    write(&real, 4 * MIB, 12 * MIB, 2);
    let (here, hidden) = (["d0.img", "d1.img"].map(|n| real.path(n)), ["h0", "h1"].map(|n| real.path(n)));
    let hide = |i: usize| std::fs::rename(&here[i], &hidden[i]).expect("rename");
    let show = |i: usize| std::fs::rename(&hidden[i], &here[i]).expect("rename");
    real.kill();
    hide(1);
    for _ in 0..2 {
        real.restart();
        let status = real.ok("status tank");
        assert!(status.contains("DEGRADED") && status.contains("MISSING"), "{status}");
        real.kill();
    }
    // The other one alone does not know that it is behind.
    hide(0);
    show(1);
    real.restart();
    let status = real.ok("status tank");
    assert!(status.contains("UNAVAIL") && status.contains("lacks device 1"), "{status}");
    real.stop();
    show(0);
    real.restart();
    becomes_online(&real, 2);
    real.ok("wait tank");
    let run = real.braid("scrub -w tank");
    assert!(run.code == 0 && run.out.contains("nothing found"), "{run:?}");
    // Nobody went on without it since then.
    real.kill();
    hide(1);
    real.restart();
    let status = real.ok("status tank");
    assert!(status.contains("UNAVAIL") && status.contains("lacks device 2"), "{status}");
    real.ok("import tank");
    assert_eq!(state(&real, 2), "MISSING");
    // Nobody is asked when it comes.
    show(1);
    becomes_online(&real, 2);
}

/// Also where another one stays away that the pool was in use without.
#[test]
fn a_pool_waits_for_members_that_are_late() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB / 2; 3], 32 * MIB);
    real.ok("share tank/v nbd");
    for away in [None, Some("d2.img")] {
        if away.is_some() {
            real.ok("offline tank 3");
        }
        real.stop();
        let hide = |name: &str| std::fs::rename(real.path(name), real.path("hidden").join(name)).expect("rename");
        std::fs::create_dir_all(real.path("hidden")).expect("mkdir");
        away.into_iter().chain(["d1.img"]).for_each(hide);
        real.restart();
        assert!(real.ok("status tank").contains("UNAVAIL"));
        std::fs::rename(real.path("hidden/d1.img"), real.path("d1.img")).expect("rename");
        let begun = Instant::now();
        while real.ok("status tank").contains("UNAVAIL") {
            assert!(begun.elapsed() < Duration::from_secs(10), "{}", real.ok("status tank"));
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(
            (state(&real, 2), state(&real, 3)),
            ("ONLINE".into(), if away.is_some() { "MISSING" } else { "ONLINE" }.into())
        );
        assert!(real.ok("shares").contains("tank/v"), "{}", real.ok("shares"));
    }
}

/// The other slot has a superblock too, and the next checkpoint but one writes the bad one anew.
#[test]
fn a_superblock_slot_that_cannot_be_read_makes_nobody_missing() {
    if !have("a_superblock_slot_that_cannot_be_read_makes_nobody_missing", &FUSE) {
        return;
    }
    let mut real = Real::start();
    let disks = Disks::failing();
    let members = [disks.make(&real, 256 * MIB), disks.make(&real, 256 * MIB)].join(" ");
    real.ok(&format!("create tank -d raid1 -m raid1 {members}"));
    real.ok("volume create tank/v 32M");
    for slot in SLOTS {
        write(&real, 0, 4 * MIB, 1);
        real.stop();
        disks.spoil(1, slot);
        real.restart();
        assert_eq!((state(&real, 1), state(&real, 2)), ("ONLINE".into(), "ONLINE".into()), "{slot}");
        let run = real.braid("scrub -w tank");
        assert!(run.code == 0, "{run:?}");
    }
    // Both: now it is missing, and that is said.
    real.stop();
    SLOTS.into_iter().for_each(|slot| disks.spoil(1, slot));
    real.restart();
    let status = real.ok("status tank");
    assert!(status.contains("UNAVAIL") && status.contains("lacks device 2"), "{status}");
    let run = real.braid("import tank");
    assert!(run.code == 0 && format!("{run:?}").contains("reading the superblock at"), "{run:?}");
}

/// Two disks under a pool with a volume that is shared, and a file of the share, open and written to.
fn shared_tank(real: &Real, disks: &Disks) -> File {
    let members = [disks.make(real, 256 * MIB), disks.make(real, 256 * MIB)];
    real.ok(&format!("create tank -d raid1 -m raid1 {}", members.join(" ")));
    real.ok("volume create tank/v 32M");
    let path = real.ok("share tank/v fuse");
    let file = File::options().read(true).write(true).open(path.lines().next().expect("a path")).expect("the share");
    file.write_all_at(&[1; MIB as usize], 0).expect("write");
    file.sync_all().expect("flush");
    file
}

/// It is suspended, by a command that cannot be recorded, and says so.
fn becomes_suspended(real: &Real) {
    let run = real.braid("volume create tank/w 8M");
    assert!(run.code == 1 && run.err.contains("cannot write its records"), "{run:?}");
    let run = real.braid("status --check");
    assert!(run.code == 2 && run.out.starts_with("SUSPENDED tank: the pool's records"), "{run:?}");
    let status = real.ok("status tank");
    assert!(status.contains("state: SUSPENDED") && status.contains("braid clear tank"), "{status}");
    assert!(real.ok("events tank").contains("pool.suspended"));
    // Who only looks at counters and sets them back opens nothing.
    real.ok("device stats -z tank");
    assert!(real.ok("status tank").contains("state: SUSPENDED"));
}

/// In use again, under a file that was open all the time.
fn goes_on(real: &Real, file: &File) {
    let status = real.ok("status tank");
    assert!(status.contains("state: ONLINE"), "{status}");
    file.sync_all().expect("flush");
    file.write_all_at(&[2; MIB as usize], MIB).expect("write");
    file.sync_all().expect("flush");
    let mut bytes = vec![0; 2 * MIB as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    assert!(bytes.chunks(MIB as usize).zip(1..).all(|(part, byte)| part.iter().all(|b| *b == byte)));
    let run = real.braid("scrub -w tank");
    assert!(run.code == 0, "{run:?}");
}

/// As where the file system that its members lie on is full.
#[test]
fn a_pool_that_could_write_its_records_nowhere_goes_on_under_its_shares() {
    if !have("a_pool_that_could_write_its_records_nowhere_goes_on_under_its_shares", &FUSE) {
        return;
    }
    let (real, disks) = (Real::start(), Disks::failing());
    let file = shared_tank(&real, &disks);
    let socket = real.path("v.sock");
    real.ok(&format!("share tank/v nbd --unix={}", socket.display()));
    let mut client = Client::connect(&socket, "tank/v", Wish::default()).expect("connect");
    // It is answered, and nobody flushes it.
    assert_eq!(client.write(0, 8 * MIB, &[8; 4096]).expect("write").error, 0);
    (0..2).for_each(|number| disks.suffer(number, Trouble::Writes(100)));
    becomes_suspended(&real);
    assert_eq!(client.write(0, 0, &[9; 4096]).expect("an answer").error, libc::EIO as u32);
    // Not yet; and what it has is still read.
    let run = real.braid("clear tank");
    assert!(run.code == 1 && run.err.contains("pool tank stays suspended"), "{run:?}");
    assert_eq!(client.call(cmd::READ, 0, 0, 4096).expect("an answer").error, 0);
    disks.mend();
    assert!(real.ok("clear tank").contains("in use again: nothing is lost"));
    goes_on(&real, &file);
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, 8 * MIB).expect("read");
    assert_eq!(bytes, [8; 4096]);
    // The client that was connected all the time.
    assert_eq!(client.write(cmd::FLAG_FUA, 4 * MIB, &[3; 4096]).expect("write").error, 0);
    client.disconnect().expect("disconnect");
    // A pool that is not suspended stays as it is.
    assert!(!real.ok("clear tank").contains("in use again"));
}

/// As where both are in an enclosure that loses its power: their files are dead, and other ones are found where they were.
#[test]
fn a_pool_whose_disks_were_all_pulled_goes_on_when_they_are_back() {
    if !have("a_pool_whose_disks_were_all_pulled_goes_on_when_they_are_back", &FUSE) {
        return;
    }
    let (mut real, disks) = (Real::start(), Disks::failing());
    let file = shared_tank(&real, &disks);
    (0..2).for_each(|number| disks.pull(number));
    becomes_suspended(&real);
    let run = real.braid("clear tank");
    assert!(run.code == 1 && run.err.contains("pool tank stays suspended"), "{run:?}");
    // One of two may lack what the other one has.
    disks.plug_in(0);
    let run = real.braid("clear tank");
    assert!(run.code == 1 && run.err.contains("lacks device 2"), "{run:?}");
    disks.plug_in(1);
    assert!(real.ok("clear tank").contains("in use again: what clients had not flushed may be gone"));
    // Its writer has not heard yet.
    assert_eq!(file.sync_all().expect_err("a flush").raw_os_error(), Some(libc::EIO));
    goes_on(&real, &file);
    real.kill();
    real.restart();
    assert!(real.ok("status tank").contains("state: ONLINE"));
}

/// A disk that is pulled and comes back answers EIO for ever where it was open; what only it has needs it anew.
#[test]
fn a_member_that_the_pool_cannot_do_without_comes_back_in_place() {
    if !have("a_member_that_the_pool_cannot_do_without_comes_back_in_place", &FUSE) {
        return;
    }
    let (real, disks) = (Real::start(), Disks::failing());
    let members: Vec<String> = (0..3).map(|_| disks.make(&real, 256 * MIB)).collect();
    real.ok(&format!("create tank -d raid0 -m raid1 {}", members.join(" ")));
    real.ok("volume create tank/v 64M");
    let path = real.ok("share tank/v fuse");
    let file = File::options().read(true).write(true).open(path.lines().next().expect("a path")).expect("the share");
    let mut data = vec![0; 32 * MIB as usize];
    stamp(&mut data, 0, 1);
    file.write_all_at(&data, 0).expect("write");
    file.sync_all().expect("flush");
    let mut found = vec![0; data.len()];
    for device in 1..4 {
        stamp(&mut data[..MIB as usize], 0, device + 1);
        file.write_all_at(&data[..MIB as usize], 0).expect("write");
        disks.pull(usize::from(device) - 1);
        file.read_exact_at(&mut found, 0).expect_err("a third is not there");
        let run = real.braid(&format!("online tank {device}"));
        assert!(run.code == 1 && run.err.contains("was not found"), "{run:?}");
        disks.plug_in(usize::from(device) - 1);
        assert!(real.ok(&format!("online tank {device}")).contains("what it missed is caught up"));
        real.ok("clear tank");
        becomes_online(&real, device.into());
        // A part of what nobody had flushed may be gone with its cache.
        assert_eq!(file.sync_all().expect_err("a flush").raw_os_error(), Some(libc::EIO));
        file.sync_all().expect("another flush");
        file.read_exact_at(&mut found, 0).expect("all of it is there");
        assert_eq!(found, data);
    }
    let run = real.braid("scrub -w tank");
    assert!(run.code == 0, "{run:?}");
}

/// Numbers of attachments are the kernel's; loop devices have them as USB disks do.
#[test]
fn a_disk_that_was_connected_anew_counts_as_after_a_power_cut() {
    const NAME: &str = "a_disk_that_was_connected_anew_counts_as_after_a_power_cut";
    if !have(NAME, &[Need::Root, Need::Node("/dev/loop-control"), Need::Tool("losetup")]) {
        return;
    }
    let mut real = Real::start();
    let file = real.disk("disk", 256 * MIB);
    let device = sh(&format!("losetup -f --show {file}")).trim().to_string();
    let told = |real: &Real| real.ok("events").contains(&format!("{device} was disconnected and connected again"));
    if !std::fs::exists(format!("/sys/block/{}/diskseq", device.trim_start_matches("/dev/"))).unwrap_or_default() {
        return eprintln!("skipped {NAME}: this kernel does not number attachments");
    }
    let other = real.disk("other", 256 * MIB);
    real.ok(&format!("create anew -d raid1 -m raid1 {device} {other}"));
    real.ok("volume create anew/v 32M");
    write_to(&real, "anew/v", 0, 8 * MIB, 1);
    real.kill();
    real.restart();
    assert!(!told(&real) && state(&real, 1) == "ONLINE", "it stayed where it was");
    write_to(&real, "anew/v", 0, 4 * MIB, 2);
    real.kill();
    // The kernel lets go of it in its own time.
    sh(&format!("losetup -d {device}"));
    let begun = Instant::now();
    while crate::real::shell(&format!("losetup {device} {file}")).code != 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{device} stays as it is");
        std::thread::sleep(Duration::from_millis(50));
    }
    real.restart();
    assert!(told(&real), "{}", real.ok("events"));
    let run = real.braid("scrub -w anew");
    assert!(run.code == 0 && run.out.contains("nothing found"), "{run:?}");
    real.kill();
    real.restart();
    assert!(!told(&real), "it is known as it is now");
    real.ok("destroy -y anew");
    sh(&format!("losetup -d {device}"));
}

/// The kernel answers writes to a pulled disk with ENOSPC: it is no full one. Pools on block devices have names of their own, since other
/// daemons look there.
#[test]
fn a_disk_that_was_pulled_comes_back_by_itself() {
    if !have("a_disk_that_was_pulled_comes_back_by_itself", &LOOPS) {
        return;
    }
    let real = Real::start();
    let (loops, other) = (LoopDisk::new(&real, "l0.img", 256 * MIB), real.disk("d1.img", 256 * MIB));
    real.ok(&format!("create pulled -o checksum=none -d raid1 -m raid1 {} {other}", loops.path()));
    real.ok("volume create pulled/v 32M");
    write_to(&real, "pulled/v", 0, 16 * MIB, 1);
    loops.pull();
    write_to(&real, "pulled/v", 0, 4 * MIB, 2);
    assert_eq!((state(&real, 1), state(&real, 2)), ("MISSING".into(), "ONLINE".into()));
    let status = real.ok("status pulled");
    assert!(status.contains("DEGRADED") && status.contains("taken back by itself"), "{status}");
    let events = real.ok("events pulled");
    assert!(events.contains("is no longer used: it vanished") && !events.contains("full"), "{events}");
    // Not before it is there.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(state(&real, 1), "MISSING");
    loops.plug_in();
    becomes_online(&real, 1);
    real.ok("wait pulled");
    let run = real.braid("scrub -w pulled");
    assert!(run.code == 0 && run.out.contains("nothing found"), "{run:?}");
    // What it missed is there.
    real.ok("offline pulled 2");
    write_to(&real, "pulled/v", 4 * MIB, 8 * MIB, 2);
    let file = File::open(real.ok("share pulled/v fuse").lines().next().expect("a path")).expect("the share");
    let (mut found, mut expected) = (vec![0; MIB as usize], vec![0; MIB as usize]);
    for at in (0..16 * MIB).step_by(MIB as usize) {
        file.read_exact_at(&mut found, at).expect("read");
        stamp(&mut expected, at, if at < 8 * MIB { 2 } else { 1 });
        assert!(found == expected, "at {at}");
    }
    drop(file);
    // An operator who took one out of use has a reason.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(state(&real, 2), "MISSING");
    real.ok("export -f pulled");
}

/// What is on the others goes on meanwhile.
#[test]
fn a_pulled_disk_that_the_pool_cannot_do_without_comes_back_by_itself() {
    if !have("a_pulled_disk_that_the_pool_cannot_do_without_comes_back_by_itself", &LOOPS) {
        return;
    }
    let real = Real::start();
    let loops: Vec<LoopDisk> = (0..3).map(|i| LoopDisk::new(&real, &format!("l{i}.img"), 256 * MIB)).collect();
    let paths: Vec<&str> = loops.iter().map(LoopDisk::path).collect();
    real.ok(&format!("create needed -d raid0 -m raid1c3 {}", paths.join(" ")));
    real.ok("volume create needed/v 64M");
    let socket = real.path("v.sock");
    real.ok(&format!("share needed/v nbd --unix={}", socket.display()));
    let mut client = Client::connect(&socket, "needed/v", Wish::default()).expect("connect");
    let mut data = vec![0; MIB as usize];
    for is_flushed in [true, false] {
        for at in (0..32 * MIB).step_by(MIB as usize) {
            stamp(&mut data, at, 1 + u8::from(is_flushed));
            assert_eq!(client.write(0, at, &data).expect("write").error, 0);
        }
        if is_flushed {
            assert_eq!(client.call(cmd::FLUSH, 0, 0, 0).expect("flush").error, 0);
        }
        loops[1].pull();
        let mut reads = |real: &Real| {
            let each = (0..32 * MIB / 65536).map(|i| client.read(i * 65536, 65536).expect("read").error);
            let failed = each.filter(|error| *error != 0).count();
            assert!(!real.ok("status needed").contains("SUSPENDED"));
            failed
        };
        assert!([170, 171].contains(&reads(&real)), "a third of 512 strips");
        let status = real.ok("status needed");
        assert!(status.contains("taken back by itself"), "{status}");
        loops[1].plug_in();
        let begun = Instant::now();
        while real.ok("status needed").contains("taken back by itself") {
            assert!(begun.elapsed() < Duration::from_secs(10), "{}", real.ok("status needed"));
            std::thread::sleep(Duration::from_millis(50));
        }
        becomes_online(&real, 2);
        assert_eq!(reads(&real), 0);
        // What nobody had flushed might have been gone with its cache.
        assert_eq!(client.call(cmd::FLUSH, 0, 0, 0).expect("flush").error == 0, is_flushed);
        assert_eq!(client.call(cmd::FLUSH, 0, 0, 0).expect("flush").error, 0);
    }
    client.disconnect().expect("disconnect");
    let run = real.braid("scrub -w needed");
    assert!(run.code == 0 && run.out.contains("nothing found"), "{run:?}");
    real.ok("export -f needed");
}

/// A copy of a disk of now, and a pool that was opened and closed once since.
fn copy_and_go_on(real: &mut Real, disk: &str) {
    real.stop();
    std::fs::copy(disk, real.path("then")).expect("copy");
    real.restart();
    // It is open, and not only about to be.
    real.ok("status tank");
    real.stop();
    real.restart();
}

/// It is told that the second member is older, and it gets all of what it lacks.
fn is_made_anew(real: &Real) {
    let events = real.ok("events tank");
    assert!(events.contains("d1.img) is older than the others know it"), "{events}");
    becomes_online(real, 2);
    real.ok("wait tank");
    let run = real.braid("scrub -w tank");
    assert!(run.code == 0 && run.out.contains("nothing found"), "{run:?}");
}

/// As when the snapshot of one disk is put back; without checksums nothing else would notice.
#[test]
fn a_copy_of_another_time_is_made_anew() {
    let mut real = Real::start();
    let disks = [real.disk("d0.img", 256 * MIB), real.disk("d1.img", 256 * MIB)];
    real.ok(&format!("create tank -o checksum=none -d raid1 -m raid1 {}", disks.join(" ")));
    real.ok("volume create tank/v 32M");
    write(&real, 0, 8 * MIB, 1);
    copy_and_go_on(&mut real, &disks[1]);
    write(&real, 0, 8 * MIB, 2);
    real.kill();
    std::fs::rename(real.path("then"), &disks[1]).expect("rename");
    real.restart();
    is_made_anew(&real);
    // The same while the pool is open.
    copy_and_go_on(&mut real, &disks[1]);
    write(&real, 0, 8 * MIB, 3);
    real.ok("offline tank 2");
    std::fs::rename(real.path("then"), &disks[1]).expect("rename");
    real.ok("online tank 2");
    is_made_anew(&real);
    real.ok("offline tank 2");
    real.ok("online tank 2");
    becomes_online(&real, 2);
    let events = real.ok("events tank");
    assert_eq!(events.matches("is older than the others know it").count(), 1, "it is the member itself: {events}");
}

/// Nothing was written since the opening, so there is nothing to wait for; that it was asked for is no error.
#[test]
fn a_member_is_taken_out_right_after_an_import() {
    let real = Real::start();
    let disks: Vec<String> = (0..4).map(|i| real.disk(&format!("d{i}"), 192 * MIB)).collect();
    real.ok(&format!("create tank -d raid6 -m raid1c3 {}", disks.join(" ")));
    for device in 1..=4 {
        real.ok("export tank");
        real.ok(&format!("import tank -d {}", real.word("")));
        real.ok(&format!("offline tank {device}"));
        assert_eq!(state(&real, device), "MISSING");
        real.ok(&format!("online tank {device}"));
        becomes_online(&real, device);
    }
    let events = real.ok("events");
    assert!(events.contains("was taken out of use") && !events.contains("vanished"), "{events}");
}

/// Parity over NBD with other people's client: without one member, with a disk full of noise, and then without another member,
/// which is right only if the scrub put parity right as well.
#[test]
fn a_disk_full_of_noise_is_made_from_the_others() {
    if !have("a_disk_full_of_noise_is_made_from_the_others", &[Need::Tool("nbdcopy")]) {
        return;
    }
    let real = Real::start();
    let disks: Vec<String> = (0..4).map(|i| real.disk(&format!("d{i}"), 192 * MIB)).collect();
    real.ok(&format!("create tank -d raid5 {}", disks.join(" ")));
    real.ok("volume create tank/v 24M");
    let uri = real.ok("share tank/v nbd").trim().to_string();
    let (one, two, out) = (image(&real, "one", 24 * MIB), real.word("two"), real.word("out"));
    sh(&format!("tr '\\000-\\377' '\\001-\\377\\000' <{one} >{two}"));
    sh(&format!("nbdcopy {one} '{uri}'; nbdcopy '{uri}' {out}; cmp {one} {out}"));
    real.ok("offline tank 2");
    sh(&format!(
        "nbdcopy '{uri}' {out}; cmp {one} {out}; nbdcopy {two} '{uri}'; nbdcopy '{uri}' {out}; cmp {two} {out}"
    ));
    real.ok("online tank 2");
    becomes_online(&real, 2);
    sh(&format!("dd if=/dev/urandom of={} bs=1M seek=2 count=190 conv=notrunc status=none", disks[2]));
    real.braid("scrub -w tank");
    sh(&format!("nbdcopy '{uri}' {out}; cmp {two} {out}"));
    real.ok("offline tank 1");
    sh(&format!("nbdcopy '{uri}' {out}; cmp {two} {out}"));
    assert!(real.ok("status tank").contains("no data lost"), "{}", real.ok("status tank"));
}
