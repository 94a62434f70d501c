//! The negotiation, byte by byte and by table: nothing here needs a socket.

use braid_host::nbd::client::{go_data, meta_data};
use braid_host::nbd::handshake::*;
use braid_host::nbd::proto::{self, Put, info, opt, rep};

use super::world::{Table, export};

const FIXED: u32 = 3;

fn exports() -> Table {
    Table(vec![export("disk", 1, 1 << 20), export("other", 2, 1 << 21)])
}

fn started(tls: TlsMode) -> Handshake {
    let mut h = Handshake::new(Config { tls });
    assert_eq!(h.take_output().len(), 18);
    assert_eq!(h.feed(&FIXED.to_be_bytes(), &exports()), Ok(4));
    h
}

/// All replies in the output: option, reply, data.
fn replies(mut output: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut all = Vec::new();
    while !output.is_empty() {
        let mut r = proto::Reader(output);
        assert_eq!(r.u64(), Some(proto::REP_MAGIC));
        let (option, reply) = (r.u32().unwrap(), r.u32().unwrap());
        all.push((option, reply, r.string().unwrap().to_vec()));
        output = r.0;
    }
    all
}

fn ask(h: &mut Handshake, option: u32, data: &[u8]) -> Result<Vec<(u32, u32, Vec<u8>)>, Violation> {
    let mut bytes = Vec::new();
    proto::put_option(&mut bytes, option, data);
    h.feed(&bytes, &exports())?;
    Ok(replies(&h.take_output()))
}

fn last(h: &mut Handshake, option: u32, data: &[u8]) -> u32 {
    ask(h, option, data).unwrap().last().unwrap().1
}

#[test]
fn go_by_single_bytes_negotiates_what_was_asked() {
    let mut h = Handshake::new(Config::default());
    let mut bytes = FIXED.to_be_bytes().to_vec();
    proto::put_option(&mut bytes, opt::STRUCTURED_REPLY, &[]);
    proto::put_option(&mut bytes, opt::SET_META_CONTEXT, &meta_data("disk", &["x-y:z", "base:allocation"]));
    proto::put_option(&mut bytes, opt::GO, &go_data("disk", &[info::BLOCK_SIZE, 77]));
    for byte in &bytes {
        assert_eq!(h.feed(&[*byte], &exports()), Ok(1));
    }
    let session = Session { export: export("disk", 1, 1 << 20), structured: true, allocation: true };
    assert_eq!(*h.outcome(), Outcome::Negotiated(session));
    assert_eq!(h.feed(b"the next phase", &exports()), Ok(0));
}

