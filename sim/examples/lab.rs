//! How long the laboratory itself takes: 256,000 reads of 64 KiB by 32 threads of a mirror, whole or in pieces of 4 KiB.
//!
//! `cargo run --release -p braid-sim --example lab [PIECE]`

use std::time::Instant;

use braid_core::Profile;
use braid_sim::Model;
use braid_sim::lab::{self, Access, Cpu, Job, Member, Setup, Sizes};

fn main() {
    let piece = std::env::args().nth(1).map(|bytes| bytes.parse().expect("bytes of a piece"));
    let model = Model::shipped("sata-ssd").expect("it comes with the crate");
    let members = (0..2).map(|i| Member::new(&format!("d{i}"), 4 << 30, "ssd", model.clone())).collect();
    let setup = Setup { cpus: 4, ..Setup::new(members, Profile::Raid1, Profile::Raid1, 500 << 20) };
    let job = Job {
        access: Access::Random,
        sizes: [Sizes::fixed(65536), Sizes::fixed(65536)],
        piece,
        count: 32,
        cpu: Cpu { request_ns: 5_000, piece_ns: 500, jitter_ns: 200, ..Cpu::default() },
        ..Job::default()
    };
    let clock = Instant::now();
    let outcome = lab::run(&setup, &[job], 1).expect("it runs");
    let ms = clock.elapsed().as_millis();
    let (ios, mib) = (outcome.all.data().ios, outcome.all.bytes_per_s() >> 20);
    println!("{ios} requests, {} steps in {ms} ms; {mib} MiB/s, hash {:016x}", outcome.steps, outcome.hash);
    for d in &outcome.devices {
        println!("{} {} reads, {} joined, busy {} permille", d.name, d.reads, d.merged, d.busy_permille);
    }
}
