//! Properties of pools, devices and volumes: their names, what they may be, how they are set.

use std::collections::{BTreeMap, VecDeque};

use braid_core::allocator::{Hint, Mode};
use braid_core::control::{Command, Done, VolumeClass};
use braid_core::properties::Properties;
use braid_core::queue::config::{self, Config, Overrides, SchedulerName};
use braid_core::read_policy::ReadPolicy;
use braid_core::report::{DeviceReport, PoolReport};
use braid_core::units::DeviceId;
use braid_core::{ChunkType, DeviceClass, DeviceState};

use super::{Daemon, OpenPool, lock, views};
use crate::control::api::*;

/// The engine's name of a pool property; operators also say `mode`.
pub(super) fn canonical(name: &str) -> &str {
    match name {
        "mode" | "allocation_mode" => "allocation",
        other => other,
    }
}

/// The name that `get` shows.
fn shown(name: &str) -> &str {
    if name == "allocation" { "mode" } else { name }
}

const ON_OFF: [&str; 2] = ["on", "off"];

fn on_off(value: bool) -> String {
    if value { "on" } else { "off" }.into()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_string()).collect()
}

/// A property before it knows what it belongs to.
fn one(name: &str, value: impl Into<String>, source: Source, choices: Vec<String>) -> Property {
    let read_only = source == Source::Fixed;
    Property { target: String::new(), name: name.into(), value: value.into(), source, choices, read_only }
}

fn of_pool(report: &PoolReport) -> Vec<Property> {
    let mut all = Vec::new();
    for (name, value, is_default) in report.properties.iter().filter(|(name, ..)| !config::is_name(name)) {
        let choices = match *name {
            "read_policy" => policy_choices(value),
            "allocation" => Mode::ALL.iter().map(|m| m.name().to_string()).collect(),
            "strict" | "return_spilled" => words(&ON_OFF),
            _ => Vec::new(),
        };
        if *name == "checksum" {
            // Chosen when the pool was made.
            all.push(one(name, value.clone(), Source::Fixed, choices));
            continue;
        }
        let source = if *is_default { Source::Default } else { Source::Pool };
        all.push(one(shown(name), value.clone(), source, choices));
    }
    for (name, kind) in [("data", ChunkType::Data), ("metadata", ChunkType::Metadata), ("system", ChunkType::System)] {
        all.push(one(name, report.profiles[kind as usize].name(), Source::Fixed, Vec::new()));
    }
    all.push(one("uuid", report.uuid.to_string(), Source::Fixed, Vec::new()));
    for (name, value, is_default) in report.properties.iter().filter(|(name, ..)| config::is_name(name)) {
        all.push(match is_default {
            true => one(name, shared_default(report, name), Source::Default, queue_choices(name)),
            false => one(name, value.clone(), Source::Pool, queue_choices(name)),
        });
    }
    all
}

/// What a volume's content is summed with: as its pool says, or not at all.
fn checksum_of(report: &PoolReport, on: bool) -> Property {
    let pool = views::property(report, "checksum");
    match on {
        true => one("checksum", pool.clone(), Source::Default, words(&[&pool, "none"])),
        false => one("checksum", "none", Source::Pool, words(&[&pool, "none"])),
    }
}

/// What members have where nobody said anything, if that is the same for all of them.
fn shared_default(report: &PoolReport, name: &str) -> String {
    let of = |d: &DeviceReport| {
        let setting = d.queue.settings.iter().find(|(n, _, source)| *n == name && *source == config::Source::Default);
        setting.map(|(_, value, _)| value.clone())
    };
    let mut values = report.devices.iter().filter_map(of);
    let first = values.next().unwrap_or_default();
    if values.all(|value| value == first) { first } else { String::new() }
}

fn queue_choices(name: &str) -> Vec<String> {
    match name {
        "scheduler" => words(&SchedulerName::ALL.map(SchedulerName::name)),
        "lba_order" => words(&["offset", "slot"]),
        _ => Vec::new(),
    }
}

