//! Other people's clients against our server.

use std::process::Command;
use std::time::{Duration, Instant};

use super::world::*;
use super::{run, tool};

const MIB: u64 = 1 << 20;

#[test]
fn nbdinfo_sees_what_is_offered() {
    if !tool("nbdinfo", "nbdinfo_sees_what_is_offered") {
        return;
    }
    let daemon = Daemon::simple(64 * MIB);
    let text = run(Command::new("nbdinfo").arg(daemon.uri("disk")));
    for line in [
        "export-size: 67108864",
        "can_multi_conn: true",
        "can_fua: true",
        "can_df: true",
        "can_fast_zero: true",
        "base:allocation",
        "block_size_maximum: 33554432",
        "block_size_preferred: 4096",
        "is_read_only: false",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let list = run(Command::new("nbdinfo").arg("--list").arg(daemon.uri("")));
    assert!(list.contains("export=\"disk\""), "{list}");
    let map = run(Command::new("nbdinfo").arg("--map").arg(daemon.uri("disk")));
    assert!(map.contains("hole,zero"), "{map}");
}

#[test]
fn nbdcopy_there_and_back() {
    if !tool("nbdcopy", "nbdcopy_there_and_back") {
        return;
    }
    let daemon = Daemon::simple(64 * MIB);
    let (from, to) = (daemon.dir.path().join("from"), daemon.dir.path().join("to"));
    let mut data = stamp(0, 64 << 20, 5);
    data[10 << 20..30 << 20].fill(0);
    std::fs::write(&from, &data).unwrap();
    run(Command::new("nbdcopy").arg(&from).arg(daemon.uri("disk")));
    assert!(daemon.rams.lock().unwrap().values().next().unwrap().data == data);
    run(Command::new("nbdcopy").arg(daemon.uri("disk")).arg(&to));
    assert!(std::fs::read(&to).unwrap() == data);
}

#[test]
fn qemu_img_converts_and_compares() {
    if !tool("qemu-img", "qemu_img_converts_and_compares") {
        return;
    }
    let daemon = Daemon::simple(64 * MIB);
    let from = daemon.dir.path().join("from");
    let mut data = stamp(0, 64 << 20, 6);
    data[20 << 20..50 << 20].fill(0);
    std::fs::write(&from, &data).unwrap();
    run(Command::new("qemu-img").args(["convert", "-n", "-f", "raw", "-O", "raw"]).arg(&from).arg(daemon.uri("disk")));
    let same =
        run(Command::new("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).arg(&from).arg(daemon.uri("disk")));
    assert!(same.contains("identical"), "{same}");
    run(Command::new("qemu-img").args(["map", "--output=json", "-f", "raw"]).arg(daemon.uri("disk")));
}

#[test]
fn qemu_io_reads_writes_zeroes_discards() {
    if !tool("qemu-io", "qemu_io_reads_writes_zeroes_discards") {
        return;
    }
    let daemon = Daemon::simple(64 * MIB);
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for step in [
        "write -P 0xa5 12345 70000",
        "read -P 0xa5 12345 70000",
        "write -f -P 0x17 0 1M",
        "flush",
        "write -z 4096 8192",
        "read -P 0 4096 8192",
        "read -P 0x17 0 4096",
        "write -z -u -n 65536 65536",
        "read -P 0 65536 65536",
        "discard 1M 1M",
        "write -z -u 2M 1M",
        "read -P 0 2M 1M",
    ] {
        command.args(["-c", step]);
    }
    let text = run(command.arg(daemon.uri("disk")));
    assert!(!text.contains("failed") && !text.contains("rror"), "{text}");
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !tool("fio", "fio_verifies_what_it_wrote") {
        return;
    }
    let daemon = Daemon::simple(64 * MIB);
    let mut child = Command::new("fio")
        .current_dir(daemon.dir.path())
        .args(["--name=v", "--ioengine=nbd", "--rw=randrw", "--bsrange=512-128k", "--iodepth=32", "--size=32m"])
        .args(["--verify=crc32c", "--verify_backlog=64", "--do_verify=1", "--randrepeat=1", "--norandommap=0"])
        .arg(format!("--uri={}", daemon.uri("disk")))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("fio does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success());
}
