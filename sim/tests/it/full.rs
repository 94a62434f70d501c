//! A pool that is full to the last unit: nothing hangs, nothing is lost, and everything that needs no room works.

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::request::{Content, Op, RequestError};
use braid_core::units::{KIB, MIB, UNIT, VolumeId};
use braid_sim::Model;
use braid_sim::world::Shape;
use braid_sim::{Crash, Rng, World};

const WRITE: Op = Op::Write { fua: false };

/// First writes of 4 KiB all over a huge volume until two rounds of them find no room; the blocks that were written.
fn fill(world: &mut World, rng: &mut Rng, volume: VolumeId, size: u64, aligned: u64) -> Vec<u64> {
    let mut written = Vec::new();
    let mut refused = 0;
    while refused < 64 {
        let asked: Vec<(u64, u64)> = (0..32)
            .map(|_| {
                let at = rng.below(size / aligned) * aligned;
                (world.submit(0, volume, WRITE, at, 4 * KIB, Content::Unsaid), at)
            })
            .collect();
        world.run_until_answered();
        for answer in std::mem::take(&mut world.answers) {
            let at = asked.iter().find(|(tag, _)| *tag == answer.tag).expect("asked").1;
            match answer.result {
                Ok(()) => written.push(at),
                Err(RequestError::NoSpace) => refused += 1,
                Err(why) => panic!("a first write: {why:?}"),
            }
        }
    }
    written
}

fn all_fine(world: &mut World, about: &str) {
    world.run_until_answered();
    assert!(world.wrong.is_empty(), "{about}: {:?}", world.wrong);
    let failed: Vec<_> = world.answers.drain(..).filter(|a| a.result.is_err()).collect();
    assert!(failed.is_empty(), "{about}: {failed:?}");
}

fn checked(world: &mut World, about: &str) {
    world.verify();
    all_fine(world, about);
    world.run_until_quiet();
    world.check_quiet(true);
}

