//! Reads that are near each other in a pool that serves: what is counted for whom, and an error that is nobody's.

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::queue::class::Class;
use braid_core::queue::stats::ClassStats;
use braid_core::request::{Content, Op};
use braid_core::units::{BLOCK, DeviceId, MIB, VolumeId};
use braid_sim::fault::{Fault, Trouble};
use braid_sim::world::Shape;
use braid_sim::{Model, World};

/// Every other block.
const STRIDE: u64 = 2 * BLOCK;
const READS: u64 = 8;

/// A member of this class and a MiB that is written.
fn pool(class: &'static str) -> (World, VolumeId) {
    let model = Model::shipped("ceph-one-node").unwrap();
    let shape = Shape { size: 512 * MIB, model, class };
    let mut world = World::with_pool(1, &[shape], Profile::Single, Profile::Single, &[]);
    let v = world.volume("v", MIB, VolumeClass::Auto);
    world.run(v, Op::Write { fua: false }, 0, MIB).unwrap();
    world.run(v, Op::Flush, 0, 0).unwrap();
    world.run_until_quiet();
    (world, v)
}

fn stats(world: &World) -> ClassStats {
    *world.engine().queue_stats(DeviceId(1)).expect("a member").class(Class::SyncRead)
}

/// Bytes that the device read.
fn device_bytes(world: &World) -> u64 {
    world.engine().report().devices[0].io.read_bytes
}

fn read_every_other(world: &mut World, v: VolumeId) {
    for i in 0..READS {
        world.submit(0, v, Op::Read, i * STRIDE, BLOCK, Content::Unsaid);
    }
    world.run_until_answered();
    assert!(world.answers.drain(..).all(|answer| answer.result.is_ok()));
    world.run_until_quiet();
    world.check_quiet(true);
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}

/// Class | commands of eight near reads | bytes of the device.
#[test]
fn times_and_bytes_are_those_of_each_member_and_gaps_are_the_devices() {
    let whole = (2 * READS - 1) * BLOCK;
    for (class, commands, bytes) in [("net", 1, whole), ("hdd", 1, whole), ("ssd", READS, READS * BLOCK)] {
        let (mut world, v) = pool(class);
        world.exact = true;
        let (before, from, start) = (stats(&world), device_bytes(&world), world.now());
        for i in 0..READS {
            world.submit(0, v, Op::Read, i * STRIDE, BLOCK, Content::Unsaid);
        }
        world.run_until_answered();
        let took = world.now() - start;
        world.answers.clear();
        read_every_other(&mut world, v);
        let after = stats(&world);
        assert_eq!(after.size_after().count() - before.size_after().count(), 2 * commands, "{class}");
        assert_eq!(device_bytes(&world) - from, 2 * bytes, "{class}");
        let members = [
            after.ios - before.ios,
            (after.bytes - before.bytes) / BLOCK,
            after.size_before().count() - before.size_before().count(),
            after.queue_ns().count() - before.queue_ns().count(),
            after.device_ns().count() - before.device_ns().count(),
        ];
        assert_eq!(members, [2 * READS; 5], "{class}");
        if commands == 1 {
            // All that time was the device's, and each of them waited for all of it.
            assert_eq!(after.device_ns().sum - before.device_ns().sum, 2 * READS * took, "{class}");
        }
    }
}

/// What lies between is read for nothing: when it cannot be read, nobody gets an error.
#[test]
fn a_bad_block_in_a_gap_is_nobodys_error() {
    let (mut world, v) = pool("net");
    let (device, at) = world.places(v, 5 * BLOCK)[0];
    let (read, write, flush, percent) = (true, false, false, 100);
    let trouble = Trouble::Error { read, write, flush, from: at, to: at + 1, percent, left: u64::MAX };
    world.faults.0.push(Fault { device: device.0, trouble });
    let before = stats(&world);
    read_every_other(&mut world, v);
    let after = stats(&world);
    assert_eq!(after.size_after().count() - before.size_after().count(), 1 + READS, "together, then each by itself");
    assert_eq!((after.ios - before.ios, after.bytes - before.bytes), (READS, READS * BLOCK));
}

/// Set for one member, like any other knob of a queue.
#[test]
fn the_limit_is_set_while_the_pool_serves() {
    let (mut world, v) = pool("net");
    for (value, commands) in [("0", READS), ("4095", READS), ("4096", 1), ("", 1)] {
        let (device, name) = (DeviceId(1), "read_gap_limit".into());
        world.control(Command::SetDevice { device, name, value: value.into() }).unwrap();
        let before = stats(&world).size_after().count();
        read_every_other(&mut world, v);
        assert_eq!(stats(&world).size_after().count() - before, commands, "read_gap_limit={value}");
    }
}
