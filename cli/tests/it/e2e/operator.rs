//! Operators who do one thing after another to a live pool, beside a client who knows what it wrote.
//!
//! ```text
//!   client: writes, zeros, reads, flushes, by NBD or a FUSE file; some writes are under way when the daemon is killed
//!   operator: offline, online, replace, add, remove, spares, balance, scrub, export, import elsewhere, kill -9, rotten files
//!   disks that fail: one or two at a time, of pools that can do without two, so nobody takes a member offline as well
//!   disks that come and go: one at a time, and the daemon takes it back
//!   four at once: the same but for what takes the client its share, and volumes and shares that come and go
//! ```
//!
//! To be refused is fine: exit 1 where something else is under way, 4 where a member left meanwhile, 5 where something would be lost. Not fine
//! are content that nobody wrote, an error at the client, a daemon that ends or panics, a file that was refused and is a member all the
//! same, and damage that is left in the end. `BRAID_SEED=7` has the tests try that one.

mod ledger;

use self::ledger::{Ledger, SECTOR, Way};
use super::{Dice, MIB};
use crate::failing::{Disks, Trouble};
use crate::real::{FUSE, LOOP, Real};
use crate::tools::{Need, have};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SEEDS: [u64; 3] = [3, 5, 7];
const STEPS: u64 = 20;
/// Commands of each of the operators who are there at once.
const COMMANDS: u64 = 40;
const VOLUME: u64 = 96 * MIB;
const DISK: u64 = 512 * MIB;
/// Profiles of data and metadata.
const SHAPES: [(&str, &str); 5] =
    [("raid1", "raid1"), ("raid10", "raid1"), ("raid5", "raid1"), ("raid6", "raid1c3"), ("raid1c3", "raid1c3")];
const PROFILES: [&str; 5] = ["raid1", "raid10", "raid5", "raid6", "raid1c3"];
const POLICIES: [&str; 5] = ["latency", "pid", "round-robin", "queue", "parity-avoid-slow"];

/// What a member is: its number, and where it is.
type Member = (u64, String);

/// What any operator does. A panic elsewhere names no command: what was done is printed as it is done, and shown where a test fails.
fn said(real: &Real, line: &str, codes: &[i32]) -> i32 {
    let run = real.braid(line);
    println!("{line} -> {} {}", run.code, run.err.trim());
    assert!(codes.contains(&run.code), "{line}: {run:?}");
    run.code
}

/// What an operator may do besides.
#[derive(Clone, Copy)]
struct Rules {
    /// Profiles for a balance.
    profiles: &'static [&'static str],
    /// A member may be taken offline.
    may_be_short: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { profiles: &PROFILES, may_be_short: true }
    }
}

fn pool(real: &Real, way: Way, dice: &mut Dice, disks: &Disks) {
    let shape = dice.pick(&SHAPES);
    let members: Vec<String> = (0..4 + dice.below(3)).map(|_| disks.make(real, DISK)).collect();
    create(real, way, dice, shape, &members.join(" "));
}

fn create(real: &Real, way: Way, dice: &mut Dice, (data, metadata): (&str, &str), members: &str) -> &'static str {
    let checksum = dice.pick(&["crc32c", "xxh3", "none"]);
    said(real, &format!("create tank -d {data} -m {metadata} -o checksum={checksum} {members}"), &[0]);
    said(real, &format!("volume create tank/v {VOLUME}"), &[0]);
    share(real, way);
    checksum
}

fn share(real: &Real, way: Way) {
    let line = match way {
        Way::Nbd => format!("share tank/v nbd --unix={}", real.word("v.sock")),
        Way::Fuse => "share tank/v fuse".into(),
    };
    said(real, &line, &[0, 1]);
}

/// Those that are in use first, and how many these are.
fn members(real: &Real) -> (Vec<Member>, usize) {
    let list = real.json("device list tank");
    let mut members: Vec<_> = list.as_array().expect("a list").iter().collect();
    members.sort_by_key(|member| member["state"] != "ONLINE");
    let used = members.iter().filter(|member| member["state"] == "ONLINE").count();
    let what = |member: &serde_json::Value| {
        (member["id"].as_u64().expect("an id"), member["path"].as_str().expect("a path").to_string())
    };
    (members.into_iter().map(what).collect(), used)
}

