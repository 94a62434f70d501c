//! A scrub and the pool's own records, which checkpoints write beside it.

use braid_core::ChunkType;
use braid_core::Profile;
use braid_core::chunk::Column;
use braid_core::control::Command;
use braid_core::meta::superblock::{SLOTS, SUPERBLOCK_SIZE, Superblock};
use braid_core::request::{Content, DeviceOp, Event};
use braid_core::scrub::State;
use braid_core::units::{BLOCK, DeviceId, MIB};
use braid_sim::disk::Disk;
use braid_sim::fault::{Fault, Trouble};
use braid_sim::{Crash, World};

use crate::common::all_is_well;
use crate::scrub::{WRITE, fill, finish, pool, scrub, state};

#[test]
fn pages_of_the_pool_are_compared() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    world.control(Command::Checkpoint).unwrap();
    world.run_until_quiet();
    let sb = world.superblocks().remove(0);
    let page = sb.root[0].0;
    let chunk = world.engine().pool().chunks().find(|c| u64::from(c.id.0) == page >> 24).unwrap().clone();
    assert_eq!(chunk.kind, ChunkType::System);
    let offset = (page & 0xff_ffff) * 4096;
    world.disks[1].corrupt(chunk.columns[1].offset + offset + 3000, 1);
    let found = scrub(&mut world);
    // Both ends of the scrub are records, yet the root stays where it was: nothing asked for a checkpoint.
    let Event::ScrubDifference { volume: None, offset: at, len: BLOCK, copies, .. } = &found[0] else {
        panic!("{found:?}")
    };
    assert_eq!((*at, found.len()), (offset, 2));
    assert_eq!(copies[1].offset, chunk.columns[1].offset + offset);
}

/// Superblocks that are told not to be what was written.
fn bad_superblocks(events: &[Event]) -> Vec<(u32, u64)> {
    let bad = |event: &Event| match *event {
        Event::BadRecord { device, device_offset, len: SUPERBLOCK_SIZE } => Some((device.0, device_offset)),
        _ => None,
    };
    events.iter().filter_map(bad).collect()
}

/// What counts as CKSUM of the second member.
fn cksum(world: &World) -> u64 {
    world.engine().pool().device(DeviceId(2)).expect("a member").counters.checksum_errors
}

/// Superblocks are read at openings and by scrubs, which tell what is damaged there and write both slots of each anew.
#[test]
fn both_slots_of_every_superblock_are_whole_after_a_scrub() {
    for (profile, devices) in [(Profile::Raid1, 3), (Profile::Single, 1)] {
        let (mut world, v) = pool(devices, profile, profile.system());
        fill(&mut world, v);
        for (i, disk) in world.disks.iter_mut().enumerate() {
            disk.corrupt(SLOTS[i % 2] + 100, 1);
        }
        // And one that cannot be read until it is written.
        let trouble = Trouble::Latent { since: 0, from: SLOTS[1], to: SLOTS[1] + BLOCK };
        world.faults.0.push(Fault { device: 1, trouble });
        let is_whole = |world: &World| {
            let slot = |disk: &Disk, at| Superblock::decode(&disk.read_bytes(at, SUPERBLOCK_SIZE)).is_ok();
            world.disks.iter().all(|disk| SLOTS.into_iter().all(|at| slot(disk, at)))
        };
        assert!(!is_whole(&world));
        let found = scrub(&mut world);
        assert!(is_whole(&world));

        let places = |wanted: fn(&Event) -> Option<(u32, u64)>| found.iter().filter_map(wanted).collect::<Vec<_>>();
        let all: Vec<_> = (0..devices as u32).map(|i| (i + 1, SLOTS[i as usize % 2])).collect();
        assert_eq!(bad_superblocks(&found), all);
        let unreadable = places(|event| match *event {
            Event::ScrubReadError { volume: None, len: SUPERBLOCK_SIZE, device, device_offset, .. } => {
                Some((device.0, device_offset))
            }
            _ => None,
        });
        assert_eq!(unreadable, [(1, SLOTS[1])]);
        let report = |world: &World| world.engine().report().scrub.scrub;
        let of_slots = |slots: u64| slots * SUPERBLOCK_SIZE / BLOCK;
        let first = report(&world);
        let slots = devices as u64;
        assert_eq!(
            (first.differences, first.read_errors, first.repaired),
            (of_slots(slots), of_slots(1), of_slots(slots + 1))
        );
        // The next one finds nothing.
        scrub(&mut world);
        let next = report(&world);
        assert_eq!((next.differences, next.read_errors, next.repaired), (0, 0, 0));
    }
}

