//! What a run runs on: members with their models, profiles, settings, volumes that hold something already.
//!
//! Filling costs no virtual time: the same writes go through the same engine, 8 MiB each, and commands take no time
//! meanwhile. After that the pool is closed and opened again, so that policies begin without memories, as after a
//! restart.

use braid_core::allocator::{Hint, Tiers};
use braid_core::control::{Command, ControlError, Done, VolumeClass};
use braid_core::device::DEVICE_MAX;
use braid_core::meta::format::{NewDevice, NewPool};
use braid_core::request::{Content, Op, RequestError};
use braid_core::units::{BLOCK, DeviceId, GIB, MIB, Uuid, VolumeId};
use braid_core::{DeviceClass, Profile};

use super::job::Job;
use crate::device::Model;
use crate::disk;
use crate::world::World;

/// A member.
#[derive(Clone, Debug)]
pub struct Member {
    /// For tables of results.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// How long it takes.
    pub model: Model,
    /// Label.
    pub class: String,
    /// As the system would say.
    pub rotational: bool,
    /// Settings of its own: its tiers, its hint, those of its queue.
    pub settings: Vec<(String, String)>,
}

impl Member {
    /// A member without settings of its own.
    pub fn new(name: &str, size: u64, class: &str, model: Model) -> Member {
        let rotational = model.is_rotational();
        Member { name: name.into(), size, model, class: class.into(), rotational, settings: Vec::new() }
    }

    /// Tiers and hint as they were set: the pool's first chunks go by them, too. What makes no sense is told when it is set.
    fn placement(&self, class: &DeviceClass) -> (Option<Tiers>, Hint) {
        let (mut tiers, mut hint) = (None, Hint::default());
        let usual = class.default_tiers();
        for (name, value) in &self.settings {
            match (name.as_str(), value.parse()) {
                ("tier.data", Ok(tier)) => tiers.get_or_insert(usual).data = tier,
                ("tier.metadata", Ok(tier)) => tiers.get_or_insert(usual).metadata = tier,
                ("allocation_hint", _) => hint = Hint::parse(value).unwrap_or_default(),
                _ => {}
            }
        }
        (tiers, hint)
    }
}

/// A volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// What its writes count as.
    pub class: VolumeClass,
    /// Its content has checksums where the pool's has.
    pub checksum: bool,
}

impl Volume {
    fn create(&self, world: &mut World) -> Result<VolumeId, String> {
        let told = |error: ControlError| error.message;
        let (name, size, class) = (self.name.clone(), self.size, self.class);
        let volume = match world.control(Command::CreateVolume { name, size, class }).map_err(told)? {
            Done::Volume(volume) => volume,
            other => return Err(format!("making volume {}: {other:?}", self.name)),
        };
        if !self.checksum {
            world.control(Command::SetVolumeChecksum { volume, on: false }).map_err(told)?;
        }
        Ok(volume)
    }
}

/// What volumes hold at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// Nothing: reads find holes, and writes take space.
    Nothing,
    /// Whatever jobs may touch was written before.
    #[default]
    Touched,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Members; their ids are 1, 2, 3, …
    pub members: Vec<Member>,
    /// Profile of data.
    pub data: Profile,
    /// Profile of metadata.
    pub metadata: Profile,
    /// Properties of the pool.
    pub settings: Vec<(String, String)>,
    /// Volumes.
    pub volumes: Vec<Volume>,
    /// What they hold.
    pub fill: Fill,
    /// CPUs that clients share; 0 is one for each thread.
    pub cpus: usize,
    /// How much of a client's run a read policy is asked about at once; none is the engine's own choice.
    pub stream_window: Option<u64>,
    /// Properties of the pool that change where a stage begins: stage, name, value.
    pub changes: Vec<(u32, String, String)>,
    /// The first stage that counts.
    pub counted_from: u32,
    /// Write intent is kept, as in a real pool. Published numbers are those of systems without it.
    pub intent: bool,
    /// A scrub runs meanwhile.
    pub scrub: bool,
    /// Members that are gone when the jobs begin, by id.
    pub lost: Vec<u32>,
    /// Longest run, in virtual ns.
    pub limit_ns: u64,
    /// Most answers of a run.
    pub limit_ios: u64,
}

/// A day and a half: longer than any published run.
pub const LIMIT_NS: u64 = 130_000 * 1_000_000_000;

impl Setup {
    /// A pool with one volume of that size, no settings.
    pub fn new(members: Vec<Member>, data: Profile, metadata: Profile, size: u64) -> Setup {
        Setup {
            members,
            data,
            metadata,
            settings: Vec::new(),
            volumes: vec![Volume { name: "v".into(), size, class: VolumeClass::Auto, checksum: true }],
            fill: Fill::Touched,
            cpus: 0,
            stream_window: None,
            changes: Vec::new(),
            counted_from: 0,
            intent: false,
            scrub: false,
            lost: Vec::new(),
            limit_ns: LIMIT_NS,
            limit_ios: u64::MAX,
        }
    }

    /// Names of the members.
    pub fn names(&self) -> Vec<String> {
        self.members.iter().map(|member| member.name.clone()).collect()
    }

