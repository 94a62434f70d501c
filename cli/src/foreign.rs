//! Words from elsewhere: what people type who come from zpool, btrfs, mdadm or lvm, and what braid will have one day.
//!
//! A hint is exit 2 and names the command that was probably meant. What is designed but not there yet is exit 1 and
//! one clear sentence: the command was right, this version is too young.

use braid_host::control::api::ApiError;
use braid_host::control::check;

/// Commands that the design has and this version has not, with what they are about.
const NOT_YET: &[(&str, &str)] = &[
    ("check", "checking a pool offline"),
    ("config", "the configuration file"),
    ("debug", "debug bundles"),
    ("doctor", "the check of the machine"),
    ("dump-super", "dumping superblocks"),
    ("heat", "the heat map"),
    ("history", "the history of commands"),
    ("inspect-internal", "looking into a pool's records"),
    ("label", "labelling devices"),
    ("rename", "renaming a pool"),
    ("report", "reports"),
    ("resize-device", "resizing a device"),
    ("snapshot", "snapshots"),
    ("top", "the live view"),
    ("trim", "trimming devices"),
    ("upgrade", "upgrading the format"),
];

/// The same for `braid device …`.
const DEVICE_NOT_YET: &[(&str, &str)] = &[("ready", "waiting for devices"), ("resize", "resizing a device")];

/// Options of mdadm's create that may have their value as the next word.
const MDADM_VALUES: &str =
    "-l --level -n --raid-devices -x --spare-devices -c --chunk -e --metadata -b --bitmap -p --layout -N --name";

/// Words of `zpool create` between the pool and the devices, and the profile that does the same.
const VDEV_WORDS: &[(&str, &str)] = &[
    ("mirror", "raid1"),
    ("raidz", "raid5"),
    ("raidz1", "raid5"),
    ("raidz2", "raid6"),
    ("raidz3", "raid1c4"),
    ("draid", "raid5"),
    ("draid1", "raid5"),
    ("draid2", "raid6"),
    ("draid3", "raid1c4"),
    ("stripe", "raid0"),
    ("spare", ""),
    ("log", ""),
    ("cache", ""),
    ("special", ""),
    ("dedup", ""),
];

fn meant(code: &str, why: &str, command: impl std::fmt::Display) -> ApiError {
    ApiError::usage(code, why.to_string()).hint(format!("you may mean: {command}"))
}

