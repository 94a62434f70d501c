//! Checksums of blocks with the instructions that the processor has for them.

use braid_core::sums::{self, Checksum};
use braid_core::units::BLOCK;

/// CRC-32C of a piece of memory.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of pieces of memory, one after the other.
pub fn crc32c_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    pieces.into_iter().for_each(|bytes| digest.update(bytes));
    digest.finalize() as u32
}

/// The sum of a block, as it is kept.
pub fn of_block(kind: Checksum, block: &[u8]) -> u64 {
    let sum = match kind {
        Checksum::None => 0,
        Checksum::Crc32c => u64::from(crc32c(block)),
        Checksum::Xxh3 => xxhash_rust::xxh3::xxh3_64(block),
    };
    sums::kept(kind, sum)
}

/// The sum of a block of zeros.
pub fn of_zeros(kind: Checksum) -> u64 {
    of_block(kind, &[0; BLOCK as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the library makes with vectors is what the table makes, for every length and alignment there is.
    #[test]
    fn fast_and_slow_agree() {
        let bytes: Vec<u8> = (0..3 * 4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for (from, to) in (0..100).map(|i| (i % 17, bytes.len() - i * 97)).chain((0..300).map(|i| (3, 3 + i))) {
            let bytes = &bytes[from..to];
            assert_eq!(crc32c(bytes), braid_core::meta::codec::crc32c(bytes), "{from}..{to}");
        }
    }

    /// RFC 3720 for one, the project's own test vectors (`XXH3_64bits` of nothing, seed 0) for the other.
    #[test]
    fn known_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(of_block(Checksum::Xxh3, b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(of_zeros(Checksum::Crc32c), 0x98f9_4189);
    }
}
