//! A pool to measure.

use super::failed;
use crate::args::ServeArgs;
use crate::commands::Outcome;
use braid_core::control::{Command, Done, VolumeClass};
use braid_core::meta::format::{NewDevice, NewPool};
use braid_core::request::{Content, NO_BUF, Op, Reply, Request};
use braid_core::sums::Checksum;
use braid_core::units::{ClientId, DeviceId, MIB, Uuid, VolumeId};
use braid_core::{DeviceClass, Profile};
use braid_host::backend::{DiskSpec, OpenOptions, open};
use braid_host::control::api::ApiError;
use braid_host::nbd::acceptor::Config;
use braid_host::nbd::{Acceptor, ExportInfo, Exports, Listen};
use braid_host::pump::{Load, Options, PumpHandle, Setup};
use braid_host::reactor::Choice;
use std::io::Read;
use std::sync::Arc;

const BOOT: Uuid = Uuid([9; 16]);
const POOL: Uuid = Uuid([7; 16]);

pub(super) fn new_pool(sizes: &[u64], data: Profile) -> NewPool {
    let device = |(i, size): (usize, &u64)| NewDevice {
        uuid: Uuid([i as u8 + 1; 16]),
        path: format!("bench{i}"),
        size: *size,
        class: DeviceClass::of_rotational(false),
        rotational: false,
        tiers: None,
        hint: Default::default(),
    };
    NewPool {
        name: "bench".into(),
        uuid: POOL,
        data,
        metadata: if sizes.len() > 1 { Profile::Raid1 } else { Profile::Single },
        devices: sizes.iter().enumerate().map(device).collect(),
        properties: Vec::new(),
    }
}

/// A new pool on these disks without checksums, with a volume of `size` bytes.
pub(super) fn start(disks: &[String], data: Profile, size: u64) -> Result<(PumpHandle, VolumeId), ApiError> {
    start_with(disks, data, size, Checksum::None)
}

/// As [`start`], with checksums.
pub(super) fn start_with(
    disks: &[String],
    data: Profile,
    size: u64,
    checksum: Checksum,
) -> Result<(PumpHandle, VolumeId), ApiError> {
    let (mut opened, mut sizes) = (Vec::new(), Vec::new());
    for (i, text) in disks.iter().enumerate() {
        let spec = DiskSpec::parse(text).map_err(failed)?;
        // Room for the pool's own records beside the volume.
        let options = OpenOptions { create_size: Some(size + 512 * MIB), ..OpenOptions::default() };
        let (disk, facts) = open(&spec, options).map_err(failed)?;
        opened.push((DeviceId(i as u32 + 1), disk));
        sizes.push(facts.size);
    }
    let options = Options {
        reactor: Choice::Auto,
        memory: 128 << 20,
        boot: BOOT,
        without: braid_host::pump::Without::Nothing,
        flight: None,
        on_event: Box::new(|_| ()),
    };
    let mut new = new_pool(&sizes, data);
    new.properties.push(("checksum".into(), checksum.name().into()));
    let pump = PumpHandle::start(options, opened, Setup::Create(new)).map_err(failed)?;
    let create = Command::CreateVolume { name: "v".into(), size, class: VolumeClass::Auto };
    match pump.control(create) {
        Ok(Done::Volume(volume)) => Ok((pump, volume)),
        Ok(_) => Err(failed("no volume was made")),
        Err(e) => Err(failed(e.message)),
    }
}

/// Writes every block once, so that nothing is thin any more.
pub(super) fn fill(pump: &PumpHandle, volume: VolumeId, size: u64) -> Result<(), ApiError> {
    let fill = Fill { volume, at: 0, left: size / MIB, size, failed: false };
    let load = pump.load(Box::new(fill)).map_err(|e| failed(e.message))?;
    let any: Box<dyn std::any::Any> = load.into_any();
    match any.downcast::<Fill>() {
        Ok(fill) if !fill.failed => pump.control(Command::Checkpoint).map(drop).map_err(|e| failed(e.message)),
        _ => Err(failed("the volume could not be written")),
    }
}

struct Fill {
    volume: VolumeId,
    at: u64,
    left: u64,
    size: u64,
    failed: bool,
}

impl Load for Fill {
    fn next(&mut self, tag: u64) -> Option<Request> {
        let offset = self.at;
        self.at += MIB;
        (offset < self.size).then_some(Request {
            tag,
            client: ClientId(1),
            volume: self.volume,
            op: Op::Write { fua: false },
            offset,
            len: MIB,
            buf: NO_BUF,
            content: Content::Unsaid,
            no_merge: false,
        })
    }
    fn fill(&mut self, _: &Request, bytes: &mut [u8]) {
        bytes.fill(0x5a);
    }
    fn done(&mut self, _: u64, reply: &Reply, _: &[u8]) -> bool {
        self.failed |= reply.result.is_err();
        self.left -= 1;
        self.left > 0
    }
    fn depth(&self) -> usize {
        8
    }
}

struct One(ExportInfo);

impl Exports for One {
    fn list(&self) -> Vec<ExportInfo> {
        vec![self.0.clone()]
    }
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        (name.is_empty() || name == self.0.name).then(|| self.0.clone())
    }
}

/// Serves until its standard input ends; so it never outlives the one who started it.
pub(super) fn serve(args: &ServeArgs) -> Outcome {
    let checksum = Checksum::parse(&args.checksum).ok_or_else(|| failed("checksum is none, crc32c or xxh3"))?;
    let (pump, volume) = start_with(&args.disk, Profile::Single, args.size, checksum)?;
    let pump = Arc::new(pump);
    let info = ExportInfo {
        name: "v".into(),
        description: String::new(),
        size: args.size,
        read_only: false,
        rotational: false,
        can_multi_conn: true,
        pool: POOL,
        volume,
        share: 0,
    };
    let to = pump.clone();
    let acceptor =
        Acceptor::start(Config::default(), Arc::new(One(info)), Box::new(move |handover| to.adopt(handover)))
            .map_err(failed)?;
    acceptor.add_listener(Listen::Unix(args.unix.clone())).map_err(failed)?;
    crate::commands::print(&format!("nbd+unix:///v?socket={}\n", args.unix.display()));
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(0)
}