/// Looks at the words before they are parsed: grammars that are wrong from the first word on.
pub(crate) fn hint(words: &[String]) -> Option<ApiError> {
    let first = words.first()?.as_str();
    let rest: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let is_option = |at: usize| rest[at].starts_with('-') || at > 0 && rest[at - 1] == "--socket";
    let names = || (0..rest.len()).filter(|&at| !is_option(at)).map(|at| rest[at]).collect::<Vec<_>>();
    let pool = || names().first().map_or("tank", |n| n.rsplit('/').next().unwrap_or(n)).to_string();
    match first {
        "create" if !rest.contains(&"-V") => vdevs(&rest).or_else(|| level(&rest)),
        "attach" => Some(attach(&names())),
        "detach" | "drain" | "evacuate" => {
            let command = format!("braid remove {}", rest.join(" "));
            Some(meant(
                "grammar.foreign",
                "a device leaves with remove, which moves its content to the others first",
                command,
            ))
        }
        "rebuild" | "resilver" => {
            let why = "members are brought up to date by themselves, once they are back or replaced";
            Some(meant("grammar.foreign", why, format!("braid status {}", pool())))
        }
        "jobs" => Some(meant("grammar.foreign", "jobs are a part of the status", "braid status")),
        "list" if rest.contains(&"-v") => {
            let command =
                names().first().map_or("braid device list".into(), |pool| format!("braid device list {pool}"));
            Some(meant("grammar.foreign", "devices have a list of their own", command))
        }
        "volume" | "vol" | "subvolume" => volume(first, &rest),
        "version" => Some(meant("grammar.foreign", "it is an option", "braid --version")),
        "detail" => Some(meant("grammar.foreign", "it is a part of the status", format!("braid status {}", pool()))),
        "sync" => Some(meant(
            "grammar.foreign",
            "what a client flushed is on the devices, and what it did not is for it to flush",
            format!("braid status {}", pool()),
        )),
        "labelclear" => Some(meant(
            "grammar.foreign",
            "a device that held something else is taken with -f",
            format!("braid add -f tank {}", names().first().unwrap_or(&"DEVICE")),
        )),
        "device" if matches!(rest.first(), Some(&"offline" | &"online")) => {
            Some(meant("grammar.foreign", "it is a command of its own", format!("braid {}", rest.join(" "))))
        }
        // What follows may be foreign as well: the last hint is one that works.
        "zpool" | "zfs" | "btrfs" => hint(&words[1..])
            .or_else(|| Some(meant("grammar.foreign", "braid is one command", format!("braid {}", rest.join(" "))))),
        "sim" | "simulate" | "simulator" => {
            Some(meant("grammar.foreign", "the engine in virtual time is called the lab", "braid lab"))
        }
        "--detail" | "-D" | "--misc" | "--query" | "-Q" => {
            Some(meant("grammar.foreign", "braid has no modes as mdadm has", format!("braid status {}", pool())))
        }
        "--examine" | "-E" => Some(meant("grammar.foreign", "braid has no modes as mdadm has", "braid device scan")),
        "--create" | "-C" | "--build" => level(&rest).or_else(|| {
            let command = "braid create tank -d raid1 /dev/sda /dev/sdb";
            Some(meant("grammar.foreign", "braid has no modes as mdadm has", command))
        }),
        "--assemble" | "-A" => Some(meant("grammar.foreign", "braid has no modes as mdadm has", "braid import -a")),
        "--stop" | "-S" => {
            Some(meant("grammar.foreign", "braid has no modes as mdadm has", format!("braid export {}", pool())))
        }
        "mdadm" => hint(&words[1..]).or_else(|| Some(meant("grammar.foreign", "braid is not mdadm", "braid help"))),
        "lvcreate" => Some(lvcreate(&rest)),
        "lvs" | "lvdisplay" => Some(meant("grammar.foreign", "braid is one command", "braid volume list")),
        "vgs" | "vgdisplay" => Some(meant("grammar.foreign", "braid is one command", "braid list")),
        "pvs" | "pvdisplay" => Some(meant("grammar.foreign", "braid is one command", "braid device list")),
        "pvcreate" => Some(meant("grammar.foreign", "devices need no preparation", "braid create tank DEVICE...")),
        "vgcreate" => {
            Some(meant("grammar.foreign", "braid is one command", format!("braid create {}", rest.join(" "))))
        }
        "lvresize" | "lvextend" => {
            let size = option(&rest, &["-L", "--size"]).unwrap_or("+5G");
            let volume = names().into_iter().find(|n| n.contains('/') && *n != size).unwrap_or("tank/v");
            Some(meant("grammar.foreign", "braid is one command", format!("braid resize {volume} {size}")))
        }
        "lvremove" => {
            Some(meant("grammar.foreign", "braid is one command", format!("braid volume destroy {}", rest.join(" "))))
        }
        _ => None,
    }
}

/// `volume rm tank/v`, `subvolume list`: other verbs, and what btrfs has in place of volumes.
fn volume(noun: &str, words: &[&str]) -> Option<ApiError> {
    let (verb, rest) = words.split_first()?;
    let own = match *verb {
        "rm" | "remove" | "delete" => "destroy",
        "ls" | "show" => "list",
        verb if noun == "subvolume" => verb,
        _ => return None,
    };
    let words: Vec<&str> = ["braid volume", own].iter().chain(rest).copied().collect();
    let why = "the verbs of volumes are create, list, resize, rename, destroy, set, get and map";
    Some(meant("grammar.foreign", why, words.join(" ")))
}

fn option<'a>(words: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let at = words.iter().position(|w| names.contains(w))?;
    words.get(at + 1).copied()
}

fn lvcreate(words: &[&str]) -> ApiError {
    let size = option(words, &["-L", "--size"]).unwrap_or("10G");
    let name = option(words, &["-n", "--name"]).unwrap_or("v");
    let group = words.last().filter(|w| !w.starts_with('-') && **w != size && **w != name).unwrap_or(&"tank");
    meant(
        "grammar.foreign",
        "volumes are made with a noun and a verb",
        format!("braid volume create {group}/{name} {size}"),
    )
}

/// `attach tank sda sdb`: a pool has as many copies as its profile says.
fn attach(names: &[&str]) -> ApiError {
    let pool = names.first().unwrap_or(&"tank");
    let device = names.get(1..).and_then(|devices| devices.last()).unwrap_or(&"DEVICE");
    let command = format!("braid add {pool} {device}   and then: braid balance start -d raid1 -m raid1 {pool}");
    meant("grammar.foreign", "a pool has as many copies as its profile says, on whichever devices have room", command)
}

