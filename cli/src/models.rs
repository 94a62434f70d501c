//! Models of devices at the pace of the wall clock, for disks written `model:NAME,PATH`: the times are of `braid-sim`.

use braid_core::request::DeviceOp;
use braid_host::backend::pace::{Pace, Paced};
use braid_sim::device::{Command, Model, Timing};

/// See [`braid_host::backend::pace::Factory`].
pub(crate) fn paced(model: &str, size: u64) -> Result<Paced, String> {
    let model = Model::find(model)?;
    // One seed for all: what scatters then is the same after each start, and starts differ in what arrives.
    let pace = Box::new(Clocked(Timing::new(&model, size, 1)));
    Ok(Paced { pace, name: model.name().into(), class: model.class(), rotational: model.is_rotational() })
}

#[derive(Debug)]
struct Clocked(Timing);

impl Pace for Clocked {
    fn arrive(&mut self, now_ns: u64, id: u32, op: DeviceOp, offset: u64, len: u64) {
        self.0.arrive(now_ns, Command { id, op, offset, len });
    }

    fn next_ns(&self) -> Option<u64> {
        self.0.next_event()
    }

    fn done(&mut self, now_ns: u64) -> Option<u32> {
        self.0.complete(now_ns)
    }
}
