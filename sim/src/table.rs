//! A published table, ours beside it: rows with a tolerance, claims that hold or don't, pictures.
//!
//! ```text
//!   Table   name, source, seed     what `sim/tables/` lists, one file each
//!     run   -> Sheet               scenarios in virtual time; any number of threads gives the same
//!   Sheet   rows                   a number as published, ours, how far apart they may be
//!           claims                 an order, a share, a median: a sentence and whether it is true
//!           plots, notes, hash
//! ```
//!
//! A row without a tolerance is shown and not judged; its note says why. Floating point is for showing and judging
//! only: scenarios count in integers.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How tables are run.
#[derive(Clone, Copy, Debug)]
pub struct Lab {
    /// Scenarios at once.
    pub threads: usize,
    /// Is told how far a run is, in lines, by those that take minutes.
    pub tell: fn(&str),
}

impl Lab {
    /// As many at once as the machine has cores.
    pub fn new() -> Lab {
        Lab::with_threads(std::thread::available_parallelism().map_or(1, NonZero::get))
    }

    /// So many at once; nobody is told anything.
    pub fn with_threads(threads: usize) -> Lab {
        Lab { threads, tell: |_| {} }
    }

    /// `f` of each, on several threads; results in the order of what was given.
    pub fn each<T: Sync, R: Send>(&self, items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let next = AtomicUsize::new(0);
        let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for _ in 0..self.threads.clamp(1, items.len().max(1)) {
                scope.spawn(|| {
                    while let Some(i) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < items.len()) {
                        let result = f(&items[i]);
                        *results[i].lock().expect("nobody panics with the lock") = Some(result);
                    }
                });
            }
        });
        let taken = results.into_iter().map(|r| r.into_inner().expect("nobody panics with the lock"));
        taken.map(|r| r.expect("each was done")).collect()
    }
}

impl Default for Lab {
    fn default() -> Self {
        Lab::new()
    }
}

/// A published table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// What `braid lab run` calls it.
    pub name: &'static str,
    /// A line.
    pub title: &'static str,
    /// Who published it, when and where.
    pub source: &'static str,
    /// Dice of its scenarios.
    pub seed: u64,
    /// Ours.
    pub run: fn(&Lab, u64) -> Sheet,
}

impl Table {
    /// Runs it.
    pub fn sheet(&self, lab: &Lab) -> Sheet {
        (self.run)(lab, self.seed)
    }
}

/// How far ours may be from what was published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Within {
    /// Equal.
    Exactly,
    /// So many percent of what was published.
    Percent(f64),
    /// So much more or less, in the row's unit.
    Absolute(f64),
    /// So many log2 buckets: a factor of two each.
    Buckets(u32),
    /// From one number to the other, both included; nothing exact was published.
    Range(f64, f64),
    /// Chance: ours is the mean of several seeds, from the least to the most that one of them gave, and what was published is such
    /// a draw too.
    Draws(f64, f64),
    /// Shown only.
    Shown,
}

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Of what.
    pub what: String,
    /// What is counted: `I/Os`, `MiB/s`, `ms`.
    pub unit: &'static str,
    /// Theirs, if a number was published.
    pub published: Option<f64>,
    /// Ours.
    pub ours: f64,
    /// The tolerance.
    pub within: Within,
}

impl Row {
    /// Beside a published number.
    pub fn new(what: impl Into<String>, unit: &'static str, published: f64, ours: f64, within: Within) -> Row {
        Row { what: what.into(), unit, published: Some(published), ours, within }
    }

    /// Of ours only.
    pub fn ours(what: impl Into<String>, unit: &'static str, ours: f64) -> Row {
        Row { what: what.into(), unit, published: None, ours, within: Within::Shown }
    }

    /// Percent that ours is more than what was published; none beside nothing or zero.
    pub fn deviation(&self) -> Option<f64> {
        let published = self.published.filter(|p| *p != 0.0)?;
        Some((self.ours / published - 1.0) * 100.0)
    }

    /// Whether it is judged at all.
    pub fn is_judged(&self) -> bool {
        self.within != Within::Shown
    }

    /// Whether ours is near enough.
    pub fn holds(&self) -> bool {
        // What was published is rounded to its last digit, and so are percentages of it.
        const ROUNDING: f64 = 1e-9;
        let (ours, published) = (self.ours, self.published);
        let apart = published.map(|p| (ours - p).abs());
        let at_most = |limit: f64| apart.is_some_and(|apart| apart <= limit * (1.0 + ROUNDING));
        match self.within {
            Within::Shown => true,
            Within::Exactly => apart == Some(0.0),
            Within::Percent(percent) => at_most(published.unwrap_or(0.0).abs() * percent / 100.0),
            Within::Absolute(limit) => at_most(limit),
            Within::Buckets(n) => {
                let ratio = published.map_or(f64::INFINITY, |p| (ours / p).max(p / ours));
                ratio <= f64::from(n).exp2() * (1.0 + ROUNDING)
            }
            Within::Range(from, to) => (from..=to).contains(&ours),
            Within::Draws(least, most) => published.is_some_and(|p| (least..=most).contains(&p)),
        }
    }
}

