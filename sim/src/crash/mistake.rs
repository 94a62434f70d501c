//! Wrong builds: what a crash point has to find when somebody gets the order of things wrong.
//!
//! Most bend what passes the door or what the disks do, so that a right engine looks like a wrong one. Where the mistake is
//! about when the engine itself believes something, the engine is told to make it: a [`Slip`].

use braid_core::Slip;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Flushes are answered and never reach a disk.
    FlushNotPassedOn,
    /// Flushes reach the first disk and no other.
    FlushOfOneMember,
    /// Forced writes are plain ones.
    FuaNotPassedOn,
    /// What is not forced never reaches the last disk.
    CopyNotWritten,
    /// Requests are answered when they are asked.
    AnswerAtOnce,
    /// Of two superblocks of a member the older one counts.
    OlderSlotTaken,
    /// A log block counts whatever opening and lap it is from.
    OldLogCounts,
    /// After a power cut all of the log counts, as after the end of a process.
    BootNotTold,
    /// The engine makes it by itself.
    Of(Slip),
}

/// A mistake, in words.
struct Row {
    mistake: Mistake,
    name: &'static str,
    about: &'static str,
    /// In which scenarios it shows soonest.
    shows_in: &'static str,
}

const fn row(mistake: Mistake, name: &'static str, about: &'static str, shows_in: &'static str) -> Row {
    Row { mistake, name, about, shows_in }
}

