//! Tables of products, made when this is compiled.

use braid_core::gf::times_2;

const fn product(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a, b, 0);
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = times_2(a);
        b >>= 1;
    }
    sum
}

/// By factor: its products with all bytes. 64 KiB, of which a slow path touches a few.
static PRODUCTS: [[u8; 256]; 256] = {
    let mut table = [[0; 256]; 256];
    let mut factor = 0;
    while factor < 256 {
        // A product with a byte is a sum of products with its highest bit and with the rest.
        let mut byte = 1;
        while byte < 256 {
            let high = 1 << (7 - (byte as u8).leading_zeros());
            table[factor][byte] = if byte == high {
                product(factor as u8, byte as u8)
            } else {
                table[factor][high] ^ table[factor][byte - high]
            };
            byte += 1;
        }
        factor += 1;
    }
    table
};

/// Products of a factor with all bytes.
pub(super) fn products(factor: u8) -> &'static [u8; 256] {
    &PRODUCTS[usize::from(factor)]
}

/// By factor: its products with 0..16 and with their sixteenfold.
#[cfg(target_arch = "x86_64")]
static HALVES: [[[u8; 16]; 2]; 256] = {
    let mut table = [[[0; 16]; 2]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut half = 0;
        while half < 16 {
            table[factor][0][half] = product(factor as u8, half as u8);
            table[factor][1][half] = product(factor as u8, (half as u8) << 4);
            half += 1;
        }
        factor += 1;
    }
    table
};

/// Products of a factor with the lower halves of bytes and with the upper ones.
#[cfg(target_arch = "x86_64")]
pub(super) fn halves(factor: u8) -> &'static [[u8; 16]; 2] {
    &HALVES[usize::from(factor)]
}

/// By factor: multiplication with it as a matrix over bits, in the order of GF2P8AFFINEQB: bit i of the result is the
/// parity of byte 7 - i of the matrix and the source.
#[cfg(target_arch = "x86_64")]
static MATRICES: [u64; 256] = {
    let mut table = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut from = 0;
        while from < 8 {
            let column = product(factor as u8, 1 << from);
            let mut to = 0;
            while to < 8 {
                table[factor] |= ((column >> to & 1) as u64) << (8 * (7 - to) + from);
                to += 1;
            }
            from += 1;
        }
        factor += 1;
    }
    table
};

/// Multiplication with a factor as a matrix over bits.
#[cfg(target_arch = "x86_64")]
pub(super) fn matrix(factor: u8) -> u64 {
    MATRICES[usize::from(factor)]
}
