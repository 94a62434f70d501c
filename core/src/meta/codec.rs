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

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), as iSCSI, ext4 and btrfs use it.
///
/// Slicing by four: the pool's own records are a few KiB at a time, and core may not have dependencies.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        crc ^= u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        crc = TABLES[3][(crc & 0xff) as usize]
            ^ TABLES[2][(crc >> 8 & 0xff) as usize]
            ^ TABLES[1][(crc >> 16 & 0xff) as usize]
            ^ TABLES[0][(crc >> 24) as usize];
    }
    for &byte in words.remainder() {
        crc = (crc >> 8) ^ TABLES[0][((crc ^ u32::from(byte)) & 0xff) as usize];
    }
    !crc
}

static TABLES: [[u32; 256]; 4] = tables();

const fn tables() -> [[u32; 256]; 4] {
    let mut tables = [[0u32; 256]; 4];
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
    let mut i = 0;
    while i < 256 {
        let mut t = 1;
        while t < 4 {
            let below = tables[t - 1][i];
            tables[t][i] = (below >> 8) ^ tables[0][(below & 0xff) as usize];
            t += 1;
        }
        i += 1;
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
