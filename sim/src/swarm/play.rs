//! A scenario is played, and everything about it checked.

use std::collections::{BTreeMap, BTreeSet};

use braid_core::Profile;
use braid_core::control::{Command, Done, ErrorKind};
use braid_core::request::{Event, Op, RequestError};
use braid_core::scrub::State;
use braid_core::units::{BLOCK, DeviceId, VolumeId};

use super::Summary;
use super::draw::shape;
use super::scenario::{Ask, Life, Scenario, Step};
use crate::checker::Checker;
use crate::fault::Fault;
use crate::oracle::Loses;
use crate::world::{Crash, World};

/// Events that some wait may take; the longest that end take some ten thousand.
const EVENTS_MAX: u64 = 5_000_000;
/// Events after which nobody waits for a device that never answers any more.
const IN_VAIN: u64 = 2_000;

/// What a run is at some moment.
struct Player<'a> {
    world: World,
    summary: Summary,
    /// Which volume is in which slot.
    slots: BTreeMap<u32, VolumeId>,
    /// Requests under way, by client.
    clients: BTreeMap<u32, BTreeSet<u64>>,
    /// Commands that will fill a slot, and what they name the volume.
    creates: BTreeMap<u64, (u32, &'a str)>,
    destroys: BTreeMap<u64, VolumeId>,
    tolerated: usize,
    /// Members that had more than delays.
    victims: BTreeSet<u32>,
    talk: bool,
}

/// Plays it; what was wrong, if anything, as a sentence of a checker. Broken invariants panic with one.
pub(super) fn play(scenario: &Scenario) -> Result<Summary, String> {
    let profile = |name: &str| Profile::ALL.into_iter().find(|p| p.name() == name);
    let (Some(data), Some(metadata)) = (profile(&scenario.data), profile(&scenario.metadata)) else {
        return Ok(Summary::default());
    };
    let Some(shapes) = scenario.devices.iter().map(shape).collect::<Option<Vec<_>>>() else {
        return Ok(Summary::default());
    };
    let mut world = World::new(scenario.seed);
    world.oracle.watch = watched();
    let set: Vec<(&str, &str)> = scenario.set.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    // Some pools cannot be.
    if world.create(&shapes, data, metadata, &set).is_err() {
        return Ok(Summary::default());
    }
    (world.no_merge, world.sabotage) = (scenario.no_merge, scenario.sabotage);
    let tolerated = data.facts().tolerated_failures.min(metadata.facts().tolerated_failures);
    let mut player = Player {
        world,
        summary: Summary::default(),
        slots: BTreeMap::new(),
        clients: BTreeMap::new(),
        creates: BTreeMap::new(),
        destroys: BTreeMap::new(),
        tolerated,
        victims: BTreeSet::new(),
        talk: std::env::var("BRAID_TALK").is_ok(),
    };
    for (i, life) in scenario.lives.iter().enumerate() {
        let goes_on = player.live(life).map_err(|why| match why.split_once("] ") {
            Some((checker, rest)) => format!("{checker}] life {i}, at {} ns: {rest}", player.world.now()),
            None => why,
        })?;
        if !goes_on {
            break;
        }
    }
    (player.summary.steps, player.summary.hash) = (player.world.steps, player.world.hash);
    Ok(player.summary)
}

/// `BRAID_WATCH=volume:sector` tells every change of a sector.
fn watched() -> Option<(u32, u64)> {
    let text = std::env::var("BRAID_WATCH").ok()?;
    let (volume, sector) = text.split_once(':')?;
    Some((volume.parse().ok()?, sector.parse().ok()?))
}

impl<'a> Player<'a> {
    /// From opening to crash; false when the pool cannot be opened any more, and that is fine.
    fn live(&mut self, life: &'a Life) -> Result<bool, String> {
        self.befall(life);
        if let Err(why) = self.world.open() {
            return if self.errors_are_fine() { Ok(false) } else { Err(Checker::Tolerance.says(why)) };
        }
        self.find_volumes()?;
        for step in &life.steps {
            self.step(step)?;
            if self.world.engine.is_none() {
                return Ok(false);
            }
        }
        // What waits for a device that never answers again cannot be answered either: its memory is not ours to give back. Time
        // passes while everything comes to rest, so one that has not got stuck yet may do so half way.
        if life.rests && !self.world.faults.any_stuck_for_ever(u64::MAX) {
            self.rest(life.scrubs)?;
            if life.closes {
                self.close()?;
            }
        }
        self.summary.crashes += 1;
        self.clients.clear();
        self.destroys.clear();
        let lost_cache = self.errors_are_fine() && self.world.faults.any_pulled(self.world.now());
        self.world.crash(life.crash);
        if lost_cache {
            // Without a second copy, what was in the cache of a pulled device is gone as after a power cut.
            self.world.oracle.crash(Loses::Cache);
        }
        Ok(true)
    }

