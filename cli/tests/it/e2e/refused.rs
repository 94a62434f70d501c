//! Bad input, devices that are not ours, a daemon out of reach, damaged superblocks: a reason, and nothing half made.

use super::torture::{Nbd, Target, cover};
use super::{GIB, MIB, Model};
use crate::real::{LOOP, Real, shell};
use crate::tools::{Need, have, sh};
use std::fs::File;
use std::os::unix::fs::FileExt;

impl Real {
    /// Names and sizes of everything below the folder but the log, and the pools.
    fn everything(&self) -> (Vec<String>, String) {
        let list = format!("cd {}; find . -not -name log -printf '%p %s %T@\\n' | sort", self.dir.path().display());
        (sh(&list).lines().map(String::from).collect(), self.ok("list -H -o name"))
    }

    /// This code and these words; nothing is printed, and nothing is different afterwards.
    pub(crate) fn refuses(&self, line: &str, code: i32, said: &[&str]) {
        let before = self.everything();
        let run = self.braid(line);
        assert_eq!((run.code, run.out.as_str()), (code, ""), "braid {line}: {run:?}");
        for part in said {
            assert!(run.err.contains(part), "braid {line}: '{part}' is not in {run:?}");
        }
        let first = run.err.lines().next().unwrap_or("");
        assert!(first.starts_with("braid: ") && first.len() > 20, "braid {line}: {run:?}");
        assert!(run.err.lines().count() <= 3 && !run.err.contains("panicked"), "one sentence and a way out: {run:?}");
        assert_eq!(self.everything(), before, "braid {line}: something was half made");
    }
}

fn write_at(path: &str, offset: u64, bytes: &[u8]) {
    File::options().write(true).open(path).and_then(|f| f.write_all_at(bytes, offset)).expect("write");
}

