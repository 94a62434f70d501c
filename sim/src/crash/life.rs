//! A run of the engine in a [`World`], with a [`Tape`] of what reached the disks: the run that is cut, or the one after a
//! cut.

use std::collections::BTreeMap;
use std::rc::Rc;

use braid_core::control::{Command, Done};
use braid_core::meta::superblock::{SLOTS, SUPERBLOCK_SIZE, Superblock};
use braid_core::request::RequestError;
use braid_core::units::VolumeId;

use super::mistake::Mistake;
use super::moment::Moment;
use super::promise::{Books, Entry, Known};
use super::scene::Scene;
use super::tape::Tape;
use crate::checker::Checker;
use crate::disk::{self, Content};
use crate::fault::{Fault, Faults, Trouble};
use crate::rng::Rng;
use crate::swarm::scenario::{Ask, Step};
use crate::world::{Crash, World};

/// Blocks of the log ring: few, so that it is soon round, and an opening has little to read.
const RING: u32 = 8;
/// Events that nothing here takes as many of.
const EVENTS_MAX: u64 = 200_000;

struct Life<'a> {
    world: World,
    scene: &'a Scene,
    volumes: BTreeMap<u32, VolumeId>,
    creates: BTreeMap<u64, u32>,
    /// What the operator asked before there is a tape.
    books: Books,
}

/// The pool of a scene is made and filled, then what is to be cut is recorded.
pub(crate) fn first(scene: &Scene, mistake: Option<Mistake>) -> Result<Tape, String> {
    let mut world = World::new(scene.seed);
    let set: Vec<(&str, &str)> = scene.set.iter().map(|(n, v)| (*n, v.as_str())).collect();
    world.create(&scene.shapes, scene.data, scene.metadata, &set).map_err(|e| e.message)?;
    shorten_ring(&mut world);
    world.slip = mistake.and_then(Mistake::slip);
    world.open()?;
    let mut life = Life::new(world, scene);
    life.books.settle(Entry::CommitInterval, Some(life.world.engine().pool().properties.commit_interval_ms));
    life.play(&scene.before)?;
    life.rest()?;
    let known = Rc::new(Known::of(&life.world.oracle, &life.books));
    life.world.tape = Some(Box::new(Tape::new(&life.world.disks, known, 1, mistake)));
    for Fault { device, trouble } in &scene.faults {
        let trouble = trouble.clone().later(life.world.now());
        life.world.faults.0.push(Fault { device: *device, trouble });
    }
    life.play(&scene.steps)?;
    life.end()
}

/// The pool is opened from what a cut left, and goes on.
pub(crate) fn next(
    scene: &Scene,
    before: &Tape,
    state: &Moment<'_>,
    present: &[bool],
    seed: u64,
) -> Result<Tape, String> {
    let mut world = after_cut(scene, before, state, present, seed);
    let mut tape = Tape::new(&world.disks, state.known.clone(), world.boot(), before.mistake);
    (0..present.len()).filter(|&disk| !present[disk]).for_each(|disk| tape.gone(disk));
    world.tape = Some(Box::new(tape));
    world.open().map_err(|why| Checker::Tolerance.says(why))?;
    let mut life = Life::new(world, scene);
    life.find_volumes();
    life.play(&scene.after(seed))?;
    life.end()
}

/// The strong form: after a cut all copies are alike before long, and what is read once is read at every later time, also by
/// the next run.
pub(crate) fn alike(scene: &Scene, before: &Tape, state: &Moment<'_>, present: &[bool]) -> Result<(), String> {
    let mut world = after_cut(scene, before, state, present, scene.seed);
    for _ in 0..2 {
        world.open().map_err(|why| Checker::Tolerance.says(why))?;
        let mut life = Life::new(world, scene);
        life.find_volumes();
        world = life.world;
        // While it recovers, and when it has.
        for _ in 0..2 {
            world.verify();
            world.run_until_quiet();
        }
        if let Some(why) = world.wrong.first() {
            return Err(why.clone());
        }
        world.check_copies("after the recovery")?;
        world.crash(Crash::Process);
    }
    Ok(())
}

/// The machine starts again on what a cut left.
fn after_cut(scene: &Scene, before: &Tape, state: &Moment<'_>, present: &[bool], seed: u64) -> World {
    let mut world = World::new(seed);
    world.disks = disk::array(scene.shapes.iter().map(|s| (s.size, &s.model)), &mut Rng::new(seed));
    for (disk, cells) in world.disks.iter_mut().zip(&state.disks) {
        let written = (0u64..).zip(cells).filter(|(_, cell)| **cell != 0);
        written.for_each(|(at, &cell)| disk.put(at, state.block(cell).clone()));
    }
    let away = (0..present.len()).filter(|&disk| !present[disk]);
    world.faults =
        Faults(away.map(|d| Fault { device: d as u32 + 1, trouble: Trouble::Absent { since: 0 } }).collect());
    let boot = if before.mistake == Some(Mistake::BootNotTold) { before.boot } else { before.boot + 1 };
    world.set_boot(boot);
    world.oracle = state.known.oracle.clone();
    world.slip = before.mistake.and_then(Mistake::slip);
    world
}

