//! What a daemon that starts finds again, the one before having ended in order or not.

use crate::real::{LOOP, Real};
use crate::tools::{Need, have, sh};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[test]
fn shares_are_there_again_at_the_same_place_after_kill_9() {
    if !have("shares_are_there_again_at_the_same_place_after_kill_9", &[Need::Tool("nbdinfo")]) {
        return;
    }
    let mut real = Real::start();
    real.tank("raid1", &[GIB, GIB], 64 * MIB);
    let mut nbd = vec![
        real.ok("share tank/v nbd"),
        real.ok("share tank/v nbd --tcp 127.0.0.1:0"),
        real.ok(&format!("share tank/v nbd -r --unix={}", real.word("own.sock"))),
    ];
    let files = have("shares_are_there_again_at_the_same_place_after_kill_9 (fuse, loop)", &LOOP);
    let (mut fuse, mut device) = (String::new(), String::new());
    if files {
        fuse = real.ok("share tank/v fuse");
        real.ok("volume create tank/w 64M");
        device = real.ok("share tank/w loop");
        sh(&format!("echo kept | dd of={fuse} bs=4096 seek=3 conv=notrunc,fsync status=none"));
        sh(&format!("echo kept too | dd of={device} bs=4096 seek=5 conv=notrunc,fsync status=none"));
    }
    real.ok("volume create tank/passing 64M");
    real.ok("share --temporary tank/passing nbd");
    let shares = |real: &Real| real.ok("shares -H -o uri,mode,remembered");
    let before = shares(&real);
    let kept: Vec<&str> = before.lines().filter(|l| l.ends_with("yes")).collect();
    assert_eq!(kept.len(), before.lines().count() - 1, "all but the temporary one: {before}");
    for orderly in [false, true] {
        if orderly {
            real.stop()
        } else {
            real.kill()
        }
        assert_ne!(real.braid("shares").code, 0, "the daemon is gone");
        real.restart();
        assert_eq!(shares(&real).lines().collect::<Vec<_>>(), kept);
        for uri in &nbd {
            assert_eq!(sh(&format!("nbdinfo --size '{uri}'")).trim(), (64 * MIB).to_string(), "{uri}");
        }
        if files {
            assert_eq!(sh(&format!("dd if={fuse} bs=4096 skip=3 count=1 status=none | head -n1")), "kept\n");
            let read = format!("dd if={device} bs=4096 skip=5 count=1 iflag=direct status=none | head -n1");
            assert_eq!(sh(&read), "kept too\n");
        }
        assert_eq!(real.braid("status --check").code, 0, "{}", real.ok("status"));
    }
    let uri = nbd.remove(1);
    real.ok(&format!("unshare {uri}"));
    real.kill();
    real.restart();
    assert!(!shares(&real).contains(&uri), "unshared is unshared");
}

#[test]
fn a_share_whose_place_is_taken_is_a_line_in_status() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB, GIB], 64 * MIB);
    let uri = real.ok("share tank/v nbd --tcp 127.0.0.1:0");
    real.kill();
    let address = uri.trim_start_matches("nbd://").trim_end_matches("/tank/v").to_string();
    let taken = std::net::TcpListener::bind(&address).expect("the port is free now");
    real.restart();
    let status = real.ok("status");
    assert!(status.contains(&format!("status: tank/v is not shared as {uri} any more")), "{status}");
    assert!(status.contains(&format!("braid unshare {uri}")), "{status}");
    let run = real.braid("status --check");
    assert!(run.code == 1 && run.out.contains(&uri), "{run:?}");
    drop(taken);
    assert_eq!(real.ok(&format!("share tank/v nbd --tcp {address}")), uri);
    assert_eq!(real.braid("status --check").code, 0);
}

#[test]
fn the_state_folder_can_be_named_and_the_flag_comes_before_the_environment() {
    let mut real = Real::start();
    real.state_dir = Some("named".into());
    real.restart();
    real.tank("raid1", &[GIB, GIB], 64 * MIB);
    let list = |folder: &str| std::fs::read_to_string(real.path(folder).join("pools.json")).unwrap_or_default();
    assert!(list("named").contains("tank") && list("state").is_empty());
    real.restart();
    assert_eq!(real.ok("list -H -o name"), "tank", "the client finds the socket as before");
    real.state_dir = None;
    real.restart();
    assert_eq!(real.ok("list -H -o name"), "", "$BRAID_STATE_DIR again, where nothing is known");
}
