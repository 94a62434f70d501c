//! What people use on a share: fio, nbdinfo, nbdcopy, qemu-img, a file system.

use super::{Dice, GIB, MIB, image, stamp};
use crate::real::{LOOP, Real, shell};
use crate::tools::{Need, have, sh};

#[test]
fn fio_verifies_what_it_wrote_over_nbd() {
    if !have("fio_verifies_what_it_wrote_over_nbd", &[Need::Tool("fio")]) {
        return;
    }
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 64 * MIB);
    let uri = real.ok("share tank/v nbd");
    sh(&format!(
        "cd {}; fio --name=v --ioengine=nbd --uri='{uri}' --rw=randrw --rwmixread=30 --bsrange=4k-256k --iodepth=16 \
         --size=48m --verify=crc32c --verify_fatal=1 --verify_state_save=0 --do_verify=1 --randrepeat=1 --output=fio.log",
        real.dir.path().display()
    ));
}

#[test]
fn nbdinfo_says_what_the_export_can() {
    if !have("nbdinfo_says_what_the_export_can", &[Need::Tool("nbdinfo")]) {
        return;
    }
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 64 * MIB);
    let uri = real.ok("share tank/v nbd");
    let text = sh(&format!("nbdinfo --json '{uri}'"));
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let export = &value["exports"][0];
    assert_eq!((value["protocol"].as_str(), value["structured"].as_bool()), (Some("newstyle-fixed"), Some(true)));
    assert_eq!(export["export-size"], 64 * MIB);
    for can in
        ["can_cache", "can_df", "can_fast_zero", "can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"]
    {
        assert_eq!(export[can], true, "{can}: {text}");
    }
    assert_eq!(export["is_read_only"], false, "{text}");
    assert!(export["contexts"].to_string().contains("base:allocation"), "{text}");
    assert!(export["block_size_maximum"].as_u64() >= Some(MIB), "{text}");
    assert_eq!(sh(&format!("nbdinfo --map --totals '{uri}'")).split_whitespace().nth(2), Some("3"), "a hole of zeros");
    let list = sh(&format!("nbdinfo --list --json 'nbd+unix:///?socket={}'", real.word("run/nbd.sock")));
    assert!(list.contains("tank/v"), "{list}");
}

#[test]
fn images_go_in_and_out_unchanged() {
    let tools = [Need::Tool("nbdcopy"), Need::Tool("qemu-img")];
    if !have("images_go_in_and_out_unchanged", &tools) {
        return;
    }
    let real = Real::start();
    real.tank("raid10", &[GIB; 4], 48 * MIB);
    let uri = real.ok("share tank/v nbd");
    let (one, two) = (image(&real, "one.img", 48 * MIB), image(&real, "two.img", 40 * MIB));
    let out = real.word("out.img");
    sh(&format!("nbdcopy {one} '{uri}'; nbdcopy '{uri}' {out}; cmp {one} {out}"));
    sh(&format!("qemu-img compare -f raw -F raw {one} '{uri}'"));
    let used = real.json("volume list tank")[0]["data_bytes"].as_u64().expect("data_bytes");
    assert!((4 * MIB..12 * MIB).contains(&used), "holes of an image stay holes: {used} bytes are used");
    // Another image over it, in a format of its own: what was there must be gone where it has holes.
    sh(&format!("truncate -s 48M {two}; qemu-img convert -f raw -O qcow2 {two} {out}.qcow2"));
    sh(&format!("qemu-img convert -n -f qcow2 -O raw {out}.qcow2 '{uri}'"));
    sh(&format!("qemu-img compare -f qcow2 -F raw {out}.qcow2 '{uri}'"));
    sh(&format!("qemu-img convert -f raw -O raw '{uri}' {out}; cmp {two} {out}"));
}

#[test]
fn a_file_system_on_a_loop_share_keeps_a_tree() {
    let mut needs = LOOP.to_vec();
    needs.extend(["mkfs.ext4", "e2fsck", "fstrim"].map(Need::Tool));
    if !have("a_file_system_on_a_loop_share_keeps_a_tree", &needs) {
        return;
    }
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 256 * MIB);
    let device = real.ok("share tank/v loop");
    let (tree, mount) = (real.path("tree"), real.word("mnt"));
    let mut dice = Dice(11);
    for i in 0..200 {
        let folder = tree.join(format!("a{}/b{}", i % 7, i % 13));
        std::fs::create_dir_all(&folder).expect("mkdir");
        let mut data = vec![0; 8 * dice.below(25_000) as usize];
        stamp(&mut data, i << 32, 1);
        data.truncate(data.len().saturating_sub(dice.below(8) as usize));
        std::fs::write(folder.join(format!("file{i}")), data).expect("write");
    }
    let tree = tree.display();
    sh(&format!(
        "mkfs.ext4 -q {device}; mkdir {mount}; mount {device} {mount}; cp -a {tree} {mount}/; sync -f {mount}"
    ));
    sh("echo 3 > /proc/sys/vm/drop_caches");
    sh(&format!("diff -r {tree} {mount}/tree"));
    let used = || real.json("volume list tank")[0]["data_bytes"].as_u64().expect("data_bytes");
    let full = used();
    assert!(full > 15 * MIB, "{full}");
    sh(&format!("rm -r {mount}/tree/a0 {mount}/tree/a1 {mount}/tree/a2; sync -f {mount}; fstrim {mount}"));
    assert!(used() < full - 5 * MIB, "fstrim gives back: {} of {full} bytes are still used", used());
    sh("echo 3 > /proc/sys/vm/drop_caches");
    sh(&format!("rm -r {tree}/a0 {tree}/a1 {tree}/a2; diff -r {tree} {mount}/tree; umount {mount}"));
    sh(&format!("e2fsck -fn {device}"));
    assert_eq!(real.braid("unshare tank/v").code, 0);
    assert!(!shell(&format!("losetup {device}")).out.contains("vol"), "the loop device is free again");
}