/// What one may do whatever else goes on.
fn operate(real: &Real, dice: &mut Dice, disks: &Disks, rules: Rules) {
    let (members, used) = members(real);
    let (id, _) = &members[dice.below(used as u64) as usize];
    match dice.below(80) {
        0..12 if used == members.len() && rules.may_be_short => {
            said(real, &format!("offline tank {id}"), &[0, 4, 5]);
        }
        0..30 if used < members.len() => {
            let (id, path) = &members[used];
            match dice.below(3) {
                0 => replace(real, *id, disks),
                _ => drop(said(real, &format!("online tank {path}"), &[0, 1, 4, 5])),
            }
        }
        0..40 => replace(real, *id, disks),
        40..48 => drop(said(real, "scrub start tank", &[0, 1])),
        48..54 => drop(said(real, &format!("add tank {}", disks.make(real, DISK)), &[0])),
        54..57 => {
            let spare = disks.make(real, DISK);
            said(real, &format!("add --spare tank {spare}"), &[0]);
            match dice.below(2) {
                0 => drop(said(real, "set tank spare_delay=1s", &[0])),
                _ => drop(said(real, &format!("replace tank {id} {spare}"), &[0, 1, 4, 5])),
            }
        }
        57..64 => drop(said(real, &format!("remove tank {id}"), &[0, 1, 4, 5])),
        64..74 => drop(said(real, &format!("balance start tank -d {}", dice.pick(rules.profiles)), &[0, 1, 5])),
        74..77 => {
            said(real, &format!("balance {} tank", dice.pick(&["pause", "resume", "cancel"])), &[0, 1, 4]);
        }
        _ => drop(said(real, &format!("set tank read_policy={}", dice.pick(&POLICIES)), &[0])),
    }
}

/// Who is refused is not a member.
fn replace(real: &Real, old: u64, disks: &Disks) {
    let new = disks.make(real, DISK);
    if said(real, &format!("replace tank {old} {new}"), &[0, 1, 4, 5]) != 0 {
        assert!(members(real).0.iter().all(|(_, path)| *path != new), "{new} is a member");
    }
}

/// What only somebody does who is alone.
fn operate_alone(real: &mut Real, ledger: &mut Ledger, dice: &mut Dice, disks: &Disks) {
    let (members, used) = members(real);
    let (_, path) = &members[dice.below(used as u64) as usize];
    match dice.below(10) {
        0..4 => {
            ledger.hang_up();
            elsewhere(real, ledger.way, disks);
        }
        4..6 if used == members.len() => rot(real, dice, path),
        _ => killed(real, ledger),
    }
}

fn killed(real: &mut Real, ledger: &mut Ledger) {
    ledger.write_and_leave();
    println!("kill -9");
    real.kill();
    real.restart();
}

/// The pool closes, its files get other names, and it is found again.
fn elsewhere(real: &Real, way: Way, disks: &Disks) {
    said(real, "export -f tank", &[0]);
    for number in 0..disks.made.load(Relaxed) {
        let names = ["disk", "moved"].map(|name| real.path(&format!("{name}{number}.img")));
        let [from, to] = if names[0].exists() { [&names[0], &names[1]] } else { [&names[1], &names[0]] };
        std::fs::rename(from, to).expect("it is one of them");
    }
    let folder = real.dir.path().display().to_string();
    if said(real, &format!("import tank -d {folder}"), &[0, 5]) != 0 {
        said(real, &format!("import -f tank -d {folder}"), &[0]);
    }
    share(real, way);
}

/// Sectors of a member change behind the back of everybody: without checksums nobody could tell which copy is right.
fn rot(real: &Real, dice: &mut Dice, path: &str) {
    if real.ok("get -H -o value checksum tank") == "none" {
        return;
    }
    println!("rot of {path}");
    let file = File::options().write(true).open(path).expect("a member");
    for _ in 0..10 {
        let at = 2 * MIB + dice.below(DISK - 3 * MIB) / SECTOR as u64 * SECTOR as u64;
        file.write_all_at(&[0xa5; SECTOR], at).expect("write");
    }
    said(real, "scrub -w tank", &[0, 1]);
}

