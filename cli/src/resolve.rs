//! What a bare word on the command line means: pool, volume, device, or a number.
//!
//! A device has a `/` or a scheme, a pool never; `tank/vm0` is a volume, `/dev/sdb` and `./disk.img` are devices. A bare
//! `sdb` is looked up as a pool, then as a member, then as `/dev/sdb`; two hits are an error that names both.

use crate::client::Client;
use braid_host::control::api::{ApiError, DeviceStatus, ListDevices, ListPools, Target};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SCHEMES: &[&str] = &["ram", "null", "file", "model", "nbd", "nbd+unix", "rbd", "iscsi", "http", "https"];

/// A path or a scheme: never the name of a pool.
pub(crate) fn is_device(word: &str) -> bool {
    word.contains('/') || word.split_once(':').is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
}

/// Written as a path: unlike `tank/vm0`, which has a `/` too.
pub(crate) fn is_path(word: &str) -> bool {
    ["/", "./", "../", "~/"].iter().any(|p| word.starts_with(p)) || (is_device(word) && !word.contains('/'))
}

/// A device as the daemon needs it: it has another working directory.
pub(crate) fn device(word: &str) -> Result<String, ApiError> {
    let word = word.strip_prefix("file:").unwrap_or(word);
    if let Some((model, path)) = word.strip_prefix("model:").and_then(|rest| rest.split_once(',')) {
        if path.is_empty() {
            let error = ApiError::usage("device.bad_path", format!("'{word}' says no file or device"));
            return Err(error.hint("write model:NAME,PATH, such as model:hdd,./disk.img"));
        }
        let model = if model.contains(['.', '/']) { absolute(Path::new(model))? } else { model.into() };
        return Ok(format!("model:{model},{}", device(path)?));
    }
    if is_device(word)
        && !Path::new(word).is_absolute()
        && word.split_once(':').is_some_and(|(s, _)| SCHEMES.contains(&s))
    {
        return Ok(word.to_string());
    }
    if word.contains('/') {
        return absolute(Path::new(word));
    }
    let bare = Path::new("/dev").join(word);
    if bare.exists() {
        return absolute(&bare);
    }
    let error = ApiError::usage("device.not_found", format!("'{word}' is no device: there is no /dev/{word}"));
    Err(if Path::new(word).exists() {
        error.hint(format!("the file here is written ./{word}"))
    } else if word.starts_with("class=") {
        error.hint("which devices are of a class is said with --class: --class ssd=/dev/sdb,/dev/sdc")
    } else {
        error.hint("a device is written with a '/' or a scheme: /dev/sdb, ./disk.img, ram:1G, model:hdd,./disk.img")
    })
}

/// An absolute path, without touching links: `/dev/disk/by-id/…` is a better name than what it points to today.
pub(crate) fn absolute(path: &Path) -> Result<String, ApiError> {
    let bad = || ApiError::usage("device.bad_path", format!("'{}' is not a path braid can write down", path.display()));
    let absolute = std::path::absolute(path).map_err(|_| bad())?;
    absolute.to_str().map(|s| s.trim_end_matches('/').to_string()).filter(|s| !s.is_empty()).ok_or_else(bad)
}

/// Devices of a list with commas, its patterns filled in: `/dev/sd[b-g]`. The shell does not see inside `--class hdd=…`.
pub(crate) fn device_list(list: &str) -> Result<Vec<String>, ApiError> {
    let mut devices = Vec::new();
    let mut words = list.split(',').filter(|w| !w.is_empty());
    while let Some(word) = words.next() {
        // The comma of model:NAME,PATH does not end a word.
        if word.starts_with("model:") {
            devices.push(device(&format!("{word},{}", words.next().unwrap_or_default()))?);
        } else if word.contains(['*', '?', '[']) && word.contains('/') {
            let found = glob(Path::new(word));
            if found.is_empty() {
                return Err(ApiError::usage("device.not_found", format!("nothing matches {word}")));
            }
            for path in found {
                devices.push(absolute(&path)?);
            }
        } else {
            devices.push(device(word)?);
        }
    }
    Ok(devices)
}