const ROWS: &[Row] = &[
    row(Mistake::FlushNotPassedOn, "flush-not-passed-on", "flushes are answered and never reach a device", "overwrite"),
    row(Mistake::FlushOfOneMember, "flush-of-one-member", "flushes reach the first device and no other", "overwrite"),
    row(Mistake::FuaNotPassedOn, "fua-not-passed-on", "forced writes are plain ones", "overwrite"),
    row(Mistake::CopyNotWritten, "copy-not-written", "what is not forced never reaches the last device", "overwrite"),
    row(
        Mistake::AnswerAtOnce,
        "answer-at-once",
        "forced writes and flushes are answered when they are asked",
        "overwrite",
    ),
    row(
        Mistake::OlderSlotTaken,
        "older-slot-taken",
        "of two superblocks of a member the older one counts",
        "checkpoint",
    ),
    row(
        Mistake::OldLogCounts,
        "old-log-counts",
        "a log block counts whatever opening and lap of the ring it is from",
        "ring",
    ),
    row(
        Mistake::BootNotTold,
        "boot-not-told",
        "after a power cut all of the log counts, as after the end of a process",
        "discard",
    ),
    row(
        Mistake::Of(Slip::GenerationNotRaised),
        "generation-not-raised",
        "every superblock has the same generation, and so the same slot",
        "degraded",
    ),
    row(
        Mistake::Of(Slip::ClaimBeforeFlush),
        "claim-before-flush",
        "the log says that records are stable before devices were flushed",
        "first-writes",
    ),
    row(
        Mistake::Of(Slip::SuperblockBeforeFlush),
        "superblock-before-flush",
        "superblocks name pages that no flush covers",
        "checkpoint",
    ),
    row(
        Mistake::Of(Slip::PagesReusedEarly),
        "pages-reused-early",
        "the next root goes where the one that counts is",
        "checkpoint",
    ),
    row(
        Mistake::Of(Slip::LogReusedEarly),
        "log-reused-early",
        "log blocks are free when a checkpoint begins, not when it is durable",
        "ring/single",
    ),
    row(
        Mistake::Of(Slip::UnitsReusedEarly),
        "units-reused-early",
        "a unit has a new owner before the old one's end is stable",
        "discard",
    ),
    row(
        Mistake::Of(Slip::AnswerBeforeFailure),
        "answer-before-failure",
        "a write is answered while the log does not say yet that a member missed it",
        "degraded/unlike",
    ),
    row(
        Mistake::Of(Slip::WriteBeforeMark),
        "write-before-mark",
        "a write goes over blocks while the mark of their region is on its way",
        "overwrite",
    ),
    row(
        Mistake::Of(Slip::MarkNotForced),
        "mark-not-forced",
        "marks of write intent and of what members missed are not forced",
        "overwrite",
    ),
    row(
        Mistake::Of(Slip::CleanedWhileWritten),
        "cleaned-while-written",
        "a region is called clean while something is written to it",
        "checkpoint",
    ),
    row(
        Mistake::Of(Slip::DoubtsNotMended),
        "doubts-not-mended",
        "copies that may differ are read like others, and never made alike",
        "overwrite",
    ),
    row(
        Mistake::Of(Slip::CaughtUpAtOnce),
        "caught-up-at-once",
        "what a member missed is called caught up when it is back",
        "degraded",
    ),
    row(Mistake::Of(Slip::StaleTrusted), "stale-trusted", "a stale copy is read like others", "degraded"),
    row(
        Mistake::Of(Slip::LossNotNoted),
        "loss-not-noted",
        "what a member loses with its cache is not noted",
        "degraded",
    ),
    row(
        Mistake::Of(Slip::RowNotJournaled),
        "row-not-journaled",
        "a change of a row goes in place without the stripe journal",
        "overwrite/raid5",
    ),
    row(
        Mistake::Of(Slip::JournalNotForced),
        "journal-not-forced",
        "groups of the stripe journal are not forced",
        "overwrite/raid5",
    ),
    row(
        Mistake::Of(Slip::JournalNotCompleted),
        "journal-not-completed",
        "what an opening finds on one copy of the stripe journal goes in place while the others lack it",
        "overwrite/raid5",
    ),
    row(
        Mistake::Of(Slip::RequestsNotParked),
        "requests-not-parked",
        "requests do not wait for the first checkpoint of an opening that knows something not all members know",
        "overwrite/raid5",
    ),
    row(
        Mistake::Of(Slip::RowTakenForForced),
        "row-taken-for-forced",
        "a forced write of a row without parity members is taken for forced",
        "overwrite/raid5",
    ),
    row(
        Mistake::Of(Slip::OpeningNotClaimed),
        "opening-not-claimed",
        "the first checkpoint of an opening goes over pages before its superblocks say that the opening counts",
        "checkpoint/raid5",
    ),
    row(Mistake::Of(Slip::ParityNotMade), "parity-not-made", "parity stays what it was", "overwrite/raid5"),
    row(Mistake::Of(Slip::WrongFactor), "wrong-factor", "Q is made with a factor that is wrong", "overwrite/raid6"),
    row(
        Mistake::Of(Slip::MapBeforeCopy),
        "map-before-copy",
        "the map follows a unit that moves before its copy is there",
        "balance",
    ),
    row(
        Mistake::Of(Slip::ColumnBeforeCopy),
        "column-before-copy",
        "a column changes places before its units are copied",
        "replace/unlike",
    ),
];

impl Mistake {
    /// All.
    pub fn all() -> impl Iterator<Item = Mistake> {
        ROWS.iter().map(|row| row.mistake)
    }

    /// As it is written.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What is wrong.
    pub fn about(self) -> &'static str {
        self.row().about
    }

    /// In which scenarios it shows soonest.
    pub fn shows_in(self) -> &'static str {
        self.row().shows_in
    }

    /// What the engine is told to do wrong.
    pub(super) fn slip(self) -> Option<Slip> {
        match self {
            Mistake::Of(slip) => Some(slip),
            _ => None,
        }
    }

    fn row(self) -> &'static Row {
        ROWS.iter().find(|row| row.mistake == self).expect("every mistake has a row")
    }

    /// The mistake of that name.
    pub fn parse(name: &str) -> Option<Mistake> {
        Mistake::all().find(|m| m.name() == name)
    }
}
