//! What is checked of every run, by name; and of each checker what it does not see.
//!
//! A checker that finds something ends the run with a sentence that begins with its name. The engine's own assertions
//! count as [`Checker::Engine`].

use std::fmt;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Checker {
    /// One reply a request.
    Reply,
    /// One completion a dispatch.
    Completion,
    /// No overlapping writes.
    Overlap,
    /// No read from absent or stale members.
    Members,
    /// Commands stay in their place.
    Place,
    /// Queue limits.
    Limits,
    /// Budget = in flight.
    Budget,
    /// Everything drains.
    Drain,
    /// Reads see what was written.
    Content,
    /// A scrub finds what differs, no more and no less.
    Copies,
    /// Within what the profile tolerates nobody notices a fault.
    Tolerance,
    /// Assertions of the engine itself.
    Engine,
}

impl Checker {
    /// All.
    pub const ALL: [Checker; 12] = [
        Checker::Reply,
        Checker::Completion,
        Checker::Overlap,
        Checker::Members,
        Checker::Place,
        Checker::Limits,
        Checker::Budget,
        Checker::Drain,
        Checker::Content,
        Checker::Copies,
        Checker::Tolerance,
        Checker::Engine,
    ];

    /// As failures are labelled.
    pub fn name(self) -> &'static str {
        self.told().0
    }

    /// What it looks at.
    pub fn sees(self) -> &'static str {
        self.told().1
    }

    /// What gets past it.
    pub fn is_blind_to(self) -> &'static str {
        self.told().2
    }

    fn told(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Checker::Reply => (
                "one-reply",
                "each request and command is answered exactly once, and nobody else is",
                "whether the answer came in time; requests that a crash cut off",
            ),
            Checker::Completion => (
                "one-completion",
                "a command is issued under an id that is not in use, its memory is there until it ends, and it ends once",
                "commands that never ended when the process died; what the host's rings do with ids",
            ),
            Checker::Overlap => (
                "no-overlap",
                "no two writes, zeroes or discards under way touch the same bytes of a device",
                "reads that race with writes (they may return either); order of writes that follow one another",
            ),
            Checker::Members => (
                "members",
                "commands go to members that are online; no copy is read that missed a write whose answer was good, but for a look \
                 by a scrub, or at a strip of a row, whose content then goes nowhere unless it is what was written; nobody is taken \
                 for an older copy of itself",
                "copies made stale by a write that failed for the client too; staleness across a power cut that took the \
                 write back; gaps that a command reads over; what a job had asked for before the write failed; members whose \
                 superblocks were spoilt",
            ),
            Checker::Place => (
                "place",
                "commands lie in the device; records in system chunks and superblock slots, payload in chunks of its own; \
                 who asked to be alone travels alone",
                "whether it is the right place within the chunk: only content tells",
            ),
            Checker::Limits => (
                "queue-limits",
                "depth, class maximum, size, segments, boundary and gaps of each command against the settings in force",
                "minimums and fairness; bounds of what was joined before a change of settings; pacing in time",
            ),
            Checker::Budget => (
                "budget",
                "what the queue says it has on the device, by class, is what was sent and has not ended",
                "whether the automatic budget is a good one; flushes",
            ),
            Checker::Drain => (
                "drain",
                "when nothing is due: no request, command, scratch block, deadline or reservation is left; space adds up; \
                 nothing wakes in vain for ever",
                "how long it took; pools with a device that never answers again, which cannot drain",
            ),
            Checker::Content => (
                "content",
                "each sector read is one that may stand there by the order of requests, flushes and crashes; when troubles have \
                 passed, a block that all its places have as it must be is read without an error",
                "order between sectors after a power cut; bytes within a sector; content that nobody reads; sectors that a \
                 misdirected write spoilt, until they are written again",
            ),
            Checker::Copies => (
                "copies",
                "a scrub tells every block whose copies differ and no other, and differences it tells while clients write are \
                 there at that moment; a superblock that it calls damaged is, or it is older than what was written there",
                "what it misses while clients write; copies that are wrong alike; what it tells while devices misread",
            ),
            Checker::Tolerance => (
                "tolerance",
                "as long as no more members have faults than the profile tolerates, no request fails and the pool opens",
                "pools without redundancy and faults beyond it, where errors are fine; latency",
            ),
            Checker::Engine => ("engine", "assertions of the engine at its doorways", "what it does not assert"),
        }
    }

    /// A sentence of this checker.
    pub fn says(self, what: impl fmt::Display) -> String {
        format!("[{}] {what}", self.name())
    }

    /// Whose sentence it is.
    pub fn of(sentence: &str) -> Checker {
        let named = |c: &Checker| sentence.strip_prefix('[').is_some_and(|s| s.starts_with(&format!("{}]", c.name())));
        Checker::ALL.into_iter().find(named).unwrap_or(Checker::Engine)
    }
}

/// Ends the run with a checker's sentence unless the condition holds.
macro_rules! hold {
    ($checker:ident, $condition:expr, $($why:tt)+) => {
        if !$condition {
            panic!("{}", $crate::checker::Checker::$checker.says(format_args!($($why)+)));
        }
    };
}
pub(crate) use hold;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_knows_its_checker() {
        for checker in Checker::ALL {
            assert_eq!(Checker::of(&checker.says("something")), checker);
            assert!(!checker.sees().is_empty() && !checker.is_blind_to().is_empty());
        }
        assert_eq!(Checker::of("index out of bounds"), Checker::Engine);
        assert_eq!(Checker::of("[members-only] x"), Checker::Engine);
    }
}
