//! Checksums of blocks with the instructions that the processor has for them.

#[cfg(target_arch = "x86_64")]
mod crc;
#[cfg(target_arch = "x86_64")]
mod xxh3;

use braid_core::sums::{self, Checksum};
use braid_core::units::BLOCK;

/// CRC-32C of a piece of memory.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of pieces of memory, one after the other.
pub fn crc32c_joined<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    pieces.into_iter().for_each(|bytes| digest.update(bytes));
    digest.finalize() as u32
}

type Block = [u8; BLOCK as usize];

/// The sum of a block, as it is kept.
pub fn of_block(kind: Checksum, block: &Block) -> u64 {
    let sum = match kind {
        Checksum::None => 0,
        Checksum::Crc32c => u64::from(crc32c_of(block)),
        Checksum::Xxh3 => xxh3_of(block),
    };
    sums::kept(kind, sum)
}

fn crc32c_of(block: &Block) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if crc::is_there() {
        // SAFETY: the processor has what it is compiled for.
        return unsafe { crc::of_block(block) };
    }
    crc32c(block)
}

/// The sum of a block of zeros.
pub fn of_zeros(kind: Checksum) -> u64 {
    of_block(kind, &[0; BLOCK as usize])
}

fn xxh3_of(block: &Block) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(sum) = xxh3::of_block(block) {
        return sum;
    }
    xxhash_rust::xxh3::xxh3_64(block)
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

    /// Blocks of zeros but for one bit, and of everything, at any alignment: as the table and the library have them. What
    /// this processor does not have is not tried here.
    #[test]
    fn blocks_are_summed_as_anything_else() {
        let check = |block: &Block, what: &str| {
            let crc = u64::from(braid_core::meta::codec::crc32c(block)).max(1);
            assert_eq!(of_block(Checksum::Crc32c, block), crc, "{what}");
            let xxh3 = xxhash_rust::xxh3::xxh3_64(block);
            assert_eq!(of_block(Checksum::Xxh3, block), xxh3, "{what}");
            #[cfg(target_arch = "x86_64")]
            xxh3::tests::agree(block, xxh3);
        };
        let mut block = [0; BLOCK as usize];
        check(&block, "zeros");
        for bit in (0..block.len() * 8).step_by(61) {
            block[bit / 8] = 1 << (bit % 8);
            check(&block, &format!("bit {bit}"));
            block[bit / 8] = 0;
        }
        let bytes: Vec<u8> = (0..3 * 4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for from in 0..bytes.len() - block.len() {
            if from < 130 || from % 97 == 0 {
                check(bytes[from..].first_chunk().expect("a block"), &format!("from {from}"));
            }
        }
    }

    /// RFC 3720 for one; the other from the project's own tool (`xxhsum -H3` of 4 KiB of zeros is what the library says).
    #[test]
    fn known_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(of_zeros(Checksum::Xxh3), xxhash_rust::xxh3::xxh3_64(&[0; 4096]));
        assert_eq!(xxhash_rust::xxh3::xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(of_zeros(Checksum::Crc32c), 0x98f9_4189);
    }
}
