//! What a request for a pool stands for: profiles, classes and tiers made definite. Only words and numbers.

use std::collections::BTreeMap;

use braid_core::allocator::{Hint, Mode};
use braid_core::meta::format::{self, NewPool};
use braid_core::sums::Checksum;
use braid_core::units::Uuid;
use braid_core::{ChunkType, DeviceClass, Profile, Tiers};

use super::Claimed;
use crate::control::api::*;
use crate::control::size;
use crate::daemon::{discover, properties, seen};

fn fresh_uuid() -> Uuid {
    Uuid(uuid::Uuid::new_v4().into_bytes())
}

/// Metadata that was asked for with parity is kept in copies; the sentence that says so.
pub(in crate::daemon) fn kept_on(metadata: Profile) -> (Profile, Option<String>) {
    if metadata.carries(ChunkType::Metadata) {
        return (metadata, None);
    }
    let (asked, copies) = (metadata.name(), metadata.system());
    let note = format!(
        "metadata on {asked} is kept on {}: it survives as much, and the journal of rows, which stands there, needs copies",
        copies.name()
    );
    (copies, Some(note))
}

/// What the request stands for: profiles, classes and tiers made definite.
pub(super) fn new_pool(request: &CreatePool, claimed: &[Claimed]) -> Result<(NewPool, Vec<String>), ApiError> {
    let count = claimed.len();
    let mut notes = Vec::new();
    let profile = |what: &str, spec: &Option<ProfileSpec>, otherwise: Profile| match spec {
        None => Ok(otherwise),
        Some(spec) => Profile::parse(&spec.profile).ok_or_else(|| {
            ApiError::usage("profile.unknown", format!("there is no {what} profile '{}'", spec.profile))
        }),
    };
    let [usual_data, usual_metadata] = Profile::usual(count);
    let data = profile("data", &request.data, usual_data)?;
    // Parity without metadata that survives as much would be for nothing.
    let otherwise = if data.carries(ChunkType::Metadata) { usual_metadata } else { data.system() };
    let (metadata, note) = kept_on(profile("metadata", &request.metadata, otherwise)?);
    notes.extend(note);
    let survives = |p: Profile| p.facts().tolerated_failures;
    if data.facts().parity > 0 && survives(metadata) < survives(data) {
        notes.push(format!(
            "data on {} survives {} failures and metadata on {} survives {}: the pool survives the fewer; use -m {}",
            data.name(),
            survives(data),
            metadata.name(),
            survives(metadata),
            data.system().name()
        ));
    }

    let asked: Vec<NewDevice> =
        request.devices.iter().cloned().chain((request.devices.len()..count).map(|_| NewDevice::default())).collect();
    let mut devices = new_devices(&asked, claimed, &mut notes)?;
    prefer_classes(request, &mut devices)?;
    set_tiers(&asked, &mut devices)?;

    let mut properties = Vec::new();
    if let Some(mode) = &request.mode {
        properties.push(("allocation".to_string(), mode.clone()));
    }
    if request.strict {
        properties.push(("strict".to_string(), "on".to_string()));
    }
    for (name, value) in &request.properties {
        properties.push((properties::canonical(name).to_string(), value.clone()));
    }
    if !properties.iter().any(|(name, _)| name == "checksum") {
        properties.push(("checksum".into(), Checksum::Crc32c.name().into()));
    }
    // `strict` belongs to a mode, so the mode comes first.
    properties.sort_by_key(|(name, _)| name != "allocation");
    let mut trial = braid_core::properties::Properties::default();
    for (name, value) in &properties {
        notes.extend(trial.set(name, value)?);
    }
    if let Some(id) = trial.read_policy.device()
        && id.index() > count
    {
        return Err(ApiError::usage(
            "read_policy.no_device",
            format!("read policy devid:{id}: there will be devices 1 to {count}"),
        ));
    }
    Ok((NewPool { name: request.name.clone(), uuid: fresh_uuid(), data, metadata, devices, properties }, notes))
}

/// Members as they were asked for, without tiers.
pub(in crate::daemon) fn new_devices(
    asked: &[NewDevice],
    claimed: &[Claimed],
    notes: &mut Vec<String>,
) -> Result<Vec<format::NewDevice>, ApiError> {
    notes.extend(thin(claimed));
    let mut devices = Vec::new();
    for (claimed, asked) in claimed.iter().zip(asked) {
        let word = asked.class.as_deref().unwrap_or_else(|| discover::class_of(&claimed.spec, &claimed.facts));
        let class = DeviceClass::parse(word).ok_or_else(|| {
            ApiError::usage("class.bad_name", format!("'{word}' cannot be a device class"))
                .hint("1 to 15 of a-z 0-9 . _ -, such as nvme, ssd, hdd")
        })?;
        if asked.class.is_some()
            && claimed.facts.rotational != (word == "hdd")
            && matches!(word, "nvme" | "ssd" | "hdd")
        {
            let says = if claimed.facts.rotational { "that it rotates" } else { "that it does not rotate" };
            notes.push(format!("{} is of class {word}, and the kernel says {says}", claimed.path));
        }
        devices.push(format::NewDevice {
            uuid: fresh_uuid(),
            path: seen::record(&claimed.path, claimed.facts.serial.as_deref()),
            size: claimed.facts.size,
            class,
            rotational: claimed.facts.rotational,
            tiers: None,
            hint: Hint::default(),
        });
    }
    Ok(devices)
}

