//! The rows of the specification, section 5.9, and what must hold on every path.

mod property;
mod vectors;

use alloc::vec;

use super::*;
use crate::queue::testing::read;

const T: Instant = Instant(1_000_000);
const BLOCK: u64 = 4096;

/// Without boundary, so that a row says all that matters.
fn config(scheduler: Scheduler, queue_depth: u32, threshold: i32) -> Config {
    let bounds = Bounds { max_bytes: 4 * MIB, max_segments: 4096, boundary: 0 };
    let budget = BusyThreshold::new(threshold).unwrap();
    Config { scheduler, queue_depth, budget, bounds, ..Config::default() }
}

/// Block `n` as the `n`th I/O.
fn block(n: u64) -> Waiting {
    read(n as u32, n * BLOCK, BLOCK)
}

/// Offset and length, in blocks.
type Blocks = Vec<(u64, u64)>;

fn blocks(leaving: &Leaving) -> Blocks {
    leaving.commands.iter().map(|command| (command.offset / BLOCK, command.len / BLOCK)).collect()
}

fn merges(queue: &Queue) -> u64 {
    let counters = queue.counters();
    counters.merged_plug + counters.merged_back + counters.merged_front
}

impl Queue {
    /// First block and length of each request of the residual list, and of the list or scheduler.
    fn waiting(&self) -> (Blocks, Blocks) {
        let show = |&id: &ChainId| {
            let shape = self.chains.get(id).shape;
            (shape.offset / BLOCK, shape.len / BLOCK)
        };
        let staged = match &self.stage {
            Stage::None(software) => software.ids().map(show).collect(),
            Stage::Deadline(deadline) => deadline.ids().map(show).collect(),
        };
        (self.residual.iter().map(show).collect(), staged)
    }
}
