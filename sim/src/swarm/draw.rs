//! A scenario from a seed.

use braid_core::control::{Command, VolumeClass};
use braid_core::device::FAULTS_MAX;
use braid_core::units::{MIB, VolumeId};
use braid_core::{ChunkType, Profile};

use super::scenario::{Ask, Life, Member, Scenario, Step};
use crate::device::Model;
use crate::fault::{Ends, Fault, Trouble};
use crate::rng::Rng;
use crate::workload::{Job, any_command, any_queue_command};
use crate::world::{Crash, Shape};

/// Devices there are: a model that comes with the crate, and the class that an operator would give it.
pub const KINDS: [(&str, &str); 6] = [
    ("hdd", "hdd"),
    ("hdd-5400", "hdd"),
    ("sata-ssd", "ssd"),
    ("nvme", "nvme"),
    ("ceph-one-node", "net"),
    ("rbd", "odd"),
];

/// The device of a member; none of an unknown kind.
pub(super) fn shape(member: &Member) -> Option<Shape> {
    let &(_, class) = KINDS.iter().find(|(kind, _)| *kind == member.kind)?;
    Some(Shape { size: member.bytes, model: Model::shipped(&member.kind).ok()?, class })
}

/// What one client does.
struct Client {
    id: u32,
    job: Job,
    slot: u32,
    at: u64,
}

struct Drawing {
    rng: Rng,
    n: u64,
    /// Small enough to be full soon, and clients who see to that.
    is_tiny: bool,
    tolerated: u64,
    victims: Vec<u32>,
    devices: Vec<Member>,
    /// Volumes that are believed to exist, by slot, with their sizes.
    volumes: Vec<(VolumeId, u64)>,
    next_slot: u32,
    serial: u64,
    /// How often the knobs of queues are turned: at the beginning of a life, and in a hundred requests.
    knobs: (u64, u64),
    scrubs: bool,
    /// Dice of what changes members, apart from the others: a seed asks the same of a pool as it did before there was any.
    moves: Option<Rng>,
    /// An operator takes a member out of use and back.
    comes_and_goes: bool,
}

