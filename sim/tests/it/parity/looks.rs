//! How a scrub looks at rows: it says how far it is, goes on there, leaves clients alone, and tells what it could not look at.

use braid_core::queue::class::Class;
use braid_core::request::{Content, DeviceOp};
use braid_core::units::STRIP;

use super::*;

/// Rows over so much of a volume, and nothing under way.
fn written(profile: Profile, len: u64) -> (World, VolumeId) {
    let (mut world, v) = pool(7, 5, profile, "crc32c");
    for at in (0..len).step_by(MIB as usize) {
        world.run(v, WRITE, at, MIB).unwrap();
    }
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run_until_quiet();
    (world, v)
}

fn live_rows(world: &World) -> u64 {
    world.engine().pool().chunks().map(|chunk| chunk.live_rows()).sum()
}

#[test]
fn it_says_how_far_it_is_and_goes_on_there() {
    for how in ["pause", "orderly close", "process died"] {
        let (mut world, _) = written(Profile::Raid5, 40 * MIB);
        let since = world.now();
        let slow = |device| Fault { device, trouble: Trouble::Slow { since, until: u64::MAX, factor: 400 } };
        world.faults.0.extend((1..=5).map(slow));
        world.control(Command::ScrubStart).unwrap();
        let report = |world: &World| world.engine().report().scrub.scrub;
        let rows = live_rows(&world) * 5 * STRIP;
        world.run_until(|world| report(world).done > rows / 2);
        let at = report(&world);
        assert!(at.state == State::Running && at.done < at.total * 3 / 4, "{how}: {at:?}");
        match how {
            "pause" => {
                world.control(Command::ScrubPause).unwrap();
                world.run_until_quiet();
            }
            _ if how == "orderly close" => {
                world.control(Command::Close).unwrap();
                world.run_until_quiet();
            }
            _ => {}
        }
        let left = at.total - report(&world).done;
        world.crash(Crash::Process);
        world.open().unwrap();
        (world.keep_dispatched, world.dispatched) = (true, Vec::new());
        if how == "pause" {
            world.control(Command::ScrubResume).unwrap();
        }
        world.run_until_quiet();
        let end = report(&world);
        assert_eq!((end.state, end.done), (State::Finished, end.total), "{how}");
        let read: u64 = world.dispatched.iter().filter(|d| d.op == DeviceOp::Read).map(|d| d.len).sum();
        // Records and pages of checksums as well; what was under way at a pause, and of a process that died some seconds again.
        let slack = match how {
            "process died" => rows / 2,
            "pause" => braid_core::scrub::MEMORY,
            _ => 0,
        };
        assert!(read < left + 8 * MIB + slack, "{how}: {read} read, {left} were left");
        world.faults.0.clear();
        all_is_well(&mut world);
    }
}

#[test]
fn parity_that_could_not_be_looked_at_is_counted() {
    for profile in PARITY {
        let (mut world, _) = written(profile, 20 * MIB);
        scrub(&mut world);
        assert_eq!(world.engine().report().scrub.scrub.unread, 0);
        take_out(&mut world, 2);
        scrub(&mut world);
        let unread = world.engine().report().scrub.scrub.unread;
        let parity = live_rows(&world) * profile.facts().parity as u64 * STRIP;
        assert!(unread >= parity && unread < parity + 20 * MIB, "{profile:?}: {unread} unread, parity is {parity}");
    }
}

#[test]
fn a_scrub_reads_rows_once_in_its_own_class_and_takes_no_lock_where_parity_is_right() {
    for profile in PARITY {
        let (mut world, v) = written(profile, 40 * MIB);
        let before = world.engine().queue_stats(DeviceId(1)).expect("a member").class(Class::AsyncRead).left;
        let rows = live_rows(&world) * 5 * STRIP;
        (world.keep_dispatched, world.dispatched) = (true, Vec::new());
        world.control(Command::ScrubStart).unwrap();
        let mut at = 0;
        while world.engine().report().scrub.scrub.state == State::Running {
            world.submit(1, v, Op::Read, at % (40 * MIB), 4 * KIB, Content::Unsaid);
            at += 7 * MIB + 4 * KIB;
            world.run_until(|world| world.outstanding() == 0);
        }
        world.run_until_quiet();
        let stats = world.engine().queue_stats(DeviceId(1)).expect("a member");
        let after = stats.class(Class::AsyncRead).left;
        assert_eq!(before, after, "{profile:?}: a row was looked at under its lock");
        let reads = world.dispatched.iter().filter(|d| d.op == DeviceOp::Read);
        let (read, longest) = reads.fold((0, 0), |(sum, most), d| (sum + d.len, most.max(d.len)));
        assert!((rows..rows + 8 * MIB).contains(&read), "{profile:?}: {read} read of {rows}");
        assert!(longest >= 2 * STRIP, "{profile:?}: strips of neighbouring rows are read together: {longest}");
        assert_eq!(world.engine().report().scrub.scrub.differences, 0);
    }
}

#[test]
fn few_rows_are_looked_at_while_clients_are_at_work() {
    let peak = |clients: usize| {
        let (mut world, v) = written(Profile::Raid5, 40 * MIB);
        let mut at = 0;
        let mut keep_busy = |world: &mut World| {
            while world.outstanding() < clients {
                world.submit(1, v, Op::Read, at % (40 * MIB), 4 * KIB, Content::Unsaid);
                at += 7 * MIB + 4 * KIB;
            }
        };
        keep_busy(&mut world);
        world.control(Command::ScrubStart).unwrap();
        while world.engine().report().scrub.scrub.state == State::Running {
            keep_busy(&mut world);
            match clients {
                0 => world.run_until_quiet(),
                _ => assert!(world.run_until(|world| world.outstanding() < clients)),
            }
        }
        world.run_until_quiet();
        world.engine().queue_stats(DeviceId(1)).expect("a member").class(Class::Scrub).peak
    };
    // As many commands on a member as the class of a scrub may have there.
    assert_eq!((peak(0), peak(40)), (3, 1));
}
