//! In which order a scrub reads, and that it keeps its place in it.

use braid_core::ChunkType;
use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::request::DeviceOp;
use braid_core::units::MIB;
use braid_sim::{Crash, World};

use crate::scrub::{WRITE, finish, pool};

/// Chunks that were made of space that came back have young ids and low places: what counts is the place.
#[test]
fn chunks_are_read_in_order_of_place_whatever_their_age() {
    let (mut world, old) = pool(1, Profile::Single, Profile::Single);
    for at in (0..40).step_by(8) {
        world.run(old, WRITE, at * MIB, 8 * MIB).unwrap();
    }
    let kept = world.volume("w", 1 << 40, VolumeClass::Auto);
    for at in (0..48).step_by(8) {
        world.run(kept, WRITE, at * MIB, 8 * MIB).unwrap();
    }
    world.oracle.destroy(old.0);
    world.control(Command::DestroyVolume { volume: old }).unwrap();
    world.oracle.destroyed(old.0);
    world.control(Command::Checkpoint).unwrap();
    world.run_until_quiet();
    // All but one of the empty ones go back when the pool is opened.
    world.crash(Crash::Process);
    world.open().unwrap();
    world.run_until_quiet();
    let chunks =
        |w: &World| -> Vec<_> { w.engine().pool().chunks().filter(|c| c.kind == ChunkType::Data).cloned().collect() };
    let mut end = 48;
    while chunks(&world).is_sorted_by_key(|c| c.columns[0].offset) {
        world.run(kept, WRITE, end * MIB, 8 * MIB).unwrap();
        end += 8;
    }
    world.run_until_quiet();
    let chunks = chunks(&world);
    // Once in one go, and once stopped half way and gone on with after a restart.
    for stop in [false, true] {
        world.keep_dispatched = true;
        world.dispatched.clear();
        world.control(Command::ScrubStart).unwrap();
        if stop {
            world.run_until(|w| w.engine().report().scrub.scrub.done > 40 * MIB);
            world.control(Command::ScrubPause).unwrap();
            world.run_until_quiet();
            world.control(Command::Checkpoint).unwrap();
            world.crash(Crash::Process);
            world.open().unwrap();
            world.control(Command::ScrubResume).unwrap();
        }
        finish(&mut world);
        let inside =
            |offset: u64| chunks.iter().any(|c| (0..c.stripe).contains(&offset.wrapping_sub(c.columns[0].offset)));
        let reads: Vec<(u64, u64)> = world
            .dispatched
            .iter()
            .filter(|d| d.op == DeviceOp::Read && inside(d.offset))
            .map(|d| (d.offset, d.len))
            .collect();
        assert!(reads.is_sorted(), "{reads:?}");
        // What a chunk has left over after its volume went is no part of it.
        assert_eq!(reads.iter().map(|r| r.1).sum::<u64>(), end * MIB);
        world.run_until_quiet();
    }
}