/// The scenario of this seed.
pub fn scenario(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let n = rng.between(1, 5);
    let is_tiny = rng.percent(20);
    let devices: Vec<Member> = (0..n)
        .map(|_| {
            let mib = if is_tiny { rng.between(16, 24) } else { rng.between(20, 200) };
            Member { kind: rng.pick(&KINDS).0.into(), bytes: mib * MIB + rng.below(256) * 4096 }
        })
        .collect();
    let fits = |p: &Profile| p.carries(ChunkType::Metadata) && p.facts().devs_min as u64 <= n;
    let profiles: Vec<Profile> = Profile::ALL.into_iter().filter(fits).collect();
    let (data, metadata) = (*rng.pick(&profiles), *rng.pick(&profiles));
    // Dice of their own: what is drawn else stays as it was without parity.
    let mut parity = Rng::new(seed ^ 0x9a_717e);
    let has_rows = |p: &Profile| p.facts().parity > 0 && p.facts().devs_min as u64 <= n;
    let with_rows: Vec<Profile> = Profile::ALL.into_iter().filter(has_rows).collect();
    let data = if !with_rows.is_empty() && parity.percent(25) { *parity.pick(&with_rows) } else { data };
    let tolerated = data.facts().tolerated_failures.min(metadata.facts().tolerated_failures) as u64;
    let victims = {
        let mut all: Vec<u32> = (1..=n as u32).collect();
        let count = if tolerated > 0 { tolerated } else { n };
        (0..count.min(n)).map(|_| all.swap_remove(rng.below(all.len() as u64) as usize)).collect()
    };
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    let mut set = vec![
        pair("commit_interval", rng.pick::<&str>(&["100ms", "1s", "5s"])),
        pair("allocation", rng.pick::<&str>(&["tiers", "tiers", "stock", "ssd-metadata", "allocation-hint"])),
    ];
    // Dice of their own: what is drawn else stays as it was without checksums.
    let mut dice = Rng::new(seed ^ 0xc4ec_5a11);
    let has_checksums = dice.percent(50);
    if has_checksums {
        set.push(pair("checksum", dice.pick::<&str>(&["crc32c", "crc32c", "xxh3"])));
        set.push(pair("checksum_cache", dice.pick::<&str>(&["256K", "64M"])));
    }
    let knobs = (*rng.pick(&[0, 3, 12]), *rng.pick(&[0, 1, 10]));
    let no_merge = *rng.pick(&[0, 0, 10, 60]);
    let scrubs = rng.percent(50);
    let lives = rng.between(1, 5);
    let comes_and_goes = tolerated > 0 && rng.percent(40);
    let mut drawing = Drawing {
        rng,
        n,
        is_tiny,
        tolerated,
        victims,
        devices: devices.clone(),
        volumes: Vec::new(),
        next_slot: 3,
        serial: 0,
        knobs,
        scrubs,
        moves: Some(Rng::new(seed ^ 0x30e5)).filter(|_| seed % 2 == 1),
        comes_and_goes,
    };
    let mut lives: Vec<Life> = (0..lives).map(|_| drawing.life()).collect();
    if has_checksums {
        lives.iter_mut().for_each(|life| drawing.silently(&mut dice, life));
    }
    let mut dice = Rng::new(seed ^ 0xcac4_e105);
    if dice.percent(25) {
        lives.iter_mut().for_each(|life| drawing.forgets(&mut dice, life));
    }
    // None of the seeds that found something before is one of these.
    let mut dice = Rng::new(seed ^ 0x4a57_e070);
    if dice.percent(10) {
        lives.iter_mut().for_each(|life| drawing.in_haste(&mut dice, life));
    }
    // Nor of these.
    let mut dice = Rng::new(seed ^ 0x4e91_00d7);
    if dice.percent(10) {
        lives.iter_mut().for_each(|life| drawing.swaps(&mut dice, life));
    }
    // Nor of these.
    let mut dice = Rng::new(seed ^ 0xfa11_7dbd);
    if tolerated > 0 && dice.percent(15) {
        lives.iter_mut().for_each(|life| drawing.fails_and_returns(&mut dice, life));
    }
    // Nor of these.
    let mut dice = Rng::new(seed ^ 0x5a5b_e5a9);
    if dice.percent(10) {
        lives.iter_mut().for_each(|life| drawing.suspends(&mut dice, life));
    }
    let (data, metadata) = (data.name().into(), metadata.name().into());
    let mut scenario = Scenario { seed: seed ^ 0x5eed, data, metadata, devices, set, no_merge, sabotage: None, lives };
    // None of the seeds that found something before is one of these.
    let mut dice = Rng::new(seed ^ 0x3ead_7315);
    if tolerated > 0 && dice.percent(30) && scenario.tells_misreads() {
        scenario.lives.iter_mut().for_each(|life| drawing.misreads(&mut dice, life));
    }
    scenario
}

impl Drawing {
    fn life(&mut self) -> Life {
        // What is away may come back with the next life.
        let mended = self.tolerated == 0 || self.rng.percent(50);
        let faults = if self.rng.percent(45) { vec![self.fault()] } else { Vec::new() };
        let mut steps = Vec::new();
        self.begin(&mut steps);
        let rests = self.rng.percent(40);
        let most = match (rests, self.is_tiny) {
            (false, _) => *self.rng.pick(&[10, 100, 600]),
            (true, true) => 2000,
            (true, false) => 600,
        };
        let asks = self.rng.below(most);
        self.work(asks, &mut steps);
        let crash = if self.rng.percent(50) { Crash::Process } else { Crash::Power };
        Life { mended, faults, steps, rests, scrubs: self.scrubs, closes: false, crash }
    }

