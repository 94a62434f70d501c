//! A run as a value: what there is, what is asked and what goes wrong, in order. Nothing in it is drawn any more, except by
//! the world's own dice, whose seed it names.
//!
//! Written down it is JSON with a step a line, so that a small one can be read and cut by hand. Volumes go by slots, as
//! ids are the engine's business: a step whose slot holds no volume at that moment does nothing.

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::job::Choice;
use braid_core::request::{Content, Op};
use braid_core::units::{DeviceId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::fault::{Fault, Trouble};
use crate::sabotage::Sabotage;
use crate::workload;
use crate::world::Crash;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Of the world's dice: jitter, what a crash leaves, which command a fault meets.
    pub seed: u64,
    /// Profile of data.
    pub data: String,
    /// Profile of metadata.
    pub metadata: String,
    /// Members; the first has id 1.
    pub devices: Vec<Member>,
    /// Properties of the new pool.
    #[serde(default)]
    pub set: Vec<(String, String)>,
    /// Requests that ask not to be merged, in a hundred.
    #[serde(default)]
    pub no_merge: u64,
    /// A mistake made on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sabotage: Option<Sabotage>,
    /// From opening to crash, several times.
    pub lives: Vec<Life>,
}

/// A device of the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Of [`super::draw::KINDS`].
    pub kind: String,
    /// Size.
    pub bytes: u64,
}

/// From an opening of the pool to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    /// Troubles of the lives before end first.
    #[serde(default)]
    pub mended: bool,
    /// New ones; their times count from the opening.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// What happens.
    pub steps: Vec<Step>,
    /// All is left to come to rest, and everything is looked at.
    #[serde(default)]
    pub rests: bool,
    /// And scrubbed.
    #[serde(default)]
    pub scrubs: bool,
    /// The pool is closed before the end, if it rests.
    #[serde(default)]
    pub closes: bool,
    /// The end.
    pub crash: Crash,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A request; waits until the client has fewer than `depth` under way.
    Ask(Ask),
    /// The world goes on by so many events.
    Go(u64),
    /// Everything ever touched is read.
    Verify,
    /// Something goes wrong from now on.
    Befall(Fault),
    /// A pool that is suspended comes to rest and is opened again for the clients that it has.
    Reopen {
        /// Troubles end before.
        mended: bool,
        /// What its disks lost meanwhile.
        crash: Crash,
    },
    /// A volume, unless the slot has one.
    Create {
        /// Which slot.
        slot: u32,
        /// Name.
        name: String,
        /// Bytes.
        size: u64,
        /// What its writes count as.
        class: String,
    },
    /// It grows.
    Resize {
        /// Which slot.
        slot: u32,
        /// Bytes.
        size: u64,
    },
    /// It gets another name.
    Rename {
        /// Which slot.
        slot: u32,
        /// Name.
        name: String,
    },
    /// Its writes count as something else.
    Class {
        /// Which slot.
        slot: u32,
        /// As what.
        class: String,
    },
    /// It goes.
    Destroy {
        /// Which slot.
        slot: u32,
    },
    /// A property of the pool, or of a member.
    Set {
        /// Which member, if one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<u32>,
        /// Name.
        name: String,
        /// Value.
        value: String,
    },
    /// Checksums of a volume, from now on.
    Checksum {
        /// Which slot.
        slot: u32,
        /// With.
        on: bool,
    },
    /// A checkpoint.
    Checkpoint,
    /// `start`, `pause`, `resume` or `cancel`.
    Scrub(String),
    /// A member is taken out of use.
    Offline(u32),
    /// It is used again, if it is there.
    Online(u32),
    /// Its errors are counted anew, or those of all.
    Clear(Option<u32>),
    /// One more device.
    Add(Member),
    /// The same, held back until a member fails.
    Spare(Member),
    /// One device less.
    Remove(u32),
    /// One device gets what another one has.
    Replace {
        /// Which leaves.
        device: u32,
        /// Which comes.
        by: u32,
    },
    /// One more device, which gets what another one has.
    ReplaceWith {
        /// Which leaves.
        device: u32,
        /// What comes.
        by: Member,
    },
    /// All chunks anew, in these profiles.
    Balance {
        /// Of data; none = as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// Of metadata.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// `pause`, `resume` or `cancel` what moves.
    Job(String),
}

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Whose.
    pub client: u32,
    /// The client's requests at once.
    pub depth: usize,
    /// Which slot.
    pub slot: u32,
    /// What.
    pub op: Verb,
    /// First byte, a multiple of 512.
    pub offset: u64,
    /// Bytes, likewise.
    pub len: u64,
    /// With force unit access.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fua: bool,
    /// Zeroes keep their place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_hole: bool,
    /// Says that it is metadata.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub metadata: bool,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
    /// Zeroes.
    Zero,
}

