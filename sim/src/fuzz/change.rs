//! Bytes and text, damaged: bits, numbers at their ends, pieces that are gone, twice, or of another input.

use super::Sample;
use crate::rng::Rng;

/// Longest input: what is said twice again and again would grow for ever.
const LEN_MAX: usize = 64 << 10;
/// Most changes of one input; one is the usual number.
const CHANGES_MAX: u64 = 8;

/// Numbers at which readers go wrong, as text.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "255",
    "256",
    "65535",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1e308",
    "1e-308",
    "0x7fffffffffffffff",
    "0.000000000000000000001",
    "99999999999999999999999999999999999999",
    "NaN",
];

/// A binary input with changes anywhere.
pub fn bytes(rng: &mut Rng, corpus: &[Sample]) -> Vec<u8> {
    let mut bytes = base(rng, corpus).to_vec();
    for _ in 0..changes(rng) {
        let other = &rng.pick(corpus).bytes;
        change(rng, &mut bytes, other);
    }
    bytes
}

/// A binary input with other numbers at some places; everything else is where it was.
pub fn in_place(rng: &mut Rng, corpus: &[Sample]) -> Vec<u8> {
    let mut bytes = base(rng, corpus).to_vec();
    for _ in 0..changes(rng) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        set_number(rng, &mut bytes[at..]);
    }
    bytes
}

/// A text with changes anywhere, most of them of whole words, numbers and lines.
pub fn text(rng: &mut Rng, corpus: &[Sample]) -> Vec<u8> {
    let mut bytes = base(rng, corpus).to_vec();
    for _ in 0..changes(rng) {
        let other = &rng.pick(corpus).bytes;
        match rng.below(8) {
            0 => change(rng, &mut bytes, other),
            1 | 2 => number(rng, &mut bytes),
            3 => enclosed(rng, &mut bytes, other),
            4 | 5 => piece(rng, &mut bytes, other, is_word),
            _ => piece(rng, &mut bytes, other, |byte| byte != b'\n'),
        }
    }
    bytes
}

/// What to begin with: mostly a real one, as behind what is refused anyway there is nothing to reach.
pub fn base<'a>(rng: &mut Rng, corpus: &'a [Sample]) -> &'a [u8] {
    let is_fine = |sample: &&Sample| sample.is_fine;
    let count = corpus.iter().filter(is_fine).count() as u64;
    match rng.percent(80) {
        true => corpus.iter().filter(is_fine).nth(rng.below(count) as usize).map_or(&[], |sample| &sample.bytes),
        false => &rng.pick(corpus).bytes,
    }
}

/// How messages of a stream are told apart, and how one agrees with itself again.
pub struct Framing {
    /// Bytes of the message that `bytes` begins with; `is_first` for the first of a stream.
    pub len: fn(bytes: &[u8], is_first: bool) -> usize,
    /// Puts right what a message says of its own length.
    pub seal: fn(message: &mut [u8]),
}

/// A stream of messages with changes: of one, of their order, of which there are. A message may come from another stream.
pub fn stream(rng: &mut Rng, corpus: &[Sample], framing: &Framing) -> Vec<u8> {
    let mut messages = messages(base(rng, corpus), framing);
    for _ in 0..changes(rng) {
        let others = self::messages(&rng.pick(corpus).bytes, framing);
        let at = rng.below(messages.len() as u64) as usize;
        let to = rng.below(messages.len() as u64 + 1) as usize;
        match rng.below(8) {
            _ if messages.is_empty() || others.is_empty() => messages.extend(others),
            0 => drop(messages.remove(at)),
            1 => messages.insert(to, messages[at].clone()),
            2 | 3 => messages.insert(to, rng.pick(&others).clone()),
            _ => {
                let other = rng.pick(&others);
                change(rng, &mut messages[at], other);
                if rng.percent(70) {
                    (framing.seal)(&mut messages[at]);
                }
            }
        }
    }
    let mut bytes = messages.concat();
    bytes.truncate(LEN_MAX);
    bytes
}

fn messages(mut bytes: &[u8], framing: &Framing) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let len = (framing.len)(bytes, messages.is_empty()).clamp(1, bytes.len());
        let (message, rest) = bytes.split_at(len);
        messages.push(message.to_vec());
        bytes = rest;
    }
    messages
}

/// So many changes: one half of the time.
pub fn changes(rng: &mut Rng) -> u64 {
    if rng.percent(50) { 1 } else { rng.between(2, CHANGES_MAX) }
}

/// One change of bytes, perhaps with a piece of another input.
pub fn change(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let end = (at + rng.between(1, 32) as usize).min(bytes.len());
    match rng.below(8) {
        0 | 1 => bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << rng.below(8)),
        2..=4 => set_number(rng, bytes.get_mut(at..).unwrap_or_default()),
        5 => bytes.truncate(at),
        6 => drop(bytes.drain(at..end)),
        _ => {
            let piece = match rng.percent(50) {
                true => bytes[at..end].to_vec(),
                false => slice_of(rng, other).to_vec(),
            };
            let to = if rng.percent(50) { at } else { end };
            bytes.splice(at..to, piece);
        }
    }
    bytes.truncate(LEN_MAX);
}

