//! A pool on real files, driven on the pump's own thread: what was written is read back, now and after reopening.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use braid_core::control::{Command, Done, VolumeClass};
use braid_core::meta::format::{NewDevice, NewPool};
use braid_core::request::{Content, NO_BUF, Op, Reply, Request};
use braid_core::units::{ClientId, DeviceId, MIB, Uuid, VolumeId};
use braid_core::{DeviceClass, DeviceState, Profile};
use braid_host::backend::{Disk, DiskSpec, Fault, FaultHandle, OpenOptions, open};
use braid_host::nbd::Handover;
use braid_host::nbd::acceptor::Peer;
use braid_host::nbd::handshake::Session;
use braid_host::nbd::stream::Stream;
use braid_host::pump::{Load, MEMORY_MIN, Options, PumpHandle, Setup, Without, superblock_of};
use braid_host::reactor::Choice;

use crate::nbd::world::{eventually, export};

const BOOT: Uuid = Uuid([9; 16]);

pub(crate) fn options(reactor: Choice) -> Options {
    Options {
        reactor,
        memory: 128 << 20,
        boot: BOOT,
        without: Without::Nothing,
        flight: None,
        on_event: Box::new(|_| ()),
    }
}

pub(crate) fn disk(path: &Path, create_size: Option<u64>) -> Disk {
    let spec = DiskSpec::parse(path.to_str().unwrap()).unwrap();
    open(&spec, OpenOptions { create_size, ..OpenOptions::default() }).unwrap().0
}

pub(crate) fn new_pool(paths: &[std::path::PathBuf], data: Profile) -> NewPool {
    let device = |(i, path): (usize, &std::path::PathBuf)| NewDevice {
        uuid: Uuid([i as u8 + 1; 16]),
        path: path.display().to_string(),
        size: 256 * MIB,
        class: DeviceClass::parse("ssd").unwrap(),
        rotational: false,
        tiers: None,
        hint: Default::default(),
    };
    NewPool {
        name: "tank".into(),
        uuid: Uuid([7; 16]),
        data,
        // What survives as much.
        metadata: if data.facts().parity > 0 { data.system() } else { Profile::Raid1 },
        devices: paths.iter().enumerate().map(device).collect(),
        properties: Vec::new(),
    }
}

/// Requests in order, a fixed depth, reads compared with what the offset says.
struct Script {
    todo: VecDeque<(Op, u64, u64)>,
    volume: VolumeId,
    left: usize,
    wrong: usize,
    failed: usize,
    in_flight: std::collections::HashMap<u64, (Op, u64, u64)>,
    fill: Vec<(u64, u64, u64)>,
}

