//! Where a new pool puts what, in words, before anything is written.

use std::collections::BTreeMap;

use braid_core::Tiers;
use braid_core::meta::format::{NewDevice, NewPool};
use braid_core::properties::Properties;

use super::Claimed;
use crate::control::size;

/// A line for each member, and what decides where chunks go.
pub(super) fn lines(new: &NewPool, claimed: &[Claimed]) -> Vec<String> {
    let members = new.devices.iter().zip(claimed).enumerate().map(|(i, (device, claimed))| {
        let note: String = claimed.facts.note.iter().map(|note| format!("; {note}")).collect();
        let class = device.class.name();
        format!("device {}: {}, {}, class {class}{note}", i + 1, device.path, size::long(device.size))
    });
    members.chain(placement(new)).collect()
}

fn placement(new: &NewPool) -> Vec<String> {
    let mut properties = Properties::default();
    for (name, value) in &new.properties {
        // They were tried before.
        let _ = properties.set(name, value);
    }
    let mode = properties.allocation;
    let mut lines = vec![format!("allocation {}: {}", mode.name(), mode.about())];
    if mode.goes_by_tiers() {
        lines.push(format!("metadata: {}", order(new, |tiers| tiers.metadata)));
        lines.push(format!("data: {}", order(new, |tiers| tiers.data)));
    }
    lines
}

/// `first device 1 2 3 (tier 0), then 4 5 (tier 1)`.
fn order(new: &NewPool, tier: impl Fn(Tiers) -> u8) -> String {
    let tier_of = |device: &NewDevice| tier(device.tiers.unwrap_or_else(|| device.class.default_tiers()));
    let mut by_tier: BTreeMap<u8, Vec<String>> = BTreeMap::new();
    for (i, device) in new.devices.iter().enumerate() {
        by_tier.entry(tier_of(device)).or_default().push((i + 1).to_string());
    }
    let never =
        by_tier.remove(&Tiers::NEVER).map(|ids| format!("; never device {}", ids.join(" "))).unwrap_or_default();
    let steps: Vec<String> = by_tier.iter().map(|(tier, ids)| format!("{} (tier {tier})", ids.join(" "))).collect();
    match steps.is_empty() {
        true => format!("no device takes it{never}"),
        false => format!("first device {}{never}", steps.join(", then ")),
    }
}
