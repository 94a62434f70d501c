//! The command line as its users see it: the real binary against a real control socket with a mocked daemon behind it.

mod e2e;
mod exposition;
mod failing;
mod fuzz;
mod lab;
mod load;
mod mock;
mod modelled;
mod moving;
mod placement;
mod pulled;
mod real;
mod restart;
mod scrub;
mod see;
mod tidy;
#[path = "../../../host/tests/it/tools.rs"]
mod tools;
mod what_if;

use braid_host::control::api::PoolState;
use braid_host::control::service::ROUTES;
use mock::{Daemon, command, finish};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Twenty lines that an admin would type, before reading anything. `0` = it does it, `1` = it says that it is not there
/// yet, `5` = it asks (nobody answers here).
#[test]
fn what_people_type_first_is_understood() {
    let daemon = Daemon::start();
    for (line, code, part) in [
        ("list", 0, "tank"),
        ("status -x", 0, "all pools are healthy"),
        ("iostat 0.01 1", 0, "tank"),
        ("iostat -v tank 0.01 3", 0, "sdqb"),
        ("fi usage tank", 0, "writable now"),
        ("fi show", 0, "pool: tank"),
        ("dev stats tank", 0, "SLOW"),
        ("dev st -c tank", 0, "SLOW"),
        ("device add /dev/sdf tank", 0, "device 4 added to pool tank"),
        ("add tank /dev/sdf", 0, "writable data        900GiB → "),
        ("add -n tank /dev/sdf", 0, "nothing was changed"),
        ("remove tank 3", 0, "wait: braid wait tank"),
        ("remove -w tank 3", 0, "remove of device 3 finished at 2026-11-21T08:01:00Z: 101GiB moved in 60 s"),
        ("device delete missing tank", 4, "no member is missing"),
        ("replace start 3 /dev/sdf tank", 0, "/dev/sdf replaces device 3"),
        ("replace -n tank 3 /dev/sdf", 0, "nothing was changed"),
        ("replace tank sdqd sdnone", 2, "there is no /dev/sdnone"),
        ("balance start -dconvert=raid1 tank", 0, "balance of pool tank"),
        ("balance status tank", 0, "jobs: remove of device 3 finished"),
        ("balance pause tank", 0, "changed"),
        ("scrub -w tank", 0, "scrub finished at 2026-11-21T08:01:00Z: 600GiB read in 60 s, nothing found"),
        ("scrub start -B tank", 0, "scrub finished"),
        ("set read_policy=latency tank", 0, "read_policy=latency"),
        ("create -V 10G tank/v", 0, "10737418240"),
        ("destroy tank", 5, "This forgets pool tank: 3 devices, 303GiB in use, tank/vm0 tank/vm1"),
    ] {
        let run = daemon.braid(line);
        let text = format!("{}{}", run.out, run.err);
        assert_eq!(run.code, code, "braid {line}: {text}");
        assert!(text.contains(part), "braid {line}: {text}");
    }
}

/// `braid iostat 1` goes on until it is stopped.
#[test]
fn an_interval_without_a_count_goes_on() {
    let daemon = Daemon::start();
    let mut command = command(&daemon.socket());
    let mut child =
        command.args(["iostat", "-H", "0.01"]).stdout(std::process::Stdio::piped()).spawn().expect("braid runs");
    let mut text = vec![0; 100];
    child.stdout.take().expect("piped").read_exact(&mut text).expect("more than one line");
    child.kill().expect("still there");
    child.wait().expect("wait");
    assert!(text.iter().filter(|b| **b == b'\n').count() > 1);
}

