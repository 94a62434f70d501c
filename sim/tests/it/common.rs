//! What more than one room asks for.

use braid_core::DeviceState;
use braid_core::control::Command;
use braid_core::scrub::State;
use braid_core::units::{DeviceId, MIB};
use braid_sim::world::Shape;
use braid_sim::{Crash, Model, World};

/// An SSD.
pub(crate) fn shape(mib: u64) -> Shape {
    Shape { size: mib * MIB, model: Model::shipped("sata-ssd").unwrap(), class: "ssd" }
}

pub(crate) fn device_state(world: &World, device: u32) -> DeviceState {
    world.engine().pool().device(DeviceId(device)).expect("a member").state
}

/// Everything reads as it was written, nothing is left over.
fn verified(world: &mut World) {
    world.verify();
    world.run_until_quiet();
    world.check_quiet(true);
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}

/// The same once all is quiet.
pub(crate) fn all_is_well(world: &mut World) {
    world.run_until_quiet();
    verified(world);
}

/// The same beside what is under way, and no request failed.
pub(crate) fn all_answered_well(world: &mut World) {
    verified(world);
    assert!(world.answers.drain(..).all(|a| a.result.is_ok()));
}

/// A clean end, and on from what is on the disks.
pub(crate) fn reopen(world: &mut World) {
    world.control(Command::Close).unwrap();
    world.run_until_quiet();
    world.crash(Crash::Power);
    world.open().unwrap();
    world.run_until_quiet();
}

/// A scrub to its end.
pub(crate) fn scrub(world: &mut World) {
    world.control(Command::ScrubStart).unwrap();
    world.run_until(|w| w.engine().report().scrub.scrub.state == State::Finished);
    world.run_until_quiet();
}