/// A disk says that a superblock is written, and has the one before it.
#[test]
fn a_superblock_whose_write_was_lost_is_told_and_written_anew() {
    for (checkpoints, later) in [(1, false), (2, false), (1, true)] {
        let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
        fill(&mut world, v);
        world.control(Command::Checkpoint).unwrap();
        world.run_until_quiet();
        let trouble = Trouble::Lost { from: SLOTS[0], to: SLOTS[1] + SUPERBLOCK_SIZE, left: checkpoints };
        world.faults.0.push(Fault { device: 2, trouble });
        (0..checkpoints + u64::from(later)).for_each(|_| {
            world.control(Command::Checkpoint).unwrap();
        });
        world.run_until_quiet();
        let generations = world.superblocks().iter().map(|sb| sb.generation).collect::<Vec<_>>();
        assert_eq!(generations[0] - generations[1], if later { 0 } else { checkpoints }, "{checkpoints} lost");
        let (newest, before) = (SLOTS[(generations[0] % 2) as usize], cksum(&world));
        let found = scrub(&mut world);
        // What a later one was written beside counts for nothing.
        let told: Vec<_> = if later { vec![] } else { vec![(2, newest)] };
        assert_eq!(bad_superblocks(&found), told, "{checkpoints} lost");
        let blocks = told.len() as u64 * (SUPERBLOCK_SIZE / BLOCK);
        assert_eq!((world.engine().report().scrub.scrub.differences, cksum(&world) - before), (blocks, blocks));
        let slot = |disk: &Disk, at| Superblock::decode(&disk.read_bytes(at, SUPERBLOCK_SIZE)).map(|sb| sb.generation);
        let [a, b] = [0, 1].map(|disk| SLOTS.map(|at| slot(&world.disks[disk], at)));
        assert_eq!(a, b, "they are written anew");
        let found = scrub(&mut world);
        assert_eq!(bad_superblocks(&found), []);
        assert_eq!(world.engine().report().scrub.scrub.differences, 0);
        world.crash(Crash::Power);
        world.open().unwrap();
        world.verify();
        all_is_well(&mut world);
    }
}

/// What is behind by right is not called damaged: after a power cut, of a member that was away, and of one that refused.
#[test]
fn superblocks_that_are_behind_by_right_are_not_told() {
    let told = |world: &mut World, what: &str| {
        let found = scrub(world);
        assert_eq!(bad_superblocks(&found), [], "{what}");
        world.run_until_quiet();
    };
    for steps in 0..40 {
        let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
        world.run(v, WRITE, 0, MIB).unwrap();
        world.faults.0.push(Fault { device: 2, trouble: Trouble::Slow { since: 0, until: u64::MAX, factor: 20 } });
        world.command(Command::Checkpoint);
        (0..steps).for_each(|_| {
            world.step();
        });
        world.crash(Crash::Power);
        world.faults.0.clear();
        world.open().unwrap();
        // As early as it is served.
        told(&mut world, "a power cut");
        world.control(Command::OfflineDevice { device: DeviceId(2) }).unwrap();
        (0..steps % 4).for_each(|_| {
            world.control(Command::Checkpoint).unwrap();
        });
        told(&mut world, "a member is away");
        world.control(Command::OnlineDevice { device: DeviceId(2), found: None }).unwrap();
        told(&mut world, "it is back");
        let slots = SLOTS[0]..SLOTS[1] + SUPERBLOCK_SIZE;
        world.faults.0.push(Fault { device: 2, trouble: Trouble::writes_fail(slots, 1 + steps % 3) });
        (0..1 + steps % 5).for_each(|_| {
            world.control(Command::Checkpoint).unwrap();
        });
        world.run_until_quiet();
        // A write that failed may have torn its slot.
        scrub(&mut world);
        told(&mut world, "a write failed");
        all_is_well(&mut world);
    }
}