/// What was set for this very target; empty for what it only has by default or from its pool.
fn as_set<'a>(property: &'a Property, target: &Target) -> &'a str {
    let own = match target {
        Target::Device { .. } => Source::Device,
        _ => Source::Pool,
    };
    if config::is_name(&property.name) && property.source != own { "" } else { &property.value }
}

fn policy_choices(current: &str) -> Vec<String> {
    ReadPolicy::parse(current).map(|(policy, _)| ReadPolicy::choices(policy).into()).unwrap_or_default()
}

fn of_device(device: &DeviceReport, hint: Hint, path: &str) -> Vec<Property> {
    let tier_source = if device.tiers == device.class.default_tiers() { Source::Default } else { Source::Pool };
    let preferred = if device.read_preferred { Source::Pool } else { Source::Default };
    let hint_source = if hint == Hint::default() { Source::Default } else { Source::Pool };
    let hints = Hint::ALL.iter().map(|h| h.name().to_string()).collect();
    let mut all = vec![
        one("class", device.class.name(), Source::Pool, Vec::new()),
        one("tier.data", device.tiers.data.to_string(), tier_source, Vec::new()),
        one("tier.metadata", device.tiers.metadata.to_string(), tier_source, Vec::new()),
        one("rotational", on_off(device.rotational), Source::Pool, words(&ON_OFF)),
        one("read_preferred", on_off(device.read_preferred), preferred, words(&ON_OFF)),
        one("allocation_hint", hint.name(), hint_source, hints),
        one("state", device.state.name(), Source::Fixed, Vec::new()),
        one("size", device.size.to_string(), Source::Fixed, Vec::new()),
        one("path", path, Source::Fixed, Vec::new()),
        one("uuid", device.uuid.to_string(), Source::Fixed, Vec::new()),
    ];
    for (name, value, source) in &device.queue.settings {
        let source = match source {
            config::Source::Default => Source::Default,
            config::Source::Pool => Source::Pool,
            config::Source::Device => Source::Device,
        };
        all.push(one(name, value.clone(), source, queue_choices(name)));
    }
    all
}

fn flag(name: &str, value: &str) -> Result<bool, ApiError> {
    match value {
        "1" | "on" | "yes" | "true" => Ok(true),
        "0" | "off" | "no" | "false" => Ok(false),
        _ => Err(ApiError::usage("value.invalid", format!("{name} is on or off, not '{value}'"))),
    }
}

fn unknown(what: &str, name: &str, known: &[Property]) -> ApiError {
    let names: Vec<&str> = known.iter().map(|p| p.name.as_str()).collect();
    let near = crate::control::check::nearest(name, &names);
    let own: Vec<&str> = names.iter().copied().filter(|n| !config::is_name(n)).collect();
    let queue = if own.len() < names.len() { " and the settings of queues" } else { "" };
    let message = format!("a {what} has no property {name}; it has {}{queue}", own.join(" "));
    let error = ApiError::not_found("property.unknown", message);
    match near {
        Some(near) => error.hint(format!("you may mean {near}")),
        None => error,
    }
}

fn kind_of(target: &Target) -> &'static str {
    match target {
        Target::Pool { .. } => "pool",
        Target::Device { .. } => "device",
        Target::Volume { .. } => "volume",
    }
}

/// The value as `get` would show it, or why it cannot be one.
fn normal(name: &str, value: &str) -> Result<String, ApiError> {
    match name {
        "class" => DeviceClass::parse(value).map(|c| c.name().to_string()).ok_or_else(|| {
            ApiError::usage("class.bad_name", format!("'{value}' cannot be a device class"))
                .hint("1 to 15 of a-z 0-9 . _ -, such as nvme, ssd, hdd")
        }),
        "rotational" | "read_preferred" => flag(name, value).map(on_off),
        "allocation_hint" => Hint::parse(value).map(|h| h.name().to_string()).ok_or_else(|| {
            let names: Vec<&str> = Hint::ALL.iter().map(|h| h.name()).collect();
            ApiError::usage(
                "hint.unknown",
                format!("there is no allocation hint '{value}'; known are {}", names.join(" ")),
            )
        }),
        _ => match name.strip_prefix("tier.") {
            Some(kind) => crate::control::check::tier(kind, value).map(|t| t.to_string()),
            None => Ok(value.to_string()),
        },
    }
}

