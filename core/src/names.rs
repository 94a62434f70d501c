//! What a pool or a volume may be called, and which known word somebody may mean who wrote another.
//!
//! Commands take pools, devices, profiles and verbs in any order, so a pool may not be called what could be one of the
//! others. A volume is always written behind its pool (`tank/home`), so it only has to be well formed.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Longest name in bytes: fits every path, label and export name it ends up in.
pub const NAME_LEN_MAX: usize = 64;

/// Words that mean something else where a pool name may stand. Compared without regard to case.
const RESERVED: &[(&str, &[&str])] = &[
    (
        "a group of devices",
        &["mirror", "raidz", "raidz1", "raidz2", "raidz3", "spare", "log", "cache", "special", "dedup"],
    ),
    ("an action", &["start", "stop", "pause", "resume", "cancel", "status", "limit"]),
    ("a selector", &["missing", "all"]),
    ("an export", &["nbd", "fuse", "loop", "ublk"]),
    ("a profile", &["single", "dup", "raid0", "raid1", "raid1c2", "raid1c3", "raid1c4", "raid10", "raid5", "raid6"]),
];

/// Whether a pool may be called this; if not, one sentence with the cause and the next step.
pub fn check_pool(name: &str) -> Result<(), String> {
    check_shape("pool", name)?;
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("pool name '{name}' reads like a device id; add a letter, such as 'pool{name}'"));
    }
    if name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("draid")) {
        return Err(format!("pool name '{name}' reads like a group of devices in commands; choose another name"));
    }
    let meaning = RESERVED.iter().find(|(_, words)| words.iter().any(|word| word.eq_ignore_ascii_case(name)));
    match meaning {
        Some((meaning, _)) => {
            Err(format!("pool name '{name}' means {meaning} in commands; choose another name, such as '{name}pool'"))
        }
        None => Ok(()),
    }
}

/// Whether a volume may be called this; if not, one sentence with the cause and the next step.
pub fn check_volume(name: &str) -> Result<(), String> {
    check_shape("volume", name)
}

/// `[A-Za-z0-9][A-Za-z0-9._-]*`, 1 to 64 bytes. Such a name is never `.`, `..`, a path or an option.
fn check_shape(what: &str, name: &str) -> Result<(), String> {
    let Some(first) = name.chars().next() else {
        return Err(format!("the {what} name is empty; give it at least one letter or digit"));
    };
    if name.len() > NAME_LEN_MAX {
        let len = name.len();
        return Err(format!("the {what} name is {len} bytes long; shorten it to {NAME_LEN_MAX} or fewer"));
    }
    if name.contains('/') {
        return Err(format!("{what} name {name:?} contains '/', which separates pool and volume; leave it out"));
    }
    if name.contains(':') {
        return Err(format!("{what} name {name:?} contains ':' and reads like a device address; leave it out"));
    }
    if let Some(odd) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-')) {
        return Err(format!("{what} name {name:?} contains {odd:?}; use letters, digits, '.', '_' and '-'"));
    }
    if !first.is_ascii_alphanumeric() {
        return Err(format!("{what} name '{name}' starts with '{first}'; start it with a letter or a digit"));
    }
    Ok(())
}

/// The known word that takes the fewest changes to reach, if that is few.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let limit = 1 + word.len() / 4;
    let cost = |k: &str| match word.len() > 1 && k.starts_with(&word) {
        true => 1,
        false => distance(&word, k),
    };
    known.iter().map(|k| (cost(k), *k)).filter(|(d, _)| *d <= limit).min_by_key(|(d, _)| *d).map(|(_, k)| k)
}

/// Levenshtein's distance, row by row. Words are short; a long one is cut, it is near to nothing anyway.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(NAME_LEN_MAX).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().take(NAME_LEN_MAX).enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], i + 1);
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let longest = "a".repeat(NAME_LEN_MAX);
        let too_long = "a".repeat(NAME_LEN_MAX + 1);
        // name | why a pool may not be called so | why a volume may not; "" = it may
        let rows = [
            ("tank", "", ""),
            ("a", "", ""),
            ("7up", "", ""),
            ("data.2-b_C", "", ""),
            ("mirrors", "", ""),
            ("logs", "", ""),
            (&longest, "", ""),
            (&too_long, "shorten it", "shorten it"),
            ("", "is empty", "is empty"),
            (".", "starts with '.'", "starts with '.'"),
            ("..", "starts with '.'", "starts with '.'"),
            ("-f", "starts with '-'", "starts with '-'"),
            ("_x", "starts with '_'", "starts with '_'"),
            ("a/b", "contains '/'", "contains '/'"),
            ("nbd://x", "contains '/'", "contains '/'"),
            ("file:x", "device address", "device address"),
            ("a b", "contains ' '", "contains ' '"),
            ("a\nb", "contains '\\n'", "contains '\\n'"),
            ("caf\u{e9}", "contains '\u{e9}'", "contains '\u{e9}'"),
            ("17", "device id", ""),
            ("draid", "group of devices", ""),
            ("draid2:4d", "device address", "device address"),
            ("dRAID3", "group of devices", ""),
            ("RAID10", "means a profile", ""),
            ("loop", "means an export", ""),
            ("missing", "means a selector", ""),
            ("status", "means an action", ""),
            ("raidz2", "group of devices", ""),
        ];
        for (name, pool, volume) in rows {
            for (refusal, answer) in [(pool, check_pool(name)), (volume, check_volume(name))] {
                match (refusal, answer) {
                    ("", answer) => assert_eq!(answer, Ok(()), "{name:?}"),
                    (why, Err(sentence)) => assert!(sentence.contains(why), "{name:?}: {sentence}"),
                    (why, Ok(())) => panic!("{name:?} must be refused: {why}"),
                }
            }
        }
    }

    #[test]
    fn every_reserved_word_is_refused_for_pools_only() {
        for word in RESERVED.iter().flat_map(|(_, words)| words.iter()) {
            assert!(check_pool(word).is_err(), "{word}");
            assert!(check_pool(&word.to_uppercase()).is_err(), "{word}");
            assert_eq!(check_volume(word), Ok(()));
        }
    }
}
