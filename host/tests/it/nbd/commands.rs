//! Every command, flag and error, with simple and structured replies.

use std::time::Duration;

use braid_core::request::{Op, RequestError};
use braid_core::units::VolumeId;
use braid_host::nbd::acceptor;
use braid_host::nbd::client::{Answer, Client, Wish};
use braid_host::nbd::connection::{Action, Extent};
use braid_host::nbd::proto::{RequestHeader, chunk, cmd, err, flag, state};

use super::world::*;

const MIB: u64 = 1 << 20;
const SIMPLE: Wish = Wish { structured: false, allocation: false, old: false };
const OLD: Wish = Wish { structured: false, allocation: false, old: true };

fn wishes() -> [Wish; 4] {
    [Wish::default(), SIMPLE, OLD, Wish { old: true, ..Wish::default() }]
}

#[test]
fn what_is_written_is_read_back_at_any_alignment() {
    for wish in wishes() {
        let daemon = Daemon::simple(64 * MIB);
        let mut client = Client::connect(&daemon.socket(), "disk", wish).unwrap();
        assert_eq!(client.size, 64 * MIB);
        assert_eq!(client.structured, client.flags & flag::SEND_DF != 0);
        let rows: [(u64, usize); 9] = [
            (0, 4096),
            (1, 1),
            (4095, 2),
            (8192 + 511, 4097),
            (100_000, 65_536),
            (MIB - 1, 300_001),
            (64 * MIB - 5, 5),
            (2 * MIB, 32 << 20),
            (40 * MIB + 7, (20 << 20) + 1),
        ];
        let mut twin = vec![0u8; 64 << 20];
        for (salt, (offset, len)) in rows.into_iter().enumerate() {
            let data = stamp(offset, len, salt as u64);
            twin[offset as usize..][..len].copy_from_slice(&data);
            assert_eq!(client.write(0, offset, &data).unwrap().error, 0);
            let answer = client.read(offset, len as u32).unwrap();
            assert!(answer.data == data, "{offset}+{len}");
        }
        for at in (0..64 * MIB).step_by(32 << 20) {
            assert!(client.read(at, 32 << 20).unwrap().data == twin[at as usize..][..32 << 20]);
        }
        client.disconnect().unwrap();
        eventually("the connection is gone", || daemon.connections.load(std::sync::atomic::Ordering::SeqCst) == 0);
    }
}

#[test]
fn every_command_reaches_the_engine_as_meant() {
    for structured in [false, true] {
        let rows: [(u16, u16, u64, u32, Op); 10] = [
            (cmd::READ, 0, 4096, 4096, Op::Read),
            (cmd::READ, cmd::FLAG_FUA, 4096, 4096, Op::Read),
            (cmd::FLUSH, 0, 0, 0, Op::Flush),
            (cmd::FLUSH, cmd::FLAG_FUA, 0, 0, Op::Flush),
            (cmd::TRIM, 0, 8192, 8192, Op::Discard),
            (cmd::TRIM, cmd::FLAG_FUA, 8192, 8192, Op::WriteZeroes { fua: true, no_hole: false }),
            (cmd::WRITE_ZEROES, 0, 1, 2, Op::WriteZeroes { fua: false, no_hole: false }),
            (cmd::WRITE_ZEROES, cmd::FLAG_FUA, 1, 2, Op::WriteZeroes { fua: true, no_hole: false }),
            (cmd::WRITE_ZEROES, cmd::FLAG_NO_HOLE, 1, 2, Op::WriteZeroes { fua: false, no_hole: true }),
            (cmd::WRITE_ZEROES, cmd::FLAG_FAST_ZERO, 1, 8192, Op::WriteZeroes { fua: false, no_hole: false }),
        ];
        let mut bench = Bench::new(structured, MIB, MEMORY);
        for (kind, flags, offset, len, op) in rows {
            let mut bytes = Vec::new();
            RequestHeader { flags, kind, cookie: 9, offset, len }.encode(&mut bytes);
            assert!(!bench.exchange(&bytes).is_empty());
            assert_eq!(bench.ram(|ram| ram.log.pop()), Some((op, offset, u64::from(len))));
        }
        for (flags, fua) in [(0, false), (cmd::FLAG_FUA, true)] {
            let mut bytes = Vec::new();
            RequestHeader { flags, kind: cmd::WRITE, cookie: 9, offset: 77, len: 3 }.encode(&mut bytes);
            bytes.extend_from_slice(b"abc");
            assert_eq!(bench.exchange(&bytes).len(), 16);
            assert_eq!(bench.ram(|ram| ram.log.pop()), Some((Op::Write { fua }, 77, 3)));
            assert_eq!(bench.ram(|ram| ram.data[77..80].to_vec()), b"abc");
        }
    }
}

