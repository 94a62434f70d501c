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

impl Mistake {
    /// All.
    pub const ALL: [Mistake; 24] = [
        Mistake::FlushNotPassedOn,
        Mistake::FlushOfOneMember,
        Mistake::FuaNotPassedOn,
        Mistake::CopyNotWritten,
        Mistake::AnswerAtOnce,
        Mistake::OlderSlotTaken,
        Mistake::OldLogCounts,
        Mistake::BootNotTold,
        Mistake::Of(Slip::GenerationNotRaised),
        Mistake::Of(Slip::ClaimBeforeFlush),
        Mistake::Of(Slip::SuperblockBeforeFlush),
        Mistake::Of(Slip::PagesReusedEarly),
        Mistake::Of(Slip::LogReusedEarly),
        Mistake::Of(Slip::UnitsReusedEarly),
        Mistake::Of(Slip::AnswerBeforeFailure),
        Mistake::Of(Slip::WriteBeforeMark),
        Mistake::Of(Slip::MarkNotForced),
        Mistake::Of(Slip::CleanedWhileWritten),
        Mistake::Of(Slip::DoubtsNotMended),
        Mistake::Of(Slip::CaughtUpAtOnce),
        Mistake::Of(Slip::StaleTrusted),
        Mistake::Of(Slip::LossNotNoted),
        Mistake::Of(Slip::MapBeforeCopy),
        Mistake::Of(Slip::ColumnBeforeCopy),
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        self.told().0
    }

    /// What is wrong.
    pub fn about(self) -> &'static str {
        self.told().1
    }

    /// In which scenarios it shows soonest.
    pub fn shows_in(self) -> &'static str {
        self.told().2
    }

    fn told(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Mistake::FlushNotPassedOn => {
                ("flush-not-passed-on", "flushes are answered and never reach a device", "overwrite")
            }
            Mistake::FlushOfOneMember => {
                ("flush-of-one-member", "flushes reach the first device and no other", "overwrite")
            }
            Mistake::FuaNotPassedOn => ("fua-not-passed-on", "forced writes are plain ones", "overwrite"),
            Mistake::CopyNotWritten => {
                ("copy-not-written", "what is not forced never reaches the last device", "overwrite")
            }
            Mistake::AnswerAtOnce => {
                ("answer-at-once", "forced writes and flushes are answered when they are asked", "overwrite")
            }
            Mistake::OlderSlotTaken => {
                ("older-slot-taken", "of two superblocks of a member the older one counts", "checkpoint")
            }
            Mistake::OldLogCounts => {
                ("old-log-counts", "a log block counts whatever opening and lap of the ring it is from", "ring")
            }
            Mistake::BootNotTold => {
                ("boot-not-told", "after a power cut all of the log counts, as after the end of a process", "discard")
            }
            Mistake::Of(Slip::GenerationNotRaised) => {
                ("generation-not-raised", "every superblock has the same generation, and so the same slot", "degraded")
            }
            Mistake::Of(Slip::ClaimBeforeFlush) => (
                "claim-before-flush",
                "the log says that records are stable before devices were flushed",
                "first-writes",
            ),
            Mistake::Of(Slip::SuperblockBeforeFlush) => {
                ("superblock-before-flush", "superblocks name pages that no flush covers", "checkpoint")
            }
            Mistake::Of(Slip::PagesReusedEarly) => {
                ("pages-reused-early", "the next root goes where the one that counts is", "checkpoint")
            }
            Mistake::Of(Slip::LogReusedEarly) => {
                ("log-reused-early", "log blocks are free when a checkpoint begins, not when it is durable", "ring")
            }
            Mistake::Of(Slip::UnitsReusedEarly) => {
                ("units-reused-early", "a unit has a new owner before the old one's end is stable", "discard")
            }
            Mistake::Of(Slip::AnswerBeforeFailure) => (
                "answer-before-failure",
                "a write is answered while the log does not say yet that a member missed it",
                "degraded",
            ),
            Mistake::Of(Slip::WriteBeforeMark) => (
                "write-before-mark",
                "a write goes over blocks while the mark of their region is on its way",
                "overwrite",
            ),
            Mistake::Of(Slip::MarkNotForced) => {
                ("mark-not-forced", "marks of write intent and of what members missed are not forced", "overwrite")
            }
            Mistake::Of(Slip::CleanedWhileWritten) => {
                ("cleaned-while-written", "a region is called clean while something is written to it", "checkpoint")
            }
            Mistake::Of(Slip::DoubtsNotMended) => {
                ("doubts-not-mended", "copies that may differ are read like others, and never made alike", "overwrite")
            }
            Mistake::Of(Slip::CaughtUpAtOnce) => {
                ("caught-up-at-once", "what a member missed is called caught up when it is back", "degraded")
            }
            Mistake::Of(Slip::StaleTrusted) => ("stale-trusted", "a stale copy is read like others", "degraded"),
            Mistake::Of(Slip::LossNotNoted) => {
                ("loss-not-noted", "what a member loses with its cache is not noted", "degraded")
            }
            Mistake::Of(Slip::ColumnBeforeCopy) => {
                ("column-before-copy", "a column changes places before its units are copied", "replace")
            }
            Mistake::Of(Slip::MapBeforeCopy) => {
                ("map-before-copy", "the map follows a unit that moves before its copy is there", "balance")
            }
        }
    }

    /// The mistake of that name.
    pub fn parse(name: &str) -> Option<Mistake> {
        Mistake::ALL.into_iter().find(|m| m.name() == name)
    }
}