#[test]
fn options_and_their_replies() {
    let go = go_data;
    let rows: Vec<(u32, Vec<u8>, u32)> = vec![
        (opt::LIST, vec![], rep::ACK),
        (opt::LIST, vec![0], rep::ERR_INVALID),
        (opt::STARTTLS, vec![], rep::ERR_POLICY),
        (opt::STARTTLS, vec![1], rep::ERR_INVALID),
        (opt::STRUCTURED_REPLY, vec![1], rep::ERR_INVALID),
        (opt::SET_META_CONTEXT, meta_data("disk", &["base:allocation"]), rep::ERR_INVALID),
        (opt::STRUCTURED_REPLY, vec![], rep::ACK),
        (opt::SET_META_CONTEXT, meta_data("disk", &["base:allocation"]), rep::ACK),
        (opt::SET_META_CONTEXT, meta_data("nobody", &["base:allocation"]), rep::ERR_UNKNOWN),
        (opt::LIST_META_CONTEXT, meta_data("disk", &[]), rep::ACK),
        (opt::INFO, go("disk", &[]), rep::ACK),
        (opt::INFO, go("", &[]), rep::ERR_UNKNOWN),
        (opt::INFO, go("Disk", &[]), rep::ERR_UNKNOWN),
        (opt::INFO, go("../disk", &[]), rep::ERR_UNKNOWN),
        (opt::INFO, go("/disk", &[]), rep::ERR_UNKNOWN),
        (opt::INFO, go("disk\0", &[]), rep::ERR_INVALID),
        (opt::INFO, go("%n%n%s", &[]), rep::ERR_UNKNOWN),
        (opt::INFO, go(&"n".repeat(255), &[]), rep::ERR_UNKNOWN),
        (opt::INFO, go(&"n".repeat(4096), &[]), rep::ERR_UNKNOWN),
        (opt::INFO, go(&"n".repeat(4097), &[]), rep::ERR_TOO_BIG),
        (opt::INFO, [&[0, 0, 0, 2, 0xff, 0xfe, 0, 0][..]].concat(), rep::ERR_INVALID),
        (opt::INFO, vec![], rep::ERR_INVALID),
        (opt::INFO, vec![0xff; 6], rep::ERR_INVALID),
        (opt::INFO, [&[0, 0, 0, 5][..], b"disk", &[0, 0]].concat(), rep::ERR_INVALID),
        (opt::INFO, [&[0, 0, 0, 4][..], b"disk", &[0, 9, 0, 0]].concat(), rep::ERR_INVALID),
        (opt::INFO, [&[0, 0, 0, 4][..], b"disk", &[0, 0, 0]].concat(), rep::ERR_INVALID),
        (opt::GO, go("nobody", &[]), rep::ERR_UNKNOWN),
        (opt::LIST_META_CONTEXT, [&[0, 0, 0, 4][..], b"disk", &[0xff; 4]].concat(), rep::ERR_INVALID),
        (opt::LIST_META_CONTEXT, [&[0, 0, 0, 4][..], b"disk", &[0, 0, 0, 0, 1]].concat(), rep::ERR_INVALID),
        (opt::LIST_META_CONTEXT, vec![0xff; 4], rep::ERR_INVALID),
        (opt::EXTENDED_HEADERS, vec![], rep::ERR_UNSUP),
        (4, vec![0; 99], rep::ERR_UNSUP),
        (u32::MAX, vec![0; 1 << 20], rep::ERR_UNSUP),
        (opt::GO, vec![0; 1 << 20], rep::ERR_TOO_BIG),
    ];
    let mut h = started(TlsMode::Off);
    for (option, data, due) in rows {
        assert_eq!(last(&mut h, option, &data), due, "option {option} {:?}", &data[..data.len().min(40)]);
        assert_eq!(*h.outcome(), Outcome::Open);
    }
    assert_eq!(last(&mut h, opt::ABORT, b"bye"), rep::ACK);
    assert_eq!(*h.outcome(), Outcome::Closed);
}

#[test]
fn every_option_with_every_length_ends_in_a_reply_or_a_clean_end() {
    for option in (0..=12).chain([0xffff, u32::MAX]) {
        for len in [0u32, 1, 4096, 4097, 1 << 20, 0x7fff_ffff, 0xffff_ffff] {
            for tls in [TlsMode::Off, TlsMode::Allow, TlsMode::Require] {
                let mut h = started(tls);
                let mut bytes = Vec::new();
                bytes.put_u64(proto::IHAVEOPT);
                bytes.put_u32(option);
                bytes.put_u32(len);
                // With the payload as far as a mebibyte of it, and another option behind.
                bytes.resize(bytes.len() + (len as usize).min(1 << 20), 0x41);
                proto::put_option(&mut bytes, opt::ABORT, &[]);
                let mut rest = &bytes[..];
                let mut output = 0;
                while *h.outcome() == Outcome::Open && !rest.is_empty() {
                    match h.feed(&rest[..rest.len().min(4096)], &exports()) {
                        Ok(used) => rest = &rest[used..],
                        Err(_) => break,
                    }
                    let out = h.take_output();
                    assert!(out.len() <= OUTPUT_PAUSE + 16_384);
                    output += out.len();
                }
                let silent = [opt::EXPORT_NAME, opt::STARTTLS].contains(&option);
                assert!(output > 0 || silent || u64::from(len) > SWALLOW_MAX || len > 1 << 20);
            }
        }
    }
}

#[test]
fn floods_end() {
    let mut h = started(TlsMode::Off);
    let mut replies = 0;
    let result = (0..100_000).find_map(|_| match ask(&mut h, 99, &[]) {
        Ok(_) => {
            replies += 1;
            None
        }
        Err(violation) => Some(violation),
    });
    assert_eq!((result, replies), (Some(Violation::TooManyOptions), OPTIONS_MAX));

    // Replies that nobody takes: input is left where it is.
    let mut h = started(TlsMode::Off);
    let mut bytes = Vec::new();
    (0..200).for_each(|_| proto::put_option(&mut bytes, opt::LIST, &[]));
    let many = Table((0..100).map(|i| export(&format!("volume-{i}"), i, 4096)).collect());
    let used = h.feed(&bytes, &many).unwrap();
    assert!(used < bytes.len());
    assert_eq!(h.feed(&bytes[used..], &many), Ok(0));
    assert!(h.take_output().len() < OUTPUT_PAUSE + 8192);
    assert!(h.feed(&bytes[used..], &many).unwrap() > 0);
}

