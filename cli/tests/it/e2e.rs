//! The real binary under real input: every share, the tools that people use, and kill -9.

use crate::real::{FUSE, LOOP, Real, shell};
use crate::tools::{Need, have, sh};
use braid_host::aligned::AlignedBox;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const BLOCK: u64 = 4096;

// ---- content that tells where it belongs --------------------------------------------------------------------------

/// Every eight bytes say their own position and the generation that wrote them.
fn stamp(buffer: &mut [u8], offset: u64, generation: u8) {
    for (i, word) in buffer.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&((offset + 8 * i as u64) | (u64::from(generation) << 56)).to_le_bytes());
    }
}

/// What ought to be there: a generation a block, 0 for never written.
#[derive(Clone)]
struct Model(Vec<u8>);

impl Model {
    fn new(size: u64) -> Model {
        Model(vec![0; (size / BLOCK) as usize])
    }
    fn size(&self) -> u64 {
        self.0.len() as u64 * BLOCK
    }
    fn write(&mut self, offset: u64, len: u64, generation: u8) {
        self.0[(offset / BLOCK) as usize..((offset + len) / BLOCK) as usize].fill(generation);
    }
    fn check(&self, offset: u64, data: &[u8], what: &str) {
        let mut want = [0; BLOCK as usize];
        for (i, got) in data.chunks(BLOCK as usize).enumerate() {
            let at = offset + i as u64 * BLOCK;
            match self.0[(at / BLOCK) as usize] {
                0 => want.fill(0),
                generation => stamp(&mut want, at, generation),
            }
            if got != want {
                let word = got.iter().zip(&want).position(|(a, b)| a != b).unwrap_or(0) & !7;
                let word = u64::from_le_bytes(got[word..word + 8].try_into().expect("eight bytes"));
                panic!("{what}: block {at:#x} of {offset:#x}+{:#x} holds {word:#018x}", data.len());
            }
        }
    }
}

/// One write or read.
#[derive(Clone, Copy, Debug)]
struct Job {
    offset: u64,
    len: u64,
    /// What to write; none reads and compares.
    generation: Option<u8>,
}

/// A small generator of numbers; the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
    fn shuffle<T>(&mut self, all: &mut [T]) {
        (1..all.len()).rev().for_each(|i| all.swap(i, self.below(i as u64 + 1) as usize));
    }
}

/// Requests of 64 KiB to 1 MiB that cover everything once, in no order.
fn cover(size: u64, seed: u64, generation: Option<u8>) -> Vec<Job> {
    let mut dice = Dice(seed);
    let mut jobs = Vec::new();
    let mut offset = 0;
    while offset < size {
        let len = (64 * KIB + BLOCK * dice.below(241)).min(size - offset);
        jobs.push(Job { offset, len, generation });
        offset += len;
    }
    dice.shuffle(&mut jobs);
    jobs
}

/// Where jobs are done, many at once.
trait Target {
    fn run(&self, jobs: &[Job], model: &Model, what: &str);
}

/// Connections to an NBD socket, each with 16 requests in flight.
struct Nbd<'a> {
    socket: &'a Path,
    connections: usize,
}

impl Target for Nbd<'_> {
    fn run(&self, jobs: &[Job], model: &Model, what: &str) {
        std::thread::scope(|scope| {
            for mine in jobs.chunks(jobs.len().div_ceil(self.connections)) {
                scope.spawn(move || {
                    let mut client = Client::connect(self.socket, "tank/v", Wish::default()).expect("connect");
                    let mut buffer = vec![0; MIB as usize];
                    let mut flying = HashMap::new();
                    let mut next = 0;
                    while next < mine.len() || !flying.is_empty() {
                        while flying.len() < 16 && next < mine.len() {
                            let job = mine[next];
                            match job.generation {
                                Some(generation) => {
                                    let data = &mut buffer[..job.len as usize];
                                    stamp(data, job.offset, generation);
                                    client.send_write(next as u64, 0, job.offset, data);
                                }
                                None => client.send_read(next as u64, job.offset, job.len as u32),
                            }
                            flying.insert(next as u64, job);
                            next += 1;
                        }
                        let answer = client.recv().expect("an answer");
                        let job = flying.remove(&answer.cookie).expect("one of ours");
                        assert_eq!(answer.error, 0, "{what}: {job:?}: {}", answer.message);
                        if job.generation.is_none() {
                            model.check(job.offset, &answer.data, what);
                        }
                    }
                    assert_eq!(client.call(cmd::FLUSH, 0, 0, 0).expect("flush").error, 0);
                    client.disconnect().expect("disconnect");
                });
            }
        });
    }
}

/// A file or a block device, past the page cache, with 16 threads.
struct Direct<'a>(&'a Path);

