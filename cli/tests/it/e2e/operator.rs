//! An operator who does one thing after another to a live pool, beside a client who knows what it wrote.
//!
//! ```text
//!   client: writes, zeros, reads, flushes; some writes are under way when the daemon is killed
//!   operator: offline, online, replace, add, remove, spares, balance, scrub, export, import elsewhere, kill -9, rotten files
//! ```
//!
//! To be refused is fine: exit 1 where something else is under way, 4 where a member left meanwhile, 5 where something would be lost. Not fine are content that nobody
//! wrote, an error at the client, a daemon that ends or panics, a file that was refused and is a member all the same, and damage that is left in
//! the end. `BRAID_SEED=7` has the test try that one.

use super::{BLOCK, Dice, MIB};
use crate::real::Real;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SEEDS: [u64; 3] = [3, 5, 7];
const STEPS: u64 = 20;
const VOLUME: u64 = 96 * MIB;
const DISK: u64 = 512 * MIB;
const SECTOR: usize = 512;
/// Profiles of data and metadata.
const SHAPES: [(&str, &str); 5] =
    [("raid1", "raid1"), ("raid10", "raid1"), ("raid5", "raid1"), ("raid6", "raid1c3"), ("raid1c3", "raid1c3")];
const PROFILES: [&str; 5] = ["raid1", "raid10", "raid5", "raid6", "raid1c3"];
const POLICIES: [&str; 5] = ["latency", "pid", "round-robin", "queue", "parity-avoid-slow"];

