//! Valid sessions, damaged: flipped, cut, repeated, reordered. No panic, bounded memory, the next client is served.

use braid_host::nbd::client::{go_data, meta_data};
use braid_host::nbd::handshake::*;
use braid_host::nbd::proto::{self, RequestHeader, cmd, info, opt};
use proptest::prelude::*;

use super::world::*;

/// Parts of valid negotiations.
fn negotiation() -> Vec<Vec<u8>> {
    let options: [(u32, Vec<u8>); 11] = [
        (opt::STRUCTURED_REPLY, vec![]),
        (opt::LIST, vec![]),
        (opt::EXTENDED_HEADERS, vec![]),
        (opt::LIST_META_CONTEXT, meta_data("disk", &[])),
        (opt::SET_META_CONTEXT, meta_data("disk", &["base:allocation", "qemu:dirty-bitmap:x"])),
        (opt::INFO, go_data("disk", &[info::NAME, info::DESCRIPTION, info::BLOCK_SIZE])),
        (opt::INFO, go_data("nobody", &[])),
        (opt::STARTTLS, vec![]),
        (1234, vec![1; 300]),
        (opt::GO, go_data("", &[info::BLOCK_SIZE])),
        (opt::EXPORT_NAME, b"disk".to_vec()),
    ];
    let mut parts = vec![3u32.to_be_bytes().to_vec()];
    for (option, data) in options {
        let mut bytes = Vec::new();
        proto::put_option(&mut bytes, option, &data);
        parts.push(bytes);
    }
    parts
}

/// Requests of a valid session.
fn transmission() -> Vec<Vec<u8>> {
    let rows: [(u16, u16, u64, u32); 12] = [
        (cmd::READ, 0, 0, 4096),
        (cmd::READ, cmd::FLAG_DF, 4000, 200_000),
        (cmd::WRITE, 0, 8192, 4096),
        (cmd::WRITE, cmd::FLAG_FUA, 8191, 9000),
        (cmd::WRITE, 0, 1 << 20, 5000),
        (cmd::FLUSH, 0, 0, 0),
        (cmd::TRIM, 0, 4096, 65_536),
        (cmd::CACHE, 0, 0, 4096),
        (cmd::WRITE_ZEROES, cmd::FLAG_NO_HOLE, 100, 10_000),
        (cmd::WRITE_ZEROES, cmd::FLAG_FAST_ZERO, 0, 65_536),
        (cmd::BLOCK_STATUS, 0, 0, 1 << 20),
        (cmd::BLOCK_STATUS, cmd::FLAG_REQ_ONE, 5000, 100),
    ];
    rows.into_iter()
        .enumerate()
        .map(|(cookie, (kind, flags, offset, len))| {
            let mut bytes = Vec::new();
            RequestHeader { flags, kind, cookie: cookie as u64, offset, len }.encode(&mut bytes);
            if kind == cmd::WRITE {
                bytes.resize(bytes.len() + len as usize, cookie as u8);
            }
            bytes
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(usize, u8),
    Set(usize, u8),
    Cut(usize, usize),
    Repeat(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = prop_oneof![0usize..64, 0usize..40_000];
    prop_oneof![
        (at.clone(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (at.clone(), prop_oneof![Just(0u8), Just(0xff), Just(0x7f), Just(0x80), any::<u8>()])
            .prop_map(|(at, byte)| Damage::Set(at, byte)),
        (at.clone(), 1usize..40).prop_map(|(at, n)| Damage::Cut(at, n)),
        (at, 1usize..200).prop_map(|(at, n)| Damage::Repeat(at, n)),
    ]
}

fn apply(mut bytes: Vec<u8>, all: &[Damage]) -> Vec<u8> {
    for damage in all {
        let len = bytes.len().max(1);
        match *damage {
            Damage::Flip(at, bit) => {
                if let Some(byte) = bytes.get_mut(at % len) {
                    *byte ^= 1 << bit;
                }
            }
            Damage::Set(at, byte) => {
                if let Some(to) = bytes.get_mut(at % len) {
                    *to = byte;
                }
            }
            Damage::Cut(at, n) => {
                let from = (at % len).min(bytes.len());
                bytes.drain(from..(from + n).min(bytes.len()));
            }
            Damage::Repeat(at, n) => {
                let from = (at % len).min(bytes.len());
                let piece = bytes[from..(from + n).min(bytes.len())].to_vec();
                bytes.splice(from..from, piece);
            }
        }
    }
    bytes
}

fn feed(tls: TlsMode, bytes: &[u8], step: usize) -> Handshake {
    let exports = Table(vec![export("disk", 1, 1 << 20)]);
    let mut h = Handshake::new(Config { tls });
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = match h.feed(&rest[..rest.len().min(step)], &exports) {
            Ok(n) => n,
            Err(_) => break,
        };
        rest = &rest[n..];
        assert!(h.take_output().len() < OUTPUT_PAUSE * 2);
        match h.outcome() {
            Outcome::Open => {}
            Outcome::StartTls => h.tls_started(),
            Outcome::Negotiated(_) | Outcome::Closed => break,
        }
    }
    h
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_negotiations(
        order in proptest::collection::vec(0usize..12, 0..30),
        damages in proptest::collection::vec(damage(), 0..6),
        step in 1usize..5000,
        tls in prop_oneof![Just(TlsMode::Off), Just(TlsMode::Allow), Just(TlsMode::Require)],
    ) {
        let parts = negotiation();
        let mut bytes = parts[0].clone();
        order.iter().for_each(|i| bytes.extend_from_slice(&parts[*i]));
        feed(tls, &apply(bytes, &damages), step);
    }

    #[test]
    fn noise_in_place_of_a_negotiation(bytes in proptest::collection::vec(any::<u8>(), 0..2000), step in 1usize..500) {
        feed(TlsMode::Off, &bytes, step);
        feed(TlsMode::Off, &[&3u32.to_be_bytes()[..], &proto::IHAVEOPT.to_be_bytes(), &bytes].concat(), step);
    }

    #[test]
    fn damaged_sessions(
        order in proptest::collection::vec(0usize..12, 0..40),
        damages in proptest::collection::vec(damage(), 0..5),
        structured in any::<bool>(),
        backwards in any::<bool>(),
        memory in prop_oneof![Just(256usize << 10), Just(MEMORY)],
    ) {
        let parts = transmission();
        let mut bytes = Vec::new();
        order.iter().for_each(|i| bytes.extend_from_slice(&parts[*i]));
        let bytes = apply(bytes, &damages);
        let mut bench = Bench::new(structured, 1 << 20, memory);
        bench.pump.order = if backwards { Order::Backwards } else { Order::AsAsked };
        bench.exchange(&bytes);
        bench.peer.shutdown(std::net::Shutdown::Write).unwrap();
        bench.exchange(&[]);
        // What was read in half, or waits for more memory than there is, ends with the connection.
        if let Some(connection) = bench.pump.connections.get_mut(&bench.id) {
            prop_assert!(connection.stalled());
            connection.kill(&mut bench.pump.buffers);
            prop_assert!(connection.closed());
        }
        prop_assert!(bench.pump.memory_is_back(memory));
    }
}