impl Target for Direct<'_> {
    fn run(&self, jobs: &[Job], model: &Model, what: &str) {
        let mut options = File::options();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(self.0).expect("open");
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut buffer = AlignedBox::zeroed(MIB as usize);
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let data = &mut buffer[..job.len as usize];
                        match job.generation {
                            Some(generation) => {
                                stamp(data, job.offset, generation);
                                file.write_all_at(data, job.offset).unwrap_or_else(|e| panic!("{what}: {job:?}: {e}"));
                            }
                            None => {
                                file.read_exact_at(data, job.offset).unwrap_or_else(|e| panic!("{what}: {job:?}: {e}"));
                                model.check(job.offset, data, what);
                            }
                        }
                    }
                });
            }
        });
        file.sync_all().expect("fsync");
    }
}

/// Writes all, reads all; writes half again; then reads and writes of what is there already, mixed.
fn torture(target: &dyn Target, size: u64, what: &str) -> Model {
    let mut model = Model::new(size);
    let mut write = |jobs: &[Job], round: &str| {
        target.run(jobs, &Model::new(0), &format!("{what}, {round}"));
        jobs.iter().for_each(|j| model.write(j.offset, j.len, j.generation.expect("a write")));
        target.run(&cover(size, 77, None), &model, &format!("{what}, read after {round}"));
    };
    write(&cover(size, 1, Some(1)), "first writes");
    let mut half = cover(size, 2, Some(2));
    half.truncate(half.len() / 2);
    write(&half, "second writes");
    // Rewriting the same must be invisible to who reads at the same time.
    half.extend(cover(size, 3, None));
    Dice(4).shuffle(&mut half);
    target.run(&half, &model, &format!("{what}, both at once"));
    model
}

/// A well-known exporter mixes up the data of concurrent large direct writes.
#[test]
fn concurrent_large_direct_writes_arrive_where_they_belong_over_every_share() {
    let name = "concurrent_large_direct_writes_arrive_where_they_belong_over_every_share";
    const SIZE: u64 = 24 * MIB;
    for (profile, disks) in [("raid1", &[GIB, GIB, GIB / 2][..]), ("raid10", &[GIB; 4]), ("raid0", &[GIB; 3])] {
        let real = Real::start();
        real.tank(profile, disks, SIZE);
        let socket = real.path("run/nbd.sock");
        real.ok("share tank/v nbd");
        let nbd = Nbd { socket: &socket, connections: 2 };
        torture(&nbd, SIZE, &format!("{profile} over NBD"));
        // One volume after another, so that each begins empty; all are looked at over NBD in the end.
        for (kind, needs) in [("fuse", &FUSE[..]), ("loop", &LOOP[..])] {
            if profile == "raid0" || !have(&format!("{name} ({kind})"), needs) {
                continue;
            }
            real.ok("unshare -f tank/v");
            real.ok("volume destroy -y tank/v");
            real.ok(&format!("volume create tank/v {SIZE}"));
            let path = real.ok(&format!("share tank/v {kind}"));
            let model = torture(&Direct(Path::new(&path)), SIZE, &format!("{profile} over {kind}"));
            real.ok("share tank/v nbd");
            nbd.run(&cover(SIZE, 5, None), &model, &format!("{profile} over {kind}, seen over NBD"));
        }
        assert_eq!(real.braid("status --check").code, 0);
    }
}

// ---- tools that people use ----------------------------------------------------------------------------------------

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

