//! More than the daemon may hold: it reads no further until there is room, answers everything, and grows no more.

use std::os::unix::net::UnixStream;

use braid_host::nbd::client::{Answer, Client, Wish};

use crate::real::Real;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Payload memory of a pool, `MEMORY_DEFAULT` of the daemon.
const PAYLOAD: u64 = 128 * MIB;
/// Whatever else a request costs: 4 KiB of payload goes with far less than this.
const BESIDE: u64 = 48 * MIB;
const CLIENTS: u64 = 8;
/// 32 MiB/s, and nothing that absorbs a flood: clients on a busy machine are faster than that, so it piles up.
const SLOW: &str = r#"
name = "slow"
kind = "network"
about = "a narrow wire"
request_ns = 10_000
kib_ns = 30_000
servers = 24
read_ns = 100_000
write_ns = 100_000
server_kib_ns = 1_000
round_trip_ns = 100_000
object_kib = 4_096
flush_ns = 100_000
spread_percent = 0
tail_one_in = 0
tail_times = 1
"#;

/// Most memory that the daemon ever had, in bytes.
fn peak(real: &Real) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", real.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Every client sends so many writes of `len` bytes at once, none beside another; all of them are answered.
fn flood(real: &Real, requests: u64, len: u64) {
    let clients = (0..CLIENTS).map(|client| {
        let socket = real.path("v.sock");
        std::thread::spawn(move || {
            let mut nbd = Client::<UnixStream>::connect(&socket, "tank/v", Wish::default()).expect("a client");
            let data = vec![client as u8 + 1; len as usize];
            let place = |i: u64| (i * 7919 % requests * CLIENTS + client) * 4 * len;
            (0..requests).for_each(|i| nbd.send_write(i, 0, place(i), &data));
            nbd.push().expect("it is taken in the end");
            let mut answer = Answer::default();
            for _ in 0..requests {
                nbd.recv_into(&mut answer).expect("an answer");
                assert_eq!(answer.error, 0, "request {}", answer.cookie);
            }
            assert_eq!(nbd.read(place(requests - 1), len as u32).expect("a read").data, data);
            nbd.disconnect().expect("goodbye");
        })
    });
    clients.collect::<Vec<_>>().into_iter().for_each(|client| client.join().expect("a client"));
}

#[test]
fn twice_what_memory_holds_is_taken_in_turn() {
    let real = Real::start();
    std::fs::write(real.path("slow.toml"), SLOW).expect("a file");
    let disk = format!("model:{},{}", real.path("slow.toml").display(), real.disk("d0.img", 2048 * MIB));
    real.ok(&format!("create tank -d single -m single {disk}"));
    real.ok("volume create tank/v 1G");
    real.ok(&format!("share --temporary tank/v nbd --unix={}", real.path("v.sock").display()));
    let idle = peak(&real);
    // By bytes: twice the payload memory.
    flood(&real, 2 * PAYLOAD / CLIENTS / (256 * KIB), 256 * KIB);
    let loaded = peak(&real);
    // What is registered with the kernel, half of it, is there from the beginning.
    assert!(loaded - idle > PAYLOAD / 3, "{} MiB is no load", (loaded - idle) / MIB);
    assert!(loaded - idle < PAYLOAD + BESIDE, "{} MiB more than idle", (loaded - idle) / MIB);
    // By number: twice the requests of a connection (`IN_FLIGHT_MAX`).
    flood(&real, 2 * 256, 4096);
    flood(&real, 2 * PAYLOAD / CLIENTS / (256 * KIB), 256 * KIB);
    let again = peak(&real);
    assert!(again - loaded < 16 * MIB, "{} MiB more with the second flood", (again - loaded) / MIB);
}