/// What is set for the queue of this member alone.
fn set_for(device: &DeviceReport) -> Overrides {
    let own = device.queue.settings.iter().filter(|(_, _, source)| *source == config::Source::Device);
    own.map(|(name, value, _)| (name.to_string(), value.clone())).collect()
}

/// Do these words make sense together, for this member? The error is a sentence.
fn check_queue(device: &DeviceReport, pool: &Overrides, own: &Overrides) -> Result<(), String> {
    Config::resolve(device.rotational, device.class.name(), pool, own).map(drop)
}

impl Daemon {
    /// All properties of the target.
    fn properties(&self, pool: &OpenPool, report: &PoolReport, target: &Target) -> Result<Vec<Property>, ApiError> {
        let mut all = match target {
            Target::Pool { .. } => of_pool(report),
            Target::Device { device, .. } => {
                let id = DeviceId(*device);
                let member = report.devices.iter().find(|d| d.id == id);
                let member = member.ok_or_else(|| ApiError::no_device(&pool.name, *device))?;
                let hint = pool.ask(move |pump| pump.with_engine(move |e| e.pool().device(id).map(|d| d.hint)))?;
                let about = pool.about();
                let path = about.members.get(&id).map_or(member.path.as_str(), |m| m.path.as_str());
                of_device(member, hint.unwrap_or_default(), path)
            }
            Target::Volume { volume, .. } => {
                let found = report.volumes.iter().find(|v| v.name == *volume);
                let found = found.ok_or_else(|| ApiError::no_volume(&pool.name, volume))?;
                let source = if found.class == VolumeClass::Auto { Source::Default } else { Source::Pool };
                let classes = VolumeClass::ALL.map(VolumeClass::name);
                vec![
                    one("class", found.class.name(), source, words(&classes)),
                    checksum_of(report, found.checksum),
                    one("size", found.size.to_string(), Source::Fixed, Vec::new()),
                    one("id", found.id.to_string(), Source::Fixed, Vec::new()),
                ]
            }
        };
        all.iter_mut().for_each(|p| p.target = target.to_string());
        Ok(all)
    }

    pub(super) fn get_properties(&self, request: &GetProperties) -> Result<Vec<Property>, ApiError> {
        let pool = self.pools.get(request.target.pool())?;
        let all = self.properties(&pool, &pool.report()?, &request.target)?;
        if request.names.is_empty() {
            let is_quiet = |p: &Property| config::is_name(&p.name) && p.source == Source::Default;
            return Ok(all.into_iter().filter(|p| !is_quiet(p)).collect());
        }
        let mut found = Vec::new();
        for name in &request.names {
            let wanted = shown(canonical(name));
            let before = found.len();
            found.extend(
                all.iter()
                    .filter(|p| match wanted {
                        "queue" => config::is_name(&p.name),
                        wanted => p.name == wanted,
                    })
                    .cloned(),
            );
            if found.len() == before {
                return Err(unknown(kind_of(&request.target), name, &all));
            }
        }
        Ok(found)
    }