    /// A world where the pool is open and its volumes hold what the jobs will find; nothing is under way.
    pub(super) fn world(&self, jobs: &[Job], seed: u64) -> Result<(World, Vec<VolumeId>), String> {
        let mut world = World::without_payload(seed);
        world.instant = true;
        self.form(&mut world)?;
        world.open()?;
        world.engine.as_mut().expect("it is open").set_intent(self.intent);
        let told = |error: ControlError| error.message;
        for (member, id) in self.members.iter().zip(1..) {
            for (name, value) in &member.settings {
                let (name, value) = (name.clone(), value.clone());
                world.control(Command::SetDevice { device: DeviceId(id), name, value }).map_err(told)?;
            }
        }
        let volumes: Vec<VolumeId> =
            self.volumes.iter().map(|volume| volume.create(&mut world)).collect::<Result<_, _>>()?;
        if self.fill == Fill::Touched {
            self.fill(&mut world, jobs, &volumes)?;
        }
        world.control(Command::Close).map_err(told)?;
        world.run_until_quiet();
        world.reopen()?;
        world.engine.as_mut().expect("it is open").set_intent(self.intent);
        if let Some(bytes) = self.stream_window {
            world.engine.as_mut().expect("it is open").set_stream_window(bytes);
        }
        for &id in &self.lost {
            let alone = |error: ControlError| {
                let member = self.members.get(id as usize - 1).map_or("a member", |member| &member.name);
                format!("{member} is missing, and the load cannot do without it: {}", error.message)
            };
            world.control(Command::OfflineDevice { device: DeviceId(id) }).map_err(alone)?;
        }
        world.run_until_quiet();
        world.instant = false;
        Ok((world, volumes))
    }

    fn form(&self, world: &mut World) -> Result<(), String> {
        let device = |(i, member): (usize, &Member)| {
            let class = DeviceClass::parse(&member.class).ok_or_else(|| {
                format!("device {}: {:?} is no class; a class is 1 to 15 of a-z 0-9 . _ -", member.name, member.class)
            })?;
            if member.size > DEVICE_MAX {
                return Err(format!(
                    "device {} has {} bytes; a member has at most {DEVICE_MAX}",
                    member.name, member.size
                ));
            }
            let (tiers, hint) = member.placement(&class);
            let mut uuid = [0xd0; 16];
            uuid[..8].copy_from_slice(&(i as u64 + 1).to_be_bytes());
            Ok(NewDevice {
                uuid: Uuid(uuid),
                path: member.name.clone(),
                size: member.size / BLOCK * BLOCK,
                class,
                rotational: member.rotational,
                tiers,
                hint,
            })
        };
        let new = NewPool {
            name: "lab".into(),
            uuid: Uuid([0xbb; 16]),
            data: self.data,
            metadata: self.metadata,
            devices: self.members.iter().enumerate().map(device).collect::<Result<_, String>>()?,
            properties: self.settings.clone(),
        };
        let sizes = self.members.iter().map(|member| (member.size / BLOCK * BLOCK, &member.model));
        let disks = disk::array(sizes, &mut world.rng);
        world.form(disks, &new).map_err(|error| error.message)
    }

    /// Writes every region that a job may touch, once.
    fn fill(&self, world: &mut World, jobs: &[Job], volumes: &[VolumeId]) -> Result<(), String> {
        for (number, (&id, volume)) in volumes.iter().zip(&self.volumes).enumerate() {
            let ours = jobs.iter().filter(|job| job.volume == number);
            let regions: Vec<_> = ours.flat_map(|job| job.regions(volume.size)).collect();
            for content in [Content::Metadata, Content::Data, Content::Unsaid] {
                let alike = regions.iter().filter(|region| region.2 == content);
                for (first, end) in union(alike.map(|region| (region.0, region.1)).collect()) {
                    write_all(world, id, (first, end.min(volume.size)), content).map_err(|error| {
                        let (gib, name) = (end.div_ceil(GIB), &volume.name);
                        match error {
                            RequestError::NoSpace => format!(
                                "the load touches {gib} GiB of volume {name}, more than the pool can hold; use larger \
                                 devices or a smaller load"
                            ),
                            other => format!("writing {gib} GiB of volume {name} before the load failed: {other:?}"),
                        }
                    })?;
                }
            }
        }
        Ok(())
    }
}

fn write_all(
    world: &mut World,
    volume: VolumeId,
    (first, end): (u64, u64),
    content: Content,
) -> Result<(), RequestError> {
    const LEN: u64 = 8 * MIB;
    let mut at = first / BLOCK * BLOCK;
    let end = end.next_multiple_of(BLOCK);
    while at < end {
        for _ in 0..32 {
            let len = LEN.min(end - at);
            if len > 0 {
                world.submit(u32::MAX, volume, Op::Write { fua: false }, at, len, content);
            }
            at += len;
        }
        world.run_until_answered();
        if let Some(failed) = world.answers.drain(..).find_map(|answer| answer.result.err()) {
            return Err(failed);
        }
        world.events.clear();
    }
    Ok(())
}

/// Ranges without overlaps, in order.
fn union(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (first, end) in ranges {
        match merged.last_mut() {
            Some(last) if first <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((first, end)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_where_they_touch() {
        assert_eq!(union(vec![(5, 9), (0, 3), (3, 4), (8, 12), (20, 21)]), [(0, 4), (5, 12), (20, 21)]);
    }
}