impl Ask {
    /// What a client of the [`workload`] asks.
    pub fn new(client: u32, depth: usize, slot: u32, ask: workload::Ask) -> Ask {
        let (op, fua, no_hole) = match ask.op {
            Op::Read => (Verb::Read, false, false),
            Op::Write { fua } => (Verb::Write, fua, false),
            Op::Flush => (Verb::Flush, false, false),
            Op::Discard => (Verb::Discard, false, false),
            Op::WriteZeroes { fua, no_hole } => (Verb::Zero, fua, no_hole),
        };
        let metadata = ask.content == Content::Metadata;
        Ask { client, depth, slot, op, offset: ask.offset, len: ask.len, fua, no_hole, metadata }
    }

    /// As the engine takes it.
    pub fn op(&self) -> Op {
        let Ask { fua, no_hole, .. } = *self;
        match self.op {
            Verb::Read => Op::Read,
            Verb::Write => Op::Write { fua },
            Verb::Flush => Op::Flush,
            Verb::Discard => Op::Discard,
            Verb::Zero => Op::WriteZeroes { fua, no_hole },
        }
    }

    /// What the client says of it.
    pub fn content(&self) -> Content {
        if self.metadata { Content::Metadata } else { Content::Unsaid }
    }
}

impl Step {
    /// An operator's command, with slots in place of volumes; `slot` is the next free one.
    pub fn of(command: Command, slot: u32) -> Step {
        let class = |class: VolumeClass| class.name().to_string();
        match command {
            Command::CreateVolume { name, size, class: c } => Step::Create { slot, name, size, class: class(c) },
            Command::ResizeVolume { volume, size } => Step::Resize { slot: volume.0, size },
            Command::RenameVolume { volume, name } => Step::Rename { slot: volume.0, name },
            Command::SetVolumeClass { volume, class: c } => Step::Class { slot: volume.0, class: class(c) },
            Command::SetVolumeChecksum { volume, on } => Step::Checksum { slot: volume.0, on },
            Command::DestroyVolume { volume } => Step::Destroy { slot: volume.0 },
            Command::Set { name, value } => Step::Set { device: None, name, value },
            Command::SetDevice { device, name, value } => Step::Set { device: Some(device.0), name, value },
            Command::Checkpoint | Command::Close => Step::Checkpoint,
            Command::ScrubStart => Step::Scrub("start".into()),
            Command::ScrubPause => Step::Scrub("pause".into()),
            Command::ScrubResume => Step::Scrub("resume".into()),
            Command::ScrubCancel => Step::Scrub("cancel".into()),
            Command::OnlineDevice { device, .. } => Step::Online(device.0),
            Command::OfflineDevice { device } => Step::Offline(device.0),
            Command::ClearErrors { device } => Step::Clear(device.map(|id| id.0)),
            Command::AddDevice(new) => Step::Add(Member { kind: new.class.name().into(), bytes: new.size }),
            Command::AddSpare(new) => Step::Spare(Member { kind: new.class.name().into(), bytes: new.size }),
            Command::RemoveDevice { device } => Step::Remove(device.0),
            Command::ReplaceDevice { device, by } => Step::Replace { device: device.0, by: by.0 },
            Command::ReplaceWith { device, new } => {
                let by = Member { kind: new.class.name().into(), bytes: new.size };
                Step::ReplaceWith { device: device.0, by }
            }
            Command::Balance { data, metadata } => {
                let word = |choice: Option<Choice>| choice.and_then(|c| c.convert).map(|p| p.name().to_string());
                Step::Balance { data: word(data), metadata: word(metadata) }
            }
            Command::JobPause => Step::Job("pause".into()),
            Command::JobResume => Step::Job("resume".into()),
            Command::JobCancel => Step::Job("cancel".into()),
        }
    }