/// `create /dev/md0 --level=6 --raid-devices=4 sda ...`: levels of mdadm.
fn level(words: &[&str]) -> Option<ApiError> {
    let level = words.iter().find_map(|w| w.strip_prefix("--level=")).or_else(|| option(words, &["-l", "--level"]))?;
    let profile = match level.trim_start_matches("raid") {
        "0" | "stripe" => "raid0",
        "1" | "mirror" => "raid1",
        "4" | "5" => "raid5",
        "6" => "raid6",
        "10" => "raid10",
        "linear" => "single",
        _ => return None,
    };
    let is_value = |at: usize| at > 0 && MDADM_VALUES.split(' ').any(|option| option == words[at - 1]);
    let plain = words.iter().enumerate().filter(|&(at, w)| !w.starts_with('-') && !is_value(at)).map(|(_, w)| *w);
    let plain: Vec<&str> = plain.collect();
    let (pool, devices) = plain.split_first()?;
    let pool = pool.rsplit('/').next().unwrap_or(pool);
    let command = format!("braid create {pool} -d {profile} {}", devices.join(" "));
    Some(meant(
        "grammar.foreign",
        "braid has no levels: profiles are said with -d for data, and -m for metadata",
        command,
    ))
}

/// `create tank mirror sda sdb`: vdevs, which braid has not.
fn vdevs(words: &[&str]) -> Option<ApiError> {
    let row = |w: &&str| VDEV_WORDS.iter().find(|(word, _)| word == w);
    let (at, (_, profile)) = words.iter().enumerate().skip(1).find_map(|(i, w)| row(w).map(|r| (i, r)))?;
    // The value of an option, such as `-d mirror`, has its own error.
    if words[at - 1].starts_with('-') {
        return None;
    }
    let plain: Vec<&str> = words.iter().filter(|w| !w.starts_with('-') && row(w).is_none()).copied().collect();
    let (pool, devices) = plain.split_first()?;
    let devices: Vec<String> = devices
        .iter()
        .map(|d| if crate::resolve::is_device(d) { d.to_string() } else { format!("/dev/{d}") })
        .collect();
    let mut command = format!("braid create {pool}");
    match *profile {
        "" => command.push_str(&format!(" {} (and --class or --tier say what is for metadata)", devices.join(" "))),
        profile => command.push_str(&format!(" -d {profile} {}", devices.join(" "))),
    }
    Some(meant("grammar.vdev", "braid has no vdevs: a pool has one profile, each chunk picks its devices", command))
}

/// A first word that is no command.
pub(crate) fn unknown(words: &[String], commands: &[String]) -> ApiError {
    unknown_in("braid", words, commands, NOT_YET)
}

/// As [`unknown`], for `braid device …`.
pub(crate) fn unknown_device(words: &[String], commands: &[String]) -> ApiError {
    unknown_in("braid device", words, commands, DEVICE_NOT_YET)
}

/// As [`unknown`], for groups of which nothing is missing.
pub(crate) fn unknown_group(group: &str, words: &[String], commands: &[String]) -> ApiError {
    unknown_in(group, words, commands, &[])
}

fn unknown_in(group: &str, words: &[String], commands: &[String], not_yet: &[(&str, &str)]) -> ApiError {
    let word = words.first().map_or("", String::as_str);
    if let Some((_, what)) = not_yet.iter().find(|(name, _)| *name == word) {
        return too_young(what);
    }
    let candidates: Vec<&str> = commands.iter().map(String::as_str).filter(|c| c.starts_with(word)).collect();
    let young: Vec<&(&str, &str)> = not_yet.iter().filter(|(name, _)| name.starts_with(word)).collect();
    match (candidates.as_slice(), young.as_slice()) {
        ([], [(_, what)]) => return too_young(what),
        ([], []) => {}
        _ => {
            let names: Vec<&str> = candidates.into_iter().chain(young.iter().map(|(name, _)| *name)).collect();
            let message = format!("'{group} {word}' could be {}", names.join(", "));
            return ApiError::usage("command.ambiguous", message);
        }
    }
    let names: Vec<&str> = commands.iter().map(String::as_str).collect();
    let error = ApiError::usage("command.unknown", format!("there is no command '{group} {word}'"));
    match check::nearest(word, &names) {
        Some(near) => error.hint(format!("you may mean: {group} {near}")),
        None => error.hint(format!("see what there is with: {group} --help")),
    }
}

