//! What of a request can be judged without knowing the pool: words, names, ranges, doubles.
//!
//! The server runs these before a [`Service`](super::service::Service) sees the request, so that every error about a word
//! is the same sentence wherever it is met, and lists the words there are. Whatever depends on the pool or on the
//! devices (space, what a device carries, whether an id exists) is the service's to judge.

use super::api::{
    AddDevices, ApiError, Balance, CreatePool, CreateVolume, NewDevice, ProfileSpec, RenameVolume, ReplaceDevice,
    ResizeVolume, SetProperties, Target,
};
use super::size;
use braid_core::DeviceClass;
use braid_core::meta::record;
pub use braid_core::names::nearest;
use braid_core::units::{BLOCK, round_up};
use braid_core::volume::VOLUME_MAX;
use std::collections::BTreeSet;

/// Profiles and the fewest devices each needs, in the order of the documentation.
pub const PROFILES: &[(&str, usize)] = &[
    ("single", 1),
    ("dup", 1),
    ("raid0", 1),
    ("raid1", 2),
    ("raid1c3", 3),
    ("raid1c4", 4),
    ("raid10", 2),
    ("raid5", 2),
    ("raid6", 3),
];

/// Allocation modes; braid's own default last.
pub const MODES: &[&str] = &["stock", "ssd-metadata-v1", "ssd-metadata", "allocation-hint", "tiers"];

/// Read policies. `:N` and `:BYTES` show where a value belongs, `[…]` that it may be left out.
pub const POLICIES: &[&str] = &[
    "pid",
    "latency-2021",
    "latency-2024",
    "latency",
    "device",
    "devid:N",
    "roundrobin-v3",
    "round-robin[:BYTES]",
    "queue",
    "zfs[:NAME=N,…]",
    "parity-avoid-slow",
];

/// Chunk types that have a tier.
pub const TIER_TYPES: &[&str] = &["data", "metadata", "system"];

/// What a volume's writes can count as.
pub const VOLUME_CLASSES: &[&str] = &["auto", "metadata", "data"];

/// Longest name of a pool or volume, in bytes.
pub const NAME_MAX: usize = 64;

/// Most members a pool is made with: as many as there are ids.
pub const DEVICES_MAX: usize = record::DEVICES_MAX as usize - 1;

/// Words that mean something else where a pool name may stand, here or in the tools that people come from.
const NOT_POOL_NAMES: &[&str] = &[
    "all", "cache", "cancel", "data", "dedup", "device", "limit", "log", "metadata", "mirror", "missing", "none",
    "pause", "resume", "spare", "special", "start", "status", "stop", "stripe", "system", "volume",
];

/// Can this be a pool's name?
pub fn pool_name(name: &str) -> Result<(), ApiError> {
    let reserved = NOT_POOL_NAMES.contains(&name)
        || PROFILES.iter().any(|(p, _)| *p == name)
        || ["raid", "draid", "mirror-"].iter().any(|p| name.starts_with(p));
    if reserved {
        let message = format!("'{name}' cannot be a pool's name: it is a word of the commands");
        return Err(ApiError::usage("pool.bad_name", message).hint("choose another, such as tank"));
    }
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    if !starts_well || !word(name) {
        let message = format!(
            "'{name}' cannot be a pool's name: a letter, then letters, digits, '_', '-', '.'; {NAME_MAX} bytes at most"
        );
        return Err(ApiError::usage("pool.bad_name", message)
            .hint("a pool is a plain name such as tank, a device has a '/' or a scheme such as ram:"));
    }
    Ok(())
}

/// Can this be a volume's name?
pub fn volume_name(name: &str) -> Result<(), ApiError> {
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if !starts_well || !word(name) {
        let message = format!(
            "'{name}' cannot be a volume's name: a letter or digit, then letters, digits, '_', '-', '.'; {NAME_MAX} bytes at most"
        );
        return Err(ApiError::usage("volume.bad_name", message).hint("a volume is written POOL/NAME, such as tank/vm0"));
    }
    Ok(())
}