#[test]
fn refused_requests_get_the_error_the_protocol_names() {
    const BIG: u32 = (32 << 20) + 1;
    let end = MIB;
    // command, flags, offset, length, error with simple replies, with structured ones
    let rows: [(u16, u16, u64, u32, u32, u32); 34] = [
        (cmd::READ, 0, end, 1, err::EINVAL, err::EINVAL),
        (cmd::READ, 0, end - 1, 2, err::EINVAL, err::EINVAL),
        (cmd::READ, 0, u64::MAX, 1, err::EINVAL, err::EINVAL),
        (cmd::READ, 0, u64::MAX - 5, u32::MAX, err::EINVAL, err::EOVERFLOW),
        (cmd::READ, 0, 1 << 63, 4096, err::EINVAL, err::EINVAL),
        (cmd::READ, 0, 0, 0, err::EINVAL, err::EINVAL),
        (cmd::READ, 0, 0, BIG, err::EINVAL, err::EOVERFLOW),
        (cmd::READ, cmd::FLAG_DF, 0, 4096, err::EINVAL, 0),
        (cmd::READ, cmd::FLAG_NO_HOLE, 0, 4096, err::EINVAL, err::EINVAL),
        (cmd::READ, 1 << 15, 0, 4096, err::EINVAL, err::EINVAL),
        (cmd::WRITE, 0, end, 1, err::ENOSPC, err::ENOSPC),
        (cmd::WRITE, 0, end - 1, 2, err::ENOSPC, err::ENOSPC),
        (cmd::WRITE, 0, u64::MAX, 9, err::ENOSPC, err::ENOSPC),
        (cmd::WRITE, 0, 0, 0, err::EINVAL, err::EINVAL),
        (cmd::WRITE, 0, 0, BIG, err::EINVAL, err::EINVAL),
        (cmd::WRITE, cmd::FLAG_DF, 0, 4096, err::EINVAL, err::EINVAL),
        (cmd::WRITE, cmd::FLAG_FAST_ZERO, 0, 40, err::EINVAL, err::EINVAL),
        (cmd::FLUSH, 0, 1, 0, err::EINVAL, err::EINVAL),
        (cmd::FLUSH, 0, 0, 1, err::EINVAL, err::EINVAL),
        (cmd::TRIM, 0, end - 1, 2, err::EINVAL, err::EINVAL),
        (cmd::TRIM, cmd::FLAG_NO_HOLE, 0, 2, err::EINVAL, err::EINVAL),
        (cmd::CACHE, 0, end - 1, 2, err::EINVAL, err::EINVAL),
        (cmd::CACHE, 0, 0, 4096, 0, 0),
        (cmd::CACHE, 1 << 9, 0, 4096, err::EINVAL, err::EINVAL),
        (cmd::WRITE_ZEROES, 0, end - 1, 2, err::ENOSPC, err::ENOSPC),
        (cmd::WRITE_ZEROES, 0, 0, u32::MAX, err::ENOSPC, err::ENOSPC),
        (cmd::WRITE_ZEROES, cmd::FLAG_FAST_ZERO | cmd::FLAG_NO_HOLE, 0, 4096, err::ENOTSUP, err::ENOTSUP),
        (cmd::WRITE_ZEROES, cmd::FLAG_FAST_ZERO, 1, 4096, err::ENOTSUP, err::ENOTSUP),
        (cmd::BLOCK_STATUS, 0, 0, 4096, err::EINVAL, 0),
        (cmd::BLOCK_STATUS, 0, end - 1, 2, err::EINVAL, err::EINVAL),
        (cmd::BLOCK_STATUS, 0, 0, u32::MAX, err::EINVAL, err::EINVAL),
        (cmd::BLOCK_STATUS, cmd::FLAG_DF, 0, 1, err::EINVAL, err::EINVAL),
        (8, 0, 0, 0, err::EINVAL, err::EINVAL),
        (0xffff, 0xffff, u64::MAX, u32::MAX, err::EINVAL, err::EINVAL),
    ];
    let daemon = Daemon::simple(MIB);
    for wish in [SIMPLE, Wish::default()] {
        let mut client = Client::connect(&daemon.socket(), "disk", wish).unwrap();
        for (kind, flags, offset, len, simple, structured) in rows {
            let answer = if kind == cmd::WRITE {
                client.write(flags, offset, &vec![0xaa; len as usize]).unwrap()
            } else {
                client.call(kind, flags, offset, len).unwrap()
            };
            let due = if wish.structured { structured } else { simple };
            assert_eq!(answer.error, due, "command {kind} flags {flags:#x} {offset}+{len}: {}", answer.message);
            assert_eq!(answer.message.is_empty(), due == 0 || !wish.structured);
        }
        assert!(client.read(0, MIB as u32).unwrap().data.iter().all(|b| *b == 0), "nothing refused was written");
    }
}