#[test]
fn bad_input_is_refused_and_nothing_is_half_made() {
    let real = Real::start();
    let (a, b) = (real.disk("a", GIB), real.disk("b", GIB));
    real.ok(&format!("create tank -d raid1 -m raid1 {a} {b}"));
    real.ok("volume create tank/v 32M");
    let (c, d, zero) = (real.disk("c", GIB / 2), real.disk("d", GIB / 2), real.disk("zero", 0));
    let (odd, small, btrfs) = (real.disk("odd", 300_000_001), real.disk("small", MIB), real.disk("btrfs", GIB / 2));
    let (ext, none, made) = (real.disk("ext", GIB / 2), real.word("none"), real.word("made/here"));
    // Where the file systems have their magic; that of btrfs is where our first slot is.
    write_at(&ext, 1080, &[0x53, 0xef]);
    write_at(&btrfs, 65_536 + 64, b"_BHRfS_M");
    let link = real.word("link");
    std::os::unix::fs::symlink(&c, &link).expect("symlink");
    let rows: &[(String, i32, &[&str])] = &[
        (format!("create p -d raid1 {c}"), 2, &["raid1 needs 2 devices, 1 given", "add 1 more"]),
        (format!("create p -d raid1c4 -m raid1 {c} {d}"), 2, &["raid1c4 needs 4 devices, 2 given"]),
        (format!("create p -d raid1 {c} {zero}"), 2, &[&zero, "size"]),
        (format!("create p -d raid1 {c} {odd}"), 2, &[&odd, "size"]),
        (format!("create p -d raid1 {c} {small}"), 2, &[&small]),
        (format!("create p -d raid1 {c} {none}"), 4, &[&none]),
        (format!("create p -d raid1 {c} {c}"), 2, &["named twice"]),
        (format!("create p -d raid1 {c} {link}"), 2, &["are the same device"]),
        (format!("create p -d raid1 {c} {a}"), 5, &["device 1 of pool tank, which is open"]),
        (format!("create p -d raid1 {c} {a} -f"), 5, &["device 1 of pool tank, which is open"]),
        (format!("create tank -d raid1 {c} {d}"), 1, &["a pool named tank is open already", "another name"]),
        (format!("create p -d raid1 {c} {ext}"), 5, &["ext2/3/4 filesystem", "-f"]),
        (format!("create p -d raid1 {c} {btrfs}"), 5, &["btrfs", "-f"]),
        (format!("create p -d raid7 {c} {d}"), 2, &["no profile 'raid7'", "raid1c3"]),
        (format!("create p --read-policy fastest {c} {d}"), 2, &["no read policy 'fastest'", "roundrobin-v3"]),
        (format!("create p --tier data=256@{c} {c} {d}"), 2, &["'256' is not a tier"]),
        (format!("create mirror {c} {d}"), 2, &["'mirror' cannot be a pool's name"]),
        (format!("create ../x {c} {d}"), 2, &["name"]),
        (format!("create p -d raid1 --file 2x512M --dir {made} {zero}"), 2, &[&zero]),
        (format!("create p -d raid1c3 -m raid1 --file 2x512M --dir {made}"), 2, &["needs 3 devices"]),
        ("set read_policy=fastest tank".into(), 2, &["no read policy 'fastest'"]),
        ("set read_policy=devid:9 tank".into(), 4, &["9"]),
        ("set tier.data=300 tank 1".into(), 2, &["'300' is not a tier"]),
        ("volume create tank/../x 1G".into(), 2, &["cannot be a volume's name"]),
        ("volume create tank/v 1G".into(), 1, &["already"]),
        ("volume create tank/huge 2E".into(), 2, &["at most"]),
        ("volume create tank/zero 0".into(), 2, &["no size"]),
        ("volume create nopool/v 1G".into(), 4, &["no open pool named nopool"]),
        ("volume resize tank/v 16M".into(), 5, &["32MiB"]),
        ("destroy tank".into(), 5, &["This forgets pool tank", "add -y"]),
        ("destroy tank/v".into(), 5, &["This forgets volume tank/v", "add -y"]),
        ("share tank/nothing nbd".into(), 4, &["no volume nothing"]),
        ("share tank/v nfs".into(), 2, &["nbd fuse loop"]),
        (format!("import nopool -d {}", real.dir.path().display()), 4, &["nopool"]),
    ];
    for (line, code, said) in rows {
        real.refuses(line, *code, said);
    }
    for untouched in [&c, &d] {
        assert!(std::fs::read(untouched).expect("read").iter().all(|b| *b == 0), "{untouched} is as it was");
    }
    assert!(!real.path("made").exists());
    assert_eq!(real.ok("list -H -o name,volumes"), "tank\t1");
}

#[test]
fn a_mounted_device_is_refused_even_with_force() {
    let mut needs = LOOP.to_vec();
    needs.push(Need::Tool("mkfs.ext4"));
    if !have("a_mounted_device_is_refused_even_with_force", &needs) {
        return;
    }
    let real = Real::start();
    let (disk, mount) = (real.disk("disk", GIB / 4), real.word("mnt"));
    let device = sh(&format!("losetup -f --show {disk}")).trim().to_string();
    sh(&format!("mkfs.ext4 -q {device}; mkdir {mount}; mount -o ro {device} {mount}"));
    for force in ["", " -f"] {
        let run = real.braid(&format!("create p -d single -m dup {device}{force}"));
        assert!(run.code == 5 && run.err.contains(&device), "{run:?}");
        assert_eq!(real.ok("list -H"), "");
    }
    sh(&format!("umount {mount}; e2fsck -fn {device}"));
}