/// Paths whose last part matches the pattern, sorted.
fn glob(pattern: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name().and_then(|n| n.to_str())) else {
        return Vec::new();
    };
    let name: Vec<char> = name.chars().collect();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let matching = entries.filter(|e| matches(&name, &e.file_name().to_string_lossy().chars().collect::<Vec<_>>()));
    let mut paths: Vec<PathBuf> = matching.map(|e| e.path()).collect();
    paths.sort();
    paths
}

/// `*`, `?`, `[a-c]`, `[!a]`, as the shell has them.
fn matches(pattern: &[char], text: &[char]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        (['*', rest @ ..], _) => (0..=text.len()).any(|skip| matches(rest, &text[skip..])),
        (['?', rest @ ..], [_, tail @ ..]) => matches(rest, tail),
        (['[', set @ ..], [c, tail @ ..]) => {
            let Some(end) = set.iter().skip(1).position(|c| *c == ']').map(|p| p + 1) else { return false };
            let (set, rest) = (&set[..end], &set[end + 1..]);
            let (not, set) = match set {
                ['!' | '^', set @ ..] => (true, set),
                set => (false, set),
            };
            in_set(set, *c) != not && matches(rest, tail)
        }
        ([p, rest @ ..], [c, tail @ ..]) => p == c && matches(rest, tail),
        _ => false,
    }
}

fn in_set(set: &[char], c: char) -> bool {
    match set {
        [low, '-', high, rest @ ..] => (*low..=*high).contains(&c) || in_set(rest, c),
        [one, rest @ ..] => *one == c || in_set(rest, c),
        [] => false,
    }
}

/// `tank/vm0`, taken apart.
pub(crate) fn volume(word: &str) -> Result<(String, String), ApiError> {
    match word.split_once('/') {
        Some((pool, volume)) if !pool.is_empty() && !volume.is_empty() && !is_path(word) => {
            Ok((pool.to_string(), volume.to_string()))
        }
        _ => Err(ApiError::usage("volume.bad_name", format!("'{word}' is not a volume"))
            .hint("a volume is written POOL/NAME, such as tank/vm0")),
    }
}

/// How often something is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Interval {
    /// Between two; once when absent.
    pub(crate) every: Option<Duration>,
    /// At most so many.
    pub(crate) count: Option<u64>,
}

/// `[POOL] [INTERVAL [COUNT]]`: names never begin with a digit, so numbers cannot be mistaken.
pub(crate) fn pool_and_interval(words: &[String]) -> Result<(Option<String>, Interval), ApiError> {
    let (mut pool, mut interval) = (None, Interval::default());
    for word in words {
        let number = word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        match (number, &pool, interval.every, interval.count) {
            (false, None, None, _) if !is_device(word) => pool = Some(word.clone()),
            (false, ..) => {
                let message = format!("'{word}' is one word too many; expected [POOL] [INTERVAL [COUNT]]");
                return Err(ApiError::usage("usage", message));
            }
            (true, _, None, _) => {
                let seconds: f64 = word.parse().unwrap_or(f64::NAN);
                if !(0.01..=86_400.0).contains(&seconds) {
                    let message = format!("'{word}' is not an interval in seconds (0.01 to 86400)");
                    return Err(ApiError::usage("usage", message));
                }
                interval.every = Some(Duration::from_secs_f64(seconds));
            }
            (true, _, Some(_), None) => {
                let count = word.parse().ok().filter(|n| *n > 0);
                let bad = || ApiError::usage("usage", format!("'{word}' is not a number of repetitions"));
                interval.count = Some(count.ok_or_else(bad)?);
            }
            (true, ..) => return Err(ApiError::usage("usage", format!("'{word}' is one number too many"))),
        }
    }
    Ok((pool, interval))
}