#[test]
fn engine_errors_become_protocol_errors() {
    let rows = [
        (RequestError::NoVolume, err::ESHUTDOWN, err::ESHUTDOWN),
        (RequestError::OutOfRange, err::EINVAL, err::ENOSPC),
        (RequestError::Invalid, err::EINVAL, err::EINVAL),
        (RequestError::ReadOnly, err::EPERM, err::EPERM),
        (RequestError::NoSpace, err::ENOSPC, err::ENOSPC),
        (RequestError::Io, err::EIO, err::EIO),
        (RequestError::Busy, err::ENOMEM, err::ENOMEM),
    ];
    let daemon = Daemon::simple(MIB);
    for wish in [SIMPLE, Wish::default()] {
        let mut client = Client::connect(&daemon.socket(), "disk", wish).unwrap();
        for (error, read, write) in rows {
            daemon.rams.lock().unwrap().get_mut(&VolumeId(1)).unwrap().fail = Some(error);
            assert_eq!(client.read(0, 4096).unwrap().error, read);
            assert_eq!(client.write(0, 5, b"x").unwrap().error, write);
        }
        daemon.rams.lock().unwrap().get_mut(&VolumeId(1)).unwrap().fail = None;
        assert_eq!(client.read(0, 4096).unwrap().error, 0);
    }
}

#[test]
fn a_read_only_export_refuses_to_change() {
    let exports = vec![ExportRow::read_only("disk")];
    let daemon = Daemon::start(acceptor::Config::default(), exports, MEMORY, Order::AsAsked);
    for wish in [SIMPLE, Wish::default()] {
        let mut client = Client::connect(&daemon.socket(), "disk", wish).unwrap();
        assert_ne!(client.flags & flag::READ_ONLY, 0);
        assert_eq!(client.write(0, 0, &[1; 5000]).unwrap().error, err::EPERM);
        assert_eq!(client.call(cmd::TRIM, 0, 0, 4096).unwrap().error, err::EPERM);
        assert_eq!(client.call(cmd::WRITE_ZEROES, 0, 0, 4096).unwrap().error, err::EPERM);
        assert_eq!(client.read(0, 4096).unwrap().data, vec![0; 4096]);
    }
}

struct ExportRow;
impl ExportRow {
    fn read_only(name: &str) -> braid_host::nbd::ExportInfo {
        braid_host::nbd::ExportInfo { read_only: true, rotational: true, ..export(name, 1, MIB) }
    }
}

#[test]
fn holes_are_told_and_never_fragment() {
    let daemon = Daemon::simple(MIB);
    let mut client = Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();
    client.write(0, 65_536, &[7; 4096]).unwrap();
    let hole = client.read(0, 4096).unwrap();
    assert_eq!((hole.hole_bytes, hole.data.len(), hole.chunks), (4096, 4096, 1));
    for flags in [0, cmd::FLAG_DF] {
        let mixed = client.call(cmd::READ, flags, 61_440, 12_288).unwrap();
        assert_eq!((mixed.hole_bytes, mixed.chunks), (0, 1));
        assert_eq!(mixed.data, [vec![0; 4096], vec![7; 4096], vec![0; 4096]].concat());
    }
    let both = state::HOLE | state::ZERO;
    let status = client.call(cmd::BLOCK_STATUS, 0, 0, MIB as u32).unwrap();
    assert_eq!(status.extents, [(65_536, both), (4096, 0), (MIB as u32 - 69_632, both)]);
    let one = client.call(cmd::BLOCK_STATUS, cmd::FLAG_REQ_ONE, 65_000, 100_000).unwrap();
    assert_eq!(one.extents, [(536, both)]);
    let inner = client.call(cmd::BLOCK_STATUS, 0, 65_536 + 100, 50).unwrap();
    assert_eq!(inner.extents, [(50, 0)]);
}

