//! Shares over FUSE and loop devices.

use super::*;
use crate::tools::{Need, have, sh};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn fuse_here(name: &str) -> bool {
    have(name, &[Need::Node("/dev/fuse"), Need::Root])
}

#[test]
fn a_fuse_share_is_a_file_of_the_volumes_size() {
    if !fuse_here("a_fuse_share_is_a_file_of_the_volumes_size") {
        return;
    }
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 32 * MIB);
    let info = world.share(share("tank", "v", ShareKind::Fuse)).unwrap();
    assert!(world.share(share("tank", "v", ShareKind::Fuse)).unwrap().existing);
    let path = Path::new(&info.uri);
    assert_eq!(path, world.path("run/fuse/tank/v/v").canonicalize().unwrap());
    assert_eq!(path.metadata().unwrap().len(), 32 * MIB);
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let data = pattern(0, 1 << 20);
    file.write_all_at(&data, 12_345).unwrap();
    file.sync_all().unwrap();
    world.nbd("tank", "v");
    assert_eq!(world.client("tank/v").read(12_345, 1 << 20).unwrap().data, data, "one volume, two shares");
    let grow = ResizeVolume { pool: "tank".into(), volume: "v".into(), size_bytes: 64 << 20, ..Default::default() };
    assert_eq!(world.volume_resize(grow).unwrap().notes, Vec::<String>::new());
    assert_eq!(path.metadata().unwrap().len(), 64 * MIB);
    let busy = world.unshare(unshare(&info.uri, false)).unwrap_err();
    assert_eq!((busy.code.as_str(), busy.kind), ("share.in_use", ErrorKind::Refused));
    drop(file);
    world.unshare(unshare(&info.uri, false)).unwrap();
    assert!(!world.path("run/fuse/tank").exists());
    assert_eq!(world.shares(ListShares::default()).unwrap().len(), 1);
}

#[test]
fn the_pid_policy_takes_the_reading_process_for_the_client_of_a_fuse_share() {
    if !fuse_here("the_pid_policy_takes_the_reading_process_for_the_client_of_a_fuse_share") {
        return;
    }
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 32 * MIB);
    world.set(set(Target::Pool { pool: "tank".into() }, &[("read_policy", "pid")])).unwrap();
    let path = world.share(share("tank", "v", ShareKind::Fuse)).unwrap().uri;
    fs::write(&path, pattern(0, 1 << 20)).unwrap();
    let chosen =
        || -> Vec<u64> { world.iostat(IoStat::default()).unwrap().pools[0].devices.iter().map(|d| d.chosen).collect() };
    // Which mirror an even and an odd process read.
    let mut mirrors = [None, None];
    for _ in 0..64 {
        let before = chosen();
        let mut dd = std::process::Command::new("dd");
        dd.arg(format!("if={path}")).args(["of=/dev/null", "bs=64k", "count=16", "iflag=direct", "status=none"]);
        let mut child = dd.spawn().unwrap();
        let pid = child.id() as usize;
        assert!(child.wait().unwrap().success());
        let read: Vec<usize> = (0..2).filter(|i| chosen()[*i] > before[*i]).collect();
        assert_eq!(read.len(), 1, "process {pid} read more than one mirror: {before:?}, {:?}", chosen());
        assert_eq!(*mirrors[pid % 2].get_or_insert(read[0]), read[0], "process {pid}");
        if mirrors.iter().all(Option::is_some) {
            assert_ne!(mirrors[0], mirrors[1]);
            return;
        }
    }
    panic!("64 processes were all even or all odd");
}

#[test]
fn a_loop_share_is_a_block_device() {
    let needs = [Need::Node("/dev/fuse"), Need::Node("/dev/loop-control"), Need::Root, Need::Tool("mkfs.ext4")];
    if !have("a_loop_share_is_a_block_device", &needs) {
        return;
    }
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 64 * MIB);
    let info = world.share(share("tank", "v", ShareKind::Loop)).unwrap();
    let (device, mount) = (&info.uri, world.path("mnt").display().to_string());
    assert!(device.starts_with("/dev/loop") && info.notes[0].contains("undo: braid unshare tank/v"), "{info:?}");
    sh(&format!("mkfs.ext4 -q {device}; mkdir {mount}; mount {device} {mount}; echo kept > {mount}/file; sync"));
    let busy = world.unshare(unshare("tank/v", false)).unwrap_err();
    assert_eq!(busy.kind, ErrorKind::Refused, "{busy:?}");
    assert_eq!(
        sh(&format!("cat {mount}/file; umount {mount}; e2fsck -fn {device} >/dev/null 2>&1; echo clean")),
        "kept\nclean\n"
    );
    let grow = ResizeVolume { pool: "tank".into(), volume: "v".into(), size_bytes: 96 << 20, ..Default::default() };
    assert_eq!(world.volume_resize(grow).unwrap().notes, Vec::<String>::new());
    assert_eq!(sh(&format!("blockdev --getsize64 {device}")).trim(), (96 * MIB).to_string());
    world.unshare(unshare("tank/v", false)).unwrap();
    assert_eq!(world.shares(ListShares::default()).unwrap(), []);
}