/// Sparse files that their filesystem has no room for.
fn thin(claimed: &[Claimed]) -> Vec<String> {
    let mut by_filesystem: BTreeMap<u64, (Vec<&str>, u64, u64)> = BTreeMap::new();
    for (file, growth) in claimed.iter().filter_map(|c| Some((c.path.as_str(), c.facts.growth?))) {
        let (files, bytes, free) = by_filesystem.entry(growth.filesystem).or_insert((Vec::new(), 0, growth.free));
        files.push(file);
        (*bytes, *free) = (bytes.saturating_add(growth.bytes), growth.free.min(*free));
    }
    let short = by_filesystem.into_values().filter(|(_, bytes, free)| bytes > free);
    let sentence = |(files, bytes, free): (Vec<&str>, u64, u64)| {
        let (free, bytes) = (size::long(free), size::long(bytes));
        let more = if files.len() > 1 { format!(" and {} more", files.len() - 1) } else { String::new() };
        format!(
            "the filesystem of {}{more} has {free} free for {bytes} that may still be written there: when it is full, writes \
             fail, and a member that the pool can spare is given up",
            files[0]
        )
    };
    short.map(sentence).collect()
}

/// Tiers that were asked for.
pub(in crate::daemon) fn set_tiers(asked: &[NewDevice], devices: &mut [format::NewDevice]) -> Result<(), ApiError> {
    for (device, asked) in devices.iter_mut().zip(asked) {
        if let Some(tiers) = asked_tiers(device.tiers.unwrap_or_else(|| device.class.default_tiers()), &asked.tiers)? {
            device.tiers = Some(tiers);
        }
    }
    Ok(())
}

/// `raid1@ssd,hdd`: those classes come first, in this order; all others after them.
fn prefer_classes(request: &CreatePool, devices: &mut [format::NewDevice]) -> Result<(), ApiError> {
    for (is_data, spec) in [(true, &request.data), (false, &request.metadata)] {
        let Some(spec) = spec.as_ref().filter(|s| !s.classes.is_empty()) else { continue };
        if request.mode.as_deref().is_some_and(|m| Mode::parse(m) != Some(Mode::default())) {
            let message = format!("{spec}: classes of a profile need allocation mode {}", Mode::default().name());
            return Err(ApiError::usage("profile.classes_need_tiers", message));
        }
        if let Some(none) = spec.classes.iter().find(|c| !devices.iter().any(|d| d.class.name() == *c)) {
            let message = format!("{spec}: no device is of class {none}");
            return Err(ApiError::usage("class.no_device", message).hint(format!("say which: --class {none}=/dev/…")));
        }
        let listed = u8::try_from(spec.classes.len()).unwrap_or(u8::MAX);
        for device in devices.iter_mut() {
            let mut tiers = device.tiers.unwrap_or_else(|| device.class.default_tiers());
            let tier = if is_data { &mut tiers.data } else { &mut tiers.metadata };
            *tier = match spec.classes.iter().position(|c| c == device.class.name()) {
                Some(place) => u8::try_from(place).unwrap_or(u8::MAX - 1),
                None => tier.saturating_add(listed).min(Tiers::NEVER - 1),
            };
            device.tiers = Some(tiers);
        }
    }
    Ok(())
}

/// Tiers of one device as asked; `None` when nothing was asked.
fn asked_tiers(mut tiers: Tiers, asked: &BTreeMap<String, u8>) -> Result<Option<Tiers>, ApiError> {
    if asked.is_empty() {
        return Ok(None);
    }
    tiers.data = asked.get("data").copied().unwrap_or(tiers.data);
    tiers.metadata = asked.get("metadata").copied().unwrap_or(tiers.metadata);
    match asked.get("system") {
        Some(system) if *system != tiers.metadata => Err(ApiError::usage(
            "tier.system",
            format!(
                "the pool's own records are placed as metadata is: tier.system cannot be {system} and tier.metadata {}",
                tiers.metadata
            ),
        )
        .hint("leave tier.system out")),
        _ => Ok(Some(tiers)),
    }
}
