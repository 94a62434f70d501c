//! Little-endian bytes in and out, and the checksum that seals them.
//!
//! Reading never panics: whatever comes off a disk either parses or is [`Malformed`].

use alloc::string::String;
use alloc::vec::Vec;

use crate::units::Uuid;

/// The bytes do not say what they should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Appends fields to a buffer.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    /// With room for so many bytes, so that it need not grow.
    pub(crate) fn with_room(bytes: usize) -> Writer {
        Writer { bytes: Vec::with_capacity(bytes) }
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }
    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }
    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }
    pub(crate) fn uuid(&mut self, uuid: Uuid) -> &mut Self {
        self.raw(&uuid.0)
    }
    /// A string of at most 65,535 bytes; longer ones are cut at a character.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        let mut end = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16).raw(&text.as_bytes()[..end])
    }
}

/// Takes fields from the front of a slice.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(front)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }
    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }
    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub(crate) fn uuid(&mut self) -> Result<Uuid, Malformed> {
        Ok(Uuid(self.array()?))
    }
    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let len = self.u16()?;
        let bytes = self.take(usize::from(len))?;
        core::str::from_utf8(bytes).map(String::from).map_err(|_| Malformed)
    }
}

/// Bytes that one step of the checksum takes.
const STEP: usize = 16;
/// Zeros that are passed at once.
const NOTHING: usize = 256;

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), as iSCSI, ext4 and btrfs use it.
///
/// Slicing by sixteen: an opening checks every page and log block, and core may not have dependencies. Against slicing by
/// four, a page takes a third of the time. Pages and log blocks are zeros behind what they say: 256 bytes of those take
/// one look and four tables.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !update(!0, bytes)
}

/// The same of parts that stand one behind the other.
pub(crate) fn crc32c_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    !parts.into_iter().fold(!0, update)
}

/// The same with the four bytes at `at` taken for zeros: where the checksum itself stands.
pub(crate) fn crc32c_without(bytes: &[u8], at: usize) -> u32 {
    let (front, rest) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
    let behind = rest.get(4..).unwrap_or(&[]);
    !update(update(update(!0, front), &[0; 4]), behind)
}

fn update(mut crc: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<NOTHING>();
    let mut blocks = blocks.iter();
    while let Some(first) = blocks.next() {
        crc = match blocks.as_slice().first() {
            _ if is_nothing(first) => past_zeros(crc),
            Some(second) if !is_nothing(second) => {
                blocks.next();
                side_by_side(crc, first, second)
            }
            _ => step_by_step(crc, first),
        };
    }
    step_by_step(crc, rest)
}

fn is_nothing(block: &[u8; NOTHING]) -> bool {
    *block == [0; NOTHING]
}

/// The checksum after [`NOTHING`] more zeros.
fn past_zeros(crc: u32) -> u32 {
    crc.to_le_bytes().iter().zip(&PAST_ZEROS).fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
}

/// Two blocks at once: a step waits for the one before it, and not for those of the other block.
fn side_by_side(crc: u32, first: &[u8; NOTHING], second: &[u8; NOTHING]) -> u32 {
    let (mut a, mut b) = (crc, 0);
    for (first, second) in first.as_chunks().0.iter().zip(second.as_chunks().0) {
        (a, b) = (step(a, first), step(b, second));
    }
    past_zeros(a) ^ b
}

fn step_by_step(crc: u32, bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks();
    let crc = steps.iter().fold(crc, step);
    rest.iter().fold(crc, |crc, &byte| (crc >> 8) ^ TABLES[0][((crc ^ u32::from(byte)) & 0xff) as usize])
}

fn step(crc: u32, bytes: &[u8; STEP]) -> u32 {
    // The checksum so far goes into the first four bytes; those that stand last have the shortest way to go.
    let word = u128::from_le_bytes(*bytes) ^ u128::from(crc);
    word.to_le_bytes().iter().rev().zip(&TABLES).fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
}

static TABLES: [[u32; 256]; STEP] = tables();
/// What each byte of a checksum becomes with [`NOTHING`] zeros.
static PAST_ZEROS: [[u32; 256]; 4] = past_zeros_tables();

const fn past_zeros_tables() -> [[u32; 256]; 4] {
    let step = tables();
    let mut tables = [[0u32; 256]; 4];
    let mut place = 0;
    while place < 4 {
        let mut i = 0;
        while i < 256 {
            let mut crc = (i as u32) << (8 * place);
            let mut n = 0;
            while n < NOTHING {
                crc = (crc >> 8) ^ step[0][(crc & 0xff) as usize];
                n += 1;
            }
            tables[place][i] = crc;
            i += 1;
        }
        place += 1;
    }
    tables
}

const fn tables() -> [[u32; 256]; STEP] {
    let mut tables = [[0u32; 256]; STEP];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][i] = crc;
        i += 1;
    }
    let mut t = 1;
    while t < STEP {
        let mut i = 0;
        while i < 256 {
            let below = tables[t - 1][i];
            tables[t][i] = (below >> 8) ^ tables[0][(below & 0xff) as usize];
            i += 1;
        }
        t += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, appendix B.4.
    #[test]
    fn crc32c_of_the_rfc() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
    }

    /// Bit by bit, as the polynomial says.
    fn slowly(bytes: &[u8]) -> u32 {
        let bits = |crc: u32, byte: &u8| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
        };
        !bytes.iter().fold(!0, bits)
    }

    #[test]
    fn crc32c_of_any_length_and_with_a_gap_for_itself() {
        let bytes: Vec<u8> = (0..100u32).map(|i| ((i * i) >> 3) as u8).collect();
        for len in 0..=bytes.len() {
            assert_eq!(crc32c(&bytes[..len]), slowly(&bytes[..len]), "{len} bytes");
        }
        for at in 0..=96 {
            let mut bare = bytes.clone();
            bare[at..at + 4].fill(0);
            assert_eq!(crc32c_without(&bytes, at), slowly(&bare), "without {at}");
        }
    }

    #[test]
    fn crc32c_of_zeros_between_and_behind() {
        for (front, zeros, back) in [(0, 256, 0), (0, 1024, 3), (5, 700, 0), (256, 512, 256), (300, 4096 - 300, 0)] {
            let bytes: Vec<u8> =
                (1..=front).chain((0..zeros).map(|_| 0)).chain(1..=back).map(|i: u32| i as u8).collect();
            assert_eq!(crc32c(&bytes), slowly(&bytes), "{front} bytes, {zeros} zeros, {back} bytes");
        }
    }

    #[test]
    fn what_is_written_reads_back_and_a_cut_is_malformed() {
        let mut w = Writer::default();
        w.u8(1).u16(2).u32(3).u64(4).text("tank").uuid(Uuid([7; 16]));
        for cut in 0..w.bytes.len() {
            let mut r = Reader::new(&w.bytes[..cut]);
            let all = (|| {
                r.u8()?;
                r.u16()?;
                r.u32()?;
                r.u64()?;
                r.text()?;
                r.uuid()
            })();
            assert_eq!(all, Err(Malformed), "cut at {cut}");
        }
        let mut r = Reader::new(&w.bytes);
        assert_eq!((r.u8(), r.u16(), r.u32(), r.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!(r.text().as_deref(), Ok("tank"));
        assert_eq!(r.uuid(), Ok(Uuid([7; 16])));
        assert!(r.is_empty());
    }
}