/// Every listing in every form: as many cells as columns, numbers where numbers are promised, JSON in its envelope.
#[test]
fn every_listing_is_readable_by_programs() {
    let daemon = Daemon::start();
    // Listing, a column of numbers, the schema.
    for (line, number, schema) in [
        ("list", "size", "braid.list"),
        ("list -t volume", "size", "braid.volume.list"),
        ("status", "size", "braid.status"),
        ("usage", "total", "braid.usage"),
        ("df tank", "data", "braid.usage"),
        ("iostat", "rbytes_s", "braid.iostat"),
        ("iostat -v", "rwait", "braid.iostat"),
        ("get all tank", "", "braid.get"),
        ("device list", "size", "braid.device.list"),
        ("device stats tank", "read", "braid.device.list"),
        ("device usage tank", "unalloc", "braid.usage"),
        ("device scan", "size", "braid.device.scan"),
        ("volume list tank", "used", "braid.volume.list"),
        ("volume map tank/vm0", "length", "braid.volume.map"),
        ("shares", "clients", "braid.shares"),
        ("events", "seq", "braid.events"),
        ("import", "devices", "braid.import"),
    ] {
        let words = |row: &str| row.split('\t').count();
        let plain = daemon.braid(&format!("{line} -H"));
        assert_eq!(plain.code, 0, "{line} -H: {plain:?}");
        let rows: Vec<&str> = plain.out.lines().collect();
        assert!(
            !rows.is_empty() && rows.iter().all(|r| words(r) == words(rows[0]) && words(r) > 1),
            "{line}: {rows:?}"
        );

        let header = daemon.braid(line);
        assert!(header.code == 0 && header.out.lines().count() > rows.len(), "{line} has a header: {header:?}");

        let column = if number.is_empty() { "name" } else { number };
        let one = daemon.braid(&format!("{line} -Hp -o {column}"));
        assert_eq!(one.out.lines().count(), rows.len(), "{line} -Hp -o {column}: {one:?}");
        if !number.is_empty() {
            assert!(one.out.lines().all(|l| l.parse::<u64>().is_ok()), "{line} -Hp -o {column}: {one:?}");
        }
        let all = daemon.braid(&format!("{line} -Hp -o all -s {column}"));
        assert!(all.code == 0 && all.out.lines().all(|r| words(r) >= words(rows[0])), "{line} -o all: {all:?}");

        let unknown = daemon.braid(&format!("{line} -o nonsense"));
        assert_eq!((unknown.code, unknown.out.as_str()), (2, ""), "{line} -o nonsense: {unknown:?}");

        let json = daemon.braid(&format!("{line} -j"));
        let value: serde_json::Value = serde_json::from_str(&json.out).unwrap_or_else(|e| panic!("{line} -j: {e}"));
        assert_eq!((value["schema"].as_str(), value["version"].as_u64()), (Some(schema), Some(1)), "{line}");
        assert!(json.code == 0 && json.err.is_empty(), "{line} -j: nothing but JSON: {json:?}");
        keys_with_units(&value["data"], line);
    }
}

/// Bytes and times are integers, and their key says so.
fn keys_with_units(value: &serde_json::Value, line: &str) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                if key.ends_with("_bytes") || key.ends_with("_ns") {
                    assert!(value.is_u64(), "{line}: {key} = {value}");
                }
                assert!(!matches!(key.as_str(), "size" | "offset" | "length"), "{line}: {key} has no unit");
                keys_with_units(value, line);
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|v| keys_with_units(v, line)),
        _ => {}
    }
}

#[test]
fn json_of_a_repeated_listing_is_one_line_each() {
    let daemon = Daemon::start();
    let run = daemon.braid("-j iostat tank 0.01 3");
    assert_eq!((run.code, run.out.lines().count()), (0, 3));
    assert!(run.out.lines().all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()));
}