    /// Old troubles end, new ones begin.
    fn befall(&mut self, life: &Life) {
        if life.mended {
            self.world.mend();
        }
        life.faults.iter().for_each(|fault| self.begins(fault));
        self.world.may_lose_caches = self.errors_are_fine();
    }

    /// Something goes wrong from now on.
    fn begins(&mut self, Fault { device, trouble }: &Fault) {
        if self.talk {
            println!("device {device}: {trouble:?}");
        }
        if !trouble.only_delays() {
            self.victims.insert(*device);
        }
        let trouble = trouble.clone().later(self.world.now());
        self.world.faults.0.push(Fault { device: *device, trouble });
        self.world.may_lose_caches = self.errors_are_fine();
    }

    /// Within what the profiles tolerate nothing may be noticed; beyond, errors are fine and wrong content is not.
    fn errors_are_fine(&self) -> bool {
        self.victims.len() > self.tolerated
    }

    /// What is there after an opening, and what should be.
    fn find_volumes(&mut self) -> Result<(), String> {
        let pool = self.world.engine().pool();
        let here: Vec<u32> = pool.volumes().filter(|v| !v.is_internal()).map(|v| v.id.0).collect();
        for (slot, name) in std::mem::take(&mut self.creates).into_values() {
            if let Some(volume) = pool.volume_named(name) {
                self.slots.insert(slot, volume.id);
            }
        }
        self.slots.retain(|_, id| here.contains(&id.0));
        if self.talk {
            let states: Vec<_> = pool.devices().map(|d| d.state.name()).collect();
            println!("opened at {} ns, volumes {here:?}, devices {states:?}", self.world.now());
        }
        let lost = self.world.oracle.found(&here);
        if !lost.is_empty() && !self.errors_are_fine() {
            return Err(Checker::Content.says(format_args!("volumes {lost:?} are lost")));
        }
        for id in lost {
            self.world.oracle.destroy(id);
            self.world.oracle.destroyed(id);
        }
        Ok(())
    }

    fn step(&mut self, step: &'a Step) -> Result<(), String> {
        match step {
            Step::Ask(ask) => self.ask(ask),
            Step::Go(events) => {
                for _ in 0..*events {
                    self.go()?;
                }
                Ok(())
            }
            Step::Verify if self.world.faults.any_stuck_for_ever(self.world.now()) => Ok(()),
            Step::Verify => {
                // Troubles may begin meanwhile.
                self.world.verify_while(|w| !w.faults.any_stuck_for_ever(w.now()));
                self.look()
            }
            Step::Befall(fault) => {
                self.begins(fault);
                Ok(())
            }
            Step::Reopen { mended, crash } => self.reopen(*mended, *crash),
            Step::Add(member) | Step::Spare(member) | Step::ReplaceWith { by: member, .. } => {
                if let Some(shape) = shape(member) {
                    match step {
                        Step::Spare(_) => self.world.add_spare(&shape),
                        Step::ReplaceWith { device, .. } => self.world.replace_with(DeviceId(*device), &shape),
                        _ => self.world.add_disk(&shape),
                    };
                }
                self.look()
            }
            other => self.command(other),
        }
    }

    /// A suspended pool is opened again for its clients. Where something may be gone that they had not flushed, the next flush of each
    /// volume says so.
    fn reopen(&mut self, mended: bool, crash: Crash) -> Result<(), String> {
        if !self.world.engine().is_suspended() {
            return Ok(());
        }
        self.go_while(|_| true)?;
        if self.world.faults.any_stuck_for_ever(u64::MAX) {
            return Ok(());
        }
        let crash = if self.world.faults.any_pulled(self.world.now()) { Crash::Power } else { crash };
        if self.talk {
            println!("at {} ns: reopened, {crash:?}, mended {mended}", self.world.now());
        }
        if mended {
            self.world.mend();
        }
        (self.clients, self.destroys) = Default::default();
        let is_loss = match self.world.resume(crash) {
            Ok(is_loss) => is_loss,
            Err(_) if self.errors_are_fine() => return Ok(()),
            Err(why) => return Err(Checker::Tolerance.says(why)),
        };
        self.find_volumes()?;
        let here: Vec<VolumeId> = self.slots.values().copied().filter(|_| is_loss).collect();
        for volume in here {
            if self.world.run(volume, Op::Flush, 0, 0).is_ok() {
                return Err(Checker::Content.says(format_args!("what volume {volume} may have lost, no flush says")));
            }
        }
        self.look()
    }

