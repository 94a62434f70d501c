//! The matrix of faults: every profile, in every phase, with every fault alone and every two of them, on every member, at
//! several moments; and what has to come of it by what the profile tolerates.
//!
//! ```text
//!   content, flushed --> phase begins --fault--> .. --fault--> .. --> phase is over --> every block is read
//!                                                                                        |
//!     within what the profile tolerates: members come back, all copies are made alike  <-+-> beyond: the power goes, and what
//!                                        and a scrub finds nothing                           was flushed is there
//! ```
//!
//! | file | what |
//! |---|---|
//! | `case.rs` | the cells |
//! | `phase.rs` | what goes on: write, rows, read, scrub, replace, rebuild |
//! | `expect.rs` | what has to become of each block |
//!
//! A block with a copy that no fault reaches is served, in the phase and after it. One whose copies were all gone at
//! once is an error, that block and no other. What is between, as a second fault that comes when the first may have been
//! healed, may be either. Nothing is ever wrong, and nothing is waited for without end.
//!
//! What this does not see: content that no flush covered, once a cache was lost beyond what is tolerated (it may be anything, and who
//! hears of the error is not looked at); faults of the pool's own records block by block ([crash points](crate::crash) tear them), three
//! faults, faults between the moments (the [swarm](crate::swarm) draws them).

mod case;
mod expect;
mod phase;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use braid_core::control::{Command, VolumeClass};
use braid_core::device::Device;
use braid_core::request::{Event, Op, RequestError};
use braid_core::scrub::State;
use braid_core::units::{BLOCK, DeviceId, MIB, VolumeId};
use braid_core::{DeviceState, Profile, Slip};

pub use case::{Case, Faults, Hit, Kind, Layout, MOMENTS, cases, drawn, layouts, profiles};
pub use phase::Phase;

use crate::checker::Checker;
use crate::device::Model;
use crate::fault::{Fault, Trouble};
use crate::oracle::Loses;
use crate::world::{Crash, Shape, World};
use expect::{Expectation, Fate};

/// Pieces of content, one to a region and a half.
const PLACES: u64 = 12;
/// Which of each two is written over later.
const REWRITTEN: u64 = 1;
/// Writes of a member that fail.
const FAILURES: u64 = 4;
/// A member that went is back after so many ns.
const AWAY_NS: u64 = 3_000_000;
/// Nothing here takes so many events.
const EVENTS_MAX: u64 = 1_000_000;

/// The first byte of a piece.
fn place(i: u64) -> u64 {
    i * 6 * MIB
}

fn shape() -> Shape {
    Shape { size: 64 * MIB, model: Model::shipped("sata-ssd").expect("it is shipped"), class: "ssd" }
}

/// Runs cases, those of one thread. One after the other of the same phase of a layout, they begin with copies of one world.
#[derive(Default)]
pub struct Runner {
    last: RefCell<Option<Rc<Prepared>>>,
    /// Of phases in which nothing goes wrong, so that each is run once and not for every case.
    events: RefCell<BTreeMap<(Layout, Phase), u64>>,
}

/// A phase that is about to begin.
struct Prepared {
    of: (Layout, Phase, Option<Slip>),
    world: World,
    volume: VolumeId,
}

impl Runner {
    /// Runs a case, perhaps with a mistake of the engine: its trace, or what was wrong as a sentence of a checker.
    pub fn run(&self, case: &Case, slip: Option<Slip>) -> Result<u64, String> {
        let all = || {
            let prepared = self.prepared(case.layout, case.phase, slip);
            Run::new(case, &prepared).all(self.events_of(case.layout, case.phase))
        };
        catch_unwind(AssertUnwindSafe(all)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.or(panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
        })
    }

    fn prepared(&self, layout: Layout, phase: Phase, slip: Option<Slip>) -> Rc<Prepared> {
        let of = (layout, phase, slip);
        let known = self.last.borrow().clone().filter(|known| known.of == of);
        known.unwrap_or_else(|| {
            let (world, volume) = prepared(layout, phase, slip);
            let new = Rc::new(Prepared { of, world, volume });
            self.last.replace(Some(new.clone()));
            new
        })
    }

