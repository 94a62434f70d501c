//! What a pool is doing when something goes wrong.

use std::ops::Range;

use braid_core::Profile;
use braid_core::control::Command;
use braid_core::request::{Content, Op};
use braid_core::scrub::State;
use braid_core::units::{BLOCK, DeviceId, UNIT, VolumeId};

use super::case::Layout;
use super::{PLACES, REWRITTEN, place};
use crate::world::World;

/// Pieces of whole rows that there are before.
const ROWS: u64 = 4;

/// A phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Clients write over half of everything, in parts of rows where there are rows.
    Write,
    /// Clients write whole rows, over half of what stands and where nothing was.
    Rows,
    /// Clients read everything.
    Read,
    /// A scrub reads everything.
    Scrub,
    /// The first member's content goes to another one, in whose place it is then.
    Replace,
    /// The last member was away while half of everything was written over, and is brought up to date.
    Rebuild,
}

impl Phase {
    /// All.
    pub const ALL: [Phase; 6] = [Phase::Write, Phase::Rows, Phase::Read, Phase::Scrub, Phase::Replace, Phase::Rebuild];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Write => "write",
            Phase::Rows => "rows",
            Phase::Read => "read",
            Phase::Scrub => "scrub",
            Phase::Replace => "replace",
            Phase::Rebuild => "rebuild",
        }
    }

    /// A member can be away only where others have everything; rows have parity, and are read in ways of their own.
    pub(super) fn is_for(self, profile: Profile) -> bool {
        match self {
            Phase::Write | Phase::Scrub | Phase::Replace => true,
            Phase::Rows | Phase::Read => profile.facts().parity > 0,
            Phase::Rebuild => profile.facts().tolerated_failures > 0,
        }
    }

    /// Where there is content: a unit here and there, or at least one whole row.
    pub(super) fn pieces(self, layout: Layout) -> Vec<Range<u64>> {
        match self {
            Phase::Rows => (0..ROWS).map(|i| rows(layout, i)).collect(),
            _ => (0..PLACES).map(|i| place(i)..place(i) + UNIT).collect(),
        }
    }

    /// One more device joins before it begins.
    pub(super) fn has_another(self) -> bool {
        self == Phase::Replace
    }

    /// Everything before the first moment, while nothing is wrong.
    pub(super) fn prepare(self, world: &mut World, volume: VolumeId, layout: Layout) {
        match self {
            Phase::Write | Phase::Rows | Phase::Read | Phase::Scrub => {}
            Phase::Replace => {
                let tag = world.add_disk(&super::shape());
                world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
            }
            Phase::Rebuild => {
                let device = DeviceId(layout.members);
                world.control(Command::OfflineDevice { device }).expect("the others have everything");
                ask_writes(world, volume);
                world.run_until_answered();
                world.run(volume, Op::Flush, 0, 0).expect("the others are there");
            }
        }
        world.answers.clear();
        world.done.clear();
    }

    /// It begins; the tag of the command, where there is one.
    pub(super) fn begin(self, world: &mut World, volume: VolumeId, layout: Layout) -> Option<u64> {
        let command = match self {
            Phase::Write => {
                ask_writes(world, volume);
                return None;
            }
            Phase::Rows => {
                for i in (0..=ROWS).filter(|i| i % 2 == REWRITTEN || *i == ROWS) {
                    let Range { start, end } = rows(layout, i);
                    let op = Op::Write { fua: i % 4 == REWRITTEN };
                    world.submit(i as u32, volume, op, start, end - start, Content::Unsaid);
                }
                return None;
            }
            Phase::Read => {
                for (i, Range { start, end }) in self.pieces(layout).into_iter().enumerate() {
                    world.submit(i as u32, volume, Op::Read, start, end - start, Content::Unsaid);
                }
                return None;
            }
            Phase::Scrub => Command::ScrubStart,
            Phase::Replace => Command::ReplaceDevice { device: DeviceId(1), by: DeviceId(layout.members + 1) },
            Phase::Rebuild => Command::OnlineDevice { device: DeviceId(layout.members), found: None },
        };
        Some(world.command(command))
    }

    /// Something of it is still to come.
    pub(super) fn goes_on(self, world: &World) -> bool {
        let report = world.engine().report();
        match self {
            Phase::Write | Phase::Rows | Phase::Read => false,
            Phase::Scrub => report.scrub.scrub.state == State::Running,
            Phase::Replace => report.job.is_some_and(|job| job.job.state == State::Running),
            Phase::Rebuild => report.devices.iter().any(|d| d.state.is_used() && d.stale.regions > 0),
        }
    }
}

/// Twice what a row holds, so there is a whole one in it wherever rows begin.
fn rows(layout: Layout, i: u64) -> Range<u64> {
    place(i)..place(i) + 2 * layout.data() * UNIT
}

/// Half of everything, in whole units and parts of some.
fn ask_writes(world: &mut World, volume: VolumeId) {
    for i in (0..PLACES).filter(|i| i % 2 == REWRITTEN) {
        let (at, len) = if i % 4 == REWRITTEN { (place(i), UNIT) } else { (place(i), 3 * BLOCK + 512) };
        world.submit(i as u32, volume, Op::Write { fua: i % 8 == REWRITTEN }, at, len, Content::Unsaid);
    }
}