fn stamp(offset: u64, generation: u64) -> [u8; 8] {
    (offset ^ generation.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()
}

impl Script {
    fn new(volume: VolumeId, todo: Vec<(Op, u64, u64)>) -> Box<Script> {
        let left = todo.len();
        Box::new(Script {
            todo: todo.into(),
            volume,
            left,
            wrong: 0,
            failed: 0,
            in_flight: Default::default(),
            fill: Vec::new(),
        })
    }
}

impl Load for Script {
    fn next(&mut self, tag: u64) -> Option<Request> {
        let (op, offset, len) = self.todo.pop_front()?;
        self.in_flight.insert(tag, (op, offset, len));
        Some(Request {
            tag,
            client: ClientId(1),
            volume: self.volume,
            op,
            offset,
            len,
            buf: NO_BUF,
            content: Content::Unsaid,
            no_merge: false,
        })
    }
    fn fill(&mut self, request: &Request, bytes: &mut [u8]) {
        for (i, eight) in bytes[..request.len as usize].chunks_exact_mut(8).enumerate() {
            eight.copy_from_slice(&stamp(request.offset + i as u64 * 8, 1));
        }
        self.fill.push((request.tag, request.offset, request.len));
    }
    fn done(&mut self, tag: u64, reply: &Reply, bytes: &[u8]) -> bool {
        let (op, offset, len) = self.in_flight.remove(&tag).unwrap();
        self.failed += usize::from(reply.result.is_err());
        if op == Op::Read && reply.result.is_ok() {
            let eights = bytes[..len as usize].chunks_exact(8).enumerate();
            self.wrong += eights.filter(|(i, eight)| **eight != stamp(offset + *i as u64 * 8, 1)).count();
        }
        self.left -= 1;
        self.left > 0
    }
    fn depth(&self) -> usize {
        16
    }
}

pub(crate) fn run(pump: &PumpHandle, volume: VolumeId, todo: Vec<(Op, u64, u64)>) -> (usize, usize) {
    let load = pump.load(Script::new(volume, todo)).unwrap();
    let any: Box<dyn std::any::Any> = load.into_any();
    let script = any.downcast::<Script>().unwrap();
    (script.wrong, script.failed)
}

#[test]
fn what_is_written_is_read_back_now_and_after_reopening_on_every_profile_and_reactor() {
    for reactor in [Choice::Auto, Choice::Threads] {
        for profile in Profile::ALL {
            let dir = tempfile::tempdir().unwrap();
            let paths: Vec<_> = (0..4).map(|i| dir.path().join(format!("disk{i}"))).collect();
            let disks =
                paths.iter().enumerate().map(|(i, p)| (DeviceId(i as u32 + 1), disk(p, Some(256 * MIB)))).collect();
            let pump = PumpHandle::start(options(reactor), disks, Setup::Create(new_pool(&paths, profile))).unwrap();
            let create = Command::CreateVolume { name: "v".into(), size: 64 * MIB, class: VolumeClass::Auto };
            let Done::Volume(v) = pump.control(create).unwrap() else { panic!("no volume") };
            let write = |i: u64| (Op::Write { fua: i % 67 == 66 }, i * 65536 * 3, 65536 + 4096 * (i % 5));
            let writes: Vec<_> = (0..200).map(write).collect();
            let reads: Vec<_> = writes.iter().map(|&(_, o, l)| (Op::Read, o, l)).collect();
            assert_eq!(run(&pump, v, writes), (0, 0), "{profile:?}");
            assert_eq!(run(&pump, v, reads.clone()), (0, 0), "{profile:?}");
            assert_eq!(run(&pump, v, vec![(Op::Flush, 0, 0)]), (0, 0));
            pump.stop();
            let disks: Vec<_> = paths.iter().map(|p| disk(p, None)).collect();
            let found: Vec<_> = disks.iter().map(|d| superblock_of(d).unwrap()).collect();
            let disks = found.iter().map(|sb| sb.device).zip(disks).collect();
            let pump = PumpHandle::start(options(reactor), disks, Setup::Import(found)).unwrap();
            assert_eq!(run(&pump, v, reads), (0, 0), "{profile:?} reopened");
            let report = pump.report().unwrap();
            assert!(report.volumes[0].mapped[0] >= 200 * 65536);
        }
    }
}

/// A pool of this profile on fresh files, a volume of 32 MiB, and the switches of its disks.
fn faulty(
    dir: &Path,
    profile: Profile,
    members: usize,
) -> (PumpHandle, VolumeId, Vec<FaultHandle>, Vec<std::path::PathBuf>) {
    let paths: Vec<_> = (0..members).map(|i| dir.join(format!("disk{i}"))).collect();
    let disks: Vec<_> = paths.iter().map(|p| disk(p, Some(256 * MIB))).collect();
    let faults = disks.iter().map(Disk::fault_handle).collect();
    let disks = disks.into_iter().enumerate().map(|(i, d)| (DeviceId(i as u32 + 1), d)).collect();
    let mut new = new_pool(&paths, profile);
    new.metadata = profile;
    let pump = PumpHandle::start(options(Choice::Auto), disks, Setup::Create(new)).unwrap();
    let create = Command::CreateVolume { name: "v".into(), size: 32 * MIB, class: VolumeClass::Auto };
    let Done::Volume(v) = pump.control(create).unwrap() else { panic!("no volume") };
    (pump, v, faults, paths)
}

fn all(op: Op) -> Vec<(Op, u64, u64)> {
    (0..256).map(|i| (op, i * 65536 * 2, 65536)).collect()
}

#[test]
fn a_mirror_goes_on_when_a_device_vanishes_and_catches_it_up_when_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (pump, v, faults, paths) = faulty(dir.path(), Profile::Raid1, 2);
    assert_eq!(run(&pump, v, all(Op::Write { fua: false })), (0, 0));
    faults[0].set(Fault::Gone);
    assert_eq!(run(&pump, v, all(Op::Read)), (0, 0), "reads go to the other copy");
    assert_eq!(pump.report().unwrap().devices[0].state, DeviceState::Missing);
    assert_eq!(run(&pump, v, all(Op::Write { fua: false })), (0, 0), "writes go on");
    let report = pump.report().unwrap();
    assert_eq!(report.devices[0].state, DeviceState::Missing);
    assert!(report.devices[0].stale.regions > 0, "what it missed is noted");
    pump.stop();
    // Both are there again, but the first one holds old content.
    let disks: Vec<_> = paths.iter().map(|p| disk(p, None)).collect();
    let found: Vec<_> = disks.iter().map(|d| superblock_of(d).unwrap()).collect();
    let disks = found.iter().map(|sb| sb.device).zip(disks).collect();
    let pump = PumpHandle::start(options(Choice::Auto), disks, Setup::Import(found)).unwrap();
    assert_eq!(run(&pump, v, all(Op::Read)), (0, 0));
    let since = std::time::Instant::now();
    while pump.report().unwrap().devices[0].state != DeviceState::Online {
        assert!(since.elapsed() < Duration::from_secs(60), "{:?}", pump.report().unwrap().devices[0]);
        std::thread::sleep(Duration::from_millis(20));
    }
    let report = pump.report().unwrap();
    assert_eq!((report.devices[0].stale.regions, report.devices[0].io.write_errors), (0, 0), "it is caught up");
}