    fn events_of(&self, layout: Layout, phase: Phase) -> u64 {
        let known = self.events.borrow().get(&(layout, phase)).copied();
        known.unwrap_or_else(|| {
            let prepared = self.prepared(layout, phase, None);
            let count = count_events(prepared.world.clone(), prepared.volume, layout, phase);
            self.events.borrow_mut().insert((layout, phase), count);
            count
        })
    }
}

struct Run<'a> {
    case: &'a Case,
    world: World,
    volume: VolumeId,
    expected: Expectation,
}

/// The same pool each time, with content that is flushed.
fn metadata(Layout { profile, members, .. }: Layout) -> Profile {
    if profile.facts().tolerated_failures > 0 { profile.system() } else { Profile::usual(members as usize)[1] }
}

fn prepared(layout: Layout, phase: Phase, slip: Option<Slip>) -> (World, VolumeId) {
    let (profile, metadata) = (layout.profile, metadata(layout));
    let shapes = vec![shape(); layout.members as usize];
    let mut world = World::new(1);
    world.slip = slip;
    world.create(&shapes, profile, metadata, &[("checksum", layout.checksum.name())]).expect("the pool can be made");
    world.open().expect("a new pool opens");
    let volume = world.volume("v", place(PLACES), VolumeClass::Auto);
    for Range { start, end } in phase.pieces(layout) {
        world.run(volume, Op::Write { fua: false }, start, end - start).expect("nothing is wrong yet");
    }
    world.run(volume, Op::Flush, 0, 0).expect("nothing is wrong yet");
    world.run_until_quiet();
    phase.prepare(&mut world, volume, layout);
    (world, volume)
}