    /// What only checksums see: bits that change where they stand, on members that can be spared. (Without a copy of the
    /// checksums elsewhere, nothing is known of what those were about that a flip hits.) Some lives end cleanly.
    fn silently(&mut self, dice: &mut Rng, life: &mut Life) {
        life.closes = dice.percent(50);
        if self.tolerated > 0 && dice.percent(30) {
            let device = *dice.pick(&self.victims);
            let size = self.devices[device as usize - 1].bytes;
            let from = if dice.percent(50) { 0 } else { dice.below(size) };
            let (since, per_mille) = (dice.below(2) * dice.below(3_000_000_000), *dice.pick(&[1, 20, 300]));
            life.faults.push(Fault { device, trouble: Trouble::Flipped { since, from, to: size, per_mille } });
        }
    }

    /// Reads that give something else than what stands there.
    fn misreads(&self, dice: &mut Rng, life: &mut Life) {
        if dice.percent(50) {
            let device = *dice.pick(&self.victims);
            let trouble = Trouble::Misread { percent: *dice.pick(&[1, 3, 10]), left: *dice.pick(&[1, 20, 1000]) };
            life.faults.push(Fault { device, trouble });
        }
    }

    /// Flushes that fail and take the write cache along, too few of them in a row for a pool to give up its only records.
    fn forgets(&mut self, dice: &mut Rng, life: &mut Life) {
        if dice.percent(60) {
            let device = *dice.pick(&self.victims);
            let trouble = Trouble::CacheLost { percent: *dice.pick(&[2, 10, 100]), left: dice.between(1, 3) };
            life.faults.push(Fault { device, trouble });
        }
    }

    /// A member refuses writes until it is given up, or nearly; an operator has it back in use, and the power goes.
    fn fails_and_returns(&self, dice: &mut Rng, life: &mut Life) {
        let device = *dice.pick(&self.victims);
        let to = self.devices[device as usize - 1].bytes;
        let (percent, left) = (*dice.pick(&[10, 50, 100]), dice.between(1, 2 * u64::from(FAULTS_MAX)));
        let flush = dice.percent(30);
        let trouble = Trouble::Error { read: false, write: true, flush, from: 0, to, percent, left };
        life.faults.push(Fault { device, trouble });
        for _ in 0..dice.between(1, 4) {
            let at = dice.below(life.steps.len() as u64 + 1) as usize;
            life.steps.insert(at, Step::Online(device));
        }
        if dice.percent(70) {
            life.crash = Crash::Power;
        }
    }

    /// All disks are gone, or refuse writes, from some moment on; an operator sees to them, and has the pool opened again.
    fn suspends(&self, dice: &mut Rng, life: &mut Life) {
        let at = dice.below(life.steps.len() as u64 + 1) as usize;
        let is_pulled = dice.percent(50);
        let faults = self.devices.iter().zip(1..).map(|(member, device)| {
            let trouble = match is_pulled {
                true => Trouble::Pulled { since: 0, until: dice.below(1_000_000_000) },
                false => Trouble::writes_fail(0..member.bytes, u64::MAX),
            };
            Step::Befall(Fault { device, trouble })
        });
        let faults: Vec<Step> = faults.collect();
        let later = at + faults.len() + dice.below((life.steps.len() - at) as u64 + 1) as usize;
        life.steps.splice(at..at, faults);
        let crash = if dice.percent(50) { Crash::Process } else { Crash::Power };
        life.steps.insert(later, Step::Reopen { mended: dice.percent(90), crash });
    }

    /// Members that give way to disks that come for that.
    fn swaps(&self, dice: &mut Rng, life: &mut Life) {
        for _ in 0..dice.between(0, 2) {
            let at = dice.below(life.steps.len() as u64 + 1) as usize;
            let bytes = dice.between(16, 220) * MIB;
            let by = Member { kind: dice.pick(&KINDS).0.into(), bytes };
            life.steps.insert(at, Step::ReplaceWith { device: dice.between(1, self.n + 2) as u32, by });
        }
    }

    /// An operator who waits for no answer: commands one after the other in the same moment, some before anything else. Now and then
    /// nobody has a volume yet.
    fn in_haste(&self, dice: &mut Rng, life: &mut Life) {
        if dice.percent(20) {
            life.steps.retain(|step| !matches!(step, Step::Create { .. }));
        }
        for _ in 0..dice.between(1, 6) {
            let at = if dice.percent(30) { 0 } else { dice.below(life.steps.len() as u64 + 1) as usize };
            let commands: Vec<Step> = (0..dice.between(1, 4)).map(|_| self.hasty(dice)).collect();
            life.steps.splice(at..at, commands);
        }
    }

