//! Crash points: a run is recorded once, then the power goes at every point of it, in every way the disks allow.
//!
//! ```text
//!   scene --run--> tape --cut--> moment --what is left--> disks --open--> the very engine --read--> promise
//!                                                           |
//!                                                           '--run--> tape --cut--> ...      (while it recovers)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `scene.rs` | pools and what goes on in them, by name and seed |
//! | `life.rs` | a run of the engine that leaves a tape |
//! | `tape.rs` | what reached the disks, and what was known to whom |
//! | `moment.rs` | the disks at a cut: what is decided, what is open |
//! | `remains.rs` | what a cut leaves of what is open: a number says it |
//! | `promise.rs` | what must be there |
//! | `openings.rs` | pools that were opened, for states that differ elsewhere |
//! | `looks.rs` | looks that need not be made again |
//! | `reopen.rs` | the pool is opened from that and looked at |
//! | `memory.rs` | buffers and disks meanwhile |
//! | `mistake.rs` | wrong builds that have to be found |
//!
//! One point = a cut and what it leaves. Several may leave the same state of the disks: that is opened and checked once, as long as nothing
//! more is known. Cuts are made after everything that adds a state or takes
//! one away: a write that was sent, a flush or a forced write that ended, an answer that promises something; what is between
//! them has the same states and no more to check. A write that was just sent is only looked at in states that have
//! some of it. Every subset of the last six open writes is tried; what more there is, and tears of sectors and
//! blocks, is drawn.
//!
//! What this does not see: bytes within a sector; disks that lie about flushes; what a recovery does with members that
//! come back later than the pool is opened; order of time, as commands held back for a point take none.

mod life;
mod looks;
pub(crate) mod memory;
mod mistake;
mod moment;
mod openings;
mod promise;
mod remains;
mod reopen;
mod scene;
pub(crate) mod tape;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

pub use mistake::Mistake;
pub use scene::names;

use crate::rng::Rng;
use moment::{Moment, Step};
use reopen::Reopener;
use scene::Scene;
use tape::Tape;

/// Lives that may follow one another: a run, its recovery, and the recovery of that.
const LIVES_MAX: usize = 3;
/// States of one cut: written out write by write as far as they go, then drawn; fewer in later lives.
const STATES: [u64; LIVES_MAX] = [64, 8, 4];
const DRAWN: [u64; LIVES_MAX] = [12, 3, 2];
/// One state in so many is gone on from.
const LIVES_EVERY: [u64; LIVES_MAX] = [300, 150, u64::MAX];

/// And of so many more where each is crossed with every loss.
const CROSSED: u64 = 8;

/// One state in so many is held to the strong form, which takes a run of its own.
const ALIKE_EVERY: u64 = 16;

/// A cut of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// After how many marks.
    at: usize,
    /// What it leaves of the open writes.
    state: u64,
    /// Members that are lost together with the power, a bit each.
    lost: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.at, self.state)?;
        (0..u64::BITS).filter(|disk| self.lost >> disk & 1 == 1).try_for_each(|disk| write!(f, "-{}", disk + 1))
    }
}

fn cut_of(text: &str) -> Option<Cut> {
    let (at, rest) = text.split_once(':')?;
    let mut numbers = rest.split('-');
    let (at, state, mut lost) = (at.parse().ok()?, numbers.next()?.parse().ok()?, 0);
    for disk in numbers {
        let disk: u32 = disk.parse().ok()?;
        lost |= 1u64.checked_shl(disk.checked_sub(1)?)?;
    }
    Some(Cut { at, state, lost })
}

/// Where the power goes: in the run, and perhaps again in the recovery from that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point(pub Vec<Cut>);

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, cut) in self.0.iter().enumerate() {
            let slash = if i == 0 { "" } else { "/" };
            write!(f, "{slash}{cut}")?;
        }
        Ok(())
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Point, String> {
        let cuts: Option<Vec<Cut>> = text.split('/').map(cut_of).collect();
        cuts.map(Point).ok_or_else(|| {
            format!("'{text}' is no crash point; one looks like 57:13, 57:13/4:2, or, with disk 2 lost, 57:13-2")
        })
    }
}