#[test]
fn a_pool_without_a_second_copy_answers_eio_and_goes_on_when_the_device_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (pump, v, faults, _) = faulty(dir.path(), Profile::Single, 1);
    assert_eq!(run(&pump, v, all(Op::Write { fua: false })), (0, 0));
    assert_eq!(run(&pump, v, vec![(Op::Flush, 0, 0)]), (0, 0));
    faults[0].set(Fault::ReadError);
    assert_eq!(run(&pump, v, all(Op::Read)).1, 256, "every read fails, none hangs");
    faults[0].set(Fault::None);
    assert_eq!(run(&pump, v, all(Op::Read)), (0, 0));
    faults[0].set(Fault::WriteError);
    assert_eq!(run(&pump, v, all(Op::Write { fua: false })).1, 256);
    faults[0].set(Fault::None);
    assert_eq!(run(&pump, v, all(Op::Write { fua: false })), (0, 0));
    faults[0].set(Fault::Gone);
    assert_eq!(run(&pump, v, all(Op::Read)).1, 256);
    assert_eq!(run(&pump, v, all(Op::Write { fua: false })).1, 256);
    assert_eq!(run(&pump, v, vec![(Op::Flush, 0, 0)]).0, 0, "a flush is answered, whatever it says");
    assert_eq!(pump.report().unwrap().devices[0].state, DeviceState::Missing, "it missed nothing that was promised");
}

#[test]
fn a_slow_device_delays_and_breaks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (pump, v, faults, _) = faulty(dir.path(), Profile::Raid1, 2);
    // Far longer than a busy machine takes for a request of the quick one.
    faults[1].set(Fault::DelayMs(100));
    assert_eq!(run(&pump, v, all(Op::Write { fua: false })), (0, 0));
    assert_eq!(run(&pump, v, all(Op::Read)), (0, 0));
    let report = pump.report().unwrap();
    assert!(report.devices[0].io.reads > 2 * report.devices[1].io.reads, "latency prefers the quick one");
}

/// Keeps all payload memory of a pump until it is told to let go.
struct Hoard {
    volume: VolumeId,
    todo: usize,
    held: Arc<AtomicUsize>,
    let_go: Arc<AtomicBool>,
    ended: bool,
}