    fn hasty(&self, dice: &mut Rng) -> Step {
        let device = |dice: &mut Rng, from| dice.between(from, self.n + 2) as u32;
        match dice.below(10) {
            0..3 => Step::Job((*dice.pick(&["cancel", "cancel", "pause", "resume"])).into()),
            3 => Step::Remove(device(dice, 1)),
            4..6 => Step::Replace { device: device(dice, 1), by: device(dice, self.n) },
            6 if self.tolerated > 0 => Step::Offline(*dice.pick(&self.victims)),
            7 if self.tolerated > 0 => Step::Online(*dice.pick(&self.victims)),
            8 => Step::Balance { data: None, metadata: None },
            _ => Step::Scrub((*dice.pick(&["start", "cancel"])).into()),
        }
    }

    /// Knobs and volumes; those of the first slots are made again when they are gone.
    fn begin(&mut self, steps: &mut Vec<Step>) {
        for _ in 0..self.knobs.0 {
            steps.push(Step::of(any_queue_command(&mut self.rng, self.n as u32), 0));
        }
        for slot in 0..self.rng.between(1, 3) as u32 {
            let size = if self.is_tiny { 4096 * MIB } else { *self.rng.pick(&[1, 4, 16, 64, 4096]) * MIB };
            let name = format!("first{slot}.{}", self.serial);
            self.serial += 1;
            let class = VolumeClass::Auto.name().into();
            steps.push(Step::Create { slot, name, size, class });
            if !self.volumes.iter().any(|(id, _)| id.0 == slot) {
                self.volumes.push((VolumeId(slot), size));
            }
        }
        steps.push(Step::Go(self.rng.between(10, 60)));
        if self.rng.percent(30) {
            steps.push(Step::Verify);
        }
    }

    /// So many requests of some clients, with commands in between.
    fn work(&mut self, asks: u64, steps: &mut Vec<Step>) {
        let mut clients: Vec<Client> = (0..self.rng.between(1, 4)).map(|id| self.client(id as u32)).collect();
        // How far the world goes on between requests: some clients let it rest, some fill its queues.
        let (idle, far) = (self.rng.between(0, 90), *self.rng.pick(&[1, 4, 20]));
        for _ in 0..asks {
            let i = self.rng.below(clients.len() as u64) as usize;
            let client = &mut clients[i];
            let Some(&(volume, size)) = self.volumes.iter().find(|(id, _)| id.0 == client.slot) else {
                client.slot = self.rng.pick(&self.volumes).0.0;
                continue;
            };
            let ask = client.job.next(&mut self.rng, size, &mut client.at);
            steps.push(Step::Ask(Ask::new(client.id, client.job.depth, volume.0, ask)));
            if self.rng.percent(2) {
                self.command(steps);
            }
            if self.scrubs && self.rng.percent(1) {
                let words = ["start", "start", "pause", "resume", "cancel"];
                steps.push(Step::Scrub((*self.rng.pick(&words)).into()));
            }
            self.move_things(steps);
            if self.comes_and_goes && self.rng.percent(1) {
                let device = *self.rng.pick(&self.victims);
                steps.push(if self.rng.percent(40) { Step::Offline(device) } else { Step::Online(device) });
            }
            if self.rng.percent(self.knobs.1) {
                steps.push(Step::of(any_queue_command(&mut self.rng, self.n as u32), 0));
            }
            if self.rng.percent(idle) {
                steps.push(Step::Go(self.rng.between(1, far)));
            }
        }
        steps.push(Step::Go(self.rng.between(1, 10)));
    }