/// Events of a phase in which nothing goes wrong.
fn count_events(mut world: World, volume: VolumeId, layout: Layout, phase: Phase) -> u64 {
    phase.begin(&mut world, volume, layout);
    let mut events = 0;
    while (world.outstanding() > 0 || events == 0 || phase.goes_on(&world)) && world.step() {
        events += 1;
    }
    events
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, prepared: &Prepared) -> Run<'a> {
        let (mut world, volume) = (prepared.world.clone(), prepared.volume);
        let expected = Expectation::of(&world, volume, case);
        world.may_lose_caches = !expected.is_within;
        Run { case, world, volume, expected }
    }

    fn all(mut self, events: u64) -> Result<u64, String> {
        self.phase(events)?;
        self.read_all()?;
        match self.expected.is_within {
            true => self.heal()?,
            false => self.restart()?,
        }
        Ok(self.world.hash)
    }

    /// The phase, of so many events if nothing goes wrong, with its faults, to its end.
    fn phase(&mut self, events: u64) -> Result<(), String> {
        let Case { layout, phase, ref hits } = *self.case;
        for hit in hits.iter().filter(|hit| hit.moment == 0) {
            self.strike(*hit);
        }
        let command = phase.begin(&mut self.world, self.volume, layout);
        for event in 0..events {
            for moment in (1..MOMENTS).filter(|moment| event == events * u64::from(*moment) / u64::from(MOMENTS)) {
                hits.iter().filter(|hit| hit.moment == moment).for_each(|hit| self.strike(*hit));
            }
            self.step()?;
        }
        self.go_while(|run| run.world.outstanding() > 0 || phase.goes_on(&run.world))?;
        self.go_until_quiet()?;
        let done = std::mem::take(&mut self.world.done);
        let refused = done.into_iter().filter(|(tag, _)| Some(*tag) == command).find_map(|(_, result)| result.err());
        match refused.filter(|_| self.expected.is_within) {
            Some(why) => Err(Checker::Tolerance.says(format_args!("the {} was refused: {why:?}", phase.name()))),
            // Without a copy to rebuild from the member stays behind, and nobody waits.
            None if phase.goes_on(&self.world)
                && !self.is_stopped_short()
                && (self.expected.is_within || phase != Phase::Rebuild && !self.world.engine().is_suspended()) =>
            {
                Err(Checker::Drain.says(format_args!("all is quiet, and the {} is not over", phase.name())))
            }
            None => Ok(()),
        }
    }

    /// A member fails on and is needed: nothing is tried again until somebody says so.
    fn is_stopped_short(&self) -> bool {
        let pool = self.world.engine().pool();
        let is_suspect = |device| pool.device(device).is_some_and(|d| d.state == DeviceState::Suspect);
        self.case.hits.iter().any(|hit| hit.kind == Kind::GivenUp && is_suspect(DeviceId(hit.device)))
    }

    fn strike(&mut self, Hit { kind, device, .. }: Hit) {
        let now = self.world.now();
        let mut add = |trouble| self.world.faults.0.push(Fault { device, trouble });
        match kind {
            Kind::Missing => add(Trouble::Absent { since: now }),
            Kind::StaleReturn => add(Trouble::Pulled { since: now, until: now + AWAY_NS }),
            Kind::Torn => add(Trouble::Torn { percent: 100, left: FAILURES }),
            Kind::CacheLost => add(Trouble::CacheLost { percent: 100, left: 1 }),
            Kind::WriteError => add(Trouble::writes_fail(0..u64::MAX, FAILURES)),
            Kind::GivenUp => add(Trouble::writes_fail(0..u64::MAX, u64::MAX)),
            Kind::ReadError | Kind::BitFlip => {
                for &at in &self.expected.targets[&device] {
                    let places = self.world.places(self.volume, at);
                    let Some(&(_, from)) = places.iter().find(|(d, _)| d.0 == device) else { continue };
                    let to = from + BLOCK;
                    let trouble = match kind {
                        Kind::ReadError => Trouble::Latent { since: now, from, to },
                        _ => Trouble::Flipped { since: now, from, to, per_mille: 1000 },
                    };
                    self.world.faults.0.push(Fault { device, trouble });
                }
            }
        }
    }

    // ---- going on -------------------------------------------------------------------------------------------------

    /// One event, and what the host does when a member is there again; false when nothing happens any more.
    fn step(&mut self) -> Result<bool, String> {
        let moved = self.world.step();
        for &Hit { kind, device, .. } in &self.case.hits {
            let id = DeviceId(device);
            let engine = self.world.engine();
            let Some(member) = engine.pool().device(id).filter(|_| !engine.is_suspended()) else { continue };
            let is_given_up = member.state == DeviceState::Failed;
            if is_given_up {
                let fails = |fault: &Fault| matches!(fault.trouble, Trouble::Error { .. });
                self.world.faults.0.retain(|fault| fault.device != device || !fails(fault));
            }
            let is_back = match kind {
                Kind::StaleReturn => self.world.comes_back(id),
                Kind::GivenUp => is_given_up,
                _ => false,
            };
            if is_back {
                self.world.command(Command::OnlineDevice { device: id, found: None });
                self.world.drain();
            }
        }
        if let Some(why) = self.world.wrong.first() {
            return Err(why.clone());
        }
        for answer in std::mem::take(&mut self.world.answers) {
            if self.expected.is_within && answer.result.is_err() {
                return Err(Checker::Tolerance.says(format_args!("{answer:?}")));
            }
        }
        Ok(moved)
    }

    fn go_while(&mut self, goes_on: impl Fn(&Run<'_>) -> bool) -> Result<(), String> {
        for _ in 0..EVENTS_MAX {
            if !goes_on(self) || !self.step()? {
                return Ok(());
            }
        }
        Err(Checker::Drain.says("no end in sight"))
    }

    fn go_until_quiet(&mut self) -> Result<(), String> {
        self.go_while(|_| true)?;
        match self.world.outstanding() {
            0 => Ok(()),
            left => Err(Checker::Drain.says(format_args!("all is quiet, and {left} requests wait"))),
        }
    }

    /// Reads one block.
    fn read(&mut self, at: u64) -> Result<Result<(), RequestError>, String> {
        let tag = self.world.submit(0, self.volume, Op::Read, at, BLOCK, Default::default());
        for _ in 0..EVENTS_MAX {
            if let Some(i) = self.world.answers.iter().position(|answer| answer.tag == tag) {
                let answer = self.world.answers.swap_remove(i);
                return self.world.wrong.first().map_or(Ok(answer.result), |why| Err(why.clone()));
            }
            if !self.world.step() {
                break;
            }
        }
        Err(Checker::Drain.says(format_args!("no answer to a read of {at}")))
    }

    // ---- what has to be -------------------------------------------------------------------------------------------

    /// Every block by itself, as was expected.
    fn read_all(&mut self) -> Result<(), String> {
        for (at, fate) in self.expected.blocks.clone() {
            let result = self.read(at)?;
            if fate == Fate::Served && result.is_err() || fate == Fate::Lost && result.is_ok() {
                let text = format_args!("block at {at} should be {fate:?} and is {result:?}");
                return Err(Checker::Tolerance.says(text));
            }
        }
        self.go_until_quiet()
    }

    /// All troubles end, and members come back: everything is as it was, on all copies.
    fn heal(&mut self) -> Result<(), String> {
        // Whoever was pulled and is asked for nothing is not missed yet.
        self.control(Command::Checkpoint)?;
        self.go_until_quiet()?;
        self.world.mend();
        let pool = self.world.engine().pool();
        // Who failed too often and is needed all the same is asked again when an operator says so.
        let is_away = |d: &&Device| !d.state.is_used() || d.state == DeviceState::Suspect;
        let away: Vec<DeviceId> = pool.devices().filter(is_away).map(|d| d.id).collect();
        for device in away {
            self.control(Command::OnlineDevice { device, found: None })?;
        }
        self.go_until_quiet()?;
        if self.world.engine().report().job.is_some_and(|job| job.job.state == State::Paused) {
            self.control(Command::JobResume)?;
            self.go_until_quiet()?;
        }
        self.scrub()?;
        self.world.events.clear();
        self.scrub()?;
        let is_difference = |e: &Event| matches!(e, Event::ScrubDifference { .. } | Event::RowRepaired { .. });
        let is_bad = |e: &Event| matches!(e, Event::ScrubReadError { .. } | Event::BadCopy { .. });
        let is_trouble = |e: &&Event| is_difference(e) || is_bad(e);
        if let Some(event) = self.world.events.iter().find(is_trouble) {
            return Err(Checker::Copies.says(format_args!("after one scrub another finds {event:?}")));
        }
        let report = self.world.engine().report();
        let behind: Vec<DeviceId> = report.devices.iter().filter(|d| d.stale.regions > 0).map(|d| d.id).collect();
        if !report.lost.is_empty() || !behind.is_empty() {
            let lost = report.lost;
            return Err(Checker::Copies.says(format_args!("lost {lost:?}, behind {behind:?}")));
        }
        self.world.check_copies("in the end")?;
        if self.case.phase == Phase::Replace && report.job.is_none_or(|job| job.job.state != State::Finished) {
            return Err(Checker::Drain.says("the replacement never came to its end"));
        }
        self.expected.blocks.values_mut().for_each(|fate| *fate = Fate::Served);
        self.read_all()
    }

    fn scrub(&mut self) -> Result<(), String> {
        self.control(Command::ScrubStart)?;
        self.go_until_quiet()?;
        match self.world.engine().report().scrub.scrub.state {
            State::Finished => Ok(()),
            other => Err(Checker::Drain.says(format_args!("the scrub is {other:?}"))),
        }
    }

    fn control(&mut self, command: Command) -> Result<(), String> {
        let text = format!("{command:?}");
        self.world.done.clear();
        let tag = self.world.command(command);
        self.go_while(|run| !run.world.done.iter().any(|(of, _)| *of == tag))?;
        match self.world.done.iter().find(|(of, _)| *of == tag) {
            Some((_, Ok(_))) => Ok(()),
            other => Err(Checker::Tolerance.says(format_args!("{text}: {other:?}"))),
        }
    }

    /// Beyond what the profile tolerates: the machine starts anew, all members are there, and what was flushed is, too, as
    /// far as a copy is left.
    fn restart(&mut self) -> Result<(), String> {
        let loses_cache = self.world.faults.any_pulled(self.world.now());
        self.world.crash(Crash::Power);
        if loses_cache {
            self.world.oracle.crash(Loses::Cache);
        }
        self.world.mend();
        self.world.open().map_err(|why| Checker::Tolerance.says(why))?;
        for (at, fate) in self.expected.blocks.clone() {
            // Who was missing is back with what it had.
            let result = self.read(at)?;
            if fate == Fate::Served && result.is_err() {
                return Err(Checker::Tolerance.says(format_args!("after a restart block at {at} is {result:?}")));
            }
        }
        self.go_until_quiet()?;
        self.world.check_served().unwrap_or(Ok(()))
    }
}
