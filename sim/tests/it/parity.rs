//! Rows of strips with parity: written, read without some members, after power cuts, after bits went bad.

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::request::Op;
use braid_core::units::{DeviceId, KIB, MIB, VolumeId};
use braid_sim::rng::Rng;
use braid_sim::world::Shape;
use braid_sim::{Crash, World};

use crate::common::shape;

const WRITE: Op = Op::Write { fua: false };
const PARITY: [Profile; 2] = [Profile::Raid5, Profile::Raid6];

/// Metadata survives as much as data.
fn pool(seed: u64, devices: usize, profile: Profile, checksum: &str) -> (World, VolumeId) {
    let shapes: Vec<Shape> = vec![shape(96); devices];
    let mut world = World::with_pool(seed, &shapes, profile, profile.system(), &[("checksum", checksum)]);
    let v = world.volume("v", 64 * MIB, VolumeClass::Data);
    (world, v)
}

/// Requests of all sizes, some beside each other.
fn stir(world: &mut World, v: VolumeId, rng: &mut Rng, count: u64) {
    for _ in 0..count {
        let offset = rng.below(40 * MIB / 512) * 512;
        let len = *rng.pick(&[512, 4 * KIB, 12 * KIB, 64 * KIB, 100 * KIB, 300 * KIB, MIB]);
        let op = *rng.pick(&[WRITE, WRITE, WRITE, Op::Write { fua: true }, Op::Discard, Op::Flush, Op::Read]);
        let op = if rng.percent(5) { Op::WriteZeroes { fua: false, no_hole: rng.percent(50) } } else { op };
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (offset, len) };
        world.submit(1, v, op, offset, len, Default::default());
        if rng.percent(60) {
            world.drain();
        }
        if rng.percent(30) {
            world.run_until_answered();
        }
    }
    world.run_until_answered();
}

fn check_parity(world: &World) {
    assert_eq!(world.wrong_parity(), [], "rows whose parity is not what their strips come to");
}

#[test]
fn what_is_written_is_read_and_parity_is_what_it_should_be() {
    for profile in PARITY {
        for (devices, checksum) in [(3, "none"), (4, "crc32c"), (6, "none"), (6, "crc32c")] {
            let (mut world, v) = pool(7, devices, profile, checksum);
            let mut rng = Rng::new(devices as u64);
            for _ in 0..4 {
                stir(&mut world, v, &mut rng, 60);
                world.run_until_quiet();
                check_parity(&world);
                world.verify();
            }
            world.crash(Crash::Process);
            world.open().unwrap();
            world.verify();
            world.run_until_quiet();
            check_parity(&world);
        }
    }
}