/// A new pool gets a shorter log than it would have: what follows the ring is pages that nobody uses.
fn shorten_ring(world: &mut World) {
    for disk in &mut world.disks {
        for at in SLOTS {
            let Ok(mut superblock) = Superblock::decode(&disk.read_bytes(at, SUPERBLOCK_SIZE)) else { continue };
            superblock.log_blocks = RING;
            let mut content = Content::new();
            content.push_bytes(&superblock.encode());
            disk.write(at, &content, true, || true);
        }
    }
}

impl<'a> Life<'a> {
    fn new(world: World, scene: &'a Scene) -> Life<'a> {
        Life { world, scene, volumes: BTreeMap::new(), creates: BTreeMap::new(), books: Books::default() }
    }

    /// What is there after an opening.
    fn find_volumes(&mut self) {
        let Life { world, scene, volumes, .. } = self;
        let pool = world.engine.as_ref().expect("it was just opened").pool();
        for (slot, name) in &scene.names {
            if let Some(volume) = pool.volume_named(name) {
                volumes.insert(*slot, volume.id);
            }
        }
        let here: Vec<u32> = pool.volumes().filter(|v| !v.is_internal()).map(|v| v.id.0).collect();
        world.oracle.found(&here);
        if let Some(tape) = &mut world.tape {
            tape.books.found(pool);
        }
    }

    fn play(&mut self, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            match step {
                Step::Ask(ask) => self.ask(ask)?,
                Step::Go(events) => {
                    for _ in 0..*events {
                        self.go()?;
                    }
                }
                other => self.command(other)?,
            }
        }
        Ok(())
    }

    fn go(&mut self) -> Result<bool, String> {
        let moved = self.world.step();
        self.look()?;
        Ok(moved)
    }

    fn ask(&mut self, ask: &Ask) -> Result<(), String> {
        let mut events = 0;
        while self.world.outstanding() >= ask.depth && events < EVENTS_MAX && self.go()? {
            events += 1;
        }
        let Some(&volume) = self.volumes.get(&ask.slot) else { return Ok(()) };
        let size = self.world.engine().pool().volume(volume).map_or(0, |v| v.size);
        if self.world.oracle.knows(volume.0) && ask.offset + ask.len <= size {
            self.world.submit(ask.client, volume, ask.op(), ask.offset, ask.len, ask.content());
        }
        Ok(())
    }

    fn command(&mut self, step: &Step) -> Result<(), String> {
        let volumes = &self.volumes;
        let Some(command) = step.command(|slot| volumes.get(&slot).copied()) else { return Ok(()) };
        let tag = self.world.command(command.clone());
        let pool = self.world.engine().pool();
        let name = |volume: VolumeId| pool.volume(volume).map(|v| v.name.clone()).unwrap_or_default();
        let entry = match &command {
            Command::CreateVolume { name, size, .. } => Some((Entry::Volume(name.clone()), Some(*size))),
            Command::ResizeVolume { volume, size } => Some((Entry::Volume(name(*volume)), Some(*size))),
            Command::DestroyVolume { volume } => Some((Entry::Volume(name(*volume)), None)),
            Command::Set { name, value } if name == "commit_interval" => {
                Some((Entry::CommitInterval, value.strip_suffix("ms").and_then(|ms| ms.parse().ok())))
            }
            _ => None,
        };
        if let Some((entry, value)) = entry {
            match &mut self.world.tape {
                Some(tape) => tape.ordered(tag, entry, value),
                None => self.books.begin(tag, entry, value),
            }
        }
        if let Step::Create { slot, .. } = step {
            self.creates.insert(tag, *slot);
        }
        if let Command::DestroyVolume { volume } = command {
            self.volumes.retain(|_, id| *id != volume);
            self.world.oracle.destroy(volume.0);
            // The oracle knows of a volume's end at once, so the engine has to.
            self.world.drain();
        }
        self.look()
    }

    /// Whatever came out of the door since the last look.
    fn look(&mut self) -> Result<(), String> {
        for answer in std::mem::take(&mut self.world.answers) {
            if !matches!(answer.result, Ok(()) | Err(RequestError::NoSpace | RequestError::NoVolume)) {
                return Err(Checker::Tolerance.says(format_args!("{answer:?}")));
            }
        }
        for (tag, result) in std::mem::take(&mut self.world.done) {
            let id = if let Ok(Done::Volume(id)) = result { Some(id) } else { None };
            if self.world.tape.is_none() {
                self.books.end(tag, result.is_ok(), id.map(|id| id.0));
            }
            if let (Some(id), Some(slot)) = (id, self.creates.remove(&tag)) {
                self.world.oracle.create(id.0);
                self.volumes.insert(slot, id);
            }
        }
        self.world.wrong.first().map_or(Ok(()), |why| Err(why.clone()))
    }

    fn rest(&mut self) -> Result<(), String> {
        for _ in 0..EVENTS_MAX {
            if !self.go()? {
                return Ok(());
            }
        }
        Err(Checker::Drain.says("no end in sight"))
    }

    fn end(mut self) -> Result<Tape, String> {
        self.rest()?;
        let mut tape = *self.world.tape.take().expect("it was recorded");
        tape.hash = self.world.hash;
        Ok(tape)
    }
}
