//! Checksums on real files: what changes in a file behind the pool's back is noticed, served right and put right.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use braid_core::Profile;
use braid_core::control::{Command, Done, VolumeClass};
use braid_core::request::Op;
use braid_core::units::{DeviceId, MIB, VolumeId};
use braid_host::pump::{PumpHandle, Setup, superblock_of};
use braid_host::reactor::Choice;

use crate::pump::{disk, new_pool, options, run};

const WRITE: Op = Op::Write { fua: false };
const BLOCK: u64 = 4096;
const SIZE: u64 = 64 * MIB;

fn open(paths: &[PathBuf]) -> PumpHandle {
    let disks: Vec<_> = paths.iter().map(|p| disk(p, None)).collect();
    let found = disks.iter().map(|d| superblock_of(d).unwrap()).collect();
    let disks = (1..).map(DeviceId).zip(disks).collect();
    PumpHandle::start(options(Choice::Auto), disks, Setup::Import(found)).unwrap()
}

/// Where the file says what the first sector of this block of the volume says.
fn find(bytes: &[u8], offset: u64) -> Option<u64> {
    let first = (offset ^ 0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let next = ((offset + 8) ^ 0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let at = bytes.chunks(BLOCK as usize).position(|block| block[..8] == first && block[8..16] == next)?;
    Some(at as u64 * BLOCK)
}

fn files(paths: &[PathBuf]) -> impl Iterator<Item = Vec<u8>> {
    paths.iter().map(|path| std::fs::read(path).unwrap())
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_flipped_bit_in_a_file_of_a_mirror_is_found_and_served_right() {
    for kind in ["crc32c", "xxh3"] {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..2).map(|i| dir.path().join(format!("d{i}"))).collect();
        let disks = paths.iter().enumerate().map(|(i, p)| (DeviceId(i as u32 + 1), disk(p, Some(SIZE)))).collect();
        let mut new = new_pool(&paths, Profile::Raid1);
        new.devices.iter_mut().for_each(|device| device.size = SIZE);
        new.properties.push(("checksum".into(), kind.into()));
        // Each copy is read in its turn.
        new.properties.push(("read_policy".into(), "roundrobin-v3".into()));
        let pump = PumpHandle::start(options(Choice::Auto), disks, Setup::Create(new)).unwrap();
        let create = Command::CreateVolume { name: "v".into(), size: 1 << 30, class: VolumeClass::Auto };
        let Done::Volume(volume) = pump.control(create).unwrap() else { panic!("no volume") };
        assert_eq!(volume, VolumeId(1), "the volume of checksums is nobody's");
        let all: Vec<u64> = (0..64).map(|i| i * 128 * 1024).collect();
        let blocks = |op: Op| all.iter().map(|&at| (op, at, 64 * 1024)).collect::<Vec<_>>();
        assert_eq!(run(&pump, volume, blocks(WRITE)), (0, 0));
        pump.stop();

        // One block is wrong on the one, another on the other; a third on both.
        let [one, other, both] = [3, 17, 40].map(|i| all[i] + 5 * BLOCK);
        let places: Vec<[u64; 3]> = files(&paths)
            .map(|file| [one, other, both].map(|offset| find(&file, offset).expect("it was written")))
            .collect();
        flip(&paths[0], places[0][0] + 77);
        flip(&paths[1], places[1][1] + 4000);
        (0..2).for_each(|i| flip(&paths[i], places[i][2] + 9));

        let pump = open(&paths);
        let readable: Vec<_> = blocks(Op::Read).into_iter().filter(|&(_, at, _)| at != both - 5 * BLOCK).collect();
        for _ in 0..20 {
            assert_eq!(run(&pump, volume, readable.clone()), (0, 0), "{kind}");
        }
        assert_eq!(run(&pump, volume, vec![(Op::Read, both, BLOCK)]), (0, 1), "{kind}: no copy is right");
        let beside = vec![(Op::Read, both - BLOCK, BLOCK), (Op::Read, both + BLOCK, BLOCK)];
        assert_eq!(run(&pump, volume, beside), (0, 0));
        let report = pump.report().unwrap();
        let errors: Vec<u64> = report.devices.iter().map(|d| d.io.checksum_errors).collect();
        assert!(errors.iter().all(|&n| n >= 2), "{kind}: {errors:?}");
        assert_eq!(report.lost, [(volume, both, BLOCK)]);
        // What is written again is well.
        assert_eq!(run(&pump, volume, vec![(WRITE, both, BLOCK), (Op::Read, both, BLOCK)]).1, 0);
        assert_eq!(pump.report().unwrap().lost, []);
        pump.stop();
        let left: Vec<Vec<u8>> = files(&paths).collect();
        for (i, offset) in [one, other, both].into_iter().enumerate() {
            let copy = |of: usize| &left[of][places[of][i] as usize..][..BLOCK as usize];
            assert!(copy(0) == copy(1), "{kind}: the copies of {offset} differ");
            assert_eq!(find(&left[0], offset), Some(places[0][i]));
        }
    }
}
