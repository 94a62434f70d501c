//! The engine in a pretended world. A failing seed prints the command that runs it again.

mod apart;
mod background;
mod damage;
mod full;
mod lab;
mod queues;
mod scenarios;
mod scrub;
mod ssd_metadata;

use std::panic::{AssertUnwindSafe, catch_unwind};

use braid_sim::swarm;

/// `BRAID_SEED=n` runs one; `BRAID_SEEDS=n` so many in place of the usual number.
#[test]
fn swarm_of_even_seeds() {
    swarm_of_seeds(0);
}

#[test]
fn swarm_of_odd_seeds() {
    swarm_of_seeds(1);
}

/// Two tests, for two cores.
fn swarm_of_seeds(parity: u64) {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let seeds = match number("BRAID_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BRAID_SEEDS").unwrap_or(400),
    };
    let mut failed = Vec::new();
    let (mut answered, mut crashes) = (0, 0);
    for seed in seeds.filter(|seed| seed % 2 == parity) {
        match catch_unwind(AssertUnwindSafe(|| swarm::run(seed))) {
            Ok(Ok(summary)) => (answered, crashes) = (answered + summary.answered, crashes + summary.crashes),
            Ok(Err(why)) => failed.push((seed, why)),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
                failed.push((seed, format!("panic: {}", text.unwrap_or_default())));
            }
        }
    }
    println!("{answered} requests answered, {crashes} crashes");
    for (seed, why) in &failed {
        let why: String = why.chars().take(400).collect();
        println!("{why}\n    BRAID_SEED={seed} BRAID_TALK=1 cargo test -p braid-sim --test it swarm -- --nocapture");
    }
    assert!(failed.is_empty(), "{} seeds failed", failed.len());
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..6 {
        assert_eq!(swarm::run(seed), swarm::run(seed), "seed {seed}");
    }
}
