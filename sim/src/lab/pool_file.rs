//! A pool in words: what `--pool pool.toml` reads, and what a live pool is told as.
//!
//! ```toml
//!   data = "raid1"                  # profile of data
//!   metadata = "raid1"              # if left out, as data
//!   settings = { read_policy = "latency" }
//!
//!   [[device]]
//!   class = "hdd"
//!   size = "4T"
//!   count = 2                       # so many alike
//!   model = "hdd"                   # if left out, the usual one of its class
//!   settings = { queue_depth = "16" }   # tier.data, tier.metadata, allocation_hint and read_preferred, too
//!   missing = true                  # it is away, and so the pool is degraded
//! ```

use std::collections::{BTreeMap, BTreeSet};

use braid_core::device::DEVICE_MAX;
use braid_core::sums::Checksum;
use braid_core::{ChunkType, Profile};
use serde::Deserialize;

use super::setup::{Member, Setup};
use crate::device::{Model, complaint};

/// Most members of a pool in the laboratory.
const DEVICES_MAX: usize = 4096;

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolFile {
    /// Profile of data.
    pub data: String,
    /// Profile of metadata.
    #[serde(default)]
    pub metadata: Option<String>,
    /// Properties of the pool.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Members.
    #[serde(rename = "device", default)]
    pub devices: Vec<DeviceEntry>,
}

/// A member, or several alike.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceEntry {
    /// For tables of results; its class and number when left out.
    #[serde(default)]
    pub name: Option<String>,
    /// Label.
    pub class: String,
    /// Bytes, as `4T` or `500GB`.
    pub size: String,
    /// So many.
    #[serde(default)]
    pub count: Option<usize>,
    /// How long it takes: a model that comes with braid, or a file (with a dot or a slash).
    #[serde(default)]
    pub model: Option<String>,
    /// As the system says; of the model when left out.
    #[serde(default)]
    pub rotational: Option<bool>,
    /// Settings of its own.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// It has a part of the content, and is not there.
    #[serde(default)]
    pub missing: bool,
}

impl PoolFile {
    /// Reads one; what is wrong with it, in a sentence.
    pub fn parse(text: &str) -> Result<PoolFile, String> {
        toml::from_str(text).map_err(|e| complaint(text, &e))
    }

    /// The same with each member by itself and under its name.
    pub fn one_by_one(&self) -> Result<PoolFile, String> {
        let mut devices: Vec<DeviceEntry> = Vec::new();
        for entry in &self.devices {
            let count = entry.count.unwrap_or(1);
            if count == 0 || count > DEVICES_MAX.saturating_sub(devices.len()) {
                return Err(format!("a pool has 1 to {DEVICES_MAX} devices"));
            }
            for i in 0..count {
                let name = match &entry.name {
                    Some(name) if count > 1 => format!("{name}{i}"),
                    Some(name) => name.clone(),
                    None => format!("{}{}", entry.class, devices.len()),
                };
                devices.push(DeviceEntry { name: Some(name), count: None, ..entry.clone() });
            }
        }
        Ok(PoolFile { devices, ..self.clone() })
    }

