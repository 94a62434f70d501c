//! Wrong on purpose: a world that stands in for an engine with a certain mistake, so that each checker can be seen to
//! fail.
//!
//! The engine itself stays as it is. The world bends what passes the door, so that the checkers see what they would see
//! of an engine that does the wrong thing by itself.

use serde::{Deserialize, Serialize};

use crate::checker::Checker;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sabotage {
    /// A reply comes twice.
    ReplyTwice,
    /// A completion gets lost.
    LoseCompletion,
    /// A command goes out a second time while it is under way.
    IssueTwice,
    /// A write goes where another one is under way.
    Overlap,
    /// A read goes to a member that is not in use.
    ReadAbsent,
    /// A failed write of one copy counts as done.
    ForgetFailure,
    /// A write to a chunk goes below the first chunk.
    Misplace,
    /// The settings say one command at a time, and more go out.
    IgnoreLimits,
    /// A command that is over still counts.
    Miscount,
    /// A read gives what stands a block further on.
    ReadElsewhere,
    /// What a comparison finds is turned round.
    CompareWrongly,
    /// Every twentieth request fails without a reason.
    FailForNothing,
    /// A completion arrives twice.
    CompleteTwice,
}

impl Sabotage {
    /// All.
    pub const ALL: [Sabotage; 13] = [
        Sabotage::ReplyTwice,
        Sabotage::LoseCompletion,
        Sabotage::IssueTwice,
        Sabotage::Overlap,
        Sabotage::ReadAbsent,
        Sabotage::ForgetFailure,
        Sabotage::Misplace,
        Sabotage::IgnoreLimits,
        Sabotage::Miscount,
        Sabotage::ReadElsewhere,
        Sabotage::CompareWrongly,
        Sabotage::FailForNothing,
        Sabotage::CompleteTwice,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Sabotage::ReplyTwice => "reply-twice",
            Sabotage::LoseCompletion => "lose-completion",
            Sabotage::IssueTwice => "issue-twice",
            Sabotage::Overlap => "overlap",
            Sabotage::ReadAbsent => "read-absent",
            Sabotage::ForgetFailure => "forget-failure",
            Sabotage::Misplace => "misplace",
            Sabotage::IgnoreLimits => "ignore-limits",
            Sabotage::Miscount => "miscount",
            Sabotage::ReadElsewhere => "read-elsewhere",
            Sabotage::CompareWrongly => "compare-wrongly",
            Sabotage::FailForNothing => "fail-for-nothing",
            Sabotage::CompleteTwice => "complete-twice",
        }
    }

    /// The mistake of that name.
    pub fn parse(name: &str) -> Option<Sabotage> {
        Sabotage::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Who has to find it.
    pub fn is_found_by(self) -> Checker {
        match self {
            Sabotage::ReplyTwice => Checker::Reply,
            Sabotage::LoseCompletion => Checker::Drain,
            Sabotage::IssueTwice => Checker::Completion,
            Sabotage::Overlap => Checker::Overlap,
            Sabotage::ReadAbsent | Sabotage::ForgetFailure => Checker::Members,
            Sabotage::Misplace => Checker::Place,
            Sabotage::IgnoreLimits => Checker::Limits,
            Sabotage::Miscount => Checker::Budget,
            Sabotage::ReadElsewhere => Checker::Content,
            Sabotage::CompareWrongly => Checker::Copies,
            Sabotage::FailForNothing => Checker::Tolerance,
            Sabotage::CompleteTwice => Checker::Engine,
        }
    }
}
