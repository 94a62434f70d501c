//! Decisions as rows, and random histories.

mod gaps;
mod joining;
mod property;
mod twin;
mod vectors;

use super::*;
use crate::queue::limits::Generation;
use crate::queue::merge::{Bounds, Variant};
use crate::queue::testing::read;

const T: Instant = Instant(1_000_000);
const BLOCK: u64 = 4096;
const BOUNDS: Bounds = Bounds { max_bytes: 8 * BLOCK, max_segments: 8, boundary: 0 };
const RULES: Rules = Rules { bounds: BOUNDS, variant: Variant::Braid };

/// Default settings for flash, but with this many commands.
fn deep(rules: Rules, depth: u32, budget: Budget) -> BraidQueue {
    let mut settings = QueueSettings::new(Generation::Braid, false);
    settings.set("max_active", &alloc::string::ToString::to_string(&depth)).expect("a depth");
    BraidQueue::new(settings, rules, budget)
}