/// The pool has no other copy of its records, so who refused a superblock goes on with the one before.
#[test]
fn a_superblock_that_was_refused_is_not_held_to_the_last_checkpoint() {
    let mut refused = 0;
    for writes in 0..12 {
        let (mut world, v) = pool(2, Profile::Raid0, Profile::Single);
        (0..writes).for_each(|i| world.run(v, WRITE, i * MIB, MIB).unwrap());
        world.control(Command::Checkpoint).unwrap();
        let system = world.engine().pool().chunks().find(|c| c.kind == ChunkType::System).unwrap().columns[0].device;
        let slots = SLOTS[0]..SLOTS[1] + SUPERBLOCK_SIZE;
        world.faults.0.push(Fault { device: system.0, trouble: Trouble::writes_fail(slots, 1) });
        world.control(Command::Checkpoint).unwrap();
        world.run_until_quiet();
        let generations = world.superblocks().iter().map(|sb| sb.generation).collect::<Vec<_>>();
        refused += usize::from(generations[0] != generations[1]);
        // One that was torn is told, and that is right.
        scrub(&mut world);
        all_is_well(&mut world);
        let found = scrub(&mut world);
        assert_eq!(bad_superblocks(&found), [], "{writes} writes");
    }
    assert!(refused > 0);
}

/// A checkpoint that comes between reads a slot that is being written: the member is looked at again.
#[test]
fn superblocks_that_checkpoints_come_between_are_looked_at_again() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    let disturbed = |world: &mut World, times: usize| {
        let mut at = 100;
        let mut spoil = |world: &mut World| {
            at += 1;
            SLOTS.into_iter().for_each(|slot| world.disks[0].corrupt(slot + at, 1));
        };
        spoil(world);
        world.keep_dispatched = true;
        world.command(Command::ScrubStart);
        world.drain();
        let mut begun = 0;
        while state(world) == State::Running {
            let is_slot = |d: &braid_core::request::Dispatch| {
                d.op == DeviceOp::Read && d.device.0 == 1 && SLOTS.contains(&d.offset)
            };
            if world.dispatched.drain(..).any(|d| is_slot(&d)) && begun < times {
                begun += 1;
                spoil(world);
                world.command(Command::Checkpoint);
                world.drain();
            }
            world.step();
        }
        world.run_until_quiet();
        let scrub = world.engine().report().scrub.scrub;
        (begun, scrub.differences, scrub.undecided)
    };
    // Once: what the checkpoint wrote is whole again, the other slot is not.
    assert_eq!(disturbed(&mut world, 1), (1, SUPERBLOCK_SIZE / BLOCK, 0));
    // Each time: nothing is said of either.
    let (begun, differences, undecided) = disturbed(&mut world, usize::MAX);
    assert_eq!((differences, undecided), (0, 2 * SUPERBLOCK_SIZE / BLOCK), "{begun} times");
}

/// Changes every block that was ever a page, on one copy, but the root; leaves that nothing changes any more stay where
/// they are.
fn spoil_leaves(world: &mut World) {
    let system: Vec<_> = world.engine().pool().chunks().filter(|c| c.kind == ChunkType::System).cloned().collect();
    let superblock = world.superblocks().remove(0);
    let root: Vec<_> = superblock.root.iter().map(|(page, _)| (page >> 24, (page & 0xff_ffff) * BLOCK)).collect();
    for chunk in &system {
        let log = if chunk.id == superblock.system[0].id { u64::from(superblock.log_blocks) * BLOCK } else { 0 };
        let Column { device, offset } = chunk.columns[1];
        let disk = &mut world.disks[device.index() - 1];
        for at in (log..chunk.stripe).step_by(BLOCK as usize).filter(|at| !root.contains(&(chunk.id.0.into(), *at))) {
            if disk.read_bytes(offset + at, BLOCK).iter().any(|b| *b != 0) {
                // In the last sector, which is empty: the simulator sees nothing of where a full one differs.
                disk.corrupt(offset + at + BLOCK - 1, 1);
            }
        }
    }
}

/// Pages that differ, and a checkpoint that comes between each time they are looked at: not judged, but counted.
#[test]
fn pages_that_checkpoints_always_come_between_are_undecided() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    world.control(Command::Checkpoint).unwrap();
    world.run_until_quiet();
    spoil_leaves(&mut world);
    let outcome = |w: &World| {
        let scrub = w.engine().report().scrub.scrub;
        (scrub.differences, scrub.undecided)
    };
    scrub(&mut world);
    let (pages, none) = outcome(&world);
    assert!(pages > 30 && none == 0, "{pages} leaves");
    // What was found is elsewhere by now, and right.
    scrub(&mut world);
    assert_eq!(outcome(&world), (0, 0));

    spoil_leaves(&mut world);
    let system: Vec<_> = world.engine().pool().chunks().filter(|c| c.kind == ChunkType::System).cloned().collect();
    world.keep_dispatched = true;
    world.command(Command::ScrubStart);
    world.drain();
    while state(&world) == State::Running {
        let is_page = |d: &braid_core::request::Dispatch| {
            let inside = |c: &Column, stripe| c.device == d.device && (c.offset..c.offset + stripe).contains(&d.offset);
            d.op == DeviceOp::Read && system.iter().any(|s| s.columns.iter().any(|c| inside(c, s.stripe)))
        };
        // One begins while each look is under way, and is over before the next one.
        if world.dispatched.drain(..).any(|d| is_page(&d)) {
            world.command(Command::Checkpoint);
            world.drain();
        }
        world.step();
    }
    assert_eq!(outcome(&world), (0, pages));
    world.run_until_quiet();
    // Left in peace, they are judged.
    scrub(&mut world);
    assert_eq!(outcome(&world), (pages, 0));
}

