//! The knobs as an operator writes and reads them. The names are OpenZFS's, without `zfs_vdev_`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{ACTIVE_MAX, FLOOR_NS_MAX, LbaOrder, NIA_MAX, QueueSettings, SEGMENTS_MAX};
use crate::queue::class::Class;

/// All names, in the order of the documentation.
pub const NAMES: [&str; 30] = [
    "sync_read_min_active",
    "sync_read_max_active",
    "sync_write_min_active",
    "sync_write_max_active",
    "async_read_min_active",
    "async_read_max_active",
    "async_write_min_active",
    "async_write_max_active",
    "scrub_min_active",
    "scrub_max_active",
    "removal_min_active",
    "removal_max_active",
    "initializing_min_active",
    "initializing_max_active",
    "trim_min_active",
    "trim_max_active",
    "rebuild_min_active",
    "rebuild_max_active",
    "max_active",
    "nia_delay",
    "nia_credit",
    "async_write_active_min_dirty_percent",
    "async_write_active_max_dirty_percent",
    "aggregation_limit",
    "aggregation_limit_non_rotating",
    "read_gap_limit",
    "write_gap_limit",
    "max_segments",
    "lba_order",
    "background_floor",
];

enum Bound {
    Min,
    Max,
}

/// `scrub_max_active` is the upper bound of the scrub class; `None` for knobs that belong to no class.
fn class_bound(name: &str) -> Option<(Class, Bound)> {
    let (class, bound) = match (name.strip_suffix("_min_active"), name.strip_suffix("_max_active")) {
        (Some(class), _) => (class, Bound::Min),
        (None, class) => (class?, Bound::Max),
    };
    Some((Class::ALL.into_iter().find(|known| known.name() == class)?, bound))
}