#[test]
fn clients_that_break_the_rules_are_dropped() {
    let rows: [(u32, Vec<u8>, Violation); 5] = [
        (0x8000_0003, vec![], Violation::UnknownFlags(0x8000_0003)),
        (3, vec![0; 16], Violation::BadMagic),
        (0, option(opt::LIST, &[]), Violation::NotFixed),
        (3, option(opt::EXPORT_NAME, b"nobody"), Violation::NoSuchExport),
        (3, option(opt::EXPORT_NAME, &[b'n'; 4097]), Violation::NoSuchExport),
    ];
    for (flags, bytes, due) in rows {
        let mut h = Handshake::new(Config::default());
        let all = [&flags.to_be_bytes()[..], &bytes].concat();
        assert_eq!(h.feed(&all, &exports()), Err(due));
    }
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    proto::put_option(&mut bytes, option, data);
    bytes
}

#[test]
fn export_name_pads_unless_told_not_to() {
    for (flags, len) in [(1u32, 134), (3, 10), (0, 134)] {
        let mut h = Handshake::new(Config::default());
        h.take_output();
        let all = [&flags.to_be_bytes()[..], &option(opt::EXPORT_NAME, b"disk"), b"next"].concat();
        assert_eq!(h.feed(&all, &exports()), Ok(all.len() - 4));
        assert_eq!(h.take_output().len(), len);
        assert!(matches!(h.outcome(), Outcome::Negotiated(s) if !s.structured && !s.allocation));
    }
}

#[test]
fn contexts_hold_for_their_export_only() {
    for (selected, opened, due) in [("disk", "disk", true), ("other", "disk", false), ("disk", "other", false)] {
        let mut h = started(TlsMode::Off);
        last(&mut h, opt::STRUCTURED_REPLY, &[]);
        last(&mut h, opt::SET_META_CONTEXT, &meta_data(selected, &["base:allocation"]));
        last(&mut h, opt::GO, &go_data(opened, &[]));
        assert!(matches!(h.outcome(), Outcome::Negotiated(s) if s.allocation == due));
    }
    // A failing one also clears.
    let mut h = started(TlsMode::Off);
    last(&mut h, opt::STRUCTURED_REPLY, &[]);
    last(&mut h, opt::SET_META_CONTEXT, &meta_data("disk", &["base:allocation"]));
    last(&mut h, opt::SET_META_CONTEXT, &[9]);
    last(&mut h, opt::GO, &go_data("disk", &[]));
    assert!(matches!(h.outcome(), Outcome::Negotiated(s) if !s.allocation));
}

#[test]
fn required_tls_lets_nothing_else_work() {
    for number in (1..=12).filter(|o| ![opt::STARTTLS, opt::ABORT, opt::EXPORT_NAME].contains(o)) {
        for data in [vec![], go_data("disk", &[]), vec![0; 20_000]] {
            let mut h = started(TlsMode::Require);
            let all = ask(&mut h, number, &data).unwrap();
            assert_eq!(all.len(), 1);
            assert_eq!(all[0].1, rep::ERR_TLS_REQD, "option {number}");
            assert_eq!(*h.outcome(), Outcome::Open);
        }
    }
    let mut h = started(TlsMode::Require);
    assert_eq!(ask(&mut h, opt::EXPORT_NAME, b"disk"), Err(Violation::TlsRequired));
    let mut h = started(TlsMode::Require);
    assert_eq!(last(&mut h, opt::ABORT, &[]), rep::ACK);
}

#[test]
fn starttls_forgets_what_was_said_and_takes_no_bytes_behind_it() {
    let mut h = started(TlsMode::Allow);
    last(&mut h, opt::STRUCTURED_REPLY, &[]);
    last(&mut h, opt::SET_META_CONTEXT, &meta_data("disk", &["base:allocation"]));
    assert_eq!(last(&mut h, opt::STARTTLS, &[]), rep::ACK);
    assert_eq!(*h.outcome(), Outcome::StartTls);
    h.tls_started();
    assert_eq!(last(&mut h, opt::STARTTLS, &[]), rep::ERR_INVALID);
    last(&mut h, opt::GO, &go_data("disk", &[]));
    assert!(matches!(h.outcome(), Outcome::Negotiated(s) if !s.structured && !s.allocation));

    for injected in [option(opt::STRUCTURED_REPLY, &[]), vec![0]] {
        let mut h = started(TlsMode::Require);
        let all = [option(opt::STARTTLS, &[]), injected].concat();
        assert_eq!(h.feed(&all, &exports()), Err(Violation::Injected));
    }
}
