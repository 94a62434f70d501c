//! Clients that go step by step, where each step depends on the one before: a file system, a recorded trace, or a scrub's
//! transaction groups.

use std::sync::Arc;

use braid_core::request::Content;
use braid_core::units::BLOCK;

use super::files::{Files, FilesScript};
use super::groups::{Groups, GroupsScript};
use super::places::Ask;
use super::trace::{Trace, TraceScript};

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hands these over together.
    Ask(Vec<Ask>),
    /// The same, for the client of this number.
    AskAs(u32, Vec<Ask>),
    /// Waits until everything asked is answered.
    Wait,
    /// Does something else for so many ns.
    Compute(u64),
    /// Waits until so many ns after its beginning.
    Until(u64),
    /// The scrub goes on, or rests.
    Scrub {
        /// Which of both.
        goes_on: bool,
    },
}

/// What a job does in place of drawing requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// As a file system would.
    Files(Files),
    /// What was recorded.
    Trace(Arc<Trace>),
    /// Transaction groups, as long as the run lasts.
    Groups(Groups),
}

impl Work {
    pub(super) fn script(&self, seed: u64) -> Script {
        match self {
            Work::Files(files) => Script::Files(Box::new(FilesScript::new(files, seed))),
            Work::Trace(trace) => Script::Trace(TraceScript::new(trace.clone())),
            Work::Groups(groups) => Script::Groups(GroupsScript::new(groups, seed)),
        }
    }

    /// Ranges that are filled before.
    pub(super) fn regions(&self) -> Vec<(u64, u64, Content)> {
        match self {
            Work::Files(files) => files.regions(),
            Work::Trace(trace) => trace.regions(),
            Work::Groups(groups) => vec![(0, groups.area, Content::Unsaid)],
        }
    }

    /// What makes no sense in a volume of so many bytes.
    pub(super) fn check(&self, volume: u64) -> Result<(), String> {
        let needs = match self {
            Work::Files(files) => {
                files.check()?;
                files.bytes_needed()
            }
            Work::Trace(trace) => trace.bytes_needed(),
            Work::Groups(groups) if groups.period_ns == 0 || groups.area < BLOCK => {
                return Err("groups have a period, and room for a block".into());
            }
            Work::Groups(groups) => groups.area,
        };
        match needs <= volume {
            true => Ok(()),
            false => Err(format!("it needs a volume of {needs} bytes, and this one has {volume}")),
        }
    }
}

/// A script that is under way.
#[derive(Debug)]
pub(super) enum Script {
    Files(Box<FilesScript>),
    Trace(TraceScript),
    Groups(GroupsScript),
}

impl Script {
    pub(super) fn next(&mut self) -> Option<Step> {
        match self {
            Script::Files(files) => files.next(),
            Script::Trace(trace) => trace.next(),
            Script::Groups(groups) => groups.next(),
        }
    }
}
