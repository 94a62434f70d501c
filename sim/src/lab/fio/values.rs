//! Values as fio writes them: sizes, times, lists of one for reads and one for writes.

/// Bytes. With `kb_base=1024`, the default, `k`, `kb` and `ki` are 1024 and `kib` is 1000; with 1000 it is the other way
/// round. So fio 3 reads them, for the sake of old files.
pub(super) fn bytes(word: &str, kb_base: u64) -> Option<u64> {
    u64::try_from(wide(word, kb_base)?).ok()
}

/// Whether it is a size, and more than there are numbers for.
pub(super) fn is_too_large(word: &str, kb_base: u64) -> bool {
    wide(word, kb_base).is_some_and(|bytes| bytes > u128::from(u64::MAX))
}

fn wide(word: &str, kb_base: u64) -> Option<u128> {
    let word = word.trim().to_lowercase();
    let (digits, suffix) = split(&word);
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    let (letter, is_other) = match suffix.strip_suffix("ib") {
        Some(letter) => (letter, true),
        None => (suffix.strip_suffix(['b', 'i']).unwrap_or(suffix), false),
    };
    let power = match letter {
        "" if !is_other => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let base: u128 = if is_other == (kb_base == 1024) { 1000 } else { 1024 };
    Some(base.pow(power).saturating_mul(number))
}

/// ns, of a number in this unit unless it has one of its own.
pub(super) fn time_ns(word: &str, unit_ns: u64) -> Option<u64> {
    let word = word.trim().to_lowercase();
    let (digits, suffix) = split(&word);
    let number: u64 = digits.parse().ok()?;
    let unit = match suffix {
        "" => unit_ns,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// One for reads and one for changes: `a` is both, `a,b` each, and one that is left empty is none.
pub(super) fn pair<T: Copy>(value: &str, parse: impl Fn(&str) -> Option<T>) -> Option<[Option<T>; 2]> {
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    let one = |part: &str| if part.is_empty() { Some(None) } else { parse(part).map(Some) };
    match parts[..] {
        [both] => one(both).map(|value| [value; 2]),
        [reads, changes] | [reads, changes, _] => Some([one(reads)?, one(changes)?]),
        _ => None,
    }
}

/// On or off.
pub(super) fn flag(value: &str) -> Option<bool> {
    match value {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

fn split(word: &str) -> (&str, &str) {
    let is_hex = word.starts_with("0x");
    let end = word.char_indices().skip(if is_hex { 2 } else { 0 });
    let at = end.into_iter().find(|(_, c)| !(c.is_ascii_digit() || is_hex && c.is_ascii_hexdigit()));
    word.split_at(at.map_or(word.len(), |(at, _)| at))
}