/// A number of 1, 2, 4 or 8 bytes, in either order, near an end of what it can be or near what it was.
pub fn set_number(rng: &mut Rng, place: &mut [u8]) {
    let width = (1usize << rng.below(4)).min(place.len());
    let Some(place) = place.get_mut(..width) else { return };
    let is_big_endian = rng.percent(50);
    let mut number = [0; 8];
    for (to, from) in number.iter_mut().zip(place.iter()) {
        *to = *from;
    }
    let bits = 8 * width as u64;
    let near = rng.below(3);
    let value = match rng.below(4) {
        0 => near,
        1 => (1u64 << rng.below(bits.max(1))).wrapping_sub(1).wrapping_add(near),
        2 => u64::MAX.wrapping_sub(near),
        _ if is_big_endian => {
            (u64::from_be_bytes(number) >> (64 - bits.clamp(1, 64))).wrapping_add(near).wrapping_sub(1)
        }
        _ => u64::from_le_bytes(number).wrapping_add(near).wrapping_sub(1),
    };
    let (big, little) = (value.to_be_bytes(), value.to_le_bytes());
    let from = if is_big_endian { &big[8 - width..] } else { &little[..width] };
    place.copy_from_slice(from);
}

/// Up to 64 bytes from anywhere.
fn slice_of<'a>(rng: &mut Rng, bytes: &'a [u8]) -> &'a [u8] {
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let end = (at + rng.between(1, 64) as usize).min(bytes.len());
    &bytes[at..end]
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)
}

/// Where a run of such bytes is, if there is one; each is as likely.
fn run_of(rng: &mut Rng, bytes: &[u8], belongs: impl Fn(u8) -> bool) -> Option<std::ops::Range<usize>> {
    let begins = |&i: &usize| belongs(bytes[i]) && (i == 0 || !belongs(bytes[i - 1]));
    let count = (0..bytes.len()).filter(begins).count();
    let first = (0..bytes.len()).filter(begins).nth(rng.below(count as u64) as usize)?;
    let len = bytes[first..].iter().take_while(|byte| belongs(**byte)).count();
    Some(first..first + len)
}

/// A number of the text becomes another.
fn number(rng: &mut Rng, bytes: &mut Vec<u8>) {
    if let Some(place) = run_of(rng, bytes, |byte| byte.is_ascii_digit()) {
        let new = rng.pick(NUMBERS).bytes();
        bytes.splice(place, new);
    }
    bytes.truncate(LEN_MAX);
}

/// What stands between quotes or brackets goes, comes twice, or gives way to that of another input.
fn enclosed(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let Some(place) = enclosed_in(rng, bytes) else { return };
    let new = match rng.below(4) {
        0 | 1 => Vec::new(),
        2 => [&bytes[place.clone()], &bytes[place.clone()]].join(&b","[..]),
        _ => enclosed_in(rng, other).map_or(Vec::new(), |from| other[from].to_vec()),
    };
    bytes.splice(place, new);
    bytes.truncate(LEN_MAX);
}

/// Some place between quotes or brackets.
fn enclosed_in(rng: &mut Rng, bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    const PAIRS: [(u8, u8); 3] = [(b'"', b'"'), (b'[', b']'), (b'{', b'}')];
    let closes = |byte: u8| PAIRS.iter().find(|(open, _)| *open == byte).map(|(_, close)| *close);
    let opens = || (0..bytes.len()).filter(|&i| closes(bytes[i]).is_some());
    let first = opens().nth(rng.below(opens().count() as u64) as usize)?;
    let (open, close) = (bytes[first], closes(bytes[first])?);
    let mut depth = 0;
    let end = bytes[first + 1..].iter().position(|&byte| {
        depth += i32::from(byte == open && open != close);
        depth -= i32::from(byte == close);
        depth < 0
    })?;
    Some(first + 1..first + 1 + end)
}

/// A word or line goes, comes twice, or gives way to one of another input.
fn piece(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8], belongs: fn(u8) -> bool) {
    let Some(place) = run_of(rng, bytes, belongs) else { return };
    match rng.below(4) {
        0 => drop(bytes.drain(place)),
        1 => {
            let again = bytes[place.clone()].to_vec();
            let between = if belongs(b' ') { b'\n' } else { b' ' };
            bytes.splice(place.end..place.end, std::iter::once(between).chain(again));
        }
        _ => {
            if let Some(from) = run_of(rng, other, belongs) {
                bytes.splice(place, other[from].iter().copied());
            }
        }
    }
    bytes.truncate(LEN_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_the_same_input_for_ever_and_another_another() {
        let corpus = [Sample::fine("a", *b"size=4096 depth=8\nname=x\n"), Sample::fine("b", *b"rw=read\n")];
        for change in [bytes, in_place, text] {
            let of = |seed| change(&mut Rng::new(seed), &corpus);
            let all: std::collections::BTreeSet<_> = (0..1000).map(of).collect();
            assert!(all.len() > 200, "{}", all.len());
            assert_eq!(of(7), of(7));
        }
    }

    #[test]
    fn inputs_stay_short_however_often_they_are_doubled() {
        let mut bytes = vec![b'a'; LEN_MAX - 3];
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let other = bytes.clone();
            change(&mut rng, &mut bytes, &other);
            piece(&mut rng, &mut bytes, &other, is_word);
            assert!(bytes.len() <= LEN_MAX);
        }
    }

    #[test]
    fn numbers_of_any_width_are_set_within_their_place() {
        let mut rng = Rng::new(1);
        for len in 0..=9 {
            for _ in 0..500 {
                let mut bytes = [0xaa; 10];
                set_number(&mut rng, &mut bytes[..len]);
                assert!(bytes[len..].iter().all(|b| *b == 0xaa), "{len}");
            }
        }
    }
}