impl QueueSettings {
    /// The value of one, as [`set`](Self::set) takes it; `None` for a name that is not in [`NAMES`].
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        if let Some((class, bound)) = class_bound(name) {
            let limits = self.class(class);
            return Some(match bound {
                Bound::Min => limits.min.to_string(),
                Bound::Max => limits.max.to_string(),
            });
        }
        Some(match name {
            "max_active" => self.max_active.to_string(),
            "nia_delay" => self.nia_delay.to_string(),
            "nia_credit" => self.nia_credit.to_string(),
            "async_write_active_min_dirty_percent" => self.async_write_min_dirty_percent.to_string(),
            "async_write_active_max_dirty_percent" => self.async_write_max_dirty_percent.to_string(),
            "aggregation_limit" => show_bytes(self.aggregation_limit),
            "aggregation_limit_non_rotating" => show_bytes(self.aggregation_limit_non_rotating),
            "read_gap_limit" => show_bytes(self.read_gap_limit),
            "write_gap_limit" => show_bytes(self.write_gap_limit),
            "max_segments" => self.max_segments.to_string(),
            "lba_order" => match self.lba_order {
                LbaOrder::Offset => "offset".to_string(),
                LbaOrder::Slot => "slot".to_string(),
            },
            "background_floor" => show_ns(self.background_floor_ns),
            _ => return None,
        })
    }

    /// Changes one; the empty word is the default of this generation. On an error, which is one sentence, nothing
    /// changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let mut next = self.clone();
        match value.trim() {
            "" => {
                let value = self.fresh().get(name).ok_or_else(|| unknown(name))?;
                next.put(name, &value)?;
            }
            value => next.put(name, value)?,
        }
        next.check(name)?;
        *self = next;
        Ok(())
    }

    /// Changes several at once: only the outcome has to be consistent. On an error nothing changed.
    pub fn set_all<'a>(&mut self, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), String> {
        let mut next = self.clone();
        let mut changed: Vec<&str> = Vec::new();
        for (name, value) in pairs {
            next.put(name, value.trim())?;
            changed.push(name);
        }
        for name in changed {
            next.check(name)?;
        }
        *self = next;
        Ok(())
    }

    /// All: name, value, and whether it is the default of this generation.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, String, bool)> + '_ {
        let fresh = self.fresh();
        NAMES.into_iter().filter_map(move |name| {
            let value = self.get(name)?;
            let is_default = fresh.get(name).as_ref() == Some(&value);
            Some((name, value, is_default))
        })
    }

    fn put(&mut self, name: &str, value: &str) -> Result<(), String> {
        let count = |low: u32, high: u32| number(name, value, u64::from(low), u64::from(high), "").map(|n| n as u32);
        let percent = || number(name, value, 0, 100, "%").map(|n| n as u8);
        let bytes = || {
            let high = self.generation.aggregate_max();
            let wrong = || format!("{name} is 0 to {high} bytes, such as 128K, not {value:?}");
            parse_bytes(value).filter(|n| *n <= high).ok_or_else(wrong)
        };
        if let Some((class, bound)) = class_bound(name) {
            let limits = &mut self.classes[class.index()];
            match bound {
                Bound::Min => limits.min = count(0, ACTIVE_MAX)?,
                Bound::Max => limits.max = count(1, ACTIVE_MAX)?,
            }
            return Ok(());
        }
        match name {
            "max_active" => self.max_active = count(1, ACTIVE_MAX)?,
            "nia_delay" => self.nia_delay = count(0, NIA_MAX)?,
            "nia_credit" => self.nia_credit = count(0, NIA_MAX)?,
            "async_write_active_min_dirty_percent" => self.async_write_min_dirty_percent = percent()?,
            "async_write_active_max_dirty_percent" => self.async_write_max_dirty_percent = percent()?,
            "aggregation_limit" => self.aggregation_limit = bytes()?,
            "aggregation_limit_non_rotating" => self.aggregation_limit_non_rotating = bytes()?,
            "read_gap_limit" => self.read_gap_limit = bytes()?,
            "write_gap_limit" => self.write_gap_limit = bytes()?,
            "max_segments" => self.max_segments = count(1, SEGMENTS_MAX)?,
            "lba_order" => {
                self.lba_order = match value {
                    "offset" => LbaOrder::Offset,
                    "slot" => LbaOrder::Slot,
                    _ => return Err(format!("lba_order is offset or slot, not {value:?}")),
                }
            }
            "background_floor" => {
                let wrong = || format!("background_floor is a time up to 1 h such as 100ms, or off, not {value:?}");
                self.background_floor_ns = parse_ns(value).filter(|ns| *ns <= FLOOR_NS_MAX).ok_or_else(wrong)?;
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// What `name` broke, given that all was well before it changed.
    fn check(&self, name: &str) -> Result<(), String> {
        if let Some((class, bound)) = class_bound(name) {
            let (limits, class) = (self.class(class), class.name());
            if limits.min > limits.max {
                return Err(match bound {
                    Bound::Min => {
                        format!("{name} {} is above {class}_max_active {}; raise that first", limits.min, limits.max)
                    }
                    Bound::Max => {
                        format!("{name} {} is below {class}_min_active {}; lower that first", limits.max, limits.min)
                    }
                });
            }
        }
        let (low, high) = (self.async_write_min_dirty_percent, self.async_write_max_dirty_percent);
        if low >= high {
            return Err(format!(
                "async_write_active_min_dirty_percent has to be below async_write_active_max_dirty_percent: {low} and \
                 {high} leave no room for the ramp"
            ));
        }
        Ok(())
    }
}

fn unknown(name: &str) -> String {
    format!("no queue setting is called {name:?}; there are {}", NAMES.join(", "))
}

/// Digits and nothing else, within bounds.
fn number(name: &str, value: &str, low: u64, high: u64, unit: &str) -> Result<u64, String> {
    let n = if value.bytes().all(|byte| byte.is_ascii_digit()) { value.parse().ok() } else { None };
    n.filter(|n| (low..=high).contains(n)).ok_or_else(|| format!("{name} is {low} to {high}{unit}, not {value:?}"))
}

/// `100ms`, `2s`, `250us`, `5000ns`; `0` and `off` are none.
pub(in crate::queue) fn parse_ns(value: &str) -> Option<u64> {
    if matches!(value, "0" | "off") {
        return Some(0);
    }
    let (digits, unit_ns) = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)]
        .into_iter()
        .find_map(|(unit, ns)| Some((value.strip_suffix(unit)?, ns)))?;
    let n: u64 = if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok()? } else { return None };
    n.checked_mul(unit_ns)
}

/// `4096`, `128K`, `4M`, `1G`: powers of 1024.
pub(in crate::queue) fn parse_bytes(value: &str) -> Option<u64> {
    let (digits, unit) = [('K', 1u64 << 10), ('M', 1 << 20), ('G', 1 << 30)]
        .into_iter()
        .find_map(|(letter, unit)| Some((value.strip_suffix([letter, letter.to_ascii_lowercase()])?, unit)))
        .unwrap_or((value, 1));
    let n: u64 = if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok()? } else { return None };
    n.checked_mul(unit)
}

pub(in crate::queue) fn show_bytes(bytes: u64) -> String {
    let units = [("G", 1u64 << 30), ("M", 1 << 20), ("K", 1 << 10)];
    let fits = units.into_iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    fits.map_or_else(|| bytes.to_string(), |(letter, unit)| format!("{}{letter}", bytes / unit))
}

pub(in crate::queue) fn show_ns(ns: u64) -> String {
    if ns == 0 {
        return "off".to_string();
    }
    let (unit, unit_ns) = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)]
        .into_iter()
        .find(|(_, unit_ns)| ns.is_multiple_of(*unit_ns))
        .unwrap_or(("ns", 1));
    format!("{}{unit}", ns / unit_ns)
}