#[test]
fn reports_for_people() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.braid("list").out,
        "NAME     SIZE   ALLOC     FREE  WRITABLE  DATA       META     DEVICES  VOLUMES  HEALTH\n\
         tank  2.73TiB  303GiB  2.43TiB   1.21TiB  raid1@hdd  raid1c3        3        2  ONLINE\n"
    );
    *daemon.mock.state.lock().expect("lock") = Some(PoolState::Degraded);
    assert_eq!(
        daemon.braid("status").out,
        "  pool: tank (3 devices, up 3 d)
 state: DEGRADED – still serving; 0 more failures are survivable; 118 of 120 chunks degraded
status: device 3 (sdqd) stopped answering
action: look at its cable
 shape: data raid1@hdd   meta raid1c3   mode tiers   read-policy latency
 space: 1.21TiB of data and 500GiB of metadata writable, 120 chunks, 2 volumes
  sums: crc32c, 12MiB of at most 64MiB in memory
 spill: 1GiB of metadata chunks stand on a tier that is not preferred (1 times since open)
  scan: none requested

ID  NAME     CLASS  STATE      SIZE   ALLOC  READ  WRITE  CKSUM  SLOW  NOTE
 1  nvme9n1  ssd    ONLINE   932GiB  101GiB     0      0      0     0  -
 2  sdqb     hdd    ONLINE   932GiB  101GiB     0      0      0     0  -
 3  sdqd     hdd    FAULTED  932GiB  101GiB    12      0      0     0  was /dev/disk/by-id/ata-X?Y

errors: 12, no data lost
"
    );
    assert!(daemon.braid("status -v").out.contains("data=1,metadata=0"));
    assert_eq!(
        daemon.braid("usage tank").out.lines().last(),
        Some("writable now: 1.21TiB of raid1@hdd data, 500GiB of raid1c3 metadata (not 2.43TiB: that is raw)")
    );
}

/// Without an interval: means since open. With one: that interval only, and no since-start line before it.
#[test]
fn rates() {
    let daemon = Daemon::start();
    let since = daemon.braid("iostat tank");
    assert!(since.out.starts_with("means since open"), "{since:?}");
    let row = "tank\t0\t0\t1000\t0\t4096000\t0\t310000\t-\n";
    assert_eq!(daemon.braid("iostat -Hp tank").out, row);
    assert_eq!(daemon.braid("iostat -Hpy tank 0.01 2").out, row.repeat(2));
}

#[test]
fn a_monitor_gets_one_line_and_a_code() {
    let daemon = Daemon::start();
    for (state, code, line) in [
        (PoolState::Online, 0, "HEALTHY | healthy=1;degraded=0;unavailable=0\n"),
        (
            PoolState::Degraded,
            1,
            "DEGRADED tank: device 3 (sdqd) stopped answering | healthy=0;degraded=1;unavailable=0\n",
        ),
        (
            PoolState::Suspended,
            2,
            "SUSPENDED tank: device 3 (sdqd) stopped answering | healthy=0;degraded=0;unavailable=1\n",
        ),
        (
            PoolState::Unavailable,
            2,
            "UNAVAIL tank: device 3 (sdqd) stopped answering | healthy=0;degraded=0;unavailable=1\n",
        ),
    ] {
        *daemon.mock.state.lock().expect("lock") = Some(state);
        let run = daemon.braid("status --check");
        assert_eq!((run.code, run.out.as_str()), (code, line));
    }
    let nobody = daemon.directory.path().join("nobody.sock");
    let mut command = command(&nobody);
    command.args(["status", "--check"]);
    let run = finish(command);
    assert!(run.code == 3 && run.out.starts_with("UNKNOWN no braid daemon"), "{run:?}");
    assert_eq!(daemon.braid("dev stats -c tank").code, 1, "errors were counted");
}

