//! Reads that give something else than what stands there, now and then: checksums notice, another copy is taken, and nothing comes of it.
//! After a crash checksums may be older than content; what nothing decides then is read again.

use std::panic::catch_unwind;

use braid_core::control::VolumeClass;
use braid_core::request::Op;
use braid_core::units::{KIB, MIB};
use braid_core::{Profile, Slip};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::{Crash, Rng, World};

use crate::common::{all_is_well, reopen, scrub, shape};
use crate::moving::convert;

const BLOCK: u64 = 4096;
const WRITE: Op = Op::Write { fua: false };
/// Members, profiles of data and metadata.
const SHAPES: [(usize, Profile, Profile); 5] = [
    (3, Profile::Raid1, Profile::Raid1),
    (4, Profile::Raid10, Profile::Raid1),
    (4, Profile::Raid1c3, Profile::Raid1c3),
    (4, Profile::Raid5, Profile::Raid1),
    (5, Profile::Raid6, Profile::Raid1c3),
];

/// Seeds of which something came before, with 3 % and crashes: the last of three reads was the one that counted (215, 345, 590), or of five
/// (2120); parity was made of what had no checksum yet (589, 1599), or of other parity (169, 1759).
const FOUND: [u64; 8] = [169, 215, 345, 589, 590, 1599, 1759, 2120];

/// All kinds of work on a pool of which one member misreads; nobody is to see any of it.
fn works(seed: u64, percent: u64, crashes: bool, slip: Option<Slip>) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let (devices, data, metadata) = SHAPES[seed as usize % SHAPES.len()];
    let kind = *rng.pick(&["crc32c", "xxh3"]);
    let mut world = World::with_pool(seed, &vec![shape(256); devices], data, metadata, &[("checksum", kind)]);
    world.slip = slip;
    reopen(&mut world);
    let v = world.volume("v", 64 * MIB, VolumeClass::Auto);
    let device = rng.between(1, devices as u64) as u32;
    world.faults.0.push(Fault { device, trouble: Trouble::Misread { percent, left: u64::MAX } });
    for step in 0..150 {
        let (at, len) = (rng.below(8 * MIB / BLOCK) * BLOCK, rng.between(1, 40) * BLOCK);
        let answer = match rng.below(100) {
            0..50 => world.run(v, Op::Write { fua: rng.percent(20) }, at, len),
            50..80 => world.run(v, Op::Read, at, len),
            80..85 => world.run(v, Op::Discard, at, len),
            85..90 => world.run(v, Op::Flush, 0, 0),
            90..93 => {
                scrub(&mut world);
                Ok(())
            }
            93..95 => {
                // It is refused where one goes on, or where it would not fit.
                let _ = world.control(convert(data));
                Ok(())
            }
            95..97 if crashes => {
                world.crash(*rng.pick(&[Crash::Process, Crash::Power]));
                world.open()?;
                Ok(())
            }
            _ => {
                world.run_until_quiet();
                Ok(())
            }
        };
        answer.map_err(|error| format!("{seed}, step {step}: {error:?}"))?;
        if let Some(wrong) = world.wrong.first() {
            return Err(format!("{seed}, step {step}: {wrong}"));
        }
    }
    world.faults.0.clear();
    all_is_well(&mut world);
    Ok(())
}

/// Seeds of which something came of a misread.
fn seen(seeds: impl IntoIterator<Item = u64>, percent: u64, crashes: bool, slip: Option<Slip>) -> Vec<String> {
    let what =
        |seed| catch_unwind(|| works(seed, percent, crashes, slip)).unwrap_or_else(|_| Err(format!("{seed}: a panic")));
    seeds.into_iter().filter_map(|seed| what(seed).err()).collect()
}

#[test]
fn what_a_device_misreads_is_had_from_another_one() {
    for percent in [1, 10, 50] {
        assert_eq!(seen(0..20, percent, false, None), [""; 0], "{percent} %");
    }
    let caught = seen(0..5, 10, false, Some(Slip::SumsNotCompared));
    println!("{caught:?}");
    assert!(!caught.is_empty());
}

/// Of `BRAID_SEEDS` other seeds as well, or of `BRAID_SEED` alone.
#[test]
fn what_nothing_decides_is_read_again() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    if let Some(seed) = number("BRAID_SEED") {
        return assert_eq!(works(seed, 3, true, None), Ok(()));
    }
    assert_eq!(seen((0..number("BRAID_SEEDS").unwrap_or(60)).chain(FOUND), 3, true, None), [""; 0]);
    let caught = seen(0..60, 3, true, Some(Slip::ReadOnce));
    println!("{caught:?}");
    assert!(!caught.is_empty());
}

/// A crash took the checksums of what was written over, and then a bit changed on one of three copies: two are alike.
#[test]
fn of_three_copies_that_a_crash_may_have_cut_two_that_are_alike_are_right() {
    for copy in 0..3 {
        let c3 = Profile::Raid1c3;
        let mut world = World::with_pool(3, &vec![shape(256); 4], c3, c3, &[("checksum", "crc32c")]);
        let v = world.volume("v", 64 * MIB, VolumeClass::Auto);
        world.run(v, WRITE, 0, 64 * KIB).unwrap();
        world.run(v, Op::Flush, 0, 0).unwrap();
        world.run_until_quiet();
        world.run(v, WRITE, 0, 64 * KIB).unwrap();
        let (device, at) = world.places(v, 5 * BLOCK)[copy];
        world.crash(Crash::Process);
        world.disks[device.index() - 1].corrupt(at + 100, 1);
        world.open().unwrap();
        all_is_well(&mut world);
        world.run(v, Op::Read, 0, 64 * KIB).unwrap();
        assert_eq!((world.unequal(), &world.wrong[..]), (vec![], &[][..]), "copy {copy}");
    }
}
