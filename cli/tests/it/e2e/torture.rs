//! Many large requests at once, over every share; every eight bytes say where they belong.

use super::{BLOCK, Dice, GIB, KIB, MIB, Model, stamp};
use crate::real::{FUSE, LOOP, Real};
use crate::tools::have;
use braid_host::aligned::AlignedBox;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One write or read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) offset: u64,
    pub(super) len: u64,
    /// What to write; none reads and compares.
    pub(super) generation: Option<u8>,
}

/// Requests of 64 KiB to 1 MiB that cover everything once, in no order.
pub(super) fn cover(size: u64, seed: u64, generation: Option<u8>) -> Vec<Job> {
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
pub(super) trait Target {
    fn run(&self, jobs: &[Job], model: &Model, what: &str);
}

/// Connections to an NBD socket, each with 16 requests in flight.
pub(super) struct Nbd<'a> {
    pub(super) socket: &'a Path,
    pub(super) connections: usize,
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