#[test]
fn properties() {
    let daemon = Daemon::start();
    assert_eq!(daemon.braid("get read_policy tank").out, "pid [latency] device devid:1 queue\n");
    assert_eq!(daemon.braid("get read-policy").out, "pid [latency] device devid:1 queue\n");
    assert_eq!(
        daemon.braid("get all tank").out,
        "NAME  PROPERTY     VALUE    SOURCE\n\
         tank  mode         tiers    default\n\
         tank  read_policy  latency  default\n\
         tank  strict       off      default\n"
    );
    // Line, target, values.
    for (line, target, values) in [
        ("set read_policy=latency tank", r#"{"kind":"pool","pool":"tank"}"#, r#"{"read_policy":"latency"}"#),
        ("set tank read-policy=devid:2", r#"{"kind":"pool","pool":"tank"}"#, r#"{"read_policy":"devid:2"}"#),
        ("set class=ssd tank 3", r#"{"kind":"device","pool":"tank","device":3}"#, r#"{"class":"ssd"}"#),
        ("set class=ssd 3", r#"{"kind":"device","pool":"tank","device":3}"#, r#"{"class":"ssd"}"#),
        ("set class=ssd tank:3", r#"{"kind":"device","pool":"tank","device":3}"#, r#"{"class":"ssd"}"#),
        ("set class=ssd /dev/sdqd", r#"{"kind":"device","pool":"tank","device":3}"#, r#"{"class":"ssd"}"#),
        ("set class=ssd sdqd", r#"{"kind":"device","pool":"tank","device":3}"#, r#"{"class":"ssd"}"#),
        (
            "device set tank 3 class=ssd tier.metadata=0",
            r#"{"kind":"device","pool":"tank","device":3}"#,
            r#"{"class":"ssd","tier.metadata":"0"}"#,
        ),
        (
            "volume set tank/vm0 class=metadata",
            r#"{"kind":"volume","pool":"tank","volume":"vm0"}"#,
            r#"{"class":"metadata"}"#,
        ),
    ] {
        let run = daemon.braid(line);
        assert_eq!(run.code, 0, "{line}: {run:?}");
        let asked = daemon.last("set");
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("row");
        assert_eq!((&asked["target"], &asked["values"]), (&json(target), &json(values)), "{line}");
    }
}

#[test]
fn pools_are_made_in_three_dialects() {
    let daemon = Daemon::start();
    let a = daemon.directory.path().join("a.img");
    let b = daemon.directory.path().join("b.img");
    std::fs::write(&a, "").expect("write");
    std::fs::write(&b, "").expect("write");
    let (a, b) = (a.display().to_string(), b.display().to_string());
    let pattern = daemon.directory.path().join("[ab].img").display().to_string();
    for (line, devices, data, metadata) in [
        (format!("create p -d raid1 -m raid1 {a} {b}"), vec![(&a, None), (&b, None)], "raid1", Some("raid1")),
        (format!("create {a} p {b} --data RAID1 --meta dup"), vec![(&a, None), (&b, None)], "raid1", Some("dup")),
        (
            format!("create p --data raid0@hdd --class hdd={a},{b}"),
            vec![(&a, Some("hdd")), (&b, Some("hdd"))],
            "raid0",
            None,
        ),
        (format!("create p -d raid1 {a} {b} --class ssd={a}"), vec![(&a, Some("ssd")), (&b, None)], "raid1", None),
        (format!("create p -d raid1 --class hdd={pattern}"), vec![(&a, Some("hdd")), (&b, Some("hdd"))], "raid1", None),
    ] {
        let run = daemon.braid(&line);
        assert_eq!(run.code, 0, "{line}: {run:?}");
        let asked = daemon.last("create");
        let got: Vec<(String, Option<String>)> = asked["devices"]
            .as_array()
            .expect("devices")
            .iter()
            .map(|d| (d["path"].as_str().unwrap_or("").into(), d["class"].as_str().map(String::from)))
            .collect();
        let want: Vec<(String, Option<String>)> =
            devices.into_iter().map(|(p, c)| (p.clone(), c.map(String::from))).collect();
        assert_eq!(got, want, "{line}");
        assert_eq!((asked["data"]["profile"].as_str(), asked["metadata"]["profile"].as_str()), (Some(data), metadata));
    }
    let run = daemon
        .braid("create p -n -d raid10 ram:1G ram:1G --tier metadata=0@ssd --class ssd=ram:2G --strict --mode tiers");
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        run.out,
        "would: pool p of 3 devices
  raw space            2.73TiB
  writable data        900GiB
  writable metadata    1GiB
  survivable failures  1
  bytes to move        0B
nothing was changed
"
    );
    let asked = daemon.last("create");
    assert_eq!(
        (&asked["dry_run"], &asked["strict"], &asked["devices"][2]["tiers"]["metadata"]),
        (&true.into(), &true.into(), &0.into())
    );
    let run = daemon.braid("create p --file 4x2G --dir /nonexistent/files");
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        daemon.last("create")["files"].to_string(),
        r#"{"count":4,"directory":"/nonexistent/files","size_bytes":2147483648}"#
    );
    assert_eq!(daemon.braid("create p --file 2x1GB -o strict=on").code, 0);
    assert_eq!(daemon.last("create")["files"]["directory"], "/nonexistent/home/.local/share/braid/p");
}

/// Every way to be wrong: its exit code, what is said, and the way out.
#[test]
fn bad_input_is_refused_with_cause_and_next_step() {
    let daemon = Daemon::start();
    for (line, code, said, hint) in [
        ("create p -d raid7x /dev/null /dev/zero", 2, "there is no profile 'raid7x'; known are single dup", ""),
        ("create p -d radi1 /dev/null /dev/zero", 2, "no profile 'radi1'", "you may mean raid1"),
        ("create p -d raidz2 /dev/null /dev/zero /dev/full", 2, "no profile 'raidz2'", "you may mean raid6"),
        ("create p -d raid1 /dev/null", 2, "raid1 needs 2 devices, 1 given", "add 1 more"),
        ("create p -m single /dev/null /dev/zero", 2, "one copy of the metadata on 2 devices", "-m raid1 or -m dup"),
        ("create p /dev/null /dev/null", 2, "/dev/null is named twice", ""),
        ("create p /dev/null /dev/../dev/null", 2, "are the same device", ""),
        ("create p", 2, "needs at least one device", "braid device scan"),
        ("create /dev/null", 2, "which pool?", "braid create tank"),
        ("create mirror /dev/null", 2, "cannot be a pool's name", ""),
        ("create raidz1 /dev/null", 2, "cannot be a pool's name", ""),
        ("create ../x", 2, "which pool?", ""),
        ("create p nosuchdisk", 2, "there is no /dev/nosuchdisk", "./disk.img"),
        ("create p rbd:pool/img", 1, "a rbd device is not there yet", ""),
        ("create p /dev/null --mode fancy", 2, "no allocation mode 'fancy'; known are stock", ""),
        (
            "create p /dev/null --read-policy latncy",
            2,
            "no read policy 'latncy'; known are pid",
            "you may mean latency",
        ),
        ("create p ram:1G --class ssd=ram:1G --tier metadata=256@ssd", 2, "'256' is not a tier", "tier.metadata=0"),
        ("create p ram:1G --tier metadata=0@ssd", 2, "neither a device of this pool nor a class", ""),
        ("create p --file 4", 2, "write a number, x, and a size", "4x2G"),
        ("create tank /dev/null", 1, "a pool tank is open already", ""),
        ("create tank mirror sda sdb", 2, "no vdevs", "braid create tank -d raid1 /dev/sda /dev/sdb"),
        ("set read_policy=fastest tank", 2, "no read policy 'fastest'", ""),
        ("set read_policy=devid tank", 2, "needs the id of a device", ""),
        ("set tier.metadata=300 tank 3", 2, "'300' is not a tier", ""),
        ("set tier.metdata=3 tank 3", 2, "no chunk type 'metdata'", "you may mean metadata"),
        ("set class=ssd tank 9", 4, "pool tank has no device 9", ""),
        ("set class=ssd tank nosuch", 4, "neither an open pool nor a member", ""),
        ("set tank", 2, "nothing to set", ""),
        ("set strict=on", 2, "of what?", ""),
        ("get colour tank", 4, "no property colour", ""),
        ("volume create tank/../x 1G", 2, "cannot be a volume's name", ""),
        ("volume create tank 1G", 2, "not a volume", "POOL/NAME"),
        ("volume create tank/v 10s", 2, "sectors are refused", ""),
        ("volume create tank/v 0", 2, "no size", ""),
        ("volume create tank/v 2E", 2, "at most", ""),
        ("volume create tank/v 9E", 2, "larger than any volume", ""),
        ("volume create tank/v 99E", 2, "the largest size there is", ""),
        ("volume create nopool/v 1G", 4, "no open pool named nopool", "braid list"),
        ("volume create tank/v 1G --class fast", 2, "no volume class 'fast'", ""),
        ("resize tank/nov +1G", 4, "no volume nov in pool tank", "braid volume list tank"),
        ("share tank/vm0 nfs", 2, "no share kind 'nfs'; known are nbd fuse loop", ""),
        ("share tank/vm0 ublk", 1, "sharing over ublk is not there yet", ""),
        ("share tank/vm0 loop --tls require", 2, "about nbd", ""),
        ("share tank/vm0 nbd --tcp nowhere", 2, "write ADDR:PORT", ""),
        ("share tank/nov nbd", 4, "no volume nov", ""),
        ("export tank/vm0", 2, "no pool", "braid share tank/vm0 nbd"),
        ("destroy tank -y", 5, "tank/vm0 is shared", "add -f"),
        ("destroy nopool -y", 4, "no open pool named nopool", ""),
        ("destroy tank/vm0", 5, "This forgets volume tank/vm0: 100GiB, 1GiB of it written", "add -y"),
        ("status nopool", 4, "no open pool named nopool", ""),
        ("status tank other", 2, "one word too many", ""),
        ("iostat 0", 2, "not an interval", ""),
        ("lisst", 2, "no command 'braid lisst'", "braid list"),
        ("sha tank/vm0 nbd", 2, "could be share, shares", ""),
        ("lvcreate -L 10G -n v tank", 2, "noun and a verb", "braid volume create tank/v 10G"),
        ("--detail tank", 2, "no modes", "braid status tank"),
        ("daemon --log nonsense=high", 2, "--log", ""),
    ] {
        let run = daemon.braid(line);
        assert_eq!((run.code, run.out.as_str()), (code, ""), "braid {line}: {run:?}");
        assert!(run.err.contains(said), "braid {line}: {run:?}");
        assert!(run.err.contains(hint), "braid {line}: {run:?}");
        let json = daemon.braid(&format!("-j {line}"));
        let value: serde_json::Value =
            serde_json::from_str(&json.err).unwrap_or_else(|e| panic!("braid -j {line}: {e}: {json:?}"));
        assert!(json.code == code && json.out.is_empty() && value["error"]["code"].is_string(), "{line}: {json:?}");
    }
}

#[test]
fn a_destructive_command_needs_a_yes() {
    let daemon = Daemon::start();
    assert_eq!(daemon.braid("destroy -n tank").out, "would: pool tank forgotten\nnothing was changed\n");
    assert_eq!(daemon.braid("destroy -yf tank").out, "pool tank forgotten\n");
    assert_eq!(daemon.braid("volume destroy -y tank/vm0").out, "volume tank/vm0 forgotten\n");
}

#[test]
fn share_prints_the_uri_and_nothing_else() {
    let daemon = Daemon::start();
    for (line, out) in [
        ("share tank/vm0 nbd", "nbd+unix:///tank/vm0?socket=/run/braid/nbd.sock\n"),
        ("share nbd tank/vm0 --unix", "nbd+unix:///tank/vm0?socket=/run/braid/nbd.sock\n"),
        ("share tank/vm0 loop", "/dev/loop4\n"),
        ("share tank/vm0 fuse", "/run/braid/fuse/tank/vm0\n"),
    ] {
        let run = daemon.braid(line);
        assert_eq!((run.code, run.out.as_str()), (0, out), "{line}");
        assert!(run.err.contains("braid unshare tank/vm0"), "{line}: hints go to stderr: {run:?}");
    }
    let run = daemon.braid("share tank/vm0 nbd --tcp --tls require --read-only");
    assert_eq!(run.code, 0);
    let asked = daemon.last("share");
    assert_eq!(asked["listen"].to_string(), r#"{"tcp":"127.0.0.1:10809"}"#);
    assert_eq!((asked["tls"].as_str(), &asked["read_only"]), (Some("require"), &true.into()));
    assert_eq!(daemon.braid("unshare tank/vm0").out, "tank/vm0 is no longer shared\n");
}

#[test]
fn a_share_can_live_as_long_as_a_command() {
    let daemon = Daemon::start();
    let mut command = command(&daemon.socket());
    command.args(["share", "tank/vm0", "nbd", "--run", "echo got $uri; exit 7"]);
    let run = finish(command);
    assert_eq!((run.code, run.out.as_str()), (7, "got nbd+unix:///tank/vm0?socket=/run/braid/nbd.sock\n"));
    assert_eq!(daemon.last("unshare")["target"], "9");
}

#[test]
fn volumes() {
    let daemon = Daemon::start();
    for (line, route, key, value) in [
        ("volume create tank/v 100G", "volume.create", "size_bytes", 100 << 30),
        ("volume create 100GiB tank/v", "volume.create", "size_bytes", 100 << 30),
        ("volume create tank/v 10GB", "volume.create", "size_bytes", 10_000_003_072),
        ("create -V 1.5G tank/v", "volume.create", "size_bytes", 3 << 29),
        ("resize tank/vm0 +5G", "volume.resize", "size_bytes", 5 << 30),
        ("volume resize tank/vm0 -5G", "volume.resize", "size_bytes", -(5i64 << 30)),
        ("resize 20G tank/vm0", "volume.resize", "size_bytes", 20 << 30),
        ("resize tank/vm0 20G --json", "volume.resize", "size_bytes", 20 << 30),
        ("resize tank/vm0 -5G --json -n", "volume.resize", "size_bytes", -(5i64 << 30)),
        ("resize -j tank/vm0 -n 20G", "volume.resize", "size_bytes", 20 << 30),
    ] {
        let run = daemon.braid(line);
        assert_eq!(run.code, 0, "{line}: {run:?}");
        let asked = daemon.last(route);
        assert_eq!(asked[key].as_i64(), Some(value), "{line}");
        assert_eq!(
            asked.get("relative").and_then(|r| r.as_bool()).unwrap_or(false),
            line.contains("+5G") || line.contains("-5G"),
            "{line}"
        );
    }
    assert_eq!(daemon.braid("volume rename tank/vm0 tank/vm9").out, "volume tank/vm9\n");
    assert_eq!(daemon.braid("volume rename tank/vm0 other/vm9").code, 2);
}

#[test]
fn import_looks_first() {
    let daemon = Daemon::start();
    let look = daemon.braid("import -d /nonexistent/disks");
    assert!(look.code == 0 && look.err.contains("braid import -d /nonexistent/disks old"), "{look:?}");
    assert_eq!(daemon.last("import")["directories"][0], "/nonexistent/disks");
    let open = daemon.braid("import -aH -o name,imported");
    assert_eq!(open.out, "old\tyes\n");
    assert_eq!(daemon.braid("import old /dev/null --as new").code, 0);
    assert_eq!(
        (&daemon.last("import")["devices"][0], &daemon.last("import")["rename"]),
        (&"/dev/null".into(), &"new".into())
    );
}

#[test]
fn without_a_daemon_the_next_step_is_named() {
    let directory = tempfile::tempdir().expect("tempdir");
    let dead = directory.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).expect("bind"));
    for socket in [directory.path().join("none.sock"), dead] {
        let mut command = command(&socket);
        command.arg("list");
        let run = finish(command);
        assert_eq!(run.code, 3, "{run:?}");
        assert!(run.err.contains("no braid daemon listens on") && run.err.contains("start it with: braid daemon"));
    }
}

#[test]
fn a_socket_of_somebody_else_has_its_own_sentence() {
    // SAFETY: geteuid has no precondition.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: a_socket_of_somebody_else_has_its_own_sentence needs root to become somebody else");
    }
    let daemon = Daemon::start();
    // Somebody else must reach the binary and the folder, and still not the socket.
    let open = tempfile::tempdir().expect("tempdir");
    let binary = open.path().join("braid");
    std::fs::copy(env!("CARGO_BIN_EXE_braid"), &binary).expect("copy");
    let all = std::fs::Permissions::from_mode(0o755);
    for path in [open.path(), daemon.directory.path()] {
        std::fs::set_permissions(path, all.clone()).expect("chmod");
    }
    let mut command = std::process::Command::new(&binary);
    command.args(["list"]).env("BRAID_SOCKET", daemon.socket()).uid(65534).gid(65534);
    let run = finish(command);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.err.contains("this user may not use it"), "{run:?}");
    // Even with the socket's mode opened by a careless hand, the daemon asks the kernel who it is.
    std::fs::set_permissions(daemon.socket(), std::fs::Permissions::from_mode(0o666)).expect("chmod");
    let mut command = std::process::Command::new(&binary);
    command.args(["list"]).env("BRAID_SOCKET", daemon.socket()).uid(65534).gid(65534);
    let run = finish(command);
    assert!(run.code == 3 && run.err.contains("answers uid 0 and root only"), "{run:?}");
}

/// The daemon's side of the socket, without the command line.
#[test]
fn the_wire_is_plain_http_and_json() {
    let daemon = Daemon::start();
    for (request, status, part) in [
        ("GET /v1/list HTTP/1.1\r\nhost: b\r\n", "200", r#"{"schema":"braid.list","version":1,"data":[{"name":"tank""#),
        ("POST /v1/list HTTP/1.1\r\nhost: b\r\n", "200", "braid.list"),
        ("GET /v1/destroy HTTP/1.1\r\nhost: b\r\n", "405", "route.method"),
        ("POST /v1/nonsense HTTP/1.1\r\nhost: b\r\n", "404", "route.unknown"),
        ("POST /v1/create HTTP/1.1\r\nhost: b\r\n", "400", "missing field `name`"),
        (
            "POST /v1/status HTTP/1.1\r\nhost: b\r\ncontent-length: 14\r\n{\"pol\":\"tank\"}",
            "400",
            "unknown field `pol`",
        ),
        ("POST /v1/status HTTP/1.1\r\nhost: b\r\ncontent-length: 14\r\n{\"pool\":\"nix\"}", "404", "pool.not_found"),
        ("POST /v1/status HTTP/1.1\r\nhost: b\r\ncontent-length: 2000000\r\n", "413", "request.too_large"),
    ] {
        let answer = http(&daemon.socket(), request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        assert!(answer.contains(part), "{request}: {answer}");
    }
    for route in ROUTES {
        let answer = http(&daemon.socket(), &format!("POST /v1/{route} HTTP/1.1\r\nhost: b\r\n"));
        assert!(!answer.contains("route.unknown"), "{route} has no route");
    }
}

fn http(socket: &Path, request: &str) -> String {
    use std::io::Write;
    let (head, body) = match request.split_once("\r\n{") {
        Some((head, body)) => (format!("{head}\r\n"), format!("{{{body}")),
        None => (request.to_string(), String::new()),
    };
    let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("connect");
    write!(stream, "{head}connection: close\r\n\r\n{body}").expect("write");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn help_pages_and_completions_come_from_the_tree() {
    let daemon = Daemon::start();
    let help = daemon.braid("help");
    assert!(help.code == 0 && help.out.contains("$BRAID_SOCKET") && help.out.contains("EXIT CODES"), "{help:?}");
    assert!(!help.out.contains("filesystem  "), "synonyms are not advertised as commands");
    for shell in ["bash", "zsh", "fish"] {
        let run = daemon.braid(&format!("completions {shell}"));
        assert!(run.code == 0 && run.out.contains("iostat"), "{shell}");
    }
    assert!(daemon.braid("man").out.contains(".TH braid 1"));
    assert!(daemon.braid("man volume create").out.contains("braid\\-volume\\-create"));
    assert_eq!(daemon.braid("man nonsense").code, 4);
    let pages = daemon.directory.path().join("man");
    assert_eq!(daemon.braid(&format!("internal man {}", pages.display())).code, 0);
    for page in ["braid.1", "braid-status.1", "braid-volume-create.1"] {
        assert!(pages.join(page).exists(), "{page}");
    }
}

#[test]
fn certificates_are_private_and_not_replaced_by_accident() {
    let daemon = Daemon::start();
    let directory = daemon.directory.path().join("tls");
    let line = format!("tls init --dir {}", directory.display());
    assert_eq!(daemon.braid(&line).out, format!("{}\n", directory.display()));
    let key = directory.join("server-key.pem");
    assert_eq!(key.metadata().expect("key").permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(&key).expect("read");
    assert_eq!(daemon.braid(&line).code, 5);
    assert_eq!(std::fs::read(&key).expect("read"), before);
    assert_eq!(daemon.braid(&format!("{line} -f")).code, 0);
    assert_ne!(std::fs::read(&key).expect("read"), before);
}

#[test]
fn one_daemon_a_socket() {
    let daemon = Daemon::start();
    let run = daemon.braid("daemon");
    assert!(run.code == 1 && run.err.contains("already listens"), "{run:?}");
}
