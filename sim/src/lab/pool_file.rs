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
//!   settings = { queue_depth = "16" }
//! ```

use std::collections::{BTreeMap, BTreeSet};

use braid_core::Profile;
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
}

impl PoolFile {
    /// Reads one; what is wrong with it, in a sentence.
    pub fn parse(text: &str) -> Result<PoolFile, String> {
        toml::from_str(text).map_err(|e| complaint(text, &e))
    }

    /// The setup it stands for, without volumes.
    pub fn setup(&self) -> Result<Setup, String> {
        let data = profile(&self.data)?;
        let metadata = self.metadata.as_deref().map_or(Ok(data), profile)?;
        let mut members: Vec<Member> = Vec::new();
        for entry in &self.devices {
            let count = entry.count.unwrap_or(1);
            if count == 0 || members.len() + count > DEVICES_MAX {
                return Err(format!("a pool has 1 to {DEVICES_MAX} devices"));
            }
            for i in 0..count {
                members.push(entry.member(members.len(), i)?);
            }
        }
        if members.is_empty() {
            return Err("the pool has no device; add a [[device]] with class and size".into());
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = members.iter().find(|member| !names.insert(&member.name)) {
            return Err(format!("two devices are called {:?}; give each a name of its own", twice.name));
        }
        let mut setup = Setup::new(members, data, metadata, 0);
        setup.settings = words(&self.settings);
        setup.volumes.clear();
        Ok(setup)
    }
}

impl DeviceEntry {
    fn member(&self, number: usize, among: usize) -> Result<Member, String> {
        let name = match &self.name {
            Some(name) if self.count.unwrap_or(1) > 1 => format!("{name}{among}"),
            Some(name) => name.clone(),
            None => format!("{}{number}", self.class),
        };
        let size = size(&self.size).ok_or_else(|| format!("device {name}: {:?} is no size such as 4T", self.size))?;
        let model = match &self.model {
            Some(word) => Model::find(word),
            None => model_of_class(&self.class),
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

/// A profile that can hold volumes.
pub(super) fn profile(word: &str) -> Result<Profile, String> {
    let known = || {
        let carries = Profile::ALL.into_iter().filter(|profile| profile.carries_data());
        carries.map(Profile::name).collect::<Vec<_>>().join(", ")
    };
    let found = Profile::parse(word).filter(|profile| profile.carries_data());
    found.ok_or_else(|| format!("no profile {word:?} carries data; there are {}", known()))
}

/// Bytes: `4T` and `4TiB` are 1024^4, `4TB` is 1000^4, as everywhere in braid.
pub fn size(word: &str) -> Option<u64> {
    let word = word.trim().to_lowercase();
    let (digits, suffix) = word.split_at(word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len()));
    let (letter, base) = match suffix {
        "" => ("", 1),
        _ if suffix.ends_with("ib") => (&suffix[..suffix.len() - 2], 1024),
        _ if suffix.ends_with('b') => (&suffix[..suffix.len() - 1], 1000),
        _ => (suffix, 1024),
    };
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == letter)?;
    u64::checked_pow(base, power as u32)?.checked_mul(digits.parse().ok()?)
}

/// The usual model of a class.
pub fn model_of_class(class: &str) -> Result<Model, String> {
    match class {
        "hdd" | "nvme" => Model::shipped(class),
        "ssd" => Model::shipped("sata-ssd"),
        "net" => Model::shipped("rbd"),
        _ => Err(format!("class {class:?} has no usual model; say which with model")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_in_words_is_a_setup() {
        let text = "data = 'raid1'\nsettings = { read_policy = 'pid' }\n\
                    [[device]]\nclass = 'hdd'\nsize = '4T'\ncount = 2\nname = 'd'\n\
                    [[device]]\nclass = 'fast'\nmodel = 'nvme'\nsize = '500GB'\n";
        let setup = PoolFile::parse(text).and_then(|pool| pool.setup()).expect("a pool");
        let told: Vec<_> = setup.members.iter().map(|m| (m.name.as_str(), m.size, m.rotational)).collect();
        assert_eq!(told, [("d0", 4 << 40, true), ("d1", 4 << 40, true), ("fast2", 500_000_000_000, false)]);
        assert_eq!((setup.data, setup.metadata), (Profile::Raid1, Profile::Raid1));
        assert_eq!(setup.settings, [("read_policy".to_string(), "pid".to_string())]);
    }

    #[test]
    fn mistakes_are_told() {
        let fails = |text: &str| PoolFile::parse(text).and_then(|pool| pool.setup()).expect_err(text);
        assert!(fails("data = 'raid1'").contains("no device"));
        assert!(fails("data = 'raid9'\n[[device]]\nclass='hdd'\nsize='1T'").contains("there are single"));
        assert!(fails("data = 'single'\n[[device]]\nclass='odd'\nsize='1T'").contains("no usual model"));
        assert!(fails("data = 'single'\n[[device]]\nclass='hdd'\nsize='much'").contains("is no size"));
        assert!(fails("data = 'single'\nspeed = 1").contains("unknown field"));
        let same = "[[device]]\nclass='hdd'\nsize='1T'\nname='a'\n";
        assert!(fails(&format!("data = 'raid1'\n{same}{same}")).contains("two devices are called \"a\""));
        assert!(fails("data = 'single'\n[[device]]\nclass='hdd'\nsize='1T'\ncount=-1").starts_with("line 5: "));
        for broken in ["data =", "data = raid1 [["] {
            let told = fails(broken);
            assert!(told.starts_with("line 1: ") && !told.contains(['|', '\n']), "{told}");
        }
    }
}
