//! Properties of a pool: the knobs an operator can turn while it runs.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::allocator::Mode;
use crate::control::{ControlError, ErrorKind};
use crate::device::Device;
use crate::queue::config::{self, Overrides};
use crate::read_policy::ReadPolicy;
use crate::sums::Checksum;
use crate::units::{KIB, MIB};

/// Names, in the order of the documentation.
pub const NAMES: [&str; 10] = [
    "read_policy",
    "allocation",
    "strict",
    "return_spilled",
    "spare_delay",
    "commit_interval",
    "dirty_regions",
    "checksum",
    "checksum_cache",
    "scrub_memory",
];

/// What the checksums of a pool may take of memory: the least, what it is by default, the most.
pub const CHECKSUM_CACHE: [u64; 3] = [MIB / 4, 64 * MIB, 64 * 1024 * MIB];

/// What a scrub may be told to take of memory.
pub const SCRUB_MEMORY: RangeInclusive<u64> = MIB..=64 * 1024 * MIB;

/// Their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// `read_policy`: which copy answers a read.
    pub read_policy: ReadPolicy,
    /// `allocation`: where new chunks go.
    pub allocation: Mode,
    /// `return_spilled`: what spilled to another tier goes back by itself when there is room.
    pub return_spilled: bool,
    /// `spare_delay`, in ms: how long a member may be missing before a spare takes its place; none = for ever.
    pub spare_delay_ms: Option<u64>,
    /// `commit_interval`, in ms: how long an answered write may be on volatile media only, and its map entry in the
    /// log only. Raising it saves flushes; a power cut then takes more of what nobody asked to flush.
    pub commit_interval_ms: u64,
    /// `dirty_regions`: regions of 4 MiB that may be marked as being written at a time, see [`crate::regions`]. What is
    /// marked is read on all copies after a crash; with fewer, writes far apart wait more often for a mark, and for the
    /// checkpoint that takes others back. None is `auto`: [`DIRTY_A_MEMBER`] for each member, 2,048 at least.
    pub dirty_regions: Option<usize>,
    /// `checksum`: what content is summed with; set when the pool is made, and never changed.
    pub checksum: Checksum,
    /// `checksum_cache`, in bytes: memory for the pages that checksums are kept in. A MiB is enough for 0.9 GiB of content in
    /// use (crc32c); what is beyond costs a read of a page when it is used.
    pub checksum_cache: u64,
    /// `scrub_memory`, in bytes: what a scrub may have under way. More of it is a faster scrub and slower reads beside it. None is
    /// `auto`, see [`crate::scrub::memory_of`].
    pub scrub_memory: Option<u64>,
    /// What was set for the queues of all members, see [`crate::queue::config`].
    pub queue: Overrides,
}

/// Regions that one member brings with `dirty_regions=auto`: 256 MiB to be looked at after a crash.
pub const DIRTY_A_MEMBER: usize = 64;
/// And what there is for all together at least and at most.
const DIRTY_LEAST: usize = 2048;
const DIRTY_MAX: usize = 131_072;

/// A size in bytes, from a number with K, M or G.
fn size(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match word.get(digits.len()..)?.to_ascii_uppercase().as_str() {
        "K" | "KIB" => KIB,
        "M" | "MIB" => MIB,
        "G" | "GIB" => 1024 * MIB,
        "" => 1,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).map(|bytes| bytes / KIB * KIB)
}

/// A size as [`size`] reads it.
fn size_word(bytes: u64) -> String {
    if bytes.is_multiple_of(MIB) { format!("{}M", bytes / MIB) } else { format!("{}K", bytes / KIB) }
}

fn on_off(name: &str, value: &str) -> Result<bool, ControlError> {
    match value {
        "on" | "yes" | "1" | "true" => Ok(true),
        "off" | "no" | "0" | "false" => Ok(false),
        _ => Err(ControlError::new(ErrorKind::Usage, format!("{name} is on or off, not {value:?}"))),
    }
}