/// A point that failed, and why; enough to see it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The scene.
    pub scene: String,
    /// Its seed.
    pub seed: u64,
    /// Where; no cut when the run failed by itself.
    pub point: Point,
    /// In words, with the name of the checker.
    pub why: String,
}

/// What came of the points of one scene.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// States that were opened and checked.
    pub points: u64,
    /// Of these, states that were none of those before, or of which more was known.
    pub states: u64,
    /// Of these, states of a recovery that was cut.
    pub in_recovery: u64,
    /// Cuts, of all lives.
    pub cuts: u64,
    /// Runs that were recorded.
    pub lives: u64,
    /// Of these, first ones that were cut everywhere, in every state that is looked at.
    pub whole: u64,
    /// Of what was recorded, run by run, in whatever order.
    pub hash: u64,
}

impl Tally {
    /// Both together.
    pub fn add(&mut self, other: &Tally) {
        self.points += other.points;
        self.states += other.states;
        self.in_recovery += other.in_recovery;
        self.cuts += other.cuts;
        self.lives += other.lives;
        self.whole += other.whole;
        self.hash = self.hash.wrapping_add(other.hash);
    }
}

/// Points that may still be made, by whoever shares this.
#[derive(Debug)]
pub struct Budget(AtomicU64);

impl Budget {
    /// So many.
    pub fn new(points: u64) -> Budget {
        Budget(points.into())
    }

    /// Whether none is left.
    pub fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// One, if there is one.
    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// How it is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// A wrong build.
    pub mistake: Option<Mistake>,
    /// Also holds, of some of the points, that copies are alike before long and that what was read once stays: true once
    /// copies are evened out after a crash.
    pub alike: bool,
    /// Crosses each state with every loss of members that the profiles spare, in place of one that is drawn.
    pub every_loss: bool,
    /// No recovery is cut again.
    pub once: bool,
}

/// Cuts the power in the scene of this name and seed, as long as there are points left to make.
pub fn scene(name: &str, seed: u64, budget: &Budget, rules: Rules) -> Result<Tally, Failure> {
    let Some(scene) = Scene::new(name, seed) else { return Ok(Tally::default()) };
    let fail = |point: Point, why: String| Failure { scene: name.into(), seed, point, why };
    let tape = caught(|| life::first(&scene, rules.mistake)).map_err(|why| fail(Point::default(), why))?;
    let tally = Tally { lives: 1, hash: tape.hash, ..Tally::default() };
    let mut sweep = Sweep { scene: &scene, budget, rules, tally, path: Vec::new(), is_whole: true, is_short: false };
    match sweep.cut(&tape) {
        Ok(()) => {
            sweep.tally.whole = u64::from(!sweep.is_short);
            Ok(sweep.tally)
        }
        Err(why) => Err(fail(Point(sweep.path), why)),
    }
}

/// One point again.
pub fn again(name: &str, seed: u64, point: &Point, rules: Rules) -> Result<(), String> {
    let scene = Scene::new(name, seed).ok_or_else(|| format!("there is no scene '{name}'"))?;
    let Rules { mistake, alike, .. } = rules;
    let mut tape = caught(|| life::first(&scene, mistake))?;
    for (i, &cut) in point.0.iter().enumerate() {
        let mut moment = Moment::first(&tape);
        while moment.at < cut.at && moment.advance().is_some() {}
        let present = remains::leave(&mut moment, cut.state, cut.lost);
        let mut reopener = Reopener::new(tape.boot, mistake);
        caught(|| reopener.look(&moment, &present))?;
        if alike {
            caught(|| life::alike(&scene, &tape, &moment, &present))?;
        }
        // The last one too: what fails in the life that follows has no cut of its own.
        if i + 1 < LIVES_MAX {
            tape = caught(|| life::next(&scene, &tape, &moment, &present, life_seed(&scene, cut)))?;
        }
    }
    Ok(())
}