/// A sentence that a run makes true or false.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// What should be.
    pub what: String,
    /// Whether it is.
    pub holds: bool,
    /// With which numbers.
    pub shown: String,
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Plot {
    /// Groups of bars, a bar a series.
    Bars {
        /// Above.
        title: String,
        /// Of the axis.
        unit: &'static str,
        /// Names of bars within a group.
        series: Vec<String>,
        /// A group and its bars.
        groups: Vec<(String, Vec<f64>)>,
    },
    /// Shares of each group that add up to one.
    Shares {
        /// Above.
        title: String,
        /// Names of the shares.
        series: Vec<String>,
        /// A group and its amounts, of any sum.
        groups: Vec<(String, Vec<f64>)>,
    },
    /// Lines over a common axis.
    Lines {
        /// Above.
        title: String,
        /// Of the axes: across, up.
        units: (&'static str, &'static str),
        /// Whether the axes are logarithmic: across, up.
        log: (bool, bool),
        /// A line's name and its points.
        lines: Vec<(String, Vec<(f64, f64)>)>,
    },
}

/// What a table's run gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// Ours beside theirs.
    pub rows: Vec<Row>,
    /// What else has to be true.
    pub claims: Vec<Claim>,
    /// Pictures.
    pub plots: Vec<Plot>,
    /// What to know when reading: assumptions, what is not modelled, oddities of the source.
    pub notes: Vec<String>,
    /// Over the traces of all scenarios, in order.
    pub hash: u64,
}

impl Sheet {
    /// A claim more.
    pub fn claim(&mut self, what: impl Into<String>, holds: bool, shown: impl Into<String>) {
        self.claims.push(Claim { what: what.into(), holds, shown: shown.into() });
    }

    /// A note more.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Takes a scenario's trace into account.
    pub fn traced(&mut self, hash: u64) {
        self.hash = (self.hash ^ hash).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// Rows and claims that do not hold.
    pub fn misses(&self) -> usize {
        self.rows.iter().filter(|r| !r.holds()).count() + self.claims.iter().filter(|c| !c.holds).count()
    }

    /// Rows and claims that could fail.
    pub fn judged(&self) -> usize {
        self.rows.iter().filter(|r| r.is_judged()).count() + self.claims.len()
    }

    /// The middle of how far rows are from what was published, in percent without sign.
    pub fn median_error<'a>(rows: impl IntoIterator<Item = &'a Row>) -> f64 {
        let mut all: Vec<f64> = rows.into_iter().filter_map(Row::deviation).map(f64::abs).collect();
        all.sort_by(f64::total_cmp);
        match all.len() {
            0 => 0.0,
            n if n % 2 == 1 => all[n / 2],
            n => (all[n / 2 - 1] + all[n / 2]) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_what_they_say() {
        use Within::*;
        for (published, ours, within, holds) in [
            (100.0, 100.0, Exactly, true),
            (100.0, 100.001, Exactly, false),
            (100.0, 110.0, Percent(10.0), true),
            (100.0, 89.9, Percent(10.0), false),
            (0.0, 0.0, Percent(3.0), true),
            (0.0, 1.0, Percent(3.0), false),
            (5.0, 7.0, Absolute(2.0), true),
            (5.0, 2.9, Absolute(2.0), false),
            (256.0, 512.0, Buckets(1), true),
            (256.0, 64.0, Buckets(1), false),
            (256.0, 256.0, Buckets(0), true),
            (256.0, 0.0, Buckets(3), false),
            (9.0, 252.0, Range(252.0, 260.0), true),
            (9.0, 261.0, Range(252.0, 260.0), false),
            (9.0, 90.0, Draws(0.0, 9.0), true),
            (9.0, 5.0, Draws(0.0, 8.0), false),
            (1.0, 1e9, Shown, true),
        ] {
            let row = Row::new("x", "I/Os", published, ours, within);
            assert_eq!(row.holds(), holds, "{row:?}");
        }
        assert!(!Row { published: None, ..Row::new("x", "s", 0.0, 1.0, Percent(5.0)) }.holds(), "beside nothing");
    }

    #[test]
    fn a_sheet_counts_its_misses() {
        let mut sheet = Sheet { rows: vec![Row::ours("a", "s", 1.0)], ..Sheet::default() };
        assert_eq!((sheet.judged(), sheet.misses()), (0, 0));
        sheet.rows.push(Row::new("b", "s", 1.0, 2.0, Within::Percent(50.0)));
        sheet.rows.push(Row::new("c", "s", 1.0, 1.3, Within::Percent(50.0)));
        sheet.claim("d", false, "");
        assert_eq!((sheet.judged(), sheet.misses()), (3, 2));
        assert!((Sheet::median_error(&sheet.rows) - 65.0).abs() < 1e-9);
    }

    #[test]
    fn threads_do_not_change_results_or_their_order() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [1, 2, 7, 1000] {
            assert_eq!(
                Lab::with_threads(threads).each(&items, |i| i * i),
                items.iter().map(|i| i * i).collect::<Vec<_>>()
            );
        }
        assert_eq!(Lab::with_threads(2).each(&[0; 0], |i: &u64| *i), [0u64; 0]);
    }
}
