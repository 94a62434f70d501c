//! A run drawn from a seed: a pool, clients, an operator, faults, crashes, several lives long.
//!
//! Within what the profiles tolerate nothing may be noticed: a failed read or write is a failure of the run. Beyond,
//! errors are fine and wrong content is not. Running out of space is fine.

use std::collections::{BTreeMap, BTreeSet};

use braid_core::Profile;
use braid_core::control::{Command, Done, VolumeClass};
use braid_core::request::{Event, RequestError};
use braid_core::scrub::State;
use braid_core::units::{BLOCK, MIB, VolumeId};

use crate::device::Model;
use crate::fault::{Fault, Trouble};
use crate::rng::Rng;
use crate::workload::{Job, any_command, any_queue_command};
use crate::world::{Crash, Shape, World};

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

/// Class and model of a device.
const KINDS: [(&str, &str); 6] = [
    ("hdd", "hdd"),
    ("hdd", "hdd-5400"),
    ("ssd", "sata-ssd"),
    ("nvme", "nvme"),
    ("net", "ceph-one-node"),
    ("odd", "rbd"),
];

struct Client {
    id: u32,
    job: Job,
    volume: VolumeId,
    at: u64,
    under_way: BTreeSet<u64>,
}

/// One run; what was wrong with it, if anything. Broken invariants panic.
pub fn run(seed: u64) -> Result<Summary, String> {
    let talk = std::env::var("BRAID_TALK").is_ok();
    let mut rng = Rng::new(seed);
    let mut world = World::new(seed ^ 0x5eed);
    if let Ok(watch) = std::env::var("BRAID_WATCH") {
        let (volume, sector) = watch.split_once(':').expect("BRAID_WATCH=volume:sector");
        world.oracle.watch = Some((volume.parse().expect("a number"), sector.parse().expect("a number")));
    }
    let n = rng.between(1, 5);
    // Small enough to be full soon, and clients who see to that.
    let is_tiny = rng.percent(20);
    let shapes: Vec<Shape> = (0..n)
        .map(|_| {
            let (class, model) = *rng.pick(&KINDS);
            let mib = if is_tiny { rng.between(16, 24) } else { rng.between(20, 200) };
            let model = Model::shipped(model).expect("it comes with the crate");
            Shape { size: mib * MIB + rng.below(256) * 4096, model, class }
        })
        .collect();
    let fits = |p: &Profile| p.carries_data() && p.facts().devs_min as u64 <= n;
    let profiles: Vec<Profile> = Profile::ALL.into_iter().filter(fits).collect();
    let (data, metadata) = (*rng.pick(&profiles), *rng.pick(&profiles));
    let tolerated = data.facts().tolerated_failures.min(metadata.facts().tolerated_failures) as u64;
    let interval = *rng.pick(&["100ms", "1s", "5s"]);
    let mode = *rng.pick(&["tiers", "tiers", "stock", "ssd-metadata", "allocation-hint"]);
    if talk {
        println!("seed {seed}: data {} metadata {} {mode} {interval}", data.name(), metadata.name());
        shapes.iter().for_each(|s| println!("  {} of {} bytes, class {}", s.model.name(), s.size, s.class));
    }
    if world.create(&shapes, data, metadata, &[("commit_interval", interval), ("allocation", mode)]).is_err() {
        return Ok(Summary::default());
    }
    let victims: Vec<u32> = {
        let mut all: Vec<u32> = (1..=n as u32).collect();
        let count = if tolerated > 0 { tolerated } else { n };
        (0..count.min(n)).map(|_| all.swap_remove(rng.below(all.len() as u64) as usize)).collect()
    };
    let mut summary = Summary::default();
    // Most runs turn the knobs of the queues: some once, some all the time.
    let (knobs, turns) = (*rng.pick(&[0, 3, 12]), *rng.pick(&[0, 1, 10]));
    world.no_merge = *rng.pick(&[0, 0, 10, 60]);
    let mut errors_are_fine = false;
    let (mut destroys, mut creates) = (BTreeMap::new(), BTreeSet::new());
    let mut serial = 0;
    let lives = rng.between(1, 5);
    // Dice of its own, so that a seed is the same run of clients with a scrub as without.
    let mut scrubber = Rng::new(seed ^ 0x5c0b);
    let scrubs = scrubber.percent(50);
    for life in 0..lives {
        // What is away may come back with the next life.
        if tolerated == 0 || rng.percent(50) {
            world.faults.0.clear();
        }
        if rng.percent(40) {
            let device = *rng.pick(&victims);
            let trouble = draw_trouble(&mut rng, world.now(), shapes[device as usize - 1].size);
            if talk {
                println!("life {life}: {device} {trouble:?}");
            }
            errors_are_fine |= tolerated == 0 && !matches!(trouble, Trouble::Slow { .. });
            world.faults.0.push(Fault { device, trouble });
        }
        if tolerated == 0
            && world.faults.0.iter().any(|f| matches!(f.trouble, Trouble::Absent { since } if since <= world.now()))
        {
            world.faults.0.clear();
        }
        match world.open() {
            Ok(()) => {}
            Err(_) if errors_are_fine => return Ok(summary),
            Err(why) => return Err(format!("life {life}: {why}")),
        }
        let here: Vec<u32> = world.engine().pool().volumes().map(|v| v.id.0).collect();
        let lost = world.oracle.found(&here);
        if !lost.is_empty() && !errors_are_fine {
            return Err(format!("life {life}: volumes {lost:?} are lost"));
        }
        lost.iter().for_each(|&id| (world.oracle.destroy(id), world.oracle.destroyed(id), ()).2);
        destroys.clear();
        creates.clear();
        if talk {
            let report = world.engine().report();
            let states: Vec<_> = report.devices.iter().map(|d| d.state.name()).collect();
            println!("life {life}: opened at {} ns, volumes {here:?}, devices {states:?}", world.now());
        }
        for _ in 0..knobs {
            let command = any_queue_command(&mut rng, n as u32);
            if talk {
                println!("life {life}: {command:?}");
            }
            world.command(command);
        }
        if rng.percent(30) {
            world.verify();
        }
        if here.is_empty() {
            for i in 0..rng.between(1, 3) {
                let size = if is_tiny { 4096 * MIB } else { *rng.pick(&[1, 4, 16, 64, 4096]) * MIB };
                let command =
                    Command::CreateVolume { name: format!("first{life}.{i}"), size, class: VolumeClass::Auto };
                creates.insert(world.command(command));
            }
        }
        let most = *rng.pick(&[20, 300, 3000]);
        let dies_after = if rng.percent(70) { Some(rng.below(most)) } else { None };
        let mut left = rng.below(if is_tiny { 2000 } else { 600 });
        let mut clients: Vec<Client> = Vec::new();
        let mut steps = 0;
        let busyness = rng.between(1, 100);
        loop {
            if dies_after.is_some_and(|after| steps >= after) {
                break;
            }
            steps += 1;
            let volumes: Vec<(VolumeId, u64)> = {
                let all = world.engine().pool().volumes().map(|v| (v.id, v.size));
                all.filter(|(id, _)| world.oracle.knows(id.0)).collect()
            };
            if !volumes.is_empty() && clients.is_empty() {
                clients = (0..rng.between(1, 4))
                    .map(|id| {
                        let (volume, _) = *rng.pick(&volumes);
                        let mut job = Job::any(&mut rng);
                        if is_tiny && rng.percent(70) {
                            (job.write, job.discard, job.span) = (20, job.discard + 1, 1 << 40);
                        }
                        Client { id: id as u32, job, volume, at: 0, under_way: BTreeSet::new() }
                    })
                    .collect();
            }
            for client in &mut clients {
                while left > 0 && client.under_way.len() < client.job.depth && rng.percent(busyness) {
                    let Some(&(volume, size)) = volumes.iter().find(|(id, _)| *id == client.volume) else {
                        match volumes.is_empty() {
                            true => break,
                            false => client.volume = rng.pick(&volumes).0,
                        }
                        continue;
                    };
                    left -= 1;
                    let ask = client.job.next(&mut rng, size, &mut client.at);
                    let tag = world.submit(client.id, volume, ask.op, ask.offset, ask.len, ask.content);
                    client.under_way.insert(tag);
                }
            }
            if !volumes.is_empty() && left > 0 && rng.percent(2) {
                serial += 1;
                let command = any_command(&mut rng, &volumes, n as u32, life * 1000 + serial);
                let destroyed = if let Command::DestroyVolume { volume } = command { Some(volume) } else { None };
                let creates_one = matches!(command, Command::CreateVolume { .. });
                if talk {
                    println!("life {life}: {command:?}");
                }
                let tag = world.command(command);
                if let Some(volume) = destroyed {
                    world.oracle.destroy(volume.0);
                    destroys.insert(tag, volume);
                }
                if creates_one {
                    creates.insert(tag);
                }
                // The oracle knows of a volume's end at once, so the engine has to.
                world.drain();
            }
            if scrubs && scrubber.percent(1) {
                let command = [
                    Command::ScrubStart,
                    Command::ScrubStart,
                    Command::ScrubPause,
                    Command::ScrubResume,
                    Command::ScrubCancel,
                ];
                world.command(scrubber.pick(&command).clone());
            }
            if left > 0 && rng.percent(turns) {
                let command = any_queue_command(&mut rng, n as u32);
                if talk {
                    println!("life {life}: at {} ns {command:?}", world.now());
                }
                world.command(command);
            }
            let alive = world.step();
            summary.answered += world.answers.len() as u64;
            for answer in std::mem::take(&mut world.answers) {
                clients.iter_mut().for_each(|c| (c.under_way.remove(&answer.tag), ()).1);
                match answer.result {
                    Ok(()) | Err(RequestError::NoSpace | RequestError::NoVolume) => {}
                    Err(_) if errors_are_fine => {}
                    Err(why) => return Err(format!("life {life}, at {} ns: {answer:?}: {why:?}", world.now())),
                }
            }
            for (tag, result) in std::mem::take(&mut world.done) {
                match result {
                    Ok(Done::Volume(id)) if creates.remove(&tag) => world.oracle.create(id.0),
                    Ok(_) => {
                        if let Some(id) = destroys.remove(&tag) {
                            world.oracle.destroyed(id.0);
                        }
                    }
                    Err(why) if why.kind == braid_core::control::ErrorKind::Io && !errors_are_fine => {
                        return Err(format!("life {life}: {why:?}"));
                    }
                    Err(_) => drop(creates.remove(&tag)),
                }
            }
            if let Some(why) = world.wrong.first() {
                return Err(format!("life {life}: {why}"));
            }
            // Copies may differ after a crash, and where a write failed; before, never.
            let has_trouble = world.faults.0.iter().any(|f| !matches!(f.trouble, Trouble::Slow { .. }));
            let found = world.events.iter().find(|e| matches!(e, Event::ScrubDifference { .. }));
            if let Some(event) = found.filter(|_| life == 0 && !has_trouble) {
                return Err(format!("life 0: {event:?}"));
            }
            world.events.clear();
            let waiting: usize = clients.iter().map(|c| c.under_way.len()).sum();
            if !alive && (left == 0 || volumes.is_empty()) {
                if waiting > 0 || !creates.is_empty() && volumes.is_empty() {
                    return Err(format!("life {life}: quiet, but {waiting} requests and {creates:?} have no answer"));
                }
                break;
            }
        }
        if dies_after.is_none() {
            world.run_until_quiet();
            world.check_quiet(!errors_are_fine);
            world.verify();
            world.run_until_quiet();
            world.check_quiet(!errors_are_fine);
            for answer in std::mem::take(&mut world.answers) {
                if answer.result.is_err() && !errors_are_fine {
                    return Err(format!("life {life}, verifying: {answer:?}"));
                }
            }
            if scrubs {
                scrub_to_the_end(&mut world).map_err(|why| format!("life {life}: {why}"))?;
                world.check_quiet(!errors_are_fine);
            }
            if let Some(why) = world.wrong.first() {
                return Err(format!("life {life}, verifying: {why}"));
            }
        }
        let crash = if rng.percent(50) { Crash::Process } else { Crash::Power };
        if talk {
            println!("life {life}: {crash:?} at {} ns after {steps} steps", world.now());
        }
        summary.crashes += 1;
        world.crash(crash);
    }
    summary.steps = world.steps;
    summary.hash = world.hash;
    Ok(summary)
}

