//! Targets that read from sockets: they belong to the host, inputs are damaged as everywhere.

use std::path::Path;

use braid_host::fuzz::{self as host, Control};
use braid_host::nbd::proto::{IHAVEOPT, OPTION_LEN, REQUEST_LEN, RequestHeader, cmd};
use braid_sim::Rng;
use braid_sim::fuzz::change::{self, Framing};
use braid_sim::fuzz::{Sample, Target};

/// Their names.
pub(super) const NAMES: [&str; 3] = ["negotiation", "transmission", "control"];

/// Those that are wanted; what they need on disk is in this folder.
pub(super) fn targets(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<Target>, String> {
    let make = |name: &&'static str| match *name {
        "negotiation" => Ok(negotiation()),
        "transmission" => Ok(transmission()),
        _ => control(folder),
    };
    NAMES.iter().filter(|name| wanted(name)).map(make).collect()
}

fn negotiation() -> Target {
    Target {
        name: "negotiation",
        about: "what a client of NBD says before an export is open",
        corpus: corpus(host::NEGOTIATIONS),
        change: |rng, corpus| change::stream(rng, corpus, &Framing { len: option_len, seal: seal_option }),
        run: Box::new(host::negotiation),
        memory: 4 << 20,
    }
}

fn transmission() -> Target {
    Target {
        name: "transmission",
        about: "what a client of NBD says behind that",
        corpus: corpus(host::TRANSMISSIONS),
        change: |rng, corpus| change::stream(rng, corpus, &Framing { len: request_len, seal: seal_request }),
        run: Box::new(host::transmission),
        memory: 16 << 20,
    }
}

fn control(folder: &Path) -> Result<Target, String> {
    let control = Control::start(folder)?;
    Ok(Target {
        name: "control",
        about: "HTTP and JSON on the control socket",
        corpus: corpus(host::CONTROLS),
        change: request,
        run: Box::new(move |input| control.run(input)),
        memory: 16 << 20,
    })
}

fn corpus(samples: &[host::Sample]) -> Vec<Sample> {
    samples.iter().map(|&(name, bytes, is_fine)| Sample { name, bytes: bytes.to_vec(), is_fine }).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_be_bytes) as usize
}

fn put_u32(bytes: &mut [u8], at: usize, value: usize) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&(value as u32).to_be_bytes());
    }
}

/// Client flags, then options: magic, option, length, data.
fn option_len(bytes: &[u8], is_first: bool) -> usize {
    match is_first {
        true => 4,
        false => OPTION_LEN.saturating_add(u32_at(bytes, 12)),
    }
}

fn seal_option(message: &mut [u8]) {
    if message.len() >= OPTION_LEN {
        message[..8].copy_from_slice(&IHAVEOPT.to_be_bytes());
        let data = message.len() - OPTION_LEN;
        put_u32(message, 12, data);
    }
}

/// A header, and behind that of a write its payload.
fn request_len(bytes: &[u8], _: bool) -> usize {
    match RequestHeader::decode(bytes) {
        Ok(Some(header)) if header.kind == cmd::WRITE => REQUEST_LEN.saturating_add(header.len as usize),
        _ => REQUEST_LEN,
    }
}

fn seal_request(message: &mut [u8]) {
    let magic = braid_host::nbd::proto::REQUEST_MAGIC.to_be_bytes();
    if message.len() >= REQUEST_LEN {
        message[..4].copy_from_slice(&magic);
    }
    if message.len() > REQUEST_LEN {
        let payload = message.len() - REQUEST_LEN;
        put_u32(message, 24, payload);
    }
}

/// A request whose length is nearly always that of its body.
fn request(rng: &mut Rng, corpus: &[Sample]) -> Vec<u8> {
    let bytes = change::text(rng, corpus);
    if rng.percent(85) { with_length(bytes) } else { bytes }
}

fn with_length(bytes: Vec<u8>) -> Vec<u8> {
    const NAME: &[u8] = b"content-length: ";
    let find = |what: &[u8]| bytes.windows(what.len()).position(|part| part == what);
    let (Some(name), Some(end)) = (find(NAME), find(b"\r\n\r\n")) else { return bytes };
    let from = name + NAME.len();
    let digits = bytes[from..].iter().take_while(|byte| **byte != b'\r').count();
    let body = bytes.len() - (end + 4);
    [&bytes[..from], body.to_string().as_bytes(), &bytes[from + digits..]].concat()
}
