//! What a mend found right goes over the strip that was wrong, in the row's turn: nobody reads the strip meanwhile, or makes
//! it anew.

use super::work::{Step, What, Work};
use super::{Engine, Lanes, Other, RowId};
use crate::engine::mend::runs;
use crate::request::IoError;
use crate::units::{BLOCK, BufId, BufRange, ChunkId};

/// Lanes of a data member that a mend wants written.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Restore {
    pub(super) mend: u32,
    member: u8,
    lanes: Lanes,
    /// The strip as it should be, from its first lane on.
    from: BufId,
    pub(super) is_urgent: bool,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Restored {
    Written,
    Failed(IoError),
    /// The member missed something of the row: it gets all of it anew.
    LeftToRebuild,
}

impl Engine {
    /// Wants lanes of the strip at this byte of a chunk written.
    pub(in crate::engine) fn restore_strip(
        &mut self,
        (mend, is_urgent): (u32, bool),
        chunk: ChunkId,
        byte: u64,
        lanes: Lanes,
        from: BufId,
    ) {
        let (row, member) = self.strip_at(chunk, byte);
        self.want_of_row(row, Other::Restore(Restore { mend, member, lanes, from, is_urgent }));
    }

    pub(super) fn begin_restore(&mut self, row: RowId, ask: Restore) {
        let id = self.start_work(row, What::Restore(ask));
        let work = &mut self.rows.works[id];
        let member = usize::from(ask.member);
        if !work.members[member].is_good {
            return self.end_work(id);
        }
        (work.step, work.pending) = (Step::Write, 1);
        for (first, count) in runs(ask.lanes) {
            let buf = BufRange { buf: ask.from, offset: (first * BLOCK) as u32, len: (count * BLOCK) as u32 };
            self.write_strip(id, member, first, buf, false);
        }
        self.count_work_down(id);
    }

    /// The mend hears of it.
    pub(super) fn strip_restored(&mut self, ask: Restore, work: &Work) {
        let m = &work.members[usize::from(ask.member)];
        let became = match m.failed {
            Some(error) => Restored::Failed(error),
            None if m.is_good => Restored::Written,
            None if self.pool.is_online(m.column.device) => Restored::LeftToRebuild,
            None => Restored::Failed(IoError::Gone),
        };
        self.mend_restored(ask.mend, ask.lanes, became);
    }
}