/// An image of a few MiB with holes between.
fn image(real: &Real, name: &str, bytes: u64) -> String {
    let path = real.disk(name, bytes);
    let file = File::options().write(true).open(&path).expect("open");
    let mut data = vec![0; MIB as usize];
    for (i, at) in [0, 3 * MIB, 7 * MIB + 12 * KIB, bytes - MIB].into_iter().enumerate() {
        stamp(&mut data, at, i as u8 + 1);
        file.write_all_at(&data, at).expect("write");
    }
    path
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

// ---- kill -9 ------------------------------------------------------------------------------------------------------

/// What was answered, and what may or may not be there.
struct Ledger {
    model: Model,
    /// By block: generations of writes that were never answered.
    open: HashMap<u64, Vec<u8>>,
}

impl Ledger {
    /// Everything answered is there; of the rest, each block is old or new.
    fn settle(&mut self, client: &mut Client<std::os::unix::net::UnixStream>, what: &str) {
        for offset in (0..self.model.size()).step_by(MIB as usize) {
            let answer = client.read(offset, MIB as u32).expect("read");
            assert_eq!(answer.error, 0, "{what}: reading {offset:#x}: {}", answer.message);
            let mut want = [0; BLOCK as usize];
            for (i, got) in answer.data.chunks(BLOCK as usize).enumerate() {
                let at = offset + i as u64 * BLOCK;
                for generation in self.open.get(&(at / BLOCK)).into_iter().flatten() {
                    stamp(&mut want, at, *generation);
                    if got == want {
                        self.model.write(at, BLOCK, *generation);
                    }
                }
            }
            self.model.check(offset, &answer.data, what);
        }
        self.open.clear();
    }
}

/// A killed process takes nothing with it that was answered: not even what nobody flushed.
#[test]
fn what_was_answered_survives_kill_9() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB, GIB, GIB], 32 * MIB);
    let mut ledger = Ledger { model: Model::new(32 * MIB), open: HashMap::new() };
    let mut dice = Dice(21);
    for round in 0..4 {
        real.ok("share tank/v nbd");
        let mut client = Client::connect(&real.path("run/nbd.sock"), "tank/v", Wish::default()).expect("connect");
        ledger.settle(&mut client, &format!("round {round}"));
        if round == 3 {
            break;
        }
        let mut flying: HashMap<u64, (u64, u64, u8)> = HashMap::new();
        let mut data = vec![0; 128 << 10];
        let (mut cookie, mut answered) = (0u64, 0);
        let last = 150 + dice.below(500);
        loop {
            while flying.len() < 16 && cookie < last {
                cookie += 1;
                let len = BLOCK * (1 + dice.below(32));
                let offset = BLOCK * dice.below((ledger.model.size() - len) / BLOCK + 1);
                // Writes that overlap in flight have no order.
                if flying.values().any(|(at, n, _)| offset < at + n && *at < offset + len) {
                    continue;
                }
                let generation = (1 + (u64::from(round as u8) * 80 + cookie) % 250) as u8;
                if cookie.is_multiple_of(40) {
                    client.send(cmd::FLUSH, 0, cookie, 0, 0);
                    flying.insert(cookie, (0, 0, 0));
                    continue;
                }
                let data = &mut data[..len as usize];
                stamp(data, offset, generation);
                client.send_write(cookie, 0, offset, data);
                flying.insert(cookie, (offset, len, generation));
            }
            if cookie == last && answered > 0 && real.is_up() {
                client.push().expect("sent");
                real.kill();
            }
            // What was answered before the end still comes.
            let Ok(answer) = client.recv() else { break };
            let (offset, len, generation) = flying.remove(&answer.cookie).expect("one of ours");
            assert_eq!(answer.error, 0, "{}", answer.message);
            ledger.model.write(offset, len, generation);
            answered += 1;
            if flying.is_empty() && !real.is_up() {
                break;
            }
        }
        assert!(answered > 50, "round {round}: {answered} answers");
        for (offset, len, generation) in flying.into_values() {
            for block in offset / BLOCK..(offset + len) / BLOCK {
                ledger.open.entry(block).or_default().push(generation);
            }
        }
        // Once from what the daemon remembers, once from the devices alone.
        if round == 1 {
            std::fs::remove_dir_all(real.path("state")).expect("rm");
            real.restart();
            assert_eq!(real.ok("list -H"), "");
            real.ok(&format!("import tank -d {}", real.dir.path().display()));
        } else {
            real.restart();
        }
        assert_eq!(real.ok("list -H -o name"), "tank");
    }
}

// ---- the published read job ---------------------------------------------------------------------------------------

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
    let policies = "pid latency latency-2021 latency-2024 device devid:1 roundrobin-v3 round-robin queue zfs";
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

// ---- bad input ----------------------------------------------------------------------------------------------------

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
    let run = real.braid(&import);
    assert!(run.code == 5 && run.err.contains("lacks device 2") && run.err.contains("-f"), "{run:?}");
    real.ok(&format!("{import} -f"));
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

// ---- what is left -------------------------------------------------------------------------------------------------

#[test]
fn parity_profiles_place_chunks_and_say_what_is_missing() {
    let real = Real::start();
    let disks: Vec<String> = (0..3).map(|i| real.disk(&format!("d{i}"), GIB)).collect();
    let made = real.ok(&format!("create tank -d raid5 -m raid1 {}", disks.join(" ")));
    assert!(made.contains("parity I/O is not there"), "{made}");
    assert_eq!(real.ok("list -H -o name,data,meta"), "tank\traid5\traid1");
    real.refuses("volume create tank/v 1G", 2, &["raid5", "parity I/O is not there"]);
    assert_eq!(real.ok("volume list -H"), "");
}

