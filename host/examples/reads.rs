//! What 4 KiB reads at random places cost in one process, with checksums and without: `reads READS [CHECKSUM] [DISK]`, for
//! instance `reads 1000000 crc32c ram:1G`. The disk is overwritten.
//!
//! For instructions rather than time, count those of two runs and divide the difference by that of the reads:
//!
//! ```text
//!   valgrind --tool=callgrind reads 20000 crc32c
//! ```
//!
//! Valgrind pretends to be a processor without the widest vectors: sums cost more instructions under it than outside.

use std::time::Instant;

use braid_core::control::{Command, Done, VolumeClass};
use braid_core::meta::format::{NewDevice, NewPool};
use braid_core::request::{Content, NO_BUF, Op, Reply, Request};
use braid_core::sums::Checksum;
use braid_core::units::{BLOCK, ClientId, DeviceId, MIB, Uuid, VolumeId};
use braid_core::{DeviceClass, Profile};
use braid_host::backend::{DiskSpec, OpenOptions, open};
use braid_host::pump::{Load, Options, PumpHandle, Setup, Without};
use braid_host::reactor::Choice;

const VOLUME: u64 = 256 * MIB;
const DEPTH: usize = 32;

struct Blocks {
    volume: VolumeId,
    op: Op,
    len: u64,
    /// Of the next place; 0 goes through the volume in order.
    dice: u64,
    todo: u64,
    left: u64,
}

impl Load for Blocks {
    fn next(&mut self, tag: u64) -> Option<Request> {
        self.todo = self.todo.checked_sub(1)?;
        let places = VOLUME / self.len;
        let place = match self.dice {
            0 => self.todo,
            _ => {
                self.dice ^= self.dice << 13;
                self.dice ^= self.dice >> 7;
                self.dice ^= self.dice << 17;
                ((u128::from(self.dice) * u128::from(places)) >> 64) as u64
            }
        };
        Some(Request {
            tag,
            client: ClientId(1),
            volume: self.volume,
            op: self.op,
            offset: place * self.len,
            len: self.len,
            buf: NO_BUF,
            content: Content::Unsaid,
            no_merge: false,
        })
    }
    fn fill(&mut self, request: &Request, bytes: &mut [u8]) {
        bytes.fill((request.offset / MIB) as u8 | 1);
    }
    fn done(&mut self, _: u64, reply: &Reply, _: &[u8]) -> bool {
        assert_eq!(reply.result, Ok(()));
        self.left -= 1;
        self.left > 0
    }
    fn depth(&self) -> usize {
        DEPTH
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, usual: &'static str| args.get(at).map_or(usual, String::as_str);
    let reads: u64 = word(0, "1000000").parse().expect("how many reads");
    let checksum = Checksum::parse(word(1, "none")).expect("none, crc32c or xxh3");
    let spec = DiskSpec::parse(word(2, "ram:1G")).expect("a disk");
    let (disk, facts) =
        open(&spec, OpenOptions { create_size: Some(1024 * MIB), ..OpenOptions::default() }).expect("a disk");
    let device = NewDevice {
        uuid: Uuid([1; 16]),
        path: "disk".into(),
        size: facts.size,
        class: DeviceClass::of_rotational(false),
        rotational: false,
        tiers: None,
        hint: Default::default(),
    };
    let new = NewPool {
        name: "reads".into(),
        uuid: Uuid([7; 16]),
        data: Profile::Single,
        metadata: Profile::Single,
        devices: vec![device],
        properties: vec![("checksum".into(), checksum.name().into())],
    };
    let options = Options {
        reactor: Choice::Auto,
        memory: 128 << 20,
        boot: Uuid([9; 16]),
        without: Without::Nothing,
        flight: None,
        on_event: Box::new(|_| ()),
    };
    let pump = PumpHandle::start(options, vec![(DeviceId(1), disk)], Setup::Create(new)).expect("a pool");
    let create = Command::CreateVolume { name: "v".into(), size: VOLUME, class: VolumeClass::Auto };
    let Ok(Done::Volume(volume)) = pump.control(create) else { panic!("no volume was made") };
    let writes = VOLUME / MIB;
    let fill = Blocks { volume, op: Op::Write { fua: false }, len: MIB, dice: 0, todo: writes, left: writes };
    pump.load(Box::new(fill)).expect("a load");
    pump.control(Command::Checkpoint).expect("a checkpoint");
    let load = Blocks { volume, op: Op::Read, len: BLOCK, dice: 1, todo: reads, left: reads };
    let began = Instant::now();
    pump.load(Box::new(load)).expect("a load");
    println!("{} reads a second", (reads as f64 / began.elapsed().as_secs_f64()) as u64);
}