/// What `get` and `set` are about: pools, volumes, or the members named after their pool.
pub(crate) fn targets(client: &Client, words: &[String]) -> Result<Vec<Target>, ApiError> {
    let pools = client.call(ListPools::default())?.into_iter().filter(|p| p.not_open.is_none());
    let pools: Vec<String> = pools.map(|p| p.name).collect();
    let needs_members = words.iter().any(|w| !pools.contains(w) && (is_path(w) || !w.contains('/')));
    let members = if needs_members { client.call(ListDevices::default())? } else { Vec::new() };
    // The pool that plain numbers count in: the one named, or the only one there is.
    let named: Vec<&String> = words.iter().filter(|w| pools.contains(w)).collect();
    let context = match (named.as_slice(), pools.as_slice()) {
        ([one], _) => Some((*one).clone()),
        ([], [one]) => Some(one.clone()),
        _ => None,
    };
    let mut targets = Vec::new();
    for word in words {
        targets.push(target(word, &pools, &members, context.as_deref())?);
    }
    if targets.iter().any(|t| matches!(t, Target::Device { .. })) {
        // `tank 3`: the pool says where the device is.
        targets.retain(|t| !matches!(t, Target::Pool { .. }));
    }
    Ok(targets)
}

fn target(word: &str, pools: &[String], members: &[DeviceStatus], context: Option<&str>) -> Result<Target, ApiError> {
    let member = |d: &DeviceStatus| Target::Device { pool: d.pool.clone(), device: d.id };
    if let Ok(device) = word.parse::<u32>() {
        let pool = context.ok_or_else(|| {
            ApiError::usage("device.ambiguous", format!("device {device} of which pool? there are {}", pools.join(" ")))
        })?;
        let known = members.iter().any(|d| d.pool == pool && d.id == device);
        return match known {
            true => Ok(Target::Device { pool: pool.to_string(), device }),
            false => Err(ApiError::no_device(pool, device)),
        };
    }
    if let Some((pool, id)) = word.split_once(':')
        && let Ok(device) = id.parse()
        && pools.iter().any(|p| p == pool)
    {
        return Ok(Target::Device { pool: pool.to_string(), device });
    }
    let in_context = |d: &&DeviceStatus| context.is_none_or(|pool| d.pool == pool);
    if is_path(word) {
        let path = device(word)?;
        let hits: Vec<&DeviceStatus> = members.iter().filter(in_context).filter(|d| same_device(d, &path)).collect();
        return one(word, hits.into_iter().map(member).collect());
    }
    if word.contains('/') {
        let (pool, volume) = volume(word)?;
        return Ok(Target::Volume { pool, volume });
    }
    let mut hits: Vec<Target> = pools.iter().filter(|p| *p == word).map(|p| Target::Pool { pool: p.clone() }).collect();
    let bare = format!("/dev/{word}");
    let named = members.iter().filter(|d| context.is_none_or(|pool| pool == word || d.pool == pool));
    hits.extend(named.filter(|d| d.name == word || same_device(d, &bare)).map(member));
    one(word, hits)
}

fn same_device(member: &DeviceStatus, path: &str) -> bool {
    let real = |p: &str| std::fs::canonicalize(p).ok();
    member.path == path || (member.path.starts_with('/') && real(path).is_some_and(|p| real(&member.path) == Some(p)))
}