    pub(super) fn set_properties(&self, request: &SetProperties) -> Result<Change, ApiError> {
        let mut request = request.clone();
        crate::control::check::set(&mut request)?;
        let pool = self.pools.get(request.target.pool())?;
        let _change = lock(&pool.change);
        let report = pool.report()?;
        let all = self.properties(&pool, &report, &request.target)?;
        // First everything is judged, then everything is done.
        let mut notes = Vec::new();
        let values = self.judge(&report, &request, &all, &mut notes)?;
        let word = |value: &'_ str| if value.is_empty() { "default".to_string() } else { value.to_string() };
        let what: Vec<String> = values.iter().map(|(name, value)| format!("{}={}", shown(name), word(value))).collect();
        let what = format!("{} of {}", what.join(" "), request.target);
        let differs = |(name, value): (&String, &String)| {
            all.iter().any(|p| p.name == shown(name) && as_set(p, &request.target) != value)
        };
        if request.dry_run {
            let changed = values.iter().any(differs);
            return Ok(Change { changed, dry_run: true, what, notes, ..Change::default() });
        }
        let mut changed = false;
        let mut done: Vec<(String, String)> = Vec::new();
        let mut pending: VecDeque<(&String, &String)> = values.iter().collect();
        // One alone may be refused that is fine once another is set, such as a minimum and a maximum.
        let mut refused_in_a_row = 0;
        while let Some((name, value)) = pending.pop_front() {
            let old = all.iter().find(|p| p.name == shown(name));
            let old = old.map(|p| as_set(p, &request.target).to_string()).unwrap_or_default();
            let was_refused = std::mem::take(&mut refused_in_a_row);
            match self.set_one(&pool, &report, &request.target, name, value) {
                Ok(Done::Unchanged) => {}
                Ok(Done::Adjusted(note)) => {
                    changed = true;
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                    done.push((name.clone(), old));
                }
                Ok(_) => {
                    changed = true;
                    done.push((name.clone(), old));
                }
                Err(_) if was_refused < pending.len() => {
                    refused_in_a_row = was_refused + 1;
                    pending.push_back((name, value));
                }
                Err(error) => {
                    // All or none: what was done is taken back.
                    for (name, old) in done.iter().rev() {
                        let _ = self.set_one(&pool, &report, &request.target, name, old);
                    }
                    return Err(error);
                }
            }
        }
        Ok(Change { changed, what, notes, ..Change::default() })
    }

    fn judge(
        &self,
        report: &PoolReport,
        request: &SetProperties,
        all: &[Property],
        notes: &mut Vec<String>,
    ) -> Result<BTreeMap<String, String>, ApiError> {
        let mut values = BTreeMap::new();
        for (name, value) in &request.values {
            let name = canonical(name);
            if name == "tier.system" && matches!(request.target, Target::Device { .. }) {
                let message = "the pool's own records are placed as metadata is: set tier.metadata";
                return Err(ApiError::usage("tier.system", message));
            }
            let known = all.iter().find(|p| p.name == shown(name));
            let known = known.ok_or_else(|| unknown(kind_of(&request.target), name, all))?;
            if known.read_only {
                let message = format!("{} of {} cannot be set", known.name, request.target);
                return Err(ApiError::usage("property.read_only", message));
            }
            let value = match request.target {
                Target::Device { .. } => normal(name, value)?,
                _ => value.clone(),
            };
            values.insert(name.to_string(), value);
        }
        if matches!(request.target, Target::Pool { .. }) {
            let mut trial = Properties::default();
            for (name, value, _) in &report.properties {
                let _ = trial.set(name, value);
            }
            // `allocation` sorts before `strict`, which belongs to it.
            for (name, value) in &mut values {
                notes.extend(trial.set(name, value)?);
                *value = trial.get(name).unwrap_or_default();
            }
            if values.contains_key("read_policy") {
                self.check_policy(report, trial.read_policy, notes)?;
            }
            for member in &report.devices {
                check_queue(member, &trial.queue, &set_for(member))
                    .map_err(|e| ApiError::usage("queue.bad_value", format!("device {}: {e}", member.id)))?;
            }
        }
        if let Target::Device { device, .. } = request.target
            && let Some(member) = report.devices.iter().find(|d| d.id == DeviceId(device))
        {
            let mut own = set_for(member);
            for (name, value) in values.iter().filter(|(name, _)| config::is_name(name)) {
                match value.as_str() {
                    "" => drop(own.remove(name)),
                    value => drop(own.insert(name.clone(), value.into())),
                }
            }
            let set = report.properties.iter().filter(|(name, _, is_default)| config::is_name(name) && !is_default);
            let pool = set.map(|(name, value, _)| (name.to_string(), value.clone())).collect();
            check_queue(member, &pool, &own).map_err(|e| ApiError::usage("queue.bad_value", e))?;
        }
        Ok(values)
    }

