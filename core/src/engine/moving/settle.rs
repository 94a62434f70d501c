//! Copies wait for a flush before the map names them: what nobody reads yet may be lost with a cache, and is copied once more; what
//! took the place of flushed content may not.
//!
//! Copies of many units wait together, and others are made meanwhile. A copy made under the lock, which a client may wait for, is
//! forced instead. A column waits when all of it is copied.

use alloc::vec::Vec;
use core::mem::take;

use super::column::Shifting;
use super::{Engine, Turn};
use crate::engine::{Slip, Waiter};
use crate::job::COPIES_MAX;

/// Units that are copied, and named when that is on stable media.
#[derive(Clone, Default)]
pub(super) struct Settling {
    /// For the next flush.
    copied: Vec<u32>,
    /// A flush that covers these has been asked for.
    flushing: Vec<u32>,
    /// The number of the flush that a column waits for, from 1 on.
    column: u64,
}

/// What is known of the copies in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Settled {
    /// Some of them came after the last flush began.
    #[default]
    No,
    /// The flush of this number covers all.
    Flushing(u64),
    Yes,
}

impl Settling {
    /// Units that wait.
    pub(super) fn len(&self) -> usize {
        self.copied.len() + self.flushing.len()
    }
}

impl Engine {
    /// A unit is copied, and not locked.
    pub(super) fn settle_move(&mut self, id: u32) {
        match self.slips(Slip::CopyNotFlushed) {
            true => self.lock_move(id),
            false => self.moving.settling.copied.push(id),
        }
    }

    /// Asks for a flush where enough wait for one, or nothing else is under way.
    pub(super) fn flush_copies(&mut self) -> bool {
        let Settling { copied, flushing, .. } = &self.moving.settling;
        let is_enough = copied.len() >= COPIES_MAX / 2 || copied.len() == self.moving.moves.len();
        if copied.is_empty() || !flushing.is_empty() || !is_enough {
            return false;
        }
        self.moving.settling.flushing = take(&mut self.moving.settling.copied);
        match self.commit.is_dead() {
            true => self.copies_flushed(false),
            false => self.join_flush(Waiter::Copies),
        }
        true
    }

    /// Their flush is done, or failed.
    pub(in crate::engine) fn copies_flushed(&mut self, fine: bool) {
        for id in take(&mut self.moving.settling.flushing) {
            match fine {
                true => self.lock_move(id),
                false => self.fail_move(id),
            }
        }
    }

    /// A flush is to cover all that was copied into the column that is on its way. None when one does.
    pub(super) fn settle_column(&mut self) -> Option<Turn> {
        let shifting = self.moving.shift.as_mut()?;
        match shifting.settled {
            Settled::Yes => None,
            Settled::Flushing(_) => Some(Turn::Nothing),
            Settled::No => {
                self.moving.settling.column += 1;
                shifting.settled = Settled::Flushing(self.moving.settling.column);
                self.join_flush(Waiter::Column(self.moving.settling.column));
                Some(Turn::Moved)
            }
        }
    }

    /// Something more is copied into the column that is on its way.
    pub(in crate::engine) fn column_copied(&mut self) {
        if let Some(shifting) = &mut self.moving.shift {
            shifting.settled = Settled::No;
        }
    }

    /// The flush of this number is done, or failed.
    pub(in crate::engine) fn column_flushed(&mut self, number: u64, fine: bool) {
        let waits = |shifting: &&mut Shifting| shifting.settled == Settled::Flushing(number);
        if let Some(shifting) = self.moving.shift.as_mut().filter(waits) {
            shifting.settled = Settled::Yes;
            shifting.has_failed |= !fine;
        }
    }
}