fn too_young(what: &str) -> ApiError {
    ApiError::failed("not_yet", format!("{what} is not there yet in this version of braid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_grammar_gets_the_command_that_was_meant() {
        for (typed, command) in [
            ("create tank mirror sda sdb", "braid create tank -d raid1 /dev/sda /dev/sdb"),
            ("create tank raidz2 /dev/sda /dev/sdb /dev/sdc", "braid create tank -d raid6 /dev/sda /dev/sdb /dev/sdc"),
            ("create -f tank raidz sda sdb", "braid create tank -d raid5 /dev/sda /dev/sdb"),
            ("zpool status -x", "braid status -x"),
            ("zpool create tank mirror sda sdb", "braid create tank -d raid1 /dev/sda /dev/sdb"),
            ("sim --seed 1", "braid lab"),
            ("btrfs fi show", "braid fi show"),
            ("--detail /dev/md/tank", "braid status tank"),
            ("mdadm --detail tank", "braid status tank"),
            ("--assemble --scan", "braid import -a"),
            ("lvcreate -L 10G -n v vg", "braid volume create vg/v 10G"),
            ("lvextend -L +5G vg/v", "braid resize vg/v +5G"),
            ("lvs", "braid volume list"),
            ("create --level=6 tank /dev/sda /dev/sdb", "braid create tank -d raid6 /dev/sda /dev/sdb"),
            ("mdadm --create /dev/md0 -l 5 -n 3 /dev/sd[abc]", "braid create md0 -d raid5 /dev/sd[abc]"),
            ("mdadm -C /dev/md0 -e 1.2 -l 6 -n 2 sda sdb", "braid create md0 -d raid6 sda sdb"),
            ("attach tank sda sdb", "braid add tank sdb   and then: braid balance start -d raid1 -m raid1 tank"),
            ("drain tank 2", "braid remove tank 2"),
            ("jobs", "braid status"),
            ("rebuild tank", "braid status tank"),
            ("device online tank 2", "braid online tank 2"),
            ("device offline tank 2", "braid offline tank 2"),
            ("zpool detach tank sda", "braid remove tank sda"),
            ("evacuate tank 2", "braid remove tank 2"),
            ("resilver tank", "braid status tank"),
            (
                "attach tank sda sdb --socket s",
                "braid add tank sdb   and then: braid balance start -d raid1 -m raid1 tank",
            ),
            ("list -v tank", "braid device list tank"),
            ("zpool list -v", "braid device list"),
            ("volume rm tank/v", "braid volume destroy tank/v"),
            ("vol ls", "braid volume list"),
            ("btrfs subvolume delete tank/v", "braid volume destroy tank/v"),
            ("subvolume create tank/v 1G", "braid volume create tank/v 1G"),
            ("zpool version", "braid --version"),
            ("mdadm detail tank", "braid status tank"),
            ("zpool sync tank", "braid status tank"),
            ("zpool labelclear /dev/sdb", "braid add -f tank /dev/sdb"),
        ] {
            let words: Vec<String> = typed.split(' ').map(String::from).collect();
            let error = hint(&words).unwrap_or_else(|| panic!("{typed}: no hint"));
            assert_eq!(error.kind.exit_code(), 2);
            assert_eq!(error.hint.as_deref(), Some(format!("you may mean: {command}").as_str()), "{typed}");
        }
        for typed in [
            "create tank -d mirror /dev/sda",
            "create -V 10G tank/log",
            "create mirror /dev/sda",
            "status",
            "volume list",
        ] {
            let words: Vec<String> = typed.split(' ').map(String::from).collect();
            assert_eq!(hint(&words), None, "{typed}");
        }
    }

    /// What is there is not said to be missing.
    #[test]
    fn what_is_not_there_yet_is_not_there() {
        for (group, not_yet) in [(None, NOT_YET), (Some("device"), DEVICE_NOT_YET)] {
            let there = crate::manual::names(group);
            for (name, _) in not_yet {
                assert!(!there.iter().any(|command| command == name), "{group:?} {name}");
            }
        }
    }

    #[test]
    fn unknown_words_and_words_too_early() {
        let commands: Vec<String> = ["status", "share", "shares", "unshare", "list"].map(String::from).into();
        for (word, code, exit) in [
            ("trim", "not_yet", 1),
            ("snap", "not_yet", 1),
            ("sha", "command.ambiguous", 2),
            ("re", "command.ambiguous", 2),
            ("lisst", "command.unknown", 2),
            ("xyzzy", "command.unknown", 2),
        ] {
            let error = unknown(&[word.to_string()], &commands);
            assert_eq!((error.code.as_str(), error.kind.exit_code()), (code, exit), "{word}");
        }
    }
}