/// Nothing fails any more, and what had failed is put right.
fn mended(real: &Real, disks: &Disks) {
    disks.mend();
    whole(real);
    said(real, "scrub -w tank", &[0, 1]);
}

/// Every member is there, and gets what it missed.
fn whole(real: &Real) {
    for (_, path) in members(real).0 {
        said(real, &format!("online tank {path}"), &[0, 1, 4, 5]);
    }
    said(real, "balance resume tank", &[0, 1, 4]);
    said(real, "wait tank", &[0]);
}

/// Everything becomes whole again, and is what it was.
fn end(real: &Real, ledger: &mut Ledger) {
    whole(real);
    ledger.read_all();
    said(real, "scrub -w tank", &[0]);
    ledger.read_all();
    let (status, log) = (real.ok("status tank"), real.log());
    assert!(status.contains("no data lost") || status.contains("errors: none"), "{status}");
    assert!(!log.contains("panicked"), "{log}");
}

fn seeds() -> Vec<u64> {
    match std::env::var("BRAID_SEED") {
        Ok(seed) => vec![seed.parse().expect("BRAID_SEED is a number")],
        Err(_) => SEEDS.to_vec(),
    }
}

#[test]
fn an_operator_does_this_and_that() {
    for seed in seeds() {
        let (mut real, mut dice) = (Real::start(), Dice(seed));
        let disks = Disks::default();
        let mut ledger = Ledger::new(&real, seed);
        pool(&real, ledger.way, &mut dice, &disks);
        for _ in 0..STEPS {
            ledger.work();
            match dice.below(4) {
                0 => operate_alone(&mut real, &mut ledger, &mut dice, &disks),
                _ => operate(&real, &mut dice, &disks, Rules::default()),
            }
        }
        end(&real, &mut ledger);
    }
}

/// What a pool of disks that fail may be made of, and how many of them fail at a time.
struct Failing {
    shapes: &'static [(&'static str, &'static str)],
    profiles: &'static [&'static str],
    at_once: u64,
}

const SPARE_TWO: Failing = Failing {
    shapes: &[("raid6", "raid1c3"), ("raid1c3", "raid1c3")],
    profiles: &["raid6", "raid1c3", "raid1c4"],
    at_once: 2,
};

#[test]
fn an_operator_of_disks_that_fail() {
    operator_of("an_operator_of_disks_that_fail", &SPARE_TWO);
}

#[test]
fn an_operator_of_disks_that_fail_one_by_one() {
    let failing = Failing { shapes: &SHAPES, profiles: &PROFILES, at_once: 1 };
    operator_of("an_operator_of_disks_that_fail_one_by_one", &failing);
}

fn operator_of(test: &str, failing: &Failing) {
    if !have(test, &FUSE) {
        return;
    }
    for seed in seeds() {
        let (mut real, mut dice) = (Real::start(), Dice(seed));
        let disks = Disks::failing();
        let members: Vec<String> = (0..5 + dice.below(2)).map(|_| disks.make(&real, DISK)).collect();
        let shape = dice.pick(failing.shapes);
        let mut ledger = Ledger::new(&real, seed);
        let checksum = create(&real, ledger.way, &mut dice, shape, &members.join(" "));
        let rules = Rules { profiles: failing.profiles, may_be_short: false };
        let mut sick = Vec::new();
        for _ in 0..STEPS * 2 {
            ledger.work();
            match if sick.is_empty() { dice.below(4) } else { dice.below(10) } {
                0 => {
                    mended(&real, &disks);
                    let count = if sick.is_empty() { 1 + dice.below(failing.at_once) } else { 0 };
                    sick = (0..count).map(|_| disks.hurt(&mut dice, checksum != "none")).collect();
                }
                // What a crash left in doubt has no checksum that would tell what is misread.
                1 if !sick.iter().any(|trouble| matches!(trouble, Trouble::Misreads(_))) => {
                    killed(&mut real, &mut ledger);
                    if real.json("list")[0]["state"] == "unavailable" {
                        said(&real, "import tank", &[0]);
                    }
                }
                _ => operate(&real, &mut dice, &disks, rules),
            }
        }
        mended(&real, &disks);
        end(&real, &mut ledger);
    }
}

