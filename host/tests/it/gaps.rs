//! Reads that are near each other, over a live pump and real memory: few commands, and every byte where it belongs.

use std::path::{Path, PathBuf};

use braid_core::Profile;
use braid_core::control::{Command, Done, VolumeClass};
use braid_core::queue::class::Class;
use braid_core::request::Op;
use braid_core::units::{DeviceId, KIB, MIB, VolumeId};
use braid_host::pump::{PumpHandle, Setup};
use braid_host::reactor::Choice;

use crate::pump::{disk, new_pool, options, run};

const BYTES: u64 = 32 * MIB;
const READ: u64 = 4 * KIB;

/// A pool of one device and a volume that is written from end to end.
fn written(path: &Path, reactor: Choice) -> (PumpHandle, VolumeId) {
    let paths = [PathBuf::from(path)];
    let mut new = new_pool(&paths, Profile::Single);
    new.metadata = Profile::Single;
    let disks = vec![(DeviceId(1), disk(path, Some(256 * MIB)))];
    let pump = PumpHandle::start(options(reactor), disks, Setup::Create(new)).unwrap();
    let create = Command::CreateVolume { name: "v".into(), size: BYTES, class: VolumeClass::Auto };
    let Done::Volume(v) = pump.control(create).unwrap() else { panic!("no volume") };
    let writes = (0..BYTES / MIB).map(|i| (Op::Write { fua: false }, i * MIB, MIB)).collect();
    assert_eq!(run(&pump, v, writes), (0, 0));
    (pump, v)
}

/// What the device has done so far: commands, their bytes, and bytes that clients asked for.
fn reads(pump: &PumpHandle) -> [u64; 3] {
    let device = pump.report().unwrap().devices.swap_remove(0);
    [device.io.reads, device.io.read_bytes, device.queue.stats.class(Class::SyncRead).bytes]
}

/// The client has sixteen under way, and they come back together.
#[test]
fn strided_reads_become_few_commands_and_read_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let places = [(dir.path().join("auto"), Choice::Auto), (dir.path().join("threads"), Choice::Threads)];
    for (path, reactor) in places.into_iter().chain([("ram:256M".into(), Choice::Auto)]) {
        let (pump, v) = written(&path, reactor);
        // The last gap is longer than the memory it is read into.
        for gap in [READ, 28 * KIB, 124 * KIB] {
            let stride = READ + gap;
            let places: Vec<_> = (0..BYTES / stride).take(256).map(|i| (Op::Read, i * stride, READ)).collect();
            let asked = places.len() as u64;
            for (limit, is_bridged) in [(0, false), (gap - READ, false), (gap, true)] {
                let (name, value) = ("read_gap_limit".into(), limit.to_string());
                pump.control(Command::Set { name, value }).unwrap();
                let before = reads(&pump);
                assert_eq!(run(&pump, v, places.clone()), (0, 0), "{path:?}, gaps of {gap}, limit {limit}");
                let after = reads(&pump);
                let [commands, bytes, wanted] = [0, 1, 2].map(|i| after[i] - before[i]);
                assert_eq!(wanted, asked * READ, "clients' bytes are no gaps");
                if is_bridged {
                    assert!(commands * 8 <= asked, "{path:?}, gaps of {gap}: {commands} commands of {asked} reads");
                    assert_eq!(bytes, wanted + (asked - commands) * gap, "the device's are");
                } else {
                    assert_eq!((commands, bytes), (asked, wanted), "{path:?}, gaps of {gap}, limit {limit}");
                }
            }
        }
        pump.stop();
    }
}