/// `30s`, `10m`, `2h`, a number of seconds, or `off`; a day at most.
fn spare_delay(word: &str) -> Result<Option<u64>, ControlError> {
    if word == "off" {
        return Ok(None);
    }
    let digits = word.trim_end_matches(['s', 'm', 'h']);
    let unit = match &word[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let seconds = digits.parse::<u64>().ok().zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
    match seconds {
        Some(seconds @ 0..=86_400) => Ok(Some(seconds * 1000)),
        _ => {
            let text = format!("spare_delay is 0s to 24h, such as 30s or 10m, or off, not {word:?}");
            Err(ControlError::new(ErrorKind::Usage, text))
        }
    }
}

impl Default for Properties {
    fn default() -> Self {
        Properties {
            read_policy: ReadPolicy::default(),
            allocation: Mode::Tiers { strict: false },
            return_spilled: true,
            spare_delay_ms: Some(600_000),
            commit_interval_ms: 5000,
            dirty_regions: None,
            checksum: Checksum::None,
            checksum_cache: CHECKSUM_CACHE[1],
            scrub_memory: None,
            queue: Overrides::new(),
        }
    }
}

impl Properties {
    /// `dirty_regions` in a pool of so many members. All of them help to look at what a crash leaves marked, so each brings
    /// its share.
    #[must_use]
    pub fn dirty_regions_of(&self, members: usize) -> usize {
        self.dirty_regions.unwrap_or_else(|| members.saturating_mul(DIRTY_A_MEMBER).clamp(DIRTY_LEAST, DIRTY_MAX))
    }

    /// Sets one from an operator's words; the empty word is the default. Says what it made of the value when that is
    /// not what was written.
    pub fn set(&mut self, name: &str, value: &str) -> Result<Option<String>, ControlError> {
        let fresh = Properties::default();
        let usage = |message: String| ControlError::new(ErrorKind::Usage, message);
        let value = value.trim();
        match name {
            "read_policy" if value.is_empty() => self.read_policy = fresh.read_policy,
            "read_policy" => {
                let (policy, note) = ReadPolicy::parse(value).map_err(usage)?;
                self.read_policy = policy;
                return Ok(note);
            }
            "allocation" if value.is_empty() => self.allocation = fresh.allocation,
            "allocation" => {
                let mut mode = Mode::parse(value).ok_or_else(|| {
                    usage(format!(
                        "allocation {value:?} is unknown; the modes are stock, ssd-metadata-v1, ssd-metadata, \
                         allocation-hint and tiers"
                    ))
                })?;
                if let (Mode::Tiers { strict }, Mode::Tiers { strict: now }) = (&mut mode, self.allocation) {
                    *strict |= now;
                }
                self.allocation = mode;
            }
            "strict" => {
                let on = !value.is_empty() && on_off(name, value)?;
                match &mut self.allocation {
                    Mode::Tiers { strict } => *strict = on,
                    _ if on => {
                        return Err(usage("strict belongs to allocation=tiers; set that first".to_string()));
                    }
                    _ => {}
                }
            }
            "return_spilled" if value.is_empty() => self.return_spilled = fresh.return_spilled,
            "return_spilled" => self.return_spilled = on_off(name, value)?,
            "spare_delay" if value.is_empty() => self.spare_delay_ms = fresh.spare_delay_ms,
            "spare_delay" => self.spare_delay_ms = spare_delay(value)?,
            "commit_interval" if value.is_empty() => self.commit_interval_ms = fresh.commit_interval_ms,
            "commit_interval" => {
                let ms = value.strip_suffix("ms").map(|n| n.parse()).unwrap_or_else(|| {
                    value.strip_suffix('s').unwrap_or(value).parse::<u64>().map(|s| s.saturating_mul(1000))
                });
                match ms {
                    Ok(ms @ 100..=300_000) => self.commit_interval_ms = ms,
                    _ => {
                        let text = format!("commit_interval is 100ms to 300s, not {value:?}");
                        return Err(usage(text));
                    }
                }
            }
            "dirty_regions" if matches!(value, "" | "auto") => self.dirty_regions = None,
            "dirty_regions" => match value.parse() {
                Ok(count @ 64..=DIRTY_MAX) => self.dirty_regions = Some(count),
                _ => return Err(usage(format!("dirty_regions is auto, or 64 to {DIRTY_MAX}, not {value:?}"))),
            },
            "checksum" if value.is_empty() => self.checksum = fresh.checksum,
            "checksum" => {
                self.checksum = Checksum::parse(value)
                    .ok_or_else(|| usage(format!("checksum {value:?} is unknown; it is crc32c, xxh3 or none")))?;
            }
            "checksum_cache" if value.is_empty() => self.checksum_cache = fresh.checksum_cache,
            "checksum_cache" => {
                let [least, _, most] = CHECKSUM_CACHE;
                self.checksum_cache = size(value)
                    .filter(|bytes| (least..=most).contains(bytes))
                    .ok_or_else(|| usage(format!("checksum_cache is 256K to 64G, such as 64M, not {value:?}")))?;
            }
            "scrub_memory" if matches!(value, "" | "auto") => self.scrub_memory = None,
            "scrub_memory" => {
                let bytes = size(value).filter(|bytes| SCRUB_MEMORY.contains(bytes));
                let text = || usage(format!("scrub_memory is auto, or 1M to 64G, such as 32M, not {value:?}"));
                self.scrub_memory = Some(bytes.ok_or_else(text)?);
            }
            _ if config::is_name(name) && value.is_empty() => drop(self.queue.remove(name)),
            _ if config::is_name(name) => {
                // Whether it means anything depends on the others and on the members: see `check_queues`.
                self.queue.insert(name.into(), config::word(name, value).map_err(usage)?);
            }
            _ => {
                let text = format!("no property {name:?}; a pool has {}, and the settings of queues", NAMES.join(", "));
                return Err(ControlError::new(ErrorKind::NotFound, text));
            }
        }
        Ok(None)
    }

    /// What is set for the queues has to make sense for every member.
    pub(crate) fn check_queues<'a>(&self, mut devices: impl Iterator<Item = &'a Device>) -> Result<(), ControlError> {
        devices.try_for_each(|device| match device.queue_config(&self.queue) {
            Ok(_) => Ok(()),
            Err(error) => Err(ControlError::new(ErrorKind::Usage, format!("device {}: {error}", device.id))),
        })
    }

    /// The value of one, as an operator would write it.
    pub fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "read_policy" => self.read_policy.value(),
            "allocation" => self.allocation.name().into(),
            "strict" => match self.allocation {
                Mode::Tiers { strict: true } => "on".into(),
                _ => "off".into(),
            },
            "return_spilled" => if self.return_spilled { "on" } else { "off" }.into(),
            "spare_delay" => match self.spare_delay_ms {
                None => "off".into(),
                Some(ms) if ms != 0 && ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
                Some(ms) => format!("{}s", ms / 1000),
            },
            "commit_interval" if !self.commit_interval_ms.is_multiple_of(1000) => {
                format!("{}ms", self.commit_interval_ms)
            }
            "commit_interval" => format!("{}s", self.commit_interval_ms / 1000),
            "dirty_regions" => self.dirty_regions.map_or_else(|| "auto".into(), |count| format!("{count}")),
            "checksum" => self.checksum.name().into(),
            "checksum_cache" => size_word(self.checksum_cache),
            "scrub_memory" => self.scrub_memory.map_or_else(|| "auto".into(), size_word),
            _ if config::is_name(name) => self.queue.get(name).cloned().unwrap_or_default(),
            _ => return None,
        })
    }

    /// All: name, value, and whether it is the default. What was not set for the queues has no value here: it depends on
    /// the member.
    pub fn list(&self) -> Vec<(&'static str, String, bool)> {
        let fresh = Properties::default();
        let one = |name| {
            let value: String = self.get(name).unwrap_or_default();
            let is_default = fresh.get(name).as_deref() == Some(&value);
            (name, value, is_default)
        };
        let of_queues = |name| {
            let value = self.queue.get(name).cloned().unwrap_or_default();
            let is_default = value.is_empty();
            (name, value, is_default)
        };
        NAMES.into_iter().map(one).chain(config::names().map(of_queues)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_scrub_is_a_size_or_auto() {
        let mut properties = Properties::default();
        for (value, wanted) in
            [("1M", "1M"), ("1536K", "1536K"), ("64G", "65536M"), (" 8mib ", "8M"), ("auto", "auto"), ("", "auto")]
        {
            assert_eq!(properties.set("scrub_memory", value).expect(value), None);
            assert_eq!(properties.get("scrub_memory").as_deref(), Some(wanted), "{value}");
        }
        for value in ["0", "1023K", "65G", "much", "-1M", "18446744073709551615G"] {
            let error = properties.set("scrub_memory", value).expect_err(value);
            assert!(error.message.starts_with("scrub_memory is auto, or 1M to 64G"), "{value}: {}", error.message);
        }
        assert_eq!(properties.scrub_memory, None, "as it was");
    }
}
