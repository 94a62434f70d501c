//! Sizes as people write them, and as braid writes them.
//!
//! | written | means |
//! |---|---|
//! | `4096` | bytes |
//! | `10K` `10M` `10G` `10T` `10P` `10E`, any case, or `10KiB` … | times 1024, 1024², … |
//! | `10KB` `10MB` `10GB` … | times 1000, 1000², … |
//! | `1.5G` | a fraction is fine when a unit follows; rounded down to a byte |
//! | `10s` | refused: a sector is 512 bytes in one tool and 4096 in the next |
//!
//! Output is always 1024-based: `7.28TiB` in prose, `7.28T` in narrow columns.

/// Bytes of a size as people write it; the error is a sentence.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
        return Err(format!("'{text}' is not a size; write bytes or a unit, such as 10G"));
    }
    let multiplier = multiplier(unit.trim(), text)?;
    if !fraction.is_empty() && multiplier == 1 {
        return Err(format!("'{text}' is not a whole number of bytes"));
    }
    let too_large = || format!("'{text}' is more than 16EiB - 1 byte, the largest size there is");
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let bytes = whole.checked_mul(multiplier).ok_or_else(too_large)?;
    bytes.checked_add(part(fraction, multiplier)).ok_or_else(too_large)
}

/// `0.fraction × multiplier`, rounded down. Digits after the ninth change less than a byte in a GiB; dropped.
fn part(fraction: &str, multiplier: u64) -> u64 {
    let (mut digits, mut scale) = (0u128, 1u128);
    for digit in fraction.bytes().take(9) {
        digits = digits * 10 + u128::from(digit.saturating_sub(b'0'));
        scale *= 10;
    }
    u64::try_from(digits * u128::from(multiplier) / scale).unwrap_or(0)
}

fn multiplier(unit: &str, text: &str) -> Result<u64, String> {
    let lower = unit.to_ascii_lowercase();
    let (letter, base) = match lower.as_str() {
        "" | "b" => return Ok(1),
        "s" => {
            return Err(format!(
                "'{text}': sectors are refused, they are 512 bytes in one tool and 4096 in the next; write bytes or K, M, G"
            ));
        }
        other => match other.strip_suffix("ib") {
            Some(letter) => (letter, 1024u64),
            None => match other.strip_suffix('b') {
                Some(letter) => (letter, 1000),
                None => (other, 1024),
            },
        },
    };
    let power = match letter {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        "e" => 6,
        _ => {
            return Err(format!(
                "'{text}': unknown unit '{unit}'; known are K, M, G, T, P, E (1024) and KB, MB, GB, … (1000)"
            ));
        }
    };
    Ok(base.pow(power))
}

const LETTERS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// So many blocks, in words.
#[must_use]
pub fn blocks(n: u64) -> String {
    if n == 1 { "1 block".into() } else { format!("{n} blocks") }
}

/// `7.28TiB`: three digits, 1024-based.
pub fn long(bytes: u64) -> String {
    let (number, power) = scaled(bytes);
    match power {
        0 => format!("{number}B"),
        _ => format!("{number}{}iB", LETTERS[power]),
    }
}

/// `7.28T`: three digits, 1024-based, for narrow columns whose header says so.
pub fn short(bytes: u64) -> String {
    let (number, power) = scaled(bytes);
    format!("{number}{}", LETTERS[power])
}

/// Three significant digits, as zpool has them; whole numbers lose their zeros: `100`, `7.28`, `2`.
fn scaled(value: u64) -> (String, usize) {
    let (mut power, mut unit) = (0, 1u64);
    while power + 1 < LETTERS.len() && value / unit >= 1024 {
        unit *= 1024;
        power += 1;
    }
    let (value, unit) = (u128::from(value), u128::from(unit));
    if value.is_multiple_of(unit) {
        return (format!("{}", value / unit), power);
    }
    let decimals = match value / unit {
        0..=9 => 2,
        10..=99 => 1,
        _ => 0,
    };
    let scale = 10u128.pow(decimals);
    // Rounded down: free space must never look like more than there is.
    let scaled = value * scale / unit;
    let text = match decimals {
        0 => format!("{scaled}"),
        1 => format!("{}.{}", scaled / 10, scaled % 10),
        _ => format!("{}.{:02}", scaled / 100, scaled % 100),
    };
    (text, power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512b", 512),
            ("1k", 1024),
            ("10G", 10 << 30),
            ("10GiB", 10 << 30),
            ("10gib", 10 << 30),
            ("10GB", 10_000_000_000),
            ("1.5G", 3 << 29),
            ("1.5KB", 1500),
            ("0.5T", 1 << 39),
            ("15E", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_that_are_refused() {
        for (text, part) in [
            ("10s", "sectors"),
            ("", "not a size"),
            ("G", "not a size"),
            ("-1", "not a size"),
            ("1.G", "not a size"),
            ("1.2.3G", "not a size"),
            ("1.5", "whole number"),
            ("10X", "unknown unit"),
            ("10GG", "unknown unit"),
            ("16E", "largest"),
            ("18446744073709551616", "largest"),
            ("99999999999999999999999E", "largest"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_that_braid_writes() {
        for (bytes, short_text, long_text) in [
            (0, "0", "0B"),
            (1023, "1023", "1023B"),
            (1024, "1K", "1KiB"),
            (1536, "1.50K", "1.50KiB"),
            (100 << 30, "100G", "100GiB"),
            ((100 << 30) + 1, "100G", "100GiB"),
            ((10 << 30) - 1, "9.99G", "9.99GiB"),
            (8_001_563_222_016, "7.27T", "7.27TiB"),
            (u64::MAX, "15.9E", "15.9EiB"),
        ] {
            assert_eq!((short(bytes).as_str(), long(bytes).as_str()), (short_text, long_text));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,12}|[0-9.]{0,24}[a-zA-Z]{0,3}") {
            let _ = parse(&text);
        }

        #[test]
        fn what_is_written_is_never_more_than_there_is(bytes: u64) {
            let read = parse(&long(bytes)).expect("own output");
            proptest::prop_assert!(read <= bytes && bytes - read <= bytes / 99);
        }
    }
}