    fn check_policy(&self, report: &PoolReport, policy: ReadPolicy, notes: &mut Vec<String>) -> Result<(), ApiError> {
        if let Some(id) = policy.device() {
            let device = report.devices.iter().find(|d| d.id == id);
            let device = device.ok_or_else(|| ApiError::no_device(&report.name, id.0))?;
            if device.state != DeviceState::Online {
                notes.push(format!("device {id} is {}: until it is back, others are read", device.state.name()));
            }
        }
        if policy.needs_preferred() && !report.devices.iter().any(|d| d.read_preferred) {
            notes.push("no device is preferred yet; say which: braid device set read_preferred=on".into());
        }
        Ok(())
    }

    fn set_one(
        &self,
        pool: &OpenPool,
        report: &PoolReport,
        target: &Target,
        name: &str,
        value: &str,
    ) -> Result<Done, ApiError> {
        let (name, value) = (name.to_string(), value.to_string());
        let command = match target {
            Target::Pool { .. } => Command::Set { name, value },
            Target::Device { device, .. } => Command::SetDevice { device: DeviceId(*device), name, value },
            Target::Volume { volume, .. } => {
                let found = report.volumes.iter().find(|v| v.name == *volume);
                let found = found.ok_or_else(|| ApiError::no_volume(&pool.name, volume))?;
                match name.as_str() {
                    "checksum" => Command::SetVolumeChecksum { volume: found.id, on: is_on(report, &value)? },
                    _ => Command::SetVolumeClass { volume: found.id, class: super::volumes::class(&value)? },
                }
            }
        };
        let done = pool.ask(|pump| pump.control(command))?;
        debug_assert!(!views::property(report, "read_policy").is_empty());
        Ok(done)
    }
}

/// Whether a volume is to have the checksums of its pool.
fn is_on(report: &PoolReport, value: &str) -> Result<bool, ApiError> {
    let pool = views::property(report, "checksum");
    match value {
        "none" => Ok(false),
        value if value.is_empty() || value == pool => Ok(true),
        _ => Err(ApiError::usage(
            "checksum.unknown",
            format!("checksum of a volume is {pool} as its pool has it, or none; not '{value}'"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_listed_with_the_current_one_in_place() {
        let list = policy_choices("devid:3");
        assert_eq!(list.len(), ReadPolicy::ALL.len());
        assert!(list.contains(&"devid:3".to_string()) && list.contains(&"latency".to_string()));
        assert!(policy_choices("round-robin:8192").contains(&"round-robin:8192".to_string()));
        assert!(policy_choices("pid").contains(&"devid:N".to_string()));
    }

    #[test]
    fn device_values_are_judged_before_anything_is_set() {
        for (name, value, normal_value) in [
            ("class", "ssd", Some("ssd")),
            ("class", "SSD!", None),
            ("tier.data", "255", Some("255")),
            ("tier.data", "256", None),
            ("tier.x", "1", None),
            ("rotational", "yes", Some("on")),
            ("rotational", "maybe", None),
            ("allocation_hint", "data-only", Some("DATA_ONLY")),
            ("allocation_hint", "often", None),
        ] {
            let got = normal(name, value);
            assert_eq!(got.as_deref().ok(), normal_value, "{name}={value}");
            if let Err(e) = got {
                assert_eq!(e.kind, ErrorKind::Usage, "{name}={value}");
            }
        }
    }
}