/// One is pulled at a time, and comes back without being told to.
#[test]
fn an_operator_of_disks_that_come_and_go() {
    if !have("an_operator_of_disks_that_come_and_go", &FUSE) {
        return;
    }
    let mut returned = 0;
    for seed in seeds() {
        let (mut real, mut dice) = (Real::start(), Dice(seed));
        let disks = Disks::failing();
        let made: Vec<String> = (0..5 + dice.below(2)).map(|_| disks.make(&real, DISK)).collect();
        let shape = dice.pick(&SHAPES);
        let mut ledger = Ledger::new(&real, seed);
        create(&real, ledger.way, &mut dice, shape, &made.join(" "));
        let rules = Rules { may_be_short: false, ..Rules::default() };
        let mut out = None;
        for _ in 0..STEPS * 2 {
            ledger.work();
            match (out, dice.below(if out.is_none() { 4 } else { 8 })) {
                (None, 0) => {
                    whole(&real);
                    let (list, _) = members(&real);
                    let number = number_of(&list[dice.below(list.len() as u64) as usize].1);
                    println!("disk {number} is pulled");
                    disks.pull(number);
                    out = Some(number);
                }
                (Some(number), 0) => {
                    returned += usize::from(come_back(&real, &disks, number));
                    out = None;
                }
                (_, 1) => {
                    killed(&mut real, &mut ledger);
                    if real.json("list")[0]["state"] == "unavailable" {
                        said(&real, "import tank", &[0]);
                    }
                }
                _ => operate(&real, &mut dice, &disks, rules),
            }
        }
        returned += out.into_iter().filter(|&number| come_back(&real, &disks, number)).count();
        end(&real, &mut ledger);
    }
    assert!(returned > 0 || seeds().len() == 1, "nobody was missed");
}

/// Of a disk that [`Disks::make`] made.
fn number_of(path: &str) -> usize {
    let name = path.rsplit('/').next().and_then(|name| name.strip_prefix("disk")?.strip_suffix(".img"));
    name.and_then(|number| number.parse().ok()).expect("a path of ours")
}

/// It is there again, where it was, and nobody says so; whether it was missed.
fn come_back(real: &Real, disks: &Disks, number: usize) -> bool {
    let is_away = |member: &serde_json::Value| ["MISSING", "FAILED"].iter().any(|state| member["state"] == *state);
    let is_missed = || real.json("device list tank").as_array().expect("a list").iter().any(is_away);
    let was_missed = is_missed();
    println!("disk {number} is there again, missed: {was_missed}");
    disks.plug_in(number);
    let begun = Instant::now();
    while is_missed() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", real.ok("status tank"));
        std::thread::sleep(Duration::from_millis(100));
    }
    was_missed
}

/// As where they are in one enclosure, or on one file system. The client stays connected, unless the daemon is killed.
#[test]
fn an_operator_of_disks_that_fail_all_at_once() {
    if !have("an_operator_of_disks_that_fail_all_at_once", &FUSE) {
        return;
    }
    for seed in seeds() {
        let (mut real, mut dice) = (Real::start(), Dice(seed));
        let disks = Disks::failing();
        let members: Vec<String> = (0..4 + dice.below(2)).map(|_| disks.make(&real, DISK)).collect();
        let shape = dice.pick(&SHAPES);
        let mut ledger = Ledger::new(&real, seed);
        create(&real, ledger.way, &mut dice, shape, &members.join(" "));
        for _ in 0..STEPS / 2 {
            ledger.work();
            for _ in 0..dice.below(3) {
                operate(&real, &mut dice, &disks, Rules { may_be_short: false, ..Rules::default() });
            }
            ledger.work();
            let pulled = dice.below(2) == 0;
            println!("all disks fail, pulled: {pulled}");
            for number in 0..disks.count() {
                match pulled {
                    true => disks.pull(number),
                    false => disks.suffer(number, Trouble::Writes(dice.pick(&[30, 100, 100]))),
                }
            }
            ledger.may_fail = true;
            ledger.work();
            said(&real, "set tank read_policy=pid", &[0, 1]);
            ledger.work();
            said(&real, "clear tank", &[0, 1]);
            println!("they are back");
            match pulled {
                true => (0..disks.count()).for_each(|number| disks.plug_in(number)),
                false => disks.mend(),
            }
            match dice.below(4) {
                0 => killed(&mut real, &mut ledger),
                _ => drop(said(&real, "clear tank", &[0])),
            }
            if pulled {
                ledger.caches_lost();
            }
            ledger.flush();
            ledger.may_fail = false;
            ledger.flush();
            whole(&real);
        }
        end(&real, &mut ledger);
    }
}