fn word(name: &str) -> bool {
    name.len() <= NAME_MAX && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

/// Can this be a device class?
fn class_name(name: &str) -> Result<(), ApiError> {
    if DeviceClass::parse(name).is_some() {
        return Ok(());
    }
    Err(ApiError::usage("class.bad_name", format!("'{name}' cannot be a device class"))
        .hint("a class is 1 to 15 characters a-z 0-9 . _ -, such as nvme, ssd, hdd, or one of your own"))
}

/// Is this a profile?
pub fn profile(spec: &ProfileSpec) -> Result<usize, ApiError> {
    spec.classes.iter().try_for_each(|class| class_name(class))?;
    if let Some((_, min)) = PROFILES.iter().find(|(name, _)| *name == spec.profile) {
        return Ok(*min);
    }
    let names: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
    let translated = match spec.profile.as_str() {
        "mirror" | "1" => Some("raid1"),
        "stripe" | "0" => Some("raid0"),
        "jbod" | "linear" | "concat" => Some("single"),
        "raidz" | "raidz1" | "draid" | "draid1" | "5" => Some("raid5"),
        "raidz2" | "draid2" | "6" => Some("raid6"),
        "10" => Some("raid10"),
        "raidz3" | "raid7" | "draid3" => Some("raid1c4"),
        _ => nearest(&spec.profile, &names),
    };
    Err(unknown("profile", &spec.profile, &names, translated))
}

/// Is this an allocation mode?
pub fn mode(value: &str) -> Result<(), ApiError> {
    match MODES.contains(&value) {
        true => Ok(()),
        false => Err(unknown("allocation mode", value, MODES, nearest(value, MODES))),
    }
}

/// Is this a read policy, with a value of the right shape?
pub fn read_policy(value: &str) -> Result<(), ApiError> {
    let (name, argument) = value.split_once(':').map_or((value, None), |(n, a)| (n, Some(a)));
    let bad = |message: String| Err(ApiError::usage("read_policy.bad_value", message));
    match (name, argument) {
        ("devid", Some(id)) if id.parse::<u32>().is_ok_and(|id| id > 0) => Ok(()),
        ("devid", _) => bad("the read policy devid needs the id of a device, such as devid:1".into()),
        ("round-robin", None | Some("-1")) => Ok(()),
        ("round-robin", Some(bytes)) => match size::parse(bytes) {
            Ok(bytes) if bytes > 0 => Ok(()),
            Ok(_) => bad("round-robin needs at least one block in a row, such as round-robin:256K".into()),
            Err(message) => bad(message),
        },
        ("zfs", None) => Ok(()),
        ("zfs", Some(_)) => braid_core::read_policy::ReadPolicy::parse(value).map(|_| ()).or_else(bad),
        (name, None) if POLICIES.contains(&name) => Ok(()),
        (name, Some(_)) if POLICIES.contains(&name) => bad(format!("the read policy {name} takes no value")),
        _ => {
            let bare: Vec<&str> = POLICIES.iter().map(|p| p.split([':', '[']).next().unwrap_or(p)).collect();
            let translated = match name {
                "roundrobin" | "rotation" | "rr" => Some("round-robin"),
                _ => nearest(name, &bare),
            };
            Err(unknown("read policy", value, POLICIES, translated))
        }
    }
}

/// Is this a tier?
pub fn tier(kind: &str, value: &str) -> Result<u8, ApiError> {
    if !TIER_TYPES.contains(&kind) {
        return Err(unknown("chunk type", kind, TIER_TYPES, nearest(kind, TIER_TYPES)));
    }
    value.parse().map_err(|_| {
        ApiError::usage("tier.out_of_range", format!("'{value}' is not a tier: 0 (first) to 254 (last), 255 = never"))
            .hint(format!("for example: braid set tier.{kind}=0 tank 3"))
    })
}

fn volume_class(value: &str) -> Result<(), ApiError> {
    match VOLUME_CLASSES.contains(&value) {
        true => Ok(()),
        false => Err(unknown("volume class", value, VOLUME_CLASSES, nearest(value, VOLUME_CLASSES))),
    }
}

fn yes_or_no(name: &str, value: &str) -> Result<(), ApiError> {
    match value {
        "0" | "1" | "on" | "off" | "yes" | "no" | "true" | "false" => Ok(()),
        _ => Err(ApiError::usage("value.invalid", format!("{name} is on or off, not '{value}'"))),
    }
}

/// An error that lists the words there are and names the nearest.
fn unknown(what: &str, word: &str, known: &[&str], nearest: Option<&str>) -> ApiError {
    let code = format!("{}.unknown", what.replace(' ', "_"));
    let error = ApiError::usage(&code, format!("there is no {what} '{word}'; known are {}", known.join(" ")));
    match nearest {
        Some(nearest) => error.hint(format!("you may mean {nearest}")),
        None => error,
    }
}

/// Everything about `create` that can be known before a device is looked at.
pub fn create(request: &mut CreatePool) -> Result<(), ApiError> {
    pool_name(&request.name)?;
    let files = request.files.as_ref().map_or(0, |f| f.count as usize);
    let count = request.devices.len().saturating_add(files);
    if count == 0 {
        return Err(ApiError::usage("pool.no_devices", "a pool needs at least one device")
            .hint("see what could be one with: braid device scan   or try with files: braid create tank --file 4x2G"));
    }
    if count > DEVICES_MAX {
        return Err(ApiError::usage("pool.too_many_devices", format!("{count} devices; {DEVICES_MAX} is the limit")));
    }
    if let Some(files) = &request.files
        && (!files.directory.starts_with('/') || files.size_bytes == 0)
    {
        return Err(ApiError::usage("files.invalid", "files need a size and the absolute path of their folder"));
    }
    new_devices(&request.devices)?;
    for (what, spec) in [("data", &request.data), ("metadata", &request.metadata)] {
        let Some(spec) = spec else { continue };
        let min = profile(spec)?;
        if count < min {
            let message = format!("{what} profile {} needs {min} devices, {count} given", spec.profile);
            let fits: Vec<&str> = PROFILES.iter().filter(|(_, m)| *m <= count).map(|(name, _)| *name).collect();
            return Err(ApiError::usage("pool.too_few_devices", message).hint(format!(
                "add {} more, or choose one of {}",
                min - count,
                fits.join(" ")
            )));
        }
    }
    request.mode.iter().try_for_each(|m| mode(m))?;
    request.properties.iter().try_for_each(|(name, value)| pool_property(name, value))
}

/// Devices that are to be members.
fn new_devices(devices: &[NewDevice]) -> Result<(), ApiError> {
    let mut seen = BTreeSet::new();
    for device in devices {
        device_path(&device.path)?;
        // Two RAM disks of one size are two disks; two names of one path are a slip.
        if device.path.starts_with('/') && !seen.insert(&device.path) {
            return Err(ApiError::usage("device.twice", format!("{} is named twice", device.path)));
        }
        device.class.iter().try_for_each(|class| class_name(class))?;
        device.tiers.iter().try_for_each(|(kind, value)| tier(kind, &value.to_string()).map(drop))?;
    }
    Ok(())
}

/// A request to add devices.
pub fn add(request: &mut AddDevices) -> Result<(), ApiError> {
    if request.devices.is_empty() {
        return Err(ApiError::usage("pool.no_devices", "which device? none was named")
            .hint("see what could be one with: braid device scan"));
    }
    new_devices(&request.devices)
}

/// A request to replace a member.
pub fn replace(request: &mut ReplaceDevice) -> Result<(), ApiError> {
    new_devices(std::slice::from_ref(&request.new))
}

/// A request to balance: profiles and numbers.
pub fn balance(request: &mut Balance) -> Result<(), ApiError> {
    for choice in [&request.data, &request.metadata].into_iter().flatten() {
        let names = choice.convert.iter().chain(&choice.profiles);
        for name in names {
            profile(&ProfileSpec { profile: name.clone(), classes: Vec::new() })?;
        }
        if choice.usage.is_some_and(|percent| percent > 100) {
            return Err(ApiError::usage("balance.usage", "usage is a percentage, 0 to 100"));
        }
    }
    Ok(())
}

fn device_path(path: &str) -> Result<(), ApiError> {
    if path.starts_with('/') && !path.ends_with('/') && !path.contains('\0') {
        return Ok(());
    }
    match path.split_once(':') {
        Some(("ram" | "null", bytes)) => {
            let bytes = size::parse(bytes).map_err(|m| ApiError::usage("device.bad_path", m))?;
            match bytes {
                0 => Err(ApiError::usage("device.bad_path", format!("{path} has no size"))),
                _ => Ok(()),
            }
        }
        Some(("model", rest)) => match rest.split_once(',') {
            Some((model, path)) if !model.is_empty() && path.starts_with('/') => device_path(path),
            _ => Err(ApiError::usage("device.bad_path", format!("'{path}' is not a device"))
                .hint("a modelled one is model:NAME,PATH or model:FILE.toml,PATH, such as model:hdd,./disk.img")),
        },
        Some((scheme @ ("nbd" | "nbd+unix" | "rbd" | "iscsi" | "http" | "https"), _)) => {
            Err(ApiError::not_yet(&format!("a {scheme} device")))
        }
        _ => Err(ApiError::usage("device.bad_path", format!("'{path}' is not a device"))
            .hint("a device is an absolute path, ram:SIZE, null:SIZE or model:NAME,PATH")),
    }
}

/// A pool property whose values are words known here; what is not known here passes.
fn pool_property(name: &str, value: &str) -> Result<(), ApiError> {
    match name {
        // The default.
        _ if value.is_empty() => Ok(()),
        "read_policy" => read_policy(value),
        "mode" | "allocation_mode" => mode(value),
        "strict" => yes_or_no(name, value),
        _ => Ok(()),
    }
}

/// Values of `set` that can be judged by their words alone.
pub fn set(request: &mut SetProperties) -> Result<(), ApiError> {
    if request.values.is_empty() {
        return Err(ApiError::usage("set.nothing", "nothing to set; write NAME=VALUE, such as read_policy=latency"));
    }
    for (name, value) in &request.values {
        match (&request.target, name.as_str()) {
            (Target::Pool { .. }, name) => pool_property(name, value)?,
            (Target::Device { .. }, "class") => class_name(value)?,
            (Target::Device { .. }, "rotational" | "read_preferred") => yes_or_no(name, value)?,
            (Target::Device { .. }, name) => {
                if let Some(kind) = name.strip_prefix("tier.") {
                    tier(kind, value)?;
                }
            }
            (Target::Volume { .. }, "class") => volume_class(value)?,
            (Target::Volume { .. }, _) => {}
        }
    }
    Ok(())
}

/// Name and size of a new volume; the size is rounded up to whole blocks.
pub fn volume_create(request: &mut CreateVolume) -> Result<(), ApiError> {
    volume_name(&request.volume)?;
    request.class.iter().try_for_each(|class| volume_class(class))?;
    if request.size_bytes == 0 {
        return Err(ApiError::usage("volume.bad_size", "a volume of no size is no volume; give one, such as 10G"));
    }
    if request.size_bytes > VOLUME_MAX {
        let message = format!("{} is larger than any volume can be", size::long(request.size_bytes));
        return Err(ApiError::usage("volume.too_large", message).hint(format!("at most {}", size::long(VOLUME_MAX))));
    }
    request.size_bytes = round_up(request.size_bytes, BLOCK);
    Ok(())
}

/// New size of a volume; rounded up to whole blocks.
pub fn volume_resize(request: &mut ResizeVolume) -> Result<(), ApiError> {
    if request.size_bytes == 0 || (!request.relative && request.size_bytes < 0) {
        return Err(ApiError::usage("volume.bad_size", "give the new size, such as 20G, or what to add, such as +5G"));
    }
    if request.size_bytes > 0 {
        let rounded = round_up((request.size_bytes as u64).min(VOLUME_MAX), BLOCK);
        request.size_bytes = rounded as i64;
    }
    Ok(())
}

/// New name of a volume.
pub fn volume_rename(request: &mut RenameVolume) -> Result<(), ApiError> {
    volume_name(&request.to)
}

#[cfg(test)]
mod tests {
    use super::super::api::{ErrorKind, NewDevice, NewFiles};
    use super::*;

    fn pool(name: &str, devices: &[&str], data: &str) -> CreatePool {
        let devices = devices.iter().map(|path| NewDevice { path: path.to_string(), ..NewDevice::default() }).collect();
        let data = Some(ProfileSpec { profile: data.into(), classes: vec![] });
        CreatePool { name: name.into(), devices, data, ..CreatePool::default() }
    }

    #[test]
    fn names_that_would_confuse_are_refused() {
        for name in ["tank", "a", "Tank_1", "my-pool.2"] {
            assert!(pool_name(name).is_ok(), "{name}");
        }
        let long = "x".repeat(NAME_MAX + 1);
        for name in ["", "mirror", "raidz2", "raid1", "start", "../x", "a/b", "3", "-x", "a b", "a:b", "tänk", &long] {
            assert_eq!(pool_name(name).expect_err(name).kind, ErrorKind::Usage);
        }
        for name in ["vm0", "0", "a.b"] {
            assert!(volume_name(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "../x", "a/b", "-x", ".hidden", &long] {
            assert_eq!(volume_name(name).expect_err(name).kind, ErrorKind::Usage);
        }
    }

    #[test]
    fn bad_pools_are_refused_with_a_reason_and_a_way_out() {
        for (mut request, code, hint) in [
            (pool("tank", &[], "raid1"), "pool.no_devices", "device scan"),
            (pool("tank", &["/dev/sda"], "raid1"), "pool.too_few_devices", "add 1 more"),
            (pool("tank", &["/a", "/b"], "raid6"), "pool.too_few_devices", "single dup raid0 raid1 raid10 raid5"),
            (pool("tank", &["/a", "/b", "/a"], "raid1"), "device.twice", ""),
            (pool("tank", &["a", "/b"], "raid1"), "device.bad_path", "absolute path"),
            (pool("tank", &["rbd:p/i", "/b"], "raid1"), "not_yet", ""),
            (pool("tank", &["ram:10s"], "single"), "device.bad_path", ""),
            (pool("tank", &["ram:0"], "single"), "device.bad_path", ""),
            (pool("tank", &["/a", "/b", "/c"], "raidz"), "profile.unknown", "raid5"),
            (pool("tank", &["/a", "/b"], "raid01"), "profile.unknown", "raid0"),
            (pool("mirror", &["/a", "/b"], "raid1"), "pool.bad_name", "tank"),
        ] {
            let error = create(&mut request).expect_err(code);
            assert_eq!(error.code, code, "{error:?}");
            assert!(error.hint.clone().unwrap_or_default().contains(hint), "{error:?}");
        }
        assert!(create(&mut pool("tank", &["ram:1G", "ram:1G"], "raid1")).is_ok(), "two RAM disks are two");
        let mut files = pool("tank", &[], "raid10");
        files.files = Some(NewFiles { count: 4, size_bytes: 2 << 30, directory: "/x".into() });
        assert!(create(&mut files).is_ok());
    }

    #[test]
    fn read_policies_and_their_values() {
        for good in [
            "pid",
            "latency",
            "latency-2021",
            "latency-2024",
            "device",
            "devid:1",
            "roundrobin-v3",
            "round-robin",
            "round-robin:256K",
            "round-robin:-1",
            "queue",
            "zfs",
            "zfs:rotating_seek_inc=7,non_rotating_seek_inc=0",
        ] {
            assert!(read_policy(good).is_ok(), "{good}");
        }
        for (bad, hint) in [("latncy", "latency"), ("roundrobin", "round-robin"), ("que", "queue"), ("xyzzy-plugh", "")]
        {
            let error = read_policy(bad).expect_err(bad);
            assert_eq!((error.code.as_str(), error.kind), ("read_policy.unknown", ErrorKind::Usage));
            assert!(error.message.contains("pid latency-2021"), "lists the known: {error:?}");
            assert!(error.hint.unwrap_or_default().contains(hint));
        }
        for bad in ["devid", "devid:0", "devid:x", "round-robin:0", "round-robin:10s", "pid:1"] {
            assert_eq!(read_policy(bad).expect_err(bad).code, "read_policy.bad_value");
        }
    }

    #[test]
    fn tiers_are_a_byte() {
        assert_eq!((tier("data", "0"), tier("metadata", "255")), (Ok(0), Ok(255)));
        for (kind, value, code) in [
            ("data", "256", "tier.out_of_range"),
            ("data", "-1", "tier.out_of_range"),
            ("dta", "1", "chunk_type.unknown"),
        ] {
            assert_eq!(tier(kind, value).expect_err(value).code, code);
        }
    }

    #[test]
    fn sizes_become_whole_blocks() {
        let mut request = CreateVolume { volume: "v".into(), size_bytes: 10_000_000_000, ..CreateVolume::default() };
        assert!(volume_create(&mut request).is_ok());
        assert_eq!(request.size_bytes, 10_000_003_072);
        request.size_bytes = u64::MAX;
        assert_eq!(volume_create(&mut request).expect_err("too large").code, "volume.too_large");
    }
}
