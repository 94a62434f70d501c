//! A daemon that is killed under load, again and again, below a file system.
//!
//! ```text
//!   fio: random writes to files of its own, fsync now and then      the same ext4 on a loop share
//!   ledger: 4 KiB blocks of one file, fdatasync now and then  ----'      kill -9, start, mount, look, e2fsck
//! ```
//!
//! The file system keeps what it was told is written: so after a round each block of the ledger's file holds, in every
//! 512 bytes, what the last fdatasync covered or something that was written later. What it does not see: a power cut.

use super::{BLOCK, Dice, GIB, MIB, stamp};
use crate::real::{LOOP, Real, shell};
use crate::tools::{Need, have, sh};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 25;
/// Blocks of the ledger's file.
const BLOCKS: u64 = 256;
const SECTOR: u64 = 512;

/// What each block of a file must or may hold, by generation.
struct Ledger {
    /// What the last fdatasync covered.
    kept: Vec<u8>,
    /// What was written since, answered or not.
    later: Vec<Vec<u8>>,
    generation: u8,
    dice: Dice,
    synced: Arc<AtomicU64>,
}

impl Ledger {
    fn new() -> Ledger {
        let later = vec![Vec::new(); BLOCKS as usize];
        Ledger { kept: vec![0; BLOCKS as usize], later, generation: 0, dice: Dice(77), synced: Arc::default() }
    }

    /// Writes until that fails or it is told to end.
    fn keep(&mut self, file: &File, ends: &AtomicBool) {
        let mut data = [0; BLOCK as usize];
        while !ends.load(Ordering::Relaxed) {
            self.generation = self.generation % 250 + 1;
            let block = self.dice.below(BLOCKS);
            self.later[block as usize].push(self.generation);
            stamp(&mut data, block * BLOCK, self.generation);
            if file.write_all_at(&data, block * BLOCK).is_err() {
                return;
            }
            if self.dice.below(4) > 0 {
                continue;
            }
            if file.sync_data().is_err() {
                return;
            }
            self.synced.fetch_add(1, Ordering::Relaxed);
            for (kept, later) in self.kept.iter_mut().zip(&mut self.later) {
                *kept = later.drain(..).next_back().unwrap_or(*kept);
            }
        }
    }

    /// Each sector of the file is what it must or may be; what it is now is what it has to stay.
    fn settle(&mut self, file: &File, round: u64) {
        let mut got = [0; BLOCK as usize];
        for block in 0..BLOCKS {
            let later = std::mem::take(&mut self.later[block as usize]);
            let kept = self.kept[block as usize];
            file.read_exact_at(&mut got, block * BLOCK).expect("the file is there");
            for sector in 0..BLOCK / SECTOR {
                let part = (sector * SECTOR) as usize..((sector + 1) * SECTOR) as usize;
                let is = |generation: u8| {
                    let mut want = [0; BLOCK as usize];
                    stamp(&mut want, block * BLOCK, generation);
                    want[part.clone()] == got[part.clone()]
                };
                let found = later.iter().rev().chain([&kept]).find(|generation| is(**generation));
                let word = u64::from_le_bytes(got[part.start..part.start + 8].try_into().expect("eight bytes"));
                let found = found.unwrap_or_else(|| {
                    panic!("round {round}: block {block} sector {sector} holds {word:#018x}, not {kept} or {later:?}")
                });
                self.kept[block as usize] = *found;
            }
        }
    }
}

#[test]
fn fsck_and_a_ledger_find_nothing_after_25_times_kill_9_under_load() {
    let mut needs = LOOP.to_vec();
    needs.extend(["fio", "mkfs.ext4", "e2fsck"].map(Need::Tool));
    if !have("fsck_and_a_ledger_find_nothing_after_25_times_kill_9_under_load", &needs) {
        return;
    }
    let mut real = Real::start();
    real.tank("raid1", &[GIB, GIB, GIB], 96 * MIB);
    let device = real.ok("share tank/v loop");
    let mount = real.word("mnt");
    sh(&format!("mkfs.ext4 -q -E lazy_itable_init=0 {device}; mkdir {mount}"));
    let path = real.path("mnt/ledger");
    let mut ledger = Ledger::new();
    for round in 0..=ROUNDS {
        // Replays the journal; then nothing may be left to repair.
        sh(&format!("mount {device} {mount}; umount {mount}; e2fsck -fn {device}"));
        if round == ROUNDS {
            break;
        }
        sh(&format!("mount {device} {mount}"));
        if round == 0 {
            let file = File::create(&path).expect("a file");
            let mut data = vec![0; (BLOCKS * BLOCK) as usize];
            data.chunks_mut(BLOCK as usize).enumerate().for_each(|(i, block)| stamp(block, i as u64 * BLOCK, 0));
            file.write_all_at(&data, 0).and_then(|()| file.sync_all()).expect("it is written");
        }
        let file = File::options().read(true).write(true).open(&path).expect("the ledger");
        ledger.settle(&file, round);
        let load = format!(
            "--name=load --thread --directory={mount} --numjobs=2 --size=8M --rw=randwrite --bs=4k --fsync=16 --time_based \
             --runtime=60 --fallocate=none --output=/dev/null"
        );
        let mut fio = Command::new("fio");
        fio.args(load.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut fio = fio.spawn().expect("fio starts");
        let (synced, ends) = (ledger.synced.clone(), AtomicBool::new(false));
        let before = synced.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| ledger.keep(&file, &ends));
            std::thread::sleep(Duration::from_millis(200 + 13 * (round * 7 % ROUNDS)));
            // A busy machine takes its time for the first.
            let begun = Instant::now();
            while synced.load(Ordering::Relaxed) == before {
                assert!(begun.elapsed() < Duration::from_secs(30), "round {round}: nothing is ever synced");
                std::thread::sleep(Duration::from_millis(10));
            }
            real.kill();
            ends.store(true, Ordering::Relaxed);
        });
        // It fails by itself with its first write; if it is still in its beginnings, here.
        let _ = fio.kill();
        fio.wait().expect("fio ends");
        drop(file);
        shell(&format!("umount {mount} || umount -l {mount}"));
        real.restart();
        assert_eq!(real.ok("shares -H -o uri").lines().last(), Some(device.as_str()), "at the same place again");
    }
    println!("{} times synced", ledger.synced.load(Ordering::Relaxed));
}