/// While nobody writes, a scrub finds what brute force finds, no more and no less.
fn scrub_to_the_end(world: &mut World) -> Result<(), String> {
    let state = |w: &World| w.engine().report().scrub.scrub.state;
    let _ = world.control(Command::ScrubCancel);
    world.run_until_quiet();
    world.events.clear();
    let unequal = world.unequal();
    // A pool whose log is dead refuses.
    if world.control(Command::ScrubStart).is_err() {
        world.run_until_quiet();
        return Ok(());
    }
    world.run_until(|w| state(w) != State::Running);
    world.run_until_quiet();
    let mut found = Vec::new();
    for event in world.events.drain(..) {
        match event {
            Event::ScrubDifference { volume: Some(volume), offset, len, .. } => {
                found.extend((0..len / BLOCK).map(|i| (volume, offset + i * BLOCK)));
            }
            // What cannot be read cannot be compared.
            Event::ScrubDifference { volume: None, .. } => return Err(format!("{event:?}")),
            Event::ScrubReadError { .. } | Event::ScrubTellsNoMore | Event::DeviceFailed { .. } => return Ok(()),
            _ => {}
        }
    }
    found.sort_unstable();
    match found == unequal && state(world) == State::Finished {
        true => Ok(()),
        false => Err(format!("a scrub found {found:?}, unequal are {unequal:?}, it is {:?}", state(world))),
    }
}

fn draw_trouble(rng: &mut Rng, now: u64, size: u64) -> Trouble {
    match rng.below(4) {
        0 => Trouble::Absent { since: now + rng.below(2) * rng.below(3_000_000_000) },
        1 => Trouble::Slow { since: now, until: now + 5_000_000_000, factor: rng.between(2, 1000) },
        _ => {
            let whole = rng.percent(50);
            let from = if whole { 0 } else { rng.below(size) };
            Trouble::Error {
                read: rng.percent(50),
                write: rng.percent(30),
                flush: rng.percent(30),
                from,
                to: if whole { size } else { from + rng.below(8 * MIB) },
                percent: *rng.pick(&[1, 10, 100]),
                left: *rng.pick(&[1, 5, 1000]),
            }
        }
    }
}
