//! Reads that found no copy right: what comes of the mend of the unit is theirs. It is under the range lock, so what it says is
//! not due to a write that was passing by.

use super::judge::Winner;
use super::{Cause, Engine, Target, range};
use crate::engine::Active;
use crate::queue::Owner;
use crate::request::{Copy, Op, Output, RequestError};
use crate::units::{BLOCK, BufRange, UNIT};

/// A request that waits for blocks of the unit.
#[derive(Clone)]
pub(in crate::engine) struct Reader {
    request: u32,
    /// First block within the unit.
    first: u64,
    to: BufRange,
}

impl Engine {
    /// No copy of these blocks is right, as far as one can see without a lock: mends of their units give the answer.
    pub(in crate::engine) fn read_by_mend(&mut self, id: u32, owner: Owner, buf: BufRange) {
        let (volume, start, end) = self.place_of_read(id, owner, buf);
        let mut at = start;
        while at < end {
            let (unit, next) = (at / UNIT, ((at / UNIT + 1) * UNIT).min(end));
            let to = BufRange { offset: buf.offset + (at - start) as u32, len: (next - at) as u32, ..buf };
            let reader = Reader { request: id, first: at % UNIT / BLOCK, to };
            self.requests[id].pending += 1;
            self.requests[id].trouble.get_or_insert_default().mends += 1;
            match owner {
                // The block is held by the request itself, which is about to write it to all copies.
                Owner::Edge(_) => self.mend_for(Cause::Edge, Target::Block(volume, at / BLOCK), Some(reader)),
                _ => self.join_mend(Target::Unit(volume, unit), reader),
            }
            at = next;
        }
    }

    /// Another mend of the same unit will do: until it ends, nobody writes there.
    fn join_mend(&mut self, target: Target, reader: Reader) {
        let same = |id: &u32| self.mends.get(*id).is_some_and(|m| m.target == target);
        match (0..self.mends.ids_end()).find(same) {
            Some(id) => self.mends[id].readers.push(reader),
            None => self.mend_for(Cause::Verify, target, Some(reader)),
        }
    }

    /// A read for which nothing is left but mends looks at no place any more: mends look for themselves, when the unit is theirs.
    /// So it leaves its epoch. Who has the unit now may be a writer that waits for room, and room may wait for this.
    pub(in crate::engine) fn rest_on_mends(&mut self, id: u32) {
        let Active { request, pending, trouble, epoch, .. } = &mut self.requests[id];
        let (Op::Read, Some(trouble)) = (request.op, trouble) else { return };
        if trouble.mends == *pending && trouble.doubtful.is_empty() && !trouble.rests {
            trouble.rests = true;
            self.space.leave(*epoch);
        }
    }

    /// Who waits gets what is right, zeros where nothing is written any more, or an error.
    pub(super) fn serve_readers(&mut self, id: u32) {
        for Reader { request, first, to } in core::mem::take(&mut self.mends[id].readers) {
            for i in 0..u64::from(to.len) / BLOCK {
                let to = range(to.buf, u64::from(to.offset) + i * BLOCK, BLOCK);
                match self.serve_block(id, first + i, to) {
                    Some(copy) => self.outputs.push_back(Output::Copy(copy)),
                    None => self.requests[request].error = Some(RequestError::Io),
                }
            }
            self.requests[request].trouble.as_mut().expect("it waits for mends").mends -= 1;
            self.count_down(request);
        }
    }

    fn serve_block(&self, id: u32, block: u64, to: BufRange) -> Option<Copy> {
        let mend = &self.mends[id];
        if mend.mask >> block & 1 == 0 {
            return Some(Copy::Zero(to));
        }
        let copy = match mend.winner(block) {
            Winner::Copy(copy) => Some(copy),
            Winner::Nobody => mend.groups(block).iter().position(Option::is_some),
            Winner::Lost => None,
        };
        let from = range(mend.scratch[copy?]?, block * BLOCK, BLOCK);
        Some(Copy::Move { from, to })
    }
}