    /// The command it stands for; none for requests, waiting, and slots without a volume.
    pub fn command(&self, volume: impl Fn(u32) -> Option<VolumeId>) -> Option<Command> {
        let class = |word: &str| VolumeClass::ALL.into_iter().find(|c| c.name() == word).unwrap_or_default();
        Some(match self.clone() {
            Step::Ask(_) | Step::Go(_) | Step::Verify | Step::Befall(_) | Step::Reopen { .. } => return None,
            Step::Add(_) | Step::Spare(_) | Step::ReplaceWith { .. } => return None,
            Step::Create { name, size, class: word, .. } => Command::CreateVolume { name, size, class: class(&word) },
            Step::Resize { slot, size } => Command::ResizeVolume { volume: volume(slot)?, size },
            Step::Rename { slot, name } => Command::RenameVolume { volume: volume(slot)?, name },
            Step::Class { slot, class: word } => Command::SetVolumeClass { volume: volume(slot)?, class: class(&word) },
            Step::Checksum { slot, on } => Command::SetVolumeChecksum { volume: volume(slot)?, on },
            Step::Destroy { slot } => Command::DestroyVolume { volume: volume(slot)? },
            Step::Set { device: None, name, value } => Command::Set { name, value },
            Step::Set { device: Some(id), name, value } => Command::SetDevice { device: DeviceId(id), name, value },
            Step::Checkpoint => Command::Checkpoint,
            Step::Offline(id) => Command::OfflineDevice { device: DeviceId(id) },
            Step::Online(id) => Command::OnlineDevice { device: DeviceId(id), found: None },
            Step::Clear(id) => Command::ClearErrors { device: id.map(DeviceId) },
            Step::Remove(id) => Command::RemoveDevice { device: DeviceId(id) },
            Step::Replace { device, by } => Command::ReplaceDevice { device: DeviceId(device), by: DeviceId(by) },
            Step::Balance { data, metadata } => {
                let choice = |word: Option<String>| {
                    Some(Choice { convert: word.and_then(|word| Profile::parse(&word)), ..Choice::default() })
                };
                Command::Balance { data: choice(data), metadata: choice(metadata) }
            }
            Step::Job(what) => match what.as_str() {
                "pause" => Command::JobPause,
                "resume" => Command::JobResume,
                _ => Command::JobCancel,
            },
            Step::Scrub(what) => match what.as_str() {
                "pause" => Command::ScrubPause,
                "resume" => Command::ScrubResume,
                "cancel" => Command::ScrubCancel,
                _ => Command::ScrubStart,
            },
        })
    }
}

impl Scenario {
    /// Whether checksums tell whatever is misread: of all content, always, and with no parity, which has none.
    pub fn tells_misreads(&self) -> bool {
        let has_parity = |name: &str| Profile::parse(name).is_some_and(|profile| profile.facts().parity > 0);
        let is_fine = |step: &Step| match step {
            Step::Checksum { on, .. } => *on,
            Step::Balance { data: Some(data), .. } => !has_parity(data),
            _ => true,
        };
        let is_summed = self.set.iter().any(|(name, value)| name == "checksum" && value != "none");
        is_summed && !has_parity(&self.data) && self.lives.iter().flat_map(|life| &life.steps).all(is_fine)
    }

    /// Some device misreads.
    pub fn has_misreads(&self) -> bool {
        let mut faults = self.lives.iter().flat_map(|life| &life.faults);
        faults.any(|fault| matches!(fault.trouble, Trouble::Misread { .. }))
    }

    /// Steps of all lives.
    pub fn steps(&self) -> usize {
        self.lives.iter().map(|life| life.steps.len()).sum()
    }

    /// As text: JSON, a step a line.
    pub fn to_text(&self) -> String {
        let mut lives = Vec::new();
        for life in &self.lives {
            let steps: Vec<String> = life.steps.iter().map(|step| format!("      {}", json(step))).collect();
            let faults: Vec<String> = life.faults.iter().map(|fault| format!("\n      {}", json(fault))).collect();
            lives.push(format!(
                "    {{ \"mended\": {}, \"faults\": [{}],\n      \"steps\": [\n{}\n      ],\n      \
                 \"rests\": {}, \"scrubs\": {}, \"closes\": {}, \"crash\": {} }}",
                life.mended,
                faults.join(","),
                steps.join(",\n"),
                life.rests,
                life.scrubs,
                life.closes,
                json(&life.crash)
            ));
        }
        let devices: Vec<String> = self.devices.iter().map(|d| format!("    {}", json(d))).collect();
        let sabotage = self.sabotage.map_or(String::new(), |s| format!("  \"sabotage\": {},\n", json(&s)));
        format!(
            "{{\n  \"seed\": {}, \"data\": {}, \"metadata\": {}, \"no_merge\": {},\n  \"devices\": [\n{}\n  ],\n  \
             \"set\": {},\n{sabotage}  \"lives\": [\n{}\n  ]\n}}\n",
            self.seed,
            json(&self.data),
            json(&self.metadata),
            self.no_merge,
            devices.join(",\n"),
            json(&self.set),
            lives.join(",\n")
        )
    }

    /// From text; the reason why not.
    pub fn parse(text: &str) -> Result<Scenario, String> {
        serde_json::from_str(text).map_err(|e| format!("not a scenario: {e}"))
    }
}

/// Any value as a line of JSON.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain values have a form in JSON")
}