#[test]
fn who_cannot_reach_the_daemon_is_told_why() {
    let mut real = Real::start();
    if have("who_cannot_reach_the_daemon_is_told_why (as nobody)", &[Need::Root, Need::Tool("setpriv")]) {
        let open = tempfile::tempdir().expect("tempdir");
        std::fs::copy(env!("CARGO_BIN_EXE_braid"), open.path().join("braid")).expect("copy");
        let (bin, dir) = (open.path().display(), real.dir.path().display());
        sh(&format!("chmod 755 {bin} {dir} {dir}/run"));
        let as_nobody =
            format!("setpriv --reuid=65534 --regid=65534 --clear-groups {bin}/braid --socket {dir}/run/braid.sock");
        let run = shell(&format!("{as_nobody} list"));
        assert!(run.code == 3 && run.err.contains("this user may not use it"), "{run:?}");
        real.tank("single", &[GIB / 2], 32 * MIB);
        real.ok("share tank/v nbd");
        assert_eq!(sh(&format!("stat -c %a {dir}/run/braid.sock {dir}/run/nbd.sock")), "600\n600\n");
    }
    real.stop();
    for line in ["list", "status", "create p ram:1G", "share tank/v nbd"] {
        let run = real.braid(line);
        assert_eq!((run.code, run.out.as_str()), (3, ""), "{line}: {run:?}");
        assert!(run.err.contains("no braid daemon listens on") && run.err.contains("braid daemon"), "{run:?}");
    }
    let run = real.braid("status --check");
    assert!(run.code == 3 && run.out.starts_with("UNKNOWN"), "{run:?}");
}

/// One slot damaged: opened from the other. Both: what and where, and the pool goes on without that device. All
/// devices: no pool, and no crash.
#[test]
fn damaged_superblocks_are_named_and_survived() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB / 2; 2], 32 * MIB);
    real.ok("share tank/v nbd");
    let socket = real.path("run/nbd.sock");
    let nbd = Nbd { socket: &socket, connections: 1 };
    let jobs = cover(8 * MIB, 1, Some(1));
    let mut model = Model::new(32 * MIB);
    nbd.run(&jobs, &model, "writes");
    model.write(0, 8 * MIB, 1);
    let import = format!("import tank -d {}", real.dir.path().display());
    let look = format!("import -d {}", real.dir.path().display());
    let flip = |disk: &str, slot: u64| {
        let path = real.word(disk);
        let mut bytes = [0; 16];
        File::open(&path).and_then(|f| f.read_exact_at(&mut bytes, slot + 200)).expect("read");
        write_at(&path, slot + 200, &bytes.map(|b| !b));
    };
    for slot in [65_536, 524_288] {
        real.ok("export -f tank");
        flip("d0.img", slot);
        let found = real.json(&look);
        assert_eq!((&found[0]["name"], &found[0]["missing"]), (&"tank".into(), &0.into()), "{found}");
        real.ok(&import);
        assert_eq!(real.braid("status --check").code, 0);
        real.ok("share tank/v nbd");
        nbd.run(&cover(32 * MIB, 9, None), &model, "one slot damaged");
        // The damaged slot is written again in turn, before the other is damaged.
        for policy in ["queue", "pid", "latency"] {
            real.ok(&format!("set read_policy={policy} tank"));
        }
    }
    real.ok("export -f tank");
    flip("d1.img", 65_536);
    flip("d1.img", 524_288);
    let found = real.json(&look);
    let note = found[0]["note"].as_str().unwrap_or("");
    for part in ["d1.img", "superblock at 64KiB", "superblock at 512KiB", "checksum"] {
        assert!(note.contains(part), "'{part}': {found}");
    }
    assert_eq!(found[0]["missing"], 1, "{found}");
    real.ok(&import);
    assert_eq!(real.braid("status --check").code, 1, "degraded");
    real.ok("share tank/v nbd");
    nbd.run(&cover(32 * MIB, 9, None), &model, "a device without superblocks");
    real.ok("export -f tank");
    flip("d0.img", 65_536);
    flip("d0.img", 524_288);
    let run = real.braid(&import);
    assert!(run.code == 4 && run.err.contains("d0.img: superblock at 64KiB"), "{run:?}");
    let run = real.braid(&format!("create other {} {}", real.word("d0.img"), real.word("d1.img")));
    assert!(run.code == 5 && run.err.contains("may have been a member") && run.err.contains("-f"), "{run:?}");
    real.restart();
    assert_eq!(real.ok("list -H"), "");
}