#[test]
fn checkpoints_beside_a_scrub_make_no_difference() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    // One copy of each page is written long before the other.
    let since = world.now();
    world.faults.0.push(Fault { device: 2, trouble: Trouble::Slow { since, until: u64::MAX, factor: 10 } });
    world.keep_dispatched = true;
    let (mut scrubs, mut round) = (0, 0);
    let mut checkpoint = world.command(Command::Checkpoint);
    while scrubs < 150 {
        // One checkpoint after the other, and every leaf changes, so that pages change their owners.
        if world.outstanding() == 0 && world.done.iter().any(|d| d.0 == checkpoint) {
            round += 1;
            for leaf in 1..=40 {
                world.submit(0, v, WRITE, (leaf << 33) + round % 16 * BLOCK, BLOCK, Content::Unsaid);
            }
            checkpoint = world.command(Command::Checkpoint);
            world.done.clear();
        }
        if world.rng.percent(2) && state(&world) != State::Running {
            scrubs += 1;
            world.command(Command::ScrubStart);
        }
        world.step();
    }
    finish(&mut world);
    world.run_until_answered();
    let found = world.events.iter().find(|e| matches!(e, Event::ScrubDifference { .. } | Event::ScrubReadError { .. }));
    assert_eq!(found, None);
    // They were looked at twice: block by block, among pages.
    let system: Vec<_> = world.engine().pool().chunks().filter(|c| c.kind == ChunkType::System).cloned().collect();
    let is_page = |d: &braid_core::request::Dispatch| {
        let column = |c: &braid_core::chunk::Chunk| {
            c.columns
                .iter()
                .any(|col| col.device == d.device && (col.offset..col.offset + c.stripe).contains(&d.offset))
        };
        d.op == DeviceOp::Read && system.iter().any(column)
    };
    let count = world.dispatched.iter().filter(|d| is_page(d)).count();
    assert!(count > 2 * scrubs + 20, "{count} reads of pages in {scrubs} scrubs: nothing was looked at twice");
    world.run_until_quiet();
    world.check_quiet(true);
}

/// A member that missed a page of a checkpoint is no copy of the pool's own records until it has them all: a scrub that comes
/// before that has nothing to tell.
#[test]
fn a_member_that_is_behind_in_records_is_not_compared() {
    let (mut world, v) = pool(2, Profile::Raid1, Profile::Raid1);
    fill(&mut world, v);
    let log = u64::from(world.superblocks().remove(0).log_blocks) * BLOCK;
    let system: Vec<_> = world.engine().pool().chunks().filter(|c| c.kind == ChunkType::System).cloned().collect();
    assert_eq!(system.len(), 1);
    let Column { device, offset } = system[0].columns[1];
    let (from, to) = (offset + log, offset + system[0].stripe);
    let trouble = Trouble::writes_fail(from..to, 3);
    world.faults.0.push(Fault { device: device.0, trouble });
    world.control(Command::Checkpoint).unwrap();
    assert!(world.engine().pool().device(device).unwrap().is_behind);
    world.control(Command::ScrubStart).unwrap();
    finish(&mut world);
    let found = |w: &World| w.events.iter().find(|e| matches!(e, Event::ScrubDifference { .. })).cloned();
    assert_eq!(found(&world), None);
    let unread = |w: &World| w.engine().report().scrub.scrub.unread;
    assert!(unread(&world) > 0);
    // It gets them all with the next checkpoint, and is compared.
    world.run_until_quiet();
    assert!(!world.engine().pool().device(device).unwrap().is_behind);
    scrub(&mut world);
    assert_eq!((found(&world), unread(&world)), (None, 0));
}