#[test]
fn many_extents_are_cut_to_a_limit() {
    let mut bench = Bench::new(true, 32 * MIB, MEMORY);
    bench.ram(|ram| ram.written.iter_mut().step_by(2).for_each(|w| *w = true));
    let mut bytes = Vec::new();
    RequestHeader { flags: 0, kind: cmd::BLOCK_STATUS, cookie: 3, offset: 0, len: 32 << 20 }.encode(&mut bytes);
    let back = bench.exchange(&bytes);
    assert_eq!(back.len(), 20 + 4 + 8 * braid_host::nbd::connection::EXTENTS_MAX);
    assert_eq!(u16::from_be_bytes([back[6], back[7]]), chunk::BLOCK_STATUS);
}

/// Stamped data, deep queues, answers backwards, sizes mixed, several connections, little memory.
#[test]
fn deep_queues_out_of_order_keep_every_byte_in_its_place() {
    for (memory, order) in [(MEMORY, Order::Backwards), (1 << 20, Order::Backwards), (300 << 10, Order::AsAsked)] {
        for wish in [SIMPLE, Wish::default()] {
            let exports = vec![export("disk", 1, 32 * MIB)];
            let daemon = Daemon::start(acceptor::Config::default(), exports, memory, order);
            std::thread::scope(|scope| {
                for part in 0..3u64 {
                    let socket = daemon.socket();
                    scope.spawn(move || {
                        let mut client = Client::connect(&socket, "disk", wish).unwrap();
                        let sizes = [512, 4096, 5000, 65_536, 131_072, 70_001];
                        let at = |i: u64| part * 10 * MIB + i * 140_000;
                        let len = |i: u64| sizes[i as usize % sizes.len()];
                        for i in 0..70 {
                            client.send_write(i, 0, at(i), &stamp(at(i), len(i), part));
                            client.push().unwrap();
                        }
                        for _ in 0..70 {
                            assert_eq!(client.recv().unwrap().error, 0);
                        }
                        for i in 0..70 {
                            client.send_read(i, at(i), len(i) as u32);
                        }
                        let mut answer = Answer::default();
                        for _ in 0..70 {
                            client.recv_into(&mut answer).unwrap();
                            let i = answer.cookie;
                            assert!(answer.data == stamp(at(i), len(i), part), "request {i}");
                        }
                    });
                }
            });
        }
    }
}

#[test]
fn a_flush_on_one_connection_covers_the_other() {
    let daemon = Daemon::simple(MIB);
    let mut a = Client::connect(&daemon.socket(), "", Wish::default()).unwrap();
    let mut b = Client::connect(&daemon.socket(), "disk", SIMPLE).unwrap();
    assert_ne!(a.flags & b.flags & flag::CAN_MULTI_CONN, 0);
    a.write(0, 0, b"seen by both").unwrap();
    assert_eq!(b.call(cmd::FLUSH, 0, 0, 0).unwrap().error, 0);
    assert_eq!(b.read(0, 12).unwrap().data, b"seen by both");
}

#[test]
fn disc_answers_what_is_in_flight_first() {
    let mut bench = Bench::new(false, MIB, MEMORY);
    bench.pump.hold = true;
    let mut bytes = Vec::new();
    for cookie in 0..10 {
        RequestHeader { flags: 0, kind: cmd::READ, cookie, offset: 0, len: 4096 }.encode(&mut bytes);
    }
    RequestHeader { flags: 0, kind: cmd::DISC, cookie: 99, offset: 0, len: 0 }.encode(&mut bytes);
    RequestHeader { flags: 0, kind: cmd::READ, cookie: 100, offset: 0, len: 4096 }.encode(&mut bytes);
    assert!(bench.exchange(&bytes).is_empty());
    assert!(bench.alive());
    bench.pump.hold = false;
    assert_eq!(bench.exchange(&[]).len(), 10 * (16 + 4096));
    assert!(!bench.alive());
    assert!(bench.pump.memory_is_back(MEMORY));
}