impl Load for Hoard {
    fn next(&mut self, tag: u64) -> Option<Request> {
        let request = |op, len| {
            let (client, volume) = (ClientId(1), self.volume);
            Some(Request {
                tag,
                client,
                volume,
                op,
                offset: 0,
                len,
                buf: NO_BUF,
                content: Content::Unsaid,
                no_merge: false,
            })
        };
        if self.todo > 0 {
            self.todo -= 1;
            return request(Op::Read, MIB);
        }
        if self.let_go.load(Ordering::SeqCst) && !self.ended {
            self.ended = true;
            return request(Op::Flush, 0);
        }
        None
    }
    fn fill(&mut self, _: &Request, _: &mut [u8]) {}
    fn done(&mut self, _: u64, _: &Reply, _: &[u8]) -> bool {
        self.held.fetch_add(1, Ordering::SeqCst);
        !self.ended
    }
    fn depth(&self) -> usize {
        MEMORY_MIN / MIB as usize
    }
}

/// A client of a pump, past its handshake.
fn adopted(pump: &PumpHandle, volume: VolumeId) -> UnixStream {
    let (peer, ours) = UnixStream::pair().unwrap();
    let session = Session { export: export("v", volume.0, 32 * MIB), structured: false, allocation: false };
    let (stream, peer_is) = (Stream::plain(ours), Peer::Unix { uid: 0, pid: 0 });
    pump.adopt(Handover { stream, session, leftover: Vec::new(), peer: peer_is });
    peer
}

/// Magic, no flags, kind, cookie and offset 0, length.
fn nbd_request(kind: u16, len: u32) -> Vec<u8> {
    [&0x2560_9513u32.to_be_bytes()[..], &[0; 2], &kind.to_be_bytes(), &[0; 16], &len.to_be_bytes()].concat()
}

#[test]
fn a_client_that_waits_for_memory_is_heard_when_others_than_clients_give_some_back() {
    let dir = tempfile::tempdir().unwrap();
    let paths = [dir.path().join("disk")];
    let disks = vec![(DeviceId(1), disk(&paths[0], Some(256 * MIB)))];
    let options = Options { memory: MEMORY_MIN, ..options(Choice::Auto) };
    let mut new = new_pool(&paths, Profile::Single);
    new.metadata = Profile::Single;
    let pump = Arc::new(PumpHandle::start(options, disks, Setup::Create(new)).unwrap());
    let create = Command::CreateVolume { name: "v".into(), size: 32 * MIB, class: VolumeClass::Auto };
    let Done::Volume(volume) = pump.control(create).unwrap() else { panic!("no volume") };
    let (held, let_go) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let todo = MEMORY_MIN / MIB as usize;
    let hoard = Hoard { volume, todo, held: held.clone(), let_go: let_go.clone(), ended: false };
    let loaded = std::thread::spawn({
        let pump = pump.clone();
        move || pump.load(Box::new(hoard)).map(drop)
    });
    eventually("all memory is taken", || held.load(Ordering::SeqCst) == todo);
    let mut peer = adopted(&pump, volume);
    let ask = nbd_request(0, 65536);
    peer.write_all(&ask).unwrap();
    peer.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut answer = vec![0; 16 + 65536];
    assert!(peer.read(&mut answer).is_err(), "there is no memory to answer from");
    let_go.store(true, Ordering::SeqCst);
    // Any message makes the pump take a turn, and the load goes on.
    assert_eq!(pump.clients(0), 1);
    loaded.join().unwrap().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    peer.read_exact(&mut answer).expect("the memory is there again");
}

#[test]
fn the_end_of_a_client_is_heard_though_it_came_with_its_last_request() {
    let dir = tempfile::tempdir().unwrap();
    let (pump, v, _, _) = faulty(dir.path(), Profile::Single, 1);
    let mut peer = adopted(&pump, v);
    assert_eq!(pump.clients(0), 1);
    // While the pump is busy both come, so that they are one event to it.
    let (begun, seen) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let busy = move |_: &_| {
                begun.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(200));
            };
            pump.with_engine(busy).unwrap();
        });
        seen.recv().unwrap();
        peer.write_all(&nbd_request(3, 0)).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    peer.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).expect("the answer to the flush, and the end");
    assert_eq!(answer.len(), 16);
    eventually("the client is gone", || pump.clients(0) == 0);
}