    /// Now and then somebody changes what the pool stands on.
    fn move_things(&mut self, steps: &mut Vec<Step>) {
        let Some(rng) = &mut self.moves else { return };
        if !rng.percent(3) {
            return;
        }
        // No fewer failures than before may be survived: the run counts on them.
        let tolerated = self.tolerated;
        let profile = |rng: &mut Rng, kind: ChunkType| {
            let keeps = |p: &Profile| p.carries(kind) && p.facts().tolerated_failures as u64 >= tolerated;
            let profiles: Vec<Profile> = Profile::ALL.into_iter().filter(keeps).collect();
            rng.percent(50).then(|| rng.pick(&profiles).name().to_string())
        };
        steps.push(match rng.below(10) {
            0..3 => {
                let bytes = rng.between(16, 120) * MIB + rng.below(256) * 4096;
                let member = Member { kind: rng.pick(&KINDS).0.into(), bytes };
                if rng.percent(30) { Step::Spare(member) } else { Step::Add(member) }
            }
            3 | 4 => Step::Remove(rng.between(1, self.n + 2) as u32),
            8 | 9 => {
                Step::Replace { device: rng.between(1, self.n + 1) as u32, by: rng.between(self.n, self.n + 3) as u32 }
            }
            5 => Step::Balance { data: profile(rng, ChunkType::Data), metadata: profile(rng, ChunkType::Metadata) },
            6 => Step::Balance { data: None, metadata: None },
            _ => Step::Job((*rng.pick(&["pause", "resume", "cancel"])).into()),
        });
    }

    fn client(&mut self, id: u32) -> Client {
        let slot = self.rng.pick(&self.volumes).0.0;
        let mut job = Job::any(&mut self.rng);
        if self.is_tiny && self.rng.percent(70) {
            (job.write, job.discard, job.span) = (20, job.discard + 1, 1 << 40);
        }
        Client { id, job, slot, at: 0 }
    }

    fn command(&mut self, steps: &mut Vec<Step>) {
        self.serial += 1;
        let command = any_command(&mut self.rng, &self.volumes, self.n as u32, self.serial);
        match &command {
            Command::CreateVolume { size, .. } => self.volumes.push((VolumeId(self.next_slot), *size)),
            Command::ResizeVolume { volume, size } => {
                self.volumes.iter_mut().filter(|(id, _)| id == volume).for_each(|v| v.1 = *size);
            }
            Command::DestroyVolume { volume } => self.volumes.retain(|(id, _)| id != volume),
            _ => {}
        }
        let creates = matches!(command, Command::CreateVolume { .. });
        steps.push(Step::of(command, self.next_slot));
        self.next_slot += u32::from(creates);
    }

    fn fault(&mut self) -> Fault {
        let device = *self.rng.pick(&self.victims);
        let size = self.devices[device as usize - 1].bytes;
        let trouble = trouble(&mut self.rng, size, self.tolerated > 0);
        Fault { device, trouble }
    }
}

/// Some trouble of a device of `size` bytes; a pool that cannot do without it has to open first.
fn trouble(rng: &mut Rng, size: u64, spared: bool) -> Trouble {
    let soon = |rng: &mut Rng| rng.below(3_000_000_000);
    match rng.below(10) {
        0 | 1 => {
            let at_once = spared && rng.percent(50);
            let since = if at_once { 0 } else { 1 + soon(rng) };
            match rng.percent(60) {
                true => Trouble::Pulled { since, until: since + soon(rng) },
                false => Trouble::Absent { since },
            }
        }
        2 => Trouble::Slow { since: 0, until: 5_000_000_000, factor: rng.between(2, 1000) },
        3 => {
            let since = 1 + rng.below(1_000_000_000);
            let ends = *rng.pick(&[Ends::Late, Ends::Late, Ends::Gone, Ends::Gone, Ends::Never]);
            Trouble::Stuck { since, until: since + rng.between(1, 30_000_000_000), ends }
        }
        4 => {
            let from = rng.below(size);
            Trouble::Latent { since: rng.below(2) * soon(rng), from, to: from + rng.below(4 * MIB) }
        }
        5 => Trouble::Torn { percent: *rng.pick(&[1, 10, 100]), left: rng.between(1, 5) },
        // Of a record that has no copy elsewhere it takes what nothing can bring back.
        6 if spared => Trouble::Misdirected { percent: *rng.pick(&[1, 10, 50]), left: rng.between(1, 4) },
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