    /// The setup it stands for, without volumes.
    pub fn setup(&self) -> Result<Setup, String> {
        let data = profile(&self.data, ChunkType::Data)?;
        // Of a profile that metadata cannot have, the one that survives as much.
        let otherwise = if data.carries(ChunkType::Metadata) { data } else { data.system() };
        let metadata = self.metadata.as_deref().map_or(Ok(otherwise), |word| profile(word, ChunkType::Metadata))?;
        let devices = self.one_by_one()?.devices;
        let members: Vec<Member> = devices.iter().map(DeviceEntry::member).collect::<Result<_, _>>()?;
        if members.is_empty() {
            return Err("the pool has no device; add a [[device]] with class and size".into());
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = members.iter().find(|member| !names.insert(&member.name)) {
            return Err(format!("two devices are called {:?}; give each a name of its own", twice.name));
        }
        let mut setup = Setup::new(members, data, metadata, 0);
        setup.intent = true;
        setup.settings = words(&self.settings);
        if !self.settings.contains_key("checksum") {
            // As a pool that is made has them.
            setup.settings.push(("checksum".into(), Checksum::Crc32c.name().into()));
        }
        setup.lost = (1..).zip(&devices).filter(|(_, entry)| entry.missing).map(|(id, _)| id).collect();
        setup.volumes.clear();
        Ok(setup)
    }
}

impl DeviceEntry {
    fn member(&self) -> Result<Member, String> {
        let name = self.name.clone().unwrap_or_default();
        let size = size(&self.size).ok_or_else(|| format!("device {name}: {}", no_size(&self.size)))?;
        let model = match &self.model {
            Some(word) => Model::find(word),
            None => model_of_class(&self.class).map_err(|why| format!("{why}; for another say model = \"NAME\"")),
        };
        let model = model.map_err(|why| format!("device {name}: {why}"))?;
        let mut member = Member::new(&name, size, &self.class, model);
        member.rotational = self.rotational.unwrap_or(member.rotational);
        member.settings = words(&self.settings);
        Ok(member)
    }
}

fn words(settings: &BTreeMap<String, String>) -> Vec<(String, String)> {
    settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A profile that content of this type can be on.
pub(super) fn profile(word: &str, kind: ChunkType) -> Result<Profile, String> {
    let known = || {
        let carries = Profile::ALL.into_iter().filter(|profile| profile.carries(kind));
        carries.map(Profile::name).collect::<Vec<_>>().join(", ")
    };
    let found = Profile::parse(word).filter(|profile| profile.carries(kind));
    let what = if kind == ChunkType::Data { "data" } else { "metadata" };
    found.ok_or_else(|| format!("no profile {word:?} carries {what}; there are {}", known()))
}

/// Bytes: `4T` and `4TiB` are 1024^4, `4TB` is 1000^4, `1.5T` is rounded down to a byte, as everywhere in braid.
pub fn size(word: &str) -> Option<u64> {
    u64::try_from(wide(word)?).ok()
}

/// Why it is none.
pub(super) fn no_size(word: &str) -> String {
    match wide(word) {
        Some(_) => format!("{word:?} is more than any device has, {} PiB at most", DEVICE_MAX >> 50),
        None => format!("{word:?} is no size such as 4T or 500GB"),
    }
}

fn wide(word: &str) -> Option<u128> {
    let word = word.trim().to_lowercase();
    let (number, suffix) = word.split_at(word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len()));
    let (letter, base) = match suffix {
        "" => ("", 1),
        _ if suffix.ends_with("ib") => (&suffix[..suffix.len() - 2], 1024),
        _ if suffix.ends_with('b') => (&suffix[..suffix.len() - 1], 1000),
        _ => (suffix, 1024),
    };
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == letter)?;
    let unit = u128::pow(base, power as u32);
    let (digits, fraction) = match number.split_once('.') {
        Some((digits, fraction)) if unit > 1 && (1..=9).contains(&fraction.len()) => (digits, fraction),
        Some(_) => return None,
        None => (number, "0"),
    };
    let part = u128::from(fraction.parse::<u64>().ok()?) * unit / 10u128.pow(fraction.len() as u32);
    Some(unit.saturating_mul(digits.parse().ok()?).saturating_add(part))
}

