//! Arithmetic in GF(2^8), the field of Q: bytes are polynomials over one bit, modulo 0x11d; 2 generates all but zero.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6"; the field is that of Linux `lib/raid6`, so that parity can be
//! compared. A sum is an exclusive or, and so is a difference. Whole buffers are the host's business.

/// The modulus without its highest bit.
const MODULUS: u8 = 0x1d;

/// Non-zero elements; powers of the generator repeat after so many.
const ORDER: usize = 255;

/// Powers of the generator, twice round: a sum of two logarithms needs no remainder.
static EXP: [u8; 2 * ORDER] = powers();
static LOG: [u8; 256] = logarithms();

const fn powers() -> [u8; 2 * ORDER] {
    let mut table = [0; 2 * ORDER];
    let (mut power, mut i) = (1u8, 0);
    while i < table.len() {
        table[i] = power;
        power = times_2(power);
        i += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let (powers, mut table) = (powers(), [0; 256]);
    let mut i = 0;
    while i < ORDER {
        table[powers[i] as usize] = i as u8;
        i += 1;
    }
    table
}

/// The product with the generator.
pub const fn times_2(a: u8) -> u8 {
    (a << 1) ^ (if a >> 7 == 1 { MODULUS } else { 0 })
}

/// The generator to the power of `n`: what data member `n` of a row counts in Q.
pub fn pow2(n: usize) -> u8 {
    EXP[n % ORDER]
}

/// The product.
pub fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { EXP[usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])] }
}

/// The element whose product with `a` is 1; zero has none and answers 0.
pub fn inverse(a: u8) -> u8 {
    if a == 0 { 0 } else { EXP[ORDER - usize::from(LOG[usize::from(a)])] }
}

/// The quotient; 0 when divided by zero.
pub fn div(a: u8, b: u8) -> u8 {
    mul(a, inverse(b))
}

/// The power of the generator that `a` is, 0..255; zero is none.
pub fn log2(a: u8) -> Option<usize> {
    (a != 0).then(|| usize::from(LOG[usize::from(a)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The twin: long multiplication of polynomials, then long division by the modulus.
    fn by_hand(a: u8, b: u8) -> u8 {
        let mut product = (0..8).filter(|i| b >> i & 1 == 1).fold(0u32, |sum, i| sum ^ u32::from(a) << i);
        for i in (8..16).rev() {
            if product >> i & 1 == 1 {
                product ^= 0x11d << (i - 8);
            }
        }
        product as u8
    }

    #[test]
    fn products_and_quotients_of_all_pairs() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), by_hand(a, b), "{a} * {b}");
                assert_eq!(div(mul(a, b), b), if b == 0 { 0 } else { a }, "{a} * {b} / {b}");
            }
            assert_eq!(times_2(a), by_hand(a, 2));
            assert_eq!(mul(a, inverse(a)), u8::from(a != 0));
        }
    }

    #[test]
    fn powers_are_products_and_all_different() {
        let mut power = 1;
        for n in 0..600 {
            assert_eq!(pow2(n), power, "2^{n}");
            assert_eq!(log2(power), Some(n % 255));
            power = by_hand(power, 2);
        }
        assert_eq!((log2(0), inverse(0), div(7, 0)), (None, 0, 0));
        // From the tables of Linux lib/raid6: 2^8 = 0x1d, 2^10 = 0x74, 1/2 = 0x8e.
        assert_eq!((pow2(8), pow2(10), inverse(2)), (0x1d, 0x74, 0x8e));
    }
}
