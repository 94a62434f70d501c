//! Mistakes that the engine makes on purpose, in the laboratory: a checker that has never seen a wrong engine has never been
//! seen to work.
//!
//! Each is one wrong belief about when something may be done, at the one place where the right engine waits. Nobody but a
//! test sets one.

use super::Engine;
use crate::meta::assembly::Opened;
use crate::units::{Instant, Uuid};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    /// The log says that records are stable before devices were flushed.
    ClaimBeforeFlush,
    /// Superblocks name pages that no flush covers.
    SuperblockBeforeFlush,
    /// The next root goes where the one that counts is.
    PagesReusedEarly,
    /// Log blocks are free when a checkpoint begins, not when it is durable.
    LogReusedEarly,
    /// A unit has a new owner before the old one's end is stable.
    UnitsReusedEarly,
    /// A write is answered while the log does not say yet that a member missed it.
    AnswerBeforeFailure,
    /// The map follows a unit that moves before its copy is there.
    MapBeforeCopy,
    /// The map names a copy that no flush covers.
    CopyNotFlushed,
    /// A column changes places before its units are copied.
    ColumnBeforeCopy,
    /// A column that an ended job had under way arrives while another job runs.
    OldColumnArrives,
    /// What is written to where a column is now is answered before that is in the log.
    ShiftNotAwaited,
    /// What is written to a strip does not go to where its column is on its way.
    ColumnMissesWrites,
    /// Every superblock has the same generation, and so the same slot.
    GenerationNotRaised,
    /// A write goes over blocks while the mark of their region is on its way.
    WriteBeforeMark,
    /// Marks of write intent, and of what members missed, are not forced.
    MarkNotForced,
    /// A region is called clean while something is written to it.
    CleanedWhileWritten,
    /// Copies that may differ are read like others, and never made alike.
    DoubtsNotMended,
    /// What is in doubt and could not be read is held to its checksums.
    UnreadSettled,
    /// What a member missed is called caught up when it is back.
    CaughtUpAtOnce,
    /// A stale copy is read like others.
    StaleTrusted,
    /// A member that is older than it can be counts like others.
    OlderTrusted,
    /// What a member loses with its cache is not noted.
    LossNotNoted,
    /// A write that is to be stable is answered by the flush after the one that lost it with a cache.
    UnstableAnswered,
    /// A read that was under way when its member lost its cache is believed.
    LapsedReadTrusted,
    /// The log is taken for whole after the only member that has it lost its cache.
    LossNotDoubted,
    /// What the others of a row make is not tried without one of them.
    OthersBelieved,
    /// What nothing decides is not read again.
    ReadOnce,
    /// After a crash a strip stays although both parities make the same other content of it.
    ParitiesNotAsked,
    /// What a rebuild makes is written whatever its checksums say.
    MadeBelieved,
    /// A change of a row goes in place without the journal.
    RowNotJournaled,
    /// A group of the stripe journal is written over before a flush covers what it is about.
    RingReusedEarly,
    /// A group of the stripe journal is written over the one before it.
    LastGroupOverwritten,
    /// Groups of the stripe journal are not forced.
    JournalNotForced,
    /// A group of the stripe journal is written where no stable record says that it is.
    JournalPlaceUnsaid,
    /// What an opening finds on one copy of the stripe journal goes in place while the others lack it.
    JournalNotCompleted,
    /// Requests do not wait for the first checkpoint of an opening that knows something not all members know.
    RequestsNotParked,
    /// A forced write of a row without parity members is taken for forced.
    RowTakenForForced,
    /// The first checkpoint of an opening goes over pages before its superblocks say that the opening counts.
    OpeningNotClaimed,
    /// Parity stays what it was.
    ParityNotMade,
    /// Q is made with a factor that is wrong.
    WrongFactor,
    /// What is read is not compared with its checksums.
    SumsNotCompared,
    /// Behind the first strip of a write the next one goes to other columns than its own.
    WrongStripe,
    /// What is lost reads as zeros.
    LostIsHole,
    /// Zeros go over what is lost before a stable record says so.
    LostNotSaid,
    /// What nobody gives is given up though somebody was not asked.
    LostUnasked,
    /// Who reads what is given up at that moment is answered as if nothing happened.
    LostReadersAnswered,
}

impl Engine {
    /// For the laboratory: as [`Engine::new`], and from the first thing on this goes wrong.
    pub fn slipping(opened: Opened, now: Instant, boot: Uuid, opening: Uuid, slip: Option<Slip>) -> Engine {
        Engine::begin(opened, now, boot, opening, slip)
    }

    /// Whether this is to go wrong.
    pub(super) fn slips(&self, slip: Slip) -> bool {
        self.slip == Some(slip)
    }
}