fn content(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// What it wrote: by block, stamps that each sector may have.
struct Bench {
    real: Real,
    dice: Dice,
    client: Option<Client<UnixStream>>,
    blocks: BTreeMap<u64, Vec<u64>>,
    stamp: u64,
    disks: u64,
    /// What was done, for whoever has to find out.
    done: Vec<String>,
}

impl Bench {
    fn start(seed: u64) -> Bench {
        let mut bench = Bench {
            real: Real::start(),
            dice: Dice(seed),
            client: None,
            blocks: BTreeMap::new(),
            stamp: 0,
            disks: 0,
            done: Vec::new(),
        };
        let (data, metadata) = bench.pick(&SHAPES);
        let checksum = bench.pick(&["crc32c", "xxh3", "none"]);
        let disks: Vec<String> = (0..4 + bench.dice.below(3)).map(|_| bench.disk()).collect();
        let disks = disks.join(" ");
        bench.said(&format!("create tank -d {data} -m {metadata} -o checksum={checksum} {disks}"), &[0]);
        bench.said(&format!("volume create tank/v {VOLUME}"), &[0]);
        bench.share();
        bench
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.dice.below(all.len() as u64) as usize]
    }

    fn disk(&mut self) -> String {
        self.disks += 1;
        self.real.disk(&format!("disk{}.img", self.disks), DISK)
    }

    /// A command that ends with one of these codes.
    fn said(&mut self, line: &str, codes: &[i32]) -> i32 {
        let run = self.real.braid(line);
        self.done.push(format!("{line} -> {} {}", run.code, run.err.trim()));
        assert!(codes.contains(&run.code), "{run:?}; it was\n{}", self.done.join("\n"));
        run.code
    }

    fn share(&mut self) {
        let socket = self.real.word("v.sock");
        self.said(&format!("share tank/v nbd --unix={socket}"), &[0, 1]);
    }

    /// A daemon that was just started has its control socket first, and then its shares.
    fn client(&mut self) -> &mut Client<UnixStream> {
        let socket = self.real.path("v.sock");
        self.client.get_or_insert_with(|| {
            let mut tries = (0..1000).map(|_| {
                let client = Client::connect(&socket, "tank/v", Wish::default());
                client.inspect_err(|_| std::thread::sleep(Duration::from_millis(10)))
            });
            tries.find_map(Result::ok).expect("the share is back after ten seconds")
        })
    }

    /// Blocks somewhere, more often near the front.
    fn somewhere(&mut self) -> (u64, u64) {
        let count = self.pick(&[1, 1, 1, 2, 4, 16, 64]);
        let end = self.pick(&[1_000, VOLUME / BLOCK]) - count;
        (self.dice.below(end), count)
    }

    fn write(&mut self) {
        let (first, count) = self.somewhere();
        let zeros = self.dice.below(10) == 0;
        let stamps: Vec<u64> = (1..=count).map(|i| if zeros { 0 } else { self.stamp + i }).collect();
        self.stamp += count;
        let flags = if self.dice.below(4) == 0 { cmd::FLAG_FUA } else { 0 };
        let data: Vec<u8> = stamps.iter().flat_map(|&stamp| content(stamp)).collect();
        let answer = match zeros {
            true => self.client().call(cmd::WRITE_ZEROES, flags, first * BLOCK, (count * BLOCK) as u32),
            false => self.client().write(flags, first * BLOCK, &data),
        };
        assert_eq!(answer.expect("an answer").error, 0, "write of {first}; it was\n{}", self.done.join("\n"));
        self.blocks.extend((first..).zip(stamps.into_iter().map(|stamp| vec![stamp])));
    }

    /// Writes that the daemon is killed under: each sector may have got it.
    fn write_and_kill(&mut self) {
        for cookie in 0..8 {
            let (first, _) = self.somewhere();
            self.stamp += 1;
            let stamp = self.stamp;
            self.client().send_write(cookie, 0, first * BLOCK, &content(stamp));
            self.blocks.entry(first).or_insert_with(|| vec![0]).push(stamp);
        }
        self.client().push().expect("the daemon is there");
        self.client = None;
        self.done.push("kill -9".into());
        self.real.kill();
        self.real.restart();
    }

    fn read(&mut self, first: u64, count: u64) {
        let answer = self.client().read(first * BLOCK, (count * BLOCK) as u32).expect("an answer");
        assert_eq!(answer.error, 0, "read of {first} + {count}; it was\n{}", self.done.join("\n"));
        for (block, found) in (first..).zip(answer.data.chunks(BLOCK as usize)) {
            let may = self.blocks.get(&block).map_or(&[0][..], Vec::as_slice);
            let is = |part: &[u8], stamp: &u64| part.chunks(8).all(|word| word == stamp.to_le_bytes());
            let is_known = |part: &[u8]| may.iter().any(|stamp| is(part, stamp));
            let bad = found.chunks(SECTOR).position(|part| !is_known(part));
            assert!(
                bad.is_none(),
                "sector {bad:?} of block {block} is {:?}..., not one of {may:?}; it was\n{}",
                &found[bad.unwrap_or(0) * SECTOR..][..8],
                self.done.join("\n")
            );
            // What was read once stays.
            if let Some(stamp) = may.iter().find(|stamp| is(found, stamp)).copied() {
                self.blocks.insert(block, vec![stamp]);
            }
        }
    }

    fn read_all(&mut self) {
        (0..VOLUME / BLOCK).step_by(256).for_each(|first| self.read(first, 256));
    }

    fn work(&mut self) {
        for _ in 0..5 + self.dice.below(30) {
            match self.dice.below(100) {
                0..60 => self.write(),
                60..97 => {
                    let (first, count) = self.somewhere();
                    self.read(first, count);
                }
                _ => assert_eq!(self.client().call(cmd::FLUSH, 0, 0, 0).expect("an answer").error, 0),
            }
        }
    }

    /// Numbers and paths of members, those that are in use first, and how many these are.
    fn members(&self) -> (Vec<(u64, String)>, usize) {
        let list = self.real.json("device list tank");
        let mut members: Vec<_> = list.as_array().expect("a list").iter().collect();
        members.sort_by_key(|member| member["state"] != "ONLINE");
        let used = members.iter().filter(|member| member["state"] == "ONLINE").count();
        let what = |member: &serde_json::Value| {
            (member["id"].as_u64().expect("an id"), member["path"].as_str().expect("a path").to_string())
        };
        (members.into_iter().map(what).collect(), used)
    }

    fn operate(&mut self) {
        let (members, used) = self.members();
        let (id, path) = members[self.dice.below(used as u64) as usize].clone();
        match self.dice.below(100) {
            0..12 if used == members.len() => drop(self.said(&format!("offline tank {id}"), &[0, 4, 5])),
            0..30 if used < members.len() => {
                let (id, path) = members[used].clone();
                match self.dice.below(3) {
                    0 => self.replace(id),
                    _ => drop(self.said(&format!("online tank {path}"), &[0, 1, 4, 5])),
                }
            }
            0..40 => self.replace(id),
            40..48 => drop(self.said("scrub start tank", &[0, 1])),
            48..54 => {
                let new = self.disk();
                self.said(&format!("add tank {new}"), &[0]);
            }
            54..57 => {
                let new = self.disk();
                self.said(&format!("add --spare tank {new}"), &[0]);
                self.said("set tank spare_delay=1s", &[0]);
            }
            57..64 => drop(self.said(&format!("remove tank {id}"), &[0, 1, 4, 5])),
            64..74 => {
                let profile = self.pick(&PROFILES);
                self.said(&format!("balance start tank -d {profile}"), &[0, 1, 5]);
            }
            74..78 => {
                let verb = self.pick(&["pause", "resume", "cancel"]);
                self.said(&format!("balance {verb} tank"), &[0, 1, 4]);
            }
            78..82 => {
                let policy = self.pick(&POLICIES);
                self.said(&format!("set tank read_policy={policy}"), &[0]);
            }
            82..86 => self.elsewhere(),
            86..90 if used == members.len() => self.rot(&path),
            _ => self.write_and_kill(),
        }
    }

    /// Who is refused is not a member.
    fn replace(&mut self, old: u64) {
        let new = self.disk();
        if self.said(&format!("replace tank {old} {new}"), &[0, 1, 4, 5]) != 0 {
            let (members, _) = self.members();
            assert!(members.iter().all(|(_, path)| *path != new), "{new} is a member:\n{}", self.done.join("\n"));
        }
    }

    /// The pool closes, its files get other names, and it is found again.
    fn elsewhere(&mut self) {
        self.client = None;
        self.said("export -f tank", &[0]);
        for number in 1..=self.disks {
            let names = ["disk", "moved"].map(|name| self.real.path(&format!("{name}{number}.img")));
            let [from, to] = if names[0].exists() { [&names[0], &names[1]] } else { [&names[1], &names[0]] };
            std::fs::rename(from, to).expect("it is one of them");
        }
        let folder = self.real.dir.path().display().to_string();
        if self.said(&format!("import tank -d {folder}"), &[0, 5]) != 0 {
            self.said(&format!("import -f tank -d {folder}"), &[0]);
        }
        self.share();
    }

    /// Sectors of a member change behind the back of everybody: without checksums nobody could tell which copy is right.
    fn rot(&mut self, path: &str) {
        if self.real.ok("get -H -o value checksum tank") == "none" {
            return;
        }
        self.done.push(format!("rot of {path}"));
        let file = File::options().write(true).open(path).expect("a member");
        for _ in 0..10 {
            let at = 2 * MIB + self.dice.below(DISK - 3 * MIB) / SECTOR as u64 * SECTOR as u64;
            file.write_all_at(&[0xa5; SECTOR], at).expect("write");
        }
        self.said("scrub -w tank", &[0, 1]);
    }

    /// Everything is whole again.
    fn end(&mut self) {
        for (_, path) in self.members().0 {
            self.said(&format!("online tank {path}"), &[0, 1, 4, 5]);
        }
        self.said("balance resume tank", &[0, 1, 4]);
        self.said("wait tank", &[0]);
        self.read_all();
        self.said("scrub -w tank", &[0]);
        self.read_all();
        let status = self.real.ok("status tank");
        let log = self.real.log();
        assert!(status.contains("no data lost") || status.contains("errors: none"), "{status}");
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn an_operator_does_this_and_that() {
    let seeds = match std::env::var("BRAID_SEED") {
        Ok(seed) => vec![seed.parse().expect("BRAID_SEED is a number")],
        Err(_) => SEEDS.to_vec(),
    };
    for seed in seeds {
        let mut bench = Bench::start(seed);
        for _ in 0..STEPS {
            bench.work();
            bench.operate();
        }
        bench.end();
    }
}