/// The usual model of a class.
pub fn model_of_class(class: &str) -> Result<Model, String> {
    match class {
        "hdd" | "nvme" => Model::shipped(class),
        "ssd" => Model::shipped("sata-ssd"),
        "net" => Model::shipped("rbd"),
        _ => Err(format!("class {class:?} has no usual model; nvme, ssd, hdd and net have one")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Job;
    use super::super::run::run;
    use super::super::setup::Volume;
    use super::*;
    use braid_core::control::VolumeClass;

    #[test]
    fn a_pool_in_words_is_a_setup() {
        let text = "data = 'raid1'\nsettings = { read_policy = 'pid' }\n\
                    [[device]]\nclass = 'hdd'\nsize = '4T'\ncount = 2\nname = 'd'\n\
                    [[device]]\nclass = 'fast'\nmodel = 'nvme'\nsize = '500GB'\n";
        let setup = PoolFile::parse(text).and_then(|pool| pool.setup()).expect("a pool");
        let told: Vec<_> = setup.members.iter().map(|m| (m.name.as_str(), m.size, m.rotational)).collect();
        assert_eq!(told, [("d0", 4 << 40, true), ("d1", 4 << 40, true), ("fast2", 500_000_000_000, false)]);
        assert_eq!((setup.data, setup.metadata), (Profile::Raid1, Profile::Raid1));
        let settings = |setup: &Setup| setup.settings.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>();
        assert_eq!(settings(&setup), ["read_policy=pid", "checksum=crc32c"], "as a pool that is made");
        let plain = text.replace("read_policy = 'pid'", "checksum = 'none'");
        let plain = PoolFile::parse(&plain).and_then(|pool| pool.setup()).expect("a pool");
        assert_eq!(settings(&plain), ["checksum=none"]);
    }

    #[test]
    fn members_may_be_away_and_have_tiers_that_the_first_chunk_goes_by() {
        let text = "data = 'single'\nsettings = { checksum = 'none' }\n\
                    [[device]]\nclass = 'hdd'\nsize = '1T'\nsettings = { 'tier.data' = '1' }\n\
                    [[device]]\nclass = 'nvme'\nsize = '1T'\nsettings = { 'tier.data' = '255' }\n";
        let busy = |text: &str| {
            let mut setup = PoolFile::parse(text).and_then(|pool| pool.setup()).expect("a pool");
            setup.volumes.push(Volume { name: "v".into(), size: 64 << 20, class: VolumeClass::Auto, checksum: true });
            let job = Job { io_size: Some(1 << 20), ..Job::default() };
            let outcome = run(&setup, &[job], 1).map_err(|why| format!("{why}: {text}"))?;
            Ok(outcome.devices.iter().map(|device| device.read_bytes > 0).collect::<Vec<_>>())
        };
        assert_eq!(busy(text), Ok(vec![true, false]), "data never goes to the NVMe");
        let mirrored = text.replace("single", "raid1").replace("'255'", "'0'") + "missing = true";
        assert_eq!(busy(&mirrored), Ok(vec![true, false]), "the faster one is away");
        let alone = text.replace("'1' }", "'1' }\nmissing = true");
        let why: String = busy(&alone).expect_err("nobody else has it");
        assert!(why.starts_with("hdd0 is missing, and the load cannot do without it: "), "{why}");
    }

    #[test]
    fn members_get_the_names_that_results_show() {
        let text = "data = 'raid1'\n[[device]]\nclass = 'nvme'\nsize = '1T'\n\
                    [[device]]\nclass = 'hdd'\nsize = '4T'\ncount = 2\n[[device]]\nclass = 'hdd'\nsize = '1T'\nname = 'old'\n";
        let pool = PoolFile::parse(text).expect("a pool");
        let each = pool.one_by_one().expect("four devices");
        let names: Vec<_> = each.devices.iter().filter_map(|entry| entry.name.as_deref()).collect();
        assert_eq!(names, ["nvme0", "hdd1", "hdd2", "old"]);
        assert_eq!(pool.setup().expect("a setup").names(), names);
    }

    #[test]
    fn sizes_are_those_of_the_command_line() {
        let rows = [
            ("4096", Some(4096)),
            ("4k", Some(4096)),
            ("4KiB", Some(4096)),
            ("4KB", Some(4000)),
            ("1.5T", Some(3 << 39)),
            ("0.3k", Some(307)),
            ("1.5", None),
            ("1.T", None),
            (".5T", None),
            ("1.2.3T", None),
            ("4x", None),
            ("", None),
            ("99999999P", None),
        ];
        for (word, bytes) in rows {
            assert_eq!(size(word), bytes, "{word}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        let fails = |text: &str| PoolFile::parse(text).and_then(|pool| pool.setup()).expect_err(text);
        assert!(fails("data = 'raid1'").contains("no device"));
        assert!(fails("data = 'raid9'\n[[device]]\nclass='hdd'\nsize='1T'").contains("there are single"));
        assert!(fails("data = 'single'\n[[device]]\nclass='odd'\nsize='1T'").contains("no usual model"));
        assert!(fails("data = 'single'\n[[device]]\nclass='hdd'\nsize='much'").contains("is no size"));
        assert!(fails("data = 'single'\n[[device]]\nclass='hdd'\nsize='999999P'").contains("more than any device has"));
        assert!(fails("data = 'single'\nspeed = 1").contains("unknown field"));
        assert_eq!(fails("data = 'single'\n; a comment of fio"), "line 2: key with no value, expected `=`");
    }
}