fn one(word: &str, mut hits: Vec<Target>) -> Result<Target, ApiError> {
    match hits.len() {
        0 => Err(ApiError::not_found(
            "object.not_found",
            format!("'{word}' is neither an open pool nor a member of one"),
        )
        .hint("see what there is with: braid list   braid device list")),
        1 => Ok(hits.remove(0)),
        _ => {
            let describe = |t: &Target| match t {
                Target::Pool { pool } => format!("pool {pool}"),
                Target::Device { pool, device } => format!("device {device} of pool {pool}"),
                Target::Volume { .. } => format!("volume {t}"),
            };
            let names: Vec<String> = hits.iter().map(describe).collect();
            Err(ApiError::usage("name.ambiguous", format!("'{word}' is {}", names.join(" and also ")))
                .hint("name a device by POOL:ID, or by its path with a '/'"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn devices_and_names_are_told_apart_by_syntax() {
        for (word, device, path) in [
            ("tank", false, false),
            ("sdb", false, false),
            ("/dev/sdb", true, true),
            ("./disk.img", true, true),
            ("ram:1G", true, true),
            ("nbd://10.0.0.7/d1", true, false),
            ("tank/vm0", true, false),
            ("tank:3", false, false),
        ] {
            assert_eq!((is_device(word), is_path(word)), (device, path), "{word}");
        }
    }

    #[test]
    fn the_comma_of_a_modelled_disk_ends_no_word() {
        let list = device_list("ram:1G,model:hdd,/a/x.img,model:/m/my.toml,/b.img,null:1G").expect("a list");
        assert_eq!(list, ["ram:1G", "model:hdd,/a/x.img", "model:/m/my.toml,/b.img", "null:1G"]);
        let here = absolute(Path::new("my.toml")).expect("a path");
        let disk = absolute(Path::new("./x.img")).expect("a path");
        assert_eq!(device("model:my.toml,./x.img"), Ok(format!("model:{here},{disk}")));
        assert!(is_device("model:hdd,./x.img") && device_list("model:hdd").is_err());
    }

    #[test]
    fn pool_interval_and_count_in_their_order() {
        let seconds = |s| Some(Duration::from_secs(s));
        for (text, pool, every, count) in [
            ("", None, None, None),
            ("tank", Some("tank"), None, None),
            ("1", None, seconds(1), None),
            ("tank 2 3", Some("tank"), seconds(2), Some(3)),
        ] {
            let (got, interval) = pool_and_interval(&words(text)).expect(text);
            assert_eq!((got.as_deref(), interval), (pool, Interval { every, count }), "{text}");
        }
        for bad in ["tank mine", "1 tank", "0", "1 0", "1 2 3", "/dev/sda", "1e9"] {
            assert_eq!(pool_and_interval(&words(bad)).expect_err(bad).kind.exit_code(), 2);
        }
    }

    #[test]
    fn patterns_match_as_in_the_shell() {
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        for (pattern, text, yes) in [
            ("sd[b-d]", "sdc", true),
            ("sd[b-d]", "sde", false),
            ("sd[!b-d]", "sde", true),
            ("disk*.img", "disk12.img", true),
            ("disk?.img", "disk12.img", false),
            ("*", "", true),
            ("[", "[", false),
            ("[]", "]", false),
        ] {
            assert_eq!(matches(&chars(pattern), &chars(text)), yes, "{pattern} {text}");
        }
    }

    #[test]
    fn two_hits_are_named_and_none_is_guessed() {
        let pools = words("sdb tank");
        let member = |pool: &str, id, name: &str| DeviceStatus {
            pool: pool.into(),
            id,
            name: name.into(),
            path: format!("/nowhere/{name}"),
            ..DeviceStatus::default()
        };
        let members = [member("tank", 3, "sdb"), member("tank", 4, "sdc")];
        let error = target("sdb", &pools, &members, None).expect_err("two hits");
        assert_eq!(error.kind.exit_code(), 2);
        assert!(error.message.contains("pool sdb") && error.message.contains("device 3 of pool tank"), "{error}");
        assert_eq!(target("sdc", &pools, &members, None).expect("one").to_string(), "tank:4");
        assert_eq!(target("tank:3", &pools, &members, None).expect("one").to_string(), "tank:3");
        assert_eq!(target("xyz", &pools, &members, None).expect_err("none").kind.exit_code(), 4);
        assert_eq!(target("3", &pools, &members, None).expect_err("which pool").kind.exit_code(), 2);
    }
}