#[test]
fn a_share_lives_as_long_as_the_command_that_it_runs() {
    if !have("a_share_lives_as_long_as_the_command_that_it_runs", &[Need::Tool("nbdinfo")]) {
        return;
    }
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 32 * MIB);
    let run = real.words(&["share", "tank/v", "nbd", "--run", "nbdinfo --size $uri"]);
    assert_eq!((run.code, run.out.trim()), (0, "33554432"), "{run:?}");
    let run = real.words(&["share", "tank/v", "nbd", "--run", "nbdinfo $uri >/dev/null && exit 7"]);
    assert_eq!(run.code, 7, "{run:?}");
    assert_eq!(real.ok("shares -H"), "");
    assert!(!real.path("run/nbd.sock").exists());
}

#[test]
fn listings_of_a_real_pool_are_json() {
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 32 * MIB);
    real.ok("share tank/v nbd");
    let dir = real.dir.path().display();
    for line in [
        "list",
        "list -t volume",
        "status",
        "status -v",
        "usage",
        "iostat",
        "iostat -v",
        "get all tank",
        "get all tank/v",
        "device list",
        "device stats",
        "device usage",
        "volume list",
        "volume map tank/v",
        "shares",
        "events",
        &format!("import -d {dir}"),
        &format!("device scan {dir}/d0.img"),
    ] {
        let value = real.json(line);
        assert!(value.is_array() || value.is_object(), "{line}: {value}");
    }
    for line in ["man", "man share", "completions bash", "completions zsh", "completions fish"] {
        assert!(real.ok(line).contains("share"), "{line}");
    }
}

#[test]
fn settings_outlive_the_daemon() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB, GIB], 32 * MIB);
    for line in [
        "set read_policy=round-robin:65536 strict=on tank",
        "device set tank 1 class=nvme tier.metadata=3 tier.data=255 read_preferred=on rotational=off",
        "volume set tank/v class=metadata",
    ] {
        real.ok(line);
    }
    let all = |real: &Real| -> Vec<serde_json::Value> {
        ["get all tank", "get all tank/v", "device list"]
            .map(|line| {
                let mut value = real.json(line);
                // What only counts since the pool was opened.
                for row in value.as_array_mut().into_iter().flatten().filter_map(|r| r.as_object_mut()) {
                    row.retain(|name, _| !name.contains("allocated") && !name.contains("alloc"));
                }
                value
            })
            .to_vec()
    };
    let before = all(&real);
    let device = &before[2][0];
    assert_eq!((&device["class"], &device["tiers"]["metadata"]), (&"nvme".into(), &3.into()), "{device}");
    real.restart();
    assert_eq!(all(&real), before, "after an orderly end");
    real.kill();
    real.restart();
    assert_eq!(all(&real), before, "after kill -9");
    assert!(real.ok("get read_policy tank").contains("[round-robin:65536]"));
}

#[test]
fn tls_is_required_of_everybody() {
    let tools = ["nbdcopy", "nbdinfo", "qemu-img"].map(Need::Tool);
    if !have("tls_is_required_of_everybody", &tools) {
        return;
    }
    let real = Real::start();
    real.tank("raid1", &[GIB, GIB], 16 * MIB);
    let certificates = real.ok(&format!("tls init --dir {}", real.word("tls")));
    let uri = real.ok(&format!("share tank/v nbd --tcp 127.0.0.1:0 --tls require --tls-certificates {certificates}"));
    let address = uri.strip_prefix("nbds://").and_then(|u| u.split('/').next()).expect("an address").to_string();
    let port = address.rsplit(':').next().expect("a port");
    let with = format!("nbds://{address}/tank/v?tls-certificates={certificates}");
    let (one, out) = (image(&real, "one.img", 16 * MIB), real.word("out.img"));
    sh(&format!("nbdcopy {one} '{with}'; nbdcopy '{with}' {out}; cmp {one} {out}"));
    assert!(sh(&format!("nbdinfo --json '{with}'")).contains("\"TLS\": true"));
    sh(&format!(
        "qemu-img compare --object tls-creds-x509,id=tls,endpoint=client,dir={certificates} --image-opts \
         driver=raw,file.filename={one} driver=nbd,host=127.0.0.1,port={port},export=tank/v,tls-creds=tls"
    ));
    for plain in [format!("nbdinfo nbd://{address}/tank/v"), format!("qemu-img info nbd://{address}/tank/v")] {
        let run = shell(&plain);
        assert!(run.code != 0 && !run.out.contains("16777216"), "{plain}: {run:?}");
    }
    // Another authority's certificates are no better than none.
    real.ok(&format!("tls init --dir {}", real.word("strange")));
    let strange = format!("nbds://{address}/tank/v?tls-certificates={}", real.word("strange"));
    assert_ne!(shell(&format!("nbdinfo --size '{strange}'")).code, 0);
    sh(&format!("nbdinfo --size '{with}'"));
}