/// Pools may grow a lot here: once to more members than a scrub had memory for.
#[test]
fn four_operators_at_once() {
    let may = |kind: &str, needs: &[Need]| have(&format!("four_operators_at_once ({kind})"), needs);
    let kinds: &[&str] = match may("fuse", &FUSE) && may("loop", &LOOP) {
        true => &["nbd", "fuse", "loop"],
        false => &["nbd"],
    };
    for seed in seeds().into_iter().take(1) {
        let (real, disks) = (Real::start(), Disks::default());
        let mut ledger = Ledger::new(&real, seed);
        pool(&real, ledger.way, &mut Dice(seed), &disks);
        at_once(&real, &mut ledger, &disks, (seed, kinds, Rules::default()), || {});
        end(&real, &mut ledger);
    }
}

#[test]
fn four_operators_of_disks_that_fail() {
    if !have("four_operators_of_disks_that_fail", &FUSE) {
        return;
    }
    for seed in seeds().into_iter().take(1) {
        let (real, disks, mut dice) = (Real::start(), Disks::failing(), Dice(seed));
        let members: Vec<String> = (0..5).map(|_| disks.make(&real, DISK)).collect();
        let shape = dice.pick(SPARE_TWO.shapes);
        let mut ledger = Ledger::new(&real, seed);
        let checksum = create(&real, ledger.way, &mut dice, shape, &members.join(" "));
        let rules = Rules { profiles: SPARE_TWO.profiles, may_be_short: false };
        at_once(&real, &mut ledger, &disks, (seed, &["nbd"], rules), || {
            disks.hurt(&mut dice, checksum != "none");
            std::thread::sleep(Duration::from_millis(dice.below(500)));
            mended(&real, &disks);
        });
        end(&real, &mut ledger);
    }
}

/// Four operators, the client, and what else happens time and again.
fn at_once(
    real: &Real,
    ledger: &mut Ledger,
    disks: &Disks,
    (seed, kinds, rules): (u64, &[&str], Rules),
    mut happens: impl FnMut() + Send,
) {
    let operator = |number: u64| {
        let mut dice = Dice(seed * 100 + number);
        for _ in 0..COMMANDS {
            match dice.below(3) {
                0 => volumes(real, &mut dice, kinds),
                _ => operate(real, &mut dice, disks, rules),
            }
        }
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let operators: Vec<_> = (0..4).map(|number| scope.spawn(move || operator(number))).collect();
        scope.spawn(|| (0..COMMANDS).take_while(|_| !is_over.load(Relaxed)).for_each(|_| happens()));
        while operators.iter().any(|operator| !operator.is_finished()) {
            ledger.work();
        }
        is_over.store(true, Relaxed);
    });
}

/// Others that come and go, with their shares.
fn volumes(real: &Real, dice: &mut Dice, kinds: &[&str]) {
    let name = format!("tank/w{}", dice.below(3));
    let line = match dice.below(6) {
        0 | 1 => format!("volume create {name} 64M"),
        2 => format!("volume destroy -y -f {name}"),
        3 => format!("share {name} {}", dice.pick(kinds)),
        4 => format!("unshare {name}"),
        _ => format!("resize {name} +4M"),
    };
    said(real, &line, &[0, 1, 4, 5]);
}
