//! Fuzzing: inputs that were damaged on purpose, for everything that reads what others wrote.
//!
//! ```text
//!   corpus --seed, number--> input --run--> taken | refused          anything else is a failure:
//!   (real ones, damaged)     |                                        a panic, too much memory, no end
//!                            '-- the same for ever: two numbers say it
//! ```
//!
//! | file | what |
//! |---|---|
//! | `change.rs` | bytes and text, damaged |
//! | `image.rs` | the pool's own records as one value; seals that agree with what they seal |
//! | `seeds.rs` | images that an engine wrote, and forged ones by name |
//! | `pool.rs` | targets `superblock`, `log`, `checkpoint`, `journal`: up to an engine that serves |
//! | `checksums.rs` | target `checksums`: pages of them, and content of which copies are wrong |
//! | `flight.rs` | target `flight`: flight records, replayed |
//! | `files.rs` | targets that users write: jobs, traces, models, pools, scenarios |
//!
//! A [`Target`] may refuse an input or take it, and both are fine. What counts memory and time is whoever runs it:
//! `braid lab fuzz` does, and adds the targets that need sockets.
//!
//! Left out: which lines an input reaches. Seals are put right behind a change, so that most inputs get past them.

pub mod change;
mod checksums;
mod files;
mod flight;
mod image;
mod pool;
mod seeds;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::rng::Rng;

/// An input of the corpus: a real one, or one whose name says what it shows.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Name.
    pub name: &'static str,
    /// Content.
    pub bytes: Vec<u8>,
    /// It comes from an encoder or a client of today and has to be taken; others have to be refused.
    pub is_fine: bool,
}

impl Sample {
    /// A real one.
    pub fn fine(name: &'static str, bytes: impl Into<Vec<u8>>) -> Sample {
        Sample { name, bytes: bytes.into(), is_fine: true }
    }

    /// A damaged one.
    pub fn damaged(name: &'static str, bytes: impl Into<Vec<u8>>) -> Sample {
        Sample { name, bytes: bytes.into(), is_fine: false }
    }
}

/// Damages one of these inputs, perhaps with parts of another.
pub type Change = fn(&mut Rng, &[Sample]) -> Vec<u8>;
/// Whether the input was taken; an error is a failure in words, as a panic is.
pub type Run = Box<dyn Fn(&[u8]) -> Result<bool, String> + Send + Sync>;

/// Something that reads.
pub struct Target {
    /// Name.
    pub name: &'static str,
    /// What it reads, for people.
    pub about: &'static str,
    /// Where inputs come from.
    pub corpus: Vec<Sample>,
    /// How they are damaged.
    pub change: Change,
    /// Reads one.
    pub run: Run,
    /// Most bytes of memory while it reads one.
    pub memory: usize,
}

impl Target {
    /// The input of a number: the corpus itself first, then damaged ones.
    pub fn input(&self, seed: u64, number: u64) -> Vec<u8> {
        match self.corpus.get(usize::try_from(number).unwrap_or(usize::MAX)) {
            Some(sample) => sample.bytes.clone(),
            None => (self.change)(&mut Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number), &self.corpus),
        }
    }

    /// Reads an input: whether it was taken, or what was wrong. What panics is caught and counts as a failure; whoever
    /// finds the message of the panic on standard error a nuisance sets a hook.
    pub fn attempt(&self, input: &[u8]) -> Result<bool, String> {
        catch_unwind(AssertUnwindSafe(|| (self.run)(input))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default())
        })
    }
}

/// A target that is not made yet: its corpus may need an engine to write it.
type Named = (&'static str, fn() -> Target);

fn all() -> impl Iterator<Item = &'static Named> {
    pool::TARGETS.iter().chain(checksums::TARGETS).chain(files::TARGETS).chain(flight::TARGETS)
}

/// Names of the targets of this crate and of core.
pub fn names() -> Vec<&'static str> {
    all().map(|(name, _)| *name).collect()
}

/// Those of them that are wanted.
pub fn targets(wanted: impl Fn(&str) -> bool) -> Vec<Target> {
    all().filter(|(name, _)| wanted(name)).map(|(_, make)| make()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Real inputs are taken and damaged ones refused: what a target reads is what it is meant to read.
    #[test]
    fn each_sample_of_the_corpora_is_what_it_says() {
        for target in targets(|_| true) {
            let is_known =
                |sample: &Sample| target.corpus.iter().filter(|other| other.name == sample.name).count() == 1;
            for sample in &target.corpus {
                let (name, sample_name) = (target.name, sample.name);
                assert!(is_known(sample), "{name}: {sample_name} is there twice");
                assert_eq!(target.attempt(&sample.bytes), Ok(sample.is_fine), "{name}: {sample_name}");
            }
        }
    }

    /// Damaged inputs get past the first look: some are taken, some refused, of every target.
    #[test]
    fn changes_reach_what_is_behind_the_seals() {
        for target in targets(|_| true) {
            let first = target.corpus.len() as u64;
            let all: Vec<_> = (first..first + 200).map(|number| target.attempt(&target.input(1, number))).collect();
            let count = |wanted| all.iter().filter(|result| **result == Ok(wanted)).count();
            let (taken, refused) = (count(true), count(false));
            assert_eq!(taken + refused, all.len(), "{}: {:?}", target.name, all.iter().find(|r| r.is_err()));
            // A log block that is damaged is no log block, and a pool opens without it.
            assert!(taken >= 10 && refused > 0, "{}: {taken} taken, {refused} refused", target.name);
        }
    }
}