#[test]
fn a_client_that_vanishes_gives_its_memory_back_when_the_engine_answers() {
    for cut in [0, 20] {
        let mut bench = Bench::new(true, MIB, MEMORY);
        bench.pump.hold = true;
        let mut bytes = Vec::new();
        for cookie in 0..50 {
            RequestHeader { flags: 0, kind: cmd::READ, cookie, offset: 0, len: 65_536 }.encode(&mut bytes);
            RequestHeader { flags: 0, kind: cmd::WRITE, cookie, offset: 0, len: 5000 }.encode(&mut bytes);
            bytes.extend_from_slice(&[3; 5000]);
        }
        bench.exchange(&bytes[..bytes.len() - cut]);
        bench.peer.shutdown(std::net::Shutdown::Both).unwrap();
        bench.exchange(&[]);
        assert!(bench.alive(), "the engine still works for it");
        bench.pump.hold = false;
        let (_, other) = std::os::unix::net::UnixStream::pair().unwrap();
        bench.peer = other;
        bench.exchange(&[]);
        assert!(!bench.alive());
        assert!(bench.pump.memory_is_back(MEMORY));
        let writes = bench.ram(|ram| ram.log.iter().filter(|r| matches!(r.0, Op::Write { .. })).count());
        assert_eq!(writes, if cut > 0 { 49 } else { 50 }, "a write is all or nothing");
    }
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let mut bench = Bench::new(true, MIB, MEMORY);
    let mut one = Vec::new();
    RequestHeader { flags: 0, kind: cmd::READ, cookie: 1, offset: 0, len: 65_536 }.encode(&mut one);
    bench.ram(|ram| ram.written.fill(true));
    let mut sent = 0;
    for _ in 0..2000 {
        sent += std::io::Write::write(&mut &bench.peer, &one).unwrap_or(0);
        bench.pump.turn();
    }
    let connection = &bench.pump.connections[&bench.id];
    assert!(connection.stalled());
    assert!(connection.in_flight() <= braid_host::nbd::connection::IN_FLIGHT_MAX);
    let whole = (sent / one.len()) * (28 + 65_536);
    let rest = one.len() - sent % one.len();
    let back = bench.exchange(&one[one.len() - rest % one.len()..]);
    assert!(back.len() >= whole, "all come when it reads");
    assert!(bench.pump.memory_is_back(MEMORY));
}

#[test]
fn names_sizes_and_descriptions_are_told() {
    let exports = vec![export("a/../b %s", 1, MIB), export("other", 2, 2 * MIB)];
    let daemon = Daemon::start(acceptor::Config::default(), exports, MEMORY, Order::AsAsked);
    let client = Client::connect(&daemon.socket(), "a/../b %s", Wish::default()).unwrap();
    assert_eq!(client.about, ("a/../b %s".to_owned(), "volume 1".to_owned()));
    assert_eq!(client.sizes, Some((1, 4096, 32 << 20)));
    assert!(client.allocation && client.structured);
    let refused = Client::connect(&daemon.socket(), "", Wish::default());
    assert!(refused.is_err(), "no default among two");
    let mut stream = std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    braid_host::nbd::client::greet(&mut stream).unwrap();
    let all = braid_host::nbd::client::list(&mut stream).unwrap();
    assert_eq!(all.iter().map(|e| e.0.as_str()).collect::<Vec<_>>(), ["a/../b %s", "other"]);
}

#[test]
fn a_status_that_cannot_be_told_is_one_extent_of_data() {
    type Row<'a> = (&'a [Extent], &'a [(u32, u32)]);
    let rows: [Row<'_>; 4] = [
        (&[], &[(100_000, 0)]),
        (&[(0, 3)], &[(100_000, 0)]),
        (&[(u64::MAX, 3), (5, 0)], &[(100_000, 3)]),
        (&[(10, 0), (20, 0), (30, 3)], &[(30, 0), (30, 3)]),
    ];
    for (extents, due) in rows {
        let mut bench = Bench::new(true, MIB, MEMORY);
        bench.pump.hold = true;
        let mut bytes = Vec::new();
        RequestHeader { flags: 0, kind: cmd::BLOCK_STATUS, cookie: 3, offset: 77, len: 100_000 }.encode(&mut bytes);
        bench.exchange(&bytes);
        let Some(Action::BlockStatus { tag, offset: 77, len: 100_000, .. }) = bench.pump.held.pop() else { panic!() };
        let connection = bench.pump.connections.get_mut(&bench.id).unwrap();
        connection.block_status(tag, extents);
        connection.block_status(tag, extents);
        let back = bench.exchange(&[]);
        let expected: Vec<u8> = due.iter().flat_map(|e| [e.0.to_be_bytes(), e.1.to_be_bytes()].concat()).collect();
        assert_eq!(back[24..], expected, "answered once, whatever the pump says twice");
    }
}
