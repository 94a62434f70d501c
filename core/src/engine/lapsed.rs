//! Reads that were under way when their member lost its cache: what they bring is what it had got, or what it had before that and
//! has again. A write that was answered may be missing, though others have it. So they are asked for once more: of others, where the
//! member lacks something there now.

use super::sums::SUMS_VOLUME;
use super::{Engine, Slip};
use crate::queue::{Io, Owner};
use crate::request::DeviceOp;
use crate::units::{DeviceId, UNIT};

impl Engine {
    /// A member lost its cache: its reads that are under way. Mends and scrubs, which compare copies, see to that themselves.
    pub(super) fn lapse_reads(&mut self, device: DeviceId) {
        let is_trusted = self.slips(Slip::LapsedReadTrusted);
        let is_told = |owner| {
            use Owner::{Edge, Move, Read, Row, RowInBackground, SumPage};
            matches!(owner, Read(_) | Edge(_) | Move(_) | Row(_) | RowInBackground(_) | SumPage(_))
        };
        let reads =
            self.ios.iter_mut().filter(|io| io.device == device && io.op == DeviceOp::Read && is_told(io.owner));
        reads.for_each(|io| io.lapsed = !is_trusted);
    }

    /// What a read is about has its content on others only.
    pub(super) fn lacks_what_is_read(&self, io: &Io) -> bool {
        let is_stale = |volume, start: u64, end: u64| {
            (start / UNIT..end.div_ceil(UNIT)).any(|unit| {
                let (home, unit) = self.unit_of_piece(&io.set, volume, unit * UNIT);
                self.pool.is_unit_stale(io.device, home, unit)
            })
        };
        match io.owner {
            Owner::Read(id) | Owner::Edge(id) => {
                let (volume, start, end) = self.place_of_read(id, io.owner, io.buf);
                is_stale(volume, start, end)
            }
            Owner::Move(id) => {
                let (volume, unit) = self.unit_of_move(id);
                is_stale(volume, unit * UNIT, (unit + 1) * UNIT)
            }
            Owner::Row(id) | Owner::RowInBackground(id) => self.is_row_stale(io.device, self.row_of_work(id)),
            Owner::SumPage(slot) => {
                let at = self.place_of_page(slot);
                self.pool.is_unit_stale(io.device, SUMS_VOLUME, at / UNIT)
            }
            _ => false,
        }
    }
}