/// The seed of the life after a cut.
fn life_seed(scene: &Scene, Cut { at, state, lost }: Cut) -> u64 {
    scene.seed ^ (at as u64) << 20 ^ state << 32 ^ lost << 8
}

struct Sweep<'a> {
    scene: &'a Scene,
    budget: &'a Budget,
    rules: Rules,
    tally: Tally,
    /// Where it is.
    path: Vec<Cut>,
    /// No cut on the way there took a member along.
    is_whole: bool,
    /// There were not points enough for all of it.
    is_short: bool,
}

impl Sweep<'_> {
    /// Cuts a life everywhere.
    fn cut(&mut self, tape: &Tape) -> Result<(), String> {
        let mut moment = Moment::first(tape);
        let mut reopener = Reopener::new(tape.boot, tape.mistake);
        let depth = self.path.len();
        while let Some(step) = moment.advance() {
            if step == Step::Nothing {
                continue;
            }
            self.tally.cuts += 1;
            for state in states(&moment, step, depth, self.scene.seed) {
                for lost in self.losses(&moment, state) {
                    if !self.budget.take() {
                        self.is_short = true;
                        return Ok(());
                    }
                    let cut = Cut { at: moment.at, state, lost };
                    self.path.push(cut);
                    self.point(&mut moment, &mut reopener, cut)?;
                    self.path.pop();
                }
            }
        }
        Ok(())
    }

    /// Who may be lost with the power. Nobody if somebody was before that: who comes back is behind, and no other is spared then. Who
    /// vanished while clients were at work is one less, whether it is back or not.
    fn losses(&self, moment: &Moment<'_>, state: u64) -> Vec<u64> {
        match self.scene.spared.saturating_sub(self.scene.faults.len()) {
            spared if spared == 0 || !self.is_whole => vec![0],
            spared if self.rules.every_loss => remains::losses(moment, spared),
            spared => vec![remains::loss(moment, state, spared)],
        }
    }

    fn point(&mut self, moment: &mut Moment<'_>, reopener: &mut Reopener, cut: Cut) -> Result<(), String> {
        let present = remains::leave(moment, cut.state, cut.lost);
        self.tally.points += 1;
        self.tally.in_recovery += u64::from(self.path.len() > 1);
        self.tally.states += u64::from(caught(|| reopener.look(moment, &present))?);
        if self.rules.alike && self.tally.points.is_multiple_of(ALIKE_EVERY) {
            caught(|| life::alike(self.scene, moment.tape(), moment, &present))?;
        }
        let crossed = if self.rules.every_loss { CROSSED } else { 1 };
        let every = LIVES_EVERY[self.path.len() - 1].saturating_mul(crossed);
        if !self.rules.once && self.tally.points.is_multiple_of(every) {
            let seed = life_seed(self.scene, cut);
            let next = caught(|| life::next(self.scene, moment.tape(), moment, &present, seed))?;
            self.tally.lives += 1;
            self.tally.hash = self.tally.hash.wrapping_add(next.hash);
            let was_whole = self.is_whole;
            self.is_whole &= present.iter().all(|&here| here);
            self.cut(&next)?;
            self.is_whole = was_whole;
        }
        moment.take_back();
        Ok(())
    }
}

/// Which states of a cut are looked at.
fn states(moment: &Moment<'_>, step: Step, depth: usize, seed: u64) -> Vec<u64> {
    let whole = remains::whole(moment);
    let mut rng = Rng::new(seed ^ (moment.at as u64) << 24 ^ depth as u64);
    let mut all: Vec<u64> = match whole <= STATES[depth] {
        true => (0..whole).collect(),
        // Nothing, everything, and some of the rest.
        false => [0, whole - 1].into_iter().chain((2..STATES[depth]).map(|_| rng.below(whole))).collect(),
    };
    all.retain(|&state| !remains::is_old(moment, step, state));
    if !moment.open.is_empty() {
        all.extend((0..DRAWN[depth]).map(|_| whole + rng.below(1 << 24)));
    }
    all
}

/// What panics is caught, and is a failure like another.
fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default())
    })
}