/// Pools of one to four small disks, filled densely (leaves in one line) or as sparsely as can be (a leaf a unit).
#[test]
fn a_pool_filled_to_the_last_unit_flushes_rewrites_discards_and_reopens() {
    let rows = [
        (1, 20, Profile::Single, 16 * MIB),
        (1, 20, Profile::Single, 64 * KIB),
        (1, 33, Profile::Dup, MIB),
        (2, 24, Profile::Raid1, 16 * MIB),
        (2, 48, Profile::Raid1, 4 * KIB),
        (4, 20, Profile::Raid10, 2 * MIB),
        (3, 40, Profile::Raid0, 16 * MIB),
    ];
    for (i, (devices, mib, profile, aligned)) in rows.into_iter().enumerate() {
        let about = format!("{} on {devices} of {mib} MiB, every {} KiB", profile.name(), aligned / KIB);
        let shape = Shape { size: mib * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
        let mut world = World::with_pool(7, &vec![shape; devices], profile, profile.system(), &[]);
        let mut rng = Rng::new(i as u64);
        let size = if aligned >= MIB { 1 << 40 } else { 256 * MIB };
        let v = world.volume("v", size, VolumeClass::Data);
        for round in 0..2 {
            let about = format!("{about}, round {round}");
            let written = fill(&mut world, &mut rng, v, size, aligned);
            assert!(!written.is_empty(), "{about}");
            world.run(v, Op::Flush, 0, 0).unwrap();
            world.control(Command::Checkpoint).unwrap();
            // Every leaf changes at once, and again while the checkpoint of that is under way.
            for pass in 0..3 {
                for &at in &written {
                    let next = at / (64 * KIB) * (64 * KIB) + (at + 4 * KIB) % (64 * KIB);
                    world.submit(1, v, WRITE, if pass == 1 { next } else { at }, 4 * KIB, Content::Unsaid);
                }
                all_fine(&mut world, &about);
                world.command(Command::Checkpoint);
            }
            world.run(v, Op::Flush, 0, 0).unwrap();
            world.control(Command::Checkpoint).unwrap();
            world.crash(Crash::Power);
            world.open().unwrap_or_else(|why| panic!("{about}: {why}"));
            checked(&mut world, &about);
            assert_eq!(world.run(v, WRITE, written[0], 4 * KIB), Ok(()), "{about}: a block that has its place");
            // Half of it goes, one by one and unflushed; a crash; the rest.
            for &at in written.iter().step_by(2) {
                world.submit(2, v, Op::Discard, at / (64 * KIB) * (64 * KIB), 64 * KIB, Content::Unsaid);
            }
            all_fine(&mut world, &about);
            world.crash(if round == 0 { Crash::Power } else { Crash::Process });
            world.open().unwrap_or_else(|why| panic!("{about}: {why}"));
            checked(&mut world, &about);
            for &at in &written {
                world.submit(2, v, Op::Discard, at / (64 * KIB) * (64 * KIB), 64 * KIB, Content::Unsaid);
            }
            all_fine(&mut world, &about);
            world.run_until_quiet();
            world.check_quiet(true);
            assert_eq!(world.engine().report().volumes[0].mapped, [0, 0], "{about}");
            world.answers.clear();
        }
    }
}

/// Leaves in one line need no page until a discard cuts them; then all of them do.
#[test]
fn every_leaf_of_a_full_pool_may_be_cut() {
    let shape = Shape { size: 400 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let mut world = World::with_pool(1, &[shape], Profile::Single, Profile::Single, &[]);
    let v = world.volume("v", 1 << 30, VolumeClass::Data);
    let mut end = 0;
    while world.run(v, WRITE, end, MIB) == Ok(()) {
        end += MIB;
    }
    assert!(end > 380 * MIB, "{} MiB", end / MIB);
    world.answers.clear();
    for at in (0..end).step_by(64 * KIB as usize) {
        world.submit(0, v, Op::Discard, at, 4 * KIB, Content::Unsaid);
    }
    all_fine(&mut world, "discards");
    world.control(Command::Checkpoint).unwrap();
    world.crash(Crash::Power);
    world.open().unwrap();
    checked(&mut world, "cut");
}

/// A volume goes and its pages with it, but not before a checkpoint: who fills the pool again at once waits for that.
#[test]
fn a_destroyed_volume_makes_room_for_as_many_leaves_as_it_had() {
    let shape = Shape { size: 24 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let mut world = World::with_pool(1, &[shape], Profile::Single, Profile::Single, &[]);
    let mut rng = Rng::new(1);
    let keep = world.volume("keep", 4 * MIB, VolumeClass::Data);
    world.run(keep, WRITE, 0, 4 * KIB).unwrap();
    let mut first = None;
    for round in 0..6 {
        let v = world.volume("v", 1 << 40, VolumeClass::Data);
        let written = fill(&mut world, &mut rng, v, 1 << 40, 16 * MIB).len();
        let first = *first.get_or_insert(written);
        assert!(written * 10 > first * 9, "round {round}: {written} leaves, {first} at first");
        if round % 2 == 0 {
            world.control(Command::Checkpoint).unwrap();
        }
        world.oracle.destroy(v.0);
        world.control(Command::DestroyVolume { volume: v }).unwrap();
        world.oracle.destroyed(v.0);
        world.answers.clear();
    }
    checked(&mut world, "end");
}

/// Chunks hold all the space, and what discards left free in them would take more leaves than there is room to write
/// down: then a first write is refused, and a checkpoint still finds its pages.
#[test]
fn new_leaves_are_refused_before_the_pool_cannot_be_written_down() {
    let shape = Shape { size: 400 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let mut world = World::with_pool(1, &[shape], Profile::Single, Profile::Single, &[]);
    let mut rng = Rng::new(2);
    let v = world.volume("v", 1 << 40, VolumeClass::Data);
    let mut end = 0;
    while world.run(v, WRITE, end, MIB) == Ok(()) {
        end += MIB;
    }
    for at in (0..end).step_by(128 * KIB as usize) {
        world.submit(0, v, Op::Discard, at, 64 * KIB, Content::Unsaid);
    }
    world.run_until_answered();
    world.run_until_quiet();
    world.answers.clear();
    let mut written = fill(&mut world, &mut rng, v, 1 << 40, 16 * MIB);
    let free: u64 = world.engine().report().chunks.iter().map(|c| c.length - c.used).sum();
    assert!(written.len() > 500 && free > 100 * MIB, "{} leaves, {} MiB free", written.len(), free / MIB);
    // What has its leaf is not refused, as long as there is space.
    written.retain(|at| *at > end);
    for &at in &written {
        world.submit(0, v, WRITE, at + 64 * KIB, 4 * KIB, Content::Unsaid);
    }
    all_fine(&mut world, "second units");
    for at in (64 * KIB..end).step_by(128 * KIB as usize) {
        world.submit(0, v, Op::Discard, at, 4 * KIB, Content::Unsaid);
    }
    all_fine(&mut world, "discards");
    // What is refused again and again is not counted again and again.
    let counted = |state: String| -> u64 {
        let (_, times) = state.rsplit_once("reserve counted ").unwrap();
        times.trim_end_matches(" times").parse().unwrap()
    };
    let before = counted(world.engine().space_state());
    for i in 0..100 {
        assert_eq!(world.run(v, WRITE, (1 << 39) + i * 16 * MIB, 4 * KIB), Err(RequestError::NoSpace));
    }
    assert!(counted(world.engine().space_state()) <= before + 3);
    let no_volume = world.control(Command::CreateVolume { name: "w".into(), size: MIB, class: VolumeClass::Auto });
    assert!(no_volume.is_err_and(|why| why.kind == braid_core::control::ErrorKind::NoSpace));
    world.control(Command::Checkpoint).unwrap();
    world.crash(Crash::Power);
    world.open().unwrap();
    checked(&mut world, "end");
}

/// A checkpoint is due when 4,096 leaves have changed. When they are written down it is due no more, and the pool comes to rest.
#[test]
fn many_changed_leaves_make_one_checkpoint_and_not_one_after_the_other() {
    // The last one makes it due, and no record comes behind that would have them counted again.
    const LEAVES: u64 = 4_096 + 1;
    let shape = Shape { size: 64 << 30, model: Model::shipped("nvme").unwrap(), class: "nvme" };
    let mut world = World::with_pool(1, &[shape], Profile::Single, Profile::Single, &[]);
    let volume = world.volume("v", LEAVES * 16 * MIB, VolumeClass::Auto);
    let before = world.engine().report().counters.checkpoints;
    for leaf in 0..LEAVES {
        world.submit(0, volume, WRITE, leaf * 16 * MIB, 4 * KIB, Content::Unsaid);
        if leaf % 64 == 63 {
            world.run_until_answered();
        }
    }
    all_fine(&mut world, "first writes");
    let rest = world.now() + 60_000_000_000;
    while world.now() < rest && world.step() {}
    let checkpoints = world.engine().report().counters.checkpoints - before;
    assert!((1..=2).contains(&checkpoints), "{checkpoints} checkpoints");
}

/// Room for the data of a first write, and not for its checksums: they take two units of metadata, and a chunk of metadata has one. It
/// is refused, and does not wait for what it made itself and gave back.
#[test]
fn a_first_write_whose_checksums_find_no_room_is_refused() {
    let shapes = [43_585_536, 102_137_856, 106_303_488, 34_766_848];
    let shapes = shapes.map(|size| Shape { size, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" });
    let set = [("allocation", "ssd-metadata"), ("checksum", "xxh3")];
    let mut world = World::with_pool(1, &shapes, Profile::Dup, Profile::Raid1c4, &set);
    let v = world.volume("v", MIB, VolumeClass::Auto);
    assert_eq!(world.run(v, WRITE, 0, 4 * KIB), Err(RequestError::NoSpace));
    world.run_until_quiet();
    world.check_quiet(true);
}

/// A write that waits for room has a unit that a read wants mended first, and the room that is about to come free waits for all who
/// began before it was given up; so many events after an opening.
fn read_beside_a_write_without_room(steps: u64) {
    let about = format!("{steps} events after the opening");
    let shape = Shape { size: 24 * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" };
    let mut world = World::with_pool(7, &vec![shape; 2], Profile::Raid1, Profile::Raid1, &[]);
    let v = world.volume("v", 64 * MIB, VolumeClass::Data);
    let room = (0..).find(|unit| world.run(v, WRITE, unit * UNIT, UNIT) == Err(RequestError::NoSpace)).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    // What is written over is in doubt after a crash.
    (0..room).for_each(|unit| world.run(v, WRITE, unit * UNIT, 4 * KIB).unwrap());
    world.crash(Crash::Power);
    world.open().unwrap();
    for _ in 0..steps {
        world.drain();
        world.step();
    }
    assert!(!world.engine().knows_better(v, room - 1), "{about}");
    world.submit(0, v, Op::Discard, 6 * MIB, 4 * MIB, Content::Unsaid);
    // The last unit that is there, and more that are not than an opening may have found room for.
    world.submit(0, v, WRITE, room * UNIT - 4 * KIB, 4 * MIB, Content::Unsaid);
    world.submit(0, v, Op::Read, (room - 1) * UNIT, 4 * KIB, Content::Unsaid);
    all_fine(&mut world, &about);
    checked(&mut world, &about);
}

#[test]
fn a_read_that_waits_for_a_mend_keeps_no_room_from_a_write() {
    (0..12).for_each(read_beside_a_write_without_room);
}
