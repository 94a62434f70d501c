//! Clients that mean no good, in the transmission phase.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use braid_host::nbd::acceptor;
use braid_host::nbd::client::{Client, Wish, greet, option};
use braid_host::nbd::connection::SWALLOW_MAX;
use braid_host::nbd::proto::{RequestHeader, cmd, opt};

use super::world::*;

const MIB: u64 = 1 << 20;

fn request(kind: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    RequestHeader { flags, kind, cookie, offset, len }.encode(&mut bytes);
    bytes
}

#[test]
fn wrong_magic_and_absurd_writes_end_the_connection_and_nothing_else() {
    let extended = [0x21, 0xe4, 0x1c, 0x71];
    let rows = [
        vec![0; 28],
        vec![0xff; 28],
        [&extended[..], &[0; 28]].concat(),
        request(cmd::WRITE, 0, 1, 0, SWALLOW_MAX + 1),
        request(cmd::WRITE, 0, 1, 0, u32::MAX),
    ];
    for row in rows {
        for structured in [false, true] {
            let mut bench = Bench::new(structured, MIB, MEMORY);
            let good = request(cmd::READ, 0, 1, 0, 4096);
            bench.exchange(&[&good[..], &row].concat());
            assert!(!bench.alive());
            assert!(bench.pump.memory_is_back(MEMORY));
        }
    }
}

#[test]
fn half_a_request_is_no_request() {
    let whole = [request(cmd::WRITE, 0, 1, 100, 9000), vec![5; 9000]].concat();
    for cut in [1, 4, 27, 28, 29, 4000, 9000, 9027] {
        let mut bench = Bench::new(false, MIB, MEMORY);
        assert!(bench.exchange(&whole[..cut]).is_empty());
        assert!(bench.pump.connections[&bench.id].mid_request());
        bench.peer.shutdown(std::net::Shutdown::Write).unwrap();
        bench.exchange(&[]);
        assert!(!bench.alive());
        assert!(bench.ram(|ram| ram.log.is_empty()), "nothing of it reached the engine");
        assert!(bench.pump.memory_is_back(MEMORY));
    }
}

#[test]
fn the_same_cookie_twice_is_two_requests() {
    let mut bench = Bench::new(false, MIB, MEMORY);
    let back = bench.exchange(&[request(cmd::READ, 0, 7, 0, 512), request(cmd::READ, 0, 7, 512, 512)].concat());
    assert_eq!(back.len(), 2 * (16 + 512));
}

#[test]
fn a_flood_of_refused_requests_that_nobody_collects_is_bounded() {
    let mut bench = Bench::new(true, MIB, MEMORY);
    let bad = request(99, 0, 1, 0, 0).repeat(100);
    let mut sent = 0;
    for _ in 0..5000 {
        sent += (&bench.peer).write(&bad[sent % 28..]).unwrap_or(0);
        bench.pump.turn();
    }
    assert!(bench.pump.connections[&bench.id].stalled(), "it is not read from any more");
    assert!(sent < 4 << 20, "{sent} bytes were taken");
    bench.exchange(&bad[sent % 28..28]);
    assert!(bench.alive());
}

/// Who waits for a client that does not go on waits for its deadline at least. Not a measurement: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(8);
const _: () = assert!(PATIENCE.as_secs() < acceptor::HANDSHAKE_DEADLINE.as_secs());

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn stalled_writers_cost_no_memory_and_no_time() {
    let exports = vec![export("disk", 1, 64 * MIB)];
    let daemon = Daemon::start(acceptor::Config::default(), exports, 4 << 30, Order::AsAsked);
    let mut stalled = Vec::new();
    for _ in 0..64 {
        let mut client = Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();
        client.stream().write_all(&request(cmd::WRITE, 0, 1, 3, 32 << 20)).unwrap();
        client.stream().write_all(&[1; 10]).unwrap();
        stalled.push(client);
    }
    let before = resident();
    let start = Instant::now();
    let mut good = Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();
    assert_eq!(good.write(0, 0, &[9; 100_000]).unwrap().error, 0);
    assert_eq!(good.read(0, 100_000).unwrap().data, vec![9; 100_000]);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert!(resident().saturating_sub(before) < 64 << 20);
}

#[test]
fn a_good_client_is_served_during_a_flood_of_half_open_ones() {
    let daemon = Daemon::simple(MIB);
    let mut held = Vec::new();
    for i in 0..300 {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        if i % 3 == 0 {
            let _ = stream.write_all(&[0, 0]);
        }
        held.push(stream);
        if i % 50 == 49 {
            let start = Instant::now();
            let mut good = Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();
            assert_eq!(good.read(0, 4096).unwrap().error, 0);
            assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
        }
    }
    // The oldest were pushed out, the newest are still welcome.
    let mut oldest = &held[0];
    oldest.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut all = Vec::new();
    let _ = oldest.read_to_end(&mut all);
    let newest = held.last_mut().unwrap();
    greet(newest).unwrap();
    assert!(option(newest, opt::LIST, &[]).unwrap().len() == 2);
}

#[test]
fn a_dawdler_is_cut_at_the_deadline() {
    let config = acceptor::Config { deadline: Duration::from_millis(300), ..Default::default() };
    let daemon = Daemon::start(config, vec![export("disk", 1, MIB)], MEMORY, Order::AsAsked);
    let start = Instant::now();
    let mut slow = UnixStream::connect(daemon.socket()).unwrap();
    let mut greeting = [0; 18];
    slow.read_exact(&mut greeting).unwrap();
    let drip = 3u32.to_be_bytes().into_iter().chain(std::iter::repeat(b'I'));
    for byte in drip {
        if slow.write_all(&[byte]).is_err() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(40));
        Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(250));
}

#[test]
fn descriptors_come_back() {
    let daemon = Daemon::simple(MIB);
    for _ in 0..300 {
        drop(UnixStream::connect(daemon.socket()).unwrap());
        let mut client = Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();
        client.send_read(1, 0, 65_536);
        client.push().unwrap();
    }
    eventually("all negotiated connections are gone", || daemon.acceptor.as_ref().unwrap().negotiated() == 0);
}