    /// One event.
    fn go(&mut self) -> Result<bool, String> {
        let moved = self.world.step();
        self.look()?;
        Ok(moved)
    }

    /// Goes on as long as `waits` says so; false when nothing happens any more, or beside a device that never answers.
    fn go_while(&mut self, waits: impl Fn(&Player<'_>) -> bool) -> Result<bool, String> {
        let mut events = 0;
        while waits(self) {
            events += 1;
            // Whoever waits for such a device does so for ever, while others wake now and then.
            let in_vain = events > IN_VAIN && self.world.faults.any_stuck_for_ever(self.world.now());
            if in_vain || !self.go()? {
                return Ok(false);
            }
            if events > EVENTS_MAX {
                return Err(Checker::Drain.says("no end in sight"));
            }
        }
        Ok(true)
    }

    fn ask(&mut self, ask: &Ask) -> Result<(), String> {
        if !self.go_while(|p| p.clients.get(&ask.client).map_or(0, BTreeSet::len) >= ask.depth.max(1))? {
            return Ok(());
        }
        let Some(&volume) = self.slots.get(&ask.slot) else { return Ok(()) };
        let size = self.world.engine().pool().volume(volume).map_or(0, |v| v.size);
        if !self.world.oracle.knows(volume.0) || ask.offset + ask.len > size {
            return Ok(());
        }
        let tag = self.world.submit(ask.client, volume, ask.op(), ask.offset, ask.len, ask.content());
        self.clients.entry(ask.client).or_default().insert(tag);
        Ok(())
    }

    fn command(&mut self, step: &'a Step) -> Result<(), String> {
        let is_filled = matches!(step, Step::Create { slot, .. } if self.slots.contains_key(slot));
        let slots = &self.slots;
        let command = step.command(|slot| slots.get(&slot).copied());
        let Some(mut command) = command.filter(|_| !is_filled) else { return Ok(()) };
        match &mut command {
            Command::OfflineDevice { device } => {
                self.victims.insert(device.0);
            }
            Command::OnlineDevice { device, found } => {
                *found = found.or_else(|| self.world.reopens(*device));
                if found.is_none() && !self.world.comes_back(*device) {
                    return Ok(());
                }
            }
            _ => {}
        }
        if self.talk {
            println!("at {} ns: {command:?}", self.world.now());
        }
        let destroyed = if let Command::DestroyVolume { volume } = command { Some(volume) } else { None };
        let tag = self.world.command(command);
        if let Step::Create { slot, name, .. } = step {
            self.creates.insert(tag, (*slot, name));
        }
        if let Some(volume) = destroyed {
            self.world.oracle.destroy(volume.0);
            self.destroys.insert(tag, volume);
            self.slots.retain(|_, id| *id != volume);
            // The oracle knows of a volume's end at once, so the engine has to.
            self.world.drain();
        }
        self.look()
    }

    /// Whatever came out of the door since the last look.
    fn look(&mut self) -> Result<(), String> {
        let is_fine = self.errors_are_fine();
        self.summary.answered += self.world.answers.len() as u64;
        for answer in std::mem::take(&mut self.world.answers) {
            self.clients.values_mut().for_each(|tags| {
                tags.remove(&answer.tag);
            });
            match answer.result {
                Ok(()) | Err(RequestError::NoSpace | RequestError::NoVolume) => {}
                Err(_) if is_fine => {}
                Err(_) => return Err(Checker::Tolerance.says(format_args!("{answer:?}"))),
            }
        }
        for (tag, result) in std::mem::take(&mut self.world.done) {
            let created = self.creates.remove(&tag);
            match result {
                Ok(Done::Volume(id)) => {
                    self.world.oracle.create(id.0);
                    if let Some((slot, _)) = created {
                        self.slots.insert(slot, id);
                    }
                }
                Ok(_) => {
                    if let Some(id) = self.destroys.remove(&tag) {
                        self.world.oracle.destroyed(id.0);
                    }
                }
                Err(why) if why.kind == ErrorKind::Io && !is_fine => {
                    return Err(Checker::Tolerance.says(format_args!("{why:?}")));
                }
                Err(_) => {}
            }
        }
        if let Some(why) = self.world.wrong.first() {
            return Err(why.clone());
        }
        if self.talk {
            let now = self.world.now();
            self.world.events.iter().for_each(|event| println!("at {now} ns: {event:?}"));
        }
        self.nobody_is_older()?;
        let found = self.world.events.drain(..).find(|e| matches!(e, Event::ScrubDifference { .. }));
        match found.filter(|_| !is_fine && !self.world.may_tell_differences()) {
            Some(event) => Err(Checker::Copies.says(format_args!("no write went elsewhere, and {event:?}"))),
            None => Ok(()),
        }
    }

    /// No run puts an older copy of a member in its place: only one whose superblocks were spoilt may look like one.
    fn nobody_is_older(&self) -> Result<(), String> {
        let older = self.world.events.iter().find_map(|event| match event {
            Event::DeviceOlder { device, .. } if !self.world.has_spoilt_slots(*device) => Some(device),
            _ => None,
        });
        match older {
            Some(device) => {
                Err(Checker::Members.says(format_args!("device {device} is taken for an older copy of itself")))
            }
            None => Ok(()),
        }
    }

    /// When all is quiet the copies of everything are alike, but for what a write left that was not meant for it.
    fn alike(&self) -> Result<(), String> {
        if self.errors_are_fine() || self.world.was_misdirected() {
            return Ok(());
        }
        self.world.check_copies("all is quiet, and")
    }

    /// A clean end, if the pool still can.
    fn close(&mut self) -> Result<(), String> {
        self.world.command(Command::Close);
        self.go_while(|_| true)?;
        self.look()
    }

    /// Until nothing happens any more; then everything is counted, read and compared.
    fn rest(&mut self, scrubs: bool) -> Result<(), String> {
        let counts = !self.errors_are_fine();
        self.go_while(|_| true)?;
        self.world.check_quiet(counts);
        self.alike()?;
        self.world.verify();
        self.world.run_until_quiet();
        self.look()?;
        self.world.check_quiet(counts);
        if scrubs {
            scrub_to_the_end(&mut self.world)?;
            self.look()?;
            self.world.check_quiet(counts);
        }
        self.world.check_served().unwrap_or(Ok(()))
    }
}

/// While nobody writes, a scrub finds what brute force finds, no more and no less.
fn scrub_to_the_end(world: &mut World) -> Result<(), String> {
    let state = |w: &World| w.engine().report().scrub.scrub.state;
    let _ = world.control(Command::ScrubCancel);
    world.run_until_quiet();
    world.events.clear();
    let (unequal, spoilt) = (world.unequal(), world.spoilt_blocks());
    // A pool whose log is dead refuses.
    if world.control(Command::ScrubStart).is_err() {
        world.run_until_quiet();
        return Ok(());
    }
    world.run_until(|w| state(w) != State::Running);
    world.run_until_quiet();
    let mut found = Vec::new();
    for event in std::mem::take(&mut world.events) {
        match event {
            Event::ScrubDifference { volume: Some(volume), offset, len, .. } => {
                found.extend((0..len / BLOCK).map(|i| (volume, offset + i * BLOCK)));
            }
            // The pool's own pages.
            Event::ScrubDifference { volume: None, .. } if world.may_tell_differences() => {}
            Event::ScrubDifference { volume: None, .. } => return Err(Checker::Copies.says(format_args!("{event:?}"))),
            // What cannot be read cannot be compared.
            Event::ScrubReadError { .. } | Event::ScrubTellsNoMore | Event::DeviceFailed { .. } => return Ok(()),
            _ => {}
        }
    }
    if world.engine().pool().properties.checksum.is_on() {
        // What checksums know was put right meanwhile, and what has no copy that is right stays.
        let mut left = world.unequal();
        let is_summed = |volume| world.engine().pool().volume(volume).is_some_and(|v| v.checksum);
        left.retain(|(volume, _)| is_summed(*volume));
        let lost = world.engine().report().lost.len();
        return match left.is_empty() || lost > 0 || !world.faults.0.is_empty() {
            true => Ok(()),
            false => Err(Checker::Copies.says(format_args!("a scrub left {left:?} unequal; it found {found:?}"))),
        };
    }
    if world.spoilt_blocks() > spoilt {
        // One of the scrub's own records landed on what it was to read, or had read.
        return Ok(());
    }
    found.sort_unstable();
    match found == unequal && state(world) == State::Finished {
        true => Ok(()),
        false => {
            let what = format_args!("a scrub found {found:?}, unequal are {unequal:?}, it is {:?}", state(world));
            Err(Checker::Copies.says(what))
        }
    }
}
