//! What a pool is doing when something goes wrong.

use braid_core::Profile;
use braid_core::control::Command;
use braid_core::request::{Content, Op};
use braid_core::scrub::State;
use braid_core::units::{BLOCK, DeviceId, UNIT, VolumeId};

use super::case::members;
use super::{PLACES, REWRITTEN, place};
use crate::world::World;

/// A phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Clients write over half of everything and flush.
    Write,
    /// A scrub reads everything.
    Scrub,
    /// The first member's content goes to another one, in whose place it is then.
    Replace,
    /// The last member was away while half of everything was written over, and is brought up to date.
    Rebuild,
}

impl Phase {
    /// All.
    pub const ALL: [Phase; 4] = [Phase::Write, Phase::Scrub, Phase::Replace, Phase::Rebuild];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Write => "write",
            Phase::Scrub => "scrub",
            Phase::Replace => "replace",
            Phase::Rebuild => "rebuild",
        }
    }

    /// A member can be away only where others have everything.
    pub(super) fn is_for(self, profile: Profile) -> bool {
        self != Phase::Rebuild || profile.facts().tolerated_failures > 0
    }

    /// One more device joins before it begins.
    pub(super) fn has_another(self) -> bool {
        self == Phase::Replace
    }

    /// Everything before the first moment, while nothing is wrong.
    pub(super) fn prepare(self, world: &mut World, volume: VolumeId, profile: Profile) {
        match self {
            Phase::Write | Phase::Scrub => {}
            Phase::Replace => {
                let tag = world.add_disk(&super::shape());
                world.run_until(|w| w.done.iter().any(|(of, _)| *of == tag));
            }
            Phase::Rebuild => {
                let device = DeviceId(members(profile));
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
    pub(super) fn begin(self, world: &mut World, volume: VolumeId, profile: Profile) -> Option<u64> {
        let command = match self {
            Phase::Write => {
                ask_writes(world, volume);
                return None;
            }
            Phase::Scrub => Command::ScrubStart,
            Phase::Replace => Command::ReplaceDevice { device: DeviceId(1), by: DeviceId(members(profile) + 1) },
            Phase::Rebuild => Command::OnlineDevice { device: DeviceId(members(profile)) },
        };
        Some(world.command(command))
    }

    /// Something of it is still to come.
    pub(super) fn goes_on(self, world: &World) -> bool {
        let report = world.engine().report();
        match self {
            Phase::Write => false,
            Phase::Scrub => report.scrub.scrub.state == State::Running,
            Phase::Replace => report.job.is_some_and(|job| job.job.state == State::Running),
            Phase::Rebuild => report.devices.iter().any(|d| d.state.is_used() && d.stale.regions > 0),
        }
    }
}

/// Half of everything, in whole units and parts of some.
fn ask_writes(world: &mut World, volume: VolumeId) {
    for i in (0..PLACES).filter(|i| i % 2 == REWRITTEN) {
        let (at, len) = if i % 4 == REWRITTEN { (place(i), UNIT) } else { (place(i), 3 * BLOCK + 512) };
        world.submit(i as u32, volume, Op::Write { fua: i % 8 == REWRITTEN }, at, len, Content::Unsaid);
    }
}
