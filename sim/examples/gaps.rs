//! What bridging gaps is worth on a modelled device: `gaps MODEL [BATCH [OTHERS [NUMBER=VALUE..]]]`.
//!
//! A client hands over BATCH reads of 4 KiB at once and waits for all of them, again and again; each lies so many KiB
//! behind the end of the one before. Meanwhile OTHERS read 4 KiB at random places, one at a time each. For each distance:
//! MiB/s of what was asked with `read_gap_limit=0` and with that distance, and reads a second of the others.
//! Below stand sparse reads: of all blocks so many in a hundred, by dice, in order of place, under limits from 0 on.
//!
//! Numbers of the model may be others than shipped. Settings are those of the device's class otherwise. The same seed always gives the same numbers.

use std::collections::BTreeSet;

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::request::{Content, Op};
use braid_core::units::{GIB, KIB, MIB, VolumeId};
use braid_sim::world::Shape;
use braid_sim::{Model, Rng, World};

const BLOCK: u64 = 4 * KIB;
const BYTES: u64 = 4 * GIB;
/// KiB.
const GAPS: [u64; 10] = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];
/// Longest run, in virtual ns.
const NS: u64 = 20_000_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| args.get(i).map_or(default, |n| n.parse().expect("a number"));
    let mut model =
        Model::shipped(args.first().map_or("hdd", String::as_str)).expect("a model that comes with the crate");
    for word in args.iter().skip(3) {
        let (key, value) = word.split_once('=').expect("number=value");
        model.set(key, value.parse().expect("a number"), "chosen").expect("a number of this kind");
    }
    let mut bench = Bench::new(&model, number(1, 32), number(2, 0));
    println!("{}, batches of {}, {} others; MiB/s of what was asked", model.name(), bench.batch, bench.others);
    println!("{:>8} {:>10} {:>10} {:>8} {:>10} {:>10}", "gap", "apart", "bridged", "percent", "others", "then");
    for gap in GAPS {
        let places: Vec<u64> = (0..).map(|i| i * (BLOCK + gap * KIB)).take_while(|at| at + BLOCK <= BYTES).collect();
        let [(apart, others), (bridged, then)] = [0, gap].map(|limit| bench.rates(limit, &places));
        println!(
            "{gap:>7}K {apart:>10.1} {bridged:>10.1} {:>8.0} {others:>10.0} {then:>10.0}",
            100.0 * bridged / apart
        );
    }
    print!("\n{:>8} {:>8}", "blocks", "0");
    GAPS.iter().for_each(|limit| print!(" {limit:>7}K"));
    println!();
    for percent in [50, 20, 10, 5, 2, 1] {
        let mut rng = Rng::new(percent);
        let places: Vec<u64> = (0..BYTES / BLOCK).filter(|_| rng.percent(percent)).map(|block| block * BLOCK).collect();
        print!("{percent:>7}%");
        for limit in [0].into_iter().chain(GAPS) {
            print!(" {:>8.1}", bench.rates(limit, &places).0);
        }
        println!();
    }
}

/// A device whose volume is written from end to end.
struct Bench {
    world: World,
    volume: VolumeId,
    batch: u64,
    others: u64,
}

impl Bench {
    fn new(model: &Model, batch: u64, others: u64) -> Bench {
        let class = match model.kind().name() {
            "hdd" => "hdd",
            "network" => "net",
            _ => "ssd",
        };
        let shape = Shape { size: 2 * BYTES, model: model.clone(), class };
        let mut world = World::with_pool(1, &[shape], Profile::Single, Profile::Single, &[]);
        let volume = world.volume("v", BYTES, VolumeClass::Auto);
        world.instant = true;
        for at in (0..BYTES).step_by(8 * MIB as usize) {
            world.submit(0, volume, Op::Write { fua: false }, at, 8 * MIB, Content::Unsaid);
            world.run_until_answered();
        }
        world.control(Command::Checkpoint).expect("a checkpoint");
        world.run_until_quiet();
        (world.instant, world.exact) = (false, true);
        world.answers.clear();
        Bench { world, volume, batch, others }
    }

    /// MiB/s of who reads near places, and reads a second of the others.
    fn rates(&mut self, limit: u64, places: &[u64]) -> (f64, f64) {
        let Bench { world, volume, batch, others } = self;
        let command = Command::Set { name: "read_gap_limit".into(), value: format!("{limit}K") };
        world.control(command).expect("a size");
        world.run_until_quiet();
        let (mut rng, start) = (Rng::new(7), world.now());
        let read = |world: &mut World, at| world.submit(0, *volume, Op::Read, at, BLOCK, Content::Unsaid);
        let mut anywhere = || rng.below(BYTES / BLOCK) * BLOCK;
        let mut tags: BTreeSet<u64> = (0..*others).map(|_| read(world, anywhere())).collect();
        let (mut done, mut theirs, mut pending) = (0, 0, 0);
        let mut batches = places.chunks(*batch as usize).take(16_384 / *batch as usize);
        while world.now() < start + NS {
            if pending == 0 {
                let Some(together) = batches.next() else { break };
                together.iter().for_each(|&at| {
                    read(world, at);
                });
                pending = together.len() as u64;
                done += pending;
            }
            assert!(world.step());
            for answer in std::mem::take(&mut world.answers) {
                assert!(answer.result.is_ok());
                match tags.remove(&answer.tag) {
                    false => pending -= 1,
                    true => {
                        theirs += 1;
                        tags.insert(read(world, anywhere()));
                    }
                }
            }
        }
        let seconds = (world.now() - start) as f64 / 1e9;
        world.run_until_answered();
        world.answers.clear();
        assert!(world.wrong.is_empty(), "{:?}", world.wrong);
        ((done * BLOCK) as f64 / MIB as f64 / seconds, f64::from(theirs) / seconds)
    }
}
