//! Runs drawn from a seed: a pool, clients, an operator, faults, crashes, several lives long.
//!
//! | file | what |
//! |---|---|
//! | `scenario.rs` | a run as a value, and as text |
//! | `draw.rs` | from a seed to a scenario |
//! | `play.rs` | a scenario is played and checked |
//! | `shrink.rs` | a failing scenario made small |
//!
//! Within what the profiles tolerate nothing may be noticed: a failed read or write is a failure of the run. Beyond,
//! errors are fine and wrong content is not. Running out of space is fine. What is checked, and what that does not see,
//! stands in [`Checker`].

pub mod draw;
mod play;
pub mod scenario;
pub mod shrink;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::checker::Checker;
pub use scenario::Scenario;

/// What a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events.
    pub steps: u64,
    /// Requests answered.
    pub answered: u64,
    /// Crashes.
    pub crashes: u64,
    /// Same seed, same hash.
    pub hash: u64,
}

/// What was wrong with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who found it.
    pub checker: Checker,
    /// In words.
    pub why: String,
}

/// The run of this seed.
pub fn run(seed: u64) -> Result<Summary, Failure> {
    attempt(&draw::scenario(seed))
}

/// Plays a scenario. What panics is caught and counts as a failure; whoever finds the message of the panic on standard
/// error a nuisance sets a hook.
pub fn attempt(scenario: &Scenario) -> Result<Summary, Failure> {
    let why = match catch_unwind(AssertUnwindSafe(|| play::play(scenario))) {
        Ok(Ok(summary)) => return Ok(summary),
        Ok(Err(why)) => why,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default()
        }
    };
    Err(Failure { checker: Checker::of(&why), why })
}

/// A scenario that fails by the same checker, as small as could be found.
pub fn shrunk(scenario: &Scenario, failure: &Failure, go_on: impl Fn() -> bool) -> Scenario {
    shrink::shrink(scenario, |s| attempt(s).is_err_and(|found| found.checker == failure.checker), go_on)
}
